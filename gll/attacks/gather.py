"""All that a folder of results holds, in groups that are judged by the same classifier.

The worst case is taken over a group. The layer as it is used and the same in float64 with a tiny floor say the same
classes, and neither the gradient that an attacker follows nor the neighbours it sees change the verdict: attacks on all
of these stand in one group. A graph with another base, or with other queries beside the one under attack, says
something else, and makes a group of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gll.attacks.evaluate import Evaluation, Outcome, describe, in_norm
from gll.attacks.store import Cell, Kind, Store
from gll.attacks.threat import Inference, ThreatModel

FIRST = ("fgsm", "ifgsm", "cw-paper")  # the paper's columns, in their order
SEEN = ("dtype", "gradient", "neighbours")  # what an attacker makes of it, and the verdict does not depend on


def judged_by(cell: Cell) -> tuple[Any, ...]:
    """What the verdict of a cell depends on, beside the model: attacks that agree in it may be compared."""
    if cell.threat is None:
        return ()
    threat = ThreatModel.from_dict(dict(cell.threat))
    alone = threat.alone
    unseen = (*SEEN, "queries") if threat.inference is Inference.INDUCTIVE else SEEN
    known = tuple((name, value) for name, value in sorted(cell.threat.items()) if name not in unseen)
    return (*known, None if alone else cell.chunk)


def gather(store: Store, labels: NDArray[np.int64]) -> tuple[list[Evaluation], list[str]]:
    """Every finished cell of a folder, by what has judged it, the group with the most attacks last; and the others.

    Args:
        store: the folder.
        labels: the true classes of its samples.

    Returns:
        The groups, and in words the cells that are not finished.
    """
    groups: dict[tuple[Any, ...], list[Outcome]] = {}
    unfinished = []
    for cell in sorted(store.cells(), key=_place):
        chunks = store.chunks(cell)
        if not chunks or chunks[-1].stop != len(labels):
            unfinished.append(describe(cell.attack, cell.settings))
            continue
        groups.setdefault(judged_by(cell), []).append(Outcome(cell, chunks))
    found = []
    for outcomes in sorted(groups.values(), key=len):
        threat = outcomes[0].cell.threat
        found.append(
            Evaluation(labels, tuple(outcomes), None if threat is None else ThreatModel.from_dict(dict(threat)))
        )
    return found, unfinished


def _place(cell: Cell) -> tuple[Any, ...]:
    """The paper's attacks first, then those of each kind by name; smaller ε and c before larger ones."""
    name = cell.attack.split(" from ")[0]
    first = FIRST.index(name) if name in FIRST else len(FIRST)
    numbers = (in_norm(cell.settings), cell.settings.get("eps") or 0.0, cell.settings.get("c") or 0.0)
    return (first, list(Kind).index(cell.kind), cell.attack, str(cell.settings.get("objective")), *numbers, cell.key)
