"""`gll reproduce` when things go wrong: no data or device, cells that fail or are held, parents that are gone."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner, Result

import gll.nn.encoders
from gll.cli import app
from gll.reproduce import limit as limits
from gll.reproduce import work as working
from gll.reproduce.command import PARENT
from gll.reproduce.experiment import Experiment, load_experiment
from gll.reproduce.limit import Limit
from gll.reproduce.records import claimed, read_records, write_json
from gll.reproduce.state import note_begin
from gll.reproduce.work import Work
from gll.train.progress import Reporter
from tests.tiny_runs import digits

COUNTS = """
# gll reproduce counts
title = "counts"
paper = "none"
kind = "parameters"
order = 1
table = { rows = ["network"], figures = ["total"] }
options = { channels = 1, classes = 10, hidden = 0 }
[axes.network]
first = ["options.encoder=digits-cnn"]
second = ["options.encoder=small-cnn"]
[scales.smoke]
seeds = [0]
[scales.small]
seeds = [0, 1]
"""


@pytest.fixture
def counts(tmp_path: Path) -> Experiment:
    """Four cells, milliseconds each."""
    return written(tmp_path, COUNTS)


def written(root: Path, text: str) -> Experiment:
    folder = root / "experiments" / "counts"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text.strip())
    return load_experiment(folder)


def work_on(experiment: Experiment, *only: str, console: Console | None = None) -> Work:
    return Work(experiment, "small", experiment.folder.parent.parent / "work", "cpu", Reporter(console), only)


def invoked(experiment: Experiment, *words: str) -> Result:
    root = experiment.folder.parent.parent
    where = ["--experiments", str(root / "experiments"), "--work", str(root / "work")]
    return CliRunner().invoke(app, ["reproduce", "counts", "--device", "cpu", *where, *words])


def said(result: Result) -> str:
    return " ".join(result.output.split())


def test_cells_that_a_scale_makes_equal_are_refused(tmp_path: Path) -> None:
    """Its `set` goes over the axes: else two names would share one record."""
    experiment = written(tmp_path, COUNTS + 'set = ["options.encoder=digits-cnn"]')
    for words in (["--scale", "small"], ["--scale", "small", "--list"]):
        found = invoked(experiment, *words)
        assert found.exit_code == 1
        assert "first, seed 0 and second, seed 0 are one cell: their settings are equal" in said(found)
        assert "overridden by `set` of [scales.small]" in said(found)
    assert not (tmp_path / "work").exists()


# Cells that fail ------------------------------------------------------------------------------------------------------


def test_a_cell_that_failed_is_tried_again_by_the_same_command(
    counts: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = gll.nn.encoders.create_encoder

    def broken(name: str, **options: Any) -> Any:
        if name == "small-cnn":
            raise OSError("the disk is full")
        return real(name, **options)

    monkeypatch.setattr(gll.nn.encoders, "create_encoder", broken)
    failed = invoked(counts, "--scale", "small")
    assert failed.exit_code == 1
    assert "counts: second, seed 0 and 1 more: the disk is full" in said(failed)
    assert len(read_records(counts.folder / "results.json")) == 2
    assert work_on(counts).begun() == []
    monkeypatch.setattr(gll.nn.encoders, "create_encoder", real)
    again = invoked(counts, "--scale", "small")
    assert again.exit_code == 0, again.output
    assert again.output.count("last time it failed: the disk is full") == 2
    assert len(read_records(counts.folder / "results.json")) == 4
    assert "disk is full" not in invoked(counts, "--scale", "small").output


def test_a_failure_of_another_process_is_not_repeated_by_this_one(counts: Experiment) -> None:
    """As the workers of --jobs: what one of them has tried, the others leave alone."""
    text = COUNTS.replace("small-cnn", "nothing")
    one, other = (work_on(written(counts.folder.parent.parent, text), "seed 0") for _ in range(2))
    problems = one.run()
    assert problems == other.run() == other.problems()
    assert problems[0].startswith("second, seed 0: unknown encoder 'nothing'")


def test_what_is_no_number_is_no_result(counts: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverged(*_: Any) -> working.Outcome:
        return working.Outcome({"total": float("nan")})

    monkeypatch.setattr("gll.reproduce.parameter_cells.ParametersKind.run", diverged)
    (problem,) = work_on(counts).run()
    assert problem == "first, seed 0 and 3 more: its total is nan, which is no result: has it diverged?"
    assert not (counts.folder / "results.json").exists()


# Device and data ------------------------------------------------------------------------------------------------------

HEADS = """
# gll reproduce counts
title = "heads"
paper = "none"
kind = "train"
order = 1
table = { rows = ["data"], figures = ["error"] }
[run]
data = { labels = "6 each" }
base = { size = 20 }
model = { head = "mlp" }
train = { epochs = 1, steps = 1, batch = 60, labelled = 20 }
test = { every = 0, k = 10 }
[axes.data]
here = ["data.name=HERE"]
away = ["data.name=AWAY"]
[scales.small]
seeds = [0, 1]
"""


def test_data_is_looked_at_before_the_first_cell(tmp_path: Path) -> None:
    away = tmp_path / "away.npz"
    experiment = written(tmp_path, HEADS.replace("HERE", str(digits())).replace("AWAY", str(away)))
    missing = invoked(experiment, "--scale", "small", "--only", "away")
    assert (missing.exit_code, missing.output.count("there is no data set")) == (1, 1)
    assert "counts: away, seed 0 and 1 more: there is no data set, folder or file" in said(missing)
    assert not (tmp_path / "work").exists(), "nothing is left behind"
    rest = invoked(experiment, "--scale", "small", "--only", "seed 0")
    assert rest.exit_code == 1
    assert "left out: away, seed 0: there is no data set" in said(rest)
    assert [r["cell"] for r in read_records(experiment.folder / "results.json").values()] == ["here, seed 0"]
    away.write_bytes(digits().read_bytes())
    assert invoked(experiment, "--scale", "small", "--only", "away, seed 0").exit_code == 0


def test_the_device_is_looked_at_before_the_first_cell(counts: Experiment) -> None:
    wrong = invoked(counts, "--device", "gpu")
    assert (wrong.exit_code, "--device must be" in said(wrong)) == (1, True)
    if not torch.cuda.is_available():
        none = invoked(counts, "--device", "cuda")
        assert "--device is 'cuda', but PyTorch finds no GPU; use --device=cpu" in said(none)
    assert not (counts.folder.parent.parent / "work").exists()


# Several processes ----------------------------------------------------------------------------------------------------


def test_a_held_cell_is_waited_for_and_its_process_is_named(
    counts: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "LOOK_SECONDS", 0.02)
    console = Console(file=StringIO(), width=200)
    work = work_on(counts, "first", "seed 0", console=console)
    folder = work.folder(work.todo()[0])
    with ExitStack() as other:
        assert other.enter_context(claimed(folder))
        note_begin(folder)
        assert work.begun() == []
        said_so = console.file
        assert isinstance(said_so, StringIO)

        def let_go() -> None:
            """As soon as the other is seen to wait, however long that takes on a busy machine."""
            end = time.monotonic() + 60
            while "waiting" not in said_so.getvalue() and time.monotonic() < end:
                time.sleep(0.01)
            other.close()

        thread = threading.Thread(target=let_go)
        thread.start()
        assert work.run() == []
        thread.join()
    text = said_so.getvalue()
    where = f"process {os.getpid()} on {socket.gethostname()}"
    assert text.count(f"counts (small): first, seed 0 is held by {where}; waiting") == 1
    assert len(work.done()) == 1


def test_what_is_begun_and_nobody_holds_was_stopped(counts: Experiment) -> None:
    work = work_on(counts, "seed 0")
    for cell in work.todo():
        work.folder(cell).mkdir(parents=True)
        note_begin(work.folder(cell))
    refused = invoked(counts, "--scale", "small")
    assert refused.exit_code == 1
    assert "2 cells of counts were stopped before the end; add --resume to go on" in said(refused)
    assert str(work.folder(work.cells[0])) in said(refused).replace(" ", "")
    one = invoked(counts, "--scale", "small", "--only", "first")
    assert "1 cell of counts was stopped before the end" in said(one)
    assert invoked(counts, "--scale", "small", "--resume").exit_code == 0


@pytest.mark.slow
def test_jobs_share_the_cells(counts: Experiment) -> None:
    experiment = written(counts.folder.parent.parent, COUNTS.replace("small-cnn", "nothing"))
    found = invoked(experiment, "--scale", "small", "--jobs", "2")
    assert found.exit_code == 1
    assert "counts: second, seed 0 and 1 more: unknown encoder 'nothing'" in said(found)
    assert said(found).count("2 of them new") == 1, "the table is that of this process alone"
    assert len(read_records(experiment.folder / "results.json")) == 2


def test_a_worker_stops_when_its_parent_is_gone(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import os, pathlib, sys, time\n"
        "from gll.reproduce.limit import Limit\n"
        "try:\n"
        f"    with Limit(None, int(os.environ[{PARENT!r}])):\n"
        "        pathlib.Path(sys.argv[1], 'begun').touch()\n"
        "        time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    pathlib.Path(sys.argv[1], 'stopped').touch()\n"
    )
    parent = (
        "import os, subprocess, sys\n"
        f"subprocess.Popen([sys.executable, *sys.argv[1:]], env={{**os.environ, {PARENT!r}: str(os.getpid())}}).wait()"
    )
    process = subprocess.Popen([sys.executable, "-c", parent, str(worker), str(tmp_path)])
    assert _appears(tmp_path / "begun")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert _appears(tmp_path / "stopped")


def _appears(path: Path) -> bool:
    end = time.monotonic() + 30
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.05)
    return path.exists()


def test_the_limit_works_where_a_shell_has_the_signal_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOOK_SECONDS", 0.02)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), Limit(0.05) as limit:
            time.sleep(5)
        assert limit.reached
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    with Limit(None, os.getppid()) as mine:
        time.sleep(0.1)
    assert not mine.orphaned


# Records that results.json has lost -----------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["run", "merge"])
def test_records_that_results_json_has_lost_are_put_back(
    counts: Experiment, by: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    results, other = counts.folder / "results.json", tmp_path / "other"
    assert invoked(counts, "--scale", "small", "--only", "seed 0").exit_code == 0
    shutil.copytree(counts.folder.parent, other)
    early = results.read_text()
    assert invoked(counts, "--scale", "small").exit_code == 0
    whole = results.read_text()
    monkeypatch.setattr("gll.reproduce.parameter_cells.ParametersKind.run", None)  # nothing is run again

    def again() -> Result:
        if by == "run":
            return invoked(counts, "--scale", "small", "--only", "first, seed 0")
        where = ["--experiments", str(counts.folder.parent), "--work", str(tmp_path / "work")]
        return CliRunner().invoke(app, ["reproduce", "--merge", str(other), *where])

    results.write_text(early)
    found = again()
    assert found.exit_code == 0, found.output
    assert "2 records put back into results.json from" in said(found)
    assert results.read_text() == whole
    results.unlink()
    assert f"{4 if by == 'run' else 2} records put back" in said(again()), "the merged ones are there by then"
    assert results.read_text() == whole
    assert "put back" not in said(again())


def test_of_two_records_the_later_stays(counts: Experiment) -> None:
    """Whichever side it is on."""
    invoked(counts, "--scale", "small", "--only", "first, seed 0")
    results = counts.folder / "results.json"
    ours = next(iter(read_records(results).values()))
    for date, kept in (("2000", ours), ("9999", ours | {"date": "9999"})):
        write_json(results, {"format": "gll.results 1", "records": [ours | {"date": date}]})
        invoked(counts, "--scale", "small", "--only", "first, seed 0")
        assert read_records(results) == {ours["key"]: kept}


def test_what_is_no_record_of_this_results_json_is_not_put_back(counts: Experiment) -> None:
    """Those of smoke, and of another experiment: it has its own file."""
    assert invoked(counts).exit_code == 0
    smoke = Work(counts, "smoke", counts.folder.parent.parent / "work", "cpu", Reporter(None))
    assert len(smoke.done()) == 2
    smoke.put_back()
    work = work_on(counts)
    assert work.run() == []
    for cell in work.cells:
        file = work.folder(cell) / "record.json"
        file.write_text(file.read_text().replace('"experiment": "counts"', '"experiment": "other"'))
    (counts.folder / "results.json").unlink()
    work.put_back()
    assert not (counts.folder / "results.json").exists()


def test_a_record_names_the_commit_whatever_the_command_has_written(
    counts: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gll.train.runs.commit_of", lambda _, besides: f"all but {', '.join(besides)}")
    assert work_on(counts, "first", "seed 0").run() == []
    (record,) = read_records(counts.folder / "results.json").values()
    assert record["commit"] == f"all but {', '.join(working.WRITTEN)}"
    assert "experiments/*/results.json" in working.WRITTEN


def test_sigterm_stops_as_ctrl_c_does(counts: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch system sends it; so does the command to its own processes. What the cell has cost is written down."""

    class Told(type(work_on(counts).kind)):  # type: ignore[misc]
        def run(self, *_: Any) -> Any:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)

    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda number, frame: pytest.fail("nobody listens to SIGTERM"))
    try:
        monkeypatch.setattr(working, "kind_of", lambda _: Told())
        result = invoked(counts, "--scale", "small", "--only", "first, seed 0")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 130
    assert "interrupted; stopped in first, seed 0" in said(result)
    (progress,) = (counts.folder.parent.parent / "work").rglob("progress.json")
    assert '"wall_s"' in progress.read_text()
