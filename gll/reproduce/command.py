"""`gll reproduce`: from names to finished cells and tables on a terminal."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from rich.console import Console
from rich.text import Text

from gll.names import require_name
from gll.reproduce.choice import chosen, why_none, within
from gll.reproduce.experiment import SCALES, Experiment, ExperimentError, load_all
from gll.reproduce.in_paper import elsewhere, resolved
from gll.reproduce.kinds import kind_of
from gll.reproduce.limit import Limit, where_stopped
from gll.reproduce.listing import Beside, show_cells
from gll.reproduce.merge import merge, put_all_back
from gll.reproduce.pack import Choice, pack
from gll.reproduce.parts import ALL, Part
from gll.reproduce.show import show_list, show_run
from gll.reproduce.tables import pages
from gll.reproduce.unpack import unpack
from gll.terminal import error_console, said_by
from gll.train.interrupt import stopped_by_sigterm
from gll.words import counted

if TYPE_CHECKING:
    from gll.reproduce.work import Work

PARENT = "GLL_REPRODUCE_PARENT"  # the process that shares its work with this one, if there is one


@final
@dataclass(frozen=True)
class Request:
    """What was asked for: the options of the command, see `gll reproduce --help`.

    `parts` are of those experiments that were asked for by a table or figure of the paper.
    """

    names: tuple[str, ...]
    scale: str | None = None
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
    pack: Path | None = None
    limit_mb: float | None = None
    unpack: Path | None = None
    experiments: Path = Path("experiments")
    work: Path = Path("out/reproduce")
    results: bool = False
    parts: Mapping[str, Part] = field(default_factory=dict, hash=False)

    def part_of(self, name: str) -> Part:
        """What was asked for of an experiment; all of it, if nothing else was said."""
        return self.parts.get(name, ALL)

    def only_of(self, name: str) -> tuple[str, ...]:
        """The words of --only for an experiment, with those of the part that was asked for."""
        return within(self.only, self.part_of(name).only)

    @property
    def cells_asked(self) -> bool:
        """Whether it is about the cells of some experiments."""
        return bool(self.names or self.every)

    def options(self) -> dict[str, bool]:
        """Options that say which cells, or how, and whether each was given. Where to (--device) may be said always."""
        return {
            "--scale": self.scale is not None,
            "--only": bool(self.only),
            "--resume": self.resume,
            "--seconds": self.seconds is not None,
            "--jobs": self.jobs != 1,
        }

    def words(self) -> list[str]:
        """How cells are run, as it was typed; --jobs is not for all of them."""
        words = ["--device", self.device] if self.device != "auto" else []
        return words + (["--seconds", f"{self.seconds:g}"] if self.seconds is not None else [])

    def folders(self) -> list[str]:
        """Where experiments and cells lie, as it was typed."""
        words = ["--experiments", str(self.experiments)] if self.experiments != find_experiments(None) else []
        return words + (["--work", str(self.work)] if self.work != Request(()).work else [])


def find_experiments(given: Path | None) -> Path:
    """The folder given, else ./experiments, else that of the checkout this package lies in."""
    if given is not None:
        return given
    here = Path("experiments")
    return here if here.is_dir() else Path(__file__).resolve().parents[2] / "experiments"


def write_pages(experiments: Mapping[str, Experiment], check: bool, console: Console) -> int:
    """Write the pages again, or say which are out of date, and which pictures. Returns the exit code.

    What is worse than the paper's and has no reason is said in both cases; it stops no page from being written.
    """
    stale = {path: text for path, text in pages(experiments).items() if not _holds(path, text)}
    for path, text in stale.items():
        if check:
            error_console().print(said_by("reproduce", f"{path} is out of date: run gll reproduce --tables"))
        else:
            path.write_text(text, encoding="utf-8")
            console.print(Text(f"wrote {path}"), soft_wrap=True)
    bare = reasons_missing(experiments)
    if not check:
        for said in bare:
            error_console().print(said_by("reproduce", said, "yellow"))
        return 0
    old = stale_pictures(experiments) + bare
    for said in old:
        error_console().print(said_by("reproduce", said))
    if not (stale or old):
        console.print(Text("all pages and pictures are up to date"))
    return 1 if stale or old else 0


def reasons_missing(experiments: Mapping[str, Experiment]) -> list[str]:
    """What is worse than the paper's without a reason, and reasons in vain; nothing where there is no file of them."""
    from gll.reproduce.tables import states_of
    from gll.reproduce.worse import NAME, problems

    path = next(iter(experiments.values())).folder.parent / NAME
    return problems({name: states_of(one) for name, one in experiments.items()}, path) if path.is_file() else []


