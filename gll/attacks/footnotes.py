"""What the marks and columns of the first tables mean, and what their figures do not say by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gll.attacks.graphs import is_joint
from gll.attacks.store import Kind
from gll.attacks.tables import (
    EVERY_CLASS,
    MORE,
    NORMS,
    Grid,
    cw_grid,
    in_earnest,
    judged,
    near_ball,
    norms,
    paper_grid,
    percent,
)
from gll.words import counted

WORST = (
    "The worst case is the per-sample worst over all attacks, as far as they stay inside the ball; how many were made "
    "at that ε is in the last column."
)
SHARED = (
    "Queries share a graph: the worst case takes each sample from another batch, which no attacker can send at once"
)
AUTOATTACK = (
    "AutoAttack: its standard form, by the model's own gradient; beside it, by its gradient parts with every class in "
    "sight, since that gradient is often gone. Quote the larger of the two."
)


def footnotes(summary: Mapping[str, Any]) -> list[str]:
    """As far as there is something to explain, a line each."""
    lines = []
    grids = (paper_grid(summary, "LInf"), cw_grid(summary))
    marked = [name for name, grid in zip("εc", grids, strict=True) if _marked(grid)]
    if marked:
        lines += [f"* the {' and the '.join(marked)} of the paper's table."]
    group = judged(summary)
    if group is not None and group["worst"]:
        lines += [WORST, *_no_single_batch(group), *_asked(group)]
    columns = {column for norm in norms(summary) for column in paper_grid(summary, norm).head}
    if columns >= {EVERY_CLASS, "AutoAttack"}:
        lines += [AUTOATTACK]
    if exceeded(summary):
        lines += [f"{MORE.strip()} too low: the attacks of the checks fool more of the same samples, see below."]
    return lines


def _no_single_batch(group: Mapping[str, Any]) -> list[str]:
    """Where samples share a graph: that no attacker reaches the worst case at once, and what a single attack reaches.

    An image fools the model beside the images that it was attacked with. The worst case takes each from another attack.
    """
    best, differs = [], False
    for worst in group["worst"] if is_joint(group) else ():
        errors = [cell["error"] for cell in near_ball(group, worst["eps"], worst["norm"])]
        if errors:
            best.append(f"{percent(max(errors))} % at ε = {worst['eps']:.4g}{_other_norm(worst['norm'])}")
            differs |= worst["error"] > max(errors)
    if not differs:
        return []
    return [f"{SHARED}; the best single attack fools {', '.join(best)}."]


def _asked(group: Mapping[str, Any]) -> list[str]:
    """Which attacks by another model's gradient have asked the model under attack as well."""
    transferred = [cell["settings"] for cell in group["attacks"] if cell["kind"] == Kind.TRANSFER.value]
    asking = list(dict.fromkeys(settings["source"] for settings in transferred if settings.get("asks")))
    if not asking:
        return []
    others = any(not settings.get("asks") for settings in transferred)
    also = "also ask the model under attack for its answers"
    sources = " and ".join(asking)
    if others:
        return [f"transfer: attacks from {sources} {also}."]
    return [f"transfer: from no other run (`--transfer RUN` adds that), but from {sources}, by attacks that {also}."]


def exceeded(summary: Mapping[str, Any]) -> list[str]:
    """By how much the checks' own attacks exceed the worst cases of the tables, a line for each."""
    group, lines = judged(summary), []
    if group is None:
        return []
    for worst in (w for w in group["worst"] if "with_checks" in w):
        more, ball = worst["with_checks"], f"ε = {worst['eps']:.4g} ({NORMS[worst['norm']]})"
        # These options act on attacks with restarts, none of which is the paper's, and none a black box.
        steps = any("restarts" in cell["settings"] for cell in near_ball(group, worst["eps"], worst["norm"]))
        earnest = steps and in_earnest(summary, worst["eps"], worst["norm"])
        try_next = "more `--steps` and `--restarts`" if earnest else "`--attacks strong --resume`"
        lines.append(
            f"{MORE.strip()} At {ball} they fool more than the worst case says: of the first "
            f"{counted(more['samples'], 'sample')} {percent(more['error'])} % with them, {percent(more['table'])} % "
            f"without; try {try_next}."
        )
    return lines


def _marked(grid: Grid) -> bool:
    return any(row[0].endswith("*") for row in grid.rows)


def _other_norm(norm: str) -> str:
    return "" if norm == "LInf" else f" ({NORMS[norm]})"
