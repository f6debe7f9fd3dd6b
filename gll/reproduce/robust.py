"""Is a GLL more robust than the heads beside it? What the records of `worst-case` say, in tables and in a sentence.

Data sets, seeds and ways of training that are run later are taken up by themselves; so is another answer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from gll.reproduce.records import Record
from gll.reproduce.tables import LINEAR, NONE, Shown
from gll.words import counted

OURS, OTHERS = "GLL", ("linear", "MLP")
NAMES = {"mnist": "MNIST", "fashionmnist": "FashionMNIST", "cifar10": "CIFAR-10"}
HEADS = {"GLL": "a GLL", "WNLL": "WNLL", "linear": "a linear layer", "MLP": "an MLP"}
ROBUST, EVERY_CLASS, NATURAL = "robust", "robust, every class", "natural"
THAN = "more robust than a linear layer or an MLP"
ANSWERS = {
    "no": f"is not {THAN} {{where}}",
    "yes": f"is {THAN} {{where}}",
    "open": "cannot be judged by so few seeds {where}",
    "only at ε": f"is {THAN} at the ε of the training, and not at twice that, {{where}}",
    "only at twice ε": f"is {THAN} at twice the ε of the training, and not at that ε itself, {{where}}",
}
AT = {1: "worst case at 1x, alone", 2: "worst case at 2x, alone"}
"""Figures by the multiple of the ε of the training; *alone*: every sample in a graph of its own."""


def shown_mean(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± standard deviation over seeds.

    >>> shown_mean([1.0, 2.0]), shown_mean([3.0]), shown_mean([])
    ('1.5 ± 0.7', '3.0', '–')
    """
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}" if values else NONE


