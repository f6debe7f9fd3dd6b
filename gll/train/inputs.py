"""What a trained model is to be applied to: image files, folders, .npz files, and data sets by name.

Every argument of `gll embed` and `gll predict` is one of these; together they become one tensor that the run's encoder
can take, or an error that says what differs from what the run was trained on.

The run's own samples are recognised by their content, whatever file they come from: their hidden classes must not turn
up as labels, and how well the run does on them is not how well it does on new ones. Read next: `apply.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

import numpy as np
import torch
from jaxtyping import Int64, Num
from torch import Tensor

from gll.data.arrays import TRAIN, TRAIN_LABELS, load_npz, read_samples
from gll.data.datasets import TrainTest, data_root, load
from gll.data.folder import SUFFIXES, list_images, read_images
from gll.data.readers import DataError, open_npz
from gll.data.sources import SOURCES
from gll.train.config import with_values
from gll.train.model import load_data
from gll.train.runs import Run
from gll.words import counted

PARTS = ("train", "test")


@final
@dataclass(frozen=True, eq=False)
class Samples:
    """Images (or points) in the form the run was trained on.

    Args:
        x: bytes (n, c, h, w), or points (n, d).
        ids: a name for each, no two alike.
        truth: the class of each, -1 where it is not known.
        labels: the classes that may be learned from. Of the run's training samples those it was told; of its test
            samples none; of other samples all that are known. -1 elsewhere.
        own: which of the run's training samples it is, -1 if none.

    Differentiable in: nothing.
    """

    x: Num[Tensor, "n *sample"]
    ids: tuple[str, ...]
    truth: Int64[Tensor, " n"]
    labels: Int64[Tensor, " n"]
    own: Int64[Tensor, " n"]


def read_inputs(names: Sequence[str], run: Run, data: TrainTest, *, convert: bool = False) -> Samples:
    """Read the images that the arguments of a command name.

    Args:
        names: image files, folders of images, .npz files, or data sets such as "mnist" or "mnist:test".
        run: whose model is to be applied.
        data: what it was trained on, as the encoder saw it.
        convert: crop and scale image files to the run's size, and make them grey or coloured as its images are.

    Raises:
        DataError: there is no such thing, or the run's model cannot take it.
    """
    if not names:
        raise DataError("no images given")
    found, files = list[Samples](), list[Path]()
    root = data_root(run.config.data.root or None)
    for name in names:
        source, part = _with_part(name)
        path = _place(source, root)
        if _same(source, run.config.data.name, root) and not (path.is_dir() and part is None):
            found.append(_from_data(data, part, source, run, data, own=True))
        elif source.lower() in SOURCES:
            found.append(_from_data(_padded(load(source, root), run), part, source, run, data, own=False))
        elif path.suffix.lower() in SUFFIXES and path.is_file():
            files.append(path)
        elif path.is_dir() and part is None:
            inside = list_images(path)
            if not inside:
                raise DataError(f"{path} has no images ({', '.join(SUFFIXES)})")
            files += inside
        elif path.suffix.lower() == ".npz" and path.is_file():
            found.append(_from_npz(path, part, run, data))
        elif path.exists():
            raise DataError(
                f"{path} is neither a folder of images, nor an .npz file, nor an image ({', '.join(SUFFIXES)})"
            )
        else:
            raise DataError(
                f"there is no file, folder or data set {name!r}; known data sets are {', '.join(SOURCES)}, and :train "
                "or :test after such a name takes a part of it"
            )
    if files:
        found.append(_from_files(files, run, data, convert))
    return _joined(found)


def _place(source: str, root: Path) -> Path:
    """Where a file or folder is: from here or from where data sets lie, as in `load`."""
    here = Path(source).expanduser()
    return here if here.exists() else root / source


def _same(source: str, own: str, root: Path) -> bool:
    """Whether the run's data is called so too: by a name in any case, or by another path to the same place."""
    if source.lower() in SOURCES or own.lower() in SOURCES:
        return source.lower() == own.lower()
    return _place(source, root).resolve() == _place(own, root).resolve()


