"""Times of the paper's attacks on a trained run: FGSM and IFGSM in its large graph, CW in its small one.

    python benchmarks/attack_times.py out/runs/mnist-gll-0 --device cuda --json benchmarks/results/attack-times.json

MNIST in the paper: 10,000 test and 10,000 training samples in one graph for FGSM and IFGSM (30 steps), 1,000 and 1,000
for CW (100 steps). Nothing else should run on the device meanwhile.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from record import environment, write_json
from rich.console import Console
from rich.table import Table

from gll.attacks import FGSM, IFGSM, CarliniWagnerPaper
from gll.attacks.base import AbstractAttack
from gll.attacks.sets import PROTOCOLS
from gll.attacks.units import Normalised
from gll.attacks.victims import victim_of
from gll.train.model import data_of
from gll.train.runs import Run

PROTOCOL = PROTOCOLS["mnist"]


def seconds(attack: AbstractAttack, victim: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Of one attack, everything on the device finished."""
    if images.is_cuda:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    attack(victim, images, labels)
    if images.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def main(
    run: Annotated[Path, typer.Argument(help="a finished run on MNIST")],
    json_file: Annotated[Path, typer.Option("--json", help="keep the figures here")],
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    large: Annotated[int, typer.Option(help="test samples and base samples for FGSM and IFGSM")] = PROTOCOL.base,
    small: Annotated[int, typer.Option(help="the same for CW")] = PROTOCOL.few_base,
    repeats: Annotated[int, typer.Option(help="the best of how many")] = 3,
) -> None:
    """Time the paper's attacks."""
    start = time.perf_counter()
    opened = Run.open(run)
    data = data_of(opened, torch.device(device))
    eps, alpha = (Normalised(data.name, value).pixels for value in (PROTOCOL.table_eps, PROTOCOL.alpha))
    attacks: list[tuple[str, AbstractAttack, int]] = [
        ("FGSM", FGSM(eps), large),
        ("IFGSM, 30 steps", IFGSM(eps, alpha), large),
        ("CW, 100 steps", CarliniWagnerPaper(PROTOCOL.table_c, steps=PROTOCOL.cw_steps), small),
    ]
    rows: list[dict[str, Any]] = []
    table = Table("attack", "test + base in one graph", "seconds")
    for name, attack, count in attacks:
        victim = victim_of(opened, base=count, device=device)
        images, labels = data.test[:count].float() / 255, data.test_labels[:count]
        times = [seconds(attack, victim, images, labels) for _ in range(repeats)]
        rows.append({"attack": name, "samples": len(images), "base": count, "seconds": round(min(times), 4)})
        table.add_row(name, f"{len(images):,} + {count:,}", f"{min(times):.3f}")
    Console().print(table)
    about = {"run": opened.config.name, "seed": opened.config.seed, "repeats": repeats, "eps": eps, "alpha": alpha}
    wall = round(time.perf_counter() - start, 1)
    write_json(json_file, environment(device) | {"config": about, "wall_s": wall, "rows": rows})


if __name__ == "__main__":
    typer.run(main)
