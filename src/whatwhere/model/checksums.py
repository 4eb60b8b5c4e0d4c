"""Checksums that identify models and the content of files: of settings as plain values and of
tensors."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from whatwhere.spec import InputSpec, ModelSpec


def checksum(spec: str, tensors: Mapping[str, Tensor]) -> str:
    """sha256 of the spec and of every tensor's name, dtype, shape and bytes, in the order of their
    names."""
    digest = hashlib.sha256(spec.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(_raw(tensor))
    return digest.hexdigest()


def canonical(fields: dict[str, Any]) -> str:
    """JSON with sorted keys and no spaces: one text for one value."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def spec_fields(spec: ModelSpec) -> dict[str, Any]:
    """The settings of a model as plain values, in the form of the first version, so that checksums
    stay the same.

    A setting of a later version is included only if it differs from its default. A kind of pooling
    without settings has its old name.
    """
    fields = asdict(spec)
    if not fields["signed_filters"]:
        del fields["signed_filters"]
    for name in ("span", "hum"):
        if getattr(spec.input, name) == getattr(InputSpec, name):
            del fields["input"][name]
    for layer in fields["layers"]:
        if set(layer["pooling"]) == {"kind"}:
            layer["pooling_kind"] = layer.pop("pooling")["kind"]
    return fields


def layer_tensors(filters: Sequence[Tensor], connectivity: Sequence[Tensor]) -> dict[str, Tensor]:
    """The tensors of a model's layers by their names in a file, on the CPU."""
    tensors = {}
    for k, (f, connected) in enumerate(zip(filters, connectivity, strict=True), start=1):
        tensors[f"layer{k}.filters"] = f.detach().cpu().contiguous()
        tensors[f"layer{k}.connectivity"] = connected.cpu().contiguous()
    return tensors


def _raw(tensor: Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
