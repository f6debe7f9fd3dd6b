"""Tables in Markdown from expected.json and results.json: ours, and the paper's in brackets behind.

`pages` writes experiments/README.md again, and of some pages of docs/ (`PAGES`) the marked parts and the numbers
(`findings.py`); none is typed.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from gll.names import require_name
from gll.reproduce.drawn import read_drawn
from gll.reproduce.experiment import Experiment, name_of
from gll.reproduce.gaps import not_asked, not_run
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import Record, read_records
from gll.reproduce.verdicts import noise
from gll.words import counted

NONE = "–"
PAGES = ("reproduce.md", "what-we-found.md", "claim-by-claim.md")
"""Of docs/, that have numbers or tables from the records."""
ATTACKS = {"natural": "fgsm", "FGSM": "fgsm", "IFGSM": "ifgsm", "CW": "cw-paper"}
"""By which attack a figure of the paper's table is known; *natural* is of the samples of FGSM."""
BY_ITS_GRAPH = ", by its graph"
"""Behind the name of a figure: WNLL was attacked by another gradient than the one it was trained by."""
BY_ITS_GRAPH_SAID = (
    "*by its graph*: WNLL, by the gradient of its graph in place of that of the linear layer which trains it"
)
OTHER_C = (
    "*CW, c = …*: beside the paper's error at c = 20, which is this c in our units if its distances are of normalised "
    "images"
)
IN_THE_PAPER = 10_000
"""Samples that it attacks: all of the test set, of each of its data sets."""
RADII = {" at 1x": " at ε", " at 2x": " at 2ε"}
"""Of stored figures, and how a reader would call them."""
LINEAR_NAME = "linear"
WITHOUT_GRAPH = (LINEAR_NAME, "MLP")
ALONE = ", alone"
ALONE_SAID = "*alone*: every attacked sample in a graph of its own; else all of them in one"
AUTO_NAME = "AutoAttack"
WORST_NAME = "worst case"
AUTO = (
    "*AutoAttack*: the standard one, by the model's own gradient, made for every sample apart; on a graph with every "
    "class in sight it counts in the worst case alone"
)
DIRTY = "*-dirty*: made with changes that were not committed then"
ONE_LAYER = "one linear layer and a softmax, which the paper calls MLP where it"
LINEAR = f"*linear*: {ONE_LAYER} attacks"


@final
class Shown:
    """What an experiment has come to at one scale.

    Args:
        experiment: which.
        scale: of its scales.
    """

    def __init__(self, experiment: Experiment, scale: str) -> None:
        self.experiment, self.scale = experiment, scale
        stored = read_records(experiment.folder / "results.json")
        planned = kind_of(experiment).cells(experiment, scale)
        self.places = list({cell.point.name: dict(cell.point.place) for cell in planned if not cell.role}.values())
        cells = [cell for cell in planned if not cell.role]
        self.total = len(cells)
        self.asked = [dict(cell.point.place) for cell in cells]
        # By what the cell is asked for as now: two cells may have the same settings, and so one record.
        self.found: list[tuple[dict[str, str], Record]] = [
            (dict(cell.point.place), stored[cell.key]) for cell in cells if cell.key in stored
        ]
        warm = dict.fromkeys(cell.key for cell in planned if cell.role)
        self.warm_ups = [stored[key] for key in warm if key in stored]
        keys = {cell.key for cell in planned}
        self.old = sum(1 for record in stored.values() if record["scale"] == scale and record["key"] not in keys)

    @property
    def judged(self) -> bool:
        """Whether means are counted as lower or higher than those of expected.json: config.toml says what is better."""
        return "better" in self.experiment.text["table"]

    @property
    def status(self) -> str:
        """In a word."""
        return self.status_of(())

    def status_of(self, names: Collection[str]) -> str:
        """The same of the cells alone that have these names on their axes."""
        total = sum(1 for place in self.asked if set(names) <= set(place.values()))
        done = sum(1 for place, _ in self.found if set(names) <= set(place.values()))
        if not done:
            return "not run" if total else "not asked for"
        return "done" if done == total else f"{done} of {total} cells"

    def values(self, place: Mapping[str, str], figure: str) -> list[float]:
        """Of every seed."""
        found = (r["values"].get(figure) for at, r in self.found if at == place)
        return [float(value) for value in found if value is not None]

    def samples(self, place: Mapping[str, str], figure: str) -> int | None:
        """How many samples a figure of the paper's table is of: as many as were attacked, by the records, or as
        expected.json says; None where neither does."""
        found = [attacked(r["more"].get(evaluation_of(figure), {}), figure) for at, r in self.found if at == place]
        said, _ = self.experiment.samples(self.scale, figure)
        return min((number for number in found if number is not None), default=said)

    def beside_paper(self, place: Mapping[str, str], figure: str) -> str | None:
        """Whether the mean agrees with the paper's, or is lower or higher; None where there is nothing to compare."""
        ours, samples = self.values(place, figure), self.samples(place, figure)
        _, theirs = self.experiment.samples(self.scale, figure)
        return beside_paper(self.experiment, name_of(place), figure, ours, samples, theirs or IN_THE_PAPER)


