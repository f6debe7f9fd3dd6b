"""What a solve returns, and how it fails.

A verdict is a member of `RESULT`, and the member's value is the message a user reads: what happened, the
usual causes, what to try. `solve(..., throw=True)` raises it; `throw=False` returns it. A failed solve
cannot be missed: either it raises, or `Solution.result` says so.

Read next: `solvers/base.py`.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gll.graph import Graph


class RESULT(enum.Enum):
    """Verdict on a solve."""

    SUCCESSFUL = "The equation was solved to the requested tolerance."
    MAX_STEPS = (
        "The solver took its maximum number of steps without reaching the tolerance. Raise max_steps, loosen rtol, "
        "use a direct solver (gll.solvers.Cholesky), or add a little tau to improve the conditioning."
    )
    BREAKDOWN = (
        "The linearised operator is not positive definite, so the equation has no unique stable solution here. "
        "For Ginzburg-Landau, start nearer to a minimum; for Elliptic, check that flux and reaction increase."
    )
    ILL_CONDITIONED = (
        "The system is so ill-conditioned that a problem with a known answer came back wrong: some nodes hang on the "
        "rest by edges too weak for float64. Use a larger k or bandwidth, add tau, or choose an `unreached` policy "
        "that accepts it."
    )
    UNREACHED = (
        "Some nodes are not connected to any labelled node, so the equation does not determine them. Use a larger k, "
        "label at least one node per component, add tau > 0, or accept them with unreached='uniform' or 'nearest'."
    )
    INCOMPATIBLE_SOURCE = (
        "The source does not sum to zero on every connected component, so the Poisson equation has no solution. Use a "
        "larger k so that the graph is connected, balance the labels of each component, or give Poisson a tau."
    )
    NONFINITE_INPUT = "The weights, labels, source or parameters contain NaN or infinite values; look upstream."
    NONFINITE_OUTPUT = (
        "The input is finite but the solution is not: the values overflow. Rescale the labels, weights or source."
    )


class SolveError(RuntimeError):
    """A solve that failed; `result` is the verdict, the message says what it means and what to do."""

    def __init__(self, result: RESULT, detail: str = "") -> None:
        super().__init__(f"{result.value} [{result.name}{': ' + detail if detail else ''}]")
        self.result = result


@dataclass(frozen=True, eq=False)
class Solution:
    """The solution of an equation on a graph.

    Args:
        value: (n, C), in the dtype of the weights. Carries the gradient.
        result: the verdict.
        steps: iterations of the solver (of all linear solves together, for a nonlinear equation).
        residual: (C,) largest residual per column, as the correction it asks for at a node over the largest value.
        error: the estimated error of `value` at the worst node, as a fraction of the largest value.
        unreached: number of nodes that the equation does not determine and that got a fallback value.
        unreached_nodes: (n,) which ones, or None where there are none.
        dtype: the precision of the computation, which may be higher than that of `value`.
        method: the solver that did the work, and why.
        graph: the graph that was solved on.

    Differentiable in: whatever `solve` is.
    """

    value: Float[Tensor, "n c"]
    result: RESULT
    steps: int
    residual: Float[Tensor, " c"]
    error: float
    unreached: int
    unreached_nodes: Bool[Tensor, " n"] | None
    dtype: torch.dtype
    method: str
    graph: Graph

    def __repr__(self) -> str:
        n, classes = self.value.shape
        return (
            f"Solution({n} nodes, {classes} columns: {self.result.name}, {self.steps} steps, residual "
            f"{float(self.residual.max()):.1e}, error {self.error:.1e}, {self.unreached} unreached, "
            f"{str(self.dtype)[6:]}, {self.method})"
        )

    def detach(self) -> Solution:
        """The same solution without a gradient."""
        return dataclasses.replace(self, value=self.value.detach(), graph=self.graph.detach())

    @property
    def classes(self) -> Tensor:
        """(n,) the class of the largest value."""
        return self.value.argmax(1)
