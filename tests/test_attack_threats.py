"""The threat model that a result carries: the graph that judges, and what the attacker followed there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gll.attacks.autoattack import AutoAttack
from gll.attacks.base import AbstractAttack
from gll.attacks.evaluate import cell_of, evaluate
from gll.attacks.features import FeatureAttack
from gll.attacks.gradient import PGD
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.seen import FEATURES, SQUARE, followed_in_words, seen_by
from gll.attacks.square import Square
from gll.attacks.store import Store
from gll.attacks.threat import Neighbours, ThreatModel
from gll.attacks.transfer import Apart, EveryClass, FixedNeighbours, Transfer
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.nn import GraphLearningLayer
from gll.reweight import wnll
from tests.attack_stubs import blobs, honest_mlp

ROOT = Path(__file__).resolve().parent.parent
STEPS = PGD(0.1, steps=2)
PROBE = Transfer(STEPS, honest_mlp(), "a probe", asks=True)
APART = "own with every query alone"
# What is attacked with; the gradient that the result must name; that on a victim which lends itself another.
FOLLOWED: list[tuple[AbstractAttack, str, str]] = [
    (STEPS, "own", "surrogate linear"),
    (FixedNeighbours(STEPS), "own with the neighbours of the clean images", "surrogate linear"),
    (EveryClass(STEPS), "own with base samples of every class in sight", ""),
    (EveryClass(STEPS, joint=True), "own with base samples of every class in sight in the graph of all queries", ""),
    (Apart(STEPS), APART, "surrogate linear"),
    (FeatureAttack(0.1, 2), "that of distances between features", ""),
    (PROBE, "that of a probe", ""),
    (replace(PROBE, asks=False), "that of a probe", ""),
    (Square(0.1, 2), "none", ""),
    (Apart(Square(0.1, 2)), "none", ""),
]


def victim(search: AbstractNeighborSearch | None = None, surrogate: nn.Module | None = None) -> GraphVictim:
    layer = GraphLearningLayer(3, k=4, reweight=None if surrogate is None else wnll, search=search)
    return GraphVictim(nn.Flatten(), layer, *blobs(30, seed=1), surrogate=surrogate)


@pytest.mark.parametrize("lent", [False, True])
def test_a_result_says_what_the_attacker_followed(lent: bool, tmp_path: Path) -> None:
    v = victim(surrogate=honest_mlp()[1:] if lent else None)
    x, y = blobs(9, seed=2)
    store = Store.open(tmp_path / "all", {}, resume=False)
    summary = evaluate(v, x, y, [attack for attack, *_ in FOLLOWED], store=store).as_dict()
    for (attack, own, other), cell in zip(FOLLOWED, summary["attacks"], strict=True):
        fixed = Neighbours.FIXED if isinstance(attack, FixedNeighbours) else Neighbours.RECHOSEN
        expected = replace(v.threat, gradient=(other or own) if lent else own, neighbours=fixed)
        assert attack(v, x, y).threat == expected
        assert cell["threat"] == expected.as_dict()
        # What is kept is the threat model of the model under attack, as its key wants it.
        kept = json.loads((store.directory / "cells" / f"{cell['key']}.json").read_text())["cell"]["threat"]  # type: ignore[operator]
        assert kept == v.threat.as_dict()
    (said,) = summary["threats"]
    assert all(name in said for name in {(other or own) if lent else own for _, own, other in FOLLOWED})


def test_the_keys_of_stored_results_stay_what_they_were() -> None:
    """Of results from before they said what was followed: they are found again."""

    class Graph(nn.Module):
        threat = ThreatModel("10 samples")

    p = PGD(0.1)
    attacks = [p, FixedNeighbours(p), EveryClass(p), Apart(Square(0.1)), Square(0.1), FeatureAttack(0.1)]
    attacks.append(Transfer(p, nn.Identity(), "a probe", asks=True))
    assert [cell_of(attack, Graph(), 8).key for attack in attacks] == [
        "pgd-e9362e77d65c", "pgd-with-fixed-neighbours-aac9ddfd75de", "pgd-with-every-class-dbc48e7b3d91",
        "square-apart-cdf9822c3357", "square-f3e921b7b764", "features-2734ed14ac9a", "pgd-from-a-probe-fe53281b8137",
    ]  # fmt: skip


def groups_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every evaluation of a file of results, however deep it lies."""
    if isinstance(value, dict):
        yield from value.get("groups", ())
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from groups_in(inner)


def records_with_threats() -> list[Path]:
    files = [*ROOT.glob("experiments/*/results.json"), *ROOT.glob("benchmarks/results/*.json")]
    return sorted(file for file in files if '"threat": {' in file.read_text(encoding="utf-8"))


def test_records_of_attacks_are_found() -> None:
    names = {str(file.relative_to(ROOT)) for file in records_with_threats()}
    assert {"experiments/adversarial/results.json", "experiments/worst-case/results.json"} <= names


@pytest.mark.parametrize("file", records_with_threats(), ids=lambda file: "/".join(file.parts[-2:]))
def test_records_say_what_the_attacker_followed(file: Path) -> None:
    """Every attack of committed results, by its name and settings: some were written before results said it."""
    for group in groups_in(json.loads(file.read_text(encoding="utf-8"))):
        seen = []
        for cell in group["attacks"]:
            if cell["threat"] is None:
                continue
            threat = ThreatModel.from_dict(dict(cell["threat"]))
            # The model under attack: its own gradient, or that which it lends itself (WNLL, as it is trained).
            lent = threat.gradient if threat.gradient.startswith("surrogate") else "own"
            model = replace(threat, gradient=lent, neighbours=Neighbours.RECHOSEN)
            assert threat == seen_by(cell["attack"], cell["settings"], model), (cell["attack"], cell["key"])
            seen.append(threat)
        assert group["threats"] == followed_in_words(seen)


def test_names_that_tell_what_is_followed() -> None:
    assert (FeatureAttack(0.1).name, Square(0.1).name, AutoAttack(0.1).name) == (FEATURES, SQUARE, "autoattack")
    # An attack of one's own names its source among its settings.
    threat = ThreatModel("10 samples")
    assert seen_by("mine", {"source": "another net"}, threat).gradient == "that of another net"


def test_a_search_that_is_not_exact_is_named() -> None:
    class Every(AbstractNeighborSearch):
        """One of the user's own: nothing is known of it."""

        def find(self, x: Tensor, k: int) -> Tensor:
            return Exact()(x, k)

    x, y = blobs(9, seed=2)
    plain, other = victim(), victim(Every())
    assert (plain.threat.exact_neighbours, other.threat.exact_neighbours) == (True, False)
    assert victim(Exact()).threat.exact_neighbours
    assert "neighbours are approximate and" in other.threat.describe()
    torch.testing.assert_close(other(x), plain(x))
    assert [v.sharpened().threat.exact_neighbours for v in (plain, other)] == [True, False]
    found = STEPS(other, x, y).threat
    assert found is not None
    assert not found.exact_neighbours
    assert cell_of(STEPS, other, 9).key != cell_of(STEPS, plain, 9).key
