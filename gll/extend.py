"""New points on a solved graph: each is joined to its k nearest nodes, and takes their weighted mean.

    w_j = η( |y - x_j|² / (ε_y ε_j) ),        value(y) = Σ_j w_j u_j / Σ_j w_j,

with ε_y the distance to the k-th of them, and ε_j that of the node among the nodes. This is Laplace's equation at the
new point with everything else held fixed: the nodes do not hear of it, so that the answer does not depend on what else
is asked. A point that coincides with a node is that node. A point so far away that all weights vanish copies its
nearest node.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.features import power_of_two_scale
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.selection import sqdist_of_pairs
from gll.similarity import Gaussian, SelfTuned, knn_bandwidth, pair_weight


def node_bandwidth(x: Float[Tensor, "n d"], index: Int[Tensor, "n k"]) -> Float[Tensor, " n"]:
    """ε of the nodes among themselves, as `knn_graph` has it, from the neighbours that were found.

    Differentiable in: nothing.
    """
    scale = power_of_two_scale(x)
    scaled = x.detach() / scale
    row = torch.arange(len(x), device=x.device)
    sqdist = sqdist_of_pairs(scaled, row, index[:, -1])
    return scale * knn_bandwidth(SelfTuned(), sqdist, row[:, None], scaled, scale)


def join(
    base: Float[Tensor, "n d"],
    bandwidth: Float[Tensor, " n"],
    x: Float[Tensor, "m d"],
    k: int,
    *,
    mass: Float[Tensor, " n"] | None = None,
    search: AbstractNeighborSearch | None = None,
    kernel: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Int[Tensor, "m k"], Float[Tensor, "m k"]]:
    """The k nearest nodes of every new point, and their shares in it (rows sum to one).

    Args:
        base: (n, d) the points of the nodes.
        bandwidth: (n,) their ε, from `node_bandwidth`.
        x: (m, d) new points, of the same dtype.
        k: neighbours; reduced to n where there are fewer.
        mass: (n,) how much every node counts, by default the same.
        search, kernel: as in `knn_graph`.

    Differentiable in: nothing.

    >>> base, epsilon = torch.tensor([[0.0], [1.0]]), torch.ones(2)
    >>> index, share = join(base, epsilon, torch.tensor([[0.5], [1.0]]), 2)
    >>> share.tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    k = min(k, len(base))
    scale = power_of_two_scale(base)
    # Beyond this a point is farther away than rounding can tell: hold it there, so that squares stay finite.
    far = 2.0**50 if base.dtype == torch.float32 else 2.0**400
    a, b = base.detach() / scale, (x.detach() / scale).clamp(-far, far)
    index = (search or Exact()).query(a, b, k)
    row = torch.arange(len(b), device=b.device).repeat_interleave(k)
    sqdist = sqdist_of_pairs(b, row, index.flatten(), other=a).view(-1, k)
    sqdist, order = sqdist.sort(dim=1, stable=True)
    return share_out(sqdist, index.gather(1, order), b, bandwidth / scale, mass, kernel or Gaussian(), scale)


def share_out(
    sqdist: Float[Tensor, "m k"],
    index: Int[Tensor, "m k"],
    scaled: Tensor,
    bandwidth: Float[Tensor, " n"],
    mass: Float[Tensor, " n"] | None,
    kernel: Callable[[Tensor], Tensor],
    scale: Tensor,
) -> tuple[Int[Tensor, "m k"], Float[Tensor, "m k"]]:
    """Shares from distances, nearest first, all in units of `scale`."""
    edge = torch.arange(sqdist.numel(), device=sqdist.device).view(sqdist.shape)
    query = knn_bandwidth(SelfTuned(), sqdist.flatten(), edge, scaled, scale)
    theirs, its = bandwidth[index].flatten(), query.repeat_interleave(sqdist.shape[1])
    weight = pair_weight(sqdist.flatten(), theirs, its, kernel).view(sqdist.shape)
    if mass is not None:
        weight = weight * mass[index]
    nearest = torch.zeros_like(weight)
    nearest[:, 0] = 1
    total = weight.sum(1, keepdim=True)
    alone = (sqdist[:, :1] == 0) | ~((total > 0) & torch.isfinite(total))
    return index, torch.where(alone, nearest, weight / torch.where(alone, 1, total))
