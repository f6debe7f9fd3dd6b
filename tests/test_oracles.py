"""The library against slow and obvious twins: dense autograd, the paper's formulas, unrolled iterations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import gll
from tests import oracles
from tests.problems import F64

N, D, K, CLASSES = 14, 3, 4, 3
INDEX = [0, 3, 4, 9]


def features(device: torch.device, seed: int = 0, n: int = N) -> Tensor:
    """Points whose kNN graph is connected and stays clear of ties."""
    for trial in range(100):
        generator = torch.Generator().manual_seed(100 * seed + trial)
        x = torch.randn(n, D, generator=generator, dtype=F64)
        if int(gll.knn_graph(x, K, symmetrize=gll.Symmetrize.MUTUAL).components.max()) == 0:
            return x.to(device).requires_grad_()
    raise AssertionError("no connected mutual graph")


def label_values(device: torch.device) -> Tensor:
    return torch.eye(CLASSES, dtype=F64, device=device)[[0, 1, 2, 1]].requires_grad_()


def assert_same(ours: Tensor, theirs: Tensor, tolerance: float, what: str = "value") -> None:
    scale = float(theirs.detach().abs().max())
    gap = float((ours - theirs).detach().abs().max())
    assert scale > 1e-6, f"{what}: nothing to compare, both sides are about zero"
    assert gap <= tolerance * max(scale, 1), f"{what} differ by {gap:.1e} at a scale of {scale:.1e}"


def compare(
    ours: Callable[..., Tensor], theirs: Callable[..., Tensor], inputs: dict[str, Tensor], tolerance: float = 1e-10
) -> None:
    """Values and all gradients of a loss with random coefficients agree."""
    a, b = ours(**inputs), theirs(**inputs)
    assert_same(a, b, tolerance)
    u_bar = torch.randn(b.shape, dtype=F64).to(b.device)
    for gradients in zip(
        inputs,
        torch.autograd.grad((u_bar * a).sum(), list(inputs.values())),
        torch.autograd.grad((u_bar * b).sum(), list(inputs.values())),
        strict=True,
    ):
        name, ours_grad, theirs_grad = gradients
        assert_same(ours_grad, theirs_grad, tolerance, f"gradients in {name}")


def var(value: float | list[float], device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=F64, device=device, requires_grad=True)


# Dense autograd ----------------------------------------------------------------------------------------------------

GRAPHS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "union": ({}, {}),
    "mutual": ({"symmetrize": gll.Symmetrize.MUTUAL}, {"symmetrize": "mutual"}),
    "mean": ({"symmetrize": gll.Symmetrize.MEAN}, {"symmetrize": "mean"}),
    "constant": ({"bandwidth": gll.Constant(1.3)}, {"epsilon": 1.3}),
    "kernel": ({"kernel": gll.Gaussian(1.7)}, {"scale": 1.7}),
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_weights_equal_dense_autograd(graph: str, device: torch.device) -> None:
    ours, theirs = GRAPHS[graph]
    compare(
        lambda x: gll.knn_graph(x, K, **ours).to_dense(),  # type: ignore[arg-type]
        lambda x: oracles.weights(x, K, **theirs),  # type: ignore[arg-type]
        {"x": features(device)},
    )


def test_cosine_weights_equal_dense_autograd(device: torch.device) -> None:
    compare(
        lambda x: gll.knn_graph(x, K, metric=gll.Metric.COSINE).to_dense(),
        lambda x: oracles.weights(oracles.unit(x), K),
        {"x": features(device)},
    )


def _source(device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(N, CLASSES, generator=generator, dtype=F64).to(device).requires_grad_()


def _equations(
    device: torch.device,
) -> dict[str, tuple[Callable[..., object], Callable[..., Tensor], dict[str, Tensor]]]:
    """Equation, its dense twin on (w, index, g), and the inputs they share."""
    tau, lam = var(0.2, device), var(1.5, device)
    per_node = var([0.1 * i for i in range(N)], device)
    per_label = var([0.5, 1.0, 2.0, 4.0], device)
    f = _source(device)
    return {
        "Laplace": (gll.Laplace, oracles.laplace, {}),
        "tau, f": (
            lambda tau, f: gll.Laplace(tau=tau, source=f),
            lambda w, i, g, tau, f: oracles.laplace(w, i, g, tau, f),
            {"tau": tau, "f": f},
        ),
        "tau per node": (lambda tau: gll.Laplace(tau=tau), oracles.laplace, {"tau": per_node}),
        "soft": (
            lambda lam, tau, f: gll.SoftLaplace(lam=lam, tau=tau, source=f),
            oracles.soft_laplace,
            {"lam": lam, "tau": tau, "f": f},
        ),
        "lam per label": (lambda lam: gll.SoftLaplace(lam=lam), oracles.soft_laplace, {"lam": per_label}),
        "Poisson": (gll.Poisson, oracles.poisson, {}),
        "Poisson tau": (lambda tau: gll.Poisson(tau=tau), oracles.poisson, {"tau": per_node + 0.1}),
    }


EQUATIONS = ["Laplace", "tau, f", "tau per node", "soft", "lam per label", "Poisson", "Poisson tau"]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_pipeline_equals_dense_autograd(equation: str, device: torch.device) -> None:
    """Features -> weights -> solution, with gradients in the features, the labels and every parameter."""
    make, twin, extra = _equations(device)[equation]
    index = torch.tensor(INDEX, device=device)

    def ours(x: Tensor, g: Tensor, **parameters: Tensor) -> Tensor:
        return gll.solve(make(**parameters), gll.knn_graph(x, K), gll.Labels(index, g)).value  # type: ignore[arg-type]

    def theirs(x: Tensor, g: Tensor, **parameters: Tensor) -> Tensor:
        return twin(oracles.weights(x, K), index, g, **parameters)

    compare(ours, theirs, {"x": features(device), "g": label_values(device), **extra})


def _reweighted_densely(name: str, w: Tensor, x: Tensor, index: Tensor) -> Tensor:
    n, m = len(w), len(index)
    marks = w.new_zeros(n).index_fill(0, index, 1)
    if name == "wnll":
        gamma = 1 + marks * (n / m - 1)
        return w * (gamma[:, None] + gamma) / 2
    if name == "poisson":
        # The mean of γ does not matter: it is shifted to have its smallest value at a fraction of the largest.
        bordered = torch.cat([torch.cat([oracles.laplacian(w), w.new_ones(n, 1)], 1), w.new_ones(1, n + 1)])
        bordered[-1, -1] = 0
        gamma = torch.linalg.solve(bordered, torch.cat([marks - m / n, w.new_zeros(1)]))[:-1]
        gamma = gamma - gamma.min()
        gamma = gamma + 1e-5 * gamma.max()
        return w * gamma[:, None] * gamma
    square = oracles.sqdist(x)[:, index]
    nearest = square.detach().argmin(1)
    distance = square[torch.arange(n), nearest].clamp(min=1e-30).sqrt()
    reach = distance.detach().mean()
    gamma = 1 + (reach / distance.clamp(min=reach / (1e7 - 1) ** 0.5)) ** 2
    return w * (gamma[:, None] + gamma) / 2


@pytest.mark.parametrize("name", ["wnll", "poisson", "properly_weighted"])
def test_reweighting_equals_dense_autograd(name: str, device: torch.device) -> None:
    index = torch.tensor(INDEX, device=device)
    reweight = getattr(gll.reweight, name)

    def ours(x: Tensor, g: Tensor) -> Tensor:
        labels = gll.Labels(index, g)
        return gll.solve(gll.Laplace(), reweight(gll.knn_graph(x, K), labels), labels).value

    def theirs(x: Tensor, g: Tensor) -> Tensor:
        return oracles.laplace(_reweighted_densely(name, oracles.weights(x, K), x, index), index, g)

    compare(ours, theirs, {"x": features(device), "g": label_values(device)})


@pytest.mark.parametrize("tau", [0.0, 0.05])
def test_layer_equals_dense_autograd(tau: float, device: torch.device) -> None:
    """The transductive layer: normalise, graph of base and batch, Laplace, log(u + 1e-8)."""
    classes = torch.tensor([0, 1, 2, 0, 1, 2], device=device)
    layer = gll.GraphLearningLayer(CLASSES, k=K, equation=gll.Laplace(tau=tau))
    x, base = features(device, 1).detach()[:9].requires_grad_(), features(device, 2).detach()[:6].requires_grad_()

    def theirs(x: Tensor, base: Tensor) -> Tensor:
        w = oracles.weights(oracles.unit(torch.cat([base, x])), K)
        one_hot = torch.eye(CLASSES, dtype=F64, device=device)[classes]
        return torch.log(oracles.laplace(w, torch.arange(6, device=device), one_hot, tau)[6:] + 1e-8)

    compare(lambda x, base: layer(x, base, classes), theirs, {"x": x, "base": base})


@pytest.mark.parametrize("tau", [0.0, 0.05])
@pytest.mark.parametrize("epsilon", [None, 0.7], ids=["self-tuned", "constant"])
def test_layer_in_float32_equals_dense_autograd_in_float64(
    tau: float, epsilon: float | None, device: torch.device
) -> None:
    """Single precision, where small batches take a path of their own: the same logits and gradients to 1e-5."""
    classes = torch.tensor([0, 1, 2, 0, 1, 2], device=device)
    bandwidth = None if epsilon is None else gll.Constant(epsilon)
    layer = gll.GraphLearningLayer(CLASSES, k=K, equation=gll.Laplace(tau=tau), bandwidth=bandwidth)
    x, base = features(device, 1).detach()[:9].float(), features(device, 2).detach()[:6].float()

    def theirs(x: Tensor, base: Tensor) -> Tensor:
        w = oracles.weights(oracles.unit(torch.cat([base, x])), K, epsilon=epsilon)
        one_hot = torch.eye(CLASSES, dtype=F64, device=device)[classes]
        return torch.log(oracles.laplace(w, torch.arange(6, device=device), one_hot, tau)[6:] + 1e-8)

    def ours(x: Tensor, base: Tensor) -> Tensor:
        logits = layer(x.float(), base.float(), classes)
        assert logits.dtype == torch.float32
        return logits.double()

    inputs = {"x": x.double().requires_grad_(), "base": base.double().requires_grad_()}
    compare(ours, theirs, inputs, tolerance=1e-5)


@pytest.mark.parametrize("tau", [0.0, 0.05])
def test_inductive_layer_equals_dense_autograd(tau: float, device: torch.device) -> None:
    """Each query is a weighted mean of its k nearest base nodes, whose own values are solved without it."""
    classes = torch.tensor([0, 1, 2, -1, 1, 2, -1], device=device)
    layer = gll.GraphLearningLayer(CLASSES, k=K, equation=gll.Laplace(tau=tau), inductive=True)
    x, base = features(device, 1).detach()[:5].requires_grad_(), features(device, 4).detach()[:7].requires_grad_()
    labelled = torch.tensor([0, 1, 2, 4, 5], device=device)

    def theirs(x: Tensor, base: Tensor) -> Tensor:
        x, base = oracles.unit(x), oracles.unit(base)
        one_hot = torch.eye(CLASSES, dtype=F64, device=device)[classes[labelled]]
        value = oracles.laplace(oracles.weights(base, K), labelled, one_hot, tau)
        own = oracles.sqdist(base)[torch.arange(7), oracles.neighbors(base, K)[:, -1]].sqrt()
        square = (x[:, None] - base[None]).square().sum(2)
        near = square.detach().sort(dim=1).indices[:, :K]
        edge = square.gather(1, near)
        w = torch.exp(-4 * edge / (edge[:, -1:].sqrt() * own[near]))
        u = torch.einsum("bk,bkc->bc", w, value[near]) / (tau + w.sum(1))[:, None]
        return torch.log(u + 1e-8)

    compare(lambda x, base: layer(x, base, classes), theirs, {"x": x, "base": base})


# The theorem and the lemma -----------------------------------------------------------------------------------------


def _p_flux(p: float, delta: float) -> tuple[oracles.Phi, oracles.Phi]:
    def phi(q: Tensor) -> Tensor:
        return (q * q + delta**2) ** ((p - 2) / 2) * q

    def phi_q(q: Tensor) -> Tensor:
        return (q * q + delta**2) ** ((p - 2) / 2) * (1 + (p - 2) * q * q / (q * q + delta**2))

    return phi, phi_q


THEOREM: dict[str, tuple[Callable[[Tensor], gll.AbstractEquation], oracles.Phi, oracles.Phi, oracles.Phi | None]] = {
    "Laplace": (lambda f: gll.Laplace(source=f), lambda q: q, torch.ones_like, None),
    "tau": (lambda f: gll.Laplace(tau=0.3, source=f), lambda q: q, torch.ones_like, lambda u: 0.3 * torch.ones_like(u)),
    "p = 1.5": (lambda f: gll.PLaplace(p=1.5, source=f), *_p_flux(1.5, 1e-3), None),
    "p = 4": (
        lambda f: gll.PLaplace(p=4.0, tau=0.1, source=f, delta=1e-2),
        *_p_flux(4.0, 1e-2),
        lambda u: 0.1 * torch.ones_like(u),
    ),
    "sinh, cubic": (
        lambda f: gll.Elliptic(lambda q, x, y: torch.sinh(q), lambda u, x: u**3 + u, f),
        torch.sinh,
        torch.cosh,
        lambda u: 3 * u**2 + 1,
    ),
}


@pytest.mark.parametrize("name", THEOREM)
def test_theorem(name: str, device: torch.device) -> None:
    """Equations gradW, gradf, gradg, evaluated at our u, are our gradients; ∇_W is ours per undirected edge."""
    make, phi, phi_q, sigma_z = THEOREM[name]
    graph = gll.knn_graph(features(device).detach(), K)
    weight = graph.weight.requires_grad_()
    index, g, f = torch.tensor(INDEX, device=device), label_values(device), _source(device)
    solution = gll.solve(make(f), graph, gll.Labels(index, g))
    u_bar = torch.randn(N, CLASSES, dtype=F64).to(device)
    ours = torch.autograd.grad((u_bar * solution.value).sum(), (weight, f, g))
    dense = graph.to_dense().detach()
    grad_w, grad_f, grad_g = oracles.theorem(dense, solution.value.detach(), u_bar, index, phi, phi_q, sigma_z)
    i, j = graph.topology.i, graph.topology.j
    assert_same(ours[0], (grad_w + grad_w.T)[i, j], 1e-12, "gradients in w")
    free = torch.ones(N, dtype=torch.bool)
    free[INDEX] = False
    assert_same(ours[1][free.to(device)], grad_f, 1e-12, "gradients in f")
    assert float(ours[1][~free.to(device)].abs().max()) == 0  # f is not used on labelled nodes
    assert_same(ours[2], grad_g, 1e-12, "gradients in g")


def test_symmetrised_gradient(device: torch.device) -> None:
    """For Laplace the two orders of an edge together give -∇u ∇v; each alone -∇u(x, y) v(x), their mean half of it."""
    graph = gll.knn_graph(features(device).detach(), K)
    graph.weight.requires_grad_()
    index, g = torch.tensor(INDEX, device=device), label_values(device).detach()
    u = gll.solve(gll.Laplace(), graph, gll.Labels(index, g)).value
    u_bar = torch.randn(N, CLASSES, dtype=F64).to(device)
    (ours,) = torch.autograd.grad((u_bar * u).sum(), graph.weight)
    free = [x for x in range(N) if x not in INDEX]
    v = torch.zeros_like(u_bar)
    v[free] = torch.linalg.solve(oracles.laplacian(graph.to_dense().detach())[free][:, free], u_bar[free])
    assert_same(ours, -(graph.gradient(u.detach()) * graph.gradient(v)).sum(1), 1e-12, "gradients in w")


def _eta_prime(z: Tensor) -> Tensor:
    return -8 * torch.exp(-8 * z)  # η(d²/(2εε)) = exp(-4 d²/(εε)): decision 1


def test_lemma(device: torch.device) -> None:
    """∇_x J of the whole pipeline is the lemma's formula with G from the theorem, and L_{H-M} X."""
    x, index = features(device), torch.tensor(INDEX, device=device)
    graph = gll.knn_graph(x, K)
    u = gll.solve(gll.Laplace(tau=0.1), graph, gll.Labels(index, label_values(device).detach())).value
    u_bar = torch.randn(N, CLASSES, dtype=F64).to(device)
    (ours,) = torch.autograd.grad((u_bar * u).sum(), x)
    w, x = graph.to_dense().detach(), x.detach()
    grad_w, _, _ = oracles.theorem(
        w, u.detach(), u_bar, index, lambda q: q, torch.ones_like, lambda u: 0.1 * torch.ones_like(u)
    )
    near = oracles.neighbors(x, K)
    assert_same(ours, oracles.lemma(x, near, grad_w, _eta_prime), 1e-12, "gradients in x (lemma)")
    h, m, second = oracles.lemma_matrices(x, near, grad_w, _eta_prime)
    assert_same(ours, oracles.laplacian(h - m) @ x, 1e-12, "gradients in x (L_{H-M} X)")
    assert_same(second, -oracles.laplacian(m) @ x, 1e-12, "second term")  # decision 3: the sign in the text is wrong


