"""What an attack says of its parts (AutoAttack): kept with its cell, joined over chunks, and shown in the report."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import pytest
import torch
from torch import Tensor, nn

from gll.attacks.base import AbstractAttack, note
from gll.attacks.evaluate import evaluate
from gll.attacks.norms import AbstractNorm, LInf
from gll.attacks.parts import parts_grid, parts_left_out
from gll.attacks.store import Store
from tests.attack_stubs import blobs, honest_mlp


@final
@dataclass(frozen=True)
class TwoParts(AbstractAttack):
    """A random step of half the radius, then one of all of it; notes the share of images that are wrong after each."""

    eps: float = 0.4
    norm: AbstractNorm = field(default_factory=LInf)

    def perturb(self, model: nn.Module, images: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        errors, kept = {}, images
        for part, share in (("first", 0.5), ("second", 1.0)):
            moved = images + self.norm.random(images, share * self.eps, generator)
            better = (model(moved).argmax(1) != labels) & (model(kept).argmax(1) == labels)
            kept = torch.where(better[:, None, None, None], moved, kept)
            errors[part] = float((model(kept).argmax(1) != labels).double().mean())
        note(model, "parts", errors)
        note(model, "left_out", {"third": "it needs a moon"})
        return kept


def test_parts_are_kept_with_the_cell_and_joined(tmp_path: Path) -> None:
    x, y = blobs(11)
    store = Store.open(tmp_path / "a", {}, resume=False)
    (outcome,) = evaluate(honest_mlp(), x, y, [TwoParts()], chunk=4, store=store, seed=3).outcomes
    assert [len(chunk.success) for chunk in outcome.chunks] == [4, 4, 3]  # the mean is over samples, not over chunks
    parts = outcome.parts()
    assert list(parts) == ["first", "second"]
    assert 0 < parts["first"] < parts["second"] == pytest.approx(outcome.error, abs=1e-12)
    assert outcome.left_out() == {"third": "it needs a moon"}
    # From the file, the same.
    (again,) = evaluate(honest_mlp(), x, y, [TwoParts()], chunk=4, store=Store(tmp_path / "a"), seed=3).outcomes
    assert again.as_dict(y.numpy()) == outcome.as_dict(y.numpy())
    (file,) = (tmp_path / "a" / "cells").glob("*.json")
    record = json.loads(file.read_text())
    assert [set(chunk["notes"]["parts"]) for chunk in record["chunks"]] == [{"first", "second"}] * 3
    # In the report.
    summary = {"groups": [{"attacks": [json.loads(json.dumps(outcome.as_dict(y.numpy())))]}]}
    first, second = (f"{100 * error:.2f}" for error in parts.values())
    assert f"| twoparts, eps 0.4 | {first} | {second} |" in parts_grid(summary).markdown()
    assert parts_left_out(summary) == ["twoparts was made without its part third: it needs a moon"]
    # Of a file in which not all chunks have notes, no mean is made up.
    del record["chunks"][1]["notes"]
    file.write_text(json.dumps(record))
    (partly,) = evaluate(honest_mlp(), x, y, [TwoParts()], chunk=4, store=Store(tmp_path / "a"), seed=3).outcomes
    assert partly.parts() == {}
    assert "parts" not in partly.as_dict(y.numpy())
    assert partly.error == outcome.error
