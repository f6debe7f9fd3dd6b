"""Tables, figures and appendices of the paper, and the experiments that have them: "table 4" is a name, too.

One that shows a part of an experiment stands for that part alone (`parts.py`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import final

from gll.reproduce.experiment import Experiment, ExperimentError
from gll.reproduce.parts import ALL, PARTS, Part, part_of
from gll.reproduce.words import has, near
from gll.words import did_you_mean

NUMBERED = re.compile(r"\b(table|figure)s? (\d+(?:(?:, | and | to )\d+)*)")
LETTERED = re.compile(r"\bappendix ([A-Z]\.\d+)")
NUMBERS = r"\d{1,3}(?:\s*(?:,\s*and|,|and|&|to|-|–)\s*\d{1,3})*"
TYPED = re.compile(rf"(table|tab|figure|fig|appendix)s?[.\s_-]*({NUMBERS}|[a-z]\.?\d+)", re.IGNORECASE)
PLAIN = re.compile(r"[a-z]\.\d+", re.IGNORECASE)
LETTER = re.compile(r"appendix(?:[.\s_-]+|(?!s))([a-z])", re.IGNORECASE)
"""A letter with nothing before it may be the s of several."""
UNMEASURED = re.compile(r"abstract|introduction|related work|conclusions?|references|acknowledge?ments", re.IGNORECASE)
"""Parts of the paper that have neither a table nor a figure."""
FUTURE = "future work"
"""Where the paper has an experiment that its conclusion speaks of."""
TYPED_FUTURE = re.compile(r"future[\s_-]*work", re.IGNORECASE)
PART = re.compile(r"(appendix|appendixs|appendices|section|sec|chapter|table|figure)\b", re.IGNORECASE)
NONE = "none"
"""Of an experiment that has nothing to do with the paper."""
WHOLE = {"tab": "table", "fig": "figure"}
SPELLED = ("table", "tables", "figure", "figures", "appendix")
SLIP = 0.7
"""How like one of these a word must be to be a slip of the finger; "cifar" and "figure" are not so alike."""
DRAWN = {"figure 1": "a graph learning layer beside an MLP head", "figure 2": "the two structures of a classifier"}
"""Figures of the paper that show no results."""


@final
@dataclass(frozen=True)
class Named:
    """What names have come to.

    Args:
        names: of experiments, each once.
        said: what to say of those that were found by the paper.
        parts: by experiment, of those that were asked for by what the paper calls them.
    """

    names: tuple[str, ...]
    said: tuple[str, ...] = ()
    parts: Mapping[str, Part] = field(default_factory=dict, hash=False)


def read_places(text: str) -> set[str]:
    """What the entry `paper` of an experiment names, each by itself. Behind a colon it says what that is.

    >>> read_places("future work")
    {'future work'}

    >>> sorted(read_places("table 2 and figures 6 to 8: errors and curves"))
    ['figure 6', 'figure 7', 'figure 8', 'table 2']
    >>> sorted(read_places("figure 11 in appendix B.2"))
    ['appendix B.2', 'figure 11']
    """
    named = text.partition(":")[0]
    found = {f"appendix {place}" for place in LETTERED.findall(named)} | ({FUTURE} & {named.strip()})
    return found | {f"{what} {number}" for what, text in NUMBERED.findall(named) for number in _numbers(text)}


def _numbers(text: str) -> list[int]:
    """Each of several, in the order named.

    >>> _numbers("5 and 6"), _numbers("6 to 8, and 10"), _numbers("7-9")
    ([5, 6], [6, 7, 8, 10], [7, 8, 9])
    """
    found = dict[int, None]()
    for span in re.split(",|and|&", text):
        ends = [int(number) for number in re.findall(r"\d+", span)]
        found |= dict.fromkeys(range(min(ends), max(ends) + 1) if ends else ())
    return list(found)


def typed_places(words: str) -> list[str]:
    """Places of the paper as `read_places` writes them; none where the words name none.

    >>> typed_places("Table 4"), typed_places("fig.7"), typed_places("appendix-a1"), typed_places("cifar10")
    (['table 4'], ['figure 7'], ['appendix A.1'], [])
    >>> typed_places("B.3"), typed_places("b3"), typed_places("Future work")
    (['appendix B.3'], [], ['future work'])
    >>> typed_places("tables 5 and 6"), typed_places("figs. 6-8")
    (['table 5', 'table 6'], ['figure 6', 'figure 7', 'figure 8'])
    """
    if PLAIN.fullmatch(words.strip()):
        return [f"appendix {words.strip().upper()}"]
    if TYPED_FUTURE.fullmatch(words.strip()):
        return [FUTURE]
    found = TYPED.fullmatch(words.strip())
    if found is None:
        return []
    what, text = WHOLE.get(found[1].lower(), found[1].lower()), found[2].upper()
    if text[0].isdigit():
        return [f"{what} {number}" for number in _numbers(found[2].lower())]
    return [f"{what} {text[0]}.{text[1:].lstrip('.')}"]


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


def require_no_appendix(words: Sequence[str], experiments: Iterable[Experiment]) -> None:
    """Refuse a whole appendix, which is several experiments, and say which.

    Raises:
        ExperimentError: the first words are "appendix A", in one word or two.
    """
    _, letters = _first(words, lambda text: [found[1].upper()] if (found := LETTER.fullmatch(text.strip())) else [])
    if not letters:
        return
    start = f"appendix {letters[0]}."
    owners = {
        place.removeprefix("appendix "): one.name
        for one in experiments
        if one.is_in_paper
        for place in read_places(one.in_paper)
        if place.startswith(start)
    }
    if not owners:
        having(start.removesuffix("."), experiments)
    told = [f"{place} (`{owners[place]}`)" for place in sorted(owners)]
    names = " or ".join(repr(place) for place in sorted(owners))
    raise ExperimentError(f"{start.removesuffix('.')} of the paper has {_and(told)}; name one: {names}")


def require_measured(words: Sequence[str], experiments: Iterable[Experiment]) -> None:
    """Refuse parts of the paper that have no numbers.

    Raises:
        ExperimentError: the first words are "conclusion" or the like.
    """
    _, found = _first(words, lambda text: [text.strip().lower()] if UNMEASURED.fullmatch(text.strip()) else [])
    if found:
        future = [f"`{one.name}`" for one in experiments if FUTURE in read_places(one.in_paper)]
        more = f"; its {FUTURE} is {_and(future)}" if future and found[0].startswith("conclusion") else ""
        what = f"{found[0]!r} is a part of the paper without a table or figure"
        raise ExperimentError(f"{what}: there is nothing to measure{more}")


def elsewhere(experiment: Experiment, part: Part, words: Sequence[str]) -> str:
    """Which tables or figures of the paper have the names that were asked for beside some that have others; empty
    where they have no others, or no other has these."""
    names = next((axis for axis in experiment.text["axes"].values() if set(part.names) <= set(axis)), ())
    others = [name for name in names if part.names and name not in part.names]
    asked = [name for name in others if any(has([name], word) for word in words)]
    told = [f"{name} is {place}" for name in asked if (place := _place_of(experiment, name, part.places))]
    return f"{_is(part.places)} {_and(part.names)}; {', '.join(told)}" if told else ""


def _place_of(experiment: Experiment, name: str, beside: Sequence[str]) -> str:
    """The place of the paper that has this name: one of its own, or else one of the same sort that has all names."""
    parts = PARTS.get(experiment.name, {})
    sort = beside[0].split()[0]
    whole = sorted(p for p in read_places(experiment.in_paper) - parts.keys() if p.split()[0] == sort)
    return next((place for place, other in parts.items() if name in other.names), "") or "".join(whole[:1])


def having_all(places: Sequence[str], experiments: Iterable[Experiment]) -> list[Experiment]:
    """The experiments that are all of these.

    Raises:
        ExperimentError: they are not of the same ones: what would be shown is not one thing.
    """
    known = list(experiments)
    owners: dict[tuple[str, ...], list[str]] = {}
    for place in places:
        owners.setdefault(tuple(one.name for one in having(place, known)), []).append(place)
    if len(owners) > 1:
        told = [f"{_is(some)} {_and([f'`{name}`' for name in names])}" for names, some in owners.items()]
        apart = " ".join(repr(_together(some)) for some in owners.values())
        raise ExperimentError(
            f"{_together(places)} are not of one experiment: {', '.join(told)}; name them apart: {apart}"
        )
    return having(places[0], known)


def _together(places: Sequence[str]) -> str:
    """Several places in a few words.

    >>> _together(["table 4"]), _together(["figure 6", "figure 7", "figure 8"])
    ('table 4', 'figures 6, 7 and 8')
    """
    what, _, first = places[0].partition(" ")
    return f"{what}s {_and([first, *(one.split()[1] for one in places[1:])])}" if len(places) > 1 else places[0]


def _is(places: Sequence[str], of: str = "") -> str:
    return f"{_together(places)}{of} {'are' if len(places) > 1 else 'is'}"


def _and(words: Sequence[str]) -> str:
    """A list in words.

    >>> _and(["a"]), _and(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([*([", ".join(words[:-1])] if words[:-1] else []), words[-1]])


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


def _meant(words: Sequence[str], experiments: Mapping[str, Experiment]) -> str:
    """What stands between a name that is none and the names there are: what may be meant comes first, to be seen.

    Args:
        words: the name, and those behind it: without quotes "tabel 4" is two.
        experiments: that there are.
    """
    if PART.match(words[0].strip()):  # and nothing is near
        what = "a table, a figure or an appendix of the paper by its number, such as 'table 4' or 'appendix A.1'"
        return f"; name {what}, or choose one of"
    _, places = _first(words, lambda text: typed_places(_respelled(text)))
    there = {place for one in experiments.values() if one.is_in_paper for place in read_places(one.in_paper)}
    names = [_together(places)] if places and there.issuperset(places) else near(words[0], experiments)
    return f"{did_you_mean(names)} There are" if names else "; choose one of"


def _respelled(text: str) -> str:
    """With its first word as it is spelled, if that was a slip.

    >>> _respelled("tabel4"), _respelled("Figrues 6 to 8"), _respelled("cifar11")
    ('table4', 'figures 6 to 8', 'cifar11')
    """
    text = text.strip().lower()
    rest = text.lstrip(ascii_lowercase)
    word = text.removesuffix(rest)
    return next(iter(difflib.get_close_matches(word, SPELLED, n=1, cutoff=SLIP)), word) + rest


def _first(words: Sequence[str], read: Callable[[str], list[str]]) -> tuple[int, list[str]]:
    """As many of the first words as name places of the paper together, and these; none of them where none do."""
    for number in range(len(words), 0, -1):
        if places := read(" ".join(words[:number])):
            return number, places
    return 0, []


def resolved(names: Sequence[str], experiments: Mapping[str, Experiment]) -> Named:
    """Names of experiments, also for what the paper calls them: "table 4", without quotes two words, or "B.3".

    An experiment that is asked for in several ways is asked for in all of them: all of it, if by its own name.

    Raises:
        ValueError: there is no such experiment, and which one may be meant.
    """
    asked = list(_asked(names, experiments))
    parts: dict[str, Part] = {}
    for places, those in asked:
        for one in those:
            part = part_of(one, places)
            parts[one.name] = (parts.get(one.name, part) | part).within(one)
    said = [_said(places, those, parts) for places, those in asked if places]
    chosen = {name: part for name, part in parts.items() if part != ALL}
    return Named(tuple(parts), tuple(dict.fromkeys(said)), chosen)


def _asked(names: Sequence[str], experiments: Mapping[str, Experiment]) -> Iterator[tuple[list[str], list[Experiment]]]:
    """What was typed, one after the other: places of the paper, none for the name of an experiment, and whose."""
    left = list(names)
    while left:
        number, places = (1, []) if left[0] in experiments else _first(left, typed_places)
        if places:
            yield places, having_all(places, experiments.values())
        else:
            _require_known(left, experiments)
            yield [], [experiments[left[0]]]
        left = left[number:]


def _require_known(left: Sequence[str], experiments: Mapping[str, Experiment]) -> None:
    """Refuse a name that is none, by what it may be.

    Raises:
        ValueError: it says what was meant.
    """
    if left[0] not in experiments:
        require_no_appendix(left, experiments.values())
        require_measured(left, experiments.values())
        raise ValueError(f"unknown experiment {left[0]!r}{_meant(left, experiments)} {', '.join(experiments)}")


def _said(places: Sequence[str], those: Iterable[Experiment], parts: Mapping[str, Part]) -> str:
    """In a line, what was found by the paper, and what is taken of it."""
    called = [f"`{one.name}` ({one.text['title']}){parts[one.name].said}" for one in those]
    return f"{_is(places, ' of the paper')} {' and '.join(called)}"
