"""The tables that readers see are those that the committed results give."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def tables_module() -> object:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tables_are_up_to_date() -> None:
    module = tables_module()
    made = module.tables()  # type: ignore[attr-defined]
    for page in module.PAGES:  # type: ignore[attr-defined]
        text = page.read_text()
        assert module.rewritten(text, made) == text, f"{page.name}: run python benchmarks/tables.py"  # type: ignore[attr-defined]
        assert re.search(r"<!-- table", text), f"{page.name} has no table"


def test_pictures_of_the_readme_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target


def test_the_core_stays_small() -> None:
    solvers = [f"solvers/{name}.py" for name in ("base", "cholesky", "cg")]
    core = ["graph.py", "neighbors.py", "similarity.py", "equations.py", "operators.py", "solution.py", "implicit.py"]
    lines = sum(len((ROOT / "gll" / name).read_text().splitlines()) for name in (*core, *solvers))
    assert lines <= 1700, f"the ten core files have {lines} lines"
