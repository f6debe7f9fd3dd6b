"""Equations: exact answers, manufactured solutions, energies, wells, functions of one's own, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

import gll
from gll.solvers import Cholesky, ConjugateGradient
from tests.problems import F64, GALLERY, complete, graph_of, grid, manufactured, one_hot, path, random_graph


def gap(solution: gll.Solution, exact: Tensor) -> float:
    """Largest error, relative to the largest value."""
    return float((solution.value.detach() - exact).abs().max() / exact.abs().max())


@pytest.mark.parametrize("name", GALLERY)
def test_gallery(name: str, device: torch.device) -> None:
    case = GALLERY[name]().to(device)
    solution = case.solve()
    assert solution.result is gll.RESULT.SUCCESSFUL
    assert gap(solution, case.exact) <= 1e-9
    assert solution.unreached == 0


# Manufactured solutions --------------------------------------------------------------------------------------------


def _smooth(n: int, classes: int, seed: int = 0) -> Tensor:
    return torch.randn(n, classes, generator=torch.Generator().manual_seed(seed), dtype=F64)


Make = Callable[[Tensor], gll.AbstractEquation]
NODES = torch.linspace(0.1, 1.0, 40, dtype=F64)
EQUATIONS: dict[str, Make] = {
    "Laplace": lambda f: gll.Laplace(source=f),
    "tau": lambda f: gll.Laplace(tau=0.3, source=f),
    "tau per node": lambda f: gll.Laplace(tau=NODES[: len(f)], source=f),
    **{f"p = {p:g}": lambda f, p=p: gll.PLaplace(p, source=f) for p in (1.5, 3.0, 4.0, 10.0)},  # type: ignore[misc]
    **{f"p = {p:g}, tau": lambda f, p=p: gll.PLaplace(p, 0.2, f) for p in (1.5, 3.0, 10.0)},  # type: ignore[misc]
    "cubic": lambda f: gll.Elliptic(lambda q, x, y: q + q**3, source=f),
    "sinh": lambda f: gll.Elliptic(lambda q, x, y: torch.sinh(q), lambda u, x: u**3, f),
    "saturating": lambda f: gll.Elliptic(lambda q, x, y: q / (1 + q * q).sqrt(), lambda u, x: 0.1 * u, f),
    "by nodes": lambda f: gll.Elliptic(
        lambda q, x, y: (NODES[x] + NODES[y]) * q + q**3, lambda u, x: NODES[x] * torch.sinh(u), f
    ),
}
GRAPHS = {"random": random_graph(16, k=4, seed=1), "grid": grid(4, 5), "complete": complete(8, 0.3)}


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", EQUATIONS)
def test_manufactured(name: str, graph: str) -> None:
    g = GRAPHS[graph]
    case = manufactured(EQUATIONS[name], g, _smooth(g.num_nodes, 2), labelled=[0, 3, 5])
    assert gap(case.solve(), case.exact) <= 1e-8


@pytest.mark.parametrize("name", ["tau", "tau per node", "p = 3, tau", "sinh", "by nodes"])
def test_manufactured_without_labels(name: str) -> None:
    case = manufactured(EQUATIONS[name], GRAPHS["random"], _smooth(16, 2), labelled=None)
    assert gap(case.solve(), case.exact) <= 1e-8


@pytest.mark.parametrize("per_label", [False, True])
def test_manufactured_soft_labels(per_label: bool) -> None:
    """λξ(u - g) = -Δu - τu + f: choose u and f, read off g."""
    graph, u, f = GRAPHS["random"], _smooth(16, 3), _smooth(16, 3, seed=1)
    index = torch.tensor([2, 3, 11])
    lam = torch.tensor([0.5, 2.0, 7.0], dtype=F64) if per_label else torch.tensor(1.5, dtype=F64)
    residual = graph.laplacian(u) + 0.2 * u
    f = residual.index_copy(0, index, f[index])  # off the labels nothing else may balance the equation
    g = u[index] + (residual - f)[index] / (lam[:, None] if per_label else lam)
    solution = gll.solve(gll.SoftLaplace(lam, 0.2, f), graph, gll.Labels(index, g))
    assert gap(solution, u) <= 1e-12


def test_manufactured_poisson() -> None:
    """Any u of degree-weighted mean zero is the solution for the source Δu."""
    graph = GRAPHS["random"]
    u = _smooth(16, 2)
    u = u - (graph.degree[:, None] * u).sum(0) / graph.degree.sum()
    assert gap(gll.solve(gll.Poisson(source=graph.laplacian(u)), graph), u) <= 1e-12


def test_a_source_in_one_column_serves_all_classes() -> None:
    f = _smooth(16, 1)[:, 0]
    labels = one_hot([0, 3], [0, 1])
    a = gll.solve(gll.Laplace(0.1, f), GRAPHS["random"], labels).value
    b = gll.solve(gll.Laplace(0.1, f[:, None].expand(-1, 2)), GRAPHS["random"], labels).value
    assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["tau", "p = 1.5", "p = 4", "sinh"])
def test_columns_are_independent(name: str) -> None:
    """Several classes at once are one-vs-rest problems: each column equals its own solve."""
    graph, f, g = GRAPHS["random"], _smooth(16, 3), torch.rand(3, 3, dtype=F64)
    index = torch.tensor([0, 4, 9])
    together = gll.solve(EQUATIONS[name](f), graph, gll.Labels(index, g)).value
    for c in range(3):
        alone = gll.solve(EQUATIONS[name](f[:, c : c + 1]), graph, gll.Labels(index, g[:, c : c + 1])).value
        torch.testing.assert_close(together[:, c], alone[:, 0], rtol=1e-9, atol=1e-10)


# p-Laplace ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1.5, 3.0, 4.0, 10.0])
def test_p_laplace_minimises_its_energy(p: float) -> None:
    """Σ w (q² + δ²)^(p/2)/p, minimised by SciPy, which knows nothing of graphs."""
    graph, delta = GRAPHS["random"], 0.1
    labels = gll.Labels(torch.tensor([0, 7]), torch.tensor([[0.0], [1.0]], dtype=F64))
    free = [x for x in range(16) if x not in (0, 7)]
    w, i, j = graph.weight, graph.topology.i, graph.topology.j

    def energy(v: np.ndarray) -> tuple[float, np.ndarray]:
        z = torch.tensor(v, requires_grad=True)
        u = torch.zeros(16, dtype=F64).index_put((torch.tensor(7),), torch.tensor(1.0, dtype=F64))
        u = u.index_copy(0, torch.tensor(free), z)
        value = (w * ((u[i] - u[j]) ** 2 + delta**2) ** (p / 2)).sum() / p
        (slope,) = torch.autograd.grad(value, z)
        return float(value.detach()), slope.numpy()

    best = scipy.optimize.minimize(energy, np.full(14, 0.5), jac=True, method="BFGS", options={"gtol": 1e-10})
    ours = gll.solve(gll.PLaplace(p, delta=delta), graph, labels).value[free, 0]
    assert energy(ours.numpy())[0] <= best.fun * (1 + 1e-12)
    if p <= 4:  # the valley of p = 10 is flat to rounding, and SciPy stops in it
        np.testing.assert_allclose(ours, best.x, atol=1e-4)


def test_p_equal_two_is_laplace() -> None:
    labels = one_hot([0, 7], [0, 1])
    laplace = gll.solve(gll.Laplace(0.1), GRAPHS["random"], labels)
    assert gap(gll.solve(gll.PLaplace(2.0, 0.1), GRAPHS["random"], labels), laplace.value) <= 1e-12


def test_large_p_approaches_the_absolutely_minimal_extension() -> None:
    """As p grows, u at the centre of an uneven star tends to the midpoint of its extreme neighbours, whatever w is."""
    graph, labels = graph_of(4, [(0, 1), (0, 2), (0, 3)]), one_hot([1, 2, 3], [0, 0, 1])
    distance = [abs(float(gll.solve(gll.PLaplace(p), graph, labels).value[0, 1]) - 0.5) for p in (2.0, 4.0, 10.0, 30.0)]
    assert distance == sorted(distance, reverse=True)
    assert distance[0] == pytest.approx(1 / 6)
    assert distance[-1] < 0.02


# Ginzburg-Landau ---------------------------------------------------------------------------------------------------


def _energy(graph: gll.Graph, u: Tensor, lam: float) -> float:
    corner = torch.eye(u.shape[1], dtype=F64)
    wells = (u[:, None] - corner).square().sum(2).prod(1) / 2 ** (u.shape[1] - 1)
    wells = (1 - u[:, 0] ** 2) ** 2 if u.shape[1] == 1 else wells
    return float(graph.dirichlet_energy(u) + lam * wells.sum())


@pytest.mark.parametrize("solver", [Cholesky(), ConjugateGradient()], ids=["Cholesky", "CG"])
@pytest.mark.parametrize("weight", [0.0, 1e-9, 1e-3])
def test_wells_of_nearly_separate_nodes(weight: float, solver: object) -> None:
    """Every node falls into the well on whose side it starts; a maximum or a saddle is never an answer."""
    start = torch.tensor([[0.1], [-0.2], [0.3], [0.4], [-0.3]], dtype=F64)
    solution = gll.solve(gll.GinzburgLandau(), path(5, [weight] * 4), initial=start, solver=solver)  # type: ignore[arg-type]
    assert float((solution.value - torch.sign(start)).abs().max()) <= 2 * weight + 1e-9


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_wells_of_many_classes(classes: int) -> None:
    """Separate nodes fall into a one-hot vector each: that of the largest entry of the start."""
    torch.manual_seed(classes)
    start = torch.eye(classes, dtype=F64)[torch.arange(12) % classes] + 0.2 * torch.randn(12, classes, dtype=F64)
    graph = path(12, [0.0] * 11)
    solution = gll.solve(gll.GinzburgLandau(2.0), graph, initial=start)
    torch.testing.assert_close(solution.value, torch.eye(classes, dtype=F64)[start.argmax(1)], rtol=0, atol=1e-9)


def test_wells_have_the_same_curvature_for_any_number_of_classes() -> None:
    for classes in (2, 3, 6):
        corner = torch.eye(classes, dtype=F64)
        slope = gll.GinzburgLandau(3.0).reaction_slope(corner, torch.arange(classes)[:, None])
        assert slope is not None
        torch.testing.assert_close(slope, 3.0 * torch.eye(classes, dtype=F64).expand(classes, -1, -1))


@pytest.mark.parametrize("classes", [1, 3])
def test_ginzburg_landau_is_a_local_minimum(classes: int) -> None:
    """Its energy is below that of the start, and of everything close by."""
    graph, lam = GRAPHS["random"], 4.0
    start = torch.sign(_smooth(16, 1)) if classes == 1 else torch.eye(3, dtype=F64)[torch.arange(16) % 3]
    u = gll.solve(gll.GinzburgLandau(lam), graph, initial=start).value
    least = _energy(graph, u, lam)
    assert least < _energy(graph, start, lam)
    for seed in range(20):
        assert least <= _energy(graph, u + 1e-3 * _smooth(16, classes, seed), lam)


def test_ginzburg_landau_depends_on_its_start() -> None:
    graph = path(6, [1e-2] * 5)
    ones = torch.ones(6, 1, dtype=F64)
    up, down = (gll.solve(gll.GinzburgLandau(), graph, initial=s * ones).value for s in (0.5, -0.5))
    torch.testing.assert_close(up, ones)
    torch.testing.assert_close(down, -ones)


def test_ginzburg_landau_with_labels_and_manufactured_source() -> None:
    graph = GRAPHS["random"]
    u = torch.eye(3, dtype=F64)[torch.arange(16) % 3] + 0.05 * _smooth(16, 3)
    case = manufactured(lambda f: gll.GinzburgLandau(5.0, f), graph, u, labelled=[0, 1, 2])
    assert gap(case.solve(initial=u + 0.02 * _smooth(16, 3, seed=4)), u) <= 1e-9


def test_an_unstable_state_is_not_a_solution() -> None:
    """u = 0 balances the equation exactly, on top of the potential."""
    start = torch.zeros(4, 1, dtype=F64)
    solution = gll.solve(gll.GinzburgLandau(), path(4, [0.1] * 3), initial=start, throw=False)
    moved = float(solution.value.abs().min()) > 0.9
    assert moved or solution.result is not gll.RESULT.SUCCESSFUL


# Functions of one's own --------------------------------------------------------------------------------------------


def test_elliptic_contains_the_others() -> None:
    graph, labels = GRAPHS["random"], one_hot([0, 7], [0, 1])
    pairs = [
        (gll.Elliptic(lambda q, x, y: q), gll.Laplace()),
        (gll.Elliptic(lambda q, x, y: q, lambda u, x: 0.3 * u), gll.Laplace(0.3)),
        (gll.Elliptic(lambda q, x, y: q * (q * q + 1e-4)), gll.PLaplace(4.0, delta=1e-2)),
    ]
    for general, special in pairs:
        expected = gll.solve(special, graph, labels).value
        torch.testing.assert_close(gll.solve(general, graph, labels).value, expected, rtol=0, atol=1e-9)


def test_flux_that_depends_on_the_nodes() -> None:
    """φ = (a(x) + a(y)) q is Laplace's equation with the weights w (a(x) + a(y))."""
    graph, labels = GRAPHS["random"], one_hot([0, 7], [0, 1])
    factor = NODES[graph.topology.i] + NODES[graph.topology.j]
    expected = gll.solve(gll.Laplace(), graph.with_weight(graph.weight * factor), labels).value
    ours = gll.solve(gll.Elliptic(lambda q, x, y: (NODES[x] + NODES[y]) * q), graph, labels).value
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-9)


