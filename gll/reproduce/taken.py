"""Finished cells that experiments share: the record of one stands for the other, and nothing is run twice.

Cells of equal settings are the same cell, whatever they are called: where another experiment has the record of a cell,
it is taken over. Smoke neither gives nor takes any, and warm-ups are shared as they are, by their folder.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

from gll.files import complete_file
from gll.reproduce.experiment import Cell, Experiment, ExperimentError, folder_name, load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import Record, add_records, read_records


@final
@dataclass(frozen=True, eq=False)
class Found:
    """A record that stands for a cell of another experiment.

    Args:
        cell: for which it stands.
        record: as it is where it was found.
        arrays: the folder of its arrays and pictures.
    """

    cell: Cell
    record: Record
    arrays: Path

    @property
    def origin(self) -> str:
        """The experiment that has run it."""
        return str(self.record.get("taken_from", self.record["experiment"]))

    def taken(self) -> Record:
        """The record with the names of the cell, and whose it was."""
        cell = self.cell
        own = {"experiment": cell.experiment, "scale": cell.scale, "cell": cell.title, "place": dict(cell.point.place)}
        return {**self.record, **own, "taken_from": self.origin}

    def copy_arrays(self, to: Path) -> None:
        """Arrays and pictures, by the name of the cell."""
        stem = folder_name(self.record["cell"], self.cell.key)
        for file in sorted(self.arrays.glob(f"{stem}[.-]*")):
            to.mkdir(exist_ok=True)
            with complete_file(to / f"{self.cell.folder}{file.name.removeprefix(stem)}") as part:
                part.write_bytes(file.read_bytes())


def at_hand(experiment: Experiment, cells: Iterable[Cell], done: Collection[str]) -> dict[str, Found]:
    """Records of other experiments in the same folder that stand for these cells, by key.

    Args:
        experiment: whose cells.
        cells: of any scale.
        done: keys of those that have a record, and need none.
    """
    left: dict[str, Cell] = {}
    for cell in cells:
        if not cell.role and cell.scale != "smoke" and cell.key not in done:
            left.setdefault(cell.key, cell)
    found: dict[str, Found] = {}
    for other in _others(experiment) if left else ():
        try:
            stored = read_records(other.folder / "results.json")
            same = left.keys() & stored.keys() - found.keys()
            theirs = {cell.key: cell for cell in _cells(other) if cell.key in same} if same else {}
        except ExperimentError:  # whoever asks for that experiment is told
            continue
        for key, cell in theirs.items():
            if _unkeyed(other, cell) == _unkeyed(experiment, left[key]):
                found[key] = Found(left[key], stored[key], other.folder / "arrays")
    return found


def take_over(experiment: Experiment, cells: Iterable[Cell], done: Collection[str]) -> list[Record]:
    """Put what is at hand for these cells into results.json. Returns the records that were put there.

    Args:
        experiment, cells, done: as of `at_hand`.
    """
    found = at_hand(experiment, cells, done)
    for one in found.values():
        one.copy_arrays(experiment.folder / "arrays")
    records = [one.taken() for one in found.values()]
    if records:
        add_records(experiment.folder / "results.json", records)
    return records


def _others(experiment: Experiment) -> Iterator[Experiment]:
    """Those of the same kind that have results. A kind is no part of every key, and decides what a record holds."""
    for path in sorted(experiment.folder.parent.glob("*/results.json")):
        if path.parent.name != experiment.name:
            try:
                other = load_experiment(path.parent)
            except ExperimentError:
                continue
            if other.kind == experiment.kind:
                yield other


def _cells(experiment: Experiment) -> Iterator[Cell]:
    """Every cell that has a record, or may have one."""
    for scale in experiment.scales:
        if scale != "smoke":
            yield from (cell for cell in kind_of(experiment).cells(experiment, scale) if not cell.role)


def _unkeyed(experiment: Experiment, cell: Cell) -> object:
    """What two cells of one key may yet differ in, and their records with them."""
    return cell.part, kind_of(experiment).unkeyed(experiment, cell)
