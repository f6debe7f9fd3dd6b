"""Answers that are used before a GPU has vouched for them: `attempt`, and what training makes of one that was wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gll
from gll import GraphLearningLayer
from gll.nn.heads import GLLHead, create_head
from gll.train.loop import new_run, train
from gll.train.model import restore
from tests.test_fused import data, outcome
from tests.tiny_runs import tiny


def parameters_after(run_directory: Path, *options: str) -> dict[str, Tensor]:
    run = new_run(tiny(run_directory, *options))
    train(run)
    return dict(restore(run)[0].encoder.named_parameters())


HEADS = {
    "plain": (),
    "projected": ("model.head_options.projection=16",),
    "after a switch": ("model.switch_at=1", "model.first=mlp"),
}


@pytest.mark.parametrize("options", HEADS.values(), ids=HEADS)
def test_a_wrong_attempt_leaves_no_trace_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    expected = parameters_after(tmp_path / "a", *options)
    asked = list[bool]()
    forward = GLLHead.forward

    def attempt(
        self: GLLHead, x: Tensor, base: Tensor | None = None, labels: Tensor | None = None
    ) -> tuple[Tensor, Callable[[], bool] | None]:
        def sound() -> bool:
            asked.append(len(asked) % 2 == 0)
            return asked[-1]

        logits = forward(self, x, base, labels)
        return (logits if len(asked) % 2 == 0 else logits * torch.nan), sound

    monkeypatch.setattr(GLLHead, "attempt", attempt)
    found = parameters_after(tmp_path / "b", *options)
    assert False in asked
    assert True in asked
    for name, p in expected.items():
        torch.testing.assert_close(found[name], p, rtol=0, atol=0, msg=name)


def test_an_error_of_the_second_try_is_told_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not as logits that are not finite, which those of the attempt were."""

    def attempt(self: GLLHead, x: Tensor, base: Tensor, labels: Tensor) -> tuple[Tensor, Callable[[], bool]]:
        return x[:, :10] * torch.nan, lambda: False

    def forward(*_: object) -> Tensor:
        raise RuntimeError("no memory left")

    monkeypatch.setattr(GLLHead, "attempt", attempt)
    monkeypatch.setattr(GLLHead, "forward", forward)
    with pytest.raises(RuntimeError, match="no memory left"):
        train(new_run(tiny(tmp_path)))


def test_a_layer_that_was_changed_is_asked_as_it_is() -> None:
    class Doubled(GraphLearningLayer):
        def forward(self, *nodes: Tensor) -> Tensor:  # type: ignore[override]
            return 2 * super().forward(*nodes)

    x, y = data(torch.device("cpu"))
    nodes = x[30:], x[:30], y[:30]
    head = GLLHead(Doubled(4, k=8), lambda: Doubled(4, k=8))
    torch.testing.assert_close(head.attempt(*nodes)[0], head(*nodes), rtol=0, atol=0)
    head = GLLHead(GraphLearningLayer(4, k=8), lambda: GraphLearningLayer(4, k=8))
    seen = list[Tensor]()
    head.layer.register_forward_hook(lambda module, args, out: seen.append(out))
    head.attempt(*nodes)
    assert len(seen) == 1


def test_compiled_encoders_get_no_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class OptimizedModule(nn.Module):  # as torch.compile wraps what it is given
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self._orig_mod = module

        def forward(self, x: Tensor) -> Tensor:
            return self._orig_mod(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PyTorch says to itself when it imports its compiler
        assert type(torch.compile(nn.Linear(1, 1))).__name__ == OptimizedModule.__name__
    monkeypatch.setattr(torch, "compile", OptimizedModule)
    monkeypatch.setattr(GLLHead, "attempt", lambda *_: pytest.fail("a second backward pass is not possible"))
    parameters_after(tmp_path, "train.compile=true")


def test_on_a_cpu_nothing_is_left_to_ask() -> None:
    x, y = data(torch.device("cpu"))
    unlabelled = y.clone()
    unlabelled[3] = -1
    for labels in (y, unlabelled):  # by the fused path, and by the general one
        layer = GraphLearningLayer(4, k=8)
        logits, sound = layer.attempt(x[30:], x[:30], labels[:30])
        assert sound is None
        torch.testing.assert_close(logits, layer(x[30:], x[:30], labels[:30]), rtol=0, atol=0)
    head = create_head("linear", 16, 4)
    logits, sound = head.attempt(x)
    assert sound is None
    assert torch.equal(logits, head(x))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("calls", [1, 5], ids=["unrecorded", "recorded"])
class TestOnAGPU:
    def layer(self, calls: int) -> GraphLearningLayer:
        layer = GraphLearningLayer(4, k=8)
        x, y = data(torch.device("cuda"))
        for step in range(calls):
            outcome(layer, x + step, y)
        return layer

    def test_a_sound_attempt_is_the_answer(self, calls: int) -> None:
        x, y = data(torch.device("cuda"))
        layer = self.layer(calls)
        a = x.clone().requires_grad_()
        logits, sound = layer.attempt(a[30:], a[:30], y[:30])
        weight = torch.linspace(-1, 1, logits.numel(), device="cuda").view_as(logits)
        (logits * weight).sum().backward(retain_graph=True)
        assert sound is not None
        assert sound()
        assert sound()
        expected, gradient, _ = outcome(layer, x, y)
        torch.testing.assert_close(logits.detach(), expected, rtol=0, atol=0)
        torch.testing.assert_close(a.grad, gradient, rtol=1e-6, atol=1e-9)

    def test_an_unsound_one_says_so(self, calls: int) -> None:
        x, y = data(torch.device("cuda"))
        layer = self.layer(calls)
        broken, copies = x.clone(), x.clone()
        broken[50, 0] = torch.nan
        copies[40:60] = copies[40]
        for nodes in (broken, copies):
            a = nodes.clone().requires_grad_()
            logits, sound = layer.attempt(a[30:], a[:30], y[:30])
            logits.sum().backward(retain_graph=True)
            assert sound is not None
            assert not sound()
        with pytest.warns(gll.UnreachedWarning):
            layer(copies[30:], copies[:30], y[:30])

    def test_a_verdict_that_was_overwritten_is_none(self, calls: int) -> None:
        x, y = data(torch.device("cuda"))
        layer = self.layer(calls)
        _, first = layer.attempt(x[30:], x[:30], y[:30])
        _, second = layer.attempt(2 * x[30:], 2 * x[:30], y[:30])
        assert first is not None
        assert second is not None
        assert second()
        assert first() == (calls == 1)  # without a recording every call has its own
