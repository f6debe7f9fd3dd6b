"""What a head is, and those without a graph: an MLP, a linear probe, nearest neighbours.

A head turns the features of an encoder into classes. All have one interface, so that runs differ in one word.
Read next: `graph_heads.py`.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gll.features import check_features, unit_rows
from gll.projected import AutoSearch

CHUNK = 8192  # rows that go through a head's own layers at once, at test time


class AbstractHead(nn.Module, ABC):
    """Features to logits in training, to log-probabilities at test time.

    Subclasses write `forward`, `predict`, `uses_base`, and where they differ `loss` and `start_epoch`.

    Differentiable in: what the subclass says.
    """

    trains_encoder: ClassVar[bool] = True
    """Whether its loss reaches the encoder."""

    @property
    @abstractmethod
    def uses_base(self) -> bool:
        """Whether `forward` needs a base set, in the epoch that was started last."""

    def start_epoch(self, epoch: int, encoder: nn.Module) -> None:
        """To be called before every epoch, counted from 0, also after a resume; depends on its arguments alone."""
        return

    def release(self) -> None:
        """Undo what `start_epoch` has done to the encoder."""
        return

    @abstractmethod
    def forward(
        self,
        features: Float[Tensor, "batch d"],
        base_features: Float[Tensor, "m d"] | None = None,
        base_labels: Int[Tensor, " m"] | None = None,
    ) -> Float[Tensor, "batch c"]:
        """Logits of a training batch."""

    def attempt(
        self,
        features: Float[Tensor, "batch d"],
        base_features: Float[Tensor, "m d"] | None = None,
        base_labels: Int[Tensor, " m"] | None = None,
    ) -> tuple[Float[Tensor, "batch c"], Callable[[], bool] | None]:
        """As `forward`, without a wait for a GPU to confirm them: see `GraphLearningLayer.attempt`."""
        return self(features, base_features, base_labels), None

    def loss(self, logits: Float[Tensor, "batch c"], target: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        """Cross-entropy, the mean over the batch."""
        return nn.functional.cross_entropy(logits, target)

    @abstractmethod
    def predict(
        self, features: Tensor, labelled: Tensor, labels: Tensor, unlabelled: Tensor, inductive: bool
    ) -> Tensor:
        """Logits at test time, without the checks."""

    @final
    @torch.no_grad()
    def classify(
        self,
        features: Float[Tensor, "batch d"],
        labelled_features: Float[Tensor, "m d"],
        labels: Int[Tensor, " m"],
        *,
        unlabelled_features: Float[Tensor, "u d"] | None = None,
        inductive: bool = False,
    ) -> Float[Tensor, "batch c"]:
        """Log-probabilities of test samples; rows of `exp` sum to one.

        Args:
            features: test samples, through the encoder in evaluation mode.
            labelled_features, labels: all training samples whose class is known; (0, d) will do for a head that has
                learned them.
            unlabelled_features: the other training samples; they shape the graph of a graph head.
            inductive: answer every test sample by itself, without the others.

        Differentiable in: nothing.
        """
        x = check_features(features, "test features")
        labelled = _empty_or_checked(labelled_features, "labelled features").to(x.dtype)
        other = x[:0] if unlabelled_features is None else _empty_or_checked(unlabelled_features, "unlabelled features")
        other = other.to(x.dtype)
        if labels.shape != (len(labelled),):
            raise ValueError(
                f"{len(labelled)} labelled features need ({len(labelled)},) labels, got {tuple(labels.shape)}"
            )
        with torch.autocast(x.device.type, enabled=False):
            logits = self.predict(x, labelled, labels, other, inductive)
        if not bool(torch.isfinite(logits).all()):
            raise ValueError("the head's logits are not finite: its weights have diverged; lower the learning rate")
        return torch.log_softmax(logits, 1)


def _empty_or_checked(features: Tensor, name: str) -> Tensor:
    return features if features.dim() == 2 and len(features) == 0 else check_features(features, name)


def in_chunks(layers: nn.Module, x: Tensor) -> Tensor:
    """layers(x), piece by piece, on their device and in their dtype; the result where x is."""
    like = next(layers.parameters(), None)
    return x if like is None else torch.cat([layers(part.to(like)).to(x) for part in x.split(CHUNK)])


def linear_layers(sizes: tuple[int, ...]) -> nn.Sequential:
    """Linear layers of these sizes with ReLU between."""
    layers = list[nn.Module]()
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.ReLU(), nn.Linear(inputs, outputs)]
    return nn.Sequential(*layers[1:])


class AbstractLayers(AbstractHead):
    """A head that has learned all it says in layers of its own, and needs no base."""

    layers: nn.Module

    @property
    def uses_base(self) -> bool:
        return False

    def predict(
        self, features: Tensor, labelled: Tensor, labels: Tensor, unlabelled: Tensor, inductive: bool
    ) -> Tensor:
        return in_chunks(self.layers, features)


@final
class MLPHead(AbstractLayers):
    """Linear layers with ReLU between, and softmax.

    Args:
        feature_dim, num_classes: D and C.
        hidden: sizes of the hidden layers. None: the paper's D-D-128-32-C; (): one linear layer.

    Differentiable in: `features`, and its parameters.

    >>> sum(p.numel() for p in MLPHead(512, 10).parameters())
    332778
    """

    layers: nn.Sequential

    def __init__(self, feature_dim: int, num_classes: int, hidden: tuple[int, ...] | None = None) -> None:
        super().__init__()
        hidden = (feature_dim, 128, 32) if hidden is None else hidden
        self.layers = linear_layers((feature_dim, *hidden, num_classes))

    def forward(
        self, features: Tensor, base_features: Tensor | None = None, base_labels: Tensor | None = None
    ) -> Tensor:
        return self.layers(features)


@final
class ProbeHead(AbstractLayers):
    """A linear layer that learns without the encoder noticing: what a linear classifier can read from the features.

    Differentiable in: its parameters. Held fixed: `features`.
    """

    trains_encoder: ClassVar[bool] = False

    def __init__(self, feature_dim: int, num_classes: int) -> None:
        super().__init__()
        self.layers = nn.Linear(feature_dim, num_classes)

    def forward(
        self, features: Tensor, base_features: Tensor | None = None, base_labels: Tensor | None = None
    ) -> Tensor:
        return self.layers(features.detach())


@final
class KNNHead(AbstractHead):
    """The vote of the k nearest labelled samples, by cosine: log(share + floor). It learns nothing.

    Differentiable in: nothing.

    >>> base = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> KNNHead(2, k=1)(torch.tensor([[0.2, 0.8]]), base, torch.tensor([0, 0, 1])).argmax(1).tolist()
    [1]
    """

    trains_encoder: ClassVar[bool] = False

    def __init__(self, num_classes: int, k: int = 5, floor: float = 1e-8) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        self.num_classes, self.k, self.floor = num_classes, k, floor

    @property
    def uses_base(self) -> bool:
        return True

    def forward(
        self, features: Tensor, base_features: Tensor | None = None, base_labels: Tensor | None = None
    ) -> Tensor:
        if base_features is None or base_labels is None:
            raise ValueError("nearest neighbours are looked for among a base set: pass base_features and base_labels")
        return self.predict(features.detach(), base_features.detach(), base_labels, features[:0], True)

    def predict(
        self, features: Tensor, labelled: Tensor, labels: Tensor, unlabelled: Tensor, inductive: bool
    ) -> Tensor:
        if len(labels) == 0:
            raise ValueError("nearest neighbours are looked for among labelled samples: give at least one")
        if not bool(((labels >= 0) & (labels < self.num_classes)).all()):
            raise ValueError(f"labels must be classes from 0 to {self.num_classes - 1}")
        x, base = unit_rows(check_features(features)), unit_rows(check_features(labelled, "labelled features"))
        index = AutoSearch().query(base, x, min(self.k, len(base)))
        votes = nn.functional.one_hot(labels[index], self.num_classes).to(x.dtype).mean(1)
        return torch.log(votes + self.floor)
