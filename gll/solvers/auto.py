"""Choosing a linear solver by size and device."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from gll.numbering import Numbering
from gll.operators import Operator
from gll.solution import RESULT
from gll.solvers.base import AbstractLinearSolver, Goal
from gll.solvers.cg import ConjugateGradient
from gll.solvers.cholesky import Cholesky
from gll.solvers.multilevel import Multilevel

MULTILEVEL_GPU = 50_000  # free nodes up to which a GPU is faster without; measured at 20,000


@dataclass(eq=False)
class _Chosen:
    """The solver in use and its state; conjugate gradients may be exchanged for Cholesky once."""

    operator: Operator
    solver: AbstractLinearSolver
    state: Any
    why: str


@final
@dataclass(frozen=True)
class Auto(AbstractLinearSolver):
    """Cholesky for small systems, conjugate gradients for large ones, Cholesky again where those are slow.

    Args:
        rtol: see `AbstractLinearSolver`.
        dense_cpu, dense_gpu: largest number of free nodes that is factorised at once; measured break-even points.
        dense_rescue: largest number that is factorised on a CPU after conjugate gradients have not converged in
            `patience`, or have come to a halt with an error that is not small.
        dense_last: the same on a GPU; and on a CPU the largest number that is factorised where the only other answer
            is an error. 12,000 take 2.3 GB (5 GB where constants are projected out, 7 GB on a GPU, which inverts the
            factor), and some ten seconds on two cores.
        patience: conjugate gradients' steps before that; twenty times as many where no factor can take over.
        multilevel: preconditions systems too large to be rescued so; give `Multilevel.of(graph)` to solve on one graph
            again and again.

    >>> print(Auto().describe(size=20_000, columns=10, device=torch.device("cpu")))
    ConjugateGradient: 20,000 free nodes are more than 600, the measured break-even on a cpu
    """

    rtol: float = 1e-10
    dense_cpu: int = 600
    dense_gpu: int = 3000
    dense_rescue: int = 6000
    dense_last: int = 12_000
    patience: int = 300
    multilevel: Multilevel = field(default_factory=Multilevel)

    def _limit(self, device: torch.device) -> int:
        return self.dense_cpu if device.type == "cpu" else self.dense_gpu

    def _rescue(self, device: torch.device) -> int:
        return self.dense_rescue if device.type == "cpu" else self.dense_last

    def describe(self, size: int, columns: int, device: torch.device) -> str:
        limit = self._limit(device)
        name, order = ("Cholesky", "at most") if size <= limit else ("ConjugateGradient", "more than")
        return f"{name}: {size:,} free nodes are {order} {limit:,}, the measured break-even on a {device.type}"

    def init(self, operator: Operator) -> _Chosen | RESULT:
        # A coupled system is one system of all columns together.
        size, device = _size(operator), operator.weight.device
        why = self.describe(size, operator.excess.shape[-1], device)
        # Where constants are projected out, only a direct solver's error can be estimated well.
        if operator.components is not None and size <= self.dense_rescue:
            why = f"Cholesky: {size:,} nodes of a singular equation are at most {self.dense_rescue:,}"
        low, high = torch.stack(torch.aminmax(operator.diagonal)).tolist()
        # Matrices for every column belong to Newton's method, which would factorise such large ones in every step.
        uneven = self.dense_last if operator.shared else self.dense_rescue
        if low < 1e-16 * high and size <= uneven:
            # The adjoint solution is of size 1/diagonal: an iteration in one norm would not see the small ones.
            why = f"Cholesky: degrees from {low:.0e} to {high:.0e}, and at most {uneven:,} free nodes"
        if why.startswith("Cholesky"):
            direct = Cholesky(rtol=self.rtol)
            state = direct.init(operator)
            return state if isinstance(state, RESULT) else _Chosen(operator, direct, state, why)
        rescue = size <= self._rescue(device)
        # Making groups takes a GPU longer than a hundred plain steps on a medium graph.
        plain = rescue or (device.type != "cpu" and size <= MULTILEVEL_GPU)
        if plain or not operator.shared:
            iterative = ConjugateGradient(rtol=self.rtol, max_steps=self.patience if rescue else 20 * self.patience)
        else:
            why += "; Multilevel"
            iterative = ConjugateGradient(
                rtol=self.rtol,
                max_steps=20 * self.patience,
                preconditioner=self.multilevel,
                single=device.type == "cpu",
            )
        return _Chosen(operator, iterative, iterative.init(operator), why)

    def report(self, state: Any) -> str:
        return str(state.why)

    def numbering(self) -> Numbering | None:
        return self.multilevel.numbering()

    def sharpen(self, state: Any) -> bool:
        if state.solver.sharpen(state.state):
            return True
        limit = self._rescue(state.operator.weight.device)
        return self._exchange(state, limit, "came to a halt") is RESULT.SUCCESSFUL

    def is_direct(self, state: Any) -> bool:
        return isinstance(state.solver, Cholesky)

    def compute(self, state: Any, rhs: Tensor, goal: Goal) -> tuple[Tensor, RESULT, int]:
        x, result, steps = state.solver.compute(state.state, rhs, goal)
        if result is RESULT.MAX_STEPS:
            result = self._exchange(state, self.dense_last, f"had not converged after {steps} steps")
            long = 20 * self.patience
            if result is RESULT.MAX_STEPS and state.solver.max_steps < long:  # no factor, so iterate on
                state.solver, result = dataclasses.replace(state.solver, max_steps=long), RESULT.SUCCESSFUL
            if result is RESULT.SUCCESSFUL:
                x, result, more = state.solver.compute(state.state, rhs, goal)
                steps += more
        return x, result, steps

    def _exchange(self, state: _Chosen, limit: int, why: str) -> RESULT:
        """A factor in place of conjugate gradients. MAX_STEPS: it would be too large, or there is one already."""
        if not isinstance(state.solver, ConjugateGradient) or _side(state.operator) > limit:
            return RESULT.MAX_STEPS
        direct = Cholesky(rtol=self.rtol)
        try:
            factor = direct.init(state.operator)
        except RuntimeError:  # no memory: torch.OutOfMemoryError on a GPU, but nothing more special on a CPU
            return RESULT.MAX_STEPS
        if isinstance(factor, RESULT):
            return factor
        state.solver, state.state, state.why = direct, factor, f"Cholesky: ConjugateGradient {why}"
        return RESULT.SUCCESSFUL


def _size(operator: Operator) -> int:
    """Unknowns of one system: if it is coupled, those of all columns together."""
    return operator.size * (operator.excess.shape[1] if operator.coupled else 1)


def _side(operator: Operator) -> float:
    """Of a square matrix as large as what is to be factorised: a system for every column, where they differ."""
    systems = 1 if operator.shared or operator.coupled else operator.diagonal.shape[1]
    return _size(operator) * math.sqrt(systems)
