"""How often is a wrong answer not admitted?

Thousands of random nasty problems (`_nasty.py`) are solved and compared with answers that can be trusted
(`_reference.py`). An answer counts as *wrong* if some entry is off by more than 1e-4 of the largest one on a node that
was not reported as unreached, and no error was raised. Our count must be 0. Beside it, on the problems they can take, a
dense solve in float32 and scikit-learn's label propagation.

    python benchmarks/fails_safely.py --problems 5000
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.semi_supervised import LabelPropagation, LabelSpreading

import gll
from benchmarks import _reference as reference
from benchmarks._nasty import KINDS, SMALL, Task, draw
from benchmarks._reference import Array
from benchmarks.record import environment, write_json

TOLERANCE = 1e-4
SOLVED, ADMITTED, WRONG, CRASHED = "solved", "admitted failure", "wrong, not admitted", "crashed"


@dataclass
class Verdict:
    """What became of one problem."""

    status: str
    detail: str = ""
    cut_off: int = 0  # fallback nodes that no path joins to a label
    given_up: int = 0  # fallback nodes that are joined to one, by links too weak for float64
    gradient: str = ""


# The truth ----------------------------------------------------------------------------------------------------------


def dense_weight(graph: gll.Graph) -> Array:
    return graph.to_dense().detach().double().numpy()


def exact_columns(task: Task, weight: Array) -> list[reference.Exact]:
    """The task in arithmetic of several hundred digits, one problem per class."""
    index, value = task.problem.index, task.problem.value
    i, j = np.nonzero(np.triu(weight))
    edges = list(zip(i.tolist(), j.tolist(), weight[i, j].tolist(), strict=True))
    size = np.abs(np.log10(weight[i, j])).max(initial=0) + np.abs(np.log10(task.tau[task.tau > 0])).max(initial=0)
    digits = 60 + int(3 * size)
    columns = []
    for g, f in zip(value.T, task.source.T, strict=True):
        excess, load, fixed, mean_zero, flux = task.tau.copy(), f.copy(), dict[int, float](), None, reference.LINEAR
        match task.equation:
            case "SoftLaplace":
                excess[index] += task.parameters["lam"]
                load[index] += task.parameters["lam"] * g
            case "Poisson":
                load[index] += g - g.mean()
                mean_zero = weight.sum(1)
            case _:
                fixed = dict(zip(index.tolist(), g.tolist(), strict=True))
        if task.equation == "PLaplace":
            flux = reference.p_flux(task.parameters["p"], 1e-3)
        elif task.equation == "Elliptic":
            flux = reference.CUBIC
        columns.append(reference.Exact(edges, excess, load, fixed, mean_zero, flux, digits))
    return columns


def truth(task: Task, weight: Array) -> Array:
    """The answer, (n, C); NaN where the equation does not determine it."""
    n, index, value = len(weight), task.problem.index, task.problem.value
    if n <= SMALL:
        return np.stack([column.solve() for column in exact_columns(task, weight)], 1)
    if task.equation == "Laplace":
        return reference.laplace(weight, index, value, task.tau, task.source)
    excess, load = task.tau.copy(), task.source.copy()
    excess[index] += task.parameters["lam"]
    load[index] += task.parameters["lam"] * value
    return reference.harmonic(weight, excess, load)


def largest(task: Task, weight: Array, answer: Array, fallback: np.ndarray) -> Array:
    """What an error is measured against: the largest value solved for, for Poisson within the component."""
    size = np.nan_to_num(np.abs(answer)) * ~fallback[:, None]
    if task.equation != "Poisson":
        return np.broadcast_to(size.max(0), answer.shape)
    label = reference.components(weight)
    return np.stack([size[label == label[i]].max(0) for i in range(len(answer))])


def wrong_weights(task: Task, graph: gll.Graph) -> str:
    """Compare the weights of a graph built from features with their definition; ties may go either way.

    Points nearer to each other than the features' own rounding (but no duplicates) are left out: their bandwidths are
    floored.
    """
    assert task.problem.features is not None
    expected, distance, epsilon = reference.knn_weight(task.problem.features, task.problem.k)
    every = edge = dense_edges(graph)
    rounding = 2 * torch.finfo(task.dtype).eps * np.abs(task.problem.features).max(1)
    resolved = (epsilon > rounding) | (epsilon == 0)
    edge = edge & resolved[:, None] & resolved & ((distance > 4 * rounding[:, None]) | (distance == 0))
    off = np.where(edge, np.abs(dense_weight(graph) - expected), 0).max()
    if not off <= TOLERANCE:
        return f"weights off by {off:.1e}"
    nearest, reach = distance < epsilon[:, None] * (1 - 1e-5), np.maximum(epsilon[:, None], epsilon) * (1 + 1e-5)
    np.fill_diagonal(nearest, False)
    if (nearest & ~every).any() or (every & (distance > reach)).any():
        return "wrong neighbours"
    return ""


# Ours ---------------------------------------------------------------------------------------------------------------


def judge(task: Task) -> Verdict:
    """Solve a task with the library and compare."""
    if task.equation == "layer":
        return judge_layer(task)
    try:
        graph = task.problem.graph(task.dtype)
        weight = dense_weight(graph)
        leaf = graph.weight.detach().requires_grad_()
        equation, labels = task.as_equation(task.dtype), task.problem.labels(task.dtype)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            solution = gll.solve(equation, graph.with_weight(leaf), labels, solver=task.solver)
    except (gll.SolveError, ValueError) as error:
        return Verdict(ADMITTED, str(error)[-80:])
    except Exception as error:  # an error nobody planned is not an admission
        return Verdict(CRASHED, repr(error)[:200])
    if task.problem.features is not None and (wrong := wrong_weights(task, graph)):
        return Verdict(WRONG, wrong)
    value, expected = solution.value.detach().double().numpy(), truth(task, weight)
    fallback = np.zeros(len(value), bool) if solution.unreached_nodes is None else solution.unreached_nodes.numpy()
    told = any(issubclass(w.category, gll.UnreachedWarning) for w in caught)
    cut_off = np.isnan(expected).any(1)
    verdict = Verdict(SOLVED, "", int((fallback & cut_off).sum()), int((fallback & ~cut_off).sum()))
    if not np.isfinite(value).all():
        return Verdict(WRONG, "the solution is not finite")
    if solution.unreached != fallback.sum() or told != fallback.any():
        return Verdict(WRONG, "fallback nodes are not counted, or not warned of")
    if task.equation != "Poisson" and (cut_off & ~fallback).any():
        return Verdict(WRONG, "a node that no label reaches is not reported")
    scale = largest(task, weight, expected, fallback)
    error = np.abs(value - expected) / np.where(scale > 0, scale, 1)
    worst = float(error[~fallback & ~cut_off].max(initial=0))
    if worst > TOLERANCE:
        return Verdict(WRONG, f"off by {worst:.1e}")
    verdict.gradient = judge_gradient(task, weight, leaf, solution, fallback)
    return Verdict(WRONG, verdict.gradient) if verdict.gradient not in ("", SOLVED, ADMITTED) else verdict


def judge_layer(task: Task) -> Verdict:
    """The same for the layer, from its features: base nodes first, and against weights in extended precision."""
    assert task.problem.features is not None
    index, value = task.problem.index, task.problem.value
    order = np.concatenate([index, np.setdiff1d(np.arange(len(task.tau)), index)])
    m, n, classes = len(index), len(order), value.shape[1]
    x = torch.tensor(task.problem.features[order], dtype=task.dtype, requires_grad=True)
    tau, k, normalize = float(task.tau.max()), task.problem.k, bool(task.parameters["normalize"])
    layer = gll.GraphLearningLayer(classes, k=k, equation=gll.Laplace(tau=tau), normalize=normalize)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            out = layer(x[m:], x[:m], torch.tensor(value.argmax(1)))
            out.mul(torch.linspace(-1, 1, classes)).mean().backward()
        except (gll.SolveError, ValueError) as error:
            return Verdict(ADMITTED, str(error)[-80:])
        except Exception as error:
            return Verdict(CRASHED, repr(error)[:200])
        graph, solution = layer.last_graph, layer.last_solution
    assert graph is not None
    assert solution is not None
    assert x.grad is not None
    if not bool(torch.isfinite(out).all() and torch.isfinite(x.grad).all()):
        return Verdict(WRONG, "output or gradient is not finite")
    fallback = np.zeros(n, bool) if solution.unreached_nodes is None else solution.unreached_nodes.numpy()
    weight, distance, epsilon = reference.knn_weight(task.problem.features[order], k, normalize)
    eps, size = torch.finfo(task.dtype).eps, np.abs(task.problem.features[order]).max(1)
    least = 2 * eps * (np.ones(n) if normalize else size)
    coarse = ((epsilon > 0) & (epsilon <= least)) | ((distance > 0) & (distance <= 4 * least)).any(1)
    # Scaling to length one rounds: the answer is that of features a rounding away, felt as much as distances are short.
    rounding = 64 * eps / float(epsilon[epsilon > 0].min(initial=1)) if normalize else 0.0
    weight = np.where(dense_edges(graph), weight, 0)
    hard = np.eye(classes)[value.argmax(1)]
    expected = reference.laplace(weight, np.arange(m), hard, np.full(n, tau), np.zeros((n, classes)))
    cut_off = np.isnan(expected).any(1)
    verdict = Verdict(SOLVED, "", int((fallback & cut_off).sum()), int((fallback & ~cut_off).sum()))
    if coarse.any():  # features do not resolve some distances: any answer is that of features a rounding away
        return verdict
    if (cut_off & ~fallback).any():
        return Verdict(WRONG, "a node that no label reaches is not reported")
    got = np.concatenate([hard, out.detach().double().exp().numpy() - layer.floor])
    error = np.abs(got - expected)[~fallback & ~cut_off].max(initial=0)
    return Verdict(WRONG, f"off by {error:.1e}") if error > TOLERANCE + rounding else verdict


def dense_edges(graph: gll.Graph) -> np.ndarray:
    edge = np.zeros((graph.num_nodes, graph.num_nodes), bool)
    edge[graph.topology.i, graph.topology.j] = True
    return edge | edge.T


def judge_gradient(task: Task, weight: Array, leaf: torch.Tensor, solution: gll.Solution, fallback: np.ndarray) -> str:
    """Compare ∂J/∂ log w, J = Σ c u over the nodes that are solved for: a number between -1 and 1 when Σ|c| = 1."""
    rng = np.random.default_rng(len(weight))
    c = rng.normal(size=solution.value.shape) * ~fallback[:, None]
    if task.equation == "Poisson":  # u has mean zero by a projection that has a derivative of its own
        return ""
    c /= max(np.abs(c).sum(), 1e-300)
    try:
        (
            solution.value * torch.as_tensor(c, dtype=task.dtype)
        ).sum().backward() if solution.value.requires_grad else None
    except gll.SolveError:
        return ADMITTED
    except Exception as error:
        return "gradient crashed: " + repr(error)[:160]
    found = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    if not bool(torch.isfinite(found).all()):
        return "the gradient is not finite"
    if len(weight) > SMALL or task.equation in ("PLaplace", "Elliptic"):
        return ""
    columns = exact_columns(task, weight)
    expected = sum(column.log_weight_gradient(part) for column, part in zip(columns, c.T, strict=True))
    positive = leaf.detach() > 0
    error = np.abs((found * leaf.detach()).double().numpy()[positive.numpy()] - expected)
    scale = max(1.0, float(np.abs(task.source).sum()) and float(np.abs(expected).max(initial=0)))
    return SOLVED if error.max(initial=0) <= TOLERANCE * scale else f"gradient off by {error.max():.1e}"


# Others, on the same problems ---------------------------------------------------------------------------------------


def comparable(task: Task) -> bool:
    """Laplace's equation with hard labels: what the others solve, too."""
    return task.equation == "Laplace" and not task.tau.any() and not task.source.any() and task.problem.features is None


