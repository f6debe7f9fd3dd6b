"""The encoder of a run: one of gll's by its name, a function or class of your own by where it is, or a module as it is.

    model.encoder = "resnet18"             # gll.nn.encoders
    model.encoder = "my.networks:small"    # imports my.networks, and calls small(in_channels=..., **encoder_options)
    new_run(config, encoder=module)        # from Python; the config then says "given"
    restore(run, encoder="my.networks:small")   # a run directory, which may be anybody's

The second runs code: that of the module named, which must be importable here, called with options of the config's. A
config that you train with is taken to be yours. A run directory may be somebody else's, and names such as
"torch.hub:load" fetch and run whatever the options say: so nothing that a run names is imported or called unless you
name the same encoder again (`check_named`). `announce` says what is about to be imported, and from where.
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
    name: str, in_channels: int, options: Mapping[str, Any] | None = None, given: nn.Module | str | None = None
) -> nn.Module:
    """An encoder, with its `feature_dim`.

    Args:
        name: `model.encoder` of a config.
        in_channels: channels of the images, or dimensions of the points.
        options: `model.encoder_options`.
        given: the module itself, if the name is "given". A copy of it is returned, so that it stays as it is. If the
            name is that of code of your own: the same name again, which says that this code may be executed.

    Raises:
        ConfigError: it was not named again, cannot be imported, does not exist, fails, or does not give a module that
            makes features.

    >>> make_encoder("torch.nn:Linear", 2, given="torch.nn:Linear")
    Traceback (most recent call last):
    gll.train.toml.ConfigError: model.encoder = "torch.nn:Linear" cannot be called with in_channels=2: missing a
    required argument: 'in_features'
    >>> make_encoder("given", 2, given=nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))).feature_dim
    8
    """
    check_named(name, options, given)
    if "in_channels" in (options or {}):
        raise ConfigError(
            f"model.encoder_options.in_channels: this number is that of the data, {in_channels}; leave it out"
        )
    if isinstance(given, nn.Module):
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


def check_named(
    name: str, options: Mapping[str, Any] | None, given: nn.Module | str | None, where: str = "the config"
) -> None:
    """An error where the user has not given what a config needs to make its encoder. Nothing is imported here.

    Args:
        name: `model.encoder` of a config, which may be that of somebody else's run.
        options: `model.encoder_options`.
        given: what the user gave: a module, the name of the encoder, or nothing, which is enough for encoders of gll.
        where: how to call the config in a message.

    >>> check_named("resnet18", None, None)
    >>> check_named("my.networks:small", None, "my.networks:small")
    >>> check_named("my.networks:small", None, "my.networks:large")
    Traceback (most recent call last):
    gll.train.toml.ConfigError: the config has model.encoder = "my.networks:small", not "my.networks:large"
    """
    if name == GIVEN and not isinstance(given, nn.Module):
        raise ConfigError(
            f'model.encoder = "{GIVEN}": the encoder is a module that was given in Python, and has to be given again: '
            "encoder=... of new_run, train, restore or Trained.open. To use it from the command line, put a function "
            'that makes it into a file, and name that: model.encoder = "package.module:function"'
        )
    if name != GIVEN and isinstance(given, nn.Module):
        raise ConfigError(f'the encoder of this run has a name, "{name}", by which it is made: no other can be given')
    if isinstance(given, str) and given != name:
        raise ConfigError(f'{where} has model.encoder = "{name}", not "{given}"')
    if ":" in name and given is None:
        place, attribute = _parts(name)
        raise ConfigError(
            f'{where} has model.encoder = "{name}", with encoder_options = {dict(options or {})}. To make it, {place} '
            f"is imported and {attribute} is called with these: that executes code, which the run has chosen and not "
            f'you. If you know what it does, name it too: --encoder {name} (in Python: encoder="{name}")'
        )


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


def announce(name: str, options: Mapping[str, Any], tell: Callable[[str], None]) -> None:
    """Say which file will be imported to make an encoder, and what it is given; nothing for those of gll.

    >>> announce("resnet18", {}, print)
    >>> announce("sys:exit", {"status": 3}, print)
    model.encoder = "sys:exit": importing sys (part of Python), which runs its code; encoder_options = {'status': 3}
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
    given = f"; encoder_options = {dict(options)}" if options else ""
    tell(f'model.encoder = "{name}": importing {place} ({where}), which runs its code{given}')


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
