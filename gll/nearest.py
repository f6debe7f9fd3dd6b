"""The label of the nearest labelled node, and by how much it is nearer than those of other classes."""

from __future__ import annotations

import scipy.sparse
import torch
from torch import Tensor

from gll.features import power_of_two_scale
from gll.graph import Graph
from gll.labels import Labels
from gll.neighbors import AbstractNeighborSearch
from gll.selection import sqdist_of_pairs


def label_shares(graph: Graph, labels: Labels, search: AbstractNeighborSearch) -> tuple[Tensor, str]:
    """(n, C) shares of the classes at every node, and how distances were measured.

    For each class b let d_b be the distance to its nearest label (a soft label belongs to its largest class), and s the
    mean over nodes of the smallest d. The shares are Σ_b softmax(-(d_b / s)^2)_b g_b, so the nearest label wins, and
    two that are equally near share. Nodes that no label reaches get zeros.
    """
    index, value = labels.index.long(), labels.value.detach()
    owner = value.argmax(1)
    classes = owner.unique().tolist()
    groups = [torch.nonzero(owner == c).squeeze(1) for c in classes]
    if graph.features is not None:
        x = graph.features.detach()
        x = x / power_of_two_scale(x)
        near = [group[search.query(x[index[group]], x, 1).squeeze(1)] for group in groups]
        node = torch.arange(len(x), device=x.device)
        square = torch.stack([sqdist_of_pairs(x, node, index[g]).double() for g in near], 1)
        how = "by features"
    else:
        found = [_along_edges(graph, index[group]) for group in groups]
        near = [group[which] for group, (which, _) in zip(groups, found, strict=True)]
        square = torch.stack([distance for _, distance in found], 1).square()
        how = "along edges"
    least = square.amin(1)
    reached = torch.isfinite(least)
    unit = least[reached].mean() if bool(reached.any()) else least.new_ones(())
    logit = -(square / torch.where(unit > 0, unit, 1))
    share = torch.softmax(torch.where(reached[:, None], logit, 0), 1)
    mixed = sum(share[:, b, None] * value[near[b]].double() for b in range(len(classes)))
    assert isinstance(mixed, Tensor)
    return torch.where(reached[:, None], mixed, 0).to(value.dtype), how


def _along_edges(graph: Graph, sources: Tensor) -> tuple[Tensor, Tensor]:
    """For every node the nearest source (as a position in `sources`) and its distance, edges being 1 / weight long."""
    matrix = graph.to_scipy().astype("float64")
    matrix.eliminate_zeros()
    # In units of the largest weight: only ratios matter, and nothing overflows that need not.
    top = matrix.data.max() if matrix.nnz else 1.0
    matrix.data = (top / matrix.data).clip(max=1e300)
    nodes = sources.cpu().numpy()
    distance, _, origin = scipy.sparse.csgraph.dijkstra(
        matrix, directed=False, indices=nodes, min_only=True, return_predecessors=True
    )
    device = graph.weight.device
    position = torch.zeros(graph.num_nodes, dtype=torch.long)
    position[torch.as_tensor(nodes, dtype=torch.long)] = torch.arange(len(nodes))
    which = position[torch.as_tensor(origin, dtype=torch.long).clamp(min=0)]
    return which.to(device), torch.as_tensor(distance, dtype=torch.float64).to(device)
