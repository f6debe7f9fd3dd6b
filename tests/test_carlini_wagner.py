"""Carlini and Wagner's attack: the paper's form against its formula, the standard one against known distances."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from gll.attacks import L2, PGD, CarliniWagner, CarliniWagnerPaper, Margin
from tests.plain_victim import digits_graph, digits_network


class Plane(nn.Module):
    """Points of the unit square; class 1 where f(x) > 0."""

    def __init__(self, f) -> None:
        super().__init__()
        self.f = f

    def forward(self, x):
        f = self.f(x)
        return torch.stack([torch.zeros_like(f), f], 1)


CENTRE, RADIUS = torch.tensor([0.6, 0.5], dtype=torch.float64), 0.25
PROBLEMS = {
    "line": lambda x: 3 * x[:, 0] + x[:, 1] - 2,
    "circle": lambda x: (x - CENTRE).square().sum(1) - RADIUS**2,
    "wave": lambda x: x[:, 1] - 0.5 - 0.2 * torch.sin(8 * x[:, 0]),
    "corner": lambda x: torch.maximum(x[:, 0] - 0.7, x[:, 1] - 0.6),
}


def line_search(model: nn.Module, start: torch.Tensor, label: int) -> float:
    """The first change of class inside the square along each of 1,000 directions: on a grid, then by bisection."""
    angle = torch.linspace(0, 2 * math.pi, 1001, dtype=torch.float64)[:-1]
    direction = torch.stack([angle.cos(), angle.sin()], 1)
    grid = torch.arange(200, dtype=torch.float64) / 140  # as far as the diagonal

    def wrong(length):
        points = start + length[..., None] * direction[:, None, :]
        inside = ((points >= 0) & (points <= 1)).all(2)
        return (model(points.view(-1, 2)).argmax(1) != label).view(inside.shape) & inside

    found = wrong(grid.expand(1000, 200))
    first = found.int().argmax(1, keepdim=True)
    low, high = grid[(first - 1).clamp(min=0)], grid[first]
    for _ in range(20):  # to 1e-8
        middle = (low + high) / 2
        there = wrong(middle)
        low, high = torch.where(there, low, middle), torch.where(there, middle, high)
    return high[found.any(1)].min().item()


def test_no_worse_than_an_exhaustive_line_search():
    start = torch.tensor([[0.15, 0.2], [0.4, 0.45], [0.65, 0.55], [0.5, 0.05], [0.9, 0.9]], dtype=torch.float64)
    # All problems in one call: the first five points belong to the first of them, and so on.
    together = Plane(lambda x: torch.cat([f(part) for f, part in zip(PROBLEMS.values(), x.split(5), strict=True)]))
    x = start.repeat(len(PROBLEMS), 1)
    y = together(x).argmax(1)
    result = CarliniWagner(binary_steps=3, steps=200, initial_c=1.0)(together, x, y)
    assert result.success.all()
    for name, labels, found in zip(PROBLEMS, y.split(5), result.l2.split(5), strict=True):
        best = [line_search(Plane(PROBLEMS[name]), x, int(label)) for x, label in zip(start, labels, strict=True)]
        assert (found <= torch.tensor(best) + 1e-3).all(), name


def test_known_distances():
    model = Plane(PROBLEMS["circle"])
    x = torch.rand(30, 2, dtype=torch.float64)
    x = x[(x - CENTRE).norm(dim=1) > 0.05]  # from the very centre every way is the shortest
    exact = ((x - CENTRE).norm(dim=1) - RADIUS).abs()
    rough, found = (
        CarliniWagner(3, 100, initial_c=1.0, refine=refine)(model, x, model(x).argmax(1)).l2 for refine in (False, True)
    )
    assert (found >= exact).all()
    assert (found <= rough).all()
    assert (found - exact).max() < 1e-3 < (rough - exact).max()


def test_no_longer_than_foolbox():
    foolbox = pytest.importorskip("foolbox")
    model, x, y = digits_network()
    right = model(x).argmax(1) == y
    x, y = x[right][:12], y[right][:12]
    ours = CarliniWagner(4, 80, initial_c=1.0)(model, x, y)
    peer = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    theirs = foolbox.attacks.L2CarliniWagnerAttack(binary_search_steps=4, steps=100, stepsize=0.05, initial_const=1)
    _, (moved,), (success,) = theirs(peer, x, y, epsilons=[None])
    distance = (moved - x).flatten(1).norm(dim=1)
    assert ours.success.all()
    assert success.all()
    assert ours.l2.mean() <= 1.02 * distance.mean()


def test_pgd_needs_as_much():
    """Within the shortest distance found, PGD finds nothing."""
    model, x, y = digits_network()
    found = CarliniWagner(4, 80, initial_c=1.0)(model, x, y)
    assert found.success.all()
    less = PGD(float(found.l2[found.l2 > 0].min()) * 0.9, 30, norm=L2())(model, x, y)
    assert torch.equal(less.success, less.clean != y)


def test_successes_that_depend_on_each_other():
    """In one graph the shortest success of each image is one beside others than the rest of what is returned."""
    victim, x, y = digits_graph()
    found = CarliniWagner(2, 60, initial_c=1.0)(victim, x, y)
    assert (found.clean == y).all()
    assert found.error >= PGD(2.0, 20, norm=L2(), objective=Margin())(victim, x, y).error > 0.9
    assert found.l2.mean() < 1.3


class Crowd(nn.Module):
    """Class 1 where x₀ and half the mean of all x₀ come to 0.9: an image that stays behind holds the others back."""

    def forward(self, x):
        z = x[:, 0] + 0.5 * x[:, 0].mean() - 0.9
        return torch.stack([torch.zeros_like(z), z], 1)


def test_the_iterate_with_the_most_successes_is_returned():
    x, y = torch.tensor([[0.1], [0.3], [0.5]], dtype=torch.float64), torch.zeros(3, dtype=torch.long)
    found = CarliniWagner(3, 60, initial_c=1.0)(Crowd(), x, y)
    assert found.success.all()
    assert (found.l2 - (0.6 - x[:, 0])).max() < 0.05  # x₀ = 0.6 in all of them is the least that will do


def test_confidence_is_reached():
    model, x, y = digits_network()
    x, y = x[:40], y[:40]
    plain, sure = (CarliniWagner(3, 50, initial_c=1.0, confidence=k)(model, x, y) for k in (0.0, 3.0))
    both = plain.success & sure.success & (plain.clean == y)
    assert both.sum() == (plain.clean == y).sum() > 20
    z = model(sure.images)[both]
    z_y = z.gather(1, y[both, None])[:, 0]
    assert (z.scatter(1, y[both, None], -math.inf).amax(1) - z_y).min() >= 3
    assert (sure.l2 > plain.l2)[both].all()


def test_confidence_is_not_exceeded():
    """On logits x₀ and x₁ the margin κ is reached at a distance of (x₀ - x₁ + κ)/√2."""
    x, y = torch.tensor([[0.7, 0.3], [0.55, 0.45]], dtype=torch.float64), torch.zeros(2, dtype=torch.long)
    for confidence in (0.0, 0.2):
        found = CarliniWagner(3, 50, initial_c=1.0, confidence=confidence)(nn.Identity(), x, y).l2
        exact = (x[:, 0] - x[:, 1] + confidence) / math.sqrt(2)
        assert (found >= exact - 1e-12).all()
        assert (found - exact).max() < 1e-3


def test_without_success_the_image_is_left():
    class Constant(nn.Module):
        def forward(self, x):
            return torch.stack([1 + 0 * x[:, 0], 0 * x[:, 0]], 1)

    x, y = torch.rand(3, 2), torch.zeros(3, dtype=torch.long)
    result = CarliniWagner(2, 5)(Constant(), x, y)
    assert torch.equal(result.images, x)
    assert not result.success.any()


def by_formula(model, x, c, steps, lr, squeeze):
    """The paper's objective for one image, with Adam written out and the gradient by central differences of g."""
    p = model(x[None]).softmax(1)[0]
    target = p.argsort(descending=True)[1]
    w = torch.atanh((2 * x - 1) * (1 - squeeze))
    first, second = torch.zeros_like(w), torch.zeros_like(w)

    def objective(w):
        z = (w.tanh() + 1) / 2
        f = model(z).softmax(1)
        others = f.clone()
        others[:, target] = -1
        return (z - x).square().sum(1) + c * (others.amax(1) - f[:, target]).clamp(min=0)

    step = 1e-6
    offsets = step * torch.eye(len(w), dtype=w.dtype)
    for t in range(1, steps + 1):
        g = (objective(w + offsets) - objective(w - offsets)) / (2 * step)
        first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
        w = w - lr * (first / (1 - 0.9**t)) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
    return (w.tanh() + 1) / 2


