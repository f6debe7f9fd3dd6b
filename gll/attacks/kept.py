"""All attacked images of an evaluation, for other tools to look at: a file for each attack, if that was asked for.

    OUT/images/samples.npz    index (in the test set), labels, images: the samples as they are
    OUT/images/pgd-1f0c….npz  images: attacked, in the same order; predicted: their classes

Images are float32 in 0 .. 1, (n, channels, height, width). A file is named as that of its cell (`store.py`), and grows
with it. Read it by `numpy.load(path, allow_pickle=False)`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gll.files import complete_file

FOLDER = "images"


def keep(directory: Path, key: str, start: int, images: Tensor, predicted: Tensor) -> None:
    """Add the attacked images of a chunk to those of the chunks before it.

    Args:
        directory: the folder of results.
        key: of the cell.
        start: the number of its first sample; what was kept from there on is replaced.
        images, predicted: attacked images and their classes.
    """
    new = {"images": images.detach().float().cpu().numpy(), "predicted": predicted.cpu().numpy()}
    if start:
        before = _read(_path(directory, key))
        new = {name: np.concatenate([before[name][:start], array]) for name, array in new.items()}
    _write(_path(directory, key), new)


def kept(directory: Path, key: str) -> int:
    """How many images of a cell are there; none where the file cannot be read."""
    path = _path(directory, key)
    try:
        return len(_read(path)["images"]) if path.is_file() else 0
    except (OSError, ValueError, KeyError):
        return 0


def keep_samples(directory: Path, index: Tensor, labels: Tensor, images: Tensor) -> None:
    """Write the samples as they are."""
    arrays = {"index": index, "labels": labels, "images": images.float()}
    _write(_path(directory, "samples"), {name: tensor.cpu().numpy() for name, tensor in arrays.items()})


def _path(directory: Path, key: str) -> Path:
    return directory / FOLDER / f"{key}.npz"


def _read(path: Path) -> dict[str, NDArray[np.generic]]:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in ("images", "predicted")}


def _write(path: Path, arrays: dict[str, NDArray[np.generic]]) -> None:
    path.parent.mkdir(exist_ok=True)
    with complete_file(path) as part, part.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
