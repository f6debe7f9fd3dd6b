"""What `gll compare` does: the files of several runs become one table; `curves.py` draws the picture.

Runs whose settings are the same but for the seed make one line of the table, as mean ± standard deviation. The figure
of a run is that of its last test, never the best of all epochs: the best would be chosen by looking at the test set. A
run that is not finished has a line of its own. One that cannot be read is named, and the others are compared.

Only the files are read (`config.toml`, `metrics.jsonl`, `result.json`), so this works while the runs are in progress,
and on a machine without their data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from gll.train.records import Record, find_runs, read_run
from gll.train.runs import RunError

# Settings in which two runs may differ and still be repetitions of each other.
REPEATED = frozenset({"seed", "name", "out"})
# Past this number of differing settings, a column for each would be too wide.
MOST_COLUMNS = 6


@dataclass(frozen=True)
class Spread:
    """A figure of several runs.

    >>> Spread((0.01, 0.02, 0.03)).text(100)
    '2.00 ± 1.00'
    >>> Spread((0.5,)).text()
    '0.50'
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values) if self.values else math.nan

    @property
    def std(self) -> float:
        """The standard deviation of a sample (n − 1); NaN for fewer than two runs."""
        if len(self.values) < 2:
            return math.nan
        return math.sqrt(sum((v - self.mean) ** 2 for v in self.values) / (len(self.values) - 1))

    def text(self, factor: float = 1.0, digits: int = 2) -> str:
        """The mean, with ± the standard deviation where there are several; a dash where there is nothing."""
        if not self.values:
            return "–"
        known = f"{factor * self.mean:,.{digits}f}"
        return known if math.isnan(self.std) else f"{known} ± {factor * self.std:,.{digits}f}"

    def as_dict(self) -> dict[str, Any]:
        return {"mean": _number(self.mean), "std": _number(self.std), "values": [_number(v) for v in self.values]}


@dataclass(frozen=True)
class Line:
    """A line of the table: runs that differ in the seed only, under one test.

    Args:
        settings: what distinguishes it from the other lines.
        runs: the runs in it.
        test: (head, mode); None if there was no test yet.
        epoch: of that test; for runs that are not finished, the last there is.
        error, loss: of the test.
        train_loss: of the last epoch of training.
        seconds: of training, as far as it was logged.
    """

    settings: Mapping[str, str]
    runs: tuple[Record, ...]
    test: tuple[str, str] | None
    epoch: int
    error: Spread
    loss: Spread
    train_loss: Spread
    seconds: Spread

    @property
    def finished(self) -> bool:
        return all(run.finished for run in self.runs)

    @property
    def name(self) -> str:
        """The settings in a few words, without those that its runs do not have."""
        words = ", ".join(f"{key.rpartition('.')[2]} {v}" for key, v in self.settings.items() if v != shown(None))
        return (words or self.runs[0].path.name) + ("" if self.finished else f" ({self.runs[0].path.name}, unfinished)")

    def as_dict(self) -> dict[str, Any]:
        return {
            "settings": dict(self.settings),
            "runs": [str(run.path) for run in self.runs],
            "seeds": [run.seed for run in self.runs],
            "finished": self.finished,
            "head": None if self.test is None else self.test[0],
            "mode": None if self.test is None else self.test[1],
            "epoch": self.epoch,
            "gamma": [run.gamma for run in self.runs],
            **{key: getattr(self, key).as_dict() for key in ("error", "loss", "train_loss", "seconds")},
        }


@dataclass(frozen=True)
class Comparison:
    """Several runs beside each other.

    Args:
        keys: the settings that differ.
        lines: the lines of the table.
        notes: sentences about runs that are unfinished, damaged or left out.
    """

    keys: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"differ": list(self.keys), "lines": [line.as_dict() for line in self.lines], "notes": list(self.notes)}

    def table(self, *, narrow: bool = False) -> Table:
        """The table, to be printed by rich.

        Args:
            narrow: settings are stacked, and only the error is shown.
        """
        table = Table()
        stacked = narrow or len(self.keys) > MOST_COLUMNS
        for key in ["settings"] if stacked else self.keys:
            table.add_column(Text(key), overflow="fold")
        table.add_column("test", overflow="fold")
        table.add_column("runs", justify="right", overflow="fold")
        figures = ("epoch", "error, %") if narrow else ("epoch", "error, %", "loss", "training loss", "seconds")
        for name in figures:
            table.add_column(name, justify="right", no_wrap=True)
        for line in self.lines:
            known = [f"{k} = {v}" for k, v in line.settings.items()]
            settings = ["\n".join(known)] if stacked else [line.settings[key] for key in self.keys]
            # Notes name an unfinished run by its folder; so does its line.
            runs = str(len(line.runs)) if line.finished else line.runs[0].path.name
            epoch = f"{line.epoch:,}" if line.finished else f"{line.epoch:,} (unfinished)"
            test = "–" if line.test is None else ", ".join(line.test)
            cells = [*settings, test, runs, epoch, line.error.text(100)]
            if not narrow:
                cells += [line.loss.text(digits=4), line.train_loss.text(digits=4), line.seconds.text(digits=1)]
            table.add_row(*(Text(cell) for cell in cells))
        return table


