"""What to label next: scores against brute force, batches by their defining properties, and the life of the loop."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, make_blobs
from torch import Tensor

import gll
import gll.estimator
import gll.methods
import gll.solvers
from gll.active import (
    ACQUISITIONS,
    SELECTIONS,
    AbstractAcquisition,
    Entropy,
    FewerThanAskedWarning,
    LocalMax,
    Margin,
    ModelChange,
    NormScore,
    Proportional,
    Random,
    SigmaOpt,
    Situation,
    SmallestNorm,
    TopK,
    VOpt,
    acquisition_from_name,
    as_config,
    choose,
    selection_from_name,
)
from gll.field import GaussianField
from gll.graph import Normalization
from gll.loop import ActiveLearner
from gll.methods import method_from_name
from tests.problems import F64, graph_of, one_hot, path, random_graph, star, two_cliques

NONE, SYMMETRIC = Normalization.NONE, Normalization.SYMMETRIC


def dense_laplacian(graph: gll.Graph, normalization: Normalization) -> Tensor:
    w = graph.to_dense()
    degree = w.sum(1)
    if normalization is NONE:
        return torch.diag(degree) - w
    root = torch.where(degree > 0, degree, 1).rsqrt()
    return torch.diag((degree > 0).to(w.dtype)) - root[:, None] * w * root


def dense_covariance(graph: gll.Graph, field: GaussianField, labelled: list[int]) -> Tensor:
    """(L + τ + Σ e eᵀ/γ²)^-1, the covariance written down."""
    precision = dense_laplacian(graph, field.normalization) + field.tau * torch.eye(graph.num_nodes, dtype=F64)
    for k in labelled:
        precision[k, k] += 1 / field.noise
    return torch.linalg.inv(precision)


def probabilities(n: int, classes: int = 3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(n, classes, generator=generator, dtype=F64), 1)


# Scores --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalization", [NONE, SYMMETRIC])
@pytest.mark.parametrize("labelled", [[], [4], [0, 7, 11]])
def test_vopt_and_sigma_opt_are_what_a_label_takes_off(normalization: Normalization, labelled: list[int]) -> None:
    """The trace, and the sum, of the covariance before and after each label, inverted afresh."""
    graph = random_graph(14)
    field = GaussianField(0.1, 0.3, normalization=normalization)
    labels = one_hot(labelled, [0] * len(labelled)) if labelled else None
    situation = Situation(graph, labels)
    vopt, sigma = VOpt(field).score(situation), SigmaOpt(field).score(situation)
    before = dense_covariance(graph, field, labelled)
    for k in range(14):
        if k in labelled:
            continue
        after = dense_covariance(graph, field, [*labelled, k])
        assert float(vopt[k]) == pytest.approx(float(before.trace() - after.trace()), rel=1e-9)
        assert float(sigma[k]) == pytest.approx(float(before.sum() - after.sum()), rel=1e-9)


def test_model_change_is_the_change_of_the_model() -> None:
    """The mean of the field, solved afresh with and without the label of the predicted class."""
    graph, field = random_graph(14), GaussianField(0.2, 0.5)
    labels = one_hot([0, 5, 9], [0, 1, 2])

    def mean(index: list[int], value: Tensor) -> Tensor:
        return dense_covariance(graph, field, index)[:, index] @ value / field.noise

    m = mean([0, 5, 9], labels.value)
    score = ModelChange(field).score(Situation(graph, labels, m))
    for k in range(14):
        if k in (0, 5, 9):
            continue
        changes = [
            float(
                torch.linalg.norm(mean([0, 5, 9, k], torch.cat([labels.value, torch.eye(3, dtype=F64)[c : c + 1]])) - m)
            )
            for c in range(3)
        ]
        assert float(score[k]) == pytest.approx(changes[int(m[k].argmax())], rel=1e-9)
        assert changes[int(m[k].argmax())] == min(changes)  # the label that moves least, as the docstring says


def test_uncertainty_by_hand() -> None:
    p = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.6, 0.3, 0.1]], dtype=F64)
    situation = Situation(path(3), value=p)
    expected = [0.0, np.log(2), -(0.6 * np.log(0.6) + 0.3 * np.log(0.3) + 0.1 * np.log(0.1))]
    assert Entropy().score(situation).tolist() == pytest.approx(expected)
    assert NormScore().score(situation).tolist() == pytest.approx([0, 1 - 0.5**0.5, 1 - 0.46**0.5])
    assert Margin().score(situation).tolist() == pytest.approx([0, 1, 0.7])


def test_smallest_norm_grows_along_a_path() -> None:
    """u fades from the label like the solution of a tridiagonal system; nodes that nothing reaches score 1."""
    graph = graph_of(7, [(0, 1), (1, 2), (2, 3), (3, 4), (5, 6)])
    tau = 0.5 * float(graph.degree.mean())
    system = dense_laplacian(graph, NONE) + tau * torch.eye(7, dtype=F64)
    free = [1, 2, 3, 4]
    u = torch.linalg.solve(system[free][:, free], -system[free, 0])
    score = SmallestNorm(0.5).score(Situation(graph, one_hot([0], [0])))
    assert score[free].tolist() == pytest.approx((1 - u).tolist(), rel=1e-8)
    assert score[5:].tolist() == pytest.approx([1.0, 1.0])
    assert score[free].diff().min() > 0


def test_random_scores_depend_on_the_seed_only() -> None:
    graph = path(50)
    a, b, c = (Random().score(Situation(graph, seed=s)) for s in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    assert 0.3 < float(a.mean()) < 0.7


@pytest.mark.parametrize("normalization", [NONE, SYMMETRIC])
@pytest.mark.parametrize("dense", [True, False])
def test_all_modes_but_two_are_nearly_exact(
    normalization: Normalization, dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spectral field converges to the exact one; with few modes it is the projection on the smoothest ones."""
    graph = random_graph(60, k=5)
    labels = torch.tensor([3, 40])
    exact = GaussianField(0.1, 0.2, normalization=normalization).prior(graph).given(labels)
    monkeypatch.setattr("gll.field.EXACT_UP_TO", 60 if dense else 10)
    value, vector = torch.linalg.eigh(dense_laplacian(graph, normalization))
    errors = []
    for rank in (5, 20, 58):
        found = GaussianField(0.1, 0.2, rank, normalization).prior(graph)
        assert found.basis is not None
        assert found.basis.shape == (60, rank)
        smooth = vector[:, :rank] / (value[:rank] + 0.1) @ vector[:, :rank].T  # the same, by dense algebra
        picked = smooth[labels][:, labels] + 0.2 * torch.eye(2, dtype=F64)
        after = smooth - smooth[:, labels] @ torch.linalg.solve(picked, smooth[labels])
        posterior = found.given(labels)
        torch.testing.assert_close(posterior.variance, after.diagonal(), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(posterior.total, after.sum(0), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(posterior.square, after.square().sum(0), rtol=1e-3, atol=1e-3)
        errors.append(float((posterior.variance - exact.variance).abs().max()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.2 * errors[0]


@pytest.mark.parametrize("normalization", [NONE, SYMMETRIC])
@pytest.mark.parametrize("dense", [True, False])
def test_modes_of_a_graph_in_pieces(normalization: Normalization, dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero is an eigenvalue of every component, of an isolated node too, and none is missed."""
    edges = [(10 * c + i, 10 * c + j) for c in range(6) for i in range(10) for j in range(i) if (i + j) % 3]
    weight = torch.rand(len(edges), dtype=F64) + 0.1
    graph = graph_of(62, edges, weight)  # six pieces and two isolated nodes
    monkeypatch.setattr("gll.field.EXACT_UP_TO", 62 if dense else 10)
    value = torch.linalg.eigvalsh(dense_laplacian(graph, normalization))
    assert int((value.abs() < 1e-9).sum()) == 8
    for rank in (8, 30):
        found = GaussianField(0.1, 0.2, rank, normalization).prior(graph)
        assert found.basis is not None
        eye = torch.eye(rank, dtype=F64)
        torch.testing.assert_close(found.basis.T @ found.basis, eye, rtol=0, atol=1e-10)
        torch.testing.assert_close(found.core.diagonal(), 1 / (value[:rank].clamp(min=0) + 0.1), rtol=1e-5, atol=0)
    six = GaussianField(0.1, 0.2, 6, normalization).prior(graph)  # fewer modes than pieces: the largest ones
    assert six.variance[60:].tolist() == [0, 0]


@pytest.mark.parametrize("normalization", [NONE, SYMMETRIC])
def test_modes_that_are_not_found(normalization: Normalization, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six equal pieces have six equal modes each, which the iteration cannot tell apart: an error that says so."""
    edges = [(10 * c + i, 10 * c + j) for c in range(6) for i in range(10) for j in range(i) if (i + j) % 3]
    monkeypatch.setattr("gll.field.EXACT_UP_TO", 10)
    with pytest.raises(RuntimeError, match=r"smoothest modes of the graph were not found .* rank=60"):
        GaussianField(0.1, 0.2, 30, normalization).prior(graph_of(60, edges))


@pytest.mark.parametrize("rank", [None, 12])
def test_one_by_one_is_all_at_once(rank: int | None) -> None:
    """The rank-one step and the block formula, after thirty labels."""
    prior = GaussianField(1e-3, 1e-2, rank).prior(random_graph(40, k=5))
    order = torch.randperm(40)[:30]
    together, single = prior.given(order), prior
    for k in order:
        single = single.given(k[None])
    for name in ("core", "variance", "total", "square"):
        a, b, start = (getattr(c, name) for c in (single, together, prior))
        assert float((a - b).abs().max()) < 1e-9 * float(start.abs().max()), name


def test_isolated_nodes_and_other_components_are_asked_for() -> None:
    """A variance of 1/τ where no label is connected: the next label goes there."""
    graph = graph_of(7, [(0, 1), (1, 2), (3, 4), (4, 5)])  # and node 6 alone
    field = GaussianField(0.01, 0.01)
    prior = field.prior(graph)
    assert float(prior.variance[6]) == pytest.approx(100)
    picks = choose(VOpt(field), Situation(graph), 3, selection=TopK()).index.tolist()
    assert {int(graph.components[p]) for p in picks} == {0, 1, 2}


@pytest.mark.parametrize("name", [name for name in ACQUISITIONS if name != "random"])
def test_permuting_the_nodes_permutes_the_scores(name: str) -> None:
    graph, p = random_graph(20, k=4), probabilities(20)
    order = torch.randperm(20)
    place = torch.argsort(order)  # node i of the old graph is node place[i] of the new one
    moved = gll.Graph.from_sparse(graph.to_dense()[order][:, order])
    labels = one_hot([2, 8], [0, 1])
    score = acquisition_from_name(name).score(Situation(graph, labels, p))
    other = acquisition_from_name(name).score(Situation(moved, gll.Labels(place[labels.index], labels.value), p[order]))
    torch.testing.assert_close(other, score[order], rtol=1e-8, atol=1e-10)


def test_scores_do_not_depend_on_the_order_of_classes() -> None:
    p = probabilities(10)
    for acquisition in (Entropy(), NormScore(), Margin(), ModelChange()):
        a, b = (acquisition.score(Situation(random_graph(10), value=q)) for q in (p, p.flip(1)))
        torch.testing.assert_close(a, b)


def test_scores_on_a_device(device: torch.device) -> None:
    graph, p = random_graph(20, k=4), probabilities(20)
    t = graph.topology
    there = gll.Graph(gll.Topology(20, t.i.to(device), t.j.to(device)), graph.weight.to(device))
    labels = one_hot([2, 8], [0, 1])
    moved = gll.Labels(labels.index.to(device), labels.value.to(device))
    for name in ACQUISITIONS:
        for selection in SELECTIONS:
            picks = [
                choose(acquisition_from_name(name), s, 5, selection=selection_from_name(selection)).index.tolist()
                for s in (Situation(graph, labels, p), Situation(there, moved, p.to(device)))
            ]
            assert picks[0] == picks[1]


# Batches -------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Fixed(AbstractAcquisition):
    """Scores given by hand."""

    scores: tuple[float, ...]

    def score(self, situation: Situation) -> Tensor:
        return torch.tensor(self.scores, dtype=F64)


@st.composite
def scored_graphs(draw: st.DrawFn) -> tuple[gll.Graph, tuple[float, ...], list[int], list[int], int]:
    n = draw(st.integers(2, 12))
    pairs = [(i, j) for i in range(n) for j in range(i)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * n))
    scores = tuple(draw(st.lists(st.integers(0, 4).map(float), min_size=n, max_size=n)))  # many ties
    marked = draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n - 1))
    cut = draw(st.integers(0, len(marked)))
    return graph_of(n, edges), scores, marked[:cut], marked[cut:], draw(st.integers(1, n))


@settings(max_examples=150)
@given(scored_graphs())
def test_local_max_by_its_definition(case: tuple[gll.Graph, tuple[float, ...], list[int], list[int], int]) -> None:
    graph, scores, labelled, pending, count = case
    n, adjacent = graph.num_nodes, graph.to_dense() > 0
    labels = one_hot(labelled, [0] * len(labelled)) if labelled else None
    situation = Situation(graph, labels, pending=torch.tensor(pending, dtype=torch.int64))
    rivals = [i for i in range(n) if i not in labelled]
    free = [i for i in rivals if i not in pending]

    def wins(a: int, b: int) -> bool:
        return scores[a] > scores[b] or (scores[a] == scores[b] and a < b)

    best = [i for i in free if all(wins(i, j) for j in rivals if adjacent[i, j])]
    best.sort(key=lambda i: (-scores[i], i))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewerThanAskedWarning)
        strict = choose(Fixed(scores), situation, count, selection=LocalMax(fill=False)).index.tolist()
        filled = choose(Fixed(scores), situation, count, selection=LocalMax()).index.tolist()
    assert strict == best[:count]
    for i in strict:
        assert all(scores[i] >= scores[j] for j in rivals if adjacent[i, j])
        assert not any(adjacent[i, j] for j in strict)
    # Filled: as many as asked for or as there are, the true maxima first, nobody twice, none that is known.
    assert filled[: len(strict)] == strict
    assert len(filled) == len(set(filled)) == min(count, len(free))
    assert set(filled) <= set(free)


@settings(max_examples=60)
@given(scored_graphs(), st.sampled_from([TopK(), LocalMax(), Proportional(), Proportional(1.0)]))
def test_no_selection_returns_what_is_known(case: Any, selection: Any) -> None:
    graph, scores, labelled, pending, count = case
    labels = one_hot(labelled, [0] * len(labelled)) if labelled else None
    situation = Situation(graph, labels, pending=torch.tensor(pending, dtype=torch.int64))
    free = [i for i in range(graph.num_nodes) if i not in labelled + pending]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewerThanAskedWarning)
        choice = choose(Fixed(scores), situation, count, selection=selection)
    found = choice.index.tolist()
    assert len(set(found)) == len(found) == min(count, len(free))
    assert set(found) <= set(free)
    assert choice.score.tolist() == [scores[i] for i in found]
    if isinstance(selection, TopK):
        assert found == sorted(free, key=lambda i: (-scores[i], i))[:count]


