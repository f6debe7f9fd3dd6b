"""Search at scale: what it finds is exactly ranked, what it misses is counted, and it can be stopped."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import gll
from gll import projected
from gll.cells import ranges, split_large
from gll.neighbors import Exact
from gll.projected import AutoSearch, Projected, RecallWarning, recall
from tests.watch_memory import LargestOutput


def clusters(n: int, d: int, latent: int = 6, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Twenty clusters, each on a plane of its own, with a little noise: structure as features have it."""
    generator = torch.Generator().manual_seed(seed)
    which = torch.randint(0, 20, (n,), generator=generator)
    middle, plane = torch.randn(20, d, generator=generator), torch.randn(20, latent, d, generator=generator)
    inside = torch.randn(n, latent, generator=generator)
    x = middle[which] + torch.einsum("nl,nld->nd", inside, plane[which]) / latent**0.5
    return (x + 0.03 * torch.randn(n, d, generator=generator)).to(dtype)


def brute_force(x: Tensor, y: Tensor, k: int) -> Tensor:
    """The k rows of x nearest to each row of y, from all differences in float64."""
    return torch.cdist(y.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist").topk(k, largest=False)[1]


def overlap(a: Tensor, b: Tensor) -> float:
    """Share of the entries of b that are in the same row of a: counted one by one."""
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return sum(len(set(row) & set(other)) for row, other in pairs) / b.numel()


@pytest.mark.parametrize(("n", "d"), [(4000, 12), (4000, 200), (2500, 3)])
@pytest.mark.parametrize("wanted", [0.95, 0.99])
def test_finds_the_share_it_was_asked_for(n: int, d: int, wanted: float, device: torch.device) -> None:
    x = clusters(n, d)
    found = Projected(recall=wanted)(x.to(device), 10)
    assert found.device.type == device.type
    assert found.dtype == torch.int64
    assert found.shape == (n, 10)
    assert overlap(found.cpu(), brute_force(x, x, 11)[:, 1:]) >= wanted - 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_rows_are_valid_and_ranked_by_true_distances(dtype: torch.dtype, scale: float) -> None:
    x = scale * clusters(3000, 150, dtype=dtype)
    found = Projected()(x, 12)
    assert not bool((found == torch.arange(3000)[:, None]).any())
    assert all(len(set(row)) == 12 for row in found.tolist())
    distance = (x.double()[:, None] - x.double()[found]).norm(dim=2)
    assert float((distance.diff(dim=1) / distance[:, 1:]).min()) > -1e-5
    assert recall(x, found) > 0.97


def test_a_found_neighbour_set_is_the_best_of_its_candidates() -> None:
    """With every cell in reach and every point a candidate the search is exact."""
    x = clusters(400, 9)
    cells = Projected(recall=1.0).prepare(x, 7)
    whole = projected.Cells(**{**vars(cells), "reach": torch.inf, "candidates": 400})
    assert torch.equal(whole.neighbors().sort(dim=1).values, Exact()(x, 7).sort(dim=1).values)


def test_the_search_is_faster_than_comparing_all_pairs() -> None:
    """Counted, not timed: entries of the products that compare points."""
    entries = 0
    product = torch.addmm

    class Counting(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal entries
            out = function(*args, **(kwargs or {}))
            if function is product:
                entries += out.numel()
            return out

    x = clusters(10_000, 8)
    cells = Projected(sample=100).prepare(x, 10)
    with Counting():
        cells.neighbors()
    assert 0 < entries < 0.25 * 10_000**2


def test_same_points_same_neighbours() -> None:
    x = clusters(1500, 100)
    first = Projected()(x, 8)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        again = Projected()(x, 8)
    finally:
        torch.set_num_threads(threads)
    assert overlap(first, again) > 0.9999  # products may round differently on another number of threads
    assert torch.equal(first, Projected()(x, 8))
    assert not torch.equal(first, Projected(seed=1)(x, 8))


@pytest.mark.parametrize("n", [2, 3, 9, 40])
def test_few_points(n: int) -> None:
    x = clusters(n, 5)
    for k in {1, n // 2, n - 1} - {0}:
        assert overlap(Projected()(x, k), Exact()(x, k)) >= 0.9
    with pytest.raises(ValueError, match=f"k = {n} neighbours were asked for among {n} points"):
        Projected()(x, n)
    with pytest.raises(ValueError, match="must be between 1 and"):
        Projected().prepare(x, n)


def test_copies_of_points() -> None:
    """A third of the points are one point: its copies find copies, the others find their neighbours."""
    x = clusters(3000, 30)
    x[::3] = x[0].clone()
    found = Projected()(x, 10)
    assert not bool((found == torch.arange(3000)[:, None]).any())
    assert all(len(set(row)) == 10 for row in found.tolist())
    assert float((x[::3, None] - x[found[::3]]).abs().max()) == 0
    others = torch.arange(3000) % 3 != 0
    true = Exact()(x, 10)
    near, best = ((x[others][:, None] - x[i[others]]).norm(dim=2) for i in (found, true))
    assert float((near <= best[:, -1:] * 1.00001).double().mean()) > 0.97


def test_all_points_equal() -> None:
    found = Projected()(torch.full((3000, 70), 2.5), 4)
    assert not bool((found == torch.arange(3000)[:, None]).any())
    assert all(len(set(row)) == 4 for row in found.tolist())


def test_many_copies_do_not_make_one_huge_cell() -> None:
    cell, center = split_large(torch.tensor([5] * 10_000 + [2, 9]), torch.randn(20, 3).round())
    assert int(torch.bincount(cell).max()) <= 8 * (10_002 // 20)
    assert len(center) == int(cell.max()) + 1
    assert len(set(cell[:10_000].tolist()) & set(cell[10_000:].tolist())) == 0


@pytest.mark.parametrize("d", [20, 200])
def test_tight_clusters_far_from_the_origin(d: int) -> None:
    """The usual state of a well trained encoder: distances inside a cluster are small beside everything else."""
    generator = torch.Generator().manual_seed(0)
    middle = 50 + torch.randn(30, 1, d, generator=generator)
    x = (middle + 1e-3 * torch.randn(30, 100, 5, generator=generator) @ torch.randn(5, d)).reshape(-1, d)
    assert recall(x, Projected()(x, 10)) > 0.97


def test_features_without_structure_are_admitted() -> None:
    """In 300 independent dimensions everything is equally far away: the bound on the work holds, and it is said."""
    x = torch.randn(2500, 300)
    with pytest.warns(RecallWarning, match=r"will be found, not the 99% asked for.*Raise max_visit"):
        found = Projected(max_visit=250)(x, 10)
    assert recall(x, found) < 0.9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert recall(x, Projected(recall=0.95)(x, 10)) > 0.93  # with all the work allowed it takes more dimensions


def test_what_is_expected_is_what_is_found() -> None:
    x = clusters(4000, 100, latent=12)
    for wanted in (0.9, 0.97):
        cells = Projected(recall=wanted, sample=500).prepare(x, 10)
        measured = recall(x, cells.neighbors(), sample=2000)
        assert cells.expected - 0.015 <= measured  # more, thanks to pairs found from the other side


@pytest.mark.parametrize("search", [Projected(), AutoSearch(max_exact=10), AutoSearch()])
def test_query(search: gll.AbstractNeighborSearch, device: torch.device) -> None:
    points = clusters(3500, 90)
    x, y = points[:3000], points[3000:]
    assert overlap(search.query(x.to(device), y.to(device), 6).cpu(), brute_force(x, y, 6)) >= 0.97
    # A point that is among the stored ones finds itself.
    assert torch.equal(search.query(x.to(device), x.to(device), 1).cpu().flatten(), torch.arange(3000))


def test_a_few_queries_are_exact_and_prepared_cells_serve_many() -> None:
    x, y = clusters(4000, 80), clusters(60, 80, seed=0)
    assert torch.equal(Projected().query(x, y, 5), Exact().query(x, y, 5))
    cells = Projected().prepare(x, 5)
    once = cells.query(x[:2000])
    assert torch.equal(once[:30], cells.query(x[:30]))
    assert overlap(once, Exact().query(x, x[:2000], 5)) > 0.97
    with pytest.raises(ValueError, match="k = 4001"):
        Projected().query(x, x, 4001)


def test_stopping_leaves_nothing_half_done() -> None:
    """The callback may raise, as Ctrl-C does: it gets through at once, and the next search is whole."""
    x = clusters(3000, 20)
    stages: list[str] = []

    def stop(stage: str, done: int, total: int) -> None:
        stages.append(stage)
        assert 0 <= done <= total
        if stage == "searching" and done > total // 2:
            raise KeyboardInterrupt

    search = Projected(progress=stop)
    expected = Projected()(x, 6)
    cells = search.prepare(x, 6)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            cells.neighbors()
    assert torch.equal(projected.Cells(**{**vars(cells), "search": Projected()}).neighbors(), expected)
    assert set(stages) == {"measuring", "making cells", "searching"}
    assert stages.count("searching") < 2 * 0.7 * len(cells.center)


def test_the_progress_bar_ends_full(capsys: pytest.CaptureFixture[str]) -> None:
    with projected.progress_bar() as show:
        shown = []

        def both(stage: str, done: int, total: int) -> None:
            shown.append((stage, done, total))
            show(stage, done, total)

        Projected(progress=both)(clusters(2000, 5), 4)
    assert shown[-1] == ("searching", 2000, 2000)
    assert ("measuring", 3, 3) in shown


def test_without_faiss_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = clusters(3000, 100)
    expected = Projected()(x, 8)
    monkeypatch.setattr(projected, "faiss", None)
    assert overlap(Projected()(x, 8), expected) > 0.9999  # sums of squares may round differently
    assert AutoSearch().describe(10**6, 64).startswith("projected")


def test_true_distances_by_both_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    x, y = clusters(500, 33), clusters(40, 33, seed=2)
    row, found = torch.tensor([3, 0, 39]), torch.randint(0, 500, (3, 20))
    exact = (y.double()[row][:, None] - x.double()[found]).square().sum(2)
    fast = projected._sqdist(y, row, found, x, 2**20)
    monkeypatch.setattr(projected, "faiss", None)
    slow = projected._sqdist(y, row, found, x, 2**20)
    for ours in (fast, slow):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=0)


def test_pairs_are_offered_both_ways() -> None:
    """Point 0 is near 2 but was found from 2 only."""
    sqdist = torch.tensor([[9.0, 16.0], [9.0, 49.0], [1.0, 36.0]])
    index = torch.tensor([[1, 3], [0, 2], [0, 1]])
    x_sqdist, x_index = torch.cat([sqdist, torch.tensor([[16.0, 64.0]])]), torch.cat([index, torch.tensor([[0, 1]])])
    assert projected._both_ways(x_sqdist, x_index, 1).flatten().tolist() == [2, 0, 0, 0]
    assert projected._both_ways(x_sqdist, x_index, 2)[0].tolist() == [2, 1]


def test_pairs_of_millions_of_points_need_64_bits() -> None:
    """Pair keys reach n², beyond 32 bits from 46,341 points on."""
    n = 5_000_000
    a, b = torch.tensor([n - 1, n - 2, 3]), torch.tensor([n - 2, n - 1, n - 1])
    topology, edge = gll.Topology.from_pairs(n, a, b)
    assert topology.i.tolist() == [3, n - 2]
    assert topology.j.tolist() == [n - 1, n - 1]
    assert edge.tolist() == [1, 1, 0]
    first, size = torch.tensor([3_000_000_000, 7]), torch.tensor([2, 3])
    assert ranges(first, size).tolist() == [3_000_000_000, 3_000_000_001, 7, 8, 9]


def test_memory_is_bounded_by_the_argument() -> None:
    """No product of one cell is larger than the bound, even where all points fall into few cells."""
    x = clusters(4000, 8)
    with LargestOutput(torch.ops.aten.addmm.default) as largest:
        found = Projected(max_bytes=2**18)(x, 10)
    assert 0 < largest.bytes <= 2**20
    assert overlap(found, Projected()(x, 10)) > 0.999


def test_auto_chooses_by_size_and_device() -> None:
    auto = AutoSearch()
    assert isinstance(auto.choose(20_000, 64), Exact)
    assert isinstance(auto.choose(20_001, 64), Projected)
    assert auto.limit(784) < 10_000 < auto.limit(64, "cuda")
    assert isinstance(auto.choose(70_000, 784, "cuda"), Exact)
    x = clusters(3000, 10)
    assert torch.equal(auto(x, 5), Exact()(x, 5))
    small = AutoSearch(max_exact=100)
    assert torch.equal(small(x, 5), Projected()(x, 5))
    assert small.describe(3000, 10) == "projected: 3,000 points are more than the 100 of an exact search"
    ours, whole = (gll.knn_graph(x, 5, search=search).topology for search in (small, Exact()))
    assert abs(ours.num_edges - whole.num_edges) < 0.02 * whole.num_edges


@pytest.mark.parametrize("make", [lambda x: Exact()(x, 6), lambda x: torch.randint(0, len(x), (len(x), 6))])
def test_recall_counts(make: Callable[[Tensor], Tensor]) -> None:
    x = clusters(700, 10)
    index = make(x)
    assert recall(x, index, sample=700) == pytest.approx(overlap(index, Exact()(x, 6)), abs=1e-3)
    assert recall(1e30 * x, index, sample=700) == pytest.approx(recall(x, index, sample=700))


def test_recall_of_ties_and_of_the_point_itself() -> None:
    lattice = torch.cartesian_prod(torch.arange(12.0), torch.arange(12.0))
    index = Exact()(lattice, 3)
    assert recall(lattice, index) == 1
    other = lattice + 0.0
    mirrored = 143 - Exact()(other.flip(0), 3).flip(0)  # other choices among ties, equally good
    assert recall(lattice, mirrored) == 1
    assert recall(lattice, torch.arange(144)[:, None]) == 0  # a point is not its own neighbour
    copies = torch.zeros(50, 2)
    assert recall(copies, (torch.arange(50)[:, None] + torch.tensor([1, 2])) % 50) == 1


@pytest.mark.parametrize("bad", [{"recall": 0.0}, {"recall": 1.5}, {"dims": 0}, {"sample": 0}, {"max_visit": 0}])
def test_settings_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Projected(**bad)  # type: ignore[arg-type]


def test_half_precision_and_gradients_do_not_matter() -> None:
    x = clusters(3000, 100)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(Projected()(x.clone().requires_grad_(), 6), Projected()(x, 6))
    graph = gll.knn_graph(x.clone().requires_grad_(), 6, search=AutoSearch(max_exact=10))
    assert graph.weight.requires_grad
    assert np.isfinite(graph.weight.detach().numpy()).all()
