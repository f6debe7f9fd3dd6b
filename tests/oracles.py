"""Slow and obvious twins of what the library does fast: dense matrices and plain autograd, the formulas of the paper's
theorem and lemma written out, and iterations unrolled under autograd. Nothing here calls the library.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Phi = Callable[[Tensor], Tensor]

# From features to weights ------------------------------------------------------------------------------------------


def neighbors(x: Tensor, k: int) -> Tensor:
    """(n, k) nearest other points by brute force; ties go to the smaller index."""
    x = x.detach().double()
    square = (x[:, None] - x[None]).square().sum(2)
    square.fill_diagonal_(torch.inf)
    return square.sort(dim=1, stable=True).indices[:, :k]


def chosen(index: Tensor) -> Tensor:
    """(n, n) whether i has chosen j."""
    return torch.zeros(len(index), len(index), dtype=torch.bool, device=index.device).scatter(1, index, True)


def adjacency(index: Tensor, symmetrize: str = "union") -> Tensor:
    """(n, n) factors of the edges: what one end's choice, and both ends' choice, is worth."""
    a = chosen(index)
    factor = {"union": a | a.T, "mutual": a & a.T, "mean": (a.double() + a.T.double()) / 2}
    return factor[symmetrize].double()


def sqdist(x: Tensor) -> Tensor:
    return (x[:, None] - x[None]).square().sum(2)


def weights(
    x: Tensor, k: int, *, epsilon: Tensor | float | None = None, scale: Tensor | float = 4.0, symmetrize: str = "union"
) -> Tensor:
    """w_ij = exp(-scale d²/(ε_i ε_j)) on the edges of the kNN graph, with ε_i the distance to the k-th neighbour."""
    index, square = neighbors(x, k), sqdist(x)
    if epsilon is None:
        bandwidth = square[torch.arange(len(x)), index[:, -1]].sqrt()
    else:
        bandwidth = torch.as_tensor(epsilon, dtype=x.dtype, device=x.device).expand(len(x))
    return adjacency(index, symmetrize) * torch.exp(-scale * square / (bandwidth[:, None] * bandwidth))


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=1, keepdim=True)


# From weights to solutions -----------------------------------------------------------------------------------------


def laplacian(w: Tensor) -> Tensor:
    return torch.diag(w.sum(1)) - w


def _unlabelled(n: int, index: Tensor) -> Tensor:
    mask = torch.ones(n, dtype=torch.bool, device=index.device)
    mask[index] = False
    return torch.nonzero(mask).squeeze(1)


def _per_node(value: Tensor | float, like: Tensor) -> Tensor:
    return torch.as_tensor(value, dtype=like.dtype, device=like.device).expand(len(like))


def laplace(w: Tensor, index: Tensor, g: Tensor, tau: Tensor | float = 0.0, f: Tensor | None = None) -> Tensor:
    """τu + Δu = f on unlabelled nodes, u = g on labelled ones."""
    free = _unlabelled(len(w), index)
    a = laplacian(w) + torch.diag(_per_node(tau, w))
    rhs = -a[free][:, index] @ g
    if f is not None:
        rhs = rhs + f[free]
    u = torch.linalg.solve(a[free][:, free], rhs)
    return g.new_zeros(len(w), g.shape[1]).index_copy(0, index, g).index_copy(0, free, u)


def soft_laplace(
    w: Tensor, index: Tensor, g: Tensor, lam: Tensor | float, tau: Tensor | float = 0.0, f: Tensor | None = None
) -> Tensor:
    """τu + Δu + λξ(u - g) = f."""
    pull = w.new_zeros(len(w)).index_copy(0, index, _per_node(lam, g))
    rhs = g.new_zeros(len(w), g.shape[1]).index_copy(0, index, g) * pull[:, None]
    rhs = rhs if f is None else rhs + f
    return torch.linalg.solve(laplacian(w) + torch.diag(_per_node(tau, w) + pull), rhs)


def poisson(w: Tensor, index: Tensor, g: Tensor, tau: Tensor | None = None) -> Tensor:
    """τu + Δu = Σ (g - ḡ) δ; without τ on a connected graph, with degree-weighted mean zero as a bordered system."""
    f = g.new_zeros(len(w), g.shape[1]).index_copy(0, index, g - g.mean(0))
    if tau is not None:
        return torch.linalg.solve(laplacian(w) + torch.diag(tau.expand(len(w))), f)
    degree = w.sum(1)[:, None]
    border = torch.ones_like(degree)
    matrix = torch.cat([torch.cat([laplacian(w), border], 1), torch.cat([degree.T, w.new_zeros(1, 1)], 1)])
    return torch.linalg.solve(matrix, torch.cat([f, f.new_zeros(1, f.shape[1])]))[:-1]


def elliptic_residual(w: Tensor, u: Tensor, phi: Phi, sigma: Phi | None, f: Tensor | None) -> Tensor:
    """σ(u) + div φ(∇u) - f at every node, by sums over all pairs."""
    r = torch.einsum("xy,xyc->xc", w, phi(u[:, None] - u[None]))
    r = r if sigma is None else r + sigma(u)
    return r if f is None else r - f


# Iterations, unrolled under autograd -------------------------------------------------------------------------------


def jacobi(w: Tensor, index: Tensor, g: Tensor, tau: Tensor | float, f: Tensor | None, steps: int) -> Tensor:
    """Label propagation: u ← (W u + f)/(deg + τ), then reset u = g on the labelled nodes."""
    u = g.new_zeros(len(w), g.shape[1])
    for _ in range(steps):
        u = u.index_copy(0, index, g)
        u = (w @ u + (0 if f is None else f)) / (w.sum(1) + _per_node(tau, w))[:, None]
    return u.index_copy(0, index, g)


def gradient_descent(w: Tensor, u: Tensor, phi: Phi, sigma: Phi, f: Tensor | None, rate: float, steps: int) -> Tensor:
    """u ← u - rate (σ(u) + div φ(∇u) - f) from a given start, without labels."""
    for _ in range(steps):
        u = u - rate * elliptic_residual(w, u, phi, sigma, f)
    return u


def newton(
    w: Tensor, index: Tensor, g: Tensor, u: Tensor, phi: Phi, sigma: Phi | None, f: Tensor | None, steps: int
) -> Tensor:
    """Newton's method from a start near the solution, with the dense Jacobian of all free values, differentiable."""
    free = _unlabelled(len(w), index)

    def full(v: Tensor) -> Tensor:
        return g.new_zeros(len(w), g.shape[1]).index_copy(0, index, g).index_copy(0, free, v)

    def residual(v: Tensor) -> Tensor:
        return elliptic_residual(w, full(v), phi, sigma, f)[free]

    v = u[free]
    for _ in range(steps):
        jacobian = torch.autograd.functional.jacobian(residual, v, create_graph=True).reshape(v.numel(), v.numel())
        v = v - torch.linalg.solve(jacobian, residual(v).flatten()).view_as(v)
    return full(v)


