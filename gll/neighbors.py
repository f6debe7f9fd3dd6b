"""Which points are near: the k nearest neighbours of every point.

The search picks the topology of a graph. It returns integers only and passes no gradient; distances are
computed again, exactly, wherever they enter the mathematics (`similarity.edge_sqdist`). A point is excluded
from its own neighbours by its index, never by its distance, so that duplicates find each other.

`Exact` is fast and still exact. The quick way to all distances is one matrix product,
|x - y|² = |x|² + |y|² - 2<x, y>, which cancels catastrophically for points much closer to each other than
to the origin: the usual state of a well trained encoder. So the product only *proposes* candidates. Its
rounding error is bounded, rows whose order that error could change are ranked again with true differences,
and rows where even the candidates are in doubt (many ties) are searched in full. Ties go to the smaller index.

Read next: `similarity.py`. (`faiss.py` holds the approximate searches.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.selection import smallest, sqdist_of_pairs, symmetric_sqdist


class AbstractNeighborSearch(ABC):
    """Finds the k nearest neighbours of every row of x. Subclasses write `find`."""

    @final
    def __call__(self, x: Float[Tensor, "n d"], k: int) -> Int[Tensor, "n k"]:
        """Indices of the k nearest other rows, nearest first up to rounding; the last is the k-th nearest.

        Differentiable in: nothing.
        """
        n = x.shape[0]
        if not isinstance(k, int):
            raise TypeError(f"k must be an integer, got {k!r}")
        if not 1 <= k < n:
            raise ValueError(
                f"k = {k} neighbours were asked for among {n} points; k must be between 1 and {n - 1} "
                "(a point is not its own neighbour)"
            )
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            return self.find(x.detach(), k)

    @abstractmethod
    def find(self, x: Tensor, k: int) -> Tensor:
        """As `__call__`, without the checks."""

    def query(self, x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], k: int) -> Int[Tensor, "m k"]:
        """Indices of the k rows of x nearest to every row of y: exact, whatever the search."""
        if not 1 <= k <= x.shape[0]:
            raise ValueError(f"k = {k} neighbours were asked for among {x.shape[0]} points")
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            return Exact()._search(x.detach(), y.detach(), k, exclude_self=False)


@final
@dataclass(frozen=True)
class Exact(AbstractNeighborSearch):
    """Exact search, in chunks, on the device of the features.

    Args:
        max_bytes: bound on the temporary memory; chunks of rows are sized to stay within it.

    >>> Exact()(torch.tensor([[0.0], [1.0], [3.0]]), k=1).flatten().tolist()
    [1, 0, 1]
    """

    max_bytes: int = 256 * 2**20

    def find(self, x: Tensor, k: int) -> Tensor:
        return self._search(x, x, k, exclude_self=True)

    def _search(self, x: Tensor, y: Tensor, k: int, *, exclude_self: bool) -> Tensor:
        n, itself = x.shape[0], y is x
        wanted = min(k + 8, n - exclude_self)  # candidates a row, a few more than needed
        center = x.mean(0)
        a = x - center
        b = a if itself else y - center
        size_a = (a * a).sum(1)
        size_b = size_a if itself else (b * b).sum(1)
        # Rounding error of one entry of the product: |x||y| times d roundings at most, about sqrt(d) in practice.
        noise = 4 * _product_eps(x) * x.shape[1] ** 0.5 * (size_a.max() + size_b)
        rows = max(1, self.max_bytes // (4 * n * x.element_size()))
        chunks = []
        for start in range(0, y.shape[0], rows):
            part = slice(start, min(start + rows, y.shape[0]))
            if itself and part.stop - start == n and x.device.type == "cpu":
                distance = symmetric_sqdist(a, size_a)
            else:
                distance = torch.addmm(size_a, b[part], a.T, alpha=-2).add_(size_b[part, None])
            if exclude_self:
                distance.diagonal(start).fill_(torch.inf)
            value, index = smallest(distance, wanted)
            del distance
            chunks.append(self._settle(x, y[part], value, index, noise[part], k, exclude_self, start))
        return torch.cat(chunks)

    def _settle(
        self, x: Tensor, y: Tensor, value: Tensor, index: Tensor, noise: Tensor, k: int, exclude_self: bool, start: int
    ) -> Tensor:
        """The k nearest among the candidates, ranked by true differences wherever `noise` leaves a doubt."""
        # Only two gaps matter: between the (k-1)-th and the k-th (which point is the k-th), and between the k-th
        # and the next (which points are in). Elsewhere an exchange changes nothing.
        around = value[:, max(k - 2, 0) : k + 1].diff(dim=1)
        doubt = torch.nonzero((around <= 2 * noise[:, None]).any(1)).squeeze(1)
        found = index[:, :k]
        if doubt.numel() == 0:
            return found
        exact, ranked = self._rank(x, y[doubt], index[doubt])
        found = found.clone()
        found[doubt] = ranked[:, :k]
        # A point that is not a candidate lies beyond the last one, up to the noise. If that is not beyond the
        # k-th true distance, it might belong in: search the whole row.
        if index.shape[1] < x.shape[0] - exclude_self:
            open_rows = doubt[exact[:, k - 1] >= value[doubt, -1] - 2 * noise[doubt]]
            for rows in open_rows.split(max(1, self.max_bytes // (32 * x.shape[0]))):
                distance = torch.cdist(y[rows].double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist")
                if exclude_self:
                    distance[torch.arange(len(rows), device=x.device), rows + start] = torch.inf
                found[rows] = distance.sort(dim=1, stable=True).indices[:, :k]
        return found

    def _rank(self, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Candidates sorted by (true squared distance, index), with the distances."""
        index = index.sort(dim=1).values
        flat, row = index.flatten(), torch.arange(len(y), device=x.device).repeat_interleave(index.shape[1])
        # In double precision, so that float32 makes no ties where its features have none.
        distance = sqdist_of_pairs(y, row, flat, other=x, max_bytes=self.max_bytes, dtype=torch.float64)
        distance, order = distance.view(index.shape).sort(dim=1, stable=True)
        return distance, index.gather(1, order)


def _product_eps(x: Tensor) -> float:
    """Relative precision of a matrix product of x: coarser than its dtype where the user has allowed TF32."""
    tf32 = x.is_cuda and x.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    return 2.0**-10 if tf32 else torch.finfo(x.dtype).eps
