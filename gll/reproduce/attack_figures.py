"""The paper's figures of attacks, of several models in one picture: error against ε, against c, against distance.

Unlike the curves of `gll attack`, which are of one run. The worst case is measured at one or two ε only: a bar for each
model, and no line that would claim what lies between. Axes fit what is drawn: errors of CW, and of FGSM, are small.
The paper gives its ε in normalised units: an axis above the panel has them, and its table's values are crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gll.attacks.graphs import as_in_the_paper, base_size, is_joint
from gll.attacks.tables import carlini_wagner, errors_at, in_earnest, judged, plain_name, radii
from gll.attacks.threat import Inference
from gll.files import complete_file

Summaries = Mapping[str, Mapping[str, Any]]
Points = list[tuple[float, float]]
Panels = Mapping[str, Callable[[Mapping[str, Any]], Points]]
WORST, CW, DISTANCE = "worst case", "CW", "CW: error against distance"
HEADS = {"GLL": ("C0", "o"), "linear": ("C1", "s"), "MLP": ("C2", "^"), "WNLL": ("C4", "v")}
"""A colour and a mark for each head, the same in all pictures."""
TRAININGS = {"robust": "-", "natural": "--"}
MARKS, STYLES = "DP*X<>", ("-", "--", ":")  # of others
LABELS = {CW: "c", DISTANCE: "mean squared distance: L2², pixels in 0 .. 1; a point for each c"}
RADIUS, THEIR_RADIUS = "ε, pixels in 0 .. 1", "ε in the paper's units"
MADE_BY = {"FGSM": "fgsm", "IFGSM": "ifgsm", CW: "cw-paper", DISTANCE: "cw-paper"}
"""The attack that a panel is of; the worst case is of many."""
CROSS = "the paper's value there"
Paper = Mapping[str, Mapping[str, float]]
"""Of the paper's table: errors in percent, by model and column."""


def draw_errors(
    summaries: Summaries, path: Path, title: str = "", worst: bool = True, paper: Paper | None = None
) -> bool:
    """FGSM, IFGSM and the worst case against ε, CW against c. Returns whether there was anything to draw.

    Args:
        summaries: of `gll attack`, by the name of a model; what follows a comma is how it was trained.
        path: the picture.
        title: above all panels.
        worst: whether the evaluations were made for a worst case, so that it means something.
        paper: values of its table, which are drawn where the model is.
    """
    return _draw(_panels(worst), summaries, path, title, paper or {})


def draw_distances(summaries: Summaries, path: Path, title: str = "") -> bool:
    """CW: the error against how far the images were moved. Returns whether there was anything to draw."""
    return _draw({DISTANCE: by_distance}, summaries, path, title)


def has_errors(summaries: Summaries, worst: bool = True) -> bool:
    """Whether `draw_errors` has anything to draw."""
    return bool(_lines(_panels(worst), summaries))


def has_distances(summaries: Summaries) -> bool:
    """Whether `draw_distances` has anything to draw."""
    return bool(_lines({DISTANCE: by_distance}, summaries))


def _panels(worst: bool) -> Panels:
    """Those of errors."""
    return {name: by_radius(name) for name in ("FGSM", "IFGSM", *([WORST] if worst else []))} | {CW: by_c}


def _lines(panels: Panels, summaries: Summaries) -> dict[str, dict[str, Points]]:
    """Of every panel that has some, by the model."""
    lines = {name: {model: points(summary) for model, summary in summaries.items()} for name, points in panels.items()}
    return {name: found for name, found in lines.items() if any(found.values())}


def by_radius(column: str) -> Callable[[Mapping[str, Any]], Points]:
    """Of a column of the paper's table, from the error without an attack on; the worst case only where it was meant."""

    def points(summary: Mapping[str, Any]) -> Points:
        at = {eps: errors_at(summary, eps) for eps in radii(summary)}
        if column == WORST:
            at = {eps: errors for eps, errors in at.items() if in_earnest(summary, eps)}
        found = [(eps, error) for eps, errors in at.items() if (error := errors[column]) is not None]
        natural = at[found[0][0]]["natural"] if found and column != WORST else None
        return found if natural is None else [(0.0, natural), *found]

    return points


