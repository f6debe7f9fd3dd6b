"""The operator as solvers see it: D^-1/2 A D^-1/2, with ones on the diagonal, as a function and as a matrix."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gll.operators import Operator, component_mean
from gll.sums import short_indices


class Scaled:
    """v -> D^-1/2 A D^-1/2 v, for iterations whose residuals are checked by `Operator.matvec`.

    One sparse product where a matrix serves all columns, differences otherwise.
    """

    def __init__(self, operator: Operator, dtype: torch.dtype) -> None:
        self.operator, self.dtype, s, t = operator, dtype, operator.scale, operator.topology
        if operator.shared:
            root = s[:, 0].contiguous()
            entry = operator.weight * root.index_select(0, t.i) * root.index_select(0, t.j)
            self.matrix = short_indices(t.matrix(entry.to(dtype)))
            self.ones = bool((operator.diagonal > 0).all())  # on the diagonal
            self.diagonal = (operator.diagonal[:, None] * s**2).to(dtype)

    def __call__(self, v: Tensor) -> Tensor:
        if self.operator.shared and self.ones:
            return torch.addmm(v, self.matrix, v, alpha=-1)
        if self.operator.shared:
            return torch.addcmul(-(self.matrix @ v), self.diagonal, v)
        s = self.operator.scale
        return s * self.operator.matvec(s * v)


def plain_product(operator: Operator) -> tuple[Callable[[Tensor], Tensor], float]:
    """v -> A v as diagonal less matrix, not by differences; and how far rounding puts it off, in units of A_xx max|v|.

    A row of L entries sums L + 1 terms that are together at most 2 A_xx max|v|, each rounded at most L + 2 times.
    """
    t, diagonal = operator.topology, operator.diagonal[:, None]
    matrix = short_indices(t.matrix(operator.weight))
    longest = int(torch.diff(t.csr[0]).max())
    rounding = 2 * (longest + 2) * torch.finfo(operator.weight.dtype).eps
    return lambda v: torch.addmm(diagonal * v, matrix, v, alpha=-1), rounding


def scaled_dense(operator: Operator) -> Tensor:
    """D^-1/2 A D^-1/2 as (m, m); (C, m, m) if columns differ; (mC, mC) if they are coupled.

    Where constants are projected out, they are given eigenvalue one instead.
    """
    t, m, s = operator.topology, operator.size, operator.scale
    if operator.shared:
        matrix = s.new_zeros(m, m)
        matrix.diagonal().copy_(operator.diagonal * s[:, 0] ** 2)
        entry = -operator.weight * s[t.i, 0] * s[t.j, 0]
        matrix.index_put_((t.i, t.j), entry)
        matrix.index_put_((t.j, t.i), entry)
        if operator.components is not None:
            null = 1 / s[:, 0]
            norm = component_mean((null**2)[:, None], operator.components)[:, 0]
            count = torch.bincount(operator.components)[operator.components]
            same = operator.components[:, None] == operator.components
            matrix += same * (null[:, None] * null) / (norm * count)
        return matrix
    classes = s.shape[1] if s.shape[1] > 1 else max(operator.weight.shape[-1] if operator.weight.dim() == 2 else 1, 1)
    weight = (operator.weight if operator.weight.dim() == 2 else operator.weight[:, None]).expand(-1, classes)
    s = s.expand(-1, classes)
    entry = (-weight * s[t.i] * s[t.j]).T
    matrix = s.new_zeros(classes, m, m)
    matrix[:, t.i, t.j] = entry
    matrix[:, t.j, t.i] = entry
    matrix.diagonal(dim1=1, dim2=2).copy_((operator.diagonal * s**2).T)
    if not operator.coupled:
        return matrix
    full = s.new_zeros(m, classes, m, classes)
    full.diagonal(dim1=1, dim2=3).copy_(matrix.permute(1, 2, 0))
    node = torch.arange(m, device=s.device)
    off = operator.excess * s[:, :, None] * s[:, None, :]
    full[node, :, node, :] += off - torch.diag_embed(off.diagonal(dim1=1, dim2=2))
    return full.view(m * classes, m * classes)
