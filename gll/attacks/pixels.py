"""From pixels in 0 .. 1 to what a network was trained on: (pixel - mean)/std, as part of the attacked model.

An attack's ε is in pixels and its box is 0 .. 1, so a model that normalises must do so inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn


@final
class Normalized(nn.Module):
    """A model of images in 0 .. 1: normalises them, in the precision of the model's parameters, and calls it.

    Args:
        model: takes normalised images.
        mean, std: one number for every channel, in units where white is 1; None: 0 and 1.

    Differentiable in: the images, and the parameters of the model.

    >>> model = Normalized(nn.Flatten(), mean=[0.5], std=[0.25])
    >>> model(torch.tensor([[[[0.5, 1.0]]]])).tolist()
    [[0.0, 2.0]]
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, model: nn.Module, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        for name, value in (("mean", mean), ("std", std)):
            if not (value is None or isinstance(value, Iterable)) or isinstance(value, str):
                raise TypeError(f"{name} must be a list of numbers, one a channel, such as [0.1307], got {value!r}")
        mean, std = [0.0] if mean is None else list(mean), [1.0] if std is None else list(std)
        if len(mean) != len(std) and 1 not in (len(mean), len(std)):
            raise ValueError(f"mean and std need one number for every channel, got {len(mean)} and {len(std)}")
        if not all(s > 0 for s in std):
            raise ValueError(f"std must be above 0, got {std}")
        self.model = model
        like = next(model.parameters(), torch.empty(()))
        # In double precision: they are rounded once, to the precision of the model, and not before.
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float64, device=like.device), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float64, device=like.device), persistent=False)

    def forward(self, images: Float[Tensor, "n *sample"]) -> Tensor:
        """What the model says of images in 0 .. 1."""
        like = next(self.model.parameters(), images)
        x = images.to(like.dtype)
        if max(len(self.mean), len(self.std)) not in (1, x.shape[1]):
            raise ValueError(
                f"images have {x.shape[1]} channels, mean and std {max(len(self.mean), len(self.std))}; shapes are "
                "(n, channels, height, width)"
            )
        shape = (-1, *(1 for _ in x.shape[2:]))
        out: Tensor = self.model((x - self.mean.to(x).view(shape)) / self.std.to(x).view(shape))
        return out
