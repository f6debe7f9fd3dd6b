"""Unfinished work goes from machine to machine: what is packed and what is not, and it goes on to the same numbers."""

from __future__ import annotations

import itertools
import json
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

import gll.train.loop
from gll.attacks.store import Store
from gll.cli import app
from gll.reproduce.carry import needed_files, position
from gll.reproduce.experiment import Cell, Experiment, load_experiment
from gll.reproduce.records import claimed, read_record, read_records, write_json
from gll.reproduce.state import note_begin
from gll.reproduce.work import Work
from gll.train.checkpoint import save_checkpoint
from gll.train.progress import Reporter
from tests.test_reproduce import CONFIG
from tests.test_reproduce_list import files
from tests.test_reproduce_work import COUNTS, said
from tests.tiny_runs import digits

ATTACK = """
# gll reproduce tiny
title = "one head"
paper = "none"
kind = "attack"
order = 1
table = { rows = ["head"], figures = ["FGSM"] }
options = { attacks = "fgsm", samples = 12, chunk = 4 }
[run]
data = { name = "DATA", labels = "6 each" }
model = { encoder = "digits-cnn" }
train = { epochs = 1, steps = 2, batch = 60, labelled = 20 }
test = { every = 0, k = 10 }
[axes.head]
linear = ["model.head=linear"]
[scales.small]
seeds = [0]
"""


def machine(root: Path, text: str, name: str = "tiny") -> Experiment:
    """A folder of experiments with one in it, as on another machine."""
    folder = root / "experiments" / name
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text.strip().replace("DATA", str(digits())))
    return load_experiment(folder)


def work_on(experiment: Experiment, *only: str) -> Work:
    return Work(experiment, "small", experiment.folder.parent.parent / "work", "cpu", Reporter(), only)


def invoked(root: Path, *words: str) -> Result:
    where = ["--experiments", str(root / "experiments"), "--work", str(root / "work")]
    return CliRunner().invoke(app, ["reproduce", *words, *where])


def members(file: Path) -> set[str]:
    with tarfile.open(file) as tar:
        return set(tar.getnames())


