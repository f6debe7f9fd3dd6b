"""What pages say in words of all other errors is true of the records: a new record that turns it breaks its test."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator

import pytest

from gll.reproduce.experiment import name_of
from gll.reproduce.verdicts import noise, relation
from tests.page_claims import EXPERIMENTS, FINDINGS, ROOT, STATES, mean, paper, require_true, values


def settings_of_seed_0() -> dict[str, float]:
    """Errors by the setting of a training that was changed."""
    found = STATES["settings"]["small"].found
    return {place["training"]: record["values"]["error"] for place, record in found if record["seed"] == 0}


def ahead_of_the_paper(head: str) -> float:
    """Points, of ResNet18 with 2 % of the labels of CIFAR-10."""
    place = f"resnet18, 2%, {head}"
    return paper("cifar10", place) - mean("cifar10", place)


def stalled(curve: str, epoch: int) -> list[float]:
    """Of every seed of the MLP on FashionMNIST at the small rate, after so many epochs."""
    found = (r for place, r in STATES["fashion-toy"]["full"].found if name_of(place) == "MLP only, SGD 0.0003")
    return [dict(record["more"]["curves"][curve])[epoch] for record in found]


def few(data: str, labels: str, head: str, figure: str = "error") -> float:
    return mean("few-labels", f"{data}, {labels} a class, 3e-5, {head}", figure)


def by_network(head: str, network: str) -> list[float]:
    return [mean("cifar10", f"{network}, {labels}, {head}") for labels in ("2%", "20%")]


def at_best(network: str, labels: str = "") -> list[list[float]]:
    """Errors of GLL and MLP in a training of 1,000 steps, each at the better of two rates."""
    rows = [f"{network}1,000 steps{labels}{rate}" for rate in ("", ", rate 0.05")]
    return [min((values("longer", f"{row}, {head}") for row in rows), key=statistics.fmean) for head in ("GLL", "MLP")]


def best(figure: str, labels: str) -> tuple[str, ...]:
    """Which heads of the paper are the best on EMNIST, over all networks."""
    return tuple(
        sorted(
            {
                min(("GLL", "WNLL", "MLP"), key=lambda head: paper("emnist", f"{network}, {labels}, {head}", figure))
                for network in EXPERIMENTS["emnist"].text["axes"]["network"]
            }
        )
    )


def agreeing_in_table_10() -> list[tuple[float, float, int]]:
    """Means of ours, each at the largest scale, the paper's, and of how many samples ours are."""
    found = []
    for scale, shown in STATES["adversarial"].items():
        for place in shown.places:
            for figure in ("natural", "FGSM", "IFGSM", "CW"):
                largest = scale == ("full" if place["data"] == "mnist" else "small")
                if largest and shown.beside_paper(place, figure) == "agree":
                    theirs = paper("adversarial", name_of(place), figure)
                    ours = statistics.fmean(shown.values(place, figure))
                    found.append((ours, theirs, shown.samples(place, figure) or 0))
    assert len(found) > 15
    return found


def with_two_percent(network: str) -> list[tuple[float, float]]:
    """Errors of each head with 2 % of the labels of CIFAR-10, at the better of its rates, and the paper's."""
    named = {"resnet18": "ResNet18: ", "resnet20": ""}[network]
    gll, mlp = (statistics.fmean(found) for found in at_best(named, ", 2 % of the labels"))
    wnll = mean("cifar10", f"{network}, 2%, WNLL")
    if network == "resnet20":
        wnll = min(wnll, mean("longer", "1,000 steps, 2 % of the labels, rate 0.05, WNLL"))
    ours = {"GLL": gll, "WNLL": wnll, "MLP": mlp}
    return [(error, paper("cifar10", f"{network}, 2%, {head}")) for head, error in ours.items()]


def spread(errors: list[float]) -> float:
    return max(errors) - min(errors)


