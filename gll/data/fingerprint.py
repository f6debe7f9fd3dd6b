"""What training data was: enough to tell later whether it still is the same.

A split and a checkpoint speak of samples by their number. If a file is added to a folder, the numbers mean other
samples, and nothing else would notice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gll.data.samples import TrainTest
from gll.words import counted


def fingerprint(data: TrainTest) -> dict[str, Any]:
    """Number and shape, names of the classes, and checksums of the training samples and their classes, for JSON.

    >>> from gll.data.datasets import load
    >>> digits = load("digits")
    >>> found = fingerprint(digits)
    >>> found["samples"], found["shape"], len(found["images"])
    (1442, [1, 8, 8], 64)
    >>> changes(found, fingerprint(digits))
    []
    """
    return {
        "samples": len(data.train),
        "shape": list(data.train.shape[1:]),
        "classes": list(data.classes),
        "images": _checksum(data.train),
        "labels": _checksum(data.train_labels),
    }


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In words, what differs between two fingerprints; empty where nothing does."""
    if before["samples"] != now["samples"]:
        return [f"{counted(now['samples'], 'training sample')} in place of {before['samples']:,}"]
    found = []
    if before["shape"] != now["shape"]:
        found.append(f"samples of shape {tuple(now['shape'])} in place of {tuple(before['shape'])}")
    elif before["images"] != now["images"]:
        found.append("other training samples, or in another order")
    if before["classes"] != now["classes"]:
        found.append("other names of classes")
    elif before["labels"] != now["labels"]:
        found.append("other labels")
    return found


def _checksum(tensor: Tensor) -> str:
    array = tensor.detach().cpu().contiguous().numpy()
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    digest.update(array.data if array.size else b"")
    return digest.hexdigest()
