"""The layer: what it computes, in both modes, with every equation, and what it refuses."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gll

F32, F64 = torch.float32, torch.float64
C = 4


def batch(
    n: int = 40, m: int = 20, d: int = 6, dtype: torch.dtype = F64, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, base features and base labels: four overlapping clusters, every class present."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n + m) % C
    x = torch.randn(C, d, generator=generator, dtype=F64)[y] + 0.8 * torch.randn(
        n + m, d, generator=generator, dtype=F64
    )
    return x[m:].to(dtype), x[:m].to(dtype), y[:m]


def make(**options: Any) -> gll.GraphLearningLayer:
    return gll.GraphLearningLayer(C, **{"k": 5} | options)


EQUATIONS: dict[str, gll.AbstractEquation] = {
    "laplace": gll.Laplace(),
    "tau": gll.Laplace(tau=0.05),
    "soft": gll.SoftLaplace(lam=5.0),
    "p-laplace": gll.PLaplace(p=3.0),
    "poisson": gll.Poisson(),
}
MODES = pytest.mark.parametrize("inductive", [False, True], ids=["transductive", "inductive"])

# Log-probabilities --------------------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("name", ["laplace", "soft"])
def test_log_softmax_of_the_output_is_the_output(name: str, dtype: torch.dtype, inductive: bool) -> None:
    """Rows of u sum to one, so rows of exp(output) sum to 1 + C·floor, and log_softmax subtracts log of that."""
    layer = make(equation=EQUATIONS[name], inductive=inductive)
    out = layer(*batch(dtype=dtype))
    expected = out - math.log1p(C * layer.floor)
    torch.testing.assert_close(torch.log_softmax(out, 1), expected, rtol=0, atol=16 * torch.finfo(dtype).eps)
    torch.testing.assert_close(
        torch.log_softmax(out, 1), out, rtol=0, atol=1.01 * C * 1e-8 + 16 * torch.finfo(dtype).eps
    )


@MODES
def test_cross_entropy_is_minus_the_mean_log_probability(inductive: bool) -> None:
    x, base, y = batch()
    layer = make(inductive=inductive)
    target = torch.arange(len(x)) % C
    loss = nn.CrossEntropyLoss()(layer(x, base, y), target)
    assert layer.last_solution is not None
    u = layer.last_solution.value[len(base) :]
    expected = -torch.log(u[torch.arange(len(x)), target] + layer.floor).mean()
    torch.testing.assert_close(loss, expected, rtol=0, atol=1.01 * C * layer.floor)
    torch.testing.assert_close(nn.NLLLoss()(layer(x, base, y), target), expected, rtol=0, atol=1e-12)


def test_with_decay_the_output_is_the_logarithm_of_what_was_solved() -> None:
    layer = make(equation=gll.Laplace(tau=0.5), floor=1e-3)
    out = layer(*batch())
    assert layer.last_solution is not None
    u = layer.last_solution.value[20:]
    assert float(u.sum(1).max()) < 1
    torch.testing.assert_close(out, torch.log(u + 1e-3))
    torch.testing.assert_close(out.softmax(1), (u + 1e-3) / (u + 1e-3).sum(1, keepdim=True))


def test_poisson_gives_the_softmax_of_scores_times_the_mean_degree() -> None:
    layer = make(equation=gll.Poisson())
    out = layer(*batch())
    assert layer.last_graph is not None
    assert layer.last_solution is not None
    scores = layer.last_graph.degree.mean() * layer.last_solution.value[20:]
    torch.testing.assert_close(out, torch.log_softmax(scores, 1))


# What is solved -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EQUATIONS)
def test_transductive_is_graph_then_solve(name: str) -> None:
    x, base, y = batch()
    layer = make(equation=EQUATIONS[name], normalize=False)
    layer(x, base, y)
    graph = gll.knn_graph(torch.cat([base, x]), 5)
    expected = gll.solve(EQUATIONS[name], graph, gll.Labels(torch.arange(20), F.one_hot(y, C).to(F64)))
    assert layer.last_graph is not None
    assert layer.last_solution is not None
    assert torch.equal(layer.last_graph.weight, graph.weight)
    torch.testing.assert_close(layer.last_solution.value, expected.value)
    assert layer.last_solution.result is gll.RESULT.SUCCESSFUL
    assert not layer.last_solution.value.requires_grad


REWEIGHT = {"wnll": gll.reweight.wnll, "poisson": gll.reweight.poisson, "proper": gll.reweight.properly_weighted}


@pytest.mark.parametrize("name", REWEIGHT)
def test_reweighting_is_applied_before_solving(name: str) -> None:
    x, base, y = batch()
    out = make(normalize=False, reweight=REWEIGHT[name])(x, base, y)
    labels = gll.Labels(torch.arange(20), F.one_hot(y, C).to(F64))
    graph = REWEIGHT[name](gll.knn_graph(torch.cat([base, x]), 5), labels)
    torch.testing.assert_close(out, torch.log(gll.solve(gll.Laplace(), graph, labels).value[20:] + 1e-8))
    assert (out - make(normalize=False)(x, base, y)).abs().max() > 1e-3


@MODES
def test_normalisation_makes_the_length_of_features_irrelevant(inductive: bool) -> None:
    x, base, y = batch()
    layer, plain = make(inductive=inductive), make(inductive=inductive, normalize=False)
    length = torch.linspace(0.1, 10, len(x), dtype=F64)[:, None]
    torch.testing.assert_close(layer(length * x, 7 * base, y), layer(x, base, y))
    torch.testing.assert_close(plain(F.normalize(x), F.normalize(base), y), layer(x, base, y))


@MODES
def test_soft_labels(inductive: bool) -> None:
    x, base, y = batch()
    layer = make(inductive=inductive)
    hard = F.one_hot(y, C).to(F64).requires_grad_()
    out = layer(x, base, hard)
    torch.testing.assert_close(out, layer(x, base, y))
    out[:, 0].sum().backward()
    assert bool((hard.grad[:, 0] >= 0).all()), "more of class 0 in the base is more of it in the answers"
    assert float(hard.grad[:, 0].max()) > 0
    blurred = layer(x, base, (0.6 * hard + 0.1).detach()).exp()
    torch.testing.assert_close(blurred, 0.6 * out.detach().exp() + 0.1, rtol=0, atol=1e-7)


def test_base_nodes_without_a_label_take_part_unlabelled() -> None:
    x, base, y = batch()
    y = torch.where(torch.arange(20) < 8, y, -1)
    layer = make(normalize=False)
    out = layer(x, base, y)
    labels = gll.Labels(torch.arange(8), F.one_hot(y[:8], C).to(F64))
    expected = gll.solve(gll.Laplace(), gll.knn_graph(torch.cat([base, x]), 5), labels).value
    torch.testing.assert_close(out, torch.log(expected[20:] + 1e-8))
    torch.testing.assert_close(layer(torch.cat([base[8:], x]), base[:8], y[:8])[12:], out)


# Inductive ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EQUATIONS)
def test_inductive_prediction_does_not_depend_on_the_batch(name: str) -> None:
    x, base, y = batch()
    layer = make(equation=EQUATIONS[name], inductive=True).set_base(base, torch.where(torch.arange(20) == 3, -1, y))
    together = layer(x)
    alone = torch.cat([layer(query) for query in x.split(1)])
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-12)
    torch.testing.assert_close(layer(x.flip(0)).flip(0), together, rtol=0, atol=1e-12)
    torch.testing.assert_close(layer(torch.cat([x, x[:1] * 1e6]))[:-1], together, rtol=0, atol=1e-12)
    transductive = make(equation=EQUATIONS[name]).set_base(base, y)
    assert (transductive(x[:7]) - transductive(x)[:7]).abs().max() > 1e-3, "the other mode does depend on it"


@pytest.mark.parametrize("name", ["laplace", "tau", "p-laplace"])
@pytest.mark.parametrize("kind", ["constant bandwidth", "far query"])
def test_one_query_is_answered_alike_in_both_modes(name: str, kind: str) -> None:
    """Where the query changes neither the neighbours nor the bandwidths of the (labelled) base nodes."""
    x, base, y = batch()
    options: dict[str, Any] = {"equation": EQUATIONS[name], "normalize": False}
    if kind == "constant bandwidth":
        options |= {"k": 20, "bandwidth": gll.Constant(3.0)}
        queries = x[:5]
    else:
        queries = 3 * x[:5]
        nearest = torch.cdist(base, base).sort(1).values[:, 5]
        assert bool((torch.cdist(queries, base) > nearest).all()), "no base node has a query among its nearest"
    for query in queries.split(1):
        one, other = (make(inductive=mode, **options)(query, base, y) for mode in (True, False))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-8)


@MODES
@pytest.mark.parametrize("name", EQUATIONS)
def test_gradients_end_to_end(name: str, inductive: bool) -> None:
    """gradcheck from queries, base features and soft labels to the output; float64, default tolerances."""
    x, base, y = batch(n=2, m=6, d=2)
    soft = (0.9 * F.one_hot(y, C) + 0.025).to(F64)
    layer = make(equation=EQUATIONS[name], k=3, inductive=inductive, normalize=False)
    inputs = [t.requires_grad_() for t in (x, base, soft)]
    assert torch.autograd.gradcheck(layer, inputs)


def test_gradient_reaches_tensors_of_the_equation() -> None:
    x, base, y = batch(n=5, m=9, d=3)
    tau = torch.tensor(0.1, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: make(equation=gll.Laplace(tau=t))(x, base, y), [tau])


def test_second_derivatives_end_to_end() -> None:
    x, base, y = batch(n=3, m=8, d=3)
    assert torch.autograd.gradgradcheck(lambda q: make(k=4)(q, base, y), [x.requires_grad_()])


@MODES
def test_without_gradient(inductive: bool) -> None:
    x, base, y = batch()
    x.requires_grad_()
    layer = make(inductive=inductive)
    with_gradient = layer(x, base, y)
    assert with_gradient.requires_grad
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            out = layer(x, base, y)
        assert not out.requires_grad
        assert torch.equal(out, with_gradient.detach())
    assert not layer(x.detach(), base, y).requires_grad


# Training -----------------------------------------------------------------------------------------------------------

HEADS: dict[str, tuple[dict[str, Any], float]] = {
    **{name: ({"equation": equation}, 0.87) for name, equation in EQUATIONS.items()},
    "poisson": ({"equation": gll.Poisson()}, 0.75),
    "inductive": ({"inductive": True}, 0.87),
    **{f"reweighted: {name}": ({"reweight": function}, 0.87) for name, function in REWEIGHT.items()},
}


@pytest.mark.parametrize("head", HEADS)
def test_an_encoder_learns_digits_through_the_layer(head: str) -> None:
    """30 steps of a small network on 700 digits; thresholds below the worst of several seeds (0.90, Poisson 0.80)."""
    from sklearn.datasets import load_digits

    options, threshold = HEADS[head]
    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(digits.data / 16, dtype=F32)[order], torch.tensor(digits.target)[order]
    encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
    layer = gll.GraphLearningLayer(10, k=10, **options)
    optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-2)

    def accuracy() -> float:
        with torch.no_grad():
            return float(
                (layer(encoder(x[800:1400]), encoder(x[:100]), y[:100]).argmax(1) == y[800:1400]).float().mean()
            )

    before = accuracy()
    for _ in range(30):
        pick = 100 + torch.randint(700, (128,))
        loss = F.cross_entropy(layer(encoder(x[pick]), encoder(x[:100]), y[:100]), y[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = accuracy()
    assert before < 0.7
    assert after > threshold, f"{before:.3f} -> {after:.3f}"


# What it tells, and what it refuses ---------------------------------------------------------------------------------


def test_no_parameters_and_a_telling_repr() -> None:
    layer = make()
    assert list(layer.parameters()) == []
    assert layer.state_dict() == {}
    assert "4, k=5, equation=Laplace(tau=0.0" in repr(layer)
    assert "transductive" in repr(layer)
    assert layer.last_graph is None
    assert layer.last_solution is None


def test_a_missing_class_is_told_once() -> None:
    x, base, y = batch()
    y = y.clamp(max=1)
    layer = make()
    with pytest.warns(UserWarning, match=r"classes \[2, 3\] have no base sample"):
        out = layer(x, base, y)
    torch.testing.assert_close(out[:, 2:], torch.full_like(out[:, 2:], math.log(1e-8)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(x, base, y)


@MODES
def test_unreached_queries_are_counted_and_told(inductive: bool) -> None:
    x, base, y = batch()
    layer = make(normalize=False, inductive=inductive)
    x = torch.cat([x, 1e4 + x[:10]])
    if inductive:  # each is joined to its nearest base nodes, with a weight that is zero to rounding: takes their label
        with pytest.warns(gll.UnreachedWarning, match="10 of 70 nodes .* 'nearest' fallback"):
            out = layer(x, base, y)
        nearest = torch.cdist(x[40:], base).argmin(1)
        assert torch.equal(out[40:].argmax(1), y[nearest])
    else:
        with pytest.warns(gll.UnreachedWarning, match="10 of 70 nodes .* 'uniform' fallback"):
            out = layer(x, base, y)
        torch.testing.assert_close(out[40:], torch.full_like(out[40:], math.log(0.25 + 1e-8)))
    assert layer.last_solution is not None
    assert layer.last_solution.unreached == 10


X, BASE, Y = batch()
ERRORS: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no classes": (lambda: gll.GraphLearningLayer(0), ValueError, "num_classes must be at least 1, got 0"),
    "no neighbours": (lambda: make(k=0), ValueError, "k must be at least 1, got 0"),
    "no floor": (lambda: make(floor=0.0), ValueError, "floor must be > 0, got 0"),
    "unknown option": (lambda: make(neighbours=3), TypeError, "neighbours"),
    "unknown policy": (lambda: make(unreached="ignore"), ValueError, "'ignore'.*'uniform', 'nearest' or 'raise'"),
    "no base": (lambda: make()(X), ValueError, "no base set: pass base_features and base_labels, or call set_base"),
    "half a base": (lambda: make()(X, BASE), ValueError, "give base_features and base_labels together"),
    "labels only": (lambda: make()(X, base_labels=Y), ValueError, "give base_features and base_labels together"),
    "empty base": (lambda: make()(X, BASE[:0], Y[:0]), ValueError, r"base features must have shape .* got \(0, 6\)"),
    "no label": (lambda: make()(X, BASE, Y * 0 - 1), ValueError, "no labelled sample: give at least one"),
    "empty batch": (lambda: make()(X[:0], BASE, Y), ValueError, r"features must have shape .* got \(0, 6\)"),
    "vector": (lambda: make()(X[0], BASE, Y), ValueError, r"features must have shape .* got \(6,\)"),
    "list": (lambda: make()(X, BASE.tolist(), Y), TypeError, "base features must be a torch.Tensor, got list"),
    "integers": (lambda: make()(X.long(), BASE, Y), TypeError, "features must be floating point, got torch.int64"),
    "nan": (lambda: make()(X.log(), BASE, Y), ValueError, "features contain NaN or infinite values in .* rows"),
    "infinite base": (lambda: make()(X, BASE / 0, Y), ValueError, "base features contain NaN or infinite values"),
    "dimensions": (lambda: make()(X[:, :3], BASE, Y), ValueError, "features have 3 dimensions, base features 6"),
    "too few labels": (lambda: make()(X, BASE, Y[:7]), ValueError, r"must be \(20,\) classes .* got \(7,\)"),
    "label list": (lambda: make()(X, BASE, Y.tolist()), ValueError, r"base_labels must be \(20,\) classes .* got list"),
    "label too large": (lambda: make()(X, BASE, Y + 1), ValueError, r"classes must lie in 0 .. 3.* from 1 to 4"),
    "label below -1": (lambda: make()(X, BASE, Y - 2), ValueError, r"or be -1 for unlabelled; got values from -2 to 1"),
    "float classes": (lambda: make()(X, BASE, Y.double()), ValueError, "classes must be a 1-d integer tensor"),
    "wrong columns": (lambda: make()(X, BASE, torch.ones(20, 3)), ValueError, r"with 4 columns, .*\(20, 3\)"),
    "integer soft": (lambda: make()(X, BASE, F.one_hot(Y)), ValueError, "with 4 columns, got torch.int64"),
    "set_base labels": (lambda: make().set_base(BASE, Y[:3]), ValueError, r"base_labels must be \(20,\)"),
    "set_base nan": (lambda: make().set_base(BASE.log(), Y), ValueError, "base features contain NaN"),
    "unreached": (
        lambda: make(unreached="raise", normalize=False)(X + 1e4, BASE, Y),
        gll.SolveError,
        "UNREACHED: 40 of 60 nodes",
    ),
    "poisson, apart": (
        lambda: make(equation=gll.Poisson(), normalize=False)(X, BASE + 1e4 * Y[:, None], Y),
        gll.SolveError,
        "INCOMPATIBLE_SOURCE",
    ),
}


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_is_wrong(name: str) -> None:
    call, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()


def test_a_failed_set_base_changes_nothing() -> None:
    layer = make().set_base(BASE, Y)
    before = layer(X)
    with pytest.raises(ValueError, match="base_labels must be"):
        layer.set_base(BASE[:5], Y)
    assert torch.equal(layer(X), before)
