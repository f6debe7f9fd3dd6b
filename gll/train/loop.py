"""The training loop: what a config says, done.

    run = new_run(load_config(Path("configs/digits-gll.toml")))
    result = train(run)

One step (`Training.train_step`): base, labelled and unlabelled images go through the encoder together; the head
predicts the labelled ones from the base; their loss is differentiated. The base never enters the loss.

Everything random is derived from seed, epoch and step, never drawn from a running stream. So a checkpoint needs no
state of a generator, and a run that was killed goes on to the numbers it would have had.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from gll.data.datasets import normalize
from gll.data.random import derived_seed, own_random_state
from gll.data.sampling import Batch, GraphBatches
from gll.nn.heads import WNLLHead
from gll.train.adversarial import Adversary
from gll.train.ahead import Ahead
from gll.train.distributed import GRAPHS, Nodes, Ranks
from gll.train.evaluate import at_work, evaluate, name_of, predictions, remarks, rows, to_come
from gll.train.finite import NonFiniteError, Notes
from gll.train.interrupt import Interrupt
from gll.train.model import CHECKPOINT, build_run, features, find_device, is_compiled, keep_projection
from gll.train.optimize import (
    learning_rate,
    load_optimizer,
    make_optimizer,
    optimizer_tensors,
    set_learning_rate,
    training_of_epoch,
)
from gll.train.pretrain import load_warm_up, warm_up
from gll.train.progress import Reporter, Update, clock
from gll.train.runs import Run, same_processes
from gll.train.start import check_same_start, make_augmentation, make_batches, new_run, step_in_words

__all__ = ["Training", "new_run", "train"]

SUMS = {"loss": 0.0, "wrong": 0.0, "labelled": 0.0, "images": 0.0, "seconds": 0.0}


def train(
    run: Run, *, ranks: Ranks | None = None, reporter: Reporter | None = None, encoder: nn.Module | str | None = None
) -> dict[str, Any]:
    """Train as `run.config` says, or go on where the run stopped. Returns what is in `result.json`.

    Args:
        run: the run directory. A finished one is not touched.
        ranks: the processes that train together; by default this one alone.
        reporter: who tells how far it is; by default nobody.
        encoder: the module that was given to `new_run`, if one was. A copy is trained, from the weights it has; what
            comes out is in the run (`gll.train.model.restore`). Or the name of an own encoder, as for `restore`.

    Raises:
        NonFiniteError: a loss, gradient or parameter is not finite. The last good checkpoint stays.
        RunError: the training data has changed since the run was made, or it was begun by another number of processes.
        KeyboardInterrupt: after Ctrl-C or SIGTERM. During steps a checkpoint is written first.
    """
    done = run.result()
    if done is not None:
        return done
    with run.working(), own_random_state():
        ranks = ranks or Ranks(device=find_device(run.config.device))
        training = Training(run, ranks, reporter or Reporter(), encoder)
        try:
            return training.run_all()
        except NonFiniteError as error:
            run.log(phase="stopped", epoch=training.epoch + 1, reason=str(error))
            raise


@final
class Training:
    """A run at work: what was loaded and built, and how far it is.

    `epoch` and `step` say what comes next. `sums` are those of the epoch so far.
    """

    def __init__(self, run: Run, ranks: Ranks, reporter: Reporter, encoder: nn.Module | str | None = None) -> None:
        config = run.config
        self.run, self.config, self.ranks, self.reporter = run, config, ranks, reporter
        self.model, self.data = build_run(run, ranks.device, processes=ranks.world, encoder=encoder)
        self.labels = run.split.hidden(self.data.train_labels)  # -1 where training must not look
        self.ahead = Ahead(self.data, make_augmentation(config, self.data), config.seed, ranks.rank)
        self.graphs = GRAPHS[config.train.graph]
        self.adversary = Adversary(config, self.data, self.model, ranks)
        self.trainable = self.model.parameters()
        self.optimizer = make_optimizer(config.train, self.trainable) if self.trainable else None
        self.notes = Notes(ranks.device, extra=("wrong", "labelled"))
        self.batches: dict[bool, GraphBatches] = {}  # with a base or without, as the head wants in an epoch
        self.epoch, self.step = 0, 0
        self.trusting = False  # that graphs are solved, before a GPU has said so
        self.sums, self.base = dict(SUMS), torch.empty(0, dtype=torch.int64)
        self.totals = {"images": 0.0, "seconds": 0.0}
        self.tests: list[Mapping[str, Any]] = []
        self.warmed: dict[str, Any] | None = None

    def run_all(self) -> dict[str, Any]:
        """Warm-up, epochs, tests, checkpoints, result."""
        train, test = self.config.train, self.config.test
        epochs = train.epochs if self.optimizer is not None else 0  # nearest neighbours learn nothing
        if not self.resume():
            self.warm_up()
            if self.warmed is not None and test.every > 0 and epochs > 0:
                self.test()  # what the warm-up alone has reached
        self.start()
        with self.reporter.task("epoch", epochs, self.epoch) as update:
            while self.epoch < epochs:
                stop = self.train_epoch(update)
                last = self.epoch == epochs
                if last or (test.every > 0 and self.epoch % test.every == 0):
                    self.test()
                if last or stop or self.epoch % train.save_every == 0:
                    self.save()
                if stop and not last:
                    raise KeyboardInterrupt
        self.model.head.release()
        if epochs == 0 and not self.tests:
            self.test()
            self.save()
        result = self.result()
        self.run.finish(result)
        return result

    def start(self) -> None:
        """Wrap and compile the encoder, after its weights have come from a warm-up or a checkpoint."""
        self.ranks.same_everywhere(self.model.encoder)
        self.ranks.same_everywhere(self.model.head)
        self.encoder = self.model.encoder
        if self.model.trains_encoder:
            freezes = any(isinstance(module, WNLLHead) for module in self.model.head.modules())
            self.encoder = self.ranks.wrap(self.encoder, unused=freezes)
        if self.config.train.compile:
            self.encoder = torch.compile(self.encoder)  # type: ignore[assignment]

    def warm_up(self) -> None:
        """Contrastive training of the encoder, or that of another run."""
        config, encoder = self.config, self.model.encoder
        if config.warmup.from_run:
            source = Run.open(Path(config.warmup.from_run))
            check_same_start(config, self.run.split, self.run.fingerprint, source)
            found = load_warm_up(source, encoder)
        elif config.warmup.epochs > 0:
            found = warm_up(
                encoder, self.data, self.run.split, config, self.run, reporter=self.reporter, ranks=self.ranks
            )
        else:
            return
        if config.warmup.keep_projection:
            keep_projection(self.model.head, found.projection)
        look = found.kept.look
        self.warmed = {"gamma": found.kept.gamma, "epoch": found.kept.epoch, "graph_error": look and look.error}

    def train_epoch(self, update: Update) -> bool:
        """All steps of an epoch that are still to be done, and its line in the metrics. True: asked to stop."""
        config, head, epoch = self.config, self.model.head, self.epoch
        head.start_epoch(epoch, self.model.encoder)
        batches = self.batches_for(head.uses_base)
        if self.step == 0:
            self.base = self.choose_base(batches)
        else:  # the steps of an earlier stretch
            update.go_on(epoch + self.step / len(batches))
        self.model.train()
        # A second backward pass, where the first was in vain, is possible neither when processes average gradients
        # during the first, nor when compiled code has reused its memory.
        self.trusting = self.ranks.world == 1 and not is_compiled(self.encoder)
        begun, training = time.perf_counter(), training_of_epoch(config, epoch)
        with Interrupt() as interrupt:
            every = batches.epoch(epoch, base=self.base if head.uses_base else None)
            for step, batch in self.ahead.steps(every, epoch, self.step):
                lr = learning_rate(training, epoch * len(batches) + step, len(batches))
                self.notes.begin(step, lr)
                try:
                    self.train_step(batch, step, lr)
                except Exception:
                    self.notes.read(epoch + 1)  # if the reason is a number that is not finite, this says so
                    raise
                self.step = step + 1
                self.sums["images"] += len(batch)
                look = self.notes.full or self.step == len(batches)
                stop = interrupt.asked and self.ranks.world == 1
                if self.step == len(batches):
                    self.notes.end(self.step, lr, self.model.numbers())
                if look or stop:
                    self.read_notes()
                    begun, seconds = time.perf_counter(), time.perf_counter() - begun
                    self.sums["seconds"] += seconds
                    update(epoch + self.step / len(batches), self.figures())
                    stop = self.ranks.any(interrupt.asked)
                if stop and self.step < len(batches):
                    self.save()
                    raise KeyboardInterrupt
        self.log_epoch(lr)
        self.epoch, self.step, self.sums = epoch + 1, 0, dict(SUMS)
        return stop

    def train_step(self, batch: Batch, step: int, lr: float) -> None:
        """One step.

        Nothing here waits for the device but the head: a graph is looked at once, to see whether it was solved; mlp,
        linear and probe never. Processes that gather features (train.graph) also wait for each other.
        """
        config, head, rank, device = self.config, self.model.head, self.ranks.rank, self.ranks.device
        assert self.optimizer is not None
        set_learning_rate(self.optimizer, lr)
        torch.manual_seed(derived_seed(config.seed, "step", self.epoch, step, rank))  # dropout
        self.notes.note("parameters", self.trainable)

        # Images of base, labelled and unlabelled samples, in this order.
        index = batch.nodes.to(device, non_blocking=True)
        images, y = self.ahead.images(index, self.epoch, step), self.labels[index]
        x = normalize(images, self.data)
        self.notes.note("inputs", x)
        x = self.adversary.attack(x, y, batch.sizes, self.epoch, step, self.notes)  # as it is, if ε = 0

        self.optimizer.zero_grad(set_to_none=True)  # here and not later, while a GPU is busy anyway
        with torch.set_grad_enabled(head.trains_encoder):
            z = self.features(x, batch.sizes[0])
        self.notes.note("features", z)
        (z_base, z_labelled, z_other), (y_base, target, _) = z.split(batch.sizes), y.split(batch.sizes)
        nodes = self.graphs.nodes(self.ranks, z_base, y_base, z_labelled, target, z_other)
        sound = self.differentiate(nodes, attempt=self.trusting)
        if sound is not None and not sound():  # the GPU has found an unusual graph: once more, with all care
            self.trusting = False
            self.notes.forget("logits", "loss", "wrong")  # else an error of the second try would be taken for these
            self.optimizer.zero_grad(set_to_none=True)
            self.differentiate(nodes, attempt=False)
        self.ranks.average_gradients(at_work(head))  # the other head of a switch has no gradients, and must get none
        learned = z_labelled.detach()
        del nodes, sound, z, z_base, z_labelled, z_other  # and with them all that the forward pass has kept
        gradients = [p.grad for p in self.trainable if p.grad is not None]
        self.notes.note("gradient", gradients)
        if config.train.clip > 0:
            torch.nn.utils.clip_grad_norm_(self.trainable, config.train.clip)
        self.optimizer.step()
        self.adversary.learn(learned, target)

    def features(self, x: Tensor, num_base: int) -> Tensor:
        """Of base and other samples, together or each by themselves."""
        if not (self.config.base.apart and 0 < num_base < len(x)):
            return features(self.encoder, x, self.config)
        return torch.cat([features(self.encoder, part, self.config) for part in (x[:num_base], x[num_base:])])

    def differentiate(self, nodes: Nodes, *, attempt: bool) -> Callable[[], bool] | None:
        """Loss and gradients. If it is only an attempt: what to ask later, while the GPU is at the backward pass."""
        head, sound = self.model.head, None
        arguments = (nodes.queries, nodes.base, nodes.base_labels) if head.uses_base else (nodes.queries,)
        if attempt:
            logits, sound = head.attempt(*arguments)
        else:
            logits = head(*arguments)
        logits = logits[: nodes.num_labelled]
        self.notes.note("logits", logits)
        loss = head.loss(logits, nodes.target)
        self.notes.note("loss", loss)
        self.notes.note("wrong", logits.argmax(1) != nodes.target)
        self.notes.note("labelled", torch.ones_like(nodes.target))
        loss.backward(retain_graph=sound is not None)
        return sound

    def batches_for(self, uses_base: bool) -> GraphBatches:
        """The batches of a head with a base, or of one without."""
        if uses_base not in self.batches:
            made = make_batches(self.config, self.labels, self.run.split, self.ranks, uses_base)
            self.batches[uses_base] = made
            self.reporter.say(step_in_words(self.config, made, self.data.num_classes))
        return self.batches[uses_base]

    def choose_base(self, batches: GraphBatches) -> Tensor:
        """The base of this epoch. By uncertainty: what the encoder now says about samples outside the base before."""
        scores = None
        if self.model.head.uses_base and batches.base_set.needs_predictions and len(self.base):
            scores = predictions(self.model, self.data, self.run.split, self.config, self.base)
        base = batches.base_of(self.epoch, scores)
        return self.ranks.gather(base.to(self.ranks.device)).cpu()[: len(base)]  # that of the first rank

    def read_notes(self) -> None:
        """Add the steps since the last reading to the sums of the epoch."""
        found: NonFiniteError | None = None
        try:
            for row in self.notes.read(self.epoch + 1):
                self.sums["loss"] += row["loss"] * row["labelled"]
                self.sums["wrong"] += row["wrong"]
                self.sums["labelled"] += row["labelled"]
        except NonFiniteError as error:
            found = error
        if self.ranks.any(found is not None):
            raise found or NonFiniteError("another process has met a number that is not finite: see what it says")

    def figures(self) -> str:
        """Loss, error and throughput of the epoch so far, to read."""
        s = self.sums
        count, seconds = max(s["labelled"], 1), max(s["seconds"], 1e-9)
        error = "error under attack" if self.adversary.is_active else "error"
        return f"loss {s['loss'] / count:.4f}, {error} {s['wrong'] / count:.2%}, {s['images'] / seconds:,.0f} images/s"

    def log_epoch(self, lr: float) -> None:
        s = self.ranks.total(**self.sums)
        s["seconds"] = self.sums["seconds"]
        self.totals = {key: self.totals[key] + s[key] for key in self.totals}
        self.run.log(
            phase="train",
            epoch=self.epoch + 1,
            step=self.step,
            head=name_of(self.model.head, self.config),
            loss=s["loss"] / s["labelled"],
            error=s["wrong"] / s["labelled"],
            lr=lr,
            seconds=round(s["seconds"], 4),
            images_per_second=round(s["images"] / max(s["seconds"], 1e-9), 1),
        )

    def test(self) -> None:
        """Test, on the first process; the others wait."""
        if self.ranks.is_first:
            for line in [] if self.tests else remarks(self.config, self.data):
                self.reporter.say(line)
            if coming := to_come(self.model, self.data, self.config):
                self.reporter.say(f"epoch {self.epoch}: {coming}")
            begun = time.perf_counter()
            self.tests = rows(evaluate(self.model, self.data, self.run.split, self.config))
            took = clock(time.perf_counter() - begun)
            for row in self.tests:
                self.run.log(phase="test", epoch=self.epoch, **row)
            shown = ", ".join(f"{row['head']} {row['mode']} {row['error']:.2%}" for row in self.tests)
            shown = f"{shown} ({took})" if shown else "– (no test samples)"
            self.reporter.say(f"epoch {self.epoch}: test error {shown}")
        self.ranks.barrier()

    def save(self) -> None:
        """Write a checkpoint from which `resume` goes on exactly."""
        tensors = {**self.model.tensors(), **self.adversary.tensors(), "base": self.base}
        if self.optimizer is not None and self.epoch < self.config.train.epochs:  # nothing trains on from the last one
            tensors |= optimizer_tensors(self.optimizer)
        state = {
            "processes": self.ranks.world,
            "epoch": self.epoch,
            "step": self.step,
            "sums": {**self.ranks.total(**self.sums), "seconds": self.sums["seconds"]},
            "totals": self.totals,
            "tests": list(self.tests),
            "warmed": self.warmed,
        }
        try:
            self.run.save(CHECKPOINT, tensors, state)
        except ValueError as error:
            raise NonFiniteError(
                f"{error} (epoch {self.epoch}); lower the learning rate (train.lr), or set train.clip=1"
            ) from None
        self.ranks.barrier()

    def resume(self) -> bool:
        """Go on from the checkpoint, if there is one."""
        stored = self.run.load(CHECKPOINT)
        if stored is None:
            return False
        tensors, state = stored
        same_processes(self.run, state, self.ranks)
        self.model.load(tensors)
        self.adversary.load(tensors)
        self.base = tensors["base"]
        if self.optimizer is not None:
            load_optimizer(self.optimizer, tensors)
        self.epoch, self.step, self.sums = state["epoch"], state["step"], state["sums"]
        self.totals, self.tests, self.warmed = state["totals"], state["tests"], state["warmed"]
        self.reporter.say(f"going on after epoch {self.epoch}{f', step {self.step}' if self.step else ''}")
        if not self.ranks.is_first:
            self.sums = {**SUMS, "seconds": self.sums["seconds"]}  # the others stored are those of all ranks
        return True

    def result(self) -> dict[str, Any]:
        """What is written to `result.json`. The error is that of the last test, never the best of several."""
        config, seconds = self.config, self.totals["seconds"]
        return {
            "name": config.name,
            "seed": config.seed,
            "head": config.model.head,
            "epochs": self.epoch,
            "error": self.tests[0]["error"] if self.tests else None,
            "tests": list(self.tests),
            "warmup": self.warmed,
            "seconds": round(seconds, 3),
            "images_per_second": round(self.totals["images"] / seconds, 1) if seconds > 0 else None,
            "parameters": {k: sum(p.numel() for p in m.parameters()) for k, m in self.model.parts.items()},
        }
