"""Several processes, started by `torchrun`: who am I, what do we compute together, and gradients through a gather.

One rule holds throughout: **the gradient is that of the mean of the ranks' losses.** `DistributedDataParallel` averages
gradients over ranks, and `gather` passes them back exactly, so there is no further factor anywhere.

- graph per rank (`PerRank`): every rank has its own graph and its own loss J_r. The gradient is that of Σ_r J_r / R.
- one graph (`Gathered`): features of all ranks are gathered, and every rank solves the same large graph and has the
  same loss J. Σ_r J / R = J: the gradient is that of one process with the whole batch.

Without torchrun's environment there is one rank, and nothing here does anything.
"""

from __future__ import annotations

import gc
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast, final

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

ENVIRONMENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
CPU = torch.device("cpu")


@final
@dataclass(frozen=True)
class Ranks:
    """The processes of a run, seen from one of them. `Ranks()` is a single process.

    Every rank must make the same calls in the same order; a rank that leaves one out makes the others wait.

    Args:
        rank: which process this is, 0 .. world - 1.
        world: how many there are.
        device: where this process computes.

    Differentiable in: `gather`.

    >>> ranks = Ranks()
    >>> ranks.is_first, ranks.total(loss=2.0, count=4)
    (True, {'loss': 2.0, 'count': 4.0})
    """

    rank: int = 0
    world: int = 1
    device: torch.device = CPU

    @staticmethod
    @contextmanager
    def start(device: torch.device | str = "cpu", *, minutes: float = 30) -> Iterator[Ranks]:
        """Join the other processes, as torchrun's environment says, and leave them at the end.

        Args:
            device: "cpu" (then over gloo) or "cuda" (NCCL; every process takes the GPU of its local rank).
            minutes: how long a rank waits for the others before it gives up.
        """
        kind = torch.device(device)
        found = [name for name in ENVIRONMENT if name in os.environ]
        if "RANK" not in found or "WORLD_SIZE" not in found:
            yield Ranks(device=kind)
            return
        if len(found) < len(ENVIRONMENT):
            missing = ", ".join(sorted(set(ENVIRONMENT) - set(found)))
            raise ValueError(f"RANK and WORLD_SIZE are set, but not {missing}: start the processes by torchrun")
        rank, world, local = (int(os.environ[name]) for name in ENVIRONMENT[:3])
        if kind.type == "cuda":
            if local >= torch.cuda.device_count():
                raise ValueError(
                    f"local rank {local} needs a GPU of its own, but there are {torch.cuda.device_count()}; start "
                    "fewer processes (--nproc-per-node)"
                )
            kind = torch.device("cuda", local)
            torch.cuda.set_device(kind)
        backend = "nccl" if kind.type == "cuda" else "gloo"
        dist.init_process_group(backend, rank=rank, world_size=world, timeout=timedelta(minutes=minutes))
        try:
            yield Ranks(rank, world, kind)
        finally:
            gc.collect()  # what still holds the group, such as a wrapped encoder, must go before it
            dist.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, the only one that writes files."""
        return self.rank == 0

    def share(self, n: int) -> slice:
        """This rank's part of n things; parts are disjoint, in order, and differ by one at most in size."""
        return slice(self.rank * n // self.world, (self.rank + 1) * n // self.world)

    def gather(self, x: Tensor) -> Tensor:
        """The rows of all ranks, in the order of ranks, on every rank.

        Ranks may have different numbers of rows, also none. Everything else about the tensors must agree.

        Args:
            x: (n_r, ...) this rank's rows.

        Returns:
            (Σ n_r, ...).

        Raises:
            ValueError: on every rank, if rows of different shapes or types meet.

        Differentiable in: `x`, to any order. Every rank has to take part in the backward pass.
        """
        if self.world == 1:
            return x
        return cast(Tensor, _Gather.apply(x, self._row_counts(x), self.rank))

    def wrap(self, module: nn.Module, *, unused: bool = False) -> nn.Module:
        """The module with gradients averaged over ranks while they are computed (`DistributedDataParallel`).

        Call what is returned; keep the module itself for everything else, such as its `state_dict`. They share their
        parameters, which are those of rank 0 from here on. So are the buffers, at every call in training.

        Args:
            module: whose output is differentiated.
            unused: allow parameters that get no gradient in some step, for example because they are frozen then.
        """
        if self.world == 1 or not any(parameter.requires_grad for parameter in module.parameters()):
            return module
        ids = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(module, device_ids=cast(Any, ids), find_unused_parameters=unused)

    def average_gradients(self, module: nn.Module) -> None:
        """Average over ranks the gradients of a module that is not wrapped; after `backward`.

        Parameters without a gradient on this rank count as zero, as long as they require one. So pass what is at work:
        of a `Switch`, its `active` head. An optimizer that gets zeros for the other one still decays its weights.
        """
        if self.world == 1:
            return
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not parameters:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for dtype in sorted({parameter.dtype for parameter in parameters}, key=str):
            gradients = [cast(Tensor, p.grad) for p in parameters if p.dtype == dtype]
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat)
            flat /= self.world
            for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))

    def same_everywhere(self, module: nn.Module, *, parameters: bool = True) -> None:
        """Give every rank the parameters and buffers of rank 0, or the buffers alone."""
        if self.world > 1:
            for tensor in (*(module.parameters() if parameters else ()), *module.buffers()):
                dist.broadcast(tensor.detach(), src=0)

    def total(self, **values: float) -> dict[str, float]:
        """Sums over ranks, in double precision: of losses times their counts, of errors, of counts."""
        if self.world == 1:
            return {name: float(value) for name, value in values.items()}
        sums = torch.tensor([float(value) for value in values.values()], dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return dict(zip(values, sums.tolist(), strict=True))

    def any(self, flag: bool) -> bool:
        """Whether the flag is true on any rank: to stop together, since one that stops alone leaves others waiting."""
        return self.total(flag=float(flag))["flag"] > 0

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.total(here=1.0)

    def _row_counts(self, x: Tensor) -> list[int]:
        """Rows of x on every rank; refuses, on all ranks alike, rows that cannot be put together."""
        if x.dim() == 0 or x.dim() > MAX_DIMENSIONS:
            raise ValueError(f"gather takes rows: a tensor of 1 to {MAX_DIMENSIONS} dimensions, got {x.dim()}")
        described = [DTYPES.index(x.dtype), int(x.requires_grad and torch.is_grad_enabled()), x.dim(), *x.shape]
        mine = torch.tensor(described + [-1] * (3 + MAX_DIMENSIONS - len(described)), device=self.device)
        everyone = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(everyone, mine)
        table = torch.stack(everyone).cpu()
        if bool((table != table[0])[:, [c for c in range(table.shape[1]) if c != 3]].any()):
            shapes = [
                f"rank {r}: {tuple(row[3 : 3 + row[2]])} {DTYPES[row[0]]}{' with gradient' if row[1] else ''}"
                for r, row in enumerate(table.tolist())
            ]
            raise ValueError("ranks may gather different numbers of rows, but not " + "; ".join(shapes))
        return cast(list[int], table[:, 3].tolist())


MAX_DIMENSIONS = 6
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)


