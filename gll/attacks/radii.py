"""How far an image may be moved by `gll attack`: what was asked for in L∞ or L2, what is refused, what else is taken.

ε in L∞ bounds every pixel, ε in L2 the Euclidean length of the whole change. The paper attacks in L∞ alone. One rule
takes its lengths to L2: ε there is the length of a change by the paper's ε in *every* pixel, ε·√(number of pixels).
That is the smallest ball of L2 that holds the paper's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import final

from gll.attacks.norms import L2, AbstractNorm, LInf
from gll.attacks.units import Normalised
from gll.data.samples import TrainTest


@final
@dataclass(frozen=True)
class Radius:
    """How far an image may be moved.

    Args:
        eps: in pixel units.
        norm: how that is measured.
        alpha: the step of IFGSM, in pixel units.
    """

    eps: float
    norm: AbstractNorm
    alpha: float

    @property
    def even(self) -> Radius:
        """The largest ball inside with one unit for all channels; AutoAttack knows no other."""
        if not isinstance(self.norm, LInf):
            return self
        scale = self.norm.scale
        return replace(self, eps=self.eps * (min(scale) if isinstance(scale, tuple) else scale), norm=LInf())

    @property
    def has_steps(self) -> bool:
        """Whether IFGSM makes a step here: it makes 5·eps/alpha of them, rounded down."""
        return self.eps == 0 or 5 * self.eps >= self.alpha * (1 - 1e-6)


class AbstractMeasure(ABC):
    """A norm to measure in."""

    @property
    @abstractmethod
    def norm(self) -> AbstractNorm:
        """The norm, of which every pixel is one unit."""

    @abstractmethod
    def of_the_paper(self, length: float, data: TrainTest) -> tuple[float, AbstractNorm]:
        """A length of the paper, which is in normalised units, in pixel units; and how it is measured."""

    @abstractmethod
    def normalised(self, length: float, data: TrainTest) -> tuple[float, AbstractNorm]:
        """A length of normalised images, in pixel units; and how it is measured."""

    @abstractmethod
    def check(self, eps: float, data: TrainTest, *, normalised: bool) -> None:
        """An error for an ε beyond all images."""

    @final
    def asked(self, eps: float, data: TrainTest, *, normalised: bool) -> tuple[float, AbstractNorm]:
        """An ε that was asked for."""
        return self.normalised(eps, data) if normalised else (eps, self.norm)


@final
class InLInf(AbstractMeasure):
    """The largest change of a pixel."""

    @property
    def norm(self) -> AbstractNorm:
        return LInf()

    def of_the_paper(self, length: float, data: TrainTest) -> tuple[float, AbstractNorm]:
        return self.normalised(length, data)

    def normalised(self, length: float, data: TrainTest) -> tuple[float, AbstractNorm]:
        found = Normalised(data.std, length)
        return found.pixels, found.norm

    def check(self, eps: float, data: TrainTest, *, normalised: bool) -> None:
        unit = max(data.std) if normalised else 1
        if eps * unit > 1:
            raise ValueError(
                f"--eps {eps:g} is more than the way from black to white, which is {1 / unit:.4g}: an ε of 8 in 255 is "
                "0.0314 (--eps 8/255)" + ("" if normalised else "; or add --eps-units normalised")
            )


@final
class InL2(AbstractMeasure):
    """The Euclidean length of the change."""

    @property
    def norm(self) -> AbstractNorm:
        return L2()

    def of_the_paper(self, length: float, data: TrainTest) -> tuple[float, AbstractNorm]:
        pixels = math.prod(data.test.shape[2:])
        return length * math.sqrt(pixels * sum(std**2 for std in data.std)), L2()

    def normalised(self, length: float, data: TrainTest) -> tuple[float, AbstractNorm]:
        if max(data.std) - min(data.std) > 1e-9:
            known = ", ".join(f"{std:.4g}" for std in data.std)
            raise ValueError(
                f"the channels of {data.name} have different standard deviations ({known}), so that a ball of "
                "normalised images is none of images in L2: give --eps with --eps-units pixels"
            )
        return length * data.std[0], L2()

    def check(self, eps: float, data: TrainTest, *, normalised: bool) -> None:
        length, _ = self.asked(eps, data, normalised=normalised)
        whole = math.sqrt(data.test[0].numel())
        if length > whole * (1 + 1e-9):
            raise ValueError(
                f"--eps {eps:g} is more than the way from a black image to a white one, which is "
                f"{eps * whole / length:.4g} in L2, the root of the number of pixels"
            )


MEASURES: dict[str, AbstractMeasure] = {"linf": InLInf(), "l2": InL2()}
"""`--norm`: by name."""
