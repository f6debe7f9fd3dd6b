"""Files that users bring, opened without trusting them; what is wrong with one is said in a sentence.

Arrays are loaded without pickles, so that nothing in them is executed.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.lib import format as npy
from numpy.typing import NDArray

# What NumPy and zipfile raise about a broken file.
DAMAGE = (ValueError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, OSError, NotImplementedError, MemoryError)


class InputError(ValueError):
    """A file or an option that cannot be used; the message says why, and what to do."""


def kind_of(path: Path) -> str:
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
def damage_told(path: Path, kind: type[ValueError]) -> Iterator[None]:
    """What is raised about a broken file becomes one sentence, in an error of this kind."""
    try:
        yield
    except kind:
        raise
    except DAMAGE as error:
        if isinstance(error, ValueError) and "allow_pickle" in str(error):
            raise kind(
                f"{path} holds Python objects, or is no .npz file or .npy file; objects are not loaded, since that "
                "would run code. Store numbers, or strings of fixed width such as numpy.array(names, dtype=str)"
            ) from None
        said = str(error) or type(error).__name__
        raise kind(f"{path} ({path.stat().st_size:,} bytes) is cut off or damaged: {said}") from None


@contextmanager
def open_npz(path: Path) -> Iterator[Any]:
    # Opened here: NumPy leaves a file open that it cannot read.
    with damage_told(path, InputError), path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        yield file


def load_npy(path: Path) -> NDArray[Any]:
    with damage_told(path, InputError), path.open("rb") as opened:
        return np.asarray(np.load(opened, allow_pickle=False))


def load_sparse(path: Path) -> Any:
    x = scipy.sparse.load_npz(path)
    if hasattr(x, "check_format"):
        x.check_format(full_check=True)  # indices that are out of range would be followed in memory
    return x.tocsr()


def headers(file: Any) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and type of every array, without reading the arrays."""
    found = {}
    for name in file.zip.namelist():
        with file.zip.open(name) as member:
            version = npy.read_magic(member)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read(member)
            found[name.removesuffix(".npy")] = (shape, dtype)
    return found


def decoded(path: Path) -> str:
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


def some(values: list[Any], most: int = 8) -> str:
    """The first few of a list."""
    return ", ".join(map(str, values[:most])) + (f", ... ({len(values):,} in all)" if len(values) > most else "")
