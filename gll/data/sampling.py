"""Batches for graph training: a base that spreads labels, labelled samples that have a loss, unlabelled ones between.

Section 4.1 of the paper: B = L_b ∪ B_l ∪ B_u. All batches of an epoch share the base L_b (`base_sets.py`). The others
are drawn so that labelled and unlabelled samples appear as they do in the data outside the base,

    N_l = B |L \\ L_b| / (|L \\ L_b| + |U|),     N_u = B |U| / (|L \\ L_b| + |U|),

where B = N_l + N_u: the base comes on top. The base never enters the loss; its labels are the question's data.

With one label a class the base takes all labelled samples, and none is left for the loss. Then a sample of the base may
appear *again*, as another node: another augmented image of the same sample, whose class is asked for.

Everything is derived from (seed, epoch), so that a run can be resumed anywhere, and so that all ranks agree without
talking to each other. The order of indices is the order of nodes: base first, then labelled, then unlabelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Int
from torch import Tensor

from gll.data.base_sets import AbstractBaseSet, Fixed, Predictions, Stratified, Uncertain, apportion, base_set_from_name
from gll.data.random import generator
from gll.data.splits import LabelSplit
from gll.words import counted

__all__ = [
    "AbstractBaseSet",
    "Batch",
    "Fixed",
    "GraphBatches",
    "Predictions",
    "Stratified",
    "Uncertain",
    "base_set_from_name",
    "proportions",
]


@final
@dataclass(frozen=True, eq=False)
class Batch:
    """Indices into the training samples. Only `labelled` has a loss.

    Args:
        base: samples whose labels are spread.
        labelled: samples whose class is predicted and compared with their label.
        unlabelled: samples that are nodes of the graph and nothing else.

    Differentiable in: nothing.
    """

    base: Int[Tensor, " b"]
    labelled: Int[Tensor, " l"]
    unlabelled: Int[Tensor, " u"]

    @property
    def nodes(self) -> Int[Tensor, " nodes"]:
        """All of them, in this order."""
        return torch.cat([self.base, self.labelled, self.unlabelled])

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many of each."""
        return len(self.base), len(self.labelled), len(self.unlabelled)

    def __len__(self) -> int:
        return sum(self.sizes)


def proportions(batch: int, labelled: int, unlabelled: int) -> tuple[int, int]:
    """The paper's N_l and N_u: how a batch of B samples outside the base is divided.

    Exact where the paper's equation gives whole numbers, otherwise rounded by largest remainder. Neither is zero unless
    there are no such samples.

    Args:
        batch: B.
        labelled: |L \\ L_b|, labelled samples outside the base.
        unlabelled: |U|.

    >>> proportions(1250, 49750, 0), proportions(100, 200, 800), proportions(1250, 750, 49000)
    ((1250, 0), (20, 80), (19, 1231))

    Differentiable in: nothing.
    """
    n_labelled, n_unlabelled = apportion(batch, [labelled, unlabelled])
    return n_labelled, n_unlabelled


