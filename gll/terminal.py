"""What commands say on standard error: which command it is, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text


def error_console() -> Console:
    """Standard error, without lines broken or numbers coloured: messages may be searched for."""
    return Console(stderr=True, soft_wrap=True, highlight=False)


def said_by(command: str, text: str, colour: str = "red") -> Text:
    """A message that begins with the command; red for what ends it.

    >>> said_by("fit", "there is no file x.npz").plain
    'gll fit: there is no file x.npz'
    """
    return Text.assemble((f"gll {command}: ", colour), text)


@contextmanager
def problems_told(command: str, *kinds: type[Exception]) -> Iterator[Console]:
    """Errors of these kinds are what a user can do something about: one message, no traceback, the exit code 1."""
    errors = error_console()
    try:
        yield errors
    except kinds as error:
        errors.print(said_by(command, str(error)))
        raise typer.Exit(1) from None
