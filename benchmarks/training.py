"""Test errors of trained runs, gathered from their directories: what `gll train` reached on real data.

    gll train configs/fashionmnist-gll.toml seed=0 ... ; gll train configs/fashionmnist-gll.toml seed=1 ...
    python benchmarks/training.py out/runs/* --json benchmarks/results/training.json

A run that is in the file already (by name and seed) is replaced. The table (`tables.py`) gives mean ± standard
deviation over seeds, with the paper's figure beside it.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from record import environment, write_json
from rich.console import Console
from rich.table import Table


def read(directory: Path) -> dict[str, Any]:
    """One finished run: what it was, where it ran, and its last tests."""
    result, where = (json.loads((directory / f"{name}.json").read_text()) for name in ("result", "environment"))
    config = tomllib.loads((directory / "config.toml").read_text())
    started = where["started"]
    lines = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    first = [line for line in lines if line["phase"] == "test" and line["epoch"] == 0]  # after a warm-up alone
    return {
        "name": result["name"],
        "seed": result["seed"],
        "commit": started["commit"],
        "device": started["gpu"] or started["machine"],
        "torch": started["versions"]["torch"],
        "epochs": result["epochs"],
        "warmup": result["warmup"],
        "before": [{k: test[k] for k in ("head", "mode", "error")} for test in first],
        "seconds": result["seconds"],
        "tests": [{k: test[k] for k in ("head", "mode", "error")} for test in result["tests"]],
        "config": {k: config[k] for k in ("data", "model", "base", "warmup", "train", "test") if k in config},
    }


def main(
    runs: Annotated[list[Path], typer.Argument(help="run directories; unfinished ones are named and left out")],
    json_file: Annotated[Path, typer.Option("--json", help="keep the figures here, beside those it has")],
) -> None:
    """Gather finished runs."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    if json_file.exists():
        rows = {(row["name"], row["seed"]): row for row in json.loads(json_file.read_text())["rows"]}
    for directory in runs:
        if not (directory / "result.json").exists():
            print(f"{directory}: not finished, left out")
            continue
        row = read(directory)
        rows[row["name"], row["seed"]] = row
    found = [rows[key] for key in sorted(rows)]
    wall = sum(row["seconds"] for row in found)
    own = {"config": {"seed": "as in the rows"}, "wall_s": round(wall, 1), "rows": found}
    write_json(json_file, environment() | own)
    table = Table("run", "seed", "tests: error, %", "seconds", "commit")
    for row in found:
        tests = ", ".join(f"{t['head']} {100 * t['error']:.2f}" for t in row["tests"])
        table.add_row(row["name"], str(row["seed"]), tests, f"{row['seconds']:.0f}", row["commit"])
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
