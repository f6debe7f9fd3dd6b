"""Which nodes to ask for together: batches by their defining properties, and names that make equal objects."""

from __future__ import annotations

import importlib.util
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from torch import Tensor

import gll
from gll.active import (
    ACQUISITIONS,
    SELECTIONS,
    AbstractAcquisition,
    Entropy,
    FewerThanAskedWarning,
    LocalMax,
    Proportional,
    SigmaOpt,
    Situation,
    SmallestNorm,
    TopK,
    VOpt,
    acquisition_from_name,
    as_config,
    choose,
    selection_from_name,
)
from gll.field import GaussianField
from gll.graph import Normalization
from tests.active_cases import NONE, SYMMETRIC, Fixed, dense_covariance
from tests.problems import F64, graph_of, one_hot, path, random_graph, two_cliques


@st.composite
def scored_graphs(draw: st.DrawFn) -> tuple[gll.Graph, tuple[float, ...], list[int], list[int], int]:
    n = draw(st.integers(2, 12))
    pairs = [(i, j) for i in range(n) for j in range(i)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * n))
    scores = tuple(draw(st.lists(st.integers(0, 4).map(float), min_size=n, max_size=n)))  # many ties
    marked = draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n - 1))
    cut = draw(st.integers(0, len(marked)))
    return graph_of(n, edges), scores, marked[:cut], marked[cut:], draw(st.integers(1, n))


@settings(max_examples=150)
@given(scored_graphs())
def test_local_max_by_its_definition(case: tuple[gll.Graph, tuple[float, ...], list[int], list[int], int]) -> None:
    graph, scores, labelled, pending, count = case
    n, adjacent = graph.num_nodes, graph.to_dense() > 0
    labels = one_hot(labelled, [0] * len(labelled)) if labelled else None
    situation = Situation(graph, labels, pending=torch.tensor(pending, dtype=torch.int64))
    rivals = [i for i in range(n) if i not in labelled]
    free = [i for i in rivals if i not in pending]

    def wins(a: int, b: int) -> bool:
        return scores[a] > scores[b] or (scores[a] == scores[b] and a < b)

    best = [i for i in free if all(wins(i, j) for j in rivals if adjacent[i, j])]
    best.sort(key=lambda i: (-scores[i], i))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewerThanAskedWarning)
        strict = choose(Fixed(scores), situation, count, selection=LocalMax(fill=False)).index.tolist()
        filled = choose(Fixed(scores), situation, count, selection=LocalMax()).index.tolist()
    assert strict == best[:count]
    for i in strict:
        assert all(scores[i] >= scores[j] for j in rivals if adjacent[i, j])
        assert not any(adjacent[i, j] for j in strict)
    # Filled: as many as asked for or as there are, the true maxima first, nobody twice, none that is known.
    assert filled[: len(strict)] == strict
    assert len(filled) == len(set(filled)) == min(count, len(free))
    assert set(filled) <= set(free)


@settings(max_examples=60)
@given(scored_graphs(), st.sampled_from([TopK(), LocalMax(), Proportional(), Proportional(1.0)]))
def test_no_selection_returns_what_is_known(case: Any, selection: Any) -> None:
    graph, scores, labelled, pending, count = case
    labels = one_hot(labelled, [0] * len(labelled)) if labelled else None
    situation = Situation(graph, labels, pending=torch.tensor(pending, dtype=torch.int64))
    free = [i for i in range(graph.num_nodes) if i not in labelled + pending]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewerThanAskedWarning)
        choice = choose(Fixed(scores), situation, count, selection=selection)
    found = choice.index.tolist()
    assert len(set(found)) == len(found) == min(count, len(free))
    assert set(found) <= set(free)
    assert choice.score.tolist() == [scores[i] for i in found]
    if isinstance(selection, TopK):
        assert found == sorted(free, key=lambda i: (-scores[i], i))[:count]


def test_filling_avoids_neighbours_of_picks() -> None:
    """On a path with rising scores only the last node is a maximum; the rest come two apart, then those between."""
    found = choose(Fixed((0.0, 1.0, 2.0, 3.0, 4.0)), Situation(path(5)), 5).index.tolist()
    assert found == [4, 2, 0, 3, 1]


def test_an_edge_of_weight_zero_joins_nothing() -> None:
    graph = path(2).with_weight(torch.zeros(1, dtype=F64))
    assert choose(Fixed((1.0, 2.0)), Situation(graph), 2, selection=LocalMax(fill=False)).index.tolist() == [1, 0]


@pytest.mark.parametrize("normalization", [NONE, SYMMETRIC])
@pytest.mark.parametrize("kind", [VOpt, SigmaOpt])
def test_batches_are_greedy(kind: Any, normalization: Normalization) -> None:
    """Each pick is the best given the picks before it, by brute force."""
    graph, field = random_graph(16), GaussianField(0.05, 0.1, normalization=normalization)
    choice = choose(kind(field), Situation(graph, one_hot([3], [0])), 4, selection=TopK())
    known = [3]
    for pick, score in zip(choice.index.tolist(), choice.score.tolist(), strict=True):
        measure = torch.trace if kind is VOpt else torch.sum
        before = measure(dense_covariance(graph, field, known))
        gain = {
            k: float(before - measure(dense_covariance(graph, field, [*known, k]))) for k in range(16) if k not in known
        }
        assert pick == max(gain, key=gain.__getitem__)
        assert score == pytest.approx(gain[pick], rel=1e-9)
        known.append(pick)


