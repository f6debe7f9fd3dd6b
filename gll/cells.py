"""Points sorted into cells by k-means, so that a search need look only in those nearby."""

from __future__ import annotations

import torch
from torch import Tensor

from gll.search_progress import Progress
from gll.search_quality import Purpose, draw


def k_means(points: Tensor, cells: int, seed: int, max_bytes: int, tell: Progress) -> Tensor:
    """Middles of cells, by a few rounds of k-means on a sample."""
    some = points[draw(len(points), 24 * cells, seed, Purpose.SAMPLE).to(points.device)]
    center = some[draw(len(some), cells, seed, Purpose.FIRST).to(points.device)]
    rounds = 3
    for done in range(rounds):
        tell("making cells", done, rounds)
        nearest = nearest_center(some, center, max_bytes)
        order, start = sorted_by(nearest, len(center))
        total = torch.cat([some.new_zeros(1, some.shape[1], dtype=torch.float64), some[order].double().cumsum(0)])
        bound = torch.tensor(start, device=some.device)
        count = bound.diff()[:, None]
        mean = ((total[bound[1:]] - total[bound[:-1]]) / count.clamp(min=1)).float()
        center = torch.where(count > 0, mean, center)
    return center


def nearest_center(points: Tensor, center: Tensor, max_bytes: int) -> Tensor:
    """The nearest middle of every point."""
    size = torch.linalg.vecdot(center, center)
    rows = max(1, max_bytes // (8 * len(center)))
    return torch.cat([torch.addmm(size, part, center.T, alpha=-2).argmin(1) for part in points.split(rows)])


def split_large(cell: Tensor, center: Tensor) -> tuple[Tensor, Tensor]:
    """Cells of more than eight times the usual size are cut into pieces, in order of index.

    Only many copies of a point make such cells: k-means gives dense regions more cells. Any few of the copies will do
    as neighbours, and comparing all of them would take too long.
    """
    most = 8 * max(32, len(cell) // len(center))
    order, start = sorted_by(cell, len(center))
    place = torch.empty_like(order)
    place[order] = torch.arange(len(cell), device=cell.device) - torch.tensor(start, device=cell.device)[cell[order]]
    piece = cell * (1 + len(cell) // most) + place // most
    kept, cell = torch.unique(piece, return_inverse=True)
    return cell, center[kept // (1 + len(order) // most)]


def sorted_by(cell: Tensor, cells: int) -> tuple[Tensor, list[int]]:
    """Points sorted by cell, and where each cell starts."""
    count = torch.bincount(cell, minlength=cells)
    return torch.argsort(cell, stable=True), [0, *count.cumsum(0).tolist()]


def ranges(first: Tensor, size: Tensor) -> Tensor:
    """first[0], first[0] + 1, ... (size[0] numbers), then the same for first[1], and so on."""
    shift = first - (size.cumsum(0) - size)
    total = int(size.sum())
    return shift.repeat_interleave(size, output_size=total) + torch.arange(total, device=first.device)


def by_distance(center: Tensor, cells: Tensor) -> tuple[Tensor, Tensor]:
    """All cells in order of distance from some cells, and the distances in units of that to the tenth nearest.

    The unit makes one number fit regions of any density. A cell is the nearest to itself, also where middles coincide.
    """
    distance = torch.cdist(center[cells], center)
    distance[torch.arange(len(cells), device=cells.device), cells] = -1
    distance, near = distance.sort(dim=1, stable=True)
    unit = distance[:, min(10, len(center) - 1), None]
    return near, distance / torch.where(unit > 0, unit, 1)
