"""The classifier: what it computes, against dense linear algebra, and scikit-learn's habits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gll
from gll.calibration import expected_calibration_error
from gll.estimator import GraphLearningClassifier
from gll.unreached import UnreachedWarning
from tests.estimator_cases import blobs, self_tuned


def harmonic(w: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Laplace learning by dense linear algebra, from the weight matrix."""
    free, known = np.flatnonzero(y < 0), np.flatnonzero(y >= 0)
    laplacian = np.diag(w.sum(1)) - w
    u = np.zeros((len(y), y.max() + 1))
    u[known, y[known]] = 1
    u[free] = np.linalg.solve(laplacian[np.ix_(free, free)], w[np.ix_(free, known)] @ u[known])
    return u


# What it computes


def test_transduction_is_the_harmonic_function_by_dense_linear_algebra() -> None:
    x, _, y = blobs()
    model = GraphLearningClassifier("laplace", n_neighbors=8).fit(x, y)
    expected = harmonic(self_tuned(x, 8), y)
    np.testing.assert_allclose(model.label_distributions_, expected, atol=1e-9)
    assert (model.transduction_ == expected.argmax(1)).all()


def test_a_new_point_takes_the_weighted_mean_of_its_neighbours() -> None:
    x, _, y = blobs()
    model = GraphLearningClassifier("laplace", n_neighbors=8).fit(x, y)
    u, new = model.label_distributions_, np.array([[1.0, 1.0], [2.0, 0.5]])
    d = np.sqrt(((x[:, None] - x[None]) ** 2).sum(2))
    epsilon = np.sort(d, axis=1)[:, 8]
    for point, answer in zip(new, model.predict_proba(new), strict=True):
        far = np.sqrt(((x - point) ** 2).sum(1))
        near = np.argsort(far)[:8]
        w = np.exp(-4 * far[near] ** 2 / (far[near[-1]] * epsilon[near]))
        np.testing.assert_allclose(answer, w @ u[near] / w.sum(), atol=1e-12)


def test_the_layer_in_inductive_mode_answers_alike() -> None:
    x, _, y = blobs()
    model = GraphLearningClassifier("laplace", n_neighbors=8).fit(x, y)
    layer = gll.GraphLearningLayer(3, k=8, normalize=False, inductive=True, floor=1e-300)
    new = np.random.default_rng(0).normal(1, 1, (20, 2))
    with torch.no_grad():
        logits = layer(torch.from_numpy(new), torch.from_numpy(x), torch.from_numpy(y))
    np.testing.assert_allclose(model.predict_proba(new), logits.softmax(1), atol=1e-9)


def test_training_rows_are_answered_by_their_transduction() -> None:
    x, _, y = blobs()
    model = GraphLearningClassifier("poisson", class_prior=[0.2, 0.3, 0.5]).fit(x, y)
    np.testing.assert_array_equal(model.predict_proba(x), model.label_distributions_)
    np.testing.assert_array_equal(model.predict(x), model.transduction_)


@pytest.mark.parametrize("method", ["laplace", "poisson", "soft"])
def test_results_do_not_depend_on_the_order_of_rows(method: str) -> None:
    x, _, y = blobs(labels=4)
    order = np.random.default_rng(1).permutation(len(x))
    one = GraphLearningClassifier(method, calibrate=True).fit(x, y)
    two = GraphLearningClassifier(method, calibrate=True).fit(x[order], y[order])
    np.testing.assert_allclose(one.label_distributions_[order], two.label_distributions_, atol=1e-8)
    np.testing.assert_allclose(one.predict_proba(x + 0.1), two.predict_proba(x + 0.1), atol=1e-8)


def test_float32_gives_float32_near_float64() -> None:
    x, _, y = blobs()
    wide = GraphLearningClassifier("laplace").fit(x, y)
    narrow = GraphLearningClassifier("laplace").fit(x.astype(np.float32), y)
    assert narrow.label_distributions_.dtype == np.float32
    np.testing.assert_allclose(narrow.label_distributions_, wide.label_distributions_, atol=1e-4)


@pytest.mark.parametrize(
    ("far", "dtype"), [(1e3, np.float32), (1e3, np.float64), (1e8, np.float64), (3e38, np.float32), (1e300, np.float64)]
)
def test_far_points_get_finite_probabilities_and_change_nothing_for_the_others(far: float, dtype: Any) -> None:
    x, _, y = blobs()
    model = GraphLearningClassifier("laplace").fit(x.astype(dtype), y)
    new = np.array([[far, far], [1.0, 1.0], [-far, 0.0]], dtype)
    p = model.predict_proba(new)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(p[1:2], model.predict_proba(new[1:2]))
    if far < 1e10:  # farther away, rounding cannot tell which training point is the nearest
        assert model.predict(np.array([[far, -far], [-far, far]], dtype)).tolist() == [1, 2]


