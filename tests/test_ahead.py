"""Images of several training steps that are made together are those of each step alone."""

from __future__ import annotations

import pytest
import torch

from gll.data import load
from gll.data.augment import AUGMENTATIONS, augmentation_from_name
from gll.data.random import generator
from gll.data.sampling import Batch
from gll.train.ahead import Ahead
from gll.train.config import from_toml
from gll.train.loop import new_run, train


@pytest.mark.parametrize("name", sorted(AUGMENTATIONS))
def test_together_is_each_alone(name, device):
    augment = augmentation_from_name(name)
    chance = torch.Generator().manual_seed(0)
    channels = 1 if "grey" in name else 3
    parts = [
        torch.randint(256, (n, channels, 16, 16), dtype=torch.uint8, generator=chance).to(device) for n in (5, 1, 9)
    ]
    together = augment.together(parts, [generator(0, step) for step in range(3)])
    for step, (part, made) in enumerate(zip(parts, together, strict=True)):
        assert torch.equal(made, augment(part, generator(0, step)))
        assert name == "none" or not torch.equal(made, part)


def batches(count: int) -> list[Batch]:
    none = torch.empty(0, dtype=torch.int64)
    return [Batch(none, torch.arange(10 * i, 10 * i + 10), none) for i in range(count)]


@pytest.mark.parametrize("together", [0, 25, 1000])
@pytest.mark.parametrize("done", [0, 3])
def test_images_do_not_depend_on_what_is_made_with_them(together, done):
    data = load("digits")
    augment = augmentation_from_name("grey")
    ahead = Ahead(data, augment, 7, 0, together=together)
    seen = []
    for step, batch in ahead.steps(batches(6), 2, done):
        expected = augment(data.train[batch.nodes], generator(7, "augment", 2, step, 0))
        kept = len(ahead.ready)
        assert torch.equal(ahead.images(batch.nodes, 2, step), expected)
        seen.append((step, kept))
    at_once = {0: [0] * 6, 25: [2, 1] * 3, 1000: [6, 5, 4, 3, 2, 1]}[together]
    if done and together == 25:
        at_once = [2, 1, 0]  # the third step is the last one, and alone
    elif done:
        at_once = at_once[3:]
    assert seen == list(zip(range(done, 6), at_once, strict=True))
    assert not ahead.ready


def test_what_an_epoch_left_is_not_taken_by_the_next():
    data = load("digits")
    ahead = Ahead(data, augmentation_from_name("grey"), 7, 0, together=1000)
    next(iter(ahead.steps(batches(3), 0, 0)))
    list(ahead.steps(batches(3), 1, 0))
    assert {epoch for epoch, _ in ahead.ready} == {1}


def test_training_does_not_depend_on_it(tmp_path, monkeypatch):
    text = 'name = "a"\n[data]\nname = "digits"\nlabels = "10 each"\naugment = "grey"\n[model]\nencoder = "digits-cnn"'
    more = ["base.size=20", "train.epochs=2", "train.steps=3", "train.batch=30", "train.labelled=20", "test.every=0"]
    found = {}
    for together in (0, 100):
        monkeypatch.setattr("gll.train.loop.Ahead", lambda *a, n=together: Ahead(*a, together=n))
        run = new_run(from_toml(text, [*more, f"out={tmp_path / str(together)}", "device=cpu"]))
        train(run)
        found[together] = (run.directory / "metrics.jsonl").read_text()
    without_times = [[line.split('"seconds"')[0] for line in text.splitlines()] for text in found.values()]
    assert without_times[0] == without_times[1]
