"""Accuracy against the number of labels, for every acquisition function, one batch after the other.

    python benchmarks/active.py run --dataset digits                              a quick look, on data of scikit-learn
    python benchmarks/active.py run --dataset MNIST --nodes 10000 --json benchmarks/results/active-mnist.json
    python benchmarks/active.py run --dataset FashionMNIST --nodes 70000 --json benchmarks/results/active-fashion.json
    python benchmarks/active.py plot benchmarks/results/active-*.json --out docs/figures/active.png

All functions start from the same labels, drawn anew for every seed. Accuracy is that of the unlabelled nodes. A run can
be interrupted: with --json, what is done is kept and not done again. MNIST and FashionMNIST come as VAE features
(benchmarks/features.py) or as raw pixels.
"""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from features import features
from record import environment, write_json
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

import gll
from gll.active import ACQUISITIONS, Situation, acquisition_from_name, choose, selection_from_name
from gll.methods import AbstractMethod, method_from_name

EXACT_SEARCH = 20_000  # nodes; more are searched with faiss
SHOWN = (10, 20, 50, 100, 150, 200, 300)

app = typer.Typer(help=__doc__, rich_markup_mode=None)


def data(dataset: str, kind: str, nodes: int) -> tuple[Tensor, Tensor]:
    """Features and classes, of a fixed random subset where fewer nodes are wanted than there are."""
    if dataset == "digits":
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
    else:
        x, y = features(dataset, kind)
    keep = np.sort(np.random.default_rng(0).permutation(len(y))[: nodes or None])
    return torch.as_tensor(x[keep]), torch.as_tensor(y[keep])


def first_labels(y: Tensor, each: int, seed: int) -> Tensor:
    """`each` random nodes of every class."""
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    return torch.cat([order[y[order] == c][:each] for c in range(int(y.max()) + 1)])


def curve(
    graph: gll.Graph,
    y: Tensor,
    method: AbstractMethod,
    names: tuple[str, str],
    config: dict[str, Any],
    seed: int,
    priors: dict[Any, Any],
) -> dict[str, Any]:
    """One run: the numbers of labels, the accuracies, and the seconds spent on choosing and on solving."""
    options = {"rank": config["rank"]} if names[0] in ("vopt", "sigma-opt", "model-change") else {}
    acquisition, selection = acquisition_from_name(names[0], **options), selection_from_name(names[1])
    index, score = first_labels(y, config["start"], seed), None
    eye = torch.eye(int(y.max()) + 1, dtype=graph.weight.dtype)
    counts, accuracies, choosing, solving = [], [], 0.0, 0.0
    while True:
        begin = time.perf_counter()
        labels = gll.Labels(index, eye[y[index]])
        propagation = method.propagate(graph, labels, initial=score)
        score, middle = propagation.score, time.perf_counter()
        free = torch.ones(len(y), dtype=torch.bool).index_fill(0, index, False)
        counts.append(len(index))
        accuracies.append(round(float((propagation.classes == y)[free].double().mean()), 5))
        solving += middle - begin
        if len(index) >= config["most"]:
            return {"labels": counts, "accuracy": accuracies, "choose_s": choosing, "solve_s": solving}
        situation = Situation(graph, labels, propagation.probability, seed=1000 * seed + len(counts), priors=priors)
        picks = choose(acquisition, situation, min(config["batch"], config["most"] - len(index)), selection=selection)
        index = torch.cat([index, picks.index])
        choosing += time.perf_counter() - middle


