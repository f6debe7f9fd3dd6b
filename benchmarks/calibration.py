"""Do probabilities mean what they say? Expected calibration error, before and after fitting a temperature.

    python benchmarks/calibration.py                                  digits only, under a minute
    python benchmarks/calibration.py --datasets digits,MNIST,FashionMNIST --points 3000 \\
        --json benchmarks/results/calibration.json

The temperature is fitted on held-out *labels* (`calibrate=True`), never on the points that are scored: those without a
label. The error is that of 15 bins of equal width, in percent: the mean distance between confidence and accuracy.
scikit-learn's LabelSpreading stands beside as its users would have it. Mean over random draws of the labels.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from few_labels import load
from record import environment, write_json
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.semi_supervised import LabelSpreading

import gll
from gll.calibration import expected_calibration_error

METHODS = ("auto", "laplace", "poisson")


def scores(probability: np.ndarray, y: np.ndarray, free: np.ndarray) -> tuple[float, float]:
    """Accuracy and calibration error on the points without a label; rows that are no shares count as undecided."""
    p, truth = probability[free].copy(), y[free]
    p[~(np.abs(p.sum(1) - 1) < 1e-6)] = 1 / p.shape[1]
    return float((p.argmax(1) == truth).mean()), float(expected_calibration_error(p, truth))


def main(
    datasets: Annotated[str, typer.Option(help="any of digits,MNIST,FashionMNIST")] = "digits",
    points: Annotated[int, typer.Option(help="a random part of this size")] = 3000,
    labels: Annotated[str, typer.Option(help="labels a class")] = "2,5,10,50",
    trials: Annotated[int, typer.Option(help="random draws of the labels")] = 3,
    k: Annotated[int, typer.Option(help="neighbours of a point")] = 10,
    seed: Annotated[int, typer.Option(help="of the part and of the labels")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """Measure calibration."""
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore")
    start, rows, console = time.perf_counter(), list[dict[str, Any]](), Console(width=110)
    with Progress(console=console, transient=True) as progress:
        counts = [int(c) for c in labels.split(",")]
        bar = progress.add_task("", total=len(datasets.split(",")) * len(counts) * (len(METHODS) + 1))
        for dataset in datasets.split(","):
            task = load(dataset, "vae", points, k, seed, "cpu")
            x, y = task.x.numpy(), task.y.numpy()
            for count in counts:
                for name in (*METHODS, "scikit-learn LabelSpreading"):
                    progress.update(bar, description=f"{dataset}, {count} labels, {name}", advance=1)
                    row: dict[str, Any] = {"dataset": dataset, "points": len(y), "labels": count, "method": name}
                    row |= {"accuracy": [], "ece": [], "ece_calibrated": [], "temperature": []}
                    for trial in range(trials):
                        index = task.draw(count, trial, seed)
                        known, free = task.known(index).numpy(), np.ones(len(y), bool)
                        free[index] = False
                        if name in METHODS:
                            model: Any = gll.GraphLearningClassifier(name, n_neighbors=k, random_state=trial)
                            accuracy, error = scores(model.fit(x, known).label_distributions_, y, free)
                            model.set_params(calibrate=True).fit(x, known)
                            row["ece_calibrated"].append(scores(model.label_distributions_, y, free)[1])
                            row["temperature"].append(float(model.temperature_))
                        else:
                            model = LabelSpreading(kernel="knn", n_neighbors=k).fit(x, known)
                            accuracy, error = scores(model.label_distributions_, y, free)
                        row["accuracy"].append(accuracy)
                        row["ece"].append(error)
                    rows.append(row)
    table = Table("data", "labels a class", "method", "accuracy, %", "ECE, %", "ECE calibrated, %", "temperature")
    for row in rows:
        calibrated = [f"{100 * np.mean(row['ece_calibrated']):.1f}", f"{np.mean(row['temperature']):.2f}"]
        figures = [f"{100 * np.mean(row['accuracy']):.1f}", f"{100 * np.mean(row['ece']):.1f}"]
        both = calibrated if row["temperature"] else ["-", "-"]
        table.add_row(row["dataset"], str(row["labels"]), row["method"], *figures, *both)
    console.print(table)
    if json_file is not None:
        config = {"points": points, "trials": trials, "k": k, "seed": seed}
        wall = round(time.perf_counter() - start, 1)
        write_json(json_file, environment() | {"config": config, "wall_s": wall, "rows": rows})


if __name__ == "__main__":
    typer.run(main)
