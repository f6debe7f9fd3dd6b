"""Names become objects at the edge of the library; a name or an option that is unknown is refused in one way."""

from __future__ import annotations

from collections.abc import Iterable


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
