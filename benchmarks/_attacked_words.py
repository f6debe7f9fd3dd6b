"""What docs/robustness.md says about its tables: sentences and claims that follow from the records."""

from __future__ import annotations

import statistics
from itertools import product
from typing import Any

import _attacked_cw
from _attacked import ATTACKS, NOT_RUN, Known, Record, largest, worst
from _attacked_protocol import COLUMNS, OLDER, beside, failed_checks, graph_at
from _paper_attacks import AS_TEXT, PLAIN

from gll.reproduce import natural, protocol
from gll.reproduce.protocol import WORST, groups
from gll.reproduce.robust import (
    AT,
    AUTO,
    BREAK,
    EVERY_CLASS,
    HEADS,
    NAMES,
    NATURAL,
    OTHERS,
    OURS,
    PAPER,
    ROBUST,
    TOGETHER,
    Contest,
    contests,
    radii,
    seeds_of,
    sentences,
    shown_mean,
    signed,
    strongest,
)
from gll.reproduce.tables import Shown
from gll.reproduce.verdicts import LEVEL_OF_TEST, WORDS, chance, interval, relation, so_far
from gll.words import counted

HALF = 0.5
NOT_YET = "not run yet"
TRAININGS = {ROBUST: "adversarial", NATURAL: "natural", PAPER: "the paper's natural"}
TRAINED = {name: f"{how} training" for name, how in TRAININGS.items()} | {EVERY_CLASS: "trained against every class"}
TABLE = "[the table](robustness.md#mnist-the-papers-protocol)"
SMALL = 10.0
"""Percent: what may be called a small error under FGSM."""
EARLY = ("mnist", 24.0, 60.0)
"""Worst cases of a GLL and of a linear head at twice the ε of the training, in an early experiment that is not kept."""
NEAR = (0.02, 0.1)
"""A verdict whose chance is between these is near the limit of the test, and named, whichever way it falls."""


def answers(known: Known, *trainings: str) -> str:
    """Who is more robust, for each data set that was run; which heads were not."""
    found = sentences(known.worst, *trainings)
    if not found:
        return NOT_RUN
    about = f"In brackets: a {OURS}'s worst case less that of the other head, in points, and the 95 % interval of that."
    ran = {place["head"] for place, _ in known.worst.found}
    missing = [head for head in known.worst.experiment.text["axes"]["head"] if head not in ran]
    left = f" Not run: {', '.join(missing)}." if missing else ""
    return "\n".join([*(f"- {text}" for text in found), "", about + left])


def excluded(known: Known) -> str:
    """Where there is *no difference* after adversarial training: which differences that leaves open, and which not."""
    parts, early, tested = [], "", False
    for contest in (c for c in contests(known.worst, ROBUST) if c.heads):
        for multiple, eps in zip(AT, radii(contest.records[OURS]), strict=True):
            open_ = []
            for head, found in contest.relations(multiple).items():
                ours, theirs = contest.values(OURS, AT[multiple]), contest.values(head, AT[multiple])
                if min(len(ours), len(theirs)) == 1:
                    continue
                tested = True
                if found != "level":
                    continue
                low, high = interval(ours, theirs)
                open_.append(f"from {signed(low)} to {signed(high)} points beside {HEADS[head]}")
                if (contest.data, head, multiple) == (EARLY[0], "linear", 2):
                    lead = EARLY[1] - EARLY[2]
                    word = "is excluded; a smaller one is not" if lead < low else "is not excluded"
                    early = f" The lead of that early experiment ({EARLY[1]:g} against {EARLY[2]:g} % on MNIST) {word}."
            if open_:
                parts.append(f"on {NAMES[contest.data]} at ε = {eps:g} px {', '.join(open_)}")
    if not tested:
        return "With one seed of a head no difference can be excluded." if contests(known.worst, ROBUST) else NOT_RUN
    if not parts:
        return "Every comparison shows a difference."
    return f"*No difference* is not equality. The difference may still be {'; '.join(parts)}.{early}"


