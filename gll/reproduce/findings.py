"""Numbers inside the text of docs/what-we-found.md: each is written from a file, and none is typed.

    Its error is <!-- ours cifar10; resnet18, 2%, GLL; error -->17.7<!-- end --> percent.

    ours EXPERIMENT; PLACE; FIGURE     ours, at the largest scale that was run
    paper EXPERIMENT; PLACE; FIGURE    the paper's
    run CONFIG; HEAD                   the error of `gll train configs/CONFIG.toml`, tested by a head
    ratio train, ratio test            seconds of a step, GLL over an MLP: from the smallest to the largest
    paper-ratio training, testing      the same in the paper
    compared, open                     experiments that were run, beside the paper; those that were not

Runs and ratios are those of benchmarks/results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from gll.names import require_name
from gll.reproduce.experiment import Experiment, ExperimentError
from gll.reproduce.tables import Shown, entry, verdicts

MARK = re.compile(r"(<!-- ([a-z-]+)(?: ([^>]*?))? -->).*?(<!-- end -->)", re.DOTALL)
NOT_RUN = "not run yet"


@final
class Findings:
    """What the numbers of a page are taken from.

    Args:
        experiments, states: all experiments, and what each has come to at every scale.
        benchmarks: the folder benchmarks/results.
    """

    def __init__(
        self, experiments: Mapping[str, Experiment], states: Mapping[str, Mapping[str, Shown]], benchmarks: Path
    ) -> None:
        self.experiments, self.states, self.benchmarks = experiments, states, benchmarks

    def filled(self, text: str) -> str:
        """A page with its numbers written again."""
        kinds: dict[str, Callable[..., str]] = {
            "ours": self.ours,
            "paper": self.paper,
            "run": self.run,
            "ratio": self.ratio,
            "paper-ratio": self.paper_ratio,
            "compared": self.compared,
            "open": self.open,
        }

        def fill(match: re.Match[str]) -> str:
            require_name("kind of number", match.group(2), kinds)
            words = [part.strip() for part in (match.group(3) or "").split(";") if part.strip()]
            value = kinds[match.group(2)](*words)
            return f"{match.group(1)}{value}{match.group(4)}"

        return MARK.sub(fill, text)

    def ours(self, name: str, place: str, figure: str) -> str:
        """Mean ± standard deviation over seeds, in bold."""
        experiment = self._experiment(name, place, figure)
        for shown in reversed(list(self.states[name].values())):  # full before small
            at = next((p for p in shown.places if ", ".join(p.values()) == place), None)
            values = shown.values(at, figure) if at is not None else []
            if values:
                return entry(values, None, int(experiment.text["table"].get("digits", 2)))
        return NOT_RUN

    def paper(self, name: str, place: str, figure: str) -> str:
        """The paper's."""
        experiment = self._experiment(name, place, figure)
        found = experiment.paper(place, figure)
        if found is None:
            raise ExperimentError(f"the paper has no {figure} of {place} in {name}")
        digits = int(experiment.text["table"].get("digits", 2))
        return f"{found[0]:,.{digits}f}" + ("" if found[1] is None else f" ± {found[1]:,.{digits}f}")

    def run(self, config: str, head: str) -> str:
        """Of runs that are in no experiment."""
        rows = [row for row in self._rows("training") if row["name"] == config]
        errors = [100 * test["error"] for row in rows for test in row["tests"][:1] if test["head"] == head]
        errors = errors or [100 * test["error"] for row in rows for test in row["tests"] if test["head"] == head]
        if not errors:
            raise ExperimentError(f"benchmarks/results/training.json has no run {config} tested by {head}")
        return entry(errors, None, 2)

    def ratio(self, what: str) -> str:
        """Of medians; the MLP has the base's images less, as in the paper."""
        found = [r[what]["gll"]["median_ms"] / r[what]["mlp"]["median_ms"] for r in self._rows("training-step")]
        return f"**{min(found):.1f} to {max(found):.1f}**"

    def paper_ratio(self, what: str) -> str:
        """From expected.json of the experiment `times`."""
        found = [v[f"{what} ratio"] for v in self.experiments["times"].expected["values"].values()]
        return f"{min(found):.1f} to {max(found):.1f}"

    def compared(self) -> str:
        """A line for every experiment and scale that was run."""
        lines = ["", "", "| experiment | scale | cells | means beside the paper's |", "|---|---|---|---|"]
        for name, states in self.states.items():
            for scale, shown in states.items():
                if shown.found:
                    counts = ", ".join(f"{count} {word}" for word, count in verdicts(shown).items() if count)
                    cells = f"{len(shown.found)} of {shown.total}"
                    lines.append(f"| [`{name}`](reproduce.md) | {scale} | {cells} | {counts or 'it has none'} |")
        return "\n".join([*lines, "", ""])

    def open(self) -> str:
        """Experiments, and of which scale nothing or not all was run."""
        lines = []
        for name, states in self.states.items():
            todo = [f"{s}: {shown.status}" for s, shown in states.items() if shown.status != "done"]
            if todo:
                lines.append(f"- `{name}` ({self.experiments[name].text['title']}): {'; '.join(todo)}")
        return "\n".join(["", "", *lines, "", ""]) if lines else "\n\nNothing.\n\n"

    def _experiment(self, name: str, place: str, figure: str) -> Experiment:
        require_name("experiment", name, self.experiments)
        experiment = self.experiments[name]
        require_name(f"figure of {name}", figure, experiment.text["table"]["figures"])
        if not any(", ".join(p.values()) == place for s in self.states[name].values() for p in s.places):
            raise ExperimentError(f"{name} has no place {place!r}")
        return experiment

    def _rows(self, name: str) -> list[dict[str, Any]]:
        path = self.benchmarks / f"{name}.json"
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return rows
