"""Tables of smaller benchmarks: times of attacks, attacks from other runs, schedules."""

from __future__ import annotations

import statistics
from typing import Any

from gll.reproduce.robust import shown_mean


def about(record: dict[str, Any]) -> str:
    """Where and when it was measured."""
    return (
        f"<small>commit {record['commit']}, {record['device']}, torch {record['versions']['torch']}, "
        f"seed {record['config']['seed']}, {record['wall_s']:.0f} s</small>"
    )


def attack_times(record: dict[str, Any], _: object) -> str:
    lines = ["| attack | attacked + base samples in one graph | seconds |", "|---|---:|---:|"]
    for row in record["rows"]:
        lines.append(f"| {row['attack']} | {row['samples']:,} + {row['base']:,} | {row['seconds']:.2f} |")
    return "\n".join([*lines, "", about(record)])


def schedules(record: dict[str, Any], _: object) -> str:
    found: dict[str, list[float]] = {}
    for row in record["rows"]:
        found.setdefault(row["candidate"], []).append(100 * row["error"])
    lines = ["| settings | error on held-out training images, % | seeds |", "|---|---:|---:|"]
    for name in sorted(found, key=lambda name: statistics.fmean(found[name])):
        lines.append(f"| {name} | {shown_mean(found[name], 2)} | {len(found[name])} |")
    return "\n".join([*lines, "", about(record)])


def transfers(record: dict[str, Any], _: object) -> str:
    """Rows: what an attack was made on; columns: the model that judges it, and ε."""
    rows, settings = record["rows"], record["config"]
    places = list(dict.fromkeys((row["victim"], row["eps"]) for row in rows))
    lines = [
        f"| made on | {' | '.join(f'{victim}, ε = {eps:g}' for victim, eps in places)} |",
        "|---|" + "---:|" * len(places),
    ]
    for source in dict.fromkeys(row["source"] for row in rows):
        cells = []
        for victim, eps in places:
            mine = [100 * r["error"] for r in rows if (r["victim"], r["eps"], r["source"]) == (victim, eps, source)]
            cells.append(shown_mean(mine))
        lines.append(f"| {source} | {' | '.join(cells)} |")
    what = f"{settings['data']}, {settings['samples']} test samples, each alone with a base of {settings['base']:,}"
    return "\n".join([*lines, "", f"<small>{what};</small> {about(record)}"])
