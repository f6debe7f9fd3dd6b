"""Run directories and checkpoints: whole or not at all, never written over, and told when damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn
import torch
from safetensors.torch import save_file

from gll.data.splits import LabelSplit
from gll.train.board import Board
from gll.train.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from gll.train.config import Config, TrainConfig
from gll.train.optimize import load_optimizer, make_optimizer, optimizer_tensors
from gll.train.runs import Run, RunError

SPLIT = LabelSplit(torch.tensor([0, 2]), torch.tensor([1, 3, 4]))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "runs" / "a", Config("a", seed=5), SPLIT)


def test_what_was_created_is_opened(run: Run) -> None:
    again = Run.open(run.directory)
    assert again.config == run.config
    assert again.split.labelled.tolist() == [0, 2]
    assert again.split.unlabelled.tolist() == [1, 3, 4]
    assert again.metrics() == []
    assert again.load("train") is None
    assert again.result() is None
    # Nothing is left of the folder under its first name.
    assert [p.name for p in run.directory.parent.iterdir()] == ["a"]


def test_an_existing_directory_is_not_written_over(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="gll train --resume"):
        Run.create(run.directory, Config("b"), SPLIT)
    run.finish({"error": 0.5})
    with pytest.raises(RunError, match="finished run"):
        Run.create(run.directory, Config("b"), SPLIT)
    assert Run.open(run.directory).config.name == "a"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(RunError, match="exists and is no run"):
        Run.create(tmp_path / "other", Config("b"), SPLIT)
    (tmp_path / "empty").mkdir()
    Run.create(tmp_path / "empty", Config("b"), SPLIT)


def test_a_creation_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(LabelSplit, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        Run.create(tmp_path / "a", Config("a"), SPLIT)
    assert list(tmp_path.iterdir()) == []


def test_opening_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist"):
        Run.open(tmp_path / "nothing")
    with pytest.raises(RunError, match="is no run directory"):
        Run.open(tmp_path)
    for name, more in (("a.md", ""), ("b.toml", "; `gll train {}` makes one")):
        (tmp_path / name).touch()
        with pytest.raises(RunError) as found:
            Run.open(tmp_path / name)
        assert str(found.value) == f"{tmp_path / name} is a file, not a run directory{more.format(tmp_path / name)}"
    (tmp_path / "config.toml").write_text('name = "a"')
    with pytest.raises(RunError, match=r"is no run directory: beside config.toml it has no split.npz"):
        Run.open(tmp_path)


def test_metrics(run: Run) -> None:
    run.log(phase="train", epoch=1, loss=0.5)
    run.log(phase="test", epoch=1, loss=float("inf"))
    with (run.directory / "metrics.jsonl").open("a") as file:
        file.write('{"phase": "tra')  # a process is in the middle of this line, or was killed there
    assert run.metrics() == [{"phase": "train", "epoch": 1, "loss": 0.5}, {"phase": "test", "epoch": 1, "loss": None}]


def test_metrics_are_cut_to_the_last_checkpoint(run: Run) -> None:
    run.log(phase="warmup", epoch=1)
    run.save("warmup", {}, {})
    run.log(phase="train", epoch=1)
    run.save("train", {"w": torch.ones(2)}, {"epoch": 1})
    run.log(phase="train", epoch=2)
    left = run.directory / "checkpoints" / ".train.safetensors.xyz.tmp"
    left.write_bytes(b"half")
    with Run.open(run.directory).working():
        # "train" is the younger one, whatever the order in which the files are found.
        assert [row["phase"] for row in run.metrics()] == ["warmup", "train"]
    assert not left.exists()
    (run.directory / "metrics.jsonl").write_text("")
    with pytest.raises(RunError, match="shorter"), run.working():
        pass


def test_without_a_checkpoint_all_metrics_are_cut(run: Run) -> None:
    run.log(phase="train", epoch=1)
    with run.working():
        assert run.metrics() == []


def test_two_cannot_work_on_one_run(run: Run) -> None:
    pytest.importorskip("fcntl")
    with run.working(), pytest.raises(RunError, match="another process"), Run.open(run.directory).working():
        pass
    with Run.open(run.directory).working():
        pass


def test_other_processes_write_nothing(run: Run) -> None:
    other = Run.open(run.directory, writes=False)
    with run.working(), other.working():
        other.log(phase="train", epoch=1)
        other.save("train", {}, {})
        other.finish({})
    assert (run.metrics(), run.load("train"), run.result()) == ([], None, None)


def test_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLL_COMMIT", "abc")
    run.note_resume()
    record = json.loads((run.directory / "environment.json").read_text())
    assert record["started"]["versions"]["torch"] == torch.__version__
    assert record["started"]["versions"]["scikit-learn"] == sklearn.__version__
    assert [e["commit"] for e in record["resumed"]] == ["abc"]


def test_a_run_does_not_wait_for_scikit_learn() -> None:
    """Of which it records the version, and no more."""
    code = "import sys; from gll.train.runs import environment; environment(); print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr[-2000:]


def test_tensorboard(run: Run) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with run.working():
        run.log(phase="test", epoch=2, head="gll", mode="transductive", error=0.25)
        for gamma in (0.25, 0.5):
            run.log(phase="warmup", gamma=gamma, epoch=1, loss=gamma)
    events = EventAccumulator(str(run.directory / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("test/gll/transductive/error")] == [(2, 0.25)]
    assert [(e.step, e.value) for e in events.Scalars("warmup/0.5/loss")] == [(1, 0.5)]


def test_tensorboard_is_cut_to_the_last_checkpoint_too(run: Run) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with run.working():
        for epoch in (1, 2, 3):
            run.log(phase="warmup", gamma=0.5, epoch=epoch, loss=1 / epoch)
        run.log(phase="train", epoch=1, loss=0.5)
        run.save("train", {}, {})
        run.log(phase="train", epoch=2, loss=0.75)  # after the checkpoint: this will be done again
        run.log(phase="train", epoch=3, loss=0.75)
    mine = run.directory / "tensorboard" / "notes.txt"
    mine.write_text("of the user's own")
    with Run.open(run.directory).working():
        pass  # stopped again, at once
    again = Run.open(run.directory)
    with again.working():
        again.log(phase="train", epoch=2, loss=0.25)
    events = EventAccumulator(str(run.directory / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(1, 0.5), (2, 0.25)]
    assert [e.step for e in events.Scalars("warmup/0.5/loss")] == [1, 2, 3]
    assert mine.exists()


def test_without_tensorboard(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Board, "available", staticmethod(lambda: False))
    with run.working():
        run.log(phase="train", epoch=1, loss=0.5)
    assert not (run.directory / "tensorboard").exists()


TENSORS = {
    "float": torch.randn(3, 4),
    "half": torch.randn(2).to(torch.bfloat16),
    "whole": torch.arange(5),
    "truth": torch.tensor([True, False]),
    "scalar": torch.tensor(7.0),
    "empty": torch.zeros(0, 3),
    "transposed": torch.randn(3, 4).T,
    "part": torch.arange(10)[2:4],
}


def test_checkpoint_round_trip(tmp_path: Path) -> None:
    state = {"epoch": 3, "sums": {"loss": 0.1 + 0.2}, "tests": [], "name": "é"}
    save_checkpoint(tmp_path / "c", TENSORS, state)
    tensors, read = load_checkpoint(tmp_path / "c")
    assert read == state
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_tied_weights(tmp_path: Path) -> None:
    w = torch.randn(4)
    save_checkpoint(tmp_path / "c", {"a": w, "b": w, "c": w[1:]}, {})
    tensors, _ = load_checkpoint(tmp_path / "c")
    assert torch.equal(tensors["a"], tensors["b"])
    assert torch.equal(tensors["c"], w[1:])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nothing_that_is_not_finite_replaces_a_checkpoint(tmp_path: Path, bad: float) -> None:
    save_checkpoint(tmp_path / "c", {"w": torch.ones(2)}, {"epoch": 1})
    with pytest.raises(ValueError, match="w has values that are not finite"):
        save_checkpoint(tmp_path / "c", {"w": torch.tensor([1.0, bad])}, {"epoch": 2})
    assert load_checkpoint(tmp_path / "c")[1] == {"epoch": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_damage_is_found_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save_checkpoint(path, {"w": torch.arange(40.0)}, {"epoch": 1234})
    good = path.read_bytes()
    for place in (*range(8, len(good), 37), len(good) - 1):
        path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(CheckpointError):
            load_checkpoint(path)
    for length in (0, 4, 100, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(CheckpointError, match="cut off or damaged"):
            load_checkpoint(path)
    path.write_bytes(good)
    assert load_checkpoint(path)[1] == {"epoch": 1234}


def test_files_of_another_kind(tmp_path: Path) -> None:
    save_file({"w": torch.ones(2)}, tmp_path / "a")
    with pytest.raises(CheckpointError, match="no checkpoint of gll"):
        load_checkpoint(tmp_path / "a")
    torch.save({"w": torch.ones(2)}, tmp_path / "b")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(tmp_path / "b")


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_optimizers_go_on_exactly(tmp_path: Path, name: str) -> None:
    def start() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
        torch.manual_seed(1)
        model = torch.nn.Linear(3, 2)
        model.bias.requires_grad_(False)  # one without a state
        return model, make_optimizer(TrainConfig(optimizer=name, lr=0.1, weight_decay=0.1), model.parameters())

    def steps(model: torch.nn.Linear, optimizer: torch.optim.Optimizer, numbers: range) -> None:
        for number in numbers:
            optimizer.zero_grad()
            (model(torch.full((1, 3), float(number))) ** 2).sum().backward()
            optimizer.step()

    whole = start()
    steps(*whole, range(6))
    first = start()
    steps(*first, range(3))
    save_checkpoint(tmp_path / "c", {"w": first[0].weight, **optimizer_tensors(first[1])}, {})
    tensors, _ = load_checkpoint(tmp_path / "c")
    second = start()
    with torch.no_grad():
        second[0].weight.copy_(tensors["w"])
    load_optimizer(second[1], tensors)
    steps(*second, range(3, 6))
    assert torch.equal(second[0].weight, whole[0].weight)
    # Without its state the optimizer would have gone elsewhere: the test can fail.
    third = start()
    with torch.no_grad():
        third[0].weight.copy_(tensors["w"])
    steps(*third, range(3, 6))
    assert not torch.equal(third[0].weight, whole[0].weight)
