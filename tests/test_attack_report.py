"""What the page and the screen say beside the figures: notes under the first table, graphs, names of attacks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gll.attacks import plots
from gll.attacks.footnotes import footnotes
from gll.attacks.plots import draw_curves
from gll.attacks.report import report
from gll.attacks.sets import NAMES, SETS
from gll.attacks.tables import attacks_grid, checks_grid
from gll.cli import app
from tests.attacked_runs import attack, summary, trained_runs, without_pictures

ROOT = Path(__file__).resolve().parent.parent


def cell(attack: str, error: float, eps: float = 0.1, **more: Any) -> dict[str, Any]:
    """An attack in a graph of all queries."""
    threat = {"base": "10 samples", "queries": "joint", "inference": "transductive"}
    settings = {"eps": eps, "norm": {"name": "LInf"}, **more.pop("settings", {})}
    known = {"attack": attack, "error": error, "natural": 0.0, "kind": "multi-step", "threat": threat, "chunk": 9}
    return known | {"settings": settings} | more


def found(*attacks: dict[str, Any], worst: float = 0.5) -> dict[str, Any]:
    """An evaluation of these."""
    one = {"norm": "LInf", "eps": 0.1, "error": worst, "attacks": len(attacks), "by_kind": {"multi-step": worst}}
    about = {"run": {}, "table_eps": 0.3, "table_eps_pixels": 0.3, "table_c": 20, "unit": 1.0}
    return about | {"groups": [{"attacks": list(attacks), "worst": [one]}]}


def test_a_worst_case_that_no_attacker_reaches_at_once() -> None:
    pgd, other = cell("pgd", 0.3), cell("pgd with every class", 0.45)
    shared = (
        "Queries share a graph: the worst case takes each sample from another batch, which no attacker can send at once"
        "; the best single attack fools 45.00 % at ε = 0.1."
    )
    assert shared in footnotes(found(pgd, other))
    one = footnotes(found(pgd, other, worst=0.45))  # which a single attack reaches
    assert not any("Queries share" in line for line in one)
    for each in (pgd, other):
        each["threat"] = each["threat"] | {"queries": "alone"}
    assert not any("Queries share" in line for line in footnotes(found(pgd, other)))


def test_autoattack_in_both_forms() -> None:
    standard, seeing = cell("autoattack apart", 0.277), cell("autoattack-gradients with every class", 0.736)
    assert any("Quote the larger of the two" in line for line in footnotes(found(standard, seeing)))
    assert not any("AutoAttack" in line for line in footnotes(found(standard)))


def test_a_transfer_that_asks_the_model() -> None:
    asking = {"source": "a linear probe", "asks": True}
    probe = cell("pgd from a linear probe", 0.3, kind="transfer", settings=asking)
    other = cell("pgd from another run", 0.2, kind="transfer", settings={"source": "another run"})
    also = "also ask the model under attack for its answers."
    alone = f"transfer: from no other run (`--transfer RUN` adds that), but from a linear probe, by attacks that {also}"
    assert alone in footnotes(found(probe))
    assert f"transfer: attacks from a linear probe {also}" in footnotes(found(probe, other))
    assert not any("transfer:" in line for line in footnotes(found(other)))


def test_columns_without_a_figure_are_left_out() -> None:
    figures = {"zero_gradients": None, "mean_linf": 0.1, "mean_squared_l2": 0.1, "seconds": 1.0}
    plain = [cell("pgd", 0.3, **figures) | {"threat": None}, cell("square", 0.2, **figures) | {"threat": None}]
    assert attacks_grid(found(*plain)).head == (
        "attack", "kind", "chunk", "error, %", "mean L∞", "mean L2²", "seconds"
    )  # fmt: skip
    plain[0]["zero_gradients"] = 0.0
    assert "zero gradients, % of those right" in attacks_grid(found(*plain)).head


def test_autoattack_moves_only_what_it_fools() -> None:
    figures = {"zero_gradients": None, "mean_linf": 0.01, "mean_squared_l2": 0.1, "seconds": 1.0, "threat": None}
    about = {"samples": 9, "run": {"name": "a", "data": "digits", "about": "b"}, "checks": [], "notes": []}
    for name, said in (("autoattack", True), ("autoattack-gradients with every class", True), ("pgd", False)):
        page = report(found(cell(name, 0.1, **figures)) | about)
        assert ("AutoAttack moves no image that it does not fool" in page[page.index("## Every attack") :]) is said


def test_where_a_check_looked_is_said_once() -> None:
    """In the line above the table; in the table only of a figure from elsewhere."""
    at = {"eps": 0.1, "norm": "LInf", "samples": 40, "graph": "each query alone beside a base of 20"}
    there = "(1.0% by a against 2.0% by b; L∞, ε = 0.1, 40 samples, each query alone beside a base of 20): hidden"
    checks = [
        {"name": "stand-in", "figure": 0.1, "passed": False, "meaning": meaning}
        for meaning in (there, there.replace("40", "400"), "no attacks")
    ]
    meanings = [row[3] for row in checks_grid({"checks": checks, "checks_at": at}).rows]
    assert meanings == ["(1.0% by a against 2.0% by b): hidden", there.replace("40", "400"), "no attacks"]
    assert [row[3] for row in checks_grid({"checks": checks}).rows] == [check["meaning"] for check in checks]


def test_every_name_is_in_the_help_and_on_the_page() -> None:
    out = CliRunner().invoke(app, ["attack", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", out).split())
    said = text[text.index("--attacks") : text.index("--eps")]
    for name, members in SETS.items():
        assert re.search(rf"{name}[^.:]*: {', '.join(members)}\.", said), name
    (others,) = re.findall(r"In no set: ([^.]*)\.", said)
    assert others.split(", ") == [name for name in NAMES if not any(name in members for members in SETS.values())]
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| `--attacks`")]
    assert re.findall(r"`([^`]+)`", row)[1:] == [
        "paper",
        *SETS["paper"],
        "strong",
        *SETS["strong"],
        *others.split(", "),
    ]


def test_curves_of_many_attacks_name_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: figures.append(figure))
    # At the larger ε all are as good.
    many = [cell(f"attack {i}", i / 20 if eps == 0.1 else 1.0, eps) for i in range(8) for eps in (0.1, 0.2)]
    assert draw_curves({"a": found(*many, cell("far", 1.0, 0.9))}, tmp_path / "a.png")
    (axis,), (legend,) = figures[0].axes, figures[0].legends
    named = ["other attacks", "attack 5", "attack 6", "attack 7", "worst case", "natural"]
    assert [text.get_text() for text in legend.texts] == named
    faint = [line for line in axis.lines if line.get_linewidth() < 1 and line.get_color() == "0.7"]
    assert len(faint) == 6
    coloured = [line.get_color() for line in axis.lines if str(line.get_color()).startswith("C")]
    assert len(set(coloured)) == len(coloured) == 3


def test_curves_always_name_pgd_on_the_models_own_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is the weakest, which says that the model's gradient hides something."""
    figures: list[Any] = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: figures.append(figure))
    many = [cell(f"attack {i}", 0.3 + i / 20) for i in range(4)]
    own = cell("pgd", 0.1, settings={"objective": "CrossEntropy"})
    for loss in ({}, {"settings": {"objective": {"name": "CrossEntropy"}}}):
        assert draw_curves({"a": found(*many, own, cell("pgd", 0.1, **loss))}, tmp_path / "a.png")
        names = [text.get_text() for text in figures[-1].legends[0].texts]
        assert "pgd, cross-entropy" in names
        assert "attack 0" not in names
    lent = own | {"threat": own["threat"] | {"gradient": "that of a surrogate"}}
    assert draw_curves({"a": found(*many, lent)}, tmp_path / "a.png")
    assert "pgd, cross-entropy" not in [text.get_text() for text in figures[-1].legends[0].texts]


