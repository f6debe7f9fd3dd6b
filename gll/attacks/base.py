"""What every attack shares: one final `__call__` that checks, projects, asserts and judges.

A new attack writes `perturb` alone, and cannot report a success that is none: whatever it returns is projected onto the
ball around the clean image and onto the pixel box, is asserted to be inside both, and is judged by the model's own
prediction. It works on copies, so that one which writes into its images changes neither the caller's nor those that
distances are measured from. An image that is classified wrongly already counts as a success at distance 0 and is left
as it was.

In a graph the prediction of an image depends on the others. Images that are left as they were are therefore left so in
every call that an attack makes (`Watched`): the graph that is attacked is the graph that is judged.
Read next: `gradient.py`, the first attacks.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gll.attacks.inputs import check_radius, checked_images, checked_labels, require_slope
from gll.attacks.norms import L2, AbstractNorm, LInf
from gll.attacks.objectives import prediction
from gll.attacks.seen import seen_by
from gll.attacks.threat import ThreatModel

PARTS_THAT_CHANGE = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)


@final
@dataclass(frozen=True, eq=False, repr=False)
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
        threat: what was in the graph that judged, and whose gradient was followed; None for a model that does not say.
        notes: what the attack has to say besides, as JSON can hold it; see the attack.
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
    notes: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        moved = f"moved by at most {float(self.linf.max()):.4g} (L∞), {float(self.l2.max()):.4g} (L2)"
        return f"<Attacked by {self.attack}: {len(self.success)} images, {self.error:.1%} wrong after, {moved}>"

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
        """Its fields, as JSON can hold them. An attack that follows another model names it as `source`."""
        return plain_settings(self)

    @abstractmethod
    def perturb(
        self, model: nn.Module, images: Float[Tensor, "n ..."], labels: Int[Tensor, " n"], generator: torch.Generator
    ) -> Float[Tensor, "n ..."]:
        """The attacked images.

        Args:
            model: images in [0, 1] to logits. Call it with all n images, in their order: in a graph they belong
                together.
            images: the clean ones: copies, which may be written into.
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
        _check(self, model, generator)
        # Under inference_mode nothing has a gradient, and a copy made under it has none ever after.
        with torch.inference_mode(False):
            images = checked_images(images)
            return self._on_copies(model, images, checked_labels(labels, images), generator)

    @final
    def _on_copies(
        self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator | None
    ) -> Attacked:
        if not getattr(model, "evaluates", False) and any(
            isinstance(part, PARTS_THAT_CHANGE) and part.training for part in model.modules()
        ):
            warnings.warn(
                "the model has dropout or batch normalisation in training mode, so every call of it differs, and "
                "changes the running means of the latter; attack it after model.eval()",
                stacklevel=3,
            )
        if generator is None:
            generator = torch.Generator().manual_seed(0)
        seed = generator.initial_seed()
        clean = _predict(model, images, labels)
        wrong = clean != labels
        watched = Watched(model, images, wrong)
        moved = self.perturb(watched, images.clone(), labels.clone(), generator)
        _check_result(self.name, moved, images)
        attacked = torch.where(_wide(wrong, images), images, into_ball_and_box(moved.detach(), images, self))
        delta = attacked.double() - images.double()
        assert bool((attacked >= 0).all() and (attacked <= 1).all()), f"{self.name}: a pixel left [0, 1]"
        assert bool((self.norm.size(delta) <= self.eps + self.norm.rounding(images)).all()), (
            f"{self.name}: an image left the ball of radius {self.eps}; "
            f"the largest perturbation has size {float(self.norm.size(delta).max())}"
        )
        predicted = _predict(model, attacked, labels)
        settings, threat = self.settings(), getattr(model, "threat", None)
        return Attacked(
            attack=self.name,
            settings={**settings, "seed": seed},
            images=attacked,
            clean=clean,
            predicted=predicted,
            success=predicted != labels,
            linf=LInf().size(delta),
            l2=L2().size(delta),
            zero_gradients=watched.zero_gradients,
            threat=seen_by(self.name, settings, threat) if isinstance(threat, ThreatModel) else None,
            notes=watched.notes,
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
        self.notes: dict[str, Any] = {}
        self._has_slope = False

    def forward(self, images: Tensor) -> Tensor:
        if len(images) != len(self.images):  # some of the images only: which ones is not known here
            return self._ask(images)
        if images.requires_grad and torch.is_grad_enabled():
            images = images.view_as(images)  # so that the hook sees what comes from the model, and nothing else
            images.register_hook(self._look)
        return self._ask(torch.where(_wide(self.wrong, images), self.images.to(images.dtype), images))

    def _ask(self, images: Tensor) -> Tensor:
        logits = checked_logits(self.model(images), len(images))
        if not self._has_slope and images.requires_grad and torch.is_grad_enabled():  # once is enough
            require_slope(logits, images)
            self._has_slope = True
        return logits

    def _look(self, gradient: Tensor) -> None:
        if math.isnan(self.zero_gradients) and not bool(self.wrong.all()):
            right = gradient.flatten(1)[~self.wrong]
            self.zero_gradients = float((right == 0).all(1).double().mean())


def judge_of(model: nn.Module) -> nn.Module:
    """The model that has to be fooled: the one that the attack follows, or the one that this stands in for."""
    return model.judge if isinstance(model, Watched) and model.judge is not None else model


def note(model: nn.Module, key: str, value: Any) -> None:
    """Put something into the notes of the result (`Attacked.notes`); nowhere, for an attack on another model alone."""
    judge = judge_of(model)
    if isinstance(judge, Watched):
        judge.notes[key] = value


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
    """The fields of a dataclass as JSON can hold them: objects become their class's name, or its name and fields.

    Raises:
        TypeError: it is no dataclass.
    """
    if not dataclasses.is_dataclass(thing):
        raise TypeError(
            f"{type(thing).__name__} must be a dataclass, whose fields are its settings: write @dataclass(frozen=True) "
            "above the class"
        )
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
    if isinstance(value, Tensor):  # too long to be written down, but two of them are told apart
        digest = hashlib.sha256(value.detach().cpu().contiguous().numpy().tobytes()).hexdigest()
        return f"{tuple(value.shape)} {str(value.dtype)[6:]} {digest[:16]}"
    if dataclasses.is_dataclass(value) and dataclasses.fields(value):
        return {"name": type(value).__name__, **plain_settings(value)}
    return type(value).__name__


def _predict(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    with torch.no_grad():
        try:
            answer = model(images.clone())  # a model may write into its images, too
        except RuntimeError as error:
            own = next((p.dtype for p in model.parameters() if p.is_floating_point()), images.dtype)
            if own == images.dtype or "type" not in str(error):
                raise
            raise ValueError(
                f"the model does not take {images.dtype} images: its parameters are {own}; attack images.to({own})"
            ) from error
        logits = checked_logits(answer, len(images))
    if int(labels.max()) >= logits.shape[1]:
        raise ValueError(f"the labels go up to {int(labels.max())}, but the model has {logits.shape[1]} classes")
    return prediction(logits, labels)


def _check(attack: AbstractAttack, model: Any, generator: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"the model must be an nn.Module, from images to logits, got {type(model).__name__}; a function goes into "
            "the forward of one"
        )
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, such as torch.Generator().manual_seed(3), {generator!r}")
    missing = [name for name in ("eps", "norm") if not hasattr(attack, name)]
    if missing:
        raise TypeError(
            f"{type(attack).__name__} has no {' and no '.join(missing)}: an attack has both, eps = math.inf where it "
            "has no bound"
        )
    check_radius(attack.eps, attack.norm)


def _check_result(name: str, moved: Any, images: Tensor) -> None:
    if not isinstance(moved, Tensor):
        raise TypeError(f"{name} must return images, a tensor, got {type(moved).__name__}: a mistake in the attack")
    if moved.shape != images.shape:
        raise ValueError(
            f"{name} returned {tuple(moved.shape)} for images of shape {tuple(images.shape)}: a mistake in the attack"
        )
    bad = int((~torch.isfinite(moved)).sum())
    if bad:
        raise ValueError(f"{name} returned {bad} values that are not finite: a mistake in the attack")


def _wide(mask: Tensor, images: Tensor) -> Tensor:
    return mask.view(-1, *[1] * (images.dim() - 1))
