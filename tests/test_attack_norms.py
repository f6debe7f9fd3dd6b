"""`gll attack --norm`: lengths in L∞ and L2, what they are by default, and results of both kept apart."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from gll.attacks import checks, command, sets
from gll.attacks.balls import Ball
from gll.attacks.carlini_wagner import CarliniWagner, CarliniWagnerPaper
from gll.attacks.checks import probes, run_checks
from gll.attacks.evaluate import cell_of, evaluate
from gll.attacks.gradient import FGSM, PGD
from gll.attacks.norms import L2, LInf
from gll.attacks.radii import MEASURES, Radius
from gll.attacks.store import Store
from gll.attacks.target import Request, Target
from gll.data.samples import TrainTest
from gll.train.progress import Reporter
from tests.attack_stubs import blobs, honest_mlp
from tests.attacked_runs import attack, summary, trained_runs, without_pictures


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trained_runs(tmp_path_factory)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures(monkeypatch)


def colours(std: tuple[float, ...] = (0.25, 0.24, 0.26)) -> TrainTest:
    images, labels = torch.zeros(2, 3, 4, 5, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
    return TrainTest("colours", images, labels, images, labels, ("a", "b"), (0.5, 0.5, 0.5), std)


# Lengths ------------------------------------------------------------------------------------------------------------


def test_the_papers_length_in_l2_is_that_of_a_change_in_every_pixel() -> None:
    data = colours()
    change = 0.3 * torch.tensor(data.std, dtype=torch.float64)[:, None, None].expand(3, 4, 5)[None]
    eps, norm = MEASURES["l2"].of_the_paper(0.3, data)
    assert norm == L2()
    assert eps == pytest.approx(float(L2().size(change)), rel=1e-12)
    # The same change is just inside the paper's own ball.
    eps, norm = MEASURES["linf"].of_the_paper(0.3, data)
    assert float(norm.size(change)) == pytest.approx(eps, rel=1e-12)


def test_lengths_that_were_asked_for() -> None:
    data, even = colours(), colours((0.2, 0.2, 0.2))
    assert MEASURES["l2"].asked(0.5, data, normalised=False) == (0.5, L2())
    assert MEASURES["l2"].asked(0.5, even, normalised=True) == (0.1, L2())
    assert MEASURES["linf"].asked(0.5, data, normalised=False) == (0.5, LInf())
    with pytest.raises(ValueError, match=r"different standard deviations \(0.25, 0.24, 0.26\).*--eps-units pixels"):
        MEASURES["l2"].asked(0.5, data, normalised=True)
    whole = math.sqrt(60)
    MEASURES["l2"].check(whole, data, normalised=False)  # all images: allowed
    with pytest.raises(ValueError, match=r"--eps 7.8 is more than .* which is 7.746 in L2, the root of the number"):
        MEASURES["l2"].check(7.8, data, normalised=False)
    with pytest.raises(ValueError, match=r"--eps 39 is more than .* which is 38.73 in L2"):
        MEASURES["l2"].check(39.0, even, normalised=True)
    with pytest.raises(ValueError, match=r"which is 1: an ε of 8 in 255 is 0\.0314"):
        MEASURES["linf"].check(1.1, data, normalised=False)


def test_where_ifgsm_has_steps() -> None:
    for eps, alpha, steps in ((0.3, 0.05, True), (0.01, 0.05, True), (0.0099, 0.05, False), (0.0, 0.05, True)):
        assert Radius(eps, LInf(), alpha).has_steps is steps
    assert Radius(0.5, L2(), 0.1).even == Radius(0.5, L2(), 0.1)


# Attacks ------------------------------------------------------------------------------------------------------------


def test_every_attack_has_a_form_in_l2(runs: dict[str, Path]) -> None:
    pytest.importorskip("pyautoattack")
    for joint in (True, False):
        few: dict[str, Any] = {"samples": 8, "base": 40, "transfer": (runs["mlp"],), "joint": joint}
        known = Target(Request(runs["gll"], norm="l2", eps=(0.5,), **few))
        names = [name for name in sets.NAMES if name != "surrogate"]  # for WNLL
        for one in sets.plan(names, known.recipe()):
            inner = getattr(one.attack, "attack", one.attack)
            assert isinstance(one.attack.norm, L2)
            assert one.attack.eps == (math.inf if isinstance(inner, CarliniWagner | CarliniWagnerPaper) else 0.5)


def test_the_keys_of_stored_results_stay_what_they_were() -> None:
    """Of results from before there was a choice: they are found again."""
    model = torch.nn.Identity()
    radius = Radius(0.1, LInf(), 0.02)
    recipe = sets.Recipe((radius,), (radius,), (20.0,), sets.OTHER, 40, 2, 1000, 10, False, False, dict, lambda: model)
    keys = [cell_of(one.attack, model, 8).key for one in sets.plan(["fgsm", "pgd", "pgd-margin", "square"], recipe)]
    assert keys == ["fgsm-38ecb869f071", "pgd-826e6c827eb6", "pgd-ab70c8391c90", "square-5378727b36b8"]
    assert [cell_of(one, model, 8).key for one in probes(0.1)[:4]] == [
        "fgsm-38ecb869f071", "pgd-65d58613effe", "square-c51a3c1578be", "pgd-d27c9523e6a6"
    ]  # fmt: skip
    assert [one.eps for one in probes(0.1)[3:]] == [0.1, 0.3, 1.0]


def test_two_norms_in_one_folder(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number as ε, in both: two cells, two tables, two worst cases."""
    monkeypatch.setattr(command, "run_checks", lambda *args, **options: ())
    out = tmp_path / "out"
    few = (runs["mlp"], "--samples", "30", "--eps", "0.3", "--attacks", "fgsm,pgd", "--steps", "3", "--restarts", "1")
    assert attack(*few, "--out", out).exit_code == 0
    before = {path.name: path.read_bytes() for path in (out / "cells").iterdir()}
    alone = summary(out)
    result = attack(*few, "--norm", "L2", "--resume", "--out", out)  # in capitals, too
    assert result.exit_code == 0, result.output
    assert {name: (out / "cells" / name).read_bytes() for name in before} == before
    found = summary(out)
    (group,) = found["groups"]
    known = Target(Request(runs["mlp"], samples=30))
    x, y, model = known.images, known.labels, known.judged(0, False)
    by_hand = {norm: FGSM(0.3, norm)(model, x, y) for norm in (LInf(), L2())}
    errors = {"LInf": by_hand[LInf()].error, "L2": by_hand[L2()].error}
    assert errors["L2"] < errors["LInf"]
    assert float(by_hand[L2()].l2.max()) <= 0.3 + 1e-6 < float(by_hand[LInf()].l2.max())
    stored = {str(cell["settings"]["norm"]): cell["error"] for cell in group["attacks"] if cell["attack"] == "fgsm"}
    assert stored == {"{'name': 'LInf', 'scale': 1.0}": errors["LInf"], "L2": errors["L2"]}
    worst = {one["norm"]: one for one in group["worst"]}
    assert (found["norm"], alone["norm"]) == ("L2", "LInf")
    assert {norm: one["attacks"] for norm, one in worst.items()} == {"LInf": 2, "L2": 2}  # not four
    # What lies in the ball of L2 lies in that of L∞ with the same ε, so that it counts there, too.
    assert worst["LInf"]["error"] >= alone["groups"][0]["worst"][0]["error"] >= errors["LInf"] > worst["L2"]["error"]
    page = (out / "report.md").read_text()
    at = [page.index(text) for text in ("Errors in percent, L∞:", "Errors in percent, L2:", "| ε, L2 | natural |")]
    assert at == sorted(at)
    natural = f"{100 * group['natural']:.2f}"
    rows = {
        norm: f"| 0.3 | {natural} | {100 * errors[norm]:.2f} | {100 * one['error']:.2f} | 2 |"
        for norm, one in worst.items()
    }
    for text in (
        rows["LInf"],
        f"\n{rows['L2']}",  # with no other unit before it
        "| fgsm, eps 0.3 (L2), CrossEntropy |",
        "The worst case is over the model's own gradients alone; `--attacks strong --resume` adds others.",
    ):
        assert text in page
    assert "pgd, CrossEntropy, 3 steps: eps (L2) 0.3" in result.output
    # The same in the other order: a command shows all there is, whichever norm it was asked in.
    assert attack(*few, "--resume", "--out", out).exit_code == 0
    again = summary(out)
    assert (again["norm"], again["groups"][0]["worst"]) == ("LInf", group["worst"])


