"""Everything a run depends on: frozen dataclasses, read from TOML and changed by `key=value`.

A config file holds what differs from the defaults below. Each field carries one line that says what it is; an unknown
key, a value of another type or one out of range is an error that names the key and what was meant.

    name = "digits-gll"
    [data]
    name = "digits"
    labels = "10 each"

Read next: `loop.py`, which does what the config says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast, final

from gll.train import toml
from gll.train.adversarial_config import AdversarialConfig
from gll.train.toml import ConfigError, Scalar
from gll.train.toml import check as _check
from gll.train.toml import one_of as _one_of


@final
@dataclass(frozen=True)
class DataConfig:
    """What is learned from.

    Args:
        name: a data set (`gll data list`), or the path of an image folder or an .npz file.
        root: folder of the data sets; empty: GLL_DATA, or data/.
        labels: which training samples keep their class: "whole", "2%", "10 each".
        augment: name of the augmentation of training images.
        augment_options: its further arguments.
        pad: pad images with zeros to this size; 0: leave them.
        size: scale your own images to this size; 0: as they are.
        channels: make your own images grey (1) or coloured (3); 0: as they are.
    """

    name: str = "digits"
    root: str = ""
    labels: str = "whole"
    augment: str = "none"
    augment_options: Mapping[str, Scalar] = field(default_factory=dict)
    pad: int = 0
    size: int = 0
    channels: int = 0

    def __post_init__(self) -> None:
        _check(self.name != "", "data.name", self.name, "the name of a data set or a path")
        _check(self.pad >= 0, "data.pad", self.pad, "at least 0")
        _check(self.size >= 0, "data.size", self.size, "at least 0")
        _check(self.channels in (0, 1, 3), "data.channels", self.channels, "1, 3 or 0")


@final
@dataclass(frozen=True)
class ModelConfig:
    """What is trained.

    Args:
        encoder: name of the network, see `gll.nn.encoders.ENCODERS`; or "package.module:function", which makes one of
            your own.
        encoder_options: its further arguments.
        head: what classifies its features: gll, mlp, linear, wnll, knn, probe.
        head_options: its further arguments, such as k.
        first: the head that trains before `switch_at`.
        first_options: its further arguments.
        first_lr: learning rate until `switch_at`, at its highest; 0: train.lr.
        switch_at: the epoch from which `head` trains; 0: from the start. 50 with `first = "mlp"` is the paper's GLL-50.
    """

    encoder: str = "digits-cnn"
    encoder_options: Mapping[str, Scalar] = field(default_factory=dict)
    head: str = "gll"
    head_options: Mapping[str, Scalar] = field(default_factory=dict)
    first: str = "mlp"
    first_options: Mapping[str, Scalar] = field(default_factory=dict)
    first_lr: float = 0.0
    switch_at: int = 0

    def __post_init__(self) -> None:
        _check(self.first_lr >= 0, "model.first_lr", self.first_lr, "at least 0")
        _check(self.switch_at >= 0, "model.switch_at", self.switch_at, "an epoch, at least 0")


@final
@dataclass(frozen=True)
class BaseConfig:
    """The base set: labelled samples whose labels are spread over the graph, and which never enter the loss.

    Args:
        size: how many samples.
        strategy: "stratified" (drawn anew each epoch), "fixed", "entropy" or "l2" (the most uncertain).
        selection: of the uncertain: "top" scores, or "localmax", which spreads them out.
        again: let samples of the base enter the loss as other augmented images of theirs, for so few labels that a
            base would leave none; with train.steps, train.labelled may then exceed the number of labels.
        apart: pass the base through the encoder by itself: batch normalisation then takes its statistics from the base
            alone, and those of the other samples from them. For one process.
    """

    size: int = 100
    strategy: str = "stratified"
    selection: str = "top"
    again: bool = False
    apart: bool = False

    def __post_init__(self) -> None:
        least = 2 if self.apart else 1  # one sample has no statistics
        _check(self.size >= least, "base.size", self.size, f"at least {least}" + " with base.apart" * self.apart)
        _one_of("base.strategy", self.strategy, ("stratified", "fixed", "entropy", "l2"))
        _one_of("base.selection", self.selection, ("top", "localmax"))


@final
@dataclass(frozen=True)
class WarmupConfig:
    """Contrastive training of the encoder before the head, on all samples.

    Args:
        epochs: how many; 0: no warm-up.
        gamma: share of the SimCLR loss, the rest is SupCon's; "choose": the best of `candidates`.
        candidates: what "choose" tries.
        temperature: of both losses.
        batch: samples a step, each seen twice.
        steps: steps an epoch; 0: one pass over all samples.
        optimizer, lr, momentum, weight_decay, schedule, step_epochs, step_factor, clip: as in [train].
        augment: how the two views are made.
        keep: the "best" state by the graph's error on held-out labelled samples, or the "last".
        patience: stop after so many looks without a better one; 0: never.
        held_out: share of the labelled samples that SupCon does not see, and that are classified from the others; 0:
            none are, and the labelled samples it saw are classified from each other, as in the paper.
        every: epochs between two looks at the graph's error.
        k: neighbours in the graph that is looked at.
        points: nodes of that graph, at most.
        save_every: epochs between two checkpoints.
        projection: sizes of the layers between features and loss; none: D and 128.
        keep_projection: let the head's own first layers start as these, where they are of the same sizes: those of an
            mlp, or of gll with `head_options.projection`. Else they are dropped.
        from_run: a run directory whose finished warm-up is used in place of one of its own.
    """

    epochs: int = 0
    gamma: float | str = 1.0
    candidates: tuple[float, ...] = (0.01, 0.25, 0.5, 0.75, 0.99)
    temperature: float = 0.2
    batch: int = 1024
    steps: int = 0
    optimizer: str = "sgd"
    lr: float = 0.5
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: str = "one-cycle"
    step_epochs: int = 25
    step_factor: float = 0.1
    clip: float = 0.0
    augment: str = "simclr"
    keep: str = "best"
    patience: int = 0
    held_out: float = 0.2
    every: int = 5
    k: int = 25
    points: int = 10000
    save_every: int = 10
    projection: tuple[int, ...] = ()
    keep_projection: bool = False
    from_run: str = field(default="", metadata={"key": "from"})

    def __post_init__(self) -> None:
        _check(self.epochs >= 0, "warmup.epochs", self.epochs, "at least 0")
        if isinstance(self.gamma, str):
            _one_of("warmup.gamma", self.gamma, ("choose",))
        else:
            _check(0 <= self.gamma <= 1, "warmup.gamma", self.gamma, 'in 0 .. 1, or "choose"')
        _check(
            len(self.candidates) > 0 and all(0 <= g <= 1 for g in self.candidates),
            "warmup.candidates",
            self.candidates,
            "a list of numbers in 0 .. 1",
        )
        _check(self.temperature > 0, "warmup.temperature", self.temperature, "> 0")
        _check(self.batch >= 2, "warmup.batch", self.batch, "at least 2")
        _check(self.steps >= 0, "warmup.steps", self.steps, "at least 0")
        _check_optimizer("warmup", self)
        _one_of("warmup.keep", self.keep, ("best", "last"))
        _check(self.patience >= 0, "warmup.patience", self.patience, "at least 0")
        _check(0 <= self.held_out < 1, "warmup.held_out", self.held_out, "at least 0 and below 1")
        for key, least in (("every", 1), ("k", 1), ("save_every", 1), ("points", 100)):
            _check(getattr(self, key) >= least, f"warmup.{key}", getattr(self, key), f"at least {least}")
        _check(all(d >= 1 for d in self.projection), "warmup.projection", self.projection, "sizes of at least 1")

    @property
    def uses_labels(self) -> bool:
        """Whether labels have a say in what comes out: in the loss, in what is kept, or in when it stops."""
        return self.gamma != 1.0 or self.keep == "best" or self.patience > 0


@final
@dataclass(frozen=True)
class TrainConfig:
    """How it is trained.

    Args:
        epochs: how many, after the warm-up.
        steps: steps an epoch; 0: one pass over the samples.
        batch: samples a step, labelled and unlabelled together; the base set comes on top.
        labelled: how many of a batch are labelled; 0: as many as their share in the data (the paper's equation).
        optimizer: "sgd", "adam" or "adamw".
        lr: learning rate, at its highest.
        momentum: of SGD; the others do not use it.
        weight_decay: of the optimizer.
        schedule: course of the rate: "constant", "cosine" (to zero), "one-cycle" (up, then down to zero), or "step".
        step_epochs, step_factor: schedule "step" multiplies the rate by the factor after every so many epochs.
        clip: longest gradient allowed; longer ones are scaled down. 0: no limit.
        autocast: run the encoder in bfloat16. The graph is always solved in at least float32.
        channels_last: memory layout of images and convolutions; faster on a GPU.
        compile: compile the encoder with torch.compile.
        graph: with several processes: one graph a "rank", or one over the features "gathered" from all.
        sync_batchnorm: with several GPUs: take the statistics of batch normalisation over all of them.
        save_every: epochs between two checkpoints.
    """

    epochs: int = 50
    steps: int = 0
    batch: int = 1000
    labelled: int = 0
    optimizer: str = "adam"
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "cosine"
    step_epochs: int = 25
    step_factor: float = 0.1
    clip: float = 0.0
    autocast: bool = False
    channels_last: bool = False
    compile: bool = False
    graph: str = "rank"
    sync_batchnorm: bool = False
    save_every: int = 1

    def __post_init__(self) -> None:
        for key in ("epochs", "steps", "labelled"):
            _check(getattr(self, key) >= 0, f"train.{key}", getattr(self, key), "at least 0")
        for key in ("batch", "save_every"):
            _check(getattr(self, key) >= 1, f"train.{key}", getattr(self, key), "at least 1")
        _check(self.labelled <= self.batch, "train.labelled", self.labelled, f"at most train.batch = {self.batch}")
        _check_optimizer("train", self)
        _one_of("train.graph", self.graph, ("rank", "gathered"))


def _check_optimizer(section: str, config: WarmupConfig | TrainConfig) -> None:
    _one_of(f"{section}.optimizer", config.optimizer, ("sgd", "adam", "adamw"))
    _check(config.lr > 0, f"{section}.lr", config.lr, "> 0")
    _check(0 <= config.momentum < 1, f"{section}.momentum", config.momentum, "at least 0 and below 1")
    _check(config.weight_decay >= 0, f"{section}.weight_decay", config.weight_decay, "at least 0")
    _one_of(f"{section}.schedule", config.schedule, ("constant", "cosine", "one-cycle", "step"))
    _check(config.step_epochs >= 1, f"{section}.step_epochs", config.step_epochs, "at least 1")
    _check(0 < config.step_factor <= 1, f"{section}.step_factor", config.step_factor, "above 0 and at most 1")
    _check(config.clip >= 0, f"{section}.clip", config.clip, "at least 0")


@final
@dataclass(frozen=True)
class TestConfig:
    """How it is tested.

    Args:
        every: epochs between two tests; 0: at the end only. The end is always tested.
        k: neighbours in the graph of the test.
        tau: τ of the graph of the test.
        inductive: classify every test sample on its own too, beside the one large graph.
        device: where the large graph is solved: "cpu", or empty for that of the training.
        also: heads without parameters that classify the same features beside the trained one, such as "gll" or "knn".
        batch: images that pass the encoder at a time.
    """

    __test__ = False  # not a test case, whatever its name says to pytest

    every: int = 1
    k: int = 50
    tau: float = 1e-8
    inductive: bool = False
    device: str = ""
    also: tuple[str, ...] = ()
    batch: int = 2000

    def __post_init__(self) -> None:
        _check(self.every >= 0, "test.every", self.every, "at least 0")
        _check(self.k >= 1, "test.k", self.k, "at least 1")
        _check(self.tau >= 0, "test.tau", self.tau, "at least 0")
        _check(self.batch >= 1, "test.batch", self.batch, "at least 1")


@final
@dataclass(frozen=True)
class Config:
    """A run.

    Args:
        name: what it is called in tables.
        seed: of everything random: split, weights, batches, augmentation.
        device: "cpu", "cuda", "cuda:1"; "auto": a GPU where there is one.
        out: the run directory; empty: out/runs/NAME-SEED.
        data, model, base, warmup, train, adversarial, test: the sections.

    >>> config = from_toml('name = "mine"', ["seed=3", "train.lr=0.1", "data.labels=10 each"])
    >>> config.seed, config.train.lr, config.data.labels, config.directory.as_posix()
    (3, 0.1, '10 each', 'out/runs/mine-3')
    """

    name: str
    seed: int = 0
    device: str = "auto"
    out: str = ""
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    base: BaseConfig = BaseConfig()
    warmup: WarmupConfig = WarmupConfig()
    train: TrainConfig = TrainConfig()
    adversarial: AdversarialConfig = field(default_factory=AdversarialConfig)
    test: TestConfig = TestConfig()

    def __post_init__(self) -> None:
        _check(self.name.strip() != "" and "/" not in self.name, "name", self.name, "a word without a slash")
        _check(0 <= self.seed < 2**63, "seed", self.seed, "at least 0")
        still = self.base.again and self.data.augment == "none"
        _check(not still, "base.again", True, "false while data.augment is none: the answer would be in the question")

    @property
    def directory(self) -> Path:
        """The run directory."""
        return Path(self.out) if self.out else Path("out/runs") / f"{self.name}-{self.seed}"


def load_config(path: Path, overrides: Iterable[str] = ()) -> Config:
    """Read a TOML file, with `key=value` in place of what it says."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no config {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    try:
        return from_toml(text, overrides)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def from_toml(text: str, overrides: Iterable[str] = ()) -> Config:
    """A config from the text of a TOML file and `key=value` overrides such as "train.lr=0.1".

    The text has its options of a head for the head it names: where "model.head=..." names another, those that it does
    not have are left out; so too where "model.first=..." does. Options among the overrides stay, and are refused if the
    head does not have them.
    """
    overrides = list(overrides)
    config = cast(Config, toml.read(Config, text, overrides))
    if any(override.partition("=")[0].strip() in ("model.head", "model.first") for override in overrides):
        from gll.train.unused import fitting_options  # needs PyTorch, for which a config need not wait

        head, first = fitting_options(config, text, overrides)
        config = replace(config, model=replace(config.model, head_options=head, first_options=first))
    return config


def to_toml(config: Config) -> str:
    """The whole config as TOML, defaults included; `from_toml` reads it back to an equal one."""
    return toml.write(config)


def with_values(config: Config, *overrides: str) -> Config:
    """A copy with `key=value` overrides."""
    return from_toml(to_toml(config), overrides)
