"""Where conjugate gradients get no answer: a factor takes over, or the nodes without one are set aside."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

import gll
from gll.operators import Operator
from gll.solution import RESULT, SolveError
from gll.solvers import Cholesky
from gll.solvers.auto import Auto

F64 = torch.float64
ITERATIVE = Auto(dense_cpu=0, dense_gpu=0, dense_rescue=0, dense_last=0)
RESCUED = Auto(dense_cpu=0, dense_gpu=0)
LABELS = gll.Labels(torch.arange(4), torch.eye(2, dtype=F64).repeat(2, 1))
BODY, RING = 60, 10


def hanging(thread: float, scale: float = 1.0) -> Tensor:
    """Weights of a connected body and of a ring of weights `scale`, which hangs on it by an edge of weight `thread`."""
    x = torch.rand(BODY, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    weight = torch.zeros(BODY + RING, BODY + RING, dtype=F64)
    weight[:BODY, :BODY] = torch.exp(-8 * torch.cdist(x, x) ** 2).fill_diagonal_(0)
    ring = torch.arange(RING) + BODY
    weight[ring, ring.roll(1)] = scale
    weight[0, BODY] = thread
    return torch.maximum(weight, weight.T)


def solved(weight: Tensor, solver: Auto | Cholesky, policy: str = "uniform") -> tuple[gll.Solution, Tensor]:
    """The solution, and the gradient of a sum of it with respect to the weights."""
    weight = weight.clone().requires_grad_()
    solution = gll.solve(gll.Laplace(), gll.Graph.from_sparse(weight), LABELS, solver=solver, unreached=policy)
    factors = torch.arange(solution.value.numel(), dtype=F64).view_as(solution.value).cos()
    (grad,) = torch.autograd.grad((factors * solution.value).sum(), weight)
    return solution, grad


@pytest.mark.filterwarnings("ignore::gll.UnreachedWarning")
@pytest.mark.parametrize("thread", [1e-15, 1e-17, 1e-20])
@pytest.mark.parametrize("solver", [ITERATIVE, RESCUED], ids=["iterative", "rescued"])
def test_what_hangs_by_less_than_float64_resolves_is_set_aside(solver: Auto, thread: float) -> None:
    """As with a factor: the ring gets the fallback, others the answer and the gradient they have without it."""
    solution, grad = solved(hanging(thread), solver)
    assert solution.unreached_nodes is not None
    assert solution.unreached_nodes.nonzero()[:, 0].tolist() == list(range(BODY, BODY + RING))
    alone, own = solved(hanging(0.0), Cholesky())
    assert torch.allclose(solution.value[:BODY], alone.value[:BODY], rtol=0, atol=1e-9)
    assert torch.allclose(grad[:BODY, :BODY], own[:BODY, :BODY], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("solver", [ITERATIVE, RESCUED], ids=["iterative", "rescued"])
def test_or_refused_where_that_is_the_policy(solver: Auto) -> None:
    with pytest.raises(SolveError, match="10 of 70 nodes") as caught:
        solved(hanging(1e-17), solver, "raise")
    assert caught.value.result is RESULT.ILL_CONDITIONED


def test_a_factor_resolves_what_conjugate_gradients_do_not() -> None:
    """On a thread of 1e-10 the ring has the value of its end. Iterations cannot be sure of it, and hand over."""
    solution, grad = solved(hanging(1e-10), RESCUED)
    exact, own = solved(hanging(1e-10), Cholesky())
    assert solution.method == "Cholesky: ConjugateGradient came to a halt"
    assert solution.unreached_nodes is None
    assert torch.allclose(solution.value, exact.value, rtol=0, atol=1e-9)
    assert torch.allclose(solution.value[BODY:], solution.value[:1].expand(RING, -1), rtol=0, atol=1e-6)
    assert torch.allclose(grad, own, rtol=1e-6, atol=1e-9)


def test_too_few_steps_are_made_up_for_by_a_factor_up_to_the_last_size() -> None:
    """Larger systems than `dense_rescue` are given twenty times the patience, and then factorised."""
    few = dataclasses.replace(ITERATIVE, patience=0, dense_last=BODY + RING)
    solution, _ = solved(hanging(1.0), few)
    assert solution.method.startswith("Cholesky: ConjugateGradient had not converged after 0 steps")
    assert torch.allclose(solution.value, solved(hanging(1.0), Cholesky())[0].value, rtol=0, atol=1e-10)
    with pytest.raises(SolveError, match="MAX_STEPS"):
        solved(hanging(1.0), dataclasses.replace(few, dense_last=BODY))


def test_uneven_degrees_are_factorised_up_to_the_last_size() -> None:
    """A gradient through nodes of degree 1e-20 is refused to iterations, which do not see them."""
    weight = hanging(1e-20, scale=1e-20)
    assert solved(weight, dataclasses.replace(ITERATIVE, dense_last=1000))[0].method.startswith("Cholesky: degrees")
    with pytest.raises(SolveError, match="in the adjoint solve"):
        solved(weight, ITERATIVE)


def test_memory_that_is_not_there_is_no_reason_to_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conjugate gradients are then given the steps of a system that is too large for a factor."""

    def full(self: Cholesky, operator: Operator) -> None:
        torch.empty(2**60)  # what is raised depends on the device

    exact = solved(hanging(1.0), Cholesky())[0].value
    monkeypatch.setattr(Cholesky, "init", full)
    solution, _ = solved(hanging(1.0), Auto(dense_cpu=0, dense_gpu=0, patience=5))
    assert solution.method.startswith("ConjugateGradient")
    assert torch.allclose(solution.value, exact, rtol=0, atol=1e-9)
    with pytest.raises(SolveError, match="MAX_STEPS"):
        solved(hanging(1.0), Auto(dense_cpu=0, dense_gpu=0, patience=0))


