"""Tables of docs/robustness.md from what `gll reproduce adversarial` and `gll reproduce worst-case` have found.

    python benchmarks/_attacked.py      draws docs/figures/robustness-by-attack.png

The tables are written by `tables.py`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gll.reproduce.experiment import load_experiment
from gll.reproduce.tables import Shown

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"
HEADS = ("GLL", "WNLL", "linear", "MLP")
COLUMNS = ("natural", "FGSM", "IFGSM", "CW")
OURS = ("AutoAttack", "worst case")
VIEW = " with every class"
# What an attack may see of a model, from little to all; rows of the table.
ATTACKS: dict[str, Callable[[str], bool]] = {
    "its own gradient: the strongest of PGD on four objectives": lambda name: name == "pgd",
    "PGD with neighbours held fixed": lambda name: name == "pgd with fixed neighbours",
    "no gradient: Square, 1,000 queries": lambda name: name.startswith("square"),
    "AutoAttack, standard": lambda name: name == "autoattack",
    "PGD by a linear probe on its encoder": lambda name: name.startswith("pgd from"),
    "towards features of other classes": lambda name: name == "features",
    "PGD with every class in sight": lambda name: name == f"pgd{VIEW}",
    "AutoAttack with every class in sight": lambda name: name == f"autoattack-gradients{VIEW}",
}


def records(name: str) -> list[dict[str, Any]]:
    """The records of an experiment as it is asked for now, at every scale."""
    experiment = load_experiment(EXPERIMENTS / name)
    return [record for scale in experiment.scales for _, record in Shown(experiment, scale).found]


def shown(values: Iterable[float], digits: int = 1) -> str:
    """Mean ± standard deviation over seeds."""
    values = list(values)
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}" if values else "–"


def provenance(found: list[dict[str, Any]]) -> str:
    parts = {
        key: {part for record in found for part in str(record[key]).split(", ")} for key in ("commit", "device", "seed")
    }
    about = {key: ", ".join(sorted(values)) for key, values in parts.items()}
    return f"<small>commits {about['commit']}, {about['device']}, seeds {about['seed']}; several runs at a time</small>"


def paper_protocol(data: str) -> str:
    """Errors in the paper's protocol, the paper's in brackets; beside them the worst case, and checks that failed."""
    found = [record for record in records("adversarial") if record["place"]["data"] == data]
    paper = json.loads((EXPERIMENTS / "adversarial" / "expected.json").read_text())["values"]
    head = ["training", "head", *COLUMNS, *(f"**{name}**" for name in OURS), "checks that failed"]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(COLUMNS) + len(OURS)) + "---|"]
    for training in ("natural", "robust"):
        for name in HEADS:
            place = {"data": data, "head": name, "training": training}
            full = [record for record in found if record["place"] == place and record["scale"] == "full"]
            mine = full or [record for record in found if record["place"] == place]
            if not mine:
                continue
            theirs = paper.get(f"{data}, {name}, {training}", {})
            cells = []
            for figure in COLUMNS:
                brackets = f" ({theirs[figure]:g})" if figure in theirs else ""
                cells.append(shown((r["values"][figure] for r in mine), 2) + brackets)
            cells += [shown(r["values"][figure] for r in mine) for figure in OURS]
            checks = [check for record in mine for check in record["more"]["summary"]["checks"]]
            failed = dict.fromkeys(check["name"] for check in checks if not check["passed"])
            epochs = dict.fromkeys(str(record["config"]["train.epochs"]) for record in mine)
            how = f"{training}, {', '.join(epochs)} epochs"
            lines.append(f"| {how} | {name} | {' | '.join(cells)} | {', '.join(failed) or 'none'} |")
    return "\n".join([*lines, "", f"{times(found)} {provenance(found)}"])


def times(found: list[dict[str, Any]]) -> str:
    """Seconds of the paper's attacks on a graph, at the ε and c of its table."""
    first = next(r for r in found if r["place"]["head"] == "GLL" and r["place"]["training"] == "natural")
    summary = first["more"]["summary"]
    attacks = [attack for group in summary["groups"] for attack in group["attacks"]]
    words = []
    for name in ("fgsm", "ifgsm", "cw-paper"):
        at = ("c", summary["table_c"]) if name == "cw-paper" else ("eps", summary["table_eps_pixels"])
        one = next(a for a in attacks if a["attack"] == name and abs(a["settings"][at[0]] - at[1]) < 1e-6)
        steps = one["settings"].get("steps", 1)
        words.append(
            f"{name} ({steps} step{'s' if steps > 1 else ''}, {one['chunk']:,} samples) {one['seconds']:.1f} s"
        )
    return f"Seconds on the graph, beside a dozen other runs on the same GPU: {', '.join(words)}."


