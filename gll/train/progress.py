"""What one sees while a run works: a bar with figures on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text


@final
class Reporter:
    """Says how far a run is. `Reporter(None)` says nothing.

        with reporter.task("train", steps) as update:
            update(done, "loss 0.2134, error 1.20 %, 31,000 images/s")

    Args:
        console: where to; a terminal shows a bar, anything else a line every few seconds.
        seconds: between two plain lines.

    `at` says how far the task at work is, or was when it was stopped: "epoch 0.12/20".
    """

    def __init__(self, console: Console | None = None, seconds: float = 10.0) -> None:
        self.console, self.seconds, self.at = console, seconds, ""

    def say(self, text: str) -> None:
        """One line."""
        if self.console is not None:
            self.console.print(Text(text), soft_wrap=True)

    @contextmanager
    def task(self, name: str, total: float, done: float = 0) -> Iterator[Update]:
        """A piece of work of `total` steps, of which `done` were done earlier."""
        with self._bar(name, total, done) as (bar, task):
            try:
                yield Update(self, name, total, done, bar, task)
            except Exception:  # KeyboardInterrupt is none: whoever stopped it may ask where
                self.at = ""
                raise
        self.at = ""

    @contextmanager
    def _bar(self, name: str, total: float, done: float) -> Iterator[tuple[Progress | None, TaskID | None]]:
        """On a terminal."""
        if self.console is None or not self.console.is_terminal:
            yield None, None
            return
        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[figures]}")
        )  # fmt: skip
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(name, total=total, figures="")
            bar.update(task, completed=done)
            yield bar, task


@final
class Update:
    """Called with the number of steps done and a text of figures; adds the time left.

    That goes by what was done since it began: the steps of earlier stretches took none of its seconds.
    """

    def __init__(
        self,
        reporter: Reporter,
        name: str,
        total: float,
        done: float,
        bar: Progress | None = None,
        task: TaskID | None = None,
    ) -> None:
        self.reporter, self.name, self.total = reporter, name, total
        self.bar, self.task = bar, task
        self.last = time.monotonic()
        self.go_on(done)

    def go_on(self, done: float) -> None:
        """Time is counted from here, where so many steps were done by earlier stretches."""
        self.first, self.start = done, time.monotonic()
        self._note(done)

    def _note(self, done: float) -> None:
        self.reporter.at = f"{self.name} {_number(done)}/{_number(self.total)}"

    def __call__(self, done: float, figures: str) -> None:
        now = time.monotonic()
        self._note(done)
        if done > self.first:
            figures += f", {clock((now - self.start) / (done - self.first) * (self.total - done))} left"
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=done, figures=figures)
        elif now - self.last >= self.reporter.seconds:
            self.last = now
            self.reporter.say(f"{self.reporter.at}: {figures}")


def clock(seconds: float) -> str:
    """A time to read.

    >>> clock(9.2), clock(75), clock(7384)
    ('9 s', '1:15', '2:03:04')
    """
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    if minutes == 0:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _number(x: float) -> str:
    """A number to read.

    >>> _number(0.11666), _number(7), _number(100_000.0)
    ('0.1167', '7', '100,000')
    """
    return f"{x:,.0f}" if x == round(x) else f"{x:,.4g}"
