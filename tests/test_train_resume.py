"""A run that is interrupted, killed, or killed while it writes a checkpoint goes on to the same numbers, exactly."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from gll.cli import app
from gll.train import progress
from gll.train.checkpoint import CheckpointError
from gll.train.config import to_toml
from gll.train.loop import Training, new_run, train
from gll.train.progress import Reporter
from gll.train.runs import Run
from tests.tiny_runs import WARM, lines, tiny

KINDS = {
    "plain": [],
    "adam, uncertain base, tests": ["base.strategy=entropy", "test.every=1", "data.augment=grey"],
    "sgd, switch": ["train.optimizer=sgd", "model.switch_at=1", "train.save_every=2"],
    "wnll": ["model.head=wnll", "model.head_options.stage1=1", "model.head_options.stage2=2"],
    "warm-up": WARM,
}


def same(a: Run, b: Run) -> None:
    """Two finished runs have the same metrics, results and checkpoints, apart from times."""
    assert lines(a) == lines(b)
    first, second = (run.load("train") for run in (a, b))
    assert first is not None
    assert second is not None
    assert first[0].keys() == second[0].keys()
    assert all(torch.equal(tensor, second[0][name]) for name, tensor in first[0].items())
    timed = ("seconds", "images_per_second")
    results = [{k: v for k, v in (run.result() or {}).items() if k not in timed} for run in (a, b)]
    assert results[0] == results[1] != {}


class Killed(BaseException):
    """Nothing that the library catches."""


def interrupt_at(monkeypatch: pytest.MonkeyPatch, epoch: int, step: int, how: Any) -> None:
    """Do something right before a step, once."""
    original, done = Training.train_step, []

    def patched(self: Training, batch: Any, number: int, lr: float) -> None:
        if (self.epoch, number) == (epoch, step) and not done:
            done.append(True)
            how()
        original(self, batch, number, lr)

    monkeypatch.setattr(Training, "train_step", patched)


def die() -> None:
    raise Killed


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    options = ["train.epochs=4", *KINDS[kind]]
    whole, cut = (new_run(tiny(tmp_path / name, *options)) for name in ("whole", "cut"))
    train(whole)
    interrupt_at(monkeypatch, 3, 1, die)
    with pytest.raises(Killed):
        train(cut)
    cut.log(phase="train", epoch=99, loss=1.0)  # what a killed process may have written after its checkpoint
    again = Run.open(cut.directory)
    train(again)
    same(whole, again)


def test_an_optimizer_is_kept_as_long_as_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments make a checkpoint three times as large; after the last step only the result is left to write."""
    whole, cut = (new_run(tiny(tmp_path / name)) for name in ("whole", "cut"))
    train(whole)
    with monkeypatch.context() as patched:
        patched.setattr(Training, "result", lambda _: die())
        with pytest.raises(Killed):
            train(cut)
    for run in (whole, cut):
        stored = run.load("train")
        assert stored is not None
        assert not any(name.startswith("optimizer") for name in stored[0])
    train(again := Run.open(cut.directory))
    same(whole, again)
    interrupt_at(monkeypatch, 1, 1, die)
    begun = new_run(tiny(tmp_path / "begun"))
    with pytest.raises(Killed):
        train(begun)
    stored = begun.load("train")
    assert stored is not None
    assert any(name.startswith("optimizer") for name in stored[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [1, 2])
def test_after_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, step: int) -> None:
    """In the middle of an epoch, and in its last step."""
    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests run in the background of a shell
    options = ["train.epochs=3", "base.strategy=l2", "train.save_every=3", "test.every=1"]
    whole, cut = (new_run(tiny(tmp_path / name, *options)) for name in ("whole", "cut"))
    train(whole)
    interrupt_at(monkeypatch, 1, step, lambda: os.kill(os.getpid(), number))
    with pytest.raises(KeyboardInterrupt):
        train(cut)
    stored = cut.load("train")
    assert stored is not None
    # The step that was under way is finished first.
    assert (stored[1]["epoch"], stored[1]["step"]) == ((1, 2) if step == 1 else (2, 0))
    assert signal.getsignal(signal.SIGINT) is before
    again = Run.open(cut.directory)
    train(again)
    same(whole, again)


def test_a_second_signal_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tiny(tmp_path))
    interrupt_at(monkeypatch, 1, 1, lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)])
    with pytest.raises(KeyboardInterrupt):
        train(run)
    stored = run.load("train")
    assert stored is not None
    assert (stored[1]["epoch"], stored[1]["step"]) == (1, 0)


def test_the_time_left_goes_by_this_stretch_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes ten seconds of a pretended clock; the steps before the signal took none of those that count."""
    run = new_run(tiny(tmp_path, "train.epochs=3", "train.save_every=3"))
    interrupt_at(monkeypatch, 1, 1, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        train(run)
    stored = run.load("train")
    assert stored is not None
    assert (stored[1]["epoch"], stored[1]["step"]) == (1, 2)  # of three steps
    now, step = [0.0], Training.train_step

    def slow(self: Training, batch: Any, number: int, lr: float) -> None:
        step(self, batch, number, lr)
        now[0] += 10

    monkeypatch.setattr(Training, "train_step", slow)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    text = io.StringIO()
    train(Run.open(run.directory), reporter=Reporter(Console(file=text, width=200), seconds=0))
    said = [line for line in text.getvalue().splitlines() if " left" in line]
    assert [(line.split(":")[0], line.split(", ")[-1]) for line in said] == [
        ("epoch 2/3", "30 s left"), ("epoch 3/3", "0 s left")
    ]  # fmt: skip
    assert now[0] == 40


# Run by a process of its own, which kills itself without warning: at a step, or when half of a checkpoint is written.
SCRIPT = """
import os, signal, sys
from pathlib import Path
from gll.train import checkpoint, loop
from gll.train.runs import Run