@final
class GraphBatches:
    """The batches of every epoch.

        for batch in batches.epoch(7):  # the same whenever it is asked for
            ...

    An epoch shows every labelled sample outside its base once. The unlabelled ones are drawn to go with them: each once
    where the proportions come out exactly, and never twice unless there are fewer of them than batches. Batches are
    equally large: 1,100 samples and B = 1,000 make two batches of 550, not one of 1,000 and one of 100. Since N_l is a
    whole number, few labelled samples a batch make batches smaller than B, and an epoch that leaves some unlabelled
    samples out; other epochs draw others. With `steps` an epoch has that many full batches, from as many passes over
    the samples as that takes.

    It is also a `batch_sampler` for `torch.utils.data.DataLoader` over any map-style dataset: it yields lists of
    indices (`Batch.nodes`) of the epoch given by `set_epoch`.

    With several processes each gets its share of every batch, as from `DistributedSampler`: shares are disjoint and
    equally large, and together they are the batch, in the order of ranks. Where the labelled samples cannot be divided
    by the number of processes, the last batch shows a few a second time.

    Args:
        labels: (n,) the class of every training sample. Only those of `split.labelled` are looked at.
        split: which samples are labelled.
        batch: B, labelled plus unlabelled, of all processes together; less where there are not so many samples.
        base: size of the base, on top of B. 0: for a head without a base; batches then hold labelled samples only.
        base_set: how the base is chosen; by default `Stratified()`.
        seed: of everything random.
        num_replicas, rank: number of processes, and which this is.
        labelled: N_l itself, in place of the paper's equation; N_u is then B - N_l.
        steps: batches an epoch.
        split_base: give each process a share of the base, for one graph of all processes, in place of the whole base.
        again: draw B_l from all labelled samples, those of the base too; for images that are augmented, so that two
            nodes of one sample differ. With `steps`, `labelled` may exceed their number: several images of each.

    Raises:
        ValueError: sizes that do not fit together.

    Differentiable in: nothing.

    >>> split = LabelSplit(torch.arange(250), torch.arange(250, 1050))
    >>> batches = GraphBatches(torch.arange(1050) % 10, split, batch=100, base=50, seed=0)
    >>> len(batches), next(batches.epoch(0)).sizes
    (10, (50, 20, 80))
    >>> batches
    GraphBatches(10 an epoch: base 50, labelled 20, unlabelled 80; Stratified(), seed=0)
    """

    def __init__(
        self,
        labels: Int[Tensor, " n"],
        split: LabelSplit,
        *,
        batch: int,
        base: int = 0,
        base_set: AbstractBaseSet | None = None,
        seed: int,
        num_replicas: int = 1,
        rank: int = 0,
        labelled: int | None = None,
        steps: int | None = None,
        split_base: bool = False,
        again: bool = False,
    ) -> None:
        labels = torch.as_tensor(labels)  # arrays and lists too
        if len(labels) != len(split):
            raise ValueError(f"the split is of {counted(len(split), 'sample')}, got {counted(len(labels), 'label')}")
        if not 0 <= rank < num_replicas:
            raise ValueError(f"rank must lie in 0 .. num_replicas - 1 = {num_replicas - 1}, got {rank}")
        if base < 0 or batch < 1 or (steps is not None and steps < 1):
            raise ValueError(f"base must be ≥ 0, batch and steps ≥ 1; got base={base}, batch={batch}, steps={steps}")
        for name, number in (("batch", batch), ("labelled", labelled or 0)):
            if number % num_replicas:
                raise ValueError(
                    f"{name}={number} counts all {num_replicas} processes together and must be a multiple of that"
                )
        self._labelled, self._unlabelled = split.labelled.cpu(), split.unlabelled.cpu()
        self._classes = labels.detach().cpu().long()[self._labelled]
        if len(self._classes) and int(self._classes.min()) < 0:
            raise ValueError(
                f"{counted(int((self._classes < 0).sum()), 'sample')} of split.labelled without a class (label -1)"
            )
        outside = len(self._labelled) - (0 if again else base)
        if outside < 1:
            raise ValueError(
                f"a base of {base} leaves none of {counted(len(self._labelled), 'labelled sample')} for the loss; make "
                "it smaller, or let its samples appear again, as other images (base.again in a config)"
            )
        self._base, self._split_base, self._again = base, split_base, again
        self._base_set, self._seed = base_set or Stratified(), seed
        self._replicas, self._rank = num_replicas, rank
        # Sizes of a process's share in every batch of an epoch; they are the same for all epochs and processes.
        unlabelled = len(self._unlabelled) if base else 0
        self._sizes = _plan(outside, unlabelled, batch, labelled, steps, num_replicas, again)
        self._epoch: tuple[int, Predictions | None, Tensor | None] = (0, None, None)

    def __len__(self) -> int:
        return len(self._sizes)

    def __repr__(self) -> str:
        labelled, unlabelled = self._sizes[0]
        share = f", process {self._rank} of {self._replicas}" if self._replicas > 1 else ""
        return (
            f"GraphBatches({len(self)} an epoch: base {self._base}, labelled {labelled}, unlabelled {unlabelled}; "
            f"{self._base_set!r}, seed={self._seed}{share})"
        )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many base, labelled and unlabelled samples the first batch of an epoch has, of all processes together."""
        labelled, unlabelled = self._sizes[0]
        return self._base, labelled * self._replicas, unlabelled * self._replicas

    @property
    def base_set(self) -> AbstractBaseSet:
        """How the base is chosen."""
        return self._base_set

    def base_of(self, epoch: int, scores: Predictions | None = None) -> Int[Tensor, " base"]:
        """The base of an epoch, all of it, sorted.

        Args:
            epoch: which.
            scores: what the model said before; used by `Uncertain` only.
        """
        if self._base == 0:
            return self._labelled[:0]
        position = self._base_set.choose(self._classes, self._base, seed=self._seed, epoch=epoch, scores=scores)
        return self._checked(self._labelled[position])

    def epoch(
        self, epoch: int, scores: Predictions | None = None, base: Int[Tensor, " base"] | None = None
    ) -> Iterator[Batch]:
        """This process's share of the batches of an epoch.

        Args:
            epoch: which.
            scores: as in `base_of`.
            base: the base itself. A run that chooses by uncertainty stores what `base_of` gave, and hands it back
                when it is resumed.
        """
        base = self.base_of(epoch, scores) if base is None else self._checked(base.cpu().sort().values)
        pool = self._labelled if self._again else self._labelled[~torch.isin(self._labelled, base)]
        share = base.tensor_split(self._replicas)[self._rank] if self._split_base else base
        drawn = zip(
            self._drawn(pool, [sizes[0] for sizes in self._sizes], generator(self._seed, "labelled", epoch)),
            self._drawn(
                self._unlabelled, [sizes[1] for sizes in self._sizes], generator(self._seed, "unlabelled", epoch)
            ),
            strict=True,
        )
        return (Batch(share, labelled, unlabelled) for labelled, unlabelled in drawn)

    def set_epoch(self, epoch: int, scores: Predictions | None = None, base: Tensor | None = None) -> None:
        """Which epoch the next iteration gives; the arguments are those of `epoch`."""
        self._epoch = (epoch, scores, base)

    def __iter__(self) -> Iterator[list[int]]:
        """Lists of indices, for a `DataLoader`. `zip(batches.epoch(e), loader)` says which index is what."""
        for batch in self.epoch(*self._epoch):
            yield batch.nodes.tolist()

    def _checked(self, base: Tensor) -> Tensor:
        """The base, sorted, if it is one."""
        base = base.sort().values
        inside = torch.isin(self._labelled, base)
        if len(base) != self._base or int(inside.sum()) != self._base:
            raise ValueError(
                f"a base must hold {counted(self._base, 'different labelled sample')}, got {len(base)} indices, of "
                f"which {int(inside.sum())} are different labelled samples"
            )
        missing = set(self._classes.unique().tolist()) - set(self._classes[inside].unique().tolist())
        if missing:
            raise ValueError(f"no base sample of class {min(missing)}: it could never be predicted")
        return base

    def _drawn(self, pool: Tensor, sizes: Sequence[int], random: torch.Generator) -> Iterator[Tensor]:
        """This rank's share of what is drawn for every batch: one shuffled pass over the pool after another."""
        left = pool[:0]
        for size in sizes:
            whole = size * self._replicas
            taken, left = left[:whole], left[whole:]
            while len(taken) < whole:
                fresh = pool[torch.randperm(len(pool), generator=random)]
                # A pass that begins inside a batch begins with what the batch does not hold yet.
                held = torch.isin(fresh, taken)
                fresh = torch.cat([fresh[~held], fresh[held]])
                missing = whole - len(taken)
                taken, left = torch.cat([taken, fresh[:missing]]), fresh[missing:]
            yield taken[self._rank * size : (self._rank + 1) * size]


