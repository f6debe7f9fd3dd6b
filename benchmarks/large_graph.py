"""Large graphs: neighbour search, weights and solve, in time and peak memory, beside scikit-learn and graphlearning.

    python benchmarks/large_graph.py --json benchmarks/results/large-graph.json              everything, some minutes
    python benchmarks/large_graph.py --part mnist --part graphlearning --json FILE           only these, merged in
    python benchmarks/large_graph.py --part synthetic --sizes 10000,100000 --json FILE
    python benchmarks/large_graph.py --plot docs/figures/large_graph.png --json FILE --part none

MNIST: all 70,000 raw images, k = 10, ten labels a class, the same for everyone. Synthetic: a hundred clusters in 64
dimensions, each on a plane of 16 dimensions of its own with a little noise, ten clusters a class; k = 15, 1,000 labels.
Each row runs in a process of its own, so that its peak memory is its own (it includes the interpreter, the libraries
and the data). Seconds of one run each: compare rows of one run, on a quiet machine; the load is recorded. Images are
read from GLL_DATA/MNIST/raw; graphlearning is left out where it is not installed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from features import pixels
from record import environment, write_json
from rich.console import Console
from rich.table import Table

import gll
from gll.estimator import RTOL
from gll.fitted import groups_of
from gll.methods import method_from_name
from gll.projected import AutoSearch, recall
from gll.solvers import Auto, ConjugateGradient, Multilevel

METHODS = ("laplace", "poisson", "wnll", "auto")
PARTS = ("mnist", "scikit-learn", "graphlearning", "synthetic")
ROUNDS = 5  # of ten more labels; one where a solve takes long
SIZES = "10000,30000,100000,300000,1000000,3000000"


class Clock:
    """Seconds of named stages."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def __call__(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage], self._last = now - self._last, now


class Found(gll.AbstractNeighborSearch):
    """Neighbours that were found before: so that the graph can be timed without the search."""

    def __init__(self, index: torch.Tensor) -> None:
        self.index = index

    def find(self, x: torch.Tensor, k: int) -> torch.Tensor:
        return self.index


