"""Handwritten digits with ten labels a class: an MLP head, WNLL and the graph learning layer, side by side.

Every head trains the same encoder for the same number of steps, on the same labels and with the same augmentation, over
several seeds, by the code of `gll train`; each is an ordinary run directory afterwards. The rest of the training images
has no label: an MLP cannot use it, a graph can. Two rows put the heads into proportion: what a graph makes of the raw
pixels, without any training, and of the features that the MLP has learned.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from sklearn.decomposition import PCA

from gll.data.datasets import load
from gll.data.splits import split_labels
from gll.estimator import GraphLearningClassifier
from gll.features import unit_rows
from gll.files import complete_file
from gll.nn.heads import scaled_stages
from gll.train.apply import Trained
from gll.train.compare import Comparison, Line, Spread, compare
from gll.train.config import Config, from_toml
from gll.train.curves import draw
from gll.train.loop import new_run, train
from gll.train.runs import Run, environment, write_json

LABELS = "10 each"
# What all runs share. A step has a loss on 50 labelled images in all of them; a graph has 50 other labelled images as
# its base and 200 unlabelled ones between.
SHARED = f"""
name = "demo"
device = "cpu"
[data]
name = "digits"
labels = "{LABELS}"
augment = "grey"
augment_options = {{operations = 1, cutout = 0.0}}
[model]
encoder = "digits-cnn"
[base]
size = 50
[train]
steps = 10
batch = 250
labelled = 50
optimizer = "adam"
lr = 0.002
schedule = "cosine"
save_every = 1000
[test]
every = 8
"""


def own_settings(head: str, epochs: int) -> tuple[str, ...]:
    """What is a head's own; see `CHOICE`.

    WNLL's stages are the paper's 400 and 5 of 1,000 epochs, scaled down; an epoch is the least there is, so that two
    are the shortest demo.
    """
    neighbors = "model.head_options.k=10"  # of both graphs
    stages = scaled_stages(epochs)
    return {
        "mlp": ('test.also=["gll"]',),
        "wnll": (neighbors, f"model.head_options.stage1={stages[0]}", f"model.head_options.stage2={stages[1]}"),
        "gll": (neighbors, "model.head_options.tau=0.01"),
    }[head]


HEADS = ("mlp", "wnll", "gll")
# (head of the run, head that was tested): its name in the table
ROWS = {
    ("mlp", "mlp"): "MLP head",
    ("mlp", "gll"): "MLP features, by a graph",
    ("wnll", "wnll"): "WNLL head",
    ("gll", "gll"): "GLL head",
}
PIXELS = "raw pixels, by a graph"
CHOICE = (
    "How settings were chosen: by the error on unlabelled training images, whose classes are known here, though hidden "
    "from training; with other seeds, never on test images. These are the augmentation and the number of epochs (of "
    "all heads), k = 10 (of both graphs) and τ = 0.01 (GLL's own). The MLP has no setting of its own, WNLL the stages "
    "of the paper. With ten labels a class and nothing else nobody could choose like this."
)


@final
@dataclass(frozen=True)
class Row:
    """A line of the demo's table.

    Args:
        name: what was tested.
        errors: the test error of every seed.
        seconds: of training.
    """

    name: str
    errors: Mapping[int, float]
    seconds: Spread

    @property
    def error(self) -> Spread:
        return Spread(tuple(self.errors.values()))

    def behind(self, other: Row) -> Spread:
        """How much larger the error is than another's, seed by seed: with the same labels for both."""
        return Spread(tuple(e - other.errors[seed] for seed, e in self.errors.items() if seed in other.errors))

    def as_dict(self, best: Row) -> dict[str, Any]:
        figures = {"error": self.error, "behind": self.behind(best), "seconds": self.seconds}
        return {"name": self.name, **{key: value.as_dict() for key, value in figures.items()}}


def config_of(head: str, seed: int, epochs: int, out: Path) -> Config:
    """The config of one run."""
    where = out / "runs" / f"{head}-{seed}"
    more = (f"seed={seed}", f"model.head={head}", f"train.epochs={epochs}", f"out={json.dumps(str(where))}")
    return from_toml(SHARED, [*more, *own_settings(head, epochs)])


def run_demo(*, epochs: int, seeds: int, out: Path, threads: int, resume: bool, console: Console) -> None:
    """Train, compare, draw. Ctrl-C keeps what is there."""
    start = time.perf_counter()
    torch.set_num_threads(threads)
    out.mkdir(parents=True, exist_ok=True)
    if not resume:
        for head in HEADS:
            for old in (out / "runs").glob(f"{head}-*"):
                shutil.rmtree(old)
    done = _train_all(epochs, seeds, out, console)
    if not done:
        console.print("stopped before the first run was finished: nothing to show; --resume goes on")
        return
    found = compare([out / "runs"])
    rows = table_rows(found, {seed: pixels_error(seed) for seed in sorted({seed for _, seed in done})})
    console.print(_table(rows, seeds))
    console.print(CHOICE, highlight=False)
    for note in found.notes:
        console.print(note, soft_wrap=True, highlight=False)
    pictures = [out / "curves.png", out / "embeddings.png"]
    draw(found, pictures[0], name=lambda line: line.settings.get("model.head", done[0][0]))
    draw_embeddings([out / "runs" / f"{head}-{seed}" for head, seed in done if seed == done[0][1]], pictures[1])
    record = {
        "rows": [row.as_dict(best=rows[-1]) for row in rows],
        "choice": CHOICE,
        "settings": {"labels": LABELS, "epochs": epochs, "seeds": seeds, "threads": threads, "resumed": resume},
        "comparison": found.as_dict(),
        "environment": environment(),
        "wall_s": round(time.perf_counter() - start, 1),
    }
    write_json(out / "demo.json", record)
    files = ", ".join(str(path) for path in (*pictures, out / "demo.json"))
    console.print(f"pictures and figures: {files}", soft_wrap=True)
    console.print(f"every run is in {out / 'runs'}: gll compare {out / 'runs'}", soft_wrap=True)


