"""Arrays as images: the supported types and shapes, and which axis holds the channels."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from whatwhere.data.array_file import ZIP_MAGIC, Archive, read_array
from whatwhere.data.images import Pixels
from whatwhere.errors import ImageError
from whatwhere.files import open_regular

Channels = Literal["first", "last"]
FEW_CHANNELS = 4
"""An axis with at most as many entries is taken for the channels: grey, grey and alpha, colour, colour and alpha."""


def read_file(path: Path) -> tuple[Pixels, Pixels | None]:
    """The images of a file and, from an .npz, its labels; the first bytes show what kind of file it is."""
    with open_regular(path) as file:
        start = file.read(len(ZIP_MAGIC))
    if start != ZIP_MAGIC:
        return read_array(path), None
    archive = Archive(path)
    for name in ("images", "signals"):
        if name in archive:
            return archive[name], archive.get("labels")
    if len(archive) == 1:
        return archive[next(iter(archive))], None
    names = ", ".join(sorted(archive)[:9]) or "no arrays"
    raise ImageError(f"{path}: contains {names}; expected one array, or `images` (or `signals`) and `labels`")


def as_array(values: Any) -> np.ndarray:
    """A tensor, an array or a sequence of numbers as an array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return np.asarray((values.float() if values.dtype == torch.bfloat16 else values).numpy())
    return np.asarray(values)


@dataclass(frozen=True)
class ChannelsFirst:
    """Rows of [N, H, W] or [N, H, W, C] values as [N, C, H, W]."""

    values: Pixels
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def __getitem__(self, rows: Any) -> np.ndarray:
        values = self.values[rows]
        return values[:, None] if values.ndim == 3 else values.transpose(0, 3, 1, 2)


def as_pixels(values: Pixels, name: str, channels: Channels | None = None) -> Pixels:
    """Raw pixels [N, C, H, W] of values [N, H, W], [N, C, H, W] or [N, H, W, C]; not copied."""
    dtype, shape = values.dtype, values.shape
    if dtype.kind not in "buif" or (dtype.kind in "ui" and dtype.itemsize > 2):
        raise ImageError(
            f"{name}: pixels of type {dtype}; expected bool, uint8, uint16, int8 or int16, which are scaled, or "
            "floats, which are used as they are; convert the array, for instance with array.astype('uint8')"
        )
    if len(shape) not in (3, 4) or 0 in shape:
        raise ImageError(f"{name}: an array of shape {shape}; expected [N, H, W], [N, C, H, W] or [N, H, W, C]")
    if len(shape) == 3:
        return ChannelsFirst(values, (shape[0], 1, *shape[1:]))
    if (channels or channel_axis(shape, name)) == "first":
        return values
    return ChannelsFirst(values, (shape[0], shape[3], *shape[1:3]))


def channel_axis(shape: tuple[int, ...], name: str) -> Channels:
    """Which axis of [N, a, b, c] values holds the channels: the one of at most 4 entries, where only one is.

    Where both are, it is the second axis, and a warning says so. Where neither is, it is the second or the last if it
    is the shortest of the three, and otherwise an error: it has to be stated.
    """
    _, a, b, c = shape
    if a <= FEW_CHANNELS or c <= FEW_CHANNELS:
        if a <= FEW_CHANNELS and c <= FEW_CHANNELS and (a > 1 or c == 1) and b > 1:
            warnings.warn(
                f"{name}: in an array of shape {shape}, axis 1 was taken for the {a} channels; if "
                "axis 3 holds them, move it to axis 1 (in Python, channels='last' does)",
                stacklevel=5,  # the caller of `load`
            )
        return "first" if a <= FEW_CHANNELS else "last"
    if a < min(b, c) or c < min(a, b):
        return "first" if a < c else "last"
    raise ImageError(
        f"{name}: an array of shape {shape} does not show which axis holds the channels; "
        "expected fewer channels than rows and columns (in Python, channels='first' or 'last' says where they are)"
    )


def as_labels(values: Pixels, name: str) -> np.ndarray:
    """Labels as int64 [N]."""
    if len(values.shape) != 1 or values.dtype.kind not in "iu":
        raise ImageError(
            f"{name}: labels of shape {values.shape} and type {values.dtype}; expected one integer per image"
        )
    labels = values[:]
    if labels.dtype.kind == "u" and labels.max(initial=0) > np.iinfo(np.int64).max:
        raise ImageError(f"{name}: the label {labels.max()} is larger than int64 holds, {np.iinfo(np.int64).max}")
    return labels.astype(np.int64)