# Unrolled iterations -----------------------------------------------------------------------------------------------


def test_unrolled_jacobi(device: torch.device) -> None:
    index, tau = torch.tensor(INDEX, device=device), var(0.5, device)

    def ours(x: Tensor, g: Tensor, tau: Tensor, f: Tensor) -> Tensor:
        return gll.solve(gll.Laplace(tau=tau, source=f), gll.knn_graph(x, K), gll.Labels(index, g)).value

    def theirs(x: Tensor, g: Tensor, tau: Tensor, f: Tensor) -> Tensor:
        return oracles.jacobi(oracles.weights(x, K), index, g, tau, f, steps=400)

    inputs = {"x": features(device), "g": label_values(device), "tau": tau, "f": _source(device)}
    compare(ours, theirs, inputs)


@pytest.mark.parametrize("p", [1.5, 3.0, 4.0, 10.0])
def test_unrolled_newton_p_laplace(p: float, device: torch.device) -> None:
    index, power = torch.tensor([0, 3], device=device), var(p, device)
    x, g = features(device, 3, n=8), torch.eye(2, dtype=F64, device=device).requires_grad_()

    def ours(x: Tensor, g: Tensor, p: Tensor) -> Tensor:
        return gll.solve(gll.PLaplace(p=p, delta=0.1), gll.knn_graph(x, K), gll.Labels(index, g)).value

    start = ours(x, g, power).detach() + 1e-4

    def theirs(x: Tensor, g: Tensor, p: Tensor) -> Tensor:
        w = oracles.weights(x, K)
        return oracles.newton(w, index, g, start, lambda q: (q * q + 0.01) ** ((p - 2) / 2) * q, None, None, steps=5)

    compare(ours, theirs, {"x": x, "g": g, "p": power})


