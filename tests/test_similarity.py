"""From features to weights: the kernel, the bandwidth, symmetrisation, and what happens at the edge of precision."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import gll
from tests import oracles
from tests.problems import F64

LINE = torch.tensor([[0.0], [1.0], [3.0], [7.0]], dtype=F64)  # distances 1, 2, 4, 3, 6, 7: no ties


def weight_of(graph: gll.Graph, a: int, b: int) -> float:
    return float(graph.to_dense()[a, b])


def test_weights_by_hand() -> None:
    """On the line 0, 1, 3, 7 with k = 2: ε = 3, 2, 3, 6, and only the pair (0, 3) is not joined."""
    graph = gll.knn_graph(LINE, 2)
    epsilon = [3.0, 2.0, 3.0, 6.0]
    pairs = [(0, 1, 1.0), (0, 2, 3.0), (1, 2, 2.0), (1, 3, 6.0), (2, 3, 4.0)]
    assert list(zip(graph.topology.i.tolist(), graph.topology.j.tolist(), strict=True)) == [(a, b) for a, b, _ in pairs]
    for a, b, distance in pairs:
        assert weight_of(graph, a, b) == pytest.approx(
            math.exp(-4 * distance**2 / (epsilon[a] * epsilon[b])), rel=1e-14
        )


@pytest.mark.parametrize("name", ["union", "mutual", "mean"])
def test_symmetrisation(name: str) -> None:
    """Only one end has chosen (0, 2) and (1, 3): worth 1, nothing, or a half, beside edges that both have chosen."""
    graph = gll.knn_graph(LINE, 2, symmetrize=gll.Symmetrize[name.upper()])
    expected = oracles.weights(LINE, 2, symmetrize=name)
    torch.testing.assert_close(graph.to_dense(), expected, rtol=1e-14, atol=0)
    one_sided = {"union": 1.0, "mutual": 0.0, "mean": 0.5}[name]
    full = gll.knn_graph(LINE, 2)
    chosen = oracles.chosen(oracles.neighbors(LINE, 2))
    lonely = torch.nonzero(torch.triu(chosen ^ chosen.T)).tolist()
    assert len(lonely) > 0
    for a, b in lonely:
        assert weight_of(graph, a, b) == pytest.approx(one_sided * weight_of(full, a, b), rel=1e-14)
    if name == "mutual":
        assert graph.topology.num_edges == full.topology.num_edges - len(lonely)  # gone, not just zero


def test_constant_bandwidth_and_kernel_scale() -> None:
    graph = gll.knn_graph(LINE, 1, bandwidth=gll.Constant(2.0), kernel=gll.Gaussian(3.0))
    assert weight_of(graph, 0, 1) == pytest.approx(math.exp(-3 / 4), rel=1e-14)
    assert weight_of(graph, 1, 2) == pytest.approx(math.exp(-3 * 4 / 4), rel=1e-14)
    per_node = gll.knn_graph(LINE, 1, bandwidth=gll.Constant(torch.tensor([1.0, 2.0, 4.0, 8.0])))
    assert weight_of(per_node, 1, 2) == pytest.approx(math.exp(-4 * 4 / 8), rel=1e-14)


def test_own_bandwidth_and_kernel() -> None:
    """Any function of the (n, k) distances, nearest first, in the units of the features; any function of z."""
    seen: list[Tensor] = []

    def mean_distance(distance: Tensor) -> Tensor:
        seen.append(distance)
        return distance.mean(1)

    graph = gll.knn_graph(1000 * LINE, 2, bandwidth=mean_distance, kernel=lambda z: 1 / (1 + z))
    torch.testing.assert_close(
        seen[0], 1000 * torch.tensor([[1.0, 3.0], [1.0, 2.0], [2.0, 3.0], [4.0, 6.0]], dtype=F64)
    )
    epsilon = [2.0, 1.5, 2.5, 5.0]
    assert weight_of(graph, 1, 3) == pytest.approx(1 / (1 + 36 / (epsilon[1] * epsilon[3])), rel=1e-14)


def test_own_bandwidth_sees_sorted_distances() -> None:
    """Also where the quick formula for distances cannot tell the neighbours apart (float32, tight clusters)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 1, 8, generator=generator) + 1e-4 * torch.randn(30, 6, 8, generator=generator)
    seen: list[Tensor] = []

    def third(distance: Tensor) -> Tensor:
        seen.append(distance)
        return distance[:, 2]

    gll.knn_graph(x.reshape(180, 8), 6, bandwidth=third)  # the five others of a cluster, and one of another
    assert bool((seen[0].diff(dim=1) >= -1e-5 * seen[0][:, 1:]).all())


