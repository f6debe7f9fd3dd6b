"""A method as an object: what it is asked, what it answers, and what all methods promise.

`AbstractMethod.propagate` checks the arguments, asks the method, and turns its scores into probabilities: unreached
nodes as the policy says (`unreached.py`), class shares by factors of the classes (`volume.py`). The methods themselves,
and their names, are in `methods.py`.
"""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gll.checks import all_finite, check_arguments
from gll.equations import AbstractEquation, Laplace
from gll.graph import Graph
from gll.implicit import solve
from gll.labels import Labels
from gll.readout import Readout
from gll.solution import RESULT, Solution, SolveError
from gll.solvers.base import AbstractLinearSolver
from gll.solvers.newton import Newton
from gll.unreached import Unreached, UnreachedWarning, nearest_label
from gll.volume import class_shares, log_shifts

Solver = AbstractLinearSolver | Newton


class ClassPriorWarning(UserWarning):
    """The shares of the classes that were asked for could not be met."""


@final
@dataclass(frozen=True, eq=False)
class Propagation:
    """What a method says about every node.

    Args:
        score: (n, C) the method's own numbers; argmax is its prediction before any class prior.
        probability: (n, C) rows ≥ 0 that sum to one, always finite; unreached nodes as the policy says.
        steps: iterations.
        unreached: (n,) which nodes no label reaches, or None where there are none.
        solution: what `solve` returned, where an equation was solved and its value is the score; otherwise None.
        description: what ran, and why.
        readout: the map from `score` to `probability`.

    Differentiable in: edge weights and label values, except where a method says that it passes no gradient.
    """

    score: Float[Tensor, "n c"]
    probability: Float[Tensor, "n c"]
    steps: int
    unreached: Bool[Tensor, " n"] | None
    solution: Solution | None
    description: str
    readout: Readout = dataclasses.field(default_factory=Readout)

    @property
    def classes(self) -> Int[Tensor, " n"]:
        """(n,) the most probable class."""
        return self.probability.argmax(1)


@final
@dataclass(frozen=True, eq=False)
class Request:
    """What a method is asked: the checked arguments of `AbstractMethod.propagate`."""

    graph: Graph
    labels: Labels
    weight: Tensor | None
    prior: Tensor | None
    initial: Tensor | None
    policy: Unreached
    solver: Solver | None
    mass: Tensor | None = None

    def solve(self, equation: AbstractEquation, graph: Graph | None = None, labels: Labels | None = None) -> Solution:
        """Solve on the request's graph, or on a reweighted one."""
        return solve(
            equation,
            self.graph if graph is None else graph,
            labels,
            solver=self.solver,
            initial=self.initial,
            unreached=self.policy,
        )


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """What a method found, before priors and fallbacks.

    Args:
        score, steps, solution, description: as in `Propagation`.
        scale: as in `Readout`.
        share: (C,) the shares of the classes that the method kept to, where they are not the class prior.
        lost: (n,) nodes that the method could not determine besides those without a label in their component.
    """

    score: Tensor
    steps: int
    description: str
    solution: Solution | None = None
    scale: float | None = None
    share: Tensor | None = None
    lost: Tensor | None = None


