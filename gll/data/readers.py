"""File formats of the known data sets: IDX (plain or gzip'd), CIFAR's binary and Python versions, NumPy's .npz.

No file is trusted: nothing in it is executed, and what does not fit is an error that says so.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gll.input_files import damage_told

LARGEST = 2**31  # bytes that a compressed file may unpack to; the largest known one has 90 MB


class DataError(ValueError):
    """Data that is missing, damaged, or not in a form that can be read; the message says what to do."""


def read_bytes(path: Path) -> NDArray[np.uint8]:
    """What is in a file, as bytes that may be written to; a file that ends in .gz is unpacked."""
    try:
        if path.suffix != ".gz":
            return np.fromfile(path, np.uint8)
        with gzip.open(path) as file:
            content = bytearray(file.read(LARGEST))
            if len(content) == LARGEST:
                raise DataError(f"{path} unpacks to more than {LARGEST:,} bytes: it cannot be what it should be")
        return np.frombuffer(content, np.uint8)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def md5(content: NDArray[np.uint8]) -> str:
    """The checksum by which these data sets are published; it tells damage, not intent."""
    return hashlib.md5(content.data, usedforsecurity=False).hexdigest()


def parse_idx(content: NDArray[np.uint8], path: Path) -> NDArray[np.uint8]:
    """An array from the IDX format of MNIST: 0, 0, type 8 (bytes), number of axes, their lengths, the values.

    Args:
        content: the bytes of the file, unpacked.
        path: where they are from, for the message.
    """
    if len(content) < 4 or content[0] or content[1] or content[2] != 8 or not 1 <= content[3] <= 4:
        start = bytes(content[:4]).hex(" ") or "nothing"
        raise DataError(f"{path} is not an IDX file of bytes: it starts with {start}")
    head = 4 + 4 * int(content[3])
    shape = tuple(int.from_bytes(bytes(content[at : at + 4]), "big") for at in range(4, head, 4))
    if len(content) != head + math.prod(shape):
        raise DataError(
            f"{path} is cut off or damaged: its head speaks of {' × '.join(map(str, shape))} bytes, and "
            f"{max(len(content) - head, 0):,} are there"
        )
    return content[head:].reshape(shape)


def parse_cifar_binary(content: NDArray[np.uint8], path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, 3, 32, 32) and classes from CIFAR-10's binary version: for every image its class, then 3,072 bytes."""
    if len(content) == 0 or len(content) % 3073:
        raise DataError(
            f"{path} is cut off or damaged: it has {len(content):,} bytes, which is not a multiple of 3,073 (a class "
            "and 3 × 32 × 32 pixels for every image)"
        )
    rows = content.reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].copy()


def parse_cifar_python(content: NDArray[np.uint8], path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Images (n, 3, 32, 32) and classes from CIFAR-10's Python version, a pickle.

    A pickle is a program. This one may only build numbers, texts, lists, dictionaries, and what stands for an array:
    its shape and its bytes, from which we make the array ourselves.
    """
    try:
        batch = _CifarUnpickler(io.BytesIO(content.data), encoding="bytes").load()
        entry = {key.encode() if isinstance(key, str) else key: value for key, value in batch.items()}
        images, labels = entry[b"data"].to_numpy(), np.array(entry[b"labels"])
        if images.shape != (len(labels), 3072) or labels.dtype.kind != "i" or not (labels >> 8 == 0).all():
            raise ValueError(f"images of shape {images.shape}, classes of {labels.dtype}, shape {labels.shape}")
    except Exception as error:  # a damaged pickle may fail in any way
        said = str(error) if isinstance(error, ValueError) else repr(error)
        raise DataError(f"{path} is not a batch of CIFAR-10's Python version, or damaged: {said}") from None
    return images.reshape(-1, 3, 32, 32), labels.astype(np.uint8)


class _Pickled:
    """Stands for an object of NumPy's: it is told how it is made, and only remembers it."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _PickledType(_Pickled):
    pass


class _PickledArray(_Pickled):
    def to_numpy(self) -> NDArray[np.uint8]:
        """The array, if it is one of bytes, in the order of C."""
        _, shape, dtype, fortran, content = self.state
        if not isinstance(dtype, _PickledType) or dtype.arguments[0] not in (b"u1", "u1") or fortran:
            raise ValueError("the images are not an array of bytes in the order of C")
        return np.frombuffer(bytearray(content), np.uint8).reshape(shape)


# Names in a pickle, and what they make here. The last one is only ever an argument of the first two.
_PICKLED = {
    "numpy.core.multiarray._reconstruct": _PickledArray,
    "numpy._core.multiarray._reconstruct": _PickledArray,
    "numpy.dtype": _PickledType,
    "numpy.ndarray": _Pickled,
}


class _CifarUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        name = f"{module_name}.{global_name}"
        if name not in _PICKLED:
            raise ValueError(f"it asks for {name}, which was refused: it could run any code")
        return _PICKLED[name]


@contextmanager
def open_npz(path: Path) -> Iterator[Any]:
    """NumPy's .npz file without its pickles; what is wrong with it is a `DataError`."""
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    # Opened here: NumPy leaves a file open that it cannot read.
    with damage_told(path, DataError), path.open("rb") as opened:
        file = np.load(opened, allow_pickle=False)
        if isinstance(file, np.ndarray):
            raise DataError(f"{path} is a single array (.npy), not an .npz file: numpy.savez writes one")
        with file:
            yield file
