"""Methods: from a graph and a few labels to a probability of every class at every node.

An equation says what is solved; a *method* says what a user asks for by name. It prepares the graph or the source,
solves, and reads probabilities off the answer, whatever the answer's own scale:

    values   (Laplace and its kin, threshold dynamics, nearest label) are shares of the classes already. What τ let fade
             is spread evenly, so that a node that no label reaches well is undecided.
    scores   (Poisson) have mean zero and any scale: p = softmax(s · score), where s makes the mean winning score a
             fixed number, so that p does not change when all weights are multiplied by a constant.

A class prior multiplies the probabilities of each class by a factor, chosen such that the predicted classes have the
wanted shares (`volume.py`). Nodes in components without labels follow the policy of `unreached.py` in all methods.

The names of the methods are in `METHODS`, and nowhere else. Here are those that solve one equation, or none; the others
are in `poisson_learning.py` and `mbo_methods.py`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from gll import reweight
from gll.equations import Laplace, SoftLaplace, require
from gll.features import require_positive
from gll.labels import Labels
from gll.mbo_methods import PoissonMBO, VolumeMBO
from gll.names import from_name
from gll.nearest import label_shares
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.nonlinear import PLaplace
from gll.poisson_learning import PoissonLearning
from gll.propagation import AbstractMethod, Answer, Propagation, Request, Solver
from gll.readout import Readout
from gll.resolved_edges import on_resolved_edges
from gll.solution import Solution

__all__ = [
    "METHODS",
    "WNLL",
    "AbstractMethod",
    "Answer",
    "AutoMethod",
    "LaplaceLearning",
    "NearestLabel",
    "PLaplaceLearning",
    "PoissonLearning",
    "PoissonMBO",
    "PoissonReweighted",
    "Propagation",
    "ProperlyWeighted",
    "Readout",
    "Request",
    "SoftLearning",
    "VolumeMBO",
    "method_from_name",
]

FEW, SPARSE, LARGE = 50, 50, 200_000  # labels in a class, nodes a label, nodes; see `AutoMethod`
EVEN = 1.5  # labels of the largest class over those of the smallest, up to which they count as even
SOME, DENSE = 5, 25  # of uneven labels: in the smallest class, and nodes a label, from which on `laplace` is best


def _of_solution(name: str, solution: Solution) -> Answer:
    return Answer(solution.value, solution.steps, f"{name}: {solution.method}", solution, lost=solution.unreached_nodes)


@final
@dataclass(frozen=True, eq=False)
class LaplaceLearning(AbstractMethod):
    """Laplace's equation with the labels as boundary values (Zhu, Ghahramani, Lafferty 2003).

    Args:
        tau: ≥ 0; labels fade with distance, and what has faded is spread over all classes alike.

    Differentiable in: edge weights, label values, `tau`.
    """

    tau: float | Tensor = 0.0

    def find(self, request: Request) -> Answer:
        return _of_solution("Laplace", request.solve(Laplace(tau=self.tau), labels=request.labels))


@final
@dataclass(frozen=True, eq=False)
class SoftLearning(AbstractMethod):
    """Laplace's equation pulled towards the labels, which may be wrong: Δu + τu + λξ(u - g) = 0.

    Args:
        lam: λ > 0, in units of the mean degree of the graph, so that it means the same for all scales of weights; the
            weight of a label multiplies it.
        tau: as in `LaplaceLearning`.

    Differentiable in: edge weights, label values, `lam`, `tau`.
    """

    lam: float | Tensor = 1.0
    tau: float | Tensor = 0.0
    uses_label_weight: ClassVar[bool] = True

    def find(self, request: Request) -> Answer:
        require(self.lam > 0, f"lam must be > 0, got {self.lam}")
        degree = request.graph.degree.mean()
        lam = self.lam * torch.where(degree > 0, degree, 1)
        if request.weight is not None:
            lam = lam * request.weight
        return _of_solution("soft Laplace", request.solve(SoftLaplace(lam=lam, tau=self.tau), labels=request.labels))


@final
@dataclass(frozen=True, eq=False)
class PLaplaceLearning(AbstractMethod):
    """The p-Laplace equation, one class against the rest. Larger p spreads few labels further.

    Newton's method solves tens of linear systems, and each class has a matrix of its own: ten to fifty times the cost
    of Laplace, more for large p. Practical to some ten thousand nodes. The further p is from 2, the slower.

    Args:
        p: > 1.
        tau: as in `LaplaceLearning`.

    Differentiable in: edge weights, label values, `p`, `tau`.
    """

    p: float | Tensor = 3.0
    tau: float | Tensor = 0.0

    def find(self, request: Request) -> Answer:
        return _of_solution("p-Laplace", request.solve(PLaplace(p=self.p, tau=self.tau), labels=request.labels))


@final
@dataclass(frozen=True, eq=False)
class WNLL(AbstractMethod):
    """Laplace's equation on the weighted nonlocal Laplacian (Shi, Osher, Zhu 2017): `gll.reweight.wnll`.

    Differentiable in: edge weights, label values.
    """

    def find(self, request: Request) -> Answer:
        graph = reweight.wnll(request.graph, request.labels)
        return _of_solution("WNLL", request.solve(Laplace(), graph, request.labels))


@final
@dataclass(frozen=True, eq=False)
class PoissonReweighted(AbstractMethod):
    """Laplace's equation on the graph of `gll.reweight.poisson` (Miller, Calder 2023).

    Args:
        floor: the smallest node factor, as a fraction of the largest.

    Differentiable in: edge weights, label values.
    """

    floor: float = 1e-5

    def __post_init__(self) -> None:
        require_positive(self.floor, "floor")

    def find(self, request: Request) -> Answer:
        return on_resolved_edges(request, self._find)

    def _find(self, request: Request, solver: Solver | None) -> Answer:
        graph = reweight.poisson(request.graph, request.labels, floor=self.floor, solver=solver)
        return _of_solution("Poisson reweighted Laplace", request.solve(Laplace(), graph, request.labels))


@final
@dataclass(frozen=True, eq=False)
class ProperlyWeighted(AbstractMethod):
    """Laplace's equation on the graph of `gll.reweight.properly_weighted` (Calder, Slepčev 2020).

    Needs to know where the nodes are, so a precomputed graph must carry features.

    Args:
        alpha, zeta: growth and bound of the weights near labels.

    Differentiable in: edge weights, label values, features.
    """

    alpha: float = 2.0
    zeta: float = 1e7

    def __post_init__(self) -> None:
        require_positive(self.alpha, "alpha")
        require(1 < self.zeta < float("inf"), f"zeta must be a finite number > 1, got {self.zeta}")

    def find(self, request: Request) -> Answer:
        if request.graph.features is None:
            raise ValueError(
                "method 'properly-weighted' measures distances between nodes, but this graph was not built from "
                "features: use gll.knn_graph, pass Graph(..., features=x), or choose 'wnll' or 'poisson-reweighted'"
            )
        graph = reweight.properly_weighted(request.graph, request.labels, alpha=self.alpha, zeta=self.zeta)
        return _of_solution("properly weighted Laplace", request.solve(Laplace(), graph, request.labels))


@final
@dataclass(frozen=True, eq=False)
class NearestLabel(AbstractMethod):
    """The label of the nearest labelled node: by features where the graph has them, otherwise along its edges.

    Along edges the length of an edge is 1 / weight. Shares of the other classes fall with the distance to their nearest
    label, against the mean distance to any label. Passes no gradient.

    Args:
        search: how nearest nodes are found in features; exact by default.
    """

    search: AbstractNeighborSearch = dataclasses.field(default_factory=Exact)
    reaches_all: ClassVar[bool] = True

    def find(self, request: Request) -> Answer:
        shares, how = label_shares(request.graph, request.labels, self.search)
        return Answer(shares, 1, f"nearest label, {how}")


@final
@dataclass(frozen=True, eq=False)
class AutoMethod(AbstractMethod):
    """The method that was measured to be the best for what is known; the description of the answer says which.

    The evidence is the table of `benchmarks/few_labels.py`, on the page "how to choose". With n labels in the smallest
    class that has any:

    - n ≥ `FEW`, and a class prior or a label for every `SPARSE` nodes: `laplace`. Nothing is more accurate, and nothing
      is cheaper. (It gets worse as nodes are added and labels are not. Where there is one for every fifty it is level
      with `poisson-reweighted`; with fifty a class of 70,000 points it is behind.)
    - fewer, and a class prior: `poisson-mbo`, the best with a prior on average over the data sets; not on more than
      `LARGE` nodes, since it takes hundreds of products with the weight matrix.
    - fewer, without one, and some class with more than `EVEN` times the labels of another: `wnll`. The others draw
      towards the classes with many labels: where labels are drawn at random `poisson-reweighted` is some percent
      behind, and where they are skewed tens of percent. A class prior is worth more than any choice there. Only with
      `SOME` labels in the smallest class and one for every `DENSE` nodes `laplace` is ahead.
    - fewer, without one, and even: `poisson-reweighted`. At one to five labels a class it is far above Laplace, and on
      average within about a percent of `poisson-mbo`, which costs several times as much and passes no gradient; at ten
      to twenty it is ahead on average. (`volume-mbo` is left out: without a prior it takes the shares of the labels
      for those of the classes.) It costs two solves.

    Weights of labels act where the method that it takes uses them.
    """

    @staticmethod
    def choose(labels: Labels, num_nodes: int, *, prior: bool) -> tuple[AbstractMethod, str]:
        """The method, and the reason in words."""
        count = labels.value.detach().sum(0)
        least = float(count[count > 0].min())
        total = len(labels.index)
        if least >= FEW and (prior or total * SPARSE >= num_nodes):
            return LaplaceLearning(), f"laplace: the smallest class has {least:.3g} labels, at least {FEW}"
        if least >= FEW:
            reason = f"{total:,} labels are fewer than one for every {SPARSE} of {num_nodes:,} nodes"
        else:
            reason = f"the smallest class has {least:.3g} label{'' if least == 1 else 's'}, fewer than {FEW}"
        most = float(count.max())
        if not prior and most > EVEN * least:
            uneven = f"classes have {least:.3g} to {most:.3g} labels"
            if least >= SOME and total * DENSE >= num_nodes:
                return LaplaceLearning(), f"laplace: {uneven}, one for every {num_nodes / total:.0f} nodes"
            return WNLL(), f"wnll: {uneven}; if you know the shares of the classes, give them as class_prior"
        if prior and num_nodes <= LARGE:
            return PoissonMBO(), f"poisson-mbo: {reason}, and a class prior is given"
        if prior:
            return PoissonReweighted(), f"poisson-reweighted: {reason}, and {num_nodes:,} nodes are many for MBO"
        return PoissonReweighted(), f"poisson-reweighted: {reason}"

    def find(self, request: Request) -> Answer:
        method, why = self.choose(request.labels, request.graph.num_nodes, prior=request.prior is not None)
        answer = method.find(request)
        return dataclasses.replace(answer, description=f"auto took {why}. {answer.description}")


METHODS: dict[str, type[AbstractMethod]] = {
    "laplace": LaplaceLearning,
    "soft": SoftLearning,
    "plaplace": PLaplaceLearning,
    "poisson": PoissonLearning,
    "poisson-mbo": PoissonMBO,
    "volume-mbo": VolumeMBO,
    "wnll": WNLL,
    "poisson-reweighted": PoissonReweighted,
    "properly-weighted": ProperlyWeighted,
    "nearest": NearestLabel,
    "auto": AutoMethod,
}


def method_from_name(name: str, **options: Any) -> AbstractMethod:
    """A method by its name, with its options.

    >>> method_from_name("laplace", tau=0.1)
    LaplaceLearning(tau=0.1)
    """
    return from_name("method", METHODS, name, options)
