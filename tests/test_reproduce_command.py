"""`gll reproduce` on a terminal: what it shows, which cells it takes, what it refuses, and what it never writes."""

from __future__ import annotations

import json
import shutil
import statistics
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce.choice import chosen, why_none
from gll.reproduce.experiment import Experiment, ExperimentError, load_all, load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import read_records
from gll.reproduce.show import show_list, show_run
from gll.reproduce.work import Work
from gll.train.progress import Reporter
from tests.test_reproduce_work import COUNTS, invoked, said, written

REAL = Path(__file__).parent.parent / "experiments"


@pytest.fixture
def counts(tmp_path: Path) -> Experiment:
    return written(tmp_path, COUNTS)


# What is shown --------------------------------------------------------------------------------------------------------


def test_after_a_run_what_is_new_is_shown(counts: Experiment) -> None:
    invoked(counts, "--scale", "small", "--only", "second, seed 0")
    first = invoked(counts, "--scale", "small", "--only", "first, seed 0")
    table = said(first).partition("1 of 1 cell, 1 of them new")[2]
    assert "54,618" in table.replace(".00", "")
    assert "second" not in table
    again = invoked(counts, "--scale", "small", "--only", "first, seed 0")
    assert "counts (small): 1 of 1 cell, none of them new; from " in said(again)
    assert "54,618" in said(again).replace(".00", ""), "what is known is shown, though nothing is new"
    assert "second" not in said(again)
    whole = said(invoked(counts, "--scale", "small")).partition("4 of 4 cells, 2 of them new")[2]
    assert [whole.split().count(word) for word in ("first", "second", "2")] == [1, 1, 2], "a row each, of both seeds"


def test_no_number_is_cut_off_in_80_columns() -> None:
    """Those of the widest table, all of whose records are new here."""
    experiment = load_experiment(REAL / "worst-case")
    console = Console(width=80, record=True, file=StringIO())
    show_run(experiment, "full", ["mnist", "GLL", "robust"], (), Path("nowhere"), console)
    text = console.export_text()
    stored = read_records(experiment.folder / "results.json")
    rows: dict[str, list[dict[str, float | None]]] = {}
    for cell in kind_of(experiment).cells(experiment, "full"):
        if cell.matches(["mnist", "GLL", "robust"]) and cell.key in stored:
            rows.setdefault(cell.point.name, []).append(stored[cell.key]["values"])
    assert len(rows) > 1
    for found in rows.values():
        for figure in experiment.text["table"]["figures"]:
            ours = [value for values in found if (value := values[figure]) is not None]
            assert not ours or f" {statistics.fmean(ours):.2f} " in text, figure
    assert "…" not in text


def test_a_figure_that_no_cell_has_is_said(counts: Experiment) -> None:
    strange = written(counts.folder.parent.parent, COUNTS.replace('figures = ["total"]', 'figures = ["totle"]'))
    found = said(invoked(strange, "--scale", "small"))
    assert "config.toml: no cell has a figure 'totle'; there are encoder, head, total" in found


def test_smoke_is_run_each_time_and_says_where_it_is_kept(counts: Experiment) -> None:
    for _ in range(2):
        found = said(invoked(counts))
        assert found.count("(0 s)") + found.count("(1 s)") == 2, found
        assert f"2 of 2 cells; kept in {counts.folder.parent.parent / 'work' / 'counts' / 'smoke'}" in found
    assert not (counts.folder / "results.json").exists()
    invoked(counts, "--scale", "small")  # the same settings: its records are none of smoke
    assert "counts (smoke): first, seed 0: encoder" in said(invoked(counts))
    assert "counts (smoke): first" not in said(invoked(counts, "--resume")), "nothing is left to go on with"


def test_smoke_has_warm_ups_of_its_own() -> None:
    """They are made again each time, and those of other scales are never removed."""
    experiment = load_experiment(REAL / "cifar10")
    for scale in experiment.scales:
        warm = [cell for cell in kind_of(experiment).cells(experiment, scale) if cell.role]
        assert {cell.path.startswith("cifar10/smoke/") for cell in warm} == {scale == "smoke"}
        assert {cell.path == f"warm-up/{cell.key}" for cell in warm} == {scale != "smoke"}


def test_names_in_the_list_can_be_read_in_80_columns() -> None:
    experiments = load_all(REAL)
    console = Console(width=80, record=True, file=StringIO())
    show_list(experiments, console)
    lines = console.export_text().splitlines()
    for name in experiments:
        assert any(line.split()[:1] == [name] for line in lines), name
    assert "11 of 11" in next(line for line in lines if line.split()[:1] == ["parameters"])