def stale_pictures(experiments: Mapping[str, Experiment]) -> list[str]:
    """What is wrong with the pictures, in words; nothing where there is no folder of pictures."""
    from gll.reproduce.drawn import stale
    from gll.reproduce.figures import pictures

    folder = pictures_of(next(iter(experiments.values())).folder.parent)
    return stale(pictures(experiments, folder), folder) if folder.is_dir() else []


def pictures_of(experiments: Path) -> Path:
    """The folder of pictures, beside that of experiments."""
    return experiments.resolve().parent / "docs" / "figures"


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def run_reproduce(request: Request, console: Console) -> int:
    """Do what was asked for: list, check or pack, or in this order merge or unpack, run, figures, pages. Returns the
    exit code.
    """
    experiments = load_all(request.experiments)
    found = resolved(request.names, experiments)
    request = replace(request, names=found.names, parts=found.parts)
    pages_too = request.tables or request.figures or request.check
    carried = request.merge or request.pack or request.unpack
    if not (request.cells_asked or request.show or carried or pages_too):
        raise ExperimentError(f"say which experiment: {', '.join(experiments)}; or --list, or --all")
    require_sense(request)
    for said in found.said:
        console.print(Text(said), soft_wrap=True)
    if request.show and not request.cells_asked:
        show_list(experiments, console)
        return 0
    if request.show:
        list_cells(experiments, request, console)
        return 0
    if request.results:
        show_all_results(experiments, request, console)
        return 0
    if request.pack is not None:
        named = {name: experiments[name] for name in request.names or experiments}
        only = {name: request.only_of(name) for name in named}
        choice = Choice(named, request.scale, only, request.work, request.parts)
        pack(choice, request.pack, request.limit_mb, console)
        return 0
    if request.merge is not None or request.unpack is not None:
        _take(experiments, request, console)
    code = run_experiments(experiments, request, console) if request.cells_asked else 0
    if request.figures:
        from gll.reproduce.figures import draw_all

        for path in draw_all(experiments, pictures_of(request.experiments)):
            console.print(Text(f"drew {path}"), soft_wrap=True)
    if pages_too:
        code = code or write_pages(experiments, request.check, console)
    return code


def _take(experiments: Mapping[str, Experiment], request: Request, console: Console) -> None:
    """What has come from elsewhere; first that which is new."""
    last = "" if request.merge is None else merge(experiments, request.merge, console)
    if request.unpack is not None:
        last = unpack(experiments, request.work, request.unpack, console)
    put_all_back(experiments, request.work, console)
    if last:
        console.print(Text(last))