def attacked(summary: Mapping[str, Any], figure: str) -> int | None:
    """How many samples of an evaluation (`gll attack`) a figure of the paper's table is of.

    >>> groups = [{"samples": n, "attacks": [{"attack": name}]} for n, name in ((10_000, "fgsm"), (1000, "cw-paper"))]
    >>> attacked({"groups": groups}, "natural"), attacked({"groups": groups}, "CW"), attacked({}, "CW")
    (10000, 1000, None)
    >>> [attacked({"groups": groups}, figure) for figure in ("CW, c = 1.9", "FGSM, by its graph", "FGSM, alone")]
    [1000, 10000, None]
    """
    from gll.attacks.graphs import as_in_the_paper

    groups = as_in_the_paper(summary) if "groups" in summary else []
    by = ATTACKS.get(figure.replace(BY_ITS_GRAPH, "").partition(", c = ")[0])
    return next((int(g["samples"]) for g in groups if any(one["attack"] == by for one in g["attacks"])), None)


def evaluation_of(figure: str) -> str:
    """Which evaluation of a record a figure is of: WNLL by its graph is a part of its own, which configs call so.

    >>> evaluation_of("FGSM, by its graph"), evaluation_of("CW, c = 1.9")
    ('graph', 'summary')
    """
    return "graph" if BY_ITS_GRAPH in figure else "summary"


def beside_paper(
    experiment: Experiment,
    place: str,
    figure: str,
    ours: Sequence[float],
    samples: int | None,
    theirs: int = IN_THE_PAPER,
) -> str | None:
    """Whether a mean of ours agrees with the paper's, or is lower or higher; None where there is nothing to compare.

    They agree within the largest of its deviation, the tolerance of expected.json and, where it is known how many
    samples ours is of, two standard errors of the difference between a share of so many and one of the paper's
    (`theirs`: all of a test set, where nothing else is said).
    """
    paper = experiment.paper(place, figure)
    if paper is None or not ours:
        return None
    mean = statistics.fmean(ours)
    chance = 0.0 if samples is None else noise(mean, paper[0], samples, theirs)
    if abs(mean - paper[0]) <= max(tolerance(experiment), paper[1] or 0.0, chance):
        return "agree"
    return "lower" if mean < paper[0] else "higher"


def verdicts(shown: Shown) -> dict[str, int]:
    """How many means are lower than the paper's, agree with it (`beside_paper`), or are higher.

    That an error is lower is not said to be better: under a weak attack it is a mark of the attack. None are counted
    where config.toml has no `better`.
    """
    experiment = shown.experiment
    counts = dict.fromkeys(("lower", "agree", "higher"), 0) if shown.judged else {}
    for place in shown.places:
        for figure in experiment.text["table"]["figures"] if counts else ():
            if found := shown.beside_paper(place, figure):
                counts[found] += 1
    return counts


