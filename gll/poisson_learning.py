"""Poisson learning: the source that labels make, and the scale and the classes of the scores that come of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from gll.equations import Poisson
from gll.propagation import AbstractMethod, Answer, Request, Solver
from gll.resolved_edges import on_resolved_edges
from gll.sums import sum_into

# s · (mean winning score) of Poisson learning. Of 2, 4, 6, 8 and 12, the one whose largest expected calibration error
# is the smallest, on digits, MNIST and FashionMNIST with 1 to 10 labels a class.
CONFIDENCE = 8.0


@final
@dataclass(frozen=True, eq=False)
class PoissonLearning(AbstractMethod):
    """Poisson learning (Calder, Cook, Thorpe, Slepčev 2020): labels are sources and sinks of their classes.

    Every component of the graph is a problem of its own: its labels minus their mean are the source, so it balances.
    A class without a label in a component that has other labels gets probability zero there, as in Laplace learning.

    Weights of labels multiply their sources. Scores have degree-weighted mean zero on each component.

    Differentiable in: edge weights, label values.
    """

    uses_label_weight: ClassVar[bool] = True

    def find(self, request: Request) -> Answer:
        return on_resolved_edges(request, self._find)

    def _find(self, request: Request, solver: Solver | None) -> Answer:
        request = dataclasses.replace(request, solver=solver)
        solution = request.solve(Poisson(source=poisson_source(request)))
        score = solution.value
        scale = winning_scale(score.detach())
        return Answer(
            only_present(score, request, scale), solution.steps, f"Poisson: {solution.method}", solution, scale
        )


def poisson_source(request: Request) -> Tensor:
    """(n, C) float64: w (g - ḡ) on labelled nodes, ḡ the weighted mean label of the node's component."""
    labels, n = request.labels, request.graph.num_nodes
    index, value = labels.index.long(), labels.value.double()
    weight = value.new_ones(len(index)) if request.weight is None else request.weight.double()
    weight = weight / weight.mean()
    part = request.graph.components[index]
    total, mass = (sum_into(n, part, t) for t in (weight[:, None] * value, weight))
    mean = (total / torch.where(mass > 0, mass, 1)[:, None])[part]
    return value.new_zeros(n, labels.num_classes).index_copy(0, index, weight[:, None] * (value - mean))


def winning_scale(score: Tensor) -> float:
    """s such that s · (mean over nodes of the largest score) is `CONFIDENCE`; 1 where all scores are zero."""
    winning = score.double().amax(1)
    mean = float(winning.mean())
    return CONFIDENCE / mean if mean > torch.finfo(score.dtype).tiny else 1.0


def only_present(score: Tensor, request: Request, scale: float) -> Tensor:
    """Scores in which a class cannot win in a component that has labels, but none of that class."""
    labels, parts = request.labels, request.graph.components
    seen = sum_into(request.graph.num_nodes, parts[labels.index.long()], (labels.value.detach() > 0).to(score.dtype))
    absent = ((seen == 0) & (seen.sum(1, keepdim=True) > 0))[parts]
    # Far enough below any score for its softmax to vanish next to it, and finite.
    floor = float(score.detach().min()) - 1000 / scale
    return torch.where(absent, floor, score) if bool(absent.any()) else score
