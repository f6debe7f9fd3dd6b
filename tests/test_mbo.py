"""Threshold dynamics: the flows by dense iterations, and how they end."""

from __future__ import annotations

import pytest
import torch

from gll.mbo import fidelity_flow, source_flow, threshold_dynamics
from gll.methods import method_from_name
from tests.method_cases import clusters, dense_laplacian
from tests.problems import F64, one_hot, random_graph


def test_flows_are_the_dense_iterations() -> None:
    graph, labels = random_graph(12), one_hot([0, 4], [0, 1])
    u = torch.rand(12, 2, dtype=F64)
    f = torch.zeros(12, 2, dtype=F64)
    f[[0, 4]] = torch.tensor([[0.5, -0.5], [-0.5, 0.5]], dtype=F64)
    laplacian, degree, expected = dense_laplacian(graph), graph.degree, u
    for _ in range(7):
        expected = expected - (laplacian @ expected - 3 * degree.mean() * f) / degree.max()
    torch.testing.assert_close(source_flow(graph, f, 7, 3.0)(u), expected)
    expected, weight = u.clone(), torch.tensor([1.0, 2.0], dtype=F64)
    for _ in range(7):
        expected = expected - (laplacian @ expected) / degree[:, None] / 2
        pull = 5 * weight[:, None]
        expected[[0, 4]] = (expected[[0, 4]] + pull * labels.value) / (1 + pull)
    start = u.clone()
    torch.testing.assert_close(fidelity_flow(graph, labels, weight, 7, 5.0)(u), expected)
    assert torch.equal(u, start)  # the argument is left alone


def test_dynamics_end_when_nothing_moves() -> None:
    start = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.4, 0.6]], dtype=F64)
    still = threshold_dynamics(lambda u: 0.8 * u + 0.1, start, None, None, rounds=9)
    assert (still.settled, still.rounds) == (True, 1)
    assert still.share.tolist() == [0.5, 0.5]
    swap = threshold_dynamics(lambda u: (0.8 * u + 0.1).flip(1), start, None, None, rounds=9)
    assert (swap.settled, swap.rounds) == (False, 9)


@pytest.mark.parametrize("name", ["poisson-mbo", "volume-mbo"])
def test_mbo_passes_no_gradient_and_says_what_it_did(name: str) -> None:
    graph, _ = clusters()
    graph = graph.with_weight(graph.weight.requires_grad_())
    found = method_from_name(name).propagate(graph, one_hot([0, 1, 2], [0, 1, 2]))
    assert not found.probability.requires_grad
    assert found.solution is None
    assert "settled after" in found.description
    assert found.steps > 0
