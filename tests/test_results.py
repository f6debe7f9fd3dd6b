"""Failure is loud and useful: every verdict, every policy, every mistake in the arguments, with its message."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import pytest
import torch
from torch import Tensor

import gll
from gll.solvers import Cholesky, ConjugateGradient
from tests.problems import F64, cliques_hanging, graph_of, labels_at, one_hot, path

pytestmark = pytest.mark.usefixtures("as_user")
ENDS = one_hot([0, 4], [0, 1])
APART = graph_of(6, [(0, 1), (1, 2), (3, 4), (4, 5)])  # two paths of three nodes


@final
@dataclass(frozen=True, eq=False)
class Growing(gll.AbstractEquation):
    """Δu - 5u = 0: its operator is not positive definite."""

    linear: ClassVar[bool] = True

    def reaction(self, u: Tensor, x: Tensor) -> Tensor:
        return -5 * u


# Every verdict -----------------------------------------------------------------------------------------------------

Solve = Callable[..., gll.Solution]
RESULTS: dict[gll.RESULT, tuple[Solve, str]] = {
    gll.RESULT.SUCCESSFUL: (lambda **o: gll.solve(gll.Laplace(), path(5), ENDS, **o), "solved to the requested"),
    gll.RESULT.MAX_STEPS: (
        lambda **o: gll.solve(gll.Laplace(), path(50), one_hot([0], [0]), solver=ConjugateGradient(max_steps=3), **o),
        r"Raise max_steps, loosen rtol, use a direct solver \(gll.solvers.Cholesky\).*\[MAX_STEPS: relative residual",
    ),
    gll.RESULT.BREAKDOWN: (lambda **o: gll.solve(Growing(), path(5), ENDS, **o), "not positive definite"),
    gll.RESULT.ILL_CONDITIONED: (
        lambda **o: cliques_hanging(link=1e-30).solve(unreached="raise", **o),
        r"some nodes hang on the rest by edges too weak for float64.*\[ILL_CONDITIONED: 6 of 12 nodes\]",
    ),
    gll.RESULT.UNREACHED: (
        lambda **o: gll.solve(gll.Laplace(), APART, one_hot([0], [0]), unreached="raise", **o),
        r"not connected to any labelled node.*label at least one node per component.*\[UNREACHED: 3 of 6 nodes\]",
    ),
    gll.RESULT.INCOMPATIBLE_SOURCE: (
        lambda **o: gll.solve(gll.Poisson(), APART, one_hot([0, 5], [0, 1]), **o),
        r"does not sum to zero on every .*component 0, of 3 nodes, has a source of sum \[0.5, -0.5\]",
    ),
    gll.RESULT.NONFINITE_INPUT: (
        lambda **o: gll.solve(gll.Laplace(), path(5, [1, torch.nan, 1, 1]), ENDS, **o),
        "contain NaN or infinite values; look upstream",
    ),
    gll.RESULT.NONFINITE_OUTPUT: (
        lambda **o: gll.solve(gll.Laplace(1e-3, torch.full((2,), 1e307, dtype=F64)), path(2), **o),
        "The input is finite but the solution is not: the values overflow",
    ),
}


def test_every_verdict_is_in_the_table() -> None:
    assert set(RESULTS) == set(gll.RESULT)


@pytest.mark.parametrize("result", [r for r in RESULTS if r is not gll.RESULT.SUCCESSFUL], ids=lambda r: r.name)
def test_a_failed_solve_raises(result: gll.RESULT) -> None:
    solve, message = RESULTS[result]
    with pytest.raises(gll.SolveError, match=re.compile(message, re.DOTALL)) as error:
        solve()
    assert error.value.result is result
    assert result.value in str(error.value)
    assert f"[{result.name}" in str(error.value)


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.name)
def test_throw_false_returns_the_verdict(result: gll.RESULT) -> None:
    solve, message = RESULTS[result]
    solution = solve(throw=False)
    assert solution.result is result
    assert bool(torch.isfinite(solution.value).all())  # a harmless placeholder, never half an answer
    assert not solution.value.requires_grad
    assert f"{result.name}" in repr(solution)
    if result is gll.RESULT.SUCCESSFUL:
        assert re.search(message, result.value)
        assert float(solution.residual.max()) <= 1e-10
    else:
        assert bool(torch.isnan(solution.residual).all())


def test_overflow_in_the_dtype_of_the_weights() -> None:
    """1e41 is a float64 number, but not the float32 number that the weights ask for."""
    graph = path(2).with_weight(torch.ones(1))
    with pytest.raises(gll.SolveError, match=r"the values overflow.*\[NONFINITE_OUTPUT: in float32\]"):
        gll.solve(gll.Laplace(1e-3, torch.full((2,), 1e38)), graph)


def test_a_failed_solve_carries_no_gradient() -> None:
    weight = torch.ones(49, dtype=F64, requires_grad=True)
    graph = path(50).with_weight(weight)
    solver = ConjugateGradient(max_steps=3)
    solution = gll.solve(gll.Laplace(), graph, one_hot([0], [0]), solver=solver, throw=False)
    assert solution.result is gll.RESULT.MAX_STEPS
    assert not solution.value.requires_grad


BAD_INPUTS: dict[str, Callable[[float], gll.Solution]] = {
    "weights": lambda bad: gll.solve(gll.Laplace(), path(5, [1, bad, 1, 1]), ENDS),
    "labels": lambda bad: gll.solve(gll.Laplace(), path(5), labels_at([0, 4], [bad], [0.0])),
    "source": lambda bad: gll.solve(gll.Laplace(source=torch.tensor([0, bad, 0, 0, 0])), path(5), ENDS),
    "lam": lambda bad: gll.solve(gll.SoftLaplace(torch.tensor([1.0, bad])), path(5), ENDS),
    "initial": lambda bad: gll.solve(gll.GinzburgLandau(), path(2), initial=torch.tensor([[1.0], [bad]])),
    "parameters": lambda bad: gll.solve(
        gll.Elliptic(lambda q, x, y, a: q, lambda u, x, a: u, parameters={"a": torch.tensor(bad)}), path(5), ENDS
    ),
    "poisson source": lambda bad: gll.solve(gll.Poisson(torch.tensor([0, bad, 0, 0, 0])), path(5)),
    "tau": lambda bad: gll.solve(gll.Laplace(torch.tensor([1.0, bad, 1, 1, 1])), path(5), ENDS),
}


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", BAD_INPUTS)
def test_nonfinite_input_is_named_as_such(name: str, bad: float) -> None:
    """Blamed on the input, by a verdict or, where a parameter has left its range, by the parameter's own error."""
    with pytest.raises((gll.SolveError, ValueError)) as error:
        BAD_INPUTS[name](bad)
    if isinstance(error.value, gll.SolveError):
        assert error.value.result is gll.RESULT.NONFINITE_INPUT
    else:
        assert "must be" in str(error.value)


