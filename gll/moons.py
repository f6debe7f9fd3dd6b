"""The two-moons study of the paper (section 4.2): what τ does to the embedding that an encoder learns.

An encoder 2-64-64-2 is trained on 500 points through the layer, for several τ, and with a softmax for comparison. All
six start from the same weights. The loss is the paper's, the mean of -log(u_y + 1e-8): for τ > 0 the rows of u do not
sum to one, and a cross-entropy, which renormalises them, would not see the decay that τ is about.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from sklearn.datasets import make_moons
from torch import Tensor, nn

from gll.equations import Laplace
from gll.nn import GraphLearningLayer
from gll.similarity import Constant

TAUS = (0.0, 0.001, 0.01, 0.1, 0.5)
PAPER_EPOCHS = (0, 500, 2_000, 10_000, 50_000, 150_000)


def moons() -> tuple[Tensor, Tensor, Tensor]:
    """500 points of noise 0.1, their classes, and the base: the first five points of each class."""
    x, y = make_moons(500, noise=0.1, random_state=1)
    base = np.sort(np.concatenate([np.flatnonzero(y == c)[:5] for c in (0, 1)]))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y), torch.tensor(base)


def encoder(seed: int) -> nn.Sequential:
    """2-64-64-2 with ReLU between."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


class Study:
    """One encoder in training, with the embeddings it had at some epochs."""

    def __init__(self, tau: float | None, seed: int, device: torch.device | str = "cpu") -> None:
        self.tau = tau
        self.name = "softmax" if tau is None else f"τ = {tau:g}"
        self.x, self.y, self.base = (part.to(device) for part in moons())
        rest = torch.ones(len(self.x), dtype=torch.bool)
        rest[self.base.cpu()] = False
        self.rest = rest.nonzero()[:, 0].to(device)
        self.network = encoder(seed).to(device)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.01)
        self.layer = GraphLearningLayer(
            2, k=25, equation=Laplace(tau=tau or 0.0), bandwidth=Constant(1.0), normalize=False
        )
        self.snapshots: dict[int, np.ndarray] = {}
        self.seconds, self.epoch, self.accuracy = 0.0, 0, float("nan")
        self.last_loss = torch.tensor(float("nan"))

    @property
    def loss(self) -> float:
        """That of the last step. A GPU is waited for here, and not in every step."""
        return float(self.last_loss)

    def log_probabilities(self, z: Tensor) -> Tensor:
        if self.tau is None:
            return torch.log_softmax(z, 1)[self.rest]
        logits: Tensor = self.layer(z[self.rest], z[self.base], self.y[self.base])
        return logits

    def step(self) -> None:
        """One epoch: all points at once."""
        start = time.perf_counter()
        out = self.log_probabilities(self.network(self.x))
        loss = nn.functional.nll_loss(out, self.y[self.rest])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.seconds += time.perf_counter() - start
        self.epoch += 1
        self.last_loss = loss.detach()

    def snapshot(self) -> None:
        with torch.no_grad():
            z = self.network(self.x)
            right = self.log_probabilities(z).argmax(1) == self.y[self.rest]
        self.snapshots[self.epoch] = z.cpu().numpy()
        self.accuracy = float(right.float().mean())

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that a study needs to go on: plain SGD has no state of its own."""
        shots = {f"epoch.{epoch}": torch.from_numpy(z) for epoch, z in self.snapshots.items()}
        loss = self.loss if np.isfinite(self.loss) else None
        accuracy = self.accuracy if np.isfinite(self.accuracy) else None
        about = {"epoch": self.epoch, "seconds": self.seconds, "loss": loss, "accuracy": accuracy}
        return {f"network.{k}": v for k, v in self.network.state_dict().items()} | shots, about

    def load(self, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        """Go on from what `state` has given."""
        parts: dict[str, dict[str, Tensor]] = {"network": {}, "epoch": {}}
        for name, tensor in tensors.items():
            part, _, key = name.partition(".")
            parts[part][key] = tensor
        self.network.load_state_dict(parts["network"])
        self.snapshots = {epoch: parts["epoch"][str(epoch)].numpy() for epoch in sorted(map(int, parts["epoch"]))}
        self.epoch, self.seconds = about["epoch"], about["seconds"]
        self.last_loss = torch.tensor(float("nan") if about["loss"] is None else about["loss"])
        self.accuracy = float("nan") if about["accuracy"] is None else about["accuracy"]

    def spread(self) -> float:
        """Mean distance to the own class's centre, over the distance of the two centres."""
        z, y = list(self.snapshots.values())[-1], self.y.cpu().numpy()
        centers = np.stack([z[y == c].mean(0) for c in (0, 1)])
        return float(np.linalg.norm(z - centers[y], axis=1).mean() / np.linalg.norm(centers[0] - centers[1]))


