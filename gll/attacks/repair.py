"""Damaged results: set aside, so that their attacks can be made again."""

from __future__ import annotations

from pathlib import Path

from gll.attacks.store import ResultsError, Store, cell_in


def set_aside_damaged(store: Store) -> list[str]:
    """Rename the files of cells that cannot be used, and say so; nothing is thrown away.

    Args:
        store: a folder of results.

    Returns:
        A line for each of them.
    """
    if store.directory is None:
        return []
    said = []
    with store.working():
        for path in sorted((store.directory / "cells").glob("*.json")):
            if not _good(store, path):
                for file in (path, path.with_suffix(".npz")):
                    if file.is_file():
                        file.replace(file.with_name(f"{file.name}.damaged"))
                said.append(
                    f"{path} is damaged, and is now {path.name}.damaged: an attack of this command is made again, "
                    "others are not in the tables any more"
                )
    return said


def _good(store: Store, path: Path) -> bool:
    try:
        cell = cell_in(path)
        store.chunks(cell)
        store.pictures(cell)
    except (ResultsError, KeyError, TypeError, ValueError):
        return False
    return cell.key == path.stem
