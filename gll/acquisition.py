"""Acquisition functions: how much a label would help at every node; higher means: label this one next.

| acquisition | score of node k | asks |
|---|---|---|
| `Entropy` | -Σ_c p_c log p_c | where is the prediction spread out? |
| `NormScore` | 1 - \\|p\\|₂ | the same; the paper's L2 score |
| `Margin` | 1 - (p₍₁₎ - p₍₂₎) | where are the two best classes close? |
| `SmallestNorm` | 1 - \\|u_τ(k)\\|₂ | where do the labels hardly reach? |
| `VOpt` | \\|C e_k\\|² / (γ² + C_kk) | which label lowers the variance of all nodes most? |
| `SigmaOpt` | (1ᵀC e_k)² / (γ² + C_kk) | which label lowers the variance of their mean most? |
| `ModelChange` | \\|e_ŷ - p\\|₂ \\|C e_k\\|₂ / (γ² + C_kk) | which label would move the model most? |
| `Random` | a uniform number | nothing; the one to beat |

p are the probabilities at node k, C the covariance of a Gaussian field given the labels so far (`field.py`).

Read next: `batch_selection.py`, which turns scores into a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from gll.equations import Laplace
from gll.field import Covariance, GaussianField
from gll.implicit import solve
from gll.labels import Labels
from gll.reweight import poisson
from gll.situation import Situation


class AbstractAcquisition(ABC):
    """How much a label would help at every node. Subclass it for a rule of your own: one method."""

    @abstractmethod
    def score(self, situation: Situation) -> Float[Tensor, " n"]:
        """(n,) finite scores, higher where a label helps more. Those of labelled nodes are not used."""


@final
@dataclass(frozen=True)
class Entropy(AbstractAcquisition):
    """Uncertainty: -Σ_c p_c log p_c, where 0 log 0 = 0.

    Differentiable in: nothing.

    >>> from gll import Graph
    >>> graph = Graph.from_sparse(torch.tensor([[0., 1.], [1., 0.]]))
    >>> Entropy().score(Situation(graph, value=torch.tensor([[1.0, 0.0], [0.5, 0.5]]))).tolist()
    [0.0, 0.693...]
    """

    def score(self, situation: Situation) -> Tensor:
        return torch.special.entr(situation.probability).sum(1)


@final
@dataclass(frozen=True)
class NormScore(AbstractAcquisition):
    """Uncertainty: 1 - |p|₂, the L2 score of the GLL paper (appendix, choice of base sets).

    Differentiable in: nothing.
    """

    def score(self, situation: Situation) -> Tensor:
        return 1 - torch.linalg.vector_norm(situation.probability, dim=1)


@final
@dataclass(frozen=True)
class Margin(AbstractAcquisition):
    """Uncertainty: one minus the largest probability plus the second largest.

    Differentiable in: nothing.
    """

    def score(self, situation: Situation) -> Tensor:
        p = situation.probability
        if p.shape[1] < 2:
            raise ValueError("a margin needs at least two classes")
        best = p.topk(2, dim=1).values
        return 1 - (best[:, 0] - best[:, 1])


@final
@dataclass(frozen=True)
class SmallestNorm(AbstractAcquisition):
    """Reach: 1 - |u_τ|₂, where τu + Δu = 0 off the labels and u = g on them (Miller, Calder 2023).

    With τ > 0 values fade with the distance from the labels, so that a small norm means: no label is near. This needs
    u itself; probabilities, which sum to one, no longer know it. Explores first, and exploits once τ is small beside
    what neighbours weigh.

    Args:
        tau: τ > 0, as a fraction of the mean degree.
        reweighted: strengthen the edges near labels first (`reweight.poisson`), as the authors do.

    Differentiable in: nothing.
    """

    tau: float = 0.01
    reweighted: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.tau < float("inf"):
            raise ValueError(f"the smallest norm needs tau > 0 (without it nothing fades), got {self.tau}")

    def score(self, situation: Situation) -> Tensor:
        if situation.labels is None or len(situation.labels.index) == 0:
            raise ValueError("the smallest norm needs at least one label; start with VOpt, SigmaOpt or Random")
        graph = situation.graph.detach()
        labels = Labels(situation.labelled, situation.labels.value.detach().to(graph.weight))
        if self.reweighted:
            graph = poisson(graph, labels)
        degree = float(graph.degree.mean())
        # With τ > 0 every node is determined: where no label is connected, u = 0.
        u = solve(Laplace(tau=self.tau * degree if degree > 0 else self.tau), graph, labels).value.double()
        return 1 - torch.linalg.vector_norm(u, dim=1)


DEFAULT_FIELD = GaussianField()


class AbstractFieldAcquisition(AbstractAcquisition):
    """A score made from the covariance of a Gaussian field, which does not depend on what the labels say.

    So the effect of a pick on the scores of the others is known before its label is: `choose` updates them after each.
    """

    gaussian: GaussianField

    @abstractmethod
    def score_given(self, situation: Situation, covariance: Covariance) -> Float[Tensor, " n"]:
        """(n,) the scores under this covariance."""

    def score(self, situation: Situation) -> Tensor:
        return self.score_given(situation, situation.posterior(self.gaussian))


@final
@dataclass(frozen=True)
class VOpt(AbstractFieldAcquisition):
    """Variance: |C e_k|² / (γ² + C_kk), by which a label at k lowers the trace of C (Ji, Han 2012).

    Needs no predictions: it spreads labels over the graph, and is the way to begin.

    Differentiable in: nothing.
    """

    gaussian: GaussianField = DEFAULT_FIELD

    def score_given(self, situation: Situation, covariance: Covariance) -> Tensor:
        return covariance.square / (covariance.noise + covariance.variance)


@final
@dataclass(frozen=True)
class SigmaOpt(AbstractFieldAcquisition):
    """Variance of the mean: (1ᵀC e_k)² / (γ² + C_kk), by which a label lowers the sum of C (Ma et al. 2013).

    Prefers the middles of large clusters; less moved by outliers than `VOpt`.

    Differentiable in: nothing.
    """

    gaussian: GaussianField = DEFAULT_FIELD

    def score_given(self, situation: Situation, covariance: Covariance) -> Tensor:
        return covariance.total.square() / (covariance.noise + covariance.variance)


@final
@dataclass(frozen=True)
class ModelChange(AbstractFieldAcquisition):
    """Model change: |e_ŷ - p|₂ |C e_k|₂ / (γ² + C_kk) (Miller, Bertozzi 2024).

    A label y at k moves the mean m of a Gaussian field by C e_k (y - m(k)) / (γ² + C_kk). The label is not known; ŷ,
    the class predicted at k, is the one that moves it least. With p = m this is exactly the distance (Frobenius)
    between the field's means before and after; with other probabilities, their uncertainty weighs the field's.

    Differentiable in: nothing.
    """

    gaussian: GaussianField = DEFAULT_FIELD

    def score_given(self, situation: Situation, covariance: Covariance) -> Tensor:
        p = situation.probability
        surprise = torch.nn.functional.one_hot(p.argmax(1), p.shape[1]) - p
        length = covariance.square.clamp(min=0).sqrt()
        return torch.linalg.vector_norm(surprise, dim=1) * length / (covariance.noise + covariance.variance)


@final
@dataclass(frozen=True)
class Random(AbstractAcquisition):
    """No preference: uniform random numbers, the same for the same seed of the situation.

    Differentiable in: nothing.
    """

    def score(self, situation: Situation) -> Tensor:
        n, device = situation.graph.num_nodes, situation.graph.weight.device
        return torch.rand(n, dtype=torch.float64, generator=situation.generator()).to(device)
