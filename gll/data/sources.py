"""The known data sets: where their files lie, what they should hold, and what to do where they do not."""

from __future__ import annotations

import string
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gll.data.readers import DataError, md5, parse_cifar_binary, parse_cifar_python, parse_idx, read_bytes
from gll.data.samples import TrainTest, channel_statistics

Bytes = NDArray[np.uint8]
DIGITS = tuple(string.digits)
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
# The capitals, and those small letters that do not look like their capitals.
CHARACTERS = (*string.digits, *string.ascii_uppercase, *"abdefghnqrt")
OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@final
@dataclass(frozen=True)
class DataFile:
    """A file of a data set: its name, and the md5 of what it holds when unpacked, where that is known."""

    name: str
    md5: str | None = None


@final
@dataclass(frozen=True)
class FileState:
    """A file as it was found: its path, whether it is there, and what is wrong with it (empty: nothing)."""

    path: Path
    present: bool
    problem: str
    checked: bool


class AbstractSource(ABC):
    """A data set that has a name.

    Args:
        name: for `load`.
        about: what it is, in a line.
    """

    name: str
    about: str

    @abstractmethod
    def load(self, root: Path, check: bool = True) -> TrainTest:
        """The data set, from its files under `root`; `check` compares their md5."""

    def folder(self, root: Path) -> Path | None:
        """Where its files lie; None where it has none."""
        return None

    def how(self, root: Path) -> str:
        """What to fetch, and where it goes."""
        return "nothing has to be fetched"

    def present(self, root: Path) -> tuple[int, int]:
        """How many of its files are there, and how many there should be."""
        return 0, 0

    def states(self, root: Path) -> list[FileState]:
        """Its files, each read and checked."""
        return []


ELSEWHERE = (
    "or elsewhere: set GLL_DATA, or data.root=FOLDER for gll train, pretrain and evaluate, --data-root for others"
)
"""How another folder is named, in messages."""


class AbstractFiles(AbstractSource):
    """A data set in files that someone has to fetch."""

    fetch: str

    @abstractmethod
    def version(self, root: Path) -> tuple[Path, Sequence[DataFile]]:
        """The folder, and the files that should be in it."""

    def folder(self, root: Path) -> Path:
        return self.version(root)[0]

    def how(self, root: Path) -> str:
        return f"{self.fetch}; the files belong into {self.folder(root)} ({ELSEWHERE})"

    def present(self, root: Path) -> tuple[int, int]:
        folder, files = self.version(root)
        return sum(_find(folder, file) is not None for file in files), len(files)

    def read(self, root: Path, check: bool = True) -> list[Bytes]:
        """What is in the files, in their order; raises where one is missing or not what it should be."""
        folder, files = self.version(root)
        paths = [path for file in files if (path := _find(folder, file)) is not None]
        if len(paths) < len(files):
            missing = ", ".join(file.name for file in files if _find(folder, file) is None)
            raise DataError(f"{self.name}: {folder} has no {missing}. To get it: {self.how(root)}")
        # Reading and checksums leave Python's lock, so threads help.
        with ThreadPoolExecutor() as pool:
            contents = list(pool.map(read_bytes, paths))
            sums = list(pool.map(md5, contents)) if check else [None] * len(files)
        for file, path, found in zip(files, paths, sums, strict=True):
            if check and file.md5 is not None and found != file.md5:
                raise DataError(
                    f"{self.name}: {path} is damaged, or another version: its md5 is {found}, not {file.md5}. "
                    f"Delete it and fetch it again: {self.how(root)}"
                )
        return contents

    def states(self, root: Path) -> list[FileState]:
        folder, files = self.version(root)
        found = []
        for file in files:
            path = _find(folder, file)
            if path is None:
                found.append(FileState(folder / file.name, False, "missing", False))
                continue
            try:
                content = read_bytes(path)
                self.parse(content, path)
                total = md5(content)
                wrong = "" if file.md5 in (None, total) else f"md5 {total}, not {file.md5}: fetch it again"
            except DataError as error:
                wrong = str(error)
            found.append(FileState(path, True, wrong, file.md5 is not None))
        return found

    @abstractmethod
    def parse(self, content: Bytes, path: Path) -> object:
        """What one file says; raises where it is damaged."""


