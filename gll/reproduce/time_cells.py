"""Cells that time training and testing steps, by the code of benchmarks/training_step.py.

That file is no part of the package but of a checkout, as the experiments are.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any, final

from gll.reproduce.experiment import Cell, Experiment, ExperimentError
from gll.reproduce.kinds import AbstractSimple, Outcome, Place


def benchmark(folder: Path) -> ModuleType:
    """benchmarks/training_step.py, as a module: that beside the experiments, else that of this package's checkout."""
    roots = (folder.resolve().parent.parent, Path(__file__).resolve().parents[2])
    paths = [root / "benchmarks" / "training_step.py" for root in roots]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise ExperimentError(f"times are taken by {paths[0]}, which is not there: use a checkout of gll")
    sys.path.insert(0, str(path.parent))  # it imports its neighbour, record.py
    try:
        spec = importlib.util.spec_from_file_location("training_step", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(path.parent))


@final
class TimesKind(AbstractSimple):
    """Options: `network`, `batch`, and `rounds`, `steps`, `warm`, `errors`, as those of the benchmark."""

    needed = ("network", "batch")

    def optional(self, experiment: Experiment) -> Collection[str]:
        return inspect.signature(benchmark(experiment.folder).main).parameters

    def run(self, experiment: Experiment, cell: Cell, place: Place) -> Outcome:
        import torch

        from gll.train.model import find_device

        options = cell.point.options()
        module = benchmark(experiment.folder)
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        try:
            data = module.images(None).to(find_device(place.device))
            usual = {name: p.default for name, p in inspect.signature(module.main).parameters.items()}
            settings = {**usual, **options, "seed": cell.point.seed}
            row: dict[str, Any] = module.measure(options["network"], options["batch"], data, settings)
        finally:
            torch.backends.cudnn.benchmark = before
        return Outcome(figures(row), {"row": row, "data": data.name})


def figures(row: dict[str, Any]) -> dict[str, float | None]:
    """Seconds a step as in the paper's tables, their ratio, and that over the same images; errors in percent."""
    values: dict[str, float | None] = {}
    for what, title in (("train", "training"), ("test", "testing")):
        for kind in ("gll", "mlp"):
            values[f"{title} {kind}, s"] = row[what][kind]["mean_ms"] / 1e3
        gll, mlp, same = (row[what][kind]["median_ms"] for kind in ("gll", "mlp", "mlp, same"))
        values |= {f"{title} ratio": gll / mlp, f"{title} ratio, same images": gll / same}
    errors = row.get("error_percent", {})
    return values | {f"error {kind}, %": found["by batches"] for kind, found in errors.items()}
