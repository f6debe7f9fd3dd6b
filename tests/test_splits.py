"""Which labels training may see."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gll.data import DataError, LabelSplit, load, split_labels


def counts(labels: Tensor, split: LabelSplit) -> list[int]:
    return labels[split.labelled].bincount(minlength=int(labels.max()) + 1).tolist()


def check(labels: Tensor, split: LabelSplit) -> None:
    """Every sample is in one of the two sets, which are sorted, and no labelled one is without a class."""
    both = split.labelled.tolist() + split.unlabelled.tolist()
    assert sorted(both) == list(range(len(labels)))
    assert split.labelled.tolist() == sorted(split.labelled.tolist())
    assert split.unlabelled.tolist() == sorted(split.unlabelled.tolist())
    assert (labels[split.labelled] >= 0).all()


def test_whole() -> None:
    labels = torch.tensor([0, -1, 1, 1, -1])
    split = split_labels(labels, "whole", seed=3)
    assert split.labelled.tolist() == [0, 2, 3]
    assert split.unlabelled.tolist() == [1, 4]


@pytest.mark.parametrize(("amount", "each"), [("20%", 1000), ("2%", 100), ("0.2%", 10), ("10 each", 10), ("7each", 7)])
def test_balanced_classes_give_exactly_equal_numbers(amount: str, each: int) -> None:
    labels = torch.arange(50_000) * 7 % 10  # as many of each class as CIFAR-10 has
    split = split_labels(labels, amount, seed=0)
    check(labels, split)
    assert counts(labels, split) == [each] * 10


def test_unbalanced_classes_are_as_equal_as_they_can_be() -> None:
    labels = load("digits").train_labels
    split = split_labels(labels, "20%", seed=0)
    check(labels, split)
    found = counts(labels, split)
    assert sum(found) == round(0.2 * len(labels)) == 288
    assert sorted(found) == [28] * 2 + [29] * 8


def test_a_small_class_gives_all_and_the_others_the_rest() -> None:
    labels = torch.cat([torch.full((n,), c) for c, n in enumerate((3, 100, 97))])
    assert counts(labels, split_labels(labels, "20%", seed=0)) in ([3, 18, 19], [3, 19, 18])
    assert counts(labels, split_labels(labels, "100%", seed=0)) == [3, 100, 97]


def filled(sizes: list[int], total: int) -> list[int]:
    """One more for the class that has fewest and is not exhausted, until all are given out."""
    given_ = [0] * len(sizes)
    for _ in range(total):
        open_ = [i for i, n in enumerate(sizes) if given_[i] < n]
        given_[min(open_, key=lambda i: given_[i])] += 1
    return sorted(given_)


@given(
    st.lists(st.integers(1, 40), min_size=2, max_size=7), st.integers(0, 30), st.integers(1, 100), st.integers(0, 2**31)
)
def test_any_classes(sizes: list[int], unknown: int, percent: int, seed: int) -> None:
    labels = torch.cat([*(torch.full((n,), c) for c, n in enumerate(sizes)), torch.full((unknown,), -1)])
    labels = labels[torch.randperm(len(labels))]
    total = round(percent / 100 * sum(sizes))
    if total < len(sizes):
        with pytest.raises(ValueError, match="every class needs one"):
            split_labels(labels, f"{percent}%", seed=seed)
        return
    split = split_labels(labels, f"{percent}%", seed=seed)
    check(labels, split)
    assert sorted(counts(labels, split)) == filled(sizes, total)
    larger = split_labels(labels, f"{min(percent + 17, 100)}%", seed=seed)
    assert set(split.labelled.tolist()) <= set(larger.labelled.tolist())


def test_one_label_more_takes_none_away() -> None:
    labels = torch.arange(1000) % 10
    for seed in range(5):
        chosen = [set(split_labels(labels, f"{i / 10}%", seed=seed).labelled.tolist()) for i in range(10, 32)]
        assert [len(c) for c in chosen] == list(range(10, 32))
        assert all(a < b for a, b in pairwise(chosen))


def test_classes_may_be_missing_in_between() -> None:
    labels = torch.tensor([5, 9, 5, 9, 5, 9])
    split = split_labels(labels, "2 each", seed=0)
    assert counts(labels, split) == [0, 0, 0, 0, 0, 2, 0, 0, 0, 2]


def test_the_seed_decides() -> None:
    labels = torch.arange(1000) % 10
    a, b, c = (split_labels(labels, "10 each", seed=seed).labelled.tolist() for seed in (0, 0, 1))
    assert a == b
    assert a != c


def test_every_sample_can_be_chosen() -> None:
    """Each of 20 samples of a class is among the 5 chosen with probability 1/4: 100 ± 5 · 8.7 times in 400."""
    labels = torch.arange(40) % 2
    hits = sum(
        torch.zeros(40).index_add(0, split_labels(labels, "5 each", seed=seed).labelled, torch.ones(10))
        for seed in range(400)
    )
    assert isinstance(hits, Tensor)
    assert (hits - 100).abs().max() < 5 * 8.7


def test_labels_on_a_device(device: torch.device) -> None:
    labels = torch.arange(100) % 10
    split = split_labels(labels.to(device), "2 each", seed=0)
    assert torch.equal(split.labelled, split_labels(labels, "2 each", seed=0).labelled)
    assert split.hidden(labels.to(device)).cpu().tolist() == split.hidden(labels).tolist()


def test_hidden_labels() -> None:
    labels = torch.arange(10) % 2
    split = split_labels(labels, "2 each", seed=0)
    hidden = split.hidden(labels)
    assert (hidden[split.unlabelled] == -1).all()
    assert torch.equal(hidden[split.labelled], labels[split.labelled])
    assert (labels >= 0).all()
    with pytest.raises(ValueError, match="the split is of 10 samples, got 9 labels"):
        split.hidden(labels[:9])


@pytest.mark.parametrize(
    ("amount", "message"),
    [
        ("all", '"whole", a share such as "20%"'),
        ("10", "the amount of labels is"),
        ("-5%", "the amount of labels is"),
        ("0%", "lies above 0% and is at most 100%"),
        ("101%", "at most 100%"),
        ("0 each", "leaves no label"),
        ("4 each", "1 of 2 classes have fewer: class 1 has 3"),
        ("10%", "10% of 10 labels are 1, fewer than the 2 classes"),
    ],
)
def test_amounts_that_cannot_be(amount: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_labels(torch.tensor([0] * 7 + [1] * 3), amount, seed=0)


def test_labels_that_cannot_be(as_user: None) -> None:
    with pytest.raises(ValueError, match="no training sample has a class"):
        split_labels(torch.tensor([-1, -1]), "whole", seed=0)
    with pytest.raises(ValueError, match="the smallest is -2"):
        split_labels(torch.tensor([0, -2]), "whole", seed=0)
    with pytest.raises(TypeError, match="one whole number a sample"):
        split_labels(torch.tensor([0.0, 1.0]), "whole", seed=0)


def test_saved_and_loaded(tmp_path: Path) -> None:
    split = split_labels(torch.arange(100) % 10, "3 each", seed=5)
    split.save(tmp_path / "split.npz")
    other = LabelSplit.load(tmp_path / "split.npz")
    assert torch.equal(split.labelled, other.labelled)
    assert torch.equal(split.unlabelled, other.unlabelled)
    assert [path.name for path in tmp_path.iterdir()] == ["split.npz"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labelled": np.arange(3)}, "it has no array unlabelled"),
        ({"labelled": np.arange(3), "unlabelled": np.arange(2, 5)}, "together must be all of 0 .. 5, each once"),
        ({"labelled": np.arange(3), "unlabelled": np.arange(4, 6)}, "each once"),
        ({"labelled": np.array([2, 1, 0]), "unlabelled": np.arange(3, 5)}, "sorted, distinct"),
        ({"labelled": np.arange(3.0), "unlabelled": np.arange(3, 5)}, "int64"),
        ({"labelled": np.array([None, 1]), "unlabelled": np.arange(3, 5)}, "holds Python objects"),
    ],
)
def test_files_that_are_no_split(tmp_path: Path, as_user: None, arrays: dict[str, np.ndarray], message: str) -> None:
    path = tmp_path / "split.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=message):
        LabelSplit.load(path)


def test_cut_off_or_missing_split(tmp_path: Path) -> None:
    path = tmp_path / "split.npz"
    with pytest.raises(DataError, match="there is no file"):
        LabelSplit.load(path)
    split_labels(torch.arange(100) % 10, "3 each", seed=5).save(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="damaged"):
        LabelSplit.load(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="damaged"):
        LabelSplit.load(path)
    with path.open("wb") as file:
        np.save(file, np.arange(3))
    with pytest.raises(DataError, match="single array"):
        LabelSplit.load(path)
