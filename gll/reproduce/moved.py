"""How far CW moves images at the same c, as figure 9 of the paper plots it: a GLL's beside those of other heads.

All images count, those that CW left alone with a distance of 0, as the paper's figure seems to have it. Heads stand in
a row only where they were trained alike, and met CW on as many images.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from gll.reproduce.protocol import epochs_of
from gll.reproduce.records import Record
from gll.reproduce.tables import NONE, Shown

EXPERIMENTS = ("adversarial", "more-c", "attack-length", "attack-rate")
"""Those whose records have CW at the paper's values of c, or more."""
GLL = "GLL"
OTHERS = ("WNLL", "linear")
HEADS = (GLL, *OTHERS)
AT = (20.0, 1000.0)
"""The c of the paper's table, and the largest of its other values (appendix B.3 adds more)."""
DATA = {"mnist": "MNIST", "fashionmnist": "FashionMNIST", "cifar10": "CIFAR-10"}


@final
@dataclass(frozen=True)
class Row:
    """Heads that were trained and attacked alike.

    Args:
        data, robust, epochs, images: of what, how, and on how many.
        how: rate and step of the training.
        moved: squared distances of a head by c, from every seed.
        whose: names of the experiments that they are of, as keys.
    """

    data: str
    robust: bool
    epochs: int
    images: int
    how: tuple[float, float]
    moved: dict[str, dict[float, list[float]]] = field(default_factory=dict)
    whose: dict[str, None] = field(default_factory=dict)

    @property
    def training(self) -> str:
        """How, and for how long."""
        return f"{'robust' if self.robust else 'natural'}, {self.epochs} epochs"

    def mean(self, head: str, c: float) -> float:
        return statistics.fmean(self.moved[head][c])

    def far(self, head: str, c: float) -> str:
        """The same, as a table has it."""
        return f"{self.mean(head, c):.3f}" if c in self.moved.get(head, {}) else NONE

    def trainings(self, head: str) -> int:
        """As many as have met CW at the c of the paper's table."""
        return len(self.moved.get(head, {}).get(AT[0], []))

    def less(self, other: str) -> tuple[list[float], list[float]]:
        """The c at which images of a GLL are moved less than those of another head, and all c."""
        every = sorted(self.moved[GLL].keys() & self.moved[other].keys())
        return [c for c in every if self.mean(GLL, c) < self.mean(other, c)], every


def rows(states: Mapping[str, Mapping[str, Shown]]) -> list[Row]:
    """Of a GLL and at least one other head, in the order of the experiments; what has the same cells once."""
    found: dict[tuple[str, bool, int, int, tuple[float, float]], Row] = {}
    seen = set[tuple[str, str]]()
    every = [(name, shown) for name in EXPERIMENTS for shown in reversed(list(states.get(name, {}).values()))]
    for name, shown in every:
        for place, record in shown.found:
            for images, c, distance in _distances(record):
                if (record["key"], f"{images} {c}") in seen:
                    continue
                seen.add((record["key"], f"{images} {c}"))
                settings = {**record["config"], **record.get("settings", {})}
                how = (settings.get("train.lr", 0.0), settings.get("adversarial.step", 0.0))
                key = (settings["data.name"], bool(settings.get("adversarial.eps")), epochs_of(record), images, how)
                row = found.setdefault(key, Row(*key))
                row.whose[name] = None
                row.moved.setdefault(place["head"], {}).setdefault(c, []).append(distance)
    kept = [row for row in found.values() if GLL in row.moved and len(row.moved) > 1]
    return sorted(kept, key=lambda row: (list(DATA).index(row.data), row.robust, -row.epochs, -row.images, row.how))


def table_of_moved(states: Mapping[str, Mapping[str, Shown]]) -> str:
    """A line for each row: mean squared distances at two values of c, and at how many a GLL's are the smaller."""
    columns = [f"c = {c:,.0f}: {head}" for c in AT for head in HEADS]
    columns += [f"moved less than {other}" for other in OTHERS]
    lines = [
        f"| data | training | images | trainings | {' | '.join(columns)} |",
        "|---|---|---:|---:|" + "---:|" * len(columns),
    ]
    for row in rows(states):
        far = [row.far(h, c) for c in AT for h in HEADS]
        less = [_told(*row.less(other)) if other in row.moved else NONE for other in OTHERS]
        many = ", ".join(str(row.trainings(h)) for h in HEADS)
        lines.append(f"| {DATA[row.data]} | {row.training} | {row.images:,} | {many} | {' | '.join([*far, *less])} |")
    return "\n".join(lines)


def _told(less: Sequence[float], every: Sequence[float]) -> str:
    """At how many values of c.

    >>> _told([500.0, 1e6], [1.0, 500.0, 1e6]), _told([1.0], [1.0, 5.0])
    ('at 2 of 3 (from 500 on)', 'at 1 of 2')
    >>> _told([1.0, 2.0], [1.0, 2.0]), _told([], [1.0])
    ('at all 2', 'at none of 1')
    """
    largest = 0 < len(less) < len(every) and list(less) == list(every[-len(less) :])
    return f"at {how_many(less, every)}" + (f" (from {less[0]:,.0f} on)" if largest else "")


def how_many(less: Sequence[float], every: Sequence[float]) -> str:
    """Of all values of c.

    >>> how_many([1.0], [1.0, 5.0]), how_many([1.0], [1.0]), how_many([], [1.0]), how_many([], [])
    ('1 of 2', 'all 1', 'none of 1', 'none of 0')
    """
    if less and len(less) == len(every):
        return f"all {len(every)}"
    return f"{len(less) or 'none'} of {len(every)}"


def _distances(record: Record) -> Iterator[tuple[int, float, float]]:
    """Images, c and their mean squared distance, of every attack of the paper's CW."""
    more: Mapping[str, Any] = record["more"]
    for summary in [more["summary"]] if "summary" in more else more.get("summaries", {}).values():
        for group in summary["groups"]:
            for one in group["attacks"]:
                if one["attack"] == "cw-paper":
                    yield int(group["samples"]), float(one["settings"]["c"]), float(one["mean_squared_l2"])
