"""Evaluations: the per-sample worst, and results on disk that survive being killed at any moment."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gll.attacks.balls import Ball
from gll.attacks.base import AbstractAttack
from gll.attacks.checks import run_checks
from gll.attacks.evaluate import Evaluation, Outcome, evaluate
from gll.attacks.gather import gather, judged_by
from gll.attacks.gradient import FGSM, PGD
from gll.attacks.norms import AbstractNorm, LInf
from gll.attacks.store import Cell, Kind, ResultsError, Store
from gll.attacks.threat import ThreatModel
from tests.attack_stubs import blobs, chunk_of, honest_mlp

ATTACKS: list[AbstractAttack] = [FGSM(0.1), PGD(0.2, steps=5), PGD(0.1, steps=3)]
ABOUT = {"model": "mlp", "samples": 11, "seed": 0}


def results(directory: Path) -> dict[str, Any]:
    """Everything in a folder but the times."""
    found: dict[str, Any] = {}
    for path in sorted(directory.glob("cells/*.json")):
        record = json.loads(path.read_text())
        found[path.name] = [{k: v for k, v in chunk.items() if k != "seconds"} for chunk in record["chunks"]]
    for path in sorted(directory.glob("cells/*.npz")):
        with np.load(path, allow_pickle=False) as arrays:
            found[path.name] = {name: arrays[name].tolist() for name in arrays.files}
    return found


def run(directory: Path, *, resume: bool, model: nn.Module | None = None) -> Evaluation:
    x, y = blobs(11)
    store = Store.open(directory, ABOUT, resume=resume)
    return evaluate(model or honest_mlp(), x, y, ATTACKS, chunk=4, store=store, seed=3)


# The worst ----------------------------------------------------------------------------------------------------------


def made(wrong: list[int], *, eps: float | None, linf: float, l2: float = 1.0, scale: Any = 1.0) -> Outcome:
    norm = {"name": "LInf", "scale": scale} if eps is not None else "L2"
    cell = Cell("A", {"eps": eps, "norm": norm, "wrong": wrong}, Kind.MULTI, None, 10)
    return Outcome(cell, (chunk_of(10, wrong, linf=linf, l2=l2),))


def test_the_worst_is_taken_sample_by_sample() -> None:
    parts = (made([0, 1], eps=0.1, linf=0.1), made([1, 2, 3], eps=0.1, linf=0.1), made([9], eps=0.3, linf=0.3))
    found = Evaluation(np.zeros(10, dtype=np.int64), parts)
    assert [o.error for o in parts] == [0.2, 0.3, 0.1]
    assert found.balls == (Ball("LInf", 0.1), Ball("LInf", 0.3))
    assert np.flatnonzero(found.fooled(Ball("LInf", 0.1))).tolist() == [0, 1, 2, 3]
    # What fools inside a smaller ball does so inside a larger one.
    assert found.worst(Ball("LInf", 0.3)) == 0.5
    assert [row["error"] for row in found.as_dict()["worst"]] == [0.4, 0.5]


def test_a_number_is_a_radius_in_linf() -> None:
    found = Evaluation(np.zeros(10, dtype=np.int64), (made([0], eps=0.1, linf=0.1), made([1], eps=0.2, linf=0.2)))
    assert [found.worst(eps) for eps in (0.1, 0.2)] == [found.worst(Ball("LInf", eps)) for eps in (0.1, 0.2)]
    assert found.fooled(0.1).tolist() == found.fooled(Ball("LInf", 0.1)).tolist()
    with pytest.raises(ValueError, match="the radius of a ball must be ≥ 0"):
        found.worst(-0.1)


def test_what_was_found_is_shown_in_a_line() -> None:
    outcomes = (made([0, 1], eps=0.1, linf=0.1), made([1, 2], eps=0.3, linf=0.3))
    assert repr(outcomes[0]) == "<Outcome of A, eps 0.1: 10 samples, 20.0% wrong after>"
    found = repr(Evaluation(np.zeros(10, dtype=np.int64), outcomes))
    worst = "at worst 20.0% (L∞, ε = 0.1); at worst 30.0% (L∞, ε = 0.3)"
    assert found == f"<Evaluation of 2 attacks on 10 samples; 0.0% wrong before; {worst}>"
    assert repr(Evaluation(np.zeros(1, dtype=np.int64), ())) == "<Evaluation of 0 attacks on 1 sample>"


def test_an_attack_without_a_radius_counts_where_it_is_inside() -> None:
    parts = (made([0], eps=0.1, linf=0.1), made([5, 6], eps=None, linf=0.2, l2=0.4))
    found = Evaluation(np.zeros(10, dtype=np.int64), parts)
    assert found.worst(Ball("LInf", 0.1)) == 0.1
    assert found.worst(Ball("LInf", 0.2)) == pytest.approx(0.3)
    assert found.worst(Ball("L2", 0.4)) == 0.2  # the first has length 1
    assert found.worst(Ball("L2", 1.0)) == pytest.approx(0.3)


def test_a_ball_with_a_unit_for_each_channel() -> None:
    wide = made([0], eps=0.1, linf=0.1, scale=[1.0, 0.5])
    others = made([1], eps=0.1, linf=0.1), made([2], eps=0.05, linf=0.05)
    found = Evaluation(np.zeros(10, dtype=np.int64), (wide, *others))
    box = Ball("LInf", 0.1, (1.0, 0.5))
    # 0.1 in every channel may be outside, 0.05 is inside for sure.
    assert np.flatnonzero(found.fooled(box)).tolist() == [0, 2]


def test_numbers_are_those_of_the_attacks_themselves() -> None:
    x, y = blobs(23)
    found = evaluate(honest_mlp(), x, y, [FGSM(0.1), FGSM(0.2)], chunk=5)
    for outcome, eps in zip(found.outcomes, (0.1, 0.2), strict=True):
        alone = FGSM(eps)(honest_mlp(), x, y)
        assert outcome.success.tolist() == alone.success.tolist()
        assert outcome.predicted.tolist() == alone.predicted.tolist()
        np.testing.assert_allclose(outcome.l2, alone.l2, rtol=1e-6)
        assert outcome.ball == Ball("LInf", eps)
    assert found.natural == float((honest_mlp()(x).argmax(1) != y).double().mean())
    assert 0 < found.worst(Ball("LInf", 0.1)) < found.worst(Ball("LInf", 0.2))


def test_on_every_device(device: torch.device, tmp_path: Path) -> None:
    """Random starts are drawn on the CPU, so that a GPU begins where the CPU does; results lie on the CPU."""
    x, y = blobs(11)
    expected = evaluate(honest_mlp(), x, y, [PGD(0.2, steps=3)], chunk=4)
    model = copy.deepcopy(honest_mlp()).to(device)
    store = Store.open(tmp_path / "a", ABOUT, resume=False)
    found = evaluate(model, x.to(device), y.to(device), [PGD(0.2, steps=3)], chunk=4, store=store)
    assert found.outcomes[0].success.tolist() == expected.outcomes[0].success.tolist()
    np.testing.assert_allclose(found.outcomes[0].l2, expected.outcomes[0].l2, rtol=1e-4)
    checks = run_checks(model, x.to(device), y.to(device), eps=0.1)
    assert [c.name for c in checks if not c.passed] == []


def test_zero_gradients_are_averaged_over_samples() -> None:
    labels = np.zeros(10, dtype=np.int64)
    first, second = chunk_of(6, []), chunk_of(4, [], start=6)
    cell = Cell("A", {}, Kind.MULTI, None, 6)
    for chunk, share in ((first, 0.5), (second, 0.25)):
        object.__setattr__(chunk, "zero_gradients", share)
    assert Outcome(cell, (first, second)).zero_gradients(labels) == pytest.approx((6 * 0.5 + 4 * 0.25) / 10)


def test_the_threat_model_goes_with_the_result() -> None:
    model = honest_mlp()
    x, y = blobs(6)

    class Graph(nn.Module):
        threat = ThreatModel("10 samples")

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = model(x)
            return out

    found = evaluate(Graph(), x, y, [FGSM(0.1)], chunk=3)
    assert found.threat == ThreatModel("10 samples")
    assert found.as_dict()["threats"] == [ThreatModel("10 samples").describe()]
    # Another threat model is another cell.
    assert found.outcomes[0].cell.key != evaluate(model, x, y, [FGSM(0.1)], chunk=3).outcomes[0].cell.key


# On disk ------------------------------------------------------------------------------------------------------------


@final
class Stops(nn.Module):
    """The honest model, until it was called so often."""

    def __init__(self, calls: int, error: type[BaseException]) -> None:
        super().__init__()
        self.model, self.left, self.error = honest_mlp(), calls, error

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        if self.left < 0:
            raise self.error
        out: Tensor = self.model(x)
        return out


@final
class Counts(nn.Module):
    """The honest model, which counts."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.calls = honest_mlp(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out: Tensor = self.model(x)
        return out


