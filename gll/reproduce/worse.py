"""Where ours is worse than the paper's, and why: a table in which nothing may be missing.

A mean of ours that is higher than the paper's, and does not agree with it (`tables.beside_paper`), needs a reason in
experiments/reasons.toml:

    [[reason]]
    experiment = "cifar10"
    places = ["resnet18, 20%, GLL"]
    figures = ["error"]  # all of the table's if it is not given
    explained = "yes"  # by a test or an ablation; "in part"; "no"
    why = "by the steps: {ours longer; ResNet18: 4,000 steps, GLL; error} after 4,000"

{ours EXPERIMENT; PLACE; FIGURE} in `why` is a number, written from the records as in the text of a page
(`findings.py`; `paper` and `both` are known, too). A mean that has no reason, has two, or no longer needs the one it
has, is an error: a new record cannot go unexplained, nor an old reason stay. All tables of the paper count, also those
that are not judged (`Shown.judged`); ablations that ask about one do not.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from gll.names import require_name
from gll.reproduce.experiment import Experiment, ExperimentError, name_of
from gll.reproduce.tables import Shown, beside_paper, digits_of, entry
from gll.words import counted

NAME = "reasons.toml"
EXPLAINED = ("yes", "in part", "no")
KEYS = ("experiment", "places", "figures", "explained", "why")
NUMBER = re.compile(r"\{([a-z]+) ([^{};]+);([^{};]+);([^{};]+)\}")


@final
@dataclass(frozen=True)
class Worse:
    """A mean of ours above the paper's.

    Args:
        experiment, place, figure: of which.
        ours: of every seed.
    """

    experiment: Experiment
    place: str
    figure: str
    ours: tuple[float, ...]

    @property
    def said(self) -> str:
        """Ours, and the paper's behind."""
        return entry(self.ours, self.experiment.paper(self.place, self.figure), digits_of(self.experiment, self.figure))


def worse_than_paper(states: Mapping[str, Mapping[str, Shown]]) -> Iterator[Worse]:
    """All of them, each at the largest scale that it was run at."""
    for scales in states.values():
        known: set[tuple[str, str]] = set()
        for shown in reversed(list(scales.values())):
            experiment = shown.experiment
            if not experiment.of_paper or experiment.in_paper.startswith("on "):
                continue
            for place in shown.places:
                for figure in experiment.text["table"]["figures"]:
                    ours, name = shown.values(place, figure), name_of(place)
                    if not ours or (name, figure) in known:
                        continue
                    known.add((name, figure))
                    samples = shown.samples(place, figure) or experiment.expected.get("samples", {}).get(figure)
                    if beside_paper(experiment, name, figure, ours, samples) == "higher":
                        yield Worse(experiment, name, figure, tuple(ours))


def read_reasons(path: Path) -> list[dict[str, Any]]:
    """Those of a file, in its order; none where there is no file.

    Raises:
        ExperimentError: a reason has other keys than it may, or another word of how far it explains.
    """
    if not path.is_file():
        return []
    reasons: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8")).get("reason", [])
    for reason in reasons:
        for key in reason:
            require_name(f"key of a reason in {path}", key, KEYS)
        missing = [key for key in KEYS if key not in reason and key != "figures"]
        if missing:
            raise ExperimentError(f"a reason in {path} has no {', '.join(missing)}: {reason}")
        require_name(f"word of `explained` in {path}", reason["explained"], EXPLAINED)
    return reasons


def reasons(
    states: Mapping[str, Mapping[str, Shown]], path: Path, numbers: Mapping[str, Callable[[str, str, str], str]]
) -> tuple[str, str]:
    """How many means are worse, in a sentence; and a row for each reason: what it is about, how far it explains, why.

    Args:
        states: of all experiments.
        path: experiments/reasons.toml.
        numbers: write a number, by experiment, place and figure; each by its word in `why`.

    Raises:
        ExperimentError: a mean has no reason, or more than one; a reason is of nothing that is worse.
    """
    left = list(worse_than_paper(states))
    count = len(left)
    lines = ["| in the paper | worse than there | explained | why |", "|---|---|---|---|"]
    counts = dict.fromkeys(EXPLAINED, 0)
    for reason in read_reasons(path):
        about = [w for w in left if _is_about(reason, w)]
        asked = {(p, f) for p in reason["places"] for f in reason.get("figures", [None])}
        found = {(w.place, w.figure if "figures" in reason else None) for w in about}
        if asked - found:
            names = "; ".join(f"{p}, {f}" if f else p for p, f in sorted(asked - found, key=str))
            raise ExperimentError(
                f"{path} has a reason of {reason['experiment']} that is not needed, or the second of its kind: {names}"
            )
        left = [w for w in left if w not in about]
        counts[reason["explained"]] += len(about)
        places: dict[str, list[str]] = {}
        for w in about:
            figure = "" if w.figure == "error" else f"{w.figure} "
            places.setdefault(w.place, []).append(f"{figure}{w.said}")
        what = "<br>".join(f"{place}: {', '.join(figures)}" for place, figures in places.items())
        why = NUMBER.sub(lambda m: numbers[m[1]](m[2].strip(), m[3].strip(), m[4].strip()), reason["why"])
        paper = re.split("[,:]", about[0].experiment.in_paper)[0]
        lines.append(f"| {paper} | {what} | **{reason['explained']}** | {why} |")
    if left:
        names = "; ".join(f"{w.experiment.name}: {w.place}, {w.figure} {w.said}" for w in left)
        raise ExperimentError(f"worse than the paper's, and {path} has no reason: {names}")
    words = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
    return f"{counted(count, 'mean')}; explained: {words}.", "\n".join(lines)


def _is_about(reason: Mapping[str, Any], worse: Worse) -> bool:
    return (
        worse.experiment.name == reason["experiment"]
        and worse.place in reason["places"]
        and worse.figure in reason.get("figures", [worse.figure])
    )
