"""Solvers: dense Cholesky, conjugate gradients, a choice between them, and Newton for nonlinear equations."""

from gll.solvers.amg import AMG
from gll.solvers.auto import Auto
from gll.solvers.base import AbstractLinearSolver
from gll.solvers.cg import ConjugateGradient
from gll.solvers.cholesky import Cholesky
from gll.solvers.multilevel import Multilevel
from gll.solvers.newton import Newton
from gll.solvers.precondition import AbstractPreconditioner

__all__ = [
    "AMG",
    "AbstractLinearSolver",
    "AbstractPreconditioner",
    "Auto",
    "Cholesky",
    "ConjugateGradient",
    "Multilevel",
    "Newton",
]