def test_stopped_anywhere_and_resumed(tmp_path: Path) -> None:
    counts = Counts()
    whole = run(tmp_path / "whole", resume=False, model=counts)
    expected = results(tmp_path / "whole")
    assert len(expected) == 6  # three cells, each with pictures
    stopped = 0
    for calls in range(2, counts.calls, 5):  # less than a chunk takes
        directory = tmp_path / f"{calls}"
        with pytest.raises(KeyboardInterrupt):
            run(directory, resume=False, model=Stops(calls, KeyboardInterrupt))
        before = {p.name: p.read_text() for p in directory.glob("cells/*.json")}
        again = run(directory, resume=True)
        assert results(directory) == expected
        assert [o.error for o in again.outcomes] == [o.error for o in whole.outcomes]
        stopped += len(before)
        for name, text in before.items():  # what was there is there, byte by byte, times too
            rows = text.rstrip("\n]}").splitlines()
            assert (directory / "cells" / name).read_text().startswith("\n".join(rows))
    assert stopped > 15


def test_what_is_finished_is_not_attacked_again(tmp_path: Path) -> None:
    first = run(tmp_path / "a", resume=False)
    model = Counts()
    again = run(tmp_path / "a", resume=True, model=model)
    assert model.calls == 0
    assert again.as_dict() == first.as_dict()


