"""When one attack beats another: the rule, on heads of which it is known what they hide, and on stored results."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gll.attacks import DLR, FGSM, PGD, Margin, Square
from gll.attacks.checks import reaches_all_errors, run_checks
from gll.attacks.errors import Errors
from gll.attacks.evaluate import Evaluation, evaluate
from gll.attacks.features import FeatureAttack
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.kinds import is_own, is_stand_in
from gll.attacks.signs import (
    COMPARED,
    RULE,
    Check,
    at_most,
    beats,
    judged_again,
    losses_disagree,
    objective_of,
    stand_ins_beat_own_gradient,
)
from gll.attacks.tables import checks_grid
from gll.attacks.threat import Queries, ThreatModel
from gll.attacks.transfer import Apart, EveryClass, FixedNeighbours, Transfer
from gll.data import load
from gll.nn import GraphLearningLayer
from gll.reweight import wnll
from tests.attack_stubs import blobs, honest_mlp


@functools.cache
def linear_head() -> nn.Module:
    """A linear classifier of handwritten digits, as anybody would train one."""
    digits = load("digits")
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(200):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(digits.train.float() / 255), digits.train_labels).backward()
            optimizer.step()
    return model.eval().requires_grad_(False)


class Confident(nn.Module):
    """The same classes with logits many times as large, of which a softmax makes ones and zeros."""

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = 1000 * linear_head()(images)
        return logits


def checks_of(model: nn.Module, eps: float) -> dict[str, Check]:
    digits = load("digits")
    x, y = digits.test[:300].float() / 255, digits.test_labels[:300]
    objectives = [PGD(eps, 20), PGD(eps, 20, objective=Margin()), PGD(eps, 20, objective=DLR())]
    evaluation = evaluate(model, x, y, [*objectives, Square(eps, 200)], chunk=300)
    assert 0.01 < evaluation.natural < 0.1
    return {check.name: check for check in run_checks(model, x, y, eps=eps, evaluations=[evaluation])}


@pytest.mark.parametrize("eps", [0.03, 0.1])  # at which few and half of the samples are lost
def test_an_honest_linear_head_passes(eps: float) -> None:
    assert [name for name, check in checks_of(linear_head(), eps).items() if not check.passed] == []


def test_the_same_head_with_a_confident_softmax_does_not() -> None:
    checks = checks_of(Confident(), 0.1)
    assert {name for name, check in checks.items() if not check.passed} == {
        "zero gradients", "losses disagree", "all errors",
    }  # fmt: skip
    assert checks["losses disagree"].figure > 0.4  # others see it as it is
    assert "masking" not in checks["losses disagree"].meaning


@pytest.mark.parametrize(
    ("errors", "natural", "samples", "expected"),
    [
        ((0.070, 0.028), 0.009, 1000, True),  # small, but two and a half times as many
        ((0.530, 0.476), 0.006, 1000, False),  # more samples, and next to nothing beside what both find
        ((0.530, 0.476), 0.440, 1000, True),  # unless most of these were wrong before
        ((0.070, 0.028), 0.0, 100, False),  # seven against three: too few
        ((0.05, 0.0), 0.0, 100, True),
        ((0.04, 0.0), 0.0, 100, False),
        ((0.25, 0.20), 0.0, 10_000, False),  # a quarter more, and no more
        ((0.251, 0.20), 0.0, 10_000, True),
        ((0.2, 0.3), 0.0, 1000, False),
        ((0.1, 0.1), 0.2, 1000, False),  # in one graph an attack on all may set some right
        ((0.0, 0.0), 0.0, 10, False),
    ],
)
def test_a_quarter_more_and_beyond_chance(
    errors: tuple[float, float], natural: float, samples: int, expected: bool
) -> None:
    assert beats(*errors, natural, samples) == expected


def test_chance_rarely_beats() -> None:
    """Two attacks that are equally good, and find their samples independently of each other."""
    generator = np.random.default_rng(0)
    for samples, share in ((100, 0.03), (100, 0.3), (1000, 0.01), (1000, 0.5)):
        one, two = generator.binomial(samples, share, (2, 4000)) / samples
        assert np.mean([beats(a, b, 0.0, samples) for a, b in zip(one, two, strict=True)]) < 0.04


def evaluations() -> list[Evaluation]:
    """Attacks of every kind, on a model without a graph, on graphs, and on one that lends a surrogate's gradient."""
    x, y = blobs(90, seed=3)
    pgd = PGD(0.15, 3)
    plain = [FGSM(0.15), pgd, PGD(0.15, 3, objective=Margin()), Square(0.15, 20), Square(0.1, 20)]
    probe = Transfer(pgd, honest_mlp(), "a probe", asks=True)
    views = [EveryClass(pgd), FixedNeighbours(pgd), FeatureAttack(0.15, 3), Apart(Square(0.15, 20)), Apart(pgd)]
    found = [evaluate(honest_mlp(), x[60:], y[60:], [*plain, probe])]
    for queries in (Queries.JOINT, Queries.ALONE):
        for reweight, surrogate in ((None, None), (wnll, honest_mlp()[1:])):
            layer = GraphLearningLayer(3, k=10, reweight=reweight)
            threat = ThreatModel("60 samples", queries=queries)
            victim = GraphVictim(nn.Flatten(), layer, x[:60], y[:60], threat=threat, surrogate=surrogate)
            found.append(evaluate(victim, x[60:], y[60:], [*plain, probe, *views]))
    return found


