"""Is a GLL more robust than the heads beside it? What the records of `worst-case` say, in tables and in a sentence.

After natural training the answer is that of `natural.py`.

The rule is that of `verdicts.py`. Data sets, seeds and ways of training that are run later are taken up by themselves;
so is another answer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from gll.attacks.tables import near_ball
from gll.reproduce.records import Record
from gll.reproduce.tables import LINEAR, NONE, Shown
from gll.reproduce.verdicts import interval, judged, relation, so_far
from gll.words import counted

OURS, OTHERS = "GLL", ("linear", "MLP")
NAMES = {"mnist": "MNIST", "fashionmnist": "FashionMNIST", "cifar10": "CIFAR-10"}
HEADS = {"GLL": "a GLL", "WNLL": "WNLL", "linear": "a linear layer", "MLP": "an MLP"}
ROBUST, EVERY_CLASS, NATURAL, PAPER = "robust", "robust, every class", "natural", "natural, as in the paper"
AUTO_SIGHT = "autoattack-gradients with every class"
AT = {1: "worst case at 1x, alone", 2: "worst case at 2x, alone"}
"""Figures by the multiple of the ε of the training; *alone*: every sample in a graph of its own."""
AUTO = {1: "AutoAttack at 1x, alone", 2: "AutoAttack at 2x, alone"}
TOGETHER = {1: "worst case at 1x", 2: "worst case at 2x"}
"""The same with all samples in one graph, and without AutoAttack, of every head."""
BREAK = "<br>"
"""Between the data sets of one answer, in a cell of a table."""
BROKEN = 90.0
"""Percent: where every head has more, none is left to be called more robust."""


def shown_mean(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± standard deviation over seeds.

    >>> shown_mean([1.0, 2.0]), shown_mean([3.0]), shown_mean([])
    ('1.5 ± 0.7', '3.0', '–')
    """
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}" if values else NONE


def signed(points: float) -> str:
    """With its sign.

    >>> signed(4.94), signed(-21.06), signed(-0.02)
    ('+4.9', '−21.1', '+0.0')
    """
    return f"{round(points, 1) + 0.0:+.1f}".replace("-", "−")


def seeds_of(records: Sequence[Record]) -> str:
    """Which, in words.

    >>> seeds_of([{"seed": 0}]), seeds_of([{"seed": s} for s in (2, 0, 1)]), seeds_of([{"seed": s} for s in (0, 4)])
    ('seed 0', 'seeds 0 to 2', 'seeds 0, 4')
    """
    found = sorted({int(record["seed"]) for record in records})
    if len(found) > 2 and found == list(range(found[0], found[-1] + 1)):
        return f"seeds {found[0]} to {found[-1]}"
    return f"{'seed' if len(found) == 1 else 'seeds'} {', '.join(str(seed) for seed in found)}"


def normalised(eps: float, summary: Mapping[str, Any]) -> str:
    """An ε of the pixel range in the units of the paper; nothing where channels have units of their own.

    >>> normalised(0.1, {"unit": 0.3081}), normalised(0.1, {"unit": [0.2, 0.3, 0.4]})
    ('0.32 normalised', '')
    """
    unit = summary.get("unit")
    return f"{eps / unit:.2g} normalised" if isinstance(unit, float) else ""


