"""Adversarial training: the attack against one written out by hand, what it may not touch, and what it teaches."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gll
from gll.data.datasets import normalize
from gll.data.random import derived_seed
from gll.nn.graph_heads import WNLLHead
from gll.nn.heads import GLLHead, create_head
from gll.reweight import wnll
from gll.train.adversarial import Adversary, box, radius
from gll.train.against import EveryClass, LargestMargin, OwnLoss, Probe, logits_of_every_class
from gll.train.config import from_toml, to_toml
from gll.train.distributed import Nodes, Ranks
from gll.train.finite import NonFiniteError
from gll.train.loop import Training, new_run, train
from gll.train.model import encode, restore
from gll.train.progress import Reporter
from gll.train.runs import Run
from gll.train.toml import ConfigError
from tests.test_train_resume import Killed, die, interrupt_at, same
from tests.tiny_runs import digits, tiny

WNLL = ("model.head=wnll", "model.head_options.stage1=0", "model.head_options.stage2=2")
HEADS = {"gll": (), "linear": ("model.head=linear",), "wnll": WNLL}


def at_work(directory: Path, *options: str) -> tuple[Training, Tensor, Tensor, Tensor, Any]:
    """A run before its first step: the bytes, inputs and classes of a batch, and how many of each kind they are."""
    training = Training(new_run(tiny(directory, *options)), Ranks(), Reporter())
    training.start()
    head = training.model.head
    head.start_epoch(0, training.model.encoder)
    batches = training.batches_for(head.uses_base)
    training.base = training.choose_base(batches)
    training.model.train()
    training.notes.begin(0, 0.1)
    batch = next(iter(batches.epoch(0, base=training.base if head.uses_base else None)))
    images, y = training.data.train[batch.nodes], training.labels[batch.nodes]
    return training, images, normalize(images, training.data), y, batch.sizes


def attack(training: Training, x: Tensor, y: Tensor, sizes: Any, epoch: int = 0, step: int = 0) -> Tensor:
    return training.adversary.attack(x, y, sizes, epoch, step, training.notes)


@pytest.mark.parametrize("head", HEADS)
def test_the_attack_is_what_one_writes_by_hand(tmp_path: Path, head: str) -> None:
    """In pixels from 0 to 1, with the head written out; every step within ε of the image, and of black and white."""
    eps, alpha, steps = 0.12, 0.05, 4
    options = (f"adversarial.eps={eps}", f"adversarial.step={alpha}", f"adversarial.steps={steps}")
    training, images, x, y, sizes = at_work(
        tmp_path, *HEADS[head], *options, "adversarial.random_start=false", "train.batch=30", "base.size=30"
    )
    b, l, _ = sizes
    encoder, data = training.model.encoder, training.data
    got = attack(training, x, y, sizes)

    encoder.eval()
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (data.mean, data.std))
    clean = images[b : b + l].float() / 255
    fixed = encoder(x).detach()
    moved = clean
    for _ in range(steps):
        moved = moved.clone().requires_grad_()
        z = encoder((moved - mean) / std)
        if head == "gll":
            log_u = gll.GraphLearningLayer(10)(torch.cat([z, fixed[b + l :]]), fixed[:b], y[:b])[:l]
            loss = -log_u[torch.arange(l), y[b : b + l]].mean()
            (slope,) = torch.autograd.grad(loss, moved)
        elif head == "linear":
            (layer,) = training.model.head.layers  # type: ignore[union-attr, misc]
            loss = nn.functional.cross_entropy(z @ layer.weight.T + layer.bias, y[:l])
            (slope,) = torch.autograd.grad(loss, moved)
        else:  # the borrowed gradient: (p - y) W, less its part along the features, sent back through the encoder
            from gll.reweight import wnll

            layer = gll.GraphLearningLayer(10, reweight=wnll)
            p = layer(torch.cat([z, fixed[b + l :]]).detach(), fixed[:b], y[:b])[:l].softmax(1)
            weight = training.model.head.last.weight  # type: ignore[union-attr]
            g = (p - nn.functional.one_hot(y[b : b + l], 10)) @ weight.detach()
            unit = nn.functional.normalize(z.detach())
            (slope,) = torch.autograd.grad(z, moved, g - (g * unit).sum(1, keepdim=True) * unit)
        moved = moved.detach() + alpha * slope.sign()
        moved = moved.clamp(clean - eps, clean + eps).clamp(0, 1)
    wanted = (moved - mean) / std
    # A slope of zero up to rounding may go either way: a pixel in a hundred may differ.
    near = torch.isclose(got[b : b + l], wanted, atol=1e-4)
    assert near.float().mean() > 0.99
    assert float((wanted - x[b : b + l]).abs().max()) > 0.1
    assert torch.equal(got[:b], x[:b])
    assert torch.equal(got[b + l :], x[b + l :])


@pytest.mark.parametrize("against", ["own", "margin", "every-class", "probe"])
@pytest.mark.parametrize(
    ("eps", "options"),
    [
        (0.3, ["adversarial.steps=2"]),
        (0.02, ["adversarial.units=normalised", "adversarial.step=0.04", "train.autocast=true"]),
        (1.0, ["adversarial.random_start=false", "adversarial.unlabelled=true", "train.channels_last=true"]),
    ],
)
def test_ball_box_and_base(tmp_path: Path, against: str, eps: float, options: list[str]) -> None:
    options = [*options, f"adversarial.eps={eps}", f"adversarial.against={against}", "data.augment=grey"]
    training, _, x, y, sizes = at_work(tmp_path, *options)
    data, (b, l, _) = training.data, sizes
    training.adversary.learn(torch.randn(20, 64), torch.arange(20) % 10)  # a probe that knows nothing has no slope
    got = attack(training, x, y, sizes)
    pixels, clean = (t * data.std[0] + data.mean[0] for t in (got, x))
    size = eps * data.std[0] if "adversarial.units=normalised" in options else eps
    assert float((pixels - clean).abs().max()) <= size + 1e-6
    assert float((pixels - clean)[b : b + l].abs().max()) > 0.9 * size
    assert float(pixels.min()) >= -1e-6
    assert float(pixels.max()) <= 1 + 1e-6
    assert torch.equal(got[:b], x[:b]), "the base was attacked"
    others = (got[b + l :] != x[b + l :]).any()
    # Some ask only about labelled samples.
    assert bool(others) == ("adversarial.unlabelled=true" in options and against in ("own", "margin"))
    assert got.dtype == torch.float32
    assert not got.requires_grad


def test_the_attack_leaves_no_trace(tmp_path: Path) -> None:
    """Weights, statistics, modes, gradients, PyTorch's own chance: all as before; and its own is derived."""
    training, _, x, y, sizes = at_work(tmp_path, "adversarial.eps=0.1")
    model = training.model
    before = {name: t.clone() for name, t in model.tensors().items()}
    assert any("running_mean" in name for name in before)
    modes = [m.training for part in model.parts.values() for m in part.modules()]
    inputs, chance = x.clone(), torch.get_rng_state()
    first, again, later, other = (attack(training, x, y, sizes, *when) for when in ((1, 2), (1, 2), (1, 3), (2, 2)))
    assert all(torch.equal(t, before[name]) for name, t in model.tensors().items())
    assert [m.training for part in model.parts.values() for m in part.modules()] == modes
    assert all(p.grad is None for p in training.trainable)
    assert torch.equal(torch.get_rng_state(), chance)
    assert torch.equal(x, inputs)
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    assert not torch.equal(first, other)


