"""Nodes that no label reaches: finding them, and what they get."""

from __future__ import annotations

import enum

import torch
from torch import Tensor

from gll.equations import AbstractEquation
from gll.graph import Graph
from gll.labels import Labels
from gll.neighbors import Exact
from gll.problem import Inputs


class UnreachedWarning(UserWarning):
    """Some nodes got a fallback value because no label reaches them."""


class Unreached(enum.Enum):
    """What a node gets that no label reaches: the uniform value, an error, or its nearest label."""

    UNIFORM = "uniform"
    RAISE = "raise"
    NEAREST = "nearest"

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ValueError(f"unknown policy {value!r} for unreached nodes; choose 'uniform', 'nearest' or 'raise'")


def sort_nodes(
    equation: AbstractEquation, graph: Graph, labels: Labels | None, constant: Inputs, classes: int
) -> tuple[Tensor, Tensor | None]:
    """Boundary nodes, and the nodes that nothing determines (None where there are none)."""
    n, device = graph.num_nodes, graph.weight.device
    labelled = torch.zeros(n, dtype=torch.bool, device=device)
    if labels is not None:
        labelled[labels.index.long()] = True
    boundary = labelled if equation.labels_are_boundary else torch.zeros_like(labelled)
    node = torch.arange(n, device=device)[:, None]
    anchored = constant.equation.anchored(constant.weight.new_zeros(n, classes), node)
    if anchored is True or (equation.singular and labels is None):
        return boundary, None
    pinned = labelled if anchored is False else labelled | anchored
    reached = torch.zeros_like(labelled)
    reached[graph.components[pinned]] = True  # component numbers are below n
    dropped = ~reached[graph.components]
    return boundary, dropped if bool(dropped.any()) else None


def weight_cut(graph: Graph, lost: Tensor, dtype: torch.dtype) -> Tensor:
    """(n,) the weight of every node's edges to lost nodes; zero on the lost nodes themselves."""
    t = graph.topology
    between = torch.where(lost[t.i] != lost[t.j], graph.weight.detach().to(dtype), 0)
    return torch.where(lost, 0, t.degree(between))


def uniform_value(equation: AbstractEquation, labels: Labels | None) -> float:
    """The value that favours no class: 1/C for one-hot and soft labels, 0 for scores of mean zero."""
    if labels is None or equation.scores:
        return 0.0
    mean = labels.value.detach().mean()
    return float(mean) if bool(torch.isfinite(mean)) else 1 / labels.num_classes


def fallback_values(
    policy: Unreached, equation: AbstractEquation, graph: Graph, labels: Labels | None, dropped: Tensor, like: Tensor
) -> Tensor:
    """Values for the nodes that nothing determines."""
    if policy is Unreached.UNIFORM or labels is None:
        return torch.full_like(like, uniform_value(equation, labels))
    nodes, nearest = nearest_label(graph, labels, dropped)
    return torch.zeros_like(like).index_copy(0, nodes, equation.copied_value(labels)[nearest].to(like.dtype))


def nearest_label(graph: Graph, labels: Labels, dropped: Tensor) -> tuple[Tensor, Tensor]:
    """The nodes that nothing determines, and for each the number of the label nearest to it in feature space."""
    if graph.features is None:
        raise ValueError(
            "unreached='nearest' needs to know the features, but this graph was not built from any; "
            "use gll.knn_graph, pass Graph(..., features=x), or choose 'uniform' or 'raise'"
        )
    nodes = torch.nonzero(dropped).squeeze(1)
    return nodes, Exact().query(graph.features[labels.index.long()], graph.features[nodes], 1).squeeze(1)
