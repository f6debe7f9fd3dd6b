"""gradcheck, at its default tolerances and in float64, for every equation and everything it is differentiable in.

Where a check needs digits, the solver is told to deliver them; the check is never loosened.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

import gll
from gll.solvers import AMG, Auto, Cholesky, ConjugateGradient, Newton
from tests.problems import F64, random_graph

# The run-time type checks would double the time of some ten thousand tiny solves.
pytestmark = pytest.mark.usefixtures("as_user")
N, K = 8, 3


def _random(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def _points(n: int = N) -> Tensor:
    """Features whose graph is connected; none of the distances that decide the topology tie."""
    features = random_graph(n, K, seed=7).features
    assert features is not None
    return features.detach()


GRAPH = gll.knn_graph(_points(), K)
INDEX = [0, 4, 7]
SOFT = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], dtype=F64)


@dataclass(frozen=True)
class Problem:
    """An equation as a function of its tensors, with values for all of them."""

    make: Callable[..., gll.AbstractEquation]
    parameters: dict[str, Tensor] = field(default_factory=dict)
    labelled: bool = True
    start: Tensor | None = None
    values: Tensor = SOFT

    def inputs(self) -> dict[str, Tensor]:
        labels = {"g": self.values} if self.labelled else {}
        return {"weight": GRAPH.weight, "features": _points()} | labels | self.parameters

    def solution(self, variables: dict[str, Tensor], solver: object = None, warm: Tensor | None = None) -> Tensor:
        """The solution as a function of `variables`; of the weights, unless the features are among the variables.

        A nonlinear problem may be started from a nearby solution: gradcheck solves it a hundred times.
        """
        device = next(iter(variables.values())).device
        every = {name: tensor.to(device) for name, tensor in self.inputs().items()} | variables
        if "features" in variables:
            graph = gll.knn_graph(variables["features"], K)
        else:
            t = GRAPH.topology
            graph = gll.Graph(gll.Topology(N, t.i.to(device), t.j.to(device)), every["weight"])
        labels = gll.Labels(torch.tensor(INDEX, device=device), every["g"]) if self.labelled else None
        equation = self.make(**{name: every[name] for name in self.parameters})
        start = self.start if warm is None else warm
        initial = None if start is None else start.to(device)
        return gll.solve(equation, graph, labels, solver=solver, initial=initial).value  # type: ignore[arg-type]


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=F64)


def _elliptic(a: Tensor, b: Tensor, source: Tensor) -> gll.Elliptic:
    return gll.Elliptic(
        lambda q, x, y, a, b: q + a * q**3,
        lambda u, x, a, b: b[x[:, 0], None] * torch.sinh(u),
        source,
        parameters={"a": a, "b": b},
    )


F = 0.3 * _random(1, N, 2)
BALANCED = F - F.mean(0)
WELLS_1 = torch.sign(_random(2, N, 1))
WELLS_3 = torch.eye(3, dtype=F64)[torch.arange(N) % 3]
TWO_WELLS = torch.tensor([[1.0], [-1.0], [1.0]], dtype=F64)

LINEAR: dict[str, Problem] = {
    "Laplace": Problem(lambda source: gll.Laplace(source=source), {"source": F}),
    "Laplace tau": Problem(lambda tau, source: gll.Laplace(tau, source), {"tau": _scalar(0.2), "source": F[:, 0]}),
    "Laplace tau per node": Problem(lambda tau: gll.Laplace(tau), {"tau": _random(3, N).abs()}),
    "Laplace without labels": Problem(
        lambda tau, source: gll.Laplace(tau, source), {"tau": _scalar(0.5), "source": F}, labelled=False
    ),
    "SoftLaplace": Problem(
        lambda lam, tau, source: gll.SoftLaplace(lam, tau, source),
        {"lam": _scalar(0.7), "tau": _scalar(0.1), "source": F},
    ),
    "SoftLaplace per label": Problem(
        lambda lam, tau: gll.SoftLaplace(lam, tau),
        {"lam": torch.tensor([0.3, 1.0, 5.0], dtype=F64), "tau": _random(3, N).abs()},
    ),
    "Poisson": Problem(gll.Poisson),
    "Poisson tau": Problem(lambda tau, source: gll.Poisson(source, tau), {"tau": _scalar(0.2), "source": F}),
}
NONLINEAR: dict[str, Problem] = {
    **{
        f"PLaplace {p:g}": Problem(
            lambda p, tau, source: gll.PLaplace(p, tau, source, delta=0.05),
            {"p": _scalar(p), "tau": _scalar(0.1), "source": F},
        )
        for p in (1.5, 3.0, 4.0, 10.0)
    },
    "PLaplace tau 0": Problem(lambda p: gll.PLaplace(p, delta=0.05), {"p": _scalar(3.0)}),
    "GinzburgLandau 1": Problem(
        lambda lam, source: gll.GinzburgLandau(lam, source),
        {"lam": _scalar(4.0), "source": F[:, :1]},
        labelled=False,
        start=WELLS_1,
    ),
    "GinzburgLandau 3": Problem(
        lambda lam, source: gll.GinzburgLandau(lam, source),
        {"lam": _scalar(6.0), "source": 0.1 * _random(4, N, 3)},
        labelled=False,
        start=WELLS_3,
    ),
    "GinzburgLandau labelled": Problem(
        lambda lam: gll.GinzburgLandau(lam), {"lam": _scalar(4.0)}, start=WELLS_1, values=TWO_WELLS
    ),
    "Elliptic": Problem(_elliptic, {"a": _scalar(0.5), "b": _random(5, N).abs() + 0.1, "source": F}),
}
PROBLEMS = LINEAR | NONLINEAR
CASES = [(name, variable) for name, problem in PROBLEMS.items() for variable in problem.inputs()]


def _ids(case: tuple[str, str]) -> str:
    return f"{case[0]}-{case[1]}"


def check(function: Callable[..., Tensor], *variables: Tensor) -> None:
    """gradcheck at its default tolerances, which also ask for the same bits every time, on a GPU too."""
    variables = tuple(v.detach().clone().requires_grad_() for v in variables)
    assert torch.autograd.gradcheck(function, variables)


def check_twice(function: Callable[..., Tensor], *variables: Tensor) -> None:
    """gradgradcheck at its default tolerances, against one random cotangent."""
    variables = tuple(v.detach().clone().requires_grad_() for v in variables)
    torch.manual_seed(1)
    assert torch.autograd.gradgradcheck(function, variables)


# Every equation in everything --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=_ids)
def test_gradient(case: tuple[str, str], device: torch.device) -> None:
    name, variable = case
    problem = PROBLEMS[name]
    value = problem.inputs()[variable].to(device)
    warm = problem.solution({variable: value}) if name in NONLINEAR else None
    check(lambda value: problem.solution({variable: value}, warm=warm), value)


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradient_in_all_at_once(name: str) -> None:
    """Inputs that require a gradient together get what each gets alone; from a cold start as from a warm one."""
    problem = PROBLEMS[name]
    inputs = {key: value.clone().requires_grad_() for key, value in problem.inputs().items() if key != "weight"}
    value = problem.solution(inputs)
    together = torch.autograd.grad(value.square().sum(), list(inputs.values()))
    for (key, tensor), gradient in zip(inputs.items(), together, strict=True):
        fixed = {k: v.detach() for k, v in inputs.items()} | {key: tensor}
        (alone,) = torch.autograd.grad(problem.solution(fixed, warm=value.detach()).square().sum(), tensor)
        torch.testing.assert_close(gradient, alone, rtol=1e-9, atol=1e-10, msg=lambda m, key=key: f"{key}: {m}")


def test_poisson_source() -> None:
    """A source of its own must balance: it is differentiated through the projection that balances it."""

    def solution(source: Tensor, weight: Tensor) -> Tensor:
        return gll.solve(gll.Poisson(source=source - source.mean(0)), GRAPH.with_weight(weight)).value

    check(solution, BALANCED, GRAPH.weight)
    check_twice(solution, BALANCED, GRAPH.weight)


# The second derivative in the features is that of the graph and that of the weights; twice is enough.
SECOND = [
    (name, variable)
    for name, variable in CASES
    if name in LINEAR and (variable != "features" or name in ("Laplace", "Poisson"))
]


@pytest.mark.parametrize("case", SECOND, ids=_ids)
def test_second_derivative(case: tuple[str, str], device: torch.device) -> None:
    name, variable = case
    problem = LINEAR[name]
    check_twice(lambda value: problem.solution({variable: value}), problem.inputs()[variable].to(device))


@pytest.mark.parametrize("name", ["PLaplace 3", "GinzburgLandau labelled", "Elliptic"])
def test_second_derivative_of_nonlinear(name: str) -> None:
    problem = NONLINEAR[name]
    variable = "a" if name == "Elliptic" else "g"
    value = problem.inputs()[variable]
    warm = problem.solution({variable: value})
    check_twice(lambda value: problem.solution({variable: value}, warm=warm), value)


def test_mixed_second_derivative() -> None:
    """∂²/∂w∂g and ∂²/∂w∂τ, which differentiating one input at a time does not see."""
    problem = LINEAR["Laplace tau"]
    inputs = {key: value for key, value in problem.inputs().items() if key != "features"}
    check_twice(lambda *values: problem.solution(dict(zip(inputs, values, strict=True))), *inputs.values())


def test_create_graph_gives_the_same_first_derivative() -> None:
    """The differentiable backward and the fast one are the same function."""
    for problem in PROBLEMS.values():
        inputs = {name: value.clone().requires_grad_() for name, value in problem.inputs().items() if name != "weight"}
        value = problem.solution(inputs)
        fast = torch.autograd.grad(value.square().sum(), list(inputs.values()), retain_graph=True)
        slow = torch.autograd.grad(value.square().sum(), list(inputs.values()), create_graph=True)
        for a, b in zip(fast, slow, strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=1e-12, atol=1e-13)


# Every solver ------------------------------------------------------------------------------------------------------

SOLVERS: dict[str, object] = {
    "Cholesky": Cholesky(),
    "CG": ConjugateGradient(rtol=1e-13),
    "CG + AMG": ConjugateGradient(rtol=1e-13, preconditioner=AMG()),
    "Auto, iterative": Auto(rtol=1e-13, dense_cpu=0, dense_gpu=0, dense_rescue=0, dense_last=0),
    "Auto, rescued": Auto(dense_cpu=0, dense_gpu=0, patience=1),
    "Newton, CG": Newton(linear=ConjugateGradient(rtol=1e-13), rtol=1e-12),
    "Newton, Cholesky": Newton(linear=Cholesky(), rtol=1e-12),
}


def _solver_cases() -> Iterator[tuple[str, str]]:
    for solver in SOLVERS:
        for name in ("Laplace", "Poisson", "PLaplace 4", "GinzburgLandau 3"):
            if "AMG" in solver and (name == "Poisson" or name in NONLINEAR):
                continue  # says so itself, see test_solvers.py
            yield solver, name


@pytest.mark.parametrize("case", list(_solver_cases()), ids=_ids)
def test_gradient_with_every_solver(case: tuple[str, str]) -> None:
    solver, name = case
    if "AMG" in solver:
        pytest.importorskip("pyamg")
    problem = PROBLEMS[name]
    warm = problem.solution({"weight": GRAPH.weight}, solver=SOLVERS[solver]) if name in NONLINEAR else None
    check(lambda value: problem.solution({"weight": value}, solver=SOLVERS[solver], warm=warm), GRAPH.weight)


@pytest.mark.parametrize("solver", ["Cholesky", "CG", "Auto, rescued"])
def test_second_derivative_with_every_solver(solver: str) -> None:
    problem = LINEAR["Laplace"]
    check_twice(lambda value: problem.solution({"weight": value}, solver=SOLVERS[solver]), GRAPH.weight)


# The graph ---------------------------------------------------------------------------------------------------------

GRAPHS: dict[str, Callable[[Tensor], gll.Graph]] = {
    "union": lambda x: gll.knn_graph(x, K),
    "mean": lambda x: gll.knn_graph(x, K, symmetrize=gll.Symmetrize.MEAN),
    "mutual": lambda x: gll.knn_graph(x, K, symmetrize=gll.Symmetrize.MUTUAL),
    "cosine": lambda x: gll.knn_graph(x, K, metric=gll.Metric.COSINE),
    "constant": lambda x: gll.knn_graph(x, K, bandwidth=gll.Constant(0.8)),
    "own bandwidth": lambda x: gll.knn_graph(x, K, bandwidth=lambda distance: distance.mean(1)),
    "own kernel": lambda x: gll.knn_graph(x, K, kernel=lambda z: 1 / (1 + z)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_graph_gradient(name: str, device: torch.device) -> None:
    check(lambda x: GRAPHS[name](x).weight, _points().to(device))


@pytest.mark.parametrize("name", GRAPHS)
def test_graph_second_derivative(name: str, device: torch.device) -> None:
    check_twice(lambda x: GRAPHS[name](x).weight, _points().to(device))


@pytest.mark.parametrize("epsilon", [0.8, [0.5 + 0.1 * i for i in range(N)]], ids=["scalar", "per node"])
def test_constant_bandwidth_gradient(epsilon: float | list[float]) -> None:
    def weight(x: Tensor, epsilon: Tensor) -> Tensor:
        return gll.knn_graph(x, K, bandwidth=gll.Constant(epsilon)).weight

    check(weight, _points(), torch.tensor(epsilon, dtype=F64))
    check_twice(weight, _points(), torch.tensor(epsilon, dtype=F64))


def test_kernel_scale_gradient() -> None:
    def weight(x: Tensor, scale: Tensor) -> Tensor:
        return gll.knn_graph(x, K, kernel=gll.Gaussian(scale)).weight

    check(weight, _points(), _scalar(4.0))
    check_twice(weight, _points(), _scalar(4.0))


def test_edge_sqdist_gradient() -> None:
    check(lambda x: gll.edge_sqdist(x, GRAPH.topology), _points())
    check_twice(lambda x: gll.edge_sqdist(x, GRAPH.topology), _points())


def test_from_sparse_gradient() -> None:
    """A weight matrix of the user's keeps its gradient."""
    edge = torch.nonzero(GRAPH.to_dense()).T

    def solution(half: Tensor) -> Tensor:
        dense = torch.zeros(N, N, dtype=F64).index_put(tuple(edge), half)
        graph = gll.Graph.from_sparse((dense + dense.T).to_sparse_coo())
        return gll.solve(gll.Laplace(tau=0.1), graph, gll.Labels(torch.tensor(INDEX), SOFT)).value

    check(solution, GRAPH.to_dense()[tuple(edge)] / 2)


