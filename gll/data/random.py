"""Random numbers that are derived, never stored: what is drawn depends on a seed and on what it is drawn for.

A run that was killed therefore continues exactly, without the state of any generator: the augmentation of epoch 7, step
12 is drawn from `generator(seed, "augment", 7, 12)`, whatever happened before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral

import torch


def derived_seed(seed: int, *keys: int | str) -> int:
    """A whole number in 0 .. 2⁶³ - 1 that is a hash of the seed and the keys, the same on every machine.

    Args:
        seed: the seed of the run.
        keys: what the numbers are for. The number 1 and the text "1" are different keys.

    >>> derived_seed(0, "augment", 3) == derived_seed(0, "augment", 3)
    True
    >>> derived_seed(0, "augment", 3) == derived_seed(0, "augment", 4)
    False

    Differentiable in: nothing.
    """
    for key in (seed, *keys):
        if isinstance(key, bool) or not isinstance(key, int | str | Integral):
            raise TypeError(f"keys are whole numbers and texts, got {key!r} of type {type(key).__name__}")
    # JSON, since it tells 1 from "1", and ["a", "b"] from ["ab"].
    text = json.dumps([key if isinstance(key, str) else int(key) for key in (seed, *keys)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *keys: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """A new generator for one purpose; the CPU and a GPU draw different numbers from the same seed.

    Args:
        seed: the seed of the run.
        keys: what the numbers are for, e.g. `generator(seed, "augment", epoch, step)`.
        device: where numbers will be drawn.

    >>> a, b = generator(0, "order", 1), generator(0, "order", 1)
    >>> bool((torch.randperm(9, generator=a) == torch.randperm(9, generator=b)).all())
    True

    Differentiable in: nothing.
    """
    return torch.Generator(device).manual_seed(derived_seed(seed, *keys))


@contextmanager
def own_random_state() -> Iterator[None]:
    """Whatever is seeded and drawn inside, PyTorch's own generators are as before at the end, on all devices.

    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> expected = torch.rand(1)
    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> with own_random_state():
    ...     drawn = torch.manual_seed(5)
    >>> torch.equal(torch.rand(1), expected)
    True
    """
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else range(0)
    with torch.random.fork_rng(gpus):
        yield
