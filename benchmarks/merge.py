"""Join the JSON files of one benchmark whose work was split over several processes or machines.

    python benchmarks/merge.py parts/*.json --out benchmarks/results/few-labels.json

The parts must come from the same commit and kind of device. Rows (or runs) are put together, times are added up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from record import write_json


def main(
    files: Annotated[list[Path], typer.Argument(help="the parts, in the order wanted in the result")],
    out: Annotated[Path, typer.Option(help="the file to write")],
) -> None:
    """Join parts into one file."""
    records: list[dict[str, Any]] = [json.loads(file.read_text()) for file in files]
    merged = records[0]
    for file, record in zip(files[1:], records[1:], strict=True):
        for name in ("commit", "device", "versions"):
            if record[name] != merged[name]:
                raise SystemExit(f"{file}: {name} is {record[name]!r}, in {files[0]} it is {merged[name]!r}")
        if "rows" in record:
            merged["rows"] += record["rows"]
        else:
            merged["runs"] |= record["runs"]
        merged["wall_s"] = round(merged["wall_s"] + record["wall_s"], 1)
    merged["parts"] = len(records)
    write_json(out, merged)
    print(f"wrote {out}: {len(merged.get('rows', merged.get('runs')))} entries from {len(records)} files")


if __name__ == "__main__":
    typer.run(main)
