"""Conjugate gradients for all columns at once.

The operator is scaled to a unit diagonal, so Jacobi's preconditioner is built in; a stronger one (`amg.py`) can be
plugged in. Each column stops by itself, when no node asks for a correction |r_i|/A_ii larger than rtol max|x|, where r
is the recursively updated residual. `AbstractLinearSolver.run` then checks the true residual and restarts from it if
rounding has parted the two.

Read next: `implicit.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from gll.operators import Operator, Scaled
from gll.solution import RESULT
from gll.solvers.base import AbstractLinearSolver, Goal


class AbstractPreconditioner(ABC):
    """Makes an approximate inverse of the scaled operator."""

    @abstractmethod
    def prepare(self, operator: Operator) -> Callable[[Tensor], Tensor]:
        """A function that maps a scaled residual (m, C) to an approximate scaled correction."""


@final
@dataclass(frozen=True)
class ConjugateGradient(AbstractLinearSolver):
    """Jacobi-preconditioned conjugate gradients. Memory proportional to the edges.

    Args:
        rtol: see `AbstractLinearSolver`.
        max_steps: iterations of one solve before it gives up.
        preconditioner: in place of Jacobi's; see `gll.solvers.AMG`.
        check_every: iterations between looks at the residual; a look makes a GPU wait.
    """

    rtol: float = 1e-10
    max_steps: int = 2000
    preconditioner: AbstractPreconditioner | None = None
    check_every: int = 5

    def init(self, operator: Operator) -> tuple[Operator, Scaled, Callable[[Tensor], Tensor] | None]:
        ready = None if self.preconditioner is None else self.preconditioner.prepare(operator)
        return operator, operator.scaled_matvec(), ready

    def compute(self, state: Any, rhs: Float[Tensor, "m c"], goal: Goal) -> tuple[Tensor, RESULT, int]:
        operator, apply, precondition = state
        dot, scale = operator.dot, operator.scale
        r = rhs * scale
        x = torch.zeros_like(r)
        z = r if precondition is None else precondition(r)
        p = z.clone()
        rz = dot(r, z)
        indefinite = torch.zeros_like(rz, dtype=torch.bool)
        rounding = 1e2 * torch.finfo(r.dtype).eps
        step = 0
        while step < self.max_steps:
            q = apply(p)
            curvature = dot(p, q)
            # Rounding can make the curvature of a nearly flat direction negative; only more than that counts.
            indefinite |= curvature < -rounding * dot(p, p)
            alpha = torch.where(curvature != 0, rz / curvature, 0)  # 0/0 in a finished column, where p = 0
            x = torch.addcmul(x, p, alpha)
            r = torch.addcmul(r, q, alpha, value=-1)
            z = r if precondition is None else precondition(r)
            rz, last = dot(r, z), rz
            p = torch.addcmul(z, p, torch.where(last != 0, rz / last, 0))
            step += 1
            if step % self.check_every and step < self.max_steps:
                continue
            # |r_i| / A_ii and |x_i| in the original variables; half the tolerance is left for the parting of this
            # residual, which is updated recursively, from the true one.
            ask = (r * scale).abs()
            active = (ask > goal.allowed(operator, x * scale) / 2).any(0)
            if operator.coupled:
                active = active.any().expand_as(active)
            broken, unfinished, finite = torch.stack(
                [indefinite.any(), active.any(), torch.isfinite(ask).all()]
            ).tolist()
            if broken or not unfinished or not finite:
                verdict = RESULT.SUCCESSFUL if finite else RESULT.NONFINITE_OUTPUT
                return x * scale, RESULT.BREAKDOWN if broken else verdict, step
            # A column that is solved stops changing: it would go on to divide rounding by rounding.
            p, rz = torch.where(active, p, 0), torch.where(active, rz, 0)
        return x * scale, RESULT.MAX_STEPS, step
