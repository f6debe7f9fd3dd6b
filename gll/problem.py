"""An equation on a graph with labels: the unknowns, the weak form, the residual and the linearisation.

The unknowns are the values on the *free* nodes: those that are neither boundary nor left out because nothing
determines them. Everything here is a function of the inputs θ = (weights, label values, tensors of the equation),
so that one object serves the forward solve (with constants) and the derivative (with variables).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from gll.equations import AbstractEquation
from gll.graph import Topology
from gll.labels import Labels
from gll.numbering import Numbering
from gll.operators import Operator
from gll.sums import sum_into

FEW = 0.9  # share of free nodes from which on edges between labelled ones are not worth sorting out


@dataclass(frozen=True, eq=False)
class Inputs:
    """θ: the differentiable inputs of a problem."""

    weight: Tensor
    labels: Labels | None
    equation: AbstractEquation

    def tensors(self) -> list[Tensor]:
        values = [] if self.labels is None else [self.labels.value]
        return [self.weight, *values, *self.equation.tensors().values()]

    def replace(self, tensors: list[Tensor] | tuple[Tensor, ...]) -> Inputs:
        """The same inputs with other tensors, in the order of `tensors()`."""
        weight, *rest = tensors
        labels = None if self.labels is None else Labels(self.labels.index, rest.pop(0))
        return Inputs(weight, labels, self.equation.with_tensors(dict(zip(self.equation.tensors(), rest, strict=True))))


@dataclass(frozen=True, eq=False)
class Problem:
    """One equation on one graph, in terms of the values on the free nodes.

    Args:
        inputs: θ, detached and in the precision of the computation.
        topology: the edges that touch a free node and no left-out node; or all, where few others are.
        active: (E',) which edges of the graph those are, or None for all.
        free: (m,) the free nodes, in any order.
        classes: number of columns C.
        components: (m,) components, where constants are to be projected out.
        groups: (m,) components, where there are several and they are known.
        numbering: the order that the free nodes come in, where it is not that of the graph.
    """

    inputs: Inputs
    topology: Topology
    active: Tensor | None
    free: Tensor
    classes: int
    components: Tensor | None
    groups: Tensor | None = None
    numbering: Numbering | None = None

    @classmethod
    def build(
        cls,
        inputs: Inputs,
        topology: Topology,
        free_mask: Tensor,
        dropped: Tensor | None,
        classes: int,
        components: Tensor | None,
        singular: bool,
        numbering: Numbering | None = None,
    ) -> Problem:
        """Sort out nodes and edges: `free_mask` marks the unknowns, `dropped` the nodes to ignore.

        The unknowns come in the order of `numbering`, where the solver has one.
        """
        if numbering is not None:
            if len(numbering.order) != topology.num_nodes:
                raise ValueError(
                    f"the solver keeps groups of {len(numbering.order):,} nodes (Multilevel.of), but this graph has "
                    f"{topology.num_nodes:,}: make them anew for it"
                )
            free = numbering.order[free_mask[numbering.order]]
        else:
            free, numbering = torch.nonzero(free_mask).squeeze(1), None
        if dropped is None and len(free) >= FEW * topology.num_nodes:
            active = None
        else:
            touches = free_mask[topology.i] | free_mask[topology.j]
            if dropped is not None:
                touches &= ~(dropped[topology.i] | dropped[topology.j])
            active = torch.nonzero(touches).squeeze(1)
            topology = Topology(topology.num_nodes, topology.i[active], topology.j[active])
        part = None
        if components is not None and len(free) and (singular or int(components.max()) > 0):
            part = torch.unique(components[free], return_inverse=True)[1]
        several = part is not None and int(part.max()) > 0
        own, groups = part if singular else None, part if several else None
        return cls(inputs, topology, active, free, classes, own, groups, numbering)

    def with_equation(self, equation: AbstractEquation) -> Problem:
        """The same nodes, edges and labels under another equation."""
        return dataclasses.replace(self, inputs=Inputs(self.inputs.weight, self.inputs.labels, equation))

    def assemble(self, u_free: Tensor, labels: Labels | None) -> Tensor:
        """(n, C): the unknowns on the free nodes, label values on the boundary, zero elsewhere."""
        u = u_free.new_zeros(self.topology.num_nodes, self.classes).index_copy(0, self.free, u_free)
        if labels is None or not self.inputs.equation.labels_are_boundary:
            return u
        return u.index_copy(0, labels.index.long(), labels.value.to(u.dtype))

    def _ends(self) -> tuple[Tensor, Tensor]:
        return self.topology.i[:, None], self.topology.j[:, None]

    def _nodes(self) -> Tensor:
        return torch.arange(self.topology.num_nodes, device=self.free.device)[:, None]

    def _flow(self, u: Tensor, inputs: Inputs) -> Tensor:
        """w φ(∇u) on the edges."""
        weight = inputs.weight if self.active is None else inputs.weight[self.active]
        return weight[:, None] * inputs.equation.phi(self.topology.gather(u), *self._ends())

    def _balance(self, u: Tensor, inputs: Inputs) -> Tensor | None:
        """σ(u) - f at the nodes, with the pull of soft labels; None for zero."""
        equation, n = inputs.equation, self.topology.num_nodes
        terms = [equation.sigma(u, self._nodes())]
        pull, load = equation.pull(inputs.labels, n), equation.load(inputs.labels, n)
        terms.append(None if pull is None else pull[:, None] * u)
        terms.append(None if load is None else -load.expand(n, self.classes))
        known = [term for term in terms if term is not None]
        return sum(known[1:], known[0]) if known else None

    def weak(self, u_free: Tensor, v_free: Tensor, *theta: Tensor) -> Tensor:
        """P(u, v; θ) = Σ_edges w φ(∇u)·∇v + Σ_nodes (σ(u) - f)·v, where v vanishes off the free nodes."""
        inputs = self.inputs.replace([t.to(u_free.dtype) for t in theta])
        u = self.assemble(u_free, inputs.labels)
        v = u_free.new_zeros(u.shape).index_copy(0, self.free, v_free)
        value = (self._flow(u, inputs) * self.topology.gather(v)).sum()
        balance = self._balance(u, inputs)
        return value if balance is None else value + (balance * v).sum()

    def residual(self, u_free: Tensor) -> Tensor:
        """σ(u) + div φ(∇u) - f on the free nodes."""
        u = self.assemble(u_free, self.inputs.labels)
        if self.inputs.equation.linear:  # φ(q) = q
            weight = self.inputs.weight if self.active is None else self.inputs.weight[self.active]
            r = self.topology.laplacian(weight[:, None], u)
        else:
            r = self.topology.scatter(self._flow(u, self.inputs))
        balance = self._balance(u, self.inputs)
        return (r if balance is None else r + balance).index_select(0, self.free)

    def operator(self, u_free: Tensor) -> Operator:
        """The derivative of the residual at u."""
        inputs, t, n = self.inputs, self.topology, self.topology.num_nodes
        u = self.assemble(u_free, inputs.labels)
        weight = inputs.weight if self.active is None else inputs.weight[self.active]
        slope = inputs.equation.flux_slope(t.gather(u), *self._ends()) if not inputs.equation.linear else None
        if slope is not None:
            weight = weight[:, None] * slope
        excess = inputs.equation.reaction_slope(u, self._nodes())
        pull = inputs.equation.pull(inputs.labels, n)
        excess = u.new_zeros(n) if excess is None else excess
        excess = excess if pull is None else excess + pull.view(-1, *([1] * (excess.dim() - 1)))
        excess = excess.index_select(0, self.free)
        if len(self.free) == n and self.numbering is None:
            return Operator(t, weight, excess, self.components, self.groups)
        local = torch.full((n,), -1, device=self.free.device)
        local[self.free] = torch.arange(len(self.free), device=self.free.device)
        if self.numbering is not None:
            renumbered = self.numbering.of(t, keep=self.active is None)
            local, t, weight = local[self.numbering.order], renumbered.topology, weight[renumbered.edge]
        a, b = local[t.i], local[t.j]
        inside = (a >= 0) & (b >= 0)
        # Edges to the boundary add to the excess of their free end (the larger of the two, as the other is -1).
        across = torch.nonzero((a < 0) ^ (b < 0)).squeeze(1)
        outflow = sum_into(len(self.free), torch.maximum(a[across], b[across]), weight[across])
        if excess.dim() == 3:
            excess = excess + torch.diag_embed(outflow[:, None].expand(-1, self.classes))
        elif excess.dim() != outflow.dim():
            excess = (excess if excess.dim() == 2 else excess[:, None]) + (
                outflow if outflow.dim() == 2 else outflow[:, None]
            )
        else:
            excess = excess + outflow
        # The free nodes have kept their order, so the edges stay sorted, with i < j.
        if self.numbering is not None:
            part = renumbered.part(local, inside)
        else:
            part = Topology(len(self.free), a[inside], b[inside])
        return Operator(part, weight[inside], excess, self.components, self.groups, self.free)
