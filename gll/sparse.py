"""Nearest neighbours of sparse rows, such as TF-IDF, that would not fit in memory as a dense matrix.

Products of sparse rows propose candidates, block by block: one block of rows times all others is made dense at a time,
of at most `max_bytes`. Candidates are ranked by true differences of the sparse rows, in float64. Edge lengths are true
differences too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from gll.features import Metric, power_of_two_scale
from gll.graph import Graph, Topology
from gll.similarity import Gaussian, SelfTuned, knn_bandwidth, pair_weight

MAX_BYTES = 256 * 2**20


def canonical(x: Any) -> scipy.sparse.csr_matrix:
    """CSR in float32 or float64, sorted, without repeats and without stored zeros."""
    x = scipy.sparse.csr_matrix(x, copy=True)
    if x.dtype not in (np.float32, np.float64):
        x = x.astype(np.float64)
    x.sum_duplicates()
    x.eliminate_zeros()
    return x


def prepared(x: scipy.sparse.csr_matrix, metric: Metric) -> scipy.sparse.csr_matrix:
    """Rows as the metric wants them, in float64: as they are, or of length one."""
    x = x.astype(np.float64)
    if metric is not Metric.COSINE:
        return x
    largest = np.asarray(abs(x).max(axis=1).todense()).ravel()
    x = scipy.sparse.diags(1 / np.where(largest > 0, largest, 1)) @ x
    length = np.sqrt(np.asarray(x.multiply(x).sum(1)).ravel())
    return scipy.sparse.csr_matrix(scipy.sparse.diags(1 / np.where(length > 0, length, 1)) @ x)


def sparse_sqdist(
    x: scipy.sparse.csr_matrix, i: NDArray[np.int64], y: scipy.sparse.csr_matrix, j: NDArray[np.int64]
) -> NDArray[np.float64]:
    """|x_i - y_j|² of pairs of rows, from true differences."""
    out = np.empty(len(i))
    for start in range(0, len(i), 65536):
        part = slice(start, start + 65536)
        gap = x[i[part]] - y[j[part]]
        out[part] = np.asarray(gap.multiply(gap).sum(1)).ravel()
    return out


def sparse_search(
    x: scipy.sparse.csr_matrix, y: scipy.sparse.csr_matrix, k: int, *, exclude_self: bool, max_bytes: int = MAX_BYTES
) -> tuple[Int[Tensor, "m k"], Tensor]:
    """Indices (m, k) of the rows of x nearest to every row of y, nearest first, and their squared distances.

    >>> x = scipy.sparse.csr_matrix([[0.0, 1.0], [0.0, 2.0], [5.0, 0.0]])
    >>> sparse_search(x, x, 1, exclude_self=True)[0].flatten().tolist()
    [1, 0, 0]
    """
    n, m = x.shape[0], y.shape[0]
    size = np.asarray(x.multiply(x).sum(1)).ravel()
    transposed = scipy.sparse.csr_matrix(x.T)
    wanted = min(k + 8, n - exclude_self)
    rows = max(1, max_bytes // (16 * n))
    index, distance = np.empty((m, k), np.int64), np.empty((m, k))
    for start in range(0, m, rows):
        stop = min(start + rows, m)
        near = size - 2 * (y[start:stop] @ transposed).toarray()  # |x - y|² but for |y|²
        if exclude_self:
            near[np.arange(stop - start), np.arange(start, stop)] = np.inf
        found = torch.from_numpy(near).topk(wanted, largest=False).indices.sort(1).values.numpy()
        row = np.repeat(np.arange(start, stop), wanted)
        exact = sparse_sqdist(y, row, x, found.ravel()).reshape(found.shape)
        order = np.argsort(exact, axis=1, kind="stable")[:, :k]  # ties go to the smaller index
        index[start:stop], distance[start:stop] = (np.take_along_axis(a, order, 1) for a in (found, exact))
    return torch.from_numpy(index), torch.from_numpy(distance)


def row_size(x: scipy.sparse.csr_matrix) -> Tensor:
    """(n, 1) the largest entry of every row: what the floor of a bandwidth is measured against."""
    return torch.from_numpy(np.asarray(abs(x).max(axis=1).todense()).ravel()[:, None])


def sparse_graph(x: scipy.sparse.csr_matrix, index: Int[Tensor, "n k"], dtype: torch.dtype) -> tuple[Graph, Tensor]:
    """The graph that `knn_graph` builds, from sparse rows and their neighbours; and ε of every node.

    Args:
        x: rows as the metric wants them, from `prepared`.
        index: (n, k) their neighbours.
        dtype: of the weights.
    """
    n, k = index.shape
    scale = power_of_two_scale(torch.from_numpy(x.data) if x.nnz else torch.ones(1, dtype=torch.float64))
    scaled = x / float(scale)
    row = torch.arange(n).repeat_interleave(k)
    topology, edge = Topology.from_pairs(n, row, index.flatten())
    sqdist = torch.from_numpy(sparse_sqdist(scaled, topology.i.numpy(), scaled, topology.j.numpy()))
    epsilon = knn_bandwidth(SelfTuned(), sqdist, edge.view(n, k), row_size(scaled), scale)
    weight = pair_weight(sqdist, epsilon[topology.i], epsilon[topology.j], Gaussian())
    return Graph(topology, weight.to(dtype)), scale * epsilon
