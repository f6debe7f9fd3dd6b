"""Augmentation: every operation and every policy against Pillow, bit by bit, and what must hold for all of them."""

from __future__ import annotations

import importlib
import json
import pickle
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_sample_image
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typer import Typer
from typer.testing import CliRunner

from benchmarks import _pillow as pillow
from gll.data import augment, geometry, operations, pool

GpuWaits = Callable[[str], AbstractContextManager[None]]  # the fixture of conftest.py
SIZES = {"colour": (3, 32, 32), "grey": (1, 28, 28), "oblong": (3, 20, 33), "tiny": (3, 2, 2)}


def photographs(c: int, h: int, w: int) -> Tensor:
    """Patches of a real photograph at several scales, noise, and images of one value, a ramp, two values."""
    photo = load_sample_image("china.jpg")
    rng = np.random.default_rng(0)
    found = []
    for scale in (1, 2, 5, 10):
        for _ in range(6):
            top, left = rng.integers(0, 427 - scale * h), rng.integers(0, 640 - scale * w)
            found.append(photo[top : top + scale * h : scale, left : left + scale * w : scale].transpose(2, 0, 1)[:c])
    found += list(rng.integers(0, 256, (6, c, h, w)))
    found += [np.full((c, h, w), value) for value in (0, 77, 255)]
    found.append(np.broadcast_to(np.arange(h * w).reshape(h, w) % 256, (c, h, w)))
    found.append(np.broadcast_to(np.where(np.arange(w) < w // 2, 3, 250), (c, h, w)))
    found.append(np.broadcast_to(np.where(np.arange(w) < 1, 0, 255), (c, h, w)))
    return torch.from_numpy(np.stack(found).astype(np.uint8))


def by_pillow(images: Tensor, change: Callable[[Any, int], Any]) -> Tensor:
    return torch.from_numpy(
        np.stack([pillow.pixels(change(pillow.picture(x), i)) for i, x in enumerate(images.numpy())])
    )


def uniform(n: int, low: float, high: float, seed: int = 1) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(low, high, n))


# Name in Pillow's table, function, magnitudes: their range and some that are special.
GRADED: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[float, float], list[float]]] = {
    "brightness": (operations.brightness, (-0.5, 2.5), [0, 1, 0.5]),
    "color": (operations.color, (-0.5, 2.5), [0, 1, 0.5]),
    "contrast": (operations.contrast, (-0.5, 2.5), [0, 1, 0.5]),
    "sharpness": (operations.sharpness, (-0.5, 2.5), [0, 1, 2]),
    "posterize": (operations.posterize, (1, 9), [1, 8, 4, 9 - 1e-15]),
    "solarize": (operations.solarize, (0, 256), [0, 256, 128, 255, 77 + 1e-13]),
    "hue": (operations.hue, (-0.5, 0.5), [0, 0.001, 0.5, -0.5]),
    "rotate": (geometry.rotate, (-200, 200), [0, 90, -90, 180, 45, 30]),
    "shear x": (geometry.shear_x, (-0.6, 0.6), [0, 0.5, -0.3]),
    "shear y": (geometry.shear_y, (-0.6, 0.6), [0, 0.5, -0.3]),
    "translate x": (geometry.translate_x, (-1.2, 1.2), [0, 0.5, -0.5, 1]),
    "translate y": (geometry.translate_y, (-1.2, 1.2), [0, 0.5, -0.5, 1]),
}
PLAIN = {"autocontrast": operations.autocontrast, "equalize": operations.equalize, "invert": operations.invert}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("name", GRADED)
def test_an_operation_equals_pillows(name: str, size: tuple[int, int, int], device: torch.device) -> None:
    function, (low, high), special = GRADED[name]
    images = photographs(*size).repeat(3, 1, 1, 1)
    magnitude = uniform(len(images), low, high)
    magnitude[: len(special)] = torch.tensor(special, dtype=torch.float64)
    magnitude = magnitude[torch.from_numpy(np.random.default_rng(2).permutation(len(images)))]
    expected = by_pillow(images, lambda image, i: pillow.OPERATIONS[name](image, magnitude[i].item()))
    assert torch.equal(function(images.to(device), magnitude).cpu(), expected)
    assert torch.equal(function(images.to(device), magnitude.to(device)).cpu(), expected)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("name", PLAIN)
