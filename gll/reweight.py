"""Reweighting: from a graph and labels to a graph on which Laplace learning works with very few labels.

With few labels the solution of Laplace's equation is nearly constant, with spikes at the labels. These methods
strengthen the edges near labelled nodes, each by a node function γ. All are plain functions `Graph, Labels -> Graph`
and differentiable, so they compose with any equation and any layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gll.equations import Poisson
from gll.graph import Graph
from gll.implicit import solve
from gll.labels import Labels
from gll.neighbors import Exact
from gll.operators import component_mean
from gll.solvers.base import AbstractLinearSolver
from gll.solvers.newton import Newton


def wnll(graph: Graph, labels: Labels) -> Graph:
    """Weighted nonlocal Laplacian (Shi, Osher, Zhu 2017): w_ij (γ_i + γ_j)/2, γ = n/m on the m labelled nodes, else 1.

    Differentiable in: `graph.weight`.

    >>> path = Graph.from_sparse(torch.tensor([[0., 1., 0.], [1., 0., 1.], [0., 1., 0.]]))
    >>> wnll(path, Labels(torch.tensor([0]), torch.ones(1, 1))).weight.tolist()
    [2.0, 1.0]
    """
    gamma = graph.weight.detach().new_ones(graph.num_nodes)
    gamma[labels.index.long()] = graph.num_nodes / len(labels.index)
    return _mean_weighted(graph, gamma)


def poisson(
    graph: Graph, labels: Labels, *, floor: float = 1e-5, solver: AbstractLinearSolver | Newton | None = None
) -> Graph:
    """Poisson reweighting (Miller, Calder 2023): w_ij γ_i γ_j, where Δγ = Σ_labelled δ - (their mean), shifted above 0.

    The shift leaves the smallest 0.1 % of the nodes below zero, at the floor. A few nodes that hang on the rest by weak
    edges have values far below all others; if their minimum set the shift, γ would be nearly constant elsewhere, and
    the method that of Laplace.

    Args:
        graph, labels: the graph, and which nodes are labelled; the label values are not used.
        floor: the smallest γ, as a fraction of the largest. Components are treated one by one.
        solver: of the Poisson equation, as in `gll.solve`.

    Differentiable in: `graph.weight`.
    """
    marks = graph.weight.detach().new_zeros(graph.num_nodes, 1)
    marks[labels.index.long()] = 1
    source = marks - component_mean(marks, graph.components)
    gamma = solve(Poisson(source=source), graph, solver=solver).value[:, 0]
    zero = torch.zeros_like(gamma)
    gamma = (gamma - gamma[_low_nodes(gamma.detach(), graph.components)]).clamp(min=0)
    largest = zero.scatter_reduce(0, graph.components, gamma, "amax", include_self=False)[graph.components]
    # A component that is labelled throughout, or not at all, has γ = 0: there, weights are left as they are.
    gamma = torch.where(largest > 0, gamma + floor * largest, 1)
    t = graph.topology
    return graph.with_weight(graph.weight * gamma[t.i] * gamma[t.j])


def _low_nodes(value: Tensor, component: Tensor) -> Tensor:
    """(n,) for every node the one that has the 0.1 % quantile of its component, in small ones the least value."""
    order = torch.argsort(value, stable=True)
    order = order[torch.argsort(component[order], stable=True)]  # component by component, in each by value
    size = torch.bincount(component)
    start = size.cumsum(0) - size
    return order[start + size // 1000][component]


def properly_weighted(
    graph: Graph,
    labels: Labels,
    *,
    features: Tensor | None = None,
    alpha: float = 2.0,
    zeta: float = 1e7,
    radius: float | None = None,
) -> Graph:
    """Properly weighted Laplacian (Calder, Slepčev 2020): w_ij (γ_i + γ_j)/2 with γ = 1 + (r / dist to labels)^α ≤ ζ.

    Args:
        graph, labels: the graph, and which nodes are labelled; the label values are not used.
        features: (n, d) where the nodes are; by default the features the graph was built from.
        alpha, zeta: growth and bound of the singularity.
        radius: r, how far it reaches; by default the mean distance to the nearest label, held fixed.

    Differentiable in: `graph.weight`, `features`. Held fixed: which label is nearest, the default radius.
    """
    x = graph.features if features is None else features
    if x is None:
        raise ValueError(
            "properly_weighted needs the features of the nodes: pass features=x, or build the graph from them"
        )
    index = labels.index.long()
    nearest = index[Exact().query(x[index], x, 1).squeeze(1)]
    square = (x - x[nearest]).square().sum(1)
    distance = square.clamp(min=torch.finfo(x.dtype).tiny).sqrt()
    reach = float(distance.detach().mean()) if radius is None else radius
    if reach <= torch.finfo(x.dtype).tiny ** 0.5 * 2:  # every node lies on a label
        return graph
    nearest_allowed = reach / (zeta - 1) ** (1 / alpha)
    gamma = 1 + (reach / distance.clamp(min=nearest_allowed)) ** alpha
    return _mean_weighted(graph, gamma.to(graph.weight.dtype))


def _mean_weighted(graph: Graph, gamma: Tensor) -> Graph:
    t = graph.topology
    return graph.with_weight(graph.weight * (gamma[t.i] + gamma[t.j]) / 2)
