"""A weighted undirected graph, and calculus on it.

A graph is integers plus numbers. The integers, a `Topology`, say which nodes are joined; they are chosen
once and never carry a gradient. The numbers, one `weight` per undirected edge, are a plain tensor through
which gradients flow. Keeping the two apart shows in the code where differentiability stops.

Calculus (section 2.2 of the paper), for a function u on the nodes and a vector field q on the edges:

    gradient     (∇u)(x, y) = u(x) - u(y)
    divergence   (div q)(x) = Σ_y w_xy q(x, y)          the adjoint of the gradient:  <∇u, q> = <u, div q>
    Laplacian    Δu = div ∇u,  Δu(x) = Σ_y w_xy (u(x) - u(y))
    energy       |∇u|² = <Δu, u> = Σ_edges w (u(x) - u(y))²

A vector field is skew, q(y, x) = -q(x, y), so one value per undirected edge (i < j) describes it.

Read next: `neighbors.py`, which picks the edges, and `similarity.py`, which weighs them.
"""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import scipy.sparse
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gll.sums import order_by, sum_into, take, weighted_differences

# torch announces once a process that sparse CSR is in beta, and that its invariants are not checked. Hear it here, so
# that a user does not have to.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), check_invariants=False).to_dense()


@dataclass(frozen=True, eq=False)
class Topology:
    """Which nodes are joined: each undirected edge once, as i < j, sorted by (i, j).

    Args:
        num_nodes: number of nodes n.
        i, j: (E,) int64, the two ends of every edge.

    Differentiable in: nothing; a topology holds integers only.

    >>> topology, edge_of_pair = Topology.from_pairs(3, torch.tensor([0, 1, 2]), torch.tensor([1, 0, 1]))
    >>> topology.i.tolist(), topology.j.tolist(), edge_of_pair.tolist()
    ([0, 1], [1, 2], [0, 0, 1])
    """

    num_nodes: int
    i: Int[Tensor, " edges"]
    j: Int[Tensor, " edges"]

    @classmethod
    def from_pairs(cls, num_nodes: int, a: Tensor, b: Tensor) -> tuple[Topology, Tensor]:
        """Topology of the pairs (a, b), in any order and with repeats, and the edge that each pair became."""
        key = torch.minimum(a, b) * num_nodes + torch.maximum(a, b)
        unique, edge_of_pair = torch.unique(key, return_inverse=True)
        i = torch.div(unique, num_nodes, rounding_mode="floor")
        return cls(num_nodes, i, unique - i * num_nodes), edge_of_pair

    def __getstate__(self) -> dict[str, Any]:  # copies and pickles make anew what is cached
        return {"num_nodes": self.num_nodes, "i": self.i, "j": self.j}

    @property
    def num_edges(self) -> int:
        return self.i.numel()

    @cached_property
    def csr(self) -> tuple[Tensor, Tensor, Tensor]:
        """The symmetric sparsity pattern as (row pointers, columns, edge of each entry)."""
        # Below the diagonal first: both halves being sorted, a stable sort by rows leaves the columns in order.
        row, col = torch.cat([self.j, self.i]), torch.cat([self.i, self.j])
        order = order_by(row, self.num_nodes)
        pointers = torch.nn.functional.pad(torch.bincount(row, minlength=self.num_nodes).cumsum(0), (1, 0))
        return pointers, col[order], order % max(self.num_edges, 1)

    def __repr__(self) -> str:
        return f"Topology({self.num_nodes} nodes, {self.num_edges} edges)"

    def matrix(self, value: Float[Tensor, " edges"]) -> Tensor:
        """The symmetric sparse CSR matrix with `value` on the edges. No gradient passes."""
        (pointers, col, edge), n = self.csr, self.num_nodes
        return torch.sparse_csr_tensor(pointers, col, value.detach()[edge], (n, n), check_invariants=False)

    @cached_property
    def _incidence(self) -> Tensor:
        """(n, E) sparse: +1 at the first end of every edge, -1 at the second."""
        pointers, col, edge = self.csr
        sign = torch.where(col == self.j[edge], 1.0, -1.0).double()
        return torch.sparse_csr_tensor(pointers, edge, sign, (self.num_nodes, self.num_edges), check_invariants=False)

    def scatter(self, value: Float[Tensor, "edges *c"]) -> Float[Tensor, "n *c"]:
        """Sum a vector field into its nodes: +value at i, -value at j."""
        return sum_into(self.num_nodes, self.i, value) - sum_into(self.num_nodes, self.j, value)

    def gather(self, u: Float[Tensor, "n *c"]) -> Float[Tensor, "edges *c"]:
        """Differences u(i) - u(j) along the edges: the transpose of `scatter`."""
        return take(u, self.i) - take(u, self.j)

    def laplacian(self, weight: Float[Tensor, "edges _"], u: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
        """Σ_y w_xy (u(x) - u(y)) by differences. No gradient passes."""
        flow = weighted_differences(u, self.i, self.j, weight)
        # On a CPU a sparse product is five times faster, once its pattern is made.
        large = u.device.type == "cpu" and u.dtype == torch.float64 and self.num_edges > 4096
        return self._incidence @ flow if large else self.scatter(flow)

    def degree(self, value: Float[Tensor, "edges *c"]) -> Float[Tensor, "n *c"]:
        """Sum of the values of the edges at every node."""
        return sum_into(self.num_nodes, self.i, value) + sum_into(self.num_nodes, self.j, value)

    def keep(self, mask: Bool[Tensor, " edges"]) -> Topology:
        """The edges where `mask` is true, on the same nodes."""
        return Topology(self.num_nodes, self.i[mask], self.j[mask])


class Normalization(enum.Enum):
    """Which Laplacian: D - W, the symmetric I - D^-1/2 W D^-1/2, or the random walk's I - D^-1 W."""

    NONE = "none"
    SYMMETRIC = "symmetric"
    RANDOM_WALK = "random walk"


@dataclass(frozen=True, eq=False)
class Graph:
    """A topology with one weight per undirected edge.

    Args:
        topology: which nodes are joined.
        weight: (E,) non-negative weights.
        features: (n, d) the points the graph was built from, if it was. Needed where distances are: to copy the
            nearest label to nodes that none reaches, and by `reweight.properly_weighted`.

    Differentiable in: `weight`, `features`. Held fixed: `topology`.

    >>> g = Graph.from_sparse(torch.tensor([[0., 2.], [2., 0.]]))
    >>> g.laplacian(torch.tensor([1., 0.])).tolist()
    [2.0, -2.0]
    """

    topology: Topology
    weight: Float[Tensor, " edges"]
    features: Tensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.weight.shape != (self.topology.num_edges,):
            raise ValueError(
                f"weight has shape {tuple(self.weight.shape)}, but the topology has {self.topology.num_edges} edges"
            )
        if not self.weight.is_floating_point():
            raise TypeError(f"weight must be a floating point tensor, got {self.weight.dtype}")

    @classmethod
    def from_sparse(cls, matrix: Any) -> Graph:
        """A graph from a symmetric, non-negative weight matrix: SciPy sparse, torch sparse, or dense.

        The diagonal is ignored: a loop does not change any Laplacian. A torch matrix keeps its gradient.
        """
        from gll.convert import graph_from_matrix

        return graph_from_matrix(matrix)

    @property
    def num_nodes(self) -> int:
        return self.topology.num_nodes

    def __repr__(self) -> str:
        return (
            f"Graph({self.num_nodes} nodes, {self.topology.num_edges} edges, {self.weight.dtype}, {self.weight.device})"
        )

    def with_weight(self, weight: Tensor) -> Graph:
        """The same edges with other weights."""
        return Graph(self.topology, weight, self.features)

    def detach(self) -> Graph:
        """The same graph without a gradient."""
        return Graph(self.topology, self.weight.detach(), None if self.features is None else self.features.detach())

    @property
    def degree(self) -> Float[Tensor, " n"]:
        """deg(x) = Σ_y w_xy."""
        return self.topology.degree(self.weight)

    def gradient(self, u: Float[Tensor, "n *c"]) -> Float[Tensor, "edges *c"]:
        """(∇u)(i, j) = u(i) - u(j) on every edge i < j."""
        return self.topology.gather(u)

    def divergence(self, q: Float[Tensor, "edges *c"], reverse: Tensor | None = None) -> Float[Tensor, "n *c"]:
        """(div q)(x) = ½ Σ_y w_xy (q(x, y) - q(y, x)); `reverse` is q(j, i), by default -q(i, j)."""
        skew = q if reverse is None else (q - reverse) / 2
        return self.topology.scatter(_columns(self.weight, q) * skew)

    def laplacian(
        self, u: Float[Tensor, "n *c"], normalization: Normalization = Normalization.NONE
    ) -> Float[Tensor, "n *c"]:
        """Δu, or its normalised forms. Isolated nodes have no neighbours to differ from: they give 0."""
        normalization = Normalization(normalization)
        if normalization is Normalization.NONE:
            return self.divergence(self.gradient(u))
        degree = self.degree
        inverse = torch.where(degree > 0, degree, 1).reciprocal()
        if normalization is Normalization.RANDOM_WALK:
            return _columns(inverse, u) * self.divergence(self.gradient(u))
        root = _columns(inverse.sqrt(), u)
        return root * self.divergence(self.gradient(root * u))

    def inner(self, p: Float[Tensor, "edges *c"], q: Float[Tensor, "edges *c"]) -> Tensor:
        """<p, q> = ½ Σ_xy w_xy p(x, y) q(x, y), of two vector fields."""
        return (_columns(self.weight, p) * p * q).sum()

    def dirichlet_energy(self, u: Float[Tensor, "n *c"]) -> Tensor:
        """½ Σ_xy w_xy |u(x) - u(y)|²."""
        q = self.gradient(u)
        return self.inner(q, q)

    @cached_property
    def components(self) -> Int[Tensor, " n"]:
        """The connected component of every node, over edges of positive weight, numbered from 0."""
        from gll.convert import connected_components

        return connected_components(self.topology, self.weight > 0)

    def to_scipy(self) -> scipy.sparse.csr_matrix:
        """The weight matrix as SciPy CSR, on the CPU."""
        pointers, col, edge = (a.cpu().numpy() for a in self.topology.csr)
        weight = self.weight.detach().cpu().numpy()
        return scipy.sparse.csr_matrix((weight[edge], col, pointers), shape=(self.num_nodes, self.num_nodes))

    def to_dense(self) -> Float[Tensor, "n n"]:
        """The dense weight matrix (differentiable)."""
        t = self.topology
        half = self.weight.new_zeros(t.num_nodes, t.num_nodes).index_put((t.i, t.j), self.weight)
        return half + half.T


def _columns(a: Tensor, like: Tensor) -> Tensor:
    """View a (n,) tensor so that it multiplies the rows of `like`."""
    return a.view(-1, *([1] * (like.dim() - 1)))
