"""From scores to a batch of nodes: the highest, those that no neighbour beats, or a sample in proportion.

Read next: `active.py`, which puts scores and batches together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gll.graph import Graph


class AbstractSelection(ABC):
    """From scores to a batch."""

    stepwise: ClassVar[bool] = False
    """Whether a batch may be picked one by one, with scores updated in between."""

    @abstractmethod
    def select(
        self,
        score: Float[Tensor, " n"],
        graph: Graph,
        eligible: Bool[Tensor, " n"],
        rivals: Bool[Tensor, " n"],
        count: int,
        generator: torch.Generator,
    ) -> Int[Tensor, " picks"]:
        """At most `count` eligible nodes, the most wanted first.

        `rivals` are all nodes that compete: the eligible ones, and those asked for already.
        """


@final
@dataclass(frozen=True)
class TopK(AbstractSelection):
    """The highest scores; ties go to the lower index. Neighbours score alike, so a batch may say one thing many times.

    Differentiable in: nothing.
    """

    stepwise: ClassVar[bool] = True

    def select(
        self, score: Tensor, graph: Graph, eligible: Tensor, rivals: Tensor, count: int, generator: torch.Generator
    ) -> Tensor:
        return _ranked(score, eligible)[:count]


@final
@dataclass(frozen=True)
class LocalMax(AbstractSelection):
    """The highest of those that no neighbour beats (Chapman et al. 2023): a batch that is spread out.

    A node qualifies if its score is at least that of every neighbour that competes. Of equal neighbours the one with
    the lower index wins, so that no two nodes of a batch are neighbours, on a plateau either.

    Args:
        fill: where fewer qualify than were asked for, look again among those that are not next to a pick, and at last
            among all. Otherwise the batch is smaller, with a warning.

    Differentiable in: nothing.
    """

    fill: bool = True

    def select(
        self, score: Tensor, graph: Graph, eligible: Tensor, rivals: Tensor, count: int, generator: torch.Generator
    ) -> Tensor:
        t, joined = graph.topology, graph.weight.detach() > 0
        i, j = t.i[joined], t.j[joined]
        # Among rivals, the edge's loser is the end with the lower score, or of equal ones j (as i < j).
        loser = torch.where(score[i] >= score[j], j, i)
        picks = score.new_empty(0, dtype=torch.int64)
        field_, rest = rivals, eligible
        while True:
            beaten = torch.zeros_like(rivals)
            beaten[loser[field_[i] & field_[j]]] = True
            found = _ranked(score, rest & field_ & ~beaten)
            picks = torch.cat([picks, found])
            if len(picks) >= count or not self.fill or not bool(rest.any()):
                return picks[:count]
            rest = rest.index_fill(0, found, False)
            near = torch.zeros_like(rest).index_fill(0, picks, True)
            near[i[near[j]]] = near[j[near[i]]] = True
            field_ = rest & ~near
            if not bool(field_.any()):
                field_ = rest


@final
@dataclass(frozen=True)
class Proportional(AbstractSelection):
    """Sampling without replacement, with probability ∝ exp(γ score), or ∝ score where γ is None.

    Args:
        gamma: γ ≥ 0 in units of the score: 0 is uniform, ∞ would be `TopK`.

    Differentiable in: nothing.
    """

    stepwise: ClassVar[bool] = True
    gamma: float | None = None

    def __post_init__(self) -> None:
        if self.gamma is not None and not 0 <= self.gamma < float("inf"):
            raise ValueError(f"gamma must be None or a finite number ≥ 0, got {self.gamma}")

    def select(
        self, score: Tensor, graph: Graph, eligible: Tensor, rivals: Tensor, count: int, generator: torch.Generator
    ) -> Tensor:
        if self.gamma is None:
            score = torch.where(eligible, score, 0)
            least, most = float(score.min()), float(score.max())
            if least < -1e-9 * max(most, 1e-300):
                raise ValueError(f"sampling in proportion needs scores ≥ 0, the smallest is {least:g}; set gamma")
            # Nodes of score zero come last, rather than never.
            log = (score.clamp(min=0) / (most if most > 0 else 1)).clamp(min=torch.finfo(score.dtype).tiny).log()
        else:
            log = self.gamma * score
        # The order of log p + Gumbel noise is that of drawing one by one without replacement.
        uniform = torch.rand(len(score), dtype=torch.float64, generator=generator).to(score.device)
        noise = -torch.log(-torch.log(uniform.clamp(1e-300, 1 - 1e-16)))
        return _ranked(log + noise, eligible)[:count]


def _ranked(score: Tensor, mask: Tensor) -> Tensor:
    """The nodes of the mask, highest score first; of equal scores the lower index first."""
    nodes = torch.nonzero(mask).squeeze(1)
    return nodes[score[nodes].sort(descending=True, stable=True).indices]
