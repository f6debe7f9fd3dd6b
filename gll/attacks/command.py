"""`gll attack`: from a run directory to tables, pictures and figures in files.

What is attacked is in `target.py`, with what in `sets.py`, how in `evaluate.py`, and whether it can be trusted in
`checks.py`. Here they are put together. Tables and pictures show all that the folder holds, whichever command has put
it there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from gll.attacks.base import AbstractAttack
from gll.attacks.checks import SAMPLES, run_checks, with_checks
from gll.attacks.effects import chosen, without_effect
from gll.attacks.evaluate import Evaluation, cell_of, evaluate, in_norm
from gll.attacks.footnotes import footnotes
from gll.attacks.forecast import Forecast, outline
from gll.attacks.gather import gather
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.graphs import graph_in_words
from gll.attacks.kept import keep_samples
from gll.attacks.parts import parts_left_out
from gll.attacks.patient import PatientConsole
from gll.attacks.plots import Row, draw_curves, draw_distances, draw_images, draw_poison
from gll.attacks.poisoned import poison_base, poisonable
from gll.attacks.repair import set_aside_damaged
from gll.attacks.report import about_checks, error_grids, preface, report
from gll.attacks.sets import AIMED, Planned, left_out, names_of, plan
from gll.attacks.signs import RULE, Check
from gll.attacks.store import FORMAT, ResultsError, Store, write_json
from gll.attacks.tables import NORMS, Grid, checks_grid, plain_name, poison_grid
from gll.attacks.target import GRAPH, Request, Target
from gll.files import complete_file
from gll.terminal import error_console, said_by
from gll.train.finite import NonFiniteError
from gll.train.interrupt import stopped_by_sigterm
from gll.train.own_encoder import announce
from gll.train.progress import Reporter, clock
from gll.train.runs import environment
from gll.words import counted

PROBLEMS = (OSError, ValueError, ImportError, NonFiniteError)
"""What a user can do something about: shown as one message, without a traceback."""
PICTURED = ("fgsm", "ifgsm", "cw-paper")  # the paper's figure; two rows each
MOST_ROWS = 12
FEW_SAMPLES, FEW_BASE = 200, 500  # for a first look on a CPU


def run_attack(request: Request, console: Console) -> int:
    """Attack a run. Returns the exit code."""
    errors, console = error_console(), PatientConsole.like(console)
    out = request.out or request.run / "attack"
    try:
        with stopped_by_sigterm():
            summary = attack_run(request, out, Reporter(console))
    except KeyboardInterrupt:
        again = f"; what is done is kept in {out}: the same command with --resume goes on" if out.is_dir() else ""
        errors.print(said_by("attack", f"interrupted{again}"))
        return 130
    except PROBLEMS as error:
        errors.print(said_by("attack", str(error)))
        return 1
    if not console.is_terminal:
        console.width = 160
    poisoned = (poison_grid(summary),) if summary["poison"] else ()
    parts: tuple[str | Grid, ...] = (
        *preface(summary), *error_grids(summary), *footnotes(summary), *poisoned,
        *about_checks(summary), checks_grid(summary),
    )  # fmt: skip
    for part in parts:
        if isinstance(part, Grid):
            console.print(part.rich())
        elif part:
            console.print(Text(part), soft_wrap=True)
    where = f"every attack by itself: {out / 'report.md'}, pictures and figures beside it"
    took = f"{clock(summary['wall_s'])} of attacks, {clock(summary['checks_at']['seconds'])} of checks"
    console.print(Text(f"{took}; {where}"), soft_wrap=True)
    return 0


def attack_run(request: Request, out: Path, reporter: Reporter, *, typed: bool = True) -> dict[str, Any]:
    """Attack a run, write everything into a folder, and return the summary.

    Args:
        request: what was asked for.
        out: the folder.
        reporter: says how far it is.
        typed: whether somebody has given these options for this run, and should hear which of them change nothing.

    Raises:
        ValueError: something cannot be attacked as asked (RunError, ResultsError among them).
    """
    if not request.resume and (out / "about.json").is_file():
        raise ResultsError(
            f"{out} holds results; add --resume to go on with them, or choose another folder by --out; to begin "
            "afresh, remove the folder"
        )
    target = Target(request)
    for run in (target.run, *target.others):
        announce(run.config.model.encoder, run.config.model.encoder_options, reporter.say)
    recipe = target.recipe()
    without = left_out(request.attacks, recipe, autoattack=find_spec("pyautoattack") is not None)
    names = [name for name in names_of(request.attacks) if name not in without]
    planned = plan(names, recipe)
    if not planned:
        why = [*without.values(), *chosen(target, recipe, names)]
        raise ValueError("; ".join([f"nothing to attack with: {request.attacks}", *why]))
    if request.poison:
        poisonable(target)
    store = Store.open(out, target.about(), resume=request.resume, images=request.keep_images)
    for line in set_aside_damaged(store):
        reporter.say(line)
    if request.keep_images:
        keep_samples(out, target.index, target.labels, target.images)
    what = f"{request.head_at_test} head at test" if request.head_at_test else f"{target.run.config.model.head} head"
    many = f"{counted(len(planned), 'attack')} on {counted(len(target.images), 'sample')} of {target.data.name}"
    reporter.say(f"{target.about()['run']} ({what}): {many}, in {NORMS[_norm(target)]}")
    unused = [*(without_effect(request, target, names) if typed else ()), *chosen(target, recipe, names)]
    notes = [*(f"{name} was left out: {reason}" for name, reason in without.items()), *unused]
    for line in notes:
        reporter.say(line)
    _attack_all(target, planned, store, reporter)
    groups, unfinished = gather(store, target.labels.cpu().numpy())
    checks, tried = _checks(target, groups, out, reporter)
    shown = with_checks(groups, tried)
    summary = _summary(target, groups, shown, checks, notes) | {"poison": poison_base(target, out, reporter)}
    summary["checks_at"]["seconds"] = _seconds(tried)
    found = [f"{cell} was begun and is not finished: it is in no table" for cell in unfinished]
    found += parts_left_out(summary)
    for line in found:
        reporter.say(line)
    summary["notes"] += found
    write_json(out / "summary.json", summary)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    with complete_file(out / "report.md") as part:
        part.write_text(report(summary), encoding="utf-8")
    name = target.run.config.name
    draw_curves({name: summary}, out / "curves.png")
    draw_distances({name: summary}, out / "distances.png")
    draw_poison({name: summary}, out / "poison.png")
    rows = _pictures(target, groups, store)
    if rows:
        draw_images(rows, out / "images.png")
    return dict(summary)


def _attack_all(target: Target, planned: Sequence[Planned], store: Store, reporter: Reporter) -> None:
    """Attack each victim by what was planned for it, after saying what that is."""
    p, n = target.protocol, len(target.images)
    jobs: dict[tuple[int, int, bool, bool], list[AbstractAttack]] = {}
    for one in planned:
        size = (p.base, p.chunk) if one.large else (p.few_base, p.few_chunk)
        graph = (*size, one.sharp, one.fast)
        jobs.setdefault(graph if target.has_graph else (0, p.few_chunk, False, False), []).append(one.attack)
    to_come: list[tuple[AbstractAttack, int]] = []
    outlined: dict[str, list[AbstractAttack]] = {}
    for (base, chunk, sharp, fast), attacks in jobs.items():
        model = target.judged(base, sharp, fast=fast)
        left = [n - store.done(cell_of(attack, model, min(chunk, n))) for attack in attacks]
        to_come += zip(attacks, left, strict=True)
        where = f" beside a base of {base:,}{', in float64' if sharp else ''}" if target.has_graph else ""
        outlined.setdefault(f"{min(chunk, n):,} samples at a time{where}:", []).extend(attacks)
    for title, attacks in outlined.items():
        reporter.say(title)
        for line in outline(attacks):
            reporter.say(f"  {line}")
    if done := sum(not left for _, left in to_come):
        reporter.say(f"{done} of them are done already")
    forecast = Forecast(to_come, reporter, _shorter(target))
    for (base, chunk, sharp, fast), attacks in jobs.items():
        args = (target.judged(base, sharp, fast=fast), target.images, target.labels, attacks)
        options: dict[str, Any] = {"store": store, "reporter": reporter, "seed": target.request.seed}
        evaluate(*args, chunk=chunk, after=forecast.after, **options)


def _shorter(target: Target) -> str:
    """How the same would take minutes; empty where it is as small already."""
    fewer = [f"--samples {FEW_SAMPLES}"] if len(target.images) > FEW_SAMPLES else []
    fewer += [f"--base {FEW_BASE}"] if target.has_graph and target.protocol.few_base > FEW_BASE else []
    if not fewer:
        return ""
    other = "; an error depends on the base" if any("--base" in word for word in fewer) else ""
    return f"for a first look: Ctrl-C, and the same command with {' '.join(fewer)} --out FOLDER{other}"


def _checks(
    target: Target, evaluations: Sequence[Evaluation], out: Path, reporter: Reporter
) -> tuple[tuple[Check, ...], list[Evaluation]]:
    """Of the layer as it is used, by its own gradient; and all that the attacks of checks have found in this folder."""
    eps = _checked_eps(target)
    store = Store.open(out / "checks", target.about(), resume=True)
    for line in set_aside_damaged(store):
        reporter.say(line)
    model = target.judged(target.protocol.few_base, False)
    args = (model, target.images, target.labels)
    options: dict[str, Any] = {"store": store, "reporter": reporter, "seed": target.request.seed}
    checks = run_checks(*args, eps=eps, norm=target.measure.norm, evaluations=evaluations, **options)
    tried, _ = gather(store, target.labels[:SAMPLES].cpu().numpy())
    return checks, tried


def _checked_eps(target: Target) -> float:
    """Where the checks look: at the largest ε that was asked for, or at that of the paper's table."""
    asked = max(radius.eps for radius in target.radii((target.protocol.table_eps,)))
    return asked or target.table_eps


