"""Over which attacks a worst case is taken: where graph heads of a data set differ in that, it is said below the table.

The set `strong` has grown: a record keeps what it was made by, and a head that met more attacks has the higher worst
case for it. A head without a graph has fewer by nature, as has a graph head without the linear layer of a WNLL; what
they cannot have is no difference here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gll.attacks.tables import near_ball, worst_at
from gll.reproduce.protocol import strong

OF_WNLL = "pgd from the linear layer it was trained by"
LINEAR_OF_WNLL = "by the linear layer it was trained by"
GRAPH = ("features", "pgd with fixed neighbours", "pgd with every class")
"""Attacks of which each shows that a model has a graph."""
SAID = {
    "pgd with every class jointly": "PGD that sees every class in the graph of all samples",
    "square": "Square in the graph of all samples",
    "square apart": "Square on each sample apart",
}


def attacks_of(summaries: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """By name, those that a head met in each of its records, at whatever ε; none of CW, which knows none."""
    met = [strong(summary)["attacks"] if summary["groups"] else [] for summary in summaries]
    found = [{a["attack"] for a in attacks if a["settings"].get("eps") is not None} for attacks in met]
    return frozenset(set.intersection(*found)) if found else frozenset()


def with_graph(summaries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether it is a head with a graph that was attacked."""
    return bool(attacks_of(summaries) & set(GRAPH))


def differing(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, list[str]]:
    """By the attack that some graph heads met and others did not: which did."""
    sets = {title: attacks_of(own) for title, own in rows.items() if with_graph(own)}
    every = sorted(frozenset().union(*sets.values()) - {OF_WNLL})
    having = {attack: [title for title, found in sets.items() if attack in found] for attack in every}
    return {attack: titles for attack, titles in having.items() if len(titles) < len(sets)}


def told(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Of how many attacks the worst case of each graph head of a data set is, and who met which.

    Nothing where all met the same.

    Args:
        rows: evaluations (`gll attack`) of every head and training, by its name in the table.
    """
    more = differing(rows)
    if not more:
        return ""
    graphs = {title: own for title, own in rows.items() if with_graph(own)}
    sizes: dict[int, list[str]] = {}
    for title, own in graphs.items():
        sizes.setdefault(max(len(in_ball(one)) for one in own), []).append(title)
    counts = ", ".join(f"{size} ({'; '.join(titles)})" for size, titles in sorted(sizes.items()))
    own_to_wnll = any(OF_WNLL in attacks_of(own) for own in graphs.values())
    counts += f"; only a WNLL has one {LINEAR_OF_WNLL}" if own_to_wnll else ""
    which: dict[str, list[str]] = {}
    for attack, titles in more.items():
        which.setdefault("; ".join(titles), []).append(SAID.get(attack, attack))
    only = ", ".join(f"{' and '.join(names)} only of {titles}" for titles, names in which.items())
    common = frozenset.intersection(*(attacks_of(own) for own in graphs.values())) | {OF_WNLL}
    ends = [
        f"{low:.1f} to {high:.1f} ({title})"
        for title in dict.fromkeys(title for titles in more.values() for title in titles)
        for low, high in [bounds(graphs[title], common)]
    ]
    return (
        f"attacks over which the *worst case* of a graph head is taken: {counts}; {only}; without these it is from "
        f"{', '.join(ends)}, and not known closer, since records keep no single samples"
    )


def in_ball(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The strong attacks of an evaluation that keep to the ε of the table; none where there was no attack."""
    return list(near_ball(strong(summary), summary["table_eps_pixels"], "LInf")) if summary["groups"] else []


def bounds(summaries: Sequence[Mapping[str, Any]], common: frozenset[str]) -> tuple[float, float]:
    """Between what a worst case over fewer attacks lies, in percent: the best of these alone, and that over all."""
    lows, highs = [], []
    for summary in summaries:
        lows.append(max((a["error"] for a in in_ball(summary) if a["attack"] in common), default=0.0))
        found = worst_at(summary, summary["table_eps_pixels"], "LInf")
        highs.append(lows[-1] if found is None else found["error"])
    return 100 * sum(lows) / len(lows), 100 * sum(highs) / len(highs)
