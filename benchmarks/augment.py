"""Time of the augmentations of a batch, beside Pillow one image at a time in the same run.

    python benchmarks/augment.py                      one CPU thread
    python benchmarks/augment.py --json benchmarks/results/augment-cpu.json
    python benchmarks/augment.py --device cuda --json benchmarks/results/augment-cuda.json

Both sides get the same images and the same random numbers, so that results can be compared: the last column counts the
bytes that differ, which should be none. Pillow always runs on the CPU, in one thread, on images that are Pillow's
already: turning them into tensors and bringing them to a GPU is not counted. Times are the smallest of several runs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import _pillow as pillow
import numpy as np
import torch
import typer
from record import best_ms, environment, write_json
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_sample_image

from gll.data.augment import AUGMENTATIONS, augmentation_from_name

SHAPES = [(3, 32), (1, 28)]


def photographs(n: int, channels: int, size: int, seed: int) -> torch.Tensor:
    """(n, c, size, size) patches of a photograph, every third pixel."""
    photo = load_sample_image("china.jpg").transpose(2, 0, 1)[:channels, ::3, ::3]
    rng = np.random.default_rng(seed)
    top, left = rng.integers(0, photo.shape[1] - size, n), rng.integers(0, photo.shape[2] - size, n)
    patches = [photo[:, y : y + size, x : x + size] for y, x in zip(top, left, strict=True)]
    return torch.from_numpy(np.stack(patches))


def measure(name: str, images: torch.Tensor, device: str, seed: int, seconds: float) -> dict[str, Any]:
    """All figures of one augmentation."""
    augmentation = augmentation_from_name(name)
    there = images.to(device)
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(len(images), augmentation.num_draws, generator=generator, dtype=torch.float64)
    rows, pictures = draws.tolist(), [pillow.picture(image) for image in images.numpy()]

    def one_by_one() -> list[pillow.Picture]:
        return [pillow.POLICIES[name](image, row) for image, row in zip(pictures, rows, strict=True)]

    expected = torch.from_numpy(np.stack([pillow.pixels(image) for image in one_by_one()]))
    found = augmentation.apply(there, draws).cpu()
    result = {
        "name": name,
        "shape": list(images.shape),
        "ms": best_ms(lambda: augmentation(there, generator), device, seconds),
        "pillow_ms": best_ms(one_by_one, "cpu", seconds),
        "different_bytes": int((found != expected).sum()),
    }
    if device == "cuda":
        own = torch.Generator(device).manual_seed(seed)
        result["own_generator_ms"] = best_ms(lambda: augmentation(there, own), device, seconds)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        augmentation(there, generator)
        result["peak_mb"] = (torch.cuda.max_memory_allocated() - before) / 2**20
        torch.cuda.synchronize()
        begin = time.perf_counter()
        augmentation(there, generator)
        result["cpu_ms"] = 1e3 * (time.perf_counter() - begin)  # until the CPU is free again
        torch.cuda.synchronize()
    return result


def main(
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads")] = 1,
    batch: Annotated[int, typer.Option(help="images")] = 1500,
    seed: int = 0,
    seconds: Annotated[float, typer.Option(help="time for every figure")] = 1.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
) -> None:
    """Measure every augmentation on colour images of 32 x 32 and grey ones of 28 x 28 pixels."""
    start = time.perf_counter()
    torch.set_num_threads(threads)
    console = Console(width=120)
    rows = []
    for channels, size in SHAPES:
        images = photographs(batch, channels, size, seed)
        for name in AUGMENTATIONS:
            if name == "none" or (channels == 1 and name in ("strong", "simclr")):
                continue  # colour policies; their versions for grey images are in the list too
            with console.status(f"{name}, {channels} x {size} x {size}"):
                rows.append(measure(name, images, device, seed, seconds))
    table = Table(title=f"{batch:,} images, {device}, {threads} CPU thread(s): milliseconds")
    for heading in ("augmentation", "images", "gll", "Pillow, one by one", "times faster", "bytes that differ"):
        table.add_column(heading, justify="left" if heading == "augmentation" else "right")
    for row in rows:
        table.add_row(
            row["name"],
            " x ".join(map(str, row["shape"][1:])),
            f"{row['ms']:,.2f}",
            f"{row['pillow_ms']:,.1f}",
            f"{row['pillow_ms'] / row['ms']:,.1f}",
            f"{row['different_bytes']:,}",
        )
    console.print(table)
    if json_file is not None:
        config = {"batch": batch, "threads": threads, "seed": seed, "seconds": seconds}
        wall = round(time.perf_counter() - start, 1)
        write_json(json_file, environment(device) | {"config": config, "wall_s": wall, "rows": rows})


if __name__ == "__main__":
    typer.run(main)
