"""One picture of a data set, read window by window: of a large array in a file only what is asked for is in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor, from_numpy

from whatwhere.data.array_file import ArrayFile
from whatwhere.data.arrays import ChannelsFirst
from whatwhere.data.images import Images, scale


@dataclass(frozen=True)
class PictureWindows:
    """`picture[:, rows, columns]` are pixels [C, h, w] of one of the images, scaled to float32."""

    images: Images
    row: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.images.shape

    def __getitem__(self, window: tuple[slice, slice, slice]) -> Tensor:
        channels, rows, columns = window
        file = _file_of(self.images.pixels)
        if file is None:
            raw = self._decoded[channels, rows, columns]
        else:
            bands = read_rows(file, self.row, rows, channels_first=file is self.images.pixels)
            raw = bands[channels, :, columns]
        return from_numpy(scale(raw, self.images.name, self.images.allow_nan))

    @cached_property
    def _decoded(self) -> np.ndarray:
        """The whole picture with its own type of pixels: pictures cannot be decoded in part."""
        pixels: np.ndarray = self.images.pixels[np.array([self.row])][0]
        return pixels


def _file_of(pixels: Any) -> ArrayFile | None:
    """The file that pixels are read from by rows, if their rows lie one after the other in it."""
    file = pixels.values if isinstance(pixels, ChannelsFirst) else pixels
    return file if isinstance(file, ArrayFile) and file.order == "C" else None


def read_rows(file: ArrayFile, image: int, rows: slice, *, channels_first: bool) -> np.ndarray:
    """Some rows of one image of a file [N, C, H, W] (channels first), [N, H, W] or [N, H, W, C], as [C, h, W]."""
    shape = file.shape[1:] if channels_first else (1, *file.shape[1:])  # as planes of rows
    planes, height, *line = shape
    start, stop, _ = rows.indices(height)
    length, first = math.prod(line), image * math.prod(shape)
    bands = np.empty((planes, stop - start, *line), file.dtype)
    for c in range(planes):
        band = file.read_values(first + (c * height + start) * length, (stop - start) * length)
        bands[c] = band.reshape(bands.shape[1:])
    return bands if channels_first or len(line) == 1 else np.moveaxis(bands[0], 2, 0)
