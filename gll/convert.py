"""Graphs from matrices, and components from graphs: where SciPy's world and ours meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from gll.graph import Graph, Topology


def graph_from_matrix(matrix: Any) -> Graph:
    """See `Graph.from_sparse`."""
    if scipy.sparse.issparse(matrix):
        coo = matrix.tocoo()
        floating = coo.data if np.issubdtype(coo.data.dtype, np.floating) else coo.data.astype(np.float64)
        row, col = (torch.from_numpy(a.astype(np.int64)) for a in (coo.row, coo.col))
        value, shape = torch.from_numpy(floating.copy()), coo.shape
    elif isinstance(matrix, Tensor):
        coo = (matrix if matrix.layout == torch.sparse_coo else matrix.to_sparse_coo()).coalesce()
        (row, col), value, shape = coo.indices(), coo.values(), tuple(matrix.shape)
    else:
        raise TypeError(f"expected a SciPy sparse matrix or a torch tensor, got {type(matrix).__name__}")
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"a weight matrix is square, got shape {shape}")
    if not bool(torch.isfinite(value).all()):
        raise ValueError("the weight matrix has entries that are not finite")
    if bool((value < 0).any()):
        raise ValueError(f"weights must not be negative, the smallest is {value.min().item():g}")
    off = row != col
    row, col, value = row[off], col[off], value[off]
    topology, edge = Topology.from_pairs(shape[0], row, col)
    upper, lower = row < col, row > col
    zero = value.new_zeros(topology.num_edges)
    above = zero.index_add(0, edge[upper], value[upper])
    below = zero.index_add(0, edge[lower], value[lower])
    # Beyond rounding; the worst such entry is named.
    gap = (above - below).abs() - 1e-6 * torch.maximum(above, below)
    if gap.numel() and bool((gap > 0).any()):
        e = int(gap.argmax())
        raise ValueError(
            f"the weight matrix is not symmetric: entry ({topology.i[e]}, {topology.j[e]}) is {above[e].item():g}, "
            f"its mirror image is {below[e].item():g}; pass (W + W.T) / 2 if that is what you mean"
        )
    return Graph(topology, (above + below) / 2)


def connected_components(topology: Topology, present: Bool[Tensor, " edges"]) -> Int[Tensor, " n"]:
    """Component number of every node, using the edges where `present`; stays on the tensors' device."""
    n, i, j = topology.num_nodes, topology.i, topology.j
    if i.device.type == "cpu":
        a, b = (t.numpy()[present.numpy()] for t in (i, j))
        matrix = scipy.sparse.coo_matrix((np.ones(len(a), np.int8), (a, b)), shape=(n, n))
        _, label = scipy.sparse.csgraph.connected_components(matrix, directed=False)
        return torch.from_numpy(label.astype(np.int64))
    # On a GPU: every node takes the smallest label among its neighbours, then the label of its label (pointer
    # jumping), until nothing changes. An absent edge becomes a loop at i, which does nothing.
    label = torch.arange(n, device=i.device)
    end = torch.where(present, j, i)
    while True:
        smallest = label.scatter_reduce(0, i, label[end], "amin").scatter_reduce(0, end, label[i], "amin")
        smallest = smallest[smallest]
        smallest = smallest[smallest]
        if torch.equal(smallest, label):
            return torch.unique(label, return_inverse=True)[1]
        label = smallest
