"""`gll attack` from end to end on small runs, and what it writes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from gll.attacks import checks, command, poisoned, sets, target
from gll.attacks.autoattack import AutoAttack
from gll.attacks.carlini_wagner import CarliniWagner, CarliniWagnerPaper
from gll.attacks.gradient import FGSM, IFGSM
from gll.attacks.poison import GreedyFlips, poison
from gll.attacks.tables import errors_at, paper_grid
from gll.attacks.target import Request, Target
from gll.attacks.threat import Queries
from gll.attacks.transfer import Transfer
from gll.attacks.victims import victim_of
from gll.train.runs import Run
from tests.attacked_runs import attack, summary, trained_runs, without_pictures

SMALL = ("--samples", "24", "--base", "40")
UNCHECKED = (
    "test_inductive_is_one_thing",
    "test_options_without_effect_are_said",
    "test_poison_is_kept",
    "test_another_head_at_test",
    "test_the_gradient_of_a_graph_that_the_run_has_not",
    "test_graphs_of_two_sizes_are_two_groups",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trained_runs(tmp_path_factory)


@pytest.fixture(autouse=True)
def _short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the checks find is tested elsewhere; pictures are drawn once."""
    monkeypatch.setattr(checks, "STEPS", 2)
    monkeypatch.setattr(checks, "QUERIES", 3)
    if request.node.originalname in UNCHECKED:
        monkeypatch.setattr(command, "run_checks", lambda *args, **options: ())
    if request.node.name != "test_the_paper_set":
        without_pictures(monkeypatch)


def cells(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {cell["attack"]: cell for group in found["groups"] for cell in group["attacks"]}


def cell_files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "cells").iterdir()}


# From end to end ----------------------------------------------------------------------------------------------------


