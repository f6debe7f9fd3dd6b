"""The labelling loop: suggest, tell, suggest again, and stop whenever you like.

    suggest(count)          which nodes to label next, with what is predicted there
    tell(index, labels)     what they are; in any order, also of nodes that were not suggested; again to correct

What is suggested depends on what has been told and asked, and on the seed: not on the order of the tells, nor on
whether the session was stored and loaded in between. All that changes is a small JSON file, written to another name
and renamed after each step; the graph is written once, beside it.

The choice itself is made by `active.py`, predictions by a method of `methods.py`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import operator
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
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
from gll.graph import Graph, Topology
from gll.labels import Labels
from gll.methods import METHODS, AbstractMethod, Propagation, method_from_name
from gll.unreached import UnreachedWarning

FORMAT, VERSION = "gll labelling session", 1
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
        classes: the labels there are, all strings or all integers; any other label is then an error, which catches
            slips. By default the labels told so far.
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
    ) -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"expected a graph, such as gll.knn_graph makes from features, got {type(graph).__name__}")
        self.graph = graph.detach()
        self.method = method_from_name(method) if isinstance(method, str) else method
        self.acquisition = ModelChange() if acquisition is None else acquisition
        self.selection = selection
        self.cold_start = SigmaOpt() if cold_start is None else cold_start
        for name, given, kind in (
            ("method", self.method, AbstractMethod),
            ("acquisition", self.acquisition, AbstractAcquisition),
            ("selection", self.selection, AbstractSelection | None),
            ("cold_start", self.cold_start, AbstractAcquisition),
        ):
            if not isinstance(given, kind):
                raise TypeError(f"{name} must be an object of gll.active or gll.methods, got {given!r}")
        self.seed, self.warm_start = int(seed), bool(warm_start)
        self._fixed = None if classes is None else _distinct([_label(c) for c in classes])
        if self._fixed is not None and len(self._fixed) < 2:
            raise ValueError(f"there must be at least two classes, got {self._fixed}")
        self._truth = None if truth is None else self._checked_truth(truth)
        self._told: dict[int, Label] = {}
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
        """A loop on the stored graph of a fitted `GraphLearningClassifier`, with its method and its labels.

        A node is a distinct row of X; soft labels count as their most probable class. Hand the answers back with
        `classifier.update_labels(classifier.row_[index], labels)`, where `index, labels = learner.labels`.
        """
        for name in ("graph_", "labels_", "classes_", "row_"):
            if not hasattr(classifier, name):
                raise ValueError(f"{type(classifier).__name__} has no {name}: fit a GraphLearningClassifier first")
        method = classifier.method
        if isinstance(method, str):
            method = method_from_name(method, **(classifier.method_options or {}))
        learner = cls(classifier.graph_, **({"method": method} | options))
        known, labels = [_label(c) for c in classifier.classes_], classifier.labels_
        learner.tell(labels.index.tolist(), [known[c] for c in labels.value.argmax(1).tolist()])
        return learner

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
        """One entry per `tell`: the nodes, their labels, how many nodes are labelled, and the accuracy or None."""
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
                self._last = self.method.propagate(self.graph, labels, initial=start)
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

    def tell(self, index: int | Sequence[int] | Tensor | np.ndarray, labels: Any) -> None:
        """Take labels: one node and its label, or as many of each. A second label of a node replaces the first.

        Either all of them are taken or, where something is wrong with one, none. With `autosave` they are on disk when
        this returns.
        """
        nodes, names = self._nodes(index), _labels(labels)
        if len(nodes) != len(names):
            raise ValueError(f"{len(nodes)} nodes but {len(names)} labels")
        if self._fixed is not None and not set(names) <= set(self._fixed):
            raise ValueError(f"unknown label {next(c for c in names if c not in self._fixed)!r}; "
                             f"the classes are {self._fixed}")  # fmt: skip
        _distinct([*dict.fromkeys([*self._told.values(), *names])])  # one kind of label only
        self._told.update(zip(nodes, names, strict=True))
        self._pending = [i for i in self._pending if i not in self._told]
        self._skipped = [i for i in self._skipped if i not in self._told]
        self._fresh = False
        entry = {"index": nodes, "labels": names, "labelled": len(self._told), "accuracy": None}
        self._history.append(entry)
        self._keep()  # first of all: a solve may fail
        if self._truth is not None:
            entry["accuracy"] = self.accuracy()
            self._keep()

    def skip(self, index: int | Sequence[int] | Tensor | np.ndarray) -> None:
        """Do not ask for these nodes again: nobody can tell. A later `tell` is welcome."""
        nodes = self._nodes(index)
        labelled = [i for i in nodes if i in self._told]
        if labelled:
            raise ValueError(f"node {labelled[0]} is labelled; tell it again to correct it")
        self._skipped = list(dict.fromkeys([*self._skipped, *nodes]))
        self._pending = [i for i in self._pending if i not in self._skipped]
        self._keep()

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
        if state.exists() and _read_state(state)["graph"] != mark:
            raise FileExistsError(f"{folder} holds a session on another graph; choose another folder")
        if not state.exists() or not stored.exists():
            t = self.graph.topology
            tensors = {"i": t.i, "j": t.j, "weight": self.graph.weight}
            if self.graph.features is not None:
                tensors["features"] = self.graph.features
            data = safetensors.torch.save(
                {k: v.detach().cpu().contiguous() for k, v in tensors.items()},
                {"format": FORMAT, "nodes": str(self.graph.num_nodes)},
            )
            _write(stored, data)
        _write(state, (json.dumps(self._state(mark), indent=1) + "\n").encode())

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
            **replaced: `method`, `acquisition`, `selection` or `cold_start` in place of the stored ones; needed where
                those were your own classes.
        """
        folder = Path(path)
        state = _read_state(folder / "state.json")
        graph = _read_graph(folder / "graph.safetensors", device)
        makers: dict[str, Callable[..., Any]] = {
            "method": method_from_name,
            "acquisition": acquisition_from_name,
            "selection": selection_from_name,
            "cold_start": acquisition_from_name,
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
            graph, classes=state["classes"], seed=state["seed"], truth=truth, warm_start=state["warm_start"], **replaced
        )
        if learner._fingerprint != state["graph"]:
            raise ValueError(f"graph.safetensors in {folder} is not the graph that the session was run on")
        learner._told = {learner._nodes(i)[0]: _label(c) for i, c in zip(state["index"], state["labels"], strict=True)}
        learner._pending, learner._skipped = list(state["pending"]), list(state["skipped"])
        learner._round, learner._history = int(state["round"]), list(state["history"])
        learner._autosave = folder if autosave else None
        return learner

    # Inside.

    @cached_property
    def _fingerprint(self) -> str:
        t, digest = self.graph.topology, hashlib.sha256(str(self.graph.num_nodes).encode())
        for tensor in (t.i, t.j, self.graph.weight):
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def _state(self, mark: str) -> dict[str, Any]:
        index, labels = self.labels
        return {
            "format": FORMAT,
            "version": VERSION,
            "graph": mark,
            "classes": self._fixed,
            "seed": self.seed,
            "warm_start": self.warm_start,
            "round": self._round,
            "index": index,
            "labels": labels,
            "pending": self._pending,
            "skipped": self._skipped,
            "config": {
                "method": _method_config(self.method),
                "acquisition": as_config(self.acquisition),
                "selection": None if self.selection is None else as_config(self.selection),
                "cold_start": as_config(self.cold_start),
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
    try:
        return operator.index(value)
    except TypeError:
        hint = "; use skip() where nobody can tell" if value is None else ""
        raise TypeError(f"a label is a string or an integer, got {value!r}{hint}") from None


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


def _method_config(method: AbstractMethod) -> dict[str, Any]:
    names = [name for name, kind in METHODS.items() if kind is type(method)]
    changed: dict[str, Any] = {}
    for entry in dataclasses.fields(method):  # type: ignore[arg-type]
        value = getattr(method, entry.name)
        plain = isinstance(value, str | int | float | bool | None)
        if plain:
            changed[entry.name] = value
        elif entry.default_factory is dataclasses.MISSING or value != entry.default_factory():
            names = []  # an object that a name cannot make again
    return {"name": names[0], "options": changed} if names else {"name": None, "repr": repr(method)}


def _write(path: Path, data: bytes) -> None:
    """Under another name first, then renamed: a reader, and a crash, find the old file or the new one."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _read_state(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(f"there is no stored session in {path.parent}: {path.name} is missing")
    try:
        state = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged or no stored session: {error}") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{path} is not a stored session of this library")
    if state.get("version") != VERSION:
        raise ValueError(f"{path} has version {state.get('version')}, this library reads version {VERSION}")
    return state


def _read_graph(path: Path, device: torch.device | str) -> Graph:
    try:
        with safetensors.safe_open(path, "pt") as file:
            nodes = int(file.metadata()["nodes"])
            tensors = {name: file.get_tensor(name).to(device) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, FileNotFoundError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is missing, damaged or no stored graph: {error}") from None
    return Graph(Topology(nodes, tensors["i"], tensors["j"]), tensors["weight"], tensors.get("features"))
