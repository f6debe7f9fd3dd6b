"""`gll train` and `gll evaluate`: from a config or a run directory to tables on a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gll.terminal import error_console, said_by
from gll.train.board import Board
from gll.train.config import Config, load_config, with_values
from gll.train.distributed import Ranks
from gll.train.evaluate import evaluate, remarks, rows, to_come
from gll.train.finite import NonFiniteError
from gll.train.loop import new_run, train
from gll.train.model import CHECKPOINT, find_device, restore
from gll.train.own_encoder import announce, check_named
from gll.train.progress import Reporter, clock
from gll.train.runs import Run, RunError
from gll.train.toml import ConfigError
from gll.train.unused import options_of_another, without_effect
from gll.words import counted

PROBLEMS = (OSError, ValueError, NonFiniteError)
"""What a user can do something about: shown as one message, without a traceback."""


def run_train(
    config_path: Path | None, overrides: Sequence[str], resume: Path | None, encoder: str | None, console: Console
) -> int:
    """Start a run, or go on with one. Returns the exit code."""
    run: Run | None = None
    try:
        config = open_config(config_path, overrides, resume)
        encoder = named_encoder(config, resume, encoder)
        with Ranks.start(find_device(config.device)) as ranks:
            console = console if ranks.is_first else Console(quiet=True)
            reporter = Reporter(console if ranks.is_first else None)
            announce(config.model.encoder, config.model.encoder_options, reporter.say)
            run = open_run(config, config_path, resume, ranks, reporter)
            if run.result() is not None:
                reporter.say(f"{run.directory} was finished before; to train for longer, start another run")
            result = train(run, ranks=ranks, reporter=reporter, encoder=encoder)
            if ranks.is_first:
                show_result(result, run, console)
        return 0
    except (KeyboardInterrupt, *PROBLEMS) as error:
        return ended("train", run, error, _last_good(run, error))


def ended(command: str, run: Run | None, error: BaseException, more: str = "") -> int:
    """Say why a command on a run has ended before its time. Returns the exit code."""
    if isinstance(error, KeyboardInterrupt):
        again = f"; go on with: {resuming(command, run)}" if run is not None else ""
        error_console().print(said_by(command, f"interrupted{again}"))
        return 130
    error_console().print(said_by(command, f"{error}{more}"))
    return 1


def resuming(command: str, run: Run) -> str:
    """How to go on with a run that the user has started here."""
    name = run.config.model.encoder
    return f"gll {command} --resume {run.directory}" + (f" --encoder {name}" if ":" in name else "")


def named_encoder(config: Config, resume: Path | None, encoder: str | None) -> str | None:
    """The encoder that the user has named: in the config, or for a run to go on with by --encoder."""
    if resume is not None:
        check_named(config.model.encoder, config.model.encoder_options, encoder, str(resume))
        return encoder
    if encoder is not None:
        raise ConfigError(f"--encoder is for --resume; with a config say model.encoder={encoder}")
    return config.model.encoder


def open_config(config_path: Path | None, overrides: Sequence[str], resume: Path | None) -> Config:
    """The config of a file and `key=value`, or that of a run to go on with."""
    if resume is None:
        if config_path is None:
            raise ConfigError("give a config, or --resume DIR; configs/ has some to start from")
        return load_config(config_path, overrides)
    if config_path is not None or overrides:
        raise ConfigError("--resume goes on with the config of the run: it takes no other config and no key=value")
    return Run.open(resume).config


def open_run(config: Config, config_path: Path | None, resume: Path | None, ranks: Ranks, reporter: Reporter) -> Run:
    """The run: a new one, made by the first process, or that to go on with."""
    if resume is not None:
        run = Run.open(resume, writes=ranks.is_first)
        if run.result() is None:
            run.note_resume()
        return run
    if not ranks.is_first:
        if ranks.any(False):
            raise RunError("the first process could not start: see what it says")
        return Run.open(config.directory, writes=False)
    try:
        run = new_run(config, ranks)
    except BaseException:
        ranks.any(True)  # the others wait for this
        raise
    ranks.any(False)
    m = config.model
    heads = f"; {m.first} trains for {counted(m.switch_at, 'epoch')}, then {m.head}" if m.switch_at > 0 else ""
    reporter.say(f"{config.name}, seed {config.seed}: {run.directory}{heads}")
    text = config_path.read_text(encoding="utf-8") if config_path is not None else ""
    for which, head in (("head", m.head), ("first", m.first)):
        if gone := options_of_another(config, text, which):
            reporter.say(f"left out, as {head} has no such options: {', '.join(gone)} (of model.{which}_options)")
    for line in without_effect(config):
        reporter.say(line)
    if not Board.available():
        reporter.say("TensorBoard is not installed: the metrics are in metrics.jsonl only")
    return run


def _last_good(run: Run | None, error: BaseException) -> str:
    """Where the last good checkpoint is, if the numbers of a run went wrong."""
    if run is None or not isinstance(error, NonFiniteError):
        return ""
    stored = run.load(CHECKPOINT)
    if stored is None:
        return f"\nNo checkpoint was written. The metrics are in {run.directory}."
    return f"\nThe last good checkpoint, of epoch {stored[1]['epoch']}, is kept in {run.directory}."


def show_result(result: dict[str, Any], run: Run, console: Console) -> None:
    """The result of a run as a table."""
    console.print(
        _table(f"{result['name']}, seed {result['seed']}: {counted(result['epochs'], 'epoch')}", result["tests"])
    )
    if not result["tests"]:
        console.print(Text(_without_test(run)), soft_wrap=True)
    speed = "" if result["images_per_second"] is None else f", {result['images_per_second']:,.0f} images/s"
    console.print(Text(f"trained for {clock(result['seconds'])}{speed}, tests not counted; {run.directory}"))


def _without_test(run: Run) -> str:
    """What to say of a run that nothing was measured on."""
    last = [row for row in run.metrics() if row["phase"] == "train"][-1:]
    seen = "".join(
        f"; in its last epoch {row['error']:.2%} of the labelled training samples were wrong" for row in last
    )
    name = run.config.data.name
    how = " (folders train and test in it, with a share of every class in test, would)" if Path(name).is_dir() else ""
    return f"{name} has no test samples, so nothing tells how good the run is on new ones{how}{seen}"


def _table(title: str, scores: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title)
    for name in ("head", "test", "error", "loss"):
        table.add_column(name, justify="right" if name in ("error", "loss") else "left")
    for row in scores:
        table.add_row(row["head"], row["mode"], f"{row['error']:.2%}", f"{row['loss']:.4f}")
    if not scores:
        table.add_row("–", "no test samples", "–", "–")
    return table


def run_evaluate(
    directory: Path, overrides: Sequence[str], as_json: bool, encoder: str | None, console: Console
) -> int:
    """Test the last checkpoint of a run. Nothing is written. Returns the exit code."""
    errors = error_console()
    try:
        run = Run.open(directory, writes=False)
        for override in overrides:
            if not override.startswith(("test.", "device=", "data.root=")):
                raise ConfigError(f"a trained run can be tested in other ways, not made another: {override!r}")
        config = with_values(run.config, *overrides)
        run = Run(run.directory, config, run.split, writes=False)
        m = config.model
        check_named(m.encoder, m.encoder_options, encoder, str(directory))
        announce(m.encoder, m.encoder_options, Reporter(errors).say)
        model, data = restore(run, find_device(config.device), encoder=encoder)
        for line in remarks(config, data):
            errors.print(said_by("evaluate (note)", line, "yellow"))
        if coming := to_come(model, data, config):
            Reporter(errors).say(coming)
        scores = rows(evaluate(model, data, run.split, config))
        stored = run.load(CHECKPOINT)
    except PROBLEMS as error:
        return ended("evaluate", None, error)
    epoch = stored[1]["epoch"] if stored else 0
    if as_json:
        console.print_json(json.dumps({"run": str(directory), "epoch": epoch, "tests": scores}))
    else:
        console.print(_table(f"{config.name}, seed {config.seed}: after epoch {epoch}", scores))
    return 0
