"""Names of cells as people type them, and what they may have meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

NUMBER = re.compile(r"(?<![\w.])\d{1,3}(,\d{3})+(?!\d)")
GREEK = {"τ": "tau", "γ": "gamma", "ε": "eps", "μ": "mu"}


def plain(word: str) -> str:
    """A name without case, spaces and Greek letters.

    >>> plain("τ = 0.1"), plain("ResNet18")
    ('tau=0.1', 'resnet18')
    """
    word = "".join(word.lower().split())
    for letter, name in GREEK.items():
        word = word.replace(letter, name)
    return word


def typed(text: str) -> tuple[str, ...]:
    """The words of --only. A comma in a number parts nothing.

    >>> typed("resnet18,128, seed 0"), typed("1,000 steps, MLP")
    (('resnet18', '128', 'seed 0'), ('1,000 steps', 'MLP'))
    """
    kept = NUMBER.sub(lambda number: number.group().replace(",", "\0"), text)
    words = [word.replace("\0", ",") for word in kept.split(",")]
    return tuple(word.strip() for word in words if word.strip())


def same(one: str, other: str) -> bool:
    """Whether two words are the same name."""
    return plain(one) == plain(other)


def has(parts: Iterable[str], words: str) -> bool:
    """Whether one of the parts is the word, or one of several with | between them.

    >>> has(["mlp", "seed 0"], "gll | MLP"), has(["mlp", "seed 0"], "ml")
    (True, False)
    """
    asked = {plain(word) for word in words.split("|")}
    return any(plain(part) in asked for part in parts)


def near(word: str, names: Iterable[str]) -> list[str]:
    """Names that may be meant by a word that is none of them: those that begin with it, or else the nearest.

    A number that is not there was no slip of the finger, and has none near it.

    >>> near("resnet18", ["MLP", "ResNet18: 1,000 steps", "ResNet18: 4,000 steps"])
    ['ResNet18: 1,000 steps', 'ResNet18: 4,000 steps']
    >>> near("Fashion-MNIST", ["mnist", "fashionmnist"]), near("3%", ["2%", "20%"])
    (['fashionmnist'], [])
    """
    asked, spelled = plain(word), {plain(name): name for name in names}
    begun = [name for short, name in spelled.items() if asked and short.startswith(asked)]
    if begun or not any(letter.isalpha() for letter in asked):
        return begun
    return [spelled[short] for short in difflib.get_close_matches(asked, list(spelled), n=1, cutoff=0.5)]
