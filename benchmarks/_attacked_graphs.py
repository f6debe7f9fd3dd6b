"""More that docs/robustness.md says: the same models in another graph, and what is left in favour of a GLL."""

from __future__ import annotations

import statistics

from _attacked import NOT_RUN, Known, largest

from gll.reproduce import natural, protocol
from gll.reproduce.protocol import WORST, groups
from gll.reproduce.robust import (
    AT,
    HEADS,
    NAMES,
    NATURAL,
    OTHERS,
    OURS,
    PAPER,
    ROBUST,
    TOGETHER,
    contests,
    radii,
    seeds_of,
    shown_mean,
)
from gll.reproduce.verdicts import YES, so_far

WHOSE = {key: f"{whose} without attacks" for key, whose in natural.WHOSE.items()}
HOW = {ROBUST: "adversarial training in earnest"} | WHOSE
AT_TEST = {
    "the softmax it was trained with": ("softmax, FGSM", "softmax, IFGSM"),
    "a graph, by the gradient of the softmax": ("GLL, FGSM by softmax", "GLL, IFGSM by softmax"),
    "a graph, by its own gradient": ("GLL, FGSM by GLL", "GLL, IFGSM by GLL"),
}


def in_one_graph(known: Known) -> str:
    """After adversarial training, all samples in one graph. Attacks that need one for a GLL alone; no AutoAttack."""
    head = ["data", "attacked + base in one graph", "ε", "seeds", OURS, *OTHERS, "is a GLL more robust?"]
    lines = [f"| {' | '.join(head)} |", "|---|---|---:|---|" + "---:|" * (1 + len(OTHERS)) + "---|"]
    for contest in (c for c in contests(known.worst, ROBUST) if c.heads):
        own = contest.records[OURS]
        graph = protocol.graph_of(protocol.strong(own[0]["more"]["summary"])["attacks"][0])
        for multiple, eps in zip(TOGETHER, radii(own), strict=True):
            told = {name: contest.values(name, TOGETHER[multiple]) for name in contest.heads}
            if all(told.values()):
                answer = so_far(contest.judged(multiple, TOGETHER), contest.fewest, contest.samples)
                cells = [shown_mean(told.get(name, [])) for name in (OURS, *OTHERS)]
                where = f"{NAMES[contest.data]} | {graph} | {eps:g} px | {contest.seeds}"
                lines.append(f"| {where} | {' | '.join(cells)} | {answer} |")
    return "\n".join(lines) if len(lines) > 2 else NOT_RUN


def at_test_only() -> str:
    """One model with two heads at test time, its graph attacked by the gradient of either."""
    shown = largest("head-at-test")
    found = [record for at, record in shown.found if at["data"] == "mnist"] if shown else []
    if not found:
        return NOT_RUN
    lines = ["| tested by | FGSM | IFGSM |", "|---|---:|---:|"]
    for title, figures in AT_TEST.items():
        cells = [shown_mean([record["values"][figure] for record in found]) for figure in figures]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def by_rate() -> str:
    """Worst cases after natural trainings of MNIST that differ in their rate, or in length and schedule, by head."""
    shown = largest("rate")
    if shown is None or not shown.found:
        return NOT_RUN
    heads, trainings = (list(shown.experiment.text["axes"][axis]) for axis in ("head", "training"))
    records = [record for _, record in shown.found]
    lines = [f"| epochs, rate, schedule | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for training in trainings:
        cells = [shown_mean(shown.values({"head": head, "training": training}, AT[1])) for head in heads]
        lines.append(f"| {training} | {' | '.join(cells)} |")
    about = f"worst case in percent at ε = {radii(records)[0]:g} px, each sample alone; {seeds_of(records)}; –: not run"
    return "\n".join([*lines, "", f"<small>{about}</small>"])


def in_favour(known: Known) -> str:
    """Where the worst case of a GLL is below that of another head, by the rule; in words."""
    parts = []
    for contest in (c for training in HOW for c in contests(known.worst, training) if c.heads):
        for multiple, eps in zip(AT, radii(contest.records[OURS]), strict=True):
            if contest.broken(multiple):
                continue
            ahead = [head for head, found in contest.relations(multiple).items() if found == "lower"]
            if ahead:
                numbers = ", ".join(f"{h} {shown_mean(contest.values(h, AT[multiple]))}" for h in (OURS, *ahead))
                where = f"{NAMES[contest.data]}, after {HOW[contest.training]}, each sample alone at ε = {eps:g} px"
                parts.append(f"{where}: ahead of {_named(ahead)} ({numbers}; {contest.seeds})")
    for data in NAMES:
        for training, how in ((NATURAL, HOW[PAPER]), (ROBUST, "the paper's adversarial training")):
            for group in groups(known.adversarial, data, training):
                beside = [head for head in group.records if head != OURS and group.values(head, WORST)]
                ahead = [h for h in beside if group.values(OURS, WORST) and group.judged(OURS, h).endswith(YES)]
                if ahead:
                    ahead.sort(key=lambda head: statistics.fmean(group.values(head, WORST)))
                    numbers = ", ".join(f"{head} {shown_mean(group.values(head, WORST))}" for head in (OURS, *ahead))
                    where = f"{NAMES[data]}, after {how} ({group.epochs}), all samples in one graph at {group.eps}"
                    so_far_too = "so far " if any("so far" in group.judged(OURS, head) for head in ahead) else ""
                    more = natural.more_trainings(known.worst, group)
                    parts.append(f"{where}: {so_far_too}ahead of {_named(ahead)} ({numbers}; {group.seeds}{more})")
    return "\n".join(f"- {part}." for part in parts) or "Nothing that was measured."


def _named(heads: list[str]) -> str:
    return " and ".join(HEADS[head] for head in heads)
