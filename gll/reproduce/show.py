"""What `gll reproduce` shows on a terminal: the list of experiments, and what is new after a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gll.reproduce.choice import chosen
from gll.reproduce.experiment import Experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.listing import about
from gll.reproduce.records import done_records
from gll.reproduce.tables import Shown, states_of
from gll.words import counted


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
    from gll.reproduce.results import Asked, show_table  # needs PyTorch, as a mistake in a name does not

    cells = chosen(kind_of(experiment).cells(experiment, scale), words)
    done = done_records(experiment, cells, work)
    count = f"{experiment.name} ({scale}): {len(done)} of {counted(len(cells), 'cell')}"
    new = [key for key in done if key not in before]
    if only_new and not new:
        return
    if scale == "smoke":
        kept = f"; kept in {work / experiment.name / scale}; {about(experiment, scale)}" if done else ""
        console.print(Text(count + kept), soft_wrap=True)
        others = experiment.results_scales
        if done and others:
            command = f"gll reproduce {experiment.name}"
            more = f"ours beside the paper's: {command} --show; to run it: {command} --scale {'|'.join(others)}"
            console.print(Text(more), soft_wrap=True)
    else:
        which = f"{len(new)} of them new; kept in" if new else "none of them new; from"
        console.print(Text(f"{count}, {which} {experiment.folder / 'results.json'}"), soft_wrap=True)
        show_table(experiment, Asked(scale, cells, done), new or done, (), console)
    known = {figure for record in done.values() for figure in record["values"]}
    strange = [figure for figure in experiment.text["table"]["figures"] if figure not in known]
    if new and len(done) == len(cells) and not words and strange:
        file = experiment.folder / "config.toml"
        said = f"{file}: no cell has a figure {strange[0]!r}; there are {', '.join(sorted(known))}"
        console.print(Text(said), soft_wrap=True)
