"""A console that goes on when nobody reads any more: `gll attack RUN | head` still writes its report."""

from __future__ import annotations

import contextlib
import os
from typing import final

from rich.console import Console


@final
class PatientConsole(Console):
    """As another console; when the reader of its pipe has gone away it falls silent, and the work goes on."""

    @staticmethod
    def like(console: Console) -> PatientConsole:
        """A patient one that writes where `console` does."""
        return PatientConsole(file=console.file, force_terminal=True if console.is_terminal else None)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        with contextlib.suppress(OSError, ValueError):  # what is no file has no pipe to close
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())
