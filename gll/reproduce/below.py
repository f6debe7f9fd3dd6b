"""What stands below the tables of `gll reproduce NAME --show`: what was trained for longer, what words mean, and where
to look next."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gll.reproduce.drawn import read_drawn
from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import Record
from gll.reproduce.tables import (
    ONE_LAYER,
    WORST_NAME,
    Shown,
    attacked_at,
    digits_of,
    entry,
    said_of_figures,
    said_of_rows,
)
from gll.reproduce.worse import NAME, read_reasons

REASONS = "Where ours are worse, and why"
MARK = "\n<!-- experiment {} -->\n"  # as in docs/reproduce.md, see `tables.pages`
LONGER = {"adversarial": "attack-length"}
"""By experiment, the one that has some of its heads after a longer training."""
WEAK = ("FGSM", "IFGSM", "CW")
"""Of which a longer training is told, as the paper has them; all others stand in that experiment."""
WORST = "*worst case*: what any of several strong attacks fools; *transfer*: those of them alone made on another model"
TIMED = f"*mlp*: {ONE_LAYER} takes times"
SCALE = re.compile(r"[,;] (smoke|small|full)\b")
"""In the caption of a picture, that of what is drawn."""
UNJUDGED = "not judged"
"""Words of a config.toml, and so of the page, that say why means are not counted as lower or higher."""


def point(what: str, where: str, console: Console) -> None:
    """What is where: in a line if it fits, else the place on a line of its own, as it is to be copied."""
    if len(f"{what}: {where}") <= console.width:
        console.print(Text(f"{what}: {where}"), soft_wrap=True)
    else:
        console.print(Text(f"{what}:"))
        console.print(Text(f"    {where}"), soft_wrap=True)


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
    return _section(experiment, "claim-by-claim.md", REASONS)


def page_of_distances(experiment: Experiment, figure: str) -> str:
    """The page that says in words what this figure of the paper shows here; empty where there is none."""
    return _section(experiment, "claim-by-claim.md", figure.capitalize())


def page_of_words(experiment: Experiment) -> str:
    """The page that says what a worst case is; empty where there is none."""
    return _section(experiment, "robustness.md", "How to read the figures")


def _section(experiment: Experiment, name: str, heading: str) -> str:
    page = experiment.folder.parent.parent / "docs" / name
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    return f"{page}, section {heading}" if re.search(rf"^##+ {heading}$", text, re.MULTILINE) else ""


def has_reasons(experiment: Experiment, means: Collection[tuple[str, str]]) -> bool:
    """Whether that page has one for a mean that is shown, by place and figure: else it says nothing of these."""
    reasons = read_reasons(experiment.folder.parent / NAME)
    own = [reason for reason in reasons if reason.experiment == experiment.name]
    return any(place in reason.places and figure in reason.figures for reason in own for place, figure in means)


def says_why_not_judged(experiment: Experiment, means: Iterable[tuple[str, str]]) -> bool:
    """Whether the page says why these means are not judged by the paper's; not where there is nothing to judge."""
    told = experiment.is_in_paper and UNJUDGED in experiment.about
    return told and any(experiment.paper(place, figure) for place, figure in means)


def pictures_of(
    experiment: Experiment, captions: Sequence[str], cells: Iterable[Cell], scales: Collection[str]
) -> list[Path]:
    """Pictures of an experiment, in the paper's order, that show some of these cells.

    Args:
        experiment: whose.
        captions: how their captions begin; none: all.
        cells: that are shown; a picture may be of one name on an axis alone, and is then called after it.
        scales: that are shown; its caption says of which it is, if that is one.
    """
    if "figure" not in experiment.text["table"]:
        return []
    folder, start = experiment.folder.parent.parent / "docs" / "figures", f"reproduce-{experiment.name}"
    known = {name for axis in experiment.text["axes"].values() for name in axis}
    left_out = known - {name for cell in cells for _, name in cell.point.place}
    return [
        folder / name
        for name, told in read_drawn(folder).items()
        if name.startswith((f"{start}.", f"{start}-"))
        and (not captions or told["caption"].startswith(tuple(captions)))
        and not left_out.intersection(Path(name).stem.removeprefix(start).split("-"))
        and set(SCALE.findall(told["caption"])) <= set(scales)
    ]


