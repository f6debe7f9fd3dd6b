"""What the first lines of config.toml, expected.json and `about` say: every number there is that of the records."""

from __future__ import annotations

from typing import Any

import pytest

from gll.reproduce.experiment import load_all
from tests.first_lines import REAL, every, experiment, largest, mean, one, paper, said


def lost(name: str, epochs: str, schedule: str) -> float:
    """Points in the worst case of a GLL, by ten times the rate."""
    figure = "worst case at 1x, alone"
    return mean(name, f"GLL, {epochs}, 0.01, {schedule}", figure) - mean(
        name, f"GLL, {epochs}, 0.001, {schedule}", figure
    )


ALL_EPOCHS = "CIFAR-10, 150 epochs, weak attacks"


def least(name: str, place: str, figure: str) -> float:
    return min(every(name, place, figure))


def most(name: str, place: str, figure: str) -> float:
    return max(every(name, place, figure))


def longer(head: str, attack: str) -> list[tuple[Any, ...]]:
    """Of naturally trained networks on CIFAR-10: after all epochs, after a tenth, and the paper's."""
    short = f"{head}, CIFAR-10, 15 epochs"
    return [(mean, f"{head}, {ALL_EPOCHS}", attack), (mean, short, attack), (paper, short, attack)]


BY_A_TENTH = "GLL, robust, 15 epochs, rate 0.001"


def adversarial_at_small(name: str, place: str, figure: str) -> float:
    """Of the other experiment, by which an ablation is judged."""
    return mean("adversarial", place, figure)