def test_fully_labelled_data_is_answered_inductively() -> None:
    x, truth, _ = blobs(150)
    model = GraphLearningClassifier().fit(x[:100], truth[:100])
    votes = KNeighborsClassifier(10).fit(x[:100], truth[:100]).score(x[100:], truth[100:])
    assert model.score(x[100:], truth[100:]) >= votes - 0.05
    assert model.n_unreached_ == 0


def test_a_component_without_labels_is_counted_and_uniform() -> None:
    x, _, y = blobs()
    away = np.concatenate([x, x[:15] + 1000])
    with pytest.warns(UnreachedWarning):
        model = GraphLearningClassifier("laplace", n_neighbors=5).fit(away, np.concatenate([y, np.full(15, -1)]))
    assert model.n_unreached_ == 15
    np.testing.assert_allclose(model.label_distributions_[-15:], 1 / 3)
    assert np.isfinite(model.predict_proba(away + 0.01)).all()
    with pytest.warns(UnreachedWarning):
        near = clone(model).set_params(unreached="nearest").fit(away, np.concatenate([y, np.full(15, -1)]))
    assert near.label_distributions_[-15:].max(1).min() == 1
    with pytest.raises(gll.SolveError, match="not connected"):
        clone(model).set_params(unreached="raise").fit(away, np.concatenate([y, np.full(15, -1)]))


def test_unreached_rows_are_rows_and_keep_their_answer_when_asked_again() -> None:
    x, _, y = blobs()
    away = np.concatenate([x, x[:15] + 1000, x[:5] + 1000])  # with copies
    y = np.concatenate([y, np.full(20, -1)])
    with pytest.warns(UnreachedWarning):
        model = GraphLearningClassifier("laplace", n_neighbors=5, class_prior=[0.2, 0.2, 0.6]).fit(away, y)
    assert model.n_unreached_ == 20
    np.testing.assert_array_equal(np.flatnonzero(model.unreached_), np.arange(len(x), len(away)))
    np.testing.assert_array_equal(model.predict_proba(away), model.label_distributions_)


def test_digits_with_few_labels() -> None:
    x, truth = load_digits(return_X_y=True)
    y = np.full(len(x), -1)
    y[:100] = truth[:100]
    model = GraphLearningClassifier("laplace").fit(x, y)
    assert accuracy_score(truth[100:], model.transduction_[100:]) > 0.9
    assert set(model.timings_) >= {"search", "weights", "solve"}
    assert all(seconds >= 0 for seconds in model.timings_.values())
    np.testing.assert_allclose(
        model.margin_, np.diff(np.sort(model.label_distributions_, axis=1)[:, -2:])[:, 0], atol=0
    )
    p = model.label_distributions_
    np.testing.assert_allclose(model.entropy_, -(p * np.log(np.maximum(p, 1e-300))).sum(1), atol=1e-12)
    wrong = model.transduction_ != truth
    assert model.entropy_[wrong].mean() > 1.5 * model.entropy_[~wrong].mean()  # it means something
    assert model.margin_[wrong].mean() < model.margin_[~wrong].mean() / 2


# scikit-learn's habits


def test_pipeline_and_grid_search() -> None:
    x, truth, _ = blobs(90)
    pipeline = make_pipeline(StandardScaler(), GraphLearningClassifier("laplace"))
    grid = {
        "graphlearningclassifier__n_neighbors": [3, 8],
        "graphlearningclassifier__method_options": [None, {"tau": 0.01}],
    }
    search = GridSearchCV(pipeline, grid, cv=StratifiedKFold(3), scoring="neg_log_loss", error_score="raise")
    search.fit(x, truth)
    assert set(search.best_params_) == set(grid)
    assert search.score(x, truth) > -1
    precomputed = GridSearchCV(
        GraphLearningClassifier("laplace", metric="precomputed"), {"method_options": [None, {"tau": 0.1}]}, cv=3
    )
    w = GraphLearningClassifier("laplace", n_neighbors=30).fit(x, truth).graph_.to_scipy()
    assert precomputed.fit(w, truth).best_score_ > 0.8


