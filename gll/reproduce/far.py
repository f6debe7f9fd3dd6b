"""Figure 9 of the paper on a terminal: how far CW moves images at the same c (`moved.py`), in place of its errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.moved import AT, DATA, EXPERIMENTS, GLL, OTHERS, Row, rows
from gll.reproduce.tables import NONE, states_of

TITLE = "how far CW moves images at the same c: mean squared distances, those left alone as 0"
LESS = "GLL less: at how many of the values of c images of a GLL are moved less than those of this head"
ROBUST = "robust"


def show_distances(experiments: Mapping[str, Experiment], cells: Iterable[Cell], console: Console) -> None:
    """A line for each head of those that were trained alike, of the data and the trainings that were asked for.

    Args:
        experiments: all that there are; several have such distances.
        cells: that were asked for.
        console: where to.
    """
    places = [dict(cell.point.place) for cell in cells]
    asked = {(place["data"], place["training"] == ROBUST) for place in places}
    states = {name: states_of(experiments[name]) for name in EXPERIMENTS if name in experiments}
    found = [row for row in rows(states) if (row.data, row.robust) in asked]
    console.print(Text(TITLE if found else f"{TITLE}: not run yet"))
    if found:
        console.print(_table(found))
        console.print(Padding(Text(LESS), (0, 0, 0, 2)))


def _table(found: Sequence[Row]) -> Table:
    """At the c of the paper's table, and at the largest of its other values."""
    shown = Table(box=SIMPLE)
    shown.add_column("data, training")
    shown.add_column("images", justify="right", no_wrap=True)
    shown.add_column("head", no_wrap=True)
    for name in (*(f"c = {c:,.0f}" for c in AT), "GLL less"):
        shown.add_column(name, justify="right", no_wrap=True)
    for row in found:
        training = f"{ROBUST if row.robust else 'natural'}, {row.epochs} epochs"
        start = (f"{DATA[row.data]}, {training}", f"{row.images:,}")
        for head in (head for head in (GLL, *OTHERS) if head in row.moved):
            shown.add_row(*start, head, *_distances(row, head), _less(row, head))
            start = ("", "")
    return shown


def _distances(row: Row, head: str) -> list[str]:
    return [f"{row.mean(head, c):.3f}" if c in row.moved[head] else NONE for c in AT]


def _less(row: Row, other: str) -> str:
    """How often a GLL's are the smaller; nothing beside itself."""
    less, every = row.less(other) if other != GLL else ([], [])
    return f"{len(less)} of {len(every)}" if every else NONE
