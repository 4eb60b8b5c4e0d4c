"""A model as the page's engine reads it: plain values, with arrays in base64."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from torch import Tensor

from whatwhere.errors import SpecError
from whatwhere.model import DeconvNet
from whatwhere.model.deconvnet import times
from whatwhere.spec import InferenceSpec


def pack_model(model: DeconvNet) -> dict[str, Any]:
    """The model's input stage, and its layers: filters [below, maps, K, K] as float32 and connectivity as bytes."""
    for k, layer in enumerate(model.spec.layers, start=1):
        if layer.pool_maps != 1:
            raise SpecError(
                f"layer {k} pools {layer.pool_maps} maps together; the explorer shows models that pool within a map"
                " (pool_maps = 1)"
            )
        if not layer.square:
            raise SpecError(
                f"layer {k} has filters of {times(layer.filter_shape)} and regions of {times(layer.pool_shape)}; the"
                " explorer shows models whose filters and regions are square"
            )
    layers = [
        {
            "maps": layer.maps,
            "filterSize": layer.filter_size,
            "kind": layer.pooling_kind,
            "poolSize": layer.pool_size,
            "stride": layer.strides[0],
            "filters": to_base64(filters, np.float32),
            "connected": to_base64(connected, np.uint8),
        }
        for layer, filters, connected in zip(model.spec.layers, model.filters, model.connectivity, strict=True)
    ]
    spec, stage = model.spec, model.spec.input
    steps = {"contrast": stage.contrast, "contrastSigma": stage.contrast_sigma, "contrastFloor": stage.contrast_floor}
    given = {"kind": stage.kind, "sigma": stage.sigma, **steps}
    return {"channels": spec.channels, "nonnegative": spec.nonnegative, "input": given, "layers": layers}


def pack_settings(spec: InferenceSpec) -> dict[str, Any]:
    """The settings of inference under the names that the page uses."""
    return {
        "lambda": spec.lam,
        "alpha": spec.alpha,
        "steps": spec.steps,
        "poolingStep": spec.pooling_step,
        "gammaMin": spec.moments.gamma_min,
        "gammaMax": spec.moments.gamma_max,
        "momentPower": spec.moments.power,
    }


def to_base64(values: Tensor, dtype: type[np.generic]) -> str:
    array = values.detach().cpu().numpy().astype(np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")
