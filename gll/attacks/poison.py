"""Poisoning the base: wrong labels for some of its samples, or small changes of all its images.

A graph head answers from its base at test time, so whoever can touch the base attacks without touching a query. The
solution is linear in the labels, u = H g, where H_qj is the share of base sample j in the answer to query q. What a
flipped label does is therefore known before it is flipped: `GreedyFlips` chooses by it.

    poison(victim, images, labels, counts=[0, 10, 100]).errors
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.attacks.graph_victim import GraphVictim
from gll.attacks.inputs import check_ball, check_objective, checked_images, require_slope
from gll.attacks.norms import AbstractNorm, LInf
from gll.attacks.objectives import AbstractObjective, Margin, checked_values, prediction, runner_up
from gll.attacks.threat import ThreatModel

SAME = (
    1e-3  # features that differ by less, beside the largest, are the same: a GPU rounds differently for another batch
)


class AbstractFlips(ABC):
    """Chooses the labels to flip. Subclass it for a rule of your own: one method."""

    @abstractmethod
    def choose(
        self,
        victim: GraphVictim,
        images: Float[Tensor, "n *sample"],
        labels: Int[Tensor, " n"],
        count: int,
        generator: torch.Generator,
    ) -> tuple[Int[Tensor, " count"], Int[Tensor, " count"]]:
        """Numbers of `count` base samples, and the wrong class that each is given; the first flips come first."""


@final
@dataclass(frozen=True)
class RandomFlips(AbstractFlips):
    """Any base samples, and any wrong classes.

    Differentiable in: nothing.
    """

    def choose(
        self, victim: GraphVictim, images: Tensor, labels: Tensor, count: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        known = victim.base_labels.cpu()
        index = torch.nonzero(known >= 0)[:, 0]
        index = index[torch.randperm(len(index), generator=generator)][:count]
        shift = torch.randint(1, victim.layer.num_classes, (len(index),), generator=generator)
        wrong = (known[index] + shift) % victim.layer.num_classes
        return index.to(victim.base_labels.device), wrong.to(victim.base_labels)


@final
@dataclass(frozen=True)
class GreedyFlips(AbstractFlips):
    """The flips with the largest influence on queries that are still classified rightly, a few at a time.

    The attacker knows the queries and their classes. Influence is that on Σ σ(-margin/temperature), a smooth count of
    the errors, so that queries near to a change count most.

    Args:
        rounds: how often influence is computed anew; as often as there are flips, at most.
        temperature: how near to a change, in probability.

    Differentiable in: nothing.
    """

    rounds: int = 20
    temperature: float = 0.1

    def __post_init__(self) -> None:
        if self.rounds < 1 or not self.temperature > 0:
            raise ValueError(f"rounds must be at least 1 and temperature > 0, got {self.rounds} and {self.temperature}")

    def choose(
        self, victim: GraphVictim, images: Tensor, labels: Tensor, count: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            features = victim.features(images)
        known, free = victim.base_labels.clone(), victim.base_labels >= 0
        index, wrong = [], []
        rounds = min(self.rounds, count)
        for i in range(rounds):
            step = count * (i + 1) // rounds - count * i // rounds
            gain = self._gain(victim.with_labels(known), features, labels)
            gain = gain - gain.gather(1, known.clamp(min=0)[:, None])
            gain.scatter_(1, known.clamp(min=0)[:, None], -torch.inf)
            best = gain.max(1)
            chosen = best.values.masked_fill(~free, -torch.inf).topk(step).indices
            free[chosen] = False
            known[chosen] = best.indices[chosen].to(known.dtype)
            index.append(chosen)
            wrong.append(known[chosen])
        return torch.cat(index), torch.cat(wrong)

    def _gain(self, victim: GraphVictim, features: Tensor, labels: Tensor) -> Float[Tensor, "m c"]:
        """How much the smooth count of errors grows with the share of every class in every base sample."""
        with torch.no_grad():
            u = victim.log_probabilities(features).double().exp()
        other = runner_up(u, labels)
        margin = (u.gather(1, labels[:, None]) - u.gather(1, other[:, None])) / self.temperature
        slope = torch.sigmoid(-margin) * torch.sigmoid(margin)
        weight = torch.zeros_like(u).scatter(1, labels[:, None], -slope).scatter(1, other[:, None], slope)
        return influence(victim, features, weight)


def influence(
    victim: GraphVictim, features: Float[Tensor, "n d"], weight: Float[Tensor, "n c"]
) -> Float[Tensor, "m c"]:
    """∂/∂g of Σ weight·u, where g are the labels of the base as shares of classes: Hᵀ weight.

    Args:
        victim: whose base has classes.
        features: of the queries.
        weight: what each class of each query counts.

    Differentiable in: nothing.
    """
    labels = victim.base_labels
    if labels.dim() != 1:
        raise ValueError(f"labels are flipped in a base of classes, (m,), not of soft labels {tuple(labels.shape)}")
    if victim.closed_form:
        query, node, share = victim.shares(features)
        out = share.new_zeros(len(labels), weight.shape[1])
        return out.index_add(0, node, share[:, None] * weight.to(share)[query])
    if bool((labels < 0).any()):
        raise ValueError("influence needs a class for every base sample; leave those without one out")
    with torch.enable_grad():
        soft = torch.nn.functional.one_hot(labels.long(), victim.layer.num_classes).to(victim.dtype).requires_grad_()
        logp = victim.with_labels(soft).log_probabilities(features.detach())
        # log(u + floor) has the slope 1/(u + floor), which this takes back.
        (gradient,) = torch.autograd.grad(logp, soft, logp.detach().exp() * weight.to(logp))
    return gradient


@final
@dataclass(frozen=True, eq=False)
class Poisoned:
    """What flipped labels did.

    Args:
        counts: labels flipped.
        errors: the share of queries that is wrong, for each of these.
        index, wrong: the base samples in the order in which they were flipped, and their new classes.
        threat: what is in the graph, and how its labels were chosen.
    """

    counts: tuple[int, ...]
    errors: tuple[float, ...]
    index: Int[Tensor, " flips"]
    wrong: Int[Tensor, " flips"]
    threat: ThreatModel


def poison(
    victim: GraphVictim,
    images: Float[Tensor, "n *sample"],
    labels: Int[Tensor, " n"],
    *,
    counts: Sequence[int],
    flips: AbstractFlips | None = None,
    generator: torch.Generator | None = None,
) -> Poisoned:
    """The error on clean queries when labels of the base are flipped.

    Args:
        victim: a graph head with its base.
        images, labels: the queries.
        counts: how many labels to flip; the flips of a smaller number are among those of a larger one.
        flips: how they are chosen; `RandomFlips()` by default.
        generator: of random numbers, on the CPU; by default one of seed 0.

    Raises:
        ValueError: more flips than the base has labels.

    Differentiable in: nothing.

    >>> from torch import nn
    >>> from gll.nn import GraphLearningLayer
    >>> base, y = torch.linspace(0, 1, 20)[:, None], torch.arange(20) // 10
    >>> victim = GraphVictim(nn.Identity(), GraphLearningLayer(2, k=3, normalize=False), base, y)
    >>> queries, truth = torch.tensor([[0.03], [0.97]]), torch.tensor([0, 1])
    >>> poison(victim, queries, truth, counts=[0, 20]).errors
    (0.0, 1.0)
    """
    if not isinstance(victim, GraphVictim):
        raise TypeError(f"poison flips labels of the base of a GraphVictim, got {type(victim).__name__}")
    most = int((victim.base_labels >= 0).sum()) if victim.base_labels.dim() == 1 else 0
    counts = tuple(int(c) for c in counts)
    if not counts or min(counts) < 0 or max(counts) > most:
        raise ValueError(f"counts must lie in 0 .. {most}, the number of base samples with a class; got {counts}")
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    flips = flips or RandomFlips()
    index, wrong = victim.base_labels.new_empty(0), victim.base_labels.new_empty(0)
    errors = []
    with warnings.catch_warnings():
        # That a class has gone from the base is what flips are for.
        warnings.filterwarnings("ignore", message="classes .* have no base sample")
        if max(counts):
            index, wrong = flips.choose(victim, images, labels, max(counts), generator)
        for count in counts:
            poisoned = victim.base_labels.clone()
            poisoned[index[:count]] = wrong[:count]
            with torch.no_grad():
                said = prediction(victim.with_labels(poisoned)(images), labels)
            errors.append(float((said != labels).double().mean()))
    base = f"{victim.threat.base} ({max(counts):,} of its labels flipped at the most, all images left as they are)"
    by = f"none: labels are chosen by {type(flips).__name__}"
    return Poisoned(
        counts, tuple(errors), index, wrong, replace(victim.threat, base=base, gradient=by, perturbs_base=True)
    )


def perturb_base(
    victim: GraphVictim,
    base_images: Float[Tensor, "m *sample"],
    images: Float[Tensor, "n *sample"],
    labels: Int[Tensor, " n"],
    *,
    eps: float,
    steps: int = 20,
    step_size: float | None = None,
    norm: AbstractNorm | None = None,
    objective: AbstractObjective | None = None,
) -> tuple[GraphVictim, Tensor]:
    """A base whose images are moved by at most eps, with their labels as they are, so that queries come out wrong.

    The last iterate that has the most errors is kept. Where all neighbours of a query have one class there is no
    gradient, as ever in a graph: an error that does not grow says nothing.

    Args:
        victim: a graph head. Queries in one graph take one solve a step, queries that are each alone one solve each.
        base_images: the images of its base, in 0 .. 1, in the order of the base.
        images, labels: the queries, which are left as they are.
        eps, norm: the ball of every base image; L∞ by default.
        steps, step_size: of projected gradient ascent; the size is 2.5·eps/steps by default.
        objective: what grows, summed over the queries; the margin by default.

    Returns:
        The victim with that base, whose threat model says so, and the images.

    Raises:
        ValueError: images that are not those of the base, or not in 0 .. 1.

    Differentiable in: nothing.
    """
    norm, objective = norm or LInf(), objective or Margin()
    check_ball(eps, norm)
    check_objective(objective)
    if steps < 1:
        raise ValueError(f"perturb_base needs steps ≥ 1, got {steps}")
    step = 2.5 * eps / steps if step_size is None else step_size
    clean = checked_images(base_images)
    with torch.no_grad():
        features = victim.features(images)
        _check_base_images(victim, clean)
    moved = clean.clone()
    best, most = moved, -1
    for i in range(steps + 1):
        with torch.enable_grad():
            x = moved.requires_grad_()
            logits = victim.log_probabilities(features, victim.features(x))
            require_slope(logits, x)
            (gradient,) = torch.autograd.grad(checked_values(objective, logits, labels).sum(), x)
        errors = int((prediction(logits, labels) != labels).sum())
        if errors > most:
            best, most = moved.detach(), errors
        if i < steps:
            delta = norm.project(moved.detach() + step * norm.ascend(gradient) - clean, eps)
            moved = (clean + delta).clamp(0, 1)
    delta = best.double() - clean.double()
    assert bool((best >= 0).all() and (best <= 1).all()), "a pixel of the base left [0, 1]"
    assert bool((norm.size(delta) <= eps + norm.rounding(clean)).all()), f"a base image left the ball of radius {eps}"
    return victim.with_base(best, perturbs_base=True), best


def _check_base_images(victim: GraphVictim, images: Tensor) -> None:
    """An error for images that do not have the features of the base: its labels would not be theirs."""
    base = victim.base_features
    if len(images) != len(base):
        raise ValueError(
            f"the base has {len(base)} samples, got {len(images)} images: give those of the base, all of them"
        )
    away = (victim.features(images).double() - base.double()).abs().amax(1)
    others = int((away > SAME * base.double().abs().max()).sum())
    if others:
        raise ValueError(
            f"{others} of {len(base)} images have other features than the base sample in their place: give the images "
            "that the victim was made with, in their order"
        )