@pytest.mark.usefixtures("as_user")
def test_a_bandwidth_of_the_wrong_shape() -> None:
    with pytest.raises(ValueError, match=r"one value per node, shape \(4,\); got \(4, 2\)"):
        gll.knn_graph(LINE, 2, bandwidth=lambda distance: distance)


# Metric ------------------------------------------------------------------------------------------------------------


def test_cosine_is_euclidean_on_the_sphere() -> None:
    x = torch.randn(20, 5, dtype=F64)
    cosine = gll.knn_graph(x, 4, metric=gll.Metric.COSINE)
    torch.testing.assert_close(cosine.to_dense(), gll.knn_graph(oracles.unit(x), 4).to_dense(), rtol=1e-12, atol=1e-15)
    stretched = gll.knn_graph(x * torch.rand(20, 1, dtype=F64).add(0.1), 4, metric=gll.Metric.COSINE)
    torch.testing.assert_close(stretched.to_dense(), cosine.to_dense(), rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_cosine_of_extreme_lengths(size: float) -> None:
    """Lengths whose squares are not float32 numbers."""
    x = torch.randn(12, 3)
    x[::2] *= size
    expected = gll.knn_graph(oracles.unit(x.double()), 3)
    graph = gll.knn_graph(x, 3, metric=gll.Metric.COSINE)
    torch.testing.assert_close(graph.to_dense().double(), expected.to_dense(), rtol=1e-4, atol=1e-6)


def test_cosine_of_a_zero_row_is_finite() -> None:
    x = torch.randn(8, 3, dtype=F64)
    x[2] = 0
    x.requires_grad_()
    graph = gll.knn_graph(x, 3, metric=gll.Metric.COSINE)
    graph.weight.sum().backward()
    assert x.grad is not None
    assert bool(torch.isfinite(graph.weight).all())
    assert bool(torch.isfinite(x.grad).all())


# Edges of precision ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_duplicates_have_weight_one(dtype: torch.dtype) -> None:
    """Copies of a point: ε = 0 is floored before it divides, d²/ε² = 0/0 does not arise, the gradient is finite."""
    x = torch.randn(5, 3, dtype=dtype).repeat_interleave(4, 0).requires_grad_()
    graph = gll.knn_graph(x, 3)
    assert graph.weight.tolist() == [1.0] * graph.topology.num_edges
    assert graph.topology.num_edges == 5 * 6
    (graph.weight * torch.randn_like(graph.weight)).sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().max()) == 0


def test_distances_below_the_rounding_of_the_features_are_noise() -> None:
    """ε is floored at eps |x|: two neighbours one rounding apart are nearly the same point, not exp(-4) apart."""
    x = torch.tensor([[1000.0], [1000.0], [5.0], [6.0]])
    x[1] = torch.nextafter(x[1], torch.tensor(2000.0))
    gap, floor = float(x[1] - x[0]), torch.finfo(torch.float32).eps * 1000
    assert gap < floor
    weight = float(gll.knn_graph(x, 1).weight[0])
    assert weight == pytest.approx(math.exp(-4 * (gap / floor) ** 2), rel=1e-3)


def test_all_points_equal() -> None:
    x = torch.ones(6, 2, dtype=F64, requires_grad=True)
    graph = gll.knn_graph(x, 5)
    graph.weight.sum().backward()
    assert graph.weight.tolist() == [1.0] * 15
    assert x.grad is not None
    assert float(x.grad.abs().max()) == 0


def test_a_pile_of_copies_beside_other_points() -> None:
    """Points of a pile (ε = 0) are joined to each other with weight one and to the outside with weight zero."""
    x = torch.cat([torch.zeros(4, 2), torch.tensor([[1.0, 0.0], [0.0, 2.0]])]).double().requires_grad_()
    graph = gll.knn_graph(x, 3)
    w = graph.to_dense()
    assert torch.equal(w[:4, :4], torch.ones(4, 4, dtype=F64) - torch.eye(4, dtype=F64))
    assert float(w[:4, 4:].detach().abs().max()) == 0
    w.sum().backward()
    assert x.grad is not None
    assert bool(torch.isfinite(x.grad).all())


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("scale", [1e-18, 1e18])
def test_scale_does_not_matter(dtype: torch.dtype, scale: float) -> None:
    """Self-tuned weights are the same for features whose squares leave the range of float32."""
    x = torch.randn(15, 3, dtype=F64)
    plain, scaled = gll.knn_graph(x.to(dtype), 4), gll.knn_graph((scale * x).to(dtype), 4)
    torch.testing.assert_close(scaled.weight, plain.weight, rtol=1e-5 if dtype == torch.float32 else 1e-13, atol=1e-30)


