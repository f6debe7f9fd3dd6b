"""The paper's figures, drawn from records: the grid of two moons, the curves of FashionMNIST, attacks.

An experiment whose config says `figure = NAME` in [table] has one. Pictures go to docs/figures/reproduce-NAME*.png, and
are shown where the tables are.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from gll.files import complete_file
from gll.names import require_name
from gll.reproduce.experiment import Experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.tables import Shown, states_of

Style = Literal["-", "--", ":"]
COLOURS = 64  # of a picture on a page; more make it larger and no clearer
STYLES: tuple[Style, ...] = ("-", "--", ":")


def draw_all(experiments: Mapping[str, Experiment], folder: Path) -> list[Path]:
    """Draw every figure there are records for, each of the largest scale that has some. Returns the pictures."""
    made: dict[Path, None] = {}
    for experiment in experiments.values():
        name = experiment.text["table"].get("figure")
        run = [shown for shown in states_of(experiment).values() if shown.found] if name else []
        for shown in run:  # a larger scale draws over what a smaller one has drawn of the same data
            require_name(f"figure of {experiment.name}", str(name), FIGURES)
            made |= dict.fromkeys(FIGURES[str(name)](shown, folder / f"reproduce-{experiment.name}"))
    for path in made:
        _smaller(path)
    return list(made)


def moons(shown: Shown, path: Path) -> list[Path]:
    """The initial embedding, and the grid: a row a head, a column an epoch. Only of what is finished."""
    import numpy as np

    from gll.moons import Study, draw

    studies = []
    for cell in kind_of(shown.experiment).cells(shown.experiment, shown.scale):
        file = shown.experiment.folder / "arrays" / f"{cell.folder}.npz"
        if file.is_file():
            tau = cell.point.options()["tau"]
            study = Study(None if tau == "softmax" else float(tau), cell.point.seed)
            with np.load(file, allow_pickle=False) as arrays:
                study.snapshots = {int(name.split()[1]): arrays[name] for name in arrays}
            studies.append(study)
    if not studies:
        return []
    pictures = [path.with_name(f"{path.name}-initial.png"), path.with_name(f"{path.name}.png")]
    first = Study(studies[0].tau, 0)
    first.name, first.snapshots = "all heads", {0: studies[0].snapshots[0]}
    draw([first], pictures[0])
    draw(studies, pictures[1])
    return pictures


def curves(shown: Shown, path: Path) -> list[Path]:
    """Training loss, and test error of every head that was tested, against the epoch: means over seeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, NullLocator

    figure = Figure(figsize=(11, 4), layout="constrained")
    FigureCanvasAgg(figure)
    loss, error = figure.subplots(1, 2)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    styles: dict[str, Style] = {}  # of lines, by the head that was tested
    for place, record in shown.found:
        groups.setdefault(", ".join(place.values()), []).append(record["more"]["curves"])
    for number, (name, members) in enumerate(groups.items()):
        colour = f"C{number % 10}"
        loss.plot(*_mean([one["train loss"] for one in members]), color=colour, label=name)
        tests = [key for key in members[0] if key.startswith("test ") and key.endswith(" error")]
        for key in tests:
            judge = key.split()[1]
            styles.setdefault(judge, STYLES[len(styles) % len(STYLES)])
            error.plot(*_mean([one[key] for one in members if key in one]), styles[judge], color=colour)
    for axis, title in ((loss, "training loss"), (error, "test error, %")):
        axis.set_xlabel("epoch")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
    # Beside the curves: there are too many names to lie on them.
    lines, names = loss.get_legend_handles_labels()
    if len(styles) > 1:
        lines += [Line2D([], [], color="0.3", linestyle=style) for style in styles.values()]
        names += [f"test error by {judge}" for judge in styles]
    figure.legend(lines, names, loc="outside right upper", fontsize=8)
    error.set_yscale("log")
    error.yaxis.set_major_locator(FixedLocator([5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100]))
    error.yaxis.set_major_formatter("{x:g}")
    error.yaxis.set_minor_locator(NullLocator())
    picture = path.with_suffix(".png")
    with complete_file(picture) as part:
        figure.savefig(part, format="png", dpi=110)
    return [picture]


