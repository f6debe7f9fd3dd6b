"""GraphLearningClassifier: features and a few labels in, a class for every point out, with scikit-learn's interface.

`fit` builds a k-nearest-neighbour graph of all points, labelled or not, and a method (`methods.py`) spreads the labels
over it. New points are joined to the graph without solving again (`extend.py`). The graph is kept: `update_labels`
solves again on it, from where the last solve ended.

A node of the graph is a *distinct* row of X. Copies of a row are one node that counts for as many, so that more copies
than neighbours do not cut themselves off, and `sample_weight=2` is the same as giving a row twice. A row of weight zero
takes no part, and is answered as a new point is.

Nothing is stored on the classifier before everything is computed: a fit that fails or is interrupted leaves it as it
was.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import sklearn
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_random_state
from torch import Tensor

from gll.calibration import fit_temperature, hold_out
from gll.distinct import distinct_rows, distinct_sparse_rows, same_direction, same_sparse_direction
from gll.features import Metric
from gll.fitted import Fitted, Stages, Task, find_device, groups_of, node_labels
from gll.graph import Graph
from gll.labels import Labels
from gll.methods import AbstractMethod, Propagation, method_from_name
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.points import (
    AbstractPoints,
    DensePoints,
    KnownSimilarities,
    Recorded,
    SparsePoints,
    check_similarities,
    direction_tolerance,
)
from gll.projected import AutoSearch, Projected, progress_bar, recall
from gll.propagation import ClassPriorWarning
from gll.solvers.auto import Auto
from gll.solvers.base import AbstractLinearSolver
from gll.solvers.multilevel import Multilevel
from gll.solvers.newton import Newton
from gll.sparse import canonical, prepared
from gll.targets import Targets, read_column
from gll.unreached import Unreached, UnreachedWarning

PRECOMPUTED = "precomputed"
DENSE_BYTES = 2**30  # sparse features are made dense up to this size
FOLDS = 5  # of the labels, for the temperature
RTOL = 1e-5  # of the solves, where no solver is given: far below what a class or a probability depends on


class GraphLearningClassifier(ClassifierMixin, BaseEstimator):
    """Classifies points by spreading a few labels over a graph of all points.

    Args:
        method: how labels are spread: "auto", "laplace", "soft", "plaplace", "poisson", "poisson-mbo", "volume-mbo",
            "wnll", "poisson-reweighted", "properly-weighted", "nearest", or a method object of `gll.methods`.
        n_neighbors: neighbours of every point; reduced, with a warning, where there are not as many other points.
        metric: "euclidean", "cosine", or "precomputed": X is then a matrix of similarities, best a sparse one.
        method_options: options of the method, such as `{"tau": 0.01}`.
        class_prior: wanted shares of the classes among the predictions: one number per class in the order of
            `classes_`, or a dictionary; None for no correction. Rows are counted (by their weights), copies too. A
            warning says what was reached where that is not the wanted.
        unreached: what points get that no label reaches: "uniform", "nearest" or "raise".
        calibrate: fit a temperature on held-out labels, so that probabilities mean what they say.
        search: how neighbours are found: "auto", "exact", or an object such as `gll.Faiss()`.
        solver: how equations are solved, such as `gll.solvers.ConjugateGradient(rtol=1e-4)`; None to choose.
        device: "cpu", "cuda", ...; None for the CPU, or where a tensor X already is.
        random_state: seed of what is drawn: the folds of the calibration, and the sample that recall is measured on.
        verbose: 1 tells the stages of a fit as they pass, on standard error.

    Attributes:
        classes_: (C,) the classes, sorted.
        transduction_: (n,) class of every row of X.
        label_distributions_: (n, C) probabilities of every row of X.
        entropy_, margin_: (n,) uncertainty of every row: entropy in nats, and the lead of the best class over the next.
        n_iter_: iterations of the solver.
        n_unreached_: number of rows that no label reaches.
        recall_: share of true neighbours that the search found, on a sample; 1.0 for an exact search.
        temperature_: of the probabilities; 1.0 unless `calibrate`.
        description_: what ran, and why.
        timings_: seconds of the stages.
        graph_, labels_: the graph and the labels on it, as `gll` objects. A node is a distinct row of X.
        node_, row_: node of every row (-1 for a row of weight zero), and first row of every node.
        n_features_in_, feature_names_in_: as in scikit-learn.

    y marks unlabelled rows by -1, NaN or None (see `gll.targets`); a matrix y holds shares of the classes, one column
    per class.

    Differentiable in: nothing; for gradients use `gll.GraphLearningLayer` or `gll.solve`.

    >>> X = [[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]]
    >>> model = GraphLearningClassifier("laplace", n_neighbors=2).fit(X, ["a", None, None, "b", None, None])
    >>> model.transduction_.tolist(), model.predict([[0.3], [4.0]]).tolist()
    (['a', 'a', 'a', 'b', 'b', 'b'], ['a', 'b'])
    """

    def __init__(
        self,
        method: Any = "auto",
        *,
        n_neighbors: Any = 10,
        metric: Any = "euclidean",
        method_options: Any = None,
        class_prior: Any = None,
        unreached: Any = "uniform",
        calibrate: Any = False,
        search: Any = "auto",
        solver: Any = None,
        device: Any = None,
        random_state: Any = None,
        verbose: Any = 0,
    ) -> None:
        self.method = method
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.method_options = method_options
        self.class_prior = class_prior
        self.unreached = unreached
        self.calibrate = calibrate
        self.search = search
        self.solver = solver
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GraphLearningClassifier:
        """Build the graph of X and spread the labels of y over it.

        Args:
            X: (n, d) features: NumPy, pandas, SciPy sparse or torch; or (n, n) similarities for a precomputed metric.
            y: (n,) labels, -1, NaN or None for unlabelled; or (n, C) soft labels.
            sample_weight: (n,) how much every row counts: 2 is the row given twice, 0 is the row left out.
        """
        stages = Stages(self.verbose)
        method, search = self._method(), self._search()
        if self.device is not None:
            find_device(self.device)
        metric = None if self.metric == PRECOMPUTED else Metric(self.metric)
        with stages("checks"):
            known, x = self._read(X, None)
            weight = self._weights(sample_weight, x)
            targets = Targets.read(y, x.shape[0], weight > 0)
            node, row, mass = self._nodes(x, weight, metric)
        points, graph, share = self._graph(x, row, mass, metric, search, stages)
        outside = points.join(x[np.flatnonzero(node < 0)]) if (node < 0).any() else None
        labels, strength = node_labels(targets, weight, node, graph)
        with stages("solve"):
            multilevel = groups_of(graph)
            task = Task(method, graph, targets.classes, self._solver(multilevel), points.mass)
            found = self._propagate(task, labels, strength, None)
        with stages("calibrate", self.calibrate):
            temperature = self._temperature(task, points, labels, strength, found)
        fitted = Fitted(method, points, graph, targets, weight, node, row, outside, found, temperature, multilevel)
        self._publish(fitted, share, stages, known)
        return self

    def update_labels(self, index: Any, labels: Any) -> GraphLearningClassifier:
        """Change the labels of some training rows and solve again on the stored graph, starting from the last solution.

        Args:
            index: rows of X, or a mask.
            labels: their labels, as in y: -1, NaN or None takes a label away; a class not seen before is added. At
                least two classes must keep a label.

        Parameters that were set since `fit` count, the method among them. Those that make the graph must be as they
        were (`n_neighbors`, `metric`): for another graph, fit again.
        """
        check_is_fitted(self)
        old: Fitted = self._fitted
        self._check_graph(old)
        method = self._method()
        stages = Stages(self.verbose)
        targets = old.targets.update(index, labels)
        left = targets.row[old.node[targets.row] < 0]
        if len(left):
            raise ValueError(
                f"row {left[0]} was fitted with weight zero: it is not in the graph, so it can have no label"
            )
        initial: Tensor | None = None
        if len(targets.classes) == len(old.targets.classes) and type(method) is type(old.method):
            initial = old.propagation.score
        given, strength = node_labels(targets, old.weight, old.node, old.graph)
        with stages("solve"):
            multilevel = old.multilevel or groups_of(old.graph)
            task = Task(method, old.graph, targets.classes, self._solver(multilevel), old.points.mass)
            found = self._propagate(task, given, strength, initial)
        with stages("calibrate", self.calibrate):
            temperature = self._temperature(task, old.points, given, strength, found)
        fitted = replace(
            old, method=method, targets=targets, propagation=found, temperature=temperature, multilevel=multilevel
        )
        self._publish(fitted, self.recall_, stages, columns_of(self))
        return self

    def _check_graph(self, fitted: Fitted) -> None:
        """Raise where the parameters ask for another graph than the stored one."""
        points = fitted.points
        if isinstance(points, DensePoints | SparsePoints):
            built: dict[str, Any] = {"metric": points.metric.value, "n_neighbors": points.k}
            asked = {"metric": self.metric, "n_neighbors": self.n_neighbors}
            if points.k == len(fitted.row) - 1 and asked["n_neighbors"] >= points.k:
                asked["n_neighbors"] = points.k  # every point is joined to all others
        else:
            built, asked = {"metric": PRECOMPUTED}, {"metric": self.metric}
        asked["metric"] = getattr(self.metric, "value", self.metric)
        for name, value in built.items():
            if asked[name] != value:
                raise ValueError(
                    f"the stored graph was built with {name}={value!r}, but the parameter is now {asked[name]!r}: call "
                    "fit for another graph"
                )

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """(m, C) probabilities of the classes; each new point is joined to its nearest training points.

        A row that equals a training row gets that row's answer (cosine: a multiple of one, too). With a precomputed
        metric it does not, since similarities do not tell that two rows are the same point: it is the mean of its
        neighbours as for any new point, and what was found for the training rows is in `label_distributions_`. The
        answer does not depend on the other rows.

        Args:
            X: (m, d) features, or (m, n) similarities to the training rows for a precomputed metric.
        """
        check_is_fitted(self)
        fitted: Fitted = self._fitted
        _, x = self._read(X, self)
        found, lost = [], []
        for part in fitted.points.parts(x):
            index, share = fitted.points.join(part)
            lost.append(share.sum(1) == 0)
            found.append(fitted.at(index, share).cpu().numpy())
        none = torch.nonzero(torch.cat(lost)).flatten()
        if Unreached(self.unreached) is Unreached.RAISE and len(none):
            raise ValueError(f"{len(none)} rows have no positive similarity, the first being row {int(none[0])}")
        return np.concatenate(found)

    def predict(self, X: Any) -> NDArray[Any]:
        """(m,) the most probable class of every row; see `predict_proba`."""
        probability = self.predict_proba(X)
        return self.classes_[probability.argmax(1)]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of rows whose class is predicted, among those that have one in y.

        Rows that y marks as unlabelled (-1, NaN, None, as in `fit`) are left out, so that cross-validation and grid
        search work on partly labelled data. If -1 is one of `classes_`, it is a class here too.

        Args:
            X: as in `predict`.
            y: (m,) true classes.
            sample_weight: (m,) how much every row counts.
        """
        predicted = self.predict(X)
        label, known = read_column(y)
        if self.classes_.dtype.kind in "if" and (self.classes_ == -1).any() and label.dtype.kind in "if":
            known = known | (label == -1)
        if len(label) != len(predicted):
            raise ValueError(f"X has {len(predicted)} rows, but y {len(label)}")
        if not known.any():
            raise ValueError(f"there is nothing to compare with: y marks all {len(label)} rows as unlabelled")
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(label[known], predicted[known], sample_weight=weight))

    def save(self, path: Any) -> None:
        """Write the fitted classifier to one file: tensors and JSON, no code. See `gll.store`."""
        from gll.store import save_classifier

        check_is_fitted(self)
        save_classifier(self, Path(path))

    @classmethod
    def load(cls, path: Any, device: Any = None) -> GraphLearningClassifier:
        """Read a classifier that `save` has written; nothing in the file is executed.

        Args:
            path: the file.
            device: where to put it; by default where it was, or the CPU where that device is missing.
        """
        from gll.store import load_classifier

        return load_classifier(cls, Path(path), device)

    def _publish(self, fitted: Fitted, share: float, stages: Stages, known: dict[str, Any]) -> None:
        """Set all attributes at once, the very last step."""
        probability = fitted.of_rows().cpu().numpy()
        classes = fitted.targets.classes
        top = np.partition(probability, -2, axis=1)[:, -2:]
        lost = fitted.propagation.unreached
        unreached = np.zeros(len(fitted.row), np.bool_) if lost is None else lost.cpu().numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = 0 - np.where(probability > 0, probability * np.log(probability), 0).sum(1)
        results = {
            **known,
            "_fitted": fitted,
            "classes_": classes,
            "transduction_": classes[probability.argmax(1)],
            "label_distributions_": probability,
            "entropy_": entropy,
            "margin_": top[:, 1] - top[:, 0],
            "n_iter_": fitted.propagation.steps,
            "n_unreached_": int(unreached[fitted.node[fitted.node >= 0]].sum()),
            "recall_": share,
            "temperature_": fitted.temperature,
            "description_": fitted.propagation.description,
            "timings_": stages.seconds,
            "graph_": fitted.graph,
            "labels_": fitted.labels()[0],
            "node_": fitted.node,
            "row_": fitted.row,
        }
        # Everything but the last fit's attributes stays: the parameters, and what scikit-learn keeps here.
        kept = {name: value for name, value in self.__dict__.items() if name != "_fitted" and not name.endswith("_")}
        self.__dict__ = {**kept, **results}

    def _method(self) -> AbstractMethod:
        options = self.method_options
        if options is not None and not isinstance(options, Mapping):
            raise TypeError(f"method_options must be a dictionary such as {{'tau': 0.01}}, got {options!r}")
        if isinstance(self.method, AbstractMethod):
            if options:
                raise ValueError("method_options go with a method's name; give the object its options itself")
            return self.method
        # NumPy's numbers, as in a grid of np.logspace, become Python's: methods know these and tensors.
        plain = {
            k: v.item() if isinstance(v, np.generic | np.ndarray) and v.ndim == 0 else v
            for k, v in (options or {}).items()
        }
        return method_from_name(self.method, **plain)

    def _search(self) -> AbstractNeighborSearch:
        if isinstance(self.search, AbstractNeighborSearch):
            return self.search
        if self.search == "exact":
            return Exact()
        if self.search == "auto":
            return AutoSearch(projected=Projected(seed=self._seed()))
        raise ValueError(f"search must be 'auto', 'exact', or an object such as gll.Faiss(), got {self.search!r}")

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31)) if self.random_state is not None else 0

    def _weights(self, sample_weight: Any, x: Any) -> NDArray[np.float64]:
        n = x.shape[0]
        if sample_weight is None:
            return np.ones(n)
        if isinstance(sample_weight, Tensor):
            sample_weight = sample_weight.detach().cpu().numpy()
        weight: NDArray[np.float64] = _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64)
        if (weight < 0).any():
            raise ValueError(f"sample_weight must not be negative, but {int((weight < 0).sum())} entries are")
        if not weight.any():
            raise ValueError("sample_weight is zero everywhere: no row counts")
        return weight

    def _nodes(
        self, x: Any, weight: NDArray[np.float64], metric: Metric | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Tensor | None]:
        """Node of every row, first row of every node, and the mass of every node (None where all are one)."""
        rows = np.flatnonzero(weight > 0)
        kept = x if len(rows) == len(weight) else x[rows]
        if metric is None:
            group, first = np.arange(len(rows)), np.arange(len(rows))
        else:
            group, first = (t.cpu().numpy() for t in copies_of(kept, metric))
        if len(first) < 2:
            raise ValueError(
                f"a graph needs two distinct rows of X, but there is one sample only ({len(weight)} rows, "
                f"{len(rows)} of them of positive weight, n_features={x.shape[1]})"
                + ("; under the cosine metric multiples of a row are the same" if metric is Metric.COSINE else "")
            )
        node = np.full(len(weight), -1)
        node[rows] = group
        mass = np.bincount(group, weight[rows])
        return node, rows[first], None if (mass == 1).all() else torch.from_numpy(mass)

    def _graph(
        self,
        x: Any,
        row: NDArray[np.int64],
        mass: Tensor | None,
        metric: Metric | None,
        search: AbstractNeighborSearch,
        stages: Stages,
    ) -> tuple[AbstractPoints, Graph, float]:
        if metric is None:
            with stages("weights"):
                device = find_device(self.device or "cpu")
                mass = None if mass is None else mass.to(device)
                return *KnownSimilarities.build(x, torch.from_numpy(row), mass, device), 1.0
        k = self._neighbors(len(row))
        nodes = x if len(row) == x.shape[0] else x[row]
        if scipy.sparse.issparse(x):
            with stages("search and weights"):
                points, graph, seconds = SparsePoints.build(nodes, k, metric, mass)
            stages.add("search", seconds)
            stages.add("weights", stages.seconds.pop("search and weights") - seconds)
            return points, graph, 1.0
        recorded = Recorded(chosen(search, nodes))
        with stages("search and weights"), told(recorded, self.verbose):
            mass = None if mass is None else mass.to(x.device, x.dtype)
            dense, graph = DensePoints.build(nodes, k, metric, mass, recorded)
        stages.add("search", recorded.seconds)
        stages.add("weights", stages.seconds.pop("search and weights") - recorded.seconds)
        if isinstance(recorded.inner, Exact):
            return dense, graph, 1.0
        with stages("recall"):
            assert recorded.index is not None
            found = recall(dense.features, recorded.index, seed=self._seed())
        return dense, graph, found

    def _neighbors(self, nodes: int) -> int:
        k = self.n_neighbors
        if not isinstance(k, Integral) or isinstance(k, bool) or int(k) < 1:
            raise ValueError(f"n_neighbors must be an integer ≥ 1, got {k!r}")
        if int(k) >= nodes:
            warnings.warn(
                f"n_neighbors = {k}, but there are {nodes} distinct points: every point is joined to all "
                f"{nodes - 1} others",
                UserWarning,
                stacklevel=4,
            )
        return min(int(k), nodes - 1)

    def _propagate(
        self, task: Task, labels: Labels, strength: Tensor | None, initial: Tensor | None, unreached: str | None = None
    ) -> Propagation:
        return task.method.propagate(
            task.graph,
            labels,
            label_weight=strength,
            class_prior=self._prior(task.classes, task.graph),
            initial=initial,
            unreached=unreached or self.unreached,
            solver=task.solver,
            node_mass=task.mass,
        )

    def _solver(self, multilevel: Multilevel | None) -> AbstractLinearSolver | Newton:
        if self.solver is not None:
            solver: AbstractLinearSolver | Newton = self.solver
            return solver
        return Auto(rtol=RTOL) if multilevel is None else Auto(rtol=RTOL, multilevel=multilevel)

    def _prior(self, classes: NDArray[Any], graph: Graph) -> Tensor | None:
        prior = self.class_prior
        if prior is None:
            return None
        if isinstance(prior, Mapping):
            missing = [c for c in classes.tolist() if c not in prior]
            strange = [c for c in prior if c not in classes.tolist()]
            if missing or strange:
                raise ValueError(
                    f"class_prior must name every class once: {missing} are missing, {strange} are not classes"
                )
            prior = [prior[c] for c in classes.tolist()]
        value = np.asarray(prior, dtype=np.float64)
        if value.shape != (len(classes),):
            raise ValueError(f"class_prior needs one number for each of the {len(classes)} classes, got {value.shape}")
        return torch.from_numpy(value).to(graph.weight.device)

    def _temperature(
        self, task: Task, points: AbstractPoints, labels: Labels, strength: Tensor | None, found: Propagation
    ) -> float:
        """1, or the temperature under which labels that were hidden are the most likely."""
        if not self.calibrate:
            return 1.0
        target = labels.value.argmax(1)
        probability, truth = [], []
        # Folds are drawn from the labels in an order that depends on the points, not on the order of the rows.
        order = np.argsort(points.keys(labels.index), kind="stable")
        for fold in hold_out(target.cpu().numpy()[order], FOLDS, self._seed()):
            hidden = torch.from_numpy(order[fold]).to(target.device)
            seen = torch.ones_like(target, dtype=torch.bool)
            seen[hidden] = False
            part = Labels(labels.index[seen], labels.value[seen])
            with warnings.catch_warnings():
                # Hiding labels may cut nodes off. They are left out here, and are no news for the user.
                warnings.simplefilter("ignore", UnreachedWarning)
                warnings.simplefilter("ignore", ClassPriorWarning)
                once = self._propagate(task, part, None if strength is None else strength[seen], found.score, "uniform")
            if once.unreached is not None:
                hidden = hidden[~once.unreached[labels.index[hidden]]]
            probability.append(once.probability[labels.index[hidden]])
            truth.append(target[hidden])
        if not sum(map(len, truth)):
            warnings.warn(
                "calibrate=True needs labels that can be hidden: a class with two labels or more; the probabilities "
                "are left as they are",
                UserWarning,
                stacklevel=4,
            )
            return 1.0
        return fit_temperature(torch.cat(probability), torch.cat(truth))

    def _read(self, X: Any, fitted: GraphLearningClassifier | None) -> tuple[dict[str, Any], Any]:
        """X checked, as a tensor or as CSR; and what it says about its columns. Changes nothing on self."""
        # scikit-learn's validation sets attributes: let it do so on another object.
        probe = fitted if fitted is not None else type(self)(metric=self.metric)
        precomputed = isinstance(fitted._fitted.points, KnownSimilarities) if fitted else self.metric == PRECOMPUTED
        if isinstance(X, Tensor) and X.layout == torch.strided and not precomputed:
            x: Any = X.detach()
            if x.dim() != 2 or 0 in x.shape:
                raise ValueError(f"X must be a 2d tensor with at least one sample and feature, got {tuple(x.shape)}")
            if x.is_complex():
                raise ValueError("Complex data not supported")
            x = (
                x
                if x.dtype in (torch.float32, torch.float64)
                else x.to(torch.float32 if x.is_floating_point() else torch.float64)
            )
            _check_columns(probe, x.shape[1], fitted is not None)
        else:
            if isinstance(X, Tensor):
                X = _tensor_to_scipy(X)
            if precomputed and isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind == "f":
                check_similarities(canonical(X))  # before the shape: what is not a number is the worse mistake
            x = _validate(probe, X, reset=fitted is None)
        if precomputed:
            x = canonical(x)
            check_similarities(x)
            if fitted is None and x.shape[0] != x.shape[1]:
                raise ValueError(f"a precomputed X must be a square matrix of similarities, got shape {x.shape}")
        elif scipy.sparse.issparse(x):
            x = canonical(x)
            finite = np.isfinite(x.data)
            if not finite.all():
                _raise_nonfinite(np.unique(np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))[~finite]), x.shape[0])
            if fitted is None and x.shape[0] * x.shape[1] * x.dtype.itemsize <= DENSE_BYTES:
                x = x.toarray()
        if isinstance(x, np.ndarray):
            x = torch.from_numpy(np.ascontiguousarray(x) if x.flags.writeable else np.array(x))
        if isinstance(x, Tensor):
            if self.device is not None:
                x = x.to(find_device(self.device))
            if not bool(torch.isfinite(x.sum())) and not bool(torch.isfinite(x).all()):
                _raise_nonfinite(torch.nonzero(~torch.isfinite(x).all(1)).flatten().cpu().numpy(), len(x))
        return columns_of(probe), x

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        if self.metric == PRECOMPUTED:
            tags.input_tags.pairwise = True
            tags.input_tags.positive_only = True
            tags.classifier_tags.poor_score = True  # on the inner products that scikit-learn's checks take for a graph
        return tags

    def _more_tags(self) -> dict[str, Any]:
        """Tags for scikit-learn before 1.6."""
        known = self.metric == PRECOMPUTED
        return {"pairwise": known, "requires_positive_X": known, "poor_score": known}


