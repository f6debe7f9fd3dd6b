"""Cells that experiments share are run by one of them, and taken over by the others."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gll.cli import app
from gll.reproduce import command, tables
from gll.reproduce.experiment import Experiment, load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.listing import listing
from gll.reproduce.parameter_cells import ParametersKind
from gll.reproduce.records import read_records, write_json
from gll.reproduce.state import State, note_begin
from gll.reproduce.taken import at_hand, take_over
from gll.reproduce.work import Work
from gll.train.progress import Reporter
from tests.test_reproduce_list import files, proposed
from tests.test_reproduce_work import COUNTS, said

REAL = Path(__file__).parent.parent / "experiments"
OTHER = COUNTS.replace("first =", "one =").replace("second =", "three =").replace("small-cnn", "resnet20")

HEADS = """
# gll reproduce heads
title = "heads"
paper = "none"
kind = "train"
order = 1
table = { rows = ["head"], figures = ["error"] }
[run]
data = { name = "digits", labels = "6 each" }
warmup = { epochs = 1 }
test = { every = 5 }
[axes.head]
mlp = ["model.head=mlp"]
[scales.small]
seeds = [0]
"""


def made(root: Path, name: str, text: str) -> Experiment:
    folder = root / "experiments" / name
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text.strip())
    return load_experiment(folder)


@pytest.fixture
def both(tmp_path: Path) -> tuple[Experiment, Experiment]:
    """Two that share a network by different names, and each have another; two seeds."""
    return made(tmp_path, "counts", COUNTS), made(tmp_path, "other", OTHER)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was run."""
    found: list[str] = []
    real = ParametersKind.run

    def run(self: ParametersKind, experiment: Experiment, cell: Any, place: Any) -> Any:
        found.append(f"{experiment.name}: {cell.title}")
        return real(self, experiment, cell, place)

    monkeypatch.setattr(ParametersKind, "run", run)
    return found


def invoked(root: Path, *words: str) -> Result:
    where = ["--experiments", str(root / "experiments"), "--work", str(root / "work"), "--device", "cpu"]
    return CliRunner().invoke(app, ["reproduce", *words, *where])


def records(experiment: Experiment) -> dict[str, dict[str, Any]]:
    return {r["cell"]: r for r in read_records(experiment.folder / "results.json").values()}


def put(experiment: Experiment, title: str = "") -> dict[str, Any]:
    """A record of the cell that a table shows, made up."""
    cell = next(c for c in kind_of(experiment).cells(experiment, "small") if not c.role and c.title.startswith(title))
    own = {"experiment": experiment.name, "scale": "small", "cell": cell.title, "place": dict(cell.point.place)}
    about = {"role": "", "seed": cell.point.seed, "key": cell.key, "config": dict(cell.settings), "date": "1"}
    record = {**own, **about, "wall_s": 60.0, "values": {"error": 1.0}, "more": {}}
    write_json(experiment.folder / "results.json", {"format": "gll.results 1", "records": [record]})
    return record


# What is taken --------------------------------------------------------------------------------------------------------


def test_a_cell_that_another_experiment_has_is_not_run(
    both: tuple[Experiment, Experiment], tmp_path: Path, ran: list[str]
) -> None:
    counts, other = both
    invoked(tmp_path, "counts", "--scale", "small", "--only", "seed 0")
    before = files(counts.folder)
    ran.clear()
    found = invoked(tmp_path, "other", "--scale", "small", "--only", "one")
    assert found.exit_code == 0, found.output
    assert "other (small): one, seed 0: taken from counts" in said(found)
    assert "2 of 2 cells, 2 of them new" in said(found), "one taken and one run"
    assert ran == ["other: one, seed 1"]
    theirs, taken = records(counts)["first, seed 0"], records(other)["one, seed 0"]
    own = {"experiment": "other", "cell": "one, seed 0", "place": {"network": "one"}, "taken_from": "counts"}
    assert taken == theirs | own
    assert "taken_from" not in records(other)["one, seed 1"]
    assert files(counts.folder) == before
    assert sorted(records(other)) == ["one, seed 0", "one, seed 1"]
    assert "; 1 cell of these run as part of `counts`" in tables.provenance(tables.Shown(other, "small"))
    assert "as part of" not in tables.provenance(tables.Shown(counts, "small"))


