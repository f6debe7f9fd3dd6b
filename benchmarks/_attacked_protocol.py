"""Tables of docs/robustness.md in the paper's protocol: errors beside the paper's, and what strong attacks find."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import Any

import _attacked_units
from _attacked import ATTACKS, NOT_RUN, Known, Record, attack_table, graphs, provenance, units
from _paper_attacks import folded

from gll.attacks.signs import judged_again
from gll.reproduce import attack_sets
from gll.reproduce.protocol import NO_GRAPH, SINGLE, WORST, Group, graph_of, groups, strong
from gll.reproduce.robust import NAMES, NATURAL, OURS, ROBUST, shown_mean, strongest
from gll.reproduce.tables import attacked as samples_of
from gll.reproduce.tables import beside_paper, tolerance
from gll.reproduce.verdicts import LEVEL

COLUMNS = ("natural", "FGSM", "IFGSM", "CW")
OLDER = "older checks"
STANDARD, SIGHT = "AutoAttack, standard", "AutoAttack with every class in sight"
OURS_TOO = (STANDARD, SIGHT, SINGLE, WORST)
# An attack whose graph is that of a column.
OF_COLUMN = {"natural": "fgsm", "FGSM": "fgsm", "IFGSM": "ifgsm", "CW": "cw-paper"} | dict.fromkeys(OURS_TOO, "pgd")


def failed_checks(summary: dict[str, Any]) -> list[str] | None:
    """By the rule of today, whichever it was when they were made; None where the record does not tell."""
    checks = judged_again(summary)
    return None if checks is None else [check["name"] for check in checks if not check["passed"]]


def _groups(known: Known, data: str) -> list[Group]:
    return [group for training in (NATURAL, ROBUST) for group in groups(known.adversarial, data, training)]


def _figure(group: Group, head: str, figure: str) -> list[float]:
    """In percent, of every seed; of AutoAttack one of its two forms."""
    if figure not in (STANDARD, SIGHT):
        return group.values(head, figure)
    summaries = [record["more"]["summary"] for record in group.records[head]]
    found = [strongest(summary, summary["table_eps_pixels"], ATTACKS[figure]) for summary in summaries]
    return [100 * share for share in found if share is not None]


def paper_protocol(known: Known, data: str) -> str:
    """Errors in the paper's protocol, the paper's in brackets; what strong attacks find; checks that failed.

    The first row says which graph a column is of.
    """
    paper = known.experiment.expected["values"]
    head = ["training", "head", "seeds", *COLUMNS, *(f"**{name}**" for name in OURS_TOO), "checks that failed"]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (1 + len(COLUMNS) + len(OURS_TOO)) + "---|"]
    found = _groups(known, data)
    sizes = [graph_at(found, figure) for figure in (*COLUMNS, *OURS_TOO)]
    lines.append(f"| *attacked + base in one graph* | | | {' | '.join(f'*{size}*' for size in sizes)} | |")
    every: dict[str, list[Record]] = {}
    for group in found:
        for name, mine in group.records.items():
            every.setdefault(name, []).extend(mine)
            theirs = paper.get(f"{data}, {name}, {group.training}", {})
            cells = [", ".join(str(record["seed"]) for record in mine)]
            for figure in COLUMNS:
                brackets = f" ({theirs[figure]:g})" if figure in theirs else ""
                cells.append(shown_mean(group.values(name, figure), 2) + brackets)
            cells += [shown_mean(_figure(group, name, figure)) for figure in OURS_TOO]
            failed = [failed_checks(record["more"]["summary"]) for record in mine]
            told = ", ".join(dict.fromkeys(check for names in failed if names is not None for check in names))
            told = ", ".join(filter(None, (told, OLDER if None in failed else ""))) or "none"
            how = f"{group.training}, {group.epochs}"
            lines.append(f"| {how} | {name} | {' | '.join(cells)} | {told} |")
    sets = attack_sets.told(
        {f"{h}, {g.training}": [r["more"]["summary"] for r in own] for g in found for h, own in g.records.items()}
    )
    made = "; ".join(filter(None, (provenance(every), sets))) if every else ""
    about = f"{cross_entropy(found)}{times(found)}<small>{made}</small>" if every else ""
    return "\n".join([*lines, "", about]) if every else NOT_RUN


def graph_at(found: list[Group], figure: str) -> str:
    """Of a column, for the heads that have one."""
    summaries = [record["more"]["summary"] for group in found for own in group.records.values() for record in own]
    attacks = [a for summary in summaries for g in summary["groups"] for a in g["attacks"]]
    names = dict.fromkeys(graph_of(a) for a in attacks if a["attack"] == OF_COLUMN[figure])
    return " or ".join(name for name in names if name != NO_GRAPH) or "–"


def cross_entropy(found: list[Group]) -> str:
    """What PGD on cross-entropy, the nearest to FGSM there is, finds on the graph of the worst case."""
    parts = []
    for group in (group for group in found if group.training == NATURAL):
        for head, own in group.records.items():
            pgd = [a for r in own for a in strong(r["more"]["summary"])["attacks"] if a["attack"] == "pgd"]
            errors = [100 * a["error"] for a in pgd if a["settings"]["objective"] == "CrossEntropy"]
            parts += [f"{head} {shown_mean(errors)}"] if errors else []
    where = "after natural training, on the samples and the graph of the worst case"
    return f"PGD on cross-entropy {where}: {', '.join(parts)}. " if parts else ""


def times(found: list[Group]) -> str:
    """Seconds of the paper's attacks on a graph, at the ε and c of its table."""
    own = [record for group in found if group.training == NATURAL for record in group.records.get(OURS, ())]
    if not own:
        return ""
    summary = own[0]["more"]["summary"]
    attacks = [attack for group in summary["groups"] for attack in group["attacks"]]
    words = []
    for name in ("fgsm", "ifgsm", "cw-paper"):
        at = ("c", summary["table_c"]) if name == "cw-paper" else ("eps", summary["table_eps_pixels"])
        one = next(a for a in attacks if a["attack"] == name and abs(a["settings"][at[0]] - at[1]) < 1e-6)
        steps = one["settings"].get("steps", 1)
        words.append(
            f"{name} ({steps} step{'s' if steps > 1 else ''}, {one['chunk']:,} samples) {one['seconds']:.1f} s"
        )
    return f"Seconds on the graph, beside other runs on the same GPU: {', '.join(words)}. "


