"""What pages say in words of CIFAR-10 under attack is true of the records: a new record that turns it breaks a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gll.reproduce.protocol import epochs_of
from gll.reproduce.tables import beside_paper
from gll.reproduce.verdicts import noise, relation
from tests.page_claims import EXPERIMENTS, found, mean, paper, protocol, require_true, values

ALL_EPOCHS = "CIFAR-10, 150 epochs, weak attacks"


def attacked(head: str, figure: str) -> float:
    """On CIFAR-10."""
    return mean("adversarial", f"cifar10, {head}, natural", figure)


def longer_wnll(figure: str) -> list[float]:
    """On CIFAR-10, after a third of the paper's epochs."""
    return values("attack-length", "WNLL, CIFAR-10, 50 epochs, weak attacks by either gradient", figure)


def trained(experiment: str, place: str) -> tuple[int, int, int]:
    """Epochs and stages of a WNLL."""
    record = found(experiment, place)
    stages = record["config"]["model.head_options"]
    return epochs_of(record), stages["stage1"], stages["stage2"]


def if_zero_were_fooled(attack: str) -> float:
    """The error of a GLL of all epochs on CIFAR-10, if it erred, too, where it errs not and its gradient is zero."""
    name = {"FGSM": "fgsm", "IFGSM": "ifgsm", "CW": "cw-paper"}[attack]
    groups = found("attack-length", f"GLL, {ALL_EPOCHS}")["more"]["summary"]["groups"]
    one = next(one for group in groups for one in group["attacks"] if one["attack"] == name)
    return long_cifar("GLL", attack)[0] + 100 * one["zero_gradients"] * (1 - one["natural"])


def part_left(error: float, attack: str) -> float:
    """Of what a GLL of 15 epochs on CIFAR-10 errs more than the paper's, how much an error is above it."""
    theirs = paper("adversarial", "cifar10, GLL, natural", attack)
    return (error - theirs) / (attacked("GLL", attack) - theirs)


def under_cw(head: str) -> dict[float, float]:
    """The error of a head of all epochs on CIFAR-10 at each c."""
    groups = found("attack-length", f"{head}, {ALL_EPOCHS}")["more"]["summary"]["groups"]
    cells = [one for group in groups for one in group["attacks"] if one["attack"] == "cw-paper"]
    return {one["settings"]["c"]: 100 * one["error"] for one in cells}


def by_units(head: str) -> list[float]:
    """Of what a head of all epochs on CIFAR-10 errs more than the paper's under CW, what is gone at c = 1 and at 5."""
    at = under_cw(head)
    return [(at[20] - at[c]) / (at[20] - paper("adversarial", f"cifar10, {head}, natural", "CW")) for c in (1, 5)]


def long_cifar(head: str, figure: str) -> list[float]:
    """On CIFAR-10, after all of the paper's epochs."""
    return values("attack-length", f"{head}, {ALL_EPOCHS}", figure)


def gone(head: str, attack: str) -> float:
    """How much of what a head of 15 epochs on CIFAR-10 errs more than the paper's is gone after 150."""
    short = attacked(head, attack)
    return (short - long_cifar(head, attack)[0]) / (short - paper("adversarial", f"cifar10, {head}, natural", attack))


