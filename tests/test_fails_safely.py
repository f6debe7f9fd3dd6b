"""The benchmark of honesty in small, and the references it trusts."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer import Typer
from typer.testing import CliRunner

import gll
from benchmarks import _reference as reference
from benchmarks import fails_safely
from benchmarks._nasty import KINDS, Problem, Task, draw


def test_no_wrong_answer_that_is_not_admitted() -> None:
    rows = fails_safely.run(260, seed=0, others=False, quiet=True)
    assert list(rows.pop("failures")) == []
    total = sum((rows[kind] for kind in KINDS), Counter())
    assert total["problems"] == 260
    # Honest is not enough: most of them are solved, and ordinary ones always.
    assert total[fails_safely.SOLVED] > 0.85 * 260
    assert rows["ordinary weights"][fails_safely.ADMITTED] <= 1  # Poisson has no answer for some labels
    assert rows["ordinary weights"]["given up"] == 0
    assert total["gradients compared"] > 55


def test_the_table_and_the_json_file(tmp_path: Path) -> None:
    app = Typer()
    app.command()(fails_safely.main)
    file = tmp_path / "result.json"
    done = CliRunner().invoke(app, ["--problems", "65", "--seed", "4", "--json", str(file)])
    assert done.exit_code == 0, done.output
    assert "65 problems, seed 4" in done.output
    assert "scikit-learn LabelPropagation" in done.output
    record = json.loads(file.read_text())
    assert record["seed"] == 4
    assert record["failures"] == []
    assert sum(record["rows"][kind]["problems"] for kind in KINDS) == 65
    assert {"commit", "device", "config", "wall_seconds", "versions"} <= set(record)


def test_a_seed_is_a_problem() -> None:
    one, same, other = draw(0, 17), draw(0, 17), draw(1, 17)
    assert str(one) == str(same)
    assert np.array_equal(one.problem.value, same.problem.value)
    assert str(one) != str(other) or not np.array_equal(one.tau, other.tau) or one.problem.k != other.problem.k


# The judge must see what is wrong -----------------------------------------------------------------------------------


def task_of(weight: np.ndarray, equation: str = "Laplace", **parameters: float) -> Task:
    n = len(weight)
    problem = Problem(weight, np.array([0, n - 1]), np.eye(2))
    return Task("", problem, equation, parameters, np.zeros(n), np.zeros((n, 2)), gll.solvers.Auto(), torch.float64)


def path(*weights: float) -> np.ndarray:
    return np.diag(weights, 1) + np.diag(weights, -1)


SPOILERS = {
    "a value": lambda s: {"value": s.value + 2e-4 * (torch.arange(len(s.value)) == 1)[:, None]},
    "a nan": lambda s: {"value": s.value * float("nan")},
    "the count": lambda s: {"unreached": 1},
    "the gradient": lambda s: {"value": 1.01 * s.value - 0.01 * s.value.detach()},
}


@pytest.mark.parametrize("what", SPOILERS)
def test_the_judge_notices_a_wrong(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task, honest = task_of(path(1.0, 2.0, 3.0)), gll.solve
    assert fails_safely.judge(task).status == fails_safely.SOLVED
    assert fails_safely.judge(task).gradient == fails_safely.SOLVED

    def spoilt(*args: Any, **options: Any) -> gll.Solution:
        solution = honest(*args, **options)
        return dataclasses.replace(solution, **SPOILERS[what](solution))

    monkeypatch.setattr(gll, "solve", spoilt)
    assert fails_safely.judge(task).status == fails_safely.WRONG


def test_the_judge_wants_cut_off_nodes_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    task, honest = task_of(path(1.0, 0.0, 0.0, 2.0)), gll.solve
    assert fails_safely.judge(task).cut_off == 1

    def hushed(*args: Any, **options: Any) -> gll.Solution:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dataclasses.replace(honest(*args, **options), unreached=0, unreached_nodes=None)

    monkeypatch.setattr(gll, "solve", hushed)
    assert fails_safely.judge(task).detail == "a node that no label reaches is not reported"


# The references -----------------------------------------------------------------------------------------------------


def rational(weight: np.ndarray, index: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Laplace's equation by Gauss-Jordan elimination on fractions."""
    n = len(weight)
    free = [i for i in range(n) if i not in index]
    exact = [[Fraction(w) for w in row] for row in weight.tolist()]
    rows = [
        [sum(exact[i]) if i == j else -exact[i][j] for j in free]
        + [sum(exact[i][b] * Fraction(g) for b, g in zip(index, column, strict=True)) for column in value.T.tolist()]
        for i in free
    ]
    for k in range(len(free)):
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i in range(len(free)):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    out = np.zeros((n, value.shape[1]))
    out[index] = value
    out[free] = [[float(entry) for entry in row[len(free) :]] for row in rows]
    return out


@pytest.mark.parametrize("orders", [1, 20, 100, 300])
@pytest.mark.parametrize("seed", range(3))
def test_references_agree_with_rational_arithmetic(orders: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    upper = np.triu(10.0 ** rng.uniform(-orders, 0, (8, 8)), 1)
    weight, index, value = upper + upper.T, np.array([2, 5]), np.array([[1.0, 0.25], [0.0, 0.5]])
    expected = rational(weight, index, value)
    zero = np.zeros((8, 2))
    np.testing.assert_allclose(reference.laplace(weight, index, value, np.zeros(8), zero), expected, rtol=1e-11)
    edges = [(i, j, weight[i, j]) for i in range(8) for j in range(i + 1, 8)]
    for c in range(2):
        exact = reference.Exact(
            edges, np.zeros(8), np.zeros(8), {2: value[0, c], 5: value[1, c]}, digits=60 + 3 * orders
        )
        np.testing.assert_allclose(exact.solve(), expected[:, c], rtol=1e-14)


def test_gradient_and_nonlinear_references_on_paper() -> None:
    """Two links in series, w₁ and w₂, 1 at one end and 0 at the other: φ(1-u) w₁ = φ(u) w₂."""
    edges = [(0, 1, 2.0), (1, 2, 6.0)]
    ends = {0: 1.0, 2: 0.0}
    linear = reference.Exact(edges, np.zeros(3), np.zeros(3), ends)
    np.testing.assert_allclose(linear.solve()[1], 0.25, rtol=1e-15)
    # ∂u/∂ log w₁ = u(1-u) = -∂u/∂ log w₂.
    np.testing.assert_allclose(linear.log_weight_gradient(np.array([0.0, 1.0, 0.0])), [3 / 16, -3 / 16], rtol=1e-14)
    quadratic = reference.Exact(edges, np.zeros(3), np.zeros(3), ends, flux=reference.p_flux(3.0, 1e-30))
    np.testing.assert_allclose(quadratic.solve()[1], 1 / (1 + 3**0.5), rtol=1e-14)
    poisson = reference.Exact(edges, np.zeros(3), np.array([1.0, 0.0, -1.0]), {}, mean_zero=np.array([2.0, 8.0, 6.0]))
    u = poisson.solve()
    np.testing.assert_allclose(u[0] - u[1], 1 / 2, rtol=1e-14)
    np.testing.assert_allclose(u[1] - u[2], 1 / 6, rtol=1e-14)
    np.testing.assert_allclose(u @ [2, 8, 6], 0, atol=1e-14)
