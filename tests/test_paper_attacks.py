"""benchmarks/paper_attacks.py: the plain reading is the library's attack, each other reading is what its name says."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from typer import Typer
from typer.testing import CliRunner, Result

from gll.attacks import FGSM, IFGSM
from gll.attacks.victims import victim_of
from gll.train.runs import Run
from tests.tiny_runs import digits

FEW = ["data.labels=6 each", "base.size=20", "train.batch=60", "train.labelled=20", "train.steps=6", "test.k=10"]
FEW += ["model.encoder=digits-cnn", "train.channels_last=false"]


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
        module = importlib.import_module("paper_attacks")
        patch.setattr(module, "GRAPH_READINGS", dict(list(module.GRAPH_READINGS.items())[:2]))  # two of many
        yield module


def run_part(bench: ModuleType, folder: Path, part: str, *more: str) -> dict[str, Any]:
    done = invoked(bench, folder, part, *more)
    assert done.exit_code == 0, done.output
    return dict(json.loads((folder / "all.json").read_text()))


def invoked(bench: ModuleType, folder: Path, part: str, *more: str) -> Result:
    app = Typer()
    app.command()(bench.main)
    words = ["--part", part, "--epochs", "3", "--samples", "40", "--base", "40", "--seeds", "0", "--work", str(folder)]
    words += [w for text in [*FEW, f"data.name={digits()}"] for w in ("--set", text)]
    words += [*more, "--json", str(folder / "all.json")]
    return CliRunner().invoke(app, words, catch_exceptions=False, env={"COLUMNS": "300"})


@pytest.fixture(scope="module")
def wnll(bench: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("work")
    return folder, run_part(bench, folder, "wnll")


def test_the_plain_reading_is_the_attack_of_the_library(bench: ModuleType, wnll: tuple[Path, dict[str, Any]]) -> None:
    folder, record = wnll
    (run_folder,) = (folder / "runs").iterdir()
    run = Run.open(run_folder, writes=False)
    images, labels, _, std = bench.samples_of(run, 40, torch.device("cpu"))
    for gradient, exact in (("surrogate", False), ("exact", True)):
        row = next(
            r for r in record["rows"] if r["reading"]["title"] == "plain" and r["reading"]["gradient"] == gradient
        )
        victim = victim_of(run, base=40, exact_gradient=exact)
        for name, attack in (("FGSM", FGSM(0.3 * std)), ("IFGSM", IFGSM(0.3 * std, 0.05 * std))):
            assert row[name] == pytest.approx(100 * attack(victim, images, labels).error)
    errors = {r["reading"]["gradient"]: r["IFGSM"] for r in record["rows"] if r["reading"]["title"] == "plain"}
    assert len(set(errors.values())) > 1  # the gradient matters
    assert row["natural"] < row["IFGSM"]


def test_rows_are_not_measured_again_and_parts_are_joined(bench: ModuleType, wnll: tuple[Path, dict[str, Any]]) -> None:
    folder, record = wnll
    before = {path.name: path.stat().st_mtime_ns for path in (folder / "rows").iterdir()}
    both = run_part(bench, folder, "wnll,gll")
    after = {path.name: path.stat().st_mtime_ns for path in (folder / "rows").iterdir()}
    assert before.items() <= after.items()
    assert {row["head"] for row in both["rows"]} == {"WNLL", "GLL"}
    assert len(both["rows"]) == len(after) > len(record["rows"])
    table = importlib.import_module("_paper_attacks").paper_attacks(both, {})
    assert table.count("the paper's**") == 2
    assert "| **4.64** |" in table
    for row in both["rows"]:
        assert f"{row['IFGSM']:.2f}" in table


def test_a_network_that_is_trained_is_attacked_as_it_is(bench: ModuleType, tmp_path: Path) -> None:
    """The same rows, by runs of the same trainings; beside the paper's errors after adversarial training."""
    first = run_part(bench, tmp_path / "first", "robust-gll,robust-wnll")
    runs = [str(run) for run in (tmp_path / "first" / "runs").iterdir()]
    (tmp_path / "second").mkdir()
    again = run_part(
        bench, tmp_path / "second", "robust-gll,robust-wnll", *(word for run in runs for word in ("--trained", run))
    )
    assert not (tmp_path / "second" / "runs").exists()
    errors = [[(row["head"], row["reading"], row["after"]) for row in record["rows"]] for record in (first, again)]
    assert errors[0] == errors[1]
    assert [row["training"]["adversarial.eps"] for row in again["rows"]] == [0.3] * 4
    module = importlib.import_module("_paper_attacks")
    table, paper = module.readings(again), json.loads(module.EXPECTED.read_text())["values"]
    for head in ("GLL", "WNLL"):
        theirs = paper[f"mnist, {head}, robust"]
        shown = " | ".join(f"{theirs[figure]:.2f}" for figure in ("natural", "FGSM", "IFGSM"))
        assert f"| **{head}** | the paper | | | | {shown} |" in table
    (gll,) = (run for run in runs if "gll-" in run)
    for words in (["--seeds", "1"], ["--epochs", "4"]):
        refused = invoked(bench, tmp_path / "second", "robust-gll", "--trained", gll, *words)
        assert refused.exit_code == 2, "of another seed, or of more epochs"
        assert "none of these is a finished run of this training" in refused.output
    (Path(gll) / "result.json").unlink()
    (tmp_path / "third").mkdir()
    assert invoked(bench, tmp_path / "third", "robust-gll", "--trained", gll).exit_code == 2, "it is not finished"


