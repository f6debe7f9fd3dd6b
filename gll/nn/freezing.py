"""Holding most of a network still for a while, and letting it go as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from torch import nn

BATCH_NORM = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def _stand_still(module: nn.Module, inputs: Any) -> None:
    module.training = False


@final
class Frozen:
    """All layers of a network but some near its end, held still: no gradient, no new statistics of normalisation.

    Whoever calls `train()` on the network meanwhile does not wake its batch normalisation.

    Args:
        parts: the modules of the network, in the order of the data.
        but_last: how many layers with a weight matrix stay free, at least 1, in the order in which modules were
            registered; what is registered after the first of them, such as its normalisation, is free too.
        behind: modules after those layers, held still as a whole.
    """

    def __init__(self, parts: Sequence[nn.Module], but_last: int, behind: Sequence[nn.Module] = ()) -> None:
        self.parts = tuple(parts)
        modules = [(module, part) for part in parts for module in part.modules()]
        weighted = [
            i
            for i, (module, _) in enumerate(modules)
            if any(p.dim() > 1 and p.requires_grad for p in module.parameters(recurse=False))
        ]
        if len(weighted) < but_last:
            raise ValueError(
                f"{but_last} layers were to stay free, but the network has {len(weighted)} with weights that learn"
            )
        held = modules[: weighted[-but_last]] + [(module, part) for part in behind for module in part.modules()]
        self._parameters = [p for module, _ in held for p in module.parameters(recurse=False) if p.requires_grad]
        for parameter in self._parameters:
            # Without its gradient an optimizer passes it over: no momentum, no weight decay.
            parameter.requires_grad_(False).grad = None
        self._norms = [(module, part) for module, part in held if isinstance(module, BATCH_NORM)]
        for norm, _ in self._norms:
            norm.eval().register_forward_pre_hook(_stand_still)

    def release(self) -> None:
        """Let go: gradients as before, and batch normalisation in the mode of the network."""
        for parameter in self._parameters:
            parameter.requires_grad_(True)
        for norm, part in self._norms:
            # By what it is, not by a handle: copies of a network have none.
            for key in [k for k, hook in norm._forward_pre_hooks.items() if hook is _stand_still]:
                del norm._forward_pre_hooks[key]
            norm.train(part.training)
        self._parameters, self._norms = [], []