place, directory = sys.argv[1], Path(sys.argv[2])

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

step, save_file, saved = loop.Training.train_step, checkpoint.save_file, []

def train_step(self, batch, number, lr):
    step(self, batch, number, lr)
    if place == "step" and (self.epoch, number) == (1, 1):
        kill()

def save(tensors, path, metadata):
    save_file(tensors, path, metadata=metadata)
    saved.append(path)
    if place == "checkpoint" and len(saved) == 2:
        whole = Path(path).read_bytes()
        Path(path).write_bytes(whole[: len(whole) // 2])
        kill()

loop.Training.train_step, checkpoint.save_file = train_step, save
loop.train(Run.open(directory))
"""


def in_own_process(place: str, run: Run) -> int:
    """Train in a process that kills itself at a place, or at none; what it ends with."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, place, str(run.directory)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def test_after_sigkill(tmp_path: Path) -> None:
    """Killed in the middle of an epoch, gone on with, killed in the middle of writing a checkpoint, gone on with."""
    options = ["train.epochs=4", "base.strategy=entropy", "test.every=1"]
    whole, cut = (new_run(tiny(tmp_path / name, *options)) for name in ("whole", "cut"))
    # All in processes of one kind: the last bits of a sum depend on how a process began.
    assert in_own_process("nowhere", whole) == 0
    for place, epoch in (("step", 1), ("checkpoint", 2)):
        assert in_own_process(place, cut) == -signal.SIGKILL
        stored = cut.load("train")
        assert stored is not None
        assert stored[1]["epoch"] == epoch
    # It was killed in the middle: lines of the third epoch are there, and half a checkpoint.
    assert max(row["epoch"] for row in cut.metrics()) == 3
    assert len(list((cut.directory / "checkpoints").glob(".*.tmp"))) == 1
    assert in_own_process("nowhere", cut) == 0
    same(Run.open(whole.directory), Run.open(cut.directory))
    assert not list((cut.directory / "checkpoints").glob(".*"))


def test_a_damaged_checkpoint_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tiny(tmp_path))
    interrupt_at(monkeypatch, 1, 1, die)
    with pytest.raises(Killed):
        train(run)
    path = run.directory / "checkpoints" / "train.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        train(Run.open(run.directory))


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gll train, interrupted; gll train --resume; gll evaluate."""
    shell = CliRunner()
    (tmp_path / "tiny.toml").write_text(to_toml(tiny(tmp_path)))
    directory = tmp_path / "run"

    wrong = shell.invoke(app, ["train", str(tmp_path / "tiny.toml"), "train.epoch=1"])
    assert wrong.exit_code == 1
    assert "unknown key 'train.epoch'; did you mean 'epochs'" in wrong.output.replace("\n", " ")
    assert shell.invoke(app, ["train"]).exit_code == 1

    with monkeypatch.context() as patch:
        interrupt_at(patch, 1, 1, lambda: os.kill(os.getpid(), signal.SIGINT))
        stopped = shell.invoke(app, ["train", str(tmp_path / "tiny.toml"), "test.inductive=true"])
    assert stopped.exit_code == 130
    assert f"gll train --resume {directory}" in stopped.output.replace("\n", "")

    again = shell.invoke(app, ["train", str(tmp_path / "tiny.toml")])
    assert again.exit_code == 1
    assert "has not finished" in again.output
    both = shell.invoke(app, ["train", "--resume", str(directory), str(tmp_path / "tiny.toml")])
    assert both.exit_code == 1
    assert "takes no other config" in both.output

    resumed = shell.invoke(app, ["train", "--resume", str(directory)])
    assert resumed.exit_code == 0, resumed.output
    assert "going on after epoch 1, step 2" in resumed.output
    run = Run.open(directory)
    error = run.result()["error"]  # type: ignore[index]
    assert f"{error:.2%}" in resumed.output
    assert shell.invoke(app, ["train", "--resume", str(directory)]).exit_code == 0  # finished: shown again

    tested = shell.invoke(app, ["evaluate", str(directory), "--json"])
    assert tested.exit_code == 0, tested.output
    assert f'"error": {error}' in tested.output
    assert tested.output.count('"mode"') == 2
    files = {p.name: p.stat().st_mtime_ns for p in directory.rglob("*")}
    other = shell.invoke(app, ["evaluate", str(directory), "test.also=knn", "test.inductive=false"])
    assert other.exit_code == 0, other.output
    assert "knn" in other.output
    assert files == {p.name: p.stat().st_mtime_ns for p in directory.rglob("*")}  # nothing was written
    assert shell.invoke(app, ["evaluate", str(directory), "train.lr=1"]).exit_code == 1
    assert shell.invoke(app, ["evaluate", str(tmp_path)]).exit_code == 1