def test_filling_avoids_neighbours_of_picks() -> None:
    """On a path with rising scores only the last node is a maximum; the rest come two apart, then those between."""
    found = choose(Fixed((0.0, 1.0, 2.0, 3.0, 4.0)), Situation(path(5)), 5).index.tolist()
    assert found == [4, 2, 0, 3, 1]


def test_an_edge_of_weight_zero_joins_nothing() -> None:
    graph = path(2).with_weight(torch.zeros(1, dtype=F64))
    assert choose(Fixed((1.0, 2.0)), Situation(graph), 2, selection=LocalMax(fill=False)).index.tolist() == [1, 0]


@pytest.mark.parametrize("normalization", [NONE, SYMMETRIC])
@pytest.mark.parametrize("kind", [VOpt, SigmaOpt])
def test_batches_are_greedy(kind: Any, normalization: Normalization) -> None:
    """Each pick is the best given the picks before it, by brute force."""
    graph, field = random_graph(16), GaussianField(0.05, 0.1, normalization=normalization)
    choice = choose(kind(field), Situation(graph, one_hot([3], [0])), 4, selection=TopK())
    known = [3]
    for pick, score in zip(choice.index.tolist(), choice.score.tolist(), strict=True):
        measure = torch.trace if kind is VOpt else torch.sum
        before = measure(dense_covariance(graph, field, known))
        gain = {
            k: float(before - measure(dense_covariance(graph, field, [*known, k]))) for k in range(16) if k not in known
        }
        assert pick == max(gain, key=gain.__getitem__)
        assert score == pytest.approx(gain[pick], rel=1e-9)
        known.append(pick)


