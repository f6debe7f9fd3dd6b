"""The watch: who is hidden from whom, errors equal to a dense solve, and memorised labels are found out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gll.solution import RESULT, SolveError
from gll.train import watch as module
from gll.train.watch import Look, Watch, hold_out
from tests import oracles


def held(
    labels: Tensor, labelled: Tensor, share: float, *, uses: bool = True, points: int = 10_000, seed: int = 0
) -> tuple[Tensor, Watch]:
    rest = torch.ones(len(labels), dtype=torch.bool).index_fill_(0, labelled, False)
    shown, watch = hold_out(
        labels.masked_fill(rest, -1),
        labelled,
        torch.nonzero(rest).flatten(),
        num_classes=int(labels.max()) + 1,
        share=share,
        loss_uses_labels=uses,
        generator=torch.Generator().manual_seed(seed),
        k=8,
        points=points,
    )
    assert watch is not None
    return shown, watch


def test_hidden_samples_are_hidden_from_the_loss_and_from_the_graph() -> None:
    labels = torch.arange(400) % 4
    labelled = torch.arange(80)
    shown, watch = held(labels, labelled, 0.25)
    hidden = watch.nodes[watch.fold == 0]
    assert sorted([*shown.tolist(), *hidden.tolist()]) == labelled.tolist()
    assert labels[hidden].bincount().tolist() == [5, 5, 5, 5]
    assert watch.fold.unique().tolist() == [-1, 0]
    assert len(watch.nodes) == len(watch.nodes.unique()) == 400
    assert torch.equal(watch.labels >= 0, torch.isin(watch.nodes, labelled))
    assert torch.equal(watch.labels[watch.labels >= 0], labels[watch.nodes[watch.labels >= 0]])
    assert not watch.optimistic
    other, _ = held(labels, labelled, 0.25, seed=1)
    assert not torch.equal(other, shown)


def test_every_class_keeps_a_label() -> None:
    labels = torch.tensor([0] * 10 + [1] * 2 + [2])
    for share in (0.1, 0.5, 0.9, 0.99):
        shown, watch = held(labels, torch.arange(13), share)
        assert set(labels[shown].tolist()) == {0, 1, 2}
        assert 1 <= int((watch.fold == 0).sum()) == 13 - len(shown) <= 10


def test_a_loss_without_labels_hides_nothing_and_all_are_measured() -> None:
    labels = torch.arange(300) % 3
    labelled = torch.arange(31)  # 11, 10 and 10 of the classes
    shown, watch = held(labels, labelled, 0.2, uses=False)
    assert torch.equal(shown, labelled)
    fold = watch.fold[watch.labels >= 0]
    assert fold.min() == 0
    assert fold.max() == 4
    for c in range(3):
        assert (watch.fold[watch.labels == c].bincount() >= 2).all()
    assert not watch.optimistic


def test_share_zero_is_the_papers_way_and_says_that_it_is_optimistic() -> None:
    labels = torch.arange(100) % 2
    shown, watch = held(labels, torch.arange(20), 0.0)
    assert len(shown) == 20
    assert watch.optimistic
    assert (watch.fold[watch.labels >= 0] >= 0).all()


def test_single_labels_are_never_hidden() -> None:
    labels = torch.tensor([0, 0, 0, 1])
    _, watch = held(labels, torch.arange(4), 0.0)
    assert watch.fold[watch.labels == 1].tolist() == [-1]
    nothing = hold_out(
        torch.tensor([0, 1, -1]), torch.tensor([0, 1]), torch.tensor([2]), num_classes=2, share=0.2,
        loss_uses_labels=True, generator=torch.Generator(),
    )  # fmt: skip
    assert nothing[1] is None
    assert nothing[0].tolist() == [0, 1]


@pytest.mark.parametrize("uses", [True, False])
def test_the_number_of_nodes_is_bounded(uses: bool) -> None:
    labels = torch.arange(3000) % 10
    labelled = torch.arange(2000)
    shown, watch = held(labels, labelled, 0.3, uses=uses, points=500)
    assert len(watch.nodes) == 500
    assert int((watch.labels >= 0).sum()) == 250
    assert watch.labels[watch.labels >= 0].bincount().tolist() == [25] * 10
    if uses:
        assert int((watch.fold == 0).sum()) == 100
        assert len(shown) == 1900  # no more is hidden than is measured


def test_the_error_is_that_of_a_dense_solve() -> None:
    torch.manual_seed(3)
    labels = torch.arange(90) % 3
    x = torch.randn(90, 4, dtype=torch.float64) + 1.2 * torch.eye(3, 4, dtype=torch.float64)[labels]
    _, watch = held(labels, torch.arange(30), 0.3, uses=False)
    x, truth = x[watch.nodes], labels[watch.nodes]
    w = oracles.weights(oracles.unit(x), 8)
    wrong, loss = 0, 0.0
    for f in range(int(watch.fold.max()) + 1):
        known = torch.nonzero((watch.labels >= 0) & (watch.fold != f)).flatten()
        hidden = torch.nonzero(watch.fold == f).flatten()
        u = oracles.laplace(w, known, torch.eye(3, dtype=torch.float64)[truth[known]], tau=1e-8)
        wrong += int((u[hidden].argmax(1) != truth[hidden]).sum())
        loss -= float(u[hidden, truth[hidden]].log().sum())
    look = watch.look(x)
    assert 0.1 < look.error < 0.9
    assert look.measured == 30
    assert look.error == wrong / 30
    assert look.loss == pytest.approx(loss / 30, rel=1e-6)


def test_memorised_labels_are_found_out() -> None:
    """The shown samples of a class sit together, away from all others, as a SupCon term alone would have it."""
    torch.manual_seed(0)
    labels = torch.arange(600) % 3
    labelled = torch.arange(60)
    x = torch.randn(600, 8) + 4 * torch.eye(3, 8)[labels]  # a good graph
    shown, watch = held(labels, labelled, 0.25)
    _, naive = held(labels, labelled, 0.0)
    assert watch.look(x[watch.nodes]).error < 0.1
    x[shown] = 0.01 * torch.randn(len(shown), 8) - 20 * torch.eye(3, 8)[labels[shown]]
    look = watch.look(x[watch.nodes])
    assert look.error > 0.5
    # Measured on samples that the loss has seen, as if nothing were hidden from it, all seems well.
    x[labelled] = 0.01 * torch.randn(60, 8) - 20 * torch.eye(3, 8)[labels[labelled]]
    assert naive.look(x[naive.nodes]).error == 0


def test_what_no_label_reaches_is_wrong() -> None:
    labels = torch.zeros(40, dtype=torch.int64)  # one class: whatever is reached is right
    labels[-1] = 1
    x = torch.randn(40, 2) * 0.01 + torch.tensor([1.0, 0.0])
    fold = torch.full((40,), -1)
    fold[20:] = 0
    given = torch.where(torch.arange(40) < 39, 0, 1)
    watch = Watch(torch.arange(40), given, fold, 2, k=5)
    assert watch.look(x).error == pytest.approx(1 / 20)
    x[20:, 0] = -1.0
    assert watch.look(x).error == 1.0


def test_a_graph_that_cannot_be_solved_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: object, **options: object) -> None:
        raise SolveError(RESULT.ILL_CONDITIONED)

    labels = torch.arange(40) % 2
    _, watch = held(labels, torch.arange(20), 0.2)
    monkeypatch.setattr(module, "solve", failing)
    look = watch.look(torch.randn(40, 3))
    assert look.error == 1
    assert look.trouble
    assert math.isfinite(look.loss)


def test_better_is_a_smaller_error_and_then_a_smaller_loss() -> None:
    assert Look(0.1, 9.0, 10).better_than(Look(0.2, 1.0, 10))
    assert Look(0.1, 0.9, 10).better_than(Look(0.1, 1.0, 10))
    assert not Look(0.1, 1.0, 10).better_than(Look(0.1, 1.0, 10))
    assert Look(1.0, 1.0, 10).better_than(None)
    assert Look(0.5, 1.0, 25).spread == pytest.approx(0.1)


@pytest.mark.parametrize(("share", "uses"), [(0.0, False), (0.5, True), (0.34, False), (0.0, True)])
def test_more_classes_than_room(share: float, uses: bool) -> None:
    """100 classes with two labels each, and room for 50 labelled nodes: what is measured can be found."""
    labels = torch.arange(600) % 100
    _, watch = held(labels, torch.arange(200), share, uses=uses, points=100)
    assert len(watch.nodes) <= 100
    measured = watch.fold >= 0
    assert bool(measured.any())
    for fold in range(int(watch.fold.max()) + 1):
        hidden = watch.fold == fold
        known = watch.labels[(watch.labels >= 0) & ~hidden]
        assert set(watch.labels[hidden].tolist()) <= set(known.tolist())
    x = torch.nn.functional.one_hot(labels[watch.nodes], 100).float() + 0.01 * torch.randn(len(watch.nodes), 100)
    assert watch.look(x).error == 0
