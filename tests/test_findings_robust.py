"""Who is called more robust follows from the records alone, and from enough of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gll.reproduce import robust
from gll.reproduce.experiment import load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import add_records
from gll.reproduce.tables import Shown

CONFIG = """
title = "who"
paper = "none"
kind = "attack"
order = 1
table = { rows = ["data", "head", "training"], figures = ["worst case at 1x, alone", "worst case at 2x, alone"] }
[axes.data]
mnist = ["data.name=mnist"]
fashionmnist = ["data.name=fashionmnist"]
[axes.head]
GLL = ["model.head=gll"]
linear = ["model.head=linear"]
MLP = ["model.head=mlp"]
[axes.training]
robust = ["adversarial.eps=0.1"]
"robust, every class" = ["adversarial.eps=0.1", "adversarial.against=every-class"]
natural = ["adversarial.eps=0.0"]
[scales.full]
seeds = [0, 1]
"""
Errors = dict[tuple[str, str, str], list[tuple[float, float]]]
LEVEL: Errors = {
    ("mnist", "GLL", "robust"): [(3.0, 60.0), (3.2, 80.0)],
    ("mnist", "linear", "robust"): [(2.0, 65.0), (2.1, 70.0)],
    ("mnist", "MLP", "robust"): [(2.0, 71.0), (2.5, 72.0)],
}


def shown(folder: Path, errors: Errors) -> Shown:
    folder.mkdir()
    (folder / "config.toml").write_text(CONFIG)
    (folder / "expected.json").write_text('{"values": {}}')
    experiment = load_experiment(folder)
    made = []
    for cell in kind_of(experiment).cells(experiment, "full"):
        data, head, training = (value for _, value in cell.point.place)
        pairs = errors.get((data, head, training), [])
        if cell.point.seed < len(pairs):
            once, twice = pairs[cell.point.seed]
            attacks = [{"attack": "pgd", "settings": {"eps": eps}, "error": 0.125 * eps} for eps in (1.0, 2.0)]
            balls = [{"norm": "LInf", "eps": 1.0}, {"norm": "LInf", "eps": 2.0}, {"norm": "L2", "eps": 3.0}]
            alone = {"samples": 50, "groups": [{"attacks": attacks, "worst": balls}]}
            record: dict[str, Any] = {"key": cell.key, "cell": cell.title, "seed": cell.point.seed, "scale": "full"}
            values = {"worst case at 1x, alone": once, "worst case at 2x, alone": twice, "natural, alone": 1.0}
            made.append({**record, "values": values, "date": "1", "more": {"alone": alone}})
    add_records(folder / "results.json", made)
    return Shown(experiment, "full")


@pytest.mark.parametrize(
    ("gll", "answer"),
    [
        ([(3.0, 60.0), (3.2, 80.0)], "no"),  # higher at ε, level at twice that
        ([(0.5, 20.0), (0.6, 22.0)], "yes"),
        ([(3.0, 20.0), (3.2, 22.0)], "only at twice ε"),
        ([(0.5, 60.0), (0.6, 80.0)], "only at ε"),
        ([(0.5, 20.0)], "open"),  # one seed, however low
    ],
)
def test_an_answer_needs_seeds_and_a_distance(tmp_path: Path, gll: list[tuple[float, float]], answer: str) -> None:
    found = shown(tmp_path / "who", LEVEL | {("mnist", "GLL", "robust"): gll})
    (contest,) = robust.contests(found, "robust")
    assert contest.answer == answer
    assert answer in robust.ANSWERS
    assert robust.headline(found).startswith("**An adversarially trained GLL ")


def test_lower_than_one_of_two_is_not_enough(tmp_path: Path) -> None:
    errors = LEVEL | {("mnist", "MLP", "robust"): [(9.0, 99.0), (9.1, 99.1)]}
    (contest,) = robust.contests(shown(tmp_path / "who", errors), "robust")
    assert contest.answer == "no"


def test_new_data_and_new_training_are_taken_up(tmp_path: Path) -> None:
    before = shown(tmp_path / "before", LEVEL)
    assert robust.headline(before).endswith("is not more robust than a linear layer or an MLP on MNIST (2 seeds).**")
    assert robust.sentences(before, "natural") == []
    more: Errors = {
        ("fashionmnist", "GLL", "robust"): [(10.0, 20.0), (10.1, 20.2)],
        ("fashionmnist", "linear", "robust"): [(20.0, 30.0), (20.1, 30.2)],
        ("mnist", "GLL", "robust, every class"): [(1.0, 30.0), (1.1, 30.2)],
    }
    after = shown(tmp_path / "after", LEVEL | more)
    words = robust.headline(after)
    assert "is not more robust than a linear layer or an MLP on MNIST (2 seeds); is more robust" in words
    assert words.endswith("on FashionMNIST (2 seeds).**")
    (against,) = robust.sentences(after, "robust, every class")
    assert against.startswith("**MNIST, a GLL trained against every class: yes** (2 seeds).")
    assert "at ε = 2 a GLL **30.1 ± 0.1**, a linear layer **67.5 ± 3.5**, an MLP **71.5 ± 0.7**;" in against
    lines = robust.table(after).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:8]] == [
        "| MNIST, GLL",
        "| MNIST, linear",
        "| MNIST, MLP",
        "| MNIST, GLL, against every class",
        "| FashionMNIST, GLL",
        "| FashionMNIST, linear",
    ]
    assert lines[2].split(" | ")[2] == "25.0\u00a0±\u00a00.0"  # its own gradient at the larger ε
    assert lines[-1].startswith("<small>2 seeds; 50 samples, each alone in a graph")
    uneven = robust.table(shown(tmp_path / "uneven", LEVEL | {("mnist", "GLL", "robust"): [(3.0, 60.0)]}))
    assert "<small>1 to 2 seeds; " in uneven


@pytest.mark.parametrize("page", ["what-we-found.md", "reproduce.md"])
def test_no_line_of_a_text_begins_with_a_number_that_is_written(page: str) -> None:
    """A comment at the beginning of a line ends the paragraph, or the list, that it stands in."""
    text = (Path(__file__).resolve().parent.parent / "docs" / page).read_text(encoding="utf-8")
    inline = re.compile(r"^\s*<!-- [^>]*-->(?!\n).*<!-- end -->")
    assert [line for line in text.splitlines() if inline.match(line)] == []
