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

from gll.attacks.tables import errors_at, in_earnest, plain_name, radii, worst_at
from gll.files import complete_file

Summaries = Mapping[str, Mapping[str, Any]]
STYLES = ("-o", "--s", ":^", "-.v")


def draw_curves(summaries: Summaries, path: Path) -> bool:
    """Error against ε (FGSM, IFGSM, the worst case) and against c (CW), a line for each run.

    Args:
        summaries: by what to call them.
        path: the picture to write, with a panel for each of these that was measured.

    Returns:
        Whether there was anything to draw.
    """
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name, summary in summaries.items():
        at = [(eps, errors_at(summary, eps)) for eps in radii(summary)]
        for column in ("FGSM", "IFGSM", "worst case"):
            points = [(eps, error) for eps, found in at if (error := found[column]) is not None]
            if column == "worst case":  # of weak attacks it would only repeat the other panels
                points = [(eps, error) for eps, error in points if in_earnest(worst_at(summary, eps))]
            natural = errors_at(summary, 0.0)["natural"]
            if points and natural is not None:
                panels.setdefault(column, {})[name] = [(0.0, natural), *points]
        if cells := _carlini_wagner(summary):
            panels.setdefault("CW", {})[name] = [(cell["settings"]["c"], cell["error"]) for cell in cells]
    return _draw_panels(panels, {"CW": "c"}, "ε, of the range", list(summaries), path)


def draw_distances(summaries: Summaries, path: Path) -> bool:
    """Error against the mean squared distance of CW, a point for each c. Whether there was anything to draw."""
    lines = {name: _carlini_wagner(summary) for name, summary in summaries.items()}
    points = {name: [(c["mean_squared_l2"], c["error"]) for c in cells] for name, cells in lines.items() if cells}
    panels = {"CW, a point for each c": points} if points else {}
    return _draw_panels(panels, {}, "mean squared distance", list(summaries), path)


def draw_poison(summaries: Summaries, path: Path) -> bool:
    """Error against the number of flipped labels, greedily and at random. Whether there was anything to draw."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name, summary in summaries.items():
        for one in summary.get("poison", ()):  # of several graphs the last one is drawn
            for title, errors in (("greedily", one["greedy"]), ("at random, mean", one["random"]["mean"])):
                points = list(zip(one["counts"], errors, strict=True))
                panels.setdefault(f"labels flipped {title}", {})[name] = points
    return _draw_panels(panels, {}, "flipped labels of the base", list(summaries), path)


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
    return sorted((c for c in cells if plain_name(c) == "cw-paper"), key=lambda cell: float(cell["settings"]["c"]))


def _draw_panels(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    logarithmic: Mapping[str, str],
    label: str,
    names: Sequence[str],
    path: Path,
) -> bool:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not panels:
        return False
    figure = Figure(figsize=(max(3.6 * len(panels), 5.0), 3.4 + 0.2 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    drawn: dict[str, Any] = {}
    for axis, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for name, points in lines.items():
            place = names.index(name)  # a run looks the same in every panel
            x, y = zip(*points, strict=True)
            percent = [100 * value for value in y]
            (drawn[name],) = axis.plot(x, percent, STYLES[place % 4], color=f"C{place % 10}", markersize=4)
        if title in logarithmic:
            axis.set_xscale("log")
        axis.set(title=title, xlabel=logarithmic.get(title, label), ylabel="error, %", ylim=(-3, 103))
        axis.grid(alpha=0.3)
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", fontsize=8)
    _save(figure, path)
    return True


def _save(figure: Any, path: Path) -> None:
    with complete_file(path) as part:
        figure.savefig(part, format=path.suffix.lstrip(".") or "png", dpi=110)