@pytest.mark.parametrize("far", [1e6, 1e12])
def test_one_outlier_does_not_blur_the_rest(far: float) -> None:
    x = torch.randn(15, 3, dtype=F64)
    with_outlier = gll.knn_graph(torch.cat([x, torch.full((1, 3), far, dtype=F64)]), 4)
    torch.testing.assert_close(with_outlier.to_dense()[:15, :15], gll.knn_graph(x, 4).to_dense(), rtol=1e-12, atol=0)


def test_clusters_far_from_the_origin_in_float32() -> None:
    """Distances are true differences: they have the relative accuracy of the features, not of their squares."""
    x = 100 + torch.randn(20, 4)
    expected = oracles.weights(x.double(), 5)
    torch.testing.assert_close(gll.knn_graph(x, 5).to_dense().double(), expected, rtol=1e-4, atol=1e-7)


def test_gradient_of_tight_clusters_in_float32() -> None:
    """L_c x cancels where clusters are tight; the sum is taken in float64."""
    generator = torch.Generator().manual_seed(1)
    x = (torch.randn(6, 1, 3, generator=generator) + 1e-3 * torch.randn(6, 4, 3, generator=generator)).reshape(24, 3)
    c = torch.randn(1000, generator=generator)
    gradients = []
    for dtype in (torch.float32, F64):
        point = x.to(dtype).requires_grad_()
        weight = gll.knn_graph(point, 3).weight
        (gradient,) = torch.autograd.grad((c[: len(weight)].to(dtype) * weight).sum(), point)
        gradients.append(gradient.double())
    torch.testing.assert_close(gradients[0], gradients[1], rtol=0, atol=2e-5 * float(gradients[1].abs().max()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype: torch.dtype) -> None:
    x = torch.randn(10, 3).to(dtype)
    graph = gll.knn_graph(x, 3)
    assert graph.weight.dtype == torch.float32
    torch.testing.assert_close(graph.to_dense(), gll.knn_graph(x.float(), 3).to_dense())


def test_edge_sqdist_in_float32_is_accurate() -> None:
    x = 1000 + torch.rand(50, 7)
    topology = gll.knn_graph(x, 5).topology
    exact = (x.double()[topology.i] - x.double()[topology.j]).square().sum(1)
    torch.testing.assert_close(gll.edge_sqdist(x, topology).double(), exact, rtol=1e-6, atol=0)


# Errors ------------------------------------------------------------------------------------------------------------

BAD_FEATURES = {
    "list": ([[0.0]], TypeError, "features must be a torch.Tensor, got list; use torch.as_tensor first"),
    "one dimension": (torch.ones(4), ValueError, r"must have shape \(points, dimensions\).*got \(4,\)"),
    "empty": (torch.ones(0, 3), ValueError, r"neither of them zero; got \(0, 3\)"),
    "no dimensions": (torch.ones(3, 0), ValueError, r"neither of them zero; got \(3, 0\)"),
    "integers": (torch.ones(4, 2, dtype=torch.int64), TypeError, r"floating point, got torch.int64; use x.float\(\)"),
    "nan": (torch.tensor([[0.0], [torch.nan], [torch.nan]]), ValueError, "NaN or infinite values in 2 rows, .* row 1"),
    "inf": (torch.tensor([[0.0], [1.0], [-torch.inf]]), ValueError, "NaN or infinite values in 1 rows, .* row 2"),
    "inf and -inf": (
        torch.tensor([[torch.inf], [-torch.inf], [1.0]]),
        ValueError,
        "infinite values in 2 rows, .* row 0",
    ),
    "one point": (torch.ones(1, 2), ValueError, "k = 1 neighbours were asked for among 1 points"),
}


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("name", BAD_FEATURES)
def test_bad_features(name: str) -> None:
    x, error, message = BAD_FEATURES[name]
    with pytest.raises(error, match=message):
        gll.knn_graph(x, 1)  # type: ignore[arg-type]


def test_huge_but_finite_features_are_not_called_infinite() -> None:
    """The sum of these overflows; they are finite all the same."""
    graph = gll.knn_graph(torch.tensor([[3e38], [2.9e38], [-3e38], [-2e38]]), 1)
    assert bool(torch.isfinite(graph.weight).all())
