"""Tables of an evaluation, made from its summary (`summary.json`): the paper's, all attacks, the checks.

The first has the paper's columns (natural, FGSM, IFGSM, CW) and ours beside them: the per-sample worst over all attacks
inside the ball, attacks by the gradient of another model, and AutoAttack as it comes; of one run also what AutoAttack
finds with every class in sight. Summaries hold figures only, so that they can be committed and tables in the
documentation are made from them again. All errors are in percent. An ε is that of one norm, by default the one in which
the evaluation was asked for: in a folder of both, those of the other are in a table of their own.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

from rich.table import Table
from rich.text import Text

from gll.attacks.balls import Ball
from gll.attacks.evaluate import describe
from gll.attacks.graphs import as_in_the_paper, graph_of
from gll.attacks.kinds import sees_otherwise
from gll.words import counted

COLUMNS = ("natural", "FGSM", "IFGSM", "CW", "worst case", "transfer", "AutoAttack")
BY_EPS = tuple(column for column in COLUMNS if column != "CW")
EVERY_CLASS = "AutoAttack, every class"  # in tables of one run
NONE = "–"
NORMS = {"LInf": "L∞", "L2": "L2"}
MORE = " †"  # behind a worst case that the checks' own attacks exceed


@final
@dataclass(frozen=True)
class Grid:
    """Rows of text under a head.

    >>> print(Grid("errors", ("model", "error"), (("GLL", "1.00"),), left=1).markdown())
    | model | error |
    |---|---:|
    | GLL | 1.00 |
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1

    def without_empty(self) -> Grid:
        """The same without columns that have nothing but dashes.

        >>> Grid("", ("model", "FGSM", "PGD"), (("GLL", "–", "1.00"), ("MLP", "–", "–"))).without_empty().head
        ('model', 'PGD')
        """
        kept = [place for place in range(len(self.head)) if any(row[place] != NONE for row in self.rows)]
        head, *rows = (tuple(line[place] for place in kept) for line in (self.head, *self.rows))
        return replace(self, head=head, rows=tuple(rows)) if self.rows else self

    def rich(self) -> Table:
        """For a terminal."""
        table = Table(title=self.title)
        for place, name in enumerate(self.head):
            table.add_column(Text(name), justify="left" if place < self.left else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def markdown(self) -> str:
        """For a page; without the title."""
        lines = [self.head, *self.rows]
        text = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
        marks = "|" + "".join("---|" if place < self.left else "---:|" for place in range(len(self.head)))
        return "\n".join([text[0], marks, *text[1:]])


@final
@dataclass(frozen=True)
class Figure:
    """An error, and the graph in which it was measured.

    Args:
        error: a share; None where there is no such attack.
        graph: in words; empty for a model without a graph.
    """

    error: float | None = None
    graph: str = ""


def figures_at(summary: Mapping[str, Any], eps: float, norm: str | None = None) -> dict[str, Figure]:
    """The figures of the paper's table at one ε, each with its graph.

    One rule for all: the paper's columns are taken where queries are joint and the base is largest, of the groups that
    have that attack; `natural` from the group of FGSM; what is ours from the group with the most kinds of attacks.

    Args:
        summary: of an evaluation.
        eps: in pixel units.
        norm: how it is measured, "LInf" or "L2"; None: as in the evaluation.
    """
    norm = norm or norm_of(summary)
    found = dict.fromkeys(COLUMNS, Figure())
    groups = as_in_the_paper(summary)
    for column, name in (("CW", "cw-paper"), ("IFGSM", "ifgsm"), ("FGSM", "fgsm")):
        # Where the gradient of another head was asked for, the paper's attacks are transferred ones.
        for group, cell in ((g, c) for g in groups for c in g["attacks"] if plain_name(c) == name):
            if cell["settings"].get("c") == summary["table_c"] if column == "CW" else _near(_eps(cell, norm), eps):
                found[column] = Figure(cell["error"], graph_of(group))
                found["natural"] = Figure(cell["natural"], graph_of(group))
                break
    ours_in, worst = judged(summary), worst_at(summary, eps, norm)
    if ours_in is not None and found["natural"].error is None:
        found["natural"] = Figure(ours_in["attacks"][0]["natural"], graph_of(ours_in))
    if ours_in is not None and worst is not None:
        ours = (worst["error"], worst["by_kind"].get("transfer"), _autoattack(ours_in, eps, norm))
        found |= {column: Figure(error, graph_of(ours_in)) for column, error in zip(COLUMNS[-3:], ours, strict=True)}
    return found


def _autoattack(group: Mapping[str, Any], eps: float, norm: str) -> float | None:
    """The error of standard AutoAttack, on a graph with each sample apart; its ball is a cube inside that of ε."""
    found = [c for c in near_ball(group, eps, norm) if c["attack"].removesuffix(" apart") == "autoattack"]
    return found[0]["error"] if found else None


def _autoattack_seeing(group: Mapping[str, Any], eps: float, norm: str) -> float | None:
    """The error of AutoAttack with every class in sight, which the standard form, blind to some, may be far below."""
    names = ("autoattack", " with every class")
    found = [c["error"] for c in near_ball(group, eps, norm) if all(name in c["attack"] for name in names)]
    return max(found, default=None)


def near_ball(group: Mapping[str, Any], eps: float, norm: str) -> list[Mapping[str, Any]]:
    """The attacks in a ball; where channels have units of their own, also in the largest cube inside it."""
    return [c for c in group["attacks"] if 0.9 * eps <= (_eps(c, norm) or 0) <= eps * (1 + 1e-6)]


def errors_at(summary: Mapping[str, Any], eps: float, norm: str | None = None) -> dict[str, float | None]:
    """The errors of `figures_at`; None where there is no such attack."""
    return {column: figure.error for column, figure in figures_at(summary, eps, norm).items()}


def graphs_of(summary: Mapping[str, Any]) -> dict[str, list[str]]:
    """The columns that were measured in each graph, the graph in words; all ε together."""
    found: dict[str, dict[str, None]] = {}
    balls = [(norm, eps) for norm in norms(summary) for eps in radii(summary, norm)]
    for norm, eps in balls or [(norm_of(summary), 0.0)]:
        for column, figure in figures_at(summary, eps, norm).items():
            if figure.error is not None and figure.graph:
                found.setdefault(figure.graph, {})[column] = None
    return {graph: [column for column in COLUMNS if column in columns] for graph, columns in found.items()}


def merged(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Evaluations of one run on other samples or graphs, as one: all groups; the checks of the last."""
    together = {"groups": [group for one in summaries for group in one["groups"]]}
    together |= {"notes": list(dict.fromkeys(note for one in summaries for note in one["notes"]))}
    together |= {"wall_s": sum(one["wall_s"] for one in summaries)}
    return {**summaries[0], **together, "checks": summaries[-1]["checks"]}


def judged(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """The group with the most kinds of attacks, then with the most: where the worst case is taken.

    Groups differ in what is in the graph.
    """
    groups: Sequence[dict[str, Any]] = summary["groups"]

    def size(group: Mapping[str, Any]) -> tuple[int, int]:
        return len({kind for worst in group["worst"] for kind in worst["by_kind"]}), len(group["attacks"])

    return max(groups, key=size, default=None)


def worst_at(summary: Mapping[str, Any], eps: float, norm: str | None = None) -> dict[str, Any] | None:
    """The worst case at one ε, in pixel units; None where nothing was attacked."""
    group, norm = judged(summary), norm or norm_of(summary)
    found = [] if group is None else [w for w in group["worst"] if w["norm"] == norm and _near(w["eps"], eps)]
    return found[0] if found else None


def in_earnest(summary: Mapping[str, Any], eps: float, norm: str | None = None) -> bool:
    """Whether the worst case at one ε is over more than the gradient that the model gives.

    An attack on a stand-in for it is of the kind that it has without (*multi-step*), so kinds alone do not tell.
    """
    group, worst, norm = judged(summary), worst_at(summary, eps, norm), norm or norm_of(summary)
    if group is None or worst is None:
        return False
    others, near = set(worst["by_kind"]) - {"single step", "multi-step"}, near_ball(group, eps, norm)
    return bool(others) or any(sees_otherwise(cell["attack"], cell["settings"]) for cell in near)


def norm_of(summary: Mapping[str, Any]) -> str:
    """The norm in which an evaluation was asked for; those from before there was a choice are in L∞."""
    return str(summary.get("norm", "LInf"))


def norms(summary: Mapping[str, Any]) -> list[str]:
    """The norms in which there are attacks."""
    return [norm for norm in NORMS if radii(summary, norm)]


def radii(summary: Mapping[str, Any], norm: str | None = None) -> list[float]:
    """Every ε of the attacks in a norm, by default that of the evaluation; in pixel units, ascending."""
    found: list[float] = []
    for cell in (c for group in summary["groups"] for c in group["attacks"]):
        eps = _eps(cell, norm or norm_of(summary))
        if eps is not None and not any(_near(eps, other) for other in found):
            found.append(eps)
    return sorted(found)


def paper_grid(summary: Mapping[str, Any], norm: str | None = None) -> Grid:
    """The paper's table with our columns, a row for every ε; what was not measured at any ε has no column.

    CW knows no ε, and has a table of its own. In L2 there is nothing of the paper's, and no unit of its own.
    """
    norm, rows = norm or norm_of(summary), []
    is_paper = norm == "LInf"
    table = summary["table_eps_pixels"] if norm_of(summary) == "LInf" else summary["table_eps"] * summary["unit"]
    for eps in radii(summary, norm):
        found = errors_at(summary, eps, norm)
        mark = " *" if is_paper and _near(eps, table) else ""
        unit = (f"{eps / summary['unit']:.3g}{mark}",) if is_paper else ()
        worst, group = worst_at(summary, eps, norm), judged(summary)
        number = NONE if worst is None else str(worst["attacks"])
        seeing = None if worst is None or group is None else _autoattack_seeing(group, eps, norm)
        low = {"worst case": MORE} if worst is not None and "with_checks" in worst else {}
        errors = (percent(found[column]) + low.get(column, "") for column in BY_EPS)
        rows.append((*unit, f"{eps:.4g}", *errors, percent(seeing), number))
    units = ("ε, normalised", "ε, of the range") if is_paper else ("ε, L2",)
    head = (*units, *BY_EPS, EVERY_CLASS, "attacks")
    return Grid(f"Errors in percent, {NORMS[norm]}", head, tuple(rows), left=len(units)).without_empty()


def cw_grid(summary: Mapping[str, Any]) -> Grid:
    """CW in the paper's form, a row for every c: how far it moves an image is not bounded, but has its price."""
    rows = []
    for cell in carlini_wagner(summary):
        mark = " *" if cell["settings"]["c"] == summary["table_c"] else ""
        figures = (percent(cell["natural"]), percent(cell["error"]))
        moved = (f"{cell['mean_linf']:.4f}", f"{cell['mean_squared_l2']:.4f}")
        rows.append((f"{cell['settings']['c']:g}{mark}", *figures, *moved))
    return Grid("CW, in percent; not bounded by ε", ("c", "natural", "CW", "mean L∞", "mean L2²"), tuple(rows))


def carlini_wagner(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """CW in the paper's form, by c; of several graphs, from the one that the paper's columns are taken from."""
    found: dict[float, Mapping[str, Any]] = {}
    for cell in (c for group in as_in_the_paper(summary) for c in group["attacks"] if plain_name(c) == "cw-paper"):
        found.setdefault(float(cell["settings"]["c"]), cell)
    return [found[c] for c in sorted(found)]


def attacks_grid(summary: Mapping[str, Any]) -> Grid:
    """Every attack in a row; a model without a graph has no column for the base."""
    zero = "zero gradients, % of those right"
    head = ("attack", "kind", "base", "chunk", "error, %", zero, "mean L∞", "mean L2²", "seconds")
    rows = []
    for group in summary["groups"]:
        for cell in group["attacks"]:
            figures = (percent(cell["error"]), percent(cell["zero_gradients"]))
            moved = (f"{cell['mean_linf']:.4f}", f"{cell['mean_squared_l2']:.4f}", f"{cell['seconds']:.1f}")
            base = NONE if cell["threat"] is None else cell["threat"]["base"].split(" ")[0]
            rows.append(
                (describe(cell["attack"], cell["settings"]), cell["kind"], base, f"{cell['chunk']:,}", *figures, *moved)
            )
    return Grid("Every attack", head, tuple(rows), left=2).without_empty()


def checks_grid(summary: Mapping[str, Any]) -> Grid:
    """Every check in a row.

    Where a figure is from is left out where the lines above the table (`about_checks`) say the same.
    """
    rows, where = [], _checked_where(summary)
    for check in summary["checks"]:
        tested, meaning = check.get("tested", True), check["meaning"].replace(f"; {where})", ")")
        rows.append((check["name"], _verdict(check), f"{check['figure']:.3g}" if tested else NONE, meaning))
    return Grid("Checks that distrust these numbers", ("check", "", "figure", "meaning"), tuple(rows), left=4)


def _verdict(check: Mapping[str, Any]) -> str:
    """A check in a word or three; those that were stored before there was a third verdict have two."""
    if not check.get("tested", True):
        return "not tested"
    if not check["passed"]:
        return "FAILED"
    return "passed" if check.get("enough", True) else "too few samples"


def _checked_where(summary: Mapping[str, Any]) -> str:
    """Where the checks' own attacks were made, in the words of a line of the checks."""
    at = summary.get("checks_at")
    if at is None:
        return ""
    graph = f", {at['graph']}" if at["graph"] else ""
    return f"{Ball(at.get('norm', 'LInf'), at['eps'])}, {counted(at['samples'], 'sample')}{graph}"


def poison_grid(summary: Mapping[str, Any]) -> Grid:
    """The error by how many labels of the base are flipped, for each graph in which that was measured."""
    rows = []
    for one in summary.get("poison", ()):
        figures = zip(one["counts"], one["greedy"], one["random"]["mean"], one["random"]["largest"], strict=True)
        for count, *errors in figures:
            share = f"{count:,} of {one['base']:,}"
            rows.append((share, one["threat"]["queries"], f"{one['samples']:,}", *(percent(error) for error in errors)))
    head = ("labels flipped", "queries", "samples", "greedily", "at random", "at random, largest")
    return Grid("Wrong labels in the base: errors in percent", head, tuple(rows), left=2)


def compared(
    summaries: Sequence[Mapping[str, Any]], paper: Mapping[str, Mapping[str, float]], eps: float | None = None
) -> Grid:
    """Several runs beside each other and beside the paper: mean ± standard deviation over seeds.

    Args:
        summaries: of runs on one data set.
        paper: its errors in percent by "head, training" and column.
        eps: in pixel units; None: that of the paper's table.
    """
    rows, beside = [], dict(paper)
    columns = COLUMNS if eps is None else BY_EPS
    for name, members in _by_model(summaries).items():
        found = [errors_at(one, one["table_eps_pixels"] if eps is None else eps) for one in members]
        rows.append((name, str(len(found)), *(_spread([one[column] for one in found]) for column in columns)))
        run = members[0]["run"]
        head = "mlp" if run["head"] == "linear" else run["head"]  # what the paper calls MLP here is a linear layer
        theirs = beside.pop(f"{head}, {run['training'].split(',')[0]}", None) if eps is None else None
        if theirs is not None:
            rows.append(("– the paper", "1", *(f"{theirs[c]:.2f}" if c in theirs else NONE for c in columns)))
    named = ["CW, no ε" if column == "CW" else column for column in columns]
    return Grid("Errors in percent", ("model", "seeds", *named), tuple(rows))


def strong_radii(summaries: Sequence[Mapping[str, Any]]) -> list[float]:
    """Every ε, in pixel units, at which all of them were attacked by more than their own gradients."""
    first = radii(summaries[0]) if summaries else []
    return [eps for eps in first if all(in_earnest(summary, eps) for summary in summaries)]


def checks_compared(summaries: Sequence[Mapping[str, Any]]) -> Grid:
    """The checks of several runs: the figure of each, in bold where it failed; the mean over seeds."""
    names = list(dict.fromkeys(check["name"] for summary in summaries for check in summary["checks"]))
    rows = []
    for name, members in _by_model(summaries).items():
        cells = []
        for check in names:
            found = [c for one in members for c in one["checks"] if c["name"] == check and c.get("tested", True)]
            text = f"{statistics.fmean(c['figure'] for c in found):.3f}" if found else NONE
            cells.append(text if all(c["passed"] for c in found) else f"**{text}**")
        rows.append((name, *cells))
    return Grid("Checks", ("model", *names), tuple(rows))


def _by_model(summaries: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for summary in summaries:
        other = summary["gradient_of"]
        by = "" if other == "own" else f", attacked by the gradient of {other}"
        groups.setdefault(f"{summary['run']['head']}, {summary['run']['training']}{by}", []).append(summary)
    return groups


def plain_name(cell: Mapping[str, Any]) -> str:
    """The name of an attack, without that of the model it was made on.

    >>> plain_name({"attack": "fgsm from the mlp head of the same run"})
    'fgsm'
    """
    return str(cell["attack"]).split(" from ")[0]


def percent(share: float | None) -> str:
    """A share in percent, or a dash."""
    return NONE if share is None else f"{100 * share:.2f}"


def _spread(values: Sequence[float | None]) -> str:
    known = [100 * value for value in values if value is not None]
    if not known:
        return NONE
    mean = f"{statistics.fmean(known):.2f}"
    return f"{mean} ± {statistics.stdev(known):.2f}" if len(known) > 1 else mean


def _eps(cell: Mapping[str, Any], wanted: str) -> float | None:
    norm = cell["settings"].get("norm")
    name = norm["name"] if isinstance(norm, Mapping) else norm
    return cell["settings"].get("eps") if name == wanted else None


def _near(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and abs(a - b) <= 1e-9 + 1e-6 * abs(b)
