"""What docs/robustness.md claims beyond single worst cases follows from the records, and changes with them."""

from __future__ import annotations

import importlib
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import scipy.stats

from tests.attacked_records import copied, pretend

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/_attacked.py; and a copy of the two experiments, which a test may change."""
    return copied(tmp_path, monkeypatch)


def rewrite(folder: Path, change: Change) -> None:
    """Every record of an experiment, changed in place."""
    file = folder / "results.json"
    text = json.loads(file.read_text())
    for record in text["records"]:
        change(record)
    file.write_text(json.dumps(text))


def row(module: ModuleType, root: Path, claim: str) -> str:
    lines = module.attacked(module.known(root))["attacked-claims"].splitlines()
    return next(line for line in lines if claim in line)


def test_cw_is_judged_by_the_images_that_it_fooled(module: ModuleType, tmp_path: Path) -> None:
    def cw(distance: float, apart: float = 0.01) -> Change:
        """A GLL whose own gradient fools one image in ten, and with every class in sight half of them."""

        def change(record: dict[str, Any]) -> None:
            if record["cell"].startswith("mnist, GLL, natural, seed"):
                for attack in (a for g in record["more"]["alone"]["groups"] for a in g["attacks"]):
                    shares = {"cw": 0.1, "cw with every class": 0.5}
                    if share := shares.get(attack["attack"]):
                        away = distance + apart * record["seed"]
                        attack |= {"natural": 0.0, "error": share, "mean_l2": share * away}

        return change

    words = importlib.import_module("_attacked_cw")
    before = row(module, tmp_path, "resists CW")
    assert "in the paper's form, by its own gradient, a GLL errs less than a linear layer at " in before
    for distance, answer in ((9.0, "yes"), (0.1, "no, less far")):
        rewrite(tmp_path / "worst-case", cw(distance))
        told = row(module, tmp_path, "resists CW")
        assert f"**{answer}** on MNIST after our training: GLL {distance + 0.01:.2f} ± 0.01, linear " in told
        lines = words.table(module.known(tmp_path)).splitlines()
        line = next(line for line in lines if line.startswith("| our training | MNIST | GLL |"))
        numbers = f"{distance + 0.01:.2f} ± 0.01"
        assert line.endswith(f"| 10.0 ± 0.0 | {numbers} | 50.0 ± 0.0 | {numbers} |")  # not the mean over all images
    rewrite(tmp_path / "worst-case", cw(1.0, apart=2.0))  # further on average, but not in every seed
    told = row(module, tmp_path, "resists CW")
    assert "**no difference** on MNIST after our training: GLL 3.00 ± 2.00, linear " in told
    rewrite(tmp_path / "worst-case", without_sight)
    assert "on MNIST after our training" not in row(module, tmp_path, "resists CW")  # its own gradient says little
    (tmp_path / "worst-case" / "results.json").unlink()
    assert "| not run yet |" in row(module, tmp_path, "resists CW")
    assert words.table(module.known(tmp_path)) == "Not run yet."


def without_sight(record: dict[str, Any]) -> None:
    """As if CW had not been made with every class in sight of a naturally trained GLL."""
    if record["cell"].startswith("mnist, GLL, natural, seed"):
        for group in record["more"]["alone"]["groups"]:
            group["attacks"] = [a for a in group["attacks"] if a["attack"] != "cw with every class"]


def test_one_seed_excludes_nothing(module: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "worst-case" / "results.json"
    text = json.loads(file.read_text())
    text["records"] = [record for record in text["records"] if record["seed"] == 0]
    file.write_text(json.dumps(text))
    told = module.attacked(module.known(tmp_path))["attacked-excluded"]
    assert told == "With one seed of a head no difference can be excluded."


def test_what_no_difference_leaves_open(module: ModuleType, tmp_path: Path) -> None:
    known = module.known(tmp_path)
    told = module.attacked(known)["attacked-excluded"]
    errors = [
        [record["values"]["worst case at 2x, alone"] for record in known.columns("mnist", "robust")[head]]
        for head in ("GLL", "linear")
    ]
    test = scipy.stats.ttest_ind(*errors, equal_var=False).confidence_interval()
    ends = f"from {test.low:+.1f} to {test.high:+.1f} points beside a linear layer".replace("-", "−")
    assert f"on MNIST at ε = 0.2 px {ends}, from " in told
    assert test.low > -36
    assert told.endswith("(24 against 60 % on MNIST) is excluded; a smaller one is not.")

    def apart(record: dict[str, Any]) -> None:
        if record["cell"].startswith("mnist, GLL, robust, seed"):
            record["values"]["worst case at 2x, alone"] = (1.0, 60.0, 99.0)[record["seed"]]

    rewrite(tmp_path / "worst-case", apart)
    assert "on MNIST) is not excluded." in module.attacked(module.known(tmp_path))["attacked-excluded"]


def test_comparisons_are_counted_and_those_near_the_limit_named(module: ModuleType, tmp_path: Path) -> None:
    def counts() -> tuple[int, int, str]:
        told = module.attacked(module.known(tmp_path))["attacked-comparisons"]
        every, differ = re.findall(r"are (\d+) such .* and (\d+) of them", told)[0]
        assert f"about {0.05 * int(every):.1f} would" in told
        return int(every), int(differ), told

    every, differ, told = counts()
    assert every > differ
    named = re.findall(r": (yes|no difference|weaker) \(p = ([\d.]+)\)", told)
    assert {(word == "no difference", float(p) >= 0.05) for word, p in named} == {(True, True), (False, False)}
    place, level = (
        "fashionmnist, {}, robust",
        {f"worst_case_at_{m}x{how}": 50.0 for m in (1, 2) for how in ("", ",_alone")},
    )
    for head in ("GLL", "linear", "MLP"):  # equal: what showed a difference does not
        pretend(tmp_path / "worst-case", "full", place.format(head), place.format(head), **level)
    same, fewer, words = counts()
    assert same == every
    assert fewer < differ
    assert "FashionMNIST" not in words


def test_zero_gradients_are_counted_apart(module: ModuleType, tmp_path: Path) -> None:
    def counts() -> tuple[int, int]:
        told = row(module, tmp_path, "the checks notice")
        blind, zero = re.findall(r"in \d+ of (\d+) such runs.*; \*zero gradients\* in (\d+) of them", told)[0]
        return int(blind), int(zero)

    blind, zero = counts()
    assert 0 < zero <= blind

    def passes(record: dict[str, Any]) -> None:
        for summary in record["more"].values():
            for check in summary["checks"]:
                check["passed"] = check["passed"] or check["name"] == "zero gradients"

    for name in ("adversarial", "worst-case"):
        rewrite(tmp_path / name, passes)
    assert counts() == (blind, 0)


def test_one_training_stands_beside_others_by_the_same_settings(module: ModuleType, tmp_path: Path) -> None:
    records = json.loads((tmp_path / "worst-case" / "results.json").read_text())["records"]
    own = [
        record["values"]["worst case at 1x, alone"]
        for record in records
        if record["cell"].startswith("mnist, linear, natural, as in the paper")
    ]
    told = f"; {len(own)} more such trainings, each sample alone at ε = 0.1 px: GLL "
    ends = f", linear {min(own):.1f} to {max(own):.1f})"
    made = module.attacked(module.known(tmp_path))
    for name in ("attacked-favour", "attacked-claims"):
        assert told in made[name]
        assert ends in made[name]

    def shorter(record: dict[str, Any]) -> None:
        if "as in the paper" in record["cell"]:
            record["config"]["train.epochs"] = 99

    rewrite(tmp_path / "worst-case", shorter)
    other = module.attacked(module.known(tmp_path))
    assert "more such training" not in other["attacked-favour"] + other["attacked-claims"]


def test_what_was_not_run_is_named_beside_what_was(module: ModuleType, tmp_path: Path) -> None:
    claim = "it is more robust than a linear layer or an MLP, each sample alone"
    assert row(module, tmp_path, claim).endswith("<br>FashionMNIST: not run |")
    assert module.attacked(module.known(tmp_path))["attacked-answers"].endswith(" Not run: WNLL.")
    for head in ("GLL", "linear"):
        pretend(tmp_path / "worst-case", "full", f"fashionmnist, {head}, robust", f"fashionmnist, {head}, natural")
    pretend(tmp_path / "worst-case", "full", "mnist, linear, robust", "mnist, WNLL, robust")
    assert "not run" not in row(module, tmp_path, claim)
    assert "Not run" not in module.attacked(module.known(tmp_path))["attacked-answers"]


def test_the_papers_adversarial_training_has_claims_of_its_own(module: ModuleType, tmp_path: Path) -> None:
    errors, robust = "the paper's errors after the paper's adversarial", "WNLL after that training, all samples in one"
    assert "on MNIST: FGSM 2.3 (paper 2.3), IFGSM " in row(module, tmp_path, errors)
    place = "mnist, {}, robust"
    folder = tmp_path / "adversarial"
    pretend(folder, "full", place.format("GLL"), place.format("GLL"), FGSM=2.3, IFGSM=2.4, worst_case=1.0)
    for head in ("WNLL", "linear"):
        pretend(folder, "full", place.format(head), place.format(head), worst_case=9.0)
    assert "**yes** on MNIST: FGSM 2.3 ± 0.0 (paper 2.3), IFGSM 2.4 " in row(module, tmp_path, errors)
    assert "MNIST: **yes** beside WNLL and a linear layer (seeds 0 to 2)" in row(module, tmp_path, robust)


def test_an_error_of_few_samples_agrees_within_what_they_can_tell(module: ModuleType, tmp_path: Path) -> None:
    def words(**values: float) -> str:
        def change(record: dict[str, Any]) -> None:
            if record["cell"].startswith("mnist, GLL, robust"):
                record["values"] |= values

        rewrite(tmp_path / "adversarial", change)
        lines = module.attacked(module.known(tmp_path))["attacked-mnist-paper"].splitlines()
        return next(line for line in lines if line.startswith("| GLL | robust"))

    paper = 1.16  # of CW
    assert "agree: natural, FGSM, CW; higher: IFGSM |" in words(CW=paper + 0.8)  # 1,000 samples
    assert "; higher: IFGSM, CW |" in words(CW=paper + 1.0)
    assert "higher: FGSM" in words(FGSM=2.28 + 1.0)  # 10,000 samples


def test_the_joint_view_is_read_in_the_records(module: ModuleType, tmp_path: Path) -> None:
    told = module.attacked(module.known(tmp_path))["attacked-jointly"]
    assert "MNIST, GLL, natural, as in the paper (worst-case)" in told
    assert "MNIST, GLL, robust" not in told

    def without(record: dict[str, Any]) -> None:
        for group in record["more"]["summary"]["groups"]:
            group["attacks"] = [a for a in group["attacks"] if not a["attack"].endswith("jointly")]

    for name in ("adversarial", "worst-case"):
        rewrite(tmp_path / name, without)
    words = "In all records the view is that of each sample alone."
    assert module.attacked(module.known(tmp_path))["attacked-jointly"] == words


def test_rates_stand_beside_each_other(module: ModuleType) -> None:
    lines = module.attacked(module.known())["attacked-rate"].splitlines()
    assert lines[0] == "| epochs, rate, schedule | linear | GLL |"
    found = json.loads((module.EXPERIMENTS / "rate" / "results.json").read_text())["records"]
    for line in lines[2:6]:
        training, linear, _ = line.strip("| ").split(" | ")
        place = {"head": "linear", "training": training}
        errors = [r["values"]["worst case at 1x, alone"] for r in found if r["place"] == place]
        assert linear == module.shown_mean(errors)
    # What the page says about them: the rate, and not the length.
    worst = {line.split(" | ")[0].strip("| "): float(line.split(" | ")[1].split(" ±")[0]) for line in lines[2:6]}
    assert worst["30 epochs, 0.01, cosine"] > 2 * worst["30 epochs, 0.001, cosine"]
    assert worst["100 epochs, 0.001, steps"] < 1.5 * worst["30 epochs, 0.001, cosine"]


@pytest.mark.parametrize("trained_at", [0.0, 0.1])
def test_an_effort_stands_beside_the_run_it_was_made_on(module: ModuleType, tmp_path: Path, trained_at: float) -> None:
    sources = ("40 steps", "AutoAttack, 5 points", "100 steps", "any of these")
    rows = [
        {"victim": "gll", "seed": 0, "source": source, "eps": 0.1, "error": error, "seconds": 10.0}
        for source, error in zip(sources, (0.3, 0.45, 0.35, 0.5), strict=True)
    ]
    config = {"data": "mnist", "trained_at": trained_at, "against": "own", "base": 10, "samples": 20, "seed": [0]}
    record = {"rows": rows, "config": config, "commit": "c", "device": "d", "versions": {"torch": "2"}, "wall_s": 1.0}
    known = module.known(tmp_path)
    made = importlib.import_module("_other_runs").efforts(record, known).splitlines()
    assert made[2:6] == [
        "| PGD with every class in sight: 40 steps | 30.0 | 10 |",
        "| the same, but 100 steps | 35.0 | 10 |",
        "| AutoAttack with every class in sight: 5 points | 45.0 | 10 |",
        "| **any of these** | 50.0 |  |",
    ]
    training = "robust" if trained_at else "natural, as in the paper"
    (run,) = (r for r in known.columns("mnist", training)["GLL"] if r["seed"] == 0)
    assert made[8] == f"| **before: worst case of all** | {run['values']['worst case at 1x, alone']:.1f} |  |"
    assert ("trained naturally" in made[-1]) == (not trained_at)
    assert "*before*: the same run in the table above, 1,000 samples;" in made[-1]


def test_cw_needs_something_to_compare(module: ModuleType) -> None:
    standard = importlib.import_module("_attacked_cw").standard
    attack = {"attack": "cw", "error": 0.1, "natural": 0.1, "mean_l2": 0.0}
    assert standard({"groups": [{"attacks": [attack]}]}, "cw") is None  # it has fooled nobody
    assert standard({"groups": [{"attacks": [attack | {"error": 0.6}]}]}, "cw")[0] == pytest.approx(60.0)


def test_the_first_lines_of_the_page_hold(module: ModuleType) -> None:
    """What docs/robustness.md says in words before its tables, by the records as they are."""
    text = (module.ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    page = " ".join(text.partition("**After natural training**")[0].split())
    known = module.known()
    worst = {
        training: module.Contest(known.worst, "mnist", training) for training in ("robust", "natural, as in the paper")
    }
    assert "After the paper's natural training on MNIST a GLL is far more robust than a linear layer or an MLP" in page
    assert worst["natural, as in the paper"].answers[1] == "yes"
    first = "After adversarial training in earnest a GLL is not more robust**, each sample alone, and at the ε of the "
    assert f"{first}training it is weaker" in page
    for contest in module.contests(known.worst, "robust"):
        assert contest.answers[1] == "weaker"
        assert "yes" not in contest.answers[2]
    assert "At a tenth of that rate a linear layer leads: it is then more robust than a GLL of either training" in page
    gll = [
        statistics.fmean(module.Contest(known.worst, "mnist", training).values("GLL", "worst case at 1x, alone"))
        for training in ("natural", "natural, as in the paper")
    ]
    linear = module.Contest(known.worst, "mnist", "natural").values("linear", "worst case at 1x, alone")
    assert statistics.fmean(linear) < min(gll)


def test_more_pgd_levels_off_below_autoattack(module: ModuleType) -> None:
    """What is said below the table of efforts on FashionMNIST."""
    rows = json.loads((module.ROOT / "benchmarks" / "results" / "effort-fashion.json").read_text())["rows"]
    contest = module.Contest(module.known().worst, "fashionmnist", "robust")
    (run,) = (record for record in contest.records["GLL"] if record["seed"] == 0)
    auto = module.strongest(run["more"]["alone"], 0.1, module.ATTACKS["AutoAttack with every class in sight"])
    assert max(row["error"] for row in rows) < auto
    assert max(row["error"] for row in rows) - rows[0]["error"] < 0.02


def test_the_lead_of_a_gll_stands_after_more_effort(module: ModuleType) -> None:
    """What is said below the table of efforts on MNIST, after the paper's natural training."""
    record = json.loads((module.ROOT / "benchmarks" / "results" / "effort-mnist-natural.json").read_text())
    found, samples = {row["source"]: row["error"] for row in record["rows"]}, record["config"]["samples"]
    contest = module.Contest(module.known().worst, "mnist", "natural, as in the paper")
    (before,) = (r["values"]["worst case at 1x, alone"] for r in contest.records["GLL"] if r["seed"] == 0)
    auto = [error for name, error in found.items() if name.startswith("AutoAttack")]
    pgd = [error for name, error in found.items() if not name.startswith("AutoAttack") and name != "any of these"]
    assert max(auto) == max(error for name, error in found.items() if name != "any of these")
    assert max(auto) - min(auto) < 0.03
    assert max(pgd) - pgd[0] < 0.05
    chance = scipy.stats.binomtest(round(max(auto) * samples), samples, before / 100, "greater").pvalue
    assert chance > 0.05
    assert max(auto) <= found["any of these"] < max(auto) + 0.05  # all of them together find little more
    others = [statistics.fmean(contest.values(head, "worst case at 1x, alone")) for head in ("linear", "MLP")]
    assert 100 * max(found.values()) < min(others) - 30
