"""What restoration is given, checked before any work is done."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from whatwhere.errors import ImageError, SpecError
from whatwhere.inference.target import as_weights, check_mask
from whatwhere.restoration.anscombe import PoissonGaussian
from whatwhere.restoration.denoiser import Denoiser
from whatwhere.restoration.dictionary import Dictionary

Model = Denoiser | Dictionary
Images = Tensor | np.ndarray
LARGEST = 1e15
"""Of a value: squares of it, summed over a picture, are within the range of float32."""
ImagesT = TypeVar("ImagesT", Tensor, np.ndarray)


def as_images(model: Model, images: Images, mask: Tensor | None = None) -> Tensor:
    """Images [N, C, H, W] in the model's dtype and on its device, once they can be restored.

    Where a mask is 0 they become 0, whatever they were.
    """
    tensor: Any = as_tensor(images)  # which leaves alone what is neither tensor nor array
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(images).__name__
        raise ImageError(
            f"{kind} was given; expected a float tensor or array [N, C, H, W] "
            "(whatwhere.data.load scales whole numbers)"
        )
    if tensor.ndim != 4 or 0 in tensor.shape:
        raise ImageError(
            f"images of shape {list(tensor.shape)} were given; expected [N, C, H, W] "
            "(image[None, None] makes one of a grey picture [H, W])"
        )
    if mask is not None:
        check_mask(tensor, mask)
        tensor = torch.where(mask.to(tensor.device) > 0, tensor, 0)
    if not tensor.isfinite().all():
        raise ImageError("images with NaN or infinite values were given; `inpaint` fills in what a mask marks with 0")
    if (largest := float(tensor.abs().max())) > LARGEST:
        raise ImageError(
            f"images with values up to {largest:.4g} were given; expected at most {LARGEST:g} (scale them)"
        )
    result: Tensor = tensor.detach().to(model.device, model.dtype)
    return result


def as_mask(mask: Images) -> Tensor:
    """A mask as a float tensor, 1 where a pixel is known and 0 where not."""
    tensor = as_weights(mask)
    if tensor.is_floating_point() and not (tensor.isfinite() & (tensor >= 0)).all():
        raise ImageError("a mask with negative, NaN or infinite values was given; expected 0 (unknown) and 1 (known)")
    return (tensor > 0).float()


def as_tensor(values: Images) -> Tensor:
    """An array as a tensor; anything else as it is."""
    return torch.from_numpy(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else values


def read_noise(noise: object) -> float | PoissonGaussian | None:
    """What a user gave as noise; a SpecError for what none can have."""
    if noise is None or _is_level(noise):
        return noise  # type: ignore[return-value]
    if noise == "poisson":
        return PoissonGaussian()
    if isinstance(noise, tuple) and len(noise) == 2 and all(map(_is_level, noise)) and noise[0] > 0:
        return PoissonGaussian(*noise)
    raise SpecError(
        f"noise = {noise!r} was given; expected a standard deviation ≥ 0, in units of the images, 'poisson' for "
        "counts, (gain, sigma) with gain > 0, or None"
    )


def check_level(noise: float) -> None:
    """Raise a SpecError for a standard deviation that none can have."""
    if not _is_level(noise):
        raise SpecError(f"noise = {noise!r} was given; expected a standard deviation ≥ 0, in units of the images")


def _is_level(noise: object) -> bool:
    return isinstance(noise, int | float) and not isinstance(noise, bool) and 0 <= noise <= sys.float_info.max


def like(result: Tensor, images: ImagesT) -> ImagesT:
    """The result as the images were given: array or tensor, dtype and device."""
    if isinstance(images, np.ndarray):
        return result.cpu().numpy().astype(images.dtype)
    return result.to(images.device, images.dtype)
