"""Heads: what each computes, where its gradient goes, what WNLL freezes, and how they classify at test time."""

from __future__ import annotations

import copy
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torch.nn import functional as F

import gll
from gll.data import load, normalize
from gll.nn import plain_heads
from gll.nn.encoders import Encoder, create_encoder
from gll.nn.heads import HEADS, AbstractHead, GLLHead, MLPHead, Switch, WNLLHead, create_head

C, D = 4, 6
TRAINING = ["mlp", "linear", "gll", "gll-projection", "wnll"]


def samples(n: int, seed: int = 0, device: Any = "cpu", dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Overlapping clusters, every class present."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % C
    centers = torch.randn(C, D, generator=torch.Generator().manual_seed(99))
    x = centers[y] + 0.7 * torch.randn(n, D, generator=generator)
    return x.to(device, dtype), y.to(device)


def make(name: str, **options: Any) -> AbstractHead:
    if name == "gll-projection":
        name, options = "gll", {"projection": 5} | options
    if name in ("gll", "wnll"):
        options = {"k": 5} | options
    return create_head(name, D, C, **options)


def network() -> Encoder:
    """Four layers with normalisation between; made for D-dimensional points."""
    layers = nn.Sequential(
        *(nn.Linear(D, 8), nn.BatchNorm1d(8), nn.ReLU()),
        *(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()),
        *(nn.Linear(8, D), nn.BatchNorm1d(D)),
    )
    return Encoder(layers, D, D, points=True)


def step(encoder: nn.Module, head: AbstractHead, x: Tensor, y: Tensor, m: int = 20) -> Tensor:
    """The loss of a batch whose first m samples are the base."""
    z = encoder(x)
    return head.loss(head(z[m:], z[:m], y[:m]), y[m:])


def moved(old: dict[str, Tensor], new: dict[str, Tensor]) -> set[str]:
    return {name for name in old if not torch.equal(old[name], new[name])}


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


# Names and counts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dim", "options", "number"),
    [
        ("mlp", 512, {}, 332_778),
        ("mlp", 64, {}, 16_938),
        ("mlp", 128, {"hidden": 1024}, 142_346),
        ("linear", 200, {}, 2_010),
        ("probe", 512, {}, 5_130),
        ("gll", 512, {}, 0),
        ("gll", 512, {"projection": 128}, 512 * 513 + 513 * 128),
        ("wnll", 512, {}, 5_130),
        ("wnll", 512, {"classifier": "mlp"}, 332_778),
        ("knn", 512, {}, 0),
    ],
)
def test_number_of_parameters(name: str, dim: int, options: dict[str, Any], number: int) -> None:
    assert sum(p.numel() for p in create_head(name, dim, 10, **options).parameters()) == number


