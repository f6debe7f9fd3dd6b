"""Layers as an attack needs them: with other settings, in float64, with neighbours that stay or with more of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gll.attacks.class_search import ClassSearch
from gll.features import power_of_two_scale
from gll.graph import Graph, Topology
from gll.labels import Labels
from gll.neighbors import AbstractNeighborSearch
from gll.nn.graph_heads import GLLHead, WNLLHead
from gll.nn.layer import GraphLearningLayer
from gll.similarity import edge_sqdist, pair_weight
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


@final
@dataclass(frozen=True, eq=False)
class WithEveryClass:
    """Joins every free node to labelled ones of each class: a `reweight` of a layer, before that layer's own.

    The edges that were there stay, and so do the distances ε of all nodes. Beyond those, weights fall as one over the
    squared distance, and no longer as a Gaussian: so a class has a slope however far it is, and one that does not drown
    beside the slopes of other queries.

    Args:
        layer: whose graph it is.
        points: how many of each class.

    Differentiable in: the features of the graph. Held fixed: which points are joined.
    """

    layer: GraphLearningLayer
    points: int

    def __call__(self, graph: Graph, labels: Labels) -> Graph:
        x, t, n = graph.features, graph.topology, graph.num_nodes
        assert x is not None  # a layer's graph has them
        free = torch.ones(n, dtype=torch.bool, device=x.device)
        free[labels.index] = False
        rows = free.nonzero()[:, 0]
        scale = power_of_two_scale(x)
        scaled = x / scale
        near = ClassSearch(scaled.detach()[labels.index], labels.value.argmax(1), self.points)
        query, node = near(scaled.detach()[rows])
        pairs = torch.cat([t.i, rows[query]]), torch.cat([t.j, labels.index[node]])
        topology, _ = Topology.from_pairs(n, *pairs)
        epsilon = self.layer._base_bandwidth(scaled, scale)
        weight = pair_weight(edge_sqdist(scaled, topology), epsilon[topology.i], epsilon[topology.j], self._kernel)
        graph = Graph(topology, weight, features=x)
        return graph if self.layer.reweight is None else self.layer.reweight(graph, labels)

    def _kernel(self, z: Float[Tensor, " edges"]) -> Float[Tensor, " edges"]:
        """The layer's Gaussian exp(-s) up to s = 1, then 1/(e·s), which has the same value and slope there."""
        s = float(self.layer.kernel.scale) * z  # type: ignore[attr-defined]
        return torch.where(s > 1, 1 / (math.e * s.clamp(min=1)), torch.exp(-s))


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
