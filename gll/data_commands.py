"""`gll data list`, `gll data path`, `gll data check`: which data there is, where it belongs, whether it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from gll.words import counted

if TYPE_CHECKING:
    from gll.data.sources import AbstractSource

app = typer.Typer(help="Which data there is, where it belongs, and whether it is whole.", no_args_is_help=True)
Root = Annotated[
    Path | None, typer.Option("--data-root", help="Where data sets lie; else the variable GLL_DATA, else ./data.")
]


def _console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, soft_wrap=True, highlight=False)


def _stop(error: Exception | str) -> typer.Exit:
    _console(stderr=True).print(Text.assemble(("gll data: ", "red"), str(error)))
    return typer.Exit(1)


@app.command("list")
def list_(data_root: Root = None) -> None:
    """The known data sets, and whether their files are there."""
    from gll.data.datasets import data_root as find_root
    from gll.data.sources import SOURCES

    root = find_root(data_root)
    for source in SOURCES.values():
        folder = source.folder(root)
        there, wanted = source.present(root)
        state = "needs no files" if folder is None else "there" if there == wanted else f"{there} of {wanted} files"
        where = "" if folder is None else f" ({folder})"
        _console().print(Text(f"{source.name:<14} {state:<15} {source.about}{where}"))
    _console().print("Your own: a folder with a subfolder for each class, or an .npz file; see gll data check PATH.")


@app.command()
def path(
    name: Annotated[str | None, typer.Argument(help="A data set; by default the root of all.")] = None,
    data_root: Root = None,
) -> None:
    """Print the folder that a data set belongs into; what to fetch is said on standard error."""
    from gll.data.datasets import data_root as find_root

    root = find_root(data_root)
    if name is None:
        typer.echo(root.absolute())
        return
    source = _source(name)
    folder = source.folder(root)
    if folder is None:
        raise _stop(f"{source.name} has no files: {source.about}")
    there, wanted = source.present(root)
    if there < wanted:
        _console(stderr=True).print(Text(f"missing: {wanted - there} of {counted(wanted, 'file')}. {source.how(root)}"))
    typer.echo(folder.absolute())


@app.command()
def check(
    name: Annotated[str | None, typer.Argument(help="A data set, a folder or an .npz file; by default all.")] = None,
    data_root: Root = None,
    size: Annotated[int | None, typer.Option(min=1, help="Scale the images of a folder to this size.")] = None,
) -> None:
    """Read every file and compare it with its checksum; or read your own data and say what is in it."""
    from gll.data.datasets import data_root as find_root
    from gll.data.datasets import load
    from gll.data.sources import SOURCES

    root = find_root(data_root)
    if name is not None and name.lower() not in SOURCES:
        try:
            data = load(name, root, size=size)
        except (OSError, ValueError) as error:
            raise _stop(error) from None
        for line in data.summary():
            _console().print(Text(line))
        return
    wrong = 0
    for source in SOURCES.values() if name is None else [_source(name)]:
        with _console(stderr=True).status(f"reading {source.name}"):
            states = source.states(root)
        if not states:
            _console().print(f"{source.name}: needs no files")
        elif name is None and not any(state.present for state in states):
            _console().print(Text.assemble(f"{source.name}: ", ("not there", "yellow"), f" ({source.folder(root)})"))
        else:
            for state in states:
                good = "whole" if state.checked else "readable, its checksum is not known"
                said = (state.problem, "red") if state.problem else (good, "green")
                _console().print(Text.assemble(f"{source.name}: {state.path}: ", said))
                wrong += bool(state.problem)
    if wrong:
        raise _stop(f"missing or damaged: {counted(wrong, 'file')}; gll data path NAME says what to fetch")


def _source(name: str) -> AbstractSource:
    from gll.data.sources import SOURCES

    if name.lower() not in SOURCES:
        raise _stop(f"there is no data set {name!r}; known are {', '.join(SOURCES)}")
    return SOURCES[name.lower()]
