"""A limit of seconds: after it the work is asked to stop, as by Ctrl-C, which everything here knows how to do."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import TracebackType
from typing import final


@final
class Limit:
    """While it is entered, this process gets one SIGINT when the seconds are over; then `reached` is True.

    with Limit(540) as limit:
        ...

    Args:
        seconds: until then; None: no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds, self.reached, self.inside = seconds, False, False
        self.end = float("inf") if seconds is None else time.monotonic() + seconds
        self._timer: threading.Timer | None = None

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()

    def __enter__(self) -> Limit:
        self.inside = True
        if self.seconds is not None:
            self._timer = threading.Timer(max(self.left, 0.0), self._stop)
            self._timer.daemon = True
            self._timer.start()
        return self

    def _stop(self) -> None:
        self.reached = True
        if self.inside:
            os.kill(os.getpid(), signal.SIGINT)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.inside = False
        if self._timer is not None:
            self._timer.cancel()
