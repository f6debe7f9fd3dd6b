"""Run directories may be somebody else's: code that they name is executed only if the user names it too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch import nn
from typer.testing import CliRunner

from gll.attacks.victims import victim_of
from gll.cli import app
from gll.train.apply import Trained
from gll.train.loop import new_run, train
from gll.train.model import build, load_data, restore
from gll.train.runs import Run, RunError
from gll.train.toml import ConfigError
from tests.tiny_runs import WARM, tiny

CODE = """
from pathlib import Path
from gll.nn.encoders import create_encoder

Path(__file__).with_name("ran").touch()

def make(in_channels, **options):
    return create_encoder("digits-cnn", in_channels, **options)

def load(in_channels, **options):
    raise AssertionError
"""
OWN, OTHER = "foreign_networks:make", "foreign_networks:load"
OPTION = "model.encoder_options.feature_dim=24"
ATTACK = ("--attacks", "fgsm", "--eps", "0.1", "--samples", "8", "--base", "20", "--device", "cpu")


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bool]]:
    """A module in the current folder; tells whether it has been executed since it was asked last."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    Path("foreign_networks.py").write_text(CODE)

    def ran() -> bool:
        sys.modules.pop("foreign_networks", None)
        there = Path("ran").exists()
        Path("ran").unlink(missing_ok=True)
        return there

    yield ran
    ran()


@pytest.fixture
def foreign(tmp_path: Path, code: Callable[[], bool]) -> Path:
    """A trained run that names the module. Who makes a run names the encoder in the config, and no second time."""
    run = new_run(tiny(tmp_path, f"model.encoder={OWN}", OPTION, "model.head=mlp", *WARM))
    train(run)
    assert restore(run)[0].encoder.feature_dim == 24
    assert code()
    return run.directory


def gll(*words: str | Path, code: int) -> str:
    found = CliRunner().invoke(app, list(map(str, words)))
    assert found.exit_code == code, found.output
    return found.output.replace("\n", "")


def test_no_command_executes_what_a_run_names(tmp_path: Path, foreign: Path, code: Callable[[], bool]) -> None:
    plain = new_run(tiny(tmp_path / "plain", "name=plain", "model.head=mlp"))
    train(plain)
    (foreign / "result.json").unlink()  # so that there is something to go on with
    commands: list[tuple[str | Path, ...]] = [
        ("evaluate", foreign),
        ("predict", foreign, "digits:test"),
        ("embed", foreign, "digits:test", "-o", "z.npz"),
        ("attack", foreign, *ATTACK, "--out", "a"),
        ("attack", plain.directory, *ATTACK, "--attacks", "transfer", "--transfer", foreign, "--out", "b"),
        ("train", "--resume", foreign),
        ("pretrain", "--resume", foreign),
    ]
    for words in commands:
        said = gll(*words, code=1)
        assert f"{foreign} has model.encoder = \"{OWN}\", with encoder_options = {{'feature_dim': 24}}. " in said, words
        assert "executes code, which the run has chosen and not you" in said, words
        assert f"name it too: --encoder {OWN} (in Python" in said, words
        assert "importing" not in said
        said = gll(*words, "--encoder", OTHER, code=1)
        assert f'has model.encoder = "{OWN}"' in said, words
        assert "importing" not in said
        assert not code(), words
    for words in commands:
        said = gll(*words, "--encoder", OWN, code=0)
        assert f"importing foreign_networks ({Path('foreign_networks.py').absolute()}), which runs its code" in said, (
            words
        )
        assert "encoder_options = {'feature_dim': 24}" in said, words
        assert code(), words


def test_nor_do_functions(foreign: Path, code: Callable[[], bool]) -> None:
    run = Run.open(foreign)
    (foreign / "result.json").unlink()
    uses: list[Callable[..., object]] = [
        lambda **named: restore(run, **named),
        lambda **named: Trained.open(foreign, device="cpu", **named),
        lambda **named: victim_of(run, **named),
        lambda **named: build(run.config, load_data(run.config), **named),
        lambda **named: train(run, **named),
    ]
    for use in uses:
        with pytest.raises(ConfigError, match=rf"executes code, .* \(in Python: encoder=\"{OWN}\"\)"):
            use()
        with pytest.raises(ConfigError, match=f'has model.encoder = "{OWN}", not "{OTHER}"'):
            use(encoder=OTHER)
        with pytest.raises(ConfigError, match="has a name"):
            use(encoder=nn.Linear(2, 2))
        assert not code()
    for use in uses:
        use(encoder=OWN)
        assert code()


def test_a_warm_up_of_another_run_executes_nothing(tmp_path: Path, foreign: Path, code: Callable[[], bool]) -> None:
    with pytest.raises(RunError, match=f"has another encoder: {OWN}"):
        new_run(tiny(tmp_path / "b", f"warmup.from={foreign}"))
    assert not code()
    train(new_run(tiny(tmp_path / "c", f"warmup.from={foreign}", f"model.encoder={OWN}", OPTION)))
    assert code()


def test_a_folder_that_brings_its_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of a function that everybody has, and options that lead it to a file beside the run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "hubconf.py").write_text(CODE)
    options = [f"model.encoder_options.{key}" for key in ("repo_or_dir=bad", "source=local", "model=make")]
    run = new_run(tiny(tmp_path / "bad", "model.encoder=torch.hub:load", *options))
    train(run)
    ran = tmp_path / "bad" / "ran"
    ran.unlink()
    said = gll("evaluate", run.directory, code=1)
    assert "{'repo_or_dir': 'bad', 'source': 'local', 'model': 'make'}" in said
    assert not ran.exists()
    gll("evaluate", run.directory, "--encoder", "torch.hub:load", code=0)
    assert ran.exists()


def test_names_that_fit_nothing(tmp_path: Path) -> None:
    run = new_run(tiny(tmp_path, "model.head=mlp"))
    train(run)
    assert f"--encoder is for --resume; with a config say model.encoder={OWN}" in gll(
        "train", run.directory / "config.toml", "--encoder", OWN, code=1
    )
    assert f'has model.encoder = "digits-cnn", not "{OWN}"' in gll("evaluate", run.directory, "--encoder", OWN, code=1)
    said = gll("attack", run.directory, *ATTACK, "--encoder", OWN, code=1)
    assert f"--encoder {OWN}: no run here has it, but digits-cnn" in said
    gll("evaluate", run.directory, "--encoder", "digits-cnn", code=0)
