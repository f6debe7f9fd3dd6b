"""What an attack is given, looked at before it begins: a radius, a norm, an objective, images, labels, a model.

A mistake here would not stop an attack. It would make it weak, and a weak attack reads as a robust model. So each of
these is an error that says what was got and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gll.attacks.norms import AbstractNorm, LInf
from gll.attacks.objectives import AbstractObjective

OUTSIDE = 1e-6  # resizing in float32 leaves pixels so far outside of [0, 1]


def check_ball(eps: Any, norm: Any) -> None:
    """Refuse a radius or a norm that bounds nothing.

    >>> check_ball(8, LInf())
    Traceback (most recent call last):
    ValueError: eps must be at most 1, the whole range of a pixel, got 8; an eps of 8 in 255 is 0.0314
    """
    check_radius(eps, norm)
    if math.isinf(eps):
        raise ValueError("eps must be finite: this attack stays in a ball (CarliniWagner looks for the shortest way)")


def check_radius(eps: Any, norm: Any) -> None:
    """Refuse a radius that is no length, or a norm that is none; an infinite radius is no bound at all."""
    if not isinstance(norm, AbstractNorm):
        raise TypeError(f"norm must be an object, LInf() or L2(), got {norm!r}")
    is_number = isinstance(eps, Real) and not isinstance(eps, bool)
    if not is_number:
        hint = "; the paper's units: eps.pixels, with norm=eps.norm" if hasattr(eps, "pixels") else ""
        raise TypeError(f"eps must be a number, such as 8 / 255, got {eps!r}{hint}")
    if not eps >= 0:  # true for nan, too
        raise ValueError(f"eps must be ≥ 0, got {eps}")
    if isinstance(norm, LInf):
        scale = max(norm.scale) if isinstance(norm.scale, tuple) else norm.scale
        if 1 + 1e-9 < eps * scale < math.inf:
            hint = f"; an eps of {eps:g} in 255 is {eps / 255:.4f}" if eps <= 255 else ""
            raise ValueError(f"eps must be at most 1, the whole range of a pixel, got {eps:g}{hint}")


def check_objective(objective: Any) -> None:
    """Refuse what is no objective."""
    if not isinstance(objective, AbstractObjective):
        made = isinstance(objective, type) and issubclass(objective, AbstractObjective)
        got = f"the class itself: {objective.__name__}()" if made else f"{objective!r}"
        raise TypeError(f"objective must be an object, such as CrossEntropy(), Margin() or DLR(), got {got}")


def checked_images(images: Any) -> Float[Tensor, "n ..."]:
    """A copy of the images, if they are batches of pixels in [0, 1]. What is outside by rounding is brought inside."""
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a tensor, got {type(images).__name__}; torch.as_tensor makes one of an array")
    if images.dtype not in (torch.float32, torch.float64):
        what = "images.float()" if images.is_floating_point() else "bytes: images.float() / 255"
        raise ValueError(f"images must be float32 or float64, got {images.dtype} ({what})")
    if images.dim() < 2 or images.numel() == 0:
        raise ValueError(f"images must have shape (n, ...) with at least one pixel, got {tuple(images.shape)}")
    low, high = (float(v) for v in torch.aminmax(images.detach()))
    if not (low >= -OUTSIDE and high <= 1 + OUTSIDE):  # false for nan, too
        raise ValueError(
            f"pixels must be in [0, 1], got {low:g} to {high:g}; a model of normalised images has to normalise inside"
        )
    return images.detach().clone().clamp_(0, 1)


def checked_labels(labels: Any, images: Float[Tensor, "n ..."]) -> Int[Tensor, " n"]:
    """A copy of the labels, if they are one class from 0 on for each image."""
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels must be a tensor of classes, got {type(labels).__name__}; torch.tensor makes one")
    if labels.shape != images.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"labels must be {len(images)} integer classes, one an image, got {labels.dtype} "
            f"of shape {tuple(labels.shape)}"
        )
    if labels.device != images.device:
        raise ValueError(f"labels are on {labels.device}, the images on {images.device}; move one of them")
    if int(labels.min()) < 0:
        raise ValueError(f"labels must be classes from 0 on, got {int(labels.min())}; leave unlabelled images out")
    return labels.detach().long().clone()


def check_base(base: Any, labels: Any, num_classes: int, *, is_features: bool) -> None:
    """Refuse a base that could not classify: images as for an attack, or features; classes, or soft labels."""
    what = "features" if is_features else "images"
    if not isinstance(base, Tensor) or not isinstance(labels, Tensor):
        got = f"{type(base).__name__} and {type(labels).__name__}"
        raise TypeError(f"the base must be two tensors, {what} and labels, got {got}")
    if base.dim() < 2 or base.numel() == 0:
        raise ValueError(f"the base must be {what} of shape (m, ...), at least one, got {tuple(base.shape)}")
    if not base.is_floating_point():
        raise ValueError(f"the base must be floating point, got {base.dtype} (bytes: base.float() / 255)")
    low, high = (float(v) for v in torch.aminmax(base.detach()))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"the base's {what} are not finite: {int((~torch.isfinite(base)).sum())} values")
    # Points, (m, d), may be anything: it is the attacked ones that must be in [0, 1].
    if not is_features and base.dim() > 2 and not (low >= -OUTSIDE and high <= 1 + OUTSIDE):
        raise ValueError(
            f"the base's pixels must be in [0, 1], got {low:g} to {high:g}; give mean and std to normalise inside"
        )
    check_base_labels(labels, len(base), num_classes)
    if labels.device != base.device:
        raise ValueError(f"the base's labels are on {labels.device}, its {what} on {base.device}; move one of them")


def check_base_labels(labels: Tensor, m: int, num_classes: int) -> None:
    """Refuse labels that are neither m classes, -1 for none, nor m rows of soft labels."""
    if labels.shape[:1] != (m,) or labels.dim() > 2:
        raise ValueError(f"{m} base samples need as many labels, got labels of shape {tuple(labels.shape)}")
    if labels.dim() == 2:
        if labels.shape[1] != num_classes or not labels.is_floating_point() or not bool(torch.isfinite(labels).all()):
            raise ValueError(
                f"soft labels of the base must be finite numbers of shape ({m}, {num_classes}), got {labels.dtype} of "
                f"shape {tuple(labels.shape)}"
            )
        return
    if labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"labels of the base must be integer classes, got {labels.dtype}")
    low, high = (int(v) for v in torch.aminmax(labels))
    if low < -1 or high >= num_classes or high < 0:
        raise ValueError(
            f"labels of the base must be classes 0 to {num_classes - 1}, or -1 for none, and not -1 throughout; got "
            f"{low} to {high}"
        )


class NoSlopeError(ValueError):
    """A model has no gradient with respect to its images, not even one that is zero."""


def require_slope(logits: Tensor, images: Tensor) -> None:
    """Refuse logits that do not depend on the images in a way that can be differentiated.

    An attack that follows the gradient would stand still, and the natural error would be taken for robustness. A
    gradient that is there and zero is another matter: it is counted (`Attacked.zero_gradients`).
    """
    if not images.requires_grad or (logits.requires_grad and _leads_to(logits, images)):
        return
    raise NoSlopeError(
        "the model's logits do not depend on its images in a way that can be differentiated (detach, no_grad, "
        "inference_mode, argmax or a comparison inside?), so that there is no gradient to follow; use an attack that "
        "needs none: Square, or Transfer from another model"
    )


def _leads_to(result: Tensor, start: Tensor) -> bool:
    """Whether there is a path of operations from `start` to `result`."""
    goal = torch.autograd.graph.get_gradient_edge(start).node
    todo, seen = [torch.autograd.graph.get_gradient_edge(result).node], set()
    while todo:
        node = todo.pop()
        if node == goal:
            return True
        if node not in seen:
            seen.add(node)
            todo += [parent for parent, _ in node.next_functions if parent is not None]
    return False


@contextmanager
def in_evaluation(module: nn.Module) -> Iterator[None]:
    """All parts of a module in evaluation mode; afterwards, those that were in training mode are so again."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