class Linear(nn.Module):
    """Two classes by the sign of the first pixel less a half; the second pixel leads towards the first class."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        z = self.dropout(images) @ torch.tensor([1.0, -0.1]) - 0.5
        return torch.stack([z, -z], 1)


def moves(bench: ModuleType, image: list[float], label: int, model: nn.Module | None = None, **changes: Any) -> Any:
    """Where the last step of a reading has led: what is judged last."""
    subject = bench.Subject(model or Linear())
    seen: list[torch.Tensor] = []
    judge = subject.predicted
    subject.predicted = lambda x, y: (seen.append(x.clone()), judge(x, y))[1]
    reading = replace(bench.PLAIN, **changes)
    bench.error_after(subject, torch.tensor([image]), torch.tensor([label]), reading, 0.3, unit=0.5, mean=0.2)
    return seen[-1][0].tolist()


def test_readings_by_hand(bench: ModuleType) -> None:
    # ε is 0.15 of the pixel range, a step 0.025. The true class 0 grows with the first pixel.
    assert moves(bench, [0.9, 0.95], 0) == pytest.approx([0.75, 1.0])
    assert moves(bench, [0.9, 0.95], 0, box="none") == pytest.approx([0.75, 1.1])
    assert moves(bench, [0.9, 0.1], 0, box="normalised") == pytest.approx([0.7, 0.25])  # 0.2 .. 0.7 is 0 .. 1
    assert moves(bench, [0.9, 0.5], 0, steps=2) == pytest.approx([0.85, 0.55])
    assert moves(bench, [0.9, 0.5], 0, steps=2, pixels=True) == pytest.approx([0.8, 0.6])
    assert moves(bench, [0.9, 0.5], 1) == pytest.approx([0.9, 0.5])  # wrong already: it stays
    assert moves(bench, [0.9, 0.5], 1, all_move=True) == pytest.approx([1.0, 0.35])
    assert moves(bench, [0.9, 0.5], 1, all_move=True, predicted=True) == pytest.approx([0.75, 0.65])
    assert moves(bench, [0.9, 0.5], 0, Linear(1.0), dropout=True) == pytest.approx([0.9, 0.5])  # all dropped
    assert moves(bench, [0.9, 0.5], 0, Linear(1.0)) == pytest.approx([0.75, 0.65])
