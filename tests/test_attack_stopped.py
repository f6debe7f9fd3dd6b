"""`gll attack` that is stopped: it says what is kept and how to go on, and goes on to the same figures."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gll.attacks import checks
from gll.attacks.store import Store
from tests.attacked_runs import attack, summary, trained_runs, without_pictures


def by_ctrl_c() -> None:
    raise KeyboardInterrupt  # not by a signal: where tests run in the background of a shell, SIGINT is ignored


def by_sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trained_runs(tmp_path_factory)


@pytest.mark.parametrize("stop", [by_ctrl_c, by_sigterm])
def test_interrupted_and_resumed(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: Callable[[], None]
) -> None:
    monkeypatch.setattr(checks, "STEPS", 2)
    monkeypatch.setattr(checks, "QUERIES", 3)
    without_pictures(monkeypatch)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    options = ("--samples", "20", "--eps", "0.1", "--chunk", "8", "--attacks", "fgsm,pgd", "--steps", "3")
    assert attack(runs["mlp"], *options, "--out", whole).exit_code == 0
    append, left, before = Store.append, [4], signal.getsignal(signal.SIGTERM)

    def until(self: Store, *args: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            stop()
        append(self, *args)

    # Without a handler of the command's own the signal would end the tests: here it only fails this one.
    signal.signal(signal.SIGTERM, lambda number, frame: pytest.fail("nobody listens to SIGTERM"))
    monkeypatch.setattr(Store, "append", until)
    try:
        result = attack(runs["mlp"], *options, "--out", stopped)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 130
    said = result.output.replace("\n", " ")
    assert "interrupted; what is done is kept in" in said
    assert "the same command with --resume goes on" in said
    monkeypatch.setattr(Store, "append", append)
    (file,) = (stopped / "cells").glob("pgd-*.json")
    assert len(json.loads(file.read_text())["chunks"]) == 1  # of three; those of fgsm are all there
    assert attack(runs["mlp"], *options, "--out", stopped, "--resume").exit_code == 0

    def timeless(record: Any) -> Any:
        if isinstance(record, dict):
            gone = ("seconds", "wall_s", "environment", "written")
            return {key: timeless(value) for key, value in record.items() if key not in gone}
        return [timeless(value) for value in record] if isinstance(record, list) else record

    assert timeless(summary(stopped)) == timeless(summary(whole))
