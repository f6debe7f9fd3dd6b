"""The call that every attack shares."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gll.attacks import (
    DLR,
    FGSM,
    IFGSM,
    L2,
    PGD,
    AbstractAttack,
    AbstractNorm,
    CarliniWagner,
    CarliniWagnerPaper,
    LInf,
    Margin,
    Square,
)

EPS = 0.1


def linear(classes: int = 3, shape: tuple[int, ...] = (2, 4, 4)) -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))
    return model.eval().double()


def batch(n: int = 6, classes: int = 3, shape: tuple[int, ...] = (2, 4, 4)) -> tuple[Tensor, Tensor]:
    return torch.rand(n, *shape, dtype=torch.float64), torch.arange(n) % classes


def bounded(eps: float) -> list[AbstractAttack]:
    """Every attack that has a radius, in every norm it knows."""
    uneven = LInf((0.5, 1.0))
    return [
        *(FGSM(eps, norm=norm) for norm in (LInf(), L2(), uneven)),
        *(IFGSM(eps, alpha=0.03, steps=3, norm=norm) for norm in (LInf(), L2(), uneven)),
        *(PGD(eps, steps=3, norm=norm, restarts=2) for norm in (LInf(), L2(), uneven)),
        *(PGD(eps, steps=2, objective=objective) for objective in (Margin(), DLR())),
        PGD(eps, steps=2, targets=2),
        *(Square(eps, queries=8, norm=norm) for norm in (LInf(), L2(), uneven)),
    ]


UNBOUNDED = [CarliniWagnerPaper(c=5.0, steps=4), CarliniWagner(binary_steps=2, steps=4)]


def title(attack: AbstractAttack) -> str:
    return f"{attack.name}-{type(attack.norm).__name__}"


# The ball and the box


@pytest.mark.parametrize("attack", bounded(0.0), ids=title)
def test_no_radius_no_change(attack):
    model, (x, y) = linear(), batch()
    result = attack(model, x, y)
    assert torch.equal(result.images, x)
    assert torch.equal(result.success, model(x).argmax(1) != y)
    assert result.l2.max() == result.linf.max() == 0


@pytest.mark.parametrize("attack", [*bounded(EPS), *UNBOUNDED], ids=title)
def test_result_is_inside_and_distances_are_true(attack):
    model, (x, y) = linear().float(), batch()
    x = x.float()  # the type that rounds more
    result = attack(model, x, y)
    assert result.images.dtype == torch.float32
    assert result.images.min() >= 0
    assert result.images.max() <= 1
    delta = (result.images.double() - x.double()).flatten(1)
    assert attack.norm.size((result.images - x).double()).max() <= attack.eps + attack.norm.rounding(x)
    torch.testing.assert_close(result.linf, delta.abs().amax(1))
    torch.testing.assert_close(result.l2, delta.norm(dim=1))
    assert torch.equal(result.predicted, model(result.images).argmax(1))
    assert torch.equal(result.success, result.predicted != y)
    assert result.error == result.success.double().mean().item()


pixels = st.floats(0, 1, width=32)
slopes = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=30)
@given(
    image=st.lists(pixels, min_size=4, max_size=4),
    slope=st.lists(slopes, min_size=12, max_size=12),
    eps=st.floats(0, 1),
    which=st.integers(0, len(bounded(0.0)) - 1),
)
def test_any_image_any_slope_any_norm(image, slope, eps, which):
    """The model may be as steep or as flat as floats go; images may lie on the boundary of the box."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    model[1].weight.data = torch.tensor(slope, dtype=torch.float64).view(3, 4)
    x = torch.tensor(image).view(1, 2, 2, 1)
    attack = bounded(eps)[which]
    result = attack(_Wide(model), x, torch.zeros(1, dtype=torch.long))
    assert torch.isfinite(result.images).all()
    assert result.images.min() >= 0
    assert result.images.max() <= 1
    assert attack.norm.size((result.images - x).double()).max() <= eps + attack.norm.rounding(x)


