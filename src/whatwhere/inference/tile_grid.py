"""Where the tiles of a large picture lie, which of them each pixel and each feature is taken from, and how they blend.

All tiles have one size, so that they can be inferred in batches. They begin at multiples of the strides of all layers,
so that the pooling regions of a tile are regions of the picture, and the last one ends with the picture. Between two
neighbours there is a cut in the middle of what they share: features are taken from the tile on their side of it,
and the reconstructions blend into each other on a short ramp across it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from whatwhere.errors import SpecError
from whatwhere.model.sized import LayerPlaces
from whatwhere.spec import ModelSpec
from whatwhere.spec.checks import require_count

RAMP_SHARE = 8  # the ramp is this part of the overlap: short, since tiles are less exact towards their borders


@dataclass(frozen=True)
class TileAxis:
    """The tiles along rows or columns: their size, where each begins, and the cuts between them (in pixels)."""

    length: int
    size: int
    starts: tuple[int, ...]
    cuts: tuple[int, ...]
    ramp: int

    @classmethod
    def split(cls, length: int, tile: int, overlap: int, stride: int) -> "TileAxis":
        """As few tiles of at most `tile` pixels as share at least `overlap` pixels each with the next one."""
        if length <= tile:
            return cls(length, length, (0,), (), 0)
        size = tile - (tile - length) % stride  # so that the last tile ends with the picture
        step = (size - overlap) // stride
        if step < 1:
            raise SpecError(
                f"tile = {tile} and overlap = {overlap} were given; expected a tile of at least {overlap + 2 * stride} "
                f"(the overlap and twice the strides of all layers), or a smaller overlap"
            )
        room = (length - size) // stride
        count = -(-room // step) + 1
        starts = tuple(room * i // (count - 1) * stride for i in range(count))
        cuts = tuple((left + size + right) // 2 for left, right in pairwise(starts))
        narrowest = min((right - left for left, right in pairwise(cuts)), default=size)
        return cls(length, size, starts, cuts, min(overlap // RAMP_SHARE, narrowest))

    def core(self, tile: int, places: LayerPlaces, count: int) -> tuple[int, int]:
        """The features of a layer (or pixels) that are taken from a tile: from … to, of `count` in the picture."""
        first = 0 if tile == 0 else places.first_from(self.cuts[tile - 1])
        last = count if tile == len(self.starts) - 1 else places.first_from(self.cuts[tile])
        return first, last

    def weights(self, tile: int) -> Tensor:
        """The share of a tile in the reconstruction of its pixels, float64 [size]; all tiles' shares add up to 1."""
        share = torch.ones(self.size, dtype=torch.float64)
        for cut in self.cuts[tile - 1 : tile] if tile else ():
            share *= self._rise(tile, cut)
        for cut in self.cuts[tile : tile + 1]:
            share *= 1 - self._rise(tile, cut)
        return share

    def _rise(self, tile: int, cut: int) -> Tensor:
        """From 0 before a cut to 1 after it."""
        place = self.starts[tile] + torch.arange(self.size, dtype=torch.float64) + 0.5 - cut
        return (place / max(self.ramp, 1) + 0.5).clamp(0, 1) if self.ramp else (place > 0).double()


@dataclass(frozen=True)
class TileGrid:
    """The tiles of a picture, row by row, and where the features of every layer are along rows and columns."""

    rows: TileAxis
    columns: TileAxis
    places: tuple[tuple[LayerPlaces, ...], tuple[LayerPlaces, ...]]

    @classmethod
    def of(cls, spec: ModelSpec, height: int, width: int, tile: int, overlap: int) -> "TileGrid":
        """Tiles of at most tile × tile pixels with at least `overlap` pixels in common with each neighbour."""
        require_count("tile", tile)
        require_count("overlap", overlap, least=0)
        places = LayerPlaces.of(spec, 0), LayerPlaces.of(spec, 1)
        rows, columns = (
            TileAxis.split(length, tile, overlap, along[-1].stride)
            for length, along in zip((height, width), places, strict=True)
        )
        return cls(rows, columns, places)

    def __len__(self) -> int:
        return len(self.rows.starts) * len(self.columns.starts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return ((i, j) for i in range(len(self.rows.starts)) for j in range(len(self.columns.starts)))

    def window(self, tile: tuple[int, int]) -> tuple[slice, slice]:
        """The pixels of a tile: rows and columns of the picture."""
        top, left = self.rows.starts[tile[0]], self.columns.starts[tile[1]]
        return slice(top, top + self.rows.size), slice(left, left + self.columns.size)

    def core(
        self, tile: tuple[int, int], layer: int, counts: tuple[int, ...]
    ) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
        """What is taken from a tile, of a layer with `counts` rows and columns: in the picture, and in the tile."""
        both = []
        for axis, places, i, count in zip((self.rows, self.columns), self.places, tile, counts, strict=True):
            first, last = axis.core(i, places[layer], count)
            start = axis.starts[i] // places[layer].stride
            both.append((slice(first, last), slice(first - start, last - start)))
        (rows, inner_rows), (columns, inner_columns) = both
        return (rows, columns), (inner_rows, inner_columns)

    def weights(self, tile: tuple[int, int]) -> Tensor:
        """The share of a tile in the reconstruction of each of its pixels, float64 [h, w]."""
        return self.rows.weights(tile[0])[:, None] * self.columns.weights(tile[1])