def test_pictures_are_the_first_that_were_fooled(tmp_path: Path) -> None:
    found = run(tmp_path / "a", resume=False)
    x, y = blobs(11)
    store = Store(tmp_path / "a")
    for outcome in found.outcomes:
        pictures = store.pictures(outcome.cell)
        fooled = np.flatnonzero(outcome.success & (outcome.clean == y.numpy()))
        assert pictures.index.tolist() == fooled[:8].tolist()
        moved = torch.from_numpy(pictures.images)
        assert honest_mlp()(moved).argmax(1).tolist() == outcome.predicted[pictures.index].tolist()
        linf = (moved - x[pictures.index]).abs().flatten(1).amax(1)
        np.testing.assert_allclose(linf, outcome.linf[pictures.index], atol=1e-7)


@final
@dataclass(frozen=True)
class Slow(AbstractAttack):
    """Takes its time, and says in a file that it has begun."""

    path: str
    eps: float = 0.1
    norm: AbstractNorm = field(default_factory=LInf)

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        Path(self.path).touch()
        time.sleep(0.02)
        start: Tensor = images + self.norm.random(images, self.eps, generator)
        return start


def _attack_slowly(directory: str, path: str) -> None:
    torch.set_num_threads(1)
    x, y = blobs(25)
    store = Store.open(Path(directory), ABOUT, resume=Path(directory).exists())
    evaluate(honest_mlp(), x, y, [Slow(path)], chunk=1, store=store)


def test_killed_by_the_system(tmp_path: Path) -> None:
    flag = tmp_path / "begun"
    process = multiprocessing.get_context("fork").Process(target=_attack_slowly, args=(str(tmp_path / "a"), str(flag)))
    process.start()
    end = time.monotonic() + 30
    while not flag.exists() and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(0.1)
    # While it works, nobody else may.
    with pytest.raises(ResultsError, match="another process is attacking"), Store(tmp_path / "a").working():
        pass
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    (file,) = (tmp_path / "a" / "cells").glob("*.json")
    assert 0 < len(json.loads(file.read_text())["chunks"]) < 25
    (tmp_path / "a" / "cells" / f".{file.name}.x.tmp").touch()  # as it is left when killed in the middle of writing
    for directory in ("a", "b"):
        _attack_slowly(str(tmp_path / directory), str(flag))
    assert results(tmp_path / "a") == results(tmp_path / "b")
    assert not list((tmp_path / "a" / "cells").glob(".*"))


