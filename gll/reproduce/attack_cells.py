"""Cells that train a run and attack it: `gll train`, then `gll attack`, in the cell's folder.

One run can be attacked in several ways, on other samples or in another graph: options with a name in front, such as
`[options.small] samples = 1000`, are a *part*, an attack of its own beside the options that all parts share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from gll.names import require_options
from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.kinds import AbstractKind, Outcome, Place
from gll.reproduce.tables import BY_ITS_GRAPH
from gll.reproduce.train_cells import config_of, look_at_data, run_config, told_of, trained, unkeyed

if TYPE_CHECKING:
    from gll.attacks.target import Request


@final
class AttackKind(AbstractKind):
    """Options: those of `gll attack`, with underscores; [run] is the config of the training."""

    def cells(self, experiment: Experiment, scale: str) -> list[Cell]:
        return [
            Cell(experiment.name, scale, point, {**told_of(experiment, point), **_named(point.options())})
            for point in experiment.points(scale)
        ]

    def look(self, experiment: Experiment, cells: Sequence[Cell]) -> dict[str, str]:
        for cell in cells:
            with experiment.named(cell.point):
                for options in parts_of(cell.point.options()).values():
                    require_attack(experiment, options)
        return look_at_data(experiment, cells)

    def run(self, experiment: Experiment, cell: Cell, place: Place) -> Outcome:
        from gll.attacks.command import attack_run
        from gll.attacks.tables import merged
        from gll.attacks.target import Request

        parts = parts_of(cell.point.options())
        for options in parts.values():
            require_attack(experiment, options)
        run, result = trained(run_config(experiment, cell, place), place)
        values: dict[str, float | None] = {}
        joint: list[dict[str, Any]] = []
        apart: dict[str, dict[str, Any]] = {}
        pictures: dict[str, Path] = {}
        for name, options in parts.items():
            out = place.folder / ("attack" if not name else f"attack-{name}")
            request = Request(run.directory, **options, out=out, resume=True, seed=cell.point.seed, device=place.device)
            summary = attack_run(request, out, place.reporter, typed=False)
            if (out / "images.png").is_file():
                pictures[name or "attack"] = out / "images.png"
            for figure, value in figures(summary, request).items():
                if values.get(figure) is None:  # the first part that has it
                    values[figure] = value
            if graph_of(request) or followed_by(request):
                apart[name] = summary
            else:
                joint.append(summary)
        values["test"] = None if result["error"] is None else 100 * result["error"]
        return Outcome(values, ({"summary": merged(joint)} if joint else {}) | apart, pictures=pictures)

    def unkeyed(self, experiment: Experiment, cell: Cell) -> dict[str, Any]:
        return unkeyed(experiment, cell)

    def settings(self, experiment: Experiment, cell: Cell) -> dict[str, Any]:
        from gll.reproduce.settings import all_settings, attack_settings

        asked = attack_settings(parts_of(cell.point.options()))
        return {**cell.settings, **all_settings(config_of(experiment, cell.point)), **asked}


def require_attack(experiment: Experiment, options: Iterable[str]) -> None:
    """Raise where `gll attack` has no such option."""
    from gll.attacks.target import Request

    require_options("attack of", experiment.name, options, [f.name for f in fields(Request)])


def parts_of(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each part asks for; one part without a name where none has one.

    >>> parts_of({"base": 100, "small.attacks": "strong", "small.samples": 50, "large.attacks": "fgsm"})
    {'small': {'base': 100, 'attacks': 'strong', 'samples': 50}, 'large': {'base': 100, 'attacks': 'fgsm'}}
    >>> parts_of({"attacks": "fgsm"})
    {'': {'attacks': 'fgsm'}}
    """
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    shared = {key: value for key, value in plain.items() if "." not in key}
    names = dict.fromkeys(key.partition(".")[0] for key in plain if "." in key)
    found = {
        name: shared | {key.partition(".")[2]: value for key, value in plain.items() if key.startswith(f"{name}.")}
        for name in names
    }
    return found or {"": shared}


def graph_of(request: Request) -> str:
    """What the names of figures have behind them, where attacked samples do not share a graph."""
    return ", inductive" if request.inductive else "" if request.joint else ", alone"


def followed_by(request: Request) -> str:
    """What the names of figures have behind them, where WNLL is not attacked by the gradient it was trained by."""
    from gll.attacks.target import GRAPH

    return BY_ITS_GRAPH if request.gradient_of == GRAPH else ""


def figures(summary: Mapping[str, Any], request: Request) -> dict[str, float | None]:
    """Errors in percent at the ε and c of the paper's table; or, if other ε were given, at each as a multiple of the
    first.

    A worst case over the model's own gradients alone is none. An own c of CW, given beside that of the table, has a
    figure of its own.
    """
    from gll.attacks.tables import errors_at, in_earnest

    behind, found = followed_by(request) + graph_of(request), dict[str, float | None]()
    unit = summary["unit"] if request.normalised else 1
    of_table = summary["table_eps_pixels"] / unit
    alone = len(request.eps) == 1 and math.isclose(request.eps[0], of_table)
    for eps in request.eps or (of_table,):
        errors = errors_at(summary, eps * unit)
        if not in_earnest(summary, eps * unit):
            errors["worst case"] = None
        where = f" at {eps / request.eps[0]:g}x" if request.eps and not alone else ""
        found |= {f"{name}{'' if name == 'natural' else where}{behind}": share for name, share in errors.items()}
    own_c = [c for c in request.c if c != summary["table_c"]]
    attacks = [cell for group in summary["groups"] for cell in group["attacks"] if cell["attack"] == "cw-paper"]
    by_c = {cell["settings"]["c"]: cell["error"] for cell in attacks}
    found |= {f"CW, c = {c:g}{behind}": by_c[c] for c in own_c if c in by_c}
    if followed_by(request):  # beside what the part before has found: only what differs from it
        found = {name: share for name, share in found.items() if share is not None and not name.startswith("natural")}
    return {name: None if share is None else 100 * share for name, share in found.items()}


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    return {f"attack.{key}": value for key, value in options.items()}
