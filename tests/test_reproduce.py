"""`gll reproduce`: cells are run once, stop and go on, and the tables say what the files say."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import gll.train.loop
from gll.cli import app
from gll.reproduce import tables
from gll.reproduce.experiment import Experiment, ExperimentError, load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.limit import Limit, where_stopped
from gll.reproduce.records import add_records, claimed, read_records
from gll.reproduce.state import note_begin
from gll.reproduce.train_cells import WARM_UP
from gll.reproduce.work import Work
from gll.train.progress import Reporter
from tests.tiny_runs import digits

REAL = Path(__file__).parent.parent / "experiments"

CONFIG = """
# gll reproduce tiny
#
# Two heads on digits.
title = "two heads"
paper = "a table"
kind = "train"
order = 1
table = { rows = ["head"], figures = ["error"], better = "lower" }
[run]
data = { name = "DATA", labels = "6 each" }
base = { size = 20 }
warmup = { epochs = 1, batch = 100, steps = 2, augment = "simclr-grey" }
train = { epochs = 2, steps = 3, batch = 60, labelled = 20 }
test = { every = 0, k = 10 }
[axes.head]
gll = ["model.head=gll"]
mlp = ["model.head=mlp"]
[scales.small]
seeds = [0, 1]
[scales.smoke]
seeds = [0]
only = { head = ["mlp"] }
set = ["warmup.epochs=0"]
"""
EXPECTED = {"values": {"gll": {"error": [100.0, 1.0]}, "mlp": {"error": 0.0}}, "tolerance": 0.5}


@pytest.fixture
def tiny(tmp_path: Path) -> Experiment:
    """An experiment of four cells and two warm-ups, a second each."""
    folder = tmp_path / "experiments" / "tiny"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG.strip().replace("DATA", str(digits())))
    (folder / "expected.json").write_text(json.dumps(EXPECTED))
    return load_experiment(folder)


def work_on(experiment: Experiment, *only: str, scale: str = "small") -> Work:
    return Work(experiment, scale, experiment.folder.parent.parent / "work", "cpu", Reporter(), only)


def values(experiment: Experiment) -> dict[str, Any]:
    return {r["cell"]: r["values"] for r in read_records(experiment.folder / "results.json").values()}


def test_cells_are_the_grid_with_every_seed_and_heads_share_a_warm_up(tiny: Experiment) -> None:
    cells = work_on(tiny).cells
    titles = [cell.title for cell in cells]
    text = (tiny.folder / "config.toml").read_text().replace('head = ["mlp"] }', 'head = ["mlp", "gll"] }')
    (tiny.folder / "config.toml").write_text(text.replace("set = [", 'without = ["gll"]\nset = ['))
    left = work_on(load_experiment(tiny.folder), scale="smoke").cells
    assert [cell.title for cell in left] == ["mlp, seed 0"]
    assert titles == ["warm-up, seed 0", "gll, seed 0", "mlp, seed 0", "warm-up, seed 1", "gll, seed 1", "mlp, seed 1"]
    assert [cell.needs for cell in cells[:3]] == ["", cells[0].key, cells[0].key]
    assert len({cell.key for cell in cells}) == 6


def test_label_rates_share_a_warm_up_that_uses_no_labels(tiny: Experiment) -> None:
    text = (tiny.folder / "config.toml").read_text()
    text = text.replace("[axes.head]\n", '[axes.labels]\nfew = ["data.labels=5 each"]\nmore = []\n[axes.head]\n')
    text = text.replace('rows = ["head"]', 'rows = ["labels", "head"]')
    (tiny.folder / "expected.json").write_text('{"values": {}}')
    (tiny.folder / "config.toml").write_text(text)
    both = work_on(load_experiment(tiny.folder)).cells
    assert sum(cell.role == WARM_UP for cell in both) == 4  # the best state is kept, by labels
    (tiny.folder / "config.toml").write_text(
        text.replace("warmup = { epochs = 1", 'warmup = { keep = "last", epochs = 1')
    )
    work = work_on(load_experiment(tiny.folder), "mlp", "seed 0")
    assert [c.title for c in work.cells if c.role] == ["warm-up, seed 0", "warm-up, seed 1"]
    assert work.run() == []
    assert len(work.done()) == 3


def test_stopped_cells_go_on_to_the_same_numbers_and_finished_ones_are_never_repeated(
    tiny: Experiment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps: list[tuple[str, int]] = []
    real = gll.train.loop.Training.train_step
    stop_at = 8

    def step(self: gll.train.loop.Training, *args: Any) -> None:
        if len(steps) == stop_at:
            raise KeyboardInterrupt  # in the middle of the second epoch of the second run
        steps.append((self.config.name, self.epoch))
        real(self, *args)

    monkeypatch.setattr(gll.train.loop.Training, "train_step", step)
    with pytest.raises(KeyboardInterrupt):
        work_on(tiny).run()
    assert [cell.title for cell in work_on(tiny).begun()] == ["mlp, seed 0"]
    assert list(values(tiny)) == ["gll, seed 0", "warm-up, seed 0"]
    stop_at = -1
    assert work_on(tiny).run() == []
    assert [name for name, _ in steps].count("gll-seed-0") == 6  # 2 epochs of 3 steps, once
    first = values(tiny)
    assert len(first) == 6
    count = len(steps)
    assert work_on(tiny).todo() == []
    assert work_on(tiny).run() == []
    assert len(steps) == count

    # Undisturbed, in other folders, the numbers are the same; results.json alone tells what is finished.
    copy = tmp_path / "again" / "experiments" / "tiny"
    shutil.copytree(tiny.folder, copy)
    assert work_on(load_experiment(copy)).todo() == []
    (copy / "results.json").unlink()
    assert work_on(load_experiment(copy)).run() == []
    assert values(load_experiment(copy)) == first


def test_a_record_says_with_what_it_was_made(tiny: Experiment) -> None:
    work_on(tiny, "mlp", "seed 1").run()
    found = read_records(tiny.folder / "results.json").values()
    record = next(r for r in found if r["role"] == "")
    assert [r["role"] for r in found if r is not record] == [WARM_UP]
    assert record["config"]["model.head"] == "mlp"
    assert record["config"]["train.steps"] == 3
    assert (record["seed"], record["scale"], record["place"]) == (1, "small", {"head": "mlp"})
    assert record["device"].endswith("cpu")
    assert record["wall_s"] > 0
    assert set(record["versions"]) >= {"gll", "torch"}
    assert record["commit"]
    assert record["values"]["error"] == record["more"]["curves"]["test mlp error"][-1][1] != 0


def test_a_warm_up_is_made_again_only_where_a_head_still_needs_it(tiny: Experiment) -> None:
    work_on(tiny, "mlp", "seed 0").run()
    shutil.rmtree(tiny.folder.parent.parent / "work")
    assert [c.title for c in work_on(tiny, "mlp", "seed 0").todo()] == []
    assert [c.title for c in work_on(tiny, "seed 0").todo()] == ["warm-up, seed 0", "gll, seed 0"]


def test_smoke_leaves_no_results(tiny: Experiment) -> None:
    work = work_on(tiny, scale="smoke")
    assert work.run() == []
    assert not (tiny.folder / "results.json").exists()
    assert len(work.done()) == 1


def test_errors_of_single_classes(tiny: Experiment) -> None:
    """Those of the test samples of each class, and of all of them together, beside counts by hand."""
    import torch

    from gll.train.model import encode, restore
    from gll.train.runs import Run

    text = (tiny.folder / "config.toml").read_text()
    more = 'options = { figure = "three", classes = ["8", "1", "9"] }\n[run]'
    (tiny.folder / "config.toml").write_text(text.replace("[run]", more, 1).replace("epochs = 1,", "epochs = 0,"))
    experiment = load_experiment(tiny.folder)
    work = work_on(experiment, "mlp", "seed 0")
    assert work.run() == []
    (record,) = read_records(tiny.folder / "results.json").values()
    run = Run.open(next(path.parent for path in work.root.glob("tiny/small/*/run/config.toml")))
    model, data = restore(run)
    with torch.no_grad():
        features = encode(model.encoder, data.test, data, run.config)
        wrong = model.head(features).argmax(1) != data.test_labels
    by_hand = {name: 100 * float(wrong[data.test_labels == int(name)].double().mean()) for name in "819"}
    assert record["more"]["classes"] == pytest.approx(by_hand, abs=1e-4)
    chosen = torch.isin(data.test_labels, torch.tensor([8, 1, 9]))
    assert record["values"]["three"] == pytest.approx(100 * float(wrong[chosen].double().mean()))
    shown = tables.by_class(tables.Shown(experiment, "small")).splitlines()
    assert shown[2:3] == ["| class | 8 | 1 | 9 |"]
    assert shown[4].startswith(f"| mlp | **{by_hand['8']:.1f}** |")


def test_a_cell_that_fails_is_named_and_the_others_go_on(tiny: Experiment) -> None:
    text = (tiny.folder / "config.toml").read_text()
    (tiny.folder / "config.toml").write_text(text.replace('"model.head=gll"', '"model.head=gll", "base.size=1000"'))
    problems = work_on(load_experiment(tiny.folder), "seed 0").run()
    assert len(problems) == 1
    assert problems[0].startswith("gll, seed 0: ")
    assert "mlp, seed 0" in values(tiny)


def test_a_graph_that_cannot_be_solved_ends_one_cell_only(tiny: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    real = gll.train.loop.Training.train_step

    def step(self: gll.train.loop.Training, *args: Any) -> None:
        if self.config.model.head == "gll" and self.epoch == 1:
            raise gll.SolveError(gll.RESULT.MAX_STEPS)
        real(self, *args)

    monkeypatch.setattr(gll.train.loop.Training, "train_step", step)
    problems = work_on(tiny, "seed 0").run()
    assert len(problems) == 1
    assert problems[0].startswith("gll, seed 0: SolveError: ")
    assert sorted(values(tiny)) == ["mlp, seed 0", "warm-up, seed 0"]


def test_keys_follow_what_decides_a_result(tiny: Experiment) -> None:
    def keys(old: str, new: str) -> list[str]:
        path = tiny.folder / "config.toml"
        before = path.read_text()
        assert old in before
        path.write_text(before.replace(old, new))
        found = [cell.key for cell in work_on(load_experiment(tiny.folder)).cells]
        path.write_text(before)
        return found

    first = [cell.key for cell in work_on(tiny).cells]
    assert keys("every = 0", "every = 1") == first  # how often it is tested
    assert keys("epochs = 2, ", "epochs = 2, save_every = 7, lr = 0.001, ") == first  # 0.001 is the default
    changed = keys("epochs = 2", "epochs = 3")
    assert [a == b for a, b in zip(first, changed, strict=True)] == [True, False, False] * 2  # not the warm-up
    assert set(keys('"6 each"', '"5 each"')).isdisjoint(first)


def test_a_cell_is_held_by_one_process(tmp_path: Path) -> None:
    with claimed(tmp_path / "cell") as mine, claimed(tmp_path / "cell") as other:
        assert (mine, other) == (True, False)
    with claimed(tmp_path / "cell") as again:
        assert again


def test_the_limit_interrupts_once_and_says_so() -> None:
    with pytest.raises(KeyboardInterrupt), Limit(0.05) as limit:
        time.sleep(5)
    assert limit.reached
    with Limit(0.05) as limit:
        pass
    time.sleep(0.1)  # nothing comes after it was left
    assert not limit.reached


def test_the_command_stops_after_its_seconds_and_goes_on(tmp_path: Path) -> None:
    import gll.train.model  # noqa: F401
    from gll.moons import Study

    Study(None, 0).step()  # the first step imports a lot: not within the second below
    folder = tmp_path / "moons"
    shutil.copytree(REAL / "moons", folder, ignore=shutil.ignore_patterns("results.json", "arrays"))
    text = (folder / "config.toml").read_text().replace("options.epochs=5", "options.epochs=100000")
    (folder / "config.toml").write_text(text.replace('["τ = 0.01", "softmax"]', '["softmax"]'))
    where = ["--experiments", str(tmp_path), "--work", str(tmp_path / "work"), "--device", "cpu"]
    found = CliRunner().invoke(app, ["reproduce", "moons", "--seconds", "1", *where])
    assert found.exit_code == 0, found.output
    said = " ".join(found.output.split())
    stop = r"1 s are over; stopped in softmax, seed 1 \(softmax [\d,]+/100,000\); 1 of 1 cell left; what is done is"
    assert re.search(stop, said), said
    refused = CliRunner().invoke(app, ["reproduce", "moons", *where])
    assert refused.exit_code == 1
    assert "add --resume" in refused.output
    epoch = [state_of(tmp_path / "work")]
    CliRunner().invoke(app, ["reproduce", "moons", "--seconds", "1", "--resume", *where])
    epoch.append(state_of(tmp_path / "work"))
    assert 0 < epoch[0] < epoch[1] < 100_000


def test_where_it_stopped_is_said_as_it_is(tmp_path: Path) -> None:
    """Not a word of what is kept where there is nothing to go on from."""
    from gll.train.checkpoint import save_checkpoint

    folder = tmp_path / "moons"
    shutil.copytree(REAL / "moons", folder, ignore=shutil.ignore_patterns("results.json", "arrays"))
    work = Work(load_experiment(folder), "smoke", tmp_path / "work", "cpu", Reporter())
    first, second = work.cells[:2]
    for cell in (first, second):
        work.folder(cell).mkdir(parents=True)
    again, kept = "the same command with --resume goes on", "what is done is kept"
    assert where_stopped([work]) == f"2 of 2 cells left; {kept}: {again}"
    note_begin(work.folder(first))
    lost = f"nothing of {first.title} can be kept yet, so that it begins again; what else is done is kept"
    assert where_stopped([work]) == f"stopped in {first.title}; 2 of 2 cells left; {lost}: {again}"
    save_checkpoint(work.folder(first) / "study.safetensors", {}, {"epoch": 3})

    def stop() -> None:
        with work.reporter.task("study", 20) as update:
            update(3, "")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop()
    assert where_stopped([work]) == f"stopped in {first.title} (study 3/20); 2 of 2 cells left; {kept}: {again}"
    note_begin(work.folder(second))
    text = where_stopped([work])
    assert text.startswith(f"stopped in {first.title} and 1 more; 2 of 2 cells left; nothing of {second.title} can")
    with work.reporter.task("study", 20):
        pass
    assert not work.reporter.at  # what has ended is no place to stop


def state_of(work: Path) -> int:
    from gll.train.checkpoint import load_checkpoint

    return int(load_checkpoint(next(work.glob("moons/smoke/*/study.safetensors")))[1]["epoch"])


def test_a_study_of_two_moons_goes_on_as_if_it_had_not_stopped() -> None:
    from gll.moons import Study

    whole, first = Study(0.1, 1), Study(0.1, 1)
    for _ in range(4):
        whole.step()
    first.step()
    first.step()
    first.snapshot()
    second = Study(0.1, 7)  # other weights, which are replaced
    second.load(*first.state())
    assert (second.epoch, second.loss, second.accuracy) == (2, first.loss, first.accuracy)
    np.testing.assert_array_equal(second.snapshots[2], first.snapshots[2])
    second.step()
    second.step()
    for a, b in zip(whole.network.parameters(), second.network.parameters(), strict=True):
        assert bool((a == b).all())


def test_tables_show_ours_beside_the_papers(tiny: Experiment) -> None:
    cells = [cell for cell in kind_of(tiny).cells(tiny, "small") if not cell.role]
    more = {"versions": {"torch": "2"}, "device": "cpu", "wall_s": 1.0, "date": "1", "commit": "c", "more": {}}
    made = [
        {"key": c.key, "cell": c.title, "seed": c.point.seed, "scale": "small", "values": {"error": e}, **more}
        for c, e in zip(cells, (4.0, 1.0, 6.0, 1.0), strict=True)
    ]
    path = tiny.folder / "results.json"
    assert add_records(path, made[:3]) == 3
    assert tables.Shown(tiny, "small").status == "3 of 4 cells"
    assert add_records(path, made) == 1
    shown = tables.Shown(tiny, "small")
    assert shown.status == "done"
    text = tables.table(shown)
    assert "| gll | **5.00 ± 1.41** (100.00 ± 1.00) |" in text
    assert "| mlp | **1.00 ± 0.00** (0.00) |" in text
    assert "means beside the paper's, within its deviation or 0.5: 1 lower, 1 higher" in text
    assert "; 4 s in all; " in text
    warm = [cell for cell in kind_of(tiny).cells(tiny, "small") if cell.role]
    beside = [{**made[0], "key": cell.key, "values": {}, "wall_s": 700.0} for cell in warm]
    add_records(path, [*beside, {**beside[0], "key": "1" * 16, "scale": "smoke"}])
    assert "; 4 s in all, and 1,400 s of warm-ups; " in tables.table(tables.Shown(tiny, "small"))
    assert add_records(path, [made[0] | {"values": {"error": 9.0}}]) == 0  # not later
    assert add_records(path, [made[0] | {"values": {"error": 9.0}, "date": "2"}]) == 1
    old = {**made[0], "key": "0" * 16}
    add_records(path, [old])
    assert (tables.Shown(tiny, "small").old, tables.Shown(tiny, "small").status) == (1, "done")


def test_figures_are_drawn_from_what_was_kept(tiny: Experiment, tmp_path: Path) -> None:
    root, pictures = tmp_path / "project" / "experiments", tmp_path / "project" / "docs" / "figures"
    pictures.mkdir(parents=True)
    shutil.copytree(REAL / "moons", root / "moons", ignore=shutil.ignore_patterns("results.json", "arrays"))
    text = (root / "moons" / "config.toml").read_text().replace("options.epochs=2000", "options.epochs=2")
    (root / "moons" / "config.toml").write_text(text)
    shutil.copytree(tiny.folder, root / "tiny")
    text = (root / "tiny" / "config.toml").read_text().replace("table = {", 'table = { figure = "curves",')
    (root / "tiny" / "config.toml").write_text(text.replace("warmup = { epochs = 1", "warmup = { epochs = 0"))
    where = ["--experiments", str(root), "--work", str(tmp_path / "work")]
    found = CliRunner().invoke(app, ["reproduce", "--figures", *where])
    assert found.exit_code == 0, found.output
    assert list(pictures.iterdir()) == [], "nothing was run yet"
    for name, only in (("moons", "softmax"), ("tiny", "mlp, seed 0")):
        CliRunner().invoke(app, ["reproduce", name, "--scale", "small", "--only", only, "--device", "cpu", *where])
    found = CliRunner().invoke(app, ["reproduce", "--figures", *where])
    assert found.exit_code == 0, found.output
    names = ["reproduce-moons-initial.png", "reproduce-moons.png", "reproduce-tiny.png"]
    assert sorted(path.name for path in pictures.glob("*.png")) == names
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures.glob("*.png"))
    assert "](../docs/figures/reproduce-moons-initial.png)" in (root / "README.md").read_text()
    assert "are up to date" in CliRunner().invoke(app, ["reproduce", "--check", *where]).output
    (root / "README.md").write_text("old")
    stale = CliRunner().invoke(app, ["reproduce", "--check", *where])
    assert (stale.exit_code, "out of date" in stale.output) == (1, True)


def test_results_of_another_machine_are_merged(tiny: Experiment, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny.folder.parent, other)
    work_on(load_experiment(other / "tiny"), "mlp", "seed 0").run()
    where = ["--experiments", str(tiny.folder.parent)]
    found = CliRunner().invoke(app, ["reproduce", "--merge", str(other), *where])
    assert found.exit_code == 0, found.output
    assert "tiny: 2 records taken, 0 were here already" in found.output
    assert "1 of 4" in CliRunner().invoke(app, ["reproduce", "--list", *where]).output
    again = CliRunner().invoke(app, ["reproduce", "--merge", str(other), *where])
    assert again.output.split("\n") == ["1 experiment: nothing new", ""]
    for folder in (tmp_path / "nowhere", other / "tiny"):
        nothing = CliRunner().invoke(app, ["reproduce", "--merge", str(folder), *where])
        assert (nothing.exit_code, "has no results of any experiment" in " ".join(nothing.output.split())) == (1, True)
    results = other / "tiny" / "results.json"
    results.write_text(results.read_text().replace('"experiment": "tiny"', '"experiment": "large"'))
    strange = CliRunner().invoke(app, ["reproduce", "--merge", str(other), *where])
    assert (strange.exit_code, "holds records of large, not of tiny" in " ".join(strange.output.split())) == (1, True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('rows = ["head"]', 'rows = ["tail"]', "rows and columns of its table are"),
        ('only = { head = ["mlp"] }', 'only = { head = ["cnn"] }', "unknown head 'cnn'"),
        ("[scales.small]", "[scales.tiny]", "unknown scale 'tiny'"),
        ('only = { head = ["mlp"] }', 'without = ["cnn"]', "unknown place to leave out 'cnn'"),
        ("order = 1", "", "config.toml: it has no order"),
        ("order = 1", "order = ", "Invalid value"),
    ],
)
def test_a_wrong_config_is_refused(tiny: Experiment, old: str, new: str, message: str) -> None:
    path = tiny.folder / "config.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ExperimentError, match=f"experiment tiny: .*{message}"):
        load_experiment(tiny.folder)


def test_values_of_the_paper_belong_to_cells(tiny: Experiment) -> None:
    (tiny.folder / "expected.json").write_text(json.dumps({"values": {"cnn": {"error": 1.0}}}))
    with pytest.raises(ExperimentError, match=r"unknown place in expected.json 'cnn'"):
        load_experiment(tiny.folder)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({"tiny": {"error": 10}}, "unknown scale of the samples in expected.json 'tiny'"),
        ({"small": {"time": 10}}, "samples 'small' has no option 'time'"),
    ],
)
def test_samples_are_of_a_figure_at_a_scale(tiny: Experiment, samples: dict[str, Any], message: str) -> None:
    (tiny.folder / "expected.json").write_text(json.dumps({"values": {}, "samples": samples}))
    with pytest.raises(ExperimentError, match=message):
        load_experiment(tiny.folder)


def test_mistakes_on_the_command_line(tiny: Experiment) -> None:
    where = ["--experiments", str(tiny.folder.parent)]
    for words, message in (
        ([], "say which experiment: tiny"),
        (["zoo"], "unknown experiment 'zoo'; choose one of tiny"),
        (["tiny", "--scale", "full"], "unknown scale of tiny 'full'; choose one of smoke, small"),
        (["tiny", "--only", "cnn"], "no cell of tiny at smoke is cnn ('cnn' is on no axis); there are head: mlp"),
    ):
        found = CliRunner().invoke(app, ["reproduce", *words, *where])
        assert (found.exit_code, message in found.output) == (1, True), (words, found.output)
