"""What `gll reproduce` shows on a terminal: the list of experiments, what is new after a run, and what has been run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gll.reproduce.choice import chosen
from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.in_paper import said_where
from gll.reproduce.kinds import kind_of
from gll.reproduce.listing import Beside, about, spans
from gll.reproduce.records import Record, done_records
from gll.reproduce.tables import Shown, digits_of, entry, states_of, told_verdicts
from gll.reproduce.worse import NAME, read_reasons
from gll.words import counted

PLACES = 12  # that are named where cells are missing
REASONS = "Where ours are worse, and why"
MARK = "\n<!-- experiment {} -->\n"  # as in docs/reproduce.md, see `tables.pages`


def show_list(experiments: Mapping[str, Experiment], console: Console) -> None:
    """All experiments with their status."""
    states = {name: states_of(experiment) for name, experiment in experiments.items()}
    old = any(shown.old for found in states.values() for shown in found.values())
    caption = (
        f"small, full: cells that are done{'; old: records of settings that are no longer asked for' if old else ''}\n"
        "gll reproduce NAME --list: its cells, how each stands, and what to type next\n"
        "gll reproduce NAME --show: what has been run of it, beside the paper's"
    )
    listed = Table(title="gll reproduce NAME --scale smoke|small|full", caption=caption, box=SIMPLE)
    listed.add_column("name", no_wrap=True)  # it is to be typed
    for name in ("what", "in the paper"):
        listed.add_column(name)
    for name in ("small", "full"):
        listed.add_column(name, no_wrap=True)
    for name, experiment in experiments.items():
        at = states[name]
        words = [_state(at[s]) if s in at else "–" for s in ("small", "full")]
        listed.add_row(name, experiment.text["title"], experiment.in_paper, *words)
    console.print(listed)


def _state(shown: Shown) -> str:
    old = f"\n{shown.old} old" if shown.old else ""
    return f"{len(shown.found)} of {shown.total}{old}"


def show_run(
    experiment: Experiment,
    scale: str,
    words: Sequence[str],
    before: Collection[str],
    work: Path,
    console: Console,
    *,
    only_new: bool = False,
) -> None:
    """What a run has come to: what is new of that which was asked for, and all of it where nothing is new.

    Args:
        experiment, scale, words: what was run.
        before: keys of cells that were done before.
        work: the folder of cells.
        console: where to.
        only_new: say nothing where nothing is new.
    """
    cells = chosen(kind_of(experiment).cells(experiment, scale), words)
    done = done_records(experiment, cells, work)
    count = f"{experiment.name} ({scale}): {len(done)} of {counted(len(cells), 'cell')}"
    new = [key for key in done if key not in before]
    if only_new and not new:
        return
    if scale == "smoke":
        kept = f"; kept in {work / experiment.name / scale}; {about(experiment, scale)}" if done else ""
        console.print(Text(count + kept), soft_wrap=True)
        others = results_scales(experiment)
        if done and others:
            command = f"gll reproduce {experiment.name}"
            more = f"ours beside the paper's: {command} --show; to run it: {command} --scale {'|'.join(others)}"
            console.print(Text(more), soft_wrap=True)
    else:
        which = f"{len(new)} of them new; kept in" if new else "none of them new; from"
        console.print(Text(f"{count}, {which} {experiment.folder / 'results.json'}"), soft_wrap=True)
        _show_table(experiment, [cell for cell in cells if cell.key in done], done, new or done, console)
    known = {figure for record in done.values() for figure in record["values"]}
    strange = [figure for figure in experiment.text["table"]["figures"] if figure not in known]
    if new and len(done) == len(cells) and not words and strange:
        file = experiment.folder / "config.toml"
        said = f"{file}: no cell has a figure {strange[0]!r}; there are {', '.join(sorted(known))}"
        console.print(Text(said), soft_wrap=True)


def show_results(
    experiment: Experiment,
    scale: str | None,
    words: Sequence[str],
    work: Path,
    console: Console,
    folders: Sequence[str] = (),
    why: Sequence[Experiment] = (),
) -> None:
    """What has been run so far beside the paper's, what is missing, and where the pictures are; runs nothing.

    Args:
        experiment: which.
        scale: of which scale; None: of all that have results, but smoke, whose figures mean nothing.
        words: that a cell must have.
        work: the folder of cells.
        console: where to.
        folders: options that say where experiments and cells lie.
        why: experiments that ask why ours differ.
    """
    console.print(Text(f"{experiment.name}: {experiment.text['title']} ({said_where(experiment.in_paper)})", "bold"))
    idle = list[str]()
    for one in reversed(results_scales(experiment)) if scale is None else (scale,):  # the paper's setting first
        cells = chosen(kind_of(experiment).cells(experiment, one), words)
        done = done_records(experiment, cells, work)
        count = f"{experiment.name} at {one}: {len(done)} of {counted(len(cells), 'cell')} run"
        if scale is None and not done:
            idle.append(count)
            continue
        said = experiment.text["scales"][one].get("about", "")
        console.print(Text(f"{count}{f'; {said}' if said else ''}"))
        if done:
            _show_table(experiment, [cell for cell in cells if cell.key in done], done, done, console)
        if missing := _missing(cell for cell in cells if cell.key not in done):
            console.print(Padding(Text(f"not run: {missing}"), (0, 0, 0, 2)))
    for line in idle:
        console.print(Text(line))
    if page := page_of(experiment):
        console.print(Text(f"with pictures, in words: {page}"), soft_wrap=True)
    if has_reasons(experiment) and (reasons := page_of_reasons(experiment)):
        console.print(Text(f"where ours are worse, and why: {reasons}"), soft_wrap=True)
    for asks in why:
        line = Beside(folders=folders).command(asks.name, ["--show"])
        console.print(Text(f"why ours differ, {asks.text['title']}: {line}"), soft_wrap=True)
    line = Beside(folders=folders).command(experiment.name, ["--list"])
    console.print(Text(f"how each cell stands, and how to go on: {line}"), soft_wrap=True)


def results_scales(experiment: Experiment) -> tuple[str, ...]:
    """Those whose figures mean something."""
    return tuple(scale for scale in experiment.scales if scale != "smoke")


def _missing(cells: Iterable[Cell]) -> str:
    """Cells by place, with their seeds; of very many places the first."""
    places = dict[str, list[int]]()
    for cell in cells:
        places.setdefault(", ".join(cell.parts[:-1]), []).append(cell.point.seed)
    told = [f"{name} (seed {spans(seeds)})" for name, seeds in places.items()]
    more = [f"and {counted(len(told) - PLACES, 'place')} more"] if len(told) > PLACES else []
    return "; ".join([*told[:PLACES], *more])


def page_of(experiment: Experiment) -> str:
    """The page that has the tables and pictures of an experiment, and its section there; empty where there is none."""
    page = experiment.folder.parent.parent / "docs" / "reproduce.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    before, mark, _ = text.partition(MARK.format(experiment.name))
    if mark:
        headings = [line.lstrip("# ") for line in before.splitlines() if line.startswith("#")]
        return f"{page}, section {headings[-1]}" if headings else str(page)
    page = experiment.folder.parent / "README.md"
    return f"{page}, section {experiment.name}" if page.is_file() else ""


def page_of_reasons(experiment: Experiment) -> str:
    """The page with the reasons, and its section; empty where there is none."""
    page = experiment.folder.parent.parent / "docs" / "claim-by-claim.md"
    return f"{page}, section {REASONS}" if page.is_file() and f"\n## {REASONS}\n" in page.read_text("utf-8") else ""


def has_reasons(experiment: Experiment) -> bool:
    """Whether that page has one for it: else it says nothing of this experiment."""
    return any(reason.experiment == experiment.name for reason in read_reasons(experiment.folder.parent / NAME))


def _show_table(
    experiment: Experiment, cells: Sequence[Cell], done: Mapping[str, Record], new: Collection[str], console: Console
) -> None:
    """The table of these cells, which are done, and below it in a line how many of its means are as the paper's."""
    console.print(_table(experiment, cells, done, new))
    if verdict := _verdict(experiment, cells, done, new):
        console.print(Padding(Text(verdict), (0, 0, 0, 2)))


