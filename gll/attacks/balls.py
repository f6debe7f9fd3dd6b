"""Which attacked images lie in a ball, whatever attack has made them.

An image that fools the model counts for every ball that holds it: one found at a smaller ε counts at a larger one too,
and so does one of an attack that knows no ε (Carlini-Wagner), if it happens to lie inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gll.attacks.norms import L2, AbstractNorm, LInf
from gll.names import require_name

NORMS = {"LInf": LInf, "L2": L2}
ROUNDING = 1e-6
"""By so much a distance may exceed ε: images are float32, and distances are stored with nine digits."""


@final
@dataclass(frozen=True, order=True, init=False)
class Ball:
    """All images within ε of the clean one.

    Args:
        norm: "LInf" or "L2", or LInf() or L2() as in an attack, with its scale.
        eps: the radius, in units of `scale`.
        scale: the unit of every channel, in pixel units; (1.0,) for pixel units themselves.

    Raises:
        ValueError: a norm that is not known, or a negative radius.

    >>> Ball(LInf(), 0.1) == Ball("LInf", 0.1)
    True

    >>> Ball.of({"eps": 0.3, "norm": {"name": "LInf", "scale": 0.5}})
    Ball(norm='LInf', eps=0.3, scale=(0.5,))
    >>> Ball.of({"eps": None, "norm": "L2"}) is None
    True
    """

    norm: str
    eps: float
    scale: tuple[float, ...]

    def __init__(self, norm: str | AbstractNorm, eps: float, scale: tuple[float, ...] = (1.0,)) -> None:
        if isinstance(norm, LInf):
            scale = norm.scale if isinstance(norm.scale, tuple) else (norm.scale,)
        name = type(norm).__name__ if isinstance(norm, AbstractNorm) else norm
        require_name("norm of a ball", name, NORMS)
        if not eps >= 0:  # true for nan, too
            raise ValueError(f"the radius of a ball must be ≥ 0, got {eps}")
        if not scale or not all(0 < s < float("inf") for s in scale):
            raise ValueError(f"scale must be numbers > 0, one for all channels or one for each, got {scale}")
        object.__setattr__(self, "norm", name)
        object.__setattr__(self, "eps", eps)
        object.__setattr__(self, "scale", scale)

    @staticmethod
    def of(settings: Mapping[str, Any]) -> Ball | None:
        """The ball of an attack with these settings; None where it has none, or one of a norm of somebody's own.

        Images of the latter count for a ball where their distances say so.
        """
        eps, norm = settings.get("eps"), settings.get("norm")
        fields = {"name": norm} if isinstance(norm, str) else norm
        if eps is None or fields is None or fields["name"] not in NORMS:
            return None
        scale = fields.get("scale", 1.0)
        scales = tuple(map(float, scale)) if isinstance(scale, list | tuple) else (float(scale),)
        return Ball(fields["name"], float(eps), scales)

    @property
    def pixels(self) -> float:
        """Its radius in pixel units: that of the channel in which it is smallest."""
        return self.eps * min(self.scale)

    def contains(self, other: Ball) -> bool:
        """Whether all of another ball around the same image is known to lie in it.

        >>> cube, box = Ball("LInf", 0.1), Ball("LInf", 0.5, (0.2, 0.4))
        >>> box.contains(cube), cube.contains(box), cube.contains(Ball("LInf", 0.05)), cube.contains(Ball("L2", 0.05))
        (True, False, True, False)
        """
        if (other.norm, other.scale) == (self.norm, self.scale):
            return other.eps <= self.eps
        return other.norm == self.norm and other.eps * max(other.scale) <= self.pixels + ROUNDING

    def holds(self, other: Ball | None, linf: NDArray[np.float64], l2: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which images of an attack lie in it.

        Args:
            other: the ball of that attack.
            linf, l2: the distances of its images, in pixel units.
        """
        if other is not None and self.contains(other):
            return np.ones(len(linf), dtype=np.bool_)
        # With a unit for each channel this leaves out some that are inside: the true error is no smaller than stated.
        distance = linf if self.norm == "LInf" else l2
        inside: NDArray[np.bool_] = distance <= self.pixels + ROUNDING
        return inside

    def __str__(self) -> str:
        name = {"LInf": "L∞", "L2": "L2"}.get(self.norm, self.norm)
        return f"{name}, ε = {self.eps:.4g}" + ("" if self.scale == (1.0,) else ", less in some channels")
