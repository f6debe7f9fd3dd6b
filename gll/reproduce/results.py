"""What `gll reproduce NAME --show` shows: what was run beside the paper's, what is missing, and where to look next."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gll.reproduce.below import (
    LONGER,
    after_longer_training,
    has_reasons,
    of_same_data,
    page_of,
    page_of_reasons,
    pictures_of,
    point,
    results_scales,
    says_why_not_judged,
)
from gll.reproduce.choice import chosen, is_seed
from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.far import show_distances
from gll.reproduce.in_paper import asking_about, said_where
from gll.reproduce.kinds import kind_of
from gll.reproduce.listing import SHOW, Beside, only_words, spans
from gll.reproduce.parts import ALL, DISTANCES, Part
from gll.reproduce.records import Record, done_records
from gll.reproduce.tables import NONE, Shown, digits_of, entry, told_verdicts
from gll.reproduce.words import has
from gll.words import counted

PLACES = 12  # that are named where cells are missing
LIST = "--list"


@final
@dataclass(frozen=True, eq=False)
class Around:
    """What results are shown with.

    Args:
        part: of the experiment, that was asked for by a table or figure of the paper.
        experiments: all that there are; some ask why ours differ, or have longer trainings.
        folders: options that say where experiments and cells lie.
    """

    part: Part = ALL
    experiments: Mapping[str, Experiment] = field(default_factory=dict)
    folders: Sequence[str] = ()

    def command(self, name: str, words: Sequence[str]) -> str:
        """To be typed next."""
        return Beside(folders=self.folders).command(name, words)


@final
@dataclass(frozen=True, eq=False)
class Asked:
    """Cells of a scale that were asked for.

    Args:
        scale, cells: those of this scale; none, if it has no such cells.
        done: their records, by key.
    """

    scale: str
    cells: Sequence[Cell]
    done: Mapping[str, Record]

    @property
    def names(self) -> list[str]:
        """Their places, in the order of the grid, whatever the order in which they are run."""
        return list(dict.fromkeys(cell.point.name for cell in self.cells))

    @property
    def run(self) -> list[Cell]:
        """Those that are done."""
        return [cell for cell in self.cells if cell.key in self.done]


def show_results(
    experiment: Experiment,
    scale: str | None,
    words: Sequence[str],
    work: Path,
    console: Console,
    around: Around | None = None,
) -> None:
    """What has been run so far beside the paper's, what is missing, and where the pictures are; runs nothing.

    Args:
        experiment: which.
        scale: of which scale; None: of all that have results, but smoke, whose figures mean nothing.
        words: that a cell must have. With some, places that were not run stand in the table, too, by the paper's
            numbers.
        work: the folder of cells.
        console: where to.
        around: the part of it, and the experiments beside it.
    """
    around = around or Around()
    whole, experiment = experiment, around.part.shown(experiment)
    asked = [_asked(experiment, one, words, work) for one in _scales(experiment, scale)]
    console.print(Text(f"{experiment.name}: {experiment.text['title']} ({said_where(experiment.in_paper)})", "bold"))
    means = list[tuple[str, str]]()
    if around.part.has_values(experiment):
        means = _show_values(experiment, asked, words, console, around, every=scale is not None)
    cells = [cell for one in asked for cell in one.cells]
    if around.part.has_distances(experiment):
        show_distances(around.experiments, cells, console)
    _show_pointers(whole, cells, means, console, around)
    point("how each cell stands, and how to go on", around.command(whole.name, [LIST, *only_words(words)]), console)


def _scales(experiment: Experiment, scale: str | None) -> tuple[str, ...]:
    """Those that are shown, the paper's setting first."""
    return tuple(reversed(results_scales(experiment))) if scale is None else (scale,)


def _asked(experiment: Experiment, scale: str, words: Sequence[str], work: Path) -> Asked:
    cells = chosen(kind_of(experiment).cells(experiment, scale), words)
    return Asked(scale, cells, done_records(experiment, cells, work))


def _show_values(
    experiment: Experiment,
    asked: Sequence[Asked],
    words: Sequence[str],
    console: Console,
    around: Around,
    *,
    every: bool,
) -> list[tuple[str, str]]:
    """Tables of what was run, and of what was asked for by words and was not.

    Args:
        experiment, asked: what of each scale.
        words: that it was asked for by.
        console: where to.
        around: the experiments beside it.
        every: a scale is shown, though nothing of it was run.

    Returns:
        The means that are shown: place and figure.
    """
    absent = _absent(experiment, asked) if words else {}
    means, idle = list[tuple[str, str]](), list[str]()
    for one in asked:
        names = absent.get(one.scale, [])
        if not one.cells:
            idle.append(_none_of(experiment, one.scale, words))
            continue
        count = f"{experiment.name} at {one.scale}: {len(one.done)} of {counted(len(one.cells), 'cell')} run"
        if not (every or one.done or names):
            idle.append(count)
            continue
        said = experiment.text["scales"][one.scale].get("about", "")
        console.print(Text(f"{count}{f'; {said}' if said else ''}"))
        if one.done or names:
            show_table(experiment, one, one.done, names, console)
            means += _means(experiment, one)
        told = list(after_longer_training(_shown(experiment, one, one.done), around.experiments)) if one.done else []
        more = [f"after more epochs: {around.command(LONGER[experiment.name], [SHOW])}"] if told else []
        for line in (*told, *more):
            console.print(Text(f"    {line}"), soft_wrap=True)
        if missing := _missing(cell for cell in one.cells if cell.key not in one.done):
            console.print(Padding(Text(f"not run: {missing}"), (0, 0, 0, 2)))
    for line in idle:
        console.print(Text(line))
    return means


