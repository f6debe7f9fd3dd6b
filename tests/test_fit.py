"""`gll fit`, run as a user runs it: the answers are the classifier's own, and every mistake gets a sentence."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import typer
from sklearn.datasets import load_digits
from typer.testing import CliRunner, Result

import gll.fit
import gll.report
from gll import GraphLearningClassifier
from gll.cli import app
from gll.feature_files import read_features
from gll.fit import Request
from gll.input_files import InputError
from gll.label_files import read_labels
from gll.prior_option import read_prior

X, TRUTH = load_digits(return_X_y=True)
X, TRUTH = X[:600], TRUTH[:600]
ROWS = np.concatenate([np.flatnonzero(d == TRUTH)[:3] for d in range(10)])


def gll_fit(*words: object) -> Result:
    return CliRunner().invoke(app, ["fit", *map(str, words)])


def loaded(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def flat(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.fixture
def digits(tmp_path: Path) -> tuple[Path, Path]:
    np.savez(tmp_path / "digits.npz", features=X)
    lines = [f"{row},digit {TRUTH[row]}" for row in ROWS]
    (tmp_path / "labels.csv").write_text("\n".join(["index,label", *lines]) + "\n")
    return tmp_path / "digits.npz", tmp_path / "labels.csv"


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Two clusters of six points, and any labels; files may be replaced."""

    def make(text: str | bytes = "index,label\n0,a\n6,b\n", **arrays: Any) -> tuple[Path, Path]:
        x = np.random.default_rng(0).normal(size=(12, 2)) + np.repeat([[0.0], [8.0]], 6, 0)
        np.savez(tmp_path / "x.npz", **(arrays or {"features": x}))
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / "y.csv").write_bytes(data)
        return tmp_path / "x.npz", tmp_path / "y.csv"

    return make


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


# Ways to give features and labels


