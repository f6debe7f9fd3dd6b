"""What every benchmark records beside its figures: commit, device, versions; how it writes and times."""

from __future__ import annotations

import datetime
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import scipy
import torch

import gll
from gll.commit import commit_of


def environment(device: str = "cpu") -> dict[str, Any]:
    """Where and on what a figure was measured."""
    return {
        "commit": commit_of(Path(__file__).parent),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} cpu",
        "threads": torch.get_num_threads(),
        "versions": {
            "gll": gll.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "scipy": scipy.__version__,
        },
    }


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Write to a temporary name, then rename: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(path.suffix + ".part")
    part.write_text(json.dumps(record, indent=1) + "\n")
    part.replace(path)


def best_ms(run: Callable[[], Any], device: str, seconds: float = 3.0) -> float:
    """Smallest time of one run, over as many as fit into `seconds` (at least two)."""
    run()
    best, start = float("inf"), time.perf_counter()
    while time.perf_counter() - start < seconds or best == float("inf"):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return 1e3 * best
