"""Transfer, linear probes, other views of a graph victim, and the attack on features."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from gll.attacks.autoattack import AutoAttack
from gll.attacks.base import AbstractAttack, judge_of
from gll.attacks.carlini_wagner import CarliniWagner
from gll.attacks.features import FeatureAttack, nearest_goals
from gll.attacks.gradient import FGSM, PGD
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.kinds import kind_of
from gll.attacks.norms import L2, LInf
from gll.attacks.objectives import Margin
from gll.attacks.probe import linear_probe
from gll.attacks.square import Square
from gll.attacks.store import Kind
from gll.attacks.threat import Queries, ThreatModel
from gll.attacks.transfer import AbstractView, Apart, EveryClass, FixedNeighbours, Transfer
from gll.nn.layer import GraphLearningLayer

EPS = 0.12
ALONE = ThreatModel("points", queries=Queries.ALONE)


def clusters(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Four classes in 32 dimensions, in 0 .. 1, so far apart that all neighbours of a point are of its class."""
    sign = torch.randint(0, 2, (4, 32), generator=torch.Generator().manual_seed(9)) * 2 - 1
    noise = torch.randn(n, 32, generator=torch.Generator().manual_seed(seed))
    y = torch.arange(n) % 4
    return (0.5 + 0.15 * sign[y] + 0.03 * noise).clamp(0, 1), y


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 32), nn.Tanh())


def victim(threat: ThreatModel | None = None) -> GraphVictim:
    return GraphVictim(encoder(), GraphLearningLayer(4, k=5), *clusters(80, 0), threat=threat)


def test_a_probe_is_logistic_regression() -> None:
    x, y = clusters(60, 0)
    noisy = (y + (torch.arange(60) % 7 == 0)) % 4  # so that it does not separate the classes
    probe = linear_probe(encoder(), x, noisy, mean=[0.4], std=[0.5], l2=0.01)
    z = encoder()((x - 0.4) / 0.5).detach().double().numpy()
    z = (z - z.mean(0)) / z.std(0)
    peer = LogisticRegression(C=1 / (0.01 * 60), tol=1e-8, max_iter=1000).fit(z, noisy.numpy())
    np.testing.assert_allclose(probe(x).softmax(1).detach().numpy(), peer.predict_proba(z), atol=2e-4)
    again = linear_probe(encoder(), x, noisy, mean=[0.4], std=[0.5], l2=0.01)
    assert torch.equal(again(x), probe(x))


def test_a_probe_of_a_victim_sees_what_its_graph_sees() -> None:
    v, (x, y) = victim(), clusters(80, 0)
    own, given = linear_probe(v), linear_probe(v, x, y)
    torch.testing.assert_close(own(x), given(x), rtol=1e-3, atol=1e-2)
    assert (own(x).argmax(1) == y).all()
    # Features of length one: what the layer cannot see, the probe does not see either.
    last = own[-1](nn.functional.normalize(v.features(x)))  # type: ignore[index,operator]
    torch.testing.assert_close(own(x), last)


