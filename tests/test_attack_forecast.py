"""What is said before attacks begin, and how long they are said to take."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from gll.attacks import FGSM, IFGSM, PGD, AbstractAttack, AbstractNorm, CarliniWagner, CarliniWagnerPaper, LInf, Square
from gll.attacks.autoattack import AutoAttack
from gll.attacks.evaluate import evaluate
from gll.attacks.forecast import Forecast, outline, passes_of
from gll.attacks.transfer import Apart, Transfer
from gll.train.progress import Reporter
from tests.attack_stubs import blobs, honest_mlp


class Counting(nn.Module):
    """Counts passes: three where a gradient is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.passes, self.model = 0, honest_mlp()

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 3 if x.requires_grad else 1
        out: Tensor = self.model(x)
        return out


ATTACKS = (
    FGSM(0.01),
    IFGSM(0.01, 0.002),
    PGD(0.01, 7, restarts=2),
    PGD(0.01, 5, targets=2),
    CarliniWagnerPaper(5.0, steps=8),
    CarliniWagner(2, 9),
    Square(0.01, queries=40),
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_passes_are_those_that_are_made(attack: AbstractAttack) -> None:
    model = Counting()
    attack(model, *blobs(12))
    expected = passes_of(attack)
    assert expected is not None
    if isinstance(attack, CarliniWagner):
        expected -= 3 * 9  # the last descent is for images that depend on each other
    # Beside them: predictions before and after, and looks at the last iterates.
    assert 0 <= model.passes - expected <= 9
    assert passes_of(Transfer(attack, model)) == passes_of(attack)


@pytest.mark.parametrize("attack", [PGD(0.01, 7, restarts=2), CarliniWagner(2, 9), FGSM(0.01)], ids=lambda a: a.name)
def test_the_judge_of_a_stand_in_is_counted(attack: AbstractAttack) -> None:
    model, source = Counting(), Counting()
    asked = Transfer(attack, source, asks=True)
    asked(model, *blobs(12))
    expected = passes_of(asked)
    assert expected is not None
    if isinstance(attack, CarliniWagner):
        expected -= (3 + 1) * 9  # as above
    assert 0 <= model.passes + source.passes - expected <= 9


@pytest.mark.parametrize("version", ["standard", "rand", "gradients"])
def test_passes_of_autoattack(version: str) -> None:
    """By how much they grow with its steps and queries; beside them are some for the start of each part."""
    pytest.importorskip("pyautoattack")

    class Images(nn.Module):
        """Ten classes, each a pixel; nothing so near fools it. Counts predictions, and twice what goes back."""

        passes = 0

        def forward(self, x: Tensor) -> Tensor:
            self.passes += 1
            logits = 5 * x.flatten(1)[:, :10]
            if logits.requires_grad:
                logits.register_hook(self.count)
            return logits

        def count(self, gradient: Tensor) -> Tensor:
            self.passes += 2
            return gradient

    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found = []
    for steps, queries in ((6, 20), (9, 50)):
        attack, model = AutoAttack(1e-6, version=version, steps=steps, queries=queries), Images()
        attack(model, x, model(x).argmax(1))
        found.append((model.passes, passes_of(attack)))
    (a, expected_a), (b, expected_b) = found
    assert expected_a is not None
    assert expected_b is not None
    assert b - a == pytest.approx(expected_b - expected_a, rel=0.02)


@dataclass(frozen=True)
class Own(AbstractAttack):
    eps: float = 0.1
    norm: AbstractNorm = field(default_factory=LInf)

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        return images


def forecast(*attacks: tuple[AbstractAttack, int]) -> tuple[Forecast, io.StringIO]:
    said = io.StringIO()
    return Forecast(attacks, Reporter(Console(file=said, width=200))), said


def test_time_left_is_in_proportion() -> None:
    one, other = FGSM(0.1), PGD(0.1, steps=20)  # 3 and 60 passes
    known, said = forecast((one, 100), (other, 100))
    assert known.seconds_left == 0
    known.after(one, 50, 2.0)  # 150 passes in 2 s; 150 + 6000 are left
    assert known.seconds_left == pytest.approx(82)
    assert said.getvalue() == "about 1:22 for the attacks to come: a rough guess\n"
    known.after(one, 50, 2.0)
    assert said.getvalue().count("\n") == 1  # not after every chunk
    known.after(other, 50, 76.0)  # 3300 passes in 80 s, 3000 are left
    assert known.seconds_left == pytest.approx(3000 * 80 / 3300)
    assert said.getvalue().count("\n") == 2
    known.after(other, 50, 76.0)
    assert known.seconds_left == 0
    assert said.getvalue().count("\n") == 2  # nothing is left to be said


def test_what_stops_early_is_measured_apart() -> None:
    """AutoAttack leaves what it has fooled: a pass of it is short, and says nothing of a pass of others."""
    early, pgd, other = Apart(AutoAttack(0.1)), PGD(0.1, steps=20), PGD(0.2, steps=20)  # of PGD 60 passes
    known, _ = forecast((early, 10), (pgd, 10), (other, 10))
    known.after(early, 10, 1.0)
    assert known.seconds_left < 1  # all that is known yet
    known.after(pgd, 10, 12.0)
    assert known.seconds_left == pytest.approx(12)
    known, _ = forecast((early, 10), (pgd, 10))
    known.after(pgd, 10, 12.0)
    assert known.seconds_left == pytest.approx((passes_of(early) or 0) * 12 / 60)


def test_what_is_to_come_is_said_behind_what_is_done() -> None:
    """Otherwise it reads as if the attack that is done were still to come."""
    said = io.StringIO()
    reporter = Reporter(Console(file=said, width=200))
    x, y = blobs(10)
    evaluate(honest_mlp(), x, y, [FGSM(0.1)], reporter=reporter, after=lambda *about: reporter.say("to come"))
    first, second = said.getvalue().splitlines()
    assert first.startswith("fgsm, eps 0.1, CrossEntropy: error")
    assert second == "to come"


def test_attacks_of_unknown_length() -> None:
    known, said = forecast((FGSM(0.1), 10), (FGSM(0.2), 10), (Own(), 10))
    assert passes_of(Own()) is None
    known.after(Own(), 10, 5.0)
    assert said.getvalue() == ""
    attack = FGSM(0.1)
    known.after(attack, 10, 1.0)
    assert "and 1 of unknown length" in said.getvalue()


def test_every_chunk_is_told_with_its_time() -> None:
    told: list[tuple[str, int, float]] = []
    attack = FGSM(0.1)
    x, y = blobs(10)
    found = evaluate(honest_mlp(), x, y, [attack], chunk=4, after=lambda a, n, s: told.append((a.name, n, s)))
    assert [(name, n) for name, n, _ in told] == [("fgsm", 4), ("fgsm", 4), ("fgsm", 2)]
    assert sum(seconds for *_, seconds in told) == pytest.approx(found.outcomes[0].seconds)


def test_attacks_in_words() -> None:
    attacks = [IFGSM(0.1, 0.05), IFGSM(0.2, 0.05), CarliniWagnerPaper(1.0), CarliniWagnerPaper(20.0), CarliniWagner()]
    assert outline(attacks) == ["ifgsm, CrossEntropy: eps 0.1, 0.2", "cw-paper, 100 steps: c 1, 20", "cw, 100 steps"]
