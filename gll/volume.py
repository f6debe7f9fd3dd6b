"""Class shares: shifts of the scores such that the predicted classes have the shares that are wanted.

Given scores s (n, C) and shares q, find shifts b (C,) such that the share of nodes with argmax_c s_c + b_c = c is q_c.
This is the dual of an assignment problem, with b as the (negative) prices of the classes:

    minimise  F(b) = Σ_i max_c (s_ic + b_c) - n <q, b>,            convex, with slope  (counts - n q).

F is piecewise linear, so it is smoothed first: max becomes T · logsumexp(·/T), whose minimum is found by the fixed point
b ← b + T (log q - log mean softmax((s + b)/T)), Sinkhorn's iteration, while T falls. What rounding of shares to whole
nodes leaves is settled class by class, exactly, with an order statistic. Everything is deterministic and ends.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def log_shifts(probability: Float[Tensor, "n c"], share: Float[Tensor, " c"]) -> Float[Tensor, " c"]:
    """Shifts for the logarithms of probabilities; a probability of zero stays zero whatever the shift."""
    return shifts(probability.double().log(), share)


def shifts(
    score: Float[Tensor, "n c"],
    share: Float[Tensor, " c"],
    *,
    start: Float[Tensor, " c"] | None = None,
    cooling: int = 12,
    rounds: int = 12,
) -> Float[Tensor, " c"]:
    """Shifts b (C,), of mean zero, such that the shares of argmax(score + b) are as near to `share` as we can make them.

    Args:
        score: (n, C) finite, or -inf where a class is impossible.
        share: (C,) the wanted shares, ≥ 0, summing to one.
        start: where to start, from a similar problem.
        cooling: temperatures, each half of the one before, from the spread of the scores down.
        rounds: steps of the fixed point at each temperature.

    Differentiable in: nothing.

    >>> score = torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]])
    >>> (score + shifts(score, torch.tensor([0.5, 0.5]))).argmax(1).tolist()
    [0, 0, 1, 1]
    """
    s, q = score.detach().double(), share.double()
    n, classes = s.shape
    if n == 0 or classes == 1:
        return q.new_zeros(classes)
    finite = torch.where(torch.isfinite(s), s, torch.nan)
    middle = torch.nan_to_num(finite.nanmean(1, keepdim=True))
    s = s - middle  # a common shift of a row changes nothing, and differences are what is compared
    wanted = q > 0
    top = s.masked_fill(~wanted, -torch.inf).topk(min(2, classes), dim=1).values
    gap = (top[:, 0] - top[:, -1]).nan_to_num(0, posinf=0)
    b = q.new_zeros(classes) if start is None else start.double().clone()
    b = torch.where(wanted, b, -torch.inf)
    part = s[:: max(1, n // SAMPLE)]
    part = part[(torch.isfinite(part) & wanted).any(1)]
    temperature = float(gap[gap > 0].quantile(0.9)) if bool((gap > 0).any()) and n <= 2**24 else float(gap.max())
    for _ in range(cooling if temperature > 0 and len(part) and int(wanted.sum()) > 1 else 0):
        for _ in range(rounds):
            mean = torch.softmax((part + b) / temperature, 1).mean(0)
            step = temperature * (q.log() - mean.clamp(min=1e-12).log())
            b = torch.where(wanted, b + step, -torch.inf)
        temperature /= 2
    b = torch.where(wanted, b, -torch.inf)
    b = _settle(s, _whole(q, n), b)
    return _centred(b, s)


SAMPLE = 20_000  # rows that the smoothed problem looks at; the last corrections look at all


def _whole(share: Tensor, n: int) -> Tensor:
    """Whole numbers of nodes that sum to n, by largest remainders."""
    exact = share * n
    count = exact.floor()
    missing = n - int(count.sum())
    order = torch.argsort(count - exact, stable=True)
    count[order[:missing]] += 1
    return count.long()


def _settle(s: Tensor, target: Tensor, b: Tensor) -> Tensor:
    """Class by class: the shift that gives the class its number of nodes, the other shifts being as they are."""
    classes = s.shape[1]
    best, least = b, None
    for _ in range(4 * classes):
        count = torch.bincount((s + b).argmax(1), minlength=classes)
        error = int((count - target).abs().sum())
        if least is None or error < least:
            best, least = b, error
        if error == 0:
            break
        c = int(torch.where(torch.isfinite(b), (count - target).abs(), -1).argmax())
        others = (s + b).index_fill(1, torch.tensor([c], device=s.device), -torch.inf).amax(1)
        needed = torch.sort(others - s[:, c]).values  # the class wins where its shift is larger than this
        k = int(target[c])
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


def _centred(b: Tensor, s: Tensor) -> Tensor:
    """Finite shifts of mean zero: a class that is not wanted goes below all that any score could make up for."""
    finite = torch.isfinite(b)
    if not bool(finite.any()):
        return torch.zeros_like(b)
    values = s[torch.isfinite(s)]
    spread = float(values.max() - values.min()) if len(values) else 0.0
    b = torch.where(finite, b, b[finite].min() - 2 * spread - 1)
    return b - b.mean()
