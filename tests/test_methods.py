"""Methods by name: against dense linear algebra, other implementations, and what they promise on awkward graphs."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gll
from gll.mbo import fidelity_flow, source_flow, threshold_dynamics
from gll.methods import METHODS, AbstractMethod, AutoMethod, PoissonReweighted, method_from_name
from gll.readout import Readout
from gll.volume import class_shares, log_shifts, shifts
from tests.problems import F64, graph_of, one_hot, path, random_graph

NAMES = list(METHODS)


def clusters(n: int = 60, classes: int = 3, *, gap: float = 4.0, k: int = 6, seed: int = 0) -> tuple[gll.Graph, Tensor]:
    """A kNN graph of overlapping Gaussian clusters, and the classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    centers = gap * torch.eye(classes, 3, dtype=F64)
    x = torch.randn(n, 3, generator=generator, dtype=F64) + centers[y]
    return gll.knn_graph(x, k), y


def two_islands() -> tuple[gll.Graph, Tensor]:
    """Nodes 0-9 and 10-19 in two components, with features, and the nodes of the second."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(20, 2, generator=generator, dtype=F64)
    x[10:] += 1000
    graph = gll.knn_graph(x, 4)
    assert int(graph.components.max()) == 1
    return graph, torch.arange(20) >= 10


def dense_laplacian(graph: gll.Graph) -> Tensor:
    w = graph.to_dense()
    return torch.diag(w.sum(1)) - w


def dense_laplace(graph: gll.Graph, labels: gll.Labels, tau: float = 0.0) -> Tensor:
    n = graph.num_nodes
    a = dense_laplacian(graph) + tau * torch.eye(n, dtype=F64)
    free = torch.tensor([i for i in range(n) if i not in labels.index.tolist()])
    u = torch.zeros(n, labels.num_classes, dtype=F64)
    u[labels.index] = labels.value
    u[free] = torch.linalg.solve(a[free][:, free], -a[free][:, labels.index] @ labels.value)
    return u


def dense_poisson(graph: gll.Graph, labels: gll.Labels, weight: Tensor | None = None) -> Tensor:
    """On a connected graph: the pseudo-inverse, shifted to degree-weighted mean zero."""
    weight = torch.ones(len(labels.index), dtype=F64) if weight is None else weight
    weight = weight / weight.mean()
    mean = (weight[:, None] * labels.value).sum(0) / weight.sum()
    f = torch.zeros(graph.num_nodes, labels.num_classes, dtype=F64)
    f[labels.index] = weight[:, None] * (labels.value - mean)
    u = torch.linalg.pinv(dense_laplacian(graph), hermitian=True) @ f
    degree = graph.to_dense().sum(1)
    return u - (degree @ u) / degree.sum()


def permuted(graph: gll.Graph, order: Tensor) -> gll.Graph:
    """The graph whose node i is node order[i] of the given one."""
    moved = gll.Graph.from_sparse(graph.to_dense()[order][:, order])
    return gll.Graph(moved.topology, moved.weight, None if graph.features is None else graph.features[order])


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


# Class shares ------------------------------------------------------------------------------------------------------


def whole_numbers(share: Tensor, n: int) -> Tensor:
    """Largest remainders, by brute force: the counts nearest to n · share that sum to n."""
    low = (share * n).floor().long()
    order = sorted(range(len(share)), key=lambda c: (float(low[c] - share[c] * n), c))
    for c in order[: n - int(low.sum())]:
        low[c] += 1
    return low


@pytest.mark.parametrize("seed", range(25))
def test_shares_are_met_exactly_where_scores_differ(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    n, classes = int(torch.randint(4, 80, (), generator=generator)), int(torch.randint(2, 7, (), generator=generator))
    score = torch.randn(n, classes, generator=generator, dtype=F64) * 10.0 ** float(
        torch.randint(-6, 6, (), generator=generator)
    )
    share = torch.rand(classes, generator=generator, dtype=F64)
    share = share / share.sum()
    found = torch.bincount((score + shifts(score, share)).argmax(1), minlength=classes)
    assert found.tolist() == whole_numbers(share, n).tolist()


def test_shifted_scores_are_the_best_assignment() -> None:
    """With shares 2:2:1 on five nodes, compared with all 30 assignments of those sizes."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        score = torch.randn(5, 3, generator=generator, dtype=F64)
        found = (score + shifts(score, torch.tensor([0.4, 0.4, 0.2], dtype=F64))).argmax(1)
        rows = torch.arange(5)
        best = max(
            float(score[rows, torch.tensor(a)].sum())
            for a in itertools.product(range(3), repeat=5)
            if sorted(a) == [0, 0, 1, 1, 2]
        )
        assert float(score[rows, found].sum()) == pytest.approx(best, abs=1e-12)


