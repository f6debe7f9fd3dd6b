"""The fused path computes what the general path computes, or steps aside."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest import mock

import pytest
import torch
from torch import Tensor

import gll
import gll.nn.layer as layer_module
from gll import GraphLearningLayer, Laplace
from gll.nn import ranking
from gll.nn.replay import KEPT, Recording

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


@pytest.mark.parametrize("setting", ["plain", "tau", "not normalised", "k = 2"])
def test_copies_of_points_are_ranked_by_their_number(
    setting: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal features, in the base, among queries and across: which copy is a neighbour decides the gradient."""
    x, y = data(device)
    layer = GraphLearningLayer(4, **({"k": 8} | SETTINGS[setting]))
    copies = x.clone()
    groups = [(3, 50, 90), (40, 41), (100, 7, 110, 55)] if setting != "k = 2" else [(40, 70), (3, 90)]
    for first, *others in groups:
        copies[others] = x[first]
    fast, fast_grad, was_fused = outcome(layer, copies, y)
    assert was_fused
    monkeypatch.setattr(layer_module, "fused_limit", lambda device: 0)
    slow, slow_grad, _ = outcome(layer, copies.double(), y)
    torch.testing.assert_close(fast.double(), slow, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(fast_grad.double(), slow_grad, rtol=1e-5, atol=1e-5 * float(slow_grad.abs().max()))


@pytest.mark.parametrize("seed", range(20))
def test_nearest_are_those_of_a_sort_by_distance_and_number(seed: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(seed)
    n, k = 60, 5
    raw = torch.randn(n, 3, generator=generator)
    raw[torch.randint(0, n, (20,), generator=generator)] = raw[torch.randint(0, n, (20,), generator=generator)]
    x = raw.double()
    true = (x[:, None] - x).square().sum(2)
    square = x.square().sum(1)
    product = (square[:, None] + square - 2 * x @ x.T).to(device)
    noise = ranking.rounding(square, 3).to(device)
    value, index, doubt = ranking.nearest(raw.to(device), product, noise, k)
    assert float(doubt) == 0
    order = [sorted((float(true[i, j]), j) for j in range(n) if j != i)[:k] for i in range(n)]
    # As sets: the order inside does not matter, but for the last, which is the bandwidth.
    assert [sorted(row) for row in index.tolist()] == [sorted(j for _, j in row) for row in order]
    assert index[:, -1].tolist() == [row[-1][1] for row in order]
    torch.testing.assert_close(value.cpu()[:, -1], torch.tensor([row[-1][0] for row in order], dtype=torch.float64))
    assert product.diagonal().count_nonzero() == 0


def test_points_that_are_equally_far_and_no_copies_are_in_doubt(device: torch.device) -> None:
    raw = torch.cartesian_prod(torch.arange(5.0), torch.arange(5.0)).to(device)
    x = raw.double()
    square = x.square().sum(1)
    product = square[:, None] + square - 2 * x @ x.T
    assert float(ranking.nearest(raw, product, ranking.rounding(square, 2), 3)[2]) > 0


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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestRecordings:
    """On a GPU what repeats is recorded, and launched as one."""

    def layer(self, **setting: object) -> GraphLearningLayer:
        return GraphLearningLayer(4, **({"k": 8} | setting))

    @staticmethod
    def recorded(layer: GraphLearningLayer) -> int:
        return sum(isinstance(entry, Recording) for entry in layer._recorder._seen.values())

    @pytest.mark.parametrize("setting", SETTINGS, ids=str)
    def test_gives_the_same_bits_as_unrecorded_work(self, setting: str) -> None:
        x, y = data(torch.device("cuda"))
        layer = self.layer(**SETTINGS[setting])
        first = outcome(layer, x, y)
        assert self.recorded(layer) == 0
        for step in range(5):
            outcome(layer, x + step, y)  # other batches of the same shapes
        assert self.recorded(layer) == 1
        again = outcome(layer, x, y)
        torch.testing.assert_close(again[0], first[0], rtol=0, atol=0)
        torch.testing.assert_close(again[1], first[1], rtol=1e-6, atol=1e-9)
        assert again[2]

    def test_a_batch_between_forward_and_backward_does_not_disturb(self) -> None:
        x, y = data(torch.device("cuda"))
        layer = self.layer()
        for _ in range(4):
            expected = outcome(layer, x, y)[1]
        a, b = x.clone().requires_grad_(), (x.flip(0) * 2 + 1).requires_grad_()
        out_a = layer(a[30:], a[:30], y[:30])
        out_b = layer(b[30:], b[:30], y[:30])
        weight = torch.linspace(-1, 1, out_a.numel(), device="cuda").view_as(out_a)
        (out_b * weight).sum().backward()
        (out_a * weight).sum().backward()
        torch.testing.assert_close(a.grad, expected, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(b.grad, outcome(self.layer(), b.detach(), y)[1], rtol=1e-6, atol=1e-9)

    def test_backward_twice_and_outputs_kept(self) -> None:
        x, y = data(torch.device("cuda"))
        layer = self.layer()
        for _ in range(4):
            expected_out, expected, _ = outcome(layer, x, y)
        a = x.clone().requires_grad_()
        out = layer(a[30:], a[:30], y[:30])
        weight = torch.linspace(-1, 1, out.numel(), device="cuda").view_as(out)
        (one,) = torch.autograd.grad((out * weight).sum(), a, retain_graph=True)
        (two,) = torch.autograd.grad((out * weight).sum(), a)
        outcome(layer, x + 1, y)
        torch.testing.assert_close(out.detach(), expected_out, rtol=0, atol=0)
        torch.testing.assert_close(one, expected, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(two, one, rtol=0, atol=0)

    def test_steps_aside_when_recorded_too(self) -> None:
        x, y = data(torch.device("cuda"))
        layer = self.layer()
        for _ in range(4):
            outcome(layer, x, y)
        broken = x.clone()
        broken[50, 0] = torch.nan
        with pytest.raises(ValueError, match="NaN or infinite"):
            layer(broken[30:], broken[:30], y[:30])
        copies = x.clone()
        copies[40:60] = copies[40]
        with pytest.warns(gll.UnreachedWarning):
            assert not outcome(layer, copies, y)[2]
        assert outcome(layer, x, y)[2]

    def test_keeps_a_few_kinds_only(self) -> None:
        x, y = data(torch.device("cuda"))
        layer = self.layer()
        for size in range(100, 110):
            for _ in range(4):
                outcome(layer, x[:size], y)
        assert self.recorded(layer) == KEPT

    def test_copies_and_pickles_start_without(self) -> None:
        x, y = data(torch.device("cuda"))
        layer = self.layer()
        for _ in range(4):
            expected = outcome(layer, x, y)[0]
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert self.recorded(twin) == 0
            torch.testing.assert_close(outcome(twin, x, y)[0], expected, rtol=0, atol=0)

    def test_streams_do_not_share(self) -> None:
        x, y = data(torch.device("cuda"))
        layer = self.layer()
        streams = [torch.cuda.Stream() for _ in range(2)]
        torch.cuda.synchronize()
        for step in range(6):
            outs = []
            for sign, stream in zip((1.0, 2.0), streams, strict=True):
                with torch.cuda.stream(stream):
                    outs.append(outcome(layer, sign * x + step, y)[0])
            torch.cuda.synchronize()
            for sign, out in zip((1.0, 2.0), outs, strict=True):
                expected = outcome(self.layer(), sign * x + step, y)[0]
                torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("calls", [1, 5])
    def test_one_synchronisation_in_the_forward_pass_and_none_in_the_backward(
        self, calls: int, gpu_waits: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        x, y = data(torch.device("cuda"))
        layer = self.layer()
        for _ in range(calls):
            outcome(layer, x, y)
        x = x.clone().requires_grad_()
        wait = torch.cuda.Event.synchronize  # a recording waits for an event, which PyTorch does not count
        with (
            warnings.catch_warnings(record=True) as caught,
            mock.patch.object(torch.cuda.Event, "synchronize", autospec=True, side_effect=wait) as events,
        ):
            warnings.simplefilter("always")
            with gpu_waits("warn"):
                out = layer(x[30:], x[:30], y[:30])
                in_forward, events_in_forward = len(caught), events.call_count
                out.sum().backward()
        looks = ["called a synchronizing" in str(w.message) for w in caught]
        count = [
            sum(looks[:in_forward]) + events_in_forward,
            sum(looks[in_forward:]) + events.call_count - events_in_forward,
        ]
        assert used(layer)
        assert count == [1, 0]
