"""What docs/robustness.md says about its tables: sentences and claims that follow from the records."""

from __future__ import annotations

import statistics
from typing import Any

from _attacked import EXPERIMENTS, NOT_RUN, Known, Record, worst
from _attacked_protocol import COLUMNS, failed_checks
from _paper_attacks import AS_TEXT, PLAIN

from gll.reproduce import protocol
from gll.reproduce.experiment import load_experiment
from gll.reproduce.protocol import WORST, groups
from gll.reproduce.robust import (
    AT,
    AUTO,
    EVERY_CLASS,
    HEADS,
    NAMES,
    NATURAL,
    OTHERS,
    OURS,
    ROBUST,
    TOGETHER,
    contests,
    radii,
    seeds_of,
    sentences,
    shown_mean,
    strongest,
)
from gll.reproduce.tables import Shown, tolerance
from gll.reproduce.verdicts import so_far

HALF = 0.5
NOT_YET = "not run yet"
TRAININGS = {ROBUST: "adversarial", NATURAL: "natural"}


def answers(known: Known, *trainings: str) -> str:
    """Who is more robust, for each data set that was run."""
    found = sentences(known.worst, *trainings)
    return "\n".join(f"- {text}" for text in found) or NOT_RUN


def symmetry(known: Known) -> str:
    """How many attacks each head was judged by, each sample alone, and what standard AutoAttack finds of that."""
    parts = []
    for contest in (c for training in (ROBUST, NATURAL) for c in contests(known.worst, training)):
        for head in contest.heads:
            own = contest.records[head]
            most = max(w["attacks"] for r in own for g in r["more"]["alone"]["groups"] for w in g["worst"])
            share = _share(contest.values(head, AUTO[2]), contest.values(head, AT[2]))
            parts.append(f"| {TRAININGS[contest.training]} | {NAMES[contest.data]} | {head} | {most} | {share:.0%} |")
    lines = [
        "| training | data | head | attacks in the worst case | of it found by standard AutoAttack, at the larger ε |",
        "|---|---|---|---:|---:|",
    ]
    return "\n".join([*lines, *parts]) if parts else NOT_RUN


def noise(known: Known, record: dict[str, Any]) -> str:
    """IFGSM after natural training on MNIST, of every training that had the same settings."""
    folder = EXPERIMENTS / "head-at-test"
    later = load_experiment(folder) if folder.is_dir() else None
    parts = []
    for head in ("linear", "WNLL", "GLL"):
        found: dict[str, list[tuple[int, float]]] = {}
        for group in groups(known.adversarial, "mnist", NATURAL)[:1]:
            own = group.records.get(head, [])
            found["the table above"] = [(r["seed"], r["values"]["IFGSM"]) for r in own]
        rows = [row for row in record["rows"] if row["head"] == head and row["training name"] == AS_TEXT]
        plain = [row for row in rows if row["reading"]["title"] == PLAIN and row["at_test"] is None]
        asked = [row for row in plain if head != "WNLL" or row["reading"]["gradient"] == "surrogate"]
        found["[readings](#readings)"] = [(row["seed"], row["IFGSM"]) for row in asked]
        if head == "linear" and later is not None:
            own = [r for at, r in Shown(later, later.scales[-1]).found if at == {"data": "mnist", "training": NATURAL}]
            title = "[a graph at test time](reproduce.md#a-graph-at-test-time-only)"
            found[title] = [(r["seed"], r["values"]["softmax, IFGSM"]) for r in own]
        every = [error for errors in found.values() for _, error in errors]
        if every:
            told = {t: ", ".join(f"{e:.1f} (seed {s})" for s, e in sorted(errors)) for t, errors in found.items()}
            where = "; ".join(f"{title}: {errors}" for title, errors in told.items() if errors)
            parts.append(f"| {head} | {min(every):.1f} to {max(every):.1f} | {len(every)} | {where} |")
    lines = ["| head | IFGSM, from lowest to highest | trainings | which |", "|---|---:|---:|---|"]
    return "\n".join([*lines, *parts]) if parts else NOT_RUN


