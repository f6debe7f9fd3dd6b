"""What an attacker may do, and what the attacked classifier looks at: every result says so.

A graph head answers from a graph, so "the error under attack" means nothing until it is said what is in that graph.
Two numbers can be compared when their threat models are the same.
"""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import Any, final


class Queries(enum.Enum):
    """Whether the attacked samples are nodes of one graph, or each has a graph of its own with the base."""

    JOINT = "joint"
    ALONE = "alone"


class Inference(enum.Enum):
    """Whether a query is a node of the graph that is solved, or is joined to base nodes solved without it."""

    TRANSDUCTIVE = "transductive"
    INDUCTIVE = "inductive"


class Neighbours(enum.Enum):
    """Whether the attacker's gradient sees neighbours chosen anew at every step, or those of the clean batch."""

    RECHOSEN = "rechosen"
    FIXED = "fixed"


@final
@dataclass(frozen=True)
class ThreatModel:
    """What is in the graph under attack, and how the attacker's gradient is made.

    Args:
        base: the labelled samples that classify: which, how many, and the seed they were drawn with.
        queries: one graph for all attacked samples, or one each.
        inference: transductive or inductive; an inductive query never meets the others, whatever `queries` says.
        perturbs_base: whether base samples are changed too.
        neighbours: of the attacker's gradient; what is classified at the end always has its own neighbours.
        exact_neighbours: whether the search is exact and deterministic.
        gradient: whose gradient it is: "own", or what stands in for it ("surrogate linear" for WNLL).
        dtype: the precision of the graph.

    Differentiable in: nothing.

    >>> print(ThreatModel("100 of 400 training samples, seed 0").describe())
    The base is 100 of 400 training samples, seed 0, left as it is; all attacked samples are nodes of one graph with it;
    neighbours are exact and chosen anew at every step; the gradient is own, in float32.
    >>> ThreatModel("10 samples", queries=Queries.ALONE).as_dict()["queries"]
    'alone'
    """

    base: str
    queries: Queries = Queries.JOINT
    inference: Inference = Inference.TRANSDUCTIVE
    perturbs_base: bool = False
    neighbours: Neighbours = Neighbours.RECHOSEN
    exact_neighbours: bool = True
    gradient: str = "own"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name, kind in (("queries", Queries), ("inference", Inference), ("neighbours", Neighbours)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                members = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
                raise TypeError(f"{name} must be one of {members}, got {value!r}")

    @property
    def alone(self) -> bool:
        """Whether the answer to a query does not depend on the other queries."""
        return self.queries is Queries.ALONE or self.inference is Inference.INDUCTIVE

    def as_dict(self) -> dict[str, Any]:
        """All fields, for JSON; `from_dict` reads it."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value.value if isinstance(value, enum.Enum) else value for name, value in values.items()}

    @staticmethod
    def from_dict(record: dict[str, Any]) -> ThreatModel:
        """What `as_dict` gave.

        >>> threat = ThreatModel("10 samples", inference=Inference.INDUCTIVE)
        >>> ThreatModel.from_dict(threat.as_dict()) == threat
        True
        """
        kinds: dict[str, type[enum.Enum]] = {"queries": Queries, "inference": Inference, "neighbours": Neighbours}
        values: dict[str, Any] = {name: kinds[name](v) if name in kinds else v for name, v in record.items()}
        return ThreatModel(**values)

    def in_the_graph(self) -> str:
        """What is in the graph, whatever the attacker follows; one sentence."""
        graph = "all attacked samples are nodes of one graph with it"
        if self.queries is Queries.ALONE:
            graph = "every attacked sample has a graph of its own with it"
        if self.inference is Inference.INDUCTIVE:
            graph = "every attacked sample is joined to it by itself, after it was solved"
        changed = "perturbed too" if self.perturbs_base else "left as it is"
        search = "exact" if self.exact_neighbours else "approximate"
        return f"The base is {self.base}, {changed}; {graph}; neighbours are {search}"

    def describe(self) -> str:
        """One sentence, with what the attacker follows."""
        chosen = "chosen anew at every step"
        if self.neighbours is Neighbours.FIXED:
            chosen = "held as the clean samples have them while the attack is made"
        return f"{self.in_the_graph()} and {chosen}; the gradient is {self.gradient}, in {self.dtype}."
