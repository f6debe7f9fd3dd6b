"""Heads: their names and sizes, gradients, a switch from one to another, and learning."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

import gll
from gll.data import load, normalize
from gll.nn.encoders import create_encoder
from gll.nn.heads import HEADS, GLLHead, MLPHead, Switch, create_head
from tests.head_cases import C, D, make, network, samples, step

TRAINING = ["mlp", "linear", "gll", "gll-projection", "wnll"]


# Names and counts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dim", "options", "number"),
    [
        ("mlp", 512, {}, 332_778),
        ("mlp", 64, {}, 16_938),
        ("mlp", 128, {"hidden": 1024}, 142_346),
        ("linear", 200, {}, 2_010),
        ("probe", 512, {}, 5_130),
        ("gll", 512, {}, 0),
        ("gll", 512, {"projection": 128}, 512 * 513 + 513 * 128),
        ("wnll", 512, {}, 5_130),
        ("wnll", 512, {"classifier": "mlp"}, 332_778),
        ("knn", 512, {}, 0),
    ],
)
def test_number_of_parameters(name: str, dim: int, options: dict[str, Any], number: int) -> None:
    assert sum(p.numel() for p in create_head(name, dim, 10, **options).parameters()) == number


def test_mlp_is_the_papers() -> None:
    head, x = MLPHead(D, C), torch.randn(7, D)
    w = list(head.parameters())
    assert [p.shape[0] for p in w[::2]] == [D, 128, 32, C]
    y = x
    for weight, bias in zip(w[:-2:2], w[1:-2:2], strict=True):
        y = F.relu(F.linear(y, weight, bias))
    torch.testing.assert_close(head(x), F.linear(y, w[-2], w[-1]))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("softmax", {}, "unknown head 'softmax'; choose one of mlp, linear, gll, wnll, knn, probe"),
        ("linear", {"hidden": 3}, "head 'linear' has no option 'hidden'; its options: none"),
        ("gll", {"epsilon": 3}, "no option 'epsilon'; its options: k, tau, equation, p, bandwidth"),
        ("gll", {"equation": "heat"}, "unknown equation 'heat'; choose one of laplace"),
        ("gll", {"p": 3.0}, "equation 'laplace' has no option 'p'; its options: tau, source"),
        ("wnll", {"classifier": "forest"}, "unknown classifier 'forest'; choose one of linear, mlp"),
        ("wnll", {"stage1": 0, "stage2": 0}, "stages need a number of epochs"),
        ("knn", {"k": 0}, "k must be at least 1"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_head(name, D, C, **options)


@pytest.mark.parametrize("name", ["feature_dim", "num_classes"])
def test_sizes_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        create_head("mlp", **{"feature_dim": 3, "num_classes": 3, name: 0})


def test_who_uses_a_base_and_who_trains() -> None:
    heads = {name: make(name) for name in HEADS}
    assert {name for name, head in heads.items() if head.uses_base} == {"gll", "knn"}
    assert {name for name, head in heads.items() if not head.trains_encoder} == {"knn", "probe"}


# Gradients -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAINING)
def test_gradients_reach_every_parameter(name: str, device: torch.device) -> None:
    encoder, head = network().to(device), make(name).to(device)
    head.start_epoch(0, encoder)
    step(encoder, head, *samples(60, device=device)).backward()
    for which, module in (("encoder", encoder), ("head", head)):
        for parameter_name, p in module.named_parameters():
            # What a normalisation takes away has no gradient: the bias before it.
            if which == "encoder" and parameter_name in {"layers.0.bias", "layers.3.bias", "layers.6.bias"}:
                continue
            assert p.grad is not None, (which, parameter_name)
            assert p.grad.abs().max() > 1e-7, (which, parameter_name)


def test_the_probe_leaves_the_encoder_alone() -> None:
    encoder, head = network(), make("probe")
    step(encoder, head, *samples(60)).backward()
    assert all(p.grad is None for p in encoder.parameters())
    assert all(p.grad is not None and bool(p.grad.any()) for p in head.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("options", "layer"),
    [
        ({}, gll.GraphLearningLayer(C, k=25)),
        ({"k": 7, "tau": 0.3}, gll.GraphLearningLayer(C, k=7, equation=gll.Laplace(tau=0.3))),
        ({"bandwidth": 2, "normalize": False}, gll.GraphLearningLayer(C, bandwidth=gll.Constant(2.0), normalize=False)),
        ({"equation": "poisson"}, gll.GraphLearningLayer(C, equation=gll.Poisson())),
        ({"equation": "soft"}, gll.GraphLearningLayer(C, equation=gll.SoftLaplace())),
        ({"equation": "poisson", "tau": 0.1}, gll.GraphLearningLayer(C, equation=gll.Poisson(tau=0.1))),
        ({"equation": "p-laplace", "k": 5}, gll.GraphLearningLayer(C, k=5, equation=gll.PLaplace())),
        ({"equation": "p-laplace", "p": 4}, gll.GraphLearningLayer(C, equation=gll.PLaplace(p=4.0))),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_gll_is_the_layer(options: dict[str, Any], layer: gll.GraphLearningLayer, dtype: torch.dtype) -> None:
    x, y = samples(60, dtype=dtype)
    grads = []
    for which in (layer, create_head("gll", D, C, **options)):
        z = x.clone().requires_grad_()
        out = which(z[20:], z[:20], y[:20])
        logp = out if layer.equation.linear else out.log_softmax(1)  # every class against the rest: any sum
        loss = which.loss(out, y[20:]) if isinstance(which, GLLHead) else -logp[torch.arange(40), y[20:]].mean()
        loss.backward()
        grads.append((out.detach(), loss.detach(), z.grad))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_projection_comes_before_the_graph() -> None:
    head = make("gll-projection")
    assert isinstance(head, GLLHead)
    assert head.projection is not None
    x, y = samples(60)
    projected = head.projection(x)
    expected = gll.GraphLearningLayer(C, k=5)(projected[20:], projected[:20], y[:20])
    torch.testing.assert_close(head(x[20:], x[:20], y[:20]), expected)


def test_the_loss_of_gll_sees_the_mass_that_tau_loses() -> None:
    head, (x, y) = make("gll", tau=0.5), samples(60)
    logits = head(x[20:], x[:20], y[:20])
    torch.testing.assert_close(head.loss(logits, y[20:]), -logits.gather(1, y[20:, None]).mean())
    assert head.loss(logits, y[20:]) > F.cross_entropy(logits, y[20:]) + 0.01


# Switch --------------------------------------------------------------------------------------------------------------


def test_switch() -> None:
    encoder, head = network(), Switch(make("mlp"), make("gll", tau=0.2), at=2)
    x, y = samples(60)
    used = []
    for epoch in range(4):
        head.start_epoch(epoch, encoder)
        used.append(head.uses_base)
        expected = head.first(x[20:]) if epoch < 2 else head.second(x[20:], x[:20], y[:20])
        logits = head(x[20:], x[:20], y[:20])
        assert torch.equal(logits, expected)
        assert torch.equal(head.loss(logits, y[20:]), head.active.loss(expected, y[20:]))
    assert used == [False, False, True, True]
    fresh = Switch(make("mlp"), make("gll", tau=0.2), at=2)
    assert fresh.active is fresh.first
    fresh.load_state_dict(head.state_dict())
    assert fresh.active is fresh.second
    assert torch.equal(fresh.classify(x[20:], x[:20], y[:20]), head.second.classify(x[20:], x[:20], y[:20]))


def test_switch_lets_go_and_counts_anew() -> None:
    encoder = network()
    head = Switch(make("wnll", stage1=0), make("wnll", stage1=2, stage2=1), at=1)
    head.start_epoch(0, encoder)
    assert head.uses_base
    frozen = []
    for epoch in range(1, 5):
        head.start_epoch(epoch, encoder)
        frozen.append(not all(p.requires_grad for p in encoder.parameters()))
    assert frozen == [False, False, True, False]


def test_switch_at_zero_and_before() -> None:
    assert Switch(make("mlp"), make("gll"), at=0).uses_base
    assert not Switch(make("mlp"), make("probe"), at=0).trains_encoder
    with pytest.raises(ValueError, match="at least 0"):
        Switch(make("mlp"), make("gll"), at=-1)


# Learning ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*TRAINING, "probe"])
def test_loss_falls_on_digits(name: str) -> None:
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32)[:300, None] / 16
    y = torch.tensor(data.target)[:300]
    encoder = create_encoder("digits-cnn", in_channels=1)
    options: dict[str, Any] = {"stage1": 12, "stage2": 3} if name == "wnll" else {}
    options |= {"projection": 16} if name == "gll-projection" else {}
    head = create_head("gll" if name == "gll-projection" else name, encoder.feature_dim, 10, **options)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.003)
    losses = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(15):
            head.start_epoch(epoch, encoder)
            loss = step(encoder, head, x, y, m=100)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[11] < (0.9 if name == "probe" else 0.6) * losses[0], losses


def test_the_lightning_example(tmp_path: Path) -> None:
    """The text of the page, run as it stands."""
    with warnings.catch_warnings():  # Lightning advises on workers, loggers and checkpoints
        warnings.simplefilter("ignore")
        lightning = pytest.importorskip("lightning")
        page = (Path(__file__).parent.parent / "docs" / "replace-your-head.md").read_text()
        (source,) = re.findall(r"^```text\n(import lightning.*?)^```$", page, re.MULTILINE | re.DOTALL)
        names: dict[str, Any] = {}
        exec(source, names)
        data = load("digits")
        x, x_test = normalize(data.train, data), normalize(data.test, data)
        torch.manual_seed(0)
        module = names["GraphClassifier"](create_encoder("digits-cnn", in_channels=1), x, data.train_labels, 10)
        quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
        trainer = lightning.Trainer(
            max_epochs=3, accelerator="cpu", enable_model_summary=False, default_root_dir=tmp_path, **quiet
        )
        tests = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x_test, data.test_labels), batch_size=355)
        trainer.fit(module, val_dataloaders=tests)
    assert trainer.callback_metrics["accuracy"] > 0.93