def copies_of(x: Any, metric: Metric) -> tuple[Tensor, Tensor]:
    """Node of every row, and first row of every node: equal rows are one node; for cosine, multiples of a row too."""
    sparse = scipy.sparse.issparse(x)
    group, first = distinct_sparse_rows(x) if sparse else distinct_rows(x)
    if metric is not Metric.COSINE:
        return group, first
    if sparse:
        dtype = torch.float32 if x.dtype == np.float32 else torch.float64
        again, kept = same_sparse_direction(prepared(x[first.numpy()], metric), direction_tolerance(dtype))
    else:
        again, kept = same_direction(metric.prepare(x[first]), direction_tolerance(x.dtype))
    return again[group], first[kept]


def columns_of(model: GraphLearningClassifier) -> dict[str, Any]:
    """What scikit-learn notes about the columns of X."""
    names = ["n_features_in_", "feature_names_in_"]
    return {name: model.__dict__[name] for name in names if name in model.__dict__}


def chosen(search: AbstractNeighborSearch, x: Tensor) -> AbstractNeighborSearch:
    """The search itself, or the one that it would hand x to."""
    return search.choose(x.shape[0], x.shape[1], x.device) if isinstance(search, AutoSearch) else search


@contextmanager
def told(search: Recorded, verbose: int) -> Iterator[None]:
    """A progress bar for a search that can tell how far it is."""
    if not verbose or not isinstance(search.inner, Projected) or search.inner.progress is not None:
        yield
        return
    with progress_bar() as show:
        search.inner = replace(search.inner, progress=show)
        yield


