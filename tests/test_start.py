"""What is wrong with a config is said before a directory is made, and before anything is trained."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from typer.testing import CliRunner

from gll.cli import app
from gll.data.datasets import TrainTest
from gll.data.sampling import GraphBatches
from gll.data.splits import split_labels
from gll.nn.heads import HEADS, Switch
from gll.train import checkpoint, model
from gll.train.config import from_toml, load_config, with_values
from gll.train.loop import new_run, train
from gll.train.model import build, load_data, restore
from gll.train.runs import Run, RunError
from gll.train.start import check_schedule
from gll.train.toml import ConfigError
from gll.train.unused import without_effect
from tests.test_config import CONFIGS
from tests.tiny_runs import WARM, digits, tiny


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model.head=wnll", "model.head_options.stage1=400"], '"wnll" trains a classifier for 400 .* has 2 in all'),
        (["model.head=wnll", "model.head_options.stage1=2"], "lower model.head_options.stage1, for example to 1"),
        (["model.switch_at=2"], 'switch_at = 2 is never reached, as train.epochs = 2: all epochs would train "mlp"'),
        (["model.switch_at=1", "train.epochs=0"], "never reached"),
        (["model.switch_at=1", "model.head=wnll"], "has 1 in all"),
        (["model.switch_at=1", "model.first=wnll"], "has 1 in all"),
        (["model.switch_at=1", "model.first=knn"], '"knn" learns nothing'),
        (["model.switch_at=1", "model.head=knn"], '"knn" learns nothing'),
    ],
)
def test_a_schedule_that_does_not_come_to_pass_is_refused(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        new_run(tiny(tmp_path, *overrides))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "overrides",
    [
        [],  # they are as long as there is time for
        ["model.head_options.stage1=1"],
        ["model.head_options.stage1=2", "model.head_options.stage2=0"],  # a classifier alone, if asked for
        ["train.epochs=0"],  # tested after a warm-up, for example
    ],
)
def test_other_stages_are_not(tmp_path: Path, overrides: list[str]) -> None:
    new_run(tiny(tmp_path, "model.head=wnll", *overrides))


def no_data() -> TrainTest:
    images = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    label = torch.zeros(1, dtype=torch.int64)
    return TrainTest("none", images, label, images, label, ("a", "b"), (0.0,) * 3, (1.0,) * 3)


@pytest.mark.parametrize(
    ("overrides", "first", "second"),
    [
        (["train.epochs=1000"], 400, 5),
        (["train.epochs=2000"], 400, 5),
        (["train.epochs=40"], 16, 1),
        (["train.epochs=100", "model.switch_at=50"], 20, 1),  # of the epochs that are left for it
        (["train.epochs=40", "model.head_options.stage2=3"], 16, 3),
        (["train.epochs=200", "model.head_options.stage1=95"], 95, 5),  # what is said is done, and nothing else
    ],
)
def test_stages_of_wnll_that_are_not_given_follow_the_epochs(overrides: list[str], first: int, second: int) -> None:
    config = from_toml('name = "a"', ["model.head=wnll", *overrides])
    head = build(config, no_data()).head
    wnll = head.second if isinstance(head, Switch) else head
    assert (wnll.stage1, wnll.stage2) == (first, second)
    turn = from_toml('name = "a"', ["train.epochs=1000", "model.switch_at=100", "model.first=wnll"])
    assert build(turn, no_data()).head.first.stage1 == 40


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "path", [path for path in CONFIGS if "adversarial" not in path.stem], ids=lambda path: path.stem
)
def test_a_run_differs_in_one_word(path: Path, head: str) -> None:
    """Any head in place of that of a config."""
    config = load_config(path, [f"model.head={head}"])
    if config.model.switch_at > 0 and head == "knn":
        return  # learns nothing, so it has no epochs of its own
    check_schedule(config, build(config, no_data()).head)


@pytest.mark.parametrize("head", HEADS)
def test_moons_and_digits_with_any_head(head: str, tmp_path: Path) -> None:
    for name in ("moons", "digits-gll"):
        new_run(load_config(CONFIGS[0].parent / f"{name}.toml", [f"model.head={head}", f"out={tmp_path / name}"]))


def test_options_of_another_head_are_left_out_and_others_refused(tmp_path: Path) -> None:
    text = 'name = "a"\n[model]\nhead = "gll"\nhead_options = { k = 10, normalize = false }'
    assert from_toml(text).model.head_options == {"k": 10, "normalize": False}
    assert from_toml(text, ["model.head=gll"]).model.head_options == {"k": 10, "normalize": False}
    assert from_toml(text, ["model.head=wnll"]).model.head_options == {"k": 10}
    assert with_values(from_toml(text), "model.head=mlp", "model.head_options.hidden=8").model.head_options == {
        "hidden": 8
    }
    for overrides in (["model.head_options.k=3"], ["model.head_options={k=3}"]):
        asked = from_toml(text, ["model.head=mlp", *overrides])
        with pytest.raises(ValueError, match="'mlp' has no option 'k'; its options: hidden"):
            build(asked, no_data())
    with pytest.raises(ValueError, match="'linear' has no option 'k'"):
        build(from_toml(text.replace("gll", "linear")), no_data())
    turns = f"{text}\nfirst_options = {{ hidden = 7 }}\nswitch_at = 1"
    assert from_toml(turns, ["model.first=mlp"]).model.first_options == {"hidden": 7}
    assert from_toml(turns, ["model.first=linear"]).model.first_options == {}
    assert from_toml(turns, ["model.head=wnll"]).model.first_options == {"hidden": 7}


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([], []),
        (["base.strategy=entropy", "base.selection=localmax"], []),
        (["base.strategy=fixed", "base.selection=localmax"], ["base.selection has no effect"]),
        (["model.first=linear"], ["model.first has no effect"]),
        (["model.first=linear", "model.first_options.bias=false"], ["model.first, model.first_options have no effect"]),
        (["model.first_lr=0.5"], ["model.first_lr has no effect: model.switch_at is 0"]),
        (["model.first=linear", "model.first_lr=0.5", "model.switch_at=5"], []),
        (["warmup.gamma=0.5"], ["warmup.gamma has no effect: warmup.epochs is 0"]),
        (["warmup.gamma=0.5", "warmup.epochs=1"], []),
        (["warmup.lr=0.1", "warmup.keep_projection=true"], ["warmup.lr, warmup.keep_projection have no effect"]),
        (["warmup.from=there", "warmup.keep_projection=true"], []),
        (["warmup.from=there", "warmup.epochs=50"], ["warmup.epochs has no effect: the warm-up is that of"]),
        (["warmup.epochs=50", "warmup.candidates=0.5,1"], ["warmup.candidates has no effect"]),
        (["warmup.epochs=50", "warmup.candidates=0.5,1", "warmup.gamma=choose"], []),
        (
            ["adversarial.steps=7", "adversarial.against=every-class"],
            ["adversarial.steps, adversarial.against have no effect: adversarial.eps is 0, so that training is"],
        ),
        (["adversarial.steps=7", "adversarial.eps=0.1"], []),
    ],
)
def test_what_has_no_effect_is_said(overrides: list[str], said: list[str]) -> None:
    found = without_effect(from_toml('name = "a"', overrides))
    assert len(found) == len(said)
    assert all(words in sentence for words, sentence in zip(said, found, strict=True))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_everything_in_our_configs_has_an_effect(path: Path) -> None:
    assert without_effect(load_config(path)) == []


def test_the_command_says_what_has_no_effect(tmp_path: Path) -> None:
    arguments = ["train", str(CONFIGS[0].parent / "moons.toml"), f"out={tmp_path / 'run'}", "train.epochs=1"]
    result = CliRunner().invoke(app, [*arguments, "model.head=linear", "base.selection=localmax"])
    assert result.exit_code == 0, result.output
    assert "left out, as linear has no such options: k, normalize (of model.head_options)" in result.output
    assert result.output.count("has no effect") == 1
    assert "base.selection has no effect" in result.output


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_schedules_of_all_configs(path: Path) -> None:
    opening = [line for line in path.read_text().splitlines() if line.startswith("#")]
    for line in opening:
        overrides = [word for word in line.split() if re.fullmatch(r"[a-z0-9_.]+=[a-z0-9.%]+", word)]
        if line is opening[0] or "model.head=wnll" in overrides:
            config = load_config(path, [o for o in overrides if not o.startswith("data.")])
            check_schedule(config, build(config, no_data()).head)


def test_data_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once to start a run, and once to go on with it, to test it or to use it."""
    reads, read = [], model.load
    monkeypatch.setattr(model, "load", lambda *args, **options: reads.append(args) or read(*args, **options))
    run = new_run(tiny(tmp_path, "train.epochs=1"))
    train(run)
    assert len(reads) == 1
    assert run.loaded == []  # nobody but the training holds it, so that the memory is free after it
    restore(run)
    assert len(reads) == 2
    (run.directory / "result.json").unlink()
    train(Run.open(run.directory))
    assert len(reads) == 3


