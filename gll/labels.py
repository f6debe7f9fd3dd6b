"""Labels: which nodes are labelled, and with what.

A label is a row of numbers, one per class: a one-hot row for a known class, any other row for a soft label
or for regression. Read next: `equations.py`, which says how labels enter an equation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Labels:
    """Values g on a set of labelled nodes.

    Args:
        index: (m,) int64, the labelled nodes, each at most once.
        value: (m, C) float, one row per labelled node: one-hot, soft, or any real values.

    Differentiable in: `value`. Held fixed: `index`.

    >>> Labels.from_classes(torch.tensor([1, -1, 0]), num_classes=2).value.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """

    index: Int[Tensor, " m"]
    value: Float[Tensor, "m c"]

    def __post_init__(self) -> None:
        for name, given in (("index", self.index), ("value", self.value)):
            if not isinstance(given, Tensor):
                raise TypeError(f"label {name} must be a torch.Tensor, got {type(given).__name__}; use torch.as_tensor")
        if self.index.dim() != 1 or self.index.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"label index must be a 1-d integer tensor, got {self.index.dtype} of shape {tuple(self.index.shape)}"
            )
        if self.value.dim() != 2 or not self.value.is_floating_point():
            raise ValueError(
                "label values must be a 2-d floating point tensor (labelled nodes, classes), got "
                f"{self.value.dtype} of shape {tuple(self.value.shape)}; for integer classes use Labels.from_classes"
            )
        if self.index.shape[0] != self.value.shape[0]:
            raise ValueError(f"{self.index.shape[0]} labelled nodes but {self.value.shape[0]} rows of values")
        if self.value.shape[1] == 0:
            raise ValueError("label values have no columns: there must be at least one class")
        if self.index.device != self.value.device:
            raise ValueError(f"label index is on {self.index.device}, label values on {self.value.device}")

    @classmethod
    def from_classes(
        cls, y: Int[Tensor, " n"], *, num_classes: int | None = None, dtype: torch.dtype | None = None
    ) -> Labels:
        """One-hot labels from an integer per node, where -1 means unlabelled.

        Args:
            y: (n,) integer classes 0 .. C-1, or -1.
            num_classes: C; by default the largest class plus one.
            dtype: of the values; by default torch's default.
        """
        if not isinstance(y, Tensor):
            raise TypeError(f"classes must be a torch.Tensor, got {type(y).__name__}; use torch.as_tensor first")
        if y.dim() != 1 or y.is_floating_point() or y.is_complex():
            hint = "; use y.long()" if y.is_floating_point() else ""
            raise ValueError(f"classes must be a 1-d integer tensor, got {y.dtype} of shape {tuple(y.shape)}{hint}")
        low, high = (int(y.min()), int(y.max())) if y.numel() else (-1, -1)
        classes = high + 1 if num_classes is None else num_classes
        if low < -1 or high >= classes:
            raise ValueError(
                f"classes must lie in 0 .. {classes - 1}, or be -1 for unlabelled; got values from {low} to {high}"
            )
        index = torch.nonzero(y >= 0).squeeze(1)
        value = torch.nn.functional.one_hot(y[index].long(), max(classes, 1))
        return cls(index, value.to(dtype or torch.get_default_dtype()))

    @property
    def num_classes(self) -> int:
        return self.value.shape[1]
