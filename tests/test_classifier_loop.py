"""A loop on the graph of a classifier: it answers as the classifier does, and gives the labels back."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, make_blobs

import gll
import gll.estimator
import gll.methods
import gll.solvers
from gll.active import Margin
from gll.loop import ActiveLearner


def test_a_classifier_loses_the_labels_that_were_taken_back(tmp_path: Path) -> None:
    x, _, y = blobs(copies=1)
    y[90] = y[0]
    classifier = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=7).fit(x, y)
    learner = ActiveLearner.from_classifier(classifier, autosave=tmp_path)
    learner.forget(int(classifier.node_[0]))
    ActiveLearner.load(tmp_path).hand_back(classifier)
    y[[0, 90]] = -1
    fresh = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=7).fit(x, y)
    np.testing.assert_allclose(classifier.label_distributions_, fresh.label_distributions_, atol=1e-6)


@pytest.mark.usefixtures("as_user")
def test_on_the_graph_of_a_classifier() -> None:
    """The same predictions before, and after the answers are handed back; duplicated rows are one node."""
    x, y = load_digits(return_X_y=True)
    x, names = np.concatenate([x[:150], x[:20]]), np.array([f"digit {c}" for c in [*y[:150], *y[:20]]], dtype=object)
    known = np.where(np.arange(170) < 12, names, None)
    classifier = gll.estimator.GraphLearningClassifier("laplace", method_options={"tau": 0.01}, n_neighbors=7)
    with pytest.raises(ValueError, match="has no graph_: fit a GraphLearningClassifier first"):
        ActiveLearner.from_classifier(classifier)
    classifier.fit(x, known)
    learner = ActiveLearner.from_classifier(classifier, acquisition=Margin())
    assert learner.graph.num_nodes == 150
    np.testing.assert_allclose(learner.probabilities, classifier.label_distributions_[classifier.row_], atol=1e-8)
    asked = [s.index for s in learner.suggest(9)]
    learner.tell(asked, [str(names[classifier.row_[i]]) for i in asked])
    assert learner.hand_back(classifier) is classifier
    np.testing.assert_allclose(learner.probabilities, classifier.label_distributions_[classifier.row_], atol=1e-8)
    assert learner.classes == list(classifier.classes_)


def blobs(copies: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three clusters of thirty, three labels in each, and copies of the first rows without a label."""
    x, truth = make_blobs(90, centers=[[0, 0], [4, 0], [0, 4]], random_state=0)
    y = np.full(90, -1)
    for c in range(3):
        y[np.flatnonzero(truth == c)[:3]] = c
    return np.concatenate([x, x[:copies]]), np.concatenate([truth, truth[:copies]]), np.append(y, np.full(copies, -1))


def assert_same(learner: ActiveLearner, classifier: gll.estimator.GraphLearningClassifier, atol: float = 1e-6) -> None:
    found = classifier.label_distributions_[classifier.row_]
    np.testing.assert_allclose(learner.probabilities, found, atol=atol)


