"""Run `gll moons`, and keep its figures and its picture for docs/two-moons.md.

python benchmarks/moons.py            train, then record
python benchmarks/moons.py --reuse    record what the last `gll moons` left in out/moons
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from PIL import Image
from record import environment, write_json
from rich.console import Console

from gll.moons import run_moons

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    out, start = ROOT / "out" / "moons", time.perf_counter()
    if "--reuse" not in sys.argv[1:]:
        run_moons(epochs=2000, out=out, seed=1, threads=1, console=Console())
    rows = json.loads((out / "two_moons.json").read_text())
    wall = max(time.perf_counter() - start, sum(row["seconds"] for row in rows))
    config = {"epochs": rows[0]["epochs"], "seed": rows[0]["seed"], "threads": rows[0]["threads"]}
    record = environment() | {"threads": rows[0]["threads"], "config": config, "wall_s": wall, "rows": rows}
    write_json(ROOT / "benchmarks" / "results" / "moons.json", record)
    # Few colours, and smaller: a picture for a page.
    picture = Image.open(out / "two_moons.png").convert("RGB")
    picture = picture.resize((760, round(760 * picture.height / picture.width)), Image.Resampling.LANCZOS)
    picture.quantize(32).save(ROOT / "docs" / "figures" / "two_moons.png", optimize=True)


if __name__ == "__main__":
    main()
