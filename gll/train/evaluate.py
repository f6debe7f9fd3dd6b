"""The test: how many of the test samples are classified wrongly.

The *transductive* test builds one graph of all training and test features and solves it once; the *inductive* one
classifies every test sample on its own. Heads without a graph know only the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from gll.data.datasets import TrainTest
from gll.data.sampling import Predictions
from gll.data.splits import LabelSplit
from gll.nn.heads import AbstractHead, GLLHead, MLPHead, ProbeHead, Switch, WNLLHead
from gll.train.config import Config, TestConfig
from gll.train.finite import NonFiniteError
from gll.train.model import GRAPH_HEADS, Model, encode, find_device, free_heads

LARGE = 10_000  # samples in the graph of a test that takes seconds rather than less than one


@final
@dataclass(frozen=True)
class Score:
    """One line of a test.

    Args:
        head: its name.
        mode: "transductive" or "inductive".
        error: share of test samples that are classified wrongly.
        loss: mean of -log p of the true class.
        by_class: the error among the test samples of every class; NaN where there are none.
    """

    head: str
    mode: str
    error: float
    loss: float
    by_class: tuple[float, ...] = ()


def at_work(head: AbstractHead) -> AbstractHead:
    """The head itself, or the one that a switch is at."""
    return head.active if isinstance(head, Switch) else head


def uses_training_set(head: AbstractHead) -> bool:
    """Whether the head looks at training samples when it classifies."""
    return not isinstance(at_work(head), MLPHead | ProbeHead)


def modes(head: AbstractHead, inductive_too: bool) -> tuple[bool, ...]:
    """How the head is tested; True stands for inductive."""
    if isinstance(at_work(head), GLLHead | WNLLHead):
        return (False, True) if inductive_too else (False,)
    return (True,)


def evaluate(model: Model, data: TrainTest, split: LabelSplit, config: Config) -> list[Score]:
    """Test the model's head and those of `config.test.also`. No test samples: no scores.

    The first score is that of the model's own head.

    Raises:
        NonFiniteError: the encoder's features are not finite.

    Differentiable in: nothing.
    """
    known = data.test_labels >= 0
    if not bool(known.any()):
        return []
    own = {name_of(model.head, config): model.head}
    heads = own | {name: head for name, head in free_heads(config, model.encoder, data).items() if name not in own}
    where = find_device(config.test.device, "test.device") if config.test.device else data.train.device
    labels = data.train_labels[split.labelled.to(data.train.device)].to(where)
    z = _finite(encode(model.encoder, data.test, data, config).to(where))
    labelled = unlabelled = z[:0]  # heads without a graph do not look at them
    if any(map(uses_training_set, heads.values())):
        both = _finite(encode(model.encoder, data.train, data, config).to(where))
        labelled, unlabelled = both[split.labelled.to(where)], both[split.unlabelled.to(where)]
    scores = []
    for name, head in heads.items():
        was_training = head.training
        head.eval()
        for inductive in modes(head, config.test.inductive):
            shown = labels[: len(labelled)]
            logp = head.classify(z, labelled, shown, unlabelled_features=unlabelled, inductive=inductive)
            scores.append(_score(name, inductive, logp[known.to(where)], data.test_labels[known].to(where)))
        head.train(was_training)
    return scores


def remarks(config: Config, data: TrainTest) -> list[str]:
    """What to know about a test before looking at it."""
    points, k = len(data.train) + len(data.test), config.test.k
    if k < points - 1 or not {config.model.head, *config.test.also} & set(GRAPH_HEADS):
        return []
    graph = f"test.k = {k:,}, and the graph of the test has {points:,} points: all are neighbours of each other"
    return [f"{graph}, so that it hardly tells near from far; the default is {TestConfig.k}"]


def to_come(model: Model, data: TrainTest, config: Config) -> str:
    """What a test is going to do, where that takes a while: where it solves a large graph. Otherwise nothing."""
    heads = dict.fromkeys((name_of(model.head, config), *config.test.also))
    points = len(data.train) + len(data.test)
    if points < LARGE or not len(data.test) or not set(heads) & set(GRAPH_HEADS):
        return ""
    return f"testing {', '.join(heads)}; the graph has all {points:,} samples"


def _finite(features: Tensor) -> Tensor:
    if not bool(torch.isfinite(features).all()):
        raise NonFiniteError(
            "the features of a test are not finite, though the parameters are: the encoder overflows; lower the "
            "learning rate (train.lr), set train.clip=1, or turn off train.autocast"
        )
    return features


def name_of(head: AbstractHead, config: Config) -> str:
    """The name of the head at work."""
    return config.model.first if isinstance(head, Switch) and at_work(head) is head.first else config.model.head


def _score(name: str, inductive: bool, logp: Float[Tensor, "n c"], target: Tensor) -> Score:
    wrong = (logp.argmax(1) != target).double()
    loss = torch.nn.functional.nll_loss(logp.double(), target)
    sums = torch.zeros(2, logp.shape[1], dtype=torch.float64, device=logp.device)
    sums.index_add_(1, target, torch.stack([wrong, torch.ones_like(wrong)]))
    by_class = tuple((sums[0] / sums[1]).tolist())
    return Score(name, "inductive" if inductive else "transductive", float(wrong.mean()), float(loss), by_class)


def predictions(model: Model, data: TrainTest, split: LabelSplit, config: Config, base: Tensor) -> Predictions:
    """What the head says about the labelled samples if it knows the labels of a base only; NaN rows for that base.

    From these an uncertainty-based base set chooses the next base.
    """
    z = encode(model.encoder, data.train[split.labelled.to(data.train.device)], data, config)
    inside = torch.isin(split.labelled, base.cpu()).to(z.device)
    classes = data.train_labels[split.labelled.to(z.device)]
    probability = torch.full((len(z), data.num_classes), torch.nan, dtype=torch.float64, device=z.device)
    was_training = model.head.training
    model.head.eval()
    probability[~inside] = model.head.classify(z[~inside], z[inside], classes[inside]).double().exp()
    model.head.train(was_training)
    return Predictions(probability, z)


def rows(scores: list[Score]) -> list[Mapping[str, Any]]:
    """The scores as lines of the metrics, without their epoch."""
    return [{"head": s.head, "mode": s.mode, "error": s.error, "loss": s.loss} for s in scores]
