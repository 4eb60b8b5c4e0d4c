"""Images as scikit-learn passes them: rows of pixels, arrays or tensors."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere import data
from whatwhere.errors import ImageError, SpecError
from whatwhere.spec.checks import pair

Images = np.ndarray | Tensor | list[Any] | data.Images
COLOUR_CHANNELS = (1, 3, 4)  # sizes of a last axis that suggest channels


def as_images(estimator: Any, X: Images, *, reset: bool, nonnegative: bool, allow_nan: bool = False) -> Tensor:
    """Images as a float32 tensor [n, C, H, W]; with `reset` their shape is recorded, otherwise compared.

    estimator   with a parameter `shape`, for rows of pixels; gets the attribute `image_shape_`
    """
    from sklearn.utils.validation import check_non_negative, validate_data  # checked for by the estimators' modules

    X = X[:] if isinstance(X, data.Images) else X
    values = X.detach().cpu().numpy() if isinstance(X, Tensor) else np.asarray(X) if isinstance(X, list) else X
    given = tuple(getattr(values, "shape", ()))
    if len(given) == 3 and pair(getattr(estimator, "filter_size", 0))[0] == 1:  # signals are images of height 1
        given = (*given[:2], 1, given[2])
    if len(given) in (3, 4):  # scikit-learn would treat the second axis as the features
        values = np.reshape(values, (given[0], prod(given[1:])))
    finite = "allow-nan" if allow_nan else True
    values = validate_data(estimator, values, reset=reset, dtype=np.float32, order="C", ensure_all_finite=finite)
    if reset:
        estimator.image_shape_ = image_shape(given if len(given) in (3, 4) else values.shape, estimator.shape)
    elif len(given) in (3, 4) and (1, *given[1:])[-3:] != estimator.image_shape_:
        image_shape(given, estimator.shape)  # raises an error of its own where channels come last
        raise ImageError(f"images of shape {given[1:]} were given; expected {estimator.image_shape_}, as in fit")
    if nonnegative:
        check_non_negative(
            np.where(np.isnan(values), 0, values),
            f"{type(estimator).__name__} (shift the images, or give nonnegative=False)",
        )
    return torch.from_numpy(values).view(len(values), *estimator.image_shape_)


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
