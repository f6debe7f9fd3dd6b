"""Labels are hidden in turns and predicted from the others: what the temperature of a classifier is fitted on."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gll.calibration import fit_temperature, hold_out
from gll.labels import Labels
from gll.points import AbstractPoints
from gll.propagation import ClassPriorWarning, Propagation
from gll.unreached import UnreachedWarning

FOLDS = 5  # of the labels


def temperature_from(
    labels: Labels, points: AbstractPoints, seed: int, propagate: Callable[[Labels, Tensor], Propagation]
) -> float:
    """The temperature under which labels that were hidden are the most likely; 1, with a warning, if none can be.

    Args:
        labels: on the nodes.
        points: the nodes.
        seed: of the folds.
        propagate: what is found from some of the labels, and the mask (m,) that says which.
    """
    target = labels.value.argmax(1)
    probability, truth = [], []
    # Folds are drawn from the labels in an order that depends on the points, not on the order of the rows.
    order = np.argsort(points.keys(labels.index), kind="stable")
    for fold in hold_out(target.cpu().numpy()[order], FOLDS, seed):
        hidden = torch.from_numpy(order[fold]).to(target.device)
        seen = torch.ones_like(target, dtype=torch.bool)
        seen[hidden] = False
        part = Labels(labels.index[seen], labels.value[seen])
        with warnings.catch_warnings():
            # Hiding labels may cut nodes off. They are left out here, and are no news for the user.
            warnings.simplefilter("ignore", UnreachedWarning)
            warnings.simplefilter("ignore", ClassPriorWarning)
            once = propagate(part, seen)
        if once.unreached is not None:
            hidden = hidden[~once.unreached[labels.index[hidden]]]
        probability.append(once.probability[labels.index[hidden]])
        truth.append(target[hidden])
    if not sum(map(len, truth)):
        warnings.warn(
            "calibrate=True needs labels that can be hidden: a class with two labels or more; the probabilities "
            "are left as they are",
            UserWarning,
            stacklevel=4,
        )
        return 1.0
    return fit_temperature(torch.cat(probability), torch.cat(truth))
