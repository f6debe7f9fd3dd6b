"""What an attack in training makes larger: the head's own loss, a margin, or the loss of a linear probe.

A graph head's own loss can be all but flat where its values are certain: its gradient then says little about where the
head fails (it is *masked*), and training against it teaches little. A margin of log-probabilities stays steep there,
and a linear probe on the same features is never flat. Read next: `adversarial.py`, which climbs.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gll.attacks.objectives import Margin
from gll.nn.heads import AbstractHead, GLLHead
from gll.train.distributed import Nodes, Ranks
from gll.train.evaluate import at_work
from gll.train.optimize import load_optimizer, optimizer_tensors

FLOOR = 1e-30  # under the logarithm of a margin. The layer's own, 1e-8, would hide by how much a class is behind.
PROBE_RATE = 0.01


class AbstractOpponent(ABC):
    """What an attack makes larger, for the nodes of a training step. Differentiable in their features."""

    @property
    @abstractmethod
    def uses_graph(self) -> bool:
        """Whether it asks the head, and so needs the graph that the head is trained on."""

    @abstractmethod
    def harm(self, head: AbstractHead, nodes: Nodes) -> Float[Tensor, ""]:
        """How badly the labelled queries are classified."""

    def learn(self, features: Float[Tensor, "l d"], target: Int[Tensor, " l"]) -> None:
        """Learn from the features of a training step, if it learns at all."""
        return

    def tensors(self) -> dict[str, Tensor]:
        """What it has learned, named for a checkpoint."""
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave; other names are passed over."""
        return


def logits_of(head: AbstractHead, nodes: Nodes) -> Float[Tensor, "l c"]:
    """What the head says of the labelled queries."""
    base = (nodes.base, nodes.base_labels) if head.uses_base else (None, None)
    logits: Tensor = head(nodes.queries, *base)
    return logits[: nodes.num_labelled]


@final
class OwnLoss(AbstractOpponent):
    """The loss that the head is trained with, as in the paper.

    Differentiable in: the features, as the head is. In WNLL's second stage that is its surrogate.
    """

    @property
    def uses_graph(self) -> bool:
        return True

    def harm(self, head: AbstractHead, nodes: Nodes) -> Tensor:
        return head.loss(logits_of(head, nodes), nodes.target)


@final
class LargestMargin(AbstractOpponent):
    """Σ (logit of the best other class − logit of the true one); of the graph learning layer, on log(u + 1e-30).

    The layer solves in float64 where it must, so that small values of u keep their digits.

    Differentiable in: the features, as the head is.

    >>> from gll.nn.heads import create_head
    >>> queries, none = torch.tensor([[3.0, 1.0, 2.5]]), torch.zeros(0, 3)
    >>> head = create_head("linear", 3, 3)
    >>> with torch.no_grad():
    ...     _ = head.layers[0].weight.copy_(torch.eye(3)), head.layers[0].bias.zero_()
    >>> LargestMargin().harm(head, Nodes(none, torch.zeros(0).long(), queries, torch.tensor([0]))).item()
    -0.5
    """

    def __init__(self) -> None:
        self._sharp: tuple[AbstractHead, AbstractHead] | None = None  # a head, and the same with a lower floor

    @property
    def uses_graph(self) -> bool:
        return True

    def harm(self, head: AbstractHead, nodes: Nodes) -> Tensor:
        return Margin()(logits_of(self._sharpened(at_work(head)), nodes), nodes.target).sum()

    def _sharpened(self, head: AbstractHead) -> AbstractHead:
        if not isinstance(head, GLLHead):
            return head
        if self._sharp is None or self._sharp[0] is not head:
            layer = copy.copy(head.layer)  # has no parameters; shares its recordings of GPU work
            layer.floor = min(FLOOR, layer.floor)
            self._sharp = (head, GLLHead(layer, head.test_layer, head.projection))
        return self._sharp[1]


@final
class Probe(AbstractOpponent):
    """The cross-entropy of a linear classifier of the features' directions, trained beside the head.

    It sees features scaled to length √d, since the graph sees directions only. It starts at zero, and makes one step of
    Adam after every training step, on the features of that step. The encoder does not notice. No graph is solved.

    Differentiable in: the features. Held fixed while it attacks: the probe.
    """

    def __init__(self, feature_dim: int, num_classes: int, ranks: Ranks) -> None:
        self.ranks = ranks
        self.linear = nn.Linear(feature_dim, num_classes).to(ranks.device)
        for parameter in self.linear.parameters():
            nn.init.zeros_(parameter)
        self.optimizer = torch.optim.Adam(self.linear.parameters(), lr=PROBE_RATE)

    @property
    def uses_graph(self) -> bool:
        return False

    def loss(self, features: Tensor, target: Tensor) -> Tensor:
        scaled = nn.functional.normalize(features) * features.shape[1] ** 0.5
        return nn.functional.cross_entropy(self.linear(scaled), target)

    def harm(self, head: AbstractHead, nodes: Nodes) -> Tensor:
        return self.loss(nodes.queries[: nodes.num_labelled], nodes.target)

    def learn(self, features: Tensor, target: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            self.loss(features.detach(), target).backward()
        self.ranks.average_gradients(self.linear)
        self.optimizer.step()

    def tensors(self) -> dict[str, Tensor]:
        return {
            **{f"probe.{name}": tensor for name, tensor in self.linear.state_dict().items()},
            **optimizer_tensors(self.optimizer, "probe.optimizer."),
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.linear.load_state_dict({name: tensors[f"probe.{name}"] for name in self.linear.state_dict()})
        load_optimizer(self.optimizer, tensors, "probe.optimizer.")


OPPONENTS: dict[str, Callable[[int, int, Ranks], AbstractOpponent]] = {
    "own": lambda feature_dim, num_classes, ranks: OwnLoss(),
    "margin": lambda feature_dim, num_classes, ranks: LargestMargin(),
    "probe": Probe,
}
"""`adversarial.against`: from the size of features, the number of classes and the processes."""
