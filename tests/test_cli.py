"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import gll
from gll.cli import app
from gll.doctor import examine, load_npz
from gll.terminal import warned_once

run = CliRunner().invoke


def clusters(tmp_path: Path, **arrays: np.ndarray) -> Path:
    """Two clusters of 30 points far apart, written as .npz."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 1, (30, 2)), rng.normal(1000, 1, (30, 2))])
    path = tmp_path / "points.npz"
    np.savez(path, **({"features": x} | arrays))
    return path


def test_help_names_the_commands() -> None:
    result = run(app, ["--help"])
    assert result.exit_code == 0
    found = [result.output.index(f"│ {name} ") for name in ("train", "compare", "predict", "fit", "doctor", "moons")]
    assert found == sorted(found)  # what is used most comes first


def test_version() -> None:
    assert gll.__version__ in run(app, ["--version"]).output


def test_a_warning_that_comes_with_every_step_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with warned_once("UnreachedWarning"):
            for number in (3, 5, 8):
                warnings.warn(f"{number} nodes", gll.UnreachedWarning, stacklevel=1)
            warnings.warn("something else", UserWarning, stacklevel=1)
        assert capsys.readouterr().err == "gll: 3 nodes (others of this kind are not shown)\n"
        warnings.warn("13 nodes", gll.UnreachedWarning, stacklevel=1)
    assert [str(w.message) for w in heard] == ["something else", "13 nodes"]


def test_doctor_finds_what_is_wrong(tmp_path: Path) -> None:
    labels = np.full(60, -1)
    labels[:2] = [0, 1]
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 1, (30, 2)), rng.normal(1000, 1, (30, 2))])
    x[5] = x[4]
    x[7] = np.nan
    path = clusters(tmp_path, features=x, labels=labels)
    result = run(app, ["doctor", str(path), "--k", "5", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["rows_not_finite"] == 1
    assert report["duplicates"] == 1
    assert report["components"] == 2
    assert report["unreached"] == 30
    assert report["components_without_label"] == 1
    assert any("30 points are not reached" in line for line in report["advice"])


def test_doctor_prints_a_table(tmp_path: Path) -> None:
    result = run(app, ["doctor", str(clusters(tmp_path)), "--k", "5"])
    assert result.exit_code == 0, result.output
    assert "components" in result.output
    assert "no labels in the file" in result.output


def test_doctor_reads_names_of_classes(tmp_path: Path) -> None:
    names = np.full(60, "", dtype="<U5")
    names[[0, 1, 31]] = ["dog", "cat", "cat"]
    path = clusters(tmp_path, labels=names)
    assert load_npz(path)[1].tolist() == [1, 0, *[-1] * 29, 0, *[-1] * 28]  # type: ignore[union-attr]
    result = run(app, ["doctor", str(path), "--k", "5"], terminal_width=200)
    assert result.exit_code == 0, result.output
    assert "3 (2)" in result.output


def test_condition_is_the_hitting_time_of_a_random_walk() -> None:
    # Between two labelled ends of a path with equal weights, the expected number of steps is largest in the middle:
    # position · (length - position).
    x = torch.arange(11.0, dtype=torch.float64)[:, None]
    y = torch.full((11,), -1)
    y[0], y[10] = 0, 1
    report = examine(x, y, k=1)
    # k = 1: every point is joined to a neighbour at distance one, ties going to the smaller index: a path.
    assert report.components == 1
    assert report.condition == pytest.approx(2 * 5 * 5)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": np.zeros((2, 3, 4))}, "must be a (points, dimensions) array"),
        ({"features": np.zeros((4, 2)), "labels": np.zeros(3, int)}, "one label per point (4,)"),
        ({"features": np.zeros((4, 2)), "labels": np.array([1j] * 4)}, "must hold integers"),
        ({"features": np.full((4, 2), np.nan)}, "only 0 of 4 rows are finite"),
    ],
)
def test_doctor_errors_are_sentences(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    result = run(app, ["doctor", str(clusters(tmp_path, **arrays))], terminal_width=500)
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())


def test_doctor_says_which_arrays_there_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", data=np.zeros((4, 2)))
    result = run(app, ["doctor", str(tmp_path / "other.npz")])
    assert result.exit_code == 1
    assert "['data']" in result.output


def test_files_with_code_inside_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", features=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        load_npz(tmp_path / "objects.npz")
