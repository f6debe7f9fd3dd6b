"""Linear solvers: `init(operator)` once, `compute(state, rhs)` as often as needed.

The state (a factor, a preconditioner) made in the forward pass serves the adjoint in the backward pass.
A solver only has to be roughly right: `run`, which is the same for all of them, recomputes the residual by
differences, iterates on it, and gives the verdict. (`judge.py` estimates the error besides.)

Read next: `cholesky.py`, `cg.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor

from gll.numbering import Numbering
from gll.operators import Operator
from gll.solution import RESULT
from gll.sums import column_max

ERROR_GOAL = 1e-8  # correcting goes on until the error is below this (or known to be below rtol), or stops shrinking


class Goal(NamedTuple):
    """When a column is solved: no node asks for a correction |r_i|/A_ii above max(atol, rtol · max(size, |x|)).

    `rtol` and `atol` are (C,), `size` is (1, C) or (m, C), and |x| the largest value of the column, or of the node's
    group. `size` is known when x corrects something larger than itself: a warm start, an earlier round.
    """

    rtol: Tensor
    atol: Tensor
    size: Tensor

    def allowed(self, operator: Operator, x: Float[Tensor, "m c"], digits: float = 0.0) -> Float[Tensor, "_ c"]:
        """What a node may ask for; in any case `digits` times the size of x, where it is given."""
        own = operator.size_of(x)
        return torch.maximum(torch.maximum(self.atol, digits * own), self.rtol * torch.maximum(self.size, own))


@dataclass(frozen=True, eq=False)
class LinearSolution:
    """x with A x = rhs: the verdict, the iterations, and how far off it may be.

    `residual` is relative, per column, and `worst` the largest of them; `error` (m,) estimates the error at every node,
    as a fraction of the largest value, or, if not `sound`, only tells which nodes are worst; `rounds` is how often the
    solution was corrected, and `needed` the relative residual that it takes to bring the error down to its goal.
    """

    value: Float[Tensor, "m c"]
    result: RESULT
    steps: int
    residual: Float[Tensor, " c"]
    worst: float
    error: Float[Tensor, " m"]
    rounds: int
    needed: float
    sound: bool = True


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
    def compute(self, state: Any, rhs: Float[Tensor, "m c"], goal: Goal) -> tuple[Tensor, RESULT, int]:
        """An approximate solution of A x = rhs, its verdict, and the iterations. A direct method ignores `goal`."""

    def describe(self, size: int, columns: int, device: torch.device) -> str:
        """Which method would run on such a system, and why."""
        return repr(self)

    def report(self, state: Any) -> str:
        """Which method did run."""
        return repr(self)

    def numbering(self) -> Numbering | None:
        """An order of the nodes that has neighbours close together, where one is known."""
        return None

    def is_direct(self, state: Any) -> bool:
        """Whether `compute` is a factorisation, whose corrections shrink by a fixed factor where it is sound."""
        return False

    def sharpen(self, state: Any) -> bool:
        """Make later solves with this state more precise, if that is possible: asked when corrections do not help."""
        return False

    @final
    def dtype_for(self, dtype: torch.dtype) -> torch.dtype:
        """The precision to work in for weights of this dtype."""
        return dtype if self.rtol >= 1e3 * torch.finfo(dtype).eps else torch.float64

    @final
    def run(
        self, operator: Operator, state: Any, rhs: Float[Tensor, "m c"], *, like: LinearSolution | None = None
    ) -> LinearSolution:
        """Solve, then correct by the true residual until `rtol` is met or progress stops, or as well as `like` was."""
        # An adjoint solution is not bounded as labels are: a loose tolerance costs a gradient more than a value.
        rounds, rtol = (0, None) if like is None else (like.rounds, min(like.needed, 1e-10))
        return self.correct(operator, state, rhs, no_estimate, rounds=rounds, rtol=rtol)

    @final
    def correct(
        self,
        operator: Operator,
        state: Any,
        rhs: Tensor,
        error_of: Callable[[Tensor, Tensor, Tensor | None, Tensor], Tensor],
        *,
        rounds: int = 0,
        rtol: float | None = None,
        size: Tensor | None = None,
        bounds: int = 0,
        product: Callable[[Tensor], Tensor] | None = None,  # x -> A x, if not by differences
    ) -> LinearSolution:
        """Solve and correct. The last `bounds` columns are h of `judge.py`, where A h ≥ diagonal / 2 is enough."""
        rhs = operator.project(rhs)
        diagonal = as_columns(operator.diagonal)
        per_node = torch.where(diagonal > 0, diagonal, 1)
        exact, zero = rhs.shape[1] - bounds, rhs.new_zeros(rhs.shape[1])
        aim = self.rtol if rtol is None else min(rtol, self.rtol)
        error_goal = max(ERROR_GOAL, self.rtol) if bounds else ERROR_GOAL  # a bound can be trusted, an estimate less
        goal = Goal(zero + aim, zero.clone(), zero[None] if size is None else size)
        goal.rtol[exact:], goal.atol[exact:] = 0, 0.5
        x, result, steps = self.compute(state, rhs, goal)
        x, best, correction = operator.project(x), math.inf, None
        for done in range(16):
            residual = operator.project(rhs - (product or operator.matvec)(x))
            ask, sizes = (residual / per_node).abs(), torch.maximum(operator.size_of(x), goal.size)
            relative = column_max(ask / positive(sizes))
            worst_yet = relative[:exact].max() if exact else ask.new_zeros(())
            error = error_of(x, worst_yet, correction, sizes)
            # An h that does not satisfy A h ≥ diagonal / 2 bounds nothing.
            most = torch.where(ask[:, exact:].amax() <= 0.5, error.max(), torch.inf) if bounds else error.max()
            # A column of zeros asks for nothing and is allowed nothing: 0/0, solved.
            bound = (ask / goal.allowed(operator, x)).nan_to_num(0).max()
            worst, off, bound = torch.stack([worst_yet, most, bound]).tolist()
            score = bound if bounds and off == math.inf else max(bound, off / error_goal)
            # Stop when solved, when a correction did not halve what is wrong, or when it is not a number.
            solved, stuck = score <= 1, done > 0 and not score < best / 2
            if (solved and done >= rounds) or not math.isfinite(worst) or result is RESULT.BREAKDOWN:
                break
            if stuck and not solved:
                if not self.sharpen(state):
                    break
                x, result, more = self.compute(state, rhs, goal)
                x, best, correction, steps = operator.project(x), math.inf, None, steps + more
                continue
            best = score
            # Ask of the correction what is still missing, and a little more.
            tighter = max(min(aim, 0.3 * worst / max(score, 1e3 if solved else 1)), torch.finfo(x.dtype).eps)
            finer = goal._replace(size=sizes, rtol=torch.where(goal.rtol > 0, tighter, 0), atol=goal.atol / 2)
            correction, result, more = self.compute(state, residual, finer)
            correction = operator.project(correction)
            x, steps = x + correction, steps + more
        if not math.isfinite(worst) and result is not RESULT.BREAKDOWN:
            result = RESULT.NONFINITE_OUTPUT
        elif worst <= self.rtol and result is not RESULT.BREAKDOWN:  # on an indefinite operator, a residual says little
            # After too many steps the columns may be solved and their error not bounded.
            result = result if result is RESULT.MAX_STEPS and off == math.inf else RESULT.SUCCESSFUL
        elif result is RESULT.SUCCESSFUL:  # the solver believes to have converged, the true residual says otherwise
            result = RESULT.ILL_CONDITIONED
        finest = torch.finfo(x.dtype).eps
        needed = max(finest, min(self.rtol, max(worst, finest) * error_goal / off)) if off else self.rtol
        return LinearSolution(x, result, steps, relative, worst, error, done, needed, off < math.inf)


def no_estimate(x: Tensor, worst: Tensor, correction: Tensor | None, size: Tensor) -> Tensor:
    return x.new_zeros(len(x))


def as_columns(diagonal: Tensor) -> Tensor:
    return diagonal if diagonal.dim() == 2 else diagonal[:, None]


def positive(a: Tensor) -> Tensor:
    return torch.where(a > 0, a, 1)
