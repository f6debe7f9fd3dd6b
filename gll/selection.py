"""Distances and the smallest of them, quickly. What they compute is one line each."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def symmetric_sqdist(a: Tensor, size: Tensor) -> Tensor:
    """|a_i - a_j|² for all pairs by products, computing only the blocks on and above the diagonal."""
    n, step = len(a), 192
    out = a.new_empty(n, n)
    for start in range(0, n, step):
        stop = min(start + step, n)
        strip = out[start:stop, start:]
        torch.addmm(size[start:], a[start:stop], a[start:].T, alpha=-2, out=strip).add_(size[start:stop, None])
        out[stop:, start:stop] = strip[:, stop - start :].T
    return out


def smallest(distance: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
    """The `wanted` smallest entries of every row, in order, and their columns: `topk`, faster on a CPU."""
    rows, n = distance.shape
    groups = 3 * wanted
    if distance.device.type != "cpu" or n < 4 * groups:
        return distance.topk(wanted, largest=False)
    # Split the columns into groups: the wanted-th smallest of the groups' minima bounds the wanted-th smallest entry,
    # and only a few entries lie below it. (Columns left over by the split need no group: a bound is a bound.) NumPy,
    # because it sorts short rows, and lists what is true, several times faster than PyTorch.
    minima = distance.as_strided((rows, n // groups, groups), (n, groups, 1)).amin(1).numpy()
    bound = np.partition(minima, wanted - 1, axis=1)[:, wanted - 1]
    entries = distance.contiguous().numpy()
    below = entries <= bound[:, None]
    if np.count_nonzero(below) > 4 * wanted * rows:  # many ties: listing them would take too much memory
        return distance.topk(wanted, largest=False)
    found = np.flatnonzero(below)
    row = found // n
    count = np.bincount(row, minlength=rows)
    width = int(count.max())
    place = row * width + np.arange(len(row)) - (np.cumsum(count) - count)[row]
    value, column = np.full((rows, width), np.inf, entries.dtype), np.zeros((rows, width), np.int64)
    value.reshape(-1)[place], column.reshape(-1)[place] = entries.reshape(-1)[found], found - row * n
    order = np.argsort(value, axis=1)[:, :wanted]
    in_order = (torch.from_numpy(np.take_along_axis(a, order, 1)) for a in (value, column))
    return next(in_order), next(in_order)


def sqdist_of_pairs(
    x: Tensor,
    i: Tensor,
    j: Tensor,
    *,
    other: Tensor | None = None,
    max_bytes: int | None = None,
    dtype: torch.dtype | None = None,
) -> Float[Tensor, " pairs"]:
    """|x_i - y_j|² from true differences in `dtype`, where y is `other` or x itself; chunked to stay in cache."""
    y = x if other is None else other
    budget = max_bytes or 256 * 2**20
    if x.device.type == "cpu":
        budget = min(budget, 2**20)  # measured: differences that stay in the cache are ten times faster
    step = max(1, budget // max(1, x.shape[1] * x.element_size()))
    dtype = dtype or x.dtype
    out = x.new_empty(i.numel(), dtype=dtype)
    for start in range(0, i.numel(), step):
        part = slice(start, start + step)
        difference = x.index_select(0, i[part]).to(dtype).sub_(y.index_select(0, j[part]))
        out[part] = torch.linalg.vecdot(difference, difference)
    return out
