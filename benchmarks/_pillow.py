"""The augmentations once more, one image at a time with Pillow: what `gll.data.augment` is compared with.

Each function takes an image and its row of uniform numbers, in the order in which the augmentation reads them. The
tests ask for equality to the last bit, the benchmark for the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

Picture = Image.Image
NEAREST, BILINEAR = Image.Resampling.NEAREST, Image.Resampling.BILINEAR


def moved(image: Picture, *matrix: float) -> Picture:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, NEAREST)


def turned_hue(image: Picture, part: float) -> Picture:
    """Add to the hue channel of Pillow's HSV, all round the circle; whole steps of 1/255, none: no change."""
    if int(part * 255) == 0 or image.mode == "L":
        return image
    h, s, v = image.convert("HSV").split()
    turned = (np.asarray(h).astype(int) + int(part * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(turned.astype(np.uint8)), s, v)).convert("RGB")


def grey_image(image: Picture) -> Picture:
    return image.convert("L").convert(image.mode)


def padded_crop(image: Picture, left: int, top: int, padding: int) -> Picture:
    pixels = np.asarray(image)
    around = [(padding, padding)] * 2 + [(0, 0)] * (pixels.ndim - 2)
    wide = Image.fromarray(np.pad(pixels, around, mode="reflect"))
    return wide.crop((left, top, left + image.width, top + image.height))


def hole(image: Picture, left: int, top: int, side: int, fill: int = 127) -> Picture:
    image = image.copy()
    if side > 0:
        image.paste((fill,) * len(image.getbands()), (left, top, left + side, top + side))
    return image


OPERATIONS: dict[str, Callable[[Picture, float], Picture]] = {
    "identity": lambda image, _: image,
    "rotate": lambda image, m: image.rotate(m),
    "shear x": lambda image, m: moved(image, 1, m, 0, 0, 1, 0),
    "shear y": lambda image, m: moved(image, 1, 0, 0, m, 1, 0),
    "translate x": lambda image, m: moved(image, 1, 0, m * image.width, 0, 1, 0),
    "translate y": lambda image, m: moved(image, 1, 0, 0, 0, 1, m * image.height),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "solarize": lambda image, m: ImageOps.solarize(image, m),  # type: ignore[arg-type]
    "brightness": lambda image, m: ImageEnhance.Brightness(image).enhance(m),
    "contrast": lambda image, m: ImageEnhance.Contrast(image).enhance(m),
    "sharpness": lambda image, m: ImageEnhance.Sharpness(image).enhance(m),
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "color": lambda image, m: ImageEnhance.Color(image).enhance(m),
    "posterize": lambda image, m: ImageOps.posterize(image, min(int(m), 8)),
    "invert": lambda image, _: ImageOps.invert(image),
    "hue": turned_hue,
}
# Name, low, high, sign drawn or not.
SHARED = [
    ("identity", 0, 0, False), ("rotate", 0, 30, True), ("shear x", 0, 0.3, True), ("shear y", 0, 0.3, True),
    ("translate x", 0, 0.3, True), ("translate y", 0, 0.3, True), ("equalize", 0, 0, False),
    ("solarize", 0, 256, False), ("brightness", 0.05, 0.95, False), ("contrast", 0.05, 0.95, False),
    ("sharpness", 0.05, 0.95, False),
]  # fmt: skip
COLOUR = [*SHARED, ("autocontrast", 0, 0, False), ("color", 0.05, 0.95, False), ("posterize", 4, 9, False)]
GREY = [*SHARED, ("invert", 0, 0, False)]
JITTER = [("brightness", 0.6, 1.4, False), ("contrast", 0.6, 1.4, False), ("color", 0.6, 1.4, False),
          ("hue", 0, 0.1, True)]  # fmt: skip


def operated(image: Picture, entry: tuple[str, float, float, bool], size: float, sign: float) -> Picture:
    name, low, high, signed = entry
    magnitude = low + size * (high - low)
    return OPERATIONS[name](image, -magnitude if signed and sign < 0.5 else magnitude)


def crop_flip(image: Picture, u: Sequence[float], flip: bool = True) -> Picture:
    padding = (image.width + 4) // 8
    if flip and u[0] < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return padded_crop(image, int(u[1] * (2 * padding + 1)), int(u[2] * (2 * padding + 1)), padding)


def two_and_cutout(image: Picture, u: Sequence[float], pool: list[tuple[str, float, float, bool]]) -> Picture:
    for which, size, sign in (u[:3], u[3:6]):
        image = operated(image, pool[int(which * len(pool))], size, sign)
    side = round(u[6] * 0.5 * image.width)
    left, top = round(u[7] * image.width - side / 2), round(u[8] * image.height - side / 2)
    return hole(image, left, top, side)


def resized_crop(image: Picture, u: Sequence[float], flip: bool = True, tries: int = 10) -> Picture:
    for area, shape in zip(u[3 : 3 + tries], u[3 + tries : 3 + 2 * tries], strict=True):
        area = image.width * image.height * (0.2 + 0.8 * area)
        ratio = math.exp(math.log(4 / 3) * (2 * shape - 1))
        width, height = max(1, round(math.sqrt(area * ratio))), max(1, round(math.sqrt(area / ratio)))
        if width <= image.width and height <= image.height:
            break
    width, height = min(width, image.width), min(height, image.height)
    left, top = int(u[1] * (image.width - width + 1)), int(u[2] * (image.height - height + 1))
    image = image.crop((left, top, left + width, top + height)).resize(image.size, BILINEAR)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip and u[0] < 0.5 else image


def jittered(image: Picture, u: Sequence[float], pool: list[tuple[str, float, float, bool]]) -> Picture:
    if u[0] >= 0.8:
        return image
    order, size, sign = (u[1 + i * len(pool) : 1 + (i + 1) * len(pool)] for i in range(3))
    for turn, which in enumerate(sorted(range(len(pool)), key=order.__getitem__)):
        image = operated(image, pool[which], size[turn], sign[turn])
    return image


def simclr(image: Picture, u: Sequence[float]) -> Picture:
    image = jittered(resized_crop(image, u[:23]), u[23:36], JITTER)
    return grey_image(image) if u[36] < 0.2 else image


POLICIES: dict[str, Callable[[Picture, Sequence[float]], Picture]] = {
    "none": lambda image, _: image,
    "crop": lambda image, u: crop_flip(image, u, flip=False),
    "crop-flip": crop_flip,
    "strong": lambda image, u: two_and_cutout(crop_flip(image, u[:3]), u[3:], COLOUR),
    "grey": lambda image, u: two_and_cutout(image, u, GREY),
    "grey-crop-flip": lambda image, u: two_and_cutout(crop_flip(image, u[:3]), u[3:], GREY),
    "simclr": simclr,
    "simclr-grey": lambda image, u: jittered(resized_crop(image, u[:23], flip=False), u[23:], JITTER[:2]),
}


def picture(image: np.ndarray) -> Picture:
    """(c, h, w) uint8 to Pillow."""
    return Image.fromarray(image[0] if len(image) == 1 else np.ascontiguousarray(image.transpose(1, 2, 0)))


def pixels(image: Picture) -> np.ndarray:
    """Pillow to (c, h, w) uint8."""
    found = np.asarray(image)
    return found[None] if found.ndim == 2 else found.transpose(2, 0, 1)