def strongest(summary: Mapping[str, Any], eps: float, wanted: Callable[[str], bool]) -> float | None:
    """The largest error of the attacks with such a name in the ball of one ε, a share."""
    attacks = [a for g in summary["groups"] for a in near_ball(g, eps, "LInf")]
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

    @property
    def samples(self) -> int:
        """Under attack, the fewest."""
        return min(record["more"]["alone"]["samples"] for found in self.records.values() for record in found)

    def relations(self, multiple: int, figures: Mapping[int, str] = AT) -> dict[str, str]:
        """How a GLL compares with each of the others that were run, at a multiple of the ε of the training.

        Both by the same figure: with each sample alone by the same attacks, as far as a head has a graph to attack. In
        one graph later records have some more (`attack_sets.py`), which raise the worst case of a GLL, if anything.
        """
        own, others = self.values(OURS, figures[multiple]), [head for head in self.heads if head != OURS]
        return {head: relation(own, self.values(head, figures[multiple]), self.samples) for head in others}

    def judged(self, multiple: int, figures: Mapping[int, str] = AT) -> str:
        """Is a GLL more robust than each of the others?"""
        return judged({HEADS[head]: found for head, found in self.relations(multiple, figures).items()})

    def broken(self, multiple: int) -> str:
        """That all heads are, with the lowest and the highest mean; nothing where one is not."""
        means = [statistics.fmean(self.values(head, AT[multiple])) for head in self.heads]
        ends = " to ".join(dict.fromkeys(f"{mean:.1f}" for mean in (min(means), max(means))))
        return f"all heads are broken ({ends})" if min(means) > BROKEN else ""

    @property
    def answers(self) -> dict[int, str]:
        """By the multiple of the ε of the training, as so many seeds allow to say it."""
        return {m: self.broken(m) or so_far(self.judged(m), self.fewest, self.samples) for m in AT}

    @property
    def answer(self) -> str:
        """Both in a few words."""
        once, twice = self.answers[1], self.answers[2]
        if once == twice:
            return f"**{once}** at the ε of the training and at twice that"
        return f"**{once}** at the ε of the training, **{twice}** at twice that"

    @property
    def heads(self) -> list[str]:
        """Those of the question that were run, a GLL among them and another; else none."""
        found = [head for head in (OURS, *OTHERS) if all(self.values(head, figure) for figure in AT.values())]
        return found if OURS in found and len(found) > 1 else []

    @property
    def fewest(self) -> int:
        """Seeds of the head that has the fewest."""
        return min(len(self.values(head, AT[2])) for head in self.heads)

    @property
    def seeds(self) -> str:
        """Which, in words; the fewest and the most where heads differ."""
        counts = {len(self.values(head, AT[2])) for head in self.heads}
        if len(counts) > 1:
            return f"{min(counts)} to {max(counts)} seeds"
        return seeds_of(self.records[OURS])

    def sentence(self) -> str:
        """The answer with its numbers."""
        parts = []
        for multiple, eps in zip(AT, radii(self.records[OURS]), strict=True):
            numbers = [
                f"{HEADS[head]} **{shown_mean(self.values(head, AT[multiple]))}**{self.away(head, multiple)}"
                for head in self.heads
            ]
            parts.append(f"at ε = {eps:g} px **{self.answers[multiple]}**: {', '.join(numbers)}")
        return f"**{self.title}** ({self.seeds}), {'; '.join(parts)}."

    def away(self, head: str, multiple: int) -> str:
        """By how many points the worst case of a GLL is above that of another head: the 95 % interval, in brackets.

        Nothing without a deviation; where the two differ, also how many samples of 1,000 that is.
        """
        ours, theirs = self.values(OURS, AT[multiple]), self.values(head, AT[multiple])
        if head == OURS or min(len(ours), len(theirs)) == 1:
            return ""
        mean = statistics.fmean(ours) - statistics.fmean(theirs)
        ends = " to ".join(signed(end) for end in interval(ours, theirs))
        level = relation(ours, theirs, self.samples) == "level"
        samples = "" if level else f", {abs(round(10 * mean))} samples of 1,000"
        return f" ({signed(mean)}, {ends}{samples})"

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
    """The answer after adversarial training: whether a GLL is the more robust anywhere, then every data set."""
    found = [contest for contest in contests(shown, ROBUST) if contest.heads]
    if not found:
        return "Not run yet."
    where = [f"on {NAMES.get(c.data, c.data)} {c.answer.replace('**', '')} ({c.seeds})" for c in found]
    return f"**An adversarially trained GLL {more_robust(found)}: {'; '.join(where)}.**"


def more_robust(found: Sequence[Contest]) -> str:
    """Than whom a GLL is, wherever somebody is left; *in part*: somewhere. *So far* where nothing has a second seed."""
    left = [contest.relations(multiple) for contest in found for multiple in AT if not contest.broken(multiple)]
    now = "is" if any(contest.fewest > 1 for contest in found) else "is so far"
    if not left:
        return f"{now} broken, as all heads are"
    groups: dict[str, list[str]] = {}
    for head in OTHERS:
        if lower := [relations[head] == "lower" for relations in left if head in relations]:
            word = "" if all(lower) else ", in part," if any(lower) else " not"
            groups.setdefault(word, []).append(HEADS[head])
    parts = [f"{word} more robust than {' or '.join(names)}" for word, names in groups.items()]
    return now + " but".join(parts)


def table(shown: Shown) -> str:
    """After adversarial training: what its own gradient finds, what AutoAttack does, and the worst case."""
    head = ["after adversarial training", "natural", "own gradient, 2ε", "AutoAttack, standard, 2ε"]
    head += ["**worst case, ε**", "**worst case, 2ε**"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    samples: set[int] = set()
    seeds: dict[str, None] = {}
    balls: dict[str, float] = {}
    for contest in contests(shown, ROBUST, EVERY_CLASS):
        for name, records in contest.records.items():
            if contest.training == EVERY_CLASS and name != OURS:
                continue
            largest = max(radii(records))
            own = [strongest(record["more"]["alone"], largest, lambda attack: attack == "pgd") for record in records]
            cells = [shown_mean(contest.values(name, "natural, alone"))]
            cells.append(shown_mean([100 * share for share in own if share is not None]))
            cells.append(shown_mean(contest.values(name, AUTO[2])))
            cells += [f"**{shown_mean(contest.values(name, figure))}**" for figure in AT.values()]
            against = ", against every class" if contest.training == EVERY_CLASS else ""
            title = f"{NAMES.get(contest.data, contest.data)}, {name}{against}"
            balls |= {NAMES.get(contest.data, contest.data): min(radii(records))}
            # A number stays in one line, however narrow the page.
            lines.append(f"| {title} | {' | '.join(cells)} |".replace(" ± ", "\u00a0±\u00a0"))
            seeds[seeds_of(records)] = None
            samples |= {record["more"]["alone"]["samples"] for record in records}
    if len(lines) == 2:
        return "Not run yet."
    each = ", ".join(counted(number, "sample") for number in sorted(samples))
    units = ", ".join(f"{name} {eps:g}" for name, eps in balls.items())
    about = f"{' or '.join(seeds)}; {each}, each alone in a graph with its base; ε of the pixel range 0 .. 1: {units}"
    return "\n".join([*lines, "", f"<small>{about}; {LINEAR}</small>"])
