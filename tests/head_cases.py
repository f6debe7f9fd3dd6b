"""What the tests of heads share: samples, a small encoder, heads by name, one step of training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gll.nn.encoders import Encoder
from gll.nn.heads import AbstractHead, create_head

C, D = 4, 6


def samples(n: int, seed: int = 0, device: Any = "cpu", dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Overlapping clusters, every class present."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % C
    centers = torch.randn(C, D, generator=torch.Generator().manual_seed(99))
    x = centers[y] + 0.7 * torch.randn(n, D, generator=generator)
    return x.to(device, dtype), y.to(device)


def make(name: str, **options: Any) -> AbstractHead:
    if name == "gll-projection":
        name, options = "gll", {"projection": 5} | options
    if name in ("gll", "wnll"):
        options = {"k": 5} | options
    return create_head(name, D, C, **options)


def network() -> Encoder:
    """Four layers with normalisation between; made for D-dimensional points."""
    layers = nn.Sequential(
        *(nn.Linear(D, 8), nn.BatchNorm1d(8), nn.ReLU()),
        *(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()),
        *(nn.Linear(8, D), nn.BatchNorm1d(D)),
    )
    return Encoder(layers, D, D, points=True)


def step(encoder: nn.Module, head: AbstractHead, x: Tensor, y: Tensor, m: int = 20) -> Tensor:
    """The loss of a batch whose first m samples are the base."""
    z = encoder(x)
    return head.loss(head(z[m:], z[:m], y[:m]), y[m:])
