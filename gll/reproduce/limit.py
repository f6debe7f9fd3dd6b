"""When to stop: seconds are over, or the process that started this one is gone; and what is then said.

The work is asked to stop as by Ctrl-C, which everything here knows how to do.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, final

from gll.words import counted

if TYPE_CHECKING:
    from gll.reproduce.work import Work

LOOK_SECONDS = 1.0  # between two looks at the parent


@final
class Limit:
    """While it is entered, this process gets one SIGINT when the seconds are over, or its parent is; then `reached` or
    `orphaned` is True.

    with Limit(540) as limit:
        ...

    Args:
        seconds: until then; None: no limit.
        parent: the process that must live on; None: none.
    """

    def __init__(self, seconds: float | None, parent: int | None = None) -> None:
        self.seconds, self.parent = seconds, parent
        self.reached = self.orphaned = False
        self.end = float("inf") if seconds is None else time.monotonic() + seconds
        self._left, self._ignored = threading.Event(), False

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()

    def __enter__(self) -> Limit:
        if self.seconds is not None or self.parent is not None:
            # A shell starts what it puts into the background with SIGINT ignored.
            main = threading.current_thread() is threading.main_thread()
            if main and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                self._ignored = True
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def _watch(self) -> None:
        while not self._left.wait(max(0.0, min(self.left, LOOK_SECONDS))):
            self.reached = self.left <= 0
            self.orphaned = self.parent is not None and os.getppid() != self.parent
            if self.reached or self.orphaned:
                os.kill(os.getpid(), signal.SIGINT)
                return

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        if self._ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def where_stopped(works: Sequence[Work]) -> str:
    """In which cells work was stopped and how far it is there, whether that is kept, and how many cells are left."""
    from gll.reproduce.carry import position
    from gll.reproduce.choice import chosen

    begun = [(work, cell) for work in works for cell in work.begun()]
    left = sum(not cell.role for work in works for cell in work.todo())
    asked = sum(len(chosen(work.cells, work.only)) for work in works)
    said = [f"{left} of {counted(asked, 'cell')} left"]
    if begun:
        work, cell = begun[0]
        more = f" and {len(begun) - 1} more" if len(begun) > 1 else f" ({work.reporter.at})" if work.reporter.at else ""
        said.insert(0, f"stopped in {cell.title}{more}")
    lost = [cell.title for work, cell in begun if not any(position(work.folder(cell)))]
    if lost:
        more = f" and of {len(lost) - 1} more" if len(lost) > 1 else ""
        said.append(f"nothing of {lost[0]}{more} can be kept yet, so that it begins again")
    kept = "what else is done is kept" if lost else "what is done is kept"
    return f"{'; '.join(said)}; {kept}: the same command with --resume goes on"
