"""How good is the graph of an encoder's features? Measured on labelled samples whose classes nobody has shown.

Training may memorise the labelled samples: they form tight groups of their own, away from the unlabelled samples of
their classes. Then the loss falls, the labelled samples are all right, and the graph is ruined. So some labelled
samples are hidden twice: from the loss, and from the labels that are spread over the graph. Their error is what the
unlabelled samples can expect.

Hiding costs labels, so no more are hidden than needed:

    labels enter the loss        one share of them is hidden from the loss and from the graph, and measured
    the loss uses no labels      nothing need be hidden from it: all are measured, each share in turn hidden from the
                                 graph and classified from the others (cross-validation: one search, a few solves)
    the loss sees all labels     (share 0, as in the paper's remark) measured in the same way, but optimistic: the loss
                                 has moved every measured sample towards its class. `Watch.optimistic` says so

In the first case the hidden samples never lend their labels to the graph, though cross-validation would let them: a
hidden sample next to an unlabelled one would hide that the shown ones have moved away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.equations import Laplace
from gll.features import Metric
from gll.implicit import solve
from gll.labels import Labels
from gll.projected import AutoSearch
from gll.similarity import knn_graph
from gll.solution import SolveError

FLOOR = 1e-8  # of probabilities inside the logarithm, as in the layer
TAU = 1e-8  # as in the test of a trained model
FOLDS = 5  # of the cross-validation, where no share says otherwise


@final
@dataclass(frozen=True)
class Look:
    """What one look at a graph found.

    Args:
        error: share of the measured samples that the graph classifies wrongly, or not at all.
        loss: their mean -log probability; decides between equal errors, which are common with few samples.
        measured: how many samples that is.
        trouble: why the graph could not be solved (then the error is 1), or empty.
    """

    error: float
    loss: float
    measured: int
    trouble: str = ""

    def better_than(self, other: Look | None) -> bool:
        """Whether the error is smaller, or the same with a smaller loss."""
        return other is None or (self.error, self.loss) < (other.error, other.loss)

    @property
    def spread(self) -> float:
        """Standard error of `error`, as if the samples were independent."""
        return math.sqrt(self.error * (1 - self.error) / self.measured)


@final
@dataclass(frozen=True, eq=False)
class Watch:
    """A set of samples whose graph is looked at, again and again.

    Args:
        nodes: (n,) indices of the samples.
        labels: (n,) their classes, -1 for unlabelled ones.
        fold: (n,) in which look a sample is hidden and measured; -1: in none.
        num_classes: C.
        k: neighbours in the graph.
        optimistic: the measured samples' classes entered the loss.
    """

    nodes: Int[Tensor, " n"]
    labels: Int[Tensor, " n"]
    fold: Int[Tensor, " n"]
    num_classes: int
    k: int = 25
    optimistic: bool = False

    def look(self, features: Float[Tensor, "n d"]) -> Look:
        """Build the graph of the features, one row a node, and classify what is hidden by Laplace's equation.

        Differentiable in: nothing.
        """
        labels, fold = self.labels.to(features.device), self.fold.to(features.device)
        measured = int((fold >= 0).sum())
        wrong, loss = 0, 0.0
        try:
            with torch.no_grad():
                k = min(self.k, len(features) - 1)
                graph = knn_graph(features, k, search=AutoSearch(), metric=Metric.COSINE)
                for f in range(int(fold.max()) + 1):
                    hidden = fold == f
                    known = Labels.from_classes(
                        labels.masked_fill(hidden, -1), num_classes=self.num_classes, dtype=graph.weight.dtype
                    )
                    u, truth = solve(Laplace(tau=TAU), graph, known).value[hidden], labels[hidden]
                    # u is zero where no label reaches: nothing is said there, which is wrong too.
                    wrong += int(((u.argmax(1) != truth) | (u.amax(1) <= 0)).sum())
                    loss -= float(u.gather(1, truth[:, None]).clamp(min=FLOOR).log().sum())
        except SolveError as error:
            return Look(1.0, -math.log(FLOOR), measured, str(error))
        return Look(wrong / measured, loss / measured, measured)


def hold_out(
    labels: Int[Tensor, " n"],
    labelled: Int[Tensor, " m"],
    unlabelled: Int[Tensor, " u"],
    *,
    num_classes: int,
    share: float,
    loss_uses_labels: bool,
    generator: torch.Generator,
    k: int = 25,
    points: int = 10_000,
) -> tuple[Int[Tensor, " s"], Watch | None]:
    """Decide which labelled samples the loss may see, and which samples are watched.

    Args:
        labels: (n,) classes of the training samples; only those of `labelled` are read.
        labelled, unlabelled: indices of samples.
        num_classes: C.
        share: of the labelled samples, hidden at a time; 0: none from the loss.
        loss_uses_labels: the loss looks at classes (γ < 1).
        generator: what is drawn at random comes from it.
        k: neighbours in the watched graph.
        points: nodes in it at most. At most half are labelled and at most a fifth are hidden at a time.

    Returns:
        The labelled samples that the loss may see, and the watch; None where no class has two labels, so that nothing
        can be hidden.
    """
    labels, labelled, unlabelled = labels.cpu(), labelled.cpu(), unlabelled.cpu()
    of = labels[labelled]
    position = _places(of, generator)
    count = torch.bincount(of, minlength=num_classes)[of]
    if not bool((count > 1).any()):
        return labelled, None
    wanted = max(1, min(round(share * len(labelled)), points // 5))
    if loss_uses_labels and share > 0:
        # The first places of every class are hidden, the last one never: a class must keep a label.
        place = ((position + 0.5) / count).masked_fill(position == count - 1, math.inf)
        order = torch.argsort(place, stable=True)[: min(wanted, int(torch.isfinite(place).sum()))]
        hidden = torch.zeros(len(labelled), dtype=torch.bool)
        hidden[order] = True
        shown = labelled[~hidden]
        # However little room there is, the hidden ones find a label of their class.
        first = _places(labels[shown], generator) == 0
        needed = first & torch.isin(labels[shown], of[hidden])
        room = points // 2 - int(hidden.sum()) - int(needed.sum())
        seen = torch.cat([shown[needed], _thin(shown[~needed], labels[shown[~needed]], room, generator)])
        nodes = torch.cat([labelled[hidden], seen])
        fold = torch.full((len(nodes),), -1).index_fill_(0, torch.arange(int(hidden.sum())), 0)
    else:
        shown = labelled
        folds = max(2, round(1 / share)) if share > 0 else FOLDS
        nodes = _thin(labelled, of, points // 2, generator)
        if bool((torch.bincount(labels[nodes]) < 2).all()):  # one of a class cannot be classified from the others
            nodes = _whole_classes(labelled, of, points // 2, generator)
        of = labels[nodes]
        alone = torch.bincount(of, minlength=num_classes)[of] < 2
        fold = (_places(of, generator) % folds).masked_fill(alone, -1)
    rest = unlabelled[torch.randperm(len(unlabelled), generator=generator)][: points - len(nodes)]
    known = torch.cat([labels[nodes], torch.full((len(rest),), -1)])
    fold = torch.cat([fold, torch.full((len(rest),), -1)])
    optimistic = loss_uses_labels and share == 0
    return shown, Watch(torch.cat([nodes, rest]), known, fold, num_classes, k, optimistic)


def _places(labels: Tensor, generator: torch.Generator) -> Tensor:
    """(m,) the place of every sample in a random order of its class: 0, 1, 2, ..."""
    shuffled = torch.randperm(len(labels), generator=generator)
    order = shuffled[torch.argsort(labels[shuffled], stable=True)]  # class by class
    count = torch.bincount(labels)
    start = count.cumsum(0) - count
    place = torch.empty_like(labels)
    place[order] = torch.arange(len(labels)) - start[labels[order]]
    return place


def _whole_classes(index: Tensor, labels: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
    """At most `wanted` of the samples, class by class, in a random order; classes of one sample come last."""
    count = torch.bincount(labels)
    turn = torch.randperm(len(count), generator=generator) + len(count) * (count < 2)
    return index[torch.argsort(turn[labels], stable=True)[:wanted]]


def _thin(index: Tensor, labels: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
    """At most `wanted` of the samples, the classes keeping their shares."""
    place = (_places(labels, generator) + 0.5) / torch.bincount(labels)[labels]
    return index[torch.argsort(place, stable=True)[:wanted]]
