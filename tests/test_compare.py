"""`gll compare`: what it makes of run folders, whole, unfinished and damaged."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from gll.cli import app
from gll.train.compare import compare, print_comparison
from gll.train.curves import draw
from gll.train.loop import new_run, train
from gll.train.records import Curve, find_runs, read_run
from gll.train.runs import RunError
from tests.tiny_runs import WARM, tiny

ERRORS = {"mlp": (0.20, 0.26, 0.17), "gll": (0.05, 0.09, 0.10)}


def write_run(
    path: Path, head: str = "gll", seed: int = 0, error: float = 0.1, *, epochs: int = 3, finished: bool = True,
    more: str = "", also: dict[str, float] | None = None,
) -> Path:  # fmt: skip
    """A run as `gll train` leaves it: errors fall to `error` at the last epoch, after a better one in the middle."""
    path.mkdir(parents=True)
    (path / "config.toml").write_text(
        f'name = "{path.name}"\nseed = {seed}\nout = "{path}"\n{more}\n[model]\nhead = "{head}"\n[train]\nepochs = 3\n'
    )
    rows: list[dict[str, Any]] = []
    for epoch in range(1, epochs + 1):
        rows.append(
            {"phase": "train", "epoch": epoch, "step": 9 * epoch, "loss": 1 / epoch, "error": 0.5, "seconds": 2.5}
        )
        value = error if epoch == 3 else error / 2 if epoch == 2 else 0.9
        for name, shift in {head: 0.0, **(also or {})}.items():
            rows.append(
                {
                    "phase": "test",
                    "epoch": epoch,
                    "head": name,
                    "mode": "transductive",
                    "error": value + shift,
                    "loss": 2.0,
                }
            )
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        (path / "result.json").write_text("{}")
    return path


@pytest.fixture
def six(tmp_path: Path) -> Path:
    for head, errors in ERRORS.items():
        for seed, error in enumerate(errors):
            write_run(tmp_path / f"{head}-{seed}", head, seed, error)
    return tmp_path


def test_runs_that_differ_in_the_seed_make_one_line(six: Path) -> None:
    found = compare([six])
    assert found.keys == ("model.head",)
    assert found.notes == ()
    assert [line.settings["model.head"] for line in found.lines] == ["gll", "mlp"]  # in the order of the folders
    for line in found.lines:
        errors = ERRORS[line.settings["model.head"]]
        assert line.error.mean == pytest.approx(statistics.mean(errors))
        assert line.error.std == pytest.approx(statistics.stdev(errors))
        assert line.error.values == errors  # the last, not the better one of epoch 2
        assert (line.epoch, line.train_loss.mean, line.seconds.mean) == (3, pytest.approx(1 / 3), pytest.approx(7.5))


def test_a_second_setting_splits_the_groups(six: Path) -> None:
    write_run(six / "other", "gll", 3, 0.3, more="device = 'cuda'")
    found = compare([six])
    assert found.keys == ("model.head", "device")
    assert [(line.settings["device"], len(line.runs)) for line in found.lines] == [("–", 3), ("–", 3), ("cuda", 1)]


def test_a_warm_up_of_each_seed_is_a_repetition(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"run-{seed}", seed=seed, more=f'[warmup]\nfrom = "out/warm-{seed}"')
    assert len(compare([tmp_path]).lines) == 1
    write_run(tmp_path / "run-2", seed=2, more='[warmup]\nfrom = "out/warm-0"')
    assert len(compare([tmp_path]).lines) == 2


def test_each_test_of_a_run_has_a_line(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "mlp", 0, 0.2, also={"gll": -0.1})
    found = compare([tmp_path / "a"])
    assert [(line.test, line.error.mean) for line in found.lines] == [
        (("mlp", "transductive"), pytest.approx(0.2)),
        (("gll", "transductive"), pytest.approx(0.1)),
    ]


def test_unfinished_runs_are_named_and_not_averaged(six: Path) -> None:
    write_run(six / "gll-3", "gll", 3, 0.9, epochs=2, finished=False)
    write_run(six / "gll-4", "gll", 4, 0.9, epochs=0, finished=False)
    found = compare([six])
    assert [(len(line.runs), line.finished, line.epoch) for line in found.lines] == [
        (3, True, 3), (1, False, 2), (1, False, 0), (3, True, 3),
    ]  # fmt: skip
    assert found.lines[0].error.values == ERRORS["gll"]
    with (six / "gll-4" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"phase": "stopped", "epoch": 1, "reason": "the loss is NaN"}) + "\n")
    assert "(epoch 0 of 3, stopped: the loss is NaN)" in compare([six]).notes[1]
    assert found.notes == (
        f"{six / 'gll-3'} is not finished (epoch 2 of 3): it is not part of a mean",
        f"{six / 'gll-4'} is not finished (epoch 0 of 3): it is not part of a mean",
    )


def test_damage_is_named_and_not_fatal(six: Path) -> None:
    (six / "gll-0" / "config.toml").write_text("seed = ")
    (six / "gll-1" / "metrics.jsonl").unlink()
    lines = (six / "gll-2" / "metrics.jsonl").read_text().splitlines()
    (six / "gll-2" / "metrics.jsonl").write_text("\n".join([lines[0], "{nonsense", "[1]", *lines[1:], '{"phase": "te']))
    found = compare([six, six / "nowhere"])
    assert len(found.notes) == 4
    for part, note in zip(
        ("config.toml cannot", "no metrics", "lines 2, 3 of", "no config"), sorted(found.notes), strict=True
    ):
        assert part in note
    gll = [line for line in found.lines if line.settings["model.head"] == "gll"]
    assert [line.error.values for line in gll] == [(0.10,)]


def test_a_damaged_result_is_named(six: Path) -> None:
    (six / "gll-1" / "result.json").write_text("{")
    found = compare([six])
    assert f"{six / 'gll-1'}: result.json is damaged: the run counts as unfinished" in found.notes
    assert [(len(line.runs), line.finished) for line in found.lines] == [(2, True), (1, False), (3, True)]


def add_warm_up(run: Path, *chosen: float | None) -> None:
    """As the warm-up logs it with warmup.gamma = "choose": two γ, one after the other, before training."""
    errors = {0.5: (0.5, 0.2), 1.0: (0.5, 0.4)}
    rows: list[dict[str, Any]] = [
        {"phase": "warmup", "gamma": gamma, "epoch": epoch, "loss": 2.0, "graph_error": error}
        for gamma, values in errors.items()
        for epoch, error in enumerate(values)
    ]
    rows += [{"phase": "warmup", "chosen": gamma, "optimistic": False, "candidates": []} for gamma in chosen]
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + text)


def test_of_several_gammas_the_chosen_one_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    for seed, chosen in enumerate((0.5, 1.0)):
        add_warm_up(write_run(tmp_path / f"gll-{seed}", seed=seed), chosen)
    found = compare([tmp_path])
    assert found.notes == ("gll-0: the warm-up chose γ = 0.5 (seed 0), 1 (seed 1)",)  # and nothing is damaged
    (line,) = found.lines
    assert line.as_dict()["gamma"] == [0.5, 1.0]
    curves = [run.curve("warmup", "graph_error") for run in line.runs]
    assert curves == [Curve((0, 1), (0.5, 0.2)), Curve((0, 1), (0.5, 0.4))]
    drawn = []
    plot = Axes.plot
    monkeypatch.setattr(Axes, "plot", lambda self, x, y, *a, **k: drawn.append(y) or plot(self, x, y, *a, **k))
    draw(found, tmp_path / "picture.png")
    assert pytest.approx((50, 30)) in drawn
    add_warm_up(write_run(tmp_path / "unfinished", seed=2, epochs=0, finished=False))
    assert read_run(tmp_path / "unfinished").curve("warmup", "graph_error").values == (0.5, 0.4)


def test_that_no_gamma_was_chosen_is_said(tmp_path: Path) -> None:
    add_warm_up(write_run(tmp_path / "gll-0", seed=0), None)
    found = compare([tmp_path])
    assert found.notes == ("gll-0: the warm-up chose γ = none (seed 0); none: the graph was never better than before",)
    (run,) = found.lines[0].runs
    assert run.gamma is None
    assert run.curve("warmup", "graph_error").values == (0.5, 0.4)  # of the last, in place of nothing


def test_compare_reads_what_a_choosing_warm_up_writes(tmp_path: Path) -> None:
    more = ["warmup.gamma=choose", "warmup.candidates=[0.5, 1.0]", "model.head=mlp", "train.epochs=1"]
    run = new_run(tiny(tmp_path, *WARM, *more))
    train(run)
    record = read_run(run.directory)
    assert record.notes == ()
    assert record.chose
    shown = record.curve("warmup", "graph_error")
    logged = [row for row in run.metrics() if row.get("gamma") == record.gamma and "graph_error" in row]
    assert list(shown.values) == [row["graph_error"] for row in logged]


def test_settings_that_differ_look_different(tmp_path: Path) -> None:
    for n, lr in enumerate((0.001, 0.0010000001)):
        write_run(tmp_path / f"r{n}", seed=n, more=f"lr = {lr}")
    assert [line.settings["lr"] for line in compare([tmp_path]).lines] == ["0.001", "0.0010000001"]


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run: it has no config"):
        compare([tmp_path])


def test_lines_written_again_after_a_resume_count_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", error=0.1)
    with (run / "metrics.jsonl").open("a") as file:
        for epoch, loss in ((2, 0.4), (3, 0.25)):
            file.write(json.dumps({"phase": "train", "epoch": epoch, "loss": loss, "seconds": 1.0}) + "\n")
    assert read_run(run).curve("train", "loss") == Curve((1, 2, 3), (1.0, 0.4, 0.25))
    assert compare([run]).lines[0].seconds.mean == pytest.approx(4.5)


def test_a_figure_that_is_not_finite_does_not_give_way_to_an_earlier_one(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", error=0.1)
    text = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(text[: text.rindex('"error"')] + '"error": null, "loss": null}\n')
    (line,) = compare([run]).lines
    assert line.error.text() == "nan"
    assert line.as_dict()["error"] == {"mean": None, "std": None, "values": [None]}


def test_the_same_seed_twice_is_said(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, seed=7)
    assert "repeat a seed (7, 7)" in compare([tmp_path]).notes[0]


def test_a_folder_of_runs_stands_for_them(six: Path) -> None:
    assert len(find_runs([six])) == 6
    assert find_runs([six / "gll-0", six / "gll-0"]) == [six / "gll-0"]


def test_the_picture_has_the_curves(six: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    drawn = []
    plot = Axes.plot
    monkeypatch.setattr(Axes, "plot", lambda self, x, y, *a, **k: drawn.append((x, y, k)) or plot(self, x, y, *a, **k))
    draw(compare([six]), tmp_path / "new" / "picture.svg")
    assert "<svg" in (tmp_path / "new" / "picture.svg").read_text()
    thick = [(x, y) for x, y, k in drawn if k["linewidth"] == 2]
    assert len(drawn) == 16  # two panels, two groups: three runs and their mean
    assert thick[1] == ((1, 2, 3), pytest.approx((90, 4, 8)))  # the mean test error of gll, in percent
    with pytest.raises(ValueError, match="not 'doc'"):
        draw(compare([six]), tmp_path / "picture.doc")


def drawn_figure(runs: Path, picture: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The figure of a comparison, as it was written."""
    from matplotlib.figure import Figure

    figures, save = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: figures.append(self) or save(self, *a, **k))
    draw(compare([runs]), picture)
    return figures[-1]