def test_the_paper_set(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(target, "OTHER", replace(sets.OTHER, cw_steps=30))
    options = ("--eps", "0.3", "--eps-units", "normalised", "--c", "20", "--poison", "1,2,5,20")
    result = attack(runs["gll"], *SMALL, *options, "--out", out)
    assert result.exit_code == 0, result.output
    found = summary(out)
    # The same by hand.
    known = Target(Request(runs["gll"], samples=24, base=40))
    x, y, eps = known.images, known.labels, 0.3 * known.data.std[0]
    assert len(x) == 24
    assert {tuple(image) for image in x.flatten(1).tolist()} <= {
        tuple(image) for image in (known.data.test.float() / 255).flatten(1).tolist()
    }
    victim = victim_of(Run.open(runs["gll"]), base=40).requires_grad_(False)
    alpha = 0.05 * known.data.std[0]
    for name, by_hand in {
        "fgsm": FGSM(eps), "ifgsm": IFGSM(eps, alpha), "cw-paper": CarliniWagnerPaper(20, steps=30)
    }.items():  # fmt: skip
        expected = by_hand(victim, x, y)
        cell = cells(found)[name]
        assert cell["error"] == expected.error
        assert cell["mean_squared_l2"] == pytest.approx(float(expected.l2.double().square().mean()), rel=1e-6)
    assert cells(found)["ifgsm"]["settings"]["steps"] == 30
    assert found["groups"][0]["natural"] == float((victim(x).argmax(1) != y).double().mean())
    # What a person sees.
    row = paper_grid(found).rows[0]
    assert row[:2] == ("0.3 *", f"{eps:.4g}")
    assert row[3] == f"{100 * cells(found)['fgsm']['error']:.2f}"
    assert row[3] in result.output
    assert len(found["checks"]) == 8
    assert "batch dependence" in result.output  # all queries share a graph, and the check says so
    assert not next(check for check in found["checks"] if check["name"] == "batch dependence")["passed"]
    page = (out / "report.md").read_text()
    assert "40 of 60 labelled training samples" in page
    # What has to be known stands above the first table, in both places.
    before = page[: page.index("| ε, normalised")]
    tested = Run.open(runs["gll"]).result()
    assert tested is not None
    for said in (
        "In the graph: 24 queries jointly beside a base of 40. The error depends on both numbers",
        "quote what `--queries alone` gives",
        f"The run's own test error is {100 * tested['error']:.2f} % (gll, transductive), of all 100 test samples: ",
        "there all images and 60 labels are in the graph; here the graph is smaller",
    ):
        assert said in before
        assert said in result.output
    # CW knows no ε: it has a table of its own, and marks are explained where there are any.
    cw = cells(found)["cw-paper"]
    assert f"| 20 * | {100 * cw['natural']:.2f} | {100 * cw['error']:.2f} |" in page
    assert "\\* the ε and the c of the paper's table." in page
    assert f"at ε = {eps:.4g} of the range, on 24 samples, 24 queries jointly beside a base of 40." in page
    assert "The checks' own attacks are short, and are not in the worst case." in page
    # Wrong labels in the base, the same by hand.
    (flipped,) = found["poison"]
    by_hand = poison(victim, x, y, counts=[0, 1, 2, 5, 20], flips=GreedyFlips())
    assert (flipped["counts"], flipped["greedy"]) == ([0, 1, 2, 5, 20], list(by_hand.errors))
    assert flipped["greedy"][-1] > flipped["random"]["mean"][-1] > flipped["greedy"][0] == found["groups"][0]["natural"]
    assert all(a <= b for a, b in zip(flipped["random"]["mean"], flipped["random"]["largest"], strict=True))
    assert f"| 20 of 40 | joint | 24 | {100 * by_hand.errors[-1]:.2f} |" in page
    assert "20 of 40" in result.output
    for name in ("curves", "distances", "images", "poison"):
        with Image.open(out / f"{name}.png") as picture:
            assert min(picture.size) > 100


def test_go_on_and_add(runs: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = (runs["mlp"], "--samples", "20", "--eps", "0.1", "--chunk", "8", "--out", out)
    assert attack(*first, "--attacks", "fgsm").exit_code == 0
    before, tried = cell_files(out), cell_files(out / "checks")
    again = attack(*first, "--attacks", "fgsm")
    assert again.exit_code == 1
    assert "holds results; add --resume" in again.output
    other = attack(*first, "--attacks", "fgsm", "--resume", "--seed", "1")
    assert other.exit_code == 1
    assert "was made with other settings: seed was 0, is 1; other pixels (" in other.output  # words come first
    more = attack(*first, "--attacks", "ifgsm", "--resume")
    assert more.exit_code == 0
    assert "1 of them are done already" not in more.output
    assert "1 of them are done already" in attack(*first, "--attacks", "fgsm", "--resume").output
    after = cell_files(out)
    assert {name: after[name] for name in before} == before  # byte by byte: nothing was attacked again
    assert cell_files(out / "checks") == tried
    assert {name.split("-")[0] for name in after if name not in before} == {"ifgsm"}
    assert set(cells(summary(out))) == {"fgsm", "ifgsm"}  # the tables show all that the folder holds


def test_poison_is_kept(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    first = (runs["gll"], *SMALL, "--eps", "0.1", "--attacks", "fgsm", "--out", out)
    assert attack(*first, "--poison", "2,8").exit_code == 0
    (before,) = summary(out)["poison"]
    assert attack(*first, "--poison", "2,8", "--queries", "alone", "--resume").exit_code == 0
    assert [one["threat"]["queries"] for one in summary(out)["poison"]] == ["joint", "alone"]
    monkeypatch.setattr(poisoned, "poison", None)  # nothing is measured again
    for more in ((), ("--poison", "8,2")):
        assert attack(*first, *more, "--resume").exit_code == 0
        assert summary(out)["poison"][0] == before
        assert "8 of 40" in (out / "report.md").read_text()


def test_another_head_at_test(runs: dict[str, Path], tmp_path: Path) -> None:
    """Appendix B.2: trained with softmax, tested with a graph, attacked by the gradient of either."""
    known = Target(Request(runs["mlp"], samples=24, base=40))
    run = Run.open(runs["mlp"])
    graph = victim_of(run, base=40, head_at_test="gll").requires_grad_(False)
    plain = victim_of(run, base=40).requires_grad_(False)
    expected = {"own": FGSM(0.2), "gll": FGSM(0.2), "mlp": Transfer(FGSM(0.2), plain, "the mlp head of the same run")}
    errors = {}
    for gradient, by_hand in expected.items():
        out = tmp_path / gradient
        options = ("--attacks", "fgsm", "--eps", "0.2", "--head-at-test", "gll", "--gradient-of", gradient)
        result = attack(runs["mlp"], *SMALL, *options, "--out", out)
        assert result.exit_code == 0, result.output
        (cell,) = cells(summary(out)).values()
        assert cell["attack"] == by_hand.name
        errors[gradient] = cell["error"]
        assert cell["error"] == by_hand(graph, known.images, known.labels).error
        assert (
            errors_at(summary(out), 0.2)["FGSM"] == cell["error"]
        )  # in the column of the paper, whatever its gradient
        page = (out / "report.md").read_text()
        whose = "that of the mlp head of the same run" if gradient == "mlp" else "own"
        assert f"- judged in float32; gradients followed:\n        - {whose}\n" in page
        assert f"gradient: {'the model' + chr(39) + 's own' if whose == 'own' else whose}" in page
        assert "; classified by a gll head at test; 25 neighbours in the graph; training natural;" in page
        assert "of all 100 test samples: by the head it was trained with, here gll classifies." in page
        assert "attacks follow the model's own gradient and stand-ins for it, at ε = 0.2 of the range" in page
        assert "*" not in page  # no mark without a row that has it
        assert "not of every attack" not in page
    assert errors["own"] == errors["gll"]
    assert summary(tmp_path / "mlp")["run"]["head"] == "mlp, gll at test"
    # What does not follow the gradient that was asked for is named, on the screen and on the page.
    more = (
        "--attacks",
        "fgsm,features",
        "--eps",
        "0.2",
        "--steps",
        "2",
        "--head-at-test",
        "gll",
        "--gradient-of",
        "mlp",
    )
    result = attack(runs["mlp"], *SMALL, *more, "--out", tmp_path / "mlp", "--resume")
    page = (tmp_path / "mlp" / "report.md").read_text()
    assert "gradient: that of the mlp head of the same run, but not of every attack (see the notes)." in page
    assert "- --gradient-of mlp is not followed by features: these see the model under attack in" in page
    assert "--gradient-of mlp is not followed by features" in " ".join(result.output.split())
    found = cells(summary(tmp_path / "mlp"))
    assert {cell["threat"]["gradient"] for cell in found.values()} == {
        "that of the mlp head of the same run", "that of distances between features"
    }  # fmt: skip


def test_the_gradient_of_a_graph_that_the_run_has_not(runs: dict[str, Path], tmp_path: Path) -> None:
    """A linear run, attacked by the gradient of a graph on its encoder: that graph, and its base, are named."""
    more = ("--attacks", "fgsm", "--eps", "0.2", "--gradient-of", "gll", "--queries", "alone", "--out", tmp_path / "a")
    result = attack(runs["mlp"], *SMALL, *more)
    assert result.exit_code == 0, result.output
    known = Target(Request(runs["mlp"], samples=24))
    run = Run.open(runs["mlp"])
    graph = victim_of(run, base=40, head_at_test="gll", queries=Queries.ALONE).requires_grad_(False)
    plain = victim_of(run).requires_grad_(False)
    (cell,) = cells(summary(tmp_path / "a")).values()
    assert cell["error"] == Transfer(FGSM(0.2), graph, "it")(plain, known.images, known.labels).error
    page = (tmp_path / "a" / "report.md").read_text()
    assert "gradient: that of a gll head on the encoder of the same run." in page
    assert summary(tmp_path / "a")["notes"] == []  # base and queries are those of the graph that is followed
    said = page[page.index("## What is in the graph") :]
    assert "The model under attack has no graph. The gradient is that of a gll head on the encoder of the same" in said
    assert "The base is 40 of 60 labelled training samples of" in said
    assert "every attacked sample has a graph of its own with it" in said
    # A head that the run has is called its own.
    target = Target(Request(runs["mlp"], samples=8, base=40, head_at_test="gll", gradient_of="mlp"))
    assert (target.aim() or ("", ""))[1] == "the mlp head of the same run"


def test_inductive_is_one_thing(runs: dict[str, Path], tmp_path: Path) -> None:
    """However it is asked for: the same cell, so the same chance and the same result."""
    few = ("--samples", "12", "--base", "40", "--attacks", "pgd", "--eps", "0.1", "--steps", "2", "--inductive")
    for name, more in {"a": (), "b": ("--queries", "alone")}.items():
        assert attack(runs["gll"], *few, *more, "--out", tmp_path / name).exit_code == 0
    assert set(cell_files(tmp_path / "a")) == set(cell_files(tmp_path / "b"))


def test_options_without_effect_are_said(runs: dict[str, Path], tmp_path: Path) -> None:
    few = ("--attacks", "fgsm", "--eps", "0.1", "--out")
    more = ("--transfer", runs["mlp"], "--steps", "3", "--c", "5", "--restarts", "1", "--square-queries", "7")
    result = attack(runs["gll"], *more, "--samples", "1000", "--base", "1000", *few, tmp_path / "a")
    assert result.exit_code == 0, result.output
    notes = summary(tmp_path / "a")["notes"]
    assert [note.split(" is ")[0].split(" has ")[0] for note in notes] == [
        "--transfer", "--c", "--steps", "--restarts", "--square-queries", "--base 1,000", "--samples 1,000"
    ]  # fmt: skip
    assert all(note in result.output for note in notes)
    result = attack(runs["mlp"], "--samples", "8", "--base", "40", "--queries", "alone", *few, tmp_path / "b")
    assert summary(tmp_path / "b")["notes"] == [
        f"{option} has no effect: the model under attack has no graph" for option in ("--base", "--queries alone")
    ]
    itself = attack(runs["mlp"], "--samples", "8", "--transfer", runs["mlp"], "--attacks", "transfer", *few[2:],
                    tmp_path / "c", "--steps", "1")  # fmt: skip
    assert "names the run under attack itself" in itself.output
    assert attack(runs["mlp"], "--samples", "8", *few, tmp_path / "d").exit_code == 0
    assert summary(tmp_path / "d")["notes"] == []


def test_all_images_are_kept(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to judge them again by another tool; also where they were not kept at first."""
    monkeypatch.setattr(command, "run_checks", lambda *args, **options: ())
    out = tmp_path / "out"
    first = (runs["mlp"], "--samples", "20", "--eps", "0.1", "--chunk", "8", "--attacks", "fgsm", "--out", out)
    assert attack(*first).exit_code == 0
    before = summary(out)["groups"]
    result = attack(*first, "--resume", "--keep-images")
    assert "attacked again, since its images were not kept" in result.output
    samples = np.load(out / "images" / "samples.npz", allow_pickle=False)
    (cell,) = cells(summary(out)).values()
    found = np.load(out / "images" / f"{cell['key']}.npz", allow_pickle=False)
    known = Target(Request(runs["mlp"], samples=20))
    assert np.array_equal(samples["images"], known.data.test[torch.from_numpy(samples["index"])].float().numpy() / 255)
    assert found["images"].shape == samples["images"].shape == (20, 1, 8, 8)
    assert np.abs(found["images"] - samples["images"]).max() == pytest.approx(0.1, abs=1e-6)
    predicted = known.judged(0, False)(torch.from_numpy(found["images"])).argmax(1).numpy()
    assert predicted.tolist() == found["predicted"].tolist()
    assert float((predicted != samples["labels"]).mean()) == cell["error"] == before[0]["attacks"][0]["error"]
    again = attack(*first, "--resume", "--keep-images")
    assert "attacked again" not in again.output


@pytest.mark.parametrize("damage", ["half", "other", "pictures"])
def test_a_damaged_cell_is_attacked_again(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(command, "run_checks", lambda *args, **options: ())
    out = tmp_path / "out"
    first = (runs["mlp"], "--samples", "20", "--eps", "0.1", "--attacks", "fgsm", "--out", out)
    assert attack(*first).exit_code == 0
    whole = cells(summary(out))["fgsm"]
    (file,) = (out / "cells").glob("*.json")
    text = file.read_text()
    if damage == "half":
        file.write_text(text[:100])
    elif damage == "other":
        file.write_text(text.replace('"eps": 0.1', '"eps": 0.2'))
    else:
        file.with_suffix(".npz").write_bytes(b"none")
    result = attack(*first, "--resume")
    assert result.exit_code == 0, result.output
    assert "is damaged, and is now" in result.output
    assert (out / "cells" / f"{file.name}.damaged").is_file()
    again = cells(summary(out))["fgsm"]
    assert {k: v for k, v in again.items() if k != "seconds"} == {k: v for k, v in whole.items() if k != "seconds"}


def test_nobody_reads_any_more(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gll attack RUN | head -1`: the pipe breaks, and the report is there."""
    monkeypatch.setattr(command, "run_checks", lambda *args, **options: ())
    read, write = os.pipe()
    os.close(read)
    request = Request(runs["mlp"], "fgsm", eps=(0.1,), samples=8, out=tmp_path / "out")
    with open(write, "w") as pipe:
        assert command.run_attack(request, Console(file=pipe)) == 0
    assert "# Attacks on mlp" in (tmp_path / "out" / "report.md").read_text()


def test_checks_where_no_image_may_move(runs: dict[str, Path], tmp_path: Path) -> None:
    assert (
        attack(runs["mlp"], "--samples", "8", "--attacks", "fgsm", "--eps", "0", "--out", tmp_path / "a").exit_code == 0
    )
    known = Target(Request(runs["mlp"], samples=8))
    assert summary(tmp_path / "a")["checks_at"]["eps"] == pytest.approx(0.3 * known.data.std[0])  # not at 0
    verdicts = {check["name"]: check["tested"] for check in summary(tmp_path / "a")["checks"]}
    assert [name for name, tested in verdicts.items() if not tested] == ["stand-in"]
    assert "| stand-in | not tested | – |" in (tmp_path / "a" / "report.md").read_text()


def test_the_strong_set(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = [sets.Planned(CarliniWagner(binary_steps=1, steps=3))]
    monkeypatch.setitem(sets.NAMES, "cw", lambda recipe: short)
    monkeypatch.setattr(command, "find_spec", lambda name: None)  # as where AutoAttack is not installed
    forecast, told = command.Forecast, []
    monkeypatch.setattr(
        command, "Forecast", lambda come, *to: told.append(sum(n == 24 for _, n in come)) or forecast(come, *to)
    )
    out = tmp_path / "out"
    options = ("--attacks", "strong", "--steps", "3", "--restarts", "1", "--square-queries", "5")
    result = attack(runs["gll"], *SMALL, *options, "--eps", "0.1", "--transfer", runs["mlp"], "--out", out)
    assert result.exit_code == 0, result.output
    found = summary(out)
    assert len(found["groups"]) == 1
    (group,) = found["groups"]
    kinds = {cell["kind"] for cell in group["attacks"]}
    assert kinds == {"multi-step", "black box", "transfer"}
    objectives = {cell["settings"].get("objective") for cell in group["attacks"]}
    assert {"CrossEntropy", "Margin", "DLR"} == objectives - {None}
    assert sum(cell["kind"] == "transfer" for cell in group["attacks"]) == 2  # the probe, and the other run
    (worst,) = group["worst"]
    assert worst["error"] >= max(c["error"] for c in group["attacks"] if c["settings"]["eps"] is not None)
    assert worst["by_kind"]["transfer"] >= max(c["error"] for c in group["attacks"] if c["kind"] == "transfer")
    assert all(cell["threat"]["dtype"] == "float64" for cell in group["attacks"])
    assert "autoattack was left out: it is not installed" in result.output
    # What is going to be done is said before it is done.
    said = result.output.splitlines()
    begins = next(i for i, line in enumerate(said) if "attacks on 24 samples of" in line)
    rest = next(i for i, line in enumerate(said) if ": error" in line)
    listed = [line.strip() for line in said[begins + 1 : rest] if line.startswith("  ")]
    assert "pgd, Margin, 3 steps: eps 0.1" in listed
    assert "24 samples at a time beside a base of 40, in float64:" in said[begins:rest]
    assert len(listed) == len(group["attacks"])
    assert {"square", "square apart"} <= {cell["attack"] for cell in group["attacks"]}  # so both are in the worst case
    assert told == [15]  # attacks, of which 24 samples each are to come
    row = errors_at(found, 0.1)
    assert (row["worst case"], row["FGSM"], row["AutoAttack"]) == (worst["error"], None, None)


def test_parts_of_autoattack(runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyautoattack")
    monkeypatch.setattr(command, "run_checks", lambda *args, **options: ())
    short = AutoAttack(0.1, steps=3, queries=5)
    monkeypatch.setitem(sets.NAMES, "autoattack", lambda recipe: [sets.Planned(short)])
    few = ("--attacks", "autoattack", "--eps", "0.1", "--samples", "20", "--out", tmp_path / "out")
    assert attack(runs["mlp"], *few).exit_code == 0
    (cell,) = cells(summary(tmp_path / "out")).values()
    assert list(cell["parts"]) == ["apgd-ce", "apgd-t", "fab-t", "square"]
    assert 0 < cell["parts"]["apgd-ce"] <= cell["parts"]["square"] == pytest.approx(cell["error"])
    page = (tmp_path / "out" / "report.md").read_text()
    shown = " | ".join(f"{100 * share:.2f}" for share in cell["parts"].values())
    assert "| attack | apgd-ce | apgd-t | fab-t | square |\n|---|---:|---:|---:|---:|\n| autoattack, " in page
    assert f" | {shown} |\n" in page


def test_each_alone(runs: dict[str, Path], tmp_path: Path) -> None:
    for name, options in {"alone": ("--queries", "alone"), "inductive": ("--inductive",)}.items():
        out = tmp_path / name
        result = attack(runs["gll"], *SMALL, *options, "--attacks", "fgsm", "--eps", "0.1", "--out", out)
        assert result.exit_code == 0, result.output
        (cell,) = cells(summary(out)).values()
        assert (cell["threat"]["queries"], cell["threat"]["inference"]) == (
            "alone",
            "transductive" if name == "alone" else "inductive",
        )
        assert next(c for c in summary(out)["checks"] if c["name"] == "batch dependence")["passed"]


def test_mistakes_are_one_line(runs: dict[str, Path], tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out", "--samples", "5")
    for arguments, message in (
        ((runs["gll"], "--attacks", "fgms"), "unknown attack 'fgms'; choose one of paper, strong, fgsm"),
        ((runs["gll"], "--eps", "8:255"), "--eps takes numbers with commas between"),
        ((runs["gll"], "--eps", "-1"), "ε must be at least 0"),
        ((runs["gll"], "--eps", "8"), "--eps 8 is more than the way from black to white, which is 1: an ε of 8 in 255"),
        (
            (runs["gll"], "--eps", "8", "--eps-units", "normalised"),
            "more than the way from black to white, which is 2.",
        ),
        ((runs["mlp"], "--attacks", "features"), "'features' needs a graph head"),
        (
            (runs["gll"], "--gradient-of", "mlp"),
            "has no mlp head whose gradient could be followed, but gll: give --gradient-of own or gll; a",
        ),
        ((runs["gll"], "--gradient-of", "mpl"), "unknown gradient 'mpl'"),
        ((runs["gll"], "--attacks", "transfer"), "needs runs to transfer from: --transfer RUN"),
        ((runs["gll"], "--head-at-test", "mlp"), "unknown head at test 'mlp'"),
        ((runs["gll"], "--poison", "1,x"), "--poison takes whole numbers with commas between"),
        ((runs["gll"], "--poison", "0"), "from 1 on, got 0"),
        ((runs["gll"], "--poison", "50", "--base", "40"), "--poison 50 is more than the base has labels, 40"),
        ((runs["mlp"], "--poison", "1"), "the model under attack has none"),
        ((tmp_path / "none",), "does not exist; give the folder of a run, which `gll train CONFIG` names"),
        ((runs["gll"] / "config.toml",), "is a file, not a run directory; `gll train "),
    ):
        result = attack(*arguments, *out)
        assert result.exit_code == 1, arguments
        assert message in result.output.replace("\n", " ")
        assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_a_run_on_other_images_is_no_source(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = target.data_of
    padded = lambda run, *device: load(run).padded(12) if run.directory == runs["gll"] else load(run, *device)  # noqa: E731
    monkeypatch.setattr(target, "data_of", padded)
    by = ("--attacks", "transfer", "--transfer", runs["gll"])
    result = attack(runs["mlp"], *SMALL, *by, "--out", tmp_path / "out")
    assert result.exit_code == 1
    said = result.output.replace("\n", " ")
    assert "it was trained on images of shape (1, 12, 12) (digits), those under attack have (1, 8, 8) (digits)" in said
    assert "give a run that was trained on images of that shape" in said


def test_graphs_of_two_sizes_are_two_groups(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the paper attacks MNIST: FGSM on a large graph, CW on a small one. Their worst cases are not mixed."""
    sizes = sets.Protocol(0.3, (0.3,), 50, 16, 30, 8, c=(20,))
    monkeypatch.setattr(target, "OTHER", sizes)
    few = ("--samples", "16", "--steps", "2", "--restarts", "1")
    assert attack(runs["gll"], *few, "--attacks", "fgsm,pgd", "--out", tmp_path / "a").exit_code == 0
    groups = [group["attacks"] for group in summary(tmp_path / "a")["groups"]]
    found = {group[0]["threat"]["base"].split()[0]: [(c["attack"], c["chunk"]) for c in group] for group in groups}
    assert found == {"50": [("fgsm", 16)], "30": [("pgd", 8)]}


def test_a_folder_may_move_to_another_device(runs: dict[str, Path]) -> None:
    """Pixels that differ by rounding, as bytes divided by 255 do on a GPU, are the same samples."""
    here, there = (Target(Request(runs["gll"], samples=5, device="cpu")) for _ in range(2))
    there.images = there.images * (1 + 2**-23)
    assert not torch.equal(here.images, there.images)
    assert here.about() == there.about()
    other = Target(Request(runs["gll"], samples=5, seed=1, device="cpu"))
    assert here.about()["pixels"] != other.about()["pixels"]
