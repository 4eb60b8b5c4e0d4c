"""Detectors as safetensors files: the settings as JSON, the statistics, and the normal pictures that are kept."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from torch import Tensor

from whatwhere.anomaly.aligned import NormalObject
from whatwhere.anomaly.detector import AnomalyDetector
from whatwhere.anomaly.evidence import NormalSurface, Usual
from whatwhere.anomaly.filters import Filters
from whatwhere.anomaly.pictures import Sample
from whatwhere.anomaly.threshold import choose_threshold
from whatwhere.files import readable
from whatwhere.model.files import read_checked, write_checked

FORMAT = "whatwhere anomaly detector 4"


def save(detector: AnomalyDetector, path: Path) -> None:
    """Write a detector; the file appears complete or not at all."""
    sample, tensors = detector.sample_, dict[str, Tensor]()
    settings = {
        "parameters": detector.get_params(),
        "filters": take_tensors("filters", detector.filters_, tensors),
        "normal": take_tensors("normal", detector.normal_, tensors),
        "usual": take_tensors("usual", detector.usual_, tensors),
        "sample": {"limit": sample.limit, "seed": sample.seed, "seen": sample.seen},
        "numbers": sample.numbers,
    }
    tensors |= {"units": detector.units_, "map_units": detector.map_units_}
    tensors["scores"] = torch.from_numpy(detector.normal_scores_)
    tensors |= {f"picture.{n}": as_bytes(picture) for n, picture in enumerate(sample.pictures)}
    write_checked(path, FORMAT, settings, {name: tensor.contiguous() for name, tensor in tensors.items()})


def load(path: Path) -> AnomalyDetector:
    """Read a detector that `save` wrote; a damaged file, or one of another format, raises a RunError."""
    with readable(path, "anomaly detector", "copy it again, or fit again"):
        settings, tensors = read_checked(path, FORMAT)
        detector = AnomalyDetector(**settings["parameters"])
        kind = NormalObject if detector.aligned else NormalSurface
        detector.filters_ = with_tensors("filters", Filters, settings["filters"], tensors)
        detector.normal_ = with_tensors("normal", kind, settings["normal"], tensors)
        detector.usual_ = with_tensors("usual", Usual, settings["usual"], tensors)
        detector.sample_ = Sample(**settings["sample"])
        pictures = [tensors[f"picture.{n}"] for n in range(len(settings["numbers"]))]
        for number, picture in zip(settings["numbers"], pictures, strict=True):
            detector.sample_.keep(number, picture.float() / 255 if picture.dtype == torch.uint8 else picture)
        detector.units_, detector.map_units_ = tensors["units"], tensors["map_units"]
        detector.normal_scores_ = tensors["scores"].numpy()
        detector.threshold_ = choose_threshold(detector.normal_scores_, detector._spec().false_alarms)
        detector.score_samples(pictures[:1])  # parts that do not match each other raise here
    return detector


def take_tensors(name: str, value: Any, tensors: dict[str, Tensor]) -> Any:
    """A value without its tensors, which are added to `tensors` by their names."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return None
    if not is_dataclass(value):
        return value
    return {f.name: take_tensors(f"{name}.{f.name}", getattr(value, f.name), tensors) for f in fields(value)}


def with_tensors(name: str, kind: Any, value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `take_tensors`."""
    if not isinstance(value, dict):
        return tensors[name] if kind is Tensor else tuple(value) if isinstance(value, list) else value
    kinds = get_type_hints(kind)
    return kind(**{part: with_tensors(f"{name}.{part}", kinds[part], value[part], tensors) for part in value})


def as_bytes(picture: Tensor) -> Tensor:
    """A picture as bytes, if nothing is lost."""
    values = torch.from_numpy(np.rint(255 * picture.nan_to_num(-1.0).numpy()).clip(0, 255)).to(torch.uint8)
    return values if torch.equal(values.float() / 255, picture) else picture