# The paper's formulas ----------------------------------------------------------------------------------------------


def theorem(
    w: Tensor, u: Tensor, u_bar: Tensor, index: Tensor, phi: Phi, phi_q: Phi, sigma_z: Phi | None
) -> tuple[Tensor, Tensor, Tensor]:
    """∇_W J (n, n), ∇_f J on the unlabelled nodes and ∇_g J on the labelled ones: equations gradW, gradf, gradg.

    Columns are independent; the weights, which they share, collect the sum over columns.
    """
    n, classes = u.shape
    free, q = _unlabelled(n, index), u[:, None] - u[None]
    v, grad_w, grad_g = torch.zeros_like(u), torch.zeros_like(w), []
    for c in range(classes):
        slope = phi_q(q[:, :, c])
        a = laplacian(w * slope)  # v -> div(φ_q ∇v)
        if sigma_z is not None:
            a = a + torch.diag(sigma_z(u[:, c]))
        v[free, c] = torch.linalg.solve(a[free][:, free], u_bar[free, c])
        grad_w += -0.5 * (phi(q[:, :, c]) - phi(q[:, :, c].T)) * v[:, c, None]
        grad_g.append(u_bar[index, c] - (laplacian(w * slope) @ v[:, c])[index])
    return grad_w, v[free], torch.stack(grad_g, 1)


def lemma(x: Tensor, index: Tensor, grad_w: Tensor, eta_prime: Phi) -> Tensor:
    """∇_x J from G = ∇_W J: equation final_grad1, term by term, for w = η(d²/(2 ε_i ε_j))."""
    n, a, square = len(x), adjacency(index), sqdist(x)
    kth = index[:, -1]
    eps = square[torch.arange(n), kth].sqrt()
    slope = eta_prime(square / (2 * eps[:, None] * eps))
    tilde = grad_w + grad_w.T
    b = (tilde * a * slope * square / (2 * eps[:, None] ** 3 * eps)).sum(1)
    out = torch.zeros_like(x)
    for i in range(n):
        for j in range(n):
            out[i] += tilde[i, j] * a[i, j] * slope[i, j] / (eps[i] * eps[j]) * (x[i] - x[j])
            if kth[j] == i:
                out[i] += b[j] * (x[j] - x[i])
        out[i] -= b[i] * (x[i] - x[kth[i]])
    return out


def lemma_matrices(x: Tensor, index: Tensor, grad_w: Tensor, eta_prime: Phi) -> tuple[Tensor, Tensor, Tensor]:
    """H, M and the second term Σ_j c_ij b_j (x_j - x_kj) of section 3.2.1; the gradient is L_{H-M} X."""
    n, a, square = len(x), adjacency(index), sqdist(x)
    kth = index[:, -1]
    eps = square[torch.arange(n), kth].sqrt()
    tilde_v = (grad_w + grad_w.T) * a * eta_prime(square / (2 * eps[:, None] * eps))
    h = tilde_v / (eps[:, None] * eps)
    b = (tilde_v * square / (2 * eps[:, None] ** 3 * eps)).sum(1)
    c = -torch.eye(n, dtype=x.dtype, device=x.device)
    c[kth, torch.arange(n)] = 1
    return h, c * b + (c * b).T, c @ (b[:, None] * (x - x[kth]))
