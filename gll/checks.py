"""Checks of what is handed to `solve`: every mistake gets a sentence that says what was got and what to do."""

from __future__ import annotations

import torch
from torch import Tensor

from gll.equations import AbstractEquation
from gll.graph import Graph
from gll.labels import Labels
from gll.problem import Inputs
from gll.sums import sum_into


def all_finite(*tensors: Tensor | None) -> bool:
    return all(bool(torch.isfinite(t).all()) for t in tensors if t is not None)


def check_arguments(equation: AbstractEquation, graph: Graph, labels: Labels | None, initial: Tensor | None) -> int:
    """Raise a clear error where the arguments do not fit together; returns the number of columns."""
    for given, wanted, hint in (
        (equation, AbstractEquation, "such as gll.Laplace()"),
        (graph, Graph, "made by gll.knn_graph or Graph.from_sparse"),
        (labels, Labels | None, "made by Labels.from_classes"),
    ):
        if not isinstance(given, wanted):
            what = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
            raise TypeError(f"expected an object {hint}, got {what}")
    n, device = graph.num_nodes, graph.weight.device
    source = getattr(equation, "source", None)
    _check_tensors(device, dict(weights=graph.weight, initial=initial, **equation.tensors()))
    if graph.weight.numel() and not float(graph.weight.detach().min()) >= 0 and all_finite(graph.weight):
        raise ValueError(f"weights must not be negative, the smallest is {float(graph.weight.detach().min()):g}")
    if labels is not None:
        _check_tensors(device, {"labels": labels.value})
        if len(labels.index) == 0:
            raise ValueError("the set of labelled nodes is empty: give at least one label, or labels=None")
        low, high = torch.stack(torch.aminmax(labels.index)).tolist()
        if low < 0 or high >= n:
            raise ValueError(f"label indices must lie in 0 .. {n - 1}, got values from {low} to {high}")
        if labels.index.unique().numel() != len(labels.index):
            raise ValueError("a node is labelled twice: label indices must be distinct")
        classes = labels.num_classes
    elif source is not None:
        classes = source.shape[1] if source.dim() == 2 else 1
    elif initial is not None:
        classes = initial.shape[-1]
    else:
        raise ValueError(f"{type(equation).__name__} without labels needs a source or an initial state")
    if source is not None and source.shape not in ((n,), (n, 1), (n, classes)):
        raise ValueError(f"source must have shape ({n},) or ({n}, {classes}), got {tuple(source.shape)}")
    if initial is not None and initial.shape != (n, classes):
        raise ValueError(f"initial must have shape ({n}, {classes}), got {tuple(initial.shape)}")
    if equation.needs_start and initial is None:
        raise ValueError(f"{type(equation).__name__} has many solutions: pass initial=(n, C) to say where to start")
    equation.validate(graph.topology, classes, graph.weight.dtype)
    if labels is None and not equation.singular:
        node = torch.arange(n, device=device)[:, None]
        anchored = equation.anchored(graph.weight.detach().new_zeros(n, classes), node)
        if anchored is False:
            raise ValueError(
                f"{type(equation).__name__} without labels and without a reaction determines nothing: "
                "give labels, or tau > 0"
            )
    return classes


def _check_tensors(device: torch.device, tensors: dict[str, Tensor | None]) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device != device:
            raise ValueError(
                f"{name} are on {tensor.device}, but the graph's weights are on {device}; move one of them"
            )
        if tensor is not None and not tensor.is_floating_point():
            raise TypeError(f"{name} must be floating point, got {tensor.dtype}")


def unbalanced_source(constant: Inputs, graph: Graph, classes: int) -> str:
    """Where the source of a Poisson equation does not sum to zero, in words; empty where it does."""
    load = constant.equation.load(constant.labels, graph.num_nodes)
    if load is None:
        return ""
    total, size = (sum_into(graph.num_nodes, graph.components, f) for f in (load, load.abs()))
    bad = (total.abs() > 1e-6 * size).any(1)
    if not bool(bad.any()):
        return ""
    first = int(torch.nonzero(bad)[0])
    count = int((graph.components == first).sum())
    return f"component {first}, of {count} nodes, has a source of sum {total[first].tolist()}"


def carries_load(constant: Inputs, nodes: Tensor) -> bool:
    """Whether a source, or the pull of a soft label, acts on any of these nodes (a mask)."""
    n = len(nodes)
    pull, load = constant.equation.pull(constant.labels, n), constant.equation.load(constant.labels, n)
    return any(t is not None and bool((t[nodes] != 0).any()) for t in (pull, load))
