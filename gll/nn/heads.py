"""Heads by their names, and a switch from one to another.

    head = create_head("gll", encoder.feature_dim, num_classes=10)
    head.start_epoch(epoch, encoder)
    logits = head(z, z_base, y_base)                # training; heads without a base ignore it
    loss = head.loss(logits, y)
    head.classify(z_test, z_labelled, y_labelled)   # test time: log-probabilities

The graph learning layer has no parameters; an MLP and a linear layer are what it replaces; WNLL is the graph head that
came before it, with a borrowed gradient; nearest neighbours and a linear probe judge an encoder without training it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from gll.equations import AbstractEquation, Laplace, Poisson, SoftLaplace
from gll.names import from_name, require_name, require_options
from gll.nn.graph_heads import GLLHead, WNLLHead
from gll.nn.layer import GraphLearningLayer
from gll.nn.plain_heads import AbstractHead, KNNHead, MLPHead, ProbeHead, linear_layers
from gll.nonlinear import PLaplace
from gll.projected import AutoSearch
from gll.reweight import wnll
from gll.similarity import Constant

__all__ = [
    "HEADS", "AbstractHead", "GLLHead", "KNNHead", "MLPHead", "ProbeHead", "Switch", "WNLLHead",
    "create_head", "options_of", "scaled_stages",
]  # fmt: skip


@final
class Switch(AbstractHead):
    """One head until an epoch, then another: MLP then GLL at 50 is the paper's GLL-50.

    Which of them is at work is part of `state_dict`. The second counts its own epochs from 0.
    `trains_encoder` is that of the head at work: an optimizer must take the encoder if either head trains it.

    Args:
        first, second: the heads.
        at: the first epoch of the second.

    Differentiable in: as the head at work.
    """

    switched: Tensor

    def __init__(self, first: AbstractHead, second: AbstractHead, at: int) -> None:
        super().__init__()
        if at < 0:
            raise ValueError(f"the epoch of a switch must be at least 0, got {at}")
        self.first, self.second, self.at = first, second, at
        self._second = at == 0  # what the buffer says, without asking a GPU
        self.register_buffer("switched", torch.tensor(self._second))

    @property
    def active(self) -> AbstractHead:
        """The head at work."""
        return self.second if self._second else self.first

    @property
    def uses_base(self) -> bool:
        return self.active.uses_base

    @property
    def trains_encoder(self) -> bool:  # type: ignore[override]
        return self.active.trains_encoder

    def start_epoch(self, epoch: int, encoder: nn.Module) -> None:
        """Which head it is; that one's epoch starts."""
        if self._second != (epoch >= self.at):
            self.active.release()
        self._second = epoch >= self.at
        self.switched.fill_(self._second)
        self.active.start_epoch(epoch - self.at if self._second else epoch, encoder)

    def release(self) -> None:
        self.active.release()

    def forward(
        self, features: Tensor, base_features: Tensor | None = None, base_labels: Tensor | None = None
    ) -> Tensor:
        return self.active(features, base_features, base_labels)

    def attempt(
        self, features: Tensor, base_features: Tensor | None = None, base_labels: Tensor | None = None
    ) -> tuple[Tensor, Callable[[], bool] | None]:
        return self.active.attempt(features, base_features, base_labels)

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        return self.active.loss(logits, target)

    def predict(
        self, features: Tensor, labelled: Tensor, labels: Tensor, unlabelled: Tensor, inductive: bool
    ) -> Tensor:
        return self.active.predict(features, labelled, labels, unlabelled, inductive)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._second = bool(self.switched)


EQUATIONS: dict[str, Callable[..., AbstractEquation]] = {
    "laplace": Laplace,
    "soft": SoftLaplace,
    "p-laplace": PLaplace,
    "poisson": Poisson,
}
"""Equations of the graph head by their names."""


def _mlp(feature_dim: int, num_classes: int, *, hidden: int | None = None) -> MLPHead:
    return MLPHead(feature_dim, num_classes, None if hidden is None else (hidden,))


def _linear(feature_dim: int, num_classes: int) -> MLPHead:
    return MLPHead(feature_dim, num_classes, ())


def _knn(feature_dim: int, num_classes: int, *, k: int = 5) -> KNNHead:
    return KNNHead(num_classes, k)


