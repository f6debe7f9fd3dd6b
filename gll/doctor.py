"""What one should know about a set of features before trusting a graph built from it."""

from __future__ import annotations

import math
import warnings
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gll.equations import Laplace
from gll.features import Metric
from gll.graph import Graph
from gll.implicit import solve
from gll.labels import Labels
from gll.similarity import knn_graph
from gll.solution import SolveError
from gll.unreached import UnreachedWarning

FEATURE_NAMES = ("features", "embeddings", "x", "X")
LABEL_NAMES = ("labels", "y", "Y")


@dataclass
class Report:
    """Findings about a set of features; every field is a plain number, so that it can be written as JSON."""

    points: int
    dimensions: int
    dtype: str
    k: int
    rows_not_finite: int
    zero_rows: int
    constant_dimensions: int
    duplicates: int
    largest_group_of_copies: int
    edges: int
    vanished_edges: int
    components: int
    largest_component: int
    isolated_points: int
    degree_min: float
    degree_median: float
    degree_max: float
    bandwidth_min: float
    bandwidth_median: float
    bandwidth_max: float
    labelled: int
    classes: int
    components_without_label: int
    unreached: int
    condition: float
    advice: list[str]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def load_npz(path: Path, features: str | None = None, labels: str | None = None) -> tuple[Tensor, Tensor | None]:
    """Features (n, d), and integer labels (n,) with -1 for unlabelled, from an .npz file; executes no code.

    Labels may be names of classes there, empty for unlabelled, as `gll embed` writes them.

    Args:
        path: the file.
        features, labels: names of the arrays; by default the usual names are tried.
    """
    if not Path(path).exists():
        raise ValueError(f"there is no file {path}")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not an .npz file; write one with numpy.savez(path, features=x, labels=y)")
    with np.load(path, allow_pickle=False) as file:
        names = list(file.keys())
        name = _pick(names, features, FEATURE_NAMES, "features")
        if name is None:
            raise ValueError(
                f"{path} has no array of features: it has {names}, expected one of {list(FEATURE_NAMES)}; "
                "name it by --features"
            )
        x = file[name]
        key = _pick(names, labels, LABEL_NAMES, "labels")
        y = None if key is None else file[key]
    if x.ndim != 2 or x.dtype.kind not in "fiu":
        raise ValueError(
            f"array '{name}' must be a (points, dimensions) array of numbers, got {x.dtype} of shape {x.shape}"
        )
    if y is not None and y.shape != (len(x),):
        raise ValueError(f"array '{key}' must have one label per point ({len(x)},), got shape {y.shape}")
    tensor = torch.from_numpy(x if x.dtype.kind == "f" else x.astype(np.float32))
    if y is not None and y.dtype.kind == "f":
        y = np.where(np.isfinite(y), y, -1).astype(np.int64)
    if y is not None and y.dtype.kind == "U":
        y = np.where(y == "", -1, np.unique(y[y != ""]).searchsorted(y))
    if y is not None and y.dtype.kind not in "iub":
        raise ValueError(
            f"array '{key}' must hold integers, -1 for unlabelled, or names, empty for unlabelled; got {y.dtype}"
        )
    return tensor, None if y is None else torch.from_numpy(y.astype(np.int64))


def _pick(names: list[str], wanted: str | None, usual: tuple[str, ...], what: str) -> str | None:
    if wanted is not None:
        if wanted not in names:
            raise ValueError(f"there is no array '{wanted}' for the {what}: the file has {names}")
        return wanted
    return next((name for name in usual if name in names), None)


