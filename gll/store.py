"""A fitted classifier in a file: tensors in the safetensors format, everything else as JSON in its header.

Reading such a file executes nothing that is in it: tensors are bytes of a stated type and shape, and the few objects a
classifier holds (a search, a solver, a method) are looked up by name in a fixed list and built from plain values. A
file that is cut off, of another kind, of another version, or does not fit together, is refused with a sentence.

A file is written under a temporary name beside its place, and renamed when it is complete: an interrupted `save` leaves
an older file as it was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from gll import methods, solvers
from gll.estimator import GraphLearningClassifier
from gll.faiss import Faiss
from gll.features import Metric
from gll.files import complete_file
from gll.fitted import Fitted, Stages, find_device
from gll.graph import Graph, Topology
from gll.methods import AbstractMethod, Propagation
from gll.neighbors import Exact
from gll.points import AbstractPoints, DensePoints, KnownSimilarities, SparsePoints
from gll.projected import AutoSearch, Projected
from gll.readout import Readout
from gll.targets import Targets

FORMAT = "gll.GraphLearningClassifier"
VERSION = 1
DIMENSIONS = {
    "score": 2,
    "probability": 2,
    "target.value": 2,
    "points.features": 2,
    "outside.index": 2,
    "outside.share": 2,
}
TENSOR_TYPES = {"float32": torch.float32, "float64": torch.float64, "int64": torch.int64, "bool": torch.bool}


class StoreError(ValueError):
    """A file that cannot be read as a stored classifier; the message says why."""


def save_classifier(model: GraphLearningClassifier, path: Path) -> None:
    """Write a fitted classifier. See `GraphLearningClassifier.save`."""
    fitted = model._fitted
    tensors: dict[str, Tensor] = {
        "graph.i": fitted.graph.topology.i,
        "graph.j": fitted.graph.topology.j,
        "graph.weight": fitted.graph.weight,
        "score": fitted.propagation.score,
        "probability": fitted.propagation.probability,
        "target.row": torch.from_numpy(fitted.targets.row),
        "target.value": torch.from_numpy(fitted.targets.value),
        "weight": torch.from_numpy(fitted.weight),
        "node": torch.from_numpy(fitted.node),
        "row": torch.from_numpy(fitted.row),
    }
    optional = {"unreached": fitted.propagation.unreached, "shift": fitted.propagation.readout.shift}
    if fitted.outside is not None:
        optional["outside.index"], optional["outside.share"] = fitted.outside
    points, kind = _points_to_tensors(fitted.points)
    optional.update({f"points.{name}": value for name, value in points.items()})
    tensors.update({name: value for name, value in optional.items() if value is not None})
    names = model.__dict__.get("feature_names_in_")
    about = {
        "parameters": {name: _plain(value, name) for name, value in model.get_params(deep=False).items()},
        "method": _plain(fitted.method, "method"),
        "classes": _classes_to_json(fitted.targets.classes),
        "points": kind,
        "steps": fitted.propagation.steps,
        "description": fitted.propagation.description,
        "scale": fitted.propagation.readout.scale,
        "temperature": fitted.temperature,
        "recall": model.recall_,
        "timings": model.timings_,
        "n_features_in": model.n_features_in_,
        "feature_names_in": None if names is None else [str(name) for name in names],
        "device": str(fitted.graph.weight.device),
    }
    ready = _separate({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
    text = json.dumps(about)
    metadata = {"format": FORMAT, "version": str(VERSION), "json": text, "sha256": _checksum(text, ready)}
    with complete_file(path) as temporary:
        save_file(ready, temporary, metadata=metadata)


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    """Of everything that is stored, so that a file that was damaged later is not taken for an answer."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if tensor.numel():
            digest.update(tensor.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def load_classifier(kind: type[GraphLearningClassifier], path: Path, device: Any) -> GraphLearningClassifier:
    """Read a fitted classifier. See `GraphLearningClassifier.load`."""
    about, tensors = _read_file(path)
    if device is not None:
        find_device(device)
    try:
        fitted_device = _device(device, str(about["device"]))
        parameters = {name: _object(value, fitted_device) for name, value in about["parameters"].items()}
        model, known = kind(**parameters), about
        if device is not None:
            model.device = str(fitted_device)
        moved = {name: value.to(fitted_device) for name, value in tensors.items()}
        _fill(model, known, moved)
    except StoreError:
        raise
    except (KeyError, TypeError, AttributeError, IndexError, RuntimeError, ValueError) as error:
        raise StoreError(f"{path} does not fit together as a stored classifier: {error}") from error
    return model


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise StoreError(f"{path} holds tensors, but not a classifier stored by gll")
            if metadata.get("version") != str(VERSION):
                raise StoreError(
                    f"{path} was written in version {metadata.get('version')} of the format; this gll reads version "
                    f"{VERSION}: load it with the gll that wrote it, or fit again"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if metadata.get("sha256") != _checksum(metadata["json"], tensors):
                raise StoreError(f"{path} is damaged: its contents do not match its checksum; write it again with save")
            return json.loads(metadata["json"]), tensors
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError) as error:
        size = path.stat().st_size
        raise StoreError(f"{path} ({size} bytes) is cut off, damaged, or no stored classifier: {error}") from error


def _fill(model: GraphLearningClassifier, about: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    i, j, weight, score = (tensors[name] for name in ("graph.i", "graph.j", "graph.weight", "score"))
    for name, value in tensors.items():
        _require(not value.is_floating_point() or bool(torch.isfinite(value).all()), f"{name} holds NaN or infinity")
        flat = DIMENSIONS.get(name, 1)
        _require(value.dim() == flat, f"{name} has {value.dim()} dimensions instead of {flat}")
    n, classes = score.shape
    node, rows = tensors["node"], len(tensors["node"])
    targets = (tensors["target.row"], tensors["target.value"])
    _require(i.shape == j.shape == weight.shape, "edges and weights differ in number")
    _require(tensors["probability"].shape == score.shape, "scores and probabilities differ in shape")
    _require(targets[1].shape == (len(targets[0]), classes), "labels and scores differ in shape")
    _require(tensors["weight"].shape == (rows,) and tensors["row"].shape == (n,), "rows and nodes differ in number")
    lost, shift = tensors.get("unreached"), tensors.get("shift")
    _require(score.is_floating_point() and weight.dtype == score.dtype, "scores and weights differ in type")
    _require(lost is None or (lost.shape == (n,) and lost.dtype == torch.bool), "unreached nodes are no mask of nodes")
    _require(shift is None or shift.shape == (classes,), "shifts and classes differ in number")
    outer = [tensors[f"outside.{name}"] for name in ("index", "share")] if bool((node < 0).any()) else []
    _require(not outer or outer[0].shape == outer[1].shape, "rows outside the graph differ in shape")
    _require(not outer or len(outer[0]) == int((node < 0).sum()), "rows outside the graph differ in number")
    ranges = [(outer[0].flatten(), 0, n)] if outer else []
    ranges += [(i, 0, n), (j, 0, n), (node, -1, n), (tensors["row"], 0, rows), (targets[0], 0, rows)]
    for index, low, end in ranges:
        _require(index.dtype == torch.int64, "an index is not of integers")
        _require(not len(index) or (int(index.min()) >= low and int(index.max()) < end), "an index is out of range")
    names = _classes_from_json(about["classes"])
    _require(len(names) == classes, "classes and scores differ in number")
    points = _points_from_tensors(about["points"], tensors, n, rows)
    features = points.features if isinstance(points, DensePoints) else None
    readout = Readout(about["scale"], shift)
    propagation = Propagation(
        score, tensors["probability"], int(about["steps"]), lost, None, str(about["description"]), readout
    )
    outside = (outer[0], outer[1]) if outer else None
    method = _object(about["method"], score.device)
    _require(isinstance(method, AbstractMethod), "there is no method")
    fitted = Fitted(
        method=method,
        points=points,
        graph=Graph(Topology(n, i, j), weight, features),
        targets=Targets(rows, names, targets[0].cpu().numpy(), targets[1].cpu().numpy()),
        weight=tensors["weight"].cpu().numpy(),
        node=node.cpu().numpy(),
        row=tensors["row"].cpu().numpy(),
        outside=outside,
        propagation=propagation,
        temperature=float(about["temperature"]),
        multilevel=None,
    )
    stages = Stages(0)
    stages.seconds.update(about["timings"])
    known: dict[str, Any] = {"n_features_in_": int(about["n_features_in"])}
    if about["feature_names_in"] is not None:
        known["feature_names_in_"] = np.array(about["feature_names_in"], dtype=object)
    model._publish(fitted, float(about["recall"]), stages, known)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise StoreError(f"the file does not fit together: {what}")


def _device(asked: Any, stored: str) -> torch.device:
    """The device asked for, else the stored one, else the CPU where that is missing."""
    if asked is not None:
        return find_device(asked)
    return torch.device(stored if torch.device(stored).type != "cuda" or torch.cuda.is_available() else "cpu")


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that share memory made separate, as the format demands."""
    seen: set[int] = set()
    out = {}
    for name, value in tensors.items():
        out[name] = value.clone() if value.untyped_storage().data_ptr() in seen else value
        seen.add(out[name].untyped_storage().data_ptr())
    return out


def _points_to_tensors(points: AbstractPoints) -> tuple[dict[str, Tensor | None], dict[str, Any]]:
    if isinstance(points, DensePoints):
        about = {"kind": "dense", "k": points.k, "metric": points.metric.value}
        return {"features": points.features, "bandwidth": points.bandwidth, "mass": points.mass}, about
    if isinstance(points, SparsePoints):
        x = points.features
        parts = {
            "data": torch.from_numpy(x.data),
            "indices": torch.from_numpy(x.indices.astype(np.int64)),
            "indptr": torch.from_numpy(x.indptr.astype(np.int64)),
        }
        about = {"kind": "sparse", "k": points.k, "metric": points.metric.value, "columns": x.shape[1]}
        about["dtype"] = str(points.dtype)[6:]
        return {**parts, "bandwidth": points.bandwidth, "mass": points.mass}, about
    assert isinstance(points, KnownSimilarities)
    about = {"kind": "similarities", "num_rows": points.num_rows, "dtype": str(points.dtype)[6:]}
    return {"mass": points.mass}, about


def _points_from_tensors(about: dict[str, Any], tensors: dict[str, Tensor], n: int, rows: int) -> AbstractPoints:
    mass = tensors.get("points.mass")
    _require(mass is None or mass.shape == (n,), "masses and nodes differ in number")
    dtype = {"float32": torch.float32, "float64": torch.float64}.get(about.get("dtype", "float32"), torch.float64)
    if about["kind"] == "similarities":
        return KnownSimilarities(tensors["row"], rows, mass, dtype, tensors["row"].device)
    bandwidth, k, metric = tensors["points.bandwidth"], int(about["k"]), Metric(about["metric"])
    _require(bandwidth.shape == (n,), "bandwidths and nodes differ in number")
    if about["kind"] == "dense":
        features = tensors["points.features"]
        _require(features.dim() == 2 and len(features) == n, "features and nodes differ in number")
        return DensePoints(features, bandwidth, mass, k, metric)
    _require(about["kind"] == "sparse", f"points of kind {about['kind']!r} are not known")
    data, indices, indptr = (tensors[f"points.{name}"].cpu().numpy() for name in ("data", "indices", "indptr"))
    x = scipy.sparse.csr_matrix((data, indices, indptr), shape=(n, int(about["columns"])))
    x.check_format(full_check=True)
    return SparsePoints(x, bandwidth, mass, k, metric, dtype)


def _classes_to_json(classes: NDArray[Any]) -> dict[str, Any]:
    if classes.dtype.kind not in "biufUO" or not all(isinstance(c, str | bool | int | float) for c in classes.tolist()):
        raise TypeError(f"classes of type {classes.dtype} cannot be stored: use strings, numbers or booleans")
    return {"dtype": "O" if classes.dtype.kind == "O" else classes.dtype.str, "values": classes.tolist()}


def _classes_from_json(stored: dict[str, Any]) -> NDArray[Any]:
    dtype = np.dtype(stored["dtype"])
    _require(dtype.kind in "biufUO", f"classes of type {dtype} are not known")
    _require(all(isinstance(c, str | bool | int | float) for c in stored["values"]), "classes are not plain values")
    return np.array(stored["values"], dtype=dtype)


def _known_kinds() -> dict[str, type]:
    """The objects that a classifier may hold as parameters: the ones of this library whose fields are plain values."""
    found: list[type] = [
        Exact,
        Faiss,
        AutoSearch,
        Projected,
        solvers.Auto,
        solvers.Cholesky,
        solvers.ConjugateGradient,
        solvers.Newton,
    ]
    found += [solvers.AMG, solvers.Multilevel, *methods.METHODS.values()]
    return {kind.__name__: kind for kind in found}


def _plain(value: Any, name: str) -> Any:
    """A parameter as JSON; objects as {"object": name, "fields": {...}}."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, Tensor) and str(value.dtype)[6:] in TENSOR_TYPES:
        return {"tensor": value.detach().tolist(), "dtype": str(value.dtype)[6:]}
    if isinstance(value, np.ndarray):
        return [_plain(v, name) for v in value.tolist()] if value.ndim else _plain(value.item(), name)
    if isinstance(value, list | tuple):
        return [_plain(v, name) for v in value]
    if isinstance(value, Mapping):
        return {"pairs": [[_plain(k, name), _plain(v, name)] for k, v in value.items()]}
    if isinstance(value, solvers.Multilevel):  # its groups are found again
        value = dataclasses.replace(value, groups=None)
    if _known_kinds().get(type(value).__name__) is type(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}  # type: ignore[arg-type]
        return {"object": type(value).__name__, "fields": {k: _plain(v, name) for k, v in fields.items()}}
    raise TypeError(
        f"the parameter {name} = {value!r} cannot be stored, because reading it back would mean running code; "
        "use a name, plain values, or an object of this library"
    )


def _object(stored: Any, device: torch.device) -> Any:
    """The inverse of `_plain`; tensors come to the device."""
    if isinstance(stored, list):
        return [_object(v, device) for v in stored]
    if not isinstance(stored, dict):
        return stored
    if "pairs" in stored:
        return {_object(k, device): _object(v, device) for k, v in stored["pairs"]}
    if "tensor" in stored:
        _require(stored["dtype"] in TENSOR_TYPES, f"tensors of type {stored['dtype']!r} are not known")
        return torch.tensor(stored["tensor"], dtype=TENSOR_TYPES[stored["dtype"]], device=device)
    kinds = _known_kinds()
    if stored.get("object") not in kinds:
        raise StoreError(f"the file names an object {stored.get('object')!r} that this gll does not know")
    return kinds[stored["object"]](**{name: _object(value, device) for name, value in stored["fields"].items()})
