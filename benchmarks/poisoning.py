"""Error of trained graph heads against the number of wrong labels in their base. From runs that exist.

    python benchmarks/poisoning.py out/reproduce/worst-case/full/mnist-gll-natural-as-in-the-paper-seed-*/run \
        --json benchmarks/results/poisoning.json

What `gll attack RUN --poison` does, for several runs: labels are flipped at random, or chosen by an attacker who knows
the queries and their classes; no image is touched. Beside these, two attackers who know nothing of the queries: one
makes the same choice for as many other test samples; the other asks nothing at all and flips most of the labels of one
class, to one wrong class, before it turns to the next.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, final

import torch
import typer
from record import environment, write_json
from rich.console import Console
from rich.table import Table
from torch import Tensor

from gll.attacks.graph_victim import GraphVictim
from gll.attacks.poison import AbstractFlips, GreedyFlips, poison
from gll.attacks.poisoned import DRAWS, greedy_flips, poison_base, poisonable
from gll.attacks.target import Request, Target, whole_numbers
from gll.data.random import generator
from gll.reproduce.robust import shown_mean
from gll.train.progress import Reporter
from gll.train.runs import Run

GRAPHS = {"one graph of all queries": True, "each query alone": False}
WAYS = ("at random", "class by class", "greedily, for other samples", "greedily, for these queries")
RANDOM, BY_CLASS, OTHERS, KNOWN = WAYS
MOST = 0.6  # of a class: more than half, so that most of its queries see the wrong class the more often


@final
@dataclass(frozen=True, eq=False)
class ForOthers(AbstractFlips):
    """The greedy choice for other samples than the queries."""

    greedy: GreedyFlips
    images: Tensor
    labels: Tensor

    def choose(
        self, victim: GraphVictim, images: Tensor, labels: Tensor, count: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        return self.greedy.choose(victim, self.images, self.labels, count, generator)


@final
@dataclass(frozen=True)
class ClassByClass(AbstractFlips):
    """Of every class in turn a share of the labels, any of them, all to the next class."""

    share: float = MOST

    def choose(
        self, victim: GraphVictim, images: Tensor, labels: Tensor, count: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        known, classes = victim.base_labels.cpu(), victim.layer.num_classes
        order = torch.randperm(len(known), generator=generator)
        of_class = [order[known[order] == c] for c in range(classes)]
        first = [mine[: int(self.share * len(mine))] for mine in of_class]
        rest = [mine[int(self.share * len(mine)) :] for mine in of_class]  # where more are to be flipped than these
        index = torch.cat([*first, *rest])[:count].to(victim.base_labels.device)
        return index, (victim.base_labels[index] + 1) % classes


def others_of(target: Target) -> tuple[Tensor, Tensor]:
    """As many test samples that are not attacked; fewer where there are no more."""
    data, n = target.data, len(target.index)
    order = torch.randperm(len(data.test), generator=generator(target.request.seed, "other samples"))
    order = order[~torch.isin(order, target.index.cpu())][:n].to(data.test.device)
    return data.test[order].float() / 255, data.test_labels[order]


def rows_of(request: Request, graph: str) -> list[dict[str, Any]]:
    """One row for every way to choose labels and every number of them, 0 among these."""
    target = Target(request)
    with TemporaryDirectory() as folder:
        (found,) = poison_base(target, Path(folder), Reporter(Console()))
    counts = found["counts"]
    flips = ForOthers(greedy_flips(counts[-1]), *others_of(target))
    args = (poisonable(target), target.images, target.labels)
    others = poison(*args, counts=counts, flips=flips).errors
    by_class = poison(*args, counts=counts, flips=ClassByClass(), generator=generator(request.seed, "class")).errors
    errors = {RANDOM: found["random"]["mean"], BY_CLASS: by_class, OTHERS: others, KNOWN: found["greedy"]}
    return [
        {"graph": graph, "seed": request.seed, "chosen": chosen, "flips": count, "error": error}
        for chosen, by_count in errors.items()
        for count, error in zip(counts, by_count, strict=True)
    ]


def trained_like(path: Path) -> tuple[str, str, str]:
    """Data, head and training of a run, which all runs must share."""
    config = Run.open(path, writes=False).config
    adversarial, train = config.adversarial, config.train
    training = f"{train.epochs} epochs of batches of {train.batch:,}, {train.optimizer}, lr {train.lr:g}"
    against = f"robust, ε = {adversarial.eps:g}" if adversarial.eps > 0 else "natural"
    return config.data.name, config.model.head, f"{against}, {training}"


def main(
    runs: Annotated[list[Path], typer.Argument(help="finished runs with a graph head that differ in the seed alone")],
    json_file: Annotated[Path, typer.Option("--json", help="keep the figures here")],
    flips: Annotated[str, typer.Option(help="how many labels, with commas between")] = "1,10,50,100,300",
    base: Annotated[int, typer.Option(help="labelled samples in a graph")] = 1000,
    samples: Annotated[int, typer.Option(help="test samples")] = 1000,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    root: Annotated[Path | None, typer.Option(help="where the data is, if not where the run found it")] = None,
) -> None:
    """Wrong labels in the base."""
    start = time.perf_counter()
    alike = {trained_like(path) for path in runs}
    configs = [Run.open(path, writes=False).config for path in runs]
    seeds = [one.seed for one in configs]
    if len(alike) != 1 or len(set(seeds)) != len(seeds):
        said = "; ".join(
            f"{one.name}, {', '.join(trained_like(path))}" for path, one in zip(runs, configs, strict=True)
        )
        raise SystemExit(f"runs that differ in the seed alone are asked for, each once; these are {said}")
    ((data, head, training),) = alike
    config = {"data": data, "head": head, "training": training, "base": base, "samples": samples, "draws": DRAWS}
    config |= {"most of a class": MOST}
    config |= {"flips": list(whole_numbers("--flips", flips)), "seed": sorted(seeds)}
    config |= {"runs": [one.name for one in configs]}
    rows: list[dict[str, Any]] = []
    for path, seed in zip(runs, seeds, strict=True):
        for graph, joint in GRAPHS.items():
            request = Request(
                path, samples=samples, base=base, chunk=samples, joint=joint, poison=tuple(config["flips"]), seed=seed,
                device=device, root=root,
            )  # fmt: skip
            rows += rows_of(request, graph)
            wall = round(time.perf_counter() - start, 1)
            write_json(json_file, environment(device) | {"config": config, "wall_s": wall, "rows": rows})
    table = Table("graph", "flipped", *WAYS, title="error, %")
    for graph, count in dict.fromkeys((row["graph"], row["flips"]) for row in rows):
        mine = [row for row in rows if (row["graph"], row["flips"]) == (graph, count)]
        cells = [[100 * r["error"] for r in mine if r["chosen"] == chosen] for chosen in WAYS]
        table.add_row(graph, f"{count:,}", *map(shown_mean, cells))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