def other_training(known: Known) -> str:
    """What the same head comes to after natural training in `worst-case`, beside its figure in the paper's protocol."""
    parts = []
    for contest in contests(known.worst, NATURAL):
        for group in groups(known.adversarial, contest.data, NATURAL)[:1]:
            for head in (OURS, *OTHERS):
                theirs, ours = group.values(head, WORST), contest.values(head, AT[1])
                if theirs and ours:
                    own = contest.records[head]
                    here = f"{shown_mean(theirs)} at ε = {own[0]['more']['alone']['table_eps_pixels']:.2g} px"
                    there = f"{shown_mean(ours)} at ε = {radii(own)[0]:g} px"
                    epochs = own[0]["config"]["train.epochs"]
                    parts.append(
                        f"{HEADS[head]} on {NAMES[contest.data]} has {here} after {group.epochs} here ({group.seeds}), "
                        f"and **{there}** after {epochs} epochs by another rate and schedule ({seeds_of(own)})"
                    )
    alone = "What is said of heads above holds for their training alone."
    told = f"The same head after two trainings: {'; '.join(parts)}. {alone}"
    return f"{told}{_together(known)}" if parts else NOT_RUN


def _together(known: Known) -> str:
    """A GLL of the other training with all samples in one graph: is it the graph that heads come out otherwise?"""
    parts = []
    for contest in (c for c in contests(known.worst, NATURAL) if c.heads and c.values(OURS, TOGETHER[1])):
        own = contest.records[OURS]
        answer = so_far(contest.judged(1, TOGETHER), contest.fewest, contest.samples)
        attacks = protocol.strong(own[0]["more"]["summary"])["attacks"]
        without = "" if any(a["attack"].startswith("autoattack") for a in attacks) else ", without AutoAttack"
        parts.append(
            f" The GLL of the other training, attacked in one graph of {protocol.graph_of(attacks[0])}, has on "
            f"{NAMES[contest.data]} **{shown_mean(contest.values(OURS, TOGETHER[1]))}** at ε = {radii(own)[0]:g} px"
            f"{without}; is it more robust than the other heads after that training? **{answer}**."
        )
    return "".join(parts)


def claims(known: Known) -> str:
    """What holds and what does not, by the records."""
    together = protocol.natural(known.adversarial, numbers=False)
    rows = {
        "a naturally trained GLL has small errors under FGSM and IFGSM, as in the paper": _looks(known),
        "it is more robust than a naturally trained linear layer or MLP, each sample alone": _answered(known, NATURAL),
        "the same beside a linear layer or WNLL, in the paper's protocol": together,
        "a small error under FGSM shows how robust a naturally trained head is": _overstated(known),
        "an adversarially trained GLL is more robust than a linear or an MLP head": _answered(known, ROBUST),
        "it is, if it is trained against an attacker who sees every class": _answered(known, EVERY_CLASS),
        "AutoAttack alone, in its standard form, is enough to judge a graph head": _enough(known),
        "the checks notice where a model's own gradient finds less than half of the worst case": _noticed(known),
    }
    return "\n".join(["| claim | |", "|---|---|", *(f"| {claim} | {found} |" for claim, found in rows.items())])


def _looks(known: Known) -> str:
    """Of FGSM and IFGSM, on every data set."""
    experiment = known.experiment
    parts = []
    for data in experiment.text["axes"]["data"]:
        for group in groups(known.adversarial, data, NATURAL)[:1]:
            pairs = [(group.values(OURS, f), experiment.paper(f"{data}, GLL, natural", f)) for f in COLUMNS[1:3]]
            away = [abs(statistics.fmean(ours) - paper[0]) for ours, paper in pairs if ours and paper is not None]
            if away:
                word = "yes" if max(away) <= tolerance(experiment) else "no"
                told = word if len(group.records[OURS]) > 1 else f"so far {word}"
                numbers = ", ".join(f"{f} {shown_mean(group.values(OURS, f))}" for f in COLUMNS[1:3])
                parts.append(f"**{told}** on {NAMES[data]}: {numbers} ({seeds_of(group.records[OURS])})")
    return "; ".join(parts) or NOT_YET


