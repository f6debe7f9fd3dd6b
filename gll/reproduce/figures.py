"""The paper's figures, drawn from records: the grid of two moons, the curves of FashionMNIST, attacks.

An experiment whose config says `figure = NAME` in [table] has one. Pictures go to docs/figures/reproduce-NAME*.png, and
are shown where the tables are. Each is of one scale: that with the most models, and of several the largest, so that the
first cell of a larger one does not take the others' place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gll.files import complete_file
from gll.names import require_name
from gll.reproduce.drawn import Picture, checksum, write_drawn
from gll.reproduce.experiment import Experiment, name_of
from gll.reproduce.kinds import kind_of
from gll.reproduce.tables import Shown, attacked_at, states_of

COLOURS = 64  # of a picture on a page; more make it larger and no clearer
PHOTOGRAPHS = 256  # of one with images, where fewer are seen
NUMBERS = {
    "moons-initial": 3,
    "moons": 4,
    "fashion-toy": 5,
    "adversarial-mnist-curves": 6,
    "adversarial-fashionmnist-curves": 7,
    "adversarial-cifar10-curves": 8,
    "head-at-test": 11,
    "more-c-mnist": 12,
    "more-c-cifar10": 12,
}
"""The paper's figures, by ours."""


def draw_all(experiments: Mapping[str, Experiment], folder: Path) -> list[Path]:
    """Draw every figure there are records for, and note what from. Returns the pictures."""
    planned = pictures(experiments, folder)
    for picture in planned:
        picture.draw(picture.path)
        _smaller(picture.path, PHOTOGRAPHS if picture.path.stem.endswith("-images") else COLOURS)
    if planned:
        write_drawn(planned, folder)
    return [picture.path for picture in planned]


def pictures(experiments: Mapping[str, Experiment], folder: Path) -> list[Picture]:
    """Every picture there are records for; none is drawn yet."""
    found: list[Picture] = []
    for experiment in experiments.values():
        name = experiment.text["table"].get("figure")
        run = [shown for shown in states_of(experiment).values() if shown.found] if name else []
        if run:
            require_name(f"figure of {experiment.name}", str(name), FIGURES)
            found += FIGURES[str(name)](run, folder / f"reproduce-{experiment.name}")
    return found


def most(run: Sequence[Shown], data: str | None = None) -> Shown:
    """The scale that has the most models, of this data set if one is named; of several the largest.

    Args:
        run: the scales that were run, the smallest first.
        data: a name on the first axis.
    """

    def models(shown: Shown) -> int:
        return len({name_of(place) for place, _ in shown.found if data in (None, next(iter(place.values())))})

    return max(reversed(run), key=models)


def _picture(path: Path, caption: str, data: Any, draw: Callable[[Path], object]) -> Picture:
    """One with the number of the paper's figure, where it is one of these."""
    stem = path.stem.removeprefix("reproduce-")
    number = 10 if stem.endswith("-images") else 9 if stem.endswith("-distances") else NUMBERS.get(stem)
    return Picture(path, caption if number is None else f"figure {number}: {caption}", checksum(data), draw)


def moons(run: Sequence[Shown], path: Path) -> list[Picture]:
    """The initial embedding, and the grid: a row a head, a column an epoch. Only of what is finished."""
    import numpy as np

    from gll.moons import Study, draw

    shown, studies, files = most(run), [], []
    for cell in kind_of(shown.experiment).cells(shown.experiment, shown.scale):
        file = shown.experiment.folder / "arrays" / f"{cell.folder}.npz"
        if file.is_file():
            tau = cell.point.options()["tau"]
            study = Study(None if tau == "softmax" else float(tau), cell.point.seed)
            with np.load(file, allow_pickle=False) as arrays:
                study.snapshots = {int(name.split()[1]): arrays[name] for name in arrays}
            studies.append(study)
            files.append(file.read_bytes())
    if not studies:
        return []
    first = Study(studies[0].tau, 0)
    first.name, first.snapshots = "all heads", {0: studies[0].snapshots[0]}
    start = "two moons: the embedding that all heads start from; the stars are the base"
    grid = "two moons: embeddings by head, a row each, and epoch, a column each; the stars are the base"
    data = b"".join(files)
    return [
        _picture(path.with_name(f"{path.name}-initial.png"), start, data, lambda file: draw([first], file)),
        _picture(path.with_name(f"{path.name}.png"), grid, data, lambda file: draw(studies, file)),
    ]


