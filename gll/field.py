"""A Gaussian field on a graph: how uncertain every node is, and how much less after a label.

Take u to be Gaussian with mean zero and precision L + τ, where L is a graph Laplacian, and a label of node k to be
u(k) plus noise of variance γ². Where the labels are does not depend on what they say, so neither does the covariance C
of u given them. One more label, at k, changes it by a matrix of rank one:

    C' = C - c cᵀ / (γ² + c_k),        c = C e_k  (column k of C).

All that `acquisition.py` asks of C are its diagonal, the sums of its columns, and their squared lengths. The same step
updates them: with s = γ² + c_k,

    C'_jj = C_jj - c_j²/s,      (1ᵀC')_j = (1ᵀC)_j - c_j (1ᵀc)/s,
    |C'e_j|² = |Ce_j|² - 2 c_j (Cc)_j/s + c_j² |c|²/s².

Small graphs hold C itself. Large ones hold C = V K Vᵀ, where V (n, M) are the eigenvectors of L with the smallest
eigenvalues: the field is then confined to its M smoothest modes, and everything above is exact for that field.

Read next: `acquisition.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.graph import Graph, Normalization

EXACT_UP_TO = 2000  # nodes; their (n, n) covariance takes 32 MB
RANK = 200  # modes of a larger graph


@dataclass(frozen=True, eq=False)
class Covariance:
    """The covariance C = V K Vᵀ of a field on n nodes, with the sums over it that scores are made of.

    Args:
        basis: V, (n, M) with orthonormal columns, or None for the identity (then M = n).
        core: K, (M, M).
        noise: γ², the variance of a label.
        variance: (n,) the diagonal of C.
        total: (n,) the sums of its columns.
        square: (n,) the squared lengths of its columns.

    Differentiable in: nothing.
    """

    basis: Float[Tensor, "n modes"] | None
    core: Float[Tensor, "modes modes"]
    noise: float
    variance: Float[Tensor, " n"]
    total: Float[Tensor, " n"]
    square: Float[Tensor, " n"]

    @classmethod
    def of(cls, basis: Tensor | None, core: Tensor, noise: float) -> Covariance:
        """The covariance V K Vᵀ, its sums computed afresh."""
        if basis is None:
            return cls(None, core, noise, core.diagonal().clone(), core.sum(0), core.square().sum(0))
        half = basis @ core
        total = half @ basis.sum(0)
        return cls(basis, core, noise, (half * basis).sum(1), total, half.square().sum(1))

    def given(self, index: Int[Tensor, " m"]) -> Covariance:
        """The covariance once these nodes, not labelled so far, have labels."""
        index = index.long()
        if len(index) == 0:
            return self
        if len(index) == 1:
            return self._given_one(int(index))
        # All at once: K' = K - A (V_S A + γ²)^-1 Aᵀ with A = K V_Sᵀ. Sums made afresh carry no rounding along.
        a = self.core[:, index] if self.basis is None else self.core @ self.basis[index].T
        block = a[index] if self.basis is None else self.basis[index] @ a
        block = block + self.noise * torch.eye(len(index), dtype=a.dtype, device=a.device)
        half = torch.linalg.solve_triangular(torch.linalg.cholesky(block), a.T, upper=False)
        return Covariance.of(self.basis, self.core - half.T @ half, self.noise)

    def _given_one(self, k: int) -> Covariance:
        if self.basis is None:
            a = c = self.core[:, k]
            through = self.core @ c
        else:
            a = self.core @ self.basis[k]
            c = self.basis @ a
            through = self.basis @ (self.core @ a)  # C c = V K Vᵀ V a, and Vᵀ V = 1
        s = self.noise + c[k]
        return Covariance(
            self.basis,
            self.core - torch.outer(a, a / s),
            self.noise,
            self.variance - c.square() / s,
            self.total - c * (c.sum() / s),
            self.square - 2 * c * through / s + c.square() * (c.square().sum() / s**2),
        )


@final
@dataclass(frozen=True)
class GaussianField:
    """A Gaussian field with precision L + τ, seen through labels with noise of variance γ².

    Args:
        tau: τ > 0. The smaller, the farther a label reaches.
        noise: γ² > 0. The larger, the more a second label beside a first one is worth.
        rank: number M of modes; from n on, the field is exact. By default exact up to 2,000 nodes, above that 200.
        normalization: which Laplacian: `SYMMETRIC`, or `NONE`. The first by default: with the second, nodes that hang
            loosely on the rest are by far the most uncertain ones, and a label there says nothing about others.

    Differentiable in: nothing.

    >>> path = Graph.from_sparse(torch.tensor([[0., 1., 0.], [1., 0., 1.], [0., 1., 0.]]))
    >>> field = GaussianField(tau=1.0, noise=0.5, normalization=Normalization.NONE)
    >>> print(field.prior(path).variance)
    tensor([0.6250, 0.5000, 0.6250], dtype=torch.float64)
    >>> print(field.prior(path).given(torch.tensor([1])).variance)
    tensor([0.5625, 0.2500, 0.5625], dtype=torch.float64)
    """

    tau: float = 0.03
    noise: float = 0.1
    rank: int | None = None
    normalization: Normalization = Normalization.SYMMETRIC

    def __post_init__(self) -> None:
        for name, value in (("tau", self.tau), ("noise", self.noise)):
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} of a Gaussian field must be a finite number > 0, got {value}")
        if self.rank is not None and self.rank < 1:
            raise ValueError(f"rank must be at least 1, got {self.rank}")
        if Normalization(self.normalization) is Normalization.RANDOM_WALK:
            raise ValueError("a covariance is symmetric: choose Normalization.SYMMETRIC or Normalization.NONE")

    def prior(self, graph: Graph) -> Covariance:
        """The covariance before any label: (L + τ)^-1, or its M largest modes."""
        n = graph.num_nodes
        rank = (n if n <= EXACT_UP_TO else RANK) if self.rank is None else min(self.rank, n)
        weight = graph.weight.detach()
        if not bool(torch.isfinite(weight).all()) or bool((weight < 0).any()):
            raise ValueError("a Gaussian field needs finite weights ≥ 0; look at graph.weight")
        laplacian, parts = self._laplacian(graph), graph.components.cpu().numpy()

        def tensor(a: np.ndarray) -> Tensor:
            return torch.as_tensor(np.ascontiguousarray(a), dtype=torch.float64, device=weight.device)

        if rank >= n - 1:  # the eigenvalue solver wants fewer than n - 1
            precision = tensor(laplacian.toarray())
            precision.diagonal().add_(self.tau)
            inverse = torch.cholesky_inverse(torch.linalg.cholesky(precision))
            return Covariance.of(None, (inverse + inverse.T) / 2, self.noise)
        basis, value = _smoothest(laplacian, self._constants(graph), parts, rank)
        return Covariance.of(tensor(basis), torch.diag((tensor(value) + self.tau).reciprocal()), self.noise)

    def _constants(self, graph: Graph) -> np.ndarray:
        """(n,) what is constant to the Laplacian: it gives zero for this function, restricted to any component."""
        if Normalization(self.normalization) is Normalization.NONE:
            return np.ones(graph.num_nodes)
        degree = graph.degree.detach().double().cpu().numpy()
        return np.sqrt(np.where(degree > 0, degree, 1))

    def _laplacian(self, graph: Graph) -> scipy.sparse.csr_matrix:
        weight = graph.to_scipy().astype(np.float64)
        degree = np.asarray(weight.sum(1)).ravel()
        if Normalization(self.normalization) is Normalization.NONE:
            return (scipy.sparse.diags(degree) - weight).tocsr()
        root = np.zeros_like(degree)
        root[degree > 0] = 1 / np.sqrt(degree[degree > 0])
        # An isolated node differs from nobody: its row is zero.
        return (
            scipy.sparse.diags((degree > 0).astype(np.float64)) - weight.multiply(root[:, None]).multiply(root)
        ).tocsr()


def _smoothest(
    laplacian: scipy.sparse.csr_matrix, constant: np.ndarray, parts: np.ndarray, rank: int
) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvectors (n, rank) with the smallest eigenvalues, and those.

    Each component has an eigenvalue zero. An iteration with a relative tolerance misses zeros, and some of several
    equal ones: but these vectors are known, so they are written down, and the rest is sought beside them.
    """
    n, count = len(parts), int(parts.max()) + 1
    length = np.sqrt(np.bincount(parts, constant**2, count))
    largest = np.argsort(-np.bincount(parts, minlength=count), kind="stable")[:rank]
    column = np.full(count, -1)
    column[largest] = np.arange(len(largest))
    rows = np.flatnonzero(column[parts] >= 0)
    entry = constant[rows] / length[parts[rows]]
    known = scipy.sparse.csr_matrix((entry, (rows, column[parts[rows]])), shape=(n, len(largest)))
    left = min(rank - count, n - count - 1)
    if left <= 0:
        return known.toarray(), np.zeros(len(largest))
    if n <= EXACT_UP_TO:
        value, vector = np.linalg.eigh(laplacian.toarray())
        return vector[:, :rank], np.maximum(value[:rank], 0)
    bound = 2 * float(laplacian.diagonal().max())  # of the eigenvalues (Gershgorin)

    def flipped(v: np.ndarray) -> np.ndarray:  # the smallest become the largest; known ones become zero
        v = v.ravel()
        return bound * (v - known @ (known.T @ v)) - laplacian @ v

    # The start is fixed, so that the same graph gives the same modes.
    start = np.random.default_rng(0).standard_normal(n)
    operator = scipy.sparse.linalg.LinearOperator((n, n), matvec=flipped, dtype=np.float64)
    try:
        value, vector = scipy.sparse.linalg.eigsh(operator, k=left, which="LA", v0=start, tol=1e-5)
    except scipy.sparse.linalg.ArpackError as error:
        raise RuntimeError(
            f"the {rank} smoothest modes of the graph were not found ({error}); ask for another rank, or for an exact "
            f"field with rank={n}"
        ) from None
    order = np.argsort(-value)
    basis = np.concatenate([known.toarray(), vector[:, order]], 1)
    return basis, np.concatenate([np.zeros(len(largest)), np.maximum(bound - value[order], 0)])
