"""A graph head as an attacker sees it: images in, log-probabilities out, the base inside.

The base's features are computed once. The encoder is in evaluation mode whenever it is asked, and in its own mode again
after that. What is in the graph beside the base is the threat model's
business: all queries together, each alone, or each joined to a base that was solved without it.

Precision. In float32 and with the floor of the layer (1e-8) the victim is the layer as it is used. Its cross-entropy
has hardly any gradient where the layer is sure of itself: log(u + floor) is flat for u far below the floor, and a
robustness measured with it may be nothing but that. In float64 and with a tiny floor the log-probabilities of classes
that are out of the question still tell in which direction they would become less so. The predictions are the same.

    queries in one graph: the layer's general path, below a floor of 1e-8 with a Cholesky factor, which keeps the
        digits of tiny values; conjugate gradients are accurate beside the largest value only
    queries alone or inductive, every base node labelled: `star.py`
    few nodes and `fast`: the layer's fused path, which computes in float64 inside; faster on a GPU, but where a
        gradient is exactly zero it has rounding of 1e-15, which hides that there is none

Read next: `victims.py`, which makes victims of trained runs.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gll.attacks.inputs import check_base, in_evaluation
from gll.attacks.layers import Remembered, Wide, WithEveryClass, changed, parts_of
from gll.attacks.pixels import Normalized
from gll.attacks.star import Choice, Star, in_closed_form
from gll.attacks.threat import Inference, Neighbours, Queries, ThreatModel
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.nn.graph_heads import GLLHead, WNLLHead
from gll.nn.layer import GraphLearningLayer
from gll.projected import AutoSearch
from gll.solvers import Cholesky

SMALL_FLOOR = 1e-100  # as far below any probability as a gradient in float32 can follow
LEAST_FLOOR = {torch.float32: 1e-37, torch.float64: 1e-300}
SURE_FLOOR = 1e-8  # below it, values are wanted that conjugate gradients do not resolve
DENSE = 25_000  # queries in one graph up to which a Cholesky factor is made: 5 GB
CHUNK = 2000  # base images encoded at a time


@final
class GraphVictim(nn.Module):
    """Encoder, graph head and base, as one module from images in 0 .. 1 to log-probabilities.

    Args:
        encoder: images to features. It computes in evaluation mode here, always, and its own mode is left as it is. A
            base that was encoded before it was trained on is out of date: make the victim anew.
        head: a `GraphLearningLayer`, or a `GLLHead` or `WNLLHead`, whose layer for training is taken, and whose own
            layers before it.
        base: the base's images in 0 .. 1; or their features (m, d), as the layer takes them, with
            `base_is_features`.
        base_labels: (m,) classes, -1 for a node without one, or (m, C) soft labels.
        base_is_features: `base` holds features.
        mean, std: of the normalisation that the encoder was trained with.
        threat: what is in the graph. Its `dtype` and `gradient` are filled in here.
        floor: added to probabilities before the logarithm; None: the layer's own.
        dtype: of the graph; None: that of the features.
        fast: in float64, let the layer's fused path do what it can (see above).
        surrogate: a module from features to logits that lends its gradient: the values are the graph's, the slope is
            this module's. It is how WNLL is trained, and attacked in the literature.

    Raises:
        ValueError: a floor that the precision cannot hold, a base that is empty, not finite, not in 0 .. 1 or without
            labels of these classes, or parts that do not fit together.

    `threat` says all this in words. `log_probabilities` is the same function of features and, if need be, of a base.

    Differentiable in: the images, and the encoder's parameters. Held fixed: which points are neighbours.

    >>> layer = GraphLearningLayer(2, k=1, normalize=False)
    >>> base = torch.tensor([[0.1], [0.2], [0.8], [0.9]])
    >>> victim = GraphVictim(nn.Identity(), layer, base, torch.tensor([0, 0, 1, 1]))
    >>> victim(torch.tensor([[0.3], [0.7]])).argmax(1).tolist()
    [0, 1]
    >>> print(victim.threat.dtype, victim.sharpened().threat.dtype)
    float32 float64
    """

    base_features: Tensor
    base_labels: Tensor
    evaluates = True
    """It is in evaluation mode inside, whatever its own mode."""

    def __init__(
        self,
        encoder: nn.Module,
        head: GraphLearningLayer | GLLHead | WNLLHead,
        base: Tensor,
        base_labels: Tensor,
        *,
        base_is_features: bool = False,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        threat: ThreatModel | None = None,
        floor: float | None = None,
        dtype: torch.dtype | None = None,
        fast: bool = False,
        surrogate: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if dtype not in (None, torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype}")
        if not isinstance(threat, ThreatModel | None):
            raise TypeError(f"threat must be a ThreatModel, such as ThreatModel('500 images'), got {threat!r}")
        body, layer = parts_of(head)
        self.encoder = Normalized(encoder if body is None else nn.Sequential(encoder, body), mean, std)
        self.surrogate = surrogate
        check_base(base, base_labels, layer.num_classes, is_features=base_is_features)
        with torch.inference_mode(False):  # what is made under it can never take part in a gradient
            features = base.detach().clone() if base_is_features else self._encode(base)
            classes = base_labels.detach().clone()
        self.dtype = dtype or (torch.float64 if features.dtype == torch.float64 else torch.float32)
        self.floor = layer.floor if floor is None else floor
        if not self.floor >= LEAST_FLOOR[self.dtype]:
            raise ValueError(
                f"floor must be at least {LEAST_FLOOR[self.dtype]:g} in {str(self.dtype)[6:]}, got {self.floor:g}"
                + ("; use dtype=torch.float64 for a smaller one" if self.dtype == torch.float32 else "")
            )
        self.register_buffer("base_features", features, persistent=False)
        self.register_buffer("base_labels", classes, persistent=False)
        about = threat or ThreatModel(f"{len(features)} samples")
        if about.neighbours is Neighbours.FIXED:
            raise ValueError(
                "neighbours are fixed at a batch: make the victim with RECHOSEN, then call fixed_at(images)"
            )
        exact = type(layer.search) in (Exact, AutoSearch)
        gradient = about.gradient if surrogate is None or about.gradient != "own" else "surrogate linear"
        self.threat = dataclasses.replace(about, dtype=str(self.dtype)[6:], exact_neighbours=exact, gradient=gradient)
        self.fast = fast
        self.layer = self._make_layer(layer)
        self.each_class = 0
        self._star: Star | None = None
        self._choice: Choice | None = None

    def _make_layer(
        self, layer: GraphLearningLayer, search: AbstractNeighborSearch | None = None
    ) -> GraphLearningLayer:
        """The layer with the victim's floor and precision. The search is exact: an attack needs it the same twice."""
        if search is None:
            search = Exact() if isinstance(layer.search, AutoSearch) else layer.search
        inductive = self.threat.inference is Inference.INDUCTIVE
        plain = changed(layer, floor=self.floor, search=search, inductive=inductive)
        if self.dtype == torch.float32 and self.floor >= SURE_FLOOR:
            return plain
        return Wide(plain, Cholesky() if self.floor < SURE_FLOOR else None, fast=self.fast)

    @torch.no_grad()
    def _encode(self, images: Tensor) -> Tensor:
        features = torch.cat([self.features(part) for part in images.split(CHUNK)])
        if features.shape != (len(images), features[0].numel()) or not bool(torch.isfinite(features).all()):
            raise ValueError(
                f"the encoder must give finite features, one row a sample, got {tuple(features.shape)} for a base of "
                f"{len(images)}, with {int((~torch.isfinite(features)).sum())} values that are not finite"
            )
        return features

    def features(self, images: Float[Tensor, "n *sample"]) -> Float[Tensor, "n d"]:
        """What the graph is built from.

        Differentiable in: the images.
        """
        with in_evaluation(self.encoder):
            out: Tensor = self.encoder(images)
        return out

    def forward(self, images: Float[Tensor, "n *sample"]) -> Float[Tensor, "n c"]:
        """Log-probabilities of the classes of images in 0 .. 1."""
        x = self.features(images)
        if self.surrogate is None:
            return self.log_probabilities(x)
        with torch.no_grad():
            value = self.log_probabilities(x.detach())
        with in_evaluation(self.surrogate):
            slope = self.surrogate(x)
        return value + (slope - slope.detach()).to(value.dtype)

    def log_probabilities(
        self, features: Float[Tensor, "n d"], base_features: Float[Tensor, "m d"] | None = None
    ) -> Float[Tensor, "n c"]:
        """Log-probabilities from features.

        Args:
            features: of the queries.
            base_features: in place of the base's own: for an attacker who perturbs the base.

        Differentiable in: `features`, `base_features`.
        """
        base = self.base_features if base_features is None else base_features
        if not self.threat.alone and self.floor < SURE_FLOOR and len(features) > DENSE:
            raise ValueError(
                f"{len(features):,} queries in one graph are too many for a floor of {self.floor:g}: values so small "
                f"need a Cholesky factor, which is made for up to {DENSE:,}; attack in chunks, or use floor=1e-8"
            )
        if not self.threat.alone:
            return self._graph(features, base)
        if base_features is None and self.closed_form:
            return self._stars()(features.to(self.dtype), self._choice)
        if self.threat.inference is Inference.INDUCTIVE:
            return self._graph(features, base)
        # A base with unlabelled nodes, or an unusual layer: a solve for every query.
        return torch.cat([self._graph(part, base) for part in features.split(1)])

    @property
    def closed_form(self) -> bool:
        """Whether queries are answered one by one, by `star.py`."""
        return self.threat.alone and self.is_plain

    @property
    def is_plain(self) -> bool:
        """Whether single queries could be answered by `star.py`."""
        return in_closed_form(self.layer, self.base_labels)

    def shares(
        self, features: Float[Tensor, "n d"]
    ) -> tuple[Int[Tensor, " e"], Int[Tensor, " e"], Float[Tensor, " e"]]:
        """(query, base sample, share of this in the answer to that), if `closed_form`.

        Differentiable in: `features`.
        """
        return self._stars().shares(features.to(self.dtype), self._choice)

    def _graph(self, features: Tensor, base: Tensor) -> Tensor:
        if features.dtype != base.dtype:
            features, base = features.double(), base.double()
        out: Tensor = self.layer(features, base, self.base_labels)
        return out.to(self.dtype)

    def _stars(self) -> Star:
        """The base, prepared for single queries: once."""
        moved = self._star is not None and self._star.base.device != self.base_features.device
        if self._star is None or moved:
            inductive = self.threat.inference is Inference.INDUCTIVE
            base = self.base_features.to(self.dtype)
            self._star = Star(self.layer, base, self.base_labels, inductive=inductive, each_class=self.each_class)
        return self._star

    def _copy(self, **changes: Any) -> GraphVictim:
        """A shallow copy with other settings: the encoder and the base are shared."""
        other = copy.copy(self)
        other._modules, other._buffers = dict(self._modules), dict(self._buffers)
        other._star = other._choice = None
        for name, value in changes.items():
            setattr(other, name, value)
        return other

    def sharpened(self, floor: float = SMALL_FLOOR, *, fast: bool = False) -> GraphVictim:
        """The same victim in float64 with a small floor: the same predictions, and a gradient wherever there is one.

        >>> layer = GraphLearningLayer(2, k=2, normalize=False)
        >>> base, y = torch.tensor([[0.0], [0.01], [0.99], [1.0]]), torch.tensor([0, 0, 1, 1])
        >>> victim = GraphVictim(nn.Identity(), layer, base, y, floor=1e-8)
        >>> x = torch.tensor([[0.02]], requires_grad=True)
        >>> for v in (victim, victim.sharpened()):
        ...     print(f"{torch.autograd.grad(v(x)[0, 1], x)[0].item():.1g}")
        0
        1e+04
        """
        other = self._copy(dtype=torch.float64, floor=floor, fast=fast)
        other.threat = dataclasses.replace(self.threat, dtype="float64")
        other.layer = other._make_layer(self.layer)
        return other

    def through_graph(self) -> GraphVictim:
        """The same victim with its own gradient, through the graph, though it was trained by that of a surrogate."""
        return self._copy(surrogate=None, threat=dataclasses.replace(self.threat, gradient="own"))

    def fixed_at(self, images: Float[Tensor, "n *sample"]) -> GraphVictim:
        """The same victim with the neighbours of these images, whatever they become: what an attack may differentiate.

        It answers for this batch only. Judge attacked images with the victim itself, whose neighbours are their own.
        """
        other = self._copy(threat=dataclasses.replace(self.threat, neighbours=Neighbours.FIXED))
        with torch.no_grad():
            x = other.features(images)
            if self.threat.alone:
                self._require_closed_form("neighbours of single queries can be fixed")
                other._choice = other._stars().choose(x.to(other.dtype))
            else:
                other.layer = other._make_layer(self.layer, Remembered(self.layer.search))
                other.log_probabilities(x)
        return other

    def reaching(self, points: int = 5, *, joint: bool = False) -> GraphVictim:
        """A stand-in with a slope towards every class, for an attack to follow.

        Where all neighbours of a query are of one class, the others have probability zero and no gradient, in any
        precision. Here every query is joined to `points` base samples of each class besides its neighbours. Judge
        attacked images with the victim itself.

        Args:
            points: how many of each class.
            joint: in the graph of all queries, where a slope is also what a query does to the others; by default every
                query is by itself.
        """
        if points < 1:
            raise ValueError(f"points must be at least 1, got {points}")
        self._require_closed_form("a query can be joined to every class")
        gradient = f"that of neighbours and {points} samples of every class"
        threat = dataclasses.replace(self.threat, gradient=gradient, dtype="float64")
        if not joint:
            threat = dataclasses.replace(threat, queries=Queries.ALONE)
            return self._copy(threat=threat, dtype=torch.float64, each_class=points, surrogate=None)
        if self.threat.alone:
            raise ValueError("joint=True needs queries in one graph (Queries.JOINT): here each is by itself")
        other = self._copy(threat=threat, dtype=torch.float64, floor=SMALL_FLOOR, fast=False, surrogate=None)
        other.layer = other._make_layer(changed(self.layer, reweight=WithEveryClass(self.layer, points)))
        return other

    def apart(self) -> GraphVictim:
        """The same victim with every query alone in a graph with the base, for an attack to follow."""
        return self._copy(threat=dataclasses.replace(self.threat, queries=Queries.ALONE))

    def _require_closed_form(self, what: str) -> None:
        if not self.is_plain:
            raise ValueError(
                f"{what} if every base sample has a class and the layer is plain (Laplace or WNLL, Gaussian weights, "
                "exact search)"
            )

    def with_base(self, base: Tensor, base_labels: Tensor | None = None, *, perturbs_base: bool = False) -> GraphVictim:
        """The same victim with another base.

        Args:
            base: images in 0 .. 1.
            base_labels: their classes; None: those of the base before.
            perturbs_base: what the threat model is to say.
        """
        labels = self.base_labels if base_labels is None else base_labels
        check_base(base, labels, self.layer.num_classes, is_features=False)
        features = self._encode(base)
        other = self._copy(threat=dataclasses.replace(self.threat, perturbs_base=perturbs_base))
        other.base_features, other.base_labels = features, labels
        return other

    def with_labels(self, base_labels: Tensor) -> GraphVictim:
        """The same victim with other classes for its base, or soft labels, in which it is then differentiable."""
        if base_labels.shape[:1] != self.base_labels.shape[:1]:
            raise ValueError(f"the base has {len(self.base_labels)} samples, got labels {tuple(base_labels.shape)}")
        return self._copy(base_labels=base_labels)
