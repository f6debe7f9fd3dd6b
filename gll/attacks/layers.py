"""Layers as an attack needs them: with other settings, in float64 throughout, or with neighbours that stay."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, nn

from gll.neighbors import AbstractNeighborSearch
from gll.nn.graph_heads import GLLHead, WNLLHead
from gll.nn.layer import GraphLearningLayer
from gll.solvers.base import AbstractLinearSolver


@final
class Remembered(AbstractNeighborSearch):
    """A search that was made once, and answers the same from then on, whatever the points have become."""

    def __init__(self, search: AbstractNeighborSearch) -> None:
        self.search = search
        self.index: Tensor | None = None

    def find(self, x: Tensor, k: int) -> Tensor:
        if self.index is None:
            self.index = self.search(x, k)
        if self.index.shape != (len(x), k):
            raise ValueError(
                f"neighbours were fixed for {len(self.index)} nodes, but now there are {len(x)}: call with the batch "
                "they were fixed for, whole and in its order"
            )
        return self.index


@final
class Wide(GraphLearningLayer):
    """A layer that computes in float64, whatever the features are.

    Args:
        layer: its settings.
        solver: of the general path, unless the layer names one.
        fast: leave float32 features to the fused path where it can take them: it computes in float64 already.
    """

    def __init__(self, layer: GraphLearningLayer, solver: AbstractLinearSolver | None, *, fast: bool) -> None:
        super().__init__(layer.num_classes, **settings_of(layer))
        self.wide, self.fast = changed(layer, solver=layer.solver or solver), fast

    def forward(
        self, features: Tensor, base_features: Tensor | None = None, base_labels: Tensor | None = None
    ) -> Tensor:
        if self.fast:
            return super().forward(features, base_features, base_labels)
        assert base_features is not None
        assert base_labels is not None
        return self._general(features, base_features, base_labels)

    def _general(self, features: Tensor, base_features: Tensor, base_labels: Tensor) -> Tensor:
        out: Tensor = self.wide(features.double(), base_features.double(), base_labels)
        return out


def parts_of(head: GraphLearningLayer | GLLHead | WNLLHead) -> tuple[nn.Module | None, GraphLearningLayer]:
    """What comes between encoder and graph, and the graph's layer."""
    if isinstance(head, GraphLearningLayer):
        return None, head
    if isinstance(head, GLLHead):
        return head.projection, head.layer
    if isinstance(head, WNLLHead):
        return head.body, head.layer
    raise TypeError(f"head must be a GraphLearningLayer, a GLLHead or a WNLLHead, got {type(head).__name__}")


def settings_of(layer: GraphLearningLayer) -> dict[str, Any]:
    names = ("k", "equation", "normalize", "bandwidth", "kernel", "symmetrize", "search", "reweight", "solver")
    return {name: getattr(layer, name) for name in (*names, "unreached", "floor", "inductive")}


def changed(layer: GraphLearningLayer, **changes: Any) -> GraphLearningLayer:
    """A layer with the settings of another, but for these."""
    return GraphLearningLayer(layer.num_classes, **{**settings_of(layer), **changes})
