"""Where pixels come from: rotations, shears, translations, flips, crops and holes, for a batch at once.

All but `resized_crop` move whole pixels: a new image is a gather from the old one, with one index per pixel. Functions
take images (n, c, h, w) of uint8 on any device and magnitudes *per image* (or one number for all). Affine maps use the
fixed point arithmetic of Pillow, so results equal Pillow's to the last bit.

Differentiable in: nothing; images are integers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gll.data.operations import Images, check_range, divide, per_image, to_device


def affine(images: Images, matrix: Tensor) -> Images:
    """The pixel at (x, y) comes from (a x + b y + c, d x + e y + f), the nearest one; black where there is none.

    As `PIL.Image.transform(size, AFFINE, (a, b, c, d, e, f))`: coordinates count from the corner of the image, so the
    middle of the first pixel is (0.5, 0.5). Exact except for maps without rotation and shear that scale, where Pillow
    works in floating point: there a pixel may differ whose source lies within 2⁻¹⁷ of the border between two pixels.

    Args:
        images: what is moved.
        matrix: (n, 6) a, b, c, d, e, f.
    """
    n, _, height, width = images.shape
    if matrix.shape != (n, 6):
        raise ValueError(f"expected a matrix (a, b, c, d, e, f) for each of the {n} images, got {tuple(matrix.shape)}")
    a, b, c, d, e, f = matrix.double().unbind(1)
    number = torch.stack([a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5], 1)
    if number.device.type == "cpu":
        reach = number.abs() @ torch.tensor([width, height, 1, width, height, 1], dtype=torch.float64)
        if not bool((reach < 2**15 - 2).all()):
            raise ValueError("an affine map must be finite and reach no further than 32,765 pixels")
    fixed = to_device((number * 65536 + 0.5).floor().int(), images.device)  # 16 bits behind the point
    a, b, c, d, e, f = fixed[:, :, None].unbind(1)  # each (n, 1)
    x, y = (torch.arange(size, dtype=torch.int32, device=images.device) for size in (width, height))
    # Counted in an image with a black border one pixel wide, where all that comes from outside lies.
    column = ((a * x + (c + 65536))[:, None] + (b * y)[:, :, None]).bitwise_right_shift_(16).clamp_(0, width + 1)
    row = ((d * x + (f + 65536))[:, None] + (e * y)[:, :, None]).bitwise_right_shift_(16).clamp_(0, height + 1)
    return _take(torch.nn.functional.pad(images, (1, 1, 1, 1)), row.mul_(width + 2).add_(column).long())


def rotation(degrees: Tensor, height: int, width: int) -> Tensor:
    """(n, 6) matrices of rotations counterclockwise about the middle, for `affine`."""
    angle = -torch.deg2rad(degrees.double())
    cos, sin = angle.cos(), angle.sin()
    x, y = width / 2, height / 2
    return torch.stack([cos, sin, -cos * x - sin * y + x, -sin, cos, sin * x - cos * y + y], 1)


def shear_along_x(factor: Tensor, height: int, width: int) -> Tensor:
    """(n, 6) matrices: row y comes from `factor · y` pixels further right."""
    return _identity_with(1, factor)


def shear_along_y(factor: Tensor, height: int, width: int) -> Tensor:
    """(n, 6) matrices: column x comes from `factor · x` pixels further down."""
    return _identity_with(3, factor)


def translation_along_x(part: Tensor, height: int, width: int) -> Tensor:
    """(n, 6) matrices: everything comes from that part of the width further right, in whole pixels."""
    return _identity_with(2, (part.double() * width + 0.5).floor())


def translation_along_y(part: Tensor, height: int, width: int) -> Tensor:
    """(n, 6) matrices: everything comes from that part of the height further down, in whole pixels."""
    return _identity_with(5, (part.double() * height + 0.5).floor())


def rotate(images: Images, degrees: Tensor | float) -> Images:
    """Counterclockwise about the middle, black corners (`PIL.Image.rotate`)."""
    return affine(images, rotation(_each(degrees, images), *images.shape[2:]))


def shear_x(images: Images, factor: Tensor | float) -> Images:
    """Move row y by `factor · y` pixels to the left, the top row stays (`PIL`: the matrix (1, factor, 0, 0, 1, 0))."""
    return affine(images, shear_along_x(_each(factor, images), *images.shape[2:]))


def shear_y(images: Images, factor: Tensor | float) -> Images:
    """Move column x by `factor · x` pixels up, the left column stays (`PIL`: the matrix (1, 0, 0, factor, 1, 0))."""
    return affine(images, shear_along_y(_each(factor, images), *images.shape[2:]))


def translate_x(images: Images, part: Tensor | float) -> Images:
    """Move by that part of the width to the left, rounded to whole pixels (`PIL`: (1, 0, part · width, 0, 1, 0)).

    >>> translate_x(torch.arange(4, dtype=torch.uint8).view(1, 1, 1, 4), 0.25).flatten().tolist()
    [1, 2, 3, 0]
    """
    return affine(images, translation_along_x(_each(part, images), *images.shape[2:]))


def translate_y(images: Images, part: Tensor | float) -> Images:
    """Move by that part of the height up, rounded to whole pixels (`PIL`: (1, 0, 0, 0, 1, part · height))."""
    return affine(images, translation_along_y(_each(part, images), *images.shape[2:]))


def horizontal_flip(images: Images, chosen: Tensor | float = 1.0) -> Images:
    """Mirror left and right where `chosen` is not zero."""
    return torch.where(per_image(chosen, images) != 0, images.flip(3), images)


def crop(
    images: Images, left: Tensor | float, top: Tensor | float, *, padding: int, flip: Tensor | float = 0.0
) -> Images:
    """Mirror the borders outwards by `padding` pixels, and cut an image of the old size from there.

    The outermost pixels are not repeated: `dcb|abcd|cba`, which is `numpy.pad(mode="reflect")`.

    Args:
        images: what is cropped.
        left, top: corner of the new image in the padded one, whole numbers from 0 to 2 · padding.
        padding: less than the width and the height.
        flip: where it is not zero, the image is mirrored left and right first; it costs nothing more.
    """
    height, width = images.shape[2:]
    if not 0 <= padding < min(height, width):
        raise ValueError(f"padding must be at least 0 and less than the size of the images, got {padding} for "
                         f"{height} x {width}: there is nothing beyond to mirror")  # fmt: skip
    check_range("left", left, 0, 2 * padding)
    check_range("top", top, 0, 2 * padding)
    column, row = (per_image(x, images).long().view(-1, 1) for x in (left, top))
    column = _mirrored(torch.arange(width, device=images.device) + column - padding, width)
    column = torch.where(per_image(flip, images).view(-1, 1) != 0, width - 1 - column, column)
    row = _mirrored(torch.arange(height, device=images.device) + row - padding, height)
    return _take(images, row[:, :, None] * width + column[:, None])


def cutout(
    images: Images, left: Tensor | float, top: Tensor | float, side: Tensor | float, *, fill: int = 127
) -> Images:
    """A square of one value, cut off where it leaves the image: columns left to left + side - 1, rows likewise."""
    x, y = (torch.arange(size, device=images.device) for size in (images.shape[3], images.shape[2]))
    left, top, side = (per_image(value, images).long() for value in (left, top, side))
    y = y[:, None]
    hole = (x >= left) & (x < left + side) & (y >= top) & (y < top + side)
    return images.masked_fill(hole, fill)


def resized_crop(
    images: Images,
    left: Tensor | float,
    top: Tensor | float,
    width: Tensor | float,
    height: Tensor | float,
    *,
    flip: Tensor | float = 0.0,
) -> Images:
    """Cut a box from every image and stretch it to the old size, bilinearly.

    As `PIL.Image.crop(box).resize(size, BILINEAR)`, bit by bit. The box, of whole pixels, lies inside the image.
    Where `flip` is not zero the result is mirrored left and right; it costs nothing more.
    """
    n, c, size_y, size_x = images.shape
    for name, start, length, size in (("left", left, width, size_x), ("top", top, height, size_y)):
        check_range(name, start, 0, size - 1)
        check_range("width" if name == "left" else "height", length, 1, size)
        check_range(f"the end of a box, from {name} on,", start + length, 1, size)
    left, top, width, height, flip = (per_image(x, images).long().view(n, 1) for x in (left, top, width, height, flip))
    # First along x, then along y, each rounded to bytes, as Pillow does.
    one, two, near, far = _taps(left, width, size_x, flip)
    one, two = (images.gather(3, x[:, None, None].expand_as(images)) for x in (one, two))
    images = _weighted(one, two, near[:, None, None], far[:, None, None])
    one, two, near, far = _taps(top, height, size_y, torch.zeros_like(flip))
    plane = size_y * torch.arange(n * c, device=images.device).view(n, c, 1)
    rows = images.view(n * c * size_y, size_x)
    one, two = (rows.index_select(0, (plane + y[:, None]).flatten()).view_as(images) for y in (one, two))
    return _weighted(one, two, near[:, None, :, None], far[:, None, :, None])


def _taps(start: Tensor, length: Tensor, size: int, flip: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(n, size) each: the two pixels between which a new pixel lies, and their weights, of 22 bits behind the point."""
    place = torch.arange(size, device=start.device).expand(len(start), size)
    place = torch.where(flip != 0, size - 1 - place, place)
    middle = (place + 0.5) * divide(length.double(), float(size))  # in the box
    first = (middle - 0.5).clamp(min=0).floor()
    both = (middle >= 0.5) & (first + 1 < length)  # otherwise the second lies outside the box
    near = 1 - (first - middle + 0.5).abs()
    far = torch.where(both, 1 - (first + 1 - middle + 0.5).abs(), 0)
    near, far = ((x / (near + far) * 2**22 + 0.5).int() for x in (near, far))
    one = (start + first.long()).clamp(0, size - 1)  # numbers that were not checked must not leave the image
    return one, (one + both).clamp(max=size - 1), near, far


