"""What an attack may know and do, by its class: one step or several, with the model's gradient or without."""

from __future__ import annotations

from gll.attacks.autoattack import AutoAttack
from gll.attacks.base import AbstractAttack
from gll.attacks.gradient import FGSM
from gll.attacks.square import Square
from gll.attacks.store import Kind
from gll.attacks.transfer import AbstractView, Transfer

KINDS: dict[type[AbstractAttack], Kind] = {
    FGSM: Kind.SINGLE,
    Square: Kind.BLACK_BOX,
    Transfer: Kind.TRANSFER,
    AutoAttack: Kind.ENSEMBLE,
}


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
