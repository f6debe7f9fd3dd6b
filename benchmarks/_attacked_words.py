"""What docs/robustness.md says about its tables: sentences and claims that follow from the records."""

from __future__ import annotations

import statistics
from typing import Any

from _attacked import COLUMNS, HEADS, NOT_RUN, Known, Record, failed_checks, values, worst

from gll.reproduce.robust import (
    AT,
    EVERY_CLASS,
    NAMES,
    NATURAL,
    OURS,
    ROBUST,
    contests,
    sentences,
    shown_mean,
    strongest,
)
from gll.reproduce.tables import tolerance
from gll.words import counted

HALF = 0.5


def beside_the_paper(known: Known, data: str) -> str:
    """A line for each head and training: which of its figures agree with the paper's."""
    experiment = known.experiment
    room = tolerance(experiment)
    lines = []
    for training in (NATURAL, ROBUST):
        for head in HEADS:
            found = known.records(data, head, training)
            groups: dict[str, list[str]] = {}
            for figure in COLUMNS:
                paper, ours = experiment.paper(f"{data}, {head}, {training}", figure), values(found, figure)
                if paper is not None and ours:
                    away = statistics.fmean(ours) - paper[0]
                    word = "agree" if abs(away) <= room else "lower" if away < 0 else "higher"
                    groups.setdefault(word, []).append(figure)
            if groups:
                epochs = ", ".join(dict.fromkeys(str(record["config"]["train.epochs"]) for record in found))
                words = "; ".join(f"{word}: {', '.join(names)}" for word, names in sorted(groups.items()))
                lines.append(f"| {head} | {training}, {epochs} epochs, {counted(len(found), 'seed')} | {words} |")
    about = f"| head | training | within {room:g} points of the paper's, or lower, or higher |"
    return "\n".join([about, "|---|---|---|", *lines]) if lines else NOT_RUN


def order(known: Known, data: str) -> str:
    """Heads by their worst case in the paper's protocol, the smallest first, after each way of training."""
    lines = []
    for training in (NATURAL, ROBUST):
        found = {head: own for head in HEADS if (own := known.records(data, head, training))}
        means = {head: values(own, "worst case") for head, own in found.items()}
        ranked = sorted((h for h in means if means[h]), key=lambda head: statistics.fmean(means[head]))
        if len(ranked) > 1:
            epochs = ", ".join(dict.fromkeys(str(r["config"]["train.epochs"]) for h in ranked for r in found[h]))
            fewest = counted(min(len(means[head]) for head in ranked), "seed")
            numbers = ", ".join(f"{head} {shown_mean(means[head])}" for head in ranked)
            lines.append(f"- *{training}*, {epochs} epochs, {fewest}: {numbers}")
    return "\n".join(["Worst case at that ε, the smallest first:", "", *lines]) if lines else NOT_RUN


def answers(known: Known, *trainings: str) -> str:
    """Who is more robust, for each data set that was run."""
    found = sentences(known.worst, *trainings)
    return "\n".join(f"- {text}" for text in found) or NOT_RUN


def claims(known: Known) -> str:
    """What holds and what does not, by the records."""
    rows = {
        "a naturally trained GLL has small errors under FGSM and IFGSM, as in the paper": _looks(known),
        "it *is* robust": _is_robust(known),
        "it is more robust than a naturally trained linear layer or MLP": _answered(known, NATURAL),
        "an adversarially trained GLL is more robust than a linear or an MLP head": _answered(known, ROBUST),
        "it is, if it is trained against an attacker who sees every class": _answered(known, EVERY_CLASS),
        "AutoAttack alone is enough to judge a graph head": _enough(known),
        "the checks notice where a model's own gradient finds less than half of the worst case": _noticed(known),
    }
    return "\n".join(["| claim | |", "|---|---|", *(f"| {claim} | {found} |" for claim, found in rows.items())])


def _looks(known: Known) -> str:
    """Of FGSM and IFGSM, on every data set."""
    experiment = known.experiment
    parts = []
    for data in experiment.text["axes"]["data"]:
        found = known.records(data, OURS, NATURAL)
        pairs = [(values(found, figure), experiment.paper(f"{data}, GLL, natural", figure)) for figure in COLUMNS[1:3]]
        away = [abs(statistics.fmean(ours) - paper[0]) for ours, paper in pairs if ours and paper is not None]
        if away:
            word = "holds" if max(away) <= tolerance(experiment) else "does not hold"
            parts.append(f"{word} on {NAMES[data]} ({counted(len(found), 'seed')})")
    return "; ".join(parts) or "not run yet"


def _is_robust(known: Known) -> str:
    parts = []
    for data in known.experiment.text["axes"]["data"]:
        found = known.records(data, OURS, NATURAL)
        weak, strong = values(found, "FGSM"), values(found, "worst case")
        if weak and strong:
            word = "no" if statistics.fmean(strong) > 2 * statistics.fmean(weak) else "as far as FGSM says"
            numbers = f"worst case {shown_mean(strong)}, FGSM {shown_mean(weak)}"
            parts.append(f"**{word}** on {NAMES[data]}: {numbers} ({counted(len(found), 'seed')})")
    return "; ".join(parts) or "not run yet"


def _answered(known: Known, training: str) -> str:
    found = [c for c in contests(known.worst, training) if c.heads]
    return "; ".join(f"**{c.answer}** on {NAMES[c.data]} ({c.seeds})" for c in found) or "not run yet"


def _enough(known: Known) -> str:
    """By how much of the worst case AutoAttack finds after adversarial training, at twice its ε."""
    parts = []
    for contest in contests(known.worst, ROBUST):
        auto, strong = contest.values(OURS, "AutoAttack at 2x, alone"), contest.values(OURS, AT[2])
        if auto and strong:
            share = statistics.fmean(auto) / statistics.fmean(strong)
            word = "**no**" if share < 0.9 else "nearly"
            parts.append(f"{word} on {NAMES[contest.data]}: it finds {share:.0%} of the errors at twice ε")
    return "; ".join(parts) or "not run yet"


def _noticed(known: Known) -> str:
    """Of the runs that look twice as good by their own gradient as they are: how many fail a check that says so.

    *Batch dependence* does not count: it speaks of the graph, and not of a gradient.
    """
    blind = [record for record in known.every() if _overrated(record)]
    named = [set(_failed(record)) - {"batch dependence"} for record in blind]
    caught = sum(1 for names in named if names)
    which = ", ".join(f"*{name}*" for name in sorted(set().union(*named)))
    return f"in {caught} of {len(blind)} such runs: {which}" if blind else "there is no such run yet"


def _judged(record: Record) -> dict[str, Any]:
    """The summary with every sample alone, if there is one."""
    more: dict[str, dict[str, Any]] = record["more"]
    return more.get("alone", more.get("summary", {}))


def _failed(record: Record) -> list[str]:
    return failed_checks(_judged(record))


def _overrated(record: Record) -> bool:
    """At the largest ε at which its own gradient was followed."""
    summary = _judged(record)
    followed = [a["settings"]["eps"] for g in summary["groups"] for a in g["attacks"] if a["attack"] == "pgd"]
    if not followed:
        return False
    own, strong = strongest(summary, max(followed), lambda name: name == "pgd"), worst(summary, max(followed))
    return own is not None and strong is not None and own < HALF * strong
