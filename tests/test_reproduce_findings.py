"""Numbers in the text of what-we-found.md come from files, and what they name must exist."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from gll.reproduce.experiment import Experiment, load_all, load_experiment
from gll.reproduce.findings import Findings, _anchor
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import add_records
from gll.reproduce.tables import _filled, how_far, states_of, table

ROOT = Path(__file__).resolve().parent.parent
CONFIG = """
title = "heads"
paper = "a table"
kind = "train"
order = 1
table = { rows = ["head"], figures = ["error"], better = "lower", digits = 1 }
[axes.head]
gll = ["model.head=gll"]
mlp = ["model.head=mlp"]
[scales.small]
seeds = [0, 1]
[scales.full]
seeds = [0]
set = ["train.epochs=500"]
"""


def with_errors(experiment: Experiment, scale: str, errors: Sequence[float]) -> None:
    """Records of the first cells of a scale, with these errors."""
    more = {"versions": {"torch": "2"}, "device": "cpu", "wall_s": 1.0, "date": "1", "commit": "c", "more": {}}
    made = [
        {"key": c.key, "cell": c.title, "seed": c.point.seed, "scale": scale, "values": {"error": e}, **more}
        for c, e in zip(kind_of(experiment).cells(experiment, scale), errors, strict=False)
    ]
    add_records(experiment.folder / "results.json", made)


@pytest.fixture
def findings(tmp_path: Path) -> Findings:
    folder = tmp_path / "heads"
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG)
    (folder / "expected.json").write_text('{"values": {"gll": {"error": [9.0, 0.5]}, "mlp": {"error": 7.0}}}')
    experiment = load_experiment(folder)
    with_errors(experiment, "small", (4.0, 1.0, 6.0))
    tests = [{"head": "mlp", "error": 0.2}, {"head": "gll", "error": 0.1}]
    rows = [{"name": "mine", "tests": tests}, {"name": "mine", "tests": [{"head": "mlp", "error": 0.4}]}]
    (tmp_path / "training.json").write_text(json.dumps({"rows": rows}))
    experiments = {"heads": experiment}
    return Findings(experiments, {"heads": states_of(experiment)}, tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("mark", "value"),
    [
        ("ours heads; gll; error", "**5.0 ± 1.4**"),
        ("ours heads; mlp; error", "**1.0**"),
        ("paper heads; gll; error", "9.0 ± 0.5"),
        ("paper heads; mlp; error", "7.0"),
        ("both heads; gll; error", "**5.0 ± 1.4** (9.0 ± 0.5)"),
        ("run mine; mlp", "**30.00 ± 14.14**"),
        ("run mine; gll", "**10.00**"),
        ("run-seeds mine", "2"),
        ("seeds heads; gll", "2 seeds"),
        ("status heads", "small: 3 of 4 cells; full: not run"),
        ("status heads; gll", "small: done; full: not run"),
        ("status heads; mlp", "small: 1 of 2 cells; full: not run"),
    ],
)
def test_a_number_is_written_again(findings: Findings, mark: str, value: str) -> None:
    old = f"It is <!-- {mark} -->12<!-- end -->, and <!-- run mine; gll -->x\ny<!-- end --> there."
    new = f"It is <!-- {mark} -->{value}<!-- end -->, and <!-- run mine; gll -->**10.00**<!-- end --> there."
    assert findings.filled(old) == new
    assert findings.filled(new) == new


def test_entries_of_the_paper_that_have_a_number_of_ours(findings: Findings) -> None:
    """At whatever scale; what is asked for and was not run, and what is not asked for, count as the paper's alone."""
    findings.experiments["heads"].expected["values"]["vgg, gll"] = {"error": 1.0}
    assert (findings.entries("heads"), findings.entries("heads", "gll")) == ("2 of 3", "1 of 2")
    assert findings.entries("heads", "mlp", "error") == "1 of 1"
    assert findings.entries("heads", "without mlp") == findings.entries("heads", "gll")
    with pytest.raises(ValueError, match="unknown name on an axis of heads, or figure 'gull'"):
        findings.entries("heads", "gull")


