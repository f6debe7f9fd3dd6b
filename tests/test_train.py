"""The training loop against steps written out by hand, and what a run must and must not depend on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

import gll
from gll.data.augment import augmentation_from_name
from gll.data.datasets import normalize
from gll.data.random import derived_seed, generator
from gll.data.sampling import GraphBatches
from gll.train import evaluate as evaluation
from gll.train import loop, model
from gll.train.config import Config, TrainConfig, with_values
from gll.train.distributed import Ranks
from gll.train.evaluate import evaluate
from gll.train.loop import Training, new_run, train
from gll.train.model import build, encode, load_data, restore
from gll.train.optimize import learning_rate
from gll.train.progress import Reporter
from gll.train.runs import RunError
from gll.train.toml import ConfigError
from tests.tiny_runs import WARM, lines, tiny


@pytest.mark.parametrize("head", ["gll", "mlp"])
def test_a_step_is_what_one_writes_by_hand(tmp_path: Path, head: str) -> None:
    options = ("train.optimizer=sgd", "train.lr=0.05", "train.momentum=0", "train.weight_decay=0.01")
    config = tiny(tmp_path, f"model.head={head}", "data.augment=crop", "train.steps=1", "train.epochs=1", *options)
    run = new_run(config)
    data, split = load_data(config), run.split
    mine = build(config, data)
    before = {name: p.detach().clone() for name, p in mine.encoder.named_parameters()}
    size = 20 if head == "gll" else 0
    batches = GraphBatches(data.train_labels, split, batch=60, base=size, seed=0, labelled=20, steps=1)
    (batch,) = batches.epoch(0)
    index = torch.cat([batch.base, batch.labelled, batch.unlabelled])
    assert batch.sizes == ((20, 20, 40) if head == "gll" else (0, 20, 0))
    images = augmentation_from_name("crop")(data.train[index], generator(0, "augment", 0, 0, 0))
    torch.manual_seed(derived_seed(0, "step", 0, 0, 0))
    z = mine.encoder(normalize(images, data))
    target = data.train_labels[batch.labelled]
    if head == "gll":
        layer = gll.GraphLearningLayer(10)
        logits = layer(z[20:], z[:20], data.train_labels[batch.base])[:20]
        loss = -logits[torch.arange(20), target].mean()
    else:
        logits = mine.head(z)
        loss = nn.functional.cross_entropy(logits, target)
    loss.backward()

    train(run)
    theirs, _ = restore(run)
    assert run.metrics()[0]["loss"] == pytest.approx(loss.item(), rel=1e-6)
    assert run.metrics()[0]["error"] == pytest.approx((logits.argmax(1) != target).double().mean().item())
    for name, p in mine.encoder.named_parameters():
        assert p.grad is not None
        expected = before[name] - 0.05 * (p.grad + 0.01 * before[name])
        torch.testing.assert_close(theirs.encoder.get_parameter(name).detach(), expected, rtol=1e-5, atol=1e-7)
        assert bool((p.grad != 0).any()), f"no gradient reaches {name}"


@pytest.mark.parametrize("head", ["gll", "mlp", "linear", "wnll", "probe", "knn"])
def test_every_head_trains_what_it_should(tmp_path: Path, head: str) -> None:
    options = {
        "mlp": ["model.head_options.hidden=32"],
        "probe": ["train.lr=0.1"],
        "wnll": ["model.head_options.stage1=8", "model.head_options.stage2=2"],
    }
    config = tiny(tmp_path, f"model.head={head}", "train.epochs=10", "train.lr=0.003", *options.get(head, []))
    run = new_run(config)
    result = train(run)
    start, (end, _) = build(config, load_data(config)), restore(run)
    stored = end.tensors()
    same = {n: torch.equal(t, stored[n]) for n, t in start.tensors().items() if "num_batches" not in n}
    encoder, rest = ([same[n] for n in same if n.startswith(part)] for part in ("encoder.", "head."))
    if head in ("probe", "knn"):
        assert all(encoder), "the encoder was changed, or its statistics"
    else:
        assert not any(encoder), "something in the encoder did not learn"
    assert not any(rest)
    assert len(rest) > 0 or head in ("gll", "knn")
    assert result["epochs"] == (0 if head == "knn" else 10)
    if head != "knn":
        losses = [row["loss"] for row in run.metrics() if row["phase"] == "train"][: 8 if head == "wnll" else 10]
        assert losses[-1] < 0.8 * losses[0]
    assert result["error"] < {"probe": 0.4, "knn": 0.3, "mlp": 0.4, "linear": 0.3}.get(head, 0.15)
    assert result["parameters"]["head"] == sum(p.numel() for p in end.head.parameters())


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    runs = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        config = tiny(tmp_path / name, f"seed={seed}", "data.augment=grey", "test.every=1")
        torch.manual_seed(hash(name) % 1000)  # what was drawn before does not matter
        run = new_run(config)
        train(run)
        runs.append(run)
    a, b, c = ((lines(run), restore(run)[0].tensors()) for run in runs)
    assert a[0] == b[0] != c[0]
    assert all(torch.equal(tensor, b[1][name]) for name, tensor in a[1].items())
    assert len(a[0]) == 4  # two epochs, each with a train line and a test


def test_hidden_labels_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other classes on the unlabelled samples the run is the same to the last bit."""
    found = []
    for name in ("a", "b"):
        config = tiny(tmp_path / name, "base.strategy=entropy", "test.every=1", "warmup.gamma=0.5", *WARM)
        run = new_run(config)
        if name == "b":
            data = load_data(config)
            labels = data.train_labels.clone()
            labels[run.split.unlabelled] = labels[run.split.unlabelled].flip(0)
            assert not torch.equal(labels, data.train_labels)
            taken = mock.Mock(return_value=dataclasses.replace(data, train_labels=labels))
            monkeypatch.setattr(model, "data_of", taken)
        train(run)
        found.append((lines(run), run.load("train")))
    taken.assert_called_once()
    assert found[0][0] == found[1][0]
    a, b = found[0][1], found[1][1]
    assert a is not None
    assert b is not None
    assert all(torch.equal(tensor, b[0][name]) for name, tensor in a[0].items())


