"""What happens to the values of pixels: brightness, contrast, equalisation and the like, for a batch at once.

Every function takes images (n, c, h, w) of uint8, on any device, and a magnitude *per image* (or one number for all),
and returns new images. Results equal Pillow's to the last bit, which the tests check: where Pillow truncates, or adds
in a certain order, so do we. Where pixels come from is the subject of `geometry.py`; `augment.py` draws the magnitudes.

Magnitudes on the CPU are checked. Those on a GPU are not: looking at them would make the CPU wait.

Differentiable in: nothing; images are integers.
"""

from __future__ import annotations

import torch
from jaxtyping import UInt8
from torch import Tensor

Images = UInt8[Tensor, "n c h w"]
PIECE = 256  # images: on a CPU, `hue` with its many steps is faster on pieces that stay in its cache


def brightness(images: Images, factor: Tensor | float) -> Images:
    """Blend with black: 0 is black, 1 the image itself, more than 1 is brighter (`PIL.ImageEnhance.Brightness`).

    >>> brightness(torch.full((2, 1, 1, 1), 100, dtype=torch.uint8), torch.tensor([0.5, 3.0])).flatten().tolist()
    [50, 255]
    """
    return blend(black(images), images, factor)


def color(images: Images, factor: Tensor | float) -> Images:
    """Blend with the grey image: 0 is grey, 1 the image itself (`PIL.ImageEnhance.Color`)."""
    return blend(luminance(images), images, factor)


def contrast(images: Images, factor: Tensor | float) -> Images:
    """Blend with the mean of the grey image: 0 is plain grey, 1 the image itself (`PIL.ImageEnhance.Contrast`)."""
    return blend(mean_luminance(images), images, factor)


def sharpness(images: Images, factor: Tensor | float) -> Images:
    """Blend with a blurred image: 0 is blurred, 1 the image itself, 2 sharpened (`PIL.ImageEnhance.Sharpness`)."""
    return blend(blurred(images), images, factor)


def blend(start: Tensor, images: Images, factor: Tensor | float) -> Images:
    """start + factor · (images - start), where `start` are integers: in single precision, cut off, truncated.

    It is what Pillow's `Image.blend` does.
    """
    return _to_bytes(((images - start) * per_image(factor, images)).add_(start))


def black(images: Images) -> Tensor:
    """(1, 1, 1, 1) int16 zero."""
    return torch.zeros((1, 1, 1, 1), dtype=torch.int16, device=images.device)


def luminance(images: Images) -> Tensor:
    """(n, 1, h, w) int16, 0 to 255: what Pillow's mode L says of RGB, by fixed point weights."""
    if _channels(images) == 1:
        return images.short()
    r, g, b = images.int().split(1, 1)
    sums = (19595 * r).add_(g, alpha=38470).add_(b, alpha=7471).add_(0x8000)
    return sums.bitwise_right_shift_(16).short()


