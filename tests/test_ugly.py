"""Data as they come: duplicates, ties, far outliers, absurd scales, weak links, cut-off nodes.

Everywhere the same demand: a finite answer and a finite gradient, or an error that says what is wrong; never a NaN, and
every node that got a fallback value is counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

import gll

F32, F64 = torch.float32, torch.float64
K = 5


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def clusters(spread: float = 1.0, apart: float = 4.0, n: int = 60, d: int = 3) -> Tensor:
    return apart * normal(3, d, seed=1)[torch.arange(n) % 3] + spread * normal(n, d)


def with_outlier(size: float) -> Tensor:
    x = clusters(spread=0.1, apart=1.0, n=200, d=2)
    x[7] = size
    return x


def repeated(copies: int) -> Tensor:
    return clusters(n=30).repeat_interleave(copies, 0)[: max(30, 2 * copies)]


UGLY: dict[str, Callable[[], Tensor]] = {
    **{
        f"{c} copies": lambda c=c: clusters(n=30).repeat_interleave(c, 0)[: max(30, 2 * c)]
        for c in (1, 2, 5, 6, 7, 60, 200)
    },
    "one point often, others once": lambda: torch.cat([clusters()[:1].repeat(40, 1), clusters()]),
    "all points equal": lambda: torch.full((40, 3), 0.1, dtype=F64),
    "all points zero": lambda: torch.zeros(40, 3, dtype=F64),
    "collinear, evenly spaced": lambda: torch.arange(40, dtype=F64)[:, None] * torch.tensor([1.0, 2.0, -1.0]),
    "collinear, random": lambda: normal(40, 1) * torch.ones(1, 8, dtype=F64),
    "a grid, all distances tie": lambda: torch.cartesian_prod(*[torch.arange(7, dtype=F64)] * 2),
    "isolated clusters": lambda: clusters(spread=1e-3, apart=1e3),
    "one dimension": lambda: normal(40, 1),
    "constant columns": lambda: torch.cat([clusters(), torch.full((60, 4), 1e3, dtype=F64)], 1),
    "clusters of width 1e-2 at distance 1e3": lambda: clusters(spread=1e-2, apart=0.1) + 1e3,
    "clusters of width 1e-6": lambda: clusters(spread=1e-6),
    "an outlier at 1e3": lambda: with_outlier(1e3),
    "an outlier at 1e6": lambda: with_outlier(1e6),
    "an outlier at 1e12": lambda: with_outlier(1e12),
    "a zero row": lambda: clusters() * (torch.arange(60) != 3)[:, None],
    "rows of length 1e-18 to 1e18": lambda: clusters() * 10.0 ** torch.linspace(-18, 18, 60, dtype=F64)[:, None],
    "scaled by 1e-20": lambda: 1e-20 * clusters(),
    "scaled by 1e20": lambda: 1e20 * clusters(),
    "scaled by 1e-30": lambda: 1e-30 * clusters(),
    "scaled to the largest numbers of float32": lambda: 1e37 * clusters(),
    "heavy tails": lambda: torch.tan(1.5 * torch.tanh(normal(80, 2))) ** 3,
}
EQUATIONS = {
    "laplace": gll.Laplace(),
    "tau": gll.Laplace(tau=0.01),
    "soft": gll.SoftLaplace(lam=1.0),
    "poisson": gll.Poisson(),
    "p = 3": gll.PLaplace(p=3.0),
}


def two_labels(n: int, dtype: torch.dtype) -> gll.Labels:
    return gll.Labels(torch.tensor([0, n // 2 + 1]), torch.eye(2, dtype=dtype))


def solve_safely(equation: gll.AbstractEquation, graph: gll.Graph, labels: gll.Labels, **options: Any) -> gll.Solution:
    """Solve, check that a fallback is announced exactly when there is one, and that all is finite."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = gll.solve(equation, graph, labels, **options)
    told = [w for w in caught if issubclass(w.category, gll.UnreachedWarning)]
    assert len(caught) == len(told) == (solution.unreached > 0)
    counted = 0 if solution.unreached_nodes is None else int(solution.unreached_nodes.sum())
    assert solution.unreached == counted
    assert bool(torch.isfinite(solution.value).all())
    return solution


