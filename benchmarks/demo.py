"""Run `gll demo`, and keep its figures and its picture for the README.

python benchmarks/demo.py            train, then record
python benchmarks/demo.py --reuse    record what the last `make demo` left in out/demo
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from PIL import Image
from record import environment, write_json

from gll.cli import app

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    out = ROOT / "out" / "demo"
    if "--reuse" not in sys.argv[1:]:
        app(["demo", "--out", str(out)], standalone_mode=False)
    made = json.loads((out / "demo.json").read_text())
    settings = made["settings"]
    if settings.pop("resumed"):
        raise SystemExit("the last demo went on with an earlier one: its time is not that of the whole")
    config = {**settings, "seed": f"0-{settings['seeds'] - 1}"}
    record = environment() | {"threads": settings["threads"], "config": config, "wall_s": made["wall_s"]}
    write_json(ROOT / "benchmarks" / "results" / "demo.json", record | {"rows": made["rows"]})
    picture = Image.open(out / "embeddings.png").convert("RGB")
    picture = picture.resize((1000, round(1000 * picture.height / picture.width)), Image.Resampling.LANCZOS)
    picture.quantize(200).save(ROOT / "docs" / "figures" / "demo.png", optimize=True)


if __name__ == "__main__":
    main()