def comparisons(known: Known) -> str:
    """How many there are by Welch's test, how many would differ by chance, and which verdicts are near its limit."""
    made: list[tuple[str, str, float]] = []
    for c in (c for training in TRAININGS | {EVERY_CLASS: ""} for c in contests(known.worst, training) if c.heads):
        ways = {"each alone": AT} | ({} if c.training == EVERY_CLASS else {"in one graph": TOGETHER})
        for (how, figures), (multiple, eps) in product(ways.items(), zip(AT, radii(c.records[OURS]), strict=True)):
            for head in c.heads[1:]:
                ours, theirs = c.values(OURS, figures[multiple]), c.values(head, figures[multiple])
                if min(len(ours), len(theirs)) > 1 and not c.broken(multiple):
                    title = f"{NAMES[c.data]}, {TRAINED[c.training]}, {how}, ε = {eps:g} px, beside {HEADS[head]}"
                    made.append((title, relation(ours, theirs, c.samples), chance(ours, theirs)))
    if not made:
        return NOT_RUN
    differ = [title for title, found, _ in made if found != "level"]
    near = "; ".join(f"{t}: {WORDS[found]} (p = {p:.3f})" for t, found, p in made if NEAR[0] < p < NEAR[1])
    return (
        f"There are {len(made)} such comparisons of worst cases on this page, and {len(differ)} of them show a "
        f"difference. Were all heads equal, about {LEVEL_OF_TEST * len(made):.1f} would by chance. "
        + (f"Nearest to the limit of {LEVEL_OF_TEST}: {near}." if near else "None is near the limit.")
    )


def symmetry(known: Known) -> str:
    """How many attacks each head was judged by, each sample alone, and how much of that is found by one of them.

    At the largest ε at which not all heads are broken.
    """
    parts = []
    for contest in (c for training in TRAININGS for c in contests(known.worst, training) if c.heads):
        multiple = max((m for m in AT if not contest.broken(m)), default=1)
        for head in contest.heads:
            own = contest.records[head]
            eps = radii(own)[multiple - 1]
            counts = [
                w["attacks"] + sum(1 for a in g["attacks"] if a["settings"].get("eps") is None)  # CW has no ε
                for r in own
                for g in r["more"]["alone"]["groups"]
                for w in g["worst"]
            ]
            every = contest.values(head, AT[multiple])
            auto = contest.values(head, AUTO[multiple])
            name, best = _best_single(own, eps)
            parts.append(
                f"| {TRAININGS[contest.training]} | {NAMES[contest.data]} | {eps:g} px | {head} | {max(counts)} | "
                f"{shown_mean(every)} | {shown_mean(best)}: {name} | {shown_mean(auto)} |"
            )
    head = ["training", "data", "ε", "head", "attacks", "worst case", "of it by its best single attack"]
    head += ["by standard AutoAttack"]
    lines = [f"| {' | '.join(head)} |", "|---|---|---:|---|---:|---:|---|---:|"]
    return "\n".join([*lines, *parts]) if parts else NOT_RUN


def _best_single(records: list[Record], eps: float) -> tuple[str, list[float]]:
    """The kind of attack that finds most, in the mean over seeds, and what it finds in each, in percent."""
    found = {
        title: [100 * share for r in records if (share := strongest(r["more"]["alone"], eps, wanted)) is not None]
        for title, wanted in ATTACKS.items()
    }
    found = {title: errors for title, errors in found.items() if errors}
    name = max(found, key=lambda title: statistics.fmean(found[title]))
    return name, found[name]


def noise(known: Known, record: dict[str, Any]) -> str:
    """IFGSM after natural training on MNIST, of every training that had the same settings."""
    later, again = largest("head-at-test"), largest("attack-rate")
    parts = []
    for head in ("linear", "WNLL", "GLL"):
        found: dict[str, list[tuple[int, float]]] = {}
        for group in groups(known.adversarial, "mnist", NATURAL)[:1]:
            own = group.records.get(head, [])
            found[TABLE] = [(r["seed"], r["values"]["IFGSM"]) for r in own]
        rows = [row for row in record["rows"] if row["head"] == head and row["training name"] == AS_TEXT]
        plain = [row for row in rows if row["reading"]["title"] == PLAIN and row["at_test"] is None]
        asked = [row for row in plain if head != "WNLL" or row["reading"]["gradient"] == "surrogate"]
        found["[readings](#readings)"] = [(row["seed"], row["IFGSM"]) for row in asked]
        if head == "linear" and later is not None:
            own = [r for at, r in later.found if at == {"data": "mnist", "training": NATURAL}]
            title = "[a graph at test time](reproduce.md#a-graph-at-test-time-only)"
            found[title] = [(r["seed"], r["values"]["softmax, IFGSM"]) for r in own]
        if again is not None:
            own = [r for at, r in again.found if at == {"head": head, "training": NATURAL}]
            found["[an ablation](reproduce.md#attack-rate)"] = [(r["seed"], r["values"]["IFGSM"]) for r in own]
        every = [error for errors in found.values() for _, error in errors]
        if every:
            told = {t: ", ".join(f"{e:.1f} (seed {s})" for s, e in sorted(errors)) for t, errors in found.items()}
            where = "; ".join(f"{title}: {errors}" for title, errors in told.items() if errors)
            parts.append(f"| {head} | {min(every):.1f} to {max(every):.1f} | {len(every)} | {where} |")
    lines = ["| head | IFGSM, from lowest to highest | trainings | which |", "|---|---:|---:|---|"]
    return "\n".join([*lines, *parts]) if parts else NOT_RUN