class _Wide(nn.Module):
    """A float64 model of float32 images."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images.double())


@settings(max_examples=15)
@given(image=st.lists(pixels, min_size=4, max_size=4), slope=st.lists(st.floats(-1e6, 1e6), min_size=12, max_size=12))
def test_any_image_without_a_radius(image, slope):
    model = nn.Linear(4, 3).double()
    model.weight.data = torch.tensor(slope, dtype=torch.float64).view(3, 4)
    x = torch.tensor([image])
    for attack in UNBOUNDED:
        result = attack(_Wide(model), x, torch.zeros(1, dtype=torch.long))
        assert torch.isfinite(result.images).all()
        assert result.images.min() >= 0
        assert result.images.max() <= 1


@dataclass(frozen=True)
class Runaway(AbstractAttack):
    """An attack that has lost its bounds."""

    eps: float = EPS
    norm: AbstractNorm = field(default_factory=LInf)
    to: float = 7.0

    def perturb(self, model, images, labels, generator):
        return torch.full_like(images, self.to)


def test_a_bad_attack_is_projected():
    model, (x, y) = linear(), batch()
    result = Runaway()(model, x, y)
    right = result.clean == y
    torch.testing.assert_close(result.images[right], (x + EPS).clamp(max=1)[right])
    with pytest.raises(ValueError, match=r"runaway returned 192 values that are not finite: a mistake in the attack"):
        Runaway(to=math.nan)(model, x, y)


def test_the_ball_is_asserted():
    class Broken(AbstractNorm):
        def size(self, delta):
            return LInf().size(delta)

        def project(self, delta, eps):
            return delta

        def random(self, like, eps, generator):
            return like

        def ascend(self, gradient):
            return gradient.sign()

        def rounding(self, delta):
            return 1e-12

    with pytest.raises(AssertionError, match=r"runaway: an image left the ball of radius 0\.1"):
        Runaway(norm=Broken())(linear(), *batch())


# Images that are wrong already


@pytest.mark.parametrize("attack", [*bounded(EPS), *UNBOUNDED], ids=title)
def test_wrong_images_are_left(attack):
    model, (x, _) = linear(), batch()
    y = model(x).argmax(1)
    y[::2] = (y[::2] + 1) % 3
    result = attack(model, x, y)
    assert result.success[::2].all()
    assert torch.equal(result.images[::2], x[::2])
    assert result.l2[::2].max() == 0


class Crowd(nn.Module):
    """Every image is judged beside the mean of its batch, as in a graph; remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.net = linear()
        self.shown: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.shown.append(images.detach())
        return self.net(images) + self.net(images).mean(0)


def test_wrong_images_are_left_in_every_call():
    model, (x, _) = Crowd(), batch()
    y = model(x).argmax(1)
    y[0] = (y[0] + 1) % 3
    model.shown.clear()
    PGD(EPS, steps=3)(model, x, y)
    assert len(model.shown) > 4
    assert all(torch.equal(shown[0], x[0]) for shown in model.shown)
    assert not all(torch.equal(shown[1:], x[1:]) for shown in model.shown)


def test_best_as_a_whole_where_images_depend_on_each_other():
    """Either image can be fooled beside the clean other one, but not both: no mixture is better than an iterate."""

    class Seesaw(nn.Module):
        def forward(self, images):
            score = images.sum(1)
            rival = score.flip(0)
            # An image is wrong only while it is brighter than the other by a margin.
            return torch.stack([torch.full_like(score, 0.1), score - rival], 1)

    x, y = torch.full((2, 1), 0.5, dtype=torch.float64), torch.zeros(2, dtype=torch.long)
    result = PGD(0.4, steps=10, restarts=3, objective=Margin())(Seesaw(), x, y)
    assert result.success.sum() == 1


# Zero gradients, and what is counted


