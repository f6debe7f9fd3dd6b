"""Algebraic multigrid as a preconditioner (extra `amg`: pyamg), on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gll.operators import Operator
from gll.solvers.precondition import AbstractPreconditioner


@final
@dataclass(frozen=True)
class AMG(AbstractPreconditioner):
    """One smoothed-aggregation V-cycle per step. Worth it where Jacobi needs hundreds of steps, as on meshes or chains.

    >>> from gll.solvers import ConjugateGradient
    >>> solver = ConjugateGradient(preconditioner=AMG())
    """

    def prepare(self, operator: Operator) -> Callable[[Tensor], Tensor]:
        try:
            import pyamg
        except ImportError as error:
            raise ImportError("the AMG preconditioner needs the extra 'amg': pip install 'gll[amg]'") from error
        if not operator.shared or operator.components is not None:
            raise ValueError(
                "the AMG preconditioner serves linear equations that are not singular: Laplace and SoftLaplace"
            )
        t, s = operator.topology, operator.scale[:, 0].cpu().double().numpy()
        pointers, col, edge = (a.cpu().numpy() for a in t.csr)
        weight = operator.weight.cpu().double().numpy()[edge]
        shape = (operator.size, operator.size)
        off = scipy.sparse.csr_matrix((weight, col, pointers), shape=shape)
        diagonal = scipy.sparse.diags(operator.diagonal.cpu().double().numpy())
        scaled = scipy.sparse.csr_matrix(scipy.sparse.diags(s) @ (diagonal - off) @ scipy.sparse.diags(s))
        # The near null space of the scaled operator is D^1/2 times a constant.
        levels = pyamg.smoothed_aggregation_solver(scaled, B=(1 / s)[:, None], symmetry="symmetric")
        cycle = levels.aspreconditioner(cycle="V")

        def apply(residual: Tensor) -> Tensor:
            columns = residual.cpu().double().numpy()
            out = np.stack([cycle @ column for column in columns.T], 1)
            return torch.from_numpy(out).to(residual)

        return apply