def _recognised(new: Samples, run: Run, data: TrainTest) -> Samples:
    """The same, where copies of the run's training and test samples count as these.

    The second of two samples that are alike stands for the second such training sample, and so on.
    """
    classes, answers = data.train_labels.cpu(), data.test_labels.cpu()
    told = run.split.hidden(classes)
    places: dict[bytes, list[int]] = {}
    for i, key in enumerate(_digests(data.train)):
        places.setdefault(key, []).append(i)
    tests = {key: i for i, key in enumerate(_digests(data.test))}
    own, labels, truth = new.own.clone(), new.labels.clone(), new.truth.clone()
    met: dict[bytes, int] = {}
    for row, key in enumerate(_digests(new.x)):
        if key in places:
            met[key] = met.get(key, -1) + 1
            i = places[key][met[key] % len(places[key])]
            own[row], labels[row], known = i, told[i], classes[i]
        elif key in tests:
            labels[row], known = -1, answers[tests[key]]
        else:
            continue
        truth[row] = known if truth[row] < 0 else truth[row]
    return replace(new, own=own, labels=labels, truth=truth)


def _digests(x: Tensor) -> list[bytes]:
    return [hashlib.blake2b(row, digest_size=16).digest() for row in x.cpu().contiguous().numpy()]


def _with_part(name: str) -> tuple[str, str | None]:
    source, _, part = name.rpartition(":")
    return (source, part) if source and part in PARTS else (name, None)


def _from_data(other: TrainTest, part: str | None, source: str, run: Run, data: TrainTest, *, own: bool) -> Samples:
    """A data set, or the part "train" or "test" of it."""
    parts = {"train": (other.train, other.train_labels), "test": (other.test, other.test_labels)}
    known = {name: data.classes.index(name) for name in other.classes if name in data.classes}
    # One place more, at the end, which -1 finds: not known.
    number = torch.tensor([*(known.get(name, -1) for name in other.classes), -1])
    made = []
    for name, (x, y) in parts.items():
        if part not in (None, name) or (len(x) == 0 and part is None):
            continue
        if len(x) == 0:
            raise DataError(f"{source} has no {name} samples")
        _check_form(x, f"{source}:{name}", data)
        truth = number[y.cpu()]
        rows = torch.arange(len(x))
        mine = own and name == "train"
        # Test labels are for testing: nobody who fits to these features should find them among the labels.
        labels = run.split.hidden(truth) if mine else torch.full_like(truth, -1) if name == "test" else truth
        ids = tuple(f"{source}:{name}:{i}" for i in range(len(x)))
        made.append(Samples(x, ids, truth, labels, rows if mine else torch.full_like(rows, -1)))
    return _joined(made) if own else _recognised(_joined(made), run, data)


def _from_npz(path: Path, part: str | None, run: Run, data: TrainTest) -> Samples:
    with open_npz(path) as file:
        labelled = any(name in file.files for name in TRAIN_LABELS)
        ids = np.asarray(file["ids"]) if "ids" in file.files else None
        names = [name for name in TRAIN if name in file.files]
        x = read_samples(path, "images", np.asarray(file[names[0]])) if len(names) == 1 and not labelled else None
        held = ", ".join(file.files) or "nothing"
    if labelled:
        found = _from_data(_padded(load_npz(path), run), part, str(path), run, data, own=False)
    elif x is None or part is not None:
        raise DataError(f"{path} needs one array of images: it has {held}, expected one of {', '.join(TRAIN)}")
    else:
        x = _padded(_bare(x, data), run).train
        _check_form(x, str(path), data)
        none = torch.full((len(x),), -1)
        found = _recognised(Samples(x, tuple(f"{path}:{i}" for i in range(len(x))), none, none, none), run, data)
    if ids is None or ids.shape != (len(found.ids),) or ids.dtype.kind not in "iuU":
        return found
    return replace(found, ids=tuple(map(str, ids.tolist())))


