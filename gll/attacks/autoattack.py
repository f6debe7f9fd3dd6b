"""AutoAttack (Croce, Hein 2020), from the package pyautoattack: an ensemble that needs no tuning.

What the package wants, and how it gets it:

- *Logits.* Log-probabilities are logits: their cross-entropy is the same, and its other losses look at differences.
  They are handed over in float32, since some of its parts mix them with images. It warns of outputs that sum to one.
- *Classes.* Its targeted parts try nine classes, and fail where there are fewer than ten: they get as many as there
  are. The targeted DLR loss needs four classes; below, that part is left out, and the result's notes say so.
- *Precision.* It computes in float32. A model of float64 images gets them in float64; an image that is not moved is
  returned as it was, to the last digit.
- *Randomness.* It seeds PyTorch's own generators. They are put back, and the seed comes from ours.
- *Batches.* It goes on with the images that are still right. In a graph of all queries these then have another graph,
  without the others: what it takes for a success may be none. So its parts are made one after the other, each on all
  images that are still right when the whole batch is judged. Queries that are each alone in their graph
  (`Queries.ALONE`) do not have the difficulty.
- *Verdicts.* Where a stand-in lends its gradient (`EveryClass`, `Transfer` that asks), it must not say what a success
  is. The class that it names is therefore made that of the model under attack, without touching its gradient.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gll.attacks.base import AbstractAttack, Watched, checked_logits, into_ball_and_box, judge_of, note
from gll.attacks.best import Best
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.inputs import check_ball
from gll.attacks.norms import L2, AbstractNorm, LInf
from gll.attacks.objectives import prediction
from gll.data.random import own_random_state
from gll.names import require_name

VERSIONS = {
    "standard": ("apgd-ce", "apgd-t", "fab-t", "square"),
    "rand": ("apgd-ce", "apgd-dlr"),
    "gradients": ("apgd-ce", "apgd-t", "fab-t"),
}
"""The parts of each version: "standard" for models whose answers repeat, "rand" for random ones; "gradients" is the
first without the part that needs none, for another view of the same model."""
LEAST_CLASSES = {"apgd-t": 4, "apgd-dlr": 3}  # that the losses of these parts are defined for
LEAST_SIDE = 5  # pixels that its Square attack divides an image into
TARGETS = 9  # that the targeted parts try, at most


@final
@dataclass(frozen=True)
class AutoAttack(AbstractAttack):
    """AutoAttack over the package pyautoattack (`pip install gll[attacks]`).

    Args:
        eps: how far each image may be moved, in pixel units.
        norm: L∞ or L2.
        version: "standard", or "rand" for a model that answers at random.
        batch: images at a time; None: all at once, which a graph of all queries needs.
        steps: iterations of its gradient attacks; 100 in the publication.
        queries: of its Square attack; 5,000 in the publication.

    Images must be (n, channels, height, width). The notes of the result have the share of images that are wrong after
    each of its parts (`notes["parts"]`), and why others were left out (`notes["left_out"]`).
    """

    eps: float
    norm: AbstractNorm = field(default_factory=LInf)
    version: str = "standard"
    batch: int | None = None
    steps: int = 100
    queries: int = 5000

    def __post_init__(self) -> None:
        check_ball(self.eps, self.norm)
        require_name("version of AutoAttack", self.version, VERSIONS)
        if not isinstance(self.norm, LInf | L2) or (isinstance(self.norm, LInf) and self.norm.scale != 1):
            raise ValueError(f"AutoAttack knows L∞ and L2 in pixel units, got {self.norm}")
        if self.steps < 1 or self.queries < 1 or (self.batch is not None and self.batch < 1):
            raise ValueError(
                f"steps, queries and batch must be at least 1, got {self.steps}, {self.queries} and {self.batch}"
            )

    @property
    def name(self) -> str:
        return "autoattack" if self.version == "standard" else f"autoattack-{self.version}"

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        package = package_or_error()
        if images.dim() != 4 or min(images.shape[2:]) < LEAST_SIDE:
            raise ValueError(
                f"AutoAttack takes images (n, channels, height, width) of at least {LEAST_SIDE} × {LEAST_SIDE} pixels, "
                f"got {tuple(images.shape)}"
            )
        narrow = _Narrow(model, images.dtype)
        with torch.no_grad():
            classes = narrow(images.float()).shape[1]
        least = {part: LEAST_CLASSES.get(part, 2) for part in VERSIONS[self.version]}
        parts = [part for part, needed in least.items() if classes >= needed]
        seed = int(torch.randint(2**31 - 1, (), generator=generator, device=generator.device))
        norm = "Linf" if isinstance(self.norm, LInf) else "L2"
        with _as_it_was():
            # A version of ours has the settings of the standard one, part by part.
            version = "rand" if self.version == "rand" else "standard"
            attack = package.AutoAttack(
                narrow, eps=self.eps, norm=norm, version=version, seed=seed, device=images.device
            )
            attack.apgd_targeted.n_target_classes = attack.fab.n_target_classes = min(TARGETS, classes - 1)
            for part in (attack.apgd, attack.apgd_targeted):
                _set_steps(part, self.steps)
            attack.fab.n_iter, attack.square.n_queries = self.steps, self.queries
            kept, errors = self._run(attack, parts, model, images, labels)
        note(model, "parts", errors)
        if len(parts) < len(least):
            left = {part: f"its loss needs {n} classes" for part, n in least.items() if part not in parts}
            note(model, "left_out", left)
        return kept

    def _run(
        self, attack: Any, parts: list[str], model: nn.Module, images: Tensor, labels: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """The best images, and the share of wrong ones after each part."""
        best, kept = Best(images, labels), images
        best.look(model, images)
        right = _right(model, images, labels)
        errors: dict[str, float] = {}
        for part in parts:
            if bool(right.any()):
                attack.attacks_to_run = [part]
                clean = images[right].float()
                batch = len(clean) if self.batch is None else self.batch
                moved, _ = attack.run_standard_evaluation(clean.clone(), labels[right], batch_size=batch)
                trial = kept.clone()
                trial[right] = torch.where(moved == clean, images[right], moved.to(images.dtype))
                best.look(model, into_ball_and_box(trial, images, self))
                kept = best.images(model)
                right = _right(model, kept, labels)
            errors[part] = float((~right).double().mean())
        return kept, errors


@final
class _Narrow(nn.Module):
    """A model with float32 in and out, in a tensor of its own: the package writes into it.

    Args:
        model: what is attacked, or what stands in for it.
        dtype: of the images that it takes.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype
        self.verdict = _verdict(model)

    def forward(self, images: Tensor) -> Tensor:
        if images.requires_grad:  # it views gradients as rows, which those of channels-last convolutions are not
            images = images.view_as(images)
            images.register_hook(lambda gradient: gradient.contiguous())
        seen = images.to(self.dtype)
        logits = checked_logits(self.model(seen), len(images))
        if self.verdict is not None:
            with torch.no_grad():
                said = self.verdict(seen.detach()).argmax(1)
            logits = agreeing(logits, said)
        return logits.float().clone()


