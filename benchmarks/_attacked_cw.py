"""Does a GLL resist CW from moving its images, as the paper says? What the records of `worst-case` and `more-c` say.

CW looks for the shortest way to a wrong answer and knows no ε. In its standard form an image that it does not fool
stays where it is, as does one that was wrong before; both count as distance 0 in the mean of a record. So that mean is
divided here by the share of images that were fooled: the distance of those. What holds out is not in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from _attacked import NOT_RUN, Known, largest

from gll.reproduce import natural
from gll.reproduce.robust import (
    BREAK,
    HEADS,
    NAMES,
    NATURAL,
    OURS,
    PAPER,
    ROBUST,
    Contest,
    contests,
    seeds_of,
    shown_mean,
)
from gll.reproduce.verdicts import LEVEL_OF_TEST, chance, judged, so_far

OWN, SIGHT = "cw", "cw with every class"
HOW = {ROBUST: "adversarial training"} | natural.WHOSE
NOT_YET = "not run yet"


def standard(summary: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """Percent that are wrong after standard CW, and how far (L2) it has moved the images that it fooled, on average.

    >>> attack = {"attack": "cw", "error": 0.5, "natural": 0.1, "mean_l2": 0.8}
    >>> standard({"groups": [{"attacks": [attack]}]}, "cw"), standard({"groups": []}, "cw")
    ((50.0, 2.0), None)
    """
    found = [a for g in summary["groups"] for a in g["attacks"] if a["attack"] == name and a["error"] > a["natural"]]
    return next(((100 * a["error"], a["mean_l2"] / (a["error"] - a["natural"])) for a in found), None)


def found_by(contest: Contest, head: str, name: str) -> list[tuple[float, float]]:
    """Of every seed, each sample alone in a graph."""
    told = [standard(record["more"]["alone"], name) for record in contest.records.get(head, ())]
    return [one for one in told if one is not None]


def strongest_cw(contest: Contest, head: str) -> list[tuple[float, float]]:
    """With every class in sight for a graph, whose own gradient says little; by its own gradient for other heads."""
    return found_by(contest, head, SIGHT if head == OURS else OWN)


def further(contest: Contest) -> str:
    """Must the images of a GLL be moved further than those of the others? By Welch's test on all seeds."""
    distances = {head: [away for _, away in strongest_cw(contest, head)] for head in contest.heads}
    if not all(distances.values()):
        return ""
    relations, ours = {}, distances.pop(OURS)
    for head, theirs in distances.items():
        many = min(len(ours), len(theirs)) > 1
        differ = many and chance(ours, theirs) < LEVEL_OF_TEST
        word = "lower" if statistics.fmean(ours) > statistics.fmean(theirs) else "higher"
        relations[HEADS[head]] = word if differ else "level"
    words = so_far(judged(relations), min(len(ours), *map(len, distances.values())), contest.samples)
    return words.replace("weaker", "no, less far")


def table(known: Known) -> str:
    """Standard CW by data set, training and head: how many it fools, and how far it had to go."""
    head = ["training", "data", "head", "wrong after CW, own gradient", "distance of those it fooled"]
    head += ["wrong after CW, every class in sight", "distance of those it fooled"]
    lines = [f"| {' | '.join(head)} |", "|---|---|---|" + "---:|" * 4]
    for contest in (c for training in HOW for c in contests(known.worst, training) if c.heads):
        for name in contest.heads:
            cells = []
            for attack in (OWN, SIGHT):
                found = found_by(contest, name, attack)
                cells += [shown_mean([share for share, _ in found]), shown_mean([away for _, away in found], 2)]
            lines.append(f"| {HOW[contest.training]} | {NAMES[contest.data]} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_RUN


def claim(known: Known) -> str:
    """Whether images of a GLL must be moved further, and how few of them its own gradient moves."""
    parts, shares = [], []
    for contest in (c for training in HOW for c in contests(known.worst, training) if c.heads):
        if word := further(contest):
            numbers = {h: shown_mean([away for _, away in strongest_cw(contest, h)], 2) for h in contest.heads}
            told = ", ".join(f"{name} {number}" for name, number in numbers.items())
            parts.append(f"**{word}** on {NAMES[contest.data]} after {HOW[contest.training]}: {told}")
            found = [[share for share, _ in found_by(contest, OURS, n)] for n in (OWN, SIGHT)]
            shares += [list(map(statistics.fmean, found))] if all(found) else []
    if not parts:
        return NOT_YET
    seen = "L2 distance of those fooled, what holds out is not counted"
    if shares:
        own, sight = ([pair[i] for pair in shares] for i in (0, 1))
        seen += f"; by its own gradient CW fools {min(own):.0f} to {max(own):.0f} % of a GLL's images, with every class"
        seen += f" in sight {min(sight):.0f} to {max(sight):.0f} %"
    return f"{BREAK.join(parts)}{BREAK}({seen}){paper_form()}"


def paper_form() -> str:
    """CW as the paper has it, at the same c: who errs less, and whose images move less. Nothing without records."""
    shown = largest("more-c")
    if shown is None:
        return ""
    parts = []
    for data in shown.experiment.text["axes"]["data"]:
        places = {head: {"data": data, "head": head, "training": NATURAL} for head in (OURS, "linear")}
        found = {head: [r for at, r in shown.found if at == place] for head, place in places.items()}
        if all(found.values()):
            every = [key for key in found[OURS][0]["values"] if key.startswith("c = ")]
            less = {
                what: [c for c in every if _mean(found[OURS], what + c) < _mean(found["linear"], what + c)]
                for what in ("", "distance, ")
            }
            far = less["distance, "]
            where = f" ({far[0]} to {far[-1][4:]})" if far else ""
            parts.append(
                f"in the paper's form, by its own gradient, a GLL errs less than a linear layer at {len(less[''])} of "
                f"{len(every)} values of c, and its images move less at {len(far)} of them{where} "
                f"({NAMES[data]}, {HOW[PAPER]}, {seeds_of(found[OURS])})"
            )
    return "".join(f"; {part}" for part in parts)


def _mean(records: list[dict[str, Any]], figure: str) -> float:
    return statistics.fmean(record["values"][figure] for record in records)
