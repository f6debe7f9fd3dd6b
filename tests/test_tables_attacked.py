"""Records that are made later come into the tables and answers of docs/robustness.md without an edit."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gll.reproduce.experiment import load_experiment
from gll.reproduce.protocol import single
from gll.reproduce.records import read_records
from tests.attacked_records import ROOT, copied, pretend


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/_attacked.py; and a copy of the two experiments, which a test may add to."""
    return copied(tmp_path, monkeypatch)


def test_what_is_not_run_is_said(module: ModuleType, tmp_path: Path) -> None:
    for name in ("adversarial", "worst-case"):
        (tmp_path / name / "results.json").unlink()
    made = module.attacked(module.known(tmp_path))
    assert made["attacked-fashionmnist-robust"] == made["attacked-mnist-natural"] == "Not run yet."
    assert made["attacked-mnist"] == made["attacked-answers"] == made["attacked-headline"] == "Not run yet."
    assert made["attacked-claims"].count("| not run yet |") == 10
    assert made["attacked-natural"] == "Not run yet."
    assert made["attacked-symmetry"] == made["attacked-mnist-order"] == made["attacked-mnist-attacks"] == "Not run yet."


def test_a_new_data_set_and_new_trainings_come_in(module: ModuleType, tmp_path: Path) -> None:
    before, folder = module.attacked(module.known(tmp_path)), tmp_path / "worst-case"
    for head in ("GLL", "linear", "MLP"):
        for training in ("robust", "natural"):
            pretend(folder, "full", f"mnist, {head}, robust", f"fashionmnist, {head}, {training}")
    pretend(folder, "full", "mnist, GLL, robust", "mnist, GLL, robust, every class")
    pretend(folder, "full", "mnist, linear, robust", "mnist, WNLL, robust")
    known = module.known(tmp_path)
    after = module.attacked(known)
    assert "on FashionMNIST weaker at the ε of the training" in after["attacked-headline"]
    head = after["attacked-mnist-robust"].splitlines()[0]
    names = ("GLL", "GLL, against every class", "WNLL", "linear", "MLP")
    assert head == "| attack | " + " | ".join(f"{name}, ε = {eps} px" for eps in (0.1, 0.2) for name in names) + " |"
    assert "**worst case of all**" in after["attacked-fashionmnist-robust"]
    *others, once, twice = after["attacked-natural"].splitlines()
    assert once.startswith("| FashionMNIST | our training (")
    assert twice.startswith("| FashionMNIST | our training (")
    assert others == before["attacked-natural"].splitlines()
    assert "| natural | FashionMNIST | 0.2 px | GLL | 14 | " in after["attacked-symmetry"]
    assert " on FashionMNIST after natural training: it finds " in after["attacked-claims"]
    assert "against every class" in after["attacked-answers"]
    assert after["attacked-mnist"] == before["attacked-mnist"]
    picture = tmp_path / module.figure_of("fashionmnist")
    assert picture.name not in module.by_attack(known, "fashionmnist", "robust", tmp_path)
    module.draw(known, "fashionmnist", picture)
    drawn = module.by_attack(known, "fashionmnist", "robust", tmp_path)
    assert drawn.endswith("![error by what the attacker sees](figures/robustness-by-attack-fashionmnist.png)")
    assert picture.stat().st_size > 5000
    other = tmp_path / module.figure_of("fashionmnist", "natural")
    module.draw(known, "fashionmnist", other, "natural")
    assert other.name == "robustness-by-attack-fashionmnist-natural.png"
    assert other.read_bytes() != picture.read_bytes()
    assert module.by_attack(known, "fashionmnist", "natural", tmp_path).endswith(f"(figures/{other.name})")


