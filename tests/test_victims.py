"""Victims: graph heads as modules from images to log-probabilities, against dense twins and finite differences."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gll.attacks import graph_victim
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.objectives import Margin
from gll.attacks.pixels import Normalized
from gll.attacks.threat import Inference, Neighbours, Queries, ThreatModel
from gll.data.datasets import load, normalize
from gll.equations import Laplace
from gll.nn.layer import GraphLearningLayer
from gll.reweight import wnll
from gll.similarity import Constant, Gaussian
from gll.unreached import UnreachedWarning
from tests import oracles

JOINT = ThreatModel("points")
ALONE = replace(JOINT, queries=Queries.ALONE)
INDUCTIVE = replace(JOINT, inference=Inference.INDUCTIVE)
FLOOR = 1e-100


def points(m: int = 30, n: int = 8, d: int = 3, *, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A base of three classes that overlap, its classes, and queries; in 0 .. 1 and float64."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(m) % 3
    base = 0.3 * torch.rand(m, d, generator=generator, dtype=torch.float64)
    base[:, 0] += 0.15 * y
    queries = 0.3 * torch.rand(n, d, generator=generator, dtype=torch.float64)
    queries[:, 0] += 0.3 * torch.rand(n, generator=generator, dtype=torch.float64)
    return base, y, queries


def make(threat: ThreatModel = JOINT, *, k: int = 6, floor: float = FLOOR, **options: object) -> GraphVictim:
    """A victim whose encoder does nothing."""
    base, y, _ = points()
    layer = GraphLearningLayer(3, k=k, **options)  # type: ignore[arg-type]
    return GraphVictim(nn.Identity(), layer, base, y, threat=threat, floor=floor)


def dense(base: Tensor, y: Tensor, x: Tensor, k: int, *, unit: bool = True, tau: float = 0.0, gamma: bool = False):
    """u at the queries, by dense matrices."""
    m, both = len(base), torch.cat([base, x])
    w = oracles.weights(oracles.unit(both) if unit else both, min(k, len(both) - 1))
    if gamma:
        node = torch.ones(len(both), dtype=w.dtype)
        node[:m] = len(both) / m
        w = w * (node[:, None] + node) / 2
    g = torch.nn.functional.one_hot(y, 3).to(w.dtype)
    return oracles.laplace(w, torch.arange(m), g, tau)[m:]


def tiny_encoder() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double()


# Values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "tau", "gamma"), [(True, 0.0, False), (False, 0.0, False), (True, 0.05, False), (True, 0.05, True)]
)
def test_joint_queries_are_one_graph(unit: bool, tau: float, gamma: bool) -> None:
    base, y, x = points()
    victim = make(normalize=unit, equation=Laplace(tau=tau), reweight=wnll if gamma else None)
    expected = torch.log(dense(base, y, x, 6, unit=unit, tau=tau, gamma=gamma) + FLOOR)
    torch.testing.assert_close(victim(x), expected)


@pytest.mark.parametrize("k", [1, 2, 6, 29, 30, 31, 50])
@pytest.mark.parametrize(("unit", "tau", "gamma"), [(True, 0.0, False), (False, 0.05, False), (True, 0.05, True)])
def test_queries_alone_are_a_graph_each(k: int, unit: bool, tau: float, gamma: bool) -> None:
    base, y, x = points()
    victim = make(ALONE, k=k, normalize=unit, equation=Laplace(tau=tau), reweight=wnll if gamma else None)
    assert victim.closed_form
    each = [dense(base, y, query, k, unit=unit, tau=tau, gamma=gamma) for query in x.split(1)]
    torch.testing.assert_close(victim(x), torch.log(torch.cat(each) + FLOOR))


@pytest.mark.parametrize("k", [1, 6, 29, 30, 50])
@pytest.mark.parametrize("bandwidth", [None, Constant(0.2)])
def test_an_inductive_query_joins_a_base_that_does_not_hear_of_it(k: int, bandwidth: Constant | None) -> None:
    base, y, x = points()
    victim = make(INDUCTIVE, k=k, normalize=False, bandwidth=bandwidth)
    square = (x[:, None] - base).square().sum(2)
    among = (base[:, None] - base).square().sum(2).sqrt().fill_diagonal_(torch.inf).sort(1).values
    nearest = square.sort(1)
    own, theirs = nearest.values[:, min(k, 30) - 1].sqrt(), among[:, min(k, 29) - 1]
    if bandwidth is not None:
        own, theirs = torch.full_like(own, 0.2), torch.full_like(theirs, 0.2)
    chosen = torch.zeros_like(square).scatter(1, nearest.indices[:, : min(k, 30)], 1)
    w = chosen * torch.exp(-4 * square / (own[:, None] * theirs))
    u = w @ torch.nn.functional.one_hot(y, 3).double() / w.sum(1, keepdim=True)
    torch.testing.assert_close(victim(x), torch.log(u + FLOOR))


@pytest.mark.parametrize("threat", [ALONE, INDUCTIVE])
def test_single_queries_do_not_depend_on_the_others(threat: ThreatModel) -> None:
    _, _, x = points()
    victim = make(threat)
    torch.testing.assert_close(victim(x)[3:5], victim(x[3:5]))
    assert (make(JOINT)(x)[3:5] - make(JOINT)(x[3:5])).abs().max() > 1e-3


@pytest.mark.parametrize("threat", [JOINT, ALONE, INDUCTIVE])
def test_a_base_sample_without_a_class_is_a_node(threat: ThreatModel) -> None:
    base, y, x = points()
    y = y.clone()
    y[::5] = -1
    layer = GraphLearningLayer(3, k=6)
    victim = GraphVictim(nn.Identity(), layer, base, y, threat=threat, floor=FLOOR)
    assert not victim.closed_form
    layer.inductive = threat is INDUCTIVE
    parts = x.split(1) if threat is ALONE else [x]
    expected = torch.cat([layer(part, base, y) for part in parts])
    torch.testing.assert_close(victim(x).exp(), expected.exp(), rtol=1e-6, atol=1e-7)


def test_copies_of_base_points_are_told_apart_by_their_numbers() -> None:
    # Ties everywhere: the closed form must break them as the search of a graph does.
    base = torch.tensor([[0.0], [0.0], [0.5], [0.5], [1.0], [1.0]], dtype=torch.float64)
    y, x = torch.tensor([0, 1, 1, 2, 2, 0]), torch.tensor([[0.0], [0.25], [0.5], [1.0]], dtype=torch.float64)
    for k in (2, 3, 4):
        layer = GraphLearningLayer(3, k=k, normalize=False, floor=FLOOR)
        victim = GraphVictim(nn.Identity(), layer, base, y, threat=ALONE)
        expected = torch.cat([layer(part, base, y) for part in x.split(1)])
        torch.testing.assert_close(victim(x), expected)


@pytest.mark.parametrize(("threat", "said"), [(ALONE, [1 / 3, 1 / 3, 1 / 3]), (INDUCTIVE, [0.0, 0.0, 1.0])])
def test_a_query_out_of_reach_gets_what_the_layer_gives(threat: ThreatModel, said: list[float]) -> None:
    base = torch.tensor([[0.0], [1e-4], [2e-4], [3e-4], [4e-4], [5e-4]], dtype=torch.float64)
    y, far = torch.tensor([0, 1, 2, 0, 1, 2]), torch.tensor([[1.0]], dtype=torch.float64)
    layer = GraphLearningLayer(3, k=2, normalize=False, inductive=threat is INDUCTIVE)
    victim = GraphVictim(nn.Identity(), layer, base, y, threat=threat)
    with pytest.warns(UnreachedWarning):
        found = victim(far)
    with pytest.warns(UnreachedWarning):
        torch.testing.assert_close(found, layer(far, base, y))
    torch.testing.assert_close(found.exp(), torch.tensor([said], dtype=torch.float64), atol=1e-7, rtol=0)


@pytest.mark.parametrize("floor", [1e-8, FLOOR])
def test_float32_features_give_the_same_in_either_precision(floor: float) -> None:
    """The fused path, the general path in float64, and dense matrices."""
    base, y, x = (t.float() if t.is_floating_point() else t for t in points(60, 20))
    layer = GraphLearningLayer(3, k=6)
    dtype = torch.float64 if floor == FLOOR else None
    fused = GraphVictim(nn.Identity(), layer, base, y, floor=floor, dtype=dtype, fast=True)
    general = GraphVictim(nn.Identity(), layer, base.double(), y, floor=floor)
    expected = torch.log(dense(base.double(), y, x.double(), 6) + floor)
    torch.testing.assert_close(general(x.double()), expected)
    torch.testing.assert_close(fused(x).double(), expected, rtol=1e-5, atol=1e-5)
    assert fused(x).dtype == (dtype or torch.float32)
    assert isinstance(fused.layer._last[0], Tensor)  # the fused path it was
    slow = GraphVictim(nn.Identity(), layer, base, y, floor=floor, dtype=torch.float64)
    torch.testing.assert_close(slow(x), expected)
    assert slow.layer._last is None


def without_subtraction(w: np.ndarray, m: int, g: np.ndarray) -> np.ndarray:
    """u at the free nodes (those from m on) by an elimination that never subtracts, so that every digit is right."""
    w, steps = w.astype(np.longdouble), []
    for p in range(len(w) - 1, m - 1, -1):
        row = w[p, :p] / w[p, :p].sum()
        steps.append(row)
        w[:p, :p] += np.outer(w[:p, p], row)
    u = g.astype(np.longdouble)
    for row in steps[::-1]:
        u = np.concatenate([u, row[None] @ u])
    return u[m:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_probabilities_keep_their_digits(dtype: torch.dtype) -> None:
    """A cluster of queries, from which a chain of them leads to the other class: far below what 1 + u can tell."""
    generator = torch.Generator().manual_seed(0)
    corner, y = torch.tensor([[0.0, 0.0], [0.9, 0.0]]), torch.arange(40) % 2
    base = corner[y] + 0.1 * torch.rand(40, 2, generator=generator)
    chain = torch.linspace(0.0, 1.0, 11)[:, None] * torch.tensor([1.0, 0.02])
    x = torch.cat([0.1 * torch.rand(60, 2, generator=generator), chain])
    layer = GraphLearningLayer(2, k=6, normalize=False, kernel=Gaussian(12.0))
    victim = GraphVictim(nn.Identity(), layer, base.to(dtype), y, floor=1e-300, dtype=torch.float64, fast=True)
    w = oracles.weights(torch.cat([base, x]).double(), 6, scale=12.0).numpy()
    expected = np.log(np.maximum(without_subtraction(w, 40, np.eye(2)[y]), 1e-300))  # some see one class only
    assert ((expected > -600) & (expected < np.log(1e-16))).sum() > 10
    # Float32 features: the fused path, whose logits are float32; their rounding is all that is lost.
    tolerance = {"rtol": 1e-6, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-12}
    np.testing.assert_allclose(victim(x.to(dtype)).numpy(), expected.astype(np.float64), **tolerance)


@pytest.mark.parametrize(("floor", "solver"), [(FLOOR, "Cholesky"), (1e-8, "ConjugateGradient")])
def test_small_values_come_from_a_direct_solver(floor: float, solver: str) -> None:
    _, _, x = points(n=700)
    victim = make(floor=floor)
    victim(x)
    assert victim.layer.wide.last_solution.method.startswith(solver)  # type: ignore[union-attr]


# Gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threat", [JOINT, ALONE, INDUCTIVE])
@pytest.mark.parametrize("floor", [1e-8, FLOOR])
def test_gradients_in_features_and_through_an_encoder(threat: ThreatModel, floor: float) -> None:
    base, y, x = points()
    x = x[:2]
    layer = GraphLearningLayer(3, k=6)
    for encoder in (nn.Identity(), tiny_encoder()):
        victim = GraphVictim(encoder, layer, base, y, mean=[0.4], std=[0.5], threat=threat, floor=floor)
        assert torch.autograd.gradcheck(victim, x.clone().requires_grad_())


def test_gradients_in_the_base() -> None:
    base, y, x = points(m=6, n=2)
    victim = GraphVictim(nn.Identity(), GraphLearningLayer(3, k=3), base, y, floor=FLOOR)
    assert torch.autograd.gradcheck(lambda b: victim.log_probabilities(x, b), base.clone().requires_grad_())


@pytest.mark.parametrize("threat", [JOINT, ALONE, INDUCTIVE])
def test_fixed_neighbours_are_those_of_the_clean_point(threat: ThreatModel) -> None:
    _, _, x = points()
    victim = make(threat)
    fixed = victim.fixed_at(x)
    assert fixed.threat.neighbours is Neighbours.FIXED
    assert victim.threat.neighbours is Neighbours.RECHOSEN
    value, slope = _value_and_gradient(victim, x)
    fixed_value, fixed_slope = _value_and_gradient(fixed, x)
    torch.testing.assert_close(fixed_value, value)
    torch.testing.assert_close(fixed_slope, slope)
    # Elsewhere they differ, and the fixed ones are smooth: gradcheck across a change of neighbours.
    moved = x + 0.1 * torch.randn_like(x)
    assert (fixed(moved) - victim(moved)).abs().max() > 1e-2
    assert torch.autograd.gradcheck(lambda z: fixed(torch.cat([z, moved[2:]]))[:2], moved[:2].clone().requires_grad_())
    with pytest.raises((ValueError, RuntimeError, IndexError)):
        fixed(x[:2])


def _value_and_gradient(victim: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    value = victim(x)
    weight = torch.linspace(-1, 1, value.numel(), device=value.device)
    (gradient,) = torch.autograd.grad((value * weight.view_as(value)).sum(), x)
    return value.detach(), gradient


def sure() -> tuple[GraphVictim, Tensor]:
    """A victim of two classes far apart, sure of two queries between them; one sample of the other chooses a query."""
    base = torch.tensor([0.0, 0.02, 0.04, 0.06, 0.08, 0.4, 0.42, 0.44])[:, None]
    y = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])
    layer = GraphLearningLayer(2, k=3, normalize=False)
    return GraphVictim(nn.Identity(), layer, base, y), torch.tensor([[0.091], [0.085]])


@pytest.mark.parametrize("queries", [Queries.JOINT, Queries.ALONE])
def test_a_small_floor_has_a_gradient_where_the_layers_own_is_flat(queries: Queries) -> None:
    victim, x = sure()
    victim.threat = replace(victim.threat, queries=queries)
    sharp = victim.sharpened()
    slopes = []
    for v in (victim, sharp):
        z = x.clone().requires_grad_()
        (g,) = torch.autograd.grad(v(z)[:, 1].sum(), z)
        slopes.append(g)
    assert victim(x).dtype == torch.float32
    assert sharp(x).dtype == torch.float64
    torch.testing.assert_close(victim(x).argmax(1), sharp(x).argmax(1))
    u = sharp(x)[:, 1].exp()
    assert (u < 1e-9).all()  # below what log(u + 1e-8) can tell
    assert (u > 0).all()
    assert (slopes[0].abs() < 1e-2 * slopes[1].abs()).all()
    step = 1e-5
    forward, back = (sharp(x.double() + s * step)[:, 1] for s in (1, -1))
    near = (forward - back)[:, None] / (2 * step)
    if queries is Queries.ALONE:  # together, a query's slope is also that of the other's value
        torch.testing.assert_close(slopes[1].double(), near, rtol=1e-3, atol=1e-6)


def test_where_no_neighbour_has_a_class_only_reaching_has_a_slope() -> None:
    victim, x = sure()
    layer = GraphLearningLayer(2, k=2, normalize=False)
    victim = GraphVictim(nn.Identity(), layer, victim.base_features, victim.base_labels, threat=ALONE)
    z = x.clone().requires_grad_()
    assert torch.autograd.grad(victim.sharpened()(z).diff(dim=1).sum(), z)[0].abs().max() == 0
    reaching = victim.reaching(points=2)
    assert bool((torch.autograd.grad(reaching(z).diff(dim=1).sum(), z)[0] > 0).all())  # towards the other class
    assert torch.autograd.gradcheck(reaching, x.double().requires_grad_())
    # With every base sample of every class in reach, it is a sum over all of them.
    every = GraphVictim(nn.Identity(), layer, victim.base_features.double(), victim.base_labels, threat=ALONE)
    found = every.reaching(points=8)(x.double())
    base, y = every.base_features, every.base_labels
    expected = []
    for query in x.double():
        d = (torch.cat([base, query[None]])[:, None] - torch.cat([base, query[None]])).square().sum(2)
        eps = d.clone().fill_diagonal_(torch.inf).sort(1).values[:, 1].sqrt()
        z = -4 * d[8, :8] / (eps[8] * eps[:8])
        expected.append(torch.stack([torch.logsumexp(z[y == c], 0) for c in (0, 1)]) - torch.logsumexp(z, 0))
    torch.testing.assert_close(found, torch.stack(expected))
    assert victim.reaching().threat.gradient != "own"


def test_a_surrogate_lends_its_gradient_and_nothing_else() -> None:
    base, y, x = points()
    torch.manual_seed(0)
    linear = nn.Linear(3, 3).double()
    victim = GraphVictim(nn.Identity(), GraphLearningLayer(3, k=6, reweight=wnll), base, y, surrogate=linear)
    exact = GraphVictim(nn.Identity(), GraphLearningLayer(3, k=6, reweight=wnll), base, y)
    assert (victim.threat.gradient, exact.threat.gradient) == ("surrogate linear", "own")
    z, truth = x.clone().requires_grad_(), torch.arange(8) % 3
    logits = victim(z)
    torch.testing.assert_close(logits, exact(x))
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(logits, truth, reduction="sum"), z)
    p = logits.detach().softmax(1)
    torch.testing.assert_close(gradient, (p - nn.functional.one_hot(truth, 3)) @ linear.weight.detach())


# Devices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threat", [JOINT, ALONE, INDUCTIVE])
def test_devices_agree(device: torch.device, threat: ThreatModel) -> None:
    base, y, x = points()
    here = GraphVictim(tiny_encoder(), GraphLearningLayer(3, k=6), base, y, threat=threat, floor=FLOOR)
    there = GraphVictim(
        tiny_encoder().to(device), GraphLearningLayer(3, k=6), base.to(device), y.to(device), threat=threat, floor=FLOOR
    )
    for one, two in ((here, there), (here.fixed_at(x), there.fixed_at(x.to(device)))):
        for expected, found in zip(_value_and_gradient(one, x), _value_and_gradient(two, x.to(device)), strict=True):
            torch.testing.assert_close(found.cpu(), expected)
    slope = _value_and_gradient(there.reaching(), x.to(device))[1]
    torch.testing.assert_close(slope.cpu(), _value_and_gradient(here.reaching(), x)[1])


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("sharp", [False, True])
@pytest.mark.parametrize("threat", [JOINT, ALONE])
def test_ten_thousand_queries_and_as_many_base_samples(threat: ThreatModel, sharp: bool) -> None:
    """The graph of the paper's attack on MNIST, with features of the size of its network's."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    torch.manual_seed(0)
    y = (torch.arange(10_000) % 10).cuda()
    centre = torch.rand(10, 64, device="cuda")
    base, x = ((centre[y] + 0.15 * torch.randn(10_000, 64, device="cuda")).clamp(0, 1) for _ in range(2))
    encoder = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU()).cuda()
    victim = GraphVictim(encoder, GraphLearningLayer(10, k=25), base, y, threat=threat)
    victim = victim.sharpened() if sharp else victim
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        z = x.clone().requires_grad_()
        logits = victim(z)
        (gradient,) = torch.autograd.grad(Margin()(logits, y).sum(), z)
    assert torch.isfinite(gradient).all()
    assert (logits.argmax(1) == y).double().mean() > 0.99
    assert torch.cuda.max_memory_allocated() < 20e9


