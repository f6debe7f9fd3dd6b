"""The classifier: what it computes, what it accepts, and what it says when it cannot."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gll
import gll.projected
from gll.calibration import expected_calibration_error
from gll.distinct import distinct_rows
from gll.estimator import GraphLearningClassifier
from gll.extend import join
from gll.points import KnownSimilarities, SparsePoints
from gll.propagation import ClassPriorWarning
from gll.unreached import UnreachedWarning


def blobs(n: int = 60, seed: int = 0, labels: int = 2) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Three overlapping blobs; all classes, and y with a few labels a class."""
    x, truth = make_blobs(n, centers=[[0, 0], [3, 0], [0, 3]], random_state=seed)
    y = np.full(n, -1)
    for c in range(3):
        y[np.flatnonzero(truth == c)[:labels]] = c
    return x, truth, y


def harmonic(w: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Laplace learning by dense linear algebra, from the weight matrix."""
    free, known = np.flatnonzero(y < 0), np.flatnonzero(y >= 0)
    laplacian = np.diag(w.sum(1)) - w
    u = np.zeros((len(y), y.max() + 1))
    u[known, y[known]] = 1
    u[free] = np.linalg.solve(laplacian[np.ix_(free, free)], w[np.ix_(free, known)] @ u[known])
    return u


def self_tuned(x: NDArray[Any], k: int) -> NDArray[Any]:
    """The weight matrix of the kNN graph, by loops over a dense distance matrix."""
    d = np.sqrt(((x[:, None] - x[None]) ** 2).sum(2))
    order = np.argsort(d + np.diag(np.full(len(x), np.inf)), axis=1)[:, :k]
    epsilon = d[np.arange(len(x)), order[:, -1]]
    chosen = np.zeros_like(d, dtype=bool)
    chosen[np.repeat(np.arange(len(x)), k), order.ravel()] = True
    return np.where(chosen | chosen.T, np.exp(-4 * d**2 / np.outer(epsilon, epsilon)), 0)


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


# Weights, copies and priors


@pytest.mark.parametrize("method", ["laplace", "soft", "poisson", "nearest"])
def test_weights_are_repetitions_also_among_unlabelled_rows(method: str) -> None:
    x, _, y = blobs(40)
    weight = np.random.default_rng(3).integers(0, 4, len(x))
    weight[y >= 0] = [1, 2, 3, 2, 1, 2]
    one = GraphLearningClassifier(method, n_neighbors=5).fit(x, y, sample_weight=weight)
    repeated = np.repeat(np.arange(len(x)), weight)
    two = GraphLearningClassifier(method, n_neighbors=5).fit(x[repeated], y[repeated])
    new = np.random.default_rng(4).normal(1, 1, (30, 2))
    np.testing.assert_allclose(one.predict_proba(new), two.predict_proba(new), atol=1e-8)
    np.testing.assert_allclose(one.label_distributions_[repeated], two.label_distributions_, atol=1e-8)
    np.testing.assert_allclose(one.label_distributions_[weight == 0], two.predict_proba(x[weight == 0]), atol=1e-8)


def test_more_copies_than_neighbours_do_not_cut_themselves_off() -> None:
    x, _, y = blobs()
    copies = np.concatenate([x, np.repeat(x[-1:], 30, axis=0)])
    model = GraphLearningClassifier("laplace", n_neighbors=5).fit(copies, np.concatenate([y, np.full(30, -1)]))
    assert model.n_unreached_ == 0
    assert model.graph_.num_nodes == len(x)
    assert (model.node_[len(x) :] == len(x) - 1).all()
    assert (model.row_ == np.arange(len(x))).all()
    assert (model.label_distributions_[len(x) :] == model.label_distributions_[len(x) - 1]).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("sparse", [False, True])
def test_multiples_of_a_row_are_copies_under_the_cosine_metric(
    dtype: Any, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sparse:
        monkeypatch.setattr("gll.feature_input.DENSE_BYTES", 0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 30)) + 2 * np.eye(3, 30)[np.arange(60) % 3]
    y = np.where(np.arange(60) < 9, np.arange(60) % 3, -1)
    many = np.concatenate([x, x[-1] * rng.uniform(0.1, 9, (40, 1))]).astype(dtype)
    given: Any = scipy.sparse.csr_matrix(many) if sparse else many
    model = GraphLearningClassifier("laplace", n_neighbors=5, metric="cosine")
    model.fit(given, np.concatenate([y, np.full(40, -1)]))
    assert model.n_unreached_ == 0
    assert model.graph_.num_nodes == 60
    assert (model.node_[60:] == 59).all()
    np.testing.assert_array_equal(model.predict_proba(given), model.label_distributions_)
    np.testing.assert_array_equal(model.predict_proba(given[:9] * dtype(3)), model.label_distributions_[:9])
    weighed = GraphLearningClassifier("laplace", n_neighbors=5, metric="cosine")
    weighed.fit(given[:60], y, sample_weight=np.where(np.arange(60) == 59, 41, 1))
    np.testing.assert_allclose(model.label_distributions_[:60], weighed.label_distributions_, atol=1e-4)


def test_copies_with_different_labels_share_the_mean() -> None:
    x, _, y = blobs()
    model = GraphLearningClassifier("laplace").fit(np.concatenate([x, x[:1], x[:1]]), np.concatenate([y, [0, 1]]))
    p = model.label_distributions_[-1]
    mine = [y[0]] if y[0] >= 0 else []
    np.testing.assert_allclose(p, np.bincount([*mine, 0, 1], minlength=3) / (2 + len(mine)), atol=1e-12)


def test_a_heavier_label_wins_more_points() -> None:
    x = np.linspace(0, 1, 41)[:, None]
    y = np.full(41, -1)
    y[[0, -1]] = [0, 1]
    shares = []
    for heavy in (0.2, 1.0, 5.0):
        weight = np.ones(41)
        weight[-1] = heavy
        for method in ("laplace", "soft"):
            model = GraphLearningClassifier(method, n_neighbors=4).fit(x, y, sample_weight=weight)
            shares.append(model.label_distributions_[:, 1].mean())
    laplace, soft = shares[::2], shares[1::2]
    assert laplace[0] < laplace[1] < laplace[2]
    assert soft[0] < soft[1] < soft[2]


def test_a_heavier_neighbour_has_more_say_in_a_new_point() -> None:
    x, y = np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 1, 0, 1])
    weight = np.array([1.0, 3.0, 1.0, 1.0])
    plain = GraphLearningClassifier("laplace", n_neighbors=2).fit(x, y)
    heavy = GraphLearningClassifier("laplace", n_neighbors=2).fit(x, y, sample_weight=weight)
    p, q = (m.predict_proba([[0.5]])[0] for m in (plain, heavy))
    np.testing.assert_allclose(q[1] / q[0], 3 * p[1] / p[0], rtol=1e-9)


def test_class_prior_moves_the_shares_of_the_classes() -> None:
    x, _, y = blobs(90)
    plain = GraphLearningClassifier("poisson").fit(x, y)
    wanted = {0: 0.6, 1: 0.2, 2: 0.2}
    model = GraphLearningClassifier("poisson", class_prior=wanted).fit(x, y)
    share = np.bincount(model.transduction_, minlength=3) / len(x)
    np.testing.assert_allclose(share, [0.6, 0.2, 0.2], atol=0.06)
    before = np.bincount(plain.transduction_, minlength=3) / len(x)
    assert np.abs(share - [0.6, 0.2, 0.2]).sum() < np.abs(before - [0.6, 0.2, 0.2]).sum()
    listed = GraphLearningClassifier("poisson", class_prior=[0.6, 0.2, 0.2]).fit(x, y)
    np.testing.assert_array_equal(listed.label_distributions_, model.label_distributions_)
    with pytest.raises(ValueError, match=r"\[2\] are missing, \[7\] are not classes"):
        GraphLearningClassifier("poisson", class_prior={0: 0.5, 1: 0.3, 7: 0.2}).fit(x, y)
    with pytest.raises(ValueError, match="one number for each of the 3 classes"):
        GraphLearningClassifier("poisson", class_prior=[0.5, 0.5]).fit(x, y)


@pytest.mark.parametrize("method", ["poisson", "volume-mbo"])
def test_class_prior_counts_rows_also_where_they_are_copies_or_heavy(method: str) -> None:
    x, truth, y = blobs(300)
    prior = [0.5, 0.25, 0.25]
    copies = np.flatnonzero(truth == 2)[5:65]  # 60 points, four times each
    repeated = np.concatenate([np.arange(300), np.tile(copies, 3)])
    model = GraphLearningClassifier(method, class_prior=prior).fit(x[repeated], y[repeated])
    shares = np.bincount(model.transduction_, minlength=3) / len(repeated)
    np.testing.assert_allclose(shares, prior, atol=4 / 480)  # a node is 4 of 480 rows
    weight = np.where(np.isin(np.arange(300), copies), 4.0, 1.0)
    heavy = GraphLearningClassifier(method, class_prior=prior).fit(x, y, sample_weight=weight)
    np.testing.assert_allclose(np.bincount(heavy.transduction_, weight) / weight.sum(), prior, atol=4 / 480)
    np.testing.assert_allclose(heavy.label_distributions_[repeated], model.label_distributions_, atol=1e-4)
    again = heavy.update_labels([], [])
    np.testing.assert_allclose(np.bincount(again.transduction_, weight) / weight.sum(), prior, atol=4 / 480)


def test_a_prior_that_cannot_be_met_says_what_was_reached() -> None:
    x, truth = make_blobs(90, centers=[[0, 0], [60, 0], [0, 60]], random_state=0)
    y = np.full(90, -1)
    for c in range(3):
        y[np.flatnonzero(truth == c)[:3]] = c
    model = GraphLearningClassifier("laplace", class_prior=[0.8, 0.1, 0.1])
    with pytest.warns(ClassPriorWarning, match=r"\(0.8, 0.1, 0.1\) cannot be met.* are \(0.333, 0.333, 0.333\)"):
        model.fit(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(class_prior=[0.34, 0.33, 0.33]).fit(x, y)


# Labels of every kind


@pytest.mark.parametrize(
    "read",
    [
        lambda y: np.where(y < 0, np.nan, y.astype(float)),
        lambda y: [None if v < 0 else int(v) for v in y],
        lambda y: np.ma.masked_array(np.abs(y), y < 0),
        lambda y: pd.Series(y),
        lambda y: pd.Series([pd.NA if v < 0 else int(v) for v in y], dtype="Int64"),
        lambda y: torch.from_numpy(y),
        lambda y: np.where((y < 0)[:, None], 0.0, np.eye(3)[y]),
        lambda y: np.where((y < 0)[:, None], np.nan, np.eye(3)[y]),
        lambda y: torch.from_numpy(np.where((y < 0)[:, None], 0.0, 2 * np.eye(3)[y])),
    ],
    ids=["nan", "none", "masked", "series", "nullable", "torch", "zero rows", "nan rows", "scaled rows"],
)
def test_unlabelled_rows_in_every_notation(read: Any) -> None:
    x, _, y = blobs()
    expected = GraphLearningClassifier("laplace").fit(x, y)
    model = GraphLearningClassifier("laplace").fit(x, read(y))
    np.testing.assert_array_equal(model.classes_, expected.classes_)
    np.testing.assert_array_equal(model.transduction_, expected.transduction_)
    np.testing.assert_allclose(model.label_distributions_, expected.label_distributions_, atol=1e-12)


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["ant", "bee", "cow"], None),
        (["ant", "bee", "cow"], -1),
        (["ant", "bee", "cow"], float("nan")),
        ([-5, 0, 7], -1),
        ([-5, 7, 9], None),
        ([2.0, 3.0, 10.0], float("nan")),
    ],
)
def test_classes_of_every_type(names: list[Any], missing: Any) -> None:
    x, _, y = blobs()
    expected = GraphLearningClassifier("laplace").fit(x, y)
    given = [missing if v < 0 else names[v] for v in y]
    model = GraphLearningClassifier("laplace").fit(x, given)
    assert model.classes_.tolist() == names
    assert model.transduction_.tolist() == [names[v] for v in expected.transduction_]
    assert model.predict(x[:5] + 0.01).tolist() == [names[v] for v in expected.predict(x[:5] + 0.01)]
    if all(isinstance(n, str) for n in names):
        again = GraphLearningClassifier("laplace").fit(x, np.array(given))  # NumPy makes "-1" and "nan" of them
        assert again.transduction_.tolist() == model.transduction_.tolist()


def test_booleans_and_frames_of_shares() -> None:
    x, _, y = blobs()
    flag = np.where(y < 0, None, y == 0)
    model = GraphLearningClassifier("laplace").fit(x, flag)
    assert model.classes_.tolist() == [False, True]
    frame = pd.DataFrame(np.where((y < 0)[:, None], np.nan, np.eye(3)[y]), columns=["cow", "ant", "bee"])
    assert GraphLearningClassifier("laplace").fit(x, frame).classes_.tolist() == ["ant", "bee", "cow"]
    named = GraphLearningClassifier("laplace").fit(x, [None if v < 0 else ["cow", "ant", "bee"][v] for v in y])
    assert (named.transduction_ == GraphLearningClassifier("laplace").fit(x, frame).transduction_).all()


@pytest.mark.parametrize(
    "names", [list("any"), ["-", "a", "b"], ["de", "na", "us"], [b"a", b"n", b"y"], ["", "a", "b"]]
)
def test_short_names_are_not_taken_for_marks(names: list[Any]) -> None:
    x, truth, y = blobs()
    model = GraphLearningClassifier("laplace").fit(x, np.array(names)[truth])
    assert model.classes_.tolist() == names
    assert len(model.labels_.index) == len(x)
    model.update_labels([0], np.array([names[1]]))
    assert len(model.labels_.index) == len(x)
    marked = np.where(y < 0, np.array("-1", np.array(names).dtype.kind), np.array(names)[y])
    assert len(GraphLearningClassifier("laplace").fit(x, marked).labels_.index) == 6


@pytest.mark.parametrize("mark", ["-1", "nan"])
@pytest.mark.parametrize("read", [np.array, list, lambda y: np.array(y, object), pd.Series, tuple])
def test_marks_in_strings_mean_the_same_in_every_container(read: Any, mark: str) -> None:
    x, _, y = blobs()
    model = GraphLearningClassifier("laplace").fit(x, read([mark if v < 0 else "abc"[v] for v in y]))
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert len(model.labels_.index) == 6
    assert len(model.update_labels([int(np.argmax(y >= 0))], read([mark])).labels_.index) == 5


def test_matrices_of_integers_are_one_hot_or_refused(as_user: None) -> None:
    x, truth, y = blobs()
    model = GraphLearningClassifier("laplace")
    pair = np.column_stack([truth, truth])
    for bad in (pair, pair.tolist(), torch.from_numpy(pair), pair > 0):
        with pytest.raises(ValueError, match=r"not one-hot, the first being row \d+.*Multi-output"):
            model.fit(x, bad)
    one_hot = np.where((y < 0)[:, None], 0, np.eye(3, dtype=int)[y])
    expected = model.fit(x, y).label_distributions_
    for good in (one_hot, one_hot.astype(bool), one_hot.tolist()):
        np.testing.assert_array_equal(model.fit(x, good).label_distributions_, expected)
    masked = np.ma.masked_array(one_hot, np.repeat((y < 0)[:, None], 3, 1))
    np.testing.assert_array_equal(model.fit(x, masked).label_distributions_, expected)


def test_minus_one_and_one_alone_are_two_classes_with_a_warning() -> None:
    x, truth, _ = blobs()
    y = np.where(truth == 0, -1, 1)
    with pytest.warns(UserWarning, match="-1 and 1 only"):
        model = GraphLearningClassifier("laplace").fit(x, y)
    assert model.classes_.tolist() == [-1, 1]
    assert (model.transduction_ == y).all()
    some = np.where(np.arange(len(y)) < 10, y, np.nan)
    marked = GraphLearningClassifier("laplace")
    with pytest.raises(ValueError, match="only one class"):
        marked.fit(x, some)  # NaN marks the unlabelled here, so that -1 does too


def test_soft_labels_are_kept() -> None:
    x, _, y = blobs()
    soft = np.where((y < 0)[:, None], 0.0, 0.8 * np.eye(3)[y] + 0.2 / 3)
    model = GraphLearningClassifier("laplace").fit(x, soft)
    np.testing.assert_allclose(model.label_distributions_[y >= 0], soft[y >= 0], atol=1e-12)
    w, known, free = self_tuned(x, 10), y >= 0, y < 0
    laplacian = np.diag(w.sum(1)) - w
    expected = np.linalg.solve(laplacian[np.ix_(free, free)], w[np.ix_(free, known)] @ soft[known])
    np.testing.assert_allclose(model.label_distributions_[free], expected, atol=1e-9)


# Input of every kind


def test_input_of_every_kind_gives_one_answer() -> None:
    x, _, y = blobs()
    x = np.maximum(x, 0)
    expected = GraphLearningClassifier("laplace").fit(x, y)
    new = np.maximum(x + 0.1, 0)
    for given in (
        pd.DataFrame(x, columns=["a", "b"]),
        torch.from_numpy(x),
        scipy.sparse.csr_matrix(x),
        scipy.sparse.coo_array(x),
        torch.from_numpy(x).to_sparse_coo(),
        x.tolist(),
    ):
        model = GraphLearningClassifier("laplace").fit(given, y)
        np.testing.assert_allclose(model.label_distributions_, expected.label_distributions_, atol=1e-12)
        query = pd.DataFrame(new, columns=["a", "b"]) if isinstance(given, pd.DataFrame) else new
        np.testing.assert_allclose(model.predict_proba(query), expected.predict_proba(new), atol=1e-12)
        assert model.n_features_in_ == 2
    model = GraphLearningClassifier("laplace").fit(pd.DataFrame(x, columns=["a", "b"]), y)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert "feature_names_in_" not in vars(model.fit(x, y))  # nothing is left of the fit before


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_sparse_features_that_are_not_made_dense_give_the_same(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = scipy.sparse.random(120, 300, 0.05, random_state=rng, format="csr")
    x = scipy.sparse.vstack([x, x[:3]]).tocsr()  # with copies
    y = np.full(123, -1)
    y[:12] = np.arange(12) % 3
    new = scipy.sparse.random(20, 300, 0.05, random_state=rng, format="csr")
    dense = GraphLearningClassifier("laplace", metric=metric).fit(x, y)
    monkeypatch.setattr("gll.feature_input.DENSE_BYTES", 0)
    monkeypatch.setattr("gll.sparse.MAX_BYTES", 20_000)
    sparse = GraphLearningClassifier("laplace", metric=metric).fit(x, y)
    assert isinstance(sparse._fitted.points, SparsePoints)
    assert torch.equal(sparse.graph_.topology.i, dense.graph_.topology.i)
    assert torch.equal(sparse.graph_.topology.j, dense.graph_.topology.j)
    torch.testing.assert_close(sparse.graph_.weight, dense.graph_.weight, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(sparse.predict_proba(new), dense.predict_proba(new), atol=1e-9)
    np.testing.assert_allclose(sparse.predict_proba(new.toarray()), dense.predict_proba(new), atol=1e-9)


def test_precomputed_graphs_in_every_form() -> None:
    x, _, y = blobs()
    features = GraphLearningClassifier("laplace").fit(x, y)
    w = features.graph_.to_scipy()
    for given in (w, w.toarray(), torch.from_numpy(w.toarray()), torch.from_numpy(w.toarray()).to_sparse_csr()):
        model = GraphLearningClassifier("laplace", metric="precomputed").fit(given, y)
        np.testing.assert_allclose(model.label_distributions_, features.label_distributions_, atol=1e-10)
    p, rows = features.label_distributions_, w[:5].toarray()
    np.testing.assert_allclose(model.predict_proba(w[:5]), rows @ p / rows.sum(1, keepdims=True), atol=1e-12)
    lonely = model.predict_proba(np.zeros((1, len(x))))
    np.testing.assert_allclose(lonely, 1 / 3)
    with pytest.raises(ValueError, match="1 rows have no positive similarity"):
        model.set_params(unreached="raise").predict(np.zeros((1, len(x))))


def test_precomputed_predictions_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _, y = blobs()
    w = GraphLearningClassifier("laplace").fit(x, y).graph_.to_scipy()
    model = GraphLearningClassifier("laplace", metric="precomputed").fit(w, y)
    full = scipy.sparse.csr_matrix(np.vstack([w.toarray(), np.ones((1, 60)), np.zeros((2, 60)), w.toarray()]))
    expected = model.predict_proba(full)
    entries: list[int] = []
    inner = KnownSimilarities.join

    def watched(self: KnownSimilarities, part: Any) -> Any:
        index, share = inner(self, part)
        entries.append(index.numel())
        return index, share

    monkeypatch.setattr(KnownSimilarities, "join", watched)
    monkeypatch.setattr("gll.points.MAX_ENTRIES", 100)
    np.testing.assert_allclose(model.predict_proba(full), expected, atol=1e-14)
    assert max(entries) <= 100
    with pytest.raises(ValueError, match="2 rows have no positive similarity, the first being row 61"):
        model.set_params(unreached="raise").predict(full)


def test_precomputed_rows_of_weight_zero_are_left_out() -> None:
    x, _, y = blobs()
    w = GraphLearningClassifier("laplace", n_neighbors=15).fit(x, y).graph_.to_scipy()
    weight = np.ones(len(x))
    weight[40:50] = 0
    keep = weight > 0
    model = GraphLearningClassifier("laplace", metric="precomputed").fit(w, y, sample_weight=weight)
    part = GraphLearningClassifier("laplace", metric="precomputed").fit(w[keep][:, keep], y[keep])
    np.testing.assert_allclose(model.label_distributions_[keep], part.label_distributions_, atol=1e-12)
    np.testing.assert_allclose(model.label_distributions_[~keep], part.predict_proba(w[~keep][:, keep]), atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(w[:3]), part.predict_proba(w[:3][:, keep]), atol=1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("method", ["laplace", "poisson"])
def test_a_gpu_gives_the_same(method: str, tmp_path: Path) -> None:
    x, _, y = blobs(300, labels=5)
    cpu = GraphLearningClassifier(method, calibrate=True).fit(x, y)
    gpu = GraphLearningClassifier(method, calibrate=True, device="cuda").fit(x, y)
    assert gpu.graph_.weight.is_cuda
    assert isinstance(gpu.label_distributions_, np.ndarray)
    np.testing.assert_allclose(gpu.label_distributions_, cpu.label_distributions_, atol=1e-6)
    np.testing.assert_allclose(gpu.predict_proba(x + 0.1), cpu.predict_proba(x + 0.1), atol=1e-6)
    tensor = GraphLearningClassifier(method).fit(torch.from_numpy(x).cuda(), torch.from_numpy(y).cuda())
    assert tensor.graph_.weight.is_cuda
    gpu.save(tmp_path / "model")
    assert not GraphLearningClassifier.load(tmp_path / "model", device="cpu").graph_.weight.is_cuda


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


# Changing labels


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


# Errors


def test_every_wrong_input_has_a_message(as_user: None) -> None:
    x, truth, y = blobs()
    model = GraphLearningClassifier("laplace")
    holes = x.copy()
    holes[[17, 20, 33], 0] = [np.nan, np.inf, -np.inf]
    sparse_holes = scipy.sparse.csr_matrix(holes)
    for bad in (holes, sparse_holes, torch.from_numpy(holes)):
        with pytest.raises(ValueError, match="NaN or infinity: 3 of 60 rows, the first being row 17"):
            model.fit(bad, y)
    with pytest.raises(ValueError, match="there are no labels: all 60 entries"):
        model.fit(x, np.full(60, -1))
    with pytest.raises(ValueError, match="only one class is labelled, 2:"):
        model.fit(x, np.where(y == 2, 2, -1))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(x, y[:-1])
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(x, truth + 0.5)
    with pytest.raises(ValueError, match="y mixes strings and other labels"):
        model.fit(x, np.array([5, "ant"] * 30, dtype=object))
    with pytest.raises(ValueError, match=r"2 rows of soft labels .* the first being row 3"):
        model.fit(x, np.where(np.isin(np.arange(60), [3, 8])[:, None], [-1.0, 2.0], [0.5, 0.5]))
    with pytest.raises(ValueError, match="sample_weight must not be negative, but 2 entries"):
        model.fit(x, y, sample_weight=np.where(np.arange(60) < 2, -1, 1))
    with pytest.raises(ValueError, match="two distinct rows"):
        model.fit(np.ones((60, 2)), truth)
    with pytest.raises(ValueError, match="unknown method 'lapalce'; choose one of"):
        GraphLearningClassifier("lapalce").fit(x, y)
    with pytest.raises(ValueError, match="has no option 'tao'"):
        model.set_params(method_options={"tao": 1}).fit(x, y)
    model.set_params(method_options=None)
    with pytest.raises(ValueError, match="unknown metric 'manhattan'"):
        GraphLearningClassifier("laplace", metric="manhattan").fit(x, y)
    with pytest.raises(ValueError, match="n_neighbors must be an integer ≥ 1, got 0"):
        GraphLearningClassifier("laplace", n_neighbors=0).fit(x, y)
    with pytest.raises(ValueError, match="search must be 'auto', 'exact', or an object"):
        GraphLearningClassifier("laplace", search="annoy").fit(x, y)
    for metric in ("euclidean", "precomputed"):
        with pytest.raises(ValueError, match="the device 'cuda:99' is not available"):
            GraphLearningClassifier("laplace", device="cuda:99", metric=metric).fit(x, y)
        with pytest.raises(ValueError, match="unknown device 'gpu'"):
            GraphLearningClassifier("laplace", device="gpu", metric=metric).fit(x, y)
    with pytest.raises(ValueError, match="unknown policy 'zero'"):
        GraphLearningClassifier("laplace", unreached="zero").fit(x, y)
    with pytest.raises(ValueError, match="X has 3 features, but GraphLearningClassifier is expecting 2"):
        model.fit(x, y).predict(torch.zeros(4, 3))
    with pytest.raises(ValueError, match="NaN or infinity: 3 of 60 rows"):
        model.predict(holes)


def test_more_neighbours_than_points_warns_and_joins_all() -> None:
    x, _, y = blobs()
    with pytest.warns(UserWarning, match="n_neighbors = 60, but there are 60 distinct points"):
        model = GraphLearningClassifier("laplace", n_neighbors=60).fit(x, y)
    assert model.graph_.topology.num_edges == 60 * 59 // 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GraphLearningClassifier("laplace", n_neighbors=59).fit(x, y)


def test_wrong_precomputed_graphs_have_messages() -> None:
    x, _, y = blobs()
    w = GraphLearningClassifier("laplace").fit(x, y).graph_.to_scipy().tolil()
    model = GraphLearningClassifier("laplace", metric="precomputed")
    negative, lopsided, hole = w.copy(), w.copy(), w.copy()
    negative[4, 7] = negative[7, 4] = -0.5
    lopsided[4, 7] = 3.0
    hole[2, 9] = np.nan
    with pytest.raises(ValueError, match=r"must not be negative \(2 of .*first being entry \(4, 7\), which is -0.5"):
        model.fit(negative.tocsr(), y)
    with pytest.raises(ValueError, match=r"not symmetric: entry \(4, 7\) is 3"):
        model.fit(lopsided.tocsr(), y)
    with pytest.raises(ValueError, match=r"NaN or infinity \(1 of .*first being entry \(2, 9\)"):
        model.fit(hole.tocsr(), y)
    with pytest.raises(ValueError, match="square"):
        model.fit(w.tocsr()[:50], y[:50])


def test_an_interrupted_fit_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _, y = blobs()
    model = GraphLearningClassifier("laplace")

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gll.methods.LaplaceLearning.find", interrupt)
        before = dict(vars(model))
        with pytest.raises(KeyboardInterrupt):
            model.fit(pd.DataFrame(x, columns=["a", "b"]), y)
        assert vars(model) == before
    model.fit(x, y)
    before = dict(vars(model))
    with monkeypatch.context() as patch:
        patch.setattr("gll.methods.LaplaceLearning.find", interrupt)
        for act in (lambda: model.fit(x[:30], y[:30]), lambda: model.update_labels([5], [0])):
            with pytest.raises(KeyboardInterrupt):
                act()
            assert vars(model) == before


def test_verbose_tells_the_stages(capsys: pytest.CaptureFixture[str]) -> None:
    x, _, y = blobs()
    GraphLearningClassifier("laplace", verbose=1).fit(x, y)
    told = capsys.readouterr().err
    assert "solve: 0." in told
    assert told.count("\n") >= 6
    GraphLearningClassifier("laplace").fit(x, y)
    assert capsys.readouterr().err == ""


def test_recall_of_an_approximate_search_is_measured() -> None:
    x = np.random.default_rng(0).normal(size=(400, 8))
    y = np.where(np.arange(400) < 40, np.arange(400) % 3, -1)
    exact = GraphLearningClassifier("laplace").fit(x, y)
    assert exact.recall_ == 1
    poor = GraphLearningClassifier("laplace", search=gll.Faiss("IVF40,Flat", nprobe=1)).fit(x, y)
    near, found = gll.Exact()(torch.from_numpy(x), 10), gll.Faiss("IVF40,Flat", nprobe=1)(torch.from_numpy(x), 10)
    share = np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(near.numpy(), found.numpy(), strict=True)])
    assert share < 0.9
    assert poor.recall_ == pytest.approx(share, abs=1e-9)
    assert "recall" in poor.timings_


def test_many_points_are_searched_in_cells() -> None:
    x, _, y = blobs(3000, labels=10)
    search = gll.projected.AutoSearch(max_exact=1000)
    model = GraphLearningClassifier("laplace", search=search, verbose=1).fit(x, y)
    assert 0.95 < model.recall_ <= 1
    exact = GraphLearningClassifier("laplace", search="exact").fit(x, y)
    assert (model.transduction_ == exact.transduction_).mean() > 0.99


@pytest.mark.parametrize(("far", "dtype"), [(3e38, torch.float32), (1e300, torch.float64)])
def test_a_far_point_is_joined_to_different_nodes(far: float, dtype: torch.dtype) -> None:
    base = torch.randn(500, 3, dtype=dtype)
    index, share = join(base, torch.ones(500, dtype=dtype), torch.tensor([[far, -far, far]], dtype=dtype), 10)
    assert len(index.unique()) == 10
    assert share.tolist() == [[1.0] + [0.0] * 9]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_are_found_also_where_hashes_collide(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randint(0, 3, (200, 3)).to(dtype)
    x[0], x[1] = 0.0, -0.0  # equal, though their bits differ
    rows = [tuple(row) for row in x.tolist()]
    expected = [rows.index(row) for row in rows]
    node, first = distinct_rows(x)
    assert first[node].tolist() == expected
    assert first.tolist() == sorted(set(expected))
    monkeypatch.setattr("gll.distinct.hash_rows", lambda x: torch.zeros(len(x), dtype=torch.int64))
    node, first = distinct_rows(x)
    assert first[node].tolist() == expected
