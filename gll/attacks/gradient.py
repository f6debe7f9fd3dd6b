"""Attacks that follow the gradient: one step (FGSM), several (IFGSM), several from random starts (PGD).

All of them go up the objective, x ← clip(x + α·direction of the gradient), where clip is the projection onto the ball
around the clean image and onto the pixels' box, and the direction is the sign (L∞) or the unit vector (L2).

FGSM and IFGSM are the paper's: no random start, the last iterate. PGD is what one should judge a model by: random
starts, several of them, and the best of all iterates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gll.attacks.base import AbstractAttack, into_ball_and_box, judged_logits, plain_settings
from gll.attacks.best import Best
from gll.attacks.inputs import check_ball, check_objective, require_slope
from gll.attacks.norms import AbstractNorm, LInf
from gll.attacks.objectives import AbstractObjective, CrossEntropy, Towards, checked_values


@final
@dataclass(frozen=True)
class FGSM(AbstractAttack):
    """The fast gradient (sign) method: one step of length eps (Goodfellow et al. 2014; the paper's FGSM).

    Args:
        eps: how far each image is moved, in pixel units.
        norm: L∞, or L2 for the fast gradient method of that norm.
        objective: what the step makes larger.

    >>> from torch import nn
    >>> model, x, y = nn.Linear(4, 3), torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
    >>> FGSM(0.1)(model, x, y).linf.max().item() <= 0.1 + 1e-6
    True

    Differentiable in: nothing.
    """

    eps: float
    norm: AbstractNorm = field(default_factory=LInf)
    objective: AbstractObjective = field(default_factory=CrossEntropy)

    def __post_init__(self) -> None:
        check_ball(self.eps, self.norm)
        check_objective(self.objective)

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        gradient, _ = input_gradient(model, images, labels, self.objective)
        return into_ball_and_box(images + self.eps * self.norm.ascend(gradient), images, self)


@final
@dataclass(frozen=True)
class IFGSM(AbstractAttack):
    """The iterated fast gradient sign method (Kurakin et al. 2018; the paper's IFGSM): no random start, last iterate.

    Args:
        eps: how far each image may be moved, in pixel units.
        alpha: the length of a step; the paper has 0.05 in normalised units (`units.py`).
        steps: how many; by default 5·eps/alpha of them, rounded down, as in the paper. That must be one at least.
        norm: L∞, or L2.
        objective: what the steps make larger.

    >>> IFGSM(eps=0.3, alpha=0.05).settings()["steps"]
    30

    Differentiable in: nothing.
    """

    eps: float
    alpha: float
    steps: int | None = None
    norm: AbstractNorm = field(default_factory=LInf)
    objective: AbstractObjective = field(default_factory=CrossEntropy)

    def __post_init__(self) -> None:
        check_ball(self.eps, self.norm)
        check_objective(self.objective)
        if not (0 < self.alpha < math.inf and (self.steps is None or self.steps >= 1)):
            raise ValueError(f"IFGSM needs alpha > 0 and steps ≥ 1, got alpha={self.alpha}, steps={self.steps}")
        if self.eps > 0 and self._count() == 0:
            raise ValueError(
                f"IFGSM makes 5·eps/alpha steps, rounded down: none with alpha > 5·eps, got eps={self.eps:g} and "
                f"alpha={self.alpha:g}; take both in the same unit, or say how many steps"
            )

    def settings(self) -> dict[str, Any]:
        return {**plain_settings(self), "steps": self._count()}

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        moved = images
        for _ in range(self._count()):
            gradient, _ = input_gradient(model, moved, labels, self.objective)
            moved = into_ball_and_box(moved + self.alpha * self.norm.ascend(gradient), images, self)
        return moved

    def _count(self) -> int:
        # 5·(0.3/0.05) is 29.999... in floating point, where the paper means 30.
        return math.floor(5 * self.eps / self.alpha + 1e-6) if self.steps is None else self.steps


@final
@dataclass(frozen=True)
class PGD(AbstractAttack):
    """Projected gradient ascent (Madry et al. 2018), from random starts.

    Args:
        eps: how far each image may be moved, in pixel units.
        steps: gradients per start.
        step_size: the length of a step; by default 2.5·eps/steps, enough to cross the ball.
        restarts: random starts; needs `random_start`.
        random_start: start from a uniform point of the ball, not from the image.
        objective: what the steps make larger.
        norm: L∞ or L2.
        best: return the best iterate of all, image by image, not the last one.
        targets: 0, or how many of the most likely wrong classes are tried one after the other, each with all its
            restarts and with the objective z_t - z_y (`Towards`) in place of `objective`.

    >>> from torch import nn
    >>> model, x, y = nn.Linear(4, 3), torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
    >>> PGD(0.1, steps=5)(model, x, y).error >= FGSM(0.1)(model, x, y).error
    True

    Differentiable in: nothing.
    """

    eps: float
    steps: int = 40
    step_size: float | None = None
    restarts: int = 1
    random_start: bool = True
    objective: AbstractObjective = field(default_factory=CrossEntropy)
    norm: AbstractNorm = field(default_factory=LInf)
    best: bool = True
    targets: int = 0

    def __post_init__(self) -> None:
        check_ball(self.eps, self.norm)
        check_objective(self.objective)
        if self.steps < 1 or self.restarts < 1 or self.targets < 0:
            raise ValueError(
                "PGD needs steps ≥ 1, restarts ≥ 1 and targets ≥ 0, "
                f"got steps={self.steps}, restarts={self.restarts}, targets={self.targets}"
            )
        if self.step_size is not None and not 0 <= self.step_size < math.inf:
            raise ValueError(f"step_size must be a finite number ≥ 0, got {self.step_size}")
        if self.restarts > 1 and not self.random_start:
            raise ValueError(f"{self.restarts} restarts without a random start are {self.restarts} times the same")
        if not self.best and (self.restarts > 1 or self.targets > 1):
            raise ValueError("best=False returns the last iterate, which makes all but the last start useless")

    def settings(self) -> dict[str, Any]:
        return {**plain_settings(self), "step_size": self._step()}

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        best = Best(images, labels)
        for objective in self._objectives(model, images, labels):
            for _ in range(self.restarts):
                moved = images
                if self.random_start:
                    start = images + self.norm.random(images, self.eps, generator)
                    moved = into_ball_and_box(start, images, self)
                for _ in range(self.steps):
                    gradient, logits = input_gradient(model, moved, labels, objective)
                    best.see(moved, judged_logits(model, moved, logits))
                    moved = into_ball_and_box(moved + self._step() * self.norm.ascend(gradient), images, self)
                if not self.best:
                    return moved  # there is one start only
                best.look(model, moved)
                if best.all_wrong:
                    return best.images(model)
        return best.images(model)

    def _objectives(self, model: nn.Module, images: Tensor, labels: Tensor) -> list[AbstractObjective]:
        if self.targets == 0:
            return [self.objective]
        with torch.no_grad():
            logits = model(images).scatter(1, labels[:, None], -math.inf)
        likely = logits.topk(min(self.targets, logits.shape[1] - 1), dim=1).indices
        return [Towards(target) for target in likely.T]

    def _step(self) -> float:
        return 2.5 * self.eps / self.steps if self.step_size is None else self.step_size


def input_gradient(
    model: nn.Module, images: Float[Tensor, "n ..."], labels: Int[Tensor, " n"], objective: AbstractObjective
) -> tuple[Float[Tensor, "n ..."], Float[Tensor, "n classes"]]:
    """The gradient of the objective, summed over the images, in the pixels; and the logits it was computed from.

    Raises:
        ValueError: the logits do not depend on the pixels in a way that can be differentiated, the objective is not
            one number an image, or the gradient is not finite.
    """
    with torch.enable_grad():
        x = images.detach().requires_grad_()
        logits = model(x)
        if not logits.requires_grad:
            require_slope(logits, x)
        value = checked_values(objective, logits, labels)
        (gradient,) = torch.autograd.grad(value.sum(), x, allow_unused=True)
    if gradient is None:
        require_slope(logits, x)  # which knows whether it is the model; otherwise it is the objective
        raise ValueError(f"{type(objective).__name__} does not depend on the logits: there is no gradient to follow")
    return require_finite(gradient), logits.detach()


def require_finite(gradient: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
    """The gradient, if it is finite."""
    if not bool(torch.isfinite(gradient).all()):
        bad = int((~torch.isfinite(gradient)).flatten(1).any(1).sum())
        raise ValueError(
            f"the model's gradient is not finite for {bad} of {len(gradient)} images; compute in float64, "
            "or give log-probabilities a larger floor"
        )
    return gradient
