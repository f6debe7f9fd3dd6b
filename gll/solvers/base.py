"""Linear solvers: `init(operator)` once, `compute(state, rhs)` as often as needed.

The state (a factor, a preconditioner) made in the forward pass serves the adjoint in the backward pass.
A solver only has to be roughly right: `run`, which is the same for all of them, recomputes the residual by
differences, iterates on it, and gives the verdict.

Read next: `cholesky.py`, `cg.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from gll.operators import Operator
from gll.solution import RESULT


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """x with A x = rhs: the verdict, the iterations, and per column the relative residual.

    `error` is the error of the columns whose answer was known, `rounds` how often the solution was corrected.
    """

    value: Float[Tensor, "m c"]
    result: RESULT
    steps: int
    residual: Float[Tensor, " c"]
    worst: float
    error: float
    rounds: int


KNOWN_ANSWER_GOAL = 1e-8  # how well columns of known answer are to be solved; correcting goes on until then


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

    @final
    def dtype_for(self, dtype: torch.dtype) -> torch.dtype:
        """The precision to work in for weights of this dtype."""
        return dtype if self.rtol >= 1e3 * torch.finfo(dtype).eps else torch.float64

    @final
    def run(
        self,
        operator: Operator,
        state: Any,
        rhs: Float[Tensor, "m c"],
        *,
        known: Float[Tensor, "m a"] | None = None,
        rounds: int = 0,
    ) -> LinearSolution:
        """Solve, then correct by the true residual until `rtol` is met or progress stops.

        Args:
            operator, state: A, and what `init` made of it.
            rhs: right-hand sides.
            known: the solution of the last columns, where it is known: these must come out right as well.
            rounds: correct at least this often (as often as it took to get known answers right).
        """
        rhs = operator.project(rhs)
        diagonal = operator.diagonal if operator.diagonal.dim() == 2 else operator.diagonal[:, None]
        per_node = torch.where(diagonal > 0, diagonal, 1)
        x, result, steps = self.compute(state, rhs)
        x, best = operator.project(x), float("inf")
        for done in range(rounds, rounds + 12):
            residual = operator.project(rhs - operator.matvec(x))
            relative = (residual / per_node).abs().amax(0) / _positive(x.abs().amax(0))
            error = relative.new_zeros(()) if known is None else (x[:, -known.shape[1] :] - known).abs().max()
            worst, off = torch.stack([relative.max(), error]).tolist()
            score = max(worst / self.rtol, off / KNOWN_ANSWER_GOAL)
            # Stop when solved, when a correction did not halve what is wrong, or when it is not a number.
            solved = score <= 1 and done >= 2 * rounds
            if solved or (score > 1 and not score < best / 2) or result is RESULT.BREAKDOWN:
                break
            best = score
            correction, result, more = self.compute(state, residual)
            x, steps = x + operator.project(correction), steps + more
        if not math.isfinite(worst):
            result = RESULT.NONFINITE_OUTPUT
        elif worst <= self.rtol:
            result = RESULT.SUCCESSFUL
        elif result is RESULT.SUCCESSFUL:  # the solver believes to have converged, the true residual says otherwise
            result = RESULT.ILL_CONDITIONED
        return LinearSolution(x, result, steps, relative, worst, off, done - rounds)


def _positive(a: Tensor) -> Tensor:
    return torch.where(a > 0, a, 1)
