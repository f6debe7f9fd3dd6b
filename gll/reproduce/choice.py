"""Which cells: the words of --only, and what to say where no cell has them.

"resnet18, 2%" are cells with both; "resnet18 | vgg11, seed 0" are those of either network with that seed. A whole
title of a cell, as of a list or a log, is that one alone, though others may have all of its words, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gll.reproduce.experiment import SCALES, Cell, Experiment
from gll.reproduce.in_paper import elsewhere
from gll.reproduce.kinds import kind_of
from gll.reproduce.parts import ALL, Part
from gll.reproduce.tables import LINEAR_NAME
from gll.reproduce.words import has, near, plain, same
from gll.words import did_you_mean

SEED = re.compile(r"seed\d+")


def chosen(cells: Iterable[Cell], words: Sequence[str]) -> list[Cell]:
    """What the table shows of these words: the cell of that title, or all cells that have them."""
    asked = [cell for cell in cells if not cell.role and cell.matches(words)]
    titled = [cell for cell in asked if same(", ".join(words), cell.title)]
    return titled or asked


def within(words: Sequence[str], part: str) -> tuple[str, ...]:
    """Words of --only, in a part of an experiment: its word stands behind, unless one of them is of the same names.

    (A whole title has one of the names; with a word behind it would be none, and be other cells, too.)

    >>> within(["GLL"], "mnist | cifar10"), within(["mnist", "GLL", "seed 0"], "mnist"), within(["GLL"], "")
    (('GLL', 'mnist | cifar10'), ('mnist', 'GLL', 'seed 0'), ('GLL',))
    """
    inside = not part or any(has(part.split("|"), word) for word in words if "|" not in word)
    return (*words,) if inside else (*words, part)


def why_none(
    experiment: Experiment,
    scale: str,
    words: Sequence[str],
    part: Part = ALL,
    *,
    given: bool = False,
    shows: bool = False,
) -> str:
    """A message for words that no cell of a scale has: where there are such cells, and what can be asked for.

    Args:
        experiment, scale, words: no cell has these there.
        part: that was asked for of the experiment, by a figure of the paper; a word may belong to another figure.
        given: the scale was typed.
        shows: --show was, which has every scale but smoke where none is typed.
    """
    if said := elsewhere(experiment, part, words):
        return said
    kind = kind_of(experiment)
    at = {one: kind.cells(experiment, one) for one in experiment.scales}
    asked = [either.strip() for word in words for either in word.split("|") if either.strip()]
    said = f"no cell of {experiment.name} at {scale} is {', '.join(word.strip() for word in words)}"
    others = [one for one in experiment.scales if chosen(at[one], words) and not (shows and one == SCALES[0])]
    both = _of_one_axis(at[scale], words)
    unknown = [word for word in asked if not any(has(cell.parts, word) for cell in at[scale])]
    without = "" if unknown else _left_out(experiment, scale, words)
    if others:
        return said + _at_others(others, given=given, shows=shows)
    if both:
        return f"{said}: {' and '.join(both)} are on one axis; write --only {' | '.join(both)!r} for either"
    if without:
        return f"{said}: this scale leaves {without!r} out; there are {values(at[scale])}"
    named = f" ({', '.join(map(repr, unknown))} is on no axis)" if unknown else ""
    known = [one for word in unknown for one in word.split() if any(has(cell.parts, one) for cell in at[scale])]
    apart = "; separate parts by commas" if known else ""
    meant = "" if apart else next(filter(None, (_meant(word, scale, at) for word in unknown)), "")
    there = f"{meant} There are" if meant else f"{_as_the_paper_calls_it(unknown, at[scale])}; there are"
    return f"{said}{named}{apart}{there} {values(at[scale])}"


def _at_others(others: Sequence[str], *, given: bool, shows: bool) -> str:
    """At which scales there are such cells, and what to type for them.

    >>> _at_others(["small", "full"], given=False, shows=False), _at_others(["full"], given=True, shows=False)
    (', but there are at small and full: add --scale small', '; --scale full has them')
    >>> _at_others(["full"], given=True, shows=True)
    ', but there are at full: leave --scale out'
    """
    if given and not shows:
        return f"; --scale {' and --scale '.join(others)} {'have' if len(others) > 1 else 'has'} them"
    return f", but there are at {' and '.join(others)}: {'leave --scale out' if shows else f'add --scale {others[0]}'}"


def _as_the_paper_calls_it(unknown: Iterable[str], cells: Iterable[Cell]) -> str:
    """Where it attacks and takes times, the paper calls a linear layer an MLP."""
    asked = any(same(word, "MLP") for word in unknown)
    there = asked and any(has(cell.parts, LINEAR_NAME) for cell in cells)
    return f"; what the paper calls MLP is {LINEAR_NAME!r} here" if there else ""


def _left_out(experiment: Experiment, scale: str, words: Sequence[str]) -> str:
    """The first place that a scale is without and that has these words, whatever seed they ask for; empty if none."""
    asked = [word for word in words if not is_seed(word)]
    at = experiment.left_out(scale)
    return next((name for name, parts in at.items() if asked and all(has(parts, word) for word in asked)), "")


def is_seed(word: str) -> bool:
    """Whether a word of --only asks for a seed, or for one of several, and not for a place of the grid.

    >>> is_seed("Seed 0"), is_seed("seed0 | seed 1"), is_seed("seedling"), is_seed("seed 0 | MLP")
    (True, True, False, False)
    """
    return all(SEED.fullmatch(plain(part)) for part in word.split("|"))


def values(cells: Iterable[Cell]) -> str:
    """The names on each axis, and the seeds."""
    found: dict[str, dict[str, None]] = {}
    seeds: dict[str, None] = {}
    for cell in cells:
        for axis, name in cell.point.place if not cell.role else ():
            found.setdefault(axis, {})[name] = None
        for part in cell.part.split(", ") if cell.part else ():
            found.setdefault("part", {})[part] = None
        seeds[f"seed {cell.point.seed}"] = None
    return "; ".join([*(f"{axis}: {', '.join(_told(names))}" for axis, names in found.items()), ", ".join(seeds)])


def _told(names: Iterable[str]) -> list[str]:
    """Names as a list has them: in quotes, if the comma in one of them could be taken for the end of a name.

    >>> _told(["a", "b"]), _told(["a", "b, again"])
    (['a', 'b'], ["'a'", "'b, again'"])
    """
    known = list(names)
    return [repr(name) for name in known] if any("," in name for name in known) else known


def _meant(word: str, scale: str, at: Mapping[str, Sequence[Cell]]) -> str:
    """A question in the message of a word on no axis: what is near it, here or at another scale.

    Args:
        word: as it was typed.
        scale: that was asked for.
        at: cells by scale.
    """
    parts = {one: dict.fromkeys(p for cell in cells for p in _own_parts(cell)) for one, cells in at.items()}
    found = near(word, dict.fromkeys(part for known in parts.values() for part in known))
    here = [part for part in found if part in parts[scale]]
    if here or not found:
        return did_you_mean(here)
    other = next(one for one, known in parts.items() if found[0] in known)
    return f"{did_you_mean(found).removesuffix('?')}, with --scale {other}?"


def _own_parts(cell: Cell) -> list[str]:
    """Without the seed, which is near every other; and none of a warm-up, which cannot be asked for."""
    return [] if cell.role else cell.parts[:-1]


def _of_one_axis(cells: Iterable[Cell], words: Sequence[str]) -> list[str]:
    """Two or more of the words that are names on the same axis, as no cell has both."""
    found: dict[str, dict[str, None]] = {}
    for cell in cells:
        for axis, name in (*cell.point.place, ("seed", f"seed {cell.point.seed}")):
            if any(same(word, name) for word in words):
                found.setdefault(axis, {})[name] = None
    return next((list(names) for names in found.values() if len(names) > 1), [])
