"""Newton's method for nonlinear equations: linearise, solve, move, with a line search per column.

All equations here are the stationarity of an energy, so along a Newton direction d the quantity

    s(t) = <R(u + t d), d>

is the slope of that energy. It is negative at t = 0; a step is accepted once the slope is no longer steeply uphill,
which needs residuals only, no energy. Columns are independent problems and take steps of their own length.
Where the operator is not positive definite (Ginzburg-Landau away from its wells) a multiple of its diagonal is added
until it is.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor

from gll.operators import Operator
from gll.solution import RESULT
from gll.solvers.auto import Auto
from gll.solvers.base import AbstractLinearSolver, LinearSolution

if TYPE_CHECKING:
    from gll.problem import Problem


@final
@dataclass(frozen=True)
class Newton:
    """Newton's method with line search.

    Args:
        linear: the solver for each linearised equation.
        rtol: a column is solved when a full Newton step is smaller than `rtol` times its largest value.
        max_steps: Newton steps, for each of the equations of a continuation.
    """

    linear: AbstractLinearSolver = field(default_factory=Auto)
    rtol: float = 1e-10
    max_steps: int = 100

    def run(self, problem: Problem, u: Tensor) -> tuple[Tensor, RESULT, int]:
        """The solution of `problem` (values on the free nodes) from the start u, the verdict, the linear steps."""
        steps, shift, best = 0, 0.0, float("inf")
        stalled = 0
        for _ in range(self.max_steps):
            residual = problem.residual(u)
            operator = problem.operator(u)
            linear, shift = self._direction(operator, -residual, shift)
            steps += linear.steps
            # A direction is good enough if it points downhill; a poor linear solve only costs more Newton steps.
            if linear.result in (RESULT.BREAKDOWN, RESULT.NONFINITE_OUTPUT):
                return u, linear.result, steps
            length = self._line_search(problem, operator, u, linear.value, residual)
            u = u + length * linear.value
            size = float((linear.value.abs().amax(0) / u.abs().amax(0).clamp(min=1e-300)).nan_to_num(0).max())
            if shift == 0 and size <= self.rtol and bool((length == 1).all()):
                return u, RESULT.SUCCESSFUL, steps
            # At the limit of rounding steps stop shrinking: accept if that limit is low enough to be rounding.
            stalled = stalled + 1 if size > best / 2 else 0
            best = min(best, size)
            if stalled >= 8 and shift == 0 and best <= 1e3 * self.rtol:
                return u, RESULT.SUCCESSFUL, steps
        return u, RESULT.MAX_STEPS, steps

    def _direction(self, operator: Operator, rhs: Tensor, shift: float) -> tuple[LinearSolution, float]:
        """A Newton direction and the shift it took; the shift of the last step is tried at a tenth."""
        shift = 0.0 if shift < 1e-3 else shift / 10
        while True:
            shifted = operator if shift == 0 else _shifted(operator, shift)
            state: Any = self.linear.init(shifted)
            if not isinstance(state, RESULT):
                solution = self.linear.run(shifted, state, rhs)
                if solution.result not in (RESULT.BREAKDOWN, RESULT.NONFINITE_OUTPUT):
                    return solution, shift
            if shift > 1e3:
                zero = torch.zeros_like(rhs)
                return LinearSolution(
                    zero, RESULT.BREAKDOWN, 0, zero[0], float("nan"), zero[:, 0], 0, self.linear.rtol
                ), shift
            shift = max(10 * shift, 1e-2)

    @staticmethod
    def _line_search(problem: Problem, operator: Operator, u: Tensor, d: Tensor, residual: Tensor) -> Tensor:
        """Step lengths (C,) such that the energy's slope along d has not turned steeply upwards."""
        start = operator.dot(residual, d)
        length = torch.ones_like(start)
        for _ in range(40):
            slope = operator.dot(problem.residual(u + length * d), d)
            ok = slope <= 0.5 * start.abs()
            if bool(ok.all()):
                break
            # Where the slope has grown to s > 0, it was zero at about t |s0| / (|s0| + s) if it grew linearly.
            guess = length * (start.abs() / (start.abs() + slope.abs())).nan_to_num(0.1).clamp(0.1, 0.7)
            length = torch.where(ok, length, guess)
        return length


def _shifted(operator: Operator, shift: float) -> Operator:
    diagonal = shift * (operator.degree.abs().amax() + operator.excess.abs().amax()).clamp(min=1e-300)
    if operator.coupled:
        extra = diagonal * torch.eye(
            operator.excess.shape[1], dtype=operator.excess.dtype, device=operator.excess.device
        )
        return dataclasses.replace(operator, excess=operator.excess + extra)
    return dataclasses.replace(operator, excess=operator.excess + diagonal)
