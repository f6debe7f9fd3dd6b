"""Cells that count the parameters of a network and of the head that the paper puts on it."""

from __future__ import annotations

from typing import final

from gll.reproduce.experiment import Cell, Experiment
from gll.reproduce.kinds import AbstractSimple, Outcome, Place


@final
class ParametersKind(AbstractSimple):
    """Options: `encoder`, `channels`, `classes`, and `hidden`, the size of a head of one hidden layer (0: the paper's
    of three, D-D-128-32-C)."""

    needed = ("encoder", "channels", "classes", "hidden")

    def run(self, experiment: Experiment, cell: Cell, place: Place) -> Outcome:
        from gll.nn.encoders import create_encoder
        from gll.nn.heads import create_head

        o = cell.point.options()
        encoder = create_encoder(o["encoder"], in_channels=o["channels"])
        options = {"hidden": o["hidden"]} if o["hidden"] else {}
        head = create_head("mlp", encoder.feature_dim, o["classes"], **options)
        counts = {name: sum(p.numel() for p in m.parameters()) for name, m in (("encoder", encoder), ("head", head))}
        return Outcome({**counts, "total": sum(counts.values())})