def test_the_papers_form_is_its_formula():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    x = 0.1 + 0.8 * torch.rand(4, 4, dtype=torch.float64)
    y = model(x).argmax(1)
    for c in (0.5, 20.0):
        result = CarliniWagnerPaper(c, steps=40, lr=0.02, squeeze=1e-3)(model, x, y)
        with torch.no_grad():
            expected = torch.stack([by_formula(model, image, c, 40, 0.02, 1e-3) for image in x])
        torch.testing.assert_close(result.images, expected, rtol=1e-4, atol=1e-5)


def test_the_papers_form_moves_further_with_c():
    model, x, y = digits_network()
    results = [CarliniWagnerPaper(c, squeeze=0.02)(model, x, y) for c in (0.0, 1.0, 20.0, 1000.0)]
    distances = [result.l2.mean().item() for result in results]
    assert distances == sorted(distances)
    assert distances[0] < 0.05
    errors = [result.error for result in results]
    assert errors[0] < errors[-1]


def test_black_pixels_hardly_move_in_the_papers_form():
    """What the page says of it: a hundred steps of 0.005 leave a pixel that was black at less than 1e-5."""
    model, x, y = digits_network()
    moved = (CarliniWagnerPaper(1000.0)(model, x, y).images - x).abs()
    assert (x == 0).any()
    assert moved[x == 0].max() < 1e-5
    assert moved[(x > 0.3) & (x < 0.7)].max() > 0.05


def test_refused_settings(as_user):
    for make, message in [
        (lambda: CarliniWagnerPaper(c=-1.0), "c must be"),
        (lambda: CarliniWagnerPaper(c=1.0, steps=0), "steps ≥ 1"),
        (lambda: CarliniWagnerPaper(c=1.0, squeeze=0.0), "squeeze must be"),
        (lambda: CarliniWagner(binary_steps=0), "binary_steps ≥ 1"),
        (lambda: CarliniWagner(lr=0.0), "lr > 0"),
        (lambda: CarliniWagner(initial_c=0.0), "initial_c"),
        (lambda: CarliniWagner(confidence=-1.0), "confidence ≥ 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