def test_a_nan_cotangent_is_handed_on() -> None:
    """An overflow upstream, as gradient scaling provokes, must reach the optimiser as NaN, not raise."""
    weight = path(5).weight.clone().requires_grad_()
    value = gll.solve(gll.Laplace(), path(5).with_weight(weight), ENDS).value
    value.backward(torch.full_like(value, torch.nan))
    assert weight.grad is not None
    assert bool(torch.isnan(weight.grad).all())


def test_a_path_over_thirty_decades_is_right_or_admitted() -> None:
    """Conductances from 1e15 to 1e-15: the exact voltages are known, whatever the solver makes of them."""
    resistance = 10.0 ** torch.linspace(-15, 15, 13, dtype=F64)
    exact = torch.cat([resistance.new_zeros(1), resistance.cumsum(0) / resistance.sum()])
    labels = labels_at([0, 13], [0.0], [1.0])
    for solver in (Cholesky(), ConjugateGradient()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gll.UnreachedWarning)
            found = gll.solve(gll.Laplace(), path(14, 1 / resistance), labels, solver=solver, throw=False)
        if found.result is gll.RESULT.SUCCESSFUL:
            lost = torch.zeros(14, dtype=torch.bool) if found.unreached_nodes is None else found.unreached_nodes
            assert float((found.value[:, 0] - exact)[~lost].abs().max()) <= max(1e-9, 2 * found.error)