def tolerance(experiment: Experiment) -> float:
    """How far from the paper's a mean may be and still agree, where its deviation is smaller or not given."""
    return float(experiment.expected.get("tolerance", 0.0))


def digits_of(experiment: Experiment, figure: str) -> int:
    """Behind the point: `digits` of config.toml is one number, or one for each figure (2 where it names none)."""
    digits = experiment.text["table"].get("digits", 2)
    return int(digits.get(figure, 2) if isinstance(digits, dict) else digits)


def table(shown: Shown) -> str:
    """Rows and columns as config.toml says, and below what it was made with. Rows without a number of ours are not
    shown."""
    experiment, how = shown.experiment, shown.experiment.text["table"]
    axes, figures = experiment.text["axes"], how["figures"]
    beside = how.get("columns", [])
    ran = [place for place, _ in shown.found]
    rows = dict.fromkeys(tuple(place[axis] for axis in how["rows"]) for place in shown.places if place in ran)
    columns = dict.fromkeys((*(p[axis] for axis in beside), figure) for p in shown.places for figure in figures)
    heads = [_called(", ".join(part for part in c if part != "error" or len(c) == 1)) for c in columns]
    numbers = "---:|" * (len(columns) + 1)
    lines = [f"| {' | '.join([*how['rows'], *heads, 'seeds'])} |", "|" + "---|" * len(how["rows"]) + numbers]
    for row in rows:
        cells, counts = [], set()
        for *names, figure in columns:
            chosen = dict(zip([*how["rows"], *beside], [*row, *names], strict=True))
            place = {axis: chosen[axis] for axis in axes}
            asked = not (place.get("head") in WITHOUT_GRAPH and figure + ALONE in figures)
            ours, theirs = shown.values(place, figure) if asked else [], experiment.paper(name_of(place), figure)
            cells.append(entry(ours, theirs, digits_of(experiment, figure)))
            counts |= {len({record["seed"] for at, record in shown.found if at == place})} - {0}
        lines.append(f"| {' | '.join([*row, *cells, _range(counts)])} |")
    gaps = [not_run(shown.places, ran), not_asked(experiment, shown.places)]
    return "\n".join([*lines, "", *(line for gap in gaps if gap for line in (gap, "")), provenance(shown)])


def _called(figure: str) -> str:
    """A figure as a reader would call it.

    >>> _called("worst case at 2x, alone"), _called("natural")
    ('worst case at 2ε, alone', 'natural')
    """
    for stored, said in RADII.items():
        figure = figure.replace(stored, said)
    return figure