def test_mlp_is_the_papers() -> None:
    head, x = MLPHead(D, C), torch.randn(7, D)
    w = list(head.parameters())
    assert [p.shape[0] for p in w[::2]] == [D, 128, 32, C]
    y = x
    for weight, bias in zip(w[:-2:2], w[1:-2:2], strict=True):
        y = F.relu(F.linear(y, weight, bias))
    torch.testing.assert_close(head(x), F.linear(y, w[-2], w[-1]))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("softmax", {}, "unknown head 'softmax'; choose one of mlp, linear, gll, wnll, knn, probe"),
        ("linear", {"hidden": 3}, "head 'linear' has no option 'hidden'; its options: none"),
        ("gll", {"epsilon": 3}, "no option 'epsilon'; its options: k, tau, equation, bandwidth"),
        ("gll", {"equation": "heat"}, "unknown equation 'heat'; choose one of laplace"),
        ("gll", {"equation": "poisson", "tau": 0.1}, "Poisson's equation has no tau"),
        ("wnll", {"classifier": "forest"}, "unknown classifier 'forest'; choose one of linear, mlp"),
        ("wnll", {"stage1": 0, "stage2": 0}, "stages need a number of epochs"),
        ("knn", {"k": 0}, "k must be at least 1"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_head(name, D, C, **options)


@pytest.mark.parametrize("name", ["feature_dim", "num_classes"])
def test_sizes_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        create_head("mlp", **{"feature_dim": 3, "num_classes": 3, name: 0})


def test_who_uses_a_base_and_who_trains() -> None:
    heads = {name: make(name) for name in HEADS}
    assert {name for name, head in heads.items() if head.uses_base} == {"gll", "knn"}
    assert {name for name, head in heads.items() if not head.trains_encoder} == {"knn", "probe"}


# Gradients -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAINING)
def test_gradients_reach_every_parameter(name: str, device: torch.device) -> None:
    encoder, head = network().to(device), make(name).to(device)
    head.start_epoch(0, encoder)
    step(encoder, head, *samples(60, device=device)).backward()
    for which, module in (("encoder", encoder), ("head", head)):
        for parameter_name, p in module.named_parameters():
            # What a normalisation takes away has no gradient: the bias before it.
            if which == "encoder" and parameter_name in {"layers.0.bias", "layers.3.bias", "layers.6.bias"}:
                continue
            assert p.grad is not None, (which, parameter_name)
            assert p.grad.abs().max() > 1e-7, (which, parameter_name)


def test_the_probe_leaves_the_encoder_alone() -> None:
    encoder, head = network(), make("probe")
    step(encoder, head, *samples(60)).backward()
    assert all(p.grad is None for p in encoder.parameters())
    assert all(p.grad is not None and bool(p.grad.any()) for p in head.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("options", "layer"),
    [
        ({}, gll.GraphLearningLayer(C, k=25)),
        ({"k": 7, "tau": 0.3}, gll.GraphLearningLayer(C, k=7, equation=gll.Laplace(tau=0.3))),
        ({"bandwidth": 2, "normalize": False}, gll.GraphLearningLayer(C, bandwidth=gll.Constant(2.0), normalize=False)),
        ({"equation": "poisson"}, gll.GraphLearningLayer(C, equation=gll.Poisson())),
        ({"equation": "soft"}, gll.GraphLearningLayer(C, equation=gll.SoftLaplace())),
        ({"equation": "p-laplace", "k": 5}, gll.GraphLearningLayer(C, k=5, equation=gll.PLaplace())),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_gll_is_the_layer(options: dict[str, Any], layer: gll.GraphLearningLayer, dtype: torch.dtype) -> None:
    x, y = samples(60, dtype=dtype)
    grads = []
    for which in (layer, create_head("gll", D, C, **options)):
        z = x.clone().requires_grad_()
        out = which(z[20:], z[:20], y[:20])
        loss = which.loss(out, y[20:]) if isinstance(which, GLLHead) else -out[torch.arange(40), y[20:]].mean()
        loss.backward()
        grads.append((out.detach(), loss.detach(), z.grad))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_projection_comes_before_the_graph() -> None:
    head = make("gll-projection")
    assert isinstance(head, GLLHead)
    assert head.projection is not None
    x, y = samples(60)
    projected = head.projection(x)
    expected = gll.GraphLearningLayer(C, k=5)(projected[20:], projected[:20], y[:20])
    torch.testing.assert_close(head(x[20:], x[:20], y[:20]), expected)


def test_the_loss_of_gll_sees_the_mass_that_tau_loses() -> None:
    head, (x, y) = make("gll", tau=0.5), samples(60)
    logits = head(x[20:], x[:20], y[:20])
    torch.testing.assert_close(head.loss(logits, y[20:]), -logits.gather(1, y[20:, None]).mean())
    assert head.loss(logits, y[20:]) > F.cross_entropy(logits, y[20:]) + 0.01


# WNLL ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classifier", ["linear", "mlp"])
def test_wnll_has_the_graphs_value_and_a_borrowed_gradient(classifier: str, device: torch.device) -> None:
    head = create_head("wnll", D, C, k=5, stage1=0, classifier=classifier).to(device)
    assert isinstance(head, WNLLHead)
    x, y = samples(60, device=device)
    x.requires_grad_()
    seen = head.body(x)
    logits = head(x[20:], x[:20], y[:20])
    # The value: Laplace's equation on the graph reweighted by WNLL, put together by hand.
    known = torch.where(torch.arange(60, device=device) < 20, y, -1)
    labels = gll.Labels.from_classes(known, num_classes=C)
    graph = gll.reweight.wnll(gll.knn_graph(F.normalize(seen.detach()), k=5), labels)
    u = gll.solve(gll.Laplace(), graph, labels).value[20:]
    torch.testing.assert_close(logits, torch.log(u + 1e-8), rtol=1e-4, atol=1e-5)
    # The gradient: softmax of the graph's value less the target, through the last layer, less its part along `seen`.
    head.loss(logits, y[20:]).backward()
    error = (torch.softmax(logits.detach(), 1) - F.one_hot(y[20:], C)) / 40
    direction = F.normalize(seen[20:].detach())
    borrowed = error @ head.last.weight.detach()
    borrowed -= (borrowed * direction).sum(1, keepdim=True) * direction
    z = x.detach().clone().requires_grad_()
    head.body(z[20:]).backward(borrowed)
    torch.testing.assert_close(x.grad, z.grad, rtol=1e-4, atol=1e-6)
    assert bool(x.grad[20:].any())
    assert not bool(x.grad[:20].any())  # the base has a label, and no gradient


def test_wnll_alternates() -> None:
    encoder, head = network(), make("wnll", stage1=3, stage2=2)
    stages = []
    for epoch in range(11):
        head.start_epoch(epoch, encoder)
        stages.append(head.uses_base)
    assert stages == [False, False, False, True, True] * 2 + [False]
    usual = create_head("wnll", D, C)
    stages = []
    for epoch in range(2 * 405):
        usual.start_epoch(epoch, encoder)
        stages.append(usual.uses_base)
    assert [e for e in range(2 * 405) if stages[e]] == [400, 401, 402, 403, 404, 805, 806, 807, 808, 809]


def test_wnll_stage_one_is_the_classifier() -> None:
    torch.manual_seed(1)
    head = make("wnll")
    torch.manual_seed(1)
    plain, (x, y) = make("linear"), samples(60)
    assert torch.equal(head(x), plain(x))
    assert torch.equal(head.loss(head(x), y), plain.loss(plain(x), y))


@pytest.mark.parametrize("classifier", ["linear", "mlp"])
def test_wnll_freezes_all_but_two_layers(classifier: str) -> None:
    encoder, head = network(), make("wnll", stage1=1, stage2=2, classifier=classifier)
    encoder.layers[0].bias.requires_grad_(False)  # frozen by its owner: must stay so
    wanted = {name: p.requires_grad for name, p in encoder.named_parameters()}
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1, momentum=0.9, weight_decay=0.1)
    x, y = samples(60)
    stages = []
    for epoch in range(4):
        head.start_epoch(epoch, encoder)
        encoder.train()  # as trainers do, at any time
        head.train()
        before = state(encoder) | {f"head.{name}": value for name, value in state(head).items()}
        for _ in range(2):
            loss = step(encoder, head, x, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)  # a zero gradient would let momentum and weight decay act
        stages.append(moved(before, state(encoder) | {f"head.{name}": value for name, value in state(head).items()}))
    everything = set(before) - {"layers.0.bias"}
    # Two layers, and what is registered after the first of them; not the layer that lends its gradient.
    places = [f"layers.{i}." for i in (3, 4, 6, 7)] if classifier == "linear" else ["head.body.2.", "head.body.4."]
    last = {name for name in before if name.startswith(tuple(places))}
    assert last
    assert stages == [everything, last, last, everything]
    assert {name: p.requires_grad for name, p in encoder.named_parameters()} == wanted
    assert all(p.requires_grad for p in head.parameters())


def test_released_normalisation_is_in_the_mode_of_its_network() -> None:
    encoder, head = network(), make("wnll", stage1=1, stage2=1)
    norms = [m for m in encoder.modules() if isinstance(m, nn.BatchNorm1d)]
    head.start_epoch(1, encoder)
    encoder.train()
    encoder(samples(10)[0])
    assert [n.training for n in norms] == [False, True, True]
    head.release()
    assert [n.training for n in norms] == [True, True, True]
    head.start_epoch(1, encoder)
    encoder.eval()
    head.start_epoch(2, encoder)
    assert [n.training for n in norms] == [False, False, False]
    encoder.train()
    encoder(samples(10)[0])
    assert [n.training for n in norms] == [True, True, True]


def test_starting_the_same_epoch_twice_freezes_once() -> None:
    encoder, head = network(), make("wnll", stage1=1, stage2=1)
    for _ in range(2):
        head.start_epoch(1, encoder)
    other = network()
    head.start_epoch(1, other)  # another network: the first is let go
    assert all(p.requires_grad for p in encoder.parameters())
    assert sum(p.requires_grad for p in other.parameters()) == 8
    assert not any(p.requires_grad for p in head.last.parameters())
    head.release()
    assert all(p.requires_grad for p in head.last.parameters())
    assert all(p.requires_grad for p in other.parameters())
    assert not any(m._forward_pre_hooks for m in [*encoder.modules(), *other.modules()])


def test_copies_in_the_second_stage() -> None:
    both = nn.ModuleList([network(), make("wnll", stage1=1, stage2=1)])
    both[1].start_epoch(1, both[0])
    encoder, head = copy.deepcopy(both)
    head.start_epoch(2, encoder)
    assert all(p.requires_grad for p in encoder.parameters())
    assert not any(m._forward_pre_hooks for m in encoder.modules())
    assert not all(p.requires_grad for p in both[0].parameters())


def test_wnll_needs_two_layers() -> None:
    with pytest.raises(ValueError, match="2 layers were to stay free, but the network has 1"):
        make("wnll", stage1=0).start_epoch(0, nn.Linear(D, D))


def test_a_second_stage_leaves_the_classifier_as_good_as_it_was() -> None:
    """Nothing may grow without end while a graph classifies: the loss of the graph falls, that of stage 1 stays low."""
    data = load("digits")
    x, y = normalize(data.train, data)[:600], data.train_labels[:600]
    encoder = create_encoder("digits-cnn", in_channels=1)
    head = create_head("wnll", encoder.feature_dim, 10, stage1=40, stage2=60)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.003)
    losses, lengths = [], []
    for epoch in range(101):
        head.start_epoch(epoch, encoder)
        batch = torch.randperm(600)[:200]
        loss = step(encoder, head, x[batch], y[batch], m=100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        lengths.append(encoder(x).norm(dim=1).mean().item())
    assert losses[39] < 0.1
    assert sum(losses[90:100]) < 0.7 * sum(losses[40:50])
    assert losses[100] < 0.06
    assert lengths[99] < 1.5 * lengths[39]


def test_wnll_asks_for_its_base() -> None:
    head = make("wnll", stage1=0)
    with pytest.raises(ValueError, match="second stage"):
        head(samples(10)[0])


# Switch --------------------------------------------------------------------------------------------------------------


def test_switch() -> None:
    encoder, head = network(), Switch(make("mlp"), make("gll", tau=0.2), at=2)
    x, y = samples(60)
    used = []
    for epoch in range(4):
        head.start_epoch(epoch, encoder)
        used.append(head.uses_base)
        expected = head.first(x[20:]) if epoch < 2 else head.second(x[20:], x[:20], y[:20])
        logits = head(x[20:], x[:20], y[:20])
        assert torch.equal(logits, expected)
        assert torch.equal(head.loss(logits, y[20:]), head.active.loss(expected, y[20:]))
    assert used == [False, False, True, True]
    fresh = Switch(make("mlp"), make("gll", tau=0.2), at=2)
    assert fresh.active is fresh.first
    fresh.load_state_dict(head.state_dict())
    assert fresh.active is fresh.second
    assert torch.equal(fresh.classify(x[20:], x[:20], y[:20]), head.second.classify(x[20:], x[:20], y[:20]))


def test_switch_lets_go_and_counts_anew() -> None:
    encoder = network()
    head = Switch(make("wnll", stage1=0), make("wnll", stage1=2, stage2=1), at=1)
    head.start_epoch(0, encoder)
    assert head.uses_base
    frozen = []
    for epoch in range(1, 5):
        head.start_epoch(epoch, encoder)
        frozen.append(not all(p.requires_grad for p in encoder.parameters()))
    assert frozen == [False, False, True, False]


def test_switch_at_zero_and_before() -> None:
    assert Switch(make("mlp"), make("gll"), at=0).uses_base
    assert not Switch(make("mlp"), make("probe"), at=0).trains_encoder
    with pytest.raises(ValueError, match="at least 0"):
        Switch(make("mlp"), make("gll"), at=-1)


# Test time -----------------------------------------------------------------------------------------------------------


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


# Learning ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*TRAINING, "probe"])
def test_loss_falls_on_digits(name: str) -> None:
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32)[:300, None] / 16
    y = torch.tensor(data.target)[:300]
    encoder = create_encoder("digits-cnn", in_channels=1)
    options: dict[str, Any] = {"stage1": 12, "stage2": 3} if name == "wnll" else {}
    options |= {"projection": 16} if name == "gll-projection" else {}
    head = create_head("gll" if name == "gll-projection" else name, encoder.feature_dim, 10, **options)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.003)
    losses = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(15):
            head.start_epoch(epoch, encoder)
            loss = step(encoder, head, x, y, m=100)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[11] < (0.9 if name == "probe" else 0.6) * losses[0], losses


def test_the_lightning_example(tmp_path: Path) -> None:
    """The text of the page, run as it stands."""
    with warnings.catch_warnings():  # Lightning advises on workers, loggers and checkpoints
        warnings.simplefilter("ignore")
        lightning = pytest.importorskip("lightning")
        page = (Path(__file__).parent.parent / "docs" / "replace-your-head.md").read_text()
        (source,) = re.findall(r"^```text\n(import lightning.*?)^```$", page, re.MULTILINE | re.DOTALL)
        names: dict[str, Any] = {}
        exec(source, names)
        data = load("digits")
        x, x_test = normalize(data.train, data), normalize(data.test, data)
        torch.manual_seed(0)
        module = names["GraphClassifier"](create_encoder("digits-cnn", in_channels=1), x, data.train_labels, 10)
        quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
        trainer = lightning.Trainer(
            max_epochs=3, accelerator="cpu", enable_model_summary=False, default_root_dir=tmp_path, **quiet
        )
        tests = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x_test, data.test_labels), batch_size=355)
        trainer.fit(module, val_dataloaders=tests)
    assert trainer.callback_metrics["accuracy"] > 0.93
