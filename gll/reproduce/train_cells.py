"""Cells that are training runs: `gll train` with the settings of a point. Equal warm-ups are made once, and shared.

A warm-up depends on data, seed, encoder and [warmup], and on the labels if it uses any; not on the head. So where heads
are compared, each warm-up is a cell of its own that the others need. It takes most of the time of such a table.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, final

from gll.names import require_name, require_options
from gll.reproduce.experiment import Cell, Experiment, Point
from gll.reproduce.kinds import AbstractKind, Outcome, Place
from gll.train.config import Config, from_toml, with_values

FREE_HEADS = ("gll", "knn")  # that need no training, as in gll/train/model.py, which needs PyTorch

WARM_UP = "warm-up"
OPTIONS = ("classes", "figure")
# Where and how often things are written or looked at decides no result.
FREE = {"name", "seed", "out", "device", "data.root", "train.save_every", "warmup.save_every", "warmup.from_run"}
FREE |= {"test.every", "test.batch", "test.device"}
# And yet a record shows it: curves and the error before training are there where it was tested, by files of that place.
SHOWN = ("data.root", "test.every", "test.batch", "test.device")
# All that a warm-up depends on, beside its own section and the data.
SHARED = ("model.encoder", "model.encoder_options", "train.autocast", "train.channels_last", "train.compile")


def config_of(experiment: Experiment, point: Point) -> Config:
    """The config of a point.

    Raises:
        ExperimentError: config.toml says something unknown.
    """
    return _read(experiment, point)[0]


def told_of(experiment: Experiment, point: Point) -> dict[str, Any]:
    """What the config of a point says, see `told`."""
    return dict(_read(experiment, point)[1])


def _read(experiment: Experiment, point: Point) -> tuple[Config, Mapping[str, Any]]:
    with experiment.named(point):
        return _read_settings(experiment.name, (*point.settings(), f"seed={point.seed}"))


@functools.cache  # a list or a table asks for the cells of a scale many times
def _read_settings(name: str, settings: tuple[str, ...]) -> tuple[Config, Mapping[str, Any]]:
    config = from_toml(f'name = "{name}"', settings)
    return config, told(config)


def look_at_data(experiment: Experiment, cells: Sequence[Cell]) -> dict[str, str]:
    """Read the data of these cells, each data set once. Returns what is wrong with it, by the key of the cell."""
    from gll.data import DataError
    from gll.reproduce import no_data
    from gll.train.model import load_data

    found: dict[str, str] = {}
    problems: dict[tuple[Any, ...], str] = {}
    for cell in cells:
        config = config_of(experiment, cell.point)
        c = config.data
        data = (c.name, c.root, c.pad, c.size, c.channels)
        if data not in problems:
            try:
                load_data(config)
                problems[data] = ""
            except DataError as error:
                problems[data] = no_data.told(str(error), c.name, experiment)
        if problems[data]:
            found[cell.key] = problems[data]
    return found


def told(config: Config) -> dict[str, Any]:
    """What a config says that decides the result and is not the default: a new default key changes no old cell.

    >>> told(from_toml('name = "a"', ["train.lr=0.1", "seed=3", "test.every=7", "test.also=knn"]))
    {'train.lr': 0.1, 'test.also': ['knn']}
    """
    return {key: value for key, value in flat(config, Config("default")).items() if key not in FREE}


def flat(config: Any, default: Any = None, prefix: str = "") -> dict[str, Any]:
    """Every value by its key, `train.lr`; with a default, those that differ from it."""
    found: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value, usual = getattr(config, f.name), getattr(default, f.name, None)
        if dataclasses.is_dataclass(value):
            found |= flat(value, usual, f"{prefix}{f.name}.")
        elif default is None or value != usual:
            found[prefix + f.name] = list(value) if isinstance(value, tuple) else value
    return found


def unkeyed(experiment: Experiment, cell: Cell) -> dict[str, Any]:
    """What the config of a cell says that is not told, and that a record shows."""
    said = flat(config_of(experiment, cell.point), Config("default"))
    return {key: said.get(key) for key in SHOWN}


def warm_settings(experiment: Experiment, point: Point) -> dict[str, Any]:
    """Those of the settings of a point that its warm-up depends on."""
    return of_warm_up(told_of(experiment, point), config_of(experiment, point))


def of_warm_up(known: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Without what the warm-up of this config does not depend on."""
    own = {key: value for key, value in known.items() if key.startswith(("warmup.", "data.")) or key in SHARED}
    own.pop("warmup.keep_projection", None)
    free = ["data.augment", "data.augment_options"]  # of the head's training; the views have their own
    free += [] if config.warmup.uses_labels else ["data.labels"]
    return {key: value for key, value in own.items() if key not in free}


