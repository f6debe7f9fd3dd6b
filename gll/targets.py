"""The y of scikit-learn read as labels: which rows are labelled, and with which shares of the classes.

Unlabelled is -1 in numbers; NaN, None, NaT or pandas' NA in anything; a masked entry; the strings "-1" and "nan"
(which is what NumPy makes of -1 and NaN in a list of strings), in a list, a Series or an array of any type alike; a row
of zeros or of NaN in a matrix of soft labels. So no class can be called "-1" or "nan"; "" is a class.

One case is ambiguous: a y of -1 and 1 alone. If -1 were "unlabelled" there, only one class would be left, and one class
is an error; so it is read as two classes, with a warning.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from torch import Tensor

MARKS = ("-1", "nan")  # strings that mean "unlabelled"


@dataclass(frozen=True, eq=False)
class Targets:
    """Labels of some of n rows.

    Args:
        num_rows: n.
        classes: (C,) the classes, sorted, of the type they were given in.
        row: (m,) the labelled rows, in increasing order.
        value: (m, C) their shares of the classes; rows sum to one.

    >>> y = Targets.read(["cat", None, "dog", -1], 4)
    >>> y.classes.tolist(), y.row.tolist(), y.value.tolist()
    (['cat', 'dog'], [0, 2], [[1.0, 0.0], [0.0, 1.0]])
    """

    num_rows: int
    classes: NDArray[Any]
    row: NDArray[np.int64]
    value: NDArray[np.float64]

    @classmethod
    def read(cls, y: Any, num_rows: int, keep: NDArray[np.bool_] | None = None) -> Targets:
        """Labels from a y with one entry or one row of shares per row of X.

        Args:
            y: (n,) labels, or (n, C) shares of the classes; NumPy, pandas, torch, or a list.
            num_rows: n.
            keep: (n,) rows whose label counts; all by default.
        """
        if y is None:
            raise ValueError(
                "GraphLearningClassifier requires y to be passed, but the target y is None; "
                "mark rows without a label by -1, NaN or None"
            )
        soft = read_soft(y)
        if soft is not None:
            classes, value, known = soft
            _check_length(len(value), num_rows)
        else:
            label, known = read_column(y)
            _check_length(len(label), num_rows)
        known = known if keep is None else known & keep
        row = np.flatnonzero(known)
        if len(row) == 0:
            raise ValueError(
                f"there are no labels: all {num_rows} entries of y mark a row as unlabelled (-1, NaN, None) or have "
                "weight zero; label at least one row of every class"
            )
        if soft is None:
            classes, code = np.unique(label[row], return_inverse=True)
            if len(classes) == 1 and _is_number(classes) and classes[0] == 1 and known.sum() < num_rows:
                # -1 and 1 and nothing else, no NaN: the other two-class convention.
                every = label == -1
                if (known | every).all() and not np.issubdtype(label.dtype, np.bool_):
                    warnings.warn(
                        "y holds -1 and 1 only, and is read as these two classes: with -1 for 'unlabelled' there would "
                        "be one class only. To mark unlabelled rows among classes -1 and 1, use NaN or None",
                        UserWarning,
                        stacklevel=4,
                    )
                    row = np.arange(num_rows) if keep is None else np.flatnonzero(keep)
                    classes, code = np.unique(label[row], return_inverse=True)
            value = np.eye(len(classes))[code]
        else:
            value = value[row]
        _check_classes(classes, value)
        return cls(num_rows, classes, row, value)

    def update(self, index: Any, labels: Any) -> Targets:
        """Other labels on the rows `index`: new, changed, or taken away. A new class becomes a column."""
        index = self._check_index(index)
        soft = read_soft(labels, tuple(self.classes))
        if soft is not None:
            _, value, known = soft
            classes = self.classes
            if len(value) != len(index):
                raise ValueError(f"{len(index)} rows were given, but {len(value)} rows of labels")
        else:
            label, known = read_column(labels)
            if label.shape == (1,) and len(index) > 1:
                raise ValueError(f"{len(index)} rows were given, but one label; repeat it if all have the same")
            if len(label) != len(index):
                raise ValueError(f"{len(index)} rows were given, but {len(label)} labels")
            if _is_number(self.classes) and (self.classes == -1).any() and _is_number(label):
                known = known | (label == -1)
            classes, value = self._encode(label, known)
        old = np.zeros((len(self.row), len(classes)))
        old[:, np.searchsorted(classes, self.classes)] = self.value
        stay = ~np.isin(self.row, index)
        row = np.concatenate([self.row[stay], index[known]])
        order = np.argsort(row, kind="stable")
        value = np.concatenate([old[stay], value[known]])[order]
        if len(row) == 0:
            raise ValueError("this would take away the last label: keep at least one")
        _check_classes(classes, value)
        return Targets(self.num_rows, classes, row[order], value)

    def _encode(self, label: NDArray[Any], known: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """The classes with any new ones, and one-hot rows (of zeros where there is no label)."""
        mine = label[known]
        if len(mine) and _kind(mine) != _kind(self.classes):
            raise ValueError(
                f"labels are {_kind(mine)}, such as {mine.tolist()[0]!r}, but the classes are {_kind(self.classes)}, "
                f"such as {self.classes.tolist()[0]!r}"
            )
        new = np.setdiff1d(mine, self.classes) if len(mine) else mine
        classes = self.classes
        if len(new):
            classes = np.unique(np.concatenate([self.classes, new.astype(np.result_type(new, self.classes))]))
        value = np.zeros((len(label), len(classes)))
        value[np.flatnonzero(known), np.searchsorted(classes, mine.astype(classes.dtype))] = 1
        return classes, value

    def _check_index(self, index: Any) -> NDArray[np.int64]:
        given = np.asarray(index.detach().cpu() if isinstance(index, Tensor) else index)
        if given.dtype == np.bool_ and given.shape == (self.num_rows,):
            given = np.flatnonzero(given)
        if given.size == 0:
            given = given.astype(np.int64)
        if given.ndim > 1 or given.dtype.kind not in "iu":
            raise ValueError(f"index must hold row numbers, got {given.dtype} of shape {given.shape}")
        given = np.atleast_1d(given).astype(np.int64)
        bad = given[(given < 0) | (given >= self.num_rows)]
        if len(bad):
            raise ValueError(
                f"label index {bad[0]} is out of range: the classifier was fitted on {self.num_rows} rows, "
                f"0 .. {self.num_rows - 1} ({len(bad)} of {len(given)} given are outside)"
            )
        if len(np.unique(given)) != len(given):
            raise ValueError("a row occurs twice in index: give every row one label")
        return given


def read_column(y: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """(n,) labels of one type, and which of them are labels (the others hold anything)."""
    masked = np.ma.getmaskarray(y) if isinstance(y, np.ma.MaskedArray) else None
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    elif isinstance(y, np.ma.MaskedArray):
        y = np.asarray(y.data)
    elif isinstance(y, list | tuple):
        y = _object_array(y)
    elif np.isscalar(y):
        y = _object_array([y])
    label = np.asarray(y)
    if label.ndim == 2 and label.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y to (n_samples,), "
            "for example using ravel().",
            DataConversionWarning,
            stacklevel=5,
        )
        label = label[:, 0]
    if label.ndim == 0:
        label = label[None]
    if label.ndim != 1:
        raise ValueError(f"y should be a 1d array of labels or a 2d array of soft labels, got shape {label.shape}")
    if label.dtype.kind == "O":
        label, known = _from_objects(label)
    elif label.dtype.kind == "b":
        known = np.ones(len(label), np.bool_)
    elif label.dtype.kind in "US":
        # The marks keep their own width: in the dtype of y, "nan" would be cut to "n" beside labels of one letter.
        known = ~np.isin(label, np.array(MARKS, label.dtype.kind))
    elif label.dtype.kind in "iuf":
        known = label != -1
    elif label.dtype.kind in "mM":
        known = ~np.isnat(label)
    else:
        raise ValueError(f"Unknown label type: y has dtype {label.dtype}")
    if label.dtype.kind == "f":
        known &= ~np.isnan(label)
        if not np.isfinite(label[known]).all():
            raise ValueError(f"y contains infinity in {int((~np.isfinite(label[known])).sum())} entries")
        if (label[known] != np.floor(label[known])).any():
            raise ValueError(
                "Unknown label type: continuous. y holds fractions, but classes are expected; soft labels are a "
                "matrix with one column per class"
            )
    return label, known if masked is None else known & ~masked


def _object_array(values: Any) -> NDArray[Any]:
    """A list with its elements kept as they are, unless it is a list of lists."""
    if len(values) and any(isinstance(v, list | tuple | np.ndarray | Tensor) for v in values):
        return np.asarray([v.tolist() if isinstance(v, Tensor) else v for v in values])
    if not any(isinstance(v, str) or v is None or not np.isscalar(v) for v in values):
        return np.asarray(values)
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _from_objects(label: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    known = np.fromiter((not _is_missing(v) for v in label), np.bool_, len(label))
    if not known.any():
        return np.full(len(label), -1), known
    text = np.fromiter((isinstance(v, str) for v in label[known]), np.bool_, int(known.sum()))
    if text.any() and not text.all():
        one, other = label[known][text.argmax()], label[known][text.argmin()]
        raise ValueError(f"y mixes strings and other labels, such as {one!r} and {other!r}; use one type")
    if text.all():
        return label, known
    plain = np.asarray(label[known].tolist())  # the natural type of what is there: integers, numbers, booleans
    if plain.ndim != 1 or plain.dtype.kind == "O":
        raise ValueError(f"Unknown label type: y holds objects such as {label[known][0]!r}")
    out = np.zeros(len(label), plain.dtype)
    out[known] = plain
    return out, known


def _is_missing(v: Any) -> bool:
    if v is None:
        return True
    if isinstance(v, str | bytes):
        return (v if isinstance(v, str) else v.decode(errors="replace")) in MARKS
    if isinstance(v, bool | np.bool_):
        return False
    try:
        return bool(v != v) or bool(v == -1)
    except (TypeError, ValueError):  # pandas' NA compares to NA
        return True


def read_soft(
    y: Any, expected: tuple[Any, ...] | None = None
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.bool_]] | None:
    """Classes, (n, C) shares and which rows have any, from a matrix; None where y is not one."""
    shape = getattr(y, "shape", None)
    if shape is None and isinstance(y, list | tuple) and len(y) and isinstance(y[0], list | tuple | np.ndarray):
        y = np.asarray(y)
        shape = y.shape
    if shape is None or len(shape) != 2 or shape[1] < 2:
        return None
    columns = getattr(y, "columns", None)
    value = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if isinstance(y, np.ma.MaskedArray):
        value = np.ma.filled(y.astype(np.float64), np.nan)
    if value.dtype.kind not in "iufb":
        raise ValueError(f"soft labels must be numbers, one column per class; got dtype {value.dtype}")
    counted = value.dtype.kind in "iub"
    value = value.astype(np.float64)
    if expected is not None and value.shape[1] != len(expected):
        raise ValueError(f"soft labels have {value.shape[1]} columns, but there are {len(expected)} classes")
    missing = np.isnan(value)
    known = ~missing.all(1) & (np.where(missing, 0, value) != 0).any(1)
    if counted and (odd := known & (value.sum(1) != 1)).any():
        # Most likely several outputs a row, or a matrix of class numbers: not what its shares would make of it.
        raise ValueError(
            f"y is a matrix of integers of shape {value.shape}, but {int(odd.sum())} rows are not one-hot, the first "
            f"being row {int(odd.argmax())}: {value[odd.argmax()].astype(int).tolist()[:8]}. Multi-output labels are "
            "not supported; shares of the classes (soft labels) are fractions: divide rows by their sums"
        )
    bad = known & ~((value >= 0) & np.isfinite(value)).all(1)
    if bad.any():
        raise ValueError(
            f"{int(bad.sum())} rows of soft labels hold negative, infinite or some missing values, the first being row "
            f"{int(bad.argmax())}"
        )
    total = np.where(known, np.where(missing, 0, value).sum(1), 1)
    value = np.where(known[:, None], value / total[:, None], 0)
    names = np.arange(value.shape[1]) if columns is None else np.asarray(columns)
    order = np.argsort(names, kind="stable")
    if len(np.unique(names)) != len(names):
        raise ValueError("two columns of soft labels have the same name")
    return names[order], value[:, order], known


def _check_classes(classes: NDArray[Any], value: NDArray[np.float64]) -> None:
    if np.count_nonzero(value.sum(0)) < 2:
        only = classes.tolist()[int(value.sum(0).argmax())]
        raise ValueError(f"only one class is labelled, {only!r}: give labels of at least two classes")


def _is_number(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "iuf"


def _kind(values: NDArray[Any]) -> str:
    kinds = {"b": "booleans", "i": "numbers", "u": "numbers", "f": "numbers", "m": "times", "M": "times"}
    return kinds.get(values.dtype.kind, "strings")


def _check_length(found: int, wanted: int) -> None:
    if found != wanted:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: X has {wanted} rows, y {found}")
