"""Figures of attacks show what was measured: a point where there is one, and no line through nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gll.reproduce import attack_figures
from gll.reproduce.records import read_records

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def summary() -> dict[str, Any]:
    """Of a naturally trained GLL on MNIST, as it is committed."""
    records = read_records(ROOT / "experiments" / "adversarial" / "results.json").values()
    found: dict[str, Any] = next(r for r in records if r["cell"] == "mnist, GLL, natural, seed 0")["more"]["summary"]
    return found


def test_a_curve_begins_without_an_attack_and_the_worst_case_does_not(summary: dict[str, Any]) -> None:
    fgsm, worst = (attack_figures.by_radius(column)(summary) for column in ("FGSM", "worst case"))
    assert fgsm[0][0] == 0
    assert [x for x, _ in fgsm] == sorted(x for x, _ in fgsm)
    assert len(fgsm) > 5
    assert [x for x, _ in worst] == pytest.approx([summary["table_eps_pixels"]])  # not where FGSM alone was tried
    assert worst[0][1] > 5 * dict(fgsm)[worst[0][0]]
    weak = {
        **summary,
        "groups": [g for g in summary["groups"] if {a["attack"] for a in g["attacks"]} == {"fgsm", "ifgsm"}],
    }
    assert len(attack_figures.by_radius("FGSM")(weak)) > 5
    assert attack_figures.by_radius("worst case")(weak) == []  # over these alone it is none
    assert [c for c, _ in attack_figures.by_c(summary)][:2] == [1, 5]
    assert all(distance > 0 for distance, _ in attack_figures.by_distance(summary))


def test_models_that_lie_on_each_other_are_both_seen() -> None:
    looks = list(attack_figures.looks_of(["softmax", "GLL by softmax", "GLL, robust", "GLL, natural"]).values())
    assert looks[0]["color"] != looks[1]["color"]
    assert looks[2]["color"] == looks[3]["color"]
    assert looks[2]["linestyle"] != looks[3]["linestyle"]
    assert len({look["marker"] for look in looks}) == 3  # by head
    assert looks[2]["markerfacecolor"] != looks[3]["markerfacecolor"] == "none"
    assert len({look["linewidth"] for look in looks}) == 1
    sizes = [look["markersize"] for look in looks]  # what is drawn later lies above, and is smaller
    assert sizes == sorted(set(sizes), reverse=True)


def test_a_head_looks_the_same_in_every_picture() -> None:
    few, many = ["linear, robust", "GLL, robust"], ["GLL, natural", "WNLL, natural", "GLL, robust", "linear, robust"]
    names = ("color", "marker", "linestyle", "linewidth", "markerfacecolor")
    first, second = (attack_figures.looks_of(models) for models in (few, many))
    for model in few:
        assert [first[model][name] for name in names] == [second[model][name] for name in names]


def test_the_worst_case_is_a_bar_with_its_number_and_may_be_left_out(
    summary: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axis = figure.subplots()
    found = {"GLL, natural": attack_figures.by_radius("worst case")(summary), "linear, natural": []}
    attack_figures._bars(axis, found, attack_figures.looks_of(list(found)))
    assert [bar.get_height() for bar in axis.patches] == pytest.approx([100 * found["GLL, natural"][0][1]])
    assert [text.get_text() for text in axis.texts] == [f"{100 * found['GLL, natural'][0][1]:.1f}"]
    drawn: list[Any] = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, part, **_: drawn.append(self) or part.touch())
    for worst in (True, False):
        assert attack_figures.draw_errors({"GLL, natural": summary}, tmp_path / "a.png", worst=worst)
    titles = [[axis.get_title() for axis in figure.axes if axis.axison] for figure in drawn]
    large, small = (f"{n} attacked images in one graph with {n} of the base" for n in ("10,000", "1,000"))
    assert [title.split("\n") for title in titles[0]] == [
        ["FGSM", large], ["IFGSM", large], ["worst case", small], ["CW", small]
    ]  # fmt: skip
    titles[1] = [title.split("\n")[0] for title in titles[1]]
    assert titles[1] == ["FGSM", "IFGSM", "CW"]  # no empty axes at the fourth place
    assert [len(figure.axes) for figure in drawn] == [4, 4]


def test_pictures_are_written_where_there_is_something(summary: dict[str, Any], tmp_path: Path) -> None:
    assert attack_figures.draw_errors({"a": summary, "b": summary}, tmp_path / "errors.png")
    assert attack_figures.draw_distances({"a": summary}, tmp_path / "distances.png")
    assert (tmp_path / "errors.png").read_bytes()[:4] == (tmp_path / "distances.png").read_bytes()[:4] == b"\x89PNG"
    nothing = {**summary, "groups": [{**group, "attacks": [], "worst": []} for group in summary["groups"]]}
    assert not attack_figures.draw_distances({"a": nothing}, tmp_path / "none.png")
    assert not attack_figures.draw_errors({"a": nothing}, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_a_title_says_how_many_images_share_a_graph(summary: dict[str, Any]) -> None:
    found = read_records(ROOT / "experiments" / "more-c" / "results.json").values()
    many = next(r for r in found if r["cell"] == "mnist, GLL, natural, seed 0")["more"]["summaries"]["attack"]
    said = attack_figures.graph_in_words(attack_figures.DISTANCE, [many])
    assert said == "10,000 images, 1,000 in each graph with 1,000 of the base"
    group = summary["groups"][0]
    cell = group["attacks"][0]

    def other(**how: str) -> str:
        threat = {**cell["threat"], **how}
        alone = {**summary, "groups": [{**group, "attacks": [{**cell, "threat": threat}]}]}
        return attack_figures.graph_in_words("FGSM", [alone])

    assert other(queries="alone") == "10,000 images, each alone in a graph with 10,000 of the base"
    assert other(inference="inductive") == "10,000 images, each joined to a graph of 10,000 of the base"
    assert other(base="some samples") == "10,000 attacked images in one graph with the base"
    plain = {**summary, "groups": [{**group, "attacks": [{**cell, "threat": None}]}]}
    assert attack_figures.graph_in_words("FGSM", [plain]) == ""
    assert attack_figures.graph_in_words("FGSM", [summary, many]) == attack_figures.graph_in_words("FGSM", [summary])


def test_the_papers_units_and_values_stand_where_its_table_is(
    summary: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, part, **_: drawn.append(self) or part.touch())
    paper = {"GLL, natural": {"FGSM": 3.49, "CW": 1.29}, "GLL, robust": {"FGSM": 2.28}}
    assert attack_figures.draw_errors({"GLL, natural": summary}, tmp_path / "a.png", paper=paper)
    panels = {axis.get_title().split("\n")[0]: axis for axis in drawn[0].axes}
    crosses = {
        name: [(line.get_xdata()[0], line.get_ydata()[0]) for line in axis.lines if line.get_marker() == "X"]
        for name, axis in panels.items()
    }
    eps = summary["table_eps_pixels"]
    assert crosses == {"FGSM": [(eps, 3.49)], "IFGSM": [], "worst case": [], "CW": [(20, 1.29)]}, (
        "none of a model unseen"
    )
    for name, place in (("FGSM", eps), ("IFGSM", eps), ("CW", 20)):
        assert [line.get_xdata()[0] for line in panels[name].lines if line.get_linestyle() == ":"] == [place]
    (above,) = panels["FGSM"].child_axes
    assert above.get_xlabel() == attack_figures.THEIR_RADIUS
    there, back = attack_figures._units(summary["unit"])
    assert (there(eps), back(0.3)) == (pytest.approx(0.3), pytest.approx(eps))
    assert not panels["CW"].child_axes
    names = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert names == ["GLL, natural", "ε or c of the paper's table", attack_figures.CROSS]
