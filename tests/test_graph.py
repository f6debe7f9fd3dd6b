"""Topology, Graph and the calculus on it, against dense matrices and small graphs done by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

import gll
from tests.problems import F64, binary_tree, complete, cycle, graph_of, grid, path, random_graph, star, two_cliques

GRAPHS = {
    "path": path(6, torch.linspace(0.1, 2, 5, dtype=F64)),
    "star": star([0.5, 2.0, 0.25]),
    "complete": complete(5, 0.3),
    "cycle": cycle(7),
    "grid": grid(3, 4),
    "tree": binary_tree(3),
    "cliques": two_cliques(4, 1e-6),
    "random": random_graph(12),
    "isolated node": graph_of(4, [(0, 1), (1, 3)], [1.0, 2.0]),
    "no edges": graph_of(3, []),
}
each_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)


def dense_laplacian(graph: gll.Graph) -> Tensor:
    w = graph.to_dense()
    return torch.diag(w.sum(1)) - w


# Topology ----------------------------------------------------------------------------------------------------------


def test_from_pairs_sorts_and_merges() -> None:
    a, b = torch.tensor([3, 0, 2, 1, 0]), torch.tensor([1, 2, 0, 3, 1])
    topology, edge = gll.Topology.from_pairs(4, a, b)
    assert list(zip(topology.i.tolist(), topology.j.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 3)]
    assert edge.tolist() == [2, 1, 1, 2, 0]


def test_scatter_is_the_transpose_of_gather() -> None:
    t = GRAPHS["random"].topology
    u, q = torch.randn(t.num_nodes, 3, dtype=F64), torch.randn(t.num_edges, 3, dtype=F64)
    torch.testing.assert_close((t.gather(u) * q).sum(), (u * t.scatter(q)).sum(), rtol=1e-13, atol=1e-13)


@each_graph
def test_csr_pattern_and_matrix(graph: gll.Graph) -> None:
    pointers, columns, edge = graph.topology.csr
    n = graph.num_nodes
    rows = torch.arange(n).repeat_interleave(pointers.diff())
    assert torch.equal(graph.weight[edge], graph.to_dense()[rows, columns])
    assert bool((torch.diff(rows * n + columns) > 0).all())  # sorted, without repeats
    assert torch.equal(graph.topology.matrix(graph.weight).to_dense(), graph.to_dense())


def test_keep() -> None:
    t = path(4).topology.keep(torch.tensor([True, False, True]))
    assert (t.num_nodes, t.i.tolist(), t.j.tolist()) == (4, [0, 2], [1, 3])


# Calculus ----------------------------------------------------------------------------------------------------------


def test_by_hand() -> None:
    """A triangle with a tail: weights 1, 2, 3 on the triangle, 4 on the tail."""
    graph = graph_of(4, [(0, 1), (0, 2), (1, 2), (2, 3)], [1.0, 2.0, 3.0, 4.0])
    u = torch.tensor([1.0, 0.0, -1.0, 2.0], dtype=F64)
    assert graph.degree.tolist() == [3, 4, 9, 4]
    assert graph.gradient(u).tolist() == [1, 2, 1, -3]
    assert graph.laplacian(u).tolist() == [5, 2, -19, 12]
    assert float(graph.dirichlet_energy(u)) == 1 + 8 + 3 + 36


@each_graph
@pytest.mark.parametrize("columns", [(), (3,)], ids=["vector", "columns"])
def test_calculus_equals_dense(graph: gll.Graph, columns: tuple[int, ...]) -> None:
    n, w, laplacian = graph.num_nodes, graph.to_dense(), dense_laplacian(graph)
    u = torch.randn(n, *columns, dtype=F64)
    torch.testing.assert_close(graph.degree, w.sum(1))
    torch.testing.assert_close(graph.laplacian(u), laplacian @ u)
    torch.testing.assert_close(graph.dirichlet_energy(u), (u * (laplacian @ u)).sum())
    degree = w.sum(1)
    inverse = torch.where(degree > 0, 1 / degree, 0)  # an isolated node differs from no one: its row is zero
    symmetric = inverse.sqrt()[:, None] * laplacian * inverse.sqrt()
    torch.testing.assert_close(graph.laplacian(u, gll.Normalization.SYMMETRIC), symmetric @ u)
    torch.testing.assert_close(graph.laplacian(u, gll.Normalization.RANDOM_WALK), torch.diag(inverse) @ laplacian @ u)


def test_divergence_is_the_adjoint_of_the_gradient() -> None:
    """<∇u, q> = <u, div q>, for vector fields and for functions on ordered pairs that are not skew."""
    graph = GRAPHS["random"]
    t, w = graph.topology, graph.to_dense()
    u, q, reverse = (torch.randn(size, dtype=F64) for size in (graph.num_nodes, t.num_edges, t.num_edges))
    torch.testing.assert_close(graph.inner(graph.gradient(u), q), u @ graph.divergence(q))
    v = torch.zeros_like(w)
    v[t.i, t.j], v[t.j, t.i] = q, reverse
    by_sums = 0.5 * (w * (v - v.T)).sum(1)  # div_formula_general
    torch.testing.assert_close(graph.divergence(q, reverse), by_sums)
    inner = 0.5 * (w * (u[:, None] - u) * v).sum()
    torch.testing.assert_close(inner, u @ graph.divergence(q, reverse))


@each_graph
def test_null_space_is_the_components(graph: gll.Graph) -> None:
    """The multiplicity of the eigenvalue 0 is the number of components."""
    eigenvalues = torch.linalg.eigvalsh(dense_laplacian(graph))
    count = int(graph.components.max()) + 1
    assert int((eigenvalues < 1e-9).sum()) == count
    for part in range(count):
        indicator = (graph.components == part).double()
        assert float(graph.laplacian(indicator).abs().max()) == 0


# Components --------------------------------------------------------------------------------------------------------


def test_components_by_hand(device: torch.device) -> None:
    graph = graph_of(7, [(0, 4), (4, 2), (1, 5), (5, 6)])
    t = graph.topology
    moved = gll.Graph(gll.Topology(7, t.i.to(device), t.j.to(device)), graph.weight.to(device))
    assert moved.components.tolist() == [0, 1, 0, 2, 0, 1, 1]


def test_components_of_a_long_path(device: torch.device) -> None:
    """Labels travel a thousand edges, in an order that makes it hard; one edge is missing."""
    order = torch.randperm(1000)
    a, b = order[:-1], order[1:]
    keep = torch.arange(999) != 500
    topology, _ = gll.Topology.from_pairs(1000, a[keep].to(device), b[keep].to(device))
    components = gll.Graph(topology, torch.ones(998, device=device)).components.cpu()
    assert set(components.tolist()) == {0, 1}
    assert len(set(components[order[:501]].tolist())) == 1
    assert len(set(components[order[501:]].tolist())) == 1


def test_zero_weights_do_not_connect() -> None:
    assert path(3, [1.0, 0.0]).components.tolist() == [0, 0, 1]


# A weight matrix of the user's -------------------------------------------------------------------------------------


@each_graph
def test_from_sparse_inverts_to_scipy_and_to_dense(graph: gll.Graph) -> None:
    matrix = graph.to_dense()
    forms = [matrix, matrix.to_sparse_coo(), matrix.to_sparse_csr(), graph.to_scipy(), graph.to_scipy().tocoo()]
    for form in forms:
        again = gll.Graph.from_sparse(form)
        assert torch.equal(again.to_dense(), matrix)
        assert bool((again.topology.i < again.topology.j).all())
    np.testing.assert_array_equal(graph.to_scipy().toarray(), matrix.numpy())


def test_from_sparse_ignores_the_diagonal() -> None:
    w = torch.tensor([[5.0, 2.0], [2.0, 7.0]])
    assert gll.Graph.from_sparse(w).to_dense().tolist() == [[0, 2], [2, 0]]


def test_from_sparse_takes_integers_of_scipy() -> None:
    graph = gll.Graph.from_sparse(scipy.sparse.csr_matrix(np.array([[0, 3], [3, 0]])))
    assert graph.weight.dtype == F64
    assert graph.weight.tolist() == [3]


def test_from_sparse_keeps_the_gradient() -> None:
    w = torch.tensor([[0.0, 2.0], [2.0, 0.0]], requires_grad=True)
    gll.Graph.from_sparse(w).weight.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[0, 0.5], [0.5, 0]]


BAD_MATRICES = {
    "asymmetric": (
        torch.tensor([[0.0, 1.0], [2.0, 0.0]]),
        r"not symmetric: entry \(0, 1\) is 1, its mirror image is 2",
    ),
    "one-sided": (torch.tensor([[0.0, 1.0], [0.0, 0.0]]), r"its mirror image is 0; pass \(W \+ W.T\) / 2"),
    "negative": (torch.tensor([[0.0, -1.0], [-1.0, 0.0]]), "must not be negative, the smallest is -1"),
    "nan": (torch.tensor([[0.0, torch.nan], [torch.nan, 0.0]]), "entries that are not finite"),
    "inf": (torch.tensor([[0.0, torch.inf], [torch.inf, 0.0]]), "entries that are not finite"),
    "not square": (torch.ones(2, 3), r"a weight matrix is square, got shape \(2, 3\)"),
    "scipy, not square": (scipy.sparse.csr_matrix(np.ones((2, 3))), r"square, got shape \(2, 3\)"),
}


@pytest.mark.parametrize("name", BAD_MATRICES)
def test_from_sparse_rejects(name: str) -> None:
    matrix, message = BAD_MATRICES[name]
    with pytest.raises(ValueError, match=message):
        gll.Graph.from_sparse(matrix)


def test_from_sparse_rejects_other_types() -> None:
    with pytest.raises(TypeError, match="expected a SciPy sparse matrix or a torch tensor, got list"):
        gll.Graph.from_sparse([[0, 1], [1, 0]])


@pytest.mark.usefixtures("as_user")
def test_weights_must_fit_the_topology() -> None:
    topology = path(3).topology
    with pytest.raises(ValueError, match=r"weight has shape \(3,\), but the topology has 2 edges"):
        gll.Graph(topology, torch.ones(3))
    with pytest.raises(TypeError, match=r"weight must be a floating point tensor, got torch.int64"):
        gll.Graph(topology, torch.ones(2, dtype=torch.int64))


def test_detach_and_with_weight() -> None:
    x = torch.randn(6, 2, dtype=F64, requires_grad=True)
    graph = gll.knn_graph(x, 2)
    assert graph.weight.requires_grad
    free = graph.detach()
    assert not free.weight.requires_grad
    assert free.features is not None
    assert not free.features.requires_grad
    assert torch.equal(free.weight, graph.weight)
    doubled = graph.with_weight(2 * graph.weight)
    assert doubled.topology is graph.topology
    torch.testing.assert_close(doubled.degree, 2 * graph.degree)
