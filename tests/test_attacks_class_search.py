"""The nearest of every class in one search, against a search a class."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gll.attacks.class_search import ClassSearch
from gll.neighbors import Exact


def one_by_one(base: Tensor, labels: Tensor, points: int, x: Tensor) -> set[tuple[int, int]]:
    found = set()
    for c in labels.unique().tolist():
        members = torch.nonzero(labels == c)[:, 0]
        near = members[Exact().query(base[members], x, min(points, len(members)))]
        found |= {(q, j) for q, nodes in enumerate(near.tolist()) for j in nodes}
    return found


def pairs(base: Tensor, labels: Tensor, points: int, x: Tensor) -> set[tuple[int, int]]:
    query, node = ClassSearch(base, labels, points)(x)
    assert query.tolist() == sorted(query.tolist())
    found = list(zip(query.tolist(), node.tolist(), strict=True))
    assert len(set(found)) == len(found)
    return set(found)


def layouts(m: int) -> dict[str, Tensor]:
    return {
        "even": torch.arange(m) % 4,
        "by size": torch.cat([torch.full((n,), c) for c, n in enumerate((1, 3, 0, m - 4))]),
        "one": torch.full((m,), 2),
        "mixed": torch.randint(0, 7, (m,), generator=torch.Generator().manual_seed(1)),
    }


@pytest.mark.parametrize("layout", ["even", "by size", "one", "mixed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("points", [1, 5, 200])
def test_equal_to_a_search_a_class(layout: str, dtype: torch.dtype, points: int) -> None:
    torch.manual_seed(0)
    labels, base, x = layouts(100)[layout], torch.rand(100, 6, dtype=dtype), torch.rand(23, 6, dtype=dtype)
    expected = one_by_one(base, labels, points, x)
    assert len(expected) == 23 * sum(min(points, int((labels == c).sum())) for c in labels.unique())
    assert pairs(base, labels, points, x) == expected


@pytest.mark.parametrize("far", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("copies", [1, 4, 60])
def test_rounding_and_ties_do_not_decide(far: float, copies: int) -> None:
    """Points that are equal, or nearly so and far away from the origin: where a product of matrices knows nothing."""
    torch.manual_seed(0)
    some = far + 1e-3 * torch.randint(0, 4, (240 // copies, 2), dtype=torch.float32)
    base = some.repeat(copies, 1)
    labels = torch.arange(len(base)) % 3
    x = torch.cat([base[:5], far + 1e-3 * torch.rand(6, 2)])
    assert pairs(base, labels, 5, x) == one_by_one(base, labels, 5, x)


def test_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    base, labels, x = torch.rand(50, 3), torch.arange(50) % 5, torch.rand(31, 3)
    whole = pairs(base, labels, 4, x)
    monkeypatch.setattr(Exact, "__init__", lambda self: object.__setattr__(self, "max_bytes", 4 * 50 * 4 * 7))
    query, node = ClassSearch(base, labels, 4)(x)
    assert set(zip(query.tolist(), node.tolist(), strict=True)) == whole
