"""The WNLL head: the value of the graph, a borrowed gradient, two stages in turns, layers held still."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gll
from gll.data import load, normalize
from gll.nn.encoders import create_encoder
from gll.nn.heads import WNLLHead, create_head
from tests.head_cases import C, D, make, network, samples, step


def moved(old: dict[str, Tensor], new: dict[str, Tensor]) -> set[str]:
    return {name for name in old if not torch.equal(old[name], new[name])}


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


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