def mean_luminance(images: Images) -> Tensor:
    """(n, 1, 1, 1) int16: the mean of the grey image, rounded, without leaving the integers."""
    pixels = images.shape[2] * images.shape[3]
    total = luminance(images).sum((1, 2, 3), keepdim=True)
    return total.add_(pixels // 2).floor_divide_(pixels).short()


def blurred(images: Images) -> Tensor:
    """(n, c, h, w) int16: means of 3 x 3 pixels, that in the middle five times as heavy; the border as it is."""
    x = images.short()
    rows = x[:, :, :-2] + x[:, :, 1:-1] + x[:, :, 2:]
    square = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    # Pillow divides in floating point; the mean is never near enough to the middle between two numbers to matter.
    x[:, :, 1:-1, 1:-1] = square.add_(x[:, :, 1:-1, 1:-1], alpha=4).mul_(2).add_(13).floor_divide_(26)
    return x


def invert(images: Images) -> Images:
    """255 - value (`PIL.ImageOps.invert`)."""
    return 255 - images


def posterize(images: Images, bits: Tensor | float) -> Images:
    """Keep the highest bits of every value, a whole number from 0 to 8 (`PIL.ImageOps.posterize`).

    >>> posterize(torch.tensor([[[[255]]], [[[255]]]], dtype=torch.uint8), torch.tensor([1, 8])).flatten().tolist()
    [128, 255]
    """
    check_range("bits", bits, 0, 8)
    lost = 8 - per_image(bits, images, torch.int32)
    return (images >> lost << lost).to(torch.uint8)


def solarize(images: Images, threshold: Tensor | float) -> Images:
    """Invert the values that reach the threshold; 256 and more change nothing (`PIL.ImageOps.solarize`)."""
    return torch.where(images < per_image(threshold, images, torch.float64), images, 255 - images)


def autocontrast(images: Images) -> Images:
    """Stretch every channel of every image to the whole range 0 to 255 (`PIL.ImageOps.autocontrast`)."""
    low, high = (x.double()[:, :, None] for x in torch.aminmax(images.flatten(2), dim=2))
    scale = divide(255.0, high - low)
    value = torch.arange(256, dtype=torch.float64, device=images.device)
    # In double precision and in this order, because Pillow truncates: 254.99999999999997 becomes 254.
    stretched = torch.where(high > low, value * scale - low * scale, value)
    return _looked_up(_to_bytes(stretched), images)


def equalize(images: Images) -> Images:
    """Spread the values of every channel of every image evenly, by its histogram (`PIL.ImageOps.equalize`)."""
    n, c, h, w = images.shape
    flat = images.flatten(2).long()
    offset = torch.arange(0, 256 * n * c, 256, device=images.device).view(n, c, 1)
    place = (flat + offset).flatten()  # in n c histograms of 256 cells, laid end to end
    cells = torch.zeros(n * c * 256, dtype=torch.int64, device=images.device)
    count = cells.scatter_add_(0, place, torch.ones_like(place)).view(n, c, 256)
    last = count.gather(2, flat.amax(2, keepdim=True))
    step = (h * w - last) // 255
    below = count.cumsum(2) - count
    table = (step // 2 + below) // step.clamp(min=1)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device)).clamp(max=255).to(torch.uint8)
    return _looked_up(table, images)


def grayscale(images: Images, chosen: Tensor | None = None) -> Images:
    """The grey image, in as many channels as before; only where `chosen` (n,) says so, if it is given."""
    grey = luminance(images).to(torch.uint8).expand_as(images)
    if chosen is None:
        return grey.contiguous()
    return torch.where(per_image(chosen, images) > 0, grey, images)


def hue(images: Images, shift: Tensor | float) -> Images:
    """Turn the colours by a part of the circle, -0.5 to 0.5, in Pillow's HSV of 256 steps.

    A shift of less than one step leaves the image as it is. (Pillow would change it a little even then: its HSV keeps
    fewer colours than RGB. So for all others the result is Pillow's, losses included.)
    """
    if _channels(images) == 1:
        return images.clone()
    steps = (per_image(shift, images, torch.float64) * 255).int()
    if images.device.type == "cpu" and len(images) > PIECE:
        return torch.cat([_turned(*piece) for piece in zip(images.split(PIECE), steps.split(PIECE), strict=True)])
    return _turned(images, steps)


def per_image(value: Tensor | float, images: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """A magnitude as (n, 1, 1, 1) beside the images."""
    n = len(images)
    value = torch.as_tensor(value)
    if value.shape not in ((), (n,)):
        raise ValueError(f"expected one magnitude for each of the {n} images, or one for all, got {tuple(value.shape)}")
    if value.device.type == "cpu" and not bool(torch.isfinite(value).all()):
        raise ValueError("magnitudes must be finite")
    return to_device(value.to(dtype), images.device).expand(n).view(n, 1, 1, 1)


def check_range(name: str, value: Tensor | float, low: int, high: int) -> None:
    """Raise where whole numbers leave their range; those on a GPU are not looked at."""
    given = torch.as_tensor(value)
    if given.device.type == "cpu" and given.numel() and not low <= int(given.min()) <= int(given.max()) <= high:
        raise ValueError(f"{name} must lie in {low} .. {high}, got values from {given.min():g} to {given.max():g}")


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """To another device without making the CPU wait: from page-locked memory, in the order of the stream."""
    if tensor.device.type == "cpu" and device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def divide(x: Tensor | float, y: Tensor | float) -> Tensor:
    """x / y, correctly rounded everywhere.

    Where one of the two is a plain number PyTorch may multiply by a reciprocal instead, which differs in the last bit,
    and after truncation in a whole step.
    """
    like = x if isinstance(x, Tensor) else torch.as_tensor(y)
    x, y = (v if isinstance(v, Tensor) else torch.full((1,), v, dtype=like.dtype, device=like.device) for v in (x, y))
    return torch.div(x, y)


def _looked_up(table: Tensor, images: Tensor) -> Tensor:
    """Values replaced by those of a table (n, c, 256)."""
    return table.gather(2, images.flatten(2).long()).view_as(images)


def _to_bytes(x: Tensor) -> Tensor:
    return x.clamp_(0, 255).to(torch.uint8)


def _channels(images: Tensor) -> int:
    channels = images.shape[1]
    if channels not in (1, 3):
        raise ValueError(f"colours need images of one channel (grey) or three (RGB), got {channels} channels")
    return channels


def _turned(images: Tensor, steps: Tensor) -> Tensor:
    """The images with their hue `steps` (n, 1, 1, 1) further on a circle of 256."""
    h, s, v = _hsv(images)
    return torch.where(steps == 0, images, _rgb((h + steps) & 255, s, v))


def _hsv(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n, 1, h, w) int32 hue, saturation and value as Pillow finds them: divided in single precision, truncated."""
    r, g, b = images.split(1, 1)
    high, low = torch.maximum(torch.maximum(r, g), b), torch.minimum(torch.minimum(r, g), b)
    value = high.float()
    spread = value - low
    # How far below the highest each channel is. Without colour all are zero, and hue and saturation with them.
    red, green, blue = ((value - images) / spread.clamp(min=1)).split(1, 1)
    of_green, of_blue = (2.0 + red.double() - blue).float(), (4.0 + green.double() - red).float()
    sector = torch.where(r == high, blue - green, torch.where(g == high, of_green, of_blue))
    turn = (divide(sector.double(), 6.0) + 1).fmod_(1).float()
    h, s = (x.double().mul_(255).int() for x in (turn, spread / value.clamp(min=1)))
    return h, s, high.int()


def _rgb(h: Tensor, s: Tensor, v: Tensor) -> Tensor:
    """Back from hue, saturation and value: v less s times how far the hue is from where the channel is full.

    That distance, cut off at both ends, counts 85 steps for a sixth of the circle. In integers everything is exact, and
    never half way between two.
    """
    sixth, whole = 85, 85 * 255
    start = torch.arange(5 * sixth, 0, -2 * sixth, dtype=torch.int32, device=h.device).view(3, 1, 1)  # red, green, blue
    place = torch.add(start, h, alpha=2).remainder_(6 * sixth)
    away = torch.minimum(place, 4 * sixth - place).clamp_(0, sixth)
    return (whole - away * s).mul_(2 * v).add_(whole).floor_divide_(2 * whole).to(torch.uint8)
