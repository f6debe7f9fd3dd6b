"""`gll reproduce` and names that are none: tables of the paper, slips of the finger, commas in names, equal titles."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce.choice import chosen, why_none
from gll.reproduce.experiment import Experiment, ExperimentError, load_all, load_experiment
from gll.reproduce.in_paper import having, read_places, resolved
from gll.reproduce.kinds import kind_of
from gll.reproduce.listing import show_cells
from gll.reproduce.parts import PARTS, Part
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
    "later": "future work",
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
        (["tables 1 and 3"], ["sizes"], "tables 1 and 3 of the paper are `sizes` (the sizes)"),
        (["tables", "1", "and", "3"], ["sizes"], "tables 1 and 3 of the paper are `sizes` (the sizes)"),
        (["tables", "1,", "3", "own"], ["sizes", "own"], "tables 1 and 3 of the paper are `sizes`"),
        (["figures 6 to 8"], ["attacks"], "figures 6, 7 and 8 of the paper are `attacks`"),
        (["figures", "7-9"], ["attacks"], "figures 7, 8 and 9 of the paper are `attacks`"),
        (["figs. 9–10"], ["attacks"], "figures 9 and 10 of the paper are `attacks`"),
        (["future work"], ["later"], "future work of the paper is `later` (the later)"),
        (["Future", "work", "own"], ["later", "own"], "future work of the paper is `later`"),
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
        (["sises"], "unknown experiment 'sises'; did you mean 'sizes'? There are "),
        (["attack"], "; did you mean 'attacks'?"),
        (["table"], "unknown experiment 'table'; name a table, a figure or an appendix of the paper by its number, "),
        (["table"], "such as 'table 4' or 'appendix A.1', or choose one of "),
        (["sizes", "3"], "unknown experiment '3'; choose one of "),
        (["tabel3"], "; did you mean 'table 3'?"),
        (["sizes", "tabel", "3"], "unknown experiment 'tabel'; did you mean 'table 3'? There are "),
        (["figrues", "6", "to", "8"], "; did you mean 'figures 6, 7 and 8'?"),
        (["appendx b.2"], "; did you mean 'appendix B.2'?"),
        (["size3"], "; did you mean 'sizes'?"),
        (
            ["tables 3 and 10"],
            "tables 3 and 10 are not of one experiment: table 3 is `sizes`, table 10 is `again` and ",
        ),
        (["tables 3 and 10"], "; name them apart: 'table 3' 'table 10'"),
        (["tables", "2", "and", "3"], "no experiment is table 2 of the paper"),
        (["tables 3 and"], "unknown experiment 'tables 3 and'; choose one of "),
    ],
)
def test_what_no_experiment_has_is_refused(counts: Experiment, words: list[str], message: str) -> None:
    where = ["--experiments", str(counts.folder.parent), "--work", str(counts.folder / "work")]
    found = CliRunner().invoke(app, ["reproduce", *words, *where])
    assert (found.exit_code, message in said(found)) == (1, True), found.output
    assert not (counts.folder / "work").exists()


@pytest.mark.parametrize("words", ["section 4.5", "chapter 2", "appendix", "appendixs", "appendices"])
def test_parts_of_the_paper_that_are_no_names(words: str) -> None:
    with pytest.raises(ValueError, match=r"such as 'table 4' or 'appendix A\.1'"):
        resolved([words], load_all(REAL))


@pytest.mark.parametrize("words", [["appendix A"], ["appendix", "a"], ["Appendix-A"], ["appendixa"]])
def test_an_appendix_names_what_is_in_it(words: list[str]) -> None:
    with pytest.raises(ExperimentError, match=r"appendix A of the paper has A\.1 .*; name one: 'A\.1'") as found:
        resolved(words, load_all(REAL))
    for part in ("A.1 (`base-sets`)", "A.2 (`gamma`)", "A.3 (`augmentation`)"):
        assert part in str(found.value)


def test_an_appendix_that_is_none_is_said() -> None:
    with pytest.raises(ExperimentError, match="no experiment is appendix C of the paper"):
        resolved(["appendix C"], load_all(REAL))


@pytest.mark.parametrize("words", [["conclusion"], ["Introduction"], ["related", "work"], ["abstract"]])
def test_words_of_the_paper_have_nothing_to_measure(words: list[str]) -> None:
    with pytest.raises(ExperimentError, match="there is nothing to measure") as found:
        resolved(words, load_all(REAL))
    assert ("its future work is `few-labels`" in str(found.value)) is (words == ["conclusion"])


def test_every_table_of_the_paper_is_found() -> None:
    """Whatever the words of config.toml are: they are read as they stand."""
    experiments = load_all(REAL).values()
    for place in [*(f"table {n}" for n in range(1, 11)), *(f"figure {n}" for n in range(3, 13)), *APPENDICES]:
        assert having(place, experiments), place
    unread = [one.name for one in experiments if one.of_paper and not read_places(one.in_paper)]
    assert unread == []
    assert resolved(["future work"], load_all(REAL)).names == ("few-labels",)


def test_a_number_that_is_near_is_no_place_of_the_paper() -> None:
    with pytest.raises(ValueError, match="; did you mean 'cifar10'") as found:
        resolved(["cifar11"], load_all(REAL))
    assert "figure" not in str(found.value)


# A part of an experiment ----------------------------------------------------------------------------------------------

PAGE = Path(__file__).parent.parent / "docs" / "reproduce.md"


def looked(tmp_path: Path, *words: str) -> str:
    found = CliRunner().invoke(app, ["reproduce", *words, "--experiments", str(REAL), "--work", str(tmp_path)])
    assert found.exit_code == 0, found.output
    return found.output


def unpictured(text: str) -> str:
    """Without the pictures: those of a figure are its own."""
    named = (".png\n", "picture:\n", "pictures:\n")  # the place of one picture has a line of its own if it is long
    return "".join(line for line in text.splitlines(keepends=True) if not line.endswith(named))


@pytest.mark.parametrize(
    ("place", "name", "only"),
    [
        ("table 7", "times", "small-cnn"),
        ("table 8", "times", "resnet18"),
        ("table 9", "times", "resnet110"),
        ("figure 6", "adversarial", "mnist"),
        ("figure 7", "adversarial", "fashionmnist"),
        ("figure 8", "adversarial", "cifar10"),
        ("table 1", "parameters", "FashionMNIST CNN"),
    ],
)
def test_what_is_a_part_of_an_experiment_is_that_part(tmp_path: Path, place: str, name: str, only: str) -> None:
    """As if --only had been given, which is said; and within it a --only of one's own."""
    for look in ("--show", "--list"):
        found, plain = (unpictured(looked(tmp_path, *words, look)) for words in ((place,), (name, "--only", only)))
        assert found.endswith(plain), look
        assert plain != unpictured(looked(tmp_path, name, look))
        quoted = f"'{only}'" if " " in only else only
        assert found.splitlines()[0].endswith(f": --only {quoted}")
    plain = unpictured(looked(tmp_path, name, "--only", f"seed 0, {only}", "--show"))
    assert unpictured(looked(tmp_path, place, "--only", "seed 0", "--show")).endswith(plain)


