"""FGSM, IFGSM and PGD: against their formulas, against each other, against foolbox; and gradients through the layer."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import gll
from gll.attacks import DLR, FGSM, IFGSM, L2, PGD, CrossEntropy, LInf, Margin, Normalised
from gll.attacks.gradient import input_gradient
from tests.plain_victim import digits_network

EPS = 0.1


def gradient_by_hand(model, x, y):
    """Of the cross-entropy of a two-layer network with ReLU, by the chain rule."""
    first, last = model[1], model[3]
    before = x.flatten(1) @ first.weight.T + first.bias
    p = torch.softmax(before.clamp(min=0) @ last.weight.T + last.bias, 1)
    back = (p - torch.eye(10, dtype=x.dtype)[y]) @ last.weight
    return ((back * (before > 0)) @ first.weight).view_as(x)


def test_fgsm_is_its_formula():
    model, x, y = digits_network()
    result = FGSM(EPS)(model, x, y)
    expected = (x + EPS * gradient_by_hand(model, x, y).sign()).clamp(0, 1)
    right = model(x).argmax(1) == y
    torch.testing.assert_close(result.images[right], expected[right])


def test_fgsm_in_l2_is_its_formula():
    model, x, y = digits_network()
    result = FGSM(EPS, norm=L2())(model, x, y)
    gradient = gradient_by_hand(model, x, y)
    step = EPS * gradient / gradient.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    right = model(x).argmax(1) == y
    torch.testing.assert_close(result.images[right], (x + step).clamp(0, 1)[right])


def test_ifgsm_is_its_formula():
    """clip_{x,ε}{z} = min{1, x + ε, max{0, x - ε, z}}, as the paper writes it, to the last iterate."""
    model, x, y = digits_network()
    result = IFGSM(EPS, alpha=0.03)(model, x, y)
    z = x
    for _ in range(16):  # 5·0.1/0.03 = 16.7
        z = z + 0.03 * gradient_by_hand(model, z, y).sign()
        z = torch.minimum(torch.maximum(z, (x - EPS).clamp(min=0)), (x + EPS).clamp(max=1))
    assert result.settings["steps"] == 16
    right = model(x).argmax(1) == y
    torch.testing.assert_close(result.images[right], z[right])


@pytest.mark.parametrize("eps", [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 1.0])
def test_ifgsm_takes_the_papers_number_of_steps(eps):
    whole = round(100 * eps)
    assert IFGSM(eps, 0.05).settings()["steps"] == whole
    for data in ("mnist", "fashionmnist", "cifar10"):
        attack = IFGSM(Normalised(data, eps).pixels, Normalised(data, 0.05).pixels)
        assert attack.settings()["steps"] == whole


def test_more_steps_are_at_least_as_strong():
    model, x, y = digits_network()
    for norm, eps in ((LInf(), 0.08), (L2(), 0.4)):
        one = FGSM(eps, norm=norm)(model, x, y).success
        several = PGD(eps, steps=20, norm=norm, random_start=False)(model, x, y).success
        many = PGD(eps, steps=20, norm=norm, restarts=3)(model, x, y).success
        assert 0.1 < one.double().mean() < several.double().mean()
        assert not (one & ~several).any()
        assert many.sum() >= several.sum()


def test_loss_grows():
    model, x, y = digits_network()
    for objective in (CrossEntropy(), Margin(), DLR()):
        clean, attacked = (objective(model(i), y) for i in (x, PGD(0.05, 20, objective=objective)(model, x, y).images))
        right = model(x).argmax(1) == y
        assert (attacked > clean)[right].all()


def test_best_iterate_is_kept():
    """Steps of the length of the ball jump about: the last iterate is then often not the best."""
    model, x, y = digits_network()
    for seed in range(3):
        best, last = (
            PGD(0.1, 10, step_size=0.2, best=keep)(model, x, y, generator=torch.Generator().manual_seed(seed))
            for keep in (True, False)
        )
        assert not (last.success & ~best.success).any()
        right = (model(x).argmax(1) == y) & ~best.success
        margins = [Margin()(model(result.images), y)[right] for result in (best, last)]
        assert (margins[0] >= margins[1]).all()


def test_random_starts_are_in_the_ball_and_used():
    model, x, y = digits_network()
    for norm in (LInf(), L2()):
        start = PGD(0.3, steps=1, step_size=0.0, norm=norm, best=False)(model, x, y)
        assert norm.size(start.images - x).max() <= 0.3 + 1e-12
        assert norm.size(start.images - x)[model(x).argmax(1) == y].min() > 0.05


def test_targets_reach_each_likely_class():
    """A model whose margin has no slope towards the runner-up, but towards the third class: only a target finds it."""

    class Plateau(nn.Module):
        def forward(self, x):
            flat = 0.9 * torch.ones_like(x[:, 0]) + 0 * x[:, 0]
            return torch.stack([torch.ones_like(flat), flat, 0.5 + x[:, 0]], 1)

    x, y = torch.full((1, 1), 0.2, dtype=torch.float64), torch.zeros(1, dtype=torch.long)
    options = {"steps": 10, "random_start": False}
    assert not PGD(0.4, objective=Margin(), **options)(Plateau(), x, y).success.any()
    assert not PGD(0.4, targets=1, **options)(Plateau(), x, y).success.any()
    assert PGD(0.4, targets=2, **options)(Plateau(), x, y).success.all()


def test_refused_settings(as_user):
    for make, message in [
        (lambda: PGD(EPS, steps=0), "steps ≥ 1"),
        (lambda: PGD(EPS, restarts=2, random_start=False), "2 times the same"),
        (lambda: PGD(EPS, restarts=2, best=False), "all but the last start useless"),
        (lambda: PGD(EPS, step_size=math.nan), "step_size must be a finite number"),
        (lambda: IFGSM(EPS, alpha=0.0), "alpha > 0"),
        (lambda: IFGSM(EPS, alpha=0.1, steps=0), "steps ≥ 1"),
        (lambda: IFGSM(EPS, alpha=1.0), r"none with alpha > 5·eps, got eps=0\.1 and alpha=1; .* same unit"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.filterwarnings("default")  # of the peer and of what it imports
@pytest.mark.parametrize("norm", [LInf(), L2()], ids=str)
def test_equal_to_foolbox(norm):
    foolbox = pytest.importorskip("foolbox")
    model, x, y = digits_network()
    peer = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    right = model(x).argmax(1) == y
    x, y = x[right], y[right]
    fast, steps = {
        "LInf": (foolbox.attacks.LinfFastGradientAttack, foolbox.attacks.LinfPGD),
        "L2": (foolbox.attacks.L2FastGradientAttack, foolbox.attacks.L2PGD),
    }[type(norm).__name__]
    for eps in (0.05, 0.2):
        ours = FGSM(eps, norm=norm)(model, x, y)
        _, theirs, success = fast()(peer, x, y, epsilons=eps)
        torch.testing.assert_close(ours.images, theirs)
        assert torch.equal(ours.success, success)
        ours = PGD(eps, 10, step_size=eps / 4, random_start=False, best=False, norm=norm)(model, x, y)
        _, theirs, success = steps(steps=10, abs_stepsize=eps / 4, random_start=False)(peer, x, y, epsilons=eps)
        torch.testing.assert_close(ours.images, theirs)
        assert torch.equal(ours.success, success)


# Through the layer


class GraphModel(nn.Module):
    def __init__(self, inductive: bool) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.Tanh()).double()
        self.layer = gll.GraphLearningLayer(3, k=4, inductive=inductive)
        with torch.no_grad():
            base = self.encoder(torch.rand(9, 2, 2, dtype=torch.float64))
        self.layer.set_base(base, torch.arange(9) % 3)

    def forward(self, images):
        return self.layer(self.encoder(images))


@pytest.mark.parametrize("inductive", [False, True])
@pytest.mark.parametrize("objective", [CrossEntropy(), Margin(), DLR()], ids=str)
def test_gradients_through_the_layer(objective, inductive):
    model = GraphModel(inductive)
    x, y = torch.rand(2, 2, 2, dtype=torch.float64, requires_grad=True), torch.tensor([0, 2])
    assert torch.autograd.gradcheck(lambda x: objective(model(x), y), x)
    gradient, logits = input_gradient(model, x, y, objective)
    (expected,) = torch.autograd.grad(objective(model(x), y).sum(), x)
    torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close(logits, model(x).detach())
    assert gradient.abs().max() > 0


@pytest.mark.parametrize("inductive", [False, True])
def test_a_graph_head_is_attacked(inductive):
    model = GraphModel(inductive)
    x = torch.rand(12, 2, 2, dtype=torch.float64)
    y = model(x).argmax(1)
    result = PGD(0.5, 8, objective=Margin())(model, x, y)
    assert result.error > 0.3
    assert torch.equal(result.predicted, model(result.images).argmax(1))


@pytest.mark.gpu
def test_the_same_on_both_devices(device):
    model, x, y = digits_network()
    there = model.to(device)
    try:
        for attack in (FGSM(EPS), PGD(EPS, 5), PGD(EPS, 5, norm=L2())):
            result = attack(there, x.to(device), y.to(device))
            assert result.images.device.type == device.type
            images = result.images.cpu()
            expected = attack(model.cpu(), x, y).images
            there = model.to(device)
            torch.testing.assert_close(images, expected)
    finally:
        model.cpu()