class Rounded(nn.Module):
    """A model whose gradient is zero everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.net = linear()

    def forward(self, images: Tensor) -> Tensor:
        return self.net((images * 4).round() / 4)


class Detached(Rounded):
    def forward(self, images: Tensor) -> Tensor:
        return self.net(images.detach())


class NoGradient(Rounded):
    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        return self.net(images)


class InferenceMode(Rounded):
    def forward(self, images: Tensor) -> Tensor:
        with torch.inference_mode():
            return self.net(images)


class Hard(Rounded):
    """Depends on its parameters, and on its images by a decision alone."""

    def forward(self, images: Tensor) -> Tensor:
        weight = self.net[1].weight
        return nn.functional.one_hot(self.net(images).argmax(1), 3) * weight.abs().sum()


@pytest.mark.parametrize("attack", [*bounded(EPS), *UNBOUNDED], ids=title)
def test_a_zero_gradient_is_no_accident(attack):
    victim, (x, _) = Rounded(), batch()
    y = victim(x).argmax(1)
    result = attack(victim, x, y)
    assert torch.isfinite(result.images).all()
    if not isinstance(attack, Square):
        assert result.zero_gradients == 1
    if isinstance(attack, FGSM):
        assert torch.equal(result.images, x)


@pytest.mark.parametrize("attack", [*bounded(EPS), *UNBOUNDED], ids=title)
@pytest.mark.parametrize("model", [Detached, NoGradient, InferenceMode, Hard])
def test_no_gradient_is_no_robustness(attack, model):
    victim, (x, _) = model(), batch()
    y = victim(x).argmax(1)
    if isinstance(attack, Square):  # needs none
        assert math.isnan(attack(victim, x, y).zero_gradients)
        return
    with pytest.raises(ValueError, match=r"logits do not depend on its images .* Square, or Transfer"):
        attack(victim, x, y)


def test_share_of_zero_gradients():
    class Half(nn.Module):
        def forward(self, images):
            blocked = torch.where((torch.arange(len(images)) % 2 == 0)[:, None], images.detach(), images)
            return torch.stack([blocked.sum(1), -blocked.sum(1)], 1)

    x, y = torch.rand(8, 3), torch.zeros(8, dtype=torch.long)
    attacks = (FGSM(EPS), IFGSM(EPS, 0.01), PGD(EPS, 2), CarliniWagnerPaper(1.0, steps=2), CarliniWagner(1, 2))
    assert [attack(Half(), x, y).zero_gradients for attack in attacks] == [0.5] * 5
    y[::2] = 1  # wrong already: only the others are counted
    assert FGSM(EPS)(Half(), x, y).zero_gradients == 0
    assert math.isnan(Square(EPS, 3)(Half(), x, y).zero_gradients)
    assert math.isnan(FGSM(EPS)(Half(), x, 1 - torch.zeros_like(y)).zero_gradients)  # none to attack


# What is refused


def test_refused_images(as_user):
    model, (x, y) = linear(), batch()
    refusals = [
        (x * 2, y, r"pixels must be in \[0, 1\], got .* has to normalise inside"),
        (x - 0.5, y, r"pixels must be in \[0, 1\]"),
        (x * math.nan, y, r"pixels must be in \[0, 1\], got nan"),
        ((x * 255).byte(), y, r"float32 or float64, got torch.uint8 \(bytes: images.float\(\) / 255\)"),
        (x.half(), y, r"float32 or float64, got torch.float16 \(images.float\(\)\)"),
        (x[:0], y[:0], "at least one pixel"),
        (x[0, 0, 0], y[:4], r"shape \(n, \.\.\.\)"),
        (x, y[:2], "labels must be 6 integer classes"),
        (x, y.double(), "labels must be 6 integer classes"),
        (x, y + 5, r"labels go up to 7, but the model has 3 classes"),
        (x, y - 1, "leave unlabelled images out"),
    ]
    for images, labels, message in refusals:
        with pytest.raises(ValueError, match=message):
            FGSM(EPS)(model, images, labels)
    for eps in (-0.1, math.nan):
        with pytest.raises(ValueError, match="eps must be ≥ 0"):
            FGSM(eps)(model, x, y)


class Answers(nn.Module):
    def __init__(self, answer) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, images):
        return self.answer(images)


def test_refused_models(as_user):
    x, y = batch()
    for answer, message in [
        (lambda x: x.sum((1, 2, 3)), r"logits of shape \(6, classes\), got \(6,\)"),
        (lambda x: (x,), "got tuple"),
        (lambda x: x.flatten(1)[:, :1], r"got \(6, 1\)"),
        (lambda x: x.flatten(1)[:, :3].new_zeros(6, 3).log(), "not finite for 6 of 6 images; log-probabilities need"),
        (lambda x: (x.flatten(1)[:, :3] * 0).sqrt() + torch.eye(3)[y], "gradient is not finite for .* larger floor"),
    ]:
        with pytest.raises(ValueError, match=message):
            FGSM(EPS)(Answers(answer), x, y)


def test_training_mode_is_left_and_warned_about():
    x, y = batch()
    plain = linear().train()
    FGSM(EPS)(plain, x, y)  # nothing in it depends on the mode
    assert plain.training
    noisy = nn.Sequential(nn.Dropout(), linear()).train()
    with pytest.warns(UserWarning, match=r"attack it after model\.eval"):
        FGSM(EPS)(noisy, x, y)
    assert noisy.training


def test_parameters_and_arguments_are_left():
    model, (x, y) = linear(), batch()
    before = x.clone()
    with torch.no_grad():  # gradients are asked for all the same
        result = PGD(EPS, steps=3)(model, x, y)
    assert result.zero_gradients == 0
    assert torch.equal(x, before)
    assert not x.requires_grad
    assert all(p.grad is None for p in model.parameters())
    assert not result.images.requires_grad


def test_random_numbers_come_from_the_generator():
    model, (x, y) = linear(), batch()
    y = model(x).argmax(1)
    for attack in (PGD(EPS, 1, best=False), PGD(EPS, 1, best=False, norm=L2()), Square(1e-3, 2)):
        one, again = (attack(model, x, y).images for _ in range(2))
        other = attack(model, x, y, generator=torch.Generator().manual_seed(1))
        assert torch.equal(one, again)
        assert not torch.equal(one, other.images)
        assert other.settings["seed"] == 1


def test_settings_can_be_written_and_tell_attacks_apart():
    attacks = [*bounded(EPS), *UNBOUNDED]
    written = {json.dumps([attack.name, attack.settings()], allow_nan=False) for attack in attacks}
    assert len(written) == len(attacks)
    assert PGD(0.2, steps=10).settings()["step_size"] == 0.05
    assert CarliniWagner().settings()["eps"] is None
    assert FGSM(0.1).settings() == {"eps": 0.1, "norm": {"name": "LInf", "scale": 1.0}, "objective": "CrossEntropy"}


def test_a_tie_for_the_first_place_is_not_a_right_answer() -> None:
    class Undecided(torch.nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return torch.zeros(len(images), 3) + 0 * images.sum()

    images, labels = torch.full((3, 4), 0.5), torch.arange(3)
    attacked = FGSM(0.1)(Undecided(), images, labels)
    assert attacked.error == 1.0
    assert bool((attacked.predicted != labels).all())
