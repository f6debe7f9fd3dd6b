"""Many attacks on many samples, chunk by chunk, so that it can be stopped and gone on with; the worst over all of them.

The robust error is the *per-sample worst*: a sample counts as lost when any attack has fooled the model on it inside
the ball. An error under one attack says how good that attack was; only the worst over attacks that differ in kind says
something about the model, and even that is a lower bound.

What is random is drawn from a generator of its own for every cell and chunk, so that an evaluation that was killed and
resumed gives the numbers of one that was not.
Read next: `checks.py`, which distrusts the numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gll.attacks.balls import Ball
from gll.attacks.base import AbstractAttack, Attacked
from gll.attacks.kept import keep, kept
from gll.attacks.kinds import kind_of
from gll.attacks.seen import threat_of, threats_in_words
from gll.attacks.store import Cell, Chunk, Kind, Pictures, Store, plain
from gll.attacks.threat import ThreatModel
from gll.data.random import derived_seed, generator, own_random_state
from gll.train.progress import Reporter
from gll.words import counted

PICTURES = 8
"""How many attacked images are kept of a cell."""


@final
@dataclass(frozen=True, eq=False)
class Outcome:
    """What one attack did to all samples.

    Args:
        cell: the attack.
        chunks: its results.
        of_checks: whether it is one of the short attacks of the checks.
    """

    cell: Cell
    chunks: tuple[Chunk, ...]
    of_checks: bool = False

    def __repr__(self) -> str:
        name = describe(self.cell.attack, self.cell.settings)
        return f"<Outcome of {name}: {counted(len(self.success), 'sample')}, {self.error:.1%} wrong after>"

    def _joined(self, name: str) -> NDArray[Any]:
        return np.concatenate([getattr(chunk, name) for chunk in self.chunks])

    @cached_property
    def clean(self) -> NDArray[np.int64]:
        """Classes before the attack."""
        return self._joined("clean")

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """Classes after it."""
        return self._joined("predicted")

    @cached_property
    def success(self) -> NDArray[np.bool_]:
        """Which samples are classified wrongly after the attack."""
        return self._joined("success")

    @cached_property
    def linf(self) -> NDArray[np.float64]:
        """Largest change of a pixel."""
        return self._joined("linf")

    @cached_property
    def l2(self) -> NDArray[np.float64]:
        """Euclidean length of the change."""
        return self._joined("l2")

    @property
    def ball(self) -> Ball | None:
        """In which it had to stay."""
        return Ball.of(self.cell.settings)

    @property
    def error(self) -> float:
        """Share of samples that are classified wrongly after the attack."""
        return float(self.success.mean())

    @property
    def seconds(self) -> float:
        """How long it took."""
        return sum(chunk.seconds for chunk in self.chunks)

    def natural(self, labels: NDArray[np.int64]) -> float:
        """Share of samples that are classified wrongly before the attack."""
        return float((self.clean != labels).mean())

    def zero_gradients(self, labels: NDArray[np.int64]) -> float:
        """Share of samples whose first gradient was zero, among those classified rightly; NaN where none was used."""
        shares = np.array([chunk.zero_gradients for chunk in self.chunks])
        right = np.array([(c.clean == labels[c.start : c.stop]).sum() for c in self.chunks], dtype=np.float64)
        known = ~np.isnan(shares) & (right > 0)
        return float((shares[known] * right[known]).sum() / right[known].sum()) if known.any() else math.nan

    def parts(self) -> dict[str, float]:
        """The error after each part of an ensemble; empty where that is not known of all samples."""
        told = [chunk.notes.get("parts", {}) for chunk in self.chunks]
        known = [part for part in told[0] if all(part in one for one in told)]
        sizes = [len(chunk.success) for chunk in self.chunks]
        return {part: float(np.average([one[part] for one in told], weights=sizes)) for part in known}

    def left_out(self) -> dict[str, str]:
        """Parts of an ensemble that could not be made, and why."""
        return {part: why for chunk in self.chunks for part, why in chunk.notes.get("left_out", {}).items()}

    def inside(self, ball: Ball) -> NDArray[np.bool_]:
        """Which samples it has fooled inside that ball."""
        return self.success & ball.holds(self.ball, self.linf, self.l2)

    def as_dict(self, labels: NDArray[np.int64]) -> dict[str, Any]:
        """Figures for JSON, none of them by sample."""
        share = self.zero_gradients(labels)
        threat = threat_of(self.cell)
        return {
            **self.cell.as_dict(),
            "threat": None if threat is None else threat.as_dict(),
            "key": self.cell.key,
            "error": self.error,
            "natural": self.natural(labels),
            "mean_linf": float(self.linf.mean()),
            "mean_l2": float(self.l2.mean()),
            "mean_squared_l2": float(np.square(self.l2).mean()),
            "zero_gradients": None if math.isnan(share) else share,
            "seconds": round(self.seconds, 3),
            **{name: value for name, value in (("parts", self.parts()), ("left_out", self.left_out())) if value},
        }


@final
@dataclass(frozen=True, eq=False)
class Evaluation:
    """What several attacks did to one model.

    Args:
        labels: the true classes of the samples.
        outcomes: of every attack.
        threat: what is in the graph of the model; None for a model without one.

    Its errors are lower bounds that nobody has distrusted yet: give it to `run_checks` (`checks.py`).
    """

    labels: NDArray[np.int64]
    outcomes: tuple[Outcome, ...]
    threat: ThreatModel | None = None

    def __repr__(self) -> str:
        many = f"{counted(len(self.outcomes), 'attack')} on {counted(len(self.labels), 'sample')}"
        before = [f"{self.natural:.1%} wrong before"] if self.outcomes else []
        worst = [f"at worst {self.worst(ball):.1%} ({ball})" for ball in self.balls]
        return f"<Evaluation of {'; '.join([many, *before, *worst])}>"

    @property
    def natural(self) -> float:
        """Share of samples that are classified wrongly without an attack."""
        return self.outcomes[0].natural(self.labels) if self.outcomes else math.nan

    @property
    def balls(self) -> tuple[Ball, ...]:
        """The balls of all attacks, the smaller ones first; those of ensembles where there are no others.

        An ensemble knows cubes only, and where channels have units of their own it takes the largest one inside.
        """
        found = {outcome.ball for outcome in self.outcomes if outcome.cell.kind is not Kind.ENSEMBLE}
        found = found - {None} or {outcome.ball for outcome in self.outcomes}
        return tuple(sorted(ball for ball in found if ball is not None))

    def fooled(self, ball: Ball | float, *kinds: Kind) -> NDArray[np.bool_]:
        """Which samples an attack of one of these kinds has fooled inside the ball; no kinds: any attack.

        Args:
            ball: where; a number is an ε in L∞ and in pixel units, as it is in `PGD(0.1)`.
            kinds: of the attacks.
        """
        ball = ball if isinstance(ball, Ball) else Ball("LInf", ball)
        chosen = [outcome.inside(ball) for outcome in self.outcomes if not kinds or outcome.cell.kind in kinds]
        none: NDArray[np.bool_] = np.zeros(len(self.labels), dtype=np.bool_)
        return np.logical_or.reduce([none, *chosen])

    def worst(self, ball: Ball | float) -> float:
        """The robust error: the share of samples that some attack has fooled inside the ball, as in `fooled`."""
        return float(self.fooled(ball).mean())

    def as_dict(self) -> dict[str, Any]:
        """Figures for JSON, none of them by sample."""
        worst = []
        for b in self.balls:
            about = {"norm": b.norm, "eps": b.eps, "scale": list(b.scale), "error": self.worst(b)}
            balls = [(o.cell.kind, o.ball) for o in self.outcomes if o.ball is not None]
            near = [kind for kind, a in balls if a.norm == b.norm and 0.9 * b.eps <= a.eps <= b.eps]
            by_kind = {str(kind): float(self.fooled(b, kind).mean()) for kind in Kind if kind in near}
            worst.append({**about, "attacks": len(near), "by_kind": by_kind})
        return {
            "samples": len(self.labels),
            "natural": self.natural,
            "threats": threats_in_words([o.cell for o in self.outcomes]),
            "attacks": [outcome.as_dict(self.labels) for outcome in self.outcomes],
            "worst": worst,
        }


def evaluate(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    attacks: Sequence[AbstractAttack],
    *,
    chunk: int = 1000,
    store: Store | None = None,
    reporter: Reporter | None = None,
    seed: int = 0,
    about: str = "",
    after: Callable[[AbstractAttack, int, float], None] | None = None,
) -> Evaluation:
    """Attack samples by every attack, chunk by chunk; chunks that are in the store are not attacked again.

    An error alone may be low because the gradient is hidden. `run_checks(model, images, labels, eps=...,
    evaluations=[...])` in `checks.py` looks for signs of it; `gll attack` does that by itself, this does not.

    Args:
        model: images in [0, 1] to logits.
        images, labels: the samples.
        attacks: what to attack with.
        chunk: how many samples at a time. Where they share a graph, the result depends on it.
        store: where results are kept; by default nowhere.
        reporter: says how far it is.
        seed: of everything that is random.
        about: said before the name of each attack.
        after: called after each chunk, with the attack, the number of samples and the seconds.

    >>> from gll.attacks.gradient import FGSM
    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    >>> found = evaluate(model, torch.rand(6, 1, 2, 2), torch.tensor([0, 1, 0, 1, 0, 1]), [FGSM(0.0), FGSM(0.5)])
    >>> found.natural == found.worst(Ball("LInf", 0.0)) <= found.worst(Ball("LInf", 0.5))
    True

    Differentiable in: nothing.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    if len(images) == 0 or labels.shape != images.shape[:1]:
        raise ValueError(f"got {len(images)} images and labels of shape {tuple(labels.shape)}; one label an image")
    store, reporter = store or Store(), reporter or Reporter()
    outcomes = []
    with store.working():
        for attack in attacks:
            cell = cell_of(attack, model, min(chunk, len(images)))
            title = about + describe(cell.attack, cell.settings)
            outcomes.append(_attack(model, images, labels, attack, cell, store, reporter, seed, title, after))
    return Evaluation(labels.cpu().numpy(), tuple(outcomes), getattr(model, "threat", None))


