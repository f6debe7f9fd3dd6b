"""Features and labels read from files, for the command line; what is wrong with a file is said in a sentence.

No file is trusted: arrays are loaded without pickles, so that nothing in them is executed.

Labels come in one of three forms:

    index,label          a table with a header: the row of the features, from 0, and its label; other rows have none
    id,label             the same by name, where the features' .npz has an array `ids`
    label                one line for every row, with or without this header; an array of labels is read the same way

An empty field, -1 and nan mean: no label. Labels that are all whole numbers are numbers, and sort as such.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.lib import format as npy
from numpy.typing import NDArray

from gll.doctor import FEATURE_NAMES, LABEL_NAMES

UNLABELLED = ("", "-1", "nan")
LONGEST_LABEL = 1000  # characters; longer ones are texts in the wrong column, and would fill the result with blanks
DELIMITERS = (",", ";", "\t")


class InputError(ValueError):
    """A file or an option that cannot be used; the message says why, and what to do."""


@dataclass(frozen=True, eq=False)
class Features:
    """Points read from a file.

    Args:
        path: the file.
        key: name of the array in it, None where it holds one only.
        value: (n, d) finite numbers: an array, or a SciPy sparse matrix.
        ids: (n,) names of the rows, if the file has any.
    """

    path: Path
    key: str | None
    value: Any
    ids: NDArray[Any] | None

    def __len__(self) -> int:
        return int(self.value.shape[0])

    def name(self, row: int) -> str:
        """How to speak of a row: its id, or its number."""
        return str(row) if self.ids is None else str(self.ids[row])

    def __str__(self) -> str:
        n, d = self.value.shape
        sparse = "sparse " if scipy.sparse.issparse(self.value) else ""
        where = "" if self.key is None else f" '{self.key}'"
        return f"{n:,} points in {d:,} dimensions ({sparse}{self.value.dtype}{where})"


@dataclass(frozen=True, eq=False)
class GivenLabels:
    """Labels read from a file.

    Args:
        y: (n,) for the classifier: integers with -1 for unlabelled, or strings with None for unlabelled.
        known: (n,) which rows are labelled.
        notes: what the user should know.
    """

    y: NDArray[Any]
    known: NDArray[np.bool_]
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> list[Any]:
        """The classes, sorted."""
        return sorted(set(self.y[self.known].tolist()))

    def __str__(self) -> str:
        return f"{self.known.sum():,} labels of {len(self.classes):,} classes on {len(self.known):,} points"


def read_features(path: Path, key: str | None = None) -> Features:
    """Points from an .npy file, an .npz file, or a sparse matrix that `scipy.sparse.save_npz` has written.

    Args:
        path: the file.
        key: name of the array in an .npz file; by default the only two-dimensional one, or one of the usual names.
    """
    kind = _kind_of(path)
    if kind == "npy":
        if key is not None:
            raise InputError(f"{path} holds a single array, so there is no key {key!r} in it; leave out --key")
        return _features(path, None, _load_npy(path), None)
    if kind != "npz":
        raise InputError(
            f"{path} is not an .npz or .npy file; write one with numpy.savez(path, features=x), numpy.save(path, x) "
            "or scipy.sparse.save_npz(path, x)"
        )
    with _open_npz(path) as file:
        arrays = _headers(file)
        if "format" in arrays and "shape" in arrays and "data" in arrays and key is None:
            return _features(path, None, _load_sparse(path), None)
        name = _feature_key(path, arrays, key)
        ids = _ids(path, file["ids"]) if "ids" in arrays else None
        return _features(path, name, file[name], ids)


def read_labels(path: Path, features: Features) -> GivenLabels:
    """Labels of these points; see the top of this file for the forms.

    Args:
        path: a CSV file, an .npy file or an .npz file.
        features: the points that are labelled.
    """
    kind = _kind_of(path)
    if kind == "text":
        given = _from_text(path, features)
    elif kind == "npy":
        given = _from_array(path, _load_npy(path), features)
    else:
        given = _from_npz(path, features)
    classes = given.classes
    if not classes:
        raise InputError(
            f"{path} has no labels: all entries are empty, -1 or nan, which mean 'no label'; label at least one point "
            "of every class"
        )
    if len(classes) == 1:
        raise InputError(
            f"{path} has labels of one class only, {classes[0]!r}: give labels of at least two classes"
            + (" (-1 means 'no label': name that class otherwise)" if classes[0] == 1 else "")
        )
    longest = max((str(c) for c in classes), key=len)
    if len(longest) > LONGEST_LABEL:
        raise InputError(
            f"{path} has a label of {len(longest):,} characters, {longest[:40]!r}...: is this the column of labels?"
        )
    if len(classes) == given.known.sum() > 10:
        note = f"every one of the {len(classes):,} labels is a class of its own: is this the column of labels?"
        given = GivenLabels(given.y, given.known, (*given.notes, note))
    return given


def labels_inside(features: Features) -> bool:
    """Whether the file of the features has an array of labels too."""
    if features.key is None:
        return False
    with _open_npz(features.path) as file:
        return any(name in file.files for name in LABEL_NAMES)


def read_prior(text: str, classes: list[Any]) -> list[float]:
    """Wanted shares of the classes, in their order: "3,4,3", "cat=3,dog=4", or a CSV file with the header label,share.

    They are scaled to sum to one.

    Args:
        text: the shares, or the name of a file.
        classes: the classes, sorted.

    >>> read_prior("dog=3, cat=1", ["cat", "dog"])
    [0.25, 0.75]
    """
    pairs: list[tuple[str, str]]
    if Path(text).is_file():
        path = Path(text)
        table = _Table(path, _decoded(path), ("label", "share"))
        pairs = [(label, share) for _, label, share in table.lines("label", "share")]
    else:
        parts = [part.strip() for part in text.split(",")]
        if all("=" in part for part in parts):
            pairs = [(label.strip(), share) for label, _, share in (part.rpartition("=") for part in parts)]
        elif len(parts) == len(classes):
            pairs = [(str(c), share) for c, share in zip(classes, parts, strict=True)]
        else:
            raise InputError(
                f"--class-prior: {text!r} is neither a file nor one number for each of the {len(classes)} classes "
                f"({_some(classes)}); write 3,4,3 or name=3,other=4"
            )
    found: dict[str, float] = {}
    for label, share in pairs:
        try:
            value = float(share)
        except ValueError:
            raise InputError(f"--class-prior: {share.strip()!r} for {label!r} is not a number") from None
        if not 0 < value < float("inf"):
            raise InputError(f"--class-prior: the share of {label!r} must be positive and finite, got {value:g}")
        if label in found:
            raise InputError(f"--class-prior: {label!r} is given twice")
        found[label] = value
    missing = [c for c in classes if str(c) not in found]
    strange = [c for c in found if c not in {str(c) for c in classes}]
    if missing or strange:
        said = [f"{_some(missing)} have no share"] if missing else []
        said += [f"{_some(strange)} are not among the labels"] if strange else []
        raise InputError(f"--class-prior must name every class once: {', and '.join(said)}")
    total = sum(found.values())
    return [found[str(c)] / total for c in classes]


def _kind_of(path: Path) -> str:
    """npy, npz or text, by the first bytes; a file's name may say anything."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a file")
    if not path.exists():
        raise InputError(f"there is no file {path}")
    with path.open("rb") as file:
        start = file.read(6)
    if not start:
        raise InputError(f"{path} is empty")
    return "npy" if start == npy.MAGIC_PREFIX else "npz" if start[:2] == b"PK" else "text"


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """What NumPy and zipfile say about a broken file, as one sentence."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise InputError(
                f"{path} holds Python objects, which are not loaded, because that would run code; store numbers, or "
                "strings of fixed width such as numpy.array(labels, dtype=str)"
            ) from None
        raise InputError(f"{path} ({path.stat().st_size:,} bytes) is cut off or damaged: {error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, OSError, NotImplementedError, MemoryError) as error:
        said = str(error) or type(error).__name__
        raise InputError(f"{path} ({path.stat().st_size:,} bytes) is cut off or damaged: {said}") from None


@contextmanager
def _open_npz(path: Path) -> Iterator[Any]:
    # Opened here: NumPy leaves a file open that it cannot read.
    with _damage(path), path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        yield file


def _load_npy(path: Path) -> NDArray[Any]:
    with _damage(path), path.open("rb") as opened:
        return np.asarray(np.load(opened, allow_pickle=False))


def _load_sparse(path: Path) -> Any:
    x = scipy.sparse.load_npz(path)
    if hasattr(x, "check_format"):
        x.check_format(full_check=True)  # indices that are out of range would be followed in memory
    return x.tocsr()


def _headers(file: Any) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and type of every array, without reading the arrays."""
    found = {}
    for name in file.zip.namelist():
        with file.zip.open(name) as member:
            version = npy.read_magic(member)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(member)
            found[name.removesuffix(".npy")] = (shape, dtype)
    return found


