"""Results of attacks on disk: a file a cell, grown chunk by chunk, there whole or not at all.

A *cell* is one attack on one victim. Its settings name its file, so that other settings make another file, and nothing
that was finished is computed again. What all cells of a folder share (the model, the samples, the seed) is written
once; a folder made with other shared settings is refused, and the message says what differs.

    OUT/about.json            what all cells share
    OUT/cells/pgd-1f0c….json  the chunks of one cell, one a line
    OUT/cells/pgd-1f0c….npz   the first images that fooled the model; `kept.py` keeps all of them

A process may be killed at any moment: a chunk is then either in its file or has never been.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gll.files import complete_file, only_one

FORMAT = "gll.attack 1"
CHECKSUM = re.compile("[0-9a-f]{64}")
PER_SAMPLE = ("clean", "predicted", "success", "linf", "l2")


class ResultsError(ValueError):
    """A folder of results that cannot be used as asked; the message says what to do."""


class Kind(enum.StrEnum):
    """What an attack may know and do; the checks compare one kind with another."""

    SINGLE = "single step"
    MULTI = "multi-step"
    BLACK_BOX = "black box"
    TRANSFER = "transfer"
    ENSEMBLE = "ensemble"


@final
@dataclass(frozen=True)
class Cell:
    """One attack on one victim: all that its result depends on, beside what the whole folder shares.

    Args:
        attack: its name.
        settings: its settings, for JSON.
        kind: what it may know and do.
        threat: what is in the graph of the victim, for JSON; None for a model without one.
        chunk: how many samples are attacked at a time, which matters where they share a graph.

    >>> a = Cell("PGD", {"eps": 0.1, "steps": 10}, Kind.MULTI, None, 100)
    >>> a.key == Cell("PGD", {"steps": 10, "eps": 0.1}, Kind.MULTI, None, 100).key
    True
    >>> a.key == Cell("PGD", {"steps": 20, "eps": 0.1}, Kind.MULTI, None, 100).key
    False
    """

    attack: str
    settings: Mapping[str, Any]
    kind: Kind
    threat: Mapping[str, Any] | None
    chunk: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        values = {"attack": self.attack, "settings": self.settings, "kind": self.kind, "threat": self.threat}
        return dict(plain({**values, "chunk": self.chunk}))

    @property
    def key(self) -> str:
        """The name of its file: the attack, and a hash of everything."""
        text = json.dumps(self.as_dict(), sort_keys=True)
        slug = re.sub(r"[^a-z0-9]+", "-", self.attack.lower()).strip("-")
        return f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@final
@dataclass(frozen=True, eq=False)
class Chunk:
    """What an attack did to some samples.

    Args:
        start: the number of its first sample.
        clean, predicted: classes before and after.
        success: classified wrongly after the attack.
        linf, l2: distances.
        zero_gradients: share of samples whose first gradient was zero; NaN where none was used.
        seconds: how long it took.
        notes: what the attack has to say besides (`Attacked.notes`), for JSON.
    """

    start: int
    clean: NDArray[np.int64]
    predicted: NDArray[np.int64]
    success: NDArray[np.bool_]
    linf: NDArray[np.float64]
    l2: NDArray[np.float64]
    zero_gradients: float
    seconds: float
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, name)) for name in PER_SAMPLE}
        if len(lengths) != 1 or not np.isfinite(self.linf).all() or not np.isfinite(self.l2).all():
            raise ValueError(f"a chunk needs arrays of one length and finite distances, got lengths {sorted(lengths)}")

    @property
    def stop(self) -> int:
        """The number after its last sample."""
        return self.start + len(self.success)

    def as_dict(self) -> dict[str, Any]:
        """For JSON. Nine digits tell any two numbers of float32 apart."""
        found: dict[str, Any] = {"start": self.start, "stop": self.stop}
        for name in ("clean", "predicted"):
            found[name] = getattr(self, name).tolist()
        found["success"] = self.success.astype(int).tolist()
        for name in ("linf", "l2"):
            found[name] = [float(f"{value:.9g}") for value in getattr(self, name)]
        share = self.zero_gradients
        found |= {"zero_gradients": None if math.isnan(share) else share, "seconds": round(self.seconds, 3)}
        return {**found, **({"notes": plain(self.notes)} if self.notes else {})}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Chunk:
        """What `as_dict` has written."""
        share = values["zero_gradients"]
        return Chunk(
            int(values["start"]),
            np.array(values["clean"], dtype=np.int64),
            np.array(values["predicted"], dtype=np.int64),
            np.array(values["success"], dtype=np.int64).astype(np.bool_),
            np.array(values["linf"], dtype=np.float64),
            np.array(values["l2"], dtype=np.float64),
            math.nan if share is None else float(share),
            float(values["seconds"]),
            dict(values.get("notes", {})),
        )


@final
@dataclass(frozen=True, eq=False)
class Pictures:
    """Attacked images that fooled the model, for the figure.

    Args:
        index: numbers of the samples, ascending.
        images: the attacked images, in float32.
    """

    index: NDArray[np.int64]
    images: NDArray[np.float32]

    def before(self, stop: int, most: int) -> Pictures:
        """Those of samples below `stop`, `most` at most."""
        keep = np.flatnonzero(self.index < stop)[:most]
        return Pictures(self.index[keep], self.images[keep])

    def joined(self, other: Pictures) -> Pictures:
        """These, then the others."""
        if not len(self.index):
            return other
        return Pictures(np.concatenate([self.index, other.index]), np.concatenate([self.images, other.images]))


NO_PICTURES = Pictures(np.zeros(0, dtype=np.int64), np.zeros((0,), dtype=np.float32))


@final
@dataclass(frozen=True, eq=False)
class Store:
    """A folder of results, or memory alone (`Store()`).

    Args:
        directory: the folder; None: nothing is written.
        images: keep all attacked images in it (`kept.py`), not only the first few.
    """

    directory: Path | None = None
    images: bool = False
    _memory: dict[str, tuple[tuple[Chunk, ...], Pictures]] = field(default_factory=dict, repr=False)

    @staticmethod
    def open(directory: Path, about: Mapping[str, Any], *, resume: bool, images: bool = False) -> Store:
        """A new folder, or one to go on with.

        Args:
            directory: where.
            about: what all cells share.
            resume: go on with what is there; without it, a folder that holds results is refused.
            images: keep all attacked images.

        Raises:
            ResultsError: there are results and `resume` is False, or they were made with other shared settings.
        """
        directory = Path(directory)
        file = directory / "about.json"
        about = plain(about)
        if file.is_file():
            if not resume:
                raise ResultsError(
                    f"{directory} holds results; add --resume to go on with them (what is finished is kept, further "
                    "attacks are added), or choose another folder by --out; to begin afresh, remove the folder"
                )
            before = read_json(file)
            if before.get("format") != FORMAT:
                raise ResultsError(f"{file} has another format, {before.get('format')!r}, than {FORMAT!r}")
            different = differences(before["about"], about)
            if different:
                raise ResultsError(
                    f"{directory} was made with other settings: {'; '.join(different)}. Results of both cannot stand "
                    "in one table: use the same, or choose another folder by --out; to begin afresh, remove the folder"
                )
        elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise ResultsError(f"{directory} exists and holds no results of attacks; choose another folder by --out")
        else:
            (directory / "cells").mkdir(parents=True)
            write_json(file, {"format": FORMAT, "about": about})
        return Store(directory, images)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Held while attacking: a second process on the same folder is refused. Removes what was never finished."""
        if self.directory is None:
            yield
            return
        with only_one(self.directory, ResultsError(f"another process is attacking into {self.directory}; wait for it")):
            for rest in (*self.directory.glob(".*.tmp"), *self.directory.glob("cells/.*.tmp")):
                rest.unlink()
            yield

    def cells(self) -> list[Cell]:
        """Every cell there is, in the order of their names."""
        if self.directory is None:
            return []
        return [cell_in(path) for path in sorted((self.directory / "cells").glob("*.json"))]

    def chunks(self, cell: Cell) -> tuple[Chunk, ...]:
        """What is there of a cell, from sample 0 on without a gap.

        Raises:
            ResultsError: its file is damaged, or that of another cell.
        """
        if self.directory is None:
            return self._memory.get(cell.key, ((), NO_PICTURES))[0]
        path = self._path(cell, "json")
        if not path.is_file():
            return ()
        record = read_json(path)
        try:
            chunks = tuple(map(Chunk.from_dict, record["chunks"]))
            good = record["cell"] == cell.as_dict() and all(
                chunk.start == (chunks[i - 1].stop if i else 0) for i, chunk in enumerate(chunks)
            )
        except (KeyError, TypeError, ValueError):
            good = False
        if not good:
            raise ResultsError(f"{path} is damaged: somebody has changed it; remove it to attack that cell again")
        return chunks

    def done(self, cell: Cell) -> int:
        """How many samples of a cell are there."""
        chunks = self.chunks(cell)
        return chunks[-1].stop if chunks else 0

    def pictures(self, cell: Cell) -> Pictures:
        """Images that fooled the model, of the chunks that are there."""
        if self.directory is None:
            return self._memory.get(cell.key, ((), NO_PICTURES))[1]
        path = self._path(cell, "npz")
        if not path.is_file():
            return NO_PICTURES
        try:
            with np.load(path, allow_pickle=False) as arrays:
                return Pictures(arrays["index"], arrays["images"])
        except (OSError, ValueError, KeyError) as error:
            raise ResultsError(f"{path} cannot be read ({error}); remove it and the .json file beside it") from None

    def append(self, cell: Cell, chunks: tuple[Chunk, ...], pictures: Pictures) -> None:
        """Replace what is there of a cell. The images go first: a chunk that is counted has its images."""
        if self.directory is None:
            self._memory[cell.key] = (chunks, pictures)
            return
        if len(pictures.index):
            with complete_file(self._path(cell, "npz")) as part, part.open("wb") as file:
                np.savez(file, allow_pickle=False, index=pictures.index, images=pictures.images)
        with complete_file(self._path(cell, "json")) as part:
            rows = ",\n".join(json.dumps(chunk.as_dict(), allow_nan=False) for chunk in chunks)
            head = json.dumps(cell.as_dict(), allow_nan=False)
            part.write_text(f'{{"cell": {head},\n"chunks": [\n{rows}\n]}}\n', encoding="utf-8")

    def _path(self, cell: Cell, suffix: str) -> Path:
        assert self.directory is not None
        return self.directory / "cells" / f"{cell.key}.{suffix}"