def relation(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Lower or higher by more than the larger standard deviation over seeds, else level; one seed decides nothing.

    >>> relation([3.4, 3.5], [2.0, 2.3]), relation([70.0, 90.0], [69.0, 72.0]), relation([1.0], [2.0, 3.0])
    ('higher', 'level', 'open')
    """
    if min(len(ours), len(theirs)) < 2:
        return "open"
    away = statistics.fmean(ours) - statistics.fmean(theirs)
    if abs(away) <= max(statistics.stdev(ours), statistics.stdev(theirs)):
        return "level"
    return "lower" if away < 0 else "higher"


def strongest(summary: Mapping[str, Any], eps: float, wanted: Callable[[str], bool]) -> float | None:
    """The largest error of the attacks with such a name at one ε, a share."""
    attacks = [a for g in summary["groups"] for a in g["attacks"] if a["settings"].get("eps") == eps]
    return max((a["error"] for a in attacks if wanted(a["attack"])), default=None)


def radii(records: Sequence[Record]) -> list[float]:
    """Every ε at which there is a worst case, in L∞."""
    worst = [w for r in records for g in r["more"]["alone"]["groups"] for w in g["worst"]]
    return sorted({w["eps"] for w in worst if w["norm"] == "LInf"})


@final
class Contest:
    """The heads on one data set, after one way of training.

    Args:
        shown: what `worst-case` has come to.
        data, training: of its axes. Only a GLL can be trained against every class; the others beside it are then those
            that were trained against their own gradient.
    """

    def __init__(self, shown: Shown, data: str, training: str) -> None:
        self.data, self.training = data, training
        self.records: dict[str, list[Record]] = {}
        for head in shown.experiment.text["axes"]["head"]:
            how = ROBUST if training == EVERY_CLASS and head != OURS else training
            place = {"data": data, "head": head, "training": how}
            if found := [record for at, record in shown.found if at == place]:
                self.records[head] = found

    def values(self, head: str, figure: str) -> list[float]:
        """In percent, of every seed."""
        found = (record["values"].get(figure) for record in self.records.get(head, ()))
        return [float(value) for value in found if value is not None]

    def relations(self, figure: str) -> list[str]:
        """Of a GLL with each of the others that were run."""
        others = [theirs for head in OTHERS if (theirs := self.values(head, figure))]
        return [relation(self.values(OURS, figure), theirs) for theirs in others]

    @property
    def answer(self) -> str:
        """Whether a GLL is the more robust: it is, if its worst case is lower than that of each of the others."""
        found = {multiple: self.relations(figure) for multiple, figure in AT.items()}
        if any(not one or "open" in one for one in found.values()):
            return "open"
        lower = [multiple for multiple, one in found.items() if set(one) == {"lower"}]
        if len(lower) == 1:
            return f"only at {'ε' if lower == [1] else 'twice ε'}"
        return "yes" if lower else "no"

    @property
    def heads(self) -> list[str]:
        """Those of the question that were run, a GLL among them and another; else none."""
        found = [head for head in (OURS, *OTHERS) if self.values(head, AT[2])]
        return found if OURS in found and len(found) > 1 else []

    @property
    def seeds(self) -> str:
        """How many, in words; the fewest and the most where heads differ."""
        counts = {len(self.values(head, AT[2])) for head in self.heads}
        words = " to ".join(str(n) for n in sorted({min(counts), max(counts)}))
        return f"{words} {'seed' if counts == {1} else 'seeds'}"

    def sentence(self) -> str:
        """The answer with its numbers."""
        parts = []
        for multiple, eps in sorted(zip(AT, radii(self.records[OURS]), strict=True), reverse=True):
            numbers = [f"{HEADS[head]} **{shown_mean(self.values(head, AT[multiple]))}**" for head in self.heads]
            parts.append(f"at ε = {eps:g} {', '.join(numbers)}")
        return f"**{self.title}: {self.answer}** ({self.seeds}). Worst case {'; '.join(parts)}."

    @property
    def title(self) -> str:
        """The data set, and against what a GLL was trained if not against its own gradient."""
        how = ", a GLL trained against every class" if self.training == EVERY_CLASS else ""
        return f"{NAMES.get(self.data, self.data)}{how}"


def contests(shown: Shown, *trainings: str) -> list[Contest]:
    """Of every data set and way of training that has records."""
    found = [Contest(shown, data, training) for data in shown.experiment.text["axes"]["data"] for training in trainings]
    return [c for c in found if (c.records if c.training != EVERY_CLASS else OURS in c.records)]


def sentences(shown: Shown, *trainings: str) -> list[str]:
    """An answer with its numbers for each data set and way of training where there is somebody to compare with."""
    return [contest.sentence() for contest in contests(shown, *trainings) if contest.heads]


def headline(shown: Shown) -> str:
    """The answer after adversarial training, data sets of one answer together."""
    answers: dict[str, list[str]] = {}
    for contest in contests(shown, ROBUST):
        if contest.heads:
            where = f"on {NAMES.get(contest.data, contest.data)} ({contest.seeds})"
            answers.setdefault(contest.answer, []).append(where)
    parts = [f"{ANSWERS[answer].format(where=' and '.join(names))}" for answer, names in answers.items()]
    return f"**An adversarially trained GLL {'; '.join(parts)}.**" if parts else "Not run yet."


def table(shown: Shown) -> str:
    """After adversarial training: what its own gradient finds, what AutoAttack does, and the worst case."""
    head = ["after adversarial training", "natural", "own gradient, 2ε", "AutoAttack, 2ε"]
    head += ["**worst case, ε**", "**worst case, 2ε**"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    samples: set[int] = set()
    seeds: set[int] = set()
    for contest in contests(shown, ROBUST, EVERY_CLASS):
        for name, records in contest.records.items():
            if contest.training == EVERY_CLASS and name != OURS:
                continue
            largest = max(radii(records))
            own = [strongest(record["more"]["alone"], largest, lambda attack: attack == "pgd") for record in records]
            cells = [shown_mean(contest.values(name, "natural, alone"))]
            cells.append(shown_mean([100 * share for share in own if share is not None]))
            cells.append(shown_mean(contest.values(name, "AutoAttack at 2x, alone")))
            cells += [f"**{shown_mean(contest.values(name, figure))}**" for figure in AT.values()]
            against = ", against every class" if contest.training == EVERY_CLASS else ""
            title = f"{NAMES.get(contest.data, contest.data)}, {name}{against}"
            # A number stays in one line, however narrow the page.
            lines.append(f"| {title} | {' | '.join(cells)} |".replace(" ± ", "\u00a0±\u00a0"))
            seeds.add(len(records))
            samples |= {record["more"]["alone"]["samples"] for record in records}
    if len(lines) == 2:
        return "Not run yet."
    each = ", ".join(counted(number, "sample") for number in sorted(samples))
    runs = f"{min(seeds)} to {counted(max(seeds), 'seed')}" if len(seeds) > 1 else counted(max(seeds), "seed")
    return "\n".join([*lines, "", f"<small>{runs}; {each}, each alone in a graph; {LINEAR}</small>"])