def test_the_mode_is_put_back_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training, _, x, y, sizes = at_work(tmp_path, "adversarial.eps=0.1")
    monkeypatch.setattr(OwnLoss, "harm", lambda *_: die())
    with pytest.raises(Killed):
        attack(training, x, y, sizes)
    assert training.model.encoder.training


@pytest.mark.parametrize("head", HEADS)
def test_no_eps_is_natural_training(tmp_path: Path, head: str) -> None:
    """To the last bit, whatever else [adversarial] says."""
    other = ("adversarial.eps=0", "adversarial.against=probe", "adversarial.steps=9", "adversarial.unlabelled=true")
    runs = [
        new_run(tiny(tmp_path / name, *HEADS[head], "data.augment=grey", "train.steps=2", *options))
        for name, options in (("natural", ()), ("none", other), ("a little", ("adversarial.eps=1e-3",)))
    ]
    for run in runs:
        train(run)
    same(*runs[:2])
    with pytest.raises(AssertionError):
        same(runs[0], runs[2])


@pytest.mark.parametrize("head", ["gll", "linear"])
def test_a_step_trains_on_the_attacked_images(tmp_path: Path, head: str) -> None:
    """The loss and the update are those of an ordinary step on what the attack gives; gradients reach everything."""
    options = ["train.optimizer=sgd", "train.lr=0.05", "train.momentum=0", "adversarial.eps=0.1"]
    training, _, x, y, sizes = at_work(tmp_path, *HEADS[head], *options)
    x = attack(training, x, y, sizes)
    (b, l, _), encoder, classify = sizes, training.model.encoder, training.model.head
    before = {name: p.detach().clone() for name, p in encoder.named_parameters()}
    torch.manual_seed(derived_seed(0, "step", 0, 0, 0))
    z = encoder(x)
    loss = classify.loss(classify(z[b:], z[:b], y[:b])[:l], y[b : b + l])
    loss.backward()
    wanted = {n: before[n] - 0.05 * p.grad for n, p in encoder.named_parameters() if p.grad is not None}
    assert wanted.keys() == before.keys()

    run = Run.open(training.run.directory)
    theirs = Training(run, Ranks(), Reporter())
    theirs.start()
    theirs.model.head.start_epoch(0, theirs.model.encoder)
    batches = theirs.batches_for(b > 0)
    batch = next(iter(batches.epoch(0, base=theirs.choose_base(batches) if b > 0 else None)))
    theirs.model.train()
    theirs.notes.begin(0, 0.05)
    theirs.train_step(batch, 0, 0.05)
    assert theirs.notes.read(1)[0]["loss"] == pytest.approx(loss.item(), rel=1e-6)
    for name, p in theirs.model.encoder.named_parameters():
        torch.testing.assert_close(p.detach(), wanted[name], rtol=1e-5, atol=1e-7)
        assert not torch.equal(p, before[name]), f"{name} does not learn"


