"""Does the way a graph is tested explain an error? One trained run, its features read by graphs of other settings.

    python benchmarks/graph_at_test.py out/reproduce/longer/small/1-000-steps-rate-0-05-gll-seed-0-*/run \
        --json benchmarks/results/graph-at-test.json

Neighbours, τ and scaled features are the graph's. By *statistics of each batch* an image is normalised by those around
it, as a base set is in a training step: the network's batch normalisation does not use its running means.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from record import environment, write_json
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from gll.nn.heads import create_head
from gll.train.model import encode, restore
from gll.train.runs import Run

USUAL: dict[str, Any] = {"test_k": 50, "test_tau": 1e-8, "normalize": True}
CHANGES: dict[str, dict[str, Any]] = {
    "as in the tables: 50 neighbours, τ = 1e-8, features of length one": {},
    "49 neighbours: 50 that count the point itself": {"test_k": 49},
    "10 neighbours": {"test_k": 10},
    "25 neighbours, as in training": {"test_k": 25},
    "100 neighbours": {"test_k": 100},
    "τ = 0.001": {"test_tau": 1e-3},
    "τ = 0.01": {"test_tau": 1e-2},
    "features as they are": {"normalize": False},
}
BY_BATCH = "statistics of each batch"


def features_of(run: Run, device: str, *, by_batch: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Test, labelled and unlabelled features, and the labels of the first two."""
    model, data = restore(run, device)
    encoder = _ByBatch(model.encoder) if by_batch else model.encoder
    test, train = (encode(encoder, images, data, run.config) for images in (data.test, data.train))
    split = run.split
    known, rest = split.labelled.to(device), split.unlabelled.to(device)
    return test, train[known], train[rest], data.test_labels, data.train_labels[known]


class _ByBatch(nn.Module):
    """A network whose batch normalisation looks at the batch, whatever mode it is put into."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.feature_dim = encoder, encoder.feature_dim
        for part in encoder.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.track_running_stats, part.running_mean, part.running_var = False, None, None

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.encoder(images)
        return found


def error_of(features: tuple[Tensor, Tensor, Tensor, Tensor, Tensor], settings: dict[str, Any]) -> float:
    """Of the test samples, in one graph of all."""
    test, labelled, unlabelled, target, labels = features
    options = {"k": 25, **USUAL, **settings}
    head = create_head("gll", test.shape[1], int(labels.max()) + 1, **options).eval()
    answers = head.classify(test, labelled, labels, unlabelled_features=unlabelled)
    return float((answers.argmax(1) != target).double().mean())


def main(
    run: Annotated[Path, typer.Argument(help="a finished run whose head is a graph")],
    json_file: Annotated[Path, typer.Option("--json", help="keep the figures here")],
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
) -> None:
    """One trained network, read by graphs of other settings."""
    start, opened = time.perf_counter(), Run.open(run)
    plain = features_of(opened, device, by_batch=False)
    errors = dict[str, float]()
    for title, settings in CHANGES.items():
        errors[title] = error_of(plain, settings)
        print(f"{title}: {100 * errors[title]:.2f} %", flush=True)
    errors[BY_BATCH] = error_of(features_of(opened, device, by_batch=True), {})
    config = opened.config
    about = {"data": dataclasses.asdict(config.data), "encoder": config.model.encoder, "epochs": config.train.epochs}
    about |= {"lr": config.train.lr, "seed": config.seed, "usual": USUAL}
    rows = [{"change": title, "error": error} for title, error in errors.items()]
    wall = round(time.perf_counter() - start, 1)
    write_json(json_file, environment(device) | {"config": about, "seed": config.seed, "wall_s": wall, "rows": rows})
    table = Table("graph of the test", "error, %")
    for title, error in errors.items():
        table.add_row(title, f"{100 * error:.2f}")
    Console().print(table)


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    typer.run(main)
