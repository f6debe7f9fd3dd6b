"""`gll reproduce --pack`: what unfinished cells need to go on elsewhere, in one file, and no more.

Results go first. Then cells that were begun, and finished warm-ups that an unfinished cell starts from; where they are
more than may be carried, those with the most seconds of work for each byte. Finished cells stay: the results have their
records.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gll.files import complete_file
from gll.reproduce.carry import needed_files
from gll.reproduce.choice import chosen, why_none
from gll.reproduce.experiment import Cell, Experiment, ExperimentError, folder_name
from gll.reproduce.kinds import kind_of
from gll.reproduce.parts import ALL, Part
from gll.reproduce.records import alone, claimed, done_records, read_record, read_records
from gll.reproduce.state import holder, read_progress
from gll.reproduce.tables import NONE
from gll.reproduce.taken import at_hand
from gll.train.progress import clock
from gll.words import counted

FORMAT = "gll.pack 1"
MANIFEST, RESULTS, WORK = "pack.json", "experiments", "work"  # the names at the top of the file
MB = 1e6
END = 1000  # bytes, at most: a tar file ends with zeros, of which little is left when they are compressed
OVER = "over the limit"
CONFIG = "config.toml"
HERE = re.compile(rb'^(out|root|from) = ".*"$', re.MULTILINE)
"""Of a run's config, what names folders of this machine: whoever goes on has others, and does not ask for these."""


@final
@dataclass(frozen=True)
class Choice:
    """Of what to pack.

    Args:
        experiments: by name.
        scale: None: of every scale but smoke, which is always run anew.
        only: words that a cell must have, as in --only, by the name of its experiment.
        work: the folder of cells at work.
        parts: of those that were asked for by a figure of the paper, by name.
    """

    experiments: Mapping[str, Experiment]
    scale: str | None
    only: Mapping[str, Sequence[str]]
    work: Path
    parts: Mapping[str, Part] = field(default_factory=dict)

    def scales(self, experiment: Experiment) -> list[str]:
        """Those of an experiment."""
        return [s for s in experiment.scales if s != "smoke" and self.scale in (None, s)]


@final
@dataclass(frozen=True, eq=False)
class Item:
    """A cell to carry.

    Args:
        what, why: in words.
        seconds: of work that are in it.
        folder: its own.
        name: of the folder in the file.
        finished: it is a warm-up that others start from.
    """

    what: str
    why: str
    seconds: float
    folder: Path
    name: str
    finished: bool

    def files(self) -> list[tuple[Path, str]]:
        """Each with its name in the file."""
        found = needed_files(self.folder)
        return [(path, f"{self.name}/{path.relative_to(self.folder).as_posix()}") for path in found]

    def size(self) -> int:
        """In bytes, at most: it may be less when compressed."""
        return sum(_room(path.stat().st_size) for path, _ in self.files())


@final
class Archive:
    """A .tar.gz file that is being written, of plain files without owner, rights or time."""

    def __init__(self, raw: BinaryIO, stack: ExitStack) -> None:
        self._raw = raw
        self._packed = stack.enter_context(gzip.GzipFile(fileobj=raw, mode="wb", filename=""))
        self._tar = stack.enter_context(tarfile.TarFile(fileobj=self._packed, mode="w"))
        self.add(MANIFEST, json.dumps({"format": FORMAT}).encode())

    def size(self) -> int:
        """Bytes so far, and those of its end."""
        self._packed.flush()
        return self._raw.tell() + END

    def add(self, name: str, content: bytes | BinaryIO) -> None:
        """A file by its name."""
        source = io.BytesIO(content) if isinstance(content, bytes) else content
        info = tarfile.TarInfo(name)
        info.size = source.seek(0, io.SEEK_END)
        source.seek(0)
        self._tar.addfile(info, source)


def pack(choice: Choice, file: Path, limit_mb: float | None, console: Console) -> None:
    """Write the file, whole or not at all, and say what is in it.

    Args:
        choice: of what.
        file: where to.
        limit_mb: how large it may be, in MB of a million bytes; None: as large as it gets.
        console: where to say it.

    Raises:
        ExperimentError: there is nothing to pack, or the limit is too low for the results alone.
    """
    items = sorted(_items(choice), key=lambda item: item.seconds / max(1, item.size()), reverse=True)
    limit = float("inf") if limit_mb is None else limit_mb * MB
    table = Table(box=SIMPLE)
    for title, side in (("what", "left"), ("MB", "right"), ("work", "right"), ("why", "left")):
        table.add_column(title, justify="right" if side == "right" else "left", no_wrap=side == "right")
    left: dict[Item, str] = {}
    with complete_file(file) as part:
        with part.open("wb") as raw, ExitStack() as stack:
            archive = Archive(raw, stack)
            before, said = archive.size(), _add_results(archive, choice)
            if not (said or items):
                raise ExperimentError(f"there is nothing to pack: no results, and no cell begun in {choice.work}")
            if said:
                table.add_row("results", _mb(archive.size() - before), NONE, said)
            if archive.size() > limit:
                raise ExperimentError(
                    f"the results alone are {_mb(archive.size())} MB, more than --limit-mb {limit_mb:g}: raise it, or "
                    "name the experiments to pack"
                )
            for item in items:
                before = archive.size()
                if why := _add_item(archive, item, limit):
                    left[item] = why
                else:
                    table.add_row(item.what, _mb(archive.size() - before), clock(item.seconds), item.why)
        size = part.stat().st_size
    for item, why in left.items():
        table.add_row(item.what, _mb(item.size()), clock(item.seconds), f"left out: {why}", style="yellow")
    console.print(table)
    if OVER in left.values():
        said = "What has the most seconds of work for each MB goes first. Sizes of what is left out: before packing."
        console.print(Text(said))
    console.print(Text(f"{file}: {_mb(size)} MB; elsewhere: gll reproduce --unpack {file.name}"), soft_wrap=True)


