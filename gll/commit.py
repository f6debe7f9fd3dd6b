"""Which commit the code at work is of."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path


def commit_of(folder: Path, besides: Sequence[str] = ()) -> str:
    """The commit of the checkout a folder lies in, with "-dirty" where tracked files have changed since.

    Args:
        folder: any of the checkout.
        besides: files that may have changed, as patterns from the top of the checkout in which * is a part of one name.

    Returns:
        GLL_COMMIT from the environment where it is given, else what git says, else "unknown".
    """
    if given := os.environ.get("GLL_COMMIT"):
        return given
    try:
        name = _git(folder, "describe", "--always", "--abbrev=12")
        others = [f":(top,exclude,glob){pattern}" for pattern in besides]
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ":(top)", *others)
    except (OSError, subprocess.SubprocessError):  # no git, or no checkout
        return "unknown"
    return f"{name}-dirty" if changed else name


def _git(folder: Path, *words: str) -> str:
    """What git answers. It takes no locks, so that nobody's own git has to wait."""
    command = ["git", "--no-optional-locks", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=10, check=True).stdout.strip()
