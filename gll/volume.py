"""Class shares: shifts of the scores such that the predicted classes have the shares that are wanted.

Given scores s (n, C) and shares q, find shifts b (C,) such that the share of nodes with argmax_c s_c + b_c = c is q_c.
A node may stand for several copies: it then counts by its mass, here and below.
This is the dual of an assignment problem, with b as the (negative) prices of the classes:

    minimise  F(b) = (1/n) Σ_i max_c (s_ic + b_c) - <q, b>,          convex, with slope  (shares - q).

F is piecewise linear, so it is smoothed first: max becomes T · logsumexp(· / T), which Newton's method minimises in a
few steps, there being only C unknowns, for a falling sequence of temperatures T. The few nodes that are then still in
the wrong class are settled class by class with an order statistic. Everything is deterministic, and ends.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def log_shifts(
    probability: Float[Tensor, "n c"], share: Float[Tensor, " c"], mass: Float[Tensor, " n"] | None = None
) -> Float[Tensor, " c"]:
    """Shifts for the logarithms of probabilities; a probability of zero stays zero whatever the shift."""
    return shifts(probability.double().log(), share, mass)


def class_shares(
    index: Int[Tensor, " n"], classes: int, mass: Float[Tensor, " n"] | None = None
) -> Float[Tensor, " c"]:
    """(C,) the share of every class, nodes counting by their masses.

    >>> class_shares(torch.tensor([0, 1, 1]), 2, torch.tensor([2.0, 1.0, 1.0])).tolist()
    [0.5, 0.5]
    """
    count = _count(index, classes, mass).double()
    return count / count.sum().clamp(min=torch.finfo(count.dtype).tiny)


def shifts(
    score: Float[Tensor, "n c"], share: Float[Tensor, " c"], mass: Float[Tensor, " n"] | None = None
) -> Float[Tensor, " c"]:
    """Shifts b (C,), of mean zero, that bring the shares of argmax(score + b) as near to `share` as we can.

    They are zero where the shares are right already.

    Args:
        score: (n, C) finite, or -inf where a class is impossible.
        share: (C,) the wanted shares, ≥ 0, summing to one. A class of share zero wins only where no other is possible.
        mass: (n,) how much every node counts, > 0; alike by default. The heavier single nodes are, the less exactly
            shares can be met.

    Differentiable in: nothing.

    >>> score = torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]])
    >>> (score + shifts(score, torch.tensor([0.5, 0.5]))).argmax(1).tolist()
    [0, 0, 1, 1]
    """
    s, q = score.detach().double(), share.detach().double()
    n, classes = s.shape
    wanted = torch.nonzero(q > 0).squeeze(1)
    if n == 0 or len(wanted) == 0:
        return q.new_zeros(classes)
    # Rows without a choice among the wanted classes have their class whatever the shifts: the others make up for them.
    some = s[:, wanted]
    choice = torch.isfinite(some).sum(1) > 1
    free, heavy, stuck = some[choice], None, None
    if mass is not None:
        m = mass.detach().double()
        heavy, stuck = m[choice], m[~choice]
    fixed = _count(s[~choice].argmax(1), classes, stuck)[wanted]
    if heavy is None:
        target = (_whole(q[wanted], n) - fixed).clamp(min=0)
        target = _whole(target.double() / max(int(target.sum()), 1), len(free))
    else:
        target = (q[wanted] * m.sum() - fixed).clamp(min=0)
        target = target * (heavy.sum() / target.sum().clamp(min=torch.finfo(q.dtype).tiny))
    found = q.new_zeros(len(wanted))
    if len(free) and not torch.equal(_count(free.argmax(1), len(wanted), heavy), target):
        part = slice(None, None, max(1, len(free) // SAMPLE))
        weight = q.new_ones(len(free)) if heavy is None else heavy
        found = _smoothed(free[part], weight[part] / weight[part].sum(), target.double() / weight.sum(), found)
        found = _settle(free, heavy, target, found)
    values = s[torch.isfinite(s)]
    below = found.min() - 2 * (values.max() - values.min()) - 1 if len(values) else found.min()
    b = below.expand(classes).index_copy(0, wanted, found)
    return b - b.mean()


SAMPLE = 20_000  # rows that the smoothed problem looks at; the last corrections look at all
TEMPERATURES, NEWTON_STEPS = 16, 8


def _count(index: Tensor, classes: int, mass: Tensor | None) -> Tensor:
    """(C,) nodes of every class, or their masses."""
    return torch.bincount(index, None if mass is None else mass.double(), classes)


def _whole(share: Tensor, n: int) -> Tensor:
    """Whole numbers of nodes that sum to n, by largest remainders."""
    exact = share * n
    count = exact.floor()
    missing = n - int(count.sum())
    order = torch.argsort(count - exact, stable=True)
    count[order[:missing]] += 1
    return count.long()


def _smoothed(s: Tensor, m: Tensor, q: Tensor, b: Tensor) -> Tensor:
    """The minimum of the smoothed F at falling temperatures, by Newton's method with a line search.

    m (n,) are the masses of the nodes, of sum one.
    """
    top = s.topk(2, dim=1).values
    temperature = float((top[:, 0] - top[:, 1]).mean())
    if not 0 < temperature < float("inf"):
        return b
    wide = torch.where(q > 0, q, 0.5 / len(s)) / torch.where(q > 0, q, 0.5 / len(s)).sum()  # no shift at infinity

    def energy(b: Tensor, t: float) -> float:
        return float(t * (m @ torch.logsumexp((s + b) / t, 1)) - wide @ b)

    for _ in range(TEMPERATURES):
        value = energy(b, temperature)
        for _ in range(NEWTON_STEPS):
            p = torch.softmax((s + b) / temperature, 1)
            mean = m @ p
            slope = mean - wide
            if float(slope.abs().sum()) * len(s) < 0.5:
                break
            # The curvature is that of a graph Laplacian of the classes; constants, its kernel, are given weight one.
            curvature = (torch.diag(mean) - p.T @ (m[:, None] * p)) / temperature
            ridge = 1e-6 * curvature.diagonal().max().clamp(min=1e-300)
            step = torch.linalg.solve(curvature + ridge * torch.eye(len(b), dtype=b.dtype, device=b.device), -slope)
            step = step * min(1.0, 20 * temperature / max(float(step.abs().max()), 1e-300))
            length, gain = 1.0, float(slope @ step)
            while energy(b + length * step, temperature) > value + 0.1 * length * gain and length > 1e-3:
                length /= 2
            b = b + length * step
            value = energy(b, temperature)
        temperature /= 2
    return b


def _settle(s: Tensor, mass: Tensor | None, target: Tensor, b: Tensor) -> Tensor:
    """Class by class: the shift that gives the class its number of nodes, the other shifts being as they are."""
    classes = s.shape[1]
    best, least, patience = b, float("inf"), 2 * classes
    for _ in range(20 * classes):
        count = _count((s + b).argmax(1), classes, mass)
        error = float((count - target).abs().sum())
        if error < least:
            best, least, patience = b, error, 2 * classes
        patience -= 1
        if error == 0 or patience == 0:
            break
        c = int(torch.where(torch.isfinite(b), (count - target).abs(), -1).argmax())
        others = (s + b).index_fill(1, torch.tensor([c], device=s.device), -torch.inf).amax(1)
        needed, order = torch.sort(others - s[:, c])  # the class wins where its shift is larger than this
        k = int(target[c]) if mass is None else _nearest_sum(mass[order], float(target[c]))
        low = needed[k - 1] if k > 0 else needed[0] - 1
        high = needed[k] if k < len(needed) else needed[-1] + 1
        middle = (low + high) / 2
        if not bool(torch.isfinite(middle)):
            middle = low + 1 if bool(torch.isfinite(low)) else high - 1
        if not bool(torch.isfinite(middle)):
            break
        b = b.clone()
        b[c] = middle
    return best


def _nearest_sum(mass: Tensor, target: float) -> int:
    """How many of the first masses add up to about `target`."""
    total = torch.cat([mass.new_zeros(1), mass.cumsum(0)])
    return int((total - target).abs().argmin())