def test_an_operation_without_magnitude_equals_pillows(
    name: str, size: tuple[int, int, int], device: torch.device
) -> None:
    images = photographs(*size)
    expected = by_pillow(images, lambda image, _: pillow.OPERATIONS[name](image, 0))
    assert torch.equal(PLAIN[name](images.to(device)).cpu(), expected)


def test_autocontrast_for_every_range_of_values(device: torch.device) -> None:
    low, high = torch.triu_indices(256, 256)[:, ::13].to(torch.uint8)
    images = torch.cat([low[:, None], high[:, None], (low + (high - low) // 3)[:, None]], 1)[:, None, None]
    expected = by_pillow(images, lambda image, _: pillow.OPERATIONS["autocontrast"](image, 0))
    assert torch.equal(operations.autocontrast(images.to(device)).cpu(), expected)


def test_grey_and_hue_for_many_colours(device: torch.device) -> None:
    """Random colours, and all that have two equal channels of few values: the borders between the sectors."""
    rng = np.random.default_rng(0)
    some = rng.integers(0, 256, (60_000, 3))
    few = np.stack(np.meshgrid(*[[0, 1, 2, 85, 127, 128, 170, 254, 255]] * 3), -1).reshape(-1, 3)
    colours = np.concatenate([some, few, some[:3000, [0, 0, 1]], some[:3000, [0, 1, 0]], some[:3000, [1, 0, 0]]])
    images = torch.from_numpy(colours.T.reshape(1, 3, 1, -1).astype(np.uint8)).repeat(4, 1, 1, 1)
    shift = torch.tensor([1 / 255, 0.1, -0.3, 0.5], dtype=torch.float64)
    expected = by_pillow(images, lambda image, i: pillow.turned_hue(image, shift[i].item()))
    assert torch.equal(operations.hue(images.to(device), shift).cpu(), expected)
    expected = by_pillow(images[:1], lambda image, _: pillow.grey_image(image))
    assert torch.equal(operations.grayscale(images[:1].to(device)).cpu(), expected)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
def test_crops_flips_and_holes_equal_pillows(size: tuple[int, int, int], device: torch.device) -> None:
    images = photographs(*size)
    n, (_, h, w) = len(images), size
    rng = np.random.default_rng(0)
    padding = min(4, h - 1)
    left, top = rng.integers(0, 2 * padding + 1, (2, n))
    flip = rng.random(n) < 0.5
    there = images.to(device)

    def cropped(image: Any, i: int) -> Any:
        image = image.transpose(0) if flip[i] else image
        return pillow.padded_crop(image, int(left[i]), int(top[i]), padding)

    mine = geometry.crop(there, torch.tensor(left), torch.tensor(top), padding=padding, flip=torch.tensor(flip))
    assert torch.equal(mine.cpu(), by_pillow(images, cropped))
    flipped = by_pillow(images, lambda image, i: image.transpose(0) if flip[i] else image)
    assert torch.equal(geometry.horizontal_flip(there, torch.tensor(flip)).cpu(), flipped)

    x, y, side = rng.integers(-w, w, n), rng.integers(-h, h, n), rng.integers(0, w + 1, n)
    expected = by_pillow(images, lambda image, i: pillow.hole(image, int(x[i]), int(y[i]), int(side[i]), fill=9))
    mine = geometry.cutout(there, torch.tensor(x), torch.tensor(y), torch.tensor(side), fill=9)
    assert torch.equal(mine.cpu(), expected)

    wide, high = rng.integers(1, w + 1, n), rng.integers(1, h + 1, n)
    wide[0], high[0] = w, h
    x, y = rng.integers(0, w - wide + 1), rng.integers(0, h - high + 1)
    boxes = [torch.tensor(v) for v in (x, y, wide, high)]

    def resized(image: Any, i: int) -> Any:
        image = image.crop((x[i], y[i], x[i] + wide[i], y[i] + high[i])).resize((w, h), pillow.BILINEAR)
        return image.transpose(0) if flip[i] else image

    mine = geometry.resized_crop(there, *boxes, flip=torch.tensor(flip))
    assert torch.equal(mine.cpu(), by_pillow(images, resized))


def test_any_affine_map_equals_pillows() -> None:
    images = photographs(3, 20, 33)
    matrix = uniform(6 * len(images), -1.5, 1.5).view(-1, 6)
    matrix[:, 2::3] *= 10
    expected = by_pillow(images, lambda image, i: pillow.moved(image, *matrix[i].tolist()))
    assert torch.equal(geometry.affine(images, matrix), expected)


# Policies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [SIZES["colour"], SIZES["grey"], SIZES["oblong"], (1, 8, 8)], ids=str)
@pytest.mark.parametrize("name", augment.AUGMENTATIONS)
def test_a_policy_equals_pillow_with_the_same_draws(
    name: str, size: tuple[int, int, int], device: torch.device
) -> None:
    images = photographs(*size).repeat(4, 1, 1, 1)
    augmentation = augment.augmentation_from_name(name)
    draws = torch.rand(len(images), augmentation.num_draws, dtype=torch.float64)
    end = torch.rand_like(draws)  # one in three lies at an end of its range
    draws = torch.where(end < 1 / 6, 0.0, torch.where(end < 1 / 3, 1 - 2.0**-53, draws))
    before = images.clone()
    expected = by_pillow(images, lambda image, i: pillow.POLICIES[name](image, draws[i].tolist()))
    mine = augmentation.apply(images.to(device), draws)
    assert torch.equal(mine.cpu(), expected)
    assert torch.equal(images, before)
    assert name == "none" or not torch.equal(mine.cpu(), images)


@pytest.mark.parametrize("name", augment.AUGMENTATIONS)
def test_chance_comes_from_the_generator_alone(name: str, device: torch.device) -> None:
    images = photographs(3, 32, 32).to(device)
    augmentation = augment.augmentation_from_name(name)
    draws = torch.rand(
        len(images), augmentation.num_draws, generator=torch.Generator().manual_seed(5), dtype=torch.float64
    )
    torch.manual_seed(1)
    one = augmentation(images, torch.Generator().manual_seed(5))
    torch.manual_seed(2)
    two = augmentation(images, torch.Generator().manual_seed(5))
    assert torch.equal(one, two)
    assert torch.equal(one, augmentation.apply(images, draws))
    on_cpu = augmentation(images.cpu(), torch.Generator().manual_seed(5))
    assert torch.equal(one.cpu(), on_cpu)
    there = [augmentation(images, torch.Generator(device).manual_seed(5)) for _ in range(2)]
    assert torch.equal(*there)
    if name != "none":
        generator = torch.Generator().manual_seed(5)
        first, second = augmentation(images, generator), augmentation(images, generator)
        assert torch.equal(first, one)
        assert not torch.equal(first, second)  # two views of the same images


def test_hue_in_pieces_is_hue(device: torch.device) -> None:
    images = photographs(3, 4, 4).repeat(16, 1, 1, 1).to(device)
    assert len(images) > 2 * operations.PIECE
    shift = uniform(len(images), -0.5, 0.5)
    one_by_one = [operations.hue(images[i : i + 1], shift[i : i + 1]) for i in range(len(images))]
    assert torch.equal(operations.hue(images, shift), torch.cat(one_by_one))


class Kernels(TorchDispatchMode):
    """Counts what PyTorch does to tensors on the device "meta", views left out."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        there = any(isinstance(x, Tensor) and x.device.type == "meta" for x in tree_leaves((args, result)))
        self.number += there and not function.is_view
        return result


@pytest.mark.parametrize(("name", "most"), [("crop-flip", 24), ("strong", 250), ("grey", 160), ("simclr", 320)])
def test_a_batch_takes_few_kernels(name: str, most: int) -> None:
    """The time on a GPU; loops, or one blend for every kind, would make them many more."""
    images = torch.empty(1500, 1 if name == "grey" else 3, 32, 32, dtype=torch.uint8, device="meta")
    with Kernels() as kernels:
        augment.augmentation_from_name(name)(images, torch.Generator().manual_seed(0))
    assert 0.5 * most < kernels.number <= most


@pytest.mark.gpu
@pytest.mark.parametrize("name", augment.AUGMENTATIONS)
def test_a_generator_of_the_cpu_never_waits_for_the_gpu(name: str, gpu_waits: GpuWaits) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    images = photographs(3, 32, 32).cuda()
    augmentation = augment.augmentation_from_name(name)
    with gpu_waits("error"):
        augmentation(images, torch.Generator().manual_seed(0))


def test_watching_for_waits_ends_with_the_test(gpu_waits: GpuWaits, monkeypatch: pytest.MonkeyPatch) -> None:
    """As PyTorch behaves on a GPU: it warns when the mode is set, and sets it even if the warning is an error."""
    modes: list[str | int] = [0]

    def set_mode(mode: str | int) -> None:
        modes.append(mode)
        if mode:
            warnings.warn("Synchronization debug mode is a prototype feature", UserWarning, stacklevel=2)

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    with pytest.raises(RuntimeError, match="called a synchronizing"), gpu_waits("error"):  # noqa: PT012
        assert modes == [0, "error"]
        raise RuntimeError("called a synchronizing CUDA operation")
    assert modes == [0, "error", 0]
    with pytest.raises(UserWarning, match="prototype"):
        set_mode("error")  # without it, a warning is an error here


IMAGES = {c: photographs(c, 12, 9) for c in (1, 3)}
ALL = [name for name in augment.AUGMENTATIONS if name != "none"]


@settings(max_examples=60)
@given(st.sampled_from(ALL), st.sampled_from([1, 3]), st.integers(1, 20), st.integers(0, 10**6), st.booleans())
def test_an_image_depends_on_its_own_draws_only(name: str, c: int, n: int, seed: int, extreme: bool) -> None:
    rng = np.random.default_rng(seed)
    images = IMAGES[c][rng.integers(0, len(IMAGES[c]), n)]
    augmentation = augment.augmentation_from_name(name)
    draws = torch.from_numpy(rng.random((n, augmentation.num_draws)))
    if extreme:  # the ends of every range
        draws = torch.where(draws < 0.5, torch.tensor(0.0), torch.tensor(1 - 2.0**-53, dtype=torch.float64))
    whole = augmentation.apply(images, draws)
    assert whole.shape == images.shape
    assert whole.dtype == torch.uint8
    order = torch.from_numpy(rng.permutation(n))
    assert torch.equal(augmentation.apply(images[order], draws[order]), whole[order])
    i = int(rng.integers(0, n))
    assert torch.equal(augmentation.apply(images[i : i + 1], draws[i : i + 1]), whole[i : i + 1])


IDENTITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "brightness": lambda x: operations.brightness(x, 1.0),
    "color": lambda x: operations.color(x, 1.0),
    "contrast": lambda x: operations.contrast(x, 1.0),
    "sharpness": lambda x: operations.sharpness(x, 1.0),
    "posterize": lambda x: operations.posterize(x, 8),
    "solarize": lambda x: operations.solarize(x, 256),
    "hue": lambda x: operations.hue(x, 0.0),
    "invert twice": lambda x: operations.invert(operations.invert(x)),
    "rotate": lambda x: geometry.rotate(x, 0.0),
    "full turn": lambda x: geometry.rotate(x, 360.0),
    "shear x": lambda x: geometry.shear_x(x, 0.0),
    "shear y": lambda x: geometry.shear_y(x, 0.0),
    "translate x": lambda x: geometry.translate_x(x, 0.0),
    "translate y": lambda x: geometry.translate_y(x, 0.0),
    "no flip": lambda x: geometry.horizontal_flip(x, 0),
    "flip twice": lambda x: geometry.horizontal_flip(geometry.horizontal_flip(x)),
    "crop of the middle": lambda x: geometry.crop(x, 0, 0, padding=0),
    "whole box": lambda x: geometry.resized_crop(x, 0, 0, x.shape[3], x.shape[2]),
    "no hole": lambda x: geometry.cutout(x, 1, 1, 0),
    "no grey": lambda x: operations.grayscale(x, torch.zeros(len(x))),
    "no operation": lambda x: augment.RandomOperations(count=0).apply(x, torch.rand(len(x), 0)),
    "no jitter": lambda x: augment.ColourJitter(0, 0, 0, 0).apply(x, torch.rand(len(x), 1)),
}


@settings(max_examples=8)
@given(st.sampled_from([1, 3]), st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6))
@pytest.mark.parametrize("name", IDENTITIES)
def test_no_magnitude_is_no_change(name: str, c: int, h: int, w: int, seed: int) -> None:
    images = torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (3, c, h, w), dtype=np.uint8))
    assert torch.equal(IDENTITIES[name](images), images)


def test_operations_and_magnitudes_are_uniform_and_independent() -> None:
    """Counts of 28,000 draws lie within four standard deviations of what they should be."""
    n, marks = 14_000, {}
    log: list[tuple[str, Tensor]] = []
    for entry in pool.COLOUR_POOL:
        marks[entry.name] = entry
    spies = tuple(
        pool.Graded(o.name, o.low, o.high, o.signed, lambda x, m, name=o.name: (log.append((name, m)), x)[1])
        for o in pool.COLOUR_POOL
    )
    images = torch.zeros(n, 1, 1, 1, dtype=torch.uint8)
    augment.RandomOperations(spies, 2)(images, torch.Generator().manual_seed(0))
    assert len(log) == 2 * len(spies)
    for name, found in log:
        assert abs(len(found) - n / 14) < 4 * (n / 14) ** 0.5
        o = marks[name]
        if o.high > o.low:
            part = (found.abs() - o.low) / (o.high - o.low)
            assert 0 <= float(part.min()) < 0.02
            assert 0.98 < float(part.max()) < 1
            assert abs(float(part.mean()) - 0.5) < 4 / (12 * len(found)) ** 0.5
        share = float((found < 0).double().mean())
        assert abs(share - 0.5 * o.signed) < 4 * 0.5 * o.signed / len(found) ** 0.5 + 1e-9


def test_share_of_flips_greys_and_jitters() -> None:
    images = photographs(3, 8, 8)[:1].repeat(4000, 1, 1, 1)
    generator = torch.Generator().manual_seed(0)

    def share(augmentation: augment.AbstractAugmentation, target: Tensor) -> float:
        return float((augmentation(images, generator) == target).flatten(1).all(1).double().mean())

    assert abs(share(augment.CropFlip(padding=0), images.flip(3)) - 0.5) < 0.03
    assert share(augment.CropFlip(padding=0, flip=False), images) == 1
    assert abs(share(augment.RandomGrey(0.2), operations.grayscale(images)) - 0.2) < 0.03
    assert abs(share(augment.ColourJitter(probability=0.8), images) - 0.2) < 0.03
    assert share(augment.RandomGrey(1.0), operations.grayscale(images)) == 1


def test_boxes_and_holes_have_the_sizes_they_should() -> None:
    n, size = 2500, 32
    position = torch.arange(size, dtype=torch.uint8) * 8
    ramp = position.expand(n, 1, size, size).contiguous()
    both = torch.cat([ramp, ramp.transpose(2, 3).contiguous(), ramp], 1)
    boxes = augment.ResizedCrop(flip=False)(both, torch.Generator().manual_seed(0)).double() / 8
    # The step from one pixel of a stretched ramp to the next is the length of the box, as a part of the image.
    wide = (boxes[:, 0, 0, 24] - boxes[:, 0, 0, 8]) / 16
    high = (boxes[:, 1, 24, 0] - boxes[:, 1, 8, 0]) / 16
    area = wide * high
    assert 0.17 < float(area.min()) < 0.25
    assert float(area.max()) > 0.95
    rng = np.random.default_rng(0)
    wanted, ratio = rng.uniform(0.2, 1, 10**5), np.exp(rng.uniform(-1, 1, 10**5) * np.log(4 / 3))
    fits = np.maximum(np.sqrt(wanted * ratio), np.sqrt(wanted / ratio)) < 1 + 0.5 / size
    assert abs(float(area.mean()) - wanted[fits].mean()) < 0.02  # under 0.6: large boxes often do not fit
    assert float((wide / high).log().abs().max()) < np.log(4 / 3) + 0.12  # sides are whole pixels

    blank = torch.zeros(n, 1, size, size, dtype=torch.uint8)
    holes = augment.Cutout(0.5, fill=200)(blank, torch.Generator().manual_seed(0))
    assert sorted(holes.unique().tolist()) == [0, 200]
    side = (holes > 0).any(2).sum((1, 2))
    assert int(side.max()) == size // 2
    # With s uniform in (0, 1/2), a row in the middle is covered to E[s · s (1 - s/4)]: s/4 is lost at the two ends.
    assert abs(float((holes[:, 0, 16] > 0).double().mean()) - (1 / 12 - 1 / 128)) < 0.01


def test_sizes_that_differ_from_the_default() -> None:
    images = photographs(1, 8, 8)
    generator = torch.Generator().manual_seed(0)
    assert not torch.equal(augment.augmentation_from_name("crop", padding=7)(images, generator), images)
    with pytest.raises(ValueError, match="less than the size of the images, got 8 for 8 x 8"):
        augment.augmentation_from_name("crop", padding=8)(images, generator)
    single = torch.zeros(2, 1, 1, 1, dtype=torch.uint8)
    for name in augment.AUGMENTATIONS:
        assert augment.augmentation_from_name(name)(single, generator).shape == single.shape


def test_points_and_empty_batches_pass() -> None:
    points = torch.randn(5, 2)
    assert augment.augmentation_from_name("none")(points, torch.Generator()) is points
    empty = torch.zeros(0, 3, 8, 8, dtype=torch.uint8)
    for name in augment.AUGMENTATIONS:
        assert augment.augmentation_from_name(name)(empty, torch.Generator()).shape == (0, 3, 8, 8)


def test_policies_can_be_sent_to_another_process() -> None:
    images = photographs(3, 8, 8)
    for name in augment.AUGMENTATIONS:
        mine = augment.augmentation_from_name(name)
        other = pickle.loads(pickle.dumps(mine))
        assert other == mine
        generators = [torch.Generator().manual_seed(0) for _ in range(2)]
        assert torch.equal(mine(images, generators[0]), other(images, generators[1]))


def test_the_benchmark_finds_no_difference_and_would(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    bench = importlib.import_module("benchmarks.augment")
    images = bench.photographs(20, 3, 8, seed=0)
    row = bench.measure("strong", images, "cpu", seed=0, seconds=0.0)
    assert row["different_bytes"] == 0
    assert row["ms"] > 0
    assert row["pillow_ms"] > 0
    monkeypatch.setitem(bench.pillow.POLICIES, "strong", lambda image, _: image)
    assert bench.measure("strong", images, "cpu", seed=0, seconds=0.0)["different_bytes"] > 100
    app = Typer()
    app.command()(bench.main)
    done = CliRunner().invoke(app, ["--batch", "5", "--seconds", "0", "--json", str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.output
    assert "simclr-grey" in done.output
    record = json.loads((tmp_path / "out.json").read_text())
    assert len(record["rows"]) == 12
    assert {"commit", "device", "config", "wall_s", "versions"} <= set(record)


BYTES = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
SLIPS: dict[str, tuple[Callable[[], object], str]] = {
    "unknown name": (lambda: augment.augmentation_from_name("stronk"), "none, crop, crop-flip, strong, grey"),
    "unknown option": (lambda: augment.augmentation_from_name("strong", pad=2), "no option 'pad'; its options: operat"),
    "option of none": (lambda: augment.augmentation_from_name("none", padding=2), "its options: none"),
    "floating point": (lambda: augment.CropFlip()(BYTES / 255, torch.Generator()), "augment before normalising"),
    "points": (lambda: augment.CropFlip()(torch.zeros(4, 2), torch.Generator()), "use 'none' for data that are not im"),
    "two channels": (lambda: operations.color(BYTES[:, :2], 0.5), "one channel (grey) or three (RGB), got 2"),
    "magnitudes": (lambda: operations.color(BYTES, torch.ones(3)), "each of the 2 images, or one for all, got (3,)"),
    "NaN": (lambda: operations.brightness(BYTES, float("nan")), "must be finite"),
    "NaN angle": (lambda: geometry.rotate(BYTES, torch.tensor([0.0, float("inf")])), "must be finite"),
    "far away": (lambda: geometry.translate_x(BYTES, 1e5), "reach no further than"),
    "matrix": (lambda: geometry.affine(BYTES, torch.zeros(6)), "for each of the 2 images, got (6,)"),
    "bits": (lambda: operations.posterize(BYTES, 9), "bits must lie in 0 .. 8, got values from 9 to 9"),
    "corner": (lambda: geometry.crop(BYTES, 5, 0, padding=2), "left must lie in 0 .. 4"),
    "box": (lambda: geometry.resized_crop(BYTES, 4, 0, 5, 8), "the end of a box, from left on, must lie in 1 .. 8"),
    "empty box": (lambda: geometry.resized_crop(BYTES, 0, 0, 5, 0), "height must lie in 1 .. 8"),
    "probability": (lambda: augment.RandomGrey(1.5), "RandomGrey: probability must lie in 0 .. 1, got 1.5"),
    "padding": (lambda: augment.CropFlip(-1), "CropFlip: padding must be at least 0, got -1"),
    "areas": (lambda: augment.ResizedCrop(0.9, 0.5), "smallest must lie in 0 .. 0.5"),
    "strength": (lambda: augment.ColourJitter(float("nan")), "brightness must be at least 0, got nan"),
    "empty pool": (lambda: augment.RandomOperations(()), "must not be empty"),
}


@pytest.mark.usefixtures("as_user")
@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS.keys())
def test_slips_are_explained(slip: tuple[Callable[[], object], str]) -> None:
    call, message = slip
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert message in str(caught.value)
