"""Mistakes in the arguments: each a sentence that says what was got, and the documented conversions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import gll
from tests.problems import F64, one_hot, path

pytestmark = pytest.mark.usefixtures("as_user")
ENDS = one_hot([0, 4], [0, 1])
META = torch.device("meta")
INT = torch.int64


def attempt(equation: gll.AbstractEquation | None = None, labels: gll.Labels | None = ENDS, **options: Any) -> None:
    """Solve on a path of five nodes with labels at its ends, unless told otherwise."""
    gll.solve(equation or gll.Laplace(), path(5), labels, **options)


def zeros(*shape: int, **options: Any) -> Tensor:
    return torch.zeros(*shape, **options)


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    # labels on a graph
    "index too large": (
        lambda: attempt(labels=one_hot([0, 5], [0, 1])),
        ValueError,
        r"label indices must lie in 0 \.\. 4, got values from 0 to 5",
    ),
    "index negative": (lambda: attempt(labels=one_hot([-1, 2], [0, 1])), ValueError, "got values from -1 to 2"),
    "labelled twice": (lambda: attempt(labels=one_hot([1, 1], [0, 1])), ValueError, "a node is labelled twice"),
    "no labels": (
        lambda: attempt(labels=gll.Labels(zeros(0, dtype=INT), zeros(0, 2))),
        ValueError,
        "the set of labelled nodes is empty: give at least one label, or labels=None",
    ),
    # what an equation needs
    "nothing given": (lambda: attempt(labels=None), ValueError, "Laplace without labels needs a source or an initial"),
    "undetermined": (
        lambda: attempt(gll.Laplace(source=zeros(5)), None),
        ValueError,
        "determines nothing: give labels, or tau > 0",
    ),
    "soft undetermined": (
        lambda: attempt(gll.SoftLaplace(source=zeros(5)), None),
        ValueError,
        "SoftLaplace without labels .* determines nothing",
    ),
    "no start": (lambda: attempt(gll.GinzburgLandau()), ValueError, r"many solutions: pass initial=\(n, C\)"),
    "unknown policy": (lambda: attempt(unreached="ignore"), ValueError, "choose 'uniform', 'nearest' or 'raise'"),
    # shapes and types
    "source shape": (
        lambda: attempt(gll.Laplace(source=zeros(4))),
        ValueError,
        r"source must have shape \(5,\) or \(5, 2\), got \(4,\)",
    ),
    "source columns": (lambda: attempt(gll.Laplace(source=zeros(5, 3))), ValueError, r"got \(5, 3\)"),
    "initial shape": (
        lambda: attempt(initial=zeros(5, 3)),
        ValueError,
        r"initial must have shape \(5, 2\), got \(5, 3\)",
    ),
    "integer source": (
        lambda: attempt(gll.Laplace(source=zeros(5, dtype=INT))),
        TypeError,
        "source must be floating point, got torch.int64",
    ),
    "integer tau": (lambda: attempt(gll.Laplace(torch.tensor(1))), TypeError, "tau must be floating point"),
    "integer initial": (lambda: attempt(initial=zeros(5, 2, dtype=INT)), TypeError, "initial must be floating point"),
    "negative weights": (
        lambda: gll.solve(gll.Laplace(), path(4, [1, -0.1, 1]), one_hot([0, 3], [0, 1])),
        ValueError,
        "must not be negative, the smallest is -0.1",
    ),
    # devices
    "source elsewhere": (
        lambda: attempt(gll.Laplace(source=zeros(5, device=META))),
        ValueError,
        "source .* on meta, but the graph's weights are on cpu",
    ),
    "tau elsewhere": (lambda: attempt(gll.Laplace(zeros(5, device=META))), ValueError, "tau .* on meta"),
    "initial elsewhere": (lambda: attempt(initial=zeros(5, 2, device=META)), ValueError, "initial .* on meta"),
    "labels elsewhere": (
        lambda: attempt(labels=gll.Labels(ENDS.index.to(META), ENDS.value.to(META))),
        ValueError,
        "labels .* on meta",
    ),
    "labels in two places": (
        lambda: gll.Labels(ENDS.index, ENDS.value.to(META)),
        ValueError,
        "label index is on cpu, label values on meta",
    ),
    # labels by themselves
    "float index": (lambda: gll.Labels(zeros(1), zeros(1, 1)), ValueError, "1-d integer tensor, got torch.float32"),
    "mask for index": (lambda: gll.Labels(zeros(1).bool(), zeros(1, 1)), ValueError, "integer tensor, got torch.bool"),
    "integer values": (
        lambda: gll.Labels(zeros(1, dtype=INT), zeros(1, 1, dtype=INT)),
        ValueError,
        "for integer classes use Labels.from_classes",
    ),
    "vector of values": (
        lambda: gll.Labels(zeros(1, dtype=INT), zeros(1)),
        ValueError,
        r"2-d floating point tensor .* of shape \(1,\)",
    ),
    "lengths differ": (
        lambda: gll.Labels(zeros(2, dtype=INT), zeros(3, 1)),
        ValueError,
        "2 labelled nodes but 3 rows of values",
    ),
    "no classes": (lambda: gll.Labels(zeros(1, dtype=INT), zeros(1, 0)), ValueError, "at least one class"),
    "class too large": (
        lambda: gll.Labels.from_classes(torch.tensor([0, 3]), num_classes=3),
        ValueError,
        r"classes must lie in 0 \.\. 2, or be -1 for unlabelled; got values from 0 to 3",
    ),
    "class below -1": (lambda: gll.Labels.from_classes(torch.tensor([0, -2])), ValueError, "got values from -2 to 0"),
    "float classes": (lambda: gll.Labels.from_classes(zeros(1)), ValueError, "1-d integer tensor, got torch.float32"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name: str) -> None:
    call, error, message = MISTAKES[name]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.gpu
def test_labels_on_another_device() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    with pytest.raises(ValueError, match=r"labels .* on cuda:0, but the graph's weights are on cpu"):
        attempt(labels=gll.Labels(ENDS.index.cuda(), ENDS.value.cuda()))


def test_from_classes() -> None:
    labels = gll.Labels.from_classes(torch.tensor([2, -1, 0, -1]), num_classes=4, dtype=F64)
    assert labels.index.tolist() == [0, 2]
    assert labels.value.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]
    assert labels.value.dtype == F64
    assert gll.Labels.from_classes(torch.tensor([2, -1])).num_classes == 3


def test_mixed_precision_is_converted() -> None:
    """The value has the dtype of the weights; each input gets its gradient in its own dtype."""
    g = ENDS.value.float().requires_grad_()
    tau = torch.tensor(0.125, dtype=torch.float32, requires_grad=True)
    weight = path(5).weight.clone().requires_grad_()
    solution = gll.solve(gll.Laplace(tau), path(5).with_weight(weight), gll.Labels(ENDS.index, g))
    assert solution.value.dtype == F64
    gradients = torch.autograd.grad(solution.value.square().sum(), (weight, g, tau))
    assert [t.dtype for t in gradients] == [F64, torch.float32, torch.float32]
    exact = gll.solve(gll.Laplace(0.125), path(5), ENDS)
    torch.testing.assert_close(solution.value, exact.value, rtol=0, atol=1e-14)


def test_int32_indices_are_welcome() -> None:
    a = gll.solve(gll.Laplace(), path(5), gll.Labels(ENDS.index.int(), ENDS.value)).value
    assert torch.equal(a, gll.solve(gll.Laplace(), path(5), ENDS).value)


def test_order_of_the_labels_does_not_matter() -> None:
    flipped = gll.Labels(ENDS.index.flip(0), ENDS.value.flip(0))
    assert torch.equal(gll.solve(gll.Laplace(), path(5), flipped).value, gll.solve(gll.Laplace(), path(5), ENDS).value)


def test_everything_labelled_leaves_nothing_to_solve() -> None:
    g = torch.rand(5, 2, dtype=F64, requires_grad=True)
    solution = gll.solve(gll.Laplace(), path(5), gll.Labels(torch.arange(5), g))
    assert torch.equal(solution.value, g)
    (gradient,) = torch.autograd.grad((2 * solution.value).sum(), g)
    assert torch.equal(gradient, torch.full_like(g, 2))


def test_solution_detach_and_classes() -> None:
    weight = path(5).weight.clone().requires_grad_()
    solution = gll.solve(gll.Laplace(), path(5).with_weight(weight), ENDS)
    free = solution.detach()
    assert not free.value.requires_grad
    assert not free.graph.weight.requires_grad
    assert free.classes.tolist()[:2] + free.classes.tolist()[3:] == [0, 0, 1, 1]  # the middle ties
    with pytest.raises(dataclasses.FrozenInstanceError):
        free.steps = 0  # type: ignore[misc]
