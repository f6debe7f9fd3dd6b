"""Runs of a second, for the tests of training: 400 digits and 100 to test on, from an .npz file."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gll.data.datasets import load
from gll.train.config import Config, from_toml
from gll.train.runs import Run

TINY = """
name = "tiny"
device = "cpu"
data = { labels = "6 each" }
base = { size = 20 }
train = { epochs = 2, steps = 3, batch = 60, labelled = 20 }
test = { every = 0, k = 10 }
"""
WARM = ["warmup.epochs=1", "warmup.batch=100", "warmup.steps=2", "warmup.augment=simclr-grey"]


@functools.cache
def digits() -> Path:
    """The file."""
    data = load("digits")
    path = Path(tempfile.mkdtemp()) / "digits.npz"
    arrays = {"x_train": data.train[:400], "y_train": data.train_labels[:400]}
    arrays |= {"x_test": data.test[:100], "y_test": data.test_labels[:100]}
    np.savez(path, **{name: tensor.numpy() for name, tensor in arrays.items()})  # type: ignore[arg-type]
    return path


def tiny(directory: Path, *overrides: str) -> Config:
    """A config for a run in directory/run."""
    return from_toml(TINY, [f"out={directory / 'run'}", f"data.name={digits()}", *overrides])


def lines(run: Run) -> list[dict[str, Any]]:
    """The metrics without times."""
    return [{k: v for k, v in row.items() if k not in ("seconds", "images_per_second")} for row in run.metrics()]
