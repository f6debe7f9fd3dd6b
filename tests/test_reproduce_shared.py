"""What experiments share: warm-ups of CIFAR-10 that several need, and the subset of EMNIST."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gll.data import TrainTest, data_root
from gll.data.arrays import load_npz
from gll.reproduce.experiment import Cell, load_experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.work import Work
from gll.train.progress import Reporter

ROOT = Path(__file__).parent.parent
SUBSET = "emnist47_balanced_subset.npz"


def cells(name: str) -> list[Cell]:
    experiment = load_experiment(ROOT / "experiments" / name)
    return kind_of(experiment).cells(experiment, "small")


def warm_ups(name: str) -> dict[str, Cell]:
    return {cell.key: cell for cell in cells(name) if cell.role}


def test_two_ablations_need_no_warm_up_but_those_of_cifar10() -> None:
    there = {key: cell for key, cell in warm_ups("cifar10").items() if "resnet20" in cell.parts}
    assert sorted(cell.point.seed for cell in there.values()) == [0, 1]
    for name in ("base-sets", "augmentation"):
        assert warm_ups(name).keys() == there.keys(), name
        assert {cell.path for cell in warm_ups(name).values()} == {cell.path for cell in there.values()}  # found there


def test_rows_of_the_ablations_are_cells_of_cifar10() -> None:
    table = {cell.key: cell.parts for cell in cells("cifar10") if not cell.role}
    same = {
        cell.title: table[cell.key]
        for name in ("base-sets", "augmentation")
        for cell in cells(name)
        if cell.key in table
    }
    assert same == {
        title.format(seed): ["resnet20", "2%", head, f"seed {seed}"]
        for seed in (0, 1)
        for title, head in (
            ("random, seed {}", "GLL"),
            ("strong, GLL, seed {}", "GLL"),
            ("strong, MLP, seed {}", "MLP"),
        )
    }


def test_warm_ups_of_each_gamma_differ_in_gamma_alone() -> None:
    found = list(warm_ups("gamma").values())
    assert len(found) == 6 * 2
    gammas = [cell.settings.get("warmup.gamma", 1.0) for cell in found]
    assert sorted(set(gammas)) == [0.01, 0.25, 0.5, 0.75, 0.99, 1.0]
    rest = [{key: value for key, value in cell.settings.items() if key != "warmup.gamma"} for cell in found]
    assert all(one == rest[0] for one in rest)
    assert rest[0]["warmup.epochs"] == 40


def test_what_gamma_did_before_the_head_is_told(tmp_path: Path) -> None:
    work = Work(load_experiment(ROOT / "experiments" / "gamma"), "smoke", tmp_path, "cpu", Reporter())
    assert work.run() == []
    (record,) = [record for record in work.done().values() if not record["role"]]
    for figure in work.experiment.text["table"]["figures"]:
        assert 0 <= record["values"][figure] <= 100, figure


# EMNIST --------------------------------------------------------------------------------------------------------------


def test_the_lines_of_the_page_make_a_subset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From images that say their own number, in place of the official files."""

    def numbered(each: int) -> tuple[torch.Tensor, torch.Tensor]:
        number = torch.arange(47 * each)
        return torch.stack([number // 256, number % 256], dim=1).to(torch.uint8).view(-1, 1, 1, 2), number % 47

    def official(name: str) -> TrainTest:
        assert name == "emnist"
        return TrainTest(name, *numbered(1000), *numbered(150), tuple(f"class {i}" for i in range(47)), (0.0,), (1.0,))

    monkeypatch.setenv("GLL_DATA", str(tmp_path))
    monkeypatch.setattr("gll.data.load", official)
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    lines = page.partition("### EMNIST")[2].partition("```text\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(lines, names)
    made = load_npz(tmp_path / SUBSET)
    assert made.classes == official("emnist").classes
    for images, labels, each, all_of in (
        (made.train, made.train_labels, 780, 1000),
        (made.test, made.test_labels, 130, 150),
    ):
        assert torch.bincount(labels).tolist() == [each] * 47
        number = 256 * images[..., 0].flatten().long() + images[..., 1].flatten()
        assert len(number.unique()) == 47 * each
        assert number.max() < 47 * all_of
        assert torch.equal(number % 47, labels)


def test_the_subset_is_the_one_described() -> None:
    path = data_root() / SUBSET
    if not path.is_file():
        pytest.skip("it is not here, and cannot be fetched")
    about = load_experiment(ROOT / "experiments" / "emnist").about
    assert hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() in about
    with np.load(path, allow_pickle=False) as stored:
        assert all(name in about for name in stored.files)
        assert [np.bincount(stored[name]).tolist() for name in ("y_train", "y_test")] == [[780] * 47, [130] * 47]
