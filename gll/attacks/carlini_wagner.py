"""Carlini and Wagner's attack: the shortest change that makes the class wrong, found by descent.

Both forms descend, with Adam, on

    ‖δ‖₂² + c·g(x + δ),        x + δ = (tanh w + 1)/2,

where g is above 0 as long as the attack has not succeeded, and the variable w keeps pixels in [0, 1] by itself.

| | `CarliniWagnerPaper` | `CarliniWagner` |
|---|---|---|
| g | (max_{i≠t} p_i - p_t)⁺ on probabilities, t the clean runner-up | (z_y - max_{i≠y} z_i + κ)⁺ on logits |
| c | given | searched for, image by image |
| returned | the last iterate | the shortest success of all iterates; in a graph, the most at once |

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

from gll.attacks.base import AbstractAttack, judge_of, judged_logits
from gll.attacks.gradient import require_finite
from gll.attacks.inputs import require_slope
from gll.attacks.norms import L2, AbstractNorm
from gll.attacks.objectives import Margin, runner_up

# What c is multiplied by at every step at which an image is no success, in the last descent of all images together.
PUSH = 1.2
# How far a black or white pixel starts inside the box at least, as a share of the distance to grey.
SQUEEZE = 1e-6


@final
@dataclass(frozen=True)
class CarliniWagnerPaper(AbstractAttack):
    """The paper's form: on probabilities, with c and the target held fixed; the last iterate.

    Images that are wrong already are left, as by every attack here. The paper attacks them too, towards the runner-up,
    often the true class, and may so correct them. The error here is larger than by its count, by up to the natural one.

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

    Differentiable in: nothing.
    """

    c: float
    steps: int = 100
    lr: float = 0.005
    squeeze: float = SQUEEZE
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
        for i in range(self.steps):
            with torch.enable_grad():
                moved = descent.images()
                logits = model(moved)
                if i == 0:
                    require_slope(logits, moved)
                p = torch.log_softmax(logits, 1).exp()
                # max_{i≠t} p_i - p_t is the margin, with t in the place of the true class.
                loss = _squared(moved - images) + self.c * Margin()(p, target).clamp(min=0)
                descent.step(loss)
        return descent.images().detach()


@final
@dataclass(frozen=True)
class CarliniWagner(AbstractAttack):
    """The standard form (Carlini, Wagner 2017): on logits, with a search for c; the shortest success of all iterates.

    An image for which there is no success is left as it was. In a graph of all images the shortest success of each
    comes from another iterate, and few of them may be successes beside each other. That is looked at. If it is so, all
    images descend together once more, with a c that grows for those that are no success, and the iterate with the most
    is returned.

    Args:
        binary_steps: how many values of c are tried for every image: ten times more until one succeeds, then halfway
            between the smallest that did and the largest that did not.
        steps: of Adam, for each c.
        lr: the step length of Adam.
        confidence: κ ≥ 0, the margin by which the class has to be wrong.
        initial_c: the first value of c.
        squeeze: how far pixels start inside [0, 1], as a share of the distance to grey.
        refine: descend once more at the end, from the shortest success, with a tenth of the step and a weight c that
            keeps it a success. It then slides along the boundary of the class to where that is nearest.

    >>> from torch import nn
    >>> model = nn.Linear(2, 2)  # the boundary is x₀ = x₁
    >>> _ = model.load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    >>> CarliniWagner(3, 50)(model, torch.tensor([[0.7, 0.3]]), torch.tensor([0])).l2  # 0.4/√2
    tensor([0.28...

    Differentiable in: nothing.
    """

    binary_steps: int = 9
    steps: int = 100
    lr: float = 0.05
    confidence: float = 0.0
    initial_c: float = 0.1
    squeeze: float = 1e-3
    refine: bool = True
    eps: float = field(default=math.inf, init=False)
    norm: AbstractNorm = field(default_factory=L2, init=False)

    def __post_init__(self) -> None:
        if self.binary_steps < 1 or not 0 <= self.confidence < math.inf:
            raise ValueError(
                "CarliniWagner needs binary_steps ≥ 1 and confidence ≥ 0, "
                f"got binary_steps={self.binary_steps}, confidence={self.confidence}"
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
            found = self._descend(model, _Descent(images, self.lr, self.squeeze), c, shortest)
            low, high = torch.where(found, low, c), torch.where(found, c, high)
            c = torch.where(high.isinf(), 10 * low, (low + high) / 2)
        # At the smallest c that succeeds the two terms are in balance: three times that stays on the wrong side.
        enough = 3 * torch.where(high.isinf(), low, high)
        if self.refine:
            self._descend(model, _Descent(shortest.images, self.lr / 10, SQUEEZE), enough, shortest)
        if not shortest.stands(model):
            # In a graph each success was one beside other images. All together: what falls back is pushed harder.
            self._descend(model, _Descent(shortest.images, self.lr / 5, SQUEEZE), enough, shortest, PUSH)
            return shortest.together
        return shortest.images

    def _descend(
        self, model: nn.Module, descent: _Descent, c: Float[Tensor, " n"], shortest: _Shortest, push: float = 1.0
    ) -> Bool[Tensor, " n"]:
        """Descend, show every iterate to `shortest`, and say for which images there was a success.

        Where an iterate is none, c is multiplied by `push`.
        """
        found = torch.zeros_like(c, dtype=torch.bool)
        for i in range(self.steps):
            with torch.enable_grad():
                moved = descent.images()
                logits = model(moved)
                if i == 0:
                    require_slope(logits, moved)
                success = shortest.see(moved, judged_logits(model, moved, logits))
                found |= success
                c = torch.where(success, c, push * c)
                short = (self.confidence - Margin()(logits, shortest.labels)).clamp(min=0)
                descent.step(_squared(moved - shortest.clean) + c * short)
        with torch.no_grad():
            moved = descent.images()
            return found | shortest.see(moved, judge_of(model)(moved))


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
    """The shortest success so far, image by image; the clean image where there was none.

    And `together`, the iterate with the most successes at once, the shorter one of two: where images depend on each
    other, successes that come from different iterates need not be any beside each other.
    """

    def __init__(self, images: Float[Tensor, "n ..."], labels: Int[Tensor, " n"], confidence: float) -> None:
        self.clean, self.labels, self._confidence = images, labels, confidence
        self.images, self.together = images.clone(), images
        self._most = (-1, 0.0)
        self._distance = torch.full(labels.shape, math.inf, dtype=images.dtype, device=images.device)

    def see(self, images: Float[Tensor, "n ..."], logits: Float[Tensor, "n classes"]) -> Bool[Tensor, " n"]:
        """Compare an iterate with the best; returns where it is a success."""
        images, logits = images.detach(), logits.detach()
        success = Margin()(logits, self.labels) >= self._confidence
        distance = _squared(images - self.clean)
        better = success & (distance < self._distance)
        self.images[better] = images[better]
        self._distance = torch.where(better, distance, self._distance)
        many = (int(success.sum()), -float(distance[success].sum()))
        if many > self._most:
            self._most, self.together = many, images
        return success

    @torch.no_grad()
    def stands(self, model: nn.Module) -> bool:
        """Show the shortest successes to the model, all at once: is each of them still one?"""
        found = self._distance < math.inf
        return bool(self.see(self.images.clone(), judge_of(model)(self.images))[found].all())


def _squared(delta: Float[Tensor, "n ..."]) -> Float[Tensor, " n"]:
    return delta.flatten(1).square().sum(1)


def _check(steps: int, lr: float, squeeze: float) -> None:
    if steps < 1 or not 0 < lr < math.inf:
        raise ValueError(f"Adam needs steps ≥ 1 and lr > 0, got steps={steps}, lr={lr}")
    if not 1e-7 <= squeeze < 1:
        raise ValueError(f"squeeze must be in [1e-7, 1), so that w is finite in float32, got {squeeze}")
