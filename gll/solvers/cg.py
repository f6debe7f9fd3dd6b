"""Conjugate gradients for all columns at once.

The operator is scaled to a unit diagonal, so Jacobi's preconditioner is built in; others (`amg.py`) can be plugged in.
Each column stops when no node asks for a correction |r_i|/A_ii larger than rtol max|x|, where r is updated recursively;
`AbstractLinearSolver.run` then checks the true residual and restarts from it if rounding has parted the two. Large
systems are bound by memory: there it pays to iterate in float32, four digits at a time, on residuals in float64.

Read next: `implicit.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from gll.numbering import Numbering
from gll.operators import Operator
from gll.solution import RESULT
from gll.solvers.base import AbstractLinearSolver, Goal
from gll.solvers.precondition import AbstractPreconditioner
from gll.solvers.scaled import Scaled
from gll.sums import column_max

DIGITS = 1e-4  # what an iteration in float32 is asked for: well above its rounding
PATIENCE = 200  # steps in which it has to get there


@dataclass(eq=False)
class _Prepared:
    operator: Operator
    apply: Scaled
    precondition: Callable[[Tensor], Tensor] | None


@final
@dataclass(frozen=True)
class ConjugateGradient(AbstractLinearSolver):
    """Jacobi-preconditioned conjugate gradients. Memory proportional to the edges.

    Args:
        rtol: see `AbstractLinearSolver`.
        max_steps: iterations of one solve before it gives up.
        preconditioner: in place of Jacobi's; see `gll.solvers.AMG`.
        check_every: iterations between looks at the residual; a look makes a GPU wait.
        single: iterate in float32, four digits at a time, or in float64 where that gets nowhere. The solution is as
            good; large systems take half the time.
    """

    rtol: float = 1e-10
    max_steps: int = 2000
    preconditioner: AbstractPreconditioner | None = None
    check_every: int = 5
    single: bool = False

    def numbering(self) -> Numbering | None:
        return None if self.preconditioner is None else self.preconditioner.numbering()

    def init(self, operator: Operator) -> _Prepared:
        ready = None if self.preconditioner is None else self.preconditioner.prepare(operator)
        dtype = torch.float32 if self.single and operator.shared else operator.weight.dtype
        return _Prepared(operator, Scaled(operator, dtype), ready)

    def compute(self, state: Any, rhs: Float[Tensor, "m c"], goal: Goal) -> tuple[Tensor, RESULT, int]:
        if state.apply.dtype == rhs.dtype:
            return self._iterate(state, rhs, goal, self.max_steps)
        x, result, steps = self._iterate(state, rhs, goal, min(self.max_steps, PATIENCE))
        if result is RESULT.SUCCESSFUL or not self.sharpen(state):
            return x, result, steps
        x, result, more = self._iterate(state, rhs, goal, self.max_steps)
        return x, result, steps + more

    def sharpen(self, state: Any) -> bool:
        wide = state.operator.weight.dtype
        coarse = state.apply.dtype != wide
        if coarse:
            state.apply = Scaled(state.operator, wide)
        return coarse

    def _iterate(
        self, state: _Prepared, rhs: Float[Tensor, "m c"], goal: Goal, max_steps: int
    ) -> tuple[Tensor, RESULT, int]:
        operator, apply, precondition = state.operator, state.apply, state.precondition
        dot, scale = operator.dot, operator.scale.to(apply.dtype)
        # In single precision: columns of size one, and four digits, whatever the goal; the rest is for the next round.
        single = apply.dtype != rhs.dtype
        unit = column_max((rhs * operator.scale).abs()).clamp(min=1e-300) if single else rhs.new_ones(())
        digits = DIGITS if single else 0.0
        goal = Goal(goal.rtol.to(scale), (goal.atol / unit).to(scale), (goal.size / unit).to(scale))
        r = (rhs * operator.scale / unit).to(apply.dtype)
        x = torch.zeros_like(r)
        z = r if precondition is None else precondition(r)
        p = z.clone()
        rz = dot(r, z)
        indefinite = torch.zeros_like(rz, dtype=torch.bool)
        rounding, singular, step = 1e2 * torch.finfo(r.dtype).eps, operator.components is not None, 0
        while step < max_steps:
            q = apply(p)
            curvature = dot(p, q)
            # Rounding can make the curvature of a nearly flat direction negative; only more than that counts.
            if singular or p.is_cuda or bool((curvature < 0).any()):  # otherwise a CPU has nothing to compare
                flat = rounding * dot(p, p)
                indefinite |= curvature < -flat
            # No step in a finished column (0/0), nor, where constants are projected out, along what is left of them.
            alpha = torch.where(curvature > (flat if singular else 0), rz / curvature, 0)
            x.addcmul_(p, alpha)
            r.addcmul_(q, alpha, value=-1)
            z = r if precondition is None else precondition(r)
            rz, last = dot(r, z), rz
            p.mul_(torch.where(last != 0, rz / last, 0)).add_(z)
            step += 1
            if step % self.check_every and step < max_steps:
                continue
            # |r_i| / A_ii and |x_i| in the original variables; half the tolerance is left for the parting of this
            # residual, which is updated recursively, from the true one.
            ask = (r * scale).abs_()
            ask = column_max(ask)[None] if operator.groups is None else ask
            active = column_max(ask - goal.allowed(operator, x * scale, digits) / 2) > 0
            active = active.any().expand_as(active) if operator.coupled else active
            verdicts = [indefinite.any(), active.any(), torch.isfinite(ask).all(), active.all()]
            broken, unfinished, finite, none_solved = torch.stack(verdicts).tolist()
            if broken or not unfinished or not finite:
                verdict = RESULT.SUCCESSFUL if finite else RESULT.NONFINITE_OUTPUT
                return self._finish(x, operator, unit), RESULT.BREAKDOWN if broken else verdict, step
            # A column that is solved stops changing: it would go on to divide rounding by rounding.
            if not none_solved:
                p, rz = torch.where(active, p, 0), torch.where(active, rz, 0)
        return self._finish(x, operator, unit), RESULT.MAX_STEPS, step

    @staticmethod
    def _finish(x: Tensor, operator: Operator, unit: Tensor) -> Tensor:
        return x.to(operator.scale.dtype) * operator.scale * unit
