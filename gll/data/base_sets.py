"""Which labelled samples form the base of an epoch: always the same, drawn anew, or the most uncertain (appendix A.1).

The base spreads its labels over the graph of every batch of an epoch. It never enters the loss (`sampling.py`). Every
class has at least one base sample, since a class without one can never be predicted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.active import (
    AbstractAcquisition,
    AbstractSelection,
    Entropy,
    LocalMax,
    NormScore,
    Proportional,
    Situation,
    TopK,
    choose,
)
from gll.data.random import derived_seed, generator
from gll.features import Metric
from gll.graph import Graph, Topology
from gll.projected import AutoSearch
from gll.similarity import knn_graph
from gll.words import counted


def apportion(total: int, sizes: Sequence[int]) -> list[int]:
    """Whole numbers that sum to `total`, in proportion to the sizes: exact, or by largest remainder.

    Every size above zero gets at least one; it is taken from the share that is most above its proportion.

    Args:
        total: what is divided; at least the number of sizes above zero.
        sizes: whole numbers ≥ 0, not all zero.

    >>> apportion(10, [50, 30, 20]), apportion(10, [1, 1, 1]), apportion(10, [999, 1])
    ([5, 3, 2], [4, 3, 3], [9, 1])

    Differentiable in: nothing.
    """
    whole, present = sum(sizes), sum(size > 0 for size in sizes)
    if min(sizes, default=0) < 0 or whole == 0:
        raise ValueError(f"the sizes must be ≥ 0 and not all zero, got {list(sizes)}")
    if total < present:
        raise ValueError(f"{total} cannot be divided among {present}: each gets at least one")
    shares = [total * size // whole for size in sizes]
    # Whole numbers throughout: a remainder computed in floating point could break a tie the wrong way.
    order = sorted(range(len(sizes)), key=lambda c: (-(total * sizes[c] % whole), c))
    for c in order[: total - sum(shares)]:
        shares[c] += 1
    for c, size in enumerate(sizes):
        if size > 0 and shares[c] == 0:
            able = [other for other in range(len(sizes)) if shares[other] > 1]
            shares[max(able, key=lambda other: shares[other] * whole - total * sizes[other])] -= 1
            shares[c] = 1
    return shares


@final
@dataclass(frozen=True, eq=False)
class Predictions:
    """What the model said about the labelled samples, from which the most uncertain are chosen.

    Args:
        probability: (m, C) one row for each of `LabelSplit.labelled`, in its order. A row of NaN: not predicted, such
            as that of a sample that was in the base. It is chosen only where too few others are left.
        features: (m, d) what the encoder made of them; needed by `LocalMax`, which looks at neighbours.

    Differentiable in: nothing.
    """

    probability: Float[Tensor, "m c"]
    features: Float[Tensor, "m d"] | None = None


class AbstractBaseSet(ABC):
    """How the base of an epoch is chosen. Subclass it for a rule of your own: one method."""

    @property
    def needs_predictions(self) -> bool:
        """Whether it is worth collecting `Predictions` for it; without them it must answer, too."""
        return False

    @property
    def needs_features(self) -> bool:
        """Whether the predictions should come with features."""
        return False

    @abstractmethod
    def choose(
        self, classes: Int[Tensor, " m"], size: int, *, seed: int, epoch: int, scores: Predictions | None
    ) -> Int[Tensor, " size"]:
        """Positions of `size` different samples among the m labelled ones, at least one of every class.

        The answer may depend on the arguments only: then a run can be resumed, and all ranks agree.
        """


@final
@dataclass(frozen=True)
class Fixed(AbstractBaseSet):
    """The same base in every epoch, with the class proportions of the labelled samples.

    Differentiable in: nothing.

    >>> classes = torch.arange(100) % 4
    >>> a, b = (Fixed().choose(classes, 8, seed=0, epoch=epoch, scores=None) for epoch in (1, 2))
    >>> bool((a == b).all()), classes[a].bincount().tolist()
    (True, [2, 2, 2, 2])
    """

    def choose(
        self, classes: Tensor, size: int, *, seed: int, epoch: int, scores: Predictions | None
    ) -> Int[Tensor, " size"]:
        return stratified(classes, size, generator(seed, "base"))


@final
@dataclass(frozen=True)
class Stratified(AbstractBaseSet):
    """A new base every epoch, with the class proportions of the labelled samples (the paper's random resampling).

    The numbers of the classes are exact where they are whole, and otherwise rounded by largest remainder.

    Differentiable in: nothing.
    """

    def choose(
        self, classes: Tensor, size: int, *, seed: int, epoch: int, scores: Predictions | None
    ) -> Int[Tensor, " size"]:
        return stratified(classes, size, generator(seed, "base", epoch))


MOST_SPREAD, HIGHEST = Entropy(), TopK()


@final
@dataclass(frozen=True)
class Uncertain(AbstractBaseSet):
    """The samples whose predictions are most uncertain. Before there are any predictions: as `Stratified`.

    Classes that have none among them get their most uncertain sample, in place of the least wanted of the others.

    Args:
        score: how uncertain: `gll.active.Entropy()`, `NormScore()` (the paper's L2 score), or another of that module
            that needs nothing but probabilities.
        selection: `gll.active.TopK()`, the highest scores; or `LocalMax()`, those that no neighbour beats, which
            spreads the base over the graph and needs features.
        k: neighbours in that graph.

    Differentiable in: nothing.
    """

    score: AbstractAcquisition = MOST_SPREAD
    selection: AbstractSelection = HIGHEST
    k: int = 10

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")

    @property
    def needs_predictions(self) -> bool:
        return True

    @property
    def needs_features(self) -> bool:
        return not isinstance(self.selection, TopK | Proportional)

    def choose(
        self, classes: Tensor, size: int, *, seed: int, epoch: int, scores: Predictions | None
    ) -> Int[Tensor, " size"]:
        if scores is None:
            return stratified(classes, size, generator(seed, "base", epoch))
        probability = scores.probability.detach()
        if len(probability) != len(classes):
            raise ValueError(
                f"there are predictions for {counted(len(probability), 'sample')}, but {len(classes):,} are labelled"
            )
        known = torch.isfinite(probability).all(1).nonzero()[:, 0]
        # What is not predicted comes last, in random order.
        ranked = torch.randperm(len(classes), generator=generator(seed, "base", epoch))
        ranked = ranked[~torch.isin(ranked, known.cpu())]
        if len(known):
            graph = self._graph(scores, known)
            situation = Situation(graph, value=probability[known], seed=derived_seed(seed, "select", epoch))
            wanted = min(size, len(known))
            picks = choose(self.score, situation, wanted, selection=self.selection).index
            # After the picks, those that were not picked, highest score first: each class will find its best there.
            order = self.score.score(situation).sort(descending=True, stable=True).indices
            order = torch.cat([picks, order[~torch.isin(order, picks)]])
            ranked = torch.cat([known[order].cpu(), ranked])
        return with_every_class(classes, ranked, size)

    def _graph(self, scores: Predictions, known: Tensor) -> Graph:
        """The similarity graph of the samples that were predicted, or one without edges where none is looked at."""
        if not self.needs_features:
            none = torch.empty(0, dtype=torch.int64, device=known.device)
            return Graph(Topology(len(known), none, none), none.double())
        if scores.features is None or len(scores.features) != len(scores.probability):
            raise ValueError(f"{self.selection!r} looks at neighbours: the predictions must come with (m, d) features")
        if len(known) < 2:
            raise ValueError("a graph needs at least two samples with predictions")
        features = scores.features.detach()[known]
        return knn_graph(features, min(self.k, len(known) - 1), search=AutoSearch(), metric=Metric.COSINE)


def stratified(
    classes: Int[Tensor, " m"], size: int, random: torch.Generator, *, equal: bool = False
) -> Int[Tensor, " size"]:
    """Positions of `size` random samples with the class proportions of all; or as many of each, where there are."""
    present, inverse, count = classes.unique(return_inverse=True, return_counts=True)
    if not len(present) <= size <= len(classes):
        raise ValueError(_impossible(size, len(present), len(classes)))
    share = torch.tensor(apportion(size, [1] * len(present) if equal else count.tolist()))
    if bool((share > count).any()):
        share = torch.tensor(apportion(size, count.tolist()))
    # A random order, sorted by class: a sample's place within its class says whether it is taken.
    order = torch.randperm(len(classes), generator=random)
    order = order[inverse[order].sort(stable=True).indices]
    place = torch.arange(len(order)) - (count.cumsum(0) - count).repeat_interleave(count)
    return order[place < share[inverse[order]]]


def with_every_class(classes: Int[Tensor, " m"], ranked: Int[Tensor, " m"], size: int) -> Int[Tensor, " size"]:
    """The first `size` of a ranking, with every class among them.

    A class that is missing is given its best-ranked sample; the last of those that their class can spare makes way.
    """
    present, inverse = classes.unique(return_inverse=True)
    if not len(present) <= size <= len(classes):
        raise ValueError(_impossible(size, len(present), len(classes)))
    of_ranked = inverse[ranked]
    # The first of each class in the ranking: these stay. The rest of the base are the best of the others.
    first = torch.full((len(present),), len(ranked)).scatter_reduce(0, of_ranked, torch.arange(len(ranked)), "amin")
    others = torch.ones(len(ranked), dtype=torch.bool).index_fill(0, first, False).nonzero()[:, 0]
    return ranked[torch.cat([first, others[: size - len(present)]]).sort().values]


def _impossible(size: int, present: int, labelled: int) -> str:
    if size < present:
        return f"a base of {size} cannot hold a sample of each of {present} classes; make it larger"
    return f"a base of {size} needs as many labelled samples, but there are {labelled}; make it smaller"


BASE_SETS: dict[str, Callable[[AbstractSelection], AbstractBaseSet]] = {
    "stratified": lambda _: Stratified(),
    "fixed": lambda _: Fixed(),
    "entropy": lambda selection: Uncertain(Entropy(), selection),
    "l2": lambda selection: Uncertain(NormScore(), selection),
}
BASE_SELECTIONS: dict[str, AbstractSelection] = {"top": TopK(), "localmax": LocalMax()}


def base_set_from_name(name: str, selection: str = "top") -> AbstractBaseSet:
    """The base set of that name: "stratified", "fixed", "entropy" or "l2"; the last two with a selection.

    >>> base_set_from_name("l2", "localmax")
    Uncertain(score=NormScore(), selection=LocalMax(fill=True), k=10)

    Differentiable in: nothing.
    """
    for what, given, table in (("base set", name, BASE_SETS), ("selection", selection, BASE_SELECTIONS)):
        if given not in table:
            raise ValueError(f"unknown {what} {given!r}; choose one of {', '.join(table)}")
    return BASE_SETS[name](BASE_SELECTIONS[selection])
