"""Methods: from a graph and a few labels to a probability of every class at every node.

An equation says what is solved; a *method* says what a user asks for by name. It prepares the graph or the source,
solves, and reads probabilities off the answer, whatever the answer's own scale:

    values   (Laplace and its kin, threshold dynamics, nearest label) are shares of the classes already. What τ let fade
             is spread evenly, so that a node that no label reaches well is undecided.
    scores   (Poisson) have mean zero and any scale: p = softmax(s · score), where s makes the mean winning score a
             fixed number, so that p does not change when all weights are multiplied by a constant.

A class prior multiplies the probabilities of each class by a factor, chosen such that the predicted classes have the
wanted shares (`volume.py`). Nodes in components without labels follow the policy of `unreached.py` in all methods.

The names of the methods are in `METHODS`, and nowhere else. Threshold dynamics are in `mbo.py`.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from gll import reweight
from gll.equations import Laplace, Poisson, SoftLaplace, require
from gll.features import require_positive
from gll.graph import Graph
from gll.implicit import solve
from gll.labels import Labels
from gll.mbo import fidelity_flow, source_flow, threshold_dynamics
from gll.names import require_name, require_options
from gll.nearest import label_shares
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.nonlinear import PLaplace
from gll.propagation import AbstractMethod, Answer, Propagation, Request, Solver, unlabelled_components
from gll.readout import Readout
from gll.solution import RESULT, Solution, SolveError
from gll.solvers.auto import Auto
from gll.sums import sum_into
from gll.unreached import Unreached, UnreachedWarning

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

# s · (mean winning score) of Poisson learning. Of 2, 4, 6, 8 and 12, the one whose largest expected calibration error
# is the smallest, on digits, MNIST and FashionMNIST with 1 to 10 labels a class.
CONFIDENCE = 8.0
FEW, LARGE = 50, 200_000  # labels in a class, nodes; see `AutoMethod`


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
class PoissonLearning(AbstractMethod):
    """Poisson learning (Calder, Cook, Thorpe, Slepčev 2020): labels are sources and sinks of their classes.

    Every component of the graph is a problem of its own: its labels minus their mean are the source, so it balances.
    A class without a label in a component that has other labels gets probability zero there, as in Laplace learning.

    Weights of labels multiply their sources. Scores have degree-weighted mean zero on each component.

    Differentiable in: edge weights, label values.
    """

    uses_label_weight: ClassVar[bool] = True

    def find(self, request: Request) -> Answer:
        return on_resolved_edges(request, self._find)

    def _find(self, request: Request, solver: Solver | None) -> Answer:
        request = dataclasses.replace(request, solver=solver)
        solution = request.solve(Poisson(source=poisson_source(request)))
        score = solution.value
        scale = winning_scale(score.detach())
        return Answer(
            only_present(score, request, scale), solution.steps, f"Poisson: {solution.method}", solution, scale
        )


def on_resolved_edges(request: Request, run: Callable[[Request, Solver | None], Answer]) -> Answer:
    """Run a method that solves a Poisson equation, with the solver and on the edges for which it can be solved.

    What flows through an edge decides both sides of it. So clusters that hang together by less than float64 resolves
    make the equation ill-conditioned, and so does a labelled outlier, whose source has only thin edges to flow through.
    To this precision they are not connected: thin edges are cut, the parts get sources of their own, and what is then
    without a label follows its neighbours, by Laplace's equation on all edges.
    """
    graph, solver, failure = request.graph, request.solver, SolveError(RESULT.ILL_CONDITIONED)
    fast = Auto(dense_rescue=Auto().dense_cpu)
    tries: list[tuple[float, Solver | None]] = [(0.0, solver)] + [(cut, solver) for cut in (1e-12, 1e-8, 1e-5)]
    if solver is None and graph.weight.device.type == "cpu":
        # Auto factorises singular systems of up to 6,000 nodes, whose error it can then estimate best. Conjugate
        # gradients are thirty times faster at that size; where their answer is not good enough, they say so.
        tries = [(0.0, fast)] + (tries if graph.num_nodes <= Auto().dense_rescue else tries[1:])
    t, weight, degree = graph.topology, graph.weight.detach(), graph.degree.detach()
    usual = degree[degree > 0].median() if bool((degree > 0).any()) else degree.new_zeros(())
    for cut, solver in tries:
        thin = weight < cut * torch.maximum(torch.minimum(degree[t.i], degree[t.j]), usual)
        if cut > 0 and not bool((thin & (weight > 0)).any()):
            continue
        part = request
        if cut > 0:
            trimmed = graph.with_weight(torch.where(thin, 0, graph.weight))
            part = dataclasses.replace(request, graph=trimmed, policy=Unreached.UNIFORM)
        try:
            with warnings.catch_warnings():
                if cut > 0:  # what is unreached in the end is told by `propagate`
                    warnings.simplefilter("ignore", UnreachedWarning)
                answer = run(part, solver)
                return answer if cut == 0 else _rejoined(answer, request, part.graph, cut)
        except SolveError as error:
            if error.result not in (RESULT.MAX_STEPS, RESULT.ILL_CONDITIONED, RESULT.BREAKDOWN):
                raise
            failure = error
    raise failure


def _rejoined(answer: Answer, request: Request, trimmed: Graph, cut: float) -> Answer:
    """The answer on a graph with fewer edges, extended along all edges to the parts that had no label."""
    alone = unlabelled_components(trimmed, request.labels)
    lost = answer.lost if alone is None else alone if answer.lost is None else alone | answer.lost
    score = answer.score
    if lost is not None:
        known = torch.nonzero(~lost).squeeze(1)
        extended = solve(Laplace(), request.graph, Labels(known, score[known]), unreached=request.policy)
        score, lost = extended.value, extended.unreached_nodes
    text = f"{answer.description}; edges below {cut:g} of the usual degree were cut"
    return dataclasses.replace(answer, score=score, solution=None, lost=lost, description=text)


def poisson_source(request: Request) -> Tensor:
    """(n, C) float64: w (g - ḡ) on labelled nodes, ḡ the weighted mean label of the node's component."""
    labels, n = request.labels, request.graph.num_nodes
    index, value = labels.index.long(), labels.value.double()
    weight = value.new_ones(len(index)) if request.weight is None else request.weight.double()
    weight = weight / weight.mean()
    part = request.graph.components[index]
    total, mass = (sum_into(n, part, t) for t in (weight[:, None] * value, weight))
    mean = (total / torch.where(mass > 0, mass, 1)[:, None])[part]
    return value.new_zeros(n, labels.num_classes).index_copy(0, index, weight[:, None] * (value - mean))


