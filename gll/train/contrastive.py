"""One contrastive training: two views of every image, one γ, one encoder, watched and resumable.

The loop is in `Contrastive.run`, one step of it in `_step`. What surrounds it (the choice of γ, results) is in
`pretrain.py`; the losses are in `nn/losses.py`, the look at the graph in `watch.py`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from gll.data.augment import augmentation_from_name
from gll.data.datasets import TrainTest, normalize
from gll.data.random import derived_seed, generator
from gll.nn.losses import simclr_loss, supcon_loss
from gll.train.checkpoint import load_state
from gll.train.config import Config
from gll.train.distributed import Ranks
from gll.train.finite import NonFiniteError
from gll.train.interrupt import Interrupt
from gll.train.optimize import learning_rate, load_optimizer, make_optimizer, optimizer_tensors, set_learning_rate
from gll.train.progress import Reporter, Update
from gll.train.runs import Run, same_processes
from gll.train.watch import Look, Watch

READ = 20  # steps between two readings of the loss, where each waits for the device


@final
@dataclass(frozen=True)
class Candidate:
    """What warming up with one γ came to.

    Args:
        gamma: share of SimCLR in the loss.
        epoch: after which the kept state was reached; 0: before the first.
        epochs: how many were run; fewer than asked for where patience ended it.
        look: at the graph of the kept state; None where nothing could be hidden.
    """

    gamma: float
    epoch: int
    epochs: int
    look: Look | None


@final
@dataclass(frozen=True, eq=False)
class Task:
    """What all candidates share.

    Args:
        data: images, on the device.
        seen: (n,) classes that the loss may use, -1 elsewhere.
        watch: the samples whose graph is looked at, if any.
        config, run, reporter, ranks: as in `warm_up`.
    """

    data: TrainTest
    seen: Tensor
    watch: Watch | None
    config: Config
    run: Run
    reporter: Reporter
    ranks: Ranks


@final
class Contrastive:
    """Trains an encoder and its projection with one γ; both are changed in place.

    Args:
        task: what is trained on, and how.
        encoder: images -> features.
        projection: features -> what the losses compare.
        gamma: share of SimCLR in the loss, the rest is SupCon's.
        name: of the checkpoint.
    """

    def __init__(self, task: Task, encoder: nn.Module, projection: nn.Module, gamma: float, name: str) -> None:
        self.task, self.gamma, self.name = task, gamma, name
        train, w, n = task.config.train, task.config.warmup, len(task.data.train)
        self.device = task.data.train.device
        self.layout = torch.channels_last if train.channels_last else torch.contiguous_format
        # One module: its parameters are the optimizer's, its state is the checkpoint's.
        self.networks = nn.ModuleDict({"encoder": encoder, "projection": projection})
        for parameter in encoder.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=self.layout)
        self.forward: Callable[[Tensor], Tensor] = task.ranks.wrap(encoder)
        if train.compile:
            self.forward = torch.compile(self.forward)
        self.optimizer = make_optimizer(w, self.networks.parameters())
        self.augment = augmentation_from_name(w.augment)
        self.batch = min(w.batch, n)
        self.steps = w.steps or n // self.batch
        self.read = READ if self.device.type == "cuda" else 1
        self.epoch, self.step = 0, 0  # what comes next
        self.total = torch.zeros(3, device=self.device)  # loss, SimCLR and SupCon of the epoch so far
        self.seconds = 0.0  # that earlier stretches took for the epoch
        self.best: Look | None = None
        self.last: Look | None = None
        self.worse = 0  # looks since the best one
        self.kept = Candidate(gamma, 0, 0, None)
        self.kept_state: dict[str, Tensor] = {}

    def run(self) -> Candidate:
        """Train to the end, or go on where the checkpoint is; the networks end in the state that is kept.

        Raises:
            KeyboardInterrupt: after Ctrl-C or SIGTERM. One process alone writes a checkpoint first.
        """
        run = self.task.run
        stored = run.load(self.name)
        if stored is not None:
            same_processes(run, stored[1], self.task.ranks)
            self._restore(*stored)
            if stored[1]["done"]:
                return self.kept
            step = f", step {self.step}" if self.step else ""
            self.task.reporter.say(f"warm-up, γ = {self.gamma:g}: going on after epoch {self.epoch}{step}")
        interrupt = Interrupt()
        # Several processes would have to agree where to stop, so there it stops at once.
        with interrupt if self.task.ranks.world == 1 else nullcontext():
            self._run_epochs(interrupt, first=stored is None)
            self.kept = dataclasses.replace(self.kept, epochs=self.epoch)
            self.networks.load_state_dict(self.kept_state)
            self._save(done=True)
        if interrupt.asked:
            raise KeyboardInterrupt
        return self.kept

    def _run_epochs(self, interrupt: Interrupt, *, first: bool) -> None:
        """All that are still to be done; if it is the first stretch, the graph is looked at before."""
        w, run = self.task.config.warmup, self.task.run
        with self.task.reporter.task(f"warm-up, γ = {self.gamma:g}", w.epochs * self.steps, self._steps_done) as update:
            if first and (line := self._look()):
                run.log(phase="warmup", gamma=self.gamma, epoch=0, **line)
                update.go_on(self._steps_done)  # the look is no step, and may take as long as several
            while self.epoch < w.epochs and not 0 < w.patience <= self.worse:
                line = self._train_epoch(update, interrupt)
                line["images_per_second"] = self.steps * self.batch / line["seconds"]
                self.epoch, self.step, self.seconds = self.epoch + 1, 0, 0.0
                if self.epoch % w.every == 0 or self.epoch == w.epochs:
                    line |= self._look()
                run.log(phase="warmup", gamma=self.gamma, epoch=self.epoch, **line)
                if (interrupt.asked or self.epoch % w.save_every == 0) and self.epoch < w.epochs:
                    self._save(done=False)
                    if interrupt.asked:
                        raise KeyboardInterrupt

    @property
    def _steps_done(self) -> int:
        return self.epoch * self.steps + self.step

    def _train_epoch(self, update: Update, interrupt: Interrupt) -> dict[str, Any]:
        """What is still to be done of an epoch; what the metrics say of it."""
        w, seed, rank = self.task.config.warmup, self.task.config.seed, self.task.ranks.rank
        self.networks.train()
        if self.step == 0:
            self.total = torch.zeros(3, device=self.device)
        lr, start, first = 0.0, time.perf_counter(), self.step
        for step, index in itertools.islice(enumerate(self._batches()), first, None):
            lr = learning_rate(w, self._steps_done, self.steps)
            set_learning_rate(self.optimizer, lr)
            views = generator(seed, "warmup", "views", self.epoch, step, rank)  # on the CPU: nothing waits for it
            torch.manual_seed(derived_seed(seed, "warmup", "dropout", self.epoch, step, rank))
            self.total += self._step(index, views)
            self.step = step + 1
            stop = interrupt.asked and self.step < self.steps
            if self.step % self.read == 0 or self.step == self.steps or stop:
                loss = self._finite(float(self.total[0]) / self.step, step, lr)
                speed = (self.step - first) * self.batch / (time.perf_counter() - start)
                update(self._steps_done, f"loss {loss:.4f}{self._last_error()}, {speed:,.0f} images/s")
            if stop:
                self.seconds += time.perf_counter() - start
                self._save(done=False)
                raise KeyboardInterrupt
        self._finite_parameters(lr)
        loss, sim, sup = (self.total / self.steps).tolist()
        both = ({"simclr": sim} if self.gamma > 0 else {}) | ({"supcon": sup} if self.gamma < 1 else {})
        return {"loss": loss, **both, "lr": lr, "seconds": self.seconds + time.perf_counter() - start}

    def _step(self, index: Tensor, views: torch.Generator) -> Tensor:
        """One step on the samples of `index`; (3,) loss, SimCLR and SupCon, still on the device."""
        task, w, gamma, ranks = self.task, self.task.config.warmup, self.gamma, self.task.ranks
        images = task.data.train[index[ranks.share(len(index))]]
        images = self.augment(torch.cat([images, images]), views)
        pixels = normalize(images, task.data).contiguous(memory_format=self.layout)
        with self._autocast():
            z = self.networks["projection"](self.forward(pixels))
        z1, z2 = (ranks.gather(half) for half in z.chunk(2))  # every rank has the loss of the whole batch
        zero = torch.zeros((), device=self.device)
        sim = simclr_loss(z1, z2, w.temperature) if gamma > 0 else zero
        sup = supcon_loss(z1, z2, task.seen[index], w.temperature) if gamma < 1 else zero
        loss = gamma * sim + (1 - gamma) * sup
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        ranks.average_gradients(self.networks["projection"])
        if w.clip > 0:
            nn.utils.clip_grad_norm_(self.networks.parameters(), w.clip)
        self.optimizer.step()
        return torch.stack([loss.detach(), sim.detach(), sup.detach()])

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.task.config.train.autocast)

    def _batches(self) -> Iterator[Tensor]:
        """Indices of the samples of every step: as many passes over all of them, in a new order, as are needed."""
        n = len(self.task.data.train)
        draw = generator(self.task.config.seed, "warmup", "order", self.epoch)
        step = 0
        while step < self.steps:
            order = torch.randperm(n, generator=draw).to(self.device)
            for at in range(0, n - self.batch + 1, self.batch):
                if step < self.steps:
                    yield order[at : at + self.batch]
                step += 1

    def _finite(self, loss: float, step: int, lr: float) -> float:
        if not math.isfinite(loss):
            raise NonFiniteError(
                f"the loss of the warm-up (γ = {self.gamma:g}) is {loss} in epoch {self.epoch + 1}, at step {step + 1} "
                f"or up to {READ} before it, with a learning rate of {lr:.3g}: lower warmup.lr, or set warmup.clip=1. "
                "The last checkpoint is as it was"
            )
        return loss

    def _finite_parameters(self, lr: float) -> None:
        """What the last step of an epoch may have spoilt, before it is looked at or stored."""
        state = self.networks.state_dict().values()
        if not bool(torch.stack([torch.isfinite(t).all() for t in state if t.is_floating_point()]).all()):
            raise NonFiniteError(
                f"the parameters of the warm-up (γ = {self.gamma:g}) are not finite after epoch {self.epoch + 1}, with "
                f"a learning rate of {lr:.3g}: lower warmup.lr, or set warmup.clip=1. The last checkpoint is as it was"
            )

    @torch.no_grad()
    def _look(self) -> dict[str, Any]:
        """Look at the graph of the encoder's features, without augmentation, and keep the state if it is to be kept.

        Returns:
            What the metrics say of it.
        """
        watch, data, ranks = self.task.watch, self.task.data, self.task.ranks
        if watch is None:
            self._keep(None)
            return {}
        ranks.same_everywhere(self.networks)  # running means of batches differ between ranks
        encoder = self.networks["encoder"].eval()
        features = []
        for index in watch.nodes.to(self.device).split(self.task.config.test.batch):
            pixels = normalize(data.train[index], data).contiguous(memory_format=self.layout)
            with self._autocast():
                features.append(encoder(pixels).float())
        look = watch.look(torch.cat(features))
        # All ranks go by what the first one found: rounding must not make them disagree.
        found = ranks.total(error=look.error * ranks.is_first, loss=look.loss * ranks.is_first)
        look = dataclasses.replace(look, error=found["error"], loss=found["loss"])
        self._keep(look)
        self.last = look
        columns: dict[str, Any] = {"graph_error": look.error, "graph_loss": look.loss}
        return columns | ({"trouble": look.trouble} if look.trouble else {})

    def _last_error(self) -> str:
        return "" if self.last is None else f", graph error {self.last.error:.1%}"

    def _keep(self, look: Look | None) -> None:
        """Keep the present state if it is the best so far, or if the last is wanted."""
        better = look is None or look.better_than(self.best)
        self.worse = 0 if better else self.worse + 1
        self.best = look if better else self.best
        if better or self.task.config.warmup.keep == "last":
            self.kept = Candidate(self.gamma, self.epoch, self.epoch, look)
            self.kept_state = {k: v.detach().clone() for k, v in self.networks.state_dict().items()}

    def _save(self, *, done: bool) -> None:
        """The networks; while training, the optimizer and the kept state too."""
        tensors = dict(self.networks.state_dict())
        if not done:
            tensors |= {f"kept.{k}": v for k, v in self.kept_state.items()} | optimizer_tensors(self.optimizer)
            tensors |= {"total": self.total} if self.step else {}
        looks = {"best": _record(self.best), "last": _record(self.last)}
        state: dict[str, Any] = {"done": done}
        state |= {"epoch": self.epoch, "worse": self.worse, "kept": dataclasses.asdict(self.kept), **looks}
        state |= {"step": self.step, "seconds": self.seconds, "processes": self.task.ranks.world}
        try:
            self.task.run.save(self.name, tensors, state)
        except ValueError as error:  # the state of the optimizer: all else was looked at
            raise NonFiniteError(
                f"{error} (warm-up, epoch {self.epoch}); lower warmup.lr, or set warmup.clip=1"
            ) from None

    def _restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        own = {k: v for k, v in tensors.items() if k.startswith(("encoder.", "projection."))}
        load_state(self.networks, own, "encoder or its projection")
        self.epoch, self.worse = state["epoch"], state["worse"]
        self.best, self.last = (Look(**state[k]) if state[k] else None for k in ("best", "last"))
        self.kept = candidate_from(state["kept"])
        self.kept_state = {k[5:]: v.to(self.device) for k, v in tensors.items() if k.startswith("kept.")}
        load_optimizer(self.optimizer, tensors)
        self.step, self.seconds = state.get("step", 0), state.get("seconds", 0.0)
        if self.step:
            self.total = tensors["total"].to(self.device)


def candidate_from(record: dict[str, Any]) -> Candidate:
    """What `dataclasses.asdict` made of a candidate, back again."""
    return Candidate(**{**record, "look": Look(**record["look"]) if record["look"] else None})


def _record(look: Look | None) -> dict[str, Any] | None:
    return None if look is None else dataclasses.asdict(look)
