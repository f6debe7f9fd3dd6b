"""Adversarial training: every step trains on images that were moved to where the network fails.

The attack is that of the paper: a uniform random start within ±ε of each pixel, then a few steps along the sign of the
gradient, each clipped to the ±ε around the image and to the range of pixels. It climbs what `against.py` says, on the
graph of the training step: base and batch together. The base is never attacked.

Decisions, which the tests hold:

- The attack sees the network in evaluation mode: no dropout, the running statistics of batch normalisation, which stay
  as they are. So the features of what is not attacked are constant, and computed once a step.
- Its chance is derived from seed, epoch and step, like all else. A run that was stopped goes on exactly.
- It works on what the network takes, (pixel - mean)/std. There ε is ε/std for every channel. Bytes were augmented
  before, and the image itself is the number that natural training has, to the last bit.
- Only images get a gradient: that of the parameters is not computed, and theirs from the step before is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.data.datasets import TrainTest, normalize
from gll.data.random import generator
from gll.nn.heads import Switch
from gll.train.against import OPPONENTS
from gll.train.config import Config
from gll.train.distributed import GRAPHS, PerRank, Ranks
from gll.train.finite import Notes
from gll.train.model import Model, features
from gll.train.toml import ConfigError


@final
class Adversary:
    """Attacks the images of training steps as [adversarial] says; with ε = 0 it leaves them alone.

    Args:
        config: of the run.
        data: what it trains on.
        model: what is attacked.
        ranks: the processes that train together.
    """

    def __init__(self, config: Config, data: TrainTest, model: Model, ranks: Ranks) -> None:
        a = config.adversarial
        self.config, self.model, self.ranks = config, model, ranks
        self.steps, self.random_start, self.unlabelled = a.steps, a.random_start, a.unlabelled
        self.is_active = a.eps > 0
        self.eps = radius(a.eps, a.units, data)
        self.step = radius(a.step or 2.5 * a.eps / a.steps, a.units, data)
        self.low, self.high = box(data)
        self.opponent = OPPONENTS[a.against](int(model.encoder.feature_dim), data.num_classes, ranks)  # type: ignore[arg-type]
        self.graphs = GRAPHS[config.train.graph] if self.opponent.uses_graph else PerRank()
        # Not the wrapped encoder of the loop: an attack must not average gradients over processes.
        self.encoder = model.encoder
        if self.is_active and config.train.compile:
            self.encoder = torch.compile(model.encoder)  # type: ignore[assignment]

    def attack(
        self,
        x: Float[Tensor, "n *sample"],
        y: Int[Tensor, " n"],
        sizes: tuple[int, int, int],
        epoch: int,
        step: int,
        notes: Notes,
    ) -> Float[Tensor, "n *sample"]:
        """The input of a training step, attacked.

        Nothing here waits for the device but the head, once for every step of the attack.

        Args:
            x, y: base, labelled and unlabelled samples, in this order: as the network takes them, and their classes.
            sizes: how many of each there are.
            epoch, step: which training step it is; the random start depends on it.
            notes: gets told of numbers that are not finite.

        Differentiable in: nothing.
        """
        if not self.is_active:
            return x
        self.ranks.same_everywhere(self.model.encoder, parameters=False)
        self.model.eval()
        try:
            return self._attack(x, y, sizes, epoch, step, notes)
        finally:
            self.model.train()

    def _attack(self, x: Tensor, y: Tensor, sizes: tuple[int, int, int], epoch: int, step: int, notes: Notes) -> Tensor:
        b, l, _ = sizes
        end = len(x) if self.unlabelled else b + l
        z_base, z_other = self._constant(x[:b]), self._constant(x[end:])
        image = x[b:end].detach()
        low, high = (image - self.eps).clamp_(min=self.low), (image + self.eps).clamp_(max=self.high)
        moved = image
        if self.random_start:
            chance = generator(self.config.seed, "attack", epoch, step, self.ranks.rank, device=x.device)
            drawn = torch.rand(image.shape, generator=chance, device=x.device)
            moved = (image + self.eps * (2 * drawn - 1)).clamp_(low, high)
        # Finite if all that it sums is. The images stay finite whatever happens, since the sign of NaN is 0.
        total = x.new_zeros((), dtype=torch.float64)
        for _ in range(self.steps):
            moved = moved.detach().requires_grad_()
            with torch.enable_grad():
                z = features(self.encoder, moved, self.config)
                total += z.detach().sum(dtype=torch.float64)
                notes.note("attack", total)  # before the head, which may refuse features that are not finite
                queries = torch.cat([z[l:], z_other])
                nodes = self.graphs.nodes(self.ranks, z_base, y[: len(z_base)], z[:l], y[b : b + l], queries)
                harm = self.opponent.harm(self.model.head, nodes)
                (slope,) = torch.autograd.grad(harm, moved)
            total += slope.sum(dtype=torch.float64)
            moved = (moved.detach() + self.step * slope.sign()).clamp_(low, high)
        notes.note("attack", total)
        return torch.cat([x[:b], moved, x[end:]])

    def _constant(self, x: Tensor) -> Tensor:
        """Features of samples that stay as they are; of none where nobody looks at them."""
        if len(x) == 0 or not self.opponent.uses_graph:
            return x.new_empty(0, int(self.model.encoder.feature_dim))  # type: ignore[arg-type]
        with torch.no_grad():
            return features(self.encoder, x, self.config)

    def learn(self, features: Float[Tensor, "l d"], target: Int[Tensor, " l"]) -> None:
        """To be called with what the training step has made of the labelled samples."""
        if self.is_active:
            self.opponent.learn(features, target)

    def tensors(self) -> dict[str, Tensor]:
        """What has to be in a checkpoint."""
        return self.opponent.tensors() if self.is_active else {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave; other names are passed over."""
        if self.is_active:
            self.opponent.load(tensors)