class AbstractMethod(ABC):
    """A way to spread labels over a graph. Subclasses are frozen dataclasses, whose fields are the method's options."""

    uses_label_weight: ClassVar[bool] = False  # `label_weight` acts on the answer; elsewhere labels are certain
    reaches_all: ClassVar[bool] = False  # needs no path in the graph from a node to a label

    @abstractmethod
    def find(self, request: Request) -> Answer:
        """The method itself."""

    @final
    def propagate(
        self,
        graph: Graph,
        labels: Labels,
        *,
        label_weight: Float[Tensor, " m"] | None = None,
        class_prior: Float[Tensor, " c"] | None = None,
        initial: Float[Tensor, "n c"] | None = None,
        unreached: Unreached | str = Unreached.UNIFORM,
        solver: Solver | None = None,
        node_mass: Float[Tensor, " n"] | None = None,
    ) -> Propagation:
        """Spread the labels over the graph.

        Args:
            graph: the graph.
            labels: at least one; rows of values that are ≥ 0 and sum to one (one-hot, or soft labels).
            label_weight: (m,) how much each labelled node counts, ≥ 0; 0 is no label at all. In `soft` it multiplies λ,
                in the Poisson and MBO methods the source. Elsewhere labels are certain, and only 0 has a meaning.
            class_prior: (C,) wanted share of each class among the predictions, ≥ 0, summing to one. Where it cannot be
                met to a percent and a node, a `ClassPriorWarning` says what was reached.
            initial: (n, C) the scores of an earlier call, as a warm start: it saves time and changes nothing else.
            unreached: what nodes get that no label reaches: "uniform", "nearest" or "raise", as in `gll.solve`.
            solver: how to solve equations, as in `gll.solve`.
            node_mass: (n,) how many rows every node stands for, > 0: what shares of classes are counted in. One by
                default. It changes no equation: there, masses act by the edge weights.

        Raises:
            SolveError: an equation could not be solved, or nodes are unreached and the policy is "raise".
            ValueError, TypeError: the arguments do not fit together.

        Differentiable in: edge weights and label values, where the method is. Held fixed: what `class_prior` did.
        """
        policy = Unreached(unreached)
        check_arguments(Laplace(), graph, labels, initial)
        labels = Labels(labels.index, labels.value.to(graph.weight.dtype))
        _check_rows(labels)
        if not all_finite(graph.weight.detach(), initial):
            raise SolveError(RESULT.NONFINITE_INPUT)
        labels, weight = _counting(labels, label_weight)
        prior = None if class_prior is None else _check_prior(class_prior, labels)
        mass = None if node_mass is None else _check_mass(node_mass, graph)
        request = Request(graph, labels, weight, prior, initial, policy, solver, mass)
        lost = None if self.reaches_all and graph.features is not None else unlabelled_components(graph, labels)
        if lost is not None and policy is Unreached.RAISE:
            raise SolveError(RESULT.UNREACHED, f"{int(lost.sum())} of {graph.num_nodes} nodes")
        answer = self.find(request)
        if answer.lost is not None:
            lost = answer.lost if lost is None else lost | answer.lost
        score = answer.score if lost is None else _with_fallback(answer, request, lost)
        readout = Readout(answer.scale)
        probability = readout(score)
        share = prior if answer.share is None else answer.share
        if share is not None:
            known = probability.detach() if lost is None else probability.detach()[~lost]
            counts = mass if mass is None or lost is None else mass[~lost]
            readout = Readout(answer.scale, log_shifts(known, share, counts))
            probability = readout(score)
            if prior is not None:
                _tell_shares(probability.detach() if lost is None else probability.detach()[~lost], prior, counts)
        if lost is not None:
            # No prior for what is not known: these nodes keep what the policy gave them.
            probability = torch.where(lost[:, None], Readout(answer.scale)(score), probability)
            told = answer.solution is not None and answer.solution.unreached_nodes is not None
            if not told:
                warnings.warn(
                    f"{int(lost.sum())} of {graph.num_nodes} nodes are not connected to any labelled node and got the "
                    f"'{policy.value}' fallback; see Propagation.unreached, or unreached_ of a classifier",
                    UnreachedWarning,
                    stacklevel=2,
                )
        return Propagation(score, probability, answer.steps, lost, answer.solution, answer.description, readout)

    def extend(
        self, propagation: Propagation, index: Int[Tensor, "q k"], weight: Float[Tensor, "q k"]
    ) -> Float[Tensor, "q c"]:
        """Probabilities (q, C) at new points, from their k nearest nodes `index` with weights `weight` ≥ 0.

        A new point takes the weighted mean of its neighbours' scores, the value that Laplace's equation gives to a node
        which is added last, and then the same map to probabilities. Where all its weights are zero, its neighbours
        count alike.
        """
        largest = weight.amax(1, keepdim=True)
        share = torch.where(largest > 0, weight / torch.where(largest > 0, largest, 1), 1)
        share = share / share.sum(1, keepdim=True)
        score = torch.einsum("qk,qkc->qc", share.to(propagation.score.dtype), propagation.score[index])
        probability = propagation.readout(score)
        if propagation.unreached is None:
            return probability
        # Beside unreached nodes only: no prior for what is not known, as for these nodes themselves.
        lost = (propagation.unreached[index] | (share == 0)).all(1)
        return torch.where(lost[:, None], Readout(propagation.readout.scale)(score), probability)


