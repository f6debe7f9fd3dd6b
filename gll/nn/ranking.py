"""The k nearest nodes in a dense matrix of distances, and whether they are so for certain.

Distances come from products, so two that differ by less than their rounding may be in the wrong order: then there is
doubt, and somebody else has to look at true differences. Copies of a point are the exception. They are equally far
from everything, and of them the one with the smaller number is nearer, here as in `neighbors.py`. Copies are common:
ReLU and dropout turn different images into equal features.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from gll.selection import smallest

LOW = 2**12 - 1  # the last bits of a distance give way to the number of a node, so that no two keys are equal


def rounding(square: Float[Tensor, " n"], dimensions: int) -> Tensor:
    """A bound on the rounding of |x|² + |y|² - 2 x·y in double precision."""
    return 4 * torch.finfo(torch.float64).eps * dimensions**0.5 * square.amax()


def nearest(
    raw: Float[Tensor, "n p"], distance: Float[Tensor, "n n"], noise: Tensor, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Distances (n, k) of the k nearest other nodes, in order, their numbers, and the doubt, which is zero for none.

    Args:
        raw: the points, in single precision: equal rows are copies.
        distance: squared distances, with a bound `noise` on their rounding. The diagonal is overwritten and restored.
        k: how many.

    Differentiable in: nothing.
    """
    diagonal = distance.diagonal()
    if not distance.is_cuda:  # it can be looked at here, and copies are the exception
        diagonal.fill_(torch.inf)
        value, index = smallest(distance, k + 1)
        diagonal.zero_()
        if bool(value[:, max(k - 2, 0) :].diff(dim=1).amin() > 2 * noise):
            return value[:, :k], index[:, :k], torch.zeros_like(noise)
    diagonal.zero_()
    return _with_copies(raw, distance, noise, k)


def _with_copies(raw: Tensor, distance: Tensor, noise: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    number = torch.arange(len(raw), device=raw.device)
    # Equal rows by a sum over their bits, which does not depend on the order of summation; then compared in full.
    bits = (raw + 0.0).view(torch.int32).long()  # -0.0 becomes 0.0
    odd = (2 * torch.arange(raw.shape[1], device=raw.device) + 1) * 0x1E3779B97F4A7C15
    mark = ((bits ^ (bits >> 13)) * odd).sum(1)
    equal = mark[:, None] == mark
    copies, first = equal.sum(1), torch.where(equal, number, len(raw)).amin(1)
    wrong = (raw.index_select(0, first) != raw).any()
    # Copies get the same distance to the last bit. Positive numbers are ordered as their bits are.
    d = distance.index_select(1, first).clamp_(min=0)
    key = (d.view(torch.int64) & ~LOW | number).view(torch.float64)
    key.diagonal().fill_(torch.inf)
    index = key.topk(k, largest=False).indices
    value = d.gather(1, index)
    # Within rounding of the k-th distance there may be nobody but the copies of the k-th node.
    last = value[:, k - 1 :]
    close = (d - last).abs_() <= last * 2**-39 + 2 * noise
    crowd = (close.sum(1) - copies[index[:, k - 1]]).abs().amax()
    return value, index, (crowd + wrong).to(noise.dtype)
