"""Checksums that identify models and the content of files: of settings as plain values and of
tensors."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from whatwhere.files import FileFields
from whatwhere.spec import InputSpec, ModelSpec
from whatwhere.spec.toml import build


def checksum(spec: str, tensors: Mapping[str, Tensor]) -> str:
    """Compute sha256 of the spec and of every tensor's name, dtype, shape and bytes, in the order
    of their names."""
    digest = hashlib.sha256(spec.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(_raw(tensor))
    return digest.hexdigest()


def canonical(fields: dict[str, object]) -> str:
    """Return JSON with sorted keys and no spaces: one text for one value."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def spec_fields(spec: ModelSpec) -> dict[str, object]:
    """Write the settings of a model as plain values, in the form that files and checksums have.

    Some settings are included only if they differ from their default, and a kind of pooling without
    settings is the name `pooling_kind`.
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


def spec_of_fields(fields: FileFields) -> ModelSpec:
    """Read the settings of a model from the plain values that `spec_fields` writes."""
    layers = [
        {"pooling" if name == "pooling_kind" else name: value for name, value in layer.items()}
        for layer in fields["layers"]
    ]
    return build(ModelSpec, fields | {"layers": layers})


def layer_tensors(filters: Sequence[Tensor], connectivity: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a model's layers by their names in a file, on the CPU."""
    tensors = {}
    for k, (f, connected) in enumerate(zip(filters, connectivity, strict=True), start=1):
        tensors[f"layer{k}.filters"] = f.detach().cpu().contiguous()
        tensors[f"layer{k}.connectivity"] = connected.cpu().contiguous()
    return tensors


def _raw(tensor: Tensor) -> bytes:
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