def radius(size: float, units: str, data: TrainTest) -> Tensor:
    """A distance for every channel, in the units of a network's input: those of (pixel - mean)/std.

    >>> from gll.data import load
    >>> data = load("digits")
    >>> radius(0.1, "normalised", data).item(), round(radius(data.std[0], "pixels", data).item(), 6)
    (0.10000000149011612, 1.0)
    """
    std = torch.tensor(data.std, dtype=torch.float64)
    whole = size / std if units == "pixels" else size * torch.ones_like(std)
    return whole.float().view((-1, 1, 1) if data.is_image else -1).to(data.train.device)


def box(data: TrainTest) -> tuple[Tensor, Tensor]:
    """Black and white as a network sees them; points have no bounds."""
    if not data.is_image:
        bound = torch.full((data.channels,), torch.inf, device=data.train.device)
        return -bound, bound
    ends = data.train.new_tensor([0, 255])[:, None, None, None].expand(2, data.channels, 1, 1)
    low, high = normalize(ends, data)  # as images themselves, so that white stays white to the last bit
    return low, high


def check_adversarial(config: Config, data: TrainTest, model: Model) -> None:
    """Refuse an ε beyond all pixels, and a head through which no gradient reaches the images."""
    a = config.adversarial
    if a.eps == 0:
        return
    pixels = a.eps * (max(data.std) if a.units == "normalised" else 1)
    if data.is_image and pixels > 1:
        raise ConfigError(
            f"adversarial.eps = {a.eps:g} ({a.units}) is more than the way from black to white, which is 1: an ε of 8 "
            'in 255 is 0.0314; or set adversarial.units="normalised"'
        )
    m, whole = config.model, model.head
    heads = {m.first: whole.first, m.head: whole.second} if isinstance(whole, Switch) else {m.head: whole}
    for name, head in heads.items():
        if not head.trains_encoder:
            raise ConfigError(
                f'[adversarial] trains an encoder, and "{name}" does not: use mlp, linear, gll or wnll, or set '
                "adversarial.eps=0"
            )


def check_unlabelled(config: Config, unlabelled: int) -> None:
    """Refuse `adversarial.unlabelled` where there is nothing that it could attack.

    Args:
        config: of the run.
        unlabelled: how many unlabelled samples a training step has, of the epoch that has most of them.
    """
    if config.adversarial.eps > 0 and config.adversarial.unlabelled and not unlabelled:
        raise ConfigError(
            f'adversarial.unlabelled=true, but batches have no unlabelled samples (data.labels="{config.data.labels}", '
            f"train.batch={config.train.batch}, train.labelled={config.train.labelled}; a head without a graph never "
            "gets any): leave it out, or let a graph have some, by fewer data.labels or a smaller train.labelled"
        )