def choose_labels(y: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """`per_class` random rows of every class."""
    generator = np.random.default_rng(seed)
    return np.concatenate(
        [generator.choice(np.flatnonzero(y == c), per_class, replace=False) for c in range(int(y.max()) + 1)]
    )


def synthetic(n: int, d: int = 64, latent: int = 16, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A hundred clusters, each on a plane of its own; ten clusters a class."""
    generator = torch.Generator().manual_seed(seed)
    cluster = torch.randint(0, 100, (n,), generator=generator)
    middle, plane = torch.randn(100, d, generator=generator), torch.randn(100, latent, d, generator=generator)
    x = torch.empty(n, d)
    for c in range(100):
        rows = torch.nonzero(cluster == c).squeeze(1)
        x[rows] = middle[c] + torch.randn(len(rows), latent, generator=generator) @ plane[c] / latent**0.5
    return x.add_(torch.randn(n, d, generator=generator), alpha=0.1), cluster % 10


def accuracy(predicted: np.ndarray, y: np.ndarray, labelled: np.ndarray) -> float:
    free = np.ones(len(y), bool)
    free[labelled] = False
    return float((predicted[free] == y[free]).mean())


def known(y: torch.Tensor, labelled: np.ndarray) -> gll.Labels:
    classes = torch.full_like(y, -1)
    classes[labelled] = y[labelled]
    return gll.Labels.from_classes(classes, num_classes=int(y.max()) + 1, dtype=torch.float32)


def ours(
    x: torch.Tensor, y: torch.Tensor, k: int, per_class: int, methods: tuple[str, ...], seed: int, compare: bool = False
) -> dict[str, Any]:
    """Search, weights, every method, and its fastest solve after ten more labels, of `ROUNDS` tens."""
    labelled = choose_labels(y.numpy(), per_class, seed)
    search, clock = AutoSearch(), Clock()
    index = search(x, k)
    clock("search")
    graph = gll.knn_graph(x, k, search=Found(index))
    # As the classifier does it: the groups that precondition large solves are kept with the graph.
    solver = Auto(rtol=RTOL, multilevel=groups_of(graph) or Multilevel())
    clock("weights")
    row: dict[str, Any] = {"how": search.describe(*x.shape), "solve": {}, "again": {}, "accuracy": {}}
    free = np.setdiff1d(np.arange(len(y)), labelled)
    rounds = ROUNDS if len(y) <= 300_000 else 1
    new = np.random.default_rng(seed + 1).choice(free, (rounds, 10), replace=False)
    for name in methods:
        method = method_from_name(name)
        clock("")
        first = last = method.propagate(graph, known(y, labelled), solver=solver)
        clock("solve")
        again = []
        for done in range(1, rounds + 1):
            now = known(y, np.concatenate([labelled, *new[:done]]))
            clock("")
            last = method.propagate(graph, now, initial=last.score, solver=solver)
            clock("again")
            again.append(clock.seconds["again"])
        row["solve"][name], row["again"][name] = clock.seconds["solve"], min(again)
        row["accuracy"][name] = accuracy(first.score.argmax(1).numpy(), y.numpy(), labelled)
    row |= {"search": clock.seconds["search"], "weights": clock.seconds["weights"], "peak_mb": peak_mb()}
    row["recall"] = recall(x, index, k)
    if compare:
        row["solvers"] = solvers(graph, known(y, labelled))
    return row


def solvers(graph: gll.Graph, labels: gll.Labels) -> dict[str, Any]:
    """Steps and seconds of Laplace's equation, to the library's own tolerance, by several solvers."""
    found, groups = {}, Multilevel()
    for name, solver in {
        "ConjugateGradient()": ConjugateGradient(),
        "ConjugateGradient(preconditioner=Multilevel())": ConjugateGradient(preconditioner=groups),
        "ConjugateGradient(preconditioner=Multilevel(), single=True)": ConjugateGradient(
            preconditioner=groups, single=True
        ),
    }.items():
        clock = Clock()
        solution = gll.solve(gll.Laplace(), graph, labels, solver=solver)
        clock("solve")
        found[name] = {"steps": solution.steps, "seconds": clock.seconds["solve"], "error": solution.error}
    return found


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def mnist(seed: int) -> dict[str, Any]:
    x, y = pixels("MNIST")
    return ours(torch.from_numpy(x), torch.from_numpy(y), 10, 10, METHODS, seed, compare=True)


def scikit_learn(seed: int) -> dict[str, Any]:
    from sklearn.semi_supervised import LabelSpreading

    x, y = pixels("MNIST")
    labelled = choose_labels(y, 10, seed)
    given = np.full(len(y), -1)
    given[labelled] = y[labelled]
    clock = Clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # thirty iterations are its default, and not enough to converge
        model = LabelSpreading(kernel="knn", n_neighbors=10, n_jobs=-1).fit(x, given)
    clock("total")
    return {"total": clock.seconds["total"], "accuracy": {"spreading": accuracy(model.transduction_, y, labelled)},
            "peak_mb": peak_mb()}  # fmt: skip


def graph_learning(seed: int) -> dict[str, Any]:
    if importlib.util.find_spec("graphlearning") is None:
        return {"skipped": "graphlearning is not installed"}
    import graphlearning

    x, y = pixels("MNIST")
    labelled = choose_labels(y, 10, seed)
    clock = Clock()
    found = graphlearning.weightmatrix.knnsearch(x, 11, method="annoy")  # a point is its own first neighbour here
    clock("search")
    weights = graphlearning.weightmatrix.knn(None, 10, knn_data=found)
    clock("weights")
    row: dict[str, Any] = {"solve": {}, "accuracy": {}}
    models = {
        "laplace": graphlearning.ssl.laplace(weights),
        "poisson": graphlearning.ssl.poisson(weights),
        "wnll": graphlearning.ssl.laplace(weights, reweighting="wnll"),
    }
    for name, model in models.items():
        clock("")
        predicted = model.fit_predict(labelled, y[labelled])
        clock("solve")
        row["solve"][name], row["accuracy"][name] = clock.seconds["solve"], accuracy(predicted, y, labelled)
    row |= {"search": clock.seconds["search"], "weights": clock.seconds["weights"], "peak_mb": peak_mb()}
    index = torch.from_numpy(np.asarray(found[0], dtype=np.int64))
    own = (index == torch.arange(len(index))[:, None]).sort(dim=1, stable=True).indices
    row["recall"] = recall(torch.from_numpy(x), index.gather(1, own)[:, :10], 10)
    return row


def scaling(n: int, seed: int) -> dict[str, Any]:
    x, y = synthetic(n, seed=seed)
    return {"n": n, **ours(x, y, 15, 100, ("laplace",), seed)}


def in_own_process(part: str, n: int, seed: int, threads: int) -> dict[str, Any]:
    """One row, measured in a fresh process."""
    call = [sys.executable, __file__, "--row", json.dumps([part, n]), "--seed", str(seed), "--threads", str(threads)]
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    load = os.getloadavg()[0]
    done = subprocess.run(
        call, capture_output=True, text=True, env={**os.environ, **dict.fromkeys(names, str(threads))}
    )
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"}
    return {"load_before": load, **json.loads(done.stdout.splitlines()[-1])}


def show(rows: dict[str, dict[str, Any]]) -> None:
    table = Table("row", "recall", "search, s", "weights, s", "solve, s", "again, s", "accuracy", "peak, MB")
    for name, row in rows.items():
        if "failed" in row or "skipped" in row:
            table.add_row(name, row.get("failed") or row.get("skipped"))
            continue

        def numbers(key: str, form: str, row: dict[str, Any] = row) -> str:
            value = row.get(key, {})
            if isinstance(value, dict):
                return "\n".join(f"{m} {v:{form}}" for m, v in value.items())
            return f"{value:{form}}"

        table.add_row(
            name,
            numbers("recall", ".4f"),
            numbers("search" if "search" in row else "total", ".2f"),
            *(numbers(key, ".2f") for key in ("weights", "solve", "again")),
            numbers("accuracy", ".2%"),
            f"{row['peak_mb']:,.0f}",
        )
    Console(width=120).print(table)


def draw(rows: dict[str, dict[str, Any]], file: Path) -> None:
    """Time against the number of points."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    sizes = sorted((r for k, r in rows.items() if k.startswith("synthetic") and "n" in r), key=lambda r: r["n"])
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    n = [r["n"] for r in sizes]
    lines = {"search": [r["search"] for r in sizes], "weights": [r["weights"] for r in sizes]}
    lines["solve"] = [r["solve"]["laplace"] for r in sizes]
    for name, seconds in lines.items():
        axes.loglog(n, seconds, "o-", label=name)
    if sizes:
        total = sum(line[0] for line in lines.values())
        axes.loglog(n, [total * m / n[0] for m in n], "k:", lw=1, label="proportional to n")
    axes.set(xlabel="points (64 dimensions, k = 15)", ylabel="seconds")
    axes.legend()
    axes.grid(alpha=0.3)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def main(
    part: Annotated[list[str] | None, typer.Option(help=f"which rows: {', '.join(PARTS)}, none; repeatable")] = None,
    sizes: Annotated[str, typer.Option(help="numbers of synthetic points; 3,000,000 take about 12 GB")] = SIZES,
    threads: Annotated[int, typer.Option(help="CPU threads")] = 2,
    seed: Annotated[int, typer.Option(help="of the labels and the synthetic points")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write here, keeping rows not run now")] = None,
    plot: Annotated[Path | None, typer.Option(help="draw time against points here, from all rows")] = None,
    row: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Measure graphs of 10,000 to millions of points."""
    torch.set_num_threads(threads)
    if row is not None:
        name, n = json.loads(row)
        makers = {"mnist": mnist, "scikit-learn": scikit_learn, "graphlearning": graph_learning}
        print(json.dumps(scaling(n, seed) if name == "synthetic" else makers[name](seed)))
        return
    chosen = part or list(PARTS)
    if unknown := set(chosen) - {*PARTS, "none"}:
        raise typer.BadParameter(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}, none")
    record: dict[str, Any] = {"rows": {}}
    if json_file is not None and json_file.exists():
        record = json.loads(json_file.read_text())
    record |= environment() | {"threads": threads, "config": {"seed": seed, "sizes": sizes}}
    before = record.get("wall_s", 0.0)  # of the rows that were there
    jobs = [(p, 0) for p in PARTS[:3] if p in chosen]
    jobs += [("synthetic", int(n)) for n in sizes.split(",")] if "synthetic" in chosen else []
    start = time.perf_counter()
    for name, n in jobs:
        key = f"synthetic {n:,}" if n else name
        with Console(stderr=True).status(key):
            record["rows"][key] = in_own_process(name, n, seed, threads) | {"commit": record["commit"]}
        record["wall_s"] = before + time.perf_counter() - start
        if json_file is not None:
            write_json(json_file, record)  # after every row: a later one may take long, or be stopped
    show(record["rows"])
    if plot is not None:
        draw(record["rows"], plot)


if __name__ == "__main__":
    typer.run(main)
