"""The worst case of a table says where the checks' own attacks fool more of the same samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gll.attacks import checks
from gll.attacks.checks import with_checks
from gll.attacks.evaluate import Evaluation, Outcome
from gll.attacks.footnotes import exceeded
from gll.attacks.report import about_checks, report
from gll.attacks.store import Cell, Kind
from gll.attacks.tables import paper_grid
from gll.attacks.threat import Queries, ThreatModel
from tests.attack_stubs import chunk_of
from tests.attacked_runs import attack, summary, trained_runs, without_pictures

JOINT = ThreatModel("10 samples").as_dict()
ALONE = ThreatModel("10 samples", queries=Queries.ALONE).as_dict()


def found(n: int, wrong: Mapping[float, Sequence[int]], threat: dict[str, Any] | None = None) -> Evaluation:
    """Attacks on n samples of class 0, all in one chunk: the samples that each fools, by its ε."""
    outcomes = []
    for eps, which in wrong.items():
        cell = Cell("pgd", {"eps": eps, "norm": "LInf"}, Kind.MULTI, threat, n)
        outcomes.append(Outcome(cell, (chunk_of(n, which, linf=eps),)))
    return Evaluation(np.zeros(n, dtype=np.int64), tuple(outcomes))


def test_what_the_checks_add() -> None:
    """On the samples that both have attacked, in every ball that holds what was found."""
    table = found(20, {0.1: [0, 1, 15], 0.2: [0, 1, 2, 15, 16], 0.3: [0, 1, 2, 3, 4, 15]})
    (shown,) = with_checks([table], [found(10, {0.2: [2, 3, 4]})])
    small, middle, large = shown["worst"]
    assert "with_checks" not in small  # the images of the checks lie outside
    assert middle["with_checks"] == {"samples": 10, "table": 0.3, "error": 0.5}
    assert "with_checks" not in large  # nothing new
    middle.pop("with_checks")
    assert shown == table.as_dict()


def test_in_the_same_graph_only() -> None:
    table, tried = {0.1: [0]}, {0.1: [1, 2]}
    for threat, n, comparable in ((ALONE, 20, True), (JOINT, 10, True), (JOINT, 20, False)):
        (shown,) = with_checks([found(n, table, threat)], [found(10, tried, threat)])
        assert ("with_checks" in shown["worst"][0]) is comparable
    (shown,) = with_checks([found(10, table, ALONE)], [found(10, tried, JOINT)])
    assert "with_checks" not in shown["worst"][0]
    assert with_checks([found(10, table)], []) == [found(10, table).as_dict()]


@pytest.mark.parametrize(
    ("attack", "kind", "more", "advice"),
    [
        ("fgsm from the mlp head of the same run", "transfer", {}, "`--attacks strong --resume`"),  # as in the paper
        ("square", "black box", {"queries": 9}, "`--attacks strong --resume`"),
        ("pgd from a probe", "transfer", {"steps": 9, "restarts": 2}, "more `--steps` and `--restarts`"),
    ],
)
def test_advice_has_an_effect(attack: str, kind: str, more: dict[str, Any], advice: str) -> None:
    """More steps and restarts are of use to attacks that have them."""
    settings = {"eps": 0.1, "norm": "LInf", **more}
    low = {"with_checks": {"samples": 9, "table": 0.1, "error": 0.2}}
    worst = {"norm": "LInf", "eps": 0.1, "error": 0.1, "by_kind": {kind: 0.1}} | low
    (said,) = exceeded({"groups": [{"attacks": [{"attack": attack, "settings": settings}], "worst": [worst]}]})
    assert said.endswith(f"try {advice}.")


@pytest.mark.parametrize("weak", [True, False])
def test_the_report_marks_it(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weak: bool
) -> None:
    """One short step, where the checks make some; and more steps than these, on the same samples."""
    monkeypatch.setattr(checks, "STEPS", 10)
    monkeypatch.setattr(checks, "QUERIES", 3)
    without_pictures(monkeypatch)
    options = ("--samples", "60", "--eps", "0.15", "--out", tmp_path / "out")
    chosen = ("--attacks", "fgsm") if weak else ("--attacks", "pgd,pgd-margin,square", "--steps", "40")
    result = attack(trained_runs(tmp_path_factory)["mlp"], *options, *chosen)
    assert result.exit_code == 0, result.output
    made = summary(tmp_path / "out")
    (worst,) = made["groups"][0]["worst"]
    page, (row,) = report(made), paper_grid(made).rows
    assert page == (tmp_path / "out" / "report.md").read_text()
    assert ("with_checks" in worst) is weak
    assert ("†" in result.output, "†" in page) == (weak, weak)
    place = paper_grid(made).head.index("worst case")
    assert row[place] == f"{100 * worst['error']:.2f}" + (" †" if weak else "")
    if weak:
        more = worst["with_checks"]
        assert more["samples"] == 60
        assert more["error"] > more["table"] == worst["error"]
        said = about_checks(made)[-1]
        assert f"60 samples {100 * more['error']:.2f} % with them, {100 * worst['error']:.2f} % without" in said
        assert said.endswith("try `--attacks strong --resume`.")
