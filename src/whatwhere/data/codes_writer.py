"""Writing sparse codes, image by image or tile by tile, into the .npz file that `load_codes` reads.

docs/reference/file_formats.md lists its arrays. Images may be of several sizes.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from whatwhere.data.npz_writer import NpzWriter
from whatwhere.errors import ImageError
from whatwhere.latents import SparseLatents, SparseMap

FORMAT = "whatwhere codes 1"
MOST_PLACES = 2**31  # of a code, so that indices are int32
Shape = tuple[int, int, int]


class CodesWriter:
    """Appends codes to an open .npz file. In memory is the code of one image, and nothing of its pixels.

    where   write the pooling variables and the background, too: all that decoding needs
    """

    def __init__(self, npz: NpzWriter, *, where: bool = False) -> None:
        self.npz, self.where = npz, where
        self._shapes: list[Shape] = []  # of the images that are complete
        self._parts: list[SparseLatents] = []  # of the current image
        self._grids: dict[str, list[Shape]] = {}
        self._ends: dict[str, list[int]] = {}  # where each image ends in the arrays of a map
        self._starts: dict[str, int] = {}  # where the current image begins in an array of pixels
        self._sizes: dict[str, int] = {}  # of the current image in an array of pixels

    def __len__(self) -> int:
        return len(self._shapes)

    def add(self, code: SparseLatents, shape: Shape) -> None:
        """The code of one image of this shape [C, H, W]."""
        self.add_part(code)
        self.add_background(code, shape, (slice(0, shape[1]), slice(0, shape[2])))
        self.end_image(shape)

    def add_part(self, code: SparseLatents) -> None:
        """A part of an image's code; `end_image` has to follow the last one."""
        self._parts.append(code)

    def add_background(self, code: SparseLatents, shape: Shape, window: tuple[slice, slice]) -> None:
        """What the input stage took off these rows and columns of the current image."""
        if self.where and code.background.low is not None:
            self.add_pixels("low", shape, window, code.background.low[0])
        if self.where and code.background.scale is not None:
            self.add_pixels("scale", (1, *shape[1:]), window, code.background.scale[0])

    def add_pixels(self, name: str, shape: Shape, window: tuple[slice, slice], values: Tensor) -> None:
        """Rows and columns [C, h, w] of a picture [C, H, W] that belongs to the current image."""
        (C, H, W), (rows, columns) = shape, window
        pixels, first = values.cpu().numpy(), self._starts.setdefault(name, 0)
        self._sizes[name] = math.prod(shape)
        full = columns.start == 0 and columns.stop == W  # then the rows lie one after the other
        for c in range(C):
            start = first + (c * H + rows.start) * W + columns.start
            for y, line in enumerate([pixels[c].reshape(-1)] if full else pixels[c]):
                self.npz.write(name, start + y * W, line)

    def end_image(self, shape: Shape) -> None:
        code = SparseLatents.cat(self._parts)
        self._add_map("features", code.features, ("features_values",))
        if self.where:
            for k, layer in enumerate(code.where, start=1):
                self._add_map(f"where{k}", layer, (f"mu{k}", f"gamma{k}"))
        for name, size in self._sizes.items():
            self._starts[name] += size
        self._shapes.append(shape)
        self._parts, self._sizes = [], {}

    def finish(self) -> dict[str, list[int]]:
        """Write the file; returns the shapes of its arrays."""
        for name, ends in self._ends.items():
            self.npz.put(f"{name}_shape", np.array(self._grids[name], np.int64))
            self.npz.put(f"{name}_indptr", np.array([0, *ends], np.int64))
        self.npz.put("image_shape", np.array(self._shapes, np.int64))
        self.npz.put("format", np.array(FORMAT))
        if len(set(self._shapes)) == 1:
            C, H, W = self._shapes[0]
            for name, channels in (("low", C), ("scale", 1)):
                self.npz.shapes[name] = (len(self), channels, H, W)
        return self.npz.finish()

    def _add_map(self, name: str, layer: SparseMap, keys: tuple[str, ...]) -> None:
        """The places of one image in ascending order, and their values, which are several arrays of equal width."""
        if math.prod(layer.grid) >= MOST_PLACES:
            raise ImageError(f"a code of {layer.grid} was given; expected fewer than {MOST_PLACES:,} places")
        indices, values = layer.indices.cpu().numpy(), layer.values.cpu().numpy()
        order = np.argsort(indices)
        self.npz.append(f"{name}_indices", indices[order].astype(np.int32))
        for key, part in zip(keys, np.split(values[order], len(keys), axis=1), strict=True):
            self.npz.append(key, part[:, 0] if name == "features" else part)
        self._grids.setdefault(name, []).append(layer.grid)
        self._ends.setdefault(name, []).append(self.npz.count(f"{name}_indices"))