@pytest.mark.parametrize("order", [("probe", "gll"), ("mlp", "probe")])
def test_a_switch_to_or_from_a_probe(tmp_path: Path, order: tuple[str, str]) -> None:
    """The encoder learns in the epochs of the head that trains it, and in no others."""
    first, second = order
    options = ["model.switch_at=1", f"model.first={first}", f"model.head={second}", "train.weight_decay=0.1"]
    config = tiny(tmp_path, *options, "train.optimizer=adamw", "train.lr=0.01")
    start = build(config, load_data(config)).encoder.state_dict()
    run = new_run(config)
    encoders = []

    class Watching(type(run)):  # type: ignore[misc]
        def save(self, name: str, tensors: dict, state: dict) -> None:
            encoders.append({n.removeprefix("encoder."): t.clone() for n, t in tensors.items() if "encoder." in n})
            super().save(name, tensors, state)

    train(Watching(run.directory, config, run.split))
    same = [
        all(torch.equal(before[n], after[n]) for n in start)
        for before, after in zip([start, *encoders], encoders, strict=False)
    ]
    assert same == [first == "probe", second == "probe"]
    assert [row["head"] for row in run.metrics() if row["phase"] == "train"] == [first, second]
    assert restore(run)[0].head.active is not None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["base.size=5"], "a base of 5 cannot hold a sample of each of 10 classes"),
        (["model.encoder=vgg11"], r'"vgg11" does not take .* of shape \(1, 8, 8\): .* data.pad=32'),
        (["model.encoder=small-cnn"], r"8 × 8; .* In a config: model.encoder_options.image_size=8; or take another"),
        (["model.encoder=mlp"], '"mlp" does not take'),
        (["model.first=nonsense"], "unknown head in model.first 'nonsense'"),
        (["warmup.augment=nonsense"], "nonsense"),
        (["model.head_options.tau=-0.1"], "tau"),
        (["model.switch_at=1", "model.head_options.tau=-0.1"], "tau"),
        (["test.device=gpu"], 'test.device must be "auto", "cpu"'),
        ([*WARM, "warmup.augment=simclrr"], "simclrr"),
        ([*WARM, "data.name=moons", "model.encoder=mlp", "base.size=6"], "points, not images"),
        (
            [*WARM, "data.labels=1 each", "base.size=9", "model.head=mlp", "warmup.gamma=choose"],
            "no class has two labels",
        ),
        ([*WARM, "warmup.keep_projection=true"], "no layers of its own"),
        ([*WARM, "warmup.keep_projection=true", "model.head=linear"], "not like the projection's"),
        (["warmup.from=nowhere"], "nowhere does not exist"),
    ],
)
def test_what_comes_late_is_tried_early(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        new_run(tiny(tmp_path, *overrides))
    assert list(tmp_path.iterdir()) == []


def test_a_warm_up_that_is_not_finished_cannot_be_taken(tmp_path: Path) -> None:
    first = new_run(tiny(tmp_path / "a", *WARM))
    with pytest.raises(RunError, match="has no finished warm-up"):
        new_run(tiny(tmp_path / "b", f"warmup.from={first.directory}"))
    assert not (tmp_path / "b").exists()


def other_data(path: Path, change: str) -> None:
    """Write the digits of the other tests to `path`, with something changed."""
    arrays = dict(np.load(digits()))
    if change == "pixel":
        arrays["x_train"][7, 0, 3, 3] ^= 1
    elif change == "label":
        arrays["y_train"][7] = (arrays["y_train"][7] + 1) % 10
    elif change == "fewer":
        arrays |= {name: arrays[name][:-1] for name in ("x_train", "y_train")}
    elif change == "test":
        arrays |= {name: arrays[name][:-1] for name in ("x_test", "y_test")}
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("pixel", "it has other training samples, or in another order. The run"),
        ("label", "it has other labels. The run"),
        ("fewer", "it has 399 training samples in place of 400"),
    ],
)
def test_other_data_is_refused(tmp_path: Path, change: str, message: str) -> None:
    """In going on, in testing, and for taking a warm-up."""
    path = tmp_path / "d.npz"
    other_data(path, "")
    config = tiny(tmp_path, f"data.name={path}", "train.epochs=1", *WARM)
    run = new_run(config)
    train(run)
    other_data(path, change)
    with pytest.raises(RunError, match=message):
        restore(run)
    (run.directory / "result.json").unlink()
    with pytest.raises(RunError, match=message):
        train(run)
    with pytest.raises(RunError, match=r"warmup\.from: .* (other data|other labels)"):
        new_run(tiny(tmp_path / "b", f"data.name={path}", f"warmup.from={run.directory}"))
    other_data(path, "")
    train(run)


