"""Tables, figures and appendices of the paper, and the experiments that have them: "table 4" is no name to type."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gll.reproduce.experiment import Experiment

NUMBERED = re.compile(r"\b(table|figure)s? (\d+(?:(?:, | and | to )\d+)*)")
LETTERED = re.compile(r"\bappendix ([A-Z]\.\d+)")
TYPED = re.compile(r"(table|tab|figure|fig|appendix)s?[.\s_-]*(\d+|[a-z]\.?\d+)", re.IGNORECASE)
WHOLE = {"tab": "table", "fig": "figure"}


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
    """
    found = TYPED.fullmatch(words.strip())
    if found is None:
        return ""
    what, number = found[1].lower(), found[2].upper()
    if number.isdigit():
        return f"{WHOLE.get(what, what)} {int(number)}"
    return f"{WHOLE.get(what, what)} {number[0]}.{number[1:].lstrip('.')}"


def who_has(place: str, experiments: Iterable[Experiment]) -> str:
    """Which experiments are this place of the paper, in words, and what to type."""
    themselves = [one for one in experiments if one.of_paper and not one.in_paper.startswith("on ")]
    found = [one for one in themselves if place in read_places(one.in_paper)]
    if not found:
        return f"no experiment is {place} of the paper; gll reproduce --list says where the paper has each of them"
    about = [f"`{one.name}`" if len(found) == 1 else f"`{one.name}` ({one.text['title']})" for one in found]
    return f"{place} of the paper is {' and '.join(about)}: {', or '.join(f'gll reproduce {o.name}' for o in found)}"
