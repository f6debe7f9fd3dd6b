"""benchmarks/poisoning.py: whose labels each attacker flips, and that its figures are those of the library."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from gll.attacks.poison import GreedyFlips, poison
from gll.attacks.poisoned import poisonable
from gll.attacks.target import Request, Target
from tests.attacked_runs import trained_runs

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def module() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        return importlib.import_module("poisoning")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trained_runs(tmp_path_factory)


def test_class_by_class(module: ModuleType, runs: dict[str, Path]) -> None:
    """Sixty percent of the first class, all to the second, then of the next; the rest when all have had their turn."""
    target = Target(Request(runs["gll"], samples=5, base=40, poison=(1,), device="cpu"))
    victim = poisonable(target)
    known = victim.base_labels
    chosen = [
        module.ClassByClass().choose(victim, target.images, target.labels, n, torch.Generator().manual_seed(0))
        for n in (len(known), 7)
    ]
    (index, wrong), (first, _) = chosen
    assert sorted(index.tolist()) == list(range(len(known)))
    assert first.tolist() == index[:7].tolist()
    assert wrong.tolist() == ((known[index] + 1) % 10).tolist()
    turns = torch.cat([torch.full((int(0.6 * int((known == c).sum())),), c) for c in range(10)])
    assert known[index][: len(turns)].tolist() == turns.tolist()


def test_figures_are_those_of_the_library(module: ModuleType, runs: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    module.main([runs["gll"]], file, flips="2,8", base=40, samples=24, device="cpu")
    record = json.loads(file.read_text())
    assert record.keys() >= {"commit", "device", "versions", "config", "wall_s", "rows"}
    assert (record["config"]["seed"], record["config"]["flips"]) == ([0], [2, 8])
    found = {(row["graph"], row["chosen"], row["flips"]): row["error"] for row in record["rows"]}
    assert len(found) == len(record["rows"]) == 2 * 4 * 3
    for graph, joint in module.GRAPHS.items():
        target = Target(Request(runs["gll"], samples=24, base=40, joint=joint, poison=(8,), device="cpu"))
        images, labels = module.others_of(target)
        assert len(images) == 24
        attacked = {tuple(image) for image in target.images.flatten(1).tolist()}
        assert not attacked & {tuple(image) for image in images.flatten(1).tolist()}
        args = (poisonable(target), target.images, target.labels)
        known = poison(*args, counts=[0, 2, 8], flips=GreedyFlips())
        chosen = GreedyFlips().choose(args[0], images, labels, 8, torch.Generator())
        flipped = args[0].base_labels.clone()
        flipped[chosen[0]] = chosen[1]
        wrong = args[0].with_labels(flipped)(target.images).argmax(1) != target.labels
        assert [found[graph, module.KNOWN, n] for n in (0, 2, 8)] == list(known.errors)
        assert found[graph, module.OTHERS, 8] == float(wrong.double().mean())


def test_runs_must_differ_in_the_seed_alone(module: ModuleType, runs: dict[str, Path], tmp_path: Path) -> None:
    for chosen in ([runs["gll"], runs["mlp"]], [runs["gll"], runs["gll"]]):
        with pytest.raises(SystemExit, match="runs that differ in the seed alone"):
            module.main(chosen, tmp_path / "a.json")
