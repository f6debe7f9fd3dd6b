"""What to label next: how much a label would help at every node, and which nodes to ask for together.

Two small objects answer. An *acquisition function* gives every node a score; higher means: label this one next. A
*selection* turns scores into a batch. `choose` puts the two together.

| acquisition | score of node k | asks |
|---|---|---|
| `Entropy` | -Σ_c p_c log p_c | where is the prediction spread out? |
| `NormScore` | 1 - \\|p\\|₂ | the same; the paper's L2 score |
| `Margin` | 1 - (p₍₁₎ - p₍₂₎) | where are the two best classes close? |
| `SmallestNorm` | 1 - \\|u_τ(k)\\|₂ | where do the labels hardly reach? |
| `VOpt` | \\|C e_k\\|² / (γ² + C_kk) | which label lowers the variance of all nodes most? |
| `SigmaOpt` | (1ᵀC e_k)² / (γ² + C_kk) | which label lowers the variance of their mean most? |
| `ModelChange` | \\|e_ŷ - p\\|₂ \\|C e_k\\|₂ / (γ² + C_kk) | which label would move the model most? |
| `Random` | a uniform number | nothing; the one to beat |

p are the probabilities at node k, C the covariance of a Gaussian field given the labels so far (`field.py`).

The same functions choose base sets for training: score the labelled samples, select among them (`candidates=`).

Read next: `loop.py`, which keeps asking.
"""

from __future__ import annotations

import dataclasses
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gll.equations import Laplace
from gll.field import Covariance, GaussianField
from gll.graph import Graph, Normalization
from gll.implicit import solve
from gll.labels import Labels
from gll.reweight import poisson

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class FewerThanAskedWarning(UserWarning):
    """Fewer nodes are left, or stand out, than were asked for."""


@dataclass(frozen=True, eq=False)
class Situation:
    """What is known when the next label is to be chosen.

    Args:
        graph: the graph.
        labels: the labels so far, or None where there are none.
        value: (n, C) probabilities, such as those of a solved equation; None where nothing is predicted yet.
        pending: (p,) nodes that were asked for and have no label yet. They are not asked for again, and the functions
            that use a Gaussian field count them as labelled.
        seed: of everything random.
        priors: covariances of the graph, kept from one round to the next.

    Differentiable in: nothing; values are detached.
    """

    graph: Graph
    labels: Labels | None = None
    value: Float[Tensor, "n c"] | None = None
    pending: Int[Tensor, " p"] | None = None
    seed: int = 0
    priors: dict[GaussianField, Covariance] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        n = self.graph.num_nodes
        for name, index in (("labels", self.labelled), ("pending", self.asked)):
            if index.numel() and (int(index.min()) < 0 or int(index.max()) >= n):
                raise ValueError(f"the indices of {name} must lie in 0 .. {n - 1}, got {index.tolist()}")
            if index.unique().numel() != len(index):
                raise ValueError(f"a node appears twice in {name}")
        if self.value is None:
            return
        if self.value.dim() != 2 or self.value.shape[0] != n or not self.value.is_floating_point():
            raise ValueError(f"value must be (n, C) floating point probabilities with n = {n}, got {self.value.dtype} "
                             f"of shape {tuple(self.value.shape)}")  # fmt: skip
        low, high = torch.stack(torch.aminmax(self.value.detach())).tolist() if self.value.numel() else (0.0, 0.0)
        if not (low >= -1e-4 and high <= 1 + 1e-4):  # written so that a NaN fails
            raise ValueError(
                f"value must hold probabilities, but lies in {low:g} .. {high:g}; turn scores into probabilities first"
            )

    @property
    def labelled(self) -> Tensor:
        """(m,) the labelled nodes."""
        index = torch.empty(0, dtype=torch.int64) if self.labels is None else self.labels.index
        return index.detach().long().to(self.graph.weight.device)

    @property
    def asked(self) -> Tensor:
        """(p,) the nodes that were asked for and are not labelled by now."""
        index = torch.empty(0, dtype=torch.int64) if self.pending is None else self.pending
        index = index.long().to(self.graph.weight.device)
        return index[~torch.isin(index, self.labelled)]

    @property
    def probability(self) -> Tensor:
        """`value` in float64, within 0 .. 1; an error where there is none."""
        if self.value is None:
            raise ValueError(
                "this acquisition function needs predictions, and there are none yet; start with VOpt, SigmaOpt or "
                "Random, or pass value="
            )
        return self.value.detach().double().clamp(0, 1)

    def posterior(self, gaussian: GaussianField) -> Covariance:
        """The covariance given all nodes that are labelled or asked for."""
        if gaussian not in self.priors:
            self.priors[gaussian] = gaussian.prior(self.graph)
        return self.priors[gaussian].given(torch.cat([self.labelled, self.asked]))

    def generator(self) -> torch.Generator:
        """Random numbers that are the same for the same situation."""
        return torch.Generator().manual_seed(self.seed)


