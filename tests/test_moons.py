"""The two-moons study, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import gll.moons
from gll.cli import app

run = CliRunner().invoke


def test_it_prints_a_table_and_draws(tmp_path: Path) -> None:
    result = run(app, ["moons", "--epochs", "3", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "softmax" in result.output
    assert (tmp_path / "two_moons.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads((tmp_path / "two_moons.json").read_text())
    assert [row["head"] for row in rows] == ["τ = 0", "τ = 0.001", "τ = 0.01", "τ = 0.1", "τ = 0.5", "softmax"]
    assert all(np.isfinite(row["loss"]) and row["epochs"] == 3 for row in rows)


def test_it_keeps_what_it_has_on_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = gll.moons.Study.step

    def stop(self: gll.moons.Study) -> None:
        if self.tau == 0.001 and self.epoch == 2:
            raise KeyboardInterrupt
        step(self)

    monkeypatch.setattr(gll.moons.Study, "step", stop)
    result = run(app, ["moons", "--epochs", "4", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "two_moons.json").read_text())
    assert [(row["head"], row["epochs"]) for row in rows] == [("τ = 0", 4), ("τ = 0.001", 2)]


def test_the_encoder_learns() -> None:
    study = gll.moons.Study(0.01, seed=1)
    study.step()
    first = study.loss
    for _ in range(60):
        study.step()
    assert study.loss < 0.97 * first


def test_snapshots_are_the_papers_where_they_fit() -> None:
    assert gll.moons.snapshot_epochs(150_000) == [0, 500, 2_000, 10_000, 50_000, 150_000]
    assert gll.moons.snapshot_epochs(1000) == [0, 20, 80, 250, 500, 1000]