def test_data_that_has_only_moved_is_the_same(tmp_path: Path) -> None:
    for name in ("a", "b"):
        other_data(tmp_path / f"{name}.npz", "")
    run = new_run(tiny(tmp_path, f"data.name={tmp_path / 'a.npz'}", "train.epochs=1"))
    train(run)
    moved = Run(run.directory, with_values(run.config, f"data.name={tmp_path / 'b.npz'}"), run.split)
    restore(moved)
    other_data(tmp_path / "b.npz", "test")  # what it is tested on may change
    restore(moved)
    (run.directory / "data.json").unlink()  # a run of before there were fingerprints
    other_data(tmp_path / "b.npz", "pixel")
    restore(moved)


def test_images_that_are_all_the_same_are_refused(tmp_path: Path) -> None:
    arrays = dict(np.load(digits()))
    np.savez(tmp_path / "same.npz", **arrays | {"x_train": np.full_like(arrays["x_train"], 7)})
    with pytest.raises(ConfigError, match="all 400 training images of same are the same"):
        new_run(tiny(tmp_path, f"data.name={tmp_path / 'same.npz'}"))


def test_the_callers_random_numbers_are_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    train(new_run(tiny(tmp_path, *WARM)))
    assert torch.equal(torch.rand(4), expected)


def test_a_config_that_was_changed_is_refused(tmp_path: Path) -> None:
    run = new_run(tiny(tmp_path))
    train(run)
    (run.directory / "result.json").unlink()
    path = run.directory / "config.toml"
    text = path.read_text()
    path.write_text(text.replace("batch = 60", "batch = 40").replace("every = 0", "every = 1"))
    with pytest.raises(
        RunError, match=r"config\.toml was changed since its checkpoint was written: train\.batch; undo"
    ):
        train(Run.open(run.directory))
    path.write_text(text.replace("every = 0", "every = 1"))  # how it is tested may change
    train(Run.open(run.directory))
    path.write_text(text + "x = [")
    with pytest.raises(RunError, match=r"config\.toml was changed or damaged: not TOML"):
        Run.open(run.directory)


