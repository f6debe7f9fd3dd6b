"""What to label next: how much a label would help at every node, and which nodes to ask for together.

Two small objects answer. An *acquisition function* gives every node a score (`acquisition.py` has a table of them); a
*selection* turns scores into a batch (`batch_selection.py`). `choose` puts the two together. Both have names here, by
which they are asked for and stored.

The same functions choose base sets for training: score the labelled samples, select among them (`candidates=`).

Read next: `loop.py`, which keeps asking.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gll.acquisition import (
    AbstractAcquisition,
    AbstractFieldAcquisition,
    Entropy,
    Margin,
    ModelChange,
    NormScore,
    Random,
    SigmaOpt,
    SmallestNorm,
    VOpt,
)
from gll.batch_selection import AbstractSelection, LocalMax, Proportional, TopK
from gll.field import GaussianField
from gll.graph import Normalization
from gll.names import from_name, require_name
from gll.situation import Situation

__all__ = [
    "ACQUISITIONS",
    "SELECTIONS",
    "AbstractAcquisition",
    "AbstractFieldAcquisition",
    "AbstractSelection",
    "Choice",
    "Entropy",
    "FewerThanAskedWarning",
    "GaussianField",
    "LocalMax",
    "Margin",
    "ModelChange",
    "NormScore",
    "Proportional",
    "Random",
    "SigmaOpt",
    "Situation",
    "SmallestNorm",
    "TopK",
    "VOpt",
    "acquisition_from_name",
    "as_config",
    "choose",
    "selection_from_name",
]

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class FewerThanAskedWarning(UserWarning):
    """Fewer nodes are left, or stand out, than were asked for."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The nodes to label next.

    Args:
        index: (b,) the nodes, the most wanted first.
        score: (b,) the score of each when it was picked.

    Differentiable in: nothing.
    """

    index: Int[Tensor, " b"]
    score: Float[Tensor, " b"]


def choose(
    acquisition: AbstractAcquisition,
    situation: Situation,
    count: int,
    *,
    selection: AbstractSelection | None = None,
    candidates: Tensor | Sequence[int] | np.ndarray | None = None,
) -> Choice:
    """Choose the nodes to label next.

    With `TopK` and `Proportional`, a function of a Gaussian field is updated after each pick of the batch, as if its
    label had come: that spreads the batch by itself. `LocalMax` takes the whole batch from one set of scores.

    Args:
        acquisition: what a label is worth.
        situation: what is known.
        count: how many nodes.
        selection: how to make a batch; by default `TopK()` for functions of a Gaussian field, `LocalMax()` for others.
        candidates: (c,) choose among these nodes only, by default all; a tensor, an array or a sequence. Labelled nodes
            and those asked for already are never chosen.

    Returns:
        A `Choice`. Where fewer nodes are left than `count`, all of them, with a `FewerThanAskedWarning`.

    Raises:
        ValueError: `count` < 1, no candidate is left, or a score is not finite.

    Differentiable in: nothing.

    >>> from gll import Graph
    >>> path = Graph.from_sparse(torch.tensor([[0., 1., 0.], [1., 0., 1.], [0., 1., 0.]]))
    >>> choose(VOpt(), Situation(path), 1).index.tolist()
    [1]
    """
    if selection is None:
        selection = TopK() if isinstance(acquisition, AbstractFieldAcquisition) else LocalMax()
    for given, wanted, example in (
        (acquisition, AbstractAcquisition, "Entropy()"),
        (selection, AbstractSelection, "LocalMax()"),
    ):
        if not isinstance(given, wanted):
            raise TypeError(f"expected an object such as gll.active.{example}, got {given!r}")
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count}")
    open_ = _open(situation, candidates)
    left = int(open_.sum())
    if left == 0:
        raise ValueError("no candidate is left: every one is labelled or asked for already")
    wanted_ = min(count, left)
    generator = situation.generator()
    rivals = open_.index_fill(0, situation.asked, True)
    if isinstance(acquisition, AbstractFieldAcquisition) and selection.stepwise:
        covariance, picks, scores = situation.posterior(acquisition.gaussian), [], []
        for _ in range(wanted_):
            score = _checked(acquisition.score_given(situation, covariance), acquisition, open_)
            pick = selection.select(score, situation.graph, open_, rivals, 1, generator)
            picks.append(pick)
            scores.append(score[pick])
            open_ = open_.index_fill(0, pick, False)
            covariance = covariance.given(pick)
        choice = Choice(torch.cat(picks), torch.cat(scores))
    else:
        score = _checked(acquisition.score(situation), acquisition, open_)
        index = selection.select(score, situation.graph, open_, rivals, wanted_, generator)
        choice = Choice(index, score[index])
    if len(choice.index) < count:
        why = f"only {left} are left" if left < count else "only so many stand out from their neighbours"
        warnings.warn(
            f"{count} nodes were asked for, {len(choice.index)} chosen: {why}", FewerThanAskedWarning, stacklevel=2
        )
    return choice


def _open(situation: Situation, candidates: Tensor | Sequence[int] | np.ndarray | None) -> Tensor:
    """(n,) which nodes may be chosen."""
    n, device = situation.graph.num_nodes, situation.graph.weight.device
    mask = torch.ones(n, dtype=torch.bool, device=device)
    if candidates is not None:
        given = candidates if isinstance(candidates, Tensor) else np.asarray(candidates)
        whole = given.dtype.kind in "iu" if isinstance(given, np.ndarray) else given.dtype in INTEGERS
        if len(given.shape) != 1 or (not whole and given.shape[0] > 0):
            raise ValueError(
                "candidates must be whole numbers in one dimension, the nodes to choose among (for a mask, where it is "
                f"true), got {given.dtype} of shape {tuple(given.shape)}"
            )
        nodes = torch.from_numpy(given.astype(np.int64)) if isinstance(given, np.ndarray) else given.detach().long()
        if nodes.numel() and (int(nodes.min()) < 0 or int(nodes.max()) >= n):
            raise ValueError(f"candidates must lie in 0 .. {n - 1}")
        mask = torch.zeros_like(mask).index_fill(0, nodes.to(device), True)
    return mask.index_fill(0, torch.cat([situation.labelled, situation.asked]), False)


def _checked(score: Tensor, acquisition: AbstractAcquisition, open_: Tensor) -> Tensor:
    if score.shape != open_.shape:
        raise ValueError(f"{acquisition!r} gave scores of shape {tuple(score.shape)} for {len(open_)} nodes")
    bad = int((~torch.isfinite(score[open_])).sum())
    if bad:
        raise ValueError(f"{acquisition!r} gave {bad} scores that are not finite")
    return score


ACQUISITIONS: dict[str, type[AbstractAcquisition]] = {
    "entropy": Entropy,
    "norm": NormScore,
    "margin": Margin,
    "smallest-norm": SmallestNorm,
    "vopt": VOpt,
    "sigma-opt": SigmaOpt,
    "model-change": ModelChange,
    "random": Random,
}
SELECTIONS: dict[str, type[AbstractSelection]] = {"local-max": LocalMax, "top-k": TopK, "proportional": Proportional}


def acquisition_from_name(name: str, **options: Any) -> AbstractAcquisition:
    """The acquisition function of that name; options of a Gaussian field (`tau`, `noise`, `rank`) may be given flat.

    >>> acquisition_from_name("vopt", rank=50).gaussian.rank
    50
    """
    what = "acquisition function"
    require_name(what, name, ACQUISITIONS)
    kind: Any = ACQUISITIONS[name]
    if not issubclass(kind, AbstractFieldAcquisition):
        return from_name(what, ACQUISITIONS, name, options)
    if "normalization" in options:
        options["normalization"] = Normalization(options["normalization"])
    return kind(from_name(what, {name: GaussianField}, name, options))


def selection_from_name(name: str, **options: Any) -> AbstractSelection:
    """The selection of that name.

    >>> selection_from_name("proportional", gamma=2.0)
    Proportional(gamma=2.0)
    """
    return from_name("selection", SELECTIONS, name, options)


def as_config(thing: AbstractAcquisition | AbstractSelection) -> dict[str, Any]:
    """The name and options from which an object of this file is made again, as plain JSON values.

    >>> as_config(SmallestNorm(tau=0.1))
    {'name': 'smallest-norm', 'options': {'tau': 0.1, 'reweighted': False}}
    """
    table: dict[str, Any] = {**ACQUISITIONS, **SELECTIONS}
    names = [name for name, kind in table.items() if kind is type(thing)]
    if not names:
        return {"name": None, "repr": repr(thing)}  # a user's own: has to be handed in again on loading
    holder: Any = thing.gaussian if isinstance(thing, AbstractFieldAcquisition) else thing
    options = {entry.name: getattr(holder, entry.name) for entry in dataclasses.fields(holder)}
    if "normalization" in options:
        options["normalization"] = options["normalization"].value
    return {"name": names[0], "options": options}
