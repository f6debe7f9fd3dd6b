"""Encoder and head from a config, and the features of many images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gll.data.datasets import TrainTest, load, normalize
from gll.data.random import derived_seed
from gll.names import require_name
from gll.nn.heads import AbstractHead, GLLHead, MLPHead, Switch, WNLLHead, create_head, scaled_stages
from gll.train.checkpoint import load_state
from gll.train.config import Config, TestConfig
from gll.train.distributed import synchronize_batchnorm
from gll.train.own_encoder import check_named, make_encoder
from gll.train.runs import Run, RunError
from gll.train.toml import ConfigError
from gll.words import counted

CHECKPOINT = "train"
GRAPH_HEADS = ("gll", "wnll")  # that take test.k and test.tau
FREE_HEADS = ("gll", "knn")  # that need no training, and so can judge any encoder


@final
@dataclass(frozen=True, eq=False)
class Model:
    """What is trained.

    Args:
        encoder: images to features.
        head: features to classes.
    """

    encoder: nn.Module
    head: AbstractHead

    @property
    def parts(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder, "head": self.head}

    @property
    def trains_encoder(self) -> bool:
        """Whether the encoder is trained in any epoch; of a switch, by either head."""
        heads = (self.head.first, self.head.second) if isinstance(self.head, Switch) else (self.head,)
        return any(head.trains_encoder for head in heads)

    def parameters(self) -> list[nn.Parameter]:
        """All that may be trained, in any epoch: those of the head alone where the encoder never is."""
        parts: Iterable[nn.Module] = self.parts.values() if self.trains_encoder else (self.head,)
        return [p for part in parts for p in part.parameters()]

    def numbers(self) -> list[Tensor]:
        """Parameters, and statistics such as those of batch normalisation."""
        return [t for part in self.parts.values() for t in part.state_dict().values() if t.is_floating_point()]

    def train(self) -> None:
        """Training mode: dropout, statistics of the batch. An encoder that the head does not train keeps its own."""
        self.encoder.train(self.head.trains_encoder)
        self.head.train()

    def eval(self) -> None:
        self.encoder.eval()
        self.head.eval()

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers, named for a checkpoint."""
        return {f"{part}.{name}": t for part, m in self.parts.items() for name, t in m.state_dict().items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave.

        Raises:
            CheckpointError: they are those of another network; that of the user's own code may have changed.
        """
        for part, module in self.parts.items():
            prefix = f"{part}."
            load_state(module, {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}, part)


def load_data(config: Config, device: torch.device | str = "cpu") -> TrainTest:
    """The data a config names, padded, on the device."""
    c = config.data
    data = load(c.name, Path(c.root) if c.root else None, size=c.size or None, channels=c.channels or None)
    return (data.padded(c.pad) if c.pad else data).to(device)


def data_of(run: Run, device: torch.device | str = "cpu") -> TrainTest:
    """The data of a run, on the device: that which it was made with a moment ago, else read again.

    Raises:
        RunError: the training data has changed since the run was made.
    """
    if run.loaded:
        return run.loaded.pop().to(device)
    data = load_data(run.config)
    run.check_data(data)
    return data.to(device)


def build(config: Config, data: TrainTest, *, processes: int = 1, encoder: nn.Module | str | None = None) -> Model:
    """Encoder and head with their initial weights, which depend on the seed alone, on the device of the data.

    Args:
        config: its [model], seed, and how it is tested and trained.
        data: what it is for.
        processes: how many train together.
        encoder: that of a run with `model.encoder = "given"`; a copy is used, which keeps its weights. If code of your
            own makes the encoder: its name again, as `make_encoder` wants it.
    """
    m, device = config.model, data.train.device
    with torch.random.fork_rng([]):
        torch.manual_seed(derived_seed(config.seed, "weights"))
        made = make_encoder(m.encoder, data.channels, m.encoder_options, encoder)
        head = make_head(m.head, made, data, config.test, m.head_options, config.train.epochs - m.switch_at)
        if m.switch_at > 0:
            first = make_head(m.first, made, data, config.test, m.first_options, m.switch_at)
            head = Switch(first, head, m.switch_at)
    made.to(device)
    if config.train.channels_last and data.is_image:
        made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if config.train.sync_batchnorm and processes > 1:
        made = synchronize_batchnorm(made)
    return Model(made, head.to(device))


def build_run(
    run: Run, device: torch.device | str, *, processes: int = 1, encoder: nn.Module | str | None = None
) -> tuple[Model, TrainTest]:
    """The model of a run with its initial weights, and its data.

    Args:
        run: the run.
        device: where to.
        processes: how many train together.
        encoder: as for `restore`.
    """
    m, given = run.config.model, run.named if encoder is None else encoder
    check_named(m.encoder, m.encoder_options, given, str(run.directory))
    data = data_of(run, device)
    return build(run.config, data, processes=processes, encoder=given), data


def make_head(
    name: str, encoder: nn.Module, data: TrainTest, test: TestConfig, options: Mapping[str, Any], epochs: int
) -> AbstractHead:
    """A head that fits the encoder, with the options that `head_options` says."""
    known = head_options(name, test, options, epochs)
    return create_head(name, int(encoder.feature_dim), data.num_classes, **known)  # type: ignore[arg-type]


def head_options(name: str, test: TestConfig, options: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """What a head is made with beside its defaults; graph heads take k and τ of their test from the config.

    Where the options do not have WNLL's first stage, both stages follow from the epochs that the head will train for.
    """
    usual: dict[str, Any] = {"test_k": test.k, "test_tau": test.tau} if name in GRAPH_HEADS else {}
    if name == "wnll" and "stage1" not in options:
        usual["stage1"], usual["stage2"] = scaled_stages(epochs)
    return usual | dict(options)


def free_heads(config: Config, encoder: nn.Module, data: TrainTest) -> dict[str, AbstractHead]:
    """The heads of test.also: those that need no training and so can judge any encoder."""
    for name in config.test.also:
        require_name("head in test.also (only those that need no training)", name, FREE_HEADS)
    return {name: make_head(name, encoder, data, config.test, {}, 0) for name in config.test.also}


def keep_projection(head: AbstractHead, projection: nn.Module) -> None:
    """Let the head's first layers start as the projection of a warm-up."""
    wanted = projection.state_dict()
    places = _first_layers(head)
    for place in places:
        there = place.state_dict()
        if any(name not in there or there[name].shape != tensor.shape for name, tensor in wanted.items()):
            shapes = [tuple(tensor.shape) for tensor in wanted.values() if tensor.dim() == 2]
            raise ConfigError(
                f"warmup.keep_projection: the head's first layers are not like the projection's, {shapes}"
            )
        place.load_state_dict(there | wanted)
    if not places:
        raise ConfigError(
            "warmup.keep_projection: the head has no layers of its own (gll has some with head_options.projection=128)"
        )


def _first_layers(head: AbstractHead) -> list[nn.Module]:
    """Linear layers of the head's own that see the features first."""
    if isinstance(head, Switch):
        return _first_layers(head.first) + _first_layers(head.second)
    if isinstance(head, MLPHead):
        return [head.layers]
    if isinstance(head, WNLLHead):
        return [head.body]
    return [head.projection] if isinstance(head, GLLHead) and head.projection is not None else []


@torch.no_grad()
def encode(encoder: nn.Module, images: Tensor, data: TrainTest, config: Config) -> Float[Tensor, "n d"]:
    """Features of images as they are, not augmented, in evaluation mode and in batches; float32, on their device.

    Differentiable in: nothing.
    """
    was_training = encoder.training
    encoder.eval()
    device = next(encoder.parameters(), images).device
    try:
        parts = [
            features(encoder, normalize(part.to(device), data), config).to(images.device)
            for part in images.split(config.test.batch)
        ]
    finally:
        encoder.train(was_training)
    found = torch.cat(parts)
    wanted = getattr(encoder, "feature_dim", found.shape[1])
    if found.shape[1] != wanted:
        raise ConfigError(
            f"the encoder says feature_dim = {wanted}, but makes {counted(found.shape[1], 'feature')} of a sample"
        )
    return found


def is_compiled(encoder: nn.Module) -> bool:
    """Whether it, or a part of it, is compiled by torch.compile."""
    return any(type(module).__name__ == "OptimizedModule" for module in encoder.modules())


def features(encoder: nn.Module, x: Tensor, config: Config) -> Tensor:
    """encoder(x) as [train] says: in bfloat16 and channels-last if asked for; float32 comes out."""
    if config.train.channels_last and x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=config.train.autocast):
        z: Tensor = encoder(x)
    if not isinstance(z, Tensor) or z.dim() != 2:  # networks of the user's own
        got = f"shape {tuple(z.shape)}" if isinstance(z, Tensor) else f"type {type(z).__name__}"
        raise ConfigError(
            f"the features of {counted(len(x), 'sample')} have {got}, but should be a row a sample, ({len(x)}, "
            "feature_dim): pool or flatten them at the end of the encoder"
        )
    return z.float()


def restore(
    run: Run, device: torch.device | str = "cpu", *, encoder: nn.Module | str | None = None
) -> tuple[Model, TrainTest]:
    """The model of a run's last checkpoint, in evaluation mode, and its data.

    Args:
        run: the run.
        device: where to.
        encoder: a module like the one that was given to `train`, if one was. Its weights do not matter; it stays as it
            is. Where a run that was opened names code of your own, "package.module:name": this name again. Without it
            nothing that a run names is imported.

    Raises:
        ConfigError: the encoder was not given, or is not that of the run.
        RunError: nothing was trained yet, or the data has changed.
    """
    stored = run.load(CHECKPOINT)
    if stored is None:
        raise RunError(f"{run.directory} has no trained model yet; go on with `gll train --resume {run.directory}`")
    model, data = build_run(run, device, encoder=encoder)
    model.load(stored[0])
    model.eval()
    return model, data


def find_device(name: str, key: str = "device") -> torch.device:
    """The device that `key` of a config names; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f'{key} must be "auto", "cpu", "cuda" or "cuda:N", got {name!r}') from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"{key} is {name!r}, but PyTorch finds no GPU; use {key}=cpu")
    return device