CLAIMS: dict[str, Callable[[], bool]] = {
    "and a GLL still errs far less than a linear layer under all three": lambda: all(
        long_cifar("GLL", attack)[0] < long_cifar("linear", attack)[0] - 30 for attack in ("FGSM", "IFGSM", "CW")
    ),
    "it would err as the paper's under FGSM, and about half of the difference would be left under": lambda: (
        beside_paper(EXPERIMENTS["adversarial"], "cifar10, GLL, natural", "FGSM", [if_zero_were_fooled("FGSM")], 1000)
        == "agree"
        and all(0.4 < part_left(if_zero_were_fooled(attack), attack) < 0.6 for attack in ("IFGSM", "CW"))
    ),
    "with all of these images the epochs take about half of the difference at least": lambda: all(
        0.4 < part_left(if_zero_were_fooled(attack), attack) < 0.6 for attack in ("IFGSM", "CW")
    ),
    "What is left of the GLL's is little beyond chance, and units explain nothing of it that could be seen": lambda: (
        0
        < under_cw("GLL")[20]
        - paper("adversarial", "cifar10, GLL, natural", "CW")
        - noise(under_cw("GLL")[20], paper("adversarial", "cifar10, GLL, natural", "CW"), 200, 10_000)
        < 2
        and under_cw("GLL")[1] > min(error for c, error in under_cw("GLL").items() if c > 20)
        and under_cw("linear")[1] < min(error for c, error in under_cw("linear").items() if c > 20)
    ),
    "of the linear layer's they would take between a third and four fifths": lambda: (
        [round(share, 1) for share in by_units("linear")] == [0.8, 0.4]
    ),
    "less than the paper's under FGSM, and most of what it erred too much under IFGSM and CW is gone": lambda: (
        long_cifar("GLL", "FGSM")[0] + 2 < paper("adversarial", "cifar10, GLL, natural", "FGSM")
        and all(0.5 < gone("GLL", attack) < 0.9 for attack in ("IFGSM", "CW"))
    ),
    "keeps most of its difference under FGSM, and nearly half of that under CW": lambda: (
        gone("linear", "FGSM") < 0.5 < gone("linear", "CW") < 0.6
    ),
    "most of a GLL's difference is gone with all epochs, and more than half of a linear layer's": lambda: (
        gone("GLL", "CW") > 0.5 and gone("linear", "CW") > 0.5
    ),
    "after a tenth of them strong attacks leave next to nothing of either": lambda: (
        all(
            attacked("GLL", attack) < attacked("linear", attack)
            and paper("adversarial", "cifar10, GLL, natural", attack)
            < paper("adversarial", "cifar10, linear, natural", attack)
            and long_cifar("GLL", attack) < long_cifar("linear", attack)
            for attack in ("FGSM", "IFGSM")
        )
        and min(attacked("GLL", "worst case"), attacked("linear", "worst case")) >= 95
    ),
    "(under CW every head errs more than the paper's, most of them far more": lambda: (
        sorted(
            attacked(h, "CW") > paper("adversarial", f"cifar10, {h}, natural", "CW") + far
            for h in ("GLL", "WNLL", "linear")
            for far in (0, 30)
        )
        == [False] + 5 * [True]
    ),
    "After a tenth of the epochs a GLL is the weakest in earnest": lambda: all(
        attacked("GLL", "AutoAttack") < attacked(other, "AutoAttack")
        and relation(protocol("cifar10, GLL, natural"), protocol(f"cifar10, {other}, natural"), 200) == "higher"
        for other in ("linear", "WNLL")
    ),
    "without attacks a GLL errs least, and WNLL, whose graph has two epochs in seven, most": lambda: (
        attacked("GLL", "natural") < attacked("linear", "natural") < attacked("WNLL", "natural")
    ),
    "not by the epochs and stages, as far as they were run": lambda: (
        relation(longer_wnll("FGSM"), values("adversarial", "cifar10, WNLL, natural", "FGSM"), 1000) != "lower"
        and longer_wnll("IFGSM")[0] - 2 > paper("adversarial", "cifar10, WNLL, natural", "IFGSM")
        and attacked("WNLL", "IFGSM") < paper("adversarial", "cifar10, WNLL, natural", "IFGSM")
    ),
    "Not by the epochs, as far as they were run: after a third of them it is": lambda: (
        beside_paper(EXPERIMENTS["adversarial"], "cifar10, WNLL, natural", "CW", longer_wnll("CW"), 200) == "higher"
    ),
    "after a third of its epochs, in stages of 20 and 5, of 1,000 samples ([`attack-length`]": lambda: (
        paper("adversarial", "cifar10, WNLL, natural", "natural") + 2
        < longer_wnll("natural")[0]
        < attacked("WNLL", "natural") - 15
        and trained("attack-length", "WNLL, CIFAR-10, 50 epochs, weak attacks by either gradient") == (150 // 3, 20, 5)
        and trained("adversarial", "cifar10, WNLL, natural") == (150 // 10, 5, 2)
    ),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_the_page_says_is_true_of_the_records(claim: str) -> None:
    require_true(claim, CLAIMS[claim])
