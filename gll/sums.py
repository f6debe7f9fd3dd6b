"""Sums over edges, quickly, and on a GPU the same every time. What they compute is one line each."""

from __future__ import annotations

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float, Int
from torch import Tensor

FOLD = 64  # short rows that are read as one long one


def take(u: Tensor, index: Int[Tensor, " m"]) -> Tensor:
    """Rows of u. On a GPU in the form whose backward pass gives the same sum every time."""
    return u[index] if u.is_cuda else u.index_select(0, index)


def sum_into(bins: int, index: Int[Tensor, " m"], value: Tensor) -> Tensor:
    """Sum the rows of `value` into `bins` rows: the transpose of `take`, and deterministic on a GPU too."""
    zero = value.new_zeros(bins, *value.shape[1:])
    return zero.index_put((index,), value, accumulate=True) if value.is_cuda else zero.index_add(0, index, value)


def column_max(v: Float[Tensor, "m c"]) -> Float[Tensor, " c"]:
    """The largest entry of every column: `amax`, which is slow on a CPU where rows are short; so fold them first."""
    if v.device.type != "cpu" or len(v) < 2 * FOLD:
        return v.amax(0)
    whole = len(v) - len(v) % FOLD
    folded = v[:whole].reshape(whole // FOLD, -1).amax(0).view(FOLD, -1)
    return torch.cat([folded, v[whole:]]).amax(0)


def order_by(row: Int[Tensor, " m"], bins: int) -> Int[Tensor, " m"]:
    """Where to find the entries of row 0, of row 1, ...: a stable `argsort`, by SciPy's conversion in one pass."""
    if row.device.type != "cpu" or not len(row):
        return torch.argsort(row, stable=True)
    entry, shape = np.arange(len(row)), (bins, len(row))
    return torch.from_numpy(scipy.sparse.coo_array((entry, (row.numpy(), entry)), shape).tocsr().data)


def short_indices(matrix: Tensor) -> Tensor:
    """The same CSR matrix with 32-bit indices where they suffice: less memory to move in every product on a CPU."""
    if matrix.device.type != "cpu" or max(*matrix.shape, matrix.values().numel()) >= 2**31:
        return matrix
    parts = matrix.crow_indices().int(), matrix.col_indices().int(), matrix.values()
    return torch.sparse_csr_tensor(*parts, matrix.shape, check_invariants=False)


def weighted_differences(
    u: Float[Tensor, "n c"], i: Int[Tensor, " edges"], j: Int[Tensor, " edges"], weight: Float[Tensor, "edges _"]
) -> Float[Tensor, "edges c"]:
    """w (u(i) - u(j)). No gradient passes."""
    step = max(1, 2**20 // max(1, u.shape[1] * u.element_size()))
    if u.device.type != "cpu" or len(i) <= step:
        return weight * (take(u, i) - take(u, j))
    out = u.new_empty(len(i), u.shape[1])  # filled piece by piece, so that temporaries stay in the cache
    for a, b, w, part in zip(*(t.split(step) for t in (i, j, weight, out)), strict=True):
        torch.mul(u.index_select(0, a).sub_(u.index_select(0, b)), w, out=part)
    return out
