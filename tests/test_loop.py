"""The labelling loop: what it asks for, what it takes, and that neither depends on what it should not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import gll
from gll.active import FewerThanAskedWarning, ModelChange, NormScore, Random
from gll.loop import ActiveLearner
from gll.methods import method_from_name
from tests.active_cases import rounds
from tests.problems import F64, path, two_cliques


@pytest.fixture(scope="module")
def digits() -> tuple[gll.Graph, list[int]]:
    x, y = load_digits(return_X_y=True)
    return gll.knn_graph(torch.tensor(x[:400]), 8), y[:400].tolist()


def test_the_loop_beats_random_on_digits(digits: tuple[gll.Graph, list[int]]) -> None:
    graph, truth = digits
    found = {}
    for acquisition in (NormScore(), ModelChange(), Random()):
        learner = ActiveLearner(graph, acquisition=acquisition, truth=truth)
        rounds(learner, truth, 8)
        found[type(acquisition).__name__] = np.mean([entry["accuracy"] for entry in learner.history])
        assert learner.history[-1]["labelled"] == 48
    assert found["NormScore"] > found["Random"] + 0.01
    assert found["ModelChange"] > found["Random"] + 0.01


def test_accuracy_is_that_of_unlabelled_nodes() -> None:
    learner = ActiveLearner(path(4), method="laplace", truth=["a", "b", "b", "b"])
    learner.tell(0, "a")
    assert learner.history[-1]["accuracy"] is None  # one class: no predictions yet
    learner.tell(3, "b")
    assert learner.history[-1]["accuracy"] == pytest.approx(0.5)  # node 1 is nearer to a, and is b
    assert learner.predictions == ["a", "a", "b", "b"]
    learner.tell([1, 2], ["b", "b"])
    assert learner.accuracy() is None  # nothing left to be right about


def test_cold_start_and_one_class() -> None:
    learner = ActiveLearner(two_cliques(5, 1e-3))
    (first,) = learner.suggest()
    assert (first.prediction, first.probability, first.reason) == (None, None, "SigmaOpt")
    with pytest.raises(ValueError, match="no predictions yet: labels of two classes are needed, 0 known"):
        _ = learner.probabilities
    learner.tell(first.index, "x")
    (second,) = learner.suggest()
    assert second.reason == "SigmaOpt"
    assert second.index // 5 != first.index // 5
    learner.tell(second.index, "y")
    (third,) = learner.suggest()
    assert third.reason == "ModelChange"
    assert third.prediction == ("x" if third.index // 5 == first.index // 5 else "y")
    assert json.loads(json.dumps(dataclasses.asdict(third)))["index"] == third.index


def test_order_of_telling_does_not_matter(digits: tuple[gll.Graph, list[int]]) -> None:
    graph, truth = digits
    learners = [ActiveLearner(graph) for _ in range(3)]
    asked = [[s.index for s in learner.suggest(12)] for learner in learners]
    assert asked[0] == asked[1] == asked[2]
    learners[0].tell(asked[0], [truth[i] for i in asked[0]])
    for i in reversed(asked[1]):
        learners[1].tell(i, truth[i])
    learners[2].tell(asked[2], [0] * 12)  # all wrong, or nearly; then corrected
    learners[2].tell(np.array(asked[2]), torch.tensor([truth[i] for i in asked[2]]))
    following = [[s.index for s in learner.suggest(5)] for learner in learners]
    assert following[0] == following[1] == following[2]
    assert learners[0].labels == learners[2].labels


def test_pending_and_unasked_nodes(digits: tuple[gll.Graph, list[int]]) -> None:
    graph, truth = digits
    learner = ActiveLearner(graph)
    first, second = ({s.index for s in learner.suggest(5)} for _ in range(2))
    assert not first & second
    assert set(learner.pending) == first | second
    other = next(i for i in range(400) if i not in first | second)
    learner.tell(other, truth[other])  # was not asked for
    gone = learner.pending[0]
    learner.skip(gone)
    assert gone not in learner.pending
    assert learner.skipped == [gone]
    asked = set(learner.pending)
    for _ in range(20):
        asked |= {s.index for s in learner.suggest(8)}
    assert not asked & {gone, other}
    learner.release()
    assert learner.pending == []
    learner.tell(gone, truth[gone])
    assert learner.skipped == []


def test_to_the_last_node() -> None:
    learner = ActiveLearner(path(4), classes=["a", "b"])
    learner.tell([0, 3], ["a", "b"])
    learner.suggest(1)
    with pytest.warns(FewerThanAskedWarning, match="5 nodes were asked for, 1 chosen: only 1 are left"):
        learner.suggest(5)
    with pytest.raises(ValueError, match="no candidate is left: every one is labelled or asked for already"):
        learner.suggest()


def test_correction_changes_predictions() -> None:
    learner = ActiveLearner(path(5))
    learner.tell([0, 4], ["a", "b"])
    assert learner.predictions[1] == "a"
    learner.tell(0, "c")
    assert learner.classes == ["b", "c"]
    assert learner.predictions == ["c", "c", learner.predictions[2], "b", "b"]
    assert [entry["labels"] for entry in learner.history] == [["a", "b"], ["c"]]


def test_random_suggestions_differ_from_round_to_round_and_by_seed() -> None:
    found = []
    for seed in (1, 1, 2):
        learner = ActiveLearner(path(50), cold_start=Random(), seed=seed)
        first = [s.index for s in learner.suggest(4)]
        learner.release()
        found.append((first, [s.index for s in learner.suggest(4)]))
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]
    assert found[0][0] != found[2][0]


@pytest.mark.usefixtures("as_user")
def test_wrong_answers_change_nothing(tmp_path: Path) -> None:
    learner = ActiveLearner(path(5), classes=["a", "b"], autosave=tmp_path)
    learner.tell(0, "a")
    before = (tmp_path / "state.json").read_text()
    for index, labels, error, message in [
        ([1, 2], ["a"], ValueError, "2 nodes but 1 labels"),
        ([1, 5], ["a", "b"], ValueError, r"nodes lie in 0 \.\. 4, got 5"),
        (-1, "a", ValueError, r"nodes lie in 0 \.\. 4, got -1"),
        ([1, 1], ["a", "b"], ValueError, "a node appears twice in one call"),
        ([1, 2], ["a", "c"], ValueError, r"unknown label 'c'; the classes are \['a', 'b'\]"),
        (1.0, "a", TypeError, "a node is an integer, got 1.0"),
        (True, "a", TypeError, "got a bool"),
        (1, None, TypeError, r"a label is a string or a whole number, got None; use skip\(\)"),
        (1, 0.5, TypeError, "a label is a string or a whole number, got 0.5"),
    ]:
        with pytest.raises(error, match=message):
            learner.tell(index, labels)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="node 0 is labelled; tell it again to correct it"):
        learner.skip(0)
    assert (tmp_path / "state.json").read_text() == before
    assert learner.labels == ([0], ["a"])
    mixed = ActiveLearner(path(3))
    mixed.tell(0, "1")
    with pytest.raises(TypeError, match="labels must be all strings or all integers"):
        mixed.tell(1, 1)
    for options, error, message in [
        ({"classes": ["a"]}, ValueError, "at least two classes"),
        ({"classes": ["a", "a"]}, ValueError, "a class appears twice"),
        ({"truth": ["a"]}, ValueError, "a label for each of 3 nodes, got 1"),
        ({"acquisition": "vopt"}, TypeError, "acquisition must be an object"),
        ({"method": "magic"}, ValueError, "unknown method 'magic'"),
    ]:
        with pytest.raises(error, match=message):
            ActiveLearner(path(3), **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"such as gll.knn_graph makes from features, got Tensor"):
        ActiveLearner(torch.zeros(3, 2))  # type: ignore[arg-type]


def test_a_label_can_be_taken_back(tmp_path: Path) -> None:
    learner = ActiveLearner(path(5), autosave=tmp_path)
    learner.tell([0, 4], ["a", "b"])
    before = learner.probabilities.clone()
    learner.tell(1, "b")
    assert not torch.allclose(learner.probabilities, before)
    learner.forget(1)
    assert learner.labels == ([0, 4], ["a", "b"])
    torch.testing.assert_close(learner.probabilities, before)
    assert learner.history[-1] == {"index": [1], "labels": [None], "labelled": 2, "accuracy": None}
    assert ActiveLearner.load(tmp_path).labels == learner.labels
    assert 1 in [s.index for s in learner.suggest(3)]
    with pytest.raises(ValueError, match="node 1 has no label that could be taken back"):
        learner.forget([0, 1])
    assert learner.labels == ([0, 4], ["a", "b"])  # all or none


@pytest.mark.usefixtures("as_user")
def test_a_class_prior_of_ones_own(tmp_path: Path) -> None:
    graph = two_cliques(4, 0.1)
    n = graph.num_nodes
    learner = ActiveLearner(graph, method="laplace", class_prior={"a": 0.25, "b": 0.75}, autosave=tmp_path)
    assert learner.classes == ["a", "b"]
    learner.tell([0, n - 1], ["a", "b"])
    labels = gll.Labels(torch.tensor([0, n - 1]), torch.eye(2, dtype=F64))
    wanted = method_from_name("laplace").propagate(graph, labels, class_prior=torch.tensor([0.25, 0.75]).double())
    torch.testing.assert_close(learner.probabilities, wanted.probability)
    resumed = ActiveLearner.load(tmp_path)
    torch.testing.assert_close(resumed.probabilities, wanted.probability)
    plain = method_from_name("laplace").propagate(graph, labels)
    assert not torch.allclose(learner.probabilities, plain.probability)
    for options, message in [
        ({"class_prior": [0.5, 0.5]}, "needs classes="),
        ({"class_prior": [0.5, 0.5], "classes": ["a", "b", "c"]}, "one number for each of 3 classes, got 2"),
        ({"class_prior": {"a": 0.5, "b": 0.5}, "classes": ["a", "c"]}, r"name every class once"),
        ({"class_prior": {"a": 0.5, "b": 0.6}}, "≥ 0 and sum to one"),
        ({"class_prior": {"a": float("nan"), "b": 1.0}}, "≥ 0 and sum to one"),
        ({"unreached": "magic"}, "unknown policy 'magic' for unreached nodes"),
        ({"node_mass": [1.0]}, "a finite number > 0 for each of"),
        ({"node_mass": [0.0] * n}, "a finite number > 0 for each of"),
    ]:
        with pytest.raises(ValueError, match=message):
            ActiveLearner(graph, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("label", [-1, ""])
def test_a_mark_for_no_label_is_not_taken_for_a_class(label: object) -> None:
    learner = gll.ActiveLearner(gll.knn_graph(torch.randn(20, 2), 4))
    with pytest.raises(ValueError, match=r"skip\(\) where nobody can tell"):
        learner.tell(3, label)
