"""Numbers inside the text of pages of docs/ (`tables.PAGES`): each is written from a file, none is typed.

    Its error is <!-- ours cifar10; resnet18, 2%, GLL; error -->17.7<!-- end --> percent.

    ours EXPERIMENT; PLACE; FIGURE     ours, at the largest scale that was run
    seeds EXPERIMENT; PLACE            how many seeds of ours that is
    paper EXPERIMENT; PLACE; FIGURE    the paper's
    both EXPERIMENT; PLACE; FIGURE     ours, and the paper's in brackets
    run CONFIG; HEAD                   the error of `gll train configs/CONFIG.toml`, tested by a head
    before CONFIG; HEAD                the same before the head was trained, after the warm-up alone
    run-seeds CONFIG                   how many seeds of ours that is
    ratio training, ratio testing      seconds of a step, GLL over an MLP: from the smallest to the largest
    paper-ratio training, testing      the same in the paper
    settings EXPERIMENT; PLACE; CONFIG what differs between the experiment at its largest scale and a config
    status EXPERIMENT                  how far it is at every scale
    status EXPERIMENT; NAME            the same of the cells that have this name on an axis
    compared                           a line for each that was run, beside the paper
    entries EXPERIMENT                 how many entries of the paper's table have a number of ours
    entries EXPERIMENT; NAME           the same of those that have this name on an axis, or are this figure
    entries EXPERIMENT; without NAME   the same of those that have not this name on an axis
    verdicts EXPERIMENT                how many of ours agree with the paper's, are lower or higher
    worse-count                        how many are worse than the paper's, and explained or not
    worse                              what is worse than the paper's, and why (`worse.py`)
    moved                              how far CW moves images, a GLL's and those of other heads (`moved.py`)
    headline, contest                  who is more robust after adversarial training: the answer, a table (`robust.py`)

Parts that are an experiment's whole section (`tables.py`) are left alone. Runs and ratios are those of
benchmarks/results, configs those of configs/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from gll.names import require_name
from gll.reproduce import moved, robust
from gll.reproduce.experiment import Experiment, ExperimentError
from gll.reproduce.tables import PAGES, Shown, digits_of, entry, told_verdicts, tolerance
from gll.reproduce.worse import NAME, table_of_reasons
from gll.words import counted

MARK = re.compile(r"(<!-- ([a-z-]+)(?: ([^>]*?))? -->).*?(<!-- end -->)", re.DOTALL)
SECTIONS = ("experiments", "experiment")
NOT_RUN = "not run yet"
NO_VALUES = "none to compare"
WITHOUT = "without "
# Keys of a config that decide a result, as a reader would call them; the rest of a table of settings goes by its key.
CALLED = {
    "warmup.epochs": "warm-up, epochs",
    "warmup.gamma": "γ",
    "warmup.augment": "views of the warm-up",
    "warmup.keep": "its state kept",
    "train.epochs": "head, epochs",
    "train.steps": "steps an epoch",
    "train.labelled": "labelled a step",
    "train.lr": "rate",
    "train.schedule": "schedule",
    "train.autocast": "bfloat16",
}
WORDS = {("train.steps", 0): "one pass", ("train.labelled", 0): "as they come"}


@final
class Findings:
    """What the numbers of a page are taken from.

    Args:
        experiments, states: all experiments, and what each has come to at every scale.
        benchmarks: the folder benchmarks/results.
        configs: the folder of configs.
    """

    def __init__(
        self,
        experiments: Mapping[str, Experiment],
        states: Mapping[str, Mapping[str, Shown]],
        benchmarks: Path,
        configs: Path,
    ) -> None:
        self.experiments, self.states, self.benchmarks, self.configs = experiments, states, benchmarks, configs

    def filled(self, text: str) -> str:
        """A page with its numbers written again."""
        kinds: dict[str, Callable[..., str]] = {
            "ours": self.ours,
            "seeds": self.seeds,
            "paper": self.paper,
            "both": self.both,
            "run": self.run,
            "before": self.before,
            "run-seeds": self.run_seeds,
            "ratio": self.ratio,
            "paper-ratio": self.paper_ratio,
            "settings": self.settings,
            "status": self.status,
            "compared": lambda: self.compared(text),
            "entries": self.entries,
            "verdicts": lambda name: told_verdicts(self._largest(name)),
            "worse": lambda: _block(self.worse()[1]),
            "worse-count": lambda: self.worse()[0],
            "moved": lambda: _block(moved.table_of_moved(self.states)),
            "headline": lambda: robust.headline(self._largest("worst-case")),
            "contest": lambda: _block(robust.table(self._largest("worst-case"))),
        }

        def fill(match: re.Match[str]) -> str:
            if match.group(2) in SECTIONS:
                return match.group(0)
            require_name("kind of number", match.group(2), kinds)
            words = [part.strip() for part in (match.group(3) or "").split(";") if part.strip()]
            value = kinds[match.group(2)](*words)
            return f"{match.group(1)}{value}{match.group(4)}"

        return MARK.sub(fill, text)

    def ours(self, name: str, place: str, figure: str) -> str:
        """Mean ± standard deviation over seeds, in bold."""
        experiment = self._experiment(name, place, figure)
        values = self.values(name, place, figure)
        return entry(values, None, digits_of(experiment, figure)) if values else NOT_RUN

    def seeds(self, name: str, place: str) -> str:
        """Of the number that `ours` gives, in words."""
        figures = self.experiments[name].text["table"]["figures"]
        return counted(max(len(self.values(name, place, figure)) for figure in figures), "seed")

    def paper(self, name: str, place: str, figure: str) -> str:
        """The paper's."""
        experiment = self._experiment(name, place, figure)
        found = experiment.paper(place, figure)
        if found is None:
            raise ExperimentError(f"the paper has no {figure} of {place} in {name}")
        digits = digits_of(experiment, figure)
        return f"{found[0]:,.{digits}f}" + ("" if found[1] is None else f" ± {found[1]:,.{digits}f}")

    def both(self, name: str, place: str, figure: str) -> str:
        """Ours in bold, the paper's in brackets."""
        return f"{self.ours(name, place, figure)} ({self.paper(name, place, figure)})"

    def run(self, config: str, head: str) -> str:
        """Of runs that are in no experiment."""
        rows = self._runs(config)
        errors = [100 * test["error"] for row in rows for test in row["tests"][:1] if test["head"] == head]
        errors = errors or [100 * test["error"] for row in rows for test in row["tests"] if test["head"] == head]
        if not errors:
            raise ExperimentError(f"benchmarks/results/training.json has no run {config} tested by {head}")
        return entry(errors, None, 2)

    def before(self, config: str, head: str) -> str:
        """A head that needs no training, on the features of the warm-up."""
        errors = [100 * t["error"] for row in self._runs(config) for t in row["before"] if t["head"] == head]
        if not errors:
            raise ExperimentError(f"benchmarks/results/training.json has no {head} before the training of {config}")
        return entry(errors, None, 2)

    def run_seeds(self, config: str) -> str:
        """A number."""
        return str(len(self._runs(config)))

    def ratio(self, what: str) -> str:
        """Of the experiment `times`; the MLP has the base's images less, as in the paper."""
        shown = self._largest("times")
        found = [value for place in shown.places for value in shown.values(place, f"{what} ratio")]
        return f"**{min(found):.2f} to {max(found):.2f}**" if found else NOT_RUN

    def paper_ratio(self, what: str) -> str:
        """From expected.json of the experiment `times`."""
        require_name("experiment", "times", self.experiments)
        found = [v[f"{what} ratio"] for v in self.experiments["times"].expected["values"].values()]
        return f"{min(found):.1f} to {max(found):.1f}"

    def settings(self, name: str, place: str, config: str) -> str:
        """A table of two rows. What decides no result is left out, and so is how it is tested."""
        from gll.reproduce.train_cells import FREE, config_of, flat
        from gll.train.config import load_config

        experiment = self._experiment(name, place)
        point = next(p for p in experiment.points(experiment.scales[-1]) if p.name == place)
        theirs, ours = (flat(c) for c in (config_of(experiment, point), load_config(self.configs / f"{config}.toml")))
        different = [key for key, value in theirs.items() if value != ours[key]]
        kept = [key for key in different if key not in FREE and not key.startswith("test.")]
        keys = sorted(kept, key=lambda key: list(CALLED).index(key) if key in CALLED else len(CALLED))
        lines = [f"| | {' | '.join(CALLED.get(key, f'`{key}`') for key in keys)} |", "|---|" + "---|" * len(keys)]
        for title, values in (("paper", theirs), ("ours", ours)):
            lines.append(f"| {title} | {' | '.join(_told(key, values) for key in keys)} |")
        return _block("\n".join(lines))

    def status(self, name: str, *names: str) -> str:
        """In a few words."""
        require_name("experiment", name, self.experiments)
        axes = self.experiments[name].text["axes"].values()
        for one in names:
            require_name(f"name on an axis of {name}", one, [known for axis in axes for known in axis])
        return "; ".join(f"{scale}: {shown.status_of(names)}" for scale, shown in self.states[name].items())

    def compared(self, page: str = "") -> str:
        """A line for every experiment and scale that was run, with a link to its section where the page has one."""
        lines = [
            "| experiment | scale | cells | agrees within, or by chance | means beside the paper's |",
            "|---|---|---|---:|---|",
        ]
        for name, states in self.states.items():
            for scale, shown in states.items():
                if shown.found:
                    counts, room = told_verdicts(shown), f"{tolerance(self.experiments[name]):g}"
                    cells = f"{len(shown.found)} of {shown.total} | {room if counts else ''}"
                    known = "not judged" if shown.experiment.expected["values"] and not shown.judged else NO_VALUES
                    counts += "" if shown.experiment.of_paper or not counts else ", of what is expected"
                    anchor = _anchor(page, name)
                    link = f"[`{name}`](#{anchor})" if anchor else f"`{name}`"
                    lines.append(f"| {link} | {scale} | {cells} | {counts or known} |")
        return _block("\n".join(lines))

    def entries(self, name: str, *names: str) -> str:
        """Of the paper's table, as expected.json has it: those with a number of ours at any scale, of all it prints."""
        require_name("experiment", name, self.experiments)
        experiment = self.experiments[name]
        figures = experiment.text["table"]["figures"]
        known = [one for axis in experiment.text["axes"].values() for one in axis]
        for one in names:
            require_name(f"name on an axis of {name}, or figure", one.removeprefix(WITHOUT), [*known, *figures])
        left_out = {one.removeprefix(WITHOUT) for one in names if one.startswith(WITHOUT)}
        named = [one for one in names if not one.startswith(WITHOUT)]
        chosen = [one for one in named if one in known]  # *natural* is a training, and a figure
        wanted = [one for one in named if one not in known] or [f for f in figures if f not in experiment.quotients]
        asked = [
            (place, figure)
            for place, values in experiment.expected["values"].items()
            if set(chosen) <= set(place.split(", ")) and not left_out & set(place.split(", "))
            for figure in values
            if figure in wanted
        ]
        return f"{sum(1 for place, figure in asked if self.values(name, place, figure))} of {len(asked)}"

    def worse(self) -> tuple[str, str]:
        """How many are, and a table of reasons, from the file beside the experiments."""
        numbers = {"ours": self.ours, "paper": self.paper, "both": self.both}
        return table_of_reasons(self.states, next(iter(self.experiments.values())).folder.parent / NAME, numbers)

    def _largest(self, name: str) -> Shown:
        """What an experiment has come to at the largest scale."""
        require_name("experiment", name, self.experiments)
        return list(self.states[name].values())[-1]

    def values(self, name: str, place: str, figure: str) -> list[float]:
        """Of every seed, full before small; none where it was not run."""
        for shown in reversed(list(self.states[name].values())):
            at = next((p for p in shown.places if ", ".join(p.values()) == place), None)
            values = shown.values(at, figure) if at is not None else []
            if values:
                return values
        return []

    def _experiment(self, name: str, place: str, figure: str = "") -> Experiment:
        require_name("experiment", name, self.experiments)
        experiment = self.experiments[name]
        if figure:
            require_name(f"figure of {name}", figure, experiment.text["table"]["figures"])
        if not any(", ".join(p.values()) == place for s in self.states[name].values() for p in s.places):
            raise ExperimentError(f"{name} has no place {place!r}")
        return experiment

    def _runs(self, config: str) -> list[dict[str, Any]]:
        return [row for row in self._rows("training") if row["name"] == config]

    def _rows(self, name: str) -> list[dict[str, Any]]:
        path = self.benchmarks / f"{name}.json"
        if not path.is_file():
            raise ExperimentError(
                f"numbers of {', '.join(f'docs/{page}' for page in PAGES)} are from {path}, which is not there"
            )
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return rows


def _anchor(page: str, name: str) -> str:
    """The heading above the section of an experiment, as a link has it.

    >>> _anchor("# A\\n\\n### The worst, case\\n\\n<!-- experiment worst -->", "worst"), _anchor("", "worst")
    ('the-worst-case', '')
    """
    above = page.partition(f"\n<!-- experiment {name} -->")[0] if f"\n<!-- experiment {name} -->" in page else ""
    headings = re.findall(r"^#+ (.+)$", above, re.MULTILINE)
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", headings[-1]).strip().lower()) if headings else ""


def _block(text: str) -> str:
    """Apart from what stands around it."""
    return f"\n\n{text}\n\n"


def _told(key: str, values: Mapping[str, Any]) -> str:
    """A value in words.

    >>> _told("a", {"a": True}), _told("a", {"a": 0.001}), _told("train.steps", {"train.steps": 0})
    ('yes', '0.001', 'one pass')
    """
    value = values[key]
    if key == "warmup.gamma" and isinstance(value, str):
        return f"best of {len(values['warmup.candidates'])}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    plain = f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    return WORDS.get((key, value), plain)