def agreeing(logits: Float[Tensor, "n classes"], said: Int[Tensor, " n"]) -> Float[Tensor, "n classes"]:
    """The same logits but for that of the class `said`, which a constant makes the largest.

    Its margin m before the others becomes 1 + m, and 1/(1 - m) where it was behind. So what was further behind is still
    less far ahead: an attack that compares losses finds them in the order they had.

    Differentiable in: `logits`, as before.

    >>> agreeing(torch.tensor([[0.0, 3.0], [0.0, 3.0]]), torch.tensor([1, 0]))
    tensor([[0.0000, 4.0000],
            [3.2500, 3.0000]])
    """
    column = said[:, None]
    own = logits.gather(1, column)
    other = logits.detach().scatter(1, column, -torch.inf).amax(1, keepdim=True)
    margin = own.detach() - other
    ahead = torch.where(margin >= 0, 1 + margin, 1 / (1 - margin.clamp(max=0)))
    ahead = torch.maximum(ahead, 4 * torch.finfo(torch.float32).eps * other.abs())  # it is rounded to float32 later
    return logits.scatter(1, column, other + ahead + (own - own.detach()))


def _verdict(model: nn.Module) -> nn.Module | None:
    """Who says which class it is, for any part of the images; None: the model that is followed."""
    judge = judge_of(model)
    if judge is model or not isinstance(model, Watched):
        return None
    inner, seen = judge.model if isinstance(judge, Watched) else judge, model.model
    if not isinstance(inner, GraphVictim) or inner.threat.alone:
        return judge
    # One graph of all queries says nothing of a part of them: each of them alone does.
    apart = isinstance(seen, GraphVictim) and seen.threat.alone and not seen.each_class
    return None if apart else inner.apart()


@torch.no_grad()
def _right(model: nn.Module, images: Tensor, labels: Tensor) -> Bool[Tensor, " n"]:
    """Which images the judge classifies rightly, all together."""
    return prediction(judge_of(model)(images), labels) == labels


def _set_steps(part: Any, steps: int) -> None:
    """Iterations of its projected gradient attack, and the points at which it looks back."""
    part.n_iter = part.n_iter_orig = steps
    part.n_iter_2, part.n_iter_min = max(int(0.22 * steps), 1), max(int(0.06 * steps), 1)
    part.size_decr = max(int(0.03 * steps), 1)


def package_or_error() -> Any:
    """The package, or an error that says how to get it."""
    try:
        return importlib.import_module("pyautoattack")
    except ImportError:
        raise ImportError(
            "AutoAttack needs the package pyautoattack: pip install 'gll[attacks]', or leave it out (Square, PGD with "
            "several objectives and Transfer need nothing)"
        ) from None


@contextmanager
def _as_it_was() -> Iterator[None]:
    """PyTorch's generators, the tracing of a debugger and the logger are as before at the end.

    What the package has to say about the model (zero gradients, randomness) is what `checks.py` looks at by itself.
    """
    logger, trace = logging.getLogger("auto-attack"), sys.gettrace()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with own_random_state():
            yield
    finally:
        logger.setLevel(level)
        sys.settrace(trace)
