"""Images of the next training steps, augmented several batches at a time.

An augmentation is a hundred small kernels. On a GPU their launches take the time, not the pixels, so that many batches
are made together. Each step draws from its own generator, and images are changed one by one: the images of a step are
the same to the last bit, however many were made with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

import torch
from jaxtyping import Int
from torch import Tensor

from gll.data.augment import AbstractAugmentation
from gll.data.random import generator
from gll.data.samples import TrainTest
from gll.data.sampling import Batch

TOGETHER = 8192
"""Images at once on a GPU, at most, if that is more than one batch; on a CPU batches go one by one."""


@final
class Ahead:
    """Makes the images of training steps.

    Args:
        data: what the batches are taken from; the images of its training part are on the training device.
        augment: how images are changed.
        seed, rank: that chance depends on, beside epoch and step.
        together: images at once; None: `TOGETHER` on a GPU.
    """

    def __init__(
        self, data: TrainTest, augment: AbstractAugmentation, seed: int, rank: int, together: int | None = None
    ) -> None:
        self.data, self.augment, self.seed, self.rank = data, augment, seed, rank
        default = TOGETHER if data.train.is_cuda and augment.num_draws > 0 else 0
        self.together = default if together is None else together
        self.ready: dict[tuple[int, int], Tensor] = {}

    def steps(self, batches: Iterable[Batch], epoch: int, done: int) -> Iterator[tuple[int, Batch]]:
        """The steps of an epoch that are still to be done. Images of several are made before the first of them."""
        self.ready.clear()
        waiting: list[tuple[int, Batch]] = []
        for step, batch in enumerate(batches):
            if step < done:
                continue  # before the run was stopped
            if waiting and sum(len(b) for _, b in waiting) + len(batch) > self.together:
                self._make(waiting, epoch)
                yield from waiting
                waiting = []
            waiting.append((step, batch))
        self._make(waiting, epoch)
        yield from waiting

    def images(self, index: Int[Tensor, " nodes"], epoch: int, step: int) -> Tensor:
        """The images of a step: made before, or now.

        Args:
            index: the nodes of its batch, on the device of the images.
            epoch, step: which step it is.

        Differentiable in: nothing.
        """
        if (epoch, step) in self.ready:
            return self.ready.pop((epoch, step))
        images = self.data.train[index]
        return self.augment(images, self._chance(epoch, step)) if self.data.is_image else images

    def _make(self, waiting: list[tuple[int, Batch]], epoch: int) -> None:
        if len(waiting) < 2 or not self.data.is_image:
            return
        device = self.data.train.device
        parts = [self.data.train[batch.nodes.to(device, non_blocking=True)] for _, batch in waiting]
        made = self.augment.together(parts, [self._chance(epoch, step) for step, _ in waiting])
        self.ready = {(epoch, step): images for (step, _), images in zip(waiting, made, strict=True)}

    def _chance(self, epoch: int, step: int) -> torch.Generator:
        return generator(self.seed, "augment", epoch, step, self.rank)