def _feature_key(path: Path, arrays: dict[str, tuple[tuple[int, ...], np.dtype[Any]]], key: str | None) -> str:
    listed = ", ".join(
        f"{name} ({dtype}, {' × '.join(map(str, s)) or 'scalar'})" for name, (s, dtype) in arrays.items()
    )
    if key is not None:
        if key not in arrays:
            raise InputError(f"{path} has no array {key!r}; it has {listed or 'none'}")
        return key
    matrices = {name: dtype for name, (shape, dtype) in arrays.items() if len(shape) == 2 and dtype.kind in "fiub"}
    # Features are mostly floats: a table of integers beside them is something else.
    floats = [name for name, dtype in matrices.items() if dtype.kind == "f"]
    fits = floats or list(matrices)
    usual = [name for name in fits if name in FEATURE_NAMES]
    if len(fits) == 1:
        return fits[0]
    if len(usual) == 1:
        return usual[0]
    what = "more than one array that may be the features" if fits else "no two-dimensional array of numbers"
    raise InputError(f"{path} has {what}: {listed or 'it is empty'}; name the one by --key")


def _features(path: Path, key: str | None, x: Any, ids: NDArray[Any] | None) -> Features:
    named = f"{path}" if key is None else f"array {key!r} of {path}"
    if x.ndim != 2 or x.dtype.kind not in "fiub":
        raise InputError(
            f"{named} must be a (points, dimensions) array of numbers, got {x.dtype} of shape {tuple(x.shape)}"
        )
    if 0 in x.shape:
        raise InputError(f"{named} is empty: its shape is {tuple(x.shape)}")
    if x.dtype not in (np.float32, np.float64):
        x = x.astype(np.float32 if x.dtype.itemsize <= 2 else np.float64)  # exact for integers of 16 bits
    _require_finite(named, x)
    if ids is not None and len(ids) != x.shape[0]:
        raise InputError(f"{path} has {x.shape[0]:,} points, but {len(ids):,} ids")
    return Features(path, key, x, ids)


