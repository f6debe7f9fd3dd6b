"""Carlini and Wagner's attack."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor, nn

from gll.attacks.base import AbstractAttack
from gll.attacks.norms import L2, AbstractNorm


@final
@dataclass(frozen=True)
class CarliniWagnerPaper(AbstractAttack):
    c: float
    steps: int = 100
    lr: float = 0.005
    eps: float = field(default=math.inf, init=False)
    norm: AbstractNorm = field(default_factory=L2, init=False)

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        return images


@final
@dataclass(frozen=True)
class CarliniWagner(AbstractAttack):
    binary_steps: int = 9
    steps: int = 200
    lr: float = 0.01
    confidence: float = 0.0
    eps: float = field(default=math.inf, init=False)
    norm: AbstractNorm = field(default_factory=L2, init=False)

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        return images
