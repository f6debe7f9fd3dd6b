"""Whose gradient an attack follows, and which neighbours it sees: what its result says of the attacker.

A model under attack has a threat model, which says what is in the graph that judges. An attack that is made elsewhere
(`transfer.py`, `features.py`), or without a gradient, follows something else there. It is known from the name and the
settings alone, so that it can be said of stored results, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gll.attacks.store import Cell
from gll.attacks.threat import Neighbours, ThreatModel

FEATURES = "features"  # the name of FeatureAttack
SQUARE = "square"  # and of Square, which may be made apart


def gradient_in_words(attack: str, settings: Mapping[str, Any]) -> str:
    """Whose gradient an attack with this name and these settings follows.

    >>> gradient_in_words("pgd", {}), gradient_in_words("fgsm from the mlp head", {"source": "the mlp head"})
    ('own', 'that of the mlp head')
    >>> gradient_in_words("square apart", {"seen": "apart"})
    'none'
    """
    if settings.get("source") is not None:
        return f"that of {settings['source']}"
    if attack.split(" ")[0] == SQUARE:
        return "none"
    if settings.get("every_class"):
        where = " in the graph of all queries" if settings.get("seen") == "jointly" else ""
        return f"own with base samples of every class in sight{where}"
    if settings.get("neighbours") == "fixed":
        return "own with the neighbours of the clean images"
    if settings.get("seen") == "apart":
        return "own with every query alone"
    return "that of distances between features" if attack == FEATURES else "own"


def seen_by(attack: str, settings: Mapping[str, Any], threat: ThreatModel) -> ThreatModel:
    """The threat model of a result: what is in the graph that judges, and what the attacker follows.

    Args:
        attack, settings: name and settings of the attack; `source` among them names another model that it follows.
        threat: of the model under attack. The slope that it lends itself from a surrogate is kept, unless the attack
            follows something else.

    >>> seen = seen_by("pgd with fixed neighbours", {"neighbours": "fixed"}, ThreatModel("10 samples"))
    >>> str(seen.neighbours), seen.gradient
    ('Neighbours.FIXED', 'own with the neighbours of the clean images')
    """
    gradient = gradient_in_words(attack, settings)
    fixed = settings.get("neighbours") == "fixed"
    lent = threat.gradient != "own" and (gradient == "own" or fixed or settings.get("seen") == "apart")
    return replace(
        threat,
        gradient=threat.gradient if lent and gradient != "none" else gradient,
        neighbours=Neighbours.FIXED if fixed else threat.neighbours,
    )


def threat_of(cell: Cell) -> ThreatModel | None:
    """What is in the graph that judges a cell, and what its attack follows; None for a model without a graph.

    The cell itself has the threat model of the model under attack alone, which is part of its key.
    """
    if cell.threat is None:
        return None
    return seen_by(cell.attack, cell.settings, ThreatModel.from_dict(dict(cell.threat)))


def threats_in_words(cells: Iterable[Cell]) -> list[str]:
    """What is in the graphs, a sentence each, with all gradients that were followed in it."""
    return followed_in_words(filter(None, map(threat_of, cells)))


def graphs_as_list(threats: Iterable[ThreatModel]) -> list[str]:
    """What is in the graphs of results, as lines of a list in Markdown: each graph, and the gradients followed there.

    >>> own = ThreatModel("10 samples", dtype="float64")
    >>> for line in graphs_as_list([own, own, replace(own, gradient="none")]):
    ...     print(line)
    - The base is 10 samples, left as it is; all attacked samples are nodes of one graph with it; neighbours are exact.
        - judged in float64; gradients followed:
            - own
            - none
    """
    graphs: dict[ThreatModel, dict[str, dict[str, None]]] = {}
    for threat in threats:
        same = replace(threat, gradient="own", neighbours=Neighbours.RECHOSEN, dtype="")
        graphs.setdefault(same, {}).setdefault(threat.dtype, {})[threat.gradient] = None
    lines = []
    for graph, precisions in graphs.items():
        lines.append(f"- {graph.in_the_graph()}.")
        for dtype, gradients in precisions.items():
            lines.append(f"    - judged in {dtype}; gradients followed:")
            lines += [f"        - {gradient}" for gradient in gradients]
    return lines


def followed_in_words(threats: Iterable[ThreatModel]) -> list[str]:
    """The same of what results say, as `seen_by` gives it."""
    followed: dict[ThreatModel, dict[str, None]] = {}
    for threat in threats:
        same = replace(threat, gradient="own", neighbours=Neighbours.RECHOSEN)
        followed.setdefault(same, {})[threat.gradient] = None
    return [replace(threat, gradient=", or ".join(names)).describe() for threat, names in followed.items()]