def _require_finite(named: str, x: Any) -> None:
    if scipy.sparse.issparse(x):
        x = x.tocoo()
        bad = ~np.isfinite(x.data)
        row, column, value = x.row[bad], x.col[bad], x.data[bad]
    else:
        bad = ~np.isfinite(x)
        row, column = np.nonzero(bad)
        value = x[bad]
    if len(row) == 0:
        return
    rows = np.unique(row)
    raise InputError(
        f"{named} has {len(row):,} entries that are NaN or infinite, in {len(rows):,} of {x.shape[0]:,} rows: "
        f"{'row' if len(rows) == 1 else 'rows'} {_some(rows.tolist())} (the first is {value[0]} in row {row[0]}, "
        f"column {column[0]}); remove these rows or fill the gaps"
    )


def _ids(path: Path, ids: NDArray[Any]) -> NDArray[Any]:
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise InputError(
            f"array 'ids' of {path} must hold one string or whole number for every point, got {ids.dtype} of shape "
            f"{ids.shape}"
        )
    names = ids.astype(str)
    once, count = np.unique(names, return_counts=True)
    if len(once) != len(names):
        raise InputError(f"array 'ids' of {path} has {str(once[count > 1][0])!r} more than once")
    return names


def _from_npz(path: Path, features: Features) -> GivenLabels:
    with _open_npz(path) as file:
        arrays = _headers(file)
        columns = [name for name, (shape, _) in arrays.items() if len(shape) == 1 and name != "ids"]
        name = next((name for name in LABEL_NAMES if name in arrays), None)
        if name is None and len(columns) == 1:
            name = columns[0]
        if name is None:
            raise InputError(
                f"{path} has no array of labels: it has {', '.join(arrays) or 'none'}, expected one of "
                f"{', '.join(LABEL_NAMES)}"
            )
        return _from_array(path, file[name], features)


