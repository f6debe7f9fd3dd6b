"""Numbers in messages, with the noun they count."""

from __future__ import annotations


def counted(number: int, one: str) -> str:
    """A number and what there are so many of.

    Args:
        number: how many.
        one: what one of them is called; the plural takes an s, or es after one.

    >>> counted(1, "file"), counted(1797, "training image"), counted(0, "class")
    ('1 file', '1,797 training images', '0 classes')
    """
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}{'es' if one.endswith('s') else 's'}"
