"""Where ours is worse than the paper's, and why: a table in which nothing may be missing.

A mean of ours that is higher than the paper's, and does not agree with it (`tables.beside_paper`), needs a reason in
experiments/reasons.toml:

    [[reason]]
    experiment = "cifar10"
    places = ["resnet18, 20%, GLL"]
    figures = ["error"]
    paper = "table 4"  # where the paper has it, if not where the experiment is of
    explained = "yes"  # by a test or an ablation; "in part"; "if read otherwise"; "no"
    why = "by the steps: {ours longer; ResNet18: 4,000 steps, GLL; error} after 4,000"

*If read otherwise* is by a test of what another reading of the paper would change, against the words of its text.

{ours EXPERIMENT; PLACE; FIGURE} in `why` is a number, written from the records as in the text of a page
(`findings.py`; `paper` and `both` are known, too). A mean that has no reason, has two, or no longer needs the one it
has, is a problem that `gll reproduce --check` names: a new record cannot go unexplained, nor an old reason stay. All
tables of the paper count, also those that are not judged (`Shown.judged`); ablations that ask about one do not.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from gll.names import require_name
from gll.reproduce.experiment import Experiment, ExperimentError, name_of
from gll.reproduce.tables import Shown, digits_of, entry
from gll.words import counted

NAME = "reasons.toml"
EXPLAINED = ("yes", "in part", "if read otherwise", "no")
KEYS = ("experiment", "places", "figures", "explained", "why", "paper")
NUMBER = re.compile(r"\{([a-z]+) ([^{};]+);([^{};]+);([^{};]+)\}")


@final
@dataclass(frozen=True)
class Mean:
    """A mean of ours that the paper has, too; above it, where nothing else is said.

    Args:
        experiment, place, figure: of which.
        ours: of every seed.
    """

    experiment: Experiment
    place: str
    figure: str
    ours: tuple[float, ...]

    @property
    def called(self) -> str:
        return f"{self.experiment.name}: {self.place}, {self.figure}"

    @property
    def said(self) -> str:
        """Ours, and the paper's behind."""
        return entry(self.ours, self.experiment.paper(self.place, self.figure), digits_of(self.experiment, self.figure))


@final
@dataclass(frozen=True)
class Reason:
    """Why some means are worse; see above."""

    experiment: str
    places: tuple[str, ...]
    figures: tuple[str, ...]
    explained: str
    why: str
    paper: str = ""


def worse_than_paper(states: Mapping[str, Mapping[str, Shown]]) -> Iterator[Mean]:
    """All of them, each at the largest scale that it was run at."""
    return (mean for mean, word in beside_the_paper(states) if word == "higher")


def beside_the_paper(states: Mapping[str, Mapping[str, Shown]]) -> Iterator[tuple[Mean, str]]:
    """Every mean of ours that the paper has, too, and whether it agrees, is lower or higher."""
    for scales in states.values():
        known: set[tuple[str, str]] = set()
        for shown in reversed(list(scales.values())):
            experiment = shown.experiment
            if not experiment.is_in_paper:
                continue
            for place in shown.places:
                for figure in experiment.text["table"]["figures"]:
                    ours, name = shown.values(place, figure), name_of(place)
                    if not ours or (name, figure) in known:
                        continue
                    known.add((name, figure))
                    word = shown.beside_paper(place, figure)
                    if word is not None:
                        yield Mean(experiment, name, figure, tuple(ours)), word


def read_reasons(path: Path) -> list[Reason]:
    """Those of a file, in its order; none where there is no file.

    Raises:
        ExperimentError: a reason has other keys than it may, values of another kind, or a word that is not known.
    """
    if not path.is_file():
        return []
    return [_reason(text, path) for text in tomllib.loads(path.read_text(encoding="utf-8")).get("reason", [])]


