"""What `gll attack` was asked for, and what it attacks: a run, its test samples, and victims made of it."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from gll.attacks.graph_victim import GraphVictim
from gll.attacks.probe import linear_probe
from gll.attacks.radii import MEASURES, Radius
from gll.attacks.sets import OTHER, PROTOCOLS, Protocol, Recipe, names_of
from gll.attacks.threat import Inference, Queries
from gll.attacks.victims import victim_of
from gll.data.random import generator
from gll.data.samples import TrainTest
from gll.names import require_name
from gll.train.config import with_values
from gll.train.model import CHECKPOINT, data_of, find_device
from gll.train.own_encoder import check_named
from gll.train.runs import Run, RunError

PLAIN_HEADS = ("mlp", "linear", "probe")
GRAPH = "graph"
GRADIENTS = ("own", "mlp", "gll", GRAPH)


@final
@dataclass(frozen=True)
class Request:
    """What was asked for.

    Args:
        run: the run directory.
        attacks: names of attacks and of sets, with commas between.
        eps: every ε; empty: the paper's.
        normalised: ε are in normalised units.
        c: every c of CW in the paper's form; empty: the paper's.
        samples: how many test samples; 0: all.
        base, chunk: nodes of a graph; 0: the paper's.
        joint: queries share a graph, else each has its own.
        inductive: a query is joined to a base that was solved without it; queries are then never joint.
        transfer: runs to transfer attacks from.
        head_at_test: a graph head in place of that of the run.
        gradient_of: whose gradient the attacks follow: own, mlp, gll, or graph: of a WNLL head, that of its graph in
            place of the linear layer's, by which it was trained.
        steps, restarts, queries: of the strong set.
        poison: how many labels of the base to flip; empty: none.
        out: the folder; None: attack in that of the run.
        resume: go on with what is there.
        seed: of the base, the samples and all that is random.
        device, root: as elsewhere.
        encoders: names of encoders that are code of the user's own, as runs name them: these may be imported.
        keep_images: keep all attacked images.
        norm: in which ε is measured: linf or l2.
    """

    run: Path
    attacks: str = "paper"
    eps: tuple[float, ...] = ()
    normalised: bool = False
    c: tuple[float, ...] = ()
    samples: int = 0
    base: int = 0
    chunk: int = 0
    joint: bool = True
    inductive: bool = False
    transfer: tuple[Path, ...] = ()
    head_at_test: str | None = None
    gradient_of: str = "own"
    steps: int = 40
    restarts: int = 2
    queries: int = 1000
    poison: tuple[int, ...] = ()
    out: Path | None = None
    resume: bool = False
    seed: int = 0
    device: str = "auto"
    root: Path | None = None
    encoders: tuple[str, ...] = ()
    keep_images: bool = False
    norm: str = "linf"

    def __post_init__(self) -> None:
        require_name("norm", self.norm, MEASURES)
        require_name("gradient", self.gradient_of, GRADIENTS)
        names_of(self.attacks)
        for name in ("eps", "c"):  # each once
            object.__setattr__(self, name, tuple(dict.fromkeys(getattr(self, name))))
        if self.inductive:  # a query that is joined to a base never meets the others
            object.__setattr__(self, "joint", False)
        bad = [e for e in self.eps if not 0 <= e < float("inf")] + [c for c in self.c if not 0 < c < float("inf")]
        if bad:
            raise ValueError(f"ε must be at least 0 and c above 0, both finite, got {bad[0]}")
        if any(count < 1 for count in self.poison):
            raise ValueError(f"--poison takes numbers of labels, from 1 on, got {min(self.poison)}")
        if "transfer" in (name.strip() for name in self.attacks.split(",")) and not self.transfer:
            raise ValueError("the attack 'transfer' needs runs to transfer from: --transfer RUN")


@final
class Target:
    """A run, its test samples, and the victims that are made of it.

    Args:
        request: what was asked for.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.device = find_device(request.device)
        self.run = _open(request.run, request.root)
        self.others = tuple(_open(path, request.root) for path in request.transfer)
        _check_encoders((self.run, *self.others), request.encoders)
        self.data: TrainTest = data_of(self.run, self.device)
        if not self.data.is_image:
            raise RunError(f"{self.data.name} has points, not images: attacks move pixels between 0 and 1")
        if not len(self.data.test):
            raise RunError(f"{self.data.name} has no test samples to attack")
        self.measure = MEASURES[request.norm]
        for eps in request.eps:
            self.measure.check(eps, self.data, normalised=request.normalised)
        known = PROTOCOLS.get(self.data.name.lower(), OTHER)
        n = min(request.samples or len(self.data.test), len(self.data.test))
        order = torch.randperm(len(self.data.test), generator=generator(request.seed, "attacked samples"))
        self.index = index = order[:n].sort().values.to(self.data.test.device)
        self.bytes = self.data.test[index]
        self.images = self.bytes.float() / 255
        self.labels: Tensor = self.data.test_labels[index]
        self.labelled = labelled = len(self.run.split.labelled)
        self.protocol: Protocol = replace(
            known,
            base=min(request.base or known.base, labelled),
            few_base=min(request.base or known.few_base, labelled),
            chunk=min(request.chunk or known.chunk, n),
            few_chunk=min(request.chunk or known.few_chunk, n),
        )
        self._made: dict[tuple[Any, ...], nn.Module] = {}

    def victim(
        self,
        base: int,
        sharp: bool,
        head: str | None = None,
        run: Run | None = None,
        *,
        fast: bool = False,
        lent: bool = False,
    ) -> nn.Module:
        """A victim; each is made once. `lent`: by the gradient that it was trained by, whatever was asked for."""
        run = run or self.run
        lent = lent and self.request.gradient_of == GRAPH  # else it is lent as it is
        key = (str(run.directory), base, sharp, head, fast, lent)
        if key not in self._made:
            alone = Inference.INDUCTIVE if self.request.inductive else Inference.TRANSDUCTIVE
            made = victim_of(
                run,
                base=min(base, len(run.split.labelled)),
                queries=Queries.JOINT if self.request.joint else Queries.ALONE,
                inference=alone,
                head_at_test=head,
                # The strong set differentiates through WNLL's graph; the paper does not.
                exact_gradient=sharp or (self.request.gradient_of == GRAPH and not lent),
                seed=self.request.seed,
                device=self.device,
                encoder=_encoder(run, self.request.encoders),
            ).requires_grad_(False)
            self._made[key] = made.sharpened(fast=fast) if sharp and isinstance(made, GraphVictim) else made
        return self._made[key]

    def judged(self, base: int, sharp: bool, *, fast: bool = False) -> nn.Module:
        """The model under attack."""
        return self.victim(base, sharp, self.request.head_at_test, fast=fast)

    @cached_property
    def has_graph(self) -> bool:
        """Whether the model under attack has a graph."""
        return isinstance(self.judged(self.protocol.few_base, False), GraphVictim)

    def stand_in(self) -> GraphVictim | None:
        """The model under attack with the gradient that it was trained by, if that is not its own."""
        model = self.victim(self.protocol.few_base, False, self.request.head_at_test, lent=True)
        return model if isinstance(model, GraphVictim) and model.surrogate is not None else None

    def aim(self) -> tuple[nn.Module, str] | None:
        """The model whose gradient was asked for, if it is another than the one under attack."""
        wanted, own = self.request.gradient_of, self.run.config.model.head
        own = "mlp" if own in PLAIN_HEADS else own
        if wanted == GRAPH and self.stand_in() is None:
            at_test, head = self.request.head_at_test, self.run.config.model.head
            tested = f", tested by a {at_test} head that was not trained" if at_test else ""
            raise ValueError(
                f"--gradient-of graph is for a WNLL head, which lends itself the gradient of the linear layer it was "
                f"trained by: {self.run.directory} was trained with head {head!r}{tested}, and is attacked by its own "
                "gradient; leave it out"
            )
        if wanted in ("own", GRAPH, self.request.head_at_test or own):
            return None
        if wanted not in ("gll", own):
            raise ValueError(
                f"{self.run.directory} has no {wanted} head whose gradient could be followed, but {own}: give "
                "--gradient-of own or gll; a linear classifier on its features is followed by --attacks probe"
            )
        if wanted == own:
            return self.victim(self.protocol.few_base, False), f"the {wanted} head of the same run"
        return self.victim(self.protocol.few_base, False, wanted), f"a {wanted} head on the encoder of the same run"

    def followed(self) -> str:
        """What is in the graph whose gradient was asked for, where it is another than that of the model under attack.

        Empty where no such graph is followed.
        """
        aim = self.aim()
        if aim is None or not isinstance(aim[0], GraphVictim):
            return ""
        under = "" if self.has_graph else "The model under attack has no graph. "
        return f"{under}The gradient is that of {aim[1]}, with a graph: {aim[0].threat.describe()}"

    def probe(self) -> nn.Module:
        """A linear classifier on the encoder of the model under attack, fitted to labelled training samples."""
        labelled = self.run.split.labelled.to(self.data.train.device)
        images, labels = self.data.train[labelled][:10_000].float() / 255, self.data.train_labels[labelled][:10_000]
        judged = self.judged(self.protocol.few_base, False)
        options: dict[str, Any] = {"num_classes": self.data.num_classes}
        if isinstance(judged, GraphVictim):
            return linear_probe(judged, images, labels, **options).requires_grad_(False)
        encoder: nn.Module = judged.model[0]  # type: ignore[index, assignment]
        options |= {"mean": self.data.mean, "std": self.data.std}
        return linear_probe(encoder, images, labels, **options).requires_grad_(False)

    def sources(self) -> dict[str, nn.Module]:
        """The runs to transfer from, by name and checkpoint."""
        found: dict[str, nn.Module] = {}
        for run in self.others:
            known = data_of(run)
            shape = tuple(known.test.shape[1:])
            if shape != tuple(self.images.shape[1:]):
                raise RunError(
                    f"--transfer {run.directory}: it was trained on images of shape {shape} ({known.name}), "
                    f"those under attack have {tuple(self.images.shape[1:])} ({self.data.name}); give a run that was "
                    "trained on images of that shape"
                )
            name = f"{run.config.name}, seed {run.config.seed} ({_checkpoint(run)[:8]})"
            found[name] = self.victim(self.protocol.few_base, True, None, run)
        return found

    def radii(self, eps: tuple[float, ...]) -> tuple[Radius, ...]:
        """Every ε that was asked for, or these of the paper; as lengths in pixel units."""
        r, measure = self.request, self.measure
        asked = [measure.asked(length, self.data, normalised=r.normalised) for length in r.eps]
        alpha, _ = measure.of_the_paper(self.protocol.alpha, self.data)
        found = asked or [measure.of_the_paper(length, self.data) for length in eps]
        return tuple(Radius(length, norm, alpha) for length, norm in found)

    @property
    def table_eps(self) -> float:
        """The ε of the paper's table, in pixel units."""
        return self.measure.of_the_paper(self.protocol.table_eps, self.data)[0]

    def recipe(self) -> Recipe:
        """What the attacks are made of."""
        r, p = self.request, self.protocol
        judged = self.judged(p.few_base, False)
        return Recipe(
            self.radii(p.eps), self.radii((p.table_eps,)), r.c or p.c, p, r.steps, r.restarts, r.queries,
            self.data.num_classes, self.has_graph, self.has_graph and r.joint and not r.inductive, self.sources,
            self.probe, self.aim(), not isinstance(judged, GraphVictim) or judged.is_plain,
            self.stand_in,
        )  # fmt: skip

    def tested(self) -> dict[str, Any] | None:
        """The test error that the training has given, and why it is not the natural error here; None without one."""
        result = self.run.result()
        rows = (result or {}).get("tests") or []
        wanted = (self.request.head_at_test or self.run.config.model.head, "transductive")
        wanted = (wanted[0], "inductive") if self.request.inductive else wanted
        row = next((row for row in rows if (row["head"], row["mode"]) == wanted), rows[0] if rows else None)
        if row is None:
            return None
        why = "" if len(self.images) == len(self.data.test) else f", of all {len(self.data.test):,} test samples"
        if row["head"] != wanted[0]:
            why += f": by the head it was trained with, here {wanted[0]} classifies"
        elif self.has_graph:
            images = "all images" if row["mode"] == "transductive" else "all training images"
            why += f": there {images} and {self.labelled:,} labels are in the graph"
            why += "; here the graph is smaller, and the natural error another"
        return {"error": row["error"], "how": f"{row['head']}, {row['mode']}", "why": why}

    def about(self) -> dict[str, Any]:
        """What all results share."""
        # Of bytes: divided by 255 they differ in the last bit from device to device, and a folder may move.
        pixels = hashlib.sha256(self.bytes.cpu().numpy().tobytes() + self.labels.cpu().numpy().tobytes())
        return {
            "run": f"{self.run.config.name}, seed {self.run.config.seed}",
            "checkpoint": _checkpoint(self.run),
            "data": self.data.name,
            "samples": len(self.images),
            "pixels": pixels.hexdigest(),
            "head at test": self.request.head_at_test,
            # Attacks by different gradients have the same names, and columns.
            "gradient of": self.request.gradient_of if self.request.gradient_of == GRAPH or self.aim() else None,
            "seed": self.request.seed,
        }