def _weighted(one: Tensor, two: Tensor, near: Tensor, far: Tensor) -> Tensor:
    return (one * near).add_(two * far).add_(2**21).bitwise_right_shift_(22).to(torch.uint8)


def _take(images: Tensor, index: Tensor) -> Tensor:
    """Pixels by their numbers: images of any size and (n, h, w) to (n, c, h, w)."""
    n, c = images.shape[:2]
    height, width = index.shape[1:]
    flat = index.view(n, 1, height * width).expand(n, c, height * width)
    return images.flatten(2).gather(2, flat).view(n, c, height, width)


def _mirrored(index: Tensor, size: int) -> Tensor:
    """Indices reflected at 0 and at size - 1; what was out of range all the same is cut off."""
    return (size - 1 - (size - 1 - index.abs()).abs()).clamp(0, size - 1)


def _each(value: Tensor | float, images: Tensor) -> Tensor:
    """One number an image, in double precision, where it is."""
    value = torch.as_tensor(value, dtype=torch.float64)
    if value.device.type == "cpu":
        per_image(value, images[:, :0, :0, :0].cpu())  # for its checks
    return value.expand(len(images))


def _identity_with(place: int, value: Tensor) -> Tensor:
    matrix = value.new_tensor([1, 0, 0, 0, 1, 0], dtype=torch.float64).repeat(len(value), 1)
    matrix[:, place] = value
    return matrix
