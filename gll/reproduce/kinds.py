"""What a cell can be: training, training and attacks of several sorts, two moons, times of steps, parameter counts.

Each kind maps cells to code that is in the library anyway; there is no second trainer here.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

from gll.names import require_name, require_options
from gll.reproduce.experiment import Cell, Experiment

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gll.train.progress import Reporter


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """What a cell has found.

    Args:
        values: by figure, JSON-able numbers; None where there is none.
        more: whatever else should be kept, JSON-able: curves, all rows of a measurement.
        arrays: what is too large for JSON.
        pictures: files to keep, by what to add to the name of the cell.
    """

    values: Mapping[str, float | None]
    more: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    pictures: Mapping[str, Path] = field(default_factory=dict)


@final
@dataclass(frozen=True, eq=False)
class Place:
    """Where a cell is at work.

    Args:
        folder: of its own: everything it needs to go on is in there.
        needed: the folder of the cell it needs, if it needs one.
        device: "auto", "cpu", "cuda", ...
        reporter: who tells how far it is.
    """

    folder: Path
    needed: Path | None
    device: str
    reporter: Reporter


class AbstractKind(ABC):
    """How the points of an experiment become cells, and how a cell is run."""

    @abstractmethod
    def cells(self, experiment: Experiment, scale: str) -> list[Cell]:
        """All cells, those that are needed before the others. Needs no PyTorch."""

    @abstractmethod
    def look(self, experiment: Experiment, cells: Sequence[Cell]) -> dict[str, str]:
        """Whether these cells can be run, before the first of them is. Returns why some cannot, by their key.

        Raises:
            ValueError: config.toml says what is unknown here.
        """

    @abstractmethod
    def run(self, experiment: Experiment, cell: Cell, place: Place) -> Outcome:
        """Do it, or go on with it.

        Raises:
            KeyboardInterrupt: it was asked to stop; everything is kept that is needed to go on.
        """

    def wants_all(self, cell: Cell) -> bool:
        """Whether it must have the machine to itself, and is not run by --jobs."""
        return False

    def unkeyed(self, experiment: Experiment, cell: Cell) -> Mapping[str, Any]:
        """Settings that are no part of the key, and yet decide what a record says. Needs no PyTorch.

        Where they differ, the record of one experiment does not stand for the cell of another (`gll.reproduce.taken`).
        """
        return {}

    def settings(self, experiment: Experiment, cell: Cell) -> Mapping[str, Any]:
        """All that decides what comes out, with the defaults that the key leaves out; JSON-able, for the record."""
        return cell.settings


class AbstractSimple(AbstractKind):
    """A kind whose settings are the options of a point."""

    needed: ClassVar[tuple[str, ...]]
    """Options that each of its points must have."""

    def optional(self, experiment: Experiment) -> Collection[str]:
        """Options that it may have beside."""
        return ()

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise ValueError where the value of an option cannot be."""

    def parts(self, options: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        """The cells of a point: the settings of each by its name (`Cell.part`). Usually one, which needs no name."""
        return {"": options}

    @final
    def look(self, experiment: Experiment, cells: Sequence[Cell]) -> dict[str, str]:
        known = [*self.needed, *self.optional(experiment)]
        for cell in cells:
            options = cell.point.options()
            with experiment.named(cell.point):
                require_options("kind", experiment.kind, options, known)
                for name in self.needed:
                    if name not in options:
                        raise ValueError(f"it sets no options.{name}")
                self.check(options)
        return {}

    @final
    def cells(self, experiment: Experiment, scale: str) -> list[Cell]:
        return [
            Cell(experiment.name, scale, point, {"kind": experiment.kind, **settings}, part=part)
            for point in experiment.points(scale)
            for part, settings in self.parts(point.options()).items()
        ]


KINDS = {
    "train": ("train_cells", "TrainKind"),
    "attack": ("attack_cells", "AttackKind"),
    "head-at-test": ("appendix_cells", "HeadAtTestKind"),
    "more-c": ("appendix_cells", "MoreCKind"),
    "moons": ("moons_cells", "MoonsKind"),
    "times": ("time_cells", "TimesKind"),
    "parameters": ("parameter_cells", "ParametersKind"),
}
"""Every kind by its name: where its class is. Imported when it is needed, since most of them need PyTorch."""


def kind_of(experiment: Experiment) -> AbstractKind:
    """The kind of an experiment."""
    require_name(f"kind of {experiment.name}", experiment.kind, KINDS)
    module, name = KINDS[experiment.kind]
    kind: AbstractKind = getattr(importlib.import_module(f"gll.reproduce.{module}"), name)()
    return kind
