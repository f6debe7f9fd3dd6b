"""Images that fooled a model, as in the paper's figure: FGSM, IFGSM and CW in one picture, two images of each.

What is kept of them are the pictures that `gll attack` draws, one for each part of a cell, with more attacks than the
paper shows and in the look of their time. So they are cut into blocks, an image with its change and what became of it,
and those of the paper's attacks are put together under a heading that says how strong each was.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gll.files import complete_file

if TYPE_CHECKING:
    from PIL.Image import Image

LARGE, SMALL = "large", "small"  # parts of a cell: FGSM and IFGSM, and CW before others
EACH = 2  # images of each attack that `gll attack` draws
LAYOUTS = {572: [(0, 572)], 836: [(190, 836)], 1056: [(0, 527), (529, 1056)]}
"""Where blocks lie from left to right, by the width of a picture: `gll attack` has drawn them in three ways."""
OLDEST = 572  # names the attack above the image, as no other does
TALL = 100  # pixels: an image is taller, a line of text is not
GAP, LINE, MARGIN = 26, 24, 8
SEEN = (
    "In each block: an image that the model classifies rightly; the change, where grey is none, and black and white "
    "are as far as the number above it says, pixels in 0 .. 1, in colour each channel by itself; and the attacked "
    "image, above it the class that the model takes it for (3 → 8: a 3 for an 8)."
)


def compose(parts: Mapping[str, Path], summary: Mapping[str, Any], path: Path) -> None:
    """Draw one picture from those of the parts.

    Args:
        parts: kept pictures by the part they are of; of one that is not there nothing is shown.
        summary: of the same evaluation, for ε and c.
        path: the picture.
    """
    from PIL import Image, ImageDraw

    rows = rows_of(parts, summary)
    wide = max(sum(block.width for block in blocks) + GAP * (len(blocks) - 1) for _, blocks in rows) + 2 * MARGIN
    words = textwrap.wrap(SEEN, wide // 7)
    high = sum(LINE + blocks[0].height + GAP // 2 for _, blocks in rows) + 18 * len(words) + MARGIN
    whole = Image.new("RGB", (wide, high), "white")
    pen, top = ImageDraw.Draw(whole), MARGIN // 2
    for heading, blocks in rows:
        pen.text((wide // 2, top + LINE // 2), heading, fill="black", font=_font(14, bold=True), anchor="mm")
        left, top = MARGIN, top + LINE
        for block in blocks:
            whole.paste(block, (left, top))
            left += block.width + GAP
        top += blocks[0].height + GAP // 2
    for line in words:
        pen.text((MARGIN, top), line, fill="black", font=_font(12))
        top += 18
    with complete_file(path) as part:
        whole.save(part, format="png")


def rows_of(parts: Mapping[str, Path], summary: Mapping[str, Any]) -> list[tuple[str, list[Image]]]:
    """Blocks under a heading for each attack; a picture that cannot be cut is one block, under that of its part."""
    radius = f"ε = {summary['table_eps']:g} in the paper's units, {summary['table_eps_pixels']:.3f} of the pixel range"
    cost = f"c = {summary['table_c']:g}"
    found = []
    if LARGE in parts:
        blocks = blocks_of(parts[LARGE])
        if len(blocks) == 2 * EACH:
            found += [(f"FGSM, {radius}", blocks[:EACH]), (f"IFGSM, {radius}", blocks[EACH:])]
        else:
            found += [(f"FGSM and IFGSM, {radius}", [_opened(parts[LARGE])])]
    if SMALL in parts:
        blocks = blocks_of(parts[SMALL])
        if len(blocks) >= EACH:
            found += [(f"CW, {cost}", blocks[:EACH])]
        else:
            found += [(f"CW, {cost}, and others", [_opened(parts[SMALL])])]
    return found


def blocks_of(file: Path) -> list[Image]:
    """An image, the change and the attacked image, with the line of words above them: in the order of the picture.

    None where the picture is of no known layout.
    """
    whole = _opened(file)
    blocks = []
    for top, bottom in _bands(whole):
        for left, right in LAYOUTS.get(whole.width, []):
            block = whole.crop((left, top, right, bottom))
            blocks.append(_said_plainly(block) if whole.width == OLDEST else block)
    return blocks


def _said_plainly(block: Image) -> Image:
    """Without the name of the attack above the image, which the heading has."""
    from PIL import ImageDraw

    pen, third = ImageDraw.Draw(block), block.width // 3
    pen.rectangle((0, 0, third, 17), fill="white")
    pen.text((third // 2, 8), "image", fill="black", font=_font(12), anchor="mm")
    return block


def _bands(whole: Image) -> list[tuple[int, int]]:
    """From where to where down the picture there are images with a line above them: rows between them are white."""
    import numpy as np

    ink = np.flatnonzero((np.array(whole.convert("L")) < 255).any(axis=1))
    runs = np.split(ink, np.flatnonzero(np.diff(ink) > 1) + 1) if len(ink) else []
    found = []
    for above, run in itertools.pairwise(runs):
        if len(run) > TALL >= len(above):
            found.append((int(above[0]) - 1, int(run[-1]) + 1))
    return found


def _opened(file: Path) -> Image:
    """On white."""
    from PIL import Image

    with Image.open(file) as kept:
        return kept.convert("RGB")


def _font(size: int, bold: bool = False) -> Any:
    """That of Matplotlib, which has ε."""
    import matplotlib
    from PIL import ImageFont

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, size)
