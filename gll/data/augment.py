"""Augmentation: which operations every image of a batch goes through, and how strongly, drawn at random.

An augmentation turns uint8 images (n, c, h, w) into new ones of the same shape, on the device where they are. All its
chance is one table of uniform numbers, a row for every image:

    draws = torch.rand(n, augmentation.num_draws)           from the generator that is passed in
    images = augmentation.apply(images, draws)              no chance left

So results depend on the generator alone, and the result of an image on its own row alone. Draws become operations and
magnitudes on the CPU; images stay where they are. With a generator of the CPU nothing ever waits for a GPU (draws of a
GPU's generator must be fetched first), and the same draws give the same bytes on every device.

What the operations do is in `operations.py` (values) and `geometry.py` (places), which of them a policy draws in
`pool.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from gll.data import geometry, operations
from gll.data.operations import Images, to_device
from gll.data.pool import COLOUR_POOL, GREY_POOL, AbstractOperation, Blend, Graded, Plain, in_turn, magnitudes
from gll.names import from_name


class AbstractAugmentation(ABC):
    """Random changes of images that leave their class as it is: `augmentation(images, generator) -> images`."""

    @property
    @abstractmethod
    def num_draws(self) -> int:
        """How many uniform numbers an image needs."""

    @abstractmethod
    def apply(self, images: Images, draws: Tensor) -> Images:
        """The images changed as `draws` (n, num_draws) in [0, 1), on the CPU, say."""

    @final
    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """New images of the same shape, on the same device; what comes in is not changed.

        Args:
            images: (n, c, h, w) uint8.
            generator: the only source of chance. One of the CPU does not make the CPU wait for a GPU.
        """
        return self.together([images], [generator])[0]

    @final
    def together(self, parts: Sequence[Tensor], generators: Sequence[torch.Generator]) -> list[Tensor]:
        """Several batches at once, each as if it were alone: every image has its own draws, and is changed by itself.

        For a GPU, where the launches of kernels take the time and not the pixels.
        """
        if self.num_draws == 0 or not any(len(part) for part in parts):
            return list(parts)  # nothing random: whatever it is stays as it is, points of the plane too
        images = torch.cat(list(parts)) if len(parts) > 1 else parts[0]
        if images.dtype != torch.uint8 or images.dim() != 4:
            raise ValueError(
                f"augmentation needs uint8 images (n, channels, height, width), got {images.dtype} of shape "
                f"{tuple(images.shape)}; augment before normalising, and use 'none' for data that are not images"
            )
        draws = [
            torch.rand((len(part), self.num_draws), generator=g, device=g.device, dtype=torch.float64).cpu()
            for part, g in zip(parts, generators, strict=True)
        ]
        changed = self.apply(images, torch.cat(draws))
        return list(changed.split([len(part) for part in parts]))


@final
@dataclass(frozen=True)
class NoAugmentation(AbstractAugmentation):
    """Leaves images, and anything else, as they are."""

    @property
    def num_draws(self) -> int:
        return 0

    def apply(self, images: Tensor, draws: Tensor) -> Tensor:
        return images


@final
@dataclass(frozen=True)
class Chain(AbstractAugmentation):
    """One augmentation after the other."""

    steps: tuple[AbstractAugmentation, ...]

    @property
    def num_draws(self) -> int:
        return sum(step.num_draws for step in self.steps)

    def apply(self, images: Images, draws: Tensor) -> Images:
        for step, own in zip(self.steps, draws.split([step.num_draws for step in self.steps], 1), strict=True):
            images = step.apply(images, own)
        return images


@final
@dataclass(frozen=True)
class CropFlip(AbstractAugmentation):
    """A flip left to right for every second image, then a crop after mirroring the borders outwards.

    Args:
        padding: how far, in pixels; by default an eighth of the width, rounded: 4 for 28 and 32 pixels.
        flip: whether to flip at all; not for digits and letters.
    """

    padding: int | None = None
    flip: bool = True

    def __post_init__(self) -> None:
        _check(self, padding=(0, math.inf))

    @property
    def num_draws(self) -> int:
        return 3

    def apply(self, images: Images, draws: Tensor) -> Images:
        padding = (images.shape[3] + 4) // 8 if self.padding is None else self.padding
        corner = (draws[:, 1:] * (2 * padding + 1)).floor()
        flip = (draws[:, 0] < 0.5) & self.flip
        left, top, chosen = to_device(torch.stack([corner[:, 0], corner[:, 1], flip]), images.device)
        return geometry.crop(images, left, top, padding=padding, flip=chosen)


@final
@dataclass(frozen=True)
class Cutout(AbstractAugmentation):
    """A square hole, its middle anywhere, its side uniform up to a part of the width, filled with one value."""

    largest: float = 0.5
    fill: int = 127

    def __post_init__(self) -> None:
        _check(self, largest=(0, 1), fill=(0, 255))

    @property
    def num_draws(self) -> int:
        return 3

    def apply(self, images: Images, draws: Tensor) -> Images:
        height, width = images.shape[2:]
        side = (draws[:, 0] * self.largest * width).round()
        left, top = ((u * size - side / 2).round() for u, size in ((draws[:, 1], width), (draws[:, 2], height)))
        left, top, side = to_device(torch.stack([left, top, side]), images.device)
        return geometry.cutout(images, left, top, side, fill=self.fill)


@final
@dataclass(frozen=True)
class RandomOperations(AbstractAugmentation):
    """Some operations of a pool, drawn with replacement, each with a magnitude uniform in its range.

    Args:
        pool: the operations to draw from.
        count: how many operations an image goes through.
    """

    pool: tuple[AbstractOperation, ...] = COLOUR_POOL
    count: int = 2

    def __post_init__(self) -> None:
        _check(self, count=(0, math.inf))
        if not self.pool:
            raise ValueError("a pool of operations must not be empty")

    @property
    def num_draws(self) -> int:
        return 3 * self.count

    def apply(self, images: Images, draws: Tensor) -> Images:
        choice, size, sign = draws.view(len(images), self.count, 3).unbind(2)
        chosen = (choice * len(self.pool)).long()
        return in_turn(images, self.pool, chosen, magnitudes(self.pool, chosen, size, sign))


@final
@dataclass(frozen=True)
class ResizedCrop(AbstractAugmentation):
    """A box of random area and shape, stretched to the size of the image.

    Args:
        smallest, largest: area of the box, as a part of the image.
        ratio: width to height lies between 1/ratio and ratio, its logarithm uniform.
        flip: whether every second image is flipped left to right.
        tries: how many boxes are drawn, the first that fits is taken; if none does, the last is cut to fit.
    """

    smallest: float = 0.2
    largest: float = 1.0
    ratio: float = 4 / 3
    flip: bool = True
    tries: int = 10

    def __post_init__(self) -> None:
        _check(self, smallest=(0, self.largest), largest=(self.smallest, 1), ratio=(1, math.inf), tries=(1, math.inf))

    @property
    def num_draws(self) -> int:
        return 3 + 2 * self.tries

    def apply(self, images: Images, draws: Tensor) -> Images:
        height, width = images.shape[2:]
        area = height * width * (self.smallest + (self.largest - self.smallest) * draws[:, 3 : 3 + self.tries])
        shape = torch.exp(math.log(self.ratio) * (2 * draws[:, 3 + self.tries :] - 1))
        wide, high = (area * shape).sqrt().round().clamp(min=1), (area / shape).sqrt().round().clamp(min=1)
        fits = (wide <= width) & (high <= height)
        fits[:, -1] = True
        first = fits.int().argmax(1, keepdim=True)
        wide, high = wide.gather(1, first)[:, 0].clamp(max=width), high.gather(1, first)[:, 0].clamp(max=height)
        left, top = (draws[:, 1] * (width - wide + 1)).floor(), (draws[:, 2] * (height - high + 1)).floor()
        flip = (draws[:, 0] < 0.5) & self.flip
        left, top, wide, high, chosen = to_device(torch.stack([left, top, wide, high, flip]), images.device)
        return geometry.resized_crop(images, left, top, wide, high, flip=chosen)


@final
@dataclass(frozen=True)
class ColourJitter(AbstractAugmentation):
    """Brightness, contrast, colour and hue, in an order of its own for every image, for a part of the images.

    Args:
        brightness, contrast, color: a factor is uniform in 1 ± this.
        hue: the colours turn by up to this part of the circle; needs three channels.
        probability: of an image to be changed at all.
    """

    brightness: float = 0.4
    contrast: float = 0.4
    color: float = 0.4
    hue: float = 0.1
    probability: float = 0.8

    def __post_init__(self) -> None:
        strength = (0, math.inf)
        _check(self, brightness=strength, contrast=strength, color=strength, hue=(0, 0.5), probability=(0, 1))

    @property
    def pool(self) -> tuple[AbstractOperation, ...]:
        """The operations whose strength is not zero."""
        factors = (
            ("brightness", self.brightness, operations.black),
            ("contrast", self.contrast, operations.mean_luminance),
            ("color", self.color, operations.luminance),
        )
        pool = [Blend(name, max(0.0, 1 - x), 1 + x, False, start) for name, x, start in factors if x > 0]
        return (*pool, Graded("hue", 0.0, self.hue, True, operations.hue)) if self.hue > 0 else tuple(pool)

    @property
    def num_draws(self) -> int:
        return 1 + 3 * len(self.pool)

    def apply(self, images: Images, draws: Tensor) -> Images:
        pool = self.pool
        order, size, sign = draws[:, 1:].view(len(images), 3, len(pool)).unbind(1)
        turn = order.argsort(dim=1, stable=True)  # every image its own permutation
        magnitude = magnitudes(pool, turn, size, sign)
        chosen = torch.where(draws[:, :1] < self.probability, turn, len(pool))
        if self.hue > 0:
            # Hue, the last of the pool, is dear: more steps, some of them empty, so that it is the same for all images.
            step = torch.arange(len(pool)) + len(pool) - 1 - turn.argmax(1, keepdim=True)
            steps = (len(images), 2 * len(pool) - 1)
            chosen = torch.full(steps, len(pool)).scatter_(1, step, chosen)
            magnitude = magnitude.new_zeros(steps).scatter_(1, step, magnitude)
        return in_turn(images, (*pool, Plain("identity")), chosen, magnitude)


@final
@dataclass(frozen=True)
class RandomGrey(AbstractAugmentation):
    """Some images lose their colours."""

    probability: float = 0.2

    def __post_init__(self) -> None:
        _check(self, probability=(0, 1))

    @property
    def num_draws(self) -> int:
        return 1

    def apply(self, images: Images, draws: Tensor) -> Images:
        return operations.grayscale(images, to_device(draws[:, 0] < self.probability, images.device))


def _check(augmentation: AbstractAugmentation, **ranges: tuple[float, float]) -> None:
    for name, (low, high) in ranges.items():
        value = getattr(augmentation, name)
        if value is not None and not low <= value <= high:
            kind = type(augmentation).__name__
            wanted = f"lie in {low:g} .. {high:g}" if high < math.inf else f"be at least {low:g}"
            raise ValueError(f"{kind}: {name} must {wanted}, got {value}")


def _strong(
    operations: int = 2, padding: int | None = None, flip: bool = True, cutout: float = 0.5, fill: int = 127
) -> AbstractAugmentation:
    return Chain((CropFlip(padding, flip), RandomOperations(COLOUR_POOL, operations), Cutout(cutout, fill)))


def _grey(operations: int = 2, cutout: float = 0.5, fill: int = 127) -> AbstractAugmentation:
    return Chain((RandomOperations(GREY_POOL, operations), Cutout(cutout, fill)))


def _grey_crop_flip(
    operations: int = 2, padding: int | None = None, flip: bool = True, cutout: float = 0.5, fill: int = 127
) -> AbstractAugmentation:
    return Chain((CropFlip(padding, flip), RandomOperations(GREY_POOL, operations), Cutout(cutout, fill)))


def _simclr(
    smallest: float = 0.2, flip: bool = True, jitter: float = 0.8, strength: float = 1.0, grey: float = 0.2
) -> AbstractAugmentation:
    colours = ColourJitter(0.4 * strength, 0.4 * strength, 0.4 * strength, 0.1 * strength, jitter)
    return Chain((ResizedCrop(smallest, flip=flip), colours, RandomGrey(grey)))


def _simclr_grey(
    smallest: float = 0.2, flip: bool = False, jitter: float = 0.8, strength: float = 1.0
) -> AbstractAugmentation:
    return Chain((ResizedCrop(smallest, flip=flip), ColourJitter(0.4 * strength, 0.4 * strength, 0, 0, jitter)))


def _crop(padding: int | None = None) -> AbstractAugmentation:
    return CropFlip(padding, flip=False)


AUGMENTATIONS: dict[str, Callable[..., AbstractAugmentation]] = {
    "none": NoAugmentation,
    "crop": _crop,
    "crop-flip": CropFlip,
    "strong": _strong,
    "grey": _grey,
    "grey-crop-flip": _grey_crop_flip,
    "simclr": _simclr,
    "simclr-grey": _simclr_grey,
}


def augmentation_from_name(name: str, **options: Any) -> AbstractAugmentation:
    """An augmentation by its name, with its options.

    >>> augmentation_from_name("crop-flip", padding=2)
    CropFlip(padding=2, flip=True)
    """
    return from_name("augmentation", AUGMENTATIONS, name, options)
