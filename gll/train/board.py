"""Metrics for TensorBoard, where it is installed; elsewhere nothing happens."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, final


@final
class Board:
    """Mirrors lines of the metrics as scalars. Closed until `open`, and for good where TensorBoard is missing."""

    def __init__(self) -> None:
        self.writer: Any = None

    @staticmethod
    def available() -> bool:
        """Whether TensorBoard is installed."""
        return importlib.util.find_spec("tensorboard") is not None

    def open(self, directory: Path, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        """Start writing to a folder, with the lines that the metrics have already.

        What was written there before is replaced. Events cannot be cut as the metrics are: TensorBoard can only be told
        to forget all from a step on, but a run counts its epochs more than once, for every γ of a warm-up and for the
        head. Events written again carry the time of now.
        """
        if self.available():
            from torch.utils.tensorboard import SummaryWriter

            for old in Path(directory).glob("events.out.tfevents.*"):
                old.unlink()
            self.writer = SummaryWriter(str(directory))
            for line in lines:
                self.add(line)

    def add(self, values: Mapping[str, Any]) -> None:
        """The numbers of one line, against its epoch, under its phase, γ, head and mode."""
        if self.writer is None or "epoch" not in values:
            return
        place = "/".join(str(values[key]) for key in ("phase", "gamma", "head", "mode") if key in values)
        for key, value in values.items():
            if key not in ("epoch", "gamma") and isinstance(value, int | float) and not isinstance(value, bool):
                self.writer.add_scalar(f"{place}/{key}", value, values["epoch"])

    def close(self) -> None:
        """Write what is left."""
        if self.writer is not None:
            self.writer.close()
            self.writer = None
