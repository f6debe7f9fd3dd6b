"""Attacks made on one trained run and judged on another; and what more effort finds. From runs that exist.

    python benchmarks/transfers.py out/reproduce/worst-case/full/fashionmnist-*-robust-seed-*/run --device cuda \
        --eps 0.05,0.1 --json benchmarks/results/transfers-fashion.json
    python benchmarks/transfers.py RUN ... --effort --eps 0.1 --json benchmarks/results/effort-fashion.json

Every test sample is alone in a graph with the base. A transfer is PGD on the margin of the source's own answers (for a
graph also with every class in sight), which the attacker chooses without asking the model under attack. With --effort,
runs with a graph are attacked with every class in sight, by more steps, starts, points and targets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from record import environment, write_json
from rich.console import Console
from rich.table import Table
from torch import nn

from gll.attacks import PGD
from gll.attacks.autoattack import AutoAttack
from gll.attacks.base import AbstractAttack
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.objectives import Margin
from gll.attacks.threat import Queries
from gll.attacks.transfer import EveryClass, Transfer
from gll.attacks.victims import victim_of
from gll.data.random import generator
from gll.reproduce.robust import shown_mean
from gll.train.model import data_of
from gll.train.runs import Run

EFFORT: dict[str, Callable[[float], AbstractAttack]] = {
    "40 steps, 2 starts, 5 points, 3 targets": lambda e: EveryClass(
        PGD(e, 40, restarts=2, objective=Margin(), targets=3)
    ),
    "100 steps": lambda e: EveryClass(PGD(e, 100, restarts=2, objective=Margin(), targets=3)),
    "10 starts": lambda e: EveryClass(PGD(e, 40, restarts=10, objective=Margin(), targets=3)),
    "9 targets": lambda e: EveryClass(PGD(e, 40, restarts=2, objective=Margin(), targets=9)),
    "1 point": lambda e: EveryClass(PGD(e, 40, restarts=2, objective=Margin(), targets=3), points=1),
    "25 points": lambda e: EveryClass(PGD(e, 40, restarts=2, objective=Margin(), targets=3), points=25),
    "AutoAttack, 5 points": lambda e: EveryClass(AutoAttack(e, version="gradients")),
    "AutoAttack, 25 points": lambda e: EveryClass(AutoAttack(e, version="gradients"), points=25),
    "100 steps, 5 starts, 9 targets": lambda e: EveryClass(PGD(e, 100, restarts=5, objective=Margin(), targets=9)),
}
TOGETHER = "any of these"


class Subject:
    """A run, its victim, and the test samples that all runs of the data share."""

    def __init__(self, path: Path, device: str, base: int, samples: int) -> None:
        self.run = Run.open(path)
        config = self.run.config
        self.head, self.seed, self.name = config.model.head, config.seed, f"{config.model.head}, seed {config.seed}"
        data = data_of(self.run, torch.device(device))
        how = f"{config.train.epochs} epochs, {config.train.optimizer} {config.train.lr:g}, {config.train.schedule}"
        self.about = (data.name, config.adversarial.eps, config.adversarial.against, how)
        victim = victim_of(self.run, base=base, queries=Queries.ALONE, exact_gradient=True, device=device)
        self.victim: nn.Module = victim.sharpened() if isinstance(victim, GraphVictim) else victim
        chosen = torch.randperm(len(data.test), generator=generator(0, "samples"))[:samples].to(device)
        self.images, self.labels = data.test[chosen].float() / 255, data.test_labels[chosen]


def sources_of(victim: Subject, subjects: list[Subject]) -> Iterator[tuple[str, Subject]]:
    """The run of every other head with the same seed, and the next one of its own head."""
    for other in subjects:
        if other.head != victim.head and other.seed == victim.seed:
            yield other.head, other
    own = sorted((s for s in subjects if s.head == victim.head and s is not victim), key=lambda s: s.seed)
    later = [s for s in own if s.seed > victim.seed] + own
    if later:
        yield f"{victim.head}, another seed", later[0]


def transfers(subjects: list[Subject], eps: float) -> Iterator[dict[str, Any]]:
    """One row for every victim, source and way."""
    plain = PGD(eps, 40, restarts=2, objective=Margin())
    for victim in subjects:
        yield attacked(victim, "none: its own gradient", plain, eps)[0]
        for name, source in sources_of(victim, subjects):
            yield attacked(victim, name, Transfer(plain, source.victim, source.name), eps)[0]
            if isinstance(source.victim, GraphVictim):
                seen: nn.Module = source.victim.reaching(5)
                yield attacked(victim, f"{name}, every class in sight", Transfer(plain, seen, source.name), eps)[0]


def efforts(subjects: list[Subject], eps: float) -> Iterator[dict[str, Any]]:
    """One row for every run with a graph and every effort; last, what all of them together have fooled."""
    graphs = [subject for subject in subjects if isinstance(subject.victim, GraphVictim)]
    fooled = [torch.zeros(len(graph.labels), dtype=torch.bool) for graph in graphs]
    for name, attack in EFFORT.items():
        for victim, before in zip(graphs, fooled, strict=True):
            row, found = attacked(victim, name, attack(eps), eps)
            before |= found.cpu()
            yield row
    for victim, all_of_them in zip(graphs, fooled, strict=True):
        yield row_of(victim, TOGETHER, all_of_them, eps, 0.0)


def attacked(victim: Subject, name: str, attack: AbstractAttack, eps: float) -> tuple[dict[str, Any], torch.Tensor]:
    """The row of one attack, and which samples it has fooled."""
    begin = time.perf_counter()
    found = attack(victim.victim, victim.images, victim.labels, generator=generator(victim.seed, "transfer", name))
    return row_of(victim, name, found.success, eps, time.perf_counter() - begin), found.success


def row_of(victim: Subject, name: str, fooled: torch.Tensor, eps: float, seconds: float) -> dict[str, Any]:
    error = float(fooled.double().mean())
    print(f"{victim.name} at {eps:g}, {name}: {100 * error:.1f} % ({seconds:.0f} s)", flush=True)
    about = {"victim": victim.head, "seed": victim.seed, "source": name, "eps": eps}
    return about | {"error": error, "seconds": round(seconds, 2)}


def main(
    runs: Annotated[list[Path], typer.Argument(help="finished runs of one data set, trained alike, several heads")],
    json_file: Annotated[Path, typer.Option("--json", help="keep the figures here")],
    eps: Annotated[str, typer.Option(help="radii, with commas between")],
    effort: Annotated[bool, typer.Option("--effort", help="more effort in place of transfers")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    base: Annotated[int, typer.Option(help="labelled samples in a graph")] = 1000,
    samples: Annotated[int, typer.Option(help="test samples")] = 1000,
) -> None:
    """Transfer attacks between runs."""
    start = time.perf_counter()
    subjects = [Subject(path, device, base, samples) for path in runs if (path / "result.json").is_file()]
    if len({subject.about for subject in subjects}) != 1:
        raise SystemExit("runs of one data set, trained alike, are asked for")
    data, trained_at, against, how = subjects[0].about
    rows: list[dict[str, Any]] = []
    for radius in map(float, eps.split(",")):
        for row in (efforts if effort else transfers)(subjects, radius):
            rows.append(row)
            about = {"data": data, "training": how, "trained_at": trained_at, "against": against}
            about |= {"base": base, "samples": samples, "seed": sorted({subject.seed for subject in subjects})}
            wall = round(time.perf_counter() - start, 1)
            write_json(json_file, environment(device) | {"config": about, "wall_s": wall, "rows": rows})
    table = Table("ε", "victim", "effort" if effort else "made on", "error, %")
    for key in dict.fromkeys((row["eps"], row["victim"], row["source"]) for row in rows):
        mine = [100 * row["error"] for row in rows if (row["eps"], row["victim"], row["source"]) == key]
        table.add_row(f"{key[0]:g}", *key[1:], shown_mean(mine))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
