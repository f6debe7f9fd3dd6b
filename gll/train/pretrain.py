"""Contrastive warm-up: the encoder learns from all samples, labelled or not, before a head is put on it.

Every image is augmented twice. The two views should be alike (SimCLR, on all samples), and so should views of one class
(SupCon, on labelled samples); the loss is γ·SimCLR + (1 - γ)·SupCon. A small network, the *projection*, stands between
features and loss, and is stored beside the encoder.

SupCon can memorise the labelled images and ruin the graph, so the graph's error on hidden labelled samples is watched
(`watch.py`), and the best state is kept. γ = "choose" warms up once for every candidate, all from the same weights and
on the same batches, and keeps the one whose graph is best. What was measured is what is kept: nothing is trained again
with the hidden labels, which the head will see anyway.

A warm-up depends on nothing but its config: what is random is derived from seed, epoch and step, and a killed one goes
on from its last checkpoint to the same numbers. The loop itself is in `contrastive.py`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Int
from rich.table import Table
from torch import Tensor, nn

from gll.data.augment import augmentation_from_name
from gll.data.datasets import TrainTest
from gll.data.random import derived_seed, generator, own_random_state
from gll.data.splits import LabelSplit
from gll.train.checkpoint import load_state
from gll.train.config import Config
from gll.train.contrastive import Candidate, Contrastive, Task, candidate_from
from gll.train.distributed import Ranks
from gll.train.progress import Reporter
from gll.train.runs import Run, RunError
from gll.train.watch import Watch, hold_out

NAME = "warmup"  # of the checkpoint


@final
@dataclass(frozen=True, eq=False)
class WarmUp:
    """A finished warm-up.

    Args:
        projection: the network between features and loss, in the state that is kept.
        kept: what the encoder comes from.
        table: every γ that was tried.
        optimistic: the loss has seen the classes of the samples that were measured.
    """

    projection: nn.Module
    kept: Candidate
    table: tuple[Candidate, ...]
    optimistic: bool

    @property
    def helped(self) -> bool:
        """Whether the encoder has been changed; not if no epoch, with any γ, had a better graph than the start."""
        return self.kept.epoch > 0 or self.kept.epochs == 0

    def shown(self) -> Table:
        """As a table for a terminal."""
        table = Table(title=f"warm-up: the graph's error on {'seen' if self.optimistic else 'hidden'} labels")
        for name in ("γ", "error", "samples", "log loss", "kept epoch", "of"):
            table.add_column(name, justify="right")
        for c in self.table:
            mark = "→ " if c == self.kept and self.helped and len(self.table) > 1 else ""
            row = ("–", "–", "–")
            if c.look is not None:
                row = (f"{c.look.error:.1%} ± {c.look.spread:.1%}", f"{c.look.measured:,}", f"{c.look.loss:.3f}")
            table.add_row(f"{mark}{c.gamma:g}", *row, str(c.epoch), str(c.epochs))
        return table


def warm_up(
    encoder: nn.Module,
    data: TrainTest,
    split: LabelSplit,
    config: Config,
    run: Run,
    *,
    reporter: Reporter | None = None,
    ranks: Ranks | None = None,
) -> WarmUp:
    """Warm the encoder up as `config.warmup` says, or go on where `run` stopped.

    Args:
        encoder: with `feature_dim`, on the device of the data; changed in place: it ends in the state that is kept.
        data: images.
        split: whose classes may be used. Those of the others are never looked at.
        config: [warmup], the seed, and of [train] autocast, channels_last and compile.
        run: where metrics and checkpoints go: "warmup" when finished, "warmup-γ" until then.
        reporter: where to tell how it goes; by default nowhere.
        ranks: of several processes, each with all of the data; every step is shared between them, and the loss is that
            of the whole batch.

    Raises:
        ValueError: the data are not images, or there is nothing to choose γ by.
        NonFiniteError: the loss is no longer finite.

    Differentiable in: nothing.
    """
    reporter, ranks = reporter or Reporter(), ranks or Ranks(device=data.train.device)
    w, seed, device = config.warmup, config.seed, data.train.device
    gammas, shown, watch = plan_warm_up(data, split, config)
    labels = split.hidden(data.train_labels)
    with own_random_state():
        torch.manual_seed(derived_seed(seed, "warmup", "projection"))
        projection = projection_network(encoder, w.projection).to(device)
        stored = run.load(NAME)
        if stored is not None and "table" in stored[1]:
            return _restored(stored, encoder, projection)
        seen = torch.full_like(labels, -1)
        seen[shown.to(device)] = labels[shown.to(device)]
        task = Task(data, seen, watch, config, run, reporter, ranks)
        start = _state(encoder, projection)
        found: list[Candidate] = []
        best: tuple[Candidate, dict[str, Tensor]] | None = None
        for gamma in gammas:
            _load(encoder, projection, start)
            candidate = Contrastive(task, encoder, projection, gamma, f"{NAME}-{gamma!r}").run()
            found.append(candidate)
            if best is None or (candidate.look is not None and candidate.look.better_than(best[0].look)):
                best = candidate, _state(encoder, projection)
    assert best is not None
    _load(encoder, projection, best[1])
    result = WarmUp(projection, best[0], tuple(found), watch is not None and watch.optimistic)
    if len(gammas) > 1:
        table = [{"gamma": c.gamma, "epoch": c.epoch, "graph_error": c.look and c.look.error} for c in found]
        chosen = result.kept.gamma if result.helped else None
        run.log(phase="warmup", chosen=chosen, optimistic=result.optimistic, candidates=table)
    state = {
        "done": True,
        "kept": found.index(result.kept),
        "optimistic": result.optimistic,
        "table": [dataclasses.asdict(c) for c in found],
    }
    run.save(NAME, _state(encoder, projection), state)
    if reporter.console is not None:
        reporter.console.print(result.shown())
    if not result.helped:
        which = ", with any γ, and none is chosen" if len(gammas) > 1 else ""
        reporter.say(
            f"the graph was never better than before the warm-up{which}, so the encoder is kept as it was: try more "
            "epochs, another warmup.augment or warmup.lr, or warmup.keep=last"
        )
    return result


def plan_warm_up(
    data: TrainTest, split: LabelSplit, config: Config
) -> tuple[tuple[float, ...], Int[Tensor, " s"], Watch | None]:
    """What to try and how to tell: every γ, the labelled samples that the loss may see, and what is watched.

    Raises:
        ValueError: the data are not images, there is no such augmentation, or there is nothing to choose γ by.
    """
    w = config.warmup
    if not data.is_image:
        raise ValueError(
            f"{data.name} has points, not images, and no two views can be made of one: set warmup.epochs=0"
        )
    augmentation_from_name(w.augment)
    gammas = tuple(dict.fromkeys(w.candidates)) if isinstance(w.gamma, str) else (w.gamma,)
    shown, watch = hold_out(
        split.hidden(data.train_labels),
        split.labelled,
        split.unlabelled,
        num_classes=data.num_classes,
        share=w.held_out,
        loss_uses_labels=min(gammas) < 1,
        generator=generator(config.seed, "warmup", "hidden"),
        k=w.k,
        points=w.points,
    )
    if watch is None and len(gammas) > 1:
        raise ValueError("no class has two labels, so none can be hidden to choose γ by: give warmup.gamma a number")
    return gammas, shown, watch


def load_warm_up(run: Run, encoder: nn.Module) -> WarmUp:
    """Copy what a finished warm-up has kept into the encoder.

    Raises:
        RunError: the run has none.
    """
    stored = run.load(NAME)
    if stored is None or "table" not in stored[1]:
        raise RunError(
            f"{run.directory} has no finished warm-up; make one by `gll pretrain`, or finish it by "
            f"`gll pretrain --resume {run.directory}`"
        )
    return _restored(stored, encoder, projection_network(encoder, run.config.warmup.projection))


def projection_network(encoder: nn.Module, sizes: tuple[int, ...] = ()) -> nn.Sequential:
    """Linear layers with ReLU between, of the sizes given; by default D → D → 128, D the dimension of the features.

    >>> encoder = nn.Identity()
    >>> encoder.feature_dim = 64
    >>> [tuple(p.shape) for p in projection_network(encoder).parameters() if p.dim() == 2]
    [(64, 64), (128, 64)]
    """
    size = getattr(encoder, "feature_dim", None)
    if not isinstance(size, int):
        raise TypeError(f"{type(encoder).__name__} has no feature_dim: make it an encoder by gll.nn.encoders.headless")
    layers: list[nn.Module] = []
    for wanted in sizes or (size, 128):
        layers += [nn.Linear(size, wanted), nn.ReLU()]
        size = wanted
    return nn.Sequential(*layers[:-1])


def _state(encoder: nn.Module, projection: nn.Module) -> dict[str, Tensor]:
    """A copy of both, under the names of the checkpoint."""
    both = {"encoder": encoder, "projection": projection}
    return {f"{part}.{k}": v.detach().clone() for part, m in both.items() for k, v in m.state_dict().items()}


def _load(encoder: nn.Module, projection: nn.Module, state: dict[str, Tensor]) -> None:
    for part, module in (("encoder.", encoder), ("projection.", projection)):
        load_state(module, {k.removeprefix(part): v for k, v in state.items() if k.startswith(part)}, part[:-1])


def _restored(stored: tuple[dict[str, Tensor], dict[str, Any]], encoder: nn.Module, projection: nn.Module) -> WarmUp:
    tensors, state = stored
    _load(encoder, projection, tensors)
    table = tuple(candidate_from(c) for c in state["table"])
    return WarmUp(projection, table[state["kept"]], table, state["optimistic"])
