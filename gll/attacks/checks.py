"""Checks that distrust a robustness number: `gll attack` runs them with every evaluation, in Python `run_checks` does.

An attack that fails says nothing by itself: the model may be robust, or its gradient may be hidden from the attack. A
hidden gradient gives itself away. Each check looks for one sign of it, and is a line of the report with its figure and
what that means. Passing all of them proves nothing; failing one means that the error under attack is too low, or that
of some attacks. A share of samples above its limit fails from three samples on: one of thirty is nothing to judge by;
where one attack does better than another, `beats` in `signs.py` says when that counts. What is too large, but by too
few samples to fail, has not passed either: the report says *too few samples*.

| check | sign of trouble |
|---|---|
| zero gradients | a gradient attack has nothing to follow |
| black box or transfer | an attack that knows less does better |
| single step | one step does better than many |
| losses disagree | other objectives do better than cross-entropy |
| stand-in | another gradient does better than the model's own |
| all errors | with every image allowed, some sample still holds out |
| deterministic | two calls differ, so that a gradient is that of another model |
| batch dependence | an answer depends on what else is asked |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from gll.attacks.base import AbstractAttack
from gll.attacks.errors import Errors
from gll.attacks.evaluate import Evaluation, Outcome, describe, evaluate
from gll.attacks.features import FeatureAttack
from gll.attacks.gather import judged_by
from gll.attacks.gradient import FGSM, PGD, input_gradient
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.inputs import NoSlopeError
from gll.attacks.kinds import is_own
from gll.attacks.norms import AbstractNorm, LInf
from gll.attacks.objectives import CrossEntropy, Margin, prediction
from gll.attacks.signs import (
    FEW,
    Check,
    at_most,
    exceeds,
    losses_disagree,
    objective_of,
    single_step_beats_multi_step,
    stand_ins_beat_own_gradient,
    too_few,
    transfer_or_black_box_beats_white_box,
)
from gll.attacks.square import Square
from gll.attacks.store import PER_SAMPLE, Kind, Store
from gll.attacks.transfer import EveryClass
from gll.data.random import own_random_state
from gll.train.progress import Reporter
from gll.words import counted

SAMPLES, STEPS, QUERIES = 100, 20, 200  # of the attacks of the checks
SAME = 1e-3  # probabilities that differ by less are the same: a GPU rounds differently for another batch


def zero_gradients(model: nn.Module, images: Float[Tensor, "n ..."], labels: Int64[Tensor, " n"]) -> Check:
    """The share of samples, of those classified rightly, whose gradient of the cross-entropy is exactly zero.

    A graph is asked for its own gradient, through the graph, in float64 and by an exact solve: as it is used, in
    float32, it has rounding of 1e-23 where there is no gradient, which is no direction to follow.

    Differentiable in: nothing.
    """
    graph = isinstance(model, GraphVictim)
    seen = model.through_graph().sharpened() if isinstance(model, GraphVictim) else model
    try:
        gradient, logits = input_gradient(seen, images, labels, CrossEntropy())
    except NoSlopeError:
        why = "there is no gradient at all: logits do not depend on images in a way that can be differentiated"
        return Check("zero gradients", 1.0, False, f"{why}, and no attack by a gradient can be made")
    right = prediction(logits, labels) == labels
    zero = (gradient == 0).flatten(1).all(1)[right]
    figure = float(zero.double().mean()) if len(zero) else 0.0
    return at_most(
        FEW,
        "zero gradients",
        figure,
        f"{figure:.1%} of the samples that are classified rightly have a gradient of cross-entropy that is exactly zero"
        + (", through the graph, in float64" if graph else ""),
        "attacks by that gradient do nothing to them, and their error says nothing",
        len(zero),
    )


def deterministic(model: nn.Module, images: Float[Tensor, "n ..."]) -> Check:
    """How much a probability differs between two calls with the same images.

    Differentiable in: nothing.
    """
    with own_random_state():
        figure = _difference(_probabilities(model, images), _probabilities(model, images))
    return at_most(
        SAME,
        "deterministic",
        figure,
        f"two calls with the same images differ by {figure:.2g} in a probability",
        "average gradients over many calls before believing an error (AutoAttack rand)",
    )


def batch_dependence(
    model: nn.Module, images: Float[Tensor, "n ..."], *, noise: float = 0.0, errors: Callable[[], str] | None = None
) -> Check:
    """How much a probability changes when half of the images are asked alone.

    Args:
        model: what is attacked.
        images: some samples.
        noise: the figure of `deterministic`: what differs by chance is not counted.
        errors: says what that does to the error under attack; asked where an answer depends on the batch.

    Differentiable in: nothing.
    """
    half = max(1, len(images) // 2)
    with own_random_state():
        together = _probabilities(model, images)
        apart = torch.cat([_probabilities(model, part) for part in images.split(half)])
    figure, limit = _difference(together, apart), max(SAME, 3 * noise)
    error = errors() if errors is not None and figure > limit else ""
    return at_most(
        limit,
        "batch dependence",
        figure,
        f"an answer changes by up to {figure:.2g} in a probability when half of the images are asked{error}",
        "an error holds for this chunk only; ask for each image alone, or inductively",
    )


def reaches_all_errors(errors: Mapping[float, float], samples: int | None = None) -> Check:
    """Whether the error comes to 100 % as ε grows.

    Images found at one ε are allowed at every larger one: the best attack up to there counts. But not all of them
    together: random starts without any gradient, added up, would pass.

    Args:
        errors: the error of a gradient attack by its ε, up to one that allows every image.
        samples: of how many; one or two that hold out are too few to fail by.

    >>> reaches_all_errors({0.1: 0.4, 1.0: 1.0}).passed, reaches_all_errors({0.1: 0.4, 1.0: 0.7}).passed
    (True, False)
    """
    radii = sorted(errors)
    reached = list(accumulate((errors[eps] for eps in radii), max))
    figure = reached[-1]
    grown = ", ".join(f"{error:.1%} at {eps:.4g}" for eps, error in zip(radii, reached, strict=True))
    failed = exceeds(1 - figure, FEW, samples)
    few = too_few(1 - figure, FEW, samples)
    more = ", though every image is allowed there: the attack, not the model, is weak" if failed else ""
    more = f": {counted(round((1 - figure) * (samples or 0)), 'sample')} less, too few to tell" if few else more
    return Check(
        "all errors", figure, not failed, f"the error grows with ε to {figure:.1%} ({grown}){more}", enough=not few
    )


def probes(
    eps: float, *, graph: bool = False, joint: bool = False, norm: AbstractNorm | None = None, whole: float = 1.0
) -> tuple[AbstractAttack, ...]:
    """The attacks of the checks: few steps, enough to see signs.

    Args:
        eps: where the evaluation looks, in pixel units.
        graph: whether the model has a graph that can be seen otherwise.
        joint: whether all queries are in it at once.
        norm: how that is measured; by default in L∞.
        whole: the radius at which every image is allowed.
    """
    norm = norm or LInf()
    grown = sorted({eps, 0.3 * whole, whole})
    steps = PGD(eps, STEPS, norm=norm)
    views = (EveryClass(steps), FeatureAttack(eps, STEPS, norm=norm)) if graph else ()
    # Made on each query alone, it is blind to what queries do to each other.
    views = (*views, EveryClass(steps, joint=True)) if graph and joint else views
    return (
        FGSM(eps, norm),
        PGD(eps, STEPS, objective=Margin(), norm=norm),
        Square(eps, QUERIES, norm),
        *(PGD(radius, STEPS, norm=norm) for radius in grown if radius >= eps),
        *views,
    )


def run_checks(
    model: nn.Module,
    images: Float[Tensor, "n ..."],
    labels: Int64[Tensor, " n"],
    *,
    eps: float,
    norm: AbstractNorm | None = None,
    evaluations: Sequence[Evaluation] = (),
    store: Store | None = None,
    reporter: Reporter | None = None,
    seed: int = 0,
) -> tuple[Check, ...]:
    """All checks of one model, on some samples and on what larger evaluations of it have found.

    A model without any gradient fails the first. Nothing is tested then that compares attacks by its gradient.

    Args:
        model: images in [0, 1] to logits. A graph that was trained by the gradient of a surrogate (WNLL) is attacked by
            its own, through the graph: what a surrogate finds more is what a stand-in finds.
        images, labels: at most a hundred are used.
        eps: where the evaluation looks, in pixel units; above 0.
        norm: how ε is measured; by default in L∞.
        evaluations: of the same model. Where their first samples are these, in the same graph, what they have found
            on them counts together with what the checks find.
        store: where the results of the checks' own attacks are kept.
        reporter, seed: as in `evaluate`.

    Raises:
        ValueError: ε is 0, where no check could fail.

    Differentiable in: nothing.
    """
    if not eps > 0:
        raise ValueError(f"checks need an ε above 0, got {eps}: where no image may move, nothing is tested")
    images, labels = images[:SAMPLES], labels[:SAMPLES]
    about = f"checks, {len(images)} samples: "
    options: dict[str, Any] = {"store": store, "reporter": reporter, "seed": seed, "about": about}
    model = model.through_graph() if isinstance(model, GraphVictim) else model
    graph = isinstance(model, GraphVictim) and model.is_plain
    norm = norm or LInf()
    whole = float(norm.size(torch.ones_like(images[:1], dtype=torch.float64)))  # the way from black to white
    joint = isinstance(model, GraphVictim) and not model.threat.alone
    tried = probes(eps, graph=graph, joint=joint, norm=norm, whole=whole)
    random = deterministic(model, images)
    try:
        own = evaluate(model, images, labels, tried, chunk=SAMPLES, **options)
    except NoSlopeError:
        first = zero_gradients(model, images, labels)
        blind = evaluate(model, images, labels, [Square(eps, QUERIES, norm)], chunk=SAMPLES, **options)
        return *_without_gradient(first, blind), random, batch_dependence(model, images, noise=random.figure)
    own = replace(own, outcomes=tuple(replace(o, of_checks=True) for o in own.outcomes))
    everything = [Errors.of(evaluation) for evaluation in together(own, evaluations)]
    many = [o for o in own.outcomes if o.cell.kind is Kind.MULTI and is_own(o.cell)]
    errors = {o.ball.eps: o.error for o in many if o.ball and objective_of(o.cell) == CrossEntropy.__name__}

    def at_half() -> str:
        few = evaluate(model, images, labels, [FGSM(eps, norm)], chunk=max(1, len(images) // 2), **options).outcomes[0]
        return (
            f"; the error of one step at ε = {eps:.4g} is {own.outcomes[0].error:.1%} with {len(images)} of them at a "
            f"time, {few.error:.1%} with {few.cell.chunk}"
        )

    return (
        zero_gradients(model, images, labels),
        transfer_or_black_box_beats_white_box(everything),
        single_step_beats_multi_step(everything),
        losses_disagree(everything),
        stand_ins_beat_own_gradient(everything),
        reaches_all_errors(errors, len(images)),
        random,
        batch_dependence(model, images, noise=random.figure, errors=at_half),
    )


def _without_gradient(first: Check, blind: Evaluation) -> tuple[Check, ...]:
    """The checks of gradients, where there is none: what a random search finds is all that can be compared.

    Args:
        first: that of zero gradients.
        blind: a random search.
    """
    found, n = blind.outcomes[0], len(blind.labels)
    figure = float((found.success & (found.clean == blind.labels)).mean())
    words = (
        f"{figure:.1%} of samples are fooled by a random search ({describe(found.cell.attack, found.cell.settings)})"
    )
    hidden = at_most(FEW, "black box or transfer", figure, words, "no gradient is there to find them", n)
    rest = ("single step", "losses disagree", "stand-in", "all errors")
    return first, hidden, *(Check(name, 0.0, True, "there is no gradient to follow", tested=False) for name in rest)


def together(own: Evaluation, evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """What the checks have found, joined by what is known of the same samples in the same graph; and all the rest.

    Otherwise two short attacks of the checks would be compared where a longer one has shown that they differ in nothing
    but effort.

    Args:
        own: of the checks.
        evaluations: of the same model; those that say no more than what was joined are left out.
    """
    n, rest, known = len(own.labels), [], list(own.outcomes)
    for evaluation in evaluations:
        same = _begins_with(evaluation, own)
        known += [_first(outcome, n) for outcome in evaluation.outcomes] if same else []
        rest += [] if same and len(evaluation.labels) == n else [evaluation]
    return [replace(own, outcomes=tuple(known)), *rest]


def with_checks(groups: Sequence[Evaluation], tried: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """Evaluations for JSON; each worst case says where the checks' own attacks fool more of the same samples.

    Args:
        groups: what the tables show.
        tried: what the checks' own attacks have found.

    Returns:
        As `as_dict` has them. A worst case that is too low has `with_checks`: how many samples the checks have looked
        at, the error on these by the attacks of the table, and by those of the checks as well.
    """
    found = []
    for group in groups:
        shown, same = group.as_dict(), [own for own in tried if _begins_with(group, own)]
        for worst, ball in zip(shown["worst"], group.balls, strict=True):
            for own in same[:1]:
                n, table = len(own.labels), group.fooled(ball)
                known = [table[:n], *(other.fooled(ball) for other in same)]
                error, before = float(np.logical_or.reduce(known).mean()), float(table[:n].mean())
                if error > before:
                    worst["with_checks"] = {"samples": n, "table": before, "error": error}
        found.append(shown)
    return found


def _begins_with(evaluation: Evaluation, own: Evaluation) -> bool:
    """Whether the first samples of an evaluation are those of the checks, in the same graph."""
    if not evaluation.outcomes or not own.outcomes:
        return False
    n, first, ours = len(own.labels), evaluation.outcomes[0], own.outcomes[0]
    judge = judged_by(ours.cell)
    same = judged_by(first.cell) == judge and np.array_equal(first.clean[:n], ours.clean)
    same = same and np.array_equal(evaluation.labels[:n], own.labels)
    if judge and judge[-1] is not None:  # of a hundred at a time, sixty that are all make another graph
        stops = [chunk.stop for chunk in ours.chunks]
        same = same and [chunk.stop for chunk in first.chunks if chunk.start < n] == stops
    return same


def _first(outcome: Outcome, n: int) -> Outcome:
    """The same for the first n samples."""
    chunks = []
    for chunk in (chunk for chunk in outcome.chunks if chunk.start < n):
        arrays = {name: getattr(chunk, name)[: n - chunk.start] for name in PER_SAMPLE}
        # What is known of whole chunks only is not known of a part.
        chunks.append(replace(chunk, **arrays, zero_gradients=math.nan, notes={}))
    return replace(outcome, chunks=tuple(chunks))


def _probabilities(model: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.softmax(model(images).double(), 1)


def _difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())