@app.command()
def run(
    dataset: Annotated[str, typer.Option(help="digits, MNIST or FashionMNIST")] = "digits",
    kind: Annotated[str, typer.Option("--features", help="vae (cached by features.py) or pixels")] = "vae",
    nodes: Annotated[int, typer.Option(help="a random subset of so many; 0 for all")] = 0,
    k: Annotated[int, typer.Option(help="neighbours")] = 10,
    method: Annotated[str, typer.Option(help="how labels spread: a name of gll.methods.METHODS")] = "poisson",
    acquisitions: Annotated[str, typer.Option(help="names with commas between")] = ",".join(ACQUISITIONS),
    selections: Annotated[str, typer.Option(help="local-max, top-k, proportional")] = "local-max,top-k",
    start: Annotated[int, typer.Option(help="labels a class to begin with")] = 1,
    batch: Annotated[int, typer.Option(help="labels a round")] = 10,
    most: Annotated[int, typer.Option(help="labels to stop at")] = 300,
    seeds: Annotated[int, typer.Option(help="repeats, each from other first labels")] = 3,
    rank: Annotated[int, typer.Option(help="modes of the Gaussian field on more than 2,000 nodes")] = 200,
    threads: Annotated[int, typer.Option(help="CPU threads")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="keep the figures here, and go on from it")] = None,
) -> None:
    """Measure accuracy against the number of labels."""
    torch.set_num_threads(threads)
    warnings.simplefilter("ignore", gll.UnreachedWarning)
    x, y = data(dataset, kind, nodes)
    config: dict[str, Any] = {
        "dataset": dataset, "features": "pixels" if dataset == "digits" else kind, "nodes": len(y), "k": k,
        "method": method, "start": start, "batch": batch, "most": most,
        "rank": rank if len(y) > 2000 else None,
    }  # fmt: skip
    runs, spent = {}, 0.0
    if json_file is not None and json_file.exists():
        record = json.loads(json_file.read_text())
        if {key: record["config"].get(key) for key in config} != config:
            raise SystemExit(f"{json_file} holds figures of another configuration; move it away first")
        runs, spent = record["runs"], record["wall_s"]
    begin = time.perf_counter()
    graph = gll.knn_graph(x.double(), k, search=gll.Faiss() if len(y) > EXACT_SEARCH else None)
    spreading, priors = method_from_name(method), {}
    wanted = [(s, a, b) for s in range(seeds) for a in acquisitions.split(",") for b in selections.split(",")]
    left = [entry for entry in wanted if f"{entry[1]} {entry[2]} {entry[0]}" not in runs]
    for seed, a, b in track(left, description=dataset, disable=None):
        runs[f"{a} {b} {seed}"] = curve(graph, y, spreading, (a, b), config, seed, priors)
        if json_file is not None:
            wall = round(spent + time.perf_counter() - begin, 1)
            write_json(json_file, environment() | {"config": config | {"seed": f"0-{seeds - 1}"}, "wall_s": wall,
                                                   "runs": runs})  # fmt: skip
    Console(width=130).print(table(runs, config))


def means(runs: dict[str, Any]) -> dict[tuple[str, str], tuple[list[int], np.ndarray]]:
    """(selection, acquisition) -> the numbers of labels, and accuracies (seeds, rounds)."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, entry in runs.items():
        a, b, _ = name.split(" ")
        found.setdefault((b, a), []).append(entry)
    return {key: (group[0]["labels"], np.array([g["accuracy"] for g in group])) for key, group in found.items()}


def table(runs: dict[str, Any], config: dict[str, Any]) -> Table:
    shown = Table(title=f"{config['dataset']} ({config['features']}), {config['nodes']:,} nodes, {config['method']}: "
                        f"accuracy in % on unlabelled nodes, by number of labels")  # fmt: skip
    for name in ("selection", "acquisition"):
        shown.add_column(name)
    columns = [m for m in SHOWN if m in next(iter(runs.values()))["labels"]]
    for name in (*(str(m) for m in columns), "mean", "± (seeds)", "choose, s"):
        shown.add_column(name, justify="right")
    for (b, a), (labels, accuracy) in sorted(means(runs).items(), key=lambda kv: (kv[0][0], -kv[1][1].mean())):
        cells = [f"{100 * accuracy[:, labels.index(m)].mean():.1f}" for m in columns]
        over = 100 * accuracy.mean(1)
        seconds = np.mean([entry["choose_s"] for name, entry in runs.items() if name.startswith(f"{a} {b} ")])
        shown.add_row(b, a, *cells, f"{over.mean():.2f}", f"{over.std():.2f}", f"{seconds:.1f}")
    return shown


@app.command()
def plot(
    files: Annotated[list[Path], typer.Argument(help="JSON files of `run`")],
    out: Annotated[Path, typer.Option(help="PNG to write")] = Path("docs/figures/active.png"),
) -> None:
    """Draw the curves: one row per file, one column per selection."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    records = [json.loads(file.read_text()) for file in files]
    columns = sorted({key[0] for record in records for key in means(record["runs"])})
    figure, axes = plt.subplots(len(records), len(columns), figsize=(4.6 * len(columns), 3.3 * len(records)),
                                squeeze=False, sharex="row", sharey="row")  # fmt: skip
    for row, record in zip(axes, records, strict=True):
        config, found = record["config"], means(record["runs"])
        for axis, selection in zip(row, columns, strict=True):
            for number, name in enumerate(ACQUISITIONS):
                if (selection, name) not in found:
                    continue
                labels, accuracy = found[selection, name]
                style = {"color": "black", "linestyle": "--"} if name == "random" else {"color": f"C{number}"}
                axis.plot(labels, 100 * accuracy.mean(0), label=name, linewidth=1.2, **style)
            axis.set_title(f"{config['dataset']}, {config['nodes']:,} nodes, {selection}", fontsize=9)
            axis.set_xlabel("labels", fontsize=8)
            axis.tick_params(labelsize=8)
            axis.grid(alpha=0.3)
        row[0].set_ylabel("accuracy on unlabelled nodes, %", fontsize=8)
        low = float(np.quantile([a.mean(0) for _, a in found.values()], 0.04))  # the rest leave the frame
        row[0].set_ylim(bottom=max(0, 100 * low - 2))
    axes[0][-1].legend(fontsize=7, loc="lower right")
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=70)
    print(f"wrote {out}: {out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    app()
