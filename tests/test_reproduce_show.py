"""`gll reproduce NAME --show`: what has been run beside the paper's, from records alone; nothing is run or written."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce.below import page_of
from gll.reproduce.experiment import Experiment, load_all, load_experiment
from gll.reproduce.in_paper import asking_about
from gll.reproduce.results import show_results
from gll.reproduce.show import show_list
from gll.reproduce.tables import states_of, told_verdicts
from gll.reproduce.work import Work
from gll.reproduce.worse import read_reasons
from tests.test_reproduce_list import files
from tests.test_reproduce_work import COUNTS, invoked, said, written

REAL = Path(__file__).parent.parent / "experiments"


@pytest.fixture
def counts(tmp_path: Path) -> Experiment:
    """Of four cells one is done; the paper has a value for it."""
    folder = tmp_path / "experiments" / "counts"
    folder.mkdir(parents=True)
    (folder / "expected.json").write_text(json.dumps({"values": {"first": {"total": 12345}}}))
    experiment = written(tmp_path, COUNTS.replace('"none"', '"table 3"') + "[scales.full]\nseeds = [7]\n")
    invoked(experiment, "--scale", "small", "--only", "first, seed 0")
    return experiment


def test_what_has_been_run_and_what_is_missing(counts: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Work, "run", lambda _: pytest.fail("it runs"))
    monkeypatch.setenv("GLL_DATA", str(counts.folder / "nowhere"))
    before = files(counts.folder.parent.parent)
    found = invoked(counts, "--show")
    assert found.exit_code == 0, found.output
    text = said(found)
    assert "counts at small: 1 of 4 cells run" in text
    row = next(line.split() for line in found.output.splitlines() if line.split()[:2] == ["first", "total"])
    assert row[3:] == ["(12,345.00)", "1"]
    assert "not run: second (seed 0, 1); first (seed 1)" in text
    assert "counts at full: 0 of 2 cells run" in text
    assert "smoke" not in text
    assert "gll reproduce counts --list" in text
    assert files(counts.folder.parent.parent) == before


def test_all_that_is_done_is_shown_over_all_seeds(counts: Experiment) -> None:
    for cell in ("first, seed 1", "second, seed 0"):
        invoked(counts, "--scale", "small", "--only", cell)
    found = invoked(counts, "--show")
    rows = {words[0]: words[-1] for line in found.output.splitlines() if (words := line.split())[1:2] == ["total"]}
    assert rows == {"first": "2", "second": "1"}, "by their seeds"
    assert "counts at small: 3 of 4 cells run" in said(found)


def test_folders_are_passed_on_and_what_runs_is_refused(counts: Experiment) -> None:
    folder = counts.folder.parent
    assert f"gll reproduce counts --list --experiments {folder} --work" in said(invoked(counts, "--show"))
    listed = said(invoked(counts, "--list", "--device", "cpu", "--seconds", "5"))
    assert f"beside the paper's: gll reproduce counts --show --experiments {folder} --work" in listed
    assert f"--device cpu --seconds 5 --experiments {folder}" in listed, "of what runs cells"
    for words in (["--seconds", "5"], ["--resume"], ["--jobs", "2"]):
        found = invoked(counts, "--show", *words)
        assert (found.exit_code, f"leave out {words[0]}" in said(found)) == (1, True), found.output


def test_scale_and_only_choose(counts: Experiment) -> None:
    text = said(invoked(counts, "--show", "--scale", "full"))
    assert "counts at full: 0 of 2 cells run not run: first (seed 7); second (seed 7)" in text
    assert "at small" not in text
    text = said(invoked(counts, "--show", "--only", "first", "--scale", "small"))
    assert "counts at small: 1 of 2 cells run" in text
    assert "second" not in text


def test_the_name_may_be_that_of_the_paper(counts: Experiment) -> None:
    where = ["--experiments", str(counts.folder.parent), "--work", str(counts.folder.parent.parent / "work")]
    found = CliRunner().invoke(app, ["reproduce", "table 3", "--show", *where])
    assert "counts at small: 1 of 4 cells run" in said(found), found.output
    every = CliRunner().invoke(app, ["reproduce", "--all", "--show", *where])
    assert found.output.endswith(every.output)


def test_of_many_missing_places_the_first_are_named(counts: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gll.reproduce.results.PLACES", 1)
    assert "not run: second (seed 0, 1); and 1 place more" in said(invoked(counts, "--show"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["counts", "--show", "--scale", "smoke"], "the figures of smoke mean nothing, and are not shown"),
        (["counts", "--show", "--list"], "--list only looks, and runs and writes nothing: leave out --show"),
        (["counts", "--show", "--tables"], "--show only looks, and runs and writes nothing: leave out --tables"),
        (["--show", "--check"], "--check only looks, and writes nothing: give it without other work, here --show"),
        (["--show"], "say which experiment: counts"),
        (["counts", "--show", "--only", "third"], "no cell of counts at full is third"),
    ],
)
def test_what_does_not_go_together_is_refused(counts: Experiment, words: list[str], message: str) -> None:
    found = CliRunner().invoke(app, ["reproduce", *words, "--experiments", str(counts.folder.parent)])
    assert (found.exit_code, message in said(found)) == (1, True), found.output


# How many are as the paper's ------------------------------------------------------------------------------------------

VERDICT = "means beside"


@pytest.fixture
def judged(tmp_path: Path) -> Experiment:
    """The paper has the number of one network, and another of the other."""
    written(tmp_path, COUNTS)
    values = {"values": {"first": {"total": 54618}, "second": {"total": 1}}}
    (tmp_path / "experiments" / "counts" / "expected.json").write_text(json.dumps(values))
    text = COUNTS.replace('["total"] }', '["total"], better = "exact" }')
    return written(tmp_path, text.replace('"none"', '"table 3"'))


def test_a_run_says_how_many_are_as_the_papers(judged: Experiment) -> None:
    """In a line below the table, of what it shows."""
    assert "means beside the paper's: 1 agree" in said(invoked(judged, "--scale", "small", "--only", "first"))
    assert "means beside the paper's: 1 higher" in said(invoked(judged, "--scale", "small")), "of what is new"
    whole = said(invoked(judged, "--scale", "small"))
    assert whole.endswith("means beside the paper's: 1 agree, 1 higher")
    assert whole.count(VERDICT) == 1
    assert VERDICT not in said(invoked(judged)), "the numbers of smoke mean nothing"


def test_show_says_it_of_what_it_shows(judged: Experiment) -> None:
    invoked(judged, "--scale", "small", "--only", "seed 0")
    assert "means beside the paper's: 1 agree, 1 higher not run: " in said(invoked(judged, "--show"))
    assert "means beside the paper's: 1 higher not run: " in said(invoked(judged, "--show", "--only", "second"))
    text = (judged.folder / "config.toml").read_text().replace('"table 3"', '"none: of my own"')
    (judged.folder / "config.toml").write_text(text)
    assert "means beside what is expected: 1 agree, 1 higher" in said(invoked(judged, "--show"))


def test_what_is_not_judged_has_no_verdict(counts: Experiment) -> None:
    assert VERDICT not in said(invoked(counts, "--show"))
    assert VERDICT not in said(invoked(counts, "--scale", "small"))


@pytest.mark.parametrize("name", ["parameters", "adversarial", "cifar10", "emnist", "times", "worst-case"])
def test_the_verdict_is_that_of_the_pages(tmp_path: Path, name: str) -> None:
    experiment = load_experiment(REAL / name)
    console = Console(width=80, record=True, file=StringIO())
    show_results(experiment, None, (), tmp_path, console)
    lines = [line.strip() for line in console.export_text().splitlines() if VERDICT in line]
    told = [told_verdicts(shown) for shown in reversed(states_of(experiment).values())]
    assert lines == [f"means beside the paper's: {words}" for words in told if words]
    assert bool(lines) is (name in ("parameters", "adversarial", "cifar10"))


# Where it is named ----------------------------------------------------------------------------------------------------


def test_lists_name_it(counts: Experiment) -> None:
    console = Console(width=80, record=True, file=StringIO())
    show_list({"counts": counts}, console)
    assert "gll reproduce NAME --show" in console.export_text()
    assert "what has been run, beside the paper's: gll reproduce counts --show" in said(invoked(counts, "--list"))
    (counts.folder / "results.json").unlink()
    empty = invoked(counts, "--list", "--work", str(counts.folder / "empty"))
    assert "--show" not in empty.output, "there is nothing to see"


def test_without_data_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLL_DATA", str(tmp_path))
    where = ["--experiments", str(REAL), "--work", str(tmp_path / "work"), "--device", "cpu"]
    found = CliRunner().invoke(app, ["reproduce", "more-c", "--scale", "full", *where])
    assert found.exit_code == 1
    assert "what has been run needs no data: gll reproduce more-c --show" in said(found)
    assert "(or elsewhere: set GLL_DATA)" in said(found)
    assert "data.root" not in said(found), "which gll reproduce does not have"


def test_a_file_of_this_project_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can be fetched nowhere: the page says what it is, and how one like it is made."""
    monkeypatch.setenv("GLL_DATA", str(tmp_path))
    where = ["--experiments", str(REAL), "--work", str(tmp_path / "work"), "--device", "cpu"]
    found = CliRunner().invoke(app, ["reproduce", "emnist", "--scale", "small", *where])
    message = "".join(found.output.split())
    assert found.exit_code == 1
    assert "setGLL_DATAtothefolderthathasit;whatitis:" in message
    assert "docs/reproduce.md,sectionEMNIST" in message


