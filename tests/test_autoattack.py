"""AutoAttack: the package's own results, on any number of classes, with its surroundings left as they were."""

from __future__ import annotations

import logging
import sys

import pytest
import torch
from torch import Tensor, nn

from gll.attacks.autoattack import AutoAttack
from gll.attacks.gradient import PGD
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.norms import L2, AbstractNorm, LInf
from gll.attacks.objectives import Margin
from gll.attacks.threat import Queries, ThreatModel
from gll.nn.layer import GraphLearningLayer

SMALL = {"steps": 8, "queries": 30}


def model_and_images(classes: int, n: int = 16) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(classes)
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, classes)).eval()
    x = torch.rand(n, 1, 6, 6)
    return model, x, model(x).argmax(1)


def test_without_the_package_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    model, x, y = model_and_images(4)
    with pytest.raises(ImportError, match=r"pip install 'gll\[attacks\]'"):
        AutoAttack(0.1)(model, x, y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"version": "plus"}, "unknown version of AutoAttack 'plus'; choose one of standard, rand"),
        ({"norm": LInf(scale=(0.2, 0.3))}, "in pixel units"),
        ({"steps": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_be(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AutoAttack(0.1, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("classes", "norm", "eps"), [(2, LInf(), 0.04), (3, L2(), 0.16), (4, LInf(), 0.04), (12, L2(), 0.16)]
)
def test_it_finds_what_gradients_find(classes: int, norm: AbstractNorm, eps: float) -> None:
    pytest.importorskip("pyautoattack")
    model, x, y = model_and_images(classes)
    before = torch.random.get_rng_state()
    attack = AutoAttack(eps, norm, **SMALL)
    result = attack(model, x, y)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(attack(model, x, y).images, result.images)
    peer = PGD(eps, steps=40, restarts=2, objective=Margin(), norm=norm)(model, x, y)
    assert result.error > 0
    assert abs(result.error - peer.error) <= 1 / 16
    assert result.settings["eps"] == eps
    assert result.attack == "autoattack"


def test_it_is_the_package_with_a_seed_of_ours() -> None:
    package = pytest.importorskip("pyautoattack")
    model, x, y = model_and_images(10)
    logging.getLogger("auto-attack").setLevel(logging.ERROR)
    seed = int(torch.randint(2**31 - 1, (), generator=torch.Generator().manual_seed(5)))
    theirs = package.AutoAttack(model, eps=0.03, version="rand", seed=seed)
    # A model that answers the same twice needs no mean over answers.
    theirs.apgd = package.autopgd_base.APGDAttack(
        model, n_iter=10, norm="Linf", n_restarts=1, eps=0.03, eot_iter=1, rho=0.75, seed=seed, device="cpu"
    )
    expected, _ = theirs.run_standard_evaluation(x, y, batch_size=16)
    attack = AutoAttack(0.03, version="rand", steps=10)
    found = attack(model, x, y, generator=torch.Generator().manual_seed(5))
    assert found.error > 0
    torch.testing.assert_close(found.images, expected)
    assert found.attack == "autoattack-rand"


@pytest.mark.parametrize("queries", [Queries.JOINT, Queries.ALONE])
def test_a_graph_victim_is_judged_as_a_whole(queries: Queries) -> None:
    pytest.importorskip("pyautoattack")
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 4
    images = torch.rand(60, 1, 5, 5, generator=generator) * 0.5
    images.flatten(1)[torch.arange(60), 5 * y] += 0.4
    victim = GraphVictim(
        nn.Flatten(), GraphLearningLayer(4, k=8), images[:40], y[:40], threat=ThreatModel("images", queries=queries)
    ).sharpened(fast=True)
    x, truth = images[40:].double(), y[40:]
    result = AutoAttack(0.1, **SMALL)(victim, x, truth)
    assert torch.equal(result.success, victim(result.images).argmax(1) != truth)
    assert result.error > float((victim(x).argmax(1) != truth).double().mean()) + 0.2
    assert result.threat == victim.threat
    assert result.images.dtype == torch.float64


def test_only_images_are_taken() -> None:
    pytest.importorskip("pyautoattack")
    with pytest.raises(ValueError, match="channels, height, width"):
        AutoAttack(0.1)(nn.Linear(3, 2), torch.rand(4, 3), torch.tensor([0, 1, 0, 1]))
