"""Configs: what is read, what is refused and how, and that every config in configs/ can be used."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from gll.data.augment import AUGMENTATIONS
from gll.data.sources import SOURCES
from gll.nn.encoders import ENCODERS
from gll.nn.heads import HEADS
from gll.train.config import Config, DataConfig, ModelConfig, TestConfig, from_toml, load_config, to_toml, with_values
from gll.train.toml import ConfigError

CONFIGS = sorted((Path(__file__).parent.parent / "configs").glob("*.toml"))
NAMED = 'name = "a"\n'


def test_sections_and_defaults() -> None:
    config = from_toml(NAMED + 'seed = 3\n[train]\nlr = 1\n[test]\nalso = ["gll", "knn"]\n[warmup]\nfrom = "there"')
    assert (config.seed, config.train.lr, config.test.also, config.warmup.from_run) == (3, 1.0, ("gll", "knn"), "there")
    assert isinstance(config.train.lr, float)
    assert config.data == DataConfig()


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("train.lr=0.1", "train", "lr", 0.1),
        ("train.lr = 1", "train", "lr", 1.0),
        ("train.autocast=true", "train", "autocast", True),
        ("data.labels=10 each", "data", "labels", "10 each"),
        ('data.labels="2%"', "data", "labels", "2%"),
        ("data.name=2024", "data", "name", "2024"),
        ("test.also=gll,knn", "test", "also", ("gll", "knn")),
        ('test.also=["gll"]', "test", "also", ("gll",)),
        ("test.also=", "test", "also", ()),
        ("warmup.gamma=choose", "warmup", "gamma", "choose"),
        ("warmup.gamma=0.5", "warmup", "gamma", 0.5),
        ("warmup.candidates=0,1", "warmup", "candidates", (0.0, 1.0)),
        ("warmup.from=out/a=b", "warmup", "from_run", "out/a=b"),
    ],
)
def test_overrides(override: str, section: str, key: str, value: object) -> None:
    found = getattr(getattr(from_toml(NAMED, [override]), section), key)
    assert found == value
    assert type(found) is type(value)


def test_overrides_of_options() -> None:
    text = NAMED + "[model]\nhead_options = { k = 10 }"
    config = from_toml(text, ["model.head_options.tau=0.5", "model.head_options.equation=soft"])
    assert config.model.head_options == {"k": 10, "tau": 0.5, "equation": "soft"}


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("", [], "name is missing"),
        (NAMED + "[train]\nlern = 1", [], "unknown key 'train.lern'; did you mean 'lr'"),
        (NAMED + "lr = 1", [], "unknown key 'lr'; did you mean 'warmup.lr' or 'train.lr'"),
        (NAMED + "[trian]\nlr = 1", [], "unknown key 'trian'; did you mean 'train'"),
        (NAMED, ["train.learning_rate=3"], "unknown key 'train.learning_rate'; did you mean 'lr'"),
        (NAMED, ["train.epoch=3"], "unknown key 'train.epoch'; did you mean 'epochs'"),
        (NAMED, ["train.unlabelled=0"], "unknown key 'train.unlabelled'; did you mean 'labelled'"),
        (NAMED, ["train.lr.x=3"], "train.lr has no parts"),
        (NAMED, ["train=3"], "train is a section"),
        (NAMED, ["train.lr"], "key=value"),
        (NAMED, ["train.lr=fast"], "train.lr must be a number, got 'fast'"),
        (NAMED, ["train.epochs=1.5"], "train.epochs must be a whole number, got 1.5"),
        (NAMED, ["train.epochs=true"], "train.epochs must be a whole number, got True"),
        (NAMED, ["train.autocast=1"], "train.autocast must be true or false, got 1"),
        (NAMED, ["train.lr=nan"], "train.lr must be finite"),
        (NAMED, ["train.lr=0"], "train.lr must be > 0"),
        (NAMED, ["train.optimizer=admw"], "must be one of sgd, adam, adamw, got 'admw'; did you mean 'adamw'"),
        (NAMED, ["base.strategy=random"], "base.strategy must be one of"),
        (NAMED, ["warmup.gamma=guess"], "warmup.gamma must be one of choose"),
        (NAMED, ["warmup.gamma=1.5"], "warmup.gamma must be in 0 .. 1"),
        (NAMED, ["train.labelled=2000"], "train.labelled must be at most train.batch = 1000"),
        (NAMED + "train = 3", [], "train must be a section"),
        (NAMED + '[test]\nalso = "gll"', [], "test.also must be a list, each a text, got 'gll'"),
        (NAMED + "[model]\nhead_options = { k = [1] }", [], "table of plain values"),
        ("name = ", [], "not TOML"),
        ('name = "a/b"', [], "without a slash"),
        (NAMED, ["seed=-1"], "seed must be at least 0"),
        (NAMED, ["model.first_lr=-1"], "model.first_lr must be at least 0"),
        (NAMED, ["base.size=0"], "base.size must be at least 1, got 0"),
        (NAMED, ["base.size=1", "base.apart=true"], "base.size must be at least 2 with base.apart, got 1"),
    ],
)
def test_what_is_refused(text: str, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        from_toml(text, overrides)


def test_a_file_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(NAMED + "x = 1")
    with pytest.raises(ConfigError, match=r"mine\.toml: unknown key 'x'"):
        load_config(tmp_path / "mine.toml")
    with pytest.raises(ConfigError, match="there is no config"):
        load_config(tmp_path / "other.toml")


SCALARS = st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=30)
@given(
    name=st.text(min_size=1).filter(lambda s: s.strip() and "/" not in s),
    folder=st.text(),
    options=st.dictionaries(st.text(min_size=1), SCALARS),
    tau=st.floats(min_value=0, allow_infinity=False),
    also=st.lists(st.text()),
)
def test_what_is_written_is_read_back(name: str, folder: str, options: dict, tau: float, also: list[str]) -> None:
    config = Config(
        name,
        data=DataConfig(root=folder),
        model=ModelConfig(head_options=options),
        test=TestConfig(tau=tau, also=tuple(also)),
    )
    assert from_toml(to_toml(config)) == config
    assert with_values(config, "seed=7") == dataclasses.replace(config, seed=7)


def test_every_field_is_explained() -> None:
    for section in (Config, *(type(getattr(Config("a"), f.name)) for f in dataclasses.fields(Config)[4:])):
        words = re.findall(r"\w+", section.__doc__ or "")
        assert [f.name for f in dataclasses.fields(section) if f.name not in words] == []


def test_there_are_configs() -> None:
    assert len(CONFIGS) >= 17


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_configs(path: Path) -> None:
    lines = path.read_text().splitlines()
    config = load_config(path)
    assert config.name == path.stem
    assert 10 <= len(lines) <= 40
    # The first line is the command, and its overrides are valid too.
    words = lines[0].removeprefix("# ").split()
    assert words[:3] == ["gll", "train", f"configs/{path.name}"]
    load_config(path, words[3:])
    assert lines[1] == "#"
    assert len(lines[2]) > 20
    m = config.model
    assert m.encoder in ENCODERS
    assert {m.head, m.first, *config.test.also} <= set(HEADS)
    assert {config.data.augment, config.warmup.augment} <= set(AUGMENTATIONS)
    assert config.data.name in SOURCES


RECORDED = json.loads((CONFIGS[0].parent.parent / "benchmarks/results/training.json").read_text(encoding="utf-8"))[
    "rows"
]


def header(path: Path) -> str:
    """The comment that a config opens with, as one line."""
    return " ".join(line.lstrip("# ") for line in path.read_text(encoding="utf-8").split("\n\n")[0].splitlines())


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_what_configs_expect_is_what_was_found(path: Path) -> None:
    """Of those that were run: the mean over seeds, with its deviation where there are several."""
    assert "Expected" in header(path)
    rows = [row for row in RECORDED if row["name"] == path.stem]
    if not rows:
        return
    said = re.search(r"Expected: (\d+\.(\d+))(?: ± (\d+\.\d\d))? %", header(path))
    assert said is not None, header(path)
    errors = [100 * row["tests"][0]["error"] for row in rows]
    assert {row["tests"][0]["head"] for row in rows} == {load_config(path).model.head}
    assert said[1] == f"{statistics.mean(errors):.{len(said[2])}f}"
    assert said[3] == (f"{statistics.stdev(errors):.2f}" if len(errors) > 1 else None)
    assert len(said[2]) == 2 or len(errors) == 1


def test_the_configs_that_were_run_are_there() -> None:
    """A record of a config that has another name now would be compared with nothing."""
    assert {row["name"] for row in RECORDED} <= {path.stem for path in CONFIGS}
    assert len({row["name"] for row in RECORDED}) >= 14


@pytest.mark.parametrize(("name", "head"), [("gll", "GLL"), ("linear", "linear"), ("wnll", "WNLL")])
def test_what_configs_expect_under_attack_is_what_was_found(name: str, head: str) -> None:
    """The figures in their first lines are those of the records."""
    root = CONFIGS[0].parent.parent
    comment = header(root / f"configs/mnist-adversarial-{name}.toml")
    records = json.loads((root / "experiments/adversarial/results.json").read_text(encoding="utf-8"))["records"]
    for training in ("natural", "robust"):
        places = [{"data": "mnist", "head": head, "training": training}]
        values = next(record["values"] for record in records if record["place"] in places and record["seed"] == 0)
        errors = " / ".join(f"{values[figure]:.2f}" for figure in ("natural", "FGSM", "IFGSM", "CW"))
        assert f"{errors} / {values['worst case']:.1f}" in comment
