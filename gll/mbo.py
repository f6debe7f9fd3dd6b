"""Threshold dynamics: let the classes diffuse for a while, give every node to its largest class, repeat.

The scheme of Merriman, Bence and Osher, on a graph (Merkurjev, Kostić, Bertozzi 2013): a short heat flow that starts at
the one-hot vectors of a partition blurs its boundaries, and rounding back to one-hot vectors moves them, so that they
get shorter. Labels act inside the flow, as sources or by pulling. Class shares act in the rounding, as factors of the
classes (`volume.py`); the auction of Jacobs, Merkurjev and Esedoḡlu (2018) finds such prices too, as summands.

Rounding has no useful derivative, so this is for inference only: no gradient passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gll.graph import Graph
from gll.labels import Labels
from gll.readout import Readout
from gll.volume import class_shares, log_shifts


@dataclass(frozen=True, eq=False)
class Dynamics:
    """How threshold dynamics ended.

    Args:
        value: (n, C) the values after the last flow.
        share: (C,) the shares of the classes that every rounding kept.
        rounds: flows that were run.
        settled: the partition no longer changes; otherwise the rounds were used up.
    """

    value: Tensor
    share: Tensor
    rounds: int
    settled: bool


def threshold_dynamics(
    flow: Callable[[Tensor], Tensor],
    start: Tensor,
    share: Tensor | None,
    known: Tensor | None,
    rounds: int,
    mass: Tensor | None = None,
) -> Dynamics:
    """Flow and rounding in turns.

    Args:
        flow: from one-hot values (n, C) to values after a short time.
        start: (n, C) probabilities whose argmax, with the wanted shares, is the first partition.
        share: (C,) wanted shares of the classes; None for those of the argmax of `start`.
        known: (n,) the nodes that count for the shares, or None for all.
        rounds: at most this many flows.
        mass: (n,) how much every node counts for the shares; alike by default.
    """
    classes = start.shape[1]
    counts = mass if mass is None or known is None else mass[known]
    if share is None:
        share = class_shares(start.argmax(1) if known is None else start.argmax(1)[known], classes, counts)

    def rounded(p: Tensor) -> Tensor:
        shift = log_shifts(p if known is None else p[known], share, counts)
        return Readout(shift=shift)(p).argmax(1)

    partition, value, done, settled = rounded(start), start, 0, False
    while not settled and done < rounds:
        done += 1
        value = flow(torch.nn.functional.one_hot(partition, classes).to(start.dtype))
        moved = rounded(Readout()(value))
        settled = torch.equal(moved, partition)
        partition = moved
    return Dynamics(value, share, done, settled)


def source_flow(graph: Graph, source: Tensor, steps: int, strength: float) -> Callable[[Tensor], Tensor]:
    """Heat with sources, u' = -Δu + μ f, in `steps` explicit steps of length 1 / (largest degree).

    μ is `strength` times the mean degree, so that nothing changes when all weights are multiplied by a constant.
    """
    degree = graph.degree.detach()
    largest = float(degree.max()) if degree.numel() else 0.0
    dt = 1 / largest if largest > 0 else 0.0
    matrix = graph.topology.matrix(dt * graph.weight.detach())
    keep = (1 - dt * degree)[:, None]
    gain = (dt * strength * degree.mean() * source).to(degree.dtype)

    def flow(u: Tensor) -> Tensor:
        for _ in range(steps):
            u = torch.addcmul(matrix @ u + gain, keep, u)
        return u

    return flow


def fidelity_flow(
    graph: Graph, labels: Labels, weight: Tensor | None, steps: int, strength: float
) -> Callable[[Tensor], Tensor]:
    """Random-walk heat, u' = -D^-1 Δu, in `steps` steps of length ½, with labelled nodes pulled to their labels.

    A pull of `strength` μ takes a labelled node to (u + μ w g) / (1 + μ w) after each step, w its weight.
    """
    degree = graph.degree.detach()
    # Square roots keep the matrix symmetric: D^-1 W = D^-1/2 (D^-1/2 W D^-1/2) D^1/2.
    root = torch.where(degree > 0, degree, 1).sqrt()[:, None]
    t = graph.topology
    matrix = t.matrix(graph.weight.detach() / (root[t.i, 0] * root[t.j, 0]))
    alone = (degree <= 0)[:, None]
    index, value = labels.index.long(), labels.value.detach()
    pull = strength * (value.new_ones(len(index)) if weight is None else weight)[:, None]

    def flow(u: Tensor) -> Tensor:
        for _ in range(steps):
            u = torch.where(alone, u, (u + matrix @ (root * u) / root) / 2)
            u[index] = (u[index] + pull * value) / (1 + pull)
        return u

    return flow
