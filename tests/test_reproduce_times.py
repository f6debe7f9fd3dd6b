"""experiments/times: times and errors are cells of their own, run apart, and stand in one row."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from gll.data import TrainTest, load
from gll.reproduce import tables, time_cells
from gll.reproduce.choice import values
from gll.reproduce.command import PARENT
from gll.reproduce.experiment import Experiment, load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import read_records
from gll.reproduce.work import Work
from gll.train.progress import Reporter

REAL = Path(__file__).parent.parent / "experiments" / "times"
ONE = 'only = { network = ["small-cnn"], batch = ["128"] }'


def bars(number: int, classes: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of one bright bar, whose height is the class."""
    y = torch.arange(number) % classes
    rows = torch.arange(28)
    bright = (rows // 2 - 1)[None] == y[:, None]
    noise = torch.randint(0, 60, (number, 1, 28, 28), generator=torch.Generator().manual_seed(0))
    return (noise + 190 * bright[:, None, :, None]).to(torch.uint8), y


def images(*_: Any) -> TrainTest:
    names = tuple(map(str, range(10)))
    return TrainTest("bars", *bars(600), *bars(200), names, (0.5,), (0.29,))


def copy_of(folder: Path, *changes: tuple[str, str]) -> Experiment:
    """The experiment with its smallest place alone, and a few steps."""
    text = (REAL / "config.toml").read_text()
    few = (
        ("rounds = 4", "rounds = 2"),
        ("steps = 20", "steps = 1"),
        ("warm = 10", "warm = 1"),
        ("batch=128", "batch=28"),
    )
    for old, new in (*few, ("[scales.full]", f"[scales.full]\n{ONE}"), *changes):
        assert old in text
        text = text.replace(old, new)
    place = folder / "experiments" / "times"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(text)
    return load_experiment(place)


def work_on(experiment: Experiment, *only: str) -> Work:
    return Work(experiment, "full", experiment.folder.parent.parent / "work", "cpu", Reporter(), only)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """One place, on six hundred images in small batches, one epoch."""
    real = time_cells.benchmark

    def benchmark(folder: Path) -> ModuleType:
        module = real(folder)
        monkeypatch.setattr(module, "EPOCHS", 1)
        return module

    monkeypatch.setattr(time_cells, "benchmark", benchmark)
    monkeypatch.setattr("gll.data.load", images)
    return copy_of(tmp_path)


def test_a_place_is_timed_by_one_cell_and_trained_by_one_of_each_head(small: Experiment) -> None:
    whole = load_experiment(REAL)
    cells = kind_of(whole).cells(whole, "full")
    parts = [cell.part for cell in cells]
    assert [parts.count(part) for part in ("times", "errors, gll", "errors, mlp")] == [12, 12, 12]
    assert [cell.title for cell in work_on(small).cells] == [
        "small-cnn, 128, times, seed 0",
        "small-cnn, 128, errors, gll, seed 0",
        "small-cnn, 128, errors, mlp, seed 0",
    ]
    assert values(cells).endswith("; part: times, errors, gll, mlp; seed 0")


def test_how_times_are_taken_decides_no_error(tmp_path: Path) -> None:
    first = [cell.key for cell in work_on(copy_of(tmp_path)).cells]
    assert len(set(first)) == 3
    for change, same in (
        (("rounds = 2", "rounds = 3"), [False, True, True]),
        (("errors = true", "errors = true\nbf16 = true"), [False, False, False]),
        (("errors = true", "errors = false"), [True]),
    ):
        changed = [cell.key for cell in work_on(copy_of(tmp_path, change)).cells]
        assert [a == b for a, b in zip(first, changed, strict=False)][: len(same)] == same
        assert len(changed) == len(same)


def test_times_first_and_errors_later_stand_in_one_row(small: Experiment) -> None:
    tuned = torch.backends.cudnn.benchmark
    assert work_on(small, "times").run() == []
    (timed,) = read_records(small.folder / "results.json").values()
    assert [cell.part for cell in work_on(small).todo()] == ["errors, gll", "errors, mlp"]
    assert [len(t["mlp"]) for t in (timed["more"]["row"]["train"], timed["more"]["row"]["test"])] == [3, 3]
    shown = tables.Shown(small, "full")
    assert shown.status == "1 of 3 cells"
    assert row_of(shown)[-3:] == ["–", "–", "1"]

    assert work_on(small, "errors").run() == []
    shown = tables.Shown(small, "full")
    found = row_of(shown)
    assert shown.status == "done"
    assert read_records(small.folder / "results.json")[timed["key"]] == timed  # not taken again
    assert found[:2] == ["small-cnn", "128"]
    assert len(found) == 2 + 10 + 1
    assert "–" not in found
    assert found[-1] == "1"  # three cells are one seed
    ratio = timed["more"]["row"]["train"]["gll"]["median_ms"] / timed["more"]["row"]["train"]["mlp"]["median_ms"]
    assert found[4] == f"**{ratio:,.2f}**"
    gll, mlp = (float(text.strip("*")) for text in found[-3:-1])
    assert (gll, mlp) == (0.0, mlp)
    assert mlp < 50  # by chance 90
    assert torch.backends.cudnn.benchmark == tuned


def row_of(shown: tables.Shown) -> list[str]:
    """The only row of a table."""
    (line,) = [line for line in tables.table(shown).splitlines() if line.startswith("| small-cnn")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_each_head_is_trained_by_its_own_cell(small: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    assert work_on(small, "errors", "mlp").run() == []
    (record,) = read_records(small.folder / "results.json").values()
    module = time_cells.benchmark(small.folder)
    settings = {"seed": 0, "channels_last": False, "bf16": False, "augment": "none"}
    again = module.Model("mlp", "small-cnn", 28, images(), settings).errors()
    assert record["values"] == {"error mlp, %": again["by batches"]}
    assert record["more"] == {"errors": again, "data": "bars"}


def test_times_are_refused_among_processes_that_share_the_work(
    small: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PARENT, "1")
    (problem,) = work_on(small, "times").run()
    assert "spoil each other's times: --only times, and no --jobs" in problem
    assert work_on(small, "errors", "mlp").run() == []


def test_noise_is_no_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLL_DATA", str(tmp_path / "empty"))
    (problem,) = work_on(copy_of(tmp_path)).run()
    assert problem.startswith("small-cnn, 128, times, seed 0 and 2 more: ")
    assert "mnist" in problem.lower()
    assert "(or elsewhere: set GLL_DATA)" in problem
    assert read_records(tmp_path / "experiments" / "times" / "results.json") == {}


def test_smoke_is_on_real_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which need no file: digits, as large as those of MNIST, and still what they were."""
    monkeypatch.setenv("GLL_DATA", str(tmp_path / "empty"))
    experiment = copy_of(tmp_path)
    work = Work(experiment, "smoke", tmp_path / "work", "cpu", Reporter())
    assert work.run() == []
    (record,) = work.done().values()
    assert record["more"]["data"] == "digits, 28 × 28"
    large, small = time_cells.large_digits(), load("digits")
    assert large.train.shape == (len(small.train), 1, 28, 28)
    assert large.test.shape == (len(small.test), 1, 28, 28)
    back = torch.nn.functional.adaptive_avg_pool2d(large.train.float(), 8)
    assert torch.cosine_similarity(back.flatten(1), small.train.float().flatten(1)).min() > 0.9
    assert large.train.dtype == torch.uint8
