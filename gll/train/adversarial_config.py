"""The section [adversarial] of a config: attacks while a network trains. Read next: `adversarial.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from gll.train.toml import check, one_of


@final
@dataclass(frozen=True)
class AdversarialConfig:
    """Training on attacked images: in every step, `steps` of gradient ascent within ±ε of every pixel.

    Args:
        eps: ε, how far a pixel may move, such as 0.1 or "8/255"; 0: natural training.
        units: of `eps` and `step`: "pixels", where black is 0 and white is 1; or "normalised", after every channel was
            divided by its standard deviation, as in the paper's experiments.
        step: how far a pixel moves at a time, at most 2 ε; 0: 2.5 ε/steps, which reaches every corner from anywhere.
        steps: how many times.
        random_start: start at a random place within ±ε rather than at the image.
        against: what the attack makes larger: the head's "own" loss; the "margin" by which another class beats the true
            one; the same on a graph that joins every sample to base samples of "every-class"; or the loss of a linear
            "probe" that learns beside the head.
        unlabelled: attack the unlabelled samples of a batch too. The base is never attacked.
    """

    eps: float = 0.0
    units: str = "pixels"
    step: float = 0.0
    steps: int = 5
    random_start: bool = True
    against: str = "own"
    unlabelled: bool = False

    def __post_init__(self) -> None:
        check(self.eps >= 0, "adversarial.eps", self.eps, "at least 0")
        check(self.step >= 0, "adversarial.step", self.step, "at least 0 (0: 2.5 eps/steps)")
        across = f"at most 2 eps = {2 * self.eps:g}, the way across ({self.units})"
        check(self.eps == 0 or self.step <= 2 * self.eps, "adversarial.step", self.step, across)
        check(self.steps >= 1, "adversarial.steps", self.steps, "at least 1")
        one_of("adversarial.units", self.units, ("pixels", "normalised"))
        one_of("adversarial.against", self.against, ("own", "margin", "every-class", "probe"))
