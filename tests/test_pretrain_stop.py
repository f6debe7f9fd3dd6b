"""A warm-up that is asked to stop: what is kept, and the time that is said to be left."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from gll.train import progress
from gll.train.contrastive import Contrastive
from gll.train.progress import Reporter
from gll.train.runs import Run
from tests import warm_up_cases
from tests.warm_up_cases import metrics, same, start


def forgetful(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """With dropout, which draws from PyTorch's own generator step by step."""

    def made() -> nn.Module:
        inner = make()
        encoder = nn.Sequential(inner, nn.Dropout(0.3))
        encoder.feature_dim = inner.feature_dim
        return encoder

    return made


def signal_at(monkeypatch: pytest.MonkeyPatch, place: int, now: list[float]) -> None:
    """SIGINT during a step, once; a step takes ten seconds of a pretended clock."""
    step, steps = Contrastive._step, 0

    def signalled(self: Contrastive, index: Tensor, views: torch.Generator) -> Tensor:
        nonlocal steps
        steps += 1
        if steps == place:
            os.kill(os.getpid(), signal.SIGINT)
        now[0] += 10
        return step(self, index, views)

    monkeypatch.setattr(Contrastive, "_step", signalled)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))


@pytest.mark.parametrize(
    ("place", "stands", "left"), [(1, (0, 1), 40), (3, (1, 0), 20), (5, (1, 2), 0), (6, (2, 0), None)]
)
def test_a_warm_up_stopped_by_a_signal_keeps_its_steps(
    place: int, stands: tuple[int, int], left: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any checkpoint is due: in an epoch of three steps, at its end, and at the very end."""
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(warm_up_cases, "network", forgetful(warm_up_cases.network))
    whole, encoder, run = start(tmp_path / "whole", "warmup.save_every=10")()
    go, now, out = start(tmp_path / "cut", "warmup.save_every=10"), [0.0], io.StringIO()
    signal_at(monkeypatch, place, now)
    with pytest.raises(KeyboardInterrupt):
        go()
    stored = Run.open(tmp_path / "cut").load("warmup-0.5")
    assert stored is not None
    assert (stored[1]["epoch"], stored[1]["step"]) == stands
    assert now[0] == 10 * place
    assert signal.getsignal(signal.SIGINT) is before
    again, resumed, run2 = go(reporter=Reporter(Console(file=out, width=200), seconds=0))
    assert now[0] == 60  # no step is done twice
    assert same(encoder, resumed)
    assert same(whole.projection, again.projection)
    assert (whole.kept, whole.table) == (again.kept, again.table)
    assert metrics(run) == metrics(run2)
    said = [line for line in out.getvalue().splitlines() if " left" in line]
    assert [line.split(", ")[-1] for line in said[:1]] == ([] if left is None else [f"{left} s left"])


def test_the_look_before_the_first_step_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, out, look = [0.0], io.StringIO(), Contrastive._look

    def slow(self: Contrastive) -> dict[str, Any]:
        now[0] += 1000 if self.epoch == 0 else 0
        return look(self)

    monkeypatch.setattr(Contrastive, "_look", slow)
    signal_at(monkeypatch, 0, now)
    start(tmp_path / "a")(reporter=Reporter(Console(file=out, width=200), seconds=0))
    said = [line.split(", ")[-1] for line in out.getvalue().splitlines() if " left" in line]
    assert said == ["50 s left", "40 s left", "30 s left", "20 s left", "10 s left", "0 s left"]