def _from_array(path: Path, label: NDArray[Any], features: Features) -> GivenLabels:
    n = len(features)
    if label.shape != (n,):
        raise InputError(f"{path} must have one label for each of the {n:,} points, got shape {label.shape}")
    if label.dtype.kind == "U":
        return _given(label.tolist())
    if label.dtype.kind == "f":
        known = ~np.isnan(label)
        strange = np.flatnonzero(known & (label != np.floor(label)) | np.isinf(label))
        if len(strange):
            raise InputError(
                f"{path} holds fractions, such as {label[strange[0]]:g} in row {strange[0]}: labels are whole numbers "
                "or strings, -1 or nan for unlabelled"
            )
        label = np.where(known, label, -1).astype(np.int64)
    if label.dtype.kind not in "iu":
        raise InputError(f"{path} must hold labels as whole numbers or strings, got {label.dtype}")
    y = label.astype(np.int64)
    return GivenLabels(y, y != -1)


def _given(fields: Iterable[str], notes: tuple[str, ...] = ()) -> GivenLabels:
    """Labels from one field for every row."""
    text = [field.strip() for field in fields]
    known = np.array([field.lower() not in UNLABELLED for field in text], dtype=np.bool_)
    mine = [field for field, k in zip(text, known, strict=True) if k]
    # 007 and 1.0 stay as they are: writing them back as numbers would change them.
    if mine and all(re.fullmatch(r"0|-?[1-9][0-9]{0,17}", field) for field in mine):
        y: NDArray[Any] = np.array([int(f) if k else -1 for f, k in zip(text, known, strict=True)], dtype=np.int64)
    else:
        y = np.empty(len(text), dtype=object)
        y[:] = [field if k else None for field, k in zip(text, known, strict=True)]
    return GivenLabels(y, known, notes)


def _decoded(path: Path) -> str:
    data = path.read_bytes()
    if b"\0" in data:
        raise InputError(f"{path} is not a CSV file: it holds binary data")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path} is not a CSV file in UTF-8: line {line} holds the byte {data[error.start]:#x}"
        ) from None


