"""Tables and figures of the paper that are a part of an experiment: "figure 7" is `adversarial` on FashionMNIST."""

from __future__ import annotations

import functools
import operator
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from gll.reproduce.experiment import Experiment


@final
@dataclass(frozen=True)
class Part:
    """What a table or a figure of the paper has of an experiment.

    Args:
        names: on one of its axes; none: all of its cells.
        figures: of its table; none: all of them. They choose what is shown; a cell is run for all of them.
    """

    names: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()

    def __or__(self, other: Part) -> Part:
        """What either has: all, where one of them has all."""
        return Part(_either(self.names, other.names), _either(self.figures, other.figures))

    def within(self, experiment: Experiment) -> Part:
        """The same, without what chooses nothing: all names of an axis, or all figures."""
        axes, figures = experiment.text["axes"].values(), experiment.text["table"]["figures"]
        every = any(set(axis) <= set(self.names) for axis in axes)
        return Part(() if every else self.names, () if set(figures) <= set(self.figures) else self.figures)

    @property
    def only(self) -> str:
        """As a word of --only; empty: all."""
        return " | ".join(self.names)

    @property
    def said(self) -> str:
        """What is chosen, behind the name of an experiment; empty where that is all of it."""
        words = [f": --only {shlex.quote(self.only)}"] if self.names else []
        figures = " and ".join(map(repr, self.figures))
        return "".join([*words, f", of which --show has {figures} alone" if figures else ""])

    def shown(self, experiment: Experiment) -> Experiment:
        """The experiment with these figures in its table, to be shown."""
        table = {**experiment.text["table"], **({"figures": list(self.figures)} if self.figures else {})}
        return replace(experiment, text={**experiment.text, "table": table})


def _either(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one + other)) if one and other else ()


PARTS: Mapping[str, Mapping[str, Part]] = {
    "parameters": {"table 1": Part(("FashionMNIST CNN",))},
    "emnist": {"table 5": Part(figures=("error",)), "table 6": Part(figures=("ten hardest",))},
    "times": {"table 7": Part(("small-cnn",)), "table 8": Part(("resnet18",)), "table 9": Part(("resnet110",))},
    "adversarial": {"figure 6": Part(("mnist",)), "figure 7": Part(("fashionmnist",)), "figure 8": Part(("cifar10",))},
}
"""By experiment, and what is a part of it in the paper; what does not stand here is all of its experiment."""


def part_of(experiment: Experiment, places: Sequence[str]) -> Part:
    """What these places of the paper have of an experiment together; all of it where it was not asked for by them."""
    have = [PARTS.get(experiment.name, {}).get(place, Part()) for place in places]
    return functools.reduce(operator.or_, have) if have else Part()