@pytest.mark.parametrize(("place", "figure"), [("table 5", "error"), ("table 6", "ten hardest")])
def test_a_table_of_one_figure_shows_that(tmp_path: Path, place: str, figure: str) -> None:
    """A cell has all figures: what is run or listed is the same."""
    whole, found = (looked(tmp_path, name, "--show").splitlines() for name in ("emnist", place))
    assert found[0].endswith(f"(EMNIST, and its ten hardest classes), of which --show has '{figure}' alone")
    numbers = {name: [line for line in whole if f" {name} " in line and " ± " in line] for name in ("error", figure)}
    rows = [line for line in found if " ± " in line]
    assert len(rows) == len(numbers[figure]) > 0
    assert all(f" {figure} " in line for line in rows)
    assert looked(tmp_path, place, "--list").endswith(looked(tmp_path, "emnist", "--list"))


@pytest.mark.parametrize(
    ("words", "name", "only"),
    [
        (["figure 7", "figure 6"], "adversarial", "fashionmnist | mnist"),
        (["figures 6, 7"], "adversarial", "mnist | fashionmnist"),
        (["figures 6 to 8"], "adversarial", ""),
        (["figure 6", "table 10"], "adversarial", ""),
        (["adversarial", "figure 6"], "adversarial", ""),
        (["tables 5 and 6"], "emnist", ""),
        (["figure 6", "--only", "mnist, GLL, natural, seed 0"], "adversarial", "mnist, GLL, natural, seed 0"),
    ],
)
def test_parts_are_put_together(tmp_path: Path, words: list[str], name: str, only: str) -> None:
    """All of them, or a whole title, are as they were without."""
    plain = unpictured(looked(tmp_path, name, "--show", "--only", only))
    assert unpictured(looked(tmp_path, *words, "--show")).endswith(plain)


