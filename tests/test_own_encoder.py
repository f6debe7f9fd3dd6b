"""Networks of the user's own in `gll train`: by the place of a function, or as a module."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from gll.cli import app
from gll.train.apply import Trained
from gll.train.checkpoint import CheckpointError
from gll.train.loop import new_run, train
from gll.train.model import build, load_data, restore
from gll.train.own_encoder import announce, make_encoder
from gll.train.runs import Run, RunError
from gll.train.toml import ConfigError
from tests.tiny_runs import WARM, digits, lines, tiny

NUMBERS = itertools.count()

NETWORKS = '''
from torch import nn
from gll.nn.encoders import create_encoder

constant = 3

def same(in_channels, **options):
    return create_encoder("digits-cnn", in_channels, **options)

def classifier(in_channels, width=16):
    """Without a feature_dim, as networks of torchvision and timm come."""
    return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * 64, width), nn.ReLU(), nn.Linear(width, 10))

class Net(nn.Module):
    feature_dim = 8
    def __init__(self, in_channels):
        super().__init__()
        self.layer = nn.Linear(in_channels * 64, self.feature_dim)
    def forward(self, x):
        return self.layer(x.flatten(1))

def spatial(in_channels):
    net = nn.Conv2d(in_channels, 4, 3)
    net.feature_dim = 4
    return net

def pair(in_channels):
    net = nn.LSTM(8, 4)
    net.feature_dim = 4
    return net

def wrong_size(in_channels):
    net = Net(in_channels)
    net.feature_dim = 9
    return net

def odd_size(in_channels):
    net = Net(in_channels)
    net.feature_dim = "8"
    return net

def frozen(in_channels):
    return Net(in_channels).requires_grad_(False)

def broken(in_channels):
    raise KeyError("of my own")

def no_module(in_channels):
    return "resnet"

def unclear(in_channels):
    return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * 64, 4), nn.BatchNorm1d(4))
'''


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Write a module into the current folder; gives its name, which no other test uses."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    written = []

    def put(text: str) -> str:
        name = f"networks_{next(NUMBERS)}"
        Path(f"{name}.py").write_text(text)
        written.append(name)
        return name

    yield put
    for name in written:
        sys.modules.pop(name, None)


def test_a_function_of_my_own_trains_like_the_network_it_makes(tmp_path: Path, put: Callable[[str], str]) -> None:
    place, options = put(NETWORKS), "model.encoder_options.feature_dim=24"
    named = new_run(tiny(tmp_path / "named", options))
    mine = new_run(tiny(tmp_path / "mine", f"model.encoder={place}:same", options))
    train(named)
    train(mine)
    assert lines(mine) == lines(named)
    model, _ = restore(Run.open(mine.directory), encoder=f"{place}:same")
    assert model.encoder.feature_dim == 24


@pytest.mark.parametrize(("name", "dim"), [("classifier", 16), ("Net", 8)])
def test_a_classifier_is_taken_off_and_a_class_is_called(
    tmp_path: Path, put: Callable[[str], str], name: str, dim: int
) -> None:
    config = tiny(tmp_path, f"model.encoder={put(NETWORKS)}:{name}")
    run = new_run(config)
    result = train(run)
    start, (end, data) = build(config, load_data(config), encoder=config.model.encoder), restore(run)
    assert end.encoder.feature_dim == dim
    assert all(not torch.equal(a, b) for a, b in zip(start.encoder.parameters(), end.encoder.parameters(), strict=True))
    assert result["parameters"]["encoder"] == sum(p.numel() for p in end.encoder.parameters()) > 0
    assert data.channels == 1


def test_going_on_testing_and_using_it_find_it_again(tmp_path: Path, put: Callable[[str], str]) -> None:
    place = put(NETWORKS)
    overrides = [f"model.encoder={place}:same", f"data.name={digits()}", "data.labels=6 each", "device=cpu"]
    overrides += ["base.size=20", "train.epochs=1", "train.steps=2", "train.batch=60", "test.k=10", "out=run"]
    Path("c.toml").write_text('name = "mine"\n')
    said = f"importing {place} ({Path(f'{place}.py').absolute()}), which runs its code"

    def gll(*words: str, code: int = 0) -> str:
        found = CliRunner().invoke(app, list(words))
        assert found.exit_code == code, found.output
        return found.output.replace("\n", "")

    assert said in gll("train", "c.toml", *overrides)
    named = ("--encoder", f"{place}:same")
    assert said in gll("evaluate", "run", *named)
    assert said in gll("predict", "run", "digits:test", *named)
    assert said in gll("embed", "run", "digits:test", "-o", "z.npz", *named)
    trained = Trained.open(Path("run"), encoder=f"{place}:same")
    with np.load("z.npz") as file:
        z = trained.features(trained.data.test)
        assert file["features"].shape[1] == z.shape[1] == 64
    sys.modules.pop(place)
    Path(f"{place}.py").unlink()
    for words in (
        ("evaluate", "run"),
        ("predict", "run", "digits:test"),
        ("embed", "run", "digits:test", "-o", "y.npz"),
    ):
        assert f"there is no module {place} here" in gll(*words, *named, code=1)
    Path("run/result.json").unlink()
    assert f"there is no module {place} here" in gll("train", "--resume", "run", *named, code=1)


def test_a_network_that_has_changed_since_is_named(tmp_path: Path, put: Callable[[str], str]) -> None:
    place = put(NETWORKS)
    run = new_run(tiny(tmp_path, f"model.encoder={place}:classifier", *WARM))
    train(run)
    Path(f"{place}.py").write_text(NETWORKS.replace("width=16", "width=17 "))
    sys.modules.pop(place)
    with pytest.raises(CheckpointError, match=r"encoder is not the one that was trained: .* its code or its options"):
        restore(run)
    with pytest.raises(CheckpointError, match="the encoder is not the one"):
        new_run(tiny(tmp_path / "b", f"model.encoder={place}:classifier", f"warmup.from={run.directory}"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere_at_all:make", "there is no module nowhere_at_all here. Looked for in the current folder"),
        ("os.nowhere:make", "there is no module os.nowhere here"),
        ("PLACE:missing", r"missing is not there in .*networks_\d+\.py"),
        ("PLACE:constant", "constant is a int, not a function or class"),
        ("PLACE:no_module", r"must give a torch\.nn\.Module, got str"),
        ("PLACE:broken", r"failed: KeyError: 'of my own' \(.*networks_\d+\.py, line \d+\)"),
        ("PLACE:unclear", "has no feature_dim, .* cannot tell which layer .* Set self.feature_dim"),
        ("PLACE:odd_size", "feature_dim must be a whole number, at least 1, got '8'"),
        ("PLACE:spatial", r"the features of 2 samples have shape \(2, 4, 6, 6\), .*pool or flatten"),
        ("PLACE:pair", "does not take the samples|the features of 2 samples have type tuple"),
        ("PLACE:wrong_size", "says feature_dim = 9, but makes 8 features"),
        ("PLACE:frozen", "no parameter .* may be trained"),
        ("a-b:make", "neither the name of an encoder nor of the form package.module:function"),
        ("PLACE:", "neither the name"),
        (":make", "neither the name"),
        ("mine.make", "unknown encoder 'mine.make'; choose one of .* package.module:function in a config"),
        ("given", "has to be given again"),
    ],
)
def test_what_is_no_encoder(tmp_path: Path, put: Callable[[str], str], name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        new_run(tiny(tmp_path, f"model.encoder={name.replace('PLACE', put(NETWORKS))}"))
    assert not (tmp_path / "run").exists()


def named(name: str, **options: int) -> nn.Module:
    """An encoder that the user has named, for images of one channel."""
    return make_encoder(name, 1, options, name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import not_installed_anywhere", "cannot be imported: ModuleNotFoundError: .*'not_installed_anywhere'"),
        ("def make(:", "cannot be imported: SyntaxError: .*line 1"),
        ("x = 1\ny = undefined", "cannot be imported: NameError: .*line 2"),
    ],
)
def test_a_module_that_fails(put: Callable[[str], str], text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        named(f"{put(text)}:make")


def test_options_that_it_does_not_take(put: Callable[[str], str]) -> None:
    with pytest.raises(ConfigError, match=r"cannot be called with in_channels=1, depth=3: got an unexpected .*'depth'"):
        named(f"{put(NETWORKS)}:classifier", depth=3)


def test_what_cannot_tell_its_arguments_is_called(put: Callable[[str], str]) -> None:
    with pytest.raises(ConfigError, match=r"must give a torch\.nn\.Module, got dict"):
        named("builtins:dict")


@pytest.mark.parametrize("name", ["digits-cnn", "PLACE:same"])
def test_the_number_of_channels_is_that_of_the_data(put: Callable[[str], str], name: str) -> None:
    with pytest.raises(ConfigError, match=r"encoder_options\.in_channels: this number is that of the data, 1"):
        named(name.replace("PLACE", put(NETWORKS)), in_channels=3)


def test_installed_modules_come_before_the_current_folder(put: Callable[[str], str]) -> None:
    put("")
    Path("safetensors.py").write_text("raise AssertionError")
    heard: list[str] = []
    announce("safetensors:make", {}, heard.append)
    assert "site-packages" in heard[0]
    assert str(Path.cwd()) not in heard[0]


# A module as it is ---------------------------------------------------------------------------------------------------


def test_a_given_module_trains_like_one_by_name(tmp_path: Path) -> None:
    config = tiny(tmp_path / "named", *WARM)
    module = build(config, load_data(config)).encoder
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    named = new_run(config)
    train(named)
    given = new_run(tiny(tmp_path / "given", *WARM), encoder=module)
    assert given.config.model.encoder == "given"
    train(given, encoder=module)
    assert lines(given) == lines(named)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())  # a copy was trained
    a, b = restore(named)[0], restore(given, encoder=module)[0]
    assert all(torch.equal(a.tensors()[name], tensor) for name, tensor in b.tensors().items())
    assert Trained.open(given.directory, device="cpu", encoder=module).model.encoder.feature_dim == 64


def test_a_given_module_goes_on_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    whole, cut = (new_run(tiny(tmp_path / name), encoder=module) for name in ("whole", "cut"))
    train(whole, encoder=module)
    with monkeypatch.context() as patch:
        patch.setattr("gll.train.loop.Training.test", lambda self: {}["stopped"])
        with pytest.raises(KeyError):
            train(cut, encoder=module)
    with pytest.raises(ConfigError, match="has to be given again"):
        train(Run.open(cut.directory))
    train(Run.open(cut.directory), encoder=module)
    assert lines(cut) == lines(whole)


def test_a_module_for_a_run_with_a_name_is_refused(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    run = new_run(tiny(tmp_path))
    with pytest.raises(ConfigError, match='has a name, "digits-cnn"'):
        train(run, encoder=module)
    with pytest.raises(RunError, match="has another encoder"):
        new_run(tiny(tmp_path / "b", f"warmup.from={run.directory}"), encoder=module)


def test_a_module_that_learns_nothing_is_tested_only(tmp_path: Path) -> None:
    class Pixels(nn.Flatten):
        feature_dim = 64

    result = train(new_run(tiny(tmp_path), encoder=Pixels()), encoder=Pixels())
    assert result["epochs"] == 0
    assert result["error"] < 0.5
