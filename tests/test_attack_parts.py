"""What attacks are made of: norms, objectives and units."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gll.attacks import DLR, FGSM, L2, CrossEntropy, LInf, Margin, Normalised, Towards, sets
from gll.data.sources import SOURCES

# Norms


@pytest.mark.parametrize("norm", [LInf(), L2(), LInf((0.5, 1.0))], ids=str)
@settings(max_examples=30)
@given(values=st.lists(st.floats(-1e150, 1e150), min_size=6, max_size=6), eps=st.floats(0, 10))
def test_projection_and_direction(norm, values, eps):
    delta = torch.tensor(values, dtype=torch.float64).view(1, 2, 3)
    projected = norm.project(delta, eps)
    assert norm.size(projected)[0] <= eps * (1 + 1e-12)
    if norm.size(delta)[0] <= eps:
        assert torch.equal(projected, delta)
    torch.testing.assert_close(norm.project(projected, eps), projected)
    direction = norm.ascend(delta)
    if (delta == 0).all():
        assert (direction == 0).all()
    else:  # of size one, and the gain along it is the dual norm: no direction of size one has more
        torch.testing.assert_close(norm.size(direction)[0].item(), 1.0)
        others = norm.random(torch.zeros(200, 2, 3, dtype=torch.float64), 1.0, torch.Generator().manual_seed(0))
        slope = delta / delta.abs().max()
        assert (slope * direction).sum() >= (slope * others).flatten(1).sum(1).max() - 1e-9


def test_nearest_point_of_the_ball():
    """No point of the ball is nearer than the projection."""
    draw = torch.Generator().manual_seed(0)
    delta = torch.randn(1, 2, 3, dtype=torch.float64, generator=draw)
    for norm in (LInf(), L2(), LInf((0.5, 1.0))):
        away = (norm.project(delta, 0.5) - delta).norm()
        others = norm.random(torch.zeros(2000, 2, 3, dtype=torch.float64), 0.5, draw)
        assert away <= (others - delta).flatten(1).norm(dim=1).min()


@pytest.mark.parametrize("norm", [LInf(), L2(), LInf((0.5, 1.0))], ids=str)
def test_random_points_fill_the_ball(norm):
    """The share of a uniform ball within half its radius is 2^-d; its mean is zero."""
    points = norm.random(torch.zeros(20_000, 2, 1, dtype=torch.float64), 0.8, torch.Generator())
    size = norm.size(points)
    assert 0.79 < size.max() <= 0.8
    assert (size < 0.4).double().mean().item() == pytest.approx(0.25, abs=0.02)
    assert points.mean(0).abs().max() < 0.02


def test_tiny_and_huge_gradients_have_directions():
    for scale in (1e-44, 1e-30, 1.0, 1e30, 5e37):
        gradient = torch.tensor([[3.0, 4.0], [0.0, 0.0]]) * scale
        direction = L2().ascend(gradient)
        torch.testing.assert_close(direction[0], torch.tensor([0.6, 0.8]), atol=0.2 if scale < 1e-40 else 1e-6, rtol=0)
        assert (direction[1] == 0).all()
        assert LInf().ascend(gradient)[0].tolist() == [1, 1]


def test_scale_needs_its_channels(as_user):
    with pytest.raises(ValueError, match=r"each of 3 channels, but the images are \(6, 2, 4, 4\)"):
        FGSM(0.1, norm=LInf((1.0, 1.0, 1.0)))(nn.Flatten(), torch.rand(6, 2, 4, 4), torch.zeros(6, dtype=torch.int64))
    for scale in (0.0, -1.0, (), (1.0, math.inf)):
        with pytest.raises(ValueError, match="scale must be numbers > 0"):
            LInf(scale)


# Objectives


def test_objectives_by_hand():
    z = torch.tensor([[2.0, 5.0, 1.0, 4.0], [2.0, 5.0, 1.0, 4.0]], dtype=torch.float64)
    y = torch.tensor([1, 2])
    total = sum(math.exp(v) for v in (2, 5, 1, 4))
    expected = [math.log(total) - 5, math.log(total) - 1]
    torch.testing.assert_close(CrossEntropy()(z, y), torch.tensor(expected, dtype=torch.float64))
    assert Margin()(z, y).tolist() == [-1, 4]
    assert DLR()(z, y).tolist() == pytest.approx([-1 / 3, 4 / 3])
    assert Towards(torch.tensor([0, 0]))(z, y).tolist() == [-3, 1]


def test_dlr_is_the_one_of_autoattack():
    auto = pytest.importorskip("pyautoattack.autopgd_base")
    z, y = torch.randn(20, 5, dtype=torch.float64), torch.arange(20) % 5
    theirs = auto.APGDAttack(nn.Identity(), eps=0.1, device="cpu").dlr_loss(z, y)
    torch.testing.assert_close(DLR()(z, y), theirs)


@pytest.mark.parametrize("objective", [CrossEntropy(), Margin(), DLR(), Towards(torch.tensor([1, 2, 0, 1]))], ids=str)
def test_objectives_have_their_gradients(objective):
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: objective(z, torch.tensor([0, 1, 2, 0])), z)


@given(st.lists(st.floats(-1e30, 1e30), min_size=3, max_size=3))
def test_objectives_are_finite(row):
    z = torch.tensor([row], dtype=torch.float64, requires_grad=True)
    for objective in (CrossEntropy(), Margin(), DLR(), Towards(torch.tensor([1]))):
        value = objective(z, torch.tensor([0]))
        (gradient,) = torch.autograd.grad(value.sum(), z)
        assert torch.isfinite(value).all()
        assert torch.isfinite(gradient).all()


def test_objectives_where_logits_are_equal():
    z = torch.ones(1, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(DLR()(z, torch.tensor([0])).sum(), z)
    assert torch.isfinite(gradient).all()
    with pytest.raises(ValueError, match="DLR needs at least three classes, got 2; use Margin"):
        DLR()(z[:, :2], torch.tensor([0]))


# Units


@pytest.mark.parametrize(("name", "value"), [("mnist", 0.3), ("fashionmnist", 0.05), ("cifar10", 0.05)])
def test_normalised_units(name, value):
    """A ball of normalised images, moved to pixels by hand, is the ball of the norm and the radius."""
    length = Normalised(name, value)
    std = torch.tensor(length.std, dtype=torch.float64)[:, None, None]
    delta = torch.randn(50, len(length.std), 4, 4, dtype=torch.float64)
    by_hand = delta.clamp(-value, value) * std
    torch.testing.assert_close(length.norm.project(delta * std, length.pixels), by_hand)
    gradient = torch.randn(50, len(length.std), 4, 4)
    torch.testing.assert_close(length.pixels * length.norm.ascend(gradient), value * gradient.sign() * std.float())


def test_normalised_units_are_those_of_the_data():
    for name in ("mnist", "fashionmnist"):
        assert Normalised(name, 1.0).std == (SOURCES[name].statistics[1],)
    assert Normalised("cifar10", 1.0).std == SOURCES["cifar10"].std
    assert Normalised((0.5,), 0.1).pixels == 0.05
    with pytest.raises(ValueError, match=r"unknown data set 'imagenet'; choose one of mnist.*standard deviation"):
        Normalised("imagenet", 0.1)
    with pytest.raises(ValueError, match="must be > 0"):
        Normalised((0.5, 0.0), 0.1)


def test_what_needs_a_graph_is_left_out_of_a_list_and_refused_alone() -> None:
    """A list may be meant for several heads (experiments/worst-case); one name is meant."""
    radius = sets.Radius(0.1, LInf(), 0.01)
    plain = sets.Recipe((radius,), (radius,), (1.0,), sets.OTHER, 2, 1, 5, 3, False, False, dict, nn.Identity)
    names = "pgd,fixed,every-class,features,surrogate"
    assert set(sets.left_out(names, plain, autoattack=True)) == set(sets.NEED_GRAPH)
    assert sets.left_out("features", plain, autoattack=True) == {}
    with pytest.raises(ValueError, match="'features' needs a graph head"):
        sets.plan(["features"], plain)
    assert sets.left_out("pgd,autoattack", plain, autoattack=False) == {}, "meant, and not there: an error"
    assert set(sets.left_out("strong", plain, autoattack=False)) == {*sets.NEED_GRAPH, "autoattack", "transfer"}
