"""The experiments of the paper, what the first lines of their config.toml say, and the means of their records."""

from __future__ import annotations

import functools
import statistics
from pathlib import Path

from gll.reproduce.experiment import Experiment, load_experiment, name_of
from gll.reproduce.tables import Shown

REAL = Path(__file__).parent.parent / "experiments"
LARGEST = {"fashion-toy": "full", "times": "full"}  # of others *small*


@functools.cache
def experiment(name: str) -> Experiment:
    return load_experiment(REAL / name)


def said(name: str) -> str:
    return " ".join(experiment(name).about.split())


@functools.cache
def largest(name: str) -> Shown:
    return Shown(experiment(name), LARGEST.get(name, "small"))


def every(name: str, place: str, figure: str) -> list[float]:
    """The values of all seeds."""
    shown = largest(name)
    return shown.values(next(p for p in shown.places if name_of(p) == place), figure)


def mean(name: str, place: str, figure: str = "error") -> float:
    values = every(name, place, figure)
    assert values, f"{name} has no {figure} of {place}"
    return statistics.fmean(values)


def paper(name: str, place: str, figure: str = "error") -> float:
    found = experiment(name).paper(place, figure)
    assert found is not None
    return found[0]


def one(value: float) -> str:
    return f"{value:.1f}"
