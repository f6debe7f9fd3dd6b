"""Equations: what is solved on a graph.

Every equation of this library is an instance of one (section 3.1 of the paper): find u with

    σ(u(x), x) + div φ(∇u, ·)(x) = f(x)     on the free nodes,          u = g     on the boundary,

where φ is the *flux* along an edge, σ the *reaction* at a node and f the *source*. Labels enter as boundary
values (`labels_are_boundary`), or through σ and f. An equation states these functions and nothing else: no
solver, no derivative with respect to its inputs. Those follow from the weak form

    P(u, v) = Σ_edges w φ(∇u)·∇v + Σ_nodes (σ(u) - f)·v,       "u solves the equation" = "P(u, v) = 0 for all v",

and the implicit function theorem (`implicit.py`). Slopes φ_q and σ_z are found by autograd unless an
equation gives them.

A new equation is one frozen dataclass; its tensor fields receive gradients by themselves.

Read next: `operators.py`, the linearised equation. `nonlinear.py` holds the equations that are not linear.
"""

from __future__ import annotations

import dataclasses
from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from gll.graph import Topology
from gll.labels import Labels

Scalar = float | Tensor


class AbstractEquation(ABC):
    """σ(u, x) + div φ(∇u, x, y) = f, in terms of the functions that subclasses override.

    Shapes: u and f (n, C), q = ∇u (E, C), node indices x and y (n, 1) or (E, 1).
    Columns are independent one-vs-rest problems unless `coupled`.
    """

    linear: ClassVar[bool] = False  # φ(q) = q, and σ is linear in u: one linear solve instead of Newton's method
    coupled: ClassVar[bool] = False  # σ couples the columns
    labels_are_boundary: ClassVar[bool] = True  # u = g on labelled nodes
    singular: ClassVar[bool] = False  # determined up to a constant per component
    scores: ClassVar[bool] = False  # u is a score of any sign, whose softmax is a probability; else u is one itself
    needs_start: ClassVar[bool] = False

    def flux(self, q: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """φ(q, x, y) on the edges; skew: φ(-q, y, x) = -φ(q, x, y)."""
        return q

    def flux_slope(self, q: Tensor, x: Tensor, y: Tensor) -> Tensor | None:
        """φ_q, or None for the constant 1."""
        return None if self.linear else slope_of(lambda z: self.phi(z, x, y), q)

    def reaction(self, u: Tensor, x: Tensor) -> Tensor | None:
        """σ(u, x) at every node, or None for zero."""
        return None

    def reaction_slope(self, u: Tensor, x: Tensor) -> Tensor | None:
        """σ_z: (n,) or (n, C); (n, C, C) if coupled; None for zero."""
        if self.coupled:
            columns = [slope_of(lambda z, c=c: self.sigma(z, x)[:, c], u) for c in range(u.shape[1])]  # type: ignore[index,misc]
            return torch.stack(columns, 1)
        with torch.no_grad():
            zero = self.sigma(u, x) is None
        return None if zero else slope_of(lambda z: self.sigma(z, x), u)

    def phi(self, q: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """φ as the library calls it; only `Elliptic`, whose functions are the user's, differs from `flux`."""
        return self.flux(q, x, y)

    def sigma(self, u: Tensor, x: Tensor) -> Tensor | None:
        """σ as the library calls it."""
        return self.reaction(u, x)

    def pull(self, labels: Labels | None, num_nodes: int) -> Tensor | None:
        """(n,) strength with which labels add `pull · u` to the reaction, or None."""
        return None

    def load(self, labels: Labels | None, num_nodes: int) -> Tensor | None:
        """f, (n, C) or (n, 1), or None for zero."""
        base = _as_column(getattr(self, "source", None))
        if labels is None or self.labels_are_boundary:
            return base
        points = _at_labels(labels, num_nodes, self.charge(labels))
        return points if base is None else points + base

    def charge(self, labels: Labels) -> Tensor:
        """What labels that are no boundary add to f at their nodes: (m, C)."""
        return self.copied_value(labels)

    def anchored(self, u: Tensor, x: Tensor) -> Tensor | bool:
        """Which nodes the reaction ties down by itself, so that no label needs to reach them: (n,), all or none."""
        slope = self.reaction_slope(u, x)
        return False if slope is None else slope.view(len(u), -1).amax(1) > 0

    def copied_value(self, labels: Labels) -> Tensor:
        """What a node takes over from a labelled one when it can only copy: (m, C)."""
        return labels.value

    def extension(self) -> AbstractEquation:
        """The equation for a new node among nodes that are solved already."""
        return self

    def homotopy(self) -> Sequence[AbstractEquation]:
        """Easier equations to solve first, ending with this one."""
        return [self]

    def validate(self, topology: Topology, classes: int, dtype: torch.dtype) -> None:
        """Raise ValueError where a parameter makes no sense."""

    def tensors(self) -> dict[str, Tensor]:
        """The fields that are tensors: these are differentiated."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def with_tensors(self, tensors: dict[str, Tensor]) -> Any:
        """A copy with other tensors in those fields."""
        return dataclasses.replace(self, **tensors) if tensors else self  # type: ignore[type-var]


def slope_of(function: Callable[[Tensor], Tensor | None], z: Tensor) -> Tensor:
    """Derivative of an elementwise function, by autograd."""
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        value = function(z)
        if value is None or not value.requires_grad:
            return torch.zeros_like(z)
        (slope,) = torch.autograd.grad(value.sum(), z, allow_unused=True)
    return torch.zeros_like(z) if slope is None else slope


def _as_column(value: Tensor | None) -> Tensor | None:
    return value[:, None] if value is not None and value.dim() == 1 else value


def require(condition: bool | Tensor, message: str) -> None:
    """Raise ValueError unless the condition holds (everywhere, for a tensor; a NaN never holds)."""
    if not (bool(condition.all()) if isinstance(condition, Tensor) else condition):
        raise ValueError(message)


def _at_labels(labels: Labels, num_nodes: int, value: Tensor) -> Tensor:
    """Rows `value` on the labelled nodes, zero elsewhere."""
    return value.new_zeros(num_nodes, *value.shape[1:]).index_copy(0, labels.index.long(), value)


class AbstractDecaying(AbstractEquation):
    """An equation with the reaction τu, where τ ≥ 0 is a number, a scalar tensor, or one value per node (n,)."""

    tau: Scalar

    def reaction(self, u: Tensor, x: Tensor) -> Tensor | None:
        if isinstance(self.tau, Tensor):
            return (self.tau[:, None] if self.tau.dim() == 1 else self.tau) * u
        return self.tau * u if self.tau else None

    def reaction_slope(self, u: Tensor, x: Tensor) -> Tensor | None:
        if isinstance(self.tau, Tensor):
            return self.tau.detach().to(u.dtype).expand(len(u))
        return u.new_full((len(u),), self.tau) if self.tau else None

    def anchored(self, u: Tensor, x: Tensor) -> Tensor | bool:
        return self.tau.detach().expand(len(u)) > 0 if isinstance(self.tau, Tensor) else bool(self.tau > 0)

    def validate(self, topology: Topology, classes: int, dtype: torch.dtype) -> None:
        shape, n = tuple(torch.as_tensor(self.tau).shape), topology.num_nodes
        require(shape in ((), (n,)), f"tau must be a number or one value per node ({n},), got shape {shape}")
        require(self.tau >= 0, f"tau must be ≥ 0, got {self.tau}")


@final
@dataclass(frozen=True, eq=False)
class Laplace(AbstractDecaying):
    """Laplace learning: τu + Δu = f on unlabelled nodes, u = g on labelled ones.

    Args:
        tau: τ ≥ 0, a number, a scalar tensor, or one value per node (n,); τ > 0 makes labels fade with distance.
        source: f, (n,) or (n, C), by default 0.

    Differentiable in: `tau`, `source`; label values; edge weights.
    """

    tau: Scalar = 0.0
    source: Tensor | None = None
    linear: ClassVar[bool] = True


@final
@dataclass(frozen=True, eq=False)
class SoftLaplace(AbstractDecaying):
    """Laplace learning with soft constraints: τu + Δu + λξ(u - g) = f, where ξ marks the labelled nodes.

    Args:
        lam: λ > 0, a number, a scalar tensor, or one value per labelled node (m,); λ → ∞ is `Laplace`.
        tau, source: as in `Laplace`.

    Differentiable in: `lam`, `tau`, `source`; label values; edge weights.
    """

    lam: Scalar = 1.0
    tau: Scalar = 0.0
    source: Tensor | None = None
    linear: ClassVar[bool] = True
    labels_are_boundary: ClassVar[bool] = False

    def _strength(self, labels: Labels) -> Tensor:
        value = labels.value
        lam = torch.as_tensor(self.lam, dtype=value.dtype, device=value.device)
        shape, m = tuple(lam.shape), len(value)
        require(shape in ((), (m,)), f"lam must be a number or one value per labelled node ({m},), got shape {shape}")
        return lam.expand(len(value))

    def pull(self, labels: Labels | None, num_nodes: int) -> Tensor | None:
        return None if labels is None else _at_labels(labels, num_nodes, self._strength(labels))

    def charge(self, labels: Labels) -> Tensor:
        return self._strength(labels)[:, None] * labels.value

    def extension(self) -> AbstractEquation:
        return Laplace(tau=self.tau)

    def validate(self, topology: Topology, classes: int, dtype: torch.dtype) -> None:
        AbstractDecaying.validate(self, topology, classes, dtype)
        require(self.lam > 0, f"lam must be > 0, got {self.lam}")


@final
@dataclass(frozen=True, eq=False)
class Poisson(AbstractDecaying):
    """Poisson learning: τu + Δu = Σ_{x labelled} (g(x) - ḡ) δ_x, ḡ the mean label.

    The solution is a score, not a probability: labels are sources and sinks, and what is larger wins. At τ = 0 it has
    degree-weighted mean zero, and the source must balance on every connected component. With τ > 0 it need not.

    Args:
        source: f, (n,) or (n, C), in place of the labels' sources or, where there are labels, on top of them.
        tau: as in `Laplace`; a tensor must be > 0.

    Differentiable in: `source`, `tau`; label values; edge weights.
    """

    source: Tensor | None = None
    tau: Scalar = 0.0
    linear: ClassVar[bool] = True
    labels_are_boundary: ClassVar[bool] = False
    scores: ClassVar[bool] = True

    @property
    def singular(self) -> bool:  # type: ignore[override]
        return not isinstance(self.tau, Tensor) and self.tau == 0

    def copied_value(self, labels: Labels) -> Tensor:
        return labels.value - labels.value.mean(0)

    def extension(self) -> AbstractEquation:
        return Laplace(tau=self.tau)