def print_comparison(found: Comparison, console: Console) -> None:
    """Print the table so that no figure is cut off: in a file or a pipe lines may be long, a window is as it is."""
    table = found.table()
    needed = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    if needed > console.width and console.is_terminal:
        console.print(found.table(narrow=True))
        console.print("loss and seconds: in a wider window, or by --json", highlight=False)
    else:
        wide = console if needed <= console.width else Console(file=console.file, width=needed)
        wide.print(table)


def compare(paths: Iterable[Path]) -> Comparison:
    """Read runs, group those that differ in the seed only, and work out their figures.

    Args:
        paths: folders of runs, or folders with runs in them.

    Raises:
        RunError: not one of them can be read.
    """
    runs, notes = [], []
    for path in find_runs(paths):
        try:
            runs.append(read_run(path))
        except RunError as error:
            notes.append(str(error))
    if not runs:
        raise RunError("; ".join(notes) or "no runs given")
    keys = differing([run.settings for run in runs])
    groups: dict[tuple[str, ...], list[Record]] = {}
    for run in runs:
        notes += run.notes
        group = tuple(shown(run.settings.get(key)) for key in keys)
        if not run.finished:
            asked = run.settings.get("train.epochs")
            of = f" of {asked}" if isinstance(asked, int) else ""
            why = f", stopped: {run.stopped}" if run.stopped else ""
            notes.append(f"{run.path} is not finished (epoch {run.epoch}{of}{why}): it is not part of a mean")
            group = (*group, str(run.path))
        groups.setdefault(group, []).append(run)
    lines = []
    for group, members in groups.items():
        seeds = [run.seed for run in members]
        if len(set(map(str, seeds))) < len(seeds):
            names = ", ".join(str(run.path) for run in members)
            notes.append(
                f"{names} repeat a seed ({', '.join(map(str, seeds))}): the deviation is smaller than it should be"
            )
        made = _lines(dict(zip(keys, group, strict=False)), members)
        if any(run.chose for run in members):
            found = [
                f"{'none' if run.gamma is None else shown(run.gamma)} (seed {run.seed})" for run in members if run.chose
            ]
            why = "; none: the graph was never better than before" if any(run.gamma is None for run in members) else ""
            notes.append(f"{made[0].name}: the warm-up chose γ = {', '.join(found)}{why}")
        lines += made
    return Comparison(keys, tuple(lines), tuple(notes))


def differing(settings: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The settings that are not the same in all, in the order of the first that has them; the seed does not count.

    >>> differing([{"seed": 1, "model.head": "mlp"}, {"seed": 2, "model.head": "gll", "model.k": 5}])
    ('model.head', 'model.k')
    """
    keys = dict.fromkeys(key for one in settings for key in one if key not in REPEATED)
    return tuple(key for key in keys if len({shown(one.get(key)) for one in settings}) > 1)


def shown(value: Any) -> str:
    """A setting in words; a dash where a run does not have it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)  # what differs must look different
    if isinstance(value, list):
        return ", ".join(map(shown, value)) or "none"
    return str(value)


def _lines(settings: dict[str, str], runs: list[Record]) -> list[Line]:
    """A line for every test that one of these runs has seen, or one line without figures of a test."""
    tests: list[tuple[str, str] | None] = list(dict.fromkeys(test for run in runs for test in run.tests))
    lines = []
    for test in tests or [None]:
        members = tuple(run for run in runs if test is None or test in run.tests)

        def last(phase: str, figure: str, members: tuple[Record, ...] = members, of: Any = test) -> Spread:
            curves = (run.curve(phase, figure, of if phase == "test" else None) for run in members)
            return Spread(tuple(curve.values[-1] for curve in curves if curve.values))

        times = [run.curve("train", "seconds").values for run in members]
        ends = [run.curve("test", "error", test).epochs[-1:] if test else (run.epoch,) for run in members]
        lines.append(
            Line(
                settings=settings,
                runs=members,
                test=test,
                epoch=max((end[0] for end in ends if end), default=0),
                error=last("test", "error"),
                loss=last("test", "loss"),
                train_loss=last("train", "loss"),
                seconds=Spread(tuple(sum(values) for values in times if values)),
            )
        )
    return lines


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return value if math.isfinite(value) else None
