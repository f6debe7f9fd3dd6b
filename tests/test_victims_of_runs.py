"""Victims made of trained runs: the head's own layer, the base drawn from the labelled samples."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from gll.attacks.graph_victim import GraphVictim
from gll.attacks.threat import Queries
from gll.attacks.victims import victim_of
from gll.data.datasets import normalize
from gll.reweight import wnll
from gll.train.loop import new_run, train
from gll.train.model import restore
from gll.train.runs import Run, RunError
from tests.tiny_runs import tiny


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A trained run for each head."""
    made = {}
    for head in ("gll", "mlp", "wnll"):
        options = {
            "gll": ["model.head_options.projection=16"],
            "wnll": ["model.head_options.stage1=1", "model.head_options.stage2=1"],
            "mlp": [],
        }
        folder = tmp_path_factory.mktemp(head)
        config = tiny(folder, f"model.head={head}", "test.also=[]", *options[head])
        train(new_run(config))
        made[head] = Run.open(folder / "run", writes=False)
    return made


def test_a_run_without_a_graph(runs: dict[str, Run]) -> None:
    model, data = restore(runs["mlp"])
    victim = victim_of(runs["mlp"])
    expected = model.head(model.encoder(normalize(data.test[:20], data)))
    torch.testing.assert_close(victim(data.test[:20].float() / 255), expected)
    assert not victim.training


@pytest.mark.parametrize("name", ["gll", "wnll"])
def test_a_run_with_a_graph(runs: dict[str, Run], name: str) -> None:
    model, data = restore(runs[name])
    victim = victim_of(runs[name], base=30, seed=3)
    assert isinstance(victim, GraphVictim)
    assert victim.base_labels.bincount().tolist() == [3] * 10
    assert "30 of 60 labelled training samples" in victim.threat.base
    # The base's samples are found again by their features, and classified by the head's layer for training.
    between = model.head.projection if name == "gll" else model.head.body
    encode = nn.Sequential(model.encoder, between)
    known = runs[name].split.labelled
    features = encode(normalize(data.train[known], data)).detach()
    distance = torch.cdist(victim.base_features, features, compute_mode="donot_use_mm_for_euclid_dist")
    assert distance.amin(1).max() < 1e-4
    assert torch.equal(data.train_labels[known][distance.argmin(1)], victim.base_labels)
    z = encode(normalize(data.test[:20], data)).detach()
    expected = model.head.layer(z, victim.base_features, victim.base_labels)
    torch.testing.assert_close(victim(data.test[:20].float() / 255), expected, rtol=1e-3, atol=1e-3)
    assert victim.threat.gradient == {"gll": "own", "wnll": "surrogate linear"}[name]
    if name == "wnll":
        assert victim_of(runs[name], base=30, exact_gradient=True).threat.gradient == "own"


def test_a_graph_at_test_time_in_place_of_the_last_layer(runs: dict[str, Run]) -> None:
    model, data = restore(runs["mlp"])
    victim = victim_of(runs["mlp"], base=30, head_at_test="gll", k=9, tau=0.01, queries=Queries.ALONE)
    assert isinstance(victim, GraphVictim)
    assert (victim.layer.k, victim.layer.equation.tau, victim.threat.queries) == (9, 0.01, Queries.ALONE)
    seen = model.head.layers[:-1](model.encoder(normalize(data.test[:4], data)))
    torch.testing.assert_close(victim.features(data.test[:4].float() / 255), seen)
    reweighted = victim_of(runs["gll"], base=30, head_at_test="wnll", floor=1e-200, dtype=torch.float64)
    assert isinstance(reweighted, GraphVictim)
    assert reweighted.layer.reweight is wnll
    assert reweighted.threat.dtype == "float64"
    assert reweighted.floor == 1e-200


def test_a_run_by_its_path(runs: dict[str, Run], tmp_path: Path) -> None:
    x = restore(runs["gll"])[1].test[:9].float() / 255
    expected = victim_of(runs["gll"], base=40)(x)
    for path in (runs["gll"].directory, str(runs["gll"].directory)):
        torch.testing.assert_close(victim_of(path, base=40)(x), expected)
    with pytest.raises(RunError, match="does not exist"):
        victim_of(tmp_path / "nothing")


@pytest.mark.usefixtures("as_user")
def test_what_is_no_run(runs: dict[str, Run]) -> None:
    with pytest.raises(TypeError, match=r"a run, as Run.open\(path\) gives it, or its path; got Config"):
        victim_of(runs["gll"].config)  # type: ignore[arg-type]


def test_runs_that_cannot_be_attacked_as_asked(runs: dict[str, Run], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown head at test 'knn'; choose one of gll, wnll"):
        victim_of(runs["gll"], head_at_test="knn")
    with pytest.raises(ValueError, match="a base of 1000 needs as many labelled samples, but there are 60"):
        victim_of(runs["gll"], base=1000)
