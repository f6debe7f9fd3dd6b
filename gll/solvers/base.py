"""Linear solvers: `init(operator)` once, `compute(state, rhs)` as often as needed.

The state (a factor, a preconditioner) made in the forward pass serves the adjoint in the backward pass.
A solver only has to be roughly right: `run`, which is the same for all of them, recomputes the residual by
differences, iterates on it, and gives the verdict.

Read next: `cholesky.py`, `cg.py`.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from gll.operators import Operator
from gll.solution import RESULT

ERROR_GOAL = 1e-8  # correcting goes on until the estimated error is below this, or stops shrinking


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """x with A x = rhs: the verdict, the iterations, and how far off it may be.

    `residual` is relative, per column, and `worst` the largest of them; `error` (m,) estimates the error at every node,
    as a fraction of the largest value; `rounds` is how often the solution was corrected.
    """

    value: Float[Tensor, "m c"]
    result: RESULT
    steps: int
    residual: Float[Tensor, " c"]
    worst: float
    error: Float[Tensor, " m"]
    rounds: int


class AbstractLinearSolver(ABC):
    """Solves A x = b for a symmetric positive definite operator and all columns of b at once.

    Attributes:
        rtol: a column is solved when no node asks for a correction (residual over diagonal) larger than `rtol` times
            the largest entry of the column. It also decides the precision: float64, unless `rtol` is so loose that
            the precision of the weights can reach it.
    """

    rtol: float

    @abstractmethod
    def init(self, operator: Operator) -> Any:
        """Prepare: factorise, or build a preconditioner. Returns a state, or a `RESULT` that says why not."""

    @abstractmethod
    def compute(self, state: Any, rhs: Float[Tensor, "m c"]) -> tuple[Tensor, RESULT, int]:
        """An approximate solution of A x = rhs, its verdict and the number of iterations."""

    def describe(self, size: int, columns: int, device: torch.device) -> str:
        """Which method would run on such a system, and why."""
        return repr(self)

    @abstractmethod
    def is_direct(self, state: Any) -> bool:
        """Whether `compute` is a factorisation, whose corrections shrink by a fixed factor where it is sound."""

    @final
    def dtype_for(self, dtype: torch.dtype) -> torch.dtype:
        """The precision to work in for weights of this dtype."""
        return dtype if self.rtol >= 1e3 * torch.finfo(dtype).eps else torch.float64

    @final
    def run(self, operator: Operator, state: Any, rhs: Float[Tensor, "m c"], *, rounds: int = 0) -> LinearSolution:
        """Solve, then correct by the true residual: `rounds` times, and on until `rtol` is met or progress stops."""
        return self._correct(operator, state, rhs, _none, rounds)

    @final
    def run_judged(self, operator: Operator, state: Any, rhs: Float[Tensor, "m c"]) -> LinearSolution:
        """As `run`, with an estimate of the error at every node.

        A small residual does not make a small error where a cluster hangs on the rest by a thread. So

        - a second problem is solved alongside whose answer is known: the constant 1, which is hardest for such a
          cluster and whose right-hand side, the excess, is free of rounding;
        - a direct solver is asked for one more correction than it needs, and what that changes is the error;
        - for an iterative one, A h = diagonal is solved as well (h is the expected number of steps of a random walk to
          the boundary). Since A^-1 ≥ 0 and |residual| ≤ worst · diagonal, the error is at most worst · h.

        Where constants are in the null space, a vector without structure stands in for the constant.
        """
        direct, c = self.is_direct(state), rhs.shape[1]
        known = _known_answer(operator, c)
        extras = [operator.matvec(known)]
        rounding = 8 * torch.finfo(rhs.dtype).eps  # of the residual, in the same units as `worst`
        bounded = not direct and operator.components is None and not operator.coupled
        if bounded:
            diagonal = operator.diagonal
            extras.append((diagonal if diagonal.dim() == 2 else diagonal[:, None]).expand(-1, known.shape[1]))
        if not operator.shared:
            found, *others = (
                self._correct(operator, state, b, _by_correction if direct else _none, 0) for b in [rhs, *extras]
            )
            error = torch.maximum(found.error, (others[0].value - known).abs().amax(1))
            if len(others) > 1:
                error = torch.maximum(error, 2 * (found.worst + rounding) * others[1].value.abs().amax(1))
            return dataclasses.replace(found, error=error, rounds=max(f.rounds for f in (found, *others)))

        def error_of(x: Tensor, worst: Tensor, correction: Tensor | None) -> Tensor:
            error = (x[:, c] - known[:, 0]).abs()
            if direct:
                return torch.maximum(error, _by_correction(x, worst, correction))
            return torch.maximum(error, 2 * (worst + rounding) * x[:, c + 1].abs()) if bounded else error

        found = self._correct(operator, state, torch.cat([rhs, *extras], 1), error_of, 0)
        return dataclasses.replace(found, value=found.value[:, :c], residual=found.residual[:c])

    def _correct(
        self,
        operator: Operator,
        state: Any,
        rhs: Tensor,
        error_of: Callable[[Tensor, Tensor, Tensor | None], Tensor],
        rounds: int,
    ) -> LinearSolution:
        rhs = operator.project(rhs)
        diagonal = operator.diagonal if operator.diagonal.dim() == 2 else operator.diagonal[:, None]
        per_node = torch.where(diagonal > 0, diagonal, 1)
        x, result, steps = self.compute(state, rhs)
        x, best, correction = operator.project(x), float("inf"), None
        for done in range(12):
            residual = operator.project(rhs - operator.matvec(x))
            relative = (residual / per_node).abs().amax(0) / _positive(x.abs().amax(0))
            error = error_of(x, relative.max(), correction)
            worst, off = torch.stack([relative.max(), error.max()]).tolist()
            score = max(worst / self.rtol, off / ERROR_GOAL)
            # Stop when solved, when a correction did not halve what is wrong, or when it is not a number.
            solved, stuck = score <= 1, done > 0 and not score < best / 2
            if (solved and done >= rounds) or (stuck and not solved) or not math.isfinite(worst):
                break
            if result is RESULT.BREAKDOWN:
                break
            best = score
            correction, result, more = self.compute(state, residual)
            correction = operator.project(correction)
            x, steps = x + correction, steps + more
        if not math.isfinite(worst):
            result = RESULT.NONFINITE_OUTPUT
        elif worst <= self.rtol:
            result = RESULT.SUCCESSFUL
        elif result is RESULT.SUCCESSFUL:  # the solver believes to have converged, the true residual says otherwise
            result = RESULT.ILL_CONDITIONED
        return LinearSolution(x, result, steps, relative, worst, error, done)


def _known_answer(operator: Operator, classes: int) -> Tensor:
    if operator.components is None:
        return operator.weight.new_ones(operator.size, 1 if operator.shared else classes)
    count = torch.arange(1, operator.size + 1, dtype=operator.weight.dtype, device=operator.weight.device)
    return operator.project(torch.frac(0.6180339887498949 * count)[:, None])


def _none(x: Tensor, worst: Tensor, correction: Tensor | None) -> Tensor:
    return x.new_zeros(len(x))


def _by_correction(x: Tensor, worst: Tensor, correction: Tensor | None) -> Tensor:
    """What the last correction changed at every node, relative to the largest value; unknown before the first."""
    if correction is None:
        return x.new_full((len(x),), torch.inf)
    return (correction.abs() / _positive(x.abs().amax(0))).amax(1)


def _positive(a: Tensor) -> Tensor:
    return torch.where(a > 0, a, 1)
