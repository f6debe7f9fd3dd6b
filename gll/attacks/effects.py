"""What was asked for and has no effect, in words: who gives an option believes that it does something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from gll.attacks.target import Request, Target

STEPS = (
    "pgd", "pgd-margin", "pgd-dlr", "pgd-targets", "fixed", "every-class", "features", "surrogate", "probe", "transfer",
)  # fmt: skip
USED_BY = {
    "transfer": ("--transfer", ("transfer",)),
    "c": ("--c", ("cw-paper",)),
    "steps": ("--steps", STEPS),
    "restarts": ("--restarts", tuple(name for name in STEPS if name != "features")),
    "queries": ("--square-queries", ("square",)),
}
"""For options that some attacks look at: their name, and these attacks."""


def without_effect(request: Request, target: Target, names: Sequence[str]) -> list[str]:
    """Options that differ from what they are without being given, and that change nothing here.

    Args:
        request: what was asked for.
        target: what is attacked.
        names: the attacks that are made.
    """
    given = _given(request)
    said = [
        f"{option} has no effect: it is for {', '.join(users[:4])}{', ...' if len(users) > 4 else ''}"
        for key, (option, users) in USED_BY.items()
        if key in given and not set(users) & set(names)
    ]
    if "eps" in given and set(names) <= {"cw-paper", "cw"}:
        said.append("--eps has no effect on attacks: CW knows no ε; the worst case and the checks use it")
    if not target.has_graph:
        graph = {"inductive": "--inductive", "base": "--base"}
        graph |= {} if request.inductive else {"joint": "--queries alone"}
        unused = [option for key, option in graph.items() if key in given]
        said += [f"{option} has no effect: the model under attack has no graph" for option in unused]
    elif request.base > target.labelled:
        said.append(f"--base {request.base:,} is more than the run has labels: the base has {target.labelled:,}")
    if request.samples > len(target.images):
        said.append(f"--samples {request.samples:,} is more than there are: {len(target.images):,} are attacked")
    if any(run.directory.resolve() == target.run.directory.resolve() for run in target.others):
        said.append("--transfer names the run under attack itself: what is made on it is no transferred attack")
    return said


def _given(request: Request) -> set[str]:
    defaults: dict[str, Any] = {f.name: f.default for f in fields(Request) if f.default is not MISSING}
    return {name for name, default in defaults.items() if getattr(request, name) != default}
