"""What the tests of `gll fit` share: the command, files of digits, and small files of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from typer.testing import CliRunner, Result

from gll.cli import app

X, TRUTH = (a[:600] for a in load_digits(return_X_y=True))
ROWS = np.concatenate([np.flatnonzero(d == TRUTH)[:3] for d in range(10)])


def gll_fit(*words: object) -> Result:
    return CliRunner().invoke(app, ["fit", *map(str, words)])


def loaded(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def flat(result: Result) -> str:
    return " ".join(result.output.split())


def digits_files(tmp_path: Path) -> tuple[Path, Path]:
    np.savez(tmp_path / "digits.npz", features=X)
    lines = [f"{row},digit {TRUTH[row]}" for row in ROWS]
    (tmp_path / "labels.csv").write_text("\n".join(["index,label", *lines]) + "\n")
    return tmp_path / "digits.npz", tmp_path / "labels.csv"


def small_files(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Two clusters of six points, and any labels; files may be replaced."""

    def make(text: str | bytes = "index,label\n0,a\n6,b\n", **arrays: Any) -> tuple[Path, Path]:
        x = np.random.default_rng(0).normal(size=(12, 2)) + np.repeat([[0.0], [8.0]], 6, 0)
        np.savez(tmp_path / "x.npz", **(arrays or {"features": x}))
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / "y.csv").write_bytes(data)
        return tmp_path / "x.npz", tmp_path / "y.csv"

    return make
