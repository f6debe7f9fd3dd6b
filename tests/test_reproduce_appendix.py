"""Cells of appendix B: which gradient attacked which head; more values of c; pictures are kept and shown."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gll.cli import app
from gll.reproduce.appendix_cells import HeadAtTestKind
from gll.reproduce.experiment import load_experiment
from gll.reproduce.figures import attacked_images
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import read_records
from gll.reproduce.tables import Shown

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
    shutil.copytree(REAL / "adversarial", tmp_path / "adversarial", ignore=shutil.ignore_patterns("arrays"))
    experiment = load_experiment(tmp_path / "adversarial")
    (experiment.folder / "arrays").mkdir()
    for cell in kind_of(experiment).cells(experiment, "full"):
        for part in ("large", "small"):
            (experiment.folder / "arrays" / f"{cell.folder}-{part}.png").write_bytes(cell.title.encode())
    made = attacked_images([Shown(experiment, "full")], tmp_path / "reproduce-adversarial")
    names = [
        f"reproduce-adversarial-{d}-images-{p}.png"
        for d in ("mnist", "fashionmnist", "cifar10")
        for p in ("large", "small")
    ]
    assert [picture.path.name for picture in made] == names
    made[0].draw(made[0].path)
    assert made[0].path.read_bytes() == b"mnist, GLL, natural, seed 0"
    assert made[0].caption.startswith("figure 10: images that fooled a naturally trained GLL: ")
