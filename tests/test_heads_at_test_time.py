"""Heads at test time: log-probabilities on one graph, by themselves, in chunks, and what is refused."""

from __future__ import annotations

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torch.nn import functional as F

import gll
from gll.nn import plain_heads
from gll.nn.heads import HEADS, MLPHead
from tests.head_cases import C, D, make, network, samples, step


@pytest.mark.parametrize("name", [*HEADS, "gll-projection"])
@pytest.mark.parametrize("inductive", [False, True], ids=["transductive", "inductive"])
def test_log_probabilities(name: str, inductive: bool, device: torch.device) -> None:
    head = make(name).to(device)
    (x, _), (base, y), (other, _) = (samples(n, seed=n, device=device) for n in (30, 80, 50))
    x.requires_grad_()
    out = head.classify(x, base, y, unlabelled_features=other, inductive=inductive)
    assert out.shape == (30, C)
    assert not out.requires_grad
    torch.testing.assert_close(out.exp().sum(1), torch.ones(30, device=device))


@pytest.mark.parametrize("name", ["gll", "wnll"])
def test_one_large_graph(name: str, device: torch.device) -> None:
    """Labelled, unlabelled and test samples, k = 50, τ = 1e-8: put together by hand."""
    (x, _), (base, y), (other, _) = (samples(n, seed=n, device=device) for n in (300, 80, 250))
    out = make(name).to(device).classify(x, base, y, unlabelled_features=other)
    nodes = F.normalize(torch.cat([x, other, base]).double())  # another order, and another precision
    known = torch.cat([torch.full((550,), -1, device=device), y])
    labels = gll.Labels.from_classes(known, num_classes=C, dtype=torch.float64)
    graph = gll.knn_graph(nodes, k=50)
    if name == "wnll":
        graph = gll.reweight.wnll(graph, labels)
    u = gll.solve(gll.Laplace(tau=1e-8), graph, labels).value[:300]
    torch.testing.assert_close(out.exp().double(), u / u.sum(1, keepdim=True), rtol=1e-3, atol=1e-5)


def test_test_time_options() -> None:
    (x, _), (base, y) = samples(60, seed=1), samples(80, seed=2)
    out = make("gll", test_k=9, test_tau=0.1).classify(x, base, y)
    layer = gll.GraphLearningLayer(C, k=9, equation=gll.Laplace(tau=0.1))
    torch.testing.assert_close(out, torch.log_softmax(layer(x, base, y), 1))


def test_unlabelled_samples_shape_the_graph() -> None:
    (x, _), (base, y), (other, _) = (samples(n, seed=n) for n in (30, 80, 50))
    head = make("gll")
    assert not torch.allclose(head.classify(x, base, y), head.classify(x, base, y, unlabelled_features=other))


