"""The layer as a module among others: saved, copied, pickled, compiled, under autocast, in parallel, on a GPU."""

from __future__ import annotations

import copy
import io
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.distributed
import torch.multiprocessing
from torch import Tensor, nn
from torch.nn import functional as F

import gll
from tests.test_layer import EQUATIONS, C, batch, make

F32, F64 = torch.float32, torch.float64
MODES = pytest.mark.parametrize("inductive", [False, True], ids=["transductive", "inductive"])
needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

# The fast path ------------------------------------------------------------------------------------------------------

FUSABLE: dict[str, dict[str, Any]] = {
    "plain": {},
    "raw features": {"normalize": False},
    "tau": {"equation": gll.Laplace(tau=0.1)},
    "constant bandwidth": {"bandwidth": gll.Constant(0.8)},
    "another kernel": {"kernel": gll.Gaussian(1.0)},
    "one neighbour": {"k": 1, "unreached": "nearest"},
    "another floor": {"floor": 1e-3},
}


@pytest.mark.filterwarnings("ignore::gll.UnreachedWarning")
@pytest.mark.parametrize("soft", [False, True], ids=["classes", "soft labels"])
@pytest.mark.parametrize("dtype", [F32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FUSABLE)
def test_small_batches_get_the_answer_of_the_general_path(name: str, dtype: torch.dtype, soft: bool) -> None:
    """A solver that is named switches the fast path off; float64 features are never on it."""
    x, base, y = batch(dtype=dtype)
    labels = 0.7 * F.one_hot(y, C).float() + 0.075 if soft else y
    outputs, gradients = [], []
    for solver, wide in ((None, dtype), (gll.solvers.Auto(), dtype), (None, F64)):
        layer = make(**FUSABLE[name], solver=solver)
        inputs = [t.to(wide, copy=True).requires_grad_() for t in (x, base)]
        outputs.append(layer(*inputs, labels))
        F.cross_entropy(outputs[-1], torch.arange(len(x)) % C).backward()
        gradients.append(torch.cat([t.grad for t in inputs]).double())
    fast, general, double = outputs
    torch.testing.assert_close(fast, general, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fast.double(), double, rtol=1e-5, atol=1e-5)
    rounding = 2e-4 if dtype is F32 else 2e-2  # bfloat16 rounds the gradient itself
    for gradient in gradients[:2]:
        assert (gradient - gradients[2]).norm() < rounding * gradients[2].norm()


def test_second_derivatives_of_the_fast_path() -> None:
    """Its gradient can be differentiated again: float32 against float64, which takes the general path."""
    x, base, y = batch(n=12, m=8, d=3)
    results = []
    for dtype in (F32, F64):
        q = x.to(dtype, copy=True).requires_grad_()
        (gradient,) = torch.autograd.grad(make()(q, base.to(dtype), y).sum(), q, create_graph=True)
        gradient.square().sum().backward()
        results.append(q.grad.double())
    assert (results[0] - results[1]).norm() < 1e-3 * results[1].norm()


# Saving and copying -------------------------------------------------------------------------------------------------


def _by_torch(state: dict[str, Tensor]) -> dict[str, Tensor]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


SAVERS: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "as it is": lambda state: state,
    "torch.save": _by_torch,
    "safetensors": lambda state: safetensors.torch.load(safetensors.torch.save(state)),
}
RECEIVERS: dict[str, Callable[[], gll.GraphLearningLayer]] = {
    "fresh": lambda: make(),
    "with a smaller base": lambda: make().set_base(torch.randn(7, 6), torch.arange(7) % C),
    "with a larger base": lambda: make().set_base(torch.randn(50, 3), torch.arange(50) % C),
    "with soft labels": lambda: make().set_base(torch.randn(20, 6), torch.full((20, C), 0.25)),
}


@pytest.mark.parametrize("soft", [False, True], ids=["classes", "soft labels"])
@pytest.mark.parametrize("receiver", RECEIVERS)
@pytest.mark.parametrize("saver", SAVERS)
def test_the_base_travels_in_the_state_dict(saver: str, receiver: str, soft: bool) -> None:
    x, base, y = batch(dtype=F32)
    model = nn.Sequential(nn.Linear(6, 6), make().set_base(base, F.softmax(torch.randn(20, C), 1) if soft else y))
    other = nn.Sequential(nn.Linear(6, 6), RECEIVERS[receiver]())
    state = model.state_dict()
    assert set(state) == {"0.weight", "0.bias", "1.base_features", "1.base_labels"}
    other.load_state_dict(SAVERS[saver](state))
    assert torch.equal(other(x), model(x))
    before = model[1].base_features.clone()
    other[1].base_features += 1
    assert torch.equal(model[1].base_features, before), "the two share no memory"


