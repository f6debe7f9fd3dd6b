"""The graph learning layer: features in, log-probabilities out, no parameters.

A batch of features and a set of labelled *base* features become the nodes of one kNN graph; an equation carries the
labels of the base to the batch; gradients flow back to all features through the adjoint (`implicit.py`).

The output is log(u + floor). Since log_softmax(log p) = log p for a normalised p, it can be used wherever logits are
expected: `nn.CrossEntropyLoss`, `softmax`, `argmax`, temperature scaling and attack libraries work unchanged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gll.equations import AbstractEquation, Laplace
from gll.features import check_features, power_of_two_scale, require_functions, unit_rows
from gll.graph import Graph, Topology
from gll.implicit import solve
from gll.labels import Labels
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.nn.fused import Call, Setting, fused_limit, fused_logits
from gll.nn.replay import Recorder
from gll.similarity import Constant, Gaussian, SelfTuned, Symmetrize, knn_bandwidth, knn_graph, pair_weight
from gll.solution import Solution
from gll.solvers import AbstractLinearSolver, Newton
from gll.unreached import Unreached


class GraphLearningLayer(nn.Module):
    """Classifies a batch by spreading the labels of a base set over a similarity graph.

        logits = layer(features, base_features, base_labels)

    Args:
        num_classes: C.
        k: neighbours of every node; reduced to the number of other nodes where there are fewer.
        equation: what is solved; `Laplace()` by default.
        normalize: scale every feature vector to length one first, as the paper does.
        bandwidth, kernel, symmetrize, search: as in `knn_graph`.
        reweight: a function `Graph, Labels -> Graph` applied before solving, such as `gll.reweight.wnll`.
        solver: as in `solve`.
        unreached: as in `solve`: "uniform", "nearest" or "raise". In inductive mode it applies to the base; a query to
            which every base node is too far for a positive weight copies its nearest one.
        floor: added to the solution before the logarithm.
        inductive: answer every query on its own against the base (True), or all together on one graph (False).

    Shape:
        features (B, d), base_features (m, d); base_labels (m,) integer classes, -1 for a base node without a label, or
        (m, C) soft labels. Output (B, C), float32, or float64 for float64 features.

    Under autocast the layer computes in float32. It has no parameters; a base stored by `set_base` is part of
    `state_dict`. After a call, `last_graph` and `last_solution` show what was solved.

    Differentiable in: `features`, `base_features`, soft `base_labels`, and the tensors of the equation.
    Held fixed: which points are neighbours.

    >>> layer = GraphLearningLayer(num_classes=2, k=2, normalize=False)
    >>> base = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
    >>> layer(torch.tensor([[0.4], [9.3]]), base, torch.tensor([0, 0, 1, 1])).argmax(1).tolist()
    [0, 1]
    """

    base_features: Tensor | None
    base_labels: Tensor | None

    def __init__(
        self,
        num_classes: int,
        *,
        k: int = 25,
        equation: AbstractEquation | None = None,
        normalize: bool = True,
        bandwidth: Callable[[Tensor], Tensor] | None = None,
        kernel: Callable[[Tensor], Tensor] | None = None,
        symmetrize: Symmetrize = Symmetrize.UNION,
        search: AbstractNeighborSearch | None = None,
        reweight: Callable[[Graph, Labels], Graph] | None = None,
        solver: AbstractLinearSolver | Newton | None = None,
        unreached: Unreached | str = Unreached.UNIFORM,
        floor: float = 1e-8,
        inductive: bool = False,
    ) -> None:
        super().__init__()
        if num_classes < 1:
            raise ValueError(f"num_classes must be at least 1, got {num_classes}")
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if not floor > 0:
            raise ValueError(f"floor must be > 0, got {floor}: the logarithm of zero is not finite")
        self.num_classes, self.k, self.normalize, self.floor = num_classes, k, normalize, floor
        if equation is not None and not isinstance(equation, AbstractEquation):
            raise TypeError(f"equation must be an object such as gll.Laplace(), got {equation!r}")
        if equation is not None and equation.needs_start:
            raise ValueError(f"{type(equation).__name__} needs a start, which a layer does not have: use gll.solve")
        require_functions(bandwidth=bandwidth, kernel=kernel, search=search, reweight=reweight)
        self.equation = equation or Laplace()
        self.bandwidth, self.kernel = bandwidth or SelfTuned(), kernel or Gaussian()
        self.symmetrize, self.search = Symmetrize(symmetrize), search or Exact()
        self.reweight, self.solver, self.unreached = reweight, solver, Unreached(unreached)
        self.inductive = inductive
        self.register_buffer("base_features", None)
        self.register_buffer("base_labels", None)
        self._last: Any = None  # (graph, solution) of the last call, or what they can be made from
        self._told_missing = False
        self._recorder = Recorder()

    def extra_repr(self) -> str:
        mode = "inductive" if self.inductive else "transductive"
        return f"{self.num_classes}, k={self.k}, equation={self.equation}, normalize={self.normalize}, {mode}"

    def set_base(self, features: Float[Tensor, "m d"], labels: Tensor) -> GraphLearningLayer:
        """Store a base set, so that `layer(features)` works; it is saved and moved with the module."""
        features = check_features(features, "base features")
        self._labels(labels, len(features), features)  # raises if they do not fit
        self.base_features, self.base_labels = features.detach().clone(), labels.detach().clone()
        return self

    def forward(
        self,
        features: Float[Tensor, "batch d"],
        base_features: Float[Tensor, "m d"] | None = None,
        base_labels: Tensor | None = None,
    ) -> Float[Tensor, "batch c"]:
        """Log-probabilities of the classes of every row of `features`."""
        logits, sound = self.attempt(features, base_features, base_labels)
        if sound is None or sound():
            return logits
        base_features, base_labels = self._base(base_features, base_labels)
        with torch.autocast(features.device.type, enabled=False):
            return self._general(features, base_features, base_labels)

    def attempt(
        self,
        features: Float[Tensor, "batch d"],
        base_features: Float[Tensor, "m d"] | None = None,
        base_labels: Tensor | None = None,
    ) -> tuple[Float[Tensor, "batch c"], Callable[[], bool] | None]:
        """As `forward`, but without waiting for a GPU to say whether the answer is right: ask `sound()` later.

        Until `sound()` is True the logits may be anything, NaN included; it waits for the GPU. If it is False, call
        `forward` and start again from there. None in its place: the logits are right. Ask before the next call.

            logits, sound = layer.attempt(features, base_features, base_labels)
            loss(logits).backward(retain_graph=sound is not None)
            if sound is not None and not sound():  # rare: copies of points, nodes cut off, NaN
                optimizer.zero_grad()
                loss(layer(features, base_features, base_labels)).backward()
            optimizer.step()

        So the GPU has the whole backward pass to do while the CPU waits. Not under DistributedDataParallel, which
        allows one backward pass for each forward pass.
        """
        base_features, base_labels = self._base(base_features, base_labels)
        if not isinstance(features, Tensor):
            raise TypeError(
                f"features must be a torch.Tensor, got {type(features).__name__}; use torch.as_tensor first"
            )
        with torch.autocast(features.device.type, enabled=False):
            if not self._fusable(features, base_features, base_labels):
                return self._general(features, base_features, base_labels), None
            self._last = (features.detach(), base_features.detach(), base_labels.detach())
            logits, sound = fused_logits(features, base_features, base_labels, self._setting(), self._call())
            if features.is_cuda:
                return logits, sound
            return (logits if sound() else self._general(features, base_features, base_labels)), None

    def _base(self, features: Tensor | None, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """The base that was given, or that of `set_base`."""
        if (features is None) != (labels is None):
            raise ValueError("give base_features and base_labels together, or neither after set_base")
        if features is None:
            features, labels = self.base_features, self.base_labels
            if features is None:
                raise ValueError("no base set: pass base_features and base_labels, or call set_base first")
        assert labels is not None
        return features, labels

    def _fusable(self, x: Tensor, base: Tensor, labels: Tensor) -> bool:
        """Whether this is the common case that `fused.py` knows."""
        e, kernel, bandwidth = self.equation, self.kernel, self.bandwidth
        return (
            (isinstance(e, Laplace) and e.source is None and not isinstance(e.tau, Tensor) and e.tau >= 0)
            and (type(kernel) is Gaussian and not isinstance(kernel.scale, Tensor))
            and (type(bandwidth) is SelfTuned or (type(bandwidth) is Constant and isinstance(bandwidth.epsilon, float)))
            and (self.symmetrize is Symmetrize.UNION and type(self.search) is Exact)
            and (self.reweight is None and self.solver is None and not self.inductive)
            and (isinstance(x, Tensor) and isinstance(base, Tensor) and isinstance(labels, Tensor))
            and (x.dim() == 2 and base.dim() == 2 and x.shape[1] == base.shape[1] and len(x) > 0)
            and (x.device == base.device == labels.device and not labels.requires_grad)
            and all(t.dtype in (torch.float32, torch.float16, torch.bfloat16) for t in (x, base))
            and (
                labels.shape == (len(base),)
                if not labels.is_floating_point()
                else labels.shape == (len(base), self.num_classes)
            )
            and self.k + 1 < len(x) + len(base) <= fused_limit(x.device)
        )

    def _setting(self) -> Setting:
        tau, scale = cast(Any, self.equation).tau, cast(Any, self.kernel).scale
        epsilon = self.bandwidth.epsilon if isinstance(self.bandwidth, Constant) else None
        return Setting(self.num_classes, self.k, tau, scale, cast(Any, epsilon), self.floor, self.normalize)

    def _call(self) -> Call:
        return Call(self._general, self._recorder)

    def _general(self, features: Tensor, base_features: Tensor, base_labels: Tensor) -> Tensor:
        x, base = check_features(features), check_features(base_features, "base features")
        self._check_pair(x, base)
        base = base.to(x.dtype)
        if self.normalize:
            x, base = unit_rows(x), unit_rows(base)
        labels = self._labels(base_labels, len(base), base)
        if self.inductive:
            return self._inductive(x, base, labels)
        graph, solution = self._solve(torch.cat([base, x]), labels)
        self._last = (graph.detach(), solution.detach())
        return self._logits(solution.value[len(base) :], graph)

    @property
    def last_graph(self) -> Graph | None:
        """The graph of the last call, base nodes first, without a gradient."""
        return None if self._last is None else self._recall()[0]

    @property
    def last_solution(self) -> Solution | None:
        """The solution of the last call, base nodes first, without a gradient."""
        return None if self._last is None else self._recall()[1]

    def _recall(self) -> tuple[Graph, Solution]:
        # The fast path builds neither graph nor solution: make them when somebody asks.
        if isinstance(self._last[0], Tensor):
            with torch.no_grad():
                self._general(*self._last)
        return cast(tuple[Graph, Solution], self._last)

    def _inductive(self, x: Tensor, base: Tensor, labels: Labels) -> Tensor:
        """Each query joined to its k nearest base nodes only, whose values are solved without it."""
        m, k = len(base), min(self.k, len(base))
        graph, solution = self._solve(base, labels) if m > 1 else (None, None)
        value = labels.value if solution is None else solution.value
        scale = power_of_two_scale(torch.cat([base, x]))
        a, b = base / scale, x / scale
        index = self.search.query(a, b, k)
        row = torch.arange(len(x), device=x.device).repeat_interleave(k)
        # A graph whose only edges join queries (numbered after the base) to base nodes, with the base as boundary.
        topology, edge = Topology.from_pairs(m + len(x), index.flatten(), row + m)
        sqdist = (b[topology.j - m] - a[topology.i]).square().sum(1)
        query = knn_bandwidth(self.bandwidth, sqdist, edge.view(len(x), k), b, scale)
        # A base of one node has no bandwidth of its own: it takes the query's.
        own = query[topology.j - m] if graph is None else self._base_bandwidth(a, scale)[topology.i]
        weight = pair_weight(sqdist, own, query[topology.j - m], self.kernel)
        star = Graph(topology, weight, features=torch.cat([base, x]))
        known = Labels(torch.arange(m, device=x.device), value)
        answer = solve(self.equation.extension(), star, known, solver=self.solver, unreached=Unreached.NEAREST)
        self._last = (star.detach(), answer.detach())
        return self._logits(answer.value[m:], graph or star)

    def _base_bandwidth(self, scaled: Tensor, scale: Tensor) -> Tensor:
        """ε of the base nodes among themselves."""
        k = min(self.k, len(scaled) - 1)
        index = self.search(scaled, k)
        row = torch.arange(len(scaled), device=scaled.device).repeat_interleave(k)
        sqdist = (scaled[row] - scaled[index.flatten()]).square().sum(1)
        pairs = torch.arange(len(row), device=row.device).view(-1, k)
        return knn_bandwidth(self.bandwidth, sqdist, pairs, scaled, scale)

    def _solve(self, x: Tensor, labels: Labels) -> tuple[Graph, Solution]:
        if len(x) < 2:
            raise ValueError("a graph needs at least two nodes: one base sample and one query")
        graph = knn_graph(
            x,
            min(self.k, len(x) - 1),
            search=self.search,
            bandwidth=self.bandwidth,
            kernel=self.kernel,
            symmetrize=self.symmetrize,
        )
        if self.reweight is not None:
            graph = self.reweight(graph, labels)
        return graph, solve(self.equation, graph, labels, solver=self.solver, unreached=self.unreached)

    def _logits(self, u: Tensor, graph: Graph) -> Tensor:
        if self.equation.scores:
            # Scores of mean zero. Times the mean degree they do not depend on the scale of the weights.
            return torch.log_softmax(graph.degree.mean() * u, 1)
        # Rounding may leave u at -1e-17: lift it to zero, but let its gradient pass.
        u = u + (u.clamp(min=0) - u).detach()
        return torch.log(u + self.floor)

    def _check_pair(self, x: Tensor, base: Tensor) -> None:
        if x.device != base.device:
            raise ValueError(f"features are on {x.device}, base features on {base.device}; move one of them")
        if x.shape[1] != base.shape[1]:
            raise ValueError(f"features have {x.shape[1]} dimensions, base features {base.shape[1]}")

    def _labels(self, labels: Tensor, m: int, like: Tensor) -> Labels:
        if not isinstance(labels, Tensor) or labels.shape[:1] != (m,) or labels.dim() not in (1, 2):
            shape = tuple(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
            raise ValueError(
                f"base_labels must be ({m},) classes or ({m}, {self.num_classes}) soft labels, got {shape}"
            )
        if labels.device != like.device:
            raise ValueError(f"base_labels are on {labels.device}, base features on {like.device}; move one of them")
        if labels.dim() == 2:
            if labels.shape[1] != self.num_classes or not labels.is_floating_point():
                raise ValueError(
                    f"soft base_labels must be floating point with {self.num_classes} columns, "
                    f"got {labels.dtype} of shape {tuple(labels.shape)}"
                )
            if not bool(torch.isfinite(labels).all()):
                raise ValueError("soft base_labels contain NaN or infinite values")
            encoded = Labels(torch.arange(m, device=labels.device), labels.to(like.dtype))
        else:
            encoded = Labels.from_classes(labels, num_classes=self.num_classes, dtype=like.dtype)
        if len(encoded.index) == 0:
            raise ValueError("the base set is empty or has no labelled sample: give at least one")
        if not self._told_missing:
            missing = torch.nonzero(encoded.value.detach().sum(0) == 0).flatten().tolist()
            if missing:
                self._told_missing = True
                warnings.warn(
                    f"classes {missing[:10]}{' ...' if len(missing) > 10 else ''} have no base sample, so the layer "
                    "can never predict them; draw the base set class by class",
                    UserWarning,
                    stacklevel=3,
                )
        return encoded

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        # A stored base has any size: make room for it before the ordinary loading, which only copies.
        for name in ("base_features", "base_labels"):
            stored = state_dict.get(prefix + name)
            if stored is not None:
                mine = cast(Tensor | None, getattr(self, name))
                device = stored.device if mine is None else mine.device
                setattr(self, name, torch.empty_like(stored, device=device))
        super()._load_from_state_dict(state_dict, prefix, *args)
