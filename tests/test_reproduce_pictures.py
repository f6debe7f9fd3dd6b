"""Pictures: that they are of the records as they are now, of which scale and seed, and what is said below them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce import curve_figures, figures
from gll.reproduce.command import stale_pictures
from gll.reproduce.drawn import NAME, read_drawn, stale
from gll.reproduce.experiment import Experiment, load_all, load_experiment, name_of
from gll.reproduce.figures import curves, first_seed, most, pictures
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import add_records, read_records
from gll.reproduce.tables import Shown, provenance, states_of, table
from gll.reproduce.work import Work
from gll.train.progress import Reporter

REAL = Path(__file__).parent.parent / "experiments"


def test_pictures_are_up_to_date() -> None:
    assert stale_pictures(load_all(REAL)) == []


def test_captions_say_what_is_seen() -> None:
    drawn = {name: told["caption"] for name, told in read_drawn(REAL.parent / "docs" / "figures").items()}
    images = drawn["reproduce-adversarial-mnist-images.png"]
    assert images.startswith("figure 10: images that fooled a naturally trained GLL under FGSM, IFGSM and CW")
    page = (REAL.parent / "docs" / "reproduce.md").read_text()
    for name, caption in drawn.items():
        assert f"![{caption}](figures/{name})\n\n<small>{caption}</small>" in page
        assert "reproduce" not in caption
    of_one_seed = [caption for name, caption in drawn.items() if "adversarial" in name or "more-c" in name]
    assert all(", seed 0" in caption for caption in [*of_one_seed, drawn["reproduce-head-at-test.png"]])


def test_pictures_stand_in_the_papers_order() -> None:
    for page in ("docs/reproduce.md", "experiments/README.md"):
        found = re.findall(
            r"^!\[figure (\d+): .*/reproduce-(.*)\.png\)$", (REAL.parent / page).read_text(), re.MULTILINE
        )
        assert [int(number) for number, _ in found] == sorted(int(number) for number, _ in found)
        for number in ("9", "10"):
            data = [name.split("-")[1] for figure, name in found if figure == number]
            assert list(dict.fromkeys(data)) == ["mnist", "fashionmnist", "cifar10"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of `more-c` with what was run of it, and a folder of pictures."""
    root = tmp_path / "experiments"
    shutil.copytree(REAL / "more-c", root / "more-c")
    (tmp_path / "docs" / "figures").mkdir(parents=True)
    return root


def test_check_finds_pictures_that_are_out_of_date(project: Path) -> None:
    where = ["--experiments", str(project)]
    folder = project.parent / "docs" / "figures"
    assert CliRunner().invoke(app, ["reproduce", "--tables", *where]).exit_code == 0
    undrawn = CliRunner().invoke(app, ["reproduce", "--check", *where])
    assert (undrawn.exit_code, "more-c-mnist.png is out of date" in said(undrawn)) == (1, True)
    assert CliRunner().invoke(app, ["reproduce", "--figures", *where]).exit_code == 0
    well = CliRunner().invoke(app, ["reproduce", "--check", *where])
    assert (well.exit_code, said(well)) == (0, "all pages and pictures are up to date")

    # A record that says something else, as one that was merged.
    path = project / "more-c" / "results.json"
    text = json.loads(path.read_text())
    text["records"][0]["more"]["summaries"]["attack"]["groups"][0]["attacks"][0]["error"] += 0.01
    path.write_text(json.dumps(text))
    old = CliRunner().invoke(app, ["reproduce", "--check", *where])
    assert (old.exit_code, "more-c-mnist.png is out of date: run gll reproduce --figures" in said(old)) == (1, True)
    assert CliRunner().invoke(app, ["reproduce", "--figures", *where]).exit_code == 0
    assert CliRunner().invoke(app, ["reproduce", "--check", *where]).exit_code == 0

    planned = pictures(load_all(project), folder)
    (folder / "reproduce-more-c-mnist.png").rename(folder / "reproduce-other.png")
    assert [text.partition(" is ")[2][:11] for text in stale(planned, folder)] == ["out of date", "drawn no mo"]
    (folder / "reproduce-other.png").rename(folder / "reproduce-more-c-mnist.png")
    (folder / NAME).unlink()
    assert len(stale(planned, folder)) == 1


def said(found: Any) -> str:
    return " ".join(found.output.split())