HIDDEN = torch.tensor(1.0, dtype=F64, requires_grad=True)
BAD_FUNCTIONS: dict[str, tuple[gll.Elliptic, str]] = {
    "not skew": (gll.Elliptic(lambda q, x, y: torch.exp(q)), "flux does not preserve vector fields"),
    "not skew in the nodes": (gll.Elliptic(lambda q, x, y: (1 + x) * q), r"must equal -φ\(-q, y, x\), but at q = -2"),
    "decreasing flux": (gll.Elliptic(lambda q, x, y: -q), r"flux\(-2\) at nodes \[0, 1\] decreases: .*\(elliptic\)"),
    "not monotone": (gll.Elliptic(lambda q, x, y: torch.sin(3 * q)), r"flux\(.*\) at nodes .* decreases"),
    "kink": (gll.Elliptic(lambda q, x, y: q.abs().sqrt() * q.sign()), "derivative that is not finite"),
    "pole": (gll.Elliptic(lambda q, x, y: 1 / q), r"flux\(0\) at nodes \[0, 1\] is not finite"),
    "decreasing reaction": (
        gll.Elliptic(lambda q, x, y: q, lambda u, x: -u),
        r"reaction\(-2\) at nodes \[0\] decreases: the theorem needs it nondecreasing",
    ),
    "reaction decreasing at one node": (
        gll.Elliptic(lambda q, x, y: q, lambda u, x: torch.where(x == 3, -u, u)),
        r"reaction\(-2\) at nodes \[3\] decreases",
    ),
    "shape": (gll.Elliptic(lambda q, x, y: q.sum()), "flux must return a tensor of the shape"),
    "nothing": (gll.Elliptic(lambda q, x, y: None), "flux must return a tensor of the shape .* got None"),  # type: ignore
    "hidden parameter": (
        gll.Elliptic(lambda q, x, y: HIDDEN * q),
        "flux uses a tensor that requires a gradient but is not among `parameters`",
    ),
    "hidden in reaction": (
        gll.Elliptic(lambda q, x, y: q, lambda u, x: HIDDEN * u),
        "reaction uses a tensor that requires a gradient but is not among `parameters`",
    ),
}


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("name", BAD_FUNCTIONS)
def test_elliptic_names_what_is_wrong(name: str) -> None:
    equation, message = BAD_FUNCTIONS[name]
    with pytest.raises(ValueError, match=message):
        gll.solve(equation, path(5), one_hot([0, 4], [0, 1]))