def test_what_is_taken_without_an_eps(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "STEPS", 2)
    monkeypatch.setattr(checks, "QUERIES", 3)
    out = tmp_path / "out"
    result = attack(runs["mlp"], "--samples", "8", "--norm", "l2", "--attacks", "ifgsm", "--out", out)
    assert result.exit_code == 0, result.output
    found = summary(out)
    std = Target(Request(runs["mlp"], samples=8)).data.std[0]
    assert found["table_eps_pixels"] == pytest.approx(0.3 * std * 8)  # of 8 × 8 pixels
    made = [cell["settings"] for cell in found["groups"][0]["attacks"]]
    assert [one["eps"] for one in made] == pytest.approx([eps * std * 8 for eps in sets.OTHER.eps])
    assert [one["steps"] for one in made] == [round(100 * eps) for eps in sets.OTHER.eps]  # 5 ε/α, as in L∞
    (note,) = found["notes"]
    assert note.startswith(f"every ε in L2 is ours, since the paper has none: {0.3 * std * 8:.4g} is the length of")
    assert note in result.output
    assert (found["checks_at"]["norm"], found["checks_at"]["eps"]) == ("L2", found["table_eps_pixels"])
    page = (out / "report.md").read_text()
    assert f"gradient, at ε = {0.3 * std * 8:.4g} in L2, on 8 samples." in page
    assert "*" not in page  # nothing in L2 is of the paper's table
    tried = [cell.settings for cell in Store(out / "checks").cells()]
    assert {settings["norm"] for settings in tried} == {"L2"}
    assert max(settings["eps"] for settings in tried) == 8.0