@pytest.mark.parametrize(
    ("options", "weight"),
    [
        ({"method": "laplace", "class_prior": [0.4, 0.3, 0.3]}, 1),
        ({"method": "auto", "class_prior": {0: 0.4, 1: 0.3, 2: 0.3}}, 1),
        ({"method": "poisson"}, 50),
        ({"method": gll.methods.SoftLearning(lam=0.1)}, 50),
        ({"method": "laplace", "solver": gll.solvers.ConjugateGradient(rtol=1e-2)}, 1),
        ({"method": "laplace", "unreached": "nearest"}, 1),
    ],
)
def test_a_loop_answers_as_its_classifier(options: dict[str, Any], weight: float, tmp_path: Path) -> None:
    """Before, after labels, after the answers are handed back, and after a resume."""
    x, truth, y = blobs(copies=5)
    if options.get("unreached"):  # far away, joined to each other only
        x, truth, y = np.concatenate([x, x[:12] + 1000]), np.append(truth, truth[:12]), np.append(y, [-1] * 12)
    classifier = gll.estimator.GraphLearningClassifier(n_neighbors=7, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about shares and unreached nodes
        classifier.fit(x, y, sample_weight=np.where(truth == 0, weight, 1))
        learner = ActiveLearner.from_classifier(classifier, autosave=tmp_path)
        assert_same(learner, classifier)
        asked = [s.index for s in learner.suggest(4)]
        learner.tell(asked, truth[classifier.row_[asked]])
        learner.hand_back(classifier)
        close = 1e-3 if "solver" in options else 1e-6  # the classifier starts from its last solution
        assert_same(learner, classifier, close)
        if "solver" in options:
            with pytest.raises(ValueError, match=r"the session used ConjugateGradient.* as its solver: pass solver="):
                ActiveLearner.load(tmp_path)
            resumed = ActiveLearner.load(tmp_path, solver=options["solver"])
        else:
            resumed = ActiveLearner.load(tmp_path)
        np.testing.assert_allclose(resumed.probabilities, learner.probabilities, atol=1e-8)
        assert [s.index for s in resumed.suggest(3)] == [s.index for s in learner.suggest(3)]
        resumed.hand_back(classifier)
        assert_same(resumed, classifier, close)


def test_groups_of_a_large_graph_are_taken_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are found once, by the classifier; the solves of the loop are as exact as its own."""
    x, _, y = blobs()
    groups = gll.solvers.Multilevel.of(gll.knn_graph(torch.tensor(x), k=5))
    monkeypatch.setattr(gll.estimator, "groups_of", lambda graph: groups)
    classifier = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=5).fit(x, y)
    learner = ActiveLearner.from_classifier(classifier, autosave=tmp_path)
    assert isinstance(learner.solver, gll.solvers.Auto)
    assert learner.solver.multilevel is groups
    loaded = ActiveLearner.load(tmp_path).solver  # found again
    assert isinstance(loaded, gll.solvers.Auto)
    assert loaded.multilevel.groups is not None
    assert groups.groups is not None
    assert [g.tolist() for g in loaded.multilevel.groups] == [g.tolist() for g in groups.groups]
    assert learner.solver.rtol == loaded.rtol == gll.estimator.RTOL


@pytest.mark.parametrize("method", ["laplace", "poisson"])
def test_a_correction_reaches_all_copies(method: str) -> None:
    """The label sits on another copy than the node's first row: handing back the correction leaves no trace of it."""
    x, _, y = blobs(copies=1)
    y[90], y[0] = y[0] if y[0] >= 0 else 0, -1
    classifier = gll.estimator.GraphLearningClassifier(method, n_neighbors=7).fit(x, y)
    learner = ActiveLearner.from_classifier(classifier)
    node = int(classifier.node_[90])
    assert classifier.row_[node] == 0
    other = (int(y[90]) + 1) % 3
    learner.tell(node, other)
    learner.hand_back(classifier)
    assert classifier.labels_.value[classifier.labels_.index == node].tolist() == [np.eye(3)[other].tolist()]
    y[[0, 90]] = other
    fresh = gll.estimator.GraphLearningClassifier(method, n_neighbors=7).fit(x, y)
    np.testing.assert_allclose(classifier.label_distributions_, fresh.label_distributions_, atol=1e-6)
    assert_same(learner, classifier)


def test_labels_that_were_not_told_stay_as_they_are() -> None:
    """Soft labels, and labels of one copy among several, are not handed back changed."""
    x, _, y = blobs(copies=1)
    soft = np.where(y[:, None] >= 0, np.eye(3)[np.maximum(y, 0)], 0.0)
    soft[np.flatnonzero(y >= 0)[0]] = [0.5, 0.3, 0.2]
    classifier = gll.estimator.GraphLearningClassifier("soft", n_neighbors=7).fit(x, soft)
    before = classifier.label_distributions_
    assert ActiveLearner.from_classifier(classifier).hand_back(classifier) is classifier
    np.testing.assert_array_equal(classifier.label_distributions_, before)


@pytest.mark.parametrize("kind", ["float", "bool", "int8", "string"])
def test_classes_of_all_kinds_go_back_as_they_came(kind: str) -> None:
    x, truth, y = blobs()
    own: np.ndarray
    if kind == "bool":
        own = np.where(y < 0, None, truth == 0)
        names = truth == 0
    elif kind == "string":
        own, names = np.array(["-1", "a", "b", "c"])[y + 1], np.array(["a", "b", "c"])[truth]
    elif kind == "float":
        own, names = np.where(y < 0, np.nan, y), truth.astype(float)
    else:
        own, names = y.astype(np.int8), truth.astype(np.int8)
    classifier = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=7).fit(x, own)
    learner = ActiveLearner.from_classifier(classifier)
    before = classifier.classes_
    asked = [s.index for s in learner.suggest(6)]
    learner.tell(asked, names[asked])
    learner.hand_back(classifier)
    assert classifier.classes_.dtype == before.dtype
    assert classifier.classes_.tolist() == before.tolist()
    assert (classifier.transduction_[asked] == names[asked]).all()
    assert_same(learner, classifier)


@pytest.mark.usefixtures("as_user")
def test_what_cannot_be_handed_back() -> None:
    x, _, y = blobs()
    classifier = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=7).fit(x, y)
    learner = ActiveLearner.from_classifier(classifier)
    other = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=6).fit(x, y)
    with pytest.raises(ValueError, match="is fitted on another graph"):
        learner.hand_back(other)
    with pytest.raises(ValueError, match="has no graph_: fit a GraphLearningClassifier first"):
        learner.hand_back(gll.estimator.GraphLearningClassifier())
    free = int(np.flatnonzero(y < 0)[0])
    learner.tell(free, 7)  # a class that the classifier has not seen
    assert learner.hand_back(classifier).classes_.tolist() == [0, 1, 2, 7]
    dates = np.where(y < 0, np.datetime64("NaT"), np.datetime64("2020-01-01") + np.maximum(y, 0))
    timed = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=7).fit(x, dates)
    with pytest.raises(TypeError, match="a label is a string or a whole number"):
        ActiveLearner.from_classifier(timed)
