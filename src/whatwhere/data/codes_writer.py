"""Writing sparse codes, image by image, into the .npz file that `load_codes` reads.

docs/reference/file_formats.md lists its arrays. Images may be of several sizes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from whatwhere.data.npz_writer import NpzWriter
from whatwhere.errors import ImageError
from whatwhere.latents import SparseLatents, SparseMap

FORMAT = "whatwhere codes 1"
MOST_PLACES = 2**31  # of a code, so that indices are int32
Shape = tuple[int, int, int]


class CodesWriter:
    """Appends codes to an open .npz file. In memory is the code of one image.

    where   write the pooling variables and the background, too: all that decoding needs
    """

    def __init__(self, npz: NpzWriter, *, where: bool = False) -> None:
        self.npz, self.where = npz, where
        self._shapes: list[Shape] = []  # of the images
        self._grids: dict[str, list[Shape]] = {}
        self._ends: dict[str, list[int]] = {}  # where each image ends in the arrays of a map

    def __len__(self) -> int:
        return len(self._shapes)

    def add(self, code: SparseLatents, shape: Shape) -> None:
        """The code of one image of this shape [C, H, W]."""
        self._shapes.append(shape)
        self._add_map("features", code.features, ("features_values",))
        if self.where:
            for k, layer in enumerate(code.where, start=1):
                self._add_map(f"where{k}", layer, (f"mu{k}", f"gamma{k}"))
            for name in ("low", "scale"):
                if (pixels := getattr(code.background, name)) is not None:
                    self.npz.append(name, pixels.cpu().numpy().ravel())

    def finish(self, **more: np.ndarray[Any, Any]) -> dict[str, list[int]]:
        """Write the file, with these arrays besides; returns the shapes of its arrays."""
        for name, ends in self._ends.items():
            more[f"{name}_shape"] = np.array(self._grids[name], np.int64)
            more[f"{name}_indptr"] = np.array([0, *ends], np.int64)
        return self.npz.finish(**more, image_shape=np.array(self._shapes, np.int64), format=np.array(FORMAT))

    def _add_map(self, name: str, layer: SparseMap, keys: tuple[str, ...]) -> None:
        """The places of one image in ascending order, and their values, which are several arrays of equal width."""
        if math.prod(layer.grid) >= MOST_PLACES:
            raise ImageError(f"a code of {layer.grid} was given; expected fewer than {MOST_PLACES:,} places")
        indices, values = layer.indices.cpu().numpy(), layer.values.cpu().numpy()
        order = np.argsort(indices)
        self.npz.append(f"{name}_indices", indices[order].astype(np.int32))
        for key, part in zip(keys, np.split(values[order], len(keys), axis=1), strict=True):
            self.npz.append(key, part[:, 0] if name == "features" else part)
        ends = self._ends.setdefault(name, [])
        ends.append((ends[-1] if ends else 0) + len(indices))
        self._grids.setdefault(name, []).append(layer.grid)
