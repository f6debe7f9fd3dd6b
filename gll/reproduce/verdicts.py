"""Is one model more robust than another? One rule, whichever way the answer falls.

Errors are in percent. With several seeds two means differ where Welch's t test says so at `LEVEL_OF_TEST` (of twenty
comparisons between equal heads, about one is then called a difference), and where they are further apart than `FEW`.
Three seeds show large differences only. With one seed nothing is known of their deviation: they differ *so far* where
they are further apart than two standard errors of a difference between two shares of that many samples.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

YES, LEVEL, WEAKER = "yes", "no difference", "weaker"
WORDS = {"lower": YES, "level": LEVEL, "higher": WEAKER}
"""Is ours more robust? By how its worst case compares."""
LEVEL_OF_TEST = 0.05
FEW = 0.5
"""Points: five samples of 1,000, which no verdict should hang on."""
ROUNDING = 1e-9
"""1.1 - 0.6 is more than 0.5 to a computer."""


def relation(ours: Sequence[float], theirs: Sequence[float], samples: int) -> str:
    """Lower, level or higher, by the rule above; it is the same the other way round.

    >>> relation([3.4, 3.5], [2.0, 2.1], 1000), relation([70.0, 90.0], [69.0, 72.0], 1000)
    ('higher', 'level')
    >>> relation([3.0, 3.0], [3.3, 3.3], 1000), relation([7.9], [7.3], 1000), relation([26.5], [57.5], 1000)
    ('level', 'level', 'lower')
    >>> relation([1.1, 1.1], [0.6, 0.6], 1000)  # exactly half a point
    'level'
    """
    away = statistics.fmean(ours) - statistics.fmean(theirs)
    room = FEW
    if min(len(ours), len(theirs)) == 1:
        spread = [statistics.stdev(one) for one in (ours, theirs) if len(one) > 1]
        room = max(room, *spread, noise(statistics.fmean(ours), statistics.fmean(theirs), samples))
    elif chance(ours, theirs) >= LEVEL_OF_TEST:
        return "level"
    if abs(away) <= room + ROUNDING:
        return "level"
    return "lower" if away < 0 else "higher"


def noise(one: float, other: float, samples: int, others: int | None = None) -> float:
    """Two standard errors of the difference between two errors in percent, each of so many samples; or of `others`.

    >>> round(noise(2.4, 1.29, 1000), 2), round(noise(2.4, 1.29, 10_000), 2), round(noise(2.4, 1.29, 1000, 10_000), 2)
    (1.2, 0.38, 0.99)
    """
    shares = [min(max(error / 100, 0.0), 1.0) for error in (one, other)]
    parts = zip(shares, (samples, others or samples), strict=True)
    return 200 * math.sqrt(sum(share * (1 - share) / n for share, n in parts))


def chance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How often seeds of two equal heads would lie at least so far apart: p of Welch's t test, two-sided.

    Where neither deviates from seed to seed there is nothing to test: 0 if they differ, else 1.

    >>> round(chance([1.0, 2.0, 3.0], [3.0, 4.0, 5.0]), 4)
    0.0705
    >>> chance([3.0, 3.0], [4.0, 4.0]), chance([3.0, 3.0], [3.0, 3.0])
    (0.0, 1.0)
    """
    from scipy.stats import ttest_ind_from_stats

    # By means and deviations: scipy warns of a list of equal numbers, and one is no trouble here.
    stats = [(statistics.fmean(one), statistics.stdev(one), len(one)) for one in (ours, theirs)]
    if stats[0][1] == stats[1][1] == 0.0:
        return float(stats[0][0] == stats[1][0])
    return float(ttest_ind_from_stats(*stats[0], *stats[1], equal_var=False).pvalue)


def interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Where the difference of two means, ours less theirs, lies by Welch's test: what it does not exclude.

    >>> [round(end, 1) for end in interval([1.0, 2.0, 3.0], [3.0, 4.0, 5.0])]  # 0 is in it, as `chance` is above 0.05
    [-4.3, 0.3]
    >>> interval([3.0, 3.0], [4.0, 4.0])
    (-1.0, -1.0)
    """
    from scipy.stats import t

    # From variances, as in `chance`: scipy's own interval takes the lists, and warns of one of equal numbers.
    away = statistics.fmean(ours) - statistics.fmean(theirs)
    parts = [(statistics.variance(one) / len(one), len(one) - 1) for one in (ours, theirs)]
    both = sum(part for part, _ in parts)
    if both == 0.0:
        return away, away
    freedom = both**2 / sum(part**2 / left for part, left in parts)
    room = float(t.ppf(1 - LEVEL_OF_TEST / 2, freedom)) * math.sqrt(both)
    return away - room, away + room


def judged(relations: Mapping[str, str]) -> str:
    """Is ours more robust than the others? One word where all of them say the same.

    >>> judged({"a linear layer": "higher", "an MLP": "higher"})
    'weaker'
    >>> judged({"a linear layer": "level", "an MLP": "lower"})
    'no difference beside a linear layer, yes beside an MLP'
    """
    groups: dict[str, list[str]] = {}
    for name, found in relations.items():
        groups.setdefault(WORDS[found], []).append(name)
    if len(groups) == 1:
        return next(iter(groups))
    return ", ".join(f"{word} beside {' and '.join(names)}" for word, names in groups.items())


def so_far(answer: str, seeds: int, samples: int) -> str:
    """The answer as it may be given by so many seeds.

    >>> so_far("yes", 3, 1000), so_far("yes", 1, 1000)
    ('yes', 'so far yes')
    >>> so_far("no difference", 1, 1000)
    'no difference that 1,000 samples and one seed could show'
    """
    if seeds > 1:
        return answer
    return f"{LEVEL} that {samples:,} samples and one seed could show" if answer == LEVEL else f"so far {answer}"