def test_other_settings_are_refused_or_kept_apart(tmp_path: Path) -> None:
    run(tmp_path / "a", resume=False)
    with pytest.raises(ResultsError, match="holds results; add --resume"):
        Store.open(tmp_path / "a", ABOUT, resume=False)
    with pytest.raises(ResultsError, match="seed was 0, is 1"):
        Store.open(tmp_path / "a", ABOUT | {"seed": 1}, resume=True)
    before = results(tmp_path / "a")
    x, y = blobs(11)
    store = Store.open(tmp_path / "a", ABOUT, resume=True)
    evaluate(honest_mlp(), x, y, [FGSM(0.1)], chunk=7, store=store)  # another chunk
    evaluate(honest_mlp(), x, y, [FGSM(0.15)], chunk=4, store=store)  # another radius
    after = results(tmp_path / "a")
    assert len(after) == len(before) + 4
    assert {name: after[name] for name in before} == before
    assert len(store.cells()) == 5
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "a.tex").touch()
    with pytest.raises(ResultsError, match="holds no results of attacks"):
        Store.open(tmp_path / "thesis", ABOUT, resume=True)


@pytest.mark.parametrize("damage", ["half", "gap", "other"])
def test_damaged_files_are_named(tmp_path: Path, damage: str) -> None:
    run(tmp_path / "a", resume=False)
    file = min((tmp_path / "a" / "cells").glob("*.json"))
    record = json.loads(file.read_text())
    if damage == "half":
        file.write_text(file.read_text()[:100])
    elif damage == "gap":
        del record["chunks"][1]
        file.write_text(json.dumps(record))
    else:
        record["cell"]["settings"]["eps"] = 9.0
        file.write_text(json.dumps(record))
    with pytest.raises(ResultsError, match=f"{file.name} is damaged"):
        run(tmp_path / "a", resume=True)


@pytest.mark.usefixtures("as_user")
def test_mistakes() -> None:
    x, y = blobs(6)
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        evaluate(honest_mlp(), x, y, [FGSM(0.1)], chunk=0)
    with pytest.raises(ValueError, match="6 images and labels of shape"):
        evaluate(honest_mlp(), x, y[:5], [FGSM(0.1)])


def test_the_global_generator_is_left_alone_and_repeatable() -> None:
    """A model that draws from PyTorch's own generator gives the same when resumed, and nobody else notices."""

    class Noisy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = honest_mlp()(x + 0.2 * torch.randn_like(x))
            return out

    x, y = blobs(20)
    torch.manual_seed(7)
    a = evaluate(Noisy(), x, y, [FGSM(0.1)], chunk=5)
    drawn = torch.rand(1)
    b = evaluate(Noisy(), x, y, [FGSM(0.1)], chunk=5)
    assert a.outcomes[0].predicted.tolist() == b.outcomes[0].predicted.tolist()
    torch.manual_seed(7)
    assert torch.equal(torch.rand(1), drawn)


# What a folder holds ------------------------------------------------------------------------------------------------


def test_groups_are_judged_by_the_same_classifier() -> None:
    def cell(chunk: int = 8, **threat: Any) -> Cell:
        about = ThreatModel("10 samples").as_dict() | threat
        return Cell("pgd", {"eps": 0.1}, Kind.MULTI, about, chunk)

    same = [cell(), cell(dtype="float64"), cell(gradient="surrogate linear"), cell(neighbours="fixed")]
    assert len({judged_by(one) for one in same}) == 1
    other = [cell(), cell(base="20 samples"), cell(chunk=9), cell(queries="alone"), cell(inference="inductive")]
    assert len({judged_by(one) for one in other}) == 5
    assert judged_by(cell(queries="alone")) == judged_by(cell(queries="alone", chunk=9))  # each by itself
    assert judged_by(Cell("pgd", {}, Kind.MULTI, None, 8)) == judged_by(Cell("fgsm", {}, Kind.SINGLE, None, 9))


def test_all_that_is_finished_is_gathered(tmp_path: Path) -> None:
    whole = run(tmp_path / "a", resume=False)
    x, y = blobs(11)
    with pytest.raises(KeyboardInterrupt):
        evaluate(Stops(8, KeyboardInterrupt), x, y, [PGD(0.3, steps=2)], chunk=4, store=Store(tmp_path / "a"))
    (group,), unfinished = gather(Store(tmp_path / "a"), y.numpy())
    assert unfinished == ["pgd, eps 0.3, CrossEntropy, 2 steps"]
    assert [(o.cell.attack, o.ball) for o in group.outcomes] == [
        ("fgsm", Ball("LInf", 0.1)),
        ("pgd", Ball("LInf", 0.1)),
        ("pgd", Ball("LInf", 0.2)),
    ]
    assert group.worst(Ball("LInf", 0.2)) == whole.worst(Ball("LInf", 0.2))