def _add_results(archive: Archive, choice: Choice) -> str:
    """results.json of each experiment, and arrays and pictures of cells that were finished here. Returns what it is."""
    number = arrays = 0
    for name, experiment in choice.experiments.items():
        path = experiment.folder / "results.json"
        if path.is_file():
            with alone(experiment.folder):
                stored = read_records(path)
                archive.add(f"{RESULTS}/{name}/results.json", path.read_bytes())
            number += 1
            made = (read_record(file.parent) for file in (choice.work / name).glob("*/*/record.json"))
            for key in sorted({record["key"] for record in made if record is not None} & stored.keys()):
                for array in sorted(_arrays(experiment, stored[key]["cell"], key)):
                    archive.add(f"{RESULTS}/{name}/arrays/{array.name}", array.read_bytes())
                    arrays += 1
    more = f", and {counted(arrays, 'array')} of cells finished here" if arrays else ""
    return f"all records of {counted(number, 'experiment')}{more}" if number else ""


def _arrays(experiment: Experiment, title: str, key: str) -> list[Path]:
    return list((experiment.folder / "arrays").glob(f"{folder_name(title, key)}[.-]*"))


def _add_item(archive: Archive, item: Item, limit: float) -> str:
    """Add a cell, if nobody is at work on it and there is room. Returns why not."""
    with claimed(item.folder) as mine:
        if not mine:
            return f"at work ({holder(item.folder) or 'another process'}); stop it first"
        if not item.finished and read_record(item.folder) is not None:
            return "finished meanwhile; pack again"
        if archive.size() + item.size() > limit:
            return OVER
        for path, name in item.files():
            if path.name == CONFIG:
                archive.add(name, HERE.sub(rb'\1 = ""', path.read_bytes()))
                continue
            with path.open("rb") as source:
                archive.add(name, source)
    return ""


def _items(choice: Choice) -> list[Item]:
    """Cells that were begun, and warm-ups; what experiments share once.

    Raises:
        ExperimentError: no cell has the words that were asked for.
    """
    found: dict[str, Item] = {}
    asked_any, nothing = False, list[str]()
    for name, experiment in choice.experiments.items():
        words = choice.only[name]
        for scale in choice.scales(experiment):
            cells = kind_of(experiment).cells(experiment, scale)
            asked = chosen(cells, words)
            if not asked:
                part = choice.parts.get(name, ALL)
                nothing.append(why_none(experiment, scale, words, part, given=choice.scale is not None))
                continue
            asked_any = True
            done = done_records(experiment, asked, choice.work)
            here = {*done, *at_hand(experiment, asked, done)}
            left = [cell for cell in asked if cell.key not in here]
            for cell in cells:
                needing = sum(other.needs == cell.key for other in left)
                item = _item(cell, needing, choice.work) if cell in left or needing else None
                if item is not None:
                    found.setdefault(cell.path, item)
    if nothing and not asked_any:
        raise ExperimentError("; ".join(nothing))
    return list(found.values())


def _item(cell: Cell, needing: int, work: Path) -> Item | None:
    """That of a cell, if anything was done."""
    folder = work / cell.path
    record = read_record(folder)
    what, name = f"{cell.experiment} ({cell.scale}): {cell.title}", f"{WORK}/{cell.path}"
    if record is not None:
        why = f"{counted(needing, 'cell')} start from it" if needing > 1 else "a cell starts from it"
        return Item(what, why, record["wall_s"], folder, name, True)
    if not (folder / "progress.json").is_file():
        return None
    progress = read_progress(folder)
    return Item(what, "failed" if "error" in progress else "begun", progress["wall_s"], folder, name, False)


def _room(size: int) -> int:
    """Bytes that a file takes, where it cannot be compressed: a header, whole blocks, and what compression adds."""
    blocks = 3 * 512 + -(-size // 512) * 512  # a long name takes two more
    return blocks + blocks // 1000 + 64


def _mb(size: int) -> str:
    return f"{size / MB:,.1f}" if size >= MB / 10 else f"{size / MB:,.3f}"
