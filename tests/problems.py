"""A gallery of graphs with exact answers.

Every entry of `GALLERY` makes a `Case`: an equation on a graph with labels, and its solution by hand. The derivations
are electrical: weights are conductances, labels are voltages. `manufactured` makes a problem whose solution is any u.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

import gll

F64 = torch.float64


@dataclass(frozen=True, eq=False)
class Case:
    """An equation on a graph, and its exact solution."""

    equation: gll.AbstractEquation
    graph: gll.Graph
    labels: gll.Labels | None
    exact: Tensor

    def solve(self, **options: object) -> gll.Solution:
        return gll.solve(self.equation, self.graph, self.labels, **options)  # type: ignore[arg-type]

    def to(self, device: torch.device) -> Case:
        t = self.graph.topology
        topology = gll.Topology(t.num_nodes, t.i.to(device), t.j.to(device))
        tensors = {name: value.to(device) for name, value in self.equation.tensors().items()}
        labels = None if self.labels is None else gll.Labels(self.labels.index.to(device), self.labels.value.to(device))
        graph = gll.Graph(topology, self.graph.weight.to(device))
        return replace(
            self, equation=self.equation.with_tensors(tensors), graph=graph, labels=labels, exact=self.exact.to(device)
        )


# Graphs ------------------------------------------------------------------------------------------------------------


def graph_of(n: int, edges: list[tuple[int, int]], weight: list[float] | Tensor | None = None) -> gll.Graph:
    """A graph from a list of edges, in any order."""
    a, b = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    w = torch.ones(len(edges), dtype=F64) if weight is None else torch.as_tensor(weight, dtype=F64)
    topology, edge = gll.Topology.from_pairs(n, a, b)
    return gll.Graph(topology, w.new_zeros(topology.num_edges).index_add(0, edge, w))


def path(n: int, weight: list[float] | Tensor | None = None) -> gll.Graph:
    return graph_of(n, [(i, i + 1) for i in range(n - 1)], weight)


def cycle(n: int) -> gll.Graph:
    return graph_of(n, [(i, (i + 1) % n) for i in range(n)])


def star(weight: list[float]) -> gll.Graph:
    """Node 0 joined to nodes 1, 2, ... ."""
    return graph_of(len(weight) + 1, [(0, i + 1) for i in range(len(weight))], weight)


def complete(n: int, weight: float = 1.0) -> gll.Graph:
    edges = [(i, j) for i in range(n) for j in range(i)]
    return graph_of(n, edges, [weight] * len(edges))


def grid(rows: int, columns: int) -> gll.Graph:
    """Node r * columns + c at (r, c), joined to its four neighbours."""
    node = torch.arange(rows * columns).view(rows, columns)
    pairs = [(node[1:], node[:-1]), (node[:, 1:], node[:, :-1])]
    edges = [(int(a), int(b)) for p, q in pairs for a, b in zip(p.flatten(), q.flatten(), strict=True)]
    return graph_of(rows * columns, edges)


def binary_tree(depth: int) -> gll.Graph:
    """Node i has children 2i + 1 and 2i + 2."""
    n = 2 ** (depth + 1) - 1
    return graph_of(n, [(i, (i - 1) // 2) for i in range(1, n)])


def two_cliques(size: int, link: float) -> gll.Graph:
    """Two complete graphs on 0 .. size-1 and size .. 2 size-1, with an edge of weight `link` between 1 and size + 1."""
    edges = [(i + shift, j + shift) for shift in (0, size) for i in range(size) for j in range(i)]
    return graph_of(2 * size, [*edges, (1, size + 1)], [1.0] * len(edges) + [link])


def random_graph(n: int = 10, k: int = 3, d: int = 2, seed: int = 0) -> gll.Graph:
    """A connected kNN graph of a normal sample."""
    for trial in range(100):
        generator = torch.Generator().manual_seed(1000 * seed + trial)
        graph = gll.knn_graph(torch.randn(n, d, generator=generator, dtype=F64), k)
        if int(graph.components.max()) == 0:
            return graph
    raise AssertionError("no connected graph in 100 trials")


def labels_at(index: list[int], *values: list[float]) -> gll.Labels:
    """Labels with one row of values per node."""
    return gll.Labels(torch.tensor(index), torch.tensor(values, dtype=F64))


def one_hot(index: list[int], classes: list[int]) -> gll.Labels:
    return gll.Labels(torch.tensor(index), torch.eye(max(classes) + 1, dtype=F64)[classes])


# Cases -------------------------------------------------------------------------------------------------------------


def _two_columns(u: Tensor) -> Tensor:
    """u and 1 - u, as two classes."""
    return torch.stack([u, 1 - u], 1)


def path_laplace(n: int = 9) -> Case:
    """Resistors in series: the voltage falls in proportion to the resistance passed."""
    resistance = torch.linspace(0.1, 3.0, n - 1, dtype=F64)
    u = torch.cat([resistance.new_zeros(1), resistance.cumsum(0) / resistance.sum()])
    return Case(gll.Laplace(), path(n, 1 / resistance), one_hot([0, n - 1], [1, 0]), _two_columns(u))


def star_tau() -> Case:
    """One free node: (τ + Σw) u = Σ w g + f."""
    w, g = [0.5, 2.0, 0.25, 1e-6], torch.tensor([[1.0, 0], [0, 1], [0.3, 0.7], [1, 1]], dtype=F64)
    weight, tau, source = torch.tensor(w, dtype=F64), 0.3, torch.tensor([0.7, 9, 9, 9, 9], dtype=F64)
    centre = (weight @ g + 0.7) / (tau + weight.sum())
    labels = gll.Labels(torch.arange(1, 5), g)
    return Case(gll.Laplace(tau=tau, source=source), star(w), labels, torch.cat([centre[None], g]))


def complete_tau(n: int = 8, tau: float = 0.5, weight: float = 0.2) -> Case:
    """All free nodes are alike: (τ + w m) u = w Σ g."""
    g = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0.5, 0.5]], dtype=F64)
    free = weight * g.sum(0) / (tau + 3 * weight)
    exact = torch.cat([g, free.expand(n - 3, 3)])
    return Case(gll.Laplace(tau=tau), complete(n, weight), gll.Labels(torch.arange(3), g), exact)


def cycle_decay(n: int = 12, tau: float = 0.3) -> Case:
    """One label on a ring: u(j) = cosh(θ(n/2 - j)) / cosh(θ n/2) with 2 cosh θ = 2 + τ."""
    theta = math.acosh(1 + tau / 2)
    j = torch.arange(n, dtype=F64)
    u = torch.cosh(theta * (n / 2 - j)) / math.cosh(theta * n / 2)
    return Case(gll.Laplace(tau=tau), cycle(n), labels_at([0], [1.0]), u[:, None])


def path_tau_per_node(n: int = 7) -> Case:
    """Choose u and read off τ(x) = -Δu(x)/u(x), which is positive for the convex u = 1 + x²."""
    u = 1 + torch.linspace(-1, 1, n, dtype=F64) ** 2
    graph = path(n)
    tau = -graph.laplacian(u) / u
    tau[0] = tau[-1] = 0
    return Case(gll.Laplace(tau=tau), graph, labels_at([0, n - 1], [2.0], [2.0]), u[:, None])


def grid_harmonic(rows: int = 6, columns: int = 7) -> Case:
    """x² - y² and xy are harmonic for the five-point Laplacian; their boundary values are the labels."""
    r, c = torch.meshgrid(torch.arange(rows, dtype=F64), torch.arange(columns, dtype=F64), indexing="ij")
    u = torch.stack([(r**2 - c**2).flatten(), (r * c).flatten()], 1)
    edge = torch.zeros(rows, columns, dtype=torch.bool)
    edge[0] = edge[-1] = edge[:, 0] = edge[:, -1] = True
    index = torch.nonzero(edge.flatten()).squeeze(1)
    return Case(gll.Laplace(), grid(rows, columns), gll.Labels(index, u[index]), u)


def tree_levels(depth: int = 4) -> Case:
    """Root at 0, leaves at 1, and 2^l parallel resistors above level l: u(l) = (1 - 2^-l)/(1 - 2^-depth)."""
    n = 2 ** (depth + 1) - 1
    level = torch.floor(torch.log2(torch.arange(1, n + 1, dtype=F64)))
    u = (1 - 2.0**-level) / (1 - 2.0**-depth)
    index = torch.tensor([0, *range(2**depth - 1, n)])
    return Case(gll.Laplace(), binary_tree(depth), gll.Labels(index, _two_columns(u)[index]), _two_columns(u))


def cliques_across(size: int = 6, link: float = 1e-3) -> Case:
    """Labels in both cliques. The resistance between two nodes of K_s is 2/s, the others lie half way between them."""
    drop = 2 / size
    current = 1 / (2 * drop + 1 / link)
    u = torch.empty(2 * size, dtype=F64)
    u[:size] = current * drop / 2
    u[0], u[1] = 0, current * drop
    u[size:] = 1 - u[:size]
    return Case(gll.Laplace(), two_cliques(size, link), one_hot([0, size], [1, 0]), _two_columns(u))


def cliques_hanging(size: int = 6, link: float = 1e-12) -> Case:
    """Labels in the first clique only: no current crosses the link, so the second has the voltage of its end."""
    u = torch.full((2 * size,), 0.5, dtype=F64)
    u[0], u[2] = 0, 1
    return Case(gll.Laplace(), two_cliques(size, link), one_hot([0, 2], [1, 0]), _two_columns(u))


def soft_complete(n: int = 6, lam: float = 2.0, weight: float = 0.5) -> Case:
    """Every node labelled: summing the equation gives Σu = Σg, hence (λ + n w) u = λ g + w Σ g."""
    g = torch.stack([torch.linspace(-1, 2, n, dtype=F64), torch.linspace(0, 1, n, dtype=F64) ** 2], 1)
    u = (lam * g + weight * g.sum(0)) / (lam + n * weight)
    return Case(gll.SoftLaplace(lam=lam), complete(n, weight), gll.Labels(torch.arange(n), g), u)


def soft_path(n: int = 6, lam: float = 0.7) -> Case:
    """Two springs 1/λ in series with n - 1 resistors: current 1/(2/λ + n - 1)."""
    current = 1 / (2 / lam + n - 1)
    u = current * (1 / lam + torch.arange(n, dtype=F64))
    return Case(gll.SoftLaplace(lam=lam), path(n), labels_at([0, n - 1], [0.0], [1.0]), u[:, None])


def poisson_path(n: int = 7) -> Case:
    """A current of 1/2 through unit resistors, from label 1 to label 0; the mean over symmetric degrees is zero."""
    u = -0.5 * (torch.arange(n, dtype=F64) - (n - 1) / 2)
    return Case(gll.Poisson(), path(n), one_hot([0, n - 1], [0, 1]), torch.stack([u, -u], 1))


def poisson_complete(n: int = 7, weight: float = 0.3) -> Case:
    """Δu = n w (u - mean u), so u = (g - ḡ)/(n w) on the labelled nodes and 0 on the others; all degrees are equal."""
    g = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]], dtype=F64)
    exact = torch.cat([(g - g.mean(0)) / (n * weight), torch.zeros(n - 4, 3, dtype=F64)])
    return Case(gll.Poisson(), complete(n, weight), gll.Labels(torch.arange(4), g), exact)


def poisson_star() -> Case:
    """Unequal degrees: a current of 1/2 from the centre to leaf 1; then the degree-weighted mean is removed."""
    w = [0.5, 2.0, 1.0]
    u = torch.tensor([0.0, -0.5 / w[0], 0, 0], dtype=F64)  # the other leaves carry no current
    degree = torch.tensor([sum(w), *w], dtype=F64)
    u = u - (degree @ u) / degree.sum()
    return Case(gll.Poisson(), star(w), one_hot([0, 1], [0, 1]), torch.stack([u, -u], 1))


def p_path(p: float, n: int = 7) -> Case:
    """In series the flux w |du|^(p-1) is constant, so du is proportional to w^(-1/(p-1)); δ is negligible here."""
    weight = torch.linspace(0.5, 2.0, n - 1, dtype=F64)
    drop = weight ** (-1 / (p - 1))
    u = torch.cat([drop.new_zeros(1), drop.cumsum(0) / drop.sum()])
    return Case(gll.PLaplace(p=p, delta=1e-8), path(n, weight), one_hot([0, n - 1], [1, 0]), _two_columns(u))


LINEAR: dict[str, Callable[[], Case]] = {
    "path": path_laplace,
    "star": star_tau,
    "complete": complete_tau,
    "cycle": cycle_decay,
    "tau per node": path_tau_per_node,
    "grid": grid_harmonic,
    "tree": tree_levels,
    "cliques 1e-3": cliques_across,
    "cliques 1e-12": lambda: cliques_across(link=1e-12),
    "hanging clique 1e-3": lambda: cliques_hanging(link=1e-3),
    "hanging clique 1e-12": cliques_hanging,
    "soft complete": soft_complete,
    "soft path": soft_path,
    "poisson path": poisson_path,
    "poisson complete": poisson_complete,
    "poisson star": poisson_star,
}
NONLINEAR: dict[str, Callable[[], Case]] = {f"p = {p:g} path": lambda p=p: p_path(p) for p in (1.5, 3, 4, 10)}  # type: ignore
GALLERY = LINEAR | NONLINEAR


def manufactured(
    make: Callable[[Tensor], gll.AbstractEquation], graph: gll.Graph, u: Tensor, labelled: list[int] | None
) -> Case:
    """A problem with solution u: `make(source)` is solved with the source that u needs, and u on `labelled` as labels.

    The source is computed from σ and φ by dense sums over all pairs of nodes, not by the library's calculus.
    """
    n = len(u)
    equation = make(torch.zeros_like(u))
    weight = graph.to_dense().detach()
    node = torch.arange(n)
    x, y = node.repeat_interleave(n)[:, None], node.repeat(n)[:, None]
    flux = equation.phi(u[x[:, 0]] - u[y[:, 0]], x, y).view(n, n, -1)
    sigma = equation.sigma(u, node[:, None])
    source = torch.einsum("xy,xyc->xc", weight, flux) + (0 if sigma is None else sigma)
    labels = None if labelled is None else gll.Labels(torch.tensor(labelled), u[labelled])
    return Case(make(source), graph, labels, u)