def test_awkward_shares() -> None:
    score = torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]], dtype=F64)

    def counts(score: Tensor, *share: float) -> list[int]:
        b = shifts(score, torch.tensor(share, dtype=F64))
        assert bool(torch.isfinite(b).all())
        assert float(b.mean()) == pytest.approx(0, abs=1e-9)
        return torch.bincount((score + b).argmax(1), minlength=len(share)).tolist()

    assert counts(score, 0.25, 0.75) == [1, 3]
    assert counts(score, 0.0, 1.0) == [0, 4]
    assert counts(score, 1.0, 0.0) == [4, 0]
    assert counts(score[:, :1], 1.0) == [4]
    assert sum(counts(torch.zeros(4, 2, dtype=F64), 0.5, 0.5)) == 4  # ties cannot be parted
    assert counts(score[:0], 0.5, 0.5) == [0, 0]
    # A node without a choice keeps its class, and the others make up for it.
    certain = torch.tensor([[0.0, -torch.inf]] * 2 + [[1.0, 0.9], [1.0, 0.8], [1.0, 0.2], [1.0, 0.1]], dtype=F64)
    assert counts(certain, 0.5, 0.5) == [3, 3]
    assert counts(certain, 0.0, 1.0) == [2, 4]


@pytest.mark.parametrize("seed", range(4))
def test_masses_are_repetitions(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    score = torch.randn(400, 4, generator=rng, dtype=torch.float64)
    mass = torch.randint(1, 6, (400,), generator=rng).double()
    share = torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    chosen = (score + shifts(score, share, mass)).argmax(1)
    reached = torch.bincount(chosen, mass, 4) / mass.sum()
    assert float((reached - share).abs().max() * mass.sum()) <= 5  # the heaviest node
    torch.testing.assert_close(class_shares(chosen, 4, mass), reached)
    assert float(shifts(score, share).sub(shifts(score, share, torch.ones(400).double())).abs().max()) < 0.05


def test_shares_of_many_nodes() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.softmax(3 * torch.randn(50_000, 4, generator=generator, dtype=F64), 1)
    share = torch.tensor([0.7, 0.1, 0.15, 0.05], dtype=F64)
    b = log_shifts(p, share)
    found = torch.bincount((p.log() + b).argmax(1), minlength=4) / 50_000
    assert float((found - share).abs().max()) < 1e-3
    own = torch.bincount(p.argmax(1), minlength=4).double() / 50_000
    assert float(log_shifts(p, own).abs().max()) == 0  # nothing to do


@pytest.mark.parametrize("name", NAMES)
def test_class_prior_sets_the_predicted_shares(name: str) -> None:
    graph, y = clusters(90, gap=2.0)
    known = torch.full_like(y, -1)
    known[:6] = y[:6]
    labels, prior = gll.Labels.from_classes(known, dtype=F64), torch.tensor([0.5, 0.3, 0.2], dtype=F64)
    free = method_from_name(name).propagate(graph, labels)
    found = method_from_name(name).propagate(graph, labels, class_prior=prior)
    wanted = torch.tensor([45, 27, 18])
    # Values that tie cannot be parted: nearest along edges would have some, by features it has none.
    assert int((torch.bincount(found.classes, minlength=3) - wanted).abs().sum()) <= 1
    assert int((torch.bincount(free.classes, minlength=3) - wanted).abs().sum()) > 10
    torch.testing.assert_close(found.probability.sum(1), torch.ones(90, dtype=F64))


def test_volume_mbo_keeps_the_shares_of_the_labels() -> None:
    graph, _ = clusters(90, gap=2.0)
    labels = one_hot([0, 1, 2, 3], [0, 1, 2, 0])
    found = method_from_name("volume-mbo").propagate(graph, labels)
    assert torch.bincount(found.classes).tolist() == [45, 23, 22]


def test_poisson_mbo_without_a_prior_keeps_the_shares_of_poisson() -> None:
    graph, _ = clusters(90, gap=2.0)
    labels = one_hot([0, 1, 2], [0, 1, 2])
    first = method_from_name("poisson").propagate(graph, labels).classes
    found = method_from_name("poisson-mbo").propagate(graph, labels).classes
    assert torch.equal(torch.bincount(found), torch.bincount(first))


# Threshold dynamics ------------------------------------------------------------------------------------------------


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


# Disconnected graphs -----------------------------------------------------------------------------------------------


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


# Small and degenerate problems -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_one_class(name: str) -> None:
    graph, _ = clusters(20, 2)
    found = method_from_name(name).propagate(graph, one_hot([3, 4], [0, 0]), class_prior=torch.ones(1, dtype=F64))
    assert torch.equal(found.probability, torch.ones(20, 1, dtype=F64))


@pytest.mark.parametrize("name", NAMES)
def test_a_class_that_nobody_has(name: str) -> None:
    graph, _ = clusters(20, 2, k=12)
    labels = gll.Labels(torch.tensor([0, 1]), torch.eye(3, dtype=F64)[:2])
    found = method_from_name(name).propagate(graph, labels)
    assert bool((found.classes < 2).all())
    assert bool(torch.isfinite(found.score).all())


@pytest.mark.parametrize("name", NAMES)
def test_two_nodes(name: str) -> None:
    graph = gll.knn_graph(torch.tensor([[0.0], [1.0]], dtype=F64), 1)
    one = method_from_name(name).propagate(graph, one_hot([1], [0]))
    assert one.probability.tolist() == [[1.0], [1.0]]
    both = method_from_name(name).propagate(graph, one_hot([0, 1], [0, 1]))
    assert both.classes.tolist() == [0, 1]
    alone = method_from_name(name).propagate(graph, gll.Labels(torch.tensor([0]), torch.tensor([[0.0, 1.0]])))
    assert alone.classes.tolist() == [1, 1]


@pytest.mark.parametrize("name", NAMES)
def test_every_node_labelled(name: str) -> None:
    graph, y = clusters(20, 2, gap=6.0)
    found = method_from_name(name).propagate(graph, gll.Labels.from_classes(y, dtype=F64))
    assert float((found.classes == y).double().mean()) > 0.9
    assert bool(torch.isfinite(found.probability).all())


@pytest.mark.parametrize("name", NAMES)
def test_duplicates_and_far_points_stay_finite(name: str) -> None:
    x = torch.cat([torch.zeros(12, 2), torch.ones(12, 2), torch.randn(12, 2), torch.full((1, 2), 1e6)]).double()
    graph = gll.knn_graph(x, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gll.UnreachedWarning)
        found = method_from_name(name).propagate(graph, one_hot([0, 12, 24], [0, 1, 2]))
    assert bool(torch.isfinite(found.score).all())
    assert bool((found.probability >= 0).all())
    torch.testing.assert_close(found.probability.sum(1), torch.ones(37, dtype=F64))


# Invariances -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_nodes_does_not_matter(name: str) -> None:
    graph, _ = clusters()
    labels, order = one_hot([0, 1, 2, 7], [0, 1, 2, 1]), torch.randperm(60)
    place = torch.argsort(order)
    moved = gll.Labels(place[labels.index].flip(0), labels.value.flip(0))
    prior = torch.tensor([0.3, 0.3, 0.4], dtype=F64)
    for share in (None, prior):
        found = method_from_name(name).propagate(graph, labels, class_prior=share)
        other = method_from_name(name).propagate(permuted(graph, order), moved, class_prior=share)
        torch.testing.assert_close(other.probability, found.probability[order], rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("name", NAMES)
def test_the_scale_of_weights_does_not_matter(name: str, scale: float) -> None:
    graph, _ = clusters()
    labels = one_hot([0, 1, 2], [0, 1, 2])
    found = method_from_name(name).propagate(graph, labels)
    other = method_from_name(name).propagate(graph.with_weight(scale * graph.weight), labels)
    torch.testing.assert_close(other.probability, found.probability, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_dtype_and_device_are_those_of_the_graph(name: str, device: torch.device) -> None:
    graph, _ = clusters()
    wide = method_from_name(name).propagate(graph, one_hot([0, 1, 2], [0, 1, 2]))
    t = graph.topology
    topology = gll.Topology(60, t.i.to(device), t.j.to(device))
    assert graph.features is not None
    moved = gll.Graph(topology, graph.weight.float().to(device), graph.features.float().to(device))
    labels = gll.Labels(torch.arange(3, device=device), torch.eye(3, device=device))
    found = method_from_name(name).propagate(moved, labels, class_prior=torch.full((3,), 1 / 3, device=device))
    assert found.probability.dtype == torch.float32
    assert found.probability.device.type == device.type
    free = method_from_name(name).propagate(moved, labels)
    torch.testing.assert_close(free.probability.cpu().double(), wide.probability, rtol=0, atol=1e-4)


# Weights of labels, soft labels, warm starts -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_weight_zero_is_no_label_and_equal_weights_are_none(name: str) -> None:
    graph, _ = clusters()
    three, four = one_hot([0, 1, 2], [0, 1, 2]), one_hot([0, 1, 2, 3], [0, 1, 2, 2])
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=F64)
    found = method_from_name(name).propagate(graph, four, label_weight=weight)
    other = method_from_name(name).propagate(graph, three)
    torch.testing.assert_close(found.probability, other.probability, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_weights_act_where_a_method_says_so(name: str) -> None:
    graph, _ = clusters(gap=1.0)
    labels, weight = one_hot([0, 1, 2, 3], [0, 1, 2, 0]), torch.tensor([1.0, 1.0, 1.0, 20.0], dtype=F64)
    found = method_from_name(name).propagate(graph, labels, label_weight=weight)
    other = method_from_name(name).propagate(graph, labels)
    moved = float((found.probability - other.probability).abs().max())
    if METHODS[name].uses_label_weight:
        assert moved > 1e-3
    else:
        assert moved == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_soft_label_is_between_two_hard_ones(name: str) -> None:
    graph = path(2)
    soft = gll.Labels(torch.tensor([0]), torch.tensor([[0.25, 0.75]], dtype=F64))
    if name == "properly-weighted":
        graph = gll.Graph(graph.topology, graph.weight, torch.tensor([[0.0], [1.0]], dtype=F64))
    found = method_from_name(name).propagate(graph, soft)
    assert bool(torch.isfinite(found.probability).all())
    if name in ("laplace", "soft", "plaplace", "wnll", "poisson-reweighted", "properly-weighted", "nearest"):
        torch.testing.assert_close(found.probability, soft.value.expand(2, 2))


@pytest.mark.parametrize("name", NAMES)
def test_a_warm_start_changes_nothing(name: str) -> None:
    graph, _ = clusters()
    labels = one_hot([0, 1, 2], [0, 1, 2])
    cold = method_from_name(name).propagate(graph, labels)
    warm = method_from_name(name).propagate(graph, labels, initial=cold.score + 0.01 * torch.randn(60, 3).double())
    torch.testing.assert_close(warm.probability, cold.probability, rtol=0, atol=1e-7)


# New points --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_new_point_on_a_node_gets_its_answer(name: str) -> None:
    graph, _ = clusters()
    method, prior = method_from_name(name), torch.tensor([0.3, 0.3, 0.4], dtype=F64)
    found = method.propagate(graph, one_hot([0, 1, 2], [0, 1, 2]), class_prior=prior)
    index = torch.tensor([[5, 8], [9, 11], [3, 4]])
    weight = torch.tensor([[1.0, 0.0], [0.0, 1e-300], [0.0, 0.0]], dtype=F64)
    new = method.extend(found, index, weight)
    torch.testing.assert_close(new[0], found.probability[5])
    torch.testing.assert_close(new[1], found.probability[11])
    between = found.readout((found.score[3:4] + found.score[4:5]) / 2)
    torch.testing.assert_close(new[2:], between)


# Gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["laplace", "soft", "poisson", "wnll", "poisson-reweighted", "plaplace"])
def test_probabilities_are_differentiable(name: str) -> None:
    graph, labels = random_graph(8), one_hot([0, 3], [0, 1])

    def score(weight: Tensor, value: Tensor) -> Tensor:
        return method_from_name(name).propagate(graph.with_weight(weight), gll.Labels(labels.index, value)).score

    def on_simplex(weight: Tensor, logit: Tensor) -> Tensor:
        return score(weight, torch.softmax(logit, 1))

    logit = torch.tensor([[2.0, -1.0], [-1.0, 1.5]], dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(
        on_simplex, (graph.weight.clone().requires_grad_(), logit), atol=1e-6, fast_mode=True
    )


def test_readout_has_a_finite_gradient_at_zero() -> None:
    score = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], dtype=F64, requires_grad=True)
    p = Readout(shift=torch.tensor([0.3, -0.1, -0.2], dtype=F64))(score)
    p.square().sum().backward()
    assert score.grad is not None
    assert bool(torch.isfinite(score.grad).all())
    assert float(p.detach()[:, 2].max()) == 0


# Names, options, arguments -----------------------------------------------------------------------------------------


def test_every_name_makes_its_method() -> None:
    issue = (
        "laplace soft plaplace poisson poisson-mbo volume-mbo wnll poisson-reweighted properly-weighted nearest auto"
    )
    assert issue.split() == NAMES
    for name in NAMES:
        assert isinstance(method_from_name(name), AbstractMethod)


def test_unknown_names_and_options_list_the_valid_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown method 'lapalce'; choose one of laplace, soft, .*auto"):
        method_from_name("lapalce")
    with pytest.raises(ValueError, match="'soft' has no option 'lambda_'; its options: lam, tau"):
        method_from_name("soft", lambda_=3)
    with pytest.raises(ValueError, match="'wnll' has no option 'tau'; its options: none"):
        method_from_name("wnll", tau=1)


def test_options_out_of_range_are_refused() -> None:
    graph, labels = random_graph(8), one_hot([0, 3], [0, 1])
    for name, options, message in (
        ("laplace", {"tau": -1.0}, "tau must be ≥ 0"),
        ("soft", {"lam": 0.0}, "lam must be > 0"),
        ("plaplace", {"p": 1.0}, "p must be > 1"),
        ("poisson-mbo", {"rounds": 0}, "rounds"),
        ("volume-mbo", {"steps": -1}, "steps"),
        ("poisson-mbo", {"mu": float("nan")}, "mu"),
        ("properly-weighted", {"alpha": 0.0}, "alpha"),
        ("poisson-reweighted", {"floor": -1.0}, "floor"),
    ):
        with pytest.raises(ValueError, match=message):
            method_from_name(name, **options).propagate(graph, labels)


def test_properly_weighted_needs_features() -> None:
    with pytest.raises(ValueError, match=r"'properly-weighted' measures distances.*choose 'wnll'"):
        method_from_name("properly-weighted").propagate(path(8), one_hot([0, 3], [0, 1]))


@pytest.mark.parametrize("name", NAMES)
def test_wrong_arguments_are_named(name: str, as_user: None) -> None:
    graph, labels, method = clusters()[0], one_hot([0, 3], [0, 1]), method_from_name(name)

    def refused(message: str, kind: type[Exception] = ValueError, **changed: Any) -> None:
        arguments = {"graph": graph, "labels": labels} | changed
        with pytest.raises(kind, match=message):
            method.propagate(arguments.pop("graph"), arguments.pop("labels"), **arguments)

    refused("not probabilities.*node 3", labels=gll.Labels(labels.index, torch.tensor([[0.5, 0.5], [2.0, -1.0]])))
    refused("not probabilities", labels=gll.Labels(labels.index, torch.full((2, 2), torch.nan)))
    refused("0 .. 59", labels=one_hot([0, 60], [0, 1]))
    refused("labelled twice", labels=one_hot([3, 3], [0, 1]))
    refused("empty", labels=gll.Labels(torch.zeros(0, dtype=torch.long), torch.zeros(0, 2)))
    refused("NONFINITE_INPUT", gll.SolveError, graph=graph.with_weight(torch.full_like(graph.weight, torch.nan)))
    refused("class_prior must have shape", class_prior=torch.ones(3) / 3)
    refused("sum to one", class_prior=torch.ones(2))
    refused("sum to one", class_prior=torch.tensor([1.5, -0.5]))
    refused("label_weight must have shape", label_weight=torch.ones(3))
    refused("finite and ≥ 0", label_weight=torch.tensor([1.0, -1.0]))
    refused("all weights of labels are zero", label_weight=torch.zeros(2))
    refused("unknown policy", unreached="ignore")
    refused("initial must have shape", initial=torch.zeros(3, 2))


@pytest.mark.parametrize(
    ("count", "prior", "name"),
    [
        (1, False, "poisson-reweighted"),
        (49, False, "poisson-reweighted"),
        (50, False, "laplace"),
        (1, True, "poisson-mbo"),
        (50, True, "laplace"),
    ],
)
def test_auto_takes_the_measured_method_and_says_so(count: int, prior: bool, name: str) -> None:
    graph, y = clusters(200)
    known = torch.full_like(y, -1)
    known[: 3 * count] = y[: 3 * count]
    labels = gll.Labels.from_classes(known, dtype=F64)
    share = torch.full((3,), 1 / 3, dtype=F64) if prior else None
    found = method_from_name("auto").propagate(graph, labels, class_prior=share)
    other = method_from_name(name).propagate(graph, labels, class_prior=share)
    assert found.description.startswith(f"auto took {name}: the smallest class has {count} label")
    assert torch.equal(found.probability, other.probability)


def test_auto_leaves_mbo_to_graphs_of_moderate_size() -> None:
    method, why = AutoMethod.choose(one_hot([0, 1], [0, 1]), 1_000_000, prior=True)
    assert isinstance(method, PoissonReweighted)
    assert "1,000,000 nodes" in why
