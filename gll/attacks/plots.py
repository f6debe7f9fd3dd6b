"""Pictures of evaluations: error against ε and c, error against how far CW has moved the images, and the images.

Like the tables they are made from summaries, so that several runs can be drawn into one picture. The attacked images
come from the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gll.attacks.tables import errors_at, plain_name, radii
from gll.files import complete_file

Summaries = Mapping[str, Mapping[str, Any]]
STYLES = ("-o", "--s", ":^", "-.v")


def draw_curves(summaries: Summaries, path: Path) -> None:
    """Error against ε (FGSM, IFGSM, the worst case) and against c (CW), a line for each run.

    Args:
        summaries: by what to call them.
        path: the picture to write.
    """
    columns = ("FGSM", "IFGSM", "worst case")
    figure, axes = _figure(4, wide=3.4)
    for place, (name, summary) in enumerate(summaries.items()):
        style = STYLES[place % 4]
        at = [(eps, errors_at(summary, eps)) for eps in radii(summary)]
        for axis, column in zip(axes, columns, strict=False):
            points = [(eps, found[column]) for eps, found in at if found[column] is not None]
            _draw(axis, [(0.0, errors_at(summary, 0.0)["natural"]), *points] if points else [], style, place, name)
        points = [(cell["settings"]["c"], cell["error"]) for cell in _carlini_wagner(summary)]
        _draw(axes[3], sorted(points), style, place, name)
    for axis, column in zip(axes, (*columns, "CW"), strict=True):
        axis.set_title(column, fontsize=9)
        axis.set_xlabel("c" if column == "CW" else "ε, of the range")
        if column == "CW" and axis.lines:
            axis.set_xscale("log")
    _finish(figure, axes, path)


def draw_distances(summaries: Summaries, path: Path) -> None:
    """Error against the mean squared distance of CW, a point for each c."""
    figure, axes = _figure(1, wide=5.0)
    for place, (name, summary) in enumerate(summaries.items()):
        cells = sorted(_carlini_wagner(summary), key=lambda cell: cell["settings"]["c"])
        points = [(cell["mean_squared_l2"], cell["error"]) for cell in cells]
        _draw(axes[0], points, STYLES[place % 4], place, name)
    axes[0].set_xlabel("mean squared distance of CW, a point for each c")
    _finish(figure, axes, path)


@final
@dataclass(frozen=True, eq=False)
class Row:
    """One line of the grid of images.

    Args:
        attack: what to call the attack.
        clean, attacked: images (c, h, w) in [0, 1].
        before, after: the predicted classes, by name.
    """

    attack: str
    clean: NDArray[np.float32]
    attacked: NDArray[np.float32]
    before: str
    after: str


def draw_images(rows: Sequence[Row], path: Path) -> None:
    """Original, perturbation and attacked image, with the classes before and after.

    The perturbation is shown around grey, stretched to its largest pixel, which the title gives.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not rows:
        raise ValueError("no images to draw: no attack has fooled the model")
    figure = Figure(figsize=(5.2, 1.75 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, row in zip(figure.subplots(len(rows), 3, squeeze=False), rows, strict=True):
        change = row.attacked - row.clean
        largest = float(np.abs(change).max()) or 1.0
        titles = (row.attack, f"largest change {largest:.3f}", f"{row.before} → {row.after}")
        for axis, image, title in zip(
            axes, (row.clean, 0.5 + change / (2 * largest), row.attacked), titles, strict=True
        ):
            pixels = np.clip(image, 0, 1).transpose(1, 2, 0)
            grey = pixels.shape[2] != 3
            axis.imshow(pixels[:, :, 0] if grey else pixels, cmap="gray" if grey else None, vmin=0, vmax=1)
            axis.set_title(title, fontsize=8)
            axis.set_axis_off()
    _save(figure, path)


def _carlini_wagner(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    cells = (cell for group in summary["groups"] for cell in group["attacks"])
    return [cell for cell in cells if plain_name(cell) == "cw-paper"]


def _draw(axis: Any, points: Sequence[tuple[float, Any]], style: str, place: int, name: str) -> None:
    if points:
        x, y = zip(*points, strict=True)
        axis.plot(x, [100 * value for value in y], style, color=f"C{place % 10}", markersize=4, label=name)


def _figure(panels: int, wide: float) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(wide * panels, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _finish(figure: Any, axes: Sequence[Any], path: Path) -> None:
    for axis in axes:
        axis.set_ylabel("error, %")
        axis.set_ylim(-3, 103)
        axis.grid(alpha=0.3)
        if axis.lines:
            axis.legend(fontsize=8)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    with complete_file(path) as part:
        figure.savefig(part, format=path.suffix.lstrip(".") or "png", dpi=110)
