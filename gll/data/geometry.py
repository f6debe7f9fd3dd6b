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
    return affine_fixed(images, to_device(fixed_point(matrix, height, width), images.device))


def fixed_point(matrix: Tensor, height: int, width: int) -> Tensor:
    """(m, 2, 3) int32 of affine maps (m, 6), with 16 bits behind the point, for `affine_fixed`."""
    number = matrix.double().view(-1, 2, 3)
    # From the middle of the first pixel on.
    constant = number[:, :, 2:] + number[:, :, :1] * 0.5 + number[:, :, 1:2] * 0.5
    number = torch.cat([number[:, :, :2], constant], 2)
    if number.device.type == "cpu":
        reach = number.abs() @ torch.tensor([width, height, 1], dtype=torch.float64)
        if not bool((reach < 2**15 - 2).all()):
            raise ValueError("an affine map must be finite and reach no further than 32,765 pixels")
    fixed = (number * 65536 + 0.5).floor().int()
    fixed[:, :, 2] += 65536  # counted in an image with a black border one pixel wide
    return fixed


def affine_fixed(images: Images, fixed: Tensor) -> Images:
    """`affine` by the numbers of `fixed_point`, which are where the images are."""
    height, width = images.shape[2:]
    x, y = (torch.arange(size, dtype=torch.int32, device=images.device) for size in (width, height))
    along_x, along_y, constant = fixed[..., None].unbind(2)  # each (n, 2, 1)
    place = ((along_x * x + constant)[:, :, None] + (along_y * y)[..., None]).bitwise_right_shift_(16)
    # All that comes from outside lies in the border.
    column, row = place[:, 0].clamp_(0, width + 1), place[:, 1].clamp_(0, height + 1)
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
    column, row, mirror = (per_image(x, images, torch.int64).view(-1, 1) for x in (left, top, flip))
    column = _mirrored(torch.arange(-padding, width - padding, device=images.device) + column, width)
    column = torch.where(mirror != 0, width - 1 - column, column)
    row = _mirrored(torch.arange(-padding, height - padding, device=images.device) + row, height)
    return _take(images, row[:, :, None] * width + column[:, None])


def cutout(
    images: Images, left: Tensor | float, top: Tensor | float, side: Tensor | float, *, fill: int = 127
) -> Images:
    """A square of one value, cut off where it leaves the image: columns left to left + side - 1, rows likewise."""
    x, y = (torch.arange(size, device=images.device) for size in (images.shape[3], images.shape[2]))
    left, top, side = (per_image(value, images, torch.int64) for value in (left, top, side))
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
    left, top, width, height, mirror = (
        per_image(x, images, torch.int64).view(n, 1) for x in (left, top, width, height, flip)
    )
    start, length = torch.stack([left, top]), torch.stack([width, height])
    one, two, near, far = _taps(start, length, mirror != 0, (size_x, size_y))
    # First along x, then along y, each rounded to bytes, as Pillow does.
    x = slice(0, size_x)
    left, right = (images.gather(3, taps[0, :, None, None, x].expand_as(images)) for taps in (one, two))
    images = _weighted(left, right, near[0, :, None, None, x], far[0, :, None, None, x])
    y = slice(0, size_y)
    plane = torch.arange(0, n * c * size_y, size_y, device=images.device).view(n, c, 1)
    rows = images.view(n * c * size_y, size_x)
    top, bottom = (rows.index_select(0, (plane + t[1, :, None, y]).flatten()).view_as(images) for t in (one, two))
    return _weighted(top, bottom, near[1, :, None, y, None], far[1, :, None, y, None])


def _taps(start: Tensor, length: Tensor, flip: Tensor, sizes: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The two pixels between which every new pixel lies, and their weights, of 22 bits behind the point.

    Args:
        start, length: (2, n, 1) of the boxes, along x and along y.
        flip: (n, 1) whether to count x from the other end.
        sizes: of the images, along x and along y; results are (2, n, the larger of the two).
    """
    size = to_device(torch.tensor(sizes).view(2, 1, 1), start.device)
    place = torch.arange(max(sizes), device=start.device)
    place = torch.where(torch.stack([flip, torch.zeros_like(flip)]), size - 1 - place, place)
    middle = (place + 0.5) * divide(length.double(), size.double())  # in the box
    first = (middle - 0.5).clamp_(min=0).floor_()
    both = (middle >= 0.5) & (first + 1 < length)  # otherwise the second lies outside the box
    weight = 1 - (torch.stack([first, first + 1]) - middle + 0.5).abs_()
    weight[1] *= both
    near, far = (weight / weight.sum(0) * 2**22 + 0.5).int()
    # Numbers that were not checked must not leave the image.
    one = torch.minimum((start + first.long()).clamp_(min=0), size - 1)
    return one, torch.minimum(one + both, size - 1), near, far


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
