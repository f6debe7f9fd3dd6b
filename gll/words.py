"""Words of messages: numbers with the noun they count, and what may have been meant."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, one: str) -> str:
    """A number and what there are so many of.

    Args:
        number: how many.
        one: what one of them is called; the plural takes an s, or es after one.

    >>> counted(1, "file"), counted(1797, "training image"), counted(0, "class")
    ('1 file', '1,797 training images', '0 classes')
    """
    return f"{number:,} {one}" if number == 1 else f"{number:,} {one}{'es' if one.endswith('s') else 's'}"


def did_you_mean(names: Iterable[str]) -> str:
    """A question of an error message, at its end or before what there is; nothing where there are no names.

    >>> did_you_mean(["a", "b"]), did_you_mean([])
    ("; did you mean 'a' or 'b'?", '')
    """
    asked = " or ".join(map(repr, names))
    return f"; did you mean {asked}?" if asked else ""
