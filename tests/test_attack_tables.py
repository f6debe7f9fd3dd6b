"""Tables and pictures made of what `gll attack` has found."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gll.attacks import plots
from gll.attacks.plots import Row, draw_curves, draw_distances, draw_images, draw_poison
from gll.attacks.report import about_checks, preface
from gll.attacks.tables import (
    Grid,
    checks_compared,
    compared,
    cw_grid,
    errors_at,
    graphs_of,
    in_earnest,
    paper_grid,
    radii,
    strong_radii,
)


def made_up(seed: int, error: float) -> dict[str, Any]:
    norm = {"name": "LInf", "scale": 1.0}
    fgsm = {"attack": "fgsm", "settings": {"eps": 0.1, "norm": norm}, "error": error, "natural": 0.01}
    far = {"attack": "fgsm", "settings": {"eps": 0.2, "norm": norm}, "error": 0.9, "natural": 0.01}
    cw = {"attack": "cw-paper", "settings": {"c": 20, "eps": None, "norm": "L2"}, "error": 0.3, "natural": 0.01}
    other = {"attack": "cw-paper", "settings": {"c": 50, "eps": None, "norm": "L2"}, "error": 0.7, "natural": 0.01}
    auto = {"attack": "autoattack apart", "settings": {"eps": 0.1, "norm": norm}, "error": 0.25, "natural": 0.01}
    seeing = auto | {"attack": "autoattack-gradients with every class", "error": 0.45}  # of another view: not it
    by_kind = {"single step": error, "transfer": 0.2, "ensemble": 0.45}
    worst = [{"norm": "LInf", "eps": 0.1, "error": error + 0.1, "attacks": 3, "by_kind": by_kind}]
    return {
        "run": {"head": "gll", "training": "natural", "seed": seed},
        "table_eps": 0.2,
        "table_eps_pixels": 0.1,
        "table_c": 20,
        "unit": 0.5,
        "gradient_of": "own",
        "groups": [{"attacks": [fgsm, far, cw, other, seeing, auto], "worst": worst}],
    }


def test_the_papers_columns_and_ours() -> None:
    found = made_up(0, 0.4)
    assert radii(found) == [0.1, 0.2]
    assert errors_at(found, 0.1) == {
        "natural": 0.01, "FGSM": 0.4, "IFGSM": None, "CW": 0.3, "worst case": 0.5, "transfer": 0.2, "AutoAttack": 0.25
    }  # fmt: skip
    assert errors_at(found, 0.2)["FGSM"] == 0.9
    assert errors_at(found, 0.2)["worst case"] is None
    head, rows = paper_grid(found).head, paper_grid(found).rows
    # CW knows no ε, and where IFGSM was not made it has no column; AutoAttack in both its forms.
    assert head[2:] == ("natural", "FGSM", "worst case", "transfer", "AutoAttack", "AutoAttack, every class", "attacks")
    assert rows[0] == ("0.2 *", "0.1", "1.00", "40.00", "50.00", "20.00", "25.00", "45.00", "3")
    assert rows[1][:4] == ("0.4", "0.2", "1.00", "90.00")


def test_columns_of_several_graphs_keep_to_one_rule() -> None:
    """The paper's columns: joint queries, the largest base. The worst case: the most kinds. Both graphs are named."""

    def group(base: int, queries: str, fgsm: float, natural: float, *kinds: str) -> dict[str, Any]:
        found = made_up(0, fgsm)["groups"][0]
        threat = {"base": f"{base:,} of 60,000 samples", "queries": queries, "inference": "transductive"}
        for cell in found["attacks"]:
            cell |= {"threat": threat, "chunk": base, "natural": natural, "mean_linf": 0.1, "mean_squared_l2": 0.1}
        found["worst"][0]["by_kind"] = dict.fromkeys(kinds, fgsm)
        return found

    large = group(10_000, "joint", 0.03, 0.005, "single step")
    small = group(1000, "joint", 0.2, 0.01, "single step", "transfer", "black box")
    alone = group(20_000, "alone", 0.3, 0.02, "single step", "transfer")
    large["attacks"] = large["attacks"][:2]  # as on MNIST: CW in the small graph only
    for groups in ([large, small, alone], [alone, small, large], [small, large, alone]):
        found = made_up(0, 0.1) | {"groups": groups}
        assert errors_at(found, 0.1) == {
            "natural": 0.005, "FGSM": 0.03, "IFGSM": None, "CW": 0.3, "worst case": 0.2 + 0.1, "transfer": 0.2,
            "AutoAttack": 0.25,
        }  # fmt: skip
        assert graphs_of(found) == {
            "10,000 queries jointly beside a base of 10,000": ["natural", "FGSM"],
            "1,000 queries jointly beside a base of 1,000": ["CW", "worst case", "transfer", "AutoAttack"],
        }
        text = "\n".join(preface(found))
        assert "The columns come from different graphs" in text
        assert "- natural, FGSM: 10,000 queries jointly beside a base of 10,000" in text
        assert "- CW, worst case, transfer, AutoAttack: 1,000 queries jointly beside a base of 1,000" in text
        assert [row[0] for row in cw_grid(found).rows] == ["20 *", "50"]