def cut_off(graph: gll.Graph, labels: gll.Labels) -> Tensor:
    """Nodes that no path of positive weights joins to a label."""
    component = torch.from_numpy(connected_components(graph.to_scipy() > 0, directed=False)[1])
    return ~torch.isin(component, component[labels.index])


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("name", UGLY)
def test_finite_with_a_finite_gradient(name: str, equation: str, dtype: torch.dtype) -> None:
    x = UGLY[name]().to(dtype).requires_grad_()
    graph, labels = gll.knn_graph(x, K), two_labels(len(x), dtype)
    assert bool(torch.isfinite(graph.weight).all())
    assert bool(((graph.weight >= 0) & (graph.weight <= 1)).all())
    excuse = None
    try:
        solution = solve_safely(EQUATIONS[equation], graph, labels)
    except gll.SolveError as error:
        excuse = error.result
    if excuse is not None:
        if "1e-18" in name:  # links of 1e-291, over which nothing balances
            assert excuse in (gll.RESULT.INCOMPATIBLE_SOURCE, gll.RESULT.ILL_CONDITIONED, gll.RESULT.MAX_STEPS)
            assert equation in ("poisson", "p = 3")
        else:  # labels that do not balance on a component
            assert (excuse, equation) == (gll.RESULT.INCOMPATIBLE_SOURCE, "poisson")
            assert graph.components[labels.index[0]] != graph.components[labels.index[1]]
        return
    missing = cut_off(graph, labels) & (equation != "tau")
    if bool(missing.any()):
        assert solution.unreached_nodes is not None
        assert bool(solution.unreached_nodes[missing].all())
    if equation in ("laplace", "soft"):
        torch.testing.assert_close(solution.value.sum(1), torch.ones(len(x), dtype=dtype))
    (solution.value * normal(len(x), 2, seed=3).to(dtype)).sum().backward()
    assert bool(torch.isfinite(x.grad).all())


@pytest.mark.parametrize(
    ("dtype", "normalize", "inductive"),
    [
        (torch.float16, True, False),
        (torch.bfloat16, False, True),
        (F32, True, True),
        (F32, False, False),
        (F64, True, False),
        (F64, False, True),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", UGLY)
def test_the_layer_is_finite_with_a_finite_gradient(
    name: str, dtype: torch.dtype, normalize: bool, inductive: bool
) -> None:
    x = UGLY[name]()
    if dtype is torch.float16:
        x = x.clamp(-6e4, 6e4)
    x = x.to(dtype).requires_grad_()
    base = len(x) // 3
    layer = gll.GraphLearningLayer(3, k=K, normalize=normalize, inductive=inductive)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gll.UnreachedWarning)
        out = layer(x[base:], x[:base], torch.arange(base) % 3)
    assert out.dtype == (F64 if dtype is F64 else F32)
    assert bool(torch.isfinite(out).all())
    total = out.exp().sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=2e-6)
    torch.nn.functional.cross_entropy(out, torch.arange(len(out)) % 3).backward()
    # Half precision has its own limits: a gradient of 1/1e-20 does not fit, but it must not become a NaN.
    assert not bool(torch.isnan(x.grad).any())
    if dtype in (F32, F64):
        assert bool(torch.isfinite(x.grad).all())


# Duplicates and ties ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [2, 3, 6, 7, 30, 200])
def test_duplicates_are_joined_with_weight_one(copies: int) -> None:
    x = clusters(n=12).repeat_interleave(copies, 0)
    graph = gll.knn_graph(x, K)
    point = torch.arange(len(x)) // copies
    same = point[graph.topology.i] == point[graph.topology.j]
    assert bool(same.any())
    assert bool((graph.weight[same] == 1).all())
    if copies > K:  # all neighbours of a point are its copies
        assert bool(same.all())


