"""Is a naturally trained GLL more robust than the heads beside it? An answer for each way of training.

It is the training that decides, so no answer is given without one: ours and the paper's with each sample alone in a
graph, by `worst-case`; the paper's with all samples in one graph, by `adversarial`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gll.reproduce.protocol import WORST, Group, graph_of, groups, strong
from gll.reproduce.records import Record
from gll.reproduce.robust import (
    AT,
    HEADS,
    NAMES,
    NATURAL,
    OURS,
    PAPER,
    Contest,
    contests,
    more_robust,
    radii,
    seeds_of,
    shown_mean,
)
from gll.reproduce.tables import Shown
from gll.words import counted

WHOSE = {NATURAL: "our training", PAPER: "the paper's training"}
SCHEDULES = {"step": "steps"}
NOT_RUN = "not run yet"


def training_of(record: Record) -> str:
    """Epochs, optimizer, rate and its course. A record has what differs from the defaults.

    >>> training_of({"config": {"train.epochs": 30}})
    '30 epochs, Adam 0.001, cosine'
    >>> training_of({"config": {"train.epochs": 100, "train.lr": 0.01, "train.schedule": "step"}})
    '100 epochs, Adam 0.01, steps'
    """
    from gll.train.config import TrainConfig

    told: Mapping[str, Any] = record["config"]
    default = TrainConfig()
    epochs, rate = told.get("train.epochs", default.epochs), told.get("train.lr", default.lr)
    optimizer, schedule = (told.get(f"train.{key}", getattr(default, key)) for key in ("optimizer", "schedule"))
    names = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
    return f"{epochs} epochs, {names[optimizer]} {rate:g}, {SCHEDULES.get(schedule, schedule)}"


def headline(worst: Shown, scales: Sequence[Shown]) -> str:
    """A line for each training and graph; what was not run is said.

    Args:
        worst: what `worst-case` has come to.
        scales: what `adversarial` has, at every scale but the smallest.
    """
    return "\n".join(f"- {line}" for line in (alone(worst, PAPER), together(scales, worst), alone(worst, NATURAL)))


def alone(worst: Shown, training: str) -> str:
    """After one of the two trainings, each sample alone in a graph; with numbers."""
    every = contests(worst, training)
    found = [contest for contest in every if contest.heads]
    if not found:
        return f"**After {WHOSE[training]}, each sample alone in a graph:** {_others(every) or NOT_RUN}."
    own = found[0].records[OURS][0]
    where = f"After {WHOSE[training]} ({training_of(own)}), each sample alone in a graph with a base of {base_of(own)}"
    told = "; ".join(_numbers(contest) for contest in found)
    return f"**{where}, a naturally trained GLL {more_robust(found)}.** {told}."


def _others(every: Sequence[Contest]) -> str:
    """What is known of other heads, where a GLL was not run; nothing where that is nothing."""
    parts = []
    for contest in every:
        numbers = {head: contest.values(head, AT[1]) for head in contest.records if head != OURS}
        told = ", ".join(f"{head} {shown_mean(found)}" for head, found in numbers.items() if found)
        if told:
            records = [record for head in numbers for record in contest.records[head]]
            where = f"{NAMES.get(contest.data, contest.data)} ({seeds_of(records)})"
            parts.append(f"{where}, at ε = {radii(records)[0]:g} px worst case {told}")
    return f"a GLL has not been run yet; {'; '.join(parts)}" if parts else ""


def base_of(record: Record) -> str:
    """How many base samples the graph of one sample has."""
    return graph_of(strong(record["more"]["alone"])["attacks"][0]).rpartition(" + ")[2]


def _numbers(contest: Contest) -> str:
    """The answer on one data set, at each ε."""
    parts = []
    for multiple, eps in zip(AT, radii(contest.records[OURS]), strict=True):
        numbers = ", ".join(f"{head} {shown_mean(contest.values(head, AT[multiple]))}" for head in contest.heads)
        told = "" if contest.broken(multiple) else f": worst case {numbers}"
        parts.append(f"at ε = {eps:g} px **{contest.answers[multiple]}**{told}")
    return f"{NAMES.get(contest.data, contest.data)} ({contest.seeds}), {'; '.join(parts)}"


def together(scales: Sequence[Shown], worst: Shown) -> str:
    """After the paper's training, all samples in one graph, as the paper has it; with numbers."""
    return f"**After {WHOSE[PAPER]}, all samples in one graph:** {in_one_graph(scales, worst)}."


def in_one_graph(scales: Sequence[Shown], worst: Shown | None = None, training: str = NATURAL) -> str:
    """For every data set of `adversarial`; with numbers and the training where `worst-case` is given, which has more
    such trainings.

    What was trained for less says so.
    """
    parts = []
    for group in _compared(scales, training):
        words: dict[str, list[str]] = {}
        for head in (head for head in group.records if head != OURS and group.values(head, WORST)):
            words.setdefault(group.judged(OURS, head), []).append(HEADS[head])
        beside = "; ".join(f"**{word}** beside {' and '.join(names)}" for word, names in words.items())
        whole = group.scale == scales[-1].scale
        short, where, told = "" if whole else f", shortened to {group.epochs}", group.seeds, ""
        if worst is not None:
            how = training_of(group.records[OURS][0])
            short = f" ({how})" if whole else f" (shortened: {how})"
            graph = group.graph.replace(" + ", " attacked + ")
            where, told = f"{group.eps}; {where}, {graph} base samples", f": worst case {group.numbers()}"
            where += more_trainings(worst, group)
        parts.append(f"{NAMES.get(group.data, group.data)}{short}: {beside}{told} ({where})")
    return "; ".join(parts) or NOT_RUN


def more_trainings(worst: Shown, group: Group) -> str:
    """What `worst-case` has of the same heads, trained by the same settings: with each sample alone, at its ε.

    One training may be an outlier; this is how far the others lie apart. Nothing where there is none.
    """
    if group.training != NATURAL:
        return ""
    contest = Contest(worst, group.data, PAPER)
    how = training_of(next(iter(group.records.values()))[0])
    found = {
        head: values
        for head in group.records
        if (values := contest.values(head, AT[1])) and training_of(contest.records[head][0]) == how
    }
    if not found:
        return ""
    told = ", ".join(f"{head} {min(values):.1f} to {max(values):.1f}" for head, values in found.items())
    eps = radii([record for head in found for record in contest.records[head]])[0]
    number = counted(max(len(values) for values in found.values()), "more such training")
    return f"; {number}, each sample alone at ε = {eps:g} px: {told}"


def _compared(scales: Sequence[Shown], training: str) -> list[Group]:
    """Where a GLL has somebody beside it."""
    found = [g for data in scales[-1].experiment.text["axes"]["data"] for g in groups(scales, data, training)]
    return [g for g in found if g.values(OURS, WORST) and any(g.values(h, WORST) for h in g.records if h != OURS)]
