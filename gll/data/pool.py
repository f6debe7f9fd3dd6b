"""Operations that can be drawn, and how every image of a batch goes through operations of its own.

There is no loop over images. At every step the batch is sorted by operation, and each operation works on one slice. The
slices' lengths are known without asking a GPU, because the choice is made on the CPU. On a GPU time goes by the number
of kernels, hardly by their size: so all affine maps together are one gather, and all blends one blend.

The pools are those of the paper's appendix A.3; the ranges are the usual ones of RandAugment for small images.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from gll.data import geometry, operations
from gll.data.operations import Images, to_device


@dataclass(frozen=True)
class AbstractOperation(ABC):
    """An operation that a policy may draw, and the range of its magnitude; `signed`: of either sign."""

    name: str
    low: float
    high: float
    signed: bool

    @abstractmethod
    def apply(self, images: Images, magnitude: Tensor) -> Images:
        """The images changed, each by its magnitude (n,)."""


@final
@dataclass(frozen=True)
class Plain(AbstractOperation):
    """An operation without a magnitude; without a function it does nothing."""

    low: float = 0.0
    high: float = 0.0
    signed: bool = False
    run: Callable[[Tensor], Tensor] | None = None

    def apply(self, images: Images, magnitude: Tensor) -> Images:
        return images if self.run is None else self.run(images)


@final
@dataclass(frozen=True)
class Graded(AbstractOperation):
    """An operation on the values of pixels, with a magnitude."""

    signed: bool
    run: Callable[[Tensor, Tensor], Tensor]

    def apply(self, images: Images, magnitude: Tensor) -> Images:
        return self.run(images, magnitude)


@final
@dataclass(frozen=True)
class Blend(AbstractOperation):
    """A blend with what `start` makes of the images, integers; the magnitude is the factor."""

    signed: bool
    start: Callable[[Tensor], Tensor]

    def apply(self, images: Images, magnitude: Tensor) -> Images:
        return operations.blend(self.start(images), images, magnitude)


@final
@dataclass(frozen=True)
class Affine(AbstractOperation):
    """An affine map: `matrix` makes (n, 6) of magnitudes (n,), the height and the width."""

    signed: bool
    matrix: Callable[[Tensor, int, int], Tensor]

    def apply(self, images: Images, magnitude: Tensor) -> Images:
        return geometry.affine(images, self.matrix(magnitude, *images.shape[2:]))


GEOMETRIC = (
    Affine("rotate", 0.0, 30.0, True, geometry.rotation),
    Affine("shear x", 0.0, 0.3, True, geometry.shear_along_x),
    Affine("shear y", 0.0, 0.3, True, geometry.shear_along_y),
    Affine("translate x", 0.0, 0.3, True, geometry.translation_along_x),
    Affine("translate y", 0.0, 0.3, True, geometry.translation_along_y),
)
PHOTOMETRIC = (
    Plain("equalize", run=operations.equalize),
    Graded("solarize", 0.0, 256.0, False, operations.solarize),
    Blend("brightness", 0.05, 0.95, False, operations.black),
    Blend("contrast", 0.05, 0.95, False, operations.mean_luminance),
    Blend("sharpness", 0.05, 0.95, False, operations.blurred),
)
COLOUR_POOL: tuple[AbstractOperation, ...] = (
    Plain("identity"),
    *GEOMETRIC,
    *PHOTOMETRIC,
    Plain("autocontrast", run=operations.autocontrast),
    Blend("color", 0.05, 0.95, False, operations.luminance),
    # 4 to 8 bits, equally likely: the magnitude lies below 9 and is cut to a whole number.
    Graded("posterize", 4.0, math.nextafter(9.0, 0.0), False, operations.posterize),
)
GREY_POOL: tuple[AbstractOperation, ...] = (
    Plain("identity"),
    *GEOMETRIC,
    *PHOTOMETRIC,
    Plain("invert", run=operations.invert),
)


def magnitudes(pool: tuple[AbstractOperation, ...], chosen: Tensor, size: Tensor, sign: Tensor) -> Tensor:
    """(n, steps) the magnitudes of the chosen operations, from uniform numbers."""
    low = torch.tensor([operation.low for operation in pool], dtype=torch.float64)
    high = torch.tensor([operation.high for operation in pool], dtype=torch.float64)
    signed = torch.tensor([operation.signed for operation in pool], dtype=torch.bool)
    magnitude = low[chosen] + size * (high - low)[chosen]
    return torch.where(signed[chosen] & (sign < 0.5), -magnitude, magnitude)


def in_turn(images: Tensor, pool: tuple[AbstractOperation, ...], chosen: Tensor, magnitude: Tensor) -> Tensor:
    """Every image goes through operations of its own: number `chosen[i, 0]` of the pool, then `chosen[i, 1]`, ...

    Args:
        images: (n, c, h, w) on any device.
        pool: the operations.
        chosen: (n, steps) numbers of operations, on the CPU.
        magnitude: (n, steps) their magnitudes, on the CPU.
    """
    if chosen.shape[1] == 0:
        return images
    # Affine maps first, then blends, so that those of a kind lie side by side once the batch is sorted.
    by_kind = sorted(range(len(pool)), key=lambda i: (not isinstance(pool[i], Affine), not isinstance(pool[i], Blend)))
    pool = tuple(pool[i] for i in by_kind)
    chosen, order = torch.tensor(by_kind).argsort()[chosen].sort(dim=0, stable=True)
    back = order.argsort(0)
    # Row t: for every place at step t, where its image lies after step t - 1. The last row puts all back.
    source = torch.cat([order[:, :1], back[:, :-1].gather(0, order[:, 1:]), back[:, -1:]], 1).T.contiguous()
    chosen, magnitude = chosen.T.contiguous(), magnitude.gather(0, order).T.contiguous()
    sources, magnitudes = to_device(source, images.device), to_device(magnitude, images.device)
    maps = _affine_maps(pool, chosen, magnitude, images)
    ends = torch.searchsorted(chosen, torch.arange(len(pool)).repeat(len(chosen), 1), right=True).tolist()
    for step in range(len(chosen)):
        images = images.index_select(0, sources[step])
        slices = [(o, slice(i, j)) for o, i, j in zip(pool, [0, *ends[step]], ends[step], strict=False) if i < j]
        blends = [(o, part) for o, part in slices if isinstance(o, Blend)]
        done = []
        if isinstance(slices[0][0], Affine):
            done.append(geometry.affine_fixed(images[: len(maps[step])], maps[step]))
        if blends:
            part = slice(blends[0][1].start, blends[-1][1].stop)
            starts = [o.start(images[own]).expand_as(images[own]) for o, own in blends]
            done.append(operations.blend(torch.cat(starts), images[part], magnitudes[step, part]))
        others = [(o, part) for o, part in slices if not isinstance(o, Affine | Blend)]
        images = torch.cat(done + [o.apply(images[part], magnitudes[step, part]) for o, part in others])
    return images.index_select(0, sources[-1])


def _affine_maps(
    pool: tuple[AbstractOperation, ...], chosen: Tensor, magnitude: Tensor, images: Tensor
) -> tuple[Tensor, ...]:
    """For every step the maps of the images whose operation is affine, in the order of the sorted batch."""
    size = images.shape[2:]
    maps = [(i, o) for i, o in enumerate(pool) if isinstance(o, Affine)]
    if not maps:
        return ()
    matrix = torch.empty(*chosen.shape, 6, dtype=torch.float64)
    for i, operation in maps:
        own = chosen == i
        matrix[own] = operation.matrix(magnitude[own], *size)
    moved = chosen < len(maps)
    fixed = to_device(geometry.fixed_point(matrix[moved], *size), images.device)
    return fixed.split(moved.sum(1).tolist())
