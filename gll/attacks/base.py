"""What every attack shares: one final `__call__` that checks, projects, asserts and judges.

A new attack writes `perturb` alone, and cannot report a success that is none: whatever it returns is projected onto the
ball around the clean image and onto the pixel box, is asserted to be inside both, and is judged by the model's own
prediction. An image that is classified wrongly already counts as a success at distance 0 and is left as it was.

In a graph the prediction of an image depends on the others. Images that are left as they were are therefore left so in
every call that an attack makes (`Watched`): the graph that is attacked is the graph that is judged.
Read next: `gradient.py`, the first attacks.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gll.attacks.norms import L2, AbstractNorm, LInf
from gll.attacks.objectives import prediction
from gll.attacks.threat import ThreatModel

PARTS_THAT_CHANGE = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


@final
@dataclass(frozen=True, eq=False)
class Attacked:
    """What an attack did to n images.

    Args:
        attack: its name.
        settings: its settings, as JSON can hold them; a bound that is infinite is None.
        images: the attacked images, in [0, 1].
        clean, predicted: the predicted classes before and after.
        success: whether the class is wrong after the attack.
        linf, l2: how far each image was moved, in pixel units.
        zero_gradients: the share of images whose first gradient was exactly zero, among those that were classified
            rightly before; nan where the attack asked for no gradient.
        threat: what was in the graph; None for a model that does not say.
    """

    attack: str
    settings: dict[str, Any]
    images: Float[Tensor, "n ..."]
    clean: Int[Tensor, " n"]
    predicted: Int[Tensor, " n"]
    success: Bool[Tensor, " n"]
    linf: Float[Tensor, " n"]
    l2: Float[Tensor, " n"]
    zero_gradients: float
    threat: ThreatModel | None = None

    @property
    def error(self) -> float:
        """The share of images that are classified wrongly after the attack."""
        return float(self.success.double().mean())


class AbstractAttack(ABC):
    """An attack on images with pixels in [0, 1]. Subclass it for one of your own: fields and `perturb`.

    Attributes:
        eps: how far an image may be moved; infinite where the attack looks for the shortest way itself.
        norm: how that is measured.
    """

    eps: float
    norm: AbstractNorm

    @property
    def name(self) -> str:
        """What it is called in results."""
        return type(self).__name__.lower()

    def settings(self) -> dict[str, Any]:
        """Its fields, as JSON can hold them."""
        return plain_settings(self)

    @abstractmethod
    def perturb(
        self, model: nn.Module, images: Float[Tensor, "n ..."], labels: Int[Tensor, " n"], generator: torch.Generator
    ) -> Float[Tensor, "n ..."]:
        """The attacked images.

        Args:
            model: images in [0, 1] to logits. Call it with all n images, in their order: in a graph they belong
                together.
            images: the clean ones.
            labels: their true classes.
            generator: for all random numbers. They are drawn on its device and moved to the images'.
        """

    @final
    def __call__(
        self, model: nn.Module, images: Tensor, labels: Tensor, *, generator: torch.Generator | None = None
    ) -> Attacked:
        """Attack images.

        Args:
            model: any module that takes images in [0, 1] and returns logits, (n, C). One that expects normalised images
                has to normalise inside. Training or evaluation mode is left as it is.
            images: (n, ...) float32 or float64, with pixels in [0, 1].
            labels: (n,) the true classes.
            generator: for random numbers, on any device; by default one of seed 0 on the CPU, so that a call can be
                repeated anywhere.

        Raises:
            ValueError: the images or labels are not as above, or the model returns something that is not finite.

        Differentiable in: nothing.
        """
        _check(self, images, labels)
        images, labels = images.detach(), labels.detach().long()
        if any(isinstance(part, PARTS_THAT_CHANGE) and part.training for part in model.modules()):
            warnings.warn(
                "the model has dropout or batch normalisation in training mode, so every call of it differs; "
                "attack it after model.eval()",
                stacklevel=2,
            )
        if generator is None:
            generator = torch.Generator().manual_seed(0)
        seed = generator.initial_seed()
        clean = _predict(model, images, labels)
        wrong = clean != labels
        watched = Watched(model, images, wrong)
        moved = self.perturb(watched, images, labels, generator)
        if moved.shape != images.shape or not bool(torch.isfinite(moved).all()):
            raise ValueError(
                f"{self.name} returned {tuple(moved.shape)} for images of shape {tuple(images.shape)}, "
                f"with {int((~torch.isfinite(moved)).sum())} values that are not finite: a mistake in the attack"
            )
        attacked = torch.where(_wide(wrong, images), images, into_ball_and_box(moved.detach(), images, self))
        delta = attacked.double() - images.double()
        assert bool((attacked >= 0).all() and (attacked <= 1).all()), f"{self.name}: a pixel left [0, 1]"
        assert bool((self.norm.size(delta) <= self.eps + self.norm.rounding(images)).all()), (
            f"{self.name}: an image left the ball of radius {self.eps}; "
            f"the largest perturbation has size {float(self.norm.size(delta).max())}"
        )
        predicted = _predict(model, attacked, labels)
        return Attacked(
            attack=self.name,
            settings={**self.settings(), "seed": seed},
            images=attacked,
            clean=clean,
            predicted=predicted,
            success=predicted != labels,
            linf=LInf().size(delta),
            l2=L2().size(delta),
            zero_gradients=watched.zero_gradients,
            threat=getattr(model, "threat", None),
        )


class Watched(nn.Module):
    """The model as an attack sees it.

    Images that are classified wrongly already stay as they are in every call, and the first gradient that the attack
    asks for is looked at: where it is exactly zero, the attack learns nothing.

    Args:
        model: what the attack follows.
        images, wrong: the clean images, and which of them are classified wrongly.
        judge: where `model` stands in for another one: the other, which has to be fooled (`judge_of`).
    """

    def __init__(self, model: nn.Module, images: Tensor, wrong: Tensor, judge: nn.Module | None = None) -> None:
        super().__init__()
        self.model = model
        self.judge = judge
        self.images, self.wrong = images, wrong
        self.zero_gradients = math.nan

    def forward(self, images: Tensor) -> Tensor:
        if len(images) != len(self.images):  # some of the images only: which ones is not known here
            return checked_logits(self.model(images), len(images))
        if images.requires_grad:
            images = images.view_as(images)  # so that the hook sees what comes from the model, and nothing else
            images.register_hook(self._look)
        seen = torch.where(_wide(self.wrong, images), self.images.to(images.dtype), images)
        return checked_logits(self.model(seen), len(images))

    def _look(self, gradient: Tensor) -> None:
        if math.isnan(self.zero_gradients) and not bool(self.wrong.all()):
            right = gradient.flatten(1)[~self.wrong]
            self.zero_gradients = float((right == 0).all(1).double().mean())


def judge_of(model: nn.Module) -> nn.Module:
    """The model that has to be fooled: the one that the attack follows, or the one that this stands in for."""
    return model.judge if isinstance(model, Watched) and model.judge is not None else model


@torch.no_grad()
def judged_logits(
    model: nn.Module, images: Float[Tensor, "n ..."], logits: Float[Tensor, "n classes"]
) -> Float[Tensor, "n classes"]:
    """What the judge says of images, if the model itself has given them `logits`."""
    judge = judge_of(model)
    return logits.detach() if judge is model else judge(images.detach())


def into_ball_and_box(
    moved: Float[Tensor, "n ..."], images: Float[Tensor, "n ..."], attack: AbstractAttack
) -> Float[Tensor, "n ..."]:
    """The images moved, at most as far as the attack may go, with pixels in [0, 1].

    Clipping to the box brings every pixel nearer to the clean one, so that it does not leave the ball again.
    """
    # In float64: what is left is one rounding, to the images' type.
    delta = attack.norm.project(moved.double() - images.double(), attack.eps)
    return (images.double() + delta).clamp(0, 1).to(images.dtype)


def checked_logits(logits: Tensor, n: int) -> Float[Tensor, "n classes"]:
    """The logits, if they are n finite rows of at least two classes."""
    if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != n or logits.shape[1] < 2:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the model must return logits of shape ({n}, classes), got {got}")
    if not bool(torch.isfinite(logits).all()):
        raise ValueError(
            f"the model's logits are not finite for {int((~torch.isfinite(logits)).any(1).sum())} of {n} images; "
            "log-probabilities need a floor, such as log(p + 1e-8)"
        )
    return logits


def plain_settings(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass as JSON can hold them: objects become their class's name, or its name and fields."""
    return {field.name: _plain(getattr(thing, field.name)) for field in dataclasses.fields(thing)}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, AbstractAttack):
        return {"name": value.name, **value.settings()}
    if dataclasses.is_dataclass(value) and dataclasses.fields(value):
        return {"name": type(value).__name__, **plain_settings(value)}
    return type(value).__name__


