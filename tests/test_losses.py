"""The contrastive losses: equal to a plain loop and to pytorch-metric-learning, exact gradients, safe on odd input."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gll.nn.losses import simclr_loss, supcon_loss


def by_loop(z1: Tensor, z2: Tensor, labels: list[int], temperature: float) -> float:
    """The supervised contrastive loss, term by term as it is printed; SimCLR is the case of all different labels."""
    views = [z.tolist() for z in (*z1, *z2)]
    labels = labels + labels
    known = [i for i in range(len(views)) if labels[i] >= 0]

    def similarity(i: int, j: int) -> float:
        a, b = views[i], views[j]
        dot = math.fsum(p * q for p, q in zip(a, b, strict=True))
        return dot / math.sqrt(math.fsum(p * p for p in a) * math.fsum(q * q for q in b)) / temperature

    total = 0.0
    for i in known:
        others = [a for a in known if a != i]
        positives = [p for p in others if labels[p] == labels[i]]
        log_sum = math.log(math.fsum(math.exp(similarity(i, a)) for a in others))
        total += math.fsum(log_sum - similarity(i, p) for p in positives) / len(positives)
    return total / len(known)


def views(n: int, d: int = 5, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    return torch.randn(n, d, dtype=dtype), torch.randn(n, d, dtype=dtype)


@pytest.mark.parametrize("temperature", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_simclr_is_the_printed_formula(n: int, temperature: float) -> None:
    z1, z2 = views(n)
    expected = by_loop(z1, z2, list(range(n)), temperature)
    assert simclr_loss(z1, z2, temperature).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("labels", [[0, 1, 0, 2, 2, 2], [0, -1, 0, 1, -1, 1], [-1, -1, 3, -1, -1, -1], [0] * 6])
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_supcon_is_the_printed_formula(labels: list[int], temperature: float) -> None:
    z1, z2 = views(6)
    expected = by_loop(z1, z2, labels, temperature)
    assert supcon_loss(z1, z2, torch.tensor(labels), temperature).item() == pytest.approx(
        expected, rel=1e-12, abs=1e-12
    )


def test_agree_with_pytorch_metric_learning() -> None:
    peer = pytest.importorskip("pytorch_metric_learning.losses")
    z1, z2 = views(40, 16)
    both = torch.cat([z1, z2])
    labels = torch.arange(40) % 7
    samples = torch.arange(40).repeat(2)
    torch.testing.assert_close(simclr_loss(z1, z2, 0.2), peer.NTXentLoss(0.2)(both, samples), rtol=1e-9, atol=0)
    torch.testing.assert_close(
        supcon_loss(z1, z2, labels, 0.2), peer.SupConLoss(0.2)(both, labels.repeat(2)), rtol=1e-9, atol=0
    )


def test_unlabelled_samples_are_left_out_of_supcon() -> None:
    z1, z2 = views(9)
    labels = torch.tensor([0, 1, -1, 0, 1, -1, -1, 2, 2])
    known = labels >= 0
    z1.requires_grad_()
    loss = supcon_loss(z1, z2, labels, 0.1)
    torch.testing.assert_close(loss, supcon_loss(z1[known], z2[known], labels[known], 0.1), rtol=1e-12, atol=0)
    (gradient,) = torch.autograd.grad(loss, z1)
    assert gradient[~known].eq(0).all()
    assert gradient[known].ne(0).all()


def test_nothing_labelled_is_zero_with_zero_gradient() -> None:
    z1, z2 = views(4)
    z1.requires_grad_()
    loss = supcon_loss(z1, z2, torch.full((4,), -1))
    (gradient,) = torch.autograd.grad(loss, z1)
    assert loss.item() == 0
    assert gradient.eq(0).all()


def test_gradients() -> None:
    z1, z2 = (z.requires_grad_() for z in views(5, 3))
    labels = torch.tensor([0, -1, 1, 0, 2])
    assert torch.autograd.gradcheck(lambda a, b: simclr_loss(a, b, 0.3), (z1, z2))
    assert torch.autograd.gradcheck(lambda a, b: supcon_loss(a, b, labels, 0.3), (z1, z2))


@pytest.mark.parametrize("temperature", [1e-30, 1e-3])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_finite_for_finite_views(scale: float, temperature: float, device: torch.device) -> None:
    z1, z2 = (z.to(device) * scale for z in views(6, dtype=torch.float32))
    z1[0], z2[1], z2[2] = 0, z1[1], -z1[2]
    z1.requires_grad_()
    labels = torch.tensor([0, 0, 1, -1, 1, 2], device=device)
    for loss in (simclr_loss(z1, z2, temperature), supcon_loss(z1, z2, labels, temperature)):
        (gradient,) = torch.autograd.grad(loss, z1)
        assert torch.isfinite(loss)
        assert loss >= 0
        if temperature > 1e-10 and scale > 1e-10:  # elsewhere the true gradient is beyond the largest number
            assert torch.isfinite(gradient).all()


def test_autocast_does_not_change_the_loss(device: torch.device) -> None:
    z1, z2 = (z.to(device) for z in views(32, 8, torch.float32))
    labels = torch.arange(32, device=device) % 3
    plain = simclr_loss(z1, z2, 0.05), supcon_loss(z1, z2, labels, 0.05)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        cast = simclr_loss(z1, z2, 0.05), supcon_loss(z1, z2, labels, 0.05)
        half = simclr_loss(z1.bfloat16(), z2.bfloat16(), 0.05)
    assert plain == cast
    assert half.dtype == torch.float32
    assert half == simclr_loss(z1.bfloat16().float(), z2.bfloat16().float(), 0.05)


def test_a_temperature_that_is_told_apart() -> None:
    z = torch.eye(3)
    assert simclr_loss(z, z, 0.1).item() == pytest.approx(math.log(1 + 4 * math.exp(-10)), rel=1e-3)
    assert simclr_loss(z, z, 1.0).item() == pytest.approx(math.log(1 + 4 * math.exp(-1)), rel=1e-5)


@pytest.mark.usefixtures("as_user")
def test_errors_say_what_was_got() -> None:
    z1, z2 = views(3)
    with pytest.raises(ValueError, match=r"\(3, 5\) and \(2, 5\)"):
        simclr_loss(z1, z2[:2])
    with pytest.raises(ValueError, match="at least one sample"):
        simclr_loss(z1[:0], z2[:0])
    with pytest.raises(ValueError, match="temperature must be > 0, got 0"):
        simclr_loss(z1, z2, 0.0)
    with pytest.raises(ValueError, match="temperature must be > 0, got nan"):
        supcon_loss(z1, z2, torch.zeros(3, dtype=torch.int64), float("nan"))
    with pytest.raises(ValueError, match="3 integer classes"):
        supcon_loss(z1, z2, torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match="3 integer classes"):
        supcon_loss(z1, z2, torch.zeros(3))
    with pytest.raises(ValueError, match="of one type"):
        simclr_loss(z1, z2.float())
