"""`gll reproduce NAME --list`: what it says of cells, that it runs and writes nothing, and what it does not go with."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce import listing as listings
from gll.reproduce.choice import chosen
from gll.reproduce.experiment import Cell, Experiment, load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.limit import where_stopped
from gll.reproduce.listing import listing, show_cells
from gll.reproduce.records import claimed, read_records, write_json
from gll.reproduce.state import State, note_begin
from gll.reproduce.words import typed
from gll.reproduce.work import Work
from gll.train.progress import Reporter
from gll.words import counted
from tests.test_reproduce_work import COUNTS, invoked, said, work_on, written

REAL = Path(__file__).parent.parent / "experiments"


@pytest.fixture
def counts(tmp_path: Path) -> Experiment:
    return written(tmp_path, COUNTS)


def files(root: Path) -> dict[str, str]:
    """Every file and what is in it."""
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def shown(experiment: Experiment, scale: str | None, work: Path, only: Sequence[str] = ()) -> str:
    console = Console(width=80, record=True, file=StringIO())
    show_cells(experiment, scale, only, work, console)
    return console.export_text()


def proposed(text: str) -> list[list[str]]:
    """The commands it says to type."""
    return [shlex.split(line) for line in text.splitlines() if line.strip().startswith("gll reproduce ")]


def states(experiment: Experiment, scale: str, work: Path) -> dict[str, State]:
    found = listing(experiment, scale, (), work)
    return {cell.title: found.at(cell).state for cell in found.cells}


# It only looks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--scale", "small"], ["--only", "first"], ["--resume", "--jobs", "2"]])
def test_it_runs_and_writes_nothing(counts: Experiment, monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    invoked(counts, "--scale", "small", "--only", "first, seed 0")
    invoked(counts)
    monkeypatch.setattr(Work, "run", lambda _: pytest.fail("it runs"))
    before = files(counts.folder.parent.parent)
    found = invoked(counts, *more, "--list")
    assert found.exit_code == 0, found.output
    assert files(counts.folder.parent.parent) == before


def test_nothing_is_made_where_nothing_is(counts: Experiment) -> None:
    assert "counts: counts" in said(invoked(counts, "--list"))
    assert not (counts.folder.parent.parent / "work").exists()


# How cells stand ------------------------------------------------------------------------------------------------------


def test_each_cell_and_how_it_stands(counts: Experiment) -> None:
    """One of each state, of the four cells of a scale."""
    work = work_on(counts)
    invoked(counts, "--scale", "small", "--only", "first, seed 0")
    done, failed, stopped, held = (work.folder(cell) for cell in work.cells)
    record = json.loads((done / "record.json").read_text())
    write_json(done / "record.json", {**record, "wall_s": 75.0, "device": "NVIDIA H200"})
    failed.mkdir()
    write_json(failed / "progress.json", {"wall_s": 3.0, "commits": [], "error": {"text": "the disk is full", "at": 1}})
    stopped.mkdir()
    write_json(stopped / "progress.json", {"wall_s": 7384.0, "commits": []})
    with claimed(held):
        note_begin(held)
        assert list(states(counts, "small", work.root).values()) == [
            State.DONE,
            State.FAILED,
            State.STOPPED,
            State.AT_WORK,
        ]
        text = shown(counts, "small", work.root)
    rows = [line.split() for line in text.splitlines() if line.split()[:1] in (["first"], ["second"])]
    assert [row[:2] for row in rows] == [["first", "0"], ["second", "0"], ["first", "1"], ["second", "1"]]
    assert [row[2] for row in rows] == ["done", "failed", "stopped", "at"]
    assert [" ".join(row[3:]) for row in rows] == ["1:15 H200", "3 s", "2:03:04", "work 0 s"]
    assert "failed: second, seed 0: the disk is full" in text
    assert "at work: second, seed 1: process " in text
    assert "1 of 4" in text
    assert states(counts, "small", work.root)["second, seed 1"] is State.STOPPED, "its process is gone"


def test_the_commands_it_says_do_what_it_says(counts: Experiment) -> None:
    """The next one alone, then all that is left, where one was stopped: without --resume that is refused."""
    work = work_on(counts)
    stopped = work.folder(work.cells[2])
    stopped.mkdir(parents=True)
    write_json(stopped / "progress.json", {"wall_s": 1.0, "commits": []})
    whole, alone = proposed(invoked(counts, "--scale", "small", "--list").output)
    assert alone[alone.index("--only") + 1] == "first, seed 1", "what was stopped goes first"
    assert "--device" in alone
    assert "--work" in alone
    assert "--experiments" in alone
    found = CliRunner().invoke(app, alone[1:])
    assert found.exit_code == 0, found.output
    assert list(read_records(counts.folder / "results.json")) == [work.cells[2].key]
    found = CliRunner().invoke(app, whole[1:])
    assert found.exit_code == 0, found.output
    assert len(read_records(counts.folder / "results.json")) == 4
    after = invoked(counts, "--scale", "small", "--list")
    assert "all done; to see what came out:" in said(after)
    assert len(proposed(after.output)) == 1


def test_many_cells_are_shown_by_place(counts: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listings, "MANY", 3)
    invoked(counts, "--scale", "small", "--only", "first | second, seed 0")
    invoked(counts, "--scale", "small", "--only", "first")
    text = shown(counts, "small", work_on(counts).root)
    rows = [" ".join(line.split()) for line in text.splitlines() if line.split()[:1] in (["first"], ["second"])]
    assert rows == ["first 0, 1 done 0 s CPU", "second 0 done 0 s CPU", "second 1 not run –"]


def test_scale_and_only_choose(counts: Experiment) -> None:
    invoked(counts, "--scale", "small", "--only", "first")
    text = invoked(counts, "--only", "second", "--list").output
    assert "counts at smoke, second" in text
    assert "counts at small, second" in text
    assert "2 cells, none begun; network: second; seed 0, seed 1" in text
    assert "first" not in text
    text = invoked(counts, "--scale", "small", "--list").output
    assert "counts at smoke" not in text
    wrong = invoked(counts, "--only", "third", "--list")
    assert (wrong.exit_code, "no cell of counts at small is third" in said(wrong)) == (1, True)
    wrong = invoked(counts, "--scale", "full", "--list")
    assert (wrong.exit_code, "unknown scale of counts 'full'" in said(wrong)) == (1, True)


def test_every_cell_can_be_asked_for_by_its_title() -> None:
    """As --list proposes; "1,000 steps" has a comma of its own."""
    for experiment in (load_experiment(REAL / name) for name in ("longer", "times", "worst-case", "few-labels")):
        for scale in experiment.scales:
            for cell in kind_of(experiment).cells(experiment, scale):
                assert cell.matches(typed(cell.title)), f"{experiment.name}: {cell.title}"


def test_smoke_says_on_what_it_runs(tmp_path: Path) -> None:
    """Its cell is called mnist."""
    text = " ".join(shown(load_experiment(REAL / "worst-case"), "smoke", tmp_path).split())
    assert "on digits, whatever its cells are called" in text
    assert "its figures mean nothing" in text


# Warm-ups -------------------------------------------------------------------------------------------------------------


def test_a_head_needs_its_warm_up(tmp_path: Path) -> None:
    """Not run; made elsewhere, of which there is a record and nothing else; at hand; and no longer needed."""
    folder, work = tmp_path / "experiments" / "cifar10", tmp_path / "work"
    shutil.copytree(REAL / "cifar10", folder, ignore=shutil.ignore_patterns("results.json", "arrays"))
    experiment = load_experiment(folder)
    warm, *heads = kind_of(experiment).cells(experiment, "small")[:4]
    assert warm.role == "warm-up"
    assert {head.needs for head in heads} == {warm.key}

    def found() -> list[State | None]:
        at = states(experiment, "small", work)
        return [at.get(warm.title), at[heads[0].title]]

    def record_of(key: str) -> dict[str, object]:
        more = {"experiment": "cifar10", "scale": "small", "seed": 0, "cell": "", "date": "1", "wall_s": 60.0}
        return {**more, "key": key, "values": {}, "device": "NVIDIA H200"}

    def device() -> str:
        return listing(experiment, "small", (), work).devices_of([warm])

    assert found() == [State.NOT_RUN, State.NEEDS]
    records = [record_of(warm.key)]
    write_json(folder / "results.json", {"format": "gll.results 1", "records": records})
    assert (found(), device()) == ([State.ELSEWHERE, State.NEEDS], "H200")
    (work / warm.path).mkdir(parents=True)
    write_json(work / warm.path / "progress.json", {"wall_s": 1.0, "commits": []})
    assert found() == [State.STOPPED, State.NEEDS], "it is being made again"
    assert device() == "", "the record of elsewhere does not say where it was stopped"
    words = proposed(shown(experiment, "small", work))
    assert [line[-1] for line in words] == ["--resume", "--resume"], "of the warm-up"
    write_json(work / warm.path / "record.json", record_of(warm.key))
    assert (found(), device()) == ([State.DONE, State.NOT_RUN], "H200")
    shutil.rmtree(work)
    one = chosen(kind_of(experiment).cells(experiment, "small"), [])
    records += [record_of(cell.key) for cell in one if cell.needs == warm.key]
    write_json(folder / "results.json", {"format": "gll.results 1", "records": records})
    assert found() == [State.DONE, State.DONE], "nobody needs it any more"


# Those there are ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "scale"), [("worst-case", "full"), ("few-labels", "small"), ("times", "full"), ("moons", "small")]
)
def test_it_fits_in_80_columns_and_names_the_next_cell(tmp_path: Path, name: str, scale: str) -> None:
    """Of the experiments with the longest names, parts, Greek letters, and a comma in a name."""
    experiment = load_experiment(REAL / name)
    text = shown(experiment, scale, tmp_path / "work")
    tables = [line for line in text.splitlines() if not line.strip().startswith("gll reproduce ")]
    assert all(len(line) <= 80 and "…" not in line for line in tables)
    left = listing(experiment, scale, (), tmp_path / "work").left()
    if left:
        whole, one = proposed(text)
        assert "--only" not in whole
        assert chosen(left, typed(one[one.index("--only") + 1])) == [left[0]]
        assert "the next one alone:" in text
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("scale", "only"), [("smoke", []), ("full", []), ("full", ["small-cnn"]), ("full", ["times"]), ("full", ["errors"])]
)
def test_what_must_be_alone_is_proposed_without_jobs(tmp_path: Path, scale: str, only: list[str]) -> None:
    """Times want the GPU to themselves: --jobs would be refused. All that was asked for is proposed, nothing twice."""
    shutil.copytree(REAL / "times", tmp_path / "times", ignore=shutil.ignore_patterns("results.json"))
    where = ["--experiments", str(tmp_path), "--work", str(tmp_path / "work")]
    words = ["reproduce", "times", "--scale", scale, "--list", "--only", ",".join(only), *where]
    found = CliRunner().invoke(app, [*words, "--jobs", "3"])
    assert found.exit_code == 0, found.output
    experiment = load_experiment(tmp_path / "times")
    cells = [cell for cell in kind_of(experiment).cells(experiment, scale) if cell.matches(only)]
    meant: list[Cell] = []
    *whole, one = proposed(found.output)
    for line in whole or [one]:
        asked = line[line.index("--only") + 1].split(",") if "--only" in line else []
        those = [cell for cell in cells if cell.matches(asked)]
        alone = {cell.part == "times" for cell in those}
        assert len(alone) == 1
        assert ("--jobs" in line) == (alone == {False})
        meant += those
    assert sorted(cell.title for cell in meant) == sorted(cell.title for cell in cells)
    assert "--jobs" not in one
    assert len(proposed(CliRunner().invoke(app, words).output)) == min(2, len(cells)), "all, and the next one"


def test_a_title_is_that_cell_alone(counts: Experiment) -> None:
    """Another has all of its words, and a comma in its name; words without a seed are no title, and mean both."""
    text = COUNTS.replace("second =", '"first, again" =')
    experiment = written(counts.folder.parent.parent, text)
    found = shown(experiment, "small", counts.folder / "nowhere")
    assert "the next one alone:" in found
    assert proposed(found)[1][-1] == "first, seed 0"
    cells = kind_of(experiment).cells(experiment, "small")
    for words, titles in {
        "First,  seed 0": ["first, seed 0"],
        "first, again, seed 0": ["first, again, seed 0"],
        "seed 0, first": ["first, seed 0", "first, again, seed 0"],
        "first": [cell.title for cell in cells],
    }.items():
        assert [cell.title for cell in chosen(cells, typed(words))] == titles
        at = [cell.title for cell in listing(experiment, "small", typed(words), counts.folder / "nowhere").left()]
        assert sorted(at) == sorted(titles)
        work = Work(experiment, "small", counts.folder / "nowhere", "cpu", Reporter(), typed(words))
        assert sorted(cell.title for cell in work.todo()) == sorted(titles)
        assert f"{len(titles)} of {counted(len(titles), 'cell')} left" in where_stopped([work])


# What does not go together --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--list", "--merge", "elsewhere"], "--list only looks, and runs and writes nothing: leave out --merge"),
        (["counts", "--list", "--tables", "--figures"], "leave out --tables and --figures"),
        (["--list", "--check"], "give it without other work, here --list"),
        (["counts", "--check"], "give it without other work, here counts"),
        (["counts", "--all"], "--all is every experiment: leave the names out"),
        (["--list", "--only", "first"], "--only is about cells: say of which experiment, or --all"),
        (["--tables", "--scale", "small", "--resume"], "--scale and --resume are about cells"),
        (["--merge", "elsewhere", "--resume"], "--resume is about cells"),
        (["--check", "--jobs", "2", "--seconds", "5"], "--seconds and --jobs are about cells"),
        (["cuonts", "--list"], "did you mean 'counts'?"),
        (["cuonts"], "did you mean 'counts'?"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(counts: Experiment, words: list[str], message: str) -> None:
    before = files(counts.folder.parent)
    where = ["--experiments", str(counts.folder.parent), "--work", str(counts.folder.parent.parent / "work")]
    found = CliRunner().invoke(app, ["reproduce", *words, *where])
    assert (found.exit_code, message in said(found)) == (1, True), found.output
    assert files(counts.folder.parent) == before
    assert not (counts.folder.parent.parent / "work").exists()


def test_all_may_be_listed(counts: Experiment) -> None:
    other = counts.folder.parent / "other"
    other.mkdir()
    (other / "config.toml").write_text(COUNTS.strip().replace("[scales.small]", "[scales.full]"))
    where = ["--experiments", str(counts.folder.parent), "--work", str(counts.folder.parent.parent / "work")]
    found = CliRunner().invoke(app, ["reproduce", "--all", "--list", "--scale", "full", *where])
    assert found.exit_code == 0, found.output
    assert "other at full" in found.output
    assert "counts: counts" not in found.output
    assert "counts at small" in CliRunner().invoke(app, ["reproduce", "--all", "--list", *where]).output