def _train_all(epochs: int, seeds: int, out: Path, console: Console) -> list[tuple[str, int]]:
    """Train what is not trained yet, seed by seed, so that whoever stops early can still compare. The finished runs."""
    todo = [(head, seed) for seed in range(seeds) for head in HEADS]
    done: list[tuple[str, int]] = []
    columns = (TextColumn("training {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=len(todo))
        try:
            for head, seed in todo:
                progress.update(task, description=f"{head}, seed {seed}")
                config = config_of(head, seed, epochs, out)
                result = train(_open(config))
                error = ", ".join(f"{ROWS[head, row['head']]} {row['error']:.1%}" for row in result["tests"])
                progress.console.print(f"seed {seed}: {error} wrong ({result['seconds']:.0f} s)", highlight=False)
                done.append((head, seed))
                progress.advance(task)
        except KeyboardInterrupt:
            progress.console.print("stopped early: showing what there is (gll demo --resume goes on)")
    return done


def _open(config: Config) -> Run:
    """The run of a config: a new one, or that to go on with."""
    if not (config.directory / "config.toml").is_file():
        return new_run(config)
    run = Run.open(config.directory)
    if replace(run.config, out="") != replace(config, out=""):
        raise ValueError(
            f"{config.directory} was made with other settings: leave out --resume, or choose another --out"
        )
    return run


def table_rows(found: Comparison, pixels: Mapping[int, float]) -> list[Row]:
    """The rows of the table: the baseline, then every test of every head that has a finished run."""
    rows = [Row(PIXELS, pixels, Spread(()))]
    lines: dict[tuple[str, str], Line] = {
        (str(line.runs[0].settings["model.head"]), line.test[0]): line
        for line in found.lines
        if line.finished and line.test is not None
    }
    for key, name in ROWS.items():
        if key in lines:
            line = lines[key]
            errors = {run.seed: value for run, value in zip(line.runs, line.error.values, strict=True)}
            rows.append(Row(name, errors, line.seconds))
    return rows


def pixels_error(seed: int) -> float:
    """Test error of `GraphLearningClassifier`, as it comes, on the pixels of all images and the labels of this seed."""
    data = load("digits")
    split = split_labels(data.train_labels, LABELS, seed=seed)
    x = torch.cat([data.train, data.test]).flatten(1).double().numpy()
    y = np.concatenate([split.hidden(data.train_labels).numpy(), np.full(len(data.test), -1)])
    answer = GraphLearningClassifier().fit(x, y).transduction_[len(data.train) :]
    return float(np.mean(answer != data.test_labels.numpy()))


def _table(rows: list[Row], seeds: int) -> Table:
    several = f"{seeds} seeds" if seeds > 1 else "one seed"
    table = Table(title=f"Handwritten digits, {LABELS.removesuffix(' each')} labels a class, {several}")
    table.add_column("")
    for name in ("runs", "error, %", f"more than {rows[-1].name.removesuffix(' head')}", "training, s"):
        table.add_column(name, justify="right")
    for row in rows:
        behind = "" if row is rows[-1] else row.behind(rows[-1]).text(100)
        table.add_row(row.name, str(len(row.errors)), row.error.text(100), behind, row.seconds.text(digits=1))
    return table


def draw_embeddings(runs: list[Path], path: Path) -> None:
    """Test images on the first two principal axes of pixels and of each run's features; wrong answers are ringed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    data = load("digits")
    y = data.test_labels.numpy()
    nothing: NDArray[np.bool_] = np.zeros(len(y), dtype=bool)
    panels = [("pixels", plane(data.test.flatten(1).float()), nothing)]
    for run in runs:
        trained = Trained.open(run, device="cpu")
        wrong = trained.log_probabilities(data.test).argmax(1).numpy() != y
        name = ROWS[(trained.run.config.model.head,) * 2]
        panels.append((f"{name}: {wrong.sum()} of {len(y)} wrong", plane(trained.features(data.test)), wrong))
    figure = Figure(figsize=(3.1 * len(panels), 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    for axis, (title, place, wrong) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        axis.scatter(*place.T, c=y, cmap="tab10", s=7, linewidths=0)
        axis.scatter(*place[wrong].T, s=45, facecolors="none", edgecolors="black", linewidths=0.8)
        axis.set_title(title, fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
    with complete_file(path) as part:
        figure.savefig(part, format="png", dpi=110)


def plane(features: torch.Tensor) -> NDArray[Any]:
    """Two principal coordinates of rows of length one, which is what a graph is built from."""
    place: NDArray[Any] = PCA(2, random_state=0).fit_transform(unit_rows(features).double().numpy())
    return place
