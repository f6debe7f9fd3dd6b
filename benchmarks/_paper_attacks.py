"""The table of `paper_attacks.py`: errors under attack by how the paper's protocol is read, beside the paper's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rich.table import Table

EXPECTED = Path(__file__).resolve().parent.parent / "experiments" / "adversarial" / "expected.json"
HEAD = ("head", "training", "gradient of", "attack", "natural", "FGSM", "IFGSM", "after 1, 5, 10 steps")
FIGURES = ("natural", "FGSM", "IFGSM")
AS_TEXT, PLAIN = "as in the paper's text", "plain"
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
    errors = [f"{row[name]:.2f}" for name in FIGURES]
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


def _by_place(record: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Rows by what the paper calls their place: a head and a training, which is robust where it has an ε."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in record["rows"]:
        training = "robust" if row.get("training", {}).get("adversarial.eps") else "natural"
        found.setdefault(f"mnist, {row['head']}, {training}", []).append(row)
    return found


def readings(record: dict[str, Any]) -> str:
    """For each head the paper's errors, ours as we read its protocol, the reading that comes closest to the paper's,
    and how far the trainings lie apart under the plain attack by each gradient; all of them are folded away below."""
    paper = json.loads(EXPECTED.read_text())["values"]
    head = ["head", "", *HEAD[1:7]]
    lines = [f"| {' | '.join(head)} |", "|---|---|---|---|---|---:|---:|---:|"]
    for place, rows in _by_place(record).items():
        name, theirs = rows[0]["head"], paper[place]
        lines.append(f"| **{name}** | the paper | | | | {' | '.join(f'{theirs[figure]:.2f}' for figure in FIGURES)} |")
        ours = next(row for row in rows if row["training name"] == AS_TEXT)
        closest = min(rows, key=lambda row: sum(abs(row[figure] - theirs[figure]) for figure in FIGURES[1:]))
        for title, row in (("as we read it", ours), (f"closest of {len(rows)}", closest)):
            lines.append(f"| | {title} | {' | '.join(cells(row)[1:7])} |")
        for gradient in dict.fromkeys(cells(row)[2] for row in rows):
            plain = [r for r in rows if cells(r)[2] == gradient and r["reading"]["title"] == PLAIN]
            if len(plain) > 1:
                spans = " | ".join(f"{min(v):.2f} to {max(v):.2f}" for f in FIGURES for v in [[r[f] for r in plain]])
                lines.append(f"| | from lowest to highest | {len(plain)} trainings | {gradient} | {PLAIN} | {spans} |")
    return "\n".join([*lines, "", folded(f"All {len(record['rows'])} readings", paper_attacks(record, {}))])


def folded(title: str, text: str) -> str:
    """A table in markdown, and what stands below it, as HTML that opens by a click, on a page and in a repository."""
    table, _, below = text.partition("\n\n")
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    lines = ["".join(f"<th>{cell}</th>" for cell in head)]
    lines += ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    bold = re.compile(r"\*\*(.*?)\*\*")
    made = ["<tr>" + bold.sub(r"<b>\1</b>", line) + "</tr>" for line in lines]
    return "\n".join([f"<details><summary>{title}</summary>", "<table>", *made, "</table>", below, "</details>"])


def paper_attacks(record: dict[str, Any], _: dict[int, str]) -> str:
    """For a page: every head begins with the paper's figures."""
    paper = json.loads(EXPECTED.read_text())["values"]
    lines = [f"| {' | '.join(HEAD)} |", "|---|---|---|---|---:|---:|---:|---:|"]
    for place, rows in _by_place(record).items():
        name, theirs = rows[0]["head"], paper[place]
        shown = " | ".join(f"**{theirs[figure]:g}**" for figure in FIGURES)
        lines.append(f"| **{name}** | **the paper's** | – | – | {shown} | – |")
        lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    config = record["config"]
    samples = ", ".join("all" if number == 0 else f"{number:,}" for number in config["samples"])
    about = f"ε = {config['eps']:g} in normalised units, {samples} test images"
    where = f"commits {record['commit']}, {record['device']}, seeds {config['seed']}, {record['wall_s']:.0f} s"
    return "\n".join([*lines, "", f"<small>{about}; {where}; several runs at a time</small>"])
