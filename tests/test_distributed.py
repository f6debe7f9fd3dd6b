"""Two processes compute what one would: losses, every gradient, and training, over gloo on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gll.train.distributed import GRAPHS, Gathered, PerRank, Ranks, synchronize_batchnorm
from tests import ranks as worker
from tests.launch import two_processes

TIGHT = {"rtol": 1e-9, "atol": 1e-12}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes computed."""
    folder = tmp_path_factory.mktemp("ranks")
    two_processes("ranks.py", str(folder))
    return [torch.load(folder / f"rank{r}.pt", weights_only=True) for r in range(2)]


def close(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], msg=lambda text, name=name: f"{name}: {text}", **TIGHT)


def test_a_gathered_graph_is_that_of_one_process(two: list[dict[str, Any]]) -> None:
    """Loss, the gradient of every parameter of encoder and head, and three steps of training."""
    one = worker.training(Ranks(), Gathered())
    assert min(float(g.abs().max()) for g in one["first"].values()) > 1e-4  # every parameter has a gradient to compare
    for rank in two:
        torch.testing.assert_close(rank["gathered"]["losses"], one["losses"], **TIGHT)
        close(rank["gathered"]["first"], one["first"])
        close(rank["gathered"]["last"], one["last"])


def test_a_graph_per_rank_is_the_mean_over_the_shares(two: list[dict[str, Any]]) -> None:
    encoder, head = worker.model()
    shares = [next(worker.batches(Ranks(rank, 2), PerRank())) for rank in range(2)]
    losses = [worker.loss_of(encoder, head, share, Ranks(), PerRank()) for share in shares]
    (sum(losses) / 2).backward()
    expected = worker.gradients(encoder, head)
    for rank in two:
        assert rank["rank"]["losses"][0] == pytest.approx(sum(loss.item() for loss in losses) / 2, rel=1e-9)
        close(rank["rank"]["first"], expected)
    close(two[0]["rank"]["last"], two[1]["rank"]["last"])  # ranks stay together
    assert abs(losses[0].item() - losses[1].item()) > 1e-3  # two different graphs
    gathered = two[0]["gathered"]["losses"][0]
    assert abs(gathered - two[0]["rank"]["losses"][0]) > 1e-3  # and neither is the large one


def test_frozen_parameters_do_not_stop_the_others(two: list[dict[str, Any]]) -> None:
    one = worker.training(Ranks(), Gathered(), frozen=True)
    assert "encoder.0.weight" not in one["first"]
    for rank in two:
        close(rank["frozen"]["first"], one["first"])
        close(rank["frozen"]["last"], one["last"])


def test_gather_of_unequal_sizes(two: list[dict[str, Any]]) -> None:
    z = torch.arange(8.0, dtype=torch.float64)[:, None] + torch.tensor([0.1, 0.2])
    for rank, rows in zip(two, (slice(0, 3), slice(3, 8)), strict=True):
        found = rank["gather"]
        assert torch.equal(found["values"], z)
        # Ranks weigh row i by i and 2i: the owner of the row gets both.
        expected = 3 * torch.arange(8.0, dtype=torch.float64)[rows, None].expand(-1, 2)
        torch.testing.assert_close(found["linear"], expected)
        torch.testing.assert_close(found["first"], 2 * 3 * z[rows] ** 2)
        torch.testing.assert_close(found["second"], 4 * 36 * z[rows] ** 3)  # of Σ (6 z²)² = Σ 36 z⁴
        assert found["none"].tolist() == [7, 7]
        assert found["empty"] == 0
        assert found["flags"].tolist() == [True, True, False, True]
        assert torch.equal(found["half"], torch.ones(4, 3, dtype=torch.bfloat16))
        assert torch.equal(found["half gradient"], torch.full((2, 3), 2.0, dtype=torch.bfloat16))


def test_what_cannot_be_gathered_is_refused_everywhere(two: list[dict[str, Any]]) -> None:
    """Rather than on one rank, which would leave the other waiting."""
    assert two[0]["gather"]["refused"] == two[1]["gather"]["refused"]
    refused = two[0]["gather"]["refused"]
    assert "rank 0: (3, 4) torch.float32; rank 1: (3, 5) torch.float32" in refused["width"]
    assert "rank 0: (3,) torch.float64; rank 1: (3,) torch.float32" in refused["type"]
    assert "rank 0: (3, 2) torch.float32 with gradient; rank 1: (3, 2) torch.float32" in refused["gradient"]


def test_metrics_of_all_ranks(two: list[dict[str, Any]]) -> None:
    for r, rank in enumerate(two):
        found = rank["metrics"]
        assert found["total"] == {"loss": 4.5, "count": 4.0}
        assert found["any"] == [False, True, True]
        assert found["share"] == [[0, 3], [3, 7]][r]
        assert (found["rank"], found["world"], found["first"]) == (r, 2, r == 0)


def test_one_process_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with Ranks.start("cpu") as ranks:
        assert ranks == Ranks()
        assert not torch.distributed.is_initialized()
        encoder, x = nn.Linear(2, 2), torch.ones(3, 2, requires_grad=True)
        assert ranks.wrap(encoder) is encoder
        assert ranks.gather(x) is x
        assert ranks.share(7) == slice(0, 7)
        assert ranks.any(True)
        assert not ranks.any(False)
        ranks.barrier()
        ranks.average_gradients(encoder)
        ranks.same_everywhere(encoder)
        assert encoder.weight.grad is None
    per, all_ = (
        worker.loss_of(*worker.model(), next(worker.batches(Ranks(), graphs)), Ranks(), graphs)
        for graphs in GRAPHS.values()
    )
    assert torch.equal(per, all_)  # with one rank both are the same graph


def test_a_half_set_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="not LOCAL_RANK, MASTER_ADDR, MASTER_PORT: start the processes by torchrun"):
        Ranks.start("cpu").__enter__()


def test_batch_statistics_of_all_ranks_keep_the_parameters() -> None:
    encoder = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    parameters = list(encoder.parameters())
    converted = synchronize_batchnorm(encoder)
    assert isinstance(converted[1], nn.SyncBatchNorm)
    assert all(a is b for a, b in zip(converted.parameters(), parameters, strict=True))
