"""The page of an evaluation in Markdown, made from its summary: tables, and what has to be known to read them.

No figure stands without the graph it was measured in, and the checks say where they have looked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gll.attacks.footnotes import exceeded, footnotes
from gll.attacks.graphs import is_joint
from gll.attacks.parts import parts_grid
from gll.attacks.seen import graphs_as_list
from gll.attacks.tables import (
    NORMS,
    Grid,
    attacks_grid,
    checks_grid,
    cw_grid,
    graphs_of,
    in_earnest,
    judged,
    norms,
    paper_grid,
    percent,
    poison_grid,
)
from gll.attacks.threat import ThreatModel
from gll.words import counted

AUTOATTACK_MOVES = (
    "AutoAttack moves no image that it does not fool, nor one that is wrong without it: these count as 0 in its means."
)


def report(summary: Mapping[str, Any]) -> str:
    """All of it as a page in Markdown."""
    run = summary["run"]
    lines = [f"# Attacks on {run['name']}", "", f"{summary['samples']:,} samples of {run['data']}; {run['about']}.", ""]
    lines += preface(summary)
    for grid in error_grids(summary):
        lines += ["", f"{grid.title}:", "", grid.markdown()]
    lines += ["", *(f"- {note}".replace("- *", "- \\*") for note in footnotes(summary))]
    lines += ["", "## Checks", "", *about_checks(summary), "", checks_grid(summary).markdown()]
    lines += ["", "## Every attack", "", attacks_grid(summary).markdown()]
    cells = [cell for group in summary["groups"] for cell in group["attacks"]]
    if any(cell["zero_gradients"] is not None for cell in cells):
        lines += ["", "Zero gradients: of the samples that are classified rightly, those whose first gradient is zero."]
    if any(map(_rounded, cells)):
        lines += ["They are counted as the model is used. A graph in float32 has rounding where there is no gradient,"]
        lines += ["so its share may be larger than the figure; the check looks in float64."]
    if any("autoattack" in cell["attack"] for cell in cells):
        lines += ["", AUTOATTACK_MOVES]
    parts = parts_grid(summary)
    if parts.rows:
        lines += ["", "## Parts of AutoAttack", "", "The error in percent after each part, which goes on with what the"]
        lines += ["parts before have left; a dash: it has no such part.", "", parts.markdown()]
    if summary.get("poison"):
        draws = summary["poison"][0]["draws"]
        lines += ["", "## Wrong labels in the base", "", poison_grid(summary).markdown(), ""]
        lines += [f"Images are left as they are. At random: the mean and the largest of {draws} draws."]
    threats = [ThreatModel.from_dict(cell["threat"]) for cell in cells if cell["threat"] is not None]
    followed = [f"- {summary['followed']}"] if summary.get("followed") else []
    lines += ["", "## What is in the graph", "", *([*graphs_as_list(threats), *followed] or ["No graph."])]
    if summary["notes"]:
        lines += ["", "## Notes", "", *(f"- {note}" for note in summary["notes"])]
    return "\n".join(lines) + "\n"


def error_grids(summary: Mapping[str, Any]) -> list[Grid]:
    """Errors by ε, for every norm, and by c where there is CW: those that have rows."""
    return [grid for grid in (*(paper_grid(summary, norm) for norm in norms(summary)), cw_grid(summary)) if grid.rows]


def preface(summary: Mapping[str, Any]) -> list[str]:
    """What has to be known before the first table: in which graph it was measured, and how that differs from a test."""
    lines = []
    graphs = graphs_of(summary)
    if len(graphs) == 1:
        (graph,) = graphs
        depends = "the base, and holds for this one" if _alone(graph) else "both numbers, and holds for these"
        lines += [f"In the graph: {graph}. The error depends on {depends}."]
    elif graphs:
        lines += ["The columns come from different graphs, and an error depends on what is in the graph:"]
        lines += ["", *(f"- {', '.join(columns)}: {graph}" for graph, columns in graphs.items()), ""]
    if any(is_joint(group) for group in summary["groups"]) and not all(map(_alone, graphs)):
        lines += ["For the error of one image by itself quote what `--queries alone` gives."]
    group = judged(summary)
    worst = [] if group is None else [(worst["eps"], worst["norm"]) for worst in group["worst"]]
    if worst and not any(in_earnest(summary, eps, norm) for eps, norm in worst):
        lines += ["The worst case is over the model's own gradients alone; `--attacks strong --resume` adds others."]
    test = summary.get("test")
    if test is not None:
        lines += [f"The run's own test error is {percent(test['error'])} % ({test['how']}){test['why']}."]
    return lines


def about_checks(summary: Mapping[str, Any]) -> list[str]:
    """Where the checks have looked."""
    at = summary.get("checks_at")
    if at is None:
        return []
    graph = f", {at['graph']}" if at["graph"] else ""
    also = " and stand-ins for it" if at.get("stand_ins") else ""
    unit = "of the range" if at.get("norm", "LInf") == "LInf" else f"in {NORMS[at['norm']]}"
    by = " (through its graph, not that of the layer it was trained by)" if at.get("through_graph") else ""
    where = f"at ε = {at['eps']:.4g} {unit}, on {counted(at['samples'], 'sample')}{graph}"
    return [
        f"The checks' own attacks follow the model's own gradient{by}{also}, {where}.",
        "The checks also look at what the attacks of the tables have found.",
        "A line names the strongest attacks that it compares, the checks' own as such, and if made elsewhere, where.",
        "The checks' own attacks are short, and are not in the worst case.",
        *exceeded(summary),
    ]


def _rounded(cell: Mapping[str, Any]) -> bool:
    """Whether a gradient of zero may have been taken for one: that of a graph in float32."""
    threat = cell["threat"]
    return threat is not None and threat["dtype"] == "float32" and cell["zero_gradients"] is not None


def _alone(graph: str) -> bool:
    return graph.startswith("each query")
