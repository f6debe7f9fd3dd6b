"""What `gll fit` does: files in, a fitted classifier, its summary, and files out.

Everything is checked before the work begins, and written after all of it is done: files appear complete, all of them
or none. Read `feature_files.py` and `label_files.py` for what the input may be, and `report.py` for the page.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import gll
from gll.active import LocalMax, Margin, Situation, choose
from gll.estimator import PRECOMPUTED, GraphLearningClassifier
from gll.feature_files import Features, read_features
from gll.files import complete_file
from gll.input_files import InputError
from gll.label_files import GivenLabels, labels_inside, read_labels
from gll.methods import METHODS
from gll.prior_option import read_prior
from gll.solution import SolveError
from gll.unreached import UnreachedWarning

SUGGESTIONS = 10
FORMAT = "gll.fit"
VERSION = 1


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line.

    Args:
        features: file of the points.
        labels: file of the labels; None for an array in the same file.
        key: name of the array of features.
        out, report, save: files to write: the result, a page, the fitted classifier; None for none.
        force: replace files that exist.
        verbose: tell the stages on standard error.
        method, neighbors, metric, class_prior, calibrate, unreached, device, seed: as in `GraphLearningClassifier`.
    """

    features: Path
    labels: Path | None = None
    key: str | None = None
    out: Path | None = None
    report: Path | None = None
    save: Path | None = None
    force: bool = False
    verbose: bool = False
    method: str = "auto"
    neighbors: int = 10
    metric: str = "euclidean"
    class_prior: str | None = None
    calibrate: bool = False
    unreached: str = "uniform"
    device: str = "cpu"
    seed: int = 0

    def command(self) -> str:
        """The command that asks for this, with what differs from the defaults.

        >>> Request(Path("x.npz"), Path("my labels.csv"), neighbors=15, calibrate=True).command()
        "gll fit x.npz --labels 'my labels.csv' --neighbors 15 --calibrate"
        """
        words = ["gll", "fit", str(self.features)]
        default = Request(self.features)
        for name, value in vars(self).items():
            if name in ("features", "force", "verbose") or value == getattr(default, name):
                continue
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
        return shlex.join(words)


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


def check_outputs(request: Request) -> None:
    """Raise where a file cannot be written, before any work is done for it."""
    inputs = {path.resolve() for path in (request.features, request.labels) if path is not None}
    taken: set[Path] = set()
    for option in ("out", "report", "save"):
        path: Path | None = getattr(request, option)
        if path is None:
            continue
        place = path.resolve()
        if place in inputs:
            raise InputError(f"--{option} {path} is also read from: choose another name")
        if place in taken:
            raise InputError(f"--{option} {path} is the name of another output: choose another name")
        taken.add(place)
        if path.is_dir():
            raise InputError(f"--{option} {path} is a folder: give the name of a file")
        if not path.parent.is_dir():
            raise InputError(f"--{option} {path}: the folder {path.parent} does not exist")
        if not os.access(path.parent, os.W_OK):
            raise InputError(f"--{option} {path}: files cannot be written to the folder {path.parent}")
        if path.exists() and not request.force:
            raise InputError(f"--{option} {path} exists: add --force to replace it, or choose another name")


def fit(request: Request, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Read the files and fit the classifier; writes nothing.

    Args:
        request: what is asked for.
        tell: called with what was understood, as it becomes known.

    Raises:
        InputError: something about the input is wrong; the message says what.
    """
    _check_options(request)
    check_outputs(request)
    features = read_features(request.features, request.key)
    tell(f"{request.features.name}: {features}")
    label_file = request.labels
    if label_file is None:
        if not labels_inside(features):
            raise InputError(f"there are no labels: {features.path} has no array of labels, and --labels names no file")
        label_file = request.features
    labels = read_labels(label_file, features)
    tell(f"{label_file.name}: {labels}")
    if request.metric != PRECOMPUTED and request.neighbors >= len(features):
        raise InputError(
            f"--neighbors {request.neighbors} needs more than {request.neighbors} points, but there are "
            f"{len(features)}: use at most {len(features) - 1}"
        )
    prior = None if request.class_prior is None else read_prior(request.class_prior, labels.classes)
    model = GraphLearningClassifier(
        request.method,
        n_neighbors=request.neighbors,
        metric=request.metric,
        class_prior=prior,
        unreached=request.unreached,
        calibrate=request.calibrate,
        device=request.device,
        random_state=request.seed,
        verbose=int(request.verbose),
    )
    notes = list(labels.notes)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            model.fit(features.value, labels.y)
        except (SolveError, torch.OutOfMemoryError, MemoryError) as error:
            raise InputError(_told(error)) from error
        except ValueError as error:
            raise InputError(str(error)) from error
    kinds = [w for w in heard if issubclass(w.category, UserWarning) and not issubclass(w.category, UnreachedWarning)]
    notes += dict.fromkeys(str(w.message) for w in kinds)
    return summarise(
        request, features, labels, model, notes, {str(p): _sha256(p) for p in (request.features, label_file)}
    )


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


def write(outcome: Outcome) -> list[Path]:
    """Write the files that were asked for, all of them or none, and return their names."""
    r = outcome.request
    check_outputs(r)  # again: something may have appeared there meanwhile
    with ExitStack() as files:
        # Every file is complete under its temporary name before the first of them gets its own.
        if r.out is not None:
            with files.enter_context(complete_file(r.out)).open("wb") as file:
                np.savez(file, **result_arrays(outcome))  # type: ignore[arg-type]  # NumPy's stub mixes names and options
        if r.report is not None:
            from gll.report import page

            files.enter_context(complete_file(r.report)).write_text(page(outcome), encoding="utf-8")
        if r.save is not None:
            outcome.model.save(files.enter_context(complete_file(r.save)))
    return [path for path in (r.out, r.report, r.save) if path is not None]


def _check_options(request: Request) -> None:
    if request.method not in METHODS:
        raise InputError(f"--method {request.method} is not known; choose one of {', '.join(METHODS)}")
    try:
        torch.empty(1, device=request.device)
    except (RuntimeError, AssertionError, ValueError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"--device {request.device} cannot be used: {said}") from None


def _told(error: BaseException) -> str:
    if isinstance(error, SolveError):
        return f"the solve failed: {error}"
    return "there is not enough memory for this; use fewer points or dimensions (a PCA before), or fewer neighbours"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def shown(text: str, most: int = 60) -> str:
    """A label as it may be shown: no control characters, no hidden ones, and not endless.

    >>> shown("cat" + chr(27) + "[2J")
    'cat�[2J'
    """
    clean = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"
