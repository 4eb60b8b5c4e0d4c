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
            raw = read_window(file, self.row, rows, columns, channels_first=file is self.images.pixels)[channels]
        return from_numpy(scale(raw, self.images.name, self.images.allow_nan, self.images.white))

    @cached_property
    def _decoded(self) -> np.ndarray:
        """The whole picture with its own type of pixels: pictures cannot be decoded in part."""
        pixels: np.ndarray = self.images.pixels[np.array([self.row])][0]
        return pixels


def _file_of(pixels: Any) -> ArrayFile | None:
    """The file that pixels are read from by rows, if their rows lie one after the other in it."""
    file = pixels.values if isinstance(pixels, ChannelsFirst) else pixels
    return file if isinstance(file, ArrayFile) and file.order == "C" else None


def read_window(file: ArrayFile, image: int, rows: slice, columns: slice, *, channels_first: bool) -> np.ndarray:
    """Pixels of one image of a file [N, C, H, W] (channels first), [N, H, W] or [N, H, W, C], as [C, h, w]."""
    shape = file.shape[1:] if channels_first else (1, *file.shape[1:])  # as planes of rows
    planes, height, width, *pixel = shape
    (top, bottom, _), (left, right, _) = rows.indices(height), columns.indices(width)
    length, first = math.prod(pixel), image * math.prod(shape)
    starts = [first + ((c * height + y) * width + left) * length for c in range(planes) for y in range(top, bottom)]
    values = file.read_pieces(starts, (right - left) * length).reshape(planes, bottom - top, right - left, *pixel)
    return np.moveaxis(values[0], 2, 0) if pixel else values