def cell_of(attack: AbstractAttack, model: nn.Module, chunk: int) -> Cell:
    """What the result of an attack on a model is kept under, where `chunk` samples are attacked at a time."""
    threat = getattr(model, "threat", None)
    known = None if threat is None else plain(threat.as_dict())
    return Cell(attack.name, attack.settings(), kind_of(attack), known, chunk)


def describe(attack: str, settings: Mapping[str, Any]) -> str:
    """An attack in a few words.

    >>> describe("pgd", {"eps": 0.1, "objective": "Margin", "steps": 40, "restarts": 1, "targets": 0})
    'pgd, eps 0.1, Margin, 40 steps'
    """
    words = {
        "eps": "eps {}", "c": "c {}", "objective": "{}", "targets": "{} targets", "steps": "{} steps",
        "restarts": "{} restarts", "queries": "{} queries",
    }  # fmt: skip
    parts = [attack]
    for key, text in words.items():
        value = settings.get(key)
        if value is None or (key, value) in (("targets", 0), ("restarts", 1)):
            continue
        if key == "queries" and settings.get("version", "standard") != "standard":  # of a part that it has not
            continue
        value = value["name"] if isinstance(value, Mapping) else value
        unit = in_norm(settings) if key == "eps" else ""
        parts.append(text.format(f"{value:.4g}" if isinstance(value, float) else value) + unit)
    return ", ".join(parts)