def numbers(option: str, text: str) -> tuple[float, ...]:
    """Numbers or fractions with commas between.

    >>> numbers("--eps", "0.1, 51/255")
    (0.1, 0.2)
    >>> numbers("--eps", "8:255")
    Traceback (most recent call last):
    ValueError: --eps takes numbers with commas between, such as 0.1,8/255; got '8:255'
    """
    try:
        parts = [part.split("/") for part in text.split(",")] if text.strip() else []
        return tuple(float(first) / math.prod(map(float, rest)) for first, *rest in parts)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{option} takes numbers with commas between, such as 0.1,8/255; got {text!r}") from None


def whole_numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers with commas between.

    >>> whole_numbers("--poison", "1,2,5")
    (1, 2, 5)
    >>> whole_numbers("--poison", "1.5")
    Traceback (most recent call last):
    ValueError: --poison takes whole numbers with commas between, such as 1,2,5; got '1.5'
    """
    try:
        return tuple(int(part) for part in text.split(",")) if text.strip() else ()
    except ValueError:
        raise ValueError(f"{option} takes whole numbers with commas between, such as 1,2,5; got {text!r}") from None


def _open(path: Path, root: Path | None) -> Run:
    run = Run.open(path, writes=False)
    return run if root is None else replace(run, config=with_values(run.config, f"data.root={json.dumps(str(root))}"))


def _encoder(run: Run, named: tuple[str, ...]) -> str | None:
    """The run's encoder, if the user has named it."""
    name = run.config.model.encoder
    return name if name in named else None


def _check_encoders(runs: tuple[Run, ...], named: tuple[str, ...]) -> None:
    """An error where a run's encoder is code that the user has not named, or no run has one that was named."""
    for run in runs:
        m = run.config.model
        check_named(m.encoder, m.encoder_options, _encoder(run, named), str(run.directory))
    there = [run.config.model.encoder for run in runs]
    for name in named:
        if name not in there:
            raise RunError(f"--encoder {name}: no run here has it, but {', '.join(dict.fromkeys(there))}")


def _checkpoint(run: Run) -> str:
    """A checksum of the trained weights."""
    path = run.directory / "checkpoints" / f"{CHECKPOINT}.safetensors"
    if not path.is_file():
        raise RunError(f"{run.directory} has no trained model yet; go on with `gll train --resume {run.directory}`")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
