"""Encoders: networks from images to features, without a classifier.

The networks of the paper, each with exactly its number of parameters, and a way to use any other: `headless` takes the
classifier off a model of torchvision, timm or your own. Every encoder has a `feature_dim`.

    encoder = create_encoder("resnet18")            # (n, 3, h, w) -> (n, 512)
    encoder = headless(torchvision.models.resnet50())

Weights start as PyTorch draws them. Read next: `headless.py`, and `heads.py`, which classifies the features.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from gll.names import require_name, require_options
from gll.nn.headless import Headless, headless

__all__ = ["ENCODERS", "BasicBlock", "Encoder", "Headless", "PreActBlock", "create_encoder", "headless"]


@final
class Encoder(nn.Module):
    """A network from images (n, c, h, w), or points (n, d), to features (n, feature_dim).

    Args:
        layers: the network.
        feature_dim: how many numbers it makes of a sample.
        in_channels: c, or d.
        points: whether it takes points rather than images.
        image_size: the height and width it is made for; None: any from `least_size` on.
        least_size: smallest height and width.

    Differentiable in: its input and its parameters.
    """

    def __init__(
        self,
        layers: nn.Module,
        feature_dim: int,
        in_channels: int,
        *,
        points: bool = False,
        image_size: int | None = None,
        least_size: int = 1,
    ) -> None:
        super().__init__()
        self.layers, self.feature_dim, self.in_channels = layers, feature_dim, in_channels
        self.points, self.image_size, self.least_size = points, image_size, least_size

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, feature_dim)."""
        self._check(x)
        features: Tensor = self.layers(x)
        return features

    def _check(self, x: Tensor) -> None:
        form = f"(n, {self.in_channels})" if self.points else f"(n, {self.in_channels}, h, w)"
        if x.dim() != (2 if self.points else 4) or x.shape[1] != self.in_channels:
            raise ValueError(f"this encoder takes {form}, got {tuple(x.shape)}; see in_channels of create_encoder")
        if not x.is_floating_point():
            raise TypeError(f"an encoder takes floating point numbers, got {x.dtype}; use gll.data.normalize first")
        if self.points:
            return
        size = tuple(x.shape[2:])
        if self.image_size is not None and size != (self.image_size, self.image_size):
            raise ValueError(
                f"this encoder is made for images of {self.image_size} × {self.image_size}, got {size[0]} × {size[1]}; "
                f"make it with image_size={size[0]}"
            )
        if min(size) < self.least_size:
            raise ValueError(
                f"this encoder needs images of at least {self.least_size} × {self.least_size}, got "
                f"{size[0]} × {size[1]}; pad them (TrainTest.padded)"
            )


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias, as batch normalisation follows or precedes it."""
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)


@final
class BasicBlock(nn.Module):
    """conv-norm-relu-conv-norm, plus the input (through a 1x1 convolution where the shape changes), relu."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
        self.conv1, self.norm1 = _conv(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = _conv(outputs, outputs), nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


@final
class PreActBlock(nn.Module):
    """norm-relu-conv-norm-relu-conv, plus the input; the 1x1 convolution, where there is one, sees the first relu."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        changes = stride != 1 or inputs != outputs
        self.shortcut = _conv(inputs, outputs, 1, stride) if changes else None
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), _conv(inputs, outputs, stride=stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(outputs), _conv(outputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(x))
        kept = x if self.shortcut is None else self.shortcut(y)
        return self.conv2(torch.relu(self.norm2(self.conv1(y)))) + kept


def _stages(block: Callable[[int, int, int], nn.Module], widths: tuple[int, ...], each: int) -> Iterator[nn.Module]:
    """`each` blocks of every width; every width but the first halves the image."""
    inputs = widths[0]
    for stage, width in enumerate(widths):
        for i in range(each):
            yield block(inputs, width, 2 if stage > 0 and i == 0 else 1)
            inputs = width


def _pool() -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def _resnet(in_channels: int, *, widths: tuple[int, ...], each: int) -> Encoder:
    stem = [_conv(in_channels, widths[0]), nn.BatchNorm2d(widths[0]), nn.ReLU()]
    return Encoder(nn.Sequential(*stem, *_stages(BasicBlock, widths, each), *_pool()), widths[-1], in_channels)


def _thin(depth: int) -> Callable[..., Encoder]:
    """ResNets of 16, 32 and 64 channels: a stem, three stages of two convolutions a block, and the classifier."""
    return partial(_resnet, widths=(16, 32, 64), each=(depth - 2) // 6)


class _Counted(nn.Identity):
    """Does nothing. Holds the classifier that the paper counts with its encoder, though it lies beside the path."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.unused = nn.Linear(inputs, outputs).requires_grad_(False)


def _preact(in_channels: int, *, paper: bool) -> Encoder:
    widths = (64, 128, 256, 512)
    end: list[nn.Module] = [_Counted(512, 10)] if paper else [nn.BatchNorm2d(512), nn.ReLU()]
    layers = nn.Sequential(_conv(in_channels, 64), *_stages(PreActBlock, widths, 2), *end, *_pool())
    return Encoder(layers, 512, in_channels)


def _vgg(in_channels: int, *, convolutions: tuple[int, ...]) -> Encoder:
    """`convolutions` of 64, 128, 256, 512 and 512 channels, each group followed by a pooling."""
    layers, inputs = list[nn.Module](), in_channels
    for width, number in zip((64, 128, 256, 512, 512), convolutions, strict=True):
        for _ in range(number):
            layers += [_conv(inputs, width), nn.BatchNorm2d(width), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return Encoder(nn.Sequential(*layers, *_pool()), 512, in_channels, least_size=32)


def _fashion_cnn(in_channels: int, *, image_size: int = 28) -> Encoder:
    """The deliberately large network of the paper's FashionMNIST study."""
    side = _side(image_size // 4, image_size)
    layers = nn.Sequential(
        *(nn.Conv2d(in_channels, 64, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256 * side * side, 128), nn.ReLU()),
    )
    return Encoder(layers, 128, in_channels, image_size=image_size)


def _small_cnn(in_channels: int, *, image_size: int = 28, dropout: float = 0.5) -> Encoder:
    """Four unpadded convolutions and two linear layers: the network of the MNIST experiments."""
    side = _side(((image_size - 4) // 2 - 4) // 2, image_size)
    layers = nn.Sequential(
        *(nn.Conv2d(in_channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * side * side, 200), nn.ReLU(), nn.Dropout(dropout)),
        *(nn.Linear(200, 200), nn.ReLU()),
    )
    return Encoder(layers, 200, in_channels, image_size=image_size)


def _digits_cnn(in_channels: int, *, image_size: int = 8, feature_dim: int = 64) -> Encoder:
    """A network of a few milliseconds, for images of 8 × 8."""
    side = _side(image_size // 2, image_size)
    layers = nn.Sequential(
        *(_conv(in_channels, 16), nn.BatchNorm2d(16), nn.ReLU()),
        *(_conv(16, 32), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * side * side, feature_dim)),
    )
    return Encoder(layers, feature_dim, in_channels, image_size=image_size)


def _mlp(in_channels: int, *, width: int = 64, depth: int = 2, feature_dim: int = 2) -> Encoder:
    """`depth` layers of `width`, relu between, for points: with two inputs the 2-64-64-2 of the two moons."""
    layers, inputs = list[nn.Module](), in_channels
    for _ in range(depth):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return Encoder(nn.Sequential(*layers, nn.Linear(inputs, feature_dim)), feature_dim, in_channels, points=True)


def _side(side: int, image_size: int) -> int:
    if side < 1:
        raise ValueError(f"image_size={image_size} is too small: nothing is left after the poolings")
    return side


ENCODERS: dict[str, Callable[..., Encoder]] = {
    **{f"resnet{depth}": _thin(depth) for depth in (20, 32, 44, 56, 110)},
    "resnet18": partial(_resnet, widths=(64, 128, 256, 512), each=2),
    "preactresnet18": partial(_preact, paper=False),
    "preactresnet18-paper": partial(_preact, paper=True),
    "vgg11": partial(_vgg, convolutions=(1, 1, 2, 2, 2)),
    "vgg13": partial(_vgg, convolutions=(2, 2, 2, 2, 2)),
    "fashion-cnn": _fashion_cnn,
    "small-cnn": _small_cnn,
    "digits-cnn": _digits_cnn,
    "mlp": _mlp,
}
"""Every encoder by its name."""


def create_encoder(name: str, in_channels: int = 3, **options: Any) -> Encoder:
    """An encoder by its name.

    Args:
        name: one of `ENCODERS`: resnet20, 32, 44, 56, 110 and 18, preactresnet18 (preactresnet18-paper lacks the final
            normalisation, and holds an unused linear layer that the paper counts), vgg11, vgg13, fashion-cnn,
            small-cnn, digits-cnn, mlp.
        in_channels: channels of the images; for mlp the dimensions of the points.
        options: `image_size` of fashion-cnn, small-cnn (also `dropout`) and digits-cnn (also `feature_dim`); `width`,
            `depth` and `feature_dim` of mlp.

    Raises:
        ValueError: no such encoder, or no such option.

    Differentiable in: nothing; the encoder is, in its input and its parameters.

    >>> encoder = create_encoder("resnet20", in_channels=1)
    >>> encoder(torch.zeros(4, 1, 28, 28)).shape
    torch.Size([4, 64])
    >>> sum(p.numel() for p in create_encoder("resnet18").parameters())
    11168832
    """
    require_name("encoder", name, ENCODERS, "; of your own: headless(module), or package.module:function in a config")
    if not isinstance(in_channels, int) or in_channels < 1:
        raise ValueError(f"in_channels must be a whole number, at least 1, got {in_channels!r}")
    make = ENCODERS[name]
    fixed = make.keywords if isinstance(make, partial) else {}
    valid = [option for option in inspect.signature(make).parameters if option not in {"in_channels", *fixed}]
    require_options("encoder", name, options, valid)
    return make(in_channels, **options)
