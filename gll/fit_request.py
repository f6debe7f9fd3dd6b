"""What `gll fit` is asked for, and whether it can be done: checked before any work begins."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

import torch

from gll.input_files import InputError
from gll.methods import METHODS


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line.

    Args:
        features: file of the points.
        labels: file of the labels; None for an array in the same file.
        key: name of the array of features.
        out, report, save: files to write: the result, a page, the fitted classifier; None for none.
        force: replace files that exist.
        verbose: tell the stages on standard error.
        method, neighbors, metric, class_prior, calibrate, unreached, device, seed: as in `GraphLearningClassifier`.
    """

    features: Path
    labels: Path | None = None
    key: str | None = None
    out: Path | None = None
    report: Path | None = None
    save: Path | None = None
    force: bool = False
    verbose: bool = False
    method: str = "auto"
    neighbors: int = 10
    metric: str = "euclidean"
    class_prior: str | None = None
    calibrate: bool = False
    unreached: str = "uniform"
    device: str = "cpu"
    seed: int = 0

    def command(self) -> str:
        """The command that asks for this, with what differs from the defaults.

        >>> Request(Path("x.npz"), Path("my labels.csv"), neighbors=15, calibrate=True).command()
        "gll fit x.npz --labels 'my labels.csv' --neighbors 15 --calibrate"
        """
        words = ["gll", "fit", str(self.features)]
        default = Request(self.features)
        for name, value in vars(self).items():
            if name in ("features", "force", "verbose") or value == getattr(default, name):
                continue
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
        return shlex.join(words)


def check_options(request: Request) -> None:
    """Raise where a method or a device is named that there is not."""
    if request.method not in METHODS:
        raise InputError(f"--method {request.method} is not known; choose one of {', '.join(METHODS)}")
    try:
        torch.empty(1, device=request.device)
    except (RuntimeError, AssertionError, ValueError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"--device {request.device} cannot be used: {said}") from None


def check_outputs(request: Request) -> None:
    """Raise where a file cannot be written, before any work is done for it."""
    inputs = {path.resolve() for path in (request.features, request.labels) if path is not None}
    taken: set[Path] = set()
    for option in ("out", "report", "save"):
        path: Path | None = getattr(request, option)
        if path is None:
            continue
        place = path.resolve()
        if place in inputs:
            raise InputError(f"--{option} {path} is also read from: choose another name")
        if place in taken:
            raise InputError(f"--{option} {path} is the name of another output: choose another name")
        taken.add(place)
        if path.is_dir():
            raise InputError(f"--{option} {path} is a folder: give the name of a file")
        if not path.parent.is_dir():
            raise InputError(f"--{option} {path}: the folder {path.parent} does not exist")
        if not os.access(path.parent, os.W_OK):
            raise InputError(f"--{option} {path}: files cannot be written to the folder {path.parent}")
        if path.exists() and not request.force:
            raise InputError(f"--{option} {path} exists: add --force to replace it, or choose another name")
