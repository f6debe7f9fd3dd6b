"""The picture of `gll compare`: training loss and test error against the epoch, and what a warm-up did to the graph.

One legend below the panels stands for all of them: names of runs can be long, and inside a panel they would hide what
they name. The picture grows with the legend, so that the panels stay as they are.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gll.files import complete_file
from gll.train.compare import Comparison, Line, shown
from gll.train.records import Curve, Record

HEAD = "model.head"
HEIGHT = 4.2  # of the panels with their labels, in inches
# Of a legend in letters of 9 points, in inches: a letter, the sample beside a name, a further line of it, a name.
LETTER, SAMPLE, LINE, ROW = 0.075, 0.6, 0.17, 0.2


def draw(comparison: Comparison, path: Path, name: Callable[[Line], str] | None = None) -> None:
    """Training loss and test error against the epoch: thin lines are runs, thick ones the mean over seeds.

    Where a run was warmed up, also the graph's error on hidden labels in the warm-up, with the γ that was kept.

    Training losses of different heads are different functions: they show whether training still moves, not which
    head is better.

    Args:
        comparison: what to draw.
        path: the picture to write; its suffix says of which kind.
        name: what to call the runs of a line in the legend; by default the fewest words that tell them apart.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    name = name or names(comparison)
    warm = any(run.curve("warmup", "graph_error").values for line in comparison.lines for run in line.runs)
    figure = Figure(figsize=(15 if warm else 10, HEIGHT), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in canvas.get_supported_filetypes():
        raise ValueError(f"{path}: pictures can be {', '.join(sorted(canvas.get_supported_filetypes()))}, not {kind!r}")
    *before, loss, error = figure.subplots(1, 3 if warm else 2)
    colours: dict[tuple[Record, ...], str] = {}
    tests: dict[tuple[Record, ...], int] = {}
    for line in comparison.lines:
        untested = name(line) if line.test is None else ""  # else the curve of the first test has the same look
        if line.runs not in colours:  # runs with two tests have one training curve
            colours[line.runs] = f"C{len(colours) % 10}"
            _draw_group(loss, [run.curve("train", "loss") for run in line.runs], colours[line.runs], "-", untested)
            looks = [_percent(run.curve("warmup", "graph_error")) for run in line.runs]
            for axis in before:
                _draw_group(axis, looks, colours[line.runs], "-")
        tests[line.runs] = tests.get(line.runs, -1) + 1
        style = ("-", "--", ":", "-.")[tests[line.runs] % 4]  # the first test is that of the head that was trained
        if line.test is not None:
            percent = [_percent(run.curve("test", "error", line.test)) for run in line.runs]
            _draw_group(error, percent, colours[line.runs], style, f"{name(line)} (test: {', '.join(line.test)})")
    labels = (*("graph's error in the warm-up, %" for _ in before), "training loss", "test error, %")
    for axis, label in zip((*before, loss, error), labels, strict=True):
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    _legend(figure, [pair for axis in (error, loss) for pair in zip(*axis.get_legend_handles_labels(), strict=True)])
    path.parent.mkdir(parents=True, exist_ok=True)
    with complete_file(path) as part:
        figure.savefig(part, format=kind, dpi=120)


def names(comparison: Comparison) -> Callable[[Line], str]:
    """What to call the runs of a line: by the head and one more setting if that tells all lines apart, else by all."""
    groups = {line.runs[0]: line for line in comparison.lines}.values()  # lines of one group are tests of the same runs
    head = tuple(key for key in comparison.keys if key == HEAD)
    for keys in (head, *((*head, key) for key in comparison.keys if key != HEAD)):
        if keys and len({(*(g.settings[key] for key in keys), _which(g)) for g in groups}) == len(groups):
            return lambda line: _words({key: line.settings[key] for key in keys}) + _which(line)
    return lambda line: line.name


def _words(settings: Mapping[str, str]) -> str:
    """A head by its name alone, other settings with theirs; without those that the runs do not have."""
    known = {key: value for key, value in settings.items() if value != shown(None)}
    return ", ".join(value if key == HEAD else f"{key.rpartition('.')[2]} {value}" for key, value in known.items())


def _which(line: Line) -> str:
    """Of a run that is not finished: which it is."""
    return "" if line.finished else f" ({line.runs[0].path.name}, unfinished)"


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over runs, at the epochs that all of them have.

    >>> mean_curve([Curve((1, 2), (0.5, 0.3)), Curve((1, 2, 3), (0.7, 0.5, 0.1))])
    Curve(epochs=(1, 2), values=(0.6, 0.4))
    """
    tables = [dict(zip(c.epochs, c.values, strict=True)) for c in curves]
    common = sorted(set.intersection(*(set(t) for t in tables))) if tables else []
    return Curve(tuple(common), tuple(sum(t[e] for t in tables) / len(tables) for e in common))


def _legend(figure: Any, entries: list[tuple[Any, str]]) -> None:
    """Below the panels, in as many columns as there is room for; a name longer than the picture takes several lines."""
    if not entries:
        return
    width, height = figure.get_size_inches()
    lines, labels = zip(*entries, strict=True)
    wrapped = [textwrap.fill(label, int((width - 2 * SAMPLE) / LETTER)) for label in labels]
    longest = max(len(part) for label in wrapped for part in label.split("\n"))
    columns = max(1, int(width / (SAMPLE + LETTER * longest)))
    rows = -(-len(wrapped) // columns)
    tall = [label.count("\n") * LINE + ROW for label in wrapped]
    column = max(sum(tall[i : i + rows]) for i in range(0, len(tall), rows))
    figure.set_size_inches(width, height + column + ROW)
    figure.legend(lines, wrapped, loc="outside lower center", ncols=columns, fontsize=9)


def _percent(curve: Curve) -> Curve:
    return Curve(curve.epochs, tuple(100 * value for value in curve.values))


def _draw_group(axis: Any, curves: list[Curve], colour: str, style: str, name: str = "") -> None:
    mean = mean_curve(curves)
    marker = "." if len(mean.epochs) < 2 else None
    axis.plot(mean.epochs, mean.values, style, color=colour, linewidth=2, label=name or None, marker=marker)
    if len(curves) > 1:
        for curve in curves:
            axis.plot(curve.epochs, curve.values, style, color=colour, linewidth=0.6, alpha=0.5)
