"""A run directory: everything that a run was told, did and found.

| file | what |
|---|---|
| `config.toml` | the whole config, defaults included |
| `split.npz` | which training samples kept their labels |
| `data.json` | what the training data was (`gll.data.fingerprint`): a run does not go on with other data |
| `environment.json` | versions, device and commit, at the start and at each resume |
| `metrics.jsonl` | one JSON object a line |
| `tensorboard/` | the same for TensorBoard, where it is installed |
| `checkpoints/NAME.safetensors` | from where to go on (`checkpoint.py`) |
| `result.json` | what came out; only a finished run has one |

The directory appears whole: it is filled under another name first. Every checkpoint remembers how long the metrics
were; `rewind` cuts what a killed process wrote after its last one, and going on writes those lines again.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import numpy
import scipy
import torch
from safetensors import safe_open
from torch import Tensor

import gll
from gll.commit import commit_of
from gll.data.fingerprint import changes, fingerprint
from gll.data.samples import TrainTest
from gll.data.splits import LabelSplit
from gll.files import complete_file, only_one
from gll.train.board import Board
from gll.train.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from gll.train.config import Config, from_toml, to_toml
from gll.train.distributed import Ranks
from gll.train.toml import ConfigError
from gll.words import counted


class RunError(ValueError):
    """A run directory that cannot be used as asked; the message says what to do."""


@final
@dataclass(frozen=True, eq=False)
class Run:
    """A run directory. Make one by `Run.create` or `Run.open`.

    Args:
        directory: where.
        config: what the run was told.
        split: which training samples kept their labels.
        writes: False for all but the first of several processes: what they log and save is dropped.
        board: TensorBoard.
        loaded: the data, if it was read to make the directory; whoever trains takes it out (`gll.train.model.data_of`).
        named: the encoder of the config that the run was made of here; None for a directory that was opened, whose
            encoder the user has to name again if it is code (`gll.train.own_encoder`).
    """

    directory: Path
    config: Config
    split: LabelSplit
    writes: bool = True
    board: Board = dataclasses.field(default_factory=Board)
    loaded: list[TrainTest] = dataclasses.field(default_factory=list)
    named: str | None = None

    @staticmethod
    def create(directory: Path, config: Config, split: LabelSplit, data: TrainTest | None = None) -> Run:
        """A new directory; an existing one is never written over. `data` is remembered, so that no other is used."""
        directory = Path(directory)
        refuse_existing(directory)
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            made = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", suffix=".tmp", dir=directory.parent))
        except OSError as error:
            raise RunError(f"{directory} cannot be made: {error.strerror}; choose another by out=DIR") from None
        try:
            made.chmod(0o755)
            (made / "checkpoints").mkdir()
            (made / "config.toml").write_text(to_toml(config), encoding="utf-8")
            (made / "metrics.jsonl").touch()
            write_json(made / "environment.json", {"started": environment(), "resumed": []})
            split.save(made / "split.npz")
            if data is not None:
                write_json(made / "data.json", fingerprint(data))
            try:
                made.rename(directory)  # fails if somebody else was quicker and has put files there
            except OSError:
                refuse_existing(directory)
                raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return Run(directory, config, split, loaded=[] if data is None else [data], named=config.model.encoder)

    @staticmethod
    def open(directory: Path, *, writes: bool = True) -> Run:
        """An existing directory. Nothing is changed by opening it."""
        directory = Path(directory)
        if not (directory / "config.toml").is_file():
            what = "is no run directory: it has no config.toml"
            if not directory.exists():
                what = "does not exist; give the folder of a run, which `gll train CONFIG` names at its end"
            if directory.is_file():
                trains = directory.suffix == ".toml"
                what = "is a file, not a run directory" + (f"; `gll train {directory}` makes one" if trains else "")
            raise RunError(f"{directory} {what}")
        if not (directory / "split.npz").is_file():
            raise RunError(f"{directory} is no run directory: beside config.toml it has no split.npz, as every run has")
        try:
            config = from_toml((directory / "config.toml").read_text(encoding="utf-8"))
        except ConfigError as error:
            raise RunError(f"{directory / 'config.toml'} was changed or damaged: {error}") from None
        return Run(directory, config, LabelSplit.load(directory / "split.npz"), writes)

    @property
    def fingerprint(self) -> dict[str, Any] | None:
        """That of the training data; None where it was not stored."""
        path = self.directory / "data.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None

    def check_data(self, data: TrainTest) -> None:
        """An error where the training data is not that of the run."""
        stored = self.fingerprint
        found = [] if stored is None else changes(stored, fingerprint(data))
        if found:
            raise RunError(
                f"{self.config.data.name} has changed since {self.directory} was made: it has {' and '.join(found)}. "
                "The run knows its samples by their numbers, so it can only be used with the data it was made with"
            )

    @contextmanager
    def working(self) -> Iterator[None]:
        """Held while training: a second process on the same directory is refused. Also rewinds the metrics."""
        if not self.writes:
            yield
            return
        busy = RunError(f"another process is working on {self.directory}; wait for it, or stop it")
        with only_one(self.directory, busy):
            self._rewind()
            self.board.open(self.directory / "tensorboard", self.metrics())
            try:
                yield
            finally:
                self.board.close()

    def _rewind(self) -> None:
        """Cut the metrics to where they were at the last checkpoint, and remove files that were never finished."""
        length = 0
        for name in ("checkpoints", "metrics.jsonl"):
            if not (self.directory / name).exists():
                raise RunError(f"{self.directory / name} is missing: somebody has removed it; start the run again")
        for path in (self.directory / "checkpoints").iterdir():
            if path.name.endswith(".tmp"):
                path.unlink()
            elif path.suffix == ".safetensors":
                length = max(length, _metrics_length(path))
        with (self.directory / "metrics.jsonl").open("r+b") as file:
            there = file.seek(0, os.SEEK_END)
            if there < length:
                raise RunError(f"{file.name} is shorter than at the last checkpoint: somebody has changed it")
            file.truncate(length)

    def log(self, **values: Any) -> None:
        """Add a line to the metrics. A number that is not finite is written as null."""
        if not self.writes:
            return
        values = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in values.items()
        }
        with (self.directory / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(values, allow_nan=False) + "\n")
        self.board.add(values)

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of the metrics. One that is still being written is left out."""
        text = (self.directory / "metrics.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def save(self, name: str, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint `name`, atomically. Tensors must be finite, the state must be JSON."""
        if not self.writes:
            return
        with (self.directory / "metrics.jsonl").open("rb") as file:
            os.fsync(file.fileno())
            length = file.seek(0, os.SEEK_END)
        about = {"metrics": length, "config": to_toml(_anywhere(self.config)), "state": dict(state)}
        save_checkpoint(self._checkpoint(name), tensors, about)

    def load(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The checkpoint `name`, on the CPU; None where there is none yet."""
        try:
            tensors, state = load_checkpoint(self._checkpoint(name))
        except FileNotFoundError:
            return None
        self._same_config(state)
        return tensors, state["state"]

    def _same_config(self, state: Mapping[str, Any]) -> None:
        """An error where config.toml was changed after a checkpoint, in what decides the numbers of a run."""
        changed = differences(from_toml(state["config"]), self.config) if "config" in state else []
        if changed:
            raise RunError(
                f"{self.directory / 'config.toml'} was changed since its checkpoint was written: {', '.join(changed)}; "
                "undo that, or start another run"
            )

    def _checkpoint(self, name: str) -> Path:
        return self.directory / "checkpoints" / f"{name}.safetensors"

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the result."""
        if self.writes:
            write_json(self.directory / "result.json", result)

    def result(self) -> dict[str, Any] | None:
        """What came out, or None where the run has not finished."""
        path = self.directory / "result.json"
        if not path.is_file():
            return None
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except ValueError:
            raise RunError(f"{path} is damaged; remove it and resume the run, which writes it again") from None

    def note_resume(self) -> None:
        """Add the environment of now to environment.json."""
        if self.writes:
            path = self.directory / "environment.json"
            record = json.loads(path.read_text(encoding="utf-8"))
            write_json(path, {**record, "resumed": [*record.get("resumed", []), environment()]})


def same_processes(run: Run, state: Mapping[str, Any], ranks: Ranks) -> None:
    """An error where a checkpoint was written by another number of processes, which share their batches otherwise."""
    before = state.get("processes", ranks.world)
    if before != ranks.world:
        raise RunError(
            f"{run.directory} was begun by {counted(before, 'process')}, and would go on to other "
            f"numbers with {ranks.world}: use torchrun with --nproc-per-node={before} (1: no torchrun)"
        )


def differences(before: Config, now: Config) -> list[str]:
    """The keys that differ and matter: not where a run and its data lie, where it is computed, nor how it is tested."""
    free = (
        "name",
        "out",
        "device",
        "test",
        "data.name",
        "data.root",
        "train.save_every",
        "warmup.save_every",
        "warmup.from_run",
    )
    found = []
    for field in dataclasses.fields(Config):
        a, b = getattr(before, field.name), getattr(now, field.name)
        parts = dataclasses.fields(a) if dataclasses.is_dataclass(a) else ()
        found += [f"{field.name}.{p.name}" for p in parts if getattr(a, p.name) != getattr(b, p.name)]
        found += [field.name] if not parts and a != b else []
    return [key for key in found if key not in free and key.split(".")[0] not in free]


def _anywhere(config: Config) -> Config:
    """Without folders of this machine: a checkpoint goes to others, and who goes on has folders of their own."""
    data = dataclasses.replace(config.data, root="")
    return dataclasses.replace(config, out="", data=data, warmup=dataclasses.replace(config.warmup, from_run=""))


def refuse_existing(directory: Path) -> None:
    """An error where there is something already, which says how to go on."""
    directory = Path(directory)
    if (directory / "result.json").is_file():
        raise RunError(f"{directory} holds a finished run; choose another by name=NAME or out=DIR, or remove it")
    if (directory / "config.toml").is_file():
        begun = any((directory / "checkpoints").glob("*.safetensors"))
        raise RunError(
            f"{directory} holds a run that has not finished{'' if begun else ', nor come to a checkpoint'}; go on "
            f"with `gll train --resume {directory}`, remove it, or choose another by name=NAME or out=DIR"
        )
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RunError(f"{directory} exists and is no run; choose another directory by out=DIR")


def _metrics_length(path: Path) -> int:
    """How long the metrics were when a checkpoint was written; its tensors are not read."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return int(json.loads((file.metadata() or {})["state"])["metrics"])
    except Exception as error:  # whatever is wrong with it, it is no checkpoint
        raise CheckpointError(f"{path} cannot be read ({error}); remove it to start that part again") from None


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    with complete_file(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def environment(besides: Sequence[str] = ()) -> dict[str, Any]:
    """On what a run was made. GLL_COMMIT names the commit where there is no git.

    Args:
        besides: files that may differ from the commit; see `commit_of`.
    """
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit_of(Path(gll.__file__).parent, besides),
        "machine": f"{platform.system()} {platform.machine()}",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "versions": {
            "gll": gll.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "numpy": numpy.__version__,
            "scipy": scipy.__version__,
            "scikit-learn": version("scikit-learn"),  # to import it takes a second
        },
    }
