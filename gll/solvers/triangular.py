"""Triangular factors on a GPU: inverted once, block by block, so that a solve is a product.

A triangular solve goes row by row, which is no work for a GPU; products are. With

    L = ( A  0 )          L^-1 = (      A^-1        0   )
        ( B  C ),                ( -C^-1 B A^-1   C^-1  ),

the inverse of a matrix follows from those of its halves: all small blocks on the diagonal are inverted side by side,
and pairs of them are joined until one is left. What rounding this costs is repaired by correcting with true residuals.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAF = 63  # blocks on the diagonal are at most this wide: PyTorch solves a few of 64 and more one after another


def invert_lower(lower: Tensor) -> Tensor:
    """L^-1 for (..., n, n) lower triangular matrices."""
    n, blocks = lower.shape[-1], 1
    while n > blocks * LEAF:
        blocks *= 2
    size = -(-n // blocks)
    padding = blocks * size - n
    if padding:
        lower = torch.nn.functional.pad(lower, (0, padding, 0, padding))
        lower.diagonal(dim1=-2, dim2=-1)[..., n:] = 1
    identity = torch.eye(size, dtype=lower.dtype, device=lower.device)
    inverse = torch.linalg.solve_triangular(_diagonal_blocks(lower, blocks), identity, upper=False)
    while blocks > 1:
        blocks //= 2
        a, c = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        b = _diagonal_blocks(lower, blocks)[..., size:, :size]
        above = torch.cat([a, torch.zeros_like(a)], -1)
        inverse = torch.cat([above, torch.cat([-(c @ (b @ a)), c], -1)], -2)
        size *= 2
    return inverse[..., 0, :n, :n]


def _diagonal_blocks(matrix: Tensor, blocks: int) -> Tensor:
    """(..., blocks, size, size) from (..., blocks * size, blocks * size)."""
    size = matrix.shape[-1] // blocks
    split = matrix.view(*matrix.shape[:-2], blocks, size, blocks, size)
    return split.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)


def solve_factored(lower: Tensor, b: Tensor, *, inverted: bool) -> Tensor:
    """(L Lᵀ)^-1 b, from L or from its inverse."""
    return lower.mT @ (lower @ b) if inverted else torch.cholesky_solve(b, lower)