def test_the_transductive_test_is_one_graph_of_everything(tmp_path: Path) -> None:
    config = tiny(tmp_path, "test.k=7", "test.tau=0.001", "test.inductive=true", "test.device=cpu")
    data, run = load_data(config), new_run(config)
    net = build(config, data)
    scores = evaluate(net, data, run.split, config)
    assert [(s.head, s.mode) for s in scores] == [("gll", "transductive"), ("gll", "inductive")]
    z = torch.cat([encode(net.encoder, images, data, config) for images in (data.train, data.test)])
    z = torch.nn.functional.normalize(z.double(), dim=1)
    known = torch.full((len(z),), -1)
    known[run.split.labelled] = data.train_labels[run.split.labelled]
    equation = gll.Laplace(tau=0.001)
    solution = gll.solve(equation, gll.knn_graph(z, 7), gll.Labels.from_classes(known, num_classes=10))
    value = solution.value[len(data.train) :]
    assert scores[0].error == pytest.approx((value.argmax(1) != data.test_labels).double().mean().item())
    logp = torch.log_softmax(torch.log(value + 1e-8), 1)
    assert scores[0].loss == pytest.approx(nn.functional.nll_loss(logp, data.test_labels).item(), rel=1e-4)
    assert scores[1].loss != scores[0].loss


def test_heads_beside_the_trained_one(tmp_path: Path) -> None:
    run = new_run(tiny(tmp_path, "model.head=mlp", "test.also=gll,knn", "train.epochs=1"))
    result = train(run)
    assert [(t["head"], t["mode"]) for t in result["tests"]] == [
        ("mlp", "inductive"),
        ("gll", "transductive"),
        ("knn", "inductive"),
    ]
    assert result["error"] == result["tests"][0]["error"] > result["tests"][1]["error"]
    for name in ("mlp", "probe", "foo"):
        with pytest.raises(ValueError, match=rf"head in test\.also .*'{name}'; choose one of gll, knn$"):
            new_run(tiny(tmp_path / "b", f"test.also={name}"))


