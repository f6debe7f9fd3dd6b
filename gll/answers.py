"""What was asked and answered in a labelling session: the nodes that are labelled, asked for, skipped, taken back."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from torch import Tensor

from gll.label_names import Label, as_label, of_one_kind


@final
@dataclass(eq=False)
class Answers:
    """The nodes of a session and what has become of them. Every change is made as a whole, or refused.

    Args:
        num_nodes: of the graph.
        told: the labels.
        taken: nodes whose labels are a classifier's own still, and what they count.
        forgotten: nodes whose labels were taken back, so that a classifier can be told.
        pending: nodes that were asked for and have no answer, in the order of asking.
        skipped: nodes that are not to be asked for.
    """

    num_nodes: int
    told: dict[int, Label] = field(default_factory=dict)
    taken: dict[int, float] = field(default_factory=dict)
    forgotten: set[int] = field(default_factory=set)
    pending: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)

    @classmethod
    def from_state(cls, num_nodes: int, state: Mapping[str, Any]) -> Answers:
        """What `state` said; a `TypeError` or `ValueError` where that cannot be."""
        found = cls(num_nodes)
        found.told = dict(zip(found.nodes(state["index"]), [as_label(c) for c in state["labels"]], strict=True))
        found.taken = {found.nodes(i)[0]: float(weight) for i, weight in state["taken"]}
        found.forgotten = set(found.nodes(state["forgotten"]))
        found.pending, found.skipped = found.nodes(state["pending"]), found.nodes(state["skipped"])
        return found

    def state(self) -> dict[str, Any]:
        """All of it as JSON knows it."""
        index, labels = self.labels
        return {
            "index": index,
            "labels": labels,
            "taken": [[i, self.taken[i]] for i in sorted(self.taken)],
            "forgotten": sorted(self.forgotten),
            "pending": self.pending,
            "skipped": self.skipped,
        }

    @property
    def labels(self) -> tuple[list[int], list[Label]]:
        """The labelled nodes in ascending order, and their labels."""
        index = sorted(self.told)
        return index, [self.told[i] for i in index]

    @property
    def classes(self) -> list[Label]:
        """The classes that have a label, sorted."""
        return sorted(set(self.told.values()))

    def tell(
        self, nodes: list[int], names: list[Label], taken: Mapping[int, float], classes: Sequence[Label] | None
    ) -> None:
        """Labels of a person, or `taken` from a classifier with what they count there; of these `classes` only."""
        if len(nodes) != len(names):
            raise ValueError(f"{len(nodes)} nodes but {len(names)} labels")
        if classes is not None and not set(names) <= set(classes):
            raise ValueError(f"unknown label {next(c for c in names if c not in classes)!r}; the classes are {classes}")
        of_one_kind([*dict.fromkeys([*self.told.values(), *names])])
        self.told.update(zip(nodes, names, strict=True))
        self.taken = {i: w for i, w in self.taken.items() if i not in set(nodes)} | dict(taken)
        self.forgotten -= set(nodes)
        self.pending = [i for i in self.pending if i not in self.told]
        self.skipped = [i for i in self.skipped if i not in self.told]

    def skip(self, nodes: list[int]) -> None:
        labelled = [i for i in nodes if i in self.told]
        if labelled:
            raise ValueError(f"node {labelled[0]} is labelled; tell it again to correct it, or forget it first")
        self.skipped = list(dict.fromkeys([*self.skipped, *nodes]))
        self.pending = [i for i in self.pending if i not in self.skipped]

    def forget(self, nodes: list[int]) -> None:
        bare = [i for i in nodes if i not in self.told]
        if bare:
            raise ValueError(f"node {bare[0]} has no label that could be taken back")
        self.told = {i: c for i, c in self.told.items() if i not in set(nodes)}
        self.taken = {i: w for i, w in self.taken.items() if i not in set(nodes)}
        self.forgotten |= set(nodes)

    def nodes(self, index: Any) -> list[int]:
        """The nodes that a user names: one number, or several different ones."""
        if isinstance(index, Tensor | np.ndarray):
            index = index.tolist()
        many = list(index) if isinstance(index, Sequence) else [index]
        n, nodes = self.num_nodes, []
        for i in many:
            if isinstance(i, bool):
                raise TypeError("a node is an integer, got a bool; for a mask use mask.nonzero()")
            try:
                node = operator.index(i)
            except TypeError:
                raise TypeError(f"a node is an integer, got {i!r}") from None
            if not 0 <= node < n:
                raise ValueError(f"nodes lie in 0 .. {n - 1}, got {node}")
            nodes.append(node)
        if len(set(nodes)) != len(nodes):
            raise ValueError("a node appears twice in one call")
        return nodes
