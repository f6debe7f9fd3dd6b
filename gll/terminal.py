"""What commands say on standard error: which command it is, what went wrong, and what to be warned of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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
def warned_once(*kinds: str) -> Iterator[None]:
    """Of warnings of these classes only the first is told: every step of an attack has one, with another number in it.

    The classes are given by their names, so that nothing has to be imported for a command that may not warn at all.
    """
    before, told = warnings.showwarning, set[str]()

    def show(message: Warning | str, category: type[Warning], *args: Any, **options: Any) -> None:
        name = category.__name__
        if name not in kinds:
            before(message, category, *args, **options)
        elif name not in told:
            told.add(name)
            error_console().print(Text.assemble(("gll: ", "yellow"), f"{message} (others of this kind are not shown)"))

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


@contextmanager
def problems_told(command: str, *kinds: type[Exception]) -> Iterator[Console]:
    """Errors of these kinds are what a user can do something about: one message, no traceback, the exit code 1.

    Of warnings that come with every step, one is told.
    """
    errors = error_console()
    try:
        with warned_once("UnreachedWarning"):
            yield errors
    except kinds as error:
        errors.print(said_by(command, str(error)))
        raise typer.Exit(1) from None