def test_a_graph_of_all_neighbours_is_remarked_on(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    data = load_data(config)  # 400 and 100 samples
    assert evaluation.remarks(with_values(config, "test.k=498"), data) == []
    for head in ("model.head=gll", "test.also=gll"):
        (said,) = evaluation.remarks(with_values(config, "model.head=mlp", head, "test.k=499"), data)
        assert "test.k = 499, and the graph of the test has 500 points" in said
    assert evaluation.remarks(with_values(config, "model.head=mlp", "test.k=499"), data) == []


def test_a_switch_of_heads(tmp_path: Path) -> None:
    run = new_run(tiny(tmp_path, "model.switch_at=2", "train.epochs=3", "test.every=1"))
    train(run)
    assert [(row["phase"], row["head"]) for row in run.metrics()] == [
        *(("train", "mlp"), ("test", "mlp")) * 2,
        *(("train", "gll"), ("test", "gll")),
    ]


@pytest.mark.parametrize(("encoder", "same"), [("fashion-cnn", True), ("digits-cnn", False)])
def test_a_base_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: str, same: bool) -> None:
    """Without batch normalisation it is all the same; with it the base has statistics of its own."""
    sizes, weights = dict[str, list[int]](), dict[str, dict[str, Tensor]]()
    own = loop.features
    for apart in ("false", "true"):
        seen = sizes[apart] = list[int]()
        monkeypatch.setattr(
            loop, "features", lambda net, x, config, seen=seen: seen.append(len(x)) or own(net, x, config)
        )
        network = [f"model.encoder={encoder}", "train.optimizer=sgd", *["model.encoder_options.image_size=8"] * same]
        run = new_run(tiny(tmp_path / apart, *network, "train.epochs=1", f"base.apart={apart}"))
        train(run)
        weights[apart] = dict(restore(run)[0].encoder.named_parameters())
    assert sizes == {"false": [80] * 3, "true": [20, 60] * 3}
    alike = [torch.allclose(w, weights["true"][name], rtol=1e-4, atol=1e-6) for name, w in weights["false"].items()]
    assert all(alike) is same


def test_each_head_has_its_rate(tmp_path: Path) -> None:
    course = ["train.schedule=step", "train.step_epochs=1", "train.step_factor=0.5", "train.lr=0.08", "train.epochs=3"]
    found = {}
    for first in ("", "model.first_lr=0.4"):
        run = new_run(tiny(tmp_path / f"r{first}", "model.switch_at=2", *course, *filter(None, [first])))
        train(run)
        found[first] = [row["lr"] for row in run.metrics() if row["phase"] == "train"]
    assert found[""] == pytest.approx([0.08, 0.04, 0.02])
    assert found["model.first_lr=0.4"] == pytest.approx([0.4, 0.2, 0.02])


def test_the_first_head_is_the_one_that_would_train_alone(tmp_path: Path) -> None:
    turns = tiny(tmp_path, "model.switch_at=2", "model.first_options.hidden=7")
    alone = tiny(tmp_path, "model.head=mlp", "model.head_options.hidden=7")
    heads = [build(config, load_data(config)).head for config in (turns, alone)]
    first, head = heads[0].first.state_dict(), heads[1].state_dict()
    assert any(7 in weight.shape for weight in first.values())
    assert all(torch.equal(first[name], weight) for name, weight in head.items())  # from the same start, too


@pytest.mark.parametrize("selection", ["top", "localmax"])
def test_an_uncertain_base_follows_the_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, selection: str) -> None:
    bases: list[Tensor] = []
    choose = Training.choose_base

    def spy(self: Training, batches: GraphBatches) -> Tensor:
        bases.append(choose(self, batches))
        return bases[-1]

    monkeypatch.setattr(Training, "choose_base", spy)
    config = tiny(tmp_path, "base.strategy=l2", f"base.selection={selection}", "train.epochs=2", "train.lr=1e-30")
    run = new_run(config)
    train(run)
    if selection == "top":
        # With a learning rate of nothing (batch statistics aside) the second base can be computed by hand.
        data, (net, _) = load_data(config), restore(run)
        z = encode(net.encoder, data.train[run.split.labelled], data, config)
        inside = torch.isin(run.split.labelled, bases[0])
        labels = data.train_labels[run.split.labelled]
        p = net.head.classify(z[~inside], z[inside], labels[inside]).exp()
        score = 1 - p.double().norm(dim=1)
        expected = set(run.split.labelled[~inside][score.topk(20).indices].tolist())
        assert len(expected & set(bases[1].tolist())) >= 15  # some make way for classes that have none
    assert len(set(bases[0].tolist()) & set(bases[1].tolist())) < 10
    assert set(data_classes(config, bases[1])) == set(range(10))


def data_classes(config: Config, index: Tensor) -> list[int]:
    return load_data(config).train_labels[index].tolist()