class _Table:
    """A text with a header and lines of as many fields, or without a header and with one field a line."""

    def __init__(self, path: Path, text: str, *wanted: tuple[str, str]) -> None:
        self.path, self.wanted = path, wanted
        first = text.splitlines()[0] if text.strip() else ""
        self.first = first
        self.header: list[str] = []
        self.delimiter = ","
        for delimiter in DELIMITERS:
            names = [name.strip().lower() for name in next(csv.reader([first], delimiter=delimiter), [])]
            if any(set(pair) <= set(names) for pair in wanted):
                self.header, self.delimiter = names, delimiter
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, strict=True)
            self.rows = [(reader.line_num, row) for row in reader]
        except csv.Error as error:
            raise InputError(f"{path} is not a CSV file: line {reader.line_num}: {error}") from None

    def has(self, *names: str) -> bool:
        """Whether there are such columns."""
        return set(names) <= set(self.header)

    def lines(self, *names: str) -> Iterator[tuple[int, str, str]]:
        """Number of the line and the two fields of these names, of every line that is not empty."""
        if not self.has(*names):
            raise InputError(f"{self.path} has no header {','.join(names)}: its first line is {self.first[:80]!r}")
        for name in names:
            if self.header.count(name) > 1:
                raise InputError(f"{self.path} has two columns {name!r}")
        a, b = (self.header.index(name) for name in names)
        for line, row in self.rows[1:]:
            if not row or not any(field.strip() for field in row):
                continue
            if len(row) != len(self.header):
                raise InputError(
                    f"{self.path}, line {line}: {len(row)} fields, but the header has {len(self.header)}; put labels "
                    f"with a {self.delimiter!r} in quotes"
                )
            yield line, row[a].strip(), row[b].strip()

    def column(self, n: int) -> list[str]:
        """n fields, one a line."""
        for line, row in self.rows:
            if len(row) > 1:
                raise InputError(
                    f"{self.path}, line {line}: {len(row)} fields. Expected the header index,label and such lines, or "
                    f"one label a line for each of the {n:,} points (labels with a comma in quotes); the first line is "
                    f"{self.first[:80]!r}"
                )
        fields = [row[0] if row else "" for _, row in self.rows]
        if len(fields) > n and fields[0].strip().lower() in (*LABEL_NAMES, "label"):
            fields = fields[1:]
        while len(fields) > n and not fields[-1].strip():
            fields.pop()
        if len(fields) != n:
            raise InputError(
                f"{self.path} has {len(fields):,} lines, but there are {n:,} points: give one label a line for every "
                "point (an empty line for none), or a header index,label and lines for the labelled points only"
            )
        return fields


def _from_text(path: Path, features: Features) -> GivenLabels:
    n = len(features)
    text = _decoded(path)
    if not text.strip():
        raise InputError(f"{path} has no labels: there is nothing in it but white space")
    table = _Table(path, text, ("index", "label"), ("id", "label"))
    if table.has("index", "label"):
        rows = [(line, _row(path, line, index), label) for line, index, label in table.lines("index", "label")]
        outside = [(line, row) for line, row, _ in rows if not 0 <= row < n]
        if outside:
            raise InputError(
                f"{path}, line {outside[0][0]}: index {outside[0][1]} is out of range: there are {n:,} points, "
                f"0 .. {n - 1} ({len(outside):,} of {len(rows):,} lines are outside)"
            )
    elif table.has("id", "label"):
        if features.ids is None:
            raise InputError(
                f"{path} names points by id, but {features.path} has no array 'ids'; add one, or use the header "
                "index,label"
            )
        place = {name: row for row, name in enumerate(features.ids.tolist())}
        lines = list(table.lines("id", "label"))
        unknown = [(line, name) for line, name, _ in lines if name not in place]
        if unknown:
            raise InputError(
                f"{path}, line {unknown[0][0]}: there is no point with the id {unknown[0][1]!r} ({len(unknown):,} of "
                f"{len(lines):,} lines have unknown ids)"
            )
        rows = [(line, place[name], label) for line, name, label in lines]
    else:
        return _given(table.column(n))
    return _from_rows(path, rows, features)


def _from_rows(path: Path, rows: list[tuple[int, int, str]], features: Features) -> GivenLabels:
    fields = [""] * len(features)
    seen: dict[int, tuple[int, str]] = {}
    conflicts, repeats = [], 0
    for line, row, label in rows:
        if row not in seen:
            seen[row], fields[row] = (line, label), label
        elif seen[row][1] == label:
            repeats += 1
        else:
            conflicts.append((line, row, label))
    if conflicts:
        line, row, label = conflicts[0]
        raise InputError(
            f"{path}, lines {seen[row][0]} and {line}: point {features.name(row)} is labelled {seen[row][1]!r} and "
            f"{label!r} ({len(conflicts):,} in all); keep one of them"
        )
    notes = (f"repeated lines in {path.name}, with the same label as before: {repeats:,}",) if repeats else ()
    return _given(fields, notes)


def _row(path: Path, line: int, index: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", index):
        raise InputError(f"{path}, line {line}: the index {index[:40]!r} is not a whole number")
    return int(index)


def _some(values: list[Any], most: int = 8) -> str:
    """The first few of a list."""
    return ", ".join(map(str, values[:most])) + (f", ... ({len(values):,} in all)" if len(values) > most else "")