# The derivative of a gather.
#
# Rank r holds z_r. After the gather every rank q holds Z = (z_0, ..., z_{R-1}) and computes a loss J_q(Z). Together the
# ranks minimise Σ_q J_q, whose derivative in z_r is
#
#     Σ_q ∂J_q/∂z_r  =  rows r of  Σ_q ∂J_q/∂Z,
#
# the sum over ranks of the gradients that arrive there, of which each rank keeps its own rows. (DistributedDataParallel
# then averages over ranks, which turns the sum of losses into their mean.) The gather and this sum are adjoint linear
# maps, so each is the derivative of the other, and derivatives of any order follow.


class _Gather(torch.autograd.Function):
    """z_r -> Z on every rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: list[int], rank: int) -> Tensor:
        ctx.counts, ctx.rank = counts, rank
        # Collectives want equal sizes: pad to the longest.
        padded = x.detach().new_zeros((max(counts), *x.shape[1:]))
        padded[: len(x)] = x
        # Booleans travel as bytes, which every backend knows.
        sent = padded.view(torch.uint8) if padded.dtype == torch.bool else padded
        parts = [torch.empty_like(sent) for _ in counts]
        if max(counts) > 0:
            dist.all_gather(parts, sent)
        return torch.cat([part.view(x.dtype)[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None, None]:
        return cast(Tensor, _SumToOwner.apply(grad[0], ctx.counts, ctx.rank)), None, None


class _SumToOwner(torch.autograd.Function):
    """G_q on every rank q -> rows r of Σ_q G_q on rank r."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, counts: list[int], rank: int) -> Tensor:
        ctx.counts, ctx.rank = counts, rank
        # Half precisions are summed in single precision.
        whole = grad.detach().to(torch.promote_types(grad.dtype, torch.float32), copy=True).contiguous()
        if sum(counts) > 0:
            dist.all_reduce(whole)
        return whole.split(counts)[rank].to(grad.dtype, copy=True)

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> tuple[Tensor, None, None]:
        return cast(Tensor, _Gather.apply(grad[0], ctx.counts, ctx.rank)), None, None


