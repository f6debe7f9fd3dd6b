"""The paper's units: ε for images that were scaled to mean 0 and standard deviation 1, by the name of the data set.

A step of ε in normalised units is ε·std of the [0, 1] range. Where the channels have different standard deviations the
ball is a box that is longer in some channels: `norm` has one scale a channel, and `pixels` is its longest side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from gll.attacks.norms import LInf
from gll.names import require_name

# The standard deviation of every channel, in units where black is 0 and white is 1.
STD: dict[str, tuple[float, ...]] = {"mnist": (0.3081,), "fashionmnist": (0.3530,), "cifar10": (0.2470, 0.2435, 0.2616)}


@final
@dataclass(frozen=True)
class Normalised:
    """A length in normalised units.

    Args:
        data: the name of a data set, or the standard deviation of every channel.
        value: the length, such as the paper's ε.

    >>> eps = Normalised("mnist", 0.3)
    >>> round(eps.pixels, 4), eps.norm
    (0.0924, LInf(scale=1.0))
    """

    data: str | tuple[float, ...]
    value: float

    def __post_init__(self) -> None:
        if isinstance(self.data, str):
            require_name("data set", self.data, STD, "; or give the standard deviation of every channel")
        if not all(0 < s < float("inf") for s in self.std) or not self.std:
            raise ValueError(f"the standard deviation of every channel must be > 0, got {self.std}")

    @property
    def std(self) -> tuple[float, ...]:
        """The standard deviation of every channel, in pixel units."""
        return STD[self.data] if isinstance(self.data, str) else self.data

    @property
    def pixels(self) -> float:
        """The length in pixel units, in the channel where it is longest."""
        return self.value * max(self.std)

    @property
    def norm(self) -> LInf:
        """The norm in which a ball of radius `pixels` is the ball of radius `value` of normalised images."""
        longest = max(self.std)
        scale = tuple(s / longest for s in self.std)
        return LInf(scale) if min(scale) < 1 else LInf()
