"""Which settings of a config train best, judged by training images that were held out: the test set chooses nothing.

    python benchmarks/schedules.py configs/mnist-gll.toml --device cuda --json benchmarks/results/schedules.json

A sixth of the labelled training images, as many of each class as there are, takes the place of the test set. Finished
runs in --work are not repeated.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from record import environment, write_json
from rich.console import Console
from rich.table import Table

from gll.data import load

CANDIDATES = {
    "as it is": [],
    "60 epochs": ["train.epochs=60"],
    "60 epochs, rate 0.003": ["train.epochs=60", "train.lr=0.003"],
    "60 epochs, decay 1e-4": ["train.epochs=60", "train.weight_decay=1e-4"],
    "60 epochs, AdamW 0.002, decay 0.05": [
        "train.epochs=60",
        "train.optimizer=adamw",
        "train.lr=0.002",
        "train.weight_decay=0.05",
    ],
    "60 epochs, SGD 0.1, decay 5e-4": [
        "train.epochs=60",
        "train.optimizer=sgd",
        "train.lr=0.1",
        "train.weight_decay=5e-4",
    ],
    "60 epochs, batch 500": ["train.epochs=60", "train.batch=500"],
    "60 epochs, augmented": ["train.epochs=60", "data.augment=grey"],
}


def held_out(name: str, root: str, path: Path) -> None:
    """Write the training images of a data set as data of their own: every sixth of each class is for the test."""
    data = load(name, root or None)
    labels = data.train_labels.numpy()
    test = np.zeros(len(labels), bool)
    for c in np.unique(labels):
        test[np.flatnonzero(labels == c)[::6]] = True
    images = data.train.numpy()
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x_train=images[~test], y_train=labels[~test], x_test=images[test], y_test=labels[test])


def train(config: Path, settings: list[str], device: str, out: Path) -> dict[str, Any]:
    """What a run has ended with."""
    if not (out / "result.json").is_file():
        command = [sys.executable, "-m", "gll", "train", str(config), *settings, f"device={device}", f"out={out}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return dict(json.loads((out / "result.json").read_text()))


def main(
    config: Annotated[Path, typer.Argument(help="the config whose settings are tried")],
    json_file: Annotated[Path, typer.Option("--json", help="keep the figures here")],
    data: Annotated[str, typer.Option(help="the data set of the config")] = "mnist",
    data_root: Annotated[str, typer.Option(help="where data lies; else GLL_DATA or data/")] = "",
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    seeds: Annotated[int, typer.Option(help="seeds for each candidate")] = 2,
    jobs: Annotated[int, typer.Option(help="runs at a time")] = 1,
    work: Annotated[Path, typer.Option(help="runs and the held-out data")] = Path("out/schedules"),
    extra: Annotated[list[str] | None, typer.Option(help="key=value for all candidates")] = None,
) -> None:
    """Try settings of a config on held-out training images."""
    start = time.perf_counter()
    images = (work / f"{data}-held-out.npz").resolve()
    if not images.is_file():
        held_out(data, data_root, images)
    tasks = [(name, seed) for seed in range(seeds) for name in CANDIDATES]

    def one(task: tuple[str, int]) -> dict[str, Any]:
        name, seed = task
        settings = [*CANDIDATES[name], *(extra or []), f'data.name="{images}"', f"seed={seed}"]
        out = work / f"{list(CANDIDATES).index(name)}-{seed}"
        result = train(config, settings, device, out)
        row = {"candidate": name, "seed": seed, "error": result["error"], "seconds": result["seconds"]}
        print(f"{name}, seed {seed}: {100 * row['error']:.2f} %", flush=True)
        return row

    with ThreadPoolExecutor(jobs) as pool:
        rows = list(pool.map(one, tasks))
    means = {name: statistics.fmean(row["error"] for row in rows if row["candidate"] == name) for name in CANDIDATES}
    table = Table("candidate", "held-out error, %", "seeds", title=f"{config.name}, judged by held-out training images")
    for name in sorted(means, key=means.__getitem__):
        mine = [f"{100 * row['error']:.2f}" for row in rows if row["candidate"] == name]
        table.add_row(name, f"{100 * means[name]:.2f}", ", ".join(mine))
    Console().print(table)
    about = {"config": config.name, "data": data, "candidates": CANDIDATES, "seed": f"0 .. {seeds - 1}", "jobs": jobs}
    wall = round(time.perf_counter() - start, 1)
    write_json(json_file, environment(device) | {"config": about, "wall_s": wall, "rows": rows})


if __name__ == "__main__":
    typer.run(main)
