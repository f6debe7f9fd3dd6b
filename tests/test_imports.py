"""What is imported when: the command line answers what needs no tensors without PyTorch; `gll` has all its names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gll
from gll import public

ROOT = Path(__file__).parent.parent
QUICK = """
import sys
from typer.testing import CliRunner
from gll.cli import app
for words, code in (
    ["--version", 0], ["--help", 0], ["train --help", 0], ["train --keys", 0], ["data --help", 0], ["train --foo", 2],
    ["train nowhere.toml", 1], ["train configs/digits-gll.toml train.learning_rate=1", 1], ["pretrain nowhere.toml", 1],
    ["reproduce --help", 0], ["reproduce cifar", 1], ["reproduce table 11", 1],
):
    found = CliRunner().invoke(app, words.split())
    assert found.exit_code == code, (words, found.output)
    heavy = {"torch", "scipy", "sklearn", "numpy", "matplotlib", "PIL"} & set(sys.modules)
    assert not heavy, (words, heavy)
print("quick")
"""


def test_help_and_mistakes_do_not_wait_for_pytorch() -> None:
    done = subprocess.run([sys.executable, "-c", QUICK], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "quick\n", done.stderr[-2000:]


def test_public_names_come_when_they_are_asked_for() -> None:
    assert gll.__all__ is public.__all__
    assert set(gll.__all__) <= set(dir(gll))
    for name in public.__all__:
        assert getattr(gll, name) is getattr(public, name)
    scope: dict[str, object] = {}
    exec("from gll import *", scope)
    assert set(public.__all__) <= set(scope)


def test_modules_of_the_package_are_found_and_nothing_else() -> None:
    assert gll.neighbors.Exact is gll.Exact
    for name in ("nonsense", "__wrapped__", "_private", "a.b", "nn.heads", "neighbors.x", ""):
        with pytest.raises(AttributeError, match=f"module 'gll' has no attribute '{name}'"):
            getattr(gll, name)
