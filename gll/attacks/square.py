"""The Square attack (Andriushchenko et al. 2020): a random search that asks for predictions only.

Each query changes a square window of every image and keeps the change where the margin has grown. The windows begin
large and shrink. No gradient is used, so that a model which hides its gradient is not protected: where this attack
finds more errors than one that follows the gradient, the gradient was masked.

- L∞: the perturbation is ±eps everywhere, first in vertical stripes, then a window at a time, one sign a channel.
- L2: the perturbation is a sum of bumps, half positive and half negative. A query takes what is in one window, adds the
  budget that is not used, and puts it as a new bump into another.

Points, (n, d), are images of one row: their windows are intervals.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gll.attacks.base import AbstractAttack, into_ball_and_box
from gll.attacks.inputs import check_ball
from gll.attacks.norms import L2, AbstractNorm, LInf, drawn
from gll.attacks.objectives import Margin, prediction

# After these shares of all queries the windows get half as large.
HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)


class AbstractProposal(ABC):
    """Where to look next: perturbations of images of shape (n, channels, height, width)."""

    @abstractmethod
    def start(self, like: Float[Tensor, "n c h w"], attack: Square, generator: torch.Generator) -> Tensor:
        """The first perturbation."""

    @abstractmethod
    def change(
        self, delta: Float[Tensor, "n c h w"], attack: Square, area: float, generator: torch.Generator
    ) -> Float[Tensor, "n c h w"]:
        """The perturbation with another window of about `area` pixels, placed anew for every image."""


@final
@dataclass(frozen=True)
class Square(AbstractAttack):
    """The Square attack: black-box, by random search.

    Args:
        eps: how far each image may be moved, in pixel units.
        queries: how often the model is asked about each image; fewer where all images are wrong before.
        norm: L∞ or L2.
        share: the share of an image that the first windows cover.

    >>> from torch import nn
    >>> model, x, y = nn.Linear(4, 3), torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
    >>> import math
    >>> math.isnan(Square(0.1, queries=20)(model, x, y).zero_gradients)  # it asks for none
    True

    Differentiable in: nothing.
    """

    eps: float
    queries: int = 1000
    norm: AbstractNorm = field(default_factory=LInf)
    share: float = 0.8

    def __post_init__(self) -> None:
        check_ball(self.eps, self.norm)
        if self.queries < 1 or not 0 < self.share <= 1:
            raise ValueError(
                f"Square needs queries ≥ 1 and a share in (0, 1], got queries={self.queries}, share={self.share}"
            )
        if type(self.norm) not in PROPOSALS:
            known = ", ".join(norm.__name__ for norm in PROPOSALS)
            raise ValueError(f"Square knows the norms {known}, got {type(self.norm).__name__}")

    @torch.no_grad()
    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        proposal = PROPOSALS[type(self.norm)]
        grid = _as_grid(images)
        moved = into_ball_and_box(images + proposal.start(grid, self, generator).view_as(images), images, self)
        margin, wrong = _ask(model, moved, labels)
        for query in range(1, self.queries):
            if bool(wrong.all()):
                break
            area = self.share * grid[0, 0].numel() / 2 ** sum(query >= share * self.queries for share in HALVINGS)
            delta = proposal.change(_as_grid(moved - images), self, area, generator)
            trial = into_ball_and_box(images + delta.view_as(images), images, self)
            trial = torch.where(wrong.view(-1, *[1] * (images.dim() - 1)), moved, trial)  # these are done
            new_margin, new_wrong = _ask(model, trial, labels)
            better = ~wrong & (new_wrong | (new_margin > margin))
            moved = torch.where(better.view(-1, *[1] * (images.dim() - 1)), trial, moved)
            # Images that were done may be right again, in a graph in which the others have changed.
            seen = better | wrong
            margin, wrong = torch.where(seen, new_margin, margin), torch.where(seen, new_wrong, wrong)
        return moved


@final
class SignedWindows(AbstractProposal):
    """L∞: every pixel at the end of its range, a window at a time."""

    def start(self, like: Tensor, attack: Square, generator: torch.Generator) -> Tensor:
        n, channels, _, width = like.shape
        signs = _signs((n, channels, 1, width), like, generator)
        return attack.eps * attack.norm.ascend(signs.expand_as(like))

    def change(self, delta: Tensor, attack: Square, area: float, generator: torch.Generator) -> Tensor:
        height, width = _sides(area, delta)
        top, left = _corner(height, width, delta, generator)
        signs = _signs((*delta.shape[:2], 1, 1), delta, generator).expand_as(delta)
        inside = _window(top, left, height, width, delta)
        return torch.where(inside, attack.eps * attack.norm.ascend(signs), delta)


@final
class Bumps(AbstractProposal):
    """L2: the budget moves from window to window, in the form of bumps."""

    def start(self, like: Tensor, attack: Square, generator: torch.Generator) -> Tensor:
        # A tiling of about five bumps a side, each with its own sign.
        n, channels, height, width = like.shape
        a, b = max(1, height // 5), max(1, width // 5)
        rows, columns = math.ceil(height / a), math.ceil(width / b)
        signs = _signs((n, channels, rows, columns), like, generator)
        tiles = signs[:, :, :, None, :, None] * _bump(a, b, like)[:, None, :]
        whole = tiles.reshape(n, channels, rows * a, columns * b)[:, :, :height, :width]
        return attack.eps * attack.norm.ascend(whole)

    def change(self, delta: Tensor, attack: Square, area: float, generator: torch.Generator) -> Tensor:
        height, width = _sides(area, delta)
        to = _window(*_corner(height, width, delta, generator), height, width, delta)
        source = _window(*_corner(height, width, delta, generator), height, width, delta)
        squared = delta.square()
        # The budget of a channel: what lies in the two windows, and its part of what the ball leaves unused.
        unused = (attack.eps**2 - squared.sum((1, 2, 3), keepdim=True)).clamp(min=0) / delta.shape[1]
        budget = (torch.where(to | source, squared, 0).sum((2, 3), keepdim=True) + unused).sqrt()
        old = _unit(torch.where(to, delta, 0))
        bump = _unit(_placed(_bump(height, width, delta, generator), to))
        bump = _signs((*delta.shape[:2], 1, 1), delta, generator) * bump
        both = old + bump
        # Where a bump meets its own negative, it takes its place.
        new = _unit(torch.where((both.abs().amax((2, 3), keepdim=True) > 1e-6), both, bump))
        return torch.where(to | source, 0, delta) + budget * new


PROPOSALS: dict[type[AbstractNorm], AbstractProposal] = {LInf: SignedWindows(), L2: Bumps()}


def _ask(model: nn.Module, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    logits = model(images)
    return Margin()(logits, labels), prediction(logits, labels) != labels


def _as_grid(images: Float[Tensor, "n ..."]) -> Float[Tensor, "n c h w"]:
    """Images as (n, channels, height, width); whatever has no two such sides is one long row."""
    if images.dim() == 4:
        return images
    if images.dim() == 3:
        return images[:, None]
    return images.flatten(1)[:, None, None, :]


def _sides(area: float, like: Float[Tensor, "n c h w"]) -> tuple[int, int]:
    """Height and width of a window of about this area: a square where it fits, else longer one way."""
    height = min(max(1, round(math.sqrt(area))), like.shape[2])
    width = min(max(1, round(area / height)), like.shape[3])
    return height, width


def _corner(
    height: int, width: int, like: Float[Tensor, "n c h w"], generator: torch.Generator
) -> tuple[Int[Tensor, " n"], Int[Tensor, " n"]]:
    """A random place for a window in every image: its first row and column."""
    rows, columns = like.shape[2] - height + 1, like.shape[3] - width + 1
    draw = drawn(torch.rand, (2, len(like)), like, generator)
    # rand is below 1, but its product may round up to the bound.
    return (draw[0] * rows).long().clamp(max=rows - 1), (draw[1] * columns).long().clamp(max=columns - 1)


def _window(top: Tensor, left: Tensor, height: int, width: int, like: Float[Tensor, "n c h w"]) -> Tensor:
    """(n, 1, h, w): which pixels are in the window."""
    row = torch.arange(like.shape[2], device=like.device) - top[:, None]
    column = torch.arange(like.shape[3], device=like.device) - left[:, None]
    inside = ((row >= 0) & (row < height))[:, :, None] & ((column >= 0) & (column < width))[:, None, :]
    return inside[:, None]


def _placed(bump: Float[Tensor, "a b"], inside: Tensor) -> Tensor:
    """(n, 1, h, w): the bump in the window of every image, zero elsewhere."""
    placed = torch.zeros(inside.shape, dtype=bump.dtype, device=bump.device)
    # Windows have one size, and a mask selects row by row: their pixels come in the bump's order.
    placed[inside] = bump.flatten().repeat(len(inside))
    return placed


def _bump(height: int, width: int, like: Tensor, generator: torch.Generator | None = None) -> Float[Tensor, "a b"]:
    """Two pyramids side by side, one up and one down; side by side the other way by chance, where a generator is given.

    A pyramid rises to its middle, by 1/(n + 1 - k)² at the k-th ring from outside, of n.
    """
    if generator is not None and bool(torch.rand((), generator=generator, device=generator.device) < 0.5):
        return _bump(width, height, like).T
    half = width // 2
    return torch.cat([_pyramid(height, half, like), -_pyramid(height, width - half, like)], dim=1)


def _pyramid(height: int, width: int, like: Tensor) -> Float[Tensor, "a b"]:
    row, column = torch.arange(height, device=like.device), torch.arange(width, device=like.device)
    ring = torch.minimum(torch.minimum(row, height - 1 - row)[:, None], torch.minimum(column, width - 1 - column))
    rings = (min(height, width) + 1) // 2
    rise = 1 / (rings - torch.arange(max(rings, 1), dtype=like.dtype, device=like.device)).clamp(min=1).square()
    return rise.cumsum(0)[ring]


def _unit(delta: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """Every channel of length one; zero where it is zero."""
    length = torch.linalg.vector_norm(delta, dim=(2, 3), keepdim=True)
    return delta / torch.where(length > 0, length, 1)


def _signs(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.where(drawn(torch.rand, shape, like, generator) < 0.5, -1, 1).to(like.dtype)
