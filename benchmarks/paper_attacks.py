"""Which reading of the paper's protocol gives which error: MNIST, FGSM and IFGSM at ε = 0.3.

    python benchmarks/paper_attacks.py --device cuda --part linear
    python benchmarks/paper_attacks.py --device cuda --part wnll
    python benchmarks/paper_attacks.py --device cuda --part gll,wnll-trainings
    python benchmarks/paper_attacks.py --part none --json benchmarks/results/paper-attacks.json     joins what is there
    python benchmarks/paper_attacks.py --part robust-gll,robust-wnll --work out/robust \\
        --json benchmarks/results/paper-attacks-robust.json --trained RUN --trained RUN

The last two parts are of adversarial training, all others of natural training.
Networks are those of `experiments/adversarial`. One thing at a time is changed: how a network was trained, whose
gradient is followed, or how the attack is carried out (`_readings.py`). A row is kept in the folder --work as soon as
it is measured, and is not measured again; so the parts may run side by side, stop, and go on. The table is made by
`_paper_attacks.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, final

import torch
import typer
from _paper_attacks import rich_table
from _readings import GRAPH_READINGS, LINEAR_READINGS, PLAIN, Reading, Subject, error_after
from record import environment, write_json
from rich.console import Console
from torch import Tensor

from gll.attacks.graph_victim import GraphVictim
from gll.attacks.victims import victim_of
from gll.data.random import generator
from gll.nn.heads import MLPHead
from gll.reproduce.experiment import load_experiment
from gll.reproduce.train_cells import told
from gll.train.config import Config, from_toml
from gll.train.loop import new_run, train
from gll.train.model import data_of, find_device, restore
from gll.train.runs import Run

EXPERIMENT = Path(__file__).resolve().parent.parent / "experiments" / "adversarial"
EPS = 0.3
EPOCHS = 100
GRADIENTS = ("surrogate", "exact", "classifier")


@final
@dataclass(frozen=True)
class Training:
    """One network.

    Args:
        head: as on the axis of the experiment.
        name: what is unlike the paper's text.
        readings: how it is attacked.
        epochs: with the steps of the learning rate and the stages of WNLL in proportion.
        seed: of everything.
        changes: `key=value`.
        at_test: a graph head in the place of the last layer, which lends its gradient.
        kind: natural or robust, as on the axis of the experiment.
    """

    head: str
    name: str
    readings: tuple[Reading, ...]
    epochs: int = EPOCHS
    seed: int = 0
    changes: tuple[str, ...] = ()
    at_test: str | None = None
    kind: str = "natural"

    def config(self, work: Path, most: int, more: tuple[str, ...]) -> Config:
        """The config of the experiment, but for the changes."""
        place = {"data": "mnist", "head": self.head, "training": self.kind}
        point = next(p for p in load_experiment(EXPERIMENT).points("full") if dict(p.place) == place)
        epochs = min(self.epochs, most)
        own = [f"train.epochs={epochs}", f"train.step_epochs={max(1, epochs // 4)}", f"seed={self.seed}"]
        if self.head == "WNLL":
            stages = {"stage1": 5, "stage2": 20}  # which part of the epochs each is
            own += [f"model.head_options.{name}={max(1, epochs // part)}" for name, part in stages.items()]
        own += ["train.save_every=25", "test.every=0", *self.changes, *more]
        config = from_toml('name = "paper-attacks"', [*point.settings(), *own])
        key = sha256(json.dumps([told(config), self.seed], sort_keys=True).encode()).hexdigest()[:12]
        return replace(config, out=str(work / "runs" / f"{self.head.lower()}-{key}"))


AS_WRITTEN = "as in the paper's text"
COSINE = ("train.lr=0.001", "train.schedule=cosine")
FEW = (PLAIN, LINEAR_READINGS["no box: the ε-ball alone"])
BOTH = tuple(replace(PLAIN, gradient=gradient) for gradient in GRADIENTS)


def linear_trainings(seeds: list[int]) -> Iterator[Training]:
    yield Training("linear", AS_WRITTEN, tuple(LINEAR_READINGS.values()), seed=seeds[0])
    yield Training("linear", "of the linear head, WNLL at test only", BOTH, seed=seeds[0], at_test="wnll")
    for seed in seeds[1:]:
        yield Training("linear", AS_WRITTEN, FEW, seed=seed)
    yield Training("linear", "15 epochs", FEW, epochs=15, seed=seeds[0])
    yield Training("linear", "40 epochs", FEW, epochs=40, seed=seeds[0])
    yield Training("linear", "weight decay 5e-4", FEW, seed=seeds[0], changes=("train.weight_decay=5e-4",))
    yield Training("linear", "learning rate 0.001, cosine", FEW, seed=seeds[0], changes=COSINE)
    yield Training("linear", "no dropout", FEW, seed=seeds[0], changes=("model.encoder_options.dropout=0.0",))
    yield Training("linear", "15 epochs, rate 0.001, cosine", FEW, epochs=15, seed=seeds[0], changes=COSINE)


def wnll_trainings(seeds: list[int]) -> Iterator[Training]:
    short = Training("WNLL", "40 epochs", BOTH, epochs=40, seed=seeds[0])
    yield short
    yield replace(short, name="40 epochs, rate 0.001, cosine", changes=COSINE)
    yield replace(short, name="40 epochs, weight decay 5e-4", changes=("train.weight_decay=5e-4",))
    for seed in seeds[1:2]:
        yield Training("WNLL", AS_WRITTEN, BOTH, seed=seed)


def robust_trainings(seeds: list[int]) -> Iterator[Training]:
    """Cells *robust* of `attack-rate`, from where --trained takes them."""
    for head in ("GLL", "WNLL"):
        yield Training(head, AS_WRITTEN, (PLAIN, LINEAR_READINGS["α = 0.01"]), seed=seeds[0], kind="robust")


def trainings(wanted: str, seeds: list[int]) -> Iterator[tuple[list[int], Training]]:
    """What parts consist of, the most telling first, and where it stands in the table."""
    no_box = GRAPH_READINGS["no box: the ε-ball alone"]
    robust = list(robust_trainings(seeds))
    parts: dict[str, list[Training]] = {
        "linear": list(linear_trainings(seeds)),
        "wnll": [Training("WNLL", AS_WRITTEN, (*BOTH, *list(GRAPH_READINGS.values())[1:]), seed=seeds[0])],
        "wnll-trainings": list(wnll_trainings(seeds)),
        "gll": [Training("GLL", AS_WRITTEN, (PLAIN, no_box), seed=seeds[0])],
        "robust-gll": robust[:1],
        "robust-wnll": robust[1:],
        "none": [],
    }
    for name in wanted.split(","):
        if name not in parts:
            raise typer.BadParameter(f"no part {name!r}; choose from {', '.join(parts)}", param_hint="--part")
        for index, training in enumerate(parts[name]):
            yield [list(parts).index(name), index], training


def trained(config: Config, folders: Sequence[Path], console: Console) -> Run:
    """The finished run; without folders it is trained, or goes on.

    Args:
        config: of the run.
        folders: runs, of which the one of this training is taken.
        console: where to.

    Raises:
        typer.BadParameter: none of the folders is a finished run of this training, which may take hours.
    """
    for folder in folders:
        found = Run.open(folder, writes=False)
        same = (told(found.config), found.config.seed) == (told(config), config.seed)
        if same and found.result() is not None:
            console.print(f"taken from {folder}")
            return replace(found, config=replace(config, out=str(folder)))
    if folders:
        asked = f"head {config.model.head}, {config.train.epochs} epochs, seed {config.seed}"
        why = f"none of these is a finished run of this training ({asked}); without --trained it is trained here"
        raise typer.BadParameter(why, param_hint="--trained")
    there = (config.directory / "config.toml").is_file()
    run = replace(Run.open(config.directory), config=config) if there else new_run(config)
    if run.result() is None:
        console.print(f"training {config.directory.name}: {config.train.epochs} epochs")
        train(run)
    return replace(Run.open(config.directory, writes=False), config=config)


def subject_of(run: Run, training: Training, base: int, device: torch.device) -> Subject:
    """The network under attack."""
    base = min(base, len(run.split.labelled))
    victim = victim_of(run, base=base, head_at_test=training.at_test, seed=training.seed, device=device)
    if training.at_test is not None:
        head = restore(run, device)[0].head
        assert isinstance(head, MLPHead)
        assert isinstance(victim, GraphVictim)
        victim.surrogate = head.layers[-1]
    return Subject(victim.requires_grad_(False))


def samples_of(run: Run, number: int, device: torch.device) -> tuple[Tensor, Tensor, float, float]:
    """Test images, their classes, and mean and standard deviation of a pixel; the same images for every run."""
    data = data_of(run, device)
    order = torch.randperm(len(data.test), generator=generator(0, "attacked samples"))
    index = order[: number or len(order)].sort().values.to(data.test.device)
    return data.test[index].float() / 255, data.test_labels[index], data.mean[0], data.std[0]


def measured(subject: Subject, samples: tuple[Tensor, Tensor, float, float], reading: Reading) -> dict[str, Any]:
    """Errors in percent."""
    images, labels, mean, std = samples
    start = time.perf_counter()
    single = replace(reading, alpha=EPS, pixels=False, steps=1)
    fgsm = error_after(subject, images, labels, single, EPS, unit=std, mean=mean)
    path = error_after(subject, images, labels, reading, EPS, unit=std, mean=mean)
    return {
        "natural": path.natural,
        "FGSM": fgsm.errors[1],
        "IFGSM": path.errors[reading.steps],
        "after": {str(step): error for step, error in path.errors.items()},
        "zero gradients": path.zero_gradients,
        "seconds": round(time.perf_counter() - start, 1),
    }


def joined(work: Path) -> dict[str, Any]:
    """The record of all rows that are there."""
    rows = [json.loads(path.read_text()) for path in sorted((work / "rows").glob("*.json"))]
    rows.sort(key=lambda row: row["place"])
    about = {key: ", ".join(sorted({row["environment"][key] for row in rows})) for key in ("commit", "device")}
    seeds = ", ".join(map(str, sorted({row["seed"] for row in rows})))
    kept = {key: sorted({row[key] for row in rows}) for key in ("samples", "base")}
    config = {"data": "mnist", "eps": EPS, "units": "normalised", "seed": seeds, **kept}
    seconds = {row["run"]: row["training seconds"] for row in rows}
    wall = sum(row["seconds"] for row in rows) + sum(seconds.values())
    return environment() | about | {"config": config, "wall_s": round(wall, 1), "rows": rows}


def main(
    part: Annotated[
        str, typer.Option(help="linear, wnll, wnll-trainings, gll, robust-gll, robust-wnll, none; several with commas")
    ] = "linear",
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    seeds: Annotated[str, typer.Option(help="with commas; readings of the attack are for the first")] = "0,1,2",
    data_root: Annotated[str, typer.Option(help="where the data is")] = "",
    epochs: Annotated[int, typer.Option(help="no training has more")] = EPOCHS,
    samples: Annotated[int, typer.Option(help="test images; 0: all")] = 0,
    base: Annotated[int, typer.Option(help="labelled training images in a graph")] = 10_000,
    trained_before: Annotated[
        list[Path] | None, typer.Option("--trained", help="a finished run, in place of a training; may be repeated")
    ] = None,
    work: Annotated[Path, typer.Option(help="runs and rows; what is there is not made again")] = Path(
        "out/paper-attacks"
    ),
    json_file: Annotated[Path | None, typer.Option("--json", help="write the rows of all parts here")] = None,
    seconds: Annotated[float, typer.Option(help="begin nothing new after so many")] = float("inf"),
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value for every training")] = None,
) -> None:
    """Measure the parts, then join all rows that the folder has."""
    begin, console = time.perf_counter(), Console(width=170)
    more = (f"device={device}", *([f"data.root={json.dumps(data_root)}"] if data_root else []), *(settings or []))
    numbers = [int(seed) for seed in seeds.split(",")]
    (work / "rows").mkdir(parents=True, exist_ok=True)
    place = find_device(device)
    failed: list[str] = []
    for at, training in trainings(part, numbers):
        config = training.config(work, epochs, more)
        subject: Subject | None = None
        for index, reading in enumerate(training.readings):
            asked = {"training": told(config), "seed": training.seed, "at_test": training.at_test}
            asked |= {"reading": asdict(reading), "samples": samples, "base": base, "eps": EPS}
            key = sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
            file = work / "rows" / f"{key}.json"
            if file.is_file():
                continue
            if time.perf_counter() - begin > seconds:
                console.print(f"{seconds:g} s are over: the same command goes on")
                break
            if subject is None:
                run = trained(config, trained_before or (), console)
                subject, images = subject_of(run, training, base, place), samples_of(run, samples, place)
            row = {
                "place": [*at, index],
                "head": "WNLL" if training.at_test == "wnll" else training.head,
                "training name": training.name,
                "run": config.directory.name,
                "training seconds": (run.result() or {})["seconds"],
                "environment": environment(place.type),
            }
            try:
                row |= asked | measured(subject, images, reading)
            except (ValueError, RuntimeError) as error:  # one reading that fails does not cost the others
                failed.append(f"{training.head}, {training.name}; {reading.title}: {error}")
                console.print(f"failed: {failed[-1]}")
                continue
            write_json(file, row)
            found = f"natural {row['natural']:.2f}, FGSM {row['FGSM']:.2f}, IFGSM {row['IFGSM']:.2f}"
            how = f"{reading.gradient}, {reading.title}"
            console.print(f"{training.head}, {training.name}, seed {training.seed}; {how}: {found}, {row['seconds']} s")
    record = joined(work)
    console.print(rich_table(record))
    if json_file is not None:
        write_json(json_file, record)
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
