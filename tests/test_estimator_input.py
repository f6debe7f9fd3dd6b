"""The classifier's X and y in every form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from gll.estimator import GraphLearningClassifier
from gll.points import KnownSimilarities, SparsePoints
from tests.estimator_cases import blobs, self_tuned

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
