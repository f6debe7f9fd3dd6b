"""What `gll fit` does: files in, a fitted classifier, its summary, and files out.

Everything is checked before the work begins, and written after all of it is done: files appear complete, all of them
or none. Read `feature_files.py` and `label_files.py` for what the input may be, `fit_outcome.py` for what is found.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from gll.estimator import PRECOMPUTED, GraphLearningClassifier
from gll.feature_files import read_features
from gll.files import complete_file
from gll.fit_outcome import Outcome, result_arrays, summarise
from gll.fit_request import Request, check_options, check_outputs
from gll.input_files import InputError
from gll.label_files import labels_inside, read_labels
from gll.prior_option import read_prior
from gll.solution import SolveError
from gll.unreached import UnreachedWarning

__all__ = ["Outcome", "Request", "fit", "write"]


def fit(request: Request, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Read the files and fit the classifier; writes nothing.

    Args:
        request: what is asked for.
        tell: called with what was understood, as it becomes known.

    Raises:
        InputError: something about the input is wrong; the message says what.
    """
    check_options(request)
    check_outputs(request)
    features = read_features(request.features, request.key)
    tell(f"{request.features.name}: {features}")
    label_file = request.labels
    if label_file is None:
        if not labels_inside(features):
            raise InputError(f"there are no labels: {features.path} has no array of labels, and --labels names no file")
        label_file = request.features
    labels = read_labels(label_file, features)
    tell(f"{label_file.name}: {labels}")
    if request.metric != PRECOMPUTED and request.neighbors >= len(features):
        raise InputError(
            f"--neighbors {request.neighbors} needs more than {request.neighbors} points, but there are "
            f"{len(features)}: use at most {len(features) - 1}"
        )
    prior = None if request.class_prior is None else read_prior(request.class_prior, labels.classes)
    model = GraphLearningClassifier(
        request.method,
        n_neighbors=request.neighbors,
        metric=request.metric,
        class_prior=prior,
        unreached=request.unreached,
        calibrate=request.calibrate,
        device=request.device,
        random_state=request.seed,
        verbose=int(request.verbose),
    )
    notes = list(labels.notes)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            model.fit(features.value, labels.y)
        except (SolveError, torch.OutOfMemoryError, MemoryError) as error:
            raise InputError(_told(error)) from error
        except ValueError as error:
            raise InputError(str(error)) from error
    kinds = [w for w in heard if issubclass(w.category, UserWarning) and not issubclass(w.category, UnreachedWarning)]
    notes += dict.fromkeys(str(w.message) for w in kinds)
    return summarise(
        request, features, labels, model, notes, {str(p): _sha256(p) for p in (request.features, label_file)}
    )


def write(outcome: Outcome) -> list[Path]:
    """Write the files that were asked for, all of them or none, and return their names."""
    r = outcome.request
    check_outputs(r)  # again: something may have appeared there meanwhile
    with ExitStack() as files:
        # Every file is complete under its temporary name before the first of them gets its own.
        if r.out is not None:
            with files.enter_context(complete_file(r.out)).open("wb") as file:
                np.savez(file, **result_arrays(outcome))  # type: ignore[arg-type]  # NumPy's stub mixes names and options
        if r.report is not None:
            from gll.report import page

            files.enter_context(complete_file(r.report)).write_text(page(outcome), encoding="utf-8")
        if r.save is not None:
            outcome.model.save(files.enter_context(complete_file(r.save)))
    return [path for path in (r.out, r.report, r.save) if path is not None]


def _told(error: BaseException) -> str:
    if isinstance(error, SolveError):
        return f"the solve failed: {error}"
    return "there is not enough memory for this; use fewer points or dimensions (a PCA before), or fewer neighbours"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
