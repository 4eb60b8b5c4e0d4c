"""Detectors as safetensors files: the settings as JSON, the statistics, and the normal pictures that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from torch import Tensor

from whatwhere.anomaly.aligned import NormalObject
from whatwhere.anomaly.detector import AnomalyDetector
from whatwhere.anomaly.evidence import NormalSurface
from whatwhere.anomaly.filters import Filters
from whatwhere.anomaly.pictures import Sample
from whatwhere.anomaly.threshold import choose_threshold
from whatwhere.model.files import read_checked, readable, write_checked

FORMAT = "whatwhere anomaly detector 1"
KEPT = ("limit", "seed", "seen")  # of the sample


def save(detector: AnomalyDetector, path: Path) -> None:
    """Write a detector; the file appears complete or not at all."""
    sample, filters = detector.sample_, detector.filters_
    settings = {
        "parameters": {**detector.get_params(), "scales": list(detector.scales)},
        "sample": {name: getattr(sample, name) for name in KEPT},
        "filters": {"dark": filters.dark, "scales": filters.scales, "aligned": filters.aligned},
    }
    tensors = {
        **flatten("normal", detector.normal_),
        "filters.mixing": filters.mixing,
        "filters.kernels": filters.kernels,
        "units": detector.units_,
        "scores": torch.from_numpy(detector.normal_scores_),
        "keys": torch.tensor([key for key, _, _ in sample.kept], dtype=torch.float64),
        "numbers": torch.tensor([number for _, number, _ in sample.kept]),
        **{f"picture.{n}": as_bytes(picture) for n, (_, _, picture) in enumerate(sample.kept)},
    }
    write_checked(path, FORMAT, settings, {name: tensor.contiguous() for name, tensor in tensors.items()})


def load(path: Path) -> AnomalyDetector:
    """Read a detector that `save` wrote; a damaged file, or one of another format, raises a RunError."""
    with readable(path, "anomaly detector", "copy it again, or fit again"):
        spec, tensors = read_checked(path, FORMAT)
        detector = AnomalyDetector(**{**spec["parameters"], "scales": tuple(spec["parameters"]["scales"])})
        settings = {**spec["filters"], "scales": tuple(spec["filters"]["scales"])}
        detector.filters_ = Filters(mixing=tensors["filters.mixing"], kernels=tensors["filters.kernels"], **settings)
        detector.normal_ = unflatten("normal", NormalObject if detector.aligned else NormalSurface, tensors)
        detector.sample_ = read_sample(spec["sample"], tensors)
        detector.units_, detector.normal_scores_ = tensors["units"], tensors["scores"].numpy()
        detector.threshold_ = choose_threshold(detector.normal_scores_, detector._spec().false_alarms)
        detector.score_samples([detector.sample_.kept[0][2]])  # parts that do not fit each other raise here
    return detector


def read_sample(values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Sample:
    sample = Sample(**values)
    entries = zip(tensors["keys"].tolist(), tensors["numbers"].tolist(), strict=True)
    for n, (key, number) in enumerate(entries):
        picture = tensors[f"picture.{n}"]
        sample.kept.append((key, number, picture.float() / 255 if picture.dtype == torch.uint8 else picture))
    sample.size = sum(picture.numel() for _, _, picture in sample.kept)
    return sample


def flatten(name: str, value: Any) -> dict[str, Tensor]:
    """The tensors of a dataclass, and of those in it, by their names."""
    if not is_dataclass(value):
        return {name: value}
    parts = (flatten(f"{name}.{f.name}", getattr(value, f.name)) for f in fields(value))
    return {key: tensor for part in parts for key, tensor in part.items()}


def unflatten(name: str, kind: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `flatten`."""
    if kind is Tensor:
        return tensors[name]
    hints = get_type_hints(kind)
    return kind(**{f.name: unflatten(f"{name}.{f.name}", hints[f.name], tensors) for f in fields(kind)})


def as_bytes(picture: Tensor) -> Tensor:
    """A picture as bytes, if nothing is lost."""
    values = torch.from_numpy(np.rint(255 * picture.nan_to_num(-1.0).numpy()).clip(0, 255)).to(torch.uint8)
    return values if torch.equal(values.float() / 255, picture) else picture