def _mean(members: Sequence[Sequence[Sequence[float | None]]]) -> tuple[list[float], list[float]]:
    """Epochs that all members have, and the mean of their values there.

    >>> _mean([[[1, 2.0], [2, 4.0]], [[1, 4.0], [2, None]]])
    ([1], [3.0])
    """
    tables = [{epoch: value for epoch, value in one if value is not None} for one in members]
    epochs = [epoch for epoch in tables[0] if epoch is not None and all(epoch in table for table in tables)]
    return epochs, [statistics.fmean(table[epoch] for table in tables) for epoch in epochs]


def attacks(shown: Shown, path: Path) -> list[Path]:
    """Of every data set: error against ε and c, and against the distance of CW. The first seed."""
    from gll.reproduce.attack_figures import draw_distances, draw_errors

    groups: dict[str, dict[str, Mapping[str, Any]]] = {}
    for place, record in shown.found:
        data, *model = place.values()
        groups.setdefault(data, {}).setdefault(", ".join(model), record["more"]["summary"])
    made = []
    for data, summaries in groups.items():
        for draw, what in ((draw_errors, "curves"), (draw_distances, "distances")):
            picture = path.with_name(f"{path.name}-{data}-{what}.png")
            if draw(summaries, picture, f"{data}, {shown.scale}"):
                made.append(picture)
    return made + attacked_images(shown, path)


def attacked_images(shown: Shown, path: Path) -> list[Path]:
    """The images that a naturally trained GLL was fooled by, of every data set, as in the paper. The first seed."""
    made: dict[str, list[Path]] = {}
    for cell in kind_of(shown.experiment).cells(shown.experiment, shown.scale):
        data, *model = (value for _, value in cell.point.place)
        kept = sorted((shown.experiment.folder / "arrays").glob(f"{cell.folder}-*.png"))
        if model == ["GLL", "natural"] and kept and data not in made:
            parts = {file.stem.removeprefix(f"{cell.folder}-"): file for file in kept}
            made[data] = [path.with_name(f"{path.name}-{data}-images-{part}.png") for part in parts]
            for file, picture in zip(kept, made[data], strict=True):
                with complete_file(picture) as written:
                    shutil.copyfile(file, written)
    return [picture for pictures in made.values() for picture in pictures]


def head_at_test(shown: Shown, path: Path) -> list[Path]:
    """Error against ε of one network: by its softmax, and by a graph that is attacked by either gradient."""
    from gll.reproduce.attack_figures import draw_errors

    picture = path.with_suffix(".png")
    summaries = shown.found[0][1]["more"]["summaries"]
    return [picture] if draw_errors(summaries, picture, worst=False) else []


def more_c(shown: Shown, path: Path) -> list[Path]:
    """Error against the distance of CW, a point for each c; the first seed."""
    from gll.reproduce.attack_figures import draw_distances

    groups: dict[str, dict[str, Mapping[str, Any]]] = {}
    for place, record in shown.found:
        data, *model = place.values()
        groups.setdefault(data, {}).setdefault(", ".join(model), record["more"]["summaries"]["attack"])
    made = {path.with_name(f"{path.name}-{data}.png"): summaries for data, summaries in groups.items()}
    return [picture for picture, summaries in made.items() if draw_distances(summaries, picture)]


FIGURES: dict[str, Callable[[Shown, Path], list[Path]]] = {
    "moons": moons,
    "curves": curves,
    "attacks": attacks,
    "head-at-test": head_at_test,
    "more-c": more_c,
}
"""Every figure by its name."""


def _smaller(path: Path) -> None:
    """Fewer colours."""
    from PIL import Image

    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(COLOURS)
    with complete_file(path) as part:
        small.save(part, format="png", optimize=True)