def winning_scale(score: Tensor) -> float:
    """s such that s · (mean over nodes of the largest score) is `CONFIDENCE`; 1 where all scores are zero."""
    winning = score.double().amax(1)
    mean = float(winning.mean())
    return CONFIDENCE / mean if mean > torch.finfo(score.dtype).tiny else 1.0


def only_present(score: Tensor, request: Request, scale: float) -> Tensor:
    """Scores in which a class cannot win in a component that has labels, but none of that class."""
    labels, parts = request.labels, request.graph.components
    seen = sum_into(request.graph.num_nodes, parts[labels.index.long()], (labels.value.detach() > 0).to(score.dtype))
    absent = ((seen == 0) & (seen.sum(1, keepdim=True) > 0))[parts]
    # Far enough below any score for its softmax to vanish next to it, and finite.
    floor = float(score.detach().min()) - 1000 / scale
    return torch.where(absent, floor, score) if bool(absent.any()) else score


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
class PoissonMBO(AbstractMethod):
    """Poisson learning, then threshold dynamics with the same sources (Calder, Cook, Thorpe, Slepčev 2020).

    Every rounding keeps the shares of the classes: those of the class prior, as in the paper, or where there is none
    those that Poisson learning found. (Left free, large classes swallow small ones.) Weights of labels multiply their
    sources. Inference only: passes no gradient.

    Args:
        rounds: at most this many roundings; it ends when no node changes its class.
        steps: heat steps between them.
        mu: strength of the sources, in units of the mean degree.
    """

    rounds: int = 20
    steps: int = 40
    mu: float = 1.0
    uses_label_weight: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_dynamics(self.rounds, self.steps, self.mu)

    def find(self, request: Request) -> Answer:
        with torch.no_grad():
            first = PoissonLearning().find(dataclasses.replace(request, initial=None))
            flow = source_flow(request.graph, poisson_source(request), self.steps, self.mu)
            return _dynamics("Poisson MBO", request, first, flow, request.prior, self.rounds, self.steps)