def test_damage_is_named(tmp_path: Path) -> None:
    run = new_run(tiny(tmp_path))
    with pytest.raises(RunError, match=r"not finished, nor come to a checkpoint; .* remove it, or .* name=NAME"):
        new_run(tiny(tmp_path))
    (run.directory / "result.json").write_text("{")
    with pytest.raises(RunError, match=r"result\.json is damaged; remove it"):
        train(run)
    (run.directory / "result.json").unlink()
    (run.directory / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"metrics\.jsonl is missing"):
        train(run)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot be made: .*; choose another by out=DIR"):
        new_run(tiny(tmp_path / "file" / "inside"))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tiny(tmp_path))

    def full(*args: object, **kwargs: object) -> None:
        raise SafetensorError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", full)
        with pytest.raises(
            OSError, match=r"train\.safetensors cannot be written \(No space left .* make room, then resume"
        ):
            train(run)
    train(run)


def test_labels_may_be_arrays_and_lists(as_user: None) -> None:
    labels = torch.arange(100) % 4
    for given in (labels.numpy(), labels.tolist()):
        split = split_labels(given, "10 each", seed=0)
        assert torch.equal(split.labelled, split_labels(labels, "10 each", seed=0).labelled)
        batches = GraphBatches(given, split, batch=20, base=8, seed=0)
        assert next(batches.epoch(0)).sizes[0] == 8