REWEIGHTINGS = ("wnll", "poisson", "properly_weighted")


@pytest.mark.parametrize("name", REWEIGHTINGS)
@pytest.mark.parametrize("of", ["weight", "features"])
def test_reweighting_gradient(name: str, of: str) -> None:
    labels = gll.Labels(torch.tensor(INDEX), SOFT)
    # A finite difference cannot hold the default radius fixed, and a bound of 1e7 would drown it in rounding.
    options = {"radius": 0.7, "zeta": 50.0} if name == "properly_weighted" else {}
    reweight = functools.partial(getattr(gll.reweight, name), **options)

    def weight(value: Tensor) -> Tensor:
        if of == "features":
            return reweight(gll.knn_graph(value, K), labels).weight
        return reweight(gll.Graph(GRAPH.topology, value, features=_points()), labels).weight

    check(weight, GRAPH.weight if of == "weight" else _points())


# The layer ---------------------------------------------------------------------------------------------------------

LAYERS: dict[str, dict[str, object]] = {
    "laplace": {},
    "tau": {"equation": gll.Laplace(0.1)},
    "not normalised": {"normalize": False},
    "poisson": {"equation": gll.Poisson()},
    "soft": {"equation": gll.SoftLaplace(2.0)},
    "p-laplace": {"equation": gll.PLaplace(3.0, delta=0.05)},
    "wnll": {"reweight": gll.reweight.wnll},
    "constant": {"bandwidth": gll.Constant(1.0)},
    "mean": {"symmetrize": gll.Symmetrize.MEAN},
}


@pytest.mark.parametrize("inductive", [False, True], ids=["transductive", "inductive"])
@pytest.mark.parametrize("name", LAYERS)
def test_layer_gradient(name: str, inductive: bool) -> None:
    layer = gll.GraphLearningLayer(2, k=K, inductive=inductive, **LAYERS[name])  # type: ignore[arg-type]
    classes = torch.tensor([0, 1, -1, 0, 1])
    base, x = _random(11, 5, 3), _random(12, 4, 3)
    check(lambda x, base: layer(x, base, classes), x, base)


@pytest.mark.parametrize("inductive", [False, True], ids=["transductive", "inductive"])
def test_layer_gradient_in_soft_labels(inductive: bool) -> None:
    layer = gll.GraphLearningLayer(2, k=K, inductive=inductive)
    base, x, soft = _random(11, 5, 3), _random(12, 4, 3), torch.softmax(_random(13, 5, 2), 1)
    check(lambda soft: layer(x, base, soft), soft)


def test_layer_second_derivative() -> None:
    layer = gll.GraphLearningLayer(2, k=K)
    base, x = _random(11, 5, 2), _random(12, 4, 2)
    check_twice(lambda x, base: layer(x, base, torch.tensor([0, 1, -1, 0, 1])), x, base)
