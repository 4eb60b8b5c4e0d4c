"""One picture of a data set, read window by window: of a large array in a file only what is asked for is in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor, from_numpy

from whatwhere.data.array_file import ArrayFile
from whatwhere.data.arrays import ChannelsFirst
from whatwhere.data.images import Images
from whatwhere.data.signals import SignalPixels


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
        pixels = self.images.pixels
        if isinstance(pixels, SignalPixels):
            return from_numpy(self.images.scale(pixels.window(self.row, columns)[channels, None][:, rows]))
        file = pixels.values if isinstance(pixels, ChannelsFirst) else pixels
        band = self._read_band(file, rows) if isinstance(file, ArrayFile) else self._decoded[:, rows]
        return from_numpy(self.images.scale(band[channels, :, columns]))

    def _read_band(self, file: ArrayFile, rows: slice) -> np.ndarray:
        """All columns of some rows, [C, h, W], of a file [N, C, H, W], [N, H, W] or [N, H, W, C]."""
        C, H, W = self.images.shape
        first = file is self.images.pixels  # channels come first
        planes, line = (C, (W,)) if first else (1, file.shape[2:])
        lines = replace(file, shape=(math.prod(file.shape) // math.prod(line), *line))
        chosen = np.arange(planes)[:, None] * H + np.arange(H)[rows] + self.row * planes * H
        values = lines[chosen.reshape(-1)].reshape(planes, -1, *line)
        return values if first or len(line) == 1 else np.moveaxis(values[0], 2, 0)

    @cached_property
    def _decoded(self) -> np.ndarray:
        """The whole picture with its own type of pixels: pictures cannot be decoded in part."""
        pixels: np.ndarray = self.images.pixels[np.array([self.row])][0]
        return pixels
