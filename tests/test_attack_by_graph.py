"""WNLL attacked by the gradient of its graph, and not by the one it was trained by; and the figures of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gll.attacks import command
from gll.attacks.gradient import FGSM
from gll.attacks.sets import NAMES
from gll.attacks.target import Request, Target
from gll.attacks.victims import victim_of
from gll.reproduce.attack_cells import figures
from gll.train.loop import new_run, train
from gll.train.runs import Run
from tests.attacked_runs import attack, summary, without_pictures
from tests.tiny_runs import tiny

FEW = ("--samples", "24", "--base", "40", "--eps", "0.3", "--eps-units", "normalised")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a WNLL head, by its folder."""
    folder = tmp_path_factory.mktemp("wnll")
    stages = ("model.head_options.stage1=3", "model.head_options.stage2=3")
    train(new_run(tiny(folder, "train.epochs=6", "train.steps=6", "model.head=wnll", *stages)))
    return folder / "run"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run_checks", lambda *args, **options: ())
    without_pictures(monkeypatch)


def only_cell(found: dict[str, Any]) -> dict[str, Any]:
    (cell,) = [cell for group in found["groups"] for cell in group["attacks"]]
    return cell


def test_it_is_the_gradient_through_the_graph(run: Path, tmp_path: Path) -> None:
    known = Target(Request(run, samples=24, base=40))
    eps = known.table_eps
    errors = {}
    for gradient, exact in {"own": False, "graph": True}.items():
        out = tmp_path / gradient
        result = attack(run, *FEW, "--attacks", "fgsm", "--gradient-of", gradient, "--out", out)
        assert result.exit_code == 0, result.output
        victim = victim_of(Run.open(run), base=40, exact_gradient=exact).requires_grad_(False)
        by_hand = FGSM(eps)(victim, known.images, known.labels)
        cell, page = only_cell(summary(out)), (out / "report.md").read_text()
        assert cell["error"] == by_hand.error
        assert cell["threat"]["gradient"] == ("own" if exact else "surrogate linear")
        through = ", through its graph, and not that of the linear layer it was trained by"
        assert f"gradient: the model's own{through if exact else ''}." in page
        errors[gradient] = cell["error"], summary(out)["groups"][0]["attacks"][0]["settings"]
    assert errors["own"] != errors["graph"]  # or the option would do nothing


def test_a_folder_has_attacks_by_one_gradient(run: Path, tmp_path: Path) -> None:
    """Those by another have the same names: its tables would take some figures from either."""
    for first, then in (("own", "graph"), ("graph", "own")):
        out = tmp_path / first
        assert attack(run, *FEW, "--attacks", "fgsm", "--gradient-of", first, "--out", out).exit_code == 0
        before = summary(out)
        refused = attack(run, *FEW, "--attacks", "fgsm", "--gradient-of", then, "--out", out, "--resume")
        was, now = ("None", "'graph'") if first == "own" else ("'graph'", "None")
        assert refused.exit_code == 1
        assert f"gradient of was {was}, is {now}" in " ".join(refused.output.split())
        assert summary(out) == before
        assert attack(run, *FEW, "--attacks", "fgsm", "--gradient-of", first, "--out", out, "--resume").exit_code == 0


def test_the_surrogate_is_still_at_hand(run: Path) -> None:
    """The attack `surrogate` follows the linear layer, whatever the others follow."""
    for gradient in ("own", "graph"):
        recipe = Target(Request(run, samples=8, base=40, gradient_of=gradient)).recipe()
        (planned,) = NAMES["surrogate"](recipe)
        lent = getattr(planned.attack, "source", None)
        assert getattr(lent, "surrogate", None) is not None, gradient


def test_heads_that_lend_themselves_no_gradient(run: Path, tmp_path: Path) -> None:
    train(new_run(tiny(tmp_path, "train.epochs=1", "train.steps=1", "model.head=gll")))
    for arguments, head in (
        ((tmp_path / "run",), "head 'gll'"),
        ((run, "--head-at-test", "gll"), "head 'wnll', tested by a gll head that was not trained"),
    ):
        result = attack(*arguments, *FEW, "--attacks", "fgsm", "--gradient-of", "graph", "--out", tmp_path / "out")
        said = " ".join(result.output.split())
        assert result.exit_code == 1
        assert "--gradient-of graph is for a WNLL head" in said
        assert f"was trained with {head}, and is attacked by its own gradient; leave it out" in said
        assert not (tmp_path / "out").exists()


def test_an_eps_that_is_the_tables_needs_no_name_of_its_own(run: Path) -> None:
    summary = {"table_eps_pixels": 0.1, "table_c": 20, "unit": 0.5}

    def fgsm(error: float, eps: float) -> dict[str, Any]:
        settings = {"eps": eps, "norm": {"name": "LInf", "scale": 1.0}}
        return {"attack": "fgsm", "settings": settings, "error": error, "natural": 0.01}

    def told(*eps: float, normalised: bool = True) -> dict[str, float | None]:
        attacks = [fgsm(error, 0.1 * factor) for factor, error in ((1, 0.4), (2, 0.5))]
        found = figures(
            summary | {"groups": [{"attacks": attacks, "worst": []}]}, Request(run, eps=eps, normalised=normalised)
        )
        return {name: value for name, value in found.items() if value is not None}

    alone = {"natural": pytest.approx(1.0), "FGSM": pytest.approx(40.0)}
    assert told() == told(0.2) == told(0.1, normalised=False) == alone
    assert told(0.4) == {"natural": pytest.approx(1.0), "FGSM at 1x": pytest.approx(50.0)}, "not the table's"
    assert set(told(0.2, 0.4)) == {"natural", "FGSM at 1x", "FGSM at 2x"}


def test_figures_of_a_part_by_its_graph_and_of_an_own_c(run: Path) -> None:
    """Each has a name of its own; what is without an attack is not told twice."""
    norm = {"name": "LInf", "scale": 1.0}
    summary = {"table_eps_pixels": 0.1, "table_c": 20, "unit": 0.5, "groups": []}

    def cell(attack: str, error: float, **settings: Any) -> dict[str, Any]:
        return {"attack": attack, "settings": settings, "error": error, "natural": 0.01}

    fgsm, cw = cell("fgsm", 0.4, eps=0.1, norm=norm), cell("cw-paper", 0.3, c=20, eps=None, norm="L2")
    other, searching = cell("cw-paper", 0.2, c=1.9, eps=None, norm="L2"), cell("cw", 0.7, c=1.9, eps=None, norm="L2")
    found = summary | {"groups": [{"attacks": [fgsm, searching, cw, other], "worst": []}]}
    both = figures(found, Request(run, c=(1.9, 20)))
    assert {name: value for name, value in both.items() if value is not None} == pytest.approx(
        {"natural": 1, "FGSM": 40, "CW": 30, "CW, c = 1.9": 20}
    )
    assert "CW, c = 1.9" not in figures(found, Request(run, c=(20,)))
    assert figures(found, Request(run, gradient_of="graph")) == pytest.approx(
        {"FGSM, by its graph": 40, "CW, by its graph": 30}
    )
