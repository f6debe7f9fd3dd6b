"""Recorded GPU work: a fixed sequence of operations, launched as one.

A small batch takes a GPU longer to be told what to do than to do it. The second time a batch of the same shapes comes
by, the operations of the fused path are recorded in a CUDA graph; from then on they are launched together.

A recording owns its memory: inputs are copied in, and every launch overwrites what the launch before left there. So
whoever needs the results of a launch later remembers its number (`launches`) and finds out whether they still stand.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

REPEATS = 2  # calls of one kind before it is recorded: recording takes as long as a few dozen of them
KEPT = 4  # recordings per layer; each holds the memory of one forward and backward pass


class Recording:
    """A forward function of tensors, and a backward function of its results and a cotangent, as CUDA graphs.

    The second result is a verdict, a few numbers on which the caller waits.
    """

    def __init__(
        self,
        forward: Callable[..., tuple[Tensor | None, ...]],
        backward: Callable[[Sequence[Tensor | None], Tensor], Tensor],
        inputs: Sequence[Tensor],
    ) -> None:
        self.launches = 0
        self._done = torch.cuda.Event()
        self._inputs = [t.detach().clone() for t in inputs]
        stream = torch.cuda.Stream(device=inputs[0].device)
        stream.wait_stream(torch.cuda.current_stream(inputs[0].device))
        with torch.no_grad(), torch.cuda.stream(stream):
            # Once unrecorded: libraries set themselves up on first use, which cannot be recorded.
            results = forward(*self._inputs)
            assert results[0] is not None
            assert results[1] is not None
            self._told = torch.empty(results[1].shape, dtype=results[1].dtype, pin_memory=True)
            self._cotangent = torch.zeros_like(results[0])
            backward(results, self._cotangent)
            del results
            pool = torch.cuda.graph_pool_handle()
            self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._forward, pool=pool, stream=stream, capture_error_mode="thread_local"):
                self.results = forward(*self._inputs)
                assert self.results[1] is not None
                self._told.copy_(self.results[1], non_blocking=True)
            with torch.cuda.graph(self._backward, pool=pool, stream=stream, capture_error_mode="thread_local"):
                self._gradient = backward(self.results, self._cotangent)
        torch.cuda.current_stream(inputs[0].device).wait_stream(stream)

    def run(self, inputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
        """The results for these inputs, in memory that the next call overwrites."""
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._forward.replay()
        self._done.record(torch.cuda.current_stream(self._inputs[0].device))  # where the graph was launched
        self.launches += 1
        return self.results

    def verdict(self, launch: int) -> list[float] | None:
        """The second result of a launch, as soon as it is there (the GPU has sent it by itself); None: overwritten."""
        if launch != self.launches:
            return None
        self._done.synchronize()
        return list(self._told.tolist())

    def run_back(self, cotangent: Tensor) -> Tensor:
        """The gradient at the last launch, in memory that the next call overwrites."""
        self._cotangent.copy_(cotangent)
        self._backward.replay()
        return self._gradient


class Recorder:
    """Counts calls by kind, and keeps the latest recordings. Copies and pickles of it start empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: OrderedDict[Hashable, int | Recording | None] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return Recorder, ()

    def __deepcopy__(self, memo: Any) -> Recorder:
        return Recorder()

    def recording(self, kind: Hashable, make: Callable[[], Recording]) -> Recording | None:
        """The recording for this kind of call; None until it has repeated, or where it cannot be recorded."""
        with self._lock:
            entry = self._seen.pop(kind, 0)
            if isinstance(entry, int):
                entry += 1
                if entry > REPEATS:
                    try:
                        entry = make()
                    except RuntimeError:  # memory is short, or somebody else is recording: go on without
                        entry = None
            self._seen[kind] = entry  # the latest comes last
            while len(self._seen) > KEPT:
                self._seen.popitem(last=False)
            return None if isinstance(entry, int) else entry
