"""Stored classifiers: what comes back is what was saved, to the bit; anything else is refused, and nothing is run."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.datasets import make_blobs

import gll
import gll.projected
from gll.estimator import GraphLearningClassifier
from gll.methods import METHODS, AbstractMethod, Answer, Request
from gll.store import StoreError, _checksum


def data(n: int = 50) -> tuple[Any, Any]:
    x, truth = make_blobs(n, centers=[[0, 0], [3, 0], [0, 3]], random_state=0)
    return x, np.where(np.arange(n) < 15, truth, -1)


def fitted(**options: Any) -> GraphLearningClassifier:
    return GraphLearningClassifier(**{"method": "laplace", **options}).fit(*data())


def same(one: GraphLearningClassifier, two: GraphLearningClassifier, new: Any) -> None:
    np.testing.assert_array_equal(one.predict_proba(new), two.predict_proba(new))
    for name, value in vars(one).items():
        if isinstance(value, np.ndarray):
            other = getattr(two, name)
            assert other.dtype == value.dtype
            np.testing.assert_array_equal(other, value)
    assert one.temperature_ == two.temperature_
    assert one.n_iter_ == two.n_iter_
    assert one.n_unreached_ == two.n_unreached_
    assert one.description_ == two.description_
    assert repr(one) == repr(two)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "poisson", "calibrate": True, "class_prior": {0: 0.2, 1: 0.3, 2: 0.5}, "random_state": 3},
        {"method": "soft", "method_options": {"lam": 2.0}, "metric": "cosine"},
        {"method": METHODS["laplace"](tau=0.1), "search": gll.Exact(max_bytes=1 << 20)},
        {"solver": gll.solvers.ConjugateGradient(rtol=1e-8)},
        {"solver": gll.solvers.Auto(rtol=1e-8), "search": gll.projected.AutoSearch()},
    ],
)
def test_predictions_come_back_to_the_bit(tmp_path: Path, options: dict[str, Any]) -> None:
    model = fitted(**options)
    model.save(tmp_path / "model.gll")
    again = GraphLearningClassifier.load(tmp_path / "model.gll")
    x, _ = data()
    same(model, again, np.concatenate([x, x + 0.1]))
    model.update_labels([20, 21], [0, 1])
    again.update_labels([20, 21], [0, 1])
    same(model, again, x + 0.1)
    assert [p.name for p in tmp_path.iterdir()] == ["model.gll"]  # no temporary file is left


@pytest.mark.parametrize("names", [["ant", "bee", "öre"], [-7, 3, 12], [0.0, 1.0, 4.0]])
def test_classes_of_every_type_survive(tmp_path: Path, names: list[Any]) -> None:
    x, y = data()
    for given in (np.array([None if v < 0 else names[v] for v in y], object), [None if v < 0 else names[v] for v in y]):
        model = GraphLearningClassifier("laplace").fit(x, given)
        model.save(tmp_path / "model")
        same(model, GraphLearningClassifier.load(tmp_path / "model"), x + 0.1)


def test_names_weights_copies_and_unreached_rows_survive(tmp_path: Path) -> None:
    x, y = data()
    weight = np.ones(len(x))
    weight[[30, 31]] = [0, 3]
    frame = pd.DataFrame(np.concatenate([x, x[40:]]), columns=["left", "right"])
    model = GraphLearningClassifier("laplace").fit(
        frame, np.concatenate([y, np.full(10, -1)]), sample_weight=np.concatenate([weight, np.ones(10)])
    )
    model.save(tmp_path / "model")
    again = GraphLearningClassifier.load(tmp_path / "model")
    same(model, again, frame + 0.1)
    assert again.feature_names_in_.tolist() == ["left", "right"]
    away = np.concatenate([x, x[:12] + 1e4])
    with pytest.warns(gll.UnreachedWarning):
        lost = GraphLearningClassifier("laplace", n_neighbors=3).fit(away, np.concatenate([y, np.full(12, -1)]))
    lost.save(tmp_path / "lost")
    same(lost, GraphLearningClassifier.load(tmp_path / "lost"), away + 0.1)
    assert lost.n_unreached_ == 12


def test_sparse_and_precomputed_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gll.feature_input.DENSE_BYTES", 0)
    x = scipy.sparse.random(60, 200, 0.1, random_state=0, format="csr")
    y = np.where(np.arange(60) < 9, np.arange(60) % 3, -1)
    for dtype in (np.float32, np.float64):
        model = GraphLearningClassifier("laplace", metric="cosine").fit(x.astype(dtype), y)
        model.save(tmp_path / "sparse")
        same(model, GraphLearningClassifier.load(tmp_path / "sparse"), x[:20] * 1.5)
    w = model.graph_.to_scipy()
    known = GraphLearningClassifier("poisson", metric="precomputed").fit(w, y)
    known.save(tmp_path / "known")
    same(known, GraphLearningClassifier.load(tmp_path / "known"), w[:20])


def test_a_cut_off_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "model"
    fitted().save(path)
    whole = path.read_bytes()
    for length in (0, 4, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match=rf"\({length} bytes\) is cut off, damaged, or no stored classifier"):
            GraphLearningClassifier.load(path)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError, match="there is no file"):
        GraphLearningClassifier.load(path)
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(StoreError, match="holds tensors, but not a classifier stored by gll"):
        GraphLearningClassifier.load(path)

    class Bomb:
        def __reduce__(self) -> Any:
            return pytest.fail, ("a file was executed",)

    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(StoreError, match="no stored classifier"):
        GraphLearningClassifier.load(path)


def rewritten(path: Path, change: Any) -> None:
    """The stored file with its parts changed by a function of (tensors, about, metadata)."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = dict(file.metadata())
    about = json.loads(metadata["json"])
    change(tensors, about, metadata)
    metadata["json"] = json.dumps(about)
    metadata["sha256"] = _checksum(metadata["json"], tensors)  # made to look right
    save_file(tensors, path, metadata=metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, a, m: m.update(version="2"), "written in version 2 of the format; this gll reads version 1"),
        (lambda t, a, m: t.pop("score"), "does not fit together as a stored classifier: 'score'"),
        (lambda t, a, m: a.pop("classes"), "does not fit together"),
        (lambda t, a, m: t.update({"graph.j": t["graph.j"] + 1000}), "an index is out of range"),
        (lambda t, a, m: t.update({"graph.j": t["graph.j"][:-1].clone()}), "edges and weights differ in number"),
        (lambda t, a, m: t.update({"target.value": t["target.value"][:-1].clone()}), "labels and scores differ"),
        (lambda t, a, m: t.update({"points.features": t["points.features"][:-1].clone()}), "features and nodes differ"),
        (lambda t, a, m: a["classes"]["values"].append(9), "classes and scores differ in number"),
        (lambda t, a, m: a["classes"].update(values=[[1], [2], [3]]), "classes are not plain values"),
        (lambda t, a, m: a["method"].update(object="Popen"), "names an object 'Popen' that this gll does not know"),
        (lambda t, a, m: a["points"].update(kind="fluffy"), "points of kind 'fluffy' are not known"),
        (lambda t, a, m: a["parameters"].update(colour="red"), "does not fit together"),
        (lambda t, a, m: t.update(score=t["score"] * torch.nan), "score holds NaN or infinity"),
        (lambda t, a, m: t.update(probability=t["probability"] / 0), "probability holds NaN or infinity"),
        (lambda t, a, m: t["points.features"].fill_(torch.inf), "points.features holds NaN or infinity"),
        (lambda t, a, m: t.update(score=t["score"][0].clone()), "score has 1 dimensions instead of 2"),
        (lambda t, a, m: t.update(weight=t["weight"][:, None].clone()), "weight has 2 dimensions instead of 1"),
        (lambda t, a, m: t.update(unreached=torch.ones(3).bool()), "unreached nodes are no mask of nodes"),
        (lambda t, a, m: t.update(shift=torch.ones(7).double()), "shifts and classes differ in number"),
        (lambda t, a, m: t["node"][:2].fill_(-1), "does not fit together as a stored classifier: 'outside.index'"),
        (lambda t, a, m: a["points"].update(metric="fluffy"), "does not fit together.*unknown metric 'fluffy'"),
    ],
)
def test_changed_files_are_refused(tmp_path: Path, as_user: None, change: Any, message: str) -> None:
    path = tmp_path / "model"
    fitted().save(path)
    rewritten(path, lambda *_: None)
    GraphLearningClassifier.load(path)  # rewriting alone does no harm
    rewritten(path, change)
    with pytest.raises(StoreError, match=message):
        GraphLearningClassifier.load(path)


