"""What is particular to each solver: honesty, stopping, warm starts, preconditioning, choice, precision."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import gll
from gll.operators import Operator
from gll.solution import RESULT
from gll.solvers import AMG, AbstractLinearSolver, Auto, Cholesky, ConjugateGradient, Newton
from gll.solvers.scaled import scaled_dense
from tests.problems import F64, LINEAR, cliques_hanging, grid, labels_at, one_hot, path, random_graph
from tests.test_solvers import OPERATORS, dense_solve, rhs_for, solve_operator

# Honesty -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Distorted(AbstractLinearSolver):
    """Cholesky with its answer distorted, claiming success."""

    distort: Callable[[Tensor], Tensor]
    rtol: float = 1e-10

    def init(self, operator: Operator) -> Any:
        return Cholesky().init(operator)

    def compute(self, state: Any, rhs: Tensor, *goal: Any) -> tuple[Tensor, RESULT, int]:
        return self.distort(Cholesky().compute(state, rhs, *goal)[0]), RESULT.SUCCESSFUL, 1

    def is_direct(self, state: Any) -> bool:
        return True


def test_a_rough_solver_is_repaired() -> None:
    """One that is ten percent off converges by iterating on true residuals."""
    operator = OPERATORS["shared"]
    found = solve_operator(Distorted(lambda x: 0.9 * x), operator, rhs_for(operator))
    assert found.result is RESULT.SUCCESSFUL
    torch.testing.assert_close(found.value, dense_solve(operator, rhs_for(operator)), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    "distort", [lambda x: 0 * x, lambda x: -x, lambda x: x.roll(1, 0)], ids=["zero", "minus", "mixed"]
)
def test_a_lying_solver_is_found_out(distort: Callable[[Tensor], Tensor]) -> None:
    """It says SUCCESSFUL; the residual, recomputed, says otherwise, and `solve` raises."""
    operator, liar = OPERATORS["shared"], Distorted(distort)
    assert solve_operator(liar, operator, rhs_for(operator)).result is not RESULT.SUCCESSFUL
    case = LINEAR["grid"]()
    with pytest.raises(gll.SolveError):
        case.solve(solver=liar, unreached="raise")
    assert case.solve(solver=liar, unreached="raise", throw=False).result is not RESULT.SUCCESSFUL


def test_a_solver_that_gives_nan() -> None:
    case = LINEAR["grid"]()
    with pytest.raises(gll.SolveError) as error:
        case.solve(solver=Distorted(lambda x: x * torch.nan))
    assert error.value.result is RESULT.NONFINITE_OUTPUT


def test_the_adjoint_raises_where_the_forward_solve_was_lucky() -> None:
    """A solver that works once and then breaks: the gradient must not be silently wrong."""
    calls = []

    def breaks(x: Tensor) -> Tensor:
        calls.append(len(calls))
        return x if broken[0] == 0 else 0 * x

    broken = [0]
    case = LINEAR["grid"]()
    weight = case.graph.weight.clone().requires_grad_()
    value = gll.solve(case.equation, case.graph.with_weight(weight), case.labels, solver=Distorted(breaks)).value
    broken[0] = 1
    with pytest.raises(gll.SolveError, match="in the adjoint solve"):
        value[17].sum().backward()


# Conjugate gradients -----------------------------------------------------------------------------------------------


def test_columns_stop_by_themselves() -> None:
    """An eigenvector needs one step, a random column many: solved together, the first stays as it was after one."""
    operator = OPERATORS["excess at one node"]
    scaled = scaled_dense(operator)
    eigenvalue, vector = torch.linalg.eigh(scaled)
    easy = vector[:, 30:31] / operator.scale
    hard = rhs_for(operator, columns=1)
    solver = ConjugateGradient(rtol=1e-12, check_every=1)
    alone, other, both = (solve_operator(solver, operator, b) for b in (easy, hard, torch.cat([easy, hard], 1)))
    assert alone.steps <= 3 < 20 < other.steps <= both.steps <= other.steps + 3
    assert both.result is RESULT.SUCCESSFUL
    torch.testing.assert_close(both.value[:, 0], alone.value[:, 0], rtol=1e-12, atol=1e-14)
    exact = (easy * operator.scale**2)[:, 0] / eigenvalue[30]
    torch.testing.assert_close(alone.value[:, 0], exact, rtol=1e-10, atol=1e-12)


def test_how_often_it_looks_changes_nothing_but_the_steps() -> None:
    operator = OPERATORS["shared"]
    rhs = rhs_for(operator)
    values, steps = zip(
        *(
            (f.value, f.steps)
            for e in (1, 5, 50)
            for f in [solve_operator(ConjugateGradient(1e-12, check_every=e), operator, rhs)]
        ),
        strict=True,
    )
    assert steps[0] <= steps[1] <= steps[2]
    for value in values[1:]:
        torch.testing.assert_close(value, values[0], rtol=1e-9, atol=1e-11)


def test_too_few_steps() -> None:
    case = LINEAR["grid"]()
    with pytest.raises(gll.SolveError, match=r"\[MAX_STEPS: relative residual .*, asked for 1.0e-10, after .* steps\]"):
        case.solve(solver=ConjugateGradient(max_steps=2))


def test_a_warm_start_saves_steps() -> None:
    """From the solution itself only the columns that judge the error remain to be solved."""
    graph, labels, solver = grid(20, 20), one_hot([0, 399], [0, 1]), ConjugateGradient()
    cold = gll.solve(gll.Laplace(), graph, labels, solver=solver)
    hot = gll.solve(gll.Laplace(), graph, labels, solver=solver, initial=cold.value)
    assert hot.steps < 0.9 * cold.steps


@pytest.mark.parametrize("solver", [Cholesky(), ConjugateGradient()], ids=["Cholesky", "CG"])
@pytest.mark.parametrize("noise", [1e-6, 1.0, 1e6, 1e12])
def test_a_bad_start_gives_the_same_answer(noise: float, solver: AbstractLinearSolver) -> None:
    """The accuracy is relative to the solution, not to where the solver was told to start."""
    case = LINEAR["grid"]()
    start = noise * torch.randn(case.exact.shape, dtype=F64)
    torch.testing.assert_close(case.solve(solver=solver, initial=start).value, case.exact, rtol=0, atol=1e-7)


def test_a_warm_start_does_not_change_the_gradient() -> None:
    graph, labels = random_graph(12), one_hot([0, 5], [0, 1])
    gradients = []
    for initial in (None, torch.randn(12, 2, dtype=F64)):
        weight = graph.weight.clone().requires_grad_()
        solution = gll.solve(gll.Laplace(0.1), graph.with_weight(weight), labels, initial=initial)
        gradients.append(torch.autograd.grad(solution.value.square().sum(), weight)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-12)


# AMG ---------------------------------------------------------------------------------------------------------------


def test_amg_needs_far_fewer_steps_on_a_long_chain() -> None:
    pytest.importorskip("pyamg")
    n = 1500
    graph, labels = path(n), labels_at([0, n - 1], [0.0], [1.0])
    exact = torch.linspace(0, 1, n, dtype=F64)[:, None]
    plain = gll.solve(gll.Laplace(), graph, labels, solver=ConjugateGradient(max_steps=5000))
    amg = gll.solve(gll.Laplace(), graph, labels, solver=ConjugateGradient(preconditioner=AMG()))
    assert float((amg.value - exact).abs().max()) < 1e-8
    assert amg.steps * 10 < plain.steps


def test_amg_says_what_it_does_not_serve() -> None:
    pytest.importorskip("pyamg")
    solver = ConjugateGradient(preconditioner=AMG())
    for equation in (gll.Poisson(), gll.PLaplace(3.0)):
        with pytest.raises(ValueError, match="serves linear equations that are not singular: Laplace and SoftLaplace"):
            gll.solve(equation, path(4), one_hot([0, 3], [0, 1]), solver=solver)


def test_amg_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyamg", None)
    with pytest.raises(ImportError, match=r"needs the extra 'amg': pip install 'gll\[amg\]'"):
        LINEAR["grid"]().solve(solver=ConjugateGradient(preconditioner=AMG()))


# Auto --------------------------------------------------------------------------------------------------------------


def test_auto_describes_its_choice() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    auto = Auto(dense_cpu=600, dense_gpu=3000)
    assert auto.describe(600, 10, cpu) == "Cholesky: 600 free nodes are at most 600, the measured break-even on a cpu"
    assert auto.describe(601, 10, cpu).startswith("ConjugateGradient: 601 free nodes are more than 600")
    assert (
        auto.describe(3000, 10, gpu)
        == "Cholesky: 3,000 free nodes are at most 3,000, the measured break-even on a cuda"
    )
    assert auto.describe(20_000, 10, gpu).startswith("ConjugateGradient: 20,000 free nodes are more than 3,000")


def test_auto_does_what_it_says() -> None:
    """One step for a factorisation, many for conjugate gradients; the solution names the method."""
    case = LINEAR["grid"]()
    direct, iterative = case.solve(solver=Auto()), case.solve(solver=Auto(dense_cpu=0, dense_rescue=0, dense_last=0))
    assert direct.method.startswith("Cholesky")
    assert iterative.method.startswith("ConjugateGradient")
    assert direct.steps <= 3 < iterative.steps
    assert Auto().describe(20, 2, torch.device("cpu")) == direct.method  # 42 nodes, of which 22 are labelled


# Newton ------------------------------------------------------------------------------------------------------------


def _p_laplace(p: float, **options: Any) -> gll.Solution:
    graph, labels = random_graph(30, k=4, seed=2), one_hot([0, 9, 17], [0, 1, 2])
    return gll.solve(gll.PLaplace(p, delta=1e-2), graph, labels, **options)


def test_newton_reaches_the_equation_from_a_bad_start() -> None:
    """p = 10 from zero: the line search carries it."""
    far = _p_laplace(10.0, initial=torch.zeros(30, 3, dtype=F64))
    torch.testing.assert_close(far.value, _p_laplace(10.0).value, rtol=0, atol=1e-8)


def test_newton_warm_start_saves_steps() -> None:
    cold = _p_laplace(4.0)
    warm = _p_laplace(4.0, initial=cold.value + 1e-6)
    assert warm.steps * 3 <= cold.steps
    torch.testing.assert_close(warm.value, cold.value, rtol=0, atol=1e-9)


def test_newton_with_conjugate_gradients_equals_newton_with_cholesky() -> None:
    a = _p_laplace(3.0, solver=Newton(linear=ConjugateGradient(rtol=1e-12)))
    b = _p_laplace(3.0, solver=Newton(linear=Cholesky()))
    torch.testing.assert_close(a.value, b.value, rtol=0, atol=1e-9)
    assert a.method.startswith("Newton, ConjugateGradient")
    assert b.method.startswith("Newton, Cholesky")


def test_newton_too_few_steps() -> None:
    with pytest.raises(gll.SolveError, match=r"\[MAX_STEPS: after \d+ linear steps of Newton's method\]"):
        _p_laplace(10.0, solver=Newton(max_steps=1))


# Precision ---------------------------------------------------------------------------------------------------------


def test_precision_is_chosen_by_the_tolerance_and_reported() -> None:
    """float32 weights: float64 where the tolerance asks for it; the value comes back in float32 all the same."""
    graph = random_graph(20, seed=3)
    labels = gll.Labels(torch.tensor([0, 7]), torch.eye(2))
    single = graph.with_weight(graph.weight.float())
    double = gll.solve(gll.Laplace(), graph, gll.Labels(labels.index, labels.value.double()))
    tight, loose = (gll.solve(gll.Laplace(), single, labels, solver=Cholesky(rtol=rtol)) for rtol in (1e-10, 1e-3))
    assert (tight.dtype, tight.value.dtype) == (F64, torch.float32)
    assert (loose.dtype, loose.value.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(tight.value.double(), double.value, rtol=0, atol=1e-6)
    torch.testing.assert_close(loose.value.double(), double.value, rtol=0, atol=1e-3)


def test_extremely_weak_links_do_not_cost_the_gradient() -> None:
    """A clique hanging by 1e-12 copies the value of its anchor, so a cotangent on it counts as one on the anchor."""
    case = cliques_hanging(link=1e-12)
    g = case.labels.value.clone().requires_grad_()  # type: ignore[union-attr]
    value = gll.solve(case.equation, case.graph, gll.Labels(case.labels.index, g)).value  # type: ignore[union-attr]
    (on_clique,) = torch.autograd.grad(value[9, 0], g, retain_graph=True)
    (on_anchor,) = torch.autograd.grad(value[1, 0], g)
    torch.testing.assert_close(on_clique, on_anchor, rtol=0, atol=1e-7)
    torch.testing.assert_close(on_anchor, torch.tensor([[0.5, 0], [0.5, 0]], dtype=F64), rtol=0, atol=1e-12)


def test_solvers_are_frozen_and_comparable() -> None:
    assert ConjugateGradient() == ConjugateGradient()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cholesky().rtol = 1.0  # type: ignore[misc]


@pytest.fixture(scope="module")
def cloud() -> Tensor:
    """Twelve overlapping clusters in five dimensions, 1200 points."""
    generator = torch.Generator().manual_seed(6)
    centre = 2 * torch.randn(12, 1, 5, generator=generator, dtype=F64)
    return (centre + torch.randn(12, 100, 5, generator=generator, dtype=F64)).reshape(1200, 5)


def _value_and_gradient(x: Tensor, solver: AbstractLinearSolver | None) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    labels = gll.Labels(torch.arange(0, 1200, 100), torch.eye(4, dtype=x.dtype)[torch.arange(12) % 4])
    value = gll.solve(gll.Laplace(), gll.knn_graph(x, 10), labels, solver=solver).value
    return value.detach().double(), torch.autograd.grad(value.square().sum(), x)[0].double()


def test_direct_and_iterative_agree_on_a_larger_graph(cloud: Tensor) -> None:
    """A thousand free nodes: the value, and the gradient in the features, by factorisation and by iteration."""
    direct, iterative = (_value_and_gradient(cloud, s) for s in (Cholesky(), ConjugateGradient()))
    torch.testing.assert_close(iterative[0], direct[0], rtol=0, atol=1e-8)
    torch.testing.assert_close(iterative[1], direct[1], rtol=0, atol=1e-7 * float(direct[1].abs().max()))


def test_float32_gives_the_answer_of_float64(cloud: Tensor) -> None:
    """From the same features, rounded to float32 beforehand: to 1e-5."""
    single = cloud.float()
    ours, exact = _value_and_gradient(single, None), _value_and_gradient(single.double(), None)
    torch.testing.assert_close(ours[0], exact[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(ours[1], exact[1], rtol=0, atol=1e-5 * float(exact[1].abs().max()))
