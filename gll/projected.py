"""Neighbour search at scale: look in nearby cells of a projection, then rank by true distances.

An exact search compares all pairs of points, in all dimensions. Both are more than is needed:

1. *Fewer dimensions.* The points are projected to their main axes (64 by default). Few dimensions hold most of a
   distance, so the nearest points are among the few dozen nearest in the projection.
2. *Fewer pairs.* k-means splits the projection into about 4√n cells. The points of one cell are compared with those of
   the nearest cells only: one matrix product, and a choice of the smallest entries, for the whole cell.
3. *True distances.* The candidates are ranked by true differences in the full space. What is found is exactly ranked;
   a neighbour may be missed, but never gets a wrong distance.
4. *Both ways.* A pair that only one of its points has found is offered to the other.

How many cells to visit and how many candidates to keep depends on the data, so both are measured: for a few hundred
points the true neighbours are searched in full, and it is counted how many of them lie how far away. The search then
does what the wanted share of them takes. Data without structure takes more work, up to a bound; beyond it a warning
says what share is reached.

Everything is drawn with a seed and done in a fixed order: the same points give the same neighbours. One cell is done
at a time, in a Python loop over tensors of bounded size, so Ctrl-C acts at once and leaves nothing behind.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.cells import by_distance, k_means, nearest_center, ranges, sorted_by, split_large
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.search_progress import Progress, progress_bar
from gll.search_quality import Purpose, RecallWarning, draw, recall, true_neighbors
from gll.selection import smallest, sqdist_of_pairs

faiss: Any
try:
    import faiss
except ImportError:  # slower, with the same result
    faiss = None

__all__ = ["AutoSearch", "Cells", "Progress", "Projected", "Projection", "RecallWarning", "progress_bar", "recall"]

CUDA_FACTOR = 50  # a GPU searches exactly among this many times more points than a CPU in the same time


@final
@dataclass(frozen=True)
class Projected(AbstractNeighborSearch):
    """Approximate search for many points: cells of a projection, ranked by true distances (see the module's text).

    Args:
        recall: share of the true neighbours to find, more or less: it is estimated from a sample.
        dims: dimensions of the projection; doubled until the candidates suffice. Points of few dimensions (up to half
            as many again) are not projected.
        sample: how many points are searched in full to measure what the wanted recall takes.
        max_visit: most points that any point is compared with. It bounds the time: n · max_visit comparisons.
        max_bytes: bound on the temporary memory of the search in cells; preparing it takes a centred copy of the points
            and 64 numbers a point besides.
        seed: of the sample and of k-means.
        progress: told how far the search is; see `progress_bar`.

    Differentiable in: nothing.

    >>> x = torch.randn(3000, 8, generator=torch.Generator().manual_seed(0))
    >>> index = Projected()(x, k=5)
    >>> recall(x, index) > 0.95
    True
    """

    recall: float = 0.99
    dims: int = 64
    sample: int = 256
    max_visit: int = 50_000
    max_bytes: int = 256 * 2**20
    seed: int = 0
    progress: Progress | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.recall <= 1:
            raise ValueError(f"recall is a share, above 0 and at most 1; got {self.recall}")
        for name in ("dims", "sample", "max_visit", "max_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    def find(self, x: Tensor, k: int) -> Tensor:
        return self.prepare(x, k).neighbors()

    def query(self, x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], k: int) -> Int[Tensor, "m k"]:
        """Indices of the k rows of x nearest to every row of y: exact for few rows, else by the cells of x.

        To ask more than once, keep what `prepare` returns.
        """
        n = x.shape[0]
        if y.shape[0] <= n // 50 or not 1 <= k < n:
            return Exact(self.max_bytes).query(x, y, k)
        return self.prepare(x, k).query(y)

    def prepare(self, x: Float[Tensor, "n d"], k: int) -> Cells:
        """The cells of x, and what finding k neighbours in them takes, to ask `neighbors()` and `query(y)` of."""
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            return _prepare(self, x.detach(), k)


@final
@dataclass(frozen=True, eq=False)
class Cells:
    """Points sorted into cells of their projection, ready to be searched.

    Args:
        search: the search that made this, with its bounds.
        x: (n, d) the points.
        k: neighbours a point.
        projection: from rows of the space of x to the projection.
        points: (n, dims) the projected points, sorted by cell.
        order: (n,) the row of x that each of them is.
        center: (C, dims) the middle of every cell.
        start: C + 1 numbers, where each cell starts in `points`.
        reach: cells are visited whose middle is within `reach` times the distance to the tenth nearest middle.
        candidates: how many of those are ranked by true distances.
        expected: share of true neighbours that this finds in the sample, not counting pairs found from the other side.
    """

    search: Projected
    x: Float[Tensor, "n d"]
    k: int
    projection: Projection
    points: Float[Tensor, "n dims"]
    order: Int[Tensor, " n"]
    center: Float[Tensor, "cells dims"]
    start: list[int]
    reach: float
    candidates: int
    expected: float

    def neighbors(self) -> Int[Tensor, "n k"]:
        """The neighbours of the points themselves; a point is not its own."""
        with torch.no_grad():
            sqdist, index = self._search(self.x, self.points, self.order, self.start, exclude_self=True)
            return _both_ways(sqdist, index, self.k)

    def query(self, y: Float[Tensor, "m d"]) -> Int[Tensor, "m k"]:
        """The neighbours of other points among these."""
        with torch.no_grad(), torch.autocast(y.device.type, enabled=False):
            projected = self.projection(y.detach())
            cell = nearest_center(projected, self.center, self.search.max_bytes)
            order, start = sorted_by(cell, len(self.center))
            return self._search(y.detach(), projected[order], order, start, exclude_self=False)[1][:, : self.k]

    def _search(
        self, y: Tensor, points: Tensor, order: Tensor, start: list[int], *, exclude_self: bool
    ) -> tuple[Tensor, Tensor]:
        """Nearest candidates of rows of y by true distance, and the distances; `points` are those rows, by cell."""
        keep = min(self.candidates - exclude_self, 2 * self.k)
        index = torch.empty(len(y), keep, dtype=torch.int64, device=y.device)
        sqdist = y.new_empty(len(y), keep)
        first = torch.tensor(self.start, device=y.device)
        size = first.diff()
        cells = [c for c in range(len(self.center)) if start[c + 1] > start[c]]
        done = 0
        for chunk in torch.tensor(cells).split(256):
            for c, near in zip(chunk.tolist(), self._nearest_cells(chunk), strict=True):
                # About the cell's middle: the product below cancels less, the closer the points are to the origin.
                there = ranges(first[near], size[near])
                b = self.points.index_select(0, there).sub_(self.center[c])
                length = torch.linalg.vecdot(b, b)
                rows = max(1, self.search.max_bytes // (16 * len(b)))
                for begin in range(start[c], start[c + 1], rows):
                    part = slice(begin, min(begin + rows, start[c + 1]))
                    distance = torch.addmm(length, points[part] - self.center[c], b.T, alpha=-2)
                    _, found = smallest(distance, self.candidates)
                    row, found = order[part], self.order[there[found]]
                    sqdist[row], index[row] = self._ranked(y, row, found, keep, exclude_self)
                done += start[c + 1] - start[c]
                if self.search.progress:
                    self.search.progress("searching", done, len(y))
        return sqdist, index

    def _nearest_cells(self, cells: Tensor) -> Iterator[Tensor]:
        """For each of some cells, those within reach, itself first, with enough points and not too many."""
        size = torch.tensor(self.start, device=self.center.device).diff()
        near, distance = by_distance(self.center, cells.to(self.center.device))
        total = size[near].cumsum(1)
        inside = (distance <= self.reach) & (total <= self.search.max_visit)
        many = torch.maximum(inside.sum(1), (total < 2 * self.candidates).sum(1) + 1)
        return (row[:m] for row, m in zip(near, many.tolist(), strict=True))

    def _ranked(self, y: Tensor, row: Tensor, found: Tensor, keep: int, exclude_self: bool) -> tuple[Tensor, Tensor]:
        """Candidates by (true squared distance, index), the nearest `keep`."""
        found = found.sort(dim=1).values
        sqdist = _sqdist(y, row, found, self.x, self.search.max_bytes)
        if exclude_self:
            sqdist = sqdist.masked_fill(found == row[:, None], torch.inf)
        sqdist, order = sqdist.sort(dim=1, stable=True)
        return sqdist[:, :keep], found.gather(1, order[:, :keep])


@final
@dataclass(frozen=True)
class AutoSearch(AbstractNeighborSearch):
    """Exact where that takes seconds, otherwise `Projected`.

    Args:
        max_exact: most points searched exactly on a CPU, in up to 128 dimensions; fewer in more, so that the work is
            the same. On a GPU fifty times as many.
        projected: the search for more points.

    Differentiable in: nothing.

    >>> AutoSearch().describe(1000, 50)
    'exact: 1,000 points are within the 20,000 of an exact search'
    >>> AutoSearch().describe(70_000, 784)
    'projected: 70,000 points are more than the 8,081 of an exact search in 784 dimensions'
    """

    max_exact: int = 20_000
    projected: Projected = Projected()

    def limit(self, d: int, device: torch.device | str = "cpu") -> int:
        """Most points in d dimensions that are searched exactly."""
        factor = CUDA_FACTOR if torch.device(device).type == "cuda" else 1
        return int(self.max_exact * factor * math.sqrt(128 / max(d, 128)))

    def choose(self, n: int, d: int, device: torch.device | str = "cpu") -> AbstractNeighborSearch:
        """The search that n points in d dimensions get."""
        return Exact() if n <= self.limit(d, device) else self.projected

    def describe(self, n: int, d: int, device: torch.device | str = "cpu") -> str:
        """Which search n points in d dimensions get, and why."""
        limit = self.limit(d, device)
        where = f" in {d} dimensions" if d > 128 else ""
        if n <= limit:
            return f"exact: {n:,} points are within the {limit:,} of an exact search{where}"
        return f"projected: {n:,} points are more than the {limit:,} of an exact search{where}"

    def find(self, x: Tensor, k: int) -> Tensor:
        return self.choose(len(x), x.shape[1], x.device).find(x, k)

    def query(self, x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], k: int) -> Int[Tensor, "m k"]:
        """Indices of the k rows of x nearest to every row of y."""
        return self.choose(len(x), x.shape[1], x.device).query(x, y, k)


@final
@dataclass(frozen=True, eq=False)
class Projection:
    """x -> (x - mean)/scale · axes, in float32; `axes` None: no projection, only the shift and the scale."""

    mean: Tensor
    scale: Tensor
    axes: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        # In chunks: the shifted points may be as large as all points.
        shifted = (((part - self.mean) / self.scale).float() for part in x.split(8192))
        return torch.cat([part if self.axes is None else part @ self.axes for part in shifted])


def _prepare(search: Projected, x: Tensor, k: int) -> Cells:
    n, d = x.shape
    if not 1 <= k < n:
        raise ValueError(f"k = {k} neighbours were asked for among {n} points; k must be between 1 and {n - 1}")
    tell = search.progress or (lambda stage, done, total: None)
    tell("measuring", 0, 3)
    rows = draw(n, search.sample, search.seed, Purpose.MEASURE).to(x.device)
    true = true_neighbors(x, rows, k, search.max_bytes)
    tell("measuring", 1, 3)
    # Each of the two steps, the projection and the cells, may lose half of what may be lost.
    share = (1 + search.recall) / 2
    main = _main_axes(x, search.seed)
    dims = search.dims
    while True:
        projected = dims * 3 // 2 < d
        projection = Projection(
            main.mean, main.scale, main.axes[:, :dims] if projected and main.axes is not None else None
        )
        points = projection(x)
        most = min(n, max(4 * k, 64) + 8) if projected else min(n, k + 1 + 8)
        rank = _rank_of(points, rows, true, most, search.max_bytes) if projected else torch.zeros_like(true)
        if not projected or int((rank < most).sum()) >= share * rank.numel():
            break
        dims *= 2
    tell("measuring", 2, 3)
    # A few more than the sample needs: the noise of the product, and the point itself.
    candidates = min(most, int(_quantile(rank, share)) + 2 + k // 4) if projected else most
    candidates = max(candidates, min(n, k + 1))

    center = k_means(points, min(n, round(4 * math.sqrt(n))), search.seed, search.max_bytes, tell)
    cell, center = split_large(nearest_center(points, center, search.max_bytes), center)
    order, start = sorted_by(cell, len(center))
    size = torch.tensor(start, device=x.device).diff()
    near, distance = by_distance(center, cell[rows])
    place = torch.empty_like(near).scatter_(1, near, torch.arange(len(center), device=x.device).expand_as(near))
    place = place.gather(1, cell[true])  # of the cell of every true neighbour among the nearest cells
    needed = distance.gather(1, place)
    reach = float(_quantile(needed, share))
    visited = size[near].cumsum(1)
    inside = (needed <= reach) & (visited.gather(1, place) <= search.max_visit)
    expected = float((inside & (rank < candidates)).double().mean())
    if expected < search.recall - 0.02:
        warnings.warn(
            f"about {expected:.0%} of the nearest neighbours will be found, not the {search.recall:.0%} asked for: "
            f"{search.max_visit:,} points visited for each point are too few for these features. Raise max_visit "
            "(slower), ask for less recall, or use gll.Exact().",
            RecallWarning,
            stacklevel=4,
        )
    tell("measuring", 3, 3)
    return Cells(search, x, k, projection, points[order], order, center, start, reach, candidates, expected)


def _main_axes(x: Tensor, seed: int) -> Projection:
    """The main axes of the points, by decreasing variance, from a sample; no axes where there are few dimensions."""
    some = x[draw(len(x), 10_000, seed, Purpose.AXES).to(x.device)]
    mean = some.mean(0)
    largest = (some - mean).abs().max()
    scale = torch.where(largest > 0, largest, 1)
    if x.shape[1] <= 2:
        return Projection(mean, scale, None)
    some = ((some - mean) / scale).float()
    return Projection(mean, scale, torch.linalg.eigh(some.T @ some).eigenvectors.flip(1))


def _rank_of(points: Tensor, rows: Tensor, true: Tensor, most: int, max_bytes: int) -> Tensor:
    """At which place among the nearest in the projection each true neighbour stands; `most` if beyond that."""
    found = []
    for part, known in zip(rows.split(64), true.split(64), strict=True):
        middle = points[part].mean(0)
        a = points[part] - middle
        distance = torch.linalg.vecdot(points, points) - 2 * (points @ middle)  # |p - middle|² less a constant
        distance = torch.addmm(distance, a, points.T, alpha=-2)
        # The product tells close points apart only down to its rounding: it proposes, differences decide.
        near = smallest(distance, min(len(points), 2 * most + 64))[1].sort(dim=1).values
        true_distance = _sqdist(points, part, near, points, max_bytes)
        near = near.gather(1, true_distance.sort(dim=1, stable=True).indices[:, :most])
        same = near[:, None, :] == known[:, :, None]
        found.append(torch.where(same.any(2), same.int().argmax(2), most))
    return torch.cat(found)


def _quantile(value: Tensor, share: float) -> Tensor:
    """The least entry that at least `share` of the entries do not exceed."""
    flat = value.flatten().sort().values
    return flat[min(len(flat), math.ceil(share * len(flat))) - 1]


def _both_ways(sqdist: Tensor, index: Tensor, k: int) -> Tensor:
    """The k nearest, after every pair was offered to its other point too."""
    n = len(index)
    last = sqdist[:, k - 1]
    offered = torch.nonzero(sqdist < last[index])  # (i, place): i is nearer to j than j's last neighbour is
    i, d = offered[:, 0], sqdist[offered[:, 0], offered[:, 1]]
    j = index[offered[:, 0], offered[:, 1]]
    new = torch.cat([(index[b, :k] != a[:, None]).all(1) for a, b in zip(i.split(2**16), j.split(2**16), strict=True)])
    i, j, d = i[new], j[new], d[new]
    result = index[:, :k].clone()
    if not len(i):
        return result
    # One row for every point that was offered something: its neighbours, then the offers.
    order, start = sorted_by(j, n)
    i, j, d = i[order], j[order], d[order]
    rows, of = torch.unique(j, return_inverse=True)
    place = torch.arange(len(j), device=j.device) - torch.tensor(start, device=j.device)[j]
    width = int(place.max()) + 1
    value = torch.cat([sqdist[rows, :k], sqdist.new_full((len(rows), width), torch.inf)], 1)
    other = torch.cat([result[rows], result.new_zeros(len(rows), width)], 1)
    value[of, k + place], other[of, k + place] = d, i
    result[rows] = other.gather(1, value.sort(dim=1, stable=True).indices[:, :k])
    return result


def _sqdist(y: Tensor, row: Tensor, found: Tensor, x: Tensor, max_bytes: int) -> Tensor:
    """|y_row - x_found|² from true differences; by FAISS where it can, which reads rows in place, six times faster."""
    if x.device.type == "cpu" and x.dtype == torch.float32 and x.is_contiguous() and faiss is not None:
        queries, found, out = y[row].contiguous(), found.contiguous(), torch.empty(found.shape)
        pointers = (faiss.swig_ptr(a.numpy()) for a in (out, queries, x, found))
        faiss.fvec_L2sqr_by_idx(*pointers, x.shape[1], len(row), found.shape[1])
        return out
    pairs = row.repeat_interleave(found.shape[1]), found.flatten()
    return sqdist_of_pairs(y, *pairs, other=x, max_bytes=max_bytes).view(found.shape)