# Nodes that no label reaches ---------------------------------------------------------------------------------------


def reached(policy: str, graph: gll.Graph) -> gll.Solution:
    with pytest.warns(gll.UnreachedWarning) as caught:
        solution = gll.solve(gll.Laplace(), graph, one_hot([0, 2], [0, 1]), unreached=policy)
    assert len(caught) == 1  # once a solve
    assert str(caught[0].message) == (
        "3 of 6 nodes are not connected to any labelled node (or too weakly for float64) and "
        f"got the '{policy}' fallback; see Solution.unreached_nodes, or unreached_ of a classifier"
    )
    return solution


def test_unreached_uniform() -> None:
    weight = APART.weight.clone().requires_grad_()
    solution = reached("uniform", APART.with_weight(weight))
    assert (solution.result, solution.unreached) == (gll.RESULT.SUCCESSFUL, 3)
    assert solution.unreached_nodes is not None
    assert solution.unreached_nodes.tolist() == [False] * 3 + [True] * 3
    assert solution.value[3:].tolist() == [[0.5, 0.5]] * 3
    torch.testing.assert_close(solution.value[1], torch.tensor([0.5, 0.5], dtype=F64))
    (of_unreached,) = torch.autograd.grad(solution.value[3:].square().sum(), weight, retain_graph=True)
    (of_reached,) = torch.autograd.grad(solution.value[1, 0], weight)
    assert float(of_unreached.abs().max()) == 0
    assert of_reached.tolist() == [0.25, -0.25, 0, 0]


@pytest.mark.parametrize("policy", ["uniform", gll.Unreached.UNIFORM])
def test_unreached_uniform_of_other_labels(policy: str | gll.Unreached) -> None:
    """1/C for one-hot and soft labels; for regression the mean label; zero for the scores of Poisson."""
    with pytest.warns(gll.UnreachedWarning):
        many = gll.solve(gll.Laplace(), APART, one_hot([0, 1, 2], [0, 1, 4]), unreached=policy)
    torch.testing.assert_close(many.value[3:], torch.full((3, 5), 0.2, dtype=F64))
    with pytest.warns(gll.UnreachedWarning):
        regression = gll.solve(gll.Laplace(), APART, labels_at([0, 2], [3.0], [5.0]), unreached=policy)
    torch.testing.assert_close(regression.value[3:], torch.full((3, 1), 4.0, dtype=F64))
    with pytest.warns(gll.UnreachedWarning):
        scores = gll.solve(gll.Poisson(), APART, one_hot([0, 2], [0, 1]), unreached=policy)
    assert scores.value[3:].tolist() == [[0.0, 0.0]] * 3


def test_unreached_nearest() -> None:
    """The label of the nearest labelled node in feature space; it receives that label's gradient."""
    x = torch.tensor([[0.0], [1.0], [2.0], [-5.0], [9.0], [-1.0]], dtype=F64)
    g = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=F64, requires_grad=True)
    graph, labels = gll.Graph(APART.topology, APART.weight, x), gll.Labels(torch.tensor([0, 2]), g)
    with pytest.warns(gll.UnreachedWarning, match="got the 'nearest' fallback"):
        solution = gll.solve(gll.Laplace(), graph, labels, unreached="nearest")
    assert solution.value[3:].tolist() == [[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]]
    assert solution.unreached == 3
    (gradient,) = torch.autograd.grad(solution.value[4, 1], g)
    assert gradient.tolist() == [[0, 0], [0, 1]]


