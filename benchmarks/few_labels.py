"""Accuracy of every method with few labels: 1 to 100 a class, on digits, MNIST and FashionMNIST.

    python benchmarks/few_labels.py                                   digits only, a minute or two
    python benchmarks/few_labels.py --datasets digits,MNIST,FashionMNIST --points 10000 --trials 10 \\
        --json benchmarks/results/few-labels.json --plot docs/figures/few_labels.png

    python benchmarks/few_labels.py --datasets digits,MNIST,FashionMNIST --points 5000 --draws random,skewed \\
        --labels 2,5,10,20 --json benchmarks/results/few-labels-uneven.json

All methods see the same graph (k = 10, self-tuned weights) and, in a trial, the same labels; accuracy is that of the
nodes without a label, as mean ± standard deviation over the trials. `+ prior` means that the true shares of the classes
were given. scikit-learn builds its own graph, as its users would have it. It is the evidence for `method="auto"`.

Labels are drawn *even*: as many of each class; *random*: as many in all, from all points, but at least one of each
class; or *skewed*: the same, where in a random order each class has a third of the chances of the one before, down to
1/27 of the first.

The run is long, so finished cells are kept: with --json FILE it goes on where FILE ends, also after --seconds have
passed or after Ctrl-C. MNIST and FashionMNIST need benchmarks/features.py first.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from features import features
from record import environment, write_json
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelPropagation, LabelSpreading

import gll
from gll.methods import METHODS, method_from_name

LABELS = (1, 2, 3, 4, 5, 10, 20, 50, 100)
WITH_PRIOR = ("laplace", "poisson", "poisson-reweighted", "poisson-mbo", "volume-mbo")
PLAPLACE_LIMIT = 20_000  # points; one solve of ten classes takes minutes beyond


@dataclass(frozen=True, eq=False)
class Task:
    """One set of points, and the graph that all methods share."""

    x: torch.Tensor
    y: torch.Tensor
    graph: gll.Graph
    k: int

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1

    @property
    def prior(self) -> torch.Tensor:
        return torch.bincount(self.y, minlength=self.classes).double() / len(self.y)

    def draw(self, how: str, per_class: int, trial: int, seed: int) -> torch.Tensor:
        """(m,) labelled nodes. The first few of a trial are among its many, so that rows can be compared."""
        generator = np.random.default_rng([seed, trial])
        if how != "even":
            return self._uneven(generator, per_class * self.classes, 1 / 3 if how == "skewed" else 1.0)
        chosen = []
        for c in range(self.classes):
            members = np.flatnonzero(self.y.numpy() == c)
            chosen.append(generator.permutation(members)[:per_class])
        return torch.from_numpy(np.concatenate(chosen))

    def _uneven(self, generator: np.random.Generator, number: int, rarer: float) -> torch.Tensor:
        """One of every class, then the others from all points."""
        y = self.y.numpy()
        chance = (rarer ** np.minimum(generator.permutation(self.classes), 3))[y]
        order = generator.choice(len(y), len(y), replace=False, p=chance / chance.sum())
        first = np.array([order[y[order] == c][0] for c in range(self.classes)])
        return torch.from_numpy(np.concatenate([first, order[~np.isin(order, first)]])[:number])

    def known(self, index: torch.Tensor) -> torch.Tensor:
        known = torch.full_like(self.y, -1)
        known[index] = self.y[index]
        return known


Classifier = Callable[[Task, torch.Tensor], torch.Tensor]


def ours(name: str, prior: bool = False, **options: Any) -> Classifier:
    def run(task: Task, index: torch.Tensor) -> torch.Tensor:
        labels = gll.Labels.from_classes(task.known(index), num_classes=task.classes, dtype=task.graph.weight.dtype)
        share = task.prior if prior else None
        return method_from_name(name, **options).propagate(task.graph, labels, class_prior=share).classes

    return run


def scikit_learn(make: Callable[[Task, int], Any], semi_supervised: bool = True) -> Classifier:
    def run(task: Task, index: torch.Tensor) -> torch.Tensor:
        x, y = task.x.numpy(), task.y.numpy()
        model = make(task, len(index) // task.classes)
        if semi_supervised:
            model.fit(x, task.known(index).numpy())
            return torch.from_numpy(model.transduction_)
        model.fit(x[index], y[index])
        return torch.from_numpy(model.predict(x))

    return run


def graphlearning(make: Callable[[Any, Any, np.ndarray], Any]) -> Classifier:
    def run(task: Task, index: torch.Tensor) -> torch.Tensor:
        import graphlearning as gl

        model = make(gl, task.graph.to_scipy().astype(float), task.prior.numpy())
        found = model.fit_predict(index.numpy(), task.y[index].numpy())
        return torch.from_numpy(np.asarray(found).astype(np.int64))

    return run


def rows() -> dict[str, Classifier]:
    """Every row of the table by its name."""
    found: dict[str, Classifier] = {name: ours(name) for name in METHODS}
    found |= {f"{name} + prior": ours(name, prior=True) for name in WITH_PRIOR}
    found["scikit-learn LabelSpreading"] = scikit_learn(
        lambda task, _: LabelSpreading(kernel="knn", n_neighbors=task.k)
    )
    found["scikit-learn LabelPropagation"] = scikit_learn(
        lambda task, _: LabelPropagation(kernel="knn", n_neighbors=task.k)
    )
    found["scikit-learn k-NN"] = scikit_learn(
        lambda _, per_class: KNeighborsClassifier(n_neighbors=min(5, per_class)), semi_supervised=False
    )
    try:
        import graphlearning as _  # noqa: F401
    except ImportError:
        return found
    found["graphlearning laplace"] = graphlearning(lambda gl, w, _: gl.ssl.laplace(w))
    found["graphlearning wnll"] = graphlearning(lambda gl, w, _: gl.ssl.laplace(w, reweighting="wnll"))
    found["graphlearning poisson"] = graphlearning(lambda gl, w, _: gl.ssl.poisson(w))
    found["graphlearning poisson-mbo + prior"] = graphlearning(lambda gl, w, p: gl.ssl.poisson_mbo(w, class_priors=p))
    return found


def load(dataset: str, kind: str, points: int, k: int, seed: int, device: str) -> Task:
    if dataset == "digits":
        x, y = load_digits(return_X_y=True)
    else:
        x, y = features(dataset, kind)
    if 0 < points < len(x):
        keep = np.random.default_rng(seed).permutation(len(x))[:points]
        x, y = x[keep], y[keep]
    x, y = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)
    graph = gll.knn_graph(x.to(device), k)
    return Task(x, y, gll.Graph(graph.topology, graph.weight.double(), graph.features), k)


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("dataset", "features", "points", "k", "seed", "method", "labels")
    return (row.get("draw", "even"), *(row[name] for name in names))


def cells(store: dict[tuple[Any, ...], dict[str, Any]], dataset: str, method: str) -> dict[int, dict[str, Any]]:
    return {row["labels"]: row for row in store.values() if row["dataset"] == dataset and row["method"] == method}


def show(store: dict[tuple[Any, ...], dict[str, Any]], console: Console) -> None:
    for dataset in dict.fromkeys(row["dataset"] for row in store.values()):
        if any(row.get("draw", "even") != "even" for row in store.values()):
            return  # by benchmarks/tables.py
        some = next(row for row in store.values() if row["dataset"] == dataset)
        table = Table(
            title=f"{dataset} ({some['features']}, {some['points']:,} points, k = {some['k']}): accuracy in percent"
        )
        table.add_column("method \\ labels a class")
        counts = sorted({row["labels"] for row in store.values()})
        for count in counts:
            table.add_column(str(count), justify="right")
        table.add_column("s a run", justify="right")
        for method in dict.fromkeys(row["method"] for row in store.values() if row["dataset"] == dataset):
            found = cells(store, dataset, method)
            entries = [
                f"{100 * np.mean(found[c]['accuracy']):.1f} ± {100 * np.std(found[c]['accuracy']):.1f}"
                if c in found
                else "-"
                for c in counts
            ]
            seconds = np.mean([row["seconds"] for row in found.values()])
            table.add_row(method, *entries, f"{seconds:.2f}")
        console.print(table)


def draw(store: dict[tuple[Any, ...], dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    datasets = list(dict.fromkeys(row["dataset"] for row in store.values()))
    figure, axes = plt.subplots(1, len(datasets), figsize=(5 * len(datasets), 4.2), squeeze=False)
    for axis, dataset in zip(axes[0], datasets, strict=True):
        methods = [m for m in METHODS if m != "auto" and cells(store, dataset, m)] + ["scikit-learn LabelSpreading"]
        for number, method in enumerate(methods):
            found = sorted(cells(store, dataset, method).items())
            style = {"color": "black", "linestyle": "--"} if method.startswith("scikit") else {}
            if not style:
                style = {"color": plt.get_cmap("tab20")(number % 20)}
            mean = [100 * np.mean(row["accuracy"]) for _, row in found]
            axis.plot([c for c, _ in found], mean, marker="o", markersize=3, linewidth=1.2, label=method, **style)
        axis.set_xscale("log")
        axis.set_xticks(LABELS, [str(c) for c in LABELS])
        axis.minorticks_off()
        axis.set_title(dataset)
        axis.set_xlabel("labels a class")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("accuracy, %")
    axes[0][-1].legend(fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=75)


def main(
    datasets: Annotated[str, typer.Option(help="any of digits,MNIST,FashionMNIST")] = "digits",
    kind: Annotated[str, typer.Option("--features", help="of MNIST and FashionMNIST: vae or pixels")] = "vae",
    points: Annotated[int, typer.Option(help="a random part of this size; 0 for all points")] = 10_000,
    draws: Annotated[str, typer.Option(help="of the labels: any of even,random,skewed")] = "even",
    labels: Annotated[str, typer.Option(help="labels a class, on average")] = ",".join(map(str, LABELS)),
    trials: Annotated[int, typer.Option(help="random draws of the labels")] = 5,
    methods: Annotated[str, typer.Option(help="rows to run, by name; all by default")] = "",
    k: Annotated[int, typer.Option(help="neighbours of a point")] = 10,
    seed: Annotated[int, typer.Option(help="of the part and of the labels")] = 0,
    threads: Annotated[int, typer.Option(help="CPU threads")] = 1,
    seconds: Annotated[float, typer.Option(help="stop after this long; 0 for never")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="keep results here, and go on from them")] = None,
    plot: Annotated[Path | None, typer.Option(help="draw accuracy against labels into this file")] = None,
) -> None:
    """Compare the methods at few labels."""
    torch.set_num_threads(threads)
    start, console, store = time.perf_counter(), Console(width=170), dict[tuple[Any, ...], dict[str, Any]]()
    earlier = 0.0
    if json_file is not None and json_file.exists():
        before = json.loads(json_file.read_text())
        store, earlier = {key(row): row for row in before["rows"]}, before["wall_s"]
    available = rows()
    chosen = [name.strip() for name in methods.split(",") if name.strip()] or list(available)
    unknown = [name for name in chosen if name not in available]
    if unknown:
        raise SystemExit(f"unknown rows {unknown}; choose from: {', '.join(available)}")

    def in_order() -> list[dict[str, Any]]:
        """Rows as they are listed, whatever ran first."""
        names, sets = list(available), list(dict.fromkeys(row["dataset"] for row in store.values()))
        found = [row for row in store.values() if row["accuracy"] and row["method"] in available]
        return sorted(
            found, key=lambda r: (sets.index(r["dataset"]), r.get("draw", ""), names.index(r["method"]), r["labels"])
        )

    def save() -> None:
        if json_file is not None:
            config = {"seed": seed, "k": k, "points": points, "trials": trials, "features": kind}
            wall = round(earlier + time.perf_counter() - start, 1)
            write_json(json_file, environment() | {"config": config, "wall_s": wall, "rows": in_order()})

    ways = [way.strip() for way in draws.split(",")]
    if not set(ways) <= {"even", "random", "skewed"}:
        raise SystemExit(f"unknown draws {ways}; choose from even, random, skewed")
    places = [(way, trial, count) for way in ways for trial in range(trials) for count in map(int, labels.split(","))]
    try:
        for dataset in datasets.split(","):
            task = load(dataset, kind, points, k, seed, "cpu")
            with Progress(console=console, transient=True) as progress:
                bar = progress.add_task(dataset, total=len(places) * len(chosen))
                for way, trial, per_class in places:
                    index = task.draw(way, per_class, trial, seed)
                    for name in chosen:
                        progress.update(bar, description=f"{dataset}, {way}, {per_class} labels, {name}", advance=1)
                        if "plaplace" in name and len(task.y) > PLAPLACE_LIMIT:
                            continue
                        row: dict[str, Any] = {"dataset": dataset, "k": k, "points": len(task.y), "seed": seed}
                        row["features"] = "pixels" if dataset == "digits" else kind
                        row |= {"method": name, "labels": per_class} | ({} if way == "even" else {"draw": way})
                        row = store.setdefault(key(row), row | {"accuracy": [], "seconds": 0.0})
                        if len(row["accuracy"]) > trial:
                            continue
                        if 0 < seconds < time.perf_counter() - start:
                            raise KeyboardInterrupt
                        begin = time.perf_counter()
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore")  # of others, about iterations and unreached nodes
                            found = available[name](task, index)
                        taken = time.perf_counter() - begin
                        rest = torch.ones(len(task.y), dtype=torch.bool)
                        rest[index] = False
                        row["accuracy"].append(float((found.cpu() == task.y)[rest].double().mean()))
                        done = len(row["accuracy"])
                        row["seconds"] += (taken - row["seconds"]) / done
                    save()
    except KeyboardInterrupt:
        console.print("stopped early; the same command goes on from here")
    store = {key(row): row for row in in_order()}
    save()
    show(store, console)
    if plot is not None:
        draw(store, plot)


if __name__ == "__main__":
    typer.run(main)