def test_a_probe_leaves_the_encoder_as_it_is() -> None:
    model, (x, y) = nn.Sequential(nn.Dropout(0.5), encoder()), clusters(20, 0)
    before = [p.clone() for p in model.parameters()]
    model.train()
    probe = linear_probe(model, x, y)
    assert all(p.grad is None and torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    torch.testing.assert_close(probe(x), linear_probe(model, x, y)(x))  # without dropout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give both"),
        ({"images": torch.rand(4, 32)}, "together"),
        ({"images": torch.rand(4, 32), "labels": torch.tensor([0, 1, 2, -1])}, "from 0 on"),
        ({"images": torch.rand(2, 32), "labels": torch.tensor([0, 3]), "num_classes": 2}, "but there are 2 classes"),
    ],
)
def test_probes_that_cannot_be_fitted(arguments: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        linear_probe(encoder(), **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a victim normalises by itself"):
        linear_probe(victim(), mean=[0.5])


def test_transfer_is_made_on_the_source_and_judged_on_the_model() -> None:
    torch.manual_seed(1)
    source, model, (x, y) = nn.Linear(32, 4), nn.Linear(32, 4), clusters(40, 1)
    attack = FGSM(0.1)
    result = Transfer(attack, source, "that one")(model, x, y)
    right = model(x).argmax(1) == y
    expected = attack.perturb(source, x, y, torch.Generator())
    torch.testing.assert_close(result.images[right], expected[right])
    assert torch.equal(result.success, model(result.images).argmax(1) != y)
    assert 0 < right.sum() < 40
    one, two = (Transfer(attack, source, name) for name in ("a", "b"))
    assert one.name != two.name
    assert json.loads(json.dumps(one.settings())) != two.settings()
    assert (one.eps, one.norm) == (0.1, LInf())


# Attacked queries may be nearer to each other than to the base, and then no label reaches them in one graph of all.
@pytest.mark.filterwarnings("ignore::gll.unreached.UnreachedWarning")
def test_a_victim_without_a_gradient_of_its_own_falls_to_others() -> None:
    """All neighbours are of one class, so that the others have probability zero, without a slope in any precision."""
    v, (x, y) = victim(ALONE), clusters(40, 1)
    pgd = PGD(EPS, steps=20, objective=Margin(), random_start=False)
    for model in (v, v.sharpened()):
        own = pgd(model, x, y)
        assert (own.error, own.zero_gradients) == (0, 1)
    others = [EveryClass(pgd), Transfer(pgd, linear_probe(v), "probe"), FeatureAttack(EPS, steps=20)]
    for model in (v, victim()):  # in one graph of all queries as well
        errors = [attack(model, x, y).error for attack in others]
        assert min(errors) > 0.5, errors
    assert EveryClass(pgd, points=3).settings()["every_class"] == 3


def test_fixed_neighbours_are_those_of_the_clean_images() -> None:
    x, y = clusters(40, 1)
    v = GraphVictim(encoder(), GraphLearningLayer(4, k=5), *clusters(80, 0), floor=1e-30, dtype=torch.float64)
    attack = FixedNeighbours(PGD(EPS, steps=4, objective=Margin(), random_start=False, best=False))
    result = attack(v, x, y)
    fixed = v.fixed_at(x)
    expected = attack.attack.perturb(fixed, x, y, torch.Generator())
    right = v(x).argmax(1) == y
    torch.testing.assert_close(result.images[right], expected[right])
    assert torch.equal(result.predicted, v(result.images).argmax(1))  # judged with their own neighbours
    assert result.settings["neighbours"] == "fixed"


def test_the_feature_attack_goes_to_the_nearest_samples_of_another_class() -> None:
    v, (x, y) = victim(), clusters(12, 1)
    goals = nearest_goals(v, x, y, targets=9, points=2)
    assert len(goals) == 3  # as many as there are other classes
    base, z = (nn.functional.normalize(t.detach()) for t in (v.base_features, v.features(x)))
    for i in range(12):
        distance = (base - z[i]).norm(dim=1)
        nearest = {c: float(distance[v.base_labels == c].min()) for c in range(4) if c != int(y[i])}
        for goal, c in zip(goals, sorted(nearest, key=nearest.__getitem__), strict=True):
            members = base[v.base_labels == c]
            chosen = members[(members - z[i]).norm(dim=1).argsort()[:2]]
            torch.testing.assert_close(goal[i], nn.functional.normalize(chosen.mean(0), dim=0), rtol=1e-4, atol=1e-5)
    one = FeatureAttack(2.0, steps=40, targets=1, points=2, norm=L2())
    moved = one.perturb(v, x, y, torch.Generator())
    gone = (nn.functional.normalize(v.features(moved)) - goals[0]).norm(dim=1)
    assert (gone < 0.5 * (z - goals[0]).norm(dim=1)).all()
    result = one(v, x, y)
    assert result.error == 1
    assert (result.l2 <= 2 + 1e-5).all()


def test_what_needs_a_graph_victim_says_so() -> None:
    x, y = clusters(8, 1)
    for attack in (FeatureAttack(0.1), FixedNeighbours(FGSM(0.1)), EveryClass(FGSM(0.1))):
        with pytest.raises(TypeError, match="needs a GraphVictim"):
            attack(nn.Linear(32, 4), x, y)
    v = victim()
    alone = GraphVictim(encoder(), v.layer, *clusters(80, 0), threat=replace(v.threat, queries=Queries.ALONE))
    one_class = alone.with_labels(torch.zeros(80, dtype=torch.int64))
    with pytest.raises(ValueError, match="one class only"):
        FeatureAttack(0.1)(one_class, x, torch.zeros(8, dtype=torch.int64))


def test_made_apart_and_judged_together() -> None:
    """The images are those of an attack on queries alone; the verdict is that of one graph."""
    joint, alone = victim().sharpened(), victim(ALONE).sharpened()
    x, y = clusters(24, 1)
    # Two classes of queries move into each other's way: together they are not what they are alone.
    attack = PGD(0.3, steps=10, objective=Margin(), random_start=False)
    found, peer = Apart(attack)(joint, x, y), attack(alone, x, y)
    torch.testing.assert_close(found.images, peer.images)
    assert torch.equal(found.success, joint(found.images).argmax(1) != y)
    assert found.threat == replace(joint.threat, gradient="own with every query alone")
    assert (found.attack, found.settings["seen"], found.settings["steps"]) == ("pgd apart", "apart", 10)
    torch.testing.assert_close(joint.apart()(x), torch.cat([joint(one) for one in x.split(1)]))


@pytest.mark.parametrize("view", [Apart, EveryClass, FixedNeighbours])
def test_a_view_is_of_the_kind_of_its_attack(view: type[AbstractView]) -> None:
    kinds = {FGSM(0.1): Kind.SINGLE, PGD(0.1): Kind.MULTI, Square(0.1): Kind.BLACK_BOX, AutoAttack(0.1): Kind.ENSEMBLE}
    for attack, kind in kinds.items():
        assert kind_of(view(attack)) is kind_of(attack) is kind


class Window(nn.Module):
    """One pixel; wrong (class 1) between two values, right elsewhere. The slope is that of the pixel."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x: Tensor) -> Tensor:
        inside = ((x > self.low) & (x < self.high)).to(x.dtype)
        margin = 2 * inside - 1 + 0.1 * (x - x.detach())
        return torch.cat([torch.zeros_like(x), margin], 1)


class Slope(nn.Module):
    """One pixel; class 1 above 0.5, by a margin that grows."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(x), x - 0.5], 1)


@pytest.mark.parametrize("attack", [PGD(0.3, 20, random_start=False), CarliniWagner(steps=50)], ids=["pgd", "cw"])
def test_an_attacker_who_may_ask_keeps_the_iterate_that_fools_the_model(attack: AbstractAttack) -> None:
    """The source is fooled from 0.5 on, best at the end of the ball; the model between 0.57 and 0.63 only."""
    x, y, model = torch.tensor([[0.45]]), torch.tensor([0]), Window(0.57, 0.63)
    blind = Transfer(attack, Slope())(model, x, y)
    assert not bool(blind.success)
    asking = Transfer(attack, Slope(), asks=True)
    if isinstance(attack, PGD):
        assert bool(asking(model, x, y).success)
        assert asking.settings()["asks"]
    else:  # c grows until an iterate is inside the window, and the shortest of those is kept
        found = asking(model, x, y)
        assert bool(found.success)
        assert float(found.linf) == pytest.approx(0.12, abs=0.01)


def test_a_view_is_judged_by_the_victim_at_every_step() -> None:
    """No view keeps an iterate because the stand-in is fooled by it."""
    x, y = clusters(20, 1)
    seen = list[nn.Module]()

    @dataclass(frozen=True)
    class Spy(AbstractAttack):
        eps: float = EPS
        norm: LInf = field(default_factory=LInf)

        def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
            seen.append(model)
            return images

    judged = victim(ALONE)
    for view in (EveryClass(Spy()), FixedNeighbours(Spy())):
        view(judged, x, y)
        model = seen.pop()
        assert judge_of(model) is not model
        with torch.no_grad():
            torch.testing.assert_close(judge_of(model)(x), judged(x), rtol=0, atol=0)
            assert not torch.equal(model(x), judged(x)) or isinstance(view, FixedNeighbours)
