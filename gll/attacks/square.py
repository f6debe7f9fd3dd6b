"""The Square attack (black-box)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor, nn

from gll.attacks.base import AbstractAttack
from gll.attacks.norms import AbstractNorm, LInf


@final
@dataclass(frozen=True)
class Square(AbstractAttack):
    eps: float
    queries: int = 1000
    norm: AbstractNorm = field(default_factory=LInf)

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        return images
