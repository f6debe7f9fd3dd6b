"""What the first lines of config.toml and `about` claim in words: the records show it."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from gll.reproduce.experiment import name_of
from gll.reproduce.records import read_records
from gll.reproduce.tables import Shown, attacked, verdicts
from tests.first_lines import REAL, experiment, largest, mean, one, paper, said


def test_the_stall_of_fashion_toy() -> None:
    """Half of the epochs at the loss of a guess, and a graph that reads the features meanwhile."""
    records = read_records(REAL / "fashion-toy" / "results.json").values()
    at = [r for r in records if r["cell"].startswith("MLP only, SGD 0.0003, seed") and r["scale"] == "full"]
    assert len(at) == 3
    guess, readings = math.log(10), list[float]()
    for record in at:
        curves = record["more"]["curves"]
        losses = [loss for epoch, loss in curves["train loss"] if epoch <= 50]
        assert len(losses) == 50
        assert min(losses) > 0.95 * guess
        readings += [error for epoch, error in curves["test gll error"] if epoch <= 50]
        later = dict(map(tuple, curves["test gll error"]))
        assert later[100] > later[50], "the reading grows worse"
        assert later[100] < record["values"]["error"], "and stays ahead of the MLP"
    words = f"reads its features at {min(readings):.1f} to {max(readings):.1f} % (paper "
    assert f"{words}{paper('fashion-toy', 'MLP only, SGD 0.01', 'gll'):.2f})" in said("fashion-toy")
    for word in ("as in the paper's curves", "a small rate explains"):
        assert word not in said("fashion-toy")
    config = experiment("fashion-toy")
    assert "better" not in config.text["table"]
    assert "plain SGD is our reading" in config.expected["source"]


def test_emnist_has_other_labels_than_the_paper() -> None:
    config = experiment("emnist")
    assert "better" not in config.text["table"]
    assert (round(0.2 * 780), round(0.2 * 2400)) == (156, 480)
    assert "156 a class at 20 % where the paper has 480" in said("emnist")
    assert "156 a class at 20 %, the paper 480" in config.text["scales"]["small"]["about"]
    ours = mean("emnist", "resnet20, whole, GLL")
    assert paper("emnist", "resnet20, whole, GLL") < ours < paper("emnist", "resnet20, 20%, GLL")
    for labels in ("whole", "20%", "2%"):
        heads = [mean("emnist", f"resnet20, {labels}, {head}") for head in ("GLL", "WNLL", "MLP")]
        assert heads == sorted(heads)
    for labels in ("whole", "20%"):
        assert paper("emnist", f"resnet20, {labels}, MLP") < paper("emnist", f"resnet20, {labels}, GLL")


def test_words_about_the_ablations() -> None:
    level = [mean("base-sets", base) for base in ("random", "fixed", "entropy, LocalMax", "L2, LocalMax")]
    assert f"are level, at {one(min(level))} to {one(max(level))};" in said("base-sets")
    none, flips, strong = (
        {head: mean("augmentation", f"{kind}, {head}") for head in ("MLP", "GLL")}
        for kind in ("none", "crop and flip", "strong")
    )
    for head, points in (("MLP", 11), ("GLL", 6)):
        assert strong[head] < flips[head] < none[head]
        assert none[head] - strong[head] == pytest.approx(points, abs=1.5)
    assert all(row["GLL"] < row["MLP"] for row in (none, flips, strong))
    behind = [mean("cifar10", f"{n}, 20%, GLL") - paper("cifar10", f"{n}, 20%, GLL") for n in ("resnet20", "resnet18")]
    assert [round(points) for points in behind] == [6, 1], "ResNet20 by six points and ResNet18 by one"
    assert f"(paper {one(paper('cifar10', 'resnet20, 20%, GLL'))})" in said("longer")
    rates = {
        (n, labels, h): [mean("longer", f"{n}1,000 steps{labels}{rate}, {h}") for rate in ("", ", rate 0.05")]
        for n in ("", "ResNet18: ")
        for labels in ("", ", 2 % of the labels")
        for h in ("MLP", "GLL")
    }
    assert rates["", "", "GLL"][1] < rates["", "", "GLL"][0], "19.5 is at the better rate"
    for labels in ("", ", 2 % of the labels"):
        assert rates["ResNet18: ", labels, "GLL"][1] > rates["ResNet18: ", labels, "GLL"][0] + 1, "too much for a GLL"
    best = {place: min(found) for place, found in rates.items()}
    assert abs(best["ResNet18: ", "", "GLL"] - best["ResNet18: ", "", "MLP"]) < 0.5
    for labels, words in (("", "GLL {} and MLP {},"), (", 2 % of the labels", "ahead with 2 %, {} and {}.")):
        assert words.format(*(one(best["ResNet18: ", labels, h]) for h in ("GLL", "MLP"))) in said("longer")
    assert mean("longer", "4,000 steps, rate 0.05, MLP") < mean("longer", "4,000 steps, rate 0.05, GLL") - 1
    shown = largest("settings")
    by_seed = [{p["training"]: r["values"]["error"] for p, r in shown.found if r["seed"] == seed} for seed in (0, 1)]
    usual, authors = by_seed[0].pop("as in the table"), by_seed[0].pop("bandwidth 1, τ = 0.07")
    ends = one(min(by_seed[0].values())), one(max(by_seed[0].values()))
    assert f"which has {one(usual)} *as in the table*, the others have {ends[0]} to {ends[1]}," in said("settings")
    assert f"with their τ {one(authors)}, which is worse" in said("settings")
    assert by_seed[1].keys() == {"as in the table"}
    assert f"that row alone, {one(by_seed[1]['as in the table'])}." in said("settings")
    for attack, part in (("FGSM", 1 / 2), ("IFGSM", 2 / 3)):
        theirs = paper("adversarial", "fashionmnist, linear, natural", attack)
        assert f"(paper {one(theirs)})" in said("attack-length")
        short, full = (mean("attack-length", f"linear, {epochs} epochs", attack) for epochs in (10, 100))
        assert (full - short) / (theirs - short) == pytest.approx(part, abs=0.05), "of the difference"
    for attack in ("FGSM", "IFGSM"):
        ours, theirs = (
            {
                (data, h): of("adversarial", f"{data}, {h}, natural", attack)
                for data in ("fashionmnist", "cifar10")
                for h in ("GLL", "linear")
            }
            for of in (mean, paper)
        )
        assert all(ours[data, "GLL"] > theirs[data, "GLL"] + 5 for data in ("fashionmnist", "cifar10")), "errs more"
        assert ours["fashionmnist", "linear"] < theirs["fashionmnist", "linear"] - 5, "errs less on FashionMNIST"
        assert (ours["cifar10", "linear"] > theirs["cifar10", "linear"] + 5) is (attack == "FGSM"), "more under FGSM"
    heads = ("GLL", "WNLL", "linear")
    behind = [
        mean("adversarial", p, "natural") - paper("adversarial", p, "natural")
        for p in (f"cifar10, {h}, natural" for h in heads)
    ]
    assert f"they are {round(min(behind))} to {round(max(behind))} points higher without attacks" in said("adversarial")
    least = min(mean("adversarial", f"cifar10, {h}, natural", "worst case") for h in heads)
    assert f"at least {math.floor(least)} on CIFAR-10" in said("adversarial")
    assert mean("attack-length", "linear, 100 epochs", "natural") < mean(
        "attack-length", "linear, 10 epochs", "natural"
    )
    ahead = [
        paper("cifar10", f"resnet18, 2%, {h}") - mean("cifar10", f"resnet18, 2%, {h}") for h in ("GLL", "WNLL", "MLP")
    ]
    assert f"ahead of the paper by {one(min(ahead))} points and more" in said("cifar10")


def test_words_about_few_labels() -> None:
    for data in ("mnist", "fashionmnist"):
        for labels in (1, 2, 5):
            place = f"{data}, {labels} a class, 3e-5"
            heads = {h: mean("few-labels", f"{place}, {h}") for h in ("Poisson", "p-Laplace", "Laplace", "MLP")}
            if labels < 5:
                assert heads["Poisson"] < heads["p-Laplace"] < min(heads["Laplace"], heads["MLP"]) - 8
            else:
                assert abs(heads["Poisson"] - heads["p-Laplace"]) < 1
            brought = mean("few-labels", f"{place}, Poisson", "before") - heads["Poisson"]
            assert 1 < brought < 3 if data == "mnist" and labels > 1 else brought < 0
            if data == "mnist":
                brought = mean("few-labels", f"{place}, p-Laplace", "before") - heads["p-Laplace"]
                assert 2.5 < brought < 5.5


def test_words_about_times() -> None:
    shown = Shown(experiment("times"), "full")
    for what, words in (("training", "{} to {} in training"), ("testing", "{} to {} in testing")):
        ratios = [value for place in shown.places for value in shown.values(place, f"{what} ratio")]
        theirs = [found[f"{what} ratio"] for found in shown.experiment.expected["values"].values()]
        assert words.format(f"{min(ratios):.2f}", f"{max(ratios):.2f}") in said("times")
        assert f"(paper {min(theirs):.1f} to {max(theirs):.0f})" in said("times")
    steps = [v for p in shown.places if p["network"] == "small-cnn" for v in shown.values(p, "testing mlp, s")]
    assert max(steps) < 1e-3
    timed = [r["wall_s"] for _, r in shown.found if ", times, " in r["cell"]]
    assert len(timed) == 12
    assert sum(timed) < 240


# Few samples ----------------------------------------------------------------------------------------------------------


def test_how_many_samples_were_attacked_is_said_and_true() -> None:
    config = experiment("adversarial")
    for scale, data, words in (
        (
            "full",
            "mnist",
            "natural, FGSM and IFGSM of all {} test samples, CW, worst case, transfer and AutoAttack of {}",
        ),
        ("small", "mnist", "natural, FGSM and IFGSM of {} samples, the other columns of {}"),
        ("small", "fashionmnist", "FashionMNIST 10 epochs: of {} and of {}"),
    ):
        for place, record in Shown(config, scale).found:
            if place["data"] == data:
                summary = record["more"]["summary"]
                many, few = attacked(summary, "FGSM"), attacked(summary, "CW")
                assert many is not None
                assert few is not None
                assert words.format(f"{many:,}", f"{few:,}") in config.text["scales"][scale]["about"]
                assert (attacked(summary, "natural"), attacked(summary, "IFGSM")) == (many, many)
                assert attacked(summary, "worst case") is None, "the paper has none to compare with"
    for record in read_records(REAL / "more-c" / "results.json").values():
        assert {group["samples"] for group in record["more"]["summaries"]["attack"]["groups"]} == {10_000}


def test_what_first_lines_say_of_seeds_and_of_what_was_not_run() -> None:
    """A record that is added makes a sentence untrue that names no number of it."""

    def seeds(place: str) -> int:
        return sum(name_of(at) == place for at, _ in largest("attack-rate").found)

    natural = {head: seeds(f"{head}, natural") for head in ("GLL", "linear", "WNLL")}
    assert natural == {"GLL": 2, "linear": 3, "WNLL": 1}
    assert seeds("linear, natural, rate 0.001") == 1
    for words in (
        "three fifths of that (two seeds;",
        "from three seeds (paper",
        "and 2.5, by one seed.",
        "by one seed, which also",
    ):
        assert words in said("attack-rate")
    at_20, by_units = (mean("attack-rate", "GLL, natural", figure) for figure in ("CW", "CW, c = 1.9"))
    theirs = paper("attack-rate", "GLL, natural", "CW")
    assert round((at_20 - by_units) / (at_20 - theirs), 1) == 0.6
    robust = {place: seeds(place) for place in ("GLL, robust", "WNLL, robust", "GLL, robust, 15 epochs, rate 0.001")}
    assert set(robust.values()) == {1}
    assert sum("robust" in place["training"] for place, _ in largest("attack-rate").found) == len(robust)
    assert "by one seed of each" in said("attack-rate")
    shown = largest("attack-length")
    ran = {name_of(place) for place, _ in shown.found}
    left = {name_of(place) for place in shown.places} - ran
    assert {place.partition(", weak")[0] for place in ran if "robust" in place} == {
        "GLL, robust, 10 epochs",
        "GLL, robust, 30 epochs",
        "linear, robust, 10 epochs",
        "linear, robust, 30 epochs",
        "linear, robust, 100 epochs",
    }
    assert "GLL, robust, 100 epochs, weak attacks" in left
    assert any("WNLL, CIFAR-10, 150" in place for place in left)
    assert not any("WNLL, CIFAR-10, 150" in place for place in ran)
    assert all(
        record["values"]["worst case"] is None
        for place, record in shown.found
        if "150 epochs" in name_of(place)
        or name_of(place).startswith("GLL, 100 epochs")
        or re.search("robust, (30|100) epochs", name_of(place))
    )
    of_cw = [
        one["zero_gradients"]
        for place, record in largest("attack-rate").found
        if name_of(place) == "GLL, robust"
        for group in record["more"]["summary"]["groups"]
        for one in group["attacks"]
        if one["attack"] == "cw-paper"
    ]
    assert len(of_cw) == 2
    assert min(of_cw) > 0.4
    assert largest("attack-rate").beside_paper({"head": "GLL", "training": "robust"}, "CW, c = 1.9") == "agree"
    assert (
        "so units would explain that; more than two fifths of its gradients are exactly zero under CW at either c."
        in said("attack-rate")
    )
    assert "neither gradient gives both." in said("attack-length")
    unit = next(record["more"]["summary"]["unit"] for place, record in shown.found if "CIFAR" not in place["training"])
    assert (f"{unit:.3f}", f"{20 * unit**2:.1f}") == ("0.353", "2.5")
    assert "c = 2.5, which is the paper's if its distances are of normalised images (20 times 0.353 squared)" in said(
        "attack-length"
    )
    assert "after robust training there 3 points higher, which longer ones explain (`attack-length`)" in said(
        "adversarial"
    )
    errors = [mean("adversarial", f"fashionmnist, {head}, robust", "natural") for head in ("GLL", "linear")]
    assert [
        round(error - paper("adversarial", f"fashionmnist, {head}, robust", "natural"))
        for error, head in zip(errors, ("GLL", "linear"), strict=True)
    ] == [3, 3]
    assert (
        "The worst case of a GLL of 100 epochs, that of any head of 150, that of longer adversarial training, a GLL's "
        "adversarial training for all epochs, and WNLL for all 150 epochs have not been run."
    ) in said("attack-length")


def test_the_fewest_samples_of_all_seeds_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of the evaluation that a figure is of."""
    shown = Shown(experiment("attack-rate"), "small")
    place = {"head": "WNLL", "training": "robust"}

    def attacked_by(samples: int) -> dict[str, Any]:
        return {"groups": [{"samples": samples, "attacks": [{"attack": "fgsm"}]}]}

    more = ({"summary": attacked_by(900), "graph": attacked_by(30)}, {"summary": attacked_by(500), "graph": {}})
    monkeypatch.setattr(shown, "found", [(place, {"more": one}) for one in more])
    monkeypatch.setattr("gll.attacks.graphs.as_in_the_paper", lambda summary: summary["groups"])
    assert shown.samples(place, "FGSM") == 500
    assert shown.samples(place, "FGSM, by its graph") == 30


