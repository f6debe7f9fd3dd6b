"""Errors under attack, gathered from the folders that `gll attack` has written.

    gll train configs/mnist-gll.toml seed=0 ... ; gll attack out/runs/mnist-gll-0 --attacks paper,strong
    python benchmarks/robustness.py out/runs/mnist-*/attack --json benchmarks/results/robustness-mnist.json \
        --figures docs/figures/robustness-mnist

A run that is in the file already (by name, seed, head at test and gradient) is replaced. Tables (`tables.py`) and
pictures are made of these figures alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from record import environment, write_json
from rich.console import Console

from gll.attacks.plots import draw_curves, draw_distances
from gll.attacks.tables import compared


def key(row: dict[str, Any]) -> tuple[str, ...]:
    """What tells two rows apart."""
    run = row["run"]
    return (run["name"], str(run["seed"]), run["head"], row["gradient_of"])


def main(
    folders: Annotated[list[Path], typer.Argument(help="folders of results; unfinished ones are named and left out")],
    json_file: Annotated[Path, typer.Option("--json", help="keep the figures here, beside those it has")],
    figures: Annotated[Path | None, typer.Option(help="draw NAME-curves.png and NAME-distances.png")] = None,
) -> None:
    """Gather finished evaluations of one data set."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    if json_file.exists():
        rows = {key(row): row for row in json.loads(json_file.read_text())["rows"]}
    for folder in folders:
        if not (folder / "summary.json").is_file():
            print(f"{folder}: no summary, left out")
            continue
        row = json.loads((folder / "summary.json").read_text())
        rows[key(row)] = row
    found = [rows[name] for name in sorted(rows)]
    names = {row["run"]["data"] for row in found}
    if len(names) != 1:
        raise SystemExit(f"a table is about one data set, got {', '.join(sorted(names)) or 'none'}")
    wall = sum(row["wall_s"] for row in found)
    own = {"config": {"seed": "as in the rows", "data": names.pop()}, "wall_s": round(wall, 1), "rows": found}
    write_json(json_file, environment() | own)
    Console(width=160).print(compared(found, {}).rich())
    if figures is not None:
        first = {f"{row['run']['head']}, {row['run']['training']}": row for row in reversed(found)}
        for draw, what in ((draw_curves, "curves"), (draw_distances, "distances")):
            draw(dict(reversed(first.items())), figures.with_name(f"{figures.name}-{what}.png"))


if __name__ == "__main__":
    typer.run(main)
