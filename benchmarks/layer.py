"""Time and memory of the graph learning layer, beside a naive dense twin and the authors' published code.

    python benchmarks/layer.py                        one CPU thread
    python benchmarks/layer.py --most 2000 --json benchmarks/results/layer-cpu.json
    python benchmarks/layer.py --least 10000 --threads 2 --json benchmarks/results/layer-cpu-large.json
    python benchmarks/layer.py --device cuda --json benchmarks/results/layer-cuda.json

Each case runs in a process of its own, so that its peak memory is its own. Times are the smallest of several runs, in
milliseconds; compare the columns of one run, not runs of different days.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from record import best_ms, environment, write_json
from rich.console import Console
from rich.table import Table

import gll

CASES = [
    (228, 100, 128, 10),
    (1124, 100, 128, 10),
    (1500, 250, 512, 10),
    (1500, 470, 512, 47),
    (2000, 200, 512, 10),
    (10000, 1000, 128, 10),
    (20000, 10000, 128, 10),
]
# Forward + backward of the authors' published code, measured before this project: on a machine with an H200; on one CPU
# thread, two from 10,000 nodes on.
AUTHORS_MS: dict[str, dict[int, str]] = {
    "cuda": {228: "41", 1124: "173", 1500: "491", 2000: "635"},
    "cpu": {228: "21", 1124: "100-210", 1500: "274", 2000: "367", 10000: "4,200-19,000", 20000: "9,000-20,000"},
}
NAIVE_LIMIT = 4000  # the dense twin needs n² numbers several times over


def problem(n: int, base: int, d: int, classes: int, device: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of overlapping Gaussian classes, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    centers = 0.3 * torch.randn(classes, d, generator=generator)
    x = torch.randn(n, d, generator=generator) + centers[y]
    return x.to(device).requires_grad_(), y.to(device)


def naive(x: torch.Tensor, y: torch.Tensor, base: int, classes: int, k: int = 25) -> torch.Tensor:
    """The layer written down densely and left to autograd: what one would write first."""
    x = torch.nn.functional.normalize(x)
    n = len(x)
    square = torch.cdist(x, x) ** 2 + torch.diag(torch.full((n,), torch.inf, device=x.device))
    value, index = square.topk(k, largest=False)
    epsilon = value[:, -1].sqrt()
    near = torch.zeros(n, n, dtype=torch.bool, device=x.device).scatter(1, index, True)
    near = (near | near.T) & ~torch.eye(n, dtype=torch.bool, device=x.device)
    weight = torch.where(near, torch.exp(-4 * square / (epsilon[:, None] * epsilon)), 0)
    laplacian = torch.diag(weight.sum(1)) - weight
    g = torch.nn.functional.one_hot(y[:base], classes).to(x.dtype)
    u = torch.linalg.solve(laplacian[base:, base:], weight[base:, :base] @ g)
    return torch.log(u.clamp(min=0) + 1e-8)


def measure(case: tuple[int, int, int, int], device: str, threads: int, seed: int) -> dict[str, Any]:
    """All figures of one case, in this process."""
    torch.set_num_threads(threads)
    n, base, _, classes = case
    x, y = problem(*case, device=device, seed=seed)
    layer = gll.GraphLearningLayer(classes)

    def forward() -> torch.Tensor:
        with torch.no_grad():
            return layer(x[base:], x[:base], y[:base])

    def both(head: Callable[[], torch.Tensor] = lambda: layer(x[base:], x[:base], y[:base])) -> None:
        x.grad = None
        torch.nn.functional.cross_entropy(head(), y[base:]).backward()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    both()
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
    else:
        peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10
    result = {"case": case, "peak_mb": peak, "forward_ms": best_ms(forward, device), "both_ms": best_ms(both, device)}
    fused = isinstance(layer._last[0], torch.Tensor)
    result["method"] = "fused" if fused or layer.last_solution is None else layer.last_solution.method
    single = layer(x[base:], x[:base], y[:base]).exp()
    wide = layer(x.double()[base:], x.double()[:base], y[:base]).exp()
    result["float32_minus_float64"] = float((single - wide).abs().max())
    if n <= NAIVE_LIMIT:
        result["naive_ms"] = best_ms(lambda: both(lambda: naive(x, y, base, classes)), device)
    return result


def main(
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads")] = 1,
    seed: int = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the figures here")] = None,
    least: Annotated[int, typer.Option(help="leave out cases with fewer nodes")] = 0,
    most: Annotated[int, typer.Option(help="leave out cases with more nodes")] = 10**9,
    case: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Measure the layer at the sizes of the paper's experiments."""
    if case is not None:
        print(json.dumps(measure(tuple(json.loads(case)), device, threads, seed)))  # type: ignore[arg-type]
        return
    start = time.perf_counter()
    torch.set_num_threads(threads)
    rows = []
    console = Console(width=150)
    for entry in CASES:
        if not least <= entry[0] <= most:
            continue
        with console.status(f"n = {entry[0]:,}, d = {entry[2]}"):
            arguments = [
                "--device",
                device,
                "--threads",
                str(threads),
                "--seed",
                str(seed),
                "--case",
                json.dumps(entry),
            ]
            env = os.environ | {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
            out = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, env=env)
        if out.returncode:
            raise SystemExit(out.stderr)
        rows.append(json.loads(out.stdout.splitlines()[-1]))
    table = Table(title=f"GraphLearningLayer, k = 25, float32, {device}, {threads} CPU thread(s): milliseconds")
    for name in ("nodes", "base", "d", "classes"):
        table.add_column(name, justify="right")
    for name in ("forward", "forward+backward", "naive dense twin", "authors' code", "peak MB", "|f32 - f64|"):
        table.add_column(name, justify="right")
    table.add_column("solver")
    for row in rows:
        n = row["case"][0]
        naive_ms = f"{row['naive_ms']:,.1f} ({row['naive_ms'] / row['both_ms']:.1f}x)" if "naive_ms" in row else "-"
        table.add_row(
            *(f"{v:,}" for v in row["case"]),
            f"{row['forward_ms']:,.2f}",
            f"{row['both_ms']:,.2f}",
            naive_ms,
            AUTHORS_MS[device].get(n, "-"),
            f"{row['peak_mb']:,.0f}",
            f"{row['float32_minus_float64']:.0e}",
            row["method"].split(":")[0],
        )
    console.print(table)
    if json_file is not None:
        config = {"k": 25, "threads": threads, "seed": seed, "cases": CASES}
        wall = round(time.perf_counter() - start, 1)
        write_json(json_file, environment(device) | {"config": config, "wall_s": wall, "rows": rows})


if __name__ == "__main__":
    typer.run(main)