def other_training(known: Known) -> str:
    """The same heads after the paper's training and after ours, in one graph and each sample alone: a line for each."""
    parts = []
    for data in NAMES:
        found = [c for training in (NATURAL, PAPER) for c in contests(known.worst, training)]
        here = [contest for contest in found if contest.data == data and contest.heads]
        for group in groups(known.adversarial, data, NATURAL)[:1] if here else ():
            own = [head for head in (OURS, *OTHERS) if group.values(head, WORST)]
            if OURS in own and len(own) > 1:
                told = {h: shown_mean(group.values(h, WORST)) for h in own}
                words = ", ".join(f"{group.judged(OURS, h)} beside {HEADS[h]}" for h in own if h != OURS)
                record = group.records[OURS][0]
                eps = f"{record['more']['summary']['table_eps_pixels']:.2g}"
                parts.append(_line(data, PAPER, record, f"{group.graph}", eps, group.seeds, told, words))
        for contest in here:
            parts += _lines(contest)
    head = [
        "data",
        "natural training",
        "attacked + base in one graph",
        "ε",
        "seeds",
        OURS,
        *OTHERS,
        "is a GLL more robust?",
    ]
    lines = [f"| {' | '.join(head)} |", "|---|---|---|---:|---|" + "---:|" * (1 + len(OTHERS)) + "---|"]
    return "\n".join([*lines, *parts]) if parts else NOT_RUN


def _lines(contest: Contest) -> list[str]:
    """Worst cases of a contest at its smallest ε: in one graph, and each sample alone."""
    made, own = [], contest.records[OURS]
    for figures, where in ((TOGETHER, "summary"), (AT, "alone")):
        told = {h: shown_mean(found) for h in contest.heads if (found := contest.values(h, figures[1]))}
        if set(told) == set(contest.heads):
            attacks = [a for h in contest.heads for a in _strong(contest.records[h][0]["more"][where])]
            auto = any(attack["attack"].startswith("autoattack") for attack in attacks)
            graph = protocol.graph_of(_strong(own[0]["more"][where])[0])
            graph += "" if auto else "; all heads without AutoAttack"
            words = so_far(contest.judged(1, figures), contest.fewest, contest.samples)
            eps = f"{radii(own)[0]:g}"
            made.append(_line(contest.data, contest.training, own[0], graph, eps, contest.seeds, told, words))
    return made