def test_a_batch_of_two_takes_one_of_each_clique() -> None:
    """Without updates both would go to the same place; what was asked for before counts as well."""
    graph = two_cliques(6, 1e-3)
    picks = choose(VOpt(), Situation(graph), 2, selection=TopK()).index.tolist()
    assert sorted(p // 6 for p in picks) == [0, 1]
    later = choose(VOpt(), Situation(graph, pending=torch.tensor(picks[:1])), 1, selection=TopK()).index.tolist()
    assert later == picks[1:]


@pytest.mark.parametrize(
    ("gamma", "weight"), [(None, [1, 2, 3, 4]), (1.0, [np.e, np.e**2, np.e**3, np.e**4]), (0.0, [1] * 4)]
)
def test_sampling_proportions(gamma: float | None, weight: list[float]) -> None:
    """Pearson's statistic of 1,000 first picks, and of the pairs drawn without replacement."""
    draws, scores, share = 1000, Fixed((1.0, 2.0, 3.0, 4.0, 9.0)), np.array(weight) / np.sum(weight)
    picks = np.array([
        choose(
            scores, Situation(path(5), one_hot([4], [0]), seed=seed), 2, selection=Proportional(gamma)
        ).index.tolist()
        for seed in range(draws)
    ])  # fmt: skip
    first = np.bincount(picks[:, 0], minlength=5)
    assert first[4] == 0
    assert (((first[:4] - draws * share) ** 2) / (draws * share)).sum() < 16.3  # 0.1 % point, 3 degrees of freedom
    pairs = {(a, b): share[a] * share[b] / (1 - share[a]) for a in range(4) for b in range(4) if a != b}
    expected = draws * np.array(list(pairs.values()))
    seen = np.array([(picks == pair).all(1).sum() for pair in pairs])
    assert ((seen - expected) ** 2 / expected).sum() < 31.3  # 0.1 % point, 11 degrees of freedom


def test_sampling_in_proportion_to_negative_scores() -> None:
    with pytest.raises(ValueError, match="needs scores ≥ 0, the smallest is -1; set gamma"):
        choose(Fixed((-1.0, 2.0)), Situation(path(2)), 1, selection=Proportional())
    assert choose(Fixed((0.0, 0.0)), Situation(path(2)), 2, selection=Proportional()).index.sort().values.tolist() == [
        0,
        1,
    ]


def test_asking_for_more_than_there_are() -> None:
    situation = Situation(path(4), one_hot([0], [0]))
    with pytest.warns(FewerThanAskedWarning, match="9 nodes were asked for, 3 chosen: only 3 are left"):
        assert len(choose(VOpt(), situation, 9).index) == 3
    with pytest.warns(FewerThanAskedWarning, match="2 nodes were asked for, 1 chosen: only so many stand out"):
        choose(Fixed((0.0, 1.0, 2.0, 3.0)), situation, 2, selection=LocalMax(fill=False))
    with pytest.raises(ValueError, match="no candidate is left"):
        choose(VOpt(), Situation(path(2), one_hot([0, 1], [0, 1])), 1)
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        choose(VOpt(), situation, 0)


@pytest.mark.usefixtures("as_user")
def test_candidates() -> None:
    """Base sets are chosen among some nodes only; the others do not compete."""
    choice = choose(Fixed((5.0, 4.0, 3.0, 2.0)), Situation(path(4)), 2, candidates=torch.tensor([1, 3]))
    assert choice.index.tolist() == [1, 3]
    with pytest.raises(ValueError, match=r"candidates must lie in 0 \.\. 3"):
        choose(VOpt(), Situation(path(4)), 1, candidates=torch.tensor([4]))
    for same in ([1, 3], (1, 3), range(1, 4, 2), np.array([1, 3]), np.array([3, 1], dtype=np.uint8)):
        again = choose(Fixed((5.0, 4.0, 3.0, 2.0)), Situation(path(4)), 2, candidates=same)
        assert again.index.tolist() == [1, 3]
    with pytest.raises(ValueError, match="no candidate is left"):
        choose(VOpt(), Situation(path(4)), 1, candidates=[])
    for wrong, got in [
        (torch.ones(4, dtype=torch.bool), r"torch\.bool of shape \(4,\)"),
        (np.ones(4, dtype=bool), r"bool of shape \(4,\)"),
        ([0.5], r"float64 of shape \(1,\)"),
        ([[0, 1]], r"int64 of shape \(1, 2\)"),
    ]:
        with pytest.raises(ValueError, match=f"candidates must be whole numbers in one dimension.*got {got}"):
            choose(VOpt(), Situation(path(4)), 1, candidates=wrong)  # type: ignore[arg-type]


def test_a_base_set_for_the_layer() -> None:
    """A base that is spread over the graph serves the layer better than most random ones of its size."""
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x[:1000]).float(), torch.tensor(y[:1000])
    train, test = np.arange(0, 1000, 2), np.arange(1, 1000, 2)
    layer = gll.GraphLearningLayer(10, k=10)

    def accuracy(base: Tensor) -> float:
        return float((layer(x[test], x[base], y[base]).argmax(1) == y[test]).double().mean())

    base = choose(SigmaOpt(), Situation(gll.knn_graph(x, k=10)), 40, candidates=train).index
    assert set(base.tolist()) <= set(train.tolist())
    drawn = []
    for seed in range(5):
        order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a class may be missing
            drawn.append(accuracy(torch.from_numpy(train)[order[:40]]))
    assert accuracy(base) > sum(drawn) / len(drawn) + 0.02