def test_a_larger_scale_is_drawn_where_it_has_as_many_models() -> None:
    """One cell of *full* does not take the place of four models at *small*."""
    config = load_experiment(REAL / "adversarial")
    small, full = Shown(config, "small"), Shown(config, "full")
    place, record = next((p, r) for p, r in small.found if p["data"] == "fashionmnist")
    assert most([small, full], "fashionmnist") is small
    full.found.append((place, record))
    assert most([small, full], "fashionmnist") is small
    assert most([small, full], "mnist") is full
    small.found[:] = [(p, r) for p, r in small.found if p == place]
    assert most([small, full], "fashionmnist") is full, "of as many the larger"


def test_the_title_names_epochs_and_seed() -> None:
    shown = Shown(load_experiment(REAL / "adversarial"), "full")
    summaries, where = first_seed(shown, "mnist", lambda more: more["summary"])
    assert where == "mnist, full, 100 epochs, seed 0"
    assert list(summaries) == [name_of(p).removeprefix("mnist, ") for p in shown.places if p["data"] == "mnist"]
    shown.found[:] = [
        (p, {**r, "seed": 2} if p["head"] == "GLL" else r) for p, r in shown.found if p["training"] == "natural"
    ]
    assert first_seed(shown, "mnist", lambda more: more["summary"])[1].endswith(
        "seed 2 (GLL, natural), 0 (WNLL, natural), 0 (linear, natural)"
    )


# Curves ---------------------------------------------------------------------------------------------------------------


def record_of(head: str, switch: int = 0) -> dict[str, Any]:
    """As of a run of 6 epochs, tested by a graph and by the head every second; an MLP trains before the switch."""
    by_mlp = [[epoch, 20.0 - epoch] for epoch in (2, 4, 6) if head == "mlp" or epoch <= switch]
    curves = {
        "train loss": [[epoch, 1 / epoch] for epoch in range(1, 7)],
        **({"test mlp error": by_mlp} if by_mlp else {}),
        "test gll error": [[epoch, 15.0 - epoch] for epoch in (2, 4, 6)],
    }
    settings = {**({"model.head": head} if head != "gll" else {}), **({"model.switch_at": switch} if switch else {})}
    return {"config": settings, "more": {"curves": curves}, "seed": 0}


@pytest.fixture
def switched() -> Shown:
    """An MLP, a GLL, and a GLL that begins at epoch 4."""
    shown = Shown(load_experiment(REAL / "fashion-toy"), "full")
    found = {"MLP only": record_of("mlp"), "GLL-0": record_of("gll"), "GLL-50": record_of("gll", 4)}
    shown.found[:] = [({"strategy": name}, record) for name, record in found.items()]
    return shown


def points_of(panel: Any) -> dict[tuple[str, str], list[int]]:
    """The epochs of every line, by its name and style."""
    return {(one.get_label(), one.get_linestyle()): list(one.get_xdata()) for one in panel.lines}


def test_what_switches_heads_is_drawn_from_the_switch_on(switched: Shown, tmp_path: Path) -> None:
    """Before it is another head that trains; an MLP that a graph reads has a line of its own."""
    pytest.importorskip("matplotlib")
    figure = curve_figures.curves_figure(curve_figures.columns_of(switched))
    loss, error = figure.axes
    whole, tests = [1, 2, 3, 4, 5, 6], [2, 4, 6]
    mlp, read = ("MLP only", "-"), ("MLP only, read by GLL", "--")
    assert points_of(loss) == {mlp: whole, read: [], ("GLL-0", "-"): whole, ("GLL-50", "-"): [5, 6]}, "at 4 an MLP's"
    assert points_of(error) == {mlp: tests, read: tests, ("GLL-0", "-"): tests, ("GLL-50", "-"): [4, 6]}
    assert (error.get_ylabel(), error.get_yscale()) == ("test error, %, logarithmic", "log")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["MLP only", read[0], "GLL-0", "GLL-50"]
    (picture,) = curves([switched], tmp_path / "toy")
    picture.draw(picture.path)
    assert picture.path.stat().st_size > 1000


