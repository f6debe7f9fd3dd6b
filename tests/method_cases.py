"""What the tests of methods share: small graphs, and their equations solved by dense linear algebra."""

from __future__ import annotations

import torch
from torch import Tensor

import gll
from gll.methods import METHODS
from tests.problems import F64

NAMES = list(METHODS)


def clusters(n: int = 60, classes: int = 3, *, gap: float = 4.0, k: int = 6, seed: int = 0) -> tuple[gll.Graph, Tensor]:
    """A kNN graph of overlapping Gaussian clusters, and the classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    centers = gap * torch.eye(classes, 3, dtype=F64)
    x = torch.randn(n, 3, generator=generator, dtype=F64) + centers[y]
    return gll.knn_graph(x, k), y


def dense_laplacian(graph: gll.Graph) -> Tensor:
    w = graph.to_dense()
    return torch.diag(w.sum(1)) - w


def dense_poisson(graph: gll.Graph, labels: gll.Labels, weight: Tensor | None = None) -> Tensor:
    """On a connected graph: the pseudo-inverse, shifted to degree-weighted mean zero."""
    weight = torch.ones(len(labels.index), dtype=F64) if weight is None else weight
    weight = weight / weight.mean()
    mean = (weight[:, None] * labels.value).sum(0) / weight.sum()
    f = torch.zeros(graph.num_nodes, labels.num_classes, dtype=F64)
    f[labels.index] = weight[:, None] * (labels.value - mean)
    u = torch.linalg.pinv(dense_laplacian(graph), hermitian=True) @ f
    degree = graph.to_dense().sum(1)
    return u - (degree @ u) / degree.sum()