def test_forms_of_features_agree(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    np.savez(tmp_path / "b.npz", images=X, note=np.array("hello"), table=np.zeros((4, 2), int))
    np.savez_compressed(tmp_path / "c.npz", first=X[:, ::-1], second=X)
    scipy.sparse.save_npz(tmp_path / "d.npz", scipy.sparse.csc_matrix(X))
    np.savez(tmp_path / "e.npz", features=X, scores=np.zeros((600, 10)))
    np.savez(tmp_path / "f.npz", x=X.astype(np.uint8))
    for name, key in (("a.npy", None), ("b.npz", None), ("c.npz", "second"), ("e.npz", None), ("f.npz", None)):
        np.testing.assert_array_equal(read_features(tmp_path / name, key).value, X)
    np.testing.assert_array_equal(read_features(tmp_path / "d.npz").value.toarray(), X)


def test_forms_of_labels_agree(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", features=X, ids=np.array([f"img{i}" for i in range(600)]))
    features = read_features(tmp_path / "x.npz")
    y = np.full(600, -1)
    y[ROWS] = TRUTH[ROWS]
    by_index = [f"{row},{TRUTH[row]}" for row in ROWS]
    column = ["" if v == -1 else str(v) for v in y]
    texts = {
        "index.csv": ["index,label", *by_index],
        "bom.csv": ["\ufeffIndex, Label", *by_index, "", " "],
        "semicolon.csv": ["who;label;index", *(f"me;{TRUTH[row]};{row}" for row in ROWS)],
        "tab.tsv": ["index\tlabel", *(f"{row}\t{TRUTH[row]}" for row in ROWS)],
        "quoted.csv": ["index,label", *(f'"{row}","{TRUTH[row]}"' for row in ROWS), '599,""', "598,-1"],
        "ids.csv": ["id,label", *(f"img{row},{TRUTH[row]}" for row in ROWS)],
        "column.txt": column,
        "header.csv": ["label", *column],
        "minus.csv": [str(v) for v in y],
        "nan.csv": ["nan" if v == -1 else str(v) for v in y],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    np.save(tmp_path / "ints.npy", y.astype(np.int8))
    np.save(tmp_path / "floats.npy", np.where(y == -1, np.nan, y))
    np.save(tmp_path / "strings.npy", np.array(column))
    np.savez(tmp_path / "labels.npz", labels=y, other=y)
    for name in [*texts, "ints.npy", "floats.npy", "strings.npy", "labels.npz"]:
        given = read_labels(tmp_path / name, features)
        assert given.y.dtype == np.int64, name
        np.testing.assert_array_equal(given.y, y, err_msg=name)
        np.testing.assert_array_equal(given.known, y != -1, err_msg=name)


def test_numbers_are_numbers_only_where_nothing_is_lost(small: Callable[..., tuple[Path, Path]]) -> None:
    for labels, classes in (("0,10\n6,9", [9, 10]), ("0,010\n6,9", ["010", "9"]), ("0,1.0\n6,2", ["1.0", "2"])):
        x, y = small("index,label\n" + labels)
        assert read_labels(y, read_features(x)).classes == classes


def test_labels_in_the_file_of_the_features(small: Callable[..., tuple[Path, Path]], tmp_path: Path) -> None:
    x = np.arange(12.0)[:, None] + np.repeat([0, 50], 6)[:, None]
    path, _ = small(features=x, labels=np.array([3, *[-1] * 10, 5]))
    done = gll_fit(path, "--neighbors", 5, "--unreached", "nearest", "--out", tmp_path / "r.npz")
    assert done.exit_code == 0, done.output
    assert loaded(tmp_path / "r.npz")["predictions"].tolist() == [3] * 6 + [5] * 6


def test_ids_are_handed_on(small: Callable[..., tuple[Path, Path]], tmp_path: Path) -> None:
    names = np.array([f"p{i}" for i in range(12)])
    x = np.repeat([[0.0], [8.0]], 6, 0) + np.linspace(0, 1, 12)[:, None]
    path, labels = small("id,label\np0,a\np11,b\n", features=x, ids=names)
    done = gll_fit(path, "--labels", labels, "--neighbors", 6, "--out", tmp_path / "r.npz")
    assert done.exit_code == 0, done.output
    found = loaded(tmp_path / "r.npz")
    assert found["ids"].tolist() == names.tolist()
    assert found["predictions"].tolist() == ["a"] * 6 + ["b"] * 6
    assert re.search(r"│ p\d+ ", done.output)


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


def test_prior_errors(tmp_path: Path) -> None:
    for text, message in {
        "1,2": "one number for each of the 3 classes (a, b, c)",
        "a=1,b=2": "c have no share",
        "a=1,b=2,c=3,d=1": "d are not among the labels",
        "a=1,b=x,c=3": "'x' for 'b' is not a number",
        "1,0,2": "the share of 'b' must be positive",
        "1,nan,2": "the share of 'b' must be positive",
        "a=1,a=2,b=2,c=3": "'a' is given twice",
    }.items():
        with pytest.raises(InputError, match=re.escape(message)):
            read_prior(text, ["a", "b", "c"])


# Mistakes


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("", "y.csv is empty"),
        (" \n\n", "nothing in it but white space"),
        ("index,label\n", "has no labels"),
        ("index,label\n0,\n3,-1\n", "has no labels"),
        ("index,label\n0,a\n6,a\n", "labels of one class only, 'a'"),
        ("index,label\n0,1\n6,-1\n", "-1 means 'no label'"),
        (
            "index,label\n0,a\n12,b\n-1,c\n",
            "line 3: index 12 is out of range: there are 12 points, 0 .. 11 (2 of 3 lines",
        ),
        ("index,label\n0,a\n1.5,b\n", "line 3: the index '1.5' is not a whole number"),
        ("index,label\n0,a\n6,b\n0,b\n", "lines 2 and 4: point 0 is labelled 'a' and 'b' (1 in all)"),
        ("index,label\n0,a\n6,b,c\n", "line 3: 3 fields, but the header has 2"),
        ("index,label\n0,a\n6\n", "line 3: 1 fields"),
        ("index,label,label\n0,a,b\n", "two columns 'label'"),
        ("id,label\n0,a\n", "has no array 'ids'"),
        ("0,a\n6,b\n", "Expected the header index,label"),
        ("a\nb\n", "has 2 lines, but there are 12 points"),
        ('index,label\n0,"a\n6,b\n', "is not a CSV file: line"),
        (b"index,label\n0,a\n6,\xff\n", "not a CSV file in UTF-8: line 3 holds the byte 0xff"),
        (b"\x00\x01\x02\x03", "binary data"),
        ("index,label\n0,a\n6," + 2000 * "b", "a label of 2,000 characters"),
    ],
)
def test_mistakes_in_labels(small: Callable[..., tuple[Path, Path]], labels: str | bytes, message: str) -> None:
    x, y = small(labels)
    done = gll_fit(x, "--labels", y, "--neighbors", 5)
    assert done.exit_code == 1
    assert message in flat(done)
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"a": np.zeros((12, 2)), "b": np.ones((12, 3))}, [], "a (float64, 12 × 2), b (float64, 12 × 3)"),
        ({"a": np.zeros((12, 2))}, ["--key", "z"], "no array 'z'; it has a (float64, 12 × 2)"),
        ({"a": np.zeros(12)}, [], "no two-dimensional array of numbers: a (float64, 12)"),
        ({"a": np.zeros((12, 2, 2))}, ["--key", "a"], "must be a (points, dimensions) array"),
        ({"a": np.zeros((0, 2))}, [], "is empty"),
        ({"a": np.array([[{}]])}, ["--key", "a"], "holds Python objects"),
        ({"a": np.zeros((12, 2))}, ["--neighbors", "5"], "two distinct rows"),
        ({"a": np.eye(12)}, ["--neighbors", "12"], "use at most 11"),
        ({"a": np.eye(12), "ids": np.array(["p"] * 12)}, [], "'p' more than once"),
        ({"a": np.eye(12), "ids": np.arange(3)}, [], "12 points, but 3 ids"),
        ({"a": np.eye(12)}, ["--method", "magic"], "--method magic is not known; choose one of laplace"),
        ({"a": np.eye(12)}, ["--device", "teapot"], "--device teapot cannot be used"),
        ({"a": -np.eye(12)}, ["--metric", "precomputed", "--neighbors", "5"], "egative"),
    ],
)
def test_mistakes_in_features(
    small: Callable[..., tuple[Path, Path]], arrays: dict[str, np.ndarray], options: list[str], message: str
) -> None:
    x, y = small(**arrays)
    done = gll_fit(x, "--labels", y, *options)
    assert done.exit_code == 1
    assert message in flat(done)
    assert "Traceback" not in done.output


