"""What stands below the tables of `gll reproduce NAME --show`: what was trained for longer, and where to look next."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gll.reproduce.drawn import read_drawn
from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.kinds import kind_of
from gll.reproduce.tables import Shown, digits_of, entry
from gll.reproduce.worse import NAME, read_reasons

REASONS = "Where ours are worse, and why"
MARK = "\n<!-- experiment {} -->\n"  # as in docs/reproduce.md, see `tables.pages`
LONGER = {"adversarial": "attack-length"}
"""By experiment, the one that has some of its heads after a longer training."""
FIGURE = "FGSM"
"""Of which a longer training is told; all others stand in that experiment."""
UNJUDGED = "not judged"
"""Words of a config.toml, and so of the page, that say why means are not counted as lower or higher."""


def point(what: str, where: str, console: Console) -> None:
    """What is where: in a line if it fits, else the place on a line of its own, as it is to be copied."""
    if len(f"{what}: {where}") <= console.width:
        console.print(Text(f"{what}: {where}"), soft_wrap=True)
    else:
        console.print(Text(f"{what}:"))
        console.print(Text(f"    {where}"), soft_wrap=True)


def results_scales(experiment: Experiment) -> tuple[str, ...]:
    """Those whose figures mean something."""
    return tuple(scale for scale in experiment.scales if scale != "smoke")


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


def has_reasons(experiment: Experiment, means: Collection[tuple[str, str]]) -> bool:
    """Whether that page has one for a mean that is shown, by place and figure: else it says nothing of these."""
    reasons = read_reasons(experiment.folder.parent / NAME)
    own = [reason for reason in reasons if reason.experiment == experiment.name]
    return any(place in reason.places and figure in reason.figures for reason in own for place, figure in means)


def says_why_not_judged(experiment: Experiment, means: Iterable[tuple[str, str]]) -> bool:
    """Whether the page says why these means are not judged by the paper's; not where there is nothing to judge."""
    told = experiment.is_in_paper and UNJUDGED in experiment.about
    return told and any(experiment.paper(place, figure) for place, figure in means)


def pictures_of(experiment: Experiment, captions: Sequence[str], cells: Iterable[Cell]) -> list[Path]:
    """Pictures of an experiment, in the paper's order, that show some of these cells.

    Args:
        experiment: whose.
        captions: how their captions begin; none: all.
        cells: that were asked for; a picture may be of one name on an axis alone, and is then called after it.
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
    ]


def of_same_data(experiments: Iterable[Experiment], cells: Iterable[Cell]) -> list[Experiment]:
    """Those of these experiments that have cells of the same data, as one about MNIST explains nothing elsewhere."""
    asked = {cell.point.data for cell in cells}
    return [one for one in experiments if asked & _data_of(one)]


def _data_of(experiment: Experiment) -> set[str]:
    kind = kind_of(experiment)
    return {cell.point.data for scale in results_scales(experiment) for cell in kind.cells(experiment, scale)}


def after_longer_training(shown: Shown, experiments: Mapping[str, Experiment]) -> Iterator[str]:
    """In a line for each data set and training: what its first head has after the longest training of another
    experiment, as most of what is shown here may come from a short one."""
    name = LONGER.get(shown.experiment.name)
    if name is None or name not in experiments:
        return
    from gll.reproduce.natural import longer_trained
    from gll.reproduce.protocol import Group

    axes, length = shown.experiment.text["axes"], Shown(experiments[name], results_scales(experiments[name])[-1])
    for data, training in itertools.product(axes["data"], axes["training"]):
        group = Group(shown, data, training)
        found = longer_trained(group, length, FIGURE) if group.records else {}
        for head in list(group.records)[:1]:
            if after := {epochs: heads[head] for epochs, heads in found.items() if head in heads}:
                place, epochs = f"{data}, {head}, {training}", max(after)
                ours = entry(after[epochs], shown.experiment.paper(place, FIGURE), digits_of(shown.experiment, FIGURE))
                short = group.epochs.removesuffix(" epochs")
                yield f"{place}, after {epochs} epochs in place of {short}: {FIGURE} {ours.replace('**', '')}"
