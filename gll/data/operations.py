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


def brightness(images: Images, factor: Tensor | float) -> Images:
    """Blend with black: 0 is black, 1 the image itself, more than 1 is brighter (`PIL.ImageEnhance.Brightness`).

    >>> brightness(torch.full((2, 1, 1, 1), 100, dtype=torch.uint8), torch.tensor([0.5, 3.0])).flatten().tolist()
    [50, 255]
    """
    return _to_bytes(images.float() * per_image(factor, images))


def color(images: Images, factor: Tensor | float) -> Images:
    """Blend with the grey image: 0 is grey, 1 the image itself (`PIL.ImageEnhance.Color`)."""
    return _blend(luminance(images), images, factor)


def contrast(images: Images, factor: Tensor | float) -> Images:
    """Blend with the mean of the grey image: 0 is plain grey, 1 the image itself (`PIL.ImageEnhance.Contrast`)."""
    pixels = images.shape[2] * images.shape[3]
    total = luminance(images).sum((1, 2, 3), keepdim=True)
    mean = (2 * total + pixels) // (2 * pixels)  # rounded, without leaving the integers
    return _blend(mean, images, factor)


def sharpness(images: Images, factor: Tensor | float) -> Images:
    """Blend with a blurred image: 0 is blurred, 1 the image itself, 2 sharpened (`PIL.ImageEnhance.Sharpness`)."""
    x = images.float()
    rows = x[:, :, :-2] + x[:, :, 1:-1] + x[:, :, 2:]
    square = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    blurred = images.clone()  # pixels at the border have no neighbours on one side and stay as they are
    blurred[:, :, 1:-1, 1:-1] = _to_bytes(divide(square + 4 * x[:, :, 1:-1, 1:-1], 13.0) + 0.5)
    return _blend(blurred, images, factor)


def invert(images: Images) -> Images:
    """255 - value (`PIL.ImageOps.invert`)."""
    return 255 - images


def posterize(images: Images, bits: Tensor | float) -> Images:
    """Keep the highest bits of every value, a whole number from 0 to 8 (`PIL.ImageOps.posterize`).

    >>> posterize(torch.tensor([[[[255]]], [[[255]]]], dtype=torch.uint8), torch.tensor([1, 8])).flatten().tolist()
    [128, 255]
    """
    check_range("bits", bits, 0, 8)
    kept = per_image(bits, images, torch.float64).long()  # 8.9999999999 is 8; in single precision it would be 9
    return images & (256 - torch.bitwise_left_shift(torch.ones_like(kept), 8 - kept)).to(torch.uint8)


def solarize(images: Images, threshold: Tensor | float) -> Images:
    """Invert the values that reach the threshold; 256 and more change nothing (`PIL.ImageOps.solarize`)."""
    first = per_image(threshold, images, torch.float64).ceil().clamp(0, 256).to(torch.int16)
    return torch.where(images < first, images, 255 - images)


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
    offset = 256 * torch.arange(n * c, device=images.device).view(n, c, 1)
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
    steps = (per_image(shift, images, torch.float64) * 255).long()
    h, s, v = _hsv(images)
    return torch.where(steps == 0, images, _rgb((h + steps.int()) & 255, s, v))


def luminance(images: Images) -> Tensor:
    """(n, 1, h, w) int32, 0 to 255: what Pillow's mode L says of RGB, by fixed point weights."""
    if _channels(images) == 1:
        return images.int()
    r, g, b = images.int().split(1, 1)
    return (19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16


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


def _blend(degenerate: Tensor, images: Tensor, factor: Tensor | float) -> Tensor:
    """Pillow's `Image.blend`: in single precision, cut off at both ends, truncated."""
    start = degenerate.float()
    return _to_bytes((images.float() - start).mul_(per_image(factor, images)).add_(start))


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


def _hsv(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n, 1, h, w) int32 hue, saturation and value as Pillow finds them: divided in single precision, truncated."""
    r, g, b = images.float().split(1, 1)
    high, low = torch.maximum(torch.maximum(r, g), b), torch.minimum(torch.minimum(r, g), b)
    spread = high - low
    red, green, blue = ((high - x) / spread for x in (r, g, b))
    of_green, of_blue = (2.0 + red.double() - blue).float(), (4.0 + green.double() - red).float()
    sector = torch.where(r == high, blue - green, torch.where(g == high, of_green, of_blue))
    turn = (divide(sector.double(), 6.0) + 1).fmod_(1).float()
    colourful = spread > 0
    h = torch.where(colourful, turn, 0).double().mul_(255).int()
    s = torch.where(colourful, spread / high, 0).double().mul_(255).int()
    return h, s, high.int()


def _rgb(h: Tensor, s: Tensor, v: Tensor) -> Tensor:
    """Back from hue, saturation and value: six sectors of the colour circle.

    With f = rest/85, in [0, 1), the place within the sector, the four values that occur are v, v (1 - s/255),
    v (1 - f s/255) and v (1 - (1 - f) s/255), rounded. In integers they are exact, and never half way between two.
    """
    sector, rest = (2 * h) // 85, (2 * h) % 85
    whole = 85 * 255
    high, part = (2 * whole) * v + whole, 2 * v * s
    p, q, t = ((high - part * x) // (2 * whole) for x in (85, rest, 85 - rest))
    values = torch.cat([v, p, q, t], 1).to(torch.uint8)
    order = [[0, 3, 1], [2, 0, 1], [1, 0, 3], [1, 2, 0], [3, 1, 0], [0, 1, 2], [0, 3, 1]]  # which of v p q t is R, G, B
    channel = to_device(torch.tensor(order), h.device)[sector[:, 0].long()]
    return values.gather(1, channel.permute(0, 3, 1, 2))
