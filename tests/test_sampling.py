"""Batches and base sets: exact numbers, no base in the loss, the same for the same seed, shares of ranks."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import islice, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gll.active import Entropy, LocalMax, NormScore, Proportional, Situation, TopK, choose
from gll.data.base_sets import BASE_SELECTIONS, BASE_SETS, apportion
from gll.data.sampling import (
    AbstractBaseSet,
    Fixed,
    GraphBatches,
    Predictions,
    Stratified,
    Uncertain,
    base_set_from_name,
    proportions,
)
from gll.data.splits import LabelSplit, split_labels
from gll.features import Metric
from gll.similarity import knn_graph

count = st.integers(0, 5000)


def data(n: int = 1050, labelled: int = 250, classes: int = 10) -> tuple[Tensor, LabelSplit]:
    """Labels 0 1 2 ... 0 1 2 ..., of which every k-th sample keeps its own."""
    labels = torch.arange(n) % classes
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1))
    return labels, LabelSplit(order[:labelled].sort().values, order[labelled:].sort().values)


def uneven(sizes: list[int]) -> Tensor:
    return torch.cat([torch.full((size,), c) for c, size in enumerate(sizes)])


@given(st.integers(2, 3000), count, count)
def test_proportions_are_the_papers(batch: int, labelled: int, unlabelled: int) -> None:
    if labelled + unlabelled == 0:
        return
    n_l, n_u = proportions(batch, labelled, unlabelled)
    exact = Fraction(batch * labelled, labelled + unlabelled)
    assert n_l + n_u == batch
    assert (n_l > 0, n_u > 0) == (labelled > 0, unlabelled > 0)
    if exact.denominator == 1 and 0 < exact < batch:
        assert n_l == exact
    assert abs(n_l - exact) <= Fraction(1, 2) or n_l == 1 or n_u == 1  # the nearest whole number, or one at least


@settings(max_examples=60)
@given(st.integers(0, 8), st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_apportion_is_the_nearest_whole_division(total: int, sizes: list[int]) -> None:
    if sum(sizes) == 0 or total < sum(size > 0 for size in sizes):
        with pytest.raises(ValueError, match=r"size|divided"):
            apportion(total, sizes)
        return
    quota = [Fraction(total * size, sum(sizes)) for size in sizes]
    possible = [
        shares
        for shares in product(range(total + 1), repeat=len(sizes))
        if sum(shares) == total and all((share > 0) == (size > 0) for share, size in zip(shares, sizes, strict=True))
    ]
    found = apportion(total, sizes)
    assert tuple(found) in possible
    distance = [sum(abs(s - q) for s, q in zip(shares, quota, strict=True)) for shares in possible]
    assert sum(abs(s - q) for s, q in zip(found, quota, strict=True)) == min(distance)


def test_an_epoch_in_exact_proportions_shows_every_sample_once() -> None:
    labels, split = data()
    batches = GraphBatches(labels, split, batch=100, base=50, seed=0)
    base = batches.base_of(3)
    epoch = list(batches.epoch(3))
    assert len(epoch) == len(batches) == 10
    assert {batch.sizes for batch in epoch} == {(50, 20, 80)}
    assert all(torch.equal(batch.base, base) for batch in epoch)
    shown = torch.cat([batch.labelled for batch in epoch] + [base])
    assert torch.equal(shown.sort().values, split.labelled)
    assert torch.equal(torch.cat([batch.unlabelled for batch in epoch]).sort().values, split.unlabelled)


@settings(max_examples=60)
@given(
    st.integers(12, 120),
    st.integers(0, 300),
    st.integers(10, 40),
    st.integers(2, 500),
    st.integers(1, 4),
    st.booleans(),
)
def test_any_epoch(labelled: int, unlabelled: int, base: int, share: int, replicas: int, split_base: bool) -> None:
    """For sizes that do not fit: everything labelled is shown, in batches of equal size and near the proportions."""
    base = min(base, labelled - 1)
    outside = labelled - base
    if outside + unlabelled < 2 * replicas:
        return
    labels, split = data(labelled + unlabelled, labelled, classes=min(5, base))
    if len(labels[split.labelled].unique()) > base:
        return
    options = {"batch": share * replicas, "base": base, "seed": 2, "num_replicas": replicas, "split_base": split_base}
    ranks = [GraphBatches(labels, split, rank=r, **options) for r in range(replicas)]  # type: ignore[arg-type]
    shares = [list(rank.epoch(1)) for rank in ranks]
    whole_base = ranks[0].base_of(1)
    assert [len(epoch) for epoch in shares] == [len(ranks[0])] * replicas
    for step in zip(*shares, strict=True):
        assert len({batch.sizes[1:] for batch in step}) == 1  # equal shares
        assert 1 <= replicas * len(step[0].labelled) + replicas * len(step[0].unlabelled) <= share * replicas
        assert (len(step[0].unlabelled) > 0) == (unlabelled > 0)
        if split_base:
            assert torch.equal(torch.cat([batch.base for batch in step]), whole_base)
        else:
            assert all(torch.equal(batch.base, whole_base) for batch in step)
        loss = torch.cat([batch.labelled for batch in step])
        assert not torch.isin(loss, whole_base).any()  # the base never enters the loss
        assert len(loss.unique()) == len(loss) or outside < len(loss)  # shares are disjoint
        beside = torch.cat([batch.unlabelled for batch in step])
        assert len(beside.unique()) == len(beside) or unlabelled < len(beside)
    seen = torch.cat([batch.labelled for epoch in shares for batch in epoch])
    times = seen.bincount(minlength=len(labels))[split.labelled[~torch.isin(split.labelled, whole_base)]]
    assert int(times.min()) >= 1
    assert int((times - 1).sum()) == -outside % replicas  # as many again as make the shares equal
    sizes = [replicas * len(batch.labelled) for batch in shares[0]]
    assert max(sizes) - min(sizes) <= replicas
    seen = torch.cat([batch.unlabelled for epoch in shares for batch in epoch])
    assert torch.isin(seen, split.unlabelled).all()
    if unlabelled >= len(shares[0]) * replicas:
        assert int(seen.bincount(minlength=len(labels)).sum()) <= unlabelled + replicas - 1
        assert int((seen.bincount(minlength=len(labels)) - 1).clamp(min=0).sum()) <= replicas - 1


def test_no_batch_is_a_leftover() -> None:
    labels, split = data(1101, 1101)
    sizes = [batch.sizes for batch in GraphBatches(labels, split, batch=1000, base=0, seed=0).epoch(0)]
    assert sizes == [(0, 551, 0), (0, 550, 0)]


def test_without_a_base_there_are_labelled_samples_only() -> None:
    labels, split = data()
    batches = GraphBatches(labels, split, batch=50, base=0, seed=0)
    assert len(batches.base_of(0)) == 0
    epoch = list(batches.epoch(0))
    assert {batch.sizes for batch in epoch} == {(0, 50, 0)}
    assert torch.equal(torch.cat([batch.nodes for batch in epoch]).sort().values, split.labelled)


def test_a_batch_larger_than_the_data_is_the_data() -> None:
    labels, split = data()
    (batch,) = GraphBatches(labels, split, batch=10**6, base=50, seed=0).epoch(0)
    assert torch.equal(batch.nodes.sort().values, torch.arange(1050))


def test_steps_repeat_labelled_samples_evenly() -> None:
    labels, split = data()
    batches = GraphBatches(labels, split, batch=300, labelled=90, base=50, steps=41, seed=0)
    epoch = list(batches.epoch(2))
    assert len(epoch) == len(batches) == 41
    assert {batch.sizes for batch in epoch} == {(50, 90, 210)}
    for which, pool in (("labelled", 200), ("unlabelled", 800)):
        drawn = [getattr(batch, which) for batch in epoch]
        assert all(len(d.unique()) == len(d) for d in drawn)  # none twice in a batch, also where a pass ends inside it
        times = torch.cat(drawn).bincount(minlength=1050)
        times = times[times > 0]
        assert len(times) == pool
        assert int(times.max() - times.min()) <= 1


def test_the_yardstick_of_few_labels() -> None:
    """1,000 labels of 50,000: 250 base, 250 labelled and 1,000 unlabelled, 40 steps; by the equation it would be 19."""
    labels = torch.arange(50_000) % 10
    split = split_labels(labels, "2%", seed=0)
    batches = GraphBatches(labels, split, batch=1250, base=250, labelled=250, steps=40, seed=0)
    assert [batch.sizes for batch in islice(batches.epoch(0), 2)] == [(250, 250, 1000)] * 2
    assert proportions(1250, 750, 49_000) == (19, 1231)
    assert labels[batches.base_of(0)].bincount().tolist() == [25] * 10


def test_everything_derives_from_seed_and_epoch() -> None:
    labels, split = data()

    def nodes(seed: int, epoch: int, before: int = 0) -> Tensor:
        batches = GraphBatches(labels, split, batch=100, base=50, seed=seed)
        for e in range(before):
            list(batches.epoch(e))
        torch.rand(before + 1)  # the global generator plays no part
        return torch.cat([batch.nodes for batch in batches.epoch(epoch)])

    assert torch.equal(nodes(0, 3), nodes(0, 3, before=3))
    assert not torch.equal(nodes(0, 3), nodes(0, 4))
    assert not torch.equal(nodes(0, 3), nodes(1, 3))


def test_every_epoch_has_an_order_of_its_own() -> None:
    """Of the labelled and the unlabelled samples, also where the base stays."""
    labels, split = data()
    batches = GraphBatches(labels, split, batch=100, base=50, base_set=Fixed(), seed=0)
    a, b = (next(batches.epoch(epoch)) for epoch in (3, 4))
    assert not torch.equal(a.labelled, b.labelled)
    assert not torch.equal(a.unlabelled, b.unlabelled)


def test_hidden_classes_play_no_part() -> None:
    labels, split = data()
    other = labels.clone()
    other[split.unlabelled] = -1
    for set_ in (Fixed(), Stratified()):
        a, b = (GraphBatches(y, split, batch=100, base=50, base_set=set_, seed=0) for y in (labels, other))
        assert all(torch.equal(x.nodes, y.nodes) for x, y in zip(a.epoch(1), b.epoch(1), strict=True))


def test_base_sets_have_the_class_proportions() -> None:
    classes = uneven([500, 300, 200])
    for base_set in (Fixed(), Stratified()):
        chosen = base_set.choose(classes, 100, seed=0, epoch=0, scores=None)
        assert classes[chosen].bincount().tolist() == [50, 30, 20]
        assert len(chosen.unique()) == 100
    classes = uneven([997, 2, 1])  # quota 9.97, 0.02, 0.01: each class keeps one
    assert classes[Stratified().choose(classes, 10, seed=0, epoch=0, scores=None)].bincount().tolist() == [8, 1, 1]
    classes = torch.tensor([7, 7, 3, 3, 7, 7])  # classes need not be 0 .. C - 1
    assert sorted(classes[Stratified().choose(classes, 3, seed=0, epoch=0, scores=None)].tolist()) == [3, 7, 7]


def test_fixed_stays_and_stratified_changes() -> None:
    labels, split = data()
    fixed, new = (GraphBatches(labels, split, batch=100, base=50, base_set=s, seed=0) for s in (Fixed(), Stratified()))
    assert torch.equal(fixed.base_of(0), fixed.base_of(1))
    assert not torch.equal(new.base_of(0), new.base_of(1))
    # Over many epochs every labelled sample has been in the base about as often: 50 of 250 in 200 epochs.
    times = torch.cat([new.base_of(e) for e in range(200)]).bincount(minlength=1050)[split.labelled]
    assert times.sum() == 200 * 50
    assert 20 < int(times.min()) < int(times.max()) < 62  # 40 ± 3.6 standard deviations of 5.7


def softmax(m: int, c: int, scale: float = 2.0) -> Tensor:
    return (scale * torch.randn(m, c, generator=torch.Generator().manual_seed(3), dtype=torch.float64)).softmax(1)


@pytest.mark.parametrize(("name", "score"), [("entropy", Entropy()), ("l2", NormScore())])
def test_uncertain_takes_the_highest_scores(name: str, score: Entropy | NormScore) -> None:
    probability = softmax(300, 3)
    classes = torch.arange(300) % 3
    formula = {
        "entropy": lambda p: -sum(q * math.log(q) for q in p),
        "l2": lambda p: 1 - math.sqrt(sum(q * q for q in p)),
    }[name]
    by_hand = sorted(range(300), key=lambda row: -formula(probability[row].tolist()))[:40]
    assert len(set(classes[by_hand].tolist())) == 3
    base_set = base_set_from_name(name)
    assert base_set == Uncertain(score, TopK())
    assert base_set.needs_predictions
    assert not base_set.needs_features
    chosen = base_set.choose(classes, 40, seed=0, epoch=1, scores=Predictions(probability))
    assert sorted(chosen.tolist()) == sorted(by_hand)


def test_uncertain_keeps_every_class() -> None:
    """Class 2 is predicted surely; its least sure sample is in the base, in place of the last of the others."""
    classes = torch.arange(300) % 3
    probability = softmax(300, 3)
    sure = torch.zeros(300, 3, dtype=torch.float64)
    sure[:, 2] = 1 - 1e-6 * torch.arange(1, 301)
    sure[:, 0] = 1 - sure[:, 2]
    probability[classes == 2] = sure[classes == 2]
    chosen = Uncertain().choose(classes, 40, seed=0, epoch=1, scores=Predictions(probability))
    entropy = torch.special.entr(probability).sum(1)
    best = entropy.masked_fill(classes == 2, -1).topk(39).indices
    assert sorted(chosen.tolist()) == sorted([*best.tolist(), 299])


def test_uncertain_with_unpredicted_samples() -> None:
    labels, split = data(1050, 250, classes=5)
    batches = GraphBatches(labels, split, batch=100, base=50, base_set=Uncertain(), seed=0)
    first = batches.base_of(0)
    assert torch.equal(first, GraphBatches(labels, split, batch=100, base=50, seed=0).base_of(0))  # none: stratified
    probability = softmax(250, 5)
    probability[torch.isin(split.labelled, first)] = torch.nan
    second = batches.base_of(1, Predictions(probability))
    assert not torch.isin(second, first).any()  # not predicted, so not chosen
    probability[:] = torch.nan
    third = batches.base_of(1, Predictions(probability))  # nothing predicted: at random, every class among them
    assert set(labels[third].tolist()) == set(range(5))
    probability[:30] = 1 / 5
    fourth = batches.base_of(1, Predictions(probability))  # 30 are predicted: they, and 20 others
    assert int(torch.isin(split.labelled[:30], fourth).sum()) == 30


def test_local_max_spreads_the_base(device: torch.device) -> None:
    """With LocalMax no two samples of the base are neighbours, while the top scores cluster."""
    generator = torch.Generator().manual_seed(0)
    angle = torch.rand(400, generator=generator, dtype=torch.float64) * 2 * math.pi
    features = torch.stack([angle.cos(), angle.sin()], 1) * (1 + torch.rand(400, 1, generator=generator))
    p = (0.5 + 0.5 * torch.sin(angle)).clamp(1e-3, 1 - 1e-3)  # uncertain at two places of the circle
    scores = Predictions(torch.stack([p, 1 - p], 1).to(device), features.to(device))
    classes = (p < 0.5).long()
    spread = base_set_from_name("entropy", "localmax")
    assert spread.needs_features
    graph = knn_graph(features.to(device), 10, metric=Metric.COSINE)
    joined = graph.to_dense().cpu() > 0

    def neighbours(base_set: AbstractBaseSet) -> int:
        chosen = base_set.choose(classes, 8, seed=0, epoch=1, scores=scores)
        return int(joined[chosen][:, chosen].sum()) // 2

    assert neighbours(spread) == 0
    assert neighbours(Uncertain()) > 5
    # The same nodes as by the active learning functions directly.
    direct = choose(Entropy(), Situation(graph, value=scores.probability), 8, selection=LocalMax()).index
    assert set(direct.tolist()) == set(spread.choose(classes, 8, seed=0, epoch=1, scores=scores).tolist())
    with pytest.raises(ValueError, match="features"):
        spread.choose(classes, 8, seed=0, epoch=1, scores=Predictions(scores.probability))


def test_uncertain_is_the_same_for_the_same_epoch() -> None:
    classes, scores = torch.arange(300) % 3, Predictions(softmax(300, 3))
    drawn = Uncertain(selection=Proportional(gamma=1.0))
    a, b, c = (drawn.choose(classes, 40, seed=0, epoch=epoch, scores=scores).tolist() for epoch in (1, 1, 2))
    assert a == b != c


@pytest.mark.parametrize("name", BASE_SETS)
def test_the_base_never_enters_the_loss(name: str) -> None:
    labels, split = data()
    batches = GraphBatches(labels, split, batch=90, base=50, base_set=base_set_from_name(name), seed=0)
    scores = None
    for epoch in range(4):
        base = batches.base_of(epoch, scores)
        for batch in batches.epoch(epoch, scores):
            assert torch.equal(batch.base, base)
            assert not torch.isin(batch.labelled, base).any()
            assert not torch.isin(batch.unlabelled, base).any()
        scores = Predictions(softmax(250, 10).roll(epoch, 0))


def test_a_stored_base_resumes_a_run() -> None:
    labels, split = data()
    scores = Predictions(softmax(250, 10))
    batches = GraphBatches(labels, split, batch=100, base=50, base_set=Uncertain(), seed=0)
    stored = batches.base_of(4, scores)
    resumed = GraphBatches(labels, split, batch=100, base=50, base_set=Uncertain(), seed=0).epoch(4, base=stored)
    assert all(torch.equal(a.nodes, b.nodes) for a, b in zip(batches.epoch(4, scores), resumed, strict=True))


def test_as_a_batch_sampler() -> None:
    labels, split = data()
    images = torch.randn(1050, 3)
    batches = GraphBatches(labels, split, batch=100, base=50, seed=0)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_sampler=batches)
    assert len(loader) == 10
    seen = []
    for epoch in range(2):
        batches.set_epoch(epoch)
        for batch, (x, y) in zip(batches.epoch(epoch), loader, strict=True):
            assert torch.equal(x, images[batch.nodes])
            assert torch.equal(y[:50], labels[batch.base])
            seen.append(batch.labelled)
    assert not torch.equal(torch.cat(seen[:10]), torch.cat(seen[10:]))


def test_ranks_share_the_batches_of_one_process() -> None:
    """Where the numbers can be divided, the shares of two ranks together are the batch of one process, in order."""
    labels, split = data()
    one = GraphBatches(labels, split, batch=100, base=50, seed=0)
    two = [
        GraphBatches(labels, split, batch=100, base=50, seed=0, num_replicas=2, rank=r, split_base=True) for r in (0, 1)
    ]
    for whole, *shares in zip(one.epoch(5), *(rank.epoch(5) for rank in two), strict=True):
        for part in ("base", "labelled", "unlabelled"):
            assert torch.equal(getattr(whole, part), torch.cat([getattr(share, part) for share in shares]))
        assert [share.sizes for share in shares] == [(25, 10, 40)] * 2


class Wrong(AbstractBaseSet):
    def __init__(self, position: list[int]) -> None:
        self.position = position

    def choose(self, classes: Tensor, size: int, *, seed: int, epoch: int, scores: Predictions | None) -> Tensor:
        return torch.tensor(self.position)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base": 5}, "a base of 5 cannot hold a sample of each of 10 classes"),
        ({"base": 250}, "leaves none of 250 labelled samples for the loss"),
        ({"batch": 0}, "batch and steps ≥ 1"),
        ({"steps": 0}, "batch and steps ≥ 1"),
        ({"batch": 101, "num_replicas": 2}, "batch=101 counts all 2 processes together and must be a multiple"),
        ({"batch": 1}, "room for a labelled and an unlabelled sample"),
        ({"labelled": 101}, "labelled must lie in 1 .. batch = 100, got 101"),
        ({"rank": 1}, "rank must lie in 0 .. num_replicas - 1 = 0, got 1"),
        ({"base": 3, "base_set": Wrong([1, 1, 2])}, "a base must hold 3 different labelled samples"),
        ({"base": 10, "base_set": Wrong(list(range(10)))}, "no base sample of class"),
    ],
)
def test_sizes_that_do_not_fit(change: dict[str, object], message: str) -> None:
    labels, split = data()
    options = {"batch": 100, "base": 50, "seed": 0} | change
    with pytest.raises(ValueError, match=message):
        next(GraphBatches(labels, split, **options).epoch(0))  # type: ignore[arg-type]


def test_wrong_labels_and_names() -> None:
    labels, split = data()
    with pytest.raises(ValueError, match="the split is of 1,050 samples, got 9 labels"):
        GraphBatches(labels[:9], split, batch=100, base=50, seed=0)
    unknown = labels.clone()
    unknown[split.labelled[:3]] = -1
    with pytest.raises(ValueError, match=r"3 samples of split\.labelled without a class"):
        GraphBatches(unknown, split, batch=100, base=50, seed=0)
    with pytest.raises(ValueError, match="unknown base set 'entropie'; choose one of stratified, fixed, entropy, l2"):
        base_set_from_name("entropie")
    with pytest.raises(ValueError, match="unknown selection 'best'; choose one of top, localmax"):
        base_set_from_name("l2", "best")
    assert set(BASE_SELECTIONS) == {"top", "localmax"}
    with pytest.raises(ValueError, match="predictions for 7 samples, but 250 are labelled"):
        Uncertain().choose(labels[split.labelled], 50, seed=0, epoch=0, scores=Predictions(softmax(7, 10)))
    batches = GraphBatches(labels, split, batch=100, base=50, seed=0)
    with pytest.raises(ValueError, match="50 different labelled samples, got 50 indices, of which 0"):
        batches.epoch(0, base=split.unlabelled[:50])
