"""Class shares: met exactly where scores differ, counted in masses, and kept by the methods that promise it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import gll
from gll.methods import method_from_name
from gll.volume import class_shares, log_shifts, shifts
from tests.method_cases import NAMES, clusters
from tests.problems import F64, one_hot


def whole_numbers(share: Tensor, n: int) -> Tensor:
    """Largest remainders, by brute force: the counts nearest to n · share that sum to n."""
    low = (share * n).floor().long()
    order = sorted(range(len(share)), key=lambda c: (float(low[c] - share[c] * n), c))
    for c in order[: n - int(low.sum())]:
        low[c] += 1
    return low


@pytest.mark.parametrize("seed", range(25))
def test_shares_are_met_exactly_where_scores_differ(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    n, classes = int(torch.randint(4, 80, (), generator=generator)), int(torch.randint(2, 7, (), generator=generator))
    score = torch.randn(n, classes, generator=generator, dtype=F64) * 10.0 ** float(
        torch.randint(-6, 6, (), generator=generator)
    )
    share = torch.rand(classes, generator=generator, dtype=F64)
    share = share / share.sum()
    found = torch.bincount((score + shifts(score, share)).argmax(1), minlength=classes)
    assert found.tolist() == whole_numbers(share, n).tolist()


def test_shifted_scores_are_the_best_assignment() -> None:
    """With shares 2:2:1 on five nodes, compared with all 30 assignments of those sizes."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        score = torch.randn(5, 3, generator=generator, dtype=F64)
        found = (score + shifts(score, torch.tensor([0.4, 0.4, 0.2], dtype=F64))).argmax(1)
        rows = torch.arange(5)
        best = max(
            float(score[rows, torch.tensor(a)].sum())
            for a in itertools.product(range(3), repeat=5)
            if sorted(a) == [0, 0, 1, 1, 2]
        )
        assert float(score[rows, found].sum()) == pytest.approx(best, abs=1e-12)


def test_awkward_shares() -> None:
    score = torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]], dtype=F64)

    def counts(score: Tensor, *share: float) -> list[int]:
        b = shifts(score, torch.tensor(share, dtype=F64))
        assert bool(torch.isfinite(b).all())
        assert float(b.mean()) == pytest.approx(0, abs=1e-9)
        return torch.bincount((score + b).argmax(1), minlength=len(share)).tolist()

    assert counts(score, 0.25, 0.75) == [1, 3]
    assert counts(score, 0.0, 1.0) == [0, 4]
    assert counts(score, 1.0, 0.0) == [4, 0]
    assert counts(score[:, :1], 1.0) == [4]
    assert sum(counts(torch.zeros(4, 2, dtype=F64), 0.5, 0.5)) == 4  # ties cannot be parted
    assert counts(score[:0], 0.5, 0.5) == [0, 0]
    # A node without a choice keeps its class, and the others make up for it.
    certain = torch.tensor([[0.0, -torch.inf]] * 2 + [[1.0, 0.9], [1.0, 0.8], [1.0, 0.2], [1.0, 0.1]], dtype=F64)
    assert counts(certain, 0.5, 0.5) == [3, 3]
    assert counts(certain, 0.0, 1.0) == [2, 4]


@pytest.mark.parametrize("seed", range(4))
def test_masses_are_repetitions(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    score = torch.randn(400, 4, generator=rng, dtype=torch.float64)
    mass = torch.randint(1, 6, (400,), generator=rng).double()
    share = torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    chosen = (score + shifts(score, share, mass)).argmax(1)
    reached = torch.bincount(chosen, mass, 4) / mass.sum()
    assert float((reached - share).abs().max() * mass.sum()) <= 5  # the heaviest node
    torch.testing.assert_close(class_shares(chosen, 4, mass), reached)
    assert float(shifts(score, share).sub(shifts(score, share, torch.ones(400).double())).abs().max()) < 0.05


def test_shares_of_many_nodes() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.softmax(3 * torch.randn(50_000, 4, generator=generator, dtype=F64), 1)
    share = torch.tensor([0.7, 0.1, 0.15, 0.05], dtype=F64)
    b = log_shifts(p, share)
    found = torch.bincount((p.log() + b).argmax(1), minlength=4) / 50_000
    assert float((found - share).abs().max()) < 1e-3
    own = torch.bincount(p.argmax(1), minlength=4).double() / 50_000
    assert float(log_shifts(p, own).abs().max()) == 0  # nothing to do


@pytest.mark.parametrize("name", NAMES)
def test_class_prior_sets_the_predicted_shares(name: str) -> None:
    graph, y = clusters(90, gap=2.0)
    known = torch.full_like(y, -1)
    known[:6] = y[:6]
    labels, prior = gll.Labels.from_classes(known, dtype=F64), torch.tensor([0.5, 0.3, 0.2], dtype=F64)
    free = method_from_name(name).propagate(graph, labels)
    found = method_from_name(name).propagate(graph, labels, class_prior=prior)
    wanted = torch.tensor([45, 27, 18])
    # Values that tie cannot be parted: nearest along edges would have some, by features it has none.
    assert int((torch.bincount(found.classes, minlength=3) - wanted).abs().sum()) <= 1
    assert int((torch.bincount(free.classes, minlength=3) - wanted).abs().sum()) > 10
    torch.testing.assert_close(found.probability.sum(1), torch.ones(90, dtype=F64))


def test_volume_mbo_keeps_the_shares_of_the_labels() -> None:
    graph, _ = clusters(90, gap=2.0)
    labels = one_hot([0, 1, 2, 3], [0, 1, 2, 0])
    found = method_from_name("volume-mbo").propagate(graph, labels)
    assert torch.bincount(found.classes).tolist() == [45, 23, 22]


def test_poisson_mbo_without_a_prior_keeps_the_shares_of_poisson() -> None:
    graph, _ = clusters(90, gap=2.0)
    labels = one_hot([0, 1, 2], [0, 1, 2])
    first = method_from_name("poisson").propagate(graph, labels).classes
    found = method_from_name("poisson-mbo").propagate(graph, labels).classes
    assert torch.equal(torch.bincount(found), torch.bincount(first))
