"""Attacks: how wrong a model can be made by small changes of its images, and whether that figure can be trusted."""

from gll.attacks.base import AbstractAttack, Attacked
from gll.attacks.carlini_wagner import CarliniWagner, CarliniWagnerPaper
from gll.attacks.gradient import FGSM, IFGSM, PGD
from gll.attacks.norms import L2, AbstractNorm, LInf
from gll.attacks.objectives import DLR, AbstractObjective, CrossEntropy, Margin, Towards
from gll.attacks.square import Square
from gll.attacks.units import Normalised

__all__ = [
    "DLR",
    "FGSM",
    "IFGSM",
    "L2",
    "PGD",
    "AbstractAttack",
    "AbstractNorm",
    "AbstractObjective",
    "Attacked",
    "CarliniWagner",
    "CarliniWagnerPaper",
    "CrossEntropy",
    "LInf",
    "Margin",
    "Normalised",
    "Square",
    "Towards",
]
