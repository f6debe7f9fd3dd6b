"""Heads that classify on a graph: the graph learning layer, and WNLL, which came before it.

In training the graph has the samples of a batch and its base. At test time it has all labelled, unlabelled and test
samples (transductive); or it is solved without the test samples, and each of these is joined to it (inductive).
Read next: `heads.py`, where they have names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from gll.nn.freezing import Frozen
from gll.nn.layer import GraphLearningLayer
from gll.nn.plain_heads import AbstractHead, MLPHead, in_chunks

TRAINED_LAYERS = 2  # that WNLL's second stage leaves free


@final
class GLLHead(AbstractHead):
    """The graph learning layer.

    Args:
        layer: for training.
        test_layer: makes the layer for test time.
        projection: applied to the features first, and learned; None: the graph is that of the features themselves.

    Differentiable in: `features`, `base_features`, and the parameters of the projection.
    """

    def __init__(
        self,
        layer: GraphLearningLayer,
        test_layer: Callable[[], GraphLearningLayer],
        projection: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.layer, self.test_layer, self.projection = layer, test_layer, projection

    @property
    def uses_base(self) -> bool:
        return True

    def forward(
        self, features: Tensor, base_features: Tensor | None = None, base_labels: Tensor | None = None
    ) -> Tensor:
        logits: Tensor = self.layer(*self._projected(features, base_features), base_labels)
        return logits

    def attempt(
        self, features: Tensor, base_features: Tensor | None = None, base_labels: Tensor | None = None
    ) -> tuple[Tensor, Callable[[], bool] | None]:
        changed = type(self.layer).forward is not GraphLearningLayer.forward
        if changed or self.layer._forward_hooks or self.layer._forward_pre_hooks:  # which an attempt would pass by
            return self(features, base_features, base_labels), None
        return self.layer.attempt(*self._projected(features, base_features), base_labels)

    def _projected(self, features: Tensor, base_features: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if self.projection is None or base_features is None:
            return features, base_features
        projected = self.projection(torch.cat([base_features, features]))
        return projected[len(base_features) :], projected[: len(base_features)]

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Mean of -log(u_y + floor): where τ > 0 loses mass, the loss sees it.

        Equations that are not linear ask every class against the rest, and their values sum to anything: there it is
        cross-entropy, -log(u_y / Σu).
        """
        linear = self.layer.equation.linear
        return nn.functional.nll_loss(logits, target) if linear else nn.functional.cross_entropy(logits, target)

    def predict(
        self, features: Tensor, labelled: Tensor, labels: Tensor, unlabelled: Tensor, inductive: bool
    ) -> Tensor:
        x, base, other = features, labelled, unlabelled
        if self.projection is not None:
            x, base, other = (in_chunks(self.projection, t) for t in (features, labelled, unlabelled))
        return _on_graph(self.test_layer(), x, base, labels, other, inductive)


def _on_graph(
    layer: GraphLearningLayer, x: Tensor, labelled: Tensor, labels: Tensor, unlabelled: Tensor, inductive: bool
) -> Tensor:
    """One graph of everything; samples without a class are base nodes marked -1."""
    if len(labels) == 0:
        raise ValueError("a graph spreads labels from labelled samples to the others: give at least one")
    layer.inductive = inductive
    known = torch.cat([labels, labels.new_full((len(unlabelled),), -1)])
    logits: Tensor = layer(x, torch.cat([labelled, unlabelled]), known)
    return logits


@final
class WNLLHead(AbstractHead):
    """The weighted nonlocal Laplacian as activation (Wang et al. 2021), which trains in two alternating stages.

    In stage 1 an ordinary classifier trains with the encoder. In stage 2 the classes u come from a graph (WNLL) in
    place of the classifier's last layer, which only lends its gradient: Wᵀ(u - y), less its part along the features.
    What u does not depend on would grow without end: W, so it stands still; and the length of the features, since the
    graph sees directions only. The two layers before W learn, all others are frozen. At test time classes come from the
    graph.

    Args:
        classifier: of stage 1; if it is one linear layer, the two that learn in stage 2 are the encoder's last.
        layer: of the graph, for training.
        test_layer: makes the layer for test time.
        stage1, stage2: epochs of each stage at a time.

    Differentiable in: `features` and its parameters: exactly in stage 1; by the surrogate in stage 2, without its last
    layer.
    """

    def __init__(
        self,
        classifier: MLPHead,
        layer: GraphLearningLayer,
        test_layer: Callable[[], GraphLearningLayer],
        stage1: int = 400,
        stage2: int = 5,
    ) -> None:
        super().__init__()
        if stage1 < 0 or stage2 < 0 or stage1 + stage2 == 0:
            raise ValueError(
                f"the stages need a number of epochs, at least 0, one of them more; got {stage1}, {stage2}"
            )
        self.body, self.last = classifier.layers[:-1], classifier.layers[-1]
        self.layer, self.test_layer, self.stage1, self.stage2 = layer, test_layer, stage1, stage2
        self._second = stage1 == 0
        self._frozen: Frozen | None = None

    @property
    def uses_base(self) -> bool:
        return self._second

    def start_epoch(self, epoch: int, encoder: nn.Module) -> None:
        """Which stage it is; stage 2 freezes, stage 1 lets go."""
        self._second = epoch % (self.stage1 + self.stage2) >= self.stage1
        if self._frozen is not None and not (self._second and self._frozen.parts[0] is encoder):
            self.release()
        if self._second and self._frozen is None:
            self._frozen = Frozen((encoder, self.body), TRAINED_LAYERS, behind=(self.last,))

    def release(self) -> None:
        if self._frozen is not None:
            self._frozen.release()
            self._frozen = None

    def forward(
        self, features: Tensor, base_features: Tensor | None = None, base_labels: Tensor | None = None
    ) -> Tensor:
        seen = self.body(features)
        if not self._second:
            return self.last(seen)
        if base_features is None or base_labels is None:
            raise ValueError("WNLL's second stage solves on a graph: pass base_features and base_labels (uses_base)")
        with torch.no_grad():
            value = self.layer(seen, self.body(base_features), base_labels)
        length = seen.detach().norm(dim=1, keepdim=True)
        surrogate = self.last(length * nn.functional.normalize(seen))  # of the same value, its gradient along a sphere
        # Adds nothing to the value, and to the gradient what the last layer gives.
        return value + (surrogate - surrogate.detach())

    def predict(
        self, features: Tensor, labelled: Tensor, labels: Tensor, unlabelled: Tensor, inductive: bool
    ) -> Tensor:
        x, base, other = (in_chunks(self.body, t) for t in (features, labelled, unlabelled))
        return _on_graph(self.test_layer(), x, base, labels, other, inductive)
