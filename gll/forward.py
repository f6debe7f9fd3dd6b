"""The forward solve on the free nodes: linear, or Newton through a homotopy; then the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gll.equations import Laplace
from gll.operators import Operator
from gll.problem import Problem
from gll.solution import RESULT, SolveError
from gll.solvers.base import AbstractLinearSolver, LinearSolution
from gll.solvers.judge import solve_judged
from gll.solvers.newton import Newton

ERROR_TOLERANCE = 1e-6  # estimated error (or ten times the solver's rtol) from which on a node counts as unresolved


@dataclass(eq=False)
class Outcome:
    """The solution on the free nodes, with what is needed for its derivative and its report."""

    value: Tensor
    result: RESULT
    steps: int
    residual: Tensor
    error: float
    unresolved: Tensor | None
    adjoint: Callable[[Tensor], Tensor]
    method: str
    detail: str = ""

    @classmethod
    def find(cls, problem: Problem, newton: Newton, initial: Tensor | None) -> Outcome:
        """Solve on the free nodes and judge the result."""
        linear, steps, m = newton.linear, 0, len(problem.free)
        u = torch.zeros(m, problem.classes, dtype=problem.inputs.weight.dtype, device=problem.free.device)
        if m == 0:
            return cls(
                u, RESULT.SUCCESSFUL, 0, u.new_zeros(problem.classes), 0.0, None, lambda t: t, "nothing to solve"
            )
        equation = problem.inputs.equation
        residual = None
        if initial is not None:
            start = initial.index_select(0, problem.free)
            u, residual = (start, None) if not equation.linear else _better_start(problem, u, start)
        method = linear.describe(m, problem.classes, u.device)
        bad = cls(u, RESULT.BREAKDOWN, 0, u[0], float("nan"), None, lambda t: t, method)
        if not equation.linear:
            equations = [equation] if initial is not None else equation.homotopy()
            if initial is None and problem.inputs.labels is not None and equation.labels_are_boundary:
                harmonic = cls.find(problem.with_equation(Laplace()), newton, None)
                if harmonic.result is RESULT.SUCCESSFUL:
                    value = problem.inputs.labels.value
                    u = harmonic.value.clamp(float(value.min()), float(value.max()))
            for stage in equations:
                u, result, more = newton.run(problem.with_equation(stage), u)
                steps += more
                if result is not RESULT.SUCCESSFUL:
                    break
            if result is not RESULT.SUCCESSFUL:
                return dataclasses.replace(bad, result=result, detail=f"after {steps} linear steps of Newton's method")
        operator = problem.operator(u)
        state = linear.init(operator)
        if isinstance(state, RESULT):
            return dataclasses.replace(bad, result=state)

        warm = initial is not None and equation.linear
        if warm and linear.is_direct(state):  # a factor needs no start, and the residual of one is rounded
            u, residual, warm = torch.zeros_like(u), None, False
        residual = problem.residual(u) if residual is None else residual
        found = solve_judged(linear, operator, state, -residual, start=u)
        if warm and linear.is_direct(state):  # nor does one that came in on the way
            u = torch.zeros_like(u)
            found = solve_judged(linear, operator, state, -problem.residual(u), start=u)
        if not bool(torch.isfinite(found.value).all()):
            return dataclasses.replace(bad, result=RESULT.NONFINITE_OUTPUT)
        # A loose rtol loosens what is a bound; where there is only an estimate (constants projected out), it does not.
        loose = 10 * linear.rtol if operator.components is None else 0.0
        tolerance = max(ERROR_TOLERANCE, loose)
        off = float(found.error.max()) if found.sound else float("inf")
        lost = not off <= tolerance
        unresolved = ~(found.error <= tolerance) if lost else None
        # Without a bound on the error, the nodes that look worst are set aside; what is left is then judged anew.
        aside = not found.sound and found.worst <= linear.rtol and 0 < int((found.error <= tolerance).sum()) < m
        # Too few iterations are the solver's failure; an error in spite of convergence is the problem's nature.
        if found.result is RESULT.BREAKDOWN:
            return bad
        if not aside and (found.result is RESULT.MAX_STEPS or (found.result is not RESULT.SUCCESSFUL and not lost)):
            detail = f"relative residual {found.worst:.1e}, asked for {linear.rtol:.1e}, after {found.steps} steps"
            return dataclasses.replace(bad, result=RESULT.MAX_STEPS, detail=detail)
        if off == float("inf") and not aside:
            detail = f"no bound on the error after {found.steps} steps of {type(linear).__name__}"
            return dataclasses.replace(bad, result=RESULT.ILL_CONDITIONED, detail=detail)
        return cls(
            value=u + found.value,
            result=RESULT.SUCCESSFUL,
            steps=steps + found.steps,
            residual=found.residual,
            error=off,
            unresolved=unresolved,
            adjoint=_adjoint_solver(linear, operator, state, found),
            method=("" if equation.linear else "Newton, ") + linear.report(state),
        )


def _better_start(problem: Problem, zero: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """A linear equation has one solution, whatever the start: zero, if that is nearer; and the residual there."""
    residual = problem.residual(start)
    labels = problem.inputs.labels if problem.inputs.equation.labels_are_boundary else None
    if labels is not None and bool(start.abs().max() <= 2 * labels.value.abs().max()):
        return start, residual  # within the range of the labels a start can do no harm
    at_zero = problem.residual(zero)
    return (start, residual) if float(residual.abs().max()) < float(at_zero.abs().max()) else (zero, at_zero)


def _adjoint_solver(
    linear: AbstractLinearSolver, operator: Operator, state: Any, forward: LinearSolution
) -> Callable[[Tensor], Tensor]:
    """ū -> v with A v = ū. Always raises on failure: a wrong gradient must not pass for a right one."""
    direct = linear.is_direct(state)  # in the forward solve; an adjoint solve may exchange the state

    def adjoint(u_bar: Tensor) -> Tensor:
        if not bool(torch.isfinite(u_bar).all()):  # an overflow upstream, as gradient scaling provokes: hand it on
            return torch.full_like(u_bar, float("nan"))
        with torch.no_grad():
            found = linear.run(operator, state, u_bar.to(operator.weight.dtype), like=forward)
        if found.result is not RESULT.SUCCESSFUL:
            raise SolveError(found.result, f"in the adjoint solve, relative residual {found.worst:.1e}")
        size, diagonal = found.value.abs(), operator.diagonal
        uneven = bool(diagonal.min() < 1e-16 * diagonal.max()) and bool(size.max() > 1e8 * size.min())
        if uneven and not direct:
            # v is of size 1/degree: an iteration that is accurate against the largest entry has lost the others;
            # and where u is an iteration's, v would blow up what is off in it.
            raise SolveError(RESULT.ILL_CONDITIONED, "in the adjoint solve; use gll.solvers.Cholesky")
        return found.value

    return adjoint
