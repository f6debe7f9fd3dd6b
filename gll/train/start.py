"""A new run: everything that its config asks for is tried before a directory is made.

What is wrong with a config should be said in the first second, not after hours of warm-up. So data, networks, the
schedule of heads, the batches of every process, the warm-up and the devices are all looked at here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gll.data.augment import AbstractAugmentation, augmentation_from_name
from gll.data.datasets import TrainTest
from gll.data.fingerprint import changes, fingerprint
from gll.data.random import generator, own_random_state
from gll.data.sampling import GraphBatches, base_set_from_name
from gll.data.splits import LabelSplit, split_labels
from gll.nn.heads import AbstractHead, Switch, WNLLHead
from gll.solution import SolveError
from gll.train.adversarial import check_adversarial, check_unlabelled
from gll.train.config import Config
from gll.train.distributed import GRAPHS, Ranks
from gll.train.evaluate import at_work
from gll.train.model import Model, build, encode, find_device, free_heads, keep_projection, load_data
from gll.train.own_encoder import GIVEN
from gll.train.pretrain import load_warm_up, plan_warm_up, projection_network
from gll.train.runs import Run, RunError, refuse_existing
from gll.train.toml import ConfigError
from gll.train.unused import check_unused_names
from gll.words import counted


def new_run(config: Config, ranks: Ranks | None = None, *, encoder: nn.Module | str | None = None) -> Run:
    """A run directory for a config, after a look at whether everything in it can be done.

    Args:
        config: what is to be done.
        ranks: the processes that will train together; by default this one alone.
        encoder: a network of your own, in place of `model.encoder`, which then says "given": with a `feature_dim`, or
            any that ends with a linear layer (`gll.nn.encoders.headless` takes it off). To be given to `train` too. A
            name has to be that of the config, whose encoder may be code of your own: it is made here.

    Raises:
        ConfigError, RunError, ValueError: something cannot be done. No directory is made then.
    """
    ranks = ranks or Ranks()
    if isinstance(encoder, nn.Module):
        config = replace(config, model=replace(config.model, encoder=GIVEN, encoder_options={}))
    refuse_existing(config.directory)
    check_unused_names(config)
    find_device(config.test.device or "cpu", "test.device")
    check_processes(config, ranks)
    data = load_data(config)
    if data.is_image and bool((data.train == data.train[:1]).all()):
        raise ConfigError(
            f"all {len(data.train):,} training images of {data.name} are the same: nothing can be learned"
        )
    split = split_labels(data.train_labels, config.data.labels, seed=config.seed, classes=data.classes)
    model = build(config, data, encoder=config.model.encoder if encoder is None else encoder)
    free_heads(config, model.encoder, data)
    make_augmentation(config, data)
    check_schedule(config, model.head)
    check_adversarial(config, data, model)
    check_encoder(config, data, model)
    check_steps(config, data, split, model, ranks)
    check_warm_up(config, data, split, model)
    return Run.create(config.directory, config, split, data)


def check_processes(config: Config, ranks: Ranks) -> None:
    """Refuse what several processes cannot share."""
    for key, number in (("train.batch", config.train.batch), ("train.labelled", config.train.labelled)):
        below = number - number % ranks.world
        if below != number:
            raise ConfigError(
                f"{key} = {number} is shared by {ranks.world} processes, and must be a multiple of that number: use "
                f"{f'{below} or ' if below else ''}{below + ranks.world}"
            )
    if config.base.apart and ranks.world > 1:  # processes that share gradients see one call of the encoder a step
        raise ConfigError(f"base.apart is for one process, and there are {ranks.world}: leave it out, or start one")
    if config.train.sync_batchnorm and ranks.world > 1 and ranks.device.type != "cuda":
        raise ConfigError("train.sync_batchnorm needs GPUs: PyTorch has no such layer on a CPU")


def check_encoder(config: Config, data: TrainTest, model: Model) -> None:
    """Refuse an encoder that does not take these samples, makes no features of them, or cannot learn."""
    if model.trains_encoder and model.parameters() and not any(p.requires_grad for p in model.parameters()):
        raise ConfigError(
            f'no parameter of model.encoder = "{config.model.encoder}" may be trained (requires_grad is False), and '
            "the head has none: there is nothing to learn"
        )
    try:
        encode(model.encoder, data.train[:2], data, config)
    except ConfigError as error:
        raise ConfigError(f'model.encoder = "{config.model.encoder}": {error}') from None
    except Exception as error:  # the code of the user's own network may fail in any way
        ways = "data.pad=32 pads images with zeros, data.size=32 scales those of your own; or take another encoder"
        height, width = data.train.shape[-2:]
        if height == width and "image_size=" in str(error):  # of our own encoders that are made for one size
            ways = f"model.encoder_options.image_size={height}; or take another encoder"
        raise ConfigError(
            f'model.encoder = "{config.model.encoder}" does not take the samples of {data.name}, of shape '
            f"{tuple(data.train.shape[1:])}: {str(error) or repr(error)}. In a config: "
            f"{ways if data.is_image else 'mlp is for points'}"
        ) from error


def check_steps(config: Config, data: TrainTest, split: LabelSplit, model: Model, ranks: Ranks) -> None:
    """Refuse batches that cannot be drawn, and options that a head cannot work with; features are made up."""
    tried, unlabelled = set(), 0
    for epoch in range(config.train.epochs if model.parameters() else 0):
        model.head.start_epoch(epoch, model.encoder)
        kind = (at_work(model.head), model.head.uses_base)
        if kind in tried:
            continue
        tried.add(kind)
        batch = next(make_batches(config, data.train_labels, split, ranks, model.head.uses_base).epoch(0))
        unlabelled = max(unlabelled, batch.sizes[2])
        z = torch.randn(len(batch), int(model.encoder.feature_dim), generator=generator(0, "try"))  # type: ignore[arg-type]
        base, labelled, other = z.split(batch.sizes)
        with torch.no_grad(), suppress(SolveError):  # what made-up features do on a graph says nothing
            model.head(torch.cat([labelled, other]), base, data.train_labels[batch.base])
    model.head.release()
    if tried:
        check_unlabelled(config, unlabelled)


def check_warm_up(config: Config, data: TrainTest, split: LabelSplit, model: Model) -> None:
    """Refuse a warm-up that cannot be made, cannot be taken from where it is said to be, or does not fit the head."""
    w = config.warmup
    with own_random_state():
        if w.from_run:
            source = Run.open(Path(w.from_run))
            check_same_start(config, split, fingerprint(data), source)
            projection = load_warm_up(source, model.encoder).projection
        elif w.epochs > 0:
            plan_warm_up(data, split, config)
            projection = projection_network(model.encoder, w.projection)
        else:
            return
    if w.keep_projection:
        keep_projection(model.head, projection)


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
                f'"{name}" trains a classifier for {counted(part.stage1, "epoch")} before it comes to a graph, but has '
                f"{most} in all, and so would never come to one; lower model.head_options.stage1, for example to "
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
        again=config.base.again,
    )


def step_in_words(config: Config, batches: GraphBatches, num_classes: int) -> str:
    """What a step holds and how many make an epoch; what to do where hardly a sample of a step has a loss.

    With few labels their share in the data, which the paper's equation keeps, is less than a sample of each class.
    """
    base, labelled, unlabelled = batches.sizes
    beside = [counted(unlabelled, "unlabelled sample")] if unlabelled else []
    beside += [f"a base of {base:,}"] if base else []
    said = f"a step: {counted(labelled, 'labelled sample')}{''.join(f' + {part}' for part in beside)}"
    said += f"; {counted(len(batches), 'step')} an epoch"
    if config.train.labelled or labelled >= num_classes or not unlabelled:
        return said
    more = min(num_classes, config.train.batch)
    return f"{said}; only the labelled ones have a loss: train.labelled={more} or more makes an epoch of fewer steps"


def check_same_start(config: Config, split: LabelSplit, data: Mapping[str, Any] | None, source: Run) -> None:
    """A warm-up may be shared by runs that differ in their head, not by runs that hide other labels, if it used any.

    Args:
        config, split, data: those of the run that wants it; of the data, the fingerprint.
        source: the run that has it.
    """
    m, theirs = config.model, source.config.model
    if (m.encoder, dict(m.encoder_options)) != (theirs.encoder, dict(theirs.encoder_options)):
        raise RunError(
            f"warmup.from: {source.directory} has another encoder: {theirs.encoder} {dict(theirs.encoder_options)}, "
            f"here {m.encoder} {dict(m.encoder_options)}"
        )
    found = changes(data, source.fingerprint) if data is not None and source.fingerprint is not None else []
    if found:
        raise RunError(f"warmup.from: {source.directory} was made with other data: it had {' and '.join(found)}")
    same = len(split) == len(source.split) and torch.equal(split.labelled, source.split.labelled)
    if source.config.warmup.uses_labels and not same:
        raise RunError(
            f"warmup.from: {source.directory} was made with other labels; use the same data.labels and seed in both"
        )