def common_place(points: list[Point]) -> Point:
    """The first point, without the axes on which the points differ."""
    first = points[0]
    same = tuple(pair for pair in first.place if all(pair in point.place for point in points))
    return replace(first, place=same)


def told_apart(cells: list[Cell]) -> list[Cell]:
    """The same cells; warm-ups that would have the same title say in it what differs in their settings."""
    alike: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.role:
            alike.setdefault(cell.title, []).append(cell)
    return [
        replace(cell, apart=_differing(cell, alike[cell.title])) if len(alike.get(cell.title, ())) > 1 else cell
        for cell in cells
    ]


def _differing(cell: Cell, others: Sequence[Cell]) -> str:
    """The settings of a cell that are not those of all others: a name as it is, a number with its key."""
    keys = dict.fromkeys(key for other in others for key in other.settings)
    shown = []
    for key in keys:
        usual = attrgetter(key)(Config("default"))  # which `told` leaves out
        values = [other.settings.get(key, usual) for other in others]
        if any(value != values[0] for value in values):
            value = cell.settings.get(key, usual)
            shown.append(value if isinstance(value, str) else f"{key.rpartition('.')[2]} {value}")
    return ", ".join(shown)


@final
class TrainKind(AbstractKind):
    """Training runs. Options: `classes`, names of classes whose error is wanted by itself, and `figure`, its name."""

    def cells(self, experiment: Experiment, scale: str) -> list[Cell]:
        configs = [(point, config_of(experiment, point)) for point in experiment.points(scale)]
        shared = {point: warm_settings(experiment, point) for point, config in configs if config.warmup.epochs > 0}
        group_of = {point: json.dumps([point.seed, own], sort_keys=True) for point, own in shared.items()}
        groups: dict[str, list[Point]] = {}
        for point, group in group_of.items():
            groups.setdefault(group, []).append(point)
        made: dict[str, Cell] = {}
        cells = []
        for point, _ in configs:
            need = ""
            if group := group_of.get(point, ""):
                if group not in made:
                    place = common_place(groups[group])
                    made[group] = Cell(experiment.name, scale, place, shared[point], WARM_UP)
                    cells.append(made[group])
                need = made[group].key
            chosen = {f"options.{key}": value for key, value in point.options().items()}
            cells.append(Cell(experiment.name, scale, point, {**told_of(experiment, point), **chosen}, needs=need))
        return told_apart(cells)

    def look(self, experiment: Experiment, cells: Sequence[Cell]) -> dict[str, str]:
        for cell in cells:
            options = cell.point.options()
            with experiment.named(cell.point):
                require_options("training", experiment.name, options, OPTIONS)
                if options and len(options) < len(OPTIONS):
                    raise ValueError(f"options are {', '.join(OPTIONS)}, both or none; it has {', '.join(options)}")
        return look_at_data(experiment, cells)

    def run(self, experiment: Experiment, cell: Cell, place: Place) -> Outcome:
        config = run_config(experiment, cell, place)
        return _warm_up(config, place) if cell.role == WARM_UP else _train(config, cell.point.options(), place)

    def unkeyed(self, experiment: Experiment, cell: Cell) -> dict[str, Any]:
        return unkeyed(experiment, cell)

    def settings(self, experiment: Experiment, cell: Cell) -> dict[str, Any]:
        from gll.reproduce.settings import all_settings, warm_up_settings

        config = config_of(experiment, cell.point)
        return warm_up_settings(config) if cell.role == WARM_UP else {**cell.settings, **all_settings(config)}


def run_config(experiment: Experiment, cell: Cell, place: Place) -> Config:
    """The config of a cell at work in its folder, from the warm-up it needs."""
    config = config_of(experiment, cell.point)
    if cell.role == WARM_UP:  # no head's own settings can spoil it for the others
        model = replace(config.model, head="linear", head_options={}, switch_at=0)
        config = replace(config, model=model, warmup=replace(config.warmup, keep_projection=False))
    more = [f"device={place.device}", f"out={json.dumps(str(place.folder / 'run'))}"]
    if place.needed is not None:
        more.append(f"warmup.from={json.dumps(str(place.needed / 'run'))}")
    return with_values(replace(config, name=cell.folder.removesuffix(f"-{cell.key[:8]}")), *more)