# The victim as a module --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threat", [JOINT, ALONE, INDUCTIVE])
def test_base_images_are_encoded_once(threat: ThreatModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_victim, "CHUNK", 20)
    base, y, x = points()
    seen = []
    encoder = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 3).double())
    encoder[1].register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    victim = GraphVictim(encoder, GraphLearningLayer(3, k=6), base, y, threat=threat)
    assert seen == [20, 10]
    torch.testing.assert_close(victim(x), victim.sharpened(floor=1e-8)(x))  # and without dropout
    assert seen == [20, 10, 8, 8]


def test_features_may_be_given_for_the_base() -> None:
    base, y, x = points()
    encoder = tiny_encoder()
    layer = GraphLearningLayer(3, k=6)
    features = encoder((base - 0.4) / 0.5).detach()
    options = {"mean": [0.4], "std": [0.5]}
    one = GraphVictim(encoder, layer, features, y, base_is_features=True, **options)  # type: ignore[arg-type]
    two = GraphVictim(encoder, layer, base, y, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(one(x), two(x))


def test_another_base_and_other_labels() -> None:
    base, y, x = points()
    victim = make(ALONE)
    victim(x)  # prepares its base, which must not stay
    other = victim.with_base(base[:20], y[:20], perturbs_base=True)
    torch.testing.assert_close(other(x), GraphVictim(nn.Identity(), victim.layer, base[:20], y[:20], threat=ALONE)(x))
    assert other.threat.perturbs_base
    turned = victim.with_labels((y + 1) % 3)
    torch.testing.assert_close(turned(x), victim(x).roll(1, 1))
    with pytest.raises(ValueError, match="20 base samples need as many labels"):
        victim.with_base(base[:20])


def test_normalising_is_part_of_the_model() -> None:
    data = load("digits")
    pixels = data.test[:5].float() / 255
    model = Normalized(nn.Flatten(), data.mean, data.std)
    torch.testing.assert_close(model(pixels), normalize(data.test[:5], data).flatten(1))
    assert torch.autograd.gradcheck(
        Normalized(tiny_encoder(), [0.5], [0.25]), torch.rand(2, 3).double().requires_grad_()
    )
    with pytest.raises(ValueError, match="images have 1 channels, mean and std 3"):
        Normalized(nn.Flatten(), [0.1, 0.2, 0.3], [1.0, 1.0, 1.0])(pixels)
    with pytest.raises(ValueError, match="std must be above 0"):
        Normalized(nn.Flatten(), [0.1], [0.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make(floor=1e-301), "floor must be at least 1e-300 in float64"),
        (lambda: GraphVictim(nn.Identity(), GraphLearningLayer(2), torch.rand(4, 1), torch.tensor([0, 1, 0, 1]),
                             floor=1e-40), "use dtype=torch.float64"),
        (lambda: make(replace(JOINT, neighbours=Neighbours.FIXED)), "fixed_at"),
        (lambda: make().with_labels(torch.zeros(3, dtype=torch.int64)), "the base has 30 samples"),
        (lambda: make(ALONE, symmetrize="x"), "symmetrisation"),
        (lambda: make().reaching(0), "points must be at least 1"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("as_user")
def test_what_cannot_be_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_too_many_queries_for_a_small_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_victim, "DENSE", 5)
    _, _, x = points()
    with pytest.raises(ValueError, match=r"8 queries in one graph are too many .* attack in chunks"):
        make()(x)
    assert make(floor=1e-8)(x).shape == make(ALONE)(x).shape == (8, 3)


# Threat models -----------------------------------------------------------------------------------------------------


def test_a_threat_model_goes_through_json() -> None:
    threat = replace(make(INDUCTIVE).threat, perturbs_base=True, gradient="surrogate linear")
    assert ThreatModel.from_dict(json.loads(json.dumps(threat.as_dict()))) == threat
    said = threat.describe()
    for word in ("points", "perturbed too", "by itself", "exact", "surrogate linear", "float64"):
        assert word in said


@pytest.mark.usefixtures("as_user")
def test_a_threat_model_takes_members_not_texts() -> None:
    with pytest.raises(TypeError, match=r"Queries.JOINT, Queries.ALONE, got 'joint'"):
        ThreatModel("points", queries="joint")  # type: ignore[arg-type]