@pytest.mark.parametrize("copies", [7, 30, 200])
def test_more_copies_than_neighbours_take_the_label_of_their_own(copies: int) -> None:
    x = clusters(n=3).repeat_interleave(copies, 0)
    labels = gll.Labels(torch.tensor([0, copies, 2 * copies]), torch.eye(3, dtype=F64))
    graph = gll.knn_graph(x, K)
    solution = solve_safely(gll.Laplace(), graph, labels)
    joined = ~cut_off(graph, labels)
    assert joined.sum() > 3 * K
    expected = torch.eye(3, dtype=F64).repeat_interleave(copies, 0)
    torch.testing.assert_close(solution.value[joined], expected[joined])
    torch.testing.assert_close(solution.value[~joined], torch.full_like(expected[~joined], 1 / 3))


def test_ties_are_broken_the_same_way_every_time() -> None:
    grid = torch.cartesian_prod(*[torch.arange(12, dtype=F32)] * 2)
    first = gll.knn_graph(grid, 3)
    for _ in range(3):
        again = gll.knn_graph(grid.clone(), 3)
        assert torch.equal(first.topology.i, again.topology.i)
        assert torch.equal(first.topology.j, again.topology.j)
        assert torch.equal(first.weight, again.weight)


# Scales and precision -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("factor", [1e-30, 1e-20, 1e-5, 1e5, 1e20, 1e30])
def test_answer_and_gradient_follow_the_scale(factor: float, dtype: torch.dtype) -> None:
    """u(s x) = u(x), so the gradient is 1/s times as large: also where squares of features leave the range."""
    results = []
    for s in (1.0, factor):
        x = (s * clusters(spread=3.0)).to(dtype).requires_grad_()
        graph = gll.knn_graph(x, K)
        value = solve_safely(gll.Laplace(), graph, two_labels(len(x), dtype)).value
        value[:, 0].square().sum().backward()
        results.append((graph.weight.detach(), value.detach(), s * x.grad.double()))
    rtol = 1e-4 if dtype is F32 else 1e-9
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=rtol * float(one.abs().max()))