def _gll(
    feature_dim: int,
    num_classes: int,
    *,
    k: int = 25,
    tau: float = 0.0,
    equation: str = "laplace",
    p: float | None = None,
    bandwidth: float | None = None,
    normalize: bool = True,
    projection: int | None = None,
    test_k: int = 50,
    test_tau: float = 1e-8,
) -> GLLHead:
    more = {} if p is None else {"p": float(p)}
    trained = from_name("equation", EQUATIONS, equation, {"tau": tau, **more})
    # A small τ keeps values from rounding. Scores it would drown: an excess of labels in a component is divided by τ.
    tested = trained if trained.scores else from_name("equation", EQUATIONS, equation, {"tau": test_tau, **more})
    fixed = None if bandwidth is None else Constant(float(bandwidth))
    build = partial(GraphLearningLayer, num_classes, normalize=normalize, bandwidth=fixed)
    train = build(k=k, equation=trained)
    test = partial(build, k=test_k, equation=tested, search=AutoSearch())
    layers = None if projection is None else linear_layers((feature_dim, feature_dim, projection))
    return GLLHead(train, test, layers)


def _wnll(
    feature_dim: int,
    num_classes: int,
    *,
    classifier: str = "linear",
    hidden: int | None = None,
    stage1: int = 400,
    stage2: int = 5,
    k: int = 25,
    test_k: int = 50,
    test_tau: float = 1e-8,
) -> WNLLHead:
    classifiers: dict[str, Callable[[], MLPHead]] = {
        "linear": lambda: _linear(feature_dim, num_classes),
        "mlp": lambda: _mlp(feature_dim, num_classes, hidden=hidden),
    }
    if classifier not in classifiers:
        raise ValueError(f"unknown classifier {classifier!r}; choose one of {', '.join(classifiers)}")
    build = partial(GraphLearningLayer, num_classes, reweight=wnll)
    train = build(k=k)
    test = partial(build, k=test_k, equation=Laplace(tau=test_tau), search=AutoSearch())
    return WNLLHead(classifiers[classifier](), train, test, stage1, stage2)


HEADS: dict[str, Callable[..., AbstractHead]] = {
    "mlp": _mlp,
    "linear": _linear,
    "gll": _gll,
    "wnll": _wnll,
    "knn": _knn,
    "probe": ProbeHead,
}
"""Every head by its name."""


def options_of(name: str) -> list[str]:
    """The options of a head, as `create_head` takes them.

    >>> options_of("mlp"), options_of("linear")
    (['hidden'], [])
    """
    return [o for o in inspect.signature(HEADS[name]).parameters if o not in ("feature_dim", "num_classes")]


def scaled_stages(epochs: int) -> tuple[int, int]:
    """WNLL's stages for a training of so many epochs: the paper's 400 and 5 of 1,000, scaled down if it is shorter.

    An epoch is the least a stage can have, so that two epochs are the least that come to a graph.

    >>> scaled_stages(2000), scaled_stages(100), scaled_stages(2)
    ((400, 5), (40, 1), (1, 1))
    """
    share = min(1.0, epochs / 1000)
    return max(1, round(400 * share)), max(1, round(5 * share))


def create_head(name: str, feature_dim: int, num_classes: int, **options: Any) -> AbstractHead:
    """A head by its name.

    Args:
        name: one of `HEADS`: mlp, linear, gll, wnll, knn, probe.
        feature_dim: of the encoder.
        num_classes: C.
        options: of that head. mlp: `hidden`, the size of one hidden layer in place of the paper's D-D-128-32-C.
            gll: `k` neighbours, `equation` (laplace, soft, p-laplace with `p`, poisson), its `tau`, `bandwidth` (a
            constant in place of the self-tuned one), `normalize`, `projection` (its size; a learned layer before the
            graph), and `test_k` and `test_tau` at test time. wnll: `classifier` (linear, or mlp with `hidden`),
            epochs `stage1` and `stage2` (a config without them scales them down to its epochs: `scaled_stages`), `k`,
            `test_k`, `test_tau`. knn: `k`.

    Raises:
        ValueError: no such head, or no such option.

    Differentiable in: nothing; the head is, in what its class says.

    >>> head = create_head("gll", feature_dim=16, num_classes=3, k=10)
    >>> features, base = torch.randn(40, 16), torch.randn(30, 16)
    >>> logits = head(features, base, torch.arange(30) % 3)
    >>> head.loss(logits, torch.arange(40) % 3) > 0
    tensor(True)
    """
    require_name("head", name, HEADS)
    for what, number in (("feature_dim", feature_dim), ("num_classes", num_classes)):
        if not isinstance(number, int) or number < 1:
            raise ValueError(f"{what} must be a whole number, at least 1, got {number!r}")
    require_options("head", name, options, options_of(name))
    return HEADS[name](feature_dim, num_classes, **options)
