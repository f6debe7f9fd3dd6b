"""Dense Cholesky factorisation, kept for the adjoint.

A kNN graph fills in when it is factorised, so a sparse factorisation gains nothing below some thousand nodes.
Read next: `cg.py`, for graphs larger than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from gll.operators import Operator
from gll.solution import RESULT
from gll.solvers.base import AbstractLinearSolver, Goal
from gll.solvers.scaled import scaled_dense
from gll.solvers.triangular import invert_lower, solve_factored


@dataclass(frozen=True, eq=False)
class Factor:
    """L with L Lᵀ = D^-1/2 A D^-1/2 (or its inverse), and the operator it belongs to."""

    operator: Operator
    lower: Tensor
    inverted: bool


@final
@dataclass(frozen=True)
class Cholesky(AbstractLinearSolver):
    """Factorise once, solve forward and adjoint with the same factor. Memory m² numbers.

    Args:
        rtol: see `AbstractLinearSolver`.
    """

    rtol: float = 1e-10

    def init(self, operator: Operator) -> Factor | RESULT:
        matrix = scaled_dense(operator)
        lower, info = torch.linalg.cholesky_ex(matrix)
        if bool((info > 0).any()):
            # Singular to rounding, or indefinite? A shift the size of rounding tells. It makes the factor inexact; that
            # is repaired by correcting with true residuals where possible, and the known answer reveals where not.
            matrix = scaled_dense(operator)
            matrix.diagonal(dim1=-2, dim2=-1).add_(64 * torch.finfo(matrix.dtype).eps * matrix.shape[-1] ** 0.5)
            lower, info = torch.linalg.cholesky_ex(matrix)
            if bool((info > 0).any()):
                return RESULT.BREAKDOWN
        return Factor(operator, invert_lower(lower) if lower.is_cuda else lower, inverted=lower.is_cuda)

    def is_direct(self, state: Any) -> bool:
        return True

    def compute(self, state: Any, rhs: Float[Tensor, "m c"], goal: Goal) -> tuple[Tensor, RESULT, int]:
        operator, scale = state.operator, state.operator.scale
        b = rhs * scale
        if operator.coupled:
            b = b.reshape(-1, 1)
        elif not operator.shared:
            b = b.T[:, :, None]
        x = solve_factored(state.lower, b, inverted=state.inverted)
        if operator.coupled:
            x = x.view_as(rhs)
        elif not operator.shared:
            x = x[:, :, 0].T
        return x * scale, RESULT.SUCCESSFUL, 1
