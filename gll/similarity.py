"""How similar neighbours are: from features to the weights of a graph.

    w_ij = η( |x_i - x_j|² / (ε_i ε_j) ),        η(z) = exp(-4 z),        ε_i = |x_i - x_{k_i}|,

where k_i is the k-th nearest neighbour of i. The topology and the k_i are held fixed by the backward pass
(they are constant unless two distances tie); everything else is differentiated, ε included.

Features enter in one place, `edge_sqdist`, which has one of the two hand-written derivatives of this
library. All that follows are a few operations on vectors with one entry per edge, left to autograd.

Read next: `equations.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from gll.features import Metric, check_features, power_of_two_scale, require_functions, require_positive
from gll.graph import Graph, Topology
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.selection import sqdist_of_pairs


class _EdgeSqdist(torch.autograd.Function):
    # Derivation. J depends on x through d_e = |x_i - x_j|², one value per edge e = (i, j). With c_e = ∂J/∂d_e,
    #
    #     ∂J/∂x_i = Σ_{e at i} 2 c_e (x_i - x_j),     that is     ∂J/∂x = 2 L_c x,
    #
    # the graph Laplacian with weights c (of any sign) times x. Together with autograd's derivative of the
    # bandwidths this is L_{H-M} X of the paper's section 3.2.1, up to the factor in its kernel.
    @staticmethod
    def forward(ctx: Any, x: Tensor, topology: Topology) -> Tensor:
        sqdist = sqdist_of_pairs(x, topology.i, topology.j)
        ctx.save_for_backward(x, sqdist)
        ctx.topology = topology
        return sqdist

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, None]:
        (x, sqdist), topology, (c,) = ctx.saved_tensors, ctx.topology, cotangents
        # By differences: exact, differentiable again, what a GPU does best. On a CPU, D_c x - C x as a sparse product
        # is four times faster but cancels where neighbours are closer to each other than to the origin: use it while
        # that costs no digits of x, in float64 if need be. (An edge of length zero has no gradient.)
        closest = 0.0
        if x.device.type == "cpu" and not torch.is_grad_enabled() and sqdist.numel():
            closest = float(torch.where(sqdist > 0, sqdist, torch.inf).min() / x.square().sum(1).max())
        if not closest > 1e-12:
            return 2 * topology.scatter(c[:, None] * topology.gather(x)), None
        dtype = x.dtype if closest > 1e-3 else torch.float64
        c, wide = -2 * torch.where(sqdist > 0, c, 0).to(dtype), x.to(dtype)
        return torch.addcmul(topology.matrix(c) @ wide, topology.degree(c)[:, None], wide, value=-1).to(x.dtype), None


def edge_sqdist(x: Float[Tensor, "n d"], topology: Topology) -> Float[Tensor, " edges"]:
    """|x_i - x_j|² on every edge, from true differences.

    Differentiable in: `x`, to any order. Held fixed: `topology`.
    """
    return _EdgeSqdist.apply(x, topology)


@final
@dataclass(frozen=True)
class SelfTuned:
    """ε_i = distance to the k-th nearest neighbour. A bandwidth is any function of the (n, k) distances.

    Differentiable in: the distances.
    """

    def __call__(self, distance: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
        return distance[:, -1]


@final
@dataclass(frozen=True, eq=False)
class Constant:
    """ε_i = `epsilon` for every node.

    Differentiable in: `epsilon` where it is a tensor.
    """

    epsilon: float | Tensor = 1.0

    def __post_init__(self) -> None:
        require_positive(self.epsilon, "the bandwidth epsilon")

    def __call__(self, distance: Float[Tensor, "n k"]) -> Float[Tensor, " n"]:
        return torch.as_tensor(self.epsilon, dtype=distance.dtype, device=distance.device).expand(distance.shape[0])


@final
@dataclass(frozen=True, eq=False)
class Gaussian:
    """η(z) = exp(-scale · z). A kernel is any decreasing function of z ≥ 0 with non-negative values.

    Differentiable in: z, and `scale` where it is a tensor.
    """

    scale: float | Tensor = 4.0

    def __post_init__(self) -> None:
        require_positive(self.scale, "the kernel's scale")

    def __call__(self, z: Float[Tensor, " edges"]) -> Float[Tensor, " edges"]:
        return torch.exp(-self.scale * z)


class Symmetrize(enum.Enum):
    """What an edge that only one of its ends has chosen is worth, beside one that both have chosen."""

    UNION = 1.0
    MEAN = 0.5
    MUTUAL = 0.0

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ValueError(f"unknown symmetrisation {value!r}; choose Symmetrize.UNION, .MEAN or .MUTUAL")


def knn_bandwidth(
    bandwidth: Callable[[Tensor], Tensor], sqdist: Tensor, edge: Tensor, scaled: Tensor, scale: Tensor
) -> Tensor:
    """ε, in units of `scale`, from the distances to the neighbours, which are read off the edges.

    ε is floored before it divides: at the rounding of the node's own features, below which a distance is noise.
    """
    if isinstance(bandwidth, SelfTuned):
        edge = edge[:, -1:]  # the only column it looks at
    # Floored before the root, whose slope at zero is infinite: a zero distance has a zero derivative.
    info = torch.finfo(sqdist.dtype)
    distance = scale * sqdist[edge].clamp(min=info.tiny).sqrt()
    # The search promises which point is the k-th, not the order of the others to the last bit.
    epsilon = bandwidth(distance if isinstance(bandwidth, SelfTuned) else distance.sort(dim=1).values) / scale
    if epsilon.shape != (edge.shape[0],):
        raise ValueError(f"a bandwidth gives one value per node, shape ({edge.shape[0]},); got {tuple(epsilon.shape)}")
    least = 2.0**-30 if sqdist.dtype == torch.float32 else 2.0**-250
    return torch.maximum(epsilon, (info.eps * scaled.detach().abs().amax(1)).clamp(min=least))


def pair_weight(
    sqdist: Tensor, epsilon_i: Tensor, epsilon_j: Tensor, kernel: Callable[[Tensor], Tensor]
) -> Float[Tensor, " edges"]:
    """η(d²/(ε_i ε_j)); weights at the edge of underflow, whose derivatives would overflow, are set to zero."""
    weight = kernel(sqdist / (epsilon_i * epsilon_j))
    return torch.where(weight <= 1e3 * torch.finfo(weight.dtype).tiny, 0, weight)  # a NaN passes, to be named later


def knn_graph(
    x: Float[Tensor, "n d"],
    k: int = 25,
    *,
    search: AbstractNeighborSearch | None = None,
    bandwidth: Callable[[Tensor], Tensor] | None = None,
    kernel: Callable[[Tensor], Tensor] | None = None,
    metric: Metric = Metric.EUCLIDEAN,
    symmetrize: Symmetrize = Symmetrize.UNION,
) -> Graph:
    """The k-nearest-neighbour similarity graph of a set of features.

        w_ij = η( |x_i - x_j|² / (ε_i ε_j) )    if j is among the k nearest of i, or i among those of j.

    Args:
        x: (n, d) features of any float type (half precisions are widened to float32), finite, n ≥ 2.
        k: neighbours of every point, the point itself not counted; 1 ≤ k < n.
        search: how to find neighbours; `Exact()` by default.
        bandwidth: (n, k) distances, nearest first -> (n,) ε; `SelfTuned()` by default, or `Constant(ε)`.
        kernel: η, on (E,) values; `Gaussian()` by default.
        metric: `Metric.EUCLIDEAN` or `Metric.COSINE`.
        symmetrize: keep an edge if either end chose it (`UNION`), only if both did (`MUTUAL`), or average.

    Returns:
        A `Graph` with weights of the dtype and on the device of x.

    Raises:
        ValueError: features that are not a finite (n, d) float tensor, or k out of range.

    Differentiable in: `x`, and tensors inside `bandwidth` and `kernel`. Held fixed: which points are neighbours.

    >>> graph = knn_graph(torch.tensor([[0.0], [1.0], [3.0]]), k=1)
    >>> graph.topology.i.tolist(), graph.topology.j.tolist()
    ([0, 1], [1, 2])
    """
    require_functions(bandwidth=bandwidth, kernel=kernel, search=search)
    x, symmetrize = Metric(metric).prepare(check_features(x)), Symmetrize(symmetrize)
    scale = power_of_two_scale(x)
    scaled = x / scale
    index = (search or Exact())(scaled, k)
    n = x.shape[0]
    rows = torch.arange(n, device=x.device).repeat_interleave(k)
    topology, edge = Topology.from_pairs(n, rows, index.flatten())
    sqdist = edge_sqdist(scaled, topology)
    epsilon = knn_bandwidth(bandwidth or SelfTuned(), sqdist, edge.view(n, k), scaled, scale)
    weight = pair_weight(sqdist, epsilon[topology.i], epsilon[topology.j], kernel or Gaussian())
    if symmetrize is not Symmetrize.UNION:
        both = torch.bincount(edge, minlength=topology.num_edges) == 2
        weight = torch.where(both, weight, symmetrize.value * weight)
        if symmetrize is Symmetrize.MUTUAL:
            topology, weight = topology.keep(both), weight[both]
    return Graph(topology, weight, features=x)