# Which cells ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        (["τ = 0.1"], ["τ = 0.1"]),
        (["tau=0.1"], ["τ = 0.1"]),
        (["τ = 0.1 | SOFTMAX", "seed 1"], ["τ = 0.1", "softmax"]),
        (["0.1"], []),
        (["τ = 0.1", "softmax"], []),
        ([], ["τ = 0", "τ = 0.001", "τ = 0.01", "τ = 0.1", "τ = 0.5", "softmax"]),
    ],
)
def test_cells_are_asked_for_by_their_parts(words: list[str], titles: list[str]) -> None:
    experiment = load_experiment(REAL / "moons")
    work = Work(experiment, "small", Path("nowhere"), "cpu", Reporter(), tuple(words))
    assert [cell.point.name for cell in chosen(work.cells, work.only)] == titles


@pytest.mark.parametrize(
    ("name", "scale", "words", "message"),
    [
        ("cifar10", "smoke", "resnet18", "resnet18, but there are at small and full: add --scale small"),
        (
            "cifar10",
            "small",
            "resnet18, 3%",
            "resnet18, 3% ('3%' is on no axis); there are network: resnet20, resnet18; ",
        ),
        ("moons", "small", "tau=0.1,τ = 0.5", "are on one axis; write --only 'τ = 0.1 | τ = 0.5' for either"),
        ("cifar10", "small", "resnet18 2%", "('resnet18 2%' is on no axis); separate parts by commas; there are "),
        ("moons", "small", "seed 7", "('seed 7' is on no axis); there are head: τ = 0, τ = 0.001, "),
        ("moons", "smoke", "0.1", "there are head: τ = 0.01, softmax; seed 1"),
        ("attack-rate", "small", "linear,robust,seed 0", "this scale leaves 'linear, robust' out; there are "),
        ("attack-rate", "small", "linear, robust, rate 0.001", "leaves 'linear, robust, rate 0.001' out; there are "),
        ("attack-rate", "small", "linear | mlp, robust, rate 0.001", "('mlp' is on no axis)"),
    ],
)
def test_where_no_cell_is_meant_the_message_says_what_there_is(name: str, scale: str, words: str, message: str) -> None:
    assert message in why_none(load_experiment(REAL / name), scale, words.split(","))


def test_of_several_experiments_those_without_such_cells_are_left_out(counts: Experiment) -> None:
    other = counts.folder.parent / "other"
    other.mkdir()
    (other / "config.toml").write_text(COUNTS.strip().replace("second =", "third ="))
    found = invoked(counts, "other", "--only", "third")
    assert found.exit_code == 0, found.output
    assert "no cell of counts at smoke is third" in said(found)
    assert "other (smoke): 1 of 1 cell" in said(found)
    assert invoked(counts, "other", "--only", "fourth").exit_code == 1


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = [0, 1]", "seeds = 1", "seeds of scale small must be a list of whole numbers"),
        ("seeds = [0, 1]", "seeds = []", "seeds of scale small must be a list of whole numbers"),
        ("seeds = [0, 1]", "seeds = [-1]", "seeds of scale small must be a list of whole numbers"),
        ("seeds = [0, 1]", "", "seeds of scale small must be a list of whole numbers"),
        ('figures = ["total"]', 'figures = ["total"], better = "smaller"', "unknown better 'smaller'"),
        ('figures = ["total"]', 'figures = "total"', "figures of \\[table\\] must be a list of names, got 'total'"),
    ],
)
def test_what_config_cannot_say(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ExperimentError, match=f"experiment counts: .*config.toml: {message}"):
        written(tmp_path, COUNTS.replace(old, new))


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("moons", "epochs = 150000", "epoch = 150000", "kind 'moons' has no option 'epoch'; its options: tau, epochs"),
        ("moons", "options.tau=softmax", "options.taw=softmax", "softmax: kind 'moons' has no option 'taw'"),
        ("moons", '["options.tau=softmax"]', "[]", "softmax: it sets no options.tau"),
        ("moons", "options.tau=softmax", "options.tau=none", 'options.tau must be "softmax" or a number from 0'),
        ("moons", "options.epochs=5", "options.epochs=-5", "options.epochs must be a whole number from 1, got -5"),
        ("times", "options.warm=1", "options.worm=1", "kind 'times' has no option 'worm'; its options: network, batch"),
        ("emnist", 'figure = "ten hardest"', "", "options are classes, figure, both or none; it has classes"),
        ("emnist", "[options]", "[options]\nten = 1", "training 'emnist' has no option 'ten'"),
        ("adversarial", "options.samples=20", "options.sampels=20", "attack of 'adversarial' has no option 'sampels'"),
        ("gamma", "[run.base]\nsize", "[run.base]\nsise", "unknown key 'base.sise'; did you mean 'size'?"),
    ],
)
def test_a_wrong_setting_is_told_with_its_file_and_before_a_cell(
    tmp_path: Path, name: str, old: str, new: str, message: str
) -> None:
    folder = tmp_path / "experiments" / name
    folder.mkdir(parents=True)
    text = (REAL / name / "config.toml").read_text()
    assert old in text
    (folder / "config.toml").write_text(text.replace(old, new))
    where = ["--experiments", str(folder.parent), "--work", str(tmp_path / "work"), "--device", "cpu"]
    found = CliRunner().invoke(app, ["reproduce", name, *where])
    assert (found.exit_code, message in said(found)) == (1, True), found.output
    assert str(folder / "config.toml") in said(found)
    assert not (tmp_path / "work").exists()


