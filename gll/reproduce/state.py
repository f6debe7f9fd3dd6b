"""How a cell stands that has no record yet: progress.json in its folder, and who is at work there.

{"wall_s": 81.2, "commits": ["ab12cd3"], "process": 4711, "host": "here"}        at work, or stopped if it is not
{"wall_s": 81.2, "commits": ["ab12cd3"], "error": {"text": "...", "at": 1.7e9}}  has failed
"""

from __future__ import annotations

import enum
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from gll.reproduce.records import Record, claimed, write_json

NEED_FAILED = "what it needs has failed"


class State(enum.StrEnum):
    """How a cell stands, in words."""

    DONE = "done"
    AT_WORK = "at work"
    STOPPED = "stopped"
    FAILED = "failed"
    NOT_RUN = "not run"
    NEEDS = "needs its warm-up"
    AT_HAND = "at hand"
    ELSEWHERE = "made elsewhere, not here"


@final
@dataclass(frozen=True)
class Standing:
    """How a cell stands, and what is known of it.

    Args:
        state: in words.
        seconds: that it took so far; None if it was not begun.
        about: why it failed, who is at work, or where it is done.
    """

    state: State
    seconds: float | None = None
    about: str = ""


def standing(folder: Path, record: Record | None) -> Standing:
    """How the cell of a folder stands. Changes nothing there.

    Args:
        folder: its own; it need not be there.
        record: of the cell, if it is finished.
    """
    if record is not None:
        return Standing(State.DONE, record["wall_s"])
    if not (folder / "progress.json").is_file():
        return Standing(State.NOT_RUN)
    seconds = read_progress(folder)["wall_s"]
    if error := error_of(folder):
        return Standing(State.FAILED, seconds, error)
    by = holder(folder)
    return Standing(State.AT_WORK, seconds, by) if by else Standing(State.STOPPED, seconds)


def read_progress(folder: Path) -> dict[str, Any]:
    """Seconds and commits of the stretches before, and what is known beside."""
    path = folder / "progress.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"wall_s": 0.0, "commits": []}


def note_begin(folder: Path) -> dict[str, Any]:
    """Say that this process is at work, which stays there if it is killed. Returns what was there before."""
    before = read_progress(folder)
    spent = {key: before[key] for key in ("wall_s", "commits")}
    write_json(folder / "progress.json", {**spent, "process": os.getpid(), "host": socket.gethostname()})
    return before


def error_of(folder: Path, since: float = 0.0) -> str:
    """Why a cell has failed; empty if it has not, or not since then."""
    error = read_progress(folder).get("error")
    return str(error["text"]) if error and error["at"] >= since else ""


def holder(folder: Path) -> str:
    """The process that is at work in a folder, in words; empty if none is."""
    if not folder.is_dir():
        return ""
    with claimed(folder) as free:
        if free:
            return ""
    found = read_progress(folder)
    return f"process {found['process']} on {found['host']}" if "process" in found else "another process"


def stopped(folder: Path) -> bool:
    """Whether work has been begun that nobody is at any more, and that did not fail."""
    return (folder / "progress.json").is_file() and not error_of(folder) and not holder(folder)


def grouped(problems: list[tuple[str, str]]) -> list[str]:
    """Cells and why they failed, each reason once.

    >>> grouped([("a", "no data"), ("b", "too large"), ("c", "no data"), ("d", "no data")])
    ['a and 2 more: no data', 'b: too large']
    """
    by_reason: dict[str, list[str]] = {}
    for title, reason in problems:
        by_reason.setdefault(reason, []).append(title)
    more = {reason: f" and {len(titles) - 1} more" if len(titles) > 1 else "" for reason, titles in by_reason.items()}
    return [f"{titles[0]}{more[reason]}: {reason}" for reason, titles in by_reason.items()]