def test_a_base_that_is_missing_is_missed() -> None:
    layer = make().set_base(*batch()[1:])
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "base_features", "base_labels"'):
        layer.load_state_dict(make().state_dict())


COPIES: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
}


@MODES
@pytest.mark.parametrize("after_forward", [False, True], ids=["before a call", "after a call"])
@pytest.mark.parametrize("name", EQUATIONS)
@pytest.mark.parametrize("how", COPIES)
def test_copies_give_the_same_answers(how: str, name: str, after_forward: bool, inductive: bool) -> None:
    x, base, y = batch(dtype=F32)
    x.requires_grad_()
    layer = make(equation=EQUATIONS[name], inductive=inductive).set_base(base, y)
    expected = layer(x)
    if not after_forward:
        layer = make(equation=EQUATIONS[name], inductive=inductive).set_base(base, y)
    twin = COPIES[how](layer)
    if after_forward:
        assert torch.equal(twin.last_solution.value, layer.last_solution.value)
    torch.testing.assert_close(twin(x), expected, rtol=1e-6, atol=1e-6)
    assert "base_features" in twin.state_dict()


def test_set_base_keeps_nothing_of_the_callers() -> None:
    x, base, y = batch()
    base.requires_grad_()
    layer = make().set_base(base, y)
    before = layer(x)
    with torch.no_grad():
        base += 1
    y += 1
    assert torch.equal(layer(x), before)
    assert not layer.base_features.requires_grad


def test_moving_the_module_moves_the_base() -> None:
    x, base, y = batch(dtype=F32)
    layer = make().set_base(base, y)
    single = layer(x)
    double = layer.double()(x.double())
    assert double.dtype == F64
    assert layer.base_labels.dtype == torch.int64
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)


def test_what_is_remembered_holds_no_gradient() -> None:
    x, base, y = batch()
    layer = make()
    layer(x.requires_grad_(), base, y)
    assert layer.last_graph is not None
    assert layer.last_solution is not None
    assert not layer.last_graph.weight.requires_grad
    assert not layer.last_solution.value.requires_grad
    assert layer.last_graph.num_nodes == 60
    torch.testing.assert_close(layer.last_solution.value[:20], F.one_hot(y, C).to(F64))


# Encoders of all kinds ----------------------------------------------------------------------------------------------


class Model(nn.Module):
    """An encoder for queries and base, and the layer on top."""

    def __init__(self, encoder: nn.Module, **options: Any) -> None:
        super().__init__()
        self.encoder, self.layer = encoder, make(**options)

    def forward(self, x: Tensor, base: Tensor, y: Tensor) -> Tensor:
        return self.layer(self.encoder(x), self.encoder(base), y)


def encoder() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8))


def gradients(model: nn.Module, x: Tensor, base: Tensor, y: Tensor) -> Tensor:
    model.zero_grad()
    F.cross_entropy(model(x, base, y), torch.arange(len(x), device=x.device) % C).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@MODES
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_under_autocast_the_layer_computes_in_float32(dtype: torch.dtype, inductive: bool) -> None:
    x, base, y = batch(dtype=F32)
    model = Model(encoder(), inductive=inductive)
    with torch.autocast("cpu", dtype=dtype):
        encoded = model.encoder(x), model.encoder(base)
        out = model(x, base, y)
        loss = F.cross_entropy(out, torch.arange(len(x)) % C)
    assert encoded[0].dtype == dtype
    assert out.dtype == F32
    assert torch.equal(out, model.layer(*encoded, y)), "the same outside autocast"
    loss.backward()
    full = Model(encoder(), inductive=inductive)
    expected = gradients(full, x, base, y)
    got = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert F.cosine_similarity(got, expected, 0) > 0.98


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_encoder(backend: str) -> None:
    x, base, y = batch(dtype=F32)
    expected = gradients(Model(encoder()), x, base, y)
    compiled = Model(torch.compile(encoder(), backend=backend))
    torch.testing.assert_close(gradients(compiled, x, base, y), expected, rtol=1e-4, atol=1e-6)
    torch._dynamo.reset()


def test_data_parallel() -> None:
    x, base, y = batch(dtype=F32)
    expected = gradients(Model(encoder()), x, base, y)
    torch.testing.assert_close(gradients(nn.DataParallel(Model(encoder())), x, base, y), expected)