def _verdict(experiment: Experiment, cells: Sequence[Cell], done: Mapping[str, Record], new: Collection[str]) -> str:
    """How many means of this table are lower than the paper's, agree or are higher; empty where none is judged."""
    shown = Shown(experiment, cells[0].scale)
    shown.found = [(dict(cell.point.place), done[cell.key]) for cell in cells]
    shown.places = list({cell.point.name: dict(cell.point.place) for cell in cells if cell.key in new}.values())
    found = told_verdicts(shown)
    theirs = "the paper's" if experiment.of_paper else "what is expected"
    return f"means beside {theirs}: {found}" if found else ""


def _table(experiment: Experiment, cells: Sequence[Cell], done: Mapping[str, Record], new: Collection[str]) -> Table:
    """A line for every figure of a place that has one of the keys `new`, over all seeds that are done: no number is cut
    off, however many figures there are."""
    shown = Table(box=SIMPLE)
    shown.add_column(", ".join(experiment.text["axes"]))
    shown.add_column("figure")
    theirs = "the paper's" if experiment.of_paper else "expected"
    shown.add_column(f"ours ({theirs})", justify="right", no_wrap=True)
    shown.add_column("seeds", justify="right")
    for name in dict.fromkeys(cell.point.name for cell in cells if cell.key in new):
        records = [done[cell.key]["values"] for cell in cells if cell.point.name == name]
        title = name
        for figure in experiment.text["table"]["figures"]:
            ours = [float(values[figure]) for values in records if values.get(figure) is not None]
            if ours:
                text = entry(ours, experiment.paper(name, figure), digits_of(experiment, figure))
                shown.add_row(title, figure, text.replace("**", ""), str(len(ours)))
                title = ""
    return shown
