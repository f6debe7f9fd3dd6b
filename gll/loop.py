"""The labelling loop: suggest, tell, suggest again, and stop whenever you like.

    suggest(count)          which nodes to label next, with what is predicted there
    tell(index, labels)     what they are; in any order, also of nodes that were not suggested; again to correct

What is suggested depends on what has been told and asked, and on the seed: not on the order of the tells, nor on
whether the session was stored and loaded in between. All that changes is a small JSON file, written to another name
and renamed after each step; the graph is written once, beside it.

The choice itself is made by `active.py`, predictions by a method of `methods.py`; `answers.py` keeps the books.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from gll.active import AbstractAcquisition, AbstractSelection, Choice, ModelChange, SigmaOpt, Situation, choose
from gll.answers import Answers
from gll.classifier_labels import check_fitted, give_labels, labels_of, settings_of
from gll.field import Covariance, GaussianField
from gll.graph import Graph
from gll.label_names import Label, as_label, as_labels, of_one_kind, shares_of
from gll.labels import Labels
from gll.methods import AbstractMethod, Propagation, method_from_name
from gll.propagation import ClassPriorWarning, Solver
from gll.sessions import FORMAT, VERSION, config_of, fingerprint, objects_of, read_graph, read_state, write_session
from gll.unreached import Unreached, UnreachedWarning

__all__ = ["ActiveLearner", "Label", "Suggestion"]


@final
@dataclass(frozen=True)
class Suggestion:
    """A node to label, and what is known about it. `dataclasses.asdict` makes it JSON.

    Args:
        index: the node.
        score: what a label is worth there, in the units of the acquisition function that asked.
        prediction: the most probable label so far; None before two classes are known.
        probability: the probability of `prediction`; None likewise.
        reason: the function that chose the node.

    Differentiable in: nothing.
    """

    index: int
    score: float
    prediction: Label | None
    probability: float | None
    reason: str


@final
class ActiveLearner:
    """Asks for labels where they help most, and takes them as they come.

    Args:
        graph: the graph of all points.
        classes: the labels there are, all strings or all whole numbers; any other label is then an error, which
            catches slips. By default the labels told so far.
        method: how labels spread: a name of `METHODS`, or an object. "auto" by default: by the labels of the smallest
            class and how even they are.
        acquisition: what a label is worth; `ModelChange()` by default.
        selection: how a batch is made; by default as `choose` does.
        cold_start: what a label is worth while fewer than two classes are known; `SigmaOpt()` by default. It must need
            no predictions.
        seed: of everything random.
        truth: (n,) all labels, where known: then `history` records the accuracy on nodes without a label.
        autosave: a folder to keep the session in; written after every `suggest`, `tell` and `skip`.
        warm_start: start each solve from the last one. Faster on large graphs; answers agree to the solver's tolerance
            only, so that a tie may fall differently after a resume.
        class_prior: wanted shares of the classes among the predictions: a dictionary, whose keys are then the classes,
            or one number for each of `classes`.
        unreached: what nodes get that no label reaches: "uniform", "nearest" or "raise".
        solver: how equations are solved, as in `gll.solve`.
        node_mass: (n,) how many points every node stands for: what a label counts, where the method uses that, and
            what shares of classes are counted in. One by default.

    Differentiable in: nothing.

    >>> import torch, gll
    >>> x = torch.cat([torch.randn(20, 2), torch.randn(20, 2) + 9]).double()
    >>> learner = ActiveLearner(gll.knn_graph(x, 5))
    >>> first = learner.suggest(2)  # nothing is known yet: one in each cluster
    >>> for s in first:
    ...     learner.tell(s.index, "left" if s.index < 20 else "right")
    >>> learner.predictions[3], learner.predictions[33]
    ('left', 'right')
    """

    def __init__(
        self,
        graph: Graph,
        *,
        classes: Sequence[Label] | None = None,
        method: AbstractMethod | str = "auto",
        acquisition: AbstractAcquisition | None = None,
        selection: AbstractSelection | None = None,
        cold_start: AbstractAcquisition | None = None,
        seed: int = 0,
        truth: Sequence[Any] | Tensor | np.ndarray | None = None,
        autosave: str | os.PathLike[str] | None = None,
        warm_start: bool = False,
        class_prior: Mapping[Any, float] | Sequence[float] | None = None,
        unreached: Unreached | str = "uniform",
        solver: Solver | None = None,
        node_mass: Sequence[float] | Tensor | np.ndarray | None = None,
    ) -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"expected a graph, such as gll.knn_graph makes from features, got {type(graph).__name__}")
        self.graph = graph.detach()
        self.method = method_from_name(method) if isinstance(method, str) else method
        self.acquisition = ModelChange() if acquisition is None else acquisition
        self.selection = selection
        self.cold_start = SigmaOpt() if cold_start is None else cold_start
        self.solver, self.unreached = solver, Unreached(unreached)
        for name, given, kind in (
            ("method", self.method, AbstractMethod),
            ("acquisition", self.acquisition, AbstractAcquisition),
            ("selection", self.selection, AbstractSelection | None),
            ("cold_start", self.cold_start, AbstractAcquisition),
            ("solver", self.solver, Solver | None),
        ):
            if not isinstance(given, kind):
                raise TypeError(f"{name} must be an object of gll.active, gll.methods or gll.solvers, got {given!r}")
        self.seed, self.warm_start = int(seed), bool(warm_start)
        if classes is None and isinstance(class_prior, Mapping):
            classes = list(class_prior)
        self._fixed = None if classes is None else of_one_kind([as_label(c) for c in classes])
        if self._fixed is not None and len(self._fixed) < 2:
            raise ValueError(f"there must be at least two classes, got {self._fixed}")
        self._prior = None if class_prior is None else shares_of(class_prior, self._fixed)
        self._node_mass = None if node_mass is None else self._checked_mass(node_mass)
        self._truth = None if truth is None else self._checked_truth(truth)
        self._answers = Answers(self.graph.num_nodes)
        self._round = 0
        self._history: list[dict[str, Any]] = []
        self._last: Propagation | None = None
        self._fresh = False  # whether `_last` belongs to the labels told
        self._priors: dict[GaussianField, Covariance] = {}
        self._autosave = None if autosave is None else Path(autosave)
        if self._autosave is not None:
            if (self._autosave / "state.json").exists():
                raise FileExistsError(
                    f"{self._autosave} holds a session already: go on with it by ActiveLearner.load, or choose another "
                    "folder"
                )
            self.save(self._autosave)

    @classmethod
    def from_classifier(cls, classifier: Any, **options: Any) -> ActiveLearner:
        """A loop on the stored graph of a fitted `GraphLearningClassifier`, which answers as the classifier does.

        Taken over are its graph, labels and their weights, method, class prior, solver (with the groups it has found)
        and what it does about unreached points; `options` replace them. Not taken over: the temperature of
        `calibrate=True`, which changes no prediction.

        A node is a distinct row of X. Soft labels, and copies that disagree, count as their most probable class here;
        the classifier keeps them unless the node is told anew. `hand_back` gives the answers to the classifier.
        """
        check_fitted(classifier)
        nodes, names, weight = labels_of(classifier)
        learner = cls(classifier.graph_, **(settings_of(classifier) | options))
        learner._take(nodes, names, dict(zip(nodes, weight, strict=True)))
        return learner

    def hand_back(self, classifier: Any) -> Any:
        """Give the labels told here to the classifier that this loop was made from, and return it.

        Every row of X that is a copy of a told node gets the label, so that no older one stays on another copy; copies
        of a forgotten node lose theirs. Labels that were taken over and not told anew stay as they are. The classifier
        solves again, on its stored graph.
        """
        check_fitted(classifier)
        if fingerprint(classifier.graph_.detach()) != self._fingerprint:
            raise ValueError("this classifier is fitted on another graph than the one that the loop runs on")
        give_labels(classifier, self._answers)
        return classifier

    # What is known.

    @property
    def labels(self) -> tuple[list[int], list[Label]]:
        """The labelled nodes in ascending order, and their labels."""
        return self._answers.labels

    @property
    def pending(self) -> list[int]:
        """The nodes that were suggested and are neither labelled nor skipped yet, in the order of asking."""
        return list(self._answers.pending)

    @property
    def skipped(self) -> list[int]:
        """The nodes that are not to be asked for."""
        return sorted(self._answers.skipped)

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per `tell` or `forget`: nodes, labels, how many nodes are labelled, and the accuracy or None."""
        return [dict(entry) for entry in self._history]

    @property
    def classes(self) -> list[Label]:
        """The classes, in the order of the columns of `probabilities`."""
        return self._answers.classes if self._fixed is None else list(self._fixed)

    @property
    def ready(self) -> bool:
        """Whether two classes are known, so that there are predictions."""
        return len(self._answers.classes) >= 2

    @property
    def propagation(self) -> Propagation:
        """What the method says about every node; an error before two classes are known."""
        if not self.ready:
            raise ValueError(
                f"there are no predictions yet: labels of two classes are needed, {len(self._answers.classes)} known"
            )
        if not self._fresh or self._last is None:
            labels = self._as_labels()
            start = self._last.score if self.warm_start and self._last is not None else None
            if start is not None and start.shape[1] != labels.num_classes:
                start = None
            with warnings.catch_warnings():  # they are asked for first, and counted in `propagation.unreached`
                warnings.simplefilter("ignore", UnreachedWarning)
                if len(self._answers.classes) < labels.num_classes:  # the shares cannot be met yet
                    warnings.simplefilter("ignore", ClassPriorWarning)
                self._last = self.method.propagate(
                    self.graph,
                    labels,
                    label_weight=self._label_weight(),
                    class_prior=None
                    if self._prior is None
                    else labels.value.new_tensor(self._prior, dtype=torch.float64),
                    initial=start,
                    unreached=self.unreached,
                    solver=self.solver,
                    node_mass=None if self._node_mass is None else torch.tensor(self._node_mass, dtype=torch.float64),
                )
            self._fresh = True
        return self._last

    @property
    def probabilities(self) -> Tensor:
        """(n, C) probabilities, columns as in `classes`."""
        return self.propagation.probability

    @property
    def predictions(self) -> list[Label]:
        """The most probable label of every node; what was told, where something was told."""
        names = self.classes
        found: list[Label] = [names[c] for c in self.propagation.classes.tolist()]
        for index, label in self._answers.told.items():
            found[index] = label
        return found

    def accuracy(self) -> float | None:
        """The share of nodes without a label whose prediction is right; None where that is not known."""
        if self._truth is None or not self.ready or len(self._answers.told) == len(self._truth):
            return None
        found = self.predictions
        free = [i for i in range(len(found)) if i not in self._answers.told]
        return sum(found[i] == self._truth[i] for i in free) / len(free)

    def __repr__(self) -> str:
        told, pending = len(self._answers.told), len(self._answers.pending)
        return (
            f"ActiveLearner({self.graph.num_nodes} nodes, {told} labelled, {pending} pending, "
            f"{len(self.classes)} classes, {self.acquisition!r}, {self.selection!r})"
        )

    # The loop.

    def suggest(self, count: int = 1) -> list[Suggestion]:
        """The nodes to label next, the most wanted first. They count as asked for until told, skipped or released.

        Raises:
            ValueError: `count` < 1, or nothing is left to ask for.

        Fewer nodes, with a `FewerThanAskedWarning`, where fewer are left.
        """
        acquisition = self.acquisition if self.ready else self.cold_start
        propagation = self.propagation if self.ready else None
        value = None if propagation is None else propagation.probability
        seed = int(np.random.SeedSequence([self.seed, self._round]).generate_state(1, np.uint32)[0])
        labels = self._as_labels() if self._answers.told else None
        pending = torch.tensor(self._answers.pending, dtype=torch.int64)
        situation = Situation(self.graph, labels, value, pending, seed, self._priors)
        rest = sorted(set(range(self.graph.num_nodes)) - set(self._answers.skipped))
        allowed = torch.tensor(rest, dtype=torch.int64) if self._answers.skipped else None
        choice = choose(acquisition, situation, count, selection=self.selection, candidates=allowed)
        self._answers.pending.extend(choice.index.tolist())
        self._round += 1
        self._keep()
        return self._described(choice, acquisition, propagation)

    def tell(self, index: int | np.integer | Sequence[int] | Tensor | np.ndarray, labels: Any) -> None:
        """Take labels: one node and its label, or as many of each. A second label of a node replaces the first.

        Either all of them are taken or, where something is wrong with one, none. With `autosave` they are on disk when
        this returns.
        """
        names = as_labels(labels)
        if -1 in names or "" in names:
            raise ValueError(
                "-1 and '' mean that there is no label: use forget() to take one back, skip() where nobody can tell"
            )
        self._take(self._answers.nodes(index), names, {})

    def _take(self, nodes: list[int], names: list[Label], taken: Mapping[int, float]) -> None:
        self._answers.tell(nodes, names, taken, self._fixed)
        self._record(nodes, names)

    def _record(self, nodes: list[int], names: Sequence[Label | None]) -> None:
        """Write down what was just told or taken back."""
        self._fresh = False
        count = len(self._answers.told)
        entry: dict[str, Any] = {"index": nodes, "labels": list(names), "labelled": count, "accuracy": None}
        self._history.append(entry)
        self._keep()  # first of all: a solve may fail
        if self._truth is not None:
            entry["accuracy"] = self.accuracy()
            self._keep()

    def skip(self, index: int | np.integer | Sequence[int] | Tensor | np.ndarray) -> None:
        """Do not ask for these nodes again: nobody can tell. A later `tell` is welcome."""
        self._answers.skip(self._answers.nodes(index))
        self._keep()

    def forget(self, index: int | np.integer | Sequence[int] | Tensor | np.ndarray) -> None:
        """Take labels back, as after a slip of the hand: these nodes count as unlabelled, and may be asked for again.

        In `history` such an entry has None for labels.
        """
        nodes = self._answers.nodes(index)
        self._answers.forget(nodes)
        self._record(nodes, [None] * len(nodes))

    def release(self) -> None:
        """Take back what was asked for and not answered, so that it may be suggested again."""
        self._answers.pending = []
        self._keep()

    # On disk.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the session to a folder: `graph.safetensors` once, `state.json` every time."""
        write_session(Path(path), self.graph, self._node_mass, self._state())

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        autosave: bool = True,
        device: torch.device | str = "cpu",
        truth: Sequence[Any] | Tensor | np.ndarray | None = None,
        **replaced: Any,
    ) -> ActiveLearner:
        """Go on with a stored session. Nothing in the files is executed.

        Args:
            path: the folder.
            autosave: keep writing to it.
            device: where to put the graph.
            truth: as in the constructor; it is not stored.
            **replaced: `method`, `acquisition`, `selection`, `cold_start` or `solver` in place of the stored ones;
                needed where those were your own classes, or a solver that is not `Auto`.
        """
        folder = Path(path)
        state = read_state(folder / "state.json")
        graph, node_mass = read_graph(folder / "graph.safetensors", device)
        learner = cls(
            graph,
            classes=state["classes"],
            seed=state["seed"],
            truth=truth,
            warm_start=state["warm_start"],
            class_prior=state["class_prior"],
            unreached=state["unreached"],
            node_mass=node_mass,
            **objects_of(state["config"], graph, replaced),
        )
        if learner._fingerprint != state["graph"]:
            raise ValueError(f"graph.safetensors in {folder} is not the graph that the session was run on")
        try:
            learner._answers = Answers.from_state(graph.num_nodes, state)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{folder / 'state.json'} is damaged: {error}") from None
        learner._round, learner._history = state["round"], state["history"]
        learner._autosave = folder if autosave else None
        return learner

    # Inside.

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.graph)

    def _state(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "graph": self._fingerprint,
            "classes": self._fixed,
            "class_prior": self._prior,
            "unreached": self.unreached.value,
            "seed": self.seed,
            "warm_start": self.warm_start,
            "round": self._round,
            **self._answers.state(),
            "config": config_of(self.method, self.acquisition, self.selection, self.cold_start, self.solver),
            "history": self._history,
        }

    def _keep(self) -> None:
        if self._autosave is not None:
            self.save(self._autosave)

    def _as_labels(self) -> Labels:
        index, names = self.labels
        column = {c: i for i, c in enumerate(self.classes)}
        like = self.graph.weight
        value = torch.eye(len(column), dtype=like.dtype, device=like.device)[[column[c] for c in names]]
        return Labels(torch.tensor(index, device=like.device), value)

    def _label_weight(self) -> Tensor | None:
        """(m,) how much the labels count, in the order of `labels`; None where all count one."""
        index = self.labels[0]
        weight = [self._answers.taken.get(i, 1.0 if self._node_mass is None else self._node_mass[i]) for i in index]
        return None if all(w == 1 for w in weight) else self.graph.weight.new_tensor(weight)

    def _described(
        self, choice: Choice, acquisition: AbstractAcquisition, propagation: Propagation | None
    ) -> list[Suggestion]:
        reason, index, score = type(acquisition).__name__, choice.index.tolist(), choice.score.tolist()
        if propagation is None:
            return [Suggestion(i, s, None, None, reason) for i, s in zip(index, score, strict=True)]
        names, best = self.classes, propagation.probability[choice.index].max(1)
        rows = zip(index, score, best.indices.tolist(), best.values.tolist(), strict=True)
        return [Suggestion(i, s, names[c], p, reason) for i, s, c, p in rows]

    def _checked_mass(self, given: Any) -> list[float]:
        weight = torch.as_tensor(given, dtype=torch.float64)
        if weight.shape != (self.graph.num_nodes,) or not bool(((weight > 0) & torch.isfinite(weight)).all()):
            raise ValueError(
                f"node_mass must hold a finite number > 0 for each of {self.graph.num_nodes} nodes, got shape "
                f"{tuple(weight.shape)}"
            )
        return [float(w) for w in weight.tolist()]

    def _checked_truth(self, truth: Any) -> list[Label]:
        found = as_labels(truth)
        if len(found) != self.graph.num_nodes:
            raise ValueError(f"truth must have a label for each of {self.graph.num_nodes} nodes, got {len(found)}")
        return found
