"""What a classifier keeps of its training points: how they became a graph, and how new points are joined to it.

Three kinds: points with dense features, points with sparse ones, and points that are known by their similarities only.
All say the same two things: the graph, and for a new point its neighbours among the nodes with their shares in it.
"""

from __future__ import annotations

import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gll.distinct import hash_rows, sparse_keys
from gll.extend import join, node_bandwidth, share_out
from gll.features import Metric, power_of_two_scale
from gll.graph import Graph
from gll.neighbors import AbstractNeighborSearch
from gll.similarity import Gaussian, knn_graph
from gll.sparse import canonical, prepared, row_size, sparse_graph, sparse_search

MAX_ENTRIES = 2**21  # of a table of neighbours that are given by similarities


class AbstractPoints(ABC):
    """The training points, one per node."""

    mass: Tensor | None  # (n,) how much every node counts, None for alike

    @abstractmethod
    def join(self, x: Any) -> tuple[Tensor, Tensor]:
        """Neighbours (m, k) of new points among the nodes, and their shares, which sum to one, or are all zero where a
        point has no neighbour."""

    def parts(self, x: Any) -> Iterator[Any]:
        """New points in parts whose neighbours fit in memory."""
        yield x

    @abstractmethod
    def keys(self, node: Tensor) -> NDArray[np.int64]:
        """A number for each of these nodes that depends on the point, not on its place among the others."""


@final
@dataclass(eq=False)
class Recorded(AbstractNeighborSearch):
    """A search that remembers what it found, and how long it took."""

    inner: AbstractNeighborSearch
    index: Tensor | None = field(default=None, repr=False)
    seconds: float = 0.0

    def find(self, x: Tensor, k: int) -> Tensor:
        start = time.perf_counter()
        self.index = self.inner(x, k)
        self.seconds = time.perf_counter() - start
        return self.index


def direction_tolerance(dtype: torch.dtype) -> float:
    """Rows of length one whose entries differ by no more are multiples of one row, but for rounding."""
    return 8 * torch.finfo(dtype).eps


def on_node(share: Tensor, here: Tensor) -> Tensor:
    """The shares, all on the nearest node where `here`."""
    first = torch.zeros_like(share)
    first[:, 0] = 1
    return torch.where(here[:, None], first, share)


def weighed(graph: Graph, mass: Tensor | None) -> Graph:
    """Edges times the masses of both ends: what merging copies of a node does."""
    if mass is None:
        return graph
    t = graph.topology
    m = mass.to(graph.weight.dtype)
    return graph.with_weight(graph.weight * m[t.i] * m[t.j])


@final
@dataclass(frozen=True, eq=False)
class DensePoints(AbstractPoints):
    """Points with features in a tensor.

    Args:
        features: (n, d) as the metric wants them.
        bandwidth: (n,) ε of the nodes.
        mass: (n,) or None.
        k, metric: neighbours of a new point, and the metric.
    """

    features: Tensor
    bandwidth: Tensor
    mass: Tensor | None
    k: int
    metric: Metric

    @classmethod
    def build(
        cls, x: Tensor, k: int, metric: Metric, mass: Tensor | None, search: Recorded
    ) -> tuple[DensePoints, Graph]:
        graph = knn_graph(x, k, search=search, metric=metric).detach()
        assert graph.features is not None
        assert search.index is not None
        points = cls(graph.features, node_bandwidth(graph.features, search.index), mass, k, metric)
        return points, weighed(graph, mass)

    def join(self, x: Any) -> tuple[Tensor, Tensor]:
        if scipy.sparse.issparse(x):
            x = torch.from_numpy(x.toarray())
        x = self.metric.prepare(x.to(self.features.device, self.features.dtype))
        index, share = join(self.features, self.bandwidth, x, self.k, mass=self.mass)
        if self.metric is Metric.COSINE and len(x):
            gap = torch.cat(
                [
                    (a - self.features[i]).abs().amax(1)
                    for a, i in zip(x.split(4096), index[:, 0].split(4096), strict=True)
                ]
            )
            share = on_node(share, gap <= direction_tolerance(x.dtype))
        return index, share

    def keys(self, node: Tensor) -> NDArray[np.int64]:
        return hash_rows(self.features[node]).cpu().numpy()


