"""How far CW moves images, beside other heads: which stand in a row, and what the page says of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import pytest

from gll.reproduce.moved import GLL, Row, rows, table_of_moved
from gll.reproduce.tables import Shown
from tests.page_claims import STATES, require_true


def attacked(head: str, moved: dict[float, float], images: int = 100, epochs: int = 5, **more: Any) -> tuple[Any, Any]:
    """A place and its record: squared distances by c."""
    cells = [{"attack": "cw-paper", "settings": {"c": c}, "mean_squared_l2": far} for c, far in moved.items()]
    other = {"attack": "fgsm", "settings": {"eps": 0.1}, "mean_squared_l2": 99.0}
    config = {"data.name": "mnist", "train.epochs": epochs, **more}
    groups = [{"samples": images, "attacks": [other, *cells]}]
    key = f"{head} {epochs} {more} {moved}"
    return {"head": head}, {"key": key, "config": config, "more": {"summary": {"groups": groups}}}


def shown(*found: tuple[Any, Any]) -> dict[str, Shown]:
    """An experiment that has these records, whatever it was asked for."""
    one = Shown.__new__(Shown)
    one.found = list(found)
    return {"small": one}


def test_heads_stand_in_a_row_where_they_were_trained_and_attacked_alike() -> None:
    gll = attacked("GLL", {1.0: 0.1, 20.0: 0.2, 1000.0: 0.4})
    others = [
        attacked("linear", {20.0: 0.1, 1000.0: 0.9}, images=1000),
        attacked("linear", {20.0: 0.1, 1000.0: 0.9}, epochs=50),
        attacked("linear", {20.0: 0.1, 1000.0: 0.9}, **{"adversarial.eps": 0.3}),
        attacked("MLP", {20.0: 0.1, 1000.0: 0.9}, **{"data.name": "cifar10"}),
    ]
    assert rows({"adversarial": shown(gll, *others)}) == [], "none of these is like it"
    like_it = attacked("linear", {20.0: 0.1, 1000.0: 0.9})
    others += [attacked("linear", {20.0: 0.1, 1000.0: 0.9}, **{"train.lr": 0.5})]
    (row,) = rows({"adversarial": shown(gll, *others), "attack-length": shown(like_it), "longer": shown(gll, gll)})
    assert (row.data, row.robust, row.epochs, row.images) == ("mnist", False, 5, 100)
    assert row.less("linear") == ([1000.0], [20.0, 1000.0]), "at c = 1 there is nothing to compare"
    (line,) = table_of_moved({"adversarial": shown(gll, like_it)}).splitlines()[2:]
    distances = "0.200 | – | 0.100 | 0.400 | – | 0.900"
    assert line == f"| MNIST | natural, 5 epochs | 100 | 1, 0, 1 | {distances} | – | at 1 of 2 (from 1,000 on) |"


def test_seeds_are_averaged_and_a_record_of_two_experiments_counts_once() -> None:
    seeds = [attacked("GLL", {20.0: far, 1000.0: 1.0}) for far in (0.1, 0.3)]
    linear = attacked("linear", {20.0: 0.15, 1000.0: 1.0})
    states = {"adversarial": shown(*seeds, linear), "attack-length": shown(seeds[0], linear)}
    (row,) = rows(states)
    assert row.moved["GLL"][20.0] == [0.1, 0.3]
    assert row.mean("GLL", 20.0) == pytest.approx(0.2)
    assert row.less("linear") == ([], [20.0, 1000.0]), "as far is not less"


def compared(data: str, other: str, **like: Any) -> list[Row]:
    """Rows of a data set in which a GLL stands beside that head."""
    found = [row for row in rows(STATES) if row.data == data and other in row.moved]
    return [row for row in found if all(getattr(row, name) == value for name, value in like.items())]


def share(row: Row, other: str) -> float:
    less, every = row.less(other)
    return len(less) / len(every)


CLAIMS: dict[str, Callable[[], bool]] = {
    "Beside WNLL a GLL's images are moved less nearly everywhere after natural training": lambda: all(
        share(row, "WNLL") >= 8 / 9 for data in ("mnist", "cifar10") for row in compared(data, "WNLL", robust=False)
    ),
    "Beside a linear layer they are so on CIFAR-10, at nearly every c": lambda: (
        statistics.fmean(share(row, "linear") for row in compared("cifar10", "linear")) > 0.8
    ),
    "on FashionMNIST at every c after ten epochs, and after all 100 from c = 500 on": lambda: (
        [share(row, "linear") for row in compared("fashionmnist", "linear", epochs=10)] == [1.0, 1.0]
        and [row.less("linear")[0] for row in compared("fashionmnist", "linear", epochs=100)] == [[500.0, 1000.0]]
    ),
    "at c = 20 two GLLs differ by more than a factor of two, three linear layers by more than six": lambda: (
        [
            round(max(many) / min(many), 1) > least
            for head, least in ((GLL, 2), ("linear", 6))
            for row in compared("mnist", "linear", images=5000)
            for many in [row.moved[head][20.0]]
        ]
        == [True, True]
    ),
    "by seed 0 a GLL's are moved more there in every row, by seed 1 less": lambda: (
        all(row.moved[GLL][20.0][0] > row.moved["linear"][20.0][0] for row in compared("mnist", "linear"))
        and all(
            row.moved[GLL][20.0][1] < row.moved["linear"][20.0][1] for row in compared("mnist", "linear", images=5000)
        )
    ),
    "on CIFAR-10 yes, on FashionMNIST after 10 and 30 epochs, **on MNIST trainings disagree** beside": lambda: all(
        (row.mean(GLL, 20.0) < row.mean("linear", 20.0)) is (data == "cifar10" or row.epochs in (10, 30))
        for data in ("fashionmnist", "cifar10")
        for row in compared(data, "linear")
    ),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_what_the_page_says_is_true_of_the_records(claim: str) -> None:
    require_true(claim, CLAIMS[claim])
