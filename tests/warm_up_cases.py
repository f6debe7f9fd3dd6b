"""Small warm-ups on handwritten digits, for several files of tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gll.data.datasets import TrainTest, load
from gll.data.splits import LabelSplit, split_labels
from gll.nn.encoders import create_encoder
from gll.train.config import from_toml
from gll.train.pretrain import WarmUp, warm_up
from gll.train.runs import Run

DIGITS = load("digits")
DATA = dataclasses.replace(DIGITS, train=DIGITS.train[:300], train_labels=DIGITS.train_labels[:300])
SPLIT = split_labels(DATA.train_labels, "6 each", seed=0)
TINY = """
name = "tiny"
device = "cpu"
[warmup]
epochs = 2
gamma = 0.5
batch = 100
lr = 0.05
augment = "crop"
every = 1
save_every = 1
k = 8
held_out = 0.34
projection = [32, 16]
"""


def network() -> nn.Module:
    torch.manual_seed(5)
    return create_encoder("digits-cnn", in_channels=1)


def start(folder: Path, *overrides: str, data: TrainTest = DATA, split: LabelSplit = SPLIT) -> Callable[..., Any]:
    """A warm-up in a new run directory, to be called; it gives the result, the encoder and the run."""
    config = from_toml(TINY, overrides)
    Run.create(folder, config, split)

    def go(**options: Any) -> tuple[WarmUp, nn.Module, Run]:
        run = Run.open(folder)
        encoder = network()
        with run.working():
            return warm_up(encoder, data, run.split, run.config, run, **options), encoder, run

    return go


def metrics(run: Run) -> list[dict[str, Any]]:
    """Without what depends on the clock."""
    clock = ("seconds", "images_per_second")
    return [{k: v for k, v in line.items() if k not in clock} for line in run.metrics()]


def same(a: nn.Module, b: nn.Module) -> bool:
    x, y = a.state_dict(), b.state_dict()
    return x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)
