"""Models as safetensors files: filters, connectivity, and the spec inside; nothing is pickled."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from whatwhere.atomic import write_atomic
from whatwhere.errors import RunError, SpecError
from whatwhere.model.deconvnet import DeconvNet
from whatwhere.regular_file import is_folder, is_regular
from whatwhere.spec import ModelSpec
from whatwhere.spec_toml import build

FORMAT = "whatwhere model 1"


def save(model: DeconvNet, path: str | os.PathLike[str]) -> None:
    """Write a model; the file appears whole or not at all."""
    from safetensors.torch import save as to_bytes

    tensors = {}
    for k, (f, connected) in enumerate(zip(model.filters, model.connectivity, strict=True), start=1):
        tensors[f"layer{k}.filters"] = f.detach().cpu().contiguous()
        tensors[f"layer{k}.connectivity"] = connected.cpu().contiguous()
    content = to_bytes(tensors, metadata={"format": FORMAT, "spec": json.dumps(asdict(model.spec))})
    write_atomic(Path(path), content)


def load(path: str | os.PathLike[str]) -> DeconvNet:
    """Read a model that `save` wrote, or that of a run folder; another version or a damaged file raises a RunError."""
    from safetensors import SafetensorError, safe_open

    if not os.fspath(path):
        raise RunError("an empty path was given; expected a model file or a run folder")
    path = Path(path)
    if is_folder(path):
        path = path / "model.safetensors"
    if not is_regular(path):
        raise RunError(f"{path} was given as a model; there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                found = metadata.get("format", "no format at all")
                raise RunError(f"{path} holds {found!r}; expected {FORMAT!r} (train or save the model again)")
            spec = build(ModelSpec, _current_names(json.loads(metadata["spec"])))
            layers = range(1, spec.depth + 1)
            filters = [file.get_tensor(f"layer{k}.filters") for k in layers]
            connectivity = [file.get_tensor(f"layer{k}.connectivity") for k in layers]
    except (SafetensorError, OSError, KeyError, json.JSONDecodeError, SpecError) as error:
        raise RunError(f"{path} is not a usable model file: {error} (copy it again, or train again)") from error
    model = DeconvNet.from_parts(spec, filters, connectivity)
    _check_shapes(path, model)
    return model


def _check_shapes(path: Path, model: DeconvNet) -> None:
    for k, layer in enumerate(model.spec.layers, start=1):
        f, connected = model.filters[k - 1], model.connectivity[k - 1]
        plane = (model.spec.maps_below(k), layer.maps)
        expected = (*plane, layer.filter_size, layer.filter_size)
        if tuple(f.shape) != expected or tuple(connected.shape) != plane or connected.dtype != torch.bool:
            raise RunError(f"{path} holds filters {list(f.shape)} at layer {k}; its spec says {list(expected)}")
        if not f.isfinite().all():
            raise RunError(f"{path} holds filters that are not finite at layer {k} (train again)")


def _current_names(spec: dict[str, Any]) -> dict[str, Any]:
    """Files written by version 0.1 call a layer's `pooling_kind` `pooling`."""
    layers = [{"pooling_kind" if key == "pooling" else key: v for key, v in layer.items()} for layer in spec["layers"]]
    return {**spec, "layers": layers}
