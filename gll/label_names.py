"""Labels as people give them: strings or whole numbers, of one kind in one session; and shares that go by them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

Label = str | int


def as_label(value: Any) -> Label:
    """A label as JSON knows it."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        hint = "; use skip() where nobody can tell, forget() to take a label back" if value is None else ""
        raise TypeError(f"a label is a string or a whole number, got {value!r}{hint}") from None


def as_labels(given: Any) -> list[Label]:
    """One label, or as many as are given."""
    if isinstance(given, Tensor | np.ndarray):
        given = given.tolist()
    return (
        [as_label(c) for c in given]
        if isinstance(given, Sequence) and not isinstance(given, str)
        else [as_label(given)]
    )


def of_one_kind(classes: list[Label]) -> list[Label]:
    """The classes, all strings or all whole numbers, each once."""
    if len(set(classes)) != len(classes):
        raise ValueError(f"a class appears twice in {classes}")
    if len({type(c) for c in classes}) > 1:
        raise TypeError(f"labels must be all strings or all integers, got {classes}")
    return classes


def shares_of(prior: Any, classes: list[Label] | None) -> list[float]:
    """The shares in the order of the classes."""
    if classes is None:
        raise ValueError("class_prior needs classes=, or to be a dictionary that names them")
    if isinstance(prior, Mapping):
        by_label = {as_label(c): share for c, share in prior.items()}
        if set(by_label) != set(classes):
            raise ValueError(f"class_prior must name every class once: the classes are {classes}, got {list(by_label)}")
        prior = [by_label[c] for c in classes]
    found = [float(share) for share in prior]
    if len(found) != len(classes):
        raise ValueError(f"class_prior needs one number for each of {len(classes)} classes, got {len(found)}")
    if not (all(share >= 0 for share in found) and abs(sum(found) - 1) <= 1e-3):  # written so that a NaN fails
        raise ValueError(f"class_prior must be ≥ 0 and sum to one, got {found}")
    return found
