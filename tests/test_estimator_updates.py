"""New labels on the stored graph of the classifier: the answers of a new fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gll
from gll.estimator import GraphLearningClassifier
from tests.estimator_cases import blobs


@pytest.mark.parametrize("method", ["laplace", "poisson", "soft", "nearest"])
def test_update_labels_equals_a_new_fit(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, truth, y = blobs(100)
    model = GraphLearningClassifier(method, calibrate=True).fit(x, y)
    later = y.copy()
    later[30:40] = truth[30:40]
    first = int(np.flatnonzero(y >= 0)[0])
    later[first] = -1
    expected = GraphLearningClassifier(method, calibrate=True).fit(x, later)
    graph = model.graph_
    monkeypatch.setattr(gll.Exact, "find", lambda *_: pytest.fail("a new search"))
    model.update_labels([*range(30, 40), first], [*truth[30:40], -1])
    assert model.graph_ is graph
    np.testing.assert_allclose(model.label_distributions_, expected.label_distributions_, atol=1e-7)
    assert sorted(model.labels_.index.tolist()) == np.flatnonzero(later >= 0).tolist()
    assert model.timings_.keys() <= {"solve", "calibrate"}


def test_update_labels_starts_from_the_last_solution() -> None:
    x, truth, y = blobs(2000, labels=20)
    solver = gll.solvers.ConjugateGradient(rtol=1e-6)
    model = GraphLearningClassifier("laplace", solver=solver).fit(x, y)
    cold = model.n_iter_
    row = int(np.flatnonzero(y < 0)[0])
    model.update_labels([row], [truth[row]])
    assert 0 < model.n_iter_ < cold


def test_a_large_graph_keeps_its_groups_between_solves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, truth, y = blobs(6500, labels=20)
    model = GraphLearningClassifier("laplace", n_neighbors=6).fit(x, y)
    assert "Multilevel" in model.description_
    model.save(tmp_path / "model")
    row = int(np.flatnonzero(y < 0)[0])
    with monkeypatch.context() as patch:
        patch.setattr("gll.solvers.multilevel.find_groups", lambda *_: pytest.fail("the groups are found again"))
        model.update_labels([row], [truth[row]])
    again = GraphLearningClassifier.load(tmp_path / "model").update_labels([row], [truth[row]])
    np.testing.assert_array_equal(again.label_distributions_, model.label_distributions_)
    sharp = GraphLearningClassifier("laplace", n_neighbors=6, solver=gll.solvers.ConjugateGradient(rtol=1e-10))
    y[row] = truth[row]
    np.testing.assert_allclose(model.label_distributions_, sharp.fit(x, y).label_distributions_, atol=2e-5)


def test_update_labels_with_new_classes_shares_and_wrong_rows() -> None:
    x, truth, y = blobs()
    y = np.where(y == 2, -1, y)
    names = np.array(["ant", "cow", "bee"], dtype=object)
    model = GraphLearningClassifier("laplace").fit(x, np.where(y < 0, None, names[y]))
    assert model.classes_.tolist() == ["ant", "cow"]
    row = int(np.flatnonzero(truth == 2)[0])
    model.update_labels([row], ["bee"])
    assert model.classes_.tolist() == ["ant", "bee", "cow"]
    again = y.copy()
    again[row] = 2
    expected = GraphLearningClassifier("laplace").fit(x, np.where(again < 0, None, names[again]))
    np.testing.assert_allclose(model.label_distributions_, expected.label_distributions_, atol=1e-9)
    model.update_labels([row], [[0.5, 0.25, 0.25]])
    np.testing.assert_allclose(model.label_distributions_[row], [0.5, 0.25, 0.25])
    before = model.label_distributions_
    with pytest.raises(ValueError, match="label index 60 is out of range: the classifier was fitted on 60 rows"):
        model.update_labels([3, 60], ["ant", "bee"])
    with pytest.raises(ValueError, match="label index -1 is out of range"):
        model.update_labels([-1], ["ant"])
    with pytest.raises(ValueError, match="occurs twice"):
        model.update_labels([3, 3], ["ant", "bee"])
    with pytest.raises(ValueError, match="2 rows were given, but 3 labels"):
        model.update_labels([3, 4], ["ant", "bee", "ant"])
    with pytest.raises(ValueError, match=r"labels are numbers, such as 5, but the classes are strings"):
        model.update_labels([3], [5])
    with pytest.raises(ValueError, match="the last label"):
        model.update_labels(np.arange(60), np.full(60, None))
    with pytest.raises(ValueError, match="only one class is labelled, 'cow'"):
        model.update_labels(np.arange(60), np.where(np.arange(60) == 7, "cow", None))
    assert model.label_distributions_ is before  # a refused update changes nothing


def test_update_labels_after_set_params_runs_the_new_method() -> None:
    x, truth, y = blobs()
    model = GraphLearningClassifier("laplace").fit(x, y)
    more = y.copy()
    more[-3:] = truth[-3:]
    model.set_params(method="poisson").update_labels(np.arange(57, 60), truth[57:])
    expected = GraphLearningClassifier("poisson").fit(x, more)
    assert model.description_ == expected.description_
    np.testing.assert_allclose(model.label_distributions_, expected.label_distributions_, atol=1e-5)
    new = x[:9] + 0.1
    np.testing.assert_allclose(model.predict_proba(new), expected.predict_proba(new), atol=1e-5)
    for change in ({"n_neighbors": 4}, {"metric": "cosine"}, {"metric": "precomputed"}):
        other = GraphLearningClassifier("laplace").fit(x, y).set_params(**change)
        with pytest.raises(ValueError, match=r"the stored graph was built with .* call fit"):
            other.update_labels([0], [0])