def beside(known: Known, group: Group, head: str, figure: str) -> str | None:
    """Whether a mean agrees with the paper's, or is lower or higher; None where there is nothing to compare.

    CW by the larger sample where there is one (`_attacked_units.py`).
    """
    if figure == "CW" and (larger := _attacked_units.of_more_samples(group, head)):
        return _attacked_units.word(known, group, head, larger)
    found = [samples_of(record["more"]["summary"], figure) for record in group.records[head]]
    samples = min((number for number in found if number is not None), default=None)
    place = f"{group.data}, {head}, {group.training}"
    return beside_paper(known.experiment, place, figure, group.values(head, figure), samples)


def beside_the_paper(known: Known, data: str) -> str:
    """A line for each head and training: which of its figures agree with the paper's."""
    lines = []
    for group in _groups(known, data):
        for head in group.records:
            words: dict[str, list[str]] = {}
            for figure in COLUMNS:
                if word := beside(known, group, head, figure):
                    words.setdefault(word, []).append(figure)
            if words:
                told = "; ".join(f"{word}: {', '.join(names)}" for word, names in sorted(words.items()))
                seeds = ", ".join(str(record["seed"]) for record in group.records[head])
                lines.append(f"| {head} | {group.training}, {group.epochs} | {seeds} | {told} |")
    room = f"{tolerance(known.experiment):g} points of the paper's or two standard errors of the difference"
    about = f"| head | training | seeds | agree: within {room}; or lower, or higher |"
    larger = _attacked_units.told_larger(known, _groups(known, data))
    below = ["", f"<small>{larger}</small>"] if larger else []
    return "\n".join([about, "|---|---|---:|---|", *lines, *below]) if lines else NOT_RUN


def order(known: Known, data: str) -> str:
    """Heads by their worst case in the paper's protocol, of one training each: which neighbours differ, by the rule."""
    lines = []
    for group in _groups(known, data):
        means = {head: statistics.fmean(own) for head in group.records if (own := group.values(head, WORST))}
        ranked = sorted(means, key=lambda head: means[head])
        if len(ranked) > 1:
            found = [(one, two, group.judged(one, two)) for one, two in pairwise(ranked)]
            told = [
                f"{answer} between {one} and {two}" if answer.startswith(LEVEL) else f"{one} below {two}: {answer}"
                for one, two, answer in found
            ]
            single = ", ".join(f"{head} {shown_mean(group.values(head, SINGLE))}" for head in ranked)
            lines.append(
                f"- *{group.training}*, {group.epochs}, {group.seeds}: {group.numbers()} ({'; '.join(told)}); "
                f"by the best single attack {single}"
            )
    return "\n".join(["Worst case at that ε, of heads that were trained alike:", "", *lines]) if lines else NOT_RUN


def square(known: Known) -> str:
    """How Square was made where samples share a graph: on each query apart, or in the graph of all of them as well."""
    made: dict[bool, list[str]] = {True: [], False: []}
    for data in NAMES:
        for group in _groups(known, data):
            for head, own in group.records.items():
                for record in own:
                    names = {a["attack"] for a in strong(record["more"]["summary"])["attacks"]}
                    if "square apart" in names:
                        title = f"{NAMES[data]}, {head}, {group.training}, seed {record['seed']}"
                        made["square" in names].append(title)
    if not made[True]:
        return "Where samples share a graph, *Square* was made on each query apart."
    which = "; ".join(made[True]) if made[False] else "every head"
    return (
        "Where samples share a graph, *Square* was made on each query apart; in the graph of all queries as well, with "
        f"the larger error in the tables, for {which}."
    )


def jointly(known: Known) -> str:
    """Where samples share a graph: in which records every class was in sight in that graph as well."""
    made: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for record in known.every():
        names = {a["attack"] for a in strong(record["more"]["summary"])["attacks"]}
        if any(name.startswith("pgd with every class") for name in names):
            place = record["place"]
            title = f"{NAMES[place['data']]}, {place['head']}, {place['training']} ({record['experiment']})"
            made["pgd with every class jointly" in names][title] = None
    if not made[True] and not made[False]:
        return NOT_RUN
    if not made[True]:
        return "In all records the view is that of each sample alone."
    which = "; ".join(made[True]) if made[False] else "every head"
    return f"The joint view is in the records of {which}; in the others PGD sees every class with each sample alone."


def protocol_by_attack(known: Known, data: str) -> str:
    """What each kind of attack finds at the ε of the paper's table."""
    found = {
        f"{name}, {group.training}, {group.epochs}": [record["more"]["summary"] for record in own]
        for group in _groups(known, data)
        for name, own in group.records.items()
    }
    if not found:
        return NOT_RUN
    eps = next(iter(found.values()))[0]["table_eps_pixels"]
    about = f"<small>{units(found, [])}; {graphs(found)}</small>"
    return folded("Errors by what the attacker sees", f"{attack_table(found, [(eps, '')])}\n\n{about}")