@pytest.mark.usefixtures("as_user")
def test_wrong_situations() -> None:
    graph = path(3)
    good = torch.full((3, 2), 0.5)
    for options, message in [
        ({"value": torch.tensor([[0.5, float("nan")]] * 3)}, "value must hold probabilities, but lies in nan"),
        ({"value": 3 * good}, r"lies in 1.5 \.\. 1.5; turn scores into probabilities first"),
        ({"value": good[:2]}, "n = 3, got torch.float32 of shape \\(2, 2\\)"),
        ({"pending": torch.tensor([3])}, r"indices of pending must lie in 0 \.\. 2"),
        ({"labels": one_hot([0, 0], [0, 1])}, "appears twice in labels"),
    ]:
        with pytest.raises(ValueError, match=message):
            Situation(graph, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="needs predictions, and there are none yet; start with VOpt"):
        choose(Entropy(), Situation(graph), 1)
    with pytest.raises(ValueError, match="needs at least one label"):
        choose(SmallestNorm(), Situation(graph), 1)
    with pytest.raises(ValueError, match="gave 1 scores that are not finite"):
        choose(Fixed((0.0, float("inf"), 0.0)), Situation(graph), 1)
    with pytest.raises(TypeError, match=r"such as gll.active.Entropy\(\), got 'entropy'"):
        choose("entropy", Situation(graph), 1)  # type: ignore[arg-type]
    for wrong, message in [
        (lambda: GaussianField(tau=0.0), "tau of a Gaussian field must be a finite number > 0, got 0.0"),
        (lambda: GaussianField(noise=float("nan")), "noise of a Gaussian field"),
        (lambda: GaussianField(rank=0), "rank must be at least 1"),
        (lambda: GaussianField(normalization=Normalization.RANDOM_WALK), "a covariance is symmetric"),
        (lambda: SmallestNorm(tau=0.0), "the smallest norm needs tau > 0"),
        (lambda: Proportional(-1.0), "gamma must be None or a finite number"),
        (lambda: acquisition_from_name("bald"), "unknown acquisition function 'bald'; choose one of entropy, norm"),
        (lambda: acquisition_from_name("vopt", temperature=1), "'vopt' has no option 'temperature'; its options: tau"),
        (lambda: selection_from_name("best"), "unknown selection 'best'; choose one of local-max"),
    ]:
        with pytest.raises(ValueError, match=message):
            wrong()


def test_names_make_equal_objects() -> None:
    things: list[Any] = [kind() for kind in (*ACQUISITIONS.values(), *SELECTIONS.values())]
    things += [VOpt(GaussianField(0.5, 0.25, 7, NONE)), SmallestNorm(0.3, True), Proportional(2.0), LocalMax(False)]
    for thing in things:
        config = json.loads(json.dumps(as_config(thing)))
        maker = acquisition_from_name if isinstance(thing, AbstractAcquisition) else selection_from_name
        assert maker(config["name"], **config["options"]) == thing


def test_the_benchmark_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    spec = importlib.util.spec_from_file_location(
        "benchmark_active", Path(__file__).parent.parent / "benchmarks/active.py"
    )
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    file, picture = tmp_path / "a.json", tmp_path / "a.png"
    command = ["run", "--dataset", "digits", "--nodes", "200", "--most", "20", "--selections", "local-max"]
    command += ["--json", str(file)]
    runner = CliRunner()
    for more in (["--acquisitions", "norm", "--seeds", "1"], ["--acquisitions", "norm,random", "--seeds", "2"]):
        assert runner.invoke(benchmark.app, [*command, *more]).exit_code == 0
        found = json.loads(file.read_text())["runs"]
        if more[1] == "norm":
            first = found
            entry = found["norm local-max 0"]
            assert entry["labels"] == [10, 20]
            entry["choose_s"] = -1.0  # a mark: this run is not made again
            file.write_text(json.dumps(json.loads(file.read_text()) | {"runs": found}))
    assert found["norm local-max 0"] == first["norm local-max 0"]
    assert sorted(found) == [f"{name} local-max {seed}" for name in ("norm", "random") for seed in (0, 1)]
    assert "another configuration" in str(runner.invoke(benchmark.app, [*command, "--batch", "5"]).exception)
    assert runner.invoke(benchmark.app, ["plot", str(file), "--out", str(picture)]).exit_code == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