def judge_dense(task: Task, dtype: torch.dtype) -> Verdict:
    """The few lines everybody writes: L_uu u = W_ul g."""
    weight, index = dense_weight(task.problem.graph(task.dtype)), task.problem.index
    free = np.setdiff1d(np.arange(len(weight)), index)
    w, value = torch.as_tensor(weight, dtype=dtype), np.zeros((len(weight), task.problem.value.shape[1]))
    laplacian = torch.diag(w.sum(1)) - w
    value[index] = task.problem.value
    try:
        right = w[free][:, index] @ torch.as_tensor(task.problem.value, dtype=dtype)
        value[free] = torch.linalg.solve(laplacian[free][:, free], right).double().numpy()
    except torch.linalg.LinAlgError:
        return Verdict(ADMITTED)
    return compare(value, truth(task, weight))


def compare(value: Array, expected: Array) -> Verdict:
    """Competitors may leave NaN as an admission; an unreached node must not get a number."""
    admitted, cut_off = ~np.isfinite(value).all(1), np.isnan(expected).any(1)
    if (cut_off & ~admitted).any():
        return Verdict(WRONG, "a node that no label reaches is not reported")
    error = np.abs(value - expected)[~admitted & ~cut_off]
    if error.max(initial=0) > TOLERANCE:
        return Verdict(WRONG)
    return Verdict(ADMITTED if admitted.any() else SOLVED)


