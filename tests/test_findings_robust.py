"""Who is called more robust follows from the records alone, and from enough of them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import scipy.stats

from gll.reproduce import natural, robust
from gll.reproduce.experiment import load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import add_records
from gll.reproduce.tables import Shown
from gll.reproduce.verdicts import chance, relation

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
"natural, as in the paper" = ["adversarial.eps=0.0", "train.epochs=100", "train.lr=0.01", "train.schedule=step"]
[scales.full]
seeds = [0, 1]
"""
Errors = dict[tuple[str, str, str], list[tuple[float, float]]]
LEVEL: Errors = {
    ("mnist", "GLL", "robust"): [(3.0, 60.0), (3.1, 80.0)],
    ("mnist", "linear", "robust"): [(2.0, 67.0), (2.1, 68.0)],
    ("mnist", "MLP", "robust"): [(2.0, 71.0), (2.1, 72.0)],
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
            attacks = [
                {
                    "attack": "pgd",
                    "settings": {"eps": eps, "norm": {"name": "LInf", "scale": 1.0}},
                    "error": 0.125 * eps,
                    "chunk": 9,
                    "threat": {"base": "70 of 80 labelled", "queries": "alone"},
                }
                for eps in (1.0, 2.0)
            ]
            balls = [{"norm": "LInf", "eps": 1.0}, {"norm": "LInf", "eps": 2.0}, {"norm": "L2", "eps": 3.0}]
            alone = {"samples": 1000, "groups": [{"attacks": attacks, "worst": balls}]}
            record: dict[str, Any] = {"key": cell.key, "cell": cell.title, "seed": cell.point.seed, "scale": "full"}
            values = {"worst case at 1x, alone": once, "worst case at 2x, alone": twice, "natural, alone": 1.0}
            values |= {"AutoAttack at 1x, alone": once / 2, "AutoAttack at 2x, alone": twice / 2}
            config = {"train.epochs": 30, "train.lr": 0.001}
            config |= {"train.epochs": 100, "train.lr": 0.01, "train.schedule": "step"} if "paper" in training else {}
            made.append({**record, "values": values, "date": "1", "config": config, "more": {"alone": alone}})
    add_records(folder / "results.json", made)
    return Shown(experiment, "full")


@pytest.mark.parametrize(
    ("gll", "answer"),
    [
        ([(3.0, 60.0), (3.1, 80.0)], ("weaker", "no difference")),
        ([(0.5, 20.0), (0.6, 21.0)], ("yes", "yes")),
        ([(3.0, 20.0), (3.1, 21.0)], ("weaker", "yes")),
        (
            [(2.4, 99.0), (2.4, 99.0)],
            ("no difference", "weaker"),
        ),  # 4 samples of 1,000 from linear, though it has no spread
        ([(2.0, 40.0), (4.0, 60.0)], ("no difference", "no difference")),  # far apart, and so are its own seeds
        ([(0.0, 20.0)], ("so far yes", "so far yes")),  # one seed, however low
        ([(2.2, 69.0)], ("no difference that 1,000 samples and one seed could show",) * 2),
        ([(2.2, 99.0)], ("no difference that 1,000 samples and one seed could show", "so far weaker")),
    ],
)
def test_an_answer_needs_seeds_and_a_distance(
    tmp_path: Path, gll: list[tuple[float, float]], answer: tuple[str, str]
) -> None:
    found = shown(tmp_path / "who", LEVEL | {("mnist", "GLL", "robust"): gll})
    (contest,) = robust.contests(found, "robust")
    assert tuple(contest.answers.values()) == answer
    parts = sum(contest.judged(multiple) == "yes" for multiple in (1, 2))
    word = ("is not more", "is, in part, more", "is more")[parts]
    word = word.replace("is", "is so far", 1) if len(gll) == 1 else word
    assert robust.headline(found).startswith(f"**An adversarially trained GLL {word} robust than ")


@pytest.mark.parametrize("far", [0.4, 0.6, 3.0, 30.0])
@pytest.mark.parametrize("seeds", [1, 3])
def test_the_rule_is_the_same_for_and_against(far: float, seeds: int) -> None:
    ours, theirs = [40.0, 40.1, 40.2][:seeds], [40.0 + far, 40.1 + far, 40.2 + far][:seeds]
    words = relation(ours, theirs, 1000), relation(theirs, ours, 1000)
    level = far < 0.5 or (seeds == 1 and far < 4.0)
    assert words == (("level", "level") if level else ("lower", "higher"))


def test_chance_is_that_of_welchs_test() -> None:
    # By hand: means 2 and 4, variances 1 and 1, so t = -2 / sqrt(2 / 3) = -sqrt(6) with 4 degrees of freedom, and the
    # distribution function of t with 4 degrees is 1/2 + 3/8 s (1 - s² / 12) for s = t / sqrt(1 + t² / 4).
    s = math.sqrt(6.0) / math.sqrt(1 + 6.0 / 4)
    assert chance([1.0, 2.0, 3.0], [3.0, 4.0, 5.0]) == pytest.approx(
        2 * (0.5 - 3 / 8 * s * (1 - s * s / 12)), rel=1e-12
    )
    for ours, theirs in (
        ([38.5, 30.6, 37.7], [27.6, 28.4, 27.5]),
        ([1.0, 4.0], [2.0, 2.5, 9.0]),
        ([1.0, 2.0], [1.0, 2.0]),
    ):
        expected = scipy.stats.ttest_ind(ours, theirs, equal_var=False).pvalue
        assert chance(ours, theirs) == pytest.approx(expected, rel=1e-9)
        assert chance(theirs, ours) == pytest.approx(expected, rel=1e-9)


def test_seeds_that_do_not_deviate_are_judged_by_their_distance() -> None:
    assert relation([3.0] * 3, [3.6] * 3, 1000) == "lower"
    assert relation([3.0] * 3, [3.5] * 3, 1000) == "level"  # half a point
    assert relation([3.0] * 3, [3.0] * 3, 1000) == "level"
    assert (
        relation([100.0] * 3, [97.8, 96.2, 95.9], 1000) == "higher"
    )  # one of them: t = 5.71 with 2 degrees, p = 0.029
    assert relation([100.0] * 3, [96.5, 97.2, 93.7], 1000) == "level"  # t = 3.93, p = 0.059


def test_lower_than_one_of_two_is_said_of_that_one(tmp_path: Path) -> None:
    errors = LEVEL | {("mnist", "MLP", "robust"): [(9.0, 99.0), (9.1, 99.1)]}
    (contest,) = robust.contests(found := shown(tmp_path / "who", errors), "robust")
    assert contest.judged(2) == "no difference"
    assert contest.judged(1) == "weaker beside a linear layer, yes beside an MLP"
    start = (
        "**An adversarially trained GLL is not more robust than a linear layer but, in part, more robust than an MLP: "
    )
    assert robust.headline(found).startswith(start)


def cells(table: str) -> list[list[str]]:
    """The rows of a table."""
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def test_where_no_head_is_left_there_is_no_verdict(tmp_path: Path) -> None:
    errors = {(data, head, "natural"): [(once, 99.9 - once) for once, _ in e] for (data, head, _), e in LEVEL.items()}
    found = shown(tmp_path / "broken", errors)
    once, twice = cells(natural.table(found, [found]))
    assert once[3] == "1 px"
    assert once[5] == "3.0 ± 0.1"
    assert [once[-1], twice[-1]] == ["**weaker**", "**all heads are broken (96.9 to 97.9)**"]
    one_left = errors | {("mnist", "linear", "natural"): [(2.0, 90.0), (2.1, 89.0)]}
    left = shown(tmp_path / "left", one_left)
    assert "broken" not in natural.table(left, [left])


def test_after_natural_training_each_answer_names_its_training(tmp_path: Path) -> None:
    nothing = shown(tmp_path / "nothing", LEVEL)
    assert natural.table(nothing, [nothing]) == "Not run yet."
    errors: Errors = {(data, head, "natural"): pairs for (data, head, _), pairs in LEVEL.items()}
    found = shown(tmp_path / "found", errors)

    def table(name: str, errors: Errors) -> str:
        return natural.table(shown(tmp_path / name, errors), [found])

    ours = ["MNIST", "our training (30 epochs, Adam 0.001, cosine)", "1 + 70"]
    alone = [
        [*ours, "1 px", "seeds 0, 1", "3.0 ± 0.1", "–", "2.0 ± 0.1", "2.0 ± 0.1", "**weaker**"],
        [*ours, "2 px", "seeds 0, 1", "70.0 ± 14.1", "–", "67.5 ± 0.7", "71.5 ± 0.7", "**no difference**"],
    ]
    assert cells(table("again", errors)) == alone
    assert table("others", {place: pairs for place, pairs in errors.items() if place[1] != "GLL"}) == "Not run yet."
    more = {("fashionmnist", head, "natural"): [pair] for head, pair in (("GLL", (1, 2)), ("MLP", (9, 60)))}
    both = cells(table("both", errors | more))
    assert both[:2] == alone
    assert both[2][3:] == ["1 px", "seed 0", "1.0", "–", "–", "9.0", "**so far yes**"]
    other = {
        ("mnist", "GLL", "natural, as in the paper"): [(1.0, 20.0), (1.1, 21.0)],
        ("mnist", "linear", "natural, as in the paper"): [(50.0, 99.0), (51.0, 99.1)],
    }
    after = cells(table("after", errors | other))
    assert after[2:] == alone
    assert after[0][1] == "the paper's training (100 epochs, Adam 0.01, steps)"
    assert [row[-1] for row in after[:2]] == ["**yes**"] * 2


def test_new_data_and_new_training_are_taken_up(tmp_path: Path) -> None:
    before = shown(tmp_path / "before", LEVEL)
    assert robust.headline(before) == (
        "**An adversarially trained GLL is not more robust than a linear layer or an MLP: "
        "on MNIST weaker at the ε of the training, no difference at twice that (seeds 0, 1).**"
    )
    assert robust.sentences(before, "natural") == []
    more: Errors = {
        ("fashionmnist", "GLL", "robust"): [(10.0, 20.0), (10.1, 20.2)],
        ("fashionmnist", "linear", "robust"): [(20.0, 30.0), (20.1, 30.2)],
        ("mnist", "GLL", "robust, every class"): [(1.0, 30.0), (1.1, 30.2)],
    }
    after = shown(tmp_path / "after", LEVEL | more)
    words = robust.headline(after)
    assert "GLL is, in part, more robust than a linear layer but not more robust than an MLP: on MNIST weaker" in words
    assert words.endswith("on FashionMNIST yes at the ε of the training and at twice that (seeds 0, 1).**")
    (against,) = robust.sentences(after, "robust, every class")
    assert against.startswith("**MNIST, a GLL trained against every class** (seeds 0, 1), at ε = 1 px **yes**: ")
    told = re.search(
        r"at ε = 2 px \*\*yes\*\*: a GLL \*\*30.1 ± 0.1\*\*, a linear layer \*\*67.5 ± 0.7\*\* \((.*?)\),", against
    )
    assert told is not None
    mean, ends, samples = told.group(1).split(", ", 2)
    test = scipy.stats.ttest_ind([30.0, 30.2], [67.0, 68.0], equal_var=False).confidence_interval()
    assert mean == "−37.4"
    assert ends == f"{test.low:+.1f} to {test.high:+.1f}".replace("-", "−")
    assert samples == "374 samples of 1,000"
    (level,) = robust.sentences(before, "robust")
    assert level.endswith("of 1,000).") is False  # no difference at the larger ε: an interval, and no number of samples
    assert re.search(r"an MLP \*\*71.5 ± 0.7\*\* \(−1.5, −[\d.]+ to \+[\d.]+\)\.$", level)
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
    assert lines[-1].startswith("<small>seeds 0, 1; 1,000 samples, each alone in a graph")
    assert "ε of the pixel range 0 .. 1: MNIST 1, FashionMNIST 1;" in lines[-1]
    uneven = robust.table(shown(tmp_path / "uneven", LEVEL | {("mnist", "GLL", "robust"): [(3.0, 60.0)]}))
    assert "<small>seed 0 or seeds 0, 1; " in uneven


@pytest.mark.parametrize("page", ["what-we-found.md", "claim-by-claim.md", "reproduce.md"])
def test_no_line_of_a_text_begins_with_a_number_that_is_written(page: str) -> None:
    """A comment at the beginning of a line ends the paragraph, or the list, that it stands in."""
    text = (Path(__file__).resolve().parent.parent / "docs" / page).read_text(encoding="utf-8")
    inline = re.compile(r"^\s*<!-- [^>]*-->(?!\n).*<!-- end -->")
    assert [line for line in text.splitlines() if inline.match(line)] == []
