"""In what graph a figure was measured, in words; and which graph a column of the table is taken from.

An error of a graph head depends on how many samples are asked together and on how many are in the base. A folder may
hold several graphs, and no figure stands without its own. These functions read the dictionaries of `summary.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gll.attacks.threat import Inference, Queries


def graph_in_words(threat: Mapping[str, Any] | None, chunk: int) -> str:
    """What is in a graph beside one query; empty for a model without a graph.

    Args:
        threat: the threat model, as a dictionary.
        chunk: how many samples are asked at a time.

    >>> graph_in_words({"base": "100 of 400 training samples", "queries": "joint", "inference": "transductive"}, 355)
    '355 queries jointly beside a base of 100'
    >>> graph_in_words({"base": "a few samples", "queries": "alone", "inference": "transductive"}, 355)
    'each query alone beside a base of a few samples'
    """
    if threat is None:
        return ""
    size = base_size(threat)
    base = f"a base of {size:,}" if size else f"a base of {threat['base']}"
    if threat["inference"] == Inference.INDUCTIVE.value:
        return f"each query by itself, joined to {base} that was solved without it"
    if threat["queries"] == Queries.ALONE.value:
        return f"each query alone beside {base}"
    return f"{chunk:,} queries jointly beside {base}"


def base_size(threat: Mapping[str, Any] | None) -> int:
    """How many samples are in the base; 0 where its description does not begin with a number, or there is none.

    >>> base_size({"base": "10,000 of 60,000 training samples"}), base_size({"base": "some"}), base_size(None)
    (10000, 0, 0)
    """
    first = "" if threat is None else str(threat["base"]).split(" ")[0].replace(",", "")
    return int(first) if first.isdecimal() else 0


def graph_of(group: Mapping[str, Any]) -> str:
    """The graph of a group of attacks, in words; empty where there is none."""
    cell = group["attacks"][0] if group["attacks"] else {}
    return graph_in_words(cell.get("threat"), cell.get("chunk", 0))


def is_joint(group: Mapping[str, Any]) -> bool:
    """Whether the samples of a group share a graph."""
    threat = group["attacks"][0].get("threat") if group["attacks"] else None
    if threat is None:
        return False
    return bool(threat["queries"] == Queries.JOINT.value and threat["inference"] != Inference.INDUCTIVE.value)


def as_in_the_paper(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The groups, those first from which the paper's columns are taken: joint queries, a large base, a large chunk."""

    def size(group: Mapping[str, Any]) -> tuple[bool, int, int]:
        cell = group["attacks"][0]
        return is_joint(group), base_size(cell.get("threat")), cell.get("chunk", 0)

    return sorted((group for group in summary["groups"] if group["attacks"]), key=size, reverse=True)
