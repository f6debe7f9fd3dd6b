"""The user's own data: folders of images, .npz files; and the command line about data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from typer.testing import CliRunner

from gll.cli import app
from gll.data import DataError, load
from gll.data.folder import BLOCK, list_images, read_images
from tests.test_data import idx, write_idx

RNG = np.random.default_rng(1)
run = CliRunner().invoke


def save(path: Path, pixels: np.ndarray | None = None, **options: Any) -> np.ndarray:
    """Write an image, of random colours by default, and give back its pixels."""
    pixels = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8) if pixels is None else pixels
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return pixels


# --- folders ---------------------------------------------------------------------------------------------------------


def test_one_folder_a_class(tmp_path: Path) -> None:
    pixels = [save(tmp_path / name) for name in ("cat/b.png", "cat/sub/a.png", "dog/x.PNG", "unlabelled/u.png")]
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "cat" / ".hidden.png").write_text("not an image")
    (tmp_path / ".cache").mkdir()
    data = load(str(tmp_path))
    assert data.classes == ("cat", "dog")
    assert data.train_labels.tolist() == [0, 0, 1, -1]
    assert np.array_equal(data.train.numpy(), np.stack(pixels).transpose(0, 3, 1, 2))
    assert data.test.shape == (0, 3, 6, 5)
    assert data.name == tmp_path.name


def test_train_and_test_folders(tmp_path: Path) -> None:
    names = ("train/cat/a.png", "train/dog/a.png", "train/unlabeled/a.png", "unlabelled/b.png", "test/dog/a.png")
    pixels = [save(tmp_path / "photos" / name) for name in names]
    data = load("photos", tmp_path)
    assert data.train_labels.tolist() == [0, 1, -1, -1]
    assert data.test_labels.tolist() == [1]
    assert np.array_equal(data.train.numpy(), np.stack(pixels[:4]).transpose(0, 3, 1, 2))
    assert np.array_equal(data.test.numpy(), np.stack(pixels[4:]).transpose(0, 3, 1, 2))
    assert data.mean == pytest.approx(np.stack(pixels[:4]).mean((0, 1, 2)) / 255)  # of the training images only


def test_many_files_keep_their_order(tmp_path: Path) -> None:
    n = 3 * BLOCK + 5
    for i in range(n):
        save(tmp_path / str(i % 11) / f"{i:03}.png", np.full((2, 2), i, np.uint8))
    data = load(str(tmp_path))
    assert data.classes == tuple(str(c) for c in range(11))  # in the order of numbers: 10 is last
    assert torch.equal(data.train[:, 0, 0, 0].long() % 11, data.train_labels)
    assert sorted(data.train[:, 0, 1, 1].tolist()) == list(range(n))


def test_grey_or_colour(tmp_path: Path) -> None:
    grey = save(tmp_path / "a/0.png", RNG.integers(0, 256, (6, 5), dtype=np.uint8))
    stored = save(tmp_path / "b/0.png", np.repeat(RNG.integers(0, 256, (6, 5, 1), dtype=np.uint8), 3, 2))
    data = load(str(tmp_path))
    assert np.array_equal(data.train.numpy(), np.stack([grey, stored[..., 0]])[:, None])
    assert load(str(tmp_path), channels=3).channels == 3
    stored[0, 0, 1] ^= 8  # one pixel with a little colour
    save(tmp_path / "b/1.png", stored)
    data = load(str(tmp_path))
    assert np.array_equal(data.train[0].numpy(), np.stack([grey] * 3))
    assert np.array_equal(data.train[2].numpy(), stored.transpose(2, 0, 1))
    assert load(str(tmp_path), channels=1).channels == 1


def test_transparent_parts_are_white(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (4, 4, 4), dtype=np.uint8)
    pixels[..., 3] = 255
    pixels[:2, :, 3] = 0
    save(tmp_path / "rgba.png", pixels)
    Image.fromarray(pixels).quantize(8).save(tmp_path / "palette.png", transparency=0)
    x = read_images([tmp_path / "rgba.png", tmp_path / "palette.png"], channels=3)
    assert (x[0, :, :2] == 255).all()
    assert np.array_equal(x[0, :, 2:].numpy(), pixels[2:, :, :3].transpose(2, 0, 1))
    expected = Image.open(tmp_path / "palette.png").convert("RGBA")
    white = Image.alpha_composite(Image.new("RGBA", (4, 4), "white"), expected).convert("RGB")
    assert np.array_equal(x[1].numpy(), np.asarray(white).transpose(2, 0, 1))


def test_photographs_are_upright(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90° to see it upright
    save(tmp_path / "0.png", pixels, exif=exif)
    assert np.array_equal(read_images([tmp_path / "0.png"])[0].numpy(), np.rot90(pixels, -1).transpose(2, 0, 1))


def test_images_of_other_modes(tmp_path: Path) -> None:
    picture = Image.fromarray(RNG.integers(0, 256, (16, 16, 3), dtype=np.uint8))
    for mode, name in (("1", "one.png"), ("LA", "la.png"), ("P", "p.gif"), ("CMYK", "cmyk.jpg"), ("RGB", "rgb.bmp")):
        picture.convert(mode).save(tmp_path / name)
        with Image.open(tmp_path / name) as stored:
            expected = np.asarray(stored.convert("RGB")).transpose(2, 0, 1)
        assert np.array_equal(read_images([tmp_path / name], channels=3)[0].numpy(), expected), mode
    assert read_images([tmp_path / "one.png", tmp_path / "la.png"]).shape == (2, 1, 16, 16)


def test_sizes_that_differ(tmp_path: Path) -> None:
    save(tmp_path / "a/0.png")
    save(tmp_path / "b/0.png")
    wide = save(tmp_path / "b/wide.png", RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8))
    with pytest.raises(DataError) as error:
        load(str(tmp_path))
    assert "2 different sizes (height × width), e.g. 6 × 5: " in str(error.value)
    assert f"20 × 30: {tmp_path}/b/wide.png. Give a size" in str(error.value)
    data = load(str(tmp_path), size=8)
    assert data.train.shape == (3, 3, 8, 8)
    expected = np.asarray(ImageOps.fit(Image.fromarray(wide), (8, 8), Image.Resampling.BICUBIC))
    assert np.array_equal(data.train[2].numpy(), expected.transpose(2, 0, 1))


def test_large_photographs_are_scaled_well(tmp_path: Path) -> None:
    """A JPEG is decoded at a smaller size, yet with twice the pixels needed: the picture is nearly the same.

    Half as many would be off by 21 of 255 here, instead of 5.
    """
    coarse = Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    coarse.resize((512, 512), Image.Resampling.BICUBIC).save(tmp_path / "0.jpg", quality=95)
    x = read_images([tmp_path / "0.jpg"], size=60)[0].numpy().astype(int)
    with Image.open(tmp_path / "0.jpg") as image:
        expected = np.asarray(ImageOps.fit(image, (60, 60), Image.Resampling.BICUBIC)).transpose(2, 0, 1).astype(int)
    assert 0 < np.abs(x - expected).max() <= 8


@pytest.mark.parametrize("damage", ["cut", "text", "deep"])
def test_an_unreadable_file_is_named(tmp_path: Path, damage: str) -> None:
    for name in ("a/0.png", "a/1.png", "b/0.png", "b/bad.png"):
        save(tmp_path / name)
    bad = tmp_path / "b/bad.png"
    if damage == "cut":
        bad.write_bytes(bad.read_bytes()[:-40])
    elif damage == "text":
        bad.write_text("this is no image")
    else:
        save(bad, RNG.integers(0, 2**16, (6, 5)).astype(np.uint16))
    with pytest.raises(DataError, match=f"{bad} cannot be read as an image") as error:
        load(str(tmp_path))
    assert ("more than 8 bits" in str(error.value)) == (damage == "deep")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["loose.png"], "2 things are wrong:\n.* has images beside its folders, .*\n.* 0 folders of classes"),
        ([], "0 folders of classes, at least two are needed"),
        (["a/0.png", "unlabelled/0.png"], "1 folder of classes, at least two are needed"),
        (["a/0.png", "b/0.png", "loose.png"], "has images beside its folders, such as loose.png"),
        (["a/0.png", "b/0.txt"], r"b has no images: it holds files of kind \.txt; read are \.png"),
        (["test/a/0.png", "test/b/0.png"], "has a folder 'test', but no 'train'"),
        (["train/a/0.png", "train/b/0.png", "c/0.png"], "folders 'train' and 'c': folders of classes belong into"),
        (["train/a/0.png", "train/b/0.png", "test/c/0.png"], "test has a folder 'c', and training has no such class"),
        (["train/a/0.png", "train/b/0.png", "test/unlabelled/0.png"], "gll predict is for images whose class is not"),
    ],
)
def test_folders_that_cannot_be_meant(tmp_path: Path, files: list[str], message: str) -> None:
    for name in files:
        if name.endswith("png"):
            save(tmp_path / name)
        else:
            (tmp_path / name).parent.mkdir()
            (tmp_path / name).write_text("")
    with pytest.raises(DataError, match=message):
        load(str(tmp_path))


def test_reading_images_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "0.png")
    with pytest.raises(ValueError, match=r"channels must be 1 \(grey\) or 3"):
        read_images([tmp_path / "0.png"], channels=2)
    with pytest.raises(ValueError, match="size must be at least 1"):
        read_images([tmp_path / "0.png"], size=0)
    with pytest.raises(DataError, match="no images to read"):
        read_images(list_images(tmp_path / "nowhere"))
    monkeypatch.setattr("gll.data.folder.LARGEST", 80)
    with pytest.raises(DataError, match="1 images of 6 × 5 pixels would take 0 GiB of memory: scale them down"):
        read_images([tmp_path / "0.png"])


# --- .npz ------------------------------------------------------------------------------------------------------------

X = RNG.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
Y = np.array([0, 1, 1, 0, -1, 2])


def npz(tmp_path: Path, **arrays: np.ndarray) -> str:
    np.savez(tmp_path / "own.npz", **arrays)  # type: ignore[arg-type]
    return str(tmp_path / "own.npz")


@pytest.mark.parametrize(
    "names",
    [("x_train", "y_train", "x_test", "y_test"), ("train_images", "train_labels", "test_images", "test_labels")],
)
def test_npz(tmp_path: Path, names: tuple[str, ...]) -> None:
    data = load(npz(tmp_path, **dict(zip(names, (X, Y[:, None], X[:2], Y[:2]), strict=True)), ids=np.arange(6)))
    assert np.array_equal(data.train.numpy(), X.transpose(0, 3, 1, 2))
    assert data.train_labels.tolist() == Y.tolist()
    assert data.test_labels.tolist() == [0, 1]
    assert data.classes == ("0", "1", "2")
    assert data.mean == pytest.approx(X.mean((0, 1, 2)) / 255)


def test_npz_layouts(tmp_path: Path) -> None:
    assert np.array_equal(load(npz(tmp_path, images=X[..., 0], labels=Y)).train.numpy(), X[..., 0][:, None])
    first = X.transpose(0, 3, 1, 2)
    assert np.array_equal(load(npz(tmp_path, x=first, y=Y)).train.numpy(), first)
    points = RNG.normal(size=(6, 2))
    data = load(npz(tmp_path, features=points.astype(">f8"), y=Y))
    assert torch.allclose(data.train.double(), torch.from_numpy(points), atol=1e-6)
    assert (data.mean, data.std, len(data.test)) == ((0.0, 0.0), (1.0, 1.0), 0)


def test_npz_classes(tmp_path: Path) -> None:
    words = np.array(["dog", "cat", "cat", "", "dog", "dog"])
    data = load(npz(tmp_path, x=X, y=words))
    assert data.classes == ("cat", "dog")
    assert data.train_labels.tolist() == [1, 0, 0, -1, 1, 1]
    data = load(npz(tmp_path, x=X, y=words, classes=np.array(["dog", "cat", "bird"])))
    assert data.classes == ("dog", "cat", "bird")
    assert data.train_labels.tolist() == [0, 1, 1, -1, 0, 0]
    data = load(npz(tmp_path, x=X, y=Y, classes=np.array(["a", "b", "c", "d"])))
    assert data.classes == ("a", "b", "c", "d")
    assert data.train_labels.tolist() == Y.tolist()
    data = load(npz(tmp_path, x_train=X, y_train=Y * 5 + 5, x_test=X[:1], y_test=np.array([15])))  # 5, 10, 15; 0 too
    assert data.classes == ("0", "5", "10", "15")
    assert data.train_labels.tolist() == [1, 2, 2, 1, 0, 3]
    assert data.test_labels.tolist() == [3]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": Y}, "no array of samples: it has y, expected one of x_train"),
        ({"x": X}, "no array of classes: it has x, expected one of y_train"),
        ({"x": X, "images": X, "y": Y}, "arrays images and x, which may all be meant"),
        ({"x": X, "y": Y, "x_test": X}, "test samples without classes"),
        ({"x": X, "y": Y[:5]}, "6 training samples, but 5 classes for them"),
        ({"x": X, "y": Y, "x_test": X[:, 1:], "y_test": abs(Y)}, r"test samples torch.uint8 of shape \(3, 4, 4\)"),
        ({"x": X / 255, "y": Y}, r"float64 of shape \(6, 5, 4, 3\); write images from 0 to 255 as"),
        ({"x": X[..., :2], "y": Y}, "neither the second nor the last axis may be the channels"),
        ({"x": X[:, :3], "y": Y}, "both the second and the last axis may be the channels"),
        ({"x": X[:0], "y": Y[:0]}, "there are no training samples"),
        ({"x": np.array([[1.0], [np.nan]]), "y": Y[:2]}, "NaN, infinite or too large, first in row 1"),
        ({"x": X, "y": Y / 2}, "one whole number"),
        ({"x": X, "y": Y - 1}, "classes lie between -2 and 1"),
        ({"x": X, "y": Y * 0}, "has 1 class: at least two are needed"),
        ({"x": X, "y": Y, "classes": np.array(["a", "b"])}, "2 names of classes, but labels from 0 to 2"),
        ({"x": X, "y": Y, "classes": np.array(["a", "b", "a"])}, "must hold distinct names"),
        ({"x": X, "y": Y, "x_test": X[:1], "y_test": np.array([7])}, "class 7, which no training sample has"),
        ({"x": X, "y": Y, "x_test": X[:1], "y_test": np.array([-1])}, "a test sample has the class -1"),
        ({"x": X, "y": Y, "x_test": X[:1], "y_test": np.array(["0"])}, "for training are int64, for testing <U1"),
        ({"x": X, "y": Y.astype(object)}, "holds Python objects"),
        (
            {"x": X[:2], "y": np.array(["a", "x"]), "classes": np.array(["a", "b"])},
            "a training sample has the class 'x', which is not among 'classes'",
        ),
    ],
)
def test_npz_that_cannot_be_meant(tmp_path: Path, as_user: None, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(npz(tmp_path, **arrays))


def test_other_files(tmp_path: Path) -> None:
    path = Path(npz(tmp_path, x=X, y=Y))
    with pytest.raises(ValueError, match="not for the file"):
        load(str(path), size=4)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="cut off or damaged"):
        load(str(path))
    path.write_text("x, y")
    with pytest.raises(DataError, match=r"is no \.npz file"):
        load(str(path))


# --- the command line ------------------------------------------------------------------------------------------------


def test_list_and_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path)
    monkeypatch.setenv("GLL_DATA", str(tmp_path))
    lines = {line.split()[0]: line for line in run(app, ["data", "list"]).stdout.splitlines()}
    assert "needs no files" in lines["digits"]
    assert lines["mnist"] == f"mnist          there           handwritten digits ({tmp_path}/MNIST/raw)"
    assert "0 of 4 files" in lines["fashionmnist"]
    result = run(app, ["data", "path", "mnist"])
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{tmp_path}/MNIST/raw\n", "")
    result = run(app, ["data", "path", "cifar10", "--data-root", "/elsewhere"])
    assert result.stdout == "/elsewhere/cifar-10-batches-bin\n"
    assert "missing: 6 of 6 files. fetch https://www.cs.toronto.edu" in result.stderr
    assert run(app, ["data", "path"]).stdout == f"{tmp_path}\n"
    assert "has no files" in run(app, ["data", "path", "digits"]).stderr
    result = run(app, ["data", "path", "mnits"])
    assert result.exit_code == 1
    assert "there is no data set 'mnits'; known are digits" in result.stderr


def test_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, arrays = write_idx(tmp_path)
    monkeypatch.setattr("gll.data.sources.SOURCES", {"mnist": source})
    result = run(app, ["data", "check", "--data-root", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stdout.count(": whole\n") == 4
    result = run(app, ["data", "check", "--data-root", str(tmp_path / "nowhere")])
    assert (result.exit_code, result.stdout) == (0, f"mnist: not there ({tmp_path}/nowhere/MNIST/raw)\n")
    result = run(app, ["data", "check", "mnist", "--data-root", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert "missing or damaged: 4 files" in result.stderr
    (source.folder(tmp_path) / "train-images-idx3-ubyte").write_bytes(idx(arrays[0] ^ 1))
    result = run(app, ["data", "check", "mnist", "--data-root", str(tmp_path)])
    assert result.exit_code == 1
    assert "train-images-idx3-ubyte: md5 " in result.stdout
    assert result.stdout.count(": whole\n") == 3


def test_check_of_own_data(tmp_path: Path) -> None:
    for name in ("cat/0.png", "cat/1.png", "dog/0.png", "unlabelled/0.png"):
        save(tmp_path / name)
    result = run(app, ["data", "check", str(tmp_path)])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"{tmp_path.name}: 4 for training (3 have a class), 0 for testing"
    assert lines[1].startswith("images: 6×5 pixels, colour; mean 0.")
    assert lines[2:] == ["  cat: 2 for training, 0 for testing", "  dog: 1 for training, 0 for testing"]
    assert "4×4 pixels" in run(app, ["data", "check", str(tmp_path), "--size", "4"]).stdout
    (tmp_path / "dog" / "1.png").write_text("")
    result = run(app, ["data", "check", str(tmp_path)])
    assert result.exit_code == 1
    assert f"{tmp_path}/dog/1.png cannot be read as an image" in result.stderr


def test_check_says_all_that_is_wrong(tmp_path: Path) -> None:
    """Empty folders, loose images, files that are no images or are cut off, and different sizes, in one go."""
    for name in ("cat/0.png", "cat/1.png", "dog/0.png", "loose.png"):
        save(tmp_path / name)
    save(tmp_path / "dog/large.png", np.zeros((9, 9, 3), np.uint8))
    (tmp_path / "empty").mkdir()
    (tmp_path / "cat/text.png").write_text("no image")
    cut = save(tmp_path / "dog/cut.png") is not None and tmp_path / "dog/cut.png"
    cut.write_bytes(cut.read_bytes()[:-40])
    result = run(app, ["data", "check", str(tmp_path)])
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[0] == "gll data: 5 things are wrong:"
    for part, line in zip(
        ("2 different sizes", "loose.png", "empty has no images", "cat/text.png cannot", "dog/cut.png cannot"),
        lines[1:],
        strict=True,
    ):
        assert part in line
    for i in range(40):
        (tmp_path / f"cat/bad {i:02}.png").write_text("no image")
    lines = run(app, ["data", "check", str(tmp_path), "--size", "4"]).stderr.splitlines()
    assert lines[0] == "gll data: 44 things are wrong:"  # with --size, different ones are not
    assert lines[1:] == [*lines[1:21], "... and 24 more"]
    assert sum("cat/bad" in line for line in lines) == 18
