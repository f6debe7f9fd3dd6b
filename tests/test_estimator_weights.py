"""The classifier's rows that count more, count as one, or are to have shares: weights, copies and priors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.datasets import make_blobs

from gll.distinct import distinct_rows
from gll.estimator import GraphLearningClassifier
from gll.extend import join
from gll.propagation import ClassPriorWarning
from tests.estimator_cases import blobs


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
