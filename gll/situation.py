"""What is known when the next label is to be chosen: the graph, the labels so far, predictions, and what was asked.

Read next: `acquisition.py`, which turns it into scores.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.field import Covariance, GaussianField
from gll.graph import Graph
from gll.labels import Labels


@dataclass(frozen=True, eq=False)
class Situation:
    """What is known when the next label is to be chosen.

    Args:
        graph: the graph.
        labels: the labels so far, or None where there are none.
        value: (n, C) probabilities, such as those of a solved equation; None where nothing is predicted yet.
        pending: (p,) nodes that were asked for and have no label yet. They are not asked for again, and the functions
            that use a Gaussian field count them as labelled.
        seed: of everything random.
        priors: covariances of the graph, kept from one round to the next.

    Differentiable in: nothing; values are detached.
    """

    graph: Graph
    labels: Labels | None = None
    value: Float[Tensor, "n c"] | None = None
    pending: Int[Tensor, " p"] | None = None
    seed: int = 0
    priors: dict[GaussianField, Covariance] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        n = self.graph.num_nodes
        for name, index in (("labels", self.labelled), ("pending", self.asked)):
            if index.numel() and (int(index.min()) < 0 or int(index.max()) >= n):
                raise ValueError(f"the indices of {name} must lie in 0 .. {n - 1}, got {index.tolist()}")
            if index.unique().numel() != len(index):
                raise ValueError(f"a node appears twice in {name}")
        if self.value is None:
            return
        if self.value.dim() != 2 or self.value.shape[0] != n or not self.value.is_floating_point():
            raise ValueError(f"value must be (n, C) floating point probabilities with n = {n}, got {self.value.dtype} "
                             f"of shape {tuple(self.value.shape)}")  # fmt: skip
        low, high = torch.stack(torch.aminmax(self.value.detach())).tolist() if self.value.numel() else (0.0, 0.0)
        if not (low >= -1e-4 and high <= 1 + 1e-4):  # written so that a NaN fails
            raise ValueError(
                f"value must hold probabilities, but lies in {low:g} .. {high:g}; turn scores into probabilities first"
            )

    @property
    def labelled(self) -> Tensor:
        """(m,) the labelled nodes."""
        index = torch.empty(0, dtype=torch.int64) if self.labels is None else self.labels.index
        return index.detach().long().to(self.graph.weight.device)

    @property
    def asked(self) -> Tensor:
        """(p,) the nodes that were asked for and are not labelled by now."""
        index = torch.empty(0, dtype=torch.int64) if self.pending is None else self.pending
        index = index.long().to(self.graph.weight.device)
        return index[~torch.isin(index, self.labelled)]

    @property
    def probability(self) -> Tensor:
        """`value` in float64, within 0 .. 1; an error where there is none."""
        if self.value is None:
            raise ValueError(
                "this acquisition function needs predictions, and there are none yet; start with VOpt, SigmaOpt or "
                "Random, or pass value="
            )
        return self.value.detach().double().clamp(0, 1)

    def posterior(self, gaussian: GaussianField) -> Covariance:
        """The covariance given all nodes that are labelled or asked for."""
        if gaussian not in self.priors:
            self.priors[gaussian] = gaussian.prior(self.graph)
        return self.priors[gaussian].given(torch.cat([self.labelled, self.asked]))

    def generator(self) -> torch.Generator:
        """Random numbers that are the same for the same situation."""
        return torch.Generator().manual_seed(self.seed)