WNLL_50 = "WNLL, CIFAR-10, 50 epochs, weak attacks by either gradient"
# Sentences of the first lines, with a {} for each number; and where the numbers are from.
SENTENCES: list[tuple[str, str, list[tuple[Any, ...]]]] = [
    ("base-sets", "make a poor base, {} by entropy and {} by L2.", [(mean, "entropy"), (mean, "L2")]),
    (
        "gamma",
        "0.99 and 1 are best, {} and {}; then {} at 0.75, {} at 0.5, {} at 0.25 and {} at 0.01",
        [(mean, gamma) for gamma in ("0.99", "1", "0.75", "0.5", "0.25", "0.01")],
    ),
    (
        "cifar10",
        "GLL {}, WNLL {} and MLP {} (paper {}, {}, {})",
        [(of, f"resnet18, 2%, {head}") for of in (mean, paper) for head in ("GLL", "WNLL", "MLP")],
    ),
    (
        "emnist",
        "at every share, {}, {} and {}, WNLL the next",
        [(mean, f"resnet20, {labels}, GLL") for labels in ("whole", "20%", "2%")],
    ),
    (
        "emnist-labels",
        "A GLL has {} (paper {}), WNLL {} ({}) and an MLP at rate 0.05 {} ({}), where",
        [(of, f"48 a class, {head}") for head in ("GLL", "WNLL", "MLP at rate 0.05") for of in (mean, paper)],
    ),
    (
        "emnist-labels",
        "with 16 a class, in `emnist`, they have {}, {} and {}",
        [
            (lambda _, *where: mean("emnist", *where), f"resnet20, 2%, {head}")
            for head in ("GLL", "WNLL", "MLP at rate 0.05")
        ],
    ),
    ("rate", "A GLL loses {} and {} points", [(lost, "30 epochs", "cosine"), (lost, "100 epochs", "steps")]),
    (
        "emnist",
        "and {} with 2 % of the labels, {} with 20 % and {} with all of them",
        [(mean, f"resnet20, {labels}, MLP at rate 0.05") for labels in ("2%", "20%", "whole")],
    ),
    ("fashion-toy", "GLL-0 fits there ({}, paper {})", [(mean, "GLL-0, SGD 0.01"), (paper, "GLL-0, SGD 0.01")]),
    ("fashion-toy", "At 0.0003 GLL-0 has {} (paper {})", [(mean, "GLL-0, SGD 0.0003"), (paper, "GLL-0, SGD 0.01")]),
    (
        "fashion-toy",
        "does not stall and ends at {} (paper {})",
        [(mean, "MLP only, SGD 0.01"), (paper, "MLP only, SGD 0.01")],
    ),
    (
        "fashion-toy",
        "have {} and {}, worse than the paper's {} and {}",
        [(of, f"GLL-{epoch}, SGD 0.01") for of in (mean, paper) for epoch in (50, 75)],
    ),
    (
        "fashion-toy",
        "at 0.001, GLL-0 has {} and the MLP {}.",
        [(mean, f"{s}, SGD 0.001") for s in ("GLL-0", "MLP only")],
    ),
    (
        "fashion-toy",
        "by Adam it has {}, the graph that reads it {}, and a GLL trained so {}.",
        [
            (mean, "MLP only, Adam 0.001, cosine"),
            (mean, "MLP only, Adam 0.001, cosine", "gll"),
            (mean, "GLL-0, Adam 0.001, cosine"),
        ],
    ),
    (
        "longer",
        "A GLL has {} after 1,000 steps at the better rate, {} after 4,000, and {} with 1,250 labelled images",
        [
            (mean, f"{steps}, rate 0.05{labelled}, GLL")
            for steps, labelled in (
                ("1,000 steps", ""),
                ("4,000 steps", ""),
                ("4,000 steps", ", 1,250 labelled a step"),
            )
        ],
    ),
    (
        "longer",
        "{} at 0.01, {} at 0.05, and {} after 4,000 steps",
        [(mean, f"{row}, MLP") for row in ("1,000 steps", "1,000 steps, rate 0.05", "4,000 steps, rate 0.05")],
    ),
    (
        "longer",
        "GLL {} and MLP {}, and the GLL is ahead with 2 %, {} and {}.",
        [
            (mean, f"ResNet18: 1,000 steps{row}")
            for row in (", GLL", ", rate 0.05, MLP", ", 2 % of the labels, GLL", ", 2 % of the labels, MLP")
        ],
    ),
    (
        "longer",
        "with 20 % of the labels {} at 0.01 and {} at 0.05 (paper {}), ahead of a GLL",
        [(mean, "1,000 steps, WNLL"), (mean, "1,000 steps, rate 0.05, WNLL"), (paper, "1,000 steps, WNLL")],
    ),
    (
        "longer",
        "with 2 % {} and {}, ahead of it by less than a point",
        [(mean, f"1,000 steps, 2 % of the labels{rate}, WNLL") for rate in ("", ", rate 0.05")],
    ),
    ("longer", "after 4,000 steps it has {} at 0.05, by one seed.", [(mean, "4,000 steps, rate 0.05, WNLL")]),
    ("longer", "both are level, the MLP at {}.", [(mean, "4,000 steps, rate 0.05, 1,250 labelled a step, MLP")]),
    (
        "longer",
        "after 4,000 a GLL has {} and an MLP {} (paper {} and {})",
        [(of, f"ResNet18: 4,000 steps, {head}") for of in (mean, paper) for head in ("GLL", "MLP")],
    ),
    (
        "fashion-toy",
        "as good as one from the start, {}; after one at 75 it has {},",
        [(mean, f"GLL-{switch}, SGD 0.0003") for switch in (50, 75)],
    ),
    (
        "fashion-toy",
        "a graph that trains at 0.01 has {} with a switch at 50 and {} with one at 75",
        [(mean, f"{row}, SGD 0.0003, then 0.01") for row in ("GLL-50", "GLL-75")],
    ),
    (
        "fashion-toy",
        "it ends at {} at 0.0003, and by a graph at {} (paper {})",
        [
            *((mean, "MLP only, SGD 0.0003", figure) for figure in ("error", "gll")),
            (paper, "MLP only, SGD 0.01", "gll"),
        ],
    ),
    (
        "gamma",
        "ends at {}, in the other at {}; 0.25 has {} and {}.",
        [
            (lambda name, gamma, seed: largest(name).values({"gamma": gamma}, "error")[seed], gamma, seed)
            for gamma, seed in (("0.01", 1), ("0.01", 0), ("0.25", 0), ("0.25", 1))
        ],
    ),
    *(
        (
            "attack-length",
            sentence,
            [
                *[(mean, f"GLL, {row}", attack) for row in ("10 epochs", "100 epochs, weak attacks")],
                (paper, "GLL, 10 epochs", attack),
            ],
        )
        for attack, sentence in (
            ("FGSM", "Under FGSM it has {} after 10 epochs and {} after 100 (paper {})"),
            ("IFGSM", "under IFGSM {} and {} (paper {})"),
        )
    ),
    (
        "attack-length",
        "WNLL has {} without attacks after a third of the epochs, in stages of 20 and 5, in place of {} after a tenth",
        [
            (mean, WNLL_50, "natural"),
            (lambda _, *where: mean("adversarial", *where), "cifar10, WNLL, natural", "natural"),
        ],
    ),
    (
        "attack-length",
        "(paper {}; of all 10,000 samples {} in place of {})",
        [
            (paper, WNLL_50, "natural"),
            (mean, WNLL_50, "test"),
            (lambda _, *where: mean("adversarial", *where), "cifar10, WNLL, natural", "test"),
        ],
    ),
    (
        "attack-length",
        "but under FGSM {} in place of {} (paper {}), which so many more epochs and longer stages do not explain",
        [
            (mean, WNLL_50, "FGSM"),
            (lambda _, *where: mean("adversarial", *where), "cifar10, WNLL, natural", "FGSM"),
            (paper, WNLL_50, "FGSM"),
        ],
    ),
    (
        "attack-length",
        "has {} under FGSM, but also {} under IFGSM, where by its linear layer it has {} (paper {}): neither",
        [
            (mean, WNLL_50, "FGSM, by its graph"),
            (mean, WNLL_50, "IFGSM, by its graph"),
            (mean, WNLL_50, "IFGSM"),
            (paper, WNLL_50, "IFGSM"),
        ],
    ),
    (
        "attack-length",
        "of 30 epochs errs by {} without attacks, {} under FGSM and {} under IFGSM, in place of {}, {} and {} (paper",
        [
            (mean, f"GLL, robust, {epochs}", figure)
            for epochs in ("30 epochs, weak attacks", "10 epochs")
            for figure in ("natural", "FGSM", "IFGSM")
        ],
    ),
    (
        "attack-length",
        "(paper {}, {} and {}), and by {} under CW in place of {} (paper {}), at c = 2.5 by {}.",
        [
            *((paper, "GLL, robust, 10 epochs", figure) for figure in ("natural", "FGSM", "IFGSM")),
            *((mean, f"GLL, robust, {epochs}", "CW") for epochs in ("30 epochs, weak attacks", "10 epochs")),
            (paper, "GLL, robust, 10 epochs", "CW"),
            (mean, "GLL, robust, 30 epochs, weak attacks", "CW, c = 2.5"),
        ],
    ),
    (
        "attack-length",
        "has {} under CW, as after 10, and of all 100 {} (paper {}), at c = 2.5 {} and {}; without attacks {} after",
        [
            *((mean, f"linear, robust, {epochs} epochs, weak attacks", "CW") for epochs in (30, 100)),
            (paper, "linear, robust, 100 epochs, weak attacks", "CW"),
            *((mean, f"linear, robust, {epochs} epochs, weak attacks", "CW, c = 2.5") for epochs in (30, 100)),
            (mean, "linear, robust, 100 epochs, weak attacks", "natural"),
        ],
    ),
    (
        "attack-length",
        "after all of them in place of {} (paper {})",
        [(mean, "linear, robust, 10 epochs", "natural"), (paper, "linear, robust, 10 epochs", "natural")],
    ),
    (
        "attack-length",
        "under FGSM, {} after 10 epochs and {} after 100",
        [(mean, f"linear, {epochs} epochs", "FGSM") for epochs in (10, 100)],
    ),
    ("attack-length", "under IFGSM, {} and {}", [(mean, f"linear, {epochs} epochs", "IFGSM") for epochs in (10, 100)]),
    (
        "attack-length",
        "Its worst case rises from {} to {},",
        [(mean, f"linear, {epochs} epochs", "worst case") for epochs in (10, 100)],
    ),
    (
        "attack-length",
        "of all 150 epochs errs as the paper's without attacks, {}, and less under FGSM, {} in place of {} (paper {});",
        [(mean, f"GLL, {ALL_EPOCHS}", "natural"), *longer("GLL", "FGSM")],
    ),
    (
        "attack-length",
        "under IFGSM it has {} in place of {} (paper {}), under CW {} in place of {} (paper {}), most of the",
        [*longer("GLL", "IFGSM"), *longer("GLL", "CW")],
    ),
    (
        "attack-length",
        "without attacks (paper 5.0), and {} in place of {} under FGSM (paper {}), {} in place of {} under CW",
        [*longer("linear", "FGSM"), *longer("linear", "CW")[:2]],
    ),
    (
        "attack-rate",
        "within half a point of the paper's under FGSM, {} (paper {}), and in the mean under IFGSM, {} (paper {}),",
        [(of, "GLL, natural", attack) for attack in ("FGSM", "IFGSM") for of in (mean, paper)],
    ),
    (
        "attack-rate",
        "twice as often under CW at c = 20, by {} (paper {}); at c = 1.9 by {}, so units would explain about three",
        [(mean, "GLL, natural", "CW"), (paper, "GLL, natural", "CW"), (mean, "GLL, natural", "CW, c = 1.9")],
    ),
    (
        "attack-rate",
        "A linear layer has {} to {} under IFGSM from three seeds (paper {}), and {} to {} under CW (paper {});",
        [(of, "linear, natural", attack) for attack in ("IFGSM", "CW") for of in (least, most, paper)],
    ),
    (
        "attack-rate",
        "at a tenth of the rate {} and {}, by one seed.",
        [(mean, "linear, natural, rate 0.001", attack) for attack in ("IFGSM", "CW")],
    ),
    (
        "attack-rate",
        "a GLL has {} and {} under FGSM and IFGSM (paper {} and {}) and {} under CW (paper {}), at c = 1.9 {}, so",
        [
            *((of, "GLL, robust", figure) for of in (mean, paper) for figure in ("FGSM", "IFGSM")),
            *((of, "GLL, robust", "CW") for of in (mean, paper)),
            (mean, "GLL, robust", "CW, c = 1.9"),
        ],
    ),
    (
        "attack-rate",
        "WNLL has {} under IFGSM, and by its graph {} (paper {}), by one seed of each.",
        [
            (mean, "WNLL, robust", "IFGSM"),
            (mean, "WNLL, robust", "IFGSM, by its graph"),
            (paper, "WNLL, robust", "IFGSM"),
        ],
    ),
    (
        "attack-rate",
        "errs by {} under FGSM and {} under IFGSM, a little less than that of the whole rate (`adversarial` at",
        [(mean, BY_A_TENTH, attack) for attack in ("FGSM", "IFGSM")],
    ),
    (
        "attack-rate",
        "(`adversarial` at *small*: {} and {}), and by {} more under CW ({}); so the rate does not explain what is",
        [
            *((adversarial_at_small, "mnist, GLL, robust", attack) for attack in ("FGSM", "IFGSM")),
            (mean, BY_A_TENTH, "CW"),
            (adversarial_at_small, "mnist, GLL, robust", "CW"),
        ],
    ),
    (
        "attack-rate",
        "above the paper's ({}, {} and {}) there. At c = 1.9 it has {}",
        [*((paper, BY_A_TENTH, attack) for attack in ("FGSM", "IFGSM", "CW")), (mean, BY_A_TENTH, "CW, c = 1.9")],
    ),
    (
        "attack-rate",
        "under FGSM {} by that of its linear layer and {} by its graph (paper {}), under IFGSM {} and {} (paper {}),",
        [
            (of, "WNLL, natural", f"{attack}{by}")
            for attack in ("FGSM", "IFGSM")
            for of, by in ((mean, ""), (mean, ", by its graph"), (paper, ""))
        ],
    ),
    (
        "few-labels",
        "at 1 and 2 labels a class, {} and {} on MNIST, {} and {} on FashionMNIST",
        [(mean, f"{data}, {n} a class, 3e-5, Poisson") for data in ("mnist", "fashionmnist") for n in (1, 2)],
    ),
    (
        "few-labels",
        "p-Laplace is next ({} and {}, {} and {})",
        [(mean, f"{data}, {n} a class, 3e-5, p-Laplace") for data in ("mnist", "fashionmnist") for n in (1, 2)],
    ),
]


