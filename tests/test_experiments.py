"""The experiments of the paper: pages are up to date, smoke runs all of them, their grids are the paper's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from gll.reproduce import tables
from gll.reproduce.experiment import load_all, load_experiment
from gll.reproduce.kinds import Place, kind_of
from gll.reproduce.work import Work
from gll.train.progress import Reporter

REAL = Path(__file__).parent.parent / "experiments"
NAMES = sorted(path.parent.name for path in REAL.glob("*/config.toml"))


def test_pages_are_up_to_date() -> None:
    for path, text in tables.pages(load_all(REAL)).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run gll reproduce --tables"


@pytest.mark.parametrize("name", NAMES)
def test_smoke(name: str, tmp_path: Path) -> None:
    experiment = load_experiment(REAL / name)
    assert experiment.command.startswith(f"gll reproduce {name} "), "config.toml opens with its command"
    work = Work(experiment, "smoke", tmp_path, "cpu", Reporter(Console(quiet=True)))
    assert work.run() == []
    shown = set(experiment.text["table"]["figures"])
    for cell, record in ((c, work.done()[c.key]) for c in work.cells if not c.role):
        found = {figure for figure, value in record["values"].items() if value is not None}
        assert found & shown, f"{cell.title} has {found}, its table {shown}"
        assert all(np.isfinite(record["values"][figure]) for figure in found)


@pytest.mark.parametrize("name", NAMES)
def test_all_cells_of_all_scales_can_be_listed(name: str) -> None:
    experiment = load_experiment(REAL / name)
    for scale in experiment.scales:
        cells = kind_of(experiment).cells(experiment, scale)
        assert len({cell.key for cell in cells}) == len(cells), "two cells are the same"
    grid = {"cifar10": 81, "emnist": 81, "times": 36, "adversarial": 18, "moons": 6}
    if name in grid:
        seeds = len(experiment.text["scales"]["full"]["seeds"])
        assert sum(not cell.role for cell in cells) == grid[name] * seeds


def test_the_parameter_counts_are_the_papers() -> None:
    experiment = load_experiment(REAL / "parameters")
    kind = kind_of(experiment)
    for cell in kind.cells(experiment, "full"):
        found = kind.run(experiment, cell, Place(REAL, None, "cpu", Reporter())).values
        for figure, value in experiment.expected["values"].get(cell.point.name, {}).items():
            assert found[figure] == value, (cell.title, figure)
