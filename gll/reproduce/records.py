"""What came out of cells: one record each, in the cell's own folder first, then in experiments/NAME/results.json.

A record says what was found and with what: value per seed, settings, commit, device, seconds, versions. Of two records
of one cell the later counts. Records of settings that are no longer asked for stay in the file, and are in no table.
`config` is what differs from the defaults and makes the key; `settings`, which older records lack, is all of them.
Where something beside the figures was put right later, `corrected` says what and why.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gll.files import complete_file, only_one
from gll.reproduce.experiment import Cell, Experiment, ExperimentError

FORMAT = "gll.results 1"
Record = dict[str, Any]
FIELDS = (
    *("experiment", "scale", "cell", "place", "role", "seed", "values", "more"),
    *("config", "commit", "device", "wall_s", "versions", "date"),
)
"""That a record must have to stand in a table."""


def read_records(path: Path) -> dict[str, Record]:
    """The records of a results.json by key; none where there is no file.

    Raises:
        ExperimentError: the file is damaged or of another kind.
    """
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r}, not {FORMAT!r}")
        return {record["key"]: record for record in found["records"]}
    except KeyError as error:
        raise ExperimentError(f"{path} cannot be read: it has no {error}, or one of its records has none") from None
    except (OSError, ValueError, TypeError) as error:
        raise ExperimentError(f"{path} cannot be read: {error}") from None


def add_records(path: Path, more: Iterable[Record]) -> int:
    """Put records into a results.json. Those with a later date replace. Returns how many were new or newer."""
    with alone(path.parent):
        there = read_records(path)
        fresh = {r["key"]: r for r in more if r["key"] not in there or r["date"] > there[r["key"]]["date"]}
        if fresh:
            there |= fresh
            ordered = sorted(there.values(), key=lambda r: (r["scale"], r["seed"], r["cell"], r["key"]))
            write_json(path, {"format": FORMAT, "records": ordered})
    return len(fresh)


def done_records(experiment: Experiment, cells: Iterable[Cell], work: Path) -> dict[str, Record]:
    """Records of these cells, by key: from results.json, or from the folders they were made in.

    What smoke has made counts by its own folder alone, even where another scale has a cell of the same settings.
    """
    stored = read_records(experiment.folder / "results.json")
    found = {}
    for cell in cells:
        own = read_record(work / cell.path)
        record = own or (None if cell.scale == "smoke" else stored.get(cell.key))
        if record is not None:
            found[cell.key] = record
    return found


def put_back(experiment: Experiment, cells: Iterable[Cell], work: Path) -> int:
    """Put finished records of these cells' folders into a results.json that has lost them, or has older ones.

    What is done is then what tables show, whatever became of the file: removed, or replaced by an earlier one. Records
    of smoke are in no results.json, and a warm-up that another experiment has run is in that of the other alone.

    Returns:
        How many were put there.
    """
    path = experiment.folder / "results.json"
    there, lost = read_records(path), list[Record]()
    for cell in cells:
        own = None if cell.scale == "smoke" else read_record(work / cell.path)
        if own is None or not own.keys() >= {"key", *FIELDS}:  # a warm-up from elsewhere need not be whole to be used
            continue
        if (own["key"], own["experiment"]) != (cell.key, experiment.name):
            continue
        if cell.key not in there or own["date"] > there[cell.key]["date"]:
            lost.append(own)
    return add_records(path, lost) if lost else 0


def read_record(folder: Path) -> Record | None:
    """That of a cell's folder; None while it is not finished."""
    path = folder / "record.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    with complete_file(path) as part:
        part.write_text(json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def claimed(folder: Path) -> Iterator[bool]:
    """True if this process may work in a folder: no other does. A killed process has no claim any more."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(only_one(folder, BlockingIOError()))
            mine = True
        except BlockingIOError:
            mine = False
        yield mine


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process is in a folder."""
    while True:
        with claimed(folder) as mine:
            if mine:
                yield
                return
        time.sleep(0.05)