@pytest.mark.parametrize(
    "options",
    [
        ["adversarial.against=probe", "data.augment=grey"],
        ["adversarial.against=margin", "model.switch_at=1", "adversarial.unlabelled=true"],
        ["model.head=wnll", "model.head_options.stage1=1", "model.head_options.stage2=1"],
    ],
    ids=["probe", "margin", "wnll"],
)
def test_a_run_that_was_killed_goes_on_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    options = [*options, "adversarial.eps=0.1", "adversarial.steps=2"]
    whole, cut = (new_run(tiny(tmp_path / name, *options)) for name in ("whole", "cut"))
    train(whole)
    interrupt_at(monkeypatch, 1, 1, die)
    with pytest.raises(Killed):
        train(cut)
    train(Run.open(cut.directory))
    same(whole, cut)
    stored = cut.load("train")
    assert stored is not None
    probe = {name for name in stored[0] if name.startswith("probe.")}
    assert ({"probe.weight", "probe.bias", "probe.optimizer.0.exp_avg"} <= probe) == ("probe" in options[0])


def attacked(run: Run, eps: float, against: str) -> tuple[Tensor, Tensor]:
    """Which of 100 test images are classified wrongly, as they are and after 10 steps of PGD; written out in pixels."""
    model, data = restore(run)
    labelled = run.split.labelled[:200]
    base, base_labels = encode(model.encoder, data.train[labelled], data, run.config), data.train_labels[labelled]
    clean, y = data.test.float() / 255, data.test_labels
    floor = 1e-30 if against == "margin" else 1e-8

    def logits(images: Tensor) -> Tensor:
        z = model.encoder(normalize(images, data))
        if isinstance(model.head, GLLHead | WNLLHead):
            reweight = wnll if isinstance(model.head, WNLLHead) else None
            return gll.GraphLearningLayer(10, floor=floor, reweight=reweight)(z, base, base_labels)
        found: Tensor = model.head(z)
        return found

    torch.manual_seed(0)
    moved = (clean + eps * (2 * torch.rand_like(clean) - 1)).clamp(0, 1)
    for _ in range(10):
        moved.requires_grad_()
        z = logits(moved)
        loss = nn.functional.cross_entropy(z, y)
        if against == "margin":
            loss = (z.scatter(1, y[:, None], -1e30).max(1).values - z.gather(1, y[:, None])[:, 0]).sum()
        (slope,) = torch.autograd.grad(loss, moved)
        moved = (moved.detach() + eps / 4 * slope.sign()).clamp(clean - eps, clean + eps).clamp(0, 1)
    return logits(clean).argmax(1) != y, logits(moved).argmax(1) != y