def _find(folder: Path, file: DataFile) -> Path | None:
    """The file, plain or gzip'd; EMNIST's archive unpacks into a folder `gzip`."""
    places = (folder / file.name, folder / f"{file.name}.gz", folder / "gzip" / f"{file.name}.gz")
    return next((path for path in places if path.is_file()), None)


@final
@dataclass(frozen=True)
class IdxSource(AbstractFiles):
    """Grey images in four IDX files, plain or gzip'd: images and classes for training, and the same for testing.

    Args:
        place: the folder under the root.
        sums: md5 of the four files, None where they are not known.
        counts: how many images the two parts have.
        prefix: of the names of the files, for training and testing.
        transposed: rows and columns are swapped in the files, as in EMNIST; loading turns the images upright.
        statistics: mean and std; computed where None.
    """

    name: str
    about: str
    place: str
    fetch: str
    classes: tuple[str, ...]
    sums: tuple[str | None, ...] = (None,) * 4
    counts: tuple[int, int] = (60_000, 10_000)
    prefix: tuple[str, str] = ("train", "t10k")
    transposed: bool = False
    statistics: tuple[float, float] | None = None

    def version(self, root: Path) -> tuple[Path, Sequence[DataFile]]:
        names = [f"{prefix}-{what}-ubyte" for prefix in self.prefix for what in ("images-idx3", "labels-idx1")]
        return root / self.place, [DataFile(*pair) for pair in zip(names, self.sums, strict=True)]

    def parse(self, content: Bytes, path: Path) -> Bytes:
        return parse_idx(content, path)

    def load(self, root: Path, check: bool = True) -> TrainTest:
        folder, files = self.version(root)
        arrays = [parse_idx(c, folder / f.name) for c, f in zip(self.read(root, check), files, strict=True)]
        for at, count in zip((0, 2), self.counts, strict=True):
            x, y = arrays[at], arrays[at + 1]
            if x.ndim != 3 or y.shape != x.shape[:1] or (check and x.shape != (count, 28, 28)):
                raise DataError(
                    f"{self.name}: {count:,} images of 28 × 28 pixels and their classes were expected in {folder}, got "
                    f"images of shape {x.shape} and classes of shape {y.shape}"
                )
        train, test = (self._images(arrays[at]) for at in (0, 2))
        mean, std = channel_statistics(train) if self.statistics is None else [(v,) for v in self.statistics]
        labels = [torch.from_numpy(arrays[at]).long() for at in (1, 3)]
        return TrainTest(self.name, train, labels[0], test, labels[1], self.classes, mean, std)

    def _images(self, x: Bytes) -> Tensor:
        images = torch.from_numpy(x)[:, None]
        return images.transpose(2, 3).contiguous() if self.transposed else images


@final
@dataclass(frozen=True)
class CifarSource(AbstractFiles):
    """CIFAR-10 in its binary version, or in its Python version where only that is there."""

    name: str
    about: str
    fetch: str
    binary: tuple[str, ...]
    python: tuple[str, ...]
    mean: tuple[float, ...] = (0.4914, 0.4822, 0.4465)
    std: tuple[float, ...] = (0.2470, 0.2435, 0.2616)

    def version(self, root: Path) -> tuple[Path, Sequence[DataFile]]:
        names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
        binary = root / "cifar-10-batches-bin", list(map(DataFile, [f"{n}.bin" for n in names], self.binary))
        python = root / "cifar-10-batches-py", list(map(DataFile, names, self.python))
        # The one that has most of its files; the binary one where they are equal.
        return max((binary, python), key=lambda version: sum(bool(_find(version[0], file)) for file in version[1]))

    def parse(self, content: Bytes, path: Path) -> tuple[Bytes, Bytes]:
        return parse_cifar_binary(content, path) if path.suffix == ".bin" else parse_cifar_python(content, path)

    def load(self, root: Path, check: bool = True) -> TrainTest:
        folder, files = self.version(root)
        parts = [self.parse(c, folder / f.name) for c, f in zip(self.read(root, check), files, strict=True)]
        train, test = (torch.from_numpy(np.concatenate([x for x, _ in p])) for p in (parts[:5], parts[5:]))
        labels = [torch.from_numpy(np.concatenate([y for _, y in p])).long() for p in (parts[:5], parts[5:])]
        return TrainTest(self.name, train, labels[0], test, labels[1], OBJECTS, self.mean, self.std)


