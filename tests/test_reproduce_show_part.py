"""`gll reproduce NAME --show` of a part: places not run, what was trained for longer, distances, pictures, pointers."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce import natural
from gll.reproduce.below import WORST, after_longer_training, has_reasons
from gll.reproduce.experiment import Experiment, load_all, load_experiment
from gll.reproduce.moved import table_of_moved
from gll.reproduce.tables import AUTO, LINEAR, Shown, states_of
from tests.test_reproduce_work import COUNTS, invoked, said, written

REAL = Path(__file__).parent.parent / "experiments"
LONGER = "longer trainings: gll reproduce attack-length --show"
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
    words = ("reproduce", *words, "--show", "--experiments", str(REAL))
    found = CliRunner().invoke(app, words, env={"COLUMNS": "80"})
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


def test_where_nothing_is_run_nothing_is_explained() -> None:
    text = " ".join(shown("table 4", "--only", "vgg11, 2%").split())
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
    cifar = load_experiment(REAL / "cifar10")
    assert has_reasons(cifar, [("resnet20, 20%, GLL", "error")])
    assert not has_reasons(cifar, [("resnet20, 2%, GLL", "error"), ("resnet20, 20%, GLL", "seconds")])


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


def test_the_paper_is_named_where_it_has_numbers() -> None:
    assert "ours (the paper's)" not in shown("gamma")
    assert "ours (the paper's)" in shown("times", "--only", "resnet18")


# Longer trainings -----------------------------------------------------------------------------------------------------


def test_what_was_trained_for_longer_is_told_below() -> None:
    """Of every head that has a longer training, each by its longest, under every attack of the paper."""
    text = shown("figure 7")
    assert longer(text) == {
        "fashionmnist, GLL, robust, 30 epochs:": "FGSM X (11.93), IFGSM X (12.83), CW X (16.19)",
        "fashionmnist, linear, robust, 100 epochs:": "FGSM X (13.50), IFGSM X (14.33), CW X (19.00)",
        "fashionmnist, GLL, natural, 100 epochs:": "FGSM X (34.56), IFGSM X (38.19), CW X (42.81)",
        "fashionmnist, linear, natural, 100 epochs:": "FGSM X (59.19), IFGSM X (81.70), CW X (37.99)",
    }
    assert text.count(LONGER) == 1
    table = shown("table 10")
    heads = {"GLL": 150, "WNLL": 50, "linear": 150}
    assert list(longer(table))[4:] == [f"cifar10, {head}, natural, {epochs} epochs:" for head, epochs in heads.items()]
    assert table.count(LONGER) == 1
    assert LONGER not in shown("figure 6"), "which has all epochs"
    assert list(longer(shown("figure 7", "--only", "linear"))) == [
        "fashionmnist, linear, robust, 100 epochs:",
        "fashionmnist, linear, natural, 100 epochs:",
    ]


def test_the_longest_that_has_met_every_attack_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    by_epochs = {50: {"GLL": [1.0]}, 100: {"GLL": [2.0]}, 400: {"GLL": [3.0]}}
    known = {"FGSM": by_epochs, "IFGSM": by_epochs, "CW": {50: {"GLL": [1.0]}, 100: {"GLL": [2.0]}}}
    monkeypatch.setattr(natural, "longer_trained", lambda group, length, figure: known[figure])
    experiments = load_all(REAL)
    told = dict(after_longer_training(Shown(experiments["adversarial"], "small"), experiments, every=False))
    assert told["fashionmnist, GLL, natural, 100 epochs"].startswith("FGSM 2.00 (")
    assert all(" 100 epochs" in place and "GLL" in place for place in told)


def longer(text: str) -> dict[str, str]:
    """Lines of longer trainings, with ours as X."""
    lines = [line.strip() for line in text.splitlines()]
    return {
        place: re.sub(r"[\d.]+ \(", "X (", figures)
        for place, figures in itertools.pairwise(lines)
        if place.endswith(" epochs:")
    }


def test_longer_trainings_are_told_where_nothing_was_run() -> None:
    """At the scale that was asked for; else the other scale has them."""
    text = shown("figure 8", "--scale", "full")
    assert re.search(r"adversarial at full: 0 of \d+ cells run", text)
    assert [line.split(", ")[1] for line in longer(text)] == ["GLL", "WNLL", "linear"]
    assert shown("figure 8").count(LONGER) == 1


# What words mean ------------------------------------------------------------------------------------------------------


def test_what_words_mean_stands_below() -> None:
    text = " ".join(shown("table 10").split())
    for words in (AUTO, LINEAR):
        assert text.count(words.replace("*", "")) == 1
    assert "as in the paper's table, at ε = 0.3 in its units and c = 20 (mnist)" in text
    assert "at ε = 0.05 in its units and c = 20 (fashionmnist, cifar10)" in text
    assert WORST.replace("*", "") in text
    assert "docs/robustness.md, section How to read the figures" in text
    assert "CW, c = …" not in text
    assert "by its graph:" not in text
    text = " ".join(shown("attack-rate").split())
    assert "CW, c = …: beside the paper's error at c = 20, which is this c in our units if" in text
    assert "by its graph: WNLL, by the gradient of its graph in place of that of the linear layer" in text
    text = " ".join(shown("times", "--only", "resnet18").split())
    assert "mlp: one linear layer and a softmax, which the paper calls MLP where it takes times" in text
    assert "ε" not in text


def test_words_that_are_not_there_are_not_explained() -> None:
    text = shown("adversarial", "--only", "fashionmnist, WNLL")
    assert "  AutoAttack:" not in text
    assert "linear:" not in text
    assert "How to read the figures" not in text
    assert "which the paper calls MLP" not in shown("cifar10", "--only", "resnet18")
    assert WORST.replace("*", "") not in " ".join(shown("more-c").split())
    graphless = "linear, MLP: no graph"
    assert graphless in shown("worst-case")
    assert ": no graph" not in shown("worst-case", "--only", "GLL"), "which has one"


# Scales and seeds -----------------------------------------------------------------------------------------------------


def test_what_another_scale_has_is_said() -> None:
    """Its rows are empty here: --scale has chosen them."""
    text = " ".join(shown("adversarial", "--scale", "small", "--only", "mnist, natural").split())
    assert "run at full (leave --scale out): mnist, GLL, natural (seed 0" in text
    assert "run at full (leave --scale out): softmax (seed 1)" in shown(
        "moons", "--scale", "small", "--only", "softmax"
    )
    assert "leave --scale out" not in shown("adversarial", "--only", "mnist, natural")
    assert "leave --scale out" not in shown("adversarial", "--scale", "full", "--only", "mnist, natural")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("resnet18, 2%, seed 2", "cifar10 at small has resnet18, 2% with seed 0, 1 alone"),
        ("resnet18, 2%, Seed2", "cifar10 at small has resnet18, 2% with seed 0, 1 alone"),
        ("vgg11, 2%, seed2", "cifar10 at small leaves out vgg11, 2%"),
    ],
)
def test_a_scale_without_a_seed_is_not_without_the_place(words: str, message: str) -> None:
    assert message in shown("cifar10", "--only", words)


def test_pointers_keep_the_scale() -> None:
    text = shown("fashion-toy", "--scale", "small")
    assert "gll reproduce fashion-toy --list --scale small" in text
    assert ".png" not in text, "nothing of it was run"
    text = shown("adversarial", "--scale", "small", "--only", "mnist")
    assert ".png" not in text, "they are of full"
    assert "gll reproduce 'figure 9' --show --only mnist" in text


# Distances ------------------------------------------------------------------------------------------------------------

FAR = "mean squared distance"


def test_figure_9_is_how_far_images_are_moved() -> None:
    text = shown("figure 9")
    assert FAR in text
    assert "FashionMNIST, natural" in text
    assert " FGSM " not in text
    assert "the paper has a plot of these, and no numbers" in text
    assert "docs/claim-by-claim.md, section Figure 9" in text
    assert "docs/reproduce.md" not in text
    for name in ("adversarial", "more-c", "attack-length", "attack-rate"):
        assert f"\n    gll reproduce {name} --show" in text
    assert all(len(line) <= 80 for line in text.splitlines() if str(REAL.parent) not in line)
    gll = next(line.split() for line in text.splitlines() if line.split()[:2] == ["MNIST,", "natural,"])
    linear = next(line.split() for line in text.splitlines() if line.split()[:1] == ["linear"])
    first = table_of_moved({name: states_of(one) for name, one in load_all(REAL).items()}).splitlines()[2].split(" | ")
    assert gll[-5:-3] == ["GLL", first[3].split(",")[0]], "the number of its trainings"
    assert re.fullmatch(r"\d+ of \d+", " ".join(linear[-3:]))
    assert WORSE not in text


def test_its_data_sets_can_be_chosen() -> None:
    text = shown("figure 9", "--only", "cifar10")
    assert "CIFAR-10, natural" in text
    assert "MNIST, " not in text
    pictures = [line.split("/")[-1] for line in text.splitlines() if line.endswith(".png")]
    assert pictures == ["reproduce-adversarial-cifar10-distances.png"]


def heads_of(text: str) -> list[str]:
    """Of the table of distances, in its order."""
    found = (re.search(r" (GLL|WNLL|linear) +(?:\d+|not run) ", line) for line in text.splitlines())
    return [match[1] for match in found if match]


def test_its_heads_can_be_chosen() -> None:
    """A GLL's stay: the others are compared with them."""
    text = shown("figure 9", "--only", "fashionmnist, WNLL", "--scale", "small")
    found = heads_of(text)
    assert found == ["GLL", "WNLL"] * (len(found) // 2)
    assert text.count("not run") == len(found) // 2 > 0
    assert "rows are of all seeds and scales" in text
    assert set(heads_of(shown("figure 9", "--only", "GLL"))) == {"GLL"}


def test_pictures_are_of_data_with_rows() -> None:
    text = shown("figure 9", "--only", "mnist | cifar10, robust")
    pictures = [line.split("/")[-1] for line in text.splitlines() if line.endswith(".png")]
    assert pictures == ["reproduce-adversarial-mnist-distances.png"], "CIFAR-10 has none after adversarial training"


def test_it_can_be_asked_for_beside_all_of_its_experiment() -> None:
    text = shown("adversarial", "figure 9", "--only", "mnist")
    assert FAR in text
    assert " FGSM " in text
    text = shown("table 10", "figure 9", "--only", "mnist, natural", "--scale", "small")
    assert FAR in text
    assert text.count("reproduce-adversarial-mnist-distances.png") == 1, "though nothing of the table was run"


def test_without_rows_no_picture_is_named() -> None:
    text = shown("figure 9", "--only", "cifar10, robust")
    assert "not run yet" in text
    assert ".png" not in text


def test_its_numbers_are_those_of_the_page() -> None:
    """By the same helpers."""
    page = (REAL.parent / "docs" / "claim-by-claim.md").read_text(encoding="utf-8").partition("<!-- moved -->")[2]
    cells = [line.strip("| ").split(" | ") for line in page.partition("<!-- end -->")[0].strip().splitlines()[2:]]
    lines = [line.split() for line in shown("figure 9").splitlines() if re.search(r" GLL +\d", line)]
    assert [line[-4:-1] for line in lines] == [[cell[3].split(", ")[0], cell[4], cell[7]] for cell in cells]


def test_errors_are_those_of_the_figures_that_have_some() -> None:
    """Figure 9 has all data sets, and its distances alone."""
    text = shown("figures 6 and 7", "figure 9", "--only", "cifar10")
    assert "figures 6 and 7 are mnist and fashionmnist; cifar10 is figure 8" in text
    assert FAR in text
    assert " FGSM " not in text
    text = shown("figure 6", "figure 9")
    assert " cifar10, " not in text
    assert "CIFAR-10, natural" in text


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
