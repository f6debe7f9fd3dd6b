"""From a method's scores to probabilities, for the nodes of a graph and for points that come later alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor


@final
@dataclass(frozen=True, eq=False)
class Readout:
    """The map from scores to probabilities.

    Args:
        scale: s in p = softmax(s · score); None where scores are shares of the classes already.
        shift: (C,) what a class prior adds to the logarithms of the probabilities, or None.

    Differentiable in: the scores. Held fixed: `scale`, `shift`.

    >>> Readout()(torch.tensor([[0.75, 0.25], [0.5, 0.0]])).tolist()  # what is missing to one is spread evenly
    [[0.75, 0.25], [0.75, 0.25]]
    """

    scale: float | None = None
    shift: Float[Tensor, " c"] | None = None

    def __call__(self, score: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Rows that are ≥ 0, finite, and sum to one."""
        if self.scale is None:
            share = score.clamp(min=0)
            share = share / share.sum(1, keepdim=True).clamp(min=1)
            p = share + (1 - share.sum(1, keepdim=True)).clamp(min=0) / score.shape[1]
        else:
            p = torch.softmax(self.scale * score, 1)
        p = p / p.sum(1, keepdim=True)
        if self.shift is None:
            return p
        # A probability of zero stays zero; the clamp only keeps the derivative finite there.
        logit = p.clamp(min=torch.finfo(p.dtype).tiny).log() + self.shift.to(p.dtype)
        return torch.softmax(torch.where(p > 0, logit, -torch.inf), 1)