def in_norm(settings: Mapping[str, Any]) -> str:
    """What stands behind an ε of an attack with these settings: nothing in L∞.

    >>> describe("fgsm", {"eps": 0.5, "norm": "L2"})
    'fgsm, eps 0.5 (L2)'
    """
    ball = Ball.of(settings)
    return " (L2)" if ball is not None and ball.norm == "L2" else ""


def _attack(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    attack: AbstractAttack,
    cell: Cell,
    store: Store,
    reporter: Reporter,
    seed: int,
    title: str,
    after: Callable[[AbstractAttack, int, float], None] | None,
) -> Outcome:
    """One cell: what the store lacks of it is attacked."""
    chunks = store.chunks(cell)
    keeps = store.directory if store.images else None
    if keeps is not None and any(chunk.stop > kept(keeps, cell.key) for chunk in chunks):
        chunks = tuple(chunk for chunk in chunks if chunk.stop <= kept(keeps, cell.key))
        reporter.say(f"{title}: attacked again, since its images were not kept")
    done = chunks[-1].stop if chunks else 0
    if done == len(images):
        return Outcome(cell, chunks)
    pictures = store.pictures(cell).before(done, PICTURES)
    with reporter.task(title, len(images), done) as update:
        for start in range(done, len(images), cell.chunk):
            part = slice(start, start + cell.chunk)
            begin = time.perf_counter()
            # What a model or another's attack draws from the global generator is repeatable, too.
            with own_random_state():
                torch.manual_seed(derived_seed(seed, cell.key, start))
                drawn = generator(seed, "attack", cell.key, start)
                attacked = attack(model, images[part], labels[part], generator=drawn)
            chunks = (*chunks, _chunk(attacked, start, time.perf_counter() - begin))
            pictures = pictures.joined(_pictures(attacked, labels[part], start)).before(chunks[-1].stop, PICTURES)
            if keeps is not None:
                keep(keeps, cell.key, start, attacked.images, attacked.predicted)
            store.append(cell, chunks, pictures)
            lost = sum(int(c.success.sum()) for c in chunks)
            if chunks[-1].stop < len(images):  # the line at the end says the rest
                update(chunks[-1].stop, f"error {lost / chunks[-1].stop:.2%}")
                if after is not None:
                    after(attack, len(images[part]), chunks[-1].seconds)
    outcome = Outcome(cell, chunks)
    natural = outcome.natural(labels.cpu().numpy())
    reporter.say(f"{title}: error {outcome.error:.2%}, {natural:.2%} before ({outcome.seconds:.1f} s)")
    if after is not None:  # behind that line: what it says of the attacks to come is not of this one
        after(attack, len(chunks[-1].success), chunks[-1].seconds)
    return outcome


def _chunk(attacked: Attacked, start: int, seconds: float) -> Chunk:
    names = ("clean", "predicted", "success", "linf", "l2")
    clean, predicted, success, linf, l2 = (getattr(attacked, name).cpu().numpy() for name in names)
    distances = (linf.astype(np.float64), l2.astype(np.float64))
    made = Chunk(start, clean, predicted, success, *distances, attacked.zero_gradients, seconds, attacked.notes)
    return Chunk.from_dict(made.as_dict())  # rounded as in a file: an evaluation that was resumed is equal


def _pictures(attacked: Attacked, labels: Tensor, start: int) -> Pictures:
    """The first images that were classified rightly before and wrongly after."""
    index = torch.nonzero(attacked.success & (attacked.clean == labels))[:PICTURES, 0]
    return Pictures(index.cpu().numpy() + start, attacked.images[index].float().cpu().numpy())
