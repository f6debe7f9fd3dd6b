"""GraphLearningClassifier: features and a few labels in, a class for every point out, with scikit-learn's interface.

`fit` builds a k-nearest-neighbour graph of all points, labelled or not (`row_graph.py`), and a method (`methods.py`)
spreads the labels over it. New points are joined to the graph without solving again (`extend.py`). The graph is kept:
`update_labels` solves again on it, from where the last solve ended.

A node of the graph is a *distinct* row of X. Copies of a row are one node that counts for as many, so that more copies
than neighbours do not cut themselves off, and `sample_weight=2` is the same as giving a row twice. A row of weight zero
takes no part, and is answered as a new point is.

Nothing is stored on the classifier before everything is computed: a fit that fails or is interrupted leaves it as it
was.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, check_random_state
from torch import Tensor

from gll.feature_input import PRECOMPUTED, columns_of, read_weights, read_x
from gll.features import Metric
from gll.fitted import Fitted, Stages, Task, find_device, groups_of, node_labels
from gll.hidden_labels import temperature_from
from gll.labels import Labels
from gll.methods import Propagation
from gll.parameters import method_of, prior_of, search_of
from gll.points import AbstractPoints, DensePoints, SparsePoints
from gll.row_graph import GraphBuilder, nodes_of
from gll.solvers.auto import Auto
from gll.solvers.base import AbstractLinearSolver
from gll.solvers.multilevel import Multilevel
from gll.solvers.newton import Newton
from gll.targets import Targets, read_column, read_soft
from gll.unreached import Unreached

__all__ = ["PRECOMPUTED", "RTOL", "GraphLearningClassifier"]

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
        n_unreached_, unreached_: number of rows that no label reaches, and (n,) which they are.
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
        method, search = method_of(self.method, self.method_options), search_of(self.search, self._seed)
        if self.device is not None:
            find_device(self.device)
        Unreached(self.unreached)  # raises for what is none of them, before any work is done
        metric = None if self.metric == PRECOMPUTED else Metric(self.metric)
        with stages("checks"):
            known, x = read_x(self, X, fitted=False)
            weight = read_weights(sample_weight, x.shape[0])
            targets = Targets.read(y, x.shape[0], weight > 0)
            node, row, mass = nodes_of(x, weight, metric)
        builder = GraphBuilder(metric, self.n_neighbors, search, self.device, self.verbose, self._seed)
        points, graph, share = builder.build(x, row, mass, stages)
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
        method = method_of(self.method, self.method_options)
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
        _, x = read_x(self, X, fitted=True)
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
            y: (m,) true classes, or (m, C) soft labels, of which the likeliest class counts.
            sample_weight: (m,) how much every row counts.
        """
        predicted = self.predict(X)
        soft = read_soft(y, tuple(self.classes_))
        if soft is None:
            label, known = read_column(y)
        else:
            _, value, known = soft
            label = self.classes_[value.argmax(1)]
        if (
            soft is None
            and self.classes_.dtype.kind in "if"
            and (self.classes_ == -1).any()
            and label.dtype.kind in "if"
        ):
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
        alone = np.where(fitted.node >= 0, unreached[fitted.node], False)
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
            "n_unreached_": int(alone.sum()),
            "unreached_": alone,
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

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31)) if self.random_state is not None else 0

    def _propagate(
        self, task: Task, labels: Labels, strength: Tensor | None, initial: Tensor | None, unreached: str | None = None
    ) -> Propagation:
        return task.method.propagate(
            task.graph,
            labels,
            label_weight=strength,
            class_prior=prior_of(self.class_prior, task.classes, task.graph.weight.device),
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

    def _temperature(
        self, task: Task, points: AbstractPoints, labels: Labels, strength: Tensor | None, found: Propagation
    ) -> float:
        if not self.calibrate:
            return 1.0

        def propagate(part: Labels, seen: Tensor) -> Propagation:
            return self._propagate(task, part, None if strength is None else strength[seen], found.score, "uniform")

        return temperature_from(labels, points, self._seed(), propagate)

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