def test_longer_training_takes_the_place_of_a_shorter_one(module: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "adversarial"
    records = json.loads((folder / "results.json").read_text())
    longer = [r for r in records["records"] if r["cell"].startswith("mnist, WNLL, robust") and r["scale"] == "full"]
    records["records"] = [record for record in records["records"] if record not in longer]
    (folder / "results.json").write_text(json.dumps(records))
    pretend(folder, "full", "mnist, GLL, natural", "mnist, GLL, robust", natural=0.6, FGSM=2.5, IFGSM=3.3, CW=2.4)
    known = module.known(tmp_path)
    lines = module.attacked(known)["attacked-mnist"].splitlines()
    rows = [line for line in lines if line.startswith("| robust")]
    assert rows[0].startswith("| robust, 100 epochs | GLL | 0, 1, 2 |")
    assert "2.50 ± 0.00 (2.28)" in rows[0]
    assert (
        "| GLL | robust, 100 epochs | 0, 1, 2 | agree: natural, FGSM; higher: IFGSM, CW |"
        in module.attacked(known)["attacked-mnist-paper"]
    )
    assert sum("15 epochs" in row for row in rows) == 3  # shown, as long as WNLL has no other
    pretend(folder, "full", "mnist, WNLL, natural", "mnist, WNLL, robust")
    assert "15 epochs" not in module.attacked(module.known(tmp_path))["attacked-mnist"]
    found = json.loads((folder / "results.json").read_text())["records"]
    assert any(record["scale"] == "small" for record in found)  # still there, and not shown


def test_heads_in_the_papers_protocol_are_compared_as_far_as_the_samples_allow(
    module: ModuleType, tmp_path: Path
) -> None:
    folder = tmp_path / "adversarial"
    (folder / "results.json").write_text((ROOT / "experiments" / "adversarial" / "results.json").read_text())
    one = {"worst_case": 26.0}
    for name in ("GLL", "linear"):
        pretend(folder, "full", f"mnist, {name}, natural", f"fashionmnist, {name}, natural", **one)
        one = {"worst_case": 29.0}
    order = module.attacked(module.known(tmp_path))["attacked-fashionmnist-order"]
    assert "*natural*, 100 epochs, seeds 0 to 2: GLL 26.0 ± 0.0, linear 29.0 ± 0.0 (GLL below linear: yes)" in order
    records = json.loads((folder / "results.json").read_text())
    for record in records["records"]:
        if record["cell"].startswith("fashionmnist, GLL, natural") and record["seed"] > 0:
            record["scale"], record["key"] = "gone", "gone" + record["key"]
    (folder / "results.json").write_text(json.dumps(records))
    made = module.attacked(module.known(tmp_path))
    assert (
        "no difference that 1,000 samples and one seed could show between GLL and linear"
        in (made["attacked-fashionmnist-order"])
    )
    assert "*natural*, 100 epochs, seed 0 or seeds 0 to 2: GLL 26.0, linear" in made["attacked-fashionmnist-order"]
    assert "FashionMNIST: **no difference that 1,000 samples and one seed could show**" in made["attacked-claims"]
    for record in records["records"]:
        if record["cell"].startswith("fashionmnist, linear, natural"):
            record["values"]["worst case"] = None  # strong attacks were not made
    (folder / "results.json").write_text(json.dumps(records))
    assert "FashionMNIST" not in module.attacked(module.known(tmp_path))["attacked-natural"]
    graphs = next(line for line in made["attacked-mnist"].splitlines() if "attacked + base" in line)
    assert graphs.count("*10,000 + 10,000*") == 3  # natural, FGSM, IFGSM
    assert graphs.count("*1,000 + 1,000*") == 5
    assert " | 1,000 + 1,000 | 0.092 px | seed 0 | " in made["attacked-natural"]


def test_how_square_was_made_is_read_in_the_records(module: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "adversarial" / "results.json"
    apart = "Where samples share a graph, *Square* was made on each query apart"
    for change in ("one", "none", "every"):
        records = json.loads(file.read_text())
        for record in records["records"]:
            for group in record["more"]["summary"]["groups"]:
                here = [attack for attack in group["attacks"] if attack["attack"] == "square apart"]
                if here:
                    group["attacks"] = [attack for attack in group["attacks"] if attack["attack"] != "square"]
                    both = {"one": record["cell"] == "mnist, WNLL, natural, seed 0", "none": False, "every": True}
                    group["attacks"] += [{**here[0], "attack": "square"}] if both[change] else []
        file.write_text(json.dumps(records))
        words = module.attacked(module.known(tmp_path))["attacked-square"]
        assert words.startswith(apart)
        ends = {"one": "for MNIST, WNLL, natural, seed 0.", "none": f"{apart}.", "every": " for every head."}
        assert words.endswith(ends[change])


def test_the_same_heads_after_two_trainings_by_the_same_attacks(module: ModuleType, tmp_path: Path) -> None:
    lines = module.attacked(module.known(tmp_path))["attacked-other-training"].splitlines()
    assert lines[2].startswith(
        "| MNIST | the paper's training (100 epochs, Adam 0.01, steps) | 1,000 + 1,000 | 0.092 px |"
    )
    records = read_records(tmp_path / "worst-case" / "results.json").values()
    joint = [
        module.shown_mean(
            [r["values"]["worst case at 1x"] for r in records if r["cell"].startswith(f"mnist, {head}, natural, seed")]
        )
        for head in ("GLL", "linear", "MLP")
    ]
    where = "| 1,000 + 1,000; all heads without AutoAttack | 0.1 px | seeds 0 to 2 |"
    assert f"{where} {' | '.join(joint)} | weaker beside a linear layer, no difference beside an MLP |" in lines[3]
    assert "| 1 + 1,000 | 0.1 px |" in lines[4]
    assert [line.split(" | ")[1] for line in lines[5:]] == ["the paper's training (100 epochs, Adam 0.01, steps)"] * 2
    for head in ("GLL", "linear", "MLP"):
        errors = {"worst_case_at_1x": 1.0 if head == "GLL" else 0.0, "worst_case_at_1x,_alone": 5.0}
        pretend(tmp_path / "worst-case", "full", f"mnist, {head}, natural", f"mnist, {head}, natural", **errors)
    alike = module.attacked(module.known(tmp_path))["attacked-other-training"].splitlines()
    assert alike[3].endswith(" | weaker |")  # all in one graph, though 1.0 is less than the others have alone
    assert alike[4].endswith(" | no difference |")
    assert alike[2] == lines[2]


def test_the_papers_training_one_by_one_comes_in(module: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "worst-case"
    records = json.loads((folder / "results.json").read_text())
    records["records"] = [record for record in records["records"] if "as in the paper" not in record["cell"]]
    (folder / "results.json").write_text(json.dumps(records))
    before = module.attacked(module.known(tmp_path))
    assert before["attacked-mnist-natural-paper"] == "Not run yet."
    experiment = load_experiment(folder)
    if "natural, as in the paper" not in experiment.text["axes"]["training"]:
        pytest.skip("worst-case has no such training")
    for head, error in (("GLL", 20.0), ("linear", 60.0), ("MLP", 20.0)):
        new = f"mnist, {head}, natural, as in the paper"
        figures = {"worst_case_at_1x,_alone": error, "worst_case_at_2x,_alone": 99.0, "worst_case_at_1x": error}
        pretend(folder, "full", f"mnist, {head}, natural", new, **figures)
    known = module.known(tmp_path)
    after = module.attacked(known)
    once, twice = after["attacked-natural"].splitlines()[2:4]
    assert " | 1 + 1,000 | 0.1 px | seeds 0 to 2 | " in once
    assert once.endswith(" | **yes beside a linear layer, no difference beside an MLP** |")
    assert twice.endswith(" | **all heads are broken (99.0)** |")
    assert after["attacked-mnist-natural"] == before["attacked-mnist-natural"]
    assert "**worst case of all**" in after["attacked-mnist-natural-paper"]
    assert "MNIST after the paper's training: **yes beside a linear layer, no diff" in after["attacked-claims"]
    assert len(after["attacked-other-training"].splitlines()) == 2 + len(before["attacked-other-training"].splitlines())
    assert "| the paper's natural | MNIST | 0.1 px | GLL | 14 | 20.0 ± 0.0 | " in after["attacked-symmetry"]
    assert (
        "without attacks, each sample alone at ε = 0.1 px: ahead of a linear layer (GLL 20.0"
        in after["attacked-favour"]
    )
    assert len(after["attacked-favour"].splitlines()) == 1 + len(
        before["attacked-favour"].splitlines()
    )  # broken at 0.2
    assert module.figure_of("mnist", "natural, as in the paper") == "robustness-by-attack-natural-paper.png"


def test_the_same_models_in_one_graph_and_a_graph_at_test_time(module: ModuleType, tmp_path: Path) -> None:
    place, figures = "fashionmnist, {}, robust", {"worst_case_at_1x": 1.0, "worst_case_at_2x": 95.0}
    for head in ("linear", "MLP"):
        pretend(tmp_path / "worst-case", "full", place.format(head), place.format(head), **figures)
    made = module.attacked(module.known(tmp_path))
    lines = [line for line in made["attacked-together"].splitlines() if line.startswith("| FashionMNIST")]
    own = list(read_records(tmp_path / "worst-case" / "results.json").values())
    own = [r for r in own if r["cell"].startswith("fashionmnist, GLL, robust, seed")]
    for line, eps, figure, answer in zip(lines, ("0.05", "0.1"), figures, ("weaker", "yes"), strict=True):
        errors = [r["values"][figure.replace("_", " ")] for r in own]
        assert line.startswith(
            f"| FashionMNIST | 1,000 + 1,000 | {eps} px | seeds 0 to 2 | {module.shown_mean(errors)} |"
        )
        assert line.endswith(f" {figures[figure]} ± 0.0 | {figures[figure]} ± 0.0 | {answer} |")
    at_test = made["attacked-at-test"].splitlines()
    assert [line.split(" | ")[0] for line in at_test[2:]] == [
        "| the softmax it was trained with",
        "| a graph, by the gradient of the softmax",
        "| a graph, by its own gradient",
    ]
    shares = [float(line.split(" | ")[2].split(" ± ")[0]) for line in at_test[2:]]
    assert shares[2] < shares[1] / 2  # IFGSM: the mask


def test_a_claim_about_small_errors_needs_one(module: ModuleType, tmp_path: Path) -> None:
    def row(claim: str) -> str:
        return next(
            line for line in module.attacked(module.known(tmp_path))["attacked-claims"].splitlines() if claim in line
        )

    assert "**no** on MNIST, FGSM and worst case: " in row("a small error under FGSM")
    assert "**does not apply** on FashionMNIST, no head has a small one; FGSM and worst case: " in row(
        "a small error under FGSM"
    )
    folder = tmp_path / "adversarial"
    for head in ("GLL", "linear"):
        place = f"fashionmnist, {head}, natural"
        pretend(folder, "small", place, place, FGSM=5.0, worst_case=9.0)
    assert "**yes** on FashionMNIST, FGSM and worst case: GLL 5.0 and 9.0; " in row("a small error under FGSM")
    told = row("the checks notice")
    alarms, graphs, others = (
        int(n) for n in re.findall(r"fails in (\d+) of .*: (\d+) of graph .*; (\d+) of linear", told)[0]
    )
    assert alarms == graphs + others
    assert "FGSM 5.0 (paper 34.6)" in row("the paper's errors under FGSM")


def test_checks_are_by_one_rule(module: ModuleType, tmp_path: Path) -> None:
    """Also of records that were made by another; those that do not hold enough for it are not counted."""

    def shown() -> tuple[str, str]:
        made = module.attacked(module.known(tmp_path))
        row = next(
            line for line in made["attacked-mnist"].splitlines() if line.startswith("| natural, 100 epochs | GLL")
        )
        return row.split(" | ")[-1], next(
            line for line in made["attacked-claims"].splitlines() if "checks notice" in line
        )

    file = tmp_path / "adversarial" / "results.json"
    text = json.loads(file.read_text())
    (record,) = (r for r in text["records"] if (r["cell"], r["scale"]) == ("mnist, GLL, natural, seed 0", "full"))
    summary = record["more"]["summary"]
    assert "stand-in" not in [check["name"] for check in summary["checks"]]  # there was none when it was made
    for check in summary["checks"]:
        check["passed"] = check["passed"] or check["name"] in ("losses disagree", "stand-in")
    file.write_text(json.dumps(text))
    column, told = shown()
    assert {"losses disagree", "stand-in"} <= set(column.removesuffix(" |").split(", "))
    blind = int(re.findall(r"in \d+ of (\d+) such runs", told)[0])
    assert "older checks" not in told
    for group in summary["groups"]:
        group["attacks"] = [a for a in group["attacks"] if a["settings"].get("objective") not in ("Margin", "DLR")]
    file.write_text(json.dumps(text))
    column, told = shown()
    assert column == "older checks |"
    assert re.findall(r"in \d+ of (\d+) such runs", told) == [str(blind - 1)]
    assert ". Left out: 1 run with older checks |" in told


def test_both_views_of_every_class_are_in_one_row(module: ModuleType) -> None:
    """The one in the graph of all queries came later: records without it are read as before."""
    settings = {"eps": 0.1, "norm": {"name": "LInf", "scale": 1.0}}
    attacks = [{"attack": "pgd with every class", "settings": settings, "error": 0.3}]
    wanted = module.ATTACKS["PGD with every class in sight"]
    assert module.strongest({"groups": [{"attacks": attacks}]}, 0.1, wanted) == 0.3
    attacks.append({"attack": "pgd with every class jointly", "settings": settings, "error": 0.4})
    assert module.strongest({"groups": [{"attacks": attacks}]}, 0.1, wanted) == 0.4
    others = [title for title, wanted in module.ATTACKS.items() if wanted(attacks[1]["attack"])]
    assert others == ["PGD with every class in sight"]


def test_autoattack_in_a_cube_inside_the_ball_is_not_lost(module: ModuleType) -> None:
    """Where channels have units of their own, as on CIFAR-10, its ε is that of the smallest."""
    known = module.known()
    (record,) = (r for _, r in known.adversarial[0].found if r["cell"] == "cifar10, GLL, natural, seed 0")
    (cube,) = {
        a["settings"]["eps"] for g in record["more"]["summary"]["groups"] for a in g["attacks"] if "auto" in a["attack"]
    }
    assert cube < 0.95 * record["more"]["summary"]["table_eps_pixels"]
    table = module.attacked(known)["attacked-cifar10"].splitlines()
    row = dict(
        zip(table[0].split(" | "), next(line for line in table if " | GLL | " in line).split(" | "), strict=True)
    )
    assert row["**AutoAttack, standard**"] == f"{record['values']['AutoAttack']:.1f}"


def test_the_best_single_attack_may_be_one_in_that_cube() -> None:
    def attack(name: str, eps: float, error: float) -> dict[str, Any]:
        return {"attack": name, "settings": {"eps": eps, "norm": {"name": "LInf", "scale": 1.0}}, "error": error}

    attacks = [
        attack("pgd", 0.1, 0.3),
        attack("autoattack", 0.093, 0.5),
        attack("pgd", 0.2, 0.9),
        attack("pgd", 0.05, 0.6),
    ]
    assert single({"table_eps_pixels": 0.1, "groups": [{"attacks": attacks}]}) == 0.5


def test_one_attack_alone_stands_beside_the_worst_case(module: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "worst-case" / "results.json"
    lines = module.attacked(module.known(tmp_path))["attacked-symmetry"].splitlines()
    row = next(line for line in lines if line.startswith("| natural | MNIST | 0.1 px | GLL |"))
    own = [r for r in read_records(file).values() if r["cell"].startswith("mnist, GLL, natural, seed")]
    best = [
        max(
            100 * a["error"]
            for g in r["more"]["alone"]["groups"]
            for a in g["attacks"]
            if a["settings"].get("eps") == 0.1
        )
        for r in own
    ]
    assert f"| {module.shown_mean(best)}: AutoAttack with every class in sight | " in row


def test_the_reading_that_comes_closest_is_named(module: ModuleType) -> None:
    words = importlib.import_module("_paper_attacks")

    def row(title: str, fgsm: float, ifgsm: float, training: str = "as in the paper's text") -> dict[str, object]:
        reading = {"title": title, "steps": 30, "gradient": "exact"}
        errors = {"natural": 0.5, "FGSM": fgsm, "IFGSM": ifgsm, "after": {"1": 1.0, "30": ifgsm}}
        return {"head": "linear", "training name": training, "seed": 0, "at_test": None, "reading": reading, **errors}

    rows = [
        row("plain", 6.0, 30.0, "shorter"),
        row("plain", 4.0, 17.0),
        row("no box", 5.0, 9.0),
        row("far", 50.0, 90.0),
    ]
    config = {"samples": [0], "eps": 0.3, "seed": "0"}
    made = words.readings({"rows": rows, "config": config, "commit": "c", "device": "d", "wall_s": 1.0}).splitlines()
    assert made[2] == "| **linear** | the paper | | | | 0.75 | 5.74 | 8.48 |"
    assert made[3].startswith(
        "| | as we read it | as in the paper's text, seed 0 | "
    )  # not the first that was measured
    assert made[3].endswith(" | plain | 0.50 | 4.00 | 17.00 |")
    assert made[4].startswith("| | closest of 4 | as in the paper's text, seed 0 | ")
    assert made[4].endswith(" | no box | 0.50 | 5.00 | 9.00 |")
    spans = "0.50 to 0.50 | 4.00 to 6.00 | 17.00 to 30.00"
    assert made[5] == f"| | from lowest to highest | 2 trainings | the network | plain | {spans} |"
    assert made[7] == "<details><summary>All 4 readings</summary>"
    assert made[10].startswith("<tr><td><b>linear</b></td><td><b>the paper's</b></td>")
    assert sum(line.startswith("<tr><td>") for line in made) == 5  # the paper's, and each of ours
    assert made[-1] == "</details>"


def test_more_effort_stands_beside_what_was_found_before(module: ModuleType, tmp_path: Path) -> None:
    efforts = importlib.import_module("_other_runs").efforts
    rows = [
        {"victim": "gll", "seed": seed, "source": source, "eps": 0.2, "error": error, "seconds": 10.0}
        for source, errors in (("40 steps", (0.5, 0.7)), ("100 steps", (0.6, 0.6)))
        for seed, error in zip((1, 2), errors, strict=True)
    ]
    config = {"data": "mnist", "trained_at": 0.1, "against": "own", "base": 10, "samples": 20, "seed": [1, 2]}
    where = {"commit": "c", "device": "d", "versions": {"torch": "2"}, "wall_s": 1.0}
    known = module.known(tmp_path)
    made = efforts({"rows": rows, "config": config, **where}, known).splitlines()
    assert made[0] == "| attack | GLL, ε = 0.2 px | seconds |"
    assert made[2] == "| PGD with every class in sight: 40 steps | 60.0 ± 14.1 | 10 |"
    assert made[3] == "| the same, but 100 steps | 60.0 ± 0.0 | 10 |"
    runs = [record for record in known.columns("mnist", "robust")["GLL"] if record["seed"] in (1, 2)]
    errors = [record["values"]["worst case at 2x, alone"] for record in runs]  # of these two of three runs
    assert made[6] == f"| **before: worst case of all** | {module.shown_mean(errors)} |  |"
    (tmp_path / "worst-case" / "results.json").unlink()
    nothing = efforts({"rows": rows, "config": config, **where}, module.known(tmp_path)).splitlines()
    assert nothing[6] == "| **before: worst case of all** | – |  |"


def test_a_head_without_a_graph_has_one_worst_case(module: ModuleType, tmp_path: Path) -> None:
    from gll.reproduce.tables import table

    lines = table(module.known(tmp_path).worst).splitlines()
    places = [name.strip() for name in lines[0].split("|")]
    rows = [dict(zip(places, line.split("|"), strict=True)) for line in lines[2:] if line.startswith("| mnist")]
    joint = {row["head"].strip(): row["worst case at 2ε"].strip() for row in rows}
    assert joint["linear"] == joint["MLP"] == "–"
    assert joint["GLL"].startswith("**")
    assert all(row["worst case at 2ε, alone"].strip().startswith("**") for row in rows)


def test_how_far_trainings_lie_apart(module: ModuleType, tmp_path: Path) -> None:
    noise = importlib.import_module("_attacked_words").noise
    reading = {"title": "plain", "gradient": "surrogate"}
    row = {"head": "linear", "training name": "as in the paper's text", "at_test": None, "reading": reading}
    rows = [{**row, "seed": 1, "IFGSM": 90.0}, {**row, "seed": 2, "IFGSM": 99.0, "training name": "shorter"}]
    known = module.known(tmp_path)
    lines = noise(known, {"rows": rows}).splitlines()
    own = module.known(tmp_path).adversarial[-1]
    first = own.values({"data": "mnist", "head": "linear", "training": "natural"}, "IFGSM")
    assert lines[2].startswith(f"| linear | {min(first):.1f} to 90.0 | ")
    assert "[readings](#readings): 90.0 (seed 1)" in lines[2]