@final
@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of a graph, with features.

    Args:
        base: (b, d) features of the base.
        base_labels: (b,) its classes.
        queries: (q, d) features of the labelled samples, then of the unlabelled ones.
        target: (l,) the classes of the labelled samples, the first l queries: the only ones that have a loss.

    Differentiable in: `base`, `queries`.
    """

    base: Float[Tensor, "b d"]
    base_labels: Int[Tensor, " b"]
    queries: Float[Tensor, "q d"]
    target: Int[Tensor, " l"]

    @property
    def num_labelled(self) -> int:
        """How many queries have a loss."""
        return len(self.target)


class AbstractGraphs(ABC):
    """Which samples of a batch share a graph."""

    @property
    @abstractmethod
    def splits_base(self) -> bool:
        """Whether a rank encodes a share of the base only (`split_base` of `GraphBatches`)."""

    @abstractmethod
    def nodes(
        self,
        ranks: Ranks,
        base: Float[Tensor, "b d"],
        base_labels: Int[Tensor, " b"],
        labelled: Float[Tensor, "l d"],
        target: Int[Tensor, " l"],
        unlabelled: Float[Tensor, "u d"],
    ) -> Nodes:
        """The nodes of this rank's graph, from the features of its share of the batch."""


@final
@dataclass(frozen=True)
class PerRank(AbstractGraphs):
    """Every rank has a graph of its own share, with the whole base. Nothing is gathered.

    Differentiable in: the features.
    """

    @property
    def splits_base(self) -> bool:
        return False

    def nodes(
        self, ranks: Ranks, base: Tensor, base_labels: Tensor, labelled: Tensor, target: Tensor, unlabelled: Tensor
    ) -> Nodes:
        return Nodes(base, base_labels, torch.cat([labelled, unlabelled]), target)


@final
@dataclass(frozen=True)
class Gathered(AbstractGraphs):
    """One graph of all ranks' features, solved by every rank. Each encodes its share, of the base too.

    Differentiable in: the features, of all ranks.
    """

    @property
    def splits_base(self) -> bool:
        return True

    def nodes(
        self, ranks: Ranks, base: Tensor, base_labels: Tensor, labelled: Tensor, target: Tensor, unlabelled: Tensor
    ) -> Nodes:
        if ranks.world == 1:
            return PerRank().nodes(ranks, base, base_labels, labelled, target, unlabelled)
        sizes = [len(base), len(labelled), len(unlabelled)]
        z = torch.cat([base, labelled, unlabelled])
        # What each row is, and its class, in a second gather: the sizes of other ranks are not known here.
        kind = torch.arange(3, device=z.device).repeat_interleave(torch.tensor(sizes, device=z.device))
        known = torch.cat([base_labels.long(), target.long(), target.new_full((sizes[2],), -1, dtype=torch.int64)])
        z, about = ranks.gather(z), ranks.gather(torch.stack([kind, known], 1))
        order = about[:, 0].sort(stable=True).indices  # base of all ranks, then labelled, then unlabelled
        b, l, _ = about[:, 0].bincount(minlength=3).tolist()
        z, known = z[order], about[order, 1]
        return Nodes(z[:b], known[:b], z[b:], known[b : b + l])


GRAPHS: dict[str, AbstractGraphs] = {"rank": PerRank(), "gathered": Gathered()}


def synchronize_batchnorm(module: nn.Module) -> nn.Module:
    """The module with batch statistics over all ranks, as if one process had the whole batch; before `Ranks.wrap`.

    PyTorch has this for GPUs only. The parameters stay the same objects.
    """
    return nn.SyncBatchNorm.convert_sync_batchnorm(module)
