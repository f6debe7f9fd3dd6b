"""Figure 9 of the paper on a terminal: how far CW moves images at the same c (`moved.py`), in place of its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.moved import AT, DATA, EXPERIMENTS, GLL, HEADS, Row, how_many, rows
from gll.reproduce.robust import ROBUST
from gll.reproduce.tables import NONE, states_of

TITLE = "how far CW moves images at the same c: mean squared distances, those left alone as 0"
IN_THE_PAPER = "the paper has a plot of these, and no numbers"
SAID = (
    f"trained: how many trainings have met CW at c = {AT[0]:g}",
    "GLL less: at how many of the values of c images of a GLL are moved less than those of this head",
    IN_THE_PAPER,
    "rows are of all seeds and scales of these experiments, whichever were asked for:",
)
NOT_RUN = "not run"


def show_distances(
    experiments: Mapping[str, Experiment], cells: Iterable[Cell], console: Console, command: Callable[[str], str]
) -> list[Cell]:
    """A line for each head of those that were trained alike, of the data, heads and trainings that were asked for.

    A GLL's stands there always: the others are compared with it.

    Args:
        experiments: all that there are; several have such distances.
        cells: that were asked for.
        console: where to.
        command: shows an experiment by its name.

    Returns:
        The cells whose data and training have such a line.
    """
    asked = [(cell, dict(cell.point.place)) for cell in cells]
    wanted = {place["head"] for _, place in asked}
    states = {name: states_of(experiments[name]) for name in EXPERIMENTS if name in experiments}
    every, of = rows(states), {_of(place) for _, place in asked}
    found = [row for row in every if (row.data, row.robust) in of]
    if not found:
        console.print(Text(f"{TITLE}: not run yet; {IN_THE_PAPER}"))
        return []
    console.print(Text(TITLE))
    console.print(_table(found, [head for head in HEADS if head == GLL or head in wanted]))
    for line in SAID:
        console.print(Padding(Text(line), (0, 0, 0, 2)))
    for name in dict.fromkeys(name for row in found for name in row.whose):
        console.print(Text(f"    {command(name)}"), soft_wrap=True)
    shown = {(row.data, row.robust) for row in found}
    return [cell for cell, place in asked if _of(place) in shown]


def _of(place: Mapping[str, str]) -> tuple[str, bool]:
    """Data and training, as a row has them."""
    return place["data"], place["training"] == ROBUST


def _table(found: Sequence[Row], heads: Sequence[str]) -> Table:
    """At the c of the paper's table, and at the largest of its other values."""
    shown = Table(box=SIMPLE)
    shown.add_column("data, training, images")
    shown.add_column("head", no_wrap=True)
    for name in ("trained", *(f"c = {c:,.0f}" for c in AT), "GLL less"):
        shown.add_column(name, justify="right", no_wrap=True)
    for row in found:
        start = f"{DATA[row.data]}, {row.training}, {row.images:,} images"
        for head in heads:
            trained = str(row.trainings(head)) if head in row.moved else NOT_RUN
            shown.add_row(start, head, trained, *(row.far(head, c) for c in AT), _less(row, head))
            start = ""
    return shown


def _less(row: Row, other: str) -> str:
    """How often a GLL's are the smaller; nothing beside itself, and beside what was not run."""
    return how_many(*row.less(other)) if other != GLL and other in row.moved else NONE
