"""`gll reproduce` and names that are none: tables of the paper, slips of the finger, commas in names, equal titles."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce.choice import chosen, why_none
from gll.reproduce.experiment import Experiment, load_all, load_experiment
from gll.reproduce.in_paper import having, read_places, resolved
from gll.reproduce.kinds import kind_of
from gll.reproduce.listing import show_cells
from gll.reproduce.records import read_records
from gll.reproduce.words import typed
from tests.test_reproduce_work import COUNTS, invoked, said

REAL = Path(__file__).parent.parent / "experiments"

APPENDICES = [f"appendix {place}" for place in ("A.1", "A.2", "A.3", "B.1", "B.2", "B.3")]
PLACES = {
    "sizes": "tables 1 and 3: parameter counts",
    "attacks": "table 10 and figures 6 to 10: adversarial results",
    "again": "table 10: as in table 4",
    "why": "on table 3: why ours differ",
    "heads": "figure 11 in appendix B.2",
    "own": "none, unlike table 7",
}


@pytest.fixture
def counts(tmp_path: Path) -> Experiment:
    """One of several that say what they are in the paper."""
    for name, paper in {"counts": "none", **PLACES}.items():
        folder = tmp_path / "experiments" / name
        folder.mkdir(parents=True)
        text = COUNTS.replace('title = "counts"', f'title = "the {name}"').replace('"none"', f'"{paper}"')
        (folder / "config.toml").write_text(text.strip())
    return load_experiment(tmp_path / "experiments" / "counts")


# What the paper calls it ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "names", "message"),
    [
        (["table 3"], ["sizes"], "table 3 of the paper is `sizes` (the sizes)"),
        (["Table3"], ["sizes"], "table 3 of the paper is `sizes`"),
        (["table", "3"], ["sizes"], "table 3 of the paper is `sizes`"),
        (["figure 8"], ["attacks"], "figure 8 of the paper is `attacks`"),
        (["fig. 11"], ["heads"], "figure 11 of the paper is `heads`"),
        (["appendix b.2"], ["heads"], "appendix B.2 of the paper is `heads`"),
        (["b.2"], ["heads"], "appendix B.2 of the paper is `heads`"),
        (
            ["table-10"],
            ["again", "attacks"],
            "table 10 of the paper is `again` (the again) and `attacks` (the attacks)",
        ),
        (["own", "table", "3", "fig", "11", "heads"], ["own", "sizes", "heads"], "figure 11 of the paper is `heads`"),
    ],
)
def test_a_table_of_the_paper_is_a_name(counts: Experiment, words: list[str], names: list[str], message: str) -> None:
    """In one line it is said whose, and then it is as if that had been typed: listed, or run."""
    where = ["--experiments", str(counts.folder.parent), "--work", str(counts.folder / "work"), "--device", "cpu"]
    found, plain = (CliRunner().invoke(app, ["reproduce", *w, "--list", *where]) for w in (words, names))
    assert (found.exit_code, plain.exit_code) == (0, 0), found.output
    assert message in said(found)
    assert found.output.endswith(plain.output)
    assert not (counts.folder / "work").exists()
    run = CliRunner().invoke(app, ["reproduce", *words, "--scale", "small", "--only", "first", *where])
    assert (run.exit_code, message in said(run)) == (0, True), run.output
    done = {file.parent.name: len(read_records(file)) for file in counts.folder.parent.glob("*/results.json")}
    assert done == dict.fromkeys(names, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table 2"], "no experiment is table 2 of the paper; gll reproduce --list says where"),
        (["table 4"], "no experiment is table 4 of the paper"),
        (["table 7"], "no experiment is table 7 of the paper"),
        (["C.1"], "no experiment is appendix C.1 of the paper"),
        (
            ["figure 1"],
            "figure 1 of the paper is a drawing, a graph learning layer beside an MLP head: there is nothing",
        ),
        (["figure", "2", "--list"], "figure 2 of the paper is a drawing, the two structures of a classifier: there is"),
        (["sises"], "unknown experiment 'sises'; choose one of "),
        (["sises"], "; did you mean 'sizes'?"),
        (["attack"], "; did you mean 'attacks'?"),
        (["table"], "unknown experiment 'table'; choose one of "),
        (["sizes", "3"], "unknown experiment '3'; choose one of "),
    ],
)
def test_what_no_experiment_has_is_refused(counts: Experiment, words: list[str], message: str) -> None:
    where = ["--experiments", str(counts.folder.parent), "--work", str(counts.folder / "work")]
    found = CliRunner().invoke(app, ["reproduce", *words, *where])
    assert (found.exit_code, message in said(found)) == (1, True), found.output
    assert not (counts.folder / "work").exists()


@pytest.mark.parametrize("words", ["appendix A", "section 4.5", "chapter 2"])
def test_parts_of_the_paper_that_are_no_names(words: str) -> None:
    with pytest.raises(ValueError, match=r"such as 'table 4' or 'appendix A\.1'"):
        resolved([words], load_all(REAL))


def test_every_table_of_the_paper_is_found() -> None:
    """Whatever the words of config.toml are: they are read as they stand."""
    experiments = load_all(REAL).values()
    for place in [*(f"table {n}" for n in range(1, 11)), *(f"figure {n}" for n in range(3, 13)), *APPENDICES]:
        assert having(place, experiments), place
    unread = [one.name for one in experiments if one.of_paper and not read_places(one.in_paper)]
    assert unread in ([], ["few-labels"]), "of the paper's future work"


# Words of --only that are on no axis ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "scale", "words", "message"),
    [
        ("longer", "small", "resnet18", "; did you mean 'ResNet18: 1,000 steps' or 'ResNet18: 4,000 steps'?"),
        ("longer", "small", "resnet18", "training: '1,000 steps', '1,000 steps, rate 0.05', '4,000 steps', "),
        ("longer", "small", "resnet18", "; head: MLP, WNLL, GLL; seed 0"),
        ("longer", "smoke", "resnet18, MLP", " or 'ResNet18: 4,000 steps', with --scale small?"),
        ("adversarial", "small", "fashion-mnist", "; did you mean 'fashionmnist'?"),
        ("adversarial", "smoke", "Fashion-MNIST", "; did you mean 'fashionmnist', with --scale small?"),
        ("adversarial", "small", "mnist, robst", "('robst' is on no axis); there are data: mnist, fashionmnist, "),
        ("adversarial", "small", "mnist, robst", "; did you mean 'robust'?"),
    ],
)
def test_what_is_near_is_asked_for(name: str, scale: str, words: str, message: str) -> None:
    assert message in why_none(load_experiment(REAL / name), scale, typed(words))


@pytest.mark.parametrize(("name", "words"), [("moons", "seed 7"), ("cifar10", "3%"), ("cifar10", "resnet18 2%")])
def test_what_was_no_slip_is_not_asked_about(name: str, words: str) -> None:
    assert "did you mean" not in why_none(load_experiment(REAL / name), "small", typed(words))


def test_what_it_asks_about_can_be_typed() -> None:
    experiment = load_experiment(REAL / "longer")
    cells = kind_of(experiment).cells(experiment, "small")
    found = chosen(cells, typed("ResNet18: 1,000 steps | ResNet18: 4,000 steps"))
    assert found == [cell for cell in cells if "ResNet18" in cell.title]
    assert found


# Where new ones are kept ----------------------------------------------------------------------------------------------


def test_a_run_says_where_new_cells_are_kept(counts: Experiment) -> None:
    kept = counts.folder / "results.json"
    found = said(invoked(counts, "--scale", "small", "--only", "seed 0"))
    assert f"counts (small): 2 of 2 cells, 2 of them new; kept in {kept}" in found
    assert kept.is_file()
    assert "results.json" not in said(invoked(counts)), "smoke is kept elsewhere"


# Warm-ups of one title ------------------------------------------------------------------------------------------------

WARM = """
# gll reproduce warm
title = "two networks"
paper = "none"
kind = "train"
order = 1
table = { rows = ["training"], figures = ["error"] }
[run]
data = { name = "digits", labels = "6 each" }
warmup = { epochs = 1, augment = "simclr-grey" }
[axes.training]
short = []
long = ["train.epochs=4"]
other = [OTHER]
"other, long" = [OTHER, "train.epochs=4"]
[scales.small]
seeds = [0, 1]
"""


def listed(root: Path, settings: str) -> tuple[Experiment, str]:
    """An experiment that has two more trainings of these settings, and how it is listed."""
    folder = root / "experiments" / "warm"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(WARM.strip().replace("OTHER", settings))
    experiment, console = load_experiment(folder), Console(width=80, record=True, file=StringIO())
    show_cells(experiment, "small", (), root / "work", console)
    return experiment, console.export_text()


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ('"model.encoder=small-cnn"', ["digits-cnn", "small-cnn"]),  # the first is the default, and set nowhere
        ('"warmup.epochs=3"', ["epochs 1", "epochs 3"]),
        ('"model.encoder=small-cnn", "warmup.epochs=3"', ["epochs 1, digits-cnn", "epochs 3, small-cnn"]),
    ],
)
def test_warm_ups_of_one_title_are_told_apart(tmp_path: Path, settings: str, names: list[str]) -> None:
    experiment, text = listed(tmp_path, settings)
    cells = [cell for cell in kind_of(experiment).cells(experiment, "small") if cell.role]
    assert [cell.title for cell in cells] == [f"warm-up ({name}), seed {seed}" for seed in (0, 1) for name in names]
    assert all(f"warm-up ({name})" in text for name in names)
    assert {cell.folder for cell in cells} == {f"warm-up-seed-{c.point.seed}-{c.key[:8]}" for c in cells}


def test_a_warm_up_alone_needs_no_more_words(tmp_path: Path) -> None:
    _, text = listed(tmp_path, '"train.lr=0.5"')
    assert "warm-up " in text
    assert "warm-up (" not in text


def test_the_warm_ups_of_longer_keep_their_folders() -> None:
    """Their keys are in results.json, made before they were told apart."""
    experiment = load_experiment(REAL / "longer")
    cells = {cell.title: cell for cell in kind_of(experiment).cells(experiment, "small") if cell.role}
    first, second = cells["warm-up (resnet20), seed 0"], cells["warm-up (resnet18), seed 0"]
    assert (first.folder, first.path) == ("warm-up-seed-0-de65f316", f"warm-up/{first.key}")
    assert (second.folder, second.path) == ("warm-up-seed-0-d00529dc", f"warm-up/{second.key}")
