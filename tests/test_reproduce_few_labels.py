"""One label a class: samples of the base appear again as other images, and every equation of the graph head learns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import gll
from gll.data.sampling import GraphBatches
from gll.data.splits import LabelSplit
from gll.nn.heads import create_head
from gll.reproduce.experiment import load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.train_cells import WARM_UP
from gll.train.loop import new_run, train
from gll.train.toml import ConfigError
from tests.tiny_runs import tiny

F64 = torch.float64
LABELS = torch.arange(200) % 10
ONE_EACH = LabelSplit(torch.arange(10), torch.arange(10, 200))
EQUATIONS = {
    "laplace": (["equation=laplace"], gll.Laplace()),
    "poisson": (["equation=poisson", "tau=1e-3"], gll.Poisson(tau=1e-3)),
    "p-laplace": (["equation=p-laplace", "p=3.0"], gll.PLaplace(p=3.0)),
}


def options(name: str) -> list[str]:
    return [f"model.head_options.{text}" for text in EQUATIONS[name][0]]


# Batches -------------------------------------------------------------------------------------------------------------


def test_samples_of_the_base_appear_again() -> None:
    for steps, labelled, views in ((None, 5, 1), (3, 40, 4)):
        batches = GraphBatches(LABELS, ONE_EACH, batch=60, base=10, seed=0, labelled=labelled, steps=steps, again=True)
        seen = list(batches.epoch(0))
        assert all(torch.equal(batch.base, ONE_EACH.labelled) for batch in seen)
        drawn = torch.cat([batch.labelled for batch in seen])
        assert drawn.bincount(minlength=200)[:10].tolist() == [views * (steps or 1)] * 10
        assert len(drawn) == 10 * views * (steps or 1)
        assert all(int(batch.unlabelled.min()) >= 10 for batch in seen)
    with pytest.raises(ValueError, match=r"leaves none of 10 labelled samples .*base.again"):
        GraphBatches(LABELS, ONE_EACH, batch=60, base=10, seed=0)


def test_a_head_without_a_base_sees_as_many_images() -> None:
    batches = GraphBatches(LABELS, ONE_EACH, batch=60, base=0, seed=0, labelled=40, steps=2, again=True)
    assert [batch.sizes for batch in batches.epoch(0)] == [(0, 40, 0)] * 2


def test_where_the_base_leaves_some_all_are_drawn() -> None:
    split = LabelSplit(torch.arange(20), torch.arange(20, 200))
    for again, count in ((False, 10), (True, 20)):
        batches = GraphBatches(LABELS, split, batch=60, base=10, seed=0, again=again)
        drawn = torch.cat([batch.labelled for batch in batches.epoch(3)])
        assert drawn.unique().numel() == len(drawn) == count


def test_the_same_image_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"base.again must be false while data.augment is none"):
        tiny(tmp_path, "base.again=true")


# Training ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EQUATIONS)
def test_loss_and_gradient_are_those_of_the_equation(name: str) -> None:
    """The head on a small batch, beside knn_graph and solve, and beside differences."""
    random = torch.Generator().manual_seed(1)
    x = torch.randn(10, 3, generator=random, dtype=F64)
    y = torch.arange(10) % 3
    given = dict(text.split("=") for text in EQUATIONS[name][0])
    equation = given.pop("equation")
    head = create_head("gll", 3, 3, k=5, equation=equation, **{key: float(value) for key, value in given.items()})

    def loss(x: Tensor) -> Tensor:
        found: Tensor = head.loss(head(x[3:], x[:3], y[:3])[:5], y[3:8])
        return found

    graph = gll.knn_graph(x / x.norm(dim=1, keepdim=True), 5)
    labels = gll.Labels(torch.arange(3), torch.eye(3, dtype=F64))
    u = gll.solve(EQUATIONS[name][1], graph, labels).value[3:8]
    p = (graph.degree.mean() * u).softmax(1) if name == "poisson" else u / u.sum(1, keepdim=True)
    torch.testing.assert_close(loss(x), -p[torch.arange(5), y[3:8]].log().mean(), rtol=1e-6, atol=1e-7)
    assert torch.autograd.gradcheck(loss, x.requires_grad_())


def test_poisson_needs_a_decay_once_classes_have_parted() -> None:
    """One label each of two classes: while a path joins them Poisson proper has a solution, and afterwards none."""
    y = torch.arange(40) % 2
    noise = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    parted = torch.eye(3, dtype=F64)[y] + 0.1 * noise
    joined = torch.eye(3, dtype=F64)[y] + 0.6 * noise
    plain = create_head("gll", 3, 2, k=5, equation="poisson")
    decays = create_head("gll", 3, 2, k=5, equation="poisson", tau=1e-3)
    with pytest.raises(gll.SolveError) as caught:
        plain(parted[2:], parted[:2], y[:2])
    assert caught.value.result == gll.RESULT.INCOMPATIBLE_SOURCE
    assert torch.equal(decays(parted[2:], parted[:2], y[:2]).argmax(1), y[2:])
    for head in (plain, decays):
        assert torch.isfinite(head(joined[2:], joined[:2], y[:2])).all()


@pytest.mark.parametrize("name", EQUATIONS)
def test_training_at_one_label_a_class_lowers_the_loss(name: str, tmp_path: Path) -> None:
    """Two epochs of six steps; what is learned is the labelled samples' own classes, from other images of them."""
    more = ["data.labels=1 each", "data.augment=simclr-grey", "data.augment_options.smallest=0.6", "base.again=true"]
    more += ["base.size=10", "train.epochs=2", "train.steps=6", "train.batch=50", "train.lr=0.01", "test.tau=1e-4"]
    config = tiny(tmp_path, *more, "train.labelled=20", "model.head_options.k=8", *options(name))
    run = new_run(config)
    train(run)
    losses = [row["loss"] for row in run.metrics() if row["phase"] == "train"]
    assert losses[-1] < 0.95 * losses[0]


# The experiment ------------------------------------------------------------------------------------------------------


def test_all_heads_and_label_counts_of_a_seed_share_one_warm_up() -> None:
    experiment = load_experiment(Path(__file__).parent.parent / "experiments" / "few-labels")
    for scale, graphs in (("small", 3), ("full", 6)):
        cells = kind_of(experiment).cells(experiment, scale)
        seeds = len(experiment.text["scales"][scale]["seeds"])
        assert sum(cell.role == WARM_UP for cell in cells) == 2 * seeds
        # Three equations at one rate or at two, and an MLP.
        assert sum(not cell.role for cell in cells) == 2 * 3 * (graphs + 1) * seeds