def _from_files(files: list[Path], run: Run, data: TrainTest, convert: bool) -> Samples:
    if not data.is_image:
        raise DataError(
            f"the run was trained on points of {counted(data.channels, 'dimension')}, not on images: give an .npz file"
        )
    if convert and run.config.data.pad:  # scaled to what the run's images were before they got their border
        channels, height, width = load_data(with_values(run.config, "data.pad=0")).train.shape[1:]
    else:
        channels, height, width = data.train.shape[1:]
    if convert and height != width:
        raise DataError(
            f"the run was trained on images of {height} × {width} pixels; only squares can be made by --convert"
        )
    # A run that has cropped and scaled its own photographs does so here too.
    size, own_channels = run.config.data.size or None, run.config.data.channels or None
    size, wanted = (height, channels) if convert else (size, own_channels)
    try:
        x = read_images(files, size=size, channels=wanted)
    except DataError as error:
        hint = f"; --convert brings them all to the run's {height} × {width}" if "different sizes" in str(error) else ""
        raise DataError(f"{error}{hint}") from None
    if x.shape[1] == 1 and channels == 3:
        x = x.expand(-1, 3, -1, -1).contiguous()  # grey is a colour
    x = _padded(_bare(x, data), run).train
    _check_form(x, str(files[0]) if len(files) == 1 else f"{files[0].parent} ({len(files):,} images)", data, files=True)
    truth = torch.tensor([data.classes.index(f.parent.name) if f.parent.name in data.classes else -1 for f in files])
    found = Samples(x, tuple(file.as_posix() for file in files), truth, truth, torch.full_like(truth, -1))
    return _recognised(found, run, data)


def _bare(x: Tensor, data: TrainTest) -> TrainTest:
    """Samples without classes as a data set, which knows how to pad itself."""
    n, c = len(x), x.shape[1]
    none = torch.full((n,), -1)
    return TrainTest("images", x, none, x[:0], none[:0], data.classes, (0.0,) * c, (1.0,) * c)


def _padded(other: TrainTest, run: Run) -> TrainTest:
    """As the run pads its own images."""
    size = run.config.data.pad
    return other.padded(size) if size and other.is_image and max(other.train.shape[2:]) <= size else other


def _check_form(x: Tensor, name: str, data: TrainTest, files: bool = False) -> None:
    own = data.train
    if x.shape[1:] == own.shape[1:] and x.dtype == own.dtype:
        return
    hint = "; make them so, or save them as image files: --convert then does it"
    if files:
        hint = "; --convert crops, scales and colours them so"
    elif x.dim() != 4 or own.dim() != 4:
        hint = ""
    colours = x.shape[1] != own.shape[1]  # else the size is what differs; black photographs are called grey nowhere
    raise DataError(
        f"{name} has {_form(x, colours)}, but the run was trained on {_form(own, colours)} ({data.name}){hint}"
    )


def _form(x: Tensor, colours: bool) -> str:
    if x.dim() == 2:
        return f"points of {counted(x.shape[1], 'dimension')}"
    colour = {1: "grey ", 3: "coloured "}.get(int(x.shape[1]), f"{x.shape[1]}-channel ") if colours else ""
    return f"{colour}images of {x.shape[2]} × {x.shape[3]} pixels"


def _joined(parts: list[Samples]) -> Samples:
    ids = tuple(name for part in parts for name in part.ids)
    if len(set(ids)) < len(ids):
        once = set[str]()
        twice = next(name for name in ids if name in once or once.add(name))  # type: ignore[func-returns-value]
        raise DataError(f"{twice} is given more than once")
    tensors = ("x", "truth", "labels", "own")
    x, truth, labels, own = (torch.cat([getattr(part, name).cpu() for part in parts]) for name in tensors)
    return Samples(x, ids, truth, labels, own)
