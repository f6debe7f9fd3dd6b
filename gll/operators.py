"""The linearised equation: a symmetric operator on the free nodes.

Linearising the equation at u gives

    (A v)(x) = Σ_{y free} c_xy (v(x) - v(y)) + e(x) v(x),      c_xy = w_xy φ_q(∇u(x, y)),
    e(x) = σ_z(u(x), x) + Σ_{y boundary} c_xy,

a graph Laplacian plus an *excess* e ≥ 0. It is the operator of every linear solve, forward and adjoint (it is
its own transpose). Keeping e apart from the Laplacian matters: `matvec` works with differences, so that a
cluster hanging on the rest by weights of 1e-12 still has an accurate residual. A factorisation that has
lost those digits is repaired by iterating on such residuals (`solvers/base.py`).

Solvers see the operator scaled to a unit diagonal, D^-1/2 A D^-1/2 (`solvers/scaled.py`): weights may span hundreds of
orders of magnitude, and Jacobi's preconditioner comes for free.

Read next: `solution.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.graph import Topology
from gll.sums import column_max, sum_into


@dataclass(frozen=True, eq=False)
class Operator:
    """A = Laplacian(topology, weight) + diag(excess) on m free nodes, for C columns at once.

    Args:
        topology: edges between free nodes.
        weight: (E,) the same for all columns, or (E, C).
        excess: (m,) the same for all columns, or (m, C), or (m, C, C) where columns are coupled.
        components: (m,) component of every node if constants on components are to be projected out, else None.
        groups: (m,) which nodes have to do with each other at all, or None for all: problems to be judged apart.
        nodes: (m,) which nodes of the graph the free ones are, or None for all.
    """

    topology: Topology
    weight: Float[Tensor, "edges *a"]
    excess: Float[Tensor, "m *b"]
    components: Int[Tensor, " m"] | None = None
    groups: Int[Tensor, " m"] | None = None
    nodes: Int[Tensor, " m"] | None = None

    @property
    def size(self) -> int:
        return self.topology.num_nodes

    @property
    def coupled(self) -> bool:
        return self.excess.dim() == 3

    @property
    def shared(self) -> bool:
        """One matrix serves all columns."""
        return self.weight.dim() == 1 and self.excess.dim() == 1

    def matvec(self, v: Float[Tensor, "m c"]) -> Float[Tensor, "m c"]:
        """A v, by differences."""
        weight = self.weight[:, None] if self.weight.dim() == 1 else self.weight
        if self.coupled:
            local = torch.einsum("mbc,mc->mb", self.excess, v)
        else:
            local = (self.excess[:, None] if self.excess.dim() == 1 else self.excess) * v
        return self.topology.laplacian(weight, v).add_(local)

    @cached_property
    def degree(self) -> Float[Tensor, "m *c"]:
        """Sum of the weights at each node."""
        return self.topology.degree(self.weight)

    @cached_property
    def diagonal(self) -> Float[Tensor, "m *c"]:
        """The diagonal of A: (m,) where shared, otherwise (m, C)."""
        excess = self.excess.diagonal(dim1=1, dim2=2) if self.coupled else self.excess
        degree = self.degree
        if degree.dim() != excess.dim():
            degree, excess = (t[:, None] if t.dim() == 1 else t for t in (degree, excess))
        return degree + excess

    @cached_property
    def scale(self) -> Float[Tensor, "m *c"]:
        """D^-1/2 as (m, 1) or (m, C); 1 where the diagonal is not positive."""
        diagonal = self.diagonal if self.diagonal.dim() == 2 else self.diagonal[:, None]
        return torch.where(diagonal > 0, diagonal, 1).rsqrt()

    def dot(self, a: Float[Tensor, "m c"], b: Float[Tensor, "m c"]) -> Float[Tensor, " c"]:
        """Inner products per column; of all columns together, where they are coupled."""
        return torch.linalg.vecdot(a, b, dim=0) if not self.coupled else (a * b).sum().expand(a.shape[1])

    def size_of(self, v: Float[Tensor, "m c"]) -> Float[Tensor, "_ c"]:
        """The largest absolute value per column, (1, C), or of every node's group, (m, C)."""
        if self.groups is None:
            return column_max(v.abs())[None]
        index = self.groups[:, None].expand(-1, v.shape[1])
        largest = v.new_zeros(v.shape).scatter_reduce(0, index, v.abs(), "amax")  # group numbers are below m
        return largest.gather(0, index)

    def project(self, v: Float[Tensor, "m c"]) -> Float[Tensor, "m c"]:
        """Remove the mean on each component, where constants are in the null space."""
        return v if self.components is None else v - component_mean(v, self.components)


def component_mean(v: Float[Tensor, "m c"], components: Int[Tensor, " m"], weight: Tensor | None = None) -> Tensor:
    """At every node, the (weighted) mean of v over the node's component."""
    weight = torch.ones_like(v[:, :1]) if weight is None else weight[:, None]
    count = int(components.max()) + 1 if components.numel() else 0
    total, mass = (sum_into(count, components, t) for t in (weight * v, weight))
    return (total / torch.where(mass > 0, mass, 1))[components]
