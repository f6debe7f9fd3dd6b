"""The documentation: every public name is documented and shown, links resolve, and the site needs no network.

The examples on its pages are run by `make doctest`, the build itself by `make docs`.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import gll

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))

# Public classes and functions that no tensor enters, so that there is nothing to say about gradients.
NO_TENSORS = {
    "AMG", "AbstractEquation", "AbstractLinearSolver", "AbstractNeighborSearch", "AbstractPreconditioner", "Auto",
    "Cholesky", "ConjugateGradient", "Exact", "Faiss", "Metric", "Newton", "Normalization", "RESULT", "SolveError",
    "Symmetrize", "Unreached", "UnreachedWarning", "RecallWarning", "ClassPriorWarning",
}  # fmt: skip


def load(path: Path) -> ModuleType:
    pytest.importorskip("mkdocs")  # its log is imported there
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    return load(DOCS / "hooks.py")


def test_every_public_name_is_documented_and_shown(hooks: ModuleType) -> None:
    assert hooks.undocumented((DOCS / "api.md").read_text()) == []


def test_the_check_finds_a_missing_name(hooks: ModuleType) -> None:
    page = (DOCS / "api.md").read_text().replace("::: gll.Poisson\n", "")
    assert hooks.undocumented(page) == ["gll.Poisson is not in api.md"]


def test_the_check_finds_a_missing_docstring(hooks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gll.Poisson, "__doc__", None)
    assert hooks.undocumented((DOCS / "api.md").read_text()) == ["gll.Poisson has no docstring"]


def test_docstrings_say_what_is_differentiable(hooks: ModuleType) -> None:
    silent = [
        path
        for path, value in hooks.public_names().items()
        if not inspect.ismodule(value)
        and path.rpartition(".")[2] not in NO_TENSORS
        and "Differentiable in:" not in hooks.own_docstring(value)
    ]
    assert silent == []


def test_exemptions_are_public_names(hooks: ModuleType) -> None:
    assert {path.rpartition(".")[2] for path in hooks.public_names()} >= NO_TENSORS


def anchors(page: Path) -> set[str]:
    """What links to a page may end with: its headings in lower case with dashes, and names that it gives to a place.

    A name is `<a id="name"></a>` above a heading, which the site and a repository both know; `{ #name }` behind it is
    known to the site alone.
    """
    text = page.read_text()
    assert not re.search(r"^#+ .*\{ ?#", text, re.MULTILINE), f"{page.name}: write <a id=...></a> above the heading"
    words = [
        re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    ]
    return {re.sub(r"[\s-]+", "-", heading) for heading in words} | set(
        re.findall(r'^<a id="([\w-]+)"></a>$', text, re.MULTILINE)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.is_file(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(other), f"{page.name} links to {target}, but {other.name} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_are_run(page: Path) -> None:
    """Python appears as a session with prompts, which is run, and ends with an empty line, which doctest needs."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    for language, body in blocks:
        assert language in {"pycon", "sh", "text"}, f"{page.name}: a block of {language or 'no language'} is not run"
        if language == "pycon":
            assert body.startswith(">>> "), f"{page.name}: {body}"
            assert body.endswith("\n\n"), f"{page.name}: no empty line before the end of\n{body}"


def test_pages_are_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in PAGES if not re.search(rf": {page.name}$", config, re.MULTILINE)] == []


def test_the_paper_has_a_section_of_its_own() -> None:
    """Whoever wants to know what became of its claims finds it in one place, and from the first page."""
    config = (ROOT / "mkdocs.yml").read_text()
    section = re.search(r"^  - The paper:\n((?:      - .*\n)+)", config, re.MULTILINE)
    assert section is not None
    pages = re.findall(r": ([\w-]+\.md)$", section[1], re.MULTILINE)
    found = ["what-we-found.md", "claim-by-claim.md", "reproduce.md", "robustness-readings.md", "decisions.md"]
    assert pages == found
    table = (DOCS / "index.md").read_text().partition("## Where to go")[2]
    assert {"what-we-found.md", "reproduce.md"} <= set(re.findall(r"\]\(([\w-]+\.md)\) \|$", table, re.MULTILINE))


def test_figures_are_small() -> None:
    figures = sorted((DOCS / "figures").glob("*.png"))
    assert figures
    assert all(figure.stat().st_size < 150_000 for figure in figures)


def test_docstrings_are_read_as_meant() -> None:
    pytest.importorskip("griffe")
    rewrite = load(DOCS / "docstrings.py").rewrite
    text = "One.\n\nArgs:\n    a, b: two\n        lines.\n    c: three.\n\n>>> f(1)\n1\n\nDifferentiable in: `a`."
    assert rewrite(text) == (
        "One.\n\nArgs:\n    a: two\n        lines.\n    b: two\n        lines.\n    c: three.\n\n"
        "```pycon\n>>> f(1)\n1\n```\n\n**Differentiable in:** `a`."
    )


def test_site_builds_and_needs_no_network(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    loads = re.compile(r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?https?:|<link[^>]*stylesheet[^>]*href=\"?https?:")
    for page in tmp_path.glob("*.html"):
        assert not loads.search(page.read_text()), f"{page.name} loads something from the network"
    for sheet in (tmp_path / "assets").glob("**/*.css"):
        assert not re.search(r"url\(\"?https?:|@import", sheet.read_text()), f"{sheet.name} loads from the network"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_headings_stand_apart(page: Path) -> None:
    """Below a table a heading without an empty line before it would be one more row, and its section lost."""
    code, before = False, ""
    for line in page.read_text(encoding="utf-8").splitlines():
        code ^= line.startswith("```")
        assert code or not line.startswith("#") or not before, line
        before = line.strip() if not line.startswith("#") else ""