def _checks_at(target: Target) -> dict[str, Any]:
    """Where the checks' own attacks were made."""
    model = target.judged(target.protocol.few_base, False)
    threat, views = getattr(model, "threat", None), isinstance(model, GraphVictim) and model.is_plain
    lent = isinstance(model, GraphVictim) and model.surrogate is not None
    n = min(SAMPLES, len(target.images))
    graph = "" if threat is None else graph_in_words(threat.as_dict(), n)
    at = {"eps": _checked_eps(target), "norm": _norm(target), "samples": n, "graph": graph, "stand_ins": views}
    return {**at, "through_graph": lent, "rule": RULE}


def _summary(
    target: Target,
    groups: Sequence[Evaluation],
    shown: list[dict[str, Any]],
    checks: Sequence[Check],
    notes: Sequence[str],
) -> dict[str, Any]:
    config, p = target.run.config, target.protocol
    adversarial = config.adversarial
    training = "natural"
    if adversarial.eps > 0:
        training = f"robust, ε = {adversarial.eps:g} {adversarial.units}, against {adversarial.against}"
    head = f"{config.model.head}, {target.request.head_at_test} at test" if target.request.head_at_test else None
    asked = target.request
    return {
        "format": FORMAT,
        "run": {
            "name": config.name,
            "seed": config.seed,
            "data": target.data.name,
            "encoder": config.model.encoder,
            "head": head or config.model.head,
            "training": training,
            "eps": adversarial.eps * (max(target.data.std) if adversarial.units == "normalised" else 1),
            "about": _in_words(target, training),
        },
        "about": target.about(),
        "samples": len(target.images),
        "unit": max(target.data.std),
        "table_eps": p.table_eps,
        "table_eps_pixels": target.table_eps,
        "norm": _norm(target),
        "table_c": p.table_c,
        "attacks": asked.attacks,
        "gradient_of": asked.gradient_of,
        "followed": target.followed(),
        "groups": shown,
        "checks": [check.as_dict() for check in checks],
        "checks_at": _checks_at(target),
        "test": target.tested(),
        "notes": list(notes),
        "wall_s": _seconds(groups),
        "environment": environment(),
        "written": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _seconds(groups: Sequence[Evaluation]) -> float:
    return round(sum(outcome.seconds for group in groups for outcome in group.outcomes), 3)


def _norm(target: Target) -> str:
    return type(target.measure.norm).__name__


def _in_words(target: Target, training: str) -> str:
    """What was trained, what classifies, by how many neighbours, and whose gradient is followed."""
    asked, head = target.request, target.run.config.model.head
    at_test = f"classified by a {asked.head_at_test} head at test" if asked.head_at_test else ""
    aim = target.aim()
    by = "the model's own" if aim is None else f"that of {aim[1]}"
    if asked.gradient_of == GRAPH:
        by += ", through its graph, and not that of the linear layer it was trained by"
    if aim is not None and not set(names_of(asked.attacks)) <= set(AIMED):
        by += ", but not of every attack (see the notes)"
    judged = target.judged(target.protocol.few_base, False)
    # It decides much: where a base has fewer of each class, neighbours are always of several classes.
    near = f"{judged.layer.k} neighbours in the graph" if isinstance(judged, GraphVictim) else ""
    words = (f"trained with a {head} head", at_test, near, f"training {training}", f"gradient: {by}")
    return "; ".join(filter(None, words))


def _pictures(target: Target, groups: Sequence[Evaluation], store: Store) -> list[Row]:
    """Images that fooled the model: two of each of the paper's attacks at the ε of its table, one of each other."""
    wanted = target.table_eps
    outcomes = [o for group in groups for o in group.outcomes]

    def away(outcome: Any) -> float:
        settings = outcome.cell.settings
        if settings.get("c") is not None:
            return abs(settings["c"] - target.protocol.table_c)
        return abs((settings.get("eps") or wanted) - wanted)

    rows = []
    names = list(dict.fromkeys(o.cell.attack for o in outcomes))
    paper = [name for name in names if plain_name({"attack": name}) in PICTURED]
    for name in (*paper, *(name for name in names if name not in paper)):
        outcome = min((o for o in outcomes if o.cell.attack == name), key=away)
        pictures, settings = store.pictures(outcome.cell), outcome.cell.settings
        known = [f"ε = {settings['eps']:.4g}{in_norm(settings)}"] if settings.get("eps") else []
        known += [f"c = {settings['c']:.4g}"] if settings.get("c") else []
        for index, image in list(zip(pictures.index, pictures.images, strict=True))[: 2 if name in paper else 1]:
            clean = target.images[int(index)].float().cpu().numpy()
            before, after = (target.data.classes[int(a[index])] for a in (outcome.clean, outcome.predicted))
            rows.append(Row(name, clean, image, before, after, ", ".join(known)))
    return rows[:MOST_ROWS]
