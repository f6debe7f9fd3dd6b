"""The multilevel preconditioner: its groups, its matrix, its steps, and what it refuses."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import gll
from gll.numbering import Numbering
from gll.operators import Operator
from gll.solvers import Auto, ConjugateGradient, Multilevel
from gll.solvers.multilevel import find_groups
from gll.solvers.scaled import plain_product
from tests.problems import F64, graph_of, random_graph


def clusters(count: int, size: int, tie: float, seed: int = 0) -> gll.Graph:
    """Cliques in a ring, tied to the next by one weak edge each."""
    generator = torch.Generator().manual_seed(seed)
    edges = []
    for c in range(count):
        edges += [(c * size + a, c * size + b) for a in range(size) for b in range(a)]
    strong = len(edges)
    edges += [(c * size, ((c + 1) % count) * size + 1) for c in range(count)]
    i, j = torch.tensor(edges).T
    weight = torch.cat([0.5 + torch.rand(strong, generator=generator, dtype=F64), torch.full((count,), tie, dtype=F64)])
    topology, edge = gll.Topology.from_pairs(count * size, i, j)
    return gll.Graph(topology, torch.zeros(topology.num_edges, dtype=F64).index_put((edge,), weight))


def operator_of(graph: gll.Graph, excess: float = 1e-3) -> Operator:
    return Operator(graph.topology, graph.weight, torch.full((graph.num_nodes,), excess, dtype=F64))


@given(st.integers(0, 10**6))
def test_every_node_shares_a_group_with_its_strongest_neighbour(seed: int) -> None:
    graph = random_graph(20, seed=seed % 1000)
    generator = torch.Generator().manual_seed(seed)
    # Few different weights, so that ties are frequent; some are zero and tie nothing.
    weight = torch.randint(0, 4, graph.weight.shape, generator=generator).to(F64)
    (group, *_) = find_groups(graph.topology, weight, coarsest=1) or (torch.arange(20),)
    dense = graph.with_weight(weight).to_dense()
    for node in range(20):
        strongest = torch.nonzero((dense[node] == dense[node].max()) & (dense[node] > 0)).flatten()
        if len(strongest):
            assert any(group[node] == group[other] for other in strongest)
        else:
            assert int((group == group[node]).sum()) == 1
    # Groups hang together: no group without a path of positive edges inside it.
    inside = (group[:, None] == group) * (dense > 0)
    parts = gll.Graph.from_sparse(inside.to(F64)).components
    assert len(torch.unique(parts)) == len(torch.unique(group))
    assert sorted(set(group.tolist())) == list(range(int(group.max()) + 1))


def test_groups_shrink_by_half_at_least_and_end_at_components() -> None:
    graph = clusters(40, 6, 1e-3)
    levels = find_groups(graph.topology, graph.weight, 1)
    sizes = [graph.num_nodes, *(int(group.max()) + 1 for group in levels)]
    assert all(b <= a / 2 for a, b in itertools.pairwise(sizes))
    assert sizes[-1] == 1
    apart = graph_of(7, [(0, 1), (1, 2), (3, 4)])  # components {0,1,2}, {3,4}, {5}, {6}
    whole = find_groups(apart.topology, apart.weight, 1)
    assert int(whole[-1].max()) + 1 == 4


def matrix_of(apply: object, n: int) -> Tensor:
    return apply(torch.eye(n, dtype=F64))  # type: ignore[operator]


@pytest.mark.parametrize("coarsest", [1, 5, 30])
def test_equals_the_formula(coarsest: int) -> None:
    """M = D^-1 + Σ P_l diag(A_l)^-1 P_lᵀ, with A_L^-1 on the last level, in the variables of unit diagonal."""
    graph = clusters(12, 5, 0.01)
    operator, n = operator_of(graph, 0.1), graph.num_nodes
    found = matrix_of(Multilevel(coarsest=coarsest).prepare(operator), n)
    a = torch.diag(operator.diagonal) - graph.to_dense()
    expected = torch.diag(1 / operator.diagonal)
    p = torch.eye(n, dtype=F64)
    levels = find_groups(graph.topology, graph.weight, coarsest)
    for depth, group in enumerate(levels):
        p = p @ torch.nn.functional.one_hot(group).to(F64)
        coarse = p.T @ a @ p
        last = depth == len(levels) - 1
        expected += p @ (torch.linalg.inv(coarse) if last else torch.diag(1 / coarse.diagonal())) @ p.T
    root = operator.diagonal.sqrt()
    torch.testing.assert_close(found, root[:, None] * expected * root, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found, found.T, rtol=1e-10, atol=1e-10)
    assert float(torch.linalg.eigvalsh((found + found.T) / 2).min()) > 0


def test_takes_far_fewer_steps_where_clusters_hang_by_weak_ties() -> None:
    graph = clusters(100, 8, 1e-2)
    labels = gll.Labels(torch.tensor([0, 400]), torch.eye(2, dtype=F64))
    jacobi = gll.solve(gll.Laplace(), graph, labels, solver=ConjugateGradient())
    multi = gll.solve(gll.Laplace(), graph, labels, solver=ConjugateGradient(preconditioner=Multilevel(coarsest=50)))
    direct = gll.solve(gll.Laplace(), graph, labels, solver=gll.solvers.Cholesky())
    assert multi.steps < jacobi.steps / 3
    torch.testing.assert_close(multi.value, direct.value, rtol=0, atol=1e-7)


def test_groups_of_the_graph_serve_any_labels(device: torch.device) -> None:
    graph = clusters(60, 8, 1e-2)
    graph = gll.Graph(
        gll.Topology(graph.num_nodes, graph.topology.i.to(device), graph.topology.j.to(device)), graph.weight.to(device)
    )
    kept = Multilevel.of(graph, coarsest=20)
    for nodes in ([0, 240], [3, 77, 241, 300]):
        value = torch.eye(2, dtype=F64, device=device)[torch.arange(len(nodes)) % 2]
        labels = gll.Labels(torch.tensor(nodes, device=device), value)
        expected = gll.solve(gll.Laplace(), graph, labels, solver=gll.solvers.Cholesky()).value
        found = gll.solve(gll.Laplace(), graph, labels, solver=ConjugateGradient(preconditioner=kept, single=True))
        torch.testing.assert_close(found.value, expected, rtol=0, atol=1e-8)


def test_auto_uses_it_on_large_graphs_and_gradients_are_the_same() -> None:
    x = torch.randn(900, 3, generator=torch.Generator().manual_seed(0), dtype=F64).requires_grad_()
    labels = gll.Labels(torch.arange(10), torch.eye(2, dtype=F64).repeat(5, 1))
    grads, values = [], []
    for solver in (
        gll.solvers.Cholesky(),
        Auto(dense_cpu=10, dense_rescue=20, dense_last=20, multilevel=Multilevel(coarsest=50)),
    ):
        solution = gll.solve(gll.Laplace(), gll.knn_graph(x, 8), labels, solver=solver)
        values.append(solution.value)
        (grad,) = torch.autograd.grad((solution.value[:, 0] ** 2).sum(), x)
        grads.append(grad)
    assert "Multilevel" in solution.method
    torch.testing.assert_close(values[1], values[0], rtol=0, atol=1e-8)
    torch.testing.assert_close(grads[1], grads[0], rtol=0, atol=1e-7 * float(grads[0].abs().max()))


def test_refuses_a_matrix_for_each_column() -> None:
    graph = random_graph(14)
    operator = Operator(graph.topology, graph.weight[:, None].expand(-1, 2), torch.ones(14, dtype=F64))
    with pytest.raises(ValueError, match="one matrix for all columns"):
        Multilevel().prepare(operator)


def test_says_what_it_holds() -> None:
    assert repr(Multilevel()) == "Multilevel(coarsest=1000)"
    assert repr(Multilevel.of(clusters(10, 5, 0.1), coarsest=5)).endswith("levels over 50 nodes, coarsest=5)")


def test_numbering_lays_every_group_of_every_level_side_by_side() -> None:
    graph = clusters(40, 6, 1e-3)
    shuffle = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(3))
    topology, edge = gll.Topology.from_pairs(graph.num_nodes, shuffle[graph.topology.i], shuffle[graph.topology.j])
    mixed = gll.Graph(topology, torch.zeros_like(graph.weight).index_put((edge,), graph.weight))
    groups = Multilevel.of(mixed, coarsest=1)
    numbering = groups.numbering()
    assert numbering is not None
    order = numbering.order
    assert order.sort().values.equal(torch.arange(graph.num_nodes))
    member = order
    for group in groups.groups or ():
        member = group[member]
        assert member[1:].ge(member[:-1]).all()
        assert int((member[1:] != member[:-1]).sum()) == int(group.max())  # a new group begins once for each
    assert Multilevel().numbering() is None
    assert ConjugateGradient().numbering() is None


@pytest.mark.parametrize("equation", [gll.Laplace(), gll.Laplace(tau=0.1), gll.SoftLaplace(lam=2.0), gll.Poisson()])
@pytest.mark.parametrize("labelled", [3, 20])
def test_numbering_of_the_unknowns_changes_neither_values_nor_gradients(
    equation: gll.AbstractEquation, labelled: int
) -> None:
    graph = random_graph(60, seed=4)
    weight = graph.weight.clone().requires_grad_()
    classes = torch.full((60,), -1)
    classes[torch.randperm(60, generator=torch.Generator().manual_seed(5))[:labelled]] = torch.arange(labelled) % 3
    labels = gll.Labels.from_classes(classes, num_classes=3, dtype=F64)
    found = []
    groups = Multilevel.of(graph, coarsest=2)
    for solver in (Auto(), Auto(multilevel=groups), ConjugateGradient(preconditioner=groups)):
        assert solver.numbering() is None or not solver.numbering().order.equal(torch.arange(60))  # type: ignore[union-attr]
        value = gll.solve(equation, graph.with_weight(weight), labels, solver=solver).value
        (slope,) = torch.autograd.grad((value * torch.arange(3)).square().sum(), weight)
        found.append((value.detach(), slope))
    for value, slope in found[1:]:
        torch.testing.assert_close(value, found[0][0], rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(slope, found[0][1], rtol=1e-7, atol=1e-9)


@given(st.integers(0, 10**6), st.floats(0, 1))
def test_a_part_of_a_renumbered_topology_is_what_sorting_it_anew_gives(seed: int, share: float) -> None:
    graph = random_graph(24, seed=seed % 1000)
    t, generator = graph.topology, torch.Generator().manual_seed(seed)
    numbering = Numbering(torch.randperm(24, generator=generator))
    renumbered = numbering.of(t)
    assert numbering.of(t) is renumbered
    free = torch.rand(24, generator=generator) < share  # by new numbers
    local = torch.where(free, free.cumsum(0) - 1, -1)
    a, b = local[renumbered.topology.i], local[renumbered.topology.j]
    part = renumbered.part(local, (a >= 0) & (b >= 0))
    place = torch.empty_like(numbering.order)
    place[numbering.order] = torch.arange(24)
    i, j = local[place[t.i]], local[place[t.j]]
    kept = (i >= 0) & (j >= 0)
    expected, _ = gll.Topology.from_pairs(int(free.sum()), i[kept], j[kept])
    assert part.num_nodes == expected.num_nodes
    assert part.i.equal(expected.i)
    assert part.j.equal(expected.j)
    for mine, other in zip(part.csr, expected.csr, strict=True):
        assert mine.equal(other)
    old = renumbered.edge
    ends = torch.stack([place[t.i[old]], place[t.j[old]]]).sort(0).values
    assert ends.equal(torch.stack([renumbered.topology.i, renumbered.topology.j]))


@pytest.mark.parametrize("rounding", [None, 1.0])
def test_loose_solves_take_residuals_from_a_product_and_where_it_rounds_too_much_from_differences(
    rounding: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    def product(operator: Operator) -> tuple[Callable[[Tensor], Tensor], float]:
        used.append(operator)
        apply, own = plain_product(operator)
        return apply, own if rounding is None else rounding

    monkeypatch.setattr("gll.solvers.judge.MANY", 10)
    monkeypatch.setattr("gll.solvers.judge.plain_product", product)
    graph, labels = clusters(30, 6, 1e-2), gll.Labels(torch.tensor([0, 90]), torch.eye(2, dtype=F64))
    exact = gll.solve(gll.Laplace(), graph, labels, solver=gll.solvers.Cholesky()).value
    assert not used
    found = gll.solve(gll.Laplace(), graph, labels, solver=ConjugateGradient(rtol=1e-5))
    assert len(used) == 1
    assert found.error <= 1e-5
    torch.testing.assert_close(found.value, exact, rtol=0, atol=1e-5)
    gll.solve(gll.Laplace(), graph, labels, solver=ConjugateGradient(rtol=1e-8))
    assert len(used) == 1  # a strict solve never does


def test_plain_product_is_the_operator_and_its_rounding_is_a_bound() -> None:
    graph = clusters(30, 6, 1e-9)
    operator = operator_of(graph, 1e-12)
    apply, rounding = plain_product(operator)
    v = torch.rand(graph.num_nodes, 5, generator=torch.Generator().manual_seed(0), dtype=F64)
    gap = (apply(v) - operator.matvec(v)).abs() / operator.diagonal[:, None]
    assert float(gap.max()) <= rounding * float(v.abs().max())
    assert rounding < 1e-14


@given(st.integers(0, 10**6), st.floats(0.05, 1))
def test_groups_without_a_free_node_keep_their_place(seed: int, share: float) -> None:
    graph = clusters(12, 4, 0.1, seed % 100)
    generator = torch.Generator().manual_seed(seed)
    known = torch.rand(graph.num_nodes, generator=generator) < share
    known[torch.randint(graph.num_nodes - 8, (1,), generator=generator)] = True
    known[-8:] = True  # the last groups have none
    labels = gll.Labels.from_classes(
        torch.where(known, torch.arange(graph.num_nodes) % 2, -1), num_classes=2, dtype=F64
    )
    kept = ConjugateGradient(preconditioner=Multilevel.of(graph, coarsest=3), single=True)
    found = gll.solve(gll.Laplace(), graph, labels, solver=kept).value
    torch.testing.assert_close(found, gll.solve(gll.Laplace(), graph, labels).value, rtol=0, atol=1e-8)


def test_groups_of_another_graph_are_refused() -> None:
    graph = clusters(6, 5, 0.1)
    labels = gll.Labels(torch.tensor([0, 7]), torch.eye(2, dtype=F64))
    solver = ConjugateGradient(preconditioner=Multilevel.of(clusters(5, 5, 0.1), coarsest=3))
    with pytest.raises(ValueError, match=r"keeps groups of 25 nodes .* but this graph has 30"):
        gll.solve(gll.Laplace(), graph, labels, solver=solver)


def test_copies_of_a_solver_and_of_a_graph_that_were_used_leave_caches_behind() -> None:
    graph = clusters(60, 20, 0.1)  # large enough for a sparse product
    labels = gll.Labels(torch.tensor([0, 700]), torch.eye(2, dtype=F64))
    solver = ConjugateGradient(preconditioner=Multilevel.of(graph, coarsest=3))
    value = gll.solve(gll.Laplace(), graph, labels, solver=solver).value
    assert "_incidence" in graph.topology.__dict__
    for again in (copy.deepcopy((graph, solver)), pickle.loads(pickle.dumps((graph, solver)))):
        assert set(again[0].topology.__dict__) == {"num_nodes", "i", "j"}
        assert gll.solve(gll.Laplace(), again[0], labels, solver=again[1]).value.equal(value)
