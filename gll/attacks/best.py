"""The best of all iterates: image by image, or as a whole where images depend on each other."""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gll.attacks.base import judge_of
from gll.attacks.objectives import Margin, prediction


@final
class Best:
    """Remembers, for every image, the iterate that is wrong by the largest margin.

    In a graph an image that was wrong beside one set of others may be right beside another. So the iterate that has the
    most errors as a whole is remembered as well, and at the end the better of the two is returned.
    """

    def __init__(self, images: Float[Tensor, "n ..."], labels: Int[Tensor, " n"]) -> None:
        self._labels = labels
        self._mixed, self._whole = images.clone(), images
        self._wrong = torch.zeros_like(labels, dtype=torch.bool)
        self._margin = torch.full(labels.shape, -float("inf"), dtype=torch.float64, device=labels.device)
        self._errors = -1

    def see(self, images: Float[Tensor, "n ..."], logits: Float[Tensor, "n classes"]) -> None:
        """Compare an iterate with the best so far."""
        margin = Margin()(logits.detach(), self._labels).double()
        wrong = prediction(logits, self._labels) != self._labels
        better = (wrong & ~self._wrong) | ((wrong == self._wrong) & (margin > self._margin))
        self._mixed[better] = images.detach()[better]
        self._wrong |= wrong
        self._margin = torch.where(better, margin, self._margin)
        errors = int(wrong.sum())
        if errors > self._errors:
            self._errors, self._whole = errors, images.detach()

    def look(self, model: nn.Module, images: Float[Tensor, "n ..."]) -> None:
        """Compare an iterate that the model, or its judge, has not seen yet."""
        with torch.no_grad():
            self.see(images, judge_of(model)(images))

    @property
    def all_wrong(self) -> bool:
        """Whether some iterate is wrong for every image."""
        return bool(self._wrong.all())

    def images(self, model: nn.Module) -> Float[Tensor, "n ..."]:
        """The best of each image, or the best whole iterate where that has more errors."""
        with torch.no_grad():
            errors = int((prediction(judge_of(model)(self._mixed), self._labels) != self._labels).sum())
        return self._mixed if errors >= self._errors else self._whole
