"""Optimizers and learning rates from a config.

The rate is a function of the step alone, so there is no scheduler whose state has to be stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from gll.train.config import Config, TrainConfig, WarmupConfig


def make_optimizer(section: TrainConfig | WarmupConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that [train] or [warmup] asks for."""
    parameters, lr, decay = list(parameters), section.lr, section.weight_decay
    makers: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "sgd": lambda: torch.optim.SGD(parameters, lr=lr, momentum=section.momentum, weight_decay=decay),
        "adam": lambda: torch.optim.Adam(parameters, lr=lr, weight_decay=decay),
        "adamw": lambda: torch.optim.AdamW(parameters, lr=lr, weight_decay=decay),
    }
    return makers[section.optimizer]()


def learning_rate(section: TrainConfig | WarmupConfig, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step, counted from 0 over all epochs.

    >>> section = TrainConfig(lr=0.1, epochs=10, schedule="step", step_epochs=4, step_factor=0.5)
    >>> [learning_rate(section, 2 * epoch, 2) for epoch in (0, 3, 4, 8)]
    [0.1, 0.1, 0.05, 0.025]
    """
    done = step / max(1, steps_per_epoch * section.epochs)
    factors: dict[str, Callable[[], float]] = {
        "constant": lambda: 1.0,
        "cosine": lambda: (1 + math.cos(math.pi * min(1.0, done))) / 2,
        "one-cycle": lambda: _one_cycle(min(1.0, done)),
        "step": lambda: section.step_factor ** (step // steps_per_epoch // section.step_epochs),
    }
    return section.lr * factors[section.schedule]()


def training_of_epoch(config: Config, epoch: int) -> TrainConfig:
    """[train] as it is in an epoch, counted from 0: before a switch of heads the rate may be another one.

    >>> from gll.train.config import from_toml
    >>> config = from_toml('name = "a"', ["train.lr=0.1", "model.first_lr=0.5", "model.switch_at=2"])
    >>> [training_of_epoch(config, epoch).lr for epoch in (0, 1, 2, 3)]
    [0.5, 0.5, 0.1, 0.1]
    """
    first = config.model.first_lr if epoch < config.model.switch_at else 0.0
    return replace(config.train, lr=first or config.train.lr)


def _one_cycle(done: float, rise: float = 0.3, start: float = 0.04) -> float:
    """From a 25th up to 1 along a cosine over the first three tenths, then along a cosine to zero."""
    if done < rise:
        return start + (1 - start) * (1 - math.cos(math.pi * done / rise)) / 2
    return (1 + math.cos(math.pi * (done - rise) / (1 - rise))) / 2


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Use this rate from now on."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def optimizer_tensors(optimizer: torch.optim.Optimizer, prefix: str = "optimizer.") -> dict[str, Tensor]:
    """What an optimizer remembers (momentum, moments, counts), named so that it fits a checkpoint."""
    state = optimizer.state_dict()["state"]
    return {
        f"{prefix}{index}.{key}": torch.as_tensor(value)
        for index, values in state.items()
        for key, value in values.items()
        if value is not None
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], prefix: str = "optimizer.") -> None:
    """Put back what `optimizer_tensors` took; other names are passed over."""
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            index, key = name[len(prefix) :].split(".", 1)
            state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