def _validate(probe: GraphLearningClassifier, X: Any, *, reset: bool) -> Any:
    """scikit-learn's checks of X, under the names of its versions; finiteness is checked by us, which says where."""
    setting = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "reset": reset}
    if tuple(int(part) for part in sklearn.__version__.split(".")[:2]) >= (1, 6):
        from sklearn.utils.validation import validate_data

        return validate_data(probe, X, ensure_all_finite=False, **setting)
    return probe._validate_data(X, force_all_finite=False, **setting)


def _check_columns(probe: GraphLearningClassifier, columns: int, fitted: bool) -> None:
    if not fitted:
        probe.n_features_in_ = columns
    elif columns != probe.n_features_in_:
        raise ValueError(
            f"X has {columns} features, but GraphLearningClassifier is expecting {probe.n_features_in_} features "
            "as input"
        )


def _raise_nonfinite(rows: NDArray[np.int64], total: int) -> None:
    raise ValueError(
        f"Input X contains NaN or infinity: {len(rows)} of {total} rows, the first being row {rows[0]}; "
        "remove these rows or fill the gaps"
    )


def _tensor_to_scipy(x: Tensor) -> Any:
    """A torch matrix, dense or sparse, for SciPy."""
    x = x.detach().cpu()
    x = x if x.dtype in (torch.float32, torch.float64) else x.double()
    if x.layout == torch.strided:
        return x.numpy()
    coo = x.to_sparse_coo().coalesce()
    index, value = coo.indices().numpy(), coo.values().numpy()
    return scipy.sparse.coo_matrix((value, (index[0], index[1])), shape=tuple(x.shape)).tocsr()
