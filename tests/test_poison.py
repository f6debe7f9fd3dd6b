"""Poisoned bases: the influence of a label is exact, greedy flips do more than random ones, images keep to a ball."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gll.attacks.graph_victim import GraphVictim
from gll.attacks.norms import L2
from gll.attacks.objectives import Margin
from gll.attacks.poison import GreedyFlips, RandomFlips, influence, perturb_base, poison
from gll.attacks.threat import Inference, Queries, ThreatModel
from gll.equations import Laplace
from gll.nn.layer import GraphLearningLayer

JOINT = ThreatModel("points")
THREATS = [JOINT, ThreatModel("points", queries=Queries.ALONE), ThreatModel("points", inference=Inference.INDUCTIVE)]


def points(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three overlapping classes on a line, in float64."""
    y = torch.arange(n) % 3
    noise = torch.randn(n, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (0.5 + 0.2 * (y[:, None] - 1) + 0.06 * noise).clamp(0, 1), y


def victim(threat: ThreatModel = JOINT, tau: float = 0.0) -> GraphVictim:
    layer = GraphLearningLayer(3, k=5, normalize=False, equation=Laplace(tau=tau))
    return GraphVictim(nn.Identity(), layer, *points(30, 0), threat=threat, floor=1e-12)


@pytest.mark.parametrize("threat", THREATS)
@pytest.mark.parametrize("tau", [0.0, 0.1])
def test_influence_is_what_a_flip_does(threat: ThreatModel, tau: float) -> None:
    v, (x, _) = victim(threat, tau), points(10, 1)
    weight = torch.randn(10, 3, dtype=torch.float64)
    gain = influence(v, x, weight)
    before = (weight * v(x).exp()).sum()
    for j in (0, 7, 20):
        for c in range(3):
            labels = v.base_labels.clone()
            labels[j] = c
            after = (weight * v.with_labels(labels)(x).exp()).sum()
            # The solution is linear in the labels: no higher terms.
            torch.testing.assert_close(after - before, gain[j, c] - gain[j, v.base_labels[j]], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("threat", THREATS)
def test_greedy_flips_do_more_than_random_ones(threat: ThreatModel) -> None:
    v, (x, y) = victim(threat), points(60, 1)
    counts = [0, 3, 6, 12]
    random, greedy = (poison(v, x, y, counts=counts, flips=flips) for flips in (RandomFlips(), GreedyFlips()))
    clean = float((v(x).argmax(1) != y).double().mean())
    assert random.errors[0] == greedy.errors[0] == clean < 0.15
    assert all(g > r for g, r in zip(greedy.errors[1:], random.errors[1:], strict=True)), (greedy, random)
    for result in (random, greedy):
        assert len(result.index.unique()) == 12
        assert (result.wrong != v.base_labels[result.index]).all()
    # The flips are what made these errors.
    labels = v.base_labels.clone()
    labels[greedy.index[:6]] = greedy.wrong[:6]
    assert float((v.with_labels(labels)(x).argmax(1) != y).double().mean()) == greedy.errors[2]
    assert torch.equal(v.base_labels, points(30, 0)[1])  # and the victim is as it was


def test_the_first_greedy_flip_is_the_best_of_all() -> None:
    v, (x, y) = victim(THREATS[1]), points(24, 1)
    u = v(x).exp()
    other = u.scatter(1, y[:, None], -1).argmax(1)

    def smooth(flipped: Tensor) -> float:
        """The errors, counted softly and to first order in u."""
        now, row = v.with_labels(flipped)(x).exp(), torch.arange(24)
        margin = (u[row, y] - u[row, other]) / 0.1
        change = (now - u)[row, y] - (now - u)[row, other]
        return float(-(change * torch.sigmoid(margin) * torch.sigmoid(-margin)).sum())

    gains = torch.full((30, 3), -torch.inf)
    for j in range(30):
        for c in range(3):
            if c != v.base_labels[j]:
                flipped = v.base_labels.clone()
                flipped[j] = c
                gains[j, c] = smooth(flipped)
    best = int(gains.argmax())
    found = poison(v, x, y, counts=[1], flips=GreedyFlips())
    assert (int(found.index), int(found.wrong)) == (best // 3, best % 3)


def test_random_flips_are_drawn_with_the_generator() -> None:
    v, (x, y) = victim(), points(9, 1)
    draws = [poison(v, x, y, counts=[8], generator=torch.Generator().manual_seed(s)).index.tolist() for s in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_flips_that_cannot_be() -> None:
    v, (x, y) = victim(), points(9, 1)
    with pytest.raises(ValueError, match=r"0 .. 30, the number of base samples with a class; got \(31,\)"):
        poison(v, x, y, counts=[31])
    with pytest.raises(ValueError, match="rounds must be at least 1"):
        GreedyFlips(rounds=0)
    labels = v.base_labels.clone()
    labels[0] = -1
    with pytest.raises(ValueError, match="a class for every base sample"):
        influence(v.with_labels(labels), x, torch.ones(9, 3, dtype=torch.float64))


def test_what_was_poisoned_is_said() -> None:
    v, (x, y) = victim(THREATS[1]), points(9, 1)
    for flips in (RandomFlips(), GreedyFlips()):
        threat = poison(v, x, y, counts=[0, 3], flips=flips).threat
        assert threat.base == "points (3 of its labels flipped at the most, all images left as they are)"
        assert threat.gradient == f"none: labels are chosen by {type(flips).__name__}"
        assert (threat.queries, threat.perturbs_base) == (Queries.ALONE, True)
    assert v.threat == replace(THREATS[1], dtype="float64")


@pytest.mark.parametrize("threat", THREATS[:2])
def test_queries_suffer_from_a_perturbed_base(threat: ThreatModel) -> None:
    v, (x, y), (base, _) = victim(threat), points(12, 1), points(30, 0)
    poisoned, _ = perturb_base(v, base, x, y, eps=0.12, steps=4)
    errors = [float((model(x).argmax(1) != y).double().mean()) for model in (v, poisoned)]
    assert errors[1] > errors[0] + 0.1
    assert (poisoned.threat.queries, poisoned.threat.inference) == (threat.queries, threat.inference)


@pytest.mark.parametrize("norm", [None, L2()])
def test_a_perturbed_base_stays_in_its_ball(norm: L2 | None) -> None:
    v, (x, y), (base, _) = victim(), points(30, 1), points(30, 0)
    poisoned, images = perturb_base(v, base, x, y, eps=0.12, steps=8, norm=norm)
    assert (images - base).abs().max() <= 0.12 + 1e-12
    assert images.min() >= 0
    assert images.max() <= 1
    errors = [float((model(x).argmax(1) != y).double().mean()) for model in (v, poisoned)]
    assert errors[1] > errors[0] + 0.1
    assert (poisoned.threat.perturbs_base, v.threat.perturbs_base) == (True, False)
    torch.testing.assert_close(v.with_base(images)(x), poisoned(x))


def test_a_base_that_cannot_be_perturbed(as_user: None) -> None:
    v, (x, y), (base, _) = victim(), points(9, 1), points(30, 0)
    for changes, kind, message in [
        ({"eps": 8}, ValueError, r"an eps of 8 in 255 is 0\.0314"),
        ({"steps": 0}, ValueError, "steps ≥ 1, got 0"),
        ({"norm": "L2"}, TypeError, r"LInf\(\) or L2\(\), got 'L2'"),
        ({"objective": Margin}, TypeError, "got the class itself"),
        ({"base_images": base + 1}, ValueError, r"pixels must be in \[0, 1\]"),
        ({"base_images": base[:9]}, ValueError, "the base has 30 samples, got 9 images"),
        ({"base_images": points(30, 1)[0]}, ValueError, "30 of 30 images have other features than the base sample in"),
        ({"base_images": base[[1, 0, *range(2, 30)]]}, ValueError, "2 of 30 images have other .* in their order"),
    ]:
        arguments: dict[str, Any] = {"base_images": base, "eps": 0.1, "images": x, "labels": y, **changes}
        with pytest.raises(kind, match=message):
            perturb_base(v, **arguments)


def test_a_class_may_go() -> None:
    """All labels of the class of the queries are flipped, and no warning says so."""
    base, y = torch.linspace(0, 1, 12)[:, None], torch.arange(12) // 6
    victim = GraphVictim(nn.Identity(), GraphLearningLayer(2, k=3, normalize=False), base, y)
    found = poison(victim, base[:6] + 0.01, y[:6], counts=[0, 6], flips=GreedyFlips())
    assert found.errors == (0.0, 1.0)
    assert sorted(found.index.tolist()) == list(range(6))
