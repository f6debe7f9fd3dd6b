"""`gll fit`, run as a user runs it: the answers are the classifier's own, files are whole, options are checked."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import gll
from gll import GraphLearningClassifier
from gll.cli import app
from gll.fit import Request
from tests.fit_cases import ROWS, TRUTH, X, digits_files, flat, gll_fit, loaded, small_files


@pytest.fixture
def digits(tmp_path: Path) -> tuple[Path, Path]:
    return digits_files(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    return small_files(tmp_path)


def test_result_is_the_classifiers_own(digits: tuple[Path, Path], tmp_path: Path) -> None:
    out, model_file = tmp_path / "result.npz", tmp_path / "model.gll"
    done = gll_fit(
        digits[0], "--labels", digits[1], "--out", out, "--save", model_file, "--method", "poisson", "--neighbors", 8,
        "--calibrate", "--seed", 3,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    y = np.full(len(X), None, dtype=object)
    y[ROWS] = [f"digit {TRUTH[row]}" for row in ROWS]
    model = GraphLearningClassifier("poisson", n_neighbors=8, calibrate=True, random_state=3).fit(X, y)
    with np.load(out, allow_pickle=False) as found:
        assert found["predictions"].dtype.kind == "U"
        assert found["predictions"].tolist() == model.transduction_.tolist()
        np.testing.assert_array_equal(found["probabilities"], model.label_distributions_)
        np.testing.assert_array_equal(found["entropy"], model.entropy_)
        np.testing.assert_array_equal(found["margin"], model.margin_)
        assert found["classes"].tolist() == model.classes_.tolist()
        assert np.flatnonzero(found["labelled"]).tolist() == sorted(ROWS.tolist())
        assert not found["unreached"].any()
        about = json.loads(str(found["about"]))
    assert about["description"] == model.description_
    assert about["temperature"] == model.temperature_ != 1
    assert about["parameters"] == {
        "method": "poisson", "neighbors": 8, "metric": "euclidean", "calibrate": True, "unreached": "uniform",
        "device": "cpu", "seed": 3, "key": None, "class_prior": None,
    }  # fmt: skip
    assert about["versions"]["gll"] == gll.__version__
    loaded = GraphLearningClassifier.load(model_file)
    np.testing.assert_array_equal(loaded.label_distributions_, model.label_distributions_)


def test_summary_says_what_was_read_and_found(digits: tuple[Path, Path], tmp_path: Path) -> None:
    done = gll_fit(digits[0], "--labels", digits[1], "--out", tmp_path / "result.npz")
    assert done.exit_code == 0, done.output
    assert "30 labels of 10 classes on 600 points" in flat(done)
    assert "600 points in 64 dimensions" in flat(done)
    assert "auto took" in flat(done)
    with np.load(tmp_path / "result.npz") as found:
        for c in range(10):
            predicted = found["predictions"] == f"digit {c}"
            free = predicted & ~found["labelled"]
            confidence = found["probabilities"][free].max(1).mean()
            assert re.search(rf"digit {c}\s*│\s*3\s*│\s*{predicted.sum()}\s*│\s*{confidence:.2f}\s*│", done.output)
        # The first suggestion is the least certain point of all.
        margin = np.where(found["labelled"], 1, found["margin"])
        assert re.search(rf"│\s*{margin.argmin()}\s*│.*{margin.min():.3f}", done.output)
        edges = json.loads(str(found["about"]))["graph"]["edges"]
    assert re.search(rf"edges\s*│\s*{edges:,}", done.output)
    assert edges == GraphLearningClassifier().fit(X, TRUTH).graph_.topology.num_edges
    assert "[gll] solve" in done.stderr
    assert "[gll]" not in done.stdout


def test_quiet_prints_nothing(digits: tuple[Path, Path], tmp_path: Path) -> None:
    done = gll_fit(digits[0], "--labels", digits[1], "--out", tmp_path / "result.npz", "--quiet")
    assert (done.exit_code, done.output) == (0, "")
    assert (tmp_path / "result.npz").exists()


def test_nothing_is_written_unless_asked_for(digits: tuple[Path, Path], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    done = gll_fit(digits[0], "--labels", digits[1])
    assert done.exit_code == 0
    assert "nothing written" in done.output
    assert sorted(tmp_path.iterdir()) == before


def test_class_prior_moves_the_counts(digits: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "prior.csv").write_text(
        "label,share\n" + "".join(f"digit {d},{5 if d == 1 else 1}\n" for d in range(10))
    )
    shares = ",".join("5" if d == 1 else "1" for d in range(10))
    named = ",".join(f"digit {d}={5 if d == 1 else 1}" for d in reversed(range(10)))
    counts = []
    for place, prior in enumerate([None, shares, named, tmp_path / "prior.csv"]):
        more = [] if prior is None else ["--class-prior", prior]
        done = gll_fit(digits[0], "--labels", digits[1], "--out", tmp_path / f"{place}.npz", "--quiet", *more)
        assert done.exit_code == 0, done.output
        counts.append(int((loaded(tmp_path / f"{place}.npz")["predictions"] == "digit 1").sum()))
    assert counts[1] == counts[2] == counts[3] > counts[0] + 30


def test_missing_files_and_options(small: Callable[..., tuple[Path, Path]], tmp_path: Path) -> None:
    x, y = small()
    for words, code, message in (
        ((tmp_path / "none.npz", "--labels", y), 1, "there is no file"),
        ((x, "--labels", tmp_path / "none.csv"), 1, "there is no file"),
        ((tmp_path, "--labels", y), 1, "is a folder"),
        ((x,), 1, "there are no labels"),
        ((x, "--labels", y, "--neighbors", "0"), 2, "neighbors"),
        ((x, "--labels", y, "--metric", "taxi"), 2, "taxi"),
        ((x, "--labels", y, "--unreached", "zero"), 2, "zero"),
        ((), 2, "FEATURES"),
    ):
        done = gll_fit(*words)
        assert done.exit_code == code, done.output
        assert message.lower() in flat(done).lower()
        assert "Traceback" not in done.output


def test_outputs_are_checked_before_the_work(
    small: Callable[..., tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = small()
    (tmp_path / "old.npz").write_text("precious")

    def never(*_: Any) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(GraphLearningClassifier, "fit", never)
    for words, message in (
        (("--out", tmp_path / "no" / "r.npz"), "does not exist"),
        (("--report", tmp_path), "is a folder"),
        (("--out", tmp_path / "old.npz"), "exists: add --force to replace it"),
        (("--out", x, "--force"), "is also read from"),
        (("--out", tmp_path / "r", "--save", tmp_path / "r"), "is the name of another output"),
    ):
        done = gll_fit(x, "--labels", y, *words)
        assert done.exit_code == 1
        assert message in flat(done)
    assert (tmp_path / "old.npz").read_text() == "precious"


def test_force_replaces(small: Callable[..., tuple[Path, Path]], tmp_path: Path) -> None:
    x, y = small()
    (tmp_path / "old.npz").write_text("precious")
    done = gll_fit(x, "--labels", y, "--neighbors", 7, "--out", tmp_path / "old.npz", "--force")
    assert done.exit_code == 0, done.output
    assert loaded(tmp_path / "old.npz")["predictions"].tolist() == ["a"] * 6 + ["b"] * 6


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError("No space left on device")])
def test_an_interrupted_write_leaves_nothing(
    small: Callable[..., tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    x, y = small()
    (tmp_path / "r.npz").write_text("the older result")
    before = sorted(tmp_path.iterdir())

    def fail(*_: Any) -> str:
        raise stop

    monkeypatch.setattr(gll.report, "page", fail)  # the result is written by then, under its temporary name
    done = gll_fit(
        x, "--labels", y, "--neighbors", 7, "--out", tmp_path / "r.npz", "--report", tmp_path / "r.html", "--force"
    )
    assert done.exit_code == (130 if stop is KeyboardInterrupt else 1)
    assert ("interrupted; no file" if stop is KeyboardInterrupt else "No space left") in flat(done)
    assert "Traceback" not in done.output
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "r.npz").read_text() == "the older result"


def test_notes_are_sentences(small: Callable[..., tuple[Path, Path]], tmp_path: Path) -> None:
    # The second cluster has no label: it is counted, marked, and its best connected point is suggested, once.
    x, y = small("index,label\n0,a\n5,b\n0,a\n")
    done = gll_fit(x, "--labels", y, "--neighbors", 3, "--out", tmp_path / "r.npz")
    assert done.exit_code == 0, done.output
    assert "gll fit (note): repeated lines in y.csv, with the same label as before: 1" in flat(done)
    assert "(note): 6 points are not reached by any label, and got the answer of --unreached uniform" in flat(done)
    assert done.output.count("not reached by any label") == 1
    found = loaded(tmp_path / "r.npz")
    assert found["unreached"].tolist() == [False] * 6 + [True] * 6
    assert done.output.count("no label reaches it") == 1
    graph = (
        GraphLearningClassifier("laplace", n_neighbors=3, unreached="nearest")
        .fit(loaded(x)["features"], [0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
        .graph_
    )
    best = 6 + int(graph.degree[6:].argmax())
    assert re.search(rf"│ {best}\s*│ no label reaches it", done.output)
    done = gll_fit(x, "--labels", y, "--neighbors", 3, "--unreached", "raise")
    assert done.exit_code == 1
    assert "Traceback" not in done.output


def test_a_command_can_be_given_again(tmp_path: Path) -> None:
    request = Request(
        tmp_path / "a b.npz",
        tmp_path / "l.csv",
        key="k",
        neighbors=3,
        calibrate=True,
        class_prior="x=1,y=2",
        force=True,
    )
    words = shlex.split(request.command())
    assert words[:3] == ["gll", "fit", str(tmp_path / "a b.npz")]
    assert words[3:] == [
        "--labels", str(tmp_path / "l.csv"), "--key", "k", "--neighbors", "3", "--class-prior", "x=1,y=2",
        "--calibrate",
    ]  # fmt: skip


def test_every_option_is_on_the_page_of_the_commands() -> None:
    text = (Path(__file__).parent.parent / "docs" / "command-line.md").read_text()
    for name, command in typer.main.get_command(app).commands.items():
        part = text.partition(f"## gll {name}\n")[2].partition("\n## ")[0]
        options = [option for entry in command.params for option in entry.opts if option.startswith("--")]
        assert [option for option in options if f"`{option}" not in part and f" {option} " not in part] == [], name
