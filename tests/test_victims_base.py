"""The base of a victim is looked at when the victim is made, and the encoder's mode is left as it is."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gll.attacks.gradient import FGSM
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.threat import ThreatModel
from gll.nn.layer import GraphLearningLayer

CLASSES = 3


def images(m: int = 12) -> tuple[Tensor, Tensor]:
    y = torch.arange(m) % CLASSES
    x = 0.3 * torch.rand(m, 1, 2, 2)
    x[:, 0, 0, 0] += 0.3 * y
    return x, y


def make(base: Any, labels: Any, encoder: nn.Module | None = None, **options: Any) -> GraphVictim:
    return GraphVictim(encoder or nn.Flatten(), GraphLearningLayer(CLASSES, k=3), base, labels, **options)


def test_a_base_that_could_not_classify_is_refused(as_user):
    x, y = images()
    soft = nn.functional.one_hot(y, CLASSES).float()
    for base, labels, kind, message in [
        (255 * x, y, ValueError, r"base's pixels must be in \[0, 1\], got .* mean and std to normalise inside"),
        (x - 0.5, y, ValueError, r"base's pixels must be in \[0, 1\]"),
        ((255 * x).byte(), y, ValueError, r"floating point, got torch.uint8 \(bytes: base.float\(\) / 255\)"),
        (x * math.nan, y, ValueError, "base's images are not finite: 48 values"),
        (x[:0], y[:0], ValueError, r"at least one, got \(0, 1, 2, 2\)"),
        (x.numpy(), y, TypeError, "two tensors, images and labels, got ndarray and Tensor"),
        (x, y.tolist(), TypeError, "two tensors, images and labels, got Tensor and list"),
        (x, y[:5], ValueError, "12 base samples need as many labels, got labels of shape"),
        (x, y + 1, ValueError, "must be classes 0 to 2, or -1 for none, .*; got 1 to 3"),
        (x, y - 2, ValueError, "got -2 to 0"),
        (x, torch.full_like(y, -1), ValueError, "not -1 throughout; got -1 to -1"),
        (x, y.float(), ValueError, "integer classes, got torch.float32"),
        (x, soft[:, :2], ValueError, r"soft labels of the base must be finite numbers of shape \(12, 3\)"),
        (x, soft / 0, ValueError, "soft labels of the base must be finite"),
    ]:
        with pytest.raises(kind, match=message):
            make(base, labels)
    victim = make(x, y)
    for base, labels, message in [
        (2 * x, y, "base's pixels"),
        (x, y + 1, "got 1 to 3"),
        (x[:5], None, "as many labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            victim.with_base(base, labels)
    with pytest.raises(TypeError, match=r"threat must be a ThreatModel, .* got 'alone'"):
        make(x, y, threat="alone")
    for flat in (x.flatten(1) * math.inf, x.flatten(1) * math.nan):
        with pytest.raises(ValueError, match="base's features are not finite"):
            make(flat, y, base_is_features=True)
    with pytest.raises(ValueError, match=r"one row a sample, got \(12, 1, 2, 2\)"):
        make(x, y, nn.Identity())
    with pytest.raises(ValueError, match="48 values that are not finite"):
        make(x, y, nn.Sequential(nn.Flatten(), nn.Threshold(2.0, math.inf)))


def test_what_is_allowed():
    x, y = images()
    y[0] = -1
    assert make(x + 5e-7, y)(x).shape == (12, CLASSES)  # outside by rounding; one without a label
    assert make(7 * x.flatten(1), y)(7 * x.flatten(1)).isfinite().all()  # points, which may be anything
    assert make(x.flatten(1), y, base_is_features=True)(x).isfinite().all()


def test_the_base_is_a_copy():
    x, y = images()
    victim = make(x.flatten(1), y, base_is_features=True)
    before = victim(x)
    x2 = x.clone()
    x.zero_()
    y.zero_()
    torch.testing.assert_close(victim(x2), before)


def test_the_encoders_mode_is_its_own():
    x, y = images()
    encoder = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 8), nn.Dropout(0.5)).train()
    surrogate = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, CLASSES)).train()
    means = encoder[1].running_mean.clone()
    victim = make(x, y, encoder, surrogate=surrogate)
    assert torch.equal(victim(x), victim(x))
    FGSM(0.1)(victim, x, y)  # a warning would be an error here
    assert all(part.training for part in [*encoder.modules(), *surrogate.modules()])
    assert torch.equal(encoder[1].running_mean, means)
    in_training = victim(x)
    encoder.eval()
    torch.testing.assert_close(victim(x), in_training)
    assert not encoder.training


def test_a_victim_made_in_inference_mode_has_gradients():
    x, y = images()
    with torch.inference_mode():
        victim = make(x, y, nn.Sequential(nn.Flatten(), nn.Tanh()), threat=ThreatModel("images"))
    assert FGSM(0.1)(victim, x, y).zero_gradients < 1
