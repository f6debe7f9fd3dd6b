"""Time of a training step with the graph learning layer and with an MLP head: the paper's three tables.

    python benchmarks/training_step.py --device cuda --json benchmarks/results/training-step.json
    python benchmarks/training_step.py --networks small-cnn --batches 128 --rounds 3 --steps 3      a look, on a CPU
    python benchmarks/training_step.py --device cuda --errors                                      also train, and test
    python benchmarks/training_step.py --device cuda --augment grey                                with augmentation

MNIST (random images where it is missing), 28 × 28 × 1, batches of 128 to 1,024 and 100 base images. A step is all of
it: indices, images, network, head, loss, backward, optimizer. Three kinds of step take turns in one process:

    gll             the batch and the base, through the layer
    mlp             the batch alone
    mlp, same       the batch and the base, as one larger batch

so that there are two ratios: gll ÷ mlp, as the paper counts, where the graph's step has 100 images more to encode; and
gll ÷ mlp over the same images, which is what the head itself costs. The MLP head is one linear layer, the cheapest.

The paper's steps have no augmentation, and neither have these, unless --augment names a policy: each step then augments
its images, base included, as `gll train` does, and the share of the data contains that.

Times come from CUDA events between the steps, with no wait of ours in between; how often a step itself makes the CPU
wait is counted. Ratios are those of medians over rounds, of the wall time of a round. The paper's stand beside
them, from other GPUs.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import torch
import typer
from record import environment, write_json
from rich.console import Console
from rich.table import Table
from torch import Tensor

from gll.data import DataError, TrainTest, load, normalize, split_labels
from gll.data.augment import AUGMENTATIONS, augmentation_from_name
from gll.data.sampling import GraphBatches
from gll.nn.encoders import create_encoder
from gll.nn.heads import create_head
from gll.train.ahead import Ahead

PAPER = json.loads((Path(__file__).parent / "paper" / "training_step.json").read_text())["networks"]
BASE, CLASSES = 100, 10
KINDS = ("gll", "mlp", "mlp, same")
_WAIT = torch.cuda.Event.synchronize
EPOCHS = 5  # of --errors, as in the paper


def target(network: str, batch: int) -> float:
    """What gll ÷ mlp over the same images may be on an H200."""
    if network == "small-cnn":
        return 1.6
    return 1.4 if batch <= 128 else 1.1


def images(root: Path | None) -> TrainTest:
    """MNIST, or noise of its shape."""
    try:
        return load("mnist", root)
    except DataError:
        chance = torch.Generator().manual_seed(0)
        train, test = (torch.randint(0, 256, (n, 1, 28, 28), dtype=torch.uint8, generator=chance) for n in (6000, 1000))
        y = [torch.arange(len(x)) % CLASSES for x in (train, test)]
        names = tuple(map(str, range(CLASSES)))
        return TrainTest("noise, 28 × 28", train, y[0], test, y[1], names, (0.5,), (0.29,))


class Model:
    """One kind of step: its own network, head, optimizer and batches."""

    def __init__(self, kind: str, network: str, batch: int, data: TrainTest, settings: dict[str, Any]) -> None:
        torch.manual_seed(settings["seed"])
        device = data.train.device
        self.data, self.batch, self.base = data, batch, BASE if kind == "gll" else 0
        self.encoder = create_encoder(network, in_channels=1).to(device)
        if settings["channels_last"]:
            self.encoder = self.encoder.to(memory_format=torch.channels_last)
        self.head = create_head("gll" if kind == "gll" else "linear", self.encoder.feature_dim, CLASSES).to(device)
        parameters = [*self.encoder.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=device.type == "cuda")
        self.autocast = (lambda: torch.autocast(device.type, dtype=torch.bfloat16)) if settings["bf16"] else nullcontext
        split = split_labels(data.train_labels, "whole", seed=settings["seed"])
        self.size = batch + (BASE if kind == "mlp, same" else 0)
        full = (len(data.train) - self.base) // self.size  # batches of an epoch, none of them smaller
        self.batches = GraphBatches(
            data.train_labels, split, batch=self.size, base=self.base, seed=settings["seed"], steps=full
        )
        self.base_index = self.batches.base_of(0).to(device)  # at test time
        self.ahead = Ahead(data, augmentation_from_name(settings["augment"]), settings["seed"], 0)
        self.stream = (
            (epoch, step, batch)
            for epoch in itertools.count()
            for step, batch in self.ahead.steps(self.batches.epoch(epoch), epoch, 0)
        )

    def fetch(self) -> tuple[Tensor, Tensor]:
        """The data pipeline: indices, images, augmented if asked for, and classes of the next batch, base first."""
        epoch, step, batch = next(self.stream)
        index = batch.nodes.to(self.data.train.device, non_blocking=True)
        images = self.ahead.images(index, epoch, step)
        return normalize(images, self.data), self.data.train_labels[index]

    def features(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """What the head takes: features, and those of the base with its classes if it has one."""
        with self.autocast():
            z = self.encoder(x)
        if self.base == 0:
            return (z,)
        base, rest = z.split([self.base, len(z) - self.base])  # one operation backward, where two slices are five
        return rest, base, y[: self.base]

    def logits(self, x: Tensor, y: Tensor) -> Tensor:
        with self.autocast():
            return self.head(*self.features(x, y))

    def step(self, x: Tensor, y: Tensor) -> None:
        """As that of `gll train`: the verdict on the graph is read while the GPU is at the backward pass."""
        self.optimizer.zero_grad(set_to_none=True)
        z = self.features(x, y)
        with self.autocast():
            logits, sound = self.head.attempt(*z)
        self.head.loss(logits.float(), y[self.base :]).backward(retain_graph=sound is not None)
        if sound is not None and not sound():
            self.optimizer.zero_grad(set_to_none=True)
            with self.autocast():
                logits = self.head(*z)
            self.head.loss(logits.float(), y[self.base :]).backward()
        self.optimizer.step()

    def train_round(self, steps: int) -> list[float]:
        self.encoder.train()
        return timed(lambda: self.step(*self.fetch()), steps, self.data.train.device)

    def fetch_round(self, steps: int) -> list[float]:
        return timed(self.fetch, steps, self.data.train.device)

    @torch.no_grad()
    def test_batch(self, start: int, size: int) -> Tensor:
        """Logits of test images, on one graph with the base."""
        x = self.data.test[start : start + size]
        if self.base:
            x = torch.cat([self.data.train[self.base_index], x])
        return self.logits(normalize(x, self.data), self.data.train_labels[self.base_index])

    def test_round(self, steps: int) -> list[float]:
        self.encoder.eval()
        starts = itertools.cycle(range(0, len(self.data.test) - self.size + 1, self.size))
        return timed(lambda: self.test_batch(next(starts), self.size), steps, self.data.train.device)

    def errors(self) -> dict[str, float]:
        """Test error in percent after five epochs: by batches, as the paper, and on one graph of everything."""
        self.encoder.train()
        for _ in range(EPOCHS * len(self.batches)):
            self.step(*self.fetch())
        self.encoder.eval()
        data, known = self.data, self.data.test_labels
        guess = torch.cat([self.test_batch(s, self.size).argmax(1) for s in range(0, len(known), self.size)])
        found = {"by batches": 100 * (guess != known).double().mean().item()}
        if self.base:
            with torch.no_grad():
                z = [
                    torch.cat([self.encoder(normalize(part, data)) for part in x.split(2000)])
                    for x in (data.test, data.train)
                ]
            guess = self.head.classify(z[0], z[1], data.train_labels).argmax(1)
            found["one graph"] = 100 * (guess != known).double().mean().item()
        return found


def timed(run: Callable[[], Any], steps: int, device: torch.device) -> list[float]:
    """Milliseconds of every step; the last entry is the wall time a step of all of them together."""
    if device.type != "cuda":
        times, start = list[float](), time.perf_counter()
        for _ in range(steps):
            begin = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - begin))
        return [*times, 1e3 * (time.perf_counter() - start) / steps]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    torch.cuda.synchronize()
    start = time.perf_counter()
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize()
    wall = 1e3 * (time.perf_counter() - start) / steps
    return [*(a.elapsed_time(b) for a, b in itertools.pairwise(marks)), wall]


def figures(rounds: list[list[float]]) -> dict[str, float]:
    """Mean and standard deviation over all steps; median over rounds of the wall time a step."""
    steps = [t for one in rounds for t in one[:-1]]
    return {
        "mean_ms": statistics.fmean(steps),
        "std_ms": statistics.pstdev(steps),
        "median_ms": statistics.median(one[-1] for one in rounds),
    }


def waits(run: Callable[[], Any]) -> int:
    """How often the CPU waits for the GPU: as PyTorch counts, and for events, which it does not count."""
    torch.cuda.synchronize()
    with (
        warnings.catch_warnings(record=True) as seen,
        mock.patch.object(torch.cuda.Event, "synchronize", autospec=True, side_effect=_WAIT) as events,
    ):
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return events.call_count + sum("called a synchronizing" in str(w.message) for w in seen)


def measure(network: str, batch: int, data: TrainTest, settings: dict[str, Any]) -> dict[str, Any]:
    """All figures of one network and batch size."""
    rounds, steps = settings["rounds"], settings["steps"]
    models = {kind: Model(kind, network, batch, data, settings) for kind in KINDS}
    taken: dict[str, dict[str, list[list[float]]]] = {
        what: {kind: [] for kind in KINDS} for what in ("train", "test", "pipeline")
    }
    for model in models.values():  # libraries choose their algorithms, the layer records its work
        model.test_round(settings["warm"])
        model.train_round(settings["warm"])
    for r in range(rounds):
        order = KINDS if r % 2 == 0 else KINDS[::-1]
        for kind in order:
            taken["train"][kind].append(models[kind].train_round(steps))
        for kind in order:
            taken["test"][kind].append(models[kind].test_round(steps))
        for kind in order:
            taken["pipeline"][kind].append(models[kind].fetch_round(steps))
    row: dict[str, Any] = {"network": network, "batch": batch, "base": BASE}
    row |= {what: {kind: figures(found) for kind, found in kinds.items()} for what, kinds in taken.items()}
    row["target"] = target(network, batch)
    if data.train.is_cuda:
        row["waits"] = {kind: waits(lambda m=model: m.step(*m.fetch())) for kind, model in models.items()}
    if settings["errors"]:
        fresh = {kind: Model(kind, network, batch, data, settings) for kind in ("gll", "mlp")}
        row["error_percent"] = {kind: model.errors() for kind, model in fresh.items()}
    return row


def ratio(row: dict[str, Any], what: str, over: str) -> float:
    return row[what]["gll"]["median_ms"] / row[what][over]["median_ms"]


def paper_row(network: str, batch: int) -> dict[str, Any] | None:
    return next((row for row in PAPER[network]["rows"] if row["batch"] == batch), None)


def show(network: str, rows: list[dict[str, Any]], augment: str, console: Console) -> None:
    """The paper's table of one network, with the ratios and the paper's beside them."""
    about = f"{network}, {BASE} base images, augmentation: {augment}"
    table = Table(title=f"{about}; milliseconds a step (paper: {PAPER[network]['gpu']}, without)")
    for name in ("batch", "", "GLL", "MLP", "MLP, same images", "GLL÷MLP", "paper", "÷ same images", "target", "data"):
        table.add_column(name, justify="left" if name == "" else "right")
    for row in rows:
        paper = paper_row(network, row["batch"])
        for what, title in (("train", "training"), ("test", "testing")):
            times = [f"{row[what][kind]['mean_ms']:,.2f} ± {row[what][kind]['std_ms']:,.2f}" for kind in KINDS]
            theirs = f"{paper[f'{what}_s']['gll'][0] / paper[f'{what}_s']['mlp'][0]:.1f}" if paper else "-"
            same, goal, share = ratio(row, what, "mlp, same"), "", ""
            if what == "train" and "waits" in row:  # on a GPU
                goal = f"{row['target']:.1f} {'met' if same <= row['target'] else 'missed'}"
            if what == "train":
                share = f"{ratio_of_data(row):.1%}"
            cells = [f"{row['batch']:,}" if what == "train" else "", title, *times]
            table.add_row(*cells, f"{ratio(row, what, 'mlp'):.2f}", theirs, f"{same:.2f}", goal, share)
        if "waits" in row:
            table.add_row("", "waits a step", *(str(row["waits"][kind]) for kind in KINDS), *[""] * 5)
        if "error_percent" in row:
            ours = row["error_percent"]
            gll = " / ".join(f"{value:.2f} ({how})" for how, value in ours["gll"].items())
            known = f"{paper['error_percent']['gll']} | {paper['error_percent']['mlp']}" if paper else "-"
            table.add_row("", "error, %", gll, f"{ours['mlp']['by batches']:.2f}", "", "", known, "", "", "")
    console.print(table)


def ratio_of_data(row: dict[str, Any]) -> float:
    """Share of the data pipeline in a training step with the layer; its augmentation included, if there is one."""
    return row["pipeline"]["gll"]["median_ms"] / row["train"]["gll"]["median_ms"]


def main(
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    networks: Annotated[str, typer.Option(help="which, by commas")] = "small-cnn,resnet18,resnet110",
    batches: Annotated[str, typer.Option(help="batch sizes, by commas")] = "128,256,512,1024",
    rounds: Annotated[int, typer.Option(help="rounds in which the kinds of step take turns")] = 9,
    steps: Annotated[int, typer.Option(help="steps of a kind in a round")] = 20,
    warm: Annotated[int, typer.Option(help="steps of a kind before anything is timed")] = 10,
    bf16: Annotated[bool, typer.Option(help="encoder in bfloat16")] = False,
    channels_last: Annotated[bool, typer.Option(help="images in channels-last order")] = False,
    augment: Annotated[str, typer.Option(help=f"augment the images: {', '.join(AUGMENTATIONS)}")] = "none",
    errors: Annotated[bool, typer.Option(help="train five epochs and test")] = False,
    threads: Annotated[int, typer.Option(help="CPU threads")] = 1,
    seed: int = 0,
    data_root: Annotated[Path | None, typer.Option(help="where MNIST lies")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here, after every case")] = None,
) -> None:
    """Time training and testing steps of the paper's networks with both heads."""
    if unknown := set(networks.split(",")) - set(PAPER):
        raise typer.BadParameter(f"the paper times {', '.join(PAPER)}, not {', '.join(sorted(unknown))}")
    if augment not in AUGMENTATIONS:
        raise typer.BadParameter(f"--augment is one of {', '.join(AUGMENTATIONS)}, not {augment}")
    start = time.perf_counter()
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True
    data, console = images(data_root).to(device), Console(width=170)
    settings = {
        "rounds": rounds,
        "steps": steps,
        "warm": warm,
        "bf16": bf16,
        "channels_last": channels_last,
        "augment": augment,
        "errors": errors,
        "seed": seed,
    }
    config = settings | {"data": data.name, "k": 25, "base": BASE, "tf32": torch.backends.cudnn.allow_tf32}
    rows = list[dict[str, Any]]()
    for network in networks.split(","):
        for batch in map(int, batches.split(",")):
            with console.status(f"{network}, batch {batch}"):
                rows.append(measure(network, batch, data, settings))
            if json_file is not None:
                wall = round(time.perf_counter() - start, 1)
                write_json(json_file, environment(device) | {"config": config, "wall_s": wall, "rows": rows})
        show(network, [row for row in rows if row["network"] == network], augment, console)
    console.print(f"{data.name}; {'bfloat16' if bf16 else 'float32'}; {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    typer.run(main)
