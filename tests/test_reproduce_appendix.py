"""Cells of appendix B: which gradient attacked which head; more values of c; pictures are kept and shown."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce import attack_images
from gll.reproduce.appendix_cells import HeadAtTestKind
from gll.reproduce.experiment import load_experiment
from gll.reproduce.figures import attacked_images
from gll.reproduce.records import read_records
from gll.reproduce.tables import states_of

REAL = Path(__file__).parent.parent / "experiments"


def summary(natural: float, name: str, error: float) -> dict[str, Any]:
    cell = {"attack": name, "settings": {"eps": 0.1, "norm": "LInf"}, "error": error, "natural": natural}
    return {"groups": [{"attacks": [cell], "worst": []}], "table_eps_pixels": 0.1, "table_c": 20}


def test_figures_say_whose_gradient_it_was() -> None:
    found = HeadAtTestKind().figures(
        {
            "softmax": summary(0.01, "fgsm", 0.5),
            "GLL by softmax": summary(0.02, "fgsm from the mlp head of the same run", 0.4),
            "GLL by GLL": summary(0.02, "fgsm", 0.1),
        }
    )
    figures = load_experiment(REAL / "head-at-test").text["table"]["figures"]
    assert set(found) == set(figures)
    assert {name: value for name, value in found.items() if value is not None} == pytest.approx(
        {"softmax": 1, "softmax, FGSM": 50, "GLL": 2, "GLL, FGSM by softmax": 40, "GLL, FGSM by GLL": 10}
    )


def test_more_c_moves_images_further_and_is_drawn(tmp_path: Path) -> None:
    root, pictures = tmp_path / "project" / "experiments", tmp_path / "project" / "docs" / "figures"
    pictures.mkdir(parents=True)
    shutil.copytree(REAL / "more-c", root / "more-c", ignore=shutil.ignore_patterns("results.json", "arrays"))
    path = root / "more-c" / "config.toml"
    text = path.read_text().partition("[scales.small]")[0]
    path.write_text(text.replace("[scales.smoke]", "[scales.small]").replace("20.0, 1e6", "0.1, 1e6"))
    where = ["--experiments", str(root), "--work", str(tmp_path / "work"), "--device", "cpu"]
    found = CliRunner().invoke(app, ["reproduce", "more-c", "--scale", "small", "--figures", *where])
    assert found.exit_code == 0, found.output
    (record,) = read_records(root / "more-c" / "results.json").values()
    values = record["values"]
    assert values["distance, c = 0.1"] < values["distance, c = 1e+06"]
    assert values["natural"] <= values["c = 0.1"] <= values["c = 1e+06"]
    assert (pictures / "reproduce-more-c-mnist.png").read_bytes().startswith(b"\x89PNG")
    (kept,) = (root / "more-c" / "arrays").glob("*-attack.png")  # images, from the folder of the cell
    assert kept.read_bytes() == next((tmp_path / "work").glob("more-c/small/*/attack/images.png")).read_bytes()
    other = tmp_path / "other"
    shutil.copytree(root, other)
    shutil.rmtree(root / "more-c" / "arrays")
    CliRunner().invoke(app, ["reproduce", "--merge", str(other), *where])
    assert kept.is_file()


@pytest.mark.parametrize("name", ["head-at-test", "more-c"])
def test_a_wrong_option_is_named_before_anything_is_trained(name: str, tmp_path: Path) -> None:
    root = tmp_path / "experiments"
    shutil.copytree(REAL / name, root / name, ignore=shutil.ignore_patterns("results.json", "arrays"))
    path = root / name / "config.toml"
    path.write_text(path.read_text().replace("options.samples", "options.sampels"))
    where = ["--experiments", str(root), "--work", str(tmp_path / "work"), "--device", "cpu"]
    found = CliRunner().invoke(app, ["reproduce", name, "--scale", "smoke", *where])
    assert found.exit_code == 1
    assert f"attack of '{name}' has no option 'sampels'; its options: run," in " ".join(found.output.split())
    assert not (tmp_path / "work").exists()


def test_images_of_the_naturally_trained_graph_are_shown(tmp_path: Path) -> None:
    """One picture for each data set, in the order of the axis; of a cell without a record nothing is known, and so no
    picture."""
    experiment = load_experiment(REAL / "adversarial")
    run = list(states_of(experiment).values())
    made = attacked_images(run, tmp_path / "reproduce-adversarial")
    names = [f"reproduce-adversarial-{data}-images.png" for data in ("mnist", "fashionmnist", "cifar10")]
    assert [picture.path.name for picture in made] == names
    assert made[0].caption.startswith("figure 10: images that fooled a naturally trained GLL under FGSM, IFGSM and CW")
    assert [picture.caption.endswith("(the paper shows MNIST)") for picture in made] == [False, True, True]
    for shown in run:
        shown.found[:] = [(place, record) for place, record in shown.found if place["data"] != "mnist"]
    assert [picture.path.name for picture in attacked_images(run, tmp_path / "reproduce-adversarial")] == names[1:]


@pytest.mark.parametrize(
    ("data", "eps"), [("mnist", "0.3 in the paper's units, 0.092"), ("cifar10", "0.05 in the paper's units, 0.013")]
)
def test_blocks_of_kept_pictures_are_put_together_by_attack(data: str, eps: str, tmp_path: Path) -> None:
    from PIL import Image

    experiment = load_experiment(REAL / "adversarial")
    kept = (REAL / "adversarial" / "arrays").glob(f"{data}-gll-natural-seed-0-*.png")
    parts = {file.stem.rpartition("-")[2]: file for file in kept}
    shown = next(s for s in reversed(states_of(experiment).values()) if any(p["data"] == data for p, _ in s.found))
    place = {"data": data, "head": "GLL", "training": "natural"}
    stored = next(r["more"]["summary"] for p, r in shown.found if p == place)
    rows = attack_images.rows_of(parts, stored)
    radius = f"ε = {eps} of the pixel range"
    assert [heading for heading, _ in rows] == [f"FGSM, {radius}", f"IFGSM, {radius}", "CW, c = 20"]
    assert [len(blocks) for _, blocks in rows] == [2, 2, 2]
    assert len({block.width for _, blocks in rows for block in blocks}) == 1
    assert all(180 <= block.height <= 200 for _, blocks in rows for block in blocks), "an image and a line of words"
    attack_images.compose(parts, stored, tmp_path / "images.png")
    with Image.open(tmp_path / "images.png") as whole:
        assert whole.width > 2 * rows[0][1][0].width

    # A picture in another look is shown as it is.
    with Image.open(parts["small"]) as picture:
        picture.resize((300, 400)).save(tmp_path / "other.png")
    (heading, blocks) = attack_images.rows_of({"small": tmp_path / "other.png"}, stored)[0]
    assert heading == "CW, c = 20, and others"
    assert [block.size for block in blocks] == [(300, 400)]
    attack_images.compose({"small": tmp_path / "other.png"}, stored, tmp_path / "images.png")
