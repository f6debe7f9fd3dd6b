"""Data sets by name or path: `load("mnist")`, `load("my/folder")`, `load("images.npz")`."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from gll.data.arrays import load_npz
from gll.data.folder import load_folder
from gll.data.readers import DataError
from gll.data.samples import TrainTest, normalize
from gll.data.sources import SOURCES

__all__ = ["TrainTest", "data_root", "load", "normalize"]


def data_root(given: Path | str | None = None) -> Path:
    """Where data sets lie: the folder given, else that of the environment variable GLL_DATA, else ./data."""
    return Path(given or os.environ.get("GLL_DATA") or "data").expanduser()


def load(
    name: str,
    root: Path | str | None = None,
    *,
    size: int | None = None,
    channels: int | None = None,
    check: bool = True,
) -> TrainTest:
    """A data set, by its name or from the user's own files.

    Args:
        name: one of `gll data list` (digits, moons, mnist, fashionmnist, emnist, cifar10), or the path
            of a folder of images or of an .npz file, from here or from the root.
        root: where data sets lie; see `data_root`.
        size: images of a folder are cropped and scaled to size × size pixels; needed where their sizes differ.
        channels: 1 or 3 makes the images of a folder grey or coloured; by default they are grey if all of them are.
        check: compare the files of a known data set with their checksums.

    Raises:
        DataError: something is missing or damaged; the message says what to fetch and where it goes.

    >>> load("digits").classes
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')

    Differentiable in: nothing.
    """
    source = SOURCES.get(name.lower())
    if source is not None:
        if size is not None or channels is not None:
            raise ValueError(
                f"size and channels are for folders of images, not for {source.name} (which can be padded)"
            )
        return source.load(data_root(root), check)
    path = _own_path(name, root)
    if path.is_dir():
        return load_folder(path, size=size, channels=channels)
    if size is not None or channels is not None:
        raise ValueError(f"size and channels are for folders of images, not for the file {path}")
    return load_npz(path)


def _own_path(name: str, root: Path | str | None) -> Path:
    """The user's own folder or file, from here or from the root."""
    for path in (Path(name).expanduser(), data_root(root) / name):
        if path.exists():
            return path
    near = difflib.get_close_matches(name.lower(), SOURCES, 1)
    raise DataError(
        f"there is no data set, folder or file {name!r}"
        + (f" (did you mean {near[0]!r}?)" if near else "")
        + f"; known data sets are {', '.join(SOURCES)}; a path may start here or in {data_root(root)}"
    )
