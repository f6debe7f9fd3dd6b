"""Tables, figures and appendices of the paper, and the experiments that have them: "table 4" is a name, too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gll.names import require_name
from gll.reproduce.experiment import Experiment, ExperimentError
from gll.reproduce.words import near
from gll.words import did_you_mean

NUMBERED = re.compile(r"\b(table|figure)s? (\d+(?:(?:, | and | to )\d+)*)")
LETTERED = re.compile(r"\bappendix ([A-Z]\.\d+)")
TYPED = re.compile(r"(table|tab|figure|fig|appendix)s?[.\s_-]*(\d+|[a-z]\.?\d+)", re.IGNORECASE)
PLAIN = re.compile(r"[a-z]\.\d+", re.IGNORECASE)
PART = re.compile(r"(appendix|section|sec|chapter|table|figure)\b", re.IGNORECASE)
NONE = "none"
"""Of an experiment that has nothing to do with the paper."""
WHOLE = {"tab": "table", "fig": "figure"}
DRAWN = {"figure 1": "a graph learning layer beside an MLP head", "figure 2": "the two structures of a classifier"}
"""Figures of the paper that show no results."""


def read_places(text: str) -> set[str]:
    """What the entry `paper` of an experiment names, each by itself. Behind a colon it says what that is.

    >>> sorted(read_places("table 2 and figures 6 to 8: errors and curves"))
    ['figure 6', 'figure 7', 'figure 8', 'table 2']
    >>> sorted(read_places("figure 11 in appendix B.2"))
    ['appendix B.2', 'figure 11']
    """
    named = text.partition(":")[0]
    found = {f"appendix {place}" for place in LETTERED.findall(named)}
    for what, numbers in NUMBERED.findall(named):
        for span in re.split(", | and ", numbers):
            first, _, last = span.partition(" to ")
            found |= {f"{what} {number}" for number in range(int(first), int(last or first) + 1)}
    return found


def typed_place(words: str) -> str:
    """A place of the paper as `read_places` writes it; empty where the words name none.

    >>> typed_place("Table 4"), typed_place("fig.7"), typed_place("appendix-a1"), typed_place("cifar10")
    ('table 4', 'figure 7', 'appendix A.1', '')
    >>> typed_place("B.3"), typed_place("b3")
    ('appendix B.3', '')
    """
    if PLAIN.fullmatch(words.strip()):
        return f"appendix {words.strip().upper()}"
    found = TYPED.fullmatch(words.strip())
    if found is None:
        return ""
    what, number = found[1].lower(), found[2].upper()
    if number.isdigit():
        return f"{WHOLE.get(what, what)} {int(number)}"
    return f"{WHOLE.get(what, what)} {number[0]}.{number[1:].lstrip('.')}"


def having(place: str, experiments: Iterable[Experiment]) -> list[Experiment]:
    """The experiments that are this place of the paper; those that ask about one are not.

    Raises:
        ExperimentError: none is.
    """
    themselves = [one for one in experiments if one.is_in_paper]
    found = [one for one in themselves if place in read_places(one.in_paper)]
    if not found and place in DRAWN:
        raise ExperimentError(f"{place} of the paper is a drawing, {DRAWN[place]}: there is nothing to measure")
    if not found:
        raise ExperimentError(
            f"no experiment is {place} of the paper; gll reproduce --list says where the paper has each of them"
        )
    return found


def asking_about(experiment: Experiment, experiments: Iterable[Experiment]) -> list[Experiment]:
    """The ablations that ask why ours differ from what this one is in the paper."""
    places = read_places(experiment.in_paper) if experiment.is_in_paper else set()
    return [one for one in experiments if one.in_paper.startswith("on ") and places & read_places(one.in_paper)]


def said_where(in_paper: str) -> str:
    """Where the paper has it, for the title of a list; an ablation and what is beyond the paper have no place there.

    >>> said_where("table 4: CIFAR-10"), said_where("on table 4: why ours differ")
    ('in the paper: table 4: CIFAR-10', 'not in the paper; on table 4: why ours differ')
    >>> said_where("none: beyond the paper")
    'not in the paper'
    """
    if in_paper.partition(":")[0] == NONE:
        return "not in the paper"
    return f"{'not in the paper; ' if in_paper.startswith('on ') else 'in the paper: '}{in_paper}"


def _meant(name: str, experiments: Mapping[str, Experiment]) -> str:
    """The end of a message on a name that is none: what may be meant, or what can be asked for of the paper."""
    if PART.match(name.strip()):  # and nothing is near
        return "; or a table, a figure or an appendix of the paper by its number, such as 'table 4' or 'appendix A.1'"
    return did_you_mean(near(name, experiments))


def resolved(names: Sequence[str], experiments: Mapping[str, Experiment]) -> tuple[tuple[str, ...], list[str]]:
    """Names of experiments, also for what the paper calls them: "table 4", without quotes two words, or "B.3".

    Returns:
        The names, each once, and what to say of those that were found by the paper.

    Raises:
        ValueError: there is no such experiment, and which one may be meant.
    """
    found, said, left = list[str](), list[str](), list(names)
    while left:
        name = left.pop(0)
        place = "" if name in experiments else typed_place(name)
        if not place and name not in experiments and left and (place := typed_place(f"{name} {left[0]}")):
            left.pop(0)
        if place:
            those = having(place, experiments.values())
            called = [f"`{one.name}` ({one.text['title']})" for one in those]
            said.append(f"{place} of the paper is {' and '.join(called)}")
            found += [one.name for one in those]
        else:
            require_name("experiment", name, experiments, _meant(name, experiments))
            found.append(name)
    return tuple(dict.fromkeys(found)), said
