"""A trained model put to use: `gll embed` writes features, `gll predict` says the class of images.

Features are those of the encoder, in evaluation mode. Predictions are those of the head the run was trained with. A
graph head answers from the run's labelled samples: *transductively*, on one graph of the run's training samples and all
images given, or *inductively*, every image by itself, so that an answer does not depend on what else was asked.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int64
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from gll.data.datasets import TrainTest
from gll.files import complete_file
from gll.train.config import with_values
from gll.train.evaluate import uses_training_set
from gll.train.inputs import Samples, read_inputs
from gll.train.model import CHECKPOINT, Model, build_run, encode, find_device, restore
from gll.train.own_encoder import announce, check_named
from gll.train.pretrain import NAME as WARM_UP
from gll.train.pretrain import load_warm_up
from gll.train.runs import Run, RunError, environment
from gll.words import counted

FORMAT = "gll.embed"


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """A run with its model and its data.

    Args:
        run: its files.
        model: encoder and head of its last checkpoint.
        data: what it was trained on.
        warm: the encoder is that of a warm-up, and there was no training after it.
    """

    run: Run
    model: Model
    data: TrainTest
    warm: bool = False

    @staticmethod
    def open(
        directory: Path,
        *,
        device: str = "auto",
        root: Path | None = None,
        encoder: nn.Module | str | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Trained:
        """Read a run.

        Args:
            directory: the run directory.
            device: where to compute.
            root: where data sets lie here, if not where the run found them.
            encoder: a module like the one that was given to `train`, if one was; or the name of the run's encoder, if
                that is code of your own, "package.module:name". Without it nothing that a run names is imported.
            tell: is told what is imported, if the encoder is made by code of your own.
        """
        run = Run.open(Path(directory), writes=False)
        m = run.config.model
        check_named(m.encoder, m.encoder_options, encoder, str(directory))
        if tell is not None:
            announce(m.encoder, m.encoder_options, tell)
        if root is not None:
            run = replace(run, config=with_values(run.config, f"data.root={json.dumps(str(root))}"))
        if run.load(CHECKPOINT) is not None or run.load(WARM_UP) is None:
            return Trained(run, *restore(run, find_device(device), encoder=encoder))
        model, data = build_run(run, find_device(device), encoder=encoder)
        load_warm_up(run, model.encoder)
        model.eval()
        return Trained(run, model, data, warm=True)

    def features(self, x: Tensor) -> Float[Tensor, "n d"]:
        """What the encoder makes of images (bytes), or points.

        Differentiable in: nothing.
        """
        return encode(self.model.encoder, x.to(self.data.train.device), self.data, self.run.config)

    def log_probabilities(
        self, x: Tensor, *, inductive: bool = False, own: Int64[Tensor, " n"] | None = None
    ) -> Float[Tensor, "n c"]:
        """What the head says about images.

        Args:
            x: images (bytes), or points.
            inductive: every image by itself; else all of them are nodes of one graph.
            own: which training sample each is, -1 for none; those are not put into the graph a second time.

        Differentiable in: nothing.
        """
        head, config, split = self.model.head, self.run.config, self.run.split
        if self.warm and any(True for _ in head.parameters()):
            raise RunError(
                f"{self.run.directory} is only warmed up: its {config.model.head} head has learned nothing yet; "
                f"train one by `gll train CONFIG warmup.from={self.run.directory}`, or look at features (gll embed)"
            )
        where = torch.device(config.test.device) if config.test.device else self.data.train.device
        z = self.features(x).to(where)
        labelled, unlabelled, labels = z[:0], z[:0], torch.zeros(0, dtype=torch.int64, device=where)
        if uses_training_set(head):
            all_ = self.features(self.data.train).to(where)
            labelled, labels = all_[split.labelled.to(where)], self.data.train_labels[split.labelled].to(where)
            rest = split.unlabelled if own is None else split.unlabelled[~torch.isin(split.unlabelled, own)]
            unlabelled = all_[rest.to(where)]
        others = unlabelled if len(unlabelled) else None
        return head.classify(z, labelled, labels, unlabelled_features=others, inductive=inductive)


@final
@dataclass(frozen=True, eq=False)
class Predictions:
    """The answers of `gll predict`, in the order of the images.

    Args:
        ids: names of the images.
        classes: names of the classes.
        first, second: most and second most probable class, as numbers.
        probability, next_probability: of these two.
        samples: the images, with their true classes where these are known.
    """

    ids: tuple[str, ...]
    classes: tuple[str, ...]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    probability: NDArray[np.float64]
    next_probability: NDArray[np.float64]
    samples: Samples

    @property
    def new(self) -> NDArray[np.bool_]:
        """Images of known class that are not among the run's training images: those that tell how good it is."""
        return ((self.samples.truth >= 0) & (self.samples.own < 0)).numpy()

    @property
    def hidden(self) -> NDArray[np.bool_]:
        """Training images of known class which the run was not told."""
        return ((self.samples.truth >= 0) & (self.samples.own >= 0) & (self.samples.labels < 0)).numpy()

    def errors(self, among: NDArray[np.bool_]) -> int:
        """How many of these are classified wrongly."""
        return int((among & (self.first != self.samples.truth.numpy())).sum())

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """What is printed: image, class, probability, runner-up and its probability."""
        return [
            (self.ids[i], self.classes[a], f"{p:.4f}", self.classes[b], f"{q:.4f}")
            for i, (a, p, b, q) in enumerate(
                zip(self.first, self.probability, self.second, self.next_probability, strict=True)
            )
        ]

    def remarks(self, shown: int | None) -> list[str]:
        """What to say under the table: rows that are not in it, and how many are right, where that is known."""
        left = 0 if shown is None else len(self.ids) - shown
        lines = [f"{counted(left, 'more image')}: --csv or -o FILE.csv gives all of them"] if left > 0 else []
        for which, what, more in (
            (self.new, "image", "of known class, new to the run"),
            (self.hidden, "training image", "whose class was hidden from the run"),
        ):
            n, wrong = int(which.sum()), self.errors(which)
            if n:
                lines.append(f"wrong: {wrong:,} of {counted(n, what)} {more} ({wrong / n:.2%})")
        return lines

    HEADER = ("image", "class", "probability", "runner-up", "its probability")

    def csv(self) -> str:
        """All rows as CSV."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("id", "class", "probability", "runner_up", "runner_up_probability"))
        writer.writerows(self.rows())
        return text.getvalue()

    def table(self, most: int) -> Table:
        """The first rows as a table for the terminal."""
        table = Table()
        for name in self.HEADER:
            table.add_column(name, justify="right" if "probability" in name else "left")
        for row in self.rows()[:most]:
            table.add_row(*map(Text, row))
        return table


def predict(trained: Trained, images: Sequence[str], *, inductive: bool = False, convert: bool = False) -> Predictions:
    """The classes of images.

    Args:
        trained: the model.
        images, convert: as in `read_inputs`.
        inductive: every image by itself.
    """
    samples = read_inputs(images, trained.run, trained.data, convert=convert)
    logp = trained.log_probabilities(samples.x, inductive=inductive, own=samples.own).double().cpu()
    value, index = logp.topk(2, 1)
    probability, classes = value.exp().numpy(), index.numpy()
    return Predictions(
        ids=samples.ids,
        classes=trained.data.classes,
        first=classes[:, 0],
        second=classes[:, 1],
        probability=probability[:, 0],
        next_probability=probability[:, 1],
        samples=samples,
    )


def embed(trained: Trained, images: Sequence[str], *, convert: bool = False) -> dict[str, NDArray[Any]]:
    """The arrays that `gll embed` writes: features, ids, and classes as far as they are known.

    `labels` holds the names of the classes that may be learned from, empty elsewhere; `truth` all that are known, those
    hidden from the run among them. An array of which nothing is known is left out. `gll fit` reads the file as it is.
    """
    samples = read_inputs(images, trained.run, trained.data, convert=convert)
    features = trained.features(samples.x).cpu().numpy()
    about = {
        "format": FORMAT,
        "run": str(trained.run.directory),
        "images": list(images),
        "encoder": trained.run.config.model.encoder,
        "head": trained.run.config.model.head,
        "environment": environment(),
    }
    arrays: dict[str, NDArray[Any]] = {"features": features, "ids": np.array(samples.ids)}
    names = np.array([*trained.data.classes, ""])  # -1 finds the last
    for key, classes in (("labels", samples.labels), ("truth", samples.truth)):
        if bool((classes >= 0).any()):
            arrays[key] = names[classes.numpy()]
    return {**arrays, "about": np.array(json.dumps(about))}


def write_features(arrays: dict[str, NDArray[Any]], path: Path) -> None:
    """Write an .npz file, whole or not at all."""
    with complete_file(path) as part, part.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def check_output(path: Path, suffix: str, force: bool) -> None:
    """Before the work begins: can this file be written?"""
    if path.suffix.lower() != suffix:
        raise ValueError(f"{path}: the name of this file has to end in {suffix}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists: add --force to replace it, or choose another name")