def by_class(shown: Shown) -> str:
    """Errors of single classes, where records have some: a row for each place."""
    groups: dict[str, list[Mapping[str, float]]] = {}
    for place, record in shown.found:
        if "classes" in record["more"]:
            groups.setdefault(name_of(place), []).append(record["more"]["classes"])
    if not groups:
        return ""
    names = list(next(iter(groups.values()))[0])
    lines = [f"| class | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    for place_name, members in groups.items():
        cells = [entry([one[name] for one in members], None, 1) for name in names]
        lines.append(f"| {place_name} | {' | '.join(cells)} |")
    return "\n".join(["By class:", "", *lines])


def entry(ours: Sequence[float], paper: tuple[float, float | None] | None, digits: int) -> str:
    """Mean ± standard deviation over seeds, and the paper's.

    >>> entry([1.0, 2.0], (3.0, 0.25), 1), entry([], None, 2), entry([4.0], None, 0)
    ('**1.5 ± 0.7** (3.0 ± 0.2)', '–', '**4**')
    """
    own = NONE
    if ours:
        spread = f" ± {statistics.stdev(ours):,.{digits}f}" if len(ours) > 1 else ""
        own = f"**{statistics.fmean(ours):,.{digits}f}{spread}**"
    if paper is None:
        return own
    deviation = "" if paper[1] is None else f" ± {paper[1]:,.{digits}f}"
    return f"{own} ({paper[0]:,.{digits}f}{deviation})"


def provenance(shown: Shown) -> str:
    """Seeds, epochs, commits, devices and seconds of the records."""
    experiment, records = shown.experiment, [record for _, record in shown.found]
    if not records:
        return f"<small>{shown.scale}: not run yet</small>"
    parts = [f"{shown.scale}: {shown.status}", f"seeds {_span(r['seed'] for r in records)}"]
    theirs = "the paper's" if experiment.of_paper else "what is expected"
    parts += [f"in brackets {theirs}"] if experiment.expected["values"] else []
    results: list[Mapping[str, Any]] = [r["more"]["result"] for r in records if "result" in r["more"]]
    if results:
        parts.append(f"epochs {_span(r['epochs'] for r in results)}")
        warm = [r["warmup"]["epoch"] for r in results if r["warmup"]]
        parts += [f"after {_span(warm)} of warm-up"] if warm else []
    commits = sorted({c for r in records for c in r["commit"].split(", ")})
    dirty = f" ({DIRTY})" if any(commit.endswith("-dirty") for commit in commits) else ""
    parts.append(f"commits {', '.join(commits)}{dirty}")
    parts.append(", ".join(sorted({r["device"] for r in records})))
    parts.append("torch " + ", ".join(sorted({r["versions"]["torch"] for r in records})))
    warm_ups = sum(r["wall_s"] for r in shown.warm_ups)
    beside = f", and {warm_ups:,.0f} s of warm-ups" if warm_ups else ""
    parts.append(f"{sum(r['wall_s'] for r in records):,.0f} s in all{beside}")
    taken = Counter(r["taken_from"] for r in records if "taken_from" in r)
    parts += [f"{counted(n, 'cell')} of these run as part of `{name}`" for name, n in sorted(taken.items())]
    if found := told_verdicts(shown):
        room = tolerance(experiment)
        within = f"within its deviation or {room:g}" if room else "within its deviation, if it gives one"
        few = [shown.samples(place, figure) for place, _ in shown.found for figure in ATTACKS]
        within += ", or two standard errors" if any(few) else ""
        parts.append(f"means beside {theirs}, {within}: {found}")
    places = [place for place, _ in shown.found]
    parts += said_of_figures(experiment.text["table"]["figures"], places)
    parts += attacked_by(shown)
    parts += said_of_rows(places)
    return f"<small>{'; '.join(parts)}</small>"


def said_of_figures(figures: Iterable[str], places: Iterable[Mapping[str, str]]) -> list[str]:
    """What is to be known of some of these figures, in the rows of these places."""
    known, there = list(figures), {name for place in places for name in place.values()}
    names = ", ".join(name for name in WITHOUT_GRAPH if name in there)
    no_graph = f"{names}: no graph, so one model and one worst case, in the columns *alone*, AutoAttack among it"
    alone = [ALONE_SAID, *([no_graph] if names else [])] if any(figure.endswith(ALONE) for figure in known) else []
    other_c = [OTHER_C] if any(figure.startswith("CW, c = ") for figure in known) else []
    graph = [BY_ITS_GRAPH_SAID] if any(figure.endswith(BY_ITS_GRAPH) for figure in known) else []
    return [*alone, *([AUTO] if any(figure.startswith(AUTO_NAME) for figure in known) else []), *other_c, *graph]


def said_of_rows(places: Iterable[Mapping[str, str]]) -> list[str]:
    """What is to be known of some of these places."""
    return [LINEAR] if any(LINEAR_NAME in place.values() for place in places) else []


def attacked_at(summary: Mapping[str, Any]) -> str:
    """Where the paper's table takes its errors under attack, of the data set of an evaluation (`gll attack`)."""
    return f"ε = {summary['table_eps']:g} in its units and c = {summary['table_c']:g}"


def attacked_by(shown: Shown) -> list[str]:
    """Where the graph heads of a data set met different attacks: over which each worst case is taken."""
    from gll.reproduce.attack_sets import told

    if WORST_NAME not in shown.experiment.text["table"]["figures"]:
        return []
    data: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for place, record in shown.found:
        if "summary" in record["more"]:
            summary = record["more"]["summary"]
            title = ", ".join(name for axis, name in place.items() if axis != "data")
            data.setdefault(summary["run"]["data"], {}).setdefault(title, []).append(summary)
    return [f"{name}: {found}" for name, rows in data.items() if (found := told(rows))]


def told_verdicts(shown: Shown) -> str:
    """The counts in words; nothing where there is nothing to compare."""
    return ", ".join(f"{count} {name}" for name, count in verdicts(shown).items() if count)


def states_of(experiment: Experiment) -> dict[str, Shown]:
    """Every scale but smoke, whose numbers mean nothing."""
    return {scale: Shown(experiment, scale) for scale in experiment.results_scales}


def section(experiment: Experiment, states: Mapping[str, Shown]) -> str:
    """All of an experiment that can be shown: every scale that was run."""
    lines = ["```sh", experiment.command, "```", "", experiment.about, ""]
    ran = [shown for shown in states.values() if shown.found]
    if not ran:
        whose = "The paper's" if experiment.of_paper else "Expected"
        has = f" {whose} values are in its `expected.json`." if experiment.expected["values"] else ""
        cells = ", ".join(f"{shown.total} cells at *{scale}*" for scale, shown in states.items())
        lines += [f"**Not run yet** ({cells}).{has}"]
    for shown in ran:
        about = experiment.text["scales"][shown.scale].get("about", "")
        lines += [f"**{shown.scale}**{': ' + about if about else ''}", "", table(shown), ""]
        classes = by_class(shown)
        lines += [classes, ""] if classes else []
    return "\n".join(lines).rstrip()


def pages(experiments: Mapping[str, Experiment]) -> dict[Path, str]:
    """Every page that has tables, as it should be."""
    from gll.reproduce.findings import Findings

    states = {name: states_of(experiment) for name, experiment in experiments.items()}
    sections = {name: section(experiment, states[name]) for name, experiment in experiments.items()}
    whole = _overview(experiments, states)
    root = next(iter(experiments.values())).folder.resolve().parent
    docs = root.parent / "docs"
    captions = {name: told["caption"] for name, told in read_drawn(docs / "figures").items()}
    drawn = {name: in_order((docs / "figures").glob(f"reproduce-{name}*.png"), list(captions)) for name in experiments}

    def shown(prefix: str) -> dict[str, str]:
        return {name: text + _pictures(drawn[name], captions, prefix) for name, text in sections.items()}

    found = {root / "README.md": _readme(experiments, whole, shown("../docs/figures"))}
    findings = Findings(experiments, states, root.parent / "benchmarks" / "results", root.parent / "configs")
    for page in (docs / name for name in PAGES):
        if page.is_file():
            found[page] = findings.filled(_filled(page.read_text(encoding="utf-8"), whole, shown("figures")))
    return found


def in_order(paths: Iterable[Path], drawn: Sequence[str]) -> list[Path]:
    """Pictures as they were drawn, which is the paper's order; what is not known of stands behind.

    >>> [path.name for path in in_order([Path("a"), Path("b"), Path("c")], ["c", "b"])]
    ['c', 'b', 'a']
    """
    places = {name: place for place, name in enumerate(drawn)}
    return sorted(paths, key=lambda path: (places.get(path.name, len(places)), path.name))


def _pictures(paths: Sequence[Path], captions: Mapping[str, str], prefix: str) -> str:
    """Pictures, with what is seen below each, and for those who do not see it."""
    said = {path.name: captions.get(path.name, path.stem.removeprefix("reproduce-")) for path in paths}
    return "".join(f"\n\n![{text}]({prefix}/{name})\n\n<small>{text}</small>" for name, text in said.items())


def _overview(experiments: Mapping[str, Experiment], states: Mapping[str, Mapping[str, Shown]]) -> str:
    """How far all of it is, and one line for each."""
    lines = [how_far(states), "", "| experiment | in the paper | what | small | full |", "|---|---|---|---|---|"]
    for name, experiment in experiments.items():
        words = [states[name][s].status if s in states[name] else NONE for s in ("small", "full")]
        lines.append(f"| `{name}` | {experiment.in_paper} | {experiment.text['title']} | {' | '.join(words)} |")
    return "\n".join(lines)


def how_far(states: Mapping[str, Mapping[str, Shown]]) -> str:
    """How many experiments are done, in part or not run, and which. What is done at a smaller scale than its largest,
    and not begun at that, is named apart: the paper's setting may be out of reach."""
    done = "done at the largest of their scales"
    groups: dict[str, list[str]] = {done: [], "done at small": [], "run in part": [], "not run": []}
    for name, scales in states.items():
        ran = [shown for shown in scales.values() if shown.found]
        if list(scales.values())[-1].status == "done":
            groups[done].append(f"`{name}`")
        elif [shown.scale for shown in ran] == ["small"] and ran[0].status == "done":
            groups["done at small"].append(f"`{name}`")
        elif ran:
            words = ", ".join(f"{shown.scale}: {shown.status}" for shown in ran)
            groups["run in part"].append(f"`{name}` ({words})")
        else:
            groups["not run"].append(f"`{name}`")
    parts = [f"**{len(names)} {word}**: {', '.join(names)}" for word, names in groups.items() if names]
    return f"Of {len(states)} experiments {'; '.join(parts)}."


def _readme(experiments: Mapping[str, Experiment], whole: str, sections: Mapping[str, str]) -> str:
    """experiments/README.md."""
    about = (
        "One folder each: `config.toml` (its command and what to expect), `expected.json` (the paper's values), "
        "`results.json` (ours). How it works: [docs/reproduce.md](../docs/reproduce.md). In the tables: ours in bold, "
        "mean ± standard deviation over seeds; in brackets the paper's. A *place* is a name on each axis of a table; "
        "with a seed it is a *cell*, which is run once."
    )
    parts = ["<!-- Written by `gll reproduce --tables`. -->", "# The paper's tables and figures", about, whole]
    for name, experiment in experiments.items():
        parts += [f"## {name}: {experiment.text['title']}", f"In the paper: {experiment.in_paper}.", sections[name]]
    return "\n\n".join(parts) + "\n"


def _filled(text: str, whole: str, sections: Mapping[str, str]) -> str:
    """A page with its marked parts written again: `<!-- experiments -->` or `<!-- experiment NAME -->`, to `end`."""

    def fill(match: re.Match[str]) -> str:
        name = match.group(2)
        if name is not None:
            require_name("experiment of docs/reproduce.md", name, sections)
        return f"{match.group(1)}\n\n{whole if name is None else sections[name]}\n\n<!-- end -->"

    # At the beginning of a line only: the page also speaks of such marks.
    return re.sub(r"^(<!-- experiments?(?: (\S+))? -->).*?^<!-- end -->", fill, text, flags=re.DOTALL | re.MULTILINE)


def _range(counts: Collection[int]) -> str:
    """How many, of several.

    >>> _range({3}), _range({1, 3}), _range(set())
    ('3', '1 to 3', '–')
    """
    return " to ".join(str(n) for n in sorted({min(counts), max(counts)})) if counts else NONE


def _span(values: Any) -> str:
    """The numbers in a few characters.

    >>> _span([2, 0, 1]), _span([50]), _span([50, 100])
    ('0, 1, 2', '50', '50, 100')
    """
    return ", ".join(f"{value:,}" for value in sorted(set(values)))
