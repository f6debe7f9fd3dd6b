"""An attack in the space of features: drive a query towards base samples of another class.

A graph head says what the neighbours of a query say. So the aim can be set without any gradient of the graph: bring the
features to where base samples of another class lie. The distance to a chosen base sample always has a gradient, however
sure of itself the head is. Which sample will do is not known beforehand, so several are tried, of several classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gll.attacks.base import AbstractAttack, into_ball_and_box
from gll.attacks.best import Best
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.inputs import check_ball, require_slope
from gll.attacks.norms import AbstractNorm, LInf
from gll.attacks.transfer import graph_victim
from gll.features import unit_rows


@final
@dataclass(frozen=True)
class FeatureAttack(AbstractAttack):
    """Projected gradient steps that bring the features near base samples of another class.

    Args:
        eps: how far each image may be moved, in pixel units.
        steps: gradients for each target.
        step_size: the length of a step; by default 2.5·eps/steps.
        targets: classes tried, nearest first, one after the other.
        points: base samples of that class that a query is driven to: the mean of the nearest so many.
        norm: L∞ or L2.

    The model must be a `GraphVictim`, whose base samples have classes.
    """

    eps: float
    steps: int = 40
    step_size: float | None = None
    targets: int = 3
    points: int = 5
    norm: AbstractNorm = field(default_factory=LInf)

    def __post_init__(self) -> None:
        check_ball(self.eps, self.norm)
        if self.steps < 1 or self.targets < 1 or self.points < 1:
            raise ValueError(
                "FeatureAttack needs steps, targets and points ≥ 1, "
                f"got steps={self.steps}, targets={self.targets}, points={self.points}"
            )
        if self.step_size is not None and not 0 <= self.step_size < math.inf:
            raise ValueError(f"step_size must be a finite number ≥ 0, got {self.step_size}")

    @property
    def name(self) -> str:
        return "features"

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        victim = graph_victim(model, self.name)
        step = 2.5 * self.eps / self.steps if self.step_size is None else self.step_size
        best = Best(images, labels)
        best.look(model, images)
        for goal in nearest_goals(victim, images, labels, self.targets, self.points):
            moved = images
            for _ in range(self.steps):
                gradient = _distance_gradient(victim, moved, goal)
                moved = into_ball_and_box(moved - step * self.norm.ascend(gradient), images, self)
                best.look(model, moved)
            if best.all_wrong:
                break
        return best.images(model)


def nearest_goals(
    victim: GraphVictim, images: Float[Tensor, "n *sample"], labels: Int[Tensor, " n"], targets: int, points: int
) -> list[Float[Tensor, "n d"]]:
    """Where to drive each query: for its nearest other classes, the mean of that class's nearest base samples.

    Differentiable in: nothing.
    """
    with torch.no_grad():
        x, base = _seen(victim, victim.features(images)), _seen(victim, victim.base_features).to(images.device)
        classes = victim.base_labels
        classes = classes if classes.dim() == 1 else classes.argmax(1)
        distance = torch.cdist(x, base.to(x.dtype))
        distance = distance.masked_fill((classes < 0) | (classes == labels[:, None]), torch.inf)
        # The nearest sample of every class, (n, C); then the classes in that order.
        each = torch.full((len(x), victim.layer.num_classes), torch.inf, dtype=x.dtype, device=x.device)
        known = classes.clamp(min=0).expand(len(x), -1)
        each = each.scatter_reduce(1, known, distance, "amin")
        order = each.sort(1)
        goals = []
        for t in range(min(targets, int(torch.isfinite(order.values).sum(1).min()))):
            target = order.indices[:, t]
            among = distance.masked_fill(classes != target[:, None], torch.inf)
            near = among.topk(min(points, len(base)), largest=False)
            share = torch.isfinite(near.values).to(x.dtype)
            mean = (base.to(x.dtype)[near.indices] * share[:, :, None]).sum(1) / share.sum(1, keepdim=True)
            goals.append(unit_rows(mean) if victim.layer.normalize else mean)
    if not goals:
        raise ValueError("the base has samples of one class only: there is no other to drive a query to")
    return goals


def _seen(victim: GraphVictim, features: Tensor) -> Tensor:
    """Features as the graph sees them."""
    return unit_rows(features) if victim.layer.normalize else features


def _distance_gradient(victim: GraphVictim, images: Tensor, goal: Tensor) -> Tensor:
    with torch.enable_grad():
        x = images.detach().requires_grad_()
        seen = victim.features(x)
        require_slope(seen, x)
        away = (_seen(victim, seen) - goal).square().sum()
        (gradient,) = torch.autograd.grad(away, x)
    return gradient
