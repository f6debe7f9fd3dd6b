"""AutoAttack: the package's own results, on any number of classes, with its surroundings left as they were."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gll.attacks.autoattack import AutoAttack, agreeing
from gll.attacks.gradient import PGD
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.norms import L2, AbstractNorm, LInf
from gll.attacks.objectives import Margin
from gll.attacks.threat import Queries, ThreatModel
from gll.attacks.transfer import EveryClass, Transfer
from gll.nn.layer import GraphLearningLayer
from gll.unreached import UnreachedWarning

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


def test_parts_are_told_and_those_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("pyautoattack")
    runs: list[tuple[str, int, int]] = []
    run = package.AutoAttack.run_standard_evaluation

    def watched(self: Any, x: Tensor, y: Tensor, **options: Any) -> Any:
        (part,) = self.attacks_to_run
        runs.append((part, self.apgd.n_restarts, len(x)))
        return run(self, x, y, **options)

    monkeypatch.setattr(package.AutoAttack, "run_standard_evaluation", watched)
    for classes, version, parts, left in [
        (2, "standard", ["apgd-ce", "fab-t", "square"], {"apgd-t": "its loss needs 4 classes"}),
        (2, "rand", ["apgd-ce"], {"apgd-dlr": "its loss needs 3 classes"}),
        (4, "gradients", ["apgd-ce", "apgd-t", "fab-t"], None),
    ]:
        runs.clear()
        model, x, y = model_and_images(classes)
        y[0] = (y[0] + 1) % classes  # wrong already
        result = AutoAttack(0.04, version=version, **SMALL)(model, x, y)
        assert list(result.notes["parts"]) == parts
        assert result.notes.get("left_out") == left
        errors = list(result.notes["parts"].values())
        assert 1 / 16 < errors[0] <= errors[-1] == result.error < 1
        assert errors == sorted(errors)
        # Each part as in the standard version, on what the parts before have left.
        assert runs == [(part, 1, round(16 * (1 - e))) for part, e in zip(parts, [1 / 16, *errors], strict=False)]
        json.dumps(result.notes)


def test_images_of_double_precision() -> None:
    pytest.importorskip("pyautoattack")
    model, x, y = model_and_images(4)
    narrow = AutoAttack(0.04, **SMALL)(model, x, y)
    x = x.double() + 1e-12  # which float32 does not see
    found = AutoAttack(0.04, **SMALL)(model.double(), x, y)
    assert found.images.dtype == torch.float64
    assert torch.equal(found.success, narrow.success)
    assert 0 < found.error < 1
    assert torch.equal(found.images[~found.success], x[~found.success])
    assert float(found.linf.max()) <= 0.04 + 1e-15


class Threshold(nn.Module):
    """Class 1 where the mean pixel is above a value, by a margin that grows; another class that is never likely."""

    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at

    def forward(self, images: Tensor) -> Tensor:
        margin = images.flatten(1).mean(1) - self.at
        return torch.stack([-margin, margin, -4 + 0 * margin, -5 + 0 * margin], 1)


def test_a_stand_in_does_not_say_what_a_success_is() -> None:
    """It takes images above 0.4 for wrong, which the model does above 0.6 only: both have to be looked at."""
    pytest.importorskip("pyautoattack")
    level = torch.tensor([0.35, 0.45, 0.55, 0.2])
    x, y = level[:, None, None, None].expand(4, 1, 5, 5).contiguous(), torch.zeros(4, dtype=torch.long)
    model = Threshold(0.6)
    for version in ("standard", "gradients"):
        attack = Transfer(AutoAttack(0.3, version=version, **SMALL), Threshold(0.4), "a stand-in", asks=True)
        result = attack(model, x, y)
        assert result.success.tolist() == [True, True, True, False]
        assert result.notes["parts"]["apgd-ce"] == 0.75


def test_agreeing_keeps_slopes_and_order() -> None:
    z = torch.randn(200, 5, dtype=torch.float64, requires_grad=True)
    said = torch.randint(5, (200,))
    changed = agreeing(z, said)
    assert torch.equal(changed.argmax(1), said)
    others = torch.ones_like(z, dtype=torch.bool).scatter(1, said[:, None], False)
    assert torch.equal(changed[others], z[others])
    weight = torch.randn_like(z)
    assert torch.equal(torch.autograd.grad((weight * changed).sum(), z)[0], weight)
    before, after = (-Margin()(t, said).detach() for t in (z, changed))
    order = before.argsort()
    assert (after[order].diff() >= 0).all()
    far = agreeing(torch.tensor([[3e4, 0.0], [0.0, -1e30]]), torch.tensor([1, 1]))  # in float32, too
    assert far.argmax(1).tolist() == [1, 1]


def test_with_every_class_the_victim_has_the_last_word() -> None:
    pytest.importorskip("pyautoattack")
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(70) % 4
    images = torch.rand(70, 1, 5, 5, generator=generator) * 0.3
    images.flatten(1)[torch.arange(70), 5 * y] += 0.4
    for queries in (Queries.ALONE, Queries.JOINT):
        threat = ThreatModel("images", queries=queries)
        victim = GraphVictim(nn.Flatten(), GraphLearningLayer(4, k=5), images[:50], y[:50], threat=threat).sharpened()
        x, truth = images[50:], y[50:]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnreachedWarning)
            own = AutoAttack(0.2, version="gradients", **SMALL)(victim, x, truth)
            seen = EveryClass(AutoAttack(0.2, version="gradients", **SMALL))(victim, x, truth)
        assert torch.equal(seen.success, victim(seen.images).argmax(1) != truth)
        assert seen.notes["parts"]["fab-t"] == seen.error
        assert seen.error > own.error + 0.1, queries
        assert seen.attack == "autoattack-gradients with every class"


def test_only_images_are_taken() -> None:
    pytest.importorskip("pyautoattack")
    with pytest.raises(ValueError, match="channels, height, width"):
        AutoAttack(0.1)(nn.Linear(3, 2), torch.rand(4, 3), torch.tensor([0, 1, 0, 1]))