@pytest.mark.parametrize("settings", [0, 1, 30])
def test_the_legend_hides_nothing(tmp_path: Path, settings: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the panels, inside the picture, however long the names are; and the panels keep their size."""
    for head in ("gll", "mlp", "wnll"):
        for n in range(min(3, settings + 1)):
            more = "".join(f"setting{i} = {int(i % 3 == n)}\n" for i in range(settings))  # no one of them is enough
            also = {"knn": 0.1, "nearest": 0.2} if n == 0 else {"knn": 0.1}
            write_run(tmp_path / f"{head}-{n}", head, more=more, also=also)
    write_run(tmp_path / "unfinished", "gll", 5, 0.9, epochs=2, finished=False)
    with (tmp_path / "unfinished" / "config.toml").open("a") as file:
        file.write("".join(f"[also{i}]\nsetting = 1\n" for i in range(settings)))
    figure = drawn_figure(tmp_path, tmp_path / "picture.png", monkeypatch)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert all(axis.get_legend() is None for axis in figure.axes)
    box = legend.get_window_extent()
    assert figure.bbox.x0 <= box.x0
    assert box.x1 <= figure.bbox.x1
    assert figure.bbox.y0 <= box.y0
    for axis in figure.axes:
        around = axis.get_tightbbox()  # with labels and ticks
        assert around.y0 >= box.y1
        assert around.x0 >= 0
        assert 3.3 < axis.get_window_extent().height / figure.dpi < 4.5


def test_names_in_the_legend_are_as_short_as_they_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def labels() -> list[str]:
        (legend,) = drawn_figure(tmp_path, tmp_path / "picture.png", monkeypatch).legends
        return [text.get_text().partition(" (test")[0] for text in legend.get_texts()]

    write_run(tmp_path / "a", "gll", more="lr = 1\nclip = 1")
    write_run(tmp_path / "b", "mlp", more="lr = 1\nclip = 2")
    assert labels() == ["gll", "mlp"]  # though clip differs too
    write_run(tmp_path / "c", "mlp", more="lr = 2\nclip = 2")
    assert labels() == ["gll, lr 1", "mlp, lr 1", "mlp, lr 2"]
    write_run(tmp_path / "d", "mlp", seed=1, more="lr = 2\nclip = 2", finished=False)
    assert labels()[3] == "mlp, lr 2 (d, unfinished)"
    write_run(tmp_path / "e", "mlp", more="lr = 2\nclip = 1")
    assert labels()[4] == "lr 2, clip 1, head mlp"  # it takes all
    write_run(tmp_path / "f", "mlp", epochs=0, more="lr = 3")
    assert labels()[-1] == "lr 3, head mlp"  # not tested yet, and without clip


def test_many_differing_settings_go_into_one_column(tmp_path: Path) -> None:
    for n in (1, 2):
        write_run(tmp_path / f"r{n}", more="".join(f"a{i} = {n + i}\n" for i in range(8)))
    console = Console(width=200, record=True)
    console.print(compare([tmp_path]).table())
    assert "a7 = 9" in console.export_text()


def test_no_figure_is_cut_off(six: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write_run(six / "gll-3", "gll", 3, 0.9, epochs=2, finished=False)
    for n, run in enumerate(sorted(six.iterdir())):
        with (run / "config.toml").open("a") as file:
            file.write(f"lr = {0.001 * (n // 4 + 1)}\n[data]\nlabels = '{n // 4 + 1} each'\n")
    arguments = ["compare", str(six), "--out", str(tmp_path_factory.mktemp("plot") / "plot.png")]
    piped = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"}).stdout
    assert "…" not in piped
    assert "0.3333 ± 0.0000" in piped
    assert "2 (unfinished)" in piped
    assert any("gll-3" in line for line in piped.splitlines())  # which run that is
    console = Console(width=80, record=True, force_terminal=True)
    print_comparison(compare([six]), console)
    narrow = console.export_text()
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert "8.00 ± 2.65" in narrow
    assert "loss and seconds: in a wider window, or by --json" in " ".join(narrow.split())


def test_the_command(six: Path, tmp_path: Path) -> None:
    write_run(six / "gll-3", "gll", 3, 0.9, epochs=2, finished=False)
    picture = tmp_path / "plot.png"
    result = CliRunner().invoke(app, ["compare", str(six), "--out", str(picture)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "8.00 ± 2.65" in result.stdout
    assert "21.00 ± 4.58" in result.stdout
    assert "gll-3 is not finished" in " ".join(result.stderr.split())
    assert picture.read_bytes().startswith(b"\x89PNG")
    result = CliRunner().invoke(app, ["compare", str(six), "--json", "--out", str(picture)])
    lines = json.loads(result.stdout)["lines"]
    assert lines[0]["error"] == {
        "mean": pytest.approx(0.08),
        "std": pytest.approx(0.0264575),
        "values": [0.05, 0.09, 0.1],
    }
    assert lines[1]["error"]["std"] is None
    result = CliRunner().invoke(app, ["compare", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert "is not a run" in " ".join(result.stderr.split())
