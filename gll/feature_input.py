"""The X of scikit-learn, and its weights: NumPy, pandas, SciPy or torch in, a checked tensor or CSR matrix out."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import sklearn
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from gll.fitted import find_device
from gll.points import KnownSimilarities, check_similarities
from gll.sparse import canonical

PRECOMPUTED = "precomputed"
DENSE_BYTES = 2**30  # sparse features are made dense up to this size


def read_x(model: BaseEstimator, X: Any, *, fitted: bool) -> tuple[dict[str, Any], Any]:
    """X checked, as a tensor or as CSR; and what it says about its columns. Changes nothing on the model.

    Args:
        model: the classifier.
        X: as it was handed in.
        fitted: check it against what the model was fitted to; otherwise it is to be fitted.
    """
    # scikit-learn's validation sets attributes: let it do so on another object.
    probe = model if fitted else type(model)(metric=model.metric)
    precomputed = isinstance(model._fitted.points, KnownSimilarities) if fitted else model.metric == PRECOMPUTED
    if isinstance(X, Tensor) and X.layout == torch.strided and not precomputed:
        x: Any = X.detach()
        if x.dim() != 2 or 0 in x.shape:
            raise ValueError(f"X must be a 2d tensor with at least one sample and feature, got {tuple(x.shape)}")
        if x.is_complex():
            raise ValueError("Complex data not supported")
        if x.dtype not in (torch.float32, torch.float64):
            x = x.to(torch.float32 if x.is_floating_point() else torch.float64)
        _check_columns(probe, x.shape[1], fitted)
    else:
        if isinstance(X, Tensor):
            X = _tensor_to_scipy(X)
        if precomputed and isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind == "f":
            check_similarities(canonical(X))  # before the shape: what is not a number is the worse mistake
        x = _validate(probe, X, reset=not fitted)
    if precomputed:
        x = canonical(x)
        check_similarities(x)
        if not fitted and x.shape[0] != x.shape[1]:
            raise ValueError(f"a precomputed X must be a square matrix of similarities, got shape {x.shape}")
    elif scipy.sparse.issparse(x):
        x = canonical(x)
        finite = np.isfinite(x.data)
        if not finite.all():
            _raise_nonfinite(np.unique(np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))[~finite]), x.shape[0])
        if not fitted and x.shape[0] * x.shape[1] * x.dtype.itemsize <= DENSE_BYTES:
            x = x.toarray()
    if isinstance(x, np.ndarray):
        x = torch.from_numpy(np.ascontiguousarray(x) if x.flags.writeable else np.array(x))
    if isinstance(x, Tensor):
        if model.device is not None:
            x = x.to(find_device(model.device))
        if not bool(torch.isfinite(x.sum())) and not bool(torch.isfinite(x).all()):
            _raise_nonfinite(torch.nonzero(~torch.isfinite(x).all(1)).flatten().cpu().numpy(), len(x))
    return columns_of(probe), x


def read_weights(sample_weight: Any, n: int) -> NDArray[np.float64]:
    """(n,) what every row counts, not negative and not all zero; ones where nothing is given."""
    if sample_weight is None:
        return np.ones(n)
    if isinstance(sample_weight, Tensor):
        sample_weight = sample_weight.detach().cpu().numpy()
    weight: NDArray[np.float64] = _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64)
    if (weight < 0).any():
        raise ValueError(f"sample_weight must not be negative, but {int((weight < 0).sum())} entries are")
    if not weight.any():
        raise ValueError("sample_weight is zero everywhere: no row counts")
    return weight


def columns_of(model: BaseEstimator) -> dict[str, Any]:
    """What scikit-learn notes about the columns of X."""
    names = ["n_features_in_", "feature_names_in_"]
    return {name: model.__dict__[name] for name in names if name in model.__dict__}


def _validate(probe: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """scikit-learn's checks of X, under the names of its versions; finiteness is checked by us, which says where."""
    setting = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "reset": reset}
    if tuple(int(part) for part in sklearn.__version__.split(".")[:2]) >= (1, 6):
        from sklearn.utils.validation import validate_data

        return validate_data(probe, X, ensure_all_finite=False, **setting)
    return probe._validate_data(X, force_all_finite=False, **setting)


def _check_columns(probe: BaseEstimator, columns: int, fitted: bool) -> None:
    if not fitted:
        probe.n_features_in_ = columns
    elif columns != probe.n_features_in_:
        raise ValueError(
            f"X has {columns} features, but GraphLearningClassifier is expecting {probe.n_features_in_} features "
            "as input"
        )


def _raise_nonfinite(rows: NDArray[np.int64], total: int) -> None:
    raise ValueError(
        f"Input X contains NaN or infinity: {len(rows)} of {total} rows, the first being row {rows[0]}; "
        "remove these rows or fill the gaps"
    )


def _tensor_to_scipy(x: Tensor) -> Any:
    """A torch matrix, dense or sparse, for SciPy."""
    x = x.detach().cpu()
    x = x if x.dtype in (torch.float32, torch.float64) else x.double()
    if x.layout == torch.strided:
        return x.numpy()
    coo = x.to_sparse_coo().coalesce()
    index, value = coo.indices().numpy(), coo.values().numpy()
    return scipy.sparse.coo_matrix((value, (index[0], index[1])), shape=tuple(x.shape)).tocsr()