def test_a_part_is_of_its_own_experiment_alone() -> None:
    found = resolved(["figure 6", "cifar10"], load_all(REAL))
    assert (found.names, found.parts) == (
        ("adversarial", "cifar10"),
        {"adversarial": Part(("mnist",), (), ("figure 6",))},
    )


@pytest.fixture
def times(counts: Experiment) -> Experiment:
    """Of networks that are counted in place of timed; at smoke there is the first of them alone."""
    text = COUNTS.replace('"none"', '"tables 7 to 9: times"').replace("first =", "small-cnn =")
    text = text.replace("second =", "resnet18 =").replace("digits-cnn", "vgg11").replace(
        "[scales.smoke]\n", '[scales.smoke]\nonly = { network = ["small-cnn"] }\n'
    )  # fmt: skip
    folder = counts.folder.parent / "times"
    folder.mkdir()
    (folder / "config.toml").write_text(text.strip())
    return load_experiment(folder)


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        (["table 7"], ["small-cnn, seed 0", "small-cnn, seed 1"]),
        (["table 8", "--only", "seed 1"], ["resnet18, seed 1"]),
        (["table 8", "--only", "resnet18, seed 0"], ["resnet18, seed 0"]),
        (["table 8", "--jobs", "2"], ["resnet18, seed 0", "resnet18, seed 1"]),
        (["tables 7 and 8", "--only", "seed 0"], ["small-cnn, seed 0", "resnet18, seed 0"]),
    ],
)
def test_a_part_is_run_alone(times: Experiment, words: list[str], titles: list[str]) -> None:
    where = ["--experiments", str(times.folder.parent), "--work", str(times.folder / "work"), "--device", "cpu"]
    found = CliRunner().invoke(app, ["reproduce", *words, "--scale", "small", *where])
    assert found.exit_code == 0, found.output
    assert sorted(record["cell"] for record in read_records(times.folder / "results.json").values()) == sorted(titles)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table 8"], "no cell of times at smoke is resnet18, but there are at small: add --scale small"),
        (["table 8", "--only", "small-cnn", "--show"], "table 8 is resnet18; small-cnn is table 7"),
        (["table 8", "--only", "small-cnn, seed 1", "--scale", "small"], "table 8 is resnet18; small-cnn is table 7"),
        (["table 8", "--scale", "smoke"], "no cell of times at smoke is resnet18; --scale small has them"),
        (["table 8", "--scale", "smoke", "--list"], "no cell of times at smoke is resnet18; --scale small has them"),
        (["table 8", "--only", "small-cnn", "--pack", "carried.tar.gz"], "table 8 is resnet18; small-cnn is table 7"),
        (["times", "--only", "small-cnn, resnet18", "--show"], "no cell of times at small is small-cnn, resnet18: "),
    ],
)
def test_what_a_part_has_not_is_said(
    times: Experiment, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(times.folder)
    where = ["--experiments", str(times.folder.parent), "--work", str(times.folder / "work")]
    found = CliRunner().invoke(app, ["reproduce", *words, *where])
    assert (found.exit_code, message in said(found)) == (1, True), found.output


def test_a_name_of_another_figure_says_which() -> None:
    experiment = load_experiment(REAL / "adversarial")
    part = resolved(["figures 6 and 7"], {"adversarial": experiment}).parts["adversarial"]
    found = why_none(experiment, "small", ["CIFAR10, GLL", "cifar10", "mnist | fashionmnist"], part)
    assert found == "figures 6 and 7 are mnist and fashionmnist; cifar10 is figure 8"


def test_a_name_in_no_other_part_is_in_the_table_of_all() -> None:
    experiment = load_experiment(REAL / "parameters")
    part = resolved(["table 1"], {"parameters": experiment}).parts["parameters"]
    assert why_none(experiment, "full", ["resnet18"], part) == "table 1 is FashionMNIST CNN; ResNet18 is table 3"
    assert "is on no axis" in why_none(experiment, "full", ["resnet19"], part)


@pytest.mark.parametrize("look", [["--show"], ["--list"], ["--scale", "small"]])
def test_what_of_several_names_a_part_has_not_is_said(times: Experiment, look: list[str]) -> None:
    """Where the part has one of them, too, and so something to show or to run."""
    where = ["--experiments", str(times.folder.parent), "--work", str(times.folder / "work"), "--device", "cpu"]
    found = CliRunner().invoke(app, ["reproduce", "table 8", "--only", "resnet18 | small-cnn", *look, *where])
    assert (found.exit_code, said(found).count("table 8 is resnet18; small-cnn is table 7")) == (0, 1), found.output
    plain = CliRunner().invoke(app, ["reproduce", "table 8", "--only", "resnet18", *look, *where])
    assert "small-cnn" not in plain.output


def test_another_scale_is_named_as_it_can_be_typed() -> None:
    """One that was typed is replaced; --show has all scales but smoke where none is typed."""
    experiment = load_experiment(REAL / "cifar10")
    assert why_none(experiment, "small", ["vgg11", "2%"], given=True).endswith("; --scale full has them")
    found = why_none(experiment, "small", ["vgg11", "2%"], given=True, shows=True)
    assert found.endswith(", but there are at full: leave --scale out")
    found = CliRunner().invoke(app, ["reproduce", "cifar10", "--only", "vgg11, 2%", "--scale", "small", "--show"])
    assert (found.exit_code, "at full: leave --scale out" in said(found)) == (1, True), found.output
    toy = load_experiment(REAL / "fashion-toy")  # with momentum at smoke alone, whose figures mean nothing
    assert "at smoke" in why_none(toy, "full", ["momentum"])
    assert "smoke" not in why_none(toy, "full", ["momentum"], shows=True)


def test_parts_are_those_of_the_page() -> None:
    """Its table counts the entries of each place; what it counts is what is shown."""
    counted = dict[str, Part]()
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        row = re.match(
            r"\| ((?:table|figure) \d+) \|.*?<!-- (?:entries|status) ([\w-]+); (?!without )([^;]+?) -->", line
        )
        if row is not None:
            figures = load_experiment(REAL / row[2]).text["table"]["figures"]
            counted[f"{row[1]} {row[2]}"] = Part(figures=(row[3],)) if row[3] in figures else Part((row[3],))
    assert counted == {f"{place} {name}": part for name, parts in PARTS.items() for place, part in parts.items()}


def test_help_says_what_may_be_a_name() -> None:
    text = said(CliRunner().invoke(app, ["reproduce", "--help"], env={"COLUMNS": "200"}))
    assert "names of the paper: 'table 4', 'figures 6 to 8', B.3" in text


# Words of --only that are on no axis ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "scale", "words", "message"),
    [
        (
            "longer",
            "small",
            "resnet18",
            "; did you mean 'ResNet18: 1,000 steps' or 'ResNet18: 4,000 steps'? There are ",
        ),
        ("longer", "small", "resnet18", "training: '1,000 steps', '1,000 steps, rate 0.05', '4,000 steps', "),
        ("longer", "small", "resnet18", "; head: MLP, WNLL, GLL; seed 0"),
        ("longer", "smoke", "resnet18, MLP", " or 'ResNet18: 4,000 steps', with --scale small?"),
        ("adversarial", "small", "fashion-mnist", "; did you mean 'fashionmnist'?"),
        ("adversarial", "smoke", "Fashion-MNIST", "; did you mean 'fashionmnist', with --scale small?"),
        (
            "adversarial",
            "small",
            "mnist, robst",
            "('robst' is on no axis); did you mean 'robust'? There are data: mnist, ",
        ),
        ("adversarial", "small", "MLP", "('MLP' is on no axis); what the paper calls MLP is 'linear' here; there are "),
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