def _wells(lam: Tensor) -> oracles.Phi:
    """(λ/2) G' by autograd, for G = Π_c |u - e_c|² / 2^(C-1)."""

    def sigma(u: Tensor) -> Tensor:
        corner = torch.eye(u.shape[1], dtype=u.dtype, device=u.device)
        with torch.enable_grad():
            z = u if u.requires_grad else u.detach().requires_grad_()
            potential = (z[:, None] - corner).square().sum(2).prod(1).sum() / 2 ** (u.shape[1] - 1)
            (slope,) = torch.autograd.grad(potential, z, create_graph=True)
        return lam / 2 * slope

    return sigma


def test_unrolled_gradient_descent_ginzburg_landau(device: torch.device) -> None:
    x, lam, f = features(device, 5, n=9), var(3.0, device), 0.05 * _source(device).detach()[:9]
    start = torch.eye(CLASSES, dtype=F64, device=device)[[0, 0, 0, 1, 1, 1, 2, 2, 2]]

    def ours(x: Tensor, lam: Tensor, f: Tensor) -> Tensor:
        return gll.solve(gll.GinzburgLandau(lam=lam, source=f), gll.knn_graph(x, K), initial=ours_start).value

    def theirs(x: Tensor, lam: Tensor, f: Tensor) -> Tensor:
        return oracles.gradient_descent(oracles.weights(x, K), start, lambda q: q, _wells(lam), f, rate=0.2, steps=400)

    ours_start = theirs(x, lam, f).detach() + 1e-3  # the same minimum; which one is found depends on the start
    compare(ours, theirs, {"x": x, "lam": lam, "f": f.requires_grad_()})