def require_sense(request: Request) -> None:
    """Refuse options that cannot go together, or that would do nothing.

    Raises:
        ExperimentError: they are named.
    """
    carried = {"--merge": request.merge, "--pack": request.pack, "--unpack": request.unpack}
    moves = [name for name, given in carried.items() if given is not None]
    beside = [*moves, *(["--tables"] if request.tables else []), *(["--figures"] if request.figures else [])]
    asked = [*request.names, *(["--all"] if request.every else [])]
    if request.names and request.every:
        raise ExperimentError("--all is every experiment: leave the names out, or --all")
    looks = [name for name, given in (("--list", request.show), ("--show", request.results)) if given]
    if request.check and (beside or asked or looks):
        other = (beside or asked or looks)[0]
        raise ExperimentError(f"--check only looks, and writes nothing: give it without other work, here {other}")
    runs = [name for name in ("--resume", "--seconds", "--jobs") if request.results and request.options()[name]]
    if looks and (beside := [*looks[1:], *beside, *runs]):
        raise ExperimentError(f"{looks[0]} only looks, and runs and writes nothing: leave out {' and '.join(beside)}")
    if request.results and request.scale == SCALES[0]:
        raise ExperimentError(f"the figures of {SCALES[0]} mean nothing, and are not shown: leave --scale out")
    if len(moves) > 1:
        raise ExperimentError(f"{' and '.join(moves)} are done one after the other, each by a command of its own")
    if asked and (request.merge is not None or request.unpack is not None):
        raise ExperimentError(f"{moves[0]} takes the results of all experiments, and runs none: leave the names out")
    if request.pack is not None:
        _require_pack(request, beside[1:])
    elif request.limit_mb is not None:
        raise ExperimentError("--limit-mb says how large the file of --pack may be: give both")
    elif not asked and (idle := [name for name, given in request.options().items() if given]):
        are = "is" if len(idle) == 1 else "are"
        raise ExperimentError(f"{' and '.join(idle)} {are} about cells: say of which experiment, or --all")


def _require_pack(request: Request, beside: Sequence[str]) -> None:
    """Refuse what does not go with --pack."""
    runs = [name for name in ("--resume", "--seconds", "--jobs") if request.options()[name]]
    if idle := [*runs, *beside]:
        raise ExperimentError(f"--pack only packs what is there, and runs nothing: leave out {' and '.join(idle)}")
    if request.scale == SCALES[0]:
        raise ExperimentError(f"{SCALES[0]} is always run anew, and never packed: give another --scale, or none")


def look(
    experiments: Mapping[str, Experiment], request: Request, console: Console, show: Callable[[Experiment], None]
) -> None:
    """Show something of experiments, and run none.

    Raises:
        ValueError: there is no such scale, or there are no such cells.
    """
    nothing, found = list[str](), False
    for name in request.names or experiments:
        experiment = experiments[name]
        if request.every and request.scale not in (None, *experiment.scales):
            continue
        if request.scale is not None:
            require_name(f"scale of {name}", request.scale, experiment.scales)
        usual = experiment.results_scales if request.results else experiment.scales
        scales = usual if request.scale is None else (request.scale,)
        words = request.only_of(name)
        if any(chosen(kind_of(experiment).cells(experiment, scale), words) for scale in scales):
            show(experiment)
            found = True
            nothing += filter(None, [elsewhere(experiment, request.part_of(name), request.only)])
        else:
            none = f"{name} has {SCALES[0]} alone, whose figures mean nothing: there is nothing to show"
            given, part = request.scale is not None, request.part_of(name)
            why = why_none(experiment, scales[-1], words, part, given=given, shows=request.results) if scales else none
            nothing.append(why)
    if not found:
        raise ExperimentError("; ".join(nothing))
    for said in nothing if request.names else ():
        error_console().print(said_by("reproduce", said, "yellow"))


def list_cells(experiments: Mapping[str, Experiment], request: Request, console: Console) -> None:
    """The cells of experiments, and how each stands."""

    def show(experiment: Experiment) -> None:
        beside = Beside(request.words(), request.folders(), request.jobs)
        show_cells(experiment, request.scale, request.only_of(experiment.name), request.work, console, beside)

    look(experiments, request, console, show)


def show_all_results(experiments: Mapping[str, Experiment], request: Request, console: Console) -> None:
    """What has been run of experiments. Needs no data."""
    from gll.reproduce.results import Around, show_results  # needs PyTorch, as a mistake in a name does not

    def show(experiment: Experiment) -> None:
        around = Around(request.part_of(experiment.name), experiments, request.folders())
        show_results(experiment, request.scale, request.only_of(experiment.name), request.work, console, around)

    look(experiments, request, console, show)


