"""The labelling loop: suggest, tell, suggest again, and stop whenever you like.

    suggest(count)          which nodes to label next, with what is predicted there
    tell(index, labels)     what they are; in any order, also of nodes that were not suggested; again to correct

What is suggested depends on what has been told and asked, and on the seed: not on the order of the tells, nor on
whether the session was stored and loaded in between. All that changes is a small JSON file, written to another name
and renamed after each step; the graph is written once, beside it.

The choice itself is made by `active.py`, predictions by a method of `methods.py`.
"""

from __future__ import annotations

import json
import operator
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from gll.active import (
    AbstractAcquisition,
    AbstractSelection,
    Choice,
    ModelChange,
    SigmaOpt,
    Situation,
    acquisition_from_name,
    as_config,
    choose,
    selection_from_name,
)
from gll.field import Covariance, GaussianField
from gll.files import complete_file
from gll.graph import Graph
from gll.labels import Labels
from gll.methods import AbstractMethod, Propagation, method_from_name
from gll.parameters import prior_of
from gll.propagation import ClassPriorWarning, Solver
from gll.sessions import FORMAT, VERSION, fingerprint, method_config, read_graph, read_state, solver_config, solver_on
from gll.unreached import Unreached, UnreachedWarning

Label = str | int


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
            class.
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
        self._fixed = None if classes is None else _distinct([_label(c) for c in classes])
        if self._fixed is not None and len(self._fixed) < 2:
            raise ValueError(f"there must be at least two classes, got {self._fixed}")
        self._prior = None if class_prior is None else _checked_prior(class_prior, self._fixed)
        self._node_mass = None if node_mass is None else self._checked_mass(node_mass)
        self._truth = None if truth is None else self._checked_truth(truth)
        self._told: dict[int, Label] = {}
        self._taken: dict[int, float] = {}  # nodes whose labels are a classifier's own still, and what they count
        self._forgotten: set[int] = set()  # nodes whose labels were taken back, for `hand_back`
        self._pending: list[int] = []
        self._skipped: list[int] = []
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
        _check_fitted(classifier)
        graph, labels, fitted = classifier.graph_, classifier.labels_, classifier._fitted
        known, (_, strength) = [_label(c) for c in classifier.classes_], fitted.labels()
        prior = prior_of(classifier.class_prior, classifier.classes_, graph.weight.device)
        inside = fitted.node >= 0
        mass = np.bincount(fitted.node[inside], fitted.weight[inside], minlength=graph.num_nodes)
        taken_over: dict[str, Any] = {
            "method": fitted.method,
            "solver": classifier._solver(fitted.multilevel),
            "unreached": classifier.unreached,
            "node_mass": None if (mass == 1).all() else mass,
        }
        if prior is not None:
            taken_over |= {"classes": known, "class_prior": prior.tolist()}
        learner = cls(graph, **(taken_over | options))
        nodes = labels.index.tolist()
        weight = [1.0] * len(nodes) if strength is None else strength.tolist()
        names = [known[c] for c in labels.value.argmax(1).tolist()]
        learner._take(nodes, names, dict(zip(nodes, weight, strict=True)))
        return learner

    def hand_back(self, classifier: Any) -> Any:
        """Give the labels told here to the classifier that this loop was made from, and return it.

        Every row of X that is a copy of a told node gets the label, so that no older one stays on another copy; copies
        of a forgotten node lose theirs. Labels that were taken over and not told anew stay as they are. The classifier
        solves again, on its stored graph.
        """
        _check_fitted(classifier)
        if fingerprint(classifier.graph_.detach()) != self._fingerprint:
            raise ValueError("this classifier is fitted on another graph than the one that the loop runs on")
        own = {_label(c): plain for c, plain in zip(classifier.classes_, classifier.classes_.tolist(), strict=True)}
        told = {i: c for i, c in self._told.items() if i not in self._taken}
        for label in ("-1", "nan", -1):
            if label in told.values() and label not in own:
                raise ValueError(f"the label {label!r} means 'unlabelled' to the classifier; tell those nodes anew")
        rows = np.flatnonzero(np.isin(classifier.node_, [*told, *self._forgotten]))
        if len(rows):
            names = [own.get(told[i], told[i]) if i in told else None for i in classifier.node_[rows].tolist()]
            classifier.update_labels(rows, np.array(names, dtype=object))
        return classifier

    # What is known.

    @property
    def labels(self) -> tuple[list[int], list[Label]]:
        """The labelled nodes in ascending order, and their labels."""
        index = sorted(self._told)
        return index, [self._told[i] for i in index]

    @property
    def pending(self) -> list[int]:
        """The nodes that were suggested and are neither labelled nor skipped yet, in the order of asking."""
        return list(self._pending)

    @property
    def skipped(self) -> list[int]:
        """The nodes that are not to be asked for."""
        return sorted(self._skipped)

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per `tell` or `forget`: nodes, labels, how many nodes are labelled, and the accuracy or None."""
        return [dict(entry) for entry in self._history]

    @property
    def classes(self) -> list[Label]:
        """The classes, in the order of the columns of `probabilities`."""
        return sorted(set(self._told.values())) if self._fixed is None else list(self._fixed)

    @property
    def ready(self) -> bool:
        """Whether two classes are known, so that there are predictions."""
        return len(set(self._told.values())) >= 2

    @property
    def propagation(self) -> Propagation:
        """What the method says about every node; an error before two classes are known."""
        if not self.ready:
            raise ValueError(
                f"there are no predictions yet: labels of two classes are needed, {len(set(self._told.values()))} known"
            )
        if not self._fresh or self._last is None:
            labels = self._as_labels()
            start = self._last.score if self.warm_start and self._last is not None else None
            if start is not None and start.shape[1] != labels.num_classes:
                start = None
            with warnings.catch_warnings():  # they are asked for first, and counted in `propagation.unreached`
                warnings.simplefilter("ignore", UnreachedWarning)
                if len(set(self._told.values())) < labels.num_classes:  # the shares cannot be met yet
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
        for index, label in self._told.items():
            found[index] = label
        return found

    def accuracy(self) -> float | None:
        """The share of nodes without a label whose prediction is right; None where that is not known."""
        if self._truth is None or not self.ready or len(self._told) == len(self._truth):
            return None
        found = self.predictions
        free = [i for i in range(len(found)) if i not in self._told]
        return sum(found[i] == self._truth[i] for i in free) / len(free)

    def __repr__(self) -> str:
        return (
            f"ActiveLearner({self.graph.num_nodes} nodes, {len(self._told)} labelled, {len(self._pending)} pending, "
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
        labels = self._as_labels() if self._told else None
        pending = torch.tensor(self._pending, dtype=torch.int64)
        situation = Situation(self.graph, labels, value, pending, seed, self._priors)
        allowed = None
        if self._skipped:
            allowed = torch.tensor(sorted(set(range(self.graph.num_nodes)) - set(self._skipped)), dtype=torch.int64)
        choice = choose(acquisition, situation, count, selection=self.selection, candidates=allowed)
        self._pending.extend(choice.index.tolist())
        self._round += 1
        self._keep()
        return self._described(choice, acquisition, propagation)

    def tell(self, index: int | np.integer | Sequence[int] | Tensor | np.ndarray, labels: Any) -> None:
        """Take labels: one node and its label, or as many of each. A second label of a node replaces the first.

        Either all of them are taken or, where something is wrong with one, none. With `autosave` they are on disk when
        this returns.
        """
        names = _labels(labels)
        if -1 in names or "" in names:
            raise ValueError(
                "-1 and '' mean that there is no label: use forget() to take one back, skip() where nobody can tell"
            )
        self._take(self._nodes(index), names, {})

    def _take(self, nodes: list[int], names: list[Label], taken: dict[int, float]) -> None:
        """Labels of a person, or `taken` from a classifier with what they count there."""
        if len(nodes) != len(names):
            raise ValueError(f"{len(nodes)} nodes but {len(names)} labels")
        if self._fixed is not None and not set(names) <= set(self._fixed):
            raise ValueError(f"unknown label {next(c for c in names if c not in self._fixed)!r}; "
                             f"the classes are {self._fixed}")  # fmt: skip
        _distinct([*dict.fromkeys([*self._told.values(), *names])])  # one kind of label only
        self._told.update(zip(nodes, names, strict=True))
        self._taken = {i: w for i, w in self._taken.items() if i not in set(nodes)} | taken
        self._forgotten -= set(nodes)
        self._pending = [i for i in self._pending if i not in self._told]
        self._skipped = [i for i in self._skipped if i not in self._told]
        self._record(nodes, names)

    def _record(self, nodes: list[int], names: Sequence[Label | None]) -> None:
        """Write down what was just told or taken back."""
        self._fresh = False
        entry: dict[str, Any] = {"index": nodes, "labels": list(names), "labelled": len(self._told), "accuracy": None}
        self._history.append(entry)
        self._keep()  # first of all: a solve may fail
        if self._truth is not None:
            entry["accuracy"] = self.accuracy()
            self._keep()

    def skip(self, index: int | np.integer | Sequence[int] | Tensor | np.ndarray) -> None:
        """Do not ask for these nodes again: nobody can tell. A later `tell` is welcome."""
        nodes = self._nodes(index)
        labelled = [i for i in nodes if i in self._told]
        if labelled:
            raise ValueError(f"node {labelled[0]} is labelled; tell it again to correct it, or forget it first")
        self._skipped = list(dict.fromkeys([*self._skipped, *nodes]))
        self._pending = [i for i in self._pending if i not in self._skipped]
        self._keep()

    def forget(self, index: int | np.integer | Sequence[int] | Tensor | np.ndarray) -> None:
        """Take labels back, as after a slip of the hand: these nodes count as unlabelled, and may be asked for again.

        In `history` such an entry has None for labels.
        """
        nodes = self._nodes(index)
        bare = [i for i in nodes if i not in self._told]
        if bare:
            raise ValueError(f"node {bare[0]} has no label that could be taken back")
        self._told = {i: c for i, c in self._told.items() if i not in set(nodes)}
        self._taken = {i: w for i, w in self._taken.items() if i not in set(nodes)}
        self._forgotten |= set(nodes)
        self._record(nodes, [None] * len(nodes))

    def release(self) -> None:
        """Take back what was asked for and not answered, so that it may be suggested again."""
        self._pending = []
        self._keep()

    # On disk.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the session to a folder: `graph.safetensors` once, `state.json` every time."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        stored, state = folder / "graph.safetensors", folder / "state.json"
        mark = self._fingerprint
        if state.exists() and read_state(state)["graph"] != mark:
            raise FileExistsError(f"{folder} holds a session on another graph; choose another folder")
        if not state.exists() or not stored.exists():
            t = self.graph.topology
            tensors = {"i": t.i, "j": t.j, "weight": self.graph.weight}
            if self.graph.features is not None:
                tensors["features"] = self.graph.features
            if self._node_mass is not None:
                tensors["node_mass"] = torch.tensor(self._node_mass, dtype=torch.float64)
            data = safetensors.torch.save(
                {k: v.detach().cpu().contiguous() for k, v in tensors.items()},
                {"format": FORMAT, "nodes": str(self.graph.num_nodes)},
            )
            with complete_file(stored) as file:
                file.write_bytes(data)
        with complete_file(state) as file:
            file.write_text(json.dumps(self._state(mark), indent=1) + "\n", encoding="utf-8")

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
        makers: dict[str, Callable[..., Any]] = {
            "method": method_from_name,
            "acquisition": acquisition_from_name,
            "selection": selection_from_name,
            "cold_start": acquisition_from_name,
            "solver": solver_on(graph),
        }
        unknown = sorted(set(replaced) - set(makers))
        if unknown:
            raise ValueError(f"load cannot replace {', '.join(unknown)}; only {', '.join(makers)}")
        for name, maker in makers.items():
            config = state["config"][name]
            if name in replaced or config is None:
                continue
            if config["name"] is None:
                raise ValueError(f"the session used {config['repr']} as its {name}: pass {name}= to load")
            replaced[name] = maker(config["name"], **config["options"])
        learner = cls(
            graph,
            classes=state["classes"],
            seed=state["seed"],
            truth=truth,
            warm_start=state["warm_start"],
            class_prior=state["class_prior"],
            unreached=state["unreached"],
            node_mass=node_mass,
            **replaced,
        )
        if learner._fingerprint != state["graph"]:
            raise ValueError(f"graph.safetensors in {folder} is not the graph that the session was run on")
        try:
            nodes = learner._nodes(state["index"])
            learner._told = dict(zip(nodes, [_label(c) for c in state["labels"]], strict=True))
            learner._taken = {learner._nodes(i)[0]: float(weight) for i, weight in state["taken"]}
            learner._forgotten = set(learner._nodes(state["forgotten"]))
            learner._pending, learner._skipped = learner._nodes(state["pending"]), learner._nodes(state["skipped"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{folder / 'state.json'} is damaged: {error}") from None
        learner._round, learner._history = state["round"], state["history"]
        learner._autosave = folder if autosave else None
        return learner

    # Inside.

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self.graph)

    def _state(self, mark: str) -> dict[str, Any]:
        index, labels = self.labels
        return {
            "format": FORMAT,
            "version": VERSION,
            "graph": mark,
            "classes": self._fixed,
            "class_prior": self._prior,
            "unreached": self.unreached.value,
            "seed": self.seed,
            "warm_start": self.warm_start,
            "round": self._round,
            "index": index,
            "labels": labels,
            "taken": [[i, self._taken[i]] for i in sorted(self._taken)],
            "forgotten": sorted(self._forgotten),
            "pending": self._pending,
            "skipped": self._skipped,
            "config": {
                "method": method_config(self.method),
                "acquisition": as_config(self.acquisition),
                "selection": None if self.selection is None else as_config(self.selection),
                "cold_start": as_config(self.cold_start),
                "solver": None if self.solver is None else solver_config(self.solver),
            },
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
        weight = [self._taken.get(i, 1.0 if self._node_mass is None else self._node_mass[i]) for i in index]
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

    def _nodes(self, index: Any) -> list[int]:
        if isinstance(index, Tensor | np.ndarray):
            index = index.tolist()
        many = list(index) if isinstance(index, Sequence) else [index]
        n, nodes = self.graph.num_nodes, []
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

    def _checked_mass(self, given: Any) -> list[float]:
        weight = torch.as_tensor(given, dtype=torch.float64)
        if weight.shape != (self.graph.num_nodes,) or not bool(((weight > 0) & torch.isfinite(weight)).all()):
            raise ValueError(
                f"node_mass must hold a finite number > 0 for each of {self.graph.num_nodes} nodes, got shape "
                f"{tuple(weight.shape)}"
            )
        return [float(w) for w in weight.tolist()]

    def _checked_truth(self, truth: Any) -> list[Label]:
        found = _labels(truth)
        if len(found) != self.graph.num_nodes:
            raise ValueError(f"truth must have a label for each of {self.graph.num_nodes} nodes, got {len(found)}")
        return found


def _label(value: Any) -> Label:
    """A label as JSON knows it."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        hint = "; use skip() where nobody can tell, forget() to take a label back" if value is None else ""
        raise TypeError(f"a label is a string or a whole number, got {value!r}{hint}") from None