def test_unreached_nearest_without_features() -> None:
    with pytest.raises(ValueError, match=r"'nearest' needs to know the features.*use gll.knn_graph, pass Graph"):
        gll.solve(gll.Laplace(), APART, one_hot([0], [0]), unreached="nearest")


def test_tau_reaches_everything() -> None:
    """τ > 0 ties every node down; τ > 0 on one node of a component ties that component down."""
    everywhere = gll.solve(gll.Laplace(0.1), APART, one_hot([0], [0]))
    assert (everywhere.unreached, everywhere.value[3:].tolist()) == (0, [[0.0]] * 3)
    somewhere = torch.tensor([0.0, 0, 0, 1, 0, 0], dtype=F64)
    assert gll.solve(gll.Laplace(somewhere), APART, one_hot([0], [0])).unreached == 0


def test_soft_labels_reach_as_hard_ones_do() -> None:
    with pytest.warns(gll.UnreachedWarning, match="3 of 6 nodes"):
        solution = gll.solve(gll.SoftLaplace(2.0), APART, one_hot([0, 2], [0, 1]))
    assert solution.value[3:].tolist() == [[0.5, 0.5]] * 3


def test_weak_links_below_precision_are_not_connections() -> None:
    """To float64 a clique that hangs by 1e-30 is a component of its own: treated, counted and warned of like one."""
    case = cliques_hanging(link=1e-30)
    with pytest.warns(gll.UnreachedWarning, match="6 of 12 nodes are not connected to any labelled node"):
        solution = case.solve()
    assert solution.value[6:].tolist() == [[0.5, 0.5]] * 6
    torch.testing.assert_close(solution.value[:6], case.exact[:6], rtol=0, atol=1e-12)


# Poisson -----------------------------------------------------------------------------------------------------------


def test_poisson_balanced_on_every_component() -> None:
    """Balanced component by component it is solvable, and each has degree-weighted mean zero."""
    u = gll.solve(gll.Poisson(), APART, one_hot([0, 2, 3, 5], [0, 1, 0, 1])).value
    torch.testing.assert_close(u[:3], torch.tensor([[0.5, -0.5], [0, 0], [-0.5, 0.5]], dtype=F64), rtol=0, atol=1e-14)
    torch.testing.assert_close(u[3:], u[:3], rtol=0, atol=1e-14)


def test_poisson_source_that_does_not_balance() -> None:
    with pytest.raises(gll.SolveError, match=r"component 0, of 5 nodes, has a source of sum \[1.0\]"):
        gll.solve(gll.Poisson(torch.tensor([1.0, 0, 0, 0, 0], dtype=F64)), path(5))


def test_poisson_with_a_decay_needs_no_balance() -> None:
    """Two components of three nodes, a label each: the excess ± 1/2 lifts them by ± 1/(2·3τ), and the label wins."""
    tau = 1e-3
    u = gll.solve(gll.Poisson(tau=tau), APART, one_hot([0, 5], [0, 1])).value
    lift = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=F64) / (6 * tau)
    torch.testing.assert_close(torch.stack([u[:3].mean(0), u[3:].mean(0)]), lift, rtol=1e-12, atol=0)
    balanced = one_hot([0, 2, 3, 5], [0, 1, 0, 1])
    close = gll.solve(gll.Poisson(tau=1e-9), APART, balanced).value
    torch.testing.assert_close(close, gll.solve(gll.Poisson(), APART, balanced).value, rtol=0, atol=1e-6)
    with pytest.raises(gll.SolveError):  # the number 0 is Poisson's equation proper; a tensor cannot say so
        gll.solve(gll.Poisson(tau=torch.tensor(0.0, dtype=F64)), APART, balanced)
