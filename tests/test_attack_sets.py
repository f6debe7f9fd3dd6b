"""Heads that are compared met the same attacks, as far as they have a graph; where they did not, a table says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gll.reproduce.attack_sets import OF_WNLL, attacks_of, bounds, differing, told, with_graph
from gll.reproduce.experiment import load_experiment
from gll.reproduce.tables import Shown, attacked_by, provenance
from gll.reproduce.verdicts import relation

ROOT = Path(__file__).resolve().parent.parent


def shown(name: str, scale: str) -> Shown:
    return Shown(load_experiment(ROOT / "experiments" / name), scale)


def summary(*names: str, worst: float = 0.5, **errors: float) -> dict[str, Any]:
    """An evaluation by attacks of these names, all of one ε."""
    attacks = [{"attack": n, "error": errors.get(n, 0.1), "settings": {"eps": 0.1, "norm": "LInf"}} for n in names]
    case = {"norm": "LInf", "eps": 0.1, "error": worst, "attacks": len(names), "by_kind": {}}
    return {"table_eps_pixels": 0.1, "norm": "LInf", "groups": [{"attacks": attacks, "worst": [case]}]}


def test_each_alone_all_heads_met_the_same_attacks() -> None:
    """What docs/robustness.md says of its verdicts, and `Contest.relations` builds on."""
    found = [record["more"]["alone"] for _, record in shown("worst-case", "full").found]
    graphs = {attacks_of([one]) for one in found if with_graph([one])}
    others = {attacks_of([one]) for one in found if not with_graph([one])}
    assert len(graphs) == len(others) == 1
    assert next(iter(others)) < next(iter(graphs))
    page = " ".join((ROOT / "docs" / "robustness.md").read_text(encoding="utf-8").split())
    assert "With each sample alone they met the same attacks, as far as they have a graph to attack." in page


def test_in_one_graph_a_head_without_a_graph_met_what_needs_none() -> None:
    for _, record in shown("adversarial", "full").found:
        met = attacks_of([record["more"]["summary"]])
        assert with_graph([record["more"]["summary"]]) is (record["place"]["head"] != "linear")
        assert {"pgd", "pgd from a linear probe on the same encoder"} <= met


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ("full", "only of WNLL, robust; without these it is from 6.1 to 8.2 (WNLL, robust)"),
        ("small", "Square in the graph of all samples only of GLL, natural"),
    ],
)
def test_where_graph_heads_met_different_attacks_the_table_says_so(scale: str, words: str) -> None:
    (found,) = attacked_by(shown("adversarial", scale))
    assert words in found
    assert found in provenance(shown("adversarial", scale))


def test_level_without_the_attacks_that_a_gll_did_not_meet() -> None:
    """After the paper's adversarial training on MNIST: at either end of what WNLL would have."""
    rows = {place["head"]: record for place, record in shown("adversarial", "full").found if _robust(place)}
    common = attacks_of([rows["GLL"]["more"]["summary"]]) | {OF_WNLL}
    for end in bounds([rows["WNLL"]["more"]["summary"]], common):
        assert relation([rows["GLL"]["values"]["worst case"]], [end], 1000) == "level"


def _robust(place: dict[str, str]) -> bool:
    return place["data"] == "mnist" and place["training"] == "robust"


def test_what_a_head_cannot_have_is_no_difference() -> None:
    gll, wnll, linear = summary("pgd", "features"), summary("pgd", "features", OF_WNLL), summary("pgd", "square")
    assert not differing({"GLL": [gll], "WNLL": [wnll], "linear": [linear]})
    assert not told({"GLL": [gll], "WNLL": [wnll], "linear": [linear]})
    more = summary("pgd", "features", "square", features=0.3)
    assert differing({"GLL": [gll], "WNLL": [more]}) == {"square": ["WNLL"]}
    words = told({"GLL": [gll], "WNLL": [more], "linear": [linear]})
    assert "taken: 2 (GLL), 3 (WNLL); Square in the graph of all samples only of WNLL; " in words
    assert "it is from 30.0 to 50.0 (WNLL)," in words


def test_only_attacks_in_the_ball_that_all_records_of_a_head_have_count() -> None:
    with_cw, twice = summary("pgd", "features", "cw"), summary("pgd", "features")
    with_cw["groups"][0]["attacks"][2]["settings"] = {"c": 20.0}
    twice["groups"][0]["attacks"].append(twice["groups"][0]["attacks"][0] | {"settings": {"eps": 0.2, "norm": "LInf"}})
    assert attacks_of([with_cw]) == {"pgd", "features"}
    assert attacks_of([summary("pgd", "square"), summary("pgd")]) == {"pgd"}
    assert not told({"GLL": [with_cw], "WNLL": [twice]})
    nothing = summary("pgd") | {"groups": []}
    assert attacks_of([nothing]) == attacks_of([]) == frozenset()
    assert bounds([summary("pgd", worst=0.25)], frozenset({"square"})) == (0.0, 25.0)
