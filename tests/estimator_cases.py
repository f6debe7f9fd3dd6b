"""What the tests of the classifier share: blobs with a few labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_blobs


def blobs(n: int = 60, seed: int = 0, labels: int = 2) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Three overlapping blobs; all classes, and y with a few labels a class."""
    x, truth = make_blobs(n, centers=[[0, 0], [3, 0], [0, 3]], random_state=seed)
    y = np.full(n, -1)
    for c in range(3):
        y[np.flatnonzero(truth == c)[:labels]] = c
    return x, truth, y


def self_tuned(x: NDArray[Any], k: int) -> NDArray[Any]:
    """The weight matrix of the kNN graph, by loops over a dense distance matrix."""
    d = np.sqrt(((x[:, None] - x[None]) ** 2).sum(2))
    order = np.argsort(d + np.diag(np.full(len(x), np.inf)), axis=1)[:, :k]
    epsilon = d[np.arange(len(x)), order[:, -1]]
    chosen = np.zeros_like(d, dtype=bool)
    chosen[np.repeat(np.arange(len(x)), k), order.ravel()] = True
    return np.where(chosen | chosen.T, np.exp(-4 * d**2 / np.outer(epsilon, epsilon)), 0)
