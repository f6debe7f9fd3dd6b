"""Equations that are not linear in u: p-Laplace, Ginzburg-Landau, and one with functions of your own.

They state flux and reaction just as the linear ones do (`equations.py`); Newton's method solves them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from gll.equations import AbstractDecaying, AbstractEquation, Scalar, require, slope_of
from gll.graph import Topology


@final
@dataclass(frozen=True, eq=False)
class PLaplace(AbstractDecaying):
    """p-Laplace learning: τu + div(|∇u|^(p-2) ∇u) = f, u = g on labelled nodes; one-vs-rest for several classes.

    The flux is φ(q) = (q² + δ²)^((p-2)/2) q: smooth at q = 0, where |q|^(p-2) has slope 0 (p > 2) or ∞ (p < 2).

    Args:
        p: > 1, a number or a scalar tensor.
        tau, source: as in `Laplace`.
        delta: δ > 0; differences much smaller than this are treated linearly.

    Differentiable in: `p`, `tau`, `source`; label values; edge weights. Held fixed: `delta`.
    """

    p: Scalar = 3.0
    tau: Scalar = 0.0
    source: Tensor | None = None
    delta: float = 1e-3

    def flux(self, q: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return (q * q + self.delta**2) ** ((self.p - 2) / 2) * q

    def flux_slope(self, q: Tensor, x: Tensor, y: Tensor) -> Tensor:
        square = q * q + self.delta**2
        return square ** ((self.p - 4) / 2) * ((self.p - 1) * q * q + self.delta**2)

    def homotopy(self) -> Sequence[AbstractEquation]:
        goal, p, steps = float(self.p), 2.0, list[AbstractEquation]()
        while p != goal:
            p = min(goal, 1.5 * p) if goal > p else max(goal, p - 0.25)
            steps.append(self if p == goal else dataclasses.replace(self, p=p))
        return steps or [self]

    def validate(self, topology: Topology, classes: int, dtype: torch.dtype) -> None:
        AbstractDecaying.validate(self, topology, classes, dtype)
        if isinstance(self.p, Tensor) and self.p.dim() > 0:
            raise ValueError(f"p must be a number or a scalar tensor, got shape {tuple(self.p.shape)}")
        require(self.p > 1, f"p must be > 1, got {self.p}: at p = 1 the equation is not differentiable")
        require(self.delta > 0, f"delta must be > 0, got {self.delta}")


@final
@dataclass(frozen=True, eq=False)
class GinzburgLandau(AbstractEquation):
    """Ginzburg-Landau: a local minimum of |∇u|² + λ Σ_x G(u(x)), reached from a given start.

        Δu + (λ/2) G'(u) = f,      G(u) = Π_c |u - e_c|² / 2^(C-1),      or G(u) = (1 - u²)² for one column,

    a potential with a well at every one-hot vector (at ±1 for one column), of the same curvature for any C.
    The energy is not convex: which minimum is found depends on the start, so one must be given.

    Args:
        lam: λ > 0, a number or a scalar tensor.
        source: f, (n,) or (n, C), by default 0.

    Differentiable in: `lam`, `source`; label values; edge weights. Held fixed: the start.
    """

    lam: Scalar = 1.0
    source: Tensor | None = None
    coupled: ClassVar[bool] = True
    needs_start: ClassVar[bool] = True

    def flux_slope(self, q: Tensor, x: Tensor, y: Tensor) -> None:
        return None

    def reaction(self, u: Tensor, x: Tensor) -> Tensor:
        if u.shape[1] == 1:
            return self.lam / 2 * (4 * u * (u * u - 1))
        # With h_c = |u - e_c|²/2 the potential is 2 Π_c h_c, so G' = 2 Σ_c (u - e_c) Π_{b≠c} h_b.
        half = (u.square().sum(1, keepdim=True) - 2 * u + 1) / 2
        others = [torch.cat([half[:, :c], half[:, c + 1 :]], 1).prod(1) for c in range(u.shape[1])]
        product = torch.stack(others, 1)
        return self.lam * (product.sum(1, keepdim=True) * u - product)

    def anchored(self, u: Tensor, x: Tensor) -> bool:
        return True

    def validate(self, topology: Topology, classes: int, dtype: torch.dtype) -> None:
        require(self.lam > 0, f"lam must be > 0, got {self.lam}")


@final
@dataclass(frozen=True, eq=False)
class Elliptic(AbstractEquation):
    """The general equation σ(u, x) + div φ(∇u, x, y) = f with functions of your own; labels are boundary values.

    Args:
        flux: φ(q, x, y) for differences q (E, C) and node indices x, y (E, 1): elementwise and smooth in q,
            nondecreasing (elliptic), and preserving vector fields, φ(-q, y, x) = -φ(q, x, y).
        reaction: σ(u, x) for u (n, C) and node indices x (n, 1): elementwise, smooth, nondecreasing; None for zero.
        source: f, (n,) or (n, C), or None.
        parameters: tensors the functions use and that should receive gradients; they are passed by keyword.

    Differentiable in: `source`, `parameters`; label values; edge weights.

    >>> cubic = Elliptic(lambda q, x, y: q + q**3)
    """

    flux: Callable[..., Tensor] = dataclasses.field()
    reaction: Callable[..., Tensor] | None = dataclasses.field(default=None)  # type: ignore[assignment]
    source: Tensor | None = None
    parameters: dict[str, Tensor] = dataclasses.field(default_factory=dict)

    def phi(self, q: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.flux(q, x, y, **self.parameters)

    def sigma(self, u: Tensor, x: Tensor) -> Tensor | None:
        return None if self.reaction is None else self.reaction(u, x, **self.parameters)

    def anchored(self, u: Tensor, x: Tensor) -> Tensor | bool:
        slopes = [self.reaction_slope(torch.full_like(u, z), x) for z in (-1.0, 0.0, 1.0)]
        known = [slope for slope in slopes if slope is not None]
        return bool(known) and torch.stack(known).amax((0, 2)) > 0

    def tensors(self) -> dict[str, Tensor]:
        own = {} if self.source is None else {"source": self.source}
        return own | {f"parameters.{name}": value for name, value in self.parameters.items()}

    def with_tensors(self, tensors: dict[str, Tensor]) -> Elliptic:
        parameters = {name: tensors.get(f"parameters.{name}", value) for name, value in self.parameters.items()}
        return dataclasses.replace(self, source=tensors.get("source", self.source), parameters=parameters)

    def validate(self, topology: Topology, classes: int, dtype: torch.dtype) -> None:
        """Try φ and σ at sample values on sample edges and nodes, and name the property that fails."""
        z = torch.tensor([-2.0, -1.0, -0.5, -0.1, -0.001, 0.0, 0.001, 0.1, 0.5, 1.0, 2.0], dtype=dtype)
        z = z.to(topology.i.device)
        node = torch.arange(topology.num_nodes, device=z.device)[:64].repeat_interleave(len(z))[:, None]
        edge = torch.linspace(0, max(topology.num_edges - 1, 0), 64).long().unique() if topology.num_edges else []
        x, y = (end[edge].repeat_interleave(len(z))[:, None] for end in (topology.i, topology.j))
        free = self.with_tensors({name: t.detach() for name, t in self.tensors().items()})
        if len(edge):
            free._check("flux", z.repeat(len(edge))[:, None].expand(-1, classes), x, y)
        if self.reaction is not None:
            free._check("reaction", z.repeat(len(node) // len(z))[:, None].expand(-1, classes), node)

    def _check(self, name: str, z: Tensor, *at: Tensor) -> None:
        function: Callable[..., Tensor | None] = self.phi if name == "flux" else self.sigma
        with torch.enable_grad():
            value = function(z, *at)
        if not isinstance(value, Tensor) or value.shape != z.shape:
            raise ValueError(
                f"{name} must return a tensor of the shape {tuple(z.shape)} of its argument, got {value!r}"
            )
        if value.requires_grad:
            raise ValueError(
                f"{name} uses a tensor that requires a gradient but is not among `parameters`, so it would get none: "
                "pass it as Elliptic(..., parameters={'name': tensor}) and take it as a keyword argument"
            )
        slope = slope_of(lambda q: function(q, *at), z)
        where = "({}) at nodes {}"
        for bad, what in (
            (~torch.isfinite(value), "is not finite"),
            (
                ~torch.isfinite(slope),
                "has a derivative that is not finite: the theorem needs it continuously differentiable",
            ),
            (slope < 0, "decreases: the theorem needs it nondecreasing (elliptic)"),
        ):
            if bool(bad.any()):
                row, column = torch.nonzero(bad)[0].tolist()
                place = where.format(f"{z[row, column].item():g}", [int(a[row]) for a in at])
                raise ValueError(f"{name}{place} {what}")
        if name == "flux":
            mirror = -self.phi(-z, *reversed(at))
            bad = (value - mirror).abs() > 1e-6 * (value.abs() + mirror.abs())
            if bool(bad.any()):
                row, column = torch.nonzero(bad)[0].tolist()
                q, here, there = (float(t[row, column]) for t in (z, value, mirror))
                raise ValueError(
                    "flux does not preserve vector fields: φ(q, x, y) must equal -φ(-q, y, x), but at "
                    f"q = {q:g} they are {here:g} and {there:g}; "
                    "(φ(q, x, y) - φ(-q, y, x))/2 is the part that the divergence sees"
                )