@pytest.mark.parametrize("sparse", [False, True])
def test_what_is_not_finite_is_counted_and_located(
    small: Callable[..., tuple[Path, Path]], tmp_path: Path, sparse: bool
) -> None:
    a = np.eye(12)
    a[4, 1], a[4, 2], a[9, 0] = np.nan, np.inf, -np.inf
    x, y = small(features=a)
    if sparse:
        scipy.sparse.save_npz(x, scipy.sparse.csc_matrix(a))
    done = gll_fit(x, "--labels", y)
    assert done.exit_code == 1
    assert (
        "3 entries that are NaN or infinite, in 2 of 12 rows: rows 4, 9 (the first is nan in row 4, column 1)"
        in flat(done)
    )


def test_damaged_files(small: Callable[..., tuple[Path, Path]], tmp_path: Path) -> None:
    x, y = small(features=np.random.default_rng(0).normal(size=(200, 5)))
    whole = x.read_bytes()
    wrong = bytearray(whole)
    wrong[len(whole) // 2] ^= 0xFF  # the checksum no longer fits
    np.save(tmp_path / "x.npy", np.eye(50))
    short = (tmp_path / "x.npy").read_bytes()[:1000]
    bad = scipy.sparse.csc_matrix(np.eye(3))
    bad.indices = bad.indices + 1000
    scipy.sparse.save_npz(tmp_path / "sparse.npz", bad)
    for data in (whole[: len(whole) // 2], bytes(wrong), short, (tmp_path / "sparse.npz").read_bytes()):
        x.write_bytes(data)
        done = gll_fit(x, "--labels", y)
        assert done.exit_code == 1
        assert "is cut off or damaged" in flat(done)
        assert "Traceback" not in done.output
    x.write_text("1,2,3")
    assert "is not an .npz or .npy file" in flat(gll_fit(x, "--labels", y))


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


# The page


class Page(HTMLParser):
    """Collects what a browser would see, and complains about tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.text, self.open, self.rows = "", [], []  # type: str, list[str], list[list[str]]
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data
        if "td" in self.open:
            self.rows[-1][-1] += data


def test_page_shows_what_was_found(digits: tuple[Path, Path], tmp_path: Path) -> None:
    done = gll_fit(
        digits[0], "--labels", digits[1], "--report", tmp_path / "r.html", "--out", tmp_path / "r.npz", "--calibrate"
    )
    assert done.exit_code == 0, done.output
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", text.partition("base64,")[0])
    assert [reference[:22] for reference in page.references] == ["data:image/png;base64,"]
    assert page.tags.count("section") == 7
    for title in ("What was run", "Classes", "What to label next", "The graph", "Picture", "Calibration", "reproduce"):
        assert title in page.text
    found = loaded(tmp_path / "r.npz")
    about = json.loads(str(found["about"]))
    for c in range(10):
        (row,) = [row for row in page.rows if row[0] == f"digit {c}"]
        assert row[1:3] == ["3", str((found["predictions"] == f"digit {c}").sum())]
    assert f"{about['temperature']:.3f}" in page.text
    assert about["command"] in page.text
    assert "All 600 points" in page.text
    bars = [int(n) for n in re.findall(r"neighbours: ([\d,]+) nodes", page.text)]
    assert sum(bars) == 600


def test_labels_are_escaped_everywhere(small: Callable[..., tuple[Path, Path]], tmp_path: Path) -> None:
    bad, worse = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>[red]\x1b[2J'
    ids = np.array([f"<b onclick=x>{i}" for i in range(12)])
    labels = 'index,label\n0,{}\n6,"{}"\n'.format(bad, worse.replace('"', '""'))
    x = np.random.default_rng(0).normal(size=(12, 2)) + np.repeat([[0.0], [8.0]], 6, 0)
    path, y = small(labels, features=x, ids=ids)
    done = gll_fit(
        path, "--labels", y, "--neighbors", 7, "--report", tmp_path / "<i>.html", "--out", tmp_path / "r.npz"
    )
    assert done.exit_code == 0, done.output
    page = Page((tmp_path / "<i>.html").read_text(encoding="utf-8"))
    assert page.tags.count("img") == 1
    assert not {"script", "b", "i"} & set(page.tags)
    assert bad in page.text
    assert "\x1b[2J" not in done.output
    assert "[red]" in done.output
    assert loaded(tmp_path / "r.npz")["classes"].tolist() == sorted([bad, worse])


def test_large_sets_are_sampled(digits: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gll.report, "DRAWN", 200)
    seen: list[Any] = []
    draw = gll.report._draw
    monkeypatch.setattr(gll.report, "_draw", lambda *a: (seen.append(a), draw(*a))[1])
    done = gll_fit(digits[0], "--labels", digits[1], "--report", tmp_path / "r.html", "--quiet")
    assert done.exit_code == 0, done.output
    place, code, known, _ = seen[0]
    assert len(place) == len(code) == 200
    assert known.sum() == 30  # no label is left out
    assert "A random sample of 200 of the 600 points" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_picture_is_the_principal_plane(digits: tuple[Path, Path]) -> None:
    outcome = gll.fit.fit(Request(*digits))
    rows = np.arange(len(X))
    place, how = gll.report.positions(outcome.model, X, rows, "euclidean")
    centred = X - X.mean(0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(place), np.abs(u[:, :2] * s[:2]), rtol=1e-3, atol=1e-2)
    assert f"{(s[:2] ** 2).sum() / (s**2).sum():.0%} of the variance" in how


def similarities(tmp_path: Path, w: scipy.sparse.csr_matrix, other: int) -> gll.fit.Outcome:
    scipy.sparse.save_npz(tmp_path / "w.npz", w)
    (tmp_path / "y.csv").write_text(f"index,label\n0,a\n{other},b\n")
    return gll.fit.fit(Request(tmp_path / "w.npz", tmp_path / "y.csv", metric="precomputed", method="laplace"))


def test_similarities_are_drawn_by_their_eigenvectors(tmp_path: Path) -> None:
    n = 60
    ring = scipy.sparse.diags([1.0, 1.0, 1.0, 1.0], [1, -1, n - 1, 1 - n], shape=(n, n)).tocsr()
    outcome = similarities(tmp_path, ring, n // 2)
    assert "placed by two eigenvectors" in gll.report.page(outcome)
    place, _ = gll.report.positions(outcome.model, None, np.arange(n), "precomputed")
    # The eigenvectors of a ring that follow the constant are its sine and cosine: the picture is a circle.
    angle = 2 * np.pi * np.arange(n) / n
    basis = np.column_stack([np.cos(angle), np.sin(angle)])
    np.testing.assert_allclose(place, basis @ np.linalg.lstsq(basis, place, rcond=None)[0], atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(place, axis=1), np.linalg.norm(place[0]), rtol=1e-9)


def test_eigenvectors_of_large_graphs_are_near(tmp_path: Path) -> None:
    w = GraphLearningClassifier("laplace").fit(X, TRUTH).graph_.to_scipy().tocsr()
    assert w.shape[0] > gll.report.SMALL
    outcome = similarities(tmp_path, w, 1)
    place, _ = gll.report.positions(outcome.model, None, np.arange(len(X)), "precomputed")
    degree = np.asarray(w.sum(1)).ravel()
    value = np.linalg.eigvalsh(w.toarray() / np.sqrt(np.outer(degree, degree)))
    quotient = [(v @ (w @ v)) / (v @ (degree * v)) for v in place.T]
    np.testing.assert_allclose(quotient, value[[-2, -3]], atol=1e-4)


def test_many_classes_and_one_dimension(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(40.0)[:, None])
    np.save(tmp_path / "y.npy", np.where(np.arange(40) % 2, -1, np.arange(40)))
    done = gll_fit(
        tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--report", tmp_path / "r.html", "--neighbors", 3
    )
    assert done.exit_code == 0, done.output
    assert "every one of the 20 labels is a class of its own" in flat(done)
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "10 other classes" in page.text
    assert "along their one dimension" in page.text


def test_everything_labelled_is_fine(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=X[:50], y=TRUTH[:50])
    done = gll_fit(tmp_path / "x.npz", "--report", tmp_path / "r.html", "--calibrate", "--method", "laplace")
    assert done.exit_code == 0, done.output
    assert "what to label next" not in done.output
    assert "Every point has a label." in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_histogram_counts_everything() -> None:
    count = {0: 3, 5: 7, 99: 2}
    svg = gll.report.histogram(count)
    assert sum(int(n) for n in re.findall(r": (\d+) nodes</title>", svg)) == 12
    assert svg.count("<rect") == 3
