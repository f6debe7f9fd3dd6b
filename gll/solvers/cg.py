"""Conjugate gradients for all columns at once.

The operator is scaled to a unit diagonal, so Jacobi's preconditioner is built in; a stronger one (`amg.py`) can be
plugged in. Each column stops by itself:  |r|₂ ≤ rtol |b|₂  for the scaled, recursively updated residual r.
`AbstractLinearSolver.run` then checks the true residual and restarts from it if rounding has parted the two.

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
from gll.solvers.base import AbstractLinearSolver


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

    def is_direct(self, state: Any) -> bool:
        return False

    def compute(self, state: Any, rhs: Float[Tensor, "m c"]) -> tuple[Tensor, RESULT, int]:
        operator, apply, precondition = state
        dot = operator.dot
        r = rhs * operator.scale
        x = torch.zeros_like(r)
        z = r if precondition is None else precondition(r)
        p = z.clone()
        rz = dot(r, z)
        # Half the tolerance goes to this residual, measured in another norm than the one that is promised.
        goal = (self.rtol / 2) ** 2 * dot(r, r)
        indefinite = torch.zeros_like(goal, dtype=torch.bool)
        rounding = 1e2 * torch.finfo(r.dtype).eps
        step = 0
        while step < self.max_steps:
            q = apply(p)
            curvature = dot(p, q)
            # Rounding can make the curvature of a nearly flat direction negative; only more than that counts.
            indefinite |= curvature < -rounding * dot(p, p)
            # A finished column has p = 0 or nearly so: its step length is 0/0, and is set to 0.
            alpha = torch.where(curvature != 0, rz / curvature, 0)
            x = torch.addcmul(x, p, alpha)
            r = torch.addcmul(r, q, alpha, value=-1)
            rr = dot(r, r)
            step += 1
            if step % self.check_every == 0 or step == self.max_steps:
                if bool(indefinite.any()):
                    return x * operator.scale, RESULT.BREAKDOWN, step
                active = rr > goal
                if not bool(active.any()):
                    return x * operator.scale, RESULT.SUCCESSFUL, step
                if not bool(torch.isfinite(rr).all()):
                    return x * operator.scale, RESULT.NONFINITE_OUTPUT, step
            z = r if precondition is None else precondition(r)
            rz_new = rr if precondition is None else dot(r, z)
            # Columns that have converged stop changing: without this, they would go on to divide rounding by rounding.
            beta = torch.where((rz > 0) & (rr > goal), rz_new / rz, 0)
            p = torch.addcmul(z, p, beta)
            rz = torch.where(rr > goal, rz_new, 0)
            p = torch.where(rr > goal, p, 0)
        return x * operator.scale, RESULT.MAX_STEPS, step
