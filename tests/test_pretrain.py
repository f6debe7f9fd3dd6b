"""The warm-up on handwritten digits: it learns, it goes on after a kill, it keeps the best, and it peeks at nothing."""

from __future__ import annotations

import copy
import dataclasses
import io
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from typer.testing import CliRunner

from gll.cli import app
from gll.data.datasets import load
from gll.data.splits import split_labels
from gll.nn.encoders import create_encoder
from gll.train.config import Config, from_toml
from gll.train.contrastive import Contrastive
from gll.train.distributed import Ranks
from gll.train.finite import NonFiniteError
from gll.train.pretrain import load_warm_up, warm_up
from gll.train.progress import Reporter
from gll.train.runs import Run, RunError
from gll.train.watch import Look
from tests.warm_up_cases import DATA, DIGITS, SPLIT, TINY, metrics, network, same, start


@pytest.mark.parametrize(("gamma", "gain"), [(1.0, 0.1), (0.5, 0.25)])
def test_it_learns(gamma: float, gain: float, tmp_path: Path) -> None:
    data = dataclasses.replace(DIGITS, train=DIGITS.train[:600], train_labels=DIGITS.train_labels[:600])
    split = split_labels(data.train_labels, "20 each", seed=0)
    options = [f"warmup.gamma={gamma}", "warmup.epochs=8", "warmup.every=4", "warmup.lr=0.01", "warmup.optimizer=adam"]
    config = from_toml(TINY, options)
    run = Run.create(tmp_path / "a", config, split)
    torch.manual_seed(5)
    encoder = create_encoder("digits-cnn", in_channels=1, feature_dim=3)  # so few that untrained ones tell little
    before = copy.deepcopy(encoder.state_dict())
    result = warm_up(encoder, data, split, config, run)
    lines = run.metrics()
    losses = [line["loss"] for line in lines if "loss" in line]
    errors = {line["epoch"]: line["graph_error"] for line in lines if "graph_error" in line}
    assert len(losses) == 8
    assert losses[-1] < losses[0] - 1
    assert list(errors) == [0, 4, 8]
    assert errors[8] < errors[0] - gain
    assert result.kept.look is not None
    assert result.kept.look.error == min(errors.values())
    # A loss without labels need not be kept from any: all are measured.
    assert result.kept.look.measured == (200 if gamma == 1 else 68)
    assert all(("supcon" in line) == (gamma < 1) for line in lines if "loss" in line)
    assert all(not torch.equal(p, before[name]) for name, p in encoder.named_parameters())


def test_the_loss_is_the_mixture(tmp_path: Path) -> None:
    _, _, run = start(tmp_path / "a", "warmup.epochs=1", "warmup.gamma=0.25")()
    line = next(line for line in run.metrics() if "loss" in line)
    assert line["loss"] == pytest.approx(0.25 * line["simclr"] + 0.75 * line["supcon"], rel=1e-5)
    _, _, run = start(tmp_path / "b", "warmup.epochs=1", "warmup.gamma=0")()
    line = next(line for line in run.metrics() if "loss" in line)
    assert "simclr" not in line
    assert line["loss"] == line["supcon"] > 0