def test_an_interrupted_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model"
    fitted().save(path)
    before = path.read_bytes()

    def half(tensors: Any, filename: Path, metadata: Any) -> None:
        Path(filename).write_bytes(b"half a file")
        raise KeyboardInterrupt

    monkeypatch.setattr("gll.store.save_file", half)
    with pytest.raises(KeyboardInterrupt):
        fitted(method="poisson").save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    "tau", [torch.tensor(0.01), np.array(0.01), np.float64(0.01), torch.linspace(0.01, 0.1, 50).double()]
)
def test_options_of_every_type_survive(tmp_path: Path, tau: Any) -> None:
    model = fitted(method="laplace", method_options={"tau": tau})
    model.save(tmp_path / "model")
    again = GraphLearningClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(np.zeros((1, 2))), model.predict_proba(np.zeros((1, 2))))
    stored = again.get_params()["method_options"]["tau"]
    np.testing.assert_array_equal(np.asarray(stored), np.asarray(tau).astype(np.asarray(stored).dtype))
    again.update_labels([0], [0])
    np.testing.assert_array_equal(again.label_distributions_, model.update_labels([0], [0]).label_distributions_)


def test_a_missing_device_is_named(tmp_path: Path) -> None:
    fitted().save(tmp_path / "model")
    with pytest.raises(ValueError, match="unknown device 'gpu'"):
        GraphLearningClassifier.load(tmp_path / "model", device="gpu")
    with pytest.raises(ValueError, match="the device 'cuda:99' is not available"):
        GraphLearningClassifier.load(tmp_path / "model", device="cuda:99")


def test_what_cannot_be_stored_says_so(tmp_path: Path) -> None:
    class Mine(AbstractMethod):
        def find(self, request: Request) -> Answer:
            return METHODS["laplace"]().find(request)

    with pytest.raises(TypeError, match=r"the parameter method .* cannot be stored"):
        fitted(method=Mine()).save(tmp_path / "model")
    with pytest.raises(FileNotFoundError, match=r"the folder .* does not exist"):
        fitted().save(tmp_path / "nowhere" / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_byte_changed_anywhere_is_noticed(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.full(60, -1)
    y[:6] = [0, 1, 2, 0, 1, 2]
    path = tmp_path / "model.gll"
    gll.GraphLearningClassifier("laplace", n_neighbors=5).fit(x, y).save(path)
    whole = path.read_bytes()
    for place in np.linspace(8, len(whole) - 1, 40).astype(int):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        with pytest.raises(StoreError):
            gll.GraphLearningClassifier.load(path)
