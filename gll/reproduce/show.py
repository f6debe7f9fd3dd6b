"""What `gll reproduce` shows on a terminal: the list of experiments, and after a run what is new."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from gll.reproduce.choice import chosen
from gll.reproduce.experiment import Experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import Record, done_records
from gll.reproduce.tables import Shown, states_of, table
from gll.words import counted


def show_list(experiments: Mapping[str, Experiment], console: Console) -> None:
    """All experiments with their status."""
    caption = "small, full: cells that are done; old: records of settings that are no longer asked for"
    listed = Table(title="gll reproduce NAME --scale smoke|small|full", caption=caption, box=SIMPLE)
    listed.add_column("name", no_wrap=True)  # it is to be typed
    for name in ("what", "in the paper"):
        listed.add_column(name)
    for name in ("small", "full"):
        listed.add_column(name, no_wrap=True)
    for name, experiment in experiments.items():
        states = states_of(experiment)
        words = [_state(states[s]) if s in states else "–" for s in ("small", "full")]
        listed.add_row(name, experiment.text["title"], experiment.text["paper"], *words)
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
    """What a run has come to: the rows that were asked for and have something, if any of it is new.

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
        about = f"; kept in {work / experiment.name / scale}, and in no table" if done else ""
        console.print(Text(count + about), soft_wrap=True)
    elif not new:
        console.print(Text(f"{count}, none of them new"), soft_wrap=True)
    else:
        rows = _rows(experiment, scale, done)
        console.print(Text(f"\n{count}, {len(new)} of them new; in brackets the paper's"), soft_wrap=True)
        console.print(Markdown(table(rows).replace("<small>", "").replace("</small>", "")))
    known = {figure for record in done.values() for figure in record["values"]}
    strange = [figure for figure in experiment.text["table"]["figures"] if figure not in known]
    if new and len(done) == len(cells) and not words and strange:
        file = experiment.folder / "config.toml"
        said = f"{file}: no cell has a figure {strange[0]!r}; there are {', '.join(sorted(known))}"
        console.print(Text(said), soft_wrap=True)


def _rows(experiment: Experiment, scale: str, done: Mapping[str, Record]) -> Shown:
    """Of the table that the pages have only what is done, a row for each place: it is to fit into a terminal."""
    how = experiment.text["table"]
    known = {figure for record in done.values() for figure, value in record["values"].items() if value is not None}
    figures = [figure for figure in how["figures"] if figure in known] or how["figures"]
    more = {**how, "rows": list(experiment.text["axes"]), "columns": [], "figures": figures}
    shown = Shown(replace(experiment, text={**experiment.text, "table": more}), scale)
    shown.found = [(place, record) for place, record in shown.found if record["key"] in done]
    shown.places = [place for place in shown.places if any(place == at for at, _ in shown.found)]
    return shown