def _labels(given: Any) -> list[Label]:
    if isinstance(given, Tensor | np.ndarray):
        given = given.tolist()
    return [_label(c) for c in given] if isinstance(given, Sequence) and not isinstance(given, str) else [_label(given)]


def _distinct(classes: list[Label]) -> list[Label]:
    if len(set(classes)) != len(classes):
        raise ValueError(f"a class appears twice in {classes}")
    if len({type(c) for c in classes}) > 1:
        raise TypeError(f"labels must be all strings or all integers, got {classes}")
    return classes


def _checked_prior(prior: Any, classes: list[Label] | None) -> list[float]:
    """The shares in the order of the classes."""
    if classes is None:
        raise ValueError("class_prior needs classes=, or to be a dictionary that names them")
    if isinstance(prior, Mapping):
        by_label = {_label(c): share for c, share in prior.items()}
        if set(by_label) != set(classes):
            raise ValueError(f"class_prior must name every class once: the classes are {classes}, got {list(by_label)}")
        prior = [by_label[c] for c in classes]
    found = [float(share) for share in prior]
    if len(found) != len(classes):
        raise ValueError(f"class_prior needs one number for each of {len(classes)} classes, got {len(found)}")
    if not (all(share >= 0 for share in found) and abs(sum(found) - 1) <= 1e-3):  # written so that a NaN fails
        raise ValueError(f"class_prior must be ≥ 0 and sum to one, got {found}")
    return found


def _check_fitted(classifier: Any) -> None:
    for name in ("graph_", "labels_", "classes_", "row_", "node_"):
        if not hasattr(classifier, name):
            raise ValueError(f"{type(classifier).__name__} has no {name}: fit a GraphLearningClassifier first")
