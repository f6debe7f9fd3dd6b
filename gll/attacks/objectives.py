"""What an attack makes larger: functions of the logits and the true classes, one number an image.

| objective | value | note |
|---|---|---|
| `CrossEntropy` | -log p_y | its gradient vanishes where p_y rounds to 1 |
| `Margin` | max_{i≠y} z_i - z_y | at least 0 exactly where the class is wrong |
| `DLR` | -(z_y - max_{i≠y} z_i) / (z_(1) - z_(3)) | does not depend on the scale of the logits; three classes or more |
| `Towards` | z_t - z_y | towards given classes t |

z are the logits, p their softmax, y the true class, z_(1) ≥ z_(2) ≥ ... the logits in order. Log-probabilities are
logits, so all of them act on a graph head, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor


class AbstractObjective(ABC):
    """What an attack makes larger. Subclass it for one of your own: one method."""

    @abstractmethod
    def __call__(self, logits: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """A number for every image; larger is more wrong.

        Differentiable in: `logits`.
        """


@final
@dataclass(frozen=True)
class CrossEntropy(AbstractObjective):
    """-log p_y, what classifiers are trained with.

    >>> CrossEntropy()(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor([0.6931])

    Differentiable in: `logits`.
    """

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


@final
@dataclass(frozen=True)
class Margin(AbstractObjective):
    """The best wrong logit minus the true one: above 0 exactly where the class is wrong.

    >>> Margin()(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([1]))
    tensor([-1.])

    Differentiable in: `logits`.
    """

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _at(logits, runner_up(logits, labels)) - _at(logits, labels)


@final
@dataclass(frozen=True)
class DLR(AbstractObjective):
    """The difference of logits ratio (Croce, Hein 2020): the margin in units of how far apart the best logits are.

    Three logits of the same size leave it at 0/0, which is taken as 0.

    >>> DLR()(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([1]))
    tensor([-0.5000])

    Differentiable in: `logits`.
    """

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        if logits.shape[1] < 3:
            raise ValueError(f"DLR needs at least three classes, got {logits.shape[1]}; use Margin")
        best = logits.topk(3, dim=1).values
        spread = best[:, 0] - best[:, 2]
        # With a spread of zero the margin is zero, too: divided by one it stays so, with the margin's gradient.
        return Margin()(logits, labels) / torch.where(spread > 0, spread, 1)


@final
@dataclass(frozen=True, eq=False)
class Towards(AbstractObjective):
    """z_t - z_y: towards one given class t for every image, other than its own.

    An attack with it succeeds, as always, where the class is wrong. Whether it is the given one, `predicted` says.

    Args:
        target: the classes, one for each image of the batch that is attacked at a time.

    >>> Towards(torch.tensor([0]))(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([1]))
    tensor([-2.])

    Differentiable in: `logits`.
    """

    target: Int[Tensor, " n"]

    def __post_init__(self) -> None:
        t = self.target
        if not isinstance(t, Tensor) or t.dim() != 1 or t.is_floating_point() or t.dtype == torch.bool:
            got = f"{t.dtype} of shape {tuple(t.shape)}" if isinstance(t, Tensor) else repr(t)
            raise ValueError(f"Towards needs a tensor of classes, one an image, got {got}")

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.target.shape != labels.shape:
            raise ValueError(
                f"Towards has {len(self.target)} classes for {len(labels)} images; give one for each. Where images are "
                "attacked in chunks (evaluate), they must all be in one"
            )
        if bool((self.target == labels).any()):
            own = int((self.target == labels).sum())
            raise ValueError(f"Towards leads away from the true class, but for {own} images it was given just that one")
        low, high = (int(v) for v in torch.aminmax(self.target))
        if low < 0 or high >= logits.shape[1]:
            raise ValueError(f"Towards has classes {low} to {high}, but the model has {logits.shape[1]}, from 0 on")
        return _at(logits, self.target.to(labels)) - _at(logits, labels)


def checked_values(
    objective: AbstractObjective, logits: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """What the objective says, if that is one finite number an image, made from the logits.

    Raises:
        ValueError: it is not. The message names the objective.

    Differentiable in: `logits`.
    """
    value, name, n = objective(logits, labels), type(objective).__name__, len(labels)
    if not isinstance(value, Tensor) or value.shape != (n,) or not value.is_floating_point():
        kind = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"an objective returns one number an image, shape ({n},), but {name} returned {kind}")
    if logits.requires_grad and not value.requires_grad:
        raise ValueError(
            f"{name} does not depend on the logits (detach, no_grad or argmax inside?): there is no gradient to follow"
        )
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} is not finite for {int((~torch.isfinite(value)).sum())} of {n} images")
    return value


def runner_up(logits: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """The best class that is not the true one.

    >>> runner_up(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([1]))
    tensor([2])
    """
    return logits.detach().scatter(1, labels[:, None], -float("inf")).argmax(1)


def prediction(logits: Float[Tensor, "n classes"], labels: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """The predicted classes. A tie for the first place is no right answer: it goes to another class than the true one.

    A graph has such ties where an attack has cut a sample off from every label, and all classes are equally likely.

    >>> prediction(torch.tensor([[1.0, 3.0, 2.0], [0.5, 0.5, 0.5]]), torch.tensor([1, 0]))
    tensor([1, 1])
    """
    other = runner_up(logits, labels)
    return torch.where(_at(logits, labels) > _at(logits, other), labels, other)


def _at(table: Tensor, classes: Tensor) -> Tensor:
    return table.gather(1, classes[:, None])[:, 0]
