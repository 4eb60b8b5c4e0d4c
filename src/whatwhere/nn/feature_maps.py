"""Maps of any network or function, checked: pictures [n, C, h, w] → maps [n, D, h', w'].

All classes that accept features of a user's choice (`AnomalyDetector`, `MapFeatures`, `Labelling`)
accept such a callable.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from whatwhere.errors import ImageError, SpecError

FeatureMaps = Callable[[Tensor], Tensor | Sequence[Tensor]]
"""From pictures [n, C, h, w] to maps [n, D, h', w'], one or several."""


def feature_maps(function: FeatureMaps, pictures: Tensor) -> list[Tensor]:
    """Return the maps of pictures [n, C, H, W] by a user's callable, in float32 on the CPU."""
    with torch.no_grad():
        found: Any = function(pictures)
    maps = [found] if isinstance(found, Tensor) else list(found)
    if not maps:
        raise ImageError(f"{name_of(function)} returned no map; expected one or several.")
    for one in maps:
        if not isinstance(one, Tensor) or one.ndim != 4 or len(one) != len(pictures):
            given = tuple(one.shape) if isinstance(one, Tensor) else type(one).__name__
            raise ImageError(
                f"{name_of(function)} returned {given} for pictures {tuple(pictures.shape)};"
                " expected maps [n, D, h, w]."
            )
        if not one.numel() or not one.isfinite().all():
            raise ImageError(
                f"{name_of(function)} returned an empty or non-finite map {tuple(one.shape)} for"
                f" pictures {tuple(pictures.shape)}. Check that the pictures are large enough for"
                " it."
            )
    return [one.detach().float().cpu() for one in maps]


def check_features(function: object) -> None:
    """Raise a SpecError unless it is a callable that does not change while it is used."""
    if not callable(function):
        raise SpecError(
            f"Got features = {function!r}; expected a callable from pictures [n, C, h, w] to maps"
            " [n, D, h', w']."
        )
    if isinstance(function, nn.Module) and function.training:
        raise SpecError(
            f"The network {name_of(function)} is in training mode, in which it changes with every"
            " picture. Call eval() on it first."
        )


def name_of(function: object) -> str:
    """Return the name of a function, or of an object's class."""
    return str(getattr(function, "__name__", type(function).__name__))