@pytest.mark.parametrize("head", ["gll", "linear", "wnll"])
def test_it_teaches_robustness(tmp_path: Path, head: str) -> None:
    """Against the worse of two attacks. That on its own loss alone finds a natural graph head hardly worse: masking."""
    text = 'name = "a"\ndevice = "cpu"\ntrain = { epochs = 6, batch = 100, lr = 0.004 }\nbase = { size = 100 }'
    # Stage 2 of WNLL moves two layers only, so it is given a stage 1, and time for two rounds of both.
    more = ["model.head_options.stage1=4", "train.epochs=12"] if head == "wnll" else []
    clean, worst = {}, {}
    for name, eps in (("natural", 0.0), ("robust", 0.15)):
        options = [f"data.name={digits()}", f"out={tmp_path / name}", f"adversarial.eps={eps}", "test.every=0"]
        run = new_run(from_toml(text, [*options, *HEADS[head], *more]))
        train(run)
        (wrong, by_own), (_, by_margin) = (attacked(run, 0.15, against) for against in ("own", "margin"))
        clean[name], worst[name] = (float(w.double().mean()) for w in (wrong, by_own | by_margin))
    assert worst["natural"] > 0.5, "the attack does little"
    assert worst["robust"] < 0.85 * worst["natural"]
    assert max(clean.values()) < 0.15


def test_a_margin_has_a_slope_where_the_loss_has_none() -> None:
    """Logits so far apart that the true class has probability one in float32."""
    head = create_head("linear", 2, 2)
    with torch.no_grad():
        head.layers[0].weight.copy_(torch.tensor([[200.0, 0.0], [0.0, 200.0]]))  # type: ignore[union-attr, index, operator]
        head.layers[0].bias.zero_()  # type: ignore[union-attr, index, operator]
    queries = torch.tensor([[1.0, 0.0]], requires_grad=True)
    nodes = Nodes(queries[:0], torch.zeros(0, dtype=torch.int64), queries, torch.tensor([0]))
    own, margin = (torch.autograd.grad(o.harm(head, nodes), queries)[0] for o in (OwnLoss(), LargestMargin()))
    assert own.tolist() == [[0.0, 0.0]]
    assert margin.tolist() == [[-200.0, 200.0]]


def test_the_margin_of_a_graph_sees_small_values() -> None:
    """Values of u below the layer's floor of 1e-8 still have a slope, that of float64 to single precision."""
    torch.manual_seed(1)
    # Two clusters on a line, a bandwidth so small that weights between them are about e^-40.
    base = torch.tensor([[0.0], [0.1], [1.0], [1.1]])
    labels = torch.tensor([0, 0, 1, 1])
    head = create_head("gll", 1, 2, k=3, bandwidth=0.3, normalize=False)
    z = torch.tensor([[0.02], [1.05]], requires_grad=True)
    margin = LargestMargin()
    nodes = Nodes(base, labels, z, torch.tensor([0, 1]))
    (slope,) = torch.autograd.grad(margin.harm(head, nodes), z)
    x = z.detach().double().requires_grad_()
    layer = gll.GraphLearningLayer(2, k=3, bandwidth=gll.Constant(0.3), normalize=False, floor=1e-300)
    log_u = layer(x, base.double(), labels)
    assert float(log_u.detach().min()) < -20
    (wanted,) = torch.autograd.grad((log_u[0, 1] - log_u[0, 0]) + (log_u[1, 0] - log_u[1, 1]), x)
    torch.testing.assert_close(slope.double(), wanted, rtol=1e-5, atol=0)
    assert bool((slope.abs() > 1).all())
    (own,) = torch.autograd.grad(OwnLoss().harm(head, nodes), z)
    assert float(own.abs().max()) < 1e-6
    assert head.layer.floor == 1e-8  # type: ignore[union-attr]