def examine(x: Tensor, y: Tensor | None = None, *, k: int = 25, metric: Metric = Metric.EUCLIDEAN) -> Report:
    """Build the kNN graph of the features and look at it.

    Args:
        x: (n, d) features; rows that are not finite are counted and left out.
        y: (n,) integer classes, -1 for unlabelled, or None.
        k: neighbours of every point (reduced where there are fewer points).
        metric: as in `knn_graph`.

    >>> report = examine(torch.tensor([[0.0], [0.0], [1.0], [9.0]]), torch.tensor([0, -1, -1, 1]), k=1)
    >>> report.duplicates, report.unreached
    (1, 0)
    """
    n, d = x.shape
    dtype = str(x.dtype).removeprefix("torch.")
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    good = torch.isfinite(x).all(1)
    x, y = x[good], None if y is None else y[good]
    if len(x) < 2:
        raise ValueError(f"only {len(x)} of {n} rows are finite: a graph needs at least two")
    k = min(k, len(x) - 1)
    _, copies = torch.unique(x, dim=0, return_counts=True)
    graph = knn_graph(x, k, metric=metric)
    component = torch.bincount(graph.components)
    degree = graph.degree
    epsilon = _bandwidths(graph, k)
    report = Report(
        points=n,
        dimensions=d,
        dtype=dtype,
        k=k,
        rows_not_finite=n - len(x),
        zero_rows=int((x == 0).all(1).sum()),
        constant_dimensions=int((x == x[0]).all(0).sum()),
        duplicates=int((copies - 1).sum()),
        largest_group_of_copies=int(copies.max()),
        edges=graph.topology.num_edges,
        vanished_edges=int((graph.weight == 0).sum()),
        components=len(component),
        largest_component=int(component.max()),
        isolated_points=int((component == 1).sum()),
        degree_min=float(degree.min()),
        degree_median=float(degree.median()),
        degree_max=float(degree.max()),
        bandwidth_min=float(epsilon.min()),
        bandwidth_median=float(epsilon.median()),
        bandwidth_max=float(epsilon.max()),
        labelled=0,
        classes=0,
        components_without_label=0,
        unreached=0,
        condition=math.nan,
        advice=[],
    )
    if y is not None and bool((y >= 0).any()):
        _with_labels(report, graph, y)
    report.advice = _advice(report)
    return report


def _bandwidths(graph: Graph, k: int) -> Tensor:
    """Distance of every point to its k-th neighbour, seen by a bandwidth function that writes it down."""
    seen: list[Tensor] = []

    def note(distance: Tensor) -> Tensor:
        seen.append(distance[:, -1])
        return distance[:, -1]

    assert graph.features is not None
    knn_graph(graph.features, k, bandwidth=note)
    return seen[0]


def _with_labels(report: Report, graph: Graph, y: Tensor) -> None:
    index = torch.nonzero(y >= 0).squeeze(1)
    report.labelled, report.classes = len(index), len(torch.unique(y[index]))
    with_label = torch.zeros(report.components, dtype=torch.bool)
    with_label[graph.components[index]] = True
    report.components_without_label = int((~with_label).sum())
    # h with A h = degree is the expected number of steps of a random walk to a label, and bounds ‖A^-1 D‖.
    zero = Labels(index, torch.zeros(len(index), 1, dtype=graph.weight.dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreachedWarning)
        reach = solve(Laplace(), graph, zero, throw=False)
        report.unreached = reach.unreached
        try:
            steps = solve(Laplace(source=graph.degree.detach()), graph, zero)
            report.condition = 2 * float(steps.value.max())
        except SolveError:
            report.condition = math.inf


def _advice(r: Report) -> list[str]:
    """What to do about what was found, most important first."""
    tell = []
    if r.rows_not_finite:
        tell.append(
            f"{r.rows_not_finite} rows contain NaN or infinite values: look upstream; gll refuses such features"
        )
    if r.unreached:
        tell.append(
            f"{r.unreached} points are not reached by any label and would get a fallback value: "
            f"label one point in each of {r.components_without_label} components, or raise k"
        )
    elif r.components > 1 and not r.labelled:
        tell.append(f"the graph has {r.components} components: every one of them needs a label, or a larger k")
    if r.largest_group_of_copies > r.k:
        tell.append(
            f"a point has {r.largest_group_of_copies} copies, more than k = {r.k}: its copies only see each other; "
            "remove duplicates or raise k"
        )
    elif r.duplicates:
        tell.append(f"{r.duplicates} rows are exact copies of others; they share an edge of weight 1, which is fine")
    if r.condition > 1e8:
        tell.append("ill-conditioned: some points hang on the rest by very weak edges; a larger k, or tau > 0, helps")
    if r.bandwidth_min > 0 and r.bandwidth_max / r.bandwidth_min > 1e3:
        tell.append("densities differ by a factor of a thousand or more: keep the self-tuned bandwidth, or normalise")
    if not r.labelled:
        tell.append(
            "no labels in the file: reach and conditioning depend on them; add an array 'labels' (-1: unlabelled)"
        )
    elif r.labelled <= 0.01 * r.points:
        other = "Poisson or a reweighting" if r.components == 1 else "a reweighting (Poisson needs a connected graph)"
        tell.append(f"{r.labelled} labels for {r.points} points are few for Laplace: try {other}")
    return tell or ["nothing to worry about"]
