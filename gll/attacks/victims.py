"""Trained runs as victims: modules from images in 0 .. 1 to logits, with everything else inside.

    victim = victim_of("runs/mnist-gll", base=1000)
    attack(victim, images, labels)

Read next: `graph_victim.py`, for an encoder and a layer of your own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from gll.attacks.graph_victim import SMALL_FLOOR, GraphVictim
from gll.attacks.layers import changed, parts_of
from gll.attacks.pixels import Normalized
from gll.attacks.probe import linear_probe
from gll.attacks.threat import Inference, Queries, ThreatModel
from gll.data.base_sets import stratified
from gll.data.random import generator
from gll.equations import Laplace
from gll.names import require_name
from gll.nn.heads import GLLHead, MLPHead, ProbeHead, WNLLHead
from gll.nn.layer import GraphLearningLayer
from gll.reweight import wnll

if TYPE_CHECKING:
    from gll.train.runs import Run

__all__ = ["SMALL_FLOOR", "GraphVictim", "Normalized", "linear_probe", "victim_of"]

HEADS_AT_TEST = {"gll": None, "wnll": wnll}
"""Graph heads that can take the place of the one a run was trained with, by their reweighting."""


def victim_of(
    run: Run | Path | str,
    *,
    base: int = 1000,
    queries: Queries = Queries.JOINT,
    inference: Inference = Inference.TRANSDUCTIVE,
    head_at_test: str | None = None,
    exact_gradient: bool = False,
    k: int | None = None,
    tau: float | None = None,
    floor: float | None = None,
    dtype: torch.dtype | None = None,
    fast: bool = False,
    seed: int = 0,
    device: torch.device | str = "cpu",
    encoder: nn.Module | str | None = None,
) -> nn.Module:
    """A trained run as a victim.

    Args:
        run: a finished one, or its directory.
        base: labelled training samples that a graph head answers from, drawn class by class; heads without a graph
            need none.
        queries, inference: what is in the graph beside them.
        head_at_test: "gll" or "wnll": a graph head in place of the last layer that the run was trained with (the
            paper's appendix B.2).
        exact_gradient: of a WNLL head: differentiate through its graph. By default its gradient is the one it was
            trained with, that of its last linear layer.
        k, tau: of the graph; None: as in training (25 and 0 for a head that had none).
        floor, dtype, fast: as in `GraphVictim`.
        seed: of the base.
        device: where to compute.
        encoder: as in `gll.train.model.restore`: for a run whose encoder is a module, or code of your own.

    Returns:
        `Normalized` for heads without a graph, otherwise a `GraphVictim`. Its encoder computes in float32, whatever
        the run was trained in.

    Raises:
        ValueError: a head that cannot be attacked, or a base that cannot be drawn.
        RunError: the run has not finished, or its data has changed; there is no run in the directory.
        TypeError: neither a run nor a directory.

    Differentiable in: nothing; the victim is, in its images.
    """
    from gll.train.evaluate import at_work  # training may use attacks: the two do not import each other at the start
    from gll.train.model import restore
    from gll.train.runs import Run

    if isinstance(run, str | Path):
        run = Run.open(Path(run), writes=False)
    if not isinstance(run, Run):
        raise TypeError(f"victim_of takes a run, as Run.open(path) gives it, or its path; got {type(run).__name__}")
    if head_at_test is not None:
        require_name("head at test", head_at_test, HEADS_AT_TEST)
    model, data = restore(run, device, encoder=encoder)
    head = at_work(model.head)
    mean, std = (data.mean, data.std) if data.is_image else (None, None)
    if head_at_test is None and not isinstance(head, GLLHead | WNLLHead):
        if not isinstance(head, MLPHead | ProbeHead):
            raise ValueError(
                f"a {type(head).__name__} has no gradient to attack it with; give head_at_test: "
                f"{' or '.join(HEADS_AT_TEST)}"
            )
        return Normalized(nn.Sequential(model.encoder, head.layers), mean, std).eval()
    surrogate = head.last if isinstance(head, WNLLHead) and head_at_test is None and not exact_gradient else None
    if isinstance(head, GLLHead | WNLLHead):
        body, layer = parts_of(head)
    else:  # the graph takes the place of the last linear layer, so it sees what that saw
        body = head.layers[:-1] if isinstance(head, MLPHead) else None
        layer = GraphLearningLayer(data.num_classes)
    if head_at_test is not None:
        layer = changed(layer, reweight=HEADS_AT_TEST[head_at_test])
    layer = layer if k is None else changed(layer, k=k)
    layer = layer if tau is None else changed(layer, equation=Laplace(tau=tau))
    known = run.split.labelled
    classes = data.train_labels[known.to(data.train_labels.device)].cpu()
    chosen = stratified(classes, base, generator(seed, "base under attack"), equal=True)
    images = data.train[known[chosen].to(data.train.device)]
    return GraphVictim(
        model.encoder if body is None else nn.Sequential(model.encoder, body),
        layer,
        images.float() / 255 if data.is_image else images,
        classes[chosen].to(data.train.device),
        mean=mean,
        std=std,
        threat=ThreatModel(
            f"{base:,} of {len(known):,} labelled training samples of {data.name}, drawn class by class, seed {seed}",
            queries=queries,
            inference=inference,
        ),
        floor=floor,
        dtype=dtype,
        fast=fast,
        surrogate=surrogate,
    )