def _reason(text: Mapping[str, Any], path: Path) -> Reason:
    for key in text:
        require_name(f"key of a reason in {path}", key, KEYS)
    missing = [key for key in KEYS if key not in text and key != "paper"]
    lists = [key for key in ("places", "figures") if key in text and not _named(text[key])]
    words = [key for key, value in text.items() if key not in ("places", "figures") and not isinstance(value, str)]
    for keys, wrong in ((missing, "has no"), (lists, "should be a list of names:"), (words, "should be text:")):
        if keys:
            raise ExperimentError(f"a reason in {path} {wrong} {', '.join(keys)}: {dict(text)}")
    require_name(f"word of `explained` in {path}", text["explained"], EXPLAINED)
    return Reason(**{**text, "places": tuple(text["places"]), "figures": tuple(text["figures"])})


def _named(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)


Matched = list[tuple[Reason, list[Mean]]]


def matched(worse: Iterable[Mean], reasons: Iterable[Reason]) -> tuple[Matched, list[Mean], list[str]]:
    """Which means each reason is about; means that have none; and what reasons say in vain.

    A reason must be about every figure of every place that it names, and about no mean that one before it has.
    """
    left, pairs, vain = list(worse), Matched(), list[str]()
    for reason in reasons:
        asked = [(place, figure) for place in reason.places for figure in reason.figures]
        own = {(w.place, w.figure): w for w in left if w.experiment.name == reason.experiment}
        about = [own[one] for one in asked if one in own]
        pairs.append((reason, about))
        vain += [f"{reason.experiment}: {place}, {figure}" for place, figure in asked if (place, figure) not in own]
        left = [w for w in left if w not in about]
    return pairs, left, vain


def problems(states: Mapping[str, Mapping[str, Shown]], path: Path) -> list[str]:
    """What is wrong with a file of reasons, in words: means without one, and reasons of nothing."""
    _, left, vain = matched(worse_than_paper(states), read_reasons(path))
    said = [f"{path} has no reason for what is worse than the paper's: {w.called} {w.said}" for w in left]
    return said + [f"{path} has a reason that is not needed, or the second of its kind: {one}" for one in vain]


def table_of_reasons(
    states: Mapping[str, Mapping[str, Shown]], path: Path, numbers: Mapping[str, Callable[[str, str, str], str]]
) -> tuple[str, str]:
    """How many means are worse, in a sentence; and a row for each reason: what it is about, how far it explains, why.

    Args:
        states: of all experiments.
        path: experiments/reasons.toml.
        numbers: write a number, by experiment, place and figure; each by its word in `why`.

    Raises:
        ExperimentError: a number in braces cannot be understood.
    """
    pairs, left, _ = matched(worse_than_paper(states), read_reasons(path))
    lines = ["| in the paper | worse than there | explained | why |", "|---|---|---|---|"]
    counts = dict.fromkeys(EXPLAINED, 0)
    for reason, about in pairs:
        if about:
            counts[reason.explained] += len(about)
            lines.append(_row(about, reason.paper, reason.explained, _filled(reason.why, numbers)))
    for one in left:
        counts["no"] += 1
        lines.append(_row([one], "", "no", f"*no reason is given yet (`{path.name}`)*"))
    words = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
    count = sum(counts.values())
    every = sum(1 for mean, _ in beside_the_paper(states) if mean.figure in mean.experiment.errors)
    return (f"{count} of {counted(every, 'error')}; explained: {words}." if count else "none."), "\n".join(lines)


def _row(about: Sequence[Mean], paper: str, explained: str, why: str) -> str:
    places: dict[str, list[str]] = {}
    for w in about:
        figure = "" if w.figure == "error" else f"{w.figure} "
        places.setdefault(w.place, []).append(f"{figure}{w.said}")
    what = "<br>".join(f"{place}: {', '.join(figures)}" for place, figures in places.items())
    paper = paper or re.split("[,:]", about[0].experiment.in_paper)[0]
    return f"| {paper} | {what} | **{explained}** | {why} |"


def _filled(why: str, numbers: Mapping[str, Callable[[str, str, str], str]]) -> str:
    def fill(match: re.Match[str]) -> str:
        require_name("word of a number in a reason", match[1], numbers)
        return numbers[match[1]](match[2].strip(), match[3].strip(), match[4].strip())

    text = NUMBER.sub(fill, why)
    if "{" in text:
        raise ExperimentError(f"a number of a reason is not {{WORD EXPERIMENT; PLACE; FIGURE}}: {why!r}")
    return text