@final
@dataclass(frozen=True, eq=False)
class VolumeMBO(AbstractMethod):
    """Threshold dynamics with given class volumes, labels pulling in the heat flow, from Poisson learning's partition.

    The scheme of Merkurjev, Kostić and Bertozzi (2013) with the volumes of Jacobs, Merkurjev and Esedoḡlu (2018). The
    volumes are the class prior or, where there is none, the shares of the classes among the labels: right if labels
    were drawn at random, wrong if each class was given as many and classes differ in size. Weights of labels multiply
    their pull. Inference only: passes no gradient.

    Args:
        rounds, steps: as in `PoissonMBO`.
        mu: strength of the pull; large values hold labelled nodes at their labels.
    """

    rounds: int = 20
    steps: int = 10
    mu: float = 100.0
    uses_label_weight: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_dynamics(self.rounds, self.steps, self.mu)

    def find(self, request: Request) -> Answer:
        with torch.no_grad():
            first = PoissonLearning().find(dataclasses.replace(request, initial=None))
            value = request.labels.value.double()
            weight = value.new_ones(len(value)) if request.weight is None else request.weight.double()
            share = (weight @ value) / weight.sum() if request.prior is None else request.prior
            flow = fidelity_flow(request.graph, request.labels, request.weight, self.steps, self.mu)
            return _dynamics("volume MBO", request, first, flow, share, self.rounds, self.steps)


def _check_dynamics(rounds: int, steps: int, mu: float) -> None:
    for name, value in (("rounds", rounds), ("steps", steps)):
        require(value >= 1, f"{name} must be a whole number ≥ 1, got {value}")
    require_positive(mu, "mu")


def _dynamics(
    name: str,
    request: Request,
    first: Answer,
    flow: Callable[[Tensor], Tensor],
    share: Tensor | None,
    rounds: int,
    steps: int,
) -> Answer:
    """Threshold dynamics from the answer of Poisson learning on."""
    lost = unlabelled_components(request.graph, request.labels) if first.lost is None else first.lost
    known = None if lost is None else ~lost
    found = threshold_dynamics(flow, Readout(first.scale)(first.score), share, known, rounds, request.mass)
    end = "settled" if found.settled else "stopped"
    text = f"{name}: {end} after {found.rounds} rounds of {steps} steps, from {first.description}"
    return Answer(found.value, first.steps + found.rounds * steps, text, share=found.share, lost=first.lost)


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

    - n ≥ `FEW`: `laplace`. Nothing is more accurate, and nothing is cheaper.
    - fewer, and a class prior: `poisson-mbo`, the best with a prior on average over the data sets; not on more than
      `LARGE` nodes, since it takes hundreds of products with the weight matrix.
    - fewer, otherwise: `poisson-reweighted`. At one to five labels a class it is far above Laplace, and on average
      within about a percent of `poisson-mbo`, which costs several times as much and passes no gradient; at ten to
      twenty it is ahead on average. (`volume-mbo` is left out: without a prior it takes the shares of the labels for
      those of the classes.) It costs two solves.

    Weights of labels act where the method that it takes uses them.
    """

    @staticmethod
    def choose(labels: Labels, num_nodes: int, *, prior: bool) -> tuple[AbstractMethod, str]:
        """The method, and the reason in words."""
        count = labels.value.detach().sum(0)
        least = float(count[count > 0].min())
        if least >= FEW:
            return LaplaceLearning(), f"laplace: the smallest class has {least:.3g} labels, at least {FEW}"
        reason = f"the smallest class has {least:.3g} label{'' if least == 1 else 's'}, fewer than {FEW}"
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
    require_name("method", name, METHODS)
    kind = METHODS[name]
    valid = [field.name for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]
    require_options("method", name, options, valid)
    return kind(**options)
