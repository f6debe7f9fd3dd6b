"""Properties that hold for every graph, every set of features and every labelling.

Hypothesis draws a size and a seed; NumPy's generator does the rest, so that a failing example is two integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gll

F64 = torch.float64
SOLVERS = [gll.solvers.Cholesky(), gll.solvers.ConjugateGradient()]


@dataclass(frozen=True, eq=False)
class Sample:
    """Features, their graph (connected, by a path through all nodes), and one-hot labels on some nodes."""

    rng: np.random.Generator
    x: Tensor
    graph: gll.Graph
    labels: gll.Labels

    @property
    def n(self) -> int:
        return len(self.x)

    def normal(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.rng.normal(size=shape))

    def solve(self, equation: gll.AbstractEquation, labels: gll.Labels | None = None, **options: object) -> Tensor:
        return gll.solve(equation, self.graph, labels or self.labels, **options).value  # type: ignore[arg-type]


def make(n: int, seed: int) -> Sample:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(n, int(rng.integers(1, 6)))))
    near = gll.knn_graph(x, int(rng.integers(1, min(n, 8))))
    path = torch.arange(n - 1)
    pairs = torch.cat([near.topology.i, path]), torch.cat([near.topology.j, path + 1])
    topology, edge = gll.Topology.from_pairs(n, *pairs)
    weight = torch.cat([near.weight, torch.from_numpy(rng.uniform(0.1, 1, n - 1))])
    graph = gll.Graph(topology, torch.zeros(topology.num_edges, dtype=F64).index_add(0, edge, weight), features=x)
    classes = int(rng.integers(1, 4))
    y = np.full(n, -1)
    labelled = rng.permutation(n)[: rng.integers(1, n)]
    y[labelled] = rng.integers(0, classes, len(labelled))
    return Sample(rng, x, graph, gll.Labels.from_classes(torch.from_numpy(y), num_classes=classes, dtype=F64))


samples = st.builds(make, st.integers(2, 40), st.integers(0, 2**32 - 1))
more = settings.default.max_examples // 100  # ten times the examples under HYPOTHESIS_PROFILE=explore
few, fewer = settings(max_examples=40 * more), settings(max_examples=15 * more)


def close(a: Tensor, b: Tensor, atol: float = 1e-9) -> None:
    torch.testing.assert_close(a, b, rtol=1e-9, atol=atol)


# Calculus -----------------------------------------------------------------------------------------------------------


@few
@given(samples)
def test_divergence_is_the_adjoint_of_the_gradient(s: Sample) -> None:
    g, u, q = s.graph, s.normal(s.n, 2), s.normal(s.graph.topology.num_edges, 2)
    close(g.inner(g.gradient(u), q), (u * g.divergence(q)).sum())
    # Also for a field that is not skew: <∇u, q> = ½ Σ w_xy ∇u(x, y) q(x, y) over both directions.
    back = s.normal(s.graph.topology.num_edges, 2)
    both = (g.inner(g.gradient(u), q) + g.inner(-g.gradient(u), back)) / 2
    close(both, (u * g.divergence(q, reverse=back)).sum())


@few
@given(samples)
def test_laplacian_is_symmetric_positive_semidefinite_with_constants_as_kernel(s: Sample) -> None:
    matrix = s.graph.laplacian(torch.eye(s.n, dtype=F64))
    close(matrix, matrix.T)
    close(matrix, torch.diag(s.graph.degree) - s.graph.to_dense())
    eigenvalues = torch.linalg.eigvalsh(matrix)
    assert eigenvalues[0].abs() < 1e-12 * eigenvalues[-1]
    assert eigenvalues[1] > 1e-12 * eigenvalues[-1], "connected: the kernel has dimension one"
    close(s.graph.laplacian(torch.ones(s.n, dtype=F64)), torch.zeros(s.n, dtype=F64))


@few
@given(samples, st.integers(1, 5))
def test_the_kernel_has_one_dimension_per_component(s: Sample, copies: int) -> None:
    graph = gll.Graph.from_sparse(torch.block_diag(*[s.graph.to_dense()] * copies))
    assert int(graph.components.max()) + 1 == copies
    eigenvalues = torch.linalg.eigvalsh(graph.laplacian(torch.eye(graph.num_nodes, dtype=F64)))
    assert int((eigenvalues < 1e-12 * eigenvalues[-1]).sum()) == copies


@few
@given(samples)
def test_energy_and_degree_identities(s: Sample) -> None:
    g, u = s.graph, s.normal(s.n, 3)
    w = g.to_dense()
    pairs = (w[:, :, None] * (u[:, None] - u[None]).square()).sum() / 2
    close(g.dirichlet_energy(u), pairs)
    close(g.dirichlet_energy(u), (u * g.laplacian(u)).sum())
    close(g.degree, w.sum(1))
    close(g.degree.sum(), 2 * g.weight.sum())
    close(g.laplacian(u).sum(0), torch.zeros(3, dtype=F64))


@few
@given(samples)
def test_normalised_laplacians(s: Sample) -> None:
    g, u, d = s.graph, s.normal(s.n, 2), s.graph.degree[:, None]
    walk, symmetric = gll.Normalization.RANDOM_WALK, gll.Normalization.SYMMETRIC
    close(d * g.laplacian(u, walk), g.laplacian(u))
    close(d.sqrt() * g.laplacian(d.sqrt() * u, symmetric), g.laplacian(u))
    eigenvalues = torch.linalg.eigvalsh(g.laplacian(torch.eye(s.n, dtype=F64), symmetric))
    assert eigenvalues[0] > -1e-12
    assert eigenvalues[-1] < 2 + 1e-12


# Weights ------------------------------------------------------------------------------------------------------------


def _rotation(s: Sample) -> Tensor:
    return torch.linalg.qr(s.normal(s.x.shape[1], s.x.shape[1]))[0]


MOTIONS = {
    "translation": lambda s: s.x + 3 * s.normal(s.x.shape[1]),
    "rotation": lambda s: s.x @ _rotation(s),
    "reflection": lambda s: s.x * torch.where(torch.arange(s.x.shape[1]) == 0, -1.0, 1.0),
    "scale 1e-3": lambda s: 1e-3 * s.x,
    "scale 1e100": lambda s: 1e100 * s.x,
    "scale 1e-100": lambda s: 1e-100 * s.x,
    "more dimensions": lambda s: torch.cat([s.x, torch.zeros(s.n, 3, dtype=F64)], 1),
}


@pytest.mark.parametrize("motion", MOTIONS)
@fewer
@given(samples)
def test_self_tuned_weights_do_not_feel(motion: str, s: Sample) -> None:
    k = min(5, s.n - 1)
    close(gll.knn_graph(MOTIONS[motion](s), k).to_dense(), gll.knn_graph(s.x, k).to_dense(), atol=1e-8)


@few
@given(samples)
def test_weights_are_as_defined(s: Sample) -> None:
    k = min(5, s.n - 1)
    distance = torch.cdist(s.x, s.x, compute_mode="donot_use_mm_for_euclid_dist")
    distance.fill_diagonal_(torch.inf)
    near = distance.argsort(1)[:, :k]
    epsilon = distance.gather(1, near)[:, -1]
    chosen = torch.zeros(s.n, s.n, dtype=F64).scatter(1, near, 1.0)
    weight = torch.exp(-4 * distance.square() / (epsilon[:, None] * epsilon))
    for how, factor in (
        (gll.Symmetrize.UNION, torch.maximum(chosen, chosen.T)),
        (gll.Symmetrize.MUTUAL, chosen * chosen.T),
        (gll.Symmetrize.MEAN, (chosen + chosen.T) / 2),
    ):
        close(gll.knn_graph(s.x, k, symmetrize=how).to_dense(), factor * weight)


@fewer
@given(samples)
def test_cosine_does_not_feel_the_length_of_rows(s: Sample) -> None:
    x = torch.cat([s.x, s.normal(s.n, 2)], 1)  # more than one dimension: in one, directions tie
    lengths = torch.from_numpy(10.0 ** s.rng.uniform(-100, 100, (s.n, 1)))
    k, cosine = min(5, s.n - 1), gll.Metric.COSINE
    one = gll.knn_graph(x, k, metric=cosine)
    close(gll.knn_graph(lengths * x, k, metric=cosine).to_dense(), one.to_dense(), atol=1e-8)
    close(gll.knn_graph(torch.nn.functional.normalize(x), k).to_dense(), one.to_dense(), atol=1e-8)


# Solutions ----------------------------------------------------------------------------------------------------------

EQUATIONS = {
    "laplace": gll.Laplace(),
    "laplace tau": gll.Laplace(tau=0.1),
    "soft": gll.SoftLaplace(lam=2.0),
    "soft tau": gll.SoftLaplace(lam=0.3, tau=0.01),
    "p = 1.5": gll.PLaplace(p=1.5),
    "p = 3": gll.PLaplace(p=3.0),
    "p = 4, tau": gll.PLaplace(p=4.0, tau=0.1),
    "poisson": gll.Poisson(),
    "cubic": gll.Elliptic(lambda q, x, y: q + q**3),
}
linear_equations = ["laplace", "laplace tau", "soft", "soft tau", "poisson"]
probabilities = ["laplace", "soft"]
bounded = [name for name in EQUATIONS if name != "poisson"]


@pytest.mark.parametrize("name", bounded)
@fewer
@given(samples)
def test_maximum_principle(name: str, s: Sample) -> None:
    """Between the smallest and the largest label; between 0 and the largest where u decays."""
    labels = gll.Labels(s.labels.index, s.normal(*s.labels.value.shape))
    u = s.solve(EQUATIONS[name], labels)
    low, high = labels.value.amin(0), labels.value.amax(0)
    if "tau" in name:
        low, high = low.clamp(max=0), high.clamp(min=0)
    assert bool((u >= low - 1e-9).all())
    assert bool((u <= high + 1e-9).all())


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize("name", probabilities)
@fewer
@given(samples)
def test_rows_sum_to_one_without_decay(name: str, solver: gll.solvers.AbstractLinearSolver, s: Sample) -> None:
    u = s.solve(EQUATIONS[name], solver=solver)
    close(u.sum(1), torch.ones(s.n, dtype=F64))
    assert bool((u >= -1e-12).all())


@fewer
@given(samples)
def test_rows_sum_to_less_than_one_with_decay(s: Sample) -> None:
    total = s.solve(gll.Laplace(tau=0.1)).sum(1)
    free = torch.ones(s.n, dtype=torch.bool)
    free[s.labels.index] = False
    assert bool((total[free] < 1).all())
    assert bool((total > 0).all())


@pytest.mark.parametrize("name", EQUATIONS)
@fewer
@given(samples)
def test_the_order_of_the_nodes_does_not_matter(name: str, s: Sample) -> None:
    order = torch.from_numpy(s.rng.permutation(s.n))  # new node i is old node order[i]
    place = torch.empty_like(order)
    place[order] = torch.arange(s.n)
    graph = gll.Graph.from_sparse(s.graph.to_dense()[order][:, order])
    labels = gll.Labels(place[s.labels.index], s.labels.value)
    u = gll.solve(EQUATIONS[name], graph, labels).value
    close(u, s.solve(EQUATIONS[name])[order], atol=1e-8)


@fewer
@given(samples)
def test_the_order_of_the_points_does_not_matter(s: Sample) -> None:
    order = torch.from_numpy(s.rng.permutation(s.n))
    k = min(5, s.n - 1)
    close(gll.knn_graph(s.x[order], k).to_dense(), gll.knn_graph(s.x, k).to_dense()[order][:, order])


@pytest.mark.parametrize("name", EQUATIONS)
@fewer
@given(samples)
def test_the_order_of_the_classes_does_not_matter(name: str, s: Sample) -> None:
    order = torch.from_numpy(s.rng.permutation(s.labels.num_classes))
    u = s.solve(EQUATIONS[name], gll.Labels(s.labels.index, s.labels.value[:, order]))
    close(u, s.solve(EQUATIONS[name])[:, order], atol=1e-8)


@pytest.mark.parametrize("name", linear_equations)
@fewer
@given(samples)
def test_linear_in_the_labels(name: str, s: Sample) -> None:
    a, b = (gll.Labels(s.labels.index, s.normal(*s.labels.value.shape)) for _ in range(2))
    mixed = gll.Labels(a.index, 2 * a.value - 0.5 * b.value)
    u = [s.solve(EQUATIONS[name], labels) for labels in (a, b, mixed)]
    close(2 * u[0] - 0.5 * u[1], u[2])


@fewer
@given(samples)
def test_linear_in_the_source(s: Sample) -> None:
    f = [s.normal(s.n, s.labels.num_classes) for _ in range(2)]
    zero = gll.Labels(s.labels.index, torch.zeros_like(s.labels.value))
    u = [s.solve(gll.Laplace(tau=0.1, source=source), zero) for source in (*f, 3 * f[0] + f[1])]
    close(3 * u[0] + u[1], u[2])


@pytest.mark.parametrize("name", ["laplace", "p = 1.5", "p = 3", "cubic"])
@fewer
@given(samples, st.sampled_from([1e-200, 1e-20, 1e-3, 7.0, 1e20, 1e200]))
def test_without_decay_the_scale_of_the_weights_does_not_matter(name: str, s: Sample, factor: float) -> None:
    scaled = s.graph.with_weight(factor * s.graph.weight)
    close(gll.solve(EQUATIONS[name], scaled, s.labels).value, s.solve(EQUATIONS[name]), atol=1e-8)


@pytest.mark.parametrize("name", ["laplace", "p = 3", "soft"])
@fewer
@given(samples)
def test_constant_labels_give_the_constant(name: str, s: Sample) -> None:
    labels = gll.Labels(s.labels.index, torch.full_like(s.labels.value, 0.7))
    close(s.solve(EQUATIONS[name], labels), torch.full((s.n, s.labels.num_classes), 0.7, dtype=F64))


@fewer
@given(samples)
def test_laplace_minimises_the_dirichlet_energy(s: Sample) -> None:
    u = s.solve(gll.Laplace())
    bump = s.normal(*u.shape)
    bump[s.labels.index] = 0
    assert s.graph.dirichlet_energy(u + 0.1 * bump) >= s.graph.dirichlet_energy(u)
    close((u * s.graph.laplacian(bump)).sum(), torch.zeros((), dtype=F64))


# Limits and special cases -------------------------------------------------------------------------------------------


@fewer
@given(samples, st.sampled_from([0.0, 0.1]))
def test_p_equal_two_is_laplace(s: Sample, tau: float) -> None:
    close(s.solve(gll.PLaplace(p=2.0, tau=tau)), s.solve(gll.Laplace(tau=tau)))


def _distances(s: Sample, equations: list[gll.AbstractEquation], limit: gll.AbstractEquation) -> list[float]:
    goal = s.solve(limit)
    return [float((s.solve(equation) - goal).abs().max()) for equation in equations]


@fewer
@given(samples)
def test_soft_constraints_become_hard(s: Sample) -> None:
    """The distance to Laplace falls like 1/λ."""
    far, near, nearest = _distances(s, [gll.SoftLaplace(lam=lam) for lam in (1e4, 1e6, 1e8)], gll.Laplace())
    assert near <= 0.02 * far + 1e-12
    assert nearest <= 0.02 * near + 1e-12


@fewer
@given(samples)
def test_decay_vanishes(s: Sample) -> None:
    """The distance to τ = 0 falls like τ."""
    far, near, nearest = _distances(s, [gll.Laplace(tau=tau) for tau in (1e-5, 1e-7, 1e-9)], gll.Laplace())
    assert near <= 0.02 * far + 1e-12
    assert nearest <= 0.02 * near + 1e-12


@fewer
@given(samples)
def test_strong_decay_leaves_the_labels_only(s: Sample) -> None:
    u = s.solve(gll.Laplace(tau=1e12))
    alone = torch.zeros_like(u).index_copy(0, s.labels.index, s.labels.value)
    close(u, alone, atol=1e-9)


@fewer
@given(samples)
def test_weak_constraints_give_the_mean_label(s: Sample) -> None:
    """λ → 0: only the mean of the labels is felt."""
    u = s.solve(gll.SoftLaplace(lam=1e-7))
    close(u, s.labels.value.mean(0).expand_as(u), atol=1e-4)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@fewer
@given(samples)
def test_poisson_has_mean_zero_and_balances_its_source(solver: gll.solvers.AbstractLinearSolver, s: Sample) -> None:
    u = s.solve(gll.Poisson(), solver=solver)
    zero = torch.zeros(s.labels.num_classes, dtype=F64)
    close((s.graph.degree[:, None] * u).sum(0), zero)
    source = torch.zeros_like(u).index_copy(0, s.labels.index, s.labels.value - s.labels.value.mean(0))
    close(s.graph.laplacian(u), source)
    close(u.sum(1), torch.zeros(s.n, dtype=F64))


# Precision ----------------------------------------------------------------------------------------------------------


def realistic(n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ten clusters on the sphere, as a half-trained encoder gives them."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 10
    x = torch.randn(10, d, generator=generator)[y] + 1.5 * torch.randn(n, d, generator=generator)
    return torch.nn.functional.normalize(x, dim=1), y


SIZES = [(name, 300, 16) for name in ("laplace", "laplace tau", "soft", "poisson", "p = 3")]
SIZES += [(name, 1000, 64) for name in ("laplace", "laplace tau", "soft", "poisson")]


@pytest.mark.parametrize(("name", "n", "d"), SIZES)
def test_float32_gives_the_answer_of_float64(name: str, n: int, d: int) -> None:
    x, y = realistic(n, d, seed=n)
    index = torch.arange(n // 5)
    answers, gradients = [], []
    for dtype in (torch.float32, F64):
        features = x.to(dtype, copy=True).requires_grad_()
        graph = gll.knn_graph(features, 25 if n > 300 else 10)
        labels = gll.Labels(index, torch.nn.functional.one_hot(y[index]).to(dtype))
        u = gll.solve(EQUATIONS[name], graph, labels).value
        (u.square() * torch.linspace(0, 1, n, dtype=dtype)[:, None]).sum().backward()
        assert u.dtype == features.grad.dtype == dtype
        answers.append(u.detach().double())
        gradients.append(features.grad.double())
    scale = answers[1].abs().max()
    assert float((answers[0] - answers[1]).abs().max() / scale) < 1e-5
    assert float((gradients[0] - gradients[1]).norm() / gradients[1].norm()) < 1e-4