def test_whose_gradient_the_checks_follow() -> None:
    at = {"eps": 0.1, "samples": 9, "graph": "each query alone beside a base of 20", "stand_ins": True}
    says = [about_checks({"checks_at": at | more, "groups": []})[0] for more in ({}, {"through_graph": True})]
    own, end = (
        "The checks' own attacks follow the model's own gradient",
        "and stand-ins for it, at ε = 0.1 of the range, on 9 samples, each query alone beside a base of 20.",
    )
    assert says == [f"{own} {end}", f"{own} (through its graph, not that of the layer it was trained by) {end}"]


def test_seeds_beside_the_paper() -> None:
    paper = {"gll, natural": {"natural": 0.47, "FGSM": 3.49}, "gll, robust": {"natural": 0.55}}
    grid = compared([made_up(0, 0.4), made_up(1, 0.5)], paper)
    assert grid.rows[0][:4] == ("gll, natural", "2", "1.00 ± 0.00", "45.00 ± 7.07")
    assert grid.rows[1][:5] == ("– the paper", "1", "0.47", "3.49", "–")
    assert len(grid.rows) == 2
    # At another ε there is nothing of the paper's to stand beside.
    far = compared([made_up(0, 0.4)], paper, eps=0.2)
    assert [row[3] for row in far.rows] == ["90.00"]
    # A robust model stands beside the paper's robust one, a linear head beside what the paper calls MLP.
    robust = made_up(0, 0.1)
    robust["run"] = {"head": "linear", "training": "robust, ε = 0.1 pixels, against own", "seed": 0}
    grid = compared([robust], {"mlp, robust": {"FGSM": 4.83}, "mlp, natural": {"FGSM": 5.74}})
    assert [row[3] for row in grid.rows] == ["10.00", "4.83"]


def test_where_all_were_attacked_in_earnest() -> None:
    found = made_up(0, 0.4)
    assert strong_radii([found, made_up(1, 0.5)]) == [0.1]
    weak = made_up(2, 0.4)
    weak["groups"][0]["worst"][0]["by_kind"] = {"single step": 0.4}
    assert strong_radii([found, weak]) == []
    assert any("own gradients alone" in line for line in preface(weak))
    weak["groups"][0]["attacks"] = weak["groups"][0]["attacks"][:1]
    assert strong_radii([found, weak]) == []


@pytest.mark.parametrize(
    ("attack", "more"),
    [
        ("pgd with every class", {"every_class": 5}),
        ("pgd with fixed neighbours", {"neighbours": "fixed"}),
        ("features", {}),
    ],
)
def test_a_stand_in_alone_is_in_earnest(attack: str, more: dict[str, Any]) -> None:
    """It is of the kind of the attack it is made of, several steps, and yet not by the model's own gradient."""
    found = made_up(0, 0.4)
    group = found["groups"][0]
    group["attacks"] = group["attacks"][:1]
    group["worst"][0]["by_kind"] = {"single step": 0.4, "multi-step": 0.5}
    assert not in_earnest(found, 0.1)
    other = group["attacks"][0] | {"attack": attack, "settings": group["attacks"][0]["settings"] | more}
    far = other | {"settings": other["settings"] | {"eps": 0.2}}
    group["attacks"] += [far]
    assert not in_earnest(found, 0.1)  # it is in another ball
    group["attacks"] += [other]
    assert in_earnest(found, 0.1)
    assert not in_earnest(found, 0.3)
    assert not any("own gradients alone" in line for line in preface(found))


def test_checks_of_seeds() -> None:
    first, second = made_up(0, 0.4), made_up(1, 0.4)
    for one, figure in ((first, 0.01), (second, 0.05)):
        bad = {"name": "single step", "figure": figure, "passed": figure < 0.02, "meaning": ""}
        one["checks"] = [bad, {"name": "deterministic", "figure": 0.0, "passed": True, "meaning": ""}]
    grid = checks_compared([first, second])
    assert grid.head == ("model", "single step", "deterministic")
    assert grid.rows == (("gll, natural", "**0.030**", "0.000"),)  # one seed that fails is a failure


def test_a_grid_in_markdown_escapes() -> None:
    text = Grid("", ("a", "b"), (("x|y", "1"),)).markdown()
    assert text.splitlines() == ["| a | b |", "|---|---:|", "| x\\|y | 1 |"]


