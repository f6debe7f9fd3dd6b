"""The parts of an ensemble (AutoAttack) in a report: the error after each, and which could not be made.

Each part goes on with the samples that the parts before have left. So a figure says what a part has added, and not what
it would find by itself; a last part that adds nothing was either not needed, or blind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gll.attacks.evaluate import describe
from gll.attacks.tables import NONE, Grid, percent


def parts_grid(summary: Mapping[str, Any]) -> Grid:
    """A row for every ensemble, a column for every part; no rows where there is none.

    >>> cell = {"attack": "autoattack", "settings": {"eps": 0.1}, "parts": {"apgd-ce": 0.5, "square": 0.75}}
    >>> print(parts_grid({"groups": [{"attacks": [cell]}]}).markdown())
    | attack | apgd-ce | square |
    |---|---:|---:|
    | autoattack, eps 0.1 | 50.00 | 75.00 |
    """
    cells = [cell for group in summary["groups"] for cell in group["attacks"] if cell.get("parts")]
    parts = list(dict.fromkeys(part for cell in cells for part in cell["parts"]))
    rows = tuple(
        (
            describe(cell["attack"], cell["settings"]),
            *(percent(cell["parts"][part]) if part in cell["parts"] else NONE for part in parts),
        )
        for cell in cells
    )
    return Grid("Parts of AutoAttack: error in percent after each", ("attack", *parts), rows)


def parts_left_out(summary: Mapping[str, Any]) -> list[str]:
    """In words, which parts could not be made; each once."""
    found = {
        f"{cell['attack']} was made without its part {part}: {why}": None
        for group in summary["groups"]
        for cell in group["attacks"]
        for part, why in cell.get("left_out", {}).items()
    }
    return list(found)
