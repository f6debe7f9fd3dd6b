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
        places: of the paper, that it was asked for by.
        own: it was asked for by the name of the experiment, too.
    """

    names: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    own: bool = False

    def __or__(self, other: Part) -> Part:
        """What either has: all, where one of them has all."""
        names, figures = (_either(*both) for both in ((self.names, other.names), (self.figures, other.figures)))
        return Part(names, figures, tuple(dict.fromkeys(self.places + other.places)), self.own or other.own)

    def within(self, experiment: Experiment) -> Part:
        """The same, without what chooses nothing: all names of an axis, or all figures."""
        axes, figures = experiment.text["axes"].values(), experiment.text["table"]["figures"]
        every = any(set(axis) <= set(self.names) for axis in axes)
        own = () if set(figures) <= set(self.figures) else self.figures
        return replace(self, names=() if every else self.names, figures=own)

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

    @property
    def captions(self) -> tuple[str, ...]:
        """How the captions of its pictures begin; none: those of all pictures, as a table has no picture of its own."""
        return tuple(f"{place}:" for place in self.places) if not self.own and all(map(_is_figure, self.places)) else ()

    def has_distances(self, experiment: Experiment) -> bool:
        """Whether it has the figure of an experiment that shows how far images are moved."""
        return DISTANCES.get(experiment.name) in self.places

    def has_values(self, experiment: Experiment) -> bool:
        """Whether it has anything else: what the table of the experiment shows."""
        return self.own or any(place != DISTANCES.get(experiment.name) for place in self.places)

    def of_values(self, experiment: Experiment) -> Part:
        """That which the table shows: without the figure of distances, which has all names."""
        places = [place for place in self.places if place != DISTANCES.get(experiment.name)]
        return ALL if self.own else part_of(experiment, places).within(experiment)

    def shown(self, experiment: Experiment) -> Experiment:
        """The experiment with these figures in its table, to be shown."""
        table = {**experiment.text["table"], **({"figures": list(self.figures)} if self.figures else {})}
        return replace(experiment, text={**experiment.text, "table": table})


ALL = Part(own=True)
"""Of an experiment that was asked for by its own name."""


def _is_figure(place: str) -> bool:
    return place.startswith("figure ")


def _either(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one + other)) if one and other else ()


PARTS: Mapping[str, Mapping[str, Part]] = {
    "parameters": {"table 1": Part(("FashionMNIST CNN",))},
    "emnist": {"table 5": Part(figures=("error",)), "table 6": Part(figures=("ten hardest",))},
    "times": {"table 7": Part(("small-cnn",)), "table 8": Part(("resnet18",)), "table 9": Part(("resnet110",))},
    "adversarial": {"figure 6": Part(("mnist",)), "figure 7": Part(("fashionmnist",)), "figure 8": Part(("cifar10",))},
}
"""By experiment, and what is a part of it in the paper; what does not stand here is all of its experiment."""

DISTANCES: Mapping[str, str] = {"adversarial": "figure 9"}
"""By experiment, the figure of the paper that shows how far CW moves images (`moved.py`), and no error alone."""


def part_of(experiment: Experiment, places: Sequence[str]) -> Part:
    """What these places of the paper have of an experiment together; all of it where it was not asked for by them."""
    parts = PARTS.get(experiment.name, {})
    have = [replace(parts.get(place, Part()), places=(place,)) for place in places]
    return functools.reduce(operator.or_, have) if have else ALL