def test_panels_of_what_was_measured(tmp_path: Path) -> None:
    found = made_up(0, 0.4)
    for place, cell in enumerate(found["groups"][0]["attacks"]):
        cell["mean_squared_l2"] = float(place)
    names = {"a": found, "b": found}
    assert draw_curves(names, tmp_path / "three.png")
    found["groups"][0]["attacks"] = found["groups"][0]["attacks"][:2]
    assert draw_curves(names, tmp_path / "two.png")
    with Image.open(tmp_path / "three.png") as three, Image.open(tmp_path / "two.png") as two:
        assert three.size[0] == pytest.approx(two.size[0] * 3 / 2, abs=2)
    found["groups"][0]["worst"][0]["by_kind"] = {"single step": 0.4}
    assert draw_curves(names, tmp_path / "one.png")  # the worst case of FGSM alone is FGSM
    with Image.open(tmp_path / "one.png") as one, Image.open(tmp_path / "two.png") as two:
        assert one.size[0] < 0.8 * two.size[0]
    assert not draw_distances(names, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are drawn, in place of files."""
    found: list[Any] = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: found.append(figure))
    return found


def test_curves_of_one_run_show_every_attack(tmp_path: Path, figures: list[Any]) -> None:
    """Also of strong attacks alone, with the worst case and the error without an attack."""
    norm = {"name": "LInf", "scale": 1.0}
    found = made_up(0, 0.4)
    found["groups"][0]["attacks"] = [
        {
            "attack": "pgd",
            "settings": {"eps": eps, "norm": norm, "objective": objective},
            "error": error,
            "natural": 0.01,
        }
        for objective, eps, error in (("Margin", 0.1, 0.2), ("Margin", 0.2, 0.3), ("DLR", 0.1, 0.1))
    ]
    found["groups"][0]["worst"][0]["by_kind"] = {"multi-step": 0.2}
    assert draw_curves({"a": found}, tmp_path / "a.png")
    (axis,) = figures[0].axes
    lines = {text.get_text(): line for text, line in zip(figures[0].legends[0].texts, axis.lines, strict=True)}
    assert list(lines) == ["pgd, margin", "pgd, DLR", "worst case", "natural"]
    assert lines["pgd, margin"].get_xydata().tolist() == [[0, 1], [0.1, 20], [0.2, 30]]
    assert lines["worst case"].get_xydata().tolist() == [[0, 1], [0.1, 50]]
    assert lines["natural"].get_ydata() == [1, 1]
    assert 50 < axis.get_ylim()[1] < 60  # the axis ends a little above what is drawn
    found["groups"][0]["attacks"] = found["groups"][0]["attacks"][:1]  # one ε is enough
    assert draw_curves({"a": found}, tmp_path / "a.png")


def test_curves_mark_what_the_model_was_trained_for(tmp_path: Path, figures: list[Any]) -> None:
    found = made_up(0, 0.4)
    found["groups"][0]["attacks"] = found["groups"][0]["attacks"][:2]
    found["groups"][0]["attacks"][0]["settings"]["objective"] = "CrossEntropy"
    for more, marks in (
        ({}, {}),
        ({"eps": 0.0, "data": "mnist"}, {"ε of the paper's table, 0.1": 0.1}),
        ({"eps": 0.15, "data": "MNIST"}, {"ε of the training, 0.15": 0.15, "ε of the paper's table, 0.1": 0.1}),
        ({"eps": 0.15, "data": "digits"}, {"ε of the training, 0.15": 0.15}),
    ):
        assert draw_curves({"a": found | {"run": found["run"] | more}}, tmp_path / "a.png")
        (axis,), (legend,) = figures[-1].axes, figures[-1].legends
        names = [text.get_text() for text in legend.texts]
        assert names[0] == "fgsm, cross-entropy"
        places = {name: line.get_xdata()[0] for name, line in zip(names, axis.lines, strict=True) if "ε" in name}
        assert places == marks


def test_distances_of_one_run_fit_their_axis(tmp_path: Path, figures: list[Any]) -> None:
    found = made_up(0, 0.4)
    for cell in found["groups"][0]["attacks"]:
        cell |= {"mean_squared_l2": 0.2, "error": 0.05}
    assert draw_distances({"a": found}, tmp_path / "a.png")
    (axis,) = figures[0].axes
    assert 5 < axis.get_ylim()[1] < 10
    assert (axis.get_title(), figures[0].legends) == ("a: CW, a point for each c", [])
    assert "L2²" in axis.get_xlabel()
    assert draw_distances({"a": found, "b": found}, tmp_path / "a.png")
    assert [text.get_text() for text in figures[1].legends[0].texts] == ["a", "b"]


def test_curves_of_two_norms_are_in_two_panels(tmp_path: Path, figures: list[Any]) -> None:
    found = made_up(0, 0.4)
    group = found["groups"][0]
    other = {"attack": "fgsm", "settings": {"eps": 0.1, "norm": "L2"}, "error": 0.05, "natural": 0.01}
    pgd = {"attack": "pgd", "settings": {"eps": 0.1, "norm": {"name": "LInf"}}, "error": 0.45, "natural": 0.01}
    group["attacks"] = [pgd, group["attacks"][0], other]
    group["worst"] += [{"norm": "L2", "eps": 0.1, "error": 0.06, "attacks": 1, "by_kind": {}}]
    assert draw_curves({"a": found}, tmp_path / "a.png")
    first, second = figures[0].axes
    assert [axis.get_xlabel() for axis in (first, second)] == ["ε, of the range", "ε, L2"]
    assert [line.get_ydata()[-1] for line in first.lines] == [45, 40, 50, 1]  # PGD, FGSM, the worst case, natural
    assert [line.get_ydata()[-1] for line in second.lines] == [5, 6, 1]
    assert second.lines[0].get_color() == first.lines[1].get_color() != first.lines[0].get_color()  # FGSM, in both
    assert [row[0] for row in paper_grid(found, "L2").rows] == ["0.1"]
    asked = found | {"norm": "L2", "table_eps_pixels": 0.7}
    assert radii(asked) == [0.1]
    assert errors_at(asked, 0.1)["FGSM"] == 0.05 != errors_at(found, 0.1)["FGSM"]
    assert errors_at(asked, 0.1)["worst case"] == 0.06
    assert paper_grid(asked, "LInf").rows == paper_grid(found).rows  # with the mark of the paper's ε


def test_wrong_labels_are_drawn_in_one_panel(tmp_path: Path, figures: list[Any]) -> None:
    random = {"mean": [0.0, 0.1], "largest": [0.0, 0.2]}
    found = made_up(0, 0.4) | {"poison": [{"counts": [0, 5], "greedy": [0.0, 0.5], "random": random}]}
    assert draw_poison({"a": found}, tmp_path / "a.png")
    (axis,) = figures[0].axes
    assert [line.get_ydata()[1] for line in axis.lines] == [50, 10, 20]


def test_nothing_is_cut_off_in_the_grid_of_images(tmp_path: Path, figures: list[Any]) -> None:
    clean = np.zeros((1, 8, 8), dtype=np.float32)
    long = "pgd from a linear probe on the same encoder as before"
    draw_images([Row(long, clean, clean + 0.15, "9", "automobile", "ε = 0.15")], tmp_path / "a.png")
    (figure,) = figures
    figure.canvas.draw()
    titles = [axis.title for axis in figure.axes]
    texts = [*titles, *(block._suptitle for block in figure.subfigs), figure._supxlabel]
    extents = [text.get_window_extent() for text in texts]
    for extent in extents:
        assert figure.bbox.x0 <= extent.x0
        assert extent.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= extent.y0
        assert extent.y1 <= figure.bbox.y1
    assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))
    shown = " ".join(text.get_text() for text in texts).replace(", ", " ").split()
    for word in (*long.split(), "0.15", "±0.150", "9", "automobile"):
        assert word in shown
    assert "true class: 9" in (said := [text.get_text() for text in texts])
    assert "predicted: automobile" in said
    assert "grey is 0" in figure.get_supxlabel().replace("\n", " ")


def test_images_leave_no_empty_column(tmp_path: Path, figures: list[Any]) -> None:
    clean = np.zeros((1, 8, 8), dtype=np.float32)
    for number, size in ((1, (1, 3)), (2, (1, 6)), (5, (3, 6))):
        draw_images([Row("fgsm", clean, clean + 0.15, "9", "1")] * number, tmp_path / "a.png")
        figures[-1].canvas.draw()
        assert len(figures[-1].axes) == 3 * number
        boxes = [axis.get_position().transformed(axis.figure.transSubfigure) for axis in figures[-1].axes]
        assert (len({round(box.y0) for box in boxes}), len({round(box.x0) for box in boxes})) == size
        filled = sum(box.width for box in boxes[: size[1]]) / figures[-1].bbox.width
        assert filled > 0.85


def test_images_show_the_change(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for channels in (1, 3):
        clean = rng.random((channels, 8, 8), dtype=np.float32)
        moved = np.clip(clean + 0.1, 0, 1)
        draw_images([Row("fgsm", clean, moved, "cat", "dog")], tmp_path / "a.png")
        with Image.open(tmp_path / "a.png") as picture:
            assert len(set(picture.convert("L").tobytes())) > 20
    with pytest.raises(ValueError, match="no attack has fooled the model"):
        draw_images([], tmp_path / "b.png")
