"""Features and what acts on them made safe: checked, scaled into range, or to length one."""

from __future__ import annotations

import enum
import math

import torch
from jaxtyping import Float
from torch import Tensor


def check_features(x: Tensor, name: str = "features") -> Tensor:
    """x as float32 or float64; a clear error unless it is a finite (n, d) floating point tensor, n, d ≥ 1."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}; use torch.as_tensor first")
    if x.dim() != 2 or 0 in x.shape:
        raise ValueError(f"{name} must have shape (points, dimensions), neither of them zero; got {tuple(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"{name} must be floating point, got {x.dtype}; use x.float()")
    # One sum tells in most cases; it may also overflow, so a bad sum calls for a closer look.
    if not bool(torch.isfinite(x.detach().sum())) and not bool(torch.isfinite(x).all()):
        rows = torch.nonzero(~torch.isfinite(x).all(1)).flatten()
        raise ValueError(
            f"{name} contain NaN or infinite values in {len(rows)} rows, the first being row {int(rows[0])}"
        )
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def check_spread(x: Float[Tensor, "n d"]) -> None:
    """A clear error where an entry is so large that the distances between all other rows would vanish beside it."""
    room = 75 if x.dtype == torch.float32 else 690  # powers of two; see `power_of_two_scale`
    low, high = torch.aminmax(x.detach())
    typical = x.detach()[:: max(1, len(x) // 256)].abs().amax(1).median()
    largest = torch.maximum(high, -low)
    if bool((typical > 0) & (torch.log2(largest) - torch.log2(typical) > room)):
        row = int(x.detach().abs().amax(1).argmax())
        raise ValueError(
            f"the features span too many orders of magnitude: row {row} has an entry of size {largest.item():.1e}, a "
            f"typical row {typical.item():.1e}; beside it all other distances are zero in {str(x.dtype)[6:]}. Remove "
            "the row (a mark for missing data?), or scale the features"
        )


def unit_rows(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Rows scaled to length one, without overflow or underflow; a zero row stays zero.

    Differentiable in: `x`.
    """
    low, high = torch.aminmax(x.detach(), dim=1, keepdim=True)
    largest = torch.maximum(high, -low)
    x = x / torch.where(largest > 0, largest, 1)
    length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(largest > 0, length, 1)


def power_of_two_scale(x: Tensor) -> Tensor:
    """A power of two to divide by (exactly), so that squares and ratios of squares neither overflow nor vanish.

    The largest entry becomes about 2^25 in float32 and 2^200 in float64; bandwidths down to 2^-30 and 2^-250 are told
    apart from zero, so that one outlier does not wipe out the distances of the rest.
    """
    low, high = torch.aminmax(x.detach())
    largest = torch.maximum(high, -low)
    top = 25 if x.dtype == torch.float32 else 200
    exponent = torch.floor(torch.log2(torch.where(largest > 0, largest, 1))) - top
    return torch.exp2(exponent.clamp(min=math.log2(torch.finfo(x.dtype).tiny)))


class Metric(enum.Enum):
    """Distance between features: Euclidean, or Euclidean after scaling every row to length one (cosine)."""

    EUCLIDEAN = "euclidean"
    COSINE = "cosine"

    @classmethod
    def _missing_(cls, value: object) -> None:
        raise ValueError(
            f"unknown metric {value!r}; choose 'euclidean' or 'cosine' (the classifier takes 'precomputed' too)"
        )

    def prepare(self, x: Tensor) -> Tensor:
        if self is Metric.COSINE:
            return unit_rows(x)
        check_spread(x)
        return x


def require_positive(value: float | Tensor, name: str) -> None:
    if not isinstance(value, Tensor) and not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a finite number > 0, got {value}")


def require_functions(**given: object) -> None:
    """Raise unless each is None or can be called: a name or a class in place of an object is a common slip."""
    for name, function in given.items():
        if function is not None and (not callable(function) or isinstance(function, type)):
            raise TypeError(f"{name} must be a function or an object such as gll.SelfTuned(), got {function!r}")
