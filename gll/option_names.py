"""What options of the command line may be, where only a few names are meant."""

from __future__ import annotations

import enum


class EpsUnits(enum.StrEnum):
    """What --eps-units may be."""

    PIXELS = "pixels"
    NORMALISED = "normalised"


class NormName(enum.StrEnum):
    """What --norm may be."""

    LINF = "linf"
    L2 = "l2"


class QueriesName(enum.StrEnum):
    """What --queries may be."""

    JOINT = "joint"
    ALONE = "alone"


class MetricName(enum.StrEnum):
    """What --metric may be."""

    EUCLIDEAN = "euclidean"
    COSINE = "cosine"
    PRECOMPUTED = "precomputed"


class UnreachedName(enum.StrEnum):
    """What --unreached may be."""

    UNIFORM = "uniform"
    NEAREST = "nearest"
    RAISE = "raise"


class ScaleName(enum.StrEnum):
    """What --scale may be."""

    SMOKE = "smoke"
    SMALL = "small"
    FULL = "full"
