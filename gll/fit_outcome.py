"""What `gll fit` has found, in numbers: classes, graph, the points to label next, and how it came about.

`summary.py` prints it, `report.py` makes a page of it.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import gll
from gll.active import LocalMax, Margin, Situation, choose
from gll.estimator import GraphLearningClassifier
from gll.feature_files import Features
from gll.fit_request import Request
from gll.label_files import GivenLabels

SUGGESTIONS = 10
FORMAT = "gll.fit"
VERSION = 1


@dataclass(frozen=True)
class ClassSummary:
    """One class: how many labels were given, how many points are predicted, and how sure (the mean largest probability
    of the points without a label that are predicted so; NaN where there are none)."""

    name: str
    given: int
    predicted: int
    confidence: float


@dataclass(frozen=True)
class GraphSummary:
    """The graph in numbers; a node is a distinct row."""

    points: int
    nodes: int
    edges: int
    components: int
    largest: int
    unlabelled_components: int
    neighbors: dict[int, int]  # number of neighbours -> number of nodes
    unreached: int
    recall: float
    exact: bool


@dataclass(frozen=True)
class Uncertain:
    """A point whose label would help: its row, its name, and the two most probable classes."""

    row: int
    name: str
    first: str
    first_probability: float
    second: str
    second_probability: float
    entropy: float
    unreached: bool

    @property
    def margin(self) -> float:
        """How far the first class is ahead."""
        return self.first_probability - self.second_probability


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that `gll fit` has found.

    Args:
        request: what was asked for.
        features, labels: what was read.
        model: the fitted classifier.
        unreached: (n,) rows that no label reaches.
        classes, graph, uncertain: the summary.
        notes: what the user should know: warnings, in plain sentences.
        inputs: SHA-256 of the files that were read.
    """

    request: Request
    features: Features
    labels: GivenLabels
    model: GraphLearningClassifier
    unreached: NDArray[np.bool_]
    classes: list[ClassSummary]
    graph: GraphSummary
    uncertain: list[Uncertain]
    notes: list[str]
    inputs: dict[str, str] = field(default_factory=dict)

    def about(self) -> dict[str, Any]:
        """How the result came about, as plain values."""
        r, m = self.request, self.model
        names = ("method", "neighbors", "metric", "calibrate", "unreached", "device", "seed", "key")
        versions = {"gll": gll.__version__, "torch": torch.__version__, "numpy": np.__version__}
        return {
            "format": FORMAT,
            "version": VERSION,
            "description": m.description_,
            "command": r.command(),
            "parameters": {name: getattr(r, name) for name in names} | {"class_prior": m.class_prior},
            "temperature": m.temperature_,
            "iterations": int(m.n_iter_),
            "graph": asdict(self.graph),
            "seconds": {name: round(seconds, 4) for name, seconds in m.timings_.items()},
            "notes": self.notes,
            "sha256": self.inputs,
            "versions": versions | {"python": platform.python_version()},
        }


def summarise(
    request: Request,
    features: Features,
    labels: GivenLabels,
    model: GraphLearningClassifier,
    notes: list[str],
    inputs: dict[str, str],
) -> Outcome:
    """What one wants to know about a fitted classifier."""
    lost = model._fitted.propagation.unreached
    at_node = np.zeros(len(model.row_), np.bool_) if lost is None else lost.cpu().numpy()
    unreached = at_node[model.node_]
    code = model.label_distributions_.argmax(1)
    confidence = model.label_distributions_.max(1)
    free = ~labels.known
    classes = []
    for c, name in enumerate(model.classes_.tolist()):
        mine = free & (code == c)
        given = int((labels.y[labels.known] == name).sum())
        sure = float(confidence[mine].mean()) if mine.any() else float("nan")
        classes.append(ClassSummary(str(name), given, int((code == c).sum()), sure))
    graph = _graph_summary(model, at_node, int(unreached.sum()))
    if graph.unreached:
        told = (
            f"{graph.unreached:,} points are not reached by any label, and got the answer of --unreached "
            f"{request.unreached}: label one point in each of the {graph.unlabelled_components:,} components without a "
            "label, or raise --neighbors"
        )
        notes = [*notes, told]
    return Outcome(
        request,
        features,
        labels,
        model,
        unreached,
        classes,
        graph,
        most_uncertain(model, features, labels, unreached),
        notes,
        inputs,
    )


