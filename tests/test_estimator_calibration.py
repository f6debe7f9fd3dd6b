"""Calibration: planted temperatures are found, errors agree with sums by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gll.calibration import expected_calibration_error, fit_temperature, hold_out, reliability, tempered


def test_error_of_a_case_by_hand() -> None:
    # Bins of width 0.2. (0.4, 0.6]: 0.6 wrong. (0.6, 0.8]: 0.7 right, 0.8 wrong. (0.8, 1]: 0.9 right.
    p = np.array([[0.6, 0.4], [0.7, 0.3], [0.2, 0.8], [0.9, 0.1]])
    y = np.array([1, 0, 0, 0])
    expected = (1 * abs(0 - 0.6) + 2 * abs(0.5 - 0.75) + 1 * abs(1 - 0.9)) / 4
    assert expected_calibration_error(p, y, bins=5) == pytest.approx(expected, abs=1e-12)
    assert expected_calibration_error(torch.tensor(p), torch.tensor(y), bins=5) == pytest.approx(expected, abs=1e-12)
    report = reliability(p, y, bins=5)
    assert report.count.tolist() == [0, 0, 1, 2, 1]
    np.testing.assert_allclose(report.confidence[2:], [0.6, 0.75, 0.9])
    np.testing.assert_allclose(report.accuracy[2:], [0.0, 0.5, 1.0])
    assert np.isnan(report.accuracy[:2]).all()


def test_calibrated_predictions_have_a_small_error_and_overconfident_ones_a_large_one() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), 40_000)
    y = (rng.random((40_000, 1)) > p.cumsum(1)).sum(1)
    assert expected_calibration_error(p, y) < 0.01
    sharp = tempered(torch.from_numpy(p), 0.3).numpy()
    assert expected_calibration_error(sharp, y) > 0.15


@pytest.mark.parametrize("planted", [0.3, 1.0, 2.0, 3.0])
def test_a_planted_temperature_is_found(planted: float) -> None:
    rng = np.random.default_rng(1)
    truth = torch.from_numpy(rng.dirichlet(np.ones(5), 20_000))
    y = torch.from_numpy((rng.random((20_000, 1)) > truth.numpy().cumsum(1)).sum(1).clip(max=4))
    shown = torch.softmax(truth.log() * planted, 1)  # so that dividing by `planted` brings the truth back
    assert fit_temperature(shown, y) == pytest.approx(planted, rel=0.03)


def test_the_temperature_minimises_the_likelihood_on_a_grid() -> None:
    rng = np.random.default_rng(2)
    p = torch.from_numpy(rng.dirichlet(np.ones(3), 50))
    y = torch.from_numpy(rng.integers(0, 3, 50))
    target = torch.full((50, 3), 1 / (52 * 2), dtype=torch.float64)
    target[torch.arange(50), y] = 51 / 52

    def loss(t: float) -> float:
        return -float((target * (tempered(p, t) + 1e-300).log()).sum())

    best = fit_temperature(p, y)
    assert loss(best) <= min(loss(t) for t in np.geomspace(0.02, 50, 400)) + 1e-6


def test_perfect_and_hopeless_predictions_stay_finite() -> None:
    sure = torch.eye(2, dtype=torch.float64).repeat(5, 1)
    right = torch.arange(10) % 2
    assert 0.02 <= fit_temperature(sure, right) <= 50
    assert fit_temperature(sure, 1 - right) > 10
    assert fit_temperature(torch.full((10, 2), 0.5), right) == 1
    assert torch.isfinite(tempered(sure, 0.02)).all()


@given(st.integers(0, 1000), st.integers(2, 6))
def test_folds_hide_every_label_once_and_never_a_whole_class(seed: int, folds: int) -> None:
    target = np.random.default_rng(seed).integers(0, 4, 15)
    hidden = list(hold_out(target, folds, seed))
    everything = np.concatenate(hidden) if hidden else np.array([], int)
    counts = np.bincount(target, minlength=4)
    assert sorted(everything) == sorted(np.flatnonzero(counts[target] > 1))
    for fold in hidden:
        left = np.bincount(np.delete(target, fold), minlength=4)
        assert (left[counts > 0] > 0).all()


def test_wrong_arguments_have_messages(as_user: None) -> None:
    with pytest.raises(ValueError, match="sum to one"):
        expected_calibration_error([[0.5, 0.6]], [0])
    with pytest.raises(ValueError, match=r"integer classes 0 \.\. 1"):
        expected_calibration_error([[0.5, 0.5]], [2])
    with pytest.raises(ValueError, match=r"got \(1, 2\) and \(2,\)"):
        expected_calibration_error([[0.5, 0.5]], [0, 1])
    with pytest.raises(ValueError, match="bins must be at least 1"):
        reliability([[0.5, 0.5]], [0], bins=0)
    with pytest.raises(ValueError, match="at least one held-out label"):
        fit_temperature(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
