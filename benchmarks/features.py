"""Features of MNIST and FashionMNIST for the benchmarks: raw pixels, or the means of a small unsupervised VAE.

    python benchmarks/features.py --dataset MNIST                          trains on the CPU, some minutes
    python benchmarks/features.py --dataset FashionMNIST --device cuda     seconds
    python benchmarks/features.py --dataset MNIST --device cuda --out DIR  writes DIR/MNIST.npz instead of the cache

The VAE is the usual one of two layers a side (784-400-d), trained on all 70,000 images without labels. Its features are
cached in data/features/NAME.npz (float32, with the classes), so other benchmarks do not train it again. Images are read
from the IDX files in GLL_DATA/NAME/raw (GLL_DATA is "data" by default). Needs torch, NumPy and typer only.
"""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor, nn

DATASETS = ("MNIST", "FashionMNIST")


def data_folder() -> Path:
    return Path(os.environ.get("GLL_DATA", "data"))


def read_idx(path: Path) -> np.ndarray:
    """The array of an IDX file of unsigned bytes, packed or not."""
    packed = path.with_name(path.name + ".gz")
    if not path.exists() and not packed.exists():
        raise SystemExit(f"{path} is missing: put the IDX files of the dataset there, or set GLL_DATA")
    raw = path.read_bytes() if path.exists() else gzip.decompress(packed.read_bytes())
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise SystemExit(f"{path} is not an IDX file of unsigned bytes")
    shape = tuple(np.frombuffer(raw, ">u4", raw[3], offset=4).astype(int))
    start = 4 + 4 * raw[3]
    if len(raw) - start != np.prod(shape):
        raise SystemExit(f"{path} is truncated: {shape} bytes are announced, {len(raw) - start} are there")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def pixels(dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """(70000, 784) float32 in [0, 1], training images first, and (70000,) int64 classes."""
    folder = data_folder() / dataset / "raw"
    parts = [(read_idx(folder / f"{p}-images-idx3-ubyte"), read_idx(folder / f"{p}-labels-idx1-ubyte")) for p in
             ("train", "t10k")]  # fmt: skip
    x = np.concatenate([images.reshape(len(images), -1) for images, _ in parts]).astype(np.float32) / 255
    return x, np.concatenate([classes for _, classes in parts]).astype(np.int64)


class VAE(nn.Module):
    """784-400-d and back; pixels are Bernoulli variables."""

    def __init__(self, dimensions: int, hidden: int = 400, inputs: int = 784) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(hidden, dimensions), nn.Linear(hidden, dimensions)
        self.decoder = nn.Sequential(nn.Linear(dimensions, hidden), nn.ReLU(), nn.Linear(hidden, inputs))

    def loss(self, x: Tensor, noise: Tensor) -> Tensor:
        """Minus the evidence bound, per image."""
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        logits = self.decoder(mean + noise * torch.exp(log_variance / 2))
        rebuilt = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        kl = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
        return (rebuilt + kl) / len(x)


def train(x: Tensor, *, dimensions: int, epochs: int, batch: int, rate: float, seed: int, report: bool) -> Tensor:
    """The means (n, d) of a VAE trained on x, which stays on its device."""
    torch.manual_seed(seed)
    model = VAE(dimensions).to(x.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    draw = torch.Generator(x.device).manual_seed(seed)
    start = time.perf_counter()
    for epoch in range(epochs):
        total = torch.zeros((), device=x.device)
        order = torch.randperm(len(x), generator=draw, device=x.device)
        for rows in order.split(batch):
            noise = torch.randn(len(rows), dimensions, generator=draw, device=x.device)
            loss = model.loss(x[rows], noise)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(rows)
        schedule.step()
        if report:
            print(f"epoch {epoch + 1:3d}  loss {total.item() / len(x):.2f}  {time.perf_counter() - start:.0f} s")
    with torch.no_grad():
        return torch.cat([model.mean(model.encoder(part)) for part in x.split(10_000)])


def cache_file(dataset: str, out: Path | None = None) -> Path:
    return (out or data_folder() / "features") / f"{dataset}.npz"


def features(dataset: str, kind: str = "vae") -> tuple[np.ndarray, np.ndarray]:
    """Features (n, d) float32 and classes (n,): kind "pixels", or "vae" from the cache."""
    if kind == "pixels":
        return pixels(dataset)
    file = cache_file(dataset)
    if not file.exists():
        raise SystemExit(f"{file} is missing: run python benchmarks/features.py --dataset {dataset}")
    with np.load(file, allow_pickle=False) as stored:
        return stored["features"].astype(np.float32), stored["classes"].astype(np.int64)


def main(
    dataset: Annotated[str, typer.Option(help="MNIST or FashionMNIST")] = "MNIST",
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    out: Annotated[Path | None, typer.Option(help="folder to write NAME.npz to; by default GLL_DATA/features")] = None,
    dimensions: Annotated[int, typer.Option(help="size d of the code")] = 20,
    epochs: Annotated[int, typer.Option(help="passes over the images; 100 is what the literature uses")] = 100,
    batch: Annotated[int, typer.Option(help="images a step")] = 128,
    rate: Annotated[float, typer.Option(help="learning rate at the start; falls to 0 like a cosine")] = 1e-3,
    seed: Annotated[int, typer.Option(help="of the weights, the order of the images and the noise")] = 0,
    again: Annotated[bool, typer.Option("--again", help="train even if the file is there")] = False,
) -> None:
    """Train the VAE and store its means."""
    if dataset not in DATASETS:
        raise SystemExit(f"unknown dataset {dataset!r}; choose one of {', '.join(DATASETS)}")
    if cache_file(dataset, out).exists() and not again:
        print(f"{cache_file(dataset, out)} is there already; --again trains anew")
        return
    images, classes = pixels(dataset)
    x = torch.from_numpy(images).to(device)
    code = train(x, dimensions=dimensions, epochs=epochs, batch=batch, rate=rate, seed=seed, report=True)
    file = cache_file(dataset, out)
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    with part.open("wb") as stream:  # a temporary name first: a reader never sees half a file
        np.savez_compressed(stream, features=code.cpu().numpy(), classes=classes)
    part.replace(file)
    print(f"wrote {file}: {tuple(code.shape)}, seed {seed}, {epochs} epochs on {device}")


if __name__ == "__main__":
    typer.run(main)
