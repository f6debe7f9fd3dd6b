"""`gll reproduce`: from names to finished cells and tables on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from gll.names import require_name
from gll.reproduce.experiment import Experiment, ExperimentError, load_all
from gll.reproduce.limit import Limit
from gll.reproduce.records import add_records, done_records, read_records
from gll.reproduce.tables import Shown, pages, section, states_of
from gll.terminal import error_console, said_by


@final
@dataclass(frozen=True)
class Request:
    """What was asked for: the options of the command, see `gll reproduce --help`."""

    names: tuple[str, ...]
    scale: str = "smoke"
    every: bool = False
    show: bool = False
    resume: bool = False
    device: str = "auto"
    seconds: float | None = None
    jobs: int = 1
    only: tuple[str, ...] = ()
    tables: bool = False
    figures: bool = False
    check: bool = False
    merge: Path | None = None
    experiments: Path = Path("experiments")
    work: Path = Path("out/reproduce")


def find_experiments(given: Path | None) -> Path:
    """The folder given, else ./experiments, else that of the checkout this package lies in."""
    if given is not None:
        return given
    here = Path("experiments")
    return here if here.is_dir() else Path(__file__).resolve().parents[2] / "experiments"


def show_list(experiments: Mapping[str, Experiment], console: Console) -> None:
    """All experiments with their status."""
    table = Table(title="gll reproduce NAME --scale smoke|small|full")
    for name in ("name", "in the paper", "what", "cells", "small", "full"):
        table.add_column(name)
    for name, experiment in experiments.items():
        states = states_of(experiment)
        words = [_state(states[s]) if s in states else "–" for s in ("small", "full")]
        cells = " / ".join(str(shown.total) for shown in states.values())
        table.add_row(name, experiment.text["paper"], experiment.text["title"], cells, *words)
    console.print(table)


def _state(shown: Shown) -> str:
    old = f" ({shown.old} of other settings)" if shown.old else ""
    return f"{shown.status}{old}"


def write_pages(experiments: Mapping[str, Experiment], check: bool, console: Console) -> int:
    """Write the pages again, or say which are out of date. Returns the exit code."""
    stale = {path: text for path, text in pages(experiments).items() if not _holds(path, text)}
    for path, text in stale.items():
        if check:
            error_console().print(said_by("reproduce", f"{path} is out of date: run gll reproduce --tables"))
        else:
            path.write_text(text, encoding="utf-8")
            console.print(Text(f"wrote {path}"), soft_wrap=True)
    return 1 if check and stale else 0


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def merge(experiments: Mapping[str, Experiment], folder: Path, console: Console) -> None:
    """Take results (and arrays) from another folder of experiments, such as that of another machine.

    Raises:
        ExperimentError: there is nothing to take, or it belongs to another experiment.
    """
    if not any((folder / name / "results.json").is_file() for name in experiments):
        raise ExperimentError(
            f"{folder} has no results of any experiment; give a copy of the folder `experiments` of the other machine"
        )
    for name, experiment in experiments.items():
        other = folder / name
        found = read_records(other / "results.json").values()
        if strange := next((record for record in found if record["experiment"] != name), None):
            raise ExperimentError(f"{other / 'results.json'} holds records of {strange['experiment']}, not of {name}")
        count = add_records(experiment.folder / "results.json", found)
        for array in sorted((other / "arrays").glob("*.*")):  # arrays and pictures
            (experiment.folder / "arrays").mkdir(exist_ok=True)
            (experiment.folder / "arrays" / array.name).write_bytes(array.read_bytes())
        if found:
            console.print(Text(f"{name}: {count} records taken, {len(found) - count} were here already"))


def run_reproduce(request: Request, console: Console) -> int:
    """Do what was asked for, in this order: merge, list, run, tables. Returns the exit code."""
    experiments = load_all(request.experiments)
    for name in request.names:
        require_name("experiment", name, experiments)
    pages_too = request.tables or request.figures or request.check
    if not (request.names or request.every or request.show or request.merge or pages_too):
        raise ExperimentError(f"say which experiment: {', '.join(experiments)}; or --list, or --all")
    if request.merge is not None:
        merge(experiments, request.merge, console)
    if request.show:
        show_list(experiments, console)
    code = run_experiments(experiments, request, console) if request.names or request.every else 0
    if request.figures:
        from gll.reproduce.figures import draw_all

        for path in draw_all(experiments, request.experiments.resolve().parent / "docs" / "figures"):
            console.print(Text(f"drew {path}"), soft_wrap=True)
    if pages_too:
        code = code or write_pages(experiments, request.check and not request.tables, console)
    return code


def run_experiments(experiments: Mapping[str, Experiment], request: Request, console: Console) -> int:
    """Run experiments, and show what came out. Returns the exit code."""
    errors = error_console()
    chosen = list(experiments) if request.every else list(request.names)
    chosen = [name for name in chosen if not request.every or request.scale in experiments[name].scales]
    problems: list[str] = []
    limit = Limit(request.seconds)
    try:
        with limit:
            for name in chosen:
                problems += [f"{name}: {text}" for text in _run_one(experiments[name], request, limit, console)]
    except KeyboardInterrupt:
        why = f"the {request.seconds:g} seconds are over" if limit.reached else "interrupted"
        errors.print(said_by("reproduce", f"{why}; what is done is kept: the same command with --resume goes on"))
        _show(experiments, chosen, request, console)
        return 0 if limit.reached else 130
    _show(experiments, chosen, request, console)
    for problem in problems:
        errors.print(said_by("reproduce", problem))
    return 1 if problems else 0


def _run_one(experiment: Experiment, request: Request, limit: Limit, console: Console) -> list[str]:
    from gll.reproduce.work import Work, command_of
    from gll.train.progress import Reporter

    require_name(f"scale of {experiment.name}", request.scale, experiment.scales)
    work = Work(experiment, request.scale, request.work, request.device, Reporter(console), request.only)
    if request.only and not any(cell.matches(request.only) for cell in work.cells):
        raise ExperimentError(
            f"no cell of {experiment.name} is {', '.join(request.only)}; one is: {work.cells[-1].title}"
        )
    begun = work.begun()
    if begun and not request.resume:
        raise ExperimentError(
            f"{len(begun)} cells of {experiment.name} were stopped before they were finished; add --resume to go on "
            f"with them, or remove their folders; the first is {work.folder(begun[0])}"
        )
    if request.jobs == 1 or len(work.todo()) < 2:
        return work.run()
    left = None if request.seconds is None else max(1.0, limit.left - 5)
    return _share(command_of(work, left, request.experiments), request.jobs)


def _share(command: Sequence[str], jobs: int) -> list[str]:
    """The same command in several processes. Each has its share of the CPU's threads."""
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    environment = {"OMP_NUM_THREADS": threads, **os.environ}
    workers = []
    for _ in range(jobs):
        workers.append(subprocess.Popen([sys.executable, "-m", "gll", *command], env=environment))
        time.sleep(0.2)
    try:
        codes = [worker.wait() for worker in workers]
    except KeyboardInterrupt:
        for worker in workers:  # at a terminal they got Ctrl-C as well; the limit is this process's own
            worker.terminate()
        for worker in workers:
            worker.wait()
        raise
    bad = [code for code in codes if code != 0]
    return [f"{len(bad)} of {jobs} processes have failed (exit codes {bad}); see what they say"] if bad else []


def _show(experiments: Mapping[str, Experiment], chosen: list[str], request: Request, console: Console) -> None:
    """The tables of what was asked for. Of smoke only how many cells are done: its numbers mean nothing."""
    for name in chosen:
        experiment = experiments[name]
        if request.scale != "smoke":
            console.print(
                Markdown(section(experiment, states_of(experiment)).replace("<small>", "").replace("</small>", ""))
            )
            continue
        from gll.reproduce.kinds import kind_of

        cells = kind_of(experiment).cells(experiment, request.scale)
        done = done_records(experiment, cells, request.work)
        console.print(Text(f"{name} (smoke): {len(done)} of {len(cells)} cells"))
