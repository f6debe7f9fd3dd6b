"""The encoder of a run: one of gll's by its name, a function or class of your own by where it is, or a module as it is.

    model.encoder = "resnet18"             # gll.nn.encoders
    model.encoder = "my.networks:small"    # imports my.networks, and calls small(in_channels=..., **encoder_options)
    new_run(config, encoder=module)        # from Python; the config then says "given"

The second runs code: that of the module named, which must be importable here. A run directory holds only its name, so
nothing that came with a run is executed, but whoever wrote its config has chosen the name: `announce` says what is
about to be imported, and from where.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from gll.nn.encoders import create_encoder, headless
from gll.train.toml import ConfigError

GIVEN = "given"
"""What `model.encoder` is in a run whose encoder was given as a module."""


def make_encoder(
    name: str, in_channels: int, options: Mapping[str, Any] | None = None, given: nn.Module | None = None
) -> nn.Module:
    """An encoder, with its `feature_dim`.

    Args:
        name: `model.encoder` of a config.
        in_channels: channels of the images, or dimensions of the points.
        options: `model.encoder_options`.
        given: the module itself, if the name is "given". A copy of it is returned, so that it stays as it is.

    Raises:
        ConfigError: it cannot be imported, does not exist, fails, or does not give a module that makes features.

    >>> make_encoder("torch.nn:Linear", 2)
    Traceback (most recent call last):
    gll.train.toml.ConfigError: model.encoder = "torch.nn:Linear" cannot be called with in_channels=2: missing a
    required argument: 'in_features'
    >>> make_encoder("given", 2, given=nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))).feature_dim
    8
    """
    if (name == GIVEN) != (given is not None):
        raise ConfigError(
            f'model.encoder = "{GIVEN}": the encoder is a module that was given in Python, and has to be given again: '
            "encoder=... of new_run, train, restore or Trained.open. To use it from the command line, put a function "
            'that makes it into a file, and name that: model.encoder = "package.module:function"'
            if given is None
            else f'the encoder of this run has a name, "{name}", by which it is made: no other can be given'
        )
    if "in_channels" in (options or {}):
        raise ConfigError(
            f"model.encoder_options.in_channels: this number is that of the data, {in_channels}, and cannot be another; "
            "leave it out"
        )
    if given is not None:
        return as_encoder(copy.deepcopy(given), "the encoder given")
    if ":" not in name:
        return create_encoder(name, in_channels=in_channels, **(options or {}))
    said = f'model.encoder = "{name}"'
    make, arguments = find_maker(name), {"in_channels": in_channels, **(options or {})}
    try:
        inspect.signature(make).bind(**arguments)
    except TypeError as error:
        given_ = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise ConfigError(f"{said} cannot be called with {given_}: {error}") from None
    except ValueError:  # code in C may not tell what it takes: calling it will show
        pass
    try:
        made = make(**arguments)
    except Exception as error:  # code of the user's, which may fail in any way
        raise ConfigError(f"{said} failed: {_told(error)}") from error
    return as_encoder(made, said)


def as_encoder(module: object, said: str) -> nn.Module:
    """The module, if it has a `feature_dim`; else without its classifier (`gll.nn.encoders.headless`).

    Args:
        module: what should be an encoder, or a model that ends with a linear layer.
        said: how to call it in a message.
    """
    if not isinstance(module, nn.Module):
        hint = "; it is a class: name a function that makes one" if isinstance(module, type) else ""
        raise ConfigError(f"{said} must give a torch.nn.Module, got {type(module).__name__}{hint}")
    size = getattr(module, "feature_dim", None)
    if size is not None:
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ConfigError(f"{said}: feature_dim must be a whole number, at least 1, got {size!r}")
        return module
    try:
        return headless(module)
    except ValueError as error:
        raise ConfigError(
            f"{said} has no feature_dim, the number of its features, and no classifier can be taken off it: {error}. "
            "Set self.feature_dim in its __init__, or return headless(model, classifier=...)"
        ) from None


def find_maker(name: str) -> Callable[..., Any]:
    """The function or class that "package.module:name" stands for. Importing the module runs its code."""
    place, attribute = _parts(name)
    _search_here()
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise ConfigError(f'model.encoder = "{name}": {place} cannot be imported: {_told(error)}') from error
        raise ConfigError(
            f'model.encoder = "{name}": there is no module {error.name} here. Looked for in the current folder '
            f"({os.getcwd()}) and where Python finds its packages: go to the folder that has it, install it, or add "
            "that folder to PYTHONPATH"
        ) from None
    except Exception as error:  # code of the user's, which may fail in any way
        raise ConfigError(f'model.encoder = "{name}": {place} cannot be imported: {_told(error)}') from error
    found = getattr(module, attribute, None)
    if not callable(found):
        what = f"is a {type(found).__name__}, not a function or class" if hasattr(module, attribute) else "is not there"
        raise ConfigError(f'model.encoder = "{name}": {attribute} {what} in {module.__file__ or place}')
    return found


def announce(name: str, tell: Callable[[str], None]) -> None:
    """Say which file will be imported to make an encoder; nothing for those of gll.

    >>> announce("resnet18", print)
    >>> announce("sys:exit", print)
    model.encoder = "sys:exit": importing sys (part of Python), which runs its code
    """
    if ":" not in name:
        return
    place, _ = _parts(name)
    _search_here()
    top = place.partition(".")[0]  # of this one the file is found without running anything
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:
        spec = None
    if spec is None:
        return  # making the encoder will say so
    folders = list(spec.submodule_search_locations or ())
    where = spec.origin if spec.has_location else folders[0] if folders else "part of Python"
    tell(f'model.encoder = "{name}": importing {place} ({where}), which runs its code')


def _parts(name: str) -> tuple[str, str]:
    place, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*place.split("."), attribute]):
        raise ConfigError(
            f'model.encoder = "{name}" is neither the name of an encoder nor of the form package.module:function'
        )
    return place, attribute


def _search_here() -> None:
    """Modules of the current folder can be imported, as with `python -m`; installed ones come first."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def _told(error: Exception) -> str:
    """An error in the user's code, and where it is."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    known = "importlib" not in place.filename and not isinstance(error, SyntaxError)  # which says its place itself
    return f"{type(error).__name__}: {error}" + (f" ({place.filename}, line {place.lineno})" if known else "")
