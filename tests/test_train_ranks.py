"""Training by two processes is training by one, and what two cannot share is refused before anything starts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gll.train.config import load_config, to_toml
from gll.train.distributed import Ranks
from gll.train.loop import Training, new_run, train
from gll.train.progress import Reporter
from gll.train.runs import Run, RunError
from gll.train.start import check_processes
from gll.train.toml import ConfigError
from tests.launch import ROOT, two_processes
from tests.tiny_runs import WARM, lines, tiny

# Without batch normalisation, whose statistics are those of a share, and without what magnifies rounding: features of
# two numbers on a circle, and Adam, which makes a full step of a gradient that is zero up to rounding.
PLAIN = ["data.name=moons", "model.encoder=mlp", "data.labels=30 each", "base.size=10", "train.graph=gathered"]
PLAIN += ["model.head_options.normalize=false", "base.strategy=fixed", "train.optimizer=sgd", "train.lr=0.05"]
SWITCH = ["model.switch_at=2", "train.weight_decay=0.5", "train.epochs=4"]
# Where an attack starts at random, every process draws for itself.
ATTACKED = ["adversarial.eps=0.1", "adversarial.random_start=false", "adversarial.steps=2"]
RUNS = {
    "plain": PLAIN,
    "switch": [*PLAIN, *SWITCH],
    "attacked": [*PLAIN, *ATTACKED],
    "attacked-probe": [*PLAIN, *ATTACKED, "adversarial.against=probe"],
    "odd": ["train.batch=61"],
    "odd-labelled": ["train.labelled=21"],
    "warm": ["train.epochs=0", "warmup.save_every=1", *WARM, "warmup.epochs=2"],
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, str]]]:
    """A folder with a run for every config, in folder/NAME/run, and why each process refused some."""
    folder = tmp_path_factory.mktemp("two")
    for name, options in RUNS.items():
        (folder / f"{name}.toml").write_text(to_toml(tiny(folder / name, *options)))
    two_processes("train_ranks.py", str(folder))
    return folder, [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("name", ["plain", "switch", "attacked", "attacked-probe"])
def test_two_processes_train_as_one(tmp_path: Path, two: tuple[Path, list[dict[str, str]]], name: str) -> None:
    """Losses, errors and all parameters; of a switch also those of the head that is not at work."""
    folder, refused = two
    assert [name in answers for answers in refused] == [False, False]
    alone = new_run(tiny(tmp_path, *RUNS[name]))
    train(alone)
    together = Run.open(folder / name / "run")
    rows = [[row for row in lines(run) if row["phase"] == "train"] for run in (alone, together)]
    assert len(rows[0]) == len(rows[1]) > 0
    for a, b in zip(*rows, strict=True):
        assert b == {**a, "loss": pytest.approx(a["loss"], rel=1e-5), "error": pytest.approx(a["error"], abs=1e-9)}
    one, both = (run.load("train") for run in (alone, together))
    assert one is not None
    assert both is not None
    for key, tensor in one[0].items():
        torch.testing.assert_close(
            both[0][key], tensor, rtol=1e-4, atol=1e-6, msg=lambda text, key=key: f"{key}: {text}"
        )


def test_a_batch_that_cannot_be_shared(two: tuple[Path, list[dict[str, str]]]) -> None:
    folder, (first, second) = two
    assert first["odd"] == (
        "ConfigError: train.batch = 61 is shared by 2 processes, and must be a multiple of that number: use 60 or 62"
    )
    assert "train.labelled = 21 is shared by 2" in first["odd-labelled"]
    assert second["odd"] == second["odd-labelled"] == "RunError: the first process could not start: see what it says"
    assert not (folder / "odd").exists()


@pytest.mark.parametrize(("name", "checkpoint"), [("plain", "train"), ("warm", "warmup-1.0")])
def test_another_number_of_processes_does_not_go_on(
    tmp_path: Path, two: tuple[Path, list[dict[str, str]]], name: str, checkpoint: str
) -> None:
    shutil.copytree(two[0] / name / "run", tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        if path.stem != checkpoint:
            path.unlink()
    with pytest.raises(RunError, match=r"begun by 2 processes, .* with 1: use torchrun with --nproc-per-node=2"):
        train(Run.open(tmp_path / "run"))


def test_the_commands_of_the_page() -> None:
    """Those of docs/multi-gpu.md can be shared by as many processes as they start."""
    text = (ROOT / "docs/multi-gpu.md").read_text()
    commands = re.findall(
        r"^torchrun .*--nproc-per-node=(\d+) -m gll train (\S+)((?: +[\w.]+=\S+)*)", text, re.MULTILINE
    )
    assert len(commands) == 2
    for processes, path, overrides in commands:
        check_processes(load_config(ROOT / path, overrides.split()), Ranks(0, int(processes)))


def test_a_base_apart_is_for_one_process(tmp_path: Path) -> None:
    config = tiny(tmp_path, "base.apart=true")
    with pytest.raises(ConfigError, match=r"base\.apart is for one process, and there are 2"):
        new_run(config, Ranks(0, 2))
    new_run(config)


def test_batch_statistics_of_all_processes(tmp_path: Path) -> None:
    config = tiny(tmp_path, "train.sync_batchnorm=true")
    with pytest.raises(ConfigError, match="sync_batchnorm needs GPUs"):
        new_run(config, Ranks(0, 2))
    run = new_run(config)

    def norms(ranks: Ranks) -> tuple[Training, set[Any]]:
        training = Training(run, ranks, Reporter())
        kinds = (nn.BatchNorm2d, nn.SyncBatchNorm)
        return training, {type(m) for m in training.model.encoder.modules() if isinstance(m, kinds)}

    assert norms(Ranks())[1] == {nn.BatchNorm2d}
    training, kinds = norms(Ranks(0, 2))
    assert kinds == {nn.SyncBatchNorm}
    assert {id(p) for p in training.trainable} == {id(p) for p in training.model.encoder.parameters()}


@pytest.mark.slow
def test_torchrun(tmp_path: Path) -> None:
    """The command of docs/multi-gpu.md that needs no GPU, shortened, and gone on with."""
    text = (ROOT / "docs/multi-gpu.md").read_text()
    (command,) = re.findall(r"^torchrun (.*device=cpu)", text, re.MULTILINE)
    start = [sys.executable, "-m", "torch.distributed.run", *command.split()]
    options = ["train.epochs=2", "train.steps=3", f"out={tmp_path / 'run'}"]
    again = [*start[: start.index("train") + 1], "--resume", str(tmp_path / "run")]
    for call in ([*start, *options], again):
        process = subprocess.run(
            call, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=ROOT, capture_output=True, text=True, timeout=300
        )
        assert process.returncode == 0, process.stderr
    run = Run.open(tmp_path / "run")
    assert run.load("train")[1]["processes"] == 2  # type: ignore[index]
    assert [row["epoch"] for row in run.metrics() if row["phase"] == "train"] == [1, 2]
    assert "was finished before" in process.stdout
