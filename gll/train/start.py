"""A new run: everything that its config asks for is tried before a directory is made.

What is wrong with a config should be said in the first second, not after hours of warm-up. So data, networks, the
schedule of heads, the batches of every process, the warm-up and the devices are all looked at here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gll.data.augment import AbstractAugmentation, augmentation_from_name
from gll.data.datasets import TrainTest
from gll.data.sampling import GraphBatches, base_set_from_name
from gll.data.splits import LabelSplit, split_labels
from gll.nn.heads import AbstractHead, Switch, WNLLHead
from gll.train.config import Config
from gll.train.distributed import GRAPHS, Ranks
from gll.train.model import build, free_heads, load_data
from gll.train.runs import Run, RunError, refuse_existing
from gll.train.toml import ConfigError


def new_run(config: Config) -> Run:
    """A run directory for a config, after a look at whether everything in it can be done."""
    refuse_existing(config.directory)
    data = load_data(config)
    split = split_labels(data.train_labels, config.data.labels, seed=config.seed)
    model = build(config, data)
    free_heads(config, model.encoder, data)
    make_augmentation(config, data)
    check_schedule(config, model.head)
    bases = set()
    for epoch in range(config.train.epochs if model.parameters() else 0):
        model.head.start_epoch(epoch, model.encoder)
        bases.add(model.head.uses_base)
    for uses_base in bases:
        make_batches(config, data.train_labels, split, Ranks(), uses_base)
    return Run.create(config.directory, config, split)


def check_schedule(config: Config, head: AbstractHead) -> None:
    """Refuse a switch or a stage that the run ends before, and a switch of heads that do not learn."""
    epochs, m = config.train.epochs, config.model
    turns = [(m.head, head, epochs)]  # every head, and how many epochs it has
    if isinstance(head, Switch):
        if m.switch_at >= epochs:
            raise ConfigError(
                f"model.switch_at = {m.switch_at} is never reached, as train.epochs = {epochs}: all epochs would train "
                f'"{m.first}"; switch earlier, or train for longer'
            )
        turns = [(m.first, head.first, m.switch_at), (m.head, head.second, epochs - m.switch_at)]
        for name, part, _ in turns:
            if not part.trains_encoder and not any(True for _ in part.parameters()):
                raise ConfigError(
                    f'"{name}" learns nothing, so it can have no epochs of its own: set model.switch_at=0, or name it '
                    "in test.also"
                )
    for name, part, most in turns:
        if isinstance(part, WNLLHead) and part.stage2 > 0 and 0 < most <= part.stage1:
            raise ConfigError(
                f'"{name}" trains a classifier for {part.stage1} epochs before it comes to a graph, but has {most} in '
                "all, and so would never come to one; lower model.head_options.stage1, for example to "
                f"{most * 3 // 4}, or train for longer"
            )


def make_augmentation(config: Config, data: TrainTest) -> AbstractAugmentation:
    """How [data] says that images are changed at random."""
    if not data.is_image and config.data.augment != "none":
        raise ConfigError(f'{config.data.name} has points, not images: use data.augment="none"')
    return augmentation_from_name(config.data.augment, **config.data.augment_options)


def make_batches(config: Config, labels: Tensor, split: LabelSplit, ranks: Ranks, uses_base: bool) -> GraphBatches:
    """The batches that [train] and [base] ask for; this process's share of them."""
    return GraphBatches(
        labels,
        split,
        batch=config.train.batch,
        base=config.base.size if uses_base else 0,
        base_set=base_set_from_name(config.base.strategy, config.base.selection),
        seed=config.seed,
        num_replicas=ranks.world,
        rank=ranks.rank,
        labelled=config.train.labelled or None,
        steps=config.train.steps or None,
        split_base=GRAPHS[config.train.graph].splits_base,
    )


def check_same_start(config: Config, run: Run, source: Run) -> None:
    """A warm-up may be shared by runs that differ in their head, not by runs that hide other labels."""
    other = source.config
    for what, mine, theirs in (
        ("data", (config.data.name, config.data.pad), (other.data.name, other.data.pad)),
        (
            "encoder",
            (config.model.encoder, dict(config.model.encoder_options)),
            (other.model.encoder, dict(other.model.encoder_options)),
        ),
    ):
        if mine != theirs:
            raise RunError(f"warmup.from: {source.directory} has other {what}: {theirs}, here {mine}")
    if not torch.equal(run.split.labelled, source.split.labelled):
        raise RunError(
            f"warmup.from: {source.directory} was made with other labels; use the same data.labels and seed in both"
        )
