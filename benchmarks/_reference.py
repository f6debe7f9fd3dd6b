"""Answers that can be trusted on problems where floating point usually cannot.

Two independent ways, neither of which shares a line with the library:

`harmonic`  Elimination without a single subtraction, in the logarithm of the numbers. A Laplacian plus a non-negative
    diagonal is kept as its weights and its excess (never as a diagonal), so that eliminating node k only adds:

        w_ij += w_ik w_kj / d_k,     e_i += w_ik e_k / d_k,     b_i += w_ik b_k / d_k,     d_k = e_k + Σ_j w_kj

    (the algorithm of Grassmann, Taksar and Heyman). Every entry of the answer has a small *relative* error, whatever
    the condition number, and logarithms neither overflow nor underflow. Needs loads b ≥ 0.

`Exact`  Arithmetic of several hundred digits (mpmath): slow, but it takes loads of any sign, singular and nonlinear
    equations, and gradients.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

Array = NDArray[np.float64]


def knn_weight(x: Array, k: int, normalize: bool = False) -> tuple[Array, Array, Array]:
    """exp(-4 d²/(ε_i ε_j)) between all points, the distances d, and ε, the distance to the k-th nearest other point.

    By definition and in extended precision, after scaling rows to length one if so asked. Where ε = 0 the limit is
    meant: 1 between duplicates, 0 otherwise.
    """
    wide = x.astype(np.longdouble)
    if normalize:
        length = np.sqrt(np.square(wide).sum(1, keepdims=True))
        wide = wide / np.where(length > 0, length, 1)
    distance = np.sqrt(np.square(wide[:, None] - wide).sum(2))
    others = distance + np.diag(np.full(len(x), np.inf, np.longdouble))
    epsilon = np.sort(others, 1)[:, k - 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(distance > 0, distance**2 / (epsilon[:, None] * epsilon), 0)
    return np.exp(-4 * z).astype(np.float64), distance, epsilon


def components(weight: Array) -> NDArray[np.int32]:
    """Component of every node, over entries that are not zero."""
    return connected_components(coo_matrix(weight > 0), directed=False)[1]


def undetermined(weight: Array, excess: Array) -> NDArray[np.bool_]:
    """Nodes from which no node with an excess can be reached."""
    label = components(weight)
    return ~np.isin(label, label[excess > 0])


def log_harmonic(log_weight: Array, log_excess: Array, log_load: Array) -> Array:
    """log u with (Laplacian(weight) + diag(excess)) u = load, all given as logarithms; -inf is zero.

    Every node must be determined. `log_load` has shape (n, C).
    """
    w, e, b = log_weight.copy(), log_excess.copy(), log_load.copy()
    n = len(w)
    np.fill_diagonal(w, -np.inf)
    ratio, total = np.full((n, n), -np.inf), np.empty(n)
    for k in range(n - 1, -1, -1):
        row = w[k, :k]
        total[k] = np.logaddexp.reduce(np.append(row, e[k]))
        ratio[k, :k] = row - total[k]
        w[:k, :k] = np.logaddexp(w[:k, :k], ratio[k, :k, None] + row)
        e[:k] = np.logaddexp(e[:k], ratio[k, :k] + e[k])
        b[:k] = np.logaddexp(b[:k], ratio[k, :k, None] + b[k])
        np.fill_diagonal(w, -np.inf)
    u = np.full_like(b, -np.inf)
    for k in range(n):
        from_above = np.logaddexp.reduce(ratio[k, :k, None] + u[:k], axis=0)
        u[k] = np.logaddexp(b[k] - total[k], from_above)
    return u


def harmonic(weight: Array, excess: Array, load: Array) -> Array:
    """u with (Laplacian(weight) + diag(excess)) u = load, for a load of any sign; NaN where nothing determines u.

    A load of both signs is solved as the difference of two, so entries are then accurate relative to their sum.
    """
    u = np.full(load.shape, np.nan)
    known = ~undetermined(weight, excess)
    if known.any():
        w, e, b = weight[np.ix_(known, known)], excess[known], load[known]
        with np.errstate(divide="ignore"):
            parts = [log_harmonic(np.log(w), np.log(e), np.log(np.maximum(sign * b, 0))) for sign in (1, -1)]
        u[known] = np.exp(parts[0]) - np.exp(parts[1])
    return u


def laplace(weight: Array, index: NDArray[np.int64], value: Array, tau: Array, source: Array) -> Array:
    """τu + Δu = f off the labelled nodes, u = g on them; NaN where nothing determines u."""
    n = len(weight)
    free = np.setdiff1d(np.arange(n), index)
    u = np.full((n, value.shape[1]), np.nan)
    u[index] = value
    across = weight[np.ix_(free, index)]
    # Sums of weights of hundreds of orders of magnitude: exact to rounding, as nothing is subtracted.
    u[free] = harmonic(weight[np.ix_(free, free)], tau[free] + across.sum(1), source[free] + across @ value)
    return u


@dataclass(frozen=True)
class Flux:
    """φ, φ' and the energy Φ with Φ' = φ, of a nonlinear equation, on mpmath numbers."""

    value: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    energy: Callable[[Any], Any]


LINEAR = Flux(lambda q: q, lambda q: mpmath.mpf(1), lambda q: q * q / 2)
CUBIC = Flux(lambda q: q + q**3, lambda q: 1 + 3 * q * q, lambda q: q * q / 2 + q**4 / 4)


def p_flux(p: float, delta: float) -> Flux:
    """(q² + δ²)^((p-2)/2) q, where p is a multiple of 1/2 (so that roots suffice)."""
    quarters = round(4 * (p - 2) / 2)
    square = mpmath.mpf(delta) ** 2

    def power(q: Any, fourths: int) -> Any:
        s = q * q + square
        return s ** (fourths // 4) if fourths % 4 == 0 else mpmath.sqrt(mpmath.sqrt(s)) ** fourths

    return Flux(
        lambda q: power(q, quarters) * q,
        lambda q: power(q, quarters - 4) * ((p - 1) * q * q + square),
        lambda q: power(q, quarters + 4) / p,
    )


@dataclass(frozen=True)
class Exact:
    """One column of an equation on a graph, in arithmetic of `digits` digits.

        excess·u + div φ(∇u) = load   on free nodes,       u = value   on fixed nodes.

    Args:
        edges: (i, j, weight), each undirected edge of positive weight once.
        excess, load: (n,) numbers.
        fixed: the values of boundary nodes.
        mean_zero: (n,) weights of the mean that vanishes on each component, for an equation without excess.
    """

    edges: list[tuple[int, int, float]]
    excess: Array
    load: Array
    fixed: dict[int, float]
    mean_zero: Array | None = None
    flux: Flux = LINEAR
    digits: int = 120

    def _components(self) -> list[list[int]]:
        """Components of the graph, without the fixed nodes."""
        n = len(self.excess)
        matrix = np.zeros((n, n))
        for i, j, _ in self.edges:
            matrix[i, j] = 1
        label = components(matrix + matrix.T)
        return [[i for i in range(n) if label[i] == c] for c in range(label.max() + 1)]

    def _linear(self, weight: list[Any], load: list[Any], fixed: dict[int, Any]) -> list[Any]:
        """Solve with the given weights on the edges: elimination on the graph, no subtraction but in the load."""
        n, zero = len(load), mpmath.mpf(0)
        w: list[dict[int, Any]] = [{} for _ in range(n)]
        for (i, j, _), value in zip(self.edges, weight, strict=True):
            w[i][j] = w[j][i] = value
        e, b = [mpmath.mpf(x) for x in self.excess], list(load)
        u: list[Any] = [None] * n
        for i, value in fixed.items():
            u[i] = value
        order = [i for i in range(n) if i not in fixed]
        rows: dict[int, tuple[dict[int, Any], Any]] = {}
        for k in order:
            row = w[k]
            d = sum(row.values(), e[k])
            rows[k] = (row, d)
            if d == 0:
                continue
            for i in row:
                del w[i][k]
            for i, wi in row.items():
                if i in fixed:
                    continue
                r = wi / d
                e[i] += r * e[k]
                b[i] += r * b[k]
                for j, wj in row.items():
                    if j != i:
                        w[i][j] = w[i].get(j, zero) + r * wj
                        if j in fixed:
                            w[j][i] = w[i][j]
        for k in reversed(order):
            row, d = rows[k]
            known = all(u[j] is not None for j in row)
            u[k] = None if d == 0 or not known else (b[k] + sum(v * u[j] for j, v in row.items())) / d
        return u

    def _grounded(self, load: list[Any], weight: list[Any]) -> list[Any]:
        """The linear solve, after fixing one node of every component where the equation is singular."""
        fixed = {i: mpmath.mpf(v) for i, v in self.fixed.items()}
        if self.mean_zero is None:
            return self._linear(weight, load, fixed)
        parts = self._components()
        u = self._linear(weight, load, {part[0]: mpmath.mpf(0) for part in parts})
        for part in parts:
            mass = [mpmath.mpf(self.mean_zero[i]) for i in part]
            total = sum(mass)
            mean = sum(m * u[i] for m, i in zip(mass, part, strict=True)) / total if total else u[part[0]]
            for i in part:
                u[i] -= mean
        return u

    def numbers(self) -> list[Any]:
        """The solution as mpmath numbers; None where nothing determines it."""
        weight = [mpmath.mpf(w) for *_, w in self.edges]
        load = [mpmath.mpf(x) for x in self.load]
        u = self._grounded(load, weight)
        if self.flux is LINEAR:
            return u
        # Nodes that nothing determines touch no others: hold them at zero meanwhile.
        lost = [i for i, x in enumerate(u) if x is None]
        held = dataclasses.replace(self, fixed=self.fixed | dict.fromkeys(lost, 0.0))
        u = [mpmath.mpf(0) if x is None else x for x in u]
        for _ in range(400):
            u, size = held._newton(u, weight, load)
            if size < mpmath.mpf(10) ** -25:
                return [None if i in lost else x for i, x in enumerate(u)]
        raise ArithmeticError("the reference itself has not converged")

    def _newton(self, u: list[Any], weight: list[Any], load: list[Any]) -> tuple[list[Any], Any]:
        gap = [u[i] - u[j] for i, j, _ in self.edges]
        residual = [e * x - b for e, x, b in zip(self.excess, u, load, strict=True)]
        for (i, j, _), w, q in zip(self.edges, weight, gap, strict=True):
            flow = w * self.flux.value(q)
            residual[i] += flow
            residual[j] -= flow
        slope = [w * self.flux.slope(q) for w, q in zip(weight, gap, strict=True)]
        zero = {i: mpmath.mpf(0) for i in self.fixed}
        d = self._linear(slope, [-r for r in residual], zero)
        start, t = self._energy(u, weight, load), mpmath.mpf(1)
        descent = sum(r * x for r, x in zip(residual, d, strict=True))
        while t > mpmath.mpf(10) ** -30:
            moved = [x + t * y for x, y in zip(u, d, strict=True)]
            if self._energy(moved, weight, load) <= start + t * descent / 10:
                break
            t /= 2
        return moved, max(abs(x) for x in d)

    def _energy(self, u: list[Any], weight: list[Any], load: list[Any]) -> Any:
        on_nodes = sum(mpmath.mpf(e) * x * x / 2 - b * x for e, x, b in zip(self.excess, u, load, strict=True))
        pairs = zip(self.edges, weight, strict=True)
        return on_nodes + sum(w * self.flux.energy(u[i] - u[j]) for (i, j, _), w in pairs)

    def solve(self) -> Array:
        """The solution, (n,); NaN where nothing determines it."""
        with mpmath.workdps(self.digits):
            return np.array([float("nan") if x is None else float(x) for x in self.numbers()])

    def log_weight_gradient(self, cotangent: Array) -> Array:
        """∂<cotangent, u>/∂ log w on the edges of a linear equation: -w ∇u·∇v, where v solves the adjoint equation."""
        with mpmath.workdps(self.digits):
            u = self.numbers()
            weight = [mpmath.mpf(w) for *_, w in self.edges]
            v = self._linear(weight, [mpmath.mpf(c) for c in cotangent], {i: mpmath.mpf(0) for i in self.fixed})
            return np.array(
                [
                    0.0 if u[i] is None else float(-w * (u[i] - u[j]) * (v[i] - v[j]))
                    for (i, j, _), w in zip(self.edges, weight, strict=True)
                ]
            )
