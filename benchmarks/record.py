"""What every benchmark records beside its figures: commit, device, versions, time; and how it writes them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy
import scipy
import torch

import gll


def environment(device: str = "cpu") -> dict[str, Any]:
    """Where and on what a figure was measured."""
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    return {
        "commit": os.environ.get("GLL_COMMIT") or git.stdout.strip() or "unknown",
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
