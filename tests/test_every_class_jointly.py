"""Every class in sight in the graph of all queries: the stand-in beside dense matrices, and the attack on it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gll.attacks import checks, sets
from gll.attacks.evaluate import cell_of
from gll.attacks.gradient import PGD
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.kinds import is_own, is_stand_in
from gll.attacks.objectives import Margin
from gll.attacks.target import Request, Target
from gll.attacks.threat import Inference, Queries, ThreatModel
from gll.attacks.transfer import EveryClass
from gll.nn.layer import GraphLearningLayer
from gll.reweight import wnll
from tests import oracles
from tests.attacked_runs import trained_runs

JOINT = ThreatModel("points")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A small GLL and 100 digits, all in one graph with a base of 60."""
    run = trained_runs(tmp_path_factory)["gll"]
    return Target(Request(run, samples=100, base=60, eps=(0.1,), attacks="every-class"))


def line(spread: float = 0.02) -> tuple[Tensor, Tensor, Tensor]:
    """Three classes in small heaps far from each other, their classes, and queries at two of the heaps; float64."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(18) % 3
    base = torch.rand(18, 2, generator=generator, dtype=torch.float64) * spread
    base[:, 0] += 0.4 * y
    queries = torch.rand(7, 2, generator=generator, dtype=torch.float64) * spread
    queries[:, 0] += 0.4 * (torch.arange(7) % 2)
    return base + 0.05, y, queries + 0.05


def victim(k: int = 3, spread: float = 0.02, threat: ThreatModel = JOINT, **options: object) -> GraphVictim:
    layer = GraphLearningLayer(3, k=k, normalize=False, **options)  # type: ignore[arg-type]
    return GraphVictim(nn.Identity(), layer, *line(spread)[:2], threat=threat).sharpened()


def slope(model: nn.Module, x: Tensor, to: int) -> Tensor:
    """Of the logarithm of the odds of a class."""
    z = x.clone().requires_grad_()
    out = model(z)
    return torch.autograd.grad((2 * out[:, to] - out.sum(1)).sum(), z)[0]


@pytest.mark.parametrize("reweighted", [False, True])
@pytest.mark.parametrize("k", [3, 40])
def test_it_is_the_graph_of_all_with_more_edges(k: int, reweighted: bool) -> None:
    """By dense matrices; also where there are fewer nodes than neighbours."""
    base, y, x = line(0.3)
    seen = victim(k, 0.3, reweight=wnll if reweighted else None).reaching(2, joint=True)
    both, m = torch.cat([base, x]), len(base)
    square, k = oracles.sqdist(both), min(k, len(both) - 1)
    near = oracles.neighbors(both, k)
    edges = oracles.adjacency(near)
    for query in range(m, len(both)):
        for c in range(3):
            members = (y == c).nonzero()[:, 0]
            nearest = members[square[query, members].argsort()[:2]]
            edges[query, nearest] = edges[nearest, query] = 1
    epsilon = square[torch.arange(len(both)), near[:, -1]].sqrt()
    power = 4 * square / (epsilon[:, None] * epsilon)
    w = edges * torch.where(power > 1, 1 / (torch.e * power), torch.exp(-power))
    if reweighted:
        node = torch.ones(len(both), dtype=w.dtype)
        node[:m] = len(both) / m
        w = w * (node[:, None] + node) / 2
    u = oracles.laplace(w, torch.arange(m), nn.functional.one_hot(y, 3).double(), 0.0)[m:]
    assert set((power[edges > 0] > 1).tolist()) == {True, False}  # both parts of the kernel
    torch.testing.assert_close(seen(x), u.log())


def test_gradients_are_those_of_finite_differences() -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(2, 3), nn.Tanh()).double()
    base, y, x = line(0.3)
    v = GraphVictim(encoder, GraphLearningLayer(3, k=3), base, y)
    assert torch.autograd.gradcheck(v.reaching(2, joint=True), x.requires_grad_())


def test_a_class_however_far_has_a_slope() -> None:
    """Distances of a hundred thousand ε: weights of exp(-10¹⁰) in the graph itself."""
    x, v = line(1e-5)[2], victim(spread=1e-5)
    assert slope(v, x, 2).abs().max() == 0
    found = slope(v.reaching(2, joint=True), x, 2)
    assert bool((torch.isfinite(found) & (found != 0)).all())


def test_queries_know_of_each_other() -> None:
    """Other than in the stand-in for queries alone, another query changes the answer, and its slope is part of mine."""
    x, v = line(0.3)[2], victim(spread=0.3)
    for joint in (True, False):
        seen = v.reaching(2, joint=joint)
        moved = x.clone()
        moved[1:] += 0.05
        assert torch.equal(seen(x)[0], seen(moved)[0]) is not joint
        z = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(seen(z)[0].diff().sum(), z)
        assert bool(gradient[1:].any()) is joint


def test_what_it_says_and_where_it_does_not_apply() -> None:
    v, attack = victim(spread=0.3), EveryClass(PGD(0.02, steps=2), joint=True)
    seen = v.reaching(joint=True)
    assert (seen.threat.queries, seen.threat.dtype, v.threat.gradient) == (Queries.JOINT, "float64", "own")
    assert "every class" in seen.threat.gradient
    x, y = line(0.3)[2], torch.arange(7) % 2
    result = attack(v, x, y)
    followed = "own with base samples of every class in sight in the graph of all queries"
    assert result.threat == replace(v.threat, gradient=followed)
    assert (result.attack, result.settings["every_class"], result.settings["seen"]) == (
        "pgd with every class jointly", 5, "jointly"
    )  # fmt: skip
    cell, apart = cell_of(attack, v, 7), cell_of(EveryClass(PGD(0.02, steps=2)), v, 7)
    assert is_stand_in(cell)
    assert not is_own(cell)
    assert cell.key != apart.key
    for threat in (replace(JOINT, queries=Queries.ALONE), replace(JOINT, inference=Inference.INDUCTIVE)):
        with pytest.raises(ValueError, match="needs queries in one graph"):
            attack(victim(threat=threat), x, y)


def test_it_is_among_the_attacks_where_queries_share_a_graph(digits: Target) -> None:
    for joint, views in ((True, [False, False, True, True]), (False, [False, False])):
        recipe = Target(replace(digits.request, joint=joint)).recipe()
        made = [one.attack for one in sets.plan(["every-class"], recipe)]
        assert [attack.joint for attack in made] == views
        assert [attack.attack.targets for attack in made] == [3, 0] * (len(views) // 2)
    assert "every-class" in sets.names_of("strong")


# On digits ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::gll.unreached.UnreachedWarning")
def test_it_fools_the_model_as_it_is_and_finds_what_others_do_not(digits: Target) -> None:
    v, x, y = digits.judged(60, True), digits.images, digits.labels
    pgd = PGD(0.1, steps=10, objective=Margin(), random_start=False)
    own, apart, joint = (attack(v, x, y) for attack in (pgd, EveryClass(pgd), EveryClass(pgd, joint=True)))
    assert joint.error >= apart.error > 0.2
    assert bool((joint.success & ~apart.success & ~own.success).any())
    plain = digits.judged(60, False)  # as it is used: float32, and the layer's own floor
    for model in (v, plain):
        assert torch.equal(model(joint.images).argmax(1) != y, joint.success)
    assert bool((joint.linf <= 0.1 + 1e-6).all())


def test_without_a_radius_nothing_moves(digits: Target) -> None:
    v, x, y = digits.judged(60, True), digits.images, digits.labels
    found = EveryClass(PGD(0.0, steps=3), joint=True)(v, x, y)
    assert torch.equal(found.images, x)
    assert torch.equal(found.success, v(x).argmax(1) != y)


@pytest.mark.parametrize("queries", list(Queries))
def test_the_checks_look_there_too(queries: Queries, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where queries share a graph: each alone, and all in that graph."""
    monkeypatch.setattr(checks, "STEPS", 1)
    monkeypatch.setattr(checks, "QUERIES", 1)
    made: list[str] = []
    real = checks.evaluate

    def noted(*arguments: Any, **options: Any) -> Any:
        made.extend(attack.name for attack in arguments[3])
        return real(*arguments, **options)

    monkeypatch.setattr(checks, "evaluate", noted)
    x = line()[2].float()
    y = torch.arange(7) % 2
    checks.run_checks(victim(k=12, spread=0.3, threat=replace(JOINT, queries=queries)), x, y, eps=0.1)
    assert "pgd with every class" in made
    assert ("pgd with every class jointly" in made) is (queries is Queries.JOINT)
