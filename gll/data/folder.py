"""The user's own images from a folder: one subfolder a class, and a folder `unlabelled` for the rest.

    photos/cat/*.jpg                 photos/train/cat/*.jpg
    photos/dog/*.png                 photos/train/dog/*.png
    photos/unlabelled/*.jpg          photos/train/unlabelled/*.jpg   (or photos/unlabelled)
                                     photos/test/cat/*.jpg
                                     photos/test/dog/*.jpg

Images lie in memory as bytes, all of one size. They are read by threads: Pillow leaves Python's lock while it decodes.
What is wrong is said of all files in one go.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np
import torch
from jaxtyping import UInt8
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from gll.data.readers import DataError
from gll.data.samples import TrainTest, channel_statistics, sorted_names
from gll.projected import progress_bar
from gll.words import counted

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm", ".pbm")
UNLABELLED = ("unlabelled", "unlabeled")
GREY = ("1", "L", "LA", "La")
DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
BLOCK = 32  # files that a thread reads in a row
SHOW_FROM = 1000  # files from which on a progress bar is worth its place
NAMED = 20  # problems that are said; more are counted
LARGEST = 64 * 2**30  # bytes of pixels; more is a folder of photographs that should be scaled down
T = TypeVar("T")


@final
@dataclass(frozen=True)
class _Bad:
    """A file that cannot be read, and why."""

    said: str


@final
@dataclass(frozen=True)
class _Head:
    """What a file says about its image before it is decoded: (height, width) as shown, and whether it is grey."""

    shape: tuple[int, int]
    grey: bool


def load_folder(path: Path, *, size: int | None = None, channels: int | None = None) -> TrainTest:
    """Images and classes from a folder; see the top of this file for how it should be laid out.

    Args:
        path: the folder.
        size: images are cropped in the middle to a square and scaled to size × size pixels; needed where sizes differ.
        channels: 1: all are made grey, 3: all are made coloured. By default grey if all of them are grey.

    Raises:
        DataError: folders without images, files that cannot be read, sizes that differ: all that is wrong.

    Differentiable in: nothing.
    """
    problems: list[str] = []
    train, test = _parts(path, problems)
    names = sorted_names([name for name in train if name not in UNLABELLED])
    if len(names) < 2:
        few = (
            f"{path} has {counted(len(names), 'folder')} of classes, at least two are needed: one folder a class, and "
        )
        _refuse([*problems, f"{few}a folder {UNLABELLED[0]} for images whose class is not known"])
    problems += [
        f"{path}/test has a folder {strange!r}, and training has no such class"
        + ("; gll predict is for images whose class is not known" if strange in UNLABELLED else "")
        for strange in sorted(set(test) - set(names))
    ]
    order = [*names, *(name for name in train if name in UNLABELLED)]
    number = {name: i if i < len(names) else -1 for i, name in enumerate(order)}
    files = [file for name in order for file in train[name]]
    tested = [file for name in names for file in test.get(name, ())]
    images = read_images([*files, *tested], size=size, channels=channels, problems=problems)
    labels = torch.tensor([number[name] for name in order for _ in train[name]], dtype=torch.int64)
    answers = torch.tensor([number[name] for name in names for _ in test.get(name, ())], dtype=torch.int64)
    mean, std = channel_statistics(images[: len(files)])
    return TrainTest(path.name, images[: len(files)], labels, images[len(files) :], answers, names, mean, std)


def list_images(folder: Path) -> list[Path]:
    """The images in a folder and in those below it, sorted; hidden files and files of other kinds are left out.

    Args:
        folder: where to look.
    """
    found = []
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        kept = (n for n in sorted(names) if n.lower().endswith(SUFFIXES) and not n.startswith("."))
        found += [Path(where, name) for name in kept]
    return found


def read_images(
    files: Sequence[Path], *, size: int | None = None, channels: int | None = None, problems: Sequence[str] = ()
) -> UInt8[Tensor, "n c h w"]:
    """Images of one size, as bytes: upright as a viewer shows them, transparent parts white.

    Args:
        files: the images.
        size: crop them in the middle to a square, and scale that to size × size pixels.
        channels: 1 or 3 makes all of them grey or coloured; by default grey if all of them are grey.
        problems: what is known to be wrong already, and is said together with what is found here.

    Raises:
        DataError: files that cannot be read, all of which are looked at; or the sizes differ and `size` is not given.

    Differentiable in: nothing.
    """
    if channels not in (None, 1, 3):
        raise ValueError(f"channels must be 1 (grey) or 3 (colour), got {channels}")
    if size is not None and size < 1:
        raise ValueError(f"size must be at least 1 pixel, got {size}")
    if not files:
        _refuse([*problems, "there are no images to read"])
    looked = dict(zip(files, _in_threads("looking at images", files, _head), strict=True))
    heads = {file: head for file, head in looked.items() if isinstance(head, _Head)}
    problems = [*problems, *(head.said for head in looked.values() if isinstance(head, _Bad))]
    if size is None:
        problems = [*_different_shapes(heads), *problems]
    if problems:
        rest = _in_threads("reading images", list(heads), lambda file: _pixels(file, 3, size).shape)
        _refuse([*problems, *(bad.said for bad in rest if isinstance(bad, _Bad))])
    shape = (size, size) if size is not None else next(iter(heads.values())).shape
    c = channels or (1 if all(head.grey for head in heads.values()) else 3)
    needed = len(files) * c * shape[0] * shape[1]
    if needed > LARGEST:
        raise DataError(
            f"{len(files):,} images of {shape[0]} × {shape[1]} pixels would take {needed / 2**30:,.0f} GiB of memory: "
            "scale them down by giving a size"
        )
    out = torch.empty((len(files), c, *shape), dtype=torch.uint8)
    rows = out.numpy()

    def decode(i: int, file: Path) -> bool:
        pixels = _pixels(file, c, size)
        if pixels.shape[1:] != shape:
            raise DataError(f"{file} has changed while it was read")
        rows[i] = pixels
        return c == 3 and bool((pixels[0] != pixels[1]).any() or (pixels[0] != pixels[2]).any())

    coloured = _in_threads("reading images", list(enumerate(files)), lambda pair: decode(*pair))
    _refuse([bad.said for bad in coloured if isinstance(bad, _Bad)])
    # Grey images are often stored with three equal channels.
    return out[:, :1].contiguous() if channels is None and not any(coloured) else out


def _refuse(problems: Sequence[str]) -> None:
    """An error that says all of them, up to a number, if there are any."""
    if len(problems) == 1:
        raise DataError(problems[0])
    if problems:
        more = [f"... and {len(problems) - NAMED:,} more"] if len(problems) > NAMED else []
        raise DataError("\n".join([f"{len(problems):,} things are wrong:", *problems[:NAMED], *more]))


def _parts(path: Path, problems: list[str]) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """Files by the name of their folder, for training and for testing."""
    inside = {entry.name: entry for entry in _folders(path)}
    if "train" not in inside:
        if "test" in inside:
            raise DataError(f"{path} has a folder 'test', but no 'train': put the folders of classes into {path}/train")
        return _classes(path, problems), {}
    extra = [name for name in inside if name not in ("train", "test", *UNLABELLED)]
    if extra:
        raise DataError(f"{path} has folders 'train' and {extra[0]!r}: folders of classes belong into {path}/train")
    train = _classes(inside["train"], problems)
    for name in UNLABELLED:
        if name in inside:
            train[UNLABELLED[0]] = train.get(UNLABELLED[0], []) + _images_of(inside[name], problems)
    return train, _classes(inside["test"], problems) if "test" in inside else {}


def _classes(path: Path, problems: list[str]) -> dict[str, list[Path]]:
    loose = [file.name for file in sorted(path.iterdir()) if file.is_file() and file.name.lower().endswith(SUFFIXES)]
    if loose:
        problems.append(
            f"{path} has images beside its folders, such as {loose[0]}: put every image into the folder of its class, "
            f"or into {UNLABELLED[0]}"
        )
    found: dict[str, list[Path]] = {}
    for folder in _folders(path):
        name = UNLABELLED[0] if folder.name in UNLABELLED else folder.name
        found[name] = found.get(name, []) + _images_of(folder, problems)
    return found


def _folders(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith((".", "__")))


def _images_of(folder: Path, problems: list[str]) -> list[Path]:
    files = list_images(folder)
    if not files:
        kinds = {file.suffix or file.name for file in folder.rglob("*") if file.is_file()}
        held = f"files of kind {', '.join(sorted(kinds)[:5])}" if kinds else "nothing"
        problems.append(f"{folder} has no images: it holds {held}; read are {', '.join(SUFFIXES)}")
    return files


def _different_shapes(heads: Mapping[Path, _Head]) -> list[str]:
    """What to say if the images are not all of one size."""
    shapes = {head.shape: file for file, head in reversed(list(heads.items()))}
    if len(shapes) < 2:
        return []
    some = "; ".join(f"{h} × {w}: {file}" for (h, w), file in list(reversed(shapes.items()))[:3])
    advice = "data.size = 32 in a config, --size 32 on the command line, size=32 in Python"
    head = f"the images have {len(shapes)} different sizes (height × width), e.g. {some}"
    return [f"{head}. Give a size, such as 32, to crop and scale them all: {advice}"]


def _head(file: Path) -> _Head:
    with Image.open(file) as image:
        if image.mode in DEEP:
            raise DataError(f"its pixels have more than 8 bits (mode {image.mode}): convert it to 8 bits first")
        width, height = image.size
        turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)  # orientations that lie on their side
        return _Head((width, height) if turned else (height, width), image.mode in GREY)


def _pixels(file: Path, channels: int, size: int | None) -> NDArray[np.uint8]:
    mode = "L" if channels == 1 else "RGB"
    with Image.open(file) as opened:
        if size is not None:
            opened.draft(None, (2 * size, 2 * size))  # a JPEG need not be decoded at its full size
        image = ImageOps.exif_transpose(opened)
        if image.has_transparency_data:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        image = image.convert(mode)
        if size is not None:
            image = ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)
        pixels = np.asarray(image)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _in_threads(task: str, items: Sequence[Any], work: Callable[[Any], T]) -> list[T | _Bad]:
    """`work` on every item, in order; where it fails, the reason."""

    def block(start: int) -> list[T | _Bad]:
        done: list[T | _Bad] = []
        for item in items[start : start + BLOCK]:
            try:
                done.append(work(item))
            except Exception as error:  # Pillow's readers fail in many ways
                file = item[1] if isinstance(item, tuple) else item
                done.append(_Bad(f"{file} cannot be read as an image: {error}"))
        return done

    starts = range(0, len(items), BLOCK)
    found: list[T | _Bad] = []
    pool = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 2))
    try:
        with progress_bar() as show:
            for done in pool.map(block, starts):
                found += done
                if len(items) >= SHOW_FROM:
                    show(task, len(found), len(items))
    finally:
        pool.shutdown(cancel_futures=True)
    return found