def judge_sklearn(task: Task, model: type[LabelPropagation] | type[LabelSpreading]) -> Verdict:
    """scikit-learn, given the same weights; an iteration that did not converge is admitted by its warning."""
    weight, index = dense_weight(task.problem.graph(task.dtype)), task.problem.index
    n, classes = len(weight), task.problem.value.shape[1]
    hard = task.problem.value.argmax(1)
    if classes < 2 or len(np.unique(hard)) < classes or not (task.problem.value.max(1) == 1).all():
        return Verdict("")  # cannot be stated there
    y = np.full(n, -1)
    y[index] = hard
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            fitted = model(kernel=lambda a, b: weight.copy(), max_iter=1000).fit(np.arange(n)[:, None], y)
        except Exception:
            return Verdict(ADMITTED)
    if any(issubclass(w.category, ConvergenceWarning) for w in caught):
        return Verdict(ADMITTED)
    if model is LabelPropagation:
        return compare(fitted.label_distributions_, truth(task, weight))
    return compare(fitted.label_distributions_, spread(weight, index, task.problem.value, fitted.alpha))


def spread(weight: Array, index: np.ndarray, value: Array, alpha: float) -> Array:
    """The fixed point of label spreading, F = α D^-1/2 W D^-1/2 F + (1-α) Y, with rows scaled to sum one."""
    degree = weight.sum(1)
    load = np.zeros((len(weight), value.shape[1]))
    load[index] = value
    u = np.full_like(load, np.nan)
    u[index] = value  # what a labelled node without neighbours keeps
    known = ~reference.undetermined(weight, np.isin(np.arange(len(weight)), index) * 1.0) & (degree > 0)
    if known.any():  # with F = D^1/2 G:  (α L + (1-α) D) G = (1-α) D^1/2 Y
        with np.errstate(divide="ignore"):
            d = np.log(degree[known])
            w = np.log(weight[np.ix_(known, known)]) + np.log(alpha)
            right = np.log(load[known]) + np.log1p(-alpha) + d[:, None] / 2
            log_f = reference.log_harmonic(w, d + np.log1p(-alpha), right) + d[:, None] / 2
        u[known] = np.exp(log_f - np.logaddexp.reduce(log_f, axis=1, keepdims=True))
    return u


