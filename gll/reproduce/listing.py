"""`gll reproduce NAME --list`: the cells of an experiment, how each of them stands, and what to type next.

Nothing is run, and nothing written.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gll.reproduce.choice import chosen, values
from gll.reproduce.experiment import SCALES, Cell, Experiment, require_different
from gll.reproduce.in_paper import said_where
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import done_records, read_record
from gll.reproduce.state import Standing, State, grouped, standing
from gll.reproduce.tables import NONE
from gll.reproduce.taken import at_hand
from gll.train.progress import clock
from gll.words import counted

SHOW = "--show"
MANY = 24  # cells: of more than that the seeds of a place that stand alike share a line


@final
@dataclass(frozen=True, eq=False)
class Listing:
    """Cells of a scale that were asked for, and how they stand.

    Args:
        experiment, scale: whose.
        only: the words they were asked for by.
        cells: with the warm-ups that they need, each before those that need it.
        standings: by the key of the cell.
        devices: what a cell was run on, by its key, if it is done.
    """

    experiment: Experiment
    scale: str
    only: tuple[str, ...]
    cells: tuple[Cell, ...]
    standings: Mapping[str, Standing]
    devices: Mapping[str, str]

    def at(self, cell: Cell) -> Standing:
        """How a cell stands."""
        return self.standings[cell.key]

    def devices_of(self, cells: Iterable[Cell]) -> str:
        """What the times of these cells were taken on; empty where nothing is known."""
        found = {
            self.devices[cell.key] for cell in cells if self.at(cell).seconds is not None and cell.key in self.devices
        }
        return ", ".join(sorted(map(called, found - {""})))

    def own(self) -> list[Cell]:
        """Without warm-ups: what the table shows."""
        return [cell for cell in self.cells if not cell.role]

    def left(self) -> list[Cell]:
        """Those of its own that are not done."""
        return [cell for cell in self.own() if self.at(cell).state is not State.DONE]

    @property
    def begun(self) -> bool:
        """Whether there is anything to see."""
        return any(at.seconds is not None or at.state is State.AT_HAND for at in self.standings.values())

    def stopped(self, cells: Iterable[Cell]) -> bool:
        """Whether one of these, or what it needs, was stopped: it then takes --resume to go on."""
        there = {key for key, at in self.standings.items() if at.state is State.STOPPED}
        return any(cell.key in there or cell.needs in there for cell in cells)


def listing(experiment: Experiment, scale: str, only: Sequence[str], work: Path) -> Listing:
    """How the cells of a scale stand.

    Args:
        experiment, scale: of which.
        only: words that a cell must have, as in --only.
        work: the folder of cells at work.
    """
    cells = kind_of(experiment).cells(experiment, scale)
    require_different(cells)
    done = done_records(experiment, cells, work)
    asked = chosen(cells, only)
    needed = {cell.needs for cell in asked}
    others = at_hand(experiment, asked, done)
    open_needs = {cell.needs for cell in asked if cell.key not in done | others}
    warm = {cell.key: read_record(work / cell.path) is not None for cell in cells if cell.role}
    found: dict[Cell, Standing] = {}
    for cell in cells:
        now = standing(work / cell.path, done.get(cell.key))
        if cell in asked:
            waits = now.state is State.NOT_RUN and not warm.get(cell.needs, True)
            found[cell] = Standing(State.NEEDS) if waits else now
            if cell.key in others and now.state is not State.AT_WORK:
                found[cell] = Standing(State.AT_HAND, about=f"{others[cell.key].origin} has it; it is not run again")
        elif cell.role and cell.key in open_needs:
            # A record of another machine says that it was made; what the heads start from is not here.
            here = standing(work / cell.path, read_record(work / cell.path))
            away = now.state is State.DONE and here.state is State.NOT_RUN
            found[cell] = Standing(State.ELSEWHERE, now.seconds) if away else here
        elif cell.role and cell.key in needed and now.state is State.DONE:
            found[cell] = now
    # A record tells of the time it has; that of a cell stopped here was spent here, where no file says on what.
    told = (State.DONE, State.ELSEWHERE)
    devices = {c.key: str(done[c.key].get("device", "")) for c, at in found.items() if at.state in told}
    return Listing(experiment, scale, tuple(only), tuple(found), {cell.key: at for cell, at in found.items()}, devices)


@final
@dataclass(frozen=True)
class Beside:
    """What the commands of a listing have beside.

    Args:
        words: how cells are run, for those that run some.
        folders: where experiments and cells lie, for all.
        jobs: in how many processes, where that can be.
    """

    words: Sequence[str] = ()
    folders: Sequence[str] = ()
    jobs: int = 1

    def command(self, name: str, words: Sequence[str]) -> str:
        """To be copied."""
        runs = () if SHOW in words else self.words
        return shlex.join(["gll", "reproduce", name, *words, *runs, *self.folders])


def show_cells(
    experiment: Experiment,
    scale: str | None,
    only: Sequence[str],
    work: Path,
    console: Console,
    beside: Beside = Beside(),
) -> None:
    """An experiment: its scales, its cells and how they stand, and the commands that go on.

    Args:
        experiment: which.
        scale: of which scale; None: of all, where one of which nothing was begun is only summed up.
        only: words that a cell must have.
        work: the folder of cells at work.
        console: where to.
        beside: for the commands.
    """
    at = {one: listing(experiment, one, only, work) for one in experiment.scales}
    text = experiment.text
    console.print(Text(f"{experiment.name}: {text['title']} ({said_where(experiment.in_paper)})", "bold"))
    console.print(_scales(at.values()))
    for one, found in at.items():
        if scale in (None, one) and found.cells:
            whole = scale is not None or found.begun
            console.print(Text(f"{experiment.name} at {one}{_asked(only)}", "bold"))
            if whole:
                _show_rows(found, console)
            else:
                _say(f"{counted(len(found.own()), 'cell')}, none begun; {values(found.cells)}", console)
            for what, words in _next(found, whole, beside.jobs):
                line = beside.command(experiment.name, words)
                _say(what, console)
                console.print(Text(f"    {line}"), soft_wrap=True)  # it is to be copied
            console.print()
    if any(len(found.left()) < len(found.own()) for one, found in at.items() if one != SCALES[0]):
        line = beside.command(experiment.name, [SHOW, *only_words(only)])
        console.print(Text(f"what has been run, beside the paper's: {line}"), soft_wrap=True)


def _scales(listings: Iterable[Listing]) -> Table:
    shown = Table(box=SIMPLE)
    for name in ("scale", "done", "time"):
        shown.add_column(name, no_wrap=True)
    shown.add_column("on")
    shown.add_column("what")
    for found in listings:
        total, times = len(found.own()), [at.seconds for at in found.standings.values() if at.seconds is not None]
        done = f"{total - len(found.left())} of {total}" if total else NONE
        time = clock(sum(times)) if times else NONE
        shown.add_row(
            found.scale, done, time, found.devices_of(found.cells) or NONE, about(found.experiment, found.scale)
        )
    return shown


def about(experiment: Experiment, scale: str) -> str:
    """What a scale is, in a few words. That of smoke names its data: its cells are called after others."""
    said = [str(experiment.text["scales"][scale].get("about", ""))]
    if scale == "smoke":
        data = {c.point.data for c in kind_of(experiment).cells(experiment, scale) if c.point.data}
        said += [f"on {' and '.join(sorted(data))}, whatever its cells are called"] if data else []
        said += ["always run anew, in no table: it shows that it runs, and its figures mean nothing"]
    return "; ".join(word for word in said if word)


def _asked(only: Sequence[str]) -> str:
    return f", {', '.join(word.strip() for word in only)}" if only else ""


def _show_rows(found: Listing, console: Console) -> None:
    """A line for each cell, or where there are many for the seeds of a place that stand alike; then what went wrong."""
    many = len(found.cells) > MANY
    places: dict[str, dict[State, list[Cell]]] = {}
    for cell in found.cells:
        name = ", ".join(cell.parts[:-1]) if many else cell.title
        places.setdefault(name, {}).setdefault(found.at(cell).state, []).append(cell)
    shown = Table(box=SIMPLE)
    shown.add_column(", ".join(found.experiment.text["axes"]))
    shown.add_column("seeds" if many else "seed", no_wrap=True)
    shown.add_column("state")
    shown.add_column("time a cell" if many else "time", no_wrap=True, justify="right")
    shown.add_column("on")
    for alike in places.values():
        for state, cells in alike.items():
            times = [at.seconds for at in map(found.at, cells) if at.seconds is not None]
            mean = clock(sum(times) / len(times)) if times else NONE
            seeds = spans(cell.point.seed for cell in cells)
            shown.add_row(", ".join(cells[0].parts[:-1]), seeds, str(state), mean, found.devices_of(cells))
    console.print(shown)
    for state in (State.FAILED, State.AT_WORK, State.AT_HAND):
        told = [(cell.title, found.at(cell).about) for cell in found.cells if found.at(cell).state is state]
        for line in grouped(told):
            _say(f"{state}: {line}", console)


def _say(text: str, console: Console) -> None:
    console.print(Padding(Text(text), (0, 0, 0, 2)))


def _next(found: Listing, whole: bool, jobs: int) -> list[tuple[str, list[str]]]:
    """What can be done, and the words of the command that does it."""
    scale = ["--scale", found.scale] if found.scale != SCALES[0] else []
    asked = [*scale, *only_words(found.only)]
    left = found.left()
    free = [cell for cell in left if found.at(cell).state not in (State.AT_WORK, State.AT_HAND)]
    if not left:
        again = ("all done; to run them anew:", asked)
        return [("all done; to see what came out:", [*asked, SHOW]) if scale else again]
    if any(found.at(cell).state is State.AT_HAND for cell in left) and not free:
        return [("to take over what is at hand:", asked)]
    if not free:
        return [("all that is left is at work; to wait for it:", asked)]
    every = []
    for words, cells, several in _together(found, free, jobs):
        whom = f"the {len(cells)} that are left" if len(cells) > 1 else "the one that is left"
        which = f" of {' and '.join(words)}{'' if several else ', one at a time'}" if words else ""
        those = [*scale, *only_words((*found.only, *words))]
        if found.stopped(cells):
            every.append((f"to go on with {whom}{which}:", [*those, "--resume", *several]))
        else:  # smoke removes what is done, and begins anew
            them = whom if scale and whole else "those" if words else "them"
            every.append((f"to run {them}{which}:", [*those, *several]))
    if not whole:
        several = ["--jobs", str(jobs)] if jobs > 1 else []
        return [("to list them:", [*asked, *([] if scale else ["--scale", found.scale]), "--list", *several]), *every]
    first = next((cell for cell in free if found.stopped([cell])), free[0])
    one = ["--only", first.title, *(["--resume"] if found.stopped([first]) else [])]
    return [*every, ("the next one alone:", [*scale, *one])] if len(left) > 1 else every


def only_words(words: Sequence[str]) -> list[str]:
    return ["--only", ", ".join(word.strip() for word in words)] if words else []


def _together(found: Listing, cells: list[Cell], jobs: int) -> list[tuple[list[str], list[Cell], list[str]]]:
    """Cells of one command each: words beside those asked for, the cells, and --jobs where they may share a machine.

    Those that may not are asked for apart, if there is a word for them and one for the others; else all are run one at
    a time.
    """
    kind = kind_of(found.experiment)
    alone = [cell for cell in cells if kind.wants_all(cell)]
    others = [cell for cell in cells if not kind.wants_all(cell)]
    several = ["--jobs", str(jobs)] if jobs > 1 else []
    if not (several and alone):
        return [([], cells, several)]
    names = [_word_of(alone, others), _word_of(others, alone)]
    if not all(names):
        return [([], cells, [])]
    return [([names[0]], alone, []), ([names[1]], others, several)]


def _word_of(cells: Sequence[Cell], others: Sequence[Cell]) -> str:
    """A word that all of these cells have, and none of the others; empty where there is none."""
    for word in cells[0].parts if cells and others else ():
        if all(cell.matches([word]) for cell in cells) and not any(cell.matches([word]) for cell in others):
            return word
    return ""


def called(device: str) -> str:
    """A device in a word or two: which of several machines matters less than what it is.

    >>> called("NVIDIA H200"), called("Linux x86_64 cpu"), called("NVIDIA A100-SXM4-40GB")
    ('H200', 'CPU', 'A100-SXM4-40GB')
    """
    return "CPU" if device.endswith("cpu") else device.removeprefix("NVIDIA ")


def spans(seeds: Iterable[int]) -> str:
    """Seeds in a few characters.

    >>> spans([0, 1, 2, 5]), spans([3]), spans([4, 0, 1])
    ('0-2, 5', '3', '0, 1, 4')
    """
    runs: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
