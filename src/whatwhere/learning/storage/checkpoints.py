"""A checkpoint: one file that is renamed into place, and the latents that it points at.

    checkpoint/state.safetensors     filters, where training stands, history, recipe, where each batch's latents lie
    checkpoint/latents/layer2-0/…    the latents (see `latent_files`)

Everything that one rename makes valid together is in the one file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from whatwhere.errors import RunError
from whatwhere.files import is_regular, write_atomic

FORMAT = "whatwhere checkpoint 2"
STATE = "state.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """All that training needs to continue, except the latents themselves.

    layer, epoch, batch  what comes next: batches before `batch` of that epoch are inferred already
    recipe               as TOML
    images               fingerprint of the images
    latent_dtype         the type that latents are stored in
    notes                of the program that began the run, for the one that continues it
    history              one table an epoch
    tensors              filters and connectivity, the places of the latents, sums of an epoch in progress
    """

    layer: int
    epoch: int
    batch: int
    recipe: str
    images: str
    latent_dtype: str
    notes: dict[str, Any]
    history: tuple[dict[str, Any], ...]
    tensors: Mapping[str, Tensor]


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a checkpoint: from the rename on it is the one, until then the last one is."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    content = json.dumps({f.name: getattr(checkpoint, f.name) for f in fields(checkpoint) if f.name != "tensors"})
    metadata = {"format": FORMAT, "content": content, "checksum": str(_checksum(content, tensors))}
    write_atomic(folder / STATE, to_bytes(tensors, metadata=metadata))


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read the checkpoint in a folder; a missing, damaged or foreign one raises an error."""
    path = folder / STATE
    if not is_regular(path):
        raise RunError(f"{path}: there is no checkpoint here to continue from")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
        if metadata.get("format") != FORMAT:
            raise RunError(f"{path} holds {metadata.get('format')!r}; expected {FORMAT!r}, of this version")
        if metadata["checksum"] != str(_checksum(metadata["content"], tensors)):
            raise RunError(f"{path} is damaged: its checksum is wrong")
        content = json.loads(metadata["content"])
        return Checkpoint(**{**content, "history": tuple(content["history"])}, tensors=tensors)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def has_checkpoint(folder: Path) -> bool:
    return is_regular(folder / STATE)


def _checksum(content: str, tensors: Mapping[str, Tensor]) -> int:
    checksum = zlib.crc32(content.encode())
    for name, tensor in sorted(tensors.items()):
        header = f"{name} {tensor.dtype} {list(tensor.shape)}".encode()
        checksum = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, zlib.crc32(header, checksum))
    return checksum