def contents(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        return {one.name: kept.read() for one in tar if (kept := tar.extractfile(one)) is not None}


def values(experiment: Experiment) -> dict[str, Any]:
    return {r["cell"]: r["values"] for r in read_records(experiment.folder / "results.json").values()}


# There and on ---------------------------------------------------------------------------------------------------------


def test_a_stopped_run_goes_on_elsewhere_to_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of two heads is stopped in its second epoch. The warm-up that it needs comes with it, the head that is
    finished does not, and nothing is done twice."""
    text = CONFIG.replace("steps = 3,", "steps = 3, save_every = 1,").replace("seeds = [0, 1]", "seeds = [0]")
    whole, there, home = (machine(tmp_path / name, text) for name in ("whole", "there", "home"))
    assert work_on(whole).run() == []
    steps: list[tuple[str, int]] = []
    real = gll.train.loop.Training.train_step
    stop_at = 6 + 3 + 1

    def step(self: gll.train.loop.Training, *args: Any) -> None:
        if len(steps) == stop_at:
            raise KeyboardInterrupt
        steps.append((self.config.model.head, self.epoch))
        real(self, *args)

    monkeypatch.setattr(gll.train.loop.Training, "train_step", step)
    with pytest.raises(KeyboardInterrupt):
        work_on(there).run()
    warm, done, begun = work_on(there).cells
    file = tmp_path / "carried.tar.gz"
    packed = invoked(tmp_path / "there", "tiny", "--pack", str(file))
    assert packed.exit_code == 0, packed.output
    assert "all records of 1 experiment" in said(packed)
    assert "tiny (small): warm-up, seed 0" in said(packed)
    assert "a cell starts from it" in said(packed)
    run = [f"run/{name}" for name in ("config.toml", "data.json", "environment.json", "metrics.jsonl", "split.npz")]
    warm_files = [*run, "run/checkpoints/warmup.safetensors", "progress.json", "record.json"]
    begun_files = [*run, "run/checkpoints/train.safetensors", "progress.json"]
    cells = {f"work/{warm.path}/{name}" for name in warm_files} | {f"work/{begun.path}/{name}" for name in begun_files}
    assert members(file) == {"pack.json", "experiments/tiny/results.json"} | cells
    assert [name for name, kept in contents(file).items() if str(tmp_path).encode() in kept] == [], "stays here"

    taken = invoked(tmp_path / "home", "--unpack", str(file))
    assert taken.exit_code == 0, taken.output
    assert "tiny: 2 records taken" in said(taken)
    assert said(taken).count("taken; --resume goes on") == 2
    assert [cell.title for cell in work_on(home).begun()] == [begun.title]
    steps.clear()
    stop_at = -1
    monkeypatch.setattr("gll.reproduce.train_cells._warm_up", lambda *_: pytest.fail("the warm-up is made again"))
    assert work_on(home).run() == []
    assert steps == [(begun.point.place[0][1], 1)] * 3, "the second epoch of one head"
    assert values(home) == values(whole)
    assert read_record(tmp_path / "home" / "work" / done.path) is None, "finished: its record is among the results"
    assert [p.name for p in (tmp_path / "home" / "work").iterdir() if p.name.startswith(".")] == []


def test_attacks_go_on_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, there, home = (machine(tmp_path / name, ATTACK) for name in ("whole", "there", "home"))
    written: list[str] = []
    stop_at = -1
    real = Store.append

    def append(self: Store, cell: Any, *args: Any) -> None:
        if len(written) == stop_at:
            raise KeyboardInterrupt
        written.append(cell.key)
        real(self, cell, *args)

    monkeypatch.setattr(Store, "append", append)
    assert work_on(whole).run() == []
    every = list(written)
    written.clear()
    stop_at = len(every) // 2
    with pytest.raises(KeyboardInterrupt):
        work_on(there).run()
    assert written == every[:stop_at]
    file = tmp_path / "carried.tar.gz"
    assert invoked(tmp_path / "there", "--pack", str(file)).exit_code == 0
    assert invoked(tmp_path / "home", "--unpack", str(file)).exit_code == 0
    written.clear()
    monkeypatch.setattr(gll.train.loop.Training, "train_step", lambda *_: pytest.fail("it trains again"))
    stop_at = -1
    assert work_on(home).run() == []
    assert written == every[len(every) // 2 :]
    assert values(home) == values(whole)


# What is packed -------------------------------------------------------------------------------------------------------


@pytest.fixture
def counts(tmp_path: Path) -> Experiment:
    return machine(tmp_path, COUNTS, "counts")


def begin(experiment: Experiment, cell: Cell, seconds: float, size: int) -> Path:
    """A cell that was begun, made up: so many bytes that cannot be compressed."""
    folder = experiment.folder.parent.parent / "work" / cell.path
    (folder / "run").mkdir(parents=True)
    write_json(folder / "progress.json", {"wall_s": seconds, "commits": ["abc"]})
    (folder / "run" / "state.bin").write_bytes(os.urandom(size))
    return folder


def pack(experiment: Experiment, *words: str) -> tuple[Path, Result]:
    root = experiment.folder.parent.parent
    return root / "a.tar.gz", invoked(root, "--pack", str(root / "a.tar.gz"), *words)


def packed_cells(file: Path, cells: Sequence[Cell]) -> list[str]:
    return [cell.title for cell in cells if f"work/{cell.path}/run/state.bin" in members(file)]


def test_only_what_it_takes_to_go_on(tmp_path: Path) -> None:
    wanted = [
        "progress.json",
        "study.safetensors",
        "attack/about.json",
        "attack/cells/pgd-1.json",
        "attack/cells/pgd-1.npz",
        "run/config.toml",
        "run/checkpoints/train.safetensors",
        "run/metrics.jsonl",
    ]
    other = [
        ".lock",
        "attack/images.png",
        "attack/report.md",
        "run/.metrics.jsonl.12.tmp",
        "run/tensorboard/events.out.1",
        "run/checkpoints/warmup.safetensors",
        "run/checkpoints/warmup-1.0.safetensors",
    ]
    for name in (*wanted, *other):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "run" / "link").symlink_to(tmp_path / "progress.json")
    assert {path.relative_to(tmp_path).as_posix() for path in needed_files(tmp_path)} == set(wanted)


def test_of_too_much_the_most_work_for_each_byte_goes_first(counts: Experiment) -> None:
    """Neither the smallest nor the longest: 100 s in 600 kB, 30 s in 100 kB, 10 s in 50 kB, 200 s in 3 MB."""
    cells = work_on(counts).cells
    for cell, seconds, size in zip(cells, (100, 30, 10, 200), (600_000, 100_000, 50_000, 3_000_000), strict=True):
        begin(counts, cell, seconds, size)
    file, found = pack(counts, "--limit-mb", "1")
    assert found.exit_code == 0, found.output
    assert packed_cells(file, cells) == [cells[0].title, cells[1].title, cells[2].title]
    assert file.stat().st_size <= 1_000_000
    assert f"{cells[3].title} 3.0 3:20 left out: over the limit" in said(found)
    assert "most seconds of work for each MB goes first" in said(found)
    file, found = pack(counts, "--limit-mb", "0.7")
    assert packed_cells(file, cells) == [cells[1].title, cells[2].title], "the first does not fit, the others do"
    file, found = pack(counts)
    assert packed_cells(file, cells) == [cell.title for cell in cells]
    assert "limit" not in found.output


@pytest.mark.parametrize("size", [513, 40_000])
def test_the_limit_holds_to_the_byte(counts: Experiment, size: int) -> None:
    """With a limit of just its size, a file is refused or fits: what is foreseen is never too little."""
    cells = work_on(counts).cells
    for cell in cells:
        begin(counts, cell, 1, size)
    file, _ = pack(counts)
    whole, full = file.stat().st_size, 0
    for limit in range(max(1000, whole - 2), whole + 20_000, 1999):
        file, found = pack(counts, "--limit-mb", f"{limit / 1e6:.6f}")
        assert (found.exit_code, file.stat().st_size <= limit) == (0, True)
        full += "left out" not in found.output
    assert full > 0


def test_names_scale_and_only_choose(counts: Experiment, tmp_path: Path) -> None:
    other = machine(tmp_path, COUNTS.replace("digits-cnn", "resnet20").replace("small-cnn", "resnet32"), "other")
    cells, others = work_on(counts).cells, work_on(other).cells
    for experiment, one in ((counts, cells), (other, others)):
        begin(experiment, one[0], 1, 10)
        begin(experiment, one[3], 1, 10)
    for words, titles in (
        ((), [0, 3, 0, 3]),
        (("counts",), [0, 3]),
        (("counts", "--scale", "small", "--only", "seed 1"), [3]),
        (("--only", "seed 0"), [0, 0]),
        (("--all",), [0, 3, 0, 3]),
    ):
        file, found = pack(counts, *words)
        assert found.exit_code == 0, found.output
        there = [*packed_cells(file, cells), *packed_cells(file, others)]
        assert there == [cells[i].title for i in titles]
    file, found = pack(counts, "--only", "third")
    assert (found.exit_code, "no cell of counts at small is third" in said(found)) == (1, True)


def test_finished_cells_stay_and_their_arrays_go(counts: Experiment) -> None:
    """And of arrays only those that were made here; what another experiment has done counts as finished."""
    root = counts.folder.parent.parent
    assert work_on(counts, "seed 0").run() == []
    cells = work_on(counts).cells
    begin(counts, cells[2], 1, 10)
    (counts.folder / "arrays").mkdir()
    names = [f"{cells[0].folder}.npz", f"{cells[0].folder}-attack.png", f"{cells[2].folder}.npz", "old-12345678.npz"]
    for name in names:
        (counts.folder / "arrays" / name).write_text(name)
    file, found = pack(counts)
    assert "all records of 1 experiment, and 2 arrays of cells finished here" in said(found)
    inside = members(file)
    assert {name for name in inside if name.startswith("experiments/counts/arrays/")} == {
        f"experiments/counts/arrays/{name}" for name in names[:2]
    }
    assert {name.split("/")[3] for name in inside if name.startswith("work/")} == {cells[2].folder}
    other = machine(root, COUNTS, "other")  # the same cells
    begin(other, work_on(other).cells[0], 1, 10)
    begin(other, work_on(other).cells[2], 1, 10)
    file, found = pack(other, "other")
    assert packed_cells(file, work_on(other).cells) == [work_on(other).cells[2].title]


def test_folders_of_this_machine_stay_here(counts: Experiment) -> None:
    """Of a run's config: whoever goes on puts its own in their place."""
    folder = begin(counts, work_on(counts).cells[0], 1, 10)
    (folder / "run").mkdir(exist_ok=True)
    lines = ['out = "/home/me/run"', "[data]", 'root = "/data"', "[warmup]", 'from = "/home/me/warm-up"', "gamma = 1.0"]
    (folder / "run" / "config.toml").write_text("\n".join(lines) + "\n")
    file, _ = pack(counts)
    with tarfile.open(file) as archive:
        (name,) = (name for name in archive.getnames() if name.endswith("run/config.toml"))
        packed = archive.extractfile(name)
        assert packed is not None
        text = packed.read().decode()
    assert "/" not in text
    assert text.splitlines()[0] == 'out = ""'
    assert text.splitlines()[-1] == "gamma = 1.0"
    assert "/home/me" in (folder / "run" / "config.toml").read_text()


def test_what_is_at_work_is_not_packed(counts: Experiment) -> None:
    cells = work_on(counts).cells
    for cell in cells[:2]:
        begin(counts, cell, 1, 10)
    folder = work_on(counts).folder(cells[0])
    with claimed(folder):
        note_begin(folder)
        file, found = pack(counts)
    assert packed_cells(file, cells) == [cells[1].title]
    assert f"left out: at work (process {os.getpid()} on" in said(found)


def test_a_file_is_written_whole_or_not_at_all(counts: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    root = counts.folder.parent.parent
    nothing, found = pack(counts)
    assert (found.exit_code, "there is nothing to pack: no results, and no cell begun" in said(found)) == (1, True)
    assert work_on(counts, "seed 0").run() == []
    before = files(root)
    _, found = pack(counts, "--limit-mb", "0.001")
    assert (found.exit_code, "the results alone are" in said(found)) == (1, True)
    assert files(root) == before
    assert not nothing.exists()
    begin(counts, work_on(counts).cells[2], 1, 10)
    monkeypatch.setattr(tarfile.TarFile, "addfile", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
    before = files(root)
    _, found = pack(counts)
    assert (found.exit_code, "the disk is full" in said(found)) == (1, True)
    assert files(root) == before


# How far it is --------------------------------------------------------------------------------------------------------


def checkpoint(folder: Path, name: str, lines: int, **state: Any) -> None:
    (folder / "run" / "checkpoints").mkdir(parents=True, exist_ok=True)
    metrics = b"".join(json.dumps({"epoch": i}).encode() + b"\n" for i in range(lines))
    about = {"metrics": len(metrics), "state": state}
    save_checkpoint(folder / "run" / "checkpoints" / f"{name}.safetensors", {"w": torch.zeros(1)}, about)
    (folder / "run" / "metrics.jsonl").write_bytes(metrics + b'{"epoch": "never counted"}\n')


def test_positions_are_in_the_order_of_work(tmp_path: Path) -> None:
    def attacked(folder: Path, stop: int, name: str = "attack") -> None:
        path = folder / name / "cells" / "pgd-1.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"chunks": [{"start": 0, "stop": stop}]}))

    folder, found = tmp_path / "cell", []
    folder.mkdir()
    found.append(position(folder))
    checkpoint(folder, "warmup-1.0", 3, epoch=3)
    found.append(position(folder))
    checkpoint(folder, "warmup-1.0", 3, epoch=3, step=2)
    found.append(position(folder))
    checkpoint(folder, "warmup-1.0", 5, epoch=5, step=0)
    found.append(position(folder))
    checkpoint(folder, "train", 5, epoch=0, step=4)
    found.append(position(folder))
    checkpoint(folder, "train", 5, epoch=0, step=9)
    found.append(position(folder))
    checkpoint(folder, "train", 6, epoch=1, step=0)
    found.append(position(folder))
    (folder / "run" / "result.json").touch()
    found.append(position(folder))
    attacked(folder, 100)
    found.append(position(folder))
    attacked(folder, 50, "attack-joint/checks")
    found.append(position(folder))
    (folder / "record.json").touch()
    found.append(position(folder))
    assert all(one < other for one, other in itertools.pairwise(found))
    (folder / "run" / "checkpoints" / "train.safetensors").write_text("damaged")
    (folder / "attack" / "cells" / "pgd-1.json").write_text("damaged")
    assert position(folder) < found[-1]
    save_checkpoint(tmp_path / "study.safetensors", {"w": torch.zeros(1)}, {"epoch": 7})
    assert position(tmp_path)[-1] == 7