def _one_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    x, base, y = batch(dtype=F32)
    model = nn.parallel.DistributedDataParallel(Model(encoder()))
    torch.save(gradients(model, x[rank::2], base, y), f"{folder}/{rank}.pt")
    # Threads of gloo may abort a process whose peer leaves, or that ends while they are at work, once in many runs. All
    # that is tested is on disk when both files are: nobody is needed any more, and nothing is left to tidy up.
    for _ in range(6000):
        if Path(f"{folder}/{1 - rank}.pt").exists():
            os._exit(0)
        time.sleep(0.01)
    raise TimeoutError("the other process has not come to its end in a minute")


def test_distributed_data_parallel(tmp_path: Path) -> None:
    """Two processes, each with a graph of its own half: both end up with the mean of the two gradients."""
    torch.multiprocessing.spawn(_one_rank, (str(tmp_path),), nprocs=2)
    x, base, y = batch(dtype=F32)
    halves = [gradients(Model(encoder()), x[rank::2], base, y) for rank in (0, 1)]
    assert (halves[0] - halves[1]).abs().max() > 1e-3
    for rank in (0, 1):
        got = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        torch.testing.assert_close(got, (halves[0] + halves[1]) / 2, rtol=1e-4, atol=1e-6)


# GPU ----------------------------------------------------------------------------------------------------------------


class TestCuda:
    pytestmark = needs_gpu

    @MODES
    @pytest.mark.parametrize("dtype", [F32, F64], ids=str)
    @pytest.mark.parametrize("name", EQUATIONS)
    def test_same_numbers_as_on_the_cpu(self, name: str, dtype: torch.dtype, inductive: bool) -> None:
        x, base, y = batch(n=300, m=80, dtype=dtype)
        results = []
        for device in ("cpu", "cuda"):
            layer = make(equation=EQUATIONS[name], inductive=inductive, k=10)
            inputs = [t.to(device, copy=True).requires_grad_() for t in (x, base)]
            out = layer(*inputs, y.to(device))
            assert out.device == inputs[0].device
            F.cross_entropy(out, torch.arange(len(x), device=device) % C).backward()
            assert layer.last_solution is not None
            assert layer.last_solution.value.device == out.device
            results.append((out.detach().cpu(), torch.cat([t.grad for t in inputs]).cpu()))
        tolerance = 1e-5 if dtype is F32 else 1e-9
        torch.testing.assert_close(results[0][0], results[1][0], rtol=tolerance, atol=tolerance)
        gap = (results[0][1] - results[1][1]).norm() / results[0][1].norm()
        assert gap < (2e-4 if dtype is F32 else 1e-8)

    @MODES
    @pytest.mark.parametrize("name", EQUATIONS)
    def test_gradcheck(self, name: str, inductive: bool) -> None:
        x, base, y = batch(n=2, m=6, d=2)
        layer = make(equation=EQUATIONS[name], k=3, inductive=inductive, normalize=False)
        inputs = [t.cuda().requires_grad_() for t in (x, base)]
        assert torch.autograd.gradcheck(lambda a, b: layer(a, b, y.cuda()), inputs)

    def test_the_base_moves_with_the_module(self) -> None:
        x, base, y = batch(dtype=F32)
        layer = make().set_base(base, y)
        expected = layer(x)
        layer.cuda()
        torch.testing.assert_close(layer(x.cuda()).cpu(), expected, rtol=1e-5, atol=1e-5)
        other = make().set_base(base[:5], y[:5]).cuda()
        other.load_state_dict(make().set_base(base, y).state_dict())
        assert other.base_features.is_cuda

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    def test_autocast(self, dtype: torch.dtype) -> None:
        x, base, y = (t.cuda() for t in batch(dtype=F32))
        model = Model(encoder()).cuda()
        with torch.autocast("cuda", dtype=dtype):
            out = model(x, base, y)
            encoded = model.encoder(x), model.encoder(base)
        assert out.dtype == F32
        torch.testing.assert_close(out, model.layer(*encoded, y), rtol=0, atol=1e-6)

    def test_data_parallel_over_the_devices_there_are(self) -> None:
        x, base, y = (t.cuda() for t in batch(dtype=F32))
        expected = gradients(Model(encoder()).cuda(), x, base, y)
        parallel = nn.DataParallel(Model(encoder()).cuda(), device_ids=[0])
        torch.testing.assert_close(gradients(parallel, x, base, y), expected, rtol=1e-4, atol=1e-6)

    @pytest.mark.usefixtures("as_user")
    @pytest.mark.parametrize("who", [0, 1, 2])
    def test_mixed_devices_are_named(self, who: int) -> None:
        tensors = [t.cuda() if i == who else t for i, t in enumerate(batch())]
        with pytest.raises(ValueError, match=r"(cuda.* on cpu|cpu.* on cuda).*; move one of them"):
            make()(*tensors)
