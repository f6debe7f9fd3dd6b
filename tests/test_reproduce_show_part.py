"""`gll reproduce NAME --show` of a part: places not run, what was trained for longer, distances, pictures, pointers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce.experiment import Experiment, load_all
from tests.test_reproduce_work import COUNTS, invoked, said, written

REAL = Path(__file__).parent.parent / "experiments"
LONGER = "after more epochs: gll reproduce attack-length --show"
WORSE = "where ours are worse, and why"
UNJUDGED = "why the paper's numbers are not judged here"


@pytest.fixture
def half(tmp_path: Path) -> Experiment:
    """Of two networks one is run, with one of two seeds; the paper has both."""
    folder = tmp_path / "experiments" / "counts"
    folder.mkdir(parents=True)
    values = {"first": {"total": 12345}, "second": {"total": [678, 9]}}
    (folder / "expected.json").write_text(json.dumps({"values": values}))
    experiment = written(tmp_path, COUNTS.replace('"none"', '"table 3"') + "[scales.full]\nseeds = [7]\n")
    invoked(experiment, "--scale", "small", "--only", "first, seed 0")
    return experiment


def shown(*words: str) -> str:
    found = CliRunner().invoke(app, ["reproduce", *words, "--show", "--experiments", str(REAL)])
    assert found.exit_code == 0, found.output
    return found.output


def rows(text: str) -> list[list[str]]:
    """Of the tables of two networks: their words."""
    return [line.split() for line in text.splitlines() if line.split()[1:2] == ["total"]]


# Places that were not run ---------------------------------------------------------------------------------------------


def test_what_was_asked_for_and_not_run_has_the_papers_number(half: Experiment) -> None:
    text = invoked(half, "--show", "--only", "second").output
    assert rows(text) == [["second", "total", "–", "(678.00", "±", "9.00)", "–"]]
    assert text.index("counts at full: 0 of 1 cell run") < text.index("second  ") < text.index("counts at small")
    assert "counts at small: 0 of 2 cells run" in text
    assert [row[0] for row in rows(invoked(half, "--show").output)] == ["first"], "the whole table has what was run"


def test_it_stands_beside_what_was_run(half: Experiment) -> None:
    """In one table, in the order of the grid, and nowhere else."""
    text = invoked(half, "--show", "--only", "first | second").output
    assert [(row[0], row[-1]) for row in rows(text)] == [("first", "1"), ("second", "–")]
    assert text.index("counts at small: 1 of 4 cells run") < text.index("first  ")
    assert [row[0] for row in rows(invoked(half, "--show", "--only", "seed 1").output)] == ["first", "second"]


def test_where_nothing_is_run_nothing_is_explained(half: Experiment) -> None:
    text = said(CliRunner().invoke(app, ["reproduce", "table 4", "--only", "vgg11, 2%", "--show"]))
    for head in ("MLP", "WNLL", "GLL"):
        assert re.search(rf"vgg11, 2%, {head} error – \(\d+\.\d+", text), head
    assert "cifar10 at small leaves out vgg11, 2%" in text
    assert WORSE not in text
    assert "why ours differ" not in text
    assert "means beside" not in text


def test_reasons_are_those_of_what_is_shown() -> None:
    assert WORSE in shown("adversarial", "--only", "cifar10")
    assert WORSE not in shown("times", "--only", "resnet18")
    assert WORSE in shown("cifar10", "--only", "resnet20")
    assert WORSE not in shown("cifar10", "--only", "vgg13")


def test_places_are_in_the_order_of_the_grid(half: Experiment) -> None:
    """Also one of which the second seed alone was run."""
    (half.folder / "results.json").unlink()
    for cell in ("first, seed 1", "second, seed 0"):
        invoked(half, "--scale", "small", "--only", cell, "--work", str(half.folder / "another"))
    text = invoked(half, "--show", "--work", str(half.folder / "nowhere")).output
    assert [row[0] for row in rows(text)] == ["first", "second"]


def test_the_column_of_figures_is_no_figure_of_the_paper() -> None:
    head = next(line.split() for line in shown("figure 5").splitlines() if "ours (the paper's)" in line)
    assert head == ["strategy,", "optimizer", "what", "ours", "(the", "paper's)", "seeds"]


# Longer trainings -----------------------------------------------------------------------------------------------------


def test_what_was_trained_for_longer_is_told_below() -> None:
    text = shown("figure 7")
    told = [line.strip() for line in text.splitlines() if " epochs in place of " in line]
    assert [re.sub(r"[\d.]+ \(", "X (", line) for line in told] == [
        "fashionmnist, GLL, natural, after 100 epochs in place of 10: FGSM X (34.56)"
    ]
    assert text.count(LONGER) == 1
    table = shown("table 10")
    assert "cifar10, GLL, natural, after 150 epochs in place of 15: FGSM " in " ".join(table.split())
    assert table.count(LONGER) == 1
    assert LONGER not in shown("figure 6"), "which has all epochs"


# Distances ------------------------------------------------------------------------------------------------------------

FAR = "mean squared distance"


def test_figure_9_is_how_far_images_are_moved() -> None:
    text = shown("figure 9")
    assert FAR in text
    assert "FashionMNIST, natural" in text
    assert " FGSM " not in text
    assert all(len(line) <= 80 for line in text.splitlines() if "docs/" not in line)
    gll = next(line.split() for line in text.splitlines() if line.split()[:2] == ["MNIST,", "natural,"])
    linear = next(line.split() for line in text.splitlines() if line.split()[:1] == ["linear"])
    assert gll[-4] == "GLL"
    assert re.fullmatch(r"\d+ of \d+", " ".join(linear[-3:]))
    assert WORSE not in text


def test_its_data_sets_can_be_chosen() -> None:
    text = shown("figure 9", "--only", "cifar10")
    assert "CIFAR-10, natural" in text
    assert "MNIST, " not in text
    pictures = [line.split("/")[-1] for line in text.splitlines() if line.endswith(".png")]
    assert pictures == ["reproduce-adversarial-cifar10-distances.png"]


def test_both_are_shown_where_both_are_asked_for() -> None:
    text = shown("figures 6 to 9")
    assert FAR in text
    assert " FGSM " in text
    for other in ("figure 6", "adversarial"):
        assert FAR not in shown(other)
    assert "how far CW moves images: gll reproduce 'figure 9' --show" in " ".join(shown("adversarial").split())


# Pictures -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["figure 3"], ["moons-initial"]),
        (["moons"], ["moons-initial", "moons"]),
        (["figure 7"], ["adversarial-fashionmnist-curves"]),
        (["figure 5"], ["fashion-toy"]),
        (["more-c"], ["more-c-mnist"]),
        (
            ["adversarial", "--only", "mnist"],
            [f"adversarial-mnist-{what}" for what in ("curves", "distances", "images")],
        ),
        (
            ["table 10", "--only", "robust, mnist"],
            [f"adversarial-mnist-{w}" for w in ("curves", "distances", "images")],
        ),
        (["emnist"], []),
    ],
)
def test_pictures_are_those_of_what_is_shown(words: list[str], names: list[str]) -> None:
    lines = [line for line in shown(*words).splitlines() if line.endswith(".png")]
    assert [Path(line.split()[-1]).name for line in lines] == [f"reproduce-{name}.png" for name in names]
    assert all(Path(line.split()[-1]).is_file() for line in lines)


# Pointers -------------------------------------------------------------------------------------------------------------


def test_why_numbers_are_not_judged_is_said_where_it_is_known() -> None:
    """By the page, which opens with the same words as config.toml."""
    experiments = load_all(REAL).values()
    known = {one.name for one in experiments if one.is_in_paper and "not judged" in one.about}
    assert {one.name for one in experiments if UNJUDGED in shown(one.name)} == known
    assert UNJUDGED not in shown("fashion-toy", "--only", "SGD 0.001"), "which has no number of the paper"


def test_pointers_keep_what_was_chosen(half: Experiment) -> None:
    text = said(invoked(half, "--show", "--only", "first"))
    assert "gll reproduce counts --list --only first --experiments" in text
    text = said(invoked(half, "--list", "--only", "first, seed 0"))
    assert "gll reproduce counts --show --only 'first, seed 0' --experiments" in text


def test_pointers_fit_in_80_columns() -> None:
    """What is longer stands on two lines, that to be copied on its own."""
    for words in (["table 4"], ["figure 7"], ["table 10", "--only", "fashionmnist, robust"]):
        for line in shown(*words).splitlines()[1:]:
            assert len(line) <= 80 or line.startswith("    ") or str(REAL.parent) in line, line


def test_why_is_asked_of_the_same_data_alone() -> None:
    assert "gll reproduce attack-rate --show" in shown("figure 6")
    assert "gll reproduce attack-length --show" not in shown("figure 6")
    assert "gll reproduce attack-rate --show" not in shown("figure 7")