def _overstated(known: Known) -> str:
    """FGSM beside the worst case, of every head: it overstates where the worst case is more than twice as large."""
    parts = []
    for data in known.experiment.text["axes"]["data"]:
        for group in groups(known.adversarial, data, NATURAL)[:1]:
            numbers, over = [], []
            for head in group.records:
                weak, strong = group.values(head, "FGSM"), group.values(head, WORST)
                if weak and strong:
                    over.append(statistics.fmean(strong) > 2 * statistics.fmean(weak))
                    numbers.append(f"{head} {shown_mean(weak)} and {shown_mean(strong)}")
            if numbers:
                word = "no" if all(over) else "not of every head" if any(over) else "FGSM finds half of it or more"
                told = f"FGSM and worst case: {'; '.join(numbers)} ({group.epochs}, {group.seeds})"
                parts.append(f"**{word}** on {NAMES[data]}, {told}")
    return "; ".join(parts) or NOT_YET


def _answered(known: Known, training: str) -> str:
    """At both ε, of the pixel range."""
    parts = []
    for c in (c for c in contests(known.worst, training) if c.heads):
        told = [f"**{c.answers[m]}** at ε = {eps:g} px" for m, eps in zip(AT, radii(c.records[OURS]), strict=True)]
        parts.append(f"{NAMES[c.data]}: {', '.join(told)} ({c.seeds})")
    return "; ".join(parts) or NOT_YET


def _share(part: list[float], whole: list[float]) -> float:
    return statistics.fmean(part) / statistics.fmean(whole)


def _enough(known: Known) -> str:
    """By how much of the worst case AutoAttack finds, each sample alone, at twice the ε of the training."""
    parts = []
    for contest in (c for training in (ROBUST, NATURAL) for c in contests(known.worst, training)):
        auto, strong = contest.values(OURS, AUTO[2]), contest.values(OURS, AT[2])
        if auto and strong:
            share, eps = _share(auto, strong), max(radii(contest.records[OURS]))
            word = "**no**" if share < 0.9 else "nearly"
            where = f"{word} on {NAMES[contest.data]} after {TRAININGS[contest.training]} training"
            parts.append(f"{where}: it finds {share:.0%} of the errors at ε = {eps:g} px")
    return "; ".join(parts) or NOT_YET


def _noticed(known: Known) -> str:
    """Of the runs that look twice as good by their own gradient as they are: how many fail a check that says so.

    *Batch dependence* does not count: it speaks of the graph, and not of a gradient.
    """
    blind = [record for record in known.every() if _overrated(record)]
    named = [set(_failed(record)) - {"batch dependence"} for record in blind]
    caught = sum(1 for names in named if names)
    which = ", ".join(f"*{name}*" for name in sorted(set().union(*named)))
    if not blind:
        return "there is no such run yet"
    missed = "; ".join(f"{r['cell']}, *{r['scale']}*" for r, names in zip(blind, named, strict=True) if not names)
    fair = [record for record in known.every() if _overrated(record) is False]
    alarms = sum(1 for record in fair if set(_failed(record)) - {"batch dependence"})
    told = f"in {caught} of {len(blind)} such runs: {which}{f'; missed: {missed}' if missed else ''}"
    return f"{told}. At least one fails in {alarms} of the {len(fair)} other runs, too"


def _judged(record: Record) -> dict[str, Any]:
    """The summary with every sample alone, if there is one."""
    more: dict[str, dict[str, Any]] = record["more"]
    return more.get("alone", more.get("summary", {}))


def _failed(record: Record) -> list[str]:
    return failed_checks(_judged(record))


def _overrated(record: Record) -> bool | None:
    """At the largest ε at which its own gradient was followed; None where it was not."""
    summary = _judged(record)
    followed = [a["settings"]["eps"] for g in summary["groups"] for a in g["attacks"] if a["attack"] == "pgd"]
    if not followed:
        return None
    own, strong = strongest(summary, max(followed), lambda name: name == "pgd"), worst(summary, max(followed))
    return None if own is None or strong is None else own < HALF * strong
