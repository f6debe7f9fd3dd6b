"""Cells of times of training and testing steps and of the errors beside, by the code of benchmarks/training_step.py.

That file is no part of the package but of a checkout, as the experiments are.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, final

from gll.reproduce.experiment import Cell, Experiment, ExperimentError
from gll.reproduce.kinds import AbstractSimple, Outcome, Place

if TYPE_CHECKING:
    from gll.data import TrainTest

HEADS = ("gll", "mlp")
TIMING = ("rounds", "steps", "warm")  # options that decide times only

WHERE = {"device", "networks", "batches", "errors", "threads", "seed", "data_root", "json_file"}


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
    """Options: `network`, `batch`, and `rounds`, `steps`, `warm`, `errors`, as those of the benchmark.

    A point is timed by one cell, which wants the GPU to itself. With `errors` each head has another that trains and
    tests it, takes longer, and may run beside anything. None of them knows how to go on in the middle: they are short.
    """

    needed = ("network", "batch")

    def optional(self, experiment: Experiment) -> Collection[str]:
        return inspect.signature(benchmark(experiment.folder).main).parameters

    def parts(self, options: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
        timed = {key: value for key, value in options.items() if key != "errors"}
        trained = {key: value for key, value in timed.items() if key not in TIMING}
        heads = [f"errors, {head}" for head in HEADS] if options.get("errors") else []
        return {"times": {"part": "times", **timed}} | {name: {"part": name, **trained} for name in heads}

    def wants_all(self, cell: Cell) -> bool:
        return cell.part == "times"

    def settings(self, experiment: Experiment, cell: Cell) -> dict[str, Any]:
        """With the defaults of the benchmark, but for where and of what: options say these."""
        usual = {key: v for key, v in usual_of(benchmark(experiment.folder)).items() if key not in WHERE}
        timed = cell.part == "times"
        return {key: value for key, value in usual.items() if timed or key not in TIMING} | dict(cell.settings)

    def run(self, experiment: Experiment, cell: Cell, place: Place) -> Outcome:
        import torch

        from gll.reproduce.command import PARENT
        from gll.train.model import find_device

        options, head = cell.point.options(), cell.part.removeprefix("errors, ")
        if self.wants_all(cell) and PARENT in os.environ:
            raise ExperimentError("processes that share a GPU spoil each other's times: --only times, and no --jobs")
        module = benchmark(experiment.folder)
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        try:
            data = (large_digits() if cell.scale == "smoke" else mnist(experiment)).to(find_device(place.device))
            settings = {**usual_of(module), **options, "errors": False, "seed": cell.point.seed}
            asked = (options["network"], options["batch"], data, settings)
            if cell.part == "times":
                row: dict[str, Any] = module.measure(*asked)
                return Outcome(figures(row), {"row": row, "data": data.name})
            found: dict[str, float] = module.Model(head, *asked).errors()
            return Outcome({f"error {head}, %": found["by batches"]}, {"errors": found, "data": data.name})
        finally:
            torch.backends.cudnn.benchmark = before


def mnist(experiment: Experiment) -> TrainTest:
    """The images of the paper's times."""
    from gll.data import DataError, load
    from gll.reproduce import no_data

    try:
        return load("mnist")
    except DataError as error:
        raise ExperimentError(no_data.told(str(error), "mnist", experiment)) from None


def large_digits() -> TrainTest:
    """The digits of scikit-learn, which are always there, as large as MNIST's: smoke shows that it works."""
    from torch.nn.functional import interpolate

    from gll.data import load

    data = load("digits")
    train, test = (
        interpolate(x.float(), size=28, mode="bilinear").round().to(x.dtype) for x in (data.train, data.test)
    )
    return replace(data, name="digits, 28 × 28", train=train, test=test)


def usual_of(module: ModuleType) -> dict[str, Any]:
    """The defaults of the benchmark's options."""
    return {name: p.default for name, p in inspect.signature(module.main).parameters.items()}


def figures(row: dict[str, Any]) -> dict[str, float | None]:
    """Seconds a step as in the paper's tables, their ratio, and that over the same images."""
    values: dict[str, float | None] = {}
    for what, title in (("train", "training"), ("test", "testing")):
        for kind in ("gll", "mlp"):
            values[f"{title} {kind}, s"] = row[what][kind]["mean_ms"] / 1e3
        gll, mlp, same = (row[what][kind]["median_ms"] for kind in ("gll", "mlp", "mlp, same"))
        values |= {f"{title} ratio": gll / mlp, f"{title} ratio, same images": gll / same}
    return values