class AbstractAcquisition(ABC):
    """How much a label would help at every node. Subclass it for a rule of your own: one method."""

    @abstractmethod
    def score(self, situation: Situation) -> Float[Tensor, " n"]:
        """(n,) finite scores, higher where a label helps more. Those of labelled nodes are not used."""


@final
@dataclass(frozen=True)
class Entropy(AbstractAcquisition):
    """Uncertainty: -Σ_c p_c log p_c, where 0 log 0 = 0.

    Differentiable in: nothing.

    >>> graph = Graph.from_sparse(torch.tensor([[0., 1.], [1., 0.]]))
    >>> Entropy().score(Situation(graph, value=torch.tensor([[1.0, 0.0], [0.5, 0.5]]))).tolist()
    [0.0, 0.693...]
    """

    def score(self, situation: Situation) -> Tensor:
        return torch.special.entr(situation.probability).sum(1)


@final
@dataclass(frozen=True)
class NormScore(AbstractAcquisition):
    """Uncertainty: 1 - |p|₂, the L2 score of the GLL paper (appendix, choice of base sets).

    Differentiable in: nothing.
    """

    def score(self, situation: Situation) -> Tensor:
        return 1 - torch.linalg.vector_norm(situation.probability, dim=1)


@final
@dataclass(frozen=True)
class Margin(AbstractAcquisition):
    """Uncertainty: one minus the largest probability plus the second largest.

    Differentiable in: nothing.
    """

    def score(self, situation: Situation) -> Tensor:
        p = situation.probability
        if p.shape[1] < 2:
            raise ValueError("a margin needs at least two classes")
        best = p.topk(2, dim=1).values
        return 1 - (best[:, 0] - best[:, 1])


@final
@dataclass(frozen=True)
class SmallestNorm(AbstractAcquisition):
    """Reach: 1 - |u_τ|₂, where τu + Δu = 0 off the labels and u = g on them (Miller, Calder 2023).

    With τ > 0 values fade with the distance from the labels, so that a small norm means: no label is near. This needs
    u itself; probabilities, which sum to one, no longer know it. Explores first, and exploits once τ is small beside
    what neighbours weigh.

    Args:
        tau: τ > 0, as a fraction of the mean degree.
        reweighted: strengthen the edges near labels first (`reweight.poisson`), as the authors do.

    Differentiable in: nothing.
    """

    tau: float = 0.01
    reweighted: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.tau < float("inf"):
            raise ValueError(f"the smallest norm needs tau > 0 (without it nothing fades), got {self.tau}")

    def score(self, situation: Situation) -> Tensor:
        if situation.labels is None or len(situation.labels.index) == 0:
            raise ValueError("the smallest norm needs at least one label; start with VOpt, SigmaOpt or Random")
        graph = situation.graph.detach()
        labels = Labels(situation.labelled, situation.labels.value.detach().to(graph.weight))
        if self.reweighted:
            graph = poisson(graph, labels)
        degree = float(graph.degree.mean())
        # With τ > 0 every node is determined: where no label is connected, u = 0.
        u = solve(Laplace(tau=self.tau * degree if degree > 0 else self.tau), graph, labels).value.double()
        return 1 - torch.linalg.vector_norm(u, dim=1)


