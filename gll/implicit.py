"""solve(): find u, judge it, and attach its derivative.

The derivative belongs to the equation, not to a solver. u solves P(u, v; θ) = 0 for all v, so by the implicit
function theorem, with A = ∂²P/∂u∂v the linearised operator (symmetric) and ū = ∂J/∂u the incoming gradient,

    A v = ū      (the adjoint equation),            ∂J/∂θ = -∂P(u, v; θ)/∂θ.

For θ = w this reads -φ(∇u)·∇v, for θ = f it reads v, and for θ = g it is the third formula of the paper's theorem:
all of them fall out of differentiating one scalar. The adjoint solve reuses the factor of the forward solve.

A failed solve cannot be missed. Besides the residual, the error is estimated at every node (`solvers/judge.py`). Nodes
where it is large hang on the rest by less than rounding, and are treated as what they are to this precision: not
connected.

Read next: `nn/layer.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gll.checks import all_finite, carries_load, check_arguments, unbalanced_source
from gll.equations import AbstractEquation
from gll.forward import ERROR_TOLERANCE, Outcome
from gll.graph import Graph
from gll.labels import Labels
from gll.operators import component_mean
from gll.problem import Inputs, Problem
from gll.solution import RESULT, Solution, SolveError
from gll.solvers.auto import Auto
from gll.solvers.base import AbstractLinearSolver
from gll.solvers.newton import Newton
from gll.unreached import Unreached, UnreachedWarning, fallback_values, sort_nodes, uniform_value, weight_cut

Weak = Callable[..., Tensor]


class _Implicit(torch.autograd.Function):
    # Derivation. Let u(θ) solve P(u, v; θ) = 0 for all v. Differentiating, ∂_u P(u, v)[du] = -∂_θ P(u, v)[dθ] for
    # all v, where ∂_u P(u, v)[du] = <A du, v>. Choose v with A v = ū; then, A being symmetric,
    #     dJ = <ū, du> = <A v, du> = <A du, v> = -∂_θ P(u, v)[dθ],
    # so the gradient is minus that of the scalar P at fixed u and v. Differentiating once more, v is itself the
    # solution of a problem of this kind, with the weak form <A(u, θ) v, y> - <ū, y> and the same operator: hence the
    # recursion under create_graph=True. The output u is saved as an output, so it carries its own dependence on θ.
    @staticmethod
    def forward(ctx: Any, weak: Weak, solve_adjoint: Callable[[Tensor], Tensor], u: Tensor, *theta: Tensor) -> Tensor:
        ctx.weak, ctx.solve_adjoint = weak, solve_adjoint
        u = u.clone()
        ctx.save_for_backward(u, *theta)
        return u

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (u, *theta), (u_bar,) = ctx.saved_tensors, cotangents
        again = torch.is_grad_enabled()  # create_graph=True
        wanted = ctx.needs_input_grad[3:]
        v = ctx.solve_adjoint(u_bar.detach())
        if again:
            v = _Implicit.apply(_linearised(ctx.weak), ctx.solve_adjoint, v, u_bar, u, *theta)
        else:
            u, theta = u.detach(), [t.detach().requires_grad_(w) for t, w in zip(theta, wanted, strict=True)]
        with torch.enable_grad():
            # Partial derivatives: u and v depend on θ too, so differentiate with respect to aliases of θ.
            theta = [t.view_as(t) for t in theta]
            value = ctx.weak(u, v, *theta)
            inputs = [t for t, w in zip(theta, wanted, strict=True) if w]
            grads = torch.autograd.grad(value, inputs, create_graph=again, allow_unused=True, materialize_grads=True)
        if all_finite(v) and not all_finite(*grads):
            raise SolveError(RESULT.NONFINITE_OUTPUT, "in the gradient; float64 weights reach further")
        found = iter(grads)
        return None, None, None, *(-next(found) if w else None for w in wanted)


def _linearised(weak: Weak) -> Weak:
    """The weak form of A(u, θ) v = ū, whose unknown is v: <A v, y> - <ū, y>, with A y by autograd."""

    def linearised(v: Tensor, y: Tensor, u_bar: Tensor, u: Tensor, *theta: Tensor) -> Tensor:
        with torch.enable_grad():
            u = u.view_as(u) if u.requires_grad else u.detach().requires_grad_()  # an alias: y may depend on u
            (ay,) = torch.autograd.grad(weak(u, y, *theta), u, create_graph=True)
        return (ay * v).sum() - (u_bar * y).sum()

    return linearised


def solve(
    equation: AbstractEquation,
    graph: Graph,
    labels: Labels | None = None,
    *,
    solver: AbstractLinearSolver | Newton | None = None,
    initial: Tensor | None = None,
    unreached: Unreached | str = Unreached.UNIFORM,
    throw: bool = True,
) -> Solution:
    """Solve an equation on a graph.

        σ(u, x) + div φ(∇u) = f  on free nodes,      u = g  on labelled nodes (or as the equation says).

    Args:
        equation: what to solve: `Laplace()`, `SoftLaplace(lam)`, `PLaplace(p)`, `Poisson()`, ...
        graph: the weighted graph.
        labels: the labelled nodes, or None where the equation allows it.
        solver: how; by default chosen by size and device (`gll.solvers.Auto`), inside `Newton` if nonlinear.
        initial: (n, C) where to start: a warm start, or the start that Ginzburg-Landau requires.
        unreached: what nodes get that the equation does not determine, because no label is connected to them:
            "uniform" (the same value for every class, with a warning), "nearest" (the label of the nearest labelled
            node in feature space, with a warning), or "raise".
        throw: raise `SolveError` on failure; otherwise return the verdict in `Solution.result`, with a placeholder for
            the value, and no gradient.

    Returns:
        A `Solution`; its `value` has the dtype of the weights and carries the gradient.

    Raises:
        SolveError: the solve failed, see `RESULT`.
        ValueError, TypeError: the arguments do not fit together.

    Differentiable in: edge weights (and so features), label values, and the tensors of the equation (τ, λ, p, f),
    to any order. Held fixed: the topology, which nodes are labelled, `initial`.

    >>> import torch, gll
    >>> path = gll.Graph.from_sparse(torch.tensor([[0., 1., 0.], [1., 0., 1.], [0., 1., 0.]]))
    >>> ends = gll.Labels(torch.tensor([0, 2]), torch.tensor([[0.0], [1.0]]))
    >>> gll.solve(gll.Laplace(), path, ends).value.flatten().tolist()
    [0.0, 0.5, 1.0]
    """
    policy = Unreached(unreached)
    if not isinstance(solver, AbstractLinearSolver | Newton | None):
        raise TypeError(f"solver must be an object such as gll.solvers.Cholesky(), got {solver!r}")
    newton = solver if isinstance(solver, Newton) else Newton(linear=solver or Auto())
    linear = newton.linear
    classes = check_arguments(equation, graph, labels, initial)
    dtype = linear.dtype_for(graph.weight.dtype)
    inputs = Inputs(graph.weight, labels, equation)
    constant = inputs.replace([t.detach().to(dtype) for t in inputs.tensors()])
    n, device = graph.num_nodes, graph.weight.device

    def failed(result: RESULT, detail: str = "") -> Solution:
        if throw:
            raise SolveError(result, detail)
        value = graph.weight.new_full((n, classes), uniform_value(equation, labels))
        nan = value.new_full((classes,), float("nan"))
        return Solution(value, result, 0, nan, float("nan"), 0, None, dtype, repr(linear), graph)

    if not all_finite(*constant.tensors(), initial):
        return failed(RESULT.NONFINITE_INPUT)
    boundary, dropped = sort_nodes(equation, graph, labels, constant, classes)
    if dropped is not None and policy is Unreached.RAISE:
        return failed(RESULT.UNREACHED, f"{int(dropped.sum())} of {n} nodes")
    if equation.singular:
        unbalanced = unbalanced_source(constant, graph, classes)
        if unbalanced:
            return failed(RESULT.INCOMPATIBLE_SOURCE, unbalanced)

    cut = None
    for _ in range(4):  # a round more whenever nodes turn out to be unresolved; they leave, so this ends
        free = ~boundary if dropped is None else ~(boundary | dropped)
        # Components are at hand on a CPU; a GPU would have to wait for them.
        known = equation.singular or device.type == "cpu" or "components" in graph.__dict__
        components = graph.components if known else None
        order = newton.linear.numbering() if equation.linear else None
        problem = Problem.build(constant, graph.topology, free, dropped, classes, components, equation.singular, order)
        with torch.no_grad():
            outcome = Outcome.find(problem, newton, None if initial is None else initial.detach().to(dtype))
        if outcome.result is not RESULT.SUCCESSFUL:
            return failed(outcome.result, outcome.detail)
        if outcome.unresolved is None:
            if cut is None or not bool(free.any()):
                break
            if float(outcome.adjoint(cut[problem.free][:, None]).max()) <= ERROR_TOLERANCE:
                break
            # The nodes left out would have had a say in the others: z, with A z = what was cut off, says how much.
            return failed(RESULT.ILL_CONDITIONED, f"{int(cut.count_nonzero())} nodes hang on unresolved ones")
        if policy is Unreached.RAISE:
            return failed(RESULT.ILL_CONDITIONED, f"{int(outcome.unresolved.sum())} of {n} nodes")
        lost = torch.zeros(n, dtype=torch.bool, device=device)
        lost[problem.free] = outcome.unresolved
        if not equation.linear or equation.singular or carries_load(constant, lost):
            # What flows through these nodes decides the others, so they cannot be left out.
            return failed(
                RESULT.ILL_CONDITIONED, f"estimated error {outcome.error:.0e} on {int(lost.sum())} of {n} nodes"
            )
        dropped = lost if dropped is None else dropped | lost
        cut = weight_cut(graph, lost, dtype) if cut is None else cut + weight_cut(graph, lost, dtype)
    else:
        return failed(RESULT.ILL_CONDITIONED, "more nodes are unresolved in every round")

    value = _attach(problem, outcome, inputs)
    value = problem.assemble(value, labels)
    if equation.singular:
        value = value - component_mean(value, graph.components, graph.degree.to(value.dtype))
    value = value.to(graph.weight.dtype)
    if not all_finite(value):
        return failed(RESULT.NONFINITE_OUTPUT, f"in {str(value.dtype)[6:]}")
    count = 0
    if dropped is not None:
        count = int(dropped.sum())
        value = torch.where(dropped[:, None], fallback_values(policy, equation, graph, labels, dropped, value), value)
        warnings.warn(
            f"{count} of {n} nodes are not connected to any labelled node (or too weakly for {str(dtype)[6:]}) and "
            f"got the '{policy.value}' fallback; see Solution.unreached_nodes, or unreached_ of a classifier",
            UnreachedWarning,
            stacklevel=2,
        )
    report = (outcome.steps, outcome.residual, outcome.error, count, dropped, dtype, outcome.method, graph)
    return Solution(value, outcome.result, *report)


def _attach(problem: Problem, outcome: Outcome, inputs: Inputs) -> Tensor:
    """The solution as a differentiable function of the inputs."""
    theta = inputs.tensors()
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in theta):
        return outcome.value
    return _Implicit.apply(problem.weak, outcome.adjoint, outcome.value, *theta)
