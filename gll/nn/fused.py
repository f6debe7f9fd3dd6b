"""The layer's common case on a small batch, in one dense piece: a fast path, not another layer.

A few hundred nodes take longer to describe to a GPU, operation by operation, than to solve. For plain Laplace learning
on single precision features this file does forward and backward in about a hundred dense float64 operations, a sixth of
what the general path needs. It computes the same function, and checks that it did, in one look at the result:

- neighbours: no gap that decides them is within the rounding of the products that gave the distances;
- distances: the smallest is far above that rounding (so no duplicates, no tight clusters);
- the system: it has a Cholesky factor, and a known answer comes back right (so every node is reached);
- labels: every base sample has one, within range, and every class a base sample.

Where any of this fails, `fused_logits` returns None and the layer takes the general path, which knows what to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gll.selection import smallest
from gll.solvers.cholesky import invert_lower, solve_factored

KNOWN_ANSWER_TOLERANCE = 1e-8
DISTANCE_TOLERANCE = 1e-7  # relative accuracy asked of every squared distance: that of float32


def fused_limit(device: torch.device) -> int:
    """The number of nodes up to which this is faster than the general path (measured)."""
    return 500 if device.type == "cpu" else 3000


@dataclass(frozen=True)
class Setting:
    """Everything that is not a tensor: neighbours, τ, the kernel's scale, a constant bandwidth (None: self-tuned), the
    floor under the logarithm, and whether features are scaled to length one."""

    num_classes: int
    k: int
    tau: float
    scale: float
    epsilon: float | None
    floor: float
    normalize: bool


class _FusedLaplace(torch.autograd.Function):
    # Derivation of the backward pass, with full symmetric matrices over all pairs of nodes, base nodes first.
    # v solves the adjoint equation on the free nodes and is 0 on the base, so (`implicit.py`)
    #     ∂J/∂w_ij = G_ij = -(u_i - u_j)·(v_i - v_j)                       for the undirected edge {i, j}.
    # With w = exp(-s d/(e_i e_j)), d the squared distance, e the bandwidth and s the kernel's scale,
    #     ∂J/∂d_ij = H_ij = -s G_ij w_ij / (e_i e_j),        ∂J/∂e_i = -Σ_j H_ij d_ij / e_i.
    # A self-tuned e_i² is itself the distance d of the pair (i, k_i), so H at that pair grows by (∂J/∂e_i) / (2 e_i).
    # Then d_ij = |x_i - x_j|² gives ∂J/∂x = 2 L_H x, the Laplacian with weights H, as in `similarity.py`, and for
    # x = y/|y| the gradient in y is (x̄ - (x̄·x) x)/|y|.
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, base: Tensor, labels: Tensor, setting: Setting, general: Callable[..., Tensor]
    ) -> tuple[Tensor, Tensor]:
        k, tau, m = setting.k, setting.tau, len(base)
        x = torch.cat([base, features]).double()
        length = None
        if setting.normalize:
            length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
            x = x / length
        if labels.dim() == 1:
            g = (labels[:, None] == torch.arange(setting.num_classes, device=x.device)).to(x.dtype)
        else:
            g = labels.to(x.dtype)
        square = torch.linalg.vecdot(x, x)
        d = torch.addmm(square, x, x.T, alpha=-2).add_(square[:, None])
        diagonal = d.diagonal()
        diagonal.fill_(torch.inf)
        value, index = smallest(d, k + 1)
        diagonal.zero_()
        near = torch.zeros_like(d, dtype=torch.bool).scatter_(1, index[:, :k], True)
        near = near | near.T
        if setting.epsilon is None:
            e = value[:, k - 1].sqrt()
            inverse = (e[:, None] * e).reciprocal_().mul_(-setting.scale)
        else:
            e, inverse = square, torch.tensor(-setting.scale / setting.epsilon**2, dtype=x.dtype)
        w = (d * inverse).exp_().mul_(near)
        # D^-1/2 A D^-1/2 on the free nodes and its factor.
        free, out = w[m:, m:], w[m:, :m]
        leaving = torch.mm(out, g.new_ones(m, 1))
        leaving = leaving + tau if tau else leaving
        s = (free.sum(1, keepdim=True) + leaving).rsqrt()
        a = (free * s.mT).mul_(-s)
        a.diagonal().fill_(1)
        factor, info = torch.linalg.cholesky_ex(a)
        if factor.is_cuda:
            factor = invert_lower(factor)
        solution = solve_factored(factor, torch.cat([out @ g, leaving], 1) * s, inverted=factor.is_cuda) * s
        u, known = solution[:, :-1], solution[:, -1]
        lifted = u.clamp(min=0).add_(setting.floor)
        gap = value[:, max(k - 2, 0) :].diff(dim=1).amin()
        verdict = torch.stack(
            [
                gap,
                value[:, 0].amin(),
                square.amax(),
                info.to(x.dtype),
                *known.aminmax(),
                u.sum(),
                g.sum(0).amin(),
                g.sum(1).amin(),
            ]
        )
        ctx.save_for_backward(features, base, labels, x, g, u, lifted, d, w, factor, s, index, e, inverse, length)
        ctx.setting, ctx.general = setting, general
        ctx.mark_non_differentiable(verdict)
        return lifted.log().to(torch.float32), verdict

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        features, base, labels, x, g, u, lifted, d, w, factor, s, index, e, inverse, length = ctx.saved_tensors
        setting = ctx.setting
        if torch.is_grad_enabled():  # create_graph=True: the general path is differentiable again
            nodes = [features.view_as(features), base.view_as(base)]
            wanted = ctx.needs_input_grad[:2]
            inputs = [t for t, w in zip(nodes, wanted, strict=True) if w]
            logits = ctx.general(*nodes, labels)
            grads = iter(torch.autograd.grad(logits, inputs, cotangents[0], create_graph=True, materialize_grads=True))
            return *(next(grads) if w else None for w in wanted), None, None, None
        v = solve_factored(factor, (cotangents[0] / lifted).mul_(s), inverted=factor.is_cuda) * s
        u, v = torch.cat([g, u]), torch.cat([torch.zeros_like(g), v])
        product = u @ v.T
        p = product.diagonal()
        h = (product + product.T).sub_(p).sub_(p[:, None]).mul_(w).mul_(inverse)
        if setting.epsilon is None:
            slope = (torch.linalg.vecdot(h, d) / (e * e)).mul_(-0.5)
            extra = torch.zeros_like(h).scatter_(1, index[:, setting.k - 1 : setting.k], slope[:, None])
            h.add_(extra).add_(extra.T)
        x_bar = torch.addmm(h.sum(1, keepdim=True) * x, h, x, alpha=-1).mul_(2)
        if length is not None:
            x_bar = torch.addcmul(x_bar, torch.linalg.vecdot(x_bar, x)[:, None], x, value=-1).div_(length)
        m = len(base)
        return x_bar[m:].to(features.dtype), x_bar[:m].to(base.dtype), None, None, None


def fused_logits(
    features: Float[Tensor, "q d"],
    base: Float[Tensor, "m d"],
    labels: Tensor,
    setting: Setting,
    general: Callable[..., Tensor],
) -> Float[Tensor, "q c"] | None:
    """log(u + floor) for Laplace learning on one kNN graph of base and queries, or None if it cannot be vouched for.

    Args:
        features, base: queries and base nodes, in float32 or half precision.
        labels: (m,) classes or (m, C) soft labels.
        setting: the rest.
        general: the same function of (features, base, labels) by the general path, for higher derivatives.

    Differentiable in: `features`, `base`, to any order.
    """
    logits, verdict = _FusedLaplace.apply(features, base, labels, setting, general)
    gap, nearest, size, info, low, high, total, per_class, per_node = verdict.tolist()
    noise = 4 * torch.finfo(torch.float64).eps * features.shape[1] ** 0.5 * size
    sound = (
        (gap > 2 * noise and nearest * DISTANCE_TOLERANCE > noise)
        and (info == 0 and max(abs(low - 1), abs(high - 1)) <= KNOWN_ANSWER_TOLERANCE)
        and math.isfinite(total)
        and (labels.dim() == 2 or (per_class > 0 and per_node > 0))
    )
    return logits if sound else None
