"""The page that `gll fit --report` writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import gll
import gll.fit
import gll.report
from gll import GraphLearningClassifier
from gll.fit import Request
from tests.fit_cases import TRUTH, X, digits_files, flat, gll_fit, loaded, small_files


@pytest.fixture
def digits(tmp_path: Path) -> tuple[Path, Path]:
    return digits_files(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    return small_files(tmp_path)


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