def test_the_probe_learns_and_nobody_notices() -> None:
    torch.manual_seed(0)
    centres = torch.randn(4, 16)
    y = torch.arange(80) % 4
    z = (centres[y] + 0.5 * torch.randn(80, 16)).requires_grad_()
    probe = Probe(16, 4, Ranks())
    nodes = Nodes(z[:0], y[:0], z, y)
    head = create_head("gll", 16, 4)
    (slope,) = torch.autograd.grad(probe.harm(head, nodes), z)
    assert not slope.any(), "it starts at zero"
    for _ in range(50):
        probe.learn(z, y)
    assert z.grad is None
    (slope,) = torch.autograd.grad(probe.harm(head, nodes), z)
    assert bool((slope != 0).any(1).all())
    # Along the features it is flat: a graph sees directions only.
    torch.testing.assert_close((slope * z).sum(1), torch.zeros(80), atol=1e-6, rtol=0)
    scaled = nn.functional.normalize(z.detach()) * 4
    assert float((probe.linear(scaled).argmax(1) != y).double().mean()) < 0.05
    copy = Probe(16, 4, Ranks())
    copy.load({name: tensor.clone() for name, tensor in probe.tensors().items()} | {"base": y})
    for each in (probe, copy):
        each.learn(z, y)
    assert all(torch.equal(a, b) for a, b in zip(probe.tensors().values(), copy.tensors().values(), strict=True))


def test_points_have_no_box(tmp_path: Path) -> None:
    options = ["data.name=moons", "model.encoder=mlp", "data.labels=30 each", "base.size=10", "adversarial.eps=2"]
    training, _, x, y, sizes = at_work(tmp_path, *options)
    assert box(training.data)[1].tolist() == [torch.inf] * 2
    moved = (attack(training, x, y, sizes) - x).abs()
    assert 1.5 < float(moved.max()) <= 2 + 1e-6


def test_fractions(tmp_path: Path) -> None:
    """ε of 8 in 255, on the command line and in a file; what is written is read as the same number."""
    config = tiny(tmp_path, "adversarial.eps=8/255", "adversarial.step=2.5/255")
    assert (config.adversarial.eps, config.adversarial.step) == (8 / 255, 2.5 / 255)
    assert from_toml(to_toml(config)) == config
    assert from_toml('name = "a"\n[adversarial]\neps = "8/255"').adversarial.eps == 8 / 255
    assert str(tiny(tmp_path, "out=1/2").out) == "1/2"  # a text stays one


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_the_error_of_an_epoch_says_whether_it_is_under_attack(tmp_path: Path, eps: float) -> None:
    training = Training(new_run(tiny(tmp_path, f"adversarial.eps={eps}")), Ranks(), Reporter())
    assert ("error under attack" in training.figures()) == (eps > 0)