def _strong(summary: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = protocol.strong(summary)["attacks"]
    return found


def _line(
    data: str, training: str, record: Record, graph: str, eps: str, seeds: str, told: dict[str, str], words: str
) -> str:
    whose = f"{natural.WHOSE[training]} ({natural.training_of(record)})"
    cells = [told.get(head, "–") for head in (OURS, *OTHERS)]
    return f"| {NAMES[data]} | {whose} | {graph} | {eps} px | {seeds} | {' | '.join(cells)} | {words} |"


CW = "a GLL resists CW: to fool it images must be moved further (in the paper: at the same c they are moved less)"


def claims(known: Known) -> str:
    """What holds and what does not, by the records."""
    length = largest("attack-length")
    together, robust = (natural.in_one_graph(known.adversarial, how, length) for how in (NATURAL, ROBUST))
    rows = {
        "a naturally trained GLL has the paper's errors under FGSM and IFGSM": _looks(known, NATURAL, length),
        "it is more robust than a linear layer or an MLP, each sample alone": _answered(known, NATURAL, PAPER),
        "it is more robust than a linear layer or WNLL after the paper's training, all samples in one graph": together,
        "a small error under FGSM shows how robust a naturally trained head is": _overstated(known),
        CW: _attacked_cw.claim(known),
        "a GLL has the paper's errors after the paper's adversarial training": _looks(known, ROBUST, length),
        "it is more robust than a linear layer or WNLL after that training, all samples in one graph": robust,
        "a GLL after adversarial training in earnest is more robust than a linear or an MLP head": _answered(
            known, ROBUST
        ),
        "it is, if it is trained against an attacker who sees every class": _answered(known, EVERY_CLASS),
        "AutoAttack alone, in its standard form, is enough to judge a graph head": _enough(known),
        "the checks notice where a model's own gradient finds less than half of the worst case": _noticed(known),
    }
    return "\n".join(["| claim | |", "|---|---|", *(f"| {claim} | {found} |" for claim, found in rows.items())])


def _looks(known: Known, training: str, length: Shown) -> str:
    """Of FGSM and IFGSM, on every data set; behind it what a longer training has."""
    experiment = known.experiment
    parts = []
    for data in experiment.text["axes"]["data"]:
        for group in groups(known.adversarial, data, training)[:1]:
            pairs = [(group.values(OURS, f), experiment.paper(f"{data}, GLL, {training}", f)) for f in COLUMNS[1:3]]
            agree = [word for f in COLUMNS[1:3] if (word := beside(known, group, OURS, f))]
            if agree:
                word = "yes" if set(agree) == {"agree"} else "no"
                told = word if len(group.records[OURS]) > 1 else f"so far {word}"
                numbers = ", ".join(
                    f"{f} {shown_mean(ours)} (paper {paper[0]:.1f})"
                    for f, (ours, paper) in zip(COLUMNS[1:3], pairs, strict=True)
                    if ours and paper is not None
                )
                where = f"{group.epochs}, {seeds_of(group.records[OURS])}"
                parts.append(f"**{told}** on {NAMES[data]}: {numbers} ({where}){_longer(group, length)}")
    return BREAK.join(parts) or NOT_YET


def _longer(group: protocol.Group, length: Shown) -> str:
    """FGSM and IFGSM of a GLL after the longest training that `attack-length` has."""
    by_figure = {f: natural.longer_trained(group, length, f) for f in COLUMNS[1:3]}
    epochs = max((e for found in by_figure.values() for e, heads in found.items() if OURS in heads), default=0)
    told = [f"{f} {shown_mean(found[epochs][OURS])}" for f, found in by_figure.items() if OURS in found.get(epochs, {})]
    return f"; after {epochs} epochs {', '.join(told)}" if told else ""


def _overstated(known: Known) -> str:
    """FGSM beside the worst case, of every head: it overstates where the worst case is more than twice as large.

    Where no head has a small error under FGSM the claim does not apply.
    """
    parts = []
    for data in known.experiment.text["axes"]["data"]:
        for group in groups(known.adversarial, data, NATURAL)[:1]:
            numbers, over, small = [], [], []
            for head in group.records:
                weak, strong = group.values(head, "FGSM"), group.values(head, WORST)
                if weak and strong:
                    over.append(statistics.fmean(strong) > 2 * statistics.fmean(weak))
                    small.append(statistics.fmean(weak) < SMALL)
                    numbers.append(f"{head} {shown_mean(weak)} and {shown_mean(strong)}")
            if numbers:
                word = "no" if all(over) else "not of every head" if any(over) else "yes"
                word = word if any(small) else "does not apply"
                where = ", ".join(f"{figure} {graph_at([group], figure)}" for figure in ("FGSM", WORST))
                why = "" if any(small) else "no head has a small one; "
                told = f"{why}FGSM and worst case: {'; '.join(numbers)}"
                told += f" ({group.epochs}, {group.seeds}; in one graph: {where}"
                told += f"{natural.more_trainings(known.worst, group)})"
                parts.append(f"**{word}** on {NAMES[data]}, {told}")
    return BREAK.join(parts) or NOT_YET


def times_fgsm(known: Known) -> str:
    """How many times the error under FGSM the worst case is in the paper's protocol, from the least to the most."""
    parts = []
    for training in (NATURAL, ROBUST):
        told = []
        for data in known.experiment.text["axes"]["data"]:
            for group in groups(known.adversarial, data, training)[:1]:
                pairs = [(group.values(head, WORST), group.values(head, "FGSM")) for head in group.records]
                times = [statistics.fmean(strong) / statistics.fmean(weak) for strong, weak in pairs if strong and weak]
                if times:
                    told.append(f"{min(times):.1f} to {max(times):.1f} on {NAMES[data]} ({group.epochs})")
        parts += [f"after {training} training {', '.join(told)}"] if told else []
    if not parts:
        return NOT_RUN
    return f"In the paper's protocol the worst case is so many times the error under FGSM: {'; '.join(parts)}."


def _answered(known: Known, *trainings: str) -> str:
    """At both ε, of the pixel range; after natural training with whose training it was."""
    parts = []
    for c in (c for training in trainings for c in contests(known.worst, training) if c.heads):
        told = [f"**{c.answers[m]}** at ε = {eps:g} px" for m, eps in zip(AT, radii(c.records[OURS]), strict=True)]
        how = f" after {natural.WHOSE[c.training]}" if c.training in natural.WHOSE else ""
        parts.append(f"{NAMES[c.data]}{how}: {', '.join(told)} ({c.seeds})")
    ran = {c.data for training in trainings for c in contests(known.worst, training) if c.heads}
    missing = [NAMES[data] for data in known.worst.experiment.text["axes"]["data"] if data not in ran]
    return BREAK.join([*parts, *(f"{name}: not run" for name in missing)]) if parts else NOT_YET


def _share(part: list[float], whole: list[float]) -> float:
    return statistics.fmean(part) / statistics.fmean(whole)


def _enough(known: Known) -> str:
    """By how much of the worst case AutoAttack finds, each sample alone, at twice the ε of the training."""
    parts = []
    for contest in (c for training in TRAININGS for c in contests(known.worst, training)):
        auto, strong = contest.values(OURS, AUTO[2]), contest.values(OURS, AT[2])
        if auto and strong:
            share, eps = _share(auto, strong), max(radii(contest.records[OURS]))
            word = "**no**" if share < 0.9 else "nearly"
            where = f"{word} on {NAMES[contest.data]} after {TRAININGS[contest.training]} training"
            parts.append(f"{where}: it finds {share:.0%} of the errors at ε = {eps:g} px")
    return BREAK.join(parts) or NOT_YET


def _noticed(known: Known) -> str:
    """Of the runs that look twice as good by their own gradient as they are: how many fail a check that says so.

    *Batch dependence* does not count: it speaks of the graph, and not of a gradient.
    """
    every = [(record, failed_checks(_judged(record))) for record in known.every()]
    judged = [(record, set(failed) - {"batch dependence"}) for record, failed in every if failed is not None]
    blind = [record for record, _ in judged if _overrated(record)]
    named = [names for record, names in judged if _overrated(record)]
    caught = sum(1 for names in named if names)
    which = ", ".join(f"*{name}*" for name in sorted(set().union(*named)))
    if not blind:
        return "there is no such run yet"
    missed = "; ".join(f"{r['cell']}, *{r['scale']}*" for r, names in zip(blind, named, strict=True) if not names)
    fair = [(record, names) for record, names in judged if _overrated(record) is False]
    alarms = [(record, names) for record, names in fair if names]
    told = f"in {caught} of {len(blind)} such runs: {which}{f'; missed: {missed}' if missed else ''}"
    alone = [sum("zero gradients" in names for names in some) for some in (named, [names for _, names in fair])]
    told += f"; *zero gradients* in {alone[0]} of them, and in {alone[1]} of the {len(fair)} other runs"
    older = len(every) - len(judged)
    left_out = f". Left out: {counted(older, 'run')} with {OLDER}" if older else ""
    return (
        f"{told}. At least one check fails in {len(alarms)} of the {len(fair)} others, too{_alarms(alarms)}{left_out}"
    )


def _alarms(failed: list[tuple[Record, set[str]]]) -> str:
    """What they are of: graphs whose own gradient misses a part, and heads without a graph."""
    graphs = [record for record, _ in failed if record["place"]["head"] not in OTHERS]
    others = [names for record, names in failed if record["place"]["head"] in OTHERS]
    parts = []
    if graphs:
        shares = [own / strong for own, strong in map(_found, graphs) if own is not None and strong]
        part = f"{min(shares):.0%} to {max(shares):.0%}" if shares else "all"
        parts.append(f"{len(graphs)} of graph heads, whose own gradient finds {part} of the worst case")
    if others:
        names = sorted(set().union(*others))
        parts.append(f"{len(others)} of linear or MLP heads ({', '.join(f'*{name}*' for name in names)})")
    return f": {'; '.join(parts)}" if parts else ""


def _judged(record: Record) -> dict[str, Any]:
    """The summary with every sample alone, if there is one."""
    more: dict[str, dict[str, Any]] = record["more"]
    return more.get("alone", more.get("summary", {}))


def _overrated(record: Record) -> bool | None:
    """Whether its own gradient finds less than half; None where it was not followed."""
    own, strong = _found(record)
    return None if own is None or strong is None else own < HALF * strong


def _found(record: Record) -> tuple[float | None, float | None]:
    """By its own gradient and by all attacks, at the largest ε at which that gradient was followed."""
    summary = _judged(record)
    followed = [a["settings"]["eps"] for g in summary["groups"] for a in g["attacks"] if a["attack"] == "pgd"]
    if not followed:
        return None, None
    return strongest(summary, max(followed), lambda name: name == "pgd"), worst(summary, max(followed))
