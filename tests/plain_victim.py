"""A small network on the digits, to be attacked: nothing of a graph in it."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from gll.data import load


@cache
def digits_network() -> tuple[nn.Module, Tensor, Tensor]:
    """The network, in float64, and 100 test images in [0, 1] with their classes."""
    data = load("digits")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        x, y = data.train.float() / 255, data.train_labels
        adam = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(60):
            adam.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            adam.step()
    return model.double().eval().requires_grad_(False), data.test[:100].double() / 255, data.test_labels[:100]