def test_a_note_is_said_once_and_the_graph_is_a_list(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_pictures(monkeypatch)
    monkeypatch.setattr("gll.attacks.command.run_checks", lambda *args, **options: ())
    monkeypatch.setattr("gll.attacks.sets.SETS", {"few": ("fgsm", "pgd", "fixed", "surrogate", "transfer", "probe")})
    few = ("--samples", "12", "--base", "40", "--eps", "0.1", "--steps", "2", "--attacks", "few", "--out", tmp_path)
    result = attack(trained_runs(tmp_path_factory)["gll"], *few)
    assert result.exit_code == 0, result.output
    notes = summary(tmp_path)["notes"]
    assert [note.split(" ")[0] for note in notes] == ["surrogate", "transfer"]
    assert [result.output.count(note) for note in notes] == [1, 1]
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    for note in footnotes(summary(tmp_path)):  # on the page and on the screen
        assert note.lstrip("* ") in page
        assert note in result.output
    said = page[page.index("## What is in the graph") :].splitlines()[2:10]
    assert said[0].startswith("- The base is 40 of 60 labelled training samples of digits")
    assert said[0].endswith("all attacked samples are nodes of one graph with it; neighbours are exact.")
    assert said[1:] == [
        "    - judged in float32; gradients followed:",
        "        - own",
        "    - judged in float64; gradients followed:",
        "        - own",
        "        - own with the neighbours of the clean images",
        "        - that of a linear probe on the same encoder",
        "",
    ]
