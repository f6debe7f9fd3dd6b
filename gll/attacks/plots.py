"""Pictures of evaluations: error against ε and c, error against how far CW has moved the images, and the images.

Like the tables they are made from summaries, so that several runs can be drawn into one picture. The attacked images
come from the store.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gll.attacks.balls import Ball
from gll.attacks.evaluate import describe
from gll.attacks.graphs import graph_of
from gll.attacks.objectives import CrossEntropy
from gll.attacks.sets import PROTOCOLS
from gll.attacks.tables import carlini_wagner, errors_at, figures_at, graphs_of, in_earnest, norm_of, norms, radii
from gll.files import complete_file

Summaries = Mapping[str, Mapping[str, Any]]
STYLES = ("-o", "--s", ":^", "-.v")
LOSSES = {"CrossEntropy": "cross-entropy", "Margin": "margin"}
TRAINED, TABLE = "ε of the training", "ε of the paper's table"
BEST = 3  # attacks that have a colour and a name in the curves of one run; many more are hard to tell apart
OTHERS = "other attacks"
BY_EPS, BY_C = {"LInf": "ε, of the range", "L2": "ε, L2"}, "c"


@final
@dataclass(frozen=True)
class Line:
    """A line of a panel.

    Args:
        name: for the legend.
        points: what it goes through; errors are shares.
        place: by which it gets its colour and its style.
        thick: for the one to look at.
        faint: for one of many, thin and grey.
    """

    name: str
    points: Sequence[tuple[float, float]]
    place: int = 0
    thick: bool = False
    faint: bool = False


@final
@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Args:
        title, label: above it, and under its horizontal axis.
        lines: what is drawn.
        natural: the error without an attack, a line across; None: none.
        logarithmic: whether the horizontal axis is.
        marks: places on the horizontal axis that have a name.
    """

    title: str
    label: str
    lines: Sequence[Line]
    natural: float | None = None
    logarithmic: bool = False
    marks: Mapping[str, float] = field(default_factory=dict)


def draw_curves(summaries: Summaries, path: Path) -> bool:
    """Error against ε and against c (CW): all attacks on one run, or the columns of the paper's table of several runs.

    Of the attacks on one run the best three have a name and a colour, and PGD on the model's own loss: how far it is
    below the others says how much of the error its gradient hides.

    Args:
        summaries: by what to call them.
        path: the picture to write.

    Returns:
        Whether there was anything to draw.
    """
    if len(summaries) == 1:
        return _draw(_panels_of_one(*summaries.values()), path)
    found: dict[str, list[Line]] = {}
    for place, (name, summary) in enumerate(summaries.items()):
        at = [(eps, errors_at(summary, eps)) for eps in radii(summary)]
        for column in ("FGSM", "IFGSM", "worst case"):
            points = [(eps, error) for eps, errors in at if (error := errors[column]) is not None]
            if points and (natural := errors_at(summary, points[0][0])["natural"]) is not None:
                found.setdefault(column, []).append(Line(name, [(0.0, natural), *points], place))
        if cells := carlini_wagner(summary):
            found.setdefault("CW", []).append(Line(name, [(c["settings"]["c"], c["error"]) for c in cells], place))
    earnest = any(in_earnest(summary, eps) for summary in summaries.values() for eps in radii(summary))
    if not earnest and found.keys() & {"FGSM", "IFGSM"}:  # of these alone it would only repeat their panels
        found.pop("worst case", None)
    by_eps = ", or ".join(dict.fromkeys(BY_EPS[norm_of(summary)] for summary in summaries.values()))
    panels = [
        Panel(column, BY_C if column == "CW" else by_eps, lines, logarithmic=column == "CW")
        for column, lines in found.items()
    ]
    return _draw(panels, path)


def _panels_of_one(summary: Mapping[str, Any]) -> list[Panel]:
    """Every attack on one run, the worst case over them, and the error without one."""
    places: dict[str, int] = {}  # an attack looks the same in all panels
    panels = [panel for norm in norms(summary) for panel in _panels_in(summary, norm, places)]
    if cells := carlini_wagner(summary):
        points = [(cell["settings"]["c"], cell["error"]) for cell in cells]
        line = Line("cw-paper, not bounded by ε", points, len(places))
        panels.append(Panel("CW: error against c", BY_C, [line], cells[0]["natural"], logarithmic=True))
    return panels


