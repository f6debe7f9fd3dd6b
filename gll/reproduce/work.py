"""Running cells: those that are not finished, one after the other, each by one process at a time.

Several processes may work on one experiment (`--jobs`, or simply the same command twice): each takes the next cell that
nobody else holds. A cell that is stopped keeps what it needs to go on in its folder, and a finished one is never run
again.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from gll.files import complete_file
from gll.reproduce.experiment import Cell, Experiment, ExperimentError
from gll.reproduce.kinds import AbstractKind, Outcome, Place, kind_of
from gll.reproduce.records import Record, add_records, claimed, done_records, read_record, write_json

if TYPE_CHECKING:
    from gll.train.progress import Reporter

LOOK_SECONDS = 2.0  # between two looks at whether another process is done with what is needed


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
        only: words that a cell must have; see `Cell.matches`.
    """

    experiment: Experiment
    scale: str
    root: Path
    device: str
    reporter: Reporter
    only: tuple[str, ...] = ()
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
        asked = [c for c in self.cells if not c.role and c.matches(self.only) and c.key not in done]
        needed = {cell.needs for cell in asked}
        before = [c for c in self.cells if c.key in needed and read_record(self.folder(c)) is None]
        return [cell for cell in self.cells if cell in before or cell in asked]

    def begun(self) -> list[Cell]:
        """Cells that were stopped before they were finished."""
        return [cell for cell in self.todo() if (self.folder(cell) / "progress.json").is_file()]

    def run(self) -> list[str]:
        """Run all that is to do. Returns what went wrong, in words.

        Raises:
            KeyboardInterrupt: asked to stop, or out of time; what is done is kept.
        """
        failed: dict[str, str] = {}
        by_key = {cell.key: cell for cell in self.cells}
        while todo := [cell for cell in self.todo() if cell.key not in failed]:
            moved = held = False
            for cell in todo:
                need = by_key.get(cell.needs)
                if need is not None and need.key in failed:
                    failed[cell.key] = f"{cell.title}: what it needs has failed"
                    moved = True
                elif need is None or read_record(self.folder(need)) is not None:
                    with claimed(self.folder(cell)) as mine:
                        held |= not mine
                        if mine and read_record(self.folder(cell)) is None:
                            moved = True
                            problem = self._run(cell, need)
                            if problem:
                                failed[cell.key] = problem
            if not moved:
                if not held:
                    raise ExperimentError(f"{self.experiment.name}: nothing can be run, but {len(todo)} cells are open")
                time.sleep(LOOK_SECONDS)
        return list(failed.values())

    def _run(self, cell: Cell, need: Cell | None) -> str:
        """Run a cell. Returns what went wrong, or nothing."""
        from gll.train.finite import NonFiniteError
        from gll.train.progress import clock
        from gll.train.runs import environment

        folder = self.folder(cell)
        place = Place(folder, None if need is None else self.folder(need), self.device, self.reporter)
        self.reporter.say(f"{self.experiment.name} ({self.scale}): {cell.title}")
        where, begun = environment(), time.monotonic()
        before = _progress(folder)
        write_json(folder / "progress.json", before)  # begun, even if this process is killed
        try:
            outcome = self.kind.run(self.experiment, cell, place)
        except (ValueError, OSError, ImportError, NonFiniteError) as error:
            return f"{cell.title}: {error}"
        except RuntimeError as error:  # a graph that cannot be solved, a GPU that is full: the others may do better
            return f"{cell.title}: {type(error).__name__}: {error}"
        finally:
            spent = {
                "wall_s": round(before["wall_s"] + time.monotonic() - begun, 2),
                "commits": list(dict.fromkeys([*before["commits"], where["commit"]])),
            }
            write_json(folder / "progress.json", spent)
        record = self._record(cell, outcome, where | spent)
        write_json(folder / "record.json", record)
        if self.scale != "smoke":
            add_records(self.experiment.folder / "results.json", [record])
        shown = ", ".join(f"{k} {v:,.4g}" for k, v in outcome.values.items() if v is not None)
        self.reporter.say(f"{self.experiment.name} ({self.scale}): {cell.title}: {shown} ({clock(spent['wall_s'])})")
        return ""

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


def _progress(folder: Path) -> dict[str, Any]:
    """Seconds and commits of the stretches before."""
    path = folder / "progress.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"wall_s": 0.0, "commits": []}


def command_of(work: Work, seconds: float | None, experiments: Path) -> Sequence[str]:
    """The words of a command that does the same in another process."""
    words = ["reproduce", work.experiment.name, "--scale", work.scale, "--device", work.device, "--resume"]
    words += ["--work", str(work.root), "--experiments", str(experiments)]
    words += ["--only", ",".join(work.only)] if work.only else []
    return [*words, "--seconds", f"{seconds:.0f}"] if seconds is not None else words