def strongest(wanted: Callable[[str], bool]) -> Callable[[dict[str, Any], float], float | None]:
    """The largest error of the attacks with such a name, at one ε."""

    def error(summary: dict[str, Any], eps: float) -> float | None:
        attacks = [a for g in summary["groups"] for a in g["attacks"] if a["settings"].get("eps") == eps]
        return max((a["error"] for a in attacks if wanted(a["attack"])), default=None)

    return error


def by_attack(data: str) -> str:
    """After adversarial training, every sample in a graph of its own: the strongest attack of every kind."""
    found = [r for r in records("worst-case") if r["place"] | {"data": data, "training": "robust"} == r["place"]]
    present = [name for name in HEADS if any(record["place"]["head"] == name for record in found)]
    radii = sorted({w["eps"] for r in found for g in r["more"]["alone"]["groups"] for w in g["worst"]})
    head = ["attack", *(f"{name}, ε = {eps:g}" for eps in radii for name in present)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]

    def row(title: str, figure: Callable[[dict[str, Any], float], float | None], bold: bool = False) -> str:
        cells = []
        for eps in radii:
            for name in present:
                values = [figure(r["more"]["alone"], eps) for r in found if r["place"]["head"] == name]
                text = shown(100 * value for value in values if value is not None)
                cells.append(f"**{text}**" if bold else text)
        return f"| {f'**{title}**' if bold else title} | {' | '.join(cells)} |"

    def worst(summary: dict[str, Any], eps: float) -> float | None:
        return max((w["error"] for g in summary["groups"] for w in g["worst"] if w["eps"] == eps), default=None)

    def zero(summary: dict[str, Any], eps: float) -> float | None:
        attacks = [a for g in summary["groups"] for a in g["attacks"] if a["settings"].get("eps") == eps]
        return max((a["zero_gradients"] for a in attacks if a["attack"] == "pgd"), default=None)

    lines.append(row("none", lambda summary, eps: summary["groups"][0]["natural"]))
    lines += [row(title, strongest(wanted)) for title, wanted in ATTACKS.items()]
    lines.append(row("worst case of all", worst, bold=True))
    lines.append(row("gradients that are exactly zero", zero))
    return "\n".join([*lines, "", provenance(found)])


def against(record: dict[str, Any], _: dict[int, str]) -> str:
    """Natural error and worst case by what adversarial training was against."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in record["rows"]:
        groups.setdefault(f"{row['run']['head']}, {row['run']['training'].rpartition('against ')[2]}", []).append(row)
    radii = sorted({worst["eps"] for row in record["rows"] for g in row["groups"] for worst in g["worst"]})
    head = ["head, training against", "seeds", "natural", *(f"worst case, ε = {eps:g}" for eps in radii)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for name, rows in groups.items():
        cells = [shown(100 * row["groups"][0]["natural"] for row in rows)]
        for eps in radii:
            worst = [max(w["error"] for g in row["groups"] for w in g["worst"] if w["eps"] == eps) for row in rows]
            cells.append(shown(100 * error for error in worst))
        lines.append(f"| {name} | {len(rows)} | {' | '.join(cells)} |")
    commits = ", ".join(sorted({row["environment"]["commit"] for row in record["rows"]}))
    return "\n".join([*lines, "", f"<small>commits {commits}, CPU, {record['rows'][0]['samples']:,} samples</small>"])


def draw(data: str, path: Path) -> None:
    """Error at twice the trained ε by what the attacker sees, a mark for every seed."""
    import matplotlib.pyplot as plt

    found = [r for r in records("worst-case") if r["place"] | {"data": data, "training": "robust"} == r["place"]]
    eps = max(w["eps"] for r in found for g in r["more"]["alone"]["groups"] for w in g["worst"])
    figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
    marks = {"GLL": ("o", "C0"), "linear": ("s", "C1"), "MLP": ("^", "C2")}
    for place, (title, wanted) in enumerate(reversed(ATTACKS.items())):
        for shift, (name, (mark, colour)) in enumerate(marks.items()):
            values = [strongest(wanted)(r["more"]["alone"], eps) for r in found if r["place"]["head"] == name]
            errors = [100 * value for value in values if value is not None]
            heights = [place + 0.2 * (1 - shift)] * len(errors)
            label = f"{name} head" if title.startswith("its own") else None
            axes.plot(errors, heights, mark, color=colour, markersize=5, label=label)
    axes.set_yticks(range(len(ATTACKS)), [title.split(",")[0] for title in reversed(ATTACKS)])
    axes.set_ylim(-0.5, len(ATTACKS) - 0.5)
    for place in range(0, len(ATTACKS), 2):
        axes.axhspan(place - 0.5, place + 0.5, color="0.96", zorder=0)
    axes.set_xlim(0, 100)
    axes.set_xlabel(f"error in percent at ε = {eps:g}, twice that of the training")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="upper right", fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    draw("mnist", EXPERIMENTS.parent / "docs" / "figures" / "robustness-by-attack.png")