DEFAULT_FIELD = GaussianField()


class AbstractFieldAcquisition(AbstractAcquisition):
    """A score made from the covariance of a Gaussian field, which does not depend on what the labels say.

    So the effect of a pick on the scores of the others is known before its label is: `choose` updates them after each.
    """

    gaussian: GaussianField

    @abstractmethod
    def score_given(self, situation: Situation, covariance: Covariance) -> Float[Tensor, " n"]:
        """(n,) the scores under this covariance."""

    def score(self, situation: Situation) -> Tensor:
        return self.score_given(situation, situation.posterior(self.gaussian))


@final
@dataclass(frozen=True)
class VOpt(AbstractFieldAcquisition):
    """Variance: |C e_k|² / (γ² + C_kk), by which a label at k lowers the trace of C (Ji, Han 2012).

    Needs no predictions: it spreads labels over the graph, and is the way to begin.

    Differentiable in: nothing.
    """

    gaussian: GaussianField = DEFAULT_FIELD

    def score_given(self, situation: Situation, covariance: Covariance) -> Tensor:
        return covariance.square / (covariance.noise + covariance.variance)


@final
@dataclass(frozen=True)
class SigmaOpt(AbstractFieldAcquisition):
    """Variance of the mean: (1ᵀC e_k)² / (γ² + C_kk), by which a label lowers the sum of C (Ma et al. 2013).

    Prefers the middles of large clusters; less moved by outliers than `VOpt`.

    Differentiable in: nothing.
    """

    gaussian: GaussianField = DEFAULT_FIELD

    def score_given(self, situation: Situation, covariance: Covariance) -> Tensor:
        return covariance.total.square() / (covariance.noise + covariance.variance)


@final
@dataclass(frozen=True)
class ModelChange(AbstractFieldAcquisition):
    """Model change: |e_ŷ - p|₂ |C e_k|₂ / (γ² + C_kk) (Miller, Bertozzi 2024).

    A label y at k moves the mean m of a Gaussian field by C e_k (y - m(k)) / (γ² + C_kk). The label is not known; ŷ,
    the class predicted at k, is the one that moves it least. With p = m this is exactly the distance (Frobenius)
    between the field's means before and after; with other probabilities, their uncertainty weighs the field's.

    Differentiable in: nothing.
    """

    gaussian: GaussianField = DEFAULT_FIELD

    def score_given(self, situation: Situation, covariance: Covariance) -> Tensor:
        p = situation.probability
        surprise = torch.nn.functional.one_hot(p.argmax(1), p.shape[1]) - p
        length = covariance.square.clamp(min=0).sqrt()
        return torch.linalg.vector_norm(surprise, dim=1) * length / (covariance.noise + covariance.variance)


@final
@dataclass(frozen=True)
class Random(AbstractAcquisition):
    """No preference: uniform random numbers, the same for the same seed of the situation.

    Differentiable in: nothing.
    """

    def score(self, situation: Situation) -> Tensor:
        n, device = situation.graph.num_nodes, situation.graph.weight.device
        return torch.rand(n, dtype=torch.float64, generator=situation.generator()).to(device)


class AbstractSelection(ABC):
    """From scores to a batch."""

    stepwise: ClassVar[bool] = False
    """Whether a batch may be picked one by one, with scores updated in between."""

    @abstractmethod
    def select(
        self,
        score: Float[Tensor, " n"],
        graph: Graph,
        eligible: Bool[Tensor, " n"],
        rivals: Bool[Tensor, " n"],
        count: int,
        generator: torch.Generator,
    ) -> Int[Tensor, " picks"]:
        """At most `count` eligible nodes, the most wanted first.

        `rivals` are all nodes that compete: the eligible ones, and those asked for already.
        """


