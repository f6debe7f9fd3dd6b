"""Signs of a hidden gradient in what several attacks have found: one kind of attack does better than another.

Read next: `checks.py`, which runs these and others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gll.attacks.balls import Ball
from gll.attacks.evaluate import Evaluation, Outcome, describe
from gll.attacks.graphs import graph_in_words
from gll.attacks.kinds import is_own, is_stand_in
from gll.attacks.objectives import CrossEntropy
from gll.attacks.store import Kind
from gll.words import counted

FEW = 0.02  # by chance, or by an attack that is a little better: two samples of a hundred
CLOSE = 0.05  # honest objectives differ by a few percent
LEAST = 3  # of 30 samples one is more than FEW, and one is nothing to judge a model by
WHITE = (Kind.SINGLE, Kind.MULTI)
BLACK = (Kind.BLACK_BOX, Kind.TRANSFER)


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


@final
@dataclass(frozen=True, eq=False)
class Found:
    """By how much some attacks do better than others.

    Args:
        figure: the share of samples.
        ball: in which.
        evaluation: whose attacks they are.
        these, those: the attacks that do better, and the others.
    """

    figure: float
    ball: Ball
    evaluation: Evaluation
    these: Sequence[Outcome]
    those: Sequence[Outcome]

    @property
    def samples(self) -> int:
        """On how many."""
        return len(self.evaluation.labels)

    def __str__(self) -> str:
        """The strongest attack of both sides; ball, samples, graph."""
        cell = self.evaluation.outcomes[0].cell
        graph = graph_in_words(cell.threat, cell.chunk)
        compared = " against ".join(_strongest(side, self.ball) for side in (self.these, self.those))
        return f"{compared}; {self.ball}, {counted(self.samples, 'sample')}{graph and ', '}{graph}"


def transfer_or_black_box_beats_white_box(evaluations: Iterable[Evaluation]) -> Check:
    """The share of samples that are fooled without the model's gradient and by no attack that follows it.

    The largest over all balls for which there are attacks of both kinds. Stand-ins are neither.
    """
    found = _largest(
        FEW, _found_only(evaluations, lambda o: o.cell.kind in BLACK, lambda o: o.cell.kind in WHITE and is_own(o.cell))
    )
    return at_most(
        FEW,
        "black box or transfer",
        found.figure,
        f"{found.figure:.1%} of samples are fooled by black-box or transferred images, and by no attack on the model's "
        f"own gradient ({found})",
        "the gradient hides what is there to be found",
        found.samples,
    )


def single_step_beats_multi_step(evaluations: Iterable[Evaluation]) -> Check:
    """By how much the error of one step exceeds that of many, with the same objective and ball: the best of each."""
    every = []
    for evaluation in evaluations:
        one, many = (of_kind(evaluation, kind) for kind in (Kind.SINGLE, Kind.MULTI))
        for ball, objective in dict.fromkeys((o.ball, objective_of(o)) for o in one):
            these, those = ([o for o in side if (o.ball, objective_of(o)) == (ball, objective)] for side in (one, many))
            if ball is not None and those:
                figure = max(o.error for o in these) - max(o.error for o in those)
                every.append(Found(figure, ball, evaluation, these, those))
    found = _largest(FEW, every)
    return at_most(
        FEW,
        "single step",
        found.figure,
        f"the error of a single step is {found.figure:+.1%} beside that of many steps ({found})",
        "many steps get lost, so the gradient does not point to the boundary",
        found.samples,
    )


def losses_disagree(evaluations: Iterable[Evaluation]) -> Check:
    """By how much the error of multi-step attacks exceeds that of those on cross-entropy, all by the own gradient."""
    every = []
    for evaluation in evaluations:
        for ball in evaluation.balls:
            many = [o for o in of_kind(evaluation, Kind.MULTI) if o.ball == ball]
            plain = [o for o in many if objective_of(o) == CrossEntropy.__name__]
            others = [o for o in many if o not in plain]
            if plain and others:
                figure = float(_any(many, ball).mean() - _any(plain, ball).mean())
                every.append(Found(figure, ball, evaluation, others, plain))
    found = _largest(CLOSE, every)
    return at_most(
        CLOSE,
        "losses disagree",
        found.figure,
        f"attacks on other objectives add {found.figure:.1%} to the error of those on cross-entropy ({found})",
        "robustness against cross-entropy is masking; look at the worst case",
        found.samples,
    )


def stand_ins_beat_own_gradient(evaluations: Iterable[Evaluation]) -> Check:
    """The share of samples that are fooled by following a stand-in, and by no attack on the model's own gradient.

    A stand-in is another view of the graph (every class in sight, neighbours held), distances between features, or a
    probe on the same encoder. The model judges both kinds alike, so what only the stand-in finds was there to be found.
    """
    every = _found_only(evaluations, lambda o: is_stand_in(o.cell), lambda o: is_own(o.cell))
    if not every:
        return Check(
            "stand-in",
            0.0,
            True,
            "no attack on a stand-in for the model's gradient was made; `probe`, and for a graph `every-class`, "
            "`features` and `fixed`, are such",
            tested=False,
        )
    found = _largest(CLOSE, every)
    return at_most(
        CLOSE,
        "stand-in",
        found.figure,
        f"{found.figure:.1%} of samples are fooled by way of another gradient, and by no attack on the model's own "
        f"({found})",
        "its own gradient hides what is there to be found",
        found.samples,
    )


def at_most(limit: float, name: str, figure: float, found: str, follows: str, samples: int | None = None) -> Check:
    """A check of a figure that should be small.

    Args:
        limit: what it may be.
        name: of the check.
        figure: what it is.
        found: that in words.
        follows: from a figure that is too large.
        samples: for a share of samples, of how many: fewer than three of them are too few to fail by.

    >>> [at_most(0.02, "a", share, "", "", 30).passed for share in (1 / 30, 2 / 30, 3 / 30)]
    [True, True, False]
    """
    if exceeds(figure, limit, samples):
        return Check(name, figure, False, f"{found}: {follows}")
    more = f": {counted(round(figure * (samples or 0)), 'sample')}, too few to tell" if figure > limit else ""
    return Check(name, figure, True, f"{found}{more}")


def exceeds(figure: float, limit: float, samples: int | None = None) -> bool:
    """Whether a figure is above its limit; a share of samples also by three of them (or by all, of one or two)."""
    return figure > limit and (samples is None or round(figure * samples) >= min(LEAST, samples))


def of_kind(evaluation: Evaluation, kind: Kind) -> list[Outcome]:
    """Attacks of a kind on the model's own gradient."""
    return [o for o in evaluation.outcomes if o.cell.kind is kind and is_own(o.cell)]


