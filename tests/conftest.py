"""What every test shares: one thread, a fixed seed, the devices, and a hypothesis profile without a deadline."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import hypothesis
import jaxtyping
import pytest
import torch

torch.set_num_threads(1)

# "repeatable" draws the same examples every time; set HYPOTHESIS_PROFILE=explore to look for new ones.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a CUDA device; skipped where there is none")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The CPU, and the GPU where there is one."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


@contextmanager
def _gpu_waits(mode: str) -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # "Synchronization debug mode is a prototype feature": as an error it would leave the mode on for later tests.
        warnings.filterwarnings("ignore", "Synchronization debug mode", UserWarning)
        torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@pytest.fixture
def gpu_waits() -> Callable[[str], AbstractContextManager[None]]:
    """`with gpu_waits("error")`: where the CPU waits for the GPU, there is an error ("warn": a warning)."""
    return _gpu_waits


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def as_user() -> Iterator[None]:
    """Without the run-time type checks of the test suite, which would speak before the library's own error messages."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