@final
@dataclass(frozen=True, eq=False)
class SparsePoints(AbstractPoints):
    """Points with features in a SciPy matrix that is not made dense.

    Args:
        features: (n, d) canonical CSR, as the metric wants it.
        bandwidth, mass, k, metric: as in `DensePoints`.
        dtype: of the weights.
    """

    features: scipy.sparse.csr_matrix
    bandwidth: Tensor
    mass: Tensor | None
    k: int
    metric: Metric
    dtype: torch.dtype

    @classmethod
    def build(
        cls, x: scipy.sparse.csr_matrix, k: int, metric: Metric, mass: Tensor | None
    ) -> tuple[SparsePoints, Graph, float]:
        """The points, their graph, and the seconds that the search took."""
        dtype = torch.float32 if x.dtype == np.float32 else torch.float64
        x = prepared(x, metric)
        start = time.perf_counter()
        index, _ = sparse_search(x, x, k, exclude_self=True)
        seconds = time.perf_counter() - start
        graph, epsilon = sparse_graph(x, index, dtype)
        return cls(x, epsilon, mass, k, metric, dtype), weighed(graph, mass), seconds

    def join(self, x: Any) -> tuple[Tensor, Tensor]:
        x = prepared(canonical(x.cpu().numpy() if isinstance(x, Tensor) else x), self.metric)
        k = min(self.k, self.features.shape[0])
        index, sqdist = sparse_search(self.features, x, k, exclude_self=False)
        data = self.features.data if self.features.nnz else np.ones(1)
        scale = power_of_two_scale(torch.from_numpy(data))
        mass = None if self.mass is None else self.mass.double()
        index, share = share_out(
            sqdist / scale**2, index, row_size(x) / scale, self.bandwidth / scale, mass, Gaussian(), scale
        )
        if self.metric is Metric.COSINE and x.shape[0]:
            gap = abs(x - self.features[index[:, 0].numpy()]).max(axis=1).todense()
            near = torch.from_numpy(np.asarray(gap).ravel() <= direction_tolerance(self.dtype))
            share = on_node(share, near)
        return index, share.to(self.dtype)

    def keys(self, node: Tensor) -> NDArray[np.int64]:
        rows = sparse_keys(self.features[node.cpu().numpy()])
        return np.fromiter((zlib.crc32(key) for key in rows), np.int64, len(node))


@final
@dataclass(frozen=True, eq=False)
class KnownSimilarities(AbstractPoints):
    """Points of which only similarities are known: a new point comes with its similarities to all training rows.

    Args:
        row: (n,) the training row of every node.
        num_rows: training rows.
        mass: (n,) or None.
        dtype, device: of the weights.
    """

    row: Tensor
    num_rows: int
    mass: Tensor | None
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def build(
        cls, w: scipy.sparse.csr_matrix, row: Tensor, mass: Tensor | None, device: torch.device
    ) -> tuple[KnownSimilarities, Graph]:
        dtype = torch.float32 if w.dtype == np.float32 else torch.float64
        if len(row) < w.shape[0]:
            keep = row.cpu().numpy()
            kept = w[keep][:, keep]
        else:
            kept = w
        graph = Graph.from_sparse(kept)
        topology = type(graph.topology)(graph.num_nodes, graph.topology.i.to(device), graph.topology.j.to(device))
        graph = Graph(topology, graph.weight.to(device))
        return cls(row.to(device), w.shape[0], mass, dtype, device), weighed(graph, mass)

    def join(self, x: Any) -> tuple[Tensor, Tensor]:
        x = scipy.sparse.csr_matrix(x[:, self.row.cpu().numpy()])
        if self.mass is not None:
            x = scipy.sparse.csr_matrix(x @ scipy.sparse.diags(self.mass.cpu().double().numpy()))
        m, width = x.shape[0], max(1, int(np.diff(x.indptr).max(initial=0)))
        index, weight = np.zeros((m, width), np.int64), np.zeros((m, width))
        row = np.repeat(np.arange(m), np.diff(x.indptr))
        place = np.arange(x.nnz) - x.indptr[:-1][row]
        index[row, place], weight[row, place] = x.indices, x.data
        largest = weight.max(1, keepdims=True)  # divided by first: sums of huge similarities stay finite
        weight = weight / np.where(largest > 0, largest, 1)
        total = weight.sum(1, keepdims=True)
        share = weight / np.where(total > 0, total, 1)
        return torch.from_numpy(index).to(self.device), torch.from_numpy(share).to(self.device, self.dtype)

    def parts(self, x: Any) -> Iterator[Any]:
        """Rows in order, cut where the table of neighbours, as wide as its widest row, would hold too many entries."""
        width, start, widest = np.maximum(np.diff(x.indptr), 1), 0, 0
        for end, wide in enumerate(width.tolist()):
            if end > start and max(widest, wide) * (end + 1 - start) > MAX_ENTRIES:
                yield x[start:end]
                start, widest = end, 0
            widest = max(widest, wide)
        yield x[start:]

    def keys(self, node: Tensor) -> NDArray[np.int64]:
        return self.row[node].cpu().numpy()  # similarities do not tell a point from another: take its place


def check_similarities(w: scipy.sparse.csr_matrix) -> None:
    """Raise unless similarities are finite and not negative, saying how many are not and where the first one is."""
    for bad, what in (
        (~np.isfinite(w.data), "Input X contains NaN or infinity"),
        (w.data < 0, "Negative values in data: similarities must not be negative"),
    ):
        if bad.any():
            at = int(bad.argmax())
            row = int(np.searchsorted(w.indptr, at, side="right")) - 1
            raise ValueError(
                f"{what} ({int(bad.sum())} of {w.nnz} stored entries, the first being entry ({row}, {w.indices[at]}), "
                f"which is {w.data[at]:g})"
            )