def test_what_was_divided_from_the_papers_numbers_is_no_entry_of_it(tmp_path: Path) -> None:
    (tmp_path / "heads").mkdir()
    config = CONFIG.replace('figures = ["error"]', 'figures = ["error", "ratio"], quotients = ["ratio"]')
    (tmp_path / "heads" / "config.toml").write_text(config)
    values = {head: {"error": 1.0, "ratio": 2.0} for head in ("gll", "mlp")}
    (tmp_path / "heads" / "expected.json").write_text(json.dumps({"values": values}))
    experiments = load_all(tmp_path)
    found = Findings(experiments, {"heads": states_of(experiments["heads"])}, tmp_path, tmp_path)
    assert (found.entries("heads"), found.entries("heads", "gll", "ratio")) == ("0 of 2", "0 of 1")


def test_what_a_scale_leaves_out_is_named(tmp_path: Path) -> None:
    """What the paper has: whole names on an axis, and single places. What is not in the paper is not missed."""
    folder = tmp_path / "heads"
    folder.mkdir()
    config = CONFIG.partition("[scales.small]")[0].replace('rows = ["head"]', 'rows = ["head", "data"]')
    config += "[axes.data]\na = []\nb = []\nc = []\n"
    config += '[scales.small]\nseeds = [0]\nwithout = ["gll, a"]\nonly = { data = ["a", "b"] }\n'
    (folder / "config.toml").write_text(config)
    known = {f"{head}, {data}": {"error": 1.0} for head in ("gll", "mlp") for data in "abc"}
    (folder / "expected.json").write_text(json.dumps({"values": known}))
    shown = states_of(load_experiment(folder))["small"]
    assert "Of the paper's 6 places this scale asks for 3, and leaves out data *c*; gll, a.\n\n<small>" in table(shown)
    del known["mlp, c"], known["gll, c"], known["gll, a"]
    (folder / "expected.json").write_text(json.dumps({"values": known}))
    assert "leaves out" not in table(states_of(load_experiment(folder))["small"])
    assert "Not run yet, and not shown: 3 of 3 places (gll, b; mlp, a; mlp, b)." in table(shown)


def test_a_column_of_autoattack_says_which_it_is(findings: Findings) -> None:
    """Beside a worst case that has it with every class in sight, its own figure may be many times smaller."""
    folder = findings.experiments["heads"].folder
    told = "*AutoAttack*: the standard one, by the model's own gradient, made for every sample apart"
    assert told not in table(findings.states["heads"]["small"])
    (folder / "config.toml").write_text(CONFIG.replace('figures = ["error"]', 'figures = ["error", "AutoAttack"]'))
    assert told in table(states_of(load_experiment(folder))["small"]).splitlines()[-1]
    for name in ("adversarial", "worst-case"):
        real = load_experiment(ROOT / "experiments" / name)
        assert all(told in table(shown) for shown in states_of(real).values() if shown.found)


def test_what_was_run_and_how_far_it_is(findings: Findings) -> None:
    page = "## Heads, at last\n\n<!-- experiment heads -->\n"
    assert "| [`heads`](#heads-at-last) | small | 3 of 4 | 0 | 2 lower |" in findings.compared(page)
    assert how_far(findings.states) == "Of 1 experiments **1 run in part**: `heads` (small: 3 of 4 cells)."


