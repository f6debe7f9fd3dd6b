"""The defaults that records rest on, and that a record says all settings it was made with."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gll.attacks.sets import OTHER, PROTOCOLS, STRONG
from gll.data.augment import AUGMENTATIONS
from gll.equations import Laplace, Poisson, SoftLaplace
from gll.nn.encoders import ENCODERS
from gll.nn.graph_heads import TRAINED_LAYERS
from gll.nn.heads import HEADS, MLPHead, scaled_stages
from gll.nn.layer import GraphLearningLayer
from gll.nn.plain_heads import KNNHead
from gll.nonlinear import PLaplace
from gll.reproduce.experiment import load_all
from gll.reproduce.kinds import KINDS, kind_of
from gll.reproduce.records import FIELDS, read_records
from gll.reproduce.settings import all_settings, attack_settings, defaults_of
from gll.reproduce.time_cells import WHERE, benchmark, usual_of
from gll.reproduce.train_cells import FREE, flat
from gll.train.config import Config, from_toml
from tests.test_reproduce_work import COUNTS, invoked, written

REAL = Path(__file__).parent.parent / "experiments"

WHY = """{key} is {now!r} by default; pinned here is {then!r}.
Changing this would leave cells of old records finished though they were made otherwise: the key of a cell has only
what differs from the defaults. Give the experiments that rest on it the old value in config.toml: that makes other
keys, which their records then need, too. Or change the key, and let them be run anew. Then change it here. A new
option belongs here with a default that does what was done before it."""

OPTIMIZER = {"momentum": 0.9, "step_epochs": 25, "step_factor": 0.1, "clip": 0.0}
CONFIG: dict[str, dict[str, Any]] = {
    "data": {"name": "digits", "labels": "whole", "augment": "none", "augment_options": {}}
    | {"pad": 0, "size": 0, "channels": 0},
    "model": {"encoder": "digits-cnn", "encoder_options": {}, "head": "gll", "head_options": {}}
    | {"first": "mlp", "first_options": {}, "first_lr": 0.0, "switch_at": 0},
    "base": {"size": 100, "strategy": "stratified", "selection": "top", "again": False, "apart": False},
    "warmup": {"epochs": 0, "gamma": 1.0, "candidates": [0.01, 0.25, 0.5, 0.75, 0.99], "temperature": 0.2}
    | {"batch": 1024, "steps": 0, "optimizer": "sgd", "lr": 0.5, "weight_decay": 5e-4, "schedule": "one-cycle"}
    | {"augment": "simclr", "keep": "best", "patience": 0, "held_out": 0.2, "every": 5, "k": 25, "points": 10000}
    | {"projection": [], "keep_projection": False, **OPTIMIZER},
    "train": {"epochs": 50, "steps": 0, "batch": 1000, "labelled": 0, "optimizer": "adam", "lr": 1e-3}
    | {"weight_decay": 0.0, "schedule": "cosine", "autocast": False, "channels_last": False, "compile": False}
    | {"graph": "rank", "sync_batchnorm": False, **OPTIMIZER},
    "adversarial": {"eps": 0.0, "units": "pixels", "step": 0.0, "steps": 5, "random_start": True, "against": "own"}
    | {"unlabelled": False},
    "test": {"k": 50, "tau": 1e-8, "inductive": False, "also": []},
}
TESTED = {"test_k": 50, "test_tau": 1e-8}
STRONGER = {"operations": 2, "cutout": 0.5, "fill": 127}
VIEWS = {"smallest": 0.2, "jitter": 0.8, "strength": 1.0}
CURVE = {"table_c": 20, "alpha": 0.05, "c": (1, 5, 10, 20, 50, 100, 200, 500, 1000)}
SMALL = {"table_eps": 0.05, "eps": (0.01, 0.02, 0.05, 0.1, 0.2, 0.3), "base": 500, "few_base": 500, **CURVE}
NODES = dict.fromkeys(("base", "chunk", "few_base", "few_chunk"), 1000)
PINNED: dict[str, Any] = {
    "config": {f"{section}.{key}": value for section, values in CONFIG.items() for key, value in values.items()},
    "heads": {
        "mlp": {"hidden": None},
        "linear": {},
        "gll": {"k": 25, "tau": 0.0, "equation": "laplace", "p": None, "bandwidth": None, "normalize": True}
        | {"projection": None, **TESTED},
        "wnll": {"classifier": "linear", "hidden": None, "stage1": 400, "stage2": 5, "k": 25, **TESTED},
        "knn": {"k": 5},
        "probe": {},
    },
    "in heads": {
        "layers of the MLP head on 64 features": [(64, 64), (128, 64), (32, 128), (10, 32)],
        "WNLL's stages in 100 epochs": (40, 1),
        "layers that WNLL's second stage trains": 2,
        "floor of knn": 1e-8,
    },
    "layer": {"k": 25, "equation": None, "normalize": True, "bandwidth": None, "kernel": None, "symmetrize": "UNION"}
    | {"search": None, "reweight": None, "solver": None, "unreached": "UNIFORM", "floor": 1e-8, "inductive": False},
    "equations": {
        "Laplace": {"tau": 0.0, "source": None},
        "SoftLaplace": {"lam": 1.0, "tau": 0.0, "source": None},
        "Poisson": {"tau": 0.0, "source": None},
        "PLaplace": {"p": 3.0, "tau": 0.0, "source": None, "delta": 1e-3},
    },
    "encoders": {
        "fashion-cnn": {"image_size": 28},
        "small-cnn": {"image_size": 28, "dropout": 0.5},
        "digits-cnn": {"image_size": 8, "feature_dim": 64},
        "mlp": {"width": 64, "depth": 2, "feature_dim": 2},
    },
    "augmentations": {
        "crop": {"padding": None},
        "crop-flip": {"padding": None, "flip": True},
        "strong": {"padding": None, "flip": True, **STRONGER},
        "grey": STRONGER,
        "grey-crop-flip": {"padding": None, "flip": True, **STRONGER},
        "simclr": {"flip": True, "grey": 0.2, **VIEWS},
        "simclr-grey": {"flip": False, **VIEWS},
    },
    "attacks": {"attack.attacks": "paper", "attack.normalised": False, "attack.joint": True, "attack.inductive": False}
    | {"attack.head_at_test": None, "attack.gradient_of": "own", "attack.norm": "linf", "attack.steps": 40}
    | {"attack.restarts": 2, "attack.queries": 1000, "attack.samples": 0, "attack.base": 0, "attack.chunk": 0}
    | {f"attack.{key}": [] for key in ("eps", "c", "transfer", "poison")},
    "attacked": {
        "mnist": {**NODES, **CURVE, "base": 10_000, "chunk": 10_000, "cw_steps": 100, "table_eps": 0.3}
        | {"eps": (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)},
        "fashionmnist": {**SMALL, "chunk": 250, "few_chunk": 250, "cw_steps": 100},
        "cifar10": {**SMALL, "chunk": 200, "few_chunk": 200, "cw_steps": 50},
        "other": {**NODES, **CURVE, "cw_steps": 100, "table_eps": 0.3, "eps": (0.1, 0.3, 0.5, 1.0)},
        "strong": (
            *("pgd", "pgd-margin", "pgd-dlr", "pgd-targets", "fixed", "every-class", "features", "surrogate"),
            *("square", "probe", "transfer", "autoattack", "cw"),
        ),
    },
    "times": {"rounds": 9, "steps": 20, "warm": 10, "bf16": False, "channels_last": False, "augment": "none"},
}


def defaults() -> dict[str, Any]:
    """Those of the library, named as the pinned ones."""
    shapes = [tuple(p.shape) for p in MLPHead(64, 10).parameters() if p.dim() == 2]
    layer = {key: getattr(value, "name", value) for key, value in defaults_of(GraphLearningLayer).items()}
    protocols = {name: dataclasses.asdict(protocol) for name, protocol in {**PROTOCOLS, "other": OTHER}.items()}
    return {
        "config": {key: value for key, value in flat(Config("a")).items() if key not in FREE},
        "heads": {name: defaults_of(make) for name, make in HEADS.items()},
        "in heads": {
            "layers of the MLP head on 64 features": shapes,
            "WNLL's stages in 100 epochs": scaled_stages(100),
            "layers that WNLL's second stage trains": TRAINED_LAYERS,
            "floor of knn": defaults_of(KNNHead)["floor"],
        },
        "layer": layer,
        "equations": {kind.__name__: defaults_of(kind) for kind in (Laplace, SoftLaplace, Poisson, PLaplace)},
        "encoders": {name: found for name, make in ENCODERS.items() if (found := defaults_of(make))},
        "augmentations": {name: found for name, make in AUGMENTATIONS.items() if (found := defaults_of(make))},
        "attacks": attack_settings({"": {}}),
        "attacked": {**protocols, "strong": STRONG},
        "times": {key: value for key, value in usual_of(benchmark(REAL / "times")).items() if key not in WHERE},
    }


@pytest.mark.parametrize("group", PINNED)
def test_no_default_that_records_rest_on_has_changed(group: str) -> None:
    pinned, now = _by_key(PINNED[group]), _by_key(defaults()[group])
    for key in pinned | now:
        got, then = now.get(key, "not there"), pinned.get(key, "not there")
        assert got == then, WHY.format(key=f"{group}: {key}", now=got, then=then)


def _by_key(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Options of options by one key."""
    found = dict[str, Any]()
    for key, value in values.items():
        found |= _by_key(value, f"{prefix}{key} ") if isinstance(value, dict) and value else {prefix + key: value}
    return found


