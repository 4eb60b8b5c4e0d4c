"""Arrays as images: the supported types and shapes, and which axis holds the channels."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from whatwhere.data import idx, npy
from whatwhere.data.images import Pixels
from whatwhere.errors import ImageError
from whatwhere.regular_file import open_regular

CHANNELS = (1, 3)


def read_file(path: Path) -> tuple[Pixels, Pixels | None]:
    """The images of a file and, from an .npz, its labels; the first bytes show what kind of file it is."""
    with open_regular(path) as file:
        start = file.read(len(npy.NPY_MAGIC))
    if start == npy.NPY_MAGIC:
        return npy.read_npy(path), None
    if start.startswith(npy.ZIP_MAGIC):
        return _read_npz(path)
    return idx.read(path), None


def _read_npz(path: Path) -> tuple[Pixels, Pixels | None]:
    names = npy.npz_names(path)
    if "images" in names:
        return npy.read_npz(path, "images"), npy.read_npz(path, "labels") if "labels" in names else None
    if len(names) == 1:
        return npy.read_npz(path, names[0]), None
    raise ImageError(
        f"{path}: contains {', '.join(sorted(names)[:9]) or 'no arrays'}; expected one array, or `images` and `labels`"
    )


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


def as_pixels(values: Pixels, name: str) -> Pixels:
    """Raw pixels [N, C, H, W] of values [N, H, W], [N, C, H, W] or [N, H, W, C] with 1 or 3 channels; not copied."""
    dtype, shape = values.dtype, values.shape
    if dtype.kind not in "buf" or (dtype.kind == "u" and dtype.itemsize > 2):
        raise ImageError(
            f"{name}: pixels of type {dtype}; expected uint8, uint16 or bool, which are scaled, or floats in [0, 1]"
        )
    first = len(shape) == 4 and shape[1] in CHANNELS
    last = len(shape) == 4 and shape[3] in CHANNELS
    if not (len(shape) == 3 or first or last):
        raise ImageError(
            f"{name}: an array of shape {shape}; expected [N, H, W], or [N, C, H, W] or [N, H, W, C] with 1 or 3 "
            "channels"
        )
    if 0 in shape:
        raise ImageError(f"{name}: no pixels in an array of shape {shape}")
    if first and last and shape[2] > 1:
        warnings.warn(
            f"{name}: in an array of shape {shape}, axis 1 was taken for the {shape[1]} channels; if axis 3 holds "
            "them, move it: array.transpose(0, 3, 1, 2)",
            stacklevel=3,
        )
    if first:
        return values
    height, width = shape[1:3]
    return ChannelsFirst(values, (shape[0], shape[3] if last else 1, height, width))


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
