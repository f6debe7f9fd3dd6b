"""The fused path computes what the general path computes, or steps aside."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

import gll
import gll.nn.layer as layer_module
from gll import GraphLearningLayer, Laplace

SETTINGS = {
    "plain": {},
    "tau": {"equation": Laplace(tau=0.3)},
    "not normalised": {"normalize": False},
    "constant bandwidth": {"normalize": False, "bandwidth": gll.Constant(9.0), "equation": Laplace(tau=0.01)},
    "k = 1": {"k": 1, "equation": Laplace(tau=0.1)},
    "k = 2": {"k": 2, "equation": Laplace(tau=0.1)},
    "sharper kernel": {"kernel": gll.Gaussian(2.0)},
    "smaller floor": {"floor": 1e-20},
}


def data(device: torch.device, n: int = 120, d: int = 16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 4
    x = torch.randn(n, d, generator=generator) + 0.7 * torch.randn(4, d, generator=generator)[y]
    return x.to(device), y.to(device)


def used(layer: GraphLearningLayer) -> bool:
    """Whether the last call took the fused path (which keeps features in place of a graph)."""
    return isinstance(layer._last[0], Tensor)


def outcome(layer: GraphLearningLayer, x: Tensor, labels: Tensor, m: int = 30) -> tuple[Tensor, Tensor, bool]:
    x = x.clone().requires_grad_()
    out = layer(x[m:], x[:m], labels[:m])
    weight = torch.linspace(-1, 1, out.numel(), device=x.device).view_as(out)
    (out * weight).sum().backward()
    assert x.grad is not None
    return out.detach(), x.grad, used(layer)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_equals_the_general_path(setting: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(device)
    layer = GraphLearningLayer(4, **({"k": 8} | SETTINGS[setting]))
    fast, fast_grad, was_fused = outcome(layer, x, y)
    assert was_fused
    monkeypatch.setattr(layer_module, "fused_limit", lambda device: 0)
    slow, slow_grad, was_fused = outcome(layer, x.double(), y)
    assert not was_fused
    # The general path in float64 is the truth; float32 features are the same numbers.
    torch.testing.assert_close(fast.double(), slow, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(fast_grad.double(), slow_grad, rtol=1e-5, atol=1e-5 * float(slow_grad.abs().max()))


def test_soft_labels(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(device)
    soft = 0.8 * torch.nn.functional.one_hot(y, 4).float() + 0.05
    layer = GraphLearningLayer(4, k=8)
    fast, fast_grad, was_fused = outcome(layer, x, soft)
    assert was_fused
    monkeypatch.setattr(layer_module, "fused_limit", lambda device: 0)
    slow, slow_grad, _ = outcome(layer, x.double(), soft.double())
    torch.testing.assert_close(fast.double(), slow, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(fast_grad.double(), slow_grad, rtol=1e-5, atol=1e-5 * float(slow_grad.abs().max()))


def test_a_bandwidth_of_ones_own_is_not_mistaken_for_ours(device: torch.device) -> None:
    class Wide:
        epsilon = 1.0

        def __call__(self, distance: Tensor) -> Tensor:
            return 3 * distance[:, -1]

    x, y = data(device)
    assert steps_aside(x, y, bandwidth=Wide())


def test_base_and_queries_both_get_gradients(device: torch.device) -> None:
    x, y = data(device)
    base, queries = x[:30].clone().requires_grad_(), x[30:].clone().requires_grad_()
    layer = GraphLearningLayer(4, k=8)
    layer(queries, base, y[:30])[:, 0].sum().backward()
    assert used(layer)
    _, whole, _ = outcome(GraphLearningLayer(4, k=8), x, y)
    assert base.grad.abs().sum() > 0
    assert queries.grad.abs().sum() > 0
    assert whole.shape == x.shape


def steps_aside(x: Tensor, y: Tensor, **setting: object) -> bool:
    layer = GraphLearningLayer(4, **({"k": 8} | setting))
    layer(x[30:], x[:30], y[:30])
    return not used(layer)


def test_steps_aside_where_it_cannot_vouch(device: torch.device) -> None:
    x, y = data(device)
    assert not steps_aside(x, y)
    copies = x.clone()
    copies[40:60] = copies[40]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gll.UnreachedWarning)
        assert steps_aside(copies, y), "more copies than k: the bandwidth is at rounding"
    tight = x[:1] + 1e-6 * x
    assert steps_aside(tight, y, normalize=False), "tight clusters: products cancel"
    far = x.clone()
    far[60:80] = 1e4 + 0.1 * far[60:80]
    with pytest.warns(gll.UnreachedWarning):
        assert steps_aside(far, y, normalize=False), "a component without a label"
    assert steps_aside(x.double(), y), "float64 wants more digits than products give"


def test_labels_that_are_missing_or_wrong_are_left_to_the_general_path(device: torch.device) -> None:
    x, y = data(device)
    unlabelled = y.clone()
    unlabelled[3] = -1
    assert steps_aside(x, unlabelled)
    with pytest.warns(UserWarning, match=r"classes \[3\] have no base sample"):
        assert steps_aside(x, y.clamp(max=2))
    with pytest.raises(ValueError, match=r"classes must lie in 0 \.\. 3"):
        steps_aside(x, y + 1)
    soft = torch.nn.functional.one_hot(y, 4).float()
    soft[0, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        steps_aside(x, soft)
    broken = x.clone()
    broken[50, 0] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        steps_aside(broken, y)


def test_last_graph_and_solution_are_made_on_demand(device: torch.device) -> None:
    x, y = data(device)
    layer = GraphLearningLayer(4, k=8)
    out = layer(x[30:], x[:30], y[:30])
    assert used(layer)
    assert layer.last_solution is not None
    assert layer.last_graph is not None
    torch.testing.assert_close(torch.log(layer.last_solution.value[30:] + 1e-8), out, rtol=1e-5, atol=1e-5)
    assert layer.last_graph.num_nodes == 120
