"""The ball an attacked image must stay in: sizes, projections, random starts and steepest directions of a norm.

All of it is per image: a (n, ...) tensor of perturbations has n sizes. Images have pixels in [0, 1], so a size is in
pixel units. `LInf(scale=...)` gives every channel a unit of its own; see `units.py` for the use of that.
Read next: `base.py`, which projects the result of every attack and asserts that it is inside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor


class AbstractNorm(ABC):
    """A norm of perturbations, each image by itself."""

    @abstractmethod
    def size(self, delta: Float[Tensor, "n ..."]) -> Float[Tensor, " n"]:
        """The norm of every perturbation."""

    @abstractmethod
    def project(self, delta: Float[Tensor, "n ..."], eps: float) -> Float[Tensor, "n ..."]:
        """The nearest perturbation of size at most eps (nearest in the Euclidean sense)."""

    @abstractmethod
    def random(self, like: Float[Tensor, "n ..."], eps: float, generator: torch.Generator) -> Float[Tensor, "n ..."]:
        """Perturbations drawn uniformly from the ball of radius eps."""

    @abstractmethod
    def ascend(self, gradient: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """The direction of size one in which a function with this gradient grows fastest; zero where the gradient is.

        It does not depend on the length of the gradient, however short or long (but not zero) that is.
        """

    @abstractmethod
    def rounding(self, delta: Float[Tensor, "n ..."]) -> float:
        """How much `size(x' - x)` may exceed eps because x' = x + δ is rounded to its type; pixels are at most 1."""


@final
@dataclass(frozen=True)
class LInf(AbstractNorm):
    """The largest change of a pixel.

    Args:
        scale: the unit of every channel; one number for all of them, or one for each. The ball is |δ| ≤ eps·scale.

    >>> norm, delta = LInf(), torch.tensor([[0.3, -0.1]])
    >>> norm.size(delta), norm.project(delta, 0.2), norm.ascend(torch.tensor([[1e-30, 0.0]]))
    (tensor([0.3000]), tensor([[ 0.2000, -0.1000]]), tensor([[1., 0.]]))
    """

    scale: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        scales = self.scale if isinstance(self.scale, tuple) else (self.scale,)
        if not scales or not all(0 < s < float("inf") for s in scales):
            raise ValueError(f"scale must be numbers > 0, one for all channels or one for each, got {self.scale}")

    def size(self, delta: Tensor) -> Tensor:
        return (delta / self._unit(delta)).abs().flatten(1).amax(1)

    def project(self, delta: Tensor, eps: float) -> Tensor:
        bound = eps * self._unit(delta)
        return delta.clamp(-bound, bound) if isinstance(bound, float) else torch.minimum(delta, bound).maximum(-bound)

    def random(self, like: Tensor, eps: float, generator: torch.Generator) -> Tensor:
        # rand may return 0 and never 1: the range is [-1, 1), which a uniform start does not mind.
        draw = drawn(torch.rand, like.shape, like, generator)
        return (2 * draw - 1) * (eps * self._unit(like))

    def ascend(self, gradient: Tensor) -> Tensor:
        return gradient.sign() * self._unit(gradient)

    def rounding(self, delta: Tensor) -> float:
        smallest = min(self.scale) if isinstance(self.scale, tuple) else self.scale
        return 2 * torch.finfo(delta.dtype).eps / smallest

    def _unit(self, delta: Tensor) -> float | Tensor:
        if not isinstance(self.scale, tuple):
            return self.scale
        if delta.dim() < 2 or delta.shape[1] != len(self.scale):
            raise ValueError(
                f"the norm has a scale for each of {len(self.scale)} channels, but the images are {tuple(delta.shape)}"
            )
        return torch.tensor(self.scale, dtype=delta.dtype, device=delta.device).view(-1, *[1] * (delta.dim() - 2))


@final
@dataclass(frozen=True)
class L2(AbstractNorm):
    """The Euclidean length of the change.

    >>> norm, delta = L2(), torch.tensor([[3.0, 4.0]])
    >>> norm.size(delta), norm.project(delta, 1.0), norm.ascend(1e-30 * delta)
    (tensor([5.]), tensor([[0.6000, 0.8000]]), tensor([[0.6000, 0.8000]]))
    """

    def size(self, delta: Tensor) -> Tensor:
        # Scaled by the largest entry first: the squares of tiny entries would underflow, those of huge ones overflow.
        flat = delta.flatten(1)
        largest = flat.abs().amax(1)
        unit = torch.where(largest > 0, largest, 1)
        return largest * torch.linalg.vector_norm(flat / unit[:, None], dim=1)

    def project(self, delta: Tensor, eps: float) -> Tensor:
        size = self.size(delta)
        factor = torch.where(size > eps, eps / torch.where(size > 0, size, 1), 1)
        return delta * _per_image(factor, delta)

    def random(self, like: Tensor, eps: float, generator: torch.Generator) -> Tensor:
        # A direction uniform on the sphere, and a radius whose d-th power is uniform.
        normal = drawn(torch.randn, like.shape, like, generator)
        level = drawn(torch.rand, (len(like),), like, generator)
        radius = eps * level ** (1 / max(like[0].numel(), 1))
        return self.ascend(normal) * _per_image(radius, like)

    def ascend(self, gradient: Tensor) -> Tensor:
        largest = _per_image(gradient.flatten(1).abs().amax(1), gradient)
        scaled = gradient / torch.where(largest > 0, largest, 1)
        length = _per_image(torch.linalg.vector_norm(scaled.flatten(1), dim=1), gradient)
        return scaled / torch.where(length > 0, length, 1)

    def rounding(self, delta: Tensor) -> float:
        pixels = max(delta[0].numel(), 1)
        return 2 * torch.finfo(delta.dtype).eps * pixels**0.5


def drawn(draw: Callable[..., Tensor], shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    """Random numbers of the type and on the device of `like`, drawn where the generator is."""
    return draw(tuple(shape), generator=generator, dtype=like.dtype, device=generator.device).to(like.device)


def _per_image(number: Float[Tensor, " n"], like: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
    """One number an image, shaped so that it multiplies images."""
    return number.view(-1, *[1] * (like.dim() - 1))
