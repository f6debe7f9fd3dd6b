"""What `gll attack` says on the screen: what is to come, how far it is, how to do with less, and the answer."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import nn

from gll.attacks import forecast
from gll.attacks.command import attack_run
from gll.attacks.evaluate import evaluate
from gll.attacks.forecast import Forecast
from gll.attacks.gradient import FGSM, PGD
from gll.attacks.target import Request
from gll.train.progress import Reporter, clock
from tests.attacked_runs import attack, summary, trained_runs, without_pictures

FEW = ("--samples", "12", "--base", "40", "--eps", "0.1", "--steps", "2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trained_runs(tmp_path_factory)


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)


def heard(seconds: float = 0.0) -> tuple[Reporter, io.StringIO]:
    out = io.StringIO()
    return Reporter(Console(file=out, width=300), seconds), out


def test_a_plan_has_a_heading_once_and_the_answer_comes_last(runs: dict[str, Path], tmp_path: Path) -> None:
    """A model without a graph is attacked in one way only, by whichever attack."""
    names = ("--attacks", "fgsm,pgd,square", "--square-queries", "5", "--out", tmp_path / "a")
    plain = attack(runs["mlp"], *FEW[:2], *FEW[4:], *names).output
    assert plain.count("12 samples at a time:") == 1
    graph = attack(runs["gll"], *FEW, *names[:-1], tmp_path / "b").output.replace("\n", " ")
    for title in ("12 samples at a time beside a base of 40:", "12 samples at a time beside a base of 40, in float64:"):
        assert graph.count(title) == 1
    assert "Every attack" not in graph  # the longest table is for the page
    places = [graph.index(words) for words in ("Errors in percent", "Checks that distrust", "every attack by itself")]
    assert places == sorted(places)
    assert "## Every attack" in (tmp_path / "b" / "report.md").read_text()
    found = summary(tmp_path / "b")
    assert found["checks_at"]["seconds"] > 0
    for seconds, what in ((found["wall_s"], "attacks"), (found["checks_at"]["seconds"], "checks")):
        assert f"{clock(seconds)} of {what}" in graph


def test_an_attack_ends_with_one_line() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.rand(10, 1, 2, 2)
    y = model(x).argmax(1)
    y[0] = 1 - y[0]
    reporter, out = heard()
    found = evaluate(model, x, y, [FGSM(0.1)], chunk=4, reporter=reporter)
    first, second, last = out.getvalue().splitlines()
    assert [line.split(":")[0].split(" ")[-1] for line in (first, second)] == ["4/10", "8/10"]
    assert last.startswith(f"fgsm, eps 0.1, CrossEntropy: error {found.outcomes[0].error:.2%}, 10.00% before (")


def test_a_long_forecast_says_how_to_do_with_less() -> None:
    one, other = FGSM(0.1), PGD(0.1, steps=1000)
    for shorter, seconds, said in (("with less", 2.0, 1), ("", 2.0, 0), ("with less", 0.01, 0)):
        reporter, out = heard()
        known = Forecast([(one, 200), (other, 100)], reporter, shorter)
        known.after(one, 50, seconds)
        assert (known.seconds_left > forecast.LONG) == (seconds == 2.0)
        assert out.getvalue().count("with less") == said
        known.after(one, 50, 100.0)
        known.after(one, 50, 100.0)
        assert out.getvalue().count("with less") == bool(shorter)  # once


def test_how_to_do_with_less_is_what_differs(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "LONG", 0.0)
    monkeypatch.setattr("gll.attacks.command.FEW_SAMPLES", 10)
    monkeypatch.setattr("gll.attacks.command.FEW_BASE", 20)
    words = "for a first look: Ctrl-C, and the same command with --samples 10"
    monkeypatch.setattr(forecast.Forecast, "seconds_left", 5.0)
    for head, more in (("gll", " --base 20 --out FOLDER; an error depends on the base"), ("mlp", " --out FOLDER")):
        said = attack(runs[head], *FEW, "--attacks", "fgsm", "--out", tmp_path / head).output
        assert f"{words}{more}\n" in said
    small = attack(runs["mlp"], "--samples", "10", "--eps", "0.1", "--attacks", "fgsm", "--out", tmp_path / "c").output
    assert "first look" not in small


def test_a_folder_with_other_samples_says_how_to_begin_afresh(runs: dict[str, Path], tmp_path: Path) -> None:
    few = (*FEW[2:], "--attacks", "fgsm", "--out", tmp_path / "a")
    assert attack(runs["mlp"], "--samples", "12", *few).exit_code == 0
    for more in ((), ("--resume",)):
        again = attack(runs["mlp"], "--samples", "9", *few, *more)
        assert again.exit_code == 1
        assert "to begin afresh, remove the folder" in again.output.replace("\n", " ")


def test_options_that_nobody_typed_are_no_news(runs: dict[str, Path], tmp_path: Path) -> None:
    """A cell of an experiment gives all of its attacks the same options."""
    request = Request(runs["mlp"], attacks="fgsm", eps=(0.1,), samples=8, steps=3)
    said = "--steps has no effect without pgd or pgd-margin or pgd-dlr or ... in --attacks"
    for typed in (True, False):
        reporter, out = heard()
        found = attack_run(request, tmp_path / str(typed), reporter, typed=typed)
        assert (said in out.getvalue()) == typed
        assert found["notes"] == summary(tmp_path / str(typed))["notes"] == ([said] if typed else [])
