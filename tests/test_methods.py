"""Methods by name: small problems, invariances, weights, gradients, options and mistakes."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import gll
from gll.methods import METHODS, AbstractMethod, AutoMethod, PoissonReweighted, method_from_name
from gll.readout import Readout
from tests.method_cases import NAMES, clusters
from tests.problems import F64, one_hot, path, random_graph


def permuted(graph: gll.Graph, order: Tensor) -> gll.Graph:
    """The graph whose node i is node order[i] of the given one."""
    moved = gll.Graph.from_sparse(graph.to_dense()[order][:, order])
    return gll.Graph(moved.topology, moved.weight, None if graph.features is None else graph.features[order])


# Small and degenerate problems -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_one_class(name: str) -> None:
    graph, _ = clusters(20, 2)
    found = method_from_name(name).propagate(graph, one_hot([3, 4], [0, 0]), class_prior=torch.ones(1, dtype=F64))
    assert torch.equal(found.probability, torch.ones(20, 1, dtype=F64))


@pytest.mark.parametrize("name", NAMES)
def test_a_class_that_nobody_has(name: str) -> None:
    graph, _ = clusters(20, 2, k=12)
    labels = gll.Labels(torch.tensor([0, 1]), torch.eye(3, dtype=F64)[:2])
    found = method_from_name(name).propagate(graph, labels)
    assert bool((found.classes < 2).all())
    assert bool(torch.isfinite(found.score).all())


@pytest.mark.parametrize("name", NAMES)
def test_two_nodes(name: str) -> None:
    graph = gll.knn_graph(torch.tensor([[0.0], [1.0]], dtype=F64), 1)
    one = method_from_name(name).propagate(graph, one_hot([1], [0]))
    assert one.probability.tolist() == [[1.0], [1.0]]
    both = method_from_name(name).propagate(graph, one_hot([0, 1], [0, 1]))
    assert both.classes.tolist() == [0, 1]
    alone = method_from_name(name).propagate(graph, gll.Labels(torch.tensor([0]), torch.tensor([[0.0, 1.0]])))
    assert alone.classes.tolist() == [1, 1]


@pytest.mark.parametrize("name", NAMES)
def test_every_node_labelled(name: str) -> None:
    graph, y = clusters(20, 2, gap=6.0)
    found = method_from_name(name).propagate(graph, gll.Labels.from_classes(y, dtype=F64))
    assert float((found.classes == y).double().mean()) > 0.9
    assert bool(torch.isfinite(found.probability).all())


@pytest.mark.parametrize("name", NAMES)
def test_duplicates_and_far_points_stay_finite(name: str) -> None:
    x = torch.cat([torch.zeros(12, 2), torch.ones(12, 2), torch.randn(12, 2), torch.full((1, 2), 1e6)]).double()
    graph = gll.knn_graph(x, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gll.UnreachedWarning)
        found = method_from_name(name).propagate(graph, one_hot([0, 12, 24], [0, 1, 2]))
    assert bool(torch.isfinite(found.score).all())
    assert bool((found.probability >= 0).all())
    torch.testing.assert_close(found.probability.sum(1), torch.ones(37, dtype=F64))


# Invariances -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_nodes_does_not_matter(name: str) -> None:
    graph, _ = clusters()
    labels, order = one_hot([0, 1, 2, 7], [0, 1, 2, 1]), torch.randperm(60)
    place = torch.argsort(order)
    moved = gll.Labels(place[labels.index].flip(0), labels.value.flip(0))
    prior = torch.tensor([0.3, 0.3, 0.4], dtype=F64)
    for share in (None, prior):
        found = method_from_name(name).propagate(graph, labels, class_prior=share)
        other = method_from_name(name).propagate(permuted(graph, order), moved, class_prior=share)
        torch.testing.assert_close(other.probability, found.probability[order], rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("name", NAMES)
def test_the_scale_of_weights_does_not_matter(name: str, scale: float) -> None:
    graph, _ = clusters()
    labels = one_hot([0, 1, 2], [0, 1, 2])
    found = method_from_name(name).propagate(graph, labels)
    other = method_from_name(name).propagate(graph.with_weight(scale * graph.weight), labels)
    torch.testing.assert_close(other.probability, found.probability, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_dtype_and_device_are_those_of_the_graph(name: str, device: torch.device) -> None:
    graph, _ = clusters()
    wide = method_from_name(name).propagate(graph, one_hot([0, 1, 2], [0, 1, 2]))
    t = graph.topology
    topology = gll.Topology(60, t.i.to(device), t.j.to(device))
    assert graph.features is not None
    moved = gll.Graph(topology, graph.weight.float().to(device), graph.features.float().to(device))
    labels = gll.Labels(torch.arange(3, device=device), torch.eye(3, device=device))
    found = method_from_name(name).propagate(moved, labels, class_prior=torch.full((3,), 1 / 3, device=device))
    assert found.probability.dtype == torch.float32
    assert found.probability.device.type == device.type
    free = method_from_name(name).propagate(moved, labels)
    torch.testing.assert_close(free.probability.cpu().double(), wide.probability, rtol=0, atol=1e-4)


# Weights of labels, soft labels, warm starts -----------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_weight_zero_is_no_label_and_equal_weights_are_none(name: str) -> None:
    graph, _ = clusters()
    three, four = one_hot([0, 1, 2], [0, 1, 2]), one_hot([0, 1, 2, 3], [0, 1, 2, 2])
    weight = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=F64)
    found = method_from_name(name).propagate(graph, four, label_weight=weight)
    other = method_from_name(name).propagate(graph, three)
    torch.testing.assert_close(found.probability, other.probability, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_weights_act_where_a_method_says_so(name: str) -> None:
    graph, _ = clusters(gap=1.0)
    labels, weight = one_hot([0, 1, 2, 3], [0, 1, 2, 0]), torch.tensor([1.0, 1.0, 1.0, 20.0], dtype=F64)
    found = method_from_name(name).propagate(graph, labels, label_weight=weight)
    other = method_from_name(name).propagate(graph, labels)
    moved = float((found.probability - other.probability).abs().max())
    if METHODS[name].uses_label_weight:
        assert moved > 1e-3
    else:
        assert moved == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_soft_label_is_between_two_hard_ones(name: str) -> None:
    graph = path(2)
    soft = gll.Labels(torch.tensor([0]), torch.tensor([[0.25, 0.75]], dtype=F64))
    if name == "properly-weighted":
        graph = gll.Graph(graph.topology, graph.weight, torch.tensor([[0.0], [1.0]], dtype=F64))
    found = method_from_name(name).propagate(graph, soft)
    assert bool(torch.isfinite(found.probability).all())
    if name in ("laplace", "soft", "plaplace", "wnll", "poisson-reweighted", "properly-weighted", "nearest"):
        torch.testing.assert_close(found.probability, soft.value.expand(2, 2))


@pytest.mark.parametrize("name", NAMES)
def test_a_warm_start_changes_nothing(name: str) -> None:
    graph, _ = clusters()
    labels = one_hot([0, 1, 2], [0, 1, 2])
    cold = method_from_name(name).propagate(graph, labels)
    warm = method_from_name(name).propagate(graph, labels, initial=cold.score + 0.01 * torch.randn(60, 3).double())
    torch.testing.assert_close(warm.probability, cold.probability, rtol=0, atol=1e-7)


# New points --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_new_point_on_a_node_gets_its_answer(name: str) -> None:
    graph, _ = clusters()
    method, prior = method_from_name(name), torch.tensor([0.3, 0.3, 0.4], dtype=F64)
    found = method.propagate(graph, one_hot([0, 1, 2], [0, 1, 2]), class_prior=prior)
    index = torch.tensor([[5, 8], [9, 11], [3, 4]])
    weight = torch.tensor([[1.0, 0.0], [0.0, 1e-300], [0.0, 0.0]], dtype=F64)
    new = method.extend(found, index, weight)
    torch.testing.assert_close(new[0], found.probability[5])
    torch.testing.assert_close(new[1], found.probability[11])
    between = found.readout((found.score[3:4] + found.score[4:5]) / 2)
    torch.testing.assert_close(new[2:], between)


# Gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["laplace", "soft", "poisson", "wnll", "poisson-reweighted", "plaplace"])
def test_probabilities_are_differentiable(name: str) -> None:
    graph, labels = random_graph(8), one_hot([0, 3], [0, 1])

    def score(weight: Tensor, value: Tensor) -> Tensor:
        return method_from_name(name).propagate(graph.with_weight(weight), gll.Labels(labels.index, value)).score

    def on_simplex(weight: Tensor, logit: Tensor) -> Tensor:
        return score(weight, torch.softmax(logit, 1))

    logit = torch.tensor([[2.0, -1.0], [-1.0, 1.5]], dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(
        on_simplex, (graph.weight.clone().requires_grad_(), logit), atol=1e-6, fast_mode=True
    )


def test_readout_has_a_finite_gradient_at_zero() -> None:
    score = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], dtype=F64, requires_grad=True)
    p = Readout(shift=torch.tensor([0.3, -0.1, -0.2], dtype=F64))(score)
    p.square().sum().backward()
    assert score.grad is not None
    assert bool(torch.isfinite(score.grad).all())
    assert float(p.detach()[:, 2].max()) == 0


# Names, options, arguments -----------------------------------------------------------------------------------------


def test_every_name_makes_its_method() -> None:
    issue = (
        "laplace soft plaplace poisson poisson-mbo volume-mbo wnll poisson-reweighted properly-weighted nearest auto"
    )
    assert issue.split() == NAMES
    for name in NAMES:
        assert isinstance(method_from_name(name), AbstractMethod)


def test_unknown_names_and_options_list_the_valid_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown method 'lapalce'; choose one of laplace, soft, .*auto"):
        method_from_name("lapalce")
    with pytest.raises(ValueError, match="'soft' has no option 'lambda_'; its options: lam, tau"):
        method_from_name("soft", lambda_=3)
    with pytest.raises(ValueError, match="'wnll' has no option 'tau'; its options: none"):
        method_from_name("wnll", tau=1)


def test_options_out_of_range_are_refused() -> None:
    graph, labels = random_graph(8), one_hot([0, 3], [0, 1])
    for name, options, message in (
        ("laplace", {"tau": -1.0}, "tau must be ≥ 0"),
        ("soft", {"lam": 0.0}, "lam must be > 0"),
        ("plaplace", {"p": 1.0}, "p must be > 1"),
        ("poisson-mbo", {"rounds": 0}, "rounds"),
        ("volume-mbo", {"steps": -1}, "steps"),
        ("poisson-mbo", {"mu": float("nan")}, "mu"),
        ("properly-weighted", {"alpha": 0.0}, "alpha"),
        ("poisson-reweighted", {"floor": -1.0}, "floor"),
    ):
        with pytest.raises(ValueError, match=message):
            method_from_name(name, **options).propagate(graph, labels)


def test_properly_weighted_needs_features() -> None:
    with pytest.raises(ValueError, match=r"'properly-weighted' measures distances.*choose 'wnll'"):
        method_from_name("properly-weighted").propagate(path(8), one_hot([0, 3], [0, 1]))


@pytest.mark.parametrize("name", NAMES)
def test_wrong_arguments_are_named(name: str, as_user: None) -> None:
    graph, labels, method = clusters()[0], one_hot([0, 3], [0, 1]), method_from_name(name)

    def refused(message: str, kind: type[Exception] = ValueError, **changed: Any) -> None:
        arguments = {"graph": graph, "labels": labels} | changed
        with pytest.raises(kind, match=message):
            method.propagate(arguments.pop("graph"), arguments.pop("labels"), **arguments)

    refused("not probabilities.*node 3", labels=gll.Labels(labels.index, torch.tensor([[0.5, 0.5], [2.0, -1.0]])))
    refused("not probabilities", labels=gll.Labels(labels.index, torch.full((2, 2), torch.nan)))
    refused("0 .. 59", labels=one_hot([0, 60], [0, 1]))
    refused("labelled twice", labels=one_hot([3, 3], [0, 1]))
    refused("empty", labels=gll.Labels(torch.zeros(0, dtype=torch.long), torch.zeros(0, 2)))
    refused("NONFINITE_INPUT", gll.SolveError, graph=graph.with_weight(torch.full_like(graph.weight, torch.nan)))
    refused("class_prior must have shape", class_prior=torch.ones(3) / 3)
    refused("sum to one", class_prior=torch.ones(2))
    refused("sum to one", class_prior=torch.tensor([1.5, -0.5]))
    refused("label_weight must have shape", label_weight=torch.ones(3))
    refused("finite and ≥ 0", label_weight=torch.tensor([1.0, -1.0]))
    refused("all weights of labels are zero", label_weight=torch.zeros(2))
    refused("unknown policy", unreached="ignore")
    refused("initial must have shape", initial=torch.zeros(3, 2))


@pytest.mark.parametrize(
    ("count", "prior", "name"),
    [
        (1, False, "poisson-reweighted"),
        (49, False, "poisson-reweighted"),
        (50, False, "laplace"),
        (1, True, "poisson-mbo"),
        (50, True, "laplace"),
    ],
)
def test_auto_takes_the_measured_method_and_says_so(count: int, prior: bool, name: str) -> None:
    graph, y = clusters(200)
    known = torch.full_like(y, -1)
    known[: 3 * count] = y[: 3 * count]
    labels = gll.Labels.from_classes(known, dtype=F64)
    share = torch.full((3,), 1 / 3, dtype=F64) if prior else None
    found = method_from_name("auto").propagate(graph, labels, class_prior=share)
    other = method_from_name(name).propagate(graph, labels, class_prior=share)
    assert found.description.startswith(f"auto took {name}: the smallest class has {count} label")
    assert torch.equal(found.probability, other.probability)


@pytest.mark.parametrize(("nodes", "name"), [(5000, "laplace"), (5001, "poisson-reweighted")])
def test_auto_leaves_sparse_labels_to_poisson_reweighting(nodes: int, name: str) -> None:
    labels = gll.Labels.from_classes(torch.arange(100) % 2, num_classes=2)
    _, why = AutoMethod.choose(labels, nodes, prior=False)
    assert why.startswith(name)
    if name != "laplace":
        assert why.endswith("100 labels are fewer than one for every 50 of 5,001 nodes")


@pytest.mark.parametrize(
    ("least", "most", "nodes", "prior", "name"),
    [
        (6, 9, 1000, False, "poisson-reweighted"),
        (6, 10, 1000, False, "wnll"),
        (6, 10, 1000, True, "poisson-mbo"),
        (6, 10, 25 * 23, False, "laplace"),
        (6, 10, 25 * 23 + 1, False, "wnll"),
        (4, 12, 100, False, "wnll"),
    ],
)
def test_auto_treats_uneven_labels_otherwise(least: int, most: int, nodes: int, prior: bool, name: str) -> None:
    labels = gll.Labels.from_classes(torch.tensor([0] * least + [1] * most + [2] * 7), num_classes=3)
    _, why = AutoMethod.choose(labels, nodes, prior=prior)
    assert why.startswith(f"{name}: ")
    assert ("if you know the shares" in why) == (name == "wnll")
    assert (f"classes have {least} to {most} labels" in why) == (name in ("wnll", "laplace"))


def test_auto_bears_labels_of_one_class_for_the_most_part() -> None:
    """Three blobs that touch, with 30, 2 and 2 labels: what is taken where labels are even is far behind here."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(900) % 3
    centers = 3.5 * torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, 0.8]], dtype=F64)
    graph = gll.knn_graph(centers[y] + torch.randn(900, 2, generator=generator, dtype=F64), 10)
    known = torch.full_like(y, -1)
    for c, number in enumerate((30, 2, 2)):
        index = torch.nonzero(y == c).squeeze(1)[:number]
        known[index] = c
    labels = gll.Labels.from_classes(known, dtype=F64)
    right = {
        name: float((method_from_name(name).propagate(graph, labels).classes == y).double().mean())
        for name in ("auto", "poisson-reweighted")
    }
    assert right["auto"] > right["poisson-reweighted"] + 0.1, right


def test_auto_leaves_mbo_to_graphs_of_moderate_size() -> None:
    method, why = AutoMethod.choose(one_hot([0, 1], [0, 1]), 1_000_000, prior=True)
    assert isinstance(method, PoissonReweighted)
    assert "1,000,000 nodes" in why
