"""What pages say in words, held to the records: the pages, the records, and how a claim is tested."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from gll.reproduce.experiment import load_all, name_of
from gll.reproduce.findings import Findings
from gll.reproduce.records import Record
from gll.reproduce.tables import states_of

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    (ROOT / "docs" / name).read_text(encoding="utf-8")
    for name in ("what-we-found.md", "claim-by-claim.md", "robustness.md", "robustness-readings.md", "decisions.md")
]
EXPERIMENTS = load_all(ROOT / "experiments")
STATES = {name: states_of(experiment) for name, experiment in EXPERIMENTS.items()}
FINDINGS = Findings(EXPERIMENTS, STATES, ROOT / "benchmarks" / "results", ROOT / "configs")


def values(experiment: str, place: str, figure: str = "error") -> list[float]:
    """Of every seed, at the largest scale that was run."""
    found = FINDINGS.values(experiment, place, figure)
    assert found, f"{experiment} has no record of {place}"
    return found


def mean(experiment: str, place: str, figure: str = "error") -> float:
    return statistics.fmean(values(experiment, place, figure))


def paper(experiment: str, place: str, figure: str = "error") -> float:
    found = EXPERIMENTS[experiment].paper(place, figure)
    assert found is not None
    return found[0]


def protocol(place: str) -> list[float]:
    return values("adversarial", place, "worst case")


def found(experiment: str, place: str) -> Record:
    """The record of a place at *small*, of which there is one."""
    (record,) = (r for p, r in STATES[experiment]["small"].found if name_of(p) == place)
    return record


def require_true(claim: str, shown: Callable[[], bool]) -> None:
    """That a page says so, and the records show it."""
    assert any(claim in " ".join(page.split()) for page in PAGES), "no page says it any more: take it out here, too"
    assert shown(), f"the records no longer show it: {claim}"
