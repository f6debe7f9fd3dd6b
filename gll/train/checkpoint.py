"""A checkpoint: one file that is there whole or not at all, and tells when it was damaged since.

Tensors lie in the safetensors format, everything else as JSON in its header, with a checksum over both; reading one
executes nothing. The file is written under a temporary name, forced to the disk and renamed: a process killed at any
moment leaves the checkpoint before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from gll.files import complete_file

FORMAT, VERSION = "gll.checkpoint", "1"


class CheckpointError(ValueError):
    """A checkpoint that cannot be read; the message says why."""


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Write tensors and a JSON state to `path`, atomically.

    Raises:
        OSError: it cannot be written; the disk is full, for example.
        ValueError: a tensor has a NaN or an infinite value. A checkpoint is for going on from, so none is written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.safetensors"
    ...     save_checkpoint(path, {"w": torch.ones(2)}, {"epoch": 3})
    ...     load_checkpoint(path)
    ({'w': tensor([1., 1.])}, {'epoch': 3})
    """
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    for name, tensor in kept.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} has values that are not finite: no checkpoint was written")
    # Tied weights share memory, which safetensors refuses: each name gets its own copy.
    seen: set[int] = set()
    for name, tensor in kept.items():
        if tensor.numel() and tensor.untyped_storage().data_ptr() in seen:
            kept[name] = tensor.clone()
        seen.add(kept[name].untyped_storage().data_ptr())
    text = json.dumps(state, allow_nan=False)
    header = {"format": FORMAT, "version": VERSION, "state": text, "sha256": _checksum(kept, text)}
    try:
        with complete_file(path) as temporary:
            save_file(kept, temporary, metadata=header)
    except (SafetensorError, OSError) as error:
        raise OSError(
            f"{path} cannot be written ({error}); the checkpoint before it is as it was: make room, then resume the run"
        ) from None


def load_checkpoint(path: Path, device: str | torch.device = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_checkpoint` wrote.

    Raises:
        FileNotFoundError: there is none.
        CheckpointError: the file is cut off, damaged or of another kind.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise CheckpointError(f"{path} is no checkpoint of gll")
            if header.get("version") != VERSION:
                raise CheckpointError(f"{path} has version {header.get('version')}; this gll reads version {VERSION}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); it was cut off or damaged") from None
    text = header.get("state", "")
    if _checksum(tensors, text) != header.get("sha256"):
        raise CheckpointError(
            f"{path} was damaged after it was written: its checksum does not fit; remove it to start that part again"
        )
    return {name: tensor.to(device) for name, tensor in tensors.items()}, json.loads(text)


def load_state(module: nn.Module, state: Mapping[str, Tensor], part: str) -> None:
    """`load_state_dict`, with an error that says what it means for a run.

    Args:
        module: what was trained.
        state: its tensors, from a checkpoint.
        part: what to call it: "encoder" or "head".

    Raises:
        CheckpointError: they are those of another network.
    """
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise CheckpointError(
            f"the {part} is not the one that was trained: {said}. If it is of your own, its code or its options have "
            "changed since"
        ) from None


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """Over names, types, shapes and bytes of the tensors, and the JSON text."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()
