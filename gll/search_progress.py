"""How far a search is, told to whom it concerns: a function of one's own, or a bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Progress = Callable[[str, int, int], None]
"""Told the stage, how much of it is done, and how much there is. It may raise, to stop the search."""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress bar on standard error: `with progress_bar() as show: Projected(progress=show)(x, k)`."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns, console = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()), Console(stderr=True)
    with Bar(*columns, transient=True, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done)

        yield show