def curves(run: Sequence[Shown], path: Path) -> list[Picture]:
    """Training loss, and test error of every head that was tested, against the epoch: means over seeds."""
    from gll.reproduce.curve_figures import columns_of, draw_curves, told

    shown = most(run)
    columns = columns_of(shown)
    title = f"{shown.experiment.text['title']}: training loss and test error by epoch, a column for each optimiser"
    title += f", {shown.scale}, means over seeds {told(columns)}"
    if any(record["config"].get("model.switch_at") for _, record in shown.found):
        title += "; what switches heads is drawn from the switch on"
    return [_picture(path.with_suffix(".png"), title, columns, partial(draw_curves, columns))]


def attacks(run: Sequence[Shown], path: Path) -> list[Picture]:
    """Of every data set: error against ε and c, and against the distance of CW. The first seed.

    In the paper's order: all of the first kind, then all of the second, then images.
    """
    from gll.reproduce.attack_figures import draw_distances, draw_errors, has_distances, has_errors

    errors, far = [], []
    for data in _data_sets(run):
        shown = most(run, data)
        summaries, where = first_seed(shown, data, lambda more: more["summary"])
        if has_errors(summaries):
            paper = {model: shown.experiment.expected["values"].get(f"{data}, {model}", {}) for model in summaries}
            caption = f"errors under attack against ε and c, {where} (the paper plots accuracy = 100 − error)"
            caption += crosses(summaries, paper)
            errors.append(_of(draw_errors, path, f"{data}-curves", caption, summaries, where, paper=paper))
        if has_distances(summaries):
            caption = f"error under CW against how far it moves the images, {where}"
            far.append(_of(draw_distances, path, f"{data}-distances", caption, summaries, where))
    return errors + far + attacked_images(run, path)


def _of(
    draw: Callable[..., object],
    path: Path,
    name: str,
    caption: str,
    summaries: Mapping[str, Any],
    where: str,
    **how: Any,
) -> Picture:
    """One of `attack_figures`; what it is of stands above its panels."""
    picture = path.with_name(f"{path.name}-{name}.png" if name else f"{path.name}.png")
    return _picture(picture, caption, [summaries, where, how], lambda file: draw(summaries, file, where, **how))


def crosses(summaries: Mapping[str, Mapping[str, Any]], paper: Mapping[str, Mapping[str, float]]) -> str:
    """What a caption says of the paper's values; nothing where it has none."""
    if not any(paper.values()):
        return ""
    one = next(iter(summaries.values()))
    filled = ", filled for a robust training" if any(model.endswith(", robust") for model in summaries) else ""
    return f"; crosses beside a dotted line: the paper's table, at {attacked_at(one)}{filled}"


def first_seed(shown: Shown, data: str, of: Callable[[Mapping[str, Any]], Any]) -> tuple[dict[str, Any], str]:
    """Of every model on a data set what the first seed that it has found; and in words what it is of."""
    from gll.reproduce.protocol import epochs_of

    found: dict[str, Any] = {}
    seeds: dict[str, int] = {}
    epochs: dict[int, None] = {}
    for place, record in shown.found:
        named, *model = place.values()
        if named == data and ", ".join(model) not in found:
            found[", ".join(model)] = of(record["more"])
            seeds[", ".join(model)] = record["seed"]
            epochs[epochs_of(record)] = None
    return found, f"{data}, {shown.scale}, {' or '.join(map(str, epochs))} epochs, {seeds_told(seeds)}"


