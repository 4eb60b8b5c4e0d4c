"""The inputs of inference, and the target made from them: images after the input stage, and a
weight for every pixel.

A pixel with weight 0 is unknown: its value has no influence on anything. NaN marks an unknown
pixel, too.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from whatwhere.data import Source, load
from whatwhere.data.arrays import has_colours_last, is_one_picture
from whatwhere.errors import BeyondRange, ImageError, InvalidImages, WrongShape, one_or, warn
from whatwhere.latents import Background
from whatwhere.model import DeconvNet
from whatwhere.model.deconvnet import ValueRange, all_finite
from whatwhere.spec import ModelSpec

SCALED = (torch.bool, torch.uint8, torch.uint16, torch.int8, torch.int16)


class ImageSource(Protocol):
    """Anything that returns images [n, C, H, W] for a slice: a tensor, or a data set that reads
    lazily."""

    def __len__(self) -> int: ...
    def __getitem__(self, images: slice, /) -> Tensor: ...


Pictures = Source | ImageSource
"""Pictures in any form that `infer` takes."""


def as_image_source(images: object, spec: ModelSpec) -> tuple[ImageSource, bool]:
    """Return images as `infer` takes them: a tensor [N, C, H, W], or an object that returns tensors
    for slices. Files and Pillow's pictures are loaded, arrays become tensors, and one image a batch
    of one.

    Also returns whether they were signals [N, C, T], for a model of signals: from here on they are
    images of height 1.
    """
    if isinstance(images, str | Path | list | tuple) or hasattr(images, "getbands"):
        images = _load(images)
    if hasattr(images, "as_images"):
        return cast(ImageSource, images), True
    if isinstance(images, np.ndarray):
        images = _as_tensor(images)
    if isinstance(images, Tensor):
        return _tensor_source(images, spec)
    lazy = hasattr(images, "__len__") and hasattr(images, "__getitem__")
    if hasattr(images, "column_names"):
        given = f"a table ({type(images).__name__})"
        raise InvalidImages(given, "images", "Load its pictures first: whatwhere.data.load(table).")
    if lazy and not isinstance(images, list | tuple | dict | str | bytes):
        return cast(ImageSource, images), False
    axes = "T" if spec.for_signals else "H, W"
    raise InvalidImages(
        type(images).__name__,
        f"a tensor or array [N, {spec.channels}, {axes}], paths or Pillow's pictures, or"
        " images from whatwhere.data.load",
    )


def _load(images: Any) -> Any:
    """Load images from what they are stored in. Only here does inference know of files."""
    return load(images, allow_nan=True)


def _tensor_source(images: Tensor, spec: ModelSpec) -> tuple[ImageSource, bool]:
    """Return a tensor without its gradient, and whether it holds signals."""
    if images.requires_grad:
        warn(
            "The images require a gradient, but infer computes none. Use"
            " whatwhere.nn.SparseCode2d for gradients."
        )
    images = images.detach()
    if images.ndim == 3 and spec.for_signals:
        return images[:, :, None], True
    return _as_batch(images, spec.channels), False


def _as_batch(images: Tensor, channels: int) -> ImageSource:
    """Return one image [H, W], [C, H, W] or [H, W, C], grey images [N, H, W], or images in colour
    [N, H, W, 3] as [N, C, H, W]. Images of other channels than the model's are loaded, so that they
    get the model's channels."""
    if has_colours_last(images.shape) and images.shape[1] != channels:
        return cast(ImageSource, _load(images))
    if images.ndim not in (2, 3):
        return images
    if images.ndim == 3 and images.shape[0] == channels:
        return images[None]
    if is_one_picture(images.shape):
        one = images[None, None] if images.ndim == 2 else images.permute(2, 0, 1)[None]
        return one if one.shape[1] == channels else cast(ImageSource, _load(one))
    if channels == 1:
        return images[:, None]
    return images.permute(2, 0, 1)[None] if images.shape[2] == channels else images


def in_model_units(spec: ModelSpec, images: object) -> Any:
    """Return images, given in any form that `infer` takes, in a model's units and with its
    channels; integers of 8 or 16 bits divided by the largest."""
    source, _ = as_image_source(images, spec)
    if hasattr(source, "as_images"):  # signals
        source = source.as_images()
    if hasattr(source, "with_white"):
        return source.with_white(spec.input.white).with_channels(spec.channels)
    return scaled(source, spec.input.white) if isinstance(source, Tensor) else source


def image_tensor(model: DeconvNet, images: object) -> Tensor:
    """Return images, given in any form that `infer` takes, as a tensor [N, C, H, W] in the model's
    units."""
    found: Tensor = in_model_units(model.spec, images)[:]
    return found


def one_image(model: DeconvNet, image: object) -> Tensor:
    """Return one image, given in any form that `infer` takes, as a tensor [C, H, W] in the model's
    units."""
    images = image_tensor(model, image)
    if images.ndim != 4 or len(images) != 1:
        raise WrongShape("a picture", images.shape, "one picture, [H, W], [C, H, W] or [H, W, 3]")
    return images[0]


def scaled(images: Tensor, white: float) -> Tensor:
    """Scale integers of 8 or 16 bits divided by the largest, times white; floats as they are."""
    if images.dtype not in SCALED:
        return images
    largest = 1 if images.dtype == torch.bool else torch.iinfo(images.dtype).max
    return images.float() * (white / largest)


