"""The paper's figures of attacks, of several models in one picture: error against ε, against c, against distance.

Unlike the curves of `gll attack`, which are of one run. The worst case is measured at one or two ε only: points, and no
line that would claim what lies between. Errors of CW are small, so its axes fit what is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gll.attacks.tables import carlini_wagner, errors_at, in_earnest, radii, worst_at
from gll.files import complete_file

Summaries = Mapping[str, Mapping[str, Any]]
Points = list[tuple[float, float]]
WORST, CW, DISTANCE = "worst case", "CW", "mean squared distance of CW"
LABELS = {CW: "c", DISTANCE: "mean squared distance, a point for each c"}


def draw_errors(summaries: Summaries, path: Path) -> bool:
    """FGSM, IFGSM and the worst case against ε, CW against c. Returns whether there was anything to draw."""
    panels = {title: by_radius(title) for title in ("FGSM", "IFGSM", WORST)} | {CW: by_c}
    return _draw(panels, summaries, path)


def draw_distances(summaries: Summaries, path: Path) -> bool:
    """CW: the error against how far the images were moved. Returns whether there was anything to draw."""
    return _draw({DISTANCE: by_distance}, summaries, path)


def by_radius(column: str) -> Callable[[Mapping[str, Any]], Points]:
    """Of a column of the paper's table, from the error without an attack on; the worst case only where it was meant."""

    def points(summary: Mapping[str, Any]) -> Points:
        at = {eps: errors_at(summary, eps) for eps in radii(summary)}
        if column == WORST:
            at = {eps: errors for eps, errors in at.items() if in_earnest(worst_at(summary, eps))}
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


def _draw(panels: Mapping[str, Callable[[Mapping[str, Any]], Points]], summaries: Summaries, path: Path) -> bool:
    """Panels beside each other, with one legend above them: a colour for each model, and its own mark."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines = {title: {name: points(summary) for name, summary in summaries.items()} for title, points in panels.items()}
    lines = {title: found for title, found in lines.items() if any(found.values())}
    if not lines:
        return False
    widest = max((x for t, found in lines.items() if t not in LABELS for p in found.values() for x, _ in p), default=1)
    figure = Figure(figsize=(max(3.4 * len(lines), 5.0), 3.7), layout="constrained")
    FigureCanvasAgg(figure)
    shown: dict[str, Any] = {}
    for axis, (title, found) in zip(figure.subplots(1, len(lines), squeeze=False)[0], lines.items(), strict=True):
        for place, (name, points) in enumerate(found.items()):
            look = {"marker": "os^vDP*X"[place % 8], "color": f"C{place % 10}", "markersize": 4, "linewidth": 1.2}
            style = "none" if title == WORST else "-"
            (line,) = axis.plot([x for x, _ in points], [100 * y for _, y in points], linestyle=style, **look)
            shown[name] = shown.get(name, line)
        if title in LABELS:
            axis.set_xscale("log")
            axis.set_ylim(bottom=0)
        else:
            axis.set(xlim=(0, 1.05 * widest), ylim=(-3, 103))
        axis.set(title=title, xlabel=LABELS.get(title, "ε, of the range"), ylabel="error, %")
        axis.grid(alpha=0.3)
    figure.legend(shown.values(), shown.keys(), loc="outside upper center", fontsize=8, ncols=3, frameon=False)
    with complete_file(path) as part:
        figure.savefig(part, format="png", dpi=110)
    return True