def cell_in(path: Path) -> Cell:
    """The cell that a file is about."""
    c = read_json(path)["cell"]
    return Cell(c["attack"], c["settings"], Kind(c["kind"]), c["threat"], c["chunk"])


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In words, which settings differ; checksums come last, since they follow from others.

    >>> differences({"pixels": "a" * 64, "seed": 1, "base": 10}, {"pixels": "b" * 64, "seed": 2, "base": 10})
    ['seed was 1, is 2', 'other pixels (aaaaaaaa then, bbbbbbbb now)']
    """
    words, checksums = [], []
    for key in dict.fromkeys([*before, *now]):
        a, b = before.get(key), now.get(key)
        if a != b and all(isinstance(value, str) and CHECKSUM.fullmatch(value) for value in (a, b)):
            checksums.append(f"other {key} ({str(a)[:8]} then, {str(b)[:8]} now)")
        elif a != b:
            words.append(f"{key} was {a!r}, is {b!r}")
    return words + checksums


def plain(value: Any) -> Any:
    """A value as JSON gives it back: texts for keys, lists for tuples, a text for a number that is not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, enum.StrEnum):
        return str(value)
    return value


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    with complete_file(path) as part:
        part.write_text(json.dumps(plain(record), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError:
        raise ResultsError(f"{path} is damaged: it is no JSON; remove it to start that part again") from None
