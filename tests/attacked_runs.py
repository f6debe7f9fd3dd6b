"""Two small trained runs to attack, and `gll attack` on them without its pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gll.attacks import command
from gll.cli import app
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


def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than the attacks."""
    for name in ("draw_curves", "draw_distances", "draw_images", "draw_poison"):
        monkeypatch.setattr(command, name, lambda *args: None)


def attack(*arguments: str | Path) -> Result:
    """The command."""
    return CliRunner().invoke(app, ["attack", *map(str, arguments)])


def summary(out: Path) -> dict[str, Any]:
    """What it has left in a folder."""
    record: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return record
