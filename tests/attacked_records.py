"""Copies of the experiments under attack that a test may change: records of one place as if they were another's."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gll.reproduce.experiment import load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import add_records, read_records

ROOT = Path(__file__).resolve().parent.parent


def copied(folder: Path, patch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/_attacked.py; and in the folder a copy of the two experiments."""
    patch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    for name in ("adversarial", "worst-case"):
        shutil.copytree(ROOT / "experiments" / name, folder / name, ignore=shutil.ignore_patterns("arrays"))
    return importlib.import_module("_attacked")


def pretend(folder: Path, scale: str, old: str, new: str, **values: float) -> None:
    """Records of one place as if they were those of another, every seed; `values` are put in their place."""
    experiment = load_experiment(folder)
    cells = kind_of(experiment).cells(experiment, scale)
    known = read_records(folder / "results.json")
    source = next(known[cell.key] for cell in cells if cell.point.name == old and cell.key in known)
    made = []
    for cell in cells:
        if cell.point.name == new:
            changed = source["values"] | {name.replace("_", " "): value for name, value in values.items()}
            own = {"key": cell.key, "cell": cell.title, "seed": cell.point.seed, "place": dict(cell.point.place)}
            made.append({**source, **own, "scale": scale, "values": changed, "date": "9"})
    assert add_records(folder / "results.json", made) == len(made) > 0
