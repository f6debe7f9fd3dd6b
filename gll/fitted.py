"""What a fit of the classifier has found, and its parts: labels on nodes, stages with their times, a device."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gll.calibration import tempered
from gll.graph import Graph
from gll.labels import Labels
from gll.methods import AbstractMethod, Propagation
from gll.points import AbstractPoints
from gll.solvers.auto import Auto
from gll.solvers.base import AbstractLinearSolver
from gll.solvers.multilevel import Multilevel
from gll.solvers.newton import Newton
from gll.targets import Targets


@dataclass(frozen=True, eq=False)
class Fitted:
    """All that a fit has found; the attributes of the classifier are read off it.

    Args:
        method: what spread the labels.
        points: the training points, to which new ones are joined.
        graph: the graph, one node per distinct row.
        targets: the labels of the rows.
        weight: (n,) of the rows.
        node: (n,) node of every row, -1 for rows of weight zero.
        row: (nodes,) first row of every node.
        outside: neighbours and shares of the rows of weight zero, as new points.
        propagation: what the method found.
        temperature: of the probabilities.
        multilevel: groups of nodes that precondition large solves. They depend on the graph only, and are kept for the
            next solve; None for small graphs.
    """

    method: AbstractMethod
    points: AbstractPoints
    graph: Graph
    targets: Targets
    weight: NDArray[np.float64]
    node: NDArray[np.int64]
    row: NDArray[np.int64]
    outside: tuple[Tensor, Tensor] | None
    propagation: Propagation
    temperature: float
    multilevel: Multilevel | None

    def labels(self) -> tuple[Labels, Tensor | None]:
        """Labels of the nodes, the mean over their copies; and how much each counts, None for alike."""
        return node_labels(self.targets, self.weight, self.node, self.graph)

    def at(self, index: Tensor, share: Tensor) -> Tensor:
        """(m, C) probabilities of points with these neighbours."""
        found, rows = [], max(1, 2**24 // (index.shape[1] * self.propagation.score.shape[1]))
        for i, s in zip(index.split(rows), share.split(rows), strict=True):
            p = self.method.extend(self.propagation, i, s)
            # A point that coincides with a node, or only sees one, is that node to the last bit.
            alone = s[:, :1] == 1
            p = torch.where(alone, self.propagation.probability[i[:, 0]], p)
            # A point without any neighbour is undecided.
            none = s.sum(1, keepdim=True) == 0
            found.append(torch.where(none, 1 / p.shape[1], p))
        return tempered(torch.cat(found), self.temperature) if found else self.propagation.probability[:0]

    def of_rows(self) -> Tensor:
        """(n, C) probabilities of the training rows."""
        node = torch.from_numpy(self.node).to(self.graph.weight.device)
        p = tempered(self.propagation.probability, self.temperature)[node.clamp(min=0)]
        if self.outside is not None:
            p[node < 0] = self.at(*self.outside)
        return p


@dataclass(frozen=True, eq=False)
class Task:
    """What stays the same from one solve to the next."""

    method: AbstractMethod
    graph: Graph
    classes: NDArray[Any]
    solver: AbstractLinearSolver | Newton
    mass: Tensor | None


def groups_of(graph: Graph) -> Multilevel | None:
    """Groups of the nodes of a graph that is large enough to be solved with them."""
    return Multilevel.of(graph) if graph.num_nodes > Auto().dense_rescue else None


def node_labels(
    targets: Targets, weight: NDArray[np.float64], node: NDArray[np.int64], graph: Graph
) -> tuple[Labels, Tensor | None]:
    """See `Fitted.labels`."""
    at, w = node[targets.row], weight[targets.row]
    index, place = np.unique(at, return_inverse=True)
    mass = np.bincount(place, w)
    value = np.zeros((len(index), targets.value.shape[1]))
    np.add.at(value, place, w[:, None] * targets.value)
    device, dtype = graph.weight.device, graph.weight.dtype
    labels = Labels(torch.from_numpy(index).to(device), torch.from_numpy(value / mass[:, None]).to(device, dtype))
    alike = bool((mass == 1).all())
    return labels, None if alike else torch.from_numpy(mass).to(device, dtype)


class Stages:
    """Seconds of every stage; told as they pass where `verbose`."""

    def __init__(self, verbose: int) -> None:
        self.verbose, self.seconds = verbose, {}  # type: int, dict[str, float]

    @contextmanager
    def __call__(self, name: str, needed: bool = True) -> Iterator[None]:
        if not needed:
            yield
            return
        if self.verbose:
            sys.stderr.write(f"[gll] {name} ...\n")
            sys.stderr.flush()
        start = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - start)
        if self.verbose:
            sys.stderr.write(f"[gll] {name}: {self.seconds[name]:.2f} s\n")

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


def find_device(device: Any) -> torch.device:
    """The device of this name, if there is one here."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"unknown device {device!r}: give 'cpu', 'cuda', 'cuda:1', ... or None") from error
    try:
        torch.empty(0, device=found)
        usable = found.type != "meta"
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):
        usable = False
    if not usable:
        raise ValueError(
            f"the device {str(found)!r} is not available: PyTorch {torch.__version__} sees {torch.cuda.device_count()} "
            "CUDA devices; use device='cpu' or None"
        )
    return found