def test_a_column_for_each_optimiser_and_a_colour_for_each_strategy() -> None:
    pytest.importorskip("matplotlib")
    shown = Shown(load_experiment(REAL / "fashion-toy"), "full")
    columns = curve_figures.columns_of(shown)
    ran = {place["optimizer"] for place, _ in shown.found}
    assert list(columns) == [name for name in shown.experiment.text["axes"]["optimizer"] if name in ran]
    figure = curve_figures.curves_figure(columns)
    above, below = figure.axes[: len(columns)], figure.axes[len(columns) :]
    assert [panel.get_title() for panel in above] == list(columns)
    seen: dict[str, set[Any]] = {}
    for panel in figure.axes:
        for line in panel.lines:
            if line.get_label() != curve_figures.PAPER:
                seen.setdefault(line.get_label(), set()).add(line.get_color())
    assert list(seen)[:2] == ["MLP only", "MLP only, read by GLL"]
    assert all(len(colours) == 1 for colours in seen.values())
    assert len({next(iter(colours)) for colours in seen.values()}) == len(seen)
    # The graph's reading is of the record as it is: its loss on the test set, whose training loss nobody kept.
    place, record = next((p, r) for p, r in shown.found if p == {"strategy": "MLP only", "optimizer": "SGD 0.01"})
    assert list(columns[place["optimizer"]])[1] == "MLP only, read by GLL"
    assert [x for x, _ in columns[place["optimizer"]]["MLP only, read by GLL"]["loss"]] == [
        epoch for epoch, _ in record["more"]["curves"]["test gll loss"]
    ]
    # The paper's values stand in every column that has the strategy: it names no optimiser.
    papers = {
        panel.get_title(): [float(line.get_ydata()[0]) for line in low.lines if line.get_label() == curve_figures.PAPER]
        for panel, low in zip(above, below, strict=True)
    }
    theirs = {"MLP only": 45.42, "MLP only, read by GLL": 14.66, "GLL-0": 8.9, "GLL-50": 8.68, "GLL-75": 8.91}
    assert papers == {column: [theirs[name] for name in lines] for column, lines in columns.items()}


def test_a_caption_says_what_is_drawn_and_what_is_not(switched: Shown, tmp_path: Path) -> None:
    said, missing = (
        "what switches heads is drawn from the switch on",
        "a strategy without a line in a column was not run",
    )
    caption = curves([switched], tmp_path / "toy")[0].caption
    assert ", full, means over seeds (the paper plots accuracy = 100 − error)" in caption
    assert "dashed: an MLP, read by a graph: above its loss on the test set, as that in training is not kept" in caption
    assert caption.endswith(f"; {said}")
    assert missing not in caption
    assert "triangles" not in caption, "the paper's values are of another optimiser"
    switched.found[:] = [(p, r) for p, r in switched.found if p["strategy"] == "GLL-0"]
    caption = curves([switched], tmp_path / "toy")[0].caption
    assert said not in caption
    assert "dashed" not in caption
    real = curves([Shown(load_experiment(REAL / "fashion-toy"), "full")], tmp_path / "toy")[0].caption
    assert "triangles: the paper's errors at the end, in every column, as it names no optimiser" in real
    assert missing in real


def test_curves_have_colours_of_their_own_that_a_smaller_file_keeps(tmp_path: Path) -> None:
    """With the median cut alone the purple, brown and cyan of Matplotlib came out as grey, grey and blue."""
    import numpy as np
    from matplotlib.colors import to_rgb
    from PIL import Image

    shown, path = Shown(load_experiment(REAL / "fashion-toy"), "full"), tmp_path / "curves.png"
    record = record_of("gll")
    shown.found[:] = [({"strategy": str(number)}, record) for number in range(len(curve_figures.LINES))]
    columns = curve_figures.columns_of(shown)
    for number, line in enumerate(columns[""].values()):  # beside each other
        line["loss"] = [(x, y + number / 10) for x, y in line["loss"]]
    curve_figures.draw_curves(columns, path)
    before = np.array(Image.open(path).convert("RGB")).astype(int)
    figures._smaller(path)
    after = np.array(Image.open(path).convert("RGB")).astype(int)
    colours = {tuple(round(255 * part) for part in to_rgb(colour)) for colour in curve_figures.LINES}
    assert len(colours) == len(curve_figures.LINES)
    for colour in colours:
        there = (before == colour).all(-1)
        assert there.any()
        assert abs(after[there] - colour).max() < 16


# Words of tables and of the terminal ----------------------------------------------------------------------------------


def test_radii_are_told_as_multiples_of_epsilon() -> None:
    shown = Shown(load_experiment(REAL / "worst-case"), "full")
    text = table(shown)
    assert "| worst case at ε, alone | worst case at 2ε, alone |" in text.splitlines()[0]
    assert "at 1x" not in text
    assert "*alone*: every attacked sample in a graph of its own" in text
    assert "worst case at 1x, alone" in shown.found[0][1]["values"], "what is stored keeps its name"


def test_a_commit_that_is_not_whole_is_explained() -> None:
    shown = Shown(load_experiment(REAL / "worst-case"), "full")
    told = "(*-dirty*: made with changes that were not committed then)"
    assert told in provenance(shown)
    shown.found[:] = [(place, {**record, "commit": "abc"}) for place, record in shown.found]
    assert told not in provenance(shown)


