"""Features read from a file, for the command line: which array they are, and whether they can be used."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from gll.doctor import FEATURE_NAMES
from gll.input_files import InputError, headers, kind_of, load_npy, load_sparse, open_npz, some


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


def read_features(path: Path, key: str | None = None) -> Features:
    """Points from an .npy file, an .npz file, or a sparse matrix that `scipy.sparse.save_npz` has written.

    Args:
        path: the file.
        key: name of the array in an .npz file; by default the only two-dimensional one, or one of the usual names.
    """
    kind = kind_of(path)
    if kind == "npy":
        if key is not None:
            raise InputError(f"{path} holds a single array, so there is no key {key!r} in it; leave out --key")
        return _features(path, None, load_npy(path), None)
    if kind != "npz":
        raise InputError(
            f"{path} is not an .npz or .npy file; write one with numpy.savez(path, features=x), numpy.save(path, x) "
            "or scipy.sparse.save_npz(path, x)"
        )
    with open_npz(path) as file:
        arrays = headers(file)
        if "format" in arrays and "shape" in arrays and "data" in arrays and key is None:
            return _features(path, None, load_sparse(path), None)
        name = _feature_key(path, arrays, key)
        ids = _ids(path, file["ids"]) if "ids" in arrays else None
        return _features(path, name, file[name], ids)


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
        f"{'row' if len(rows) == 1 else 'rows'} {some(rows.tolist())} (the first is {value[0]} in row {row[0]}, "
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
