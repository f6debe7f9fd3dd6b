"""What an attack in training makes larger: the head's own loss, a margin, or a loss that is nowhere flat.

A graph head's own loss can be all but flat where its values are certain: its gradient then says little about where the
head fails (it is *masked*). One would expect training against it to teach little; measured, it teaches most of what the
others do (docs/adversarial-training.md). A margin of log-probabilities stays steep there, as long as some neighbour has
another class. Weights to base samples of every class, near or not, are never flat, nor is a linear probe on the same
features. Read next: `adversarial.py`, which climbs.
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
from gll.features import unit_rows
from gll.nn.heads import AbstractHead, GLLHead
from gll.nn.layer import GraphLearningLayer
from gll.similarity import Gaussian
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
class EveryClass(AbstractOpponent):
    """The margin between classes by weights to *all* base samples: the graph without its cut after k neighbours.

    Where all neighbours of a sample are of one class, the graph's own loss has no slope. Here the logit of a class is
    log Σ w over its base samples, with Gaussian weights and self-tuned bandwidths; nothing is solved. A margin, since a
    cross-entropy of logits this far apart is flat again. Heads without a graph are attacked by their own loss.

    Differentiable in: the features of the queries. Held fixed: bandwidths.
    """

    @property
    def uses_graph(self) -> bool:
        return True

    def harm(self, head: AbstractHead, nodes: Nodes) -> Tensor:
        head = at_work(head)
        if not isinstance(head, GLLHead):
            return OwnLoss().harm(head, nodes)
        x, base = nodes.queries[: nodes.num_labelled], nodes.base
        if head.projection is not None:
            x, base = head.projection(x), head.projection(base)
        logits = logits_of_every_class(head.layer, x.float(), base.detach().float(), nodes.base_labels)
        return Margin()(logits, nodes.target).sum()


def logits_of_every_class(
    layer: GraphLearningLayer, x: Float[Tensor, "q d"], base: Float[Tensor, "m d"], labels: Int[Tensor, " m"]
) -> Float[Tensor, "q c"]:
    """log Σ w of every class over its base samples; far below all others for a class without any.

    Differentiable in: `x`. Held fixed: the base and the bandwidths.
    """
    if layer.normalize:
        x, base = unit_rows(x), unit_rows(base)
    far = _sqdist(x, base)
    with torch.no_grad():
        k = min(layer.k, len(base) - 1)
        near = far.kthvalue(k, 1).values, _sqdist(base, base).kthvalue(k + 1, 1).values  # a sample is its own first
        least = 1e-6 * far.mean().clamp(min=torch.finfo(x.dtype).tiny)  # where more than k samples are copies
        own, theirs = (square.clamp(min=least).sqrt() for square in near)
    scale = layer.kernel.scale if isinstance(layer.kernel, Gaussian) else Gaussian().scale
    log_weight = -scale * far / (own[:, None] * theirs)
    members = labels == torch.arange(layer.num_classes, device=labels.device)[:, None]
    per_class = torch.where(members, log_weight[:, None], -1e9)
    return torch.logsumexp(per_class, 2)


def _sqdist(x: Float[Tensor, "q d"], y: Float[Tensor, "m d"]) -> Float[Tensor, "q m"]:
    """Squared distances, to the rounding of a product."""
    return (x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T).clamp(min=0)


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
    "every-class": lambda feature_dim, num_classes, ranks: EveryClass(),
    "probe": Probe,
}
"""`adversarial.against`: from the size of features, the number of classes and the processes."""
