"""Pictures in the forms that people have them in: a file, a Pillow picture, an array or a tensor of
any number type, grey or colour, one or many, or a data set.

`open_form` returns the picture as floats [N, C, H, W] in its own units, and `Form.close` returns a
result in the form that was given.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from whatwhere.data import Images
from whatwhere.data.images import brightest_of
from whatwhere.errors import ImageError, InvalidImages, WrongShape, printable

if TYPE_CHECKING:
    from PIL.Image import Image as PillowPicture

_LAYOUTS = "[H, W], [H, W, 3], [N, H, W], [N, C, H, W] or [N, H, W, 3]"


@dataclass(frozen=True)
class Form:
    """A picture as floats, and the way back.

    Parameters
    ----------
    images
        floats [N, C, H, W] in the units of what was given
    close
        returns floats [N, C, H, W] in the form that was given
    white
        the value of white: 1 for floats, the largest value of an integer type
    step
        the difference of neighbouring values, where the type says it: 1 for integers
    """

    images: Tensor
    close: Callable[[Tensor], Any]
    white: float = 1.0
    step: float | None = None


def step_of(images: Images) -> float | None:
    """Return the difference of neighbouring values of a data set, where its type says it."""
    dtype = images.pixels.dtype
    if dtype.kind not in "iu":
        return None
    return images.white / (images.brightest or brightest_of(dtype))


def open_form(given: object) -> Form:
    """Return a picture, or pictures, as floats [N, C, H, W].

    Parameters
    ----------
    given
        the path of a file, a Pillow picture, or an array or a tensor [H, W], [H, W, 3], [N, H, W],
        [N, C, H, W] or [N, H, W, 3] of floats, of integers or of booleans. A fourth channel of [H,
        W, 4] is transparency, which stays as it is. Or a data set (`Images`), whose result is a
        tensor [N, C, H, W]
    """
    if isinstance(given, str | PathLike):
        return _open_file(given)
    if is_pillow(given):
        return _open_pillow(given)
    if isinstance(given, np.ndarray):
        form = _open_tensor(torch.from_numpy(_native(given)))
        return replace(
            form,
            close=lambda clean: _like(form.close(clean).cpu().numpy(), given.dtype),
            white=_white(given.dtype),
            step=1.0 if given.dtype.kind in "iu" else None,
        )
    if isinstance(given, Tensor):
        return _open_tensor(given)
    if isinstance(given, Images):
        return replace(_open_tensor(given[:]), step=step_of(given))
    raise InvalidImages(
        type(given).__name__,
        f"a path, a Pillow picture, a data set, or an array or a tensor {_LAYOUTS}",
    )


def is_pillow(given: object) -> "TypeGuard[PillowPicture]":
    """Whether this is a Pillow picture."""
    return type(given).__module__.startswith("PIL.")


def _open_file(path: "str | PathLike[str]") -> Form:
    """The pages of a picture file, whose result is an array like its pixels."""
    from whatwhere.data import load_groups

    groups = load_groups(Path(path), None, blend=False)
    if len(groups) > 1:
        raise ImageError(f"{printable(path)} has pages of {len(groups)} sizes; expected one.")
    form = open_form(
        np.asarray(groups[0][0].pixels[:])
    )  # with all axes: three pages are no colours
    return replace(form, close=lambda clean: _without_single_axes(form.close(clean)))


def _without_single_axes(pixels: np.ndarray) -> np.ndarray:
    """Return pixels [N, C, H, W] as a person has them: [H, W], [H, W, 3], [N, H, W], …"""
    if pixels.shape[1] == 1:
        pixels = pixels[:, 0]
    elif pixels.shape[1] == 3:
        pixels = pixels.transpose(0, 2, 3, 1)
    return pixels[0] if len(pixels) == 1 else pixels


def _open_pillow(picture: "PillowPicture") -> Form:
    """A Pillow picture, whose result is one of the same mode."""
    from PIL import Image

    if picture.mode in ("P", "PA", "CMYK", "YCbCr", "LAB", "HSV"):
        # colours that have no meaning as numbers, or none that are as noisy as the picture
        form = _open_pillow(picture.convert("RGBA" if "transparency" in picture.info else "RGB"))
        return form
    form = open_form(np.asarray(picture))
    return replace(form, close=lambda clean: Image.fromarray(form.close(clean)))


def _native(array: np.ndarray) -> np.ndarray:
    """The array in memory order and in this machine's order of bytes, as a type that torch has."""
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise InvalidImages(f"an array of {array.dtype}", "floats, integers or booleans")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    native = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False))
    return native if native.flags.writeable else native.copy()


def _white(dtype: np.dtype) -> float:
    """The value of white of a number type."""
    return float(np.iinfo(dtype).max) if dtype.kind in "iu" else 1.0


def _like(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The values as numbers of this type, limited to those that it has."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = values.clip(limits.min, limits.max)
    return values.astype(dtype)


def _open_tensor(given: Tensor) -> Form:
    if given.is_complex():
        raise InvalidImages(f"a tensor of {given.dtype}", "floats, integers or booleans")
    if 0 in given.shape:
        raise WrongShape("values", given.shape, _LAYOUTS)
    images, layout = _channels_first(given)
    # 8 and 16 bits are exact in float32
    wide = images.double if images.dtype.itemsize > 2 else images.float
    floats = images if images.is_floating_point() else wide()
    alpha = floats[:, 3:] if layout == "HWC" and floats.shape[1] == 4 else None
    if alpha is not None:
        floats = floats[:, :3]

    def close(clean: Tensor) -> Tensor:
        result = clean.to(given.device)
        if alpha is not None:
            result = torch.cat([result, alpha.to(result)], 1)
        if layout == "HWC":
            result = result.permute(0, 2, 3, 1)
        return _as_type(result.reshape(given.shape), given.dtype)

    is_level = given.is_floating_point() or given.dtype == torch.bool
    white = 1.0 if is_level else float(torch.iinfo(given.dtype).max)
    step = None if is_level else 1.0
    return Form(floats, close, white, step)


def _channels_first(given: Tensor) -> tuple[Tensor, str]:
    """The tensor as [N, C, H, W], and HWC for one whose channels came last."""
    last = given.shape[-1] in (3, 4)
    if given.ndim == 2:
        return given[None, None], "HW"
    if given.ndim == 3 and last and given.shape[0] not in (1, 3):
        return given.permute(2, 0, 1)[None], "HWC"
    if given.ndim == 3 and given.shape[0] == 3:
        return given[None], "CHW"
    if given.ndim == 3:
        return given[:, None], "NHW"
    if given.ndim == 4 and last and given.shape[1] not in (1, 2, 3, 4):
        return given.permute(0, 3, 1, 2), "HWC"
    if given.ndim == 4:
        return given, "NCHW"
    raise WrongShape("values", given.shape, _LAYOUTS)


def _as_type(result: Tensor, dtype: torch.dtype) -> Tensor:
    """Values as a number type: integers are rounded and limited to those that it has."""
    if dtype == torch.bool:
        return result > 0.5
    if dtype.is_floating_point:
        return result.to(dtype)
    limits = torch.iinfo(dtype)
    # float32 has all integers of 16 bits
    exact = result if dtype.itemsize <= 2 else result.double()
    return exact.round().clamp(limits.min, limits.max).to(dtype)
