"""The table of `paper_attacks.py`: errors under attack by how the paper's protocol is read, beside the paper's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.table import Table

EXPECTED = Path(__file__).resolve().parent.parent / "experiments" / "adversarial" / "expected.json"
HEAD = ("head", "training", "gradient of", "attack", "natural", "FGSM", "IFGSM", "after 1, 5, 10 steps")
GRADIENTS = {
    "surrogate": "its linear layer, at the graph's values",
    "exact": "its graph",
    "classifier": "its linear classifier",
}


def cells(row: dict[str, Any]) -> list[str]:
    """One row as text."""
    heads = {"GLL": "the graph", "linear": "the network"}
    gradient = heads.get(row["head"]) or GRADIENTS[row["reading"]["gradient"]]
    first = [f"{error:.2f}" for step, error in row["after"].items() if int(step) < row["reading"]["steps"]]
    errors = [f"{row[name]:.2f}" for name in ("natural", "FGSM", "IFGSM")]
    training = f"{row['training name']}, seed {row['seed']}"
    return [row["head"], training, gradient, row["reading"]["title"], *errors, ", ".join(first)]


def rich_table(record: dict[str, Any]) -> Table:
    """For a terminal."""
    table = Table(title="errors in percent")
    for number, name in enumerate(HEAD):
        table.add_column(name, justify="right" if number >= 4 else "left")
    for row in record["rows"]:
        table.add_row(*cells(row))
    return table


def paper_attacks(record: dict[str, Any], _: dict[int, str]) -> str:
    """For a page: every head begins with the paper's figures."""
    paper = json.loads(EXPECTED.read_text())["values"]
    lines = [f"| {' | '.join(HEAD)} |", "|---|---|---|---|---:|---:|---:|---:|"]
    for name in dict.fromkeys(row["head"] for row in record["rows"]):
        theirs = paper[f"mnist, {name}, natural"]
        shown = " | ".join(f"**{theirs[figure]:g}**" for figure in ("natural", "FGSM", "IFGSM"))
        lines.append(f"| **{name}** | **the paper's** | – | – | {shown} | – |")
        lines += [f"| {' | '.join(cells(row))} |" for row in record["rows"] if row["head"] == name]
    config = record["config"]
    samples = ", ".join("all" if number == 0 else f"{number:,}" for number in config["samples"])
    about = f"ε = {config['eps']:g} in normalised units, {samples} test images"
    where = f"commits {record['commit']}, {record['device']}, seeds {config['seed']}, {record['wall_s']:.0f} s"
    return "\n".join([*lines, "", f"<small>{about}; {where}; several runs at a time</small>"])
