"""From the rows of X to a graph: copies of a row are one node, and nodes are joined to their nearest ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, final

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gll.distinct import distinct_rows, distinct_sparse_rows, same_direction, same_sparse_direction
from gll.features import Metric
from gll.fitted import Stages, find_device
from gll.graph import Graph
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.points import AbstractPoints, DensePoints, KnownSimilarities, Recorded, SparsePoints, direction_tolerance
from gll.projected import AutoSearch, Projected, progress_bar, recall
from gll.sparse import prepared


def nodes_of(
    x: Any, weight: NDArray[np.float64], metric: Metric | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], Tensor | None]:
    """Node of every row, first row of every node, and the mass of every node (None where all are one)."""
    rows = np.flatnonzero(weight > 0)
    kept = x if len(rows) == len(weight) else x[rows]
    if metric is None:
        group, first = np.arange(len(rows)), np.arange(len(rows))
    else:
        group, first = (t.cpu().numpy() for t in copies_of(kept, metric))
    if len(first) < 2:
        raise ValueError(
            f"a graph needs two distinct rows of X, but there is one sample only ({len(weight)} rows, "
            f"{len(rows)} of them of positive weight, n_features={x.shape[1]})"
            + ("; under the cosine metric multiples of a row are the same" if metric is Metric.COSINE else "")
        )
    node = np.full(len(weight), -1)
    node[rows] = group
    mass = np.bincount(group, weight[rows])
    return node, rows[first], None if (mass == 1).all() else torch.from_numpy(mass)


def copies_of(x: Any, metric: Metric) -> tuple[Tensor, Tensor]:
    """Node of every row, and first row of every node: equal rows are one node; for cosine, multiples of a row too."""
    sparse = scipy.sparse.issparse(x)
    group, first = distinct_sparse_rows(x) if sparse else distinct_rows(x)
    if metric is not Metric.COSINE:
        return group, first
    if sparse:
        dtype = torch.float32 if x.dtype == np.float32 else torch.float64
        again, kept = same_sparse_direction(prepared(x[first.numpy()], metric), direction_tolerance(dtype))
    else:
        again, kept = same_direction(metric.prepare(x[first]), direction_tolerance(x.dtype))
    return again[group], first[kept]


@final
@dataclass(frozen=True)
class GraphBuilder:
    """What the graph of a classifier depends on, besides its nodes.

    Args:
        metric: None where similarities are given.
        n_neighbors: of every node.
        search: how they are found.
        device: where similarities go; features are where they are to be already.
        verbose: show how far the search is.
        seed: called for the seed of the sample on which recall is measured, where it is.
    """

    metric: Metric | None
    n_neighbors: Any
    search: AbstractNeighborSearch
    device: Any
    verbose: int
    seed: Callable[[], int]

    def build(
        self, x: Any, row: NDArray[np.int64], mass: Tensor | None, stages: Stages
    ) -> tuple[AbstractPoints, Graph, float]:
        """The points and their graph, and the share of true neighbours that the search found.

        Args:
            x: all rows.
            row: first row of every node.
            mass: of every node.
            stages: told how long it takes.
        """
        metric = self.metric
        if metric is None:
            with stages("weights"):
                device = find_device(self.device or "cpu")
                mass = None if mass is None else mass.to(device)
                return *KnownSimilarities.build(x, torch.from_numpy(row), mass, device), 1.0
        k = self._neighbors(len(row))
        nodes = x if len(row) == x.shape[0] else x[row]
        if scipy.sparse.issparse(x):
            with stages("search and weights"):
                points, graph, seconds = SparsePoints.build(nodes, k, metric, mass)
            stages.add("search", seconds)
            stages.add("weights", stages.seconds.pop("search and weights") - seconds)
            return points, graph, 1.0
        recorded = Recorded(chosen(self.search, nodes))
        with stages("search and weights"), told(recorded, self.verbose):
            mass = None if mass is None else mass.to(x.device, x.dtype)
            dense, graph = DensePoints.build(nodes, k, metric, mass, recorded)
        stages.add("search", recorded.seconds)
        stages.add("weights", stages.seconds.pop("search and weights") - recorded.seconds)
        if isinstance(recorded.inner, Exact):
            return dense, graph, 1.0
        with stages("recall"):
            assert recorded.index is not None
            found = recall(dense.features, recorded.index, seed=self.seed())
        return dense, graph, found

    def _neighbors(self, nodes: int) -> int:
        k = self.n_neighbors
        if not isinstance(k, Integral) or isinstance(k, bool) or int(k) < 1:
            raise ValueError(f"n_neighbors must be an integer ≥ 1, got {k!r}")
        if int(k) >= nodes:
            warnings.warn(
                f"n_neighbors = {k}, but there are {nodes} distinct points: every point is joined to all "
                f"{nodes - 1} others",
                UserWarning,
                stacklevel=4,
            )
        return min(int(k), nodes - 1)


def chosen(search: AbstractNeighborSearch, x: Tensor) -> AbstractNeighborSearch:
    """The search itself, or the one that it would hand x to."""
    return search.choose(x.shape[0], x.shape[1], x.device) if isinstance(search, AutoSearch) else search


@contextmanager
def told(search: Recorded, verbose: int) -> Iterator[None]:
    """A progress bar for a search that can tell how far it is."""
    if not verbose or not isinstance(search.inner, Projected) or search.inner.progress is not None:
        yield
        return
    with progress_bar() as show:
        search.inner = replace(search.inner, progress=show)
        yield
