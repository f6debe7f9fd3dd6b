"""What `gll reproduce NAME --show` shows: what was run beside the paper's, what is missing, and where to look next."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    meanings,
    of_same_data,
    page_of,
    page_of_distances,
    page_of_reasons,
    page_of_words,
    pictures_of,
    point,
    says_why_not_judged,
)
from gll.reproduce.choice import chosen, is_seed, within
from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.far import show_distances
from gll.reproduce.in_paper import asking_about, elsewhere, said_where
from gll.reproduce.kinds import kind_of
from gll.reproduce.listing import SHOW, Beside, only_words, spans
from gll.reproduce.parts import ALL, DISTANCES, Part
from gll.reproduce.records import Record, done_records
from gll.reproduce.tables import NONE, WORST_NAME, Shown, digits_of, entry, told_verdicts
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


@final
@dataclass(frozen=True, eq=False)
class Seen:
    """What tables have shown.

    Args:
        cells: that were run and stand there.
        means: by place and figure.
        scales: of which.
        far: cells whose distances stand in a table of their own.
    """

    cells: Sequence[Cell] = ()
    means: Sequence[tuple[str, str]] = ()
    scales: Sequence[str] = ()
    far: Sequence[Cell] = ()


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
    cells = [
        cell for one in _scales(experiment, scale) for cell in chosen(kind_of(experiment).cells(experiment, one), words)
    ]
    console.print(Text(f"{experiment.name}: {experiment.text['title']} ({said_where(experiment.in_paper)})", "bold"))
    seen = Seen()
    if around.part.has_values(experiment):
        seen = _show_part(experiment, scale, words, work, console, around)
    if around.part.has_distances(experiment):
        far = show_distances(around.experiments, cells, console, lambda name: around.command(name, [SHOW]))
        seen = replace(seen, far=far)
    _show_pointers(whole, cells, words, seen, console, around)
    again = [LIST, *(["--scale", scale] if scale else []), *only_words(words)]
    point("how each cell stands, and how to go on", around.command(whole.name, again), console)


def _show_part(
    experiment: Experiment, scale: str | None, words: Sequence[str], work: Path, console: Console, around: Around
) -> Seen:
    """Tables of values, of the names alone that tables and figures of the paper have which were asked for by them.

    (A figure of distances beside them has all names, and its own table.)
    """
    part = around.part.of_values(experiment)
    if part != around.part and (said := elsewhere(experiment, part, words)):
        console.print(Text(said))
    within_part = within(words, part.only)
    every = [_asked(experiment, one, within_part, work) for one in reversed(experiment.results_scales)]
    asked = [one for one in every if scale in (None, one.scale)]
    if not any(one.cells for one in asked):
        return Seen()
    others = [one for one in every if one not in asked]
    return _show_values(experiment, asked, words, console, around, others, every=scale is not None)


def _scales(experiment: Experiment, scale: str | None) -> tuple[str, ...]:
    """Those that are shown, the paper's setting first."""
    return tuple(reversed(experiment.results_scales)) if scale is None else (scale,)


def _asked(experiment: Experiment, scale: str, words: Sequence[str], work: Path) -> Asked:
    cells = chosen(kind_of(experiment).cells(experiment, scale), words)
    return Asked(scale, cells, done_records(experiment, cells, work))


def _show_values(
    experiment: Experiment,
    asked: Sequence[Asked],
    words: Sequence[str],
    console: Console,
    around: Around,
    others: Sequence[Asked],
    *,
    every: bool,
) -> Seen:
    """Tables of what was run, and of what was asked for by words and was not.

    Args:
        experiment, asked: what of each scale.
        words: that it was asked for by.
        console: where to.
        around: the experiments beside it.
        others: what of each scale that is not shown, as another was asked for.
        every: a scale is shown, though nothing of it was run.
    """
    absent = _absent(experiment, asked) if words else {}
    means, idle, places = list[tuple[str, str]](), list[str](), list[dict[str, str]]()
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
            places += [dict(cell.point.place) for cell in one.cells if cell.key in one.done or cell.point.name in names]
        _show_longer(experiment, one, console, around, every=every)
        _say_cells("not run", [cell for cell in one.cells if cell.key not in one.done], console)
        here = {cell.point.name for cell in one.run}
        for other in others if words else ():
            run = [cell for cell in other.run if cell.point.name not in here]
            _say_cells(f"run at {other.scale} (leave --scale out)", run, console)
    for line in meanings([r for one in asked for r in one.done.values()], places, means):
        console.print(Padding(Text(line), (0, 0, 0, 2)))
    if any(figure == WORST_NAME for _, figure in means) and (page := page_of_words(experiment)):
        point("more of these", page, console)
    for line in idle:
        console.print(Text(line))
    return Seen([cell for one in asked for cell in one.run], means, [one.scale for one in asked if one.done])