def _none_of(experiment: Experiment, scale: str, words: Sequence[str]) -> str:
    """What to say of a scale that has no such cells."""
    asked = [word.strip() for word in words if not is_seed(word)]
    there = asked and any(all(has(place.values(), word) for word in asked) for place in experiment.places())
    return f"{experiment.name} at {scale} " + (f"leaves out {', '.join(asked)}" if there else "has no such cells")


def _absent(experiment: Experiment, asked: Sequence[Asked]) -> dict[str, list[str]]:
    """Places with a number of the paper's that were run at no scale: by the scale whose table they stand in, which is
    one that something was run of, if there is any."""
    run = {cell.point.name for one in asked for cell in one.run}
    found: dict[str, list[str]] = {}
    figures = experiment.text["table"]["figures"]
    for one in sorted(asked, key=lambda one: not one.done):
        for name in one.names:
            if name not in run and any(experiment.paper(name, figure) for figure in figures):
                run.add(name)
                found.setdefault(one.scale, []).append(name)
    return found


def _means(experiment: Experiment, one: Asked) -> list[tuple[str, str]]:
    figures = experiment.text["table"]["figures"]
    return [
        (cell.point.name, figure)
        for cell in one.run
        for figure in figures
        if one.done[cell.key]["values"].get(figure) is not None
    ]


def _show_pointers(
    experiment: Experiment, cells: Sequence[Cell], means: Sequence[tuple[str, str]], console: Console, around: Around
) -> None:
    """Where pictures, words and reasons of what is shown are, and what asks why ours differ."""
    pictures = pictures_of(experiment, around.part.captions, cells)
    if len(pictures) == 1:
        point("picture", str(pictures[0]), console)
    elif pictures:
        console.print(Text("pictures:"))
        for path in pictures:
            console.print(Text(f"    {path}"), soft_wrap=True)
    if page := page_of(experiment):
        point("in words", page, console)
    if has_reasons(experiment, means) and (reasons := page_of_reasons(experiment)):
        point("where ours are worse, and why", reasons, console)
    if page and says_why_not_judged(experiment, means):
        point("why the paper's numbers are not judged here", page, console)
    if (figure := DISTANCES.get(experiment.name)) and not around.part.has_distances(experiment):
        point("how far CW moves images", around.command(figure, [SHOW]), console)
    if means:
        for asks in of_same_data(asking_about(experiment, around.experiments.values()), cells):
            point(f"why ours differ, {asks.text['title']}", around.command(asks.name, [SHOW]), console)


def _missing(cells: Iterable[Cell]) -> str:
    """Cells by place, with their seeds; of very many places the first."""
    places = dict[str, list[int]]()
    for cell in cells:
        places.setdefault(", ".join(cell.parts[:-1]), []).append(cell.point.seed)
    told = [f"{name} (seed {spans(seeds)})" for name, seeds in places.items()]
    more = [f"and {counted(len(told) - PLACES, 'place')} more"] if len(told) > PLACES else []
    return "; ".join([*told[:PLACES], *more])


def show_table(
    experiment: Experiment, one: Asked, new: Collection[str], absent: Sequence[str], console: Console
) -> None:
    """The table of these cells, and below it in a line how many of its means are as the paper's.

    Args:
        experiment, one: what of it.
        new: keys of cells whose places are shown.
        absent: places that are shown though they were not run.
        console: where to.
    """
    console.print(_table(experiment, one, new, absent))
    verdict = told_verdicts(_shown(experiment, one, new)) if one.run else ""
    if verdict:
        theirs = "the paper's" if experiment.of_paper else "what is expected"
        console.print(Padding(Text(f"means beside {theirs}: {verdict}"), (0, 0, 0, 2)))


def _shown(experiment: Experiment, one: Asked, new: Collection[str]) -> Shown:
    """As the pages have it, of these cells alone."""
    shown = Shown(experiment, one.scale)
    shown.found = [(dict(cell.point.place), one.done[cell.key]) for cell in one.run]
    shown.places = list({cell.point.name: dict(cell.point.place) for cell in one.cells if cell.key in new}.values())
    return shown


def _table(experiment: Experiment, one: Asked, new: Collection[str], absent: Sequence[str]) -> Table:
    """A line for every figure of a place, over all seeds that are done: no number is cut off, however many figures
    there are."""
    shown = Table(box=SIMPLE)
    shown.add_column(", ".join(experiment.text["axes"]))
    shown.add_column("what")
    theirs = "the paper's" if experiment.of_paper else "expected"
    shown.add_column(f"ours ({theirs})", justify="right", no_wrap=True)
    shown.add_column("seeds", justify="right")
    known = {cell.point.name for cell in one.cells if cell.key in new}
    for name in (name for name in one.names if name in known or name in absent):
        records = [one.done[cell.key]["values"] for cell in one.run if cell.point.name == name]
        title = name
        for figure in experiment.text["table"]["figures"]:
            ours = [float(values[figure]) for values in records if values.get(figure) is not None]
            paper = experiment.paper(name, figure)
            if ours or (paper and name in absent):
                text = entry(ours, paper, digits_of(experiment, figure))
                shown.add_row(title, figure, text.replace("**", ""), str(len(ours)) if ours else NONE)
                title = ""
    return shown
