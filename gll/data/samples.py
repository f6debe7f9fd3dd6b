"""Samples for training and testing, as tensors that stay on the device; how pixels become the input of a network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from jaxtyping import Float, Int64, Num, UInt8
from torch import Tensor

from gll.words import counted


@final
@dataclass(frozen=True, eq=False)
class TrainTest:
    """Samples to train on and samples to test on.

    Args:
        name: what it is called.
        train: images (n, c, h, w) of bytes (uint8), or points (n, d) in float32.
        train_labels: classes (n,), -1 where the class is not known.
        test, test_labels: the same for testing, where every class is known; may be empty.
        classes: their names.
        mean, std: of every channel, in units where black is 0 and white is 1. (0 and 1 for points.)

    >>> from gll.data import load
    >>> data = load("digits")
    >>> data.train.shape, data.train.dtype, data.num_classes
    (torch.Size([1442, 1, 8, 8]), torch.uint8, 10)
    >>> data.padded(32).test.shape
    torch.Size([355, 1, 32, 32])

    Differentiable in: nothing.
    """

    name: str
    train: Num[Tensor, "n *sample"]
    train_labels: Int64[Tensor, " n"]
    test: Num[Tensor, "m *sample"]
    test_labels: Int64[Tensor, " m"]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        kind = (self.train.dim(), self.train.dtype)
        if kind not in ((4, torch.uint8), (2, torch.float32)):
            raise TypeError(
                "samples are images (n, c, h, w) of bytes (uint8) or points (n, d) in float32, got "
                f"{self.train.dtype} of shape {tuple(self.train.shape)}"
            )
        if self.test.dtype != self.train.dtype or self.test.shape[1:] != self.train.shape[1:]:
            raise ValueError(
                f"{self.name}: training samples are {self.train.dtype} of shape {tuple(self.train.shape[1:])}, test "
                f"samples {self.test.dtype} of shape {tuple(self.test.shape[1:])}"
            )
        if not (len(self.mean) == len(self.std) == self.channels and all(s > 0 for s in self.std)):
            raise ValueError(
                f"{self.name}: mean and std (above 0) need one number for each of {counted(self.channels, 'channel')}"
            )
        for part, x, y, lowest in (
            ("train", self.train, self.train_labels, -1),
            ("test", self.test, self.test_labels, 0),
        ):
            if y.dtype != torch.int64 or y.shape != x.shape[:1]:
                raise ValueError(
                    f"{self.name}: {part} has {counted(len(x), 'sample')}, but labels of {y.dtype}, shape "
                    f"{tuple(y.shape)}"
                )
            if len(y) and not lowest <= int(y.min()) <= int(y.max()) < len(self.classes):
                raise ValueError(
                    f"{self.name}: {part} labels must lie in {lowest} .. {len(self.classes) - 1}, got values from "
                    f"{int(y.min())} to {int(y.max())}"
                )

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @property
    def channels(self) -> int:
        """Channels of an image, or dimensions of a point."""
        return int(self.train.shape[1])

    @property
    def is_image(self) -> bool:
        """Whether samples are images; points otherwise."""
        return self.train.dim() == 4

    @cached_property
    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """What `normalize` multiplies bytes by, and then adds, for every channel, on the device of the data.

        Kept, since a small tensor made anew for every batch would make a GPU wait for its copy.
        """
        mean, std = (torch.tensor(v, dtype=torch.float64)[:, None, None] for v in (self.mean, self.std))
        device = self.train.device
        return (1 / (255 * std)).float().to(device), (-mean / std).float().to(device)

    def summary(self) -> list[str]:
        """What is in it, in lines for a person: how many of what size, and how many of each class."""
        if self.is_image:
            h, w = self.train.shape[2:]
            colour = {1: "grey", 3: "colour"}.get(self.channels, f"{self.channels} channels")
            kind = f"images: {h}×{w} pixels, {colour}; mean {_few(self.mean)}, std {_few(self.std)}"
        else:
            kind = f"points: {counted(self.channels, 'dimension')}"
        known = int((self.train_labels >= 0).sum())
        lines = [
            f"{self.name}: {len(self.train):,} for training ({known:,} have a class), {len(self.test):,} for testing",
            kind,
        ]
        counts = [torch.bincount(y[y >= 0], minlength=self.num_classes) for y in (self.train_labels, self.test_labels)]
        for name, train, test in zip(self.classes, *(count.tolist() for count in counts), strict=True):
            lines.append(f"  {name}: {train:,} for training, {test:,} for testing")
        return lines

    def to(self, device: torch.device | str) -> TrainTest:
        """The same on another device."""
        names = ("train", "train_labels", "test", "test_labels")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def padded(self, size: int) -> TrainTest:
        """Images of size × size with a black border around them, e.g. from 28 to 32; mean and std stay as they are."""
        if not self.is_image:
            raise ValueError(f"{self.name} has points, not images: there is nothing to pad")
        h, w = self.train.shape[2:]
        if size < max(h, w):
            raise ValueError(f"{self.name}: images of {h} × {w} pixels cannot be padded to {size} × {size}")
        top, left = (size - h) // 2, (size - w) // 2
        border = (left, size - w - left, top, size - h - top)
        train, test = (torch.nn.functional.pad(x, border) for x in (self.train, self.test))
        return replace(self, train=train, test=test)


def normalize(images: Num[Tensor, "b *sample"], data: TrainTest) -> Float[Tensor, "b *sample"]:
    """Images as a network takes them: (pixel - mean)/std for every channel, in float32, on the images' device.

    Args:
        images: bytes (uint8) from 0 to 255, or floats from 0 to 1. Points pass unchanged.
        data: what they are from; gives mean and std.

    >>> from gll.data import load
    >>> data = load("digits")
    >>> x = normalize(data.train, data)
    >>> abs(x.mean().item()) < 1e-5, f"{x.std().item():.3f}"
    (True, '1.000')

    Differentiable in: `images`, where they are floats.
    """
    if not data.is_image:
        return images.to(torch.float32)
    if images.dim() != 4 or images.shape[1] != data.channels:
        raise ValueError(
            f"images of {data.name} have shape (n, {data.channels}, height, width), got {tuple(images.shape)}"
        )
    scale, shift = (t.to(images.device) for t in data.scale_and_shift)
    if images.is_floating_point():
        return images.to(torch.float32) * (255 * scale) + shift
    if images.dtype != torch.uint8:
        raise TypeError(f"images are bytes (uint8) from 0 to 255, or floats from 0 to 1; got {images.dtype}")
    return images.to(torch.float32) * scale + shift


def channel_statistics(images: UInt8[Tensor, "n c h w"]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel, black being 0 and white 1; the deviation of a flat channel is 1.

    Args:
        images: the training images.

    Differentiable in: nothing.
    """
    n = images.shape[0] * images.shape[2] * images.shape[3]
    if n == 0:
        raise ValueError(f"no pixels: the images have shape {tuple(images.shape)}")
    total, square = (torch.zeros(images.shape[1], dtype=torch.float64, device=images.device) for _ in range(2))
    for part in images.split(max(1, 300_000 * len(images) // images.numel())):  # parts that stay in a CPU's cache
        x = part.to(torch.float64)
        total += x.sum((0, 2, 3))
        square += x.square_().sum((0, 2, 3))
    # The sums are whole numbers below 2⁵³, hence exact, and so is the variance until the last division.
    mean, std = [], []
    for s, q in zip(map(int, total.tolist()), map(int, square.tolist()), strict=True):
        mean.append(s / (255 * n))
        std.append(math.sqrt((n * q - s * s) / n**2) / 255 or 1.0)
    return tuple(mean), tuple(std)


def _few(values: Sequence[float]) -> str:
    return ", ".join(f"{v:.4f}" for v in values[:3]) + (", ..." if len(values) > 3 else "")


def sorted_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names of classes in their order: as numbers where all are whole numbers, so that 10 comes after 9.

    >>> sorted_names(["10", "9", "1"]), sorted_names(["b", "10", "9"])
    (('1', '9', '10'), ('10', '9', 'b'))
    """
    if all(name.isascii() and name.isdigit() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))
