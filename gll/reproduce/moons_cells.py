"""Cells of the two-moons study: one encoder each, trained by `gll.moons`, with the embeddings it had on the way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, final

from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.kinds import AbstractSimple, Outcome, Place

SAVE_SECONDS = 15.0  # between two checkpoints


@final
class MoonsKind(AbstractSimple):
    """Options: `tau`, a number or "softmax", and `epochs`. The seed is that of the initial weights."""

    needed = ("tau", "epochs")

    def check(self, options: Mapping[str, Any]) -> None:
        tau, epochs = options["tau"], options["epochs"]
        if not isinstance(epochs, int) or epochs < 1:
            raise ValueError(f"options.epochs must be a whole number from 1, got {epochs!r}")
        if tau != "softmax" and (not isinstance(tau, int | float) or not 0 <= tau < float("inf")):
            raise ValueError(f'options.tau must be "softmax" or a number from 0, got {tau!r}')

    def run(self, experiment: Experiment, cell: Cell, place: Place) -> Outcome:
        from gll.moons import Study, snapshot_epochs
        from gll.train.checkpoint import load_checkpoint, save_checkpoint
        from gll.train.interrupt import Interrupt
        from gll.train.model import find_device

        options, path = cell.point.options(), place.folder / "study.safetensors"
        tau, epochs = options["tau"], options["epochs"]
        study = Study(None if tau == "softmax" else float(tau), cell.point.seed, find_device(place.device))
        if path.is_file():
            study.load(*load_checkpoint(path))
        marks, saved = snapshot_epochs(epochs), time.monotonic()
        if not study.snapshots:
            study.snapshot()
        with place.reporter.task(study.name, epochs, study.epoch) as update, Interrupt() as interrupt:
            while study.epoch < epochs:
                study.step()
                if study.epoch in marks:
                    study.snapshot()
                late = time.monotonic() - saved > SAVE_SECONDS
                if late or interrupt.asked:
                    save_checkpoint(path, *study.state())
                    saved = time.monotonic()
                    update(study.epoch, f"loss {float(study.loss):.4f}")
                if interrupt.asked and study.epoch < epochs:
                    raise KeyboardInterrupt
        ms = 1e3 * study.seconds / epochs
        values = {"loss": float(study.loss), "error": 100 * (1 - study.accuracy), "spread": study.spread()}
        arrays = {f"epoch {epoch}": z for epoch, z in study.snapshots.items()}
        return Outcome({**values, "ms an epoch": ms}, arrays=arrays)
