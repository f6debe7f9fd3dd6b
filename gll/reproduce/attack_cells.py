"""Cells that train a run and attack it: `gll train`, then `gll attack`, in the cell's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, final

from gll.names import require_options
from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.kinds import AbstractKind, Outcome, Place
from gll.reproduce.train_cells import config_of, run_config, told, trained


@final
class AttackKind(AbstractKind):
    """Options: those of `gll attack`, with underscores; [run] is the config of the training."""

    def cells(self, experiment: Experiment, scale: str) -> list[Cell]:
        return [
            Cell(experiment.name, scale, point, {**told(config_of(experiment, point)), **_named(point.options())})
            for point in experiment.points(scale)
        ]

    def run(self, experiment: Experiment, cell: Cell, place: Place) -> Outcome:
        from gll.attacks.command import attack_run
        from gll.attacks.target import Request

        options: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in cell.point.options().items()
        }
        require_options("attack of", experiment.name, options, [f.name for f in fields(Request)])
        run, result = trained(run_config(experiment, cell, place), place)
        out = place.folder / "attack"
        request = Request(run.directory, **options, out=out, resume=True, seed=cell.point.seed, device=place.device)
        summary = attack_run(request, out, place.reporter)
        return Outcome(figures(summary, result), {"summary": summary})


def figures(summary: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, float | None]:
    """Errors in percent at the ε and c of the paper's table, ours beside them, and the plain test error of the run."""
    from gll.attacks.tables import errors_at

    found = errors_at(summary, summary["table_eps_pixels"])
    values = {name: None if share is None else 100 * share for name, share in found.items()}
    return {**values, "test": None if result["error"] is None else 100 * result["error"]}


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    return {f"attack.{key}": value for key, value in options.items()}