def _predict(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    with torch.no_grad():
        logits = checked_logits(model(images), len(images))
    if int(labels.max()) >= logits.shape[1]:
        raise ValueError(f"the labels go up to {int(labels.max())}, but the model has {logits.shape[1]} classes")
    return prediction(logits, labels)


def _check(attack: AbstractAttack, images: Tensor, labels: Tensor) -> None:
    if not attack.eps >= 0:
        raise ValueError(f"eps must be ≥ 0, got {attack.eps}")
    if images.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"images must be float32 or float64, got {images.dtype} (bytes: divide by 255)")
    if images.dim() < 2 or images.numel() == 0:
        raise ValueError(f"images must have shape (n, ...) with at least one pixel, got {tuple(images.shape)}")
    low, high = (float(v) for v in torch.aminmax(images.detach()))
    if not (low >= 0 and high <= 1):  # false for nan, too
        raise ValueError(
            f"pixels must be in [0, 1], got {low:g} to {high:g}; a model of normalised images has to normalise inside"
        )
    if labels.shape != images.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"labels must be {len(images)} integer classes, one an image, got {labels.dtype} "
            f"of shape {tuple(labels.shape)}"
        )
    if labels.device != images.device:
        raise ValueError(f"labels are on {labels.device}, the images on {images.device}; move one of them")
    if int(labels.min()) < 0:
        raise ValueError(f"labels must be classes from 0 on, got {int(labels.min())}; leave unlabelled images out")


def _wide(mask: Tensor, images: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (images.dim() - 1))