@final
@dataclass(frozen=True, eq=False)
class Perona(gll.AbstractEquation):
    """A new equation: flux and reaction, nothing else; derivatives by autograd."""

    strength: Tensor
    source: Tensor | None = None
    linear: ClassVar[bool] = False

    def flux(self, q: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self.strength * torch.asinh(q)

    def reaction(self, u: Tensor, x: Tensor) -> Tensor:
        return torch.expm1(u)


def test_a_new_equation_is_one_dataclass() -> None:
    strength = torch.tensor(0.7, dtype=F64, requires_grad=True)
    case = manufactured(lambda f: Perona(strength, f.detach()), GRAPHS["random"], _smooth(16, 2), labelled=[0, 1])
    assert gap(case.solve(), case.exact) <= 1e-9

    def value(strength: Tensor) -> Tensor:
        return gll.solve(Perona(strength, case.equation.source), case.graph, case.labels).value  # type: ignore[attr-defined]

    assert torch.autograd.gradcheck(value, strength)


# Parameters that make no sense -------------------------------------------------------------------------------------

NAN = float("nan")
BAD_PARAMETERS: dict[str, tuple[Callable[[], gll.AbstractEquation], str]] = {
    "tau < 0": (lambda: gll.Laplace(-0.1), "tau must be ≥ 0, got -0.1"),
    "tau < 0 somewhere": (lambda: gll.Laplace(torch.tensor([0.0, 1, -1, 0, 0])), "tau must be ≥ 0"),
    "tau of another size": (lambda: gll.Laplace(torch.ones(3)), r"one value per node \(5,\), got shape \(3,\)"),
    "lam = 0": (lambda: gll.SoftLaplace(0.0), "lam must be > 0, got 0.0"),
    "lam < 0": (lambda: gll.SoftLaplace(torch.tensor([1.0, -1.0])), "lam must be > 0"),
    "soft tau < 0": (lambda: gll.SoftLaplace(1.0, -1.0), "tau must be ≥ 0, got -1.0"),
    "p = 1": (lambda: gll.PLaplace(1.0), "p must be > 1, got 1.0: at p = 1 the equation is not differentiable"),
    "p < 1": (lambda: gll.PLaplace(torch.tensor(0.5)), "p must be > 1"),
    "delta = 0": (lambda: gll.PLaplace(3.0, delta=0.0), "delta must be > 0, got 0.0"),
    "p tau < 0": (lambda: gll.PLaplace(3.0, -1.0), "tau must be ≥ 0, got -1.0"),
    "wells lam = 0": (lambda: gll.GinzburgLandau(0.0), "lam must be > 0, got 0.0"),
    "tau nan": (lambda: gll.Laplace(NAN), "tau must be ≥ 0, got nan"),
    "p nan": (lambda: gll.PLaplace(NAN), "p must be > 1, got nan"),
}


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("name", BAD_PARAMETERS)
def test_bad_parameters(name: str) -> None:
    make, message = BAD_PARAMETERS[name]
    with pytest.raises(ValueError, match=message):
        gll.solve(make(), path(5), one_hot([0, 4], [0, 1]), initial=torch.zeros(5, 2))


@pytest.mark.usefixtures("as_user")
def test_lam_of_another_size() -> None:
    with pytest.raises(ValueError, match=r"lam must be .*got shape \(3,\)"):
        gll.solve(gll.SoftLaplace(torch.ones(3)), path(5), one_hot([0, 4], [0, 1]))
    with pytest.raises(ValueError, match=r"p must be .*got shape \(2,\)"):
        gll.solve(gll.PLaplace(torch.full((2,), 3.0)), path(5), one_hot([0, 4], [0, 1]))