def objective_of(outcome: Outcome) -> str | None:
    """The name of what the attack makes larger, if it has one."""
    objective = outcome.cell.settings.get("objective")
    return objective if objective is None or isinstance(objective, str) else str(objective["name"])


def _found_only(
    evaluations: Iterable[Evaluation], these: Callable[[Outcome], bool], those: Callable[[Outcome], bool]
) -> list[Found]:
    """The share of samples that these attacks fool and those do not, for every ball in which there are both."""
    found: list[Found] = []
    for evaluation in evaluations:
        for ball in evaluation.balls:
            some, others = ([o for o in evaluation.outcomes if wanted(o)] for wanted in (these, those))
            if all(any(o.ball == ball for o in side) for side in (some, others)):
                figure = float((_any(some, ball) & ~_any(others, ball)).mean())
                found.append(Found(figure, ball, evaluation, some, others))
    return found


def _any(outcomes: Sequence[Outcome], ball: Ball) -> NDArray[np.bool_]:
    """Which samples one of these attacks has fooled inside the ball."""
    fooled: NDArray[np.bool_] = np.logical_or.reduce([o.inside(ball) for o in outcomes])
    return fooled


def _strongest(outcomes: Sequence[Outcome], ball: Ball) -> str:
    """Of these attacks, the one with the largest error inside the ball, in words."""
    best = max(outcomes, key=lambda o: o.inside(ball).mean())
    name = describe(best.cell.attack, best.cell.settings)
    return f"{best.inside(ball).mean():.1%} by {name}{', of the checks' if best.of_checks else ''}"


def _largest(limit: float, found: Sequence[Found]) -> Found:
    """The largest figure; of those that are above the limit by enough samples, where there are such."""
    if not found:
        raise ValueError("no two attacks with the same ball to compare; run_checks brings its own")
    return max(found, key=lambda one: (exceeds(one.figure, limit, one.samples), one.figure))