@pytest.mark.filterwarnings("ignore::gll.UnreachedWarning")
def test_the_layer_bears_queries_that_have_left_the_data() -> None:
    """In float32, with more nodes than are factorised at first: a far group of queries, tied to the rest by next to
    nothing, costs the others neither their answer nor their gradient."""
    gen = torch.Generator().manual_seed(0)
    base, near = torch.randn(40, 3, generator=gen), torch.randn(700, 3, generator=gen)
    far = 1e3 + torch.randn(30, 3, generator=gen)
    layer = gll.GraphLearningLayer(2, k=5, normalize=False, unreached="uniform")
    x = torch.cat([near, far]).requires_grad_()
    out = layer(x, base, torch.arange(40) % 2)
    out[:700].sum().backward()
    assert x.grad is not None
    assert bool(torch.isfinite(out).all())
    assert bool(torch.isfinite(x.grad).all())
    assert float(x.grad[:700].abs().max()) > 0
    without = layer(near, base, torch.arange(40) % 2)
    assert torch.allclose(out[:700], without, atol=1e-5)


@pytest.mark.filterwarnings("ignore::gll.UnreachedWarning")
@pytest.mark.parametrize("solver", [Cholesky(), RESCUED], ids=["direct", "rescued"])
def test_a_start_costs_a_factor_no_digits(solver: Auto | Cholesky) -> None:
    """The residual of a start is rounded, and a thread of 1e-10 makes 1e-6 of that; a factor begins at zero."""
    graph = gll.Graph.from_sparse(hanging(3e-11))
    start = torch.rand(BODY + RING, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    solution = gll.solve(gll.Laplace(), graph, LABELS, solver=solver, initial=start)
    assert solution.method.startswith("Cholesky")
    assert solution.unreached_nodes is None
    # By the equation, all of the ring has the value of the node that it hangs on.
    assert torch.allclose(solution.value[BODY:], solution.value[:1].expand(RING, -1), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("p", "patience"), [(3.0, 5), (14.0, 300)])
def test_columns_with_weights_of_their_own_are_solved_where_their_matrices_are_too_large(
    p: float, patience: int
) -> None:
    """Nodes are few enough for a factor, the matrices of all columns are not: conjugate gradients are given more steps.
    Slopes of a high order are uneven, and have the gradient of a factor all the same."""
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    labels = gll.Labels(torch.arange(8), torch.eye(4, dtype=F64).repeat(2, 1))
    tight = Auto(dense_cpu=0, dense_gpu=0, dense_rescue=60, dense_last=70, patience=patience)
    results = []
    for linear in (tight, Cholesky()):
        graph = gll.knn_graph(x, 5)
        weight = graph.weight.clone().requires_grad_()
        solver = gll.solvers.Newton(linear=linear)
        solution = gll.solve(gll.PLaplace(p=p), graph.with_weight(weight), labels, solver=solver)
        results += [solution.value, *torch.autograd.grad((solution.value**2).sum(), weight)]
    value, grad, exact, own = results
    assert torch.allclose(value, exact, rtol=0, atol=1e-8)
    assert torch.allclose(grad, own, rtol=1e-5, atol=1e-7 * float(own.abs().max()))


def test_a_gradient_is_refused_where_only_the_adjoint_has_a_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solution by iterations is off by 1e-13: of that, a gradient through degrees of 1e-20 would consist."""
    weight = hanging(1e-20, scale=1e-20).requires_grad_()
    solution = gll.solve(gll.Laplace(), gll.Graph.from_sparse(weight), LABELS, solver=ITERATIVE)
    monkeypatch.setattr(Auto, "is_direct", lambda self, state: True)  # as if exchanged after the forward solve
    with pytest.raises(SolveError, match="in the adjoint solve"):
        solution.value[BODY:].cos().sum().backward()