def test_score_leaves_unlabelled_rows_out() -> None:
    x, truth, _ = blobs(90)
    model = GraphLearningClassifier("laplace").fit(x, truth)
    part = np.where(np.arange(90) < 30, truth, -1)
    right = (model.predict(x) == truth)[:30]
    for given in (part, [None if v < 0 else int(v) for v in part], np.where(part < 0, np.nan, part)):
        assert model.score(x, given) == right.mean()
    weight = np.arange(90) + 1.0
    assert model.score(x, part, sample_weight=weight) == pytest.approx(np.average(right, weights=weight[:30]))
    with pytest.raises(ValueError, match="y marks all 90 rows as unlabelled"):
        model.score(x, np.full(90, -1))
    with pytest.raises(ValueError, match="X has 90 rows, but y 89"):
        model.score(x, truth[1:])
    search = GridSearchCV(GraphLearningClassifier("laplace"), {"n_neighbors": [5]}, cv=3)
    assert search.fit(x, np.where(np.arange(90) < 60, truth, -1)).best_score_ > 0.8
    sign = np.where(truth == 0, -1, 1)
    with pytest.warns(UserWarning, match="-1 and 1 only"):
        two = GraphLearningClassifier("laplace").fit(x, sign)
    assert two.score(x, sign) == (two.predict(x) == sign).mean()


def test_clone_params_and_repr() -> None:
    model = GraphLearningClassifier("soft", n_neighbors=3, method_options={"lam": 2.0}, search=gll.Exact())
    copy = clone(model)
    assert copy.get_params()["method_options"] == {"lam": 2.0}
    shown = " ".join(repr(model).split())
    assert shown.startswith("GraphLearningClassifier(method='soft', method_options={'lam': 2.0}, n_neighbors=3")


# Calibration


def test_calibration_lowers_the_error_and_keeps_the_classes() -> None:
    x, truth = load_digits(return_X_y=True)
    y = np.full(len(x), -1)
    for c in range(10):
        y[np.flatnonzero(truth == c)[:8]] = c
    hidden = y < 0
    plain = GraphLearningClassifier("poisson").fit(x, y)
    model = GraphLearningClassifier("poisson", calibrate=True, random_state=0).fit(x, y)
    assert model.temperature_ != 1
    before, after = (expected_calibration_error(m.label_distributions_[hidden], truth[hidden]) for m in (plain, model))
    assert after < before / 2
    np.testing.assert_array_equal(model.transduction_, plain.transduction_)
    new = x[:50] + np.random.default_rng(0).normal(size=(50, 64))
    expected = np.exp(np.log(plain.predict_proba(new) + 1e-8) / model.temperature_)
    np.testing.assert_allclose(model.predict_proba(new), expected / expected.sum(1, keepdims=True), atol=1e-9)


def test_calibration_without_labels_to_hide_says_so() -> None:
    x, _, y = blobs(labels=1)
    with pytest.warns(UserWarning, match="calibrate=True needs labels that can be hidden"):
        assert GraphLearningClassifier("laplace", calibrate=True).fit(x, y).temperature_ == 1


@pytest.mark.parametrize("method", ["laplace", "poisson", "poisson-mbo", "volume-mbo", "auto"])
def test_a_class_prior_says_nothing_about_new_points_beside_an_unreached_cluster(method: str) -> None:
    X, truth, _ = blobs()
    X = np.r_[X, X[:30] + 1000]
    y = np.full(len(X), -1)
    for c in np.unique(truth):
        y[np.flatnonzero(truth == c)[:3]] = c
    classes = len(np.unique(truth))
    prior = np.full(classes, 0.2 / (classes - 1))
    prior[0] = 0.8
    model = GraphLearningClassifier(method, class_prior=None if method == "volume-mbo" else prior)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of unreached points, and of a prior that cannot be met
        model.fit(X, y)
    np.testing.assert_allclose(model.label_distributions_[-1], 1 / classes)
    np.testing.assert_allclose(model.predict_proba(X[-1:] + 1e-3), [[1 / classes] * classes])
    assert model.predict_proba(X[:1] + 1e-3).max() > 1.1 / classes


def test_score_of_soft_labels_is_that_of_their_likeliest_class() -> None:
    X, truth, _ = blobs()
    classes = np.unique(truth)
    hard = np.array(["no", "yes", "maybe", "other"])[truth]
    soft = 0.6 * np.eye(len(classes))[np.searchsorted(np.unique(hard), hard)] + 0.4 / len(classes)
    y = np.where(np.arange(len(truth)) % 4 == 0, hard, None)
    model = GraphLearningClassifier("laplace").fit(X, y)
    assert model.score(X, soft) == model.score(X, hard)
    soft[::2] = np.nan
    assert model.score(X, soft) == model.score(X[1::2], hard[1::2])


@pytest.mark.parametrize("method", ["auto", "laplace", "wnll", "poisson", "poisson-mbo", "soft", "nearest"])
def test_a_graph_without_edges_leaves_all_but_the_labels_unreached(method: str) -> None:
    y = [0, 1] + [-1] * 18
    with pytest.warns(UnreachedWarning):
        model = GraphLearningClassifier(method, metric="precomputed").fit(np.zeros((20, 20)), y)
    assert model.n_unreached_ == 18
    assert model.transduction_[:2].tolist() == [0, 1]
