"""Probabilities that mean what they say: how far off they are, and one number that mends most of it.

Of the points that are given a probability of 0.8, eight in ten should be right. `reliability` counts whether that is
so, `expected_calibration_error` puts it into one number. A *temperature* T > 0 changes how sure probabilities are and
never which class is the largest:

    p_T = softmax(log p / T),        T < 1 sharpens, T > 1 flattens, T = 1 changes nothing.

T is fitted on labels that were held out (`hold_out` says which), by their likelihood. In β = 1/T the negative
log-likelihood is convex, so there is one best T; it is searched in log T.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

FLOOR = 1e-8  # added before the logarithm, as in the layer: a probability of zero is not taken at its word
BOUNDS = (0.02, 50.0)  # of the temperature


@dataclass(frozen=True, eq=False)
class Reliability:
    """How often predictions of a given confidence are right: what a reliability diagram shows.

    Args:
        edges: (bins + 1,) of the bins of confidence.
        count: (bins,) predictions in every bin.
        confidence, accuracy: (bins,) their mean confidence and the share that is right; NaN in empty bins.
        error: the expected calibration error, Σ (count / n) |accuracy - confidence|.
    """

    edges: NDArray[np.float64]
    count: NDArray[np.int64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    error: float


def reliability(probability: Any, y: Any, bins: int = 15) -> Reliability:
    """Confidence against accuracy, in bins of equal width (a, b] over the confidence, the largest probability of a row.

    Args:
        probability: (n, C) rows that sum to one; NumPy or torch.
        y: (n,) the true classes as integers 0 .. C-1, the columns of `probability`.
        bins: number of bins.

    >>> report = reliability([[0.9, 0.1], [0.7, 0.3]], [0, 1], bins=2)
    >>> report.count.tolist(), f"{report.confidence[1]:.1f}", f"{report.accuracy[1]:.1f}"
    ([0, 2], '0.8', '0.5')
    """
    p, target = _checked(probability, y)
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    confidence, right = p.max(1), p.argmax(1) == target
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    some = np.where(count > 0, count, 1)
    mean = np.where(count > 0, np.bincount(place, confidence, bins) / some, np.nan)
    share = np.where(count > 0, np.bincount(place, right, bins) / some, np.nan)
    error = float(np.nansum(count * np.abs(share - mean)) / len(target))
    return Reliability(edges, count, mean, share, error)


def expected_calibration_error(probability: Any, y: Any, bins: int = 15) -> float:
    """Mean gap between confidence and accuracy, Σ_bins (n_bin / n) |accuracy - confidence|: 0 is calibrated.

    Args:
        probability, y, bins: as in `reliability`.

    >>> f"{expected_calibration_error([[0.9, 0.1], [0.7, 0.3]], [0, 1], bins=2):.1f}"
    '0.3'
    """
    return reliability(probability, y, bins).error


def _checked(probability: Any, y: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    p, target = (np.asarray(a.detach().cpu() if isinstance(a, Tensor) else a) for a in (probability, y))
    if p.ndim != 2 or target.shape != p.shape[:1] or 0 in p.shape:
        raise ValueError(f"probability must be (n, C) and y (n,), with n ≥ 1; got {p.shape} and {target.shape}")
    if target.dtype.kind not in "iu" or target.min() < 0 or target.max() >= p.shape[1]:
        raise ValueError(f"y must hold integer classes 0 .. {p.shape[1] - 1}, the columns of probability")
    p = p.astype(np.float64)
    if not np.isfinite(p).all() or p.min() < 0 or np.abs(p.sum(1) - 1).max() > 1e-3:
        raise ValueError("rows of probability must be non-negative, finite, and sum to one")
    return p, target.astype(np.int64)


def tempered(probability: Float[Tensor, "n c"], temperature: float) -> Float[Tensor, "n c"]:
    """softmax(log(p + floor) / T); T = 1 returns p itself, so that certain labels stay certain.

    Differentiable in: `probability`.

    >>> tempered(torch.tensor([[0.8, 0.2]]), 0.5).mul(17).round().tolist()
    [[16.0, 1.0]]
    """
    if temperature == 1:
        return probability
    return torch.softmax(torch.log(probability + FLOOR) / temperature, 1)


def fit_temperature(probability: Float[Tensor, "n c"], target: Int[Tensor, " n"]) -> float:
    """The temperature under which held-out classes are the most likely.

    Platt's correction keeps it finite: if all n predictions are right, the best T would be 0. So the target is not 1
    but (n + 1)/(n + 2), with the rest spread over the other classes.

    Args:
        probability: (n, C) predictions made without looking at the labels.
        target: (n,) the labels, as columns.

    Differentiable in: nothing.

    >>> fit_temperature(torch.tensor([[0.99, 0.01]] * 10), torch.tensor([0, 1] * 5)) > 10
    True
    """
    n, classes = probability.shape
    if n == 0 or classes < 2:
        raise ValueError("a temperature needs at least one held-out label and two classes")
    logit = torch.log(probability.detach().double().cpu() + FLOOR)
    soft = torch.full_like(logit, 1 / ((n + 2) * (classes - 1)))
    soft[torch.arange(n), target.cpu()] = (n + 1) / (n + 2)

    def loss(log_temperature: float) -> float:
        return -float((soft * torch.log_softmax(logit * float(np.exp(-log_temperature)), 1)).sum())

    low, high = np.log(BOUNDS)
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6})
    # A likelihood that does not depend on T (uniform predictions) must not move it.
    return float(np.exp(found.x)) if loss(found.x) < loss(0.0) else 1.0


def hold_out(target: NDArray[np.int64], folds: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Positions of labels to hide, fold by fold, spread over the classes; every class keeps a label in every fold.

    Args:
        target: (m,) classes of the labelled points.
        folds: number of folds; fewer come where there are not enough labels.
        seed: of the shuffle.

    A class with a single label is never hidden.

    >>> [sorted(fold.tolist()) for fold in hold_out(np.array([0, 0, 1, 1, 2]), 2, seed=0)]
    [[1, 2], [0, 3]]
    """
    rng = np.random.default_rng(seed)
    place = np.full(len(target), -1)
    for c in np.unique(target):
        mine = rng.permutation(np.flatnonzero(target == c))
        if len(mine) > 1:
            place[mine] = (np.arange(len(mine)) + rng.integers(folds)) % folds
    for fold in range(folds):
        hidden = np.flatnonzero(place == fold)
        if len(hidden):
            yield hidden