def by_c(summary: Mapping[str, Any]) -> Points:
    """Of CW in the paper's form."""
    return [(cell["settings"]["c"], cell["error"]) for cell in carlini_wagner(summary)]


def by_distance(summary: Mapping[str, Any]) -> Points:
    """Of CW in the paper's form; the mean over all images. None where nothing has moved, which no log axis can show."""
    found = [(cell["mean_squared_l2"], cell["error"]) for cell in carlini_wagner(summary)]
    return [(distance, error) for distance, error in found if distance > 0]


def graph_in_words(panel: str, summaries: Sequence[Mapping[str, Any]]) -> str:
    """In which graph the attacks of a panel were made, if in one only; heads without a graph do not count."""
    found = {_graph(group) for summary in summaries if (group := _group(panel, summary)) is not None}
    return found.pop() if len(found := found - {""}) == 1 else ""


def _group(panel: str, summary: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The group of attacks that a panel shows; of several graphs, that of the paper's columns."""
    if panel == WORST:
        return judged(summary)
    groups = as_in_the_paper(summary)
    return next((g for g in groups if any(plain_name(cell) == MADE_BY[panel] for cell in g["attacks"])), None)


def _graph(group: Mapping[str, Any]) -> str:
    """How many images were attacked, how many of them shared a graph, and beside how many of the base; empty for a
    model without a graph."""
    cell = group["attacks"][0] if group["attacks"] else {}
    threat, samples, together = cell.get("threat"), group["samples"], cell.get("chunk", 0)
    if threat is None:
        return ""
    base = f"{base_size(threat):,} of the base" if base_size(threat) else "the base"
    if threat["inference"] == Inference.INDUCTIVE.value:
        return f"{samples:,} images, each joined to a graph of {base}"
    if not is_joint(group):
        return f"{samples:,} images, each alone in a graph with {base}"
    if samples > together:
        return f"{samples:,} images, {together:,} in each graph with {base}"
    return f"{samples:,} attacked images in one graph with {base}"


def _draw(panels: Panels, summaries: Summaries, path: Path, title: str, paper: Paper | None = None) -> bool:
    """At most two panels beside each other, with one legend above them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = _lines(panels, summaries)
    if not lines:
        return False
    looks, first = looks_of(list(summaries)), next(iter(summaries.values()))
    wide, high = min(len(lines), 2), (len(lines) + 1) // 2
    by_eps = any(name not in (WORST, *LABELS) for name in lines)  # with an axis above them
    size = (4.6 * wide + (1.0 if wide == 1 else 0.0), 3.1 * high + (1.6 if by_eps else 0.7))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    shown: dict[str, Any] = {}
    axes = figure.subplots(high, wide, squeeze=False).flat
    for (name, found), axis in zip(lines.items(), axes, strict=False):  # in this order: zip takes no axis too many
        graph = graph_in_words(name, [summary for model, summary in summaries.items() if found[model]])
        axis.set_title("\n".join(filter(None, [name, graph])), fontsize=9)
        if name == WORST:
            _bars(axis, found, looks)
            continue
        for model, points in found.items():
            (line,) = axis.plot([x for x, _ in points], [100 * y for _, y in points], **looks[model])
            shown[model] = shown.get(model, line)
        if name in LABELS:
            axis.set_xscale("log")
        else:
            axis.set_xlim(left=0)
            axis.secondary_xaxis("top", functions=_units(first["unit"])).set_xlabel(THEIR_RADIUS, fontsize=9)
        if name != DISTANCE:
            shown |= _at_paper(axis, name, first, {m: v for m, v in (paper or {}).items() if found.get(m)}, looks)
        axis.set_ylim(bottom=0)
        axis.set(xlabel=LABELS.get(name, RADIUS), ylabel="error, %")
        axis.grid(alpha=0.3)
    for axis in axes:  # a place that is left over
        axis.set_axis_off()
    names = {"ncols": min(4, max(3, (len(shown) + 1) // 2)), "frameon": False, "fontsize": 8, "title": title or None}
    figure.legend(shown.values(), shown.keys(), loc="outside upper center", **names)
    with complete_file(path) as part:
        figure.savefig(part, format="png", dpi=110)
    return True


def _units(unit: float) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """From pixels in 0 .. 1 to the paper's units, and back; where channels differ, of the one with the largest."""
    return lambda eps: eps / unit, lambda eps: eps * unit


def _at_paper(
    axis: Any, name: str, summary: Mapping[str, Any], paper: Paper, looks: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """A thin line at the ε or c of the paper's table, and crosses for its values. Returns marks for the legend.

    Crosses stand beside the line, as six of them on it would hide each other: of robust models to its left.
    """
    from matplotlib.lines import Line2D
    from matplotlib.transforms import offset_copy

    x = summary["table_c"] if name == CW else summary["table_eps_pixels"]
    line = axis.axvline(x, color="0.3", linewidth=1, linestyle=":", zorder=0.5)
    marks: dict[str, Any] = {"ε or c of the paper's table": line}
    beside = {True: 0, False: 0}
    for model, values in paper.items():
        if name in values:
            colour, robust = looks[model]["color"], looks[model]["linestyle"] == "-"
            beside[robust] += 1
            away = (7 * beside[robust] - 1) * (-1 if robust else 1)
            at = offset_copy(axis.transData, axis.get_figure(), x=away, y=0, units="points")
            look = {"color": colour, "markerfacecolor": colour if robust else "white", "markersize": 7, "zorder": 3}
            axis.plot([x], [values[name]], "X", linestyle="none", transform=at, **look)
            marks[CROSS] = Line2D([], [], marker="X", linestyle="none", color="0.3")
    return marks


def looks_of(models: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour and a mark for each head, a style of line for each training, filled marks for that with a whole line.

    The marks of the first are larger, and are seen below others.

    >>> looks = looks_of(["GLL, robust", "GLL, natural", "linear, natural"])
    >>> [(look["color"], look["marker"], look["linestyle"]) for look in looks.values()]
    [('C0', 'o', '-'), ('C0', 'o', '--'), ('C1', 's', '--')]
    """
    parts = {model: model.partition(", ")[::2] for model in models}
    heads, trainings = (list(dict.fromkeys(part[n] for part in parts.values())) for n in (0, 1))
    looks = {}
    for place, (model, (head, training)) in enumerate(parts.items()):
        number = heads.index(head)
        colour, mark = HEADS.get(head, (f"C{number % 10}", MARKS[number % len(MARKS)]))
        style = TRAININGS.get(training, STYLES[trainings.index(training) % len(STYLES)])
        looks[model] = {
            "color": colour,
            "linestyle": style,
            "marker": mark,
            "markersize": 7 - 3 * place / len(parts),
            "linewidth": 1.5,
            "markerfacecolor": colour if style == "-" else "none",
        }
    return looks


def _bars(axis: Any, found: Mapping[str, Points], looks: Mapping[str, Mapping[str, Any]]) -> None:
    """The worst case of every model, side by side at each ε, with its number."""
    places = sorted({round(eps, 4) for points in found.values() for eps, _ in points})
    models = [model for model, points in found.items() if points]
    width = 0.8 / len(models)
    for number, model in enumerate(models):
        for eps, error in found[model]:
            x = places.index(round(eps, 4)) + (number + 0.5) * width - 0.4
            look = looks[model]
            solid = look["linestyle"] == "-"
            bar = {"edgecolor": look["color"], "facecolor": look["color"] if solid else "none"}
            axis.bar(x, 100 * error, 0.85 * width, linewidth=1.2, linestyle=look["linestyle"], **bar)
            mark = {name: look[name] for name in ("color", "marker", "markerfacecolor")}
            axis.plot(x, 100 * error, linestyle="none", markersize=5, **mark)  # as in the legend
            number_at = {"xy": (x, 100 * error), "xytext": (0, 4), "textcoords": "offset points"}
            axis.annotate(f"{100 * error:.1f}", ha="center", va="bottom", fontsize=7, **number_at)
    axis.set_xticks(range(len(places)), [f"ε = {eps:.3g}" for eps in places])
    axis.set(ylabel="error, %", xlim=(-0.5, len(places) - 0.5))
    axis.margins(y=0.12)
    axis.set_ylim(bottom=0)