OTHERS: dict[str, Callable[[Task], Verdict]] = {
    "dense solve, float32": lambda task: judge_dense(task, torch.float32),
    "dense solve, float64": lambda task: judge_dense(task, torch.float64),
    "scikit-learn LabelPropagation": lambda task: judge_sklearn(task, LabelPropagation),
    "scikit-learn LabelSpreading": lambda task: judge_sklearn(task, LabelSpreading),
}


# The run ------------------------------------------------------------------------------------------------------------


def run(problems: int, seed: int, *, others: bool = True, quiet: bool = False) -> dict[str, Counter[str]]:
    """Counts by row of the table; `failures` holds the numbers of the problems that were answered wrongly."""
    rows: dict[str, Counter[str]] = {name: Counter() for name in (*KINDS, "gll, the same problems", *OTHERS)}
    failures: Counter[str] = Counter()
    for number in track(range(problems), "solving", disable=quiet, transient=True):
        task = draw(seed, number)
        verdict = judge(task)
        rows[task.kind] += as_counts(verdict)
        if verdict.status in (WRONG, CRASHED):
            failures[f"{number}: {task}: {verdict.detail or verdict.status}"] += 1
        if others and comparable(task):
            rows["gll, the same problems"] += as_counts(verdict)
            for name, solve in OTHERS.items():
                rows[name] += as_counts(solve(task))
    return rows | {"failures": failures}


