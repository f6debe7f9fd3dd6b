"""What pictures were drawn from: docs/figures/reproduce-drawn.json, which tells when they are out of date.

{"reproduce-moons.png": {"caption": "figure 4: ...", "data": "0123456789abcdef"}}   data: a checksum of what is drawn
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from gll.reproduce.records import write_json

NAME = "reproduce-drawn.json"


@final
@dataclass(frozen=True, eq=False)
class Picture:
    """A picture that can be drawn.

    Args:
        path: where to.
        caption: what is seen.
        data: a checksum of what is drawn.
        draw: writes it.
    """

    path: Path
    caption: str
    data: str
    draw: Callable[[Path], object]

    @property
    def told(self) -> dict[str, str]:
        """As the file has it."""
        return {"caption": self.caption, "data": self.data}


def checksum(data: Any) -> str:
    """Of bytes, or of what JSON can say.

    >>> checksum({"a": 1, "b": 2}) == checksum({"b": 2, "a": 1}) != checksum({"a": 1})
    True
    """
    raw = data if isinstance(data, bytes) else json.dumps(data, sort_keys=True).encode()
    return hashlib.sha256(raw).hexdigest()[:16]


def read_drawn(folder: Path) -> dict[str, dict[str, str]]:
    """By the name of the picture; nothing where none was drawn."""
    path = folder / NAME
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write_drawn(pictures: Iterable[Picture], folder: Path) -> None:
    """Say what these pictures were drawn from."""
    write_json(folder / NAME, {picture.path.name: picture.told for picture in pictures})


def stale(pictures: Iterable[Picture], folder: Path) -> list[str]:
    """What is wrong with the pictures of a folder, in words: those that would be drawn otherwise now, or not at all."""
    planned, drawn = {picture.path.name: picture.told for picture in pictures}, read_drawn(folder)
    there = {path.name for path in folder.glob("reproduce-*.png")}
    old = [name for name, told in planned.items() if name not in there or drawn.get(name) != told]
    left = sorted(name for name in there | set(drawn) if name not in planned)
    said = [f"{folder / name} is out of date: run gll reproduce --figures" for name in old]
    return said + [f"{folder / name} is drawn no more: remove it, and run gll reproduce --figures" for name in left]