def test_units() -> None:
    from gll.data.datasets import load

    data = load("digits")
    torch.testing.assert_close(radius(0.3 * data.std[0], "pixels", data), radius(0.3, "normalised", data))
    low, high = box(data)
    ends = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    assert torch.equal(torch.stack([low, high]), normalize(ends, data))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["adversarial.eps=-0.1"], "adversarial.eps must be at least 0, got -0.1"),
        (["adversarial.eps=nan"], "adversarial.eps must be finite"),
        (["adversarial.eps=8"], "more than the way from black to white, which is 1: an ε of 8 in 255 is 0.0314"),
        (["adversarial.eps=8", "adversarial.units=normalised"], "more than the way from black to white"),
        (["adversarial.eps=0.1", "adversarial.steps=0"], "adversarial.steps must be at least 1"),
        (["adversarial.eps=0.1", "adversarial.step=-1"], "adversarial.step must be at least 0"),
        (
            ["adversarial.eps=0.15", "adversarial.step=5"],
            "adversarial.step must be at most 2 eps = 0.3, the way across",
        ),
        (["adversarial.eps=8/0"], "adversarial.eps must be a number, got '8/0'"),
        (["adversarial.units=pixel"], "must be one of pixels, normalised, got 'pixel'; did you mean 'pixels'"),
        (["adversarial.against=own loss"], "must be one of own, margin, every-class, probe"),
        (["adversarial.alpha=0.1"], "unknown key 'adversarial.alpha'"),
        (["adversarial.eps=0.1", "model.head=probe"], 'trains an encoder, and "probe" does not: use mlp, linear, gll'),
        (["adversarial.eps=0.1", "model.switch_at=1", "model.first=probe"], 'trains an encoder, and "probe" does not'),
        (
            ["adversarial.eps=0.1", "adversarial.unlabelled=true", "data.labels=whole", "train.labelled=0"],
            'adversarial.unlabelled=true, but batches have no unlabelled samples (data.labels="whole", train.batch=60',
        ),
        (["adversarial.eps=0.1", "adversarial.unlabelled=true", "model.head=mlp"], "a head without a graph never gets"),
    ],
)
def test_wrong_values(tmp_path: Path, options: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        new_run(tiny(tmp_path, *options))
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("head", ["gll", "linear"])
def test_numbers_that_overflow_in_the_attack(tmp_path: Path, head: str) -> None:
    """Statistics of a few steps can be far from those of the batch: then only evaluation mode overflows."""
    training, _, _, _, _ = at_work(tmp_path, *HEADS[head], "adversarial.eps=0.1")
    training.notes.steps.clear()
    for module in training.model.encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_var is not None
            module.running_var.fill_(1e-38)
            module.eps = 1e-38
            nn.init.constant_(module.weight, 1e10)
    with (
        Reporter().task("epoch", 1) as update,
        pytest.raises(NonFiniteError, match="the attack is not finite at epoch 1, "),
    ):
        training.train_epoch(update)


@pytest.mark.gpu
@pytest.mark.parametrize("against", ["own", "margin", "every-class", "probe"])
def test_the_gpu_is_not_waited_for(
    tmp_path: Path, gpu_waits: Callable[[str], AbstractContextManager[None]], against: str
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    options = ["device=cuda", "model.head=linear", "adversarial.eps=0.1", f"adversarial.against={against}"]
    run = new_run(tiny(tmp_path, *options, "train.autocast=true", "train.channels_last=true"))
    original = Adversary.attack

    def watched(self: Adversary, *arguments: Any) -> Tensor:
        with gpu_waits("error"):
            return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Adversary, "attack", watched)
        train(run)


def test_every_class_is_a_softmax_over_all_base_samples() -> None:
    """Written out by loops; and a slope where the graph's own loss has none."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(40) % 4
    centre = torch.eye(4, 6)
    base = centre[y] + 0.05 * torch.randn(40, 6, generator=generator)
    x = (centre[y[:8]] + 0.05 * torch.randn(8, 6, generator=generator)).requires_grad_()
    head = create_head("gll", 6, 4, k=5)
    found = logits_of_every_class(head.layer, x.double(), base.double(), y)
    a, b = (nn.functional.normalize(t.detach().double()) for t in (x, base))
    for i in range(8):
        far = (a[i] - b).square().sum(1)
        for c in range(4):
            total = 0.0
            for j in range(40):
                among = (b[j] - b).square().sum(1).sort().values[5]  # the first is the sample itself
                if int(y[j]) == c:
                    total += math.exp(-4 * float(far[j]) / float(far.sort().values[4] * among) ** 0.5)
            assert found[i, c].item() == pytest.approx(math.log(total), rel=1e-6)
    nodes = Nodes(base, y, x, y[:8])
    (own,) = torch.autograd.grad(OwnLoss().harm(head, nodes), x)
    (seen,) = torch.autograd.grad(EveryClass().harm(head, nodes), x)
    assert float(own.norm(dim=1).min()) < 1e-6 < 1e-2 < float(seen.norm(dim=1).min())


def test_the_slope_of_every_class_holds_bandwidths_fixed() -> None:
    generator = torch.Generator().manual_seed(0)
    base, x = torch.randn(20, 3, generator=generator).double(), torch.randn(4, 3, generator=generator).double()
    y = torch.arange(20) % 2
    layer = create_head("gll", 3, 2, k=5, normalize=False).layer
    own = (x[:, None] - base).square().sum(2).sort(1).values[:, 4].sqrt()
    theirs = (base[:, None] - base).square().sum(2).sort(1).values[:, 5].sqrt()

    def by_hand(z: Tensor) -> Tensor:
        weight = torch.exp(-4 * (z[:, None] - base).square().sum(2) / (own[:, None] * theirs))
        return torch.log(torch.stack([weight[:, y == c].sum(1) for c in (0, 1)], 1))

    z = x.clone().requires_grad_()
    direction = torch.linspace(-1, 1, 8, dtype=torch.float64).view(4, 2)
    (expected,) = torch.autograd.grad((by_hand(z) * direction).sum(), z)
    (found,) = torch.autograd.grad((logits_of_every_class(layer, z, base, y) * direction).sum(), z)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
