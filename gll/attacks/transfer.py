"""Attacks made against one model and judged on another.

Where a victim's own gradient is of little use, that of a model which resembles it may be of more: a linear probe on the
same encoder (`probe.py`), another head, another run; or the victim itself, seen otherwise.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn

from gll.attacks.base import AbstractAttack, Watched, judge_of
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.norms import AbstractNorm


@dataclass(frozen=True, eq=False)
class AbstractMadeElsewhere(AbstractAttack):
    """An attack that another one makes, in its ball, on something else than the model that judges it."""

    attack: AbstractAttack
    eps: float = field(init=False)
    norm: AbstractNorm = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "eps", self.attack.eps)
        object.__setattr__(self, "norm", self.attack.norm)

    @property
    @abstractmethod
    def where(self) -> str:
        """On what it is made, as its name says it."""

    @abstractmethod
    def own_settings(self) -> dict[str, Any]:
        """What its settings have besides those of the attack."""

    @final
    @property
    def name(self) -> str:
        return f"{self.attack.name} {self.where}"

    @final
    def settings(self) -> dict[str, Any]:
        return {**self.attack.settings(), **self.own_settings()}


@final
@dataclass(frozen=True, eq=False)
class Transfer(AbstractMadeElsewhere):
    """An attack that is made on another model.

    Args:
        attack: how.
        source: the model it is made on: images in 0 .. 1 to logits.
        source_name: what to call it in results.
        asks: the attacker may ask the model under attack for its answers, and keeps the iterate that fools it best;
            otherwise he sees the source alone.

    >>> from gll.attacks.gradient import FGSM
    >>> source, victim = nn.Linear(4, 3), nn.Linear(4, 3)
    >>> images, labels = torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
    >>> result = Transfer(FGSM(0.1), source, "another layer")(victim, images, labels)
    >>> result.attack, result.settings["source"], bool((result.linf <= 0.1001).all())
    ('fgsm from another layer', 'another layer', True)
    """

    source: nn.Module
    source_name: str = "another model"
    asks: bool = False

    @property
    def where(self) -> str:
        return f"from {self.source_name}"

    def own_settings(self) -> dict[str, Any]:
        return {"source": self.source_name, **({"asks": True} if self.asks else {})}

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        source = stand_in(self.source, model) if self.asks else self.source
        return self.attack.perturb(source, images, labels, generator)


class AbstractView(AbstractMadeElsewhere):
    """An attack that is made on another view of a graph victim, and judged on the victim. Subclasses write `view`.

    Every iterate is judged, not only the last: the view says where to go, the victim whether that is far enough.
    """

    @abstractmethod
    def view(self, victim: GraphVictim, images: Tensor) -> GraphVictim:
        """What the attack is made on."""

    @final
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        seen = stand_in(self.view(graph_victim(model, self.name), images), model)
        return self.attack.perturb(seen, images, labels, generator)


@final
@dataclass(frozen=True, eq=False)
class FixedNeighbours(AbstractView):
    """An attack on a graph victim that sees the neighbours of the clean images throughout (a view like BPDA's).

    The function that is followed is then smooth: no edge comes or goes. What comes out is judged as always, with the
    neighbours that the attacked images have.

    Args:
        attack: how.
    """

    @property
    def where(self) -> str:
        return "with fixed neighbours"

    def own_settings(self) -> dict[str, Any]:
        return {"neighbours": "fixed"}

    def view(self, victim: GraphVictim, images: Tensor) -> GraphVictim:
        return victim.fixed_at(images)


@final
@dataclass(frozen=True, eq=False)
class EveryClass(AbstractView):
    """An attack on a graph victim that sees base samples of every class, though no neighbour has it.

    In a graph of neighbours a class that none of them has is out of sight: its probability is zero and has no gradient,
    in any precision (`GraphVictim.reaching`).

    Args:
        attack: how.
        points: base samples of every class that a query is joined to.
        joint: see them in the graph of all queries, for a victim that has one; by default every query is seen alone.
    """

    points: int = 5
    joint: bool = False

    @property
    def where(self) -> str:
        return "with every class jointly" if self.joint else "with every class"

    def own_settings(self) -> dict[str, Any]:
        return {"every_class": self.points, **({"seen": "jointly"} if self.joint else {})}

    def view(self, victim: GraphVictim, images: Tensor) -> GraphVictim:
        return victim.reaching(self.points, joint=self.joint)


@final
@dataclass(frozen=True, eq=False)
class Apart(AbstractView):
    """An attack on a graph victim that sees every query alone in a graph with the base (`GraphVictim.apart`).

    It is for attacks that go on with some of the images only, as AutoAttack does. In a graph of all queries those would
    have another graph each time. What comes out is judged as always, all together.

    Args:
        attack: how.
    """

    @property
    def where(self) -> str:
        return "apart"

    def own_settings(self) -> dict[str, Any]:
        return {"seen": "apart"}

    def view(self, victim: GraphVictim, images: Tensor) -> GraphVictim:
        return victim.apart()


def stand_in(other: nn.Module, model: nn.Module) -> nn.Module:
    """`other` for an attack to follow, `model`, as the attack was given it, to judge."""
    return Watched(other, model.images, model.wrong, judge_of(model)) if isinstance(model, Watched) else other


def graph_victim(model: nn.Module, attack: str) -> GraphVictim:
    """The graph victim that an attack was given, watched or not."""
    inner = model.model if isinstance(model, Watched) else model
    if not isinstance(inner, GraphVictim):
        raise TypeError(f"{attack} needs a GraphVictim, whose features and base it can see; got {type(inner).__name__}")
    return inner