def seeds_told(seeds: Mapping[str, int]) -> str:
    """Of models: one where it is one for all.

    >>> seeds_told({"GLL": 0, "linear": 0}), seeds_told({"GLL": 0, "linear": 2})
    ('seed 0', 'seed 0 (GLL), 2 (linear)')
    """
    if len(set(seeds.values())) == 1:
        return f"seed {next(iter(seeds.values()))}"
    return "seed " + ", ".join(f"{seed} ({model})" for model, seed in seeds.items())


def _data_sets(run: Sequence[Shown]) -> list[str]:
    """Names on the first axis, in its order."""
    ran = {next(iter(place.values())) for shown in run for place, _ in shown.found}
    return [name for name in next(iter(run[0].experiment.text["axes"].values())) if name in ran]


def attacked_images(run: Sequence[Shown], path: Path) -> list[Picture]:
    """The images that a naturally trained GLL was fooled by, of every data set, as the paper shows those of MNIST: of
    the largest scale that has some, and the first seed."""
    from gll.reproduce.attack_images import compose

    made: dict[str, Picture] = {}
    for shown in reversed(run):
        records = {record["key"]: record for _, record in shown.found}
        for cell in kind_of(shown.experiment).cells(shown.experiment, shown.scale):
            data, *model = (value for _, value in cell.point.place)
            start = f"{cell.folder}-"
            kept = sorted((shown.experiment.folder / "arrays").glob(f"{start}*.png"))
            if model == ["GLL", "natural"] and kept and cell.key in records and data not in made:
                parts = {file.stem.removeprefix(start): file for file in kept}
                summary = records[cell.key]["more"]["summary"]
                told = {name: summary[name] for name in ("table_eps", "table_eps_pixels", "table_c")}
                caption = "images that fooled a naturally trained GLL under FGSM, IFGSM and CW: the image, the change,"
                caption += f" the attacked image; {data}, {shown.scale}, seed {cell.point.seed}"
                caption += "" if data == "mnist" else " (the paper shows MNIST)"
                picture = path.with_name(f"{path.name}-{data}-images.png")
                drawn_from = [told, {name: checksum(file.read_bytes()) for name, file in parts.items()}]
                made[data] = _picture(picture, caption, drawn_from, partial(compose, parts, told))
    return [made[data] for data in _data_sets(run) if data in made]


def head_at_test(run: Sequence[Shown], path: Path) -> list[Picture]:
    """Error against ε of one network: by its softmax, and by a graph that is attacked by either gradient. The first
    seed."""
    from gll.reproduce.attack_figures import draw_errors, has_errors

    shown = most(run)
    place, record = shown.found[0]
    summaries = record["more"]["summaries"]
    where = f"{name_of(place)}, {shown.scale}, seed {record['seed']}"
    caption = f"a softmax, and a graph in its place at test time, under attack by either gradient, {where}"
    return [_of(draw_errors, path, "", caption, summaries, where, worst=False)] if has_errors(summaries, False) else []


def more_c(run: Sequence[Shown], path: Path) -> list[Picture]:
    """Error against the distance of CW, a point for each c; the first seed."""
    from gll.reproduce.attack_figures import draw_distances, has_distances

    made = []
    for data in _data_sets(run):
        summaries, where = first_seed(most(run, data), data, lambda more: more["summaries"]["attack"])
        caption = f"error under CW with more values of c against how far it moves the images, {where}"
        if has_distances(summaries):
            made.append(_of(draw_distances, path, data, caption, summaries, where))
    return made


FIGURES: dict[str, Callable[[Sequence[Shown], Path], list[Picture]]] = {
    "moons": moons,
    "curves": curves,
    "attacks": attacks,
    "head-at-test": head_at_test,
    "more-c": more_c,
}
"""Every figure by its name."""


def _smaller(path: Path, colours: int = COLOURS) -> None:
    """Fewer colours, which k-means fits to those there are: without it a line of few pixels gets that of another."""
    from PIL import Image

    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(colours, kmeans=1)
    with complete_file(path) as part:
        small.save(part, format="png", optimize=True)
