"""Wanted shares of the classes, as `--class-prior` gives them: a list of numbers, names with numbers, or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gll.input_files import InputError, decoded, some
from gll.text_tables import Table


def read_prior(text: str, classes: list[Any]) -> list[float]:
    """Wanted shares of the classes, in their order: "3,4,3", "cat=3,dog=4", or a CSV file with the header label,share.

    They are scaled to sum to one.

    Args:
        text: the shares, or the name of a file.
        classes: the classes, sorted.

    >>> read_prior("dog=3, cat=1", ["cat", "dog"])
    [0.25, 0.75]
    """
    pairs: list[tuple[str, str]]
    if Path(text).is_file():
        path = Path(text)
        table = Table(path, decoded(path), ("label", "share"))
        pairs = [(label, share) for _, label, share in table.lines("label", "share")]
    else:
        parts = [part.strip() for part in text.split(",")]
        if all("=" in part for part in parts):
            pairs = [(label.strip(), share) for label, _, share in (part.rpartition("=") for part in parts)]
        elif len(parts) == len(classes):
            pairs = [(str(c), share) for c, share in zip(classes, parts, strict=True)]
        else:
            raise InputError(
                f"--class-prior: {text!r} is neither a file nor one number for each of the {len(classes)} classes "
                f"({some(classes)}); write 3,4,3 or name=3,other=4"
            )
    found: dict[str, float] = {}
    for label, share in pairs:
        try:
            value = float(share)
        except ValueError:
            raise InputError(f"--class-prior: {share.strip()!r} for {label!r} is not a number") from None
        if not 0 < value < float("inf"):
            raise InputError(f"--class-prior: the share of {label!r} must be positive and finite, got {value:g}")
        if label in found:
            raise InputError(f"--class-prior: {label!r} is given twice")
        found[label] = value
    missing = [c for c in classes if str(c) not in found]
    strange = [c for c in found if c not in {str(c) for c in classes}]
    if missing or strange:
        said = [f"{some(missing)} have no share"] if missing else []
        said += [f"{some(strange)} are not among the labels"] if strange else []
        raise InputError(f"--class-prior must name every class once: {', and '.join(said)}")
    total = sum(found.values())
    return [found[str(c)] / total for c in classes]