def test_a_batch_of_two_takes_one_of_each_clique() -> None:
    """Without updates both would go to the same place; what was asked for before counts as well."""
    graph = two_cliques(6, 1e-3)
    picks = choose(VOpt(), Situation(graph), 2, selection=TopK()).index.tolist()
    assert sorted(p // 6 for p in picks) == [0, 1]
    later = choose(VOpt(), Situation(graph, pending=torch.tensor(picks[:1])), 1, selection=TopK()).index.tolist()
    assert later == picks[1:]


@pytest.mark.parametrize(
    ("gamma", "weight"), [(None, [1, 2, 3, 4]), (1.0, [np.e, np.e**2, np.e**3, np.e**4]), (0.0, [1] * 4)]
)
def test_sampling_proportions(gamma: float | None, weight: list[float]) -> None:
    """Pearson's statistic of 1,000 first picks, and of the pairs drawn without replacement."""
    draws, scores, share = 1000, Fixed((1.0, 2.0, 3.0, 4.0, 9.0)), np.array(weight) / np.sum(weight)
    picks = np.array([
        choose(
            scores, Situation(path(5), one_hot([4], [0]), seed=seed), 2, selection=Proportional(gamma)
        ).index.tolist()
        for seed in range(draws)
    ])  # fmt: skip
    first = np.bincount(picks[:, 0], minlength=5)
    assert first[4] == 0
    assert (((first[:4] - draws * share) ** 2) / (draws * share)).sum() < 16.3  # 0.1 % point, 3 degrees of freedom
    pairs = {(a, b): share[a] * share[b] / (1 - share[a]) for a in range(4) for b in range(4) if a != b}
    expected = draws * np.array(list(pairs.values()))
    seen = np.array([(picks == pair).all(1).sum() for pair in pairs])
    assert ((seen - expected) ** 2 / expected).sum() < 31.3  # 0.1 % point, 11 degrees of freedom


def test_sampling_in_proportion_to_negative_scores() -> None:
    with pytest.raises(ValueError, match="needs scores ≥ 0, the smallest is -1; set gamma"):
        choose(Fixed((-1.0, 2.0)), Situation(path(2)), 1, selection=Proportional())
    assert choose(Fixed((0.0, 0.0)), Situation(path(2)), 2, selection=Proportional()).index.sort().values.tolist() == [
        0,
        1,
    ]


def test_asking_for_more_than_there_are() -> None:
    situation = Situation(path(4), one_hot([0], [0]))
    with pytest.warns(FewerThanAskedWarning, match="9 nodes were asked for, 3 chosen: only 3 are left"):
        assert len(choose(VOpt(), situation, 9).index) == 3
    with pytest.warns(FewerThanAskedWarning, match="2 nodes were asked for, 1 chosen: only so many stand out"):
        choose(Fixed((0.0, 1.0, 2.0, 3.0)), situation, 2, selection=LocalMax(fill=False))
    with pytest.raises(ValueError, match="no candidate is left"):
        choose(VOpt(), Situation(path(2), one_hot([0, 1], [0, 1])), 1)
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        choose(VOpt(), situation, 0)


@pytest.mark.usefixtures("as_user")
def test_candidates() -> None:
    """Base sets are chosen among some nodes only; the others do not compete."""
    choice = choose(Fixed((5.0, 4.0, 3.0, 2.0)), Situation(path(4)), 2, candidates=torch.tensor([1, 3]))
    assert choice.index.tolist() == [1, 3]
    with pytest.raises(ValueError, match=r"candidates must lie in 0 \.\. 3"):
        choose(VOpt(), Situation(path(4)), 1, candidates=torch.tensor([4]))
    for same in ([1, 3], (1, 3), range(1, 4, 2), np.array([1, 3]), np.array([3, 1], dtype=np.uint8)):
        again = choose(Fixed((5.0, 4.0, 3.0, 2.0)), Situation(path(4)), 2, candidates=same)
        assert again.index.tolist() == [1, 3]
    with pytest.raises(ValueError, match="no candidate is left"):
        choose(VOpt(), Situation(path(4)), 1, candidates=[])
    for wrong, got in [
        (torch.ones(4, dtype=torch.bool), r"torch\.bool of shape \(4,\)"),
        (np.ones(4, dtype=bool), r"bool of shape \(4,\)"),
        ([0.5], r"float64 of shape \(1,\)"),
        ([[0, 1]], r"int64 of shape \(1, 2\)"),
    ]:
        with pytest.raises(ValueError, match=f"candidates must be whole numbers in one dimension.*got {got}"):
            choose(VOpt(), Situation(path(4)), 1, candidates=wrong)  # type: ignore[arg-type]


def test_a_base_set_for_the_layer() -> None:
    """A base that is spread over the graph serves the layer better than most random ones of its size."""
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x[:1000]).float(), torch.tensor(y[:1000])
    train, test = np.arange(0, 1000, 2), np.arange(1, 1000, 2)
    layer = gll.GraphLearningLayer(10, k=10)

    def accuracy(base: Tensor) -> float:
        return float((layer(x[test], x[base], y[base]).argmax(1) == y[test]).double().mean())

    base = choose(SigmaOpt(), Situation(gll.knn_graph(x, k=10)), 40, candidates=train).index
    assert set(base.tolist()) <= set(train.tolist())
    drawn = []
    for seed in range(5):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a class may be missing
            drawn.append(accuracy(torch.from_numpy(train)[order[:40]]))
    assert accuracy(base) > sum(drawn) / len(drawn) + 0.02


