"""Random problems meant to break a solver of graph equations: every kind is one function `rng -> Problem`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

import gll
from benchmarks._reference import Array


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph with labels; `features` where the graph is to be built from them."""

    weight: Array | None
    index: np.ndarray
    value: Array
    features: Array | None = None
    k: int = 0

    def graph(self, dtype: torch.dtype) -> gll.Graph:
        if self.features is not None:
            return gll.knn_graph(torch.as_tensor(self.features, dtype=dtype), self.k)
        assert self.weight is not None
        i, j = np.nonzero(np.triu(self.weight))
        topology, _ = gll.Topology.from_pairs(len(self.weight), torch.from_numpy(i), torch.from_numpy(j))
        return gll.Graph(topology, torch.as_tensor(self.weight[i, j]).to(dtype))

    def labels(self, dtype: torch.dtype) -> gll.Labels:
        return gll.Labels(torch.from_numpy(self.index), torch.as_tensor(self.value, dtype=dtype))


def symmetric(upper: Array) -> Array:
    upper = np.triu(upper, 1)
    return upper + upper.T


def one_hot(rng: Generator, count: int, classes: int) -> Array:
    return np.eye(classes)[rng.permutation(np.arange(count) % classes)]


def with_labels(rng: Generator, weight: Array, count: int | None = None) -> Problem:
    """A few labelled nodes, most often one per class; sometimes soft labels."""
    n = len(weight)
    classes = int(rng.integers(1, 5))
    count = min(n, count or int(rng.choice([1, classes, 2 * classes, max(1, n // 3)])))
    value = one_hot(rng, count, classes) if rng.random() < 0.8 else rng.dirichlet(np.ones(classes), count)
    return Problem(weight, rng.permutation(n)[:count], value)


def random_graph(rng: Generator, n: int) -> Array:
    """A connected random graph: a random tree, and some more edges."""
    mask = rng.random((n, n)) < rng.uniform(0.0, 0.5)
    for child in range(1, n):
        mask[rng.integers(child), child] = True
    return symmetric(mask * rng.uniform(0.1, 1.0, (n, n)))


def size(rng: Generator, most: int = 40) -> int:
    return int(np.exp(rng.uniform(np.log(2), np.log(most))))


def ordinary(rng: Generator) -> Problem:
    return with_labels(rng, random_graph(rng, size(rng)))


def _blocks(rng: Generator) -> tuple[Array, np.ndarray]:
    """Dense clusters without a link between them, and the cluster of every node."""
    cluster = np.sort(rng.integers(0, rng.integers(2, 6), size(rng)))
    n = len(cluster)
    weight = np.zeros((n, n))
    for c in np.unique(cluster):
        inside = np.flatnonzero(cluster == c)
        weight[np.ix_(inside, inside)] = random_graph(rng, len(inside))
    return weight, cluster


def weak_links(rng: Generator) -> Problem:
    """Clusters joined by links from 1e-1 down to the smallest number there is."""
    weight, cluster = _blocks(rng)
    links = symmetric(
        (rng.random(weight.shape) < 2 / len(weight)) * 10.0 ** rng.uniform(*weak_range(rng), weight.shape)
    )
    return with_labels(rng, np.where(cluster[:, None] == cluster, weight, links))


def threads(rng: Generator) -> Problem:
    """Cliques in a tree, on links around the rounding of float64: what is resolved meets what is not."""
    count, each = int(rng.integers(2, 7)), int(rng.integers(1, 7))
    n = count * each
    clique = np.arange(n) // each
    weight = np.where(clique[:, None] == clique, rng.uniform(0.5, 1, (n, n)), 0)
    low = rng.uniform(-18, -11)
    for child in range(1, count):
        parent = child - 1 if rng.random() < 0.7 else int(rng.integers(child))
        i, j = each * parent + rng.integers(each), each * child + rng.integers(each)
        weight[min(i, j), max(i, j)] = 10.0 ** rng.uniform(low, low + 4)
    return with_labels(rng, symmetric(weight), int(rng.integers(1, 4)))


def weak_range(rng: Generator) -> tuple[float, float]:
    low = float(rng.choice([-3, -8, -12, -16, -20, -40, -150, -300, -323]))
    return low, float(rng.choice([low, low + 2, -1]))


def many_orders(rng: Generator) -> Problem:
    """Every weight of its own order of magnitude, over up to 600 of them."""
    mask = random_graph(rng, size(rng)) > 0
    low, high = sorted(rng.choice([-300, -150, -30, -10, -3, 0, 3, 10, 30, 150, 290], 2, replace=False))
    return with_labels(rng, symmetric(mask * 10.0 ** rng.uniform(low, high, mask.shape)))


def disconnected(rng: Generator) -> Problem:
    """Clusters without a link, isolated nodes, and few labels."""
    weight, cluster = _blocks(rng)
    alone = rng.random(len(cluster)) < 0.1
    weight[alone], weight[:, alone] = 0, 0
    return with_labels(rng, weight, int(rng.integers(1, 4)))


def long_chain(rng: Generator) -> Problem:
    """A path or a tree with labels at one end: the condition number of a chain grows with the square of its length."""
    n = int(rng.integers(10, 120))
    weight = np.zeros((n, n))
    reach = int(rng.integers(1, 4))
    for child in range(1, n):
        weight[max(0, child - rng.integers(1, reach + 1)), child] = 10.0 ** rng.uniform(-4, 0)
    classes = int(rng.integers(1, 4))
    ends = np.unique(np.concatenate([np.arange(classes), [n - 1]]))
    return Problem(symmetric(weight), ends, one_hot(rng, len(ends), classes))


def hierarchy(rng: Generator) -> Problem:
    """Clusters of clusters of clusters: every level hangs together by a factor 10^-q less than the one below."""
    n, q = int(2 ** rng.integers(2, 6)), rng.uniform(0.5, 8)
    index = np.arange(n)
    level = np.frexp(index[:, None] ^ index)[1]
    mask = rng.random((n, n)) < 0.7
    return with_labels(rng, symmetric(mask * 10.0 ** (-q * level) * rng.uniform(0.5, 1, (n, n))))


def almost_labelled(rng: Generator) -> Problem:
    """Hub and spokes, weights that differ between the hub's edges by many orders, labels on the spokes."""
    n = size(rng)
    weight = np.zeros((n, n))
    weight[0, 1:] = 10.0 ** rng.uniform(-300 * rng.random(), 0, n - 1)
    return with_labels(rng, symmetric(weight))


def _of_features(rng: Generator, x: Array) -> Problem:
    n = len(x)
    classes = int(rng.integers(1, 4))
    count = min(n, int(rng.choice([1, classes, 3 * classes])))
    index, value = rng.permutation(n)[:count], one_hot(rng, count, classes)
    return Problem(None, index, value, x, int(rng.integers(1, min(n, 10))))


def _clusters(rng: Generator, n: int, spread: float, apart: float) -> Array:
    d = int(rng.choice([1, 2, 5, 20]))
    return apart * rng.normal(size=(3, d))[rng.integers(0, 3, n)] + spread * rng.normal(size=(n, d))


def duplicates(rng: Generator) -> Problem:
    x = _clusters(rng, int(rng.integers(2, 40)), 1, 3)
    return _of_features(rng, x[rng.integers(0, len(x), int(rng.integers(2, 60)))] * (rng.random() < 0.9))


def scaled(rng: Generator) -> Problem:
    x = _clusters(rng, size(rng), 1, 3)
    return _of_features(rng, x * 10.0 ** rng.choice([-30, -20, -10, 10, 20, 30, 36]))


def heavy_tails(rng: Generator) -> Problem:
    x = rng.standard_t(rng.choice([0.5, 1, 2]), size=(size(rng, 60), int(rng.choice([1, 2, 5]))))
    return _of_features(rng, np.clip(x, -1e12, 1e12))


def outlier(rng: Generator) -> Problem:
    x = _clusters(rng, size(rng), 1, 3)
    x[0] = 10.0 ** rng.uniform(2, 9)
    return _of_features(rng, x)


def far_from_origin(rng: Generator) -> Problem:
    x = _clusters(rng, size(rng), 1, 3)
    return _of_features(rng, x + 10.0 ** rng.uniform(2, 6) * rng.normal(size=x.shape[1]))


def tight_clusters(rng: Generator) -> Problem:
    return _of_features(rng, _clusters(rng, size(rng, 60), 10.0 ** rng.uniform(-8, -1), 1))


GRAPHS: dict[str, Callable[[Generator], Problem]] = {
    "ordinary weights": ordinary,
    "weakly linked clusters": weak_links,
    "cliques on threads of 1e-18 to 1e-7": threads,
    "weights over 600 orders of magnitude": many_orders,
    "disconnected, isolated nodes": disconnected,
    "long chains, few labels": long_chain,
    "clusters of clusters": hierarchy,
    "hub with uneven spokes": almost_labelled,
}
FEATURES: dict[str, Callable[[Generator], Problem]] = {
    "duplicated points": duplicates,
    "features times 1e-30 to 1e36": scaled,
    "heavy tails": heavy_tails,
    "one far outlier": outlier,
    "clusters far from the origin": far_from_origin,
    "tight clusters": tight_clusters,
}
KINDS = GRAPHS | FEATURES
SMALL = 14  # nodes up to which answers of several hundred digits are computed


@dataclass(frozen=True, eq=False)
class Task:
    """What to solve on a problem, and how: an equation's parameters as NumPy arrays, a solver, a dtype.

    The equation "layer" is Laplace's through `GraphLearningLayer`, whose base are the labelled nodes.
    """

    kind: str
    problem: Problem
    equation: str
    parameters: dict[str, float]
    tau: Array
    source: Array
    solver: gll.solvers.AbstractLinearSolver
    dtype: torch.dtype

    def __str__(self) -> str:
        extra = [f"{k}={v:g}" for k, v in self.parameters.items()]
        extra += ["tau"] * bool(self.tau.any()) + ["source"] * bool(self.source.any())
        return f"{self.kind}, {self.equation}({', '.join(extra)}), {self.solver}, {str(self.dtype)[6:]}"

    def as_equation(self, dtype: torch.dtype) -> gll.AbstractEquation:
        def tensor(a: Array) -> Tensor:
            return torch.as_tensor(a, dtype=dtype)

        source = tensor(self.source) if self.source.any() else None
        tau = tensor(self.tau) if self.tau.any() else 0.0
        match self.equation:
            case "Laplace":
                return gll.Laplace(tau=tau, source=source)
            case "SoftLaplace":
                return gll.SoftLaplace(lam=self.parameters["lam"], tau=tau)
            case "PLaplace":
                return gll.PLaplace(p=self.parameters["p"], tau=tau)
            case "Elliptic":
                return gll.Elliptic(lambda q, x, y: q + q**3)
            case _:
                return gll.Poisson()


def draw(seed: int, number: int) -> Task:
    """Task `number` of a run; the same for the same seed."""
    rng = np.random.default_rng([seed, number])
    kind = list(KINDS)[number % len(KINDS)]
    problem = KINDS[kind](rng)
    n = len(problem.weight if problem.features is None else problem.features)  # type: ignore[arg-type]
    classes = problem.value.shape[1]
    tau, source, parameters = np.zeros(n), np.zeros((n, classes)), {}
    equations = ["Laplace"] * 4 + ["SoftLaplace"] * 2
    if n <= SMALL:
        equations += ["Poisson"] * 3 + ["PLaplace"] * 2 + ["Elliptic"]
    equation = str(rng.choice(equations))
    if problem.features is not None and len(problem.index) < n and rng.random() < 0.4:
        equation, parameters["normalize"] = "layer", float(rng.random() < 0.3)
    if equation in ("Laplace", "SoftLaplace", "PLaplace", "layer") and rng.random() < 0.3:
        tau = 10.0 ** rng.choice([-300, -20, -8, -3, 0, 3]) * (rng.random(n) < rng.choice([0.2, 1.0]))
    if equation == "layer":
        tau = np.full(n, tau.max())
    if equation == "Laplace" and rng.random() < 0.2:
        source = (rng.random((n, 1)) < 0.3) * rng.uniform(-1 if n <= SMALL else 0, 1, source.shape)
    if equation == "SoftLaplace":
        parameters["lam"] = float(10.0 ** rng.choice([-12, -6, -2, 0, 2, 6, 12]))
    if equation == "PLaplace":
        parameters["p"] = float(rng.choice([1.5, 3, 4, 10]))
    s = gll.solvers
    solvers: list[gll.solvers.AbstractLinearSolver] = [
        s.Auto(),
        s.Auto(),
        s.Cholesky(),
        s.ConjugateGradient(),
        s.Auto(dense_cpu=0, patience=20),
        s.ConjugateGradient(rtol=1e-6),
        s.ConjugateGradient(single=True),
        s.ConjugateGradient(rtol=1e-5, single=True),
        s.Auto(rtol=1e-5, dense_cpu=0, dense_rescue=0, dense_last=0, multilevel=s.Multilevel(coarsest=5)),
    ]
    if equation in ("Laplace", "SoftLaplace"):
        solvers.append(s.ConjugateGradient(preconditioner=s.AMG()))
    solver = solvers[rng.integers(len(solvers))]
    dtype = (torch.float32, torch.float64)[rng.integers(2)]
    if dtype is torch.float32:  # what does not fit is rounded before, so that both sides see the same problem
        single = {name: _rounded(getattr(problem, name)) for name in ("weight", "value", "features")}
        problem = dataclasses.replace(problem, **single)
        tau, source = _rounded(tau), _rounded(source)
    return Task(kind, problem, equation, parameters, tau, source, solver, dtype)


def _rounded(a: Array | None) -> Array | None:
    limit = 3e38
    return None if a is None else np.clip(a, -limit, limit).astype(np.float32).astype(np.float64)