def of_same_data(experiments: Iterable[Experiment], cells: Iterable[Cell]) -> list[Experiment]:
    """Those of these experiments that have cells of the same data, as one about MNIST explains nothing elsewhere."""
    asked = {cell.point.data for cell in cells}
    return [one for one in experiments if asked & _data_of(one)]


def _data_of(experiment: Experiment) -> set[str]:
    kind = kind_of(experiment)
    return {cell.point.data for scale in experiment.results_scales for cell in kind.cells(experiment, scale)}


def after_longer_training(
    shown: Shown, experiments: Mapping[str, Experiment], *, every: bool
) -> Iterator[tuple[str, str]]:
    """What each head has after the longest training of another experiment, as most of what is shown here may come from
    a short one: which training, and its figures.

    Args:
        shown: places that were asked for.
        experiments: all that there are.
        every: also where nothing was run at this scale; longer is then what another scale has less of.
    """
    name = LONGER.get(shown.experiment.name)
    if name is None or name not in experiments:
        return
    from gll.reproduce.natural import longer_trained
    from gll.reproduce.protocol import Group

    axes, length = shown.experiment.text["axes"], Shown(experiments[name], experiments[name].results_scales[-1])
    others = [Shown(shown.experiment, scale) for scale in shown.experiment.results_scales] if every else []
    for data, training in itertools.product(axes["data"], axes["training"]):
        groups = [Group(one, data, training) for one in (shown, *others)]
        group = next((group for group in groups if group.records), None)
        found = {figure: longer_trained(group, length, figure) if group else {} for figure in WEAK}
        for head in (
            head for head in axes["head"] if {"data": data, "head": head, "training": training} in shown.places
        ):
            every_figure = [epochs for epochs in found[WEAK[0]] if all(head in found[f].get(epochs, ()) for f in WEAK)]
            epochs = max(every_figure, default=None)
            if epochs is not None:
                place = f"{data}, {head}, {training}"
                ours = {figure: by_epochs[epochs][head] for figure, by_epochs in found.items()}
                told = [f"{figure} {_entry(shown.experiment, place, figure, ours[figure])}" for figure in WEAK]
                yield f"{place}, {epochs} epochs", ", ".join(told)


def _entry(experiment: Experiment, place: str, figure: str, ours: Sequence[float]) -> str:
    return entry(ours, experiment.paper(place, figure), digits_of(experiment, figure)).replace("**", "")


def meanings(
    records: Iterable[Record], places: Collection[Mapping[str, str]], means: Iterable[tuple[str, str]]
) -> list[str]:
    """What rows and figures are, in the words of the pages, where their names do not say it.

    Args:
        records, places: that are shown; some places may have no record.
        means: of these, by place and figure.
    """
    figures = list(dict.fromkeys(figure for _, figure in means))
    said = _attacked_at(records) if set(WEAK) & set(figures) else []
    said += [WORST] if WORST_NAME in figures else []
    said += [*said_of_figures(figures, places), *said_of_rows(places)]
    said += [TIMED] if any("mlp" in figure for figure in figures) else []
    return [text.replace("*", "") for text in said]


def _attacked_at(records: Iterable[Record]) -> list[str]:
    """By the radius of the paper's table, and its c, the data sets that it attacks there."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        if (summary := record["more"].get("summary", {})).get("groups"):
            found.setdefault(attacked_at(summary), {})[summary["run"]["data"]] = None
    columns = " and ".join((", ".join(WEAK[:-1]), WEAK[-1]))
    return [f"{columns}, as in the paper's table, at {at} ({', '.join(data)})" for at, data in found.items()]
