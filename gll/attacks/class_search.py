"""The nearest base nodes of every class, for many queries, in one search.

A search a class would be a loop of many small steps, each of which a GPU has to wait for. Here the base is laid out
class by class, filled up to the size of the largest one with points that are infinitely far, and all classes are
searched at once. As in `neighbors.py` a matrix product proposes, and where its rounding could decide, true differences
do.
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gll.neighbors import Exact, _product_eps
from gll.selection import sqdist_of_pairs

SPARE = 8  # candidates more than needed, among which true differences decide


@final
class ClassSearch:
    """Finds the nearest base nodes of every class.

    Args:
        base: (m, d) points.
        labels: (m,) their classes.
        points: how many of each class; all of one that has fewer. A class without any is left out.

    Differentiable in: nothing.

    >>> base, labels = torch.tensor([[0.0], [1.0], [2.0], [9.0]]), torch.tensor([0, 0, 0, 1])
    >>> ClassSearch(base, labels, 2)(torch.tensor([[1.8]]))
    (tensor([0, 0, 0]), tensor([2, 1, 3]))
    """

    def __init__(self, base: Float[Tensor, "m d"], labels: Int[Tensor, " m"], points: int) -> None:
        self.base, self.labels, self.points = base, labels, points
        labels = labels.long()
        counts = torch.bincount(labels)
        present = counts > 0
        place = torch.cumsum(present, 0) - 1  # of every class among those that there are
        counts = counts[present]
        first = torch.cumsum(counts, 0) - counts
        order = labels.argsort(stable=True)  # so that within a class a smaller number comes first
        row = place[labels[order]]
        column = torch.arange(len(base), device=base.device) - first[row]
        self.shape = (len(counts), int(counts.max()))
        self._node = torch.zeros(self.shape, dtype=torch.long, device=base.device)
        self._node[row, column] = order
        self._center = base.mean(0)
        self._padded = (base - self._center)[self._node.flatten()]
        filled = torch.arange(self.shape[1], device=base.device) < counts[:, None]
        self._size = torch.where(filled.flatten(), self._padded.square().sum(1), torch.inf)
        self._largest = torch.where(filled.flatten(), self._size, 0).max()
        self._width = min(points, self.shape[1])
        # A class with fewer nodes has empty places, always the last ones: known here, so nothing waits for it later.
        self._kept = filled[:, : self._width].flatten().nonzero()[:, 0]

    @torch.no_grad()
    def __call__(self, x: Float[Tensor, "q d"]) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
        """(query, base node) of every pair, query by query."""
        rows = max(1, Exact().max_bytes // (4 * len(self._padded) * x.element_size()))
        found = torch.cat([self._search(part) for part in x.split(rows)])
        found = found.flatten(1).index_select(1, self._kept)
        query = torch.arange(len(x), device=x.device).repeat_interleave(found.shape[1])
        return query, found.flatten()

    def _search(self, x: Float[Tensor, "q d"]) -> Int[Tensor, "q classes points"]:
        b = x - self._center
        own = b.square().sum(1)
        distance = torch.addmm(self._size, b, self._padded.T, alpha=-2).add_(own[:, None])
        wanted = min(self._width + SPARE, self.shape[1])
        value, column = distance.view(-1, *self.shape).topk(wanted, dim=2, largest=False)
        node = self._node.expand(len(x), -1, -1).gather(2, column)
        noise = 4 * _product_eps(x) * x.shape[1] ** 0.5 * (self._largest + own)
        if not bool(self._in_doubt(value, noise).any()):
            return node[:, :, : self._width]
        return self._settled(x, value, node, noise)

    def _in_doubt(self, value: Tensor, noise: Tensor) -> Bool[Tensor, "q classes"]:
        """Where rounding could decide who is in: the last that is, and the first that is not."""
        edge = value[:, :, self._width - 1 : self._width + 1]
        gap = edge.diff(dim=2)  # nan between two empty places, which is no doubt
        return (gap <= 2 * noise[:, None, None]).any(2)

    def _settled(self, x: Tensor, value: Tensor, node: Tensor, noise: Tensor) -> Tensor:
        """The candidates by true differences; ties go to the smaller number. In full where they may be too few."""
        empty = torch.isinf(value)
        number = torch.where(empty, len(self.base), node).sort(dim=2).values  # empty places last
        empty = number == len(self.base)
        flat = torch.where(empty, 0, number).flatten()
        row = torch.arange(len(x), device=x.device).repeat_interleave(flat.numel() // len(x))
        exact = sqdist_of_pairs(x, row, flat, other=self.base, dtype=torch.float64).view_as(value)
        exact, order = torch.where(empty, torch.inf, exact).sort(dim=2, stable=True)
        best = number.gather(2, order)[:, :, : self._width]
        if value.shape[2] < self.shape[1]:
            beyond = value[:, :, -1] - 2 * noise[:, None]
            open_rows = (exact[:, :, self._width - 1] >= beyond) & torch.isfinite(beyond)
            many = open_rows.any(1).nonzero()[:, 0]  # queries with many nodes at one distance
            for rows in many.split(max(1, Exact().max_bytes // (32 * len(self._padded)))):
                best[rows] = self._in_full(x[rows])
        return best

    def _in_full(self, x: Float[Tensor, "q d"]) -> Int[Tensor, "q classes points"]:
        distance = torch.cdist(x.double(), self.base.double(), compute_mode="donot_use_mm_for_euclid_dist")
        distance = distance[:, self._node].masked_fill(torch.isinf(self._size).view(self.shape), torch.inf)
        order = distance.sort(dim=2, stable=True).indices[:, :, : self._width]
        return self._node.expand(len(x), -1, -1).gather(2, order)