def as_counts(verdict: Verdict) -> Counter[str]:
    if not verdict.status:
        return Counter()
    counts = {"problems": 1, verdict.status: 1, "cut off": verdict.cut_off, "given up": verdict.given_up}
    return Counter(counts | {"gradients compared": int(verdict.gradient == SOLVED)})


def table(rows: dict[str, Counter[str]]) -> Table:
    columns = ("problems", SOLVED, ADMITTED, "cut off", "given up", "gradients compared", WRONG)
    out = Table(title=f"wrong: off by more than {TOLERANCE:g}, on a node not reported as unreached, without an error")
    out.add_column("problem")
    for name in columns:
        out.add_column(name, justify="right")
    total: Counter[str] = Counter()
    for name, counts in rows.items():
        if name == "failures":
            continue
        if name not in KINDS and total:
            out.add_row("all, gll", *_cells(total, columns), end_section=True, style="bold")
            total = Counter()
        if name in KINDS:
            total += counts
        if counts:
            out.add_row(name, *_cells(counts, columns))
    return out


def _cells(counts: Counter[str], columns: tuple[str, ...]) -> list[str]:
    return [f"{counts[c] + (counts[CRASHED] if c == WRONG else 0):,}" for c in columns]


def main(
    problems: Annotated[int, typer.Option(help="number of random problems")] = 3000,
    seed: Annotated[int, typer.Option(help="the same seed draws the same problems")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the counts to this file")] = None,
) -> None:
    """Count the wrong answers that are not admitted; exits with 1 if there are any of ours."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    rows = run(problems, seed)
    wall = time.perf_counter() - start
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table(rows))
    console.print(
        "cut off: fallback nodes that no path joins to a label; given up: joined by links too weak for float64"
    )
    failures = list(rows.pop("failures"))
    for line in failures:
        console.print(line, style="red", highlight=False)
    console.print(f"{problems} problems, seed {seed}, {wall:.0f} s: {len(failures)} wrong answers not admitted")
    if json_file is not None:
        record = environment() | {
            "benchmark": "fails_safely",
            "seed": seed,
            "config": {"problems": problems, "tolerance": TOLERANCE},
            "wall_seconds": round(wall, 1),
            "rows": {name: dict(counts) for name, counts in rows.items()},
            "failures": failures,
        }
        record["versions"] |= {name: version(name) for name in ("scikit-learn", "mpmath", "pyamg")}
        write_json(json_file, record)
    raise typer.Exit(bool(failures))


if __name__ == "__main__":
    typer.run(main)