@final
@dataclass(frozen=True)
class TopK(AbstractSelection):
    """The highest scores; ties go to the lower index. Neighbours score alike, so a batch may say one thing many times.

    Differentiable in: nothing.
    """

    stepwise: ClassVar[bool] = True

    def select(
        self, score: Tensor, graph: Graph, eligible: Tensor, rivals: Tensor, count: int, generator: torch.Generator
    ) -> Tensor:
        return _ranked(score, eligible)[:count]


@final
@dataclass(frozen=True)
class LocalMax(AbstractSelection):
    """The highest of those that no neighbour beats (Chapman et al. 2023): a batch that is spread out.

    A node qualifies if its score is at least that of every neighbour that competes. Of equal neighbours the one with
    the lower index wins, so that no two nodes of a batch are neighbours, on a plateau either.

    Args:
        fill: where fewer qualify than were asked for, look again among those that are not next to a pick, and at last
            among all. Otherwise the batch is smaller, with a warning.

    Differentiable in: nothing.
    """

    fill: bool = True

    def select(
        self, score: Tensor, graph: Graph, eligible: Tensor, rivals: Tensor, count: int, generator: torch.Generator
    ) -> Tensor:
        t, joined = graph.topology, graph.weight.detach() > 0
        i, j = t.i[joined], t.j[joined]
        # Among rivals, the edge's loser is the end with the lower score, or of equal ones j (as i < j).
        loser = torch.where(score[i] >= score[j], j, i)
        picks = score.new_empty(0, dtype=torch.int64)
        field_, rest = rivals, eligible
        while True:
            beaten = torch.zeros_like(rivals)
            beaten[loser[field_[i] & field_[j]]] = True
            found = _ranked(score, rest & field_ & ~beaten)
            picks = torch.cat([picks, found])
            if len(picks) >= count or not self.fill or not bool(rest.any()):
                return picks[:count]
            rest = rest.index_fill(0, found, False)
            near = torch.zeros_like(rest).index_fill(0, picks, True)
            near[i[near[j]]] = near[j[near[i]]] = True
            field_ = rest & ~near
            if not bool(field_.any()):
                field_ = rest


@final
@dataclass(frozen=True)
class Proportional(AbstractSelection):
    """Sampling without replacement, with probability ∝ exp(γ score), or ∝ score where γ is None.

    Args:
        gamma: γ ≥ 0 in units of the score: 0 is uniform, ∞ would be `TopK`.

    Differentiable in: nothing.
    """

    stepwise: ClassVar[bool] = True
    gamma: float | None = None

    def __post_init__(self) -> None:
        if self.gamma is not None and not 0 <= self.gamma < float("inf"):
            raise ValueError(f"gamma must be None or a finite number ≥ 0, got {self.gamma}")

    def select(
        self, score: Tensor, graph: Graph, eligible: Tensor, rivals: Tensor, count: int, generator: torch.Generator
    ) -> Tensor:
        if self.gamma is None:
            score = torch.where(eligible, score, 0)
            least, most = float(score.min()), float(score.max())
            if least < -1e-9 * max(most, 1e-300):
                raise ValueError(f"sampling in proportion needs scores ≥ 0, the smallest is {least:g}; set gamma")
            # Nodes of score zero come last, rather than never.
            log = (score.clamp(min=0) / (most if most > 0 else 1)).clamp(min=torch.finfo(score.dtype).tiny).log()
        else:
            log = self.gamma * score
        # The order of log p + Gumbel noise is that of drawing one by one without replacement.
        uniform = torch.rand(len(score), dtype=torch.float64, generator=generator).to(score.device)
        noise = -torch.log(-torch.log(uniform.clamp(1e-300, 1 - 1e-16)))
        return _ranked(log + noise, eligible)[:count]


