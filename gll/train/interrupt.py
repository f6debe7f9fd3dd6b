"""Ctrl-C and SIGTERM between two steps instead of in the middle of one; or both at once, with the same words."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, final


@final
class Interrupt:
    """While it is entered, the first signal only sets `asked`; a second one interrupts at once.

    with Interrupt() as interrupt:
        for ...:
            ...
            if interrupt.asked:
                ...
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():  # the only one that may ask for signals
            self._before = {number: signal.signal(number, self._note) for number in self.SIGNALS}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """While it is entered, SIGTERM (of a batch system, of `timeout`) interrupts at once, as Ctrl-C does.

    For work that is kept piece by piece, and whose pieces may take longer than a batch system waits before it kills.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # the only one that may ask for signals
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