@pytest.mark.parametrize(("name", "sentence", "numbers"), SENTENCES)
def test_numbers_of_the_first_lines_are_those_of_the_records(
    name: str, sentence: str, numbers: list[tuple[Any, ...]]
) -> None:
    assert sentence.format(*(one(of(name, *where)) for of, *where in numbers)) in said(name)


def test_every_config_says_what_to_expect_and_does_all_of_it() -> None:
    experiments = load_all(REAL)
    for name, found in experiments.items():
        assert "Expected" in found.about, name
        assert "Expected so far" not in found.about, name
        assert "--only" not in found.command, f"{name}: its first line does a part only"
    orders = [found.text["order"] for found in experiments.values()]
    assert orders == sorted(set(orders)), "two experiments have one place in the order"
    appendix = [name for name, found in experiments.items() if "appendix" in found.in_paper]
    assert appendix == ["adversarial", "base-sets", "gamma", "augmentation", "head-at-test", "more-c"]


def test_seeds_of_the_paper() -> None:
    seeds = {name: found.expected["seeds"] for name, found in load_all(REAL).items()}
    assert seeds.pop("moons") == experiment("moons").text["scales"]["full"]["seeds"] == [1]
    assert set(seeds.values()) == {None}
    assert "its seeds where it says so (`null`: it does not)" in (REAL.parent / "docs" / "reproduce.md").read_text()