def beside_mlps() -> Iterator[tuple[str, str, str, float, float]]:
    """Errors of WNLL and of each MLP on EMNIST, wherever there are both: labels, figure, which MLP, and these."""
    for experiment, labels in (
        *(("emnist", f"resnet20, {n}") for n in ("2%", "20%", "whole")),
        ("emnist-labels", "48 a class"),
    ):
        for figure in ("error", "ten hardest"):
            for mlp in ("MLP", "MLP at rate 0.05"):
                if found := FINDINGS.values(experiment, f"{labels}, {mlp}", figure):
                    wnll = mean(experiment, f"{labels}, WNLL", figure)
                    yield labels.removeprefix("resnet20, "), figure, mlp, wnll, statistics.fmean(found)


def number(written: str) -> float:
    """The mean of an entry such as **17.67 ± 0.61**."""
    return float(written.strip("*").split()[0])


CLAIMS: dict[str, Callable[[], bool]] = {
    "**yes at one small rate**, and WNLL before the MLP": lambda: all(
        of("cifar10", f"{network}, {labels}, GLL")
        < of("cifar10", f"{network}, {labels}, WNLL")
        < of("cifar10", f"{network}, {labels}, MLP")
        for of in (mean, paper)
        for network in ("resnet18", "resnet20")
        for labels in ("2%", "20%")
    ),
    "a GLL errs less than in the paper; so do all heads, each at its better rate, and they lie nearer": lambda: all(
        all(ours < theirs for ours, theirs in heads) and spread([o for o, _ in heads]) < spread([t for _, t in heads])
        for heads in (with_two_percent("resnet18"), with_two_percent("resnet20"))
    ),
    "in the same order": lambda: all(
        g < w < m
        for network in ("resnet18", "resnet20")
        for g, w, m in zip(*(by_network(head, network) for head in ("GLL", "WNLL", "MLP")), strict=True)
    ),
    "first with ResNet18 is a GLL": lambda: all(
        mean("cifar10", f"resnet18, {labels}, GLL")
        < min(mean("cifar10", f"resnet18, {labels}, WNLL"), statistics.fmean(at_best("ResNet18: ", rows)[1]))
        for labels, rows in (("2%", ", 2 % of the labels"), ("20%", ""))
    ),
    "WNLL ahead of both in both seeds": lambda: all(
        w < other
        for labels in ("", ", 2 % of the labels")
        for errors in at_best("", labels)
        for w, other in zip(values("longer", f"1,000 steps{labels}, rate 0.05, WNLL"), errors, strict=True)
    ),
    "it and a GLL, and MLP and GLL, within a point": lambda: all(
        abs(mean("longer", "1,000 steps, 2 % of the labels, GLL") - statistics.fmean(other)) < 1
        for other in (
            values("longer", "1,000 steps, 2 % of the labels, rate 0.05, WNLL"),
            at_best("", ", 2 % of the labels")[1],
        )
    ),
    "with ResNet20 WNLL; there, with 20 % of the labels, a GLL is last": lambda: (
        all(
            mean("longer", f"1,000 steps{labels}, rate 0.05, WNLL") < min(map(statistics.fmean, at_best("", labels)))
            for labels in ("", ", 2 % of the labels")
        )
        and statistics.fmean(at_best("")[0]) > statistics.fmean(at_best("")[1])
    ),
    "GLL ahead of an MLP in both seeds": lambda: (
        max(at_best("ResNet18: ", ", 2 % of the labels")[0]) < min(at_best("ResNet18: ", ", 2 % of the labels")[1])
    ),
    "the MLP, too, ahead of a GLL; after 4,000 steps the MLP is ahead of a GLL with both": lambda: (
        max(values("longer", "1,000 steps, rate 0.05, MLP")) < min(values("longer", "1,000 steps, rate 0.05, GLL"))
        and statistics.fmean(at_best("", ", 2 % of the labels")[1])
        > mean("longer", "1,000 steps, 2 % of the labels, GLL")
        and mean("longer", "4,000 steps, rate 0.05, MLP") < mean("longer", "4,000 steps, rate 0.05, GLL") - 1
        and abs(
            mean("longer", "4,000 steps, rate 0.05, 1,250 labelled a step, MLP")
            - mean("longer", "4,000 steps, rate 0.05, 1,250 labelled a step, GLL")
        )
        < 1
        and all(
            0
            < mean("longer", f"ResNet18: 4,000 steps{rate}, GLL") - mean("longer", f"ResNet18: 4,000 steps{rate}, MLP")
            < 1
            for rate in ("", ", rate 0.05")
        )
    ),
    "after 4,000, one seed ([`longer`](reproduce.md#longer))": lambda: (
        len(values("longer", "ResNet18: 4,000 steps, GLL")) == 1
        and mean("longer", "ResNet18: 4,000 steps, GLL") < paper("cifar10", "resnet18, 20%, GLL") + 0.06
        and mean("longer", "ResNet18: 1,000 steps, GLL") > paper("cifar10", "resnet18, 20%, GLL") + 0.5
    ),
    "makes of the stalled MLP a GLL as good as one from the start; after one at 75 all three seeds are above": lambda: (
        min(values("fashion-toy", "GLL-75, SGD 0.0003")) > max(values("fashion-toy", "GLL-0, SGD 0.0003"))
        and relation(values("fashion-toy", "GLL-50, SGD 0.0003"), values("fashion-toy", "GLL-0, SGD 0.0003"), 10_000)
        == "level"
        and mean("fashion-toy", "MLP only, SGD 0.0003") > 30
    ),
    "from a GLL from the start that three seeds could show (at 75 all three are above it)": lambda: all(
        abs(mean("fashion-toy", f"{row}, SGD 0.0003, then 0.01") - paper("fashion-toy", f"{row}, SGD 0.01")) < 0.5
        and relation(
            values("fashion-toy", f"{row}, SGD 0.0003, then 0.01"), values("fashion-toy", "GLL-0, SGD 0.01"), 10_000
        )
        == "level"
        and abs(mean("fashion-toy", f"{row}, SGD 0.0003, then 0.01") - mean("fashion-toy", "GLL-0, SGD 0.01")) < 0.5
        and min(values("fashion-toy", "GLL-75, SGD 0.0003, then 0.01")) > max(values("fashion-toy", "GLL-0, SGD 0.01"))
        for row in ("GLL-50", "GLL-75")
    ),
    "MLP ahead of a GLL in both seeds, WNLL in its one": lambda: (
        max(values("longer", "4,000 steps, rate 0.05, MLP")) < min(values("longer", "4,000 steps, rate 0.05, GLL"))
        and mean("longer", "4,000 steps, rate 0.05, WNLL") < min(values("longer", "4,000 steps, rate 0.05, GLL"))
        and len(values("longer", "4,000 steps, rate 0.05, WNLL")) == 1
    ),
    "no line is beyond chance": lambda: all(
        len(gll) == len(mlp) == 2 and relation(gll, mlp, 10_000) == "level"
        for gll, mlp in (
            *(at_best(network, labels) for network in ("ResNet18: ", "") for labels in ("", ", 2 % of the labels")),
            [values("longer", f"4,000 steps, rate 0.05, {head}") for head in ("GLL", "MLP")],
            *([values("cifar10", f"resnet18, {n}, {head}") for head in ("GLL", "WNLL")] for n in ("2%", "20%")),
            *(
                [errors, values("longer", f"1,000 steps{labels}, rate 0.05, WNLL")]
                for labels in ("", ", 2 % of the labels")
                for errors in at_best("", labels)
            ),
            [values("longer", f"4,000 steps, rate 0.05, 1,250 labelled a step, {head}") for head in ("GLL", "MLP")],
        )
    ),
    "after 4,000 steps the MLP is ahead of a GLL with both networks, or level": lambda: all(
        mean("longer", f"{row}, MLP") < mean("longer", f"{row}, GLL")
        for row in (
            "ResNet18: 4,000 steps",
            "ResNet18: 4,000 steps, rate 0.05",
            "4,000 steps, rate 0.05",
            "4,000 steps, rate 0.05, 1,250 labelled a step",
        )
    ),
    "GLL ahead with 2 %, of all classes and the ten hardest; with more labels GLL or MLP, by network": lambda: (
        {best("error", "2%"), best("ten hardest", "2%")} == {("GLL",)}
        and all(best("error", labels) == ("GLL", "MLP") for labels in ("20%", "whole"))
    ),
    "(ResNet20: MLP, with 20 % of the ten hardest GLL)": lambda: all(
        min(("GLL", "WNLL", "MLP"), key=lambda head: paper("emnist", f"resnet20, {labels}, {head}", figure))
        == ("GLL" if (labels, figure) == ("20%", "ten hardest") else "MLP")
        for labels in ("20%", "whole")
        for figure in ("error", "ten hardest")
    ),
    "WNLL, which was not given the larger rate, is behind a GLL, at no share by more than chance": lambda: all(
        mean("emnist", f"resnet20, {labels}, WNLL") > mean("emnist", f"resnet20, {labels}, GLL")
        and relation(*(values("emnist", f"resnet20, {labels}, {head}") for head in ("GLL", "WNLL")), 6110) == "level"
        for labels in ("2%", "20%", "whole")
    ),
    "ahead of the MLPs but for that one with all labels, and with 48 a class on the ten hardest": lambda: (
        {(labels, figure, mlp) for labels, figure, mlp, wnll, error in beside_mlps() if wnll >= error}
        == {
            ("whole", "error", "MLP at rate 0.05"),
            ("whole", "ten hardest", "MLP at rate 0.05"),
            ("48 a class", "ten hardest", "MLP at rate 0.05"),
        }
    ),
    "Each of a GLL's six entries there is above the paper's, four of them within that": lambda: (
        sorted(
            word or ""
            for place in STATES["emnist"]["small"].places
            for figure in ("error", "ten hardest")
            if place["head"] == "GLL"
            for word in [STATES["emnist"]["small"].beside_paper(place, figure)]
        )
        == ["agree"] * 4 + ["higher"] * 2
        and all(
            mean("emnist", f"resnet20, {labels}, GLL", figure) > paper("emnist", f"resnet20, {labels}, GLL", figure)
            for labels in ("2%", "20%", "whole")
            for figure in ("error", "ten hardest")
        )
    ),
    "In table 10 the half point decides nothing": lambda: all(
        abs(error - theirs) <= noise(error, theirs, samples, 10_000)
        for error, theirs, samples in agreeing_in_table_10()
    ),
    "on the small CNN it **does not** err less": lambda: all(
        mean("times", f"small-cnn, {batch}", "error gll, %") >= mean("times", f"small-cnn, {batch}", "error mlp, %")
        and paper("times", f"small-cnn, {batch}", "error gll, %")
        < paper("times", f"small-cnn, {batch}", "error mlp, %")
        for batch in ("128", "256", "512", "1024")
    ),
    "**ahead of an MLP with 2 %**, and with 20 %, where the paper's has the MLP ahead": lambda: all(
        paper("emnist", f"resnet20, {labels}, {best}")
        < paper("emnist", f"resnet20, {labels}, {({'GLL', 'MLP'} - {best}).pop()}")
        < paper("emnist", f"resnet20, {labels}, WNLL")
        for labels, best in (("2%", "GLL"), ("20%", "MLP"), ("whole", "MLP"))
    ),
    "**beside an MLP with 2 % yes**, and with 20 %, too": lambda: (
        all(
            mean("emnist", f"resnet20, {labels}, GLL") < mean("emnist", f"resnet20, {labels}, MLP")
            for labels in ("whole", "20%", "2%")
        )
        and all(
            mean("emnist", f"resnet20, {labels}, GLL") < mean("emnist", f"resnet20, {labels}, MLP at rate 0.05")
            for labels in ("2%", "20%")
        )
    ),
    "With the paper's 48 labels a class (2 % there; ours has 16) no head errs more than the paper's": lambda: all(
        len(values("emnist-labels", f"48 a class, {head}")) == 1
        and mean("emnist-labels", f"48 a class, {head}", figure)
        <= paper("emnist-labels", f"48 a class, {head}", figure) + 0.5
        and mean("emnist-labels", f"48 a class, {head}", figure) < mean("emnist", f"resnet20, 2%, {head}", figure) - 1
        for head in ("GLL", "WNLL", "MLP at rate 0.05")
        for figure in ("error", "ten hardest")
    ),
    "with all labels that MLP is level": lambda: (
        abs(mean("emnist", "resnet20, whole, MLP at rate 0.05") - mean("emnist", "resnet20, whole, GLL")) < 0.5
    ),
    "a fair MLP does not stall, and is level": lambda: (
        abs(mean("fashion-toy", "MLP only, Adam 0.001, cosine") - mean("fashion-toy", "GLL-0, Adam 0.001, cosine"))
        < 0.5
    ),
    "with 780 a class lies between the paper's with 480 and 2,400, with 156 between its 48 and 480": lambda: all(
        paper("emnist", f"resnet20, {more}, MLP", figure)
        < mean("emnist", f"resnet20, {ours}, MLP at rate 0.05", figure)
        < paper("emnist", f"resnet20, {fewer}, MLP", figure)
        for fewer, ours, more in (("20%", "whole", "whole"), ("2%", "20%", "20%"))
        for figure in ("error", "ten hardest")
    ),
    "and the other heads are further ahead of the paper still": lambda: (
        0 < ahead_of_the_paper("GLL") < min(ahead_of_the_paper("WNLL"), ahead_of_the_paper("MLP"))
    ),
    "At 0.01 throughout, where the MLP learns, the switch at 50 helps, at 75 it does not": lambda: all(
        at_50 < read < at_75
        for at_50, read, at_75 in zip(
            values("fashion-toy", "GLL-50, SGD 0.01"),
            values("fashion-toy", "MLP only, SGD 0.01", "gll"),
            values("fashion-toy", "GLL-75, SGD 0.01"),
            strict=True,
        )
    ),
    "in two of three cases": lambda: (
        abs(number(FINDINGS.run("cifar10-2pc-mlp", "gll")) - number(FINDINGS.run("cifar10-2pc-gll", "gll"))) < 0.5
        and abs(
            mean("fashion-toy", "MLP only, Adam 0.001, cosine", "gll")
            - mean("fashion-toy", "GLL-0, Adam 0.001, cosine")
        )
        < 0.2
        and mean("fashion-toy", "MLP only, SGD 0.01", "gll") > mean("fashion-toy", "GLL-0, SGD 0.01") + 1
    ),
    "**a stall, by a small rate**": lambda: (
        mean("fashion-toy", "MLP only, SGD 0.0003") > 3 * mean("fashion-toy", "GLL-0, SGD 0.0003")
        and mean("fashion-toy", "MLP only, SGD 0.01") < 15
    ),
    "for half of the epochs, the MLP's loss stands still, though its error falls to 45 to 61 %": lambda: (
        [round(of(stalled("test mlp error", 50))) for of in (min, max)] == [45, 61]
        and len(stalled("test mlp error", 50)) == 3
        and min(stalled("train loss", 50)) > 0.95 * max(stalled("train loss", 1))
        and max(stalled("train loss", 100)) < 0.6 * min(stalled("train loss", 50))
    ),
    "**not on the small CNN**, yes on ResNet18": lambda: all(
        (mean("times", f"{network}, {batch}", "error gll, %") < mean("times", f"{network}, {batch}", "error mlp, %"))
        is (network == "resnet18")
        for network in ("small-cnn", "resnet18")
        for batch in ("128", "256")
    ),
    "**up to a point**": lambda: (
        mean("moons", "τ = 0.01", "spread") < mean("moons", "τ = 0", "spread")
        and mean("moons", "τ = 0.01", "spread") < mean("moons", "τ = 0.5", "spread")
    ),
    "**LocalMax is needed**, and no better than chance": lambda: all(
        mean("base-sets", score) > mean("base-sets", "random") + 5
        and abs(mean("base-sets", f"{score}, LocalMax") - mean("base-sets", "random")) < 1
        for score in ("entropy", "L2")
    ),
    "**with so few labels nothing but SimCLR is needed**; small γ ruin the features": lambda: (
        all(mean("gamma", small) > mean("gamma", "1") + 20 for small in ("0.01", "0.25", "0.5"))
        and abs(mean("gamma", "0.99") - mean("gamma", "1")) < 1
    ),
    "**augmentation** helps": lambda: all(
        mean("augmentation", f"strong, {head}") < mean("augmentation", f"none, {head}") for head in ("GLL", "MLP")
    ),
    "With one or two labels a class it is the equation that matters": lambda: all(
        few(data, labels, "Poisson") < few(data, labels, "p-Laplace") < few(data, labels, "Laplace")
        for data in ("mnist", "fashionmnist")
        for labels in ("1", "2")
    ),
    "FashionMNIST has the same order": lambda: (
        few("fashionmnist", "1", "Poisson") < few("fashionmnist", "1", "p-Laplace") < few("fashionmnist", "1", "MLP")
        and few("fashionmnist", "1", "MLP") < few("fashionmnist", "1", "Laplace")
    ),
    "with one label all but Poisson": lambda: all(
        (few("mnist", labels, head) < few("mnist", labels, head, "before")) is ((labels, head) != ("1", "Poisson"))
        for labels in ("1", "2", "5")
        for head in ("Laplace", "Poisson", "p-Laplace")
    ),
    "by too few steps, for most of it": lambda: (
        mean("longer", "1,000 steps, rate 0.05, GLL") > paper("cifar10", "resnet20, 20%, GLL") + 5
        and mean("longer", "4,000 steps, rate 0.05, GLL") < mean("longer", "1,000 steps, rate 0.05, GLL") - 3
        and mean("longer", "4,000 steps, rate 0.05, 1,250 labelled a step, GLL")
        < paper("cifar10", "resnet20, 20%, GLL")
    ),
    "five times as large a one changes it by less than a point": lambda: all(
        abs(mean("longer", f"{steps} steps, rate 0.05, GLL") - mean("longer", f"{steps} steps, GLL")) < 1
        for steps in ("1,000", "4,000")
    ),
    "each changes it by less than a point, by one seed; the authors' bandwidth of 1": lambda: (
        {
            name: "worse" if error > settings_of_seed_0()["as in the table"] + 1 else "level"
            for name, error in settings_of_seed_0().items()
            if error > settings_of_seed_0()["as in the table"] - 1
        }
        == dict.fromkeys(EXPERIMENTS["settings"].text["axes"]["training"], "level") | {"bandwidth 1, τ = 0.07": "worse"}
    ),
    "of table 4 seven of nine networks and the column *whole*, of tables 5 and 6 eight networks": lambda: (
        all(
            len({place["network"] for place, _ in STATES[name]["small"].found}) == ran
            and not STATES[name]["full"].found
            for name, ran in (("cifar10", 2), ("emnist", 1))
        )
        and "whole" not in {place["labels"] for place, _ in STATES["cifar10"]["small"].found}
    ),
}


def test_what_we_found_is_one_screen() -> None:
    """Without numbers' marks and the targets of links: as many words as a reader sees at once."""
    text = re.sub(r"<!--.*?-->|\]\([^)]*\)", "", (ROOT / "docs" / "what-we-found.md").read_text(encoding="utf-8"))
    assert len(re.findall(r"\w[\w.,']*", text)) < 680


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_the_page_says_is_true_of_the_records(claim: str) -> None:
    require_true(claim, CLAIMS[claim])
