"""The user's own samples from NumPy's .npz file: images of bytes, or points in floats.

The arrays are found by their names:

    train, test parts     x_train, y_train, x_test, y_test     (also train_images, train_labels, ...)
    one part              images, labels                       (also x, y; features for points)
    names of the classes  classes                              (if you like)

Classes are whole numbers, -1 where the class is not known, or texts, empty where it is not known. Other arrays in the
file are left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gll.data.readers import DataError, open_npz
from gll.data.samples import TrainTest, channel_statistics, sorted_names
from gll.words import counted

TRAIN = ("x_train", "X_train", "train_images", "train", "images", "x", "X", "features", "embeddings")
TRAIN_LABELS = ("y_train", "train_labels", "labels", "y", "Y")
TEST = ("x_test", "X_test", "test_images", "test")
TEST_LABELS = ("y_test", "test_labels")
HOW = "numpy.savez(path, x_train=images, y_train=classes, x_test=..., y_test=...) writes one"


def load_npz(path: Path) -> TrainTest:
    """Samples from an .npz file; see the top of this file for the names of the arrays.

    Args:
        path: the file.

    Differentiable in: nothing.
    """
    with open_npz(path) as file:
        x, y = (_pick(path, file, names) for names in (TRAIN, TRAIN_LABELS))
        test, answer = (_pick(path, file, names) for names in (TEST, TEST_LABELS))
        names = np.asarray(file["classes"]) if "classes" in file.files else None
        held = ", ".join(file.files) or "nothing"
    if x is None or y is None:
        wanted = ", ".join(TRAIN if x is None else TRAIN_LABELS)
        what = "samples" if x is None else "classes"
        raise DataError(f"{path} has no array of {what}: it has {held}, expected one of {wanted}; {HOW}")
    if (test is None) != (answer is None):
        raise DataError(f"{path} has test samples without classes, or the other way round: it has {held}")
    train = read_samples(path, "training samples", x)
    tested = train[:0] if test is None else read_samples(path, "test samples", test)
    labels, answers, classes = _classes(path, y, answer, names)
    for what, samples, given in (("training sample", train, labels), ("test sample", tested, answers)):
        if len(samples) != len(given):
            raise DataError(f"{path} has {counted(len(samples), what)}, but {counted(len(given), 'class')} for them")
    if train.dim() == 4:
        mean, std = channel_statistics(train)
    else:
        mean, std = (0.0,) * train.shape[1], (1.0,) * train.shape[1]
    try:
        return TrainTest(path.stem, train, labels, tested, answers, classes, mean, std)
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: {error}") from None


def _pick(path: Path, file: Any, names: tuple[str, ...]) -> NDArray[Any] | None:
    found = [name for name in names if name in file.files]
    if len(found) > 1:
        raise DataError(f"{path} has arrays {' and '.join(found)}, which may all be meant: keep one of them")
    return np.asarray(file[found[0]]) if found else None


def read_samples(path: Path, what: str, x: NDArray[Any]) -> Tensor:
    """Images (n, c, h, w) from (n, h, w), (n, h, w, c) or (n, c, h, w); points (n, d).

    Args:
        path, what: where they are from, and what they are, for the message.
        x: the array.

    Differentiable in: nothing.
    """
    if x.dtype.byteorder == ">":
        x = x.astype(x.dtype.newbyteorder("="))
    if len(x.shape) == 0 or 0 in x.shape[1:] or len(x) == 0:
        raise DataError(f"{path}: there are no {what}: the array has shape {x.shape}")
    if x.ndim == 2 and x.dtype.kind in "fiu":
        points = torch.from_numpy(x.astype(np.float32))
        if not bool(torch.isfinite(points).all()):
            row = int((~torch.isfinite(points)).any(1).nonzero()[0])
            raise DataError(f"{path}: the {what} have entries that are NaN, infinite or too large, first in row {row}")
        return points
    if x.ndim not in (3, 4) or x.dtype != np.uint8:
        hint = ""
        if x.ndim in (3, 4):
            hint = "; write images from 0 to 255 as x.astype('uint8'), from 0 to 1 as (255 * x).round().astype('uint8')"
        raise DataError(
            f"{path}: the {what} must be images of bytes (uint8) of shape (n, height, width), (n, height, width, 3) or "
            f"(n, 3, height, width), or points (n, d); got {x.dtype} of shape {x.shape}{hint}"
        )
    if x.ndim == 3:
        return torch.from_numpy(x[:, None])
    first, last = x.shape[1] in (1, 3), x.shape[3] in (1, 3)
    if first == last:
        raise DataError(
            f"{path}: the {what} have shape {x.shape}, where "
            + ("both the second and the last axis" if first else "neither the second nor the last axis")
            + " may be the channels (1: grey, 3: colour); leave out other channels, such as transparency"
        )
    return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if last else x)


def _classes(
    path: Path, y: NDArray[Any], answer: NDArray[Any] | None, names: NDArray[Any] | None
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Labels of training and test samples as whole numbers, and the names of the classes."""
    parts = [_label_column(path, part) for part in (y, y[:0] if answer is None else answer)]
    if parts[0].dtype.kind != parts[1].dtype.kind and len(parts[1]):
        raise DataError(f"{path}: classes for training are {parts[0].dtype}, for testing {parts[1].dtype}")
    if names is not None:
        given = tuple(map(str, names.tolist())) if names.ndim == 1 and names.dtype.kind in "Uiu" else ()
        if len(set(given)) != len(names.reshape(-1)) or not given:
            raise DataError(f"{path}: 'classes' must hold distinct names, got {names.dtype} of shape {names.shape}")
    else:
        given = ()
    text = parts[0].dtype.kind == "U"
    known = parts[0][parts[0] != ("" if text else -1)]
    if given and not text:  # numbers are places in the list of names
        if len(known) and not 0 <= int(known.min()) <= int(known.max()) < len(given):
            raise DataError(
                f"{path}: there are {len(given)} names of classes, but labels from {known.min()} to {known.max()}"
            )
        value: dict[Any, int] = {i: i for i in range(len(given))}
    else:
        found = [str(v) for v in np.unique(known).tolist()]
        given = given or sorted_names(found)
        value = {(name if text else int(name)): i for i, name in enumerate(given)}
    if len(given) < 2:
        raise DataError(f"{path} has {counted(len(given), 'class')}: at least two are needed")
    labels = []
    for part, what in zip(parts, ("training", "test"), strict=True):
        once, place = np.unique(part, return_inverse=True)
        strange = [v for v in once.tolist() if v not in value and not (what == "training" and v in ("", -1))]
        if strange:
            why = "no training sample has" if names is None else "is not among 'classes'"
            raise DataError(f"{path}: a {what} sample has the class {strange[0]!r}, which {why}")
        table = torch.tensor([value.get(v, -1) for v in once.tolist()], dtype=torch.int64)
        labels.append(table[torch.from_numpy(place.reshape(-1))] if len(part) else torch.zeros(0, dtype=torch.int64))
    return labels[0], labels[1], given


def _label_column(path: Path, y: NDArray[Any]) -> NDArray[Any]:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or y.dtype.kind not in "iuU":
        hint = "; write whole numbers as y.astype(int)" if y.ndim == 1 and y.dtype.kind in "fb" else ""
        raise DataError(
            f"{path}: classes must be one whole number (-1: not known) or text (empty: not known) for every sample, "
            f"got {y.dtype} of shape {y.shape}{hint}"
        )
    if y.dtype.kind == "U":
        return y
    if len(y) and (int(y.max()) > 2**31 or int(y.min()) < -1):
        raise DataError(f"{path}: classes lie between {y.min()} and {y.max()}; they start at 0, and -1 means not known")
    return y.astype(np.int64)