def _panels_in(summary: Mapping[str, Any], norm: str, places: dict[str, int]) -> list[Panel]:
    """The error of every attack against its ε, in one norm; names that have no place yet get the next one."""
    several = len(graphs_of(summary)) > 1
    lines: dict[str, list[tuple[float, float]]] = {}
    own: dict[str, None] = {}
    for group in summary["groups"]:
        where = f" ({graph_of(group)})" if several else ""
        for cell in group["attacks"]:
            settings = dict(cell["settings"])
            ball, eps = Ball.of(settings), settings.pop("eps", None)
            if ball is not None and ball.norm == norm:
                if "alpha" in settings:  # its steps follow from ε
                    settings.pop("steps", None)
                name = in_words(describe(cell["attack"], settings)) + where
                lines.setdefault(name, [(0.0, cell["natural"])]).append((eps, cell["error"]))
                if _on_own_loss(cell):
                    own[name] = None
    at = [(eps, figures_at(summary, eps, norm)) for eps in radii(summary, norm)]
    worst = [(eps, error) for eps, found in at if (error := found["worst case"].error) is not None]
    natural = at[0][1]["natural"].error if at else None
    if not lines:
        return []
    best = [*best_of(lines), *own]
    drawn = [Line(OTHERS, sorted(points), faint=True) for name, points in lines.items() if name not in best]
    drawn += [Line(name, sorted(lines[name]), places.setdefault(name, len(places))) for name in lines if name in best]
    graph = next((found["worst case"].graph for _, found in at), "")
    over = f"worst case{f' ({graph})' if several else ''}"
    drawn += [Line(over, [(0.0, natural or 0.0), *worst], 0, thick=True)] if worst else []
    title = "\n".join(["error against ε", *([graph] if graph and not several else [])])
    return [Panel(title, BY_EPS[norm], drawn, natural, marks=known_radii(summary) if norm == "LInf" else {})]


def best_of(lines: Mapping[str, Sequence[tuple[float, float]]]) -> list[str]:
    """The attacks with the largest errors, at the ε where the most were made; of several such ε at the largest.

    Where they are as good there, as where all errors are 100 %, those that are better at other ε come first.

    >>> best_of({"a": [(0.1, 0.3)], "b": [(0.1, 0.4)], "c": [(0.1, 0.1)], "d": [(0.1, 0.2)], "far": [(0.9, 1.0)]})
    ['b', 'a', 'd']
    """
    made = Counter(eps for points in lines.values() for eps, _ in points if eps > 0)
    where = max(made, key=lambda eps: (made[eps], eps), default=0.0)

    def rank(name: str) -> tuple[float, float]:
        there = max((error for eps, error in lines[name] if eps == where), default=-1.0)
        return there, sum(error for _, error in lines[name])

    return sorted(lines, key=rank, reverse=True)[:BEST]


def _on_own_loss(cell: Mapping[str, Any]) -> bool:
    """Whether it is PGD on cross-entropy by the model's own gradient; a graph with a surrogate lends another's."""
    objective, threat = cell["settings"].get("objective"), cell.get("threat")
    loss = objective["name"] if isinstance(objective, Mapping) else objective
    own = threat is None or threat.get("gradient", "own") == "own"
    return bool(cell["attack"] == "pgd" and loss == CrossEntropy.__name__ and own)


def in_words(name: str) -> str:
    """The name of an attack with its loss in words.

    >>> in_words("pgd, CrossEntropy, 40 steps")
    'pgd, cross-entropy, 40 steps'
    """
    for loss, words in LOSSES.items():
        name = name.replace(f", {loss}", f", {words}")
    return name


def known_radii(summary: Mapping[str, Any]) -> dict[str, float]:
    """Every ε in L∞ that has a name: that of the training, and that of the paper's table."""
    run, table = summary["run"], summary["table_eps_pixels"]
    known = {TRAINED: run["eps"]} if run.get("eps") else {}
    in_paper = norm_of(summary) == "LInf" and str(run.get("data")).lower() in PROTOCOLS
    return known | ({TABLE: table} if in_paper else {})


def draw_distances(summaries: Summaries, path: Path) -> bool:
    """Error against the mean squared distance of CW, a point for each c. Whether there was anything to draw."""
    lines = []
    for place, (name, summary) in enumerate(summaries.items()):
        if cells := carlini_wagner(summary):
            lines.append(Line(name, [(cell["mean_squared_l2"], cell["error"]) for cell in cells], place))
    one = f"{lines[0].name}: " if len(lines) == 1 else ""
    label = "mean squared distance: L2², pixels in 0 .. 1"
    return _draw([Panel(f"{one}CW, a point for each c", label, lines)] if lines else [], path)


def draw_poison(summaries: Summaries, path: Path) -> bool:
    """Error against the number of flipped labels, greedily and at random, in one pair of axes.

    Of several graphs the last one is drawn. Whether there was anything to draw.
    """
    lines: list[Line] = []
    for name, summary in summaries.items():
        if summary.get("poison"):
            one, before = summary["poison"][-1], f"{name}, " if len(summaries) > 1 else ""
            errors = {"greedily": one["greedy"], "at random, mean": one["random"]["mean"]}
            for how, values in (errors | {"at random, largest": one["random"]["largest"]}).items():
                lines.append(Line(before + how, list(zip(one["counts"], values, strict=True)), len(lines)))
    panels = [Panel("labels of the base are wrong", "flipped labels of the base", lines)] if lines else []
    return _draw(panels, path)