def _show_longer(experiment: Experiment, one: Asked, console: Console, around: Around, *, every: bool) -> None:
    """What another experiment has trained for longer, below the table of those."""
    if not (one.done or every):
        return
    asked = _shown(experiment, one, [cell.key for cell in one.cells])
    told = list(after_longer_training(asked, around.experiments, every=every))
    if told:
        console.print(Text(f"    longer trainings: {around.command(LONGER[experiment.name], [SHOW])}"), soft_wrap=True)
    for place, figures in told:
        console.print(Text(f"    {place}:\n        {figures}"), soft_wrap=True)


def _none_of(experiment: Experiment, scale: str, words: Sequence[str]) -> str:
    """What to say of a scale that has no such cells: it has them with other seeds, or none of them, or there are none
    at all."""
    asked = [word.strip() for word in words if not is_seed(word)]
    start, named = f"{experiment.name} at {scale}", ", ".join(asked)
    if seeds := {cell.point.seed for cell in chosen(kind_of(experiment).cells(experiment, scale), asked)}:
        return f"{start} has {f'{named} with ' if asked else ''}seed {spans(seeds)} alone"
    there = asked and any(all(has(place.values(), word) for word in asked) for place in experiment.places())
    return f"{start} leaves out {named}" if there else f"{start} has no such cells"


def _absent(experiment: Experiment, asked: Sequence[Asked]) -> dict[str, list[str]]:
    """Places with a number of the paper's that were run at none of these scales: by the scale whose table they stand
    in, which is one that something was run of, if there is any."""
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
    experiment: Experiment, cells: Sequence[Cell], words: Sequence[str], seen: Seen, console: Console, around: Around
) -> None:
    """Where pictures, words and reasons of what is shown are, and what asks why ours differ."""
    figure = DISTANCES.get(experiment.name, "")
    pictures = _pictures(experiment, f"{figure}:", seen, around.part.captions)
    if len(pictures) == 1:
        point("picture", str(pictures[0]), console)
    elif pictures:
        console.print(Text("pictures:"))
        for path in pictures:
            console.print(Text(f"    {path}"), soft_wrap=True)
    page, has_values = page_of(experiment), around.part.has_values(experiment)
    if has_values and page:
        point("in words", page, console)
    if around.part.has_distances(experiment) and (distances := page_of_distances(experiment, figure)):
        point("distances in words" if has_values else "in words", distances, console)
    if has_reasons(experiment, seen.means) and (reasons := page_of_reasons(experiment)):
        point("where ours are worse, and why", reasons, console)
    if page and says_why_not_judged(experiment, seen.means):
        point("why the paper's numbers are not judged here", page, console)
    if figure and not around.part.has_distances(experiment):
        point("how far CW moves images", around.command(figure, [SHOW, *only_words(words)]), console)
    if seen.means:
        for asks in of_same_data(asking_about(experiment, around.experiments.values()), cells):
            point(f"why ours differ, {asks.text['title']}", around.command(asks.name, [SHOW]), console)


def _pictures(experiment: Experiment, distances: str, seen: Seen, captions: Sequence[str]) -> list[Path]:
    """Of what is shown: of means, and of distances where they were asked for.

    Args:
        experiment: whose.
        distances: how a caption of distances begins.
        seen: what is shown.
        captions: how those of what was asked for begin; none: all.
    """
    own = [caption for caption in captions if caption != distances]
    found = pictures_of(experiment, own, seen.cells, seen.scales) if seen.means and (own or not captions) else []
    far = pictures_of(experiment, [distances], seen.far, experiment.scales) if seen.far else []
    return found + [path for path in far if path not in found]


def _say_cells(what: str, cells: Sequence[Cell], console: Console) -> None:
    """What holds of these cells, by place, with their seeds; of very many places the first. Of none nothing."""
    places = dict[str, list[int]]()
    for cell in cells:
        places.setdefault(", ".join(cell.parts[:-1]), []).append(cell.point.seed)
    told = [f"{name} (seed {spans(seeds)})" for name, seeds in places.items()]
    more = [f"and {counted(len(told) - PLACES, 'place')} more"] if len(told) > PLACES else []
    if told:
        console.print(Padding(Text(f"{what}: {'; '.join([*told[:PLACES], *more])}"), (0, 0, 0, 2)))


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
    known = {cell.point.name for cell in one.cells if cell.key in new}
    names = [name for name in one.names if name in known or name in absent]
    figures = experiment.text["table"]["figures"]
    theirs = " (the paper's)" if experiment.of_paper else " (expected)"
    beside = any(experiment.paper(name, figure) for name in names for figure in figures)
    shown.add_column(f"ours{theirs if beside else ''}", justify="right", no_wrap=True)
    shown.add_column("seeds", justify="right")
    for name in names:
        records = [one.done[cell.key]["values"] for cell in one.run if cell.point.name == name]
        title = name
        for figure in figures:
            ours = [float(values[figure]) for values in records if values.get(figure) is not None]
            paper = experiment.paper(name, figure)
            if ours or (paper and name in absent):
                text = entry(ours, paper, digits_of(experiment, figure))
                shown.add_row(title, figure, text.replace("**", ""), str(len(ours)) if ours else NONE)
                title = ""
    return shown