def _tell_shares(probability: Tensor, prior: Tensor, mass: Tensor | None) -> None:
    """Warn where the shares of the predictions are off by more than a percent and a node."""
    if not len(probability):
        return
    reached = class_shares(probability.argmax(1), len(prior), mass)
    if bool(((reached - prior).abs() > 0.01 + 1 / len(probability)).any()):
        warnings.warn(
            f"the class prior {_listed(prior)} cannot be met: the predicted shares are {_listed(reached)}. Factors of "
            "the classes do not move points whose class is certain, and points with equal scores (or copies) move "
            "together",
            ClassPriorWarning,
            stacklevel=3,
        )


def _listed(share: Tensor) -> str:
    text = [f"{s:.3g}" for s in share[:10].tolist()]
    return "(" + ", ".join(text) + (", ...)" if len(share) > 10 else ")")


def _check_mass(mass: Tensor, graph: Graph) -> Tensor:
    if mass.shape != (graph.num_nodes,):
        raise ValueError(f"node_mass must have shape ({graph.num_nodes},), one per node, got {tuple(mass.shape)}")
    if not bool(((mass > 0) & torch.isfinite(mass)).all()):
        raise ValueError("node_mass must be finite and > 0")
    return mass.detach().to(graph.weight.device, torch.float64)


def _counting(labels: Labels, weight: Tensor | None) -> tuple[Labels, Tensor | None]:
    """The labels whose weight is not zero, and their weights."""
    if weight is None:
        return labels, None
    if weight.shape != labels.index.shape:
        raise ValueError(
            f"label_weight must have shape ({len(labels.index)},), one per labelled node, got {tuple(weight.shape)}"
        )
    if not bool(((weight >= 0) & torch.isfinite(weight)).all()):
        raise ValueError("label_weight must be finite and ≥ 0")
    counts = weight > 0
    if not bool(counts.any()):
        raise ValueError("all weights of labels are zero: at least one label must count")
    return Labels(labels.index[counts], labels.value[counts]), weight[counts].to(labels.value)


def unlabelled_components(graph: Graph, labels: Labels) -> Tensor | None:
    """(n,) the nodes whose component has no label; None where there are none."""
    reached = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.weight.device)
    reached[graph.components[labels.index.long()]] = True  # component numbers are below n
    lost = ~reached[graph.components]
    return lost if bool(lost.any()) else None


def _with_fallback(answer: Answer, request: Request, lost: Tensor) -> Tensor:
    """The scores, with those of unreached nodes as the policy says."""
    score, labels, graph = answer.score, request.labels, request.graph
    classes = labels.num_classes
    row = score.new_full((classes,), 0.0 if answer.scale is not None else 1 / classes)
    if request.policy is not Unreached.NEAREST:
        return torch.where(lost[:, None], row, score)
    nodes, nearest = nearest_label(graph, labels, lost)
    copied = labels.value[nearest].to(score.dtype)
    if answer.scale is not None:  # a copied label is as sure as the surest score
        copied = (copied - 1 / classes) * score.detach().abs().max()
    return score.index_copy(0, nodes, copied)


def _check_rows(labels: Labels) -> None:
    value = labels.value.detach()
    bad = ~((value >= 0).all(1) & ((value.sum(1) - 1).abs() <= 1e-3))
    if bool(bad.any()):
        first = int(torch.nonzero(bad)[0])
        raise ValueError(
            f"{int(bad.sum())} rows of label values are not probabilities (≥ 0, with sum one), the first being that of "
            f"node {int(labels.index[first])}; divide rows by their sums, or use gll.solve for other values"
        )


def _check_prior(prior: Tensor, labels: Labels) -> Tensor:
    prior = torch.as_tensor(prior, dtype=torch.float64, device=labels.value.device)
    if prior.shape != (labels.num_classes,):
        raise ValueError(f"class_prior must have shape ({labels.num_classes},), got {tuple(prior.shape)}")
    if not bool((prior >= 0).all()) or not bool((prior.sum() - 1).abs() <= 1e-3):
        raise ValueError(f"class_prior must be ≥ 0 and sum to one, got {prior.tolist()}")
    return prior / prior.sum()
