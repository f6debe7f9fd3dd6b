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
    """z_t - z_y: towards one given class t for every image.

    >>> Towards(torch.tensor([0]))(torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([1]))
    tensor([-2.])

    Differentiable in: `logits`.
    """

    target: Int[Tensor, " n"]

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        return _at(logits, self.target) - _at(logits, labels)


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
