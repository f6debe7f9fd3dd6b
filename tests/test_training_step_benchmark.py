"""benchmarks/training_step.py: what it counts as the data pipeline, and what its JSON records."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from typer import Typer
from typer.testing import CliRunner

from gll.data import normalize
from gll.data.augment import augmentation_from_name
from gll.data.random import generator

SETTINGS = {"seed": 3, "channels_last": False, "bf16": False}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    threads, tuned = torch.get_num_threads(), torch.backends.cudnn.benchmark
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    yield importlib.import_module("benchmarks.training_step")
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = tuned


def test_the_augmentation_is_in_the_pipeline(bench: ModuleType, tmp_path: Path) -> None:
    data = bench.images(tmp_path)  # where no MNIST is: noise
    plain, grey = (bench.Model("gll", "small-cnn", 128, data, SETTINGS | {"augment": a}) for a in ("none", "grey"))
    batches, augment = plain.batches.epoch(0), augmentation_from_name("grey")
    for step in range(2):
        images = data.train[next(batches).nodes]
        changed = augment(images, generator(3, "augment", 0, step, 0))  # anew in each step, as in training
        (x, y), (x_grey, y_grey) = plain.fetch(), grey.fetch()
        assert len(x) == 128 + bench.BASE
        assert torch.equal(y, y_grey)
        assert torch.equal(x, normalize(images, data))
        assert torch.equal(x_grey, normalize(changed, data))
        assert not torch.equal(changed, images)


def test_the_record_says_which(bench: ModuleType, tmp_path: Path) -> None:
    app = Typer()
    app.command()(bench.main)
    few = ["--networks", "small-cnn", "--batches", "8", "--rounds", "1", "--steps", "1", "--warm", "1"]
    few += ["--data-root", str(tmp_path)]
    for words, name in (([], "none"), (["--augment", "grey"], "grey")):
        file = tmp_path / f"{name}.json"
        done = CliRunner().invoke(app, [*few, *words, "--json", str(file)])
        assert done.exit_code == 0, done.output
        assert f"augmentation: {name};" in done.output
        assert json.loads(file.read_text())["config"]["augment"] == name
    wrong = CliRunner().invoke(app, [*few, "--augment", "gray"])
    assert wrong.exit_code == 2
    assert "grey-crop-flip" in wrong.output
