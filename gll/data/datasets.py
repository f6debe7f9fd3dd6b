"""Images and classes for training, as tensors that stay on the device: `load("mnist")`, `load("my/folder")`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import final

import torch
from torch import Tensor


@final
@dataclass(frozen=True, eq=False)
class TrainTest:
    """Samples to train on and samples to test on.

    Args:
        name: what it is called.
        train: uint8 (n, c, h, w) images, or float32 (n, d) points.
        train_labels: int64 (n,) classes, -1 where the class is not known.
        test, test_labels: the same for testing; may be empty.
        classes: their names.
        mean, std: of every channel, in units where black is 0 and white is 1. (0 and 1 for points.)

    Differentiable in: nothing.
    """

    name: str
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def channels(self) -> int:
        """Channels of an image, or dimensions of a point."""
        return int(self.train.shape[1])

    @property
    def is_image(self) -> bool:
        return self.train.dim() == 4

    @cached_property
    def scale_and_shift(self) -> tuple[Tensor, Tensor]:
        """What `normalize` multiplies pixels in 0 .. 255 by, and then adds, per channel, on the device of the data."""
        mean, std = (torch.tensor(v, dtype=torch.float64) for v in (self.mean, self.std))
        shape = (-1, 1, 1) if self.is_image else (-1,)
        pair = (1 / (255 * std), -mean / std)
        scale, shift = (t.to(torch.float32).to(self.train.device).view(shape) for t in pair)
        return scale, shift

    def to(self, device: torch.device | str) -> TrainTest:
        """The same on another device."""
        names = ("train", "train_labels", "test", "test_labels")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})

    def padded(self, size: int) -> TrainTest:
        """Images of size × size with a black border all around, e.g. 28 -> 32; the image stays in the middle."""
        if not self.is_image:
            raise ValueError(f"{self.name} has points, not images: there is nothing to pad")
        h, w = self.train.shape[2:]
        if size < max(h, w):
            raise ValueError(f"images of {h} × {w} pixels cannot be padded to {size} × {size}")
        top, left = (size - h) // 2, (size - w) // 2
        border = (left, size - w - left, top, size - h - top)
        train, test = (torch.nn.functional.pad(x, border) for x in (self.train, self.test))
        return replace(self, train=train, test=test)


def load(name: str, root: Path | None = None) -> TrainTest:
    """A data set by name, or from a path."""
    if name != "digits":
        raise NotImplementedError(f"{name} {root}")
    import numpy as np
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    images = torch.from_numpy(np.round(x * (255 / 16)).astype(np.uint8)).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(y).long()
    # Every fifth image of each class is for testing: stratified, and without a draw that could change.
    rank = (labels[:, None] == torch.arange(10)).cumsum(0).gather(1, labels[:, None])[:, 0]
    test = rank % 5 == 0
    pixels = images[~test].double() / 255
    mean, std = float(pixels.mean()), float(pixels.std(correction=0))
    classes = tuple(map(str, range(10)))
    return TrainTest(name, images[~test], labels[~test], images[test], labels[test], classes, (mean,), (std,))


def data_root(given: Path | None = None) -> Path:
    """Where data sets lie: the folder given, or that of the environment variable GLL_DATA, or ./data."""
    return Path(given or os.environ.get("GLL_DATA") or "data")


def normalize(images: Tensor, data: TrainTest) -> Tensor:
    """Float32 images with mean 0 and standard deviation 1 over the training set, per channel; points as they are."""
    if not data.is_image:
        return images.to(torch.float32)
    scale, shift = (t.to(images.device) for t in data.scale_and_shift)
    if images.is_floating_point():
        return images.to(torch.float32) * (255 * scale) + shift
    return images.to(torch.float32) * scale + shift
