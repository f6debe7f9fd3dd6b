"""What an attack may know and do: one step or several; by the model's gradient, by that of a stand-in, or by none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gll.attacks.autoattack import AutoAttack
from gll.attacks.base import AbstractAttack
from gll.attacks.gradient import FGSM
from gll.attacks.seen import FEATURES
from gll.attacks.square import Square
from gll.attacks.store import Cell, Kind
from gll.attacks.transfer import AbstractView, Transfer

KINDS: dict[type[AbstractAttack], Kind] = {
    FGSM: Kind.SINGLE,
    Square: Kind.BLACK_BOX,
    Transfer: Kind.TRANSFER,
    AutoAttack: Kind.ENSEMBLE,
}

FOLLOW = (Kind.SINGLE, Kind.MULTI, Kind.ENSEMBLE)  # what the model that they are given says its gradient is


def kind_of(attack: AbstractAttack) -> Kind:
    """The kind of an attack; one that is not known follows the model's gradient in several steps.

    An attack that is made on another view of the model is of the kind it has without.

    >>> from gll.attacks.gradient import PGD
    >>> str(kind_of(FGSM(0.1))), str(kind_of(PGD(0.1))), str(kind_of(Square(0.1)))
    ('single step', 'multi-step', 'black box')
    """
    if isinstance(attack, AbstractView):
        return kind_of(attack.attack)
    return KINDS.get(type(attack), Kind.MULTI)


def is_stand_in(cell: Cell) -> bool:
    """Whether an attack follows another gradient than the model's own, while the model judges every iterate.

    These are other views of a graph, distances between features, sources that may ask the model, and the surrogate that
    lends WNLL its slope.
    """
    lent = cell.threat is not None and cell.threat["gradient"] != "own" and cell.kind in FOLLOW
    return lent or sees_otherwise(cell.attack, cell.settings)


def sees_otherwise(attack: str, settings: Mapping[str, Any]) -> bool:
    """Whether an attack with this name and these settings was made to follow another gradient than the model gives.

    >>> sees_otherwise("pgd with every class", {"every_class": 5}), sees_otherwise("pgd", {})
    (True, False)
    """
    views = settings.get("every_class") or settings.get("neighbours") == "fixed" or settings.get("asks")
    return bool(views) or attack == FEATURES


def is_own(cell: Cell) -> bool:
    """Whether an attack follows the model's own gradient."""
    return cell.kind in FOLLOW and not is_stand_in(cell)
