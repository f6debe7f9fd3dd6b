"""What the tests of active learning share: a covariance written down, a fixed score, truthful answers."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

import gll
from gll.active import AbstractAcquisition, Situation
from gll.field import GaussianField
from gll.graph import Normalization
from gll.loop import ActiveLearner
from tests.problems import F64

NONE, SYMMETRIC = Normalization.NONE, Normalization.SYMMETRIC


def dense_laplacian(graph: gll.Graph, normalization: Normalization) -> Tensor:
    w = graph.to_dense()
    degree = w.sum(1)
    if normalization is NONE:
        return torch.diag(degree) - w
    root = torch.where(degree > 0, degree, 1).rsqrt()
    return torch.diag((degree > 0).to(w.dtype)) - root[:, None] * w * root


def dense_covariance(graph: gll.Graph, field: GaussianField, labelled: list[int]) -> Tensor:
    """(L + τ + Σ e eᵀ/γ²)^-1, the covariance written down."""
    precision = dense_laplacian(graph, field.normalization) + field.tau * torch.eye(graph.num_nodes, dtype=F64)
    for k in labelled:
        precision[k, k] += 1 / field.noise
    return torch.linalg.inv(precision)


@dataclasses.dataclass(frozen=True)
class Fixed(AbstractAcquisition):
    """Scores given by hand."""

    scores: tuple[float, ...]

    def score(self, situation: Situation) -> Tensor:
        return torch.tensor(self.scores, dtype=F64)


def rounds(learner: ActiveLearner, truth: list[int], count: int, batch: int = 6) -> list[list[int]]:
    """Answer truthfully, and return what was asked."""
    asked = []
    for _ in range(count):
        asked.append([s.index for s in learner.suggest(batch)])
        learner.tell(asked[-1], [truth[i] for i in asked[-1]])
    return asked
