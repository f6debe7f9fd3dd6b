"""Another numbering of the nodes, in which those that are tied together lie together in memory.

Sparse products are bound by memory, so on a large graph the order of the unknowns decides their speed. Sorting the
edges anew costs as much as ten products; but it depends on the graph only. So the renumbered topology is kept, and
every solve takes the part of it between its free nodes: one pass over the edges, which stay sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from gll.graph import Topology
from gll.sums import order_by


@final
@dataclass(frozen=True, eq=False)
class Renumbered:
    """A topology in another numbering.

    Args:
        topology: its edges by new numbers, sorted as ever.
        edge: (E,) which edge of the old topology each of them was.
    """

    topology: Topology
    edge: Int[Tensor, " edges"]

    def part(self, local: Int[Tensor, " n"], inside: Bool[Tensor, " edges"]) -> Topology:
        """The edges `inside`, between nodes renumbered by `local` (-1: left out), which keeps their order."""
        t = self.topology
        kept = torch.nonzero(inside).squeeze(1)
        part = Topology(int(local.max()) + 1, local[t.i[kept]], local[t.j[kept]])
        pointers, col, edge = t.csr
        entry = inside[edge]
        before = torch.cat([pointers.new_zeros(1), entry.cumsum(0)])[pointers]  # entries kept before every row
        rows = torch.cat([local >= 0, local.new_ones(1, dtype=torch.bool)])
        place = inside.cumsum(0) - 1
        kept = torch.nonzero(entry).squeeze(1)
        # What `csr` would find by sorting.
        part.__dict__["csr"] = (before[rows], local[col[kept]], place[edge[kept]])
        return part


@final
class Numbering:
    """An order of the nodes, and the last topology that was renumbered by it.

    Args:
        order: (n,) the nodes in their new order.
    """

    def __init__(self, order: Int[Tensor, " n"]) -> None:
        self.order = order
        self._last: tuple[Topology, Renumbered] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Numbering, (self.order,)  # what was kept can be made again

    def of(self, topology: Topology, *, keep: bool = True) -> Renumbered:
        """The topology in the new numbering; with `keep` made once, for as long as it is asked for the same one."""
        last = self._last
        if last is not None and last[0] is topology:
            return last[1]
        n, place = topology.num_nodes, torch.empty_like(self.order)
        place[self.order] = torch.arange(len(place), device=place.device)
        a, b = place[topology.i], place[topology.j]
        a, b = torch.minimum(a, b), torch.maximum(a, b)
        second = order_by(b, n)
        edge = second[order_by(a[second], n)]
        found = Renumbered(Topology(n, a[edge], b[edge]), edge)
        if keep:
            self._last = topology, found
        return found
