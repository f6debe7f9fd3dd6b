"""Neighbour search: exact means exact, also where the quick formula for distances loses all its digits."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

import gll
from gll.neighbors import AbstractNeighborSearch
from tests import oracles
from tests.problems import F64
from tests.watch_memory import LargestOutput


def brute_force(x: Tensor, k: int) -> Tensor:
    """By differences in the precision of x (what a user would call exact), ties to the smaller index."""
    square = (x[:, None].double() - x[None].double()).square().sum(2)
    square.fill_diagonal_(torch.inf)
    return square.sort(dim=1, stable=True).indices[:, :k]


def distances(x: Tensor, index: Tensor) -> Tensor:
    return (x[:, None].double() - x[index].double()).square().sum(2)


def as_sets(index: Tensor) -> list[set[int]]:
    return [set(row) for row in index.tolist()]


def _clusters(dtype: torch.dtype, offset: float, spread: float) -> Tensor:
    """Forty tight clusters of five, far from the origin: the state of a well trained encoder."""
    generator = torch.Generator().manual_seed(3)
    centres = torch.randn(40, 1, 8, generator=generator, dtype=F64)
    points = offset + centres + spread * torch.randn(40, 5, 8, generator=generator, dtype=F64)
    return points.reshape(200, 8).to(dtype)


CLOUDS = {
    "normal": torch.randn(300, 16, generator=torch.Generator().manual_seed(0)),
    "normal, float64": torch.randn(300, 16, generator=torch.Generator().manual_seed(0), dtype=F64),
    "one dimension": torch.rand(150, 1, generator=torch.Generator().manual_seed(1)),
    "high dimension": torch.randn(120, 700, generator=torch.Generator().manual_seed(2)),
    "tight clusters": _clusters(torch.float32, 0.0, 1e-4),
    "tight clusters far away": _clusters(torch.float32, 100.0, 1e-3),
    "tighter than the product can see": _clusters(torch.float32, 0.0, 1e-6),
    "clusters at rounding": _clusters(torch.float64, 1e6, 1e-7),
    "unit sphere": oracles.unit(torch.randn(300, 32, generator=torch.Generator().manual_seed(4))),
    "large": 1e15 * torch.randn(100, 5, generator=torch.Generator().manual_seed(5)),
    "small": 1e-15 * torch.randn(100, 5, generator=torch.Generator().manual_seed(6)),
}


@pytest.mark.parametrize("k", [1, 2, 7, 25])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_exact_is_exact(cloud: str, k: int, device: torch.device) -> None:
    """The same set of neighbours as brute force, and the same k-th neighbour, which sets the bandwidth."""
    x = CLOUDS[cloud]
    scale = float(x.abs().max())
    found = gll.Exact()(x.to(device) / scale if scale > 1e10 or scale < 1e-10 else x.to(device), k).cpu()
    expected = brute_force(x, k)
    # Differences round differently in float32 and float64: compare the distances rather than the names of the points.
    ours, best = distances(x, found), distances(x, expected)
    torch.testing.assert_close(ours.sort(dim=1).values, best, rtol=1e-5, atol=0)
    torch.testing.assert_close(ours[:, -1], best[:, -1], rtol=1e-5, atol=0)
    assert not bool((found == torch.arange(len(x))[:, None]).any())
    assert all(len(row) == k for row in as_sets(found))
    if x.dtype == F64:
        assert as_sets(found) == as_sets(expected)
        assert torch.equal(found[:, -1], expected[:, -1])


@pytest.mark.parametrize("cloud", CLOUDS)
def test_nearest_first(cloud: str) -> None:
    """In order, up to the rounding of products of the size of the whole cloud."""
    x = CLOUDS[cloud] / CLOUDS[cloud].abs().max()
    ours = distances(x, gll.Exact()(x, 12))
    size = (x - x.mean(0)).square().sum(1).max()
    assert float(ours.diff(dim=1).min()) >= -64 * torch.finfo(x.dtype).eps * x.shape[1] ** 0.5 * float(size)


def test_integers_are_ranked_exactly(device: torch.device) -> None:
    """On a lattice nearly all distances tie; every tie goes to the smaller index. Integers leave no rounding."""
    x = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
    for k in (1, 2, 3, 4, 8, 20, 63):
        found, expected = gll.Exact()(x.to(device), k).cpu(), brute_force(x, k)
        assert as_sets(found) == as_sets(expected)
        assert torch.equal(found[:, -1], expected[:, -1])


@pytest.mark.parametrize("copies", [2, 5, 60])
def test_duplicates_find_each_other(copies: int, device: torch.device) -> None:
    """A point is excluded from its own neighbours by its index, never by its distance."""
    x = torch.randn(7, 3).repeat_interleave(copies, 0)
    k = min(copies - 1, 20)
    found = gll.Exact()(x.to(device), k).cpu()
    assert float(distances(x, found).max()) == 0
    assert as_sets(found) == as_sets(brute_force(x, k))  # the copies with the smallest indices


def test_all_points_equal(device: torch.device) -> None:
    found = gll.Exact()(torch.full((30, 4), 3.7, device=device), 3).cpu()
    assert found.tolist() == [[j for j in range(4) if j != i][:3] for i in range(30)]


def test_every_point_is_a_neighbour_at_k_equal_n_minus_one(device: torch.device) -> None:
    found = gll.Exact()(torch.randn(6, 2).to(device), 5).cpu()
    assert [sorted(row) for row in found.tolist()] == [[j for j in range(6) if j != i] for i in range(6)]


@pytest.mark.parametrize("cloud", ["normal", "tight clusters", "tighter than the product can see"])
def test_chunks_change_nothing(cloud: str) -> None:
    x = CLOUDS[cloud]
    whole = gll.Exact()(x, 6)
    for max_bytes in (1, 10_000, 300_000):
        assert as_sets(gll.Exact(max_bytes=max_bytes)(x, 6)) == as_sets(whole)
        assert torch.equal(gll.Exact(max_bytes=max_bytes)(x, 6)[:, -1], whole[:, -1])


def test_memory_is_bounded_by_the_argument() -> None:
    """No temporary tensor of a search in chunks is larger than the bound; the whole matrix of distances would be."""
    x, bound = torch.randn(3000, 8), 4 * 2**20
    with LargestOutput() as largest:
        gll.Exact(max_bytes=bound)(x, 10)
    assert 2**16 < largest.bytes <= bound < 3000 * 3000 * 4


def test_query_of_other_points(device: torch.device) -> None:
    """Queries may coincide with points: nothing is excluded."""
    x, extra = CLOUDS["normal"], torch.randn(10, 16)
    y = torch.cat([x[:5], extra])
    square = (y[:, None].double() - x[None].double()).square().sum(2)
    found = gll.Exact().query(x.to(device), y.to(device), 3).cpu()
    assert as_sets(found) == as_sets(square.sort(dim=1, stable=True).indices[:, :3])
    assert all(i in row for i, row in enumerate(as_sets(found)[:5]))


@pytest.mark.parametrize("k", [0, -1, 5, 6])
def test_k_out_of_range(k: int) -> None:
    with pytest.raises(
        ValueError, match=rf"k = {k} neighbours were asked for among 5 points; k must be between 1 and 4"
    ):
        gll.knn_graph(torch.randn(5, 2), k)


def test_query_k_out_of_range() -> None:
    with pytest.raises(ValueError, match="k = 6 neighbours were asked for among 5 points"):
        gll.Exact().query(torch.randn(5, 2), torch.randn(3, 2), 6)


def test_search_passes_no_gradient_and_ignores_autocast() -> None:
    """Half precision products would mix up the neighbours; under autocast the search must not use them."""
    x = CLOUDS["tight clusters"].clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = gll.Exact()(x, 4)
    assert not found.requires_grad
    assert as_sets(found) == as_sets(gll.Exact()(x, 4))


# FAISS -------------------------------------------------------------------------------------------------------------

# Recall that each index must reach on a normal sample. The flat one is exact.
RECALL = {"Flat": 1.0, "HNSW32": 0.98, "IVF16,Flat": 0.9}


def recall(found: Tensor, expected: Tensor) -> float:
    hits = [len(a & b) for a, b in zip(as_sets(found), as_sets(expected), strict=True)]
    return sum(hits) / expected.numel()


def faiss_search(factory: str) -> AbstractNeighborSearch:
    pytest.importorskip("faiss")
    return gll.Faiss(factory, nprobe=10)


@pytest.mark.parametrize("factory", RECALL)
@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 1.0), (F64, 1.0), (F64, 1e50), (F64, 1e-50)])
def test_faiss_recall(factory: str, dtype: torch.dtype, scale: float) -> None:
    x = torch.randn(1500, 16, generator=torch.Generator().manual_seed(8), dtype=dtype)
    found = faiss_search(factory)(scale * x, 10)
    assert recall(found, brute_force(x, 10)) >= RECALL[factory]
    assert not bool((found == torch.arange(len(x))[:, None]).any())
    assert bool((distances(x, found).diff(dim=1) >= 0).all())  # nearest first


@pytest.mark.parametrize("factory", RECALL)
def test_faiss_edges_have_exact_distances(factory: str) -> None:
    """Approximate neighbours change which edges exist, never the weight of one that does."""
    x = torch.randn(800, 8, generator=torch.Generator().manual_seed(9), dtype=F64)
    graph = gll.knn_graph(x, 6, search=faiss_search(factory), bandwidth=gll.Constant(0.9))
    t = graph.topology
    square = (x[t.i] - x[t.j]).square().sum(1)
    torch.testing.assert_close(graph.weight, torch.exp(-4 * square / 0.81), rtol=1e-13, atol=0)


def test_faiss_flat_sees_tight_clusters() -> None:
    """FAISS computes in float32 by products; its candidates are ranked again by true differences."""
    x = _clusters(F64, 0.0, 1e-2)
    found = faiss_search("Flat")(x, 4)
    assert as_sets(found) == as_sets(brute_force(x, 4))


def test_faiss_duplicates() -> None:
    x = torch.randn(20, 4).repeat_interleave(8, 0)
    found = faiss_search("Flat")(x, 5)
    assert float(distances(x, found).max()) == 0
    assert not bool((found == torch.arange(len(x))[:, None]).any())
    assert all(len(row) == 5 for row in as_sets(found))


def test_faiss_fills_rows_that_come_back_short() -> None:
    """With one cell visited of many, some cells hold fewer than k points; those rows are searched exactly."""
    pytest.importorskip("faiss")
    x = torch.randn(400, 4, generator=torch.Generator().manual_seed(10))
    found = gll.Faiss("IVF64,Flat", nprobe=1)(x, 12)
    assert bool(((found >= 0) & (found < 400)).all())
    assert all(len(row) == 12 for row in as_sets(found))
    assert not bool((found == torch.arange(400)[:, None]).any())


def test_faiss_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"needs the extra 'faiss': pip install 'gll\[faiss\]'"):
        gll.Faiss()(torch.randn(5, 2), 2)


# A search of one's own ---------------------------------------------------------------------------------------------


class Ring(AbstractNeighborSearch):
    """The next k points in order, whatever their distance."""

    def find(self, x: Tensor, k: int) -> Tensor:
        return (torch.arange(len(x))[:, None] + torch.arange(1, k + 1)) % len(x)


def test_a_search_of_ones_own() -> None:
    x = torch.arange(6, dtype=F64)[:, None]
    graph = gll.knn_graph(x, 1, search=Ring(), bandwidth=gll.Constant(10.0))
    edges = list(zip(graph.topology.i.tolist(), graph.topology.j.tolist(), strict=True))
    assert edges == [(0, 1), (0, 5), (1, 2), (2, 3), (3, 4), (4, 5)]
    expected = [math.exp(-4 * (a - b) ** 2 / 100) for a, b in edges]
    np.testing.assert_allclose(graph.weight, expected, rtol=1e-14)


@pytest.mark.parametrize(("n", "k"), [(12, 7), (40, 25)])
def test_near_ties_of_single_precision_features_are_ranked_exactly(n: int, k: int, device: torch.device) -> None:
    """Distances that differ by less than float32 can add up, between points that float32 tells apart."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(2, 20, generator=generator)
    x = (centers[torch.arange(n) % 2] + 1e-6 * torch.randn(n, 20, generator=generator)).to(device)
    found = gll.Exact()(x, k)  # the own cluster, and some of the other, where all are nearly as far
    distance = torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist")
    distance.fill_diagonal_(torch.inf)
    expected = distance.sort(dim=1, stable=True).indices[:, :k]
    assert torch.equal(found.sort(dim=1).values, expected.sort(dim=1).values)
    assert torch.equal(found[:, -1], expected[:, -1])