@pytest.mark.parametrize(
    "name",
    [
        "clusters of width 1e-2 at distance 1e3",
        "constant columns",
        "isolated clusters",
        "one point often, others once",
        "an outlier at 1e3",
        "an outlier at 1e6",
        "heavy tails",
        "a grid, all distances tie",
        "collinear, evenly spaced",
    ],
)
def test_float32_weights_are_those_of_the_same_numbers_in_float64(name: str) -> None:
    x = UGLY[name]().float()
    single, double = gll.knn_graph(x, K), gll.knn_graph(x.double(), K)
    torch.testing.assert_close(single.to_dense().double(), double.to_dense(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_widened_not_rounded_again(dtype: torch.dtype) -> None:
    low = clusters(spread=3.0).to(dtype).requires_grad_()
    wide = low.detach().float().requires_grad_()
    values = [gll.solve(gll.Laplace(), gll.knn_graph(x, K), two_labels(60, F32)).value for x in (low, wide)]
    assert torch.equal(*values)
    for value in values:
        value[:, 0].sum().backward()
    assert low.grad.dtype == dtype
    torch.testing.assert_close(low.grad, wide.grad.to(dtype))


# Small --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (5, 5), (5, 25), (5, 0), (5, -1)])
def test_too_few_points_for_k_is_an_error(n: int, k: int) -> None:
    with pytest.raises(ValueError, match=rf"k = {k} neighbours were asked for among {n} points"):
        gll.knn_graph(normal(n, 2), k)


@pytest.mark.parametrize("total", [2, 3, 6, 26])
def test_the_layer_takes_fewer_neighbours_where_there_are_fewer_points(total: int) -> None:
    x, y = normal(total, 4), torch.zeros(1, dtype=torch.int64)
    small, exact = (gll.GraphLearningLayer(1, k=k)(x[1:], x[:1], y) for k in (25, min(25, total - 1)))
    assert torch.equal(small, exact)


def test_one_node() -> None:
    alone = gll.Graph.from_sparse(torch.zeros(1, 1, dtype=F64))
    label = gll.Labels(torch.tensor([0]), torch.tensor([[0.2, 0.8]], dtype=F64))
    for equation in (gll.Laplace(), gll.SoftLaplace(lam=3.0), gll.PLaplace(p=3.0)):
        assert gll.solve(equation, alone, label).value.tolist() == [[0.2, 0.8]]
    assert gll.solve(gll.Poisson(), alone, label).value.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("inductive", [False, True])
def test_one_base_point_and_one_query(inductive: bool) -> None:
    layer = gll.GraphLearningLayer(1, inductive=inductive)
    x = normal(1, 4).requires_grad_()
    out = layer(x, normal(1, 4, seed=2), torch.tensor([0]))
    torch.testing.assert_close(out, torch.full((1, 1), 1e-8, dtype=F64))
    out.sum().backward()
    assert x.grad.abs().max() < 1e-12, "one class: nothing to gain"


def test_one_class_is_certain_everywhere() -> None:
    x = clusters(spread=3.0)
    labels = gll.Labels(torch.tensor([0, 1, 2]), torch.ones(3, 1, dtype=F64))
    torch.testing.assert_close(
        gll.solve(gll.Laplace(), gll.knn_graph(x, K), labels).value, torch.ones(60, 1, dtype=F64)
    )


def test_a_thousand_classes() -> None:
    centre = normal(1000, 8)
    x = (centre[torch.arange(2000) % 1000] + 1e-3 * normal(2000, 8, seed=5)).float().requires_grad_()
    labels = gll.Labels(torch.arange(1000), torch.eye(1000))
    solution = solve_safely(gll.Laplace(), gll.knn_graph(x, 10), labels)
    torch.testing.assert_close(solution.value.sum(1), torch.ones(2000))
    assert torch.equal(solution.classes[1000:], torch.arange(1000))
    solution.value[1000:].diagonal().sum().backward()
    assert bool(torch.isfinite(x.grad).all())


# Weak links and cut-off nodes ---------------------------------------------------------------------------------------


def hanging(link: float, dtype: torch.dtype) -> tuple[gll.Graph, gll.Labels]:
    """Three cliques of five; the middle one hangs on the others by `link` and 3 `link`. Truth: (¼, ¾) in the middle."""
    weight = torch.block_diag(*[torch.ones(5, 5, dtype=F64)] * 3)
    weight[4, 5] = weight[5, 4] = link
    weight[9, 10] = weight[10, 9] = 3 * link
    return gll.Graph.from_sparse(weight.to(dtype)), gll.Labels(torch.tensor([0, 14]), torch.eye(2, dtype=dtype))


LINKS = [
    (link, F64) for link in (1e-4, 1e-8, 1e-12, 1e-14, 1e-16, 1e-20, 1e-40, 1e-100, 1e-200, 1e-300, 1e-308, 1e-320)
]
LINKS += [(link, F32) for link in (1e-4, 1e-8, 1e-16, 1e-30, 1e-38, 1e-42)]


@pytest.mark.parametrize("equation", ["laplace", "p = 3"])
@pytest.mark.parametrize(("link", "dtype"), LINKS, ids=str)
def test_a_weakly_attached_cluster_is_right_or_reported(link: float, dtype: torch.dtype, equation: str) -> None:
    graph, labels = hanging(link, dtype)
    weight = graph.weight.requires_grad_()
    solution = solve_safely(EQUATIONS[equation], graph, labels, throw=equation == "laplace")
    if solution.result is not gll.RESULT.SUCCESSFUL:
        assert solution.result in (gll.RESULT.ILL_CONDITIONED, gll.RESULT.MAX_STEPS)
        assert link < 1e-12, "float64 can do this"
        return
    middle = solution.value[5:10]
    # Inside a clique the same flow needs a difference q with φ(q) < link: q = link, or √link but at most link / δ.
    loss = 3 * link + 1e-6 if equation == "laplace" else 3 * min(link**0.5, 1e3 * link) + 1e-6
    if solution.unreached:
        assert solution.unreached_nodes is not None
        assert solution.unreached_nodes.nonzero().flatten().tolist() == [5, 6, 7, 8, 9]
        torch.testing.assert_close(middle, torch.full_like(middle, 0.5))
    else:
        # Flows balance: w₁ φ(u - u₁) = w₂ φ(u₂ - u), so differences are as 1/w, or as 1/√w for φ = q|q|.
        ratio = {"laplace": 3.0, "p = 3": 3.0**0.5}[equation]
        expected = torch.tensor([1 / (1 + ratio), ratio / (1 + ratio)], dtype=dtype)
        torch.testing.assert_close(middle, expected.expand(5, 2), rtol=0, atol=loss)
    torch.testing.assert_close(solution.value[0], labels.value[0])
    torch.testing.assert_close(solution.value[1:5], labels.value[:1].expand(4, 2), rtol=0, atol=loss)
    (solution.value * normal(15, 2).to(dtype)).sum().backward()
    assert bool(torch.isfinite(weight.grad).all())
    if equation == "laplace" and not solution.unreached:
        # ∂u/∂ log w of the first link is u(1-u): -3/16 for the second class, on all five nodes.
        got = (weight.grad * weight.detach())[(graph.topology.i == 4) & (graph.topology.j == 5)]
        force = (normal(15, 2)[5:10] @ torch.tensor([1.0, -1.0], dtype=F64)).sum() * 3 / 16
        torch.testing.assert_close(got.double(), force[None], rtol=1e-4, atol=10 * link + 1e-5)


@pytest.mark.parametrize("link", [1e-3, 1e-6, 1e-8])
def test_links_that_float64_resolves_are_not_given_up(link: float) -> None:
    graph, labels = hanging(link, F64)
    assert gll.solve(gll.Laplace(), graph, labels).unreached == 0


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("link", [1e-3, 1e-6, 1e-9, 1e-13, 1e-15, 1e-17, 1e-20, 1e-30, 1e-37])
@pytest.mark.parametrize("kind", ["source", "soft labels", "poisson"])
def test_what_flows_out_of_a_weakly_attached_cluster_is_not_lost(kind: str, link: float, dtype: torch.dtype) -> None:
    """Path 0 - 1 ~ 2 - 3 with a weak link in the middle: what enters at 3 must pass through 1 and leave at 0."""
    weight = torch.diag(torch.tensor([1.0, link, 1.0], dtype=dtype), 1)
    graph, f = gll.Graph.from_sparse(weight + weight.T), torch.tensor([[0.0], [0.0], [0.0], [1.0]], dtype=dtype)
    link = float(weight[1, 2])
    if kind == "source":
        equation: gll.AbstractEquation = gll.Laplace(source=f)
        labels, exact = gll.Labels(torch.tensor([0]), f[:1]), [0, 1, 1 + 1 / link, 2 + 1 / link]
    elif kind == "poisson":  # degree-weighted mean zero, by symmetry
        equation, labels = gll.Poisson(), gll.Labels(torch.tensor([0, 3]), f[[0, 3]])
        exact = [-0.25 / link - 0.5, -0.25 / link, 0.25 / link, 0.25 / link + 0.5]
    else:  # a pull towards 0 and one towards 1, both as weak as the link: three resistances in series
        equation, labels = gll.SoftLaplace(lam=link), gll.Labels(torch.tensor([0, 3]), f[[0, 3]])
        total = 3 / link + 2
        exact = [1 / link / total, (1 / link + 1) / total, (2 / link + 1) / total, (2 / link + 2) / total]
    solution = gll.solve(equation, graph, labels, throw=False)
    if solution.result is not gll.RESULT.SUCCESSFUL:
        assert solution.result is gll.RESULT.ILL_CONDITIONED
        assert link < 1e-8, "float64 can do this"
        return
    assert solution.unreached == 0
    expected = torch.tensor(exact, dtype=F64)
    torch.testing.assert_close(solution.value[:, 0].double(), expected, rtol=1e-5, atol=0)


def test_an_answer_that_float32_cannot_hold_is_an_error() -> None:
    weight = torch.diag(torch.tensor([1e-39, 1e-39]), 1)
    with pytest.raises(gll.SolveError, match=r"NONFINITE_OUTPUT: in float32"):
        gll.solve(
            gll.Poisson(), gll.Graph.from_sparse(weight + weight.T), gll.Labels(torch.tensor([0, 2]), torch.eye(2))
        )


@pytest.mark.parametrize("link", [1e-38, 1e-40, 1e-44])
def test_a_gradient_that_float32_cannot_hold_is_an_error_not_an_infinity(link: float) -> None:
    """∂u/∂w = -∇u ∇v, and v is of the size 1/w."""
    weight = torch.tensor([link, 2 * link], requires_grad=True)
    topology, _ = gll.Topology.from_pairs(3, torch.tensor([0, 1]), torch.tensor([1, 2]))
    labels = gll.Labels(torch.tensor([0, 2]), torch.eye(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gll.UnreachedWarning)
        value = gll.solve(gll.Laplace(), gll.Graph(topology, weight), labels).value
    try:
        (1e3 * value[1, 0]).backward()
    except gll.SolveError:
        return
    assert bool(torch.isfinite(weight.grad).all())


POLICIES = {"uniform": [0.5, 0.5], "nearest": [0.0, 1.0]}


@pytest.mark.parametrize("policy", POLICIES)
def test_cut_off_nodes_get_what_the_policy_says_and_no_gradient(policy: str) -> None:
    x = torch.cat([clusters(spread=0.1, apart=1.0, n=30), 1e3 + normal(8, 3, seed=9)])
    x[1] += 50  # nearer to the far group than any other label
    x.requires_grad_()
    labels = gll.Labels(torch.tensor([0, 1]), torch.eye(2, dtype=F64))
    solution = solve_safely(gll.Laplace(), gll.knn_graph(x, 4), labels, unreached=policy)
    assert solution.unreached_nodes is not None
    assert bool(solution.unreached_nodes[30:].all())
    assert solution.value[30:].tolist() == [POLICIES[policy]] * 8
    solution.value[30:, 0].sum().backward()
    assert x.grad.abs().max() == 0


def test_cut_off_nodes_raise_if_asked_to() -> None:
    graph = gll.knn_graph(UGLY["isolated clusters"](), K)
    with pytest.raises(
        gll.SolveError, match=r"not connected to any labelled node.*UNREACHED: 20 of 60 nodes"
    ) as caught:
        gll.solve(gll.Laplace(), graph, gll.Labels(torch.tensor([0, 1]), torch.eye(2, dtype=F64)), unreached="raise")
    assert caught.value.result is gll.RESULT.UNREACHED


def test_a_decay_reaches_everybody() -> None:
    """With τ > 0 nothing is undetermined: a cut-off node is solved for, and is zero."""
    graph = gll.knn_graph(UGLY["isolated clusters"](), K)
    labels = gll.Labels(torch.tensor([0, 1]), torch.eye(2, dtype=F64))
    solution = solve_safely(gll.Laplace(tau=0.1), graph, labels)
    assert solution.unreached == 0
    assert solution.value[2::3].abs().max() == 0


@pytest.mark.parametrize("policy", ["uniform", "nearest"])
def test_a_loss_on_a_batch_that_nothing_reaches_still_has_a_backward(policy: str) -> None:
    base, query = normal(6, 3), (100 + normal(8, 3, seed=1)).requires_grad_()
    layer = gll.GraphLearningLayer(2, k=3, normalize=False, unreached=policy)
    with pytest.warns(gll.UnreachedWarning, match=f"8 of 14 nodes .* '{policy}' fallback"):
        out = layer(query, base, torch.arange(6) % 2)
    torch.nn.functional.cross_entropy(out, torch.zeros(8, dtype=torch.int64)).backward()
    assert query.grad.abs().max() == 0
