"""Signs of a hidden gradient in what several attacks have found: one kind of attack does better than another.

Read next: `checks.py`, which runs these and others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from gll.attacks.balls import Ball
from gll.attacks.evaluate import Evaluation, Outcome
from gll.attacks.graphs import graph_in_words
from gll.attacks.kinds import is_own, is_stand_in
from gll.attacks.objectives import CrossEntropy
from gll.attacks.store import Kind
from gll.words import counted

FEW = 0.02  # by chance, or by an attack that is a little better: two samples of a hundred
CLOSE = 0.05  # honest objectives differ by a few percent
WHITE = (Kind.SINGLE, Kind.MULTI)
BLACK = (Kind.BLACK_BOX, Kind.TRANSFER)
Found = tuple[float, Ball | None, Evaluation]


@final
@dataclass(frozen=True)
class Check:
    """One line of the report.

    Args:
        name: what was looked at.
        figure: what was found.
        passed: whether that is as it should be; also where nothing was tested.
        meaning: what the figure is, and what follows from it.
        tested: whether there was something to test; if not, the figure says nothing.
    """

    name: str
    figure: float
    passed: bool
    meaning: str
    tested: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = {"name": self.name, "figure": self.figure, "passed": self.passed, "meaning": self.meaning}
        return {**values, "tested": self.tested}


def transfer_or_black_box_beats_white_box(evaluations: Iterable[Evaluation]) -> Check:
    """The share of samples that are fooled without the model's gradient and by no attack that follows it.

    The largest over all balls for which there are attacks of both kinds. Stand-ins are neither.
    """
    figure, where = _largest(
        _found_only(evaluations, lambda o: o.cell.kind in BLACK, lambda o: o.cell.kind in WHITE and is_own(o.cell))
    )
    return at_most(
        FEW,
        "black box or transfer",
        figure,
        f"{figure:.1%} of samples are fooled by black-box or transferred images, and by no attack on the model's own "
        f"gradient ({where})",
        "the gradient hides what is there to be found",
    )


def single_step_beats_multi_step(evaluations: Iterable[Evaluation]) -> Check:
    """By how much the error of one step exceeds that of many, with the same objective and ball."""
    found = []
    for evaluation in evaluations:
        for one in of_kind(evaluation, Kind.SINGLE):
            for many in of_kind(evaluation, Kind.MULTI):
                if one.ball == many.ball and objective_of(one) == objective_of(many):
                    found.append((one.error - many.error, one.ball, evaluation))
    figure, where = _largest(found)
    return at_most(
        FEW,
        "single step",
        figure,
        f"the error of a single step is {figure:+.1%} beside that of many steps ({where})",
        "many steps get lost, so the gradient does not point to the boundary",
    )


def losses_disagree(evaluations: Iterable[Evaluation]) -> Check:
    """By how much the error of multi-step attacks exceeds that of those on cross-entropy, all by the own gradient."""
    found = []
    for evaluation in evaluations:
        for ball in evaluation.balls:
            many = [o for o in of_kind(evaluation, Kind.MULTI) if o.ball == ball]
            plain = [o.inside(ball) for o in many if objective_of(o) == CrossEntropy.__name__]
            if plain and len(plain) < len(many):
                together = np.logical_or.reduce([o.inside(ball) for o in many])
                found.append((float(together.mean() - np.logical_or.reduce(plain).mean()), ball, evaluation))
    figure, where = _largest(found)
    return at_most(
        CLOSE,
        "losses disagree",
        figure,
        f"attacks on other objectives add {figure:.1%} to the error of those on cross-entropy ({where})",
        "robustness against cross-entropy is masking; look at the worst case",
    )


def stand_ins_beat_own_gradient(evaluations: Iterable[Evaluation]) -> Check:
    """The share of samples that are fooled by following a stand-in, and by no attack on the model's own gradient.

    A stand-in is another view of the graph (every class in sight, neighbours held), distances between features, or a
    probe on the same encoder. The model judges both kinds alike, so what only the stand-in finds was there to be found.
    """
    found = _found_only(evaluations, lambda o: is_stand_in(o.cell), lambda o: is_own(o.cell))
    if not found:
        return Check(
            "stand-in",
            0.0,
            True,
            "no attack on a stand-in for the model's gradient was made; `probe`, and for a graph `every-class`, "
            "`features` and `fixed`, are such",
            tested=False,
        )
    figure, where = _largest(found)
    return at_most(
        CLOSE,
        "stand-in",
        figure,
        f"{figure:.1%} of samples are fooled by way of another gradient, and by no attack on the model's own ({where})",
        "its own gradient hides what is there to be found",
    )


def at_most(limit: float, name: str, figure: float, found: str, follows: str) -> Check:
    """A check of a figure that should be small: what was found, and what follows where it is not."""
    passed = figure <= limit
    return Check(name, figure, passed, found if passed else f"{found}: {follows}")


def of_kind(evaluation: Evaluation, kind: Kind) -> list[Outcome]:
    """Attacks of a kind on the model's own gradient."""
    return [o for o in evaluation.outcomes if o.cell.kind is kind and is_own(o.cell)]


def _found_only(
    evaluations: Iterable[Evaluation], these: Callable[[Outcome], bool], those: Callable[[Outcome], bool]
) -> list[Found]:
    """The share of samples that these attacks fool and those do not, for every ball in which there are both."""
    found: list[Found] = []
    for evaluation in evaluations:
        for ball in evaluation.balls:
            if all(any(o.ball == ball and wanted(o) for o in evaluation.outcomes) for wanted in (these, those)):
                by, not_by = (
                    np.logical_or.reduce([o.inside(ball) for o in evaluation.outcomes if wanted(o)])
                    for wanted in (these, those)
                )
                found.append((float((by & ~not_by).mean()), ball, evaluation))
    return found


def objective_of(outcome: Outcome) -> str | None:
    """The name of what the attack makes larger, if it has one."""
    objective = outcome.cell.settings.get("objective")
    return objective if objective is None or isinstance(objective, str) else str(objective["name"])


def _largest(found: Sequence[Found]) -> tuple[float, str]:
    """The largest figure; and where it was found: ball, samples, graph."""
    if not found:
        raise ValueError("no two attacks with the same ball to compare; run_checks brings its own")
    figure, ball, evaluation = max(found, key=lambda one: one[0])
    cell = evaluation.outcomes[0].cell
    graph = graph_in_words(cell.threat, cell.chunk)
    return figure, f"{ball}, {counted(len(evaluation.labels), 'sample')}{graph and ', '}{graph}"
