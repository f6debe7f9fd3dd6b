"""What a cell that is not finished takes to go on elsewhere: its files, and how far it is."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

# Made again from the rest, or for people to look at.
LEFT = (".png", ".md")
TRAINED, WARMED = "train.safetensors", "warmup.safetensors"


def needed_files(folder: Path) -> list[Path]:
    """All files of a cell's folder without which it does not go on, nor others from it: no curves and pictures, no
    checkpoints of a stage that is over, no locks, nothing that was never written to the end."""
    checkpoints = {path.name for path in folder.glob("run/checkpoints/*.safetensors")}
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if not path.is_file() or path.is_symlink() or path.suffix in LEFT:
            continue
        if "tensorboard" in parts or any(part.startswith(".") for part in parts):
            continue
        if parts[:2] != ("run", "checkpoints") or path.name in newest(checkpoints):
            found.append(path)
    return found


def newest(names: Collection[str]) -> set[str]:
    """Of the checkpoints of a run, those it goes on from: once training has one, the warm-up's are not needed, and once
    the warm-up is finished, those of each γ.

    >>> sorted(newest(["warmup-0.5.safetensors", "warmup-1.0.safetensors"]))
    ['warmup-0.5.safetensors', 'warmup-1.0.safetensors']
    >>> newest(["warmup-1.0.safetensors", "warmup.safetensors"])
    {'warmup.safetensors'}
    >>> newest(["warmup-1.0.safetensors", "warmup.safetensors", "train.safetensors"])
    {'train.safetensors'}
    """
    last = next((name for name in (TRAINED, WARMED) if name in names), None)
    return set(names) if last is None else {last}


def position(folder: Path) -> tuple[int, ...]:
    """How far a cell is. Of two positions of one cell the larger is further along; zeros: nothing to go on from.

    Not by seconds, of which another machine needs others, but by what it goes on from: whether it is finished, and
    whether its training is; attacked samples; lines of metrics at the last checkpoint, and steps after them; epochs
    of a study of two moons.
    """
    run, lines, step = folder / "run", 0, 0
    for path in (run / "checkpoints").glob("*.safetensors"):
        state = _state(path)
        lines = max(lines, _lines(run / "metrics.jsonl", _number(state, "metrics")))
        step = max(step, _number(state.get("state"), "step"))  # all are at 0 but that which is at work
    attacked = sum(_attacked(path) for path in folder.glob("*/**/cells/*.json"))
    done = [(folder / "record.json").is_file(), (run / "result.json").is_file()]
    return (*map(int, done), attacked, lines, step, _number(_state(folder / "study.safetensors"), "epoch"))


def _state(path: Path) -> dict[str, Any]:
    """What a checkpoint says beside its tensors; nothing where it cannot be read: none can go on from it."""
    try:
        with safe_open(path, framework="numpy") as file:
            return dict(json.loads(file.metadata()["state"]))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return {}


def _number(state: object, key: str) -> int:
    """A whole number of a state; 0 where it has none."""
    value = state.get(key) if isinstance(state, dict) else None
    return value if type(value) is int else 0


def _lines(path: Path, length: int) -> int:
    """How many lines there are in the first bytes of a file."""
    return path.read_bytes()[:length].count(b"\n") if path.is_file() else 0


def _attacked(path: Path) -> int:
    """How many samples an attack has finished."""
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["chunks"][-1]["stop"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return 0
