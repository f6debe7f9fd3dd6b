"""Running cells: those that are not finished, one after the other, each by one process at a time.

Several processes may work on one experiment (`--jobs`, or simply the same command twice): each takes the next cell that
nobody else holds. A cell that is stopped keeps what it needs to go on in its folder, and a finished one is never run
again: neither one of another experiment that is the same (`taken.py`). One that has failed is tried again by the next
command.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from gll.files import complete_file
from gll.reproduce.choice import chosen
from gll.reproduce.experiment import Cell, Experiment, ExperimentError, require_different
from gll.reproduce.kinds import AbstractKind, Outcome, Place, kind_of
from gll.reproduce.records import Record, add_records, claimed, done_records, put_back, read_record, write_json
from gll.reproduce.state import NEED_FAILED, error_of, grouped, holder, note_begin, stopped
from gll.reproduce.tables import digits_of
from gll.reproduce.taken import take_over
from gll.words import counted

if TYPE_CHECKING:
    from gll.train.progress import Reporter

LONG = 60.0  # seconds on a GPU from which on a CPU is no place for a cell
LOOK_SECONDS = 2.0  # between two looks at whether another process is done with what is needed
WRITTEN = (
    *("experiments/*/results.json", "experiments/*/arrays/*", "experiments/README.md"),
    *("docs/figures/reproduce-*", "docs/reproduce.md", "docs/what-we-found.md", "docs/claim-by-claim.md"),
)
"""What `gll reproduce` writes itself: it changes with every cell, and no cell comes out otherwise for it."""


@final
@dataclass(frozen=True, eq=False)
class Work:
    """What is to be done.

    Args:
        experiment: of which.
        scale: how large.
        root: the folder of cells, out/reproduce.
        device: where to.
        reporter: who tells.
        only: words that a cell must have; see `gll.reproduce.choice`.

    `unready` says why a cell cannot be run, by its key; `taken` are the keys of those taken from other experiments.
    """

    experiment: Experiment
    scale: str
    root: Path
    device: str
    reporter: Reporter
    only: tuple[str, ...] = ()
    since: float = field(init=False, default_factory=time.time)
    unready: dict[str, str] = field(init=False, default_factory=dict)
    taken: set[str] = field(init=False, default_factory=set)
    kind: AbstractKind = field(init=False)
    cells: tuple[Cell, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", kind_of(self.experiment))
        object.__setattr__(self, "cells", tuple(self.kind.cells(self.experiment, self.scale)))

    def folder(self, cell: Cell) -> Path:
        """Of a cell."""
        return self.root / cell.path

    def done(self) -> dict[str, Record]:
        """Every finished cell."""
        return done_records(self.experiment, self.cells, self.root)

    def todo(self) -> list[Cell]:
        """What is asked for and not finished, and what that needs and is not at hand."""
        done = self.done()
        asked = [cell for cell in chosen(self.cells, self.only) if cell.key not in done]
        needed = {cell.needs for cell in asked}
        before = [c for c in self.cells if c.key in needed and read_record(self.folder(c)) is None]
        return [cell for cell in self.cells if cell in before or cell in asked]

    def begun(self) -> list[Cell]:
        """Cells that were stopped before they were finished. One that has failed is simply tried again."""
        return [cell for cell in self.todo() if stopped(self.folder(cell))]

    def put_back(self) -> None:
        """Put finished cells into results.json where they are missing there."""
        if number := put_back(self.experiment, self.cells, self.root):
            said = f"{self.experiment.name} ({self.scale}): {counted(number, 'record')} put back into results.json"
            self.reporter.say(f"{said} from {self.root}")

    def take_over(self) -> None:
        """Take what is asked for and not finished from other experiments that have it."""
        for record in take_over(self.experiment, chosen(self.cells, self.only), self.done()):
            self.taken.add(record["key"])
            said = f"{self.experiment.name} ({self.scale}): {record['cell']}: taken from {record['taken_from']}"
            self.reporter.say(f"{said}, where it is the same cell")

    def forget(self) -> None:
        """Remove finished cells of smoke, which is there to see that the code works as it is now."""
        for cell in self.cells if self.scale == "smoke" else ():
            if read_record(self.folder(cell)) is not None:
                with claimed(self.folder(cell)) as mine:
                    if mine:
                        shutil.rmtree(self.folder(cell))

    def look(self) -> list[str]:
        """See that device and data are there, before anything is begun; cells without their data are left out.

        Returns:
            What is missing, in words.

        Raises:
            ValueError: the device is not there, or what config.toml says cannot be.
        """
        from gll.train.model import find_device

        find_device(self.device, "--device")
        require_different(self.cells)
        self.unready.update(self.kind.look(self.experiment, self.todo()))
        return self.problems()

    def slow(self) -> str:
        """A warning where cells that are long on a GPU are to be run on a CPU; else empty.

        How long they are is known from those of this scale and their data that were run on a GPU; where none was,
        *full*, the paper's setting, is long, and other scales are not.
        """
        from gll.train.model import find_device

        left = [cell for cell in self.todo() if cell.key not in self.unready]
        if not left or self.scale == "smoke" or find_device(self.device, "--device").type != "cpu":
            return ""
        longest = self._longest()
        new = sorted({cell.point.data for cell in left} - longest.keys())
        known = {data: longest[data] for data in sorted({cell.point.data for cell in left} & longest.keys())}
        if max(known.values(), default=0.0) < LONG and not (new and self.scale == "full"):
            return ""
        cells = f"{counted(len(left), 'cell')} of {self.experiment.name} at {self.scale} on a CPU"
        took = told_times(known, [data for data in new if data and longest], papers=self.scale == "full")
        return f"{cells}: {took}, and takes longer here, often many times; Ctrl-C stops, and what is done is kept"

    def _longest(self) -> dict[str, float]:
        """Seconds of the longest cell of each data set that was run on a GPU; 0 where it was run on CPUs alone."""
        found: dict[str, float] = {}
        done = self.done()
        for cell in (cell for cell in self.cells if cell.key in done and not cell.role):
            record = done[cell.key]
            seconds = 0.0 if record["device"].endswith("cpu") else record["wall_s"]
            found[cell.point.data] = max(found.get(cell.point.data, 0.0), seconds)
        return found

    def problems(self) -> list[str]:
        """What went wrong since this began, here or in another process; each reason once."""
        failed = self._failed()
        return grouped([(cell.title, failed[cell.key]) for cell in self.cells if cell.key in failed])

    def _failed(self) -> dict[str, str]:
        """Why, by the key of the cell."""
        found: dict[str, str] = {}
        for cell in self.todo():  # what is needed comes before what needs it
            reason = self.unready.get(cell.key) or error_of(self.folder(cell), self.since)
            if reason or cell.needs in found:
                found[cell.key] = reason or NEED_FAILED
        return found

    def run(self) -> list[str]:
        """Run all that is to do. Returns what went wrong, in words.

        Raises:
            KeyboardInterrupt: asked to stop, or out of time; what is done is kept.
        """
        by_key = {cell.key: cell for cell in self.cells}
        told: set[str] = set()
        while True:
            failed = self._failed()
            todo = [cell for cell in self.todo() if cell.key not in failed]
            if not todo:
                return self.problems()
            moved, held = False, list[Cell]()
            for cell in todo:
                need = by_key.get(cell.needs)
                if need is None or read_record(self.folder(need)) is not None:
                    with claimed(self.folder(cell)) as mine:
                        if not mine:
                            held.append(cell)
                            continue
                        moved = True
                        # Another process may have done it, or failed, since the list was made.
                        self.take_over()
                        if cell in self.todo() and not error_of(self.folder(cell), self.since):
                            self._run(cell, need)
            if not moved:
                if not held and self._failed() == failed:
                    raise ExperimentError(f"{self.experiment.name}: nothing can be run, but {len(todo)} cells are open")
                for cell in held:
                    words = f"{cell.title} is held by {holder(self.folder(cell)) or 'another process'}; waiting"
                    if words not in told:
                        told.add(words)
                        self.reporter.say(f"{self.experiment.name} ({self.scale}): {words}")
                time.sleep(LOOK_SECONDS)

    def _run(self, cell: Cell, need: Cell | None) -> None:
        """Run a cell, and keep what came out: its record, or its error."""
        from gll.train.finite import NonFiniteError
        from gll.train.progress import clock
        from gll.train.runs import environment

        folder, name = self.folder(cell), f"{self.experiment.name} ({self.scale}): {cell.title}"
        place = Place(folder, None if need is None else self.folder(need), self.device, self.reporter)
        where, begun = environment(WRITTEN), time.monotonic()
        before, problem = note_begin(folder), ""
        again = f"; last time it failed: {before['error']['text']}" if "error" in before else ""
        self.reporter.say(name + again)
        try:
            outcome = self.kind.run(self.experiment, cell, place)
            _require_finite(outcome)
        except (ValueError, OSError, ImportError, NonFiniteError) as error:
            problem = str(error)
        except RuntimeError as error:  # a graph that cannot be solved, a GPU that is full: the others may do better
            problem = f"{type(error).__name__}: {error}"
        finally:
            spent: dict[str, Any] = {
                "wall_s": round(before["wall_s"] + time.monotonic() - begun, 2),
                "commits": list(dict.fromkeys([*before["commits"], where["commit"]])),
            }
            error_too = {"error": {"text": problem, "at": time.time()}} if problem else {}
            write_json(folder / "progress.json", {**spent, **error_too})
        if problem:
            self.reporter.say(f"{name} has failed: {problem}")
            return
        record = self._record(cell, outcome, where | spent)
        write_json(folder / "record.json", record)
        if self.scale != "smoke":
            add_records(self.experiment.folder / "results.json", [record])
        digits = {figure: digits_of(self.experiment, figure) for figure in outcome.values}
        shown = ", ".join(f"{k} {v:,.{digits[k]}f}" for k, v in outcome.values.items() if v is not None)
        self.reporter.say(f"{name}: {shown} ({clock(spent['wall_s'])})")

    def _record(self, cell: Cell, outcome: Outcome, where: dict[str, Any]) -> Record:
        if outcome.arrays:
            self._keep_arrays(cell, outcome)
        if self.scale != "smoke":
            for name, picture in outcome.pictures.items():
                kept = self.experiment.folder / "arrays" / f"{cell.folder}-{name}.png"
                kept.parent.mkdir(exist_ok=True)
                with complete_file(kept) as part:
                    shutil.copyfile(picture, part)
        on_gpu = where["gpu"] is not None and self.device != "cpu"
        return {
            "experiment": self.experiment.name,
            "scale": self.scale,
            "cell": cell.title,
            "place": dict(cell.point.place),
            "role": cell.role,
            "seed": cell.point.seed,
            "key": cell.key,
            "values": dict(outcome.values),
            "more": dict(outcome.more),
            "config": dict(cell.settings),
            "settings": dict(self.kind.settings(self.experiment, cell)),
            "commit": ", ".join(where["commits"]),
            "device": where["gpu"] if on_gpu else f"{where['machine']} cpu",
            "threads": where["threads"],
            "wall_s": where["wall_s"],
            "versions": where["versions"],
            "date": where["date"],
        }

    def _keep_arrays(self, cell: Cell, outcome: Outcome) -> None:
        """Beside results.json; those of smoke in the cell's folder."""
        import numpy as np

        folder = self.folder(cell) if self.scale == "smoke" else self.experiment.folder / "arrays"
        folder.mkdir(exist_ok=True)
        with complete_file(folder / f"{cell.folder}.npz") as part, part.open("wb") as file:
            np.savez_compressed(file, **outcome.arrays)  # type: ignore[arg-type]


