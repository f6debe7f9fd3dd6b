"""A preconditioner made for kNN graphs: coarser and coarser groups of nodes, each level with its own Jacobi step.

Jacobi's preconditioner sees one node at a time. A cluster that hangs on the rest by weak edges answers to such steps
slowly, and a kNN graph has clusters at every scale. So nodes are grouped: every node joins the neighbour it is tied to
most strongly (one step of Borůvka's algorithm for spanning trees), which leaves a quarter of the nodes or fewer; the
groups, with the summed weights between them, are grouped again, until few enough are left for a dense factorisation. A
weakly tied cluster becomes one node of some level, where a single step moves it as a whole. With P_l the map that
copies the values of level l to the nodes, and A_l = P_lᵀ A P_l,

    M = D^-1 + Σ_l P_l diag(A_l)^-1 P_lᵀ  (with A_L^-1 on the last level):

sums, a division, copies. How many steps that saves is in the table of `docs/solvers.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.graph import Graph, Topology
from gll.numbering import Numbering
from gll.operators import Operator
from gll.solvers.precondition import AbstractPreconditioner
from gll.solvers.triangular import invert_lower
from gll.sums import order_by, short_indices, sum_into


@final
@dataclass(frozen=True, eq=False)
class Multilevel(AbstractPreconditioner):
    """Additive multilevel preconditioner on groups of strongly tied nodes.

    Args:
        groups: for each level the group (numbered from 0) that every node of the level before belongs to, as
            `Multilevel.of(graph)` finds them; None to find them in every operator anew. They depend on the graph, not
            on the labels: keep them where one graph is solved on again and again.
        coarsest: number of nodes at which grouping ends, and a level is factorised.

    Differentiable in: nothing; a preconditioner changes the number of steps, not the solution.

    >>> from gll.solvers import ConjugateGradient
    >>> solver = ConjugateGradient(preconditioner=Multilevel())
    """

    groups: tuple[Tensor, ...] | None = None
    coarsest: int = 1000

    @classmethod
    def of(cls, graph: Graph, *, coarsest: int = 1000) -> Multilevel:
        """With the groups of this graph; those that are tied together have numbers close together."""
        return cls(in_order(find_groups(graph.topology, graph.weight.detach().double(), coarsest)), coarsest)

    def __repr__(self) -> str:
        found = f"{len(self.groups)} levels over {len(self.groups[0]):,} nodes, " if self.groups else ""
        return f"Multilevel({found}coarsest={self.coarsest})"

    def numbering(self) -> Numbering | None:
        return self._numbering

    @cached_property
    def _numbering(self) -> Numbering | None:
        """Nodes group by group: what is tied together then lies together in memory. Worth it on a CPU."""
        if not self.groups or self.groups[0].device.type != "cpu":
            return None
        return Numbering(order_by(self.groups[0], int(self.groups[0].max()) + 1))

    def prepare(self, operator: Operator) -> Callable[[Tensor], Tensor]:
        if not operator.shared:
            raise ValueError("the Multilevel preconditioner serves equations with one matrix for all columns")
        t, weight = operator.topology, operator.weight
        groups = self.groups
        if groups is None:
            groups = find_groups(t, weight, self.coarsest)
        # Of the whole graph: some of its groups may have no free node, and must keep their place.
        counts = [*(len(group) for group in groups[1:]), *(int(group.max()) + 1 for group in groups[-1:])]
        if self.groups and operator.nodes is not None:
            groups = (groups[0][operator.nodes], *groups[1:])
        # Diagonal of A_l: the group's diagonal without twice the edges inside it; those between groups go on.
        levels: list[_Level] = []
        diagonal, stretch = operator.diagonal, 1 / operator.scale[:, 0]
        i, j, component = t.i, t.j, operator.components
        for group, count in zip(groups, counts, strict=True):
            a, b = group[i], group[j]
            between = a != b
            inside = torch.where(between, 0, weight)
            diagonal = (sum_into(count, group, diagonal) - 2 * sum_into(count, a, inside)).clamp(min=0)
            i, j, weight = a[between], b[between], weight[between]
            levels.append(_Level.make(group, diagonal, stretch))
            stretch = torch.ones_like(diagonal)
            component = None if component is None else group.new_zeros(count).scatter(0, group, component)
        last = None
        if levels and len(diagonal) <= max(2 * self.coarsest, 2000):
            last = _dense_inverse(diagonal, i, j, weight, component)
        casts: dict[torch.dtype, tuple[list[_Level], Tensor | None]] = {}

        def apply(residual: Float[Tensor, "m c"]) -> Float[Tensor, "m c"]:
            if not levels:
                return residual
            dtype = residual.dtype
            if dtype not in casts:  # an iteration in float32 brings its own copy
                casts[dtype] = [level.to(dtype) for level in levels], None if last is None else last.to(dtype)
            at, dense = casts[dtype]
            down = [residual]
            for level in at:
                down.append(level.collect(down[-1]))
            up = down[-1] * at[-1].inverse if dense is None else dense @ down[-1]
            for depth in range(len(at) - 1, 0, -1):
                up = torch.addcmul(at[depth].spread(up), down[depth], at[depth - 1].inverse)
            return torch.addcmul(residual, up.index_select(0, at[0].group), at[0].stretch)

        return apply


@dataclass(frozen=True, eq=False)
class _Level:
    """P between two levels and diag(A_l)^-1. `stretch` on the finer one makes it fit the operator of unit diagonal."""

    sums: Tensor  # Pᵀ as a sparse matrix
    group: Tensor
    stretch: Tensor
    inverse: Tensor

    @classmethod
    def make(cls, group: Tensor, diagonal: Tensor, stretch: Tensor) -> _Level:
        order = order_by(group, len(diagonal))
        count = torch.bincount(group, minlength=len(diagonal))
        pointers = torch.cat([count.new_zeros(1), count.cumsum(0)])
        shape = (len(diagonal), len(group))
        sums = short_indices(torch.sparse_csr_tensor(pointers, order, stretch[order], shape, check_invariants=False))
        inverse = torch.where(diagonal > 0, 1 / diagonal, 0)  # a group that nothing ties down is left to finer levels
        return cls(sums, group, stretch[:, None], inverse[:, None])

    def to(self, dtype: torch.dtype) -> _Level:
        return _Level(self.sums.to(dtype), self.group, self.stretch.to(dtype), self.inverse.to(dtype))

    def collect(self, fine: Tensor) -> Tensor:
        return self.sums @ fine

    def spread(self, coarse: Tensor) -> Tensor:
        return coarse.index_select(0, self.group).mul_(self.stretch)


def find_groups(topology: Topology, weight: Float[Tensor, " edges"], coarsest: int) -> tuple[Int[Tensor, " _"], ...]:
    """Levels of groups: each node of a level with its most strongly tied neighbour, until `coarsest` are left."""
    n, levels = topology.num_nodes, []
    tied = weight > 0
    i, j, weight = topology.i[tied], topology.j[tied], weight[tied]
    while n > coarsest and len(weight):
        group = _join_strongest(n, i, j, weight)
        count = int(group.max()) + 1
        levels.append(group)
        a, b = group[i], group[j]
        key = torch.minimum(a, b) * count + torch.maximum(a, b)
        key, weight = key[a != b], weight[a != b]
        key, edge = torch.unique(key, return_inverse=True)
        weight = sum_into(len(key), edge, weight)
        i = torch.div(key, count, rounding_mode="floor")
        n, j = count, key - i * count
    return tuple(levels)


def in_order(groups: tuple[Int[Tensor, " _"], ...]) -> tuple[Int[Tensor, " _"], ...]:
    """The same groups, renumbered: those that join on the next level follow each other, and so on upwards."""
    if not groups:
        return groups
    found, rank = [], torch.arange(int(groups[-1].max()) + 1, device=groups[-1].device)
    for group in reversed(groups[1:]):
        numbered = rank[group]
        order = order_by(numbered, len(rank))
        found.append(numbered[order])
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=order.device)
    found.append(rank[groups[0]])
    return tuple(reversed(found))


def _join_strongest(n: int, i: Tensor, j: Tensor, weight: Tensor) -> Int[Tensor, " n"]:
    """The groups that arise when every node joins the other end of its strongest edge, numbered from 0."""
    node, edge = torch.arange(n, device=i.device), torch.arange(len(i), device=i.device)
    # Of equal weights the edge with the larger number counts as stronger, so that nodes cannot point in a circle.
    strongest = weight.new_zeros(n).scatter_reduce(0, i, weight, "amax").scatter_reduce(0, j, weight, "amax")
    chosen = torch.full_like(node, -1)
    for end in (i, j):
        chosen = chosen.scatter_reduce(0, end, torch.where(weight == strongest[end], edge, -1), "amax")
    pair = chosen.clamp(min=0)
    parent = torch.where(chosen >= 0, i[pair] + j[pair] - node, node)
    # Two nodes point at each other: the smaller is the root of their group. Then follow the pointers to the roots.
    parent = torch.where((parent[parent] == node) & (node < parent), node, parent)
    while not torch.equal(grand := parent[parent], parent):
        parent = grand
    number = torch.cumsum(parent == node, 0) - 1
    return number[parent]


def _dense_inverse(diagonal: Tensor, i: Tensor, j: Tensor, weight: Tensor, component: Tensor | None) -> Tensor | None:
    """A_L^-1, or None where it has no Cholesky factor (then Jacobi has to do on the last level too)."""
    matrix = torch.diag(diagonal)
    matrix.index_put_((i, j), -weight, accumulate=True)
    matrix.index_put_((j, i), -weight, accumulate=True)
    root = torch.where(diagonal > 0, diagonal, 1).sqrt()
    matrix /= root * root[:, None]
    matrix.diagonal()[diagonal <= 0] = 1
    if component is not None:  # constants on components have no size of their own; they are projected out in the end
        null = torch.nn.functional.one_hot(component) * root[:, None]
        null = null / torch.linalg.vector_norm(null, dim=0).clamp(min=1e-300)
        matrix += null @ null.T
    matrix.diagonal().add_(len(diagonal) * torch.finfo(matrix.dtype).eps)
    lower, info = torch.linalg.cholesky_ex(matrix)
    if bool(info > 0):
        return None
    inverse = invert_lower(lower) / root
    return inverse.mT @ inverse
