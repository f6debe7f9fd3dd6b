"""Neighbour search by FAISS, exact or approximate (extra `faiss`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from gll.neighbors import AbstractNeighborSearch, Exact
from gll.selection import sqdist_of_pairs


@final
@dataclass(frozen=True)
class Faiss(AbstractNeighborSearch):
    """Search by FAISS (extra `faiss`), on the CPU, with candidates ranked again by true distances.

    Args:
        factory: a FAISS index description: "Flat" (exact), "HNSW32", "IVF256,Flat", ...
        ef_search: breadth of an HNSW search; larger is slower and better.
        nprobe: number of IVF cells visited; larger is slower and better.
        candidates: how many candidates to rank again, as a multiple of k.

    Approximate neighbours change which edges exist, never the weight of an edge that does.
    """

    factory: str = "HNSW32"
    ef_search: int = 64
    nprobe: int = 16
    candidates: float = 1.5

    def find(self, x: Tensor, k: int) -> Tensor:
        try:
            import faiss
        except ImportError as error:
            raise ImportError("the Faiss search needs the extra 'faiss': pip install 'gll[faiss]'") from error
        largest = x.abs().max()
        points = np.ascontiguousarray((x / torch.where(largest > 0, largest, 1)).float().cpu().numpy())
        index: Any = faiss.index_factory(points.shape[1], self.factory)
        if hasattr(index, "hnsw"):
            index.hnsw.efSearch = max(self.ef_search, k + 1)
        if hasattr(index, "nprobe"):
            index.nprobe = self.nprobe
        index.train(points)
        index.add(points)
        wanted = min(int(np.ceil(self.candidates * k)) + 1, len(points))
        _, found = index.search(points, wanted)
        return self._rank(x, torch.from_numpy(found).to(x.device), k)

    @staticmethod
    def _rank(x: Tensor, found: Tensor, k: int) -> Tensor:
        """Drop the point itself, rank the rest by true distance; rows that came back short are searched exactly."""
        n = len(x)
        here = torch.arange(n, device=x.device)
        valid = (found >= 0) & (found != here[:, None])
        row = here.repeat_interleave(found.shape[1])
        distance = sqdist_of_pairs(x, row, found.clamp(min=0).flatten()).view(found.shape)
        distance, order = distance.masked_fill(~valid, torch.inf).sort(dim=1, stable=True)
        result = found.gather(1, order)[:, :k]
        short = torch.nonzero(valid.sum(1) < k).squeeze(1)
        if short.numel():
            nearest = Exact()._search(x, x[short], k + 1, exclude_self=False)
            order = (nearest == short[:, None]).sort(dim=1, stable=True).indices  # the point itself goes last
            result[short] = nearest.gather(1, order)[:, :k]
        return result
