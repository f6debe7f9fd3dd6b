"""Training loss and test error by epoch: a column of two panels for each optimiser, a colour for each strategy.

Eleven trainings in one panel could not be told apart, so what is compared, the strategies of one optimiser, shares a
panel, and a strategy keeps its colour over all of them. All panels of a row have one scale.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gll.files import complete_file
from gll.reproduce.experiment import name_of
from gll.reproduce.tables import Shown
from gll.train.config import ModelConfig

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curves = Mapping[str, Sequence[Sequence[float | None]]]  # points by what they are of, as in a record
Points = list[tuple[float, float]]
Columns = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""What is drawn: by optimiser and line its points "loss" and "error", the "paper"'s error at the end where
expected.json has it, "read" by another head or not."""
LINES = ("#D55E00", "#E69F00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "black")
"""Colours that those who see no red or no green can tell, too: of strategies, in their order."""
PAPER = "the paper's error at the end"


def columns_of(shown: Shown) -> Columns:
    """The lines of every optimiser, means over seeds; where the graph has also read another head, a line of its own.

    The first axis of an experiment is the strategy, the others say in which column it stands.
    """
    groups: dict[tuple[str, ...], dict[str, list[Curves]]] = {}
    heads: dict[str, str] = {}
    places: dict[tuple[str, ...], dict[str, str]] = {}
    for place, record in shown.found:
        strategy, *others = place.values()
        places[strategy, *others] = place
        groups.setdefault(tuple(others), {}).setdefault(strategy, []).append(from_switch(record))
        heads[strategy] = record["config"].get("model.head", ModelConfig().head)
    axes = [list(names) for names in shown.experiment.text["axes"].values()][1:]
    ordered = sorted(groups, key=lambda others: [names.index(one) for names, one in zip(axes, others, strict=False)])
    columns: dict[str, dict[str, dict[str, Any]]] = {}
    for where in ordered:
        lines = columns.setdefault(", ".join(where), {})
        for strategy, members in groups[where].items():
            name = name_of(places[strategy, *where])
            for head in _tested(members[0], heads[strategy]):
                read = head != heads[strategy]
                loss, error = f"test {head} loss" if read else "train loss", f"test {head} error"
                theirs = shown.experiment.paper(name, head if read else "error")
                line: dict[str, Any] = {
                    "loss": mean([one[loss] for one in members if loss in one]),
                    "error": mean([one[error] for one in members if error in one]),
                    "paper": theirs and theirs[0],
                    "read": read,
                }
                if len(line["error"]) > 1:  # a head that trained until the switch has one point there: no line
                    lines[f"{strategy}, read by {head.upper()}" if read else strategy] = line
    return columns


def _tested(curves: Curves, head: str) -> list[str]:
    """The heads by which a training was tested, its own first."""
    found = [key.split()[1] for key in curves if key.startswith("test ") and key.endswith(" error")]
    return sorted(found, key=lambda one: one != head)


def from_switch(record: Mapping[str, Any]) -> Curves:
    """The curves of a record, without what another head has trained before: there it is the same as that one alone.

    The loss of the epoch at which heads are switched is still the first one's; a test then is of both.
    """
    begin = record["config"].get("model.switch_at", 0)
    return {
        key: [p for p in points if p[0] is not None and (p[0] > begin or (p[0] == begin and key.startswith("test ")))]
        for key, points in record["more"]["curves"].items()
    }


def mean(members: Sequence[Sequence[Sequence[float | None]]]) -> Points:
    """At epochs that all members have the mean of their values there.

    >>> mean([[[1, 2.0], [2, 4.0]], [[1, 4.0], [2, None]]])
    [(1, 3.0)]
    """
    tables = [{epoch: value for epoch, value in one if value is not None} for one in members]
    epochs = [e for e in (tables[0] if tables else ()) if e is not None and all(e in table for table in tables)]
    return [(epoch, statistics.fmean(table[epoch] for table in tables)) for epoch in epochs]


def told(columns: Columns) -> str:
    """What a caption has to say of lines and marks, and of what is not there."""
    lines = [line for column in columns.values() for line in column.values()]
    parts = ["(the paper plots accuracy = 100 − error)"]
    if any(line["read"] for line in lines):
        parts.append(
            "; dashed: an MLP, read by a graph: above its loss on the test set, as that in training is not kept"
        )
    if any(line["paper"] is not None for line in lines):
        parts.append("; triangles: the paper's errors at the end, in every column, as it names no optimiser")
    if len({name for column in columns.values() for name in column}) > min(len(column) for column in columns.values()):
        parts.append("; a strategy without a line in a column was not run there")
    return "".join(parts)


def draw_curves(columns: Columns, picture: Path) -> None:
    """Write the picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = curves_figure(columns)
    FigureCanvasAgg(figure)
    with complete_file(picture) as part:
        figure.savefig(part, format="png", dpi=110)


def curves_figure(columns: Columns) -> Figure:
    """Losses above, errors below, and one legend over all."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(name for lines in columns.values() for name in lines))
    colours = {name: LINES[number % len(LINES)] for number, name in enumerate(names)}
    every = [(name, line["paper"]) for lines in columns.values() for name, line in lines.items()]
    papers = {name: value for name, value in every if value is not None}
    figure = Figure(figsize=(2.7 * len(columns) + 0.8, 6.4), layout="constrained")
    panels = figure.subplots(2, len(columns), squeeze=False, sharex=True, sharey="row")
    marks: dict[str, Any] = {}
    for number, (column, lines) in enumerate(columns.items()):
        above, below = panels[0][number], panels[1][number]
        for name, line in lines.items():
            look: dict[str, Any] = {"color": colours[name], "linestyle": "--" if line["read"] else "-"}
            for panel, points in ((above, line["loss"]), (below, line["error"])):
                panel.plot([x for x, _ in points], [y for _, y in points], label=name, **look)
            marks[name] = Line2D([], [], **look)
        _papers(figure, below, {colours[name]: papers[name] for name in lines if name in papers})
        above.set_title(column, fontsize=10)
        below.set_xlabel("epoch")
        for panel in (above, below):
            panel.grid(alpha=0.3)
    read = any(line["read"] for lines in columns.values() for line in lines.values())
    panels[0][0].set(ylabel="training loss" + (" (dashed: test)" if read else ""), ylim=(0, None))
    panels[1][0].set_ylabel("test error, %, logarithmic")
    _errors_of_some_percent(panels[1][0])
    if papers:
        marks[PAPER] = Line2D([], [], color="0.3", marker="<", linestyle="none", markersize=6)
    ordered = [name for name in (*names, PAPER) if name in marks]
    wide = min(len(ordered), max(2, len(columns)))
    figure.legend([marks[name] for name in ordered], ordered, loc="outside upper center", ncols=wide, frameon=False)
    return figure


def _papers(figure: Figure, panel: Axes, values: Mapping[str, float]) -> None:
    """Triangles at the right edge, by colour; one that would hide another stands a little further to the right."""
    from matplotlib.transforms import ScaledTranslation, blended_transform_factory

    edge = blended_transform_factory(panel.transAxes, panel.transData)
    before: list[float] = []
    for colour, value in values.items():
        away = 4 + 7 * sum(1 for other in before if 0.9 < value / other < 1.1)
        moved = edge + ScaledTranslation(away / 72, 0, figure.dpi_scale_trans)
        panel.plot([1], [value], "<", color=colour, markersize=6, transform=moved, clip_on=False, label=PAPER)
        before.append(value)


def _errors_of_some_percent(panel: Axes) -> None:
    """A logarithmic axis with numbers that can be read."""
    from matplotlib.ticker import FixedLocator, NullLocator

    panel.set_yscale("log")
    panel.yaxis.set_major_locator(FixedLocator([5, 6, 7, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100]))
    panel.yaxis.set_major_formatter("{x:g}")
    panel.yaxis.set_minor_locator(NullLocator())
