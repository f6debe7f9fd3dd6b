"""scikit-learn's own checks of an estimator, all of them, none expected to fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from gll.estimator import GraphLearningClassifier

ESTIMATORS = [
    GraphLearningClassifier(),
    GraphLearningClassifier("laplace", metric="cosine", method_options={"tau": 0.01}),
    GraphLearningClassifier("poisson", n_neighbors=5),
    GraphLearningClassifier("soft", metric="precomputed"),
    GraphLearningClassifier("nearest", search="exact"),
]


# Two warnings of ours are right here: fewer points than neighbours, and a y of -1 and 1 alone.
@pytest.mark.filterwarnings("ignore:n_neighbors = :UserWarning")
@pytest.mark.filterwarnings("ignore:y holds -1 and 1 only:UserWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