def test_inductive_answers_do_not_depend_on_each_other() -> None:
    (x, _), (base, y), (other, _) = (samples(n, seed=n) for n in (30, 80, 50))
    for name in ("gll", "wnll"):
        head = make(name)
        together = head.classify(x, base, y, unlabelled_features=other, inductive=True)
        alone = head.classify(x[:7], base, y, unlabelled_features=other, inductive=True)
        torch.testing.assert_close(together[:7], alone, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(head.classify(x, base, y)[:7], head.classify(x[:7], base, y), atol=1e-4)


@pytest.mark.parametrize("name", ["mlp", "probe", "gll-projection", "wnll"])
def test_chunks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (x, _), (base, y) = samples(30, seed=1), samples(80, seed=2)
    head = make(name, **{"classifier": "mlp"} if name == "wnll" else {})
    whole = head.classify(x, base, y)
    monkeypatch.setattr(plain_heads, "CHUNK", 7)
    torch.testing.assert_close(head.classify(x, base, y), whole)
    if name == "mlp":
        torch.testing.assert_close(whole, torch.log_softmax(head(x), 1).detach())


def test_nearest_neighbours_are_scikit_learns() -> None:
    (x, _), (base, y) = samples(200, seed=1), samples(80, seed=2)
    reference = KNeighborsClassifier(n_neighbors=7, metric="cosine").fit(base.numpy(), y.numpy())
    out = make("knn", k=7).classify(x, base, y)
    torch.testing.assert_close(out.exp(), torch.tensor(reference.predict_proba(x.numpy())).float())
    torch.testing.assert_close(torch.log_softmax(make("knn", k=7)(x, base, y), 1), out)


def test_fewer_samples_than_neighbours() -> None:
    (x, _), (base, y) = samples(3, seed=1), samples(4, seed=2)
    for name in HEADS:
        assert make(name).classify(x, base, y).shape == (3, C)


def test_half_precision_features_and_autocast() -> None:
    (x, _), (base, y) = samples(30, seed=1), samples(80, seed=2)
    for name in HEADS:
        head = make(name)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = head.classify(x.bfloat16(), base.bfloat16(), y)
        assert out.dtype == torch.float32
        torch.testing.assert_close(out, head.classify(x.bfloat16().float(), base.bfloat16().float(), y))


@pytest.mark.parametrize("name", HEADS)
def test_training_under_autocast(name: str) -> None:
    encoder, head = network(), make(name, **{"stage1": 0} if name == "wnll" else {})
    x, y = samples(60)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = step(encoder, head, x, y)
    assert bool(torch.isfinite(loss))
    assert loss.requires_grad == (name != "knn")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.zeros(3, dtype=torch.long)}, r"80 labelled features need \(80,\) labels, got \(3,\)"),
        ({"features": torch.full((5, D), torch.nan)}, "test features"),
        ({"labelled_features": torch.full((80, D), torch.inf)}, "labelled features"),
        ({"unlabelled_features": torch.full((2, D), torch.inf)}, "unlabelled features"),
    ],
)
def test_classify_refuses(change: dict[str, Tensor], message: str, as_user: None) -> None:
    (x, _), (base, y) = samples(5), samples(80)
    arguments = {"features": x, "labelled_features": base, "labels": y} | change
    with pytest.raises(ValueError, match=message):
        make("gll").classify(**arguments)


def test_no_labelled_samples() -> None:
    (x, _), (_, y) = samples(5), samples(8)
    for name in HEADS:
        head = make(name)
        if name in ("mlp", "linear", "probe"):
            assert torch.equal(head.classify(x, x[:0], y[:0]), head.classify(x, x[:1], y[:1]))
        else:
            with pytest.raises(ValueError, match="give at least one"):
                head.classify(x, x[:0], y[:0], unlabelled_features=x)
            empty = head.classify(x, x, y[:5], unlabelled_features=x[:0])
            assert torch.equal(empty, head.classify(x, x, y[:5]))


def test_diverged_weights_are_named() -> None:
    head, (x, y) = make("linear"), samples(20)
    assert isinstance(head, MLPHead)
    nn.init.constant_(head.layers[0].bias, torch.nan)
    with pytest.raises(ValueError, match="not finite: its weights have diverged"):
        head.classify(x, x, y)


def test_labels_of_nearest_neighbours_are_classes() -> None:
    head, (x, y) = make("knn"), samples(20)
    with pytest.raises(ValueError, match="classes from 0 to 3"):
        head.classify(x, x, y - 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gll", "wnll"])
def test_many_samples(name: str, device: torch.device) -> None:
    centers = torch.randn(C, D, generator=torch.Generator().manual_seed(99)).to(device)
    drawn = [samples(n, seed=n, device=device) for n in (10_000, 1_000, 59_000)]
    (x, target), (base, y), (other, _) = [(centers[y] + (x - centers[y]) / 2, y) for x, y in drawn]
    out = make(name).classify(x, base, y, unlabelled_features=other)
    # Compare with the best one can do, the nearest true center; the graph sees directions only, and loses a little.
    best = (torch.cdist(x, centers).argmin(1) == target).double().mean()
    found = (out.argmax(1) == target).double().mean()
    assert best > 0.98
    assert found > best - 0.03, (found, best)
