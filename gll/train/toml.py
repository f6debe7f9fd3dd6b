"""Frozen dataclasses from TOML and back, and `section.key=value` from a command line.

The fields and their types are the schema: an unknown key is an error that names the nearest one, a value of another
type an error that says what was wanted. A field whose key is no Python name carries it in `metadata={"key": ...}`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from gll.words import did_you_mean

Scalar = bool | int | float | str
FRACTION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(0*[1-9]\d*)\s*")  # such as 8/255
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class ConfigError(ValueError):
    """A config that cannot be used; the message names the key."""


def check(good: bool, key: str, value: object, must: str) -> None:
    """An error that says what the value of a key must be, unless it is good."""
    if not good:
        raise ConfigError(f"{key} must be {must}, got {value!r}")


def one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    """An error unless the value of a key is one of the choices."""
    if value not in choices:
        raise ConfigError(f"{key} must be one of {', '.join(choices)}, got {value!r}{nearest(value, choices)}")


def read(cls: type, text: str, overrides: Iterable[str] = ()) -> Any:
    """An object of `cls` from the text of a TOML file, with `key=value` in place of what it says."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from None
    for override in overrides:
        _override(cls, table, override)
    return _build(cls, cls, table, "")


def write(config: Any) -> str:
    """All fields as TOML; `read` gives an equal object back."""
    table = _table(config)
    lines = [f"{key} = {written(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for section, values in table.items():
        if isinstance(values, dict):
            lines += ["", f"[{section}]", *(f"{key} = {written(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


ALIASES = {
    "learning_rate": "lr",
    "batch_size": "batch",
    "num_epochs": "epochs",
    "dataset": "name",
    "backbone": "encoder",
    "network": "encoder",
    "augmentation": "augment",
    "scheduler": "schedule",
    "amp": "autocast",
    "unlabelled": "labelled",  # the rest of a batch is unlabelled
}
"""What other programs call some keys."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A question that ends an error message, or nothing."""
    return did_you_mean(difflib.get_close_matches(word, list(known), n=1, cutoff=0.5))


def _key(f: dataclasses.Field[Any]) -> str:
    return str(f.metadata.get("key", f.name))


@functools.cache  # hints take a while to resolve
def _fields(cls: type) -> Mapping[str, tuple[str, Any]]:
    """The keys of a section in TOML: (attribute, type)."""
    hints = typing.get_type_hints(cls)
    return {_key(f): (f.name, hints[f.name]) for f in dataclasses.fields(cls)}


def _build(root: type, cls: type, table: Mapping[str, Any], prefix: str) -> object:
    known = _fields(cls)
    values = {}
    for key, value in table.items():
        if key not in known:
            raise ConfigError(_unknown(root, prefix + key, key, known))
        name, kind = known[key]
        if dataclasses.is_dataclass(kind):
            if not isinstance(value, dict):
                raise ConfigError(f"{prefix}{key} must be a section [{key}], got {value!r}")
            values[name] = _build(root, typing.cast(type, kind), value, f"{prefix}{key}.")
        else:
            values[name] = _convert(prefix + key, value, kind)
    missing = [
        _key(f)
        for f in dataclasses.fields(cls)
        if f.name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{prefix}{missing[0]} is missing")
    return cls(**values)


def _unknown(root: type, full: str, key: str, known: Iterable[str]) -> str:
    """What to say of a key that does not exist: what it is called here, the nearest of its section, or of any other."""
    alias = ALIASES.get(key, "")
    if alias in known:
        return f"unknown key {full!r}; did you mean {alias!r}?"
    everywhere = {}
    for section, (_, kind) in _fields(root).items():
        everywhere[section] = section
        if dataclasses.is_dataclass(kind):
            everywhere |= {f"{section}.{inner}": inner for inner in _fields(typing.cast(type, kind))}
    elsewhere = [name for name, inner in everywhere.items() if inner == key]
    hint = (
        f"; did you mean {' or '.join(map(repr, elsewhere))}?"
        if elsewhere
        else nearest(key, known) or nearest(full, everywhere)
    )
    return f"unknown key {full!r}{hint or '; known here: ' + ', '.join(known)}"


def _convert(key: str, value: object, kind: Any) -> object:
    """The value as the field's type, or an error. Whole numbers and fractions pass for floating point ones."""
    origin = typing.get_origin(kind)
    if origin is tuple:
        inner = typing.get_args(kind)[0]
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{key} must be a list, each {WORDS[inner]}, got {value!r}")
        return tuple(_convert(key, v, inner) for v in value)
    if origin is typing.get_origin(Mapping[str, Scalar]):
        if not isinstance(value, dict) or not all(isinstance(v, Scalar) for v in value.values()):
            raise ConfigError(f"{key} must be a table of plain values, got {value!r}")
        return dict(value)
    kinds = typing.get_args(kind) if origin in (typing.Union, types.UnionType) else (kind,)
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if float in kinds and str not in kinds and isinstance(value, str) and (parts := FRACTION.fullmatch(value)):
        value = float(parts[1]) / float(parts[2])
    # type() and not isinstance(): True is an int in Python.
    if type(value) not in kinds:
        raise ConfigError(f"{key} must be {' or '.join(WORDS[k] for k in kinds)}, got {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{key} must be finite, got {value!r}")
    return value


def _override(root: type, table: dict[str, Any], text: str) -> None:
    """Put "section.key=value" into the table. A field of text takes the value as it stands; others are read as TOML."""
    full, equals, raw = text.partition("=")
    full, raw = full.strip(), raw.strip()
    if not equals or not full:
        raise ConfigError(f"{text!r} is not of the form key=value, such as train.lr=0.1")
    *sections, last = full.split(".")
    kind: Any = root
    for depth, section in enumerate([*sections, last]):
        if dataclasses.is_dataclass(kind):
            known = _fields(typing.cast(type, kind))
            if section not in known:
                raise ConfigError(_unknown(root, full, section, known))
            kind = known[section][1]
        elif depth < len(sections) or typing.get_origin(kind) is not typing.get_origin(Mapping[str, Scalar]):
            raise ConfigError(f"unknown key {full!r}: {'.'.join(sections[:depth])} has no parts")
        else:
            kind = bool | int | float | str
    if dataclasses.is_dataclass(kind):
        inner = next(iter(_fields(typing.cast(type, kind))))
        raise ConfigError(f"{full} is a section; set one of its keys, such as {full}.{inner}=...")
    place = table
    for section in sections:
        place = place.setdefault(section, {})
        if not isinstance(place, dict):
            raise ConfigError(f"{section} must be a section [{section}]")
    place[last] = _parse(full, raw, kind)


def _parse(key: str, raw: str, kind: Any) -> object:
    texts = str in (typing.get_args(kind) or (kind,))
    if typing.get_origin(kind) is tuple and not raw.startswith("["):
        # a,b,c is easier to type in a shell than ["a", "b", "c"]
        inner = typing.get_args(kind)[0]
        return [_parse(key, part.strip(), inner) for part in raw.split(",") if part.strip()]
    try:
        value: object = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    if kind is str and not isinstance(value, str):
        return raw  # name=2024 is a text that looks like a number
    fraction = float in (typing.get_args(kind) or (kind,)) and FRACTION.fullmatch(raw) is not None
    if value is raw and not texts and not fraction:
        words = " or ".join(WORDS[k] for k in (typing.get_args(kind) or (kind,)) if k in WORDS)
        raise ConfigError(f"{key} must be {words or 'a list'}, got {raw!r}")
    return value


def _table(config: Any) -> dict[str, Any]:
    """The keys and values of a section, as in TOML."""
    table: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        table[_key(f)] = _table(value) if dataclasses.is_dataclass(value) else value
    return table


def written(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quoted(k)} = {written(v)}" for k, v in value.items()) + "}"
    assert isinstance(value, tuple)
    return "[" + ", ".join(map(written, value)) + "]"


def _quoted(text: str) -> str:
    """A basic string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
