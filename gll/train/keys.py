"""All keys of a config, each with its type, its default and what it is, from the dataclasses of `config.py`.

`gll train --keys` prints them; the table of docs/training.md is made of them (benchmarks/tables.py).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from gll.train import toml
from gll.train.config import Config

TYPES = {bool: "true/false", int: "whole number", float: "number", str: "text"}


@final
@dataclass(frozen=True)
class Key:
    """One line.

    Args:
        name: as on the command line: `train.lr`.
        kind: what its value is, in words.
        default: as in TOML; empty if it must be given.
        about: what it is.
    """

    name: str
    kind: str
    default: str
    about: str


def all_keys(section: type = Config, prefix: str = "") -> list[Key]:
    """The keys of a section and of those inside it, in their order.

    >>> next(key for key in all_keys() if key.name == "train.lr")
    Key(name='train.lr', kind='number', default='0.001', about='learning rate, at its highest.')
    """
    about, found = _explained(section), list[Key]()
    kinds = typing.get_type_hints(section)
    for field in dataclasses.fields(section):
        name, kind = f"{prefix}{field.metadata.get('key', field.name)}", kinds[field.name]
        if dataclasses.is_dataclass(kind):
            found += all_keys(typing.cast(type, kind), f"{name}.")
        else:
            found.append(Key(name, _words(kind), _default(field), about[field.name]))
    return found


def listing() -> str:
    """For a terminal: a line each, to be searched, and to be copied into a config."""
    return "\n".join(f"{key.name} = {key.default or '...'}  # {key.kind}: {key.about}" for key in all_keys())


def markdown() -> str:
    """For a page."""
    lines = ["| key | type | default | what it is |", "|---|---|---|---|"]
    for key in all_keys():
        default = f"`{key.default}`" if key.default else "– (must be given)"
        lines.append(f"| `{key.name}` | {key.kind} | {default} | {key.about} |")
    return "\n".join(lines)


def _explained(section: type) -> dict[str, str]:
    """What `Args:` of a docstring says of every field; "a, b: ..." is said of both."""
    _, _, arguments = inspect.cleandoc(section.__doc__ or "").partition("Args:\n")
    found: dict[str, str] = {}
    for entry in re.split(r"\n {4}(?! )", "\n" + arguments.partition("\n\n")[0]):
        names, _, text = entry.partition(":")
        found |= {name.strip(): " ".join(text.split()) for name in names.split(",")}
    return found


def _words(kind: Any) -> str:
    origin = typing.get_origin(kind)
    if origin is tuple:
        return f"list of {TYPES[typing.get_args(kind)[0]]}s"
    if origin is typing.get_origin(Mapping[str, Any]):
        return "table"
    return " or ".join(TYPES[k] for k in typing.get_args(kind) or (kind,))


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return toml.written(field.default)
    return "" if field.default_factory is dataclasses.MISSING else toml.written(field.default_factory())
