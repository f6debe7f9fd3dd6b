"""Signs of a hidden gradient in what several attacks have found: one kind of attack does better than another.

The best attack of one kind is compared with the best of the other, on the same samples and in the same ball. One rule
says when a difference counts (`beats`). It needs nothing but errors, so that stored results can be judged by it, too.
Read next: `checks.py`, which runs these and others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, final

from gll.attacks.balls import Ball
from gll.attacks.errors import Errors, Tried
from gll.attacks.graphs import graph_in_words
from gll.attacks.kinds import is_own, is_stand_in
from gll.attacks.objectives import CrossEntropy
from gll.attacks.store import Cell, Kind
from gll.words import counted

FEW = 0.02  # by chance, or by an attack that is a little better: two samples of a hundred
LEAST = 3  # of 30 samples one is more than FEW, and one is nothing to judge a model by
MORE, DEVIATIONS = 1.25, 2.0  # of `beats`: a quarter more, and beyond chance
RULE = 2  # of the verdicts in a summary; those without a number were given by shares of samples above 2 or 5 %
WHITE = (Kind.SINGLE, Kind.MULTI)
BLACK = (Kind.BLACK_BOX, Kind.TRANSFER)


@final
@dataclass(frozen=True)
class Check:
    """One line of the report.

    Args:
        name: what was looked at.
        figure: what was found.
        passed: whether that is as it should be; also where nothing was tested, or too few samples to tell.
        meaning: what the figure is, and what follows from it.
        tested: whether there was something to test; if not, the figure says nothing.
        enough: whether there were samples enough: if not, the figure is too large, but by so few that it may be chance,
            and the check has neither passed nor failed.
    """

    name: str
    figure: float
    passed: bool
    meaning: str
    tested: bool = True
    enough: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = {"name": self.name, "figure": self.figure, "passed": self.passed, "meaning": self.meaning}
        return {**values, "tested": self.tested, "enough": self.enough}


@final
@dataclass(frozen=True, eq=False)
class Found:
    """The best attacks of two sides in one ball.

    Args:
        errors: of the samples that both were made on.
        ball: where.
        this, that: the best attack of the side that should not do better, and of the other.
    """

    errors: Errors
    ball: Ball
    this: Tried
    that: Tried

    @property
    def figure(self) -> float:
        """By how much the error of the first exceeds that of the second."""
        return self.this.error - self.that.error

    @property
    def beats(self) -> bool:
        """Whether it does so clearly."""
        return beats(self.this.error, self.that.error, self.errors.natural, self.errors.samples)

    @property
    def may_beat(self) -> bool:
        """Whether it does so, but not beyond chance: more samples would tell."""
        return not self.beats and a_quarter_more(
            self.this.error, self.that.error, self.errors.natural, self.errors.samples
        )

    def __str__(self) -> str:
        """Both attacks; ball, samples, graph."""
        graph = graph_in_words(self.that.cell.threat, self.that.cell.chunk)
        where = f"{self.ball}, {counted(self.errors.samples, 'sample')}{graph and ', '}{graph}"
        return f"{self.this} against {self.that}; {where}"


def beats(error: float, other: float, natural: float, samples: int) -> bool:
    """Whether an attack does better than another by enough to say something about the model.

    What they have found are the samples that are classified rightly without them. One must have found a quarter more
    than the other, since two honest attacks of unlike kind or effort differ by some percent of what they find; and more
    than chance explains. As if no sample were found by both, which is the most cautious reading of two errors, the
    difference has a deviation of the root of their sum; it must exceed two of these. From none, five samples do.

    Args:
        error, other: shares of wrong samples after each attack.
        natural: the share before.
        samples: how many there are.

    >>> beats(0.070, 0.028, 0.009, samples=1000)  # small errors, 61 samples against 19
    True
    >>> beats(0.53, 0.49, 0.006, samples=1000)  # 524 against 484: not a quarter more
    False
    >>> beats(0.04, 0.0, 0.0, samples=100), beats(0.05, 0.0, 0.0, samples=100)
    (False, True)
    """
    more, less = (_found(share, natural, samples) for share in (error, other))
    beyond_chance = more - less > DEVIATIONS * math.sqrt(more + less)
    return a_quarter_more(error, other, natural, samples) and beyond_chance


def a_quarter_more(error: float, other: float, natural: float, samples: int) -> bool:
    """Whether an attack has found over a quarter more samples than another, be it by chance; see `beats`.

    >>> a_quarter_more(0.25, 0.075, 0.0, samples=40), beats(0.25, 0.075, 0.0, samples=40)  # 10 against 3
    (True, False)
    """
    return _found(error, natural, samples) > MORE * _found(other, natural, samples)


def _found(error: float, natural: float, samples: int) -> int:
    """How many samples an attack has found."""
    return max(0, round(samples * (error - natural)))


def transfer_or_black_box_beats_white_box(every: Iterable[Errors]) -> Check:
    """Whether attacks without the model's gradient do better than those that follow it.

    Other views of a graph are neither; a probe that asks the model is also a stand-in.
    """
    return _better(
        every,
        "black box or transfer",
        lambda cell: cell.kind in BLACK,
        lambda cell: cell.kind in WHITE and is_own(cell),
        "the error of black-box or transferred images is {} beside that of attacks on the model's own gradient",
        "the gradient hides what is there to be found",
    )


def losses_disagree(every: Iterable[Errors]) -> Check:
    """Whether other objectives do better than cross-entropy, in many steps and by the model's own gradient."""
    return _better(
        every,
        "losses disagree",
        lambda cell: _many(cell) and objective_of(cell) != CrossEntropy.__name__,
        lambda cell: _many(cell) and objective_of(cell) == CrossEntropy.__name__,
        "the error of attacks on other objectives is {} beside that of those on cross-entropy",
        "attacks on cross-entropy alone rate this model too well; judge it by all attacks. Where no gradient is "
        "exactly zero, that of cross-entropy probably fades, as it does behind a very confident softmax",
    )


