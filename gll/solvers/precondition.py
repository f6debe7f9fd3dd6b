"""What a preconditioner of conjugate gradients is. Jacobi's is built in; `multilevel.py` and `amg.py` are stronger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from torch import Tensor

from gll.numbering import Numbering
from gll.operators import Operator


class AbstractPreconditioner(ABC):
    """Makes an approximate inverse of the scaled operator."""

    @abstractmethod
    def prepare(self, operator: Operator) -> Callable[[Tensor], Tensor]:
        """A function that maps a scaled residual (m, C) to an approximate scaled correction."""

    def numbering(self) -> Numbering | None:
        """As in `AbstractLinearSolver`."""
        return None
