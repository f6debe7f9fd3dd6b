"""Which attacks a name stands for, with which settings, and on which view of the model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from gll import attacks
from gll.attacks import autoattack, features, sets, transfer, victims
from gll.attacks.autoattack import AutoAttack
from gll.attacks.effects import chosen
from gll.attacks.norms import LInf
from gll.attacks.radii import Radius
from gll.attacks.square import Square
from gll.attacks.target import Request, Target
from gll.attacks.transfer import Apart, EveryClass
from tests.attacked_runs import trained_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trained_runs(tmp_path_factory)


def test_the_papers_settings() -> None:
    mnist, fashion, cifar = (sets.PROTOCOLS[name] for name in ("mnist", "fashionmnist", "cifar10"))
    assert [p.table_eps for p in (mnist, fashion, cifar)] == [0.3, 0.05, 0.05]
    assert all(p.table_eps in p.eps and p.table_c in p.c and p.table_c == 20 for p in (mnist, fashion, cifar))
    assert (mnist.base, mnist.chunk, mnist.few_base, mnist.few_chunk) == (10_000, 10_000, 1000, 1000)
    assert (fashion.base, fashion.chunk, cifar.base, cifar.chunk) == (500, 250, 500, 200)
    assert [p.cw_steps for p in (mnist, fashion, cifar)] == [100, 100, 50]
    assert mnist.c == (1, 5, 10, 20, 50, 100, 200, 500, 1000)


def test_every_name_of_a_set_is_known() -> None:
    for names in sets.SETS.values():
        assert set(names) <= set(sets.NAMES)
    assert sets.names_of("paper,strong") == (*sets.PAPER, *sets.STRONG)


def test_what_takes_the_fast_path_and_what_is_made_apart(runs: dict[str, Path]) -> None:
    """Square asks for no gradient, so that none can be zero; AutoAttack goes on with a part of the images."""
    for options, apart in (({}, True), ({"joint": False}, False), ({"inductive": True}, False)):
        known = Target(Request(runs["gll"], samples=24, base=40, eps=(0.1,), **options))
        square, *also = sets.plan(["square"], known.recipe())
        (margin,) = sets.plan(["pgd-margin"], known.recipe())
        auto, more = sets.plan(["autoattack"], known.recipe())
        assert isinstance(more.attack, EveryClass)  # where no neighbour has a class, it would be out of sight
        assert (square.fast, margin.fast, auto.fast) == (True, False, False)
        assert isinstance(square.attack, Square)  # which finds more than what is made apart in the same graph
        assert [(type(one.attack), one.fast) for one in also] == [(Apart, False)] * apart
        assert isinstance(auto.attack, Apart if apart else AutoAttack)
    known = Target(Request(runs["gll"], samples=24, base=40))
    fast, exact = (known.judged(40, True, fast=fast) for fast in (True, False))
    assert (fast.fast, exact.fast) == (True, False)
    torch.testing.assert_close(fast(known.images), exact(known.images))
    (auto,) = sets.plan(["autoattack"], Target(Request(runs["mlp"], samples=24)).recipe())
    assert isinstance(auto.attack, AutoAttack)


def test_each_attack_once(runs: dict[str, Path]) -> None:
    """Both versions of AutoAttack have one part with every class."""
    recipe = Target(Request(runs["gll"], samples=8, base=40, eps=(0.1, 0.2))).recipe()
    auto, rand = (sets.plan([name], recipe) for name in ("autoattack", "autoattack-rand"))
    both = sets.plan(["autoattack", "autoattack-rand"], recipe)
    names = [one.attack.name for one in both]
    assert (len(auto), len(rand), len(both)) == (4, 4, 6)
    assert names.count("autoattack-gradients with every class") == 2  # one for every ε
    several = sets.plan(["pgd", "pgd-margin", "square", "fgsm"], recipe)
    assert len(several) == 10  # Square in the graph of all queries and apart


def test_who_follows_the_gradient_that_was_asked_for(runs: dict[str, Path]) -> None:
    few: dict[str, Any] = {"samples": 8, "base": 40, "eps": (0.1,), "c": (20.0,), "transfer": (runs["gll"],)}
    target = Target(Request(runs["mlp"], **few, head_at_test="gll", gradient_of="mlp"))
    recipe, names = target.recipe(), [name for name in sets.NAMES if name != "surrogate"]  # which is for WNLL
    assert recipe.aim is not None
    for name in names:
        follows = [getattr(one.attack, "source", None) is recipe.aim[0] for one in sets.plan([name], recipe)]
        assert follows == [name in sets.AIMED] * len(follows), name
    (said,) = [line for line in chosen(target, recipe, names) if "gradient" in line]
    assert said.startswith(
        "--gradient-of mlp is not followed by fixed, every-class, features, square, probe, transfer, autoattack, "
        "autoattack-rand:"
    )
    assert chosen(target, recipe, sets.AIMED) == []
    own = Target(Request(runs["mlp"], **few, head_at_test="gll"))
    assert chosen(own, own.recipe(), names) == []


def test_what_transfers_from_a_graph_is_also_made_with_every_class_in_sight(runs: dict[str, Path]) -> None:
    """Its own gradient is often zero."""
    known = Target(Request(runs["mlp"], samples=8, base=40, eps=(0.1,), transfer=(runs["gll"], runs["mlp"])))
    made = [one.attack for one in sets.plan(["transfer"], known.recipe())]
    assert [(attack.name.split(",")[0], getattr(attack.source, "each_class", None)) for attack in made] == [
        ("pgd from gll", 0), ("pgd from mlp", None), ("pgd from gll", 5)
    ]  # fmt: skip
    assert made[-1].name == f"{made[0].name} with every class"
    found = made[-1](known.judged(40, True), known.images, known.labels)
    assert (found.threat, found.settings["source"]) == (None, made[-1].source_name)
    assert made[-1].source.threat.alone


def test_names_and_their_python_on_the_page(runs: dict[str, Path]) -> None:
    """Every name is in the table of docs/measuring-robustness.md, and what stands beside it makes the same attack."""
    page = (Path(__file__).parents[1] / "docs" / "measuring-robustness.md").read_text(encoding="utf-8")
    table = page[page.index("| name | the same in Python |") : page.index("The model under all of them")]
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", table, re.MULTILINE))
    assert list(rows) == list(sets.NAMES)
    few: dict[str, Any] = {"samples": 8, "base": 40, "eps": (0.1,), "c": (20.0,), "transfer": (runs["mlp"],)}
    recipes = [Target(Request(runs["gll"], **few, joint=joint)).recipe() for joint in (True, False)]
    victim = Target(Request(runs["gll"], **few)).judged(40, False)
    known = {"eps": 0.1, "alpha": recipes[0].radii[0].alpha, "c": 20.0, "victim": victim, "source": victim}
    for module in (attacks, transfer, autoattack, features, victims):
        known |= {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    known |= {"linear_probe": lambda victim: victim}

    def told(attack: Any) -> tuple[str, dict[str, Any]]:
        return type(attack).__name__, {k: v for k, v in attack.settings().items() if k not in ("source", "norm")}

    for name, text in rows.items():
        found = [eval(code, known) for code in re.findall(r"`([A-Z][^`]*\))`", text)]
        planned = [] if name in ("surrogate", "autoattack-rand") else [
            told(one.attack) for recipe in recipes for one in sets.plan([name], recipe)
        ]  # fmt: skip
        assert all(told(attack) in planned for attack in found if planned), name
        assert all(one in [told(attack) for attack in found] for one in planned), name


def test_channels_with_units_of_their_own() -> None:
    """ε of CIFAR-10 in normalised units: what AutoAttack attacks is the largest cube inside the box."""
    from gll.attacks.units import Normalised

    length = Normalised("cifar10", 0.05)
    radius = Radius(length.pixels, length.norm, 0.01)
    assert radius.even.norm == LInf()
    assert radius.even.eps == pytest.approx(0.05 * 0.2435)
    assert torch.allclose(length.norm.size(torch.full((1, 3, 1, 1), radius.even.eps)), torch.tensor(length.pixels))
