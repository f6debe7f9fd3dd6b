"""The classifier when something is wrong, stopped or worth telling."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import gll
import gll.projected
from gll.estimator import GraphLearningClassifier
from tests.estimator_cases import blobs


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
