"""A set of images: pixels that are read and scaled batch by batch, and labels where there are any."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch

from whatwhere.errors import ImageError

Index = slice | Sequence[int] | np.ndarray | torch.Tensor
BATCH = 1024


class Pixels(Protocol):
    """Raw pixels [N, C, H, W], indexed along N: an array, a memory-mapped file, a folder, a selection of one."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    def __getitem__(self, rows: Any, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Selection:
    """Some rows of other pixels, in a given order; nothing is read until asked for."""

    pixels: Pixels
    rows: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.rows), *self.pixels.shape[1:])

    @property
    def dtype(self) -> np.dtype:
        return self.pixels.dtype

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self.pixels[self.rows[rows]]


@dataclass(frozen=True, eq=False)
class Images:
    """Images as the model takes them: `images[rows]` is a float32 tensor [n, C, H, W] in [0, 1]."""

    pixels: Pixels
    labels: np.ndarray | None
    name: str

    def __post_init__(self) -> None:
        if self.labels is not None and len(self.labels) != len(self):
            raise ImageError(
                f"{self.name}: {len(self):,} images but {len(self.labels):,} labels; one label an image is expected"
            )

    def __len__(self) -> int:
        return self.pixels.shape[0]

    def __getitem__(self, rows: Index) -> torch.Tensor:
        """The images of these rows [n, C, H, W], read now."""
        if isinstance(rows, torch.Tensor):
            rows = rows.cpu().numpy()
        return torch.from_numpy(unit_range(self.pixels[rows], self.name))

    def __repr__(self) -> str:
        labelled = "unlabelled" if self.labels is None else "labelled"
        return f"Images({self.name!r}, {len(self):,} of {'×'.join(map(str, self.shape))}, {labelled})"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        _, channels, height, width = self.pixels.shape
        return channels, height, width

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the raw pixels with their type and shape: the same images give the same one in any container."""
        digest = hashlib.sha256(f"{self.pixels.dtype.newbyteorder('<').str} {self.pixels.shape}".encode())
        for rows in self.batches():
            raw = self.pixels[rows]
            digest.update(np.ascontiguousarray(raw, raw.dtype.newbyteorder("<")).data)
        return digest.hexdigest()

    def batches(self, size: int = BATCH) -> Iterator[slice]:
        """The rows of successive batches; the last may be smaller."""
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    def subset(self, rows: np.ndarray, name: str | None = None) -> "Images":
        """These rows as a set of their own, still read lazily."""
        rows = np.asarray(rows)
        labels = None if self.labels is None else self.labels[rows]
        return Images(Selection(self.pixels, rows), labels, name or self.name)


def unit_range(raw: np.ndarray, name: str) -> np.ndarray:
    """Raw pixels as float32 in [0, 1]: whole numbers are divided by the largest their type holds, floats kept."""
    if raw.dtype.kind in "bu":
        largest = 1 if raw.dtype.kind == "b" else np.iinfo(raw.dtype).max
        return np.divide(raw, np.float32(largest), dtype=np.float32)
    values = np.array(raw, np.float32)
    if not (values.min() >= 0 and values.max() <= 1):  # false for NaN too
        raise ImageError(
            f"{name}: pixels from {values.min()} to {values.max()}; floats must be finite and in [0, 1]: "
            "scale or clip them first (uint8 pixels are scaled for you)"
        )
    return values
