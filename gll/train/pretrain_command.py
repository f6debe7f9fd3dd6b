"""`gll pretrain`: the warm-up of a config alone, in a run directory that `gll train` can go on with or take it from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from gll.train.commands import PROBLEMS, ended, named_encoder, open_config, open_run, resuming
from gll.train.distributed import Ranks
from gll.train.finite import NonFiniteError
from gll.train.model import build_run, find_device
from gll.train.own_encoder import announce
from gll.train.pretrain import warm_up
from gll.train.progress import Reporter
from gll.train.runs import Run
from gll.train.toml import ConfigError


def run_pretrain(
    config_path: Path | None, overrides: Sequence[str], resume: Path | None, encoder: str | None, console: Console
) -> int:
    """Warm up, or go on with it. Returns the exit code."""
    run: Run | None = None
    try:
        config = open_config(config_path, overrides, resume)
        if config.warmup.epochs == 0:
            raise ConfigError("warmup.epochs is 0, so there is nothing to do: give a number, such as warmup.epochs=100")
        if config.warmup.from_run:
            raise ConfigError(f"warmup.from takes the warm-up of {config.warmup.from_run}: there is nothing to do")
        encoder = named_encoder(config, resume, encoder)
        with Ranks.start(find_device(config.device)) as ranks:
            reporter = Reporter(console if ranks.is_first else None)
            announce(config.model.encoder, config.model.encoder_options, reporter.say)
            run = open_run(config, config_path, resume, ranks, reporter)
            model, data = build_run(run, ranks.device, processes=ranks.world, encoder=encoder)
            with run.working():
                try:
                    warm_up(model.encoder, data, run.split, config, run, reporter=reporter, ranks=ranks)
                except NonFiniteError as error:
                    run.log(phase="stopped", epoch=0, reason=str(error))
                    raise
            reporter.say(f"go on with the head: {resuming('train', run)}")
            reporter.say(f"or use it in other runs of the same data, seed and encoder: warmup.from={run.directory}")
        return 0
    except (KeyboardInterrupt, *PROBLEMS) as error:
        return ended("pretrain", run, error)
