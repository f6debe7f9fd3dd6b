"""How far off is a solution? An estimate of the error at every node.

A small residual does not make a small error where a cluster hangs on the rest by a thread. So one more problem
is solved alongside:

- a direct solver gets one whose answer is known: the constant 1, which is hardest for such a cluster and whose
  right-hand side, the excess, is free of rounding. It is also asked for one more correction than it needs:
  what that changes is the error.
- an iterative one gets A h = diagonal (h is the expected number of steps of a random walk to the boundary).
  Since A^-1 ≥ 0 and |residual| ≤ worst · diagonal, the error is at most worst · h; and h itself is at most twice what
  was found once A h ≥ diagonal / 2.

Where constants are in the null space there is no such bound: both get a known answer, a vector without structure, and
one more correction.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gll.operators import Operator
from gll.solvers.base import AbstractLinearSolver, LinearSolution, as_columns, no_estimate, positive
from gll.solvers.scaled import plain_product

LOOSE = 1e-6  # rtol from which on residuals may come from a plain product: what rounds off there is far below
MANY = 100_000  # edges from which on that is worth a matrix of its own


def solve_judged(
    solver: AbstractLinearSolver,
    operator: Operator,
    state: Any,
    rhs: Float[Tensor, "m c"],
    *,
    start: Float[Tensor, "m c"],
    fast: bool = True,
) -> LinearSolution:
    """As `solver.run`, for the correction to `start` (which sets the scale), with the error at every node.

    With `fast`, a large system that is not asked for many digits has its residuals from a plain product.
    """
    direct, c = solver.is_direct(state), rhs.shape[1]
    rounding, product = 8 * torch.finfo(rhs.dtype).eps, None  # of the residual, in the same units as `worst`
    bounded = not direct and operator.components is None and not operator.coupled
    loose = solver.rtol >= LOOSE and rhs.dtype == torch.float64
    if fast and loose and bounded and operator.shared and operator.topology.num_edges > MANY:
        product, rounding = plain_product(operator)
    known, size = _known_answer(operator, c), operator.size_of(start)
    witness = as_columns(operator.diagonal).expand(-1, known.shape[1]) if bounded else operator.matvec(known)

    def error_of(x: Tensor, worst: Tensor, correction: Tensor | None, size: Tensor) -> Tensor:
        if bounded:
            return 2 * (worst + rounding) * x.abs().amax(1)
        error = (x - known).abs().amax(1)
        return error if operator.coupled and not direct else torch.maximum(error, changed(x, worst, correction, size))

    changed = no_estimate if bounded else _by_correction
    if operator.shared:
        found = solver.correct(
            operator,
            state,
            torch.cat([rhs, witness], 1),
            lambda x, worst, correction, size: torch.maximum(
                error_of(x[:, c:], worst, None if correction is None else correction[:, c:], size[:, c:]),
                changed(x, worst, correction, size),
            ),
            size=torch.cat([size, torch.zeros_like(size[:, :1])], 1),
            bounds=int(bounded),
            product=product,
        )
        if bounded and solver.is_direct(state):  # exchanged on the way; a factor is judged by a known answer
            again = solve_judged(solver, operator, state, rhs, start=start)
            return dataclasses.replace(again, steps=again.steps + found.steps)
        if product is not None and not (found.sound and float(found.error.max()) <= solver.rtol):
            # Some node hangs on the rest by so little that differences are called for.
            return solve_judged(solver, operator, state, rhs, start=start, fast=False)
        return dataclasses.replace(found, value=found.value[:, :c], residual=found.residual[:c])
    changed = _by_correction if direct else no_estimate
    found = solver.correct(operator, state, rhs, changed, size=size)
    other = solver.correct(operator, state, witness, error_of, bounds=known.shape[1] if bounded else 0)
    if bounded and solver.is_direct(state):
        return solve_judged(solver, operator, state, rhs, start=start)
    error = error_of(other.value, rhs.new_tensor(found.worst), None, size) if not direct else other.error
    return dataclasses.replace(
        found, error=torch.maximum(found.error, error), rounds=max(found.rounds, other.rounds), sound=other.sound
    )


def _known_answer(operator: Operator, classes: int) -> Tensor:
    if operator.components is None:
        return operator.weight.new_ones(operator.size, 1 if operator.shared else classes)
    count = torch.arange(1, operator.size + 1, dtype=operator.weight.dtype, device=operator.weight.device)
    return operator.project(torch.frac(0.6180339887498949 * count)[:, None])


def _by_correction(x: Tensor, worst: Tensor, correction: Tensor | None, size: Tensor) -> Tensor:
    """What the last correction changed at every node, relative to the largest value; unknown before the first."""
    if correction is None:
        return x.new_full((len(x),), torch.inf)
    return (correction.abs() / positive(size)).amax(1)