@pytest.mark.usefixtures("as_user")
def test_wrong_situations() -> None:
    graph = path(3)
    good = torch.full((3, 2), 0.5)
    for options, message in [
        ({"value": torch.tensor([[0.5, float("nan")]] * 3)}, "value must hold probabilities, but lies in nan"),
        ({"value": 3 * good}, r"lies in 1.5 \.\. 1.5; turn scores into probabilities first"),
        ({"value": good[:2]}, "n = 3, got torch.float32 of shape \\(2, 2\\)"),
        ({"pending": torch.tensor([3])}, r"indices of pending must lie in 0 \.\. 2"),
        ({"labels": one_hot([0, 0], [0, 1])}, "appears twice in labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            Situation(graph, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs predictions, and there are none yet; start with VOpt"):
        choose(Entropy(), Situation(graph), 1)
    with pytest.raises(ValueError, match="needs at least one label"):
        choose(SmallestNorm(), Situation(graph), 1)
    with pytest.raises(ValueError, match="gave 1 scores that are not finite"):
        choose(Fixed((0.0, float("inf"), 0.0)), Situation(graph), 1)
    with pytest.raises(TypeError, match=r"such as gll.active.Entropy\(\), got 'entropy'"):
        choose("entropy", Situation(graph), 1)  # type: ignore[arg-type]
    for wrong, message in [
        (lambda: GaussianField(tau=0.0), "tau of a Gaussian field must be a finite number > 0, got 0.0"),
        (lambda: GaussianField(noise=float("nan")), "noise of a Gaussian field"),
        (lambda: GaussianField(rank=0), "rank must be at least 1"),
        (lambda: GaussianField(normalization=Normalization.RANDOM_WALK), "a covariance is symmetric"),
        (lambda: SmallestNorm(tau=0.0), "the smallest norm needs tau > 0"),
        (lambda: Proportional(-1.0), "gamma must be None or a finite number"),
        (lambda: acquisition_from_name("bald"), "unknown acquisition function 'bald'; choose one of entropy, norm"),
        (lambda: acquisition_from_name("vopt", temperature=1), "'vopt' has no option 'temperature'; its options: tau"),
        (lambda: selection_from_name("best"), "unknown selection 'best'; choose one of local-max"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()


def test_names_make_equal_objects() -> None:
    things: list[Any] = [kind() for kind in (*ACQUISITIONS.values(), *SELECTIONS.values())]
    things += [VOpt(GaussianField(0.5, 0.25, 7, NONE)), SmallestNorm(0.3, True), Proportional(2.0), LocalMax(False)]
    for thing in things:
        config = json.loads(json.dumps(as_config(thing)))
        maker = acquisition_from_name if isinstance(thing, AbstractAcquisition) else selection_from_name
        assert maker(config["name"], **config["options"]) == thing


def test_a_hub_is_worth_more_than_a_leaf() -> None:
    assert choose(VOpt(), Situation(star([1.0] * 6)), 1).index.tolist() == [0]
    assert choose(SigmaOpt(), Situation(star([1.0] * 6)), 1).index.tolist() == [0]


# The loop ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits() -> tuple[gll.Graph, list[int]]:
    x, y = load_digits(return_X_y=True)
    return gll.knn_graph(torch.tensor(x[:400]), 8), y[:400].tolist()


def rounds(learner: ActiveLearner, truth: list[int], count: int, batch: int = 6) -> list[list[int]]:
    """Answer truthfully, and return what was asked."""
    asked = []
    for _ in range(count):
        asked.append([s.index for s in learner.suggest(batch)])
        learner.tell(asked[-1], [truth[i] for i in asked[-1]])
    return asked


def test_the_loop_beats_random_on_digits(digits: tuple[gll.Graph, list[int]]) -> None:
    graph, truth = digits
    found = {}
    for acquisition in (NormScore(), ModelChange(), Random()):
        learner = ActiveLearner(graph, acquisition=acquisition, truth=truth)
        rounds(learner, truth, 8)
        found[type(acquisition).__name__] = np.mean([entry["accuracy"] for entry in learner.history])
        assert learner.history[-1]["labelled"] == 48
    assert found["NormScore"] > found["Random"] + 0.01
    assert found["ModelChange"] > found["Random"] + 0.01


def test_accuracy_is_that_of_unlabelled_nodes() -> None:
    learner = ActiveLearner(path(4), method="laplace", truth=["a", "b", "b", "b"])
    learner.tell(0, "a")
    assert learner.history[-1]["accuracy"] is None  # one class: no predictions yet
    learner.tell(3, "b")
    assert learner.history[-1]["accuracy"] == pytest.approx(0.5)  # node 1 is nearer to a, and is b
    assert learner.predictions == ["a", "a", "b", "b"]
    learner.tell([1, 2], ["b", "b"])
    assert learner.accuracy() is None  # nothing left to be right about


def test_cold_start_and_one_class() -> None:
    learner = ActiveLearner(two_cliques(5, 1e-3))
    (first,) = learner.suggest()
    assert (first.prediction, first.probability, first.reason) == (None, None, "SigmaOpt")
    with pytest.raises(ValueError, match="no predictions yet: labels of two classes are needed, 0 known"):
        _ = learner.probabilities
    learner.tell(first.index, "x")
    (second,) = learner.suggest()
    assert second.reason == "SigmaOpt"
    assert second.index // 5 != first.index // 5
    learner.tell(second.index, "y")
    (third,) = learner.suggest()
    assert third.reason == "ModelChange"
    assert third.prediction == ("x" if third.index // 5 == first.index // 5 else "y")
    assert json.loads(json.dumps(dataclasses.asdict(third)))["index"] == third.index


def test_order_of_telling_does_not_matter(digits: tuple[gll.Graph, list[int]]) -> None:
    graph, truth = digits
    learners = [ActiveLearner(graph) for _ in range(3)]
    asked = [[s.index for s in learner.suggest(12)] for learner in learners]
    assert asked[0] == asked[1] == asked[2]
    learners[0].tell(asked[0], [truth[i] for i in asked[0]])
    for i in reversed(asked[1]):
        learners[1].tell(i, truth[i])
    learners[2].tell(asked[2], [0] * 12)  # all wrong, or nearly; then corrected
    learners[2].tell(np.array(asked[2]), torch.tensor([truth[i] for i in asked[2]]))
    following = [[s.index for s in learner.suggest(5)] for learner in learners]
    assert following[0] == following[1] == following[2]
    assert learners[0].labels == learners[2].labels


def test_pending_and_unasked_nodes(digits: tuple[gll.Graph, list[int]]) -> None:
    graph, truth = digits
    learner = ActiveLearner(graph)
    first, second = ({s.index for s in learner.suggest(5)} for _ in range(2))
    assert not first & second
    assert set(learner.pending) == first | second
    other = next(i for i in range(400) if i not in first | second)
    learner.tell(other, truth[other])  # was not asked for
    gone = learner.pending[0]
    learner.skip(gone)
    assert gone not in learner.pending
    assert learner.skipped == [gone]
    asked = set(learner.pending)
    for _ in range(20):
        asked |= {s.index for s in learner.suggest(8)}
    assert not asked & {gone, other}
    learner.release()
    assert learner.pending == []
    learner.tell(gone, truth[gone])
    assert learner.skipped == []


def test_to_the_last_node() -> None:
    learner = ActiveLearner(path(4), classes=["a", "b"])
    learner.tell([0, 3], ["a", "b"])
    learner.suggest(1)
    with pytest.warns(FewerThanAskedWarning, match="5 nodes were asked for, 1 chosen: only 1 are left"):
        learner.suggest(5)
    with pytest.raises(ValueError, match="no candidate is left: every one is labelled or asked for already"):
        learner.suggest()


def test_correction_changes_predictions() -> None:
    learner = ActiveLearner(path(5))
    learner.tell([0, 4], ["a", "b"])
    assert learner.predictions[1] == "a"
    learner.tell(0, "c")
    assert learner.classes == ["b", "c"]
    assert learner.predictions == ["c", "c", learner.predictions[2], "b", "b"]
    assert [entry["labels"] for entry in learner.history] == [["a", "b"], ["c"]]


@pytest.mark.parametrize("name", ACQUISITIONS)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_resuming_changes_nothing(name: str, selection: str, tmp_path: Path) -> None:
    graph, truth = random_graph(40, k=5), [i % 3 for i in range(40)]
    options: Any = {"acquisition": acquisition_from_name(name), "selection": selection_from_name(selection), "seed": 5}
    straight = rounds(ActiveLearner(graph, **options), truth, 4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rounds(ActiveLearner(graph, autosave=tmp_path / "s", **options), truth, 1, 4)
        for _ in range(3):
            found += rounds(ActiveLearner.load(tmp_path / "s"), truth, 1, 4)
    assert found == straight


def test_random_suggestions_differ_from_round_to_round_and_by_seed() -> None:
    found = []
    for seed in (1, 1, 2):
        learner = ActiveLearner(path(50), cold_start=Random(), seed=seed)
        first = [s.index for s in learner.suggest(4)]
        learner.release()
        found.append((first, [s.index for s in learner.suggest(4)]))
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]
    assert found[0][0] != found[2][0]


def test_a_crash_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told is on disk before anything is solved, and a write that fails leaves the old file whole."""
    learner = ActiveLearner(path(6), autosave=tmp_path, truth=list("aaabbb"))
    asked = [s.index for s in learner.suggest(2)]
    learner.tell([0, 5], ["a", "b"])

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("solver lost")

    monkeypatch.setattr(type(learner.method), "find", fail)
    with pytest.raises(RuntimeError, match="solver lost"):
        learner.tell(2, "a")
    monkeypatch.undo()
    again = ActiveLearner.load(tmp_path)
    assert again.labels == ([0, 2, 5], ["a", "a", "b"])
    assert again.pending == [i for i in asked if i not in (0, 2, 5)]
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(RuntimeError, match="solver lost"):
        again.tell(3, "b")
    monkeypatch.undo()
    assert ActiveLearner.load(tmp_path).labels == ([0, 2, 5], ["a", "a", "b"])


def test_stored_state_is_complete(tmp_path: Path) -> None:
    x = torch.randn(30, 2, dtype=F64)
    learner = ActiveLearner(
        gll.knn_graph(x, 4),
        classes=["u", "v", "w"],
        method=method_from_name("laplace", tau=0.5),
        warm_start=True,
        seed=9,
    )
    learner.tell([1, 2], ["u", "v"])
    learner.skip(7)
    learner.suggest(3)
    learner.save(tmp_path)
    again = ActiveLearner.load(tmp_path, autosave=False)
    for name in ("labels", "pending", "skipped", "history", "classes", "method", "acquisition", "selection", "seed"):
        a, b = getattr(learner, name), getattr(again, name)
        assert repr(a) == repr(b), name
    assert torch.equal(again.graph.features, x)  # type: ignore[arg-type]
    assert torch.equal(again.graph.weight, learner.graph.weight)
    assert torch.equal(again.probabilities, learner.probabilities)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph.safetensors", "state.json"]
    again.tell(4, "w")  # autosave is off
    assert ActiveLearner.load(tmp_path).labels == learner.labels


def test_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no stored session in .*: state.json is missing"):
        ActiveLearner.load(tmp_path)
    learner = ActiveLearner(path(5), autosave=tmp_path)
    learner.tell([0, 4], ["a", "b"])
    state, graph = (tmp_path / "state.json").read_text(), (tmp_path / "graph.safetensors").read_bytes()
    for broken, message in [
        (state[: len(state) // 2], "is damaged or no stored session"),
        ("[]", "is not a stored session of this library"),
        (state.replace('"version": 1', '"version": 2'), "has version 2, this library reads version 1"),
        (state.replace('"name": "sigma-opt"', '"name": "os.system"'), "unknown acquisition function 'os.system'"),
    ]:
        (tmp_path / "state.json").write_text(broken)
        with pytest.raises(ValueError, match=message):
            ActiveLearner.load(tmp_path)
    whole = json.loads(state)
    for key in set(whole) - {"format", "version"}:
        (tmp_path / "state.json").write_text(json.dumps({k: v for k, v in whole.items() if k != key}))
        with pytest.raises(ValueError, match=rf"state.json is damaged: it has no '{key}'"):
            ActiveLearner.load(tmp_path)
    for changed, message in [
        ({"labels": ["a"]}, "state.json is damaged: 2 labelled nodes, but 1 labels"),
        ({"index": {}}, "state.json is damaged: 'index' must be a list, got {}"),
        ({"pending": [5]}, r"state.json is damaged: nodes lie in 0 \.\. 4, got 5"),
        ({"skipped": ["x"]}, "state.json is damaged: a node is an integer, got 'x'"),
        ({"config": {"method": None}}, "state.json is damaged: it has no 'acquisition'"),
        ({"config": whole["config"] | {"method": {}}}, "state.json is damaged: it has no 'name'"),
    ]:
        (tmp_path / "state.json").write_text(json.dumps(whole | changed))
        with pytest.raises(ValueError, match=message):
            ActiveLearner.load(tmp_path)
    (tmp_path / "state.json").write_text(state)
    (tmp_path / "graph.safetensors").write_bytes(graph[:-7])
    with pytest.raises(ValueError, match=r"graph.safetensors is missing, damaged or no stored graph"):
        ActiveLearner.load(tmp_path)
    other = tmp_path / "other"
    ActiveLearner(path(5, [1.0, 1.0, 2.0, 1.0])).save(other)
    (tmp_path / "graph.safetensors").write_bytes((other / "graph.safetensors").read_bytes())
    with pytest.raises(ValueError, match="is not the graph that the session was run on"):
        ActiveLearner.load(tmp_path)


def test_a_session_is_not_overwritten(tmp_path: Path) -> None:
    ActiveLearner(path(5), autosave=tmp_path).tell(0, "a")
    with pytest.raises(FileExistsError, match=r"holds a session already: go on with it by ActiveLearner.load"):
        ActiveLearner(path(5), autosave=tmp_path)
    with pytest.raises(FileExistsError, match="holds a session on another graph"):
        ActiveLearner(path(6)).save(tmp_path)
    assert ActiveLearner.load(tmp_path).labels == ([0], ["a"])


def test_own_functions_are_handed_in_again(tmp_path: Path) -> None:
    own = Fixed((0.0, 1.0, 2.0, 1.0, 0.0))
    learner = ActiveLearner(path(5), acquisition=own, autosave=tmp_path)
    learner.tell([0, 4], ["a", "b"])
    with pytest.raises(ValueError, match=r"the session used Fixed.* as its acquisition: pass acquisition= to load"):
        ActiveLearner.load(tmp_path)
    assert [s.index for s in ActiveLearner.load(tmp_path, acquisition=own).suggest()] == [2]
    with pytest.raises(ValueError, match="load cannot replace seed"):
        ActiveLearner.load(tmp_path, acquisition=own, seed=3)


@pytest.mark.usefixtures("as_user")
def test_wrong_answers_change_nothing(tmp_path: Path) -> None:
    learner = ActiveLearner(path(5), classes=["a", "b"], autosave=tmp_path)
    learner.tell(0, "a")
    before = (tmp_path / "state.json").read_text()
    for index, labels, error, message in [
        ([1, 2], ["a"], ValueError, "2 nodes but 1 labels"),
        ([1, 5], ["a", "b"], ValueError, r"nodes lie in 0 \.\. 4, got 5"),
        (-1, "a", ValueError, r"nodes lie in 0 \.\. 4, got -1"),
        ([1, 1], ["a", "b"], ValueError, "a node appears twice in one call"),
        ([1, 2], ["a", "c"], ValueError, r"unknown label 'c'; the classes are \['a', 'b'\]"),
        (1.0, "a", TypeError, "a node is an integer, got 1.0"),
        (True, "a", TypeError, "got a bool"),
        (1, None, TypeError, r"a label is a string or a whole number, got None; use skip\(\)"),
        (1, 0.5, TypeError, "a label is a string or a whole number, got 0.5"),
    ]:
        with pytest.raises(error, match=message):
            learner.tell(index, labels)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="node 0 is labelled; tell it again to correct it"):
        learner.skip(0)
    assert (tmp_path / "state.json").read_text() == before
    assert learner.labels == ([0], ["a"])
    mixed = ActiveLearner(path(3))
    mixed.tell(0, "1")
    with pytest.raises(TypeError, match="labels must be all strings or all integers"):
        mixed.tell(1, 1)
    for options, error, message in [
        ({"classes": ["a"]}, ValueError, "at least two classes"),
        ({"classes": ["a", "a"]}, ValueError, "a class appears twice"),
        ({"truth": ["a"]}, ValueError, "a label for each of 3 nodes, got 1"),
        ({"acquisition": "vopt"}, TypeError, "acquisition must be an object"),
        ({"method": "magic"}, ValueError, "unknown method 'magic'"),
    ]:
        with pytest.raises(error, match=message):
            ActiveLearner(path(3), **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"such as gll.knn_graph makes from features, got Tensor"):
        ActiveLearner(torch.zeros(3, 2))  # type: ignore[arg-type]


def test_a_label_can_be_taken_back(tmp_path: Path) -> None:
    learner = ActiveLearner(path(5), autosave=tmp_path)
    learner.tell([0, 4], ["a", "b"])
    before = learner.probabilities.clone()
    learner.tell(1, "b")
    assert not torch.allclose(learner.probabilities, before)
    learner.forget(1)
    assert learner.labels == ([0, 4], ["a", "b"])
    torch.testing.assert_close(learner.probabilities, before)
    assert learner.history[-1] == {"index": [1], "labels": [None], "labelled": 2, "accuracy": None}
    assert ActiveLearner.load(tmp_path).labels == learner.labels
    assert 1 in [s.index for s in learner.suggest(3)]
    with pytest.raises(ValueError, match="node 1 has no label that could be taken back"):
        learner.forget([0, 1])
    assert learner.labels == ([0, 4], ["a", "b"])  # all or none


def test_a_classifier_loses_the_labels_that_were_taken_back(tmp_path: Path) -> None:
    x, _, y = blobs(copies=1)
    y[90] = y[0]
    classifier = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=7).fit(x, y)
    learner = ActiveLearner.from_classifier(classifier, autosave=tmp_path)
    learner.forget(int(classifier.node_[0]))
    ActiveLearner.load(tmp_path).hand_back(classifier)
    y[[0, 90]] = -1
    fresh = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=7).fit(x, y)
    np.testing.assert_allclose(classifier.label_distributions_, fresh.label_distributions_, atol=1e-6)


@pytest.mark.usefixtures("as_user")
def test_on_the_graph_of_a_classifier() -> None:
    """The same predictions before, and after the answers are handed back; duplicated rows are one node."""
    x, y = load_digits(return_X_y=True)
    x, names = np.concatenate([x[:150], x[:20]]), np.array([f"digit {c}" for c in [*y[:150], *y[:20]]], dtype=object)
    known = np.where(np.arange(170) < 12, names, None)
    classifier = gll.estimator.GraphLearningClassifier("laplace", method_options={"tau": 0.01}, n_neighbors=7)
    with pytest.raises(ValueError, match="has no graph_: fit a GraphLearningClassifier first"):
        ActiveLearner.from_classifier(classifier)
    classifier.fit(x, known)
    learner = ActiveLearner.from_classifier(classifier, acquisition=Margin())
    assert learner.graph.num_nodes == 150
    np.testing.assert_allclose(learner.probabilities, classifier.label_distributions_[classifier.row_], atol=1e-8)
    asked = [s.index for s in learner.suggest(9)]
    learner.tell(asked, [str(names[classifier.row_[i]]) for i in asked])
    assert learner.hand_back(classifier) is classifier
    np.testing.assert_allclose(learner.probabilities, classifier.label_distributions_[classifier.row_], atol=1e-8)
    assert learner.classes == list(classifier.classes_)


def blobs(copies: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three clusters of thirty, three labels in each, and copies of the first rows without a label."""
    x, truth = make_blobs(90, centers=[[0, 0], [4, 0], [0, 4]], random_state=0)
    y = np.full(90, -1)
    for c in range(3):
        y[np.flatnonzero(truth == c)[:3]] = c
    return np.concatenate([x, x[:copies]]), np.concatenate([truth, truth[:copies]]), np.append(y, np.full(copies, -1))


def assert_same(learner: ActiveLearner, classifier: gll.estimator.GraphLearningClassifier, atol: float = 1e-6) -> None:
    found = classifier.label_distributions_[classifier.row_]
    np.testing.assert_allclose(learner.probabilities, found, atol=atol)


@pytest.mark.parametrize(
    ("options", "weight"),
    [
        ({"method": "laplace", "class_prior": [0.4, 0.3, 0.3]}, 1),
        ({"method": "auto", "class_prior": {0: 0.4, 1: 0.3, 2: 0.3}}, 1),
        ({"method": "poisson"}, 50),
        ({"method": gll.methods.SoftLearning(lam=0.1)}, 50),
        ({"method": "laplace", "solver": gll.solvers.ConjugateGradient(rtol=1e-2)}, 1),
        ({"method": "laplace", "unreached": "nearest"}, 1),
    ],
)
def test_a_loop_answers_as_its_classifier(options: dict[str, Any], weight: float, tmp_path: Path) -> None:
    """Before, after labels, after the answers are handed back, and after a resume."""
    x, truth, y = blobs(copies=5)
    if options.get("unreached"):  # far away, joined to each other only
        x, truth, y = np.concatenate([x, x[:12] + 1000]), np.append(truth, truth[:12]), np.append(y, [-1] * 12)
    classifier = gll.estimator.GraphLearningClassifier(n_neighbors=7, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about shares and unreached nodes
        classifier.fit(x, y, sample_weight=np.where(truth == 0, weight, 1))
        learner = ActiveLearner.from_classifier(classifier, autosave=tmp_path)
        assert_same(learner, classifier)
        asked = [s.index for s in learner.suggest(4)]
        learner.tell(asked, truth[classifier.row_[asked]])
        learner.hand_back(classifier)
        close = 1e-3 if "solver" in options else 1e-6  # the classifier starts from its last solution
        assert_same(learner, classifier, close)
        if "solver" in options:
            with pytest.raises(ValueError, match=r"the session used ConjugateGradient.* as its solver: pass solver="):
                ActiveLearner.load(tmp_path)
            resumed = ActiveLearner.load(tmp_path, solver=options["solver"])
        else:
            resumed = ActiveLearner.load(tmp_path)
        np.testing.assert_allclose(resumed.probabilities, learner.probabilities, atol=1e-8)
        assert [s.index for s in resumed.suggest(3)] == [s.index for s in learner.suggest(3)]
        resumed.hand_back(classifier)
        assert_same(resumed, classifier, close)


def test_groups_of_a_large_graph_are_taken_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are found once, by the classifier; the solves of the loop are as exact as its own."""
    x, _, y = blobs()
    groups = gll.solvers.Multilevel.of(gll.knn_graph(torch.tensor(x), k=5))
    monkeypatch.setattr(gll.estimator, "groups_of", lambda graph: groups)
    classifier = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=5).fit(x, y)
    learner = ActiveLearner.from_classifier(classifier, autosave=tmp_path)
    assert isinstance(learner.solver, gll.solvers.Auto)
    assert learner.solver.multilevel is groups
    loaded = ActiveLearner.load(tmp_path).solver  # found again
    assert isinstance(loaded, gll.solvers.Auto)
    assert loaded.multilevel.groups is not None
    assert groups.groups is not None
    assert [g.tolist() for g in loaded.multilevel.groups] == [g.tolist() for g in groups.groups]
    assert learner.solver.rtol == loaded.rtol == gll.estimator.RTOL


@pytest.mark.usefixtures("as_user")
def test_a_class_prior_of_ones_own(tmp_path: Path) -> None:
    graph = two_cliques(4, 0.1)
    n = graph.num_nodes
    learner = ActiveLearner(graph, method="laplace", class_prior={"a": 0.25, "b": 0.75}, autosave=tmp_path)
    assert learner.classes == ["a", "b"]
    learner.tell([0, n - 1], ["a", "b"])
    labels = gll.Labels(torch.tensor([0, n - 1]), torch.eye(2, dtype=F64))
    wanted = method_from_name("laplace").propagate(graph, labels, class_prior=torch.tensor([0.25, 0.75]).double())
    torch.testing.assert_close(learner.probabilities, wanted.probability)
    resumed = ActiveLearner.load(tmp_path)
    torch.testing.assert_close(resumed.probabilities, wanted.probability)
    plain = method_from_name("laplace").propagate(graph, labels)
    assert not torch.allclose(learner.probabilities, plain.probability)
    for options, message in [
        ({"class_prior": [0.5, 0.5]}, "needs classes="),
        ({"class_prior": [0.5, 0.5], "classes": ["a", "b", "c"]}, "one number for each of 3 classes, got 2"),
        ({"class_prior": {"a": 0.5, "b": 0.5}, "classes": ["a", "c"]}, r"name every class once"),
        ({"class_prior": {"a": 0.5, "b": 0.6}}, "≥ 0 and sum to one"),
        ({"class_prior": {"a": float("nan"), "b": 1.0}}, "≥ 0 and sum to one"),
        ({"unreached": "magic"}, "unknown policy 'magic' for unreached nodes"),
        ({"node_mass": [1.0]}, "a finite number > 0 for each of"),
        ({"node_mass": [0.0] * n}, "a finite number > 0 for each of"),
    ]:
        with pytest.raises(ValueError, match=message):
            ActiveLearner(graph, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["laplace", "poisson"])
def test_a_correction_reaches_all_copies(method: str) -> None:
    """The label sits on another copy than the node's first row: handing back the correction leaves no trace of it."""
    x, _, y = blobs(copies=1)
    y[90], y[0] = y[0] if y[0] >= 0 else 0, -1
    classifier = gll.estimator.GraphLearningClassifier(method, n_neighbors=7).fit(x, y)
    learner = ActiveLearner.from_classifier(classifier)
    node = int(classifier.node_[90])
    assert classifier.row_[node] == 0
    other = (int(y[90]) + 1) % 3
    learner.tell(node, other)
    learner.hand_back(classifier)
    assert classifier.labels_.value[classifier.labels_.index == node].tolist() == [np.eye(3)[other].tolist()]
    y[[0, 90]] = other
    fresh = gll.estimator.GraphLearningClassifier(method, n_neighbors=7).fit(x, y)
    np.testing.assert_allclose(classifier.label_distributions_, fresh.label_distributions_, atol=1e-6)
    assert_same(learner, classifier)


def test_labels_that_were_not_told_stay_as_they_are() -> None:
    """Soft labels, and labels of one copy among several, are not handed back changed."""
    x, _, y = blobs(copies=1)
    soft = np.where(y[:, None] >= 0, np.eye(3)[np.maximum(y, 0)], 0.0)
    soft[np.flatnonzero(y >= 0)[0]] = [0.5, 0.3, 0.2]
    classifier = gll.estimator.GraphLearningClassifier("soft", n_neighbors=7).fit(x, soft)
    before = classifier.label_distributions_
    assert ActiveLearner.from_classifier(classifier).hand_back(classifier) is classifier
    np.testing.assert_array_equal(classifier.label_distributions_, before)


@pytest.mark.parametrize("kind", ["float", "bool", "int8", "string"])
def test_classes_of_all_kinds_go_back_as_they_came(kind: str) -> None:
    x, truth, y = blobs()
    own: np.ndarray
    if kind == "bool":
        own = np.where(y < 0, None, truth == 0)
        names = truth == 0
    elif kind == "string":
        own, names = np.array(["-1", "a", "b", "c"])[y + 1], np.array(["a", "b", "c"])[truth]
    elif kind == "float":
        own, names = np.where(y < 0, np.nan, y), truth.astype(float)
    else:
        own, names = y.astype(np.int8), truth.astype(np.int8)
    classifier = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=7).fit(x, own)
    learner = ActiveLearner.from_classifier(classifier)
    before = classifier.classes_
    asked = [s.index for s in learner.suggest(6)]
    learner.tell(asked, names[asked])
    learner.hand_back(classifier)
    assert classifier.classes_.dtype == before.dtype
    assert classifier.classes_.tolist() == before.tolist()
    assert (classifier.transduction_[asked] == names[asked]).all()
    assert_same(learner, classifier)


@pytest.mark.usefixtures("as_user")
def test_what_cannot_be_handed_back() -> None:
    x, _, y = blobs()
    classifier = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=7).fit(x, y)
    learner = ActiveLearner.from_classifier(classifier)
    other = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=6).fit(x, y)
    with pytest.raises(ValueError, match="is fitted on another graph"):
        learner.hand_back(other)
    with pytest.raises(ValueError, match="has no graph_: fit a GraphLearningClassifier first"):
        learner.hand_back(gll.estimator.GraphLearningClassifier())
    free = int(np.flatnonzero(y < 0)[0])
    learner.tell(free, 7)  # a class that the classifier has not seen
    assert learner.hand_back(classifier).classes_.tolist() == [0, 1, 2, 7]
    dates = np.where(y < 0, np.datetime64("NaT"), np.datetime64("2020-01-01") + np.maximum(y, 0))
    timed = gll.estimator.GraphLearningClassifier("laplace", n_neighbors=7).fit(x, dates)
    with pytest.raises(TypeError, match="a label is a string or a whole number"):
        ActiveLearner.from_classifier(timed)


def test_the_benchmark_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    spec = importlib.util.spec_from_file_location(
        "benchmark_active", Path(__file__).parent.parent / "benchmarks/active.py"
    )
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    file, picture = tmp_path / "a.json", tmp_path / "a.png"
    command = ["run", "--dataset", "digits", "--nodes", "200", "--most", "20", "--selections", "local-max"]
    command += ["--json", str(file)]
    runner = CliRunner()
    for more in (["--acquisitions", "norm", "--seeds", "1"], ["--acquisitions", "norm,random", "--seeds", "2"]):
        assert runner.invoke(benchmark.app, [*command, *more]).exit_code == 0
        found = json.loads(file.read_text())["runs"]
        if more[1] == "norm":
            first = found
            entry = found["norm local-max 0"]
            assert entry["labels"] == [10, 20]
            entry["choose_s"] = -1.0  # a mark: this run is not made again
            file.write_text(json.dumps(json.loads(file.read_text()) | {"runs": found}))
    assert found["norm local-max 0"] == first["norm local-max 0"]
    assert sorted(found) == [f"{name} local-max {seed}" for name in ("norm", "random") for seed in (0, 1)]
    assert "another configuration" in str(runner.invoke(benchmark.app, [*command, "--batch", "5"]).exception)
    assert runner.invoke(benchmark.app, ["plot", str(file), "--out", str(picture)]).exit_code == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("label", [-1, ""])
def test_a_mark_for_no_label_is_not_taken_for_a_class(label: object) -> None:
    learner = gll.ActiveLearner(gll.knn_graph(torch.randn(20, 2), 4))
    with pytest.raises(ValueError, match=r"skip\(\) where nobody can tell"):
        learner.tell(3, label)
