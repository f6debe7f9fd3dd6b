"""Is a naturally trained GLL more robust than the heads beside it? An answer for each way of training.

It is the training that decides, so no answer is given without one: ours and the paper's with each sample alone in a
graph, by `worst-case`; the paper's with all samples in one graph, by `adversarial`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gll.reproduce.protocol import ORDER, WORST, Group, epochs_of, graph_of, groups, strong
from gll.reproduce.records import Record
from gll.reproduce.robust import AT, BREAK, HEADS, NAMES, NATURAL, OURS, PAPER, Contest, contests, radii, shown_mean
from gll.reproduce.tables import Shown
from gll.reproduce.verdicts import judged, relation, so_far
from gll.words import counted

WHOSE = {NATURAL: "our training", PAPER: "the paper's training"}
SCHEDULES = {"step": "steps"}
NOT_RUN = "not run yet"


def training_of(record: Record) -> str:
    """Epochs, optimizer, rate and its course. `config` of a record has what differs from the defaults.

    >>> training_of({"config": {"train.epochs": 30}})
    '30 epochs, Adam 0.001, cosine'
    >>> training_of({"config": {"train.epochs": 100, "train.lr": 0.01, "train.schedule": "step"}})
    '100 epochs, Adam 0.01, steps'
    """
    from gll.train.config import TrainConfig

    told: Mapping[str, Any] = record["config"]
    default = TrainConfig()
    rate = told.get("train.lr", default.lr)
    optimizer, schedule = (told.get(f"train.{key}", getattr(default, key)) for key in ("optimizer", "schedule"))
    names = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}
    return f"{epochs_of(record)} epochs, {names[optimizer]} {rate:g}, {SCHEDULES.get(schedule, schedule)}"


def table(worst: Shown, scales: Sequence[Shown], length: Shown | None = None) -> str:
    """Worst cases in percent, and who is more robust: a row for each data set, training, graph and ε.

    Args:
        worst: what `worst-case` has come to.
        scales: what `adversarial` has, at every scale but the smallest.
        length: what `attack-length` has: the same heads after longer trainings.
    """
    rows = [*_rows_alone(worst, PAPER), *_rows_together(scales, length), *_rows_alone(worst, NATURAL)]
    if not rows:
        return NOT_RUN.capitalize() + "."
    head = ["data", "natural training", "attacked + base in one graph", "ε", "seeds", *ORDER, "is a GLL more robust?"]
    lines = [f"| {' | '.join(head)} |", "|---|---|---|---:|---|" + "---:|" * len(ORDER) + "---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _rows_alone(worst: Shown, training: str) -> list[list[str]]:
    rows = []
    for contest in (contest for contest in contests(worst, training) if contest.heads):
        own = contest.records[OURS]
        for multiple, eps in zip(AT, radii(own), strict=True):
            errors = [shown_mean(contest.values(head, AT[multiple])) for head in ORDER]
            where = [NAMES.get(contest.data, contest.data), f"{WHOSE[training]} ({training_of(own[0])})"]
            where += [f"1 + {base_of(own[0])}", f"{eps:g} px", contest.seeds]
            rows.append([*where, *errors, f"**{contest.answers[multiple]}**"])
    return rows


def _rows_together(scales: Sequence[Shown], length: Shown | None) -> list[list[str]]:
    rows = []
    for group in _compared(scales, NATURAL):
        shortened = "" if group.scale == scales[-1].scale else ", shortened"
        errors = [shown_mean(group.values(head, WORST)) for head in ORDER]
        training = f"{WHOSE[PAPER]}{shortened} ({training_of(group.records[OURS][0])})"
        where = [NAMES.get(group.data, group.data), training, group.graph, f"{group.eps_pixels:.2g} px", group.seeds]
        rows.append([*where, *errors, _beside(group) + after_longer(group, length)])
    return rows


def _beside(group: Group) -> str:
    """The answer beside each of the other heads, those of one answer together."""
    words: dict[str, list[str]] = {}
    for head in (head for head in group.records if head != OURS and group.values(head, WORST)):
        words.setdefault(group.judged(OURS, head), []).append(HEADS[head])
    return "; ".join(f"**{word}** beside {' and '.join(names)}" for word, names in words.items())


def base_of(record: Record) -> str:
    """How many base samples the graph of one sample has."""
    return graph_of(strong(record["more"]["alone"])["attacks"][0]).rpartition(" + ")[2]


def longer_trained(group: Group, length: Shown | None, figure: str) -> dict[int, dict[str, list[float]]]:
    """Errors that `attack-length` has after longer trainings than those of the group: by epochs, then by head.

    A network that has met the paper's attacks alone has no worst case, and is not among them. Summaries say of an
    adversarial training at which ε it was, too.
    """
    found: dict[int, dict[str, list[float]]] = {}
    short = max(epochs_of(record) for own in group.records.values() for record in own)
    for place, record in length.found if length is not None else ():
        run, epochs, error = record["more"]["summary"]["run"], epochs_of(record), record["values"][figure]
        same = (run["data"], run["training"].partition(",")[0]) == (group.data, group.training)
        if same and epochs > short and error is not None:
            found.setdefault(epochs, {}).setdefault(place["head"], []).append(float(error))
    return found


def after_longer(group: Group, length: Shown | None) -> str:
    """What `attack-length` has of the same heads after a longer training: an answer by a short one may be turned by it.

    It is the longest that a GLL has a worst case after. Where it has none, that of the short training stands beside the
    others after their longest. Nothing without such a record.
    """
    found = longer_trained(group, length, WORST)
    if not found:
        return ""
    epochs = max([epochs for epochs, heads in found.items() if OURS in heads] or found)
    heads = found[epochs]
    longer = OURS in heads
    ours = heads.pop(OURS) if longer else group.values(OURS, WORST)
    parts = []
    for head, errors in heads.items():
        answer = judged({HEADS[head]: relation(ours, errors, group.samples)})
        told = so_far(answer, min(len(ours), len(errors)), group.samples)
        parts.append(f"; **{told}** beside {HEADS[head]} of {epochs} epochs ({shown_mean(errors)})")
    if longer:
        return f"; after {epochs} epochs a GLL has {shown_mean(ours)}{''.join(parts)}"
    return f"{''.join(parts)}; the worst case of a GLL of {epochs} epochs is not known"


def in_one_graph(scales: Sequence[Shown], training: str = NATURAL, length: Shown | None = None) -> str:
    """The answer for every data set of `adversarial`, in words. What was trained for less says so."""
    parts = []
    for group in _compared(scales, training):
        short = "" if group.scale == scales[-1].scale else f", shortened to {group.epochs}"
        parts.append(
            f"{NAMES.get(group.data, group.data)}{short}: {_beside(group)}{after_longer(group, length)} ({group.seeds})"
        )
    return BREAK.join(parts) or NOT_RUN


def more_trainings(worst: Shown, group: Group) -> str:
    """What `worst-case` has of the same heads, trained by the same settings: with each sample alone, at its ε.

    One training may be an outlier; this is how far the others lie apart. Nothing where there is none.
    """
    if group.training != NATURAL:
        return ""
    contest = Contest(worst, group.data, PAPER)
    how = training_of(next(iter(group.records.values()))[0])
    found = {
        head: values
        for head in group.records
        if (values := contest.values(head, AT[1])) and training_of(contest.records[head][0]) == how
    }
    if not found:
        return ""
    told = ", ".join(f"{head} {min(values):.1f} to {max(values):.1f}" for head, values in found.items())
    eps = radii([record for head in found for record in contest.records[head]])[0]
    number = counted(max(len(values) for values in found.values()), "more such training")
    return f"; {number}, each sample alone at ε = {eps:g} px: {told}"


def _compared(scales: Sequence[Shown], training: str) -> list[Group]:
    """Where a GLL has somebody beside it."""
    found = [g for data in scales[-1].experiment.text["axes"]["data"] for g in groups(scales, data, training)]
    return [g for g in found if g.values(OURS, WORST) and any(g.values(h, WORST) for h in g.records if h != OURS)]
