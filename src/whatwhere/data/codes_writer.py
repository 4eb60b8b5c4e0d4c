"""Writing sparse codes, image by image or tile by tile, into the .npz file that `load_codes` reads.

docs/reference/file_formats.md lists its arrays. Images may be of several sizes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from whatwhere.data.npz_writer import NpzWriter
from whatwhere.errors import ImageError
from whatwhere.latents import SparseLatents, SparseMap

FORMAT = "whatwhere codes 1"
MOST_PLACES = 2**31  # of a code, so that indices are int32
Shape = tuple[int, int, int]


class CodesWriter:
    """Appends codes to an open .npz file.

    where   write the pooling variables and the background, too: all that decoding needs
    """

    def __init__(self, npz: NpzWriter, *, where: bool = False) -> None:
        self.npz, self.where = npz, where
        self._shapes: list[Shape] = []  # of the images that are complete
        self._pixels = 0  # of all channels of these
        self._maps: dict[str, tuple[list[Shape], list[int]]] = {}  # grids of the images, and where each one ends

    def __len__(self) -> int:
        return len(self._shapes)

    def add(self, code: SparseLatents, shape: Shape, reconstruction: Tensor | None = None) -> None:
        """The code of one image of this shape [C, H, W], and its reconstruction if that is written, too."""
        self.add_part(code)
        everything = slice(0, shape[1]), slice(0, shape[2])
        if reconstruction is not None:
            self.add_pixels("reconstruction", shape, everything, reconstruction)
        self.add_background(code, shape, everything)
        self.end_image(shape)

    def add_part(self, code: SparseLatents) -> None:
        """A part of an image's code; `end_image` has to follow the last one."""
        self._add_map("features", code.features)
        if self.where:
            for k, layer in enumerate(code.where, start=1):
                self._add_map(f"where{k}", layer)

    def add_background(self, code: SparseLatents, shape: Shape, window: tuple[slice, slice]) -> None:
        """What the input stage took off these rows and columns of the current image."""
        if self.where and code.background.low is not None:
            self.add_pixels("low", shape, window, code.background.low[0])
        if self.where and code.background.scale is not None:
            self.add_pixels("scale", (1, *shape[1:]), window, code.background.scale[0])

    def add_pixels(self, name: str, shape: Shape, window: tuple[slice, slice], values: Tensor) -> None:
        """Rows and columns [C, h, w] of a picture [C, H, W] that belongs to the current image."""
        (C, H, W), (rows, columns) = shape, window
        pixels = values.cpu().numpy()
        array = self.npz.array(name, pixels.dtype)
        first = self._pixels if name != "scale" else sum(h * w for _, h, w in self._shapes)
        full = columns.start == 0 and columns.stop == W  # then the rows lie one after the other
        for c in range(C):
            start = first + (c * H + rows.start) * W + columns.start
            for y, line in enumerate([pixels[c].reshape(-1)] if full else pixels[c]):
                array.write(start + y * W, line)

    def end_image(self, shape: Shape) -> None:
        self._shapes.append(shape)
        self._pixels += math.prod(shape)
        for name, (_, ends) in self._maps.items():
            ends.append(self.npz.array(f"{name}_indices", np.dtype(np.int32)).count)

    def finish(self) -> dict[str, list[int]]:
        """Write the file; returns the shapes of its arrays."""
        for name, (grids, ends) in self._maps.items():
            self.npz.put(f"{name}_shape", np.array(grids, np.int64))
            self.npz.put(f"{name}_indptr", np.array([0, *ends], np.int64))
        self.npz.put("image_shape", np.array(self._shapes, np.int64))
        self.npz.put("format", np.array(FORMAT))
        if len(set(self._shapes)) == 1:
            C, H, W = self._shapes[0]
            for name, channels in (("reconstruction", C), ("low", C), ("scale", 1)):
                self.npz.shapes[name] = (len(self), channels, H, W)
        return self.npz.finish()

    def _add_map(self, name: str, layer: SparseMap) -> None:
        if math.prod(layer.grid) >= MOST_PLACES:
            raise ImageError(f"a code of {layer.grid} was given; expected fewer than {MOST_PLACES:,} places")
        grids, _ = self._maps.setdefault(name, ([], []))
        if len(grids) == len(self._shapes):  # not for the later parts of an image
            grids.append(layer.grid)
        indices, values = layer.indices.cpu().numpy().astype(np.int32), layer.values.cpu().numpy()
        arrays: dict[str, np.ndarray[Any, Any]] = {f"{name}_indices": indices}
        if name == "features":
            arrays["features_values"] = values[:, 0]
        else:
            mu, gamma = np.split(values, 2, axis=1)
            arrays |= {f"mu{name[5:]}": mu, f"gamma{name[5:]}": gamma}
        for key, rows in arrays.items():
            self.npz.append(key, rows)
