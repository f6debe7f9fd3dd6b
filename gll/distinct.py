"""Identical rows found once: which rows of a matrix are copies of an earlier one.

Every row is hashed to 64 bits by integer arithmetic, whose sums do not depend on the order of summation, so that equal
rows have equal hashes on every device. Rows of equal hash are then compared in full: a collision costs time, never
correctness.

Multiples of a row have one direction, but for rounding: `same_direction` finds them among rows of length one. Numbers
along one fixed random direction bring them side by side; neighbours in that order are then compared in full.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Int
from torch import Tensor


def distinct_rows(x: Tensor) -> tuple[Int[Tensor, " n"], Int[Tensor, " u"]]:
    """(n,) the number of every row's distinct row, and (u,) the first row that holds it, in order of appearance.

    Differentiable in: nothing.

    >>> node, first = distinct_rows(torch.tensor([[1.0], [2.0], [1.0]]))
    >>> node.tolist(), first.tolist()
    ([0, 1, 0], [0, 1])
    """
    x = x.detach()
    key = hash_rows(x)
    group, first = _number(key)
    if len(first) < len(x):
        original = first[group]
        copies = torch.nonzero(original != torch.arange(len(x), device=x.device)).squeeze(1)
        same = torch.cat([(x[part] == x[original[part]]).all(1) for part in copies.split(4096)])
        if not bool(same.all()):
            group, first = _number(torch.unique(x, dim=0, return_inverse=True)[1])
    return group, first


def _number(key: Tensor) -> tuple[Tensor, Tensor]:
    """Equal keys get equal numbers, in order of first appearance; and where each appears first."""
    n, device = len(key), key.device
    unique, inverse = torch.unique(key, return_inverse=True)
    first = torch.full((len(unique),), n, device=device).scatter_reduce(
        0, inverse, torch.arange(n, device=device), "amin"
    )
    first, order = first.sort()
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=device)
    return rank[inverse], first


def hash_rows(x: Tensor) -> Int[Tensor, " n"]:
    """64 bits of every row, the same on every device."""
    integer = torch.int32 if x.dtype == torch.float32 else torch.int64
    odd = torch.randint(-(2**62), 2**62, (x.shape[1],), generator=torch.Generator().manual_seed(0)) * 2 + 1
    odd = odd.to(x.device)
    rows = max(1, 2**18 // max(1, x.shape[1])) if x.device.type == "cpu" else max(1, 2**26 // x.shape[1])
    out = []
    for part in x.split(rows):
        bits = (part + 0.0).view(integer).long()  # -0.0 becomes 0.0
        # Round numbers have many zero bits at the end: mix before summing.
        bits = bits * 0x9E3779B97F4A7C1 + 0x7F4A7C15
        bits ^= bits >> 31
        out.append((bits * odd).sum(1))
    return torch.cat(out)


def distinct_sparse_rows(x: scipy.sparse.csr_matrix) -> tuple[Tensor, Tensor]:
    """As `distinct_rows`, for a SciPy matrix in canonical CSR form without stored zeros."""
    known: dict[bytes, int] = {}
    first: list[int] = []
    group = np.empty(x.shape[0], np.int64)
    for row, key in enumerate(sparse_keys(x)):
        group[row] = known.setdefault(key, len(first))
        if group[row] == len(first):
            first.append(row)
    return torch.from_numpy(group), torch.tensor(first)


def same_direction(x: Tensor, tolerance: float) -> tuple[Int[Tensor, " n"], Int[Tensor, " u"]]:
    """As `distinct_rows`, for distinct rows of length one that differ by no more than rounding.

    >>> from gll.features import unit_rows
    >>> x = torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 6.0], [0.0, 0.0]])
    >>> same_direction(unit_rows(x), 1e-6)[0].tolist()
    [0, 1, 0, 2]
    """
    along = torch.cat([part.double() @ _direction(x.shape[1]).to(x.device) for part in x.split(65536)])

    def near(a: Tensor, b: Tensor) -> Tensor:
        pairs = zip(a.split(4096), b.split(4096), strict=True)
        return torch.cat([(x[i] - x[j]).abs().amax(1) <= tolerance for i, j in pairs]) if len(a) else a.bool()

    return _merged(along, near, tolerance * x.shape[1])


def same_sparse_direction(x: scipy.sparse.csr_matrix, tolerance: float) -> tuple[Tensor, Tensor]:
    """As `same_direction`, for a SciPy matrix."""
    along = torch.from_numpy(np.asarray(x @ _direction(x.shape[1]).numpy()))

    def near(a: Tensor, b: Tensor) -> Tensor:
        gap = abs(x[a.numpy()] - x[b.numpy()])
        return torch.from_numpy(np.asarray(gap.max(axis=1).todense()).ravel() <= tolerance) if len(a) else a.bool()

    return _merged(along, near, tolerance * x.shape[1])


def _direction(columns: int) -> Tensor:
    return torch.rand(columns, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 - 1


def _merged(along: Tensor, near: Callable[[Tensor, Tensor], Tensor], reach: float) -> tuple[Tensor, Tensor]:
    """Runs of rows, in the order of `along`, whose members are near to the first row of the run."""
    value, order = along.sort(stable=True)
    joined = torch.zeros(len(along), dtype=torch.bool, device=along.device)
    close = torch.nonzero(value[1:] - value[:-1] <= reach).squeeze(1)
    joined[close + 1] = near(order[close], order[close + 1])
    place = torch.arange(len(along), device=along.device)
    head = torch.where(joined, 0, place).cummax(0).values
    # A chain of near rows may lead far away: who is not near to the first of them stays alone.
    member = torch.nonzero(joined).squeeze(1)
    away = member[~near(order[member], order[head[member]])]
    head[away] = away
    key = torch.empty_like(head)
    key[order] = head
    return _number(key)


def sparse_keys(x: scipy.sparse.csr_matrix) -> Iterator[bytes]:
    """Every row as bytes, of the same matrix form."""
    for start, stop in itertools.pairwise(x.indptr):
        yield x.indices[start:stop].tobytes() + x.data[start:stop].tobytes()
