"""Poisoning for `gll attack --poison`: the error of a graph head when labels of its base are wrong, into a file.

The queries are left as they are. Labels are flipped at random, several times over, and greedily, by an attacker who
knows the queries. What was measured for one graph is kept beside that for others, and is not measured again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gll.attacks.graph_victim import GraphVictim
from gll.attacks.poison import GreedyFlips, poison
from gll.attacks.store import plain, read_json, write_json
from gll.attacks.target import Target
from gll.data.random import generator
from gll.train.progress import Reporter

DRAWS = 5
"""How often labels are flipped at random."""
FILE = "poison.json"


def poisonable(target: Target) -> GraphVictim:
    """The model under attack, as it is used.

    Raises:
        ValueError: it has no base whose labels could be flipped, or fewer labels than were asked for.
    """
    victim = target.judged(target.protocol.few_base, False)
    if not isinstance(victim, GraphVictim):
        raise ValueError("--poison flips labels of the base of a graph head: the model under attack has none")
    most = max(target.request.poison, default=0)
    if most > len(victim.base_labels):
        raise ValueError(f"--poison {most} is more than the base has labels, {len(victim.base_labels)}; see --base")
    return victim


def greedy_flips(most: int) -> GreedyFlips:
    """The attacker's choice of so many labels: about five of them between two looks at what they do."""
    return GreedyFlips(rounds=max(20, most // 5))


def poison_base(target: Target, folder: Path, reporter: Reporter) -> list[dict[str, Any]]:
    """Flip as many labels as were asked for, and return all that the folder holds.

    All queries of one chunk are asked: in one graph the error depends on how many there are.
    """
    path = folder / FILE
    found: list[dict[str, Any]] = read_json(path)["poison"] if path.is_file() else []
    if not target.request.poison:
        return found
    victim, n = poisonable(target), target.protocol.few_chunk
    counts = sorted({0, *target.request.poison})
    about = plain({"threat": victim.threat.as_dict(), "base": len(victim.base_labels), "samples": n, "counts": counts})
    if any(all(one[key] == value for key, value in about.items()) for one in found):
        return found
    images, labels, seed = target.images[:n], target.labels[:n], target.request.seed
    greedy = poison(victim, images, labels, counts=counts, flips=greedy_flips(counts[-1]))
    draws = [
        poison(victim, images, labels, counts=counts, generator=generator(seed, "poison", draw)).errors
        for draw in range(DRAWS)
    ]
    by_count = list(zip(*draws, strict=True))
    random = {"mean": [sum(errors) / DRAWS for errors in by_count], "largest": [max(errors) for errors in by_count]}
    found = [*found, {**about, "greedy": list(greedy.errors), "random": random, "draws": DRAWS, "seed": seed}]
    write_json(path, {"poison": found})
    reporter.say(
        f"poison: {counts[-1]} of {len(victim.base_labels):,} labels flipped: error {greedy.errors[-1]:.2%} greedily, "
        f"{random['mean'][-1]:.2%} at random; {greedy.errors[0]:.2%} without"
    )
    return found