def told_times(known: Mapping[str, float], new: Sequence[str], *, papers: bool) -> str:
    """How long cells are, as far as it is known.

    Args:
        known: seconds of the longest on a GPU, by data set; 0 where it was run on CPUs alone.
        new: data sets without a time; of another one no time is named.
        papers: they are of the paper's setting, which is said where a time is missing.

    >>> told_times({"mnist": 700.0}, [], papers=True), told_times({}, ["cifar10"], papers=True)
    ('such a cell took up to 11:40 on a GPU', "those of cifar10 were never timed; this is the paper's setting")
    >>> told_times({"mnist": 700.0, "digits": 0.0}, ["cifar10"], papers=False)
    'such a cell of mnist took up to 11:40 on a GPU; those of cifar10 were never timed'
    """
    from gll.train.progress import clock

    longest = max(known.values(), default=0.0)
    of = f" of {' or '.join(data for data, seconds in known.items() if seconds)}" if new else ""
    took = [f"such a cell{of} took up to {clock(longest)} on a GPU"] if longest else []
    untimed = [f"those of {' and '.join(new)} were never timed"] if new else []
    return "; ".join([*took, *untimed, *(["this is the paper's setting"] if papers and (new or not longest) else [])])


def _require_finite(outcome: Outcome) -> None:
    """Raise where a figure is not a number."""
    for name, value in outcome.values.items():
        if value is not None and not math.isfinite(value):
            raise ValueError(f"its {name} is {value}, which is no result: has it diverged?")


def command_of(work: Work, seconds: float | None, experiments: Path) -> Sequence[str]:
    """The words of a command that does the same in another process."""
    words = ["reproduce", work.experiment.name, "--scale", work.scale, "--device", work.device, "--resume"]
    words += ["--work", str(work.root), "--experiments", str(experiments)]
    words += ["--only", ", ".join(work.only)] if work.only else []
    return [*words, "--seconds", f"{seconds:.0f}"] if seconds is not None else words
