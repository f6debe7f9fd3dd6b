"""The digits, to be attacked: behind a small network with nothing of a graph in it, and in one graph of all of them."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn

from gll.attacks.victims import GraphVictim
from gll.data import load
from gll.nn import GraphLearningLayer


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


@cache
def digits_graph() -> tuple[GraphVictim, Tensor, Tensor]:
    """A graph of pixels, with a base of 100 digits, and 40 queries that are all in it at once."""
    data = load("digits")
    layer = GraphLearningLayer(10, k=10)
    victim = GraphVictim(nn.Flatten(), layer, data.train[:100].float() / 255, data.train_labels[:100])
    return victim.sharpened(fast=True), data.test[:40].float() / 255, data.test_labels[:40]
