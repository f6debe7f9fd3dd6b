"""What was asked for and has no effect, and what was decided without being asked for, in words.

Who gives an option believes that it does something; and who gives none should know what it was taken to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from gll.attacks.norms import LInf
from gll.attacks.sets import AIMED, Recipe
from gll.attacks.target import Request, Target

CW = {"cw-paper", "cw"}
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
        f"{option} has no effect without {' or '.join(users[:3])}{' or ...' if len(users) > 3 else ''} in --attacks"
        for key, (option, users) in USED_BY.items()
        if key in given and not set(users) & set(names)
    ]
    if set(names) <= CW:
        known = {"eps": "--eps", "norm": f"--norm {request.norm}"}
        unused = [option for key, option in known.items() if key in given]
        why = "has no effect on attacks: CW knows no ε; the worst case and the checks use it"
        said += [f"{option} {why}" for option in unused]
    if not target.has_graph and not target.followed():  # a graph that is followed is made as these say
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


def chosen(target: Target, recipe: Recipe, names: Sequence[str]) -> list[str]:
    """What the command has decided by itself: whose gradient is not followed, an ε in L2, and steps that are none."""
    said = []
    others = [name for name in names if name not in AIMED]
    if recipe.aim is not None and others:
        said.append(
            f"--gradient-of {target.request.gradient_of} is not followed by {', '.join(others)}: these see the model "
            "under attack in a way of their own, or another model, and count in the worst case all the same"
        )
    if not target.request.eps and not isinstance(target.measure.norm, LInf) and not set(names) <= CW:
        said.append(
            f"every ε in L2 is ours, since the paper has none: {target.table_eps:.4g} is the length of a change by the "
            "paper's ε in every pixel"
        )
    few = [radius for radius in recipe.curve if not radius.has_steps] if "ifgsm" in names else []
    if few:
        every = ", ".join(f"{radius.eps:.4g}" for radius in few)
        said.append(
            f"ifgsm was left out at ε = {every}: it makes 5 ε/α steps, rounded down, which is none with the paper's α, "
            f"{few[0].alpha:.4g} here"
        )
    return said


def _given(request: Request) -> set[str]:
    defaults: dict[str, Any] = {f.name: f.default for f in fields(Request) if f.default is not MISSING}
    return {name for name, default in defaults.items() if getattr(request, name) != default}
