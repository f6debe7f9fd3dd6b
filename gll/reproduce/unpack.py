"""`gll reproduce --unpack`: what `--pack` has packed elsewhere, put where it belongs.

The file is not trusted. It may hold plain files alone, by names that lie inside. They go to a folder of their own, and
from there only what is a cell known here, and further along than what is here, takes its place.
"""

from __future__ import annotations

import gzip
import json
import math
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gll.reproduce.carry import position
from gll.reproduce.experiment import Cell, Experiment, ExperimentError
from gll.reproduce.kinds import kind_of
from gll.reproduce.merge import merge
from gll.reproduce.pack import FORMAT, MANIFEST, RESULTS, WORK
from gll.reproduce.records import claimed, done_records
from gll.reproduce.state import holder

TAKEN = "taken; --resume goes on"
BLOCK = 1 << 20  # bytes


def unpack(experiments: Mapping[str, Experiment], work: Path, file: Path, console: Console) -> str:
    """Take results and unfinished cells from a file. Where it is not as it should be nothing is changed.

    Args:
        experiments: all of them, by name.
        work: the folder of cells at work.
        file: what `pack` has written.
        console: where to say what was taken.

    Returns:
        As `merge`.

    Raises:
        ExperimentError: the file cannot be read, or has something in it that `pack` never puts there.
    """
    if not file.is_file():
        raise ExperimentError(f"there is no file {file}")
    work.mkdir(parents=True, exist_ok=True)
    last = ""
    with tempfile.TemporaryDirectory(prefix=".unpack-", dir=work) as name:
        stage = Path(name)
        _extract(file, stage)
        there = sorted(path.parent.name for path in (stage / RESULTS).glob("*/results.json"))
        if experiments.keys() & set(there):
            last = merge(experiments, stage / RESULTS, console)
        elif there:
            console.print(Text(f"{', '.join(there)}: no experiments of these names are here; nothing of them is taken"))
        _put_all(experiments, work, stage, console)
    return last


def _extract(file: Path, stage: Path) -> None:
    """Every file of an archive into a folder."""
    try:
        with gzip.open(file) as packed, tarfile.open(fileobj=packed, mode="r:") as tar:
            for number, member in enumerate(tar):
                target = stage.joinpath(*_parts(file, member))
                if number == 0:
                    _require_format(file, member, tar)
                if member.size > shutil.disk_usage(stage).free:
                    raise ExperimentError(
                        f"{file}: {member.name} has {member.size:,} bytes, more than the disk has free"
                    )
                target.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                assert source is not None
                with source, target.open("xb") as out:  # x: a name that comes twice is refused
                    shutil.copyfileobj(source, out, BLOCK)
            while packed.read(BLOCK):  # to the end, where the checksum is
                pass
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ExperimentError(f"{file} cannot be unpacked ({error}); was it copied whole? Nothing was taken") from None


def _require_format(file: Path, member: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
    """Raise where a file does not begin as those of `pack` do."""
    source = tar.extractfile(member) if member.name == MANIFEST and member.size < BLOCK else None
    try:
        found = None if source is None else json.loads(source.read())["format"]
    except (ValueError, KeyError, TypeError):
        found = None
    if found != FORMAT:
        raise ExperimentError(f"{file} was not written by gll reproduce --pack, or by another version: not {FORMAT!r}")


def _parts(file: Path, member: tarfile.TarInfo) -> list[str]:
    """The name of a member, taken apart.

    Raises:
        ExperimentError: it is no plain file, or its name is none that `pack` gives.
    """
    parts = member.name.split("/")
    if not member.isreg():
        raise ExperimentError(f"{file}: {member.name!r} is no plain file; nothing was taken")
    plain = all(part and part[0] != "." and part.isprintable() and not set(part) & set("\\:") for part in parts)
    known = {
        MANIFEST: len(parts) == 1,
        RESULTS: parts[2:] == ["results.json"] or (len(parts) == 4 and parts[2] == "arrays"),
        WORK: len(parts) > 3,
    }
    if not plain or not known.get(parts[0], False):
        raise ExperimentError(
            f"{file}: {member.name!r} is no name of a file of gll reproduce --pack; nothing was taken"
        )
    return parts


def _put_all(experiments: Mapping[str, Experiment], work: Path, stage: Path, console: Console) -> None:
    """Put every cell where it belongs, and say what became of it."""
    known = {
        cell.path: cell
        for experiment in experiments.values()
        for scale in experiment.scales
        for cell in kind_of(experiment).cells(experiment, scale)
        if scale != "smoke"
    }
    found: dict[str, str] = {}
    for path in sorted(path for path in (stage / WORK).rglob("*") if path.is_file()):
        parts = path.relative_to(stage / WORK).parts
        names = ["/".join(parts[:n]) for n in (2, 3)]  # of a warm-up, and of another cell
        name = next((name for name in names if name in known), names[-1])
        if name not in found:
            cell = known.get(name)
            if cell is None:
                found[name] = "left out: no such cell is here; its settings, or the version of gll, are others"
            else:
                found[name] = _put(experiments[cell.experiment], cell, stage / WORK / name, work)
    table = Table(box=SIMPLE)
    for title in ("cell", "what became of it"):
        table.add_column(title)
    for name, said in sorted(found.items(), key=lambda one: one[1] != TAKEN):
        cell = known.get(name)
        table.add_row(f"{cell.experiment} ({cell.scale}): {cell.title}" if cell else name, said)
    if found:
        console.print(table)
    going = dict.fromkeys(known[name].experiment for name, said in found.items() if said == TAKEN)
    for one in going:
        console.print(Text(f"to see what to type next: gll reproduce {one} --list"))


def _put(experiment: Experiment, cell: Cell, new: Path, work: Path) -> str:
    """Put a cell where it belongs, unless something as good is there. Returns what was done."""
    here = work / cell.path
    if (here / "record.json").is_file() or (not cell.role and done_records(experiment, [cell], work)):
        return "left out: it is finished here"
    if problem := _problem(cell, new):
        return f"left out: {problem}"
    with claimed(here) as mine:
        if not mine:
            return f"left out: {holder(here) or 'another process'} is at work on it here"
        if (here / "progress.json").is_file() and position(new) <= position(here):
            return "left out: it is as far here, or further along"
        old = new.with_name(f"{new.name}.old")
        _move(here, old)
        try:
            _move(new, here)
        except OSError:
            _move(here, new)
            _move(old, here)
            raise
    return TAKEN


def _move(source: Path, target: Path) -> None:
    """All that is in a folder, but for its lock; the record, which says that all is there, last."""
    target.mkdir(exist_ok=True)
    for path in sorted(source.iterdir(), key=lambda path: path.name == "record.json"):
        if path.name != ".lock":
            shutil.move(path, target / path.name)


def _problem(cell: Cell, folder: Path) -> str:
    """What is wrong with a cell that has come, in words."""
    progress, record = (_read(folder / name) for name in ("progress.json", "record.json"))
    sound = _is_time(progress.get("wall_s")) and all(isinstance(c, str) for c in progress.get("commits", [None]))
    error = progress.get("error", {"text": "", "at": 0.0})
    if not sound or not isinstance(error, dict) or "text" not in error or not _is_time(error.get("at")):
        return "its progress.json is damaged"
    if record and not cell.role:
        return "it is said to be finished, but its record is not among the results"
    if record and (record.get("key") != cell.key or not _is_time(record.get("wall_s"))):
        return "its record is that of another cell"
    return ""


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}
    except (ValueError, TypeError):
        return {"damaged": True}


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
