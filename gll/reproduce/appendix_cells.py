"""Cells of the paper's appendix B: one run, attacked in several ways that belong beside each other.

B.2: a run with a plain head is tested by a graph, and attacked by the gradient of either. B.3: CW for many values of c.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from gll.reproduce.attack_cells import require_attack
from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.kinds import AbstractKind, Outcome, Place
from gll.reproduce.train_cells import config_of, look_at_data, run_config, told_of, trained, unkeyed


class AbstractAttacked(AbstractKind):
    """Train a run, attack it once for each of `views`, and say what the figures are.

    Options: those of `gll attack`, with underscores; [run] is the config of the training.
    """

    views: ClassVar[Mapping[str, Mapping[str, Any]]]
    """Options of every attack, by the name of its folder."""

    @final
    def cells(self, experiment: Experiment, scale: str) -> list[Cell]:
        found = []
        for point in experiment.points(scale):
            options = {f"attack.{key}": value for key, value in point.options().items()}
            settings = {"kind": experiment.kind, **told_of(experiment, point), **options}
            found.append(Cell(experiment.name, scale, point, settings))
        return found

    @final
    def look(self, experiment: Experiment, cells: Sequence[Cell]) -> dict[str, str]:
        for cell in cells:
            with experiment.named(cell.point):
                require_attack(experiment, cell.point.options())
        return look_at_data(experiment, cells)

    @final
    def run(self, experiment: Experiment, cell: Cell, place: Place) -> Outcome:
        from gll.attacks.command import attack_run
        from gll.attacks.target import Request

        options = {k: tuple(v) if isinstance(v, list) else v for k, v in cell.point.options().items()}
        require_attack(experiment, options)
        run, _ = trained(run_config(experiment, cell, place), place)
        summaries, pictures = {}, dict[str, Path]()
        for name, view in self.views.items():
            out = place.folder / name.replace(" ", "-")
            asked: dict[str, Any] = {**options, **view, "seed": cell.point.seed, "device": place.device}
            request = Request(run.directory, **asked, out=out, resume=True)
            summaries[name] = attack_run(request, out, place.reporter, typed=False)
            if (out / "images.png").is_file():
                pictures[name.replace(" ", "-")] = out / "images.png"
        return Outcome(self.figures(summaries), {"summaries": summaries}, pictures=pictures)

    @final
    def unkeyed(self, experiment: Experiment, cell: Cell) -> dict[str, Any]:
        return unkeyed(experiment, cell)

    @final
    def settings(self, experiment: Experiment, cell: Cell) -> dict[str, Any]:
        from gll.reproduce.settings import all_settings, attack_settings

        asked = attack_settings({"": cell.point.options()})
        return {**cell.settings, **all_settings(config_of(experiment, cell.point)), **asked}

    @abstractmethod
    def figures(self, summaries: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
        """Errors in percent, by what the table calls them."""


@final
class HeadAtTestKind(AbstractAttacked):
    """A plain head, and a graph in its place at test time, attacked by the gradient of the plain head or by its own."""

    views: ClassVar = {
        "softmax": {},
        "GLL by softmax": {"head_at_test": "gll", "gradient_of": "mlp"},
        "GLL by GLL": {"head_at_test": "gll", "gradient_of": "gll"},
    }

    def figures(self, summaries: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
        from gll.attacks.tables import errors_at

        values: dict[str, float | None] = {}
        for name, summary in summaries.items():
            found = errors_at(summary, summary["table_eps_pixels"])
            tested, _, by = name.partition(" by ")
            values[tested] = _percent(found["natural"])
            for attack in ("FGSM", "IFGSM"):
                values[f"{tested}, {attack}" + (f" by {by}" if by else "")] = _percent(found[attack])
        return values


@final
class MoreCKind(AbstractAttacked):
    """CW in the paper's form: error and mean squared distance for every c."""

    views: ClassVar = {"attack": {"attacks": "cw-paper"}}

    def figures(self, summaries: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
        values: dict[str, float | None] = {}
        for group in summaries["attack"]["groups"]:
            for cell in group["attacks"]:
                values["natural"] = _percent(cell["natural"])
                c = f"{cell['settings']['c']:g}"
                values |= {f"c = {c}": _percent(cell["error"]), f"distance, c = {c}": cell["mean_squared_l2"]}
        return values


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