def most_uncertain(
    model: GraphLearningClassifier, features: Features, labels: GivenLabels, unreached: NDArray[np.bool_]
) -> list[Uncertain]:
    """The points to label next: small margins, no two of them neighbours (`gll.active.LocalMax`).

    Of a component that no label reaches, one point will do: the one with the largest degree stands for it.
    """
    graph = model.graph_.detach()
    labelled = np.zeros(graph.num_nodes, np.bool_)
    labelled[model.node_[labels.known]] = True
    wanted = ~unreached[model.row_] & ~labelled
    component, degree = graph.components.cpu().numpy(), graph.degree.cpu().numpy()
    outside = np.flatnonzero(unreached[model.row_])
    order = outside[np.lexsort((-degree[outside], component[outside]))]
    wanted[order[np.unique(component[order], return_index=True)[1]]] = True
    candidates = np.flatnonzero(wanted)
    if len(candidates) == 0:
        return []
    value = torch.from_numpy(model.label_distributions_[model.row_]).to(graph.weight.device)
    situation = Situation(graph, model.labels_, value)
    device = graph.weight.device
    chosen = choose(
        Margin(),
        situation,
        min(SUGGESTIONS, len(candidates)),
        selection=LocalMax(),
        candidates=torch.from_numpy(candidates).to(device),
    )
    found = []
    for row in model.row_[chosen.index.cpu().numpy()].tolist():
        p = model.label_distributions_[row]
        first = int(p.argmax())
        second = int(np.where(np.arange(len(p)) == first, -1, p).argmax())
        found.append(
            Uncertain(
                row,
                features.name(row),
                str(model.classes_[first]),
                float(p[first]),
                str(model.classes_[second]),
                float(p[second]),
                float(model.entropy_[row]),
                bool(unreached[row]),
            )
        )
    return found


def _graph_summary(model: GraphLearningClassifier, lost: NDArray[np.bool_], unreached: int) -> GraphSummary:
    graph = model.graph_.detach()
    size = torch.bincount(graph.components)
    joined = graph.weight > 0
    ends = torch.cat([graph.topology.i[joined], graph.topology.j[joined]])
    number, count = torch.unique(torch.bincount(ends, minlength=graph.num_nodes), return_counts=True)
    return GraphSummary(
        points=len(model.node_),
        nodes=graph.num_nodes,
        edges=int(joined.sum()),
        components=len(size),
        largest=int(size.max()),
        unlabelled_components=len(torch.unique(graph.components.cpu()[torch.from_numpy(lost)])),
        neighbors=dict(zip(number.tolist(), count.tolist(), strict=True)),
        unreached=unreached,
        recall=float(model.recall_),
        exact="recall" not in model.timings_,
    )


def result_arrays(outcome: Outcome) -> dict[str, NDArray[Any]]:
    """The arrays of RESULT.npz; none needs pickles."""
    m = outcome.model
    classes = np.array(m.classes_.tolist()) if m.classes_.dtype.kind == "O" else m.classes_
    arrays = {
        "predictions": classes[m.label_distributions_.argmax(1)],
        "probabilities": m.label_distributions_,
        "classes": classes,
        "entropy": m.entropy_,
        "margin": m.margin_,
        "labelled": outcome.labels.known,
        "unreached": outcome.unreached,
        "about": np.array(json.dumps(outcome.about())),
    }
    return arrays | ({} if outcome.features.ids is None else {"ids": outcome.features.ids})


def shown(text: str, most: int = 60) -> str:
    """A label as it may be shown: no control characters, no hidden ones, and not endless.

    >>> shown("cat" + chr(27) + "[2J")
    'cat�[2J'
    """
    clean = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"