@final
@dataclass(frozen=True, eq=False)
class Row:
    """One line of the grid of images.

    Args:
        attack: what to call the attack.
        clean, attacked: images (c, h, w) in [0, 1].
        before, after: the predicted classes, by name; before it is also the true one.
        where: its ε or its c.
    """

    attack: str
    clean: NDArray[np.float32]
    attacked: NDArray[np.float32]
    before: str
    after: str
    where: str = ""


def draw_images(rows: Sequence[Row], path: Path) -> None:
    """Original, perturbation and attacked image, with the true class and the one that is predicted after.

    The perturbation is shown around grey, stretched to its largest pixel, which the title gives. Two rows stand beside
    each other.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not rows:
        raise ValueError("no images to draw: no attack has fooled the model")
    beside = min(2, len(rows))
    headings = ["\n".join(textwrap.wrap(", ".join(filter(None, (row.attack, row.where))), 60)) for row in rows]
    lines = -(-len(rows) // beside)
    figure = Figure(figsize=(4.8 * beside, 2.1 * lines + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    about = "the original is predicted rightly; change: grey is 0; black and white are as far as its title says"
    figure.supxlabel("\n".join(textwrap.wrap(about, 70 * beside)), fontsize=8)
    blocks = figure.subfigures(lines, beside, squeeze=False, wspace=0.04, hspace=0.02)
    for block, row, heading in zip(blocks.flat, rows, headings, strict=False):
        change = row.attacked - row.clean
        largest = float(np.abs(change).max()) or 1.0
        block.suptitle(heading, fontsize=9, fontweight="bold")
        titles = (f"true class: {row.before}", f"change, ±{largest:.3f}", f"predicted: {row.after}")
        images = (row.clean, 0.5 + change / (2 * largest), row.attacked)
        for axis, image, title in zip(block.subplots(1, 3), images, titles, strict=True):
            pixels = np.clip(image, 0, 1).transpose(1, 2, 0)
            grey = pixels.shape[2] != 3
            axis.imshow(pixels[:, :, 0] if grey else pixels, cmap="gray" if grey else None, vmin=0, vmax=1)
            axis.set_title(title, fontsize=8)
            axis.set_axis_off()
    _save(figure, path)


def _draw(panels: Sequence[Panel], path: Path) -> bool:
    """The panels beside each other, and one legend under them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not panels:
        return False
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    columns = 1 if max(map(len, names)) > 40 else 2
    figure = Figure(figsize=(max(3.6 * len(panels), 5.0), 3.4 + 0.2 * -(-len(names) // columns)), layout="constrained")
    FigureCanvasAgg(figure)
    drawn: dict[str, Any] = {}
    # All panels have one scale, up to the largest error of them.
    errors = [100 * error for panel in panels for line in panel.lines for _, error in line.points]
    errors += [100 * panel.natural for panel in panels if panel.natural is not None]
    top = min(100.0, 1.1 * max(errors) + 1.0)
    for axis, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for line in panel.lines:
            x, y = zip(*line.points, strict=True)
            look: dict[str, Any] = {"color": f"C{line.place % 10}"}
            if line.thick:  # under the others, one of which it often is
                look = {"color": "black", "linewidth": 4, "alpha": 0.4, "zorder": 1}
            if line.faint:
                look = {"color": "0.7", "linewidth": 0.6, "zorder": 0.5}
            style, size = ("-o", 2) if line.faint else (STYLES[line.place % 4], 4)
            (drawn[line.name],) = axis.plot(x, [100 * v for v in y], style, markersize=size, **look)
        if panel.natural is not None:
            drawn["natural"] = axis.axhline(100 * panel.natural, color="grey", linestyle="--", linewidth=1)
        for name, place in panel.marks.items():
            look = {"color": "black", "linestyle": ":" if name == TRAINED else "-.", "linewidth": 0.8, "zorder": 0}
            drawn[f"{name}, {place:.3g}"] = axis.axvline(place, **look)
        if panel.logarithmic:
            axis.set_xscale("log")
        elif panel.label.startswith("ε"):
            axis.set_xlim(left=0)
        axis.set(xlabel=panel.label, ylabel="error, %", ylim=(-0.03 * top, 1.03 * top))
        axis.set_title(panel.title, fontsize=10)
        axis.grid(alpha=0.3)
    if len(drawn) > 1:
        figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", fontsize=7, ncols=columns)
    _save(figure, path)
    return True


def _save(figure: Any, path: Path) -> None:
    with complete_file(path) as part:
        figure.savefig(part, format=path.suffix.lstrip(".") or "png", dpi=110)