def test_of_several_in_one_command_each_cell_is_run_once(
    both: tuple[Experiment, Experiment], tmp_path: Path, ran: list[str]
) -> None:
    assert invoked(tmp_path, "counts", "other", "--scale", "small").exit_code == 0
    assert len(ran) == len(set(ran)) == 6
    assert [word for word in ran if word.startswith("other: one")] == []
    assert {title for title, r in records(both[1]).items() if "taken_from" in r} == {"one, seed 0", "one, seed 1"}


def test_no_process_is_started_for_what_is_taken(
    both: tuple[Experiment, Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither where it was done before, nor where the same command has done it."""
    started: list[str] = []

    def share(words: Sequence[str], _: int) -> list[str]:
        started.append(words[1])
        assert CliRunner().invoke(app, list(words)).exit_code == 0
        return []

    monkeypatch.setattr(command, "_share", share)
    words = ("--scale", "small", "--only", "first | one", "--jobs", "2")
    assert invoked(tmp_path, "counts", "other", *words).exit_code == 0
    assert (started, len(records(both[1]))) == (["counts"], 2)
    (both[1].folder / "results.json").unlink()
    assert invoked(tmp_path, "other", *words).exit_code == 0
    assert (started, len(records(both[1]))) == (["counts"], 2)


def test_what_was_stopped_here_and_is_done_there_needs_no_resume(
    both: tuple[Experiment, Experiment], tmp_path: Path, ran: list[str]
) -> None:
    work = Work(both[1], "small", tmp_path / "work", "cpu", Reporter(), ("one", "seed 0"))
    folder = work.folder(work.todo()[0])
    folder.mkdir(parents=True)
    note_begin(folder)
    words = ("other", "--scale", "small", "--only", "one, seed 0")
    assert "add --resume" in said(invoked(tmp_path, *words))
    invoked(tmp_path, "counts", "--scale", "small", "--only", "first, seed 0")
    ran.clear()
    assert invoked(tmp_path, *words).exit_code == 0
    assert invoked(tmp_path, *words, "--resume").exit_code == 0
    assert (ran, list(records(both[1]))) == ([], ["one, seed 0"])


def test_what_another_process_finishes_meanwhile_is_taken(
    both: tuple[Experiment, Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[str]
) -> None:
    """It is looked at again before each cell."""
    counts, other = both
    real = Work._run

    def run(self: Work, *args: Any) -> None:
        real(self, *args)
        if self.experiment.name == "other" and not (counts.folder / "results.json").exists():
            monkeypatch.setattr(Work, "_run", real)
            assert Work(counts, "small", tmp_path / "work", "cpu", Reporter(), ("first", "seed 1")).run() == []

    monkeypatch.setattr(Work, "_run", run)
    assert Work(other, "small", tmp_path / "work", "cpu", Reporter()).run() == []
    assert "other: one, seed 1" not in ran
    assert records(other)["one, seed 1"]["taken_from"] == "counts"


def test_the_warm_up_of_a_taken_cell_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = made(tmp_path, "one", HEADS), made(tmp_path, "other", HEADS)
    put(one)
    monkeypatch.setattr(Work, "_run", lambda *_: pytest.fail("it runs"))
    work = Work(other, "small", tmp_path / "work", "cpu", Reporter())
    assert [bool(cell.role) for cell in work.todo()] == [True, False]
    found = listing(other, "small", (), tmp_path / "work")
    assert [found.at(cell).state for cell in found.cells] == [State.AT_HAND], "nor is it listed"
    assert work.run() == []
    assert work.todo() == []


def test_arrays_and_pictures_go_by_the_name_of_the_cell(both: tuple[Experiment, Experiment]) -> None:
    counts, other = both
    record = put(counts)
    (counts.folder / "arrays").mkdir()
    stem, key = "first-seed-0", record["key"][:8]
    for name in (f"{stem}-{key}.npz", f"{stem}-{key}-attack.png", "second-seed-0-12345678.npz"):
        (counts.folder / "arrays" / name).write_text(name)
    (taken,) = take_over(other, kind_of(other).cells(other, "small"), ())
    assert taken["cell"] == "one, seed 0"
    there = {path.name: path.read_text() for path in (other.folder / "arrays").iterdir()}
    assert there == {
        f"one-seed-0-{key}.npz": f"{stem}-{key}.npz",
        f"one-seed-0-{key}-attack.png": f"{stem}-{key}-attack.png",
    }


def test_the_name_is_that_of_who_has_run_it(both: tuple[Experiment, Experiment], tmp_path: Path) -> None:
    counts, other = both
    put(counts)
    assert len(take_over(other, kind_of(other).cells(other, "small"), ())) == 1
    (counts.folder / "results.json").unlink()
    third = made(tmp_path, "third", COUNTS)
    (taken,) = take_over(third, kind_of(third).cells(third, "small"), ())
    assert (taken["experiment"], taken["cell"], taken["taken_from"]) == ("third", "first, seed 0", "counts")


def test_results_that_come_home_are_shared(both: tuple[Experiment, Experiment], tmp_path: Path) -> None:
    invoked(tmp_path, "counts", "--scale", "small")
    (tmp_path / "home").mkdir()
    for name, text in (("counts", COUNTS), ("other", OTHER)):
        made(tmp_path / "home", name, text)
    found = invoked(tmp_path / "home", "--merge", str(tmp_path / "experiments"))
    assert found.exit_code == 0, found.output
    assert "counts: 4 records taken" in said(found)
    assert "other: 2 records taken from counts, which has the same cells" in said(found)
    assert len(records(load_experiment(tmp_path / "home" / "experiments" / "other"))) == 2


def test_ablations_take_their_first_rows_from_cifar10(tmp_path: Path) -> None:
    for name in ("cifar10", "base-sets", "augmentation"):
        shutil.copytree(REAL / name, tmp_path / name)
        if name != "cifar10":
            (tmp_path / name / "results.json").unlink(missing_ok=True)
    there = records(load_experiment(tmp_path / "cifar10"))
    for name, rows in (
        ("base-sets", {"random": "GLL"}),
        ("augmentation", {"strong, MLP": "MLP", "strong, GLL": "GLL"}),
    ):
        experiment = load_experiment(tmp_path / name)
        taken = take_over(experiment, kind_of(experiment).cells(experiment, "small"), ())
        values = {f"{row}, seed {seed}": there[f"resnet20, 2%, {head}, seed {seed}"]["values"]
                  for row, head in rows.items() for seed in (0, 1)}  # fmt: skip
        assert {record["cell"]: record["values"] for record in taken} == values


# What is not ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('kind = "train"', 'kind = "attack"'),
        ("every = 5", "every = 6"),
        ("every = 5", "every = 5, batch = 7"),
        ('data = { name = "digits"', 'data = { root = "elsewhere", name = "digits"'),
        ("seeds = [0]", "seeds = [1]"),
        ("[run]", '[options]\nclasses = ["8"]\nfigure = "eight"\n[run]'),
    ],
)
def test_a_record_that_says_something_else_is_not_taken(tmp_path: Path, old: str, new: str) -> None:
    """Though the key is the same in the first four: a record of theirs has other curves, or was found otherwise."""
    assert old in HEADS
    one = made(tmp_path, "one", HEADS)
    put(one)
    same, other = made(tmp_path, "same", HEADS), made(tmp_path, "other", HEADS.replace(old, new))
    assert len(at_hand(same, kind_of(same).cells(same, "small"), ())) == 1
    cells = kind_of(other).cells(other, "small")
    if "seeds" not in old and "options" not in new:
        assert cells[-1].key in read_records(one.folder / "results.json")
    assert at_hand(other, cells, ()) == {}


def test_smoke_neither_gives_nor_takes(both: tuple[Experiment, Experiment], tmp_path: Path, ran: list[str]) -> None:
    invoked(tmp_path, "counts", "--scale", "small")
    ran.clear()
    assert invoked(tmp_path, "other").exit_code == 0
    assert ran == ["other: one, seed 0", "other: three, seed 0"]
    assert not (both[1].folder / "results.json").exists()
    shutil.rmtree(tmp_path / "work")
    (both[0].folder / "results.json").unlink()
    invoked(tmp_path, "counts")
    ran.clear()
    invoked(tmp_path, "other", "--scale", "small", "--only", "one, seed 0")
    assert ran == ["other: one, seed 0"]


def test_a_record_of_settings_no_longer_asked_for_is_not_taken(both: tuple[Experiment, Experiment]) -> None:
    """What is not in the key can then not be compared."""
    counts, other = both
    put(counts)
    (counts.folder / "config.toml").write_text(COUNTS.strip().replace("digits-cnn", "resnet32"))
    assert at_hand(other, kind_of(other).cells(other, "small"), ()) == {}


def test_one_that_is_damaged_is_no_hindrance(both: tuple[Experiment, Experiment], tmp_path: Path) -> None:
    (both[0].folder / "results.json").write_text("{")
    made(tmp_path, "strange", COUNTS)
    (tmp_path / "experiments" / "strange" / "results.json").write_text("{}")
    (tmp_path / "experiments" / "strange" / "config.toml").write_text("what?")
    assert Work(both[1], "small", tmp_path / "work", "cpu", Reporter(), ("seed 0",)).run() == []
    assert len(records(both[1])) == 2


# In the list ----------------------------------------------------------------------------------------------------------


def test_the_list_says_what_is_at_hand_and_takes_nothing(
    both: tuple[Experiment, Experiment], tmp_path: Path, ran: list[str]
) -> None:
    invoked(tmp_path, "counts", "--scale", "small")
    ran.clear()
    before = files(tmp_path)
    found = invoked(tmp_path, "other", "--scale", "small", "--list")
    assert "at hand: one, seed 0 and 1 more: counts has it; it is not run again" in said(found)
    assert "to run the 2 that are left:" in said(found)
    whole, alone = proposed(found.output)
    assert alone[alone.index("--only") + 1] == "three, seed 0"
    only = invoked(tmp_path, "other", "--scale", "small", "--only", "one", "--list")
    assert "to take over what is at hand:" in said(only)
    assert files(tmp_path) == before
    (words,) = proposed(only.output)
    assert CliRunner().invoke(app, words[1:]).exit_code == 0
    assert (ran, len(records(both[1]))) == ([], 2)
    assert "at hand" not in said(invoked(tmp_path, "other", "--scale", "small", "--list"))
    assert CliRunner().invoke(app, whole[1:]).exit_code == 0
    assert ran == ["other: three, seed 0", "other: three, seed 1"]


def test_without_a_scale_the_list_shows_what_is_at_hand(both: tuple[Experiment, Experiment], tmp_path: Path) -> None:
    invoked(tmp_path, "counts", "--scale", "small", "--only", "first, seed 0")
    assert "at hand: one, seed 0: counts has it" in said(invoked(tmp_path, "other", "--list"))


def test_merging_says_what_is_new_and_then_that_the_rest_is_not(tmp_path: Path) -> None:
    names = ("counts", "other", "third", "fourth")
    for number, name in enumerate(names):  # of different keys
        made(tmp_path, name, COUNTS.replace("classes = 10", f"classes = {10 + number}"))
    assert invoked(tmp_path, *names, "--scale", "small", "--only", "seed 0").exit_code == 0
    shutil.copytree(tmp_path, tmp_path / "there")
    for name, word in (("fourth", "first"), ("other", "second")):
        assert invoked(tmp_path / "there", name, "--scale", "small", "--only", f"{word}, seed 1").exit_code == 0
    words = ("--merge", str(tmp_path / "there" / "experiments"))
    new = "1 record taken, 2 were here already"
    assert invoked(tmp_path, *words).output.splitlines() == [f"fourth: {new}", f"other: {new}", "2 others: nothing new"]
    assert invoked(tmp_path, *words).output.splitlines() == ["4 experiments: nothing new"]
