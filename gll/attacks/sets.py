"""Attacks by name, and the two sets: `paper`, the paper's own protocol, and `strong`, what a model should be judged by.

A name becomes attacks in one place, here: one for every ε, or for every c. What the paper says of a data set (ε in
normalised units, nodes in the graph) is in `PROTOCOLS`; other data is treated like MNIST.

`paper` attacks the layer as it is used: float32, log(u + 1e-8), a last iterate. `strong` attacks it in float64 with a
tiny floor, by several objectives, with restarts, and also without its gradient: from features, from other models, by
random search.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import final

from torch import nn

from gll.attacks.base import AbstractAttack
from gll.attacks.carlini_wagner import CarliniWagner, CarliniWagnerPaper
from gll.attacks.features import FeatureAttack
from gll.attacks.gradient import FGSM, IFGSM, PGD
from gll.attacks.graph_victim import GraphVictim
from gll.attacks.objectives import DLR, AbstractObjective, CrossEntropy, Margin
from gll.attacks.radii import Radius
from gll.attacks.square import Square
from gll.attacks.transfer import Apart, EveryClass, FixedNeighbours, Transfer
from gll.names import require_name


@final
@dataclass(frozen=True)
class Protocol:
    """What the paper does with a data set.

    Args:
        table_eps: ε of its table, in normalised units.
        eps: those of the curves. The text gives only the table's; the others are ours.
        base, chunk: base and attacked samples in one graph, for FGSM and IFGSM.
        few_base, few_chunk: the same for CW, and for our strong set.
        cw_steps: of CW.
        c: of CW.
        table_c: that of its table.
        alpha: the step of IFGSM, in normalised units.
    """

    table_eps: float
    eps: tuple[float, ...]
    base: int
    chunk: int
    few_base: int
    few_chunk: int
    cw_steps: int = 100
    c: tuple[float, ...] = (1, 5, 10, 20, 50, 100, 200, 500, 1000)
    table_c: float = 20
    alpha: float = 0.05


_SMALL_EPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
PROTOCOLS = {
    "mnist": Protocol(0.3, (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0), 10_000, 10_000, 1000, 1000),
    "fashionmnist": Protocol(0.05, _SMALL_EPS, 500, 250, 500, 250),
    "cifar10": Protocol(0.05, _SMALL_EPS, 500, 200, 500, 200, cw_steps=50),
}
OTHER = Protocol(0.3, (0.1, 0.3, 0.5, 1.0), 1000, 1000, 1000, 1000)


@final
@dataclass(frozen=True, eq=False)
class Recipe:
    """What attacks are made of.

    Args:
        curve: the radii of FGSM and IFGSM, whose errors the paper draws.
        radii: those of all other attacks.
        c: for CW in the paper's form.
        protocol: the paper's.
        steps, restarts: of PGD and of the attack on features.
        queries: of Square.
        classes: how many there are.
        graph: whether the model under attack has a graph.
        joint: whether all its queries are in it at once.
        sources: models to transfer from, by name; made when they are needed.
        aim: the model whose gradient the attacks follow, and its name; None: that of the model under attack.
        plain: whether its graph is of the usual kind, which can be seen otherwise (`GraphVictim.is_plain`).
        surrogate: the model under attack with the gradient that it was trained by, if that is not its own.
    """

    curve: tuple[Radius, ...]
    radii: tuple[Radius, ...]
    c: tuple[float, ...]
    protocol: Protocol
    steps: int
    restarts: int
    queries: int
    classes: int
    graph: bool
    joint: bool
    sources: Callable[[], dict[str, nn.Module]]
    probe: Callable[[], nn.Module]
    aim: tuple[nn.Module, str] | None = None
    plain: bool = True
    surrogate: Callable[[], nn.Module | None] = lambda: None

    def aimed(self, attack: AbstractAttack) -> AbstractAttack:
        """The attack, by the gradient that was asked for."""
        return attack if self.aim is None else Transfer(attack, *self.aim)


@final
@dataclass(frozen=True, eq=False)
class Planned:
    """An attack and the victim it is for.

    Args:
        attack: the attack.
        sharp: in float64, with a tiny floor; otherwise the layer as it is used.
        large: on the large graph of the protocol.
        fast: leave the graph in float64 to the layer's fused path: right for an attack that asks for no gradient, whose
            exact zeros that path does not keep.
    """

    attack: AbstractAttack
    sharp: bool = True
    large: bool = False
    fast: bool = False


def _fgsm(r: Recipe) -> list[Planned]:
    return [Planned(r.aimed(FGSM(a.eps, norm=a.norm)), sharp=False, large=True) for a in r.curve]


def _ifgsm(r: Recipe) -> list[Planned]:
    attacks = [IFGSM(a.eps, a.alpha, norm=a.norm) for a in r.curve if a.has_steps]
    return [Planned(r.aimed(attack), sharp=False, large=True) for attack in attacks]


def _cw_paper(r: Recipe) -> list[Planned]:
    return [Planned(r.aimed(CarliniWagnerPaper(c, steps=r.protocol.cw_steps)), sharp=False) for c in r.c]


def _pgd(objective: AbstractObjective) -> Callable[[Recipe], list[Planned]]:
    def make(r: Recipe) -> list[Planned]:
        return [Planned(r.aimed(_steps(r, a, objective))) for a in r.radii]

    return make


def _steps(r: Recipe, radius: Radius, objective: AbstractObjective, targets: int = 0) -> PGD:
    return PGD(radius.eps, r.steps, restarts=r.restarts, objective=objective, norm=radius.norm, targets=targets)


def _targets(r: Recipe) -> list[Planned]:
    return [Planned(r.aimed(_steps(r, a, Margin(), targets=3))) for a in r.radii]


def _fixed(r: Recipe) -> list[Planned]:
    _needs_graph("fixed", r)
    return [Planned(FixedNeighbours(_steps(r, a, Margin()))) for a in r.radii]


def _every_class(r: Recipe) -> list[Planned]:
    _needs_graph("every-class", r)
    kinds = [(Margin(), 3), (CrossEntropy(), 0)]
    attacks = [_steps(r, a, objective, targets) for objective, targets in kinds for a in r.radii]
    # In one graph of all queries: made on each alone, which knows no other, and made in that graph.
    views = (False, True) if r.joint else (False,)
    return [Planned(EveryClass(attack, joint=joint)) for joint in views for attack in attacks]


def _features(r: Recipe) -> list[Planned]:
    _needs_graph("features", r)
    return [Planned(FeatureAttack(a.eps, r.steps, norm=a.norm)) for a in r.radii]


def _square(r: Recipe) -> list[Planned]:
    attacks = [Square(a.eps, r.queries, norm=a.norm) for a in r.radii]
    found = [Planned(attack, fast=True) for attack in attacks]
    # A step is kept or not sample by sample. In one graph of all queries the others have moved meanwhile, so it may be
    # out of date; made apart, it is not, but blind to what the others do. Neither finds all that the other does.
    return [*found, *(Planned(Apart(attack)) for attack in attacks)] if r.joint and r.plain else found


def _surrogate(r: Recipe) -> list[Planned]:
    source = r.surrogate()
    if source is None:
        raise ValueError("the attack 'surrogate' is for WNLL, which was trained by the gradient of its linear layer")
    name = "the linear layer it was trained by"
    return [Planned(Transfer(_steps(r, a, Margin()), source, name, asks=True)) for a in r.radii]


def _cw(r: Recipe) -> list[Planned]:
    found = [Planned(r.aimed(CarliniWagner()))]
    return [*found, Planned(EveryClass(CarliniWagner()))] if _has_views(r) else found


def _has_views(r: Recipe) -> bool:
    """Whether there is another view to follow: of a graph, and by its own gradient."""
    return r.graph and r.plain and r.aim is None


def _probe(r: Recipe) -> list[Planned]:
    source = r.probe()
    name = "a linear probe on the same encoder"
    return [Planned(Transfer(_steps(r, a, Margin()), source, name, asks=True)) for a in r.radii]


def _transfer(r: Recipe) -> list[Planned]:
    sources = r.sources()
    # The own gradient of a graph is often zero, and what follows it then hardly an attack, here as anywhere.
    seen = {
        f"{name} with every class": source.reaching()
        for name, source in sources.items()
        if isinstance(source, GraphVictim) and source.is_plain
    }
    pairs = [(source, name, a) for name, source in {**sources, **seen}.items() for a in r.radii]
    return [Planned(Transfer(_steps(r, a, Margin()), source, name)) for source, name, a in pairs]


def _autoattack(version: str) -> Callable[[Recipe], list[Planned]]:
    def make(r: Recipe) -> list[Planned]:
        from gll.attacks.autoattack import AutoAttack

        balls = [radius.even for radius in r.radii]
        attacks = [AutoAttack(a.eps, a.norm, version) for a in balls]
        # It goes on with images that are still right, which in a graph of all queries is another graph each time.
        found = [Planned(Apart(attack) if r.joint else attack) for attack in attacks]
        if _has_views(r):  # classes that no neighbour has are out of its sight
            found += [Planned(EveryClass(AutoAttack(a.eps, a.norm, "gradients"))) for a in balls]
        return found

    return make


def _needs_graph(name: str, r: Recipe) -> None:
    if not r.graph:
        raise ValueError(f"the attack {name!r} needs a graph head: the model under attack has none")


NAMES: dict[str, Callable[[Recipe], list[Planned]]] = {
    "fgsm": _fgsm,
    "ifgsm": _ifgsm,
    "cw-paper": _cw_paper,
    "pgd": _pgd(CrossEntropy()),
    "pgd-margin": _pgd(Margin()),
    "pgd-dlr": _pgd(DLR()),
    "pgd-targets": _targets,
    "fixed": _fixed,
    "every-class": _every_class,
    "features": _features,
    "surrogate": _surrogate,
    "square": _square,
    "cw": _cw,
    "probe": _probe,
    "transfer": _transfer,
    "autoattack": _autoattack("standard"),
    "autoattack-rand": _autoattack("rand"),
}
PAPER = ("fgsm", "ifgsm", "cw-paper")
STRONG = (
    "pgd", "pgd-margin", "pgd-dlr", "pgd-targets", "fixed", "every-class", "features", "surrogate", "square",
    "probe", "transfer", "autoattack", "cw",
)  # fmt: skip
SETS = {"paper": PAPER, "strong": STRONG}
AIMED = (*PAPER, "pgd", "pgd-margin", "pgd-dlr", "pgd-targets", "cw")
"""What follows another gradient where that is asked for (`Recipe.aim`); all others have a way of their own."""
NEED_GRAPH = ("fixed", "every-class", "features", "surrogate")


def names_of(text: str) -> tuple[str, ...]:
    """The names in a list such as "paper,square", each once.

    >>> names_of("paper,pgd,fgsm")
    ('fgsm', 'ifgsm', 'cw-paper', 'pgd')
    >>> names_of("pdg")
    Traceback (most recent call last):
    ValueError: unknown attack 'pdg'; choose one of paper, strong, fgsm, ifgsm, ...
    """
    found: list[str] = []
    for name in text.split(","):
        require_name("attack", name.strip(), [*SETS, *NAMES])
        found += SETS.get(name.strip(), (name.strip(),))
    return tuple(dict.fromkeys(found))


def left_out(text: str, recipe: Recipe, *, autoattack: bool) -> dict[str, str]:
    """Which attacks of a set do not apply here, and why.

    One that was asked for by its own name is not among them; but in a list of names, which may be meant for several
    heads, one that needs a graph is.
    """
    asked = {name.strip() for name in text.split(",")}
    why: dict[str, str] = {}
    if not recipe.graph:
        why |= dict.fromkeys(NEED_GRAPH, "the model has no graph")
    elif not recipe.plain:
        unusual = ("every-class",) if recipe.joint else ("every-class", "fixed")
        why |= dict.fromkeys(unusual, "the graph is solved in an unusual way, which has no other view")
    if recipe.graph and recipe.surrogate() is None:
        why["surrogate"] = "the head was trained by its own gradient"
    if "transfer" in names_of(text) and not recipe.sources():
        why["transfer"] = "there is no other run to transfer from (--transfer RUN)"
    if recipe.classes < 3:
        why["pgd-dlr"] = "it needs three classes"
    if not autoattack:
        why["autoattack"] = "it is not installed (pip install gll[attacks])"
    excused = set(NEED_GRAPH) if len(asked) > 1 else set()
    names = [name for name in names_of(text) if name not in asked or name in excused]
    return {name: why[name] for name in names if name in why}


def plan(names: Iterable[str], recipe: Recipe) -> list[Planned]:
    """The attacks of these names, each once: both versions of AutoAttack have one part with every class."""
    found: dict[str, Planned] = {}
    for planned in (planned for name in names for planned in NAMES[name](recipe)):
        about = (planned.attack.name, planned.attack.settings(), planned.sharp, planned.large, planned.fast)
        found.setdefault(json.dumps(about, sort_keys=True), planned)
    return list(found.values())
