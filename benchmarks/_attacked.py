"""Tables of docs/robustness.md from what `gll reproduce adversarial` and `gll reproduce worst-case` have found.

    python benchmarks/_attacked.py      draws docs/figures/robustness-by-attack*.png, one for each data set and training

The tables are written by `tables.py`, those of the paper's protocol by `_attacked_protocol.py`, what is said about them
by `_attacked_words.py`, what concerns CW by `_attacked_cw.py` and `_attacked_units.py`. Data sets, seeds and ways of
training that are run later come in by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from gll.reproduce import natural
from gll.reproduce.attack_figures import HEADS
from gll.reproduce.experiment import Experiment, load_experiment
from gll.reproduce.protocol import NO_GRAPH, graph_of, strong
from gll.reproduce.robust import (
    AUTO_SIGHT,
    EVERY_CLASS,
    NAMES,
    NATURAL,
    OURS,
    PAPER,
    ROBUST,
    Contest,
    contests,
    headline,
    normalised,
    radii,
    seeds_of,
    shown_mean,
    strongest,
)
from gll.reproduce.tables import LINEAR, Shown
from gll.words import counted

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = ROOT / "experiments"
FIGURES = ROOT / "docs" / "figures"
NOT_RUN = "Not run yet."
VIEW = " with every class"
# What an attack may see of a model, from little to all; rows of the table.
ATTACKS: dict[str, Callable[[str], bool]] = {
    "its own gradient: the strongest of PGD on four objectives": lambda name: name == "pgd",
    "PGD with neighbours held fixed": lambda name: name == "pgd with fixed neighbours",
    "no gradient: Square, 1,000 queries": lambda name: name.startswith("square"),
    "AutoAttack, standard": lambda name: name in ("autoattack", "autoattack apart"),
    "PGD by the linear layer that a WNLL was trained by": lambda name: name.startswith("pgd from the linear layer"),
    "PGD by a linear probe on its encoder": lambda name: name.startswith("pgd from a linear probe"),
    "towards features of other classes": lambda name: name == "features",
    "PGD with every class in sight": lambda name: name.startswith(f"pgd{VIEW}"),
    "AutoAttack with every class in sight": lambda name: name == AUTO_SIGHT,
}
WORST = "worst case of all"
SHORT = {ROBUST: "robust", NATURAL: "natural", PAPER: "natural-paper"}
"""Ways of training that have a table of their own, in names of tables and pictures."""
AGAINST = f"{OURS}, against every class"
LOOKS = {OURS: HEADS[OURS], AGAINST: ("C3", "D")} | {name: HEADS[name] for name in ("WNLL", "linear", "MLP")}
Record = dict[str, Any]
Summary = dict[str, Any]


@final
@dataclass(frozen=True, eq=False)
class Known:
    """What the two experiments have come to, read once.

    Args:
        adversarial: at every scale but the smallest; the largest comes last.
        worst: `worst-case`, at its largest scale.
    """

    adversarial: tuple[Shown, ...]
    worst: Shown

    @property
    def experiment(self) -> Experiment:
        """`adversarial`."""
        return self.adversarial[-1].experiment

    def every(self) -> list[Record]:
        """All records of both."""
        return [record for shown in (*self.adversarial, self.worst) for _, record in shown.found]

    def columns(self, data: str, training: str) -> dict[str, list[Record]]:
        """Of `worst-case`, by the head of a column; after adversarial training also a GLL against every class."""
        found = Contest(self.worst, data, training).records
        other = Contest(self.worst, data, EVERY_CLASS).records.get(OURS) if training == ROBUST else None
        named = found | ({AGAINST: other} if other else {})
        return {name: named[name] for name in LOOKS if name in named}


def largest(name: str) -> Shown | None:
    """What another experiment has come to at its largest scale; None where there is none of that name."""
    folder = EXPERIMENTS / name
    if not folder.is_dir():
        return None
    experiment = load_experiment(folder)
    return Shown(experiment, experiment.scales[-1])


def known(root: Path = EXPERIMENTS) -> Known:
    """Read it."""
    adversarial, worst = (load_experiment(root / name) for name in ("adversarial", "worst-case"))
    scales = [scale for scale in adversarial.scales if scale != "smoke"]
    return Known(tuple(Shown(adversarial, scale) for scale in scales), Shown(worst, worst.scales[-1]))


def provenance(found: dict[str, list[Record]]) -> str:
    """Commits and devices, head by head where devices differ."""
    parts = {key: parts_of([r for own in found.values() for r in own], key) for key in ("commit", "device")}
    by_head = {name: parts_of(own, "device") for name, own in found.items()}
    where = parts["device"]
    if len(set(by_head.values())) > 1:
        where = ", ".join(f"{name}: {device}" for name, device in by_head.items())
    return f"commits {parts['commit']}; {where}; several runs at a time; {LINEAR}"


def parts_of(found: list[Record], key: str) -> str:
    """All values of a key, each once."""
    return ", ".join(sorted({part for record in found for part in str(record[key]).split(", ")}))


def by_attack(known: Known, data: str, training: str, figures: Path = FIGURES) -> str:
    """Every sample in a graph of its own: the strongest attack of every kind. A picture below, if it was drawn."""
    found = known.columns(data, training)
    every = [record for group in found.values() for record in group]
    if not every:
        return NOT_RUN
    eps_of = radii(every)
    summaries = {name: [record["more"]["alone"] for record in group] for name, group in found.items()}
    table = attack_table(summaries, [(eps, f", ε = {eps:g} px") for eps in eps_of])
    picture = figures / figure_of(data, training)
    drawn = ["", f"![error by what the attacker sees](figures/{picture.name})"]
    seeds = dict.fromkeys(seeds_of(group) for group in found.values())
    about = f"{' or '.join(seeds)}; {units(summaries, eps_of)}; {graphs(summaries)}; {provenance(found)}"
    return "\n".join([table, "", f"<small>{about}</small>", *(drawn if picture.is_file() else [])])


def attack_table(found: dict[str, list[Summary]], places: list[tuple[float, str]]) -> str:
    """Errors by what the attacker sees, in columns by ε (and what is said of it) and head."""
    head = ["attack", *(f"{name}{told}" for _, told in places for name in found)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]

    def row(title: str, figure: Callable[[Summary, float], float | None], bold: bool = False) -> str:
        cells = []
        for eps, _ in places:
            for group in found.values():
                shares = [figure(summary, eps) for summary in group]
                text = shown_mean([100 * share for share in shares if share is not None])
                cells.append(f"**{text}**" if bold else text)
        return f"| {f'**{title}**' if bold else title} | {' | '.join(cells)} |"

    def zero(summary: Summary, eps: float) -> float | None:
        attacks = [a for g in summary["groups"] for a in g["attacks"] if a["settings"].get("eps") == eps]
        return max((a["zero_gradients"] for a in attacks if a["attack"] == "pgd"), default=None)

    lines.append(row("none", lambda summary, eps: strong(summary)["natural"]))
    made = [row(title, lambda s, eps, wanted=wanted: strongest(s, eps, wanted)) for title, wanted in ATTACKS.items()]
    lines += [line for line in made if line.count("–") < len(head) - 1]
    lines.append(row(WORST, worst, bold=True))
    lines.append(row("gradients that are exactly zero", zero))
    return "\n".join(lines)


def units(found: dict[str, list[Summary]], eps_of: list[float]) -> str:
    """What px means, and what it is in the units of the paper."""
    one = next(summary for group in found.values() for summary in group)
    told = [f"{eps:g} px is {text}" for eps in eps_of if (text := normalised(eps, one))]
    paper = f"the paper's {one['table_eps']:g} normalised is {one['table_eps_pixels']:.2g} px"
    return "px: of the pixel range 0 .. 1; " + ", ".join([*told, paper])


def graphs(found: dict[str, list[Summary]]) -> str:
    """How many samples, and in which graphs."""
    every = [strong(summary) for group in found.values() for summary in group]
    samples = ", ".join(f"{n:,}" for n in sorted({group["samples"] for group in every}))
    names = dict.fromkeys(graph_of(group["attacks"][0]) for group in every)
    which = " or ".join(name for name in names if name != NO_GRAPH)
    return f"{samples} test samples" + (f", attacked + base in one graph: {which}" if which else "")


def worst(summary: Summary, eps: float) -> float | None:
    """The share of samples that some attack has fooled."""
    found = [w for w in strong(summary)["worst"] if (w["norm"], w["eps"]) == ("LInf", eps)]
    return max((w["error"] for w in found), default=None)


def against(record: dict[str, Any], _: dict[int, str]) -> str:
    """Natural error and worst case by what adversarial training was against."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in record["rows"]:
        groups.setdefault(f"{row['run']['head']}, {row['run']['training'].rpartition('against ')[2]}", []).append(row)
    eps_of = sorted({worst["eps"] for row in record["rows"] for g in row["groups"] for worst in g["worst"]})
    head = ["head, training against", "seeds", "natural", *(f"worst case, ε = {eps:g}" for eps in eps_of)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for name, rows in groups.items():
        cells = [shown_mean([100 * row["groups"][0]["natural"] for row in rows])]
        for eps in eps_of:
            errors = [max(w["error"] for g in row["groups"] for w in g["worst"] if w["eps"] == eps) for row in rows]
            cells.append(shown_mean([100 * error for error in errors]))
        lines.append(f"| {name} | {len(rows)} | {' | '.join(cells)} |")
    commits = ", ".join(sorted({row["environment"]["commit"] for row in record["rows"]}))
    return "\n".join([*lines, "", f"<small>commits {commits}, CPU, {record['rows'][0]['samples']:,} samples</small>"])


def attacked(known: Known) -> dict[str, str]:
    """Every table of both experiments, and what is said about them, by its name."""
    import _attacked_cw
    import _attacked_units
    from _attacked_graphs import at_test_only, by_rate, in_favour, in_one_graph
    from _attacked_protocol import beside_the_paper, jointly, order, paper_protocol, protocol_by_attack, square
    from _attacked_words import answers, claims, comparisons, excluded, other_training, symmetry, times_fgsm

    made = {"attacked-claims": claims(known), "attacked-headline": headline(known.worst)}
    made["attacked-natural"] = natural.table(known.worst, known.adversarial, largest("attack-length"))
    made |= {"attacked-square": square(known), "attacked-jointly": jointly(known)}
    made |= {"attacked-cw": _attacked_cw.table(known), "attacked-rate": by_rate()}
    made |= {"attacked-excluded": excluded(known), "attacked-comparisons": comparisons(known)}
    made |= {"attacked-together": in_one_graph(known), "attacked-favour": in_favour(known)}
    made |= {"attacked-at-test": at_test_only(), "attacked-cw-units": _attacked_units.units(known)}
    made |= {"attacked-symmetry": symmetry(known), "attacked-other-training": other_training(known)}
    made["attacked-times"] = times_fgsm(known)
    made["attacked-answers"] = answers(known, ROBUST, EVERY_CLASS)
    for data in NAMES:
        made[f"attacked-{data}"] = paper_protocol(known, data)
        made[f"attacked-{data}-paper"] = beside_the_paper(known, data)
        made[f"attacked-{data}-order"] = order(known, data)
        made[f"attacked-{data}-attacks"] = protocol_by_attack(known, data)
        made |= {f"attacked-{data}-{word}": by_attack(known, data, training) for training, word in SHORT.items()}
    return made


def figure_of(data: str, training: str = ROBUST) -> str:
    """The picture of a data set and a training."""
    more = [data] * (data != "mnist") + [SHORT[training]] * (training != ROBUST)
    return "-".join(["robustness-by-attack", *more]) + ".png"


def draw(known: Known, data: str, path: Path, training: str = ROBUST) -> None:
    """Error by what the attacker sees, a mark for every seed; the worst case in the last row. At the largest ε; after
    natural training at the smallest, since there no head is left at the largest."""
    import matplotlib.pyplot as plt

    found = known.columns(data, training)
    eps_of = radii([record for group in found.values() for record in group])
    eps, note = (max(eps_of), ", twice that of the training") if training == ROBUST else (min(eps_of), "")
    rows: dict[str, Callable[[dict[str, Any]], float | None]] = {
        title: lambda s, wanted=wanted: strongest(s, eps, wanted) for title, wanted in ATTACKS.items()
    }
    rows[WORST] = lambda summary: worst(summary, eps)
    shares = {
        (title, name): [share for record in group if (share := figure(record["more"]["alone"])) is not None]
        for title, figure in rows.items()
        for name, group in found.items()
    }
    titles = [title for title in rows if any(shares[title, name] for name in found)]
    seeds = {name: counted(len(group), "seed") for name, group in found.items()}
    same = len(set(seeds.values())) == 1
    figure, axes = plt.subplots(figsize=(8, (0.13 + 0.1 * len(found)) * len(titles) + 1.0), layout="constrained")
    for place, title in enumerate(reversed(titles)):
        for number, name in enumerate(found):
            height = place + 0.8 * (0.5 - (number + 0.5) / len(found))
            errors = [100 * share for share in shares[title, name]]
            label = (name if same else f"{name} ({seeds[name]})") if place == 0 else None
            colour, mark = LOOKS[name]
            axes.plot(errors, [height] * len(errors), mark, color=colour, markersize=5, label=label)
        if place % 2 == 0:
            axes.axhspan(place - 0.5, place + 0.5, color="0.96", zorder=0)
    axes.set_yticks(range(len(titles)), [title.split(", 1,000")[0].split(": the ")[0] for title in reversed(titles)])
    axes.get_yticklabels()[0].set_fontweight("bold")
    axes.set_ylim(-0.5, len(titles) - 0.5)
    axes.set_xlim(-1, 101)
    # Of the figure, not of the axes, which are narrower than these words.
    every = f"; {next(iter(seeds.values()))}" if same else ""
    about = f"{NAMES[data]}: error in percent at ε = {eps:g} of the pixel range{note}{every}"
    figure.supxlabel(about, fontsize=10)
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=len(found), fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    found = known()
    for training in SHORT:
        for contest in contests(found.worst, training):
            path = FIGURES / figure_of(contest.data, training)
            draw(found, contest.data, path, training)
            print(f"drew {path}")


if __name__ == "__main__":
    main()
