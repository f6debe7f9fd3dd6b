"""Non-finite numbers stop a run, with a diagnosis, and without waiting for the device at every step.

Each step notes a few sums on the device: one number that is finite if all it sums are. The notes are read every few
steps, together. So a bad step is found a little late, but its own notes say where it began. What the last step of an
epoch did to the parameters is noted too (`end`), and nothing is tested or written before the notes were read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import final

import torch
from torch import Tensor

STAGES = ("parameters", "inputs", "attack", "features", "logits", "loss", "gradient")
ADVICE = {
    "parameters": "an update has made them overflow: lower the learning rate (train.lr), or set train.clip=1",
    "inputs": "look for NaN or infinite values in the data, and at its mean and standard deviation",
    "attack": "the features or gradients of attacked images overflow, in evaluation mode: lower the learning rate "
    "(train.lr), set train.clip=1, or turn off train.autocast",
    "features": "the encoder overflows on finite inputs: lower the learning rate (train.lr), set train.clip=1, or turn "
    "off train.autocast",
    "logits": "the head fails on finite features: lower the learning rate (train.lr) or set train.clip=1",
    "loss": "the loss fails on finite logits: lower the learning rate (train.lr) or set train.clip=1",
    "gradient": "the backward pass overflows though the loss is finite: set train.clip=1, lower the learning rate "
    "(train.lr), or turn off train.autocast",
}


@final
class NonFiniteError(ArithmeticError):
    """Training met a NaN or an infinite number; the message says where, when and what to try."""


@final
class Notes:
    """A row of numbers a step, kept on the device: the sums of `STAGES`, then what the loop wants to average.

        notes.begin(step, lr)
        notes.note("loss", loss)
        ...
        for row in notes.read(epoch): ...  # every few steps: when notes.full

    A row holds what a step began with: its parameters are those before it. `end` notes those after the last.

    >>> notes = Notes("cpu", extra=("wrong",))
    >>> notes.begin(0, 0.1)
    >>> notes.note("loss", torch.tensor(2.0)); notes.note("wrong", torch.tensor(3))
    >>> notes.read(epoch=1)[0]["wrong"]
    3.0
    >>> notes.begin(1, 0.1)
    >>> notes.note("features", torch.tensor([1.0, float("nan")]))
    >>> notes.read(epoch=1)
    Traceback (most recent call last):
    gll.train.finite.NonFiniteError: the features are not finite at epoch 1, step 1, learning rate 0.1; ...
    """

    def __init__(self, device: str | torch.device, *, extra: tuple[str, ...] = (), size: int = 20) -> None:
        self.columns = {name: i for i, name in enumerate((*STAGES, *extra))}
        self.size = size
        # One more, for the end of an epoch.
        self.table = torch.zeros(size + 1, len(self.columns), dtype=torch.float64, device=device)
        self.steps: list[tuple[int, float]] = []

    def begin(self, step: int, lr: float) -> None:
        """Start the row of a step."""
        self.steps.append((step, lr))

    def end(self, step: int, lr: float, parameters: Iterable[Tensor]) -> None:
        """Note what the last step has made of parameters and statistics; a row in which all else is zero."""
        self.begin(step, lr)
        self.note("parameters", parameters)

    def note(self, name: str, values: Tensor | Iterable[Tensor]) -> None:
        """Note the sum of a tensor, or the norm of several."""
        with torch.no_grad():
            if isinstance(values, Tensor):
                number = values.sum(dtype=torch.float64 if values.is_floating_point() else None)
            else:
                tensors = list(values)
                if not tensors:
                    return
                number = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
            self.table[len(self.steps) - 1, self.columns[name]] = number

    def forget(self, *names: str) -> None:
        """Take back what was noted of the present step: it has turned out to be void."""
        self.table[len(self.steps) - 1, [self.columns[name] for name in names]] = 0

    @property
    def full(self) -> bool:
        """Whether it is time to read."""
        return len(self.steps) >= self.size

    def read(self, epoch: int) -> list[dict[str, float]]:
        """The rows since the last reading; this waits for the device.

        Raises:
            NonFiniteError: a number of `STAGES` is not finite in one of them.
        """
        table = self.table[: len(self.steps)].cpu().tolist()
        rows = [dict(zip(self.columns, row, strict=True)) for row in table]
        steps, self.steps = self.steps, []
        self.table.zero_()
        for (step, lr), row in zip(steps, rows, strict=True):
            for stage in STAGES:
                if not math.isfinite(row[stage]):
                    raise NonFiniteError(self._diagnosis(stage, epoch, step, lr, rows[: rows.index(row)]))
        return rows

    def _diagnosis(self, stage: str, epoch: int, step: int, lr: float, before: list[dict[str, float]]) -> str:
        verb = "is" if stage in ("attack", "loss", "gradient") else "are"
        text = f"the {stage} {verb} not finite at epoch {epoch}, step {step}, learning rate {lr:.3g}; {ADVICE[stage]}"
        if before:
            last = before[-1]
            text += f" (the step before: loss {last['loss']:.3g}, norm of the gradient {last['gradient']:.3g})"
        return text
