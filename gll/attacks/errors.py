"""Errors of several attacks on the same samples: all that the signs of a hidden gradient (`signs.py`) look at.

No sample is named, so that what was stored of an evaluation (`summary.json`) is enough to look for them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

from gll.attacks.balls import Ball
from gll.attacks.evaluate import Evaluation, describe
from gll.attacks.seen import gradient_in_words
from gll.attacks.store import Cell, Kind


@final
@dataclass(frozen=True, eq=False)
class Tried:
    """An attack and its error.

    Args:
        cell: the attack.
        error: the share of samples that are classified wrongly after it.
        of_checks: whether it is one of the short attacks of the checks.
    """

    cell: Cell
    error: float
    of_checks: bool = False

    @cached_property
    def ball(self) -> Ball | None:
        """In which it had to stay."""
        return Ball.of(self.cell.settings)

    def __str__(self) -> str:
        name = describe(self.cell.attack, self.cell.settings)
        return f"{self.error:.1%} by {name}{', of the checks' if self.of_checks else ''}"


@final
@dataclass(frozen=True, eq=False)
class Errors:
    """What several attacks on the same samples, judged in the same graph, have come to.

    Args:
        samples: how many.
        natural: the share of them that is classified wrongly without an attack.
        tried: the attacks.
    """

    samples: int
    natural: float
    tried: tuple[Tried, ...]

    @staticmethod
    def of(evaluation: Evaluation) -> Errors:
        """Of an evaluation."""
        tried = tuple(Tried(o.cell, o.error, o.of_checks) for o in evaluation.outcomes)
        return Errors(len(evaluation.labels), evaluation.natural, tried)

    @staticmethod
    def from_dict(group: Mapping[str, Any]) -> Errors:
        """Of one of the groups of a summary."""
        return Errors(group["samples"], group["natural"], tuple(Tried(_cell(a), a["error"]) for a in group["attacks"]))

    def best(self, wanted: Callable[[Cell], bool], ball: Ball) -> Tried | None:
        """Of these attacks the one with the largest error inside the ball; None where none was made for that ball."""
        found = [t for t in self.tried if wanted(t.cell) and t.ball is not None and ball.contains(t.ball)]
        return max(found, key=lambda t: t.error) if any(t.ball == ball for t in found) else None


def _cell(attack: Mapping[str, Any]) -> Cell:
    """The cell of a stored result.

    A result says whose gradient its attack followed, a cell whose the model lends; where the words are those of the
    attack, the model lent its own.
    """
    name, settings, threat = attack["attack"], attack["settings"], attack["threat"]
    if threat is not None and threat["gradient"] == gradient_in_words(name, settings):
        threat = {**threat, "gradient": "own"}
    return Cell(name, settings, Kind(attack["kind"]), threat, attack["chunk"])
