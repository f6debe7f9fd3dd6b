"""What the tests of several processes compute: `torchrun tests/ranks.py FOLDER`, or imported as one process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gll.data.sampling import Batch, GraphBatches
from gll.data.splits import LabelSplit
from gll.nn.heads import AbstractHead, create_head
from gll.train.distributed import GRAPHS, AbstractGraphs, Ranks

STEPS = 3


def model(seed: int = 5) -> tuple[nn.Module, AbstractHead]:
    """An encoder and a graph head with parameters of its own."""
    torch.manual_seed(seed)
    encoder = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 8)).double()
    return encoder, create_head("gll", 8, 3, k=8, projection=5).double()


def data() -> tuple[Tensor, Tensor, LabelSplit]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(260, 6, generator=generator, dtype=torch.float64)
    y = x[:, :3].argmax(1)
    return x, y, LabelSplit(torch.arange(100), torch.arange(100, 260))


def batches(ranks: Ranks, graphs: AbstractGraphs) -> Iterator[Batch]:
    """20 base, and 16 labelled + 32 unlabelled of all ranks together; five steps an epoch."""
    _, y, split = data()
    sampler = GraphBatches(
        y, split, batch=48, base=20, seed=1, num_replicas=ranks.world, rank=ranks.rank, split_base=graphs.splits_base
    )
    return sampler.epoch(2)


def loss_of(encoder: nn.Module, head: AbstractHead, batch: Batch, ranks: Ranks, graphs: AbstractGraphs) -> Tensor:
    x, y, _ = data()
    base, labelled, unlabelled = encoder(x[batch.nodes]).split(batch.sizes)
    nodes = graphs.nodes(ranks, base, y[batch.base], labelled, y[batch.labelled], unlabelled)
    logits = head(nodes.queries, nodes.base, nodes.base_labels)
    return head.loss(logits[: nodes.num_labelled], nodes.target)


def gradients(encoder: nn.Module, head: AbstractHead) -> dict[str, Tensor]:
    both = nn.ModuleDict({"encoder": encoder, "head": head})
    return {name: p.grad.clone() for name, p in both.named_parameters() if p.grad is not None}


def training(ranks: Ranks, graphs: AbstractGraphs, *, frozen: bool = False) -> dict[str, Any]:
    """A few steps: the mean loss over ranks, the gradients of the first step, and the parameters after the last."""
    encoder, head = model(seed=5 if ranks.is_first else 6)  # other ranks start elsewhere: rank 0's parameters count
    ranks.same_everywhere(head)
    call = ranks.wrap(encoder, unused=frozen)
    if frozen:
        encoder[0].requires_grad_(False)
    losses, first = [], {}
    for batch, _ in zip(batches(ranks, graphs), range(STEPS), strict=False):
        encoder.zero_grad()
        head.zero_grad()
        loss = loss_of(call, head, batch, ranks, graphs)
        loss.backward()
        ranks.average_gradients(head)
        losses.append(ranks.total(loss=loss.item())["loss"] / ranks.world)
        first = first or gradients(encoder, head)
        with torch.no_grad():  # by hand: importing torch.optim's machinery takes longer than all the rest
            for p in (*encoder.parameters(), *head.parameters()):
                if p.grad is not None:
                    p -= 0.5 * p.grad
    state = {
        f"{part}.{name}": p.detach() for part, m in (("e", encoder), ("h", head)) for name, p in m.named_parameters()
    }
    return {"losses": losses, "first": first, "last": state}


def gathering(ranks: Ranks) -> dict[str, Any]:
    """Values and derivatives of a gather of 3 rows on rank 0 and 5 on rank 1, and of other types."""
    r = ranks.rank
    z = (torch.arange(8.0, dtype=torch.float64)[:, None] + torch.tensor([0.1, 0.2]))[
        slice(0, 3) if r == 0 else slice(3, 8)
    ]
    z.requires_grad_()
    whole = ranks.gather(z)
    weight = torch.full((8, 2), r + 1.0, dtype=torch.float64) * torch.arange(8.0, dtype=torch.float64)[:, None]
    (linear,) = torch.autograd.grad((whole * weight).sum(), z, retain_graph=True)
    (first,) = torch.autograd.grad(whole.pow(3).sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), z)
    none = ranks.gather(torch.full((0 if r == 0 else 2,), 7))
    half = torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True)
    both = ranks.gather(half)
    both.sum().backward()
    refused = {}
    for name, x in (
        ("width", torch.zeros(3, 4 + r)),
        ("type", torch.zeros(3, dtype=torch.float32 if r else torch.float64)),
        ("gradient", torch.zeros(3, 2, requires_grad=r == 0)),
    ):
        try:
            ranks.gather(x)
        except ValueError as error:
            refused[name] = str(error)
    return {
        "values": whole.detach(),
        "linear": linear,
        "first": first.detach(),
        "second": second,
        "none": none,
        "empty": ranks.gather(torch.zeros(0, 2, requires_grad=True)).sum().detach(),
        "flags": ranks.gather(torch.tensor([r == 0, True])),
        "half": both.detach(),
        "half gradient": half.grad,
        "refused": refused,
    }


def metrics(ranks: Ranks) -> dict[str, Any]:
    share = ranks.share(7)
    ranks.barrier()
    return {
        "total": ranks.total(loss=1.5 * (ranks.rank + 1), count=2),
        "any": [ranks.any(False), ranks.any(ranks.rank == 1), ranks.any(True)],
        "share": [share.start, share.stop],
        "first": ranks.is_first,
        "rank": ranks.rank,
        "world": ranks.world,
    }


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    with Ranks.start("cpu", minutes=2) as ranks:
        answers: dict[str, Any] = {name: training(ranks, graphs) for name, graphs in GRAPHS.items()}
        answers["frozen"] = training(ranks, GRAPHS["gathered"], frozen=True)
        answers["gather"] = gathering(ranks)
        answers["metrics"] = metrics(ranks)
        torch.save(answers, folder / f"rank{ranks.rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