def test_clipping(tmp_path: Path) -> None:
    options = ("train.optimizer=sgd", "train.momentum=0", "train.lr=1", "train.clip=0.001", "model.head=mlp")
    config = tiny(tmp_path, "train.epochs=1", "train.steps=1", *options)
    run = new_run(config)
    train(run)
    start, (end, _) = build(config, load_data(config)), restore(run)
    moved = sum((a - b).square().sum() for a, b in zip(start.parameters(), end.parameters(), strict=True)).sqrt()
    assert moved.item() == pytest.approx(0.001, rel=1e-3)


def test_autocast_and_channels_last_give_about_the_same(tmp_path: Path) -> None:
    losses = []
    for name in ("false", "true"):
        run = new_run(tiny(tmp_path / name, f"train.autocast={name}", f"train.channels_last={name}"))
        train(run)
        losses.append(run.metrics()[0]["loss"])
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_a_compiled_encoder_learns_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def compile_(module: nn.Module) -> Any:
        compiled.append(module)
        return original(module, backend="aot_eager")  # traced as always, but not translated, which takes a minute

    original = torch.compile
    monkeypatch.setattr(torch, "compile", compile_)
    found = []
    for name in ("false", "true"):
        run = new_run(tiny(tmp_path / name, f"train.compile={name}", "train.epochs=1"))
        train(run)
        found.append(run.metrics()[0]["loss"])
    assert len(compiled) == 1
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_points(tmp_path: Path) -> None:
    overrides = ["data.name=moons", "model.encoder=mlp", "data.labels=20 each", "train.epochs=10", "base.size=10"]
    result = train(new_run(tiny(tmp_path, *overrides)))
    assert result["error"] < 0.15
    with pytest.raises(ConfigError, match="points"):
        new_run(tiny(tmp_path / "b", *overrides, "data.augment=crop"))


@pytest.mark.parametrize("schedule", ["cosine", "step", "one-cycle", "constant"])
def test_learning_rates_agree_with_pytorch(schedule: str) -> None:
    section = TrainConfig(epochs=20, lr=0.2, schedule=schedule, step_epochs=6, step_factor=0.5)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.2)
    schedulers = torch.optim.lr_scheduler
    theirs = {
        "cosine": lambda: schedulers.CosineAnnealingLR(optimizer, 60),
        "step": lambda: schedulers.StepLR(optimizer, 18, gamma=0.5),
        # PyTorch counts its steps so that the peak is one step earlier, and ends at a small number in place of zero.
        "one-cycle": lambda: schedulers.OneCycleLR(
            optimizer, 0.2, total_steps=61, pct_start=19 / 61, final_div_factor=1e12, cycle_momentum=False
        ),
        "constant": lambda: schedulers.ConstantLR(optimizer, 1.0),
    }[schedule]()
    for step in range(60):
        assert learning_rate(section, step, 3) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9, abs=1e-12)
        optimizer.step()
        theirs.step()


def test_more_steps_than_notes(tmp_path: Path) -> None:
    """Notes are read every 20 steps; the sums are those of all steps, whenever that is."""
    found = []
    for steps in (20, 23):
        run = new_run(tiny(tmp_path / str(steps), f"train.steps={steps}", "train.epochs=1"))
        train(run)
        found.append(run.metrics()[0])
    assert [row["step"] for row in found] == [20, 23]
    assert 0 < found[1]["loss"] < found[0]["loss"]


