"""What `gll fit` reads: all forms of features and labels agree, and every mistake gets a sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from gll.feature_files import read_features
from gll.input_files import InputError
from gll.label_files import read_labels
from gll.prior_option import read_prior
from tests.fit_cases import ROWS, TRUTH, X, flat, gll_fit, loaded, small_files


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    return small_files(tmp_path)


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
