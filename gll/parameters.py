"""What parameters of the classifier mean: names become objects, and what means nothing is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gll.methods import AbstractMethod, method_from_name
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.projected import AutoSearch, Projected


def method_of(method: Any, options: Any) -> AbstractMethod:
    """The method of that name with these options, or the method itself."""
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"method_options must be a dictionary such as {{'tau': 0.01}}, got {options!r}")
    if isinstance(method, AbstractMethod):
        if options:
            raise ValueError("method_options go with a method's name; give the object its options itself")
        return method
    # NumPy's numbers, as in a grid of np.logspace, become Python's: methods know these and tensors.
    plain = {
        k: v.item() if isinstance(v, np.generic | np.ndarray) and v.ndim == 0 else v for k, v in (options or {}).items()
    }
    return method_from_name(method, **plain)


def search_of(search: Any, seed: Callable[[], int]) -> AbstractNeighborSearch:
    """The search of that name, or the search itself."""
    if isinstance(search, AbstractNeighborSearch):
        return search
    if search == "exact":
        return Exact()
    if search == "auto":
        return AutoSearch(projected=Projected(seed=seed()))
    raise ValueError(f"search must be 'auto', 'exact', or an object such as gll.Faiss(), got {search!r}")


def prior_of(prior: Any, classes: NDArray[Any], device: torch.device) -> Tensor | None:
    """(C,) the wanted shares in the order of the classes; None for no correction."""
    if prior is None:
        return None
    if isinstance(prior, Mapping):
        missing = [c for c in classes.tolist() if c not in prior]
        strange = [c for c in prior if c not in classes.tolist()]
        if missing or strange:
            raise ValueError(
                f"class_prior must name every class once: {missing} are missing, {strange} are not classes"
            )
        prior = [prior[c] for c in classes.tolist()]
    value = np.asarray(prior, dtype=np.float64)
    if value.shape != (len(classes),):
        raise ValueError(f"class_prior needs one number for each of the {len(classes)} classes, got {value.shape}")
    return torch.from_numpy(value).to(device)
