"""AutoAttack (Croce, Hein 2020), from the package pyautoattack: an ensemble that needs no tuning.

What the package wants, and how it gets it:

- *Logits.* Log-probabilities are logits: their cross-entropy is the same, and its other losses look at differences.
  They are handed over in float32, since some of its parts mix them with images. It warns of outputs that sum to one.
- *Classes.* Its targeted parts try nine classes, and fail where there are fewer than ten: they get as many as there
  are. The targeted DLR loss needs four classes; below, that part is left out.
- *Randomness.* It seeds PyTorch's own generators. They are put back, and the seed comes from ours.
- *Batches.* It goes on with the images that are still right. In a graph of all queries these then have another graph,
  without the others: what it takes for a success may be none. The final word is that of the whole batch, as with every
  attack; queries that are each alone in their graph (`Queries.ALONE`) do not have the difficulty.
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
from torch import Tensor, nn

from gll.attacks.base import AbstractAttack, checked_logits
from gll.attacks.inputs import check_ball
from gll.attacks.norms import L2, AbstractNorm, LInf
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

    Images must be (n, channels, height, width).
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
        narrow = _Narrow(model)
        with torch.no_grad():
            classes = narrow(images.float()).shape[1]
        seed = int(torch.randint(2**31 - 1, (), generator=generator, device=generator.device))
        norm = "Linf" if isinstance(self.norm, LInf) else "L2"
        with _as_it_was():
            attack = package.AutoAttack(
                narrow, eps=self.eps, norm=norm, version=self.version, seed=seed, device=images.device
            )
            attack.attacks_to_run = [part for part in VERSIONS[self.version] if classes >= LEAST_CLASSES.get(part, 2)]
            attack.apgd_targeted.n_target_classes = attack.fab.n_target_classes = min(TARGETS, classes - 1)
            for part in (attack.apgd, attack.apgd_targeted):
                _set_steps(part, self.steps)
            attack.fab.n_iter, attack.square.n_queries = self.steps, self.queries
            batch = len(images) if self.batch is None else self.batch
            moved, _ = attack.run_standard_evaluation(images.float().clone(), labels.clone(), batch_size=batch)
        out: Tensor = moved.to(images.dtype)
        return out


@final
class _Narrow(nn.Module):
    """A model with float32 in and out, in a tensor of its own: the package writes into it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        if images.requires_grad:  # it views gradients as rows, which those of channels-last convolutions are not
            images = images.view_as(images)
            images.register_hook(lambda gradient: gradient.contiguous())
        return checked_logits(self.model(images), len(images)).float().clone()


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
