"""Options that a run does not use: those of another head are left out, and what has no effect is said.

Configs travel: a section [base] may stand in one whose head has no base, so that runs differ in one word. So an option
without an effect is no error. But nobody should believe to have run what was not run, so `gll train` says it.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Sequence
from typing import Any

from gll.data.augment import augmentation_from_name
from gll.names import require_name
from gll.nn.heads import HEADS, options_of
from gll.train.adversarial_config import AdversarialConfig
from gll.train.config import Config, WarmupConfig


def fitting_options(config: Config, text: str, overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of both heads, without those that the text has for another head and that this one does not have.

    Args:
        config: of the text and the overrides.
        text: of a TOML file.
        overrides: `key=value` in place of what it says.

    Returns:
        `head_options` and `first_options` of [model].
    """
    said = {override.partition("=")[0].strip() for override in overrides}

    def fitting(which: str) -> dict[str, Any]:
        key = f"{which}_options"
        gone = [] if f"model.{key}" in said else options_of_another(config, text, which)
        gone = [option for option in gone if f"model.{key}.{option}" not in said]
        return {option: value for option, value in getattr(config.model, key).items() if option not in gone}

    return fitting("head"), fitting("first")


def options_of_another(config: Config, text: str, which: str = "head") -> list[str]:
    """The options that the text has for the head it names, which is not that of the config, and that this lacks.

    Args:
        config: that is run.
        text: of the TOML file it began with.
        which: "head" or "first", of [model].
    """
    model, head = tomllib.loads(text).get("model", {}), getattr(config.model, which)
    if head not in HEADS or model.get(which, getattr(type(config.model), which)) == head:
        return []
    return [option for option in model.get(f"{which}_options", {}) if option not in options_of(head)]


def check_unused_names(config: Config) -> None:
    """Refuse names that nothing has, also where the run does not use them: they would be found out too late."""
    require_name("head in model.first", config.model.first, HEADS)
    augmentation_from_name(config.warmup.augment)


def without_effect(config: Config) -> list[str]:
    """Sentences about the settings that are not the default and that nothing looks at.

    >>> from gll.train.config import from_toml
    >>> without_effect(from_toml('name = "a"', ["base.selection=localmax"]))
    ['base.selection has no effect: base.strategy is "stratified", and only entropy and l2 select']
    """
    b, m, w, found = config.base, config.model, config.warmup, list[str]()
    if b.strategy not in ("entropy", "l2") and b.selection != type(b).selection:
        found.append(f'base.selection has no effect: base.strategy is "{b.strategy}", and only entropy and l2 select')
    if m.switch_at == 0:
        given = {
            "model.first": m.first != type(m).first,
            "model.first_options": bool(m.first_options),
            "model.first_lr": m.first_lr != type(m).first_lr,
        }
        keys = [key for key, differs in given.items() if differs]
        found += _said(keys, "model.switch_at is 0, so that no head trains before model.head")
    changed = [key for key in _changed("warmup", w) if key not in ("warmup.epochs", "warmup.from")]
    if w.from_run:
        own = [key for key in _changed("warmup", w) if key not in ("warmup.from", "warmup.keep_projection")]
        found += _said(own, f"the warm-up is that of warmup.from = {w.from_run}")
    elif w.epochs == 0:
        found += _said(changed, "warmup.epochs is 0, so that there is no warm-up")
    elif not isinstance(w.gamma, str) and "warmup.candidates" in changed:
        found.append('warmup.candidates has no effect: they are for warmup.gamma = "choose"')
    if config.adversarial.eps == 0:
        why = "adversarial.eps is 0, so that training is natural"
        found += _said(_changed("adversarial", config.adversarial), why)
    return found


def _changed(section: str, values: WarmupConfig | AdversarialConfig) -> list[str]:
    """The keys of a section that are not the default."""
    fields = dataclasses.fields(values)
    return [f"{section}.{f.metadata.get('key', f.name)}" for f in fields if getattr(values, f.name) != f.default]


def _said(keys: Sequence[str], why: str) -> list[str]:
    return [f"{', '.join(keys)} {'has' if len(keys) == 1 else 'have'} no effect: {why}"] if keys else []
