"""What the files of a run say, read without what made them: settings, and figures against the epoch.

Files that are cut off or damaged are read as far as that goes, and what was wrong is said. Read next: `compare.py`.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gll.train.runs import RunError


@dataclass(frozen=True)
class Curve:
    """One figure of a run against the epoch."""

    epochs: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Record:
    """What the files of a run say.

    Args:
        path: its folder.
        settings: the configuration, `{"train.epochs": 50, ...}`.
        rows: the lines of `metrics.jsonl`; of lines about the same thing, the last.
        finished: there is a `result.json`.
        notes: what was wrong with the files.
    """

    path: Path
    settings: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    finished: bool
    notes: tuple[str, ...]

    @property
    def seed(self) -> Any:
        return self.settings.get("seed")

    @property
    def epoch(self) -> int:
        """The last epoch of training there is a line about; 0 if none."""
        return max((int(row["epoch"]) for row in self.rows if row["phase"] == "train"), default=0)

    @property
    def stopped(self) -> str:
        """Why training has stopped by itself; empty if it has not, or has gone on since."""
        last = self.rows[-1] if self.rows else {}
        return str(last.get("reason", "")) if last.get("phase") == "stopped" else ""

    @property
    def tests(self) -> list[tuple[str, str]]:
        """What was tested, as (head, transductive or inductive)."""
        return list(dict.fromkeys(_tested(row) for row in self.rows if row["phase"] == "test"))

    @property
    def gamma(self) -> Any:
        """The γ of the warm-up: that which was chosen, or before that the one that is being tried; None if none."""
        chosen = [row["chosen"] for row in self.rows if row["phase"] == "warmup" and "chosen" in row]
        return (chosen or self._tried or [None])[-1]

    @property
    def _tried(self) -> list[Any]:
        return [row["gamma"] for row in self.rows if row["phase"] == "warmup" and "gamma" in row]

    @property
    def chose(self) -> bool:
        """Whether the warm-up has tried several γ and chosen one, or none if they made nothing better."""
        return any("chosen" in row for row in self.rows if row["phase"] == "warmup")

    def curve(self, phase: str, figure: str, test: tuple[str, str] | None = None) -> Curve:
        """`figure` ("loss", "error", ...) of a phase ("train", "test", "warmup") against the epoch.

        A figure that was not finite is stored as null, and is NaN here: it must not give way to an earlier one. Of a
        warm-up with several γ, it is the curve of `gamma`, or of the last if none was chosen.
        """
        rows = [r for r in self.rows if r["phase"] == phase and figure in r and test in (None, _tested(r))]
        if phase == "warmup":
            one = self._tried[-1:] if self.gamma is None else [self.gamma]
            rows = [r for r in rows if "epoch" in r and r.get("gamma") in (one or [None])]
        rows.sort(key=lambda row: int(row["epoch"]))
        values = (math.nan if row[figure] is None else float(row[figure]) for row in rows)
        return Curve(tuple(int(row["epoch"]) for row in rows), tuple(values))


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Each path if it is a run, or else the runs in it; what is neither stays, and is named by `compare`."""
    found: list[Path] = []
    for path in map(Path, paths):
        inside = sorted(file.parent for file in path.glob("*/config.toml"))
        found += [path] if (path / "config.toml").exists() or not inside else inside
    return list(dict.fromkeys(found))


def read_run(path: Path) -> Record:
    """The files of one run.

    Raises:
        RunError: this is no run, or its configuration cannot be read.
    """
    config = path / "config.toml"
    if not config.is_file():
        raise RunError(f"{path} is not a run: it has no config.toml")
    try:
        settings = _without_seed(_flat(tomllib.loads(config.read_text(encoding="utf-8"))))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: config.toml cannot be read ({error})") from None
    rows, notes = _read_metrics(path / "metrics.jsonl")
    finished = (path / "result.json").is_file()
    if finished and not _is_json(path / "result.json"):
        finished = False
        notes.append("result.json is damaged: the run counts as unfinished")
    return Record(path, settings, rows, finished, tuple(f"{path}: {note}" for note in notes))


def _is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False


def _read_metrics(path: Path) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
    """The lines of `metrics.jsonl`, and what was wrong with them.

    A resumed run writes some epochs again: the later line counts. A last line that is cut off is no damage, only a line
    that was being written.
    """
    if not path.is_file():
        return (), ["there is no metrics.jsonl"]
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.split("\n")
    rows: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    broken = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            chosen = row["phase"] == "warmup" and "chosen" in row  # is about the warm-up, not about an epoch of it
            epoch = None if chosen else int(row["epoch"])
            rows[(str(row["phase"]), epoch, *_tested(row), row.get("gamma"))] = row
        except (ValueError, TypeError, KeyError):
            if number < len(lines):
                broken.append(number)
    if not broken:
        return tuple(rows.values()), []
    some = ", ".join(map(str, broken[:5])) + (" ..." if len(broken) > 5 else "")
    what = f"line {some} of metrics.jsonl is" if len(broken) == 1 else f"lines {some} of metrics.jsonl are"
    return tuple(rows.values()), [f"{what} damaged and left out"]


def _tested(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("head", "–")), str(row.get("mode", "–"))


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"train": {"epochs": 5}}` as `{"train.epochs": 5}`."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _without_seed(settings: dict[str, Any]) -> dict[str, Any]:
    """Names that end with the run's seed, such as that of the warm-up it started from, are those of repetitions."""
    end = f"-{settings.get('seed')}"
    named = {k: v for k, v in settings.items() if isinstance(v, str) and v.endswith(end)}
    return settings | {key: value.removesuffix(end) + "-SEED" for key, value in named.items()}
