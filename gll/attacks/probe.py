"""A linear classifier on the features of somebody else's encoder: the simplest model that shares it with a graph head.

Where a graph head gives no useful gradient, one fitted on the same features often does, and images that fool it fool
the graph too. It is fitted by L-BFGS from zero, so the same features give the same probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gll.attacks.graph_victim import CHUNK, GraphVictim
from gll.attacks.pixels import Normalized
from gll.features import check_features, unit_rows


@final
class _UnitRows(nn.Module):
    """Features of length one: what a layer with `normalize=True` sees."""

    def forward(self, features: Tensor) -> Tensor:
        return unit_rows(features)


def linear_probe(
    encoder: nn.Module,
    images: Tensor | None = None,
    labels: Int[Tensor, " n"] | None = None,
    *,
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    l2: float = 1e-4,
    steps: int = 200,
) -> nn.Module:
    """Fit a linear classifier on an encoder, whose weights are left as they are.

    Args:
        encoder: images to features; or a `GraphVictim`, whose encoder it is then, with features scaled to length one if
            its layer scales them.
        images, labels: what it is fitted to: images in 0 .. 1 and their classes. A victim may do without: its base is
            taken.
        num_classes: C; by default the largest label tells, or the victim.
        mean, std: of the encoder's normalisation; a victim knows its own.
        l2: weight of |W|²/2 beside the mean cross-entropy, for features of standard deviation one.
        steps: most steps of L-BFGS.

    Returns:
        A module from images in 0 .. 1 to logits, in evaluation mode, and so is the encoder in it.

    Raises:
        ValueError: nothing to fit to, or labels that do not fit.

    Differentiable in: nothing; the probe is, in its images.

    >>> images = torch.tensor([[0.0, 0.1], [0.2, 0.0], [0.9, 1.0], [1.0, 0.8]])
    >>> probe = linear_probe(nn.Identity(), images, torch.tensor([0, 0, 1, 1]))
    >>> probe(torch.tensor([[0.1, 0.1], [0.9, 0.9]])).argmax(1).tolist()
    [0, 1]
    """
    if (images is None) != (labels is None):
        raise ValueError("give images and labels together, or neither with a GraphVictim, whose base is then taken")
    if isinstance(encoder, GraphVictim):
        if mean is not None or std is not None:
            raise ValueError("a victim normalises by itself: mean and std are for an encoder")
        seen: nn.Module = encoder.encoder
        if encoder.layer.normalize:
            seen = nn.Sequential(seen, _UnitRows())
        num_classes = encoder.layer.num_classes if num_classes is None else num_classes
        if images is None:
            features, labels = encoder.base_features, encoder.base_labels
            features = unit_rows(features) if encoder.layer.normalize else features
            if labels.dim() == 2:
                labels = labels.argmax(1)
            features, labels = features[labels >= 0], labels[labels >= 0]
            return _fit(seen, features, labels, num_classes, l2, steps)
    else:
        seen = Normalized(encoder, mean, std)
    if images is None or labels is None:
        raise ValueError("a probe is fitted to images and their labels: give both")
    seen.eval()
    with torch.no_grad():
        features = torch.cat([seen(part) for part in images.split(CHUNK)])
    return _fit(seen, features, labels, num_classes, l2, steps)


def _fit(
    seen: nn.Module, features: Float[Tensor, "n d"], labels: Tensor, classes: int | None, l2: float, steps: int
) -> nn.Module:
    x, y = check_features(features.detach()).double(), labels.detach().long()
    if y.shape != x.shape[:1] or int(y.min()) < 0:
        raise ValueError(f"{len(x)} images need as many classes from 0 on, got labels of shape {tuple(y.shape)}")
    classes = int(y.max()) + 1 if classes is None else classes
    if int(y.max()) >= classes:
        raise ValueError(f"the labels go up to {int(y.max())}, but there are {classes} classes")
    centre, spread = x.mean(0), x.std(0, correction=0)
    spread = torch.where(spread > 1e-12 * spread.max(), spread, 1)  # a feature that never changes says nothing
    z = (x - centre) / spread
    weight, bias = x.new_zeros(classes, x.shape[1], requires_grad=True), x.new_zeros(classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(z @ weight.T + bias, y) + l2 / 2 * weight.square().sum()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(loss)
    linear = nn.Linear(x.shape[1], classes, device=x.device, dtype=features.dtype)
    with torch.no_grad():
        linear.weight.copy_(weight / spread)
        linear.bias.copy_(bias - (weight / spread) @ centre)
    return nn.Sequential(seen, linear).eval()