# What a record says ---------------------------------------------------------------------------------------------------


def test_settings_have_the_defaults_of_the_parts_and_what_was_given() -> None:
    words = ["model.head=wnll", "model.head_options.k=7", "train.epochs=100", "test.k=30", "test.also=knn,gll"]
    found = all_settings(from_toml('name = "a"', [*words, "seed=3", "test.every=9", "warmup.epochs=1"]))
    head = {"classifier": "linear", "hidden": None, "k": 7, "stage1": 40, "stage2": 1, "test_k": 30, "test_tau": 1e-8}
    assert found["model.head_options"] == head
    assert found["model.encoder_options"] == {"image_size": 8, "feature_dim": 64}
    assert found["test.also_options"]["knn"] == {"k": 5}
    assert found["test.also_options"]["gll"]["test_k"] == 30
    assert found["warmup.augment_options"]["strength"] == 1.0
    assert (found["train.momentum"], found["train.epochs"]) == (0.9, 100)
    assert not found.keys() & {"seed", "name", "test.every", "device"}


def test_the_first_head_of_a_switch_is_told_too() -> None:
    found = all_settings(from_toml('name = "a"', ["model.switch_at=5", "model.first=wnll", "train.epochs=8"]))
    assert found["model.first_options"]["stage1"] == scaled_stages(5)[0]
    assert found["model.head_options"]["k"] == 25


