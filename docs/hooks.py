"""Parts of the documentation that are made when it is built, and a check that no public name is missing.

<!-- table: results -->     every verdict of a solve, with its message
<!-- table: files -->       the core files in reading order, with their length
"""

import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.plugins import get_plugin_logger

log = get_plugin_logger("gll")
ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # a checkout that is not installed

PUBLIC_MODULES = ("gll", "gll.solvers", "gll.nn", "gll.reweight")

READING_ORDER = {
    "gll/graph.py": "a graph is integers (`Topology`) plus numbers (`weight`); gradient, divergence, Laplacian",
    "gll/neighbors.py": "which points are near; why one matrix product is not enough",
    "gll/similarity.py": "from distances to weights; the first of two hand-written derivatives",
    "gll/labels.py": "which nodes are labelled, and with what",
    "gll/equations.py": "one equation with a flux, a reaction and a source; the rest are instances of it",
    "gll/operators.py": "the linearised equation, the only matrix there is",
    "gll/solution.py": "verdicts: how a solve fails, and says so",
    "gll/solvers/base.py": "`init` once, `compute` often; the residual is checked by one function for all solvers",
    "gll/solvers/cholesky.py": "factor once, solve forward and adjoint",
    "gll/solvers/cg.py": "all columns at once, each stopping by itself",
    "gll/problem.py": "an equation on a graph with labels: the weak form, its residual, its linearisation",
    "gll/implicit.py": "`solve`: find u, judge it, attach the second hand-written derivative",
}


def public_names() -> dict[str, Any]:
    """Every public name as its dotted path, with the object."""
    found = {}
    for path in PUBLIC_MODULES:
        module = importlib.import_module(path)
        names = getattr(module, "__all__", None)
        if names is None:  # a module of plain functions
            names = [
                n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == path and n[0] != "_"
            ]
        found |= {f"{path}.{name}": getattr(module, name) for name in names}
    return found


def undocumented(api_page: str) -> list[str]:
    """Public names without a docstring, or that the page of the API does not show."""
    shown = [resolve(path) for path in re.findall(r"^::: (\S+)", api_page, re.MULTILINE)]
    problems = []
    for path, value in public_names().items():
        if not own_docstring(value):
            problems.append(f"{path} has no docstring")
        if not inspect.ismodule(value) and not any(value is other for other in shown):
            problems.append(f"{path} is not in api.md")
    return problems


def own_docstring(value: Any) -> str:
    """The docstring, unless a dataclass made it up (`Name(field: type)`) or it is a base class's."""
    text = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    return "" if text is None or text.startswith(f"{getattr(value, '__name__', '')}(") else text


def resolve(path: str) -> Any:
    """The object that a dotted path names."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def table(name: str) -> str:
    if name == "results":
        from gll import RESULT

        rows = [f"| `{result.name}` | {result.value} |" for result in RESULT]
        return "\n".join(["| verdict | message |", "|---|---|", *rows])
    if name == "files":
        rows = [
            f"| {number} | `{path}` | {idea} | {len((ROOT / path).read_text().splitlines())} |"
            for number, (path, idea) in enumerate(READING_ORDER.items(), 1)
        ]
        return "\n".join(["| | file | its idea | lines |", "|---|---|---|--:|", *rows])
    raise ValueError(f"unknown table {name!r}: expected 'results' or 'files'")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri == "api.md":
        for problem in undocumented(markdown):
            log.warning(problem)  # --strict turns warnings into failure
    return re.sub(r"<!-- table: (\w+) -->", lambda match: table(match[1]), markdown)
