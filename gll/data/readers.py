"""File formats of the known data sets: IDX (plain or gzip'd), CIFAR's binary and Python versions, NumPy's .npz.

No file is trusted: nothing in it is executed, and what does not fit is an error that says so.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


class DataError(ValueError):
    """Data that is missing, damaged, or not in a form that can be read; the message says what to do."""


@contextmanager
def open_npz(path: Path) -> Iterator[Any]:
    """NumPy's .npz file without its pickles; what is wrong with it is a `DataError`."""
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    try:
        # Opened here: NumPy leaves a file open that it cannot read.
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            if not hasattr(file, "files"):
                raise DataError(f"{path} is a single array (.npy), not an .npz file")
            yield file
    except DataError:
        raise
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, OSError, NotImplementedError) as error:
        if "allow_pickle" in str(error):
            raise DataError(
                f"{path} holds Python objects, which are not loaded, because that would run code; store numbers, or "
                "strings of fixed width such as numpy.array(names, dtype=str)"
            ) from None
        raise DataError(f"{path} ({path.stat().st_size:,} bytes) is cut off or damaged: {error}") from None