def plain(values: dict[str, float]) -> dict[str, float]:
    """Of the paper's columns; further ones, such as *FGSM, by its graph*, have the values of the one that they vary."""
    further = {figure: value for figure, value in values.items() if ", " in figure}
    assert all(values[figure.partition(", ")[0]] == value for figure, value in further.items())
    return {figure: value for figure, value in values.items() if figure not in further}


def test_what_is_on_a_table_has_that_tables_values() -> None:
    """Ablations show the paper's values of another experiment: of the same network, labels, head and training."""
    for name, values in experiment("longer").expected["values"].items():
        network, labels = "resnet18" if "ResNet18" in name else "resnet20", "2%" if "2 %" in name else "20%"
        head = name.rpartition(", ")[2]
        assert values == experiment("cifar10").expected["values"][f"{network}, {labels}, {head}"], name
    for name, values in experiment("attack-length").expected["values"].items():
        head, data = name.partition(", ")[0], "cifar10" if "CIFAR-10" in name else "fashionmnist"
        training = "robust" if "robust" in name else "natural"
        assert plain(values) == experiment("adversarial").expected["values"][f"{data}, {head}, {training}"], name
    for name, values in experiment("attack-rate").expected["values"].items():
        head, training = name.split(", ")[:2]
        assert plain(values) == experiment("adversarial").expected["values"][f"mnist, {head}, {training}"], name
    for name, values in experiment("emnist-labels").expected["values"].items():
        labels, head = name.split(" a class, ")
        of = {"48": "2%", "480": "20%"}[labels]  # of 2,400
        same = head.removesuffix(" at rate 0.05")
        assert values == experiment("emnist").expected["values"][f"resnet20, {of}, {same}"], name
