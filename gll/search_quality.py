"""How many of the true neighbours a search finds, on a random sample of the points.

`projected.py` measures with it beforehand what the wanted share takes; `recall` counts afterwards what was reached.
"""

from __future__ import annotations

import enum

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.features import power_of_two_scale
from gll.neighbors import Exact
from gll.selection import sqdist_of_pairs


class Purpose(enum.IntEnum):
    """What a random sample is for."""

    MEASURE = 0
    AXES = 1
    SAMPLE = 2
    FIRST = 3
    CHECK = 4


class RecallWarning(UserWarning):
    """A search is expected to miss more neighbours than it was asked to."""


def recall(
    x: Float[Tensor, "n d"], index: Int[Tensor, "n k"], k: int | None = None, sample: int = 1000, seed: int = 0
) -> float:
    """Share of the k true nearest neighbours that are in `index`, on a random sample of points, by exact search.

    A point as near as the k-th true neighbour counts as one: ties have no right answer.

    Args:
        x: the points.
        index: the neighbours that a search has found.
        k: how many of them to look at; all by default.
        sample: how many points to check; all points if there are fewer.
        seed: of the sample.

    Differentiable in: nothing.

    >>> x = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    >>> recall(x, torch.tensor([[1], [0], [1], [0]]))  # the last should be 2
    0.75
    """
    k = index.shape[1] if k is None else k
    x = x.detach()
    rows = draw(len(x), sample, seed, Purpose.CHECK).to(x.device)
    x = x / power_of_two_scale(x)  # exactly, so that ties stay ties
    true = true_neighbors(x, rows, k, Exact().max_bytes)
    found = index[rows, :k].to(x.device)
    sqdist = [sqdist_of_pairs(x, rows.repeat_interleave(k), i.flatten()).view(i.shape) for i in (true, found)]
    last = sqdist[0].amax(1, keepdim=True)
    hit = (sqdist[1] <= last * (1 + 4 * torch.finfo(x.dtype).eps)) & (found != rows[:, None])
    return float(hit.double().mean())


def draw(n: int, sample: int, seed: int, purpose: Purpose) -> Tensor:
    """A sorted random sample of the numbers below n; for each purpose another one.

    Were the points that the search is measured on also the first middles of cells, they would be found too easily.
    """
    generator = torch.Generator().manual_seed(1_000_003 * (purpose + 1) + seed)
    return torch.randperm(n, generator=generator)[:sample].sort().values


def true_neighbors(x: Tensor, rows: Tensor, k: int, max_bytes: int) -> Tensor:
    """The k nearest other points of some rows, by exact search."""
    found = Exact(max_bytes)._search(x, x[rows], k + 1, exclude_self=False)
    last = (found == rows[:, None]).sort(dim=1, stable=True).indices  # the point itself goes last, if it is there
    return found.gather(1, last)[:, :k]