def test_errors_of_other_kinds_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise ValueError("something else")

    monkeypatch.setattr(Training, "train_step", broken)
    with pytest.raises(ValueError, match="something else"):
        train(new_run(tiny(tmp_path)))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.head=gl", "unknown head"),
        ("model.head_options.kk=3", "no option 'kk'"),
        ("model.encoder=resnet19", "resnet19"),
        ("data.augment=stronk", "stronk"),
        ("data.labels=some", "labels"),
        ("base.size=60", "leaves none"),
        ("data.name=nowhere", "nowhere"),
    ],
)
def test_what_cannot_be_built_leaves_no_directory(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises((ValueError, OSError), match=message):
        new_run(tiny(tmp_path, override))
    assert list(tmp_path.iterdir()) == []


def test_a_warm_up_is_shared(tmp_path: Path) -> None:
    first = new_run(tiny(tmp_path / "a", "test.every=1", *WARM))
    result = train(first)
    assert result["warmup"]["gamma"] == 1.0
    assert [r["epoch"] for r in first.metrics() if r["phase"] == "test"] == [0, 1, 2]
    same = [f"warmup.from={first.directory}", "test.also=gll", "test.every=1"]
    second = new_run(tiny(tmp_path / "b", "model.head=mlp", *same))
    train(second)
    rows = [[r for r in run.metrics() if r.get("head") == "gll" and r["epoch"] == 0] for run in (first, second)]
    assert rows[0] == rows[1]
    labels, encoder = "other labels", "other encoder"
    wrongs = {"data.labels=7 each": labels, "seed=1": labels, "model.encoder_options.feature_dim=32": encoder}
    for wrong, message in wrongs.items():
        with pytest.raises(RunError, match=message):
            new_run(tiny(tmp_path / message / wrong[:4], *same, wrong))


def test_the_projection_of_a_warm_up_is_kept(tmp_path: Path) -> None:
    first = new_run(tiny(tmp_path / "a", "train.epochs=0", *WARM))
    train(first)
    stored = first.load("warmup")
    assert stored is not None
    options = ["train.epochs=0", f"warmup.from={first.directory}", "warmup.keep_projection=true"]
    heads = {"gll": ("projection", "model.head_options.projection=128"), "mlp": ("layers", "model.head=mlp")}
    for name, (place, option) in heads.items():
        run = new_run(tiny(tmp_path / name, *options, option))
        train(run)
        layers = getattr(restore(run)[0].head, place).state_dict()
        assert all(torch.equal(layers[n], stored[0][f"projection.{n}"]) for n in ("0.weight", "2.weight", "2.bias"))
    for name, option, message in (
        ("b", "model.head=gll", "no layers of its own"),
        ("c", "model.head=linear", "not like"),
    ):
        with pytest.raises(ConfigError, match=message):
            new_run(tiny(tmp_path / name, *options, option))


@pytest.mark.gpu
@pytest.mark.parametrize("augment", ["none", "grey"])
@pytest.mark.parametrize("head", ["mlp", "linear"])
def test_a_step_does_not_wait_for_the_gpu(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpu_waits: Callable[[str], AbstractContextManager[None]],
    head: str,
    augment: str,
) -> None:
    """Heads without a graph; that of a graph waits once, in the forward pass (`test_fused.py`)."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    step = Training.train_step

    def watched(self: Training, batch: Any, number: int, lr: float) -> None:
        with gpu_waits("error" if number > 0 else "default"):  # the first step fills caches
            step(self, batch, number, lr)

    monkeypatch.setattr(Training, "train_step", watched)
    options = ["device=cuda", f"model.head={head}", f"data.augment={augment}"]
    train(new_run(tiny(tmp_path, *options, "train.autocast=true", "train.channels_last=true")))


def test_images_stay_bytes_on_the_training_device(tmp_path: Path, device: torch.device) -> None:
    training = Training(new_run(tiny(tmp_path, "data.augment=grey")), Ranks(device=device), Reporter())
    data, index = training.data, torch.arange(7, device=device)
    for images in (data.train, data.test, training.ahead.images(index, 0, 0)):
        assert images.dtype == torch.uint8
        assert images.device.type == device.type


def test_progress_in_plain_lines(tmp_path: Path) -> None:
    import io

    from rich.console import Console

    text = io.StringIO()
    train(new_run(tiny(tmp_path)), reporter=Reporter(Console(file=text, width=200), seconds=0))
    said = text.getvalue().splitlines()
    assert said[0] == "a step: 20 labelled samples + 40 unlabelled samples + a base of 20; 3 steps an epoch"
    assert said[1].startswith("epoch 1/2: loss ")
    assert all(word in said[1] for word in ("error", "images/s", "left"))
    assert "test error gll transductive" in said[-1]
    assert said[-1].endswith(" s)")  # how long it took


def test_one_process_of_several_gets_its_share(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    run, data = new_run(config), load_data(config)
    ranks = [Ranks(rank=r, world=2) for r in (0, 1)]
    first, second = (next(loop.make_batches(config, data.train_labels, run.split, r, True).epoch(0)) for r in ranks)
    assert first.sizes == second.sizes == (20, 10, 20)
    assert not set(first.labelled.tolist()) & set(second.labelled.tolist())
