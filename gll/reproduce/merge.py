"""Results that come from another folder of experiments, such as that of another machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console
from rich.text import Text

from gll.files import complete_file
from gll.reproduce.experiment import Experiment, ExperimentError
from gll.reproduce.kinds import kind_of
from gll.reproduce.records import FIELDS, Record, add_records, put_back, read_records
from gll.reproduce.taken import take_over
from gll.words import counted


def merge(experiments: Mapping[str, Experiment], folder: Path, console: Console) -> str:
    """Take results (and arrays) from another folder of experiments. Where something is wrong with it nothing is taken.

    Returns:
        What is to be said last: how many experiments have nothing new. Empty if all have.

    Raises:
        ExperimentError: there is nothing to take, or it belongs to another experiment.
    """
    if not any((folder / name / "results.json").is_file() for name in experiments):
        raise ExperimentError(
            f"{folder} has no results of any experiment; give a copy of the folder `experiments` of the other machine"
        )
    for unknown in sorted(path.parent.name for path in folder.glob("*/results.json")):
        if unknown not in experiments:
            console.print(Text(f"{unknown}: no experiment of this name is here; its results are left out"))
    results = {name: read_records(folder / name / "results.json") for name in experiments}
    for name, records in results.items():  # all, before the first is taken
        _require_whole(records.values(), name, folder / name / "results.json")
    news, same = 0, 0
    for name, experiment in experiments.items():
        found, other, path = results[name], folder / name, experiment.folder / "results.json"
        here = read_records(path)
        taken = add_records(path, found.values())
        now = read_records(path)
        new = {key[:8] for key, record in now.items() if here.get(key) != record}  # part of the names of arrays
        for array in sorted((other / "arrays").glob("*.*")):  # arrays and pictures
            kept = experiment.folder / "arrays" / array.name
            if not kept.is_file() or any(key in array.name for key in new):
                kept.parent.mkdir(exist_ok=True)
                with complete_file(kept) as part:
                    part.write_bytes(array.read_bytes())
        differ = sum(record["values"] != now[key]["values"] for key, record in found.items())
        if taken or differ:
            news += 1
            old = len(found) - taken
            but = f"; {differ} of these differ and are not later: ours stay" if differ else ""
            rest = f"{old} {'was' if old == 1 else 'were'} here already{but}"
            console.print(Text(f"{name}: {counted(taken, 'record')} taken, {rest}"))
        elif found:
            same += 1
    share(experiments, console)
    return f"{counted(same, 'other' if news else 'experiment')}: nothing new" if same else ""


def _require_whole(records: Iterable[Record], name: str, path: Path) -> None:
    """Raise where a record lacks something, or belongs to another experiment."""
    for record in records:
        if missing := [field for field in FIELDS if field not in record]:
            raise ExperimentError(f"{path} cannot be read: its record {record['key']} has no {missing[0]}")
        if record["experiment"] != name:
            raise ExperimentError(f"{path} holds records of {record['experiment']}, not of {name}")


def put_all_back(experiments: Mapping[str, Experiment], work: Path, console: Console) -> None:
    """Put finished cells of all experiments into results.json where they are missing there."""
    for name, experiment in experiments.items():
        cells = [cell for scale in experiment.scales for cell in kind_of(experiment).cells(experiment, scale)]
        if number := put_back(experiment, cells, work):
            said = f"{name}: {counted(number, 'record')} put back into results.json from {work}"
            console.print(Text(said), soft_wrap=True)


def share(experiments: Mapping[str, Experiment], console: Console) -> None:
    """Take over what some experiment has for the cells of another."""
    for name, experiment in experiments.items():
        cells = [cell for scale in experiment.scales for cell in kind_of(experiment).cells(experiment, scale)]
        taken = take_over(experiment, cells, read_records(experiment.folder / "results.json"))
        for origin, number in Counter(record["taken_from"] for record in taken).items():
            console.print(Text(f"{name}: {counted(number, 'record')} taken from {origin}, which has the same cells"))
