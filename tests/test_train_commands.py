"""What `gll train` and `gll evaluate` say, beside their figures; and the keys of a config."""

from __future__ import annotations

import dataclasses
import io
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from gll.cli import app
from gll.data import load
from gll.train import keys
from gll.train.config import Config, from_toml, to_toml, with_values
from gll.train.distributed import Ranks
from gll.train.evaluate import to_come
from gll.train.loop import new_run, train
from gll.train.model import load_data, restore
from gll.train.progress import Reporter
from gll.train.start import make_batches, step_in_words
from tests.tiny_runs import TINY, digits, tiny

DOCS = Path(__file__).parent.parent / "docs"


def gll(*words: str, code: int = 0) -> str:
    """Everything that a command prints."""
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == code, found.output
    return found.output


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of images in two classes, without test images: 6 of "cat" and 3 of "dog"."""
    data = load("digits")
    for i in range(9):
        path = tmp_path / "photos" / ("cat" if i < 6 else "dog") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.train[i, 0].numpy()).save(path)
    return tmp_path / "photos"


def test_a_class_that_is_too_small_is_named(tmp_path: Path, photos: Path) -> None:
    with pytest.raises(ValueError, match=r"1 of 2 classes have fewer: class dog has 3; ask"):
        new_run(tiny(tmp_path, f"data.name={photos}", "data.labels=5 each"))


def test_a_run_without_test_samples_says_what_is_known(tmp_path: Path, photos: Path) -> None:
    (tmp_path / "c.toml").write_text(TINY)
    options = [f"data.name={photos}", "data.labels=whole", f"out={tmp_path / 'run'}", "train.labelled=4", "base.size=4"]
    said = gll("train", str(tmp_path / "c.toml"), *options).replace("\n", " ")
    assert f"{photos} has no test samples, so nothing tells how good the run is on new ones (folders train and" in said
    assert "% of the labelled training samples were wrong" in said


def test_a_switch_is_said(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(TINY)
    said = gll("train", str(tmp_path / "c.toml"), f"data.name={digits()}", f"out={tmp_path / 'r'}", "model.switch_at=1")
    assert "; mlp trains for 1 epoch, then gll" in said.replace("\n", "")


def test_what_a_step_holds_is_said(tmp_path: Path) -> None:
    """With few labels the paper's equation leaves a step hardly a sample that has a loss, and says how to get more."""
    config = tiny(tmp_path, "data.labels=3 each", "base.size=10", "train.labelled=0", "train.steps=0")
    run, data = new_run(config), load_data(config)

    def said(config: Config, world: int = 1, uses_base: bool = True) -> str:
        batches = make_batches(config, data.train_labels, run.split, Ranks(world=world), uses_base)
        return step_in_words(config, batches, data.num_classes)

    step = "a step: 3 labelled samples + 52 unlabelled samples + a base of 10; 7 steps an epoch"
    hint = "; only the labelled ones have a loss: train.labelled=10 or more makes an epoch of fewer steps"
    assert said(config) == step + hint
    more = with_values(config, "train.labelled=20")
    assert said(more) == "a step: 20 labelled samples + 40 unlabelled samples + a base of 10; 1 step an epoch"
    assert said(more, 2) == said(more)  # of both processes together
    assert said(config, uses_base=False) == "a step: 30 labelled samples; 1 step an epoch"


def test_a_long_test_is_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tiny(tmp_path, "train.epochs=1", "test.also=knn"))
    train(run)
    assert "testing" not in gll("evaluate", str(run.directory))  # of 500 samples
    monkeypatch.setattr("gll.train.evaluate.LARGE", 500)
    assert "testing gll, knn; the graph has all 500 samples" in gll("evaluate", str(run.directory))
    out = io.StringIO()
    train(new_run(tiny(tmp_path / "b")), reporter=Reporter(Console(file=out, width=200)))
    lines = out.getvalue().splitlines()
    assert lines[-2] == "epoch 2: testing gll; the graph has all 500 samples"
    assert lines[-1].startswith("epoch 2: test error gll transductive ")
    model, data = restore(run, torch.device("cpu"))
    assert to_come(model, data, with_values(run.config, "model.head=mlp", "test.also=knn")) == ""


def test_evaluating_with_too_many_neighbours_is_noted(tmp_path: Path) -> None:
    run = new_run(tiny(tmp_path, "train.epochs=1"))
    train(run)
    assert "(note)" not in gll("evaluate", str(run.directory))
    said = gll("evaluate", str(run.directory), "test.k=2000").replace("\n", " ")
    assert "gll evaluate (note): test.k = 2,000, and the graph of the test has 500 points: all are neighbours" in said


def test_float_classes_are_told_how(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=np.zeros((4, 3)), y_train=np.array([0.0, 1, 0, 1]))
    with pytest.raises(ValueError, match=r"got float64 of shape \(4,\); write whole numbers as y.astype\(int\)"):
        load(str(tmp_path / "a.npz"))


# Keys ----------------------------------------------------------------------------------------------------------------


def test_keys_are_those_of_a_config_with_their_defaults() -> None:
    """What is listed, without `name`, is a config of all defaults."""
    lines = gll("train", "--keys").splitlines()
    first, *rest = [line.partition("  # ")[0] for line in lines]
    assert first == "name = ..."
    table = tomllib.loads("\n".join(['name = "a"', *rest]))
    assert tomllib.loads(to_toml(Config("a"))) == table
    assert from_toml("\n".join(['name = "a"', *rest])) == Config("a")


def test_every_key_has_a_type_and_a_line_of_its_own() -> None:
    for key in keys.all_keys():
        assert key.kind, key
        assert len(key.about) > 8, key
        assert key.about.endswith("."), key
    found = {key.name: key for key in keys.all_keys()}
    assert found["warmup.candidates"].kind == "list of numbers"
    assert found["warmup.gamma"].kind == "number or text"
    assert found["model.encoder_options"] == keys.Key("model.encoder_options", "table", "{}", "its further arguments.")
    assert "of your own" in found["model.encoder"].about  # the second line of an entry belongs to it


def test_a_field_without_a_word_is_an_error() -> None:
    @dataclasses.dataclass(frozen=True)
    class Section:
        """No words.

        Args:
            a: said.
        """

        a: int = 1
        b: int = 2

    with pytest.raises(KeyError, match="b"):
        keys.all_keys(Section)


def test_the_page_has_all_keys() -> None:
    text = (DOCS / "training.md").read_text()
    assert f"<!-- table keys -->\n\n{keys.markdown()}\n\n<!-- end -->" in text, "run python benchmarks/tables.py"