def _ranked(score: Tensor, mask: Tensor) -> Tensor:
    """The nodes of the mask, highest score first; of equal scores the lower index first."""
    nodes = torch.nonzero(mask).squeeze(1)
    return nodes[score[nodes].sort(descending=True, stable=True).indices]


@dataclass(frozen=True, eq=False)
class Choice:
    """The nodes to label next.

    Args:
        index: (b,) the nodes, the most wanted first.
        score: (b,) the score of each when it was picked.

    Differentiable in: nothing.
    """

    index: Int[Tensor, " b"]
    score: Float[Tensor, " b"]


def choose(
    acquisition: AbstractAcquisition,
    situation: Situation,
    count: int,
    *,
    selection: AbstractSelection | None = None,
    candidates: Tensor | Sequence[int] | np.ndarray | None = None,
) -> Choice:
    """Choose the nodes to label next.

    With `TopK` and `Proportional`, a function of a Gaussian field is updated after each pick of the batch, as if its
    label had come: that spreads the batch by itself. `LocalMax` takes the whole batch from one set of scores.

    Args:
        acquisition: what a label is worth.
        situation: what is known.
        count: how many nodes.
        selection: how to make a batch; by default `TopK()` for functions of a Gaussian field, `LocalMax()` for others.
        candidates: (c,) choose among these nodes only, by default all; a tensor, an array or a sequence. Labelled nodes
            and those asked for already are never chosen.

    Returns:
        A `Choice`. Where fewer nodes are left than `count`, all of them, with a `FewerThanAskedWarning`.

    Raises:
        ValueError: `count` < 1, no candidate is left, or a score is not finite.

    Differentiable in: nothing.

    >>> path = Graph.from_sparse(torch.tensor([[0., 1., 0.], [1., 0., 1.], [0., 1., 0.]]))
    >>> choose(VOpt(), Situation(path), 1).index.tolist()
    [1]
    """
    if selection is None:
        selection = TopK() if isinstance(acquisition, AbstractFieldAcquisition) else LocalMax()
    for given, wanted, example in (
        (acquisition, AbstractAcquisition, "Entropy()"),
        (selection, AbstractSelection, "LocalMax()"),
    ):
        if not isinstance(given, wanted):
            raise TypeError(f"expected an object such as gll.active.{example}, got {given!r}")
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    open_ = _open(situation, candidates)
    left = int(open_.sum())
    if left == 0:
        raise ValueError("no candidate is left: every one is labelled or asked for already")
    wanted_ = min(count, left)
    generator = situation.generator()
    rivals = open_.index_fill(0, situation.asked, True)
    if isinstance(acquisition, AbstractFieldAcquisition) and selection.stepwise:
        covariance, picks, scores = situation.posterior(acquisition.gaussian), [], []
        for _ in range(wanted_):
            score = _checked(acquisition.score_given(situation, covariance), acquisition, open_)
            pick = selection.select(score, situation.graph, open_, rivals, 1, generator)
            picks.append(pick)
            scores.append(score[pick])
            open_ = open_.index_fill(0, pick, False)
            covariance = covariance.given(pick)
        choice = Choice(torch.cat(picks), torch.cat(scores))
    else:
        score = _checked(acquisition.score(situation), acquisition, open_)
        index = selection.select(score, situation.graph, open_, rivals, wanted_, generator)
        choice = Choice(index, score[index])
    if len(choice.index) < count:
        why = f"only {left} are left" if left < count else "only so many stand out from their neighbours"
        warnings.warn(
            f"{count} nodes were asked for, {len(choice.index)} chosen: {why}", FewerThanAskedWarning, stacklevel=2
        )
    return choice


