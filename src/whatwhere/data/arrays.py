"""Arrays as images: which types and shapes are taken, and where the channels are."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from whatwhere.data import idx, npy
from whatwhere.errors import ImageError

CHANNELS = (1, 3)


def read_file(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """The images of a file and, from an .npz, its labels; what the file is shows in its first bytes."""
    with path.open("rb") as file:
        start = file.read(len(npy.NPY_MAGIC))
    if start == npy.NPY_MAGIC:
        return npy.read_npy(path), None
    if start.startswith(npy.ZIP_MAGIC):
        return _from_npz(path)
    return idx.read(path), None


def _from_npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    names = npy.npz_names(path)
    if "images" in names:
        return npy.read_npz(path, "images"), npy.read_npz(path, "labels") if "labels" in names else None
    if len(names) == 1:
        return npy.read_npz(path, names[0]), None
    raise ImageError(
        f"{path}: holds {', '.join(sorted(names)[:9]) or 'no arrays'}; expected is one array, or `images` and `labels`"
    )


def as_array(values: Any) -> np.ndarray:
    """A tensor, an array or a sequence of numbers as an array."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    return np.asarray(values)


def as_pixels(values: np.ndarray, name: str) -> np.ndarray:
    """Raw pixels [N, C, H, W], a view of [N, H, W], [N, C, H, W] or [N, H, W, C] with 1 or 3 channels."""
    if values.dtype.kind not in "buf" or (values.dtype.kind == "u" and values.dtype.itemsize > 2):
        raise ImageError(
            f"{name}: pixels of type {values.dtype}; expected are uint8, uint16 or bool, which are scaled, "
            "or floats in [0, 1]"
        )
    if values.ndim == 3:
        pixels = values[:, None]
    elif values.ndim == 4 and values.shape[1] in CHANNELS:
        pixels = values
    elif values.ndim == 4 and values.shape[3] in CHANNELS:
        pixels = values.transpose(0, 3, 1, 2)
    else:
        raise ImageError(
            f"{name}: an array of shape {values.shape}; expected is [N, H, W], or [N, C, H, W] or [N, H, W, C] "
            "with 1 or 3 channels"
        )
    if pixels.size == 0:
        raise ImageError(f"{name}: no pixels in an array of shape {values.shape}")
    return pixels


def as_labels(values: np.ndarray, name: str) -> np.ndarray:
    """Labels as int64 [N]."""
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ImageError(
            f"{name}: labels of shape {values.shape} and type {values.dtype}; expected is one whole number an image"
        )
    return values.astype(np.int64)