@pytest.fixture
def counts(tmp_path: Path) -> Experiment:
    folder = tmp_path / "experiments" / "parameters"
    shutil.copytree(REAL / "parameters", folder, ignore=shutil.ignore_patterns("results.json"))
    return load_experiment(folder)


def test_figures_are_told_with_the_digits_of_the_table(counts: Experiment, tmp_path: Path) -> None:
    told: list[str] = []
    reporter = Reporter()
    reporter.say = told.append  # type: ignore[method-assign]
    Work(counts, "full", tmp_path / "work", "cpu", reporter, ("ResNet20",)).run()
    assert "encoder 271,824, head 16,938, total 288,762 (" in told[-1]


def test_long_cells_on_a_cpu_are_warned_of(counts: Experiment, tmp_path: Path) -> None:
    def slow(experiment: Experiment, scale: str) -> str:
        return Work(experiment, scale, tmp_path / "work", "cpu", Reporter()).slow()

    assert slow(counts, "smoke") == ""
    assert "this is the paper's setting" in slow(counts, "full"), "nothing is known of it"
    cell = next(iter(kind_of(counts).cells(counts, "full")))
    stored = next(iter(read_records(REAL / "parameters" / "results.json").values()))
    record = {**stored, "key": cell.key, "wall_s": 5000.0, "date": "1"}
    add_records(counts.folder / "results.json", [record])
    assert slow(counts, "full") == "", "it was run on CPUs alone"
    add_records(counts.folder / "results.json", [{**record, "device": "A GPU", "wall_s": 700.0, "date": "2"}])
    assert slow(counts, "full").startswith(
        "10 cells of parameters at full on a CPU: such a cell took up to 11:40 on a GPU"
    )


def test_no_time_is_named_of_data_that_has_none(tmp_path: Path) -> None:
    """Cells of MNIST say nothing of those of CIFAR-10, which are many times longer."""
    folder = tmp_path / "experiments" / "more-c"
    shutil.copytree(REAL / "more-c", folder, ignore=shutil.ignore_patterns("results.json"))
    experiment = load_experiment(folder)
    stored = next(iter(read_records(REAL / "more-c" / "results.json").values()))
    cells = {cell.title: cell for cell in kind_of(experiment).cells(experiment, "full")}
    record = {**stored, "key": cells["mnist, GLL, natural, seed 0"].key, "wall_s": 700.0, "device": "A GPU"}

    def slow(*only: str) -> str:
        return Work(experiment, "full", tmp_path / "work", "cpu", Reporter(), only).slow()

    assert "never timed" not in slow(), "of nothing"
    add_records(folder / "results.json", [record])
    assert "such a cell took up to 11:40 on a GPU, and takes longer here" in slow("mnist")
    assert slow("cifar10").startswith("2 cells of more-c at full on a CPU: those of cifar10 were never timed; this is ")
    assert "took" not in slow("cifar10")
    assert "such a cell of mnist took up to 11:40 on a GPU; those of cifar10 were never timed" in slow()


def test_small_is_not_the_papers_setting(tmp_path: Path) -> None:
    """Where its times are known of one data set, and of another are not."""
    folder = tmp_path / "experiments" / "adversarial"
    shutil.copytree(REAL / "adversarial", folder, ignore=shutil.ignore_patterns("results.json", "arrays"))
    experiment = load_experiment(folder)
    stored = next(iter(read_records(REAL / "adversarial" / "results.json").values()))
    cell = next(cell for cell in kind_of(experiment).cells(experiment, "small") if cell.point.data == "mnist")
    add_records(folder / "results.json", [{**stored, "key": cell.key, "wall_s": 700.0, "device": "A GPU"}])
    text = Work(experiment, "small", tmp_path / "work", "cpu", Reporter()).slow()
    assert "cell of mnist took up to 11:40 on a GPU; those of cifar10 and fashionmnist were never timed" in text
    assert "the paper's setting" not in text


def test_what_is_done_at_small_is_told_from_what_is_in_part() -> None:
    from gll.reproduce.tables import how_far

    config = load_experiment(REAL / "cifar10")
    assert how_far({"cifar10": states_of(config)}) == "Of 1 experiments **1 done at small**: `cifar10`."


def test_a_checkout_that_is_not_installed_knows_its_version() -> None:
    import subprocess
    import sys
    import tomllib

    project = tomllib.loads((REAL.parent / "pyproject.toml").read_text())["project"]
    code = "import importlib.metadata as m\ndef none(name): raise m.PackageNotFoundError(name)\nm.version = none\n"
    code += "import gll\nprint(gll.__version__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REAL.parent)
    assert found.stdout.strip() == project["version"]
