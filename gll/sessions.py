"""The files of a labelling session: the graph as safetensors, all that changes as JSON. Nothing in them is executed.

Here is what they must hold, and how objects (methods, solvers) are named in them; `loop.py` says when they are written.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from gll.active import AbstractAcquisition, AbstractSelection, acquisition_from_name, as_config, selection_from_name
from gll.files import complete_file
from gll.graph import Graph, Topology
from gll.methods import METHODS, AbstractMethod, method_from_name
from gll.propagation import Solver
from gll.solvers.auto import Auto
from gll.solvers.multilevel import Multilevel

FORMAT, VERSION = "gll labelling session", 1
STATE: dict[str, Any] = {  # what state.json must hold
    "graph": str,
    "classes": list | None,
    "class_prior": list | None,
    "unreached": str,
    "seed": int,
    "warm_start": bool,
    "round": int,
    "index": list,
    "labels": list,
    "taken": list,
    "forgotten": list,
    "pending": list,
    "skipped": list,
    "config": dict,
    "history": list,
}
CONFIG = ("method", "acquisition", "selection", "cold_start", "solver")  # and its "config"


def fingerprint(graph: Graph) -> str:
    t, digest = graph.topology, hashlib.sha256(str(graph.num_nodes).encode())
    for tensor in (t.i, t.j, graph.weight):
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def solver_config(solver: Solver) -> dict[str, Any]:
    """`Auto` by its numbers; its groups are found again in the graph."""
    if not isinstance(solver, Auto):
        return {"name": None, "repr": repr(solver)}
    options = {f.name: getattr(solver, f.name) for f in dataclasses.fields(solver) if f.name != "multilevel"}
    grouped = solver.multilevel.groups is not None
    return {"name": "auto", "options": options | {"coarsest": solver.multilevel.coarsest, "grouped": grouped}}


def solver_on(graph: Graph) -> Callable[..., Auto]:
    """What makes the solver of `solver_config` again."""

    def make(name: str, *, coarsest: int = 1000, grouped: bool = False, **options: Any) -> Auto:
        known = {f.name for f in dataclasses.fields(Auto)} - {"multilevel"}
        if name != "auto" or not set(options) <= known:
            raise ValueError(f"unknown solver {name!r} with options {sorted(options)} in a stored session")
        multilevel = Multilevel.of(graph, coarsest=coarsest) if grouped else Multilevel(coarsest=coarsest)
        return Auto(**options, multilevel=multilevel)

    return make


def method_config(method: AbstractMethod) -> dict[str, Any]:
    names = [name for name, kind in METHODS.items() if kind is type(method)]
    changed: dict[str, Any] = {}
    for entry in dataclasses.fields(method):  # type: ignore[arg-type]
        value = getattr(method, entry.name)
        plain = isinstance(value, str | int | float | bool | None)
        if plain:
            changed[entry.name] = value
        elif entry.default_factory is dataclasses.MISSING or value != entry.default_factory():
            names = []  # an object that a name cannot make again
    return {"name": names[0], "options": changed} if names else {"name": None, "repr": repr(method)}


def config_of(
    method: AbstractMethod,
    acquisition: AbstractAcquisition,
    selection: AbstractSelection | None,
    cold_start: AbstractAcquisition,
    solver: Solver | None,
) -> dict[str, Any]:
    """The names and options of the objects that a session is run with."""
    return {
        "method": method_config(method),
        "acquisition": as_config(acquisition),
        "selection": None if selection is None else as_config(selection),
        "cold_start": as_config(cold_start),
        "solver": None if solver is None else solver_config(solver),
    }


def objects_of(config: dict[str, Any], graph: Graph, replaced: dict[str, Any]) -> dict[str, Any]:
    """The objects that a session was run with, made again from `config_of`, but for those that are replaced."""
    makers: dict[str, Callable[..., Any]] = {
        "method": method_from_name,
        "acquisition": acquisition_from_name,
        "selection": selection_from_name,
        "cold_start": acquisition_from_name,
        "solver": solver_on(graph),
    }
    unknown = sorted(set(replaced) - set(makers))
    if unknown:
        raise ValueError(f"load cannot replace {', '.join(unknown)}; only {', '.join(makers)}")
    found = dict(replaced)
    for name, maker in makers.items():
        stored = config[name]
        if name in replaced or stored is None:
            continue
        if stored["name"] is None:
            raise ValueError(f"the session used {stored['repr']} as its {name}: pass {name}= to load")
        found[name] = maker(stored["name"], **stored["options"])
    return found


def write_session(folder: Path, graph: Graph, node_mass: list[float] | None, state: dict[str, Any]) -> None:
    """Write the graph, unless it is there, and the state; both appear whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    graph_file, state_file = folder / "graph.safetensors", folder / "state.json"
    if state_file.exists() and read_state(state_file)["graph"] != state["graph"]:
        raise FileExistsError(f"{folder} holds a session on another graph; choose another folder")
    if not state_file.exists() or not graph_file.exists():
        t = graph.topology
        tensors = {"i": t.i, "j": t.j, "weight": graph.weight}
        if graph.features is not None:
            tensors["features"] = graph.features
        if node_mass is not None:
            tensors["node_mass"] = torch.tensor(node_mass, dtype=torch.float64)
        data = safetensors.torch.save(
            {k: v.detach().cpu().contiguous() for k, v in tensors.items()},
            {"format": FORMAT, "nodes": str(graph.num_nodes)},
        )
        with complete_file(graph_file) as file:
            file.write_bytes(data)
    with complete_file(state_file) as file:
        file.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")


def read_state(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(f"there is no stored session in {path.parent}: {path.name} is missing")
    try:
        state = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is damaged or no stored session: {error}") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"{path} is not a stored session of this library")
    if state.get("version") != VERSION:
        raise ValueError(f"{path} has version {state.get('version')}, this library reads version {VERSION}")
    _check_keys(path, state, STATE)
    _check_keys(path, state["config"], dict.fromkeys(CONFIG, dict | None))
    for config in state["config"].values():
        if config is not None:
            _check_keys(path, config, {"name": str | None})
            _check_keys(path, config, {"repr": str} if config["name"] is None else {"options": dict})
    if len(state["index"]) != len(state["labels"]):
        raise ValueError(f"{path} is damaged: {len(state['index'])} labelled nodes, but {len(state['labels'])} labels")
    return state


def _check_keys(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for key, kind in wanted.items():
        if key not in found:
            raise ValueError(f"{path} is damaged: it has no {key!r}")
        if not isinstance(found[key], kind):
            name = {list: "a list", dict: "an object", str: "a string", int: "an integer", bool: "true or false"}
            what = name.get(kind) or str(kind)
            raise ValueError(f"{path} is damaged: {key!r} must be {what}, got {found[key]!r}")


def read_graph(path: Path, device: torch.device | str) -> tuple[Graph, Tensor | None]:
    """The graph, and how much labels of its nodes count."""
    try:
        with safetensors.safe_open(path, "pt") as file:
            about = file.metadata()
            if about["format"] != FORMAT:
                raise ValueError(f"its format is {about['format']!r}")
            nodes = int(about["nodes"])
            tensors = {name: file.get_tensor(name).to(device) for name in file.keys()}  # noqa: SIM118
        graph = Graph(Topology(nodes, tensors["i"], tensors["j"]), tensors["weight"], tensors.get("features"))
    except (SafetensorError, FileNotFoundError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is missing, damaged or no stored graph: {error}") from None
    return graph, tensors.get("node_mass")