def _as_tensor(array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "buif":
        raise InvalidImages(f"an array of {array.dtype}", "floats, or integers of 8 or 16 bits")
    native = array.dtype.newbyteorder("=")
    # a tensor may be written to, and torch warns of one that may not
    copy = None if array.flags.writeable else True
    return torch.from_numpy(np.array(array, dtype=native, order="C", copy=copy))


# The target: images after the model's input stage, with a weight for every pixel ------------------


@dataclass(frozen=True)
class Target:
    """The data term's v and M in λ/2 ‖M ⊙ (R p - v)‖².

    Parameters
    ----------
    v
        the target that layer 1 explains, [N, C, H, W]; 0 where pixels are unknown
    mask
        M ≥ 0, [N, 1 or C, H, W]; None if all pixels count the same
    background
        what the input stage removed from the images
    """

    v: Tensor
    mask: Tensor | None = None
    background: Background = field(default_factory=Background)


def make_target(
    model: DeconvNet, images: Tensor, mask: Tensor | None = None, *, allow_unknown: bool = False
) -> Target:
    """Check images and mask, mark NaN as unknown, and apply the model's input stage, on the model's
    device.

    An image without a known pixel is an error, unless `allow_unknown`: a tile of a picture may have
    none.
    """
    checked = check_target(model, images, mask, allow_unknown=allow_unknown)
    return input_target(model, checked.images, checked.mask)


def input_target(model: DeconvNet, images: Tensor, mask: Tensor | None) -> Target:
    """Return the model's input stage, applied to what `check_target` returned."""
    if mask is not None:
        mask = mask.to(model.device, model.dtype)
    images = images.to(model.device, model.dtype)
    v, background = model.input_stage.forward(images, mask)
    if background.scale is not None and not all_finite(background.scale):
        raise BeyondRange(
            f"The contrast of the images exceeds the range of {model.dtype}",
            {"images up to": float(images.abs().max())},
            f"Scale them to [0, {model.spec.input.white:g}].",
        )
    return Target(v, None if mask is None else model.input_stage.spread_mask(mask), background)


class NothingKnown(ImageError):
    """An image whose mask is 0 everywhere.

    Attributes
    ----------
    index
        its number among the images, from 0
    """

    def __init__(self, index: int) -> None:
        self.index = index
        super().__init__(
            f"Image {index} has no known pixel: its mask is 0 everywhere. Leave it out."
        )


_WEIGHTS = "a tensor or array of weights ≥ 0 (0: unknown)"


class CheckedImages(NamedTuple):
    """Images that a model can explain, with unknown pixels separated.

    Parameters
    ----------
    images
        [N, C, H, W], 0 where pixels are unknown
    mask
        the weights of pixels; None if all count the same
    values
        the smallest and the largest value, where they are known
    """

    images: Tensor
    mask: Tensor | None
    values: ValueRange | None


def check_target(
    model: DeconvNet, images: Tensor, mask: Tensor | None = None, *, allow_unknown: bool = False
) -> CheckedImages:
    """Return images and mask with unknown pixels separated, once both are what the model can
    explain."""
    given: object = images  # a user may have given anything
    values = None
    if mask is None and isinstance(given, Tensor) and given.is_floating_point():
        values = ValueRange.of(given)
    if values is None or values.has_nan:
        images, mask = _separate_unknown(images, None if mask is None else as_weights(mask))
        values = None
    model.check_images(images, values)
    if mask is not None:
        check_mask(images, mask, allow_unknown=allow_unknown)
    return CheckedImages(images, mask, values)


def as_weights(mask: object) -> Tensor:
    """Return a mask that was given as a tensor or an array, as a tensor of real numbers."""
    if isinstance(mask, np.ndarray) and mask.dtype.kind in "biuf":
        mask = torch.from_numpy(mask.astype(mask.dtype.newbyteorder("=")))
    if not isinstance(mask, Tensor) or mask.is_complex():
        kind = getattr(mask, "dtype", type(mask).__name__)
        raise InvalidImages(f"a mask of {kind}", _WEIGHTS)
    return mask


def _separate_unknown(images: Any, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Separate unknown pixels, by mask or by NaN, become 0 in the images and 0 in the mask."""
    if not isinstance(images, Tensor) or not images.is_floating_point() or images.ndim != 4:
        return images, mask  # the checks that follow say what is wrong
    if mask is not None and not _fits(images, mask):
        return images, mask
    unknown = images.isnan() if mask is None else images.isnan() | (mask == 0)
    if not unknown.any():
        return images, mask
    weight = torch.ones_like(images) if mask is None else mask.to(images).expand_as(images)
    return torch.where(unknown, 0, images), torch.where(unknown, 0, weight)


def check_mask(images: Tensor, mask: Tensor, *, allow_unknown: bool = False) -> None:
    """Raise an ImageError for a mask that does not belong to these images."""
    N, C, H, W = images.shape
    if not _fits(images, mask):
        expected = f"[{N}, {one_or(C)}, {H}, {W}]"
        context = f"for images of shape {list(images.shape)}"
        raise WrongShape("a mask", mask.shape, expected, context)
    if not mask.isfinite().all() or (mask < 0).any():
        raise InvalidImages("a mask with negative, NaN or infinite values", _WEIGHTS)
    if allow_unknown:
        return
    empty = (mask == 0).flatten(1).all(1).nonzero().flatten().tolist()
    if empty:
        raise NothingKnown(empty[0])


def _fits(images: Tensor, mask: Tensor) -> bool:
    N, C, H, W = images.shape
    return mask.shape in ((N, 1, H, W), (N, C, H, W))
