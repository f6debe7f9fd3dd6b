"""Contrastive losses: two views of a sample belong together, and so do samples of one class.

Both losses look at the cosine similarities s of all 2n views of a batch, divided by a temperature T. For a view i,

    SimCLR   ℓ(i) = -log softmax(s_i / T) at the other view of the same sample,
    SupCon   ℓ(i) = the mean of that over all other views of the same class (its own sample's other view among them),

where the softmax runs over all views but i itself; in SupCon, over those of labelled samples. The loss is the mean over
the views (the paper sums SupCon; a mean makes γ mix two numbers of the same size, whatever the batch).

They are written for training at speed: one matrix product and masks of a fixed shape, so that nothing waits for the
device. They compute in float32 at least, also under autocast: at T = 0.1, bfloat16 would round s/T by up to 0.04.
Read next: `train/pretrain.py`, which minimises γ·SimCLR + (1 - γ)·SupCon.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.features import unit_rows


def simclr_loss(z1: Float[Tensor, "n d"], z2: Float[Tensor, "n d"], temperature: float = 0.2) -> Float[Tensor, ""]:
    """SimCLR's loss (NT-Xent): each view has to find the other view of its sample among all views of the batch.

    Args:
        z1, z2: (n, d) two views of n samples; their length does not matter. A row of zeros is similar to nothing.
        temperature: > 0; the smaller, the more the nearest other views count.

    Returns:
        The mean over all 2n views. Finite for finite views, and ≥ 0.

    Differentiable in: `z1`, `z2`.

    >>> z = torch.eye(4)
    >>> simclr_loss(z, z, temperature=0.1).item() < simclr_loss(z, z.roll(1, 0), temperature=0.1).item()
    True
    """
    with torch.autocast(z1.device.type, enabled=False):
        s = _similarities(z1, z2, temperature)
        n = len(z1)
        itself = torch.eye(2 * n, dtype=torch.bool, device=s.device)
        partner = torch.arange(2 * n, device=s.device).roll(n)
        return torch.nn.functional.cross_entropy(s.masked_fill(itself, torch.finfo(s.dtype).min), partner)


def supcon_loss(
    z1: Float[Tensor, "n d"], z2: Float[Tensor, "n d"], labels: Int[Tensor, " n"], temperature: float = 0.2
) -> Float[Tensor, ""]:
    """The supervised contrastive loss: each view has to find all views of its class among those of labelled samples.

    Args:
        z1, z2: (n, d) two views of n samples; their length does not matter. A row of zeros is similar to nothing.
        labels: (n,) classes; -1 (or less) for a sample whose class is not known, which is left out altogether: it is
            neither asked nor among the views to choose from.
        temperature: > 0; the smaller, the more the nearest other views count.

    Returns:
        The mean over the views of labelled samples; zero, with zero gradient, where there are none.

    Differentiable in: `z1`, `z2`.

    >>> z = torch.eye(4)
    >>> alike, unlike = torch.tensor([0, 0, 1, -1]), torch.tensor([0, 1, 2, -1])
    >>> supcon_loss(z, z, alike, temperature=0.1).item() > supcon_loss(z, z, unlike, temperature=0.1).item()
    True
    >>> supcon_loss(z, z, torch.full((4,), -1)).item()
    0.0
    """
    if labels.shape != z1.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"labels must be {len(z1)} integer classes, one a sample, got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    if labels.device != z1.device:
        raise ValueError(f"labels are on {labels.device}, the views on {z1.device}; move one of them")
    with torch.autocast(z1.device.type, enabled=False):
        s = _similarities(z1, z2, temperature)
        labels = torch.cat([labels, labels])
        known = labels >= 0
        others = known[:, None] & known & ~torch.eye(len(s), dtype=torch.bool, device=s.device)
        alike = others & (labels[:, None] == labels)
        # The smallest number in place of -∞: a view without others then has a finite row, whose gradient is masked.
        s = s.masked_fill(~others, torch.finfo(s.dtype).min)
        surprise = s.logsumexp(1, keepdim=True) - s
        of_view = torch.where(alike, surprise, 0).sum(1) / alike.sum(1).clamp(min=1)
        return of_view.sum() / known.sum().clamp(min=1)


def _similarities(z1: Tensor, z2: Tensor, temperature: float) -> Tensor:
    """(2n, 2n) cosine similarities of all views, divided by the temperature; first the views z1, then z2."""
    if z1.dim() != 2 or z1.shape != z2.shape or len(z1) == 0:
        raise ValueError(
            f"two views of at least one sample must be two (n, d) tensors, got {tuple(z1.shape)} and {tuple(z2.shape)}"
        )
    if not z1.is_floating_point() or z1.dtype != z2.dtype or z1.device != z2.device:
        raise ValueError(
            "the views must be floating point, of one type and on one device, "
            f"got {z1.dtype} on {z1.device} and {z2.dtype} on {z2.device}"
        )
    if not temperature > 0:
        raise ValueError(f"temperature must be > 0, got {temperature}")
    z = torch.cat([z1, z2])
    z = unit_rows(z if z.dtype == torch.float64 else z.float())
    return z @ z.T / temperature
