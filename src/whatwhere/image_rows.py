"""Images as scikit-learn passes them: rows of pixels, arrays or tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod

import numpy as np
import torch
from torch import Tensor

from whatwhere.errors import ImageError, SpecError

Images = np.ndarray | Tensor
COLOUR_CHANNELS = (1, 3, 4)  # sizes of a last axis that suggest channels


def image_shape(given: tuple[int, ...], shape: Sequence[int] | None) -> tuple[int, ...]:
    """(C, H, W) of images, from the shape of the array that was given and, for rows of pixels, what `shape` says."""
    if len(given) == 4:
        if given[3] in COLOUR_CHANNELS and given[1] not in COLOUR_CHANNELS and shape is None:
            raise ImageError(
                f"images of shape {given} were given, which look like (n, H, W, C); expected (n, C, H, W): give "
                f"np.moveaxis(X, -1, 1), or shape={given[1:]} if axis 1 holds {given[1]} channels"
            )
        return given[1:]
    if len(given) == 3:
        return (1, *given[1:])
    pixels = given[1]
    if shape is None:
        side = isqrt(pixels)
        return (1, side, side) if side * side == pixels else (1, 1, pixels)
    full = (1, *shape) if len(shape) == 2 else tuple(shape)
    if len(full) != 3 or prod(full) != pixels:
        raise SpecError(f"shape = {shape} with rows of {pixels} pixels; expected (H, W) or (C, H, W) of them")
    return full


def like(given: Images, values: Images) -> Images:
    """The values as an array if an array was given, or as a tensor on the same device if a tensor was given."""
    if isinstance(given, Tensor):
        return torch.as_tensor(values).to(given.device)
    return values.cpu().numpy() if isinstance(values, Tensor) else values