def test_steps_that_are_none(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_checks", lambda *args, **options: ())
    few = (runs["mlp"], "--samples", "8", "--eps", "0.001,0.1,0.1", "--out", tmp_path / "out")  # each once
    result = attack(*few, "--attacks", "ifgsm,fgsm")
    assert result.exit_code == 0, result.output
    assert "3 attacks on 8 samples" in result.output
    made = [(c["attack"], c["settings"]["eps"]) for c in summary(tmp_path / "out")["groups"][0]["attacks"]]
    assert made == [("fgsm", 0.001), ("fgsm", 0.1), ("ifgsm", 0.1)]
    (note,) = summary(tmp_path / "out")["notes"]
    assert note.startswith("ifgsm was left out at ε = 0.001: it makes 5 ε/α steps, rounded down, which is none")
    result = attack(*few[:3], "--eps", "0.001", "--attacks", "ifgsm", "--out", tmp_path / "other")
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "nothing to attack with: ifgsm; ifgsm was left out at ε = 0.001" in said
    assert not (tmp_path / "other").exists()


def test_mistakes_and_options_without_effect(runs: dict[str, Path], tmp_path: Path) -> None:
    few = (runs["mlp"], "--samples", "4", "--out", tmp_path / "out")
    result = attack(*few, "--norm", "l2", "--eps", "8.1")
    assert result.exit_code == 1
    assert "--eps 8.1 is more than the way from a black image to a white one, which is 8 in L2" in result.output
    assert attack(*few, "--norm", "l1").exit_code == 2
    with pytest.raises(ValueError, match="unknown norm 'l1'; choose one of linf, l2"):
        Request(runs["mlp"], norm="l1")
    assert not (tmp_path / "out").exists()
    request = Request(runs["mlp"], "cw-paper", c=(1.0,), samples=4, norm="l2")
    told: list[str] = []
    reporter = Reporter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reporter, "say", lambda self, text: told.append(text))
        patch.setattr(command, "run_checks", lambda *args, **options: ())
        found = command.attack_run(request, tmp_path / "out", reporter)
    (note,) = found["notes"]
    assert note.startswith("--norm l2 has no effect on attacks: CW knows no ε")
    assert note in told


# Checks -------------------------------------------------------------------------------------------------------------


def test_the_checks_look_in_the_norm_that_was_asked_for() -> None:
    x, y = blobs(40)
    found = run_checks(honest_mlp(), x, y, eps=0.3, norm=L2())
    assert all(check.passed for check in found), [check for check in found if not check.passed]
    grown = next(check for check in found if check.name == "all errors")
    assert "at 0.3, " in grown.meaning
    assert "at 0.6, 100.0% at 2)" in grown.meaning  # four pixels: √4 is the way from black to white
    assert all("; L2, ε = 0.3, 40 samples)" in c.meaning for c in found if c.name in ("single step", "losses disagree"))


def test_an_image_of_one_norm_counts_for_the_other() -> None:
    x, y = blobs(40)
    found = evaluate(honest_mlp(), x, y, [PGD(0.15, 5, norm=LInf()), PGD(0.3, 5, norm=L2())])
    in_linf, in_l2 = found.outcomes
    assert found.balls == (Ball("L2", 0.3), Ball("LInf", 0.15))
    # Four pixels: what moves each by 0.15 at most has a length of 0.3 at most.
    both = in_linf.success | in_l2.success
    assert found.worst(Ball("L2", 0.3)) == float(both.mean()) > in_linf.error
    assert found.worst(Ball("LInf", 0.15)) == float((in_linf.success | (in_l2.success & (in_l2.linf <= 0.15))).mean())
