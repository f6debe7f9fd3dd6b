"""FGSM and IFGSM with everything open that a text may leave open; `paper_attacks.py` varies one thing at a time.

The plain reading is that of `gll.attacks.IFGSM`. Lengths are in normalised units, images in 0 .. 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from gll.attacks.graph_victim import GraphVictim
from gll.attacks.inputs import in_evaluation
from gll.attacks.objectives import prediction

MARKS = (1, 5, 10, 30)  # steps after which the error is measured
FLOOR = 1e-8  # of the authors' loss

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda logits, y: functional.cross_entropy(logits, y, reduction="sum"),
    "mean": functional.cross_entropy,
    "-log(p + 1e-8)": lambda logits, y: functional.nll_loss((logits.softmax(1) + FLOOR).log(), y, reduction="sum"),
    "softmax twice": lambda logits, y: functional.cross_entropy(logits.softmax(1), y, reduction="sum"),
}
GRADIENTS: dict[str, Callable[[GraphVictim, Tensor], Tensor]] = {
    "surrogate": lambda victim, z: _lent(victim, z),
    "exact": lambda victim, z: victim.log_probabilities(z),
    "classifier": lambda victim, z: _surrogate(victim)(z),
}
"""Of a graph: its values with the slope of its last linear layer; its own; that layer alone, judged by the graph."""


@final
@dataclass(frozen=True)
class Reading:
    """A way to read the protocol.

    Args:
        title: what is unlike the plain reading.
        alpha: length of a step.
        pixels: alpha is in pixel units.
        steps: how many.
        box: what pixels are clipped to, in 0 .. 1: "pixels"; "none"; "normalised": the paper's formula, taken for
            normalised images, min(1, x + ε, max(0, x - ε, z)).
        random_start: begin at a uniform point of the ball.
        predicted: lead away from the predicted class, not from the true one.
        loss: of `LOSSES`.
        dropout: follow the gradient of the network with its dropout at work.
        adding_up: the sum of all gradients so far decides the sign.
        all_move: images that are classified wrongly move, too.
        chunk: images at a time; 0: all.
        gradient: of `GRADIENTS`, for WNLL.
    """

    title: str = "plain"
    alpha: float = 0.05
    pixels: bool = False
    steps: int = 30
    box: str = "pixels"
    random_start: bool = False
    predicted: bool = False
    loss: str = "sum"
    dropout: bool = False
    adding_up: bool = False
    all_move: bool = False
    chunk: int = 0
    gradient: str = "surrogate"


PLAIN = Reading()
LINEAR_READINGS = {
    reading.title: reading
    for reading in (
        PLAIN,
        Reading("no box: the ε-ball alone", box="none"),
        Reading("box 0 .. 1 of normalised images, as the formula has it", box="normalised"),
        Reading("α = 0.05 of the pixel range", pixels=True),
        Reading("α = 0.01", alpha=0.01),
        Reading("random start", random_start=True),
        Reading("away from the predicted class", predicted=True),
        Reading("loss averaged, not summed", loss="mean"),
        Reading("loss -log(p + 1e-8)", loss="-log(p + 1e-8)"),
        Reading("cross-entropy of probabilities (softmax twice)", loss="softmax twice"),
        Reading("dropout at work", dropout=True),
        Reading("gradients add up over the steps", adding_up=True),
        Reading("images already wrong move, too", all_move=True),
    )
}
GRAPH_READINGS = {
    "plain": PLAIN,
    **{
        title: LINEAR_READINGS[title]
        for title in (
            "no box: the ε-ball alone",
            "gradients add up over the steps",
            "cross-entropy of probabilities (softmax twice)",
            "dropout at work",
            "α = 0.01",
            "away from the predicted class",
            "random start",
            "images already wrong move, too",
            "box 0 .. 1 of normalised images, as the formula has it",
            "loss averaged, not summed",
        )
    },
    "1,000 test images at a time": Reading("1,000 test images at a time", chunk=1000),
}


@final
class Subject:
    """A network under attack.

    Args:
        victim: as `gll.attacks.victims.victim_of` makes it.
    """

    def __init__(self, victim: nn.Module) -> None:
        self.victim = victim

    @torch.no_grad()
    def predicted(self, images: Tensor, labels: Tensor) -> Tensor:
        """The classes, by the network as it is used."""
        with in_evaluation(self.victim):
            return prediction(self.victim(images), labels)

    def slope(self, images: Tensor, reading: Reading) -> Tensor:
        """Logits whose gradient is followed."""
        for part in self.victim.modules():
            if isinstance(part, nn.Dropout):
                part.train(reading.dropout)
        if not isinstance(self.victim, GraphVictim):
            out: Tensor = self.victim(images)
            return out
        z = self.victim.encoder(images)
        gradient = reading.gradient if self.victim.surrogate is not None else "exact"
        return GRADIENTS[gradient](self.victim, z)


def _surrogate(victim: GraphVictim) -> nn.Module:
    assert victim.surrogate is not None
    return victim.surrogate


def _lent(victim: GraphVictim, z: Tensor) -> Tensor:
    with torch.no_grad():
        value = victim.log_probabilities(z.detach())
    lent = _surrogate(victim)(z)
    return value + (lent - lent.detach()).to(value.dtype)


@final
@dataclass(frozen=True)
class Found:
    """Errors before, and after so many steps; and how many first gradients are zero. All in percent."""

    natural: float
    errors: dict[int, float]
    zero_gradients: float


def error_after(
    subject: Subject, images: Tensor, labels: Tensor, reading: Reading, eps: float, *, unit: float, mean: float
) -> Found:
    """Attack all images.

    Args:
        subject: the network.
        images, labels: in 0 .. 1, and their true classes.
        reading: how.
        eps: radius of the ball, in normalised units.
        unit, mean: standard deviation and mean of a pixel.
    """
    marks = sorted({mark for mark in MARKS if mark < reading.steps} | {reading.steps})
    wrong = dict.fromkeys([0, *marks], 0)
    flat = right = 0
    generator = torch.Generator().manual_seed(0)
    for x, y in zip(
        images.split(reading.chunk or len(images)), labels.split(reading.chunk or len(labels)), strict=True
    ):
        clean = subject.predicted(x, y)
        wrong[0] += int((clean != y).sum())
        still = _wide((clean != y) & (not reading.all_move), x)
        moved, total = x, torch.zeros_like(x)
        if reading.random_start:
            start = (2 * torch.rand(x.shape, generator=generator) - 1).to(x) * eps * unit
            moved = torch.where(still, x, _clipped(x + start, x, eps, reading, unit, mean))
        step = reading.alpha * (1 if reading.pixels else unit)
        for number in range(1, reading.steps + 1):
            gradient = _gradient(subject, moved, clean if reading.predicted else y, reading)
            if number == 1:
                flat += int((gradient.flatten(1) == 0).all(1)[clean == y].sum())
                right += int((clean == y).sum())
            total = total + gradient if reading.adding_up else gradient
            moved = torch.where(still, x, _clipped(moved + step * total.sign(), x, eps, reading, unit, mean))
            if number in marks:
                wrong[number] += int((subject.predicted(moved, y) != y).sum())
    natural, *after = (100 * count / len(images) for count in wrong.values())
    return Found(natural, dict(zip(marks, after, strict=True)), 100 * flat / max(right, 1))


def _gradient(subject: Subject, images: Tensor, labels: Tensor, reading: Reading) -> Tensor:
    x = images.detach().requires_grad_()
    with torch.enable_grad():
        loss = LOSSES[reading.loss](subject.slope(x, reading), labels)
        (gradient,) = torch.autograd.grad(loss, x)
    if not bool(torch.isfinite(gradient).all()):
        raise ValueError(f"{reading.title}: the gradient is not finite")
    return gradient


def _clipped(moved: Tensor, images: Tensor, eps: float, reading: Reading, unit: float, mean: float) -> Tensor:
    """In the order of the paper's formula: first from below, then from above."""
    boxes = {"pixels": (0.0, 1.0), "none": (-math.inf, math.inf), "normalised": (mean, mean + unit)}
    low, high = boxes[reading.box]
    x, radius = images.double(), eps * unit
    lower, upper = (x - radius).clamp(min=low), (x + radius).clamp(max=high)
    return torch.minimum(torch.maximum(moved.double(), lower), upper).to(images.dtype)


def _wide(mask: Tensor, images: Tensor) -> Tensor:
    return mask.view(-1, *(1 for _ in images.shape[1:]))
