"""Every setting that a cell was run with, defaults too: `settings` of a record, beside its `config`.

`config` has what differs from the defaults, and makes the key of the cell: where the library changes a default, the key
stays, and old records stand for cells that would come out otherwise now. By `settings` it can be told from the records.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gll.attacks.target import Request
from gll.data.augment import AUGMENTATIONS
from gll.nn.encoders import ENCODERS
from gll.nn.heads import HEADS
from gll.reproduce.train_cells import FREE, flat, of_warm_up
from gll.train.config import Config
from gll.train.model import head_options

# Where an attack is made, and what it attacks: the folder, the run, and what decides no result.
ELSEWHERE = {"run", "out", "resume", "seed", "device", "root", "encoders", "keep_images"}


def defaults_of(make: Callable[..., Any]) -> dict[str, Any]:
    """Arguments that need not be given, and what they are then; not those that are given already.

    >>> defaults_of(lambda name, k=25, tau=0.0: None), defaults_of(partial(lambda k=25, tau=0.0: None, k=3))
    ({'k': 25, 'tau': 0.0}, {'tau': 0.0})
    """
    given = make.keywords if isinstance(make, partial) else {}
    found = inspect.signature(make).parameters.items()
    return {name: p.default for name, p in found if name not in given and p.default is not inspect.Parameter.empty}


def all_settings(config: Config) -> dict[str, Any]:
    """Everything of a config that decides the result, with the defaults of its parts: heads, encoder, augmentations.

    >>> found = all_settings(Config("a"))
    >>> found["train.lr"], found["model.head_options"]["k"], found["model.head_options"]["test_k"]
    (0.001, 25, 50)
    """

    def of_head(name: str, options: Mapping[str, Any], epochs: int) -> dict[str, Any]:
        return defaults_of(HEADS[name]) | head_options(name, config.test, options, epochs)

    m, found = config.model, {key: value for key, value in flat(config).items() if key not in FREE}
    found["model.head_options"] = of_head(m.head, m.head_options, config.train.epochs - m.switch_at)
    if m.switch_at > 0:
        found["model.first_options"] = of_head(m.first, m.first_options, m.switch_at)
    if config.test.also:
        found["test.also_options"] = {name: of_head(name, {}, 0) for name in config.test.also}
    if m.encoder in ENCODERS:  # else it is code of somebody's own
        found["model.encoder_options"] = defaults_of(ENCODERS[m.encoder]) | dict(m.encoder_options)
    found["data.augment_options"] = defaults_of(AUGMENTATIONS[config.data.augment]) | dict(config.data.augment_options)
    if config.warmup.epochs > 0:
        found["warmup.augment_options"] = defaults_of(AUGMENTATIONS[config.warmup.augment])
    return found


def warm_up_settings(config: Config) -> dict[str, Any]:
    """Those of them that a warm-up depends on."""
    return of_warm_up(all_settings(config), config)


def attack_settings(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that attacks were asked for, by the names of their parts.

    >>> found = attack_settings({"": {"samples": 50}})
    >>> found["attack.samples"], found["attack.steps"], found["attack.eps"]
    (50, 40, [])
    """
    usual = {f.name: f.default for f in dataclasses.fields(Request) if f.name not in ELSEWHERE}
    found = dict[str, Any]()
    for name, options in parts.items():
        for key, value in {**usual, **options}.items():
            found[".".join(filter(None, ("attack", name, key)))] = list(value) if isinstance(value, tuple) else value
    return found
