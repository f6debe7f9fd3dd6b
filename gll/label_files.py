"""Labels read from a file, for the command line. They come in one of three forms:

    index,label          a table with a header: the row of the features, from 0, and its label; other rows have none
    id,label             the same by name, where the features' .npz has an array `ids`
    label                one line for every row, with or without this header; an array of labels is read the same way

An empty field, -1 and nan mean: no label. Labels that are all whole numbers are numbers, and sort as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gll.doctor import LABEL_NAMES
from gll.feature_files import Features
from gll.input_files import InputError, decoded, headers, kind_of, load_npy, open_npz
from gll.text_tables import Table

UNLABELLED = ("", "-1", "nan")
LONGEST_LABEL = 1000  # characters; longer ones are texts in the wrong column, and would fill the result with blanks


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


def read_labels(path: Path, features: Features) -> GivenLabels:
    """Labels of these points; see the top of this file for the forms.

    Args:
        path: a CSV file, an .npy file or an .npz file.
        features: the points that are labelled.
    """
    kind = kind_of(path)
    if kind == "text":
        given = _from_text(path, features)
    elif kind == "npy":
        given = _from_array(path, load_npy(path), features)
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
    with open_npz(features.path) as file:
        return any(name in file.files for name in LABEL_NAMES)


def _from_npz(path: Path, features: Features) -> GivenLabels:
    with open_npz(path) as file:
        arrays = headers(file)
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


def _from_text(path: Path, features: Features) -> GivenLabels:
    n = len(features)
    text = decoded(path)
    if not text.strip():
        raise InputError(f"{path} has no labels: there is nothing in it but white space")
    table = Table(path, text, ("index", "label"), ("id", "label"))
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
