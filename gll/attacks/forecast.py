"""What is going to be attacked with, before it begins, and about how long that takes, once the first chunk is done.

Time is counted in passes: a prediction of the model is one, a prediction with its gradient three. How long a pass takes
is known after the first chunk. AutoAttack goes on with what is still right, so that its passes are the most it takes:
its time is measured apart, and stands for others only until one of them is done. Graphs differ in size, so it is a
rough figure, not a promise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from gll.attacks.autoattack import TARGETS, VERSIONS, AutoAttack
from gll.attacks.base import AbstractAttack
from gll.attacks.carlini_wagner import CarliniWagner, CarliniWagnerPaper
from gll.attacks.evaluate import describe, in_norm
from gll.attacks.features import FeatureAttack
from gll.attacks.gradient import FGSM, IFGSM, PGD
from gll.attacks.square import Square
from gll.attacks.transfer import AbstractMadeElsewhere, AbstractView, Transfer
from gll.train.progress import Reporter, clock

GRADIENT = 3  # passes that a gradient takes
RANDOM_DRAWS = 20  # gradients that AutoAttack averages for a model that answers at random
KEEP_THE_BEST = (PGD, CarliniWagner)  # these look at every iterate
EVERY = 60.0  # seconds of attacks between two forecasts
LONG = 30 * 60.0  # seconds that are worth a word about how to do with fewer


def _autoattack(s: Mapping[str, Any]) -> float:
    targets, draws = TARGETS, RANDOM_DRAWS if s["version"] == "rand" else 1
    # For each step; FAB asks for a prediction beside every gradient.
    passes = {"apgd-ce": draws * GRADIENT, "apgd-dlr": draws * GRADIENT, "apgd-t": targets * GRADIENT}
    passes["fab-t"] = targets * (GRADIENT + 1)
    parts = VERSIONS[s["version"]]
    return float(sum(passes.get(part, 0) for part in parts) * s["steps"] + s["queries"] * ("square" in parts))


PASSES: dict[type[AbstractAttack], Callable[[Mapping[str, Any]], float]] = {
    FGSM: lambda s: GRADIENT,
    IFGSM: lambda s: GRADIENT * s["steps"],
    PGD: lambda s: GRADIENT * s["steps"] * s["restarts"] * max(1, s["targets"]),
    CarliniWagnerPaper: lambda s: GRADIENT * s["steps"],
    CarliniWagner: lambda s: GRADIENT * s["steps"] * (s["binary_steps"] + s["refine"] + 1),
    FeatureAttack: lambda s: (GRADIENT + 1) * s["steps"] * s["targets"],  # every iterate is looked at
    Square: lambda s: s["queries"],
    AutoAttack: _autoattack,
}


def passes_of(attack: AbstractAttack) -> float | None:
    """How many passes an attack takes at the most; None for one that is not known.

    >>> passes_of(PGD(0.1, steps=10, restarts=2)), passes_of(Square(0.1, queries=50))
    (60.0, 50.0)
    >>> from gll.attacks.transfer import EveryClass
    >>> passes_of(EveryClass(PGD(0.1, steps=10)))
    40.0
    """
    if isinstance(attack, AbstractMadeElsewhere):
        inner = passes_of(attack.attack)
        judged = isinstance(attack, AbstractView) or (isinstance(attack, Transfer) and attack.asks)
        if inner is None or not judged or not isinstance(attack.attack, KEEP_THE_BEST):
            return inner
        return inner + inner / GRADIENT  # the model under attack judges every iterate of its stand-in
    count = PASSES.get(type(attack))
    return None if count is None else float(count(attack.settings()))


def stops_early(attack: AbstractAttack) -> bool:
    """Whether an attack leaves samples that it has fooled, so that it takes fewer passes than `passes_of` says."""
    inner = attack.attack if isinstance(attack, AbstractMadeElsewhere) else attack
    return isinstance(inner, AutoAttack)


def outline(attacks: Sequence[AbstractAttack]) -> list[str]:
    """Attacks in words, those that differ in ε or c alone in one line.

    >>> outline([FGSM(0.1), FGSM(0.2), Square(0.1, queries=50)])
    ['fgsm, CrossEntropy: eps 0.1, 0.2', 'square, 50 queries: eps 0.1']
    """
    lines: dict[str, list[str]] = {}
    for attack in attacks:
        settings = attack.settings()
        where = next((key for key in ("eps", "c") if settings.get(key) is not None), None)
        rest = {key: value for key, value in settings.items() if key != where}
        # The steps of IFGSM follow from ε.
        rest = {key: value for key, value in rest.items() if not (key == "steps" and "alpha" in settings)}
        text = describe(attack.name, rest) + (f": {where}{in_norm(settings)}" if where else "")
        values = lines.setdefault(text, [])
        values += [f"{settings[where]:.4g}"] if where else []
    return [f"{text} {', '.join(values)}".rstrip() for text, values in lines.items()]


@final
class Forecast:
    """Says how long all attacks will take together, after the first chunk, and again now and then.

    Args:
        attacks: all that are to come, and how many samples of each are not attacked yet.
        reporter: where to say it.
        shorter: how it would take less time; said once, where it takes long.
    """

    def __init__(self, attacks: Sequence[tuple[AbstractAttack, int]], reporter: Reporter, shorter: str = "") -> None:
        self._left = {id(attack): (passes_of(attack) or 0.0) * samples for attack, samples in attacks}
        self._stops_early = {id(attack): stops_early(attack) for attack, _ in attacks}
        self._unknown = sum(passes_of(attack) is None for attack, _ in attacks)
        self._reporter, self._shorter = reporter, shorter
        self._passes = {True: 0.0, False: 0.0}  # of attacks that stop early, and of all others
        self._seconds = {True: 0.0, False: 0.0}
        self._said = 0.0

    @property
    def seconds_left(self) -> float:
        """About how long it takes from here."""
        return sum(left * self._pace(self._stops_early[attack]) for attack, left in self._left.items())

    def _pace(self, early: bool) -> float:
        """Seconds of a pass: as measured of attacks that stop early or do not; of the others where there is none."""
        known = next((kind for kind in (early, not early) if self._passes[kind]), None)
        return 0.0 if known is None else self._seconds[known] / self._passes[known]

    def after(self, attack: AbstractAttack, samples: int, seconds: float) -> None:
        """A chunk was attacked: that many samples, in that many seconds."""
        passes = (passes_of(attack) or 0.0) * samples
        if not passes:
            return
        first, early = not any(self._passes.values()), stops_early(attack)
        self._passes[early] += passes
        self._seconds[early] += seconds
        if id(attack) in self._left:
            self._left[id(attack)] = max(0.0, self._left[id(attack)] - passes)
        spent = sum(self._seconds.values())
        if (first or spent - self._said >= EVERY) and self.seconds_left >= 1:
            self._said = spent
            more = f", and {self._unknown} of unknown length" if self._unknown else ""
            self._reporter.say(f"about {clock(self.seconds_left)} for the attacks to come{more}: a rough guess")
            if self._shorter and self.seconds_left >= LONG:
                self._reporter.say(self._shorter)
                self._shorter = ""
