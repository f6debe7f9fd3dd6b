"""What the records of `adversarial` say in the paper's protocol: heads that were trained alike, side by side.

Heads are compared only where they were trained for the same number of epochs. The worst case of a graph head is here
one of a graph that all attacked samples share: each attack moves all of them, and the worst over several attacks takes
each sample from another batch. So the best single attack stands beside it.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, final

from gll.attacks.tables import near_ball
from gll.reproduce.records import Record
from gll.reproduce.robust import HEADS, seeds_of, shown_mean
from gll.reproduce.tables import Shown
from gll.reproduce.verdicts import judged, relation, so_far

WORST, SINGLE = "worst case", "best single attack"
NO_GRAPH = "no graph"
ORDER = ("GLL", "WNLL", "linear", "MLP")


def epochs_of(record: Record) -> int:
    """Of the training. `config` has what differs from the defaults, `settings`, which older records lack, all of it.

    >>> epochs_of({"config": {"train.epochs": 30}}), epochs_of({"config": {}})
    (30, 50)
    """
    from gll.train.config import TrainConfig

    return int({**record["config"], **record.get("settings", {})}.get("train.epochs", TrainConfig().epochs))


@final
class Group:
    """Heads after the same training.

    Args:
        shown: `adversarial` at one scale.
        data, training: of its axes.
    """

    def __init__(self, shown: Shown, data: str, training: str) -> None:
        self.data, self.training, self.scale = data, training, shown.scale
        places = {head: {"data": data, "head": head, "training": training} for head in ORDER}
        found = {head: [record for at, record in shown.found if at == place] for head, place in places.items()}
        self.records = {head: records for head, records in found.items() if records}

    @property
    def epochs(self) -> str:
        """Of the training."""
        found = dict.fromkeys(str(epochs_of(r)) for records in self.records.values() for r in records)
        return f"{', '.join(found)} epochs"

    @property
    def eps(self) -> str:
        """Of the worst case, in both units."""
        summary = next(iter(self.records.values()))[0]["more"]["summary"]
        return f"ε = {summary['table_eps']:g} normalised, {self.eps_pixels:.2g} px"

    @property
    def eps_pixels(self) -> float:
        """The same, of the pixel range."""
        return float(next(iter(self.records.values()))[0]["more"]["summary"]["table_eps_pixels"])

    @property
    def seeds(self) -> str:
        """Which; where heads differ, those of each."""
        return " or ".join(dict.fromkeys(seeds_of(records) for records in self.records.values()))

    @property
    def samples(self) -> int:
        """Under strong attacks, the fewest."""
        found = [strong(r["more"]["summary"]) for records in self.records.values() for r in records]
        return min(int(group["samples"]) for group in found)

    @property
    def graph(self) -> str:
        """Of the worst case of the heads that have one."""
        found = dict.fromkeys(
            graph_of(strong(r["more"]["summary"])["attacks"][0]) for records in self.records.values() for r in records
        )
        return " or ".join(name for name in found if name != NO_GRAPH)

    def values(self, head: str, figure: str) -> list[float]:
        """In percent, of every seed."""
        if figure == SINGLE:
            return [100 * single(record["more"]["summary"]) for record in self.records.get(head, ())]
        found = (record["values"].get(figure) for record in self.records.get(head, ()))
        return [float(value) for value in found if value is not None]

    def judged(self, head: str, other: str) -> str:
        """Is one head more robust than another, as so many seeds allow to say it?

        Two graph heads may have met different attacks: `attack_sets.py` says so below the tables, and the answer is
        that of the worst cases as they are.
        """
        ours, theirs = self.values(head, WORST), self.values(other, WORST)
        answer = judged({HEADS[other]: relation(ours, theirs, self.samples)})
        return so_far(answer, min(len(ours), len(theirs)), self.samples)

    def numbers(self) -> str:
        """The worst cases, the smallest first."""
        means = {head: found for head in self.records if (found := self.values(head, WORST))}
        ranked = sorted(means, key=lambda head: statistics.fmean(means[head]))
        return ", ".join(f"{head} {shown_mean(means[head])}" for head in ranked)


def strong(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    """The samples and the graph under strong attacks."""
    groups: list[Mapping[str, Any]] = summary["groups"]
    return next((g for g in groups if any(a["attack"] == "pgd" for a in g["attacks"])), groups[-1])


def single(summary: Mapping[str, Any]) -> float:
    """The largest error of one attack at the ε of the table, a share: in one batch, where samples share a graph."""
    return max(float(attack["error"]) for attack in near_ball(strong(summary), summary["table_eps_pixels"], "LInf"))


def graph_of(attack: Mapping[str, Any]) -> str:
    """How many samples are attacked in one graph, and how many are its base.

    >>> graph_of({"chunk": 1000, "threat": {"base": "500 of 60,000 labelled", "queries": "joint"}})
    '1,000 + 500'
    >>> graph_of({"chunk": 1000, "threat": {"base": "500 of 60,000 labelled", "queries": "alone"}})
    '1 + 500'
    >>> graph_of({"chunk": 1000, "threat": {}})
    'no graph'
    """
    base = re.match(r"[\d,]+", (attack.get("threat") or {}).get("base") or "")
    if base is None:
        return NO_GRAPH
    return f"{attack['chunk'] if attack['threat']['queries'] == 'joint' else 1:,} + {base.group()}"


def groups(scales: Sequence[Shown], data: str, training: str) -> list[Group]:
    """The longest training of every head, and beside it all heads that were trained as long; the longest first."""
    found = [Group(shown, data, training) for shown in reversed(scales)]
    needed = {next((g.scale for g in found if head in g.records), None) for head in ORDER}
    return [group for group in found if group.scale in needed]