def _plan(
    outside: int, unlabelled: int, batch: int, labelled: int | None, steps: int | None, replicas: int, again: bool
) -> list[tuple[int, int]]:
    """(labelled, unlabelled) samples of one process in every batch of an epoch."""
    if outside + unlabelled < replicas:
        raise ValueError(
            f"{counted(outside + unlabelled, 'sample')} outside the base: fewer than {counted(replicas, 'process')}"
        )
    # In units of one process: its share of a batch, and of an epoch.
    share = min(batch, outside + unlabelled) // replicas
    most, most_unlabelled = -(-outside // replicas), -(-unlabelled // replicas)
    if labelled is None:
        if unlabelled and share < 2:
            raise ValueError(
                f"batch={batch} on {counted(replicas, 'process')}: each needs room for a labelled and an unlabelled "
                "sample"
            )
        n_l, n_u = proportions(share, outside, unlabelled)
    else:
        if not 1 <= labelled <= batch:
            raise ValueError(f"labelled must lie in 1 .. batch = {batch}, got {labelled}")
        n_l = labelled // replicas if again and steps is not None else min(labelled // replicas, most)
        n_u = min((batch - labelled) // replicas, most_unlabelled)
    if steps is not None:
        return [(n_l, n_u)] * steps
    count = -(-most // n_l)
    if n_u == 0:
        return [(size, 0) for size in _even(most, count)]
    # As many unlabelled ones as go with `most` labelled ones; at least one a batch, and none twice if that can be.
    beside = max(round(most * n_u / n_l), count)
    beside = min(beside, max(most_unlabelled, count))
    # Larger numbers of the one beside smaller numbers of the other: batches of the same size.
    return list(zip(_even(most, count), _even(beside, count)[::-1], strict=True))


def _even(total: int, parts: int) -> list[int]:
    """Whole numbers that sum to `total` and differ by one at most, the larger first."""
    return [total // parts + (part < total % parts) for part in range(parts)]
