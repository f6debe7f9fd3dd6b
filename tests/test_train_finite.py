"""Numbers that are not finite stop a run, with a diagnosis and without a bad checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gll.data.datasets import normalize
from gll.nn.heads import AbstractHead
from gll.train import evaluate as evaluation
from gll.train import loop, model
from gll.train.finite import NonFiniteError
from gll.train.loop import Training, new_run, train
from gll.train.model import encode
from tests.tiny_runs import tiny


class Bad(AbstractHead):
    """A head that breaks at a given place after some steps."""

    def __init__(self, place: str, good_steps: int) -> None:
        super().__init__()
        self.layer, self.place, self.left = nn.Linear(64, 10), place, good_steps

    @property
    def uses_base(self) -> bool:
        return False

    def _bad(self, place: str) -> bool:
        return self.place == place and self.left < 0

    def forward(
        self, features: Tensor, base_features: Tensor | None = None, base_labels: Tensor | None = None
    ) -> Tensor:
        self.left -= 1
        logits = self.layer(features)
        return logits * float("inf") if self._bad("logits") else logits

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        loss = super().loss(logits, target)
        if self._bad("loss"):
            return loss.log() + (loss - loss.detach() - 1).log()
        # The square root of zero: a finite value with an infinite derivative.
        return loss + (loss - loss.detach()).abs().sqrt() if self._bad("gradient") else loss

    def predict(
        self, features: Tensor, labelled: Tensor, labels: Tensor, unlabelled: Tensor, inductive: bool
    ) -> Tensor:
        return self.layer(features)


@pytest.mark.parametrize("place", ["logits", "loss", "gradient"])
def test_numbers_that_are_not_finite_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(model, "make_head", lambda *args: Bad(place, 4))  # the fifth step is the first bad one
    run = new_run(tiny(tmp_path, "train.epochs=3", "train.schedule=constant"))
    with pytest.raises(
        NonFiniteError, match=rf"the {place} (is|are) not finite at epoch 2, step 1, learning rate 0.001;"
    ):
        train(run)
    stored = run.load("train")
    assert stored is not None
    assert stored[1]["epoch"] == 1
    assert all(bool(torch.isfinite(t).all()) for t in stored[0].values() if t.is_floating_point())
    assert run.metrics()[-1]["phase"] == "stopped"
    assert run.result() is None


def test_bad_inputs_and_bad_steps_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tiny(tmp_path / "a", "train.lr=1e38", "train.optimizer=sgd", "train.steps=8"))
    with pytest.raises(NonFiniteError, match=r"the (parameters|features) are not finite .* lower the learning rate"):
        train(run)
    assert run.load("train") is None
    run = new_run(tiny(tmp_path / "b"))
    monkeypatch.setattr(loop, "normalize", lambda images, data: normalize(images, data) / 0)
    with pytest.raises(NonFiniteError, match=r"the inputs are not finite at epoch 1, step 0, .* look for NaN"):
        train(run)


@pytest.mark.parametrize("head", ["gll", "mlp"])
@pytest.mark.parametrize("what", ["parameters", "statistics"])
def test_a_last_step_that_overflows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str, what: str) -> None:
    """Found before the test that follows, which would only say that its features are bad."""
    run = new_run(tiny(tmp_path, f"model.head={head}", "test.every=1", "train.schedule=constant"))
    step = Training.train_step

    def last_update_overflows(self: Training, batch: Any, number: int, lr: float) -> None:
        step(self, batch, number, lr)
        if (self.epoch, number) == (1, 2):
            names = {"parameters": self.model.encoder.parameters(), "statistics": self.model.encoder.buffers()}
            with torch.no_grad():
                next(iter(names[what])).fill_(float("inf"))

    monkeypatch.setattr(Training, "train_step", last_update_overflows)
    with pytest.raises(
        NonFiniteError, match=r"the parameters are not finite at epoch 2, step 3, .*train\.lr.*step before"
    ):
        train(run)
    assert run.load("train")[1]["epoch"] == 1  # type: ignore[index]
    assert [row["phase"] for row in run.metrics()] == ["train", "test", "stopped"]


def test_features_that_overflow_in_a_test_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tiny(tmp_path))
    monkeypatch.setattr(evaluation, "encode", lambda *args: encode(*args) / 0)
    with pytest.raises(NonFiniteError, match="the features of a test are not finite"):
        train(run)
    assert run.metrics()[-1]["phase"] == "stopped"
