"""CW beside the paper's figures: by the largest sample there is, and what units of its distance could explain.

`adversarial` has CW of 1,000 samples or fewer, which tell a difference of a point from none on MNIST no better than
chance does. `more-c` has it of all 10,000, of other trainings by the same settings: where there is such a record, it
is the one that is judged.

Ours are distances of pixels from 0 to 1, as in the paper's formula. Its ε we read as of normalised images. If those of
CW are normalised, too, each squared distance is larger, by one over the variance of a pixel, and its c, which stands
before the other term, is as much smaller in our units. Our records have the errors at several c, so that this guess
can be tried on them.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import final

from _attacked import NOT_RUN, Known, Record, Summary, largest

from gll.attacks.units import STD
from gll.reproduce.protocol import Group, groups
from gll.reproduce.robust import NAMES, NATURAL, ROBUST
from gll.reproduce.tables import beside_paper

NAME, LARGER = "cw-paper", "more-c"
NOT_OF_THE_TRAINING = ("kind", "attack.", "adversarial.")
"""Keys of a record's settings that change nothing in a natural training."""


@final
@dataclass(frozen=True)
class Curve:
    """Errors under CW in the paper's form, in percent of every seed, by c.

    Args:
        errors: by c, the smallest first.
        samples: under attack, the fewest.
        table_c: the c of the paper's table.
        larger: whether it is of `more-c`, and so of other trainings than the rest of a row.
    """

    errors: dict[float, list[float]]
    samples: int
    table_c: float
    larger: bool = False

    def mean(self, c: float) -> float:
        """Over seeds."""
        return statistics.fmean(self.errors[c])


def _curve(summaries: list[Summary], larger: bool = False) -> Curve | None:
    """Of these records of a head; None where CW is in none of them."""
    errors: dict[float, list[float]] = {}
    samples = []
    for group in (group for summary in summaries for group in summary["groups"]):
        for attack in (attack for attack in group["attacks"] if attack["attack"] == NAME):
            errors.setdefault(float(attack["settings"]["c"]), []).append(100 * attack["error"])
            samples.append(int(group["samples"]))
    if not errors:
        return None
    return Curve(dict(sorted(errors.items())), min(samples), float(summaries[0]["table_c"]), larger)


def own(group: Group, head: str) -> Curve | None:
    """Of the very models of a table."""
    return _curve([record["more"]["summary"] for record in group.records[head]])


def of_more_samples(group: Group, head: str) -> Curve | None:
    """What `more-c` has of the same head and training, if that is of more samples; else None."""
    shown, mine = largest(LARGER), own(group, head)
    if shown is None or mine is None or group.training != NATURAL:
        return None
    place = {"data": group.data, "head": head, "training": NATURAL}
    trained = training(group.records[head][0])
    found = [record for at, record in shown.found if at == place and training(record) == trained]
    other = _curve([record["more"]["summaries"]["attack"] for record in found], larger=True)
    if other is None or other.samples <= mine.samples or mine.table_c not in other.errors:
        return None
    return other


def training(record: Record) -> dict[str, object]:
    """What of the settings of a record is of a natural training."""
    return {key: value for key, value in record["config"].items() if not key.startswith(NOT_OF_THE_TRAINING)}


def judged_by(group: Group, head: str) -> Curve | None:
    """The larger sample where there is one."""
    return of_more_samples(group, head) or own(group, head)


def word(known: Known, group: Group, head: str, curve: Curve) -> str | None:
    """Whether the error at the paper's c agrees with the paper's, or is lower or higher."""
    place = f"{group.data}, {head}, {group.training}"
    return beside_paper(known.experiment, place, "CW", curve.errors[curve.table_c], curve.samples)


def told_larger(known: Known, found: list[Group]) -> str:
    """Below a table of verdicts: which of CW are by another sample, with the errors of both. Nothing without one."""
    parts, sizes = [], set()
    for group in found:
        for head in group.records:
            mine, other = own(group, head), of_more_samples(group, head)
            paper = known.experiment.paper(f"{group.data}, {head}, {group.training}", "CW")
            if mine and other and paper:
                c = other.table_c
                sizes |= {f"{other.samples:,} samples, and {mine.samples:,}"}
                parts.append(f"{head} {other.mean(c):.2f}, and {mine.mean(c):.2f} (paper {paper[0]:.2f})")
    if not parts:
        return ""
    return (
        f"CW after natural training is judged by `{LARGER}`, which has other trainings by the same settings and more "
        f"samples. Errors there and in the table of the protocol, of {' or '.join(sorted(sizes))}: {'; '.join(parts)}."
    )


def in_pixels(data: str, c: float) -> float:
    """A c for squared distances of normalised images, as one for those of pixels; the mean over channels.

    >>> [round(in_pixels(data, 20.0), 2) for data in ("mnist", "fashionmnist", "cifar10")]
    [1.9, 2.49, 1.26]
    """
    return c * statistics.fmean(one**2 for one in STD[data])


def around(curve: Curve, c: float) -> tuple[float, float]:
    """The nearest of its values of c, below and above."""
    return max(one for one in curve.errors if one <= c), min(one for one in curve.errors if one >= c)


def explained(curve: Curve, paper: float, c: float) -> tuple[float, float]:
    """Which share of the difference to the paper's would be gone at another c, from the least to the most; 1: all."""
    at = curve.mean(curve.table_c)
    least, most = sorted((at - curve.mean(one)) / (at - paper) for one in around(curve, c))
    return least, most


def in_words(least: float, most: float) -> str:
    """Do units explain a difference?

    >>> in_words(0.2, 0.65), in_words(1.3, 2.5), in_words(0.7, 1.2), in_words(-0.1, 0.0)
    ('a part at most (20 to 65 %)', 'more than all of it (130 to 250 %)', 'perhaps (70 to 120 %)', 'no (-10 to 0 %)')
    """
    told = "no" if most <= 0 else "a part at most" if most < 1 else "more than all of it" if least > 1 else "perhaps"
    return f"{told} ({100 * least:.0f} to {100 * most:.0f} %)"


def units(known: Known) -> str:
    """A line for each head whose error under CW is not the paper's: what it is at the paper's c in other units."""
    lines = []
    for data in NAMES:
        for group in (g for how in (NATURAL, ROBUST) for g in groups(known.adversarial, data, how)[:1]):
            for head in group.records:
                curve = judged_by(group, head)
                paper = known.experiment.paper(f"{data}, {head}, {group.training}", "CW")
                if curve is None or paper is None or (found := word(known, group, head, curve)) in (None, "agree"):
                    continue
                other = in_pixels(data, curve.table_c)
                near = ", ".join(f"{curve.mean(c):.2f} at c = {c:g}" for c in around(curve, other))
                cells = [NAMES[data], f"{group.training}, {group.epochs}", head, f"{curve.samples:,}"]
                cells += [f"{curve.mean(curve.table_c):.2f} ({paper[0]:.2f}): {found}", f"{other:.2g}", near]
                lines.append(f"| {' | '.join([*cells, in_words(*explained(curve, paper[0], other))])} |")
    head = ["data", "training", "head", "samples", "ours at c = 20 (paper)", "its c, if of normalised images"]
    head += ["ours at the nearest c below and above", "would units explain it? (share of the difference)"]
    return "\n".join([f"| {' | '.join(head)} |", "|---|---|---|---:|---:|---:|---|---|", *lines]) if lines else NOT_RUN