def stand_ins_beat_own_gradient(every: Iterable[Errors]) -> Check:
    """Whether attacks that follow a stand-in do better than those on the model's own gradient.

    A stand-in is another view of the graph (every class in sight, neighbours held), distances between features, or a
    probe on the same encoder. The model judges both kinds alike, so what the stand-in finds was there to be found.
    """
    return _better(
        every,
        "stand-in",
        is_stand_in,
        is_own,
        "the error by way of another gradient is {} beside that by the model's own",
        "its own gradient hides what is there to be found",
        "no attack on a stand-in for the model's gradient was made; `probe`, and for a graph `every-class`, `features` "
        "and `fixed`, are such",
    )


NAMES = (
    *("zero gradients", "black box or transfer", "single step", "losses disagree", "stand-in", "all errors"),
    *("deterministic", "batch dependence"),
)
"""Of all checks, in their order."""
COMPARED = (transfer_or_black_box_beats_white_box, losses_disagree, stand_ins_beat_own_gradient)
"""Checks that compare errors of an evaluation, by one rule (`beats`)."""


def judged_again(summary: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The checks of a stored summary by the rule of today; None where it does not hold enough for that.

    Checks that compare errors are made again from the errors of the attacks that are stored, whenever that was, so that
    all records are judged alike. The others stay as they are.
    """
    every = [Errors.from_dict(group) for group in summary["groups"]]
    again = {check.name: check for check in (compare(every) for compare in COMPARED)}
    stored = {check["name"]: check for check in summary["checks"]}
    if all(check.tested for check in again.values()):
        stored |= {name: check.as_dict() for name, check in again.items()}
    elif (summary.get("checks_at") or {}).get("rule") != RULE:
        return None
    return sorted(stored.values(), key=lambda check: NAMES.index(check["name"]))


def single_step_beats_multi_step(every: Iterable[Errors]) -> Check:
    """By how much the error of one step exceeds that of many, with the same objective and ball: the best of each.

    Many steps should never do worse, so there is no room but for chance.
    """
    found = []
    for errors in every:
        one, many = (
            [t for t in errors.tried if t.cell.kind is k and is_own(t.cell)] for k in (Kind.SINGLE, Kind.MULTI)
        )
        for ball, objective in dict.fromkeys((t.ball, objective_of(t.cell)) for t in one):
            these, those = (
                [t for t in side if (t.ball, objective_of(t.cell)) == (ball, objective)] for side in (one, many)
            )
            if ball is not None and those:
                found.append(Found(errors, ball, *(max(side, key=lambda t: t.error) for side in (these, those))))
    if not found:
        raise ValueError("no two attacks with the same ball to compare; run_checks brings its own")
    largest = max(found, key=lambda one: (exceeds(one.figure, FEW, one.errors.samples), one.figure))
    return at_most(
        FEW,
        "single step",
        largest.figure,
        f"the error of a single step is {largest.figure:+.1%} beside that of many steps ({largest})",
        "many steps get lost, so the gradient does not point to the boundary",
        largest.errors.samples,
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
    few = too_few(figure, limit, samples)
    more = "" if not few else f": {counted(round(figure * (samples or 0)), 'sample')}, too few to tell"
    return Check(name, figure, True, f"{found}{more}", enough=not few)


def exceeds(figure: float, limit: float, samples: int | None = None) -> bool:
    """Whether a figure is above its limit; a share of samples also by three of them (or by all, of one or two)."""
    return figure > limit and (samples is None or round(figure * samples) >= min(LEAST, samples))


def too_few(figure: float, limit: float, samples: int | None = None) -> bool:
    """Whether a figure is above its limit, but not by samples enough to fail; rounding does not count.

    >>> too_few(1 / 30, 0.02, 30), too_few(1 - 0.98, 0.02, 100), too_few(3 / 30, 0.02, 30)
    (True, False, False)
    """
    return figure > limit + 1e-9 and not exceeds(figure, limit, samples)


def objective_of(cell: Cell) -> str | None:
    """The name of what the attack makes larger, if it has one."""
    objective = cell.settings.get("objective")
    return objective if objective is None or isinstance(objective, str) else str(objective["name"])


def _many(cell: Cell) -> bool:
    """Many steps along the model's own gradient."""
    return cell.kind is Kind.MULTI and is_own(cell)


def _better(
    every: Iterable[Errors],
    name: str,
    this: Callable[[Cell], bool],
    that: Callable[[Cell], bool],
    words: str,
    follows: str,
    untested: str = "no attacks of both kinds in the same ball to compare",
) -> Check:
    """A check whether the best attack of one side beats the best of another, in any ball in which there are both."""
    found = []
    for errors in every:
        for ball in dict.fromkeys(t.ball for t in errors.tried):
            if ball is not None:
                sides = [errors.best(wanted, ball) for wanted in (this, that)]
                if sides[0] is not None and sides[1] is not None:
                    found.append(Found(errors, ball, sides[0], sides[1]))
    if not found:
        return Check(name, 0.0, True, untested, tested=False)
    largest = max(found, key=lambda one: (one.beats, one.figure))
    told = f"{words.format(f'{largest.figure:+.1%}')} ({largest})"
    if largest.beats:
        return Check(name, largest.figure, False, f"{told}: {follows}")
    more = ": over a quarter more, but too few to tell from chance; more samples may" if largest.may_beat else ""
    return Check(name, largest.figure, True, f"{told}{more}", enough=not largest.may_beat)