@pytest.mark.parametrize("gamma", ["0.5", "choose"])
def test_a_killed_warm_up_goes_on_to_the_same_numbers(
    gamma: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [f"warmup.gamma={gamma}", "warmup.candidates=[0.25, 1.0]", "warmup.epochs=3"]
    whole, encoder, run = start(tmp_path / "whole", *options)()
    go = start(tmp_path / "killed", *options)
    step, steps = Contrastive._step, 0

    def dying(self: Contrastive, index: Tensor, views: torch.Generator) -> Tensor:
        nonlocal steps
        steps += 1
        if steps % 5 == 0:  # an epoch has three steps
            raise KeyboardInterrupt
        return step(self, index, views)

    monkeypatch.setattr(Contrastive, "_step", dying)
    kills = 0
    while True:
        try:
            again, resumed, run2 = go()
            break
        except KeyboardInterrupt:
            kills += 1
    assert kills >= 2
    assert same(encoder, resumed)
    assert same(whole.projection, again.projection)
    assert (whole.kept, whole.table) == (again.kept, again.table)
    assert metrics(run) == metrics(run2)


def test_two_warm_ups_are_the_same_bit_by_bit_and_another_seed_is_another(tmp_path: Path) -> None:
    _, a, run_a = start(tmp_path / "a")()
    torch.randn(7)  # whatever happens to the global generator
    _, b, run_b = start(tmp_path / "b")()
    _, c, _ = start(tmp_path / "c", "seed=1")()
    assert same(a, b)
    assert metrics(run_a) == metrics(run_b)
    assert not same(a, c)


def test_the_callers_random_numbers_are_left_alone(tmp_path: Path) -> None:
    go = start(tmp_path / "a", "warmup.epochs=1")
    network()
    expected = torch.rand(3)
    go()  # makes the same network first
    assert torch.equal(torch.rand(3), expected)


def test_the_best_state_is_kept_and_the_last_if_asked(tmp_path: Path) -> None:
    # Steps so large that the network is ruined: the graph is best before the first one.
    ruin = ["warmup.lr=30", "warmup.schedule=constant", "warmup.every=1", "warmup.clip=1", "warmup.epochs=3"]
    best, encoder, run = start(tmp_path / "best", *ruin)()
    errors = [line["graph_error"] for line in run.metrics() if "graph_error" in line]
    assert errors[-1] > errors[0] + 0.2
    assert best.kept.epoch == 0
    assert best.kept.epochs == 3
    assert best.kept.look is not None
    assert best.kept.look.error == errors[0]
    assert same(encoder, network())
    last, encoder, _ = start(tmp_path / "last", *ruin, "warmup.keep=last")()
    assert last.kept.epoch == 3
    assert last.kept.look is not None
    assert last.kept.look.error == errors[-1]
    assert not same(encoder, network())


def test_patience_stops_also_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ruin = ["warmup.lr=30", "warmup.schedule=constant", "warmup.every=1", "warmup.clip=1", "warmup.epochs=50"]
    go = start(tmp_path / "a", *ruin, "warmup.patience=3")
    step, steps = Contrastive._step, 0

    def dying_once(self: Contrastive, index: Tensor, views: torch.Generator) -> Tensor:
        nonlocal steps
        steps += 1
        if steps == 8:  # in the third epoch
            raise KeyboardInterrupt
        return step(self, index, views)

    monkeypatch.setattr(Contrastive, "_step", dying_once)
    with pytest.raises(KeyboardInterrupt):
        go()
    result, _, run = go()
    errors = [line["graph_error"] for line in run.metrics() if "graph_error" in line]
    assert errors[0] < min(errors[1:])  # before the first epoch the graph is best
    assert (result.kept.epoch, result.kept.epochs) == (0, 3)
    assert len(errors) == 4


def test_gamma_is_chosen_by_the_graph(tmp_path: Path) -> None:
    candidates = [0.0, 0.5, 0.99]
    options = ["warmup.gamma=choose", f"warmup.candidates={candidates}", "warmup.keep=last"]
    out = io.StringIO()
    result, encoder, run = start(tmp_path / "a", *options)(reporter=Reporter(Console(file=out, width=100)))
    looks = [c.look for c in result.table if c.look is not None]
    assert [c.gamma for c in result.table] == candidates
    assert {look.measured for look in looks} == {20}  # the same hidden samples for all
    best = min(range(3), key=lambda i: (looks[i].error, looks[i].loss))
    assert len({(look.error, look.loss) for look in looks}) == 3
    assert result.kept == result.table[best]
    stored = run.load(f"warmup-{candidates[best]}")
    assert stored is not None
    assert all(torch.equal(stored[0][f"encoder.{k}"], v) for k, v in encoder.state_dict().items())
    # Each starts from the same weights: the last one is what warming up with that γ alone gives.
    last, alone, _ = start(tmp_path / "b", f"warmup.gamma={candidates[-1]}", "warmup.keep=last")()
    stored = run.load(f"warmup-{candidates[-1]}")
    assert stored is not None
    assert all(torch.equal(stored[0][f"encoder.{k}"], v) for k, v in alone.state_dict().items())
    assert last.kept.epoch == result.table[-1].epoch
    told = run.metrics()[-1]
    assert told["chosen"] == result.kept.gamma
    assert [row["graph_error"] for row in told["candidates"]] == [look.error for look in looks]
    assert "hidden labels" in out.getvalue()
    assert f"→ {result.kept.gamma:g}" in out.getvalue()


@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_best_candidate_wins_whatever_its_place(best: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_one = Contrastive.run

    def graded(self: Contrastive) -> Any:
        error = 0.1 if self.gamma == (0.25, 0.5, 0.75)[best] else 0.2
        return dataclasses.replace(run_one(self), look=Look(error, 1.0, 20))

    monkeypatch.setattr(Contrastive, "run", graded)
    options = ["warmup.gamma=choose", "warmup.candidates=[0.25, 0.5, 0.75]", "warmup.epochs=1", "warmup.keep=last"]
    result, encoder, run = start(tmp_path / "a", *options)()
    assert result.kept.gamma == (0.25, 0.5, 0.75)[best]
    stored = run.load(f"warmup-{result.kept.gamma:g}")
    assert stored is not None
    assert all(torch.equal(stored[0][f"encoder.{k}"], v) for k, v in encoder.state_dict().items())


def test_where_nothing_was_better_no_gamma_is_chosen(tmp_path: Path) -> None:
    """With a rate that ruins any encoder, whatever γ is."""
    options = ["warmup.gamma=choose", "warmup.candidates=[0.25, 0.75]", "warmup.lr=50", "warmup.epochs=1"]
    out = io.StringIO()
    before = network()
    result, encoder, run = start(tmp_path / "a", *options)(reporter=Reporter(Console(file=out, width=100)))
    assert [c.epoch for c in result.table] == [0, 0]
    assert not result.helped
    assert same(encoder, before)
    assert run.metrics()[-1]["chosen"] is None
    assert "→" not in out.getvalue()
    assert "never better than before the warm-up, with any γ, and none is chosen" in " ".join(out.getvalue().split())


def test_classes_of_unlabelled_samples_are_never_read(tmp_path: Path) -> None:
    shuffled = DATA.train_labels.clone()
    shuffled[SPLIT.unlabelled] = (shuffled[SPLIT.unlabelled] + 3) % 10
    _, a, run_a = start(tmp_path / "a")()
    _, b, run_b = start(tmp_path / "b", data=dataclasses.replace(DATA, train_labels=shuffled))()
    assert same(a, b)
    assert metrics(run_a) == metrics(run_b)


def test_classes_of_hidden_samples_do_not_enter_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watches = []
    init = Contrastive.__init__

    def spying(self: Contrastive, task: Any, *rest: Any) -> None:
        watches.append(task.watch)
        init(self, task, *rest)

    monkeypatch.setattr(Contrastive, "__init__", spying)
    _, a, _ = start(tmp_path / "a", "warmup.keep=last")()
    hidden = watches[0].nodes[watches[0].fold == 0]
    assert len(hidden) == 20
    labels = DATA.train_labels.clone()
    labels[hidden] = labels[hidden].roll(1)  # as many of every class, of which others would be hidden but for the draw
    monkeypatch.setattr("gll.train.pretrain.hold_out", lambda *args, **options: (shown, watches[0]))
    shown = SPLIT.labelled[~torch.isin(SPLIT.labelled, hidden)]
    _, b, _ = start(tmp_path / "b", "warmup.keep=last", data=dataclasses.replace(DATA, train_labels=labels))()
    assert same(a, b)
    labels[shown] = labels[shown].roll(1)
    _, c, _ = start(tmp_path / "c", "warmup.keep=last", data=dataclasses.replace(DATA, train_labels=labels))()
    assert not same(a, c)


def test_a_finished_warm_up_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = start(tmp_path / "a")
    with pytest.raises(RunError, match="no finished warm-up"):
        load_warm_up(Run.open(tmp_path / "a"), network())
    result, encoder, run = go()
    lines = run.metrics()
    monkeypatch.setattr(Contrastive, "_step", None)
    again, second, run = go()
    assert run.metrics() == lines
    third = network()
    other = load_warm_up(Run.open(tmp_path / "a"), third)
    assert same(encoder, second)
    assert same(encoder, third)
    assert same(result.projection, other.projection)
    assert result.kept == again.kept == other.kept
    stored = run.load("warmup")
    assert stored is not None
    assert stored[1]["done"]
    assert stored[0]["projection.2.weight"].shape == (16, 32)


def test_a_loss_that_is_not_finite_stops_with_a_diagnosis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = start(tmp_path / "a", "warmup.epochs=4")
    step, steps = Contrastive._step, 0

    def breaking(self: Contrastive, index: Tensor, views: torch.Generator) -> Tensor:
        nonlocal steps
        steps += 1
        if steps == 8:
            with torch.no_grad():
                next(self.networks.parameters()).fill_(torch.nan)
        return step(self, index, views)

    monkeypatch.setattr(Contrastive, "_step", breaking)
    with pytest.raises(NonFiniteError, match=r"nan in epoch 3.*warmup\.lr"):
        go()
    stored = Run.open(tmp_path / "a").load("warmup-0.5")
    assert stored is not None
    assert stored[1]["epoch"] == 2
    result, encoder, _ = go()  # and goes on from there
    assert result.kept.epochs == 4
    assert all(torch.isfinite(p).all() for p in encoder.parameters())


@pytest.mark.parametrize("every", [1, 5])
def test_a_last_step_that_overflows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Found before the graph is looked at, and where it is not; `gll pretrain` leaves a line that says so."""
    step, steps = Contrastive._step, 0

    def breaking(self: Contrastive, index: Tensor, views: torch.Generator) -> Tensor:
        nonlocal steps
        steps += 1
        found = step(self, index, views)
        if steps == 6:
            with torch.no_grad():
                next(self.networks.parameters()).fill_(torch.inf)
        return found

    monkeypatch.setattr(Contrastive, "_step", breaking)
    (tmp_path / "c.toml").write_text(TINY)
    options = ["data.labels=6 each", "base.size=20", "warmup.epochs=4", "warmup.steps=3", f"warmup.every={every}"]
    found = CliRunner().invoke(app, ["pretrain", str(tmp_path / "c.toml"), f"out={tmp_path / 'a'}", *options])
    assert found.exit_code == 1
    assert "the parameters of the warm-up (γ = 0.5) are not finite after epoch 2" in found.output.replace("\n", " ")
    run = Run.open(tmp_path / "a")
    last = run.metrics()[-1]
    assert (last["phase"], "warmup.clip=1" in last["reason"]) == ("stopped", True)
    stored = run.load("warmup-0.5")
    assert stored is not None
    assert stored[1]["epoch"] == 1


def test_bfloat16_and_channels_last(tmp_path: Path, device: torch.device) -> None:
    options = ["train.autocast=true", "train.channels_last=true", "warmup.epochs=4", "warmup.gamma=1"]
    config = from_toml(TINY, options)
    run = Run.create(tmp_path / "a", config, SPLIT)
    encoder = network().to(device)
    warm_up(encoder, DATA.to(device), SPLIT, config, run)
    losses = [line["loss"] for line in run.metrics() if "loss" in line]
    assert losses[-1] < losses[0] - 0.2
    assert all(p.dtype == torch.float32 for p in encoder.parameters())


def test_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    out = io.StringIO()
    start(tmp_path / "a")(reporter=Reporter(Console(file=out, width=200), seconds=0))
    assert "warm-up, γ = 0.5" in out.getvalue()
    assert "graph error" in out.getvalue()
    assert "images/s" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_the_command(tmp_path: Path) -> None:
    config, folder = tmp_path / "tiny.toml", tmp_path / "run"
    config.write_text(
        TINY + "[data]\nlabels = '6 each'\n[base]\nsize = 20\n[train]\nepochs = 1\nsteps = 1\nbatch = 50\n"
    )
    invoke = CliRunner().invoke
    done = invoke(app, ["pretrain", str(config), "warmup.batch=600", f"out={folder}"])
    assert done.exit_code == 0, done.output
    assert f"warmup.from={folder}" in done.output
    assert "hidden labels" in done.output
    assert Run.open(folder).load("warmup") is not None
    again = invoke(app, ["pretrain", "--resume", str(folder)])
    assert again.exit_code == 0, again.output
    wrong = invoke(app, ["pretrain", str(config), "warmup.epochs=0", f"out={tmp_path / 'other'}"])
    assert wrong.exit_code == 1
    assert "warmup.epochs is 0" in wrong.output
    trained = invoke(
        app, ["train", str(config), f"warmup.from={folder}", "warmup.batch=600", f"out={tmp_path / 'trained'}"]
    )
    assert trained.exit_code == 0, trained.output
    assert Run.open(tmp_path / "trained").result() is not None


@pytest.mark.slow
def test_two_processes_warm_up_as_one_would(tmp_path: Path) -> None:
    """Each sees half of every batch, and both the loss of the whole: no batch statistics, no augmentation."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parent.parent
    command = [sys.executable, "-c", f"from tests.test_pretrain import plain; plain({str(tmp_path / 'two')!r})"]
    processes = [
        subprocess.Popen(command, env=os.environ | common | {"RANK": r, "LOCAL_RANK": r}, cwd=root) for r in ("0", "1")
    ]
    one = plain(str(tmp_path / "one"))
    try:
        assert [process.wait(timeout=300) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    for rank in range(2):
        two = torch.load(tmp_path / f"two-{rank}.pt", weights_only=True)
        for name, value in one.items():
            torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-6)
    lines = [[line["loss"] for line in Run.open(tmp_path / r).metrics() if "loss" in line] for r in ("one", "two")]
    assert lines[0] == pytest.approx(lines[1], rel=1e-5)
    assert lines[0][-1] < lines[0][0] - 0.1


def plain(folder: str) -> dict[str, Tensor]:
    """A warm-up of a linear encoder, in one process or in one of several."""
    torch.set_num_threads(1)
    config = from_toml(TINY, ["warmup.augment=none", "warmup.gamma=0.5", "warmup.lr=0.3", "warmup.keep=last"])
    with Ranks.start("cpu") as ranks:
        if ranks.is_first:
            Run.create(Path(folder), config, SPLIT)
        ranks.barrier()
        run = Run.open(Path(folder), writes=ranks.is_first)
        torch.manual_seed(ranks.rank)  # the weights of rank 0 count
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 16))
        encoder.feature_dim = 16  # type: ignore[assignment]
        result = warm_up(encoder, DATA, SPLIT, config, run, ranks=ranks)
        found = encoder.state_dict() | {f"p.{k}": v for k, v in result.projection.state_dict().items()}
        torch.save(found, f"{folder}-{ranks.rank}.pt")
    return found


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    single = split_labels(DATA.train_labels, "1 each", seed=0)
    with pytest.raises(ValueError, match="no class has two labels"):
        start(tmp_path / "a", "warmup.gamma=choose", split=single)()
    result, _, _ = start(tmp_path / "b", "warmup.epochs=1", split=single)()
    assert result.kept.look is None
    assert result.kept.epoch == 1
    points = load("moons")
    split = split_labels(points.train_labels, "4 each", seed=0)
    with pytest.raises(ValueError, match="points, not images"):
        start(tmp_path / "c", data=points, split=split)()
    with pytest.raises(TypeError, match="no feature_dim"):
        warm_up(nn.Flatten(), DATA, SPLIT, Config("a"), Run.open(tmp_path / "b"))