def open_run(config: Config) -> Any:
    """The run of a config: a new one, or that to go on with. Its settings are those of the cell: its key is in the
    name of the folder."""
    from gll.train.loop import new_run
    from gll.train.runs import Run

    if not (config.directory / "config.toml").is_file():
        return new_run(config)
    run = Run.open(config.directory)
    if run.result() is None:
        run.note_resume()
    # Device and the place of data and warm-up may differ from stretch to stretch.
    return replace(run, config=config)


def trained(config: Config, place: Place) -> tuple[Any, dict[str, Any]]:
    """The finished run of a config, and its result."""
    from gll.train.loop import train

    run = open_run(config)
    return run, train(run, reporter=place.reporter)


def _train(config: Config, options: dict[str, Any], place: Place) -> Outcome:
    run, result = trained(config, place)
    drawn = curves(run.directory)
    values = {**figures(result), "before": before(drawn, config.model.head)}
    more: dict[str, Any] = {"result": _kept(result), "curves": drawn}
    if options:
        values[options["figure"]], more["classes"] = errors_of(run, options["classes"])
    return Outcome(values, more)


def errors_of(run: Any, classes: list[str]) -> tuple[float, dict[str, float]]:
    """Errors of a finished run, in percent: among the test samples of some classes, and of each of these."""
    import torch

    from gll.train.evaluate import evaluate
    from gll.train.model import find_device, restore

    model, data = restore(run, find_device(run.config.device))
    for name in classes:
        require_name("class", name, data.classes)
    at = torch.tensor([data.classes.index(name) for name in classes])
    wrong = torch.tensor(evaluate(model, data, run.split, run.config)[0].by_class)[at]
    number = torch.bincount(data.test_labels[data.test_labels >= 0].cpu(), minlength=len(data.classes))[at]
    together = float(100 * (wrong * number).sum() / number.sum())
    return together, {name: round(100 * float(share), 4) for name, share in zip(classes, wrong, strict=True)}


def figures(result: dict[str, Any]) -> dict[str, float | None]:
    """Errors in percent: `error` is that of the run's own head, the others go by the name of the head."""
    values: dict[str, float | None] = {"error": None if result["error"] is None else 100 * result["error"]}
    for test in result["tests"]:
        name = test["head"] if test["head"] not in values else f"{test['head']}, {test['mode']}"
        values[name] = 100 * test["error"]
    return values


def before(drawn: dict[str, list[list[float | None]]], head: str) -> float | None:
    """Error on the features of the warm-up alone, of a head that needs no training of its own; None: not tested then.

    >>> before({"test gll error": [[0, 30.0], [5, 20.0]]}, "gll"), before({"test mlp error": [[0, 90.0]]}, "mlp")
    (30.0, None)
    """
    first = drawn.get(f"test {head} error", [[None, None]])[0] if head in FREE_HEADS else [None, None]
    return first[1] if first[0] == 0 else None


def _kept(result: dict[str, Any]) -> dict[str, Any]:
    return {key: result[key] for key in ("epochs", "warmup", "seconds", "images_per_second")}


def curves(directory: Path) -> dict[str, list[list[float | None]]]:
    """Loss and error in percent against the epoch, of training and of every test: `{"train loss": [[1, 2.3], ...]}`."""
    found: dict[str, list[list[float | None]]] = {}
    for line in (directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["phase"] in ("train", "test"):
            what = "train" if row["phase"] == "train" else f"test {row['head']}"
            error = None if row["error"] is None else round(100 * row["error"], 4)
            loss = None if row["loss"] is None else round(row["loss"], 6)
            found.setdefault(f"{what} error", []).append([row["epoch"], error])
            found.setdefault(f"{what} loss", []).append([row["epoch"], loss])
    return found


def _warm_up(config: Config, place: Place) -> Outcome:
    """`gll pretrain`, as a cell."""
    from gll.train.distributed import Ranks
    from gll.train.model import build, data_of, find_device
    from gll.train.pretrain import warm_up

    run = open_run(config)
    device = find_device(config.device)
    data = data_of(run, device)
    with run.working():
        encoder = build(config, data).encoder
        found = warm_up(encoder, data, run.split, config, run, reporter=place.reporter, ranks=Ranks(device=device))
    kept = found.kept
    table = {f"γ = {c.gamma:g}": c.look and 100 * c.look.error for c in found.table}
    values = {"graph error": kept.look and 100 * kept.look.error, "gamma": kept.gamma, "epoch": float(kept.epoch)}
    return Outcome(values, {"candidates": table})
