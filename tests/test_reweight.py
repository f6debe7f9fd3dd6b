"""Reweighting: closed forms on small graphs, and what it is for: very few labels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

import gll
from tests.problems import F64, graph_of, one_hot, path, random_graph

ALL: dict[str, Callable[..., gll.Graph]] = {
    "wnll": gll.reweight.wnll,
    "poisson": gll.reweight.poisson,
    "properly_weighted": gll.reweight.properly_weighted,
}


def test_wnll_is_the_published_equation() -> None:
    """Shi, Osher, Zhu (2017): 2 Σ_y w (u(x) - u(y)) + (n/m - 1) Σ_labelled w (u(x) - u(y)) = 0 at unlabelled x."""
    graph, labels = random_graph(15), one_hot([0, 6], [0, 1])
    u = gll.solve(gll.Laplace(), gll.reweight.wnll(graph, labels), labels).value
    w, labelled = graph.to_dense(), labels.index
    q = u[:, None] - u[None]
    left = 2 * (w[:, :, None] * q).sum(1) + (15 / 2 - 1) * (w[:, labelled, None] * q[:, labelled]).sum(1)
    free = [x for x in range(15) if x not in (0, 6)]
    assert float(left[free].abs().max()) < 1e-13
    assert float(graph.laplacian(u)[free].abs().max()) > 1e-2  # and not plain Laplace


def test_poisson_on_a_path() -> None:
    """Δγ = δ_0 - 1/n on a path: the edge (i, i+1) carries what is still to be spread, 1 - (i+1)/n."""
    n, w = 6, torch.tensor([1.0, 2.0, 0.5, 1.0, 4.0], dtype=F64)
    drop = (1 - torch.arange(1, n, dtype=F64) / n) / w
    gamma = torch.cat([drop.flip(0).cumsum(0).flip(0), drop.new_zeros(1)])  # shifted to 0 at the far end
    gamma = gamma + 1e-3 * gamma.max()
    graph = gll.reweight.poisson(path(n, w), one_hot([0], [0]), floor=1e-3)
    torch.testing.assert_close(graph.weight, w * gamma[:-1] * gamma[1:], rtol=1e-12, atol=0)


def test_poisson_treats_components_one_by_one() -> None:
    """A component alone, or beside another one, gets the same weights; one without labels keeps its own."""
    edges, w = [(0, 1), (1, 2), (2, 3)], [1.0, 2.0, 0.5]
    alone = gll.reweight.poisson(path(4, w), one_hot([1], [0])).weight
    shifted = [(a + 4, b + 4) for a, b in edges]
    both = gll.reweight.poisson(graph_of(8, edges + shifted, w + w), one_hot([1, 5], [0, 1])).weight
    torch.testing.assert_close(both, torch.cat([alone, alone]), rtol=1e-12, atol=0)
    half = gll.reweight.poisson(graph_of(8, edges + shifted, w + w), one_hot([1], [0])).weight
    torch.testing.assert_close(half, torch.cat([alone, torch.tensor(w, dtype=F64)]), rtol=1e-12, atol=0)


def test_poisson_of_a_fully_labelled_graph_changes_nothing() -> None:
    graph = path(3, [1.0, 3.0])
    assert gll.reweight.poisson(graph, one_hot([0, 1, 2], [0, 1, 0])).weight.tolist() == [1.0, 3.0]


def test_properly_weighted_on_a_line() -> None:
    """γ = 1 + (r/distance)^α, at most ζ: 1 + 4/x² for a label at 0, r = 2, α = 2."""
    x = torch.tensor([[0.0], [1.0], [2.0], [4.0]], dtype=F64)
    graph = gll.Graph(path(4).topology, torch.tensor([1.0, 2.0, 3.0], dtype=F64), features=x)
    out = gll.reweight.properly_weighted(graph, one_hot([0], [0]), radius=2.0, zeta=101.0)
    gamma = torch.tensor([101.0, 5.0, 2.0, 1.25], dtype=F64)
    torch.testing.assert_close(out.weight, graph.weight * (gamma[:-1] + gamma[1:]) / 2, rtol=1e-13, atol=0)
    steep = gll.reweight.properly_weighted(graph, one_hot([0], [0]), radius=2.0, zeta=101.0, alpha=4.0)
    gamma = torch.tensor([101.0, 17.0, 2.0, 1.0625], dtype=F64)
    torch.testing.assert_close(steep.weight, graph.weight * (gamma[:-1] + gamma[1:]) / 2, rtol=1e-13, atol=0)


def test_properly_weighted_default_radius_is_the_mean_distance() -> None:
    """So that the weights do not depend on the units of the features; features may be given apart from the graph."""
    x = torch.tensor([[0.0], [1.0], [3.0], [4.0]], dtype=F64)
    graph, labels = path(4), one_hot([0], [0])
    explicit = gll.reweight.properly_weighted(graph, labels, features=x, radius=2.0).weight
    for scale in (1.0, 1e-9, 1e9):
        scaled = gll.reweight.properly_weighted(graph, labels, features=scale * x).weight
        torch.testing.assert_close(scaled, explicit, rtol=1e-12, atol=0)


def test_properly_weighted_uses_the_nearest_label() -> None:
    x = torch.tensor([[0.0], [1.0], [3.0], [4.0]], dtype=F64)
    out = gll.reweight.properly_weighted(path(4), one_hot([0, 3], [0, 1]), features=x, radius=1.0, zeta=10.0)
    assert out.weight.tolist() == pytest.approx([6.0, 2.0, 6.0])


def test_properly_weighted_where_every_node_lies_on_a_label() -> None:
    graph, labels = path(3), one_hot([0, 1], [0, 1])
    assert gll.reweight.properly_weighted(graph, labels, features=torch.zeros(3, 2)).weight.tolist() == [1.0, 1.0]


def test_properly_weighted_without_features() -> None:
    with pytest.raises(ValueError, match="needs the features of the nodes: pass features=x, or build the graph"):
        gll.reweight.properly_weighted(path(3), one_hot([0], [0]))


@pytest.mark.parametrize("name", ALL)
def test_topology_and_features_are_kept(name: str) -> None:
    graph = random_graph(12)
    out = ALL[name](graph, one_hot([0, 4], [0, 1]))
    assert out.topology is graph.topology
    assert out.features is graph.features
    assert bool((out.weight >= 0).all())


@pytest.fixture(scope="module")
def digits() -> tuple[gll.Graph, Tensor]:
    x, y = load_digits(return_X_y=True)
    return gll.knn_graph(torch.tensor(x), 10), torch.tensor(y)


def _accuracy(graph: gll.Graph, y: Tensor, reweight: Callable[..., gll.Graph] | None, seeds: range) -> float:
    """Mean accuracy of Laplace learning from one label a class."""
    total = 0.0
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(y), generator=generator)
        index = torch.stack([order[y[order] == c][0] for c in range(10)])
        labels = gll.Labels(index, torch.eye(10, dtype=F64)[y[index]])
        g = graph if reweight is None else reweight(graph, labels)
        free = torch.ones(len(y), dtype=torch.bool).index_fill(0, index, False)
        total += float((gll.solve(gll.Laplace(), g, labels).classes == y)[free].double().mean())
    return total / len(seeds)


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("name", ALL)
def test_better_than_laplace_at_one_label_a_class(name: str, digits: tuple[gll.Graph, Tensor]) -> None:
    seeds = range(10)
    assert _accuracy(*digits, ALL[name], seeds) > _accuracy(*digits, None, seeds) + 0.01


def test_poisson_is_not_spoiled_by_a_few_nodes_on_weak_edges() -> None:
    """A pendant node on a thread has a value far below all others: it must not set the shift of the others."""
    n = 2000
    ring = torch.arange(n)
    i, j = torch.cat([ring, ring]), torch.cat([(ring + 1) % n, (ring + 2) % n])
    topology, _ = gll.Topology.from_pairs(n, i, j)
    weight = torch.ones(topology.num_edges, dtype=torch.float64)
    plain = gll.Graph(topology, weight)
    labels = gll.Labels(torch.tensor([0, 1000]), torch.eye(2, dtype=torch.float64))
    pair, thread = gll.Topology.from_pairs(n + 1, torch.cat([topology.i, torch.tensor([700])]),
                                           torch.cat([topology.j, torch.tensor([n])]))  # fmt: skip
    hung = torch.cat([weight, torch.tensor([1e-7], dtype=torch.float64)])
    spoiled = gll.Graph(pair, torch.zeros_like(hung).index_put((thread,), hung))
    strength = [gll.reweight.poisson(graph, labels).weight for graph in (plain, spoiled)]
    # How much stronger edges at a label are than half way between two labels.
    ratio = [float(s[0] / s[1000]) for s in strength]
    assert ratio[0] > 10
    assert ratio[1] > ratio[0] / 3
