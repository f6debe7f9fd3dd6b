"""What `test_train_ranks.py` runs as two processes: every config of a folder, or why it was refused."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from gll.train.commands import open_run
from gll.train.config import load_config
from gll.train.distributed import Ranks
from gll.train.loop import train
from gll.train.progress import Reporter


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    answers = {}
    with Ranks.start("cpu", minutes=2) as ranks:
        for path in sorted(folder.glob("*.toml")):
            try:
                train(open_run(load_config(path), path, None, ranks, Reporter()), ranks=ranks)
            except ValueError as error:
                answers[path.stem] = f"{type(error).__name__}: {error}"
    (folder / f"rank{ranks.rank}.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stderr.flush()
    os._exit(0)  # all is written: how gloo's threads end with the interpreter is not what is tested
