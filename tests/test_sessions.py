"""A labelling session on disk: resuming changes nothing, a crash loses nothing, damage is named."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import gll
from gll.active import ACQUISITIONS, SELECTIONS, acquisition_from_name, selection_from_name
from gll.loop import ActiveLearner
from gll.methods import method_from_name
from tests.active_cases import Fixed, rounds
from tests.problems import F64, path, random_graph


@pytest.mark.parametrize("name", ACQUISITIONS)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_resuming_changes_nothing(name: str, selection: str, tmp_path: Path) -> None:
    graph, truth = random_graph(40, k=5), [i % 3 for i in range(40)]
    options: Any = {"acquisition": acquisition_from_name(name), "selection": selection_from_name(selection), "seed": 5}
    straight = rounds(ActiveLearner(graph, **options), truth, 4, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = rounds(ActiveLearner(graph, autosave=tmp_path / "s", **options), truth, 1, 4)
        for _ in range(3):
            found += rounds(ActiveLearner.load(tmp_path / "s"), truth, 1, 4)
    assert found == straight


def test_a_crash_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told is on disk before anything is solved, and a write that fails leaves the old file whole."""
    learner = ActiveLearner(path(6), autosave=tmp_path, truth=list("aaabbb"))
    asked = [s.index for s in learner.suggest(2)]
    learner.tell([0, 5], ["a", "b"])

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("solver lost")

    monkeypatch.setattr(type(learner.method), "find", fail)
    with pytest.raises(RuntimeError, match="solver lost"):
        learner.tell(2, "a")
    monkeypatch.undo()
    again = ActiveLearner.load(tmp_path)
    assert again.labels == ([0, 2, 5], ["a", "a", "b"])
    assert again.pending == [i for i in asked if i not in (0, 2, 5)]
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(RuntimeError, match="solver lost"):
        again.tell(3, "b")
    monkeypatch.undo()
    assert ActiveLearner.load(tmp_path).labels == ([0, 2, 5], ["a", "a", "b"])


def test_stored_state_is_complete(tmp_path: Path) -> None:
    x = torch.randn(30, 2, dtype=F64)
    learner = ActiveLearner(
        gll.knn_graph(x, 4),
        classes=["u", "v", "w"],
        method=method_from_name("laplace", tau=0.5),
        warm_start=True,
        seed=9,
    )
    learner.tell([1, 2], ["u", "v"])
    learner.skip(7)
    learner.suggest(3)
    learner.save(tmp_path)
    again = ActiveLearner.load(tmp_path, autosave=False)
    for name in ("labels", "pending", "skipped", "history", "classes", "method", "acquisition", "selection", "seed"):
        a, b = getattr(learner, name), getattr(again, name)
        assert repr(a) == repr(b), name
    assert torch.equal(again.graph.features, x)  # type: ignore[arg-type]
    assert torch.equal(again.graph.weight, learner.graph.weight)
    assert torch.equal(again.probabilities, learner.probabilities)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph.safetensors", "state.json"]
    again.tell(4, "w")  # autosave is off
    assert ActiveLearner.load(tmp_path).labels == learner.labels


def test_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no stored session in .*: state.json is missing"):
        ActiveLearner.load(tmp_path)
    learner = ActiveLearner(path(5), autosave=tmp_path)
    learner.tell([0, 4], ["a", "b"])
    state, graph = (tmp_path / "state.json").read_text(), (tmp_path / "graph.safetensors").read_bytes()
    for broken, message in [
        (state[: len(state) // 2], "is damaged or no stored session"),
        ("[]", "is not a stored session of this library"),
        (state.replace('"version": 1', '"version": 2'), "has version 2, this library reads version 1"),
        (state.replace('"name": "sigma-opt"', '"name": "os.system"'), "unknown acquisition function 'os.system'"),
    ]:
        (tmp_path / "state.json").write_text(broken)
        with pytest.raises(ValueError, match=message):
            ActiveLearner.load(tmp_path)
    whole = json.loads(state)
    for key in set(whole) - {"format", "version"}:
        (tmp_path / "state.json").write_text(json.dumps({k: v for k, v in whole.items() if k != key}))
        with pytest.raises(ValueError, match=rf"state.json is damaged: it has no '{key}'"):
            ActiveLearner.load(tmp_path)
    for changed, message in [
        ({"labels": ["a"]}, "state.json is damaged: 2 labelled nodes, but 1 labels"),
        ({"index": {}}, "state.json is damaged: 'index' must be a list, got {}"),
        ({"pending": [5]}, r"state.json is damaged: nodes lie in 0 \.\. 4, got 5"),
        ({"skipped": ["x"]}, "state.json is damaged: a node is an integer, got 'x'"),
        ({"config": {"method": None}}, "state.json is damaged: it has no 'acquisition'"),
        ({"config": whole["config"] | {"method": {}}}, "state.json is damaged: it has no 'name'"),
    ]:
        (tmp_path / "state.json").write_text(json.dumps(whole | changed))
        with pytest.raises(ValueError, match=message):
            ActiveLearner.load(tmp_path)
    (tmp_path / "state.json").write_text(state)
    (tmp_path / "graph.safetensors").write_bytes(graph[:-7])
    with pytest.raises(ValueError, match=r"graph.safetensors is missing, damaged or no stored graph"):
        ActiveLearner.load(tmp_path)
    other = tmp_path / "other"
    ActiveLearner(path(5, [1.0, 1.0, 2.0, 1.0])).save(other)
    (tmp_path / "graph.safetensors").write_bytes((other / "graph.safetensors").read_bytes())
    with pytest.raises(ValueError, match="is not the graph that the session was run on"):
        ActiveLearner.load(tmp_path)


def test_a_session_is_not_overwritten(tmp_path: Path) -> None:
    ActiveLearner(path(5), autosave=tmp_path).tell(0, "a")
    with pytest.raises(FileExistsError, match=r"holds a session already: go on with it by ActiveLearner.load"):
        ActiveLearner(path(5), autosave=tmp_path)
    with pytest.raises(FileExistsError, match="holds a session on another graph"):
        ActiveLearner(path(6)).save(tmp_path)
    assert ActiveLearner.load(tmp_path).labels == ([0], ["a"])


def test_own_functions_are_handed_in_again(tmp_path: Path) -> None:
    own = Fixed((0.0, 1.0, 2.0, 1.0, 0.0))
    learner = ActiveLearner(path(5), acquisition=own, autosave=tmp_path)
    learner.tell([0, 4], ["a", "b"])
    with pytest.raises(ValueError, match=r"the session used Fixed.* as its acquisition: pass acquisition= to load"):
        ActiveLearner.load(tmp_path)
    assert [s.index for s in ActiveLearner.load(tmp_path, acquisition=own).suggest()] == [2]
    with pytest.raises(ValueError, match="load cannot replace seed"):
        ActiveLearner.load(tmp_path, acquisition=own, seed=3)