def snapshot_epochs(epochs: int) -> list[int]:
    """The paper's epochs where they fit, otherwise six that grow in the same way."""
    if epochs >= PAPER_EPOCHS[-1]:
        return [*PAPER_EPOCHS[:-1], epochs]
    return sorted({0, *(round(epochs * share) for share in (0.02, 0.08, 0.25, 0.5, 1.0))})


def run_moons(*, epochs: int, out: Path, seed: int, threads: int, console: Console) -> None:
    """Train all models with a progress bar, print a table, write picture and figures. Ctrl-C keeps what is there."""
    torch.set_num_threads(threads)
    studies = [Study(tau, seed) for tau in (*TAUS, None)]
    marks = snapshot_epochs(epochs)
    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    try:
        with Progress(*columns, console=console) as progress:
            for study in studies:
                task = progress.add_task(study.name, total=epochs, loss=float("nan"))
                study.snapshot()
                while study.epoch < epochs:
                    study.step()
                    if study.epoch in marks:
                        study.snapshot()
                    if study.epoch % 20 == 0 or study.epoch == epochs:
                        progress.update(task, completed=study.epoch, loss=study.loss)
    except KeyboardInterrupt:
        console.print("stopped early: showing what there is")
    done = [study for study in studies if study.snapshots]
    for study in done:
        if study.epoch not in study.snapshots:
            study.snapshot()
    console.print(_table(done))
    out.mkdir(parents=True, exist_ok=True)
    picture, figures = out / "two_moons.png", out / "two_moons.json"
    draw(done, picture)
    _write(figures, json.dumps([_record(study, seed, threads) for study in done], indent=1) + "\n")
    console.print(f"picture: {picture}\nfigures: {figures}")


def _table(studies: list[Study]) -> Table:
    table = Table(title="Two moons: one encoder, six heads, SGD 0.01")
    for name in ("head", "epochs", "loss", "accuracy", "spread / gap of classes", "ms per epoch"):
        table.add_column(name, justify="left" if name == "head" else "right")
    for s in studies:
        ms = 1e3 * s.seconds / max(s.epoch, 1)
        table.add_row(s.name, f"{s.epoch:,}", f"{s.loss:.4f}", f"{s.accuracy:.1%}", f"{s.spread():.3f}", f"{ms:.2f}")
    return table


def _record(study: Study, seed: int, threads: int) -> dict[str, Any]:
    import gll

    return {
        "head": study.name,
        "epochs": study.epoch,
        "loss": study.loss,
        "accuracy": study.accuracy,
        "spread": study.spread(),
        "seconds": round(study.seconds, 2),
        "seed": seed,
        "threads": threads,
        "versions": {"gll": gll.__version__, "torch": torch.__version__},
    }


def _write(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)


def size(z: np.ndarray) -> float:
    """The root mean square distance of points from their mean."""
    return float(np.sqrt(((z - z.mean(0)) ** 2).sum(1).mean()))


def draw(studies: list[Study], path: Path) -> None:
    """The grid of embeddings: a row per head, a column per epoch; base points as stars; every panel its own scale."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = max(len(study.snapshots) for study in studies)
    figure = Figure(figsize=(1.7 * width + 0.6, 1.7 * len(studies) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(studies), width, squeeze=False)
    colors = np.array(["#3b6fb6", "#c8553d"])
    for row, study in zip(axes, studies, strict=True):
        y, base = study.y.cpu().numpy(), study.base.cpu().numpy()
        for axis in row:
            axis.set_xticks([])
            axis.set_yticks([])
        for axis, (epoch, z) in zip(row, study.snapshots.items(), strict=False):
            axis.scatter(*z.T, s=3, c=colors[y], alpha=0.7, linewidths=0)
            axis.scatter(*z[base].T, s=45, c=colors[y[base]], marker="*", edgecolors="black", linewidths=0.5)
            axis.set_xlabel(f"size {size(z):.2g}", fontsize=7, labelpad=2)
            if study is studies[0]:
                axis.set_title(f"epoch {epoch:,}", fontsize=9)
        row[0].set_ylabel(study.name, fontsize=9)
    part = path.with_name(path.name + ".part")
    figure.savefig(part, format="png", dpi=110)
    part.replace(path)
