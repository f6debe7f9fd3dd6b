"""Data sets: the known ones, from made-up files and, where they are there, from the real ones; random numbers."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from gll import moons
from gll.data import DataError, TrainTest, data_root, derived_seed, generator, load, normalize
from gll.data.samples import channel_statistics
from gll.data.sources import OBJECTS, SOURCES, CifarSource, IdxSource

RNG = np.random.default_rng(0)
TRAIN, TEST = 12, 7


def idx(x: np.ndarray) -> bytes:
    """The IDX format, written from its description."""
    return struct.pack(f">BBBB{x.ndim}I", 0, 0, 8, x.ndim, *x.shape) + x.tobytes()


def cifar_rows(n: int) -> np.ndarray:
    rows = RNG.integers(0, 256, (n, 3073), dtype=np.uint8)
    rows[:, 0] %= 10
    return rows


def python2_batch(rows: np.ndarray) -> bytes:
    """The opcodes that Python 2 wrote: texts are byte strings, the array is rebuilt from numpy.core.multiarray."""

    def text(s: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(s)) + s

    def number(i: int) -> bytes:
        return b"J" + struct.pack("<i", i)

    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR("
    dtype += number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t" + text(b"b") + b"tR("
    array += number(1) + b"(" + number(len(rows)) + number(3072) + b"t" + dtype + b"\x89"
    array += text(rows[:, 1:].tobytes()) + b"tb"
    labels = b"](" + b"".join(number(int(c)) for c in rows[:, 0]) + b"e"
    items = text(b"batch_label") + text(b"a batch") + text(b"labels") + labels + text(b"data") + array
    return b"\x80\x02}(" + items + b"u."


def write_idx(folder: Path, *, zipped: bool = False) -> tuple[IdxSource, list[np.ndarray]]:
    """MNIST with few images, and its checksums."""
    source = SOURCES["mnist"]
    assert isinstance(source, IdxSource)
    arrays = []
    for n in (TRAIN, TEST):
        arrays += [RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8), RNG.integers(0, 10, n).astype(np.uint8)]
    source = replace(
        source, sums=tuple(hashlib.md5(idx(a)).hexdigest() for a in arrays), counts=(TRAIN, TEST), statistics=None
    )
    place, files = source.version(folder)
    place.mkdir(parents=True)
    for file, array in zip(files, arrays, strict=True):
        if zipped:
            (place / f"{file.name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (place / file.name).write_bytes(idx(array))
    return source, arrays


def write_cifar(folder: Path, *, python: bool) -> tuple[CifarSource, np.ndarray]:
    source = SOURCES["cifar10"]
    assert isinstance(source, CifarSource)
    rows = cifar_rows(18).reshape(6, 3, 3073)
    contents = [python2_batch(part) if python else part.tobytes() for part in rows]
    place = folder / ("cifar-10-batches-py" if python else "cifar-10-batches-bin")
    place.mkdir(parents=True)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    for name, content in zip(names, contents, strict=True):
        (place / (name if python else f"{name}.bin")).write_bytes(content)
    sums = tuple(hashlib.md5(content).hexdigest() for content in contents)
    return replace(source, **{"python" if python else "binary": sums}), rows


# --- IDX -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
def test_idx_files_are_read(tmp_path: Path, zipped: bool) -> None:
    source, (x, y, test, answer) = write_idx(tmp_path, zipped=zipped)
    data = source.load(tmp_path)
    assert np.array_equal(data.train.numpy(), x[:, None])
    assert np.array_equal(data.test.numpy(), test[:, None])
    assert data.train_labels.tolist() == y.tolist()
    assert data.test_labels.tolist() == answer.tolist()
    assert data.mean == pytest.approx([x.mean() / 255])
    assert data.std == pytest.approx([x.std() / 255])
    assert all(not state.problem and state.checked for state in source.states(tmp_path))


def test_transposed_images_are_turned_upright(tmp_path: Path) -> None:
    source, (x, *_) = write_idx(tmp_path)
    data = replace(source, transposed=True).load(tmp_path)
    assert np.array_equal(data.train[:, 0].numpy(), x.transpose(0, 2, 1))
    assert data.train.is_contiguous()
    assert [name for name, s in SOURCES.items() if getattr(s, "transposed", False)] == ["emnist"]


def test_the_folder_of_emnists_archive_is_found(tmp_path: Path) -> None:
    source, (x, *_) = write_idx(tmp_path, zipped=True)
    place = source.folder(tmp_path)
    (place / "gzip").mkdir()
    for file in place.glob("*.gz"):
        file.rename(place / "gzip" / file.name)
    assert np.array_equal(source.load(tmp_path).train[:, 0].numpy(), x)


def test_a_missing_file_says_what_to_fetch_and_where_it_goes(tmp_path: Path) -> None:
    source, _ = write_idx(tmp_path)
    (source.folder(tmp_path) / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError) as error:
        source.load(tmp_path)
    said = str(error.value)
    assert "has no t10k-labels-idx1-ubyte. " in said
    assert "https://ossci-datasets.s3.amazonaws.com/mnist/" in said
    assert f"belong into {tmp_path}/MNIST/raw" in said
    assert "set GLL_DATA, or data.root=FOLDER for gll train, pretrain and evaluate, --data-root for others" in said
    assert source.present(tmp_path) == (3, 4)


@pytest.mark.parametrize("name", ["mnist", "fashionmnist", "emnist", "cifar10"])
def test_every_data_set_says_where_it_belongs(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=f"belong into {SOURCES[name].folder(tmp_path)}"):
        load(name, tmp_path)


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    source, (x, *_) = write_idx(tmp_path)
    path = source.folder(tmp_path) / "train-images-idx3-ubyte"
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte is damaged.*Delete it and fetch it again"):
        source.load(tmp_path)
    assert [bool(state.problem) for state in source.states(tmp_path)] == [True, False, False, False]
    assert (source.load(tmp_path, check=False).train[:, 0].numpy() != x).sum() == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], "cut off or damaged: its head speaks of 12 × 28 × 28 bytes, and 9,407 are"),
        (lambda content: content + b"x", "cut off or damaged"),
        (lambda content: content[:3], "not an IDX file of bytes: it starts with 00 00 08"),
        (lambda content: content[:9], "cut off or damaged"),
        (lambda content: b"<html>" + content, "not an IDX file"),
        (lambda content: b"", "starts with nothing"),
        (lambda content: content[:2] + b"\x0d" + content[3:], "not an IDX file"),
    ],
)
def test_damaged_idx_files(tmp_path: Path, change: Any, message: str) -> None:
    source, _ = write_idx(tmp_path)
    path = source.folder(tmp_path) / "train-images-idx3-ubyte"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=message):
        source.load(tmp_path, check=False)
    assert source.states(tmp_path)[0].problem


def test_a_cut_off_gzip_file(tmp_path: Path) -> None:
    source, _ = write_idx(tmp_path, zipped=True)
    path = source.folder(tmp_path) / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        source.load(tmp_path)


def test_without_a_known_checksum_the_number_of_images_is_checked(tmp_path: Path) -> None:
    source, _ = write_idx(tmp_path)
    source = replace(source, sums=(None,) * 4)
    assert len(source.load(tmp_path).train) == TRAIN
    assert not any(state.checked for state in source.states(tmp_path))
    with pytest.raises(DataError, match=r"13 images of 28 × 28.*got images of shape \(12, 28, 28\)"):
        replace(source, counts=(13, TEST)).load(tmp_path)


# --- CIFAR-10 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("python", [False, True])
def test_both_versions_of_cifar(tmp_path: Path, python: bool) -> None:
    source, rows = write_cifar(tmp_path, python=python)
    data = source.load(tmp_path)
    assert np.array_equal(data.train.numpy(), rows[:5, :, 1:].reshape(15, 3, 32, 32))
    assert np.array_equal(data.test.numpy(), rows[5, :, 1:].reshape(3, 3, 32, 32))
    assert data.train_labels.tolist() == rows[:5, :, 0].reshape(-1).tolist()
    assert data.test_labels.tolist() == rows[5, :, 0].tolist()
    assert data.classes == OBJECTS
    assert not any(state.problem for state in source.states(tmp_path))


@pytest.mark.parametrize("keys", [(b"data", b"labels"), ("data", "labels")])
def test_pickles_of_this_python_are_read_too(tmp_path: Path, keys: tuple[Any, Any]) -> None:
    source, rows = write_cifar(tmp_path, python=True)
    batch = {keys[0]: rows[0][:, 1:].copy(), keys[1]: rows[0][:, 0].tolist()}
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(pickle.dumps(batch))
    data = source.load(tmp_path, check=False)
    assert np.array_equal(data.train[:3].numpy(), rows[0][:, 1:].reshape(3, 3, 32, 32))


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_nothing_in_a_pickle_is_run(tmp_path: Path) -> None:
    source, _ = write_cifar(tmp_path, python=True)
    mark = tmp_path / "it ran"
    content = pickle.dumps({b"data": Hostile(mark), b"labels": [0]})
    pickle.loads(content)
    assert mark.exists()  # the pickle does what it should
    mark.unlink()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(content)
    with pytest.raises(DataError, match=r"data_batch_1 is not a batch.* which was refused"):
        source.load(tmp_path, check=False)
    assert not mark.exists()


@pytest.mark.parametrize(
    "batch",
    [
        {},
        [1, 2],
        {b"data": [1, 2], b"labels": [1, 2]},
        {b"data": np.zeros((2, 3072)), b"labels": [1, 2]},
        {b"data": np.zeros((2, 3071), np.uint8), b"labels": [1, 2]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 2, 3]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 256]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, -1]},
        {b"data": np.asfortranarray(np.zeros((2, 3072), np.uint8)), b"labels": [1, 1]},
    ],
)
def test_strange_pickles(tmp_path: Path, batch: Any) -> None:
    source, _ = write_cifar(tmp_path, python=True)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(batch))
    with pytest.raises(DataError, match="test_batch is not a batch of CIFAR-10's Python version, or damaged"):
        source.load(tmp_path, check=False)


@pytest.mark.parametrize("python", [False, True])
def test_cut_off_cifar_files(tmp_path: Path, python: bool) -> None:
    source, _ = write_cifar(tmp_path, python=python)
    path = next(path for path in source.folder(tmp_path).iterdir() if path.name.startswith("data_batch_3"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"data_batch_3(\.bin)? is .*damaged"):
        source.load(tmp_path, check=False)
    with pytest.raises(DataError, match=r"data_batch_3(\.bin)? is damaged.* its md5 is"):
        source.load(tmp_path)


# --- what needs no files, and the real files -------------------------------------------------------------------------


def test_digits_are_all_there_and_stratified() -> None:
    data = load("digits")
    x, y = load_digits(return_X_y=True)
    together = torch.cat([data.train, data.test]).reshape(-1, 64).double() * 16 / 255
    labels = torch.cat([data.train_labels, data.test_labels])

    def rows(x: np.ndarray, y: np.ndarray) -> list[tuple[float, ...]]:
        return sorted(map(tuple, np.column_stack([np.round(x), y]).tolist()))

    assert rows(together.numpy(), labels.numpy()) == rows(x, y)
    assert (together - together.round()).abs().max() < 0.04  # sixteen steps of grey keep apart
    assert data.train.max() == 255
    counts = [np.bincount(c) for c in (data.test_labels, y)]
    assert (counts[0] == counts[1] // 5).all()


def test_moons_are_those_of_the_study() -> None:
    data = load("moons")
    x, y, _ = moons.moons()
    assert torch.equal(data.train, x)
    assert torch.equal(data.train_labels, y)
    assert not data.is_image
    upper = data.train_labels == data.classes.index("upper")
    assert data.train[upper, 1].mean() > data.train[~upper, 1].mean()
    assert not torch.isin(data.test[:, 0], data.train[:, 0]).any()
    assert normalize(data.test, data) is data.test


REAL = {"mnist": (60_000, 10_000), "fashionmnist": (60_000, 10_000), "emnist": (112_800, 18_800),
        "cifar10": (50_000, 10_000)}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_files(name: str) -> None:
    there, wanted = SOURCES[name].present(data_root())
    if there < wanted:
        pytest.skip(f"{name} is not here")
    data = load(name)
    assert (len(data.train), len(data.test)) == REAL[name]
    for labels, size in ((data.train_labels, REAL[name][0]), (data.test_labels, REAL[name][1])):
        counts = labels.bincount(minlength=data.num_classes)
        if name != "mnist":
            assert (counts == size // data.num_classes).all()
        assert (counts > 0).all()
    if name == "emnist":
        return  # its mean is computed
    mean, std = channel_statistics(data.train)  # as published, with four digits
    assert data.mean == pytest.approx(mean, abs=6e-5)
    assert data.std == pytest.approx(std, abs=6e-5)


def test_letters_are_upright(tmp_path: Path) -> None:
    """Lines of an E, F, H, I, L, T that stand: columns are joined by more ink than rows."""
    there, wanted = SOURCES["emnist"].present(data_root())
    if there == wanted:
        data = load("emnist")
    elif (part := data_root() / "EMNIST-subset" / "raw").is_dir():  # fewer images, in files of the same format
        (tmp_path / "EMNIST").mkdir()
        (tmp_path / "EMNIST" / "raw").symlink_to(part.resolve())
        data = load("emnist", tmp_path, check=False)
    else:
        pytest.skip("neither emnist nor a part of it is here")
    mean = {c: data.train[data.train_labels == data.classes.index(c)].float().mean((0, 1)) for c in "LT"}
    assert mean["L"][22:].sum() > 1.5 * mean["L"][:6].sum()  # the foot of an L is below
    assert mean["T"][:10].sum() > 1.5 * mean["T"][18:].sum()  # the bar of a T is above
    assert mean["L"][:, :14].sum() > mean["L"][:, 14:].sum()  # the stem of an L is on the left


def test_names_and_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"no data set, folder or file 'mnits' \(did you mean 'mnist'\?\)"):
        load("mnits", tmp_path)
    with pytest.raises(ValueError, match="size and channels are for folders"):
        load("digits", size=8)
    monkeypatch.delenv("GLL_DATA", raising=False)
    assert data_root() == Path("data")
    monkeypatch.setenv("GLL_DATA", "/somewhere")
    assert data_root() == Path("/somewhere")
    assert data_root(tmp_path) == tmp_path
    assert load("DIGITS").name == "digits"


# --- samples ---------------------------------------------------------------------------------------------------------


def made_up(n: int = 6, channels: int = 3, h: int = 5, w: int = 4) -> TrainTest:
    x = torch.randint(0, 256, (n, channels, h, w), dtype=torch.uint8)
    y = torch.arange(n) % 2
    return TrainTest("made up", x, y, x[:2], y[:2], ("a", "b"), *channel_statistics(x))


@pytest.mark.parametrize("channels", [1, 3])
def test_normalize(device: torch.device, channels: int) -> None:
    data = made_up(channels=channels).to(device)
    x = normalize(data.train, data)
    assert x.device.type == device.type
    assert x.dtype == torch.float32
    mean, std = (torch.tensor(v, dtype=torch.float64, device=device)[:, None, None] for v in (data.mean, data.std))
    expected = (data.train.double() / 255 - mean) / std
    assert torch.allclose(x.double(), expected, atol=2e-6)
    assert torch.allclose(x.double().mean((0, 2, 3)), torch.zeros_like(mean[:, 0, 0]), atol=1e-6)
    floats = (data.train.double() / 255).float().requires_grad_()
    assert torch.allclose(normalize(floats, data), x, atol=1e-5)
    normalize(floats, data).sum().backward()
    assert floats.grad is not None
    assert torch.allclose(floats.grad.double(), (1 / std).expand_as(expected))


def test_normalize_keeps_channels_last() -> None:
    data = made_up()
    x = normalize(data.train.contiguous(memory_format=torch.channels_last), data)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_normalize_refuses_what_it_cannot_know(as_user: None) -> None:
    data = made_up()
    with pytest.raises(ValueError, match=r"images of made up have shape \(n, 3, height, width\), got \(6, 1, 5, 4\)"):
        normalize(data.train[:, :1], data)
    with pytest.raises(TypeError, match=r"bytes \(uint8\) from 0 to 255, or floats"):
        normalize(data.train.int(), data)


def test_statistics_of_channels() -> None:
    x = torch.randint(0, 256, (2500, 3, 4, 5), dtype=torch.uint8)
    x[:, 2] = 9
    mean, std = channel_statistics(x)
    reference = x.numpy() / 255
    assert mean == pytest.approx(reference.mean((0, 2, 3)), rel=1e-12)
    assert std[:2] == pytest.approx(reference.std((0, 2, 3))[:2], rel=1e-12)
    assert std[2] == 1  # a flat channel is not divided by zero


@pytest.mark.parametrize(("h", "w", "size"), [(28, 28, 32), (5, 4, 8), (7, 7, 7)])
def test_padding(h: int, w: int, size: int) -> None:
    data = made_up(h=h, w=w)
    padded = data.padded(size)
    top, left = (size - h) // 2, (size - w) // 2
    expected = np.zeros((6, 3, size, size), np.uint8)
    expected[:, :, top : top + h, left : left + w] = data.train.numpy()
    assert np.array_equal(padded.train.numpy(), expected)
    assert padded.test.shape == (2, 3, size, size)
    assert padded.mean == data.mean


def test_padding_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="5 × 4 pixels cannot be padded to 4 × 4"):
        made_up().padded(4)
    with pytest.raises(ValueError, match="points, not images"):
        load("moons").padded(4)


def test_what_does_not_fit_together_is_refused(as_user: None) -> None:
    good = made_up()

    def having(**changes: Any) -> TrainTest:
        return replace(good, **changes)

    y: Tensor = good.train_labels
    with pytest.raises(TypeError, match=r"images \(n, c, h, w\) of bytes"):
        having(train=good.train.float())
    with pytest.raises(ValueError, match=r"test samples torch.uint8 of shape \(3, 5, 3\)"):
        having(test=good.test[..., :3])
    with pytest.raises(ValueError, match=r"train has 6 samples, but labels of torch.int64, shape"):
        having(train_labels=y[:4])
    with pytest.raises(ValueError, match=r"train labels must lie in -1 \.\. 1, got values from 1 to 2"):
        having(train_labels=y + 1)
    with pytest.raises(ValueError, match=r"test labels must lie in 0 \.\. 1"):
        having(test_labels=y[:2] - 1)
    with pytest.raises(ValueError, match="for each of 3 channels"):
        having(std=(1.0, 0.0, 1.0))
    assert having(train_labels=y - 1).train_labels.min() == -1


# --- random numbers --------------------------------------------------------------------------------------------------


def test_seeds_are_a_hash_of_their_keys() -> None:
    digest = hashlib.sha256(b'[7, "augment", 3, -2]').digest()
    assert derived_seed(7, "augment", 3, -2) == int.from_bytes(digest[:8], "big") // 2
    keys: list[tuple[Any, ...]] = [(), (1,), ("1",), (1, 1), (11,), ("a", "b"), ("ab",), ("a,b",), ('a", "b',)]
    seeds = {derived_seed(0, *key) for key in keys} | {derived_seed(1, *key) for key in keys}
    assert len(seeds) == 2 * len(keys)


def test_generators_are_new_and_equal(device: torch.device) -> None:
    def draw(*keys: Any) -> Tensor:
        return torch.rand(100, generator=generator(0, *keys, device=device), device=device)

    assert torch.equal(draw("a", 1), draw("a", 1))
    assert not torch.equal(draw("a", 1), draw("a", 2))
    before = torch.get_rng_state()
    draw("a")
    assert torch.equal(before, torch.get_rng_state())


def test_keys_of_other_types(as_user: None) -> None:
    assert derived_seed(0, np.int64(3)) == derived_seed(0, 3)  # type: ignore[arg-type]
    for key in (1.0, None, True, torch.ones(2)):
        with pytest.raises(TypeError, match="keys are whole numbers and texts"):
            derived_seed(0, key)  # type: ignore[arg-type]
