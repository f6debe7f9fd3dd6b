"""Names become objects at the edge of the library; a name or an option that is unknown is refused in one way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def require_name(what: str, name: object, known: Iterable[str], hint: str = "") -> None:
    """Raise unless `name` is one of the known ones, which the message lists."""
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"unknown {what} {name!r}; choose one of {', '.join(known)}{hint}")


def require_options(what: str, name: str, given: Iterable[str], valid: Iterable[str]) -> None:
    """Raise if an option is given that this object does not have; the message lists those it has.

    >>> require_options("head", "knn", ["depth"], ["k"])
    Traceback (most recent call last):
    ValueError: head 'knn' has no option 'depth'; its options: k
    """
    valid = list(valid)
    unknown = [option for option in given if option not in valid]
    if unknown:
        listed = ", ".join(valid) if valid else "none"
        raise ValueError(f"{what} {name!r} has no option {', '.join(map(repr, unknown))}; its options: {listed}")


def from_name(what: str, table: Mapping[str, Callable[..., T]], name: str, options: Mapping[str, Any]) -> T:
    """The object of that name, made with these options; its options are the parameters of what makes it.

    >>> from_name("number", {"whole": int}, "half", {})
    Traceback (most recent call last):
    ValueError: unknown number 'half'; choose one of whole
    """
    require_name(what, name, table)
    require_options(what, name, options, inspect.signature(table[name]).parameters)
    return table[name](**options)
