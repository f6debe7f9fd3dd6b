"""What the tests of evaluations attack, and with what: a small honest network on four blobs, and made-up outcomes."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from gll.attacks.store import Chunk


def blobs(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Images of 1 × 2 × 2 pixels in three classes, around a bright pixel each."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    centre = torch.full((3, 4), 0.35)
    centre[torch.arange(3), torch.arange(3)] = 0.65
    x = centre[y] + 0.07 * torch.randn(n, 4, generator=generator)
    return x.clamp(0, 1).view(n, 1, 2, 2), y


@functools.cache
def honest_mlp() -> nn.Module:
    """A network of one hidden layer, trained for a moment, with nothing to hide."""
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Flatten(), nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 3))
        x, y = blobs(300, seed=1)
        optimizer = torch.optim.Adam(model.parameters(), 0.02)
        for _ in range(120):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model.eval().requires_grad_(False)


def chunk_of(n: int, wrong: Sequence[int], *, linf: float = 0.1, l2: float | None = None, start: int = 0) -> Chunk:
    """A chunk of n samples of class 0, all classified rightly before, of which some are wrong after."""
    predicted = np.zeros(n, dtype=np.int64)
    predicted[list(wrong)] = 1
    distance = np.full(n, linf, dtype=np.float64)
    length = np.full(n, linf if l2 is None else l2, dtype=np.float64)
    return Chunk(start, np.zeros(n, dtype=np.int64), predicted, predicted != 0, distance, length, 0.0, 1.0)