def test_an_experiment_of_ones_own_needs_no_values_of_the_paper(counts: Experiment) -> None:
    assert counts.paper("first", "total") is None
    (counts.folder / "expected.json").write_text(json.dumps({"tolerance": 1}))
    with pytest.raises(ExperimentError, match=r'expected.json: it has no "values"'):
        load_experiment(counts.folder)


def test_the_experiment_of_the_page_runs(tmp_path: Path) -> None:
    page = (REAL.parent / "docs" / "reproduce.md").read_text(encoding="utf-8")
    text = page.partition("## An experiment of your own")[2].partition("```text\n")[2].partition("```")[0]
    folder = tmp_path / "experiments" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)
    (folder / "expected.json").write_text('{"values": {"GLL, few": {"error": [10.0, 1.0]}}, "tolerance": 0.5}')
    where = ["--experiments", str(folder.parent), "--work", str(tmp_path / "work"), "--device", "cpu"]
    found = CliRunner().invoke(app, ["reproduce", "mine", *where])
    assert found.exit_code == 0, found.output
    assert "mine (smoke): 2 of 2 cells" in said(found)
    found = CliRunner().invoke(
        app, ["reproduce", "mine", "--scale", "small", "--only", "many, GLL", "--tables", *where]
    )
    assert found.exit_code == 0, found.output
    assert all(record["values"]["error"] < 30 for record in read_records(folder / "results.json").values())
    assert "## mine: two heads on digits" in (folder.parent / "README.md").read_text()


def test_times_are_taken_by_the_checkout_where_the_experiments_have_none(tmp_path: Path) -> None:
    from gll.reproduce.time_cells import benchmark

    assert Path(str(benchmark(tmp_path / "experiments" / "times").__file__)).is_relative_to(REAL.parent)


# What is written ------------------------------------------------------------------------------------------------------


def test_check_never_writes(counts: Experiment) -> None:
    where = ["--experiments", str(counts.folder.parent)]
    for more in (["--tables"], ["--figures"], ["--merge", "elsewhere"], ["counts"], ["--all"], ["--list"]):
        found = CliRunner().invoke(app, ["reproduce", "--check", *more, *where])
        assert (found.exit_code, "--check only looks" in said(found)) == (1, True)
    assert CliRunner().invoke(app, ["reproduce", "--check", *where]).exit_code == 1
    assert not (counts.folder.parent / "README.md").exists()


def test_pages_that_need_what_is_not_there(counts: Experiment) -> None:
    docs = counts.folder.parent.parent / "docs"
    docs.mkdir()
    where = ["--experiments", str(counts.folder.parent)]
    for page, mark, message in (
        ("reproduce.md", "experiment moons", "unknown experiment of docs/reproduce.md 'moons'; choose one of counts"),
        ("what-we-found.md", "run mine; gll", "training.json, which is not there"),
        ("what-we-found.md", "paper-ratio training", "unknown experiment 'times'; choose one of counts"),
    ):
        (docs / page).write_text(f"<!-- {mark} -->\n<!-- end -->\n")
        found = CliRunner().invoke(app, ["reproduce", "--tables", *where])
        assert (found.exit_code, message in said(found)) == (1, True), found.output
        (docs / page).unlink()


def test_merging_says_what_differs_and_what_is_unknown(counts: Experiment, tmp_path: Path) -> None:
    invoked(counts, "--scale", "small", "--only", "seed 0")
    other, where = tmp_path / "other", ["--experiments", str(counts.folder.parent)]
    shutil.copytree(counts.folder.parent, other)
    shutil.copytree(other / "counts", other / "strange")
    results, ours = other / "counts" / "results.json", read_records(counts.folder / "results.json")
    found = json.loads(results.read_text())
    found["records"][0]["values"]["total"] = 99
    for folder, text in ((other, "theirs"), (counts.folder.parent, "ours")):
        (folder / "counts" / "arrays").mkdir()
        (folder / "counts" / "arrays" / "a.npz").write_text(text)
    results.write_text(json.dumps(found))
    taken = said(CliRunner().invoke(app, ["reproduce", "--merge", str(other), *where]))
    assert "strange: no experiment of this name is here" in taken
    assert "counts: 0 records taken, 2 were here already; 1 of these differ and are not later: ours stay" in taken
    assert read_records(counts.folder / "results.json") == ours
    assert (counts.folder / "arrays" / "a.npz").read_text() == "ours", "it belongs to no record that was taken"
    refused = invoked(counts, "--merge", str(other))
    assert (refused.exit_code, "--merge takes the results of all experiments" in said(refused)) == (1, True)
    del found["records"][0]["key"]
    results.write_text(json.dumps(found))
    broken = said(CliRunner().invoke(app, ["reproduce", "--merge", str(other), *where]))
    assert "cannot be read: it has no 'key', or one of its records has none" in broken
