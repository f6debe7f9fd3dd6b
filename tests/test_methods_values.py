"""What methods compute, against dense linear algebra and against other implementations."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gll
from gll.methods import method_from_name
from tests.method_cases import clusters, dense_laplacian, dense_poisson
from tests.problems import F64, graph_of, one_hot, path, random_graph


def dense_laplace(graph: gll.Graph, labels: gll.Labels, tau: float = 0.0) -> Tensor:
    n = graph.num_nodes
    a = dense_laplacian(graph) + tau * torch.eye(n, dtype=F64)
    free = torch.tensor([i for i in range(n) if i not in labels.index.tolist()])
    u = torch.zeros(n, labels.num_classes, dtype=F64)
    u[labels.index] = labels.value
    u[free] = torch.linalg.solve(a[free][:, free], -a[free][:, labels.index] @ labels.value)
    return u


# Against dense linear algebra --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.0, 0.3])
def test_laplace_is_the_dense_solution(tau: float) -> None:
    graph, labels = random_graph(15), one_hot([0, 6, 7], [0, 1, 2])
    found = method_from_name("laplace", tau=tau).propagate(graph, labels)
    exact = dense_laplace(graph, labels, tau)
    torch.testing.assert_close(found.score, exact, rtol=0, atol=1e-10)
    faded = 1 - exact.sum(1, keepdim=True)
    assert float(faded.max()) > 0.1 or tau == 0
    torch.testing.assert_close(found.probability, exact + faded / 3, rtol=0, atol=1e-9)


def test_soft_is_the_dense_solution_and_weights_multiply_lambda() -> None:
    graph, labels = random_graph(15), one_hot([0, 6, 7], [0, 1, 1])
    weight, lam, tau = torch.tensor([0.5, 1.0, 3.0], dtype=F64), 0.7, 0.01
    found = method_from_name("soft", lam=lam, tau=tau).propagate(graph, labels, label_weight=weight)
    pull = torch.zeros(15, dtype=F64)
    pull[labels.index] = lam * graph.degree.mean() * weight
    g = torch.zeros(15, 2, dtype=F64)
    g[labels.index] = labels.value
    exact = torch.linalg.solve(dense_laplacian(graph) + torch.diag(pull + tau), pull[:, None] * g)
    torch.testing.assert_close(found.score, exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_poisson_is_the_dense_solution(weighted: bool) -> None:
    graph, labels = random_graph(15), one_hot([0, 6, 7], [0, 1, 2])
    weight = torch.tensor([1.0, 2.0, 4.0], dtype=F64) if weighted else None
    found = method_from_name("poisson").propagate(graph, labels, label_weight=weight)
    exact = dense_poisson(graph, labels, weight)
    torch.testing.assert_close(found.score, exact, rtol=0, atol=1e-9)
    scale = 8 / exact.amax(1).mean()
    torch.testing.assert_close(found.probability, torch.softmax(scale * exact, 1), rtol=0, atol=1e-8)


def test_reweighted_methods_solve_laplace_on_the_reweighted_graph() -> None:
    graph, _ = clusters()
    labels = one_hot([0, 1, 2], [0, 1, 2])
    for name, reweighted in (
        ("wnll", gll.reweight.wnll),
        ("poisson-reweighted", gll.reweight.poisson),
        ("properly-weighted", gll.reweight.properly_weighted),
    ):
        found = method_from_name(name).propagate(graph, labels)
        other = dense_laplace(reweighted(graph, labels), labels)
        torch.testing.assert_close(found.score, other, rtol=0, atol=1e-8)
        assert float((other - dense_laplace(graph, labels)).abs().max()) > 1e-2


def test_plaplace_minimises_its_energy_and_is_laplace_at_two() -> None:
    graph, labels = random_graph(15), one_hot([0, 6], [0, 1])
    at_two = method_from_name("plaplace", p=2.0).propagate(graph, labels).score
    torch.testing.assert_close(at_two, dense_laplace(graph, labels), rtol=0, atol=1e-9)
    at_four = method_from_name("plaplace", p=4.0).propagate(graph, labels).score
    free = [i for i in range(15) if i not in (0, 6)]
    u = at_four.clone().requires_grad_()
    q = u[:, None] - u[None]
    (graph.to_dense()[:, :, None] * (q * q + 1e-6) ** 2).sum().backward()
    assert u.grad is not None
    assert float(u.grad[free].abs().max()) < 1e-8
    assert float((at_four - at_two).abs().max()) > 1e-2


# Against other implementations -------------------------------------------------------------------------------------


@pytest.fixture
def gl() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield pytest.importorskip("graphlearning")


@pytest.fixture
def shared_problem() -> tuple[gll.Graph, Tensor, gll.Labels]:
    graph, y = clusters(300, gap=3.0, k=8)
    known = torch.full_like(y, -1)
    known[:9] = y[:9]
    return graph, y, gll.Labels.from_classes(known, dtype=F64)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("laplace", lambda gl, w: gl.ssl.laplace(w, tol=1e-12)),
        ("wnll", lambda gl, w: gl.ssl.laplace(w, reweighting="wnll", tol=1e-12)),
        ("poisson", lambda gl, w: gl.ssl.poisson(w, tol=1e-12)),
    ],
)
def test_values_are_those_of_graphlearning(gl: Any, shared_problem: Any, name: str, make: Any) -> None:
    graph, y, labels = shared_problem
    theirs = make(gl, graph.to_scipy()).fit(labels.index.numpy(), y[labels.index].numpy())
    ours = method_from_name(name).propagate(graph, labels).score
    theirs = torch.from_numpy(np.asarray(theirs))
    if name == "poisson":  # determined up to a constant
        theirs = theirs - (graph.degree @ theirs) / graph.degree.sum()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_poisson_mbo_agrees_with_graphlearning(gl: Any, shared_problem: Any) -> None:
    graph, y, labels = shared_problem
    prior = torch.bincount(y).double() / len(y)
    model = gl.ssl.poisson_mbo(graph.to_scipy(), class_priors=prior.numpy())
    theirs = torch.from_numpy(model.fit_predict(labels.index.numpy(), y[labels.index].numpy())).long()
    # Their sources are not in units of the degree.
    method = method_from_name("poisson-mbo", mu=1 / float(graph.degree.mean()))
    ours = method.propagate(graph, labels, class_prior=prior).classes
    assert float((ours == theirs).double().mean()) > 0.97
    assert float((ours == y).double().mean()) >= float((theirs == y).double().mean()) - 0.01


def test_label_spreading_is_a_soft_problem() -> None:
    """(1-α)(I - αS)^-1 Y, with S = D^-1/2 W D^-1/2, solves Δu + τu = f: here with D the same at all nodes."""
    from sklearn.semi_supervised import LabelSpreading

    n, alpha = 12, 0.6
    graph = graph_of(n, [(i, (i + j) % n) for i in range(n) for j in (1, 2)], [1.0, 0.4] * n)
    degree, labels = float(graph.degree[0]), one_hot([0, 5, 7], [0, 1, 1])
    y = torch.zeros(n, 2, dtype=F64)
    y[labels.index] = labels.value
    closed = (1 - alpha) * torch.linalg.solve(torch.eye(n, dtype=F64) - alpha * graph.to_dense() / degree, y)
    # The pull to Y is (1-α)/α on all nodes: on labelled ones it is λ, on the others, where Y = 0, it is τ.
    strength = (1 - alpha) / alpha
    tau = torch.full((n,), strength * degree, dtype=F64)
    tau[labels.index] = 0
    found = method_from_name("soft", lam=strength, tau=tau).propagate(graph, labels)
    torch.testing.assert_close(found.score, closed, rtol=0, atol=1e-10)
    known = np.full(n, -1)
    known[[0, 5, 7]] = [0, 1, 1]
    matrix = graph.to_dense().numpy()
    model = LabelSpreading(kernel=lambda a, b: matrix, alpha=alpha, max_iter=10_000, tol=1e-14)
    model.fit(np.arange(n)[:, None].astype(float), known)
    rows = closed / closed.sum(1, keepdim=True)
    torch.testing.assert_close(torch.from_numpy(model.label_distributions_), rows, rtol=0, atol=1e-9)
    assert torch.equal(found.classes, torch.from_numpy(model.transduction_))


def test_nearest_is_one_nearest_neighbour() -> None:
    from sklearn.neighbors import KNeighborsClassifier

    graph, y = clusters(200, gap=2.0)
    known = torch.full_like(y, -1)
    known[:15] = y[:15]
    labels = gll.Labels.from_classes(known, dtype=F64)
    assert graph.features is not None
    model = KNeighborsClassifier(n_neighbors=1).fit(graph.features[:15].numpy(), y[:15].numpy())
    found = method_from_name("nearest").propagate(graph, labels)
    assert torch.equal(found.classes, torch.from_numpy(model.predict(graph.features.numpy())))


def test_nearest_along_edges_is_the_shortest_path() -> None:
    """On a path of resistors 1/w: 1, 1, 4, 1 between labels at the ends."""
    graph, labels = path(5, [1.0, 1.0, 0.25, 1.0]), one_hot([0, 4], [0, 1])
    found = method_from_name("nearest").propagate(graph, labels)
    assert found.classes.tolist() == [0, 0, 0, 1, 1]
    distance = torch.tensor([[0.0, 7], [1, 6], [2, 5], [6, 1], [7, 0]], dtype=F64)
    unit = distance.amin(1).square().mean()
    torch.testing.assert_close(found.probability, torch.softmax(-distance.square() / unit, 1))
