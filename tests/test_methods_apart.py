"""Methods on graphs that fall apart, or nearly: components, islands without a label, threads, outliers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import gll
from gll.methods import method_from_name
from tests.method_cases import NAMES, dense_poisson
from tests.problems import F64, graph_of, one_hot


def two_islands() -> tuple[gll.Graph, Tensor]:
    """Nodes 0-9 and 10-19 in two components, with features, and the nodes of the second."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(20, 2, generator=generator, dtype=F64)
    x[10:] += 1000
    graph = gll.knn_graph(x, 4)
    assert int(graph.components.max()) == 1
    return graph, torch.arange(20) >= 10


def test_poisson_solves_each_component_with_its_own_source() -> None:
    """Two components with unbalanced labels: each as if it were alone. `gll.solve` calls the whole incompatible."""
    graph, _ = two_islands()
    labels = one_hot([0, 1, 2, 12, 15], [0, 1, 0, 1, 2])
    with pytest.raises(gll.SolveError, match="INCOMPATIBLE_SOURCE"):
        gll.solve(gll.Poisson(), graph, labels)
    found = method_from_name("poisson").propagate(graph, labels)
    assert found.unreached is None
    w = graph.to_dense()
    for nodes, own, classes in (
        (slice(0, 10), one_hot([0, 1, 2], [0, 1, 0]), [0, 1]),
        (slice(10, 20), gll.Labels(torch.tensor([2, 5]), torch.eye(2, dtype=F64)), [1, 2]),
    ):
        alone = dense_poisson(gll.Graph.from_sparse(w[nodes, nodes]), own)
        torch.testing.assert_close(found.score[nodes][:, classes], alone, rtol=0, atol=1e-9)
    assert float(found.probability[:10, 2].max()) == 0  # no label of class 2 on the first island
    assert float(found.probability[10:, 0].max()) == 0


def test_a_component_with_one_class_takes_it() -> None:
    graph, second = two_islands()
    labels = one_hot([0, 1, 12], [0, 1, 1])
    for name in NAMES:
        found = method_from_name(name).propagate(graph, labels)
        assert bool((found.classes[second] == 1).all()), name
        assert found.unreached is None


@pytest.mark.parametrize("prior", [None, torch.tensor([0.4, 0.6], dtype=F64)])
@pytest.mark.parametrize("name", NAMES)
def test_unreached_nodes_follow_the_policy(name: str, prior: Tensor | None) -> None:
    graph, second = two_islands()
    method, labels = method_from_name(name), one_hot([0, 1], [0, 1])
    if name == "nearest":
        assert method.propagate(graph, labels, class_prior=prior, unreached="raise").unreached is None
        graph = gll.Graph(graph.topology, graph.weight)  # without features there is only the graph
    elif name == "properly-weighted":
        pass
    with pytest.warns(gll.UnreachedWarning, match="10 of 20 nodes"):
        found = method.propagate(graph, labels, class_prior=prior)
    assert found.unreached is not None
    assert torch.equal(found.unreached, second)
    torch.testing.assert_close(found.probability[second], torch.full((10, 2), 0.5, dtype=F64))
    assert bool(torch.isfinite(found.probability).all())
    if prior is not None:  # shares are those of the nodes that are known
        assert abs(int((found.classes[~second] == 1).sum()) - 6) <= 1
    with pytest.raises(gll.SolveError, match="UNREACHED: 10 of 20"):
        method.propagate(graph, labels, unreached="raise")
    if graph.features is None:
        with pytest.raises(ValueError, match="needs to know the features"):
            method.propagate(graph, labels, unreached="nearest")
        return
    with pytest.warns(gll.UnreachedWarning):
        found = method.propagate(graph, labels, unreached="nearest")
    assert graph.features is not None
    distance = torch.cdist(graph.features[second], graph.features[:2])
    assert torch.equal(found.classes[second], distance.argmin(1))
    assert float(found.probability[second].amax(1).min()) > 0.9


def test_tau_does_not_hide_that_no_label_reaches() -> None:
    graph, second = two_islands()
    with pytest.warns(gll.UnreachedWarning):
        found = method_from_name("laplace", tau=0.1).propagate(graph, one_hot([0, 1], [0, 1]))
    assert found.unreached is not None
    assert torch.equal(found.unreached, second)


@pytest.mark.parametrize("name", ["poisson", "poisson-mbo", "volume-mbo", "poisson-reweighted"])
@pytest.mark.parametrize("bridge", [1e-300, 1e-30, 1e-18, 1e-14, 1e-8])
def test_clusters_on_a_thread(name: str, bridge: float) -> None:
    """Below what float64 resolves they count as two components; above they are one. Either way the answer is right."""
    edges = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)]
    graph = graph_of(6, edges, [1.0] * 6 + [bridge])
    half = torch.full((2,), 0.5, dtype=F64) if name == "volume-mbo" else None  # its volumes would be those of labels
    found = method_from_name(name).propagate(graph, one_hot([0, 4, 5], [0, 1, 1]), class_prior=half)
    assert found.classes.tolist() == [0, 0, 0, 1, 1, 1]
    assert bool(torch.isfinite(found.probability).all())
    if bridge < 1e-17:
        with pytest.warns(gll.UnreachedWarning):
            found = method_from_name(name).propagate(graph, one_hot([0, 1], [0, 1]))
        assert found.unreached is not None
        assert found.unreached.tolist() == [False] * 3 + [True] * 3


@pytest.mark.parametrize("name", ["poisson", "poisson-mbo", "volume-mbo", "poisson-reweighted", "laplace"])
def test_outliers_do_not_drown_the_rest(name: str) -> None:
    """A labelled outlier on an edge of 1e-20 would have a potential of 1e20; one without a label joins the rest."""
    edges = [(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3), (5, 6), (0, 7)]
    graph = graph_of(8, edges, [1.0] * 6 + [0.1, 1e-20, 1e-20])
    found = method_from_name(name).propagate(graph, one_hot([1, 4, 6], [0, 1, 0]))
    expected = [0, 0, 0, 1, 1, 1, 0, 0]
    if name == "volume-mbo":  # two of three labels are of class 0, so five or six of the nodes are
        assert found.classes[[0, 1, 2, 4, 7]].tolist() == [0, 0, 0, 1, 0]
    else:
        assert found.classes.tolist() == expected
    assert found.unreached is None
