"""Tables of smaller benchmarks: times of attacks, attacks from other runs, more effort, wrong labels, schedules."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from _attacked import ATTACKS, WORST, Known, worst

from gll.reproduce.robust import EVERY_CLASS, PAPER, ROBUST, Contest, shown_mean, strongest

# How `transfers.py` and the records of `worst-case` call the same.
HEADS = {"gll": "GLL", "wnll": "WNLL"}
SIGHT, AUTO_SIGHT = "PGD with every class in sight", "AutoAttack with every class in sight"
TRAININGS = {"own": ROBUST, "every-class": EVERY_CLASS}
AUTO, UNION = "AutoAttack, ", "any of these"
"""How sources of an effort begin that are AutoAttack, and the one that is all of them together."""


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


def graph_at_test(record: dict[str, Any], _: object) -> str:
    """One run, tested by graphs of other settings."""
    lines = ["| graph of the test | error, % |", "|---|---:|"]
    lines += [f"| {row['change']} | {100 * row['error']:.2f} |" for row in record["rows"]]
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
        f"| made on | {' | '.join(f'{victim}, ε = {eps:g} px' for victim, eps in places)} |",
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


def efforts(record: dict[str, Any], known: Known) -> str:
    """What more steps, starts, targets and points find; below, what had been found on the same runs before.

    A run that was trained without attacks is one of `worst-case`, trained as in the paper.
    """
    rows, settings = record["rows"], record["config"]
    training = TRAININGS[settings["against"]] if settings["trained_at"] else PAPER
    contest = Contest(known.worst, settings["data"], training)
    places = list(dict.fromkeys((row["victim"], row["eps"]) for row in rows))
    before = {
        victim: [r["more"]["alone"] for r in contest.records.get(HEADS[victim], ()) if r["seed"] in settings["seed"]]
        for victim, _ in places
    }

    def line(title: str, cells: list[list[float]], seconds: str = "") -> str:
        return f"| {title} | {' | '.join(shown_mean([100 * share for share in cell]) for cell in cells)} | {seconds} |"

    head = ["attack", *(f"{HEADS[victim]}, ε = {eps:g} px" for victim, eps in places), "seconds"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    sources = list(dict.fromkeys(row["source"] for row in rows))
    for source in sorted(sources, key=lambda source: (source == UNION, source.startswith(AUTO))):
        mine = [row for row in rows if row["source"] == source]
        errors = [[r["error"] for r in mine if (r["victim"], r["eps"]) == place] for place in places]
        title = f"{SIGHT}: {source}" if source == sources[0] else f"the same, but {source}"
        title = f"{AUTO_SIGHT}: {source.removeprefix(AUTO)}" if source.startswith(AUTO) else title
        if source == UNION:
            lines.append(line(f"**{UNION}**", errors))
        else:
            lines.append(line(title, errors, f"{statistics.fmean(row['seconds'] for row in mine):.0f}"))
    figures = {title: partial(strongest, wanted=ATTACKS[title]) for title in (SIGHT, AUTO_SIGHT)} | {WORST: worst}
    for title, figure in figures.items():
        found = [[share for s in before[victim] if (share := figure(s, eps)) is not None] for victim, eps in places]
        lines.append(line(f"**before: {title}**" if title == WORST else f"before: {title}", found))
    how = f"trained at ε = {settings['trained_at']:g} px" if settings["trained_at"] else "trained naturally"
    what = f"{settings['data']}, {how}; {settings['samples']:,} test samples, each alone with a base of"
    what += f" {settings['base']:,}; *before*: the same run in the table above"
    counts = sorted({s["samples"] for summaries in before.values() for s in summaries} - {settings["samples"]})
    what += f", {', '.join(f'{count:,}' for count in counts)} samples" if counts else ""
    return "\n".join([*lines, "", f"<small>{what};</small> {about(record)}"])


def poisoning(record: dict[str, Any], _: object) -> str:
    """Rows: the graph, and how many labels of the base are wrong; columns: who has chosen them."""
    rows, settings = record["rows"], record["config"]
    ways = list(dict.fromkeys(row["chosen"] for row in rows))
    lines = [f"| graph | labels flipped | {' | '.join(ways)} |", "|---|---:|" + "---:|" * len(ways)]
    for graph, flips in dict.fromkeys((row["graph"], row["flips"]) for row in rows):
        cells = []
        for way in ways:
            wanted = (graph, flips, way)
            mine = [100 * r["error"] for r in rows if (r["graph"], r["flips"], r["chosen"]) == wanted]
            cells.append(shown_mean(mine))
        lines.append(f"| {graph} | {flips:,} | {' | '.join(cells)} |")
    head = HEADS.get(settings["head"], settings["head"])
    what = f"errors in percent; {settings['data']}, {head}, training: {settings['training']}; a base of"
    what += f" {settings['base']:,}, {settings['samples']:,} test samples;"
    what += f" *at random*: mean of {settings['draws']} draws"
    return "\n".join([*lines, "", f"<small>{what};</small> {about(record)}"])


def uneven_labels(record: dict[str, Any], _: object) -> str:
    """One table for every way to draw labels: data and number of labels by method; bold as where labels are even."""
    blocks = []
    for draw in dict.fromkeys(row["draw"] for row in record["rows"]):
        rows = [row for row in record["rows"] if row["draw"] == draw]
        methods = list(dict.fromkeys(row["method"] for row in rows))
        lines = [f"**{draw}**", "", f"| data | labels a class | {' | '.join(methods)} |"]
        lines.append("|---|---:|" + "---:|" * len(methods))
        for dataset, labels in dict.fromkeys((row["dataset"], row["labels"]) for row in rows):
            found = {r["method"]: r["accuracy"] for r in rows if (r["dataset"], r["labels"]) == (dataset, labels)}
            best = max(statistics.fmean(values) for name, values in found.items() if "prior" not in name)
            cells = []
            for name in methods:
                bold = "**" if "prior" not in name and statistics.fmean(found[name]) > best - 0.005 else ""
                cells.append(f"{bold}{shown_mean([100 * value for value in found[name]])}{bold}")
            lines.append(f"| {dataset} | {labels} | {' | '.join(cells)} |")
        blocks.append("\n".join(lines))
    points, trials = record["rows"][-1]["points"], record["config"]["trials"]
    what = f"accuracy in percent; labels a class on average; {trials} draws of the labels, at most {points:,} points"
    return "\n\n".join([*blocks, f"<small>{what};</small> {about(record)}"])
