"""Two small trained runs to attack."""

from __future__ import annotations

from pathlib import Path

import pytest

from gll.train.loop import new_run, train
from tests.tiny_runs import tiny


def trained_runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Their folders by their heads, gll and mlp: a second of training each."""
    found = {}
    for head in ("gll", "mlp"):
        folder = tmp_path_factory.mktemp(head)
        more = ("train.epochs=6", "train.steps=6", f"model.head={head}", f"name={head}")
        train(new_run(tiny(folder, *more)))
        found[head] = folder / "run"
    return found