@pytest.mark.parametrize(
    ("better", "known", "told"),
    [
        ('better = "lower", ', '{"gll": {"error": 9.0}}', "0 | 1 lower"),
        ("", '{"gll": {"error": 9.0}}', " | not judged"),
        ("", "{}", " | none to compare"),
        ('better = "lower", ', "{}", " | none to compare"),
    ],
)
def test_values_that_are_not_judged_are_told_from_none(findings: Findings, better: str, known: str, told: str) -> None:
    folder = findings.experiments["heads"].folder
    (folder / "config.toml").write_text(CONFIG.replace('better = "lower", ', better))
    (folder / "expected.json").write_text(f'{{"values": {known}}}')
    heads = load_experiment(folder)
    again = Findings({"heads": heads}, {"heads": states_of(heads)}, folder, folder)
    assert f"| small | 3 of 4 | {told} |" in again.compared("## Heads\n\n<!-- experiment heads -->\n")


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("theirs heads", "unknown kind of number 'theirs'"),
        ("ours tails; gll; error", "unknown experiment 'tails'"),
        ("status heads; knn", "unknown name on an axis of heads 'knn'"),
        ("ours heads; knn; error", "heads has no place 'knn'"),
        ("ours heads; gll; loss", "unknown figure of heads 'loss'"),
        ("run yours; mlp", "no run yours tested by mlp"),
        ("ratio training", "unknown experiment 'times'"),
        ("paper-ratio training", "unknown experiment 'times'"),
        ("headline", "unknown experiment 'worst-case'"),
    ],
)
def test_what_is_not_there_is_refused(findings: Findings, mark: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        findings.filled(f"<!-- {mark} --><!-- end -->")


def test_settings_that_differ_stand_side_by_side(findings: Findings, tmp_path: Path) -> None:
    config = "name = 'mine'\n[model]\nhead = 'gll'\n[train]\nepochs = 20\nautocast = true\n[test]\nevery = 7"
    (tmp_path / "mine.toml").write_text(config)
    lines = findings.settings("heads", "gll", "mine").split("\n")
    assert lines[2] == "| | head, epochs | bfloat16 |"
    assert lines[4:6] == ["| paper | 500 | no |", "| ours | 20 | yes |"]


def test_a_file_that_is_missing_is_named(findings: Findings, tmp_path: Path) -> None:
    (tmp_path / "training.json").unlink()
    with pytest.raises(ValueError, match=r"claim-by-claim\.md are from .*training\.json, which is not there"):
        findings.filled("<!-- run mine; gll --><!-- end -->")


def test_a_page_may_speak_of_marks() -> None:
    text = "Write `<!-- experiment mine -->` and `<!-- end -->`.\n\n<!-- experiment heads -->\nold\n<!-- end -->\n"
    new = _filled(text, "all", {"heads": "new"})
    assert new == text.replace("old", "\nnew\n")
    with pytest.raises(ValueError, match=r"unknown experiment of docs/reproduce\.md 'tails'; choose one of heads"):
        _filled(text.replace("heads", "tails"), "all", {"heads": "new"})


def test_the_papers_tables_and_figures_lead_to_their_experiments() -> None:
    """Each of its 10 tables and 12 figures has a line, in the paper's order, and links lead to the sections."""
    page = (ROOT / "docs" / "reproduce.md").read_text()
    lines = page.partition("## In the order of the paper\n")[2].partition("\n## ")[0].splitlines()
    firsts = [line.split("|")[1].split(",")[0].strip() for line in lines if line.startswith("| ")]
    for kind, number in (("table", 10), ("figure", 12)):
        assert [one for one in firsts if one.startswith(kind)] == [f"{kind} {n}" for n in range(1, number + 1)]
    links = re.findall(r"\[`([a-z0-9-]+)`\]\(#([a-z0-9-]+)\)", "\n".join(lines))
    assert {name for name, _ in links} == set(load_all(ROOT / "experiments"))
    assert all(_anchor(page, name) == target for name, target in links)
    plain = [line for line in lines if line.startswith("| ") and "](#" not in line][1:]
    assert all("no experiment" in line for line in plain)
    assert firsts[1:3] == ["figure 1", "figure 2"]


@pytest.mark.parametrize("paper", ["none", "", "none: mine"])
def test_an_experiment_of_ones_own_is_not_said_to_be_the_papers(findings: Findings, paper: str) -> None:
    """Where the page has no section of it, there is no link; its values are expected, by nobody else."""
    folder = findings.experiments["heads"].folder
    (folder / "config.toml").write_text(CONFIG.replace("a table", paper))
    mine = load_experiment(folder)
    again = Findings({"heads": mine}, {"heads": states_of(mine)}, folder, folder)
    assert "| `heads` | small | 3 of 4 | 0 | 2 lower, of what is expected |" in again.compared("# A page\n")
    shown = again.states["heads"]["small"]
    assert "in brackets what is expected; " in table(shown)
    assert "means beside what is expected, within its deviation, if it gives one: 2 lower" in table(shown)
    assert "the paper's" not in table(shown)
    assert mine.in_paper == (paper or "none")
