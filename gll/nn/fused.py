"""The layer's common case on a small batch, in one dense piece: a fast path, not another layer.

A few hundred nodes take longer to describe to a GPU, operation by operation, than to solve. For plain Laplace learning
on single precision features this file does forward and backward in about a hundred dense float64 operations, a sixth of
what the general path needs; on a GPU it records them when they repeat (`replay.py`). It computes the same function, and
checks that it did, in one look at the result:

- neighbours: no gap that decides them is within the rounding of the products that gave the distances, but for copies
  of a point (`ranking.py`);
- weights: the smallest ε² is far above that rounding (so no more than k copies of a point, no tight clusters);
- degrees: no node hangs by edges that float32 would round to zero;
- the system: it has a Cholesky factor, and a known answer comes back right (so every node is reached);
- labels: every base sample has one, within range, and every class a base sample.

`fused_logits` returns its answer together with that look, `sound()`. Where it says no, the layer takes the general
path, which knows what to do. On a GPU the look is what the CPU waits for, so the caller says when (`layer.attempt`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gll.nn.ranking import nearest, rounding
from gll.nn.replay import Recorder, Recording
from gll.solvers.triangular import invert_lower, solve_factored

EPS = torch.finfo(torch.float64).eps
KNOWN_ANSWER_TOLERANCE = 1e-8
LEAST_DEGREE = 1e-30  # below, weights vanish in float32, and the general path calls a node unreached
EXPONENT_TOLERANCE = 1e-7  # error allowed in d²/(ε_i ε_j), and so, relatively, in a weight: that of float32


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


# Derivation of the backward pass, with full symmetric matrices over all pairs of nodes, base nodes first.
# v solves the adjoint equation on the free nodes and is 0 on the base, so (`implicit.py`)
#     ∂J/∂w_ij = G_ij = -(u_i - u_j)·(v_i - v_j)                       for the undirected edge {i, j}.
# With w = exp(-s d/(e_i e_j)), d the squared distance, e the bandwidth and s the kernel's scale,
#     ∂J/∂d_ij = H_ij = -s G_ij w_ij / (e_i e_j),        ∂J/∂e_i = -Σ_j H_ij d_ij / e_i.
# A self-tuned e_i² is itself the distance d of the pair (i, k_i), so H at that pair grows by (∂J/∂e_i) / (2 e_i).
# Then d_ij = |x_i - x_j|² gives ∂J/∂x = 2 L_H x, the Laplacian with weights H, as in `similarity.py`, and for
# x = y/|y| the gradient in y is (x̄ - (x̄·x) x)/|y|.


def _forward(features: Tensor, base: Tensor, labels: Tensor, setting: Setting) -> tuple[Tensor | None, ...]:
    """(logits, verdict, then what the backward pass needs)."""
    k, tau, m = setting.k, setting.tau, len(base)
    x = raw = torch.cat([base, features]).float()
    length = None
    if setting.normalize:
        length = torch.linalg.vector_norm(x, dim=1, keepdim=True, dtype=torch.float64)
        x = x / length
    x = x.double()
    if labels.dim() == 1:
        g = (labels[:, None] == torch.arange(setting.num_classes, device=x.device)).to(x.dtype)
    else:
        g = labels.to(x.dtype)
    square = torch.linalg.vecdot(x, x)
    d = torch.addmm(square, x, x.T, alpha=-2).add_(square[:, None])
    value, index, doubt = nearest(raw, d, rounding(square, x.shape[1]), k)
    near = torch.zeros_like(d, dtype=torch.bool).scatter_(1, index, True)
    near = near | near.T
    root: Tensor | None = None
    inverse: Tensor | None = None
    if setting.epsilon is None:
        root = value[:, k - 1].rsqrt()  # 1/ε
        inverse = torch.outer(root * -setting.scale, root)
        w = (d * inverse).exp_().mul_(near)
    else:
        w = (d * (-setting.scale / setting.epsilon**2)).exp_().mul_(near)
    # A = D - W + τ on the free nodes and its factor; a last column of ones in g gives the known answer 1.
    free, out = w[m:], w[m:, :m]
    a = -free[:, m:]
    degree = free.sum(1)
    a.diagonal().copy_(degree + tau if tau else degree)
    factor, _ = torch.linalg.cholesky_ex(a)
    if factor.is_cuda:
        factor = invert_lower(factor)
    rhs = out @ torch.nn.functional.pad(g, (0, 1), value=1.0)
    if tau:
        rhs[:, -1] += tau
    solution = solve_factored(factor, rhs, inverted=factor.is_cuda)
    u, known = solution[:, :-1], solution[:, -1]
    lifted = u.clamp(min=0).add_(setting.floor)
    figures = (doubt, value[:, k - 1].amin(), square.amax(), degree.amin(), *known.aminmax())
    verdict = torch.cat([*(t[None] for t in figures), g.sum(0)])  # the last being the base samples per class
    logits = torch.log(lifted, out=torch.empty_like(lifted, dtype=torch.float32))
    return logits, verdict, x, g, u, lifted, d, w, factor, index, root, inverse, length


def _backward(results: Sequence[Tensor | None], cotangent: Tensor, setting: Setting) -> Tensor:
    """∂J/∂(base, features), from the results of `_forward` and ∂J/∂logits."""
    x, g, u, lifted, d, w, factor, index = (t for t in results[2:10] if t is not None)
    root, inverse, length = results[10:]
    v = solve_factored(factor, cotangent / lifted, inverted=factor.is_cuda)
    u, v = torch.cat([g, u]), torch.nn.functional.pad(v, (0, 0, len(g), 0))
    product = torch.addmm(d, u, v.T, beta=0, alpha=2)  # twice, as ∂J/∂x = 2 L_H x
    p = product.diagonal()
    h = (product + product.T).sub_(p).sub_(p[:, None]).mul_(w)
    if root is None:
        assert setting.epsilon is not None
        h.mul_(-setting.scale / setting.epsilon**2)
    else:
        assert inverse is not None
        h.mul_(inverse)
        slope = torch.linalg.vecdot(h, d).mul_(root).mul_(root).mul_(-0.5)[:, None]
        last = index[:, setting.k - 1 : setting.k]
        h.scatter_add_(1, last, slope).scatter_add_(0, last.T, slope.T)
    x_bar = torch.addmm(h.sum(1, keepdim=True) * x, h, x, alpha=-1)
    if length is not None:
        x_bar = torch.addcmul(x_bar, torch.linalg.vecdot(x_bar, x)[:, None], x, value=-1).div_(length)
    return x_bar.float()


class _FusedLaplace(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        base: Tensor,
        labels: Tensor,
        setting: Setting,
        call: Call,
        recording: Recording | None,
        launched: list[int],
    ) -> tuple[Tensor, Tensor]:
        inputs = (features, base, labels)
        if recording is None:
            results = _forward(*inputs, setting)
            logits, verdict, *kept = results
        else:
            logits, verdict, *_ = recording.run(inputs)
            kept, ctx.launch = [], recording.launches
            launched.append(ctx.launch)
        assert logits is not None
        assert verdict is not None
        if recording is not None:  # the next launch overwrites its results; the verdict is read before
            logits, verdict = logits.clone(), verdict.detach()
        ctx.save_for_backward(*inputs, *kept)
        ctx.setting, ctx.call, ctx.recording = setting, call, recording
        ctx.mark_non_differentiable(verdict)
        return logits, verdict

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        features, base, labels, *kept = ctx.saved_tensors
        wanted, m = ctx.needs_input_grad[:2], len(base)
        if torch.is_grad_enabled():  # create_graph=True: the general path is differentiable again
            nodes = [features.view_as(features), base.view_as(base)]
            inputs = [t for t, w in zip(nodes, wanted, strict=True) if w]
            logits = ctx.call.general(*nodes, labels)
            grads = iter(torch.autograd.grad(logits, inputs, cotangents[0], create_graph=True, materialize_grads=True))
            return *(next(grads) if w else None for w in wanted), None, None, None, None, None
        if ctx.recording is None:
            x_bar = _backward([None, None, *kept], cotangents[0], ctx.setting)
        elif ctx.recording.launches == ctx.launch:
            x_bar = ctx.recording.run_back(cotangents[0]).clone()
        else:  # another batch came between: what this one had left is gone
            x_bar = _backward(_forward(features, base, labels, ctx.setting), cotangents[0], ctx.setting)
        return x_bar[m:].to(features.dtype), x_bar[:m].to(base.dtype), None, None, None, None, None


@dataclass(frozen=True)
class Call:
    """Who calls: `general`, the same function of (features, base, labels) by the general path, for higher derivatives;
    and `recorder`, which keeps recordings of what repeats."""

    general: Callable[..., Tensor]
    recorder: Recorder

    def recording(self, features: Tensor, base: Tensor, labels: Tensor, setting: Setting) -> Recording | None:
        if not features.is_cuda or torch.cuda.is_current_stream_capturing():
            return None
        inputs = (features, base, labels)
        # The stream belongs to the kind: two streams must not share memory.
        stream = torch.cuda.current_stream(features.device)
        kind = (setting, features.device, stream.cuda_stream, *((t.shape, t.dtype) for t in inputs))

        def make() -> Recording:
            with torch.cuda.device(features.device):
                return Recording(
                    lambda features, base, labels: _forward(features, base, labels, setting),
                    lambda results, cotangent: _backward(results, cotangent, setting),
                    inputs,
                )

        return self.recorder.recording(kind, make)


def fused_logits(
    features: Float[Tensor, "q d"], base: Float[Tensor, "m d"], labels: Tensor, setting: Setting, call: Call
) -> tuple[Float[Tensor, "q c"], Callable[[], bool]]:
    """log(u + floor) for Laplace learning on one kNN graph of base and queries; and whether it can be vouched for.

    Args:
        features, base: queries and base nodes, in float32 or half precision.
        labels: (m,) classes or (m, C) soft labels.
        setting: the rest.
        call: who calls.

    Differentiable in: `features`, `base`, to any order.
    """
    recording = call.recording(features, base, labels, setting)
    launched: list[int] = []
    logits, verdict = _FusedLaplace.apply(features, base, labels, setting, call, recording, launched)

    def sound() -> bool:
        """Waits for the verdict. False also where a later batch has overwritten it."""
        figures = verdict.tolist() if recording is None else recording.verdict(launched[0])
        # From here on a GPU may have nothing to do until the caller gives it something: be brief.
        return figures is not None and _sound(figures, features.shape[1], labels, setting)

    return logits, sound


def _sound(figures: list[float], dimension: int, labels: Tensor, setting: Setting) -> bool:
    """What the verdict of `_forward` means."""
    doubt, bandwidth, size, least, low, high, *counts = figures
    bandwidth = bandwidth if setting.epsilon is None else setting.epsilon**2
    noise = 4 * EPS * dimension**0.5 * size
    # Comparisons with NaN are false, so that a failed factor, or features that are not finite, count as unsound.
    return (
        (doubt == 0 and bandwidth * EXPONENT_TOLERANCE > noise and least > LEAST_DEGREE)
        and (abs(low - 1) <= KNOWN_ANSWER_TOLERANCE and abs(high - 1) <= KNOWN_ANSWER_TOLERANCE)
        and (math.isfinite(sum(counts)) and min(counts) > 0)
        and (labels.dim() == 2 or sum(counts) == len(labels))
    )
