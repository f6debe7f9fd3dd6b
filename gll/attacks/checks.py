"""Checks that distrust a robustness number, run with every evaluation.

An attack that fails says nothing by itself: the model may be robust, or its gradient may be hidden from the attack. A
hidden gradient gives itself away. Each check looks for one sign of it, and is a line of the report with its figure and
what that means. Passing all of them proves nothing; failing one means that the error under attack is too low.

| check | sign of trouble |
|---|---|
| zero gradients | a gradient attack has nothing to follow |
| black box or transfer | an attack that knows less does better |
| single step | one step does better than many |
| losses disagree | other objectives fool samples that cross-entropy does not |
| all errors | with every image allowed, some sample still holds out |
| deterministic | two calls differ, so that a gradient is that of another model |
| batch dependence | an answer depends on what else is asked |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gll.attacks.balls import Ball
from gll.attacks.base import AbstractAttack
from gll.attacks.evaluate import Evaluation, Outcome, evaluate
from gll.attacks.gradient import FGSM, PGD, input_gradient
from gll.attacks.objectives import CrossEntropy, Margin, prediction
from gll.attacks.square import Square
from gll.attacks.store import Kind, Store
from gll.data.random import own_random_state
from gll.train.progress import Reporter

SAMPLES, STEPS, QUERIES = 100, 20, 200  # of the attacks of the checks
WHITE = (Kind.SINGLE, Kind.MULTI)
BLACK = (Kind.BLACK_BOX, Kind.TRANSFER)
FEW = 0.02  # by chance, or by an attack that is a little better: two samples of a hundred
CLOSE = 0.05  # honest objectives differ by a few percent
SAME = 1e-3  # probabilities that differ by less are the same: a GPU rounds differently for another batch


@final
@dataclass(frozen=True)
class Check:
    """One line of the report.

    Args:
        name: what was looked at.
        figure: what was found.
        passed: whether that is as it should be.
        meaning: what the figure is, and what follows from it.
    """

    name: str
    figure: float
    passed: bool
    meaning: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.name, "figure": self.figure, "passed": self.passed, "meaning": self.meaning}


def zero_gradients(model: nn.Module, images: Float[Tensor, "n ..."], labels: Int64[Tensor, " n"]) -> Check:
    """The share of samples, of those classified rightly, whose gradient of the cross-entropy is exactly zero.

    Differentiable in: nothing.
    """
    gradient, logits = input_gradient(model, images, labels, CrossEntropy())
    right = prediction(logits, labels) == labels
    zero = (gradient == 0).flatten(1).all(1)[right]
    figure = float(zero.double().mean()) if len(zero) else 0.0
    return _at_most(
        FEW,
        "zero gradients",
        figure,
        f"{figure:.1%} of samples have a gradient of cross-entropy that is exactly zero",
        "attacks by that gradient do nothing to them, and their error says nothing",
    )


def deterministic(model: nn.Module, images: Float[Tensor, "n ..."]) -> Check:
    """How much a probability differs between two calls with the same images.

    Differentiable in: nothing.
    """
    with own_random_state():
        figure = _difference(_probabilities(model, images), _probabilities(model, images))
    return _at_most(
        SAME,
        "deterministic",
        figure,
        f"two calls with the same images differ by {figure:.2g} in a probability",
        "average gradients over many calls before believing an error (AutoAttack rand)",
    )


def batch_dependence(model: nn.Module, images: Float[Tensor, "n ..."], *, noise: float = 0.0) -> Check:
    """How much a probability changes when half of the images are asked alone.

    Args:
        model: what is attacked.
        images: some samples.
        noise: the figure of `deterministic`: what differs by chance is not counted.

    Differentiable in: nothing.
    """
    half = max(1, len(images) // 2)
    with own_random_state():
        together = _probabilities(model, images)
        apart = torch.cat([_probabilities(model, part) for part in images.split(half)])
    figure = _difference(together, apart)
    return _at_most(
        max(SAME, 3 * noise),
        "batch dependence",
        figure,
        f"an answer changes by up to {figure:.2g} in a probability when half of the images are asked",
        "an error holds for this chunk only; ask for each image alone, or inductively",
    )


def transfer_or_black_box_beats_white_box(evaluations: Iterable[Evaluation]) -> Check:
    """The share of samples that are fooled without the model's gradient and by no attack that uses it.

    The largest over all balls for which there are attacks of both kinds.
    """
    found = []
    for evaluation in evaluations:
        for ball in evaluation.balls:
            kinds = {o.cell.kind for o in evaluation.outcomes if o.ball == ball}
            if kinds & set(WHITE) and kinds & set(BLACK):
                only = evaluation.fooled(ball, *BLACK) & ~evaluation.fooled(ball, *WHITE)
                found.append((float(only.mean()), ball))
    figure, where = _largest(found)
    return _at_most(
        FEW,
        "black box or transfer",
        figure,
        f"{figure:.1%} of samples are fooled by black-box or transferred images, and by no white-box attack ({where})",
        "the gradient hides what is there to be found",
    )


def single_step_beats_multi_step(evaluations: Iterable[Evaluation]) -> Check:
    """By how much the error of one step exceeds that of many, with the same objective and ball."""
    found = []
    for evaluation in evaluations:
        for one in _of_kind(evaluation, Kind.SINGLE):
            for many in _of_kind(evaluation, Kind.MULTI):
                if one.ball == many.ball and _objective(one) == _objective(many):
                    found.append((one.error - many.error, one.ball))
    figure, where = _largest(found)
    return _at_most(
        FEW,
        "single step",
        figure,
        f"the error of a single step is {figure:+.1%} beside that of many steps ({where})",
        "many steps get lost, so the gradient does not point to the boundary",
    )


def losses_disagree(evaluations: Iterable[Evaluation]) -> Check:
    """By how much the error of all multi-step attacks together exceeds that of those on cross-entropy alone."""
    found = []
    for evaluation in evaluations:
        for ball in evaluation.balls:
            many = [o for o in _of_kind(evaluation, Kind.MULTI) if o.ball == ball]
            plain = [o.inside(ball) for o in many if _objective(o) == CrossEntropy.__name__]
            if plain and len(plain) < len(many):
                together = np.logical_or.reduce([o.inside(ball) for o in many])
                found.append((float(together.mean() - np.logical_or.reduce(plain).mean()), ball))
    figure, where = _largest(found)
    return _at_most(
        CLOSE,
        "losses disagree",
        figure,
        f"attacks on other objectives add {figure:.1%} to the error of those on cross-entropy ({where})",
        "robustness against cross-entropy is masking; look at the worst case",
    )


def reaches_all_errors(errors: Mapping[float, float]) -> Check:
    """Whether the error comes to 100 % as ε grows.

    Args:
        errors: the error of a gradient attack by its ε, up to one that allows every image.

    >>> reaches_all_errors({0.1: 0.4, 1.0: 1.0}).passed, reaches_all_errors({0.1: 0.4, 1.0: 0.7}).passed
    (True, False)
    """
    eps = max(errors)
    figure = errors[eps]
    grown = ", ".join(f"{errors[e]:.1%} at {e:g}" for e in sorted(errors))
    return Check(
        "all errors",
        figure,
        figure >= 1 - FEW,
        f"the error grows with ε to {figure:.1%} ({grown})"
        + ("" if figure >= 1 - FEW else ", though every image is allowed there: the attack, not the model, is weak"),
    )


def probes(eps: float) -> tuple[AbstractAttack, ...]:
    """The attacks of the checks: few steps, enough to see signs.

    Args:
        eps: where the evaluation looks, in pixel units.
    """
    grown = sorted({eps, 0.3, 1.0})
    return (
        FGSM(eps),
        PGD(eps, steps=STEPS, objective=Margin()),
        Square(eps, queries=QUERIES),
        *(PGD(radius, steps=STEPS) for radius in grown if radius >= eps),
    )


def run_checks(
    model: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Int64[Tensor, " n"],
    *,
    eps: float,
    evaluations: Sequence[Evaluation] = (),
    store: Store | None = None,
    reporter: Reporter | None = None,
    seed: int = 0,
) -> tuple[Check, ...]:
    """All checks of one model, on some samples and on what larger evaluations of it have found.

    Args:
        model: images in [0, 1] to logits.
        images, labels: at most a hundred are used.
        eps: where the evaluation looks, in pixel units.
        evaluations: of the same model.
        store: where the results of the checks' own attacks are kept.
        reporter, seed: as in `evaluate`.

    Differentiable in: nothing.
    """
    images, labels = images[:SAMPLES], labels[:SAMPLES]
    own = evaluate(
        model, images, labels, probes(eps), chunk=SAMPLES, store=store, reporter=reporter, seed=seed, about="checks: "
    )
    everything = (own, *evaluations)
    errors = {o.ball.eps: o.error for o in own.outcomes if o.ball and _objective(o) == CrossEntropy.__name__}
    random = deterministic(model, images)
    return (
        zero_gradients(model, images, labels),
        transfer_or_black_box_beats_white_box(everything),
        single_step_beats_multi_step(everything),
        losses_disagree(everything),
        reaches_all_errors(errors),
        random,
        batch_dependence(model, images, noise=random.figure),
    )


def _at_most(limit: float, name: str, figure: float, found: str, follows: str) -> Check:
    """A check of a figure that should be small: what was found, and what follows where it is not."""
    passed = figure <= limit
    return Check(name, figure, passed, found if passed else f"{found}: {follows}")


def _of_kind(evaluation: Evaluation, kind: Kind) -> list[Outcome]:
    return [outcome for outcome in evaluation.outcomes if outcome.cell.kind is kind]


def _objective(outcome: Outcome) -> str | None:
    objective = outcome.cell.settings.get("objective")
    return objective if objective is None or isinstance(objective, str) else str(objective["name"])


def _largest(found: Sequence[tuple[float, Ball | None]]) -> tuple[float, str]:
    if not found:
        raise ValueError("no two attacks with the same ball to compare; run_checks brings its own")
    figure, ball = max(found, key=lambda pair: pair[0])
    return figure, str(ball)


def _probabilities(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.softmax(model(images).double(), 1)


def _difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())