def _open(situation: Situation, candidates: Tensor | Sequence[int] | np.ndarray | None) -> Tensor:
    """(n,) which nodes may be chosen."""
    n, device = situation.graph.num_nodes, situation.graph.weight.device
    mask = torch.ones(n, dtype=torch.bool, device=device)
    if candidates is not None:
        given = candidates if isinstance(candidates, Tensor) else np.asarray(candidates)
        whole = given.dtype.kind in "iu" if isinstance(given, np.ndarray) else given.dtype in INTEGERS
        if len(given.shape) != 1 or (not whole and given.shape[0] > 0):
            raise ValueError(
                "candidates must be whole numbers in one dimension, the nodes to choose among (for a mask, where it is "
                f"true), got {given.dtype} of shape {tuple(given.shape)}"
            )
        nodes = torch.from_numpy(given.astype(np.int64)) if isinstance(given, np.ndarray) else given.detach().long()
        if nodes.numel() and (int(nodes.min()) < 0 or int(nodes.max()) >= n):
            raise ValueError(f"candidates must lie in 0 .. {n - 1}")
        mask = torch.zeros_like(mask).index_fill(0, nodes.to(device), True)
    return mask.index_fill(0, torch.cat([situation.labelled, situation.asked]), False)


def _checked(score: Tensor, acquisition: AbstractAcquisition, open_: Tensor) -> Tensor:
    if score.shape != open_.shape:
        raise ValueError(f"{acquisition!r} gave scores of shape {tuple(score.shape)} for {len(open_)} nodes")
    bad = int((~torch.isfinite(score[open_])).sum())
    if bad:
        raise ValueError(f"{acquisition!r} gave {bad} scores that are not finite")
    return score


ACQUISITIONS: dict[str, type[AbstractAcquisition]] = {
    "entropy": Entropy,
    "norm": NormScore,
    "margin": Margin,
    "smallest-norm": SmallestNorm,
    "vopt": VOpt,
    "sigma-opt": SigmaOpt,
    "model-change": ModelChange,
    "random": Random,
}
SELECTIONS: dict[str, type[AbstractSelection]] = {"local-max": LocalMax, "top-k": TopK, "proportional": Proportional}


def acquisition_from_name(name: str, **options: Any) -> AbstractAcquisition:
    """The acquisition function of that name; options of a Gaussian field (`tau`, `noise`, `rank`) may be given flat.

    >>> acquisition_from_name("vopt", rank=50).gaussian.rank
    50
    """
    kind = _lookup(ACQUISITIONS, name, "acquisition function")
    if issubclass(kind, AbstractFieldAcquisition):
        if "normalization" in options:
            options["normalization"] = Normalization(options["normalization"])
        return kind(_made(GaussianField, name, options))
    return _made(kind, name, options)


def selection_from_name(name: str, **options: Any) -> AbstractSelection:
    """The selection of that name.

    >>> selection_from_name("proportional", gamma=2.0)
    Proportional(gamma=2.0)
    """
    return _made(_lookup(SELECTIONS, name, "selection"), name, options)


def _lookup(table: dict[str, Any], name: str, what: str) -> Any:
    if name not in table:
        raise ValueError(f"unknown {what} {name!r}; choose one of {', '.join(table)}")
    return table[name]


def _made(kind: Any, name: str, options: dict[str, Any]) -> Any:
    known = [entry.name for entry in dataclasses.fields(kind)]
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ValueError(f"{name!r} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    return kind(**options)


def as_config(thing: AbstractAcquisition | AbstractSelection) -> dict[str, Any]:
    """The name and options from which an object of this file is made again, as plain JSON values.

    >>> as_config(SmallestNorm(tau=0.1))
    {'name': 'smallest-norm', 'options': {'tau': 0.1, 'reweighted': False}}
    """
    table: dict[str, Any] = {**ACQUISITIONS, **SELECTIONS}
    names = [name for name, kind in table.items() if kind is type(thing)]
    if not names:
        return {"name": None, "repr": repr(thing)}  # a user's own: has to be handed in again on loading
    holder: Any = thing.gaussian if isinstance(thing, AbstractFieldAcquisition) else thing
    options = {entry.name: getattr(holder, entry.name) for entry in dataclasses.fields(holder)}
    if "normalization" in options:
        options["normalization"] = options["normalization"].value
    return {"name": names[0], "options": options}
