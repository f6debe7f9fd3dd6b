"""One query and a labelled base: the graph learning layer in closed form, for many queries at once.

If every base node has a label, the query is the only free node of its graph, and Laplace's equation says

    u_c = Σ_{j in class c} w_j / (Σ_j w_j + τ),        w_j = η( d_j² / (ε ε_j) ),

over the base nodes that the query has chosen as neighbours, or that have chosen it. The query takes part in the
distances ε_j: where it is nearer to j than j's k-th neighbour, it takes a place in j's list. All of this is known from
the distances d_j and from two numbers of every base node, so a thousand graphs of one query each take one pass.

Sums are taken of logarithms. There is then no weight so small that its gradient is lost: this is the sharpest form of
the layer's output, and the layer's own value wherever the layer can say it.

Inductive inference is the same without the second kind of neighbour: base nodes keep their lists and their ε_j.

What is lost all the same is a class that no neighbour has: u_c = 0, without a slope. For an attacker who wants one,
`each_class` joins every query to the nearest base nodes of every class as well. That is another function, to take a
gradient from and not a prediction.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gll.attacks.class_search import ClassSearch
from gll.equations import Laplace
from gll.features import power_of_two_scale, unit_rows
from gll.graph import Topology
from gll.neighbors import Exact
from gll.nn.layer import GraphLearningLayer
from gll.reweight import wnll
from gll.selection import sqdist_of_pairs
from gll.similarity import Constant, Gaussian, SelfTuned, Symmetrize, edge_sqdist, knn_bandwidth
from gll.unreached import Unreached, UnreachedWarning


def in_closed_form(layer: GraphLearningLayer, labels: Tensor) -> bool:
    """Whether this layer with these base labels is what this file knows."""
    e, kernel, bandwidth = layer.equation, layer.kernel, layer.bandwidth
    return (
        (isinstance(e, Laplace) and e.source is None and isinstance(e.tau, float | int) and e.tau >= 0)
        and (type(kernel) is Gaussian and isinstance(kernel.scale, float | int))
        and (type(bandwidth) is SelfTuned or (type(bandwidth) is Constant and isinstance(bandwidth.epsilon, float)))
        and (layer.symmetrize is Symmetrize.UNION and type(layer.search) is Exact)
        and (layer.reweight is None or layer.reweight is wnll)
        and layer.unreached is not Unreached.RAISE
        and (not labels.is_floating_point() and labels.dim() == 1 and bool((labels >= 0).all()))
    )


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """Which base nodes are neighbours of which query, without distances: what a search decides.

    Args:
        topology: base nodes come first; every edge joins one to a query.
        kth: (queries,) the edge to the query's k-th neighbour, whose length is its ε.
        inside: (edges,) whether the query has a place in the list of the base node.
        last: (edges,) whether that place is the last, so that its distance is the ε of the base node.
    """

    topology: Topology
    kth: Int[Tensor, " queries"]
    inside: Bool[Tensor, " edges"]
    last: Bool[Tensor, " edges"]


@final
class Star:
    """A base that answers queries one by one.

    Args:
        layer: its settings; see `in_closed_form`.
        base: (m, d) features.
        labels: (m,) classes.
        inductive: whether base nodes keep their own neighbours.
        each_class: join a query to so many of every class, besides; then no weight is too small to count, and there is
            no floor.

    Differentiable in: what `__call__` says.
    """

    def __init__(
        self,
        layer: GraphLearningLayer,
        base: Float[Tensor, "m d"],
        labels: Int[Tensor, " m"],
        *,
        inductive: bool,
        each_class: int = 0,
    ) -> None:
        self.layer, self.labels, self.inductive, self.each_class = layer, labels, inductive, each_class
        base = unit_rows(base) if layer.normalize else base
        self.scale = power_of_two_scale(base)
        self.base = base / self.scale
        self._by_class = ClassSearch(self.base, labels, each_class) if each_class else None
        m = len(base)
        self.k = min(layer.k, m)  # of a query, and in its graph of m + 1 nodes that of every node
        # Squared distances of every base node to the last two of its list of neighbours in the base. None: no such.
        index = Exact()(self.base, min(self.k, m - 1)) if m > 1 else None
        row = torch.arange(m, device=base.device)
        pair = (None, None) if index is None else (index[:, -1], index[:, -2] if index.shape[1] > 1 else None)
        last, before = (None if j is None else sqdist_of_pairs(self.base, row, j) for j in pair)
        none = self.base.new_zeros(m)
        if self.k > m - 1 and not inductive:  # fewer than k others: the query always has a place, after all of them
            self.radius, self.before = torch.full_like(none, torch.inf), none if last is None else last
        else:
            self.radius, self.before = none if last is None else last, none if before is None else before

    def choose(self, features: Float[Tensor, "q d"]) -> Choice:
        """The neighbours of these queries.

        Differentiable in: nothing.
        """
        with torch.no_grad():
            x = self._scaled(features)
            m, q, k = len(self.base), len(x), self.k
            index = Exact().query(self.base, x, k)
            row = torch.arange(q, device=x.device)
            pairs = (row.repeat_interleave(k), index.flatten())
            if not self.inductive:
                theirs = self._who_choose(x)
                pairs = (torch.cat([pairs[0], theirs[0]]), torch.cat([pairs[1], theirs[1]]))
            if self._by_class is not None:
                theirs = self._by_class(x)
                pairs = (torch.cat([pairs[0], theirs[0]]), torch.cat([pairs[1], theirs[1]]))
            topology, edge = Topology.from_pairs(m + q, pairs[1], pairs[0] + m)
            kth = edge[: q * k].view(q, k)[:, -1]
            sqdist = sqdist_of_pairs(self.base, topology.i, topology.j - m, other=x)
            inside = sqdist < self.radius[topology.i]  # a tie goes to the smaller number, and the query comes last
            if self.inductive:
                inside = torch.zeros_like(inside)
            return Choice(topology, kth, inside, inside & (sqdist >= self.before[topology.i]))

    def _who_choose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(query, base node) for every base node that may have the query in its list: rather too many than too few."""
        a, size = self.base, self.base.square().sum(1)
        if bool(torch.isinf(self.radius).any()):
            row = torch.arange(len(x), device=x.device)
            return row.repeat_interleave(len(a)), torch.arange(len(a), device=x.device).repeat(len(x))
        queries, nodes = [], []
        rows = max(1, Exact().max_bytes // (4 * len(a) * x.element_size()))
        for start in range(0, len(x), rows):
            b = x[start : start + rows]
            own = b.square().sum(1, keepdim=True)
            noise = 8 * torch.finfo(x.dtype).eps * x.shape[1] ** 0.5 * (size.max() + own)
            near = torch.addmm(size - self.radius, b, a.T, alpha=-2).add_(own) < noise
            found = near.nonzero()
            queries.append(found[:, 0] + start)
            nodes.append(found[:, 1])
        query, node = torch.cat(queries), torch.cat(nodes)
        sure = sqdist_of_pairs(a, node, query, other=x) < self.radius[node]
        return query[sure], node[sure]

    def __call__(self, features: Float[Tensor, "q d"], choice: Choice | None = None) -> Float[Tensor, "q c"]:
        """log(u + floor) of every query.

        Args:
            features: the queries, in the precision of the base.
            choice: the neighbours; by default those of these features.

        Differentiable in: `features`. Held fixed: the base, and which nodes are neighbours.
        """
        choice = self.choose(features) if choice is None else choice
        log_weight, sqdist = self._log_weight(features, choice)
        q, classes = len(features), self.layer.num_classes
        place = (choice.topology.j - len(self.base)) * classes + self.labels[choice.topology.i].long()
        counted = self._counts(log_weight)
        per_class = _logsumexp_into(q * classes, place[counted], log_weight[counted]).view(q, classes)
        return self._finish(per_class, sqdist, choice)

    def shares(
        self, features: Float[Tensor, "q d"], choice: Choice | None = None
    ) -> tuple[Int[Tensor, " e"], Int[Tensor, " e"], Float[Tensor, " e"]]:
        """(query, base node, share of the node in the answer) for every edge: u = Σ share · label.

        A query that no weight reaches has no shares.

        Differentiable in: `features`. Held fixed: as in `__call__`.
        """
        choice = self.choose(features) if choice is None else choice
        log_weight, _ = self._log_weight(features, choice)
        counted = self._counts(log_weight)
        log_weight = log_weight[counted]
        query, node = choice.topology.j[counted] - len(self.base), choice.topology.i[counted]
        total = _logsumexp_into(len(features), query, log_weight)
        if self._log_tau is not None:
            total = torch.logaddexp(total, total.new_full((), self._log_tau))
        return query, node, torch.exp(log_weight - total[query])

    def _log_weight(self, features: Tensor, choice: Choice) -> tuple[Tensor, Tensor]:
        """Logarithms of the weights, and squared distances, of every edge."""
        x, t, layer = self._scaled(features), choice.topology, self.layer
        sqdist = edge_sqdist(torch.cat([self.base, x]), t)
        own = knn_bandwidth(layer.bandwidth, sqdist, choice.kth[:, None], x, self.scale)[t.j - len(self.base)]
        scale = float(layer.kernel.scale)  # type: ignore[attr-defined]
        return -scale * sqdist / (own * self._theirs(sqdist, choice, own)), sqdist

    def _counts(self, log_weight: Tensor) -> Tensor:
        """The layer takes smaller weights for zero; so does this, or the two would differ where all weights are."""
        counted = log_weight.detach() > math.log(1e3 * torch.finfo(log_weight.dtype).tiny)
        return counted | (self.each_class > 0)

    @property
    def _log_tau(self) -> float | None:
        """log τ in units of the weights; None for τ = 0."""
        tau = float(self.layer.equation.tau)  # type: ignore[attr-defined]
        if not tau:
            return None
        if self.layer.reweight is wnll and not self.inductive:  # a factor on every edge, which matters beside τ only
            return math.log(tau) - math.log(((len(self.base) + 1) / len(self.base) + 1) / 2)
        return math.log(tau)

    def _theirs(self, sqdist: Tensor, choice: Choice, own: Tensor) -> Tensor:
        """ε of the base node of every edge: its k-th distance, in a list in which the query may have a place."""
        t, layer = choice.topology, self.layer
        if len(self.base) == 1 and self.inductive:
            return own  # a single base node has no bandwidth of its own
        before, radius = self.before[t.i], self.radius[t.i]
        square = torch.where(choice.last, sqdist, torch.where(choice.inside, before, radius))
        each = torch.arange(len(square), device=square.device)[:, None]
        return knn_bandwidth(layer.bandwidth, square, each, self.base[t.i], self.scale)

    def _finish(self, per_class: Tensor, sqdist: Tensor, choice: Choice) -> Tensor:
        layer, (q, classes) = self.layer, per_class.shape
        # With each_class there is no floor: a value far below it would have no slope again.
        log_floor = -1e30 if self.each_class else math.log(layer.floor)
        lost = torch.isinf(per_class.detach()).all(1)
        total = torch.logsumexp(torch.where(lost[:, None], 0, per_class), 1, keepdim=True)
        log_tau = self._log_tau
        if log_tau is not None:
            total = torch.logaddexp(total, total.new_full((), log_tau))
        log_u = per_class - total
        present = torch.isfinite(log_u.detach())
        out = torch.logaddexp(torch.where(present, log_u, log_floor - 800), log_u.new_full((), log_floor))
        out = torch.where(present, out, log_floor)
        if log_tau is None and bool(lost.any()):
            value = self._fallback(lost, sqdist, choice, classes)
            out = torch.where(lost[:, None], torch.log(value + layer.floor), out)
            warnings.warn(
                f"{int(lost.sum())} of {q} queries have no weight to any base node and got a fallback",
                UnreachedWarning,
                stacklevel=3,
            )
        return out

    def _fallback(self, lost: Tensor, sqdist: Tensor, choice: Choice, classes: int) -> Tensor:
        """What a query gets that is too far from everything: as the layer's policy says; inductively, the nearest."""
        m, t = len(self.base), choice.topology
        if not self.inductive and self.layer.unreached is Unreached.UNIFORM:
            return sqdist.new_full((len(lost), classes), 1 / classes)
        query, sqdist = t.j - m, sqdist.detach()
        least = sqdist.new_full((len(lost),), torch.inf).scatter_reduce(0, query, sqdist, "amin")
        tied = sqdist == least[query]
        nearest = query.new_full((len(lost),), m).scatter_reduce(0, query[tied], t.i[tied], "amin")
        return torch.nn.functional.one_hot(self.labels[nearest].long(), classes).to(sqdist.dtype)

    def _scaled(self, features: Tensor) -> Tensor:
        x = features.to(self.base.dtype)
        return (unit_rows(x) if self.layer.normalize else x) / self.scale


def _logsumexp_into(size: int, place: Int[Tensor, " e"], value: Float[Tensor, " e"]) -> Float[Tensor, " size"]:
    """log Σ exp(value) over the entries of every place; -∞ where there are none."""
    largest = value.detach().new_full((size,), -torch.inf).scatter_reduce(0, place, value.detach(), "amax")
    shift = torch.where(torch.isfinite(largest), largest, 0)
    total = torch.zeros_like(shift).index_add(0, place, torch.exp(value - shift[place]))
    # No logarithm of zero, whose slope would be 0/0: those places are set to -∞ by hand.
    return torch.where(total > 0, torch.log(torch.where(total > 0, total, 1)) + shift, -torch.inf)
