"""The commit that a record names."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gll.commit import commit_of
from gll.reproduce.work import WRITTEN

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
OWN = ("experiments/moons/results.json", "experiments/moons/arrays/a-1.npz", "docs/figures/reproduce-moons.png")
OTHERS = ("code.py", "experiments/moons/config.toml", "experiments/results.json", "gll/experiments/moons/results.json")


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("GLL_COMMIT", raising=False)
    git(tmp_path, "init", "-q")
    for name in (*OWN, *OTHERS, "gll/a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("as it was")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_clean_checkout_has_its_commit(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")[:12]
    assert commit_of(checkout / "gll") == commit_of(checkout / "gll", WRITTEN) == head
    (checkout / "new").write_text("of which git does not know")
    assert commit_of(checkout / "gll") == head
    git(checkout, "tag", "-a", "v1", "-m", "v1")
    assert commit_of(checkout / "gll") == git(checkout, "describe", "--always", "--dirty", "--abbrev=12") == "v1"


def test_what_a_command_writes_itself_makes_nothing_dirty(checkout: Path) -> None:
    head = commit_of(checkout / "gll")
    for name in OWN:
        (checkout / name).write_text("written again")
        assert commit_of(checkout / "gll", WRITTEN) == head, name
        assert commit_of(checkout / "gll") == f"{head}-dirty"
    git(checkout, "add", ".")
    assert commit_of(checkout / "gll", WRITTEN) == head, "nor where it is staged"
    (checkout / OWN[0]).unlink()
    assert commit_of(checkout / "gll", WRITTEN) == head, "nor where it is gone"


@pytest.mark.parametrize("name", [*OTHERS, "gll/a.py"])
def test_any_other_change_is_dirty(checkout: Path, name: str) -> None:
    head = commit_of(checkout / "gll")
    (checkout / OWN[0]).write_text("written again")
    (checkout / name).write_text("changed")
    assert commit_of(checkout / "gll", WRITTEN) == f"{head}-dirty"
    (checkout / name).unlink()
    assert commit_of(checkout / "gll", WRITTEN) == f"{head}-dirty", "gone"


def test_what_is_given_counts_and_nothing_is_made_up(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(outside.parent))
    assert commit_of(outside) == "unknown"
    monkeypatch.setenv("GLL_COMMIT", "abc")
    assert commit_of(outside) == commit_of(checkout) == "abc"
    monkeypatch.delenv("GLL_COMMIT")
    monkeypatch.setenv("PATH", str(outside))
    assert commit_of(checkout) == "unknown"
