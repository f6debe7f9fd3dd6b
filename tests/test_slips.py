"""Slips that users make, and what they are told; things that must not pass silently."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

import gll
from gll import solvers
from tests.watch_memory import LargestOutput

pytestmark = pytest.mark.usefixtures("as_user")

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = gll.Labels(torch.arange(4), torch.eye(4, dtype=torch.float64)[:, :2])


@dataclass(frozen=True, eq=False)
class Cubic(gll.AbstractEquation):
    """q + 10 q³, without a word on whether that is linear."""

    def flux(self, q: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return q + 10 * q**3


def test_an_equation_is_nonlinear_unless_it_says_otherwise() -> None:
    graph = gll.knn_graph(X, 6)
    mine = gll.solve(Cubic(), graph, LABELS).value
    reference = gll.solve(gll.Elliptic(lambda q, x, y: q + 10 * q**3), graph, LABELS).value
    torch.testing.assert_close(mine, reference, rtol=1e-9, atol=1e-10)
    assert not torch.allclose(mine, gll.solve(gll.Laplace(), graph, LABELS).value, atol=1e-3)


GRAPH = gll.knn_graph(X, 6)
SLIPS = {
    "metric by name": (lambda: gll.knn_graph(X, 5, metric="cosine"), None, ""),
    "unknown metric": (lambda: gll.knn_graph(X, 5, metric="manhattan"), ValueError, "choose 'euclidean' or 'cosine'"),
    "unknown symmetrisation": (lambda: gll.knn_graph(X, 5, symmetrize="mutual"), ValueError, "choose Symmetrize.UNION"),
    "bandwidth as a number": (lambda: gll.knn_graph(X, 5, bandwidth=1.0), TypeError, "bandwidth must be a function"),
    "kernel as a class": (lambda: gll.knn_graph(X, 5, kernel=gll.Gaussian), TypeError, "kernel must be a function"),
    "k as a float": (lambda: gll.knn_graph(X, 5.0), TypeError, "k must be an integer"),
    "zero bandwidth": (lambda: gll.Constant(0.0), ValueError, "finite number > 0, got 0.0"),
    "negative bandwidth": (lambda: gll.Constant(-1.0), ValueError, "finite number > 0, got -1.0"),
    "NaN in the kernel": (lambda: gll.Gaussian(float("nan")), ValueError, "finite number > 0, got nan"),
    "equation as a class": (lambda: gll.solve(gll.Laplace, GRAPH, LABELS), TypeError, "got the class Laplace"),
    "features as a graph": (lambda: gll.solve(gll.Laplace(), X, LABELS), TypeError, "made by gll.knn_graph"),
    "tensor as labels": (lambda: gll.solve(gll.Laplace(), GRAPH, X), TypeError, "made by Labels.from_classes"),
    "solver by name": (lambda: gll.solve(gll.Laplace(), GRAPH, LABELS, solver="cg"), TypeError, "solvers.Cholesky()"),
    "NumPy classes": (lambda: gll.Labels.from_classes(np.zeros(3, int)), TypeError, "use torch.as_tensor"),
    "list of indices": (lambda: gll.Labels([0], X[:1]), TypeError, "use torch.as_tensor"),
    "float classes": (lambda: gll.Labels.from_classes(torch.zeros(3)), ValueError, "use y.long()"),
    "layer with a class": (lambda: gll.GraphLearningLayer(2, equation=gll.Laplace), TypeError, "such as gll.Laplace()"),
    "layer that needs a start": (
        lambda: gll.GraphLearningLayer(2, equation=gll.GinzburgLandau()),
        ValueError,
        "needs a start",
    ),
    "unknown Laplacian": (lambda: GRAPH.laplacian(X, "foo"), ValueError, "foo"),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_slips_are_named(slip: str) -> None:
    call, kind, message = SLIPS[slip]
    if kind is None:
        call()
        return
    with pytest.raises(kind, match=message.replace("(", r"\(").replace(")", r"\)")):
        call()


def test_ties_do_not_break_the_memory_bound() -> None:
    with LargestOutput() as largest:
        index = gll.Exact(max_bytes=2**20)(torch.ones(1200, 4), 3)
    assert largest.bytes <= 2**20
    assert index[0].tolist() == [1, 2, 3]
    assert index[2].tolist() == [0, 1, 3]


def test_auto_reports_what_it_did() -> None:
    graph = gll.knn_graph(torch.randn(700, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64), 10)
    few = gll.Labels(torch.arange(2), torch.eye(2, dtype=torch.float64))
    assert "singular equation" in gll.solve(gll.Poisson(), graph, few).method
    assert gll.solve(gll.Laplace(), graph, few).method.startswith("ConjugateGradient")
    hasty = solvers.Auto(patience=2)
    assert gll.solve(gll.Laplace(), graph, few, solver=hasty).method.endswith("not converged after 2 steps")


def test_decision_11_the_base_comes_on_top_of_the_batch() -> None:
    layer = gll.GraphLearningLayer(2, k=5)
    out = layer(torch.randn(50, 4), torch.randn(10, 4), torch.arange(10) % 2)
    assert len(out) == 50
    assert layer.last_graph is not None
    assert layer.last_graph.num_nodes == 60


def test_soft_labels_without_a_class_are_told() -> None:
    soft = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    with pytest.warns(UserWarning, match="have no base sample"):
        gll.GraphLearningLayer(2, k=3)(torch.randn(8, 2), torch.randn(2, 2), soft)


def test_a_parameter_from_numpy_is_a_number_like_any_other() -> None:
    """Grids of parameters come from `np.logspace`."""
    graph, labels = gll.knn_graph(torch.randn(30, 3), 5), gll.Labels(torch.tensor([0, 1]), torch.eye(2))
    for make in (lambda t: gll.Laplace(tau=t), lambda t: gll.SoftLaplace(lam=t, tau=t)):
        a, b = (gll.solve(make(t), graph, labels).value for t in (np.float64(0.1), 0.1))
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("dtype", "huge"), [(torch.float32, 3e38), (torch.float64, 1e300)])
def test_an_entry_beside_which_all_distances_vanish_is_named(dtype: torch.dtype, huge: float) -> None:
    x = torch.randn(40, 3, dtype=dtype)
    x[17, 1] = huge
    with pytest.raises(ValueError, match=r"row 17 has an entry of size .*a typical row .*Remove the row"):
        gll.knn_graph(x, 5)
    graph = gll.knn_graph(torch.where(x == huge, 1e12, x), 5)  # far, but the others are still told apart
    assert float(graph.weight[(graph.topology.i != 17) & (graph.topology.j != 17)].max()) < 1


def test_an_asymmetric_entry_is_named_where_it_is() -> None:
    w = torch.tensor([[0.0, 1e9, 0.0], [1e9 * (1 + 1e-9), 0.0, 1.0], [0.0, 2.0, 0.0]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"entry \(1, 2\) is 1, its mirror image is 2"):
        gll.Graph.from_sparse(w)
