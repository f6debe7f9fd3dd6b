"""Methods that end in threshold dynamics (`mbo.py`), both from the partition that Poisson learning finds."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from gll.equations import require
from gll.features import require_positive
from gll.mbo import fidelity_flow, source_flow, threshold_dynamics
from gll.poisson_learning import PoissonLearning, poisson_source
from gll.propagation import AbstractMethod, Answer, Request, unlabelled_components
from gll.readout import Readout


class AbstractMBO(AbstractMethod):
    """Poisson learning, then threshold dynamics; a subclass says what flows between roundings, and what they keep."""

    uses_label_weight: ClassVar[bool] = True
    title: ClassVar[str]
    rounds: int
    steps: int
    mu: float

    def __post_init__(self) -> None:
        for name, value in (("rounds", self.rounds), ("steps", self.steps)):
            require(value >= 1, f"{name} must be a whole number ≥ 1, got {value}")
        require_positive(self.mu, "mu")

    @abstractmethod
    def flow(self, request: Request) -> Callable[[Tensor], Tensor]:
        """From one-hot values (n, C) to values after `steps` heat steps."""

    @abstractmethod
    def share(self, request: Request) -> Tensor | None:
        """(C,) the shares of the classes that every rounding keeps; None for those that Poisson learning found."""

    @final
    def find(self, request: Request) -> Answer:
        with torch.no_grad():
            first = PoissonLearning().find(dataclasses.replace(request, initial=None))
            lost = unlabelled_components(request.graph, request.labels) if first.lost is None else first.lost
            known = None if lost is None else ~lost
            start, share = Readout(first.scale)(first.score), self.share(request)
            found = threshold_dynamics(self.flow(request), start, share, known, self.rounds, request.mass)
        end = "settled" if found.settled else "stopped"
        text = f"{self.title}: {end} after {found.rounds} rounds of {self.steps} steps, from {first.description}"
        return Answer(found.value, first.steps + found.rounds * self.steps, text, share=found.share, lost=first.lost)


@final
@dataclass(frozen=True, eq=False)
class PoissonMBO(AbstractMBO):
    """Poisson learning, then threshold dynamics with the same sources (Calder, Cook, Thorpe, Slepčev 2020).

    Every rounding keeps the shares of the classes: those of the class prior, as in the paper, or where there is none
    those that Poisson learning found. (Left free, large classes swallow small ones.) Weights of labels multiply their
    sources. Inference only: passes no gradient.

    Args:
        rounds: at most this many roundings; it ends when no node changes its class.
        steps: heat steps between them.
        mu: strength of the sources, in units of the mean degree.
    """

    title: ClassVar[str] = "Poisson MBO"
    rounds: int = 20
    steps: int = 40
    mu: float = 1.0

    def flow(self, request: Request) -> Callable[[Tensor], Tensor]:
        return source_flow(request.graph, poisson_source(request), self.steps, self.mu)

    def share(self, request: Request) -> Tensor | None:
        return request.prior


@final
@dataclass(frozen=True, eq=False)
class VolumeMBO(AbstractMBO):
    """Threshold dynamics with given class volumes, labels pulling in the heat flow, from Poisson learning's partition.

    The scheme of Merkurjev, Kostić and Bertozzi (2013) with the volumes of Jacobs, Merkurjev and Esedoḡlu (2018). The
    volumes are the class prior or, where there is none, the shares of the classes among the labels: right if labels
    were drawn at random, wrong if each class was given as many and classes differ in size. Weights of labels multiply
    their pull. Inference only: passes no gradient.

    Args:
        rounds, steps: as in `PoissonMBO`.
        mu: strength of the pull; large values hold labelled nodes at their labels.
    """

    title: ClassVar[str] = "volume MBO"
    rounds: int = 20
    steps: int = 10
    mu: float = 100.0

    def flow(self, request: Request) -> Callable[[Tensor], Tensor]:
        return fidelity_flow(request.graph, request.labels, request.weight, self.steps, self.mu)

    def share(self, request: Request) -> Tensor | None:
        if request.prior is not None:
            return request.prior
        value = request.labels.value.double()
        weight = value.new_ones(len(value)) if request.weight is None else request.weight.double()
        return (weight @ value) / weight.sum()