def run_experiments(experiments: Mapping[str, Experiment], request: Request, console: Console) -> int:
    """Run experiments, and show what came out. Returns the exit code."""
    errors, parent = error_console(), os.environ.get(PARENT)
    limit = Limit(request.seconds, int(parent) if parent else None)
    works = works_of(experiments, request, console)
    before = {work.experiment.name: set(work.done()) - work.taken for work in works}
    crashed, stop = list[str](), ""
    try:
        with limit, stopped_by_sigterm():  # which a training of its own answers at the end of a step
            for work in works:
                crashed += _run_one(work, request, limit)
    except KeyboardInterrupt:
        stop = f"{request.seconds:g} s are over" if limit.reached else "interrupted"
    problems = [f"{work.experiment.name}: {text}" for work in works for text in work.problems()] or crashed
    if parent is None:  # else the process that started this one tells
        for work in works:
            name, bad = work.experiment.name, stop or work.problems()
            show_run(work.experiment, work.scale, work.only, before[name], work.root, console, only_new=bool(bad))
        for problem in problems:
            errors.print(said_by("reproduce", problem))
        for work in works:
            if work.unready:
                shown = shlex.join(["gll", "reproduce", work.experiment.name, "--show", *request.folders()])
                errors.print(said_by("reproduce", f"what has been run needs no data: {shown}", "yellow"))
        if stop:
            errors.print(said_by("reproduce", f"{stop}; {where_stopped(works)}"))
    if stop:
        return 0 if limit.reached else 130
    return 1 if problems else 0


def works_of(experiments: Mapping[str, Experiment], request: Request, console: Console) -> list[Work]:
    """What is to be done, looked at before the first of it is begun.

    Raises:
        ValueError: it cannot be done as asked.
    """
    from gll.reproduce.work import Work
    from gll.train.progress import Reporter

    errors, nothing, works = error_console(), list[str](), list[Work]()
    scale = request.scale or SCALES[0]
    names = [n for n, e in experiments.items() if scale in e.scales] if request.every else request.names
    for name in dict.fromkeys(names):
        require_name(f"scale of {name}", scale, experiments[name].scales)
        work = Work(experiments[name], scale, request.work, request.device, Reporter(console), request.only_of(name))
        if chosen(work.cells, work.only):
            works.append(work)
            nothing += filter(None, [elsewhere(work.experiment, request.part_of(name), request.only)])
        else:
            given, part = request.scale is not None, request.part_of(name)
            nothing.append(why_none(work.experiment, scale, work.only, part, given=given))
    if not works:
        raise ExperimentError("; ".join(nothing))
    for said in nothing:
        errors.print(said_by("reproduce", said, "yellow"))
    for work in works:
        work.put_back()
    for work in works:
        work.take_over()
        begun = work.begun()
        if begun and not request.resume:
            cells = f"{counted(len(begun), 'cell')} of {work.experiment.name}"
            first = f"; the first is {work.folder(begun[0])}" if len(begun) > 1 else f", {work.folder(begun[0])}"
            raise ExperimentError(
                f"{cells} {'was' if len(begun) == 1 else 'were'} stopped before the end; add --resume to go on, or "
                f"remove {'its folder' if len(begun) == 1 else 'their folders'} to begin again{first}"
            )
        if not request.resume:
            work.forget()
        missing = work.look()
        if PARENT in os.environ:  # the process that started this one has told
            continue
        if missing and len(work.unready) < len(work.todo()):
            for problem in missing:  # the others may take hours
                errors.print(said_by("reproduce", f"left out: {problem}", "yellow"))
        if slow := work.slow():
            errors.print(said_by("reproduce", slow, "yellow"))
    return works


def _run_one(work: Work, request: Request, limit: Limit) -> list[str]:
    """Run an experiment, here or in several processes. Returns what went wrong with these."""
    from gll.reproduce.work import command_of

    work.take_over()  # from an experiment that this command has run before
    if request.jobs == 1 or len(work.todo()) - len(work.unready) < 2:
        work.run()
        return []
    left = None if request.seconds is None else max(1.0, limit.left - 5)
    return _share(command_of(work, left, request.experiments), request.jobs)


def _share(command: Sequence[str], jobs: int) -> list[str]:
    """The same command in several processes. Each has its share of the CPU's threads, and stops if this one is gone."""
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    environment = {"OMP_NUM_THREADS": threads, **os.environ, PARENT: str(os.getpid())}
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
