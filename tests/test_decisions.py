"""One test per decision: where the paper is silent or says two things, this is what the library does.

Numbered as in the table of decisions; decisions 11 (what a batch counts) and 16 (WNLL) concern training and are
tested there.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import gll
from tests import oracles
from tests.problems import F64, graph_of, labels_at, one_hot, path, random_graph, star


def features(n: int = 12, d: int = 3) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(1), dtype=F64)


def test_decision_01_kernel() -> None:
    """w = exp(-4 d²/(ε_i ε_j)), not exp(-2 d²/(ε_i ε_j)): points 0, 1, 3 with k = 1 have ε = 1, 1, 2."""
    graph = gll.knn_graph(torch.tensor([[0.0], [1.0], [3.0]], dtype=F64), 1)
    assert graph.weight.tolist() == pytest.approx([math.exp(-4), math.exp(-4 * 4 / 2)], rel=1e-14)
    assert gll.Gaussian().scale == 4.0
    assert float(gll.Gaussian()(torch.tensor([0.5], dtype=F64))) == pytest.approx(math.exp(-2), rel=1e-14)


def test_decision_02_bandwidth_is_exact_and_excludes_the_point_itself() -> None:
    """ε_i is the distance to the k-th *other* point, and the gradient flows through it."""
    x = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=F64, requires_grad=True)
    seen: list[Tensor] = []

    def kth(distance: Tensor) -> Tensor:
        seen.append(distance)
        return distance[:, -1]

    own = gll.knn_graph(x, 2, bandwidth=kth)
    assert seen[0][:, -1].tolist() == pytest.approx([3.0, 2.0, 3.0, 6.0], rel=1e-15)
    torch.testing.assert_close(own.weight, gll.knn_graph(x, 2).weight, rtol=1e-14, atol=0)
    through = torch.autograd.grad(gll.knn_graph(x, 2).weight.sum(), x)[0]
    held = torch.autograd.grad(gll.knn_graph(x, 2, bandwidth=lambda d: d[:, -1].detach()).weight.sum(), x)[0]
    dense = torch.autograd.grad(oracles.weights(x, 2).sum() / 2, x)[0]
    torch.testing.assert_close(through, dense, rtol=1e-12, atol=1e-14)
    assert float((through - held).abs().max()) > 1e-3


def test_decision_02_bandwidth_is_floored_before_use() -> None:
    """Duplicates would give 0/0: they get weight one, and a gradient of zero."""
    x = torch.ones(5, 2, dtype=F64).cumsum(0).repeat(3, 1).requires_grad_()  # three copies of five points
    graph = gll.knn_graph(x, 2)
    assert graph.weight.tolist() == [1.0] * 15
    assert float(torch.autograd.grad(graph.weight.sum(), x)[0].abs().max()) == 0


def test_decision_02_constant_bandwidth() -> None:
    graph = gll.knn_graph(torch.tensor([[0.0], [1.0]], dtype=F64), 1, bandwidth=gll.Constant(2.0))
    assert graph.weight.tolist() == pytest.approx([math.exp(-1)], rel=1e-14)


def test_decision_03_sign_of_the_second_term() -> None:
    """Σ_j c_ij b_j (x_j - x_kj) is -L_M X, and the gradient is L_{H-M} X: see the lemma in test_oracles.py."""
    x = features().requires_grad_()
    graph = gll.knn_graph(x, 3)
    c = torch.randn(graph.topology.num_edges, dtype=F64)
    (ours,) = torch.autograd.grad((c * graph.weight).sum(), x)
    grad_w = torch.zeros(12, 12, dtype=F64).index_put((graph.topology.i, graph.topology.j), c)
    point = x.detach()
    h, m, second = oracles.lemma_matrices(point, oracles.neighbors(point, 3), grad_w, lambda z: -8 * torch.exp(-8 * z))
    torch.testing.assert_close(second, -oracles.laplacian(m) @ point, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours, oracles.laplacian(h - m) @ point, rtol=1e-12, atol=1e-12)
    assert float((ours - oracles.laplacian(h + m) @ point).abs().max()) > 0.1  # the other sign


def test_decision_04_flux_of_the_laplacian_is_q() -> None:
    """φ(q) = q, not q/2: against τu the weights count once. Two nodes: τu + w(u - 1) = 0."""
    u = gll.solve(gll.Laplace(0.5), path(2, [2.0]), labels_at([0], [1.0])).value
    assert float(u[1]) == pytest.approx(2 / 2.5, rel=1e-14)
    q = torch.tensor([[0.3]], dtype=F64)
    assert torch.equal(gll.Laplace().flux(q, torch.zeros(1, 1), torch.ones(1, 1)), q)


def test_decision_05_poisson_and_tau_in_the_equations() -> None:
    """Δu = Σ (g - ḡ)δ, without a factor 2; τ multiplies u itself, not its square root or sign."""
    w, labels = 2.0, one_hot([0, 1], [0, 1])
    u = gll.solve(gll.Poisson(), path(2, [w]), labels).value
    graph = path(2, [w])
    torch.testing.assert_close(graph.laplacian(u), labels.value - labels.value.mean(0))
    assert u[:, 0].tolist() == pytest.approx([0.125, -0.125])
    decayed = gll.solve(gll.Laplace(0.7), path(2, [w]), labels_at([0], [3.0])).value
    torch.testing.assert_close(0.7 * decayed[1] + graph.laplacian(decayed)[1], torch.zeros(1, dtype=F64))


@pytest.mark.parametrize("p", [1.5, 3.0, 4.0, 10.0])
def test_decision_06_p_laplace_by_components_and_regularised(p: float) -> None:
    """One-vs-rest: a column does not feel the others. φ = (q² + δ²)^((p-2)/2) q, smooth where u is flat."""
    graph, index = random_graph(12), torch.tensor([0, 5, 9])
    g = torch.rand(3, 3, dtype=F64)
    other = g.clone()
    other[:, 1:] += 1
    a, b = (gll.solve(gll.PLaplace(p), graph, gll.Labels(index, v)).value for v in (g, other))
    torch.testing.assert_close(a[:, 0], b[:, 0], rtol=1e-9, atol=1e-10)
    q, delta = torch.tensor([[0.0], [0.02], [-0.5]], dtype=F64), 0.01
    flux = gll.PLaplace(p, delta=delta).flux(q, q, q)
    torch.testing.assert_close(flux, (q**2 + delta**2) ** ((p - 2) / 2) * q, rtol=1e-13, atol=0)
    assert "δ" in (gll.PLaplace.__doc__ or "")
    # All labels equal: u is constant, ∇u = 0, and without δ the adjoint equation could not be solved.
    weight = graph.weight.clone().requires_grad_()
    same = gll.Labels(index, torch.ones(3, 1, dtype=F64, requires_grad=True))
    flat = gll.solve(gll.PLaplace(p), graph.with_weight(weight), same).value
    torch.testing.assert_close(flat.detach(), torch.ones(12, 1, dtype=F64))
    in_w, in_g = torch.autograd.grad(flat.sum(), (weight, same.value))
    assert float(in_w.abs().max()) < 1e-9
    assert float(in_g.sum()) == pytest.approx(12.0, rel=1e-6)  # u is a weighted mean of the labels


def test_decision_07_poisson_has_degree_weighted_mean_zero_on_every_component() -> None:
    graph = graph_of(7, [(0, 1), (1, 2), (3, 4), (4, 5), (5, 6)], [1.0, 3.0, 0.5, 2.0, 1.0])
    u = gll.solve(gll.Poisson(), graph, one_hot([0, 2, 3, 6], [0, 1, 0, 1])).value
    for part in (slice(0, 3), slice(3, 7)):
        assert float((graph.degree[part, None] * u[part]).sum(0).abs().max()) < 1e-14
        assert float(u[part].sum(0).abs().max()) > 1e-3  # the plain mean is another one
    with pytest.raises(gll.SolveError, match="balance the labels of each component"):
        gll.solve(gll.Poisson(), graph, one_hot([0, 6], [0, 1]))


def test_decision_07_poisson_cotangents_are_projected() -> None:
    """Σ deg(x) u(x) = 0 for all w; so Σ d(x) u(x), with d = deg held fixed, has the gradient -(u(i) + u(j)) in w_ij."""
    graph = random_graph(9)
    weight = graph.weight.clone().requires_grad_()
    u = gll.solve(gll.Poisson(), graph.with_weight(weight), one_hot([0, 4], [0, 1])).value[:, 0]
    (gradient,) = torch.autograd.grad((graph.degree * u).sum(), weight)
    i, j = graph.topology.i, graph.topology.j
    torch.testing.assert_close(gradient, -(u[i] + u[j]).detach(), rtol=1e-10, atol=1e-12)


def test_decision_08_components_without_labels() -> None:
    """Uniform, counted, warned of, with gradient zero; or an error; never NaN, never a silent zero."""
    graph, labels = graph_of(5, [(0, 1), (2, 3), (3, 4)]), one_hot([0], [1])
    weight = graph.weight.clone().requires_grad_()
    with pytest.warns(gll.UnreachedWarning, match=r"^3 of 5 nodes are not connected to any labelled node"):
        solution = gll.solve(gll.Laplace(), graph.with_weight(weight), labels)
    assert solution.value[2:].tolist() == [[0.5, 0.5]] * 3
    assert solution.unreached == 3
    (gradient,) = torch.autograd.grad(solution.value[2:].sum(), weight)
    assert gradient.tolist() == [0, 0, 0]
    with pytest.raises(gll.SolveError, match="label at least one node per component"):
        gll.solve(gll.Laplace(), graph, labels, unreached="raise")


def test_decision_09_tau_lets_rows_sum_to_less_than_one() -> None:
    """u is returned as solved; the layer gives log(u + floor), which softmax renormalises."""
    u = gll.solve(gll.Laplace(0.5), star([1.0, 1.0]), one_hot([1, 2], [0, 1])).value
    assert u[0].tolist() == pytest.approx([0.4, 0.4])
    layer = gll.GraphLearningLayer(2, k=2, equation=gll.Laplace(0.5), normalize=False)
    x, base = torch.tensor([[0.4]], dtype=F64), torch.tensor([[0.0], [1.0]], dtype=F64)
    logits = layer(x, base, torch.tensor([0, 1]))
    assert layer.last_solution is not None
    value = layer.last_solution.value[2]
    assert float(value.sum()) < 0.9
    torch.testing.assert_close(logits[0], torch.log(value + 1e-8), rtol=1e-13, atol=0)
    torch.testing.assert_close(torch.softmax(logits, 1)[0], (value + 1e-8) / (value + 1e-8).sum(), rtol=1e-12, atol=0)


def test_decision_10_floor() -> None:
    """log(u + 1e-8), or a smaller floor in float64."""
    x, base = torch.tensor([[0.0], [1.0]], dtype=F64), torch.tensor([[-1.0], [1e3], [1001.0]], dtype=F64)
    lows = []
    for options in ({}, {"floor": 1e-30}):
        layer = gll.GraphLearningLayer(2, k=1, normalize=False, unreached="raise", **options)  # type: ignore[arg-type]
        lows.append(float(layer(x, base, torch.tensor([0, 1, 1])).min()))
    assert lows == pytest.approx([math.log(1e-8), math.log(1e-30)], rel=1e-12)


def test_decision_12_neighbours_are_held_fixed() -> None:
    """At a tie for the k-th place the smaller index is k_i, and the derivative is that with this index held fixed."""
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [6.0, 5.0]], dtype=F64, requires_grad=True)
    index = gll.Exact()(x, 1)
    assert index[0].tolist() == [1]  # nodes 1 and 2 tie
    (ours,) = torch.autograd.grad(gll.knn_graph(x, 1).weight.sum(), x)
    square = oracles.sqdist(x)
    eps = square[torch.arange(5), index[:, 0]].sqrt()
    w = oracles.adjacency(index) * torch.exp(-4 * square / (eps[:, None] * eps))
    (held,) = torch.autograd.grad(w.sum() / 2, x)
    torch.testing.assert_close(ours, held, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, F64])
def test_decision_13_precision(dtype: torch.dtype) -> None:
    """Any float type goes in; halves are widened to float32; the solver works in float64 and says so."""
    x = features().to(dtype).requires_grad_()
    graph = gll.knn_graph(x, 3)
    assert graph.weight.dtype == (F64 if dtype == F64 else torch.float32)
    solution = gll.solve(gll.Laplace(), graph, gll.Labels(torch.tensor([0, 5]), torch.eye(2)))
    assert solution.dtype == F64
    assert solution.value.dtype == graph.weight.dtype
    (gradient,) = torch.autograd.grad(solution.value.square().sum(), x)
    assert gradient.dtype == dtype
    exact = gll.solve(gll.Laplace(), gll.knn_graph(x.detach().double(), 3), one_hot([0, 5], [0, 1])).value
    torch.testing.assert_close(solution.value.detach().double(), exact, rtol=0, atol=1e-5)


def test_decision_13_autocast() -> None:
    """Under autocast the layer computes in float32: what comes out equals the layer without autocast."""
    layer = gll.GraphLearningLayer(2, k=3)
    x, base, y = torch.randn(6, 4).bfloat16(), torch.randn(5, 4), torch.tensor([0, 1, 0, 1, 0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = layer(x, base, y)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, layer(x.float(), base, y))


def test_decision_14_order_of_nodes() -> None:
    """Permuting the nodes permutes the prediction, and the gradient with it."""
    x, order = features(20), torch.randperm(20)
    back = torch.argsort(order)
    results = []
    for point, index in ((x, torch.tensor([3, 11])), (x[order], back[torch.tensor([3, 11])])):
        point = point.clone().requires_grad_()
        u = gll.solve(gll.Laplace(), gll.knn_graph(point, 4), gll.Labels(index, torch.eye(2, dtype=F64))).value
        results.append((u.detach(), torch.autograd.grad(u[:, 0].square().sum(), point)[0]))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a[order], b, rtol=1e-10, atol=1e-12)


def test_decision_15_second_derivatives() -> None:
    """create_graph=True works through the whole pipeline, and the Hessian is symmetric; see also test_gradients.py."""
    labels = one_hot([0, 4], [0, 1])

    def loss(flat: Tensor) -> Tensor:
        graph = gll.knn_graph(flat.view(8, 2), 3)
        return gll.solve(gll.Laplace(0.1), graph, labels).value.square().sum()

    x = torch.randn(16, generator=torch.Generator().manual_seed(4), dtype=F64)
    hessian = torch.autograd.functional.hessian(loss, x)
    assert float(hessian.abs().max()) > 0.1
    torch.testing.assert_close(hessian, hessian.T, rtol=1e-9, atol=1e-10)
    # Moving or rotating all points changes nothing, so the Hessian vanishes on translations.
    shift = torch.tensor([1.0, 0.0], dtype=F64).repeat(8)
    assert float((hessian @ shift).abs().max()) < 1e-9
