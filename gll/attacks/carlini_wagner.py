"""Carlini and Wagner's attack: the shortest change that makes the class wrong, found by descent.

Both forms descend, with Adam, on

    ‖δ‖₂² + c·g(x + δ),        x + δ = (tanh w + 1)/2,

where g is above 0 as long as the attack has not succeeded, and the variable w keeps pixels in [0, 1] by itself.

| | `CarliniWagnerPaper` | `CarliniWagner` |
|---|---|---|
| g | (max_{i≠t} p_i - p_t)⁺ on probabilities, t the clean runner-up | (z_y - max_{i≠y} z_i + κ)⁺ on logits |
| c | given | searched for, image by image |
| returned | the last iterate | the shortest success of all iterates |

The first is the paper's, for its table. The second is the standard attack, for judging a model: on probabilities g is
flat wherever the model is sure of itself, and the last iterate is rarely the best.

A pixel that is exactly 0 or 1 has w = ±∞. It is started a little inside, by `squeeze`, and hardly moves at first, since
tanh is flat there: a hundred steps of 0.005 do not take it anywhere. With squeeze = 1e-6 that is so for all the black
and white of a digit. It is part of why the paper's form is a weak attack.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gll.attacks.base import AbstractAttack
from gll.attacks.gradient import require_finite
from gll.attacks.norms import L2, AbstractNorm
from gll.attacks.objectives import Margin, runner_up


@final
@dataclass(frozen=True)
class CarliniWagnerPaper(AbstractAttack):
    """The paper's form: on probabilities, with c and the target held fixed; the last iterate.

    Args:
        c: how much success weighs against distance; the paper goes from 1 to 1000.
        steps: of Adam; the paper has 100 (CIFAR-10: 50).
        lr: the step length of Adam.
        squeeze: how far pixels start inside [0, 1], as a share of the distance to grey.

    >>> from torch import nn
    >>> _ = torch.manual_seed(0)
    >>> model, x, y = nn.Linear(4, 3), torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
    >>> few, many = (CarliniWagnerPaper(c)(model, x, y).l2.mean() for c in (1.0, 50.0))
    >>> bool(few < many)
    True
    """

    c: float
    steps: int = 100
    lr: float = 0.005
    squeeze: float = 1e-6
    eps: float = field(default=math.inf, init=False)
    norm: AbstractNorm = field(default_factory=L2, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.c < math.inf:
            raise ValueError(f"c must be a finite number ≥ 0, got {self.c}")
        _check(self.steps, self.lr, self.squeeze)

    @property
    def name(self) -> str:
        return "cw-paper"

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        with torch.no_grad():
            clean = model(images)
        target = runner_up(clean, clean.argmax(1))
        descent = _Descent(images, self.lr, self.squeeze)
        for _ in range(self.steps):
            with torch.enable_grad():
                moved = descent.images()
                p = torch.log_softmax(model(moved), 1).exp()
                # max_{i≠t} p_i - p_t is the margin, with t in the place of the true class.
                loss = _squared(moved - images) + self.c * Margin()(p, target).clamp(min=0)
                descent.step(loss)
        return descent.images().detach()


@final
@dataclass(frozen=True)
class CarliniWagner(AbstractAttack):
    """The standard form (Carlini, Wagner 2017): on logits, with a search for c; the shortest success of all iterates.

    An image for which there is no success is left as it was.

    Args:
        binary_steps: how many values of c are tried for every image: ten times more until one succeeds, then halfway
            between the smallest that did and the largest that did not.
        steps: of Adam, for each c.
        lr: the step length of Adam.
        confidence: κ ≥ 0, the margin by which the class has to be wrong.
        initial_c: the first value of c.
        squeeze: how far pixels start inside [0, 1], as a share of the distance to grey.
        polish: halvings of what is left of the way back to the clean image, once the best iterate is known.

    >>> from torch import nn
    >>> model = nn.Linear(2, 2)  # the boundary is x₀ = x₁
    >>> _ = model.load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    >>> CarliniWagner()(model, torch.tensor([[0.7, 0.3]]), torch.tensor([0])).l2  # 0.4/√2
    tensor([0.28...
    """

    binary_steps: int = 9
    steps: int = 200
    lr: float = 0.01
    confidence: float = 0.0
    initial_c: float = 1e-3
    squeeze: float = 1e-6
    polish: int = 10
    eps: float = field(default=math.inf, init=False)
    norm: AbstractNorm = field(default_factory=L2, init=False)

    def __post_init__(self) -> None:
        if self.binary_steps < 1 or self.polish < 0 or not 0 <= self.confidence < math.inf:
            raise ValueError(
                "CarliniWagner needs binary_steps ≥ 1, polish ≥ 0 and confidence ≥ 0, "
                f"got {self.binary_steps}, {self.polish} and {self.confidence}"
            )
        if not 0 < self.initial_c < math.inf:
            raise ValueError(f"initial_c must be a finite number > 0, got {self.initial_c}")
        _check(self.steps, self.lr, self.squeeze)

    @property
    def name(self) -> str:
        return "cw"

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        shortest = _Shortest(images, labels, self.confidence)
        c = torch.full(labels.shape, self.initial_c, dtype=images.dtype, device=images.device)
        low, high = torch.zeros_like(c), torch.full_like(c, math.inf)
        for _ in range(self.binary_steps):
            found = torch.zeros_like(labels, dtype=torch.bool)
            descent = _Descent(images, self.lr, self.squeeze)
            for _ in range(self.steps):
                with torch.enable_grad():
                    moved = descent.images()
                    logits = model(moved)
                    found |= shortest.see(moved, logits)
                    loss = _squared(moved - images) + c * (self.confidence - Margin()(logits, labels)).clamp(min=0)
                    descent.step(loss)
            with torch.no_grad():
                moved = descent.images()
                found |= shortest.see(moved, model(moved))
            low, high = torch.where(found, low, c), torch.where(found, c, high)
            c = torch.where(high.isinf(), 10 * low, (low + high) / 2)
        shortest.shorten(model, self.polish)
        return shortest.images


@final
class _Descent:
    """Images that are (tanh w + 1)/2, and Adam on w."""

    def __init__(self, images: Float[Tensor, "n ..."], lr: float, squeeze: float) -> None:
        self._w = torch.atanh((2 * images - 1) * (1 - squeeze)).requires_grad_()
        self._adam = torch.optim.Adam([self._w], lr=lr)

    def images(self) -> Float[Tensor, "n ..."]:
        return (torch.tanh(self._w) + 1) / 2

    def step(self, loss: Float[Tensor, " n"]) -> None:
        """A step down. The images' losses are summed: Adam treats every pixel by itself, so they do not mix."""
        (gradient,) = torch.autograd.grad(loss.sum(), self._w)
        self._w.grad = require_finite(gradient)
        self._adam.step()


@final
class _Shortest:
    """The shortest success so far, image by image; the clean image where there was none."""

    def __init__(self, images: Float[Tensor, "n ..."], labels: Int[Tensor, " n"], confidence: float) -> None:
        self._clean, self._labels, self._confidence = images, labels, confidence
        self.images = images.clone()
        self._distance = torch.full(labels.shape, math.inf, dtype=images.dtype, device=images.device)

    def see(self, images: Float[Tensor, "n ..."], logits: Float[Tensor, "n classes"]) -> Bool[Tensor, " n"]:
        """Compare an iterate with the best; returns where it is a success."""
        images, logits = images.detach(), logits.detach()
        success = (logits.argmax(1) != self._labels) & (Margin()(logits, self._labels) >= self._confidence)
        distance = _squared(images - self._clean)
        better = success & (distance < self._distance)
        self.images[better] = images[better]
        self._distance = torch.where(better, distance, self._distance)
        return success

    def shorten(self, model: nn.Module, halvings: int) -> None:
        """Go back towards the clean image as far as the class stays wrong."""
        far = self.images.clone()
        right = torch.zeros_like(self._distance)  # shares of the way: at `right` the class is right, at `wrong` wrong
        wrong = torch.ones_like(self._distance)
        for _ in range(halvings):
            share = (right + wrong) / 2
            between = self._clean + (far - self._clean) * share.view(-1, *[1] * (far.dim() - 1))
            with torch.no_grad():
                success = self.see(between, model(between))
            right, wrong = torch.where(success, right, share), torch.where(success, share, wrong)


def _squared(delta: Float[Tensor, "n ..."]) -> Float[Tensor, " n"]:
    return delta.flatten(1).square().sum(1)


def _check(steps: int, lr: float, squeeze: float) -> None:
    if steps < 1 or not 0 < lr < math.inf:
        raise ValueError(f"Adam needs steps ≥ 1 and lr > 0, got steps={steps}, lr={lr}")
    if not 1e-7 <= squeeze < 1:
        raise ValueError(f"squeeze must be in [1e-7, 1), so that w is finite in float32, got {squeeze}")