@pytest.mark.parametrize("kind", KINDS)
def test_the_settings_of_every_cell_can_be_written(kind: str) -> None:
    """And say again what its config says."""
    experiments = [one for one in load_all(REAL).values() if one.kind == kind]
    assert experiments
    for experiment in experiments:
        for scale in experiment.scales:
            for cell in {cell.point.name + cell.part + cell.role: cell for cell in _cells(experiment, scale)}.values():
                found = dict(kind_of(experiment).settings(experiment, cell))
                assert json.loads(json.dumps(found, allow_nan=False)) == found
                for key, value in cell.settings.items():
                    same = found[key] == value or (isinstance(value, dict) and found[key].items() >= value.items())
                    assert same, f"{experiment.name}, {cell.title}: {key} is {value!r}, its settings say {found[key]!r}"


def _cells(experiment: Any, scale: str) -> list[Any]:
    return kind_of(experiment).cells(experiment, scale)


def test_a_warm_up_has_the_settings_it_depends_on() -> None:
    experiment = load_all(REAL)["longer"]
    cell = next(cell for cell in _cells(experiment, "small") if cell.role)
    found = kind_of(experiment).settings(experiment, cell)
    assert found["warmup.temperature"] == 0.2
    assert not [key for key in found if key.startswith(("model.head", "train.lr", "base.", "test."))]


def test_a_new_record_has_its_settings_and_an_old_one_need_not(tmp_path: Path) -> None:
    experiment = written(tmp_path, COUNTS)
    invoked(experiment, "--scale", "small", "--only", "first, seed 0")
    (record,) = read_records(experiment.folder / "results.json").values()
    assert record["settings"]["encoder"] == "digits-cnn"
    assert "settings" not in FIELDS
