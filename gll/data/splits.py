"""Which labels training may see: all of them, a share, or some of each class.

What is not labelled stays in training as an unlabelled sample. Its class, where it is known, is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from gll.data.random import generator
from gll.data.readers import DataError, open_npz
from gll.files import complete_file
from gll.words import counted

FORMS = '"whole", a share such as "20%", or a number of each class such as "10 each"'


@final
@dataclass(frozen=True, eq=False)
class LabelSplit:
    """Training samples whose class may be used, and the others; together they are all of 0 .. n - 1.

    Args:
        labelled: indices into the training samples, sorted.
        unlabelled: the other indices, sorted.

    Differentiable in: nothing.
    """

    labelled: Int[Tensor, " l"]
    unlabelled: Int[Tensor, " u"]

    def __post_init__(self) -> None:
        n = len(self)
        for name, index in (("labelled", self.labelled), ("unlabelled", self.unlabelled)):
            if index.dtype != torch.int64 or index.dim() != 1 or not bool((index[1:] > index[:-1]).all()):
                raise ValueError(f"{name} must hold sorted, distinct indices (int64), got {index}")
        both = torch.cat([self.labelled, self.unlabelled]).sort().values
        if not torch.equal(both, torch.arange(n, device=both.device)):
            raise ValueError(f"labelled and unlabelled together must be all of 0 .. {n - 1}, each once")

    def __len__(self) -> int:
        return len(self.labelled) + len(self.unlabelled)

    def hidden(self, labels: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """The labels as training sees them: -1 for every sample that is not labelled."""
        if len(labels) != len(self):
            raise ValueError(f"the split is of {counted(len(self), 'sample')}, got {counted(len(labels), 'label')}")
        seen = labels.clone()
        seen[self.unlabelled.to(labels.device)] = -1
        return seen

    def save(self, path: Path) -> None:
        """Write both sets of indices to an .npz file, whole or not at all."""
        with complete_file(Path(path)) as temporary, temporary.open("wb") as file:
            np.savez(file, labelled=self.labelled.cpu().numpy(), unlabelled=self.unlabelled.cpu().numpy())

    @staticmethod
    def load(path: Path) -> LabelSplit:
        """Read what `save` has written; nothing in the file is executed."""
        with open_npz(Path(path)) as file:
            missing = {"labelled", "unlabelled"} - set(file.files)
            if missing:
                raise DataError(f"{path} is not a split of labels: it has no array {' and '.join(sorted(missing))}")
            found = [torch.from_numpy(np.asarray(file[name])) for name in ("labelled", "unlabelled")]
        try:
            return LabelSplit(*found)
        except (ValueError, TypeError) as error:
            raise DataError(f"{path} is not a split of labels: {error}") from None


def split_labels(labels: Int[Tensor, " n"], amount: str, *, seed: int, classes: Sequence[str] = ()) -> LabelSplit:
    """Choose the samples that keep their labels, at random and equally many of every class.

    With the same seed a smaller amount is a subset of a larger one.

    Args:
        labels: the class of every training sample, -1 where it is not known (such a sample is never labelled).
        amount: `"whole"`: all that have a class. `"20%"`: this share of them, in numbers of the classes that differ by
            one at most; a class that has fewer gives all it has, and the others the rest. `"10 each"`: ten of every
            class.
        seed: of the choice.
        classes: names of the classes, for a message; by default their numbers.

    Returns:
        the split, on the CPU.

    >>> split = split_labels(torch.arange(1000) % 10, "2%", seed=0)
    >>> len(split.labelled), len(split.unlabelled)
    (20, 980)
    >>> (split.labelled % 10).bincount().tolist()
    [2, 2, 2, 2, 2, 2, 2, 2, 2, 2]

    Differentiable in: nothing.
    """
    labels = torch.as_tensor(labels)  # arrays and lists too
    if labels.dim() != 1 or labels.is_floating_point() or labels.dtype == torch.bool:
        raise TypeError(f"labels must be one whole number a sample, got {labels.dtype} of shape {tuple(labels.shape)}")
    labels = labels.detach().cpu().long()
    if len(labels) and int(labels.min()) < -1:
        raise ValueError(f"labels must be classes, or -1 where the class is not known; the smallest is {labels.min()}")
    known = labels >= 0
    if not bool(known.any()):
        raise ValueError("no training sample has a class: there is nothing to learn from")
    present, size = labels[known].unique(return_counts=True)
    wanted = _numbers(amount, present, size, seed, classes)
    count = torch.zeros(int(labels.max()) + 1, dtype=torch.int64)
    count[present] = wanted
    # A random order of all samples, then sorted by class: a sample's place within its class is its rank there.
    order = torch.randperm(len(labels), generator=generator(seed, "labels"))
    order = order[known[order]]
    order = order[labels[order].sort(stable=True).indices]
    rank = torch.arange(len(order)) - (size.cumsum(0) - size).repeat_interleave(size)
    labelled = order[rank < count[labels[order]]].sort().values
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[labelled] = False
    return LabelSplit(labelled, rest.nonzero()[:, 0])


def _numbers(amount: str, present: Tensor, size: Tensor, seed: int, classes: Sequence[str]) -> Tensor:
    """How many of each class; `present` are the classes, `size` how many samples each has."""
    text = amount.strip().lower()
    if text == "whole":
        return size
    if match := re.fullmatch(r"(\d+)\s*each", text):
        each = int(match[1])
        short = size < each
        if each == 0:
            raise ValueError('"0 each" leaves no label: training needs at least one of every class')
        if bool(short.any()):
            worst = int(size.argmin())
            number = int(present[worst])
            name = classes[number] if number < len(classes) else number
            raise ValueError(
                f"{each} labels of each class are wanted, but {int(short.sum())} of {len(size)} classes have fewer: "
                f"class {name} has {int(size[worst])}; ask for fewer, or for a share such as 20%"
            )
        return torch.full_like(size, each)
    if match := re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*%", text):
        share = float(match[1]) / 100
        if not 0 < share <= 1:
            raise ValueError(f"a share of labels lies above 0% and is at most 100%, got {amount!r}")
        total = round(share * int(size.sum()))
        if total < len(size):
            raise ValueError(
                f"{amount} of {int(size.sum()):,} labels are {total}, fewer than the {len(size)} classes: every class "
                "needs one; ask for more"
            )
        return _even(total, size, seed)
    raise ValueError(f"the amount of labels is {FORMS}; got {amount!r}")


def _even(total: int, size: Tensor, seed: int) -> Tensor:
    """Numbers that sum to `total`, as equal as the sizes of the classes permit."""
    given = torch.zeros_like(size)
    turn = torch.randperm(len(size), generator=generator(seed, "labels", "turn"))  # who is asked first for one more
    while (left := total - int(given.sum())) > 0:
        open_ = turn[(given < size)[turn]]
        if left < len(open_):
            given[open_[:left]] += 1
            break
        step = min(left // len(open_), int((size - given)[open_].min()))
        given[open_] += step
    return given
