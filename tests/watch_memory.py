"""How large tensors get while something runs: for tests of what bounds memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class LargestOutput(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the bytes of the largest tensor that any operation returns, or that `only` returns.

    Args:
        only: the operation to look at, such as `torch.ops.aten.addmm.default`; all by default.
    """

    def __init__(self, only: Any = None) -> None:
        super().__init__()
        self.only, self.bytes = only, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = function(*args, **(kwargs or {}))
        if self.only is None or function is self.only:
            for tensor in out if isinstance(out, tuple | list) else [out]:
                if isinstance(tensor, Tensor):
                    self.bytes = max(self.bytes, tensor.numel() * tensor.element_size())
        return out