def test_what_is_stored_is_judged_as_what_was_found() -> None:
    for evaluation in evaluations():
        stored = evaluation.as_dict()
        again = Errors.from_dict(stored)
        for tried, outcome in zip(again.tried, evaluation.outcomes, strict=True):
            for said in (is_own, is_stand_in, objective_of):
                assert said(tried.cell) == said(outcome.cell)
        found = [compare([Errors.of(evaluation)]) for compare in COMPARED]
        assert [compare([again]) for compare in COMPARED] == found
        summary = {"groups": [stored], "checks": []}
        expected = [check.as_dict() for check in found] if all(check.tested for check in found) else None
        assert judged_again(summary) == expected


def stored(**errors: float) -> dict[str, Any]:
    """A summary of a thousand samples, as older code has written it: no number of a rule, no stand-in."""
    norm = {"name": "LInf", "scale": 1.0}
    about = {
        "plain": ("pgd", "multi-step", {"objective": "CrossEntropy"}),
        "margin": ("pgd", "multi-step", {"objective": "Margin"}),
        "square": ("square", "black box", {}),
        "sight": ("pgd with every class", "multi-step", {"objective": "Margin", "every_class": 5}),
    }
    attacks = [
        {"attack": attack, "kind": kind, "settings": {"eps": 0.1, "norm": norm, **more}, "threat": None, "chunk": 1000}
        | {"error": errors[name]}
        for name, (attack, kind, more) in about.items()
        if name in errors
    ]
    checks = [
        {"name": "zero gradients", "figure": 0.5, "passed": False, "meaning": "as it was"},
        {"name": "black box or transfer", "figure": 0.01, "passed": True, "meaning": "as it was"},
        {"name": "losses disagree", "figure": 0.06, "passed": False, "meaning": "as it was"},
    ]
    return {"groups": [{"samples": 1000, "natural": 0.01, "attacks": attacks}], "checks": checks}


def test_older_checks_are_made_again() -> None:
    again = judged_again(stored(plain=0.50, margin=0.56, square=0.2, sight=0.9))
    assert again is not None
    verdicts = {check["name"]: (round(check["figure"], 9), check["passed"]) for check in again}
    assert verdicts == {
        "zero gradients": (0.5, False),  # cannot be looked at again
        "black box or transfer": (-0.36, True),
        "losses disagree": (0.06, True),
        "stand-in": (0.34, False),
    }
    (masked,) = (Errors.from_dict(group) for group in stored(plain=0.02, margin=0.09, sight=0.05)["groups"])
    assert not losses_disagree([masked]).passed
    assert stand_ins_beat_own_gradient([masked]).passed


def test_within_chance_is_neither_passed_nor_failed() -> None:
    """Ten samples against three, of forty: by far more than a quarter, and yet it may be chance."""
    (group,) = stored(plain=0.075, sight=0.25)["groups"]
    verdicts = []
    for samples in (40, 400):  # the same errors of more samples do tell
        check = stand_ins_beat_own_gradient([Errors.from_dict(group | {"samples": samples, "natural": 0.0})])
        rows = checks_grid({"checks": [check.as_dict()]}).rows
        verdicts.append((check.passed, check.enough, rows[0][1]))
    assert verdicts == [(True, False, "too few samples"), (False, True, "FAILED")]
    few, clear = (
        losses_disagree([replace(Errors.from_dict(one), samples=40, natural=0.0)])
        for one in (stored(plain=0.2, margin=margin)["groups"][0] for margin in (0.275, 0.25))
    )
    assert "too few to tell from chance" in few.meaning
    assert (clear.passed, clear.enough, "too few" in clear.meaning) == (True, True, False)  # no more than a quarter


def test_one_or_two_samples_are_neither() -> None:
    """Of a share that is too large, but by fewer than three samples."""
    checks = [at_most(0.02, "single step", share, "", "", 30) for share in (0.0, 1 / 30, 3 / 30)]
    checks += [reaches_all_errors({1.0: reached}, 30) for reached in (1.0, 29 / 30, 27 / 30)]
    verdicts = [row[1] for row in checks_grid({"checks": [check.as_dict() for check in checks]}).rows]
    assert verdicts == 2 * ["passed", "too few samples", "FAILED"]
    assert reaches_all_errors({1.0: 0.98}, 100).enough  # two of a hundred are not above the limit, however rounded


def test_a_check_that_was_stored_before_has_two_verdicts() -> None:
    rows = checks_grid({"checks": stored()["checks"]}).rows
    assert [row[1] for row in rows] == ["FAILED", "passed", "FAILED"]


@pytest.mark.parametrize("missing", ["plain", "margin", "square", "sight"])
def test_where_an_attack_is_missing_older_checks_say_nothing(missing: str) -> None:
    errors = {"plain": 0.50, "margin": 0.56, "square": 0.2, "sight": 0.9}
    del errors[missing]
    summary = stored(**errors)
    assert judged_again(summary) is None
    # By the rule of today they are what they say, with the attacks of their own.
    assert judged_again(summary | {"checks_at": {"rule": RULE}}) == summary["checks"]
    assert judged_again(summary | {"checks_at": {"rule": RULE - 1}}) is None


def test_attacks_of_another_ball_are_not_compared() -> None:
    (errors,) = (Errors.from_dict(group) for group in stored(plain=0.02, margin=0.5)["groups"])
    assert not losses_disagree([errors]).passed
    plain, margin = errors.tried
    moved = replace(margin, cell=replace(margin.cell, settings={**margin.cell.settings, "eps": 0.2}))
    check = losses_disagree([replace(errors, tried=(plain, moved))])
    assert (check.passed, check.tested, check.figure) == (True, False, 0.0)
