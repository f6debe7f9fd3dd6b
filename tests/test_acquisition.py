"""What a label is worth: scores against brute force, and what they may and may not depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import gll
from gll.active import (
    ACQUISITIONS,
    SELECTIONS,
    Entropy,
    Margin,
    ModelChange,
    NormScore,
    Random,
    SigmaOpt,
    Situation,
    SmallestNorm,
    TopK,
    VOpt,
    acquisition_from_name,
    choose,
    selection_from_name,
)
from gll.field import GaussianField
from gll.graph import Normalization
from tests.active_cases import NONE, SYMMETRIC, dense_covariance, dense_laplacian
from tests.problems import F64, graph_of, one_hot, path, random_graph, star


def probabilities(n: int, classes: int = 3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(n, classes, generator=generator, dtype=F64), 1)


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


def test_a_hub_is_worth_more_than_a_leaf() -> None:
    assert choose(VOpt(), Situation(star([1.0] * 6)), 1).index.tolist() == [0]
    assert choose(SigmaOpt(), Situation(star([1.0] * 6)), 1).index.tolist() == [0]