@final
@dataclass(frozen=True)
class DigitsSource(AbstractSource):
    """1,797 digits of 8 × 8 pixels that come with scikit-learn; every fifth of each class is for testing."""

    name: str = "digits"
    about: str = "handwritten digits of 8 × 8 pixels, part of scikit-learn"

    def load(self, root: Path, check: bool = True) -> TrainTest:
        from sklearn.datasets import load_digits

        x, y = load_digits(return_X_y=True)
        images = torch.from_numpy(np.round(x * (255 / 16)).astype(np.uint8)).reshape(-1, 1, 8, 8)
        labels = torch.from_numpy(y).long()
        # Not drawn at random, so that the split is the same with every version of every library.
        rank = (labels[:, None] == torch.arange(10)).cumsum(0).gather(1, labels[:, None])[:, 0]
        test = rank % 5 == 0
        mean, std = channel_statistics(images[~test])
        return TrainTest(self.name, images[~test], labels[~test], images[test], labels[test], DIGITS, mean, std)


@final
@dataclass(frozen=True)
class MoonsSource(AbstractSource):
    """Two moons of 500 points with noise 0.1, those of the paper's study, and 500 others for testing."""

    name: str = "moons"
    about: str = "points on two half circles, made by scikit-learn"

    def load(self, root: Path, check: bool = True) -> TrainTest:
        from sklearn.datasets import make_moons

        (x, y), (test, answer) = (make_moons(500, noise=0.1, random_state=seed) for seed in (1, 2))
        points = [torch.tensor(p, dtype=torch.float32) for p in (x, test)]
        labels = [torch.tensor(c, dtype=torch.int64) for c in (y, answer)]
        flat = ((0.0, 0.0), (1.0, 1.0))
        return TrainTest(self.name, points[0], labels[0], points[1], labels[1], ("upper", "lower"), *flat)


EMNIST_NAMES = ("emnist-balanced-train", "emnist-balanced-test")
SOURCES: dict[str, AbstractSource] = {
    source.name: source
    for source in (
        DigitsSource(),
        MoonsSource(),
        IdxSource(
            "mnist", "handwritten digits", "MNIST/raw",
            "fetch the four .gz files from https://ossci-datasets.s3.amazonaws.com/mnist/ (unpacking is not needed)",
            DIGITS,
            ("6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624",
             "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637"),
            statistics=(0.1307, 0.3081),
        ),
        IdxSource(
            "fashionmnist", "pieces of clothing", "FashionMNIST/raw",
            "fetch the four .gz files from http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/ (unpacking is "
            "not needed)",
            CLOTHES,
            ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9",
             "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),
            statistics=(0.2860, 0.3530),
        ),
        IdxSource(
            "emnist", "EMNIST-Balanced: digits and letters", "EMNIST/raw",
            "fetch https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip (md5 58c8d27c78d21e728a6bc7b3cc06412e) and "
            "unzip it (the .gz files in it may stay as they are)",
            CHARACTERS, counts=(112_800, 18_800), prefix=EMNIST_NAMES, transposed=True,
        ),
        CifarSource(
            "cifar10", "colour photographs of objects",
            "fetch https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz (md5 c32a1d4ab5d03f1284b67883e8d87530) or "
            "cifar-10-python.tar.gz (md5 c58f30108f718f92721af3b95e74349a) from there, and unpack it with tar -xzf",
            ("5dd7e06a14cb22eb9f671a540d1b7c25", "5ea93a67294ea407fff1d09f752e9692",
             "942cd6a4bcdd0dd3c604fbe906cb4421", "ae636b3ba5c66a11e91e8cb52e771fcb",
             "53f37980c15c3d472c316c40844f3f0d", "803d5f7f4d78ea53de84dbe85f74fb6d"),
            ("c99cafc152244af753f735de768cd75f", "d4bba439e000b95fd0a9bffe97cbabec",
             "54ebc095f3ab1f0389bbae665268c751", "634d18415352ddfa80567beed471001a",
             "482c414d41f54cd18b22e5b47cb7c3cb", "40351d587109b95175f43aff81a1287e"),
        ),
    )
}  # fmt: skip