# Those there are ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fashion-toy", "emnist", "worst-case", "longer"])
def test_it_fits_in_80_columns_and_names_the_page(tmp_path: Path, name: str) -> None:
    console = Console(width=80, record=True, file=StringIO())
    show_results(load_experiment(REAL / name), None, (), tmp_path, console)
    lines = console.export_text().splitlines()
    assert all(len(line) <= 80 and "…" not in line for line in lines if "docs/" not in line)
    assert any("docs/reproduce.md, section " in line for line in lines)
    reasons = any("docs/claim-by-claim.md, section Where ours are worse, and why" in line for line in lines)
    assert reasons is (name in ("fashion-toy", "emnist")), "the others are not the paper's own"


def test_reasons_are_named_where_there_are_some(tmp_path: Path) -> None:
    """The page says nothing of an experiment without one."""
    known = {reason.experiment for reason in read_reasons(REAL / "reasons.toml")}
    named = set()
    for name, experiment in load_all(REAL).items():
        console = Console(width=80, record=True, file=StringIO())
        show_results(experiment, None, (), tmp_path, console)
        named |= {name} if "where ours are worse, and why:" in console.export_text() else set()
    assert named == known
    assert {"cifar10", "more-c"} <= named, "but neither parameter counts nor times"


def test_the_papers_setting_comes_first(tmp_path: Path) -> None:
    console = Console(width=80, record=True, file=StringIO())
    show_results(load_experiment(REAL / "adversarial"), None, ("mnist",), tmp_path, console)
    text = console.export_text()
    assert 0 < text.index("adversarial at full: ") < text.index("adversarial at small: ")


def test_why_ours_differ_is_asked_elsewhere(tmp_path: Path) -> None:
    experiments = load_all(REAL)
    asked = {name: [one.name for one in asking_about(e, experiments.values())] for name, e in experiments.items()}
    known = {"cifar10": ["longer", "settings"], "emnist": ["emnist-labels"]}
    known |= {"adversarial": ["attack-length", "attack-rate"]}
    assert {name: found for name, found in asked.items() if found} == known
    found = CliRunner().invoke(app, ["reproduce", "table", "10", "--show", "--experiments", str(REAL)])
    assert found.exit_code == 0
    said = " ".join(found.output.split())
    assert "ablation: length of a training, under attack: gll reproduce attack-length --show" in said
    assert "under attack: gll reproduce attack-rate --show" in said


def test_the_section_is_that_of_the_experiment(counts: Experiment) -> None:
    assert page_of(load_experiment(REAL / "emnist")).endswith("docs/reproduce.md, section EMNIST")
    assert page_of(load_experiment(REAL / "settings")).endswith("docs/reproduce.md, section settings")
    assert page_of(counts) == ""
    (counts.folder.parent / "README.md").touch()
    assert page_of(counts).endswith("README.md, section counts")