def test_noise_of_few_samples_is_no_difference() -> None:
    """CW of 4.0 % beside 3.19 %: further apart than the tolerance, and within two standard errors of 1,000 samples."""
    shown = Shown(experiment("adversarial"), "full")
    place, record = next(
        (place, record)
        for place, record in shown.found
        if name_of(place) == "mnist, WNLL, natural" and not record["seed"]
    )
    assert record["values"]["CW"] - paper("adversarial", "mnist, WNLL, natural", "CW") > 0.6
    shown.places, shown.found = [place], [(place, {**record, "values": {"CW": record["values"]["CW"]}})]
    assert verdicts(shown) == {"lower": 0, "agree": 1, "higher": 0}
    groups = [{**group, "samples": 10_000} for group in record["more"]["summary"]["groups"]]
    more = {"summary": {**record["more"]["summary"], "groups": groups}}
    shown.found = [(place, {**record, "values": {"CW": record["values"]["CW"]}, "more": more})]
    assert verdicts(shown) == {"lower": 0, "agree": 0, "higher": 1}, "as many samples would tell"


def test_errors_on_emnist_are_of_as_many_images_as_it_is_said() -> None:
    """Shares of so many images: each makes a whole number of them."""
    page = (REAL.parent / "docs" / "claim-by-claim.md").read_text(encoding="utf-8")
    for name in ("emnist", "emnist-labels"):
        for figure, count in (("error", 6110), ("ten hardest", 1300)):
            assert experiment(name).samples("small", figure)[0] == count
            found = [record["values"][figure] for _, record in Shown(experiment(name), "small").found]
            assert found
            assert all(error * count / 100 == pytest.approx(round(error * count / 100), abs=1e-3) for error in found)
    assert "6,110 beside 18,800, of the ten hardest classes 1,300 beside 4,000" in " ".join(page.split())


def test_minutes_a_cell_is_said_where_all_take_longer() -> None:
    for name in ("adversarial", "rate", "longer"):
        assert re.search(r"minutes a cell", experiment(name).text["scales"]["small"]["about"]), name
