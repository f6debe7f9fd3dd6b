"""The Square attack: what its windows look like, and that it needs no gradient."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gll.attacks import FGSM, L2, PGD, AbstractNorm, LInf, Square
from gll.attacks.square import PROPOSALS, _bump, _corner, _pyramid, _sides
from tests.plain_victim import digits_network

EPS = 0.1


class Quantised(nn.Module):
    """The digits' network on pixels rounded to quarters: its gradient is zero, and it is no safer."""

    def forward(self, x):
        return digits_network()[0]((x * 4).round() / 4)


def test_no_gradient_is_needed():
    _, x, y = digits_network()
    model = Quantised()
    gradient, square = FGSM(0.15)(model, x, y), Square(0.15, queries=150)(model, x, y)
    assert gradient.zero_gradients == 1
    assert gradient.error == (gradient.clean != y).double().mean()
    assert square.error > gradient.error + 0.3


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        assert not x.requires_grad
        return digits_network()[0](x)


@pytest.mark.parametrize("norm", [LInf(), L2()], ids=str)
def test_more_queries_are_stronger_and_counted(norm):
    _, x, y = digits_network()
    eps = {"LInf": 0.1, "L2": 0.6}[type(norm).__name__]
    errors = []
    for queries in (1, 20, 200):
        model = Counting()
        errors.append(Square(eps, queries, norm)(model, x, y).error)
        assert model.calls == queries + 2  # the predictions before and after are the judge's
    clean = (digits_network()[0](x).argmax(1) != y).double().mean()
    assert clean <= errors[0] < errors[1] < errors[2]
    assert errors[2] > clean + 0.2
    strongest = PGD(eps, 40, norm=norm, restarts=3)(digits_network()[0], x, y).error
    assert errors[2] <= strongest + 0.02


def test_stops_when_all_are_wrong():
    _, x, _ = digits_network()
    model = Counting()
    result = Square(1.0, 5000)(model, x, model(x).argmax(1))
    assert result.success.all()
    assert model.calls < 2000


class Crowd(nn.Module):
    """Two images: the second has to go down to be wrong, and up once the first is wrong, from 0.5 on."""

    def forward(self, x):
        first, second = x[0, 0] - 0.5, torch.where(x[0, 0] < 0.5, 0.2 - x[1, 0], x[1, 0] - 0.55)
        return torch.stack([torch.zeros(2, dtype=x.dtype), torch.stack([first, second])], 1)


def test_an_image_that_is_right_again_is_gone_on_with():
    x, y = torch.tensor([[0.35, 0.5], [0.24, 0.5]], dtype=torch.float64), torch.zeros(2, dtype=torch.long)
    for seed in range(10):
        assert Square(0.4, 200)(Crowd(), x, y, generator=torch.Generator().manual_seed(seed)).success.all()


def test_linf_perturbations_are_at_the_ends():
    model, x, y = digits_network()
    result = Square(EPS, 30)(model, x, y)
    right = result.clean == y
    low, high = (x - EPS).clamp(min=0), (x + EPS).clamp(max=1)
    at_end = torch.minimum((result.images - low).abs(), (result.images - high).abs()) < 1e-12
    assert at_end[right].all()


def test_windows_stay_inside_and_reach_everywhere():
    like = torch.zeros(4000, 1, 7, 5)
    assert [_sides(area, like) for area in (35, 9, 1, 0.01)] == [(6, 5), (3, 3), (1, 1), (1, 1)]
    assert _sides(6, torch.zeros(1, 1, 1, 64)) == (1, 6)
    top, left = _corner(3, 2, like, torch.Generator().manual_seed(0))
    assert set(top.tolist()) == set(range(5))
    assert set(left.tolist()) == set(range(4))


def test_one_window_is_changed():
    draw = torch.Generator().manual_seed(0)
    delta = torch.zeros(5, 2, 8, 8)
    changed = PROPOSALS[LInf].change(delta, Square(EPS), 9.0, draw)
    assert ((changed != 0).sum((2, 3)) == 9).all()
    assert torch.equal(changed.abs().amax((1, 2, 3)), torch.full((5,), EPS))
    assert (changed.amax((2, 3)) - changed.amin((2, 3)) <= EPS + 1e-7).all()  # one sign a channel


def test_l2_budget_is_kept():
    """Whatever moves, a perturbation without clipping keeps exactly the length it is allowed."""
    draw = torch.Generator().manual_seed(0)
    attack = Square(0.7, norm=L2())
    delta = PROPOSALS[L2].start(torch.zeros(6, 3, 8, 8, dtype=torch.float64), attack, draw)
    for area in (40.0, 20.0, 9.0, 4.0, 1.0) * 4:
        torch.testing.assert_close(L2().size(delta), torch.full((6,), 0.7, dtype=torch.float64))
        before, delta = delta, PROPOSALS[L2].change(delta, attack, area, draw)
        assert not torch.equal(before, delta)
    half = PROPOSALS[L2].change(delta / 2, attack, 9.0, draw)  # what is not used comes back
    torch.testing.assert_close(L2().size(half), torch.full((6,), 0.7, dtype=torch.float64))


def test_bumps():
    like = torch.zeros(1, dtype=torch.float64)
    # Three rings: 1/9, then 1/4 more, then 1 more.
    ring = [1 / 9, 1 / 9 + 1 / 4, 1 / 9 + 1 / 4 + 1]
    torch.testing.assert_close(
        _pyramid(5, 5, like)[2], torch.tensor([ring[0], ring[1], ring[2], ring[1], ring[0]], dtype=torch.float64)
    )
    bump = _bump(4, 4, like)
    torch.testing.assert_close(bump[:, :2], -bump[:, 2:])
    assert _bump(1, 1, like).abs().item() > 0
    shapes = {tuple(_bump(3, 5, like, torch.Generator().manual_seed(seed)).shape) for seed in range(9)}
    assert shapes == {(3, 5)}


@pytest.mark.parametrize("norm", [LInf(), L2()], ids=str)
@pytest.mark.parametrize("shape", [(5,), (1,), (3, 4), (2, 3, 1), (2, 6, 5), (2, 2, 3, 4)])
def test_images_of_any_shape(norm, shape):
    model = nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), 3))
    x, y = torch.rand(4, *shape), torch.tensor([0, 1, 2, 0])
    result = Square(0.2, 30, norm)(model, x, y)
    assert result.images.shape == x.shape
    assert torch.isfinite(result.images).all()


@pytest.mark.filterwarnings("default")  # of the peer and of what it imports
def test_about_as_strong_as_autoattacks():
    peer = pytest.importorskip("pyautoattack.square")
    model, x, y = digits_network()
    for name, norm, eps in (("Linf", LInf(), 0.1), ("L2", L2(), 0.6)):
        theirs = peer.SquareAttack(model, norm=name, eps=eps, n_queries=150, seed=0, device="cpu", verbose=False)
        expected = (model(theirs.perturb(x.float().double(), y).double()).argmax(1) != y).double().mean().item()
        ours = Square(eps, 150, norm)(model, x, y).error
        assert ours >= expected - 0.06, (name, ours, expected)


def test_refused_settings(as_user):
    class L1(AbstractNorm):
        size = project = random = ascend = rounding = None

    for make, message in [
        (lambda: Square(EPS, queries=0), "queries ≥ 1"),
        (lambda: Square(EPS, share=0.0), "share in"),
        (lambda: Square(EPS, norm=L1()), "Square knows the norms LInf, L2, got L1"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
