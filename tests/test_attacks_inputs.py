"""What an attack is given: copies are made, and what makes no sense is refused with a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gll.attacks import FGSM, L2, PGD, AbstractAttack, AbstractNorm, CarliniWagner, LInf, Margin, Normalised, Square
from gll.attacks.autoattack import AutoAttack
from gll.attacks.balls import Ball
from gll.attacks.evaluate import evaluate
from gll.attacks.features import FeatureAttack
from gll.attacks.gradient import IFGSM
from gll.attacks.inputs import in_evaluation
from gll.attacks.objectives import AbstractObjective, CrossEntropy, Towards
from gll.attacks.pixels import Normalized
from gll.attacks.poison import poison
from gll.attacks.transfer import Transfer

EPS = 0.01


def model_and_batch(n: int = 8) -> tuple[nn.Module, Tensor, Tensor]:
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 3)).eval()
    x = torch.rand(n, 1, 3, 3)
    return model, x, model(x).argmax(1)


# Copies


@dataclass(frozen=True)
class InPlace(AbstractAttack):
    """Writes into whatever it is given."""

    eps: float = EPS
    norm: AbstractNorm = field(default_factory=LInf)

    def perturb(self, model, images, labels, generator):
        images.copy_(1 - images)
        labels.fill_(0)
        return images


class InPlaceModel(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images.sub_(0.5)) if not images.requires_grad else self.model(images - 0.5)


def test_an_attack_in_place_makes_no_success_out_of_nothing():
    model, x, y = model_and_batch()
    before, labels = x.clone(), y.clone()
    result = InPlace()(model, x, y)
    assert torch.equal(x, before)
    assert torch.equal(y, labels)
    # It moves every pixel towards its negative, as far as it may: that is what is judged and measured.
    expected = (before + (1 - 2 * before).clamp(-EPS, EPS)).clamp(0, 1)
    torch.testing.assert_close(result.images, expected)
    assert 0 < result.linf.max() <= EPS + 1e-6
    assert torch.equal(result.predicted, model(result.images).argmax(1))
    found = evaluate(model, x, y, [FGSM(EPS), InPlace(), FGSM(EPS)])
    assert found.outcomes[0].error == found.outcomes[2].error
    assert found.worst(Ball("LInf", EPS)) == max(outcome.error for outcome in found.outcomes)


def test_a_model_in_place_changes_no_image():
    model, x, _ = model_and_batch()
    before = x.clone()
    y = model(x - 0.5).argmax(1)
    result = Square(EPS, 5)(InPlaceModel(model), x, y)
    assert torch.equal(x, before)
    assert torch.equal(result.clean, y)
    assert torch.equal(result.predicted, model(result.images - 0.5).argmax(1))


def test_inference_mode_around_it_changes_nothing():
    model, x, y = model_and_batch()
    for attack in (FGSM(0.1), PGD(0.1, 3), CarliniWagner(2, 5)):
        expected = attack(model, x, y)
        with torch.inference_mode():
            found = attack(model, x.clone(), y.clone())
        assert torch.equal(found.images, expected.images)
        assert found.zero_gradients == expected.zero_gradients == 0


def test_pixels_outside_by_rounding_are_brought_inside():
    model, x, y = model_and_batch()
    x[0, 0, 0, 0], x[1, 0, 0, 0] = -5e-7, 1 + 5e-7
    y = model(x).argmax(1)
    result = PGD(0.1, 3)(model, x, y)
    assert result.images.min() >= 0
    assert result.images.max() <= 1
    x[0, 0, 0, 0] = -2e-6
    with pytest.raises(ValueError, match=r"pixels must be in \[0, 1\], got -2e-06"):
        FGSM(0.1)(model, x, y)


def test_the_source_needs_a_gradient_and_the_victim_does_not():
    model, x, y = model_and_batch()

    class NoGradient(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return model(images.detach())

    direct = FGSM(0.1)(model, x, y)
    for asks in (False, True):
        transferred = Transfer(FGSM(0.1), model, "itself", asks=asks)(NoGradient(), x, y)
        assert torch.equal(transferred.images, direct.images)
        for attack in (FGSM(0.1), PGD(0.1, 2), CarliniWagner(1, 2)):
            with pytest.raises(ValueError, match="logits do not depend on its images"):
                Transfer(attack, NoGradient(), "a wall", asks=asks)(model, x, y)


# Objectives


@dataclass(frozen=True)
class Own(AbstractObjective):
    how: Any

    def __call__(self, logits, labels):
        return self.how(logits, labels)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda z, y: z, r"one number an image, shape \(8,\), but Own returned torch.float32 of shape \(8, 3\)"),
        (lambda z, y: nn.functional.cross_entropy(z, y), r"Own returned torch.float32 of shape \(\)"),
        (lambda z, y: z.argmax(1), r"Own returned torch.int64 of shape \(8,\)"),
        (lambda z, y: 1.0, "Own returned float"),
        (lambda z, y: z.detach().sum(1), r"Own does not depend on the logits \(detach"),
        (lambda z, y: torch.zeros(8, requires_grad=True) * 1, "Own does not depend on the logits"),
        (lambda z, y: (z.sum(1) - z.sum(1)).log(), "Own is not finite for 8 of 8 images"),
    ],
)
def test_refused_objectives(how, message, as_user):
    model, x, y = model_and_batch()
    for attack in (FGSM(0.1, objective=Own(how)), PGD(0.1, 2, objective=Own(how))):
        with pytest.raises(ValueError, match=message):
            attack(model, x, y)


def test_towards_given_classes():
    model, x, y = model_and_batch()
    target = (y + 1) % 3
    result = PGD(1.0, 20, objective=Towards(target))(model, x, y)
    reached = result.predicted == target
    assert reached.any()
    assert result.success[reached].all()
    for wrong, message in [
        (target[:5], "has 5 classes for 8 images; give one for each. Where images are attacked in chunks"),
        (target + 3, r"classes \d to \d, but the model has 3, from 0 on"),
        (torch.where(torch.arange(8) == 2, y, target), "for 1 images it was given just that one"),
    ]:
        with pytest.raises(ValueError, match=message):
            PGD(0.1, 2, objective=Towards(wrong))(model, x, y)
    with pytest.raises(ValueError, match="must all be in one"):
        evaluate(model, x, y, [PGD(0.1, 2, objective=Towards(target))], chunk=5)


def test_a_target_that_is_none(as_user):
    for target in ([0, 1], torch.rand(3), torch.zeros(2, 2, dtype=torch.long)):
        with pytest.raises(ValueError, match="Towards needs a tensor of classes, one an image"):
            Towards(target)  # type: ignore[arg-type]


def test_settings_tell_targets_apart():
    one, other = (PGD(0.1, objective=Towards(torch.tensor([0, t]))) for t in (1, 2))
    assert one.settings() == PGD(0.1, objective=Towards(torch.tensor([0, 1]))).settings()
    assert one.settings() != other.settings()


# What is refused with a sentence


def test_refused_radii_norms_and_objectives(as_user):
    many: list[Any] = [FGSM, PGD, Square, FeatureAttack, AutoAttack, lambda eps, **more: IFGSM(eps, 0.01, **more)]
    for make in many:
        for arguments, kind, message in [
            ({"eps": 8}, ValueError, r"eps must be at most 1, .* got 8; an eps of 8 in 255 is 0\.0314"),
            ({"eps": 1.01, "norm": LInf()}, ValueError, "eps must be at most 1"),
            ({"eps": math.inf, "norm": L2()}, ValueError, "eps must be finite"),
            ({"eps": math.inf}, ValueError, "eps must be finite"),
            ({"eps": -0.1}, ValueError, "eps must be ≥ 0, got -0.1"),
            ({"eps": "8/255"}, TypeError, "eps must be a number, such as 8 / 255, got '8/255'"),
            ({"eps": Normalised("mnist", 0.3)}, TypeError, r"eps\.pixels, with norm=eps\.norm"),
            ({"eps": 0.1, "norm": "L2"}, TypeError, r"norm must be an object, LInf\(\) or L2\(\), got 'L2'"),
        ]:
            with pytest.raises(kind, match=message):
                make(**arguments)
    for objective, message in (("dlr", "got 'dlr'"), (Margin, r"got the class itself: Margin\(\)")):
        with pytest.raises(TypeError, match=message):
            PGD(0.1, objective=objective)
    assert PGD(1.0).eps == 1
    assert PGD(3.0, norm=L2()).eps == 3
    assert FGSM(2.0, norm=LInf((0.5, 0.4))).eps == 2  # at most 1 in every channel
    for scale in (1.0, (0.9, 0.6)):
        with pytest.raises(ValueError, match="eps must be at most 1"):
            FGSM(2.0, norm=LInf(scale))


class NoDataclass(AbstractAttack):
    eps, norm = 0.1, LInf()

    def perturb(self, model, images, labels, generator):
        return images


class NoRadius(NoDataclass):
    def __getattribute__(self, name: str) -> Any:
        if name in ("eps", "norm"):
            raise AttributeError(name)
        return super().__getattribute__(name)


@dataclass(frozen=True)
class Returns(AbstractAttack):
    what: Any
    eps: float = 0.1
    norm: AbstractNorm = field(default_factory=LInf)

    def perturb(self, model, images, labels, generator):
        return self.what


def test_bare_python_errors_are_sentences(as_user):
    model, x, y = model_and_batch()
    fgsm: Any = FGSM(0.1)
    for call, kind, message in [
        (lambda: fgsm(lambda z: model(z), x, y), TypeError, "must be an nn.Module, .* got function"),
        (lambda: fgsm(model, x, y.tolist()), TypeError, "labels must be a tensor of classes, got list"),
        (lambda: fgsm(model, x.numpy(), y), TypeError, "images must be a tensor, got ndarray; torch.as_tensor"),
        (lambda: fgsm(model, x.double(), y), ValueError, r"does not take torch.float64 images.*torch.float32\)"),
        (lambda: fgsm(model, x, y, generator=3), TypeError, "generator must be a torch.Generator"),
        (lambda: NoDataclass()(model, x, y), TypeError, "NoDataclass must be a dataclass"),
        (lambda: NoRadius()(model, x, y), TypeError, "NoRadius has no eps and no norm"),
        (lambda: Returns(None)(model, x, y), TypeError, "returns must return images, a tensor, got NoneType"),
        (lambda: Returns(x[:3])(model, x, y), ValueError, r"returned \(3, .* for images of shape \(8, 1, 3, 3\)"),
        (lambda: Normalized(model, 0.1, 0.3), TypeError, r"mean must be a list of numbers, .* got 0\.1"),  # type: ignore[arg-type]
        (lambda: poison(model, x, y, counts=[1]), TypeError, "base of a GraphVictim, got Sequential"),  # type: ignore[arg-type]
    ]:
        with pytest.raises(kind, match=message):
            call()


def test_other_errors_of_a_model_are_its_own(as_user):
    model, _, y = model_and_batch()
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes"):
        FGSM(0.1)(model, torch.rand(8, 1, 4, 4), y)
    assert Normalized(model, np.array([0.5]), torch.tensor([0.5])).std.tolist() == [0.5]  # type: ignore[arg-type]


# Balls


def test_balls():
    assert Ball(LInf(), 0.1) == Ball("LInf", 0.1)
    assert Ball(L2(), 0.5) == Ball("L2", 0.5)
    assert Ball(LInf((1.0, 0.5)), 0.1) == Ball("LInf", 0.1, (1.0, 0.5))
    assert Ball("LInf", 0.1) < Ball("LInf", 0.2)
    assert Ball.of({"eps": 0.1, "norm": {"name": "Mine", "power": 3}}) is None


def test_refused_balls(as_user):
    for arguments, message in [
        (("linf", 0.1), "unknown norm of a ball 'linf'; choose one of LInf, L2"),
        (("LInf", -0.1), "radius of a ball must be ≥ 0, got -0.1"),
        (("L2", math.nan), "radius of a ball must be ≥ 0, got nan"),
        (("LInf", 0.1, (0.0,)), "scale must be numbers > 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            Ball(*arguments)  # type: ignore[arg-type]


# What is said


def test_the_result_is_one_line():
    model, x, y = model_and_batch()
    result = FGSM(0.0)(model, x, y)
    assert repr(result) == "<Attacked by fgsm: 8 images, 0.0% wrong after, moved by at most 0 (L∞), 0 (L2)>"
    assert result.notes == {}


def test_evaluation_mode_for_a_while():
    encoder = nn.Sequential(nn.Linear(2, 2), nn.Dropout().eval(), nn.Sequential(nn.Dropout()))
    before = [part.training for part in encoder.modules()]
    with in_evaluation(encoder):
        assert not any(part.training for part in encoder.modules())
    assert [part.training for part in encoder.modules()] == before == [True, True, False, True, True]


def test_cross_entropy_is_an_objective_of_one_number_an_image():
    model, x, y = model_and_batch()
    assert FGSM(0.1, objective=CrossEntropy())(model, x, y).error == FGSM(0.1)(model, x, y).error
