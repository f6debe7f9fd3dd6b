"""What a table does not show, in words: places not run yet, and those of the paper that a scale leaves out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gll.reproduce.experiment import Experiment, name_of

Place = Mapping[str, str]
FEW = 8  # places: more than that are not named one by one


def not_run(asked: Sequence[Place], ran: Collection[Place]) -> str:
    """Places that were asked for and have no number: by name where they are few, else the names that lack altogether.

    >>> heads = [{"data": data, "head": head} for data in ("a", "b") for head in "1234567890"]
    >>> not_run(heads, heads[1:10])
    'Not run yet, and not shown: 11 of 20 places, among them all of data *b*; head *1*.'
    >>> not_run(heads, heads[1:])
    'Not run yet, and not shown: 1 of 20 places (a, 1).'
    """
    left = [place for place in asked if place not in ran]
    if not left:
        return ""
    said = f"Not run yet, and not shown: {len(left)} of {len(asked)} places"
    if len(left) <= FEW:
        return f"{said} ({'; '.join(name_of(place) for place in left)})."
    whole = lacking(left, ran)
    return f"{said}, among them all of {told(whole)}." if whole else f"{said}."


def not_asked(experiment: Experiment, asked: Sequence[Place]) -> str:
    """Places for which the paper has a value, and a scale does not ask; empty where it asks for all."""
    axes = experiment.text["axes"]
    every = {name_of(place): place for place in experiment.places()}
    paper = [every[name] for name in experiment.expected["values"]]
    left = [place for place in paper if place not in asked]
    if not left:
        return ""
    ours = [place for place in paper if place in asked]
    whole = lacking(left, asked)
    without = {axis: [name for name in axes[axis] if name in names] for axis, names in whole.items()}
    more = [place for place in left if not any(place[axis] in names for axis, names in without.items())]
    parts = [told(without), *(name_of(place) for place in more)]
    said = "; ".join(part for part in parts if part)
    those = f"the paper's {len(paper)} places" if experiment.of_paper else f"{len(paper)} places with expected values"
    return f"Of {those} this scale asks for {len(ours)}, and leaves out {said}."


def lacking(left: Sequence[Place], others: Collection[Place]) -> dict[str, list[str]]:
    """Names on each axis that none of the others has; an axis without such names is left out.

    >>> lacking([{"data": "a", "head": "x"}, {"data": "b", "head": "x"}], [{"data": "a", "head": "x"}])
    {'data': ['b']}
    """
    found = {
        axis: list(dict.fromkeys(p[axis] for p in left if all(p[axis] != other[axis] for other in others)))
        for axis in (left[0] if left else ())
    }
    return {axis: names for axis, names in found.items() if names}


def told(names: Mapping[str, Sequence[str]]) -> str:
    """By axis.

    >>> told({"network": ["vgg11", "vgg13"], "labels": ["whole"]})
    'network *vgg11*, *vgg13*; labels *whole*'
    """
    return "; ".join(f"{axis} {', '.join(f'*{name}*' for name in some)}" for axis, some in names.items())
